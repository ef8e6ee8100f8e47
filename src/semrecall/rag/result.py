"""What measuring contexts and answers gives: values a question, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Scores
from semrecall.errors import MeasureError
from semrecall.measures import Measure, parse
from semrecall.rag.claims import Claims
from semrecall.rag.records import Record
from semrecall.registry import did_you_mean
from semrecall.stats.intervals import bootstrap_means

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.data.slices import Slice
    from semrecall.measures.verdicts import Case

__all__ = ["RagResult", "Row"]


@dataclass(frozen=True)
class Row:
    """A measure over all questions, or over a group of them.

    mean over the questions that are scored, with its interval. scored, unscored: how many.
    worst, best: the mean over all that could be scored, if every one whose verdicts are missing
    had the worst value or the best. reasons: why questions have no value, and how many.
    """

    measure: str
    group: str
    mean: float
    low: float
    high: float
    scored: int
    unscored: int
    worst: float
    best: float
    reasons: Mapping[str, int]


@dataclass(frozen=True, eq=False, repr=False)
class RagResult:
    """Made by `rag`: measures of contexts and answers, question by question.

    scores: by the name of the measure. records, claims, cases: what they were made from. slices:
    by column.
    """

    measures: tuple[Measure, ...]
    queries: Ids
    scores: Mapping[str, Scores]
    records: tuple[Record, ...]
    claims: tuple[Claims, ...]
    cases: tuple[Case, ...]
    slices: Mapping[str, Slice]
    judge: str = ""
    notes: tuple[str, ...] = ()
    seed: int = 0
    confidence: float = 0.95

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        means = ", ".join(f"{m} {self.mean(str(m)):.3f}" for m in self.measures)
        return f"RagResult({len(self):,} questions: {means})"

    def __getitem__(self, measure: str) -> Scores:
        name = str(parse(measure))
        if name not in self.scores:
            raise MeasureError(f"{name} was not computed", hint=did_you_mean(name, self.scores))
        return self.scores[name]

    def mean(self, measure: str) -> float:
        """Mean over the questions that are scored; NaN when none is."""
        return self[measure].mean

    def interval(self, measure: str) -> tuple[float, float]:
        """The interval (low, high) of the mean, by resampling questions."""
        row = self.row(measure)
        return row.low, row.high

    def undefined(self, measure: str) -> dict[str, int]:
        """Why questions are left out: {reason: count}."""
        return self[measure].undefined

    def row(self, measure: str) -> Row:
        """A measure over all questions."""
        return self._row(measure, "", np.arange(len(self)))

    def rows(self, by: str | None = None) -> list[Row]:
        """Every measure over all questions, or over each group of a slice."""
        names = [str(m) for m in self.measures]
        if by is None:
            return [self.row(name) for name in names]
        part = self.slices[by]
        return [
            self._row(name, group, np.flatnonzero(part.mask(group)))
            for group in part.groups
            for name in names
        ]

    def _row(self, measure: str, group: str, chosen: NDArray[np.int64]) -> Row:
        scores = self[measure]
        values = scores.values[chosen]
        reasons = [scores.reasons[int(at)] for at in chosen]
        known = values[~np.isnan(values)]
        # A reason that speaks of a verdict is a gap; one that speaks of the record is none.
        gaps = sum(_is_gap(reason) for reason in reasons)
        total, all_of = math.fsum(known), len(known) + gaps
        [(low, high)] = bootstrap_means(
            values[None, :], seed=self.seed, confidence=self.confidence
        ).tolist()
        ends = sorted([total / all_of, (total + gaps) / all_of]) if all_of else [math.nan] * 2
        if parse(measure).lower_is_better:
            ends.reverse()
        return Row(
            str(parse(measure)), group, total / len(known) if len(known) else math.nan, low, high,
            len(known), gaps, ends[0], ends[1],
            {r: reasons.count(r) for r in dict.fromkeys(reasons) if r},
        )  # fmt: skip

    def per_question(self) -> list[dict[str, Any]]:
        """One row for each question: its id, the values, and why one is missing."""
        found = []
        for at, record in enumerate(self.records):
            row: dict[str, Any] = {"query_id": record.id, "question": record.question}
            for name, scores in self.scores.items():
                value = float(scores.values[at])
                row[name] = None if math.isnan(value) else value
            row["why"] = "; ".join(
                f"{name}: {scores.reasons[at]}"
                for name, scores in self.scores.items()
                if scores.reasons[at]
            )
            found.append(row)
        return found

    def to_frame(self, library: str = "pandas") -> Any:
        """One row for each question and measure: query_id, measure, value, reason."""
        import pyarrow as pa

        from semrecall.data.frames import to_library

        columns: dict[str, list[Any]] = {"query_id": [], "measure": [], "value": [], "reason": []}
        for name, scores in self.scores.items():
            columns["query_id"] += [record.id for record in self.records]
            columns["measure"] += [name] * len(self)
            columns["value"] += scores.values.tolist()
            columns["reason"] += list(scores.reasons)
        return to_library(pa.table(columns), library)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists."""
        from semrecall.rag.text import document

        return document(self)

    def to_html(self, path: str | Path, **options: Any) -> None:
        """Write one self-contained HTML file; options as in `report.rag.write_rag`."""
        import importlib

        importlib.import_module("semrecall.report.rag").write_rag(self, path, **options)

    def __str__(self) -> str:
        from semrecall.rag.text import text

        return text(self)


def _is_gap(reason: str) -> bool:
    return reason.startswith(("no verdict", "verdicts missing", "no claims could", "no questions"))
