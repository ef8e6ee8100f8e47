"""usearch: a graph over vectors in one of many number types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.space import IP, Space
from semrecall.systems.base import Counters, Stage
from semrecall.systems.inprocess import Found, chosen
from semrecall.systems.knobs import arguments
from semrecall.systems.linked import GraphSystem, linking
from semrecall.systems.loading import before_usearch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UsearchSystem"]

_METRICS = {"ip": "ip", "cosine": "cos", "l2": "l2sq"}
#: Bytes of a number.
_DTYPES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "e5m2": 1, "e4m3": 1, "i8": 1, "b1": 1 / 8}


class UsearchSystem(GraphSystem):
    """A usearch index.

    dtype: what a number is stored as. i8 stores vectors scaled to length one, so that ip and l2
    rank as cosine does; b1 stores signs and compares by Hamming distance. These have no scores in
    the unit of the space. Scores over the other types are those of what is stored.
    """

    options: ClassVar = {
        "dtype": "what numbers are stored as: " + ", ".join(_DTYPES),
        "index": "file of a saved index, or a usearch Index in memory",
        "space": "ip, cosine or l2, for a saved index",
        "ids": "ids of the rows of a saved index, by key",
    }
    library = "usearch"
    spaces: ClassVar = {
        "IP": ("ip", "cosine"), "Cos": ("cosine",), "L2sq": ("l2",), "Hamming": tuple(_METRICS)
    }  # fmt: skip
    build_knobs = linking(("connectivity", 16), ("expansion_add", 128))
    candidates = "expansion_search"
    called: ClassVar = {}
    recorded = ("connectivity", "expansion_add")

    def __init__(
        self,
        dtype: str | None = None,
        index: Any = None,
        space: str | Space | None = None,
        ids: Any = None,
    ) -> None:
        super().__init__()
        self.dtype = chosen(dtype or "f32", _DTYPES, "dtype")
        self._open(index, space, ids, dtype=dtype)

    def _learn(self, index: Any) -> tuple[str, int]:
        self.dtype = chosen(index.dtype.name.lower(), _DTYPES, "the dtype of the index")
        return index.metric_kind.name, index.ndim

    @property
    def _quantised(self) -> bool:
        return self.dtype not in ("f32", "f64")

    @property
    def _metric(self) -> str:
        return "hamming" if self.dtype == "b1" else _METRICS[self._space.name]

    @classmethod
    def _package(cls, module: str | None = None) -> Any:
        before_usearch()
        return super()._package(module or "usearch.index")

    def _empty(self, **knobs: Any) -> Any:
        kind = self._package().Index
        return kind(ndim=self._dimension, metric=self._metric, dtype=self.dtype, **knobs)

    def _add(
        self, index: Any, keys: NDArray[np.int64], block: NDArray[np.float32], **knobs: Any
    ) -> None:
        index.add(keys.astype(np.uint64), self._packed(block), **knobs)

    def _packed(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        return np.packbits(rows > 0, axis=1) if self.dtype == "b1" else rows

    def _matches(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Any:
        with self._turned_to(settings):
            return self._index.search(self._packed(queries), k, **more)

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Found:
        found = self._matches(queries, k, settings, **more)
        # One query may come without its axis. What lies beyond the counts is key 0.
        keys = np.reshape(found.keys, (len(queries), -1))
        counts = np.reshape(getattr(found, "counts", keys.shape[1]), (-1, 1))
        missing = np.arange(keys.shape[1]) >= counts
        if self.dtype == "b1" or (self.dtype == "i8" and self._space.name != "cosine"):
            return keys, None, missing
        # Signalling NaNs stand beyond the counts.
        distances = np.where(missing, 0, np.reshape(found.distances, keys.shape))
        return keys, self._natural(distances), missing

    def _count(self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]) -> Counters:
        # usearch counts all the queries of a batch as one.
        counts = [self._matches(row[None], k, settings).computed_distances for row in queries]
        each = np.ceil(self._dimension * _DTYPES[self.dtype])
        return Counters({"graph": Stage(np.array(counts, dtype=np.float64), each)})

    def exact(
        self, queries: NDArray[np.float32], k: int, **given: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Every vector compared by usearch; InputError where what it holds is quantised."""
        if self._quantised:
            raise InputError(f"usearch holds {self.dtype} here: exact search over it is not exact")
        return self._search(queries, k, given, exact=True)

    def _keys(self) -> NDArray[np.uint64]:
        return np.sort(np.asarray(self._index.keys[:], dtype=np.uint64))

    def _stored(self) -> NDArray[np.float32]:
        return _decoded(self._index, self._keys())

    def view(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], Space]:
        """Queries as usearch stores them, too, and the space these are compared in."""
        matrix = self._asked(queries)
        if not self._quantised:
            return matrix, self._space
        scratch, keys = self._empty(), np.arange(len(matrix))
        self._add(scratch, keys, matrix)
        return _decoded(scratch, keys), IP if self.dtype == "b1" else self._space

    def _read(self, path: str, space: str | Space | None) -> Any:
        return self._package().Index.restore(path)

    def _write(self, path: str) -> None:
        self._index.save(path)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        lines = [f"index.{name} = {value}" for name, value in settings.items()]
        return "\n".join([*lines, "matches = index.search(queries, k)"])

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        making, adding = map(arguments, self._arguments(knobs))
        rows = "np.packbits(vectors > 0, axis=1)" if self.dtype == "b1" else "vectors"
        return (
            f"index = usearch.index.Index(ndim={self._dimension}, metric={self._metric!r}, "
            f"dtype={self.dtype!r}{making})\nindex.add(ids, {rows}{adding})"
        )

    def _told(self) -> dict[str, Any]:
        memory = int(self._index.memory_usage)
        return {"dtype": self.dtype, **super()._told(), "memory_bytes": memory}


def _decoded(index: Any, keys: NDArray[Any]) -> NDArray[np.float32]:
    """Stored vectors as float32, (m, d); signs as -1 and 1."""
    if index.dtype.name == "B1":
        bits = np.unpackbits(np.vstack(index.get(keys, "b1")), axis=1, count=index.ndim)
        return bits.astype(np.float32) * 2 - 1
    return np.vstack(index.get(keys, "f32")).astype(np.float32, copy=False)
