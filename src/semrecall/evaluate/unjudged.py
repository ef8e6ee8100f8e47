"""How much of what each measure looks at is judged, and what the unjudged could make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semrecall.measures.bounds import (
    highest_grade,
    is_bounded,
    judged_counts,
    relevance_bounds,
)
from semrecall.text import aligned, narrowed, number, share, shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.evaluate.result import Result
    from semrecall.evaluate.tied import Tied
    from semrecall.measures import Measure, Problem

__all__ = [
    "Bounds",
    "Unjudged",
    "bounds",
    "judged_shares",
    "named_rows",
    "unjudged",
    "unjudged_lines",
    "unjudged_sentences",
]

#: They count judgments or results, and have no Judged@k beside them.
_COUNTS = {"Judged", "NumQ", "NumRel", "NumRet", "NumRelRet"}


@dataclass(frozen=True)
class Unjudged:
    """A mean and its bounds: what it would be for any labels of the unjudged results.

    low, high: means of `relevance_bounds` over the queries with a value. grade: what an unjudged
    result has where it is taken to be relevant. judged: mean share of the results looked at that
    is judged, over the same queries.
    """

    run: str
    measure: str
    low: float
    mean: float
    high: float
    judged: float
    grade: float
    column: str = ""
    group: str = ""


def judged_shares(problem: Problem, measure: Measure) -> NDArray[np.float64] | None:
    """Judged@k for the k of a measure, (n,): the judged share of the results that it looks at.

    Without a k, of all results; NaN where there are none. None for measures that do not score
    results by their judgments.
    """
    if (
        measure.layer != "retrieval"
        or "judgments" not in measure.needs
        or measure.name in _COUNTS
        or problem.judged is None
    ):
        return None
    total, judged = judged_counts(problem, measure.k)
    known = total > 0
    return np.where(known, judged / np.maximum(total, 1), np.nan)


class Bounds(NamedTuple):
    """Of one measure and run, by query (n,): bounds of the value, results and judged among them."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    total: NDArray[np.int64]
    judged: NDArray[np.int64]
    grade: float


def bounds(result: Result) -> dict[tuple[str, str], Bounds]:
    """By (run, measure), where the measure has bounds and some result is unjudged."""
    found = {}
    for measure in result.measures:
        if not is_bounded(measure):
            continue
        for run in result.runs:
            problem, use = result.problems[run], result.scores[run, str(measure)].defined
            total, judged = judged_counts(problem, measure.k)
            if (judged == total)[use].all():
                continue
            grade = max(highest_grade(problem), measure.rel)
            low, high = relevance_bounds(problem, measure, grade=grade)
            found[run, str(measure)] = Bounds(low, high, total, judged, grade)
    return found


def unjudged(result: Result, by: str | None = None) -> tuple[Unjudged, ...]:
    """The bounds of every mean that has them, over all queries or each group of a slice."""
    found = []
    for row in result.summary(by):
        known = result.bounds.get((row.run, row.measure))
        if known is None:
            continue
        use = result.scores[row.run, row.measure].defined & result.mask(row)
        some = use & (known.total > 0)
        found.append(
            Unjudged(
                run=row.run,
                measure=row.measure,
                low=_mean(known.low[use]),
                mean=row.mean,
                high=_mean(known.high[use]),
                judged=_mean(known.judged[some] / known.total[some]),
                grade=known.grade,
                column=row.column,
                group=row.group,
            )
        )
    return tuple(found)


def _mean(values: NDArray[np.float64]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def unjudged_sentences(result: Result) -> list[str]:
    """The bounds as a sentence for each measure and run."""
    return [
        f"{row.measure}{f' of {shortened(row.run)}' if len(result.runs) > 1 else ''}: "
        f"{share(row.judged)} of the results are judged; the unjudged could make it "
        f"{number(row.low)} to {number(row.high)} (each irrelevant or of grade {row.grade:g})"
        for row in result.unjudged
    ]


def unjudged_lines(result: Result) -> list[str]:
    """The bounds as lines of text, those within slices after; none where all is judged."""
    if not result.unjudged:
        return []
    grade = max(row.grade for row in result.unjudged)
    heading = f"if unjudged results were irrelevant or of grade {grade:g}"
    lines = ["", heading, *_block(result, result.unjudged)]
    for column in result.slices:
        lines += ["", f"{heading}, by {column}", *_block(result, unjudged(result, column))]
    return lines


def _block(result: Result, rows: tuple[Unjudged, ...]) -> list[str]:
    def lines_of(width: int) -> list[str]:
        names = named_rows(result, rows, width)
        cells = [[*names[0], "lowest", "as scored", "highest", "judged"]]
        for row, name in zip(rows, names[1:], strict=True):
            ends = (number(row.low), number(row.mean), number(row.high))
            cells.append([*name, *ends, share(row.judged)])
        return aligned(cells, [False] * len(names[0]) + [True] * 4)

    return narrowed(lines_of)


def named_rows(result: Result, rows: Sequence[Unjudged | Tied], width: int) -> list[list[str]]:
    """What stands before the head and each row: group, run where there are several, measure."""
    names = [
        [
            *([shortened(row.group, width)] if row.column else []),
            *([shortened(row.run, width)] if len(result.runs) > 1 else []),
            row.measure,
        ]
        for row in rows
    ]
    return [[""] * len(names[0]), *names]
