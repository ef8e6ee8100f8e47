"""pgvector: vectors in a table of PostgreSQL, searched by SQL."""

from __future__ import annotations

import copy
import math
import re
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SemrecallError, SemrecallWarning, SystemFault
from semrecall.systems.base import Counters, Knob
from semrecall.systems.pgvector_index import (
    BUILD_KNOBS,
    OPERATORS,
    Index,
    Relation,
    chosen_index,
    spaceless,
)
from semrecall.systems.postgres import Plan, Postgres, copy_rows, in_copy, pages_of, sent_vector
from semrecall.systems.sql import Condition, Table, TableSystem, conditions, quoted
from semrecall.systems.stored import Pages, answer, stored_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["PgvectorSystem"]

_QUANTISED = ("none", "halfvec", "bit")
_PAGE = 4096
#: Settings under which a statement reads every row.
_SCAN = dict.fromkeys(("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"), "off")
_DEFAULTS = """
SELECT name, current_setting(name, true) FROM unnest(ARRAY[
  'hnsw.ef_search', 'hnsw.iterative_scan', 'hnsw.max_scan_tuples',
  'ivfflat.probes', 'ivfflat.iterative_scan', 'ivfflat.max_probes', 'block_size']) AS name
"""


@dataclass(frozen=True)
class _Question:
    """Queries (n, d), a filter each, and how they are asked.

    local: settings of PostgreSQL. factor: candidates per result. indexed: whether an index
    serves, or every row is read.
    """

    matrix: NDArray[np.float32]
    k: int
    conditions: Sequence[Condition]
    local: Mapping[str, str]
    factor: float | None
    indexed: bool

    def only(self, rows: list[int]) -> _Question:
        """Some of the queries."""
        chosen = [self.conditions[row] for row in rows]
        return replace(self, matrix=self.matrix[rows], conditions=chosen)

    @property
    def doing(self) -> str:
        """What this is, in errors."""
        texts = sorted({condition.text for condition in self.conditions if condition.text})
        return f"a search with the filter {texts[0]!r}" if texts else "a search"


