"""Milvus: a server, or Milvus Lite in this process."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.registry import import_extra
from semrecall.systems.base import Counters, Knob, Stage
from semrecall.systems.collection import (
    Asked,
    Asker,
    Collection,
    CollectionSystem,
    Found,
    Recipe,
    built_with,
    one_of,
    only_one,
    scanned,
    turnable,
)
from semrecall.systems.connection import Session, own_folder, remove_folder, within
from semrecall.systems.stored import flag

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = ["MilvusSystem"]

#: The most results, and the most queries at once, that Milvus takes.
_MOST = 16_384
#: Bytes of a page of vectors; and of what Milvus Lite holds at once when it compares all of them.
_PAGE_BYTES, _FLAT_BYTES = 8 << 20, 64 << 20

_M = Knob("M", "build", 4, 64, 16, "links of a vector", "log")
_EF_CONSTRUCTION = Knob(
    "efConstruction", "build", 8, 512, 200, "length of the candidate list while linking", "log"
)
_NLIST = Knob("nlist", "build", 1, 65_536, 128, "lists", "log")
_PARTS = Knob("m", "build", 1, 65_536, 8, "parts of a vector, one code each; divides it", "log")
_LENGTH = "length of the candidate list; at least k is sent"
_EF = Knob("ef", "search", 1, 32_768, None, _LENGTH, "log", from_k=True)
_SEARCH_LIST = Knob("search_list", "search", 1, 65_535, None, _LENGTH, "log", from_k=True)
_NPROBE = Knob("nprobe", "search", 1, 65_536, None, "lists visited", "log")
_REORDER = Knob("reorder_k", "search", 1, _MOST, None,
                "candidates scored again; at least k is sent", "log", from_k=True)  # fmt: skip

#: What can be turned for each index.
_INDEXES: dict[str, tuple[Knob, ...]] = {
    "HNSW": (_M, _EF_CONSTRUCTION, _EF),
    "HNSW_SQ": (_M, _EF_CONSTRUCTION, _EF),
    "IVF_FLAT": (_NLIST, _NPROBE),
    "IVF_SQ8": (_NLIST, _NPROBE),
    "FLAT": (),
    "IVF_PQ": (_NLIST, _PARTS, _NPROBE),
    "SCANN": (_NLIST, _NPROBE, _REORDER),
    "DISKANN": (_SEARCH_LIST,),
}
#: Those that Milvus Lite makes.
_LITE = ("HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8", "FLAT")
#: Those whose scores are of the vectors, not of codes.
_TRUE_SCORES = ("HNSW", "IVF_FLAT", "FLAT", "SCANN", "DISKANN")
#: What an index was built with, as `describe_index` names it.
_BUILT_WITH = ("M", "efConstruction", "nlist", "m", "nbits", "sq_type", "indexed_rows")


class MilvusSystem(CollectionSystem):
    """A collection of Milvus with a field of float vectors and an index over it.

    The token of a server comes from MILVUS_TOKEN. Indexes that compare codes (IVF_SQ8, HNSW_SQ,
    IVF_PQ) tell scores of codes, so these have none here.
    """

    engine, port, key = "milvus", 19_530, "MILVUS_TOKEN"
    title, title_here, module = "Milvus", "Milvus Lite", "pymilvus"
    metrics: ClassVar = {"IP": "ip", "COSINE": "cosine", "L2": "squared-l2"}
    options: ClassVar = {
        **CollectionSystem.options,
        "url": "where the server is: milvus://host:19530/collection",
        "path": "a database of Milvus Lite: milvus?path=docs.db",
        "vector": "the field of the vectors; the only one when left out",
        "id": "the field of the ids of a new collection; id when left out",
        "index": "of a new collection: " + ", ".join(_INDEXES) + "; HNSW when left out",
        "database": "the database on the server, where it is not the default one",
        "tls": "true: the server is asked over TLS",
        "load": "true: a collection that the server has not loaded may be",
    }

    def __init__(
        self,
        url: str | None = None,
        vector: str | None = None,
        id: str = "id",  # noqa: A002 - the name of the option
        index: str = "HNSW",
        database: str = "",
        tls: str | bool = False,
        load: str | bool = False,
        **options: Any,
    ) -> None:
        super().__init__(url, **options)
        if self.path is not None and self.path.suffix != ".db":
            raise InputError(
                f"the database {str(self.path)!r} does not end in .db",
                hint="Milvus Lite wants it to: milvus?path=docs.db",
            )
        self.vector, self.id = vector, id
        self.index = one_of(index, tuple(_INDEXES) if url else _LITE, "index")
        self.database = database
        self.tls, self.load = flag(tls, "tls"), flag(load, "load")

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs of the index asked for, and the search knobs of the index there is."""
        facts = self._facts()
        there = () if facts is None else _INDEXES.get(facts.index, ())
        lists = None if facts is None else facts.details.get("nlist")
        return turnable(_INDEXES[self.index], there, nprobe=lists)

    # -- what there is --------------------------------------------------------------------

    def _open(self) -> Session:
        """A client of a server; Milvus Lite starts one in this process for each file."""
        if self.address is not None:
            client = self._library.MilvusClient(
                f"{'https' if self.tls else 'http'}://{self.address}",
                token=os.environ.get(self.key, ""),
                db_name=self.database,
                timeout=self.timeout,
            )
            return Session(client, client.close)
        manager = self._import("milvus_lite.server_manager")
        folder = own_folder() if self.path is None else None
        path = self.path or Path(str(folder)) / "milvus.db"
        if path.is_file():
            raise InputError(f"the database {str(path)!r} was not made by Milvus Lite 3")
        where, servers = str(path.resolve()), manager.server_manager_instance
        ours = where not in getattr(servers, "_servers", {})
        client = self._library.MilvusClient(where, timeout=self.timeout)
        return Session(client, _close_lite, client, servers if ours else None, where, folder)

    def _names(self) -> Sequence[str]:
        # A look at a database that is not there would make it.
        if self.path is not None and not self.path.exists():
            return ()
        return list(self._client.list_collections(timeout=self.timeout))

    def _look(self, name: str) -> Collection | None:
        if name not in self._names():
            return None
        client = self._client
        told = client.describe_collection(name, timeout=self.timeout)
        key = next(field for field in told["fields"] if field.get("is_primary"))
        vector = self._field(name, told["fields"])
        index = self._index(client, name, vector["name"])
        self._load(client, name)
        rows = client.query(
            name,
            filter="",
            output_fields=["count(*)"],
            consistency_level="Strong",
            timeout=self.timeout,
        )
        kind = index["index_type"]
        if kind in _INDEXES:
            self.index = kind
        return Collection(
            name,
            vector["name"],
            key["name"],
            int(vector["params"]["dim"]),
            self._space_told(index.get("metric_type"), f"the collection {name!r}"),
            int(rows[0]["count(*)"]),
            integer_ids=key["type"] == self._library.DataType.INT64,
            index=kind,
            exact=kind == "FLAT",
            scores=kind in _TRUE_SCORES,
            details={
                "version": client.get_server_version(timeout=self.timeout),
                "client": self._library.__version__,
                **{key: _plain(index[key]) for key in _BUILT_WITH if key in index},
            },
        )

    def _field(self, name: str, fields: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The field of the vectors."""
        kind = self._library.DataType.FLOAT_VECTOR
        there = {field["name"]: field for field in fields if field["type"] == kind}
        chosen = only_one(self.vector, there, f"the collection {name!r}", "field of float vectors",
                          "vector")  # fmt: skip
        return there[chosen]

    def _index(self, client: Any, name: str, field: str) -> dict[str, Any]:
        """The index over a field; InputError where there is none."""
        for index in client.list_indexes(name, timeout=self.timeout):
            told = client.describe_index(name, index, timeout=self.timeout) or {}
            if told.get("field_name") == field:
                return {**told, **told.get("params", {})}
        raise InputError(
            f"the collection {name!r} has no index over {field!r}, which would say its metric",
            hint="create one with client.create_index; it is not altered from here",
        )

    def _load(self, client: Any, name: str) -> None:
        """Loaded in this process (Milvus Lite); on a server only when asked."""
        state = str(client.get_load_state(name, timeout=self.timeout).get("state"))
        if state.endswith(("Loaded", ": 3")):
            return
        if self.address is not None and not self.load:
            raise InputError(
                f"the collection {name!r} is not loaded on the server",
                hint=f'client.load_collection("{name}"), or load=true in the spec',
            )
        self._wait("loading the vectors", client.load_collection, name)

    @contextmanager
    def _talking(self, doing: str) -> Iterator[None]:
        """Its log is silent meanwhile: it prints every traceback."""
        loggers = [logging.getLogger(name) for name in ("pymilvus", "milvus_lite")]
        before = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            with super()._talking(doing):
                yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)

    def _failures(self) -> tuple[type[BaseException], ...]:
        return (self._library.MilvusException, *self._lost())

    def _lost(self) -> tuple[type[Exception], ...]:
        """What is raised when nobody answers."""
        grpc = self._import("grpc")
        return (grpc.RpcError, grpc.FutureTimeoutError)

    def _asked_wrongly(self, error: Any, said: str, doing: str) -> bool:
        return getattr(error, "code", None) in (6, 1100) or "cannot parse expression" in said

    def _hint(self, error: Any, said: str) -> str | None:
        if self.address is None and "Open local milvus failed" in said:
            return "is the database open in another process? Milvus Lite lets in one at a time"
        if "auth" in said.lower() or "permission" in said.lower():
            return f"the token is read from {self.key} in the environment"
        if "not loaded" in said:
            return "load the collection, or say load=true in the spec"
        silent = isinstance(error, self._lost()) or re.search("onnect|RPC|etry", said)
        return self._unreachable if silent else None

    def _wait(self, doing: str, work: Any, *given: Any) -> None:
        """Milvus waits for ever for an index that fails on it."""
        within(
            self.build_timeout,
            f"{self._place}: {doing}",
            "build_timeout",
            lambda: work(*given, timeout=self.build_timeout),
        )

    # -- made -----------------------------------------------------------------------------

    def _create(self, recipe: Recipe) -> None:
        client, kinds = self._client, self._library.DataType
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        kind = (
            {"datatype": kinds.INT64}
            if recipe.integers
            else {"datatype": kinds.VARCHAR, "max_length": 65_535}
        )
        schema.add_field(self.id, is_primary=True, **kind)
        self.vector = self.vector or "vector"
        schema.add_field(self.vector, kinds.FLOAT_VECTOR, dim=recipe.dimension)
        client.create_collection(self.collection, schema=schema, timeout=self.timeout)

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        rows = [{self.id: i, self.vector: v} for i, v in zip(ids, block, strict=True)]
        self._client.insert(self.collection, rows, timeout=self.build_timeout)

    def _finish(self, recipe: Recipe) -> None:
        """Flush, index, load, in this order.

        Milvus Lite indexes a collection that is loaded earlier in the background, says "Finished"
        before it is, and searches exactly meanwhile.
        """
        client, name = self._client, self.collection
        self._wait("writing the vectors", client.flush, name)
        made: dict[str, Any] = self._built_with(recipe.knobs)
        if self.address is None:
            # Milvus Lite looks for them where pymilvus puts them no more, and ignores the others.
            made = {"params": made}
        params = client.prepare_index_params()
        params.add_index(
            self.vector, index_type=self.index, metric_type=self._metric(recipe.space), params=made
        )
        self._wait(f"building the index {self.index}", client.create_index, name, params)
        self._wait("loading the vectors", client.load_collection, name)

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.drop_collection, self.collection, timeout=self.timeout)

    def _built_with(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """What an index is made with."""
        coded = {"sq_type": "SQ8"} if self.index == "HNSW_SQ" else {}
        return {**built_with(_INDEXES[self.index], knobs), **coded}

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python, for pymilvus."""
        facts = self._held()
        return (
            "index = client.prepare_index_params()\n"
            f'index.add_index("{facts.vector}", index_type="{facts.index}",\n'
            f'                metric_type="{self._metric(self.space)}", '
            f"params={self._built_with(knobs)!r})\n"
            f'client.create_index("{self._shown}", index)'
        )

    # -- searched -------------------------------------------------------------------------

    @property
    def _at_once(self) -> int:
        """Milvus Lite holds the differences of all pairs for flat L2."""
        facts = self._held()
        if self.address is not None or not facts.exact:
            return 1024
        return max(1, _FLAT_BYTES // (4 * facts.dimension * max(facts.rows, 1)))

    def _asker(self, asked: Asked) -> Asker:
        """Filters are expressions of Milvus, e.g. lang == "de"."""
        k = asked.k
        if k > _MOST:
            raise InputError(f"k is {k:,}; Milvus returns at most {_MOST:,} results")
        facts = self._held()
        # Milvus wants the lengths of lists to be k or more.
        long = {knob.name for knob in self.knobs if knob.from_k}
        sent = {n: max(v, k) if n in long else v for n, v in (asked.wanted or {}).items()}
        params = {"metric_type": self._metric(self.space), "params": sent}

        def ask(matrix: NDArray[np.float32], given: Any) -> Sequence[Found]:
            hits = self._client.search(
                facts.name,
                data=list(matrix),
                filter=given or "",
                limit=k,
                output_fields=[facts.id],
                search_params=params,
                anns_field=facts.vector,
                timeout=self.timeout,
            )
            return [(hit.ids, hit.distances) for hit in hits]

        return ask

    def _counted(self, asked: Asked) -> Counters | None:
        """Vectors that Milvus Lite compares, by the counters of its faiss; None for a server.

        One query at a time, as the counters are of the process. None with filters, where faiss
        counts only what passes.
        """
        facts = self._held()
        if self.address is not None or any(asked.filters):
            return None
        each = facts.dimension * (4.0 if facts.scores else 1.0)
        if facts.exact:
            return scanned(asked, facts.rows, each)
        faiss = import_extra("faiss", "faiss", "the counters of Milvus Lite")
        graph = facts.index.startswith("HNSW")
        stats = faiss.cvar.hnsw_stats if graph else faiss.cvar.indexIVF_stats
        compared, visited = np.zeros(len(asked.matrix)), np.zeros(len(asked.matrix))
        for at, row in enumerate(asked.matrix):
            stats.reset()
            self.search(row[None], asked.k, **(asked.wanted or {}))
            compared[at], visited[at] = stats.ndis, 0 if graph else stats.nq
        if graph:
            return Counters({"graph": Stage(compared, each)})
        # Every segment is an index of its own, with its own centroids: 128 unless it says more.
        lists = min(int(facts.details.get("nlist", 128)), facts.rows)
        coarse = Stage(visited * lists, 4.0 * facts.dimension)
        return Counters({"coarse": coarse, "codes": Stage(compared, each)})

    def exact(
        self, queries: NDArray[np.float32], k: int, **given: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The search itself over a FLAT index; InputError for another one, which Milvus uses."""
        facts = self._held()
        if not facts.exact:
            raise InputError(
                f"Milvus searches {facts.name!r} by its index {facts.index} only",
                hint="exact truth takes its vectors: sr.truth(system.vectors(), queries)",
            )
        return self.search(queries, k, **given)

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[Any], NDArray[np.float32]]]:
        """By query_iterator: bit for bit."""
        facts = self._held()
        size = int(np.clip(_PAGE_BYTES // (4 * facts.dimension), 1, _MOST))
        fields = [facts.id, facts.vector] if vectors else [facts.id]
        pages = self._client.query_iterator(
            facts.name, batch_size=size, output_fields=fields, timeout=self.timeout
        )
        while rows := pages.next():
            block = np.array([row.get(facts.vector, ()) for row in rows], dtype=np.float32)
            yield [row[facts.id] for row in rows], block

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python, for pymilvus."""
        facts = self._held()
        return (
            f'client.search("{self._shown}", data=queries, limit=k, anns_field="{facts.vector}",\n'
            f'              search_params={{"params": {dict(settings)!r}}})'
        )


def _plain(value: Any) -> Any:
    """Numbers as numbers: a server tells them as texts."""
    text = str(value)
    return int(text) if text.isdecimal() else value


def _close_lite(client: Any, servers: Any, path: str, folder: Path | None) -> None:
    """Close the client, and the server where we started it; the folder goes where it is ours."""
    client.close()
    if servers is not None:
        servers.release_server(path)
    remove_folder(folder)
