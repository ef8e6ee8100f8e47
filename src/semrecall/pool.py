"""pool(): which pairs to judge next, those first that could change a measure most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.data import Ids, Judgments, Run
from semrecall.data.classes import ClassConflicts, Classes
from semrecall.data.classes import drop_self as without_self
from semrecall.data.frames import to_library
from semrecall.data.ids import codes_in, concatenate, ids, unify
from semrecall.data.rows import row_numbers
from semrecall.data.run import group_rows
from semrecall.errors import InputError, MismatchError
from semrecall.formats.pairs import write_pairs
from semrecall.measures import Measure, align, parse
from semrecall.stats.sampling import draw_sample, inclusion_probabilities
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]

__all__ = ["JudgedShare", "Pool", "pool"]

#: What the truth is called beside the runs.
TRUTH = "truth"
_DEPTHS = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
SampleBy = Literal["equal", "change"]


@dataclass(frozen=True)
class JudgedShare:
    """How much of the first `depth` results of a run is judged: a mean over its queries."""

    run: str
    depth: int
    judged: float


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """Pairs of query and document (m,) to judge, in the order in which to judge them.

    probabilities: with which each was picked, 1 for those picked by what they could change.
    picked: "change" or "sample". changes: by how much labels could move the measure, summed over
        queries and runs. ranks: {run: (m,) rank of the pair, from 1; 0 where the run lacks it}.
    measure, depth, seed: as asked. unjudged: how many unjudged pairs there are, picked or not.
    judged: the pairs of the pool that are judged already. shares: how much is judged by depth.
    """

    queries: Ids
    documents: Ids
    probabilities: Array
    picked: tuple[str, ...]
    changes: Array
    ranks: Mapping[str, Whole]
    measure: str
    depth: int
    seed: int
    unjudged: int
    judged: Judgments
    shares: tuple[JudgedShare, ...]

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        return (
            f"Pool({len(self):,} of {self.unjudged:,} unjudged pairs, {len(self.judged):,} judged "
            f"ones, depth {self.depth}, by {self.measure})"
        )

    def rows(self) -> list[dict[str, Any]]:
        """A mapping per pair: query_id, doc_id, probability, picked, change, runs, best_rank, why.

        `runs` counts the lists with the pair, a truth among them.
        """
        found = [ranks.tolist() for ranks in self.ranks.values()]
        columns = zip(
            self.queries,
            self.documents,
            self.probabilities.tolist(),
            self.picked,
            self.changes.tolist(),
            zip(*found, strict=True),
            strict=True,
        )
        return [
            {
                "query_id": query,
                "doc_id": document,
                "probability": probability,
                "picked": picked,
                "change": change,
                "runs": sum(r > 0 for r in ranks),
                "best_rank": min(r for r in ranks if r > 0),
                "why": _why(dict(zip(self.ranks, ranks, strict=True))),
            }
            for query, document, probability, picked, change, ranks in columns
        ]

    def to_arrow(self) -> Any:
        """The columns of `rows` as an arrow table."""
        import pyarrow as pa

        rows = self.rows()
        columns: dict[str, Any] = {
            "query_id": self.queries.to_arrow(),
            "doc_id": self.documents.to_arrow(),
            "probability": pa.array(self.probabilities),
            "picked": pa.array(self.picked, pa.string()),
            "change": pa.array(self.changes),
        }
        for name, kind in (("runs", pa.int64()), ("best_rank", pa.int64()), ("why", pa.string())):
            columns[name] = pa.array([row[name] for row in rows], kind)
        return pa.table(columns)

    def to_frame(self, library: str = "pandas") -> Any:
        """The table of `to_arrow` as a frame: "pandas", "polars" or "arrow"."""
        return to_library(self.to_arrow(), library)

    def write(self, path: Path | str) -> None:
        """Write the pairs for judging: JSON lines (.jsonl), .csv or .parquet, whole or not at all.

        Raises InputError for other suffixes.
        """
        write_pairs(self.to_arrow(), path, "a pool is")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists, for JSON."""
        return {
            "measure": self.measure,
            "depth": self.depth,
            "seed": self.seed,
            "unjudged": self.unjudged,
            "judged": len(self.judged),
            "shares": [asdict(share) for share in self.shares],
            "pairs": self.rows(),
        }


