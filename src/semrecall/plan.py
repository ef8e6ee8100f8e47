"""plan(): which pairs to label, and how many, until semantic recall is known to a given width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.data import Judgments, Pairs, Run
from semrecall.errors import InputError
from semrecall.formats.pairs import write_pairs
from semrecall.measures import Measure, align, parse
from semrecall.measures.pairs import Neighbours, neighbour_values, neighbours
from semrecall.stats.budget import cell_sizes, cluster_size, expected_width
from semrecall.text import aligned, cell, number, plural, share, wrapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Whole = NDArray[np.int64]

__all__ = ["NEAREST", "Design", "Plan", "plan"]

Over = Literal["pooled", "mean"]
#: So many of the nearest found neighbours are labelled before a query is taken for settled.
NEAREST = 3
#: The share of neighbours taken to be relevant where no label says.
_SHARE = 0.3


@dataclass(frozen=True)
class Design:
    """A way to draw pairs, and what it takes to know semantic recall to the width asked for.

    over: "pooled" or "mean", what is estimated; "" for both. labels: how many, expected where the
    labels themselves decide how many more follow. queries: in how many queries. width: of the
    interval, for these queries.
    """

    name: str
    over: str
    labels: int
    queries: int
    width: float
    about: str


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Pairs to label, in the order in which to label them, and what other designs would take.

    pairs: with details `probability`, `picked` ("missed" or "found") and `best_rank` (from 1, among
    the exact neighbours). over, width, confidence, seed, measure: as asked. neighbours: how many
    pairs there are in all. relevant: share of them taken to be relevant, and `known` of how many
    a label says so. done: how many of `pairs` have a label already. queries_width: how wide the
    interval for other queries like these stays when every label is known, by what is estimated.
    """

    pairs: Pairs
    designs: tuple[Design, ...]
    measure: str
    over: str
    width: float
    confidence: float
    seed: int
    neighbours: int
    relevant: float
    known: int
    done: int
    queries_width: Mapping[str, float]

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Plan({len(self):,} of {self.neighbours:,} pairs for {self.measure}, {self.over})"

    def to_arrow(self) -> Any:
        """An arrow table: query_id, doc_id, probability, picked, best_rank."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "query_id": self.pairs.queries.to_arrow(),
            "doc_id": self.pairs.documents.to_arrow(),
        }
        columns |= {name: pa.array(column) for name, column in self.pairs.details.items()}
        return pa.table(columns)

    def write(self, path: Path | str) -> None:
        """Write the pairs for labelling: JSON lines (.jsonl), .csv or .parquet."""
        write_pairs(self.to_arrow(), path)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pairs, for JSON."""
        return {
            "measure": self.measure,
            "over": self.over,
            "width": self.width,
            "confidence": self.confidence,
            "seed": self.seed,
            "neighbours": self.neighbours,
            "relevant": self.relevant,
            "known": self.known,
            "pairs": len(self.pairs),
            "labelled": self.done,
            "queries_width": dict(self.queries_width),
            "designs": [asdict(design) for design in self.designs],
        }

    def notes(self) -> list[str]:
        """What there is to say about it, a sentence each."""
        if self.known:
            source = f"by labels of {self.known:,} of {plural(self.neighbours, 'neighbour')}"
        else:
            source = "assumed: labels of any judge (--judgments) would tell"
        lines = [f"{share(self.relevant)} of the neighbours are taken to be relevant, {source}"]
        if 2 * self.known < self.neighbours:
            lines.append(
                "what has no label is drawn as if queries were alike; where they differ, whole "
                "queries take more than the table says"
            )
        lines.append(
            f"widths are of {self.confidence * 100:.4g}% intervals for these very queries; for "
            "other queries like them the interval stays "
            + ", ".join(f"{number(w, 3)} wide ({o})" for o, w in self.queries_width.items())
            + " whatever is labelled"
        )
        lines.append(
            f"{plural(len(self), 'pair')} to label, missed first, {self.over}, seed {self.seed}"
            + (f"; {self.done:,} of them have a label" if self.done else "")
        )
        if self.over == "mean":
            lines.append(
                "label these, then plan again with the labels (--labels): more pairs follow where "
                "a missed neighbour is relevant, or no labelled one is"
            )
        return lines

    def __str__(self) -> str:
        heads = ["design", "over", "labels", "queries", "width"]
        rows = [heads] + [
            [d.name, d.over or "both", cell(d.labels), cell(d.queries), cell(d.width, 3)]
            for d in self.designs
        ]
        lines = aligned(rows, [False, False, True, True, True])
        notes = [line for note in self.notes() for line in wrapped(note)]
        return "\n".join([*lines, "", *notes])


