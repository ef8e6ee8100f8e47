"""Rows and queries as bytes, whose products bound the screen score from above.

Take the screen score of `screen.py`: the exact product P = l.x (+ t for l2) of a stored left row l
and a stored right row x. Let a = p v and b = q w be multiples of vectors of whole numbers from -127
to 127, and r and s at least the lengths of l - a and x - b. Then

    P  =  a.b + a.(x - b) + (l - a).x (+ t)  <=  p q v.w + |a| s + r |x| (+ t)

by Cauchy-Schwarz. v.w is a whole number that 32 bits hold, so it is found without any error. A byte
leaves out about 1/2 per cent of a vector, so the bound is about one per cent of |l| |x| above P:
little beside what scores differ by, whatever the data are like.

**The lengths** are computed from y = x / q, whose largest absolute value is 127: rounding q, 1 / q
and y moves q y away from x by at most 3.1 u |x| (u is the unit roundoff of float32), y - w is
exact, and sums of d squares are off by at most (d + 2) u in relation to themselves, in any order.
So q |y - w| (1 + (d + 16) u) + 4 u |x| is at least |x - b|, and q |y| (1 + (d + 16) u) is at least
|x|. A row whose largest value is below 1e-30 counts as zeros, all of it left out.

**The comparison** is made in float32: one subtraction, three fused products, and the conversion and
scaling of v.w. Its result is off by less than 16 u (|L| + |t| + 6 |l| |x|), because all terms are
below that: s and |b| are at most 0.72 and 1.72 |x| while d is at most 32768, |a| likewise. Limits
L are lowered by `margins`, which are more than that. L itself is first raised to what every row
surely reaches, if it is below, so that L is at most a few |l| |x| + |x|^2.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from semrecall.exact.screen import rounded_down

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from semrecall.exact.screen import Block, Screen

__all__ = ["MOST_DIMENSIONS", "Limits", "QuantisedQueries", "QuantisedRows"]

MOST_DIMENSIONS = 32768
_UNIT = float(np.finfo(np.float32).eps) / 2
_FLOAT = np.dtype(np.float32)


class QuantisedRows:
    """Rows (b, d) of a block as bytes: `values`, `start` and `numbers` as `scan` takes them.

    `factor` (b, d or d + 1) is what screen scores are products of.
    """

    def __init__(self, kernels: ModuleType, dimension: int, most: int) -> None:
        self._quantise, self._dimension = kernels.quantise, dimension
        padded = -(-most // kernels.PAD) * kernels.PAD
        self._values = np.empty((padded, -(-dimension // 4) * 4), dtype=np.int8)
        self._start = np.empty(padded, dtype=np.int32)
        self._numbers = np.empty((padded, 4), dtype=np.float32)
        self._pad = kernels.PAD

    def fill(self, block: Block) -> None:
        """Take in the rows of a block."""
        self.factor = np.ascontiguousarray(block.right.T)
        padded = -(-len(self.factor) // self._pad) * self._pad
        self.values, self.start = self._values[:padded], self._start[:padded]
        self.numbers = self._numbers[:padded]
        self._quantise(self.factor, self._dimension, self.values, self.start, self.numbers)
        self.numbers[block.unusable, 3] = -np.inf

    def part(self, rows: slice) -> QuantisedRows:
        """Some of the rows; they begin at a multiple of what rows are filled up to."""
        other = copy(self)
        stop = rows.start + -(-(rows.stop - rows.start) // self._pad) * self._pad
        padded = slice(rows.start, stop)
        other.factor = self.factor[rows]
        other.values, other.start = self.values[padded], self.start[padded]
        other.numbers = self.numbers[padded]
        return other


class QuantisedQueries:
    """Queries as bytes, 128 higher, interleaved as `scan` takes them.

    lanes: for each panel of vectors of queries, four dimensions at a time, four bytes a query.
    span: how many queries that is, filled up to whole vectors. panel: queries in a panel.
    """

    def __init__(self, kernels: ModuleType, screen: Screen, dimension: int) -> None:
        self.screen = screen
        self.left = np.ascontiguousarray(screen.left)
        m = len(self.left)
        self.panel = 4 * kernels.LANES if kernels.LANES == 16 else 2 * kernels.LANES
        self.span = -(-m // kernels.LANES) * kernels.LANES
        values = np.zeros((self.span, -(-dimension // 4) * 4), dtype=np.int8)
        start, numbers = np.empty(self.span, np.int32), np.zeros((self.span, 4), np.float32)
        kernels.quantise(self.left, dimension, values, start, numbers)
        higher = (values.view(np.uint8) ^ 128).reshape(self.span, -1, 4)
        panels = [higher[low : low + self.panel] for low in range(0, self.span, self.panel)]
        self.lanes = np.concatenate([p.transpose(1, 0, 2).reshape(-1) for p in panels])
        scale, off, length, _ = numbers.T
        self.inside = (length + off) * np.float32(1 + 4 * _UNIT)  # at least |a|
        self.off, self.scale = off, scale

    def limits(self, threshold: NDArray[np.float64], norm: float, heaps: float) -> Limits:
        """What pairs must reach to be of use, for rows of at most this norm.

        heaps: the largest norm of the rows whose scores are in the heaps, these rows included.
        """
        return Limits(self, threshold, norm, heaps)


class Limits:
    """Limits of one block, as `scan` takes and raises them."""

    def __init__(
        self, queries: QuantisedQueries, threshold: NDArray[np.float64], norm: float, heaps: float
    ) -> None:
        screen = queries.screen
        reach = screen.lengths * norm + (norm * norm if screen.moves else 0.0)
        error = screen.error(norm)
        self.scores = rounded_down(threshold - error, _FLOAT)
        lowest = np.maximum(threshold - error, -2.0 * reach)
        margins = 16 * _UNIT * (np.abs(lowest) + 8 * reach)
        self.margins = margins.astype(np.float32)
        self.params = np.empty((4, queries.span), dtype=np.float32)
        self.params[0] = np.inf
        self.params[0, : len(lowest)] = lowest - margins
        self.params[1], self.params[2] = queries.inside, queries.off
        self.params[3] = queries.scale
        # What k scores reach, less the error of these and that of the score that is compared.
        rises = 2 * screen.error(heaps) + 8 * _UNIT * screen.lengths * heaps
        if screen.moves:
            rises = rises + 8 * _UNIT * heaps * heaps
        self.rises = rises.astype(np.float32)
