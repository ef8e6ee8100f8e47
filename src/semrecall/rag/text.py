"""The measures of contexts and answers in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from semrecall.evaluate.table import note_lines
from semrecall.measures import parse
from semrecall.rag.result import worst_and_best
from semrecall.text import aligned, number, one_line, plural, shortened, wrapped

if TYPE_CHECKING:
    from semrecall.rag.result import RagResult, Row

__all__ = ["HEADS", "cells", "document", "headline", "remarks", "text", "worst_questions"]

HEADS = ("measure", "mean", "interval", "scored", "unscored", "worst case")
_LISTED = 5


def headline(found: RagResult) -> str:
    """The answer in a sentence: the lowest of the measures."""
    rows = [row for row in found.rows() if row.scored]
    if not rows:
        return f"None of {plural(len(found), 'question')} could be scored"
    weakest = min(rows, key=_goodness)
    return (
        f"{weakest.measure} is {number(weakest.mean, 3)}, the weakest of "
        f"{plural(len(rows), 'measure')} over {plural(len(found), 'question')}"
        if len(rows) > 1
        else f"{weakest.measure} is {number(weakest.mean, 3)} over "
        f"{plural(weakest.scored, 'question')}"
    )


def _goodness(row: Row) -> float:
    return 1 - row.mean if parse(row.measure).lower_is_better else row.mean


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Rows as cells, under HEADS."""
    return [
        (
            row.measure, number(row.mean),
            "-" if row.low != row.low else f"{number(row.low)} to {number(row.high)}",
            f"{row.scored:,}", f"{row.unscored:,}" if row.unscored else "-",
            number(row.worst) if row.unscored else "-",
        )
        for row in rows
    ]  # fmt: skip


def remarks(found: RagResult) -> list[str]:
    """What a reader should know."""
    lines = [
        f"{row.measure}: {plural(count, 'question')} without a value, {reason}"
        for row in found.rows()
        for reason, count in row.reasons.items()
    ]
    if any(row.unscored for row in found.rows()):
        lines.append("worst case: the mean if every unscored question had the worst value there is")
    lines += note_lines(found)
    return [*lines, *(f"intervals: {line}" for line in found.interval_methods)]


def text(found: RagResult) -> str:
    """The table, the slices, and the worst questions."""
    lines = [f"{shortened(found.runs[0])}, {plural(len(found), 'question')}", ""]
    lines += _table(HEADS, cells(found.rows()))
    for column in found.slices:
        rows = found.rows(column)
        lines += ["", *_table((column, *HEADS), [(r.group, *cells([r])[0]) for r in rows])]
    lines.append("")
    for name, questions in worst_questions(found, _LISTED):
        lines.append(f"{'highest' if parse(name).lower_is_better else 'lowest'} {name}:")
        for query, question, value in questions:
            said = shortened(f"{query}: {one_line(question)}", 80)
            lines.append(f"  {number(value, 3)}  {said}")
    lines.append("")
    for line in remarks(found):
        lines += wrapped(line)
    return "\n".join(line.rstrip() for line in lines)


def worst_questions(
    found: RagResult, limit: int
) -> Iterator[tuple[str, list[tuple[str, str, float]]]]:
    """For each measure the questions with the worst values below the best: id, text, value."""
    for measure in found.measures:
        best = worst_and_best(measure)[1]
        values = found[str(measure)].values
        chosen = [
            (found.records[at].id, found.records[at].question, float(values[at]))
            for at in found.worst(str(measure), limit)
            if values[at] != best
        ]
        if chosen:
            yield str(measure), chosen


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    names = len(heads) - len(HEADS) + 1
    right = [False] * names + [True] * (len(heads) - names)
    return aligned([list(heads), *([shortened(r[0], 30), *r[1:]] for r in rows)], right)


def document(found: RagResult, plain: dict[str, Any]) -> dict[str, Any]:
    """Everything as plain values. plain: what any Result says."""
    bounds = [
        {"measure": row.measure, "column": column, "group": row.group}
        | {k: v for k, v in asdict(row).items() if k in ("scored", "unscored", "worst", "best")}
        for column in ("", *found.slices)
        for row in found.rows(column or None)
    ]
    return plain | {"judge": found.judge, "bounds": bounds, "per_question": found.per_question()}
