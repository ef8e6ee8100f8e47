"""Screening: scores in fast arithmetic, with a proven bound on how far they can be off.

All screen scores are "higher is nearer" and order the rows of one query exactly as its true
scores do, up to the bound:

    ip       q.x / |q|
    cosine   q.x / (|q| |x|)
    l2       q.x - |x|^2 / 2   of vectors moved so that their mean is near 0

The bound follows the standard analysis of a dot product of d terms in arithmetic of unit roundoff
u: whatever the order of summation, with or without fused multiply-add, the computed value is
within d u / (1 - d u) times the sum of the absolute products, which is at most |q| |x| (Higham,
Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.space import Space, exact_norms

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Block", "OutOfRange", "Screen", "rounded_down", "safe_range"]

#: Squared norms outside this range could overflow or underflow in float32.
_SAFE = {np.dtype(np.float32): (1e-25, 1e35), np.dtype(np.float64): (1e-280, 1e300)}


def safe_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Between which squared norms lie whose products this arithmetic holds."""
    return _SAFE[dtype]


class OutOfRange(Exception):
    """The norms of these vectors are too large or too small for the screening arithmetic."""


@dataclass(frozen=True)
class Block:
    """Rows made ready for the product.

    right: (d or d + 1, rows), the right factor of the product (a transposed view).
    unusable: positions of rows without a score (NaN, infinite, or zero under cosine).
    zero: positions of the zero rows under cosine, a part of `unusable`.
    norm: the largest norm among the usable rows (after moving, for l2).
    """

    right: NDArray[Any]
    unusable: NDArray[np.int64]
    zero: NDArray[np.int64]
    norm: float


