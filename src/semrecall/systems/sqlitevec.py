"""sqlite-vec: vectors in a file of SQLite, searched by comparing all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, MismatchError
from semrecall.systems.base import Counters
from semrecall.systems.collection import Asked, Asker, Collection, Found, Recipe, only_one, scanned
from semrecall.systems.sql import condition_of, quoted
from semrecall.systems.tablefile import TableFileSystem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["SqliteVecSystem"]

#: A vec0 table answers no more than this.
_MOST = 4096
_PAGE = 2048
_LOCKED_SECONDS = 10

_VEC0 = re.compile(
    r"create\s+virtual\s+table\s.*?\busing\s+vec0\s*\((.*)\)", re.IGNORECASE | re.DOTALL
)
_VECTOR = re.compile(
    r'"?(\w+)"?\s+(float|f32|int8|i8|bit)\[(\d+)\](?:\s+distance_metric\s*=\s*(\w+))?',
    re.IGNORECASE,
)
_KEY = re.compile(r"(?i)(\w+)\s+(integer|int|text)\s+primary\s+key")


class SqliteVecSystem(TableFileSystem):
    """A vec0 table of sqlite-vec, or an ordinary table with a column of float32 blobs.

    A vec0 table is asked with MATCH, which compares all rows that a filter on its metadata lets
    through; `exact`, and ordinary tables, use the distance functions. A distance that is null (a
    zero vector under cosine) is no result; a vec0 table ranks it first and spends a place on it.
    """

    options: ClassVar = {
        **TableFileSystem.options,
        "url": "file of the database, as in sqlite-vec://docs.db; in memory when left out",
        "id": "its column of ids; the primary key, or else the rowid, when left out",
    }

    engine, title = "sqlite-vec", "SQLite"
    # The sqlite3 module of many a Python was built without the loading of extensions.
    module = "apsw"
    metrics: ClassVar = {"cosine": "cosine-distance", "l2": "l2"}
    _virtual: bool = True

    # -- what there is ----------------------------------------------------------------------

    def _look(self, name: str) -> Collection | None:
        if name not in self._names():
            return None
        ((made,),) = self._fetch("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
        virtual = _VEC0.search(made or "")
        self._virtual = virtual is not None
        look = self._look_at_virtual(name, virtual[1]) if virtual else self._look_at_plain(name)
        column, key, dimension, space, integers = look
        ((rows,),) = self._fetch(f"SELECT count({quoted(column)}) FROM {quoted(name)}")
        if not rows:
            raise InputError(f"the table {name!r} holds no vectors")
        ((sqlite, vec),) = self._fetch("SELECT sqlite_version(), vec_version()")
        versions = {"version": vec.removeprefix("v"), "sqlite": sqlite}
        return Collection(
            name, column, key, dimension, space, rows, integer_ids=integers, exact=True,
            details={**versions, "vec0": self._virtual},
        )  # fmt: skip

    def _look_at_virtual(self, name: str, made: str) -> tuple[str, str, int, Space, bool]:
        there = {column: rest for column, *rest in _VECTOR.findall(made)}
        column = only_one(self.column, there, f"the table {name!r}", "column of vectors", "column")
        kind, width, metric = there[column]
        if kind.lower() not in ("float", "f32"):
            raise InputError(f"the column {column!r} holds {kind} vectors; expected float")
        space = self._space_told(metric or "l2", f"the table {name!r}")
        if self.wanted_space not in (None, space):
            raise MismatchError(
                f"the table {name!r} compares by {space}; expected {self.wanted_space}"
            )
        key = _KEY.search(made)
        named, integers = (key[1], key[2].lower() != "text") if key else ("rowid", True)
        return column, named, int(width), space, integers

    def _look_at_plain(self, name: str) -> tuple[str, str, int, Space | None, bool]:
        table, where = quoted(name), f"the table {name!r}"
        columns = self._fetch(f"PRAGMA table_info({table})")
        types = {column: kind.upper() for _, column, kind, *_ in columns}
        blobs = [column for column, kind in types.items() if kind in ("BLOB", "")]
        column = only_one(self.column, blobs, where, "column of blobs", "column")
        keys = [column for _, column, _, _, _, key in columns if key]
        own = [*types, "rowid"] if self.id else (keys if len(keys) == 1 else ["rowid"])
        key = only_one(self.id, own, where, "column of ids", "id")
        if self.wanted_space is not None:
            self._metric(self.wanted_space)
        sizes = f"min(length({quoted(column)})), max(length({quoted(column)}))"
        ((low, high),) = self._fetch(f"SELECT {sizes} FROM {table}")
        if not low or low != high or low % 4:
            raise InputError(
                f"the column {column!r} of {name!r} has values of {low or 0} to {high or 0} "
                "bytes; expected vectors of one size, 4 bytes a number"
            )
        integers = types.get(key, "INTEGER") in ("INTEGER", "INT", "BIGINT")
        return column, key, low // 4, self.wanted_space, integers

    def _names(self) -> Sequence[str]:
        if self._missing:
            return []
        every = self._fetch("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        virtual = [name for name, made in every if _VEC0.search(made or "")]
        return [
            name
            for name, _ in every
            if not any(name.startswith(f"{of}_") for of in virtual) and name != "sqlite_sequence"
        ]

    # -- made -------------------------------------------------------------------------------

    def _create(self, recipe: Recipe) -> None:
        for name in (self.id, self.column):
            if not re.fullmatch(r"[A-Za-z_]\w*", str(name)):
                raise InputError(f"a vec0 table cannot have a column {name!r}; expected a word")
        table, kind = quoted(self.named or "docs"), "integer" if recipe.integers else "text"
        metric = self._metric(recipe.space)
        self._fetch(f"DROP TABLE IF EXISTS {table}")
        self._fetch(
            f"CREATE VIRTUAL TABLE {table} USING vec0({self.id} {kind} primary key, "
            f"{self.column} float[{recipe.dimension}] distance_metric={metric})"
        )

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        into = f"INSERT INTO {quoted(str(self.collection))} ({self.id}, {self.column})"
        with self._asking() as connection:
            connection.executemany(
                f"{into} VALUES (?, ?)", zip(ids, map(_blob, block), strict=True)
            )

    def _connect(self, file: str, *, writing: bool) -> Any:
        apsw = self._library
        sqlite_vec = self._import("sqlite_vec")
        flags = apsw.SQLITE_OPEN_READONLY
        if writing:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(file, flags=flags)
        connection.set_busy_timeout(1000 * _LOCKED_SECONDS)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.enable_load_extension(False)
        return connection

    def _failures(self) -> tuple[type[BaseException], ...]:
        return (self._library.Error, OverflowError, TypeError)

    def _hint(self, error: Any, said: str) -> str | None:
        apsw = self._library
        if isinstance(error, apsw.BusyError):
            return "another process is writing to the file: try again when it is done"
        return (
            "is there room on the disk?"
            if isinstance(error, apsw.FullError | apsw.IOError)
            else None
        )

    # -- searched ---------------------------------------------------------------------------

    def _asker(self, asked: Asked) -> Asker:
        """One statement a query; a vec0 table answers at most 4096 of them by MATCH."""
        table, k = self._held(), asked.k
        matched = asked.wanted is not None and self._virtual
        if matched and k > _MOST and table.rows > _MOST:
            raise InputError(f"k is {k:,}; a vec0 table answers at most {_MOST:,}")
        column, source = quoted(table.vector), f"FROM {quoted(table.name)} WHERE"
        if matched:
            statement = f"SELECT {self._key}, distance {source} {column} MATCH ? AND k = ?"
            order = ""
        else:
            distance = f"vec_distance_{self._metric(self.space)}({column}, ?)"
            statement = f"SELECT {self._key}, {distance} AS semrecall_distance {source} true"
            order = " ORDER BY semrecall_distance NULLS LAST LIMIT ?"

        def ask(matrix: NDArray[np.float32], given: Any) -> Sequence[Found]:
            condition, found = condition_of(given), []
            where = f" AND ({condition.text})" if condition.text else ""
            for row in matrix:
                last = (
                    (min(k, _MOST), *condition.parameters)
                    if matched
                    else (*condition.parameters, k)
                )
                rows = self._fetch(statement + where + order, (_blob(row), *last), condition)
                found.append(([name for name, _ in rows], [distance for _, distance in rows]))
            return found

        return ask

    def _counted(self, asked: Asked) -> Counters | None:
        """Every vector is compared; how many a filter lets through is unknown."""
        table = self._held()
        return None if any(asked.filters) else scanned(asked, table.rows, 4 * table.dimension)

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[Any], NDArray[np.float32]]]:
        table = self._held()
        column = quoted(table.vector)
        shown = f"{self._key}, {column}" if vectors else f"{self._key}, NULL"
        rows = f"SELECT {shown} FROM {quoted(table.name)} WHERE {column} IS NOT NULL"
        with self._asking() as connection:
            cursor = connection.cursor().execute(rows)
            while page := list(islice(cursor, _PAGE)):
                flat = np.frombuffer(b"".join(blob or b"" for _, blob in page), dtype="<f4")
                block = flat.astype(np.float32).reshape(len(page), -1)
                yield [name for name, _ in page], block


def _blob(row: NDArray[np.float32]) -> bytes:
    return row.astype("<f4", copy=False).tobytes()
