"""What vector databases share: a named collection that is looked at, built, asked and read."""

from __future__ import annotations

import copy
import json
import os
import time
import uuid
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallError, SystemFault
from semrecall.registry import did_you_mean, import_extra, positive
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob, Stage, System, as_asked
from semrecall.systems.connection import Address, Session, plain_error, quietly
from semrecall.systems.stored import Pages, answer, flag, stored_blocks
from semrecall.systems.units import UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = [
    "Asked",
    "Asker",
    "Collection",
    "CollectionSystem",
    "DatabaseSystem",
    "Found",
    "Recipe",
    "built_with",
    "by_filter",
    "named_ids",
    "one_of",
    "only_one",
    "own_name",
    "scanned",
    "turnable",
]

#: How names of our own begin.
OWN = "semrecall_"
#: Ids of the results for one query, and their scores in the unit of the database.
Found = tuple["Sequence[Any] | NDArray[Any]", "Sequence[Any] | NDArray[Any]"]
#: Gives the results of queries (m, d) that share a filter.
Asker = Callable[["NDArray[np.float32]", Any], Sequence[Found]]


@dataclass(frozen=True)
class Collection:
    """A collection of vectors: where they and their ids are, and what they are.

    space: None where neither the collection nor the spec tells it. integer_ids: whether ids are
    integers; None where they are texts that may be written as such. index: what the database calls
    the index. exact: whether every vector is compared, whatever the settings. scores: whether
    scores are those of the vectors, not of their codes.
    """

    name: str
    vector: str
    id: str
    dimension: int
    space: Space | None
    rows: int
    integer_ids: bool | None = None
    index: str = ""
    exact: bool = False
    scores: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """Queries (n, d), the k nearest of which are asked for, with a filter, or None, each.

    wanted: search knobs; None for the exact search of the database.
    """

    matrix: NDArray[np.float32]
    k: int
    filters: Sequence[Any]
    wanted: Mapping[str, Any] | None


@dataclass(frozen=True)
class Recipe:
    """What a collection is made from. integers: whether ids are."""

    base: Vectors
    space: Space
    knobs: Mapping[str, Any]
    integers: bool

    @property
    def dimension(self) -> int:
        """Dimensions of the vectors."""
        return self.base.dimension


