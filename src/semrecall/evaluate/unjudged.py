"""How much of what each measure looks at is judged, and what the unjudged could make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    from semrecall.measures import Measure, Problem

__all__ = ["Unjudged", "judged_shares", "unjudged", "unjudged_lines", "unjudged_sentences"]

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


def unjudged(result: Result) -> tuple[Unjudged, ...]:
    """The bounds of every measure that has them, for the runs with an unjudged result."""
    found = []
    for measure in result.measures:
        if not is_bounded(measure):
            continue
        for run in result.runs:
            problem, scores = result.problems[run], result.scores[run, str(measure)]
            use = scores.defined
            total, judged = judged_counts(problem, measure.k)
            if (judged == total)[use].all():
                continue
            grade = max(highest_grade(problem), measure.rel)
            low, high = relevance_bounds(problem, measure, grade=grade)
            some = use & (total > 0)
            found.append(
                Unjudged(
                    run=run,
                    measure=str(measure),
                    low=float(np.mean(low[use])),
                    mean=scores.mean,
                    high=float(np.mean(high[use])),
                    judged=float(np.mean(judged[some] / total[some])),
                    grade=grade,
                )
            )
    return tuple(found)


def unjudged_sentences(result: Result) -> list[str]:
    """The bounds as a sentence for each measure and run."""
    return [
        f"{row.measure}{f' of {shortened(row.run)}' if len(result.runs) > 1 else ''}: "
        f"{share(row.judged)} of the results are judged; the unjudged could make it "
        f"{number(row.low)} to {number(row.high)} (each irrelevant or of grade {row.grade:g})"
        for row in result.unjudged
    ]


def unjudged_lines(result: Result) -> list[str]:
    """The bounds as lines of text; none where every result is judged."""
    if not result.unjudged:
        return []
    grade = max(row.grade for row in result.unjudged)

    def lines_of(width: int) -> list[str]:
        cells = [["", "lowest", "as scored", "highest", "judged"]]
        for row in result.unjudged:
            run = f"{shortened(row.run, width)}  " if len(result.runs) > 1 else ""
            ends = (number(row.low), number(row.mean), number(row.high))
            cells.append([run + row.measure, *ends, share(row.judged)])
        return aligned(cells, [False] + [True] * 4)

    heading = f"if unjudged results were irrelevant or of grade {grade:g}"
    return ["", heading, *narrowed(lines_of)]
