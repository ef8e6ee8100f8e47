"""Telling two groups apart by a threshold: the curve, and the area under it with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["auc", "auc_interval", "threshold_shares"]


def auc(higher: ArrayLike, lower: ArrayLike) -> float:
    """How often a value of `higher` (m,) is above one of `lower` (n,), ties counting half.

    The area under the curve (Mann-Whitney). NaN without values on either side.
    """
    above, below = np.asarray(higher, dtype=np.float64), np.sort(np.asarray(lower, np.float64))
    if len(above) == 0 or len(below) == 0:
        return math.nan
    less = np.searchsorted(below, above, side="left")
    less_or_equal = np.searchsorted(below, above, side="right")
    return float(int(less.sum() + less_or_equal.sum()) / (2 * len(above) * len(below)))


def auc_interval(area: float, m: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The interval (low, high) of an area found with m and n values.

    The true areas whose own standard error puts them within reach of the one found (Newcombe
    2006, method 5): never of zero width, not even for an area of 1. NaN for an area of NaN.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; expected a number between 0 and 1")
    if math.isnan(area) or m < 1 or n < 1:
        return math.nan, math.nan
    from scipy.special import ndtri

    z = float(ndtri(0.5 + confidence / 2))
    middle = (m + n) / 2 - 1

    def reached(true: float) -> bool:
        spread = 1 + middle * ((1 - true) / (2 - true) + true / (1 + true))
        return abs(area - true) <= z * math.sqrt(true * (1 - true) * spread / (m * n))

    return _edge(area, 0.0, reached), _edge(area, 1.0, reached)


def _edge(inside: float, outside: float, reached: Callable[[float], bool]) -> float:
    """Where a condition that holds at `inside` ends on the way to `outside`; by halving."""
    for _ in range(60):
        middle = (inside + outside) / 2
        if reached(middle):
            inside = middle
        else:
            outside = middle
    return inside


def threshold_shares(
    kept: ArrayLike, rejected: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(thresholds, share of `kept` at or above each, share of `rejected` below it), (t,) each.

    One threshold for every distinct value, rising, and one above all of them (infinity).
    """
    keep, reject = np.sort(np.asarray(kept, np.float64)), np.sort(np.asarray(rejected, np.float64))
    thresholds = np.append(np.unique(np.concatenate([keep, reject])), np.inf)
    with np.errstate(invalid="ignore"):
        above = (len(keep) - np.searchsorted(keep, thresholds, side="left")) / len(keep)
        below = np.searchsorted(reject, thresholds, side="left") / len(reject)
    return thresholds, above, below
