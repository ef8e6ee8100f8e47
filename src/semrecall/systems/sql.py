"""What systems that keep vectors in a table and are asked in SQL share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from semrecall.errors import InputError
from semrecall.space import space as space_of
from semrecall.systems.collection import Collection, DatabaseSystem
from semrecall.systems.stored import flag

if TYPE_CHECKING:
    from semrecall.space import Space

__all__ = ["NO_CONDITION", "Condition", "TableSystem", "condition_of", "quoted"]


@dataclass(frozen=True)
class Condition:
    """A filter: an SQL condition of the user's own, and the values of its placeholders."""

    text: str = ""
    parameters: tuple[Any, ...] = ()


#: No filter at all.
NO_CONDITION = Condition()


class TableSystem(DatabaseSystem):
    """A table of vectors in a database.

    Filters are SQL conditions: a text, or a text with placeholders and their values.
    """

    noun = "table"
    options: ClassVar[Mapping[str, str]] = {
        "url": "where the database is, as in NAME://...",
        "table": "the table of the vectors",
        "column": "its column of vectors; the only one when left out",
        "id": "its column of ids; the primary key when left out",
        "space": "ip, cosine or l2, where the table does not say",
        "replace": "true: build may drop a table that has this name",
    }

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
        self.collection = table
        self.column = column
        self.id = id
        self.wanted_space = None if space is None else space_of(space)
        self.replace = flag(replace, "replace")

    def _facts(self) -> Collection | None:
        return None if self.replace else super()._facts()

    def _held(self) -> Collection:
        if self.replace and self.collection is not None:
            raise InputError(
                f"the table {self.collection!r} is to be made anew, as the spec says replace=true",
                hint="call build(base, space), or leave replace out to search the one there is",
            )
        return super()._held()

    def _take_name(self) -> None:
        self.replace = False
        self.collection = self.collection or "docs"
        self.column, self.id = self.column or "embedding", self.id or "id"

    @property
    def _place(self) -> str:
        return self.url or "the database"

    @property
    def _key(self) -> str:
        """The column of ids as it is read: integers, and all others as text."""
        table = self._held()
        return quoted(table.id) if table.integer_ids else f"CAST({quoted(table.id)} AS TEXT)"


def condition_of(given: Any) -> Condition:
    """The condition that a filter is.

    A filter is None, a text, [text, values], or {"where": text, "parameters": values}.
    """
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
