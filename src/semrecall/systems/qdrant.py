"""Qdrant: a server, or its engine in this process (Qdrant Edge)."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SemrecallError, SemrecallWarning, SystemFault
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob
from semrecall.systems.collection import Collection, CollectionSystem, by_filter, named_ids, one_of
from semrecall.systems.connection import Session, own_folder, plain_error, remove_folder
from semrecall.systems.qdrant_edge import EdgeShards
from semrecall.systems.qdrant_server import KEY, QdrantServer
from semrecall.systems.stored import answer, flag, stored_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["Engine", "QdrantSystem"]

DISTANCES = {"ip": "Dot", "cosine": "Cosine", "l2": "Euclid"}
_QUANTISED = ("none", "scalar", "product", "binary")
#: Queries of one request, and points of a page.
_AT_ONCE, _PAGE = 100, 1000

_BUILD_KNOBS = (
    Knob("m", "build", 4, 128, 16, "links of a vector", "log"),
    Knob("ef_construct", "build", 4, 4096, 100, "length of the candidate list while linking",
         "log"),
    Knob("segments", "build", 1, 64, None, "segments aimed at, each with a graph of its own",
         "log"),
)  # fmt: skip
_HNSW_EF = Knob(
    "hnsw_ef", "search", 1, 65_536, None, "length of the candidate list (at least k)", "log",
    from_k=True,
)  # fmt: skip
#: Quantisation of a new collection, as qdrant-client has it.
_CODES = {
    "scalar": "models.ScalarQuantization(scalar=models.ScalarQuantizationConfig("
    "type=models.ScalarType.INT8, always_ram=True))",
    "product": "models.ProductQuantization(product=models.ProductQuantizationConfig("
    "compression=models.CompressionRatio.X16, always_ram=True))",
    "binary": "models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))",
}
_QUANTISED_KNOBS = (
    Knob.mode("rescore", "search", ("false", "true"), None,
              "candidates are scored again by their vectors"),
    Knob("oversampling", "search", 1, 16, None, "candidates per result, before they are scored "
         "again", "log", whole=False),
)  # fmt: skip


class Engine(Protocol):
    """What a server and the engine in this process have in common.

    config: of a collection, as the REST interface tells it, with `points` and `indexed`.
    """

    failures: tuple[type[Exception], ...]

    def names(self) -> Sequence[str]:
        """The collections there are."""

    def config(self, name: str) -> dict[str, Any] | None:
        """Configuration and counts; None where there is no such collection."""

    def create(self, name: str, dimension: int, distance: str, made: Mapping[str, Any]) -> None:
        """An empty collection."""

    def insert(self, name: str, points: Sequence[tuple[Any, Any, Any]]) -> None:
        """Points of id, vector and payload."""

    def finish(self, name: str, seconds: float) -> None:
        """Wait until everything is indexed; SystemFault when that takes too long."""

    def drop(self, name: str) -> None:
        """Remove a collection, if it is there."""

    def ask(
        self, name: str, vector: str, queries: NDArray[np.float32], k: int, given: Mapping[str, Any]
    ) -> list[list[Any]]:
        """Points with id, score and payload. given: params, filter, payload."""

    def count(
        self, name: str, vector: str, query: NDArray[np.float32], k: int, given: Mapping[str, Any]
    ) -> float | None:
        """Bytes that one search reads, as it is told; None where it is not."""

    def page(
        self, name: str, start: Any, vector: str | None, payload: str | None
    ) -> tuple[list[Any], Any]:
        """Points from a start on, with their vectors where these are named, and the next start."""


class QdrantSystem(CollectionSystem):
    """A collection of Qdrant with dense vectors.

    Point ids are unsigned integers or UUIDs. Ids of another kind are kept in a payload field
    (`id`), and come from there. The key of a server comes from QDRANT_API_KEY.
    """

    engine, port, key = "qdrant", 6333, KEY
    options: ClassVar = {
        **CollectionSystem.options,
        "url": "where the server is: qdrant://host:6333/collection",
        "path": "folder of a shard of Qdrant Edge, which is searched in this process",
        "vector": "name of the vector; the only one when left out",
        "id": "payload field of the ids, where points are not called by them",
        "quantise": "of a new collection: " + ", ".join(_QUANTISED),
        "tls": "true: the server is asked over TLS",
        "client": "a QdrantClient in place of url, in Python",
    }

    def __init__(
        self,
        url: str | None = None,
        vector: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of the option
        quantise: str = "none",
        tls: str | bool = False,
        client: Any = None,
        **options: Any,
    ) -> None:
        if client is not None and (url, options.get("path")) != (None, None):
            raise InputError("found a client and a place of its own; expected one of them")
        super().__init__(url, **options)
        if self.path is not None:
            if self.collection is not None:
                raise InputError("a path is one collection; found a name beside it")
            self.path = self.path.absolute()
            self.collection = str(self.path)
        self.vector, self.id = vector, id
        self.quantise = one_of(quantise, _QUANTISED, "quantise")
        self.tls, self._given_client = flag(tls, "tls"), client

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs, and search knobs: more of them where vectors are quantised."""
        facts = self._facts()
        if facts is None:
            return _BUILD_KNOBS
        return (*_BUILD_KNOBS, _HNSW_EF, *(() if facts.scores else _QUANTISED_KNOBS))

    @property
    def _place(self) -> str:
        if self.address is not None:
            return f"Qdrant at {self.address}"
        return "Qdrant" if self._given_client is not None else "Qdrant Edge"

    @property
    def _engine(self) -> Engine:
        if self._session is None:
            served = self.address is not None or self._given_client is not None
            if served:
                opened: Any = QdrantServer.open(
                    self.address, self._given_client, self.timeout, tls=self.tls
                )
            else:
                opened = EdgeShards()
            self._session = Session(opened, opened.close)
        engine: Engine = self._session.client
        return engine

    @contextmanager
    def _talking(self, doing: str) -> Iterator[Engine]:
        engine = self._engine
        try:
            yield engine
        except SemrecallError:
            raise
        except engine.failures as error:
            said = plain_error(error, secret=QdrantServer.key())
            text = f"{self._place} failed at {doing}: {said}"
            status = getattr(error, "status_code", None)
            if status in (400, 422):
                raise InputError(text) from error
            hint = f"is it running, and reachable within timeout={self.timeout:g} seconds?"
            if status in (401, 403):
                hint = f"the key is read from {KEY} in the environment"
            elif "WAL" in said or "lock" in said.lower():
                hint = "is the folder open in another process? Qdrant Edge lets in one at a time"
            elif status is not None or self.address is None:
                hint = ""
            raise SystemFault(text, hint=hint or None) from error

    # -- what there is --------------------------------------------------------------------

    def _names(self) -> Sequence[str]:
        if self.path is not None:
            return [str(self.path)] if EdgeShards.is_shard(self.path) else []
        with self._talking("a look at its collections") as engine:
            return engine.names()

    def _look(self) -> Collection | None:
        name = str(self.collection)
        with self._talking(f"a look at the collection {name!r}") as engine:
            config = engine.config(name)
        if config is None:
            return None
        vector, told = self._chosen(name, config["vectors"])
        space = _space_of(told, name)
        hnsw = config["hnsw"] | (told.get("hnsw_config") or {})
        coded = told.get("quantization_config") or config["quantisation"]
        points, indexed = int(config["points"]), int(config["indexed"] or 0)
        kilobytes = points * int(told["size"]) * 4 / 1024
        exact = not indexed or kilobytes < int(hnsw.get("full_scan_threshold") or 0)
        self._warn_of_scans(name, points, indexed, exact=exact, hnsw=hnsw)
        return Collection(
            name,
            vector,
            self.id or "point id",
            int(told["size"]),
            space,
            points,
            index="HNSW",
            exact=exact,
            scores=not coded,
            details={
                **config["versions"],
                **{key: hnsw.get(key) for key in ("m", "ef_construct", "full_scan_threshold")},
                "indexed_vectors": indexed,
                "segments": config["segments"],
                "quantisation": next(iter(coded)) if coded else "none",
                "vectors": "scaled to length one" if space.name == "cosine" else "as given",
            },
        )

    def _chosen(self, name: str, vectors: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        listed = ", ".join(v or "(no name)" for v in vectors)
        if self.vector is None and len(vectors) == 1:
            return next(iter(vectors.items()))
        if self.vector is None or self.vector not in vectors:
            found = f"no dense vector {self.vector!r}" if self.vector else "several dense vectors"
            raise InputError(
                f"the collection {name!r} has {found}", hint=f"name one with vector=NAME: {listed}"
            )
        return self.vector, vectors[self.vector]

    def _warn_of_scans(
        self, name: str, points: int, indexed: int, *, exact: bool, hnsw: Mapping[str, Any]
    ) -> None:
        if exact:
            why = f"{indexed:,} of {points:,} vectors are indexed"
            if indexed:
                limit = hnsw.get("full_scan_threshold")
                why = f"it is smaller than its full_scan_threshold of {limit:,} kB"
            message = f"Qdrant searches {name!r} exactly, whatever hnsw_ef is: {why}"
        elif indexed < points:
            message = (
                f"{points - indexed:,} of {points:,} vectors of {name!r} are not indexed (yet); "
                "Qdrant compares these exactly"
            )
        else:
            return
        warnings.warn(message, SemrecallWarning, stacklevel=5)

    # -- made -----------------------------------------------------------------------------

    @property
    def _temporary(self) -> bool:
        return super()._temporary and self._given_client is None

    def _take_name(self) -> None:
        self._folder = None
        if self._temporary:
            self._folder, self._session = own_folder(), None
            self.path = self._folder / "shard"
            self.collection = str(self.path)
        super()._take_name()

    def _refuse_existing(self) -> None:
        super()._refuse_existing()
        path = self.path
        if path is None or EdgeShards.is_shard(path) or not path.exists():
            return
        if not path.is_dir() or any(path.iterdir()):
            raise InputError(
                f"{path} is no shard of Qdrant Edge, and not empty; it is left as it is",
                hint="name a folder that does not exist yet",
            )

    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        """All of them are indexed, and the index is what is searched.

        indexing_threshold and full_scan_threshold are set as low as they go.
        """
        engine, name, row = self._engine, str(self.collection), 0
        kept = None if base.length is None else named_ids(base.ids)
        self.id = None if kept is None else self.id or "id"
        made = {knob.name: knob.default for knob in _BUILD_KNOBS} | dict(knobs)
        made |= {"quantise": self.quantise, "vector": self.vector or ""}
        engine.create(name, base.dimension, DISTANCES[space.name], made)
        self._begun = True
        for ids, block in stored_blocks(base, space):
            points: list[tuple[Any, Any, Any]] = []
            for i, values in zip(ids, block, strict=True):
                if self.id is not None:
                    points.append((row, values, {self.id: str(i)}))
                else:
                    points.append((uuid.UUID(i) if isinstance(i, str) else int(i), values, None))
                row += 1
            for start in range(0, len(points), _PAGE):
                engine.insert(name, points[start : start + _PAGE])
        if not row:
            raise InputError("the base holds no vector that can be searched")
        engine.finish(name, self.build_timeout)

    def _dropping(self) -> Callable[[], Any]:
        return partial(_end, self._engine, str(self.collection), self._folder)

    # -- searched -------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k) and scores. filters: those of Qdrant, {"must": [...], ...}.

        Scores of quantised vectors are told with rescore only: then they are of the vectors.
        """
        facts, wanted = self._held(), self.turned("search", settings)
        ids, scores = self._search(queries, k, _params(wanted), filters)
        return ids, scores if facts.scores or wanted.get("rescore") == "true" else None

    def exact(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **given: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Every vector compared by Qdrant itself, unquantised."""
        self.turned("search", given)
        params = {"exact": True, "quantization": {"ignore": True}}
        return self._search(queries, k, params, filters)

    def _search(
        self,
        queries: NDArray[np.float32],
        k: int,
        params: Mapping[str, Any],
        filters: Sequence[Any] | None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        matrix, facts = self._asked(queries, k), self._held()
        found: list[Any] = [None] * len(matrix)
        with self._talking("a search") as engine:
            for given, part in by_filter(filters, len(matrix), _AT_ONCE):
                more = {"params": params, "filter": given, "payload": self.id}
                hits = engine.ask(facts.name, facts.vector, matrix[part], k, more)
                for row, hit in zip(part, hits, strict=True):
                    found[row] = ([self._id(p) for p in hit], [p.score for p in hit])
        integers = all(isinstance(i, int) for names, _ in found for i in names)
        if not integers:
            found = [([str(i) for i in names], scores) for names, scores in found]
        return answer(found, facts.space, integer_ids=integers)

    def _id(self, point: Any) -> str | int:
        """The id of a point in our words: UUIDs, and integers that are too large, are texts."""
        if self.id is not None:
            kept = (point.payload or {}).get(self.id)
            if kept is None:
                raise SystemFault(f"the point {point.id} has no {self.id!r} in its payload")
            return kept if isinstance(kept, int) else str(kept)
        return point.id if isinstance(point.id, int) and point.id < 1 << 63 else str(point.id)

    def count(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Counters | None:
        """Bytes read as the server reports them (hardware_reporting); None where it does not."""
        matrix, facts = self._asked(queries, k), self._held()
        params = _params(self.turned("search", settings))
        bytes_read = np.zeros(len(matrix))
        with self._talking("a search") as engine:
            for given, row in by_filter(filters, len(matrix), 1):
                more = {"params": params, "filter": given, "payload": self.id}
                told = engine.count(facts.name, facts.vector, matrix[row[0]], k, more)
                if told is None:
                    return None
                bytes_read[row] = told
        return Counters({}, reported_bytes=bytes_read)

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[str | int], NDArray[np.float32]]]:
        """Under cosine Qdrant keeps them scaled to length one; points without one are left out."""
        facts, start = self._held(), None
        while True:
            with self._talking("reading its vectors") as engine:
                points, start = engine.page(facts.name, start, facts.vector, self.id)
            held = [(self._id(point), point.vector) for point in points if point.vector is not None]
            if held:
                rows = [row[facts.vector] if isinstance(row, dict) else row for _, row in held]
                yield [i for i, _ in held], np.array(rows, dtype=np.float32)
            if start is None:
                return

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python, for qdrant-client."""
        facts, params = self._held(), _params(settings)
        coded = params.pop("quantization", None)
        written = [f"{key}={value!r}" for key, value in params.items()]
        if coded is not None:
            inner = ", ".join(f"{key}={value!r}" for key, value in coded.items())
            written.append(f"quantization=models.QuantizationSearchParams({inner})")
        using = f", using={facts.vector!r}" if facts.vector else ""
        return (
            f"client.query_points({self._own_name!r}, query=vector{using}, limit=k,\n"
            f"                    search_params=models.SearchParams({', '.join(written)}))"
        )

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python, for qdrant-client."""
        facts = self._held()
        return _created(facts, self._own_name, self.quantise, knobs)

    @property
    def _own_name(self) -> str:
        """What the collection is called in what is pasted; a shard in a folder has no name."""
        return "docs" if self.path is not None else self._shown


def _created(facts: Collection, name: str, quantise: str, knobs: Mapping[str, Any]) -> str:
    """How qdrant-client makes such a collection."""
    params = f"models.VectorParams(size={facts.dimension}, "
    params += f"distance=models.Distance.{DISTANCES[facts.space.name].upper()})"
    graph = [f"{n}={v}" for n, v in knobs.items() if n != "segments"]
    lines = [f"client.create_collection({name!r},"]
    lines.append(
        "vectors_config=" + (f"{{{facts.vector!r}: {params}}}" if facts.vector else params)
    )
    if graph:
        lines.append(f"hnsw_config=models.HnswConfigDiff({', '.join(graph)})")
    if "segments" in knobs:
        written = f"default_segment_number={knobs['segments']}"
        lines.append(f"optimizers_config=models.OptimizersConfigDiff({written})")
    if quantise in _CODES:
        lines.append(f"quantization_config={_CODES[quantise]}")
    return f"{lines[0]}\n    " + ",\n    ".join(lines[1:]) + ")"


def _params(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Search knobs as the REST interface has them."""
    params: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "hnsw_ef":
            params[name] = value
        else:
            kept = str(value) in ("true", "1") if name == "rescore" else float(value)
            params.setdefault("quantization", {})[name] = kept
    return params


def _space_of(told: Mapping[str, Any], name: str) -> Space:
    for space, distance in DISTANCES.items():
        if distance == str(told.get("distance")):
            if told.get("multivector_config"):
                raise InputError(f"the collection {name!r} holds several vectors a point")
            return space_of(space)
    raise InputError(
        f"the collection {name!r} is compared by {told.get('distance')}; "
        f"expected one of {', '.join(DISTANCES.values())}"
    )


def _end(engine: Engine, name: str, folder: Path | None) -> None:
    engine.drop(name)
    if folder is not None:
        remove_folder(folder)
