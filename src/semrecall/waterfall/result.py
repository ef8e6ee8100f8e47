"""What a waterfall holds: stages, what each lost, and the queries behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids
from semrecall.errors import InputError
from semrecall.registry import did_you_mean
from semrecall.stats.intervals import bootstrap_means

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.data.slices import Slice

__all__ = ["CODES", "DEPTH", "EXACT", "LostQuery", "Stage", "Step", "Waterfall"]

#: Names of the stages that k and exact search tell.
DEPTH, EXACT, CODES = "depth", "exact", "codes"


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage over n queries and m relevant pairs.

    cut: so many of its first results count; None: all. lost: (n,) relevant documents of each query
    that this stage was the first not to have. lucky: (n,) those it has although an earlier one had
    not. lost_pairs, lucky_pairs: (m,) which they are.
    """

    name: str
    cut: int | None
    lost: NDArray[np.int64]
    lucky: NDArray[np.int64]
    lost_pairs: NDArray[np.bool_]
    lucky_pairs: NDArray[np.bool_]


@dataclass(frozen=True)
class Step:
    """A stage in numbers, over all queries or a group of them.

    lost: mean over queries of the share of its relevant documents that a query loses here, the
    nearest float to the exact fraction. low, high: its interval. documents: how many are lost, over
    all queries. left: mean share that is still there after this stage. lucky: mean share that came
    back here; lucky_documents: how many. queries: how many lose any here.
    """

    name: str
    lost: float
    low: float
    high: float
    documents: int
    left: float
    lucky: float
    lucky_documents: int
    queries: int


