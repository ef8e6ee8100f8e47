"""What indexes held by a library in this process share: ids, left-out rows, normalising."""

from __future__ import annotations

import copy
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.ids import ids as ids_of
from semrecall.errors import InputError, MismatchError
from semrecall.space import space as space_of
from semrecall.systems.base import (
    Knob,
    System,
    as_asked,
    as_compared,
    usable_blocks,
    warn_left_out,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = [
    "InProcessSystem",
    "chosen",
    "existing",
    "only_for_saved",
]

#: From here on a key does not fit into a 64-bit integer with a sign.
_WIDE = 1 << 63


class InProcessSystem(System):
    """An index of a library. An adapter says how to fill, to ask and to read it.

    Inside, a vector goes by a key: its id where all ids of the base are integers and the library
    keeps keys, else its row number. Under cosine, vectors and queries are scaled to length one.
    NaN and infinite rows, and zero rows under cosine, are left out with a warning.

    An index that was given (`index`, from a file or in memory) keeps its keys as ids, until it is
    given `ids`, or `build` with the base it was made from: then its keys are row numbers of these.
    """

    #: What the library is called, in errors and in `describe`.
    library: ClassVar[str]
    #: Whether the library keeps keys of ours; else keys are positions.
    keeps_keys: ClassVar[bool] = True

    _index: Any = None
    _given: bool = False
    _space: Space
    _dimension: int
    _size: int
    #: Ids by key, and one more for a missing result; None where keys are the ids.
    _table: NDArray[Any] | None = None
    #: Whether keys are too large for signed integers, so that ids are their digits.
    _wide: bool = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    # -- what an adapter says -------------------------------------------------------------

    @property
    @abstractmethod
    def build_knobs(self) -> tuple[Knob, ...]:
        """What can be turned while building."""

    @property
    @abstractmethod
    def search_knobs(self) -> tuple[Knob, ...]:
        """What can be turned in a search of the index there is."""

    @abstractmethod
    def _fill(
        self, blocks: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]], **knobs: Any
    ) -> Any:
        """An index over blocks of keys (m,) and vectors (m, d), in the space of this system."""

    @abstractmethod
    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32] | None, NDArray[np.int64]]:
        """Keys (n, w), scores (n, w) in our units or None, and how many of each row count, (n,)."""

    @abstractmethod
    def _keys(self) -> NDArray[np.uint64]:
        """The keys it holds, (ntotal,), rising."""

    @abstractmethod
    def _stored(self, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
        """The vectors of these keys as the index holds them, decoded, (m, d)."""

    @property
    def _quantised(self) -> bool:
        """Whether it holds something else than float32 vectors."""
        return False

    # -- what it is -----------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs, unless the index was given; and search knobs once there is an index."""
        build = () if self._given else self.build_knobs
        return build + (self.search_knobs if self.built else ())

    @property
    def built(self) -> bool:
        """Whether there is an index."""
        return self._index is not None

    @property
    def space(self) -> Space:
        """The geometry of the scores."""
        self._held()
        return self._space

    @property
    def dimension(self) -> int:
        """Dimensions of the vectors."""
        self._held()
        return self._dimension

    @property
    def ntotal(self) -> int:
        """How many vectors the index holds."""
        self._held()
        return self._size

    def _held(self) -> Any:
        if self._index is None:
            raise InputError(
                f"the system {self.spec or self.library!r} is empty",
                hint="call build(base, space) first",
            )
        return self._index

    def describe(self) -> dict[str, Any]:
        """Version, size, and how it was built."""
        from importlib.metadata import version

        self._held()
        return {
            "system": self.library,
            "version": version(self.library),
            "space": self._space.name,
            "rows": self._size,
            "dimension": self._dimension,
            **self._made,
        }

    # -- made -----------------------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """The index over these vectors, of any stored type, taken as float32 a block at a time.

        An index that was given is not built again: it takes on the ids of the base it was built
        from, and MismatchError says when it cannot have been.
        """
        given = self.turned("build", knobs)
        vectors, geometry = Vectors.of(base), space_of(space)
        made = copy.copy(self)
        made._lock = threading.RLock()
        if self._given:
            made._lock = self._lock
            made._check_base(vectors, geometry)
            made._name(vectors.ids if ids is None else ids_of(ids))
            return made
        own = _ids_of_base(vectors, ids)
        reading = _Reading(vectors, geometry, own if self.keeps_keys and _are_keys(own) else None)
        started = time.perf_counter()
        made._space, made._dimension = geometry, vectors.dimension
        made._index = made._fill(reading.blocks(), **given)
        seconds = time.perf_counter() - started
        made._size = len(reading.rows)
        if own is None:
            own = Ids(np.arange(reading.total))
        warn_left_out(reading.rows, reading.total, own)
        if not self.keeps_keys:
            made._table = _with_missing(own[reading.rows])
        elif not _are_keys(own):
            made._table = _with_missing(own)
        made._made = {**self._made, **given, "build_seconds": seconds}
        return made

    def _take(
        self, index: Any, space: Space, dimension: int, size: int, ids: Any, **made: Any
    ) -> None:
        """Search this index, which exists already."""
        self._index, self._space, self._dimension, self._size = index, space, dimension, size
        self._given = True
        self._made = {key: value for key, value in made.items() if value is not None}
        if not size:
            raise InputError(f"the {self.library} index is empty")
        if self.keeps_keys:
            self._wide = int(self._keys()[-1]) >= _WIDE
        if ids is not None:
            self._name(ids_of(ids))

    def _check_base(self, base: Vectors, space: Space) -> None:
        if base.dimension != self._dimension:
            raise MismatchError(
                f"the base has {base.dimension} dimensions, the {self.library} index "
                f"{self._dimension}"
            )
        if space != self._space:
            raise MismatchError(
                f"the {self.library} index compares by {self._space}; found space {space}"
            )

    def _name(self, given: Ids) -> None:
        """Call the keys by these ids, by row number; its own keys are kept against integers."""
        keys = self._keys()
        numbered = np.array_equal(keys, np.arange(len(keys), dtype=np.uint64))
        if given.are_integers and not numbered:
            return
        if int(keys[-1]) >= len(given):
            raise MismatchError(
                f"the {self.library} index has a key {int(keys[-1]):,}, and there are "
                f"{len(given):,} ids to call its rows by",
                hint="give the ids of the whole base, or none to keep the keys",
            )
        self._table, self._wide = _with_missing(given), False

    # -- searched -------------------------------------------------------------------------

    def search(
        self, queries: NDArray[np.float32], k: int, **settings: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k), missing ones -1 or "" where fewer were found, and scores."""
        matrix = self._asked(queries, k)
        wanted = self.turned("search", settings)
        with self._lock:
            found = self._ask(matrix, min(k, self._size), wanted)
        return self._answer(*found)

    def _asked(self, queries: NDArray[np.float32], k: int) -> NDArray[np.float32]:
        """Queries as they are compared; InputError for k < 1, MismatchError for their shape."""
        who = f"the {self.library} index"
        return as_compared(as_asked(queries, k, self.dimension, who), self._space)

    def _answer(
        self, keys: NDArray[Any], scores: NDArray[np.float32] | None, counts: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        missing = np.arange(keys.shape[1]) >= counts[:, None]
        if scores is not None:
            scores = np.where(missing, np.float32(np.nan), scores)
        return self._external(keys, missing), scores

    def _external(self, keys: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
        """The ids of keys, which are missing where `missing` says so."""
        if self._wide:
            digits = keys.astype(np.dtypes.StringDType())
            digits[missing] = ""
            return digits
        plain = np.where(missing, 0, keys).astype(np.int64)
        plain[missing] = -1
        return plain if self._table is None else self._table[plain]

    def codes(self) -> Vectors | None:
        """What the index holds, decoded; None where vectors are held as float32."""
        self._held()
        return self._given_out() if self._quantised else None

    def vectors(self) -> Vectors:
        """The vectors it holds, under cosine scaled to length one; InputError when quantised."""
        self._held()
        if self._quantised:
            raise InputError(
                f"{self.spec or self.library} holds quantised vectors, not those it was given"
            )
        return self._given_out()

    def _given_out(self) -> Vectors:
        keys = self._keys()
        ids = self._external(keys[:, None], np.zeros((len(keys), 1), dtype=bool))[:, 0]
        return Vectors.of(self._stored(keys), ids=ids)


class _Reading:
    """One pass over a base: blocks of keys and searchable vectors, and what was read.

    rows: numbers of the rows that can be searched, and `total`: of all rows, at the end.
    """

    def __init__(self, base: Vectors, space: Space, own: Ids | None) -> None:
        self._base, self._space, self._own = base, space, own
        self._parts: list[NDArray[np.int64]] = []
        self.total = 0

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.concatenate([np.empty(0, dtype=np.int64), *self._parts])

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        found = False
        for total, rows, block in usable_blocks(self._base, self._space):
            self.total = total
            self._parts.append(rows)
            if len(rows):
                found = True
                yield rows if self._own is None else self._own.codes[rows], block
        if not found:
            raise InputError("the base has no vector that can be searched")


def chosen(value: str, allowed: Mapping[str, Any] | tuple[str, ...], what: str) -> str:
    """The value of an option that is one of a few words; InputError naming them."""
    if value not in allowed:
        raise InputError(f"{what} is {value!r}; expected {', '.join(allowed)}")
    return value


def existing(path: str | Path, what: str) -> Path:
    """The path of a saved index; InputError when nothing is there."""
    found = Path(path)
    if not found.exists():
        raise InputError(f"{found}: no such file; expected {what}")
    return found


def only_for_saved(space: Any, ids: Any) -> None:
    """InputError where a space or ids are given to a system that is still to be built."""
    if space is not None or ids is not None:
        raise InputError(
            "space and ids belong to a saved index; give them to build(base, space, ids)"
        )


def _ids_of_base(base: Vectors, ids: Any) -> Ids | None:
    """Ids of the rows, distinct; None for a stream without any, whose length is not known."""
    if ids is None:
        return None if base.length is None else base.ids
    return Vectors.of(base, ids=ids).ids if base.matrix is not None else ids_of(ids)


def _are_keys(own: Ids | None) -> bool:
    """Whether ids can be keys: integers, which are never negative. Row numbers can."""
    return own is None or own.are_integers


def _with_missing(column: Ids) -> NDArray[Any]:
    """Ids by key; the last entry stands for -1, a missing result."""
    return column.array(np.append(column.codes, -1))
