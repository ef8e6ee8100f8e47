"""A Result as a table of plain text, at most 100 columns wide."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from semrecall.evaluate.result import FEW
from semrecall.evaluate.unjudged import unjudged_lines
from semrecall.text import (
    aligned,
    display_width,
    narrowed,
    number,
    one_line,
    plural,
    share,
    shortened,
    terminal_width,
    wrapped,
)

if TYPE_CHECKING:
    from semrecall.evaluate.result import Result, RunCounts, Summary

__all__ = ["count_lines", "left_out_lines", "note_lines", "remarks", "text"]

JUDGED, LEFT_OUT = "judged", "left out"


def _interval(row: Summary) -> str:
    if math.isnan(row.low):
        return "-"
    return f"{number(row.low)} to {number(row.high)}"


#: Heading, text of a row, and how soon the column goes when the line is too long (0: never).
_COLUMNS: tuple[tuple[str, Callable[[Summary], str], int], ...] = (
    ("mean", lambda r: number(r.mean), 0),
    ("{confidence} interval", _interval, 0),
    ("sd", lambda r: number(r.sd, 3), 4),
    ("median", lambda r: number(r.median, 3), 3),
    ("p10", lambda r: number(r.p10, 3), 5),
    ("p5", lambda r: number(r.p5, 3), 2),
    ("p1", lambda r: number(r.p1, 3), 6),
    ("at 1", lambda r: share(r.at_one), 1),
    ("at 0", lambda r: share(r.at_zero), 1),
    (JUDGED, lambda r: "" if r.judged is None else share(r.judged), 0),
    ("queries", lambda r: f"{r.n:,}{' (few)' if r.few else ''}", 0),
    (LEFT_OUT, lambda r: f"{sum(r.left_out.values()):,}" if r.left_out else "", 0),
)


def text(result: Result) -> str:
    """The table, the slices, the split of the loss, and under them what is to be said."""
    lines = [*wrapped(_opening(result)), ""]
    lines += _block(result, result.summary())
    for column, part in result.slices.items():
        about = f", the {part.about}" if part.about else ""
        lines += ["", f"by {column}{about}"]
        lines += _block(result, result.summary(by=column))
    lines += _split(result)
    lines += unjudged_lines(result)
    for remark in ["", *remarks(result)]:
        lines += wrapped(remark)
    return "\n".join(line.rstrip() for line in lines)


def _opening(result: Result) -> str:
    parts = [plural(len(result.queries), "query", "queries")]
    if len(result.runs) == 1:
        parts.insert(0, shortened(result.runs[0]))
    if result.truth is not None:
        parts.append(f"truth to depth {result.truth.depth:,}")
    if result.space is not None:
        parts.append(f"space {result.space}")
    return ", ".join(parts)


def _block(result: Result, rows: list[Summary]) -> list[str]:
    """Rows as text: measures as headings where several rows belong to one."""
    lines = narrowed(lambda width: _lines(result, rows, _names(result, rows, width)))
    if not _headed(result, rows):
        return lines
    grouped, previous = lines[:1], None
    for row, line in zip(rows, lines[1:], strict=True):
        if row.measure != previous:
            grouped.append(row.measure)
            previous = row.measure
        grouped.append(line)
    return grouped


def _headed(result: Result, rows: list[Summary]) -> bool:
    return len(result.runs) > 1 or bool(rows and rows[0].column)


def _names(result: Result, rows: list[Summary], width: int) -> list[str]:
    """What stands before each row: the group and the run, or else the measure."""
    if not _headed(result, rows):
        return [row.measure for row in rows]
    groups = [shortened(row.group, width) for row in rows]
    widest = max(map(display_width, groups), default=0)
    names = []
    for row, group in zip(rows, groups, strict=True):
        parts = [group + " " * (widest - display_width(group))] if row.column else []
        parts += [shortened(row.run, width)] if len(result.runs) > 1 else []
        names.append("  " + "  ".join(parts))
    return names


def _lines(result: Result, rows: list[Summary], names: list[str]) -> list[str]:
    """Head and rows, without as many columns as it takes to fit."""
    confidence = f"{result.confidence * 100:.4g}%"
    absent = {JUDGED} if all(row.judged is None for row in rows) else set()
    absent |= set() if any(row.left_out for row in rows) else {LEFT_OUT}
    columns = [
        (head.format(confidence=confidence), cell, drop)
        for head, cell, drop in _COLUMNS
        if head not in absent
    ]
    while True:
        cells = [["", *(head for head, _, _ in columns)]]
        cells += [
            [name, *(cell(row) for _, cell, _ in columns)]
            for name, row in zip(names, rows, strict=True)
        ]
        lines = aligned(cells, [False] + [True] * len(columns))
        next_to_go = max((drop for _, _, drop in columns), default=0)
        if max(map(display_width, lines)) <= terminal_width() or next_to_go == 0:
            return lines
        columns = [c for c in columns if c[2] != next_to_go]


def _split(result: Result) -> list[str]:
    if not result.splits:
        return []

    def lines_of(width: int) -> list[str]:
        cells = [["", "quantisation", "+ index search", "= total loss", "queries"]]
        for split in result.splits:
            run = f"{shortened(split.run_name, width)}  " if len(result.runs) > 1 else ""
            parts = (split.mean_quantisation, split.mean_index, split.mean_total)
            cells.append([run + split.measure, *(number(p) for p in parts), f"{split.n:,}"])
        return aligned(cells, [False] + [True] * 4)

    return ["", "where it is lost", *narrowed(lines_of)]


def remarks(result: Result) -> list[str]:
    """What stands under the table: who was left out, pooled values, counts, notes, the seed."""
    lines = left_out_lines(result)
    for row in result.summary():
        if row.micro is not None:
            of_run = f" of {shortened(row.run)}" if len(result.runs) > 1 else ""
            lines.append(
                f"{row.measure}{of_run} pooled over queries (their sizes differ): "
                f"{number(row.micro)}"
            )
    lines += count_lines(result)
    lines += note_lines(result)
    if any(row.few for column in result.slices for row in result.summary(by=column)):
        lines.append(f"few: fewer than {FEW} queries; such a slice says little")
    lines += [f"intervals: {line}" for line in result.interval_methods]
    return lines


def left_out_lines(result: Result) -> list[str]:
    """How many queries were left out of each mean and why, one line a measure (and run)."""
    said: dict[tuple[str, str], list[str]] = {}
    for row in result.summary():
        if row.left_out:
            why = "; ".join(f"{count:,} {reason}" for reason, count in row.left_out.items())
            said.setdefault((row.measure, why), []).append(row.run)
    lines = []
    for (measure, why), runs in said.items():
        of_runs = "" if len(runs) == len(result.runs) else f" ({', '.join(map(shortened, runs))})"
        lines.append(f"left out of {measure}{of_runs}: {why}")
    return lines


def note_lines(result: Result) -> list[str]:
    """What a reader should know of the values: of all, then of single measures."""
    said: dict[tuple[str, str], list[str]] = {}
    for row in result.summary():
        for note in (*row.notes, *_equal_values(row, result.confidence)):
            said.setdefault((row.measure, note), []).append(row.run)
    lines = [f"note: {note}" for note in result.notes]
    for (measure, note), runs in said.items():
        of_runs = "" if len(runs) == len(result.runs) else f" of {', '.join(map(shortened, runs))}"
        lines.append(f"note: {measure}{of_runs}: {note}")
    return lines


def _equal_values(row: Summary, confidence: float) -> list[str]:
    """An interval of no width is not certainty: say what so few equal values cannot exclude."""
    if row.n < 2 or row.low != row.high:
        return []
    others = 1 - (1 - confidence) ** (1 / row.n)
    if others < 0.01:
        return []
    return [f"all {row.n:,} values are equal; up to {others:.0%} of other queries may still differ"]


def count_lines(result: Result) -> list[str]:
    """What the runs delivered beside their values, one line a run with something to say."""
    lines = []
    for run, counts in result.counts.items():
        said = _counts(counts)
        if said:
            lines.append(f"{shortened(run)}: {', '.join(said)}")
    return lines


def _counts(counts: RunCounts) -> list[str]:
    of = plural(counts.not_answered, "query", "queries")
    said = [
        (counts.missing, f"{plural(counts.missing, 'missing result')}"),
        (counts.repeats, f"{plural(counts.repeats, 'repeated result')} dropped"),
        (
            counts.violations,
            f"{plural(counts.violations, 'result')} where the truth is empty (a violation)",
        ),
        (counts.deleted, f"{plural(counts.deleted, 'result')} that are deleted documents"),
        (counts.not_answered, f"{of} not answered (they score 0)"),
        (
            counts.tied,
            f"{plural(counts.tied, 'query', 'queries')} where results of different grades have "
            "equal scores (--ties)",
        ),
        (
            counts.only_in_run,
            f"{plural(counts.only_in_run, 'query', 'queries')} only in the run, left out"
            f"{_first(counts.only_in_run_queries)}",
        ),
    ]
    return [line for count, line in said if count]


def _first(queries: tuple[str | int, ...]) -> str:
    shown = ", ".join(one_line(str(query)) for query in queries[:3])
    return f" ({shown}{', ...' if len(queries) > 3 else ''})" if queries else ""
