"""Which rows of a base the queries may find: one set of rows for all that share a filter."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.data.ids import Ids, ids
from semrecall.errors import InputError, MismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NOTHING_ALLOWED", "Allowed", "RowSet", "filter_mismatch", "filtered"]

#: The reason of a query whose filter leaves no row.
NOTHING_ALLOWED = "the filter allows no row"
#: Rows whose bits are unpacked at a time; whole bytes.
_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class RowSet:
    """Some of n rows: their numbers, or a bit for each row, whichever takes less memory.

    rows: ascending, int64. bits: uint8, eight rows a byte, the first row in the highest bit. One of
    the two is None. Make one with `of_rows`, `of_mask` or `of_bits`.
    """

    n: int
    rows: NDArray[np.int64] | None
    bits: NDArray[np.uint8] | None

    @classmethod
    def of_rows(cls, n: int, rows: NDArray[np.int64]) -> RowSet:
        """The set of these row numbers, in any order."""
        rows = np.unique(np.asarray(rows, dtype=np.int64))
        if 64 * len(rows) < n:
            return cls(n, rows, None)
        mask = np.zeros(n, dtype=bool)
        mask[rows] = True
        return cls(n, None, np.packbits(mask))

    @classmethod
    def of_mask(cls, mask: NDArray[np.bool_]) -> RowSet:
        """The set of the rows that are True, (n,)."""
        return cls.of_bits(len(mask), np.packbits(mask))

    @classmethod
    def of_bits(cls, n: int, bits: NDArray[np.uint8]) -> RowSet:
        """The set of the rows whose bits are set; those beyond the n-th must not be."""
        packed = cls(n, None, bits)
        if 64 * packed.count < n:
            return cls(n, packed.between(0, n), None)
        return packed

    @classmethod
    def everything(cls, n: int) -> RowSet:
        """The set of all rows."""
        return cls.of_mask(np.ones(n, dtype=bool))

    @cached_property
    def count(self) -> int:
        """How many rows there are in the set."""
        return self.counted(0, self.n)

    @cached_property
    def digest(self) -> bytes:
        """A hash: equal sets have equal ones."""
        data = self.bits if self.rows is None else self.rows.astype("<i8")
        assert data is not None
        return hashlib.sha256(f"{self.n} ".encode() + data.tobytes()).digest()

    def counted(self, start: int, stop: int) -> int:
        """How many rows there are from start to stop."""
        if self.rows is not None:
            low, high = np.searchsorted(self.rows, [start, stop])
            return int(high - low)
        assert self.bits is not None
        whole = self.bits[-(-start // 8) : stop // 8]
        if start // 8 == stop // 8:
            return int(np.count_nonzero(self.mask(start, stop)))
        edges = (self.mask(start, -(-start // 8) * 8), self.mask(stop // 8 * 8, stop))
        return int(np.bitwise_count(whole).sum(dtype=np.int64)) + sum(
            int(np.count_nonzero(edge)) for edge in edges
        )

    def between(self, start: int, stop: int) -> NDArray[np.int64]:
        """The numbers of the rows from start to stop, ascending."""
        if self.rows is not None:
            low, high = np.searchsorted(self.rows, [start, stop])
            return self.rows[low:high]
        parts = [
            low + np.flatnonzero(self.mask(low, min(low + _BLOCK, stop)))
            for low in range(start, stop, _BLOCK)
        ]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which rows from start to stop are in the set, (stop - start,)."""
        if self.rows is not None:
            found = np.zeros(stop - start, dtype=bool)
            found[self.between(start, stop) - start] = True
            return found
        assert self.bits is not None
        first = start // 8
        bits = np.unpackbits(self.bits[first : -(-stop // 8)])
        return bits[start - 8 * first : stop - 8 * first].view(bool)

    def has(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some rows are in the set."""
        if self.bits is not None:
            return np.asarray(self.bits[rows >> 3] & (128 >> (rows & 7)).astype(np.uint8) != 0)
        assert self.rows is not None
        if len(self.rows) == 0:
            return np.zeros(np.shape(rows), dtype=bool)
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.asarray(self.rows[at] == rows)

    def taken(self, rows: NDArray[np.int64]) -> RowSet:
        """The set by the numbers that the rows have in another order: row i is `rows[i]` here."""
        bits = [
            np.packbits(self.has(rows[low : low + _BLOCK])) for low in range(0, len(rows), _BLOCK)
        ]
        return RowSet.of_bits(len(rows), np.concatenate([np.empty(0, np.uint8), *bits]))


@dataclass(frozen=True, eq=False)
class Allowed:
    """What each of m queries may find, as one set of rows for each different filter.

    sets: over the same n rows. which (m,): the set of each query; None where all have the first.
    says: what each filter says, "" where it has no words. ids (n,): the ids of the rows; None where
    they are those of the base, in its order. queries (m,): their ids; None where they are those
    searched with, in their order.
    """

    sets: tuple[RowSet, ...]
    which: NDArray[np.int64] | None = None
    says: tuple[str, ...] = ()
    ids: Ids | None = None
    queries: Ids | None = None

    @classmethod
    def of_bits(
        cls,
        bits: NDArray[np.uint8],
        n: int,
        *,
        order: Literal["big", "little"],
        query_ids: Any = None,
    ) -> Allowed:
        """From packed bits, (bytes,) for all queries or (n_queries, bytes).

        order: where the first of eight rows is: "big", in the highest bit (numpy.packbits), or
            "little", in the lowest (faiss, Arrow).

        Raises InputError for another type, another length than n rows have, and bits set beyond n.
        """
        if order not in ("big", "little"):
            raise InputError(f"the order of bits is {order!r}; expected 'big' or 'little'")
        bits = np.asarray(bits)
        if bits.dtype != np.uint8 or bits.ndim not in (1, 2) or bits.shape[-1] != -(-n // 8):
            raise InputError(
                f"bits are {bits.dtype} of shape {bits.shape}; expected uint8 with "
                f"{-(-n // 8):,} bytes a filter, for {n:,} rows"
            )
        sets = []
        for line in np.atleast_2d(bits):
            mine = line if order == "big" else np.packbits(np.unpackbits(line, bitorder="little"))
            if n % 8 and mine[-1] & (255 >> n % 8):
                raise InputError(
                    f"bits beyond the {n:,} rows are set",
                    hint=f"is the order of bits {order!r}, and is the filter of this base?",
                )
            sets.append(RowSet.of_bits(n, np.array(mine)))
        if bits.ndim == 1:
            return cls(tuple(sets))
        names = None if query_ids is None else ids(query_ids, what="query ids")
        return cls.shared(sets, queries=names)

    @classmethod
    def shared(
        cls, sets: Sequence[RowSet], *, ids: Ids | None = None, queries: Ids | None = None
    ) -> Allowed:
        """From a set for each query; equal ones are kept once."""
        place: dict[bytes, int] = {}
        which = np.array(
            [place.setdefault(rows.digest, len(place)) for rows in sets], dtype=np.int64
        )
        distinct = [sets[int(at)] for at in np.unique(which, return_index=True)[1]]
        return cls(tuple(distinct), which, (), ids, queries)


def filtered(identity: Mapping[str, Any]) -> bool | None:
    """Whether a run of this identity was made with filters; None where it does not say."""
    return bool(identity["filter"]) if "filter" in identity else None


def filter_mismatch(truth: bool | None, run: bool | None, name: str) -> str:
    """What is odd about a truth and a run where only one is filtered; "" if nothing is.

    truth, run: whether they are, None where it is not known. name: what the run is called.
    Raises MismatchError where results were filtered and the truth was not: then neighbours that
    no filter allows count as missed.
    """
    if run and truth is False:
        raise MismatchError(
            f"{name} is searched with filters, the truth was made without",
            hint="make the truth with the same filters: semrecall truth --filter, --filter-column",
        )
    if truth and run is False:
        return (
            f"{name} was searched without filters, the truth was made with some: what they do not "
            "allow is never right"
        )
    return ""