class Screen:
    """The queries of one search (m, d), made ready for products in `dtype`.

    centre: (d,) the point that l2 moves to the origin; None for the other spaces.
    """

    def __init__(
        self,
        space: Space,
        queries: NDArray[Any],
        centre: NDArray[np.float64] | None,
        dtype: np.dtype[Any],
    ) -> None:
        self.space, self.dtype = space, dtype
        self._centre: NDArray[Any] | None = centre
        exact = np.asarray(queries, dtype=np.float64)
        if centre is None:
            with np.errstate(over="ignore", under="ignore"):
                self._norms = exact_norms(exact)
                squares = self._norms**2
            # The queries are scaled in float64, whatever the screening arithmetic is.
            low, high = _SAFE[np.dtype(np.float64)]
            if not bool(((squares >= low) & (squares <= high)).all()):
                raise OutOfRange
            self.left = (exact / self._norms[:, None]).astype(dtype)
        else:
            # The centre is rounded first, so that moving is one rounding and no more.
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                rounded = self._centre = centre.astype(dtype)
                moved = (exact - rounded.astype(np.float64)).astype(dtype)
                self._norms = exact_norms(moved)
                largest = float(np.max(self._norms**2, initial=0.0))
            self._check(largest)
            # One more column of ones meets the row -|x|^2 / 2 of the right factor.
            self.left = np.column_stack([moved, np.ones(len(moved), dtype=dtype)])
        dimension = queries.shape[1]
        # One per cent and ten terms more than the analysis asks for: they cover the roundings
        # of inputs, norms and limits, and those of the float64 scores that settle the order.
        self._gamma = 1.01 * (dimension + 10) * float(np.finfo(dtype).eps) / 2

    @property
    def moves(self) -> bool:
        """Whether vectors are moved, and rows have one more entry that is added to the product."""
        return self._centre is not None

    @property
    def centre(self) -> NDArray[Any] | None:
        """The point (d,) that l2 moves to the origin, in the type of the screen."""
        return self._centre

    @property
    def lengths(self) -> NDArray[np.float64]:
        """The lengths (m,) of the rows of `left`, without the column of ones."""
        return self._norms if self.moves else np.ones(len(self._norms))

    def block(self, rows: NDArray[Any]) -> Block:
        """Make base rows (b, d) ready. Raises OutOfRange."""
        dimension = rows.shape[1]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if self._centre is None:
                factor = values = rows.astype(self.dtype, copy=False)
            else:
                factor = np.empty((len(rows), dimension + 1), dtype=self.dtype)
                values = factor[:, :dimension]
                np.subtract(rows, self._centre, out=values, casting="same_kind")
            squares = np.vecdot(values, values)
            if self._centre is not None:
                factor[:, dimension] = squares * self.dtype.type(-0.5)
        block = self.judged(rows, squares)
        bad = block.unusable[: len(block.unusable) - len(block.zero)]
        if len(bad):
            # Zeros in their place keep the product clean; their scores are thrown away.
            factor = factor.copy()
            factor[bad] = 0
            values = factor[:, :dimension]
        if self.space.name == "cosine":
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = values * (1 / np.sqrt(squares))[:, None]
        return replace(block, right=factor.T)

    def judged(self, rows: NDArray[Any], squares: NDArray[Any]) -> Block:
        """What the squared norms (b,) of base rows (b, d) say of them; moved rows, for l2.

        The rows themselves stand for the right factor. Raises OutOfRange.
        """
        finite = np.isfinite(squares)
        bad = np.flatnonzero(~finite)
        if len(bad) and bool(np.isfinite(rows[bad]).all(axis=1).any()):
            raise OutOfRange
        largest = float(squares[finite].max(initial=0.0))
        zero = np.empty(0, dtype=np.int64)
        if self.space.name == "cosine":
            small = np.flatnonzero(squares < _SAFE[self.dtype][0])
            zero = small[~rows[small].any(axis=1)]
            if len(zero) < len(small):
                raise OutOfRange
            self._check(largest)
        elif largest == 0.0:
            # Not all zero, but too small to be squared?
            if bool((rows[finite] != (0.0 if self._centre is None else self._centre)).any()):
                raise OutOfRange
        else:
            self._check(largest)
        return Block(rows.T, np.concatenate([bad, zero]), zero, float(np.sqrt(largest)))

    def _check(self, largest: float) -> None:
        low, high = _SAFE[self.dtype]
        # Also where it is NaN, because the centre itself is out of range.
        if not (largest == 0.0 or low <= largest <= high):
            raise OutOfRange

    def error(self, norm: float) -> NDArray[np.float64]:
        """How far a screen score can be off, per query (m,), for rows of at most this norm."""
        if self.space.name == "ip":
            return np.full(len(self._norms), 2 * self._gamma * norm)
        if self.space.name == "cosine":
            return np.full(len(self._norms), 3 * self._gamma)
        return np.asarray(2 * self._gamma * (self._norms * norm + norm * norm)) + (
            float(np.finfo(self.dtype).eps) * (self._norms + norm) ** 2
        )

    def from_exact(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Exact scores (m,), one a query, as screen scores."""
        if self.space.name == "ip":
            return np.asarray(scores / np.where(self._norms > 0, self._norms, 1.0))
        if self.space.name == "cosine":
            return np.asarray(scores)
        return np.asarray((self._norms**2 - scores**2) / 2)

    def known(self, scores: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
        """A screen score that rows with these exact scores (m,), one a query, surely have.

        `norm` bounds the norms of those rows; for l2 it follows from the distances.
        """
        bound = self.from_exact(scores)
        if self.space.name == "l2":
            norm = float((scores + self._norms).max(initial=0.0))
        return np.asarray(bound - self.error(norm))

    def part(self, rows: slice | NDArray[np.int64]) -> Screen:
        """The screen of some of the queries."""
        other = object.__new__(Screen)
        other.__dict__.update(self.__dict__)
        other.left, other._norms = self.left[rows], self._norms[rows]
        return other


def rounded_down(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values as `dtype`, never larger, and finite, so that -inf marks a row as out."""
    low = float(np.finfo(dtype).min)
    with np.errstate(over="ignore"):
        down: NDArray[Any] = np.nextafter(np.maximum(values, low).astype(dtype), dtype.type(low))
    return down
