"""Whether the values of one group are above those of another: rank-biserial correlation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semrecall.errors import InputError
from semrecall.stats.intervals import RESAMPLES, _resample_counts, _widened, check_confidence
from semrecall.stats.roc import auc

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["RankBiserial", "clustered_interval", "rank_biserial", "resampled_rank_biserial"]

#: Up to here the exact distribution of U is cheap; beyond it the normal one is as good.
_EXACT_SMALLER, _EXACT_ALL = 8, 1000


class RankBiserial(NamedTuple):
    """The correlation r, Mann-Whitney's U behind it, its p-value, and the sizes of both groups.

    r: the share of pairs (one value of each group) in which the first group's is above, less the
        share in which it is below: 1 where all of it is above, -1 below, 0 no tendency.
    u: pairs in which the first group's value is above, ties counting half.
    p: two-sided, of the Mann-Whitney test.
    """

    r: float
    u: float
    p: float
    first: int
    second: int


def rank_biserial(first: ArrayLike, second: ArrayLike) -> RankBiserial:
    """Rank-biserial correlation of being in `first` (m,) rather than `second` (n,) with the value.

    r = 2 U / (m n) - 1 (Kerby 2014, who calls it the simple difference), from whole counts. p is
    scipy's `mannwhitneyu`: exact for small groups without ties, else the normal approximation
    corrected for ties and continuity; 1 where all values are equal. NaN values are left out; r,
    u and p are NaN where a group is empty. p takes all values to be independent: pooled over
    queries they are not, so take `clustered_interval` there.
    """
    above, below = _defined(first), _defined(second)
    m, n = len(above), len(below)
    area = auc(above, below)
    if math.isnan(area):
        return RankBiserial(math.nan, math.nan, math.nan, m, n)
    return RankBiserial(2 * area - 1, area * m * n, _p(above, below), m, n)


def _p(above: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    from scipy.stats import mannwhitneyu

    together = np.concatenate([above, below])
    distinct = len(np.unique(together))
    few = min(len(above), len(below)) <= _EXACT_SMALLER and len(together) <= _EXACT_ALL
    method = "exact" if few and distinct == len(together) else "asymptotic"
    return float(mannwhitneyu(above, below, alternative="two-sided", method=method).pvalue)


def resampled_rank_biserial(
    values: ArrayLike,
    in_first: ArrayLike,
    clusters: ArrayLike,
    n: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Pooled rank-biserial correlations (resamples,) over clusters drawn with replacement.

    values: (m,) without NaN. in_first: (m,) which of them are in the first group. clusters: (m,)
    the cluster of each value, 0 to n - 1. A cluster comes with all its values, as often as it is
    drawn. NaN where a draw lacks one of the groups. The draws are those of `resampled_means` for
    the same n, seed and number.
    """
    found, rows = np.asarray(values, dtype=np.float64), np.asarray(clusters, dtype=np.int64)
    first = np.asarray(in_first, dtype=bool)
    if not found.shape == first.shape == rows.shape or found.ndim != 1:
        raise InputError(
            f"values of shape {found.shape}, groups {first.shape}, clusters {rows.shape}; "
            "expected equally many"
        )
    if resamples < 1:
        raise InputError(f"resamples is {resamples}; expected at least 1")
    drawn = np.full(resamples, np.nan)
    if first.all() or not first.any():
        return drawn
    # Both groups rising, so that every look-up below moves forward through memory.
    order = np.argsort(found, kind="stable")
    found, rows, first = found[order], rows[order], first[order]
    below, of_below, of_above = found[~first], rows[~first], rows[first]
    # Where each value of the first group stands among the others, ties from and to.
    low = np.searchsorted(below, found[first], side="left")
    high = np.searchsorted(below, found[first], side="right")
    tied = np.flatnonzero(low != high)
    summed = np.zeros(len(below) + 1)
    for start, counts in _resample_counts(n, resamples, seed):
        for at, weights in enumerate(counts, start):
            np.cumsum(weights[of_below], out=summed[1:])
            of_first = weights[of_above]
            pairs = of_first.sum() * summed[-1]
            if pairs:
                # Twice the pairs above, ties half: whole numbers, so that 1 stays exactly 1.
                above = 2 * float(of_first @ summed[low])
                above += float(of_first[tied] @ (summed[high[tied]] - summed[low[tied]]))
                drawn[at] = above / pairs - 1
    return drawn


def clustered_interval(
    drawn: ArrayLike, n: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """The interval (low, high) of a pooled correlation from its resamples over n clusters.

    Percentiles with the tails widened from the normal to the t distribution of n - 1 degrees of
    freedom, as in `difference_interval`. NaN for fewer than two clusters or without a resample.
    """
    check_confidence(confidence)
    known = _defined(drawn)
    if n < 2 or len(known) == 0:
        return math.nan, math.nan
    low, high = np.quantile(known, _widened(n, confidence))
    return float(low), float(high)


def _defined(values: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64).reshape(-1)
    return found[~np.isnan(found)]
