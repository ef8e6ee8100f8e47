"""faiss: any index, by factory string or from a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SystemFault
from semrecall.space import IP
from semrecall.systems.base import Counters, Knob
from semrecall.systems.faiss_build import (
    BUILD_KNOBS,
    build_index,
    build_lines,
    reason,
    with_ids,
)
from semrecall.systems.faiss_index import (
    compared_last,
    decoded,
    dials,
    faiss,
    is_flat,
    memory_bytes,
    name_of,
    own_ids,
    stages,
    transformed,
)
from semrecall.systems.faiss_rounds import FaissRounds
from semrecall.systems.inprocess import Found, InProcessSystem, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["FaissSystem"]

_METRICS = {faiss.METRIC_INNER_PRODUCT: "ip", faiss.METRIC_L2: "l2"}
#: How knobs are set that faiss's own parameter space does not know by their names.
_WRITTEN = {
    "k_factor": 'faiss.ParameterSpace().set_index_parameter(index, "k_factor_rf", {value})',
    "search_L": "faiss.downcast_index(index).nsg.search_L = {value}",
    "qb": "faiss.downcast_index(faiss.extract_index_ivf(index)).qb = {value}",
}
#: One for all: counters of faiss are those of the process, and systems may share an index.
_LOCK = threading.RLock()


class FaissSystem(InProcessSystem):
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
    library = "faiss"
    file = "a file that faiss.write_index wrote, whole and not of binary vectors"
    build_knobs = BUILD_KNOBS
    keeps_keys = False
    _reason = staticmethod(reason)

    #: Ids that an index from elsewhere has of its own.
    _own: NDArray[np.int64] | None = None
    #: Row numbers of the base by position; None where they are the positions.
    _rows: NDArray[np.int64] | None = None

    def __init__(
        self,
        factory: str | None = None,
        index: Any = None,
        space: str | Space | None = None,
        ids: Any = None,
    ) -> None:
        super().__init__()
        if (factory is None) == (index is None):
            raise InputError(
                "the system 'faiss' needs a factory string or the file of a saved index",
                hint='for example "faiss?factory=IVF256,SQ8" or "faiss?index=path.faiss"',
            )
        self.factory = factory
        self._open(index, space, ids)

    @staticmethod
    def _own_lock() -> threading.RLock:
        return _LOCK

    def _read(self, path: str, space: str | Space | None) -> Any:
        return faiss.read_index(path)

    def _learn(self, index: Any) -> tuple[str, int]:
        self._dials, self._own = dials(index), own_ids(index)
        self.keeps_keys = self._own is not None
        return _METRICS.get(index.metric_type, str(index.metric_type)), int(index.d)

    def _fill(self, rows: Rows, **knobs: Any) -> Any:
        index, trained_on = build_index(str(self.factory), rows, knobs)
        self._dials = dials(index)
        self._rows = None if len(rows.kept) == rows.total else rows.kept
        self._made = {"factory": self.factory, "seed": 1234, **knobs, "train_rows": trained_on}
        return index

    def _write(self, path: str) -> None:
        """Integer ids go along, in an id map where they are not 0, 1, 2, ...; strings do not."""
        index, own = self._index, self._rows
        if self._table is not None and self._table.dtype.kind == "i":
            own = self._table[:-1]
        if own is not None and not np.array_equal(own, np.arange(len(own))):
            index = with_ids(index, own)
        faiss.write_index(index, path)

    @property
    def search_knobs(self) -> tuple[Knob, ...]:
        """Those of its layers."""
        return tuple(dial.knob for dial in self._dials)

    @contextmanager
    def _turned_to(self, settings: Mapping[str, Any], k: int) -> Iterator[None]:
        """Set the knobs, and put them back, whatever happens."""
        turned = []
        try:
            for dial in self._dials:
                stands = dial.get()
                value = settings.get(dial.knob.name, stands)
                if dial.knob.name == "k_factor":
                    # No more candidates than vectors: some indexes never return otherwise.
                    value = min(value, max(1.0, self._size / k))
                if value != stands:
                    turned.append((dial, stands))
                    dial.set(value)
            yield
        finally:
            for dial, stands in turned:
                dial.set(stands)

    def _asked(self, queries: NDArray[np.float32], k: int = 1) -> NDArray[np.float32]:
        found = self._held().ntotal
        if found != self._size:
            raise SystemFault(
                f"the faiss index holds {found:,} vectors now and held {self._size:,} when "
                "it was opened; remove_ids renumbers the rows that remain",
                hint="open it again with the ids of the rows that remain: "
                'open_system("faiss", index=index, ids=remaining)',
            )
        return super()._asked(queries, k)

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Found:
        with self._turned_to(settings, k):
            return self._found(*self._index.search(queries, k))

    def _found(self, told: NDArray[np.float32], labels: NDArray[np.int64]) -> Found:
        return labels, self._natural(told), labels < 0

    def rounds(self, queries: NDArray[np.float32], k: int, **settings: Any) -> FaissRounds:
        """A search in inverted lists that goes on list by list; see `Rounds`.

        settings: those of the coarse search (nprobe, quantizer_...), which is done at once.
        """
        later = [n for n in settings if n != "nprobe" and not n.startswith("quantizer_")]
        if later:
            raise InputError(f"{later[0]} cannot be set for a search in rounds")
        matrix, wanted = self._asked(queries, k), self.turned("search", settings)
        with self._working(), self._turned_to(wanted, k):
            return FaissRounds(
                self._index,
                matrix,
                min(k, self._size),
                lambda told, labels: self._answer(self._found(told, labels)),
            )

    def _count(self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]) -> Counters:
        """Distance computations and bytes by stage (see `faiss_index.stages`)."""
        with self._turned_to(settings, k):
            return Counters(stages(self._index, queries, k))

    @property
    def _quantised(self) -> bool:
        last, transforms = compared_last(self._index)
        return bool(transforms) or not is_flat(last)

    def _keys(self) -> NDArray[np.int64]:
        return np.arange(self._index.ntotal) if self._own is None else self._own

    def _stored(self) -> NDArray[np.float32]:
        return decoded(compared_last(self._index)[0])

    def view(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], Space]:
        """Queries normalised (cosine) and transformed (OPQ, PCA, ...), and ip for cosine."""
        seen = self._asked(queries)
        for transform in compared_last(self._index)[1]:
            seen = transformed(transform, seen)
        return seen, IP if self._space.name == "cosine" else self._space

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

    def _version(self) -> str:
        return str(faiss.__version__)

    def _told(self) -> dict[str, Any]:
        return {
            "index": name_of(self._index),
            "memory_bytes": memory_bytes(self._index),
            "threads": faiss.omp_get_max_threads(),
        }
