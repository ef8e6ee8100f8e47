"""Milvus: a server, or Milvus Lite in this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SystemFault
from semrecall.registry import import_extra
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob, Stage
from semrecall.systems.collection import Collection, CollectionSystem, by_filter, one_of, turnable
from semrecall.systems.connection import Session, own_folder, plain_error, remove_folder, within
from semrecall.systems.stored import answer, flag, stored_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["MilvusSystem"]

_KEY = "MILVUS_TOKEN"
_METRICS = {"ip": "IP", "cosine": "COSINE", "l2": "L2"}
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
_REORDER = Knob(
    "reorder_k",
    "search",
    1,
    _MOST,
    None,
    "candidates scored again; at least k is sent",
    "log",
    from_k=True,
)
#: Settings that Milvus wants to be k or more.
_AT_LEAST_K = ("ef", "search_list", "reorder_k")

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


class MilvusSystem(CollectionSystem):
    """A collection of Milvus with a field of float vectors and an index over it.

    The token of a server comes from MILVUS_TOKEN. Indexes that compare codes (IVF_SQ8, HNSW_SQ,
    IVF_PQ) tell scores of codes, so these have none here.
    """

    engine, port, key = "milvus", 19_530, _KEY
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
        _pymilvus()
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

    @property
    def _place(self) -> str:
        if self.address is not None:
            return f"Milvus at {self.address}"
        return f"Milvus Lite in {self.path or 'a temporary folder'}"

    # -- what there is --------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        if self._session is None:
            with self._talking("opening it"):
                self._session = self._lite() if self.address is None else self._served()
        return self._session.client

    def _served(self) -> Session:
        client = _pymilvus().MilvusClient(
            f"{'https' if self.tls else 'http'}://{self.address}",
            token=os.environ.get(_KEY, ""),
            db_name=self.database,
            timeout=self.timeout,
        )
        return Session(client, client.close)

    def _lite(self) -> Session:
        """A client of the server that Milvus Lite starts in this process for each file."""
        manager = import_extra("milvus_lite.server_manager", "milvus", "Milvus Lite")
        folder = own_folder() if self.path is None else None
        path = self.path or Path(str(folder)) / "milvus.db"
        if path.is_file():
            raise InputError(f"the database {str(path)!r} was not made by Milvus Lite 3")
        where, servers = str(path.resolve()), manager.server_manager_instance
        ours = where not in getattr(servers, "_servers", {})
        client = _pymilvus().MilvusClient(where, timeout=self.timeout)
        return Session(client, _close_lite, client, servers if ours else None, where, folder)

    @property
    def _missing(self) -> bool:
        """Whether there is no database yet, which a look at it would make."""
        return self.path is not None and not self.path.exists()

    def _names(self) -> Sequence[str]:
        if self._missing:
            return ()
        with self._talking("a look at its collections"):
            return list(self._client.list_collections(timeout=self.timeout))

    def _look(self) -> Collection | None:
        if self._missing:
            return None
        name, client = str(self.collection), self._client
        with self._talking(f"a look at the collection {name!r}"):
            if not client.has_collection(name, timeout=self.timeout):
                return None
            told = client.describe_collection(name, timeout=self.timeout)
            key, vector = self._fields(told)
            index = self._index(client, name, vector["name"])
            self._load(client, name)
            rows = client.query(
                name,
                filter="",
                output_fields=["count(*)"],
                consistency_level="Strong",
                timeout=self.timeout,
            )
            version = client.get_server_version(timeout=self.timeout)
        if index["index_type"] in _INDEXES:
            self.index = index["index_type"]
        return Collection(
            name,
            vector["name"],
            key["name"],
            int(vector["params"]["dim"]),
            _space_of(index, name),
            int(rows[0]["count(*)"]),
            integer_ids=key["type"] == _pymilvus().DataType.INT64,
            index=index["index_type"],
            exact=index["index_type"] == "FLAT",
            scores=index["index_type"] in _TRUE_SCORES,
            details={
                "version": version,
                "client": _pymilvus().__version__,
                **{key: _plain(index[key]) for key in _BUILT_WITH if key in index},
            },
        )

    def _fields(self, told: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields of the ids and of the vectors."""
        kinds = _pymilvus().DataType
        vectors = {f["name"]: f for f in told["fields"] if f["type"] == kinds.FLOAT_VECTOR}
        key = next(field for field in told["fields"] if field.get("is_primary"))
        if self.vector is None and len(vectors) != 1:
            raise InputError(
                f"the collection {told['collection_name']!r} has {len(vectors)} fields of float "
                f"vectors{': ' * bool(vectors)}{', '.join(vectors)}",
                hint="name one with vector=NAME" if vectors else "other kinds cannot be searched",
            )
        if self.vector is not None and self.vector not in vectors:
            raise InputError(
                f"the collection {told['collection_name']!r} has no field of float vectors "
                f"{self.vector!r}",
                hint=f"it has {', '.join(vectors) or 'none'}",
            )
        return key, vectors[self.vector] if self.vector else next(iter(vectors.values()))

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
        """Errors of Milvus as ours, and its log silent: it prints every traceback."""
        loggers = [logging.getLogger(name) for name in ("pymilvus", "milvus_lite")]
        before = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        except _failures() as error:
            raise self._fault(doing, error) from error
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)

    def _fault(self, doing: str, error: Exception) -> Exception:
        said = plain_error(error, os.environ.get(_KEY))
        text = f"{self._place} failed at {doing}: {said or type(error).__name__}"
        code = getattr(error, "code", None)
        if code in (6, 1100) or "cannot parse expression" in said:
            return InputError(text)
        hint = None
        if isinstance(error, _lost()) or "onnect" in said or "RPC" in said or "etry" in said:
            hint = f"is it running, and reachable within timeout={self.timeout:g} seconds?"
        if self.address is None and "Open local milvus failed" in said:
            hint = "is the database open in another process? Milvus Lite lets in one at a time"
        elif "auth" in said.lower() or "permission" in said.lower():
            hint = f"the token is read from {_KEY} in the environment"
        elif "not loaded" in said:
            hint = "load the collection, or say load=true in the spec"
        return SystemFault(text, hint=hint)

    def _wait(self, doing: str, work: Any, *given: Any) -> None:
        """Milvus waits for ever for an index that fails on it."""
        within(
            self.build_timeout,
            f"{self._place}: {doing}",
            "build_timeout",
            lambda: work(*given, timeout=self.build_timeout),
        )

    # -- made -----------------------------------------------------------------------------

    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        """Insert, flush, index, load, in this order.

        Milvus Lite indexes a collection that is loaded earlier in the background, says "Finished"
        before it is, and searches exactly meanwhile.
        """
        client, name, kinds = self._client, self.collection, _pymilvus().DataType
        field = self.vector or "vector"
        for ids, block in stored_blocks(base, space):
            if not len(block):
                continue
            if not self._begun:
                schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
                if isinstance(ids, np.ndarray):
                    schema.add_field(self.id, kinds.INT64, is_primary=True)
                else:
                    schema.add_field(self.id, kinds.VARCHAR, max_length=65_535, is_primary=True)
                schema.add_field(field, kinds.FLOAT_VECTOR, dim=base.dimension)
                client.create_collection(name, schema=schema, timeout=self.timeout)
                self._begun = True
            given = ids.tolist() if isinstance(ids, np.ndarray) else ids
            rows = [{self.id: i, field: v} for i, v in zip(given, block, strict=True)]
            client.insert(name, rows, timeout=self.build_timeout)
        if not self._begun:
            raise InputError("the base holds no vector that can be searched")
        self._wait("writing the vectors", client.flush, name)
        self._link(space, knobs)

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.drop_collection, self.collection, timeout=self.timeout)

    def _built_with(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """What an index is made with."""
        build: dict[str, Any] = {
            knob.name: knob.default for knob in _INDEXES[self.index] if knob.kind == "build"
        }
        return {**build, **knobs, **({"sq_type": "SQ8"} if self.index == "HNSW_SQ" else {})}

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python, for pymilvus."""
        facts = self._held()
        return (
            "index = client.prepare_index_params()\n"
            f'index.add_index("{facts.vector}", index_type="{facts.index}",\n'
            f'                metric_type="{_METRICS[facts.space.name]}", '
            f"params={self._built_with(knobs)!r})\n"
            f'client.create_index("{self._shown}", index)'
        )

    def _link(self, space: Space, knobs: Mapping[str, Any]) -> None:
        client, name = self._client, self.collection
        build: dict[str, Any] = self._built_with(knobs)
        if self.address is None:
            # Milvus Lite looks for them where pymilvus puts them no more, and ignores the others.
            build = {"params": build}
        params = client.prepare_index_params()
        params.add_index(
            self.vector or "vector",
            index_type=self.index,
            metric_type=_METRICS[space.name],
            params=build,
        )
        self._wait(f"building the index {self.index}", client.create_index, name, params)
        self._wait("loading the vectors", client.load_collection, name)

    # -- searched -------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k) and scores. filters: expressions of Milvus, e.g. lang == "de"."""
        matrix, facts = self._asked(queries, k), self._held()
        wanted = self._sent(settings, k)
        found: list[Any] = [None] * len(matrix)
        with self._talking("a search"):
            for text, part in by_filter(filters, len(matrix), self._at_once(facts)):
                hits = self._client.search(
                    facts.name,
                    data=list(matrix[part]),
                    filter=text or "",
                    limit=k,
                    output_fields=[facts.id],
                    search_params={"metric_type": _METRICS[facts.space.name], "params": wanted},
                    anns_field=facts.vector,
                    timeout=self.timeout,
                )
                for row, hit in zip(part, hits, strict=True):
                    found[row] = (hit.ids, hit.distances)
        ids, scores = answer(found, facts.space, integer_ids=facts.integer_ids)
        if not facts.scores:
            return ids, None
        return ids, np.sqrt(np.maximum(scores, 0)) if facts.space.name == "l2" else scores

    def _sent(self, settings: Mapping[str, Any], k: int) -> dict[str, Any]:
        if k > _MOST:
            raise InputError(f"k is {k:,}; Milvus returns at most {_MOST:,} results")
        wanted = self.turned("search", settings)
        return {n: max(v, k) if n in _AT_LEAST_K else v for n, v in wanted.items()}

    def _at_once(self, facts: Collection) -> int:
        """Queries of one request: Milvus Lite holds the differences of all pairs for flat L2."""
        if self.address is not None or not facts.exact:
            return 1024
        return max(1, _FLAT_BYTES // (4 * facts.dimension * max(facts.rows, 1)))

    def count(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Counters | None:
        """Vectors that Milvus Lite compares, by the counters of its faiss; None for a server.

        One query at a time, as the counters are of the process. None with filters, where faiss
        counts only what passes.
        """
        matrix, facts = self._asked(queries, k), self._held()
        if self.address is not None or filters is not None:
            return None
        each = facts.dimension * (4.0 if facts.scores else 1.0)
        if facts.exact:
            return Counters({"scan": Stage(np.full(len(matrix), float(facts.rows)), each)})
        faiss = import_extra("faiss", "faiss", "the counters of Milvus Lite")
        graph = facts.index.startswith("HNSW")
        stats = faiss.cvar.hnsw_stats if graph else faiss.cvar.indexIVF_stats
        # Every segment is an index of its own, with its own centroids: 128 unless it says more.
        lists = min(int(facts.details.get("nlist", 128)), facts.rows)
        counts = []
        for row in matrix:
            stats.reset()
            self.search(row[None], k, **settings)
            counts.append((stats.ndis, 0 if graph else stats.nq * lists))
        table = np.array(counts, dtype=np.float64).reshape(len(matrix), 2)
        if graph:
            return Counters({"graph": Stage(table[:, 0], each)})
        coarse = Stage(table[:, 1], 4.0 * facts.dimension)
        return Counters({"coarse": coarse, "codes": Stage(table[:, 0], each)})

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

    def _pages(self, *, vectors: bool) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        """By query_iterator: bit for bit."""
        facts = self._held()
        size = int(np.clip(_PAGE_BYTES // (4 * facts.dimension), 1, _MOST))
        fields = [facts.id, facts.vector] if vectors else [facts.id]
        kind: Any = np.int64 if facts.integer_ids else np.dtypes.StringDType()
        with self._talking("reading its vectors"):
            pages = self._client.query_iterator(
                facts.name, batch_size=size, output_fields=fields, timeout=self.timeout
            )
        while True:
            with self._talking("reading its vectors"):
                rows = pages.next()
            if not rows:
                return
            block = np.array([row.get(facts.vector, ()) for row in rows], dtype=np.float32)
            yield np.array([row[facts.id] for row in rows], dtype=kind), block

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python, for pymilvus."""
        facts = self._held()
        return (
            f'client.search("{self._shown}", data=queries, limit=k, anns_field="{facts.vector}",\n'
            f'              search_params={{"params": {dict(settings)!r}}})'
        )


#: What an index was built with, as `describe_index` names it.
_BUILT_WITH = ("M", "efConstruction", "nlist", "m", "nbits", "sq_type", "indexed_rows")


def _pymilvus() -> Any:
    return import_extra("pymilvus", "milvus", "the system 'milvus'")


def _lost() -> tuple[type[Exception], ...]:
    """What is raised when nobody answers."""
    grpc = import_extra("grpc", "milvus", "the system 'milvus'")
    return (grpc.RpcError, grpc.FutureTimeoutError)


def _failures() -> tuple[type[Exception], ...]:
    return (_pymilvus().MilvusException, *_lost())


def _space_of(index: Mapping[str, Any], name: str) -> Space:
    for space, metric in _METRICS.items():
        if metric == str(index.get("metric_type")).upper():
            return space_of(space)
    raise InputError(
        f"the collection {name!r} is compared by {index.get('metric_type')}; "
        f"expected one of {', '.join(_METRICS.values())}"
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
    if folder is not None:
        remove_folder(folder)
