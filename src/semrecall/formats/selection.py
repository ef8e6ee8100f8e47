"""Which rows of a base filters allow, by predicates over its columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.allowed import Allowed, RowSet
from semrecall.data.frames import columns_of
from semrecall.data.ids import Ids, codes_in, concatenate, ids, unify
from semrecall.errors import InputError, MismatchError
from semrecall.formats.files import bare_name
from semrecall.formats.parquet import ID_NAMES, id_column
from semrecall.formats.predicates import (
    And,
    Has,
    In,
    Not,
    Null,
    Or,
    Parameter,
    Predicate,
    Test,
    columns_in,
    filled_in,
    parameters_in,
    parse_predicate,
)
from semrecall.formats.records import open_parquet
from semrecall.formats.texts import QUERY_NAMES, read_records
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["allowed_by", "query_columns"]

#: Rows looked at together; whole bytes of bits.
_ROWS = 1 << 16
_TURNED = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal",
           ">": "greater", ">=": "greater_equal"}  # fmt: skip


def allowed_by(
    predicates: Any,
    columns: Any,
    *,
    query_ids: Any = None,
    query_columns: Mapping[str, Any] | None = None,
) -> Allowed:
    """What predicates allow: one for all queries, or one for each.

    predicates: a text (see `parse_predicate`), the same for all queries; a list of one a query,
        or {query id: predicate}, each a text, a mapping, or None, which allows everything.
    columns: those of the base: the path of a parquet file or a list of these, read in blocks;
        another file of records (.jsonl, .csv, .tsv); a frame, or a mapping. Their rows are those
        of the base in its order, or have the ids of the base in a column id, doc_id, ...
    query_ids, query_columns: of the queries, in their order; what `$name` stands for.

    Each filter is computed once, however many queries have it. Raises InputError for columns that
    there are not, and for values that cannot be compared with what a column holds.
    """
    each, queries, shared = _each(predicates, query_ids, query_columns)
    names = [None if predicate is None else str(predicate) for predicate in each]
    place = {name: at for at, name in enumerate(dict.fromkeys(names))}
    distinct = [each[names.index(name)] for name in place]
    table = _Table.of(columns)
    sets, row_ids = table.chosen(distinct)
    which = None if shared else np.array([place[name] for name in names], dtype=np.int64)
    says = tuple("" if name is None else name for name in place)
    return Allowed(tuple(sets), which, says, row_ids, queries)


def _each(
    predicates: Any, query_ids: Any, query_columns: Mapping[str, Any] | None
) -> tuple[list[Predicate | None], Ids | None, bool]:
    """The predicate of each query, with the query's own values in it; or one, which is for all."""
    queries = None if query_ids is None else ids(query_ids, what="query ids")
    if isinstance(predicates, Mapping):
        queries = ids(list(predicates), what="query ids")
        given = list(predicates.values())
    elif isinstance(predicates, Sequence) and not isinstance(predicates, str):
        given = list(predicates)
    else:
        whole = parse_predicate(predicates)
        names = parameters_in(whole)
        if not names:
            return [whole], None, True
        return [filled_in(whole, v) for v in _values(names, query_columns)], queries, False
    if queries is not None and len(queries) != len(given):
        raise InputError(f"{len(given):,} filters for {len(queries):,} queries")
    parsed: dict[str, Predicate] = {}
    found: list[Predicate | None] = []
    for at, one in enumerate(given):
        if one is None or one == "" or one != one:
            found.append(None)
            continue
        key = one if isinstance(one, str) else repr(one)
        if key not in parsed:
            parsed[key] = parse_predicate(one)
        predicate = parsed[key]
        names = parameters_in(predicate)
        if names:
            predicate = filled_in(predicate, _values(names, query_columns, at)[0])
        found.append(predicate)
    return found, queries, False


