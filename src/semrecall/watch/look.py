"""One look at a running system: what it finds, measured against a stored truth."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.benchmark import search
from semrecall.data import Run, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallError, SemrecallWarning
from semrecall.evaluate import evaluate
from semrecall.exact import rescore
from semrecall.formats import queries_of, read_run, read_texts
from semrecall.gates import Gate, Mean, Verdict, verdicts
from semrecall.measures import parse
from semrecall.systems import System, base_vectors, is_spec, open_in
from semrecall.watch.aging import (
    Aging,
    gone_share,
    moved_share,
    newcomers_share,
    score_error,
    stale_share,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["Look", "Watch"]

#: Scores by an index are taken to be off by this share at least.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Look:
    """What was seen at a time `at` (seconds since 1970), in so many `seconds`.

    error: why the system did not answer; "" where it did, and only then there is the rest.
    means: of the measures. scores_by: "exact" where results were scored from vectors, else "index".
    error_of_scores: how far the system's scores are off, as a share. verdicts: of the gates.
    latencies: seconds of queries asked one at a time, (n,).
    """

    at: float
    seconds: float
    error: str = ""
    means: tuple[Mean, ...] = ()
    queries: int = 0
    scores_by: str = "index"
    error_of_scores: float = math.nan
    aging: Aging = field(default_factory=Aging)
    verdicts: tuple[Verdict, ...] = ()
    latencies: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    notes: tuple[str, ...] = ()

    def latency(self, share: float) -> float:
        """The seconds that this share of the queries took at most; NaN where nothing was timed."""
        return float(np.quantile(self.latencies, share)) if len(self.latencies) else math.nan


class Watch:
    """A system that is looked at again and again.

    spec: of a system that is searched as it is, as `open_system` takes it.
    truth: the exact neighbours, a Run or their file, which is read again when it was written anew.
    queries: their vectors, by the ids of the truth; None for a system asked in text, then `texts`
        ({id: text} or a file).
    measures: with k at most the depth of the truth.
    base: vectors to score results from: a file, read once, or the spec of a database, read at
        every look. Without it the system's scores are believed for results outside the truth.
    sample: so many queries of the truth, always the same, are asked. exact_queries: so many of
        them the system also searches exactly, which tells the age of the truth best.
    limit: the share of aged neighbours from which on the truth is not to be trusted.
    gates: what the means must reach. clock: seconds since 1970; timer: seconds.

    Raises the errors of what is given; a system that does not answer is no error but a Look.
    """

    def __init__(
        self,
        spec: str,
        truth: Run | str | Path,
        queries: Any = None,
        *,
        measures: Sequence[str] = ("trecall@10",),
        texts: Mapping[Any, str] | str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
        space: str | Space | None = None,
        base: Any = None,
        sample: int = 100,
        exact_queries: int = 0,
        limit: float = 0.05,
        gates: Sequence[Gate] = (),
        seed: int = 0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.spec, self.settings, self.limit = spec, dict(settings or {}), limit
        self.gates, self.exact_queries = tuple(gates), exact_queries
        names = [*measures, *(gate.measure for gate in gates)]
        self.measures = tuple(dict.fromkeys(str(parse(name)) for name in names))
        self.path = None if isinstance(truth, Run) else Path(truth)
        whole = truth if isinstance(truth, Run) else read_run(truth)
        self._written = None if self.path is None else self.path.stat().st_mtime_ns
        self._base, self._clock, self._timer = base, clock, timer
        self._space = space or whole.space
        self._texts = read_texts(texts) if isinstance(texts, str | Path) else texts
        if not 0 < limit <= 1 or sample < 1:
            raise InputError(f"limit is {limit:g}, sample {sample}; expected 0 to 1, at least 1")
        self._vectors = None if queries is None else queries_of(queries)
        self._sample, self._seed = sample, seed
        self.truth = self._sampled(whole)
        self._check()
        self._seen = False

    @property
    def k(self) -> int:
        """The deepest k of the measures."""
        return max(parse(name).k or 1 for name in self.measures)

    def look(self) -> Look:
        """Ask the system now; a fault of it is in the Look.

        At the first look, what was given wrong (an unknown setting, another dimension) is raised.
        """
        at, start = self._clock(), self._timer()
        try:
            found = self._look(at, start)
        except Exception as error:
            # Whatever a system or its library raises: the next look may find it well again.
            if isinstance(error, InputError) and not self._seen:
                raise
            said = error.message if isinstance(error, SemrecallError) else ""
            return Look(at, self._timer() - start, said or f"{type(error).__name__}: {error}")
        self._seen = True
        return found

    # -- before the first -----------------------------------------------------------------

    def _sampled(self, truth: Run) -> Run:
        """The truth of the queries that are asked: those with neighbours, and vectors or texts."""
        known = self._known_queries()
        names = truth.queries.strings().tolist()
        usable = np.diff(truth.offsets) > 0
        usable &= np.array([name in known for name in names], dtype=bool)
        rows = np.flatnonzero(usable)
        if len(rows) == 0:
            raise MismatchError(
                f"none of the {len(truth):,} queries of the truth has a vector or a text, and "
                "neighbours",
                hint="give the queries that the truth was made for, with their ids",
            )
        if len(rows) > self._sample:
            some = np.random.default_rng(self._seed).choice(rows, self._sample, replace=False)
            rows = np.sort(some)
        return truth.select(rows)

    def _known_queries(self) -> set[str]:
        if self._vectors is not None:
            return set(self._vectors.ids.strings().tolist())
        if self._texts is None:
            raise InputError("there are no queries to ask; give vectors or texts")
        return {str(name) for name in self._texts}

    def _check(self) -> None:
        """The measures must be such as a truth alone can tell: this is no place for judgments."""
        for name in self.measures:
            if parse(name).needs - {"truth", "scores", "found_scores"} or parse(name).k is None:
                raise InputError(
                    f"{name} cannot be watched; expected a measure of the index with a k",
                    hint="for example trecall@10 or recall@10",
                )
        # The truth as its own run: whatever it lacks for a measure is said now.
        evaluate(self.truth.replace(name="truth"), self.measures, truth=self.truth)

    # -- a look ---------------------------------------------------------------------------

    def _look(self, at: float, start: float) -> Look:
        self._refresh()
        # Opened anew each time: what an open one knows of itself may have changed since.
        system = self._opened()
        try:
            return self._seen_in(system, at, start)
        finally:
            with contextlib.suppress(Exception):
                system.close()

    def _seen_in(self, system: System, at: float, start: float) -> Look:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", SemrecallWarning)
            run, cost = search(
                system, k=self.k, repeats=1, latency_queries=len(self.truth), **self._asked(),
                **self.settings,
            )  # fmt: skip
        notes = [str(w.message) for w in said if issubclass(w.category, SemrecallWarning)]
        off = score_error(run, self.truth)
        base = self._base_now()
        scored = run if base is None else self._rescored(run, base)
        by = scored.scores_by if scored.flat_scores is not None else "index"
        aging, gone = self._aging(system, scored, by, base, off, notes)
        truth = self.truth
        if gone and truth.without(gone).depth >= self.k:
            # Nobody can find what is not there; a deeper truth knows who takes its place.
            truth = truth.without(gone)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SemrecallWarning)
            result = evaluate(scored, self.measures, truth=truth)
        rows = result.summary()
        judged = [v for gate in self.gates for v in verdicts(gate, rows, several=False)]
        latencies = np.empty(0) if cost.latency_seconds is None else cost.latency_seconds
        return Look(
            at,
            self._timer() - start,
            means=tuple(Mean(r.run, r.measure, r.mean, r.low, r.high, r.n) for r in rows),
            queries=len(run),
            scores_by=by,
            error_of_scores=off,
            aging=aging,
            verdicts=tuple(judged),
            latencies=latencies[~np.isnan(latencies)],
            notes=(*notes, *self._doubts(result, by, off)),
        )

    def _refresh(self) -> None:
        """The truth of the file, where it was written anew since it was read."""
        if self.path is None or self.path.stat().st_mtime_ns == self._written:
            return
        written = self.path.stat().st_mtime_ns
        self.truth = self._sampled(read_run(self.path))
        self.__dict__.pop("_sampled_vectors", None)
        self._check()
        self._written = written

    def _opened(self) -> System:
        system = open_in(self.spec, self._space)
        if not system.built:
            # A database that has not what is asked for says so itself.
            _ = system.ntotal
            raise InputError(f"{self.spec!r} has nothing to search; expected a built system")
        return system

    def _asked(self) -> dict[str, Any]:
        """The sampled queries as `search` takes them."""
        names = self.truth.queries
        if self._vectors is None:
            assert self._texts is not None
            known = {str(name): text for name, text in self._texts.items()}
            texts = [known[name] for name in names.strings().tolist()]
            return {"queries": None, "texts": texts, "query_ids": names}
        return {"queries": self._sampled_vectors}

    @cached_property
    def _sampled_vectors(self) -> Vectors:
        assert self._vectors is not None
        place = {name: row for row, name in enumerate(self._vectors.ids.strings().tolist())}
        rows = [place[name] for name in self.truth.queries.strings().tolist()]
        matrix = self._vectors.require_matrix()
        return Vectors.of(np.asarray(matrix[rows]), ids=self.truth.queries)

    def _base_now(self) -> Vectors | None:
        """The vectors to score from: a database's as they are now."""
        if self._base is None or isinstance(self._base, Vectors):
            return self._base
        if isinstance(self._base, str) and is_spec(self._base):
            return base_vectors(self._base, whole=True)
        read = base_vectors(self._base, whole=True)
        self._base = read
        return read

    def _rescored(self, run: Run, base: Vectors) -> Run:
        """Exact scores where the id is in the base, and the system's own for the others."""
        assert self._space is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SemrecallWarning)
            exact = rescore(run, base, self._sampled_vectors, self._space)
        assert exact.flat_scores is not None
        unknown = np.isnan(exact.flat_scores) & run.valid
        if not unknown.any() or run.flat_scores is None:
            return exact
        scores = np.where(unknown, run.flat_scores, exact.flat_scores)
        return exact.replace(flat_scores=scores, scores_by="index")

    def _aging(
        self, system: System, run: Run, by: str, base: Vectors | None, off: float, notes: list[str]
    ) -> tuple[Aging, list[str]]:
        """What tells the age of the truth, and the ids that are gone."""
        slack = 1e-9 if by == "exact" else max(_ROUNDING, 2 * off if off == off else 0.0)
        gone, names = (math.nan, []) if base is None else gone_share(self.truth, base.ids, self.k)
        aging = Aging(
            newcomers=newcomers_share(run, self.truth, self.k, slack),
            gone=gone,
            moved=moved_share(run, self.truth, self.k) if by == "exact" else math.nan,
            exact=self._exact_share(system, slack, notes),
            rows_then=_rows_then(self.truth),
            rows_now=_rows_of(system),
            limit=self.limit,
        )
        return aging, names

    def _exact_share(self, system: System, slack: float, notes: list[str]) -> float:
        """By the system's own exact search over some of the queries; NaN where it has none."""
        if not self.exact_queries or self._vectors is None:
            return math.nan
        few = self.truth.select(np.arange(min(self.exact_queries, len(self.truth))))
        matrix = self._sampled_vectors.require_matrix()[: len(few)]
        given = {"query_ids": few.queries} if system.by_query_id else {}
        try:
            ids, scores = system.exact(np.ascontiguousarray(matrix, np.float32), self.k, **given)
        except InputError as error:
            notes.append(error.message)
            return math.nan
        found = Run.from_arrays(ids, scores, query_ids=few.query_ids, space=few.space, k=self.k)
        return stale_share(found, few, self.k, max(slack, _ROUNDING))

    def _doubts(self, result: Any, by: str, off: float) -> list[str]:
        """Whether the scores of the system are good enough for the tolerance."""
        if by == "exact" or off != off or off < 1e-3:
            return []
        tolerant = [name for name in self.measures if "scores" in parse(name).needs]
        if not tolerant:
            return []
        return [
            f"the system's scores are off by up to {off:.2%}: {tolerant[0]} believes them for "
            "results outside the truth; --base scores them exactly"
        ]


def _rows_then(truth: Run) -> int | None:
    """How many vectors could be found when a truth was made; None where it does not say so."""
    made = truth.identity
    rows = made.get("base", {}).get("rows")
    if rows is None or made.get("filter") is not None:
        return None
    zero = made.get("zero_rows", 0) if made.get("space") == "cosine" else 0
    return int(rows) - int(made.get("left_out_rows", 0)) - int(zero)


def _rows_of(system: System) -> int | None:
    """How many vectors a system holds; None where it does not say."""
    try:
        return int(system.ntotal)
    except InputError:
        return None
