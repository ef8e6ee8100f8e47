"""Pairs of a query and a row that screening let pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Survivors", "TooMany"]


class TooMany(Exception):
    """More survivors than memory allows: the chunk or the tile must be smaller."""


@dataclass
class Survivors:
    """Survivors of one product: query numbers within the tile, row numbers, screen scores."""

    query: NDArray[np.uint16]
    row: NDArray[np.int64]
    score: NDArray[Any]

    @classmethod
    def joined(cls, parts: list[Survivors]) -> Survivors:
        """All of them, part by part."""
        return cls(
            np.concatenate([part.query for part in parts]),
            np.concatenate([part.row for part in parts]),
            np.concatenate([part.score for part in parts]),
        )

    def where(self, keep: NDArray[np.bool_]) -> Survivors:
        """Those marked True."""
        return Survivors(self.query[keep], self.row[keep], self.score[keep])

    def ranked(self, queries: int, rank: int) -> NDArray[np.float64]:
        """The score (queries,) at a rank (from 1) of each query; -inf where there are fewer.

        Scores are float32.
        """
        bits = self.score.astype(np.float32).view(np.int32).astype(np.int64)
        # Negative floats sort in reverse by their bits; turned over, all sort as whole numbers.
        bits = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
        keys = np.sort((self.query.astype(np.int64) << 32) + bits + (1 << 31))
        ends = np.cumsum(np.bincount(self.query, minlength=queries))
        starts = np.concatenate([[0], ends[:-1]])
        at = ends - rank
        enough = at >= starts
        values = np.full(queries, -np.inf)
        found = (keys[at[enough]] & 0xFFFFFFFF) - (1 << 31)
        found = np.where(found < 0, -found | 0x80000000, found)
        values[enough] = found.astype(np.uint32).view(np.float32)
        return values
