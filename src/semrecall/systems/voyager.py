"""Voyager: Spotify's graph index, with 8-bit storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SystemFault
from semrecall.registry import import_extra
from semrecall.systems.inprocess import chosen, only_for_saved
from semrecall.systems.linked import GraphSystem, asked_alone, linking, readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["VoyagerSystem"]

_SPACES = {"ip": "InnerProduct", "cosine": "Cosine", "l2": "Euclidean"}
_FITTING = {"InnerProduct": ("ip", "cosine"), "Cosine": ("cosine",), "Euclidean": ("l2",)}
_STORAGE = {"float32": "Float32", "float8": "Float8", "e4m3": "E4M3"}


class VoyagerSystem(GraphSystem):
    """A Voyager index.

    Scores over float8 (fixed point, numbers from -1 to 1) and e4m3 (floating point) are those of
    what is stored. Voyager counts nothing, so only time is measured; and it raises for a whole
    batch when one query finds fewer than k: then every query is asked alone.
    """

    options: ClassVar = {
        "storage": "what numbers are stored as: " + ", ".join(_STORAGE),
        "index": "file of a saved index, or a Voyager Index in memory",
        "space": "ip, cosine or l2, for a saved index",
        "ids": "ids of the rows of a saved index, by id in the index",
    }
    library = "voyager"
    build_knobs = linking(("M", 12), ("ef_construction", 200), seed=1)
    candidates = "ef"

    def __init__(
        self,
        storage: str | None = None,
        index: Any = None,
        space: str | Space | None = None,
        ids: Any = None,
    ) -> None:
        super().__init__()
        self.storage = chosen(storage or "float32", _STORAGE, "storage")
        if index is None:
            only_for_saved(space, ids)
            return
        if storage is not None:
            raise InputError("a saved Voyager index has its own storage")
        index, file = self._opened(index, space)
        self.storage = index.storage_data_type.name.lower()
        geometry = self._fitting(index.space.name, _FITTING[index.space.name], space)
        self._take(index, geometry, index.num_dimensions, len(_labels(index)), ids, file=file)

    @property
    def _quantised(self) -> bool:
        return self.storage != "float32"

    def _fill(
        self, blocks: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]], **knobs: Any
    ) -> Any:
        threads, seed = knobs.pop("threads", -1), knobs.pop("seed", 1)
        voyager = _voyager()
        index = voyager.Index(
            getattr(voyager.Space, _SPACES[self._space.name]),
            num_dimensions=self._dimension,
            random_seed=seed,
            storage_data_type=getattr(voyager.StorageDataType, _STORAGE[self.storage]),
            **knobs,
        )
        for keys, block in blocks:
            try:
                index.add_items(block, keys.tolist(), num_threads=threads)
            except ValueError as error:
                raise InputError(
                    f"Voyager cannot store these vectors as {self.storage}: {error}",
                    hint="scale the base and the queries alike, or use storage=float32",
                ) from error
        return index

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.int64]]:
        # Held at k or more, also where fewer results are asked for.
        ef = max(settings.get("ef", self._index.ef), k)
        few = _voyager().RecallError
        ask = partial(self._index.query, query_ef=ef)
        try:
            try:
                keys, distances = ask(queries, k)
                counts = np.full(len(queries), k)
            except few:
                keys, distances, counts = asked_alone(ask, queries, k, few)
        except ValueError as error:
            raise InputError(
                f"Voyager cannot take these queries as {self.storage}: {error}",
                hint="scale the base and the queries alike, or use storage=float32",
            ) from error
        except RuntimeError as error:
            raise SystemFault(f"Voyager failed: {error}") from error
        # Eight bits can make a squared distance a little negative.
        near = np.sqrt(np.maximum(distances, 0)) if self._space.name == "l2" else 1 - distances
        return keys, near, counts

    def _keys(self) -> NDArray[np.uint64]:
        return _labels(self._index)

    def _stored(self, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
        return np.asarray(self._index.get_vectors(keys.tolist()), dtype=np.float32)

    def _read(self, file: str, space: str | Space | None) -> Any:
        return _voyager().Index.load(file)

    def _write(self, path: str) -> None:
        self._index.save(path)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        turned = "".join(f", query_{name}={value}" for name, value in settings.items())
        return f"ids, distances = index.query(queries, k{turned})"

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        names = {"seed": "random_seed"}
        made = [f"{names.get(n, n)}={v}" for n, v in knobs.items() if n != "threads"]
        threads = f", num_threads={knobs['threads']}" if "threads" in knobs else ""
        given = [
            f"voyager.Space.{_SPACES[self._space.name]}", str(self._dimension), *made,
            f"storage_data_type=voyager.StorageDataType.{_STORAGE[self.storage]}",
        ]  # fmt: skip
        return f"index = voyager.Index({', '.join(given)})\nindex.add_items(vectors, ids{threads})"

    def describe(self) -> dict[str, Any]:
        """Version, storage, links, size, and how it was built."""
        index = self._held()
        return {
            **super().describe(),
            "storage": self.storage,
            "M": index.M,
            "ef_construction": index.ef_construction,
        }


def _labels(index: Any) -> NDArray[np.uint64]:
    """Labels of what is not deleted, rising; Voyager's own count has the deleted, too."""
    labels = np.array(list(index.ids), dtype=np.uint64)
    return readable(labels, lambda some: index.get_vectors(some.tolist()), RuntimeError)


def _voyager() -> Any:
    return import_extra("voyager", "voyager", "the system 'voyager'")