@dataclass(frozen=True)
class LostQuery:
    """What one query lost at one stage.

    documents: ids and texts ("" where there is none). ranks: by stage, the rank of each document
    there, 0 where it is not.
    """

    query: str | int
    text: str
    relevant: int
    documents: tuple[tuple[str | int, str], ...]
    ranks: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class Waterfall:
    """Made by `waterfall`: of all relevant documents known, where each one is lost.

    queries: n ids, those with a relevant document. documents: m ids, the relevant documents; rows:
    (m,) the position of each one's query. relevant: (n,) how many a query has. kept: (m,) which are
    there to the end. ranks: by stage, (m,) the rank of each document there, 0 where it is not.
    slices: by column. left_out: why queries are left out, and how many.
    """

    queries: Ids
    documents: Ids
    rows: NDArray[np.int64]
    relevant: NDArray[np.int64]
    stages: tuple[Stage, ...]
    kept: NDArray[np.bool_]
    ranks: Mapping[str, NDArray[np.int64]]
    slices: Mapping[str, Slice]
    texts: tuple[Mapping[str, str], Mapping[str, str]]
    left_out: Mapping[str, int]
    notes: tuple[str, ...] = ()
    rel: float = 1.0
    seed: int = 0
    confidence: float = 0.95

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        names = " -> ".join(stage.name for stage in self.stages)
        return f"Waterfall({len(self):,} queries, {len(self.documents):,} relevant, {names})"

    def __getitem__(self, name: str) -> Stage:
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = [stage.name for stage in self.stages]
        raise InputError(
            f"there is no stage {name!r}; there are {', '.join(names)}",
            hint=did_you_mean(name, names),
        )

    @property
    def kept_counts(self) -> NDArray[np.int64]:
        """(n,) relevant documents of each query that are there to the end."""
        return np.bincount(self.rows[self.kept], minlength=len(self)).astype(np.int64)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every stage over all queries. The losses and what is left at the end are 1 together."""
        return self._steps(np.arange(len(self)))

    def by(self, column: str) -> dict[str, tuple[Step, ...]]:
        """The steps of every group of a slice; `column` is one of `by=`."""
        if column not in self.slices:
            raise InputError(
                f"the waterfall has no slices by {column!r}", hint=did_you_mean(column, self.slices)
            )
        part = self.slices[column]
        return {group: self._steps(np.flatnonzero(part.mask(group))) for group in part.groups}

    def exact(self) -> list[Fraction]:
        """The mean loss of every stage and, last, what is left: fractions that are 1 together."""
        counts = [stage.lost for stage in self.stages]
        rows = np.arange(len(self))
        return [self._mean(c, rows) for c in (*counts, self.kept_counts)]

    def _mean(self, counts: NDArray[np.int64], rows: NDArray[np.int64]) -> Fraction:
        """The mean over queries of counts / relevant, exactly."""
        total = Fraction(0)
        # Queries of equal size share a denominator, so that few fractions are added.
        sizes, sums = np.unique(self.relevant[rows]), counts[rows]
        for size in sizes.tolist():
            total += Fraction(int(sums[self.relevant[rows] == size].sum()), size)
        return total / max(len(rows), 1)

    def _steps(self, rows: NDArray[np.int64]) -> tuple[Step, ...]:
        if len(rows) == 0:
            return ()
        shares = np.array([stage.lost[rows] / self.relevant[rows] for stage in self.stages])
        ends = bootstrap_means(shares, seed=self.seed, confidence=self.confidence).tolist()
        found, left = [], Fraction(1)
        for stage, (low, high) in zip(self.stages, ends, strict=True):
            lost = self._mean(stage.lost, rows)
            left -= lost
            found.append(
                Step(
                    stage.name, float(lost), low, high, int(stage.lost[rows].sum()), float(left),
                    float(self._mean(stage.lucky, rows)), int(stage.lucky[rows].sum()),
                    int(np.count_nonzero(stage.lost[rows])),
                )
            )  # fmt: skip
        return tuple(found)

    @property
    def largest(self) -> Step | None:
        """The stage that loses most; None where nothing is lost."""
        worst = max(self.steps, key=lambda step: step.lost, default=None)
        return worst if worst is not None and worst.documents else None

    # -- the queries behind it --------------------------------------------------------------------

    def behind(self, name: str, limit: int | None = None) -> list[LostQuery]:
        """The queries that lose something at a stage, those that lose the largest share first."""
        return self._queries(self[name].lost, self[name].lost_pairs, limit)

    def lucky(self, name: str, limit: int | None = None) -> list[LostQuery]:
        """The queries for which a stage has what an earlier one had lost."""
        return self._queries(self[name].lucky, self[name].lucky_pairs, limit)

    def _queries(
        self, counts: NDArray[np.int64], pairs: NDArray[np.bool_], limit: int | None
    ) -> list[LostQuery]:
        order = np.lexsort((-counts, -counts / self.relevant))
        order = order[counts[order] > 0][:limit]
        at = np.flatnonzero(pairs)
        at = at[np.argsort(self.rows[at], kind="stable")]
        starts = np.searchsorted(self.rows[at], order)
        stops = np.searchsorted(self.rows[at], order, side="right")
        return [
            self._lost(int(row), at[start:stop])
            for row, start, stop in zip(order, starts, stops, strict=True)
        ]

    def _lost(self, row: int, pairs: NDArray[np.int64]) -> LostQuery:
        query, (questions, documents) = self.queries[row], self.texts
        assert isinstance(query, str | int)
        names = [self.documents[int(pair)] for pair in pairs]
        return LostQuery(
            query,
            questions.get(str(query), ""),
            int(self.relevant[row]),
            tuple((name, documents.get(str(name), "")) for name in names),
            {stage: tuple(ranks[pairs].tolist()) for stage, ranks in self.ranks.items()},
        )

    # -- as something else ------------------------------------------------------------------------

    def rows_of(self) -> Iterator[dict[str, Any]]:
        """One row for each query and stage: relevant, lost, lucky, kept after it."""
        for at in range(len(self)):
            left = int(self.relevant[at])
            for stage in self.stages:
                left -= int(stage.lost[at])
                yield {
                    "query_id": self.queries[at], "stage": stage.name,
                    "relevant": int(self.relevant[at]), "lost": int(stage.lost[at]),
                    "left": left, "lucky": int(stage.lucky[at]),
                }  # fmt: skip

    def to_frame(self, library: str = "pandas") -> Any:
        """One row for each query and stage, as a frame of pandas, polars or arrow."""
        import pyarrow as pa

        from semrecall.data.frames import to_library

        rows = list(self.rows_of())
        columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        if columns:
            columns["query_id"] = [str(query) for query in columns["query_id"]]
        return to_library(pa.table(columns), library)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists."""
        from semrecall.waterfall.text import document

        return document(self)

    def to_html(self, path: str | Path, **options: Any) -> None:
        """Write one self-contained HTML file; options as in `report.waterfall.write_waterfall`."""
        import importlib

        importlib.import_module("semrecall.report.waterfall").write_waterfall(self, path, **options)

    def plot(self) -> Any:
        """The picture, as `Result.plot` gives those of a report."""
        import importlib

        report = importlib.import_module("semrecall.report")
        return report.figures_of(lambda: report.waterfall.picture(self))

    def __str__(self) -> str:
        from semrecall.waterfall.text import text

        return text(self)
