"""Voyager: Spotify's graph index, with 8-bit storage."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.systems.inprocess import Found, chosen
from semrecall.systems.knobs import arguments
from semrecall.systems.linked import GraphSystem, asked, linking, readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["VoyagerSystem"]

_SPACES = {"ip": "InnerProduct", "cosine": "Cosine", "l2": "Euclidean"}
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
    spaces: ClassVar = {
        "InnerProduct": ("ip", "cosine"), "Cosine": ("cosine",), "Euclidean": ("l2",)
    }  # fmt: skip
    build_knobs = linking(("M", 12), ("ef_construction", 200), seed=1)
    candidates = "ef"
    recorded = ("M", "ef_construction")

    def __init__(
        self,
        storage: str | None = None,
        index: Any = None,
        space: str | Space | None = None,
        ids: Any = None,
    ) -> None:
        super().__init__()
        self.storage = chosen(storage or "float32", _STORAGE, "storage")
        self._open(index, space, ids, storage=storage)

    def _learn(self, index: Any) -> tuple[str, int]:
        self.storage = index.storage_data_type.name.lower()
        return index.space.name, index.num_dimensions

    @property
    def _quantised(self) -> bool:
        return self.storage != "float32"

    def _empty(self, **knobs: Any) -> Any:
        voyager = self._package()
        return voyager.Index(
            getattr(voyager.Space, _SPACES[self._space.name]),
            num_dimensions=self._dimension,
            storage_data_type=getattr(voyager.StorageDataType, _STORAGE[self.storage]),
            **knobs,
        )

    def _add(
        self, index: Any, keys: NDArray[np.int64], block: NDArray[np.float32], **knobs: Any
    ) -> None:
        try:
            index.add_items(block, keys.tolist(), **knobs)
        except ValueError as error:
            raise self._beyond("store these vectors", error) from error

    def _beyond(self, what: str, error: ValueError) -> InputError:
        """float8 has a range."""
        return InputError(
            f"Voyager cannot {what} as {self.storage}: {error}",
            hint="scale the base and the queries alike, or use storage=float32",
        )

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Found:
        # Held at k or more, also where fewer results are asked for.
        ef = max(settings.get("ef", self._index.ef), k)
        ask = partial(self._index.query, query_ef=ef)
        try:
            keys, distances, missing = asked(ask, queries, k, self._package().RecallError)
        except ValueError as error:
            raise self._beyond("take these queries", error) from error
        return keys, self._natural(distances), missing

    def _keys(self) -> NDArray[np.uint64]:
        # Voyager's own count has the deleted, too.
        get = self._index.get_vectors
        return readable(np.array(list(self._index.ids), np.uint64), lambda some: get(some.tolist()))

    def _stored(self) -> NDArray[np.float32]:
        return np.asarray(self._index.get_vectors(self._keys().tolist()), dtype=np.float32)

    def _read(self, path: str, space: str | Space | None) -> Any:
        return self._package().Index.load(path)

    def _write(self, path: str) -> None:
        self._index.save(path)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        turned = arguments({f"query_{name}": value for name, value in settings.items()})
        return f"ids, distances = index.query(queries, k{turned})"

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        making, adding = map(arguments, self._arguments(knobs))
        return (
            f"index = voyager.Index(voyager.Space.{_SPACES[self._space.name]}, "
            f"{self._dimension}{making}, "
            f"storage_data_type=voyager.StorageDataType.{_STORAGE[self.storage]})\n"
            f"index.add_items(vectors, ids{adding})"
        )

    def _told(self) -> dict[str, Any]:
        return {"storage": self.storage, **super()._told()}
