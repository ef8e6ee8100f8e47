"""Ragged rows: a sequence of one-dimensional arrays over one flat column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Rows", "pad", "row_numbers"]


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
