"""A server of Qdrant, asked through qdrant-client."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from semrecall.errors import InputError, SystemFault
from semrecall.registry import import_extra
from semrecall.systems.connection import Address

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["KEY", "QdrantServer"]

KEY = "QDRANT_API_KEY"
#: Seconds between two looks at how far indexing has come, and how often it must stand still.
_LOOK, _STILL = 0.5, 6


class QdrantServer:
    """Collections of a server."""

    def __init__(self, address: Address | None, client: Any, timeout: float, *, tls: bool) -> None:
        """By its address, or with a client that is there."""
        module = import_extra("qdrant_client", "qdrant", "a server of Qdrant")
        self._models = import_extra("qdrant_client.models", "qdrant", "the system 'qdrant'")
        told = import_extra("qdrant_client.http.exceptions", "qdrant", "the system 'qdrant'")
        # An in-process client raises ValueError for what a server answers with a status.
        self.failures = (told.ApiException, told.ResponseHandlingException, ValueError, OSError)
        self._seconds, self._own = math.ceil(timeout), address is not None
        self._client = (
            client
            if address is None
            else module.QdrantClient(
                host=address.host,
                port=address.port,
                https=tls,
                api_key=os.environ.get(KEY) or None,
                timeout=self._seconds,
                check_compatibility=False,
            )
        )

    def close(self) -> None:
        """Close a client that was made here."""
        if self._own:
            self._client.close()

    def names(self) -> Sequence[str]:
        """The collections there are."""
        return [found.name for found in self._client.get_collections().collections]

    def config(self, name: str) -> dict[str, Any] | None:
        """Configuration and counts as the server tells them."""
        if not self._client.collection_exists(name):
            return None
        told = self._client.get_collection(name)
        params = told.config.model_dump(mode="json")
        vectors = params["params"].get("vectors") or {}
        return {
            "vectors": {"": vectors} if "size" in vectors else vectors,
            "hnsw": params.get("hnsw_config") or {},
            "quantisation": params.get("quantization_config"),
            "points": self._client.count(name, exact=True).count,
            "indexed": told.indexed_vectors_count,
            "segments": told.segments_count,
            "versions": {"version": self._version(), "status": str(told.status.value)},
        }

    def _version(self) -> str:
        info = getattr(self._client, "info", None)
        return str(info().version) if info is not None else "unknown"

    def create(self, name: str, request: Mapping[str, Any]) -> None:
        """An empty collection. request: as the REST interface takes it."""
        made = self._models.CreateCollection(**request)
        self._client.create_collection(
            name,
            vectors_config=made.vectors,
            hnsw_config=made.hnsw_config,
            optimizers_config=made.optimizers_config,
            quantization_config=made.quantization_config,
            timeout=self._seconds,
        )

    def insert(self, name: str, points: Sequence[tuple[Any, Any, Any]]) -> None:
        """Points of id, vector and payload."""
        rows = [
            self._models.PointStruct(id=i if isinstance(i, int) else str(i), vector=v, payload=p)
            for i, v, p in points
        ]
        self._client.upsert(name, rows, wait=True)

    def finish(self, name: str, seconds: float) -> None:
        """Wait until it is green and all is indexed, or nothing more is."""
        until, before, still = time.monotonic() + seconds, -1, 0
        while True:
            told = self._client.get_collection(name)
            indexed, points = told.indexed_vectors_count or 0, told.points_count or 0
            still = still + 1 if indexed == before and told.status.value == "green" else 0
            before = indexed
            if told.status.value == "red":
                raise SystemFault(f"Qdrant failed to index {name!r}: {told.optimizer_status}")
            if told.status.value == "green" and (indexed >= points or still >= _STILL):
                return
            if time.monotonic() > until:
                raise SystemFault(
                    f"Qdrant has indexed {indexed:,} of {points:,} vectors of {name!r} within "
                    f"{seconds:g} seconds",
                    hint="allow more with build_timeout=SECONDS in the spec, if it is only slow",
                )
            time.sleep(_LOOK)

    def drop(self, name: str) -> None:
        """Remove a collection, if it is there."""
        self._client.delete_collection(name, timeout=self._seconds)

    def ask(
        self, name: str, vector: str, queries: NDArray[np.float32], k: int, given: Mapping[str, Any]
    ) -> list[list[Any]]:
        """Points with id, score and payload."""
        requests = [self._request(vector, row, k, given) for row in queries]
        found = self._client.query_batch_points(name, requests, timeout=self._seconds)
        return [answer.points for answer in found]

    def _request(
        self, vector: str, row: NDArray[np.float32], k: int, given: Mapping[str, Any]
    ) -> Any:
        m, condition = self._models, given["filter"]
        if isinstance(condition, Mapping):
            try:
                condition = m.Filter(**condition)
            except ValueError as error:
                raise InputError(
                    f"the filter {given['filter']!r} is none of Qdrant",
                    hint='for example {"must": [{"key": "lang", "match": {"value": "de"}}]}',
                ) from error
        return m.QueryRequest(
            query=row.tolist(),
            using=vector or None,
            limit=k,
            filter=condition,
            params=m.SearchParams(**given["params"]),
            with_payload=given["payload"],
        )

    def bytes_read(
        self, name: str, vector: str, query: NDArray[np.float32], k: int, given: Mapping[str, Any]
    ) -> float | None:
        """Bytes of vectors and of the payload index that one search reads, as reported."""
        http = getattr(self._client, "http", None) if self._own else None
        if http is None:
            return None
        told = http.search_api.query_points(
            collection_name=name, query_request=self._request(vector, query, k, given)
        )
        hardware = getattr(getattr(told, "usage", None), "hardware", None)
        if hardware is None:
            return None
        return float(hardware.vector_io_read + hardware.payload_index_io_read)

    def page(self, name: str, start: Any, given: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """Points from a start on, and the next start."""
        points, following = self._client.scroll(name, offset=start, timeout=self._seconds, **given)
        return points, following
