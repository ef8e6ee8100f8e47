"""Vectors: ids and a matrix (n, d), in memory, memory-mapped, or a stream of blocks."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.data.ids import Ids, ids
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Fingerprint", "Vectors", "identity_difference", "identity_of", "row_ids"]

DTYPES = ("float64", "float32", "float16", "int8", "uint8", "bool")


@dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """n vectors of d dimensions, float64, float32, float16, int8, uint8 or bool.

    Make one with `Vectors.of(array)` or `Vectors.from_blocks(iterable of arrays)`. `matrix` is
    None for a stream. Ids are 0, 1, 2, ... unless given.
    """

    matrix: NDArray[Any] | None
    stream: Iterable[NDArray[Any]] | None
    given_ids: Ids | None
    dtype: np.dtype[Any]
    dimension: int
    length: int | None

    @classmethod
    def of(cls, values: Any, *, ids: Any = None) -> Vectors:
        """Vectors from a matrix (n, d), a list of rows, or Vectors as they are.

        Wider integers become float32 where that holds them exactly. Raises InputError for a
        shape or a type that is no matrix of numbers.
        """
        if type(values).__name__ == "MultiVectors":
            raise InputError(
                f"{values!r} are documents of several vectors; expected single vectors",
                hint="documents of several vectors are compared in space maxsim",
            )
        if isinstance(values, Vectors):
            return values if ids is None else cls._of_matrix(values.require_matrix(), ids)
        if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray):
            values = values.to_numpy()
        try:
            matrix = values if isinstance(values, np.ndarray) else np.asarray(values)
        except ValueError as error:
            raise InputError(f"vectors are not a matrix: {error}") from error
        return cls._of_matrix(matrix, ids)

    @classmethod
    def _of_matrix(cls, matrix: NDArray[Any], given: Any) -> Vectors:
        if matrix.ndim != 2:
            raise InputError(
                f"vectors have shape {matrix.shape}; expected (rows, dimensions)",
                hint="one vector is a matrix with one row: vector[None, :]",
            )
        matrix = _stored_type(matrix)
        if matrix.shape[1] == 0:
            raise InputError(f"vectors have shape {matrix.shape}; expected at least one dimension")
        own = None if given is None else row_ids(given, len(matrix))
        return cls(matrix, None, own, matrix.dtype, matrix.shape[1], len(matrix))

    @classmethod
    def from_blocks(
        cls, blocks: Iterable[NDArray[Any]], *, ids: Any = None, length: int | None = None
    ) -> Vectors:
        """Vectors from an iterable of blocks (rows, d), read once per pass.

        A generator can be read once only; give an object whose `__iter__` starts anew where more
        passes are needed. `length` is the number of rows, where it is known.
        """
        iterator = iter(blocks)
        first = next(iterator, None)
        if first is None:
            raise InputError("the stream of vectors has no block")
        head = cls.of(first)
        source: Iterable[NDArray[Any]] = blocks
        if iterator is blocks:
            source = _Once(first, iterator)
        own = None if ids is None else row_ids(ids, length)
        if own is not None:
            length = len(own)
        return cls(None, source, own, head.dtype, head.dimension, length)

    def __len__(self) -> int:
        if self.length is None:
            raise InputError("the number of rows of a stream is not known before it is read")
        return self.length

    def __repr__(self) -> str:
        rows = "?" if self.length is None else f"{self.length:,}"
        if self.matrix is None:
            where = "stream"
        else:
            where = "memory" if self.mapped is None else "memory-mapped"
        return f"Vectors({rows} x {self.dimension}, {self.dtype}, {where})"

    @property
    def ids(self) -> Ids:
        """Ids of the rows."""
        if self.given_ids is not None:
            return self.given_ids
        return Ids(np.arange(len(self), dtype=np.int64))

    @cached_property
    def mapped(self) -> mmap.mmap | None:
        """The memory map under the matrix, if there is one."""
        layer: Any = self.matrix
        while layer is not None:
            if isinstance(layer, mmap.mmap):
                return layer
            under = getattr(layer, "_mmap", None)
            if isinstance(under, mmap.mmap):
                return under
            layer = getattr(layer, "base", None)
        return None

    def release(self) -> None:
        """Let the system drop the pages of a memory-mapped file that were read so far."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)

    def require_matrix(self) -> NDArray[Any]:
        """The matrix (n, d); InputError for a stream."""
        if self.matrix is None:
            raise InputError("a stream of blocks cannot be read row by row; expected a matrix")
        return self.matrix

    def blocks(self, rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """(first row, block) one after another, at most `rows` rows each.

        Raises InputError where a block of a stream has another dimension or type, or the stream
        ends early.
        """
        start = 0
        for block in [self.matrix] if self.matrix is not None else self.stream or ():
            if block.ndim != 2 or block.shape[1] != self.dimension:
                raise InputError(
                    f"the block at row {start:,} has shape {block.shape}; "
                    f"expected (rows, {self.dimension})"
                )
            if block.dtype != self.dtype:
                block = _stored_type(block)
                if block.dtype != self.dtype:
                    raise InputError(
                        f"the block at row {start:,} is {block.dtype}; expected {self.dtype}"
                    )
            for low in range(0, len(block), rows):
                yield start + low, block[low : low + rows]
            start += len(block)
        if self.length is not None and start != self.length:
            raise InputError(f"the stream ended after {start:,} rows; expected {self.length:,}")

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The vectors at these positions, (m, d)."""
        return self.require_matrix()[rows]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of type, dimension and a fixed sample of rows (see Fingerprint)."""
        printer = Fingerprint(self.dtype, self.dimension)
        printer.add(0, self.require_matrix())
        return printer.hexdigest()


class Dimensioned(Protocol):
    """Vectors of one dimension and type, one or several a document."""

    @property
    def dimension(self) -> int:
        """Dimensions of each vector."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""


def identity_of(vectors: Dimensioned, rows: int, fingerprint: str) -> dict[str, Any]:
    """What tells these vectors from others, as a truth remembers it."""
    return {
        "rows": rows,
        "dimension": vectors.dimension,
        "dtype": vectors.dtype.name,
        "fingerprint": fingerprint,
    }


def identity_difference(known: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """In what two identities differ, in words; "" where they are of the same vectors."""
    faults = [
        f"{key} {_figure(found[key])}, expected {_figure(known[key])}"
        for key in ("rows", "dimension", "dtype")
        if key in known and key in found and str(known[key]) != str(found[key])
    ]
    prints = [str(identity.get("fingerprint") or "") for identity in (found, known)]
    if not faults and all(prints) and prints[0] != prints[1]:
        faults.append(
            "same shape and type, but other values "
            f"(fingerprint {prints[0][:8]}, expected {prints[1][:8]})"
        )
    return "; ".join(faults)


def _figure(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


class Fingerprint:
    """A hash of type, dimension, row count and sampled rows, built while the rows go by.

    Sampled are the rows 0 to 15, then about 24 per doubling, and the last: fixed positions,
    whatever the length, so a stream can be hashed in one pass.
    """

    def __init__(self, dtype: np.dtype[Any], dimension: int) -> None:
        import hashlib

        self._hash = hashlib.sha256(f"{dtype.name} {dimension}".encode())
        self._rows = 0
        self._last: NDArray[Any] | None = None

    def add(self, start: int, block: NDArray[Any]) -> None:
        """Take in the next block, whose first row has number `start`."""
        if len(block) == 0:
            return
        stop = start + len(block)
        points = _sample_points(stop)
        self._hash.update(_row_bytes(block[points[points >= start] - start]))
        self._last, self._rows = np.array(block[-1]), stop

    def add_positions(self, rows: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Take in the rows that matter of what comes next: their numbers, and their values."""
        if len(rows) == 0:
            return
        stop = int(rows[-1]) + 1
        self._hash.update(_row_bytes(values[np.isin(rows, _sample_points(stop))]))
        self._last, self._rows = np.array(values[-1]), stop

    @staticmethod
    def positions(start: int, stop: int) -> NDArray[np.int64]:
        """Numbers of the rows from start to stop that matter: the sampled ones and the last.

        A fingerprint that was given just these rows, in order, is that of all of them.
        """
        points = _sample_points(stop)
        return np.union1d(points[points >= start], np.arange(max(start, stop - 1), stop))

    def hexdigest(self) -> str:
        """The hash, 32 hexadecimal digits."""
        final = self._hash.copy()
        final.update(f"{self._rows}".encode())
        if self._last is not None:
            final.update(_row_bytes(self._last))
        return final.hexdigest()[:32]


@cache
def _all_points() -> NDArray[np.int64]:
    steps = np.floor(16 * 1.03 ** np.arange(0, 1200)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(16), steps]))


