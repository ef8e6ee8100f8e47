"""The engine of Qdrant in this process: shards of Qdrant Edge, one in each folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from semrecall.errors import InputError
from semrecall.registry import import_extra
from semrecall.systems.connection import remove_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EdgeShards", "edge_filter"]

_CONFIG = "edge_config.json"
#: Ways to match a value.
_MATCHES = ("value", "any", "except", "text", "phrase")


class _Open:
    """A shard that is open: a folder can be opened only once, so systems share it."""

    everywhere: ClassVar[WeakValueDictionary[str, _Open]] = WeakValueDictionary()

    def __init__(self, shard: Any) -> None:
        self.shard = shard

    def __del__(self) -> None:
        self.shard.close()


class EdgeShards:
    """Folders of shards; a collection goes by the path of its folder."""

    def __init__(self) -> None:
        self._edge = import_extra("qdrant_edge", "qdrant", "the system 'qdrant' without a server")
        # Its errors are bare ones.
        self.failures = (Exception,)
        self._open: dict[str, _Open] = {}

    @staticmethod
    def is_shard(folder: Path) -> bool:
        """Whether a shard is in this folder."""
        return (folder / _CONFIG).is_file()

    def close(self) -> None:
        """Let go of all shards."""
        self._open.clear()

    def names(self) -> Sequence[str]:
        """Those that are open."""
        return list(self._open)

    def _shard(self, name: str) -> Any:
        held = self._open.get(name) or _Open.everywhere.get(name)
        if held is None:
            held = _Open(self._edge.EdgeShard.load(name))
            _Open.everywhere[name] = held
        self._open[name] = held
        return held.shard

    def config(self, name: str) -> dict[str, Any] | None:
        """Configuration as it is written in the folder, and counts."""
        if not self.is_shard(Path(name)):
            return None
        told = json.loads((Path(name) / _CONFIG).read_text(encoding="utf-8"))
        counts = self._shard(name).info()
        return {
            "vectors": told["vectors"],
            "hnsw": told.get("hnsw_config") or {},
            "quantisation": told.get("quantization_config"),
            "points": counts.points_count,
            "indexed": counts.indexed_vectors_count,
            "segments": counts.segments_count,
            "versions": {"version": version("qdrant-edge-py")},
        }

    def create(self, name: str, request: Mapping[str, Any]) -> None:
        """An empty shard in a new folder. request: in the words of the REST interface."""
        edge, vectors = self._edge, request["vectors"]
        codes: dict[str, Callable[[], Any]] = {
            "scalar": lambda: edge.ScalarQuantizationConfig(type=edge.ScalarType.Int8),
            "product": lambda: edge.ProductQuantizationConfig(edge.CompressionRatio.X16),
            "binary": edge.BinaryQuantizationConfig,
        }
        config = edge.EdgeConfig(
            vectors={
                vector: edge.EdgeVectorParams(
                    params["size"], getattr(edge.Distance, params["distance"])
                )
                for vector, params in ({"": vectors} if "size" in vectors else vectors).items()
            },
            hnsw_config=edge.HnswIndexConfig(**request["hnsw_config"]),
            optimizers=edge.EdgeOptimizersConfig(**request["optimizers_config"]),
            quantization_config=next(
                (codes[kind]() for kind in request.get("quantization_config", ())), None
            ),
        )
        Path(name).mkdir(parents=True, exist_ok=True)
        self._open[name] = _Open.everywhere[name] = _Open(edge.EdgeShard.create(name, config))

    def insert(self, name: str, points: Sequence[tuple[Any, Any, Any]]) -> None:
        """Points of id, vector and payload."""
        rows = [self._edge.Point(*point) for point in points]
        self._shard(name).update(self._edge.UpdateOperation.upsert_points(rows))

    def finish(self, name: str, seconds: float) -> None:
        """Index everything. It holds the interpreter meanwhile, so there is no deadline."""
        shard = self._shard(name)
        while shard.optimize():
            pass
        shard.flush()

    def drop(self, name: str) -> None:
        """Remove a shard with its folder."""
        held = self._open.pop(name, None) or _Open.everywhere.pop(name, None)
        if held is not None:
            _Open.everywhere.pop(name, None)
            held.shard.close()
        if self.is_shard(Path(name)):
            remove_folder(Path(name))

    def ask(
        self, name: str, vector: str, queries: NDArray[np.float32], k: int, given: Mapping[str, Any]
    ) -> list[list[Any]]:
        """Points with id, score and payload."""
        edge, params = self._edge, dict(given["params"])
        coded = params.pop("quantization", None)
        if coded is not None:
            params["quantization"] = edge.QuantizationSearchParams(**coded)
        condition = edge_filter(edge, given["filter"])
        requests = [
            edge.QueryRequest(
                query=edge.Query.Nearest(row.tolist(), using=vector or None),
                limit=k,
                filter=condition,
                params=edge.SearchParams(**params),
                with_payload=given["payload"],
            )
            for row in queries
        ]
        found: list[list[Any]] = self._shard(name).query_batch(edge.QueryBatchRequest(requests))
        return found

    def bytes_read(
        self, name: str, vector: str, query: NDArray[np.float32], k: int, given: Mapping[str, Any]
    ) -> None:
        """It does not tell."""

    def page(self, name: str, start: Any, given: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """Points from a start on, and the next start."""
        asked = dict(given)
        asked["with_vector"] = asked.pop("with_vectors")
        points, following = self._shard(name).scroll(
            self._edge.ScrollRequest(offset=start, **asked)
        )
        return points, following


def edge_filter(edge: Any, given: Any) -> Any:
    """A filter in the words of the REST interface, as an object of Qdrant Edge."""
    if given is None or isinstance(given, edge.Filter):
        return given
    if not isinstance(given, Mapping) or not given.keys() <= {"must", "should", "must_not"}:
        raise InputError(
            f"the filter {given!r} is none of Qdrant",
            hint='for example {"must": [{"key": "lang", "match": {"value": "de"}}]}',
        )
    clauses = {
        name: [_condition(edge, c) for c in (part if isinstance(part, list) else [part])]
        for name, part in given.items()
    }
    return edge.Filter(**clauses)


def _condition(edge: Any, given: Mapping[str, Any]) -> Any:
    kinds = given.keys()
    if kinds & {"must", "should", "must_not"}:
        return edge_filter(edge, given)
    if kinds == {"has_id"}:
        return edge.HasIdCondition(set(given["has_id"]))
    if kinds == {"is_empty"}:
        return edge.IsEmptyCondition(given["is_empty"]["key"])
    if kinds == {"is_null"}:
        return edge.IsNullCondition(given["is_null"]["key"])
    if kinds == {"nested"}:
        inner = given["nested"]
        return edge.NestedCondition(inner["key"], edge_filter(edge, inner["filter"]))
    if "key" in kinds and kinds <= {"key", "match", "range"}:
        return edge.FieldCondition(
            given["key"], match=_match(edge, given.get("match")), range=_range(edge, given)
        )
    raise InputError(
        f"the condition {given!r} cannot be asked of Qdrant Edge from here",
        hint="match, range, has_id, is_empty, is_null, nested can; or give a qdrant_edge.Filter",
    )


def _match(edge: Any, given: Mapping[str, Any] | None) -> Any:
    if given is None:
        return None
    ((kind, value),) = given.items()
    if kind not in _MATCHES:
        raise InputError(f"a match is by {kind!r}; expected one of {', '.join(_MATCHES)}")
    return getattr(edge, f"Match{kind.title()}")(value)


def _range(edge: Any, given: Mapping[str, Any]) -> Any:
    limits = given.get("range")
    if limits is None:
        return None
    if any(isinstance(limit, str) for limit in limits.values()):
        return edge.RangeDateTime(**limits)
    return edge.RangeFloat(**{name: float(limit) for name, limit in limits.items()})
