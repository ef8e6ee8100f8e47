"""Hits: the results that are judged. A relevance measure needs nothing else of a ranked list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.judged import Judged
    from semrecall.measures.lists import Lists

__all__ = ["Hits", "judged_results"]

#: Odd numbers without pattern in their bits; their products spread over all 64.
_SPREAD_CODES, _SPREAD_ROWS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
#: Entries looked at in one go; their columns stay in the cache.
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Hits:
    """Judged results of n queries, by query and then by rank, one entry each.

    rows: (h,) row number of the query. ranks: (h,) from 1. grades: (h,) float64, never NaN.
    returned: (n,) how many results each query has, judged or not.
    entries: (h,) position in the flat lists that were searched.
    """

    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    grades: NDArray[np.float64]
    returned: NDArray[np.int64]
    entries: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: NDArray[np.bool_]) -> Hits:
        """The hits marked in the mask (h,)."""
        return Hits(
            self.rows[keep], self.ranks[keep], self.grades[keep], self.returned, self.entries[keep]
        )

    def first(self, k: int | None) -> Hits:
        """The hits among the first k results; all of them for None."""
        return self if k is None else self.where(self.ranks <= k)

    def relevant(self, rel: float, k: int | None = None) -> Hits:
        """The hits of grade `rel` or more among the first k results."""
        keep = self.grades >= rel
        return self.where(keep if k is None else keep & (self.ranks <= k))

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """How many hits each query has, shape (n,)."""
        return np.bincount(self.rows, minlength=len(self.returned))

    @cached_property
    def nth(self) -> NDArray[np.int64]:
        """The how manieth of its query each hit is, from 1, shape (h,)."""
        starts = np.cumsum(self.count) - self.count
        return np.arange(1, len(self) + 1) - starts[self.rows]

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums (n,) of one value per hit, in the order of ranks."""
        total = np.bincount(self.rows, values, len(self.returned))
        return np.asarray(total, dtype=np.float64)

    @cached_property
    def condensed(self) -> Hits:
        """The same hits ranked among themselves, as if there were no other result."""
        return Hits(self.rows, self.nth, self.grades, self.count, self.entries)

    def reranked(self, ranks: NDArray[np.int64]) -> Hits:
        """The same hits at other ranks (h,); `entries` still say where they were found."""
        order = np.lexsort((ranks, self.rows))
        return Hits(self.rows, ranks[order], self.grades[order], self.returned, self.entries[order])


def judged_results(lists: Lists, judged: Judged) -> Hits:
    """The hits among ranked lists: a filter leaves few candidates, which are then looked up."""
    none = np.empty(0, dtype=np.int64)
    entries, rows, grades = [none], [none], [np.empty(0)]
    for position, row in _candidates(lists, judged):
        found = judged.grades_at(row, lists.codes[position])
        known = ~np.isnan(found)
        entries.append(position[known])
        rows.append(row[known])
        grades.append(found[known])
    at, of = np.concatenate(entries), np.concatenate(rows)
    return Hits(of, at - lists.offsets[of] + 1, np.concatenate(grades), lists.lengths, at)


def _candidates(
    lists: Lists, judged: Judged
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(position, row) of entries that may be judged, block by block; no judged one is left out.

    Each pair of row and document has a place in a table of bits, and only an entry whose place is
    taken by a judged pair of the block is a candidate: of the others, fewer than one in sixty.
    """
    if len(judged) == 0:
        return
    row_parts = np.arange(len(lists.lengths), dtype=np.uint64) * _SPREAD_ROWS
    judged_places = judged.codes.view(np.uint64) * _SPREAD_CODES + row_parts[judged.rows]
    for start, stop, rows in _blocks(lists.offsets):
        own = judged_places[judged.offsets[rows.start] : judged.offsets[rows.stop - 1]]
        bits = min(max((64 * len(own)).bit_length(), 10), 24)
        shift = np.uint64(64 - bits)
        table = np.zeros(1 << bits, dtype=bool)
        table[(own >> shift).view(np.int64)] = True
        ends = np.clip(lists.offsets[rows], start, stop)
        place = lists.codes[start:stop].view(np.uint64) * _SPREAD_CODES
        place += np.repeat(row_parts[rows.start : rows.stop - 1], ends[1:] - ends[:-1])
        place >>= shift
        position = np.flatnonzero(table.take(place.view(np.int64))) + start
        row = rows.start + np.searchsorted(lists.offsets[rows], position, side="right") - 1
        yield position, row


def _blocks(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int, slice]]:
    """(start, stop, slice of offsets) of blocks of entries."""
    total = int(offsets[-1])
    for start in range(0, total, _BLOCK):
        stop = min(start + _BLOCK, total)
        first = int(np.searchsorted(offsets, start, side="right")) - 1
        last = int(np.searchsorted(offsets, stop, side="left"))
        yield start, stop, slice(first, last + 1)