def pool(
    runs: Run | Mapping[str, Run] | Sequence[Run],
    judgments: Judgments | None = None,
    *,
    truth: Run | None = None,
    depth: int = 20,
    budget: int | None = None,
    sample: int = 0,
    sample_by: SampleBy = "equal",
    measure: str | Measure | None = None,
    grade: float | None = None,
    seed: int = 0,
    only: Any = None,
    drop_self: bool = False,
    same_as: Any = None,
    same_conflicts: ClassConflicts = "max",
) -> Pool:
    """The unjudged pairs among the first `depth` results of several runs, most telling first.

    runs: one run, {name: Run} or a list. truth: the exact neighbours join the pool.
    judgments: what is judged already; a pair without a grade there is unjudged.
    budget: at most so many pairs; None takes all. Of these, `sample` are drawn at random from what
        is left after the others, with their probabilities recorded: labels of such a pool allow
        estimates about all of its unjudged pairs, each pair weighted by 1 / probability.
    sample_by: "equal", or "change" to draw telling pairs more often (half of each one's weight is
        its share of all change, half is equal, so that none is out of reach).
    measure: by which a pair is told to matter: how far its value for the query moves, summed over
        the runs, when this pair alone turns out to have `grade` (the highest in the judgments).
        By default srecall of the truth, where there is one, else nDCG@10.
    only: ids of the queries to pool; None takes all of them.
    drop_self, same_as, same_conflicts: as in `evaluate`. A class of documents that are the same is
        one pair, under the id that stands for it, and judged where one of them is.

    Equal pairs stand by the number of runs, the best rank, then as the runs have them.
    """
    named = _named(runs)
    if truth is not None and TRUTH in named:
        raise InputError("a run is called 'truth'; give it another name beside the truth")
    if depth < 1:
        raise InputError(f"depth is {depth}; expected at least 1")
    if only is not None:
        part = ids(only, what="query ids")
        named = {name: _of_queries(run, part) for name, run in named.items()}
        truth = None if truth is None else _of_queries(truth, part)
        if not any(len(run) for run in named.values()):
            raise MismatchError(
                f"none of the {plural(len(part), 'query', 'queries')} to pool is in a run"
            )
    if drop_self:
        named = {name: without_self(run) for name, run in named.items()}
        truth = None if truth is None else without_self(truth)
    if same_as is not None:
        classes = Classes.of(same_as)
        named = {name: classes.of_run(run) for name, run in named.items()}
        truth = None if truth is None else classes.of_run(truth)
        if judgments is not None:
            judgments = classes.of_judgments(judgments, conflicts=same_conflicts)
    wanted = _measure(measure, truth, depth)
    lists = named if truth is None else {**named, TRUTH: truth}
    found = _Candidates(lists, judgments, depth)
    level = _grade(wanted, judgments) if grade is None else float(grade)
    changes = np.zeros(len(found))
    for name, run in named.items():
        changes += found.changes(name, run, truth, judgments, wanted, level)
    order = found.order(changes)
    chosen, probabilities, picked = _chosen(order, changes, budget, sample, sample_by, seed)
    return Pool(
        queries=found.queries[found.query[chosen]],
        documents=found.documents[found.first[chosen]],
        probabilities=probabilities,
        picked=picked,
        changes=changes[chosen],
        ranks={name: ranks[chosen] for name, ranks in found.ranks.items()},
        measure=str(wanted),
        depth=depth,
        seed=seed,
        unjudged=len(order),
        judged=found.judged_pairs(),
        shares=found.shares(depth),
    )


