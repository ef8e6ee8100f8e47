"""hnswlib: the graph of hierarchical navigable small worlds by its authors."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Stage
from semrecall.systems.graph import Graph, read_graph
from semrecall.systems.inprocess import Found, warn_of_replay
from semrecall.systems.knobs import arguments
from semrecall.systems.linked import GraphSystem, asked, linking, readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["HnswlibSystem"]

#: First in a file: offset, room, elements, and bytes of an element, up to its label, its vector.
_HEADER = struct.Struct("<6Q")
#: Cosine is inner product over vectors of length one, which is what an index holds.
_METRICS = {"ip": "ip", "cosine": "ip", "l2": "l2"}


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
    spaces: ClassVar = {"ip": ("ip", "cosine"), "cosine": ("cosine",), "l2": ("l2",)}
    build_knobs = linking(("M", 16), ("ef_construction", 200), seed=100)
    candidates = "ef"
    recorded = ("M", "ef_construction")

    _graph: Graph | None = None

    def __init__(
        self, index: Any = None, space: str | Space | None = None, ids: Any = None
    ) -> None:
        super().__init__()
        self._open(index, space, ids)

    def _learn(self, index: Any) -> tuple[str, int]:
        return index.space, index.dim

    def _empty(self, **knobs: Any) -> Any:
        self._graph = None
        index = self._package().Index(_METRICS[self._space.name], self._dimension)
        index.init_index(0, **knobs)
        return index

    def _add(
        self, index: Any, keys: NDArray[np.int64], block: NDArray[np.float32], **knobs: Any
    ) -> None:
        index.resize_index(index.get_current_count() + len(block))
        index.add_items(block, keys, **knobs)

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Found:
        # Held at k or more, also where fewer results are asked for.
        with self._turned_to(settings, least=k):
            keys, distances, missing = asked(self._index.knn_query, queries, k, RuntimeError)
        return keys, self._natural(distances), missing

    def _count(self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]) -> Counters:
        """Vectors compared; unknown when a replay does not find what hnswlib finds."""
        if self._graph is None:
            self._graph = read_graph(self._index.__getstate__()[0])
        keys, _, missing = self._ask(queries, k, settings)
        ef = settings.get("ef", self._index.ef)
        index = self._package().BFIndex(_METRICS[self._space.name], self._dimension)
        near = _Distances(index, self._graph)
        computed = np.empty(len(queries))
        for row, query in enumerate(queries):
            found, computed[row] = self._graph.replay(partial(near.of, query[None]), k, ef)
            if found != keys[row, ~missing[row]].tolist():
                warn_of_replay("the graph of hnswlib", "results", "hnswlib")
                return Counters({"graph": None})
        return Counters({"graph": Stage(computed, 4.0 * self._dimension)})

    def _keys(self) -> NDArray[np.uint64]:
        labels = np.array(self._index.get_ids_list(), dtype=np.uint64)
        return readable(labels, self._index.get_items)

    def _stored(self) -> NDArray[np.float32]:
        return np.asarray(self._index.get_items(self._keys()), dtype=np.float32)

    def _read(self, path: str, space: str | Space | None) -> Any:
        if space is None:
            raise InputError(
                f"{path} does not say its space",
                hint=f'say it in the spec: "hnswlib?index={path}&space=l2"',
            )
        # hnswlib wants to know the dimension first, and does not look whether the file is its own.
        with open(path, "rb") as file:
            header = file.read(_HEADER.size)
        sizes = _HEADER.unpack(header) if len(header) == _HEADER.size else (0,) * 6
        whole, label, vector = sizes[3:]
        dimension, rest = divmod(label - vector, 4)
        if rest or dimension < 1 or whole != label + 8:
            raise InputError(f"{path} is no index that hnswlib saved")
        index = self._package().Index(_METRICS[space_of(space).name], dimension)
        index.load_index(path)
        return index

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
        making, adding = map(arguments, self._arguments(knobs))
        return (
            f"index = hnswlib.Index({_METRICS[self._space.name]!r}, {self._dimension})\n"
            f"index.init_index(len(vectors){making})\n"
            f"index.add_items(vectors, ids{adding})"
        )

    def _told(self) -> dict[str, Any]:
        return {**super()._told(), "memory_bytes": int(self._index.index_file_size())}


class _Distances:
    """hnswlib's own arithmetic, to the last bit: its exact search over the vectors in question."""

    def __init__(self, index: Any, graph: Graph) -> None:
        """index: an empty one for exact search."""
        self._index, self._vectors = index, graph.vectors
        self._slots = max(1, graph.links.shape[1])
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
