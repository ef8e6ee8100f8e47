"""Which rows of a base filters allow, by predicates over its columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.allowed import Allowed, RowSet
from semrecall.data.frames import columns_of
from semrecall.data.ids import Ids, codes_in, concatenate, ids, unify
from semrecall.errors import InputError, MismatchError
from semrecall.formats.comparing import Batch
from semrecall.formats.files import bare_name
from semrecall.formats.parquet import ID_NAMES, id_column
from semrecall.formats.predicates import (
    Predicate,
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
            batch = Batch(table)
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
