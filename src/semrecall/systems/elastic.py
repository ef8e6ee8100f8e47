"""What Elasticsearch and OpenSearch share: an index of documents, asked in JSON over HTTP."""

from __future__ import annotations

import copy
import json
import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Vectors
from semrecall.data.ids import Ids
from semrecall.data.ids import ids as ids_of
from semrecall.errors import InputError, SystemFault
from semrecall.registry import did_you_mean
from semrecall.space import space as space_of
from semrecall.systems.answers import Row, matrix_of
from semrecall.systems.base import searchable, warn_left_out
from semrecall.systems.collection import Address, Collection, CollectionSystem, own_name
from semrecall.systems.stored import flag
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

    noun = "index"
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
        if url is None:
            raise InputError(
                f"the system {self.engine!r} needs an address",
                hint=f"{self.engine}://127.0.0.1:9200/index",
            )
        key, user, password = self.key_names
        self._address = Address.of(url, 9200, f"{key}, or {user} and {password}")
        super().__init__(
            collection=index or self._address.path or None,
            replace=replace,
            timeout=timeout,
            build_timeout=build_timeout,
        )
        self.field = field
        try:
            self.batch = max(1, int(batch))
        except ValueError:
            raise InputError(f"batch is {batch!r}; expected a whole number") from None
        secure = self._address.port == 443 if tls is None else flag(tls, "tls")
        headers, secrets = self._allowed()
        self._client = Client(
            f"http{'s' * secure}://{self._address}",
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
        return f"{self.engine} at {self._address}"

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

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """A new index with these vectors, under the name given, or one of its own."""
        given = self.turned("build", knobs)
        geometry = space_of(space)
        self._refuse_existing()
        vectors = Vectors.of(base) if ids is None else Vectors.of(base, ids=ids_of(ids))
        made = copy.copy(self)
        made._known, made._end = None, None
        if self.collection is None:
            made.collection = own_name()
            made._ends_with(self._client.ask, "DELETE", f"/{made.collection}")
        made.field = self.field or "vector"
        started = time.perf_counter()
        if self.replace:
            made._client.ask("DELETE", f"/{made.collection}")
        made._tell("PUT", f"/{made.collection}", self._index(vectors.dimension, geometry, given))
        for lines in _bulks(vectors, geometry, made.field):
            reply = made._tell("POST", f"/{made.collection}/_bulk", lines, content_type=_NDJSON)
            wrong = [i for i in reply["items"] if next(iter(i.values())).get("status", 200) >= 300]
            if wrong:
                (_, first), *_ = wrong[0].items()
                raise SystemFault(
                    f"{self._place} refused {len(wrong):,} of {len(reply['items']):,} documents, "
                    f"the first with {first.get('error', {}).get('reason', first)}"
                )
        made._tell("POST", f"/{made.collection}/_refresh")
        made._made = {**given, "build_seconds": time.perf_counter() - started}
        made._held()
        return made

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

    def vectors(self) -> Vectors:
        """The vectors of the documents, as they were given to it, read in pages."""
        names = [hit["_id"] for page in self._scroll({"_source": False}) for hit in page]
        ids = ids_of(names)
        return self._paged(ids.array(), lambda: self._pages(ids))

    def _pages(self, ids: Ids) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        start = 0
        for page in self._scroll(self._with_vectors()):
            seen = ids_of([hit["_id"] for hit in page])
            part = ids[start : start + len(page)]
            start += len(page)
            # Ids of a page alone may be told apart from those of all.
            same = np.array_equal(seen.strings(), part.strings())
            keys = part.array() if same else seen.array()
            yield keys, np.array([self._vector_of(hit) for hit in page], dtype=np.float32)

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


def _bulks(vectors: Vectors, space: Space, field: str) -> Iterator[str]:
    """Bodies of bulk requests for the searchable rows; the others are left out with a warning."""
    own = None if vectors.length is None else vectors.ids
    kept: list[NDArray[np.int64]] = []
    total = 0
    # A number takes about twenty characters in JSON.
    for start, block in vectors.blocks(max(1, _BLOCK_BYTES // (20 * vectors.dimension))):
        usable = searchable(block, space)
        rows = start + np.flatnonzero(usable)
        kept.append(rows)
        total = start + len(block)
        names = rows.tolist() if own is None else own[rows].strings().tolist()
        if names:
            floats = block[usable].astype(np.float32)
            yield "".join(
                json.dumps({"index": {"_id": str(name)}})
                + "\n"
                + json.dumps({field: row.tolist()})
                + "\n"
                for name, row in zip(names, floats, strict=True)
            )
    rows = np.concatenate([np.empty(0, dtype=np.int64), *kept])
    warn_left_out(rows, total, own if own is not None else Ids(np.arange(total)))


def _words(told: Any) -> str:
    return words_of(Reply(400, {}, told))
