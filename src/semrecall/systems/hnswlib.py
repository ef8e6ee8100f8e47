"""hnswlib: the graph of hierarchical navigable small worlds by its authors."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SemrecallWarning
from semrecall.registry import import_extra
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Stage
from semrecall.systems.graph import Graph, read_graph
from semrecall.systems.inprocess import only_for_saved
from semrecall.systems.linked import GraphSystem, asked_alone, linking, readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["HnswlibSystem"]

#: First in a file: offset, room, elements, and bytes of an element, up to its label, its vector.
_HEADER = struct.Struct("<6Q")
_FITTING = {"ip": ("ip", "cosine"), "cosine": ("cosine",), "l2": ("l2",)}


class HnswlibSystem(GraphSystem):
    """A hnswlib index over float32 vectors.

    hnswlib raises for a whole batch when one query finds fewer than k: then every query is asked
    alone, for as many as it finds. What a search costs is counted by replaying it.
    """

    options: ClassVar = {
        "index": "file of a saved index, or a hnswlib Index in memory",
        "space": "ip, cosine or l2, for a saved index: its file does not say",
        "ids": "ids of the rows of a saved index, by label",
    }
    library = "hnswlib"
    build_knobs = linking(("M", 16), ("ef_construction", 200), seed=100)
    candidates = "ef"

    _graph: Graph | None = None

    def __init__(
        self, index: Any = None, space: str | Space | None = None, ids: Any = None
    ) -> None:
        super().__init__()
        if index is None:
            only_for_saved(space, ids)
            return
        index, file = self._opened(index, space)
        geometry = self._fitting(index.space, _FITTING[index.space], space)
        self._take(index, geometry, index.dim, len(_labels(index)), ids, file=file)

    def _fill(
        self, blocks: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]], **knobs: Any
    ) -> Any:
        threads, seed = knobs.pop("threads", -1), knobs.pop("seed", 100)
        self._graph = None
        index = _library().Index("l2" if self._space.name == "l2" else "ip", self._dimension)
        index.init_index(0, random_seed=seed, **knobs)
        for keys, block in blocks:
            index.resize_index(index.get_current_count() + len(block))
            index.add_items(block, keys, num_threads=threads)
        return index

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.int64]]:
        index = self._index
        before = index.ef
        try:
            # Held at k or more, also where fewer results are asked for below.
            index.set_ef(max(settings.get("ef", before), k))
            try:
                keys, distances = index.knn_query(queries, k)
                counts = np.full(len(queries), k)
            except RuntimeError:
                keys, distances, counts = asked_alone(index.knn_query, queries, k, RuntimeError)
        finally:
            index.set_ef(before)
        scores = np.sqrt(distances) if self._space.name == "l2" else 1 - distances
        return keys, scores, counts

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters:
        """Vectors compared, by replaying every search on the graph.

        Unknown, with a warning, when a replay does not find what hnswlib finds.
        """
        matrix = self._asked(queries, k)
        wanted = self.turned("search", settings)
        k = min(k, self._size)
        with self._lock:
            if self._graph is None:
                self._graph = read_graph(self._index.__getstate__()[0])
            keys, _, counts = self._ask(matrix, k, wanted)
            ef = wanted.get("ef", self._index.ef)
        near = _Distances(self._graph, "l2" if self._space.name == "l2" else "ip")
        computed = np.empty(len(matrix))
        for row, query in enumerate(matrix):
            found, computed[row] = self._graph.replay(partial(near.of, query[None]), k, ef)
            if found != keys[row, : counts[row]].tolist():
                warnings.warn(
                    "replaying the graph of hnswlib found other results than hnswlib: what its "
                    "searches cost is unknown",
                    SemrecallWarning,
                    stacklevel=2,
                )
                return Counters({"graph": None})
        return Counters({"graph": Stage(computed, 4.0 * self._dimension)})

    def _keys(self) -> NDArray[np.uint64]:
        return _labels(self._index)

    def _stored(self, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
        return np.asarray(self._index.get_items(keys), dtype=np.float32)

    def _read(self, file: str, space: str | Space | None) -> Any:
        return _read(Path(file), space)

    def _write(self, path: str) -> None:
        self._index.save_index(path)
        # hnswlib does not look whether it could.
        size, whole = Path(path).stat().st_size, int(self._index.index_file_size())
        if size != whole:
            raise RuntimeError(f"{size:,} of {whole:,} bytes were written")

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        lines = [f"index.set_{name}({value})" for name, value in settings.items()]
        return "\n".join([*lines, "labels, distances = index.knn_query(queries, k)"])

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        names = {"seed": "random_seed"}
        made = [f"{names.get(n, n)}={v}" for n, v in knobs.items() if n != "threads"]
        threads = f", num_threads={knobs['threads']}" if "threads" in knobs else ""
        space = "l2" if self._space.name == "l2" else "ip"
        return (
            f"index = hnswlib.Index({space!r}, {self._dimension})\n"
            f"index.init_index({', '.join(['len(vectors)', *made])})\n"
            f"index.add_items(vectors, ids{threads})"
        )

    def describe(self) -> dict[str, Any]:
        """Version, links, size, and how it was built."""
        index = self._held()
        return {
            **super().describe(),
            "M": index.M,
            "ef_construction": index.ef_construction,
            "memory_bytes": int(index.index_file_size()),
        }


class _Distances:
    """hnswlib's own arithmetic, to the last bit: its exact search over the vectors in question."""

    def __init__(self, graph: Graph, space: str) -> None:
        self._vectors = graph.vectors
        self._slots = max(1, graph.links.shape[1])
        self._index = _library().BFIndex(space, graph.vectors.shape[1])
        self._index.init_index(self._slots)
        blank = np.zeros((self._slots, graph.vectors.shape[1]), dtype=np.float32)
        self._index.add_items(blank, np.arange(self._slots))

    def of(self, query: NDArray[np.float32], positions: NDArray[np.int64]) -> list[float]:
        """Distances (m,) of a query (1, d) to the vectors at these positions."""
        if not len(positions):
            return []
        self._index.add_items(self._vectors[positions], np.arange(len(positions)))
        slots, distances = self._index.knn_query(query, self._slots, num_threads=1)
        ordered = np.empty(self._slots, dtype=np.float32)
        ordered[slots[0].astype(np.int64)] = distances[0]
        near: list[float] = ordered[: len(positions)].tolist()
        return near


def _library() -> Any:
    return import_extra("hnswlib", "hnswlib", "the system 'hnswlib'")


def _labels(index: Any) -> NDArray[np.uint64]:
    """Labels of what is not deleted, rising."""
    labels = np.array(index.get_ids_list(), dtype=np.uint64)
    return readable(labels, index.get_items, RuntimeError)


def _read(path: Path, space: str | Space | None) -> Any:
    if space is None:
        raise InputError(
            f"{path} does not say its space",
            hint=f'say it in the spec: "hnswlib?index={path}&space=l2"',
        )
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    sizes = _HEADER.unpack(header) if len(header) == _HEADER.size else (0,) * 6
    whole, label, vector = sizes[3:]
    dimension, rest = divmod(label - vector, 4)
    if rest or dimension < 1 or whole != label + 8:
        raise InputError(f"{path} is no index that hnswlib saved")
    # Cosine is inner product over vectors of length one, which is what the file holds.
    index = _library().Index("l2" if space_of(space).name == "l2" else "ip", dimension)
    index.load_index(str(path))
    return index
