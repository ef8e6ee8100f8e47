"""Chroma: a server, or its files in this process."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.data.ids import ids as ids_of
from semrecall.errors import InputError, SemrecallError, SystemFault
from semrecall.registry import import_extra
from semrecall.space import space as space_of
from semrecall.systems.base import Knob
from semrecall.systems.collection import Collection, CollectionSystem, by_filter
from semrecall.systems.connection import Session, own_folder, plain_error, remove_folder, within
from semrecall.systems.stored import answer, flag, stored_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["ChromaSystem"]

_KEY = "CHROMA_API_KEY"
_SPACES = ("ip", "cosine", "l2")
#: Queries of one request, and vectors of a page.
_AT_ONCE, _PAGE = 256, 2000

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

    engine, port, key = "chroma", 8000, _KEY
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
        _chromadb()
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

    @property
    def _place(self) -> str:
        if self.address is not None:
            return f"Chroma at {self.address}"
        return f"Chroma in {self.path or 'a temporary folder'}"

    # -- what there is --------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        if self._session is None:
            with self._talking("opening it"):
                self._session = self._files(self.path) if self.address is None else self._served()
        return self._session.client

    def _served(self) -> Session:
        assert self.address is not None
        key = os.environ.get(_KEY, "")
        made = partial(
            _chromadb().HttpClient,
            host=self.address.host,
            port=self.address.port,
            ssl=self.tls,
            headers={"x-chroma-token": key, "Authorization": f"Bearer {key}"} if key else None,
            settings=_settings(),
            **self._within,
        )
        client = within(self.timeout, f"{self._place}: opening it", "timeout", made)
        return Session(client, _close_served, client)

    def _files(self, path: Path | None, folder: Path | None = None) -> Session:
        """A client of files, which are removed with it where they are in a folder of ours."""
        if path is None:
            folder = own_folder()
        client = _chromadb().PersistentClient(
            str(path or folder), settings=_settings(), **self._within
        )
        return Session(client, _close, client, folder)

    @contextmanager
    def _talking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except SemrecallError:
            raise
        except Exception as error:
            told = import_extra("chromadb.errors", "chroma", "the system 'chroma'")
            said = plain_error(error, os.environ.get(_KEY))
            text = f"{self._place} failed at {doing}: {said}"
            if isinstance(error, told.InvalidArgumentError | told.InvalidDimensionException):
                raise InputError(text) from error
            if doing == "a search" and isinstance(error, ValueError):
                raise InputError(text) from error
            hint = None
            if self.address is not None:
                hint = "is it running, and is this its address?"
            if isinstance(error, told.ChromaAuthError):
                hint = f"the key is read from {_KEY} in the environment"
            raise SystemFault(text, hint=hint) from error

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

    def _look(self) -> Collection | None:
        name = str(self.collection)
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
        space = str(details.pop("space", "l2"))
        if space not in _SPACES:
            raise InputError(
                f"the collection {name!r} is compared by {space}; expected {', '.join(_SPACES)}"
            )
        details["version"] = _chromadb().__version__
        if self.address is not None:
            details["server"] = self._call(doing, self._client.get_version)
        return Collection(
            name, "embedding", "id", first.shape[1], space_of(space), rows,
            index=index, details=details,
        )  # fmt: skip

    def _held_by(self, client: Any) -> Any:
        return self._call(
            "opening the collection",
            client.get_collection,
            name=self.collection,
            embedding_function=None,
        )

    # -- made -----------------------------------------------------------------------------

    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        self._copy, client = None, self._client
        hnsw = {knob.name: knob.default for knob in _BUILD_KNOBS} | dict(knobs)
        held = self._call(
            "a build",
            client.create_collection,
            name=self.collection,
            configuration={"hnsw": {"space": space.name, **hnsw}},
            embedding_function=None,
        )
        self._begun, filled = True, False
        most = int(self._call("a build", client.get_max_batch_size))
        for ids, block in stored_blocks(base, space):
            names = [str(i) for i in ids]
            for start in range(0, len(names), most):
                stop, filled = start + most, True
                self._call("a build", held.add, ids=names[start:stop], embeddings=block[start:stop])
        if not filled:
            raise InputError("the base holds no vector that can be searched")

    def _dropping(self) -> Callable[[], Any]:
        seconds = None if self.address is None else self.timeout
        return partial(_dropped, self._client, str(self.collection), seconds)

    # -- searched -------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k) and scores. filters: those of Chroma, {"lang": "de"}.

        {"where": ..., "where_document": ...} holds both kinds of them.
        """
        matrix, facts = self._asked(queries, k), self._held()
        held = self._held_by(self._client_with(self.turned("search", settings)))
        found: list[Any] = [None] * len(matrix)
        for given, part in by_filter(filters, len(matrix), _AT_ONCE):
            told = self._call(
                "a search",
                held.query,
                query_embeddings=matrix[part],
                n_results=min(k, facts.rows),
                include=["distances"],
                **_conditions(given),
            )
            for row, ids, distances in zip(part, told["ids"], told["distances"], strict=True):
                found[row] = (ids, _scores(np.array(distances), facts.space))
        # Chroma knows texts only; those that are integers are the same ids.
        integers = ids_of([i for ids, _ in found for i in ids]).are_integers
        if integers:
            found = [([int(i) for i in ids], scores) for ids, scores in found]
        return answer(found, facts.space, integer_ids=integers)

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
        facts = self._held()
        made = {"space": facts.space.name, **knobs}
        return (
            f'collection = client.create_collection("{self._shown}", '
            f'configuration={{"hnsw": {made!r}}})\n'
            "collection.add(ids=ids, embeddings=vectors)"
        )


def _chromadb() -> Any:
    return import_extra("chromadb", "chroma", "the system 'chroma'")


def _settings() -> Any:
    return _chromadb().Settings(anonymized_telemetry=False)


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


def _scores(distances: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    """Chroma tells l2 squared, and one less the similarity."""
    if space.name == "l2":
        return np.sqrt(np.maximum(distances, 0))
    return 1 - distances


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
    if folder is not None:
        remove_folder(folder)
