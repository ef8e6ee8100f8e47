"""Fewer columns whose product is an upper bound of the screen score.

Take the screen score of `screen.py`: the exact product P = l.x (+ t for l2) of a stored left row l
and a stored right row x. Let V (d, m) have nearly orthonormal columns, a and b be rounded V'l and
V'x, and r, s at least the lengths of the rests l - Va and x - Vb. Then by Cauchy-Schwarz

    P  <=  a.b + r s (+ t) + slack

so that m columns, and the lengths of the rests as one more, bound the score of all d. Where the
leading m directions hold most of what the rows vary by, most pairs are ruled out by that bound,
and their other d - m products are never taken.

**Proof of the slack.** Write F = V'V - I with |F| <= f (`Basis.skew`), u for the unit roundoff of
float32, g(n) = 1.01 n u for the relative error of a sum of n products in any order, and e, e' for
the rounding of b and a: b = V'x + e, |e| <= g(d) sqrt(m) |x| =: w |x|, because entry j is off by at
most g(d) |V_j| |x|; a is computed in float64, so |e'| <= 2u |l|. From
P = (Va + (l - Va)).(Vb + (x - Vb)):

- Va.Vb = a.b + a'Fb, and |a'Fb| <= f |a| |b|;
- Va.(x - Vb) = a.(V'x - V'Vb) = -a.(e + Fb), at most |a| (w |x| + f |b|); likewise for the other
  cross term; and (l - Va).(x - Vb) <= |l - Va| |x - Vb|.

|a| and |b| are at most 1.01 |l| and 1.01 |x| while f and w are at most 0.005, so the cross terms
stay below 1.1 (3f + w + 2u) |l| |x|. The product of n columns in float32 adds at most
g(n) (|a| |b| + r s + |t|); a second stage that goes from m to more columns takes r s off again and
adds the columns between, which is at most twice that once more. With |a||b| + r s <= 1.05 |l| |x|
and |t| <= |x|^2 / 2 this is `Reduced.slack`, in which 1.2 stands for all the factors near 1.

**The lengths of the rests.** |x - Vb|^2 = |x|^2 - 2b.V'x + b'V'Vb = |x|^2 - |b|^2 + 2b.e + b'Fb,
so |x|^2 - |b|^2 as computed, plus (2.1w + 1.1f + g(d) + g(n)) |x|^2 for both the formula and the
rounding of the two squares, is an upper bound, for each row in relation to its own length.

Subnormal numbers add at most 1e-22 sqrt(d) to a length. `Screen` refuses blocks whose largest norm
is below 3e-13, and the slack and the error of the screen are then more than 1e-19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.exact.screen import Block, Screen

__all__ = ["Basis", "Reduced", "ReducedQueries", "principal"]

_FLOAT = np.dtype(np.float32)
_UNIT = float(np.finfo(np.float32).eps) / 2
_ROWS = 1024  # rows reduced at a time
_TURNS = 3  # of the subspace iteration: enough to come within one per cent of the best directions


@dataclass(frozen=True)
class Basis:
    """Directions (d, m) in float32, most important first, and how far they are from orthonormal."""

    columns: NDArray[np.float32]
    skew: float

    @classmethod
    def of(cls, columns: NDArray[Any]) -> Basis:
        """Any nearly orthonormal columns; how near is measured, not assumed."""
        stored = np.ascontiguousarray(columns, dtype=np.float32)
        exact = stored.astype(np.float64)
        off = exact.T @ exact - np.eye(exact.shape[1])
        # The Frobenius norm bounds the spectral norm, of these columns and of the first few.
        return cls(stored, float(np.linalg.norm(off)) + 1e-9)


def principal(rows: NDArray[np.float32], m: int, widest: float = 0.6) -> Basis | None:
    """The m leading principal directions of rows (c, d), nearly: from a subspace iteration.

    None where the rows vary in all directions alike, or cannot be squared: no directions lead.
    `widest` is the effective number of directions that is too many, as a share of that of noise.
    """
    c, d = rows.shape
    with np.errstate(all="ignore"):
        gram = rows.T @ rows
        trace = float(np.trace(gram))
        gram /= trace if trace > 0 else 1.0
        spread = float(np.vdot(gram, gram))
    if not np.isfinite(spread) or trace <= 0:
        return None
    # The participation ratio (sum of eigenvalues)^2 / sum of squares; of noise it is d c / (d + c).
    if 1 / spread > widest * d * c / (d + c):
        return None
    rng = np.random.default_rng(0)
    space = rng.standard_normal((d, min(d, m + 8)), dtype=np.float32)
    for _ in range(_TURNS):
        space = np.linalg.qr(gram @ space)[0]
    _, turned = np.linalg.eigh(space.T @ (gram @ space))
    return Basis.of((space @ turned[:, ::-1])[:, :m])


class Reduced:
    """Rows of one chunk in few columns, and the lengths of what these leave out.

    Columns of `matrix`, in order: t (l2 only), then for each width in turn its next coordinates
    and the length of the rest at that width. So the first `ends[j]` columns are what width j
    needs; those of lengths at smaller widths meet zeros on the left. After `fill`, `norm`,
    `unusable` and `zero` are those of a `Block`, for all the rows.
    """

    def __init__(self, basis: Basis, widths: list[int], screen: Screen, rows: int) -> None:
        self.basis, self.widths, self._t = basis, widths, int(screen.moves)
        self.moves = screen.moves
        self.ends = [self._t + width + j + 1 for j, width in enumerate(widths)]
        self.dimension = len(basis.columns)
        self.norm = 0.0
        self.unusable = self.zero = np.empty(0, dtype=np.int64)
        self.matrix = np.zeros((rows, self.ends[-1]), dtype=np.float32)
        self._columns = np.ascontiguousarray(basis.columns[:, : widths[-1]])
        self._turning = _gamma(self.dimension) * float(np.sqrt(widths[-1]))
        self._length_slack = (
            1.2 * (2 * self._turning + basis.skew + _gamma(self.dimension) + _gamma(self.ends[-1]))
            + 32 * _UNIT
        )

    @property
    def sound(self) -> bool:
        """Whether the proof's conditions hold; else the bound must not be used."""
        return self.basis.skew <= 0.005 and self._turning <= 0.005

    def fill(
        self,
        screen: Screen,
        chunk: NDArray[Any],
        order: NDArray[np.int64],
        over: Callable[[Callable[[int], Block], list[int]], Iterable[Block]] = map,
    ) -> Reduced:
        """Reduce rows `order` of `chunk` into rows 0, 1, ... of the matrix; raises OutOfRange."""

        def reduce(low: int) -> Block:
            block = screen.block(chunk[order[low : low + _ROWS]])
            rows = block.right[: self.dimension].T
            if len(block.unusable):
                rows = rows.copy()
                rows[block.unusable] = 0.0
            out = self.matrix[low : low + len(rows)]
            self._reduce(rows, out)
            if self._t:
                out[:, 0] = block.right[self.dimension]
            return block

        lows = list(range(0, len(order), _ROWS))
        unusable, zero = [], []
        for low, block in zip(lows, over(reduce, lows), strict=True):
            self.norm = max(self.norm, block.norm)
            unusable.append(low + block.unusable)
            zero.append(low + block.zero)
        self.unusable, self.zero = np.concatenate(unusable), np.concatenate(zero)
        return self

    def _reduce(self, rows: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        turned = rows @ self._columns
        whole = np.vecdot(rows, rows)
        inside = np.zeros_like(whole)
        low = 0
        for width, end in zip(self.widths, self.ends, strict=True):
            part = turned[:, low:width]
            out[:, end - 1 - (width - low) : end - 1] = part
            inside += np.vecdot(part, part)
            rest = np.maximum(whole - inside, 0) + np.float32(self._length_slack) * whole
            out[:, end - 1] = np.sqrt(rest)
            low = width

    def queries(self, screen: Screen) -> ReducedQueries:
        """The left factors of one tile of queries."""
        left = screen.left[:, : self.dimension].astype(np.float64)
        exact = left @ self._columns.astype(np.float64)
        turned = exact.astype(np.float32)
        stored = turned.astype(np.float64)
        whole = np.vecdot(left, left)
        # |l - Va|^2 = |l|^2 - 2a.V'l + a'(I + F)a, and rounding in float64 on top.
        parts = np.cumsum(stored * (stored * (1 + self.basis.skew) - 2 * exact), axis=1)
        margin = 4e-14 * (self.dimension + 10) * whole
        factors, lengths, low = [], [], self._t
        full = np.zeros((len(left), self.ends[-1]), dtype=np.float32)
        full[:, : self._t] = 1.0
        for j, (width, end) in enumerate(zip(self.widths, self.ends, strict=True)):
            full[:, low : end - 1] = turned[:, low - self._t - j : width]
            rest = np.maximum(whole + parts[:, width - 1], 0.0) + margin
            length = np.nextafter(np.sqrt(rest).astype(np.float32), np.float32(np.inf))
            factor = full[:, :end].copy()
            factor[:, end - 1] = length
            factors.append(factor)
            lengths.append(length)
            low = end
        return ReducedQueries(self, screen, factors, lengths)


class ReducedQueries:
    """The left factors of some queries at every width."""

    def __init__(
        self,
        reduced: Reduced,
        screen: Screen,
        factors: list[NDArray[np.float32]],
        lengths: list[NDArray[np.float32]],
    ) -> None:
        self._reduced, self._screen = reduced, screen
        self.factors, self._lengths = factors, lengths

    def second(self, j: int) -> NDArray[np.float32]:
        """What takes a bound at width j to the last width, for the columns from `ends[j] - 1`.

        The length at width j is taken off again, the columns between and the last length added.
        """
        factor = self.factors[-1][:, self._reduced.ends[j] - 1 :].copy()
        factor[:, 0] = -self._lengths[j]
        return factor

    def slack(self) -> NDArray[np.float64]:
        """How far a bound can be below the product it bounds, per query."""
        reduced = self._reduced
        norm = 1.0 if self._screen.space.name == "cosine" else reduced.norm
        product = _gamma(reduced.ends[-1])
        relative = 1.2 * (3 * reduced.basis.skew + reduced._turning + 2 * _UNIT + 3 * product)
        slack = relative * self._screen.lengths * norm
        return np.asarray(slack + (2 * product * norm * norm if reduced._t else 0.0))


def _gamma(terms: int) -> float:
    return 1.01 * terms * _UNIT
