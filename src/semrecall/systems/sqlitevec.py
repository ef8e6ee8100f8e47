"""sqlite-vec: vectors in a file of SQLite, searched by comparing all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.registry import import_extra
from semrecall.space import Space
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Stage
from semrecall.systems.sql import (
    NO_CONDITION,
    Condition,
    Table,
    conditions,
    only_column,
    quoted,
)
from semrecall.systems.stored import Pages, answer, stored_blocks
from semrecall.systems.tablefile import TableFileSystem, where_is

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SqliteVecSystem"]

#: Space -> its name in sqlite-vec; there is no inner product.
_METRICS = {"cosine": "cosine", "l2": "l2"}
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

    engine = "sqlite-vec"
    _virtual: bool = True

    # -- what there is ----------------------------------------------------------------------

    def _look(self) -> Table | None:
        assert self.table is not None
        if self.table not in self._tables():
            return None
        ((made,),) = self._fetch("SELECT sql FROM sqlite_master WHERE name = ?", (self.table,))
        virtual = _VEC0.search(made or "")
        self._virtual = virtual is not None
        return self._virtual_table(virtual[1]) if virtual else self._plain_table()

    def _virtual_table(self, made: str) -> Table:
        assert self.table is not None
        there = {name: rest for name, *rest in _VECTOR.findall(made)}
        column = only_column(self.column, list(there), self.table, "column of vectors")
        kind, width, metric = there[column]
        if kind.lower() not in ("float", "f32"):
            raise InputError(f"the column {column!r} holds {kind} vectors; expected float")
        found = (metric or "l2").lower()
        if found not in _METRICS or self.wanted_space not in (None, space_of(found)):
            raise MismatchError(
                f"the table {self.table!r} compares by {found}; "
                f"expected {self.wanted_space or 'cosine or l2'}"
            )
        key = _KEY.search(made)
        name, integer = (key[1], key[2].lower() != "text") if key else ("rowid", True)
        rows = self._count(column)
        return Table(self.table, column, name, int(width), space_of(found), integer, rows)

    def _plain_table(self) -> Table:
        assert self.table is not None
        columns = self._fetch(f"PRAGMA table_info({quoted(self.table)})")
        types = {name: kind.upper() for _, name, kind, *_ in columns}
        blobs = [name for name, kind in types.items() if kind in ("BLOB", "")]
        column = only_column(self.column, blobs, self.table, "column of blobs")
        keys = [name for _, name, _, _, _, key in columns if key]
        own = [*types, "rowid"] if self.id else (keys if len(keys) == 1 else ["rowid"])
        key = only_column(self.id, own, self.table, "column of ids")
        if self.wanted_space is not None:
            _metric(self.wanted_space)
        name, table = quoted(column), quoted(self.table)
        ((low, high),) = self._fetch(
            f"SELECT min(length({name})), max(length({name})) FROM {table}"
        )
        if not low or low != high or low % 4:
            raise InputError(
                f"the column {column!r} of {self.table!r} has values of {low or 0} to {high or 0} "
                "bytes; expected vectors of one size, 4 bytes a number"
            )
        integer = types.get(key, "INTEGER") in ("INTEGER", "INT", "BIGINT")
        rows = self._count(column)
        return Table(self.table, column, key, low // 4, self.wanted_space, integer, rows)

    def _count(self, column: str) -> int:
        assert self.table is not None
        ((rows,),) = self._fetch(f"SELECT count({quoted(column)}) FROM {quoted(self.table)}")
        if not rows:
            raise InputError(f"the table {self.table!r} holds no vectors")
        return int(rows)

    def _tables(self) -> Sequence[str]:
        if self._missing:
            return []
        every = self._fetch("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        virtual = [name for name, made in every if _VEC0.search(made or "")]
        return [
            name
            for name, _ in every
            if not any(name.startswith(f"{of}_") for of in virtual) and name != "sqlite_sequence"
        ]

    def describe(self) -> dict[str, Any]:
        """Versions, size, and how it was built."""
        told = super().describe()
        ((sqlite, vec),) = self._fetch("SELECT sqlite_version(), vec_version()")
        versions = {"version": vec.removeprefix("v"), "sqlite": sqlite}
        return {**told, **versions, "vec0": self._virtual}

    # -- made -------------------------------------------------------------------------------

    def _space_to_build(self, space: str | Space) -> Space:
        geometry = super()._space_to_build(space)
        _metric(geometry)
        return geometry

    def _fill(self, base: Vectors, space: Space) -> None:
        table = quoted(self.table or "docs")
        key, column = self.id or "id", self.column or "embedding"
        for name in (key, column):
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise InputError(f"a vec0 table cannot have a column {name!r}; expected a word")
        # All or nothing: a table that is replaced is there until the new one is complete.
        with self._asking() as connection, connection:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            first = True
            for ids, block in stored_blocks(base, space):
                if first:
                    kind = "integer" if isinstance(ids, np.ndarray) else "text"
                    connection.execute(
                        f"CREATE VIRTUAL TABLE {table} USING vec0({key} {kind} primary key, "
                        f"{column} float[{base.dimension}] distance_metric={_metric(space)})"
                    )
                    first = False
                names = ids.tolist() if isinstance(ids, np.ndarray) else ids
                rows = zip(names, map(_blob, block), strict=True)
                connection.executemany(f"INSERT INTO {table} ({key}, {column}) VALUES (?, ?)", rows)

    def _open(self, file: str, *, writing: bool) -> Any:
        apsw = _apsw()
        sqlite_vec = import_extra("sqlite_vec", "sqlite-vec", "searching with sqlite-vec")
        flags = apsw.SQLITE_OPEN_READONLY
        if writing:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            connection = apsw.Connection(file, flags=flags)
            connection.set_busy_timeout(1000 * _LOCKED_SECONDS)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            connection.enable_load_extension(True)
            connection.load_extension(sqlite_vec.loadable_path())
            connection.enable_load_extension(False)
        except apsw.Error as error:
            hint = where_is(file, "is it a file of SQLite?")
            raise InputError(f"SQLite cannot open {file}: {error}", hint=hint) from error
        return connection

    # -- searched ---------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The k nearest of every query, one statement each; at most 4096 of a vec0 table."""
        self.turned("search", settings)
        table = self._held()
        if not self._virtual:
            return self.exact(queries, k, filters=filters)
        if k > _MOST and table.rows > _MOST:
            raise InputError(f"k is {k:,}; a vec0 table answers at most {_MOST:,}")
        id_column = quoted(table.id)
        statement = (
            f"SELECT {id_column}, distance FROM {quoted(table.name)} "
            f"WHERE {quoted(table.column)} MATCH ? AND k = ?"
        )
        return self._each(queries, min(k, _MOST), filters, statement, " AND ({})", "", late=False)

    def exact(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **given: Any,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The k nearest by the distance functions of sqlite-vec, whatever k is."""
        self.turned("search", given)
        table = self._held()
        id_column = quoted(table.id) if table.integer_ids else f"CAST({quoted(table.id)} AS TEXT)"
        statement = (
            f"SELECT {id_column}, vec_distance_{_metric(self.space)}({quoted(table.column)}, ?) "
            f"AS semrecall_distance FROM {quoted(table.name)}"
        )
        order = " ORDER BY semrecall_distance NULLS LAST LIMIT ?"
        return self._each(queries, k, filters, statement, " WHERE ({})", order, late=True)

    def _each(
        self,
        queries: NDArray[np.float32],
        k: int,
        filters: Sequence[Any] | None,
        statement: str,
        where: str,
        order: str,
        *,
        late: bool,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Answers of one statement per query. late: whether k stands behind the condition."""
        matrix, table = self._asked(queries, k), self._held()
        found: list[tuple[Sequence[Any], NDArray[np.float64]]] = []
        for row, condition in zip(matrix, conditions(filters, len(matrix)), strict=True):
            text = statement + (where.format(condition.text) if condition.text else "") + order
            vector, values = _blob(row), condition.parameters
            given = (vector, *values, k) if late else (vector, k, *values)
            names, distances = [], []
            for name, distance in self._fetch(text, given, condition):
                names.append(name)
                distances.append(np.nan if distance is None else distance)
            scores = np.array(distances, dtype=np.float64)
            found.append((names, scores if self.space.name == "l2" else 1 - scores))
        return answer(found, self.space, integer_ids=table.integer_ids)

    def count(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Counters | None:
        """Every vector is compared; how many a filter lets through is unknown."""
        self.turned("search", settings)
        matrix, table = self._asked(queries, k), self._held()
        if filters is not None and any(filters):
            return None
        compared = np.full(len(matrix), float(table.rows))
        return Counters({"scan": Stage(compared, 4 * table.dimension)})

    def vectors(self) -> Vectors:
        """All vectors, in pages, as they are stored."""
        table = self._held()
        key = quoted(table.id) if table.integer_ids else f"CAST({quoted(table.id)} AS TEXT)"
        column, source = quoted(table.column), quoted(table.name)
        kind = np.dtype(np.int64) if table.integer_ids else np.dtypes.StringDType()
        rows = f"FROM {source} WHERE {column} IS NOT NULL"
        keys = np.array([name for (name,) in self._fetch(f"SELECT {key} {rows}")], dtype=kind)

        def pages() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
            with self._asking() as connection:
                cursor = connection.cursor().execute(f"SELECT {key}, {column} {rows}")
                while page := list(islice(cursor, _PAGE)):
                    flat = np.frombuffer(b"".join(blob for _, blob in page), dtype="<f4")
                    names = np.array([name for name, _ in page], dtype=kind)
                    yield names, flat.reshape(len(page), -1).astype(np.float32)

        return Vectors.from_blocks(Pages(pages, keys, table.name), ids=keys)

    # -- asked ------------------------------------------------------------------------------

    def _fetch(
        self, statement: str, given: Sequence[Any] = (), condition: Condition = NO_CONDITION
    ) -> list[Any]:
        with self._asking(condition) as connection:
            return list(connection.execute(statement, given))

    @contextmanager
    def _asking(self, condition: Condition = NO_CONDITION) -> Iterator[Any]:
        """The connection, and the errors of SQLite as ours."""
        apsw = _apsw()
        with self._connected() as connection:
            try:
                yield connection
            except (apsw.Error, OverflowError, TypeError) as error:
                if condition.text:
                    raise InputError(f"the filter {condition.text!r}: {error}") from error
                hint = None
                if isinstance(error, apsw.BusyError):
                    hint = "another process is writing to the file: try again when it is done"
                elif isinstance(error, apsw.FullError | apsw.IOError):
                    hint = "is there room on the disk?"
                raise SystemFault(f"SQLite failed: {error}", hint=hint) from error


def _metric(space: Space) -> str:
    """What sqlite-vec calls a space; InputError for inner product."""
    if space.name not in _METRICS:
        raise InputError(
            f"sqlite-vec has no space {space}; it has {' and '.join(_METRICS)}",
            hint="over vectors of length one cosine ranks as the inner product does",
        )
    return _METRICS[space.name]


def _blob(row: NDArray[np.float32]) -> bytes:
    return row.astype("<f4", copy=False).tobytes()


def _apsw() -> Any:
    # The sqlite3 module of many a Python was built without the loading of extensions.
    return import_extra("apsw", "sqlite-vec", "searching with sqlite-vec")
