"""Settling: the few rows that survive screening, scored in float64 and put in their final order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.exact.compiled import loaded
from semrecall.space import Space, cosines, exact_norms

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

__all__ = [
    "EMPTY",
    "Best",
    "RowIds",
    "exact_pair_scores",
    "merge",
    "merge_all",
    "most_ties",
    "shorten",
]

#: Large enough that threads do not wait for each other, small enough for the cache.
PAIRS_AT_ONCE = 1024


@dataclass(frozen=True)
class Best:
    """The best rows of one query so far, in final order: row numbers and exact scores.

    `cut` says that ties at rank k were cut off, because there are too many of them.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    cut: bool = False


EMPTY = Best(np.empty(0, dtype=np.int64), np.empty(0))


class RowIds(Protocol):
    """Ids by row number, of all rows or of those that will be asked for."""

    def __getitem__(self, rows: Any, /) -> Any:
        """The Ids of these rows (m,)."""


def most_ties(k: int) -> int:
    """So many results beyond the k-th are kept at most."""
    return max(1000, 10 * k)


def exact_pair_scores(
    space: Space,
    matrix: NDArray[Any],
    rows: NDArray[np.int64],
    queries: NDArray[Any],
    query_rows: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Exact scores (m,) of rows of `matrix` against rows of `queries`, pair by pair."""
    scores = np.empty(len(rows))
    norms = exact_norms(queries) if space.name == "cosine" else None
    kernels = loaded() if matrix.dtype == queries.dtype == np.float32 else None
    if kernels is not None and matrix.flags.c_contiguous:
        return _compiled_scores(kernels, space, matrix, rows, queries, query_rows, norms)
    for low in range(0, len(rows), PAIRS_AT_ONCE):
        part = slice(low, low + PAIRS_AT_ONCE)
        mine = query_rows[part]
        scores[part] = space.exact_scores(
            matrix.take(rows[part], axis=0),
            queries.take(mine, axis=0),
            None if norms is None else norms[mine],
        )
    return scores


def _compiled_scores(
    kernels: ModuleType,
    space: Space,
    matrix: NDArray[Any],
    rows: NDArray[np.int64],
    queries: NDArray[Any],
    query_rows: NDArray[np.int64],
    norms: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """The same to the bit: products and differences of float32, added in the same order."""
    queries = np.ascontiguousarray(queries)
    rows, query_rows = np.ascontiguousarray(rows), np.ascontiguousarray(query_rows)
    sums = np.empty(len(rows))
    kernels.pair_sums(matrix, rows, queries, query_rows, space.name == "l2", sums)
    if space.name == "l2":
        return np.sqrt(sums)
    if norms is None:
        return sums
    squares = np.empty(len(rows))
    kernels.pair_sums(matrix, rows, matrix, rows, False, squares)
    return cosines(sums, np.sqrt(squares) * norms[query_rows])


def merge(
    space: Space,
    best: Best,
    rows: NDArray[np.int64],
    scores: NDArray[np.float64],
    k: int,
    most_ties: int,
    row_ids: RowIds | None,
) -> Best:
    """The same for one query."""
    numbers = np.zeros(len(rows), dtype=np.int64)
    return merge_all(space, [best], numbers, rows, scores, k, most_ties, row_ids)[0]


def merge_all(
    space: Space,
    best: list[Best],
    numbers: NDArray[np.int64],
    rows: NDArray[np.int64],
    scores: NDArray[np.float64],
    k: int,
    most_ties: int,
    row_ids: RowIds | None,
) -> list[Best]:
    """The best k of each query, of `best` and new scored rows, and the ties with the k-th.

    numbers: to which of the queries each new row belongs. Order: nearest first, then id ascending
    (`row_ids` are the ids by row number; None where row numbers are the ids). At most `most_ties`
    results beyond k are kept.
    """
    m = len(best)
    held = [len(b.rows) for b in best]
    if any(held):
        numbers = np.concatenate([np.repeat(np.arange(m), held), numbers])
        rows = np.concatenate([*(b.rows for b in best), rows])
        scores = np.concatenate([*(b.scores for b in best), scores])
    key = space.sort_key(scores)
    order = np.lexsort((key, numbers))
    ordered, query = key[order], numbers[order]
    if bool(((ordered[1:] == ordered[:-1]) & (query[1:] == query[:-1])).any()):
        order = np.lexsort((rows if row_ids is None else row_ids[rows].array(), key, numbers))
    counts = np.bincount(query, minlength=m)
    starts = np.cumsum(counts) - counts
    limit = np.full(m, np.inf)
    more = counts > k
    limit[more] = ordered[starts[more] + k - 1]
    reach = np.bincount(query[(ordered <= limit[query]) | ~more[query]], minlength=m)
    most = k + most_ties
    place = np.arange(len(order)) - starts[query]
    order = order[place < np.minimum(reach, most)[query]]
    rows, scores = rows[order], scores[order]
    ends = np.cumsum(np.minimum(reach, most)).tolist()
    cuts = (reach > most).tolist()
    merged = []
    for old, low, high, cut in zip(best, [0, *ends], ends, cuts, strict=False):
        # Ties that were left out matter only while they still tie with the k-th.
        still = old.cut and bool(scores[low + k - 1] == old.scores[-1])
        merged.append(Best(rows[low:high], scores[low:high], cut or still))
    return merged


def shorten(screen_scores: NDArray[Any], error: float, floor: float, k: int) -> NDArray[np.bool_]:
    """Which survivors of one query can still be among its k nearest, or tie with the k-th.

    At least k rows have an exact screen score of (k-th largest - error) or more, so a row whose
    score plus error stays below that is out. `floor` is a bound known from elsewhere.
    """
    limit = floor
    if len(screen_scores) > k:
        kth = float(np.partition(screen_scores, len(screen_scores) - k)[len(screen_scores) - k])
        limit = max(limit, kth - error)
    return np.asarray(screen_scores >= limit - error)
