"""The geometry of scores: inner product, cosine similarity, Euclidean distance.

Scores are in natural units: inner product and cosine similarity (higher is nearer), Euclidean
distance, not squared (lower is nearer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["COSINE", "IP", "L2", "Space", "exact_norms", "ordered_sum", "space"]


@dataclass(frozen=True)
class Space:
    """A geometry: its name and which way is nearer.

    Use the constants `IP`, `COSINE` and `L2`, or `space("ip")`.
    """

    name: str
    higher_is_nearer: bool

    def __str__(self) -> str:
        return self.name

    @property
    def farthest(self) -> float:
        """The score that no result can be worse than (-inf, or +inf for distances)."""
        return -np.inf if self.higher_is_nearer else np.inf

    def sort_key(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Scores turned so that *lower is nearer*, for sorting; same shape as `scores`."""
        values = np.asarray(scores, dtype=np.float64)
        return -values if self.higher_is_nearer else values

    def threshold(self, scores: ArrayLike, x: ArrayLike = 0.0) -> NDArray[np.float64]:
        """The farthest score still near each of `scores` at relative tolerance `x`.

        ip and cosine: s - x*|s|, so that the tolerance widens for negative scores too; l2:
        d*(1 + x). Shapes broadcast.
        """
        values = np.asarray(scores, dtype=np.float64)
        tolerance = np.asarray(x, dtype=np.float64)
        if self.higher_is_nearer:
            return np.asarray(values - tolerance * np.abs(values))
        return np.asarray(values * (1.0 + tolerance))

    def near(self, a: ArrayLike, b: ArrayLike, x: ArrayLike = 0.0) -> NDArray[np.bool_]:
        """Whether score `a` may stand in for score `b` at relative tolerance `x` (broadcasts)."""
        limit = self.threshold(b, x)
        values = np.asarray(a, dtype=np.float64)
        return np.asarray(values >= limit if self.higher_is_nearer else values <= limit)

    def exact_scores(
        self, base_rows: NDArray[Any], query: NDArray[Any], base_norms: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Scores of rows (m, d) against one query (d,) or against m queries (m, d), in float64.

        Products and differences are taken in float64 and summed in one fixed order
        (`ordered_sum`), so the result has the same bits on every machine. Cosine of a zero
        vector is NaN. `base_norms` (m,) saves computing the Euclidean norms for cosine again.
        """
        left = np.asarray(base_rows, dtype=np.float64)
        right = np.asarray(query, dtype=np.float64)
        if self is L2 or self.name == "l2":
            difference = left - right
            difference *= difference
            return np.sqrt(ordered_sum(difference))
        dots = ordered_sum(left * right)
        if self.name == "ip":
            return dots
        norms = exact_norms(left) if base_norms is None else np.asarray(base_norms)
        scale = norms * exact_norms(np.atleast_2d(right))
        cosines = np.full(dots.shape, np.nan)
        np.divide(dots, scale, out=cosines, where=scale > 0)
        # Rounding may push a parallel pair past 1 by one unit in the last place.
        return np.clip(cosines, -1.0, 1.0, out=cosines)


IP = Space("ip", higher_is_nearer=True)
COSINE = Space("cosine", higher_is_nearer=True)
L2 = Space("l2", higher_is_nearer=False)

_ALIASES = {
    "ip": IP,
    "dot": IP,
    "inner_product": IP,
    "innerproduct": IP,
    "cosine": COSINE,
    "cos": COSINE,
    "angular": COSINE,
    "l2": L2,
    "euclidean": L2,
}
_SQUARED = {"sqeuclidean", "l2sq", "squared_l2", "squaredl2", "l2_squared"}


def space(name: str | Space) -> Space:
    """The space of that name: `ip`, `cosine` or `l2`, or a common alias.

    Raises InputError for an unknown name, and for squared Euclidean distance, which is another
    unit: a relative tolerance of 1% on squares is about 0.5% on distances.
    """
    if isinstance(name, Space):
        return name
    key = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    if key in _SQUARED:
        raise InputError(
            f"space {name!r} is squared Euclidean distance; expected ip, cosine or l2",
            hint="take the square root of the distances and use space l2",
        )
    if key not in _ALIASES:
        raise InputError(f"unknown space {name!r}; expected ip, cosine or l2")
    return _ALIASES[key]


def ordered_sum(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums along the last axis in one fixed order: halves are added onto each other.

    Library sums and dot products differ in the last bits between processors and versions; this
    one uses only elementwise additions, which IEEE 754 defines to the bit. `terms` (..., d) is
    used as scratch space.
    """
    width = terms.shape[-1]
    if width == 0:
        return np.zeros(terms.shape[:-1])
    while width > 1:
        half = width // 2
        # An odd column in the middle is left alone: it becomes the last of the next round.
        terms[..., :half] += terms[..., width - half : width]
        width -= half
    return terms[..., 0].copy()


def exact_norms(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Euclidean norms of rows (m, d) in float64, with the same bits on every machine."""
    values = np.array(rows, dtype=np.float64)
    values *= values
    return np.sqrt(ordered_sum(values))