class DatabaseSystem(System):
    """A collection in a database. An adapter says how to look, to fill, to ask and to read.

    A collection that exists is searched where it is, and never altered. `build` makes a new one.
    """

    #: What specs call the database, and what texts call it.
    engine: ClassVar[str]
    title: ClassVar[str]
    #: What it calls its collections; the option of their name is called so, too.
    noun: ClassVar[str] = "collection"
    #: What it calls a way to compare -> the unit of the scores it tells then.
    metrics: ClassVar[Mapping[str, str]]
    #: Whether every vector can be compared in place of a search by the index.
    has_exact: ClassVar[bool] = True
    #: The library that asks it; its extra is called as specs call the database.
    module: ClassVar[str] = ""
    filtered = True

    collection: str | None
    wanted_space: Space | None = None
    #: What is known of the collection; None before it was looked at.
    _known: Collection | None = None
    #: Drops a collection of its own.
    _end: Callable[[], Any] | None = None
    #: Whether there is something of a build to be dropped where that fails.
    _begun: bool = False
    #: How it was built, for the record.
    _made: Mapping[str, Any] = {}

    @property
    def named(self) -> str:
        """The collection that the spec names."""
        return self.collection or ""

    @property
    def _library(self) -> Any:
        return self._import(self.module)

    def _import(self, module: str) -> Any:
        return import_extra(module, self.engine, f"the system {self.engine!r}")

    # -- what an adapter says -------------------------------------------------------------

    @abstractmethod
    def _look(self, name: str) -> Collection | None:
        """What the collection of this name is; None where there is none."""

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """The collections there are."""

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where the database is, in words; without any key."""

    @abstractmethod
    def _take_name(self) -> None:
        """A name for what is to be built, and a place where there is none."""

    @abstractmethod
    def _building(self) -> AbstractContextManager[Any]:
        """Within, a collection is filled; what is left of a build that fails is dropped."""

    @abstractmethod
    def _create(self, recipe: Recipe) -> None:
        """An empty collection."""

    @abstractmethod
    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        """Vectors (m, d) with their ids, all integers or all texts."""

    def _finish(self, recipe: Recipe) -> None:
        """Index what was inserted, where that is a step of its own."""

    def _block_rows(self, dimension: int) -> int | None:
        """Vectors to insert at once; as many as fit into some megabytes when None."""
        return None

    def _asker(self, asked: Asked) -> Asker:
        """What gives the results of those queries that share a filter."""
        raise NotImplementedError

    @property
    def _at_once(self) -> int:
        """The most queries that are asked at once."""
        return 256

    def _nearest(self, asked: Asked) -> Sequence[Found]:
        """The results of each query."""
        ask, found = self._asker(asked), list[Found]([((), ())]) * len(asked.matrix)
        for given, rows in by_filter(asked.filters, self._at_once):
            for row, hits in zip(rows, ask(asked.matrix[rows], given), strict=True):
                found[row] = hits
        return found

    def _unit(self, *, exact: bool) -> str:
        """The unit of the scores of a search."""
        return self.metrics[self._metric(self.space)]

    def _scored(self, wanted: Mapping[str, Any]) -> bool:
        """Whether scores of a search with these knobs are those of the vectors."""
        return self._held().scores

    def _counted(self, asked: Asked) -> Counters | None:
        """What the search costs, by what the database reports."""
        return None

    def _pages(self, *, vectors: bool) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Ids and vectors of the collection in one order, a page at a time.

        Without `vectors` the blocks may be of any width.
        """
        raise InputError(f"{self._title} does not give out its vectors")

    def _failures(self) -> tuple[type[BaseException], ...]:
        """What the database raises."""
        return ()

    def _happened(self, error: Any, said: str, doing: str) -> str:
        """What an error means, after where it was."""
        return f"failed at {doing}: {said}"

    def _asked_wrongly(self, error: Any, said: str, doing: str) -> bool:
        """Whether an error is about what was asked, and not the database's fault."""
        return False

    def _hint(self, error: Any, said: str) -> str | None:
        """What to do about an error."""
        return None

    @contextmanager
    def _talking(self, doing: str) -> Iterator[None]:
        """What is done meanwhile with the database raises errors of ours."""
        try:
            yield
        except SemrecallError:
            raise
        except self._failures() as error:
            said = plain_error(error, os.environ.get(getattr(self, "key", "")))
            text = f"{self._place} {self._happened(error, said, doing)}"
            if self._asked_wrongly(error, said, doing):
                raise InputError(text) from error
            raise SystemFault(text, hint=self._hint(error, said)) from error

    # -- what it is -----------------------------------------------------------------------

    @property
    def built(self) -> bool:
        """Whether the collection is there."""
        return self._facts() is not None

    @property
    def space(self) -> Space:
        """The geometry that the collection is searched in."""
        space = self._held().space
        if space is None:
            raise self._spaceless()
        return space

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
        return "docs" if OWN in name.lower() else name

    @property
    def _title(self) -> str:
        return self.spec or self.engine

    def _spaceless(self) -> InputError:
        """What to say where nothing tells the space."""
        return InputError(
            f"the {self.noun} {self.collection!r} does not say its space",
            hint="say it in the spec: space=ip, space=cosine or space=l2",
        )

    def _facts(self) -> Collection | None:
        if self._known is None and self.collection is not None:
            with self._talking(f"a look at the {self.noun} {self.collection!r}"):
                self._known = self._look(self.collection)
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
        with self._talking(f"a look at its {self.noun}s"):
            there = self._names()
        near = did_you_mean(self.collection, there) or "there is none"
        raise InputError(
            f"there is no {self.noun} {self.collection!r} in {self._place}",
            hint=f"{near.replace('known:', 'there are')}; a base (--base) is put into a new one",
        )

    def _metric(self, space: Space) -> str:
        """What the database calls a space; MismatchError where it has none like it."""
        for word, unit in self.metrics.items():
            if UNITS[unit].space == space:
                return word
        there = " and ".join(UNITS[unit].space.name for unit in self.metrics.values())
        raise MismatchError(
            f"{self.title} has no space {space}; it has {there}",
            hint="over vectors of length one cosine ranks as the inner product does",
        )

    def _space_told(self, word: Any, what: str) -> Space:
        """The space that the database calls so. what: is compared in it, in messages."""
        for known, unit in self.metrics.items():
            if known.lower() == str(word).lower():
                return UNITS[unit].space
        raise InputError(f"{what} compares by {word}; expected {' or '.join(self.metrics)}")

    def describe(self) -> dict[str, Any]:
        """Where it is, what it is, versions, size, and how it was built."""
        facts = self._held()
        return {
            "system": self.engine,
            "place": self._place,
            self.noun: facts.name,
            "index": facts.index or None,
            "exact": facts.exact,
            "space": self.space.name,
            "rows": facts.rows,
            "dimension": facts.dimension,
            **facts.details,
            **self._made,
        }

    # -- made -----------------------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """A new collection of these vectors, as float32, and its index.

        InputError for a collection that exists, unless the spec says replace=true.
        """
        # Build knobs are the same whatever the collection is that may be there.
        empty = copy.copy(self)
        empty.collection = empty._known = None
        given = empty.turned("build", knobs)
        vectors, geometry = Vectors.of(base, ids=ids), space_of(space)
        if self.wanted_space not in (None, geometry):
            raise MismatchError(
                f"{self._title!r} says space {self.wanted_space}; it is built with {geometry}"
            )
        self._metric(geometry)
        self._refuse_existing()
        made, started = copy.copy(self), time.perf_counter()
        made._known, made._end, made._made, made._begun = None, None, {}, False
        made._take_name()
        with made._building():
            made._fill(vectors, geometry, given)
        made._held()
        made._made = {"build_seconds": time.perf_counter() - started, **given}
        return made

    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        for ids, block in stored_blocks(base, space, self._block_rows(base.dimension)):
            if not len(block):
                continue
            if not self._begun:
                recipe = Recipe(base, space, knobs, integers=isinstance(ids[0], int))
                self._create(recipe)
                self._begun = True
            self._insert(ids, block)
        if not self._begun:
            raise InputError("the base holds no vector that can be searched")
        self._finish(recipe)

    def _exists(self) -> bool:
        return self.named in self._names()

    def _refuse_existing(self) -> None:
        """InputError before a build over a collection that is there."""
        if not self.named or self.replace:
            return
        with self._talking(f"a look at its {self.noun}s"):
            exists = self._exists()
        if exists:
            raise InputError(
                f"the {self.noun} {self.named!r} exists in {self._place}; it is left as it is",
                hint=f"search it without giving a base; or build another {self.noun}, or say "
                "replace=true",
            )

    # -- asked ----------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k), and scores; None where these are those of codes.

        filters: for each query one in the database's own language, or None.
        """
        wanted = self.turned("search", settings)
        ids, scores = self._results(queries, k, filters, wanted)
        return ids, scores if self._scored(wanted) else None

    def exact(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **given: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Every vector compared by the database itself; InputError where it has no such search."""
        if not self.has_exact:
            raise InputError(
                f"{self._title} has no exact search of its own",
                hint="exact truth takes its vectors: sr.truth(system.vectors(), queries)",
            )
        self.turned("search", given)
        return self._results(queries, k, filters, None)

    def count(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Counters | None:
        """What such a search costs, by what the database reports; None where it does not."""
        wanted = self.turned("search", settings)
        asked = self._asked(queries, k, filters, wanted)
        with self._talking("a search"):
            return self._counted(asked)

    def _results(
        self,
        queries: NDArray[np.float32],
        k: int,
        filters: Sequence[Any] | None,
        wanted: Mapping[str, Any] | None,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        asked = self._asked(queries, k, filters, wanted)
        unit = UNITS[self._unit(exact=wanted is None)]
        with self._talking("a search"):
            found = self._nearest(asked)
        return answer(found, unit, integer_ids=self._held().integer_ids)

    def _asked(
        self,
        queries: NDArray[np.float32],
        k: int,
        filters: Sequence[Any] | None,
        wanted: Mapping[str, Any] | None,
    ) -> Asked:
        """What is asked; MismatchError for another dimension."""
        facts = self._held()
        matrix = as_asked(queries, k, facts.dimension, f"the {self.noun} {facts.name!r}")
        return Asked(matrix, k, [None] * len(matrix) if filters is None else filters, wanted)

    def vectors(self) -> Vectors:
        """The vectors it holds, and their ids, read in pages, with every pass anew."""
        name = self._held().name
        parts = [_keys(ids) for ids, _ in self._read(vectors=False)]
        integers = all(part.dtype.kind == "i" for part in parts)
        kind: Any = np.int64 if integers else np.dtypes.StringDType()
        column = np.concatenate([np.empty(0, dtype=kind), *(part.astype(kind) for part in parts)])
        if not len(column):
            raise InputError(f"the {self.noun} {name!r} holds no vector")

        def read() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
            for ids, block in self._read(vectors=True):
                yield _keys(ids).astype(kind), block

        return Vectors.from_blocks(Pages(read, column, name), ids=column)

    def _read(self, *, vectors: bool) -> Iterator[tuple[Any, NDArray[Any]]]:
        """The pages; errors of the database as ours, those of who reads them as they are."""
        pages = self._pages(vectors=vectors)
        while True:
            with self._talking("reading its vectors"):
                page = next(pages, None)
            if page is None:
                return
            yield page


class CollectionSystem(DatabaseSystem):
    """A collection in a vector database, on a server (`url`) or in this process (`path`).

    `build` makes one under the name that was given, or under one of its own, and then it is
    dropped with the system. Without `url` and `path` the database is in a temporary folder.
    """

    options: ClassVar[Mapping[str, str]] = {
        "url": "where the server is, as in NAME://host:port/collection",
        "path": "where the files of the database are, to search them in this process",
        "collection": "the collection of the vectors",
        "replace": "true: build may drop a collection of this name",
        "timeout": "seconds the database may take to answer; 60 when left out",
        "build_timeout": "seconds it may take to load or to index vectors; 1800 when left out",
    }

    #: What it is called where it is no server.
    title_here: ClassVar[str] = ""
    #: Where a server is when its address says no port, where its key is read from, and an
    #: example of a spec where there are servers only.
    port: ClassVar[int] = 0
    key: ClassVar[str] = ""
    example: ClassVar[str] = ""

    #: The connection; None before it is needed.
    _session: Session | None = None
    #: Whether the name is one of our own.
    _unnamed: bool = False

    def __init__(
        self,
        url: str | None = None,
        path: str | Path | None = None,
        replace: str | bool = False,
        timeout: str | float = 60.0,
        build_timeout: str | float = 1800.0,
        **named: str | None,
    ) -> None:
        collection = named.pop(self.noun, None)
        if named:
            raise TypeError(f"{type(self).__name__} takes no {', '.join(named)}")
        if self.module:
            self._import(self.module)
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

    @abstractmethod
    def _open(self) -> Session:
        """A connection to the database."""

    @abstractmethod
    def _dropping(self) -> Callable[[], Any]:
        """What drops the collection, if it is there; it holds no reference to this system."""

    @property
    def remote(self) -> bool:
        """Whether it is on a server."""
        return "://" in self.spec

    @property
    def _client(self) -> Any:
        if self._session is None:
            with self._talking("opening it"):
                self._session = self._open()
        return self._session.client

    @property
    def _place(self) -> str:
        if self.address is not None:
            return f"{self.title} at {self.address}"
        return f"{self.title_here or self.title} in {self.path or 'a temporary folder'}"

    @property
    def _unreachable(self) -> str:
        return f"is it running, and reachable within timeout={self.timeout:g} seconds?"

    @property
    def _key_hint(self) -> str:
        return f"the key is read from {self.key} in the environment"

    def close(self) -> None:
        """Drop a collection of its own; let go of the connection, which others may hold."""
        if self._end is not None:
            self._end()
        self._session = None

    @property
    def _temporary(self) -> bool:
        """Whether the database is in a temporary folder, and goes with it."""
        return self.path is None and self.address is None

    def _take_name(self) -> None:
        self._unnamed = self.collection is None
        self.collection = self.collection or own_name()
        if self._temporary:
            self._session = None

    @contextmanager
    def _building(self) -> Iterator[None]:
        with self._talking("a build"):
            drop = self._dropping()
            try:
                if self.replace:
                    drop()
                yield
            except BaseException:
                if self._begun:
                    quietly(drop)
                raise
        if self._unnamed and not self._temporary:
            self._end = weakref.finalize(self, quietly, drop)


def own_name() -> str:
    """A name for a collection that nobody else has."""
    return f"{OWN}{os.urandom(6).hex()}"


def by_filter(filters: Sequence[Any], most: int) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Queries that share a filter, at most so many: (filter, row numbers), None for no filter."""
    groups: dict[str, tuple[Any, list[int]]] = {}
    for row, given in enumerate(filters):
        if given in (None, "", {}):
            groups.setdefault("", (None, []))[1].append(row)
            continue
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


def built_with(knobs: Sequence[Knob], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is built with: build knobs as they are when nobody turns them, and as given."""
    usual = {k.name: k.default for k in knobs if k.kind == "build" and k.default is not None}
    return {**usual, **given}


def scanned(asked: Asked, rows: int, bytes_each: float) -> Counters:
    """The cost of queries that are compared with so many vectors each."""
    return Counters({"scan": Stage(np.full(len(asked.matrix), float(rows)), bytes_each)})


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


def only_one(
    asked: str | None, there: Sequence[str] | Mapping[str, Any], where: str, what: str, option: str
) -> str:
    """The column, field or vector asked for, or the only one there is.

    where, what: in messages, e.g. "the table 'docs'" and "column of vectors".
    """
    if asked is None and len(there) == 1:
        return next(iter(there))
    if asked is not None and asked in there:
        return asked
    if asked is not None:
        raise InputError(
            f"{where} has no {what} {asked!r}",
            hint=did_you_mean(asked, there) or f"it has no {what} at all",
        )
    first, of, rest = what.partition(" of ")
    several = f"several {first}s{of}{rest}: {', '.join(name or '(no name)' for name in there)}"
    raise InputError(
        f"{where} has {several if there else 'no ' + what}",
        hint=f"name the one to use with {option}=NAME",
    )