class PgvectorSystem(TableSystem):
    """A table of PostgreSQL with a column of type vector or halfvec.

    Every search is a transaction of its own that may only read, and its settings end with it.
    What the planner does is checked once per setting: a search that does not use the index is
    told of, because it costs what exact search costs, and no setting changes it.

    A password comes from PGPASSWORD or ~/.pgpass.
    """

    options: ClassVar = {
        **TableSystem.options,
        "url": "where the database is: pgvector://user@host:port/database",
        "index": "hnsw, ivfflat or none (every row is compared); built, or one that is there",
        "quantise": "what a new index compares: halfvec (half floats) or bit (signs)",
        "timeout": "seconds a search may take; 60 when left out",
        "maintenance_work_mem": "memory of PostgreSQL for building an index, e.g. 1GB",
        "host": "folder of the Unix socket, where the address names no host",
        "sslmode": "as libpq has it, e.g. require",
    }

    #: What is done at the latest when the system goes.
    _end: Callable[[], Any]
    _index: Index | None = None
    _relation: Relation
    _defaults: Mapping[str, str | None]

    @property
    def remote(self) -> bool:
        """Always: a server does the work."""
        return True

    def __init__(
        self,
        index: str | None = None,
        quantise: str = "none",
        timeout: str | float = 60.0,
        maintenance_work_mem: str | None = None,
        host: str | None = None,
        sslmode: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.index = None if index is None else _one_of(index, tuple(BUILD_KNOBS), "index")
        self.quantise = _one_of(quantise, _QUANTISED, "quantise")
        self.maintenance_work_mem = maintenance_work_mem
        given = {"host": host, "sslmode": sslmode}
        self._given = {key: value for key, value in given.items() if value is not None}
        self._seconds = _seconds(timeout)
        self._made: dict[str, Any] = {}
        self._connect()

    def _connect(self) -> None:
        """A connection of its own, which goes when the system goes."""
        self._server = Postgres(self.url, self._seconds, self._given)
        self._seen: set[Any] = set()
        self._told = False
        self._end = weakref.finalize(self, self._server.close)

    @property
    def _place(self) -> str:
        return self._server.place

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs of the index asked for, and the search knobs of the index there is."""
        build = BUILD_KNOBS[self.index or "hnsw"]
        if self._facts() is None or self._index is None:
            return build
        return build + self._index.knobs(self._defaults)

    # -- what there is ----------------------------------------------------------------------

    def _look(self) -> Table | None:
        assert self.table is not None
        with self._server.session(doing="a look at the table") as connection:
            version = connection.execute(
                "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            ).fetchone()
            plain = self.table if re.fullmatch(r'[\w."]+', self.table) else quoted(self.table)
            oid, name = connection.execute(
                "SELECT t::oid, t::text FROM coalesce(to_regclass(%s), to_regclass(%s)) AS t",
                [quoted(self.table), plain],
            ).fetchone()
            if version is None:
                raise _no_extension(self._place)
            if oid is None:
                return None
            relation = Relation.read(connection, oid, name, self.column, self.id)
            self._index, space = chosen_index(relation, self.index, self.wanted_space)
            self._relation = relation
            self._defaults = dict(connection.execute(_DEFAULTS).fetchall())
            rows = connection.execute(
                f"SELECT count({quoted(relation.column)}) FROM {relation.name}"
            ).fetchone()[0]
            self._made["version"], self._made["server"] = version[0], _server_version(connection)
        return Table(self.table, relation.column, relation.id, relation.dimension, space,
                     relation.integer_ids, rows)  # fmt: skip

    def _spaceless(self) -> InputError:
        return spaceless(self._relation)

    def _tables(self) -> Sequence[str]:
        with self._server.session(doing="a look at the tables") as connection:
            found = connection.execute(
                "SELECT DISTINCT c.oid::regclass::text FROM pg_class c "
                "JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid "
                "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') "
                "AND t.typname IN ('vector', 'halfvec')"
            ).fetchall()
        return [name.replace('"', "") for (name,) in found]

    def describe(self) -> dict[str, Any]:
        """Versions, table, index and how that was built."""
        table = self._held()
        index = self._index
        return {
            "system": "pgvector",
            "table": table.name,
            "space": self.space.name,
            "rows": table.rows,
            "dimension": table.dimension,
            "index": None if index is None else index.name,
            "exact": index is None,
            **({} if index is None else {"kind": index.kind, "holds": index.holds}),
            **({} if index is None else index.options),
            **self._made,
        }

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """SQL."""
        self._held()
        wanted = self.turned("search", settings)
        factor = wanted.pop("k_factor", None)
        lines = [f"SET {name} = {value};" for name, value in self._local(wanted).items()]
        if factor is not None:
            lines.append(f"-- and LIMIT k * {factor:g} before candidates are scored again in full")
        return "\n".join(lines)

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """SQL."""
        table = self._held()
        name = quoted("docs" if "semrecall_" in table.name else table.name)
        return (
            self._index_statement(
                name, quoted(table.column), table.dimension, self.space, table.rows, knobs
            )
            + ";"
        )

    def close(self) -> None:
        """Close the connection; a table that build named by itself is dropped."""
        self._end()
        if self._server is not None:
            self._server.close()

    # -- made -------------------------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """A new table of these vectors, as float32, and its index, in one transaction.

        Without a name in the spec the table is called semrecall_..., is not logged, and is
        dropped with the system. InputError for a table that exists, unless the spec says
        replace=true: then it is dropped when the new one is complete. knobs: m and
        ef_construction, or lists.
        """
        given = self.turned("build", knobs)
        geometry, vectors = self._space_to_build(space), Vectors.of(base, ids=ids)
        self._refuse_existing()
        made = copy.copy(self)
        made._connect()
        made._known, made._index, made.replace = None, None, False
        started = time.perf_counter()
        schema, dot, _ = (self.table or "").rpartition(".")
        own = f"{schema}{dot}semrecall_{uuid.uuid4().hex[:12]}"
        made.table, made.wanted_space = self.table or own, geometry
        made.column, made.id = self.column or "embedding", self.id or "id"
        memory = self.maintenance_work_mem
        settings = {"maintenance_work_mem": memory} if memory else {}
        with made._server.session(
            settings, doing="a build", writing=True, limited=False
        ) as connection:
            made._fill(connection, own, vectors, geometry, given)
            if self.table is not None:
                if self.replace:
                    connection.execute(f"DROP TABLE IF EXISTS {quoted(self.table)}")
                connection.execute(
                    f"ALTER TABLE {quoted(own)} RENAME TO {quoted(self.table.rpartition('.')[2])}"
                )
        made._repeat_notices()
        if self.table is None:
            made._end = weakref.finalize(made, _drop, made._server, own)
        made._made = {"build_seconds": time.perf_counter() - started}
        made._held()
        return made

    def _exists(self) -> bool:
        assert self.table is not None
        with self._server.session(doing="a look at the table") as connection:
            found = connection.execute("SELECT to_regclass(%s)::text", [quoted(self.table)])
            return found.fetchone()[0] is not None

    def _fill(
        self, connection: Any, name: str, base: Vectors, space: Space, knobs: Mapping[str, Any]
    ) -> None:
        if connection.execute("SELECT to_regtype('vector')").fetchone()[0] is None:
            raise _no_extension(self._place)
        table, width = quoted(name), base.dimension
        key, column = quoted(self.id or "id"), quoted(self.column or "embedding")
        logged = "UNLOGGED" if self.table == name else ""
        blocks = stored_blocks(base, space)
        first = next(blocks, None)
        if first is None:
            raise InputError("the base holds no vector")
        kind = "bigint" if isinstance(first[0], np.ndarray) else "text"
        connection.execute(
            f"CREATE {logged} TABLE {table} ({key} {kind} PRIMARY KEY, "
            f"{column} vector({width}) NOT NULL)"
        )
        copied = f"COPY {table} FROM STDIN (FORMAT BINARY, FREEZE)"
        with connection.cursor().copy(copied) as target:
            copy_rows(target, (in_copy(*block) for block in _chain(first, blocks)))
        if self.index != "none":
            total = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            connection.execute(self._index_statement(table, column, width, space, total, knobs))
        connection.execute(f"ANALYZE {table}")

    def _index_statement(
        self,
        table: str,
        column: str,
        width: int,
        space: Space,
        rows: int,
        knobs: Mapping[str, Any],
    ) -> str:
        kind = self.index or "hnsw"
        operators = {
            "none": f"{column} vector_{space}_ops",
            "halfvec": f"({column}::halfvec({width})) halfvec_{space}_ops",
            "bit": f"(binary_quantize({column})::bit({width})) bit_hamming_ops",
        }[self.quantise]
        made = dict(knobs)
        if kind == "ivfflat":
            default = rows // 1000 if rows <= 1_000_000 else math.isqrt(rows)
            made.setdefault("lists", max(1, default))
        written = ", ".join(f"{name} = {value}" for name, value in made.items())
        return f"CREATE INDEX ON {table} USING {kind} ({operators})" + (
            f" WITH ({written})" if written else ""
        )

    def _repeat_notices(self) -> None:
        """What PostgreSQL remarked while it built, e.g. that memory was short."""
        for notice in self._server.notices:
            memory = "maintenance_work_mem" in notice
            advice = "; give it more: maintenance_work_mem=1GB in the spec" if memory else ""
            warnings.warn(f"PostgreSQL: {notice}{advice}", SemrecallWarning, stacklevel=3)
        self._server.notices.clear()

    # -- searched ---------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The results of one statement per query, as the planner runs it."""
        asked = self._question(queries, k, filters, settings)
        if not asked.indexed:
            self._check_scan(asked)
            return self._run(asked)
        self._check_index(asked)
        found = self._run(asked)
        self._tell_of_short_rows(asked, found[0].shape[1])
        return found

    def exact(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **given: Any,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The true neighbours: every row is read, which is checked."""
        asked = self._question(queries, k, filters, given, scan=True)
        self._check_scan(asked)
        return self._run(asked)

    def count(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Counters:
        """Bytes of the blocks touched, cached or not, by EXPLAIN (ANALYZE, BUFFERS)."""
        asked = self._question(queries, k, filters, settings)
        # The first statement of a connection reads the catalogue, too: it is asked twice.
        twice = asked.only([*range(min(1, len(asked.matrix))), *range(len(asked.matrix))])
        plans = self._plans_of(twice, "ANALYZE, BUFFERS, TIMING OFF")[1:]
        block = int(self._defaults["block_size"] or 8192)
        touched = np.array([block * plan.blocks for plan in plans], dtype=np.float64)
        return Counters({}, reported_bytes=touched)

    def _question(
        self,
        queries: NDArray[np.float32],
        k: int,
        filters: Sequence[Any] | None,
        settings: Mapping[str, Any],
        *,
        scan: bool = False,
    ) -> _Question:
        wanted = self.turned("search", settings)
        matrix = self._asked(queries, k)
        indexed = self._index is not None and not scan
        factor = wanted.pop("k_factor", None)
        local = self._local(wanted) if indexed else _SCAN
        return _Question(matrix, k, conditions(filters, len(matrix)), local, factor, indexed)

    def _run(self, asked: _Question) -> tuple[NDArray[Any], NDArray[np.float64]]:
        table = self._held()
        found = []
        with self._server.session(asked.local, doing=asked.doing, pipelined=True) as connection:
            cursors = [
                connection.execute(*statement, binary=True) for statement in self._statements(asked)
            ]
            for cursor in cursors:
                rows = [row for row in cursor.fetchall() if row[1] is not None]
                self._server.answered()
                distances = np.array([row[1] for row in rows], dtype=np.float64)
                found.append(([row[0] for row in rows], _score(distances, self.space)))
        return answer(found, self.space, integer_ids=table.integer_ids)

    def _statements(self, asked: _Question) -> Iterator[tuple[str, list[Any]]]:
        """A search for each query, and the values of its placeholders."""
        table, relation = self._held(), self._relation
        key = quoted(table.id) if table.integer_ids else f"{quoted(table.id)}::text"
        kind = "" if relation.vector == "vector" else f"::{relation.vector}"
        distance = f"{_plain(quoted(table.column))} {OPERATORS[self.space.name]} %s{kind}"
        every = (
            f"SELECT {_plain(key)} AS semrecall_id, {distance} AS semrecall_distance "
            f"FROM {_plain(relation.name)}"
        )
        index = self._index if asked.indexed else None
        candidates = math.ceil(asked.k * (asked.factor or self._factor))
        for row, condition in zip(asked.matrix, asked.conditions, strict=True):
            vector, values = sent_vector(row), condition.parameters
            # Without values of its own, a % in the condition is just that.
            text = condition.text if values else _plain(condition.text)
            rows = f"{every} WHERE ({text})" if text else every
            ranked = f"ORDER BY semrecall_distance LIMIT {asked.k}"
            if index is None or not index.computed:
                yield f"{rows} {ranked}", [vector, *values]
                continue
            inner = f"{rows} ORDER BY {index.order(table.dimension)} LIMIT {candidates}"
            yield f"SELECT * FROM ({inner}) AS candidates {ranked}", [vector, *values, vector]

    @property
    def _factor(self) -> float:
        """Candidates per result when nobody says how many."""
        return next((knob.default or 1 for knob in self.knobs if knob.name == "k_factor"), 1)

    def _local(self, wanted: Mapping[str, Any]) -> dict[str, str]:
        """Search knobs as settings of PostgreSQL."""
        kind = "hnsw" if self._index is None else self._index.kind
        return {f"{kind}.{name}": str(value) for name, value in wanted.items()}

    # -- what the planner does ----------------------------------------------------------------

    def _plans_of(self, asked: _Question, how: str) -> list[Plan]:
        with self._server.session(asked.local, doing=asked.doing, pipelined=True) as connection:
            cursors = [
                connection.execute(f"EXPLAIN ({how}, FORMAT JSON) {text}", values)
                for text, values in self._statements(asked)
            ]
            plans = []
            for cursor in cursors:
                plans.append(Plan.of(cursor.fetchone()[0]))
                self._server.answered()
        return plans

    def _new_plans(self, asked: _Question) -> Iterator[tuple[Condition, Plan]]:
        """Plans of what was not asked before: each filter and setting once."""
        first: dict[Any, int] = {}
        turned = (asked.indexed, asked.k, asked.factor, *sorted(asked.local.items()))
        for row, condition in enumerate(asked.conditions):
            first.setdefault((condition.text, *turned), row)
        new = [row for key, row in first.items() if key not in self._seen]
        if new:
            some = asked.only(new)
            plans = self._plans_of(some, "COSTS OFF")
            self._seen |= first.keys()
            yield from zip(some.conditions, plans, strict=True)

    def _check_scan(self, asked: _Question) -> None:
        """Exact search reads the whole table, or it is none."""
        for condition, plan in self._new_plans(asked):
            if "Seq Scan" not in plan.scans or plan.ordering_indexes:
                where = f" with the filter {condition.text!r}" if condition.text else ""
                raise SystemFault(
                    f"PostgreSQL does not scan the table for exact search{where}: it chose "
                    f"{', '.join(plan.scans)}",
                    hint="is it a table, and not a view or a foreign table?",
                )

    def _check_index(self, asked: _Question) -> None:
        """Warn where the planner does not use the index."""
        index = self._index
        assert index is not None
        for condition, plan in self._new_plans(asked):
            if index.names & plan.ordering_indexes:
                continue
            if plan.ordering_indexes:
                used = ", ".join(sorted(plan.ordering_indexes))
                said = f"the index {used} instead of {index.name}: its settings are others"
            else:
                said = (
                    f"{', '.join(plan.scans)} and not the index {index.name}: results are exact "
                    f"and cost as much; {self._why_not(asked, condition)}"
                )
            turned = " ".join(f"{name}={value}" for name, value in asked.local.items())
            warnings.warn(
                f"{f'with {turned} ' if turned else ''}PostgreSQL uses {said}",
                SemrecallWarning,
                stacklevel=4,
            )

    def _why_not(self, asked: _Question, condition: Condition) -> str:
        """The likely reason why an index is not used."""
        table, index = self._held(), self._index
        if index is not None and index.predicate is not None:
            return f"the index holds only rows with {index.predicate}"
        if condition.text:
            return f"probably the filter {condition.text!r} leaves so few rows that this is cheaper"
        return (
            f"probably the table is small ({table.rows:,} rows) for k = {asked.k} and this setting"
            f", or its statistics are old (ANALYZE {self._relation.name})"
        )

    def _tell_of_short_rows(self, asked: _Question, width: int) -> None:
        """Say once that candidates fewer than k, as nobody asked for, are all there is."""
        index, table = self._index, self._held()
        filtered = any(condition.text for condition in asked.conditions)
        if index is None or index.kind != "hnsw" or filtered or self._told:
            return
        if "hnsw.ef_search" in asked.local:
            return
        length = int(self._defaults["hnsw.ef_search"] or 40)
        if width <= length < asked.k <= table.rows:
            self._told = True
            warnings.warn(
                f"hnsw.ef_search is {length}, below k = {asked.k}: pgvector returns at most "
                f"{length} results, unless it scans iteratively (iterative_scan=relaxed_order)",
                SemrecallWarning,
                stacklevel=3,
            )

    # -- given out ----------------------------------------------------------------------------

    def vectors(self) -> Vectors:
        """All vectors, in pages, to the bit as they are stored; half floats from a halfvec."""
        table, relation = self._held(), self._relation
        key, column = quoted(table.id), quoted(table.column)
        shown = key if table.integer_ids else f"{key}::text"
        rows = f"FROM {relation.name} WHERE {column} IS NOT NULL"
        hashed = f"hashtextextended({key}::text, 0)"
        with self._reading() as connection:
            found = connection.execute(f"SELECT {shown}, {hashed} {rows}", binary=True).fetchall()
        ids = [row[0] for row in found]
        keys = np.array([row[1] for row in found], dtype=np.int64)

        def pages() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
            copied = f"COPY (SELECT {hashed}, {column} {rows}) TO STDOUT (FORMAT BINARY)"
            with self._reading() as connection, connection.cursor().copy(copied) as source:
                yield from pages_of(source, table.dimension, relation.vector, _PAGE)

        return Vectors.from_blocks(Pages(pages, keys, table.name), ids=ids)

    def _reading(self) -> Any:
        """A session that reads all rows, in the order in which they lie."""
        order = {"synchronize_seqscans": "off", "max_parallel_workers_per_gather": "0"}
        return self._server.session(_SCAN | order, doing="reading the vectors", limited=False)


def _plain(text: str) -> str:
    """A text of a statement in which a % is just that."""
    return text.replace("%", "%%")


def _score(distances: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    if space.name == "ip":
        return -distances
    return 1 - distances if space.name == "cosine" else distances


def _drop(server: Postgres, name: str) -> None:
    """Drop a table of our own, where that is still possible."""
    with suppress(SemrecallError), server.session(writing=True, doing="tidying up") as connection:
        connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
    server.close()


def _no_extension(place: str) -> InputError:
    return InputError(
        f"{place} has no extension vector",
        hint="a superuser runs: CREATE EXTENSION vector;",
    )


def _server_version(connection: Any) -> str:
    number = connection.info.server_version
    return f"PostgreSQL {number // 10000}.{number % 10000}"


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _one_of(value: str, known: Sequence[str], name: str) -> str:
    if value not in known:
        raise InputError(f"{name} is {value!r}; expected {', '.join(known)}")
    return value


def _seconds(value: str | float) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"timeout is {value!r}; expected seconds, e.g. 60")
    return seconds
