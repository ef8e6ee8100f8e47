"""usearch: a graph over vectors in one of many number types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SystemFault
from semrecall.registry import import_extra
from semrecall.space import IP, Space
from semrecall.systems.base import Counters, Stage
from semrecall.systems.inprocess import chosen, only_for_saved
from semrecall.systems.linked import GraphSystem, linking
from semrecall.systems.loading import before_usearch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UsearchSystem"]

_METRICS = {"ip": "ip", "cosine": "cos", "l2": "l2sq"}
#: Metrics of an index, and the spaces that may be asked of it.
_SPACES = {"IP": ("ip", "cosine"), "Cos": ("cosine",), "L2sq": ("l2",), "Hamming": tuple(_METRICS)}
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
    build_knobs = linking(("connectivity", 16), ("expansion_add", 128))
    candidates = "expansion_search"

    def __init__(
        self,
        dtype: str | None = None,
        index: Any = None,
        space: str | Space | None = None,
        ids: Any = None,
    ) -> None:
        super().__init__()
        self.dtype = chosen(dtype or "f32", _DTYPES, "dtype")
        if index is None:
            only_for_saved(space, ids)
            return
        if dtype is not None:
            raise InputError("a saved usearch index has its own dtype")
        index, file = self._opened(index, space)
        self.dtype = chosen(index.dtype.name.lower(), _DTYPES, "the dtype of the index")
        metric = index.metric_kind.name
        geometry = self._fitting(metric, _SPACES.get(metric, ()), space)
        self._take(index, geometry, index.ndim, len(index), ids, file=file)

    @property
    def _quantised(self) -> bool:
        return self.dtype not in ("f32", "f64")

    def _fill(
        self, blocks: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]], **knobs: Any
    ) -> Any:
        threads = knobs.pop("threads", 0)
        index = self._empty(**knobs)
        for keys, block in blocks:
            index.add(keys.astype(np.uint64), self._packed(block), threads=threads)
        return index

    def _empty(self, **knobs: int) -> Any:
        metric = "hamming" if self.dtype == "b1" else _METRICS[self._space.name]
        return _usearch().Index(ndim=self._dimension, metric=metric, dtype=self.dtype, **knobs)

    def _packed(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        return np.packbits(rows > 0, axis=1) if self.dtype == "b1" else rows

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32] | None, NDArray[np.int64]]:
        found = self._matches(queries, k, settings, **more)
        # One query may come without its axis. What lies beyond the counts is key 0.
        keys = np.reshape(found.keys, (len(queries), -1))
        counts = np.reshape(getattr(found, "counts", keys.shape[1]), -1).astype(np.int64)
        distances = np.reshape(found.distances, keys.shape)
        # Signalling NaNs stand beyond the counts.
        distances = np.where(np.arange(keys.shape[1]) < counts[:, None], distances, 0)
        return keys, self._scores(distances), counts

    def _matches(
        self, queries: NDArray[Any], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Any:
        index = self._index
        before = index.expansion_search
        try:
            index.expansion_search = settings.get("expansion_search", before)
            return index.search(self._packed(queries), k, **more)
        except RuntimeError as error:
            raise SystemFault(f"usearch failed: {error}") from error
        finally:
            index.expansion_search = before

    def _scores(self, distances: NDArray[np.float32]) -> NDArray[np.float32] | None:
        name = self._space.name
        if self.dtype == "b1" or (self.dtype == "i8" and name != "cosine"):
            return None
        return np.sqrt(np.maximum(distances, 0)) if name == "l2" else 1 - distances

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters:
        """Vectors compared, as usearch counts them, one query at a time."""
        matrix = self._asked(queries, k)
        wanted = self.turned("search", settings)
        with self._lock:
            counts = [
                self._matches(row[None], min(k, self._size), wanted).computed_distances
                for row in matrix
            ]
        each = np.ceil(self._dimension * _DTYPES[self.dtype])
        return Counters({"graph": Stage(np.array(counts, dtype=np.float64), each)})

    def exact(
        self, queries: NDArray[np.float32], k: int, **given: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Every vector compared by usearch; InputError where what it holds is quantised."""
        if self._quantised:
            raise InputError(f"usearch holds {self.dtype} here: exact search over it is not exact")
        matrix = self._asked(queries, k)
        self.turned("search", given)
        with self._lock:
            return self._answer(*self._ask(matrix, min(k, self._size), {}, exact=True))

    def _keys(self) -> NDArray[np.uint64]:
        return np.sort(np.asarray(self._index.keys[:], dtype=np.uint64))

    def _stored(self, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
        return _decoded(self._index, keys)

    def view(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], Space]:
        """Queries as usearch stores them, too, and the space these are compared in."""
        matrix = self._asked(queries, 1)
        if not self._quantised:
            return matrix, self._space
        scratch, keys = self._empty(), np.arange(len(matrix), dtype=np.uint64)
        scratch.add(keys, self._packed(matrix))
        return _decoded(scratch, keys), IP if self.dtype == "b1" else self._space

    def _read(self, file: str, space: str | Space | None) -> Any:
        return _usearch().Index.restore(file)

    def _write(self, path: str) -> None:
        self._index.save(path)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        lines = [f"index.{name} = {value}" for name, value in settings.items()]
        return "\n".join([*lines, "matches = index.search(queries, k)"])

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        made = "".join(f", {name}={value}" for name, value in knobs.items() if name != "threads")
        threads = f", threads={knobs['threads']}" if "threads" in knobs else ""
        bits = self.dtype == "b1"
        metric = "hamming" if bits else _METRICS[self._space.name]
        rows = "np.packbits(vectors > 0, axis=1)" if bits else "vectors"
        return (
            f"index = usearch.index.Index(ndim={self._dimension}, metric={metric!r}, "
            f"dtype={self.dtype!r}{made})\nindex.add(ids, {rows}{threads})"
        )

    def describe(self) -> dict[str, Any]:
        """Version, number type, links, size, and how it was built."""
        index = self._held()
        return {
            **super().describe(),
            "dtype": self.dtype,
            "connectivity": index.connectivity,
            "expansion_add": index.expansion_add,
            "memory_bytes": int(index.memory_usage),
        }


def _usearch() -> Any:
    before_usearch()
    return import_extra("usearch.index", "usearch", "the system 'usearch'")


def _decoded(index: Any, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Stored vectors as float32, (m, d); signs as -1 and 1."""
    if index.dtype.name == "B1":
        bits = np.unpackbits(np.vstack(index.get(keys, "b1")), axis=1, count=index.ndim)
        return bits.astype(np.float32) * 2 - 1
    return np.vstack(index.get(keys, "f32")).astype(np.float32, copy=False)
