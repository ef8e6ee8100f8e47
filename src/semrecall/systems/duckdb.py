"""DuckDB: exact search in one SQL statement over a column of vectors."""

from __future__ import annotations

import copy
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SystemFault
from semrecall.registry import import_extra
from semrecall.systems.base import Counters, Knob, Stage
from semrecall.systems.sql import Condition, Table, TableSystem, conditions, only_column, quoted
from semrecall.systems.stored import Pages, answer, stored_blocks

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


class DuckdbSystem(TableSystem):
    """A table of DuckDB: in a file, which is opened for reading only, or built in memory.

    A query is compared with every row, whose vector is FLOAT[d], DOUBLE[d] or a list. A score
    that is NaN (a zero vector under cosine), which DuckDB sorts above all numbers, is no result.
    """

    options: ClassVar = {
        **TableSystem.options,
        "url": "file of the database, as in duckdb://docs.duckdb; in memory when left out",
    }

    _connection: Any = None
    _type: str = "FLOAT"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._file = None if self.url is None else Path(self.url.partition("://")[2])

    @property
    def named(self) -> str:
        """The table in a file, which is "docs" where the spec names none."""
        return "" if self._file is None else self.table or "docs"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """There is nothing to turn: the search is exact."""
        return ()

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
        if self._connection is None and self._file is not None and not self._file.exists():
            return []
        found = self._fetch(
            "SELECT CASE WHEN schema = current_schema() THEN name ELSE schema || '.' || name END "
            "FROM (SHOW ALL TABLES) WHERE database = current_database()"
        )
        return [name for (name,) in found]

    def describe(self) -> dict[str, Any]:
        """Version, size, and how it was built."""
        table = self._held()
        return {
            "system": "duckdb",
            "version": _duckdb().__version__,
            "table": table.name,
            "space": self.space.name,
            "rows": table.rows,
            "dimension": table.dimension,
            **self._made,
        }

    # -- made -------------------------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """A new table of these vectors, as float32, with columns id and embedding.

        InputError for a table that exists, unless the spec says replace=true.
        """
        self.turned("build", knobs)
        geometry, vectors = self._space_to_build(space), Vectors.of(base, ids=ids)
        name = self.table or "docs"
        if self._file is not None:
            try:
                self._refuse_existing()
            finally:
                # One process cannot have a file open for reading only and for writing.
                self.close()
        made = copy.copy(self)
        made._lock, made._known, made.replace = threading.RLock(), None, False
        started = time.perf_counter()
        made.table, made.wanted_space = name, geometry
        made.column, made.id = self.column or "embedding", self.id or "id"
        made._connection = _connect(":memory:" if self._file is None else str(self._file))
        try:
            made._fill(vectors, geometry)
        except BaseException:
            made.close()
            raise
        if self._file is not None:
            made.close()
        made._made = {"build_seconds": time.perf_counter() - started}
        return made

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

    def close(self) -> None:
        """Close the file; what was built in memory is gone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
        with self._lock:
            if self._connection is None:
                if self._file is None:
                    raise InputError(
                        f"the system {self._title!r} is empty: a database in memory",
                        hint="call build(base, space) first, or name a file: duckdb://FILE",
                    )
                self._connection = _connect(str(self._file), read_only=True)
            try:
                yield self._connection
            except duckdb.Error as error:
                first = str(error).strip().splitlines()[0]
                if condition is not None and condition.text:
                    raise InputError(f"the filter {condition.text!r}: {first}") from error
                raise SystemFault(f"DuckDB failed: {first}") from error


def _connect(file: str, *, read_only: bool = False) -> Any:
    duckdb = _duckdb()
    try:
        return duckdb.connect(file, read_only=read_only)
    except duckdb.Error as error:
        first = str(error).strip().splitlines()[0]
        hint = "is it a file of DuckDB?"
        if "lock" in first:
            hint = "another process has it open for writing: end that one, or search a copy"
        elif "different configuration" in first:
            hint = "this process has it open for writing: close that connection first"
        elif not Path(file).parent.is_dir():
            hint = f"the directory {Path(file).parent} does not exist"
        elif not Path(file).exists():
            hint = "there is no such file"
        raise InputError(f"DuckDB cannot open {file}: {first}", hint=hint) from error


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
