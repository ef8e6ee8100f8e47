"""What PostgreSQL says of a table of vectors: its columns, and the indexes over them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semrecall.errors import InputError, MismatchError
from semrecall.space import Space
from semrecall.space import space as space_of
from semrecall.systems.base import Knob
from semrecall.systems.collection import only_one
from semrecall.systems.sql import quoted
from semrecall.systems.units import UNITS

__all__ = [
    "BUILD_KNOBS",
    "METRICS",
    "Index",
    "Relation",
    "chosen_index",
    "spaceless",
]

#: Operator -> the unit of what it tells.
METRICS = {"<#>": "negated-ip", "<=>": "cosine-distance", "<->": "l2"}
#: Space -> operator.
OPERATORS = {UNITS[unit].space.name: operator for operator, unit in METRICS.items()}
#: Settings of iterative scans; the last one of HNSW only.
_MODES = ("off", "relaxed_order", "strict_order")

BUILD_KNOBS = {
    "hnsw": (
        Knob("m", "build", 2, 100, 16, "links of a vector on each layer", "log"),
        Knob(
            "ef_construction", "build", 4, 1000, 64,
            "length of the candidate list while linking (at least 2 m)", "log",
        ),
    ),
    "ivfflat": (
        Knob(
            "lists", "build", 1, 32768, None,
            "lists; a row in a thousand, the root of the rows beyond a million", "log",
        ),
    ),
    "none": (),
}  # fmt: skip

_OPERATOR_CLASS = re.compile(r"(vector|halfvec|bit)_(ip|cosine|l2|hamming|jaccard)_ops")
_BIT_OPERATORS = {"hamming": "<~>", "jaccard": "<%%>"}
_INTEGERS = {"int2", "int4", "int8"}

_COLUMNS = """
SELECT a.attname, t.typname, a.atttypmod, a.attnum
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT a.attname FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = %s AND i.indisprimary
"""
_INDEXES = """
SELECT c.oid, c.relname, m.amname, o.opcname, pg_get_indexdef(i.indexrelid, 1, false),
       i.indkey[0] = 0, pg_get_expr(i.indpred, i.indrelid), c.reloptions,
       ARRAY(SELECT p.relname FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
JOIN pg_opclass o ON o.oid = i.indclass[0]
WHERE i.indrelid = %s AND i.indisvalid AND m.amname IN ('hnsw', 'ivfflat')
  AND (i.indkey[0] = %s OR EXISTS (
    SELECT FROM pg_depend d WHERE d.objid = i.indexrelid AND d.refobjid = i.indrelid
      AND d.refobjsubid = %s))
ORDER BY c.relname
"""


@dataclass(frozen=True)
class Index:
    """An approximate index over a column of vectors.

    expression: what it is over, as SQL; space: the one it serves, None for bits; holds: what it
    compares: vector, halfvec or bit; computed: whether that is another thing than the column.
    predicate: of a partial index. names: its own, and those of its partitions.
    """

    name: str
    kind: str
    expression: str
    space: Space | None
    holds: str
    distance: str
    computed: bool
    predicate: str | None
    options: Mapping[str, int]
    names: frozenset[str]
    oid: int

    @classmethod
    def of(cls, row: Sequence[Any]) -> Index | None:
        """From a row of the catalogue; None for an operator class without a space of ours."""
        oid, name, kind, operators, expression, computed, predicate, options, parts = row
        known = _OPERATOR_CLASS.fullmatch(operators)
        if known is None:
            return None
        holds, distance = known.groups()
        space = None if holds == "bit" else space_of(distance)
        pairs = dict(pair.split("=", 1) for pair in options or ())
        numbers = {key: int(value) for key, value in pairs.items() if value.isdigit()}
        return cls(name, kind, expression.replace("%", "%%"), space, holds, distance, computed,
                   predicate, numbers, frozenset([name, *parts]), oid)  # fmt: skip

    def order(self, dimension: int) -> str:
        """What a search orders by, so that this index serves it; one placeholder."""
        if self.holds == "bit":
            operator = _BIT_OPERATORS[self.distance]
            return f"{self.expression} {operator} binary_quantize(%s)::bit({dimension})"
        operator = OPERATORS[self.distance]
        return f"{self.expression} {operator} %s::{self.holds}({dimension})"

    def knobs(self, defaults: Mapping[str, str | None]) -> tuple[Knob, ...]:
        """What can be turned with every search; defaults: as the server has them."""

        def known(name: str) -> int | None:
            value = defaults.get(f"{self.kind}.{name}")
            return None if value is None else int(value)

        if self.kind == "hnsw":
            about = "length of the candidate list, and the most results without iterative scans"
            found = [Knob("ef_search", "search", 1, 1000, known("ef_search"), about, "log")]
            more = ("max_scan_tuples", 2**31 - 1, "tuples after which an iterative scan ends")
            modes: tuple[str, ...] = _MODES
        else:
            lists = self.options.get("lists", 100)
            default = min(known("probes") or 1, lists)
            found = [Knob("probes", "search", 1, lists, default, "lists visited", "log")]
            more = ("max_probes", 32768, "lists after which an iterative scan ends")
            modes = _MODES[:2]
        mode = defaults.get(f"{self.kind}.iterative_scan")
        if mode is not None:
            about = "search on until enough results pass the filter"
            name, high, ends = more
            # It trades quality for cost, which a logarithmic scale says, only where it acts.
            scale: Literal["linear", "log"] = "linear" if mode == "off" else "log"
            found += [
                Knob.mode("iterative_scan", "search", modes, mode, about),
                Knob(name, "search", 1, high, known(name), ends, scale),
            ]
        if self.computed:
            about = f"candidates per result, ranked by {self.holds} and scored again in full"
            default = 4 if self.holds == "bit" else 1
            found.append(Knob("k_factor", "search", 1, 100, default, about, "log", whole=False))
        return tuple(found)


@dataclass(frozen=True)
class Relation:
    """A table that holds vectors.

    name: as SQL has it. vector: the type of the column, vector or halfvec.
    """

    name: str
    column: str
    vector: str
    id: str
    integer_ids: bool
    dimension: int
    indexes: tuple[Index, ...]
    other_indexes: tuple[str, ...]

    @classmethod
    def read(
        cls, connection: Any, oid: int, name: str, column: str | None, id_column: str | None
    ) -> Relation:
        """From the catalogue; InputError where it does not fit."""
        columns = connection.execute(_COLUMNS, [oid]).fetchall()
        types = {row[0]: row[1] for row in columns}
        vectors = [n for n, kind in types.items() if kind in ("vector", "halfvec")]
        where = f"the table {name!r}"
        found = only_one(column, vectors, where, "column of type vector or halfvec", "column")
        keys = [row[0] for row in connection.execute(_KEYS, [oid]).fetchall()]
        own = list(types) if id_column else keys if len(keys) == 1 else []
        own = own or [n for n in types if n == "id"]
        key = only_one(id_column, own, where, "column of ids", "id")
        width, number = next((row[2], row[3]) for row in columns if row[0] == found)
        if width < 1:
            # A column without dimensions: the first vector tells.
            first = connection.execute(
                f"SELECT vector_dims({quoted(found)}) FROM {name} "
                f"WHERE {quoted(found)} IS NOT NULL LIMIT 1"
            ).fetchone()
            if first is None:
                raise InputError(f"the table {name} holds no vectors")
            width = first[0]
        rows = connection.execute(_INDEXES, [oid, number, number]).fetchall()
        indexes = [Index.of(row) for row in rows]
        others = [f"{row[1]} ({row[3]})" for row, i in zip(rows, indexes, strict=True) if not i]
        return cls(name, found, types[found], key, types[key] in _INTEGERS, width,
                   tuple(i for i in indexes if i), tuple(others))  # fmt: skip


def chosen_index(
    relation: Relation, kind: str | None, wanted: Space | None
) -> tuple[Index | None, Space | None]:
    """The index that serves, None for none, and the space, None where nothing tells it.

    kind: hnsw, ivfflat or none, where one is asked for. MismatchError where no index serves what
    is asked for.
    """
    listed = ", ".join(
        f"{i.name} ({i.kind}, {i.holds}_{i.distance}_ops)" for i in relation.indexes
    ) or ", ".join(relation.other_indexes)
    usable = [i for i in relation.indexes if kind in (None, i.kind)]
    if kind in BUILD_KNOBS and kind != "none" and not usable:
        raise MismatchError(
            f"the table {relation.name} has no {kind} index on {relation.column!r}",
            hint=f"it has {listed or 'no index at all'}; leave index out, or say index=none",
        )
    spaces = _spaces(relation)
    if wanted is None and len(spaces) != 1:
        return None, None
    space = wanted or space_of(spaces[0])
    fitting = [i for i in usable if i.space in (None, space)]
    if usable and not fitting and kind != "none":
        raise MismatchError(
            f"no index of the table {relation.name} serves {space}: it has {listed}; PostgreSQL "
            "would say nothing and compare every row",
            hint=f"say space={spaces[0]}, or index=none to compare every row",
        )
    fitting.sort(key=lambda i: (i.predicate is not None, i.computed, i.kind != "hnsw"))
    return (fitting[0] if fitting else None), space


def _spaces(relation: Relation) -> list[str]:
    return sorted({i.space.name for i in relation.indexes if i.space})


def spaceless(relation: Relation) -> InputError:
    """What to say where indexes do not tell the space."""
    spaces = _spaces(relation)
    found = f"indexes for {' and '.join(spaces)}" if spaces else "no index that tells its space"
    return InputError(
        f"the table {relation.name} has {found}",
        hint="say which in the spec: " + ", ".join(f"space={s}" for s in spaces or OPERATORS),
    )
