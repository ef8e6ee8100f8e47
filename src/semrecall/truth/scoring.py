"""Scores of some rows of a base, which are vectors or documents of several vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.multivectors import MultiVectors
from semrecall.exact import query_reasons
from semrecall.exact.filters import Filter
from semrecall.exact.maxsim import DocumentSearch, document_reasons, maxsim_pair_scores
from semrecall.exact.search import Scan
from semrecall.exact.settle import Best, exact_pair_scores
from semrecall.space import Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Searched", "nearest_of", "pair_scores", "reasons_of", "taken"]

#: What is searched, and what with: vectors, or documents of several vectors.
Searched = Vectors | MultiVectors

_BLOCK = 1 << 16
_SCORES = 1 << 22  # of documents, held at a time


def reasons_of(queries: Searched, space: Space) -> list[str]:
    """Why each query can have no neighbours; "" where it can."""
    if isinstance(queries, MultiVectors):
        return document_reasons(queries)
    return query_reasons(queries.require_matrix(), space)


def taken(queries: Searched, which: NDArray[np.int64]) -> Searched:
    """Some of the queries, without their ids."""
    if isinstance(queries, MultiVectors):
        return replace(queries.take(which), given_ids=None)
    return Vectors.of(queries.take(which))


def pair_scores(
    space: Space,
    base: Searched,
    rows: NDArray[np.int64],
    queries: Searched,
    numbers: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Exact scores (m,) of rows of the base against queries (numbers), pair by pair."""
    if isinstance(base, MultiVectors):
        assert isinstance(queries, MultiVectors)
        return maxsim_pair_scores(base, rows, queries, numbers)
    assert isinstance(queries, Vectors)
    distinct, back = np.unique(rows, return_inverse=True)
    matrix = queries.require_matrix()
    return exact_pair_scores(space, _gathered(base, distinct), back, matrix, numbers)


def nearest_of(
    space: Space,
    base: Searched,
    chosen: NDArray[np.bool_],
    queries: Searched,
    k: int,
    *,
    allowed: Filter | None,
    memory: int | None,
    threads: int | None,
) -> list[Best]:
    """The nearest k, and ties, of the chosen rows of the base (n,), for each query.

    allowed: over the chosen rows, one after another. Every query can have neighbours.
    """
    rows = np.flatnonzero(chosen)
    ids = _Numbered(base.given_ids, rows)
    if isinstance(base, MultiVectors):
        assert isinstance(queries, MultiVectors)
        no_vectors = np.empty((len(queries), queries.dimension), dtype=np.float32)
        with Scan(space, no_vectors, k, allowed=allowed, memory=memory, threads=threads) as scan:
            _over_documents(scan, base, chosen, queries, ids)
            best = scan.best
    else:
        assert isinstance(queries, Vectors)
        matrix = queries.require_matrix()
        with Scan(space, matrix, k, allowed=allowed, memory=memory, threads=threads) as scan:
            for start, block in _chosen_rows(base, chosen):
                scan.over(start, block, ids)
            best = scan.answer().best
    return [Best(rows[found.rows], found.scores, found.cut) for found in best]


def _over_documents(
    scan: Scan, base: MultiVectors, chosen: NDArray[np.bool_], queries: MultiVectors, ids: _Numbered
) -> None:
    scan.row_ids = ids
    search = DocumentSearch(scan, queries)
    rows = max(1, scan.memory // 4 // (16 * base.dimension))
    most = max(1, min(_SCORES, scan.memory // 64) // max(1, len(queries)))
    for start, documents in _chosen_documents(base, chosen, rows, most):
        search.over(start, documents)


class _Numbered:
    """Ids of the chosen rows by the number they have among themselves."""

    def __init__(self, known: Ids | None, rows: NDArray[np.int64]) -> None:
        self._known, self._rows = known, rows

    def __getitem__(self, rows: Any, /) -> Any:
        return Ids(self._rows[rows]) if self._known is None else self._known[self._rows[rows]]


def _chosen_rows(base: Vectors, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, NDArray[Any]]]:
    """(first number, block) of the chosen rows, in blocks of some size."""
    start = 0
    waiting: list[NDArray[Any]] = []
    for low, block in base.blocks(_BLOCK):
        some = block[chosen[low : low + len(block)]]
        if len(some):
            waiting.append(some)
        if sum(map(len, waiting)) >= _BLOCK:
            whole = np.concatenate(waiting)
            yield start, whole
            start, waiting = start + len(whole), []
        base.release()
    if waiting:
        yield start, np.concatenate(waiting)


def _chosen_documents(
    base: MultiVectors, chosen: NDArray[np.bool_], rows: int, documents: int
) -> Iterator[tuple[int, MultiVectors]]:
    """(first number, documents): the chosen ones, with at most so many rows at a time."""
    numbers = np.flatnonzero(chosen)
    ends = np.cumsum(base.lengths[numbers])
    start = 0
    while start < len(numbers):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + rows, side="right"))
        stop = min(max(stop, start + 1), start + documents)
        yield start, base.take(numbers[start:stop])
        start = stop
        base.release()


def _gathered(base: Vectors, rows: NDArray[np.int64]) -> NDArray[Any]:
    """The vectors of some rows, ascending."""
    if base.matrix is not None:
        return base.take(rows)
    parts = [np.empty((0, base.dimension), dtype=base.dtype)]
    for low, block in base.blocks(_BLOCK):
        mine = rows[np.searchsorted(rows, low) : np.searchsorted(rows, low + len(block))]
        parts.append(block[mine - low])
    return np.concatenate(parts)
