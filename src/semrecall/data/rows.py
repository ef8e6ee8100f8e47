"""Ragged rows over one flat column: as arrays, as a matrix, and what in them is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Rows", "pad", "picked", "repeated", "repeated_in_rows", "row_numbers"]

#: So many entries are looked at in one go, to stay in the processor's cache.
_BLOCK = 1 << 16


def picked(n: int, which: Any) -> NDArray[np.int64]:
    """The places (m,) out of n that a slice, a mask or positions name; none for an empty list."""
    if not isinstance(which, slice):
        which = np.asarray(which)
        which = which.astype(np.int64) if which.size == 0 else which
    places: NDArray[np.int64] = np.arange(n, dtype=np.int64)[which]
    return places


class Rows(Sequence[Any]):
    """One array per query, cut from a flat column by `offsets` (n + 1,).

    Indexing gives the row of one query as a numpy array, iterating gives all of them; numpy
    functions see a matrix padded with `fill` to the longest row.
    """

    def __init__(
        self,
        flat: Any,
        offsets: NDArray[np.int64],
        fill: Any,
        decode: Callable[[Any], NDArray[Any]] = np.asarray,
    ) -> None:
        self._flat, self._offsets, self._fill, self._decode = flat, offsets, fill, decode

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(len(self)))]
        n = len(self)
        if not -n <= key < n:
            raise IndexError(f"row {key} of {n} rows")
        start, stop = self._offsets[key % n], self._offsets[key % n + 1]
        return self._decode(self._flat[start:stop])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How long each row is, shape (n,)."""
        return np.diff(self._offsets)

    def matrix(self) -> NDArray[Any]:
        """The rows as a matrix (n, longest), padded with -1, "" or NaN."""
        return pad(self._decode(self._flat), self._offsets, self._fill)

    def to_list(self) -> list[list[Any]]:
        """The rows as lists of Python values."""
        values = self._decode(self._flat).tolist()
        cuts = self._offsets.tolist()
        return [values[a:b] for a, b in pairwise(cuts)]

    tolist = to_list

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.matrix(), dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        shown = ",\n      ".join(repr(row) for row in self[:3])
        more = f",\n      ... {len(self):,} rows" if len(self) > 3 else ""
        return f"Rows([{shown}{more}])"


def pad(
    flat: NDArray[Any], offsets: NDArray[np.int64], fill: Any, width: int | None = None
) -> NDArray[Any]:
    """A matrix (n, width) of ragged rows; `fill` where a row is shorter, longer rows are cut.

    `width` is the longest row when it is None.
    """
    lengths = np.diff(offsets)
    if width is None:
        width = int(lengths.max(initial=0))
    if bool((lengths == width).all()):
        return flat[offsets[0] : offsets[-1]].reshape(len(lengths), width)
    columns = np.arange(width)
    inside = columns < lengths[:, None]
    matrix = np.full((len(lengths), width), fill, dtype=flat.dtype)
    matrix[inside] = flat[(offsets[:-1, None] + columns)[inside]]
    return matrix


def row_numbers(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each entry of the flat column, the number of its row; shape (offsets[-1],)."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def repeated(codes: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Which entries (m,) of flat rows repeat an earlier one of their row; None when none does.

    -1 repeats nothing.
    """
    n, lengths = len(offsets) - 1, np.diff(offsets)
    width, top = int(lengths.max(initial=0)), int(codes.max(initial=-1))
    if width < 2 or top < 0:
        return None
    if n * width <= 2 * len(codes):
        return _repeated_by_rows(codes, offsets, width, narrow=top < 2**31)
    # One long row among many short ones: a matrix would be mostly padding.
    order = np.lexsort((codes, row_numbers(offsets)))
    ordered, row = codes[order], row_numbers(offsets)
    twin = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0) & (row[1:] == row[:-1])
    if not twin.any():
        return None
    again = np.zeros(len(codes), dtype=bool)
    again[order[1:][twin]] = True
    return again


def repeated_in_rows(codes: NDArray[np.signedinteger]) -> NDArray[np.bool_]:
    """Which entries of a matrix repeat an earlier one of their row; -1 repeats nothing."""
    again = np.zeros(codes.shape, dtype=bool)
    ordered = np.sort(codes, axis=1)
    twin = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    at = np.flatnonzero(twin)
    if len(at) == 0:
        return again
    rows, columns = np.divmod(at, twin.shape[1])
    suspects = np.unique(rows)
    if len(at) > 4 * len(suspects):
        order = np.argsort(codes[suspects], axis=1, kind="stable")
        marks = np.zeros(order.shape, dtype=bool)
        np.put_along_axis(marks, order[:, 1:], twin[suspects], axis=1)
        again[suspects] = marks
        return again
    # Few repeats: looking for each of them beats sorting their rows again.
    same = codes[rows] == ordered[rows, columns][:, None]
    same[np.arange(len(rows)), np.argmax(same, axis=1)] = False
    which, column = np.nonzero(same)
    again[rows[which], column] = True
    return again


def _repeated_by_rows(
    codes: NDArray[np.int64], offsets: NDArray[np.int64], width: int, narrow: bool
) -> NDArray[np.bool_] | None:
    again = None
    rows = max(_BLOCK // width, 1)
    for low in range(0, len(offsets) - 1, rows):
        part = offsets[low : low + rows + 1]
        inside = codes[part[0] : part[-1]]
        # Half as wide sorts twice as fast.
        matrix = pad(inside.astype(np.int32) if narrow else inside, part - part[0], -1)
        found = repeated_in_rows(matrix)
        if found.any():
            again = np.zeros(len(codes), dtype=bool) if again is None else again
            real = np.arange(matrix.shape[1]) < np.diff(part)[:, None]
            again[part[0] : part[-1]] = found[real]
    return again