def _values(
    names: set[str], columns: Mapping[str, Any] | None, at: int | None = None
) -> list[dict[str, Any]]:
    """The values of the parameters, of one query or of all."""
    known = columns or {}
    for name in sorted(names):
        if name not in known:
            raise InputError(
                f"the filter takes ${name} from the queries, which have no such column",
                hint=did_you_mean(name, known) or "give the columns of the queries",
            )
    rows = range(len(next(iter(known.values())))) if at is None else [at]
    found = []
    for row in rows:
        values = {name: _plain(known[name][row]) for name in names}
        gone = [name for name, value in values.items() if value is None]
        if gone:
            raise InputError(f"query number {row + 1} has no value for ${gone[0]}")
        found.append(values)
    return found


def _plain(value: Any) -> Any:
    """A value of a column as Python has it; None where there is none."""
    value = value.as_py() if hasattr(value, "as_py") else value
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, str | int | float | bool) else str(value)


def query_columns(
    path: Path | str, names: Sequence[str], queries: Ids, *, named: bool
) -> dict[str, list[Any]]:
    """Some columns of a file of queries (.jsonl, .csv, .tsv, .parquet), in the order of `queries`.

    named: whether the queries have ids of their own; the file's column of ids is then followed.
    Without either the rows of the file are the queries in order. Raises InputError for columns and
    MismatchError for queries that the file has not.
    """
    records = read_records(Path(path))
    for name in names:
        if name not in records.columns:
            known = did_you_mean(name, records.columns)
            raise InputError(f"{path}: there is no column {name!r}", hint=known)
    found = {name: records.columns[name] for name in names}
    lists = {n: c.to_pylist() if hasattr(c, "to_pylist") else list(c) for n, c in found.items()}
    id_name = next((name for name in QUERY_NAMES if name in records.columns), None)
    if not named or id_name is None:
        count = len(next(iter(records.columns.values()))) if records.columns else 0
        if count != len(queries):
            raise MismatchError(f"{path} has {count:,} records for {len(queries):,} queries")
        return lists
    at = codes_in(*unify(queries, ids(records.columns[id_name], what="query ids")))
    if bool((at < 0).any()):
        lacking = queries[int(np.argmax(at < 0))]
        raise MismatchError(
            f"{path} lacks {int((at < 0).sum()):,} of {len(queries):,} queries, the first is "
            f"{lacking!r}"
        )
    return {name: [column[row] for row in at.tolist()] for name, column in lists.items()}