def plan(
    runs: Run | Mapping[str, Run] | Sequence[Run],
    truth: Run,
    *,
    width: float = 0.02,
    judgments: Judgments | None = None,
    labels: Judgments | None = None,
    measure: str | Measure | None = None,
    over: Over = "pooled",
    relevant: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Plan:
    """The pairs to label for semantic recall with an interval of `width`, missed ones first.

    runs: one or several, all served by the same labels: a neighbour that any run missed is a
        missed one. truth: the exact neighbours.
    judgments: labels of any judge, from which the share of relevant neighbours is guessed.
    labels: those of this plan so far; they count before `judgments`.
    over: "pooled" draws a random sample of the missed and one of the found neighbours, each with
        its probability. "mean" draws queries at random, and in each labels all missed ones and
        the nearest found ones; that settles a query whose missed neighbours are irrelevant. The
        others follow when the plan is made again with those `labels`.
    relevant: the share of neighbours taken to be relevant where no label says (0.3).
    seed: of what is drawn. With the same seed a narrower width draws the same pairs and more; the
        probabilities of the new file hold for all of them.

    Source of the design: semantic recall needs labels most where results were missed.
    """
    named = _named(runs)
    wanted = _measure(measure, named, truth)
    if over not in ("pooled", "mean"):
        raise InputError(f"over is {over!r}; expected pooled or mean")
    if relevant is not None and not 0 < relevant < 1:
        raise InputError(f"relevant is {relevant}; expected a share between 0 and 1")
    assert wanted.k is not None
    found = [neighbours(align(run, truth), wanted.k) for run in named]
    pairs = found[0]
    if len(pairs) == 0:
        raise InputError("the truth has no neighbours of any query")
    guess = _Guess.of(truth, pairs, wanted, labels, judgments, relevant, seed)
    work = _Work(pairs, [part.found for part in found], guess, width, confidence, seed)
    chosen, probability = work.pooled() if over == "pooled" else work.mean()
    picked = np.where(work.missed[chosen], "missed", "found")
    queries, documents = _documents(truth, wanted.k, len(pairs))
    details = {"probability": probability, "picked": picked, "best_rank": pairs.ranks[chosen]}
    return Plan(
        pairs=Pairs(queries[chosen], documents[chosen], details),
        designs=work.designs(),
        measure=str(wanted),
        over=over,
        width=width,
        confidence=confidence,
        seed=seed,
        neighbours=len(pairs),
        relevant=float(guess.values.mean()),
        known=guess.known,
        done=int(guess.labelled[chosen].sum()),
        queries_width=work.queries_width(),
    )


def _named(runs: Run | Mapping[str, Run] | Sequence[Run]) -> list[Run]:
    found = [runs] if isinstance(runs, Run) else runs
    found = list(found.values()) if isinstance(found, Mapping) else list(found)
    if not found:
        raise InputError("no run to plan for; expected at least one")
    return found


def _measure(measure: str | Measure | None, runs: Sequence[Run], truth: Run) -> Measure:
    if measure is None:
        k = min(truth.depth, *(run.depth for run in runs))
        if k < 1:
            raise InputError("a run or the truth is empty; expected results and exact neighbours")
        return parse(f"srecall@{k}")
    wanted = parse(measure)
    if wanted.definition.name != "srecall" or wanted.settings.get("gain", "count") != "count":
        raise InputError(f"no labels are planned for {wanted}; expected srecall, as srecall@100")
    return wanted


def _documents(truth: Run, k: int, expected: int) -> tuple[Any, Any]:
    """Query and document ids of the first k neighbours, as `neighbours` lists them."""
    kept = truth.keep(truth.valid)
    rows = np.repeat(np.arange(len(kept)), np.diff(kept.offsets))
    ranks = np.arange(len(rows)) - kept.offsets[:-1][rows]
    use = ranks < k
    if int(use.sum()) != expected:
        raise InputError("the truth has a document twice for a query; expected distinct neighbours")
    return kept.queries[rows[use]], kept.documents[use]


@dataclass(frozen=True)
class _Guess:
    """What the relevance of each pair (m,) may be: its label, else drawn by the share known.

    labelled: pairs with a label of this plan, and asked: those shown. known: pairs with any label.
    """

    values: Array
    labelled: Mask
    asked: Mask
    known: int

    @classmethod
    def of(
        cls,
        truth: Run,
        pairs: Neighbours,
        measure: Measure,
        labels: Judgments | None,
        judgments: Judgments | None,
        relevant: float | None,
        seed: int,
    ) -> _Guess:
        grades = np.full(len(pairs), np.nan)
        labelled = asked = np.zeros(len(pairs), dtype=bool)
        if judgments is not None and len(judgments):
            grades = neighbour_values(truth, judgments, pairs)
        if labels is not None and len(labels):
            own = neighbour_values(truth, labels, pairs)
            labelled = ~np.isnan(own)
            asked = ~np.isnan(neighbour_values(truth, labels, pairs, np.ones(len(labels))))
            grades = np.where(labelled, own, grades)
        known = ~np.isnan(grades)
        values = (grades >= measure.rel).astype(np.float64)
        generator = np.random.default_rng([seed, 1])
        draws = generator.random(len(pairs))
        for side in (True, False):
            part = pairs.found == side
            some = part & known
            if relevant is None and some.any():
                level = (values[some].sum() + 1) / (some.sum() + 2)
            else:
                level = _SHARE if relevant is None else relevant
            open_ = part & ~known
            values[open_] = draws[open_] < level
        return cls(values, labelled, asked, int(known.sum()))


@dataclass
class _Work:
    """What is drawn, and how much each design takes, for several runs over the same pairs."""

    pairs: Neighbours
    found: list[Mask]
    guess: _Guess
    width: float
    confidence: float
    seed: int

    @property
    def missed(self) -> Mask:
        """Pairs (m,) that any run missed."""
        return np.asarray(~np.logical_and.reduce(self.found))

    @property
    def asking(self) -> Mask:
        """Queries (n,) that have a neighbour."""
        return np.asarray(self.pairs.inside.any(axis=1))

    # -- drawing --------------------------------------------------------------------------

    def pooled(self) -> tuple[Whole, Array]:
        """(pairs drawn in order, probabilities): missed ones, then found ones, at random each."""
        order = np.random.default_rng(self.seed).permutation(len(self.pairs))
        counts, cells = self._cells(), (self.missed, ~self.missed)
        chosen, chances = [], []
        for count, inside in zip(counts, cells, strict=True):
            drawn = order[inside[order]][: int(count)]
            chosen.append(drawn)
            chances.append(np.full(len(drawn), count / max(inside.sum(), 1)))
        return np.concatenate(chosen), np.concatenate(chances)

    def mean(self) -> tuple[Whole, Array]:
        """(pairs drawn in order, probabilities): of queries at random, as far as they are open."""
        asking = np.flatnonzero(self.asking)
        order = np.random.default_rng(self.seed).permutation(asking)
        # Queries drawn before stay drawn.
        before = len(np.unique(self.pairs.queries[self.guess.asked]))
        drawn = order[: max(self._clusters("mean"), before)]
        place = np.full(self.pairs.n, len(order))
        place[drawn] = np.arange(len(drawn))
        wanted = self._first_round() | self._second_round()
        use = wanted & (place[self.pairs.queries] < len(order))
        rows = np.flatnonzero(use)
        late = ~self._first_round()[rows]
        keys = (self.pairs.ranks[rows], ~self.missed[rows], late, place[self.pairs.queries[rows]])
        rows = rows[np.lexsort(keys)]
        return rows, np.full(len(rows), len(drawn) / len(order))

    def _first_round(self) -> Mask:
        """Missed neighbours, and the nearest found ones."""
        nearest = np.zeros(len(self.pairs), dtype=np.int64)
        hit = ~self.missed
        counts = np.cumsum(hit)
        start = np.searchsorted(self.pairs.queries, self.pairs.queries)
        before = np.where(start > 0, counts[start - 1], 0)
        nearest[hit] = (counts - before)[hit]
        return self.missed | (nearest <= NEAREST)

    def _second_round(self, *, guessed: bool = False) -> Mask:
        """The other neighbours of queries whose first round does not settle them."""
        first, n = self._first_round(), self.pairs.n
        rows, values = self.pairs.queries, self.guess.values
        asked = first if guessed else self.guess.asked & first
        complete = np.bincount(rows, first & ~asked, n) == 0
        lost = np.bincount(rows, values * (self.missed & asked), n) > 0
        some = np.bincount(rows, values * (first & asked), n) > 0
        return np.asarray((complete & (lost | ~some))[rows] & ~first)

    # -- what it takes --------------------------------------------------------------------

    def designs(self) -> tuple[Design, ...]:
        """All pairs, random queries and missed first, for both values."""
        m, n = len(self.pairs), int(self.asking.sum())
        wide = self.width
        found = [
            Design("all pairs", "", m, n, 0.0, "every neighbour of every query"),
            self._random_pairs(),
            self._missed_first(),
        ]
        for over in ("pooled", "mean"):
            count = self._clusters(over)
            labels = math.ceil(count * m / n)
            found.append(
                Design("random queries", over, labels, count, 0.0 if count == n else wide,
                       "every neighbour of queries drawn at random")
            )  # fmt: skip
        count = self._clusters("mean")
        rounds = self._first_round() | self._second_round(guessed=True)
        labels = math.ceil(count * rounds.sum() / n)
        found.append(
            Design("missed first", "mean", labels, count, 0.0 if count == n else wide,
                   "of queries drawn at random all missed neighbours, others where that leaves "
                   "the query open")
        )  # fmt: skip
        return tuple(found)

    def queries_width(self) -> dict[str, float]:
        """Width of the interval for other queries with all labels known."""
        widths = {}
        for over in ("pooled", "mean"):
            spreads = [self._cluster_spread(table) for table in self._tables(over)]
            n = int(self.asking.sum())
            # As if these were drawn from very many.
            widths[over] = max(
                expected_width([s / 1e9], [1e9], [n], self.confidence) for s in spreads
            )
        return widths

    def _random_pairs(self) -> Design:
        m = len(self.pairs)
        spreads = self._spreads([np.ones(m, dtype=bool)])
        counts = [cell_sizes(s, [m], self.width, self.confidence) for s in spreads]
        count = max(counts, key=lambda c: float(c[0]))
        width = max(expected_width(s, [m], count, self.confidence) for s in spreads)
        queries = _touched(int(count[0]), m, int(self.asking.sum()))
        return Design("random pairs", "pooled", int(count[0]), queries, width,
                      "neighbours drawn at random")  # fmt: skip

    def _missed_first(self) -> Design:
        counts = self._cells()
        cells = [self.missed, ~self.missed]
        sizes = [int(c.sum()) for c in cells]
        width = max(expected_width(s, sizes, counts, self.confidence) for s in self._spreads(cells))
        drawn = np.unique(self.pairs.queries[self.pooled()[0]])
        return Design("missed first", "pooled", int(counts.sum()), len(drawn), width,
                      "random samples of the missed and of the found neighbours")  # fmt: skip

    def _cells(self) -> Array:
        """How many of the missed and of the found neighbours to draw: enough for every run."""
        cells = [self.missed, ~self.missed]
        sizes = [int(c.sum()) for c in cells]
        counts = [cell_sizes(s, sizes, self.width, self.confidence) for s in self._spreads(cells)]
        return np.asarray(np.max(counts, axis=0))

    def _spreads(self, cells: Sequence[Mask]) -> list[Array]:
        """By run: the standard deviation of residuals within each cell, in units of the share."""
        spreads, values = [], self.guess.values
        total = max(float(values.sum()), 1.0)
        for hits in self.found:
            level = float(values @ hits) / total
            residuals = values * (hits - level)
            by_cell = []
            for inside in cells:
                part, size = residuals[inside], max(int(inside.sum()), 1)
                alike = size < 2 or np.ptp(part) == 0
                # Where all are alike, as if one more were otherwise.
                least = math.sqrt(1 / (size + 2)) * max(level, 1 - level)
                by_cell.append(least if alike else float(np.std(part, ddof=1)))
            spreads.append(np.array(by_cell) / total)
        return spreads

    def _tables(self, over: str) -> list[Array]:
        """By run: numerator and denominator of each query, (n, 2)."""
        tables, values, n = [], self.guess.values, self.pairs.n
        total = np.bincount(self.pairs.queries, values, n)[self.asking]
        for hits in self.found:
            hit = np.bincount(self.pairs.queries, values * hits, n)[self.asking]
            if over == "mean":
                some = total > 0
                value = np.divide(hit, total, out=np.zeros(len(hit)), where=some)
                tables.append(np.stack([value, some.astype(np.float64)], axis=1))
            else:
                tables.append(np.stack([hit, total], axis=1))
        return tables

    def _clusters(self, over: str) -> int:
        sizes = [cluster_size(t, self.width, self.confidence) for t in self._tables(over)]
        return max(sizes)

    @staticmethod
    def _cluster_spread(table: Array) -> float:
        total = float(table[:, 1].sum())
        if total <= 0 or len(table) < 2:
            return 0.0
        residuals = table @ np.array([1.0, -table[:, 0].sum() / total])
        return float(np.std(residuals, ddof=1)) / (total / len(table))


def _touched(labels: int, pairs: int, queries: int) -> int:
    """How many queries a random sample of pairs is expected to touch."""
    share_touched = 1 - (1 - labels / pairs) ** (pairs / queries)
    return round(float(queries * share_touched))
