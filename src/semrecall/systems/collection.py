"""What vector databases share: a named collection, asked with deadlines."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.errors import InputError, SystemFault
from semrecall.registry import did_you_mean, positive
from semrecall.systems.base import System, as_asked
from semrecall.systems.stored import Pages, flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = [
    "Address",
    "Collection",
    "CollectionSystem",
    "Session",
    "by_filter",
    "named_ids",
    "one_of",
    "own_folder",
    "own_name",
    "plain_error",
    "remove_folder",
    "within",
]

T = TypeVar("T")
#: How names of our own begin.
OWN = "semrecall_"


@dataclass(frozen=True)
class Collection:
    """A collection of vectors: where they and their ids are, and what they are.

    index: what the database calls the index. exact: whether every vector is compared, whatever
    the settings. scores: whether scores are those of the vectors, not of their codes.
    """

    name: str
    vector: str
    id: str
    dimension: int
    space: Space
    rows: int
    integer_ids: bool = True
    index: str = ""
    exact: bool = False
    scores: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Address:
    """Where a server is: host and port, and the path behind them."""

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str, port: int, key: str) -> Address:
        """The parts of `name://host:port/path`. InputError where it holds a password."""
        try:
            parts = urlsplit(url)
            found = parts.port or port
        except ValueError as error:
            raise InputError(
                f"the address {_without_user(url)!r} cannot be read: {error}"
            ) from None
        if parts.username or parts.password:
            raise InputError(
                f"the address {_without_user(url)!r} holds a user or a password",
                hint=f"keys are read from the environment only: set {key}",
            )
        if not parts.hostname:
            raise InputError(f"the address {url!r} names no host")
        return cls(parts.hostname, found, unquote(parts.path.strip("/")))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class CollectionSystem(System):
    """A collection in a vector database, on a server (`url`) or in this process (`path`).

    A collection that exists is searched where it is, and never altered. `build` makes a new one:
    under the name that was given, or under one of its own, and then it is dropped with the system.
    Without `url` and `path` the database is in a temporary folder.
    """

    #: What the database is called, in messages.
    engine: ClassVar[str]
    #: What it calls its collections.
    noun: ClassVar[str] = "collection"
    options: ClassVar[Mapping[str, str]] = {
        "url": "where the server is, as in NAME://host:port/collection",
        "path": "where the files of the database are, to search them in this process",
        "collection": "the collection of the vectors",
        "replace": "true: build may drop a collection of this name",
        "timeout": "seconds the database may take to answer; 60 when left out",
        "build_timeout": "seconds it may take to load or to index vectors; 1800 when left out",
    }
    filtered = True

    #: What is known of the collection; None before it was looked at.
    _known: Collection | None = None
    #: The connection; None before it is needed.
    _session: Session | None = None
    #: Drops a collection of its own.
    _end: Callable[[], Any] | None = None

    def __init__(
        self,
        path: str | Path | None = None,
        collection: str | None = None,
        replace: str | bool = False,
        timeout: str | float = 60.0,
        build_timeout: str | float = 1800.0,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.collection = collection
        self.replace = flag(replace, "replace")
        self.timeout = positive(timeout, "timeout")
        self.build_timeout = positive(build_timeout, "build_timeout")
        self._made: dict[str, Any] = {}

    @property
    def named(self) -> str:
        """The collection that the spec names."""
        return self.collection or ""

    @property
    def remote(self) -> bool:
        """Whether it is on a server."""
        return "://" in self.spec

    # -- what an adapter says -------------------------------------------------------------

    @abstractmethod
    def _look(self) -> Collection | None:
        """What the named collection is; None where there is none."""

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """The collections there are."""

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where the database is, in words; without any key."""

    # -- what it is -----------------------------------------------------------------------

    @property
    def built(self) -> bool:
        """Whether the collection is there."""
        return self._facts() is not None

    @property
    def space(self) -> Space:
        """The geometry that the collection is searched in."""
        return self._held().space

    @property
    def dimension(self) -> int:
        """Dimensions of the vectors."""
        return self._held().dimension

    @property
    def ntotal(self) -> int:
        """How many vectors it held when it was opened."""
        return self._held().rows

    @property
    def _shown(self) -> str:
        """What the collection is called in what is pasted: one of our own has no lasting name."""
        name = self._held().name
        return "docs" if name.lower().startswith(OWN) else name

    @property
    def _title(self) -> str:
        return self.spec or self.engine

    def _facts(self) -> Collection | None:
        if self._known is None and self.collection is not None:
            self._known = self._look()
        return self._known

    def _held(self) -> Collection:
        facts = self._facts()
        if facts is not None:
            return facts
        if self.collection is None:
            raise InputError(
                f"the system {self._title!r} names no {self.noun}",
                hint=f"name one with {self.noun}=NAME, or call build(base, space) first",
            )
        there = self._names()
        near = did_you_mean(self.collection, there) or "there is none"
        raise InputError(
            f"there is no {self.noun} {self.collection!r} in {self._place}",
            hint=f"{near.replace('known:', 'there are')}; build(base, space) makes a new one",
        )

    def describe(self) -> dict[str, Any]:
        """Where it is, what it is, versions, size, and how it was built."""
        facts = self._held()
        return {
            "system": self.engine,
            "place": self._place,
            self.noun: facts.name,
            "index": facts.index,
            "exact": facts.exact,
            "space": facts.space.name,
            "rows": facts.rows,
            "dimension": facts.dimension,
            **facts.details,
            **self._made,
        }

    def close(self) -> None:
        """Drop a collection of its own; let go of the connection, which others may hold."""
        if self._end is not None:
            self._end()
        self._session = None

    # -- made and asked -------------------------------------------------------------------

    def _turned_to_build(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Build knobs, checked without a look at a collection that may be there."""
        empty = copy.copy(self)
        empty.collection = empty._known = None
        return empty.turned("build", given)

    def _refuse_existing(self) -> None:
        if self.collection is None or self.replace or self.collection not in self._names():
            return
        raise InputError(
            f"the {self.noun} {self.collection!r} exists in {self._place}; it is left as it is",
            hint=f"search it without giving a base; or build another {self.noun}, or say "
            "replace=true",
        )

    def _asked(self, queries: NDArray[np.float32], k: int) -> NDArray[np.float32]:
        """The queries as they are sent; MismatchError for another dimension."""
        facts = self._held()
        return as_asked(queries, k, facts.dimension, f"the {self.noun} {facts.name!r}")

    def _paged(
        self, ids: NDArray[Any], read: Callable[[], Iterator[tuple[NDArray[Any], NDArray[Any]]]]
    ) -> Vectors:
        """Vectors that are read in pages, with every pass anew."""
        name = self._held().name
        if not len(ids):
            raise InputError(f"the {self.noun} {name!r} holds no vector")
        return Vectors.from_blocks(Pages(read, ids, name), ids=ids)

    def _ends_with(self, work: Callable[..., Any], *given: Any) -> None:
        """Call this when the system is closed, or nobody holds it any more."""
        self._end = weakref.finalize(self, _quietly, work, *given)


class Session:
    """A connection, shared by systems; closed when none of them holds it any more."""

    def __init__(self, client: Any, close: Callable[..., Any], *given: Any) -> None:
        self.client = client
        weakref.finalize(self, _quietly, close, *given)


def own_name() -> str:
    """A name for a collection that nobody else has."""
    return f"{OWN}{os.urandom(6).hex()}"


def own_folder() -> Path:
    """A new temporary folder."""
    return Path(tempfile.mkdtemp(prefix="semrecall-"))


def remove_folder(folder: Path) -> None:
    """Remove a folder with everything in it, as far as that is possible."""
    shutil.rmtree(folder, ignore_errors=True)


def by_filter(filters: Sequence[Any] | None, n: int) -> list[tuple[Any, NDArray[np.int64]]]:
    """Queries that share a filter: (filter, row numbers), None for no filter."""
    if filters is None:
        return [(None, np.arange(n))]
    groups: dict[str, tuple[Any, list[int]]] = {}
    for row, given in enumerate(filters):
        given = None if given in ("", {}) else given
        key = given if isinstance(given, str) else json.dumps(given, default=id, sort_keys=True)
        groups.setdefault(key, (given, []))[1].append(row)
    return [(given, np.array(rows)) for given, rows in groups.values()]


def named_ids(ids: Ids) -> Ids | None:
    """Ids that are neither unsigned integers nor UUIDs as these are written; else None."""
    column = ids.array()
    if column.dtype.kind == "i":
        return None if not len(column) or int(column.min()) >= 0 else ids
    return None if all(_is_uuid(text) for text in column.tolist()) else ids


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def one_of(value: str, allowed: Sequence[str], what: str) -> str:
    """The value of an option that is one of a few words, in the way it is written there."""
    for known in allowed:
        if known.lower() == value.lower():
            return known
    raise InputError(f"{what} is {value!r}; expected {', '.join(allowed)}")


def plain_error(error: BaseException, secret: str | None = None) -> str:
    """What an error says in one line, without a key."""
    text = " ".join(str(getattr(error, "message", "") or error).split()) or type(error).__name__
    return text.replace(secret, "***") if secret else text


def within(seconds: float, doing: str, option: str, work: Callable[[], T]) -> T:
    """What the work returns; SystemFault when it takes longer. The work itself goes on then."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:
            outcome.append((False, error))

    # A thread that waits for an answer must not keep the process alive.
    worker = threading.Thread(target=run, daemon=True, name=f"semrecall: {doing}")
    worker.start()
    worker.join(seconds)
    if not outcome:
        raise SystemFault(
            f"{doing} did not end within {seconds:g} seconds",
            hint=f"allow more with {option}=SECONDS in the spec, if it is only slow",
        )
    good, value = outcome[0]
    if good:
        return value  # type: ignore[no-any-return]
    raise value


def _quietly(work: Callable[..., Any], *given: Any) -> None:
    # At the end there is nobody to tell.
    try:
        work(*given)
    except Exception:
        return


def _without_user(url: str) -> str:
    scheme, slashes, rest = url.partition("://")
    return scheme + slashes + rest.rpartition("@")[2]
