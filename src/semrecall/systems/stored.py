"""What adapters of databases share: answers with gaps, vectors read in pages, options of specs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.ids import ids as as_ids
from semrecall.errors import InputError, SystemFault
from semrecall.space import Space
from semrecall.systems.base import searchable, warn_left_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.systems.units import Unit

__all__ = ["Pages", "answer", "flag", "stored_blocks"]

_BLOCK_BYTES = 16 << 20


def answer(
    found: Sequence[tuple[Sequence[Any] | NDArray[Any], Sequence[Any] | NDArray[Any]]],
    unit: Unit,
    *,
    integer_ids: bool | None = None,
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Ids and scores (n, longest) in the natural unit of the space; best first, the rest missing.

    found: per query ids and scores in `unit`; None or NaN is a result without a score (a zero
    vector under cosine, a row without a vector) and no result.
    integer_ids: None where they are integers when all that were found are written as such.
    """
    names = [list(ids) for ids, _ in found]
    sizes = [len(row) for row in names]
    if integer_ids is None:
        flat = as_ids([i for row in names for i in row])
        integer_ids, every = flat.are_integers, iter(flat.array().tolist())
        names = [list(islice(every, size)) for size in sizes]
    kind: Any = np.int64 if integer_ids else np.dtypes.StringDType()
    told = np.full((len(found), max(sizes, default=0)), np.nan)
    ids: NDArray[Any] = np.full(told.shape, -1 if integer_ids else "", dtype=kind)
    for row, (_, scores) in enumerate(found):
        told[row, : sizes[row]] = np.array(scores, dtype=np.float64)
        ids[row, : sizes[row]] = np.asarray(names[row], dtype=kind)
    natural = np.asarray(unit.convert(told))
    order = np.argsort(unit.space.sort_key(natural), axis=1, kind="stable")
    natural, ids = np.take_along_axis(natural, order, 1), np.take_along_axis(ids, order, 1)
    ids[np.isnan(natural)] = -1 if integer_ids else ""
    return ids, natural


class Pages:
    """Blocks of vectors that are read from a table or collection anew with every pass.

    read: gives (keys, vectors) of the rows in one order, a block at a time. keys: those of the
    first pass, (n,). Raises SystemFault when the rows are others than they were.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[tuple[NDArray[Any], NDArray[Any]]]],
        keys: NDArray[Any],
        where: str,
    ) -> None:
        self._read, self._keys, self._where = read, keys, where

    def __iter__(self) -> Iterator[NDArray[Any]]:
        start = 0
        for keys, block in self._read():
            stop = start + len(keys)
            if not np.array_equal(keys, self._keys[start:stop]):
                raise self._changed()
            yield block
            start = stop
        if start != len(self._keys):
            raise self._changed()

    def _changed(self) -> SystemFault:
        return SystemFault(
            f"{self._where!r} changed while it was read",
            hint="try again while nobody writes to it, or read a copy",
        )


def stored_blocks(
    base: Vectors, space: Space, rows: int | None = None
) -> Iterator[tuple[list[Any], NDArray[np.float32]]]:
    """Ids and vectors (m, d) as float32 of the rows that can be searched, a block at a time.

    rows: of a block; as many as fit into some megabytes when None. Ids are all integers or all
    texts. The others are left out with a warning at the end.
    """
    own = None if base.length is None else base.ids
    kept: list[NDArray[np.int64]] = []
    total = 0
    for start, block in base.blocks(rows or max(1, _BLOCK_BYTES // (4 * base.dimension))):
        usable = searchable(block, space)
        there = start + np.flatnonzero(usable)
        kept.append(there)
        total = start + len(block)
        ids: NDArray[Any] = there if own is None else own[there].array()
        yield ids.tolist(), np.ascontiguousarray(block[usable], dtype=np.float32)
        base.release()
    warn_left_out(
        np.concatenate([*kept, np.empty(0, np.int64)]),
        total,
        own if own is not None else Ids(np.arange(total)),
    )


def flag(given: str | bool, name: str) -> bool:
    """True or false of an option."""
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(given).lower() not in known:
        raise InputError(f"{name} is {given!r}; expected true or false")
    return known[str(given).lower()]
