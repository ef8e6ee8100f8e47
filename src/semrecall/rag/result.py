"""What measuring contexts and answers gives: values a question, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semrecall.evaluate import Result, Summary
from semrecall.measures import Measure, parse
from semrecall.measures.verdicts import UNSCORED
from semrecall.rag.claims import Claims
from semrecall.rag.records import Record

if TYPE_CHECKING:
    from semrecall.evaluate import Found
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
class RagResult(Result):
    """Made by `rag`: a Result of one run, measured question by question.

    records, claims, cases: what the values were made from. judge: who gave the verdicts.
    """

    records: tuple[Record, ...] = ()
    claims: tuple[Claims, ...] = ()
    cases: tuple[Case, ...] = ()
    judge: str = ""

    def __len__(self) -> int:
        return len(self.queries)

    def row(self, measure: str | Measure) -> Row:
        """A measure over all questions."""
        name = str(parse(str(measure)))
        return next(row for row in self.rows() if row.measure == self._measure(name))

    def rows(self, by: str | None = None) -> list[Row]:
        """Every measure over all questions, or over each group of a slice."""
        return [self._row(summary) for summary in self.summary(by)]

    def _row(self, summary: Summary) -> Row:
        # A reason that speaks of verdicts is a gap; one that speaks of the record is none.
        gaps = sum(n for why, n in summary.left_out.items() if why.startswith(UNSCORED))
        worst, best = summary.mean, summary.mean
        if gaps:
            known, total = summary.mean * summary.n if summary.n else 0.0, summary.n + gaps
            ends = worst_and_best(parse(summary.measure))
            worst, best = ((known + gaps * end) / total for end in ends)
        return Row(
            summary.measure, summary.group, summary.mean, summary.low, summary.high, summary.n,
            gaps, worst, best, summary.left_out,
        )  # fmt: skip

    def per_question(self) -> list[dict[str, Any]]:
        """One row for each question: its id, the values, and why one is missing."""
        found = []
        for at, record in enumerate(self.records):
            row: dict[str, Any] = {"query_id": record.id, "question": record.question}
            why = []
            for measure in map(str, self.measures):
                value, reason = float(self[measure].values[at]), self[measure].reasons[at]
                row[measure] = None if math.isnan(value) else value
                why += [f"{measure}: {reason}"] if reason else []
            found.append(row | {"why": "; ".join(why)})
        return found

    def found(self, query: int, run: str | None = None) -> list[Found]:
        """Nothing: what was read is in the records, without ranks of exact search."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists."""
        from semrecall.rag.text import document

        return document(self, super().to_dict())

    def to_html(self, path: str | Path, **options: Any) -> None:
        """Write one self-contained HTML file; options as in `report.rag.write_rag`."""
        import importlib

        importlib.import_module("semrecall.report.rag").write_rag(self, path, **options)

    def plot(self, **options: Any) -> Any:
        """The charts of the page, by name; needs matplotlib (the extra `report`)."""
        import importlib

        report = importlib.import_module("semrecall.report")
        page = importlib.import_module("semrecall.report.rag")
        return report.figures_of(lambda: page.rag_page(self, **options))

    def __str__(self) -> str:
        from semrecall.rag.text import text

        return text(self)

    def __repr__(self) -> str:
        means = ", ".join(f"{m} {self.mean(str(m)):.3f}" for m in self.measures)
        return f"RagResult({len(self):,} questions: {means})"


def worst_and_best(measure: Measure) -> tuple[float, float]:
    """The worst and the best value that a question can have."""
    if measure.lower_is_better:
        return 1.0, 0.0
    # The mean of cosine similarities.
    return (-1.0 if measure.settings.get("form") == "questions" else 0.0), 1.0
