"""DuckDB: exact search in one SQL statement over a column of vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.systems.base import Counters, Stage
from semrecall.systems.collection import (
    Asked,
    Asker,
    Collection,
    Found,
    Recipe,
    by_filter,
    only_one,
)
from semrecall.systems.sql import NO_CONDITION, Condition, condition_of, quoted
from semrecall.systems.tablefile import TableFileSystem

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = ["DuckdbSystem"]

_VECTOR = re.compile(r"(FLOAT|DOUBLE)\[(\d*)\]")
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_PAGE = 2048


class DuckdbSystem(TableFileSystem):
    """A table of DuckDB: in a file, which is opened for reading only, or built in memory.

    A query is compared with every row, whose vector is FLOAT[d], DOUBLE[d] or a list. A score
    that is NaN (a zero vector under cosine), which DuckDB sorts above all numbers, is no result.
    """

    options: ClassVar = {
        **TableFileSystem.options,
        "url": "file of the database, as in duckdb://docs.duckdb; in memory when left out",
    }

    engine = module = "duckdb"
    title = "DuckDB"
    #: Functions.
    metrics: ClassVar = {
        "array_inner_product": "ip", "array_cosine_similarity": "cosine", "array_distance": "l2",
    }  # fmt: skip
    _type: str = "FLOAT"

    # -- what there is ----------------------------------------------------------------------

    def _look(self, name: str) -> Collection | None:
        if name not in self._names():
            return None
        described = self._fetch(f"DESCRIBE {quoted(name)}")
        types = {column: kind for column, kind, *_ in described}
        keys = [column for column, _, _, key, *_ in described if key == "PRI"]
        vectors = [column for column, kind in types.items() if _VECTOR.fullmatch(kind)]
        where, what = f"the table {name!r}", "column of FLOAT or DOUBLE vectors"
        column = only_one(self.column, vectors, where, what, "column")
        own = list(types) if self.id is not None else keys or [n for n in types if n == "id"]
        key = only_one(self.id, own, where, "column of ids", "id")
        self._type, shown = types[column].partition("[")[0], quoted(column)
        ((rows, shortest, longest),) = self._fetch(
            f"SELECT count({shown}), min(len({shown})), max(len({shown})) FROM {quoted(name)}"
        )
        if not rows:
            raise InputError(f"{where} holds no vectors")
        if shortest != longest:
            raise InputError(f"the vectors of {where} have {shortest} to {longest} dimensions")
        return Collection(
            name, column, key, longest, self.wanted_space, rows,
            integer_ids=types[key] in _INTEGERS, exact=True,
            details={"version": self._library.__version__},
        )  # fmt: skip

    def _names(self) -> Sequence[str]:
        if self._missing:
            return []
        found = self._fetch(
            "SELECT CASE WHEN schema = current_schema() THEN name ELSE schema || '.' || name END "
            "FROM (SHOW ALL TABLES) WHERE database = current_database()"
        )
        return [name for (name,) in found]

    # -- made -------------------------------------------------------------------------------

    def _create(self, recipe: Recipe) -> None:
        self.wanted_space = recipe.space
        key, column = quoted(str(self.id)), quoted(str(self.column))
        kind = "BIGINT" if recipe.integers else "VARCHAR"
        self._fetch(
            f"CREATE OR REPLACE TABLE {quoted(str(self.collection))} "
            f"({key} {kind}, {column} FLOAT[{recipe.dimension}])"
        )

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        import pyarrow as pa

        rows = pa.table({"id": pa.array(ids), "v": _arrow_vectors(block)})
        into = f"INSERT INTO {quoted(str(self.collection))} SELECT * FROM semrecall_rows"
        self._fetch(into, rows={"semrecall_rows": rows})

    def _connect(self, file: str, *, writing: bool) -> Any:
        return self._library.connect(file, read_only=not writing)

    def _failures(self) -> tuple[type[BaseException], ...]:
        return (self._library.Error,)

    def _hint(self, error: Any, said: str) -> str | None:
        hints = {
            "lock": "another process has it open for writing: end that one, or search a copy",
            "different configuration": "this process has it open for writing: close that "
            "connection first",
            "Could not write": "is there room on the disk?",
        }
        return next((hint for part, hint in hints.items() if part in said), None)

    # -- searched ---------------------------------------------------------------------------

    def _asker(self, asked: Asked) -> Asker:
        """One statement for all queries that have the same filter."""
        best = "max" if self.space.higher_is_nearer else "min"
        score = f"{self._metric(self.space)}(vector, query::{self._kind})"

        def ask(matrix: NDArray[np.float32], given: Any) -> Sequence[Found]:
            import pyarrow as pa

            condition = condition_of(given)
            rows = pa.table({"place": np.arange(len(matrix)), "query": _arrow_vectors(matrix)})
            statement = (
                f"SELECT place, {best}_by(id, score, {asked.k}), {best}(score, {asked.k}) FROM "
                f"(SELECT place, id, {score} AS score "
                f"FROM ({self._rows(condition)}), semrecall_queries) "
                "WHERE NOT isnan(score) GROUP BY place"
            )
            found: list[Found] = [((), ())] * len(matrix)
            for place, ids, scores in self._fetch(
                statement, condition.parameters, condition, {"semrecall_queries": rows}
            ):
                found[place] = ids, scores
            return found

        return ask

    @property
    def _at_once(self) -> int:
        return 1 << 30

    @property
    def _kind(self) -> str:
        """The type of a vector."""
        return f"{self._type}[{self._held().dimension}]"

    def _rows(self, condition: Condition) -> str:
        """The rows that a filter lets through, as a table of id and vector."""
        table = self._held()
        where = f" AND ({condition.text})" if condition.text else ""
        column = quoted(table.vector)
        return (
            f"SELECT {self._key} AS id, {column}::{self._kind} AS vector FROM {quoted(table.name)} "
            f"WHERE {column} IS NOT NULL{where}"
        )

    def _counted(self, asked: Asked) -> Counters:
        """Every vector that the filter lets through is compared."""
        table = self._held()
        compared = np.full(len(asked.matrix), float(table.rows))
        for given, rows in by_filter(asked.filters, self._at_once):
            condition = condition_of(given)
            if condition.text:
                statement = f"SELECT count(*) FROM ({self._rows(condition)})"
                ((compared[rows],),) = self._fetch(statement, condition.parameters, condition)
        width = 8 if self._type == "DOUBLE" else 4
        return Counters({"scan": Stage(compared, width * table.dimension)})

    def _pages(self, *, vectors: bool) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        shown = "id, vector" if vectors else "id"
        rows = f"SELECT {shown} FROM ({self._rows(NO_CONDITION)})"
        with self._asking() as connection:
            # A cursor of its own: the connection stays free for other questions meanwhile.
            for page in connection.cursor().sql(rows).to_arrow_reader(_PAGE):
                flat = np.empty(0)
                if vectors:
                    flat = page.column("vector").flatten().to_numpy(zero_copy_only=False)
                yield page.column("id").to_pylist(), flat.reshape(len(page), -1)

    def _fetch(
        self,
        statement: str,
        given: Sequence[Any] = (),
        condition: Condition = NO_CONDITION,
        rows: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """rows: tables of arrow that the statement reads, by their names."""
        with self._asking(condition) as connection:
            for name, table in (rows or {}).items():
                connection.register(name, table)
            try:
                return list(connection.execute(statement, given).fetchall())
            finally:
                for name in rows or ():
                    connection.unregister(name)


def _arrow_vectors(rows: NDArray[np.float32]) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