# -- the columns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """Columns of a base: their names, how they are read, and the name of the column of ids.

    batches: arrow tables of some columns, one after another, in the order of the rows.
    """

    names: Sequence[str]
    batches: Callable[[list[str]], Iterator[Any]]
    id_name: str | None

    @classmethod
    def of(cls, columns: Any) -> _Table:
        if isinstance(columns, str | Path):
            columns = [columns]
        if isinstance(columns, list | tuple) and all(isinstance(c, str | Path) for c in columns):
            paths = [Path(path) for path in columns]
            if all(bare_name(path).endswith((".parquet", ".pq")) for path in paths):
                return cls._of_parquet(paths)
            if len(paths) > 1:
                raise InputError("columns in several files must be parquet")
            if not paths[0].exists():
                raise FileNotFoundError(2, "no such file", str(paths[0]))
            return cls._of_columns(read_records(paths[0]).columns)
        return cls._of_columns(columns_of(columns))

    @classmethod
    def _of_parquet(cls, paths: list[Path]) -> _Table:
        files = [open_parquet(path) for path in paths]

        def batches(names: list[str]) -> Iterator[Any]:
            import pyarrow as pa

            for file in files:
                for batch in file.iter_batches(batch_size=_ROWS, columns=names):
                    yield pa.Table.from_batches([batch])

        return cls(files[0].schema_arrow.names, batches, id_column(paths[0], files[0]))

    @classmethod
    def _of_columns(cls, columns: Mapping[str, Any]) -> _Table:
        import pyarrow as pa

        def batches(names: list[str]) -> Iterator[Any]:
            arrays = {}
            for name in names:
                try:
                    arrays[name] = _arrow(columns[name])
                except pa.ArrowException as error:
                    raise InputError(f"the column {name!r} holds mixed values: {error}") from error
            yield pa.table(arrays)

        known = next((name for name in ID_NAMES if name in columns), None)
        return cls(list(columns), batches, known)

    def chosen(self, predicates: list[Predicate | None]) -> tuple[list[RowSet], Ids | None]:
        """The rows that each predicate allows, all for None; and the ids of the rows."""
        wanted = set().union(*(columns_in(p) for p in predicates if p is not None))
        for name in sorted(wanted - set(self.names)):
            raise InputError(
                f"the filter looks at the column {name!r}, which there is not",
                hint=did_you_mean(name, self.names),
            )
        names = sorted(wanted | ({self.id_name} if self.id_name else set())) or self.names[:1]
        parts: list[list[NDArray[np.uint8]]] = [[] for _ in predicates]
        row_ids: list[Ids] = []
        rows = 0
        for table in _whole_bytes(self.batches(list(names))):
            batch = _Batch(table)
            for part, predicate in zip(parts, predicates, strict=True):
                part.append(batch.bits(predicate))
            if self.id_name is not None:
                row_ids.append(ids(table.column(self.id_name)))
            rows += len(table)
        nothing = np.empty(0, dtype=np.uint8)
        sets = [RowSet.of_bits(rows, np.concatenate([nothing, *part])) for part in parts]
        return sets, concatenate(row_ids) if row_ids else None


def _arrow(column: Any) -> Any:
    import pyarrow as pa

    if hasattr(column, "null_count") and hasattr(column, "type"):
        return column
    if hasattr(column, "to_arrow"):
        return column.to_arrow()
    if isinstance(column, np.ndarray) and column.dtype.kind not in "OUT":
        return pa.array(column)
    return pa.array(column.tolist() if hasattr(column, "tolist") else list(column))


def _whole_bytes(tables: Iterator[Any]) -> Iterator[Any]:
    """Tables in stretches of whole bytes of bits; only the last may have other lengths."""
    import pyarrow as pa

    rest = None
    for table in tables:
        table = table if rest is None else pa.concat_tables([rest, table])
        whole = len(table) // 8 * 8
        for low in range(0, whole, _ROWS):
            yield table.slice(low, min(_ROWS, whole - low))
        rest = table.slice(whole)
    if rest is not None and len(rest):
        yield rest


# -- one batch of rows ----------------------------------------------------------------------------


@dataclass
class _Batch:
    """Some rows: what predicates say of each; what several have in common is computed once."""

    table: Any
    _known: dict[str, Any] = field(default_factory=dict)

    def bits(self, predicate: Predicate | None) -> NDArray[np.uint8]:
        """A bit for each row that is allowed."""
        import pyarrow.compute as pc

        if predicate is None:
            return np.packbits(np.ones(len(self.table), dtype=bool))
        mask = pc.fill_null(self._mask(predicate), False)
        return np.packbits(mask.to_numpy(zero_copy_only=False))

    def _mask(self, predicate: Predicate) -> Any:
        """An arrow column of booleans, null where it is neither true nor false."""
        import pyarrow.compute as pc

        if isinstance(predicate, And | Or):
            join = pc.and_kleene if isinstance(predicate, And) else pc.or_kleene
            found = self._mask(predicate.parts[0])
            for part in predicate.parts[1:]:
                found = join(found, self._mask(part))
            return found
        if isinstance(predicate, Not):
            return pc.invert(self._mask(predicate.part))
        key = str(predicate)
        if key not in self._known:
            self._known[key] = self._leaf(predicate)
        return self._known[key]

    def _leaf(self, leaf: Test | In | Has | Null) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(leaf.column.name)
        if isinstance(leaf, Null):
            return pc.is_null(column)
        if isinstance(leaf, Has):
            return _has(column, leaf)
        if pa.types.is_dictionary(column.type):
            # Texts that repeat are compared once each.
            return pc.take(_compared(column.dictionary, leaf), column.indices)
        return _compared(column, leaf)

    def _column(self, name: str) -> Any:
        import pyarrow as pa

        key = f"`{name}"  # no predicate reads so
        if key not in self._known:
            column = self.table.column(name).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            kind = column.type
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                column = column.dictionary_encode()
            elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
                column = column.cast(pa.float64())
            self._known[key] = column
        return self._known[key]


def _compared(column: Any, leaf: Test | In) -> Any:
    """What one test says of a column without a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_())
    if isinstance(leaf, In):
        if pa.types.is_integer(column.type) and all(map(_number, leaf.values)):
            whole = [int(v) for v in leaf.values if isinstance(v, int | float) and v % 1 == 0]
            held = [v for v in whole if _fits(v, column.type)]
            found = pc.is_in(column, value_set=pa.array(held, column.type))
            return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), found)
        found = pa.array(np.zeros(len(column), dtype=bool), mask=_nulls(column))
        for value in leaf.values:
            found = pc.or_kleene(found, _compared(column, Test(leaf.column, "==", value)))
        return found
    operator, value = leaf.operator, leaf.value
    assert not isinstance(value, Parameter)
    kind = column.type
    if pa.types.is_boolean(kind) and isinstance(value, bool) and operator in ("==", "!="):
        scalar = pa.scalar(value)
    elif pa.types.is_integer(kind) and _number(value):
        operator, value = _whole(operator, value)
        inside = isinstance(value, int) and _fits(value, kind)
        if not inside:
            # Beyond what the column can hold, all rows are on one side.
            above = value > 0
            sure = {"==": False, "!=": True}.get(operator, (operator in ("<", "<=")) == above)
            return pa.array(np.full(len(column), sure), mask=_nulls(column))
        scalar = pa.scalar(value, kind)
    elif pa.types.is_floating(kind) and _number(value):
        scalar = pa.scalar(float(value), kind)
    elif pa.types.is_temporal(kind) and isinstance(value, str):
        scalar = _moment(value, kind, leaf)
    elif (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and isinstance(value, str):
        scalar = pa.scalar(value, kind)
    else:
        raise InputError(
            f"the filter compares the column {leaf.column.name!r}, which holds {kind}, in {leaf}",
            hint="texts stand in quotes, numbers do not",
        )
    return getattr(pc, _TURNED[operator])(column, scalar)


def _has(column: Any, leaf: Has) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.bool_())
    if not (lists or pa.types.is_fixed_size_list(kind)):
        held = kind.value_type if pa.types.is_dictionary(kind) else kind
        raise InputError(
            f"the filter looks for {leaf.value!r} in the column {leaf.column.name!r}, which holds "
            f"{held}; expected lists"
        )
    parents = pc.list_parent_indices(column).to_numpy()
    equal = pc.fill_null(_compared(column.flatten(), Test(leaf.column, "==", leaf.value)), False)
    found = np.zeros(len(column), dtype=bool)
    found[parents[equal.to_numpy(zero_copy_only=False)]] = True
    return pa.array(found, mask=_nulls(column))


def _nulls(column: Any) -> NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(operator: str, value: Any) -> tuple[str, Any]:
    """A test of whole numbers against a number, as one against a whole number where it can be."""
    if isinstance(value, int) or value == math.floor(value):
        return operator, int(value)
    if operator in ("<", "<="):
        return "<=", math.floor(value)
    if operator in (">", ">="):
        return ">=", math.ceil(value)
    # No whole number is equal to a fraction.
    return operator, math.inf


def _fits(value: int, kind: Any) -> bool:
    limits = np.iinfo(kind.to_pandas_dtype())
    return bool(limits.min <= value <= limits.max)


def _moment(value: str, kind: Any, leaf: Test | In) -> Any:
    import pyarrow as pa

    try:
        return pa.scalar(value).cast(kind)
    except pa.ArrowException as error:
        raise InputError(
            f"the filter compares the column {leaf.column.name!r}, which holds {kind}, with "
            f"{value!r}",
            hint='dates are written "2026-01-31", times "2026-01-31 12:00:00", with a zone as '
            '"2026-01-31 12:00:00Z"',
        ) from error