def _sample_points(stop: int) -> NDArray[np.int64]:
    points = _all_points()
    return points[: np.searchsorted(points, stop)]


def _row_bytes(row: NDArray[Any]) -> bytes:
    if row.dtype == object:  # documents of several vectors, one matrix each
        return b"".join(b"%d " % len(document) + _row_bytes(document) for document in row)
    return row.astype(row.dtype.newbyteorder("<")).tobytes()


def row_ids(given: Any, n: int | None) -> Ids:
    """Ids of n rows; InputError where one is missing or there twice, or their number differs."""
    own = ids(given)
    if n is not None and len(own) != n:
        raise InputError(f"{len(own):,} ids for {n:,} vectors")
    if bool(own.missing.any()):
        at = int(np.argmax(own.missing))
        raise InputError(f"vector {at} has no id (negative, empty or null)")
    twice = own.first_duplicate()
    if twice is not None:
        raise InputError(
            f"vectors {twice[0]} and {twice[1]} have the same id {own[twice[0]]!r}; "
            "expected distinct ids"
        )
    return own


def _stored_type(matrix: NDArray[Any]) -> NDArray[Any]:
    if matrix.dtype.name in DTYPES and matrix.dtype.isnative:
        return matrix
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize <= 8:
        return matrix.astype(matrix.dtype.newbyteorder("="))
    if matrix.dtype.kind in "iub":
        small = matrix.astype(np.float32)
        if bool((small.astype(np.float64) == matrix.astype(np.float64)).all()):
            return small
        raise InputError(
            f"{matrix.dtype} vectors hold values that float32 cannot; convert them first"
        )
    raise InputError(f"vectors are of type {matrix.dtype}; expected one of {', '.join(DTYPES)}")


class _Once:
    """A stream that can be read once: its first block was needed to learn type and dimension."""

    def __init__(self, first: NDArray[Any], rest: Iterator[NDArray[Any]]) -> None:
        self._first, self._rest, self._used = first, rest, False

    def __iter__(self) -> Iterator[NDArray[Any]]:
        if self._used:
            raise InputError(
                "the stream of vectors was read already",
                hint="give an object whose __iter__ starts anew, or a file",
            )
        self._used = True
        yield self._first
        yield from self._rest
