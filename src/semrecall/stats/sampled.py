"""The share of relevant neighbours found, from labels of a sample of pairs alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.stats.correction import (
    Estimate,
    drawn_units,
    estimated,
    label_variance,
    query_variance,
    totals,
    undefined,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["Settled", "sampled_pooled", "settled_values"]


def sampled_pooled(
    found: ArrayLike,
    queries: ArrayLike,
    human: ArrayLike,
    probabilities: ArrayLike,
    *,
    confidence: float = 0.95,
) -> Estimate:
    """T / S, the relevant neighbours found over all of them, pooled over queries.

    found (m,), queries (m,) row numbers, human (m,) relevance of the pairs that have a label, else
    NaN; probabilities (m,) with which each pair was picked. Missed and found neighbours are
    counted apart: those picked with certainty as they are, and for the rest of each the weighted
    mean of its labels (Hajek), so that a sample labelled in part, in random order, is a sample.
    """
    hits, rows = np.asarray(found, dtype=bool), np.asarray(queries, np.int64)
    values, chances = np.asarray(human, np.float64), np.asarray(probabilities, np.float64)
    known, n = ~np.isnan(values), int(rows.max(initial=-1)) + 1
    count = int(known.sum())
    cells = [_Cell.of(hits == side, known, values, chances) for side in (True, False)]
    for cell, what in zip(cells, ("found", "missed"), strict=True):
        if cell.size and not cell.labels:
            return undefined(count, f"none of the {cell.size:,} {what} neighbours has a label")
    expected, extra, weight = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    for cell in cells:
        expected[cell.certain], expected[cell.rest] = values[cell.certain], cell.mean
        weight[cell.drawn] = cell.weights
        extra[cell.drawn] = values[cell.drawn] - cell.mean
    relevance = expected + weight * extra
    total = float(relevance.sum())
    if total <= 0:
        return undefined(count, "no labelled neighbour is relevant")
    value = float(relevance @ hits / total)
    shares = np.divide(1.0, weight, out=np.ones(len(rows)), where=weight > 0)
    left = label_variance(extra * (hits - value), shares, known, rows, hits)
    # Labels that are all alike say little about how rare the others are.
    left += cells[0].floor * (1 - value) ** 2 + cells[1].floor * value**2
    both = max(query_variance(totals(rows, relevance * (hits - value), n)), left)
    units = min(n, drawn_units(chances, known, hits))
    return estimated(value, both / total**2, left / total**2, units, count, confidence)


@dataclass(frozen=True)
class _Cell:
    """The found or the missed neighbours: which are certain, which drawn, and what they weigh.

    certain, drawn, rest: positions of labelled pairs picked with certainty, of other labelled
    ones, and of all pairs but the certain. mean: relevance of the rest. floor: variance of its
    total where all labels drawn are alike, as if one more had been otherwise; else 0.
    """

    size: int
    certain: Whole
    drawn: Whole
    rest: Whole
    weights: Array
    mean: float
    floor: float

    @property
    def labels(self) -> int:
        return len(self.certain) + len(self.drawn)

    @classmethod
    def of(cls, inside: Mask, known: Mask, values: Array, chances: Array) -> _Cell:
        sure = inside & known & (chances >= 1)
        drawn = inside & known & (chances < 1)
        if not drawn.any() and (sure.sum() < inside.sum()):
            # All would have been labelled, but not all were: what is there stands for the rest.
            drawn, sure = sure, np.zeros_like(sure)
        rest = np.flatnonzero(inside & ~sure)
        at = np.flatnonzero(drawn)
        weights = 1 / chances[at]
        weights *= len(rest) / weights.sum() if len(at) else 1.0
        mean = float(weights @ values[at] / len(rest)) if len(at) else 0.0
        floor, n = 0.0, len(at)
        if 0 < n < len(rest) and values[at].min() == values[at].max():
            other = 1 / (n + 2)
            floor = len(rest) ** 2 * (1 - n / len(rest)) * other * (1 - other) / n
        return cls(int(inside.sum()), np.flatnonzero(sure), at, rest, weights, mean, floor)


def settled_values(
    found: ArrayLike, queries: ArrayLike, human: ArrayLike, asked: ArrayLike, n: int
) -> Settled:
    """What each query's share of relevant neighbours found is, where its labels settle it.

    Arguments as of `sampled_pooled`; asked: (m,) pairs that people saw, with or without a label;
    n: how many queries there are.
    All neighbours asked for settle a query. So do fewer: with no relevant one among the missed,
    all asked for, a single relevant one that was found makes the share 1.
    """
    hits, rows = np.asarray(found, dtype=bool), np.asarray(queries, np.int64)
    seen, values = np.asarray(asked, dtype=bool), np.nan_to_num(np.asarray(human, np.float64))
    hit, missed = (np.bincount(rows, values * (hits == side), n) for side in (True, False))
    open_ = [np.bincount(rows, ~seen & (hits == side), n) for side in (True, False)]
    known = (open_[1] == 0) & ((open_[0] == 0) | ((missed == 0) & (hit > 0)))
    drawn = np.bincount(rows, seen, n) > 0
    total = hit + missed
    share = np.divide(hit, total, out=np.full(n, math.nan), where=known & (total > 0))
    return Settled(share, drawn, drawn & known)


@dataclass(frozen=True)
class Settled:
    """By query, (n,): its share (NaN: no relevant neighbour, or not known), asked about, known."""

    share: Array
    drawn: Mask
    known: Mask
