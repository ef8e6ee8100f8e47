"""Elasticsearch: the knn search of dense_vector fields."""

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

__all__ = ["ElasticsearchSystem"]

_TYPES = tuple(f"{a}{b}" for b in ("hnsw", "flat") for a in ("", "int8_", "int4_", "bbq_"))
_TYPES += ("bbq_disk",)
#: Scripts that score every document, in the unit of the similarity.
_SCRIPTS = {
    "cosine": "(1.0 + cosineSimilarity(params.v, params.f)) / 2.0",
    "l2": "double d = l2norm(params.v, params.f); return 1.0 / (1.0 + d * d)",
    "ip": "double d = dotProduct(params.v, params.f); return d >= 0 ? d + 1.0 : 1.0 / (1.0 - d)",
}
_CANDIDATES = Knob("num_candidates", "search", 1, 10_000, None,
                   "candidates of each shard; at least k", "log", from_k=True)  # fmt: skip
_OVERSAMPLE = Knob(
    "oversample", "search", 1, 10, None, "candidates scored again, in k", whole=False
)


class ElasticsearchSystem(IndexSystem):
    """An index of Elasticsearch 8.4 or newer.

    index_type: how a new field is indexed: hnsw (float32), int8_hnsw, bbq_hnsw, flat, ...
    The key comes from ELASTIC_API_KEY, or from ELASTIC_USERNAME and ELASTIC_PASSWORD.
    """

    engine = title = "elasticsearch"
    #: Similarities of a field of floats.
    metrics: ClassVar = {
        "cosine": "half-cosine",
        "l2_norm": "inverse-l2",
        "max_inner_product": "folded-ip",
        "dot_product": "half-ip",
    }
    field_type = "dense_vector"
    key_names = ("ELASTIC_API_KEY", "ELASTIC_USERNAME", "ELASTIC_PASSWORD")
    key = "ELASTIC_API_KEY, or ELASTIC_USERNAME and ELASTIC_PASSWORD"
    example = "elasticsearch://127.0.0.1:9200/index"
    options: ClassVar[Mapping[str, str]] = {
        **OPTIONS,
        "index_type": "how a new field is indexed: hnsw, int8_hnsw, bbq_hnsw, flat, ...",
    }

    def __init__(self, url: str | None = None, index_type: str = "hnsw", **more: Any) -> None:
        super().__init__(url, **more)
        self.index_type = one_of(index_type, _TYPES, "index_type")

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Those of the kind of index; of a new one before it is built."""
        facts = self._facts()
        kind = self.index_type if facts is None else facts.index
        found: tuple[Knob, ...] = BUILD_KNOBS if self.index_type.endswith("hnsw") else ()
        found += (_CANDIDATES,) if not kind.endswith("flat") else ()
        return found + ((_OVERSAMPLE,) if kind not in ("hnsw", "flat") else ())

    def _read_field(self, name: str, field: str, mapping: Mapping[str, Any]) -> Collection:
        kind = mapping.get("element_type", "float")
        similarity = mapping.get("similarity", "cosine")
        if mapping.get("index") is False:
            raise InputError(
                f"the field {field!r} of {name!r} is not indexed, so that knn cannot search it"
            )
        if kind != "float" or similarity not in self.metrics:
            raise InputError(
                f"the field {field!r} of {name!r} holds vectors of {kind} compared by "
                f"{similarity}; expected float and one of {', '.join(self.metrics)}"
            )
        index = mapping.get("index_options", {}).get("type", "hnsw")
        unit = self.metrics[similarity]
        return Collection(
            name, field, "_id", int(mapping["dims"]), UNITS[unit].space, 0,
            index=index, exact=index == "flat",
            scores=index in ("hnsw", "flat"), details={"similarity": similarity, "unit": unit},
        )  # fmt: skip

    def _index(self, dimension: int, space: Space, knobs: Mapping[str, Any]) -> dict[str, Any]:
        field = {
            "type": "dense_vector",
            "dims": dimension,
            "index": True,
            "similarity": self._metric(space),
            "index_options": {"type": self.index_type, **knobs},
        }
        return {
            "settings": {"number_of_shards": 1, "number_of_replicas": 0},
            "mappings": {"properties": {self.field or "vector": field}},
        }

    def _query(
        self, vector: list[float], k: int, condition: Any, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        knn: dict[str, Any] = {"field": self._held().vector, "query_vector": vector, "k": k}
        wanted = settings.get("num_candidates")
        # Fewer candidates than results are refused; 1.5 k is what it takes by itself.
        knn["num_candidates"] = max(k, min(10_000, int(wanted or -(-3 * k // 2))))
        if "oversample" in settings:
            knn["rescore_vector"] = {"oversample": settings["oversample"]}
        if condition:
            knn["filter"] = condition
        return {"knn": knn, "size": k, "_source": False}

    def _script(self, vector: list[float]) -> dict[str, Any]:
        given = {"v": vector, "f": self._held().vector}
        return {"source": _SCRIPTS[self.space.name], "params": given}

    def _with_vectors(self) -> dict[str, Any]:
        # Since 9.2 vectors are not in _source; fields gives them in every version.
        return {"_source": False, "fields": [self._held().vector]}

    def _vector_of(self, hit: Mapping[str, Any]) -> Any:
        found = hit.get("fields", {}).get(self._held().vector)
        return super()._vector_of(hit) if found is None else found
