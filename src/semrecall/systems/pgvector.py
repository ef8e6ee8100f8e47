"""pgvector: vectors in a table of PostgreSQL, searched by SQL."""

from __future__ import annotations

import math
import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, SemrecallWarning, SystemFault
from semrecall.registry import positive
from semrecall.systems.base import Counters, Knob
from semrecall.systems.collection import Asked, Collection, Found, Recipe, one_of, own_name
from semrecall.systems.connection import quietly
from semrecall.systems.pgvector_index import (
    BUILD_KNOBS,
    METRICS,
    Index,
    Relation,
    chosen_index,
    spaceless,
)
from semrecall.systems.postgres import Plan, Postgres, read_vectors, sent_vectors
from semrecall.systems.sql import Condition, TableSystem, condition_of, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
class _Question(Asked):
    """What is asked, and how: conditions as filters.

    local: settings of PostgreSQL. factor: candidates per result. indexed: whether an index
    serves, or every row is read.
    """

    local: Mapping[str, str]
    factor: float
    indexed: bool

    def only(self, rows: list[int]) -> _Question:
        """Some of the queries."""
        return replace(self, matrix=self.matrix[rows], filters=[self.filters[row] for row in rows])

    @property
    def doing(self) -> str:
        """What this is, in errors."""
        texts = sorted({condition.text for condition in self.filters if condition.text})
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

    engine = title = "pgvector"
    metrics = METRICS
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
        self.index = None if index is None else one_of(index, tuple(BUILD_KNOBS), "index")
        self.quantise = one_of(quantise, _QUANTISED, "quantise")
        self.maintenance_work_mem = maintenance_work_mem
        given = {"host": host, "sslmode": sslmode}
        self._given = {key: value for key, value in given.items() if value is not None}
        self.timeout = positive(timeout, "timeout")
        self._connect()

    def _connect(self) -> None:
        """A connection of its own, which goes when the system goes."""
        self._server = Postgres(self.url, self.timeout, self._given)
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

    def _look(self, name: str) -> Collection | None:
        with self._server.session(doing="a look at the table") as connection:
            version = connection.execute(
                "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            ).fetchone()
            plain = name if re.fullmatch(r'[\w."]+', name) else quoted(name)
            oid, known = connection.execute(
                "SELECT t::oid, t::text FROM coalesce(to_regclass(%s), to_regclass(%s)) AS t",
                [quoted(name), plain],
            ).fetchone()
            if version is None:
                raise _no_extension(self._place)
            if oid is None:
                return None
            relation = Relation.read(connection, oid, known, self.column, self.id)
            index, space = chosen_index(relation, self.index, self.wanted_space)
            self._relation, self._index = relation, index
            self._defaults = dict(connection.execute(_DEFAULTS).fetchall())
            rows = connection.execute(
                f"SELECT count({quoted(relation.column)}) FROM {relation.name}"
            ).fetchone()[0]
            versions = {"version": version[0], "server": _server_version(connection)}
        kind = {} if index is None else {"kind": index.kind, "holds": index.holds, **index.options}
        return Collection(
            name, relation.column, relation.id, relation.dimension, space, rows,
            integer_ids=relation.integer_ids, index=index.name if index else "",
            exact=index is None, details={**kind, **versions},
        )  # fmt: skip

    def _spaceless(self) -> InputError:
        return spaceless(self._relation)

    def _names(self) -> Sequence[str]:
        with self._server.session(doing="a look at the tables") as connection:
            found = connection.execute(
                "SELECT DISTINCT c.oid::regclass::text FROM pg_class c "
                "JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid "
                "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') "
                "AND t.typname IN ('vector', 'halfvec')"
            ).fetchall()
        return [name.replace('"', "") for (name,) in found]

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
        return f"{self._index_statement(quoted(self._shown), self._held(), knobs)};"

    def close(self) -> None:
        """Close the connection; a table that build named by itself is dropped."""
        self._end()
        self._server.close()

    # -- made -------------------------------------------------------------------------------

    def _take_name(self) -> None:
        """Filled under a name of its own, which it keeps where the spec names none.

        Such a table is not logged, and is dropped with the system.
        """
        self._named, self._index = self.collection, None
        schema, dot, _ = self.named.rpartition(".")
        self._own = self.collection = f"{schema}{dot}{own_name()}"
        super()._take_name()
        self._connect()

    @contextmanager
    def _building(self) -> Iterator[None]:
        """In one transaction, in which a table that is replaced is dropped at the end."""
        memory = self.maintenance_work_mem
        settings = {"maintenance_work_mem": memory} if memory else {}
        with self._server.session(
            settings, doing="a build", writing=True, limited=False
        ) as self._writing:
            yield
            if self._named is not None:
                name = quoted(self._named.rpartition(".")[2])
                self._writing.execute(f"DROP TABLE IF EXISTS {quoted(self._named)}")
                self._writing.execute(f"ALTER TABLE {quoted(self._own)} RENAME TO {name}")
                self.collection = self._named
        del self._writing
        self._repeat_notices()
        if self._named is None:
            self._end = weakref.finalize(self, _drop, self._server, self._own)

    def _exists(self) -> bool:
        with self._server.session(doing="a look at the table") as connection:
            found = connection.execute("SELECT to_regclass(%s)::text", [quoted(self.named)])
            return found.fetchone()[0] is not None

    def _create(self, recipe: Recipe) -> None:
        self.wanted_space, width = recipe.space, recipe.dimension
        found = self._writing.execute("SELECT to_regtype('vector')::oid").fetchone()[0]
        if found is None:
            raise _no_extension(self._place)
        self._types = ["int8" if recipe.integers else "text", found]
        self._writing.execute(
            f"CREATE {'UNLOGGED' if self._named is None else ''} TABLE {quoted(self._own)} "
            f"({quoted(str(self.id))} {self._types[0]} PRIMARY KEY, "
            f"{quoted(str(self.column))} vector({width}) NOT NULL)"
        )

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        into = f"COPY {quoted(self._own)} FROM STDIN (FORMAT BINARY, FREEZE)"
        with self._writing.cursor().copy(into) as target:
            target.set_types(self._types)
            for name, row in zip(ids, sent_vectors(block), strict=True):
                target.write_row((name, row))

    def _finish(self, recipe: Recipe) -> None:
        name, column = quoted(self._own), str(self.column)
        if self.index != "none":
            rows = self._writing.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            facts = Collection(name, column, "", recipe.dimension, recipe.space, rows)
            self._writing.execute(self._index_statement(name, facts, recipe.knobs))
        self._writing.execute(f"ANALYZE {name}")

    def _index_statement(self, table: str, facts: Collection, knobs: Mapping[str, Any]) -> str:
        kind, column, rows = self.index or "hnsw", quoted(facts.vector), facts.rows
        operators = {
            "none": f"{column} vector_{facts.space}_ops",
            "halfvec": f"({column}::halfvec({facts.dimension})) halfvec_{facts.space}_ops",
            "bit": f"(binary_quantize({column})::bit({facts.dimension})) bit_hamming_ops",
        }[self.quantise]
        made = dict(knobs)
        if kind == "ivfflat":
            default = rows // 1000 if rows <= 1_000_000 else math.isqrt(rows)
            made.setdefault("lists", max(1, default))
        written = ", ".join(f"{name} = {value}" for name, value in made.items())
        made_with = f" WITH ({written})" if written else ""
        return f"CREATE INDEX ON {table} USING {kind} ({operators}){made_with}"

    def _repeat_notices(self) -> None:
        """What PostgreSQL remarked while it built, e.g. that memory was short."""
        for notice in self._server.notices:
            memory = "maintenance_work_mem" in notice
            advice = "; give it more: maintenance_work_mem=1GB in the spec" if memory else ""
            warnings.warn(f"PostgreSQL: {notice}{advice}", SemrecallWarning, stacklevel=3)
        self._server.notices.clear()

    # -- searched ---------------------------------------------------------------------------

    def _nearest(self, asked: Asked) -> Sequence[Found]:
        """The results of one statement per query, as the planner runs it; exact ones by a scan."""
        question = self._question(asked)
        if question.indexed:
            self._check_index(question)
        else:
            self._check_scan(question)
        found = self._answers(question, "", _hits, binary=True)
        if question.indexed:
            self._tell_of_short_rows(question, max((len(ids) for ids, _ in found), default=0))
        return found

    def _counted(self, asked: Asked) -> Counters:
        """Bytes of the blocks touched, cached or not, by EXPLAIN (ANALYZE, BUFFERS)."""
        # The first statement of a connection reads the catalogue, too: it is asked twice.
        every = range(len(asked.matrix))
        twice = self._question(asked).only([*every[:1], *every])
        plans = self._plans_of(twice, "ANALYZE, BUFFERS, TIMING OFF")[1:]
        block = int(self._defaults["block_size"] or 8192)
        touched = np.array([block * plan.blocks for plan in plans], dtype=np.float64)
        return Counters({}, reported_bytes=touched)

    def _question(self, asked: Asked) -> _Question:
        turned = dict(asked.wanted or {})
        usual = {knob.name: knob.default for knob in self.knobs}
        factor = turned.pop("k_factor", usual.get("k_factor") or 1)
        indexed = self._index is not None and asked.wanted is not None
        local = self._local(turned) if indexed else _SCAN
        conditions = [condition_of(given) for given in asked.filters]
        return _Question(asked.matrix, asked.k, conditions, asked.wanted, local, factor, indexed)

    def _answers(
        self, asked: _Question, before: str, read: Callable[[Any], Any], **how: Any
    ) -> list[Any]:
        """What is read of the answer to each statement, which has `before` in front of it."""
        found = []
        with self._server.session(asked.local, doing=asked.doing, pipelined=True) as connection:
            cursors = [
                connection.execute(before + text, values, **how)
                for text, values in self._statements(asked)
            ]
            for cursor in cursors:
                found.append(read(cursor))
                self._server.answered()
        return found

    def _statements(self, asked: _Question) -> Iterator[tuple[str, list[Any]]]:
        """A search for each query, and the values of its placeholders."""
        table, relation = self._held(), self._relation
        kind = "" if relation.vector == "vector" else f"::{relation.vector}"
        distance = f"{_plain(quoted(table.vector))} {self._metric(self.space)} %s{kind}"
        every = (
            f"SELECT {_plain(self._key)} AS semrecall_id, {distance} AS semrecall_distance "
            f"FROM {_plain(relation.name)}"
        )
        index = self._index if asked.indexed else None
        candidates = math.ceil(asked.k * asked.factor)
        for vector, condition in zip(sent_vectors(asked.matrix), asked.filters, strict=True):
            values = condition.parameters
            # Without values of its own, a % in the condition is just that.
            text = condition.text if values else _plain(condition.text)
            rows = f"{every} WHERE ({text})" if text else every
            ranked = f"ORDER BY semrecall_distance LIMIT {asked.k}"
            if index is None or not index.computed:
                yield f"{rows} {ranked}", [vector, *values]
                continue
            inner = f"{rows} ORDER BY {index.order(table.dimension)} LIMIT {candidates}"
            yield f"SELECT * FROM ({inner}) AS candidates {ranked}", [vector, *values, vector]

    def _local(self, wanted: Mapping[str, Any]) -> dict[str, str]:
        """Search knobs as settings of PostgreSQL."""
        kind = "hnsw" if self._index is None else self._index.kind
        return {f"{kind}.{name}": str(value) for name, value in wanted.items()}

    # -- what the planner does ----------------------------------------------------------------

    def _plans_of(self, asked: _Question, how: str) -> list[Plan]:
        before = f"EXPLAIN ({how}, FORMAT JSON) "
        return self._answers(asked, before, lambda cursor: Plan.of(cursor.fetchone()[0]))

    def _new_plans(self, asked: _Question) -> Iterator[tuple[Condition, Plan]]:
        """Plans of what was not asked before: each filter and setting once."""
        first: dict[Any, int] = {}
        turned = (asked.indexed, asked.k, asked.factor, *sorted(asked.local.items()))
        for row, condition in enumerate(asked.filters):
            first.setdefault((condition.text, *turned), row)
        new = [row for key, row in first.items() if key not in self._seen]
        if new:
            some = asked.only(new)
            plans = self._plans_of(some, "COSTS OFF")
            self._seen |= first.keys()
            yield from zip(some.filters, plans, strict=True)

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
        filtered = any(condition.text for condition in asked.filters)
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

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[Any], NDArray[Any]]]:
        """In the order in which they lie, to the bit as they are stored; half floats too."""
        table, relation = self._held(), self._relation
        order = {"synchronize_seqscans": "off", "max_parallel_workers_per_gather": "0"}
        column = quoted(table.vector)
        rows = f"FROM {relation.name} WHERE {column} IS NOT NULL"
        with (
            self._server.session(
                _SCAN | order, doing="reading the vectors", limited=False
            ) as connection,
            connection.cursor(own_name()) as cursor,
        ):
            shown = f"{self._key}, {column}" if vectors else self._key
            cursor.execute(f"SELECT {shown} {rows}", binary=True)
            while page := cursor.fetchmany(_PAGE):
                block = np.empty((len(page), 0))
                if vectors:
                    block = read_vectors([row[1] for row in page], table.dimension, relation.vector)
                yield [row[0] for row in page], block


def _hits(cursor: Any) -> Found:
    """Ids and distances; a row without a vector has none."""
    rows = [row for row in cursor.fetchall() if row[1] is not None]
    return [row[0] for row in rows], [row[1] for row in rows]


def _plain(text: str) -> str:
    """A text of a statement in which a % is just that."""
    return text.replace("%", "%%")


def _drop(server: Postgres, name: str) -> None:
    """Drop a table of our own, where that is still possible."""

    def drop() -> None:
        with server.session(writing=True, doing="tidying up") as connection:
            connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")

    quietly(drop)
    server.close()


def _no_extension(place: str) -> InputError:
    return InputError(
        f"{place} has no extension vector",
        hint="a superuser runs: CREATE EXTENSION vector;",
    )


def _server_version(connection: Any) -> str:
    number = connection.info.server_version
    return f"PostgreSQL {number // 10000}.{number % 10000}"
