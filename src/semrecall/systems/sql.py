"""What systems that keep vectors in a table and are asked in SQL share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, MismatchError
from semrecall.registry import did_you_mean
from semrecall.space import Space
from semrecall.space import space as space_of
from semrecall.systems.base import System, as_asked
from semrecall.systems.stored import flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NO_CONDITION",
    "Condition",
    "Table",
    "TableSystem",
    "conditions",
    "only_column",
    "quoted",
]


@dataclass(frozen=True)
class Table:
    """A table of vectors: where they and their ids are, and what they are.

    space: None where neither the table nor the spec tells it. integer_ids: whether ids are
    integers; all others are read as text.
    """

    name: str
    column: str
    id: str
    dimension: int
    space: Space | None
    integer_ids: bool
    rows: int


@dataclass(frozen=True)
class Condition:
    """A filter: an SQL condition of the user's own, and the values of its placeholders."""

    text: str = ""
    parameters: tuple[Any, ...] = ()


#: No filter at all.
NO_CONDITION = Condition()


class TableSystem(System):
    """A table of vectors in a database.

    A table that exists is searched where it is, and never altered. `build` makes a new one.
    Filters are SQL conditions: a text, or a text with placeholders and their values.
    """

    options: ClassVar[Mapping[str, str]] = {
        "url": "where the database is, as in NAME://...",
        "table": "the table of the vectors",
        "column": "its column of vectors; the only one when left out",
        "id": "its column of ids; the primary key when left out",
        "space": "ip, cosine or l2, where the table does not say",
        "replace": "true: build may drop a table that has this name",
    }
    filtered = True

    #: What is known of the table; None before it was looked at.
    _known: Table | None = None

    def __init__(
        self,
        url: str | None = None,
        table: str | None = None,
        column: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of the option
        space: str | Space | None = None,
        replace: str | bool = False,
    ) -> None:
        self.url = url
        self.table = table
        self.column = column
        self.id = id
        self.wanted_space = None if space is None else space_of(space)
        self.replace = flag(replace, "replace")

    @property
    def named(self) -> str:
        """The table that the spec names."""
        return self.table or ""

    @property
    def built(self) -> bool:
        """Whether the table is there."""
        return self._facts() is not None

    @property
    def space(self) -> Space:
        """The geometry that the table is searched in."""
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
        """Rows that hold a vector, when the table was opened."""
        return self._held().rows

    @abstractmethod
    def _look(self) -> Table | None:
        """What the named table is; None where there is none. InputError where it cannot be used."""

    def _spaceless(self) -> InputError:
        """What to say where nothing tells the space."""
        return InputError(
            f"the table {self.table!r} does not say its space",
            hint="say it in the spec: space=ip, space=cosine or space=l2",
        )

    @abstractmethod
    def _tables(self) -> Sequence[str]:
        """Names of the tables there are."""

    def _exists(self) -> bool:
        return self.named in self._tables()

    def _refuse_existing(self) -> None:
        """InputError before a build over a table that is there."""
        if self.named and not self.replace and self._exists():
            raise InputError(
                f"the table {self.named!r} exists in {self._place}; it is left as it is",
                hint="search it without giving a base; or build another table, or say replace=true",
            )

    def _facts(self) -> Table | None:
        if self._known is None and self.table is not None and not self.replace:
            self._known = self._look()
        return self._known

    def _held(self) -> Table:
        facts = self._facts()
        if facts is not None:
            return facts
        if self.table is None:
            raise InputError(
                f"the system {self._title!r} names no table",
                hint="name one with table=NAME, or call build(base, space) first",
            )
        if self.replace:
            raise InputError(
                f"the table {self.table!r} is to be made anew, as the spec says replace=true",
                hint="call build(base, space), or leave replace out to search the one there is",
            )
        there = self._tables()
        near = did_you_mean(self.table, there) or "there are none"
        raise InputError(
            f"there is no table {self.table!r} in {self._place}",
            hint=f"{near.replace('known:', 'there are')}; a base (--base) is put into a new one",
        )

    @property
    def _title(self) -> str:
        return self.spec or type(self).__name__

    @property
    def _place(self) -> str:
        return self.url or "the database"

    def _asked(self, queries: NDArray[np.float32], k: int) -> NDArray[np.float32]:
        """The queries as they are sent; MismatchError for another dimension."""
        table = self._held()
        return as_asked(queries, k, table.dimension, f"the table {table.name!r}")

    def _space_to_build(self, space: str | Space) -> Space:
        geometry = space_of(space)
        if self.wanted_space not in (None, geometry):
            raise MismatchError(
                f"{self._title!r} says space {self.wanted_space}; it is built with {geometry}"
            )
        return geometry


def conditions(filters: Sequence[Any] | None, n: int) -> list[Condition]:
    """One condition per query.

    A filter is None, a text, [text, values], or {"where": text, "parameters": values}.
    """
    return [_condition(given) for given in filters] if filters is not None else [NO_CONDITION] * n


def _condition(given: Any) -> Condition:
    if given is None or given == "":
        return NO_CONDITION
    if isinstance(given, str):
        return Condition(given)
    if isinstance(given, Mapping) and given.keys() <= {"where", "parameters"}:
        given = (given.get("where"), given.get("parameters", ()))
    if isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[0], str):
        text, values = given
        if isinstance(values, list | tuple):
            return Condition(text, tuple(values))
    raise InputError(
        f"the filter {given!r} is no SQL condition",
        hint='write "lang = \'de\'", or with values ["lang = %s", ["de"]] (? in place of %s for '
        "DuckDB and SQLite)",
    )


def quoted(name: str) -> str:
    """A name as SQL has it; a dot separates a schema."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def only_column(asked: str | None, there: Sequence[str], table: str, what: str) -> str:
    """The column asked for, or the only one there is."""
    if asked is not None:
        if asked in there:
            return asked
        raise InputError(
            f"the table {table!r} has no {what} {asked!r}",
            hint=did_you_mean(asked, there) or f"it has no {what} at all",
        )
    if len(there) == 1:
        return there[0]
    option = "id" if what == "column of ids" else "column"
    several = f"several {what.replace('column', 'columns', 1)}: {', '.join(there)}"
    raise InputError(
        f"the table {table!r} has {several if there else 'no ' + what}",
        hint=f"name the one to use with {option}=NAME",
    )
