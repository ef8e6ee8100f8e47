"""What Elasticsearch and OpenSearch share: an index of documents, asked in JSON over HTTP."""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SystemFault
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
from semrecall.web import Reply, basic, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["BUILD_KNOBS", "OPTIONS", "IndexSystem"]

BUILD_KNOBS = (
    Knob("m", "build", 2, 512, 16, "neighbours of each vector", "log"),
    Knob("ef_construction", "build", 1, 3200, 100, "candidates when building", "log"),
)

OPTIONS: Mapping[str, str] = {
    "url": "where the server is, as in NAME://host:9200/index",
    "index": "the index of the vectors",
    "field": "its field of vectors; the only one when left out",
    "tls": "true: encrypted, as by itself at port 443",
    "replace": "true: build may delete an index of this name",
    "batch": "queries a request; 32 when left out",
    "timeout": "seconds a request may take; 60 when left out",
    "build_timeout": "seconds a request may take while building; 1800 when left out",
}
_ROWS = 500
_BLOCK_BYTES = 8 << 20
_NDJSON = "application/x-ndjson"


class IndexSystem(CollectionSystem):
    """An index with a field of vectors. Ids are those of the documents (`_id`).

    Filters are queries in the server's own language, in JSON. The key comes from the environment.
    """

    noun, port = "index", 9200
    options: ClassVar[Mapping[str, str]] = OPTIONS
    #: The type of a field of vectors, in mappings.
    field_type: ClassVar[str]
    #: Variables of the environment: a key, and a user with a password.
    key_names: ClassVar[tuple[str, str, str]]

    def __init__(
        self,
        url: str | None = None,
        field: str | None = None,
        tls: str | bool | None = None,
        batch: str | int = 32,
        **options: Any,
    ) -> None:
        super().__init__(url, **options)
        self.field, self.tls = field, None if tls is None else flag(tls, "tls")
        try:
            self.batch = max(1, int(batch))
        except ValueError:
            raise InputError(f"batch is {batch!r}; expected a whole number") from None

    def _open(self) -> Session:
        headers, secrets = self._allowed()
        return web_session(self.address, self.tls, headers, self.timeout, *secrets)

    def _allowed(self) -> tuple[dict[str, str], list[str]]:
        """Headers that prove who is asking, and what must stay secret in them."""
        key, user, password = self.key_names
        if os.environ.get(key):
            return {"Authorization": f"ApiKey ${{{key}}}"}, []
        if os.environ.get(user) and os.environ.get(password):
            proof = basic(os.environ[user], os.environ[password])
            return {"Authorization": proof}, [proof, os.environ[password]]
        return {}, []

    # -- what an adapter says -------------------------------------------------------------

    @abstractmethod
    def _read_field(self, name: str, field: str, mapping: Mapping[str, Any]) -> Collection:
        """What the mapping of the field says; `details["unit"]` is the unit of its scores."""

    @abstractmethod
    def _query(
        self, vector: list[float], k: int, condition: Any, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The body of a search."""

    @abstractmethod
    def _script(self, vector: list[float]) -> dict[str, Any]:
        """The script that scores a document, in the unit that is usual for the space."""

    @abstractmethod
    def _index(self, dimension: int, space: Space, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Settings and mappings of a new index."""

    # -- what it is -----------------------------------------------------------------------

    def _names(self) -> Sequence[str]:
        rows = self._client.json("GET", "/_cat/indices?format=json&h=index")
        return sorted(row["index"] for row in rows if not row["index"].startswith("."))

    def _look(self, name: str) -> Collection | None:
        indices = self._client.found(f"/{self.collection}/_mapping")
        if indices is None:
            return None
        if len(indices) != 1:
            raise InputError(
                f"{self.collection!r} in {self._place} names {len(indices)} indices",
                hint="name one of them: " + ", ".join(list(indices)[:5]),
            )
        (name, found), *_ = indices.items()
        fields = dict(_fields(found.get("mappings", {}).get("properties", {}), self.field_type))
        what = f"field of the type {self.field_type}"
        field = only_one(self.field, fields, f"the index {name!r}", what, "field")
        facts = self._read_field(name, field, fields[field])
        held = {"query": {"exists": {"field": field}}}
        rows = self._client.json("POST", f"/{self.collection}/_count", held)["count"]
        return replace(facts, rows=int(rows))

    # -- made -----------------------------------------------------------------------------

    def _refuse_existing(self) -> None:
        name = self.collection or "x"
        if name.startswith(("_", "-", "+")) or re.search(r'[\s*?,/\\<>|"#:]', name):
            raise InputError(f"{name!r} is no name of an index", hint="expected e.g. docs")
        super()._refuse_existing()

    def _block_rows(self, dimension: int) -> int:
        # A number takes about twenty characters in JSON.
        return max(1, _BLOCK_BYTES // (20 * dimension))

    def _create(self, recipe: Recipe) -> None:
        self.field = self.field or "vector"
        self._tell(
            "PUT",
            f"/{self.collection}",
            self._index(recipe.dimension, recipe.space, recipe.knobs),
        )

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        lines = _lines(
            line
            for i, row in zip(ids, block, strict=True)
            for line in ({"index": {"_id": str(i)}}, {self.field: row.tolist()})
        )
        reply = self._tell("POST", f"/{self.collection}/_bulk", lines, content_type=_NDJSON)
        told = [next(iter(item.values())) for item in reply["items"]]
        wrong = [item for item in told if item.get("status", 200) >= 300]
        if wrong:
            raise SystemFault(
                f"{self._place} refused {len(wrong):,} of {len(told):,} documents, "
                f"the first with {wrong[0].get('error', {}).get('reason', wrong[0])}"
            )

    def _finish(self, recipe: Recipe) -> None:
        self._tell("POST", f"/{self.collection}/_refresh")

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.ask, "DELETE", f"/{self.collection}")

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """The request of a search, for ten results."""
        body = json.dumps(self._query([], 10, None, settings), indent=2)
        return f"POST /{self._shown}/_search\n{body.replace('[]', '[...]', 1)}"

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """The request that makes such an index."""
        facts = self._held()
        body = self._index(facts.dimension, self.space, knobs)
        return f"PUT /{self._shown}\n{json.dumps(body, indent=2)}"

    def _tell(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self._client.json(method, path, body, timeout_seconds=self.build_timeout, **more)

    # -- searched -------------------------------------------------------------------------

    def _unit(self, *, exact: bool) -> str:
        """That of the similarity of the field, or of the script that scores all documents."""
        return super()._unit(exact=True) if exact else str(self._held().details["unit"])

    def _nearest(self, asked: Asked) -> Sequence[Found]:
        """Exact search is that of a script that scores every document, with float32 scores."""
        bodies = [
            self._every(row.tolist(), asked.k, given)
            if asked.wanted is None
            else self._query(row.tolist(), asked.k, given, asked.wanted)
            for row, given in zip(asked.matrix, asked.filters, strict=True)
        ]
        parts = [bodies[at : at + self.batch] for at in range(0, len(bodies), self.batch)]
        return [hits for part in parts for hits in self._msearch(part)]

    def _every(self, vector: list[float], k: int, given: Any) -> dict[str, Any]:
        """The body of an exact search."""
        passing: list[Any] = [{"exists": {"field": self._held().vector}}]
        inner = {"bool": {"filter": passing + ([given] if given else [])}}
        scored = {"script_score": {"query": inner, "script": self._script(vector)}}
        return {"query": scored, "size": k, "_source": False}

    def _msearch(self, bodies: Sequence[Mapping[str, Any]]) -> list[Found]:
        if len(bodies) == 1:
            replies = [self._client.json("POST", f"/{self.collection}/_search", bodies[0])]
        else:
            lines = _lines(line for body in bodies for line in ({}, body))
            path = f"/{self.collection}/_msearch"
            replies = self._client.json("POST", path, lines, content_type=_NDJSON)["responses"]
        if len(replies) != len(bodies):
            raise SystemFault(
                f"{self._place} was asked {len(bodies)} queries and answered {len(replies)}"
            )
        return [self._hits(reply) for reply in replies]

    def _hits(self, reply: Mapping[str, Any]) -> Found:
        failed = reply.get("_shards", {}).get("failed", 0)
        if "error" in reply or failed or reply.get("timed_out"):
            told = reply.get("error") or reply.get("_shards", {}).get("failures") or "it timed out"
            raise SystemFault(
                f"{self._place} did not answer a query in full: {words_of(Reply(400, {}, told))}"
            )
        hits = reply["hits"]["hits"]
        return [hit["_id"] for hit in hits], [float(hit["_score"]) for hit in hits]

    # -- given out ------------------------------------------------------------------------

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        for page in self._scroll(self._with_vectors() if vectors else {"_source": False}):
            block = [self._vector_of(hit) if vectors else () for hit in page]
            yield [hit["_id"] for hit in page], np.array(block, dtype=np.float32)

    def _with_vectors(self) -> dict[str, Any]:
        """What makes a search return the vectors."""
        return {"_source": [self._held().vector]}

    def _vector_of(self, hit: Mapping[str, Any]) -> Any:
        found: Any = hit.get("_source", {})
        for part in self._held().vector.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is None:
            raise SystemFault(f"{self._place} does not give out the vector of {hit['_id']!r}")
        return found

    def _scroll(self, more: Mapping[str, Any]) -> Iterator[list[Any]]:
        """All documents with a vector, a page at a time."""
        held = {"exists": {"field": self._held().vector}}
        body = {"size": _ROWS, "sort": ["_doc"], "query": held, **more}
        reply = self._tell("POST", f"/{self.collection}/_search?scroll=5m", body)
        try:
            while reply["hits"]["hits"]:
                yield reply["hits"]["hits"]
                again = {"scroll": "5m", "scroll_id": reply["_scroll_id"]}
                reply = self._tell("POST", "/_search/scroll", again)
        finally:
            # Left alone it would keep segments of the index for five minutes.
            self._client.ask("DELETE", "/_search/scroll", {"scroll_id": reply["_scroll_id"]})


def _fields(properties: Mapping[str, Any], kind: str, at: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of a type in a mapping, those of objects under dotted names."""
    for name, told in properties.items():
        if told.get("type") == kind:
            yield at + name, told
        elif "properties" in told and told.get("type") != "nested":
            yield from _fields(told["properties"], kind, f"{at}{name}.")


def _lines(bodies: Iterable[Any]) -> str:
    """JSON, a line each."""
    return "".join(json.dumps(body) + "\n" for body in bodies)
