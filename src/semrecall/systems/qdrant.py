"""Qdrant: a server, or its engine in this process (Qdrant Edge)."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SemrecallWarning, SystemFault
from semrecall.systems.base import Counters, Knob
from semrecall.systems.collection import (
    Asked,
    Asker,
    Collection,
    CollectionSystem,
    Found,
    Recipe,
    built_with,
    by_filter,
    named_ids,
    one_of,
    only_one,
)
from semrecall.systems.connection import Session, own_folder, remove_folder
from semrecall.systems.qdrant_edge import EdgeShards
from semrecall.systems.qdrant_server import KEY, QdrantServer
from semrecall.systems.stored import flag

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = ["QdrantSystem"]

#: Points of one request.
_PAGE = 1000

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
#: Quantisation of a new collection: as the REST interface has it, and as Python does.
_CODES: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({}, ""),
    "scalar": ({"type": "int8"}, "type=models.ScalarType.INT8, "),
    "product": ({"compression": "x16"}, "compression=models.CompressionRatio.X16, "),
    "binary": ({}, ""),
}
_QUANTISED_KNOBS = (
    Knob.mode("rescore", "search", ("false", "true"), None,
              "candidates are scored again by their vectors"),
    Knob("oversampling", "search", 1, 16, None, "candidates per result, before they are scored "
         "again", "log", whole=False),
)  # fmt: skip


class QdrantSystem(CollectionSystem):
    """A collection of Qdrant with dense vectors.

    Point ids are unsigned integers or UUIDs. Ids of another kind are kept in a payload field
    (`id`), and come from there. The key of a server comes from QDRANT_API_KEY.
    """

    engine, title, port, key = "qdrant", "Qdrant", 6333, KEY
    metrics: ClassVar = {"Dot": "ip", "Cosine": "cosine", "Euclid": "l2"}
    options: ClassVar = {
        **CollectionSystem.options,
        "url": "where the server is: qdrant://host:6333/collection",
        "path": "folder of a shard of Qdrant Edge, which is searched in this process",
        "vector": "name of the vector; the only one when left out",
        "id": "payload field of the ids, where points are not called by them",
        "quantise": "of a new collection: " + ", ".join(_CODES),
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
        self.quantise = one_of(quantise, tuple(_CODES), "quantise")
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
            return super()._place
        return "Qdrant" if self._given_client is not None else "Qdrant Edge"

    def _open(self) -> Session:
        if self._temporary or self.path is not None:
            shards = EdgeShards()
            return Session(shards, shards.close)
        server = QdrantServer(self.address, self._given_client, self.timeout, tls=self.tls)
        return Session(server, server.close)

    @property
    def _engine(self) -> EdgeShards | QdrantServer:
        engine: EdgeShards | QdrantServer = self._client
        return engine

    def _failures(self) -> tuple[type[BaseException], ...]:
        return () if self._session is None else self._engine.failures

    def _asked_wrongly(self, error: Any, said: str, doing: str) -> bool:
        return getattr(error, "status_code", None) in (400, 422)

    def _hint(self, error: Any, said: str) -> str | None:
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return self._key_hint
        if "WAL" in said or "lock" in said.lower():
            return "is the folder open in another process? Qdrant Edge lets in one at a time"
        return self._unreachable if status is None and self.address is not None else None

    # -- what there is --------------------------------------------------------------------

    def _names(self) -> Sequence[str]:
        if self.path is not None:
            return [str(self.path)] if EdgeShards.is_shard(self.path) else []
        return self._engine.names()

    def _look(self, name: str) -> Collection | None:
        config = self._engine.config(name)
        if config is None:
            return None
        where, vectors = f"the collection {name!r}", config["vectors"]
        vector = only_one(self.vector, vectors, where, "dense vector", "vector")
        told = vectors[vector]
        space = self._space_told(told.get("distance"), where)
        if told.get("multivector_config"):
            raise InputError(f"{where} holds several vectors a point")
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
        self._folder = own_folder() if self._temporary else None
        super()._take_name()
        if self._folder is not None:
            self.path = self._folder / "shard"
            self.collection = str(self.path)

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

    def _create(self, recipe: Recipe) -> None:
        """All of them are indexed, and the index is what is searched.

        indexing_threshold and full_scan_threshold are set as low as they go.
        """
        base = recipe.base
        kept = None if base.length is None else named_ids(base.ids)
        self.id, self._inserted = None if kept is None else self.id or "id", 0
        made = built_with(_BUILD_KNOBS, recipe.knobs)
        params = {"size": base.dimension, "distance": self._metric(recipe.space)}
        codes, _ = _CODES[self.quantise]
        request = {
            "vectors": {self.vector: params} if self.vector else params,
            "hnsw_config": {
                "m": made["m"], "ef_construct": made["ef_construct"], "full_scan_threshold": 10,
            },
            "optimizers_config": {
                "indexing_threshold": 1, "default_segment_number": made.get("segments"),
            },
        }  # fmt: skip
        if self.quantise != "none":
            request["quantization_config"] = {self.quantise: {**codes, "always_ram": True}}
        self._engine.create(str(self.collection), request)

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        points: list[tuple[Any, Any, Any]] = []
        for row, (i, values) in enumerate(zip(ids, block, strict=True), self._inserted):
            vector = {self.vector: values.tolist()} if self.vector else values.tolist()
            if self.id is not None:
                points.append((row, vector, {self.id: str(i)}))
            else:
                points.append((uuid.UUID(i) if isinstance(i, str) else int(i), vector, None))
        for start in range(0, len(points), _PAGE):
            self._engine.insert(str(self.collection), points[start : start + _PAGE])
        self._inserted += len(points)

    def _finish(self, recipe: Recipe) -> None:
        self._engine.finish(str(self.collection), self.build_timeout)

    def _dropping(self) -> Callable[[], Any]:
        return partial(_end, self._engine, str(self.collection), self._folder)

    # -- searched -------------------------------------------------------------------------

    def _scored(self, wanted: Mapping[str, Any]) -> bool:
        """Scores of quantised vectors are told with rescore only: then they are of the vectors."""
        return self._held().scores or wanted.get("rescore") == "true"

    @property
    def _at_once(self) -> int:
        return 100

    def _given(self, wanted: Mapping[str, Any] | None) -> dict[str, Any]:
        """Search knobs, and the payload that comes back, for the engine."""
        everything = {"exact": True, "quantization": {"ignore": True}}
        return {
            "params": everything if wanted is None else _params(wanted),
            "payload": [self.id] if self.id is not None else False,
        }

    def _asker(self, asked: Asked) -> Asker:
        """Filters are those of Qdrant, {"must": [...], ...}."""
        facts, more = self._held(), self._given(asked.wanted)

        def ask(matrix: NDArray[np.float32], given: Any) -> Sequence[Found]:
            found = self._engine.ask(
                facts.name, facts.vector, matrix, asked.k, {**more, "filter": given}
            )
            return [([self._id(p) for p in hits], [p.score for p in hits]) for hits in found]

        return ask

    def _id(self, point: Any) -> str | int:
        """The id of a point in our words: UUIDs, and integers that are too large, are texts."""
        if self.id is not None:
            kept = (point.payload or {}).get(self.id)
            if kept is None:
                raise SystemFault(f"the point {point.id} has no {self.id!r} in its payload")
            return kept if isinstance(kept, int) else str(kept)
        return point.id if isinstance(point.id, int) and point.id < 1 << 63 else str(point.id)

    def _counted(self, asked: Asked) -> Counters | None:
        """Bytes read as the server reports them (hardware_reporting); None where it does not."""
        facts, bytes_read = self._held(), np.zeros(len(asked.matrix))
        more = self._given(asked.wanted)
        for given, (row,) in by_filter(asked.filters, 1):
            query, one = asked.matrix[row], {**more, "filter": given}
            told = self._engine.bytes_read(facts.name, facts.vector, query, asked.k, one)
            if told is None:
                return None
            bytes_read[row] = told
        return Counters({}, reported_bytes=bytes_read)

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[str | int], NDArray[np.float32]]]:
        """Under cosine Qdrant keeps them scaled to length one; points without one are left out."""
        facts, start = self._held(), None
        given = {
            "limit": _PAGE,
            "with_payload": [self.id] if self.id is not None else False,
            "with_vectors": [facts.vector] if facts.vector else True,
        }
        while True:
            points, start = self._engine.page(facts.name, start, given)
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
        facts, kind = self._held(), self.quantise
        params = f"models.VectorParams(size={facts.dimension}, "
        params += f"distance=models.Distance.{self._metric(self.space).upper()})"
        lines = [
            "vectors_config=" + (f"{{{facts.vector!r}: {params}}}" if facts.vector else params)
        ]
        graph = [f"{name}={value}" for name, value in knobs.items() if name != "segments"]
        if graph:
            lines.append(f"hnsw_config=models.HnswConfigDiff({', '.join(graph)})")
        if "segments" in knobs:
            written = f"default_segment_number={knobs['segments']}"
            lines.append(f"optimizers_config=models.OptimizersConfigDiff({written})")
        if kind != "none":
            config = f"models.{kind.title()}QuantizationConfig({_CODES[kind][1]}always_ram=True)"
            lines.append(f"quantization_config=models.{kind.title()}Quantization({kind}={config})")
        return f"client.create_collection({self._own_name!r},\n    " + ",\n    ".join(lines) + ")"

    @property
    def _own_name(self) -> str:
        """What the collection is called in what is pasted; a shard in a folder has no name."""
        return "docs" if self.path is not None else self._shown


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


def _end(engine: EdgeShards | QdrantServer, name: str, folder: Path | None) -> None:
    engine.drop(name)
    remove_folder(folder)
