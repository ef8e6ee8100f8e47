"""Exact search by maximum similarity over documents of several vectors (late interaction).

The score of a document with vectors x_1, x_2, ... for a query with vectors q_1, ..., q_t is

    max_j q_1.x_j + max_j q_2.x_j + ... + max_j q_t.x_j

with inner products in float64 as in space ip, the sum in the fixed order of `ordered_sum`.

Screening: one product in float32 of all vectors of some queries and documents. An inner product of
d terms is off by at most g |q_i| |x_j|, g as in `screen.py`; a largest value moves by no more than
the values it is the largest of; so a score is off by at most g N (|q_1| + ... + |q_t|), with N the
largest |x_j| of the block. Sums are taken in float64, whose rounding is far below the one per cent
that g has in hand. Documents that may be among the k nearest are settled: of each q_i only inner
products that may be the largest are taken in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run
from semrecall.data.multivectors import MultiVectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact.answer import BAD_QUERY, ZERO_QUERY, Answer, Sample, as_run
from semrecall.exact.filters import Filter
from semrecall.exact.merge import flattened
from semrecall.exact.screen import OutOfRange, safe_range
from semrecall.exact.search import Progress, Scan
from semrecall.exact.settle import exact_pair_scores, merge, shorten
from semrecall.space import IP, MAXSIM, exact_norms, ordered_sum
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NO_VECTOR",
    "DocumentSearch",
    "check_documents",
    "document_reasons",
    "maxsim_pair_scores",
    "search_documents",
    "tell_empty",
    "unsound_documents",
]

NO_VECTOR = "query without a vector"

_CELLS = 1 << 20  # inner products of one task
_ROWS = 2048  # rows of the base in one task, more where one document has more
_SCORES = 1 << 22  # scores of documents held at a time
_PAIRS = 64  # documents of one query settled at a time


def search_documents(
    base: Any,
    queries: Any,
    k: int,
    *,
    allowed: Any = None,
    memory: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """The exact k documents of highest maximum similarity for every query, ties included.

    base, queries: MultiVectors, or what `MultiVectors.of` takes. The base may be memory-mapped: it
    is read block by block. Everything else is as in `exact.search`: the answer is the same however
    it is computed. Documents without a vector, or with NaN or infinity, are named and left out; a
    query without one, of zeros only, or with NaN, has an empty row and a reason.
    """
    documents, asked = MultiVectors.of(base), MultiVectors.of(queries)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k is {k!r}; expected a whole number of at least 1")
    check_documents(documents, asked)
    filtered = Filter.of(allowed, documents, asked)
    reasons = document_reasons(asked)
    usable = np.flatnonzero([not reason for reason in reasons])
    samples = [Sample(*documents.part(0, 0).sample(0))]
    left_out = [np.empty(0, dtype=np.int64)]
    with Scan(
        MAXSIM, np.empty((len(usable), asked.dimension), dtype=np.float32), int(k),
        allowed=filtered, query_numbers=usable, memory=memory, threads=threads,
        progress=progress, length=len(documents),
    ) as scan:  # fmt: skip
        search = DocumentSearch(scan, asked.take(usable))
        scan.row_ids = documents.given_ids
        rows = max(1, scan.memory // 4 // (16 * documents.dimension))
        most = max(1, min(_SCORES, scan.memory // 64) // max(1, len(usable)))
        for start, block in documents.blocks(rows, most):
            samples.append(Sample(*block.sample(start)))
            left_out.append(start + search.over(start, block))
            documents.release()
            scan.progress(start + len(block), len(documents))
        offsets, found, scores, cut = flattened(scan.best)
        answer = Answer(
            offsets, found, scores, None, cut, 0.0, np.concatenate(left_out),
            np.empty(0, dtype=np.int64), Sample.joined(samples), scan.seconds,
        )  # fmt: skip
    tell_empty(documents)
    return as_run(
        answer, space=MAXSIM, k=int(k), base=documents, rows=len(documents), queries=asked,
        reasons=reasons, allowed=filtered,
    )  # fmt: skip


def check_documents(base: MultiVectors, queries: MultiVectors) -> None:
    """Raise MismatchError for vectors of different dimension."""
    if base.dimension != queries.dimension:
        raise MismatchError(
            f"vectors of the base have {base.dimension} dimensions, those of the queries "
            f"{queries.dimension}",
            hint="were both made by the same model, and are these the right two files?",
        )


def tell_empty(documents: MultiVectors) -> None:
    """Warn of documents without a vector: they are never neighbours."""
    empty = np.flatnonzero(documents.lengths == 0)
    if len(empty):
        some = ", ".join(str(documents.ids[row]) for row in empty[:5].tolist())
        more = ", ..." if len(empty) > 5 else ""
        warnings.warn(
            f"{plural(len(empty), 'document')} without a vector left out: {some}{more}",
            SemrecallWarning,
            stacklevel=4,
        )


def unsound_documents(block: MultiVectors) -> NDArray[np.int64]:
    """Numbers of the documents with NaN or infinity, ascending."""
    rows = np.flatnonzero(~np.isfinite(block.matrix).all(axis=1))
    return np.unique(np.searchsorted(block.offsets, rows, side="right") - 1)


def document_reasons(queries: MultiVectors) -> list[str]:
    """Why each query can have no neighbours; "" where it can."""
    reasons = []
    for number in range(len(queries)):
        vectors = queries.document(number)
        if len(vectors) == 0:
            reasons.append(NO_VECTOR)
        elif not np.isfinite(vectors).all():
            reasons.append(BAD_QUERY)
        else:
            reasons.append("" if vectors.any() else ZERO_QUERY)
    return reasons


def maxsim_pair_scores(
    base: MultiVectors,
    documents: NDArray[np.int64],
    queries: MultiVectors,
    query_numbers: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Exact scores (m,) of documents against queries, pair by pair.

    NaN where either has no vector, or holds NaN or infinity.
    """
    scores = np.full(len(documents), np.nan)
    order = np.argsort(query_numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(query_numbers[order])) + 1
    for mine in np.split(order, cuts) if len(order) else []:
        query = queries.document(int(query_numbers[mine[0]]))
        if len(query) == 0 or not np.isfinite(query).all():
            continue
        mine = mine[base.lengths[documents[mine]] > 0]
        for low in range(0, len(mine), _PAIRS):
            some = mine[low : low + _PAIRS]
            part = base.take(documents[some])
            sound = np.logical_and.reduceat(np.isfinite(part.matrix).all(axis=1), part.offsets[:-1])
            if sound.any():
                kept = np.flatnonzero(sound)
                scores[some[kept]] = _exact(query, part.take(kept))
    return scores


