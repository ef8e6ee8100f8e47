"""Servers of ours that speak as the documentation of search servers says, over `JsonServer`.

They are no proof that the real ones answer so: they are written from the same pages as the adapters
(field mappings, knn queries, score formulas, bulk and scroll replies). They search exactly.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
from json_server import Call, JsonServer, Refusal


class FakeIndex:
    """Documents with one vector each."""

    def __init__(self, definition: dict[str, Any], field: str) -> None:
        self.definition, self.field = definition, field
        self.documents: dict[str, dict[str, Any]] = {}

    @property
    def mapping(self) -> dict[str, Any]:
        return self.definition["mappings"]["properties"][self.field]

    def matrix(self) -> np.ndarray:
        rows = [d[self.field] for d in self.documents.values()]
        return np.array(rows, dtype=np.float32).reshape(len(rows), -1)


class FakeElastic(JsonServer):
    """What Elasticsearch (`flavour="elasticsearch"`) and OpenSearch have in common."""

    def __init__(self, flavour: str, secret: str | None = None) -> None:
        super().__init__(self._answer)
        self.flavour, self.secret = flavour, secret
        self.indices: dict[str, FakeIndex] = {}
        self.scrolls: dict[str, list[Any]] = {}
        self._numbers = itertools.count()

    def _answer(self, call: Call) -> Any:
        if self.secret is not None and call.headers.get("authorization") != self.secret:
            reason = "missing authentication credentials for REST request"
            error = {"root_cause": [{"type": "security_exception", "reason": reason}]}
            raise Refusal(401, {"error": {**error, "reason": reason}, "status": 401})
        if call.path == "/_cat/indices":
            return [{"index": name} for name in [".internal", *self.indices]]
        if call.path == "/_search/scroll":
            return self._scrolled(call)
        name, _, action = call.path.strip("/").partition("/")
        if call.method == "PUT" and not action:
            return self._made(name, call.body)
        if name not in self.indices:
            reason = f"no such index [{name}]"
            raise Refusal(404, {"error": {"type": "index_not_found", "reason": reason}})
        index = self.indices[name]
        if call.method == "DELETE":
            del self.indices[name]
            return {"acknowledged": True}
        if action == "_mapping":
            return {name: {"mappings": index.definition["mappings"]}}
        if action == "_count":
            return {"count": len(index.documents)}
        if action == "_bulk":
            return self._bulk(index, call.body)
        if action == "_refresh":
            return {"_shards": {"failed": 0}}
        if action == "_msearch":
            return {"responses": [self._caught(index, body) for body in call.body[1::2]]}
        assert action == "_search"
        if "scroll" in call.query:
            return self._scroll(index, call.body)
        found = self._caught(index, call.body)
        if "error" in found:
            raise Refusal(400, found)
        return found

    def _made(self, name: str, definition: dict[str, Any]) -> Any:
        if name in self.indices:
            raise Refusal(400, {"error": {"reason": f"index [{name}] already exists"}})
        kinds = {"elasticsearch": "dense_vector", "opensearch": "knn_vector"}
        ((field, mapping),) = definition["mappings"]["properties"].items()
        assert mapping["type"] == kinds[self.flavour]
        self.indices[name] = FakeIndex(definition, field)
        return {"acknowledged": True}

    def _bulk(self, index: FakeIndex, lines: list[Any]) -> Any:
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            name = action["index"]["_id"]
            assert isinstance(name, str)
            if len(document[index.field]) != self.dimension(index):
                reason = "The [dense_vector] field has a different number of dimensions"
                items.append({"index": {"_id": name, "status": 400, "error": {"reason": reason}}})
                continue
            index.documents[name] = document
            items.append({"index": {"_id": name, "status": 201}})
        return {"errors": any("error" in i["index"] for i in items), "items": items}

    def dimension(self, index: FakeIndex) -> int:
        return index.mapping["dims" if self.flavour == "elasticsearch" else "dimension"]

    def space(self, index: FakeIndex) -> str:
        told = index.mapping
        if self.flavour == "elasticsearch":
            return told["similarity"]
        return told.get("space_type") or told["method"]["space_type"]

    def _caught(self, index: FakeIndex, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._search(index, body)
        except ValueError as error:
            return {"error": {"root_cause": [{"reason": str(error)}]}, "status": 400}

    def _search(self, index: FakeIndex, body: dict[str, Any]) -> dict[str, Any]:
        if "script_score" in body.get("query", {}):
            scores, condition = self._scripted(index, body["query"]["script_score"])
            k = body["size"]
        else:
            asked, k, vector = self._knn(index, body)
            condition = asked.get("filter")
            scores = scores_of(self.space(index), index.matrix(), vector)
        order = [
            at for at in np.argsort(-scores, kind="stable") if self._fits(index, at, condition)
        ]
        names = list(index.documents)
        hits = [
            {"_id": names[at], "_score": float(scores[at])} for at in order[: min(k, body["size"])]
        ]
        return {"took": 1, "timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": hits}}

    def _knn(
        self, index: FakeIndex, body: dict[str, Any]
    ) -> tuple[dict[str, Any], int, np.ndarray]:
        if self.flavour == "elasticsearch":
            asked = body["knn"]
            if asked["num_candidates"] < asked["k"]:
                raise ValueError("[num_candidates] cannot be less than [k]")
            vector = asked["query_vector"]
        else:
            ((field, asked),) = body["query"]["knn"].items()
            assert field == index.field
            assert set(asked) <= {"vector", "k", "filter", "method_parameters", "rescore"}
            vector = asked["vector"]
        if len(vector) != self.dimension(index):
            raise ValueError("the query vector has a different number of dimensions")
        return asked, asked["k"], np.array(vector, dtype=np.float32)

    def _scripted(self, index: FakeIndex, asked: dict[str, Any]) -> tuple[np.ndarray, Any]:
        source, given = asked["script"]["source"], asked["script"]["params"]
        vector = np.array(given.get("v", given.get("query_value")), dtype=np.float32)
        words = {"cosineSimilarity": "cosine", "l2norm": "l2_norm", "l2Squared": "l2_norm"}
        space = next((s for word, s in words.items() if word in source), "max_inner_product")
        exists, *more = asked["query"]["bool"]["filter"]
        assert exists == {"exists": {"field": index.field}}
        return scores_of(space, index.matrix(), vector), more[0] if more else None

    def _fits(self, index: FakeIndex, at: int, condition: Any) -> bool:
        if condition is None:
            return True
        ((field, value),) = condition["term"].items()
        return list(index.documents.values())[at].get(field) == value

    def _scroll(self, index: FakeIndex, body: dict[str, Any]) -> Any:
        hits: list[Any] = []
        for name, document in index.documents.items():
            hit: dict[str, Any] = {"_id": name}
            if self.flavour == "elasticsearch" and "fields" in body:
                hit["fields"] = {body["fields"][0]: document[index.field]}
            elif body["_source"]:
                hit["_source"] = {index.field: document[index.field]}
            hits.append(hit)
        pages = [hits[at : at + body["size"]] for at in range(0, len(hits), body["size"])]
        name = f"scroll-{next(self._numbers)}"
        self.scrolls[name] = [*pages[1:], []]
        return {"_scroll_id": name, "hits": {"hits": pages[0] if pages else []}}

    def _scrolled(self, call: Call) -> Any:
        name = call.body["scroll_id"]
        if call.method == "DELETE":
            del self.scrolls[name]
            return {"succeeded": True}
        return {"_scroll_id": name, "hits": {"hits": self.scrolls[name].pop(0)}}


def scores_of(space: str, matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """`_score` as both document it, in float32."""
    if space in ("cosine", "cosinesimil"):
        norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector)
        return (1 + matrix @ vector / norms) / 2
    if space in ("l2", "l2_norm"):
        return 1 / (1 + ((matrix - vector) ** 2).sum(axis=1))
    inner = matrix @ vector
    if space == "dot_product":
        return (1 + inner) / 2
    return np.where(inner < 0, 1 / (1 - np.minimum(inner, 0)), inner + 1)


class FakeWeaviate(JsonServer):
    """Collections of Weaviate: schema, batch import, GraphQL Get and Aggregate, cursor."""

    def __init__(self, secret: str | None = None) -> None:
        super().__init__(self._answer)
        self.secret = secret
        self.classes: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}

    def _answer(self, call: Call) -> Any:
        if self.secret is not None and call.headers.get("authorization") != f"Bearer {self.secret}":
            raise Refusal(401, {"code": 401, "message": "anonymous access not enabled"})
        if call.path == "/v1/schema":
            if call.method == "POST":
                made = json.loads(json.dumps(call.body))
                made["vectorIndexConfig"].setdefault("ef", -1)
                self.classes[made["class"]] = made
                self.objects[made["class"]] = {}
                return made
            return {"classes": list(self.classes.values())}
        if call.path.startswith("/v1/schema/"):
            return self._schema(call, call.path.rpartition("/")[2])
        if call.path == "/v1/batch/objects":
            return [self._stored(found) for found in call.body["objects"]]
        if call.path == "/v1/objects":
            return self._page(call)
        assert call.path == "/v1/graphql"
        return self._graphql(call.body["query"])

    def _schema(self, call: Call, name: str) -> Any:
        if name not in self.classes:
            raise Refusal(404, None)
        if call.method == "PUT":
            self.classes[name] = call.body
        if call.method == "DELETE":
            del self.classes[name]
        return self.classes.get(name)

    def _stored(self, found: dict[str, Any]) -> Any:
        held = self.objects[found["class"]]
        known = next(iter(held.values()), found)
        if len(found["vector"]) != len(known["vector"]):
            error = {"error": [{"message": "new node has a vector with length 3"}]}
            return {"id": found["id"], "result": {"status": "FAILED", "errors": error}}
        held[found["id"]] = found
        return {"id": found["id"], "result": {"status": "SUCCESS"}}

    def _page(self, call: Call) -> Any:
        assert call.query["include"] == "vector"
        held = self.objects[call.query["class"]]
        after = call.query.get("after", "")
        names = [name for name in sorted(held) if name > after][: int(call.query["limit"])]
        return {"objects": [held[name] for name in names]}

    def _graphql(self, query: str) -> Any:
        name = re.search(r"(?:Get|Aggregate) \{ (\w+)", query)[1]
        if name not in self.classes:
            return {
                "errors": [{"message": f'Cannot query field "{name}" on type "GetObjectsObj".'}]
            }
        held = list(self.objects[name].values())
        if "Aggregate" in query:
            return {"data": {"Aggregate": {name: [{"meta": {"count": len(held)}}]}}}
        vector = np.array(
            json.loads(re.search(r"vector: (\[[^\]]*\])", query)[1]), dtype=np.float32
        )
        where = re.search(
            r'where: \{path: \["(\w+)"\], operator: Equal, valueText: "(\w+)"\}', query
        )
        assert where or "where" not in query
        if where:
            held = [o for o in held if o["properties"].get(where[1]) == where[2]]
        matrix = np.array([o["vector"] for o in held], dtype=np.float32).reshape(len(held), -1)
        if len(held) and matrix.shape[1] != len(vector):
            message = f"vector lengths don't match: {matrix.shape[1]} vs {len(vector)}"
            return {"data": {"Get": {name: None}}, "errors": [{"message": message}]}
        distances = self._distances(name, matrix, vector)
        limit = int(re.search(r"limit: (\d+)", query)[1])
        hits = [
            {"_additional": {"id": held[at]["id"], "distance": float(distances[at])}}
            | held[at]["properties"]
            for at in np.argsort(distances, kind="stable")[:limit]
        ]
        return {"data": {"Get": {name: hits}}}

    def _distances(self, name: str, matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
        space = self.classes[name]["vectorIndexConfig"]["distance"]
        if space == "l2-squared":
            return ((matrix - vector) ** 2).sum(axis=1)
        if space == "dot":
            return -(matrix @ vector)
        return 1 - matrix @ vector / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector))
