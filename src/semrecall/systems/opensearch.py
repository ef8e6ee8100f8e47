"""OpenSearch: the knn query of knn_vector fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from semrecall.errors import InputError
from semrecall.systems.base import Knob
from semrecall.systems.collection import Collection, one_of
from semrecall.systems.elastic import BUILD_KNOBS, OPTIONS, IndexSystem
from semrecall.systems.units import UNITS

if TYPE_CHECKING:
    from semrecall.space import Space

__all__ = ["OpensearchSystem"]

_ENGINES = ("faiss", "lucene")
#: Painless scripts of the plugin that score every document; none of them tells inner products.
_SCRIPTS = {
    "cosine": "(1.0 + cosineSimilarity(params.v, doc[params.f])) / 2.0",
    "l2": "1.0 / (1.0 + l2Squared(params.v, doc[params.f]))",
}
_EF = Knob("ef_search", "search", 1, 10_000, None, "candidates of the graph", "log")
_NPROBES = Knob("nprobes", "search", 1, 65_536, None, "lists visited", "log")
_OVERSAMPLE = Knob(
    "oversample", "search", 1, 100, None, "candidates scored again, in k", "log", whole=False
)


class OpensearchSystem(IndexSystem):
    """An index of OpenSearch 2.16 or newer with its k-NN plugin.

    library: faiss or lucene, when it is built. User and password come from OPENSEARCH_USERNAME and
    OPENSEARCH_PASSWORD, or a key from OPENSEARCH_API_KEY.
    """

    engine = title = "opensearch"
    #: Space types of a field.
    metrics: ClassVar = {
        "cosinesimil": "half-cosine", "l2": "inverse-l2", "innerproduct": "folded-ip",
    }  # fmt: skip
    field_type = "knn_vector"
    key_names = ("OPENSEARCH_API_KEY", "OPENSEARCH_USERNAME", "OPENSEARCH_PASSWORD")
    key = "OPENSEARCH_API_KEY, or OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD"
    example = "opensearch://127.0.0.1:9200/index"
    options: ClassVar[Mapping[str, str]] = {
        **OPTIONS,
        "library": "faiss or lucene, when it is built; faiss when left out",
    }

    def __init__(self, url: str | None = None, library: str = "faiss", **more: Any) -> None:
        super().__init__(url, **more)
        self.library = one_of(library, _ENGINES, "library")

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Those of the method of the field; of a new graph before it is built."""
        facts = self._facts()
        if facts is None or facts.index == "hnsw":
            search: tuple[Knob, ...] = (_EF,)
        else:
            search = (_NPROBES,) if facts.index == "ivf" else ()
        rescored = facts is not None and not facts.scores
        return BUILD_KNOBS + search + ((_OVERSAMPLE,) if rescored else ())

    def _read_field(self, name: str, field: str, mapping: Mapping[str, Any]) -> Collection:
        method = mapping.get("method", {})
        space = mapping.get("space_type") or method.get("space_type", "l2")
        kind = mapping.get("data_type", "float")
        if "dimension" not in mapping:
            raise InputError(
                f"the field {field!r} of {name!r} takes its dimension from the model "
                f"{mapping.get('model_id')!r}, which is not read",
                hint="describe how it is asked in a template: http://host:9200?template=FILE",
            )
        if kind != "float" or space not in self.metrics:
            raise InputError(
                f"the field {field!r} of {name!r} holds vectors of {kind} compared by {space}; "
                f"expected float and one of {', '.join(self.metrics)}"
            )
        library = method.get("engine", "faiss")
        unit = self.metrics[space]
        if library == "nmslib" and space == "cosinesimil":
            unit = "inverse-cosine-distance"
        encoder = method.get("parameters", {}).get("encoder", {}).get("name", "flat")
        on_disk = mapping.get("mode") == "on_disk"
        quantised = encoder != "flat" or on_disk or mapping.get("compression_level", "1x") != "1x"
        return Collection(
            name, field, "_id", int(mapping["dimension"]), UNITS[unit].space, 0,
            index=method.get("name", "hnsw"), scores=not quantised,
            details={"space_type": space, "library": library, "unit": unit},
        )  # fmt: skip

    def _index(self, dimension: int, space: Space, knobs: Mapping[str, Any]) -> dict[str, Any]:
        method = {
            "name": "hnsw",
            "space_type": self._metric(space),
            "engine": self.library,
            "parameters": dict(knobs),
        }
        field = {"type": "knn_vector", "dimension": dimension, "method": method}
        return {
            "settings": {"index": {"knn": True, "number_of_shards": 1, "number_of_replicas": 0}},
            "mappings": {"properties": {self.field or "vector": field}},
        }

    def _query(
        self, vector: list[float], k: int, condition: Any, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        asked: dict[str, Any] = {"vector": vector, "k": k}
        turned = {n: int(settings[n]) for n in ("ef_search", "nprobes") if n in settings}
        if turned:
            asked["method_parameters"] = turned
        if "oversample" in settings:
            asked["rescore"] = {"oversample_factor": settings["oversample"]}
        if condition:
            asked["filter"] = condition
        # Every shard finds k, and lucene more where ef_search is larger: size cuts to k.
        return {"query": {"knn": {self._held().vector: asked}}, "size": k, "_source": False}

    def _script(self, vector: list[float]) -> dict[str, Any]:
        field, space = self._held().vector, self.space
        if space.name in _SCRIPTS:
            return {"source": _SCRIPTS[space.name], "params": {"v": vector, "f": field}}
        params = {"field": field, "query_value": vector, "space_type": self._metric(space)}
        return {"lang": "knn", "source": "knn_score", "params": params}
