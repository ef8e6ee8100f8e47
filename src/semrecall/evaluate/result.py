"""Result: the values of several measures for several runs, and what is to be said about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Judgments, Run, Scores
from semrecall.data.frames import to_library
from semrecall.data.slices import Semantic, Slice
from semrecall.errors import InputError, MeasureError
from semrecall.evaluate.single import Found, found, row_of
from semrecall.evaluate.split import LossSplit
from semrecall.measures import Measure, parse
from semrecall.registry import did_you_mean
from semrecall.stats.intervals import RESAMPLES, mean_interval, resampled_means
from semrecall.stats.shares import wilson_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.evaluate.tied import Tied
    from semrecall.evaluate.unjudged import Bounds, Unjudged
    from semrecall.measures import Problem, TieRange
    from semrecall.space import Space

__all__ = ["FEW", "Missed", "Result", "RunCounts", "Summary"]

#: A slice of fewer queries is marked: it says little.
FEW = 10


@dataclass(frozen=True)
class Summary:
    """One measure of one run over one group of queries (all of them when `column` is "").

    Statistics are over the n queries with a value; NaN where there are none. micro: the pooled
    ratio (sum of hits over sum of sizes) where sizes differ between queries, else None.
    at_one and at_zero: the share of queries whose value is exactly 1, exactly 0.
    judged: Judged@k for the k of the measure, the mean share of the results that it looks at that
    is judged; None for measures that do not score results by their judgments.
    """

    run: str
    measure: str
    column: str
    group: str
    mean: float
    low: float
    high: float
    sd: float
    median: float
    p1: float
    p5: float
    p10: float
    at_one: float
    at_zero: float
    n: int
    left_out: Mapping[str, int]
    micro: float | None = None
    notes: tuple[str, ...] = ()
    judged: float | None = None

    @property
    def few(self) -> bool:
        """Whether it is a slice of fewer than FEW queries, which says little."""
        return bool(self.column) and self.n < FEW


@dataclass(frozen=True)
class RunCounts:
    """What a run delivered beside its values, over all queries asked.

    not_answered: queries without a row. only_in_run: queries nobody asked about, left out; their
    ids are `only_in_run_queries`.
    repeats, missing: results not counted, within the rows. violations: results where the truth
    is empty. deleted: results that are deleted documents. tied: queries where results of different
    grades have equal scores, so that more than scores decided their order.
    """

    queries: int
    not_answered: int
    only_in_run: int
    repeats: int
    missing: int
    violations: int
    deleted: int = 0
    tied: int = 0
    only_in_run_queries: tuple[str | int, ...] = ()


@dataclass(frozen=True)
class Missed:
    """A true neighbour that a run did not return: its id, its rank from 1, grade (NaN: none)."""

    document: str | int
    rank: int
    grade: float


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Values of measures for runs over the same queries. Made by `evaluate`.

    `result["recall@100"]` are the Scores of a measure, in any spelling that parses to it; with
    several runs `result["recall@100", "hnsw"]`.

    runs, measures: names, in the order given. queries: ids, shape (n,).
    scores: by (run, measure). sizes: how many each query could have hit, (n,), by measure.
    truth, judgments: what the runs were measured against, deleted documents aside.
    semantic: how many semantic neighbours each query has; None without truth or judgments.
    given: the runs themselves, by name, as they were measured. codes: the run over the quantised
        vectors as it was given, with the scores of the codes.
    slices: by column. splits: the loss in two parts, where `codes` were given.
    notes: what a reader should know of all values. seed, confidence: of the intervals.
    """

    runs: tuple[str, ...]
    measures: tuple[Measure, ...]
    queries: Ids
    scores: Mapping[tuple[str, str], Scores]
    sizes: Mapping[str, NDArray[np.int64]]
    counts: Mapping[str, RunCounts]
    slices: Mapping[str, Slice]
    splits: tuple[LossSplit, ...]
    problems: Mapping[str, Problem]
    truth: Run | None = None
    judgments: Judgments | None = None
    semantic: Semantic | None = None
    given: Mapping[str, Run] = field(default_factory=dict)
    codes: Run | None = None
    notes: tuple[str, ...] = ()
    seed: int = 0
    confidence: float = 0.95
    resamples: int = RESAMPLES
    _intervals: dict[tuple[str, str, str, str], tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("scores", "sizes", "counts", "slices", "problems"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    # -- one measure ----------------------------------------------------------------------

    def __getitem__(self, key: str | tuple[str, str]) -> Scores:
        name, run = key if isinstance(key, tuple) else (key, None)
        return self.scores[self._run(run), self._measure(name)]

    def mean(self, measure: str, run: str | None = None) -> float:
        """Mean over the queries where the measure is defined; NaN when it is for none."""
        return self._scores(measure, run).mean

    def interval(self, measure: str, run: str | None = None) -> tuple[float, float]:
        """The interval (low, high) of the mean: Wilson's where values are 0 or 1, else bootstrap.

        NaN for fewer than two values.
        """
        name, run_name = self._measure(measure), self._run(run)
        return self._interval(run_name, name, "", "")

    def undefined(self, measure: str, run: str | None = None) -> dict[str, int]:
        """Why queries were left out: {reason: count}, most frequent first."""
        return self._scores(measure, run).undefined

    def judged(self, measure: str, run: str | None = None) -> float | None:
        """Mean Judged@k for the k of a measure: how much of what it looks at is judged.

        None for measures that do not score results by their judgments.
        """
        everything = np.ones(len(self.queries), dtype=bool)
        return self._judged(self._run(run), self._measure(measure), everything)

    def _scores(self, measure: str, run: str | None) -> Scores:
        return self.scores[self._run(run), self._measure(measure)]

    def _measure(self, name: str) -> str:
        canonical = str(parse(str(name)))
        names = [str(m) for m in self.measures]
        if canonical not in names:
            raise MeasureError(f"{canonical} was not computed", hint=did_you_mean(canonical, names))
        return canonical

    def _run(self, name: str | None) -> str:
        if name is None:
            if len(self.runs) == 1:
                return self.runs[0]
            raise InputError(
                f"the result has {len(self.runs)} runs; expected the name of one",
                hint=f'say which: run="{self.runs[0]}", or result["measure", "{self.runs[0]}"]',
            )
        if name not in self.runs:
            raise InputError(f"no run {name!r}", hint=did_you_mean(name, self.runs))
        return name

    # -- all of them ----------------------------------------------------------------------

    @property
    def k(self) -> int | None:
        """The k of the first measure of the index, or of the first with a k."""
        return leading_k(self.measures)

    @property
    def space(self) -> Space | None:
        """The space of the scores; None when no one says."""
        return next(iter(self.problems.values())).space

    def summary(self, by: str | None = None) -> list[Summary]:
        """Statistics per measure and run over all queries, or per group of the slice `by`."""
        column = "" if by is None else self._slice(by).column
        groups = [""] if by is None else list(self.slices[column].groups)
        return [
            self._summary(run, str(measure), column, group)
            for measure in self.measures
            for group in groups
            for run in self.runs
        ]

    def _slice(self, name: str) -> Slice:
        if name not in self.slices:
            raise InputError(
                f"the result has no slices by {name!r}", hint=did_you_mean(name, self.slices)
            )
        return self.slices[name]

    def mask(self, row: Summary) -> NDArray[np.bool_]:
        """Which queries a summary is over, those without a value included, shape (n,)."""
        return self._mask(row.column, row.group)

    def _mask(self, column: str, group: str) -> NDArray[np.bool_]:
        if not column:
            return np.ones(len(self.queries), dtype=bool)
        return self.slices[column].mask(group)

    def _summary(self, run: str, measure: str, column: str, group: str) -> Summary:
        mask = self._mask(column, group)
        scores = masked(self.scores[run, measure], mask)
        values = scores.values[scores.defined]
        low, high = self._interval(run, measure, column, group)
        quantiles = np.quantile(values, [0.5, 0.01, 0.05, 0.1]) if len(values) else [math.nan] * 4
        median, p1, p5, p10 = (float(q) for q in quantiles)
        return Summary(
            run=run,
            measure=measure,
            column=column,
            group=group,
            mean=scores.mean,
            low=low,
            high=high,
            sd=_spread(values),
            median=median,
            p1=p1,
            p5=p5,
            p10=p10,
            at_one=float(np.mean(values == 1.0)) if len(values) else math.nan,
            at_zero=float(np.mean(values == 0.0)) if len(values) else math.nan,
            n=len(values),
            left_out=scores.undefined,
            micro=self._micro(run, measure, mask),
            notes=scores.notes,
            judged=self._judged(run, measure, mask),
        )

    def _judged(self, run: str, measure: str, mask: NDArray[np.bool_]) -> float | None:
        """Judged@k beside a mean, over the same queries but those without results."""
        from semrecall.evaluate.unjudged import judged_shares

        shares = judged_shares(self.problems[run], parse(measure))
        if shares is None:
            return None
        use = mask & self.scores[run, measure].defined & ~np.isnan(shares)
        return float(np.mean(shares[use])) if use.any() else math.nan

    def _interval(self, run: str, measure: str, column: str, group: str) -> tuple[float, float]:
        key = (run, measure, column, group)
        if key not in self._intervals:
            mask = self._mask(column, group)
            pairs = [(r, str(m)) for r in self.runs for m in self.measures]
            table = np.array([self.scores[pair].values[mask] for pair in pairs])
            draws = resampled_means(table, resamples=self.resamples, seed=self.seed)
            shares = self.shares
            for pair, values, means in zip(pairs, table, draws, strict=True):
                if pair[1] in shares:
                    pair_interval = wilson_interval(values, confidence=self.confidence)
                else:
                    pair_interval = mean_interval(values, means, confidence=self.confidence)
                self._intervals[(*pair, column, group)] = pair_interval
        return self._intervals[key]

    @cached_property
    def shares(self) -> tuple[str, ...]:
        """Measures whose values are 0 or 1, so that a mean is a share of the queries."""
        names = [str(m) for m in self.measures if may_be_share(m)]
        return tuple(
            name
            for name in names
            if all(zero_or_one(self.scores[run, name].values) for run in self.runs)
        )

    @property
    def interval_methods(self) -> list[str]:
        """How the intervals were made, for the foot of a table: a line or two."""
        lines = [
            f"{self.confidence * 100:.4g}%, bootstrap over queries, {self.resamples:,} "
            f"resamples, seed {self.seed}"
        ]
        if self.shares:
            lines.append(f"Wilson, as values are 0 or 1: {', '.join(self.shares)}")
        return lines

    def _micro(self, run: str, measure: str, mask: NDArray[np.bool_]) -> float | None:
        """Pooled ratio: sizes weigh the queries. None where they are equal, or not known."""
        if measure not in self.sizes:
            return None
        values = self.scores[run, measure].values[mask]
        sizes = self.sizes[measure][mask]
        defined = ~np.isnan(values)
        values, sizes = values[defined], sizes[defined]
        if len(sizes) == 0 or bool((sizes == sizes[0]).all()):
            return None
        # Values are ratios of whole numbers: their products with the sizes are the hits.
        return float(np.rint(values * sizes).sum() / sizes.sum())

    def ties(self, by: str | None = None) -> tuple[Tied, ...]:
        """The range of each mean by judgments over all orders of equally scored results.

        Over all queries, or per group of the slice `by`.
        """
        from semrecall.evaluate.tied import tied

        return tied(self, by)

    @cached_property
    def tie_ranges(self) -> Mapping[tuple[str, str], TieRange]:
        """By (run, measure): the range over those orders of every query's value."""
        from semrecall.evaluate.tied import tie_ranges

        return MappingProxyType(tie_ranges(self))

    @cached_property
    def unjudged(self) -> tuple[Unjudged, ...]:
        """What unjudged results could make of each mean; empty where all results are judged."""
        from semrecall.evaluate.unjudged import unjudged

        return unjudged(self)

    @cached_property
    def bounds(self) -> Mapping[tuple[str, str], Bounds]:
        """By (run, measure): what unjudged results could make of every query's value."""
        from semrecall.evaluate.unjudged import bounds

        return MappingProxyType(bounds(self))

    # -- one query ------------------------------------------------------------------------

    def missed(self, query: int, run: str | None = None) -> list[Missed]:
        """The true neighbours among the first k that a run did not return for a query (row)."""
        problem = self.problems[self._run(run)]
        if self.truth is None or problem.rank is None:
            return []
        k = self.k or self.truth.depth
        neighbours = row_of(self.truth, self.queries, query)
        rank = problem.rank[query, : min(k, len(neighbours))]
        grades = problem.true_grades
        return [
            Missed(neighbours[i], i + 1, math.nan if grades is None else float(grades[query, i]))
            for i in np.flatnonzero((rank < 0) | (rank >= k)).tolist()
        ]

    def found(self, query: int, run: str | None = None) -> list[Found]:
        """The results of a query (row), best first, each with true rank, grade and score."""
        return found(self, query, self._run(run))

    def worst(self, measure: str, n: int = 20, run: str | None = None) -> list[int]:
        """Rows of the n queries with the worst values of a measure, worst first, perfect aside."""
        canonical = self._measure(measure)
        lower = next(m.lower_is_better for m in self.measures if str(m) == canonical)
        values = self.scores[self._run(run), canonical].values
        key = -values if lower else values
        order = np.lexsort((np.arange(len(key)), key))
        perfect = 0.0 if lower else 1.0
        return [i for i in order.tolist() if not math.isnan(key[i]) and values[i] != perfect][:n]

    # -- out ------------------------------------------------------------------------------

    def to_arrow(self) -> Any:
        """An arrow table: query, slice columns, run (where there are several), measure, value.

        value is null where the measure is undefined.
        """
        import pyarrow as pa

        pairs = [(str(m), r) for m in self.measures for r in self.runs]
        n = len(self.queries)
        rows = np.tile(np.arange(n), len(pairs))
        columns: dict[str, Any] = {"query": self.queries[rows].to_arrow()}
        for column, part in self.slices.items():
            columns[column] = pa.array(part.labels * len(pairs), type=pa.string())
        if len(self.runs) > 1:
            columns["run"] = pa.array([r for _, r in pairs for _ in range(n)], type=pa.string())
        columns["measure"] = pa.array([m for m, _ in pairs for _ in range(n)], type=pa.string())
        flat = [self.scores[r, m].values for m, r in pairs]
        values = np.concatenate(flat) if flat else np.empty(0)
        columns["value"] = pa.array(values, mask=np.isnan(values))
        return pa.table(columns)

    def to_frame(self, library: str = "pandas") -> Any:
        """The table of `to_arrow` as a frame: "pandas", "polars" or "arrow"."""
        return to_library(self.to_arrow(), library)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, as plain mappings and lists (for JSON)."""
        from semrecall.evaluate.document import document

        return document(self)

    def to_html(self, path: str | Path, **options: Any) -> None:
        """Write one self-contained HTML file; options as in `semrecall.report.write_html`."""
        # Loaded by name: the report stands above, and reads nothing but a Result.
        import importlib

        importlib.import_module("semrecall.report").write_html(self, path, **options)

    def plot(self, **options: Any) -> Any:
        """The charts of the report, by name: a notebook shows them, `save(folder)` writes them.

        options: as in `semrecall.report.write_html`. Needs matplotlib (the extra `report`).
        """
        import importlib

        report = importlib.import_module("semrecall.report")
        return report.figures_of(lambda: report.html_report(self, **options))

    def _repr_html_(self) -> str:
        import importlib

        summary = importlib.import_module("semrecall.report.summary")
        return f"{summary.summary(self)}{summary.remarks(self)}"

    def __str__(self) -> str:
        from semrecall.evaluate.table import text

        return text(self)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{m} {self.scores[self.runs[0], str(m)].mean:.4f}" for m in self.measures
        )
        several = f", first of {len(self.runs)} runs" if len(self.runs) > 1 else ""
        return f"Result({len(self.queries):,} queries: {shown}{several})"

    @cached_property
    def versions(self) -> dict[str, str]:
        """Versions of what computed the values."""
        import platform
        from importlib.metadata import version

        return {
            "semrecall": version("semrecall"),
            "numpy": version("numpy"),
            "python": platform.python_version(),
        }


def may_be_share(measure: Measure) -> bool:
    """Whether the values of a measure are 0 or 1 by its definition, or can be with k of 1."""
    return measure.zero_or_one or measure.k == 1


def zero_or_one(values: NDArray[np.float64]) -> bool:
    """Whether every defined value is 0 or 1."""
    return bool(np.all(np.isnan(values) | (values == 0.0) | (values == 1.0)))


def leading_k(measures: Sequence[Measure]) -> int | None:
    """The k of the first measure of the index layer, else of the first that has one."""
    of_index = [m.k for m in measures if m.k is not None and m.layer == "index"]
    others = [m.k for m in measures if m.k is not None]
    return next(iter(of_index + others), None)


def masked(scores: Scores, mask: NDArray[np.bool_]) -> Scores:
    """The scores of some queries."""
    if bool(mask.all()):
        return scores
    rows = np.flatnonzero(mask)
    return Scores(
        scores.measure,
        scores.queries[rows],
        scores.values[rows],
        tuple(scores.reasons[i] for i in rows.tolist()),
        scores.notes,
    )


def _spread(values: NDArray[np.float64]) -> float:
    """Standard deviation of a sample; exactly 0 for equal values, whose mean is a rounded one."""
    if len(values) < 2:
        return math.nan
    return 0.0 if values.min() == values.max() else float(np.std(values, ddof=1))
