"""Evaluator: one setting of a system, searched and measured on any subset of the queries."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from semrecall.benchmark import search
from semrecall.data import Cost, Ids, Judgments, Run, Vectors
from semrecall.data.allowed import filter_mismatch, filtered
from semrecall.data.ids import codes_in, unify
from semrecall.data.ids import ids as ids_of
from semrecall.data.run import group_rows
from semrecall.data.slices import Semantic
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.evaluate.inputs import Inputs
from semrecall.exact import rescore
from semrecall.formats import queries_of, vectors_of
from semrecall.measures import Measure, NoRelevant, align, parse_all
from semrecall.measures.index import tolerance_used
from semrecall.tuning.objectives import CLOCKS, COUNTERS, Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.systems import System

__all__ = ["Evaluator", "Measured"]

Noun = TypeVar("Noun", Run, Judgments)


@dataclass(frozen=True, eq=False)
class Measured:
    """One setting on m queries.

    rows: (m,) positions of the queries among those of the evaluator.
    values: by measure, (m,), NaN where undefined. costs: by column of `objectives`, (m,), only
        those that are known.
    digest: of the ids that were found: equal digests are equal results.
    seconds: how long it took, measuring included.
    run: what was found; None for what was read back from a store.
    """

    rows: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    costs: Mapping[str, NDArray[np.float64]]
    digest: str = ""
    seconds: float = 0.0
    run: Run | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def cost(self, objective: Objective) -> float:
        """The cost of these queries; NaN where the system does not tell."""
        figures = self.costs.get(objective.column)
        return float("nan") if figures is None else objective.of(figures)

    def joined(self, other: Measured) -> Measured:
        """The two parts of the queries together."""
        return Measured(
            np.concatenate([self.rows, other.rows]),
            {n: np.concatenate([v, other.values[n]]) for n, v in self.values.items()},
            {
                n: np.concatenate([c, other.costs[n]])
                for n, c in self.costs.items()
                if n in other.costs
            },
            hashlib.sha256((self.digest + other.digest).encode()).hexdigest()[:16],
            self.seconds + other.seconds,
        )

    def of(self, rows: NDArray[np.int64]) -> Measured:
        """The same for some of its queries, given by their positions among the evaluator's."""
        at = codes_in(rows, self.rows)
        if bool((at < 0).any()):
            raise InputError("these queries were not measured")
        return Measured(
            rows,
            {n: v[at] for n, v in self.values.items()},
            {n: c[at] for n, c in self.costs.items()},
        )


