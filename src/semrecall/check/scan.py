"""One pass over vectors, block by block: what every check of vectors needs to know about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Vectors
from semrecall.data.vectors import Fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Duplicates", "Rows", "Scan", "row_hashes", "scan"]

_BLOCK_BYTES = 1 << 22
#: Rows kept to look at single values: a systematic sample.
_SAMPLE = 4096
#: How far from 1 the norm of a vector may be that was normalised in float16.
UNIT = 1e-3
#: How far from 1 a norm still looks meant to be 1.
NEARLY = 0.05
#: Below this norm squares may underflow in float32.
_TINY = 1e-18
_KEPT = 5


@dataclass
class Rows:
    """Rows of one kind: how many there are, and the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Take in row numbers, in rising order."""
        self.count += len(rows)
        self.first += rows[: _KEPT - len(self.first)].tolist() if len(self.first) < _KEPT else []


@dataclass
class Duplicates:
    """Equal rows, found by a 64-bit hash of each; in bounded memory.

    Each distinct hash is kept once, with how many rows have it and the first two of them. Where
    more than `limit` are distinct, those above half of the range are dropped, then those above a
    quarter, and so on: a group of equal rows stays whole or goes whole.
    """

    limit: int
    halvings: int = 0
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    first: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    second: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    _waiting: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = field(default_factory=list)
    _held: int = 0

    def add(self, rows: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
        """Take in the hashes of some rows, whose numbers rise from call to call."""
        keep = self._low(hashes)
        self._waiting.append((hashes[keep], rows[keep]))
        self._held += int(keep.sum())
        if self._held > self.limit:
            self._join()

    def _low(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return np.asarray(hashes <= np.uint64((1 << 64 - self.halvings) - 1))

    def _join(self) -> None:
        """Put what waits beside the rest, each hash once, and halve while there are too many."""
        new = len(self.hashes), sum(len(hashes) for hashes, _ in self._waiting)
        hashes = np.concatenate([self.hashes, *(h for h, _ in self._waiting)])
        first = np.concatenate([self.first, *(r for _, r in self._waiting)])
        sizes = np.concatenate([self.sizes, np.ones(new[1], np.int64)])
        second = np.concatenate([self.second, np.full(new[1], -1)])
        # Stable, so that earlier rows stand first among equal hashes.
        order = np.argsort(hashes, kind="stable")
        hashes, first, sizes, second = (v[order] for v in (hashes, first, sizes, second))
        starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        following = np.append(first[1:], -1)[starts]
        several = np.diff(np.append(starts, len(hashes))) > 1
        known = second[starts]
        self.second = np.where((known < 0) & several, following, known)
        self.hashes, self.first = hashes[starts], first[starts]
        self.sizes = np.add.reduceat(sizes, starts) if len(starts) else sizes
        self._waiting = []
        while len(self.hashes) > self.limit // 2:
            self.halvings += 1
            keep = self._low(self.hashes)
            for name in ("hashes", "sizes", "first", "second"):
                setattr(self, name, getattr(self, name)[keep])
        self._held = len(self.hashes)

    @property
    def share(self) -> float:
        """The share of the range of hashes that was kept."""
        return 0.5**self.halvings

    @property
    def compared(self) -> int:
        """How many rows were compared."""
        self._join()
        return int(self.sizes.sum())

    def groups(self) -> list[tuple[int, int, int]]:
        """(size, first row, second row) of each group of equal rows, the largest first."""
        self._join()
        several = np.flatnonzero(self.sizes > 1)
        several = several[np.lexsort((self.first[several], -self.sizes[several]))]
        columns = (column[several].tolist() for column in (self.sizes, self.first, self.second))
        return list(zip(*columns, strict=True))


@dataclass
class Scan:
    """What one pass over vectors saw. Norms and ranges are those of finite rows.

    low, high: smallest and largest value of each dimension, (d,).
    unit, nearly_unit: rows whose norm is 1 within `UNIT`, within `NEARLY`.
    narrower: a smaller type that holds every value exactly, or None.
    hits: hashes, among those looked for, that were seen.
    gathered: the rows asked for, in rising order of their numbers.
    sample: every so-many-th row.
    """

    rows: int = 0
    bad: Rows = field(default_factory=Rows)
    zero: Rows = field(default_factory=Rows)
    low: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    high: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    norm_low: float = np.inf
    norm_high: float = 0.0
    unit: int = 0
    nearly_unit: int = 0
    narrower: str | None = None
    beyond_float32: Rows = field(default_factory=Rows)
    duplicates: Duplicates = field(default_factory=lambda: Duplicates(0))
    hits: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    gathered: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))
    sample: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))
    fingerprint: str = ""

    @property
    def directed(self) -> int:
        """How many rows are finite and not zero."""
        return self.rows - self.bad.count - self.zero.count

    @property
    def equal_norms(self) -> bool:
        """Whether all norms are the same, so that ip, cosine and l2 rank alike."""
        return self.directed > 0 and self.norm_high <= self.norm_low * (1 + 2 * UNIT)

    @property
    def is_unit(self) -> bool:
        """Whether all rows with a direction have norm 1."""
        return self.directed > 0 and self.unit == self.directed


def scan(
    vectors: Vectors,
    *,
    hashed_as: np.dtype[Any] | None = None,
    looked_for: NDArray[np.uint64] | None = None,
    wanted: NDArray[np.int64] | None = None,
    most_hashes: int = 1 << 24,
    progress: Callable[[float, int | None], None] = lambda done, total: None,
) -> Scan:
    """Read all rows once.

    hashed_as: the type in which rows are hashed; their own when None.
    looked_for: sorted hashes; `Scan.hits` says which of them occur.
    wanted: row numbers to gather, rising; where there are none nothing is gathered.
    most_hashes: how many hashes are held at a time.
    """
    job = _Scanner(vectors, hashed_as or vectors.dtype, most_hashes)
    job.looked_for = np.empty(0, np.uint64) if looked_for is None else looked_for
    job.wanted = np.empty(0, np.int64) if wanted is None else wanted
    rows = max(1, _BLOCK_BYTES // (vectors.dimension * max(4, vectors.dtype.itemsize)))
    with np.errstate(all="ignore"):
        for start, block in vectors.blocks(rows):
            if len(block):
                job.add(start, np.asarray(block))
            vectors.release()
            progress(start + len(block), vectors.length)
    return job.finished()


class _Scanner:
    """A scan under way."""

    looked_for: NDArray[np.uint64]
    wanted: NDArray[np.int64]

    def __init__(self, vectors: Vectors, hashed_as: np.dtype[Any], most_hashes: int) -> None:
        d = vectors.dimension
        self.seen = Scan(low=np.full(d, np.inf), high=np.full(d, -np.inf))
        self.seen.duplicates = Duplicates(most_hashes)
        self._printer = Fingerprint(vectors.dtype, d)
        self._hashed_as = hashed_as
        self._wide = np.dtype(np.float64 if vectors.dtype.itemsize == 8 else np.float32)
        self._dtype = vectors.dtype
        self._narrower = _narrower_than(vectors.dtype)
        self._step = 1
        self._sample: list[NDArray[Any]] = []
        self._gathered: list[NDArray[Any]] = []
        self._hits: list[NDArray[np.uint64]] = []

    def add(self, start: int, block: NDArray[Any]) -> None:
        """Take in a block of rows, the first of which has number `start`."""
        self._printer.add(start, block)
        self.seen.rows = start + len(block)
        self._pick(start, block)
        wide = block.astype(self._wide, copy=False)
        finite, norms = self._finite(start, block, wide)
        numbers = start + np.arange(len(block))
        if not finite.all():
            block, wide, norms, numbers = (v[finite] for v in (block, wide, norms, numbers))
        if len(block) == 0:
            return
        self._measure(numbers, wide, norms)
        self._narrower = [t for t in self._narrower if _holds(t, wide)]
        hashes = row_hashes(block.astype(self._hashed_as, copy=False))
        self.seen.duplicates.add(numbers, hashes)
        if len(self.looked_for):
            self._hits.append(np.unique(hashes[np.isin(hashes, self.looked_for)]))

    def _finite(
        self, start: int, block: NDArray[Any], wide: NDArray[Any]
    ) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which rows are finite, and the norms of all."""
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        finite = np.ones(len(block), dtype=bool)
        # Squares beyond the range of the type are no fault of the row.
        suspect = np.flatnonzero(~np.isfinite(norms) | (norms < _TINY))
        if len(suspect):
            finite[suspect] = np.isfinite(block[suspect]).all(axis=1)
            norms = norms.astype(np.float64)
            largest = np.abs(wide[suspect].astype(np.float64)).max(axis=1, initial=0.0)
            scaled = wide[suspect] / np.where(largest > 0, largest, 1.0)[:, None]
            norms[suspect] = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
            self.seen.bad.add(start + np.flatnonzero(~finite))
        return finite, norms

    def _measure(self, numbers: NDArray[np.int64], wide: NDArray[Any], norms: NDArray[Any]) -> None:
        seen = self.seen
        np.minimum(seen.low, wide.min(axis=0), out=seen.low)
        np.maximum(seen.high, wide.max(axis=0), out=seen.high)
        zero = np.flatnonzero(norms == 0)
        seen.zero.add(numbers[zero])
        if self._wide.itemsize == 8:
            beyond = np.abs(wide).max(axis=1) > np.finfo(np.float32).max
            seen.beyond_float32.add(numbers[beyond])
        directed = np.delete(norms, zero)
        if len(directed) == 0:
            return
        seen.norm_low = min(seen.norm_low, float(directed.min()))
        seen.norm_high = max(seen.norm_high, float(directed.max()))
        off = np.abs(directed - 1)
        seen.unit += int((off <= UNIT).sum())
        seen.nearly_unit += int((off <= NEARLY).sum())

    def _pick(self, start: int, block: NDArray[Any]) -> None:
        """Keep every so-many-th row, fewer of them as more rows come, and the wanted rows."""
        first = -start % self._step
        self._sample += [np.array(row) for row in block[first :: self._step]]
        while len(self._sample) > 2 * _SAMPLE:
            self._sample = self._sample[::2]
            self._step *= 2
        low, high = np.searchsorted(self.wanted, [start, start + len(block)])
        if high > low:
            self._gathered.append(block[self.wanted[low:high] - start])

    def finished(self) -> Scan:
        """The scan after the last block."""
        seen = self.seen
        empty = np.empty((0, len(seen.low)), self._dtype)
        seen.fingerprint = self._printer.hexdigest()
        seen.narrower = self._narrower[0] if self._narrower and seen.rows else None
        seen.sample = np.array(self._sample) if self._sample else empty
        seen.gathered = np.concatenate([empty, *self._gathered])
        if self._hits:
            seen.hits = np.unique(np.concatenate(self._hits))
        return seen


