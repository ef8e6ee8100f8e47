"""A Diff as text, as markdown and as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from semrecall.evaluate.comparison_text import p_text, signed
from semrecall.experiment.diff import shown_setting
from semrecall.formats import write_whole
from semrecall.report.parts import page, table
from semrecall.text import aligned, number, one_line, plural, shortened, wrapped

if TYPE_CHECKING:
    from semrecall.experiment.diff import Change, Diff

__all__ = ["HEADS", "cells", "headline", "lists", "text", "write_page"]

HEADS = ("run", "measure", "before", "after", "diff", "interval", "Holm p", "won/lost")


def text(found: Diff, worst: int = 5) -> str:
    """All of it, at most 100 columns wide."""
    rows = [list(HEADS), *(cells(row, 26) for row in found.rows)]
    lines = [*wrapped(headline(found)), "", *aligned(rows, [False, False] + [True] * 6)]
    for title, entries in lists(found, worst):
        lines += ["", title, *(line for e in entries for line in wrapped(f"  {e}", indent="    "))]
    return "\n".join(lines)


def headline(found: Diff) -> str:
    """What changed, in a sentence."""
    moved = [row for row in found.rows if row.difference]
    sure = [row for row in found.rows if row.significant]
    worse = found.worse
    said = f"{found.before.name} to {found.after.name}: "
    if not moved:
        return said + f"none of {plural(len(found.rows), 'mean')} changed"
    return said + (
        f"{len(moved)} of {plural(len(found.rows), 'mean')} changed, {len(sure)} of them by more "
        f"than chance, {len(worse)} of these for the worse"
    )


def cells(row: Change, width: int = 60) -> list[str]:
    """A row of the table; the significant ones are marked."""
    interval = "-" if math.isnan(row.low) else f"{signed(row.low)} to {signed(row.high)}"
    mark = "*" if row.significant else " "
    name = row.run if row.was == row.run else f"{row.was} -> {row.run}"
    return [
        shortened(name, width), row.measure, number(row.before), number(row.after),
        signed(row.difference), interval, p_text(row.p_corrected) + mark,
        f"{row.wins}/{row.losses}" if row.paired else "-",
    ]  # fmt: skip


def lists(found: Diff, worst: int = 5) -> list[tuple[str, list[str]]]:
    """What stands under the table: (heading, entries)."""
    parts: list[tuple[str, list[str]]] = []
    unpaired = [row for row in found.rows if not row.paired]
    if unpaired:
        note = "means only, of all queries: without values per query nothing can be tested"
        parts.append(("note", [note]))
    for row in found.rows:
        queries = found.worsened(row, worst)
        if queries:
            entries = [
                f"{one_line(str(q.query))}: {number(q.before)} to {number(q.after)}"
                for q in queries
            ]
            title = (
                f"{row.measure} of {one_line(row.run)}: {plural(row.losses, 'query', 'queries')}"
            )
            parts.append((f"{title} got worse, most of all", entries))
    parts += [
        ("runs no longer there", list(found.gone)),
        ("new runs", list(found.fresh)),
        (
            "settings that differ",
            [f"{n}: {shown_setting(a)} to {shown_setting(b)}" for n, a, b in found.settings],
        ),
        ("data that differ", [f"{name}: {what}" for name, what in found.data]),
        ("versions that differ", [f"{of}: {a} to {b}" for of, a, b in found.made]),
    ]
    return [(title, entries) for title, entries in parts if entries]


def write_page(found: Diff, path: str | Path, worst: int = 5) -> None:
    """One HTML file that asks nothing of any server."""
    parts = [f"<h1>{escape(headline(found))}</h1>", _table(HEADS, [cells(r) for r in found.rows])]
    for title, entries in lists(found, worst):
        items = "".join(f"<li>{escape(entry)}</li>" for entry in entries)
        parts.append(f"<h2>{escape(title)}</h2><ul>{items}</ul>")
    note = f"Intervals of {found.confidence:.4g}; * is significant with p corrected for all rows."
    parts.append(f'<p class="quiet">{escape(note)}</p>')
    write_whole(path, page(headline(found), parts))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return table(heads, rows, names=2)
