"""The geometry of scores: of vectors, of packed bits, of documents of several vectors.

Scores are in natural units: inner product, cosine similarity and the sum of largest inner products
(higher is nearer); Euclidean distance, not squared, Hamming distance in bits and Jaccard distance
(lower is nearer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "COSINE",
    "HAMMING",
    "IP",
    "JACCARD",
    "L2",
    "MAXSIM",
    "Space",
    "bit_distances",
    "cosines",
    "exact_norms",
    "ordered_sum",
    "quotients",
    "space",
]


@dataclass(frozen=True)
class Space:
    """A geometry: its name, which way is nearer, and what it compares.

    Use the constants `IP`, `COSINE`, `L2`, `HAMMING`, `JACCARD` and `MAXSIM`, or `space("ip")`.
    `compares` is "vectors" of numbers, "bits" (uint8, eight a byte, or booleans), or "documents"
    of several vectors each (`MultiVectors`).
    """

    name: str
    higher_is_nearer: bool
    compares: Literal["vectors", "bits", "documents"] = "vectors"

    def __str__(self) -> str:
        return self.name

    @property
    def directed(self) -> bool:
        """Whether a zero vector has no direction, and so no neighbours."""
        return self.name in ("ip", "cosine")

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

        ip, cosine and maxsim: s - x*|s|, so that the tolerance widens for negative scores too;
        distances: d*(1 + x), so that only 0 is near 0. Shapes broadcast.
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
        self,
        base_rows: NDArray[Any],
        query: NDArray[Any],
        query_norms: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Scores of rows (m, d) against one query (d,), or each against its own (m, d), in float64.

        Products and differences are taken in float64 and summed in one fixed order
        (`ordered_sum`), so the result has the same bits on every machine. Cosine of a zero
        vector is NaN. `query_norms` (m,) saves computing the norms of the queries for cosine.
        Not for maxsim, whose rows are documents (`exact.maxsim`).
        """
        if self.compares == "bits":
            return bit_distances(self, base_rows, query)
        if self.name == "l2":
            terms = np.subtract(base_rows, query, dtype=np.float64)
            terms *= terms
            return np.sqrt(ordered_sum(terms))
        dots = ordered_sum(np.multiply(base_rows, query, dtype=np.float64))
        if self.name == "ip":
            return dots
        if query_norms is None:
            query_norms = exact_norms(np.atleast_2d(query))
        return cosines(dots, exact_norms(base_rows) * query_norms)


IP = Space("ip", higher_is_nearer=True)
COSINE = Space("cosine", higher_is_nearer=True)
L2 = Space("l2", higher_is_nearer=False)
HAMMING = Space("hamming", higher_is_nearer=False, compares="bits")
JACCARD = Space("jaccard", higher_is_nearer=False, compares="bits")
MAXSIM = Space("maxsim", higher_is_nearer=True, compares="documents")

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
    "hamming": HAMMING,
    "jaccard": JACCARD,
    "maxsim": MAXSIM,
    "max_sim": MAXSIM,
    "late_interaction": MAXSIM,
}
_EXPECTED = "ip, cosine, l2, hamming, jaccard or maxsim"
_SQUARED = {"sqeuclidean", "l2sq", "squared_l2", "squaredl2", "l2_squared"}


def space(name: str | Space) -> Space:
    """The space of that name: `ip`, `cosine`, `l2`, `hamming`, `jaccard`, `maxsim`, or an alias.

    Raises InputError for an unknown name, and for squared Euclidean distance, which is another
    unit: a relative tolerance of 1% on squares is about 0.5% on distances.
    """
    if isinstance(name, Space):
        return name
    key = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    if key in _SQUARED:
        raise InputError(
            f"space {name!r} is squared Euclidean distance; expected {_EXPECTED}",
            hint="take the square root of the distances and use space l2",
        )
    if key not in _ALIASES:
        raise InputError(f"unknown space {name!r}; expected {_EXPECTED}")
    return _ALIASES[key]


def ordered_sum(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums (m,) of the rows of `terms` (m, d) in one fixed order: halves are added to each other.

    Library sums and dot products differ in the last bits between processors and versions; this
    one uses only elementwise additions, which IEEE 754 defines to the bit.
    """
    width = terms.shape[1]
    if width == 0:
        return np.zeros(len(terms))
    while width > 64:
        half = width // 2
        folded = np.empty((len(terms), width - half))
        np.add(terms[:, :half], terms[:, width - half :], out=folded[:, :half])
        if width % 2:
            folded[:, half] = terms[:, half]
        terms, width = folded, width - half
    # The same steps on the other side up are faster for narrow rows. An odd one in the middle is
    # left alone: it becomes the last of the next round.
    columns = np.array(terms.T, order="C")
    while width > 1:
        half = width // 2
        columns[:half] += columns[width - half : width]
        width -= half
    return np.asarray(columns[0])


def cosines(dots: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Dot products (m,) divided by the lengths of both vectors (m,); NaN where these are 0."""
    values = np.full(dots.shape, np.nan)
    np.divide(dots, lengths, out=values, where=lengths > 0)
    # Rounding may push a parallel pair past 1 by one unit in the last place.
    return np.clip(values, -1.0, 1.0, out=values)


def exact_norms(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Euclidean norms (m,) of rows (m, d) in float64, with the same bits on every machine."""
    return np.sqrt(ordered_sum(np.multiply(rows, rows, dtype=np.float64)))


def bit_distances(space: Space, rows: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    """Hamming or Jaccard distances (m,) of rows (m, w) and others, (w,) or (m, w), of bits.

    Bits are booleans, or uint8 with eight in a byte. Hamming: how many bits differ. Jaccard: of the
    bits set in either, the share that differs; 0 where none is set in either.
    """
    differing: NDArray[np.int64]
    either: NDArray[np.int64]
    if rows.dtype == bool:
        differing = np.count_nonzero(rows != others, axis=1)
        either = np.count_nonzero(rows | others, axis=1)
    else:
        differing = np.bitwise_count(rows ^ others).sum(axis=1, dtype=np.int64)
        either = np.bitwise_count(rows | others).sum(axis=1, dtype=np.int64)
    if space.name == "hamming":
        return np.asarray(differing, dtype=np.float64)
    return quotients(differing, either)


def quotients(differing: NDArray[np.int64], either: NDArray[np.int64]) -> NDArray[np.float64]:
    """Jaccard distances: counts by counts, 0 where both are 0.

    Equal fractions have equal quotients, because a quotient is the one number nearest to the
    fraction. Different ones have different quotients in the right order: two fractions with
    denominators below 2^26 are at least 2^-52 apart, and numbers up to 1 are at most 2^-53 apart,
    so each has a number of its own between them.
    """
    distances: NDArray[np.float64] = np.zeros(np.shape(differing))
    np.divide(differing, either, out=distances, where=either > 0)
    return distances
