"""A sweep in tables: settings, groups, systems side by side at one cost or one quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semrecall.text import (
    aligned,
    display_width,
    narrowed,
    number,
    shortened,
    terminal_width,
    wrapped,
)
from semrecall.tuning.text import cost_number, interval_text, signed_percent, table

if TYPE_CHECKING:
    from semrecall.tuning.sweeping import At, Row, Sweep

__all__ = [
    "at_cost_rows",
    "at_quality_rows",
    "at_text",
    "sweep_document",
    "sweep_row",
    "sweep_text",
]


def sweep_text(sweep: Sweep) -> str:
    """All settings over all queries, then by group, as text of at most 100 columns."""
    lines = [f"{sweep.queries:,} queries; cost: {sweep.objective.about}"]
    for by in (None, *sweep.slices):
        lines += ["", f"by {by}:" if by else "all queries:", *_fitting(sweep, sweep.rows(by))]
    percent = f"{sweep.confidence * 100:.4g}%"
    lines += ["", *wrapped(f"intervals: {percent}, over queries, seed {sweep.seed}")]
    lines += [line for note in sweep.notes for line in wrapped(f"note: {note}")]
    return "\n".join(lines)


def _fitting(sweep: Sweep, rows: Sequence[Row]) -> list[str]:
    """The table with intervals where it fits a terminal, else without."""
    lines = _lines(sweep, rows, 34, intervals=True)
    if max(map(display_width, lines)) > terminal_width():
        lines = narrowed(lambda width: _lines(sweep, rows, width, intervals=False))
    return lines


def _lines(sweep: Sweep, rows: Sequence[Row], width: int, *, intervals: bool) -> list[str]:
    several, grouped = len(sweep.curves) > 1, any(row.column for row in rows)
    names = [str(m) for m in sweep.measures]
    heads = ["system"] * several + [rows[0].column, "queries"] * grouped + ["setting"]
    heads += [h for name in names for h in [name, *["interval"] * intervals]]
    cells = [[*heads, sweep.objective.name]]
    for row in rows:
        line = [shortened(row.setting.system, width)] * several
        line += [shortened(row.group, width), f"{row.queries:,}"] * grouped
        line.append(shortened(str(row.setting), width))
        for name in names:
            found = row.measures[name]
            line += [number(found.mean), *[interval_text(found)] * intervals]
        cells.append([*line, cost_number(row.cost.mean)])
    texts = several + 2 * grouped + 1
    right = [c >= texts or heads[c] == "queries" for c in range(len(heads) + 1)]
    return aligned(cells, right)


def at_cost_rows(sweep: Sweep, cost: float) -> list[list[str]]:
    """Systems side by side at one cost, a heading first."""
    return _at_rows(sweep.at_cost(cost), is_cost=False)


def at_quality_rows(sweep: Sweep, measure: str, value: float) -> list[list[str]]:
    """Systems side by side at one quality, a heading first."""
    found, objective = sweep.at_quality(measure, value), sweep.objective
    return _at_rows(found, is_cost=True, cost=objective.name, bound="≥" if objective.rate else "≤")


def _at_rows(
    found: Sequence[At], *, is_cost: bool, cost: str = "", bound: str = ""
) -> list[list[str]]:
    """One row a system and measure: value, interval, difference to the first.

    bound: the sign before the cost of a cheapest setting that is already better.
    """
    measure = [] if is_cost else ["measure"]
    rows = [["system", *measure, cost if is_cost else "value", "interval", "against the first"]]
    for one in found:
        value, around, change = "-", "-", one.reason
        if one.value is not None:
            value = cost_number(one.value.mean) if is_cost else number(one.value.mean)
            around = interval_text(one.value, cost=is_cost)
        elif one.cheapest is not None:
            value = f"{bound} {cost_number(one.cheapest.mean)}"
        if one.change is not None:
            change = _change(one, is_cost)
        name = [shortened(one.system, 34)]
        rows.append([*name, *([] if is_cost else [one.measure]), value, around, change])
    return rows


def _change(one: At, is_cost: bool) -> str:
    change = one.change
    assert change is not None
    if is_cost:
        ends = f"{signed_percent(change.low)} to {signed_percent(change.high)}"
        return f"{signed_percent(change.mean)} ({ends})"
    return f"{change.mean:+.4f} ({change.low:+.4f} to {change.high:+.4f})"


def at_text(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A comparison as text."""
    return "\n".join(["", title, *table(rows)])


def sweep_row(row: Row, sweep: Sweep) -> dict[str, Any]:
    """One flat row, for CSV and markdown."""
    flat: dict[str, Any] = {"system": row.setting.system, **dict(row.setting.search)}
    if row.column:
        flat |= {"column": row.column, "group": row.group}
    flat["queries"] = row.queries
    for name, found in row.measures.items():
        flat |= {name: found.mean, f"{name} low": found.low, f"{name} high": found.high}
    cost = sweep.objective.name
    return flat | {cost: row.cost.mean, f"{cost} low": row.cost.low, f"{cost} high": row.cost.high}


def sweep_document(sweep: Sweep) -> dict[str, Any]:
    """All rows as plain mappings."""
    return {
        "queries": sweep.queries,
        "minimize": sweep.objective.name,
        "rows": [_plain(row) for by in (None, *sweep.slices) for row in sweep.rows(by)],
        "confidence": sweep.confidence,
        "seed": sweep.seed,
        "notes": list(sweep.notes),
    }


def _plain(row: Row) -> dict[str, Any]:
    return {
        "system": row.setting.system,
        "search": dict(row.setting.search),
        "column": row.column,
        "group": row.group,
        "queries": row.queries,
        "measures": {name: vars(found).copy() for name, found in row.measures.items()},
        "cost": vars(row.cost).copy(),
    }
