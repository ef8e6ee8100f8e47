"""faiss: any index, by factory string or from a file."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.ids import ids as ids_of
from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob, System, as_asked, as_compared, warn_left_out
from semrecall.systems.faiss_build import (
    BUILD_KNOBS,
    build_index,
    build_lines,
    read_index,
    reason,
    write_index,
)
from semrecall.systems.faiss_index import (
    dials,
    faiss,
    id_map,
    kept,
    list_ids,
    memory_bytes,
    name_of,
    stages,
)
from semrecall.systems.faiss_rounds import FaissRounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["FaissSystem"]

#: How knobs are set that faiss's own parameter space does not know by their names.
_WRITTEN = {
    "k_factor": 'faiss.ParameterSpace().set_index_parameter(index, "k_factor_rf", {value})',
    "search_L": "faiss.downcast_index(index).nsg.search_L = {value}",
    "qb": "faiss.downcast_index(faiss.extract_index_ivf(index)).qb = {value}",
}


class FaissSystem(System):
    """A faiss index.

    Built from a factory string, read from a file, or put around an index in memory. Under
    cosine, vectors and queries are normalised and compared by inner product; Euclidean distances
    come out as distances, not squares. Row numbers live inside faiss, the ids of the base
    outside; an index with an id map, or with ids of its own in its lists, keeps those. NaN and
    infinite rows, and zero rows under cosine, are left out with a warning.

    ids: of an index in memory or in a file, by position; needed anew after `remove_ids`, which
    renumbers the rows that remain. Without them, ids are those that faiss returns.
    """

    options: ClassVar = {
        "factory": "faiss factory string, e.g. IVF256,SQ8",
        "index": "file of a saved index, or a faiss index in memory",
        "space": "ip, cosine or l2, for a saved index",
        "ids": "ids of the rows of a saved index, by position",
    }

    #: One for all: counters of faiss are those of the process, and systems may share an index.
    _lock: ClassVar = threading.RLock()
    _index: Any = None
    _space: Space
    #: Ids by label, and one more for -1; None where labels are the ids.
    _table: NDArray[Any] | None = None
    #: Row numbers of the base by position; None where they are the positions.
    _rows: NDArray[np.int64] | None = None

    def __init__(
        self,
        factory: str | None = None,
        index: Any = None,
        space: str | Space | None = None,
        ids: Any = None,
    ) -> None:
        self._made: dict[str, Any] = {}
        self.factory = factory
        if (factory is None) == (index is None):
            raise InputError(
                "the system 'faiss' needs a factory string or the file of a saved index",
                hint='for example "faiss?factory=IVF256,SQ8" or "faiss?index=path.faiss"',
            )
        if index is None and (space is not None or ids is not None):
            raise InputError(
                "space and ids belong to a saved index; give them to build(base, space, ids)"
            )
        if isinstance(index, str | Path):
            self._made["file"] = str(index)
            index = read_index(Path(index))
        if index is not None:
            self._take(index, space)
            self._adopt(ids)

    # -- what it is -----------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs, and the search knobs of the index once there is one."""
        build = BUILD_KNOBS if self.factory is not None else ()
        return build + tuple(dial.knob for dial in (self._dials if self.built else ()))

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
        return int(self._held().d)

    @property
    def ntotal(self) -> int:
        """How many vectors the index holds."""
        return int(self._held().ntotal)

    def _held(self) -> Any:
        if self._index is None:
            raise InputError(
                f"the system {self.spec or 'faiss'!r} is empty",
                hint="call build(base, space) first",
            )
        return self._index

    def describe(self) -> dict[str, Any]:
        """Version, make, size, threads, and how it was built."""
        index = self._held()
        return {
            "system": "faiss",
            "version": faiss.__version__,
            "index": name_of(index),
            "space": self._space.name,
            "rows": self.ntotal,
            "dimension": self.dimension,
            "memory_bytes": memory_bytes(index),
            "threads": faiss.omp_get_max_threads(),
            **self._made,
        }

    # -- made -----------------------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """The index over these vectors, by the factory string.

        base: Vectors or an array (n, d) of any stored type, converted to float32 a block at a
        time. knobs: seed, train_rows, efConstruction, threads. Raises InputError for a factory
        string that faiss cannot read or that does not fit the data.

        A saved index is not built again: it takes on the ids of the base it was built from, and
        MismatchError says when it cannot have been.
        """
        given = self.turned("build", knobs)
        vectors, geometry = Vectors.of(base), space_of(space)
        made = copy.copy(self)
        if self.factory is None:
            made._check_base(vectors)
            made._take(self._held(), geometry)
            made._adopt(vectors.ids if ids is None else ids)
            return made
        started = time.perf_counter()
        new = build_index(self.factory, vectors, geometry, given)
        seconds = time.perf_counter() - started
        own = Ids(np.arange(new.total)) if vectors.length is None else vectors.ids
        own = own if ids is None else _checked_ids(ids, new.total)
        warn_left_out(new.rows, new.total, own)
        made._take(new.index, geometry)
        made._rows = None if len(new.rows) == new.total else new.rows
        made._table = _with_missing(own[new.rows])
        made._made = {"factory": self.factory, "seed": 1234, **given}
        made._made |= {"train_rows": new.trained_on, "build_seconds": seconds}
        return made

    def _check_base(self, base: Vectors) -> None:
        if base.dimension != self.dimension:
            raise MismatchError(
                f"the base has {base.dimension} dimensions, the saved index {self.dimension}"
            )

    def save(self, path: str | Path) -> None:
        """Write the index to a file of faiss.

        Integer ids go along, in an id map where they are not 0, 1, 2, ... faiss knows no
        strings: open the file and `build` it on the same base to have those back.
        """
        index, own = self._held(), self._rows
        if self._table is not None and self._table.dtype.kind == "i":
            own = self._table[:-1]
            own = None if np.array_equal(own, np.arange(len(own))) else own
        write_index(index, Path(path), own)

    def _take(self, index: Any, space: str | Space | None) -> None:
        # Not downcast: only the object that was given keeps the memory alive.
        self._index = index
        self._space = _space_of_index(index, space)
        self._dials = dials(index)
        self._size = int(index.ntotal)

    def _adopt(self, ids: Any) -> None:
        """Call the rows by these ids, (ntotal,) by position.

        An index with ids of its own keeps them where the given ones are integers; given strings,
        its own are row numbers of the base.
        """
        if ids is None:
            return
        given, own = ids_of(ids), _own_ids(self._index)
        if own is None:
            given = _checked_ids(given, self._size)
        elif given.are_integers:
            return
        elif len(own) and int(own.max()) >= len(given):
            raise MismatchError(
                f"the faiss index has an id {int(own.max()):,} of its own, and there are "
                f"{len(given):,} ids to call its rows by",
                hint="give the ids of the whole base, or none to keep the index's own",
            )
        self._table = _with_missing(given)

    # -- searched -------------------------------------------------------------------------

    def search(
        self, queries: NDArray[np.float32], k: int, **settings: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Ids (n, min(k, ntotal)), -1 or "" where faiss found fewer, and scores."""
        matrix = self._as_compared(queries, k)
        with self._turned_to(settings, k):
            try:
                raw, labels = self._index.search(matrix, min(k, self._size))
            except RuntimeError as error:
                raise SystemFault(f"faiss failed: {reason(error)}") from error
        return self._answer(raw, labels)

    def _answer(
        self, raw: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        # Rounding can leave a squared distance a little below zero.
        scores = np.sqrt(np.maximum(raw, 0)) if self._space.name == "l2" else raw
        scores[labels < 0] = np.nan
        return self._external(labels), scores

    def rounds(self, queries: NDArray[np.float32], k: int, **settings: Any) -> FaissRounds:
        """A search in inverted lists that goes on list by list; see `Rounds`.

        settings: those of the coarse search (nprobe, quantizer_...), which is done at once.
        """
        later = [n for n in settings if n != "nprobe" and not n.startswith("quantizer_")]
        if later:
            raise InputError(f"{later[0]} cannot be set for a search in rounds")
        matrix = self._as_compared(queries)
        with self._turned_to(settings, k):
            return FaissRounds(self._index, matrix, min(k, self._size), self._answer)

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters:
        """Distance computations and bytes by stage (see `faiss_index.stages`)."""
        matrix = self._as_compared(queries)
        with self._turned_to(settings, k):
            return Counters(stages(self._index, matrix, min(k, self._size)))

    def codes(self) -> Vectors | None:
        """What the last comparison reads, decoded; None for full vectors (Flat, RFlat)."""
        found = kept(self._held())
        if found.vectors is None:
            return None
        labels = found.labels
        if labels is None:
            mapped = id_map(self._index)
            labels = np.arange(len(found.vectors), dtype=np.int64) if mapped is None else mapped
        return Vectors.of(found.vectors, ids=self._external(labels))

    def view(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], Space]:
        """Queries normalised (cosine) and transformed (OPQ, PCA, ...), and ip for cosine."""
        seen = kept(self._held(), decode=False).view(self._as_compared(queries))
        return seen, space_of("ip") if self._space.name == "cosine" else self._space

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        usual = "faiss.ParameterSpace().set_index_parameter(index, {name!r}, {value})"
        lines = [
            _WRITTEN.get(name, usual).format(name=name, value=value)
            for name, value in settings.items()
        ]
        return "\n".join([*lines, "distances, labels = index.search(queries, k)"])

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        return build_lines(str(self.factory), self.dimension, self._space, knobs)

    def _as_compared(self, queries: NDArray[np.float32], k: int = 1) -> NDArray[np.float32]:
        index = self._held()
        matrix = as_asked(queries, k, index.d, "the faiss index")
        if index.ntotal != self._size:
            raise SystemFault(
                f"the faiss index holds {index.ntotal:,} vectors now and held {self._size:,} when "
                "it was opened; remove_ids renumbers the rows that remain",
                hint="open it again with the ids of the rows that remain: "
                'open_system("faiss", index=index, ids=remaining)',
            )
        return as_compared(matrix, self._space)

    @contextmanager
    def _turned_to(self, settings: Mapping[str, Any], k: int) -> Iterator[None]:
        """Set the knobs, and put them back, whatever happens."""
        wanted = self.turned("search", settings)
        with self._lock:
            before = [dial.get() for dial in self._dials]
            try:
                for dial in self._dials:
                    value = wanted.get(dial.knob.name, dial.get())
                    # No more candidates than vectors: some indexes never return otherwise.
                    most = max(1.0, self._size / k) if dial.knob.name == "k_factor" else value
                    dial.set(min(value, most))
                yield
            finally:
                for dial, value in zip(self._dials, before, strict=True):
                    dial.set(value)

    def _external(self, labels: NDArray[np.int64]) -> NDArray[Any]:
        if self._table is None:
            return labels
        if labels.size and int(labels.max()) >= len(self._table) - 1:
            raise MismatchError(
                f"faiss returned row {int(labels.max()):,}; ids were given for "
                f"{len(self._table) - 1:,} rows",
                hint="the index holds ids of its own: open it without ids",
            )
        return self._table[labels]