def _exact(query: NDArray[Any], part: MultiVectors) -> NDArray[np.float64]:
    """Exact scores (n,) of documents, none of them empty, for the vectors of one query (t, d)."""
    t, n = len(query), len(part)
    try:
        numbers = _Numbers.of(query, part.matrix)
        products = numbers.left @ numbers.right.T
    except OutOfRange:
        candidates = np.ones((t, len(part.matrix)), dtype=bool)
    else:
        largest = np.maximum.reduceat(products, part.offsets[:-1], axis=1)
        error = numbers.gamma * numbers.norm * numbers.lengths
        limit = largest.astype(np.float64) - 2 * error[:, None]
        candidates = products >= np.repeat(limit, part.lengths, axis=1)
    which, row = np.nonzero(candidates)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = exact_pair_scores(IP, part.matrix, row, query, which)
    if not np.isfinite(exact).all():
        raise InputError(
            "vectors hold values whose products float64 cannot hold",
            hint="scale base and queries by one factor: the neighbours stay the same",
        )
    # Every vector of the query has a candidate in every document, and they stand in this order.
    owner = which * n + np.searchsorted(part.offsets, row, side="right") - 1
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    maxima = np.maximum.reduceat(exact, starts).reshape(t, n)
    return ordered_sum(np.ascontiguousarray(maxima.T))


