"""What Elasticsearch and OpenSearch share: an index of documents, asked in JSON over HTTP."""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SystemFault
from semrecall.registry import did_you_mean
from semrecall.systems.answers import Row, matrix_of
from semrecall.systems.collection import Collection, CollectionSystem
from semrecall.systems.stored import flag, stored_blocks
from semrecall.systems.units import UNITS
from semrecall.web import Client, Reply, basic, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["OPTIONS", "IndexSystem"]

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
        index: str | None = None,
        field: str | None = None,
        tls: str | bool | None = None,
        replace: str | bool = False,
        batch: str | int = 32,
        timeout: str | float = 60.0,
        build_timeout: str | float = 1800.0,
    ) -> None:
        super().__init__(url, None, index, replace, timeout, build_timeout)
        assert self.address is not None
        self.field = field
        try:
            self.batch = max(1, int(batch))
        except ValueError:
            raise InputError(f"batch is {batch!r}; expected a whole number") from None
        secure = self.address.port == 443 if tls is None else flag(tls, "tls")
        headers, secrets = self._allowed()
        self._client = Client(
            f"http{'s' * secure}://{self.address}",
            headers=headers,
            timeout_seconds=self.timeout,
            fault=SystemFault,
        )
        self._client.keep_secret(*secrets)

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
    def _scan(self, vector: list[float], inner: Any) -> tuple[dict[str, Any], str]:
        """The query that scores all documents of `inner`, and the unit of its scores."""

    @abstractmethod
    def _index(self, dimension: int, space: Space, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Settings and mappings of a new index."""

    # -- what it is -----------------------------------------------------------------------

    @property
    def _place(self) -> str:
        return f"{self.engine} at {self.address}"

    def _names(self) -> Sequence[str]:
        rows = self._client.json("GET", "/_cat/indices?format=json&h=index")
        return sorted(row["index"] for row in rows if not row["index"].startswith("."))

    def _look(self) -> Collection | None:
        asked = f"/{self.collection}/_mapping"
        reply = self._client.ask("GET", asked)
        if reply.status == 404:
            return None
        if reply.status >= 300:
            raise self._client.refused("GET", asked, reply)
        if len(reply.data) != 1:
            raise InputError(
                f"{self.collection!r} in {self._place} names {len(reply.data)} indices",
                hint="name one of them: " + ", ".join(list(reply.data)[:5]),
            )
        (name, found), *_ = reply.data.items()
        fields = dict(_fields(found.get("mappings", {}).get("properties", {}), self.field_type))
        field = self._field_of(fields, name)
        facts = self._read_field(name, field, fields[field])
        held = {"query": {"exists": {"field": field}}}
        rows = self._client.json("POST", f"/{self.collection}/_count", held)["count"]
        return replace(facts, rows=int(rows))

    def _field_of(self, fields: Mapping[str, Any], index: str) -> str:
        if self.field is not None:
            if self.field in fields:
                return self.field
            raise InputError(
                f"the index {index!r} has no field {self.field!r} of the type {self.field_type}",
                hint=did_you_mean(self.field, fields) or "it has none at all",
            )
        if len(fields) != 1:
            raise InputError(
                f"the index {index!r} has {len(fields) or 'no'} fields of the type "
                f"{self.field_type}" + (f": {', '.join(fields)}" if fields else ""),
                hint="name the one to use with field=NAME",
            )
        return next(iter(fields))

    def close(self) -> None:
        """Close the connections; an index of its own is deleted."""
        super().close()
        self._client.close()

    # -- made -----------------------------------------------------------------------------

    def _refuse_existing(self) -> None:
        name = self.collection or "x"
        if name.startswith(("_", "-", "+")) or re.search(r'[\s*?,/\\<>|"#:]', name):
            raise InputError(f"{name!r} is no name of an index", hint="expected e.g. docs")
        super()._refuse_existing()

    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        self.field, name = self.field or "vector", self.collection
        self._tell("PUT", f"/{name}", self._index(base.dimension, space, knobs))
        self._begun = True
        # A number takes about twenty characters in JSON.
        rows = max(1, _BLOCK_BYTES // (20 * base.dimension))
        for ids, block in stored_blocks(base, space, rows):
            if not len(block):
                continue
            lines = "".join(
                json.dumps({"index": {"_id": str(i)}})
                + "\n"
                + json.dumps({self.field: row.tolist()})
                + "\n"
                for i, row in zip(ids, block, strict=True)
            )
            reply = self._tell("POST", f"/{name}/_bulk", lines, content_type=_NDJSON)
            wrong = [i for i in reply["items"] if next(iter(i.values())).get("status", 200) >= 300]
            if wrong:
                (_, first), *_ = wrong[0].items()
                raise SystemFault(
                    f"{self._place} refused {len(wrong):,} of {len(reply['items']):,} documents, "
                    f"the first with {first.get('error', {}).get('reason', first)}"
                )
        self._tell("POST", f"/{name}/_refresh")

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.ask, "DELETE", f"/{self.collection}")

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """The request of a search, for ten results."""
        body = json.dumps(self._query([], 10, None, settings), indent=2)
        return f"POST /{self._shown}/_search\n{body.replace('[]', '[...]', 1)}"

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """The request that makes such an index."""
        facts = self._held()
        body = self._index(facts.dimension, facts.space, knobs)
        return f"PUT /{self._shown}\n{json.dumps(body, indent=2)}"

    def _tell(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self._client.json(method, path, body, timeout_seconds=self.build_timeout, **more)

    # -- searched -------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k) and scores; none where they are those of quantised vectors."""
        turned = self.turned("search", settings)
        matrix, facts = self._asked(queries, k), self._held()
        wanted = list(filters) if filters is not None else [None] * len(matrix)
        bodies = [
            self._query(row.tolist(), k, condition, turned)
            for row, condition in zip(matrix, wanted, strict=True)
        ]
        ids, scores = self._found(bodies, k, facts.details["unit"])
        return ids, scores if facts.scores else None

    def exact(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **given: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The neighbours by a script that scores every document, with float32 scores."""
        matrix, field = self._asked(queries, k), self._held().vector
        bodies, unit = [], ""
        for at, row in enumerate(matrix):
            inner: dict[str, Any] = {"bool": {"filter": [{"exists": {"field": field}}]}}
            if filters is not None and filters[at]:
                inner["bool"]["filter"].append(filters[at])
            query, unit = self._scan(row.tolist(), inner)
            bodies.append({"query": query, "size": k, "_source": False})
        return self._found(bodies, k, unit)

    def _found(
        self, bodies: list[dict[str, Any]], k: int, unit: str
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        parts = [bodies[at : at + self.batch] for at in range(0, len(bodies), self.batch)]
        rows = [row for part in parts for row in self._msearch(part)]
        ids, scores = matrix_of(rows, k)
        return ids, None if scores is None else np.asarray(UNITS[unit].convert(scores))

    def _msearch(self, bodies: Sequence[Mapping[str, Any]]) -> list[Row]:
        if len(bodies) == 1:
            replies = [self._client.json("POST", f"/{self.collection}/_search", bodies[0])]
        else:
            lines = "".join(f"{{}}\n{json.dumps(body)}\n" for body in bodies)
            path = f"/{self.collection}/_msearch"
            replies = self._client.json("POST", path, lines, content_type=_NDJSON)["responses"]
        if len(replies) != len(bodies):
            raise SystemFault(
                f"{self._place} was asked {len(bodies)} queries and answered {len(replies)}"
            )
        return [self._hits(reply) for reply in replies]

    def _hits(self, reply: Mapping[str, Any]) -> Row:
        failed = reply.get("_shards", {}).get("failed", 0)
        if "error" in reply or failed or reply.get("timed_out"):
            told = reply.get("error") or reply.get("_shards", {}).get("failures") or "it timed out"
            raise SystemFault(f"{self._place} did not answer a query in full: {_words(told)}")
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


def _words(told: Any) -> str:
    return words_of(Reply(400, {}, told))