class Evaluator:
    """Queries with what is known of them: any built system can be measured on any of them.

    queries: the ids of the queries that can be measured, (n,): those of the vectors that truth
        (or, without it, judgments) knows. All rows below are positions among them.
    measures: as asked. k: how many results are searched for.
    left_out: how many query vectors nothing is known of.
    """

    def __init__(
        self,
        queries: Any,
        measures: str | Measure | Iterable[str | Measure],
        *,
        truth: Run | None = None,
        judgments: Judgments | None = None,
        base: Any = None,
        query_ids: Any = None,
        k: int | None = None,
        filters: Sequence[Any] | Mapping[Any, Any] | None = None,
        texts: Sequence[str] | Mapping[Any, str] | None = None,
        no_relevant: NoRelevant = "skip",
    ) -> None:
        """What is measured, and against what.

        queries: Vectors, an array (n, d) or a path; None for a system that is asked in text. base:
        the vectors searched; then scores are exact, recomputed in float64. k: results per query;
        the largest k of the measures at least. filters, texts: one per query, or by query id, as
        `search` takes them. no_relevant: as in `evaluate`.

        Raises InputError without truth and judgments, MismatchError where no query is known, and
        MeasureError for a measure that cannot be computed.
        """
        self.vectors = _vectors(queries, texts, query_ids)
        self.matrix = np.ascontiguousarray(self.vectors.require_matrix(), dtype=np.float32)
        self.measures = parse_all(measures)
        self.truth, self.judgments = truth, judgments
        self.base = None if base is None else vectors_of(base)
        self.no_relevant: NoRelevant = no_relevant
        self._at = self._known()
        self.queries: Ids = self.vectors.ids[self._at]
        self.left_out = len(self.matrix) - len(self._at)
        self.k = self._results(k)
        self.filters = self._each(filters, "filters")
        self.texts = self._each(texts, "texts")
        self._check_filters()
        self._checked = False
        self._used: dict[str, Measure] = {}
        self._parts: dict[bytes, tuple[Run | None, Judgments | None]] = {}

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def rows(self) -> NDArray[np.int64]:
        """All of them, (n,)."""
        return np.arange(len(self), dtype=np.int64)

    def measure(
        self,
        system: System,
        settings: Mapping[str, Any] | None = None,
        rows: NDArray[np.int64] | None = None,
        *,
        timed: bool = False,
    ) -> Measured:
        """Search with one setting, and measure what was found.

        rows: which queries; all when None. timed: with a timing pass; otherwise only counters,
        which need one search. Raises what `search` and `evaluate` raise.
        """
        chosen = self.rows if rows is None else np.asarray(rows, dtype=np.int64)
        started = time.perf_counter()
        run, cost = self.search(system, settings or {}, chosen, timed=timed)
        return Measured(
            chosen,
            self.values(run, chosen),
            _figures(cost, timed),
            _digest(run),
            time.perf_counter() - started,
            run,
        )

    def search(
        self,
        system: System,
        settings: Mapping[str, Any],
        rows: NDArray[np.int64],
        *,
        timed: bool = False,
    ) -> tuple[Run, Cost]:
        """The run and the cost of one setting on some queries; scores as the system tells them."""
        asked = self.asked(rows)
        given: dict[str, Any] = dict(settings)
        for name, values in (("filters", self.filters), ("texts", self.texts)):
            if values is not None:
                given[name] = [values[row] for row in rows.tolist()]
        with warnings.catch_warnings():
            if self._checked:
                # What is odd about the queries was said with the first setting.
                warnings.simplefilter("ignore", SemrecallWarning)
            return search(
                system, asked, self.k,
                repeats=3 if timed else 1, latency_queries=len(rows) if timed else 0,
                **given,
            )  # fmt: skip

    def asked(self, rows: NDArray[np.int64]) -> Vectors:
        """The vectors of some queries, with their ids."""
        return Vectors.of(self.matrix[self._at[rows]], ids=self.queries[rows])

    def values(
        self, run: Run, rows: NDArray[np.int64] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """The measures of a run over some queries, (m,) each, in the order of `rows`.

        A query that the run lacks scores 0. With `base`, scores are recomputed first. The
        tolerance that `trecall` takes from the data is that of all queries, whatever the rows.
        """
        chosen = self.rows if rows is None else np.asarray(rows, dtype=np.int64)
        self._check(run)
        truth, judgments = self._part(chosen)
        if self.base is not None and run.valid.any():
            space = run.space or (truth.space if truth is not None else None)
            assert space is not None  # the check would have said so
            scored = rescore(run, self.base, self.vectors, space)
            assert scored.flat_scores is not None
            run = scored.replace(flat_scores=np.where(run.valid, scored.flat_scores, np.nan))
        problem = align(run, truth, judgments, no_relevant=self.no_relevant)
        wanted, have = unify(self.queries[chosen], problem.queries)
        at = codes_in(wanted, have)
        return {
            name: np.where(at >= 0, measure.values(problem).values[at], np.nan)
            for name, measure in self._used.items()
        }

    @cached_property
    def semantic(self) -> Semantic | None:
        """The semantic neighbours of all queries; None without truth or judgments."""
        if self.truth is None or self.judgments is None:
            return None
        truth, judgments = self._part(self.rows)
        assert truth is not None
        grades = align(truth, truth, judgments).true_grades
        assert grades is not None
        rel = next((m.rel for m in self.measures if m.name == "srecall"), 1.0)
        k = min(self.k, grades.shape[1])
        near = grades[:, :k]
        counts = np.asarray((near >= rel).sum(axis=1), dtype=np.int64)
        return Semantic(k, rel, counts, np.count_nonzero(~np.isnan(near), axis=1))

    # -- what belongs together --------------------------------------------------------------

    def _each(self, given: Sequence[Any] | Mapping[Any, Any] | None, what: str) -> list[Any] | None:
        """One value for each query that can be measured, given by position or by id."""
        if given is None:
            return None
        if isinstance(given, Mapping):
            by_id = {str(name): value for name, value in given.items()}
            return [by_id.get(str(query)) for query in self.queries]
        if len(given) != len(self.matrix):
            raise InputError(f"{len(given):,} {what} for {len(self.matrix):,} queries")
        return [given[row] for row in self._at.tolist()]

    def _check_filters(self) -> None:
        """Raise MismatchError where queries have filters, but the truth was made without."""
        if self.truth is not None and any(one not in (None, "") for one in self.filters or ()):
            filter_mismatch(filtered(self.truth.identity), True, "every setting")

    def _known(self) -> NDArray[np.int64]:
        """Rows of the query vectors that truth or judgments know."""
        if self.truth is not None:
            source, known = "truth", self.truth.queries
        elif self.judgments is not None:
            source, known = "judgments", group_rows(self.judgments.queries)[0]
        else:
            raise InputError(
                "nothing to compare with; expected truth, judgments, or both",
                hint="semrecall.truth(base, queries, k, space) finds the exact neighbours",
            )
        ours, theirs = unify(self.vectors.ids, known)
        rows = np.flatnonzero(codes_in(ours, theirs) >= 0)
        if len(rows) == 0:
            like = [repr(ids[0]) if len(ids) else "none" for ids in (self.vectors.ids, known)]
            raise MismatchError(
                f"no query is in the {source}: the vectors have ids like {like[0]}, the {source} "
                f"like {like[1]}",
                hint="give the vectors the ids of the queries (query_ids=..., --query-ids FILE)",
            )
        return rows

    def _results(self, k: int | None) -> int:
        needed = max((m.k for m in self.measures if m.k is not None), default=0)
        if k is not None and k < max(needed, 1):
            raise InputError(f"k is {k}; the measures need {max(needed, 1)} results")
        if k is not None or needed:
            return k or needed
        return (self.truth.depth if self.truth is not None else 0) or 100

    def _check(self, run: Run) -> None:
        """The first run shows whether all inputs belong together; then measures are settled."""
        if self._checked:
            return
        inputs = Inputs({"results": run}, self.truth, self.judgments, None)
        inputs.check()
        if self.base is not None:
            inputs.rescore(self.base, self.vectors)
        self.truth = inputs.truth
        self._used = {str(m): self._settled(m) for m in self.measures}
        self._checked = True

    def _settled(self, measure: Measure) -> Measure:
        """The measure with its tolerance as a number, where it comes from all queries."""
        if measure.settings.get("x") != "proxy" or self.truth is None or measure.k is None:
            return measure
        truth, _ = self._part(self.rows)
        assert truth is not None
        problem = align(truth, truth)
        if problem.true_scores is None or problem.space is None:
            return measure
        x = float(tolerance_used(problem, measure.k, "proxy"))
        return Measure(measure.name, measure.k, (("x", x),)) if x >= 0 else measure

    def _part(self, rows: NDArray[np.int64]) -> tuple[Run | None, Judgments | None]:
        """Truth and judgments of these queries."""
        key = rows.tobytes()
        if key not in self._parts:
            chosen = self.queries[rows]
            self._parts[key] = (_of(self.truth, chosen), _of(self.judgments, chosen))
        return self._parts[key]


def _vectors(queries: Any, texts: Any, query_ids: Any) -> Vectors:
    """The query vectors with their ids; for queries in text alone, one column that says nothing."""
    if queries is None and texts is None:
        raise InputError("there are no queries: neither vectors nor texts are given")
    if queries is not None:
        vectors = queries_of(queries)
    else:
        own = list(texts) if isinstance(texts, Mapping) else None
        vectors = Vectors.of(np.ones((len(texts), 1), dtype=np.float32), ids=own)
    if query_ids is not None:
        vectors = Vectors.of(vectors, ids=ids_of(query_ids, what="query ids"))
    return vectors


def _of(noun: Noun | None, queries: Ids) -> Noun | None:
    """What a truth or judgments say of some queries."""
    if noun is None:
        return None
    wanted, known = unify(queries, noun.queries)
    return noun.select(codes_in(known, wanted) >= 0)


def _figures(cost: Cost, timed: bool) -> dict[str, NDArray[np.float64]]:
    """What the system tells, by column."""
    names = (*COUNTERS, *CLOCKS[:2]) if timed else COUNTERS
    columns = {name: getattr(cost, name) for name in names}
    rate = cost.details.get("queries_per_second")
    if timed and rate:
        columns["batch_seconds"] = np.full(len(cost), 1 / rate)
    return {n: c for n, c in columns.items() if c is not None and not np.isnan(c).all()}


def _digest(run: Run) -> str:
    """A hash of the ids found, the same for the same results."""
    digest = hashlib.sha256(np.ascontiguousarray(run.offsets).tobytes())
    ids = run.documents
    if ids.are_integers:
        digest.update(np.ascontiguousarray(ids.codes).tobytes())
    else:
        digest.update("\0".join(ids.strings().tolist()).encode())
    return digest.hexdigest()[:16]