@dataclass(frozen=True)
class _Numbers:
    """Vectors of queries (t, d) and documents (r, d) in arithmetic that holds their products.

    lengths (t,): of `left`, in float64. norm: the largest length on the right. gamma: how far a
    product is off at most, by the product of both lengths.
    """

    left: NDArray[Any]
    right: NDArray[Any]
    lengths: NDArray[np.float64]
    norm: float
    gamma: float

    @classmethod
    def of(cls, left: NDArray[Any], right: NDArray[Any]) -> _Numbers:
        """In float32, or in float64 where float32 is too narrow. Raises OutOfRange."""
        try:
            return cls._in(left, right, np.dtype(np.float32))
        except OutOfRange:
            return cls._in(left, right, np.dtype(np.float64))

    @classmethod
    def _in(cls, left: NDArray[Any], right: NDArray[Any], dtype: np.dtype[Any]) -> _Numbers:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            lengths = exact_norms(left)
            used = right.astype(dtype, copy=False)
            norm = float(np.sqrt(np.vecdot(used, used).max(initial=0.0)))
        low, high = safe_range(dtype)
        squares = np.append(lengths[left.any(axis=1)], norm if right.any() else 1.0) ** 2
        if not bool(((squares >= low) & (squares <= high)).all()):
            raise OutOfRange
        # As in `screen.py`, and one per cent more for the length of the right, which is rounded.
        gamma = 1.02 * (left.shape[1] + 10) * float(np.finfo(dtype).eps) / 2
        return cls(left.astype(dtype), used, lengths, norm, gamma)

    def maxima(self, offsets: NDArray[np.int64]) -> NDArray[Any]:
        """The largest product of each on the left with those of each document, (t, n)."""
        if len(offsets) > 2 or len(self.right) <= _ROWS:
            return np.maximum.reduceat(self.left @ self.right.T, offsets[:-1], axis=1)
        parts = [self.right[low : low + _ROWS] for low in range(0, len(self.right), _ROWS)]
        maxima = np.stack([(self.left @ part.T).max(axis=1) for part in parts])
        return np.asarray(maxima.max(axis=0)[:, None])


class DocumentSearch:
    """The vectors of all queries against one block of documents after another."""

    def __init__(self, scan: Scan, queries: MultiVectors) -> None:
        self.scan, self.queries = scan, queries
        self.groups = [
            (low, low + len(part)) for low, part in queries.blocks(_CELLS // _ROWS, len(queries))
        ]

    def over(self, start: int, block: MultiVectors) -> NDArray[np.int64]:
        """Merge the block with the best so far; numbers of its documents with NaN or infinity."""
        bad = unsound_documents(block)
        filled = np.setdiff1d(np.flatnonzero(block.lengths > 0), bad, assume_unique=True)
        if len(filled) == 0 or len(self.queries) == 0:
            return bad
        used = block if len(filled) == len(block) else block.take(filled)
        with self.scan.timed("screening"):
            scores, error = self._screened(used)
            if self.scan.filter is not None:
                mask = self.scan.filter.mask(self.scan.usable, start, start + len(block))
                scores[~np.broadcast_to(mask[:, filled], scores.shape)] = -np.inf
        with self.scan.timed("settling"):
            self._settle(start + filled, used, scores, error)
        return bad

    def _screened(self, block: MultiVectors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scores (m, n) and how far those of each query may be off."""
        scores = np.empty((len(self.queries), len(block)))
        error = np.zeros(len(self.queries))
        parts = list(block.blocks(_ROWS, len(block)))
        tasks = [(low, part, group) for low, part in parts for group in self.groups]

        def product(task: tuple[int, MultiVectors, tuple[int, int]]) -> NDArray[np.float64]:
            low, part, (first, last) = task
            group = self.queries.part(first, last)
            numbers = _Numbers.of(group.matrix, part.matrix)
            maxima = numbers.maxima(part.offsets)
            sums = np.add.reduceat(maxima, group.offsets[:-1], axis=0, dtype=np.float64)
            scores[first:last, low : low + len(part)] = sums
            lengths = np.add.reduceat(numbers.lengths, group.offsets[:-1])
            return np.asarray(2 * numbers.gamma * numbers.norm * lengths)

        try:
            found = self.scan.map(product, tasks)
            for (_, _, (first, last)), off in zip(tasks, found, strict=True):
                np.maximum(error[first:last], off, out=error[first:last])
        except OutOfRange:
            # Nothing is known; everything is settled.
            scores[...] = np.inf
        return scores, error

    def _settle(
        self,
        numbers: NDArray[np.int64],
        block: MultiVectors,
        scores: NDArray[np.float64],
        error: NDArray[np.float64],
    ) -> None:
        """Score those that may be among the k nearest in float64, and merge them."""
        scan, k = self.scan, self.scan.k

        def settle(query: int) -> None:
            best = scan.best[query]
            floor = float(best.scores[k - 1]) if len(best.rows) >= k else -np.inf
            own = scores[query]
            keep = np.flatnonzero(shorten(own, error[query], floor, k) & (own > -np.inf))
            exact = maxsim_pair_scores(
                block, keep, self.queries, np.full(len(keep), query, dtype=np.int64)
            )
            scan.best[query] = merge(
                MAXSIM, best, numbers[keep], exact, k, scan.most_ties, scan.row_ids
            )

        for _ in scan.map(settle, list(range(len(self.queries)))):
            pass
