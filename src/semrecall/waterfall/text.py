"""A waterfall in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from semrecall.text import aligned, plural, share, shortened, wrapped
from semrecall.waterfall.result import CODES, DEPTH, EXACT

if TYPE_CHECKING:
    from semrecall.waterfall.result import LostQuery, Step, Waterfall

__all__ = ["about", "document", "headline", "opening", "remarks", "step_rows", "text"]

HEADS = ("stage", "lost", "interval", "documents", "queries", "left", "lucky finds")
#: What the stages with a meaning of their own lose.
_WORDS = {
    DEPTH: "the cut at k",
    EXACT: "the embedding model",
    CODES: "quantisation",
    "index": "the index",
    "filter": "the filter",
    "fusion": "fusion",
    "rerank": "the reranker",
    "context": "the cut to the context",
    "answer": "the answer",
}
_LISTED = 5


def about(name: str) -> str:
    """A stage in words: what is to blame."""
    return _WORDS.get(name, name)


def headline(found: Waterfall) -> str:
    """The answer in a sentence."""
    worst = found.largest
    if worst is None:
        return "Nothing relevant is lost at any stage"
    left = share(found.steps[-1].left)
    verb = "does not use" if worst.name == "answer" else "loses"
    return (
        f"{left} of the relevant documents are kept to the end; {about(worst.name)} {verb} most: "
        f"{share(worst.lost)}"
    )


def opening(found: Waterfall) -> str:
    """What was looked at."""
    relevant = plural(len(found.documents), "relevant document")
    return (
        f"{plural(len(found), 'query', 'queries')}, {relevant} known (grade {found.rel:g} or more)"
    )


def step_rows(steps: Sequence[Step]) -> list[tuple[str, ...]]:
    """The stages as cells, under HEADS."""
    return [
        (
            step.name, share(step.lost), f"{share(step.low)} to {share(step.high)}",
            f"{step.documents:,}", f"{step.queries:,}", share(step.left),
            f"{step.lucky_documents:,}" if step.lucky_documents else "-",
        )
        for step in steps
    ]  # fmt: skip


def remarks(found: Waterfall, *, lucky: bool = True) -> list[str]:
    """What a reader should know. lucky: also what lucky finds are, where there are any."""
    lines = [
        f"left out: {plural(count, 'query', 'queries')}, {reason}"
        for reason, count in found.left_out.items()
    ]
    lines += found.notes
    first = found.stages[0]
    if first.name == DEPTH:
        more = plural(int((first.lost > 0).sum()), "query has", "queries have")
        lines.append(
            f"depth: {more} more relevant documents than the {first.cut:,} results that count; "
            "no search can return them all"
        )
    if lucky and any(stage.lucky.any() for stage in found.stages):
        lines.append(
            "lucky finds: relevant documents that a stage has although an earlier one lost them; "
            "they stay counted as lost there"
        )
    lines.append(
        "lost, left: means over queries of shares of their relevant documents; "
        f"{100 * found.confidence:.4g}% intervals by resampling queries, seed {found.seed}"
    )
    return lines


def text(found: Waterfall) -> str:
    """The table, slices, and the queries behind the largest loss."""
    lines = [*wrapped(f"{headline(found)}."), opening(found), ""]
    lines += _table(found.steps)
    for column in found.slices:
        for group, steps in found.by(column).items():
            lines += ["", f"{column}: {group}", *_table(steps)]
    worst = found.largest
    if worst is not None:
        lines += ["", f"queries behind the loss at {worst.name}, the largest share first"]
        for lost in found.behind(worst.name, _LISTED):
            lines += _lines(lost)
    lines.append("")
    for line in remarks(found):
        lines += wrapped(line)
    return "\n".join(lines)


def _table(steps: Sequence[Step]) -> list[str]:
    rows = [HEADS, *((shortened(name), *rest) for name, *rest in step_rows(steps))]
    return aligned(rows, [False, *[True] * (len(HEADS) - 1)])


def _lines(lost: LostQuery) -> list[str]:
    named = f"{lost.query}: {lost.text}" if lost.text else str(lost.query)
    ids = ", ".join(str(name) for name, _ in lost.documents[:_LISTED])
    more = len(lost.documents) - _LISTED
    ids += f" and {more:,} more" if more > 0 else ""
    return wrapped(
        f"  {shortened(named, 60)}: {len(lost.documents):,} of {lost.relevant:,}: {ids}",
        indent="    ",
    )


def document(found: Waterfall) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "queries": len(found),
        "relevant": len(found.documents),
        "rel": found.rel,
        "stages": [asdict(step) for step in found.steps],
        "kept": found.steps[-1].left,
        "slices": {
            column: {g: [asdict(s) for s in steps] for g, steps in found.by(column).items()}
            for column in found.slices
        },
        "left_out": dict(found.left_out),
        "notes": list(found.notes),
        "confidence": found.confidence,
        "seed": found.seed,
    }