def _with_missing(column: Ids) -> NDArray[Any]:
    """Ids by position; the last entry stands for -1, the label of a missing result."""
    return column.array(np.append(column.codes, -1))


def _own_ids(index: Any) -> NDArray[np.int64] | None:
    """Ids that the index itself holds, where they are not just positions."""
    own = id_map(index)
    if own is not None:
        return own
    stored = list_ids(index)
    if stored is None or np.array_equal(stored, np.arange(len(stored))):
        return None
    return stored


def _checked_ids(given: Any, n: int) -> Ids:
    column = ids_of(given)
    if len(column) != n:
        raise MismatchError(
            f"{len(column):,} ids for the {n:,} rows of the faiss index",
            hint="after remove_ids the rows that remain are renumbered: give their ids in order",
        )
    twice = column.first_duplicate()
    if twice is not None or bool(column.missing.any()):
        what = "missing" if twice is None else f"twice: {column[twice[0]]!r}"
        raise InputError(f"an id of the base is {what}; expected distinct ids")
    return column


def _space_of_index(index: Any, wanted: str | Space | None) -> Space:
    """The space of an index: as its metric says; cosine is inner product over unit vectors."""
    names = {faiss.METRIC_INNER_PRODUCT: ("ip", "cosine"), faiss.METRIC_L2: ("l2",)}
    fitting = names.get(index.metric_type)
    if fitting is None:
        raise InputError(
            f"the faiss index compares by its metric {index.metric_type}; "
            "expected inner product (ip, cosine) or L2 (l2)"
        )
    geometry = space_of(wanted or fitting[0])
    if geometry.name not in fitting:
        raise MismatchError(
            f"the faiss index compares by {fitting[0]}; found space {geometry.name}",
            hint="over unit vectors l2 ranks as cosine does; open the index with space l2"
            if geometry.name == "cosine"
            else f"expected {' or '.join(fitting)}",
        )
    return geometry
