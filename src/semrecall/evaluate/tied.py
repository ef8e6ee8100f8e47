"""What the order of equally scored results is worth to each measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.measures import TieRange, tie_range
from semrecall.text import aligned, narrowed, number, plural, shortened

if TYPE_CHECKING:
    from semrecall.evaluate.result import Result

__all__ = ["Tied", "tied", "tied_lines"]


@dataclass(frozen=True)
class Tied:
    """A mean and its range over all orders of tied results.

    low, expected, high: means of `ranges`, a `TieRange` by query, over the n queries with a value.
    touched: queries whose value depends on the order.
    """

    run: str
    measure: str
    low: float
    expected: float
    mean: float
    high: float
    touched: int
    n: int
    ranges: TieRange


def tied(result: Result) -> tuple[Tied, ...]:
    """The range over ties of every measure by judgments, for every run."""
    found = []
    for measure in result.measures:
        if measure.layer != "retrieval" or "judgments" not in measure.needs:
            continue
        for run in result.runs:
            scores = result.scores[run, str(measure)]
            ranges = tie_range(measure, result.problems[run], seed=result.seed)
            use = scores.defined
            means = [float(np.mean(v[use])) if use.any() else float("nan") for v in ranges]
            found.append(
                Tied(
                    run=run,
                    measure=str(measure),
                    low=means[0],
                    expected=means[1],
                    mean=scores.mean,
                    high=means[2],
                    touched=int((ranges.touched & use).sum()),
                    n=int(use.sum()),
                    ranges=ranges,
                )
            )
    return tuple(found)


def tied_lines(result: Result) -> list[str]:
    """The ranges as lines of text."""
    rows = result.ties()
    if not rows:
        return ["", "no measure by judgments, so no range over ties"]

    def lines_of(width: int) -> list[str]:
        cells = [["", "lowest", "expected", "as ranked", "highest", "queries it touches"]]
        for row in rows:
            run = f"{shortened(row.run, width)}  " if len(result.runs) > 1 else ""
            ends = (number(v) for v in (row.low, row.expected, row.mean, row.high))
            cells.append([run + row.measure, *ends, f"{row.touched:,} of {row.n:,}"])
        return aligned(cells, [False] + [True] * 5)

    lines = ["", "over all orders of equally scored results", *narrowed(lines_of)]
    drawn = [row for row in rows if row.ranges.expected_drawn and row.touched]
    if drawn:
        what = ", ".join(dict.fromkeys(row.measure for row in drawn))
        both = any(row.ranges.extremes_drawn for row in drawn)
        those = "the range" if both else "the expected value"
        first = drawn[0].ranges
        lines.append(
            f"{what}: {those} is that of {plural(first.draws, 'random order')}, seed {first.seed}"
        )
    return lines
