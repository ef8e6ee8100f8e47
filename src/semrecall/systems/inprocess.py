"""What indexes held by a library in this process share: ids, left-out rows, normalising, files."""

from __future__ import annotations

import copy
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.vectors import row_ids
from semrecall.errors import (
    InputError,
    MismatchError,
    SemrecallError,
    SemrecallWarning,
    SystemFault,
)
from semrecall.formats import writing
from semrecall.registry import import_extra
from semrecall.space import space as space_of
from semrecall.systems.base import (
    Counters,
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

__all__ = ["Found", "InProcessSystem", "Rows", "chosen", "warn_of_replay"]

#: From here on a key does not fit into a 64-bit integer with a sign.
_WIDE = 1 << 63

#: Keys (n, w), scores (n, w) in the natural unit or None, and which are no results, (n, w).
Found = tuple["NDArray[Any]", "NDArray[np.float32] | None", "NDArray[np.bool_]"]


class InProcessSystem(System):
    """An index of a library. An adapter says how to fill, to ask, to read and to write it.

    Inside, a vector goes by a key: its id where all ids of the base are integers and the library
    keeps keys, else its row number. Under cosine, vectors and queries are scaled to length one.
    NaN and infinite rows, and zero rows under cosine, are left out with a warning.

    An index that was given (`index`, from a file or in memory) keeps its keys as ids, until it is
    given `ids`, or `build` with the base it was made from: then its keys are row numbers of these.
    """

    #: What the library is called, in errors and in `describe`.
    library: ClassVar[str]
    #: The spaces that an index may be asked in, by its metric; the first is what it is taken for.
    spaces: ClassVar[Mapping[str, Sequence[str]]] = {"ip": ("ip", "cosine"), "l2": ("l2",)}
    #: What the file of a saved index must be.
    file: ClassVar[str] = "a whole file that the library itself wrote"

    #: Whether the library keeps keys of ours; else keys are positions.
    keeps_keys: bool = True

    _index: Any = None
    _given: bool = False
    _space: Space
    #: The spaces that an index that was given may be asked in.
    _fitting: Sequence[str]
    _dimension: int
    _size: int
    #: Ids by key, and one more for a missing result; None where keys are the ids.
    _table: NDArray[Any] | None = None
    #: Whether keys are too large for signed integers, so that ids are their digits.
    _wide: bool = False

    def __init__(self) -> None:
        self._lock = self._own_lock()
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
    def _fill(self, rows: Rows, **knobs: Any) -> Any:
        """An index over these rows, in the space of this system."""

    @abstractmethod
    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Found:
        """What the index finds, with these search knobs for this once."""

    def _count(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]
    ) -> Counters | None:
        """What it costs to ask so."""
        return None

    @abstractmethod
    def _learn(self, index: Any) -> tuple[str, int]:
        """The metric and the dimensions of an index that exists."""

    @abstractmethod
    def _read(self, path: str, space: str | Space | None) -> Any:
        """The index in a file; RuntimeError or ValueError where the library cannot read it."""

    @abstractmethod
    def _write(self, path: str) -> None:
        """Write the index to a file; RuntimeError where that fails."""

    @abstractmethod
    def _keys(self) -> NDArray[Any]:
        """The keys it holds, (ntotal,), in the order of `_stored`."""

    @abstractmethod
    def _stored(self) -> NDArray[np.float32]:
        """The vectors as the index holds them, decoded, (ntotal, d)."""

    @property
    def _quantised(self) -> bool:
        """Whether it holds something else than float32 vectors."""
        return False

    def _told(self) -> dict[str, Any]:
        """What else to record of the index."""
        return {}

    @staticmethod
    def _own_lock() -> threading.RLock:
        """What one thread at a time holds to work with an index."""
        return threading.RLock()

    def _version(self) -> str:
        from importlib.metadata import version

        return version(self.library)

    @staticmethod
    def _reason(error: Exception) -> str:
        """What the library says of an error."""
        return str(error)

    @classmethod
    def _package(cls, module: str | None = None) -> Any:
        """The library, or one of its modules."""
        return import_extra(module or cls.library, cls.library, f"the system {cls.library!r}")

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
        """Version, make, size, and how it was built."""
        self._held()
        return {
            "system": self.library,
            "version": self._version(),
            "space": self._space.name,
            "rows": self._size,
            "dimension": self._dimension,
            **self._made,
            **self._told(),
        }

    # -- made -----------------------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """The index over these vectors, of any stored type, taken as float32 a block at a time.

        An index that was given is not built again: it takes on the ids of the base it was built
        from, and MismatchError says when it cannot have been.
        """
        given = self.turned("build", knobs)
        vectors, made = Vectors.of(base), copy.copy(self)
        if self._given:
            made._check_base(vectors, space_of(space))
            made._name(vectors.ids if ids is None else ids)
            return made
        own: Ids | None = None
        if ids is not None:
            own = row_ids(ids, vectors.length)
        elif vectors.length is not None:
            own = vectors.ids
        made._lock = self._own_lock()
        made._space, made._dimension = space_of(space), vectors.dimension
        made._made = {**self._made, **given}
        # Integers, which are never negative, can be keys.
        are_keys = self.keeps_keys and own is not None and own.are_integers
        rows = Rows(vectors, made._space, own if are_keys else None)
        started = time.perf_counter()
        made._index = made._fill(rows, **given)
        made._made["build_seconds"] = time.perf_counter() - started
        made._size = len(rows.kept)
        if own is None:
            own = Ids(np.arange(rows.total))
        elif len(own) != rows.total:
            raise InputError(f"{len(own):,} ids for {rows.total:,} vectors")
        warn_left_out(rows.kept, rows.total, own)
        made._table = None
        if not self.keeps_keys:
            made._table = _with_missing(own[rows.kept])
        elif not own.are_integers:
            made._table = _with_missing(own)
        return made

    def _open(self, index: Any, space: str | Space | None, ids: Any, **own: Any) -> None:
        """Search an index that exists, in memory or in a file; nothing when `index` is None.

        own: options of an index that is built here, None each where an index is given.
        """
        if index is None:
            if space is not None or ids is not None:
                raise InputError(
                    "space and ids belong to a saved index; give them to build(base, space, ids)"
                )
            return
        for name, value in own.items():
            if value is not None:
                raise InputError(f"a saved {self.library} index has its own {name}")
        if isinstance(index, str | Path):
            self._made["file"] = str(index)
            index = self._from_file(Path(index), space)
        self._index, self._given = index, True
        metric, self._dimension = self._learn(index)
        self._fitting = self.spaces.get(metric, ())
        if not self._fitting:
            raise InputError(
                f"the {self.library} index compares by its metric {metric}; "
                "expected inner product (ip, cosine) or L2 (l2)"
            )
        self._check_space(space_of(space or self._fitting[0]), metric)
        keys = self._keys()
        self._size = len(keys)
        if not self._size:
            raise InputError(f"the {self.library} index is empty")
        self._wide = int(keys.max()) >= _WIDE
        if ids is not None:
            self._name(ids)

    def _from_file(self, path: Path, space: str | Space | None) -> Any:
        if not path.exists():
            raise InputError(f"{path}: no such file; expected a saved {self.library} index")
        try:
            return self._read(str(path), space)
        except SemrecallError:
            raise
        except (RuntimeError, ValueError, OSError) as error:
            raise InputError(
                f"{path}: {self.library} cannot read this index: {self._reason(error)}",
                hint=f"expected {self.file}",
            ) from error

    def _check_space(self, space: Space, metric: str) -> None:
        """Take the space, where the metric of the index serves it."""
        if space.name not in self._fitting:
            raise MismatchError(
                f"the {self.library} index compares by {metric}; found space {space}",
                hint="over unit vectors l2 ranks as cosine does; open the index with space l2"
                if space.name == "cosine"
                else f"expected {' or '.join(self._fitting)}",
            )
        self._space = space

    def _check_base(self, base: Vectors, space: Space) -> None:
        if base.dimension != self._dimension:
            raise MismatchError(
                f"the base has {base.dimension} dimensions, the {self.library} index "
                f"{self._dimension}"
            )
        self._check_space(space, self._space.name)

    def _name(self, ids: Any) -> None:
        """Call the keys by these ids, by row number; its own keys are kept against integers."""
        given, keys = row_ids(ids, None), self._keys()
        if given.are_integers and not np.array_equal(keys, np.arange(len(keys))):
            return
        if not self.keeps_keys and len(given) != self._size:
            raise MismatchError(
                f"{len(given):,} ids for the {self._size:,} rows of the {self.library} index",
                hint="give the ids of the rows that it holds, in order",
            )
        most = int(keys.max())
        if most >= len(given):
            raise MismatchError(
                f"the {self.library} index has a key {most:,}, and there are "
                f"{len(given):,} ids to call its rows by",
                hint="give the ids of the whole base, or none to keep the keys",
            )
        self._table, self._wide = _with_missing(given), False

    def save(self, path: str | Path) -> None:
        """Write the index to a file of the library; integer ids go along, others do not."""
        self._held()
        with writing(Path(path)) as scratch:
            try:
                self._write(str(scratch))
            except RuntimeError as error:
                raise InputError(
                    f"{path}: {self.library} cannot write the index: {self._reason(error)}",
                    hint="is there room for it on the disk?",
                ) from error

    # -- searched -------------------------------------------------------------------------

    def search(
        self, queries: NDArray[np.float32], k: int, **settings: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k), missing ones -1 or "" where fewer were found, and scores."""
        return self._search(queries, k, settings)

    def _search(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        matrix, wanted = self._asked(queries, k), self.turned("search", settings)
        with self._working():
            found = self._ask(matrix, min(k, self._size), wanted, **more)
        return self._answer(found)

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters | None:
        """What such a search costs, as the library or a replay counts it."""
        matrix, wanted = self._asked(queries, k), self.turned("search", settings)
        with self._working():
            return self._count(matrix, min(k, self._size), wanted)

    def _asked(self, queries: NDArray[np.float32], k: int = 1) -> NDArray[np.float32]:
        """Queries as they are compared; InputError for k < 1, MismatchError for their shape."""
        who = f"the {self.library} index"
        return as_compared(as_asked(queries, k, self.dimension, who), self._space)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """While the library works: one thread at a time, and its errors are faults."""
        with self._lock:
            try:
                yield
            except RuntimeError as error:
                raise SystemFault(f"{self.library} failed: {self._reason(error)}") from error

    def _natural(self, told: NDArray[np.float32]) -> NDArray[np.float32]:
        """Inner products, or squared distances, in the natural unit."""
        # Rounding can leave a squared distance a little below zero.
        return np.sqrt(np.maximum(told, 0)) if self._space.name == "l2" else told

    def _answer(self, found: Found) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        keys, scores, missing = found
        if scores is not None:
            scores = np.where(missing, np.float32(np.nan), scores)
        return self._external(keys, missing), scores

    def _external(self, keys: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
        """The ids of keys, which are missing where `missing` says so."""
        if self._wide:
            digits = keys.astype(np.dtypes.StringDType())
            digits[missing] = ""
            return digits
        plain = np.where(missing, -1, keys.astype(np.int64, copy=False))
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
        return Vectors.of(self._stored(), ids=self._external(keys, np.zeros(len(keys), dtype=bool)))


class Rows:
    """One pass over a base: blocks of keys and searchable vectors, and what was read.

    base, space: what is read, and how it is compared. kept: numbers of the rows that can be
    searched, and total: of all rows, both at the end.
    """

    def __init__(self, base: Vectors, space: Space, own: Ids | None) -> None:
        """own: ids of the rows that are their keys; None where row numbers are."""
        self.base, self.space, self._own = base, space, own
        self.kept = np.empty(0, dtype=np.int64)
        self.total = 0

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Keys (m,) and vectors (m, d); InputError where not one can be searched."""
        parts = [self.kept]
        for total, rows, block in usable_blocks(self.base, self.space):
            self.total = total
            parts.append(rows)
            if len(rows):
                # A stream may turn out longer than its ids, which is an error at its end.
                keys = rows if self._own is None else self._own.codes.take(rows, mode="clip")
                yield keys, block
        self.kept = np.concatenate(parts)
        if not len(self.kept):
            raise InputError("the base has no vector that can be searched")


def chosen(value: str, allowed: Mapping[str, Any], what: str) -> str:
    """The value of an option that is one of a few words; InputError naming them."""
    if value not in allowed:
        raise InputError(f"{what} is {value!r}; expected {', '.join(allowed)}")
    return value


def warn_of_replay(what: str, found: str, library: str) -> None:
    """Say that a replay found something else than the library did, so that costs are unknown."""
    warnings.warn(
        f"replaying {what} found other {found} than {library}: what its searches cost is unknown",
        SemrecallWarning,
        stacklevel=4,
    )


def _with_missing(column: Ids) -> NDArray[Any]:
    """Ids by key; the last entry stands for -1, a missing result."""
    return column.array(np.append(column.codes, -1))
