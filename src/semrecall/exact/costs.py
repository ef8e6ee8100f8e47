"""What screening costs with fewer columns and without, measured here and on a sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.exact.reduce import Reduced

__all__ = [
    "Costs",
    "candidate_widths",
    "chosen_widths",
    "measured_costs",
    "passing",
    "seconds_per_cell",
    "widths_of",
    "worth_a_look",
]

_SAMPLE_ROWS = 2048  # what finding directions costs goes with it

# Whole passes were measured to take so many times what their parts take alone: small groups of
# queries, gathering rows, the lengths of the rests, finding the clusters.
_SCAN, _TURN, _PROBE = 1.35, 1.9, 2.0
_WORTH = 0.95  # of the time without, at most: a smaller gain is not worth the risk


@dataclass(frozen=True)
class Costs:
    """Seconds of one core: per column and per cell of a product, per survivor and its columns."""

    column: float
    cell: float
    pair: float
    pair_column: float

    def survivor(self, columns: int) -> float:
        """Scoring one surviving pair over so many columns."""
        return self.pair + self.pair_column * columns


def seconds_per_cell(
    costs: Costs, ends: list[int], dimension: int, shares: NDArray[np.float64], tile: int
) -> NDArray[np.float64]:
    """What a pair costs (m, len(ends) + 1): begun with each width, or with all columns at once.

    Begun with one width it goes on to the last, then to all. shares (m, len(ends)): how many pairs
    of each query the bounds let pass. tile: how many queries share the work of preparing a row.
    """
    last = len(ends) - 1
    ready = 3 * costs.survivor(dimension) / tile
    options = []
    for j, end in enumerate(ends):
        product = ready + costs.column * end + costs.cell
        seconds = product + shares[:, last] * costs.survivor(dimension)
        if j < last:
            seconds = seconds + shares[:, j] * costs.survivor(ends[last] - end + 1)
        options.append(seconds)
    plain = costs.column * dimension + costs.cell
    return np.column_stack([*options, np.full(len(shares), plain)])


def widths_of(seconds: NDArray[np.float64], least: int = 32) -> NDArray[np.int64]:
    """The cheapest option (m,) of each query; options for fewer than `least` join the next."""
    chosen: NDArray[np.int64] = seconds.argmin(axis=1)
    for option in range(seconds.shape[1] - 1):
        mine = chosen == option
        if 0 < np.count_nonzero(mine) < least:
            chosen[mine] = option + 1
    return chosen


def worth_a_look(rows: int, queries: int, dimension: int, threads: int) -> bool:
    """Whether so large a product leaves room to find out if a smaller one would do.

    Turning the rows into m columns costs what m more queries cost, and some more beside: below
    three queries a dimension it was never won back. The look itself (directions, costs, shares)
    takes one core the time of c d (7 d + 800) operations, c sample rows, while the others wait;
    it must stay within 4 per cent of the n q d operations of the whole product.
    """
    if dimension < 64 or queries < 3 * dimension:
        return False
    look = min(_SAMPLE_ROWS, rows) * (7.0 * dimension + 800) * threads
    return rows * queries >= 25 * look


def candidate_widths(dimension: int, queries: int) -> list[int]:
    """Numbers of columns to choose from: steps of a twelfth, to where turning costs too much."""
    step = max(8, round(dimension / 12 / 8) * 8)
    most = min(dimension * 2 // 3, queries // 3)
    return list(range(step, most + 1, step))


def chosen_widths(
    costs: Costs,
    widths: list[int],
    ends: list[int],
    dimension: int,
    shares: NDArray[np.float64],
    tile: int,
    queries: int,
    probed: float,
) -> list[int]:
    """The widths worth making ready; none where plain is best.

    Included are the turning of the rows, shared by all queries, and the share of pairs that is
    `probed` before.
    """
    plain = costs.column * dimension + costs.cell
    best, chosen = _WORTH * plain, 0
    for count in range(1, len(widths) + 1):
        options = seconds_per_cell(costs, ends[:count], dimension, shares[:, :count], tile)
        turning = costs.column * dimension * widths[count - 1] / queries
        seconds = _SCAN * float(options.min(axis=1).mean()) + _TURN * turning
        seconds += _PROBE * probed * plain
        if seconds < best:
            best, chosen = seconds, count
    return widths[:chosen]


def measured_costs(dimension: int) -> Costs:
    """How fast this machine is, in about ten milliseconds."""
    rng = np.random.default_rng(0)
    left = rng.standard_normal((1024, dimension), dtype=np.float32)
    right = rng.standard_normal((256, dimension), dtype=np.float32)
    scores = np.empty((1024, 256), dtype=np.float32)
    mask = np.empty(scores.shape, dtype=bool)
    column = _seconds(lambda: np.matmul(left, right.T, out=scores)) / scores.size / dimension
    limit = np.full((1024, 1), np.quantile(scores[:64], 0.999), dtype=np.float32)

    def reaching() -> None:
        np.greater_equal(scores, limit, out=mask)
        np.flatnonzero(mask)

    cell = _seconds(reaching) / scores.size
    some = rng.integers(0, 1024, 512)
    other = some % 256
    few = np.ascontiguousarray(left[:, :32])

    def pairs(a: NDArray[np.float32]) -> float:
        return _seconds(lambda: np.vecdot(a.take(some, axis=0), a.take(other, axis=0))) / 512

    narrow, wide = pairs(few), pairs(left)
    slope = max(wide - narrow, 0.0) / max(dimension - 32, 1)
    # Finding a survivor's place and comparing it again costs several times its first columns.
    return Costs(column, cell, 5 * narrow, slope)


def passing(
    reduced: Reduced, factors: list[NDArray[np.float32]], limit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Shares (queries, widths) of the rows of a sample whose bound reaches the query's limit."""
    shares = np.empty((len(limit), len(factors)))
    for low in range(0, len(limit), 256):
        some = slice(low, low + 256)
        for j, factor in enumerate(factors):
            bounds = factor[some] @ reduced.matrix[:, : reduced.ends[j]].T
            shares[some, j] = (bounds >= limit[some, None]).mean(axis=1)
    return shares


def _seconds(task: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        task()
        best = min(best, time.perf_counter() - start)
    return best
