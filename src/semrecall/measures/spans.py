"""Measures of retrieved chunks by character: how much of the labelled spans they hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import Ids, codes_in, concatenate, unify
from semrecall.data.matching import difference
from semrecall.data.rows import pad, row_numbers
from semrecall.data.run import Run
from semrecall.data.spans import Chunks, Spans
from semrecall.errors import MeasureError, MismatchError, SemrecallWarning
from semrecall.measures.coverage import share
from semrecall.measures.grammar import measure
from semrecall.measures.kinds import NUMBER, choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.problem import Problem

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]

__all__ = ["SpanLayout", "lay_out_spans", "span_iou", "span_precision", "span_recall"]


@dataclass(frozen=True, eq=False)
class SpanLayout:
    """Results and spans of n queries on one line of characters.

    All documents lie end to end, `length` characters; row i of a query adds i times that.
    results: (n, w) chunk of each result, best first, -1 where it is none that is known.
    chunk_starts, chunk_ends: (c,) on the line. span_starts, span_ends: (m,), row included.
    grades: (m,) of the spans.
    """

    results: Whole
    chunk_starts: Whole
    chunk_ends: Whole
    length: int
    span_starts: Whole
    span_ends: Whole
    grades: Array

    def __len__(self) -> int:
        return len(self.results)


def lay_out_spans(queries: Ids, run: Run, spans: Spans, chunks: Chunks) -> SpanLayout:
    """Lay the chunks that `run` retrieved beside the spans of the same `queries` (n,).

    Raises MismatchError where no result is a chunk; warns of single results that are none.
    """
    documents, offsets, length = _line(spans, chunks)
    span_docs, chunk_docs = np.split(documents, [len(spans)])
    wanted, of_run, of_spans = unify(queries, run.queries, spans.queries)
    rows = codes_in(of_spans, wanted)
    whole = spans.starts < 0
    last = np.zeros(len(offsets), dtype=np.int64)
    np.maximum.at(last, chunk_docs, chunks.ends)
    starts = np.where(whole, 0, spans.starts)
    ends = np.where(whole, last[span_docs], spans.ends)
    use = (rows >= 0) & (ends > starts)
    base = (rows * length + offsets[span_docs])[use]
    return SpanLayout(
        results=_results(run, codes_in(wanted, of_run), chunks),
        chunk_starts=offsets[chunk_docs] + chunks.starts,
        chunk_ends=offsets[chunk_docs] + chunks.ends,
        length=length,
        span_starts=base + starts[use],
        span_ends=base + ends[use],
        grades=spans.grades[use],
    )


def _line(spans: Spans, chunks: Chunks) -> tuple[Whole, Whole, int]:
    """Number of the document of each span, then chunk; where each begins; the whole length."""
    joint = concatenate([spans.documents, chunks.documents])
    _, numbers = np.unique(joint.codes, return_inverse=True)
    lengths = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(lengths, numbers, np.concatenate([spans.ends, chunks.ends]))
    stops = np.cumsum(np.maximum(lengths, 1))
    return numbers, stops - np.maximum(lengths, 1), int(stops[-1]) if len(stops) else 1


def _results(run: Run, rows: Whole, chunks: Chunks) -> Whole:
    """The chunk of each valid distinct result, (n, w); -1 where it is none."""
    order = np.lexsort((run.documents.codes, row_numbers(run.offsets)))
    again = np.zeros(len(order), dtype=bool)
    code, row = run.documents.codes[order], row_numbers(run.offsets)[order]
    again[order[1:]] = (code[1:] == code[:-1]) & (row[1:] == row[:-1])
    kept = run.keep(run.valid & ~again)
    wanted, known = unify(kept.documents, chunks.ids)
    found = codes_in(wanted, known)
    strange = int((found < 0).sum())
    if strange and strange == len(found):
        hint = difference(kept.documents, chunks.ids)
        raise MismatchError(
            f"no result of run {run.name!r} is a chunk: the run has ids like "
            f"{kept.documents[0]!r}, the chunks "
            + (f"like {chunks.ids[0]!r}" if len(chunks) else "are none"),
            hint=str(hint) if hint else "are these the chunks that were searched?",
        )
    if strange:
        warnings.warn(
            f"{strange:,} of {len(found):,} results of run {run.name!r} are no known chunk; they "
            "hold no characters",
            SemrecallWarning,
            stacklevel=3,
        )
    table = pad(found, kept.offsets, -1)
    chosen = table[rows] if len(table) else np.empty((len(rows), 0), dtype=np.int64)
    chosen[rows < 0] = -1
    return chosen


def _no_span(problem: Problem, k: int | None, rel: float = 1.0, **_: Any) -> Iterator[Any]:
    layout = _layout(problem)
    use = layout.grades >= rel
    rows = layout.span_starts[use] // layout.length
    yield "no labelled span", np.bincount(rows, minlength=len(layout)) == 0


_SPANS: dict[str, Any] = {"needs": {"spans"}, "layer": "retrieval", "undefined": _no_span}
_REPEATS = choice("count", "once")


@measure("SpanR", **_SPANS, params={"rel": NUMBER})
def span_recall(problem: Problem, k: int, *, rel: float = 1.0) -> Array:
    """Share of the characters of the labelled spans that the first k chunks hold.

    (n,) in [0, 1]. Characters that several spans or several chunks share count once.
    """
    common, spans, _, _ = _counts(problem, k, rel)
    return share(common, spans)


@measure("SpanP", **_SPANS, params={"rel": NUMBER, "repeats": _REPEATS})
def span_precision(problem: Problem, k: int, *, rel: float = 1.0, repeats: str = "count") -> Array:
    """Share of the characters of the first k chunks that lie in a labelled span.

    (n,) in [0, 1], 0 where nothing was retrieved. Characters that chunks share are read again
    with each chunk: they count as often in the divisor, and once with `repeats=once`.
    """
    common, _, read, once = _counts(problem, k, rel)
    return share(common, np.maximum(read if repeats == "count" else once, 1))


@measure("SpanIoU", **_SPANS, params={"rel": NUMBER, "repeats": _REPEATS})
def span_iou(problem: Problem, k: int, *, rel: float = 1.0, repeats: str = "count") -> Array:
    """Characters that the first k chunks and the spans share, over the characters of both.

    (n,) in [0, 1]: intersection over union (Jaccard). Characters that chunks share count as often
    as they are read, and once with `repeats=once`.
    """
    common, spans, read, once = _counts(problem, k, rel)
    return share(common, (read if repeats == "count" else once) + spans - common)


def _layout(problem: Problem) -> SpanLayout:
    if problem.spans is None:
        raise MeasureError(
            "the measure needs labelled spans and chunks",
            hint="give both (--spans, --chunks): where answers stand, and what was searched",
        )
    return problem.spans


def _counts(problem: Problem, k: int, rel: float) -> tuple[Whole, Whole, Whole, Whole]:
    """Characters per query: in both, in spans, in chunks with repeats, in chunks once; (n,)."""
    layout, n = _layout(problem), len(problem)
    row, column = np.nonzero(layout.results[:, :k] >= 0)
    chunk = layout.results[row, column]
    starts, ends = layout.chunk_starts[chunk], layout.chunk_ends[chunk]
    base = row * layout.length
    read = _sums(row, ends - starts, n)
    use = layout.grades >= rel
    chunks = _union(base + starts, base + ends)
    spans = _union(layout.span_starts[use], layout.span_ends[use])
    common = _below(*chunks, spans[1]) - _below(*chunks, spans[0])
    of_spans = spans[0] // layout.length
    once = _sums(chunks[0] // layout.length, chunks[1] - chunks[0], n)
    return _sums(of_spans, common, n), _sums(of_spans, spans[1] - spans[0], n), read, once


def _sums(rows: Whole, lengths: Whole, n: int) -> Whole:
    """Sums by row; whole numbers far below 2^53, so that floats hold them exactly."""
    return np.bincount(rows, lengths, n).astype(np.int64)


def _union(starts: Whole, ends: Whole) -> tuple[Whole, Whole]:
    """Disjoint intervals, rising, that cover the same; intervals that only touch stay apart."""
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    new = np.ones(len(starts), dtype=bool)
    new[1:] = starts[1:] >= reach[:-1]
    last = np.append(np.flatnonzero(new)[1:], len(starts)) - 1
    return starts[new], reach[last] if len(starts) else reach


def _below(starts: Whole, ends: Whole, points: Whole) -> Whole:
    """How much of disjoint rising intervals lies below each of `points`."""
    if len(starts) == 0:
        return np.zeros(len(points), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    at = np.searchsorted(starts, points, side="right")
    inside = np.maximum(ends[np.maximum(at - 1, 0)] - points, 0)
    return np.where(at > 0, before[at] - inside, 0)