def _narrower_than(dtype: np.dtype[Any]) -> list[str]:
    """Types that take less space, the smallest first."""
    if dtype.kind != "f":
        return []
    smaller = ["uint8", "int8"]
    smaller += ["float16"] if dtype.itemsize > 2 else []
    smaller += ["float32"] if dtype.itemsize > 4 else []
    return smaller


def _holds(name: str, wide: NDArray[Any]) -> bool:
    """Whether a type holds all these finite values exactly."""
    head = wide[:16]
    return all(bool((part.astype(name) == part).all()) for part in (head, wide))


def row_hashes(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """A 64-bit hash (m,) of each row of a matrix; 0.0 and -0.0 are the same value."""
    if rows.dtype.kind == "f":
        rows = rows + rows.dtype.type(0)
    rows = np.ascontiguousarray(rows)
    width = rows.shape[1] * rows.dtype.itemsize
    if width % 8:
        padded = np.zeros((len(rows), -(-width // 8) * 8), np.uint8)
        padded[:, :width] = rows.view(np.uint8).reshape(len(rows), width)
        rows = padded
    words = rows.view(np.uint64).reshape(len(rows), -(-width // 8))
    # Each word meets the key of its place, then every bit of it is spread over all 64 before the
    # words are added: values often differ in a few high bits only, and in two places at once.
    keys = np.random.default_rng(0x5EED).integers(0, 2**64, words.shape[1], np.uint64)
    mixed = words ^ keys
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed.sum(axis=1, dtype=np.uint64))