def _named(runs: Run | Mapping[str, Run] | Sequence[Run]) -> dict[str, Run]:
    """Runs by name; a second of one name gets a number."""
    if isinstance(runs, Run):
        return {runs.name or "run": runs}
    if isinstance(runs, Mapping):
        return {str(name): run for name, run in runs.items()}
    named: dict[str, Run] = {}
    for position, run in enumerate(runs, start=1):
        name = unique = run.name or f"run {position}"
        again = 2
        while unique in named:
            unique, again = f"{name}#{again}", again + 1
        named[unique] = run
    if not named:
        raise InputError("no run to pool; expected at least one")
    return named


def _of_queries(run: Run, chosen: Ids) -> Run:
    known, wanted = unify(run.queries, chosen)
    return run.select(np.isin(known, wanted))


def _measure(measure: str | Measure | None, truth: Run | None, depth: int) -> Measure:
    if measure is None:
        default = "nDCG@10" if truth is None else f"srecall@{min(depth, truth.depth)}"
        return parse(default)
    wanted = parse(measure)
    if "judgments" not in wanted.needs:
        raise InputError(
            f"{wanted} does not depend on judgments, so none could change it",
            hint="choose a measure such as nDCG@10, R@100 or srecall@100",
        )
    if "truth" in wanted.needs and truth is None:
        raise InputError(f"{wanted} needs the exact neighbours", hint="give the truth (--truth)")
    return wanted


def _grade(measure: Measure, judgments: Judgments | None) -> float:
    """The highest grade in the judgments, and relevant to the measure."""
    rel = measure.settings.get("rel", 1.0)
    least = float(rel) if isinstance(rel, int | float) else 1.0
    known = np.empty(0) if judgments is None else judgments.grades[~np.isnan(judgments.grades)]
    return max(least, float(known.max(initial=1.0)))


def _chosen(
    order: Whole,
    changes: Array,
    budget: int | None,
    sample: int,
    sample_by: SampleBy,
    seed: int,
) -> tuple[Whole, Array, tuple[str, ...]]:
    """Which candidates are picked, with which probability, and how."""
    if budget is not None and budget < 0:
        raise InputError(f"budget is {budget}; expected at least 0")
    if sample and budget is None:
        raise InputError("a sample needs a budget: without one all pairs are taken")
    if not 0 <= sample <= (budget or 0):
        raise InputError(f"sample is {sample}; expected 0 to the budget, {budget}")
    if sample_by not in ("equal", "change"):
        raise InputError(f"sample_by is {sample_by!r}; expected equal or change")
    total = len(order) if budget is None else min(budget, len(order))
    certain = max(total - sample, 0) if total < len(order) else total
    top, rest = order[:certain], order[certain:]
    size = total - certain
    weights = np.ones(len(rest))
    if sample_by == "change" and changes[rest].sum() > 0:
        weights += changes[rest] / changes[rest].mean()
    chances = inclusion_probabilities(weights, size)
    drawn = draw_sample(chances, seed=seed)
    return (
        np.concatenate([top, rest[drawn]]),
        np.concatenate([np.ones(len(top)), chances[drawn]]),
        ("change",) * len(top) + ("sample",) * len(drawn),
    )


