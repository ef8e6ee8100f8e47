"""DuckDB: exact search in one SQL statement over a column of vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SystemFault
from semrecall.registry import import_extra
from semrecall.systems.base import Counters, Stage
from semrecall.systems.sql import Condition, Table, conditions, only_column, quoted
from semrecall.systems.stored import Pages, answer, stored_blocks
from semrecall.systems.tablefile import TableFileSystem, where_is

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["DuckdbSystem"]

#: Space -> function, whether the largest values are the nearest.
_FUNCTIONS = {
    "ip": ("array_inner_product", "max"),
    "cosine": ("array_cosine_similarity", "max"),
    "l2": ("array_distance", "min"),
}
_VECTOR = re.compile(r"(FLOAT|DOUBLE)\[(\d*)\]")
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_PAGE = 2048
_ROOM = "is there room on the disk?"


class DuckdbSystem(TableFileSystem):
    """A table of DuckDB: in a file, which is opened for reading only, or built in memory.

    A query is compared with every row, whose vector is FLOAT[d], DOUBLE[d] or a list. A score
    that is NaN (a zero vector under cosine), which DuckDB sorts above all numbers, is no result.
    """

    options: ClassVar = {
        **TableFileSystem.options,
        "url": "file of the database, as in duckdb://docs.duckdb; in memory when left out",
    }

    engine = "duckdb"
    _type: str = "FLOAT"

    # -- what there is ----------------------------------------------------------------------

    def _look(self) -> Table | None:
        assert self.table is not None
        if self.table not in self._tables():
            return None
        rows = self._fetch(f"DESCRIBE {quoted(self.table)}")
        types = {name: kind for name, kind, *_ in rows}
        keys = [name for name, _, _, key, *_ in rows if key == "PRI"]
        vectors = [name for name, kind in types.items() if _VECTOR.fullmatch(kind)]
        column = only_column(self.column, vectors, self.table, "column of FLOAT or DOUBLE vectors")
        own = list(types) if self.id is not None else keys or [n for n in types if n == "id"]
        id_column = only_column(self.id, own, self.table, "column of ids")
        return self._measured(column, id_column, types)

    def _measured(self, column: str, id_column: str, types: dict[str, str]) -> Table:
        assert self.table is not None
        found = _VECTOR.fullmatch(types[column])
        assert found is not None
        self._type = found[1]
        name, table = quoted(column), quoted(self.table)
        ((rows, shortest, longest),) = self._fetch(
            f"SELECT count({name}), min(len({name})), max(len({name})) FROM {table}"
        )
        if not rows:
            raise InputError(f"the table {self.table!r} holds no vectors")
        if shortest != longest:
            raise InputError(
                f"the vectors of the table {self.table!r} have {shortest} to {longest} dimensions"
            )
        integer = types[id_column] in _INTEGERS
        return Table(self.table, column, id_column, longest, self.wanted_space, integer, rows)

    def _tables(self) -> Sequence[str]:
        if self._missing:
            return []
        found = self._fetch(
            "SELECT CASE WHEN schema = current_schema() THEN name ELSE schema || '.' || name END "
            "FROM (SHOW ALL TABLES) WHERE database = current_database()"
        )
        return [name for (name,) in found]

    def describe(self) -> dict[str, Any]:
        """Version, size, and how it was built."""
        return {**super().describe(), "version": _duckdb().__version__}

    # -- made -------------------------------------------------------------------------------

    def _fill(self, base: Vectors, space: Space) -> None:
        import pyarrow as pa

        assert self.table is not None
        table, width = quoted(self.table), base.dimension
        columns = f"{quoted(self.id or 'id')}, {quoted(self.column or 'embedding')}"
        with self._asking() as connection:
            connection.execute("BEGIN")
            first = True
            for ids, block in stored_blocks(base, space):
                rows = pa.table({"id": pa.array(ids), "v": _arrow_vectors(block)})
                connection.register("semrecall_rows", rows)
                if first:
                    kind = "BIGINT" if isinstance(ids, np.ndarray) else "VARCHAR"
                    names = columns.split(", ")
                    connection.execute(
                        f"CREATE OR REPLACE TABLE {table} "
                        f"({names[0]} {kind}, {names[1]} FLOAT[{width}])"
                    )
                connection.execute(f"INSERT INTO {table} SELECT * FROM semrecall_rows")
                connection.unregister("semrecall_rows")
                first = False
            connection.execute("COMMIT")

    def _open(self, file: str, *, writing: bool) -> Any:
        duckdb = _duckdb()
        try:
            return duckdb.connect(file, read_only=not writing)
        except duckdb.Error as error:
            first = str(error).strip().splitlines()[0]
            hint = where_is(file, "is it a file of DuckDB?")
            if "lock" in first:
                hint = "another process has it open for writing: end that one, or search a copy"
            elif "different configuration" in first:
                hint = "this process has it open for writing: close that connection first"
            elif "Could not write" in first:
                hint = _ROOM
            raise InputError(f"DuckDB cannot open {file}: {first}", hint=hint) from error

    # -- searched ---------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The k nearest of every query: one statement for all that have the same filter."""
        self.turned("search", settings)
        matrix, table = self._asked(queries, k), self._held()
        found: list[tuple[Sequence[Any], Sequence[Any]]] = [((), ())] * len(matrix)
        for condition, rows in _alike(conditions(filters, len(matrix))):
            for at, ids, scores in self._nearest(matrix[rows], k, condition):
                found[rows[at]] = (ids, scores)
        return answer(found, self.space, integer_ids=table.integer_ids)

    exact = search

    def _nearest(self, queries: NDArray[np.float32], k: int, condition: Condition) -> list[Any]:
        import pyarrow as pa

        table = self._held()
        function, best = _FUNCTIONS[self.space.name]
        kind = f"{self._type}[{table.dimension}]"
        asked = pa.table({"place": np.arange(len(queries)), "query": _arrow_vectors(queries)})
        statement = (
            f"SELECT place, {best}_by(id, score, {k}), {best}(score, {k}) FROM "
            f"(SELECT place, id, {function}(vector, query::{kind}) AS score "
            f"FROM ({self._rows(condition, kind)}), semrecall_queries) "
            "WHERE NOT isnan(score) GROUP BY place"
        )
        with self._asking(condition) as connection:
            connection.register("semrecall_queries", asked)
            try:
                return list(connection.execute(statement, condition.parameters).fetchall())
            finally:
                connection.unregister("semrecall_queries")

    def _rows(self, condition: Condition, kind: str) -> str:
        """The rows that a filter lets through, as a table of id and vector."""
        table = self._held()
        id_column = quoted(table.id) if table.integer_ids else f"{quoted(table.id)}::VARCHAR"
        where = f" AND ({condition.text})" if condition.text else ""
        column = quoted(table.column)
        return (
            f"SELECT {id_column} AS id, {column}::{kind} AS vector FROM {quoted(table.name)} "
            f"WHERE {column} IS NOT NULL{where}"
        )

    def count(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Counters:
        """Every vector that the filter lets through is compared."""
        self.turned("search", settings)
        matrix, table = self._asked(queries, k), self._held()
        compared = np.full(len(matrix), float(table.rows))
        for condition, rows in _alike(conditions(filters, len(matrix))):
            if condition.text:
                kind = f"{self._type}[{table.dimension}]"
                statement = f"SELECT count(*) FROM ({self._rows(condition, kind)})"
                ((passing,),) = self._fetch(statement, condition)
                compared[rows] = passing
        width = 8 if self._type == "DOUBLE" else 4
        return Counters({"scan": Stage(compared, width * table.dimension)})

    def vectors(self) -> Vectors:
        """All vectors, in pages, as they are stored."""
        table = self._held()
        kind = f"{self._type}[{table.dimension}]"
        rows = self._rows(Condition(), kind)
        ids = [name for (name,) in self._fetch(f"SELECT id FROM ({rows})")]
        keys = np.array(ids, dtype=np.int64 if table.integer_ids else np.dtypes.StringDType())
        return Vectors.from_blocks(Pages(lambda: self._pages(rows), keys, table.name), ids=keys)

    def _pages(self, rows: str) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with self._asking() as connection:
            # A cursor of its own: the connection stays free for other questions meanwhile.
            for page in connection.cursor().sql(rows).to_arrow_reader(_PAGE):
                values = page.column("vector").flatten().to_numpy(zero_copy_only=False)
                yield _keys(page.column("id")), values.reshape(len(page), -1)

    # -- asked ------------------------------------------------------------------------------

    def _fetch(self, statement: str, condition: Condition | None = None) -> list[Any]:
        with self._asking(condition) as connection:
            given = condition.parameters if condition else ()
            return list(connection.execute(statement, given).fetchall())

    @contextmanager
    def _asking(self, condition: Condition | None = None) -> Iterator[Any]:
        """The connection, and the errors of DuckDB as ours."""
        duckdb = _duckdb()
        with self._connected() as connection:
            try:
                yield connection
            except duckdb.Error as error:
                first = str(error).strip().splitlines()[0]
                if condition is not None and condition.text:
                    raise InputError(f"the filter {condition.text!r}: {first}") from error
                hint = _ROOM if "Could not write" in first else None
                raise SystemFault(f"DuckDB failed: {first}", hint=hint) from error


def _alike(given: Sequence[Condition]) -> Iterator[tuple[Condition, NDArray[np.int64]]]:
    """Each condition once, and the numbers of the queries that have it."""
    distinct: list[Condition] = []
    rows: list[list[int]] = []
    for row, condition in enumerate(given):
        if condition not in distinct:
            distinct.append(condition)
            rows.append([])
        rows[distinct.index(condition)].append(row)
    for condition, mine in zip(distinct, rows, strict=True):
        yield condition, np.array(mine, dtype=np.int64)


def _arrow_vectors(rows: NDArray[np.float32]) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _keys(column: Any) -> NDArray[Any]:
    if column.type == "string":
        return np.array(column.to_pylist(), dtype=np.dtypes.StringDType())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _duckdb() -> Any:
    return import_extra("duckdb", "duckdb", "searching DuckDB")
