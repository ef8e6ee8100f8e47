"""What the order of equally scored results is worth to each measure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.evaluate.unjudged import named_rows
from semrecall.measures import TieRange, tie_range
from semrecall.text import aligned, narrowed, number, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.evaluate.result import Result, Summary

__all__ = ["Tied", "tie_ranges", "tied", "tied_lines"]


@dataclass(frozen=True)
class Tied:
    """A mean and its range over all orders of tied results, over one group (all: `column` is "").

    low, expected, high: means of `ranges`, a `TieRange` by query, over the n queries with a value.
    touched: queries whose value depends on the order. ranges: of all queries, not of the group's.
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
    column: str = ""
    group: str = ""


def tie_ranges(result: Result) -> dict[tuple[str, str], TieRange]:
    """The range over ties of every measure by judgments, for every run, query by query."""
    return {
        (run, str(measure)): tie_range(measure, result.problems[run], seed=result.seed)
        for measure in result.measures
        if measure.layer == "retrieval" and "judgments" in measure.needs
        for run in result.runs
    }


def tied(result: Result, by: str | None = None) -> tuple[Tied, ...]:
    """The range over ties of every mean by judgments, over all queries or each group of a slice."""
    ranges = result.tie_ranges
    return tuple(
        _tied(row, result.scores[row.run, row.measure].defined & result.mask(row), found)
        for row in result.summary(by)
        if (found := ranges.get((row.run, row.measure))) is not None
    )


def _tied(row: Summary, use: NDArray[np.bool_], ranges: TieRange) -> Tied:
    low, expected, high = (float(np.mean(v[use])) if use.any() else math.nan for v in ranges)
    touched = int((ranges.touched & use).sum())
    return Tied(
        row.run, row.measure, low, expected, row.mean, high, touched, row.n, ranges,
        row.column, row.group,
    )  # fmt: skip


def tied_lines(result: Result) -> list[str]:
    """The ranges as lines of text, those within slices after those of all queries."""
    rows = result.ties()
    if not rows:
        return ["", "no measure by judgments, so no range over ties"]
    lines = ["", "over all orders of equally scored results", *_block(result, rows)]
    for column in result.slices:
        lines += ["", f"by {column}", *_block(result, result.ties(by=column))]
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


def _block(result: Result, rows: tuple[Tied, ...]) -> list[str]:
    def lines_of(width: int) -> list[str]:
        names = named_rows(result, rows, width)
        cells = [[*names[0], "lowest", "expected", "as ranked", "highest", "queries it touches"]]
        for row, name in zip(rows, names[1:], strict=True):
            ends = (number(v) for v in (row.low, row.expected, row.mean, row.high))
            cells.append([*name, *ends, f"{row.touched:,} of {row.n:,}"])
        return aligned(cells, [False] * len(names[0]) + [True] * 5)

    return narrowed(lines_of)