class _Candidates:
    """The distinct pairs of the first results of several lists.

    queries: of all lists, (n,). documents: flat, of all lists. query, document: (m,) row and code
    of each pair. first: (m,) an entry of `documents` with its document. ranks: by list, (m,).
    grades: (m,), NaN where it is unjudged.
    """

    def __init__(self, lists: Mapping[str, Run], judgments: Judgments | None, depth: int) -> None:
        self.depth = depth
        self.lists = {name: _top(run, depth) for name, run in lists.items()}
        tops = self.lists.values()
        self.queries = group_rows(concatenate([run.queries for run in tops]))[0]
        self.documents = concatenate([run.documents for run in tops])
        judged = Judgments.from_dict({}) if judgments is None else judgments
        of_queries = unify(self.queries, judged.queries, *(run.queries for run in tops))
        documents, judged_documents = unify(self.documents, judged.documents)
        rows = [codes_in(codes, of_queries[0]) for codes in of_queries[2:]]
        query = np.concatenate(
            [r[row_numbers(run.offsets)] for r, run in zip(rows, tops, strict=True)]
        )
        self.query, self.document, self.first, pair = _distinct(query, documents)
        self.ranks, start = {}, 0
        for name, run in self.lists.items():
            ranks = np.zeros(len(self.query), dtype=np.int64)
            entries = np.arange(len(run.documents))
            rank = entries - run.offsets[row_numbers(run.offsets)] + 1
            ranks[pair[start : start + len(entries)]] = rank
            self.ranks[name], start = ranks, start + len(entries)
        self.grades = _looked_up(
            (self.query, self.document),
            (codes_in(of_queries[1], of_queries[0]), judged_documents),
            judged.grades,
        )

    def __len__(self) -> int:
        return len(self.query)

    def order(self, changes: Array) -> Whole:
        """Positions of the unjudged pairs, those first that could change most."""
        ranks = np.array(list(self.ranks.values()))
        lists = np.count_nonzero(ranks, axis=0)
        best = np.where(ranks > 0, ranks, self.depth + 1).min(axis=0, initial=self.depth + 1)
        # Sums in another order differ in the last bits: they are no difference.
        order = np.lexsort((self.first, self.query, best, -lists, -np.round(changes, 9)))
        return np.asarray(order[np.isnan(self.grades[order])])

    def judged_pairs(self) -> Judgments:
        """The pairs of the pool with a grade."""
        known = np.flatnonzero(~np.isnan(self.grades))
        return Judgments(
            self.queries[self.query[known]],
            self.documents[self.first[known]],
            self.grades[known],
        )

    def shares(self, depth: int) -> tuple[JudgedShare, ...]:
        """How much of the first results of each list is judged, at a few depths."""
        known = ~np.isnan(self.grades)
        depths = sorted({d for d in _DEPTHS if d < depth} | {depth})
        shares = []
        for name, ranks in self.ranks.items():
            for cut in depths:
                inside = (ranks > 0) & (ranks <= cut)
                n = len(self.queries)
                total = np.bincount(self.query[inside], minlength=n)
                judged = np.bincount(self.query[inside & known], minlength=n)
                asked = total > 0
                share = float(np.mean(judged[asked] / total[asked])) if asked.any() else np.nan
                shares.append(JudgedShare(name, cut, share))
        return tuple(shares)

    def changes(
        self,
        name: str,
        run: Run,
        truth: Run | None,
        judgments: Judgments | None,
        measure: Measure,
        grade: float,
    ) -> Array:
        """How far each pair could move the measure of one run, (m,); 0 for judged pairs.

        What a pair changes depends only on its rank in the run and on whether it is a true
        neighbour, so one pair of each kind is tried for all queries at once.
        """
        if "truth" not in measure.needs:
            truth = None
        trial = _Trial(self, run, truth, judgments, measure, grade)
        ranks = self.ranks[name]
        unjudged = np.isnan(self.grades)
        neighbour = self.ranks[TRUTH] > 0 if TRUTH in self.ranks else np.zeros(len(self), bool)
        changes = np.zeros(len(self))
        for rank in range(1, int(ranks.max(initial=0)) + 1):
            pairs = np.flatnonzero(unjudged & (ranks == rank))
            changes[pairs] = trial.change(self.query[pairs], self.documents[self.first[pairs]])[
                self.query[pairs]
            ]
        for kind in (neighbour, ~neighbour):
            pairs = np.flatnonzero(unjudged & (ranks == 0) & kind)
            one = pairs[np.unique(self.query[pairs], return_index=True)[1]]
            moved = trial.change(self.query[one], self.documents[self.first[one]])
            changes[pairs] = moved[self.query[pairs]]
        return changes


