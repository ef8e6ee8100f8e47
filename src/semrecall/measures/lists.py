"""Ranked lists as flat columns, or as matrices; which entries of a list repeat an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data.rows import pad, row_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Listed", "Lists", "repeated", "repeated_in_rows"]


@dataclass(frozen=True, eq=False)
class Listed:
    """Ranked rows as matrices: codes (n, width), -1 padding; scores alike, NaN padding, or None."""

    codes: NDArray[np.int64]
    scores: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class Lists:
    """Ranked rows end to end: query i has the entries offsets[i] to offsets[i + 1].

    codes: (m,) document codes; scores: (m,) or None.
    """

    codes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    scores: NDArray[np.float64] | None

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many entries each row has, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def width(self) -> int:
        """The length of the longest row."""
        return int(self.lengths.max(initial=0))

    @cached_property
    def matrix(self) -> Listed:
        """The rows as padded matrices."""
        scores = None if self.scores is None else pad(self.scores, self.offsets, np.nan)
        return Listed(pad(self.codes, self.offsets, -1), scores)

    def select(self, rows: NDArray[np.int64]) -> tuple[Lists, NDArray[np.int64]]:
        """Some rows in the order given, -1 for an empty one; and where their entries were."""
        known = np.maximum(rows, 0)
        lengths = np.where(rows >= 0, self.lengths[known] if len(self.lengths) else 0, 0)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        starts = self.offsets[known] - offsets[:-1]
        entries = np.repeat(starts, lengths) + np.arange(offsets[-1])
        return self.take(entries, offsets), entries

    def take(self, entries: NDArray[np.int64], offsets: NDArray[np.int64]) -> Lists:
        """The entries in another order, or some of them, as rows that end at other offsets."""
        scores = None if self.scores is None else self.scores[entries]
        return Lists(self.codes[entries], offsets, scores)

    def keep(self, entries: NDArray[np.bool_]) -> Lists:
        """Only the entries marked in the mask (m,)."""
        counts = np.concatenate([[0], np.cumsum(entries)])
        return self.take(np.flatnonzero(entries), counts[self.offsets])


def repeated(codes: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Which entries (m,) of flat rows repeat an earlier one of their row; None when none does.

    -1 repeats nothing.
    """
    n, lengths = len(offsets) - 1, np.diff(offsets)
    width, top = int(lengths.max(initial=0)), int(codes.max(initial=-1))
    if width < 2 or top < 0:
        return None
    if n * width <= 2 * len(codes):
        return _repeated_by_rows(codes, offsets, lengths, narrow=top < 2**31)
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
    codes: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], narrow: bool
) -> NDArray[np.bool_] | None:
    # Half as wide sorts twice as fast.
    matrix = pad(codes.astype(np.int32) if narrow else codes, offsets, -1)
    again = repeated_in_rows(matrix)
    if not again.any():
        return None
    return again[np.arange(matrix.shape[1]) < lengths[:, None]]
