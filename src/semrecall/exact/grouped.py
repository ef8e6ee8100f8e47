"""Filtered search: queries that share a filter search its rows together.

Of each block of the base, and for each filter, the cheaper of two ways is taken:

- *gathered*: the allowed rows are copied together, once for all queries of the filter, and searched
  like a base without a filter;
- *masked*: the product with all rows is taken together for the queries of all such filters, and
  what a query may not find is left out of it. It pays where a filter allows much to few queries.

Which one decides how much work is done, never what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.data import Ids
from semrecall.data.allowed import RowSet
from semrecall.exact.filters import Filter
from semrecall.exact.settle import Best, RowIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["over_groups"]

#: Rows that were copied together are numbered from here on, above every row of a base.
_GATHERED = 1 << 62
#: Rows copied at a time.
_ROWS = 4096
# What things cost, beside one product of two numbers in a matrix product.
_ROW = 30.0  # making one number of a row ready for the product
_COPY = 40.0  # copying one number of a row
_MASK = 100.0  # a cell of a mask
_START = 2e7  # beginning a search


class Searching(Protocol):
    """What is needed of the search that goes over a block."""

    filter: Filter | None
    best: list[Best]
    usable: NDArray[np.int64]
    row_ids: RowIds | None
    norm: float

    def part(self, which: NDArray[np.int64], row_ids: RowIds | None, *, masked: bool) -> Searching:
        """The same search for some of the queries."""

    def screen(self, start: int, block: NDArray[Any]) -> None:
        """Find the nearest of the rows of a block."""

    def map(self, task: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        """Results in order, computed on every core."""

    def report(self, start: int, rows: int, tile: slice, share: float) -> None:
        """Tell how far the search is."""


@dataclass(frozen=True)
class _Group:
    """Queries (positions) that share a filter, and how many rows of the block it allows them."""

    allowed: RowSet
    queries: NDArray[np.int64]
    count: int


def over_groups(search: Searching, start: int, block: NDArray[Any]) -> None:
    """Find the nearest of the rows of a block that each query may find."""
    assert search.filter is not None
    stop = start + len(block)
    gathered, masked, done = [], [], 0
    for allowed, queries in search.filter.groups(search.usable):
        group = _Group(allowed, queries, allowed.counted(start, stop))
        if group.count == 0:
            done += len(queries)
        elif _pays(group, *block.shape):
            gathered.append(group)
        else:
            masked.append(queries)
    most = max([g.count for g in gathered if g.count < len(block)], default=0)
    room = np.empty((most, block.shape[1]), dtype=block.dtype)
    for group in gathered:
        _gathered(search, start, block, group, room)
        done += len(group.queries)
        search.report(start, len(block), slice(0, done), 1.0)
    if masked:
        queries = np.sort(np.concatenate(masked))
        part = search.part(queries, search.row_ids, masked=True)
        part.screen(start, block)
        _take(search, queries, part.best, part.norm)
    if len(search.usable):
        search.report(start, len(block), slice(0, len(search.usable)), 1.0)


def _pays(group: _Group, rows: int, dimension: int) -> bool:
    """Whether the rows of a group are better copied together than masked."""
    queries, copied = len(group.queries), _COPY * (group.count < rows)
    gathered = _START + group.count * dimension * (_ROW + copied + queries)
    return gathered <= queries * rows * (dimension + _MASK) or group.count == rows


def _take(search: Searching, queries: NDArray[np.int64], best: list[Best], norm: float) -> None:
    for query, found in zip(queries.tolist(), best, strict=True):
        search.best[query] = found
    search.norm = max(search.norm, norm)


# -- gathered -------------------------------------------------------------------------------------


class _GatheredIds:
    """Ids by row number, of rows that were copied together and of those found before."""

    def __init__(self, rows: NDArray[np.int64], known: RowIds | None) -> None:
        self._rows, self._known = rows, known

    def __getitem__(self, rows: Any, /) -> Any:
        own = self.numbers(rows)
        return Ids(own) if self._known is None else self._known[own]

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers in the base."""
        own = rows.copy()
        copied = rows >= _GATHERED
        own[copied] = self._rows[rows[copied] - _GATHERED]
        return own


def _gathered(
    search: Searching, start: int, block: NDArray[Any], group: _Group, room: NDArray[Any]
) -> None:
    """Search the rows of a group, copied into the first rows of `room`."""
    if group.count == len(block):
        part = search.part(group.queries, search.row_ids, masked=False)
        part.screen(start, block)
        _take(search, group.queries, part.best, part.norm)
        return
    rows = group.allowed.between(start, start + len(block))
    copied = room[: len(rows)]

    def copy(low: int) -> None:
        some = rows[low : low + _ROWS] - start
        block.take(some, axis=0, out=copied[low : low + _ROWS], mode="clip")

    for _ in search.map(copy, list(range(0, len(rows), _ROWS))):
        pass
    ids = _GatheredIds(rows, search.row_ids)
    part = search.part(group.queries, ids, masked=False)
    part.screen(_GATHERED, copied)
    numbered = [Best(ids.numbers(b.rows), b.scores, b.cut) for b in part.best]
    _take(search, group.queries, numbered, part.norm)