class _Trial:
    """One run's values of a measure, and what further labels make of them."""

    def __init__(
        self,
        candidates: _Candidates,
        run: Run,
        truth: Run | None,
        judgments: Judgments | None,
        measure: Measure,
        grade: float,
    ) -> None:
        self.run, self.truth, self.measure, self.grade = run, truth, measure, grade
        self.queries = candidates.queries
        known = Judgments.from_dict({}) if judgments is None else judgments
        graded = known.select(~np.isnan(known.grades))
        # Every query takes part, judged or not: a pair without a grade brings it in.
        nobody = _no_document(concatenate([candidates.documents, known.documents]))
        self.judgments = Judgments(
            concatenate([graded.queries, self.queries]),
            concatenate([graded.documents, nobody[np.zeros(len(self.queries), dtype=np.int64)]]),
            np.append(graded.grades, np.full(len(self.queries), np.nan)),
        )
        self.before = self._values(self.judgments)

    def change(self, rows: Whole, documents: Ids) -> Array:
        """How far the values move when these queries have one relevant document more, (n,)."""
        if len(rows) == 0:
            return np.zeros(len(self.queries))
        known = self.judgments
        more = Judgments(
            concatenate([known.queries, self.queries[rows]]),
            concatenate([known.documents, documents]),
            np.append(known.grades, np.full(len(rows), self.grade)),
        )
        return np.abs(self._values(more) - self.before)

    def _values(self, judgments: Judgments) -> Array:
        """The measure for each query, (n,); 0 where it is undefined."""
        scores = self.measure.values(align(self.run, self.truth, judgments))
        wanted, known = unify(self.queries, scores.queries)
        rows = codes_in(wanted, known)
        values = np.append(np.nan_to_num(scores.values), 0.0)
        return np.asarray(values[rows])


def _no_document(documents: Ids) -> Ids:
    """An id that no document has."""
    if documents.are_integers:
        return ids([int(documents.codes.max(initial=0)) + 1])
    return ids(["\x00 no document"])


def _top(run: Run, depth: int) -> Run:
    """The first `depth` valid, distinct results of each query."""
    rows = row_numbers(run.offsets)
    order = np.lexsort((run.documents.codes, rows))
    again = np.zeros(len(order), dtype=bool)
    again[order[1:]] = (np.diff(run.documents.codes[order]) == 0) & (np.diff(rows[order]) == 0)
    kept = run.keep(run.valid & ~again)
    place = np.arange(len(kept.documents)) - kept.offsets[row_numbers(kept.offsets)]
    return kept.keep(place < depth)


def _distinct(query: Whole, document: Whole) -> tuple[Whole, Whole, Whole, Whole]:
    """Distinct (query, document): both columns, the first entry of each, each entry's pair."""
    order = np.lexsort((document, query))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(query[order]) != 0) | (np.diff(document[order]) != 0)
    pair = np.empty(len(order), dtype=np.int64)
    pair[order] = np.cumsum(new) - 1
    first = order[new]
    return query[first], document[first], first, pair


def _looked_up(pairs: tuple[Whole, Whole], known: tuple[Whole, Whole], values: Array) -> Array:
    """The value of each pair (m,), NaN where it is not known."""
    m = len(pairs[0])
    query = np.concatenate([pairs[0], known[0]])
    document = np.concatenate([pairs[1], known[1]])
    _, _, _, number = _distinct(query, document)
    table = np.full(int(number.max(initial=-1)) + 1, np.nan)
    table[number[m:]] = values
    return table[number[:m]]


def _why(ranks: Mapping[str, int]) -> str:
    """Where a pair stands: "rank 3 in bm25, 7 in dense; exact rank 2, missed by ann"."""
    own = {name: rank for name, rank in ranks.items() if name != TRUTH}
    found = ", ".join(f"{rank} in {name}" for name, rank in own.items() if rank)
    parts = [f"rank {found}"] if found else []
    if ranks.get(TRUTH):
        missed = ", ".join(name for name, rank in own.items() if not rank)
        parts.append(f"exact rank {ranks[TRUTH]}" + (f", missed by {missed}" if missed else ""))
    return "; ".join(parts)
