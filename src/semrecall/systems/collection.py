"""What vector databases share: a named collection, asked with deadlines."""

from __future__ import annotations

import copy
import json
import os
import time
import uuid
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.errors import InputError
from semrecall.registry import did_you_mean, positive
from semrecall.space import space as space_of
from semrecall.systems.base import Knob, System, as_asked
from semrecall.systems.connection import Address, Session, quietly
from semrecall.systems.stored import Pages, flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = [
    "Collection",
    "CollectionSystem",
    "by_filter",
    "named_ids",
    "one_of",
    "own_name",
    "turnable",
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

    #: Where a server is when its address says no port, where its key is read from, and an
    #: example of a spec where there are servers only.
    port: ClassVar[int] = 0
    key: ClassVar[str] = ""
    example: ClassVar[str] = ""

    #: What is known of the collection; None before it was looked at.
    _known: Collection | None = None
    #: The connection; None before it is needed.
    _session: Session | None = None
    #: Drops a collection of its own.
    _end: Callable[[], Any] | None = None
    #: Whether there is something of a build to be dropped where that fails.
    _begun: bool = False

    def __init__(
        self,
        url: str | None = None,
        path: str | Path | None = None,
        collection: str | None = None,
        replace: str | bool = False,
        timeout: str | float = 60.0,
        build_timeout: str | float = 1800.0,
    ) -> None:
        if url is None and self.example:
            raise InputError(f"the system {self.engine!r} needs an address", hint=self.example)
        if url is not None and path is not None:
            raise InputError("found both a server and a path of files; expected one of them")
        self.address = None if url is None else Address.of(url, self.port, self.key)
        self.path = None if path is None else Path(path)
        self.collection = collection or (self.address.path if self.address else "") or None
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

    @abstractmethod
    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        """Make the collection and its index, and put the vectors in.

        Sets `_begun` once there is something to drop where the rest fails.
        """

    @abstractmethod
    def _dropping(self) -> Callable[[], Any]:
        """What drops the collection, if it is there; it holds no reference to this system."""

    def _pages(
        self, *, vectors: bool
    ) -> Iterator[tuple[Sequence[Any] | NDArray[Any], NDArray[np.float32]]]:
        """Ids and vectors of the collection in one order, a page at a time.

        Without `vectors` the blocks may be of any width.
        """
        raise InputError(f"{self._title} does not give out its vectors")

    def _talking(self, doing: str) -> AbstractContextManager[Any]:
        """What is done meanwhile with the database raises errors of ours."""
        return nullcontext()

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

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """A new collection of these vectors, as float32, and its index.

        InputError for a collection that exists, unless the spec says replace=true.
        """
        given = self._turned_to_build(knobs)
        vectors, geometry = Vectors.of(base, ids=ids), self._space_to_build(space)
        self._refuse_existing()
        made, started = copy.copy(self), time.perf_counter()
        made._known, made._end, made._made, made._begun = None, None, {}, False
        made._take_name()
        with made._talking("a build"):
            drop = made._dropping()
            try:
                if self.replace:
                    drop()
                made._fill(vectors, geometry, given)
            except BaseException:
                if made._begun:
                    quietly(drop)
                raise
        if self.collection is None and not made._temporary:
            made._ends_with(drop)
        made._held()
        made._made |= {"build_seconds": time.perf_counter() - started, **given}
        return made

    @property
    def _temporary(self) -> bool:
        """Whether the database is in a temporary folder, and goes with it."""
        return self.path is None and self.address is None

    def _take_name(self) -> None:
        """A name for what is to be built, and a place where there is none."""
        self.collection = self.collection or own_name()
        if self._temporary:
            self._session = None

    def _space_to_build(self, space: str | Space) -> Space:
        return space_of(space)

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

    def vectors(self) -> Vectors:
        """The vectors it holds, and their ids, read in pages, with every pass anew."""
        name = self._held().name
        parts = [_keys(ids) for ids, _ in self._pages(vectors=False)]
        integers = all(part.dtype.kind == "i" for part in parts)
        kind: Any = np.int64 if integers else np.dtypes.StringDType()
        column = np.concatenate([np.empty(0, dtype=kind), *(part.astype(kind) for part in parts)])
        if not len(column):
            raise InputError(f"the {self.noun} {name!r} holds no vector")

        def read() -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
            for ids, block in self._pages(vectors=True):
                yield _keys(ids).astype(kind), block

        return Vectors.from_blocks(Pages(read, column, name), ids=column)

    def exact(
        self, queries: NDArray[np.float32], k: int, **given: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """InputError, where the database has none."""
        raise InputError(
            f"{self._title} has no exact search of its own",
            hint="exact truth takes its vectors: sr.truth(system.vectors(), queries)",
        )

    def _ends_with(self, work: Callable[..., Any], *given: Any) -> None:
        """Call this when the system is closed, or nobody holds it any more."""
        self._end = weakref.finalize(self, quietly, work, *given)


def own_name() -> str:
    """A name for a collection that nobody else has."""
    return f"{OWN}{os.urandom(6).hex()}"


def by_filter(
    filters: Sequence[Any] | None, n: int, most: int
) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Queries that share a filter, at most so many: (filter, row numbers), None for no filter."""
    if filters is None:
        yield from ((None, np.arange(at, min(at + most, n))) for at in range(0, n, most))
        return
    groups: dict[str, tuple[Any, list[int]]] = {}
    for row, given in enumerate(filters):
        given = None if given in ("", {}) else given
        key = given if isinstance(given, str) else json.dumps(given, default=id, sort_keys=True)
        groups.setdefault(key, (given, []))[1].append(row)
    for given, rows in groups.values():
        for start in range(0, len(rows), most):
            yield given, np.array(rows[start : start + most])


def turnable(asked: Sequence[Knob], there: Sequence[Knob], **most: int | None) -> tuple[Knob, ...]:
    """Build knobs of the index asked for, and search knobs of the one there is.

    most: the largest value of a knob, where the index tells it.
    """
    build = [knob for knob in asked if knob.kind == "build"]
    search = [knob for knob in there if knob.kind == "search"]
    return (*build, *(replace(knob, high=most.get(knob.name) or knob.high) for knob in search))


def _keys(ids: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Ids of a page: integers where all are, else texts."""
    if isinstance(ids, np.ndarray):
        return ids
    if all(isinstance(i, int) for i in ids):
        return np.array(ids, dtype=np.int64)
    return np.array([str(i) for i in ids], dtype=np.dtypes.StringDType())


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
