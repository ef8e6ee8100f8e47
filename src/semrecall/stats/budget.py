"""How many labels an interval of a given width takes, by how the pairs to label are drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import InputError
from semrecall.stats.intervals import check_confidence

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

__all__ = ["cell_sizes", "cluster_size", "expected_width"]

#: Fewer labels of a group that is only sampled say too little of how much they vary.
LEAST = 20


def cell_sizes(spreads: ArrayLike, sizes: ArrayLike, width: float, confidence: float) -> Array:
    """The fewest labels (c,) of each of c groups of pairs, of which random samples are drawn.

    A share is estimated whose linearised residuals have the standard deviations `spreads` (c,),
    in units of the share, within groups of `sizes` (c,) pairs. Its interval is to be `width` wide:
    sum(sizes^2 spreads^2 (1/n - 1/sizes)) = (width / 2z)^2, with n in proportion to
    sizes spreads (Neyman), at most all, and at least a few of each group.
    """
    deviation, total = np.asarray(spreads, np.float64), np.asarray(sizes, np.float64)
    limit = _largest_variance(width, confidence)
    pull = deviation * total
    counts, full = np.zeros(len(total)), total <= LEAST
    while True:
        counts[full] = total[full]
        open_ = ~full
        room = limit + float((pull[open_] * deviation[open_]).sum())
        if room > 0:
            counts[open_] = np.ceil(pull[open_] * pull[open_].sum() / room)
        else:
            counts[open_] = total[open_]
        counts = np.where(open_, np.maximum(counts, np.minimum(LEAST, total)), counts)
        over = open_ & (counts >= total)
        if not over.any():
            return counts
        full |= over


def expected_width(
    spreads: ArrayLike, sizes: ArrayLike, counts: ArrayLike, confidence: float
) -> float:
    """The width of the interval that `counts` (c,) labels of such groups give, see `cell_sizes`."""
    deviation, total = np.asarray(spreads, np.float64), np.asarray(sizes, np.float64)
    n = np.asarray(counts, np.float64)
    open_ = (n > 0) & (n < total)
    if bool(((n == 0) & (total > 0) & (deviation > 0)).any()):
        return math.nan
    left = (total[open_] * deviation[open_]) ** 2 * (1 / n[open_] - 1 / total[open_])
    return 2 * _reach(confidence) * math.sqrt(float(left.sum()))


def cluster_size(table: ArrayLike, width: float, confidence: float) -> int:
    """How many whole queries, drawn at random, give a ratio of sums over queries to `width`.

    table: (n, 2) numerator and denominator of each query, as they are or are guessed to be.
    (1/m - 1/n) variance(residuals) / mean(denominator)^2 = (width / 2t)^2, with t for m queries.
    """
    from scipy.special import stdtrit

    values = np.asarray(table, np.float64)
    n, total = len(values), float(values[:, 1].sum())
    if n < 2 or total <= 0:
        return n
    residuals = values @ np.array([1.0, -values[:, 0].sum() / total])
    variance = float(np.var(residuals, ddof=1)) / (total / n) ** 2
    reach, m = _reach(confidence), float(n)
    for _ in range(20):
        limit = (_checked(width) / (2 * reach)) ** 2
        m = 1 / (1 / n + limit / variance) if variance > 0 else 3.0
        reach = float(stdtrit(max(m, 3.0) - 1, 0.5 + confidence / 2))
    return min(max(math.ceil(m - 1e-9), 3), n)


def _largest_variance(width: float, confidence: float) -> float:
    return (_checked(width) / (2 * _reach(confidence))) ** 2


def _checked(width: float) -> float:
    if not 0 < width < 1:
        raise InputError(f"width is {width}; expected between 0 and 1, such as 0.02")
    return width


def _reach(confidence: float) -> float:
    from scipy.special import ndtri

    check_confidence(confidence)
    return float(ndtri(0.5 + confidence / 2))
