"""The tables of a result: all queries, groups, and what to know before using the numbers."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from semrecall.evaluate.table import count_lines, left_out_lines, note_lines
from semrecall.measures import parse
from semrecall.report.parts import column_name, table
from semrecall.text import number, one_line, share

if TYPE_CHECKING:
    from semrecall.evaluate import Result, Slice, Summary

__all__ = ["GROUPS", "remarks", "slice_table", "summary"]

#: So many groups of a slice are shown.
GROUPS = 60


def _figures(row: Summary) -> list[str]:
    interval = "-" if math.isnan(row.low) else f"{number(row.low)} to {number(row.high)}"
    shares = [share(row.at_one), share(row.at_zero)]
    spread = [number(v, 3) for v in (row.sd, row.median, row.p10, row.p5, row.p1)]
    left_out = f"{sum(row.left_out.values()):,}"
    return [number(row.mean), interval, *spread, *shares, f"{row.n:,}", left_out]


def _heads(result: Result) -> list[str]:
    interval = f"{result.confidence * 100:.4g}% interval"
    spread = ["sd", "median", "p10", "p5", "p1", "at 1", "at 0"]
    return ["mean", interval, *spread, "queries", "left out"]


#: What the columns are.
_ABOUT = (
    "Over queries: the mean with its interval, standard deviation (sd), median, the value that "
    "10%, 5% and 1% of the queries stay below (p10, p5, p1), the shares of queries whose value is "
    "1 and 0, and how many have a value. Left out are those where a measure is undefined; why is "
    "said below."
)


def summary(result: Result) -> str:
    """Every measure over all queries, with what the measures mean."""
    several = len(result.runs) > 1
    rows = [
        [row.measure, *([one_line(row.run)] if several else []), *_figures(row)]
        for row in result.summary()
    ]
    heads = ["measure", *(["run"] if several else []), *_heads(result)]
    meanings = "".join(
        f"<li><code>{escape(str(m))}</code>: {escape(m.about)}</li>" for m in result.measures
    )
    return (
        f"<h2>Summary</h2><p>{_ABOUT}</p>{table(heads, rows, names=1 + several)}"
        f"<details><summary>What the measures mean</summary><ul>{meanings}</ul></details>"
    )


def remarks(result: Result) -> str:
    """What a reader should know of the numbers, as a list."""
    notes = [line.removeprefix("note: ") for line in note_lines(result)]
    lines = [*left_out_lines(result), *count_lines(result), *notes]
    lines += [
        f"{row.measure} of {one_line(row.run)}, pooled: {number(row.micro)}. It counts the "
        "neighbours of all queries together, where the mean gives each query the same weight, "
        "however many it has"
        for row in result.summary()
        if row.micro is not None
    ]
    if not lines:
        return "<p>No query was left out, and no result is missing or repeated.</p>"
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h3>To know before using these numbers</h3><ul>{items}</ul>"


def slice_table(result: Result, part: Slice) -> str:
    """Every measure over each group of a slice; of very many groups, the worst."""
    several = len(result.runs) > 1
    found = result.summary(by=part.column)
    groups = _worst_groups(found, part)
    rows = [
        [row.measure, row.group, *([one_line(row.run)] if several else []), *_figures(row)]
        for row in found
        if row.group in groups
    ]
    heads = ["measure", column_name(part.column), *(["run"] if several else []), *_heads(result)]
    about = f"{part.about} ({part.column})" if part.about else part.column
    fewer = len(part.groups) - len(groups)
    more = f"<p>The worst {len(groups):,} of {len(part.groups):,} groups.</p>" if fewer else ""
    return f"<h2>By {escape(about)}</h2>{more}{table(heads, rows, names=2 + several)}"


def _worst_groups(found: list[Summary], part: Slice) -> set[str]:
    """The groups that are shown: all, or those with the lowest means of the first run."""
    if len(part.groups) <= GROUPS:
        return set(part.groups)
    name = next((m for m in map(_name, found) if m == "srecall"), _name(found[0]))
    rows = [r for r in found if _name(r) == name and r.run == found[0].run]
    sign = -1.0 if parse(rows[0].measure).lower_is_better else 1.0
    rows.sort(key=lambda r: (math.isnan(r.mean), sign * r.mean))
    return {row.group for row in rows[:GROUPS]}


def _name(row: Summary) -> str:
    return parse(row.measure).name
