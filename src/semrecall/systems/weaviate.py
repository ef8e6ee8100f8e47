"""Weaviate: nearVector searches, asked in GraphQL over HTTP."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SystemFault
from semrecall.registry import positive
from semrecall.systems.answers import as_id
from semrecall.systems.base import Knob
from semrecall.systems.collection import (
    Asked,
    Collection,
    CollectionSystem,
    Found,
    Recipe,
    only_one,
)
from semrecall.systems.connection import Session, web_session
from semrecall.systems.stored import flag
from semrecall.web import in_parallel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["WeaviateSystem"]

#: The property in which ids are kept that are no UUIDs.
_ID = "semrecall_id"
_ROWS = 200
_BUILD = (
    Knob("max_connections", "build", 2, 512, 32, "links of each vector", "log"),
    Knob("ef_construction", "build", 1, 10_000, 128, "candidates when building", "log"),
)
_EF = Knob(
    "ef", "search", 1, 10_000, None, "candidates when searching (at least k)", "log", from_k=True
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class WeaviateSystem(CollectionSystem):
    """A collection of Weaviate.

    vector: the name of the vector, where objects have several. id: the property that holds the id;
    the UUIDs of the objects when None. Filters are `where` filters, as JSON or as GraphQL.

    `ef` is a setting of the collection, not of a search: it can be turned in collections built
    here, and with alter=true in others; it is set back when the system is closed. The key comes
    from WEAVIATE_API_KEY.
    """

    engine, title, port, key = "weaviate", "weaviate", 8080, "WEAVIATE_API_KEY"
    example = "weaviate://127.0.0.1:8080/Collection"
    metrics: ClassVar = {
        "cosine": "cosine-distance", "dot": "negated-ip", "l2-squared": "squared-l2",
    }  # fmt: skip
    has_exact = False
    options: ClassVar[Mapping[str, str]] = {
        "url": "where the server is, as in weaviate://host:8080/Collection",
        "collection": "the collection of the vectors",
        "vector": "the name of the vector, where objects have several",
        "id": "the property that holds the id; the UUID of the object when left out",
        "alter": "true: ef of a collection that exists may be turned, and is set back",
        "tls": "true: encrypted, as by itself at port 443",
        "replace": "true: build may delete a collection of this name",
        "concurrency": "requests at a time; 4 when left out",
        "timeout": "seconds a request may take; 60 when left out",
        "build_timeout": "seconds a request may take while building; 1800 when left out",
    }

    #: What ef is now, and what it was; None where nobody turned it.
    _ef: list[int] | None = None

    def __init__(
        self,
        url: str | None = None,
        vector: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of the option
        alter: str | bool = False,
        tls: str | bool | None = None,
        concurrency: str | int = 4,
        **options: Any,
    ) -> None:
        super().__init__(url, **options)
        self.collection = None if self.collection is None else _named(self.collection)
        self.vector, self.id = vector, id
        self.alter, self.tls = flag(alter, "alter"), None if tls is None else flag(tls, "tls")
        self.concurrency = int(positive(concurrency, "concurrency"))

    def _open(self) -> Session:
        headers = {"Authorization": f"Bearer ${{{self.key}}}"} if os.environ.get(self.key) else {}
        return web_session(self.address, self.tls, headers, self.timeout)

    # -- what it is -----------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Those of a graph; ef only where the collection may be altered."""
        turned = self.alter or "build_seconds" in self._made
        facts = self._facts()
        graph = facts is None or facts.index == "hnsw"
        return _BUILD + ((_EF,) if turned and graph else ())

    def _names(self) -> Sequence[str]:
        return sorted(c["class"] for c in self._client.json("GET", "/v1/schema")["classes"])

    def _schema(self) -> Any:
        return self._client.found(f"/v1/schema/{self.collection}")

    def _look(self, name: str) -> Collection | None:
        schema = self._schema()
        if schema is None:
            return None
        name = schema["class"]
        made = self._index_of(schema)
        kind, config = made.get("vectorIndexType", "hnsw"), made.get("vectorIndexConfig", {})
        distance, where = config.get("distance", "cosine"), f"the collection {name!r}"
        space = self._space_told(distance, where)
        quantised = any(config.get(q, {}).get("enabled") for q in ("pq", "bq", "sq", "rq"))
        properties = {p["name"] for p in schema.get("properties") or []}
        if self.id is not None and self.id not in properties:
            raise InputError(
                f"{where} has no property {self.id!r}",
                hint="it has " + (", ".join(sorted(properties)) or "none"),
            )
        if self.id is None and _ID in properties:
            self.id = _ID
        counted = self._graphql(f"{{ Aggregate {{ {name} {{ meta {{ count }} }} }} }}")
        rows = int(counted["Aggregate"][name][0]["meta"]["count"])
        some = self._page(name, 1, None)
        if not some:
            raise InputError(f"{where} is empty, so that it tells no dimension of its vectors")
        return Collection(
            name, self.vector or "", self.id or "uuid", len(self._vector_of(some[0])),
            space, rows, index=kind,
            exact=kind == "flat" and not quantised, scores=not quantised,
            details={"distance": distance, "unit": self.metrics[distance], "ef": config.get("ef")},
        )  # fmt: skip

    def _index_of(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The part of a schema about the vector that is searched."""
        named = schema.get("vectorConfig") or {}
        if not named:
            return schema
        where = f"the collection {schema['class']!r}"
        self.vector = only_one(self.vector, named, where, "vector", "vector")
        return dict(named[self.vector])

    # -- made -----------------------------------------------------------------------------

    def _take_name(self) -> None:
        super()._take_name()
        self.collection = _named(str(self.collection))

    def _block_rows(self, dimension: int) -> int:
        return _ROWS

    def _create(self, recipe: Recipe) -> None:
        self.id, self.vector, self._ef = _ID, None, None
        made = self._schema_of(str(self.collection), recipe.space, recipe.knobs)
        self._tell("POST", "/v1/schema", made)

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        objects = [
            {
                "class": self.collection,
                "id": str(uuid.uuid5(uuid.NAMESPACE_OID, str(given))),
                "properties": {_ID: str(given)},
                "vector": row.tolist(),
            }
            for given, row in zip(ids, block, strict=True)
        ]
        replies = self._tell("POST", "/v1/batch/objects", {"objects": objects})
        wrong = [r for r in replies if (r.get("result") or {}).get("errors")]
        if wrong:
            said = wrong[0]["result"]["errors"]["error"][0]["message"]
            raise SystemFault(
                f"{self._place} refused {len(wrong):,} of {len(replies):,} objects, the first "
                f"with {said}"
            )

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.ask, "DELETE", f"/v1/schema/{self.collection}")

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python, for weaviate-client: ef is kept with the collection."""
        if "ef" not in settings:
            return "collection.query.near_vector(vector, limit=k)"
        return (
            f"client.collections.get({self._shown!r}).config.update("
            f"vector_config=Reconfigure.Vectors.update("
            f"vector_index_config=Reconfigure.VectorIndex.hnsw(ef={settings['ef']})))"
        )

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """The request that makes such a collection."""
        body = json.dumps(self._schema_of(self._shown, self.space, knobs), indent=2)
        return f"POST /v1/schema\n{body}"

    def _schema_of(self, name: str, space: Space, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """What a collection of vectors is made with."""
        words = {"max_connections": "maxConnections", "ef_construction": "efConstruction"}
        config = {words[knob]: value for knob, value in knobs.items()}
        text = {"name": _ID, "dataType": ["text"], "tokenization": "field"}
        return {
            "class": name, "vectorizer": "none", "vectorIndexType": "hnsw",
            "vectorIndexConfig": {"distance": self._metric(space), **config},
            "properties": [text],
        }  # fmt: skip

    def _tell(self, method: str, path: str, body: Any = None) -> Any:
        return self._client.json(method, path, body, timeout_seconds=self.build_timeout)

    def close(self) -> None:
        """Set ef back and close the connections; a collection of its own is deleted."""
        if self._ef is not None and self._end is None:
            self._turn_ef(self._ef[1])
        super().close()

    def _turn_ef(self, wanted: int) -> None:
        """Set ef of the collection, where it is another one."""
        schema = self._schema() if self._ef is None or self._ef[0] != wanted else None
        if schema is None:
            return
        config = self._index_of(schema)["vectorIndexConfig"]
        before = int(config.get("ef", -1))
        config["ef"] = wanted
        self._client.json("PUT", f"/v1/schema/{self.collection}", schema)
        self._ef = [wanted, before if self._ef is None else self._ef[1]]

    # -- searched -------------------------------------------------------------------------

    def _nearest(self, asked: Asked) -> Sequence[Found]:
        """Filters are `where` filters, as JSON or as GraphQL."""
        if asked.wanted:
            self._turn_ef(int(asked.wanted["ef"]))
        elif self._ef is not None:
            self._turn_ef(self._ef[1])
        pairs = zip(asked.matrix, asked.filters, strict=True)
        queries = [self._query(vector.tolist(), asked.k, given) for vector, given in pairs]
        return in_parallel(self._row, queries, self.concurrency)

    def _query(self, vector: list[float], k: int, condition: Any) -> str:
        facts = self._held()
        near: dict[str, Any] = {"vector": vector}
        if facts.vector:
            near["targetVectors"] = [facts.vector]
        where = ""
        if condition:
            where = f", where: {condition if isinstance(condition, str) else _literal(condition)}"
        named = "" if self.id is None else f" {self.id}"
        return (
            f"{{ Get {{ {facts.name}(limit: {k}, nearVector: {_literal(near)}{where}) "
            f"{{ _additional {{ id distance }}{named} }} }} }}"
        )

    def _row(self, query: str) -> Found:
        hits = self._graphql(query)["Get"][self._held().name] or []
        if self.id is None:
            names = [as_id(hit["_additional"]["id"]) for hit in hits]
        else:
            names = [as_id(hit[self.id]) for hit in hits]
        return names, [float(hit["_additional"]["distance"]) for hit in hits]

    def _graphql(self, query: str) -> dict[str, Any]:
        reply = self._client.json("POST", "/v1/graphql", {"query": query})
        if reply.get("errors"):
            said = "; ".join(str(error.get("message", error)) for error in reply["errors"])
            raise SystemFault(f"{self._place} refused a query: {said[:400]}")
        return dict(reply["data"])

    # -- given out ------------------------------------------------------------------------

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[Any], NDArray[np.float32]]]:
        after = None
        while page := self._page(self._held().name, _ROWS, after):
            block = [self._vector_of(found) for found in page]
            yield [self._name_of(found) for found in page], np.array(block, dtype=np.float32)
            after = page[-1]["id"]

    def _page(self, name: str, limit: int, after: str | None) -> list[Any]:
        """Objects with their vectors, in the order of their UUIDs."""
        path = f"/v1/objects?class={name}&limit={limit}&include=vector"
        reply = self._client.json("GET", path + (f"&after={after}" if after else ""))
        return list(reply.get("objects") or [])

    def _name_of(self, found: Mapping[str, Any]) -> str | int:
        return as_id(found["id"] if self.id is None else found["properties"][self.id])

    def _vector_of(self, found: Mapping[str, Any]) -> Any:
        vector = (found.get("vectors") or {}).get(self.vector) if self.vector else None
        vector = vector or found.get("vector")
        if not vector:
            raise SystemFault(f"the object {found.get('id')} in {self._place} has no vector")
        return vector


def _named(name: str) -> str:
    """The name of a collection; Weaviate begins them with a capital letter."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of a collection: letters, digits and _ alone")
    return name[0].upper() + name[1:]


def _literal(value: Any, key: str = "") -> str:
    """A value as GraphQL writes it: keys without quotes, and operators as words."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_literal(v, k)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item, key) for item in value) + "]"
    return str(value) if key == "operator" else json.dumps(value, ensure_ascii=False)
