"""Intervals of values that are 0 or 1, and of their paired differences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from semrecall.stats.intervals import check_confidence

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["paired_share_interval", "wilson_interval"]


def wilson_interval(values: ArrayLike, *, confidence: float = 0.95) -> tuple[float, float]:
    """The interval (low, high) of the share of ones among `values` (n,), each 0 or 1.

    The score interval of Wilson (1927). It holds for a handful of values and has a width where
    all are equal: ten ones give (0.722, 1). NaN values are left out; NaN without any.
    """
    found = _defined(values)
    n = len(found)
    z = _normal_quantile(confidence)
    if n == 0:
        return math.nan, math.nan
    ones = int(np.count_nonzero(found))
    centre = (ones + z * z / 2) / (n + z * z)
    reach = z * math.sqrt(ones * (n - ones) / n + z * z / 4) / (n + z * z)
    # At the ends the bound is the end itself, without a rounding error of its own.
    low = 0.0 if ones == 0 else max(0.0, centre - reach)
    high = 1.0 if ones == n else min(1.0, centre + reach)
    return low, high


def paired_share_interval(
    differences: ArrayLike, *, confidence: float = 0.95
) -> tuple[float, float]:
    """The interval of the mean of paired differences (n,) of values that are 0 or 1.

    The adjusted interval of Bonett and Price (2012): one more query is counted for each side,
    so that it has a width where no query differs. NaN is left out; NaN below two queries.
    """
    found = _defined(differences)
    n = len(found)
    z = _normal_quantile(confidence)
    if n < 2:
        return math.nan, math.nan
    up = (np.count_nonzero(found > 0) + 1) / (n + 2)
    down = (np.count_nonzero(found < 0) + 1) / (n + 2)
    centre = up - down
    reach = z * math.sqrt((up + down - centre * centre) / (n + 2))
    mean = math.fsum(found) / n
    return min(mean, max(-1.0, centre - reach)), max(mean, min(1.0, centre + reach))


def _defined(values: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64)
    return found[~np.isnan(found)]


def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri

    check_confidence(confidence)
    return float(ndtri(0.5 + confidence / 2))
