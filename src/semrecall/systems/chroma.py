"""Chroma: a server, or its files in this process."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.systems.base import Knob
from semrecall.systems.collection import (
    Asked,
    Asker,
    Collection,
    CollectionSystem,
    Found,
    Recipe,
    built_with,
)
from semrecall.systems.connection import Session, own_folder, remove_folder, within
from semrecall.systems.stored import flag

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = ["ChromaSystem"]

#: Vectors of a page.
_PAGE = 2000

_EF_SEARCH = "length of the candidate list"
_BUILD_KNOBS = (
    Knob("max_neighbors", "build", 2, 256, 16, "links of a vector (M)", "log"),
    Knob("ef_construction", "build", 4, 4096, 100, "length of the candidate list while linking",
         "log"),
    Knob("ef_search", "build", 1, 65_536, 100, _EF_SEARCH + " that is kept with it", "log"),
)  # fmt: skip


class ChromaSystem(CollectionSystem):
    """A collection of Chroma.

    Chroma keeps ef_search with the collection, and reads it only when it opens the collection
    anew. So a search with another ef_search is one of a copy of the files, in a temporary folder,
    that is changed and then opened; the collection itself is never altered. A server keeps its
    files to itself: there ef_search can be turned only while building.

    The key of a server comes from CHROMA_API_KEY.
    """

    engine, title, module = "chroma", "Chroma", "chromadb"
    port, key = 8000, "CHROMA_API_KEY"
    metrics: ClassVar = {"ip": "ip-distance", "cosine": "cosine-distance", "l2": "squared-l2"}
    has_exact = False
    options: ClassVar = {
        **CollectionSystem.options,
        "url": "where the server is: chroma://host:8000/collection",
        "path": "folder of the database: chroma?path=folder&collection=docs",
        "tls": "true: the server is asked over TLS",
        "tenant": "the tenant on the server, where it is not the default one",
        "database": "the database, where it is not the default one",
    }

    #: The copy that was searched last, and its ef_search.
    _copy: tuple[int, Session] | None = None

    def __init__(
        self,
        url: str | None = None,
        tls: str | bool = False,
        tenant: str = "default_tenant",
        database: str = "default_database",
        **options: Any,
    ) -> None:
        super().__init__(url, **options)
        self.tls, self._within = flag(tls, "tls"), {"tenant": tenant, "database": database}

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs, and ef_search where the files are at hand."""
        facts = self._facts()
        if facts is None or self.address is not None or facts.index != "HNSW":
            return _BUILD_KNOBS
        kept = float(facts.details["ef_search"])
        about = _EF_SEARCH + "; another one is searched in a copy of the files"
        return (
            *_BUILD_KNOBS,
            Knob("ef_search", "search", 1, max(kept, 65_536), kept, about, "log", from_k=True),
        )

    # -- what there is --------------------------------------------------------------------

    def _open(self) -> Session:
        if self.address is None:
            return self._files(self.path)
        key = os.environ.get(self.key, "")
        made = partial(
            self._library.HttpClient,
            host=self.address.host,
            port=self.address.port,
            ssl=self.tls,
            headers={"x-chroma-token": key, "Authorization": f"Bearer {key}"} if key else None,
            settings=self._settings,
            **self._within,
        )
        client = self._call("opening it", made)
        return Session(client, _close_served, client)

    @property
    def _settings(self) -> Any:
        return self._library.Settings(anonymized_telemetry=False)

    def _files(self, path: Path | None, folder: Path | None = None) -> Session:
        """A client of files, which are removed with it where they are in a folder of ours."""
        if path is None:
            path = folder = own_folder()
        client = self._library.PersistentClient(str(path), settings=self._settings, **self._within)
        return Session(client, _close, client, folder)

    def _failures(self) -> tuple[type[BaseException], ...]:
        return (Exception,)

    def _asked_wrongly(self, error: Any, said: str, doing: str) -> bool:
        told = self._import("chromadb.errors")
        wrong = (told.InvalidArgumentError, told.InvalidDimensionException)
        return isinstance(error, wrong) or (doing == "a search" and isinstance(error, ValueError))

    def _hint(self, error: Any, said: str) -> str | None:
        if isinstance(error, self._import("chromadb.errors").ChromaAuthError):
            return self._key_hint
        return None if self.address is None else "is it running, and is this its address?"

    def _call(self, doing: str, work: Any, **given: Any) -> Any:
        """What Chroma answers; a server has until `timeout`, for its client waits for ever."""
        with self._talking(doing):
            if self.address is None:
                return work(**given)
            return within(self.timeout, f"{self._place}: {doing}", "timeout", lambda: work(**given))

    def _names(self) -> Sequence[str]:
        if self.path is not None and not (self.path / "chroma.sqlite3").is_file():
            return []
        found = self._call("a look at its collections", self._client.list_collections)
        return [collection.name for collection in found]

    def _look(self, name: str) -> Collection | None:
        if name not in self._names():
            return None
        doing = f"a look at the collection {name!r}"
        held = self._held_by(self._client)
        rows = self._call(doing, held.count)
        first = self._call(doing, held.get, limit=1, include=["embeddings"])["embeddings"]
        if not rows or first is None or not len(first):
            raise InputError(f"the collection {name!r} holds no vector")
        told = held.configuration_json
        index = "HNSW" if told.get("hnsw") else "SPANN"
        details = dict(told.get("hnsw") or told.get("spann") or {})
        space = self._space_told(details.pop("space", "l2"), f"the collection {name!r}")
        details["version"] = self._library.__version__
        if self.address is not None:
            details["server"] = self._call(doing, self._client.get_version)
        return Collection(
            name, "embedding", "id", first.shape[1], space, rows, index=index, details=details
        )

    def _held_by(self, client: Any) -> Any:
        return self._call(
            "opening the collection",
            client.get_collection,
            name=self.collection,
            embedding_function=None,
        )

    # -- made -----------------------------------------------------------------------------

    def _create(self, recipe: Recipe) -> None:
        self._copy = None
        self._call(
            "a build",
            self._client.create_collection,
            name=self.collection,
            configuration={
                "hnsw": {"space": recipe.space.name, **built_with(_BUILD_KNOBS, recipe.knobs)}
            },
            embedding_function=None,
        )

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        held, names = self._held_by(self._client), [str(i) for i in ids]
        most = int(self._call("a build", self._client.get_max_batch_size))
        for start in range(0, len(names), most):
            rows = slice(start, start + most)
            self._call("a build", held.add, ids=names[rows], embeddings=block[rows])

    def _dropping(self) -> Callable[[], Any]:
        seconds = None if self.address is None else self.timeout
        return partial(_dropped, self._client, str(self.collection), seconds)

    # -- searched -------------------------------------------------------------------------

    def _asker(self, asked: Asked) -> Asker:
        """Filters are those of Chroma, {"lang": "de"}.

        {"where": ..., "where_document": ...} holds both kinds of them.
        """
        held = self._held_by(self._client_with(asked.wanted or {}))
        most = min(asked.k, self._held().rows)

        def ask(matrix: NDArray[np.float32], given: Any) -> Sequence[Found]:
            told = self._call(
                "a search",
                held.query,
                query_embeddings=matrix,
                n_results=most,
                include=["distances"],
                **_conditions(given),
            )
            return list(zip(told["ids"], told["distances"], strict=True))

        return ask

    def _client_with(self, wanted: Mapping[str, Any]) -> Any:
        """A client of files with this ef_search: the collection's own, or those of a copy."""
        facts, client = self._held(), self._client
        length = int(wanted.get("ef_search", facts.details.get("ef_search", 0)))
        if not wanted or length == facts.details["ef_search"]:
            return client
        if self._copy is None or self._copy[0] != length:
            self._copy = None
            self._copy = length, self._copied(length)
        return self._copy[1].client

    def _copied(self, length: int) -> Session:
        folder = own_folder()
        with self._talking("copying the files for another ef_search"):
            try:
                source = str(self._client.get_settings().persist_directory)
                shutil.copytree(source, folder, dirs_exist_ok=True)
                first = self._files(folder)
                held = first.client.get_collection(self.collection, embedding_function=None)
                with warnings.catch_warnings():
                    # It warns of what it keeps itself for a collection without texts.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    held.modify(configuration={"hnsw": {"ef_search": length}})
                del held, first
                return self._files(folder, folder)
            except BaseException:
                remove_folder(folder)
                raise

    def close(self) -> None:
        """Drop a collection of its own, and copies; let go of the connection."""
        self._copy = None
        super().close()

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Bit for bit; under cosine to a rounding: Chroma keeps lengths apart, and multiplies."""
        held, start = self._held_by(self._client), 0
        include = ["embeddings"] if vectors else []
        while True:
            page = self._call(
                "reading its vectors", held.get, limit=_PAGE, offset=start, include=include
            )
            if not page["ids"]:
                return
            block = page["embeddings"] if vectors else np.empty((len(page["ids"]), 0))
            yield page["ids"], np.asarray(block, dtype=np.float32)
            start += len(page["ids"])

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python, for chromadb; it holds from the next time on that the collection is opened."""
        if not settings:
            return "collection.query(query_embeddings=[vector], n_results=k)"
        return f'collection.modify(configuration={{"hnsw": {dict(settings)!r}}})'

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python, for chromadb."""
        made = {"space": self.space.name, **knobs}
        return (
            f'collection = client.create_collection("{self._shown}", '
            f'configuration={{"hnsw": {made!r}}})\n'
            "collection.add(ids=ids, embeddings=vectors)"
        )


def _conditions(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(
            f"the filter {given!r} is none of Chroma", hint='for example {"lang": "de"}'
        )
    if given.keys() <= {"where", "where_document"}:
        return dict(given)
    return {"where": dict(given)}


def _dropped(client: Any, name: str, seconds: float | None) -> None:
    def drop() -> None:
        if any(collection.name == name for collection in client.list_collections()):
            client.delete_collection(name)

    if seconds is None:
        drop()
    else:
        within(seconds, f"Chroma: dropping {name!r}", "timeout", drop)


def _close_served(client: Any) -> None:
    client.close()
    # Chroma leaves its connections open, and has two clients in one.
    for part in (client, client._admin_client):
        part._server._session.close()


def _close(client: Any, folder: Path | None) -> None:
    client.close()
    remove_folder(folder)
