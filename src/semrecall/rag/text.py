"""The measures of contexts and answers in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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
    weakest = min(rows, key=lambda row: _goodness(found, row))
    return f"{weakest.measure} is the weakest: {number(weakest.mean, 3)} over {weakest.scored:,}"


def _goodness(found: RagResult, row: Row) -> float:
    lower = next(m.lower_is_better for m in found.measures if str(m) == row.measure)
    return 1 - row.mean if lower else row.mean


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Rows as cells, under HEADS."""
    return [
        (
            row.measure, number(row.mean), f"{number(row.low)} to {number(row.high)}",
            f"{row.scored:,}", f"{row.unscored:,}" if row.unscored else "-",
            number(row.worst) if row.unscored else "-",
        )
        for row in rows
    ]  # fmt: skip


def remarks(found: RagResult) -> list[str]:
    """What a reader should know."""
    return [
        *(
            f"{row.measure}: {plural(count, 'question')} without a value, {reason}"
            for row in found.rows()
            for reason, count in row.reasons.items()
        ),
        *found.notes,
        "worst case: the mean if every question whose verdicts are missing had the worst value",
        f"intervals: {100 * found.confidence:.4g}%, bootstrap over questions, seed {found.seed}",
    ]


def text(found: RagResult) -> str:
    """The table, the slices, and the worst questions."""
    lines = [f"{plural(len(found), 'question')}", ""]
    lines += _table(HEADS, cells(found.rows()))
    for column in found.slices:
        rows = found.rows(column)
        heads = (column, *HEADS)
        lines += ["", *_table(heads, [(row.group, *cells([row])[0]) for row in rows])]
    lines.append("")
    for name, questions in worst_questions(found, _LISTED):
        lines.append(f"lowest {name}:" if not _lower(found, name) else f"highest {name}:")
        for query, question, value in questions:
            said = shortened(f"{query}: {one_line(question)}", 80)
            lines.append(f"  {number(value, 3)}  {said}")
    lines.append("")
    for line in remarks(found):
        lines += wrapped(line)
    return "\n".join(lines)


def _lower(found: RagResult, name: str) -> bool:
    return next(m.lower_is_better for m in found.measures if str(m) == name)


def worst_questions(
    found: RagResult, limit: int
) -> Iterator[tuple[str, list[tuple[str, str, float]]]]:
    """For each measure the questions with the worst values below the best: id, text, value."""
    for measure in found.measures:
        name, best = str(measure), 0.0 if measure.lower_is_better else 1.0
        values = found.scores[name].values
        sign = -1 if measure.lower_is_better else 1
        order = sorted(
            (at for at in range(len(found)) if values[at] == values[at] and values[at] != best),
            key=lambda at, s=sign, v=values: (s * v[at], at),  # type: ignore[misc]
        )
        chosen = [
            (found.records[at].id, found.records[at].question, float(values[at]))
            for at in order[:limit]
        ]
        if chosen:
            yield name, chosen


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    names = len(heads) - len(HEADS) + 1
    right = [False] * names + [True] * (len(heads) - names)
    return aligned([list(heads), *([shortened(r[0]), *r[1:]] for r in rows)], right)


def document(found: RagResult) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "questions": len(found),
        "measures": [asdict(row) for row in found.rows()],
        "slices": {column: [asdict(row) for row in found.rows(column)] for column in found.slices},
        "per_question": found.per_question(),
        "judge": found.judge,
        "notes": list(found.notes),
        "confidence": found.confidence,
        "seed": found.seed,
    }
