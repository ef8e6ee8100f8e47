"""Tolerant matching: the largest pairing of results with neighbours, and how much to tolerate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semrecall.measures.coverage import share
from semrecall.measures.problem import Problem, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["largest_pairing", "query_tolerance"]


def largest_pairing(
    space: Space,
    results: NDArray[np.float64],
    neighbours: NDArray[np.float64],
    x: float | NDArray[np.float64],
) -> NDArray[np.int64]:
    """Size of a maximum matching of results (n, w) with neighbours (n, k) by score, shape (n,).

    A result may be paired with a neighbour that it is near to at tolerance x, a number or one per
    query (n, 1). NaN is paired with nothing. A result that reaches one neighbour's threshold
    reaches every lower one, so both sides are sorted and each neighbour, the most demanding first,
    takes the nearest result that is left; where that one does not reach, none does. Sorting aside,
    this is k steps over all queries at once.
    """
    n, width = results.shape
    offers = np.full((width + 1, n), np.nan)
    offers[:width] = np.sort(space.sort_key(results), axis=1).T
    limits = np.sort(space.sort_key(space.threshold(neighbours, x)), axis=1).T.copy()
    # `left` is the position, in the flat columns of offers, of each query's nearest unused result.
    flat, left = offers.reshape(-1), np.arange(n)
    for limit in limits:
        left += n * (flat[left] <= limit)
    return np.asarray(left // max(n, 1))


def query_tolerance(problem: Problem, k: int) -> NDArray[np.float64]:
    """Each query's own tolerance: how far the scores fall from rank 2k/3 to k, shape (n,).

    ip, cosine: (s_2k/3 - s_k) / s_1; l2: (d_k - d_2k/3) / d_2k/3. The rank 2k/3 is rounded to the
    nearest; k is the number of neighbours where fewer exist. NaN without neighbours, for s_1 <= 0,
    and for d_2k/3 = 0.
    """
    scores = need(problem.true_scores, "the scores of the truth")
    space = need(problem.space, "the space of the scores")
    size = problem.sizes(k)
    if scores.shape[1] == 0:
        return np.full(len(problem), np.nan)

    def at(rank: NDArray[np.int64]) -> NDArray[np.float64]:
        column = np.maximum(rank - 1, 0)[:, None]
        return np.take_along_axis(scores, column, axis=1)[:, 0]

    first, middle, last = at(np.ones_like(size)), at((4 * size + 3) // 6), at(size)
    if space.higher_is_nearer:
        fall, scale = middle - last, first
    else:
        fall, scale = last - middle, middle
    return np.where(scale > 0, share(fall, scale), np.nan)
