"""Ranked lists as flat columns, or as matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data.rows import pad

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Listed", "Lists"]


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
