"""Parquet: our own for every noun, exact in every field, and tables of others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Cost, Judgments, Run, Scores, Vectors
from semrecall.data.ids import ids
from semrecall.errors import MismatchError
from semrecall.formats.files import fault, named
from semrecall.formats.options import Options
from semrecall.formats.ranked import VECTOR_NAMES, judgments_of, noun_of_names, run_of, runs_of
from semrecall.formats.records import Records, open_parquet, records_of
from semrecall.space import space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ID_NAMES",
    "IN_MEMORY_BYTES",
    "ParquetBlocks",
    "column_matrix",
    "id_column",
    "noun_in",
    "number_type",
    "read_cost",
    "read_judgments",
    "read_run",
    "read_runs",
    "read_scores",
    "read_vectors",
    "vector_column",
    "vectors_of_files",
    "write_cost",
    "write_judgments",
    "write_run",
    "write_scores",
    "write_vectors",
]

#: Vectors of up to so many bytes are read into memory, larger ones stay a stream of blocks.
IN_MEMORY_BYTES = 1 << 30
#: Names of columns that hold the ids of vectors or texts, most usual first.
ID_NAMES = ("id", "_id", "doc_id", "docid", "docno", "query_id", "qid", "corpus-id", "query-id")
_KEY = b"semrecall"
_VERSION = 1


def noun_in(path: Path) -> str | None:
    """The noun that a parquet file holds; None when its columns do not tell."""
    file = open_parquet(path)
    own = _own(path, file)
    return own["noun"] if own else noun_of_names(file.schema_arrow.names)


# -- vectors --------------------------------------------------------------------------------


def read_vectors(path: Path, options: Options) -> Vectors:
    """Vectors of a parquet file: lists of equal length in a column, ids in another.

    Up to 1 GiB they are read into memory; larger ones are a stream of blocks.
    """
    return vectors_of_files([path], options)


def vectors_of_files(paths: list[Path], options: Options) -> Vectors:
    """Vectors of several parquet files, one after another."""
    files = [open_parquet(path) for path in paths]
    own = _own(paths[0], files[0])
    if own is not None:
        _expect(paths[0], own, "vectors")
    column = options.dataset or vector_column(paths[0], files[0])
    blocks = ParquetBlocks(paths, column)
    given = options.ids
    if given is None:
        given = _row_ids(paths, files)
    rows = sum(file.metadata.num_rows for file in files)
    with named(paths[0]):
        if rows * blocks.row_bytes > IN_MEMORY_BYTES:
            return Vectors.from_blocks(blocks, ids=given, length=rows)
        matrix = np.concatenate([blocks.empty, *blocks])
        return Vectors.of(matrix, ids=given)


def vector_column(path: Path, file: Any) -> str:
    """The name of the column of vectors; FormatError where none has a usual name."""
    names = file.schema_arrow.names
    found = next((n for n in VECTOR_NAMES if n in names), None)
    if found is None:
        raise fault(
            path,
            f"found columns {', '.join(names)}; expected vectors in one of "
            f"{', '.join(VECTOR_NAMES)}",
            "name the column: --dataset, or dataset= in Python",
        )
    return found


def id_column(path: Path, file: Any) -> str | None:
    """The name of the column of ids; None where row numbers are the ids."""
    own = _own(path, file)
    if own and not own["ids"]:
        return None
    names = file.schema_arrow.names
    return next((n for n in ID_NAMES if n in names), None)


def _row_ids(paths: list[Path], files: list[Any]) -> Any:
    column = id_column(paths[0], files[0])
    if column is None:
        return None
    import pyarrow as pa

    parts = [file.read(columns=[column]).column(column) for file in files]
    return ids(pa.chunked_array([c for part in parts for c in part.chunks], type=parts[0].type))


class ParquetBlocks:
    """The vectors of parquet files, block by block, read anew in every pass."""

    def __init__(self, paths: list[Path], column: str, rows: int = 8192) -> None:
        self._paths, self._column, self._rows = paths, column, rows
        first = next((block for _, _, block in self._read(1)), None)
        self.empty = _no_rows(paths[0], column) if first is None else first[:0]
        self.row_bytes = self.empty.shape[1] * self.empty.dtype.itemsize

    def __iter__(self) -> Iterator[NDArray[Any]]:
        dimension = self.empty.shape[1]
        for path, start, block in self._read(self._rows):
            if block.shape[1] != dimension:
                found = block.shape[1]
                raise fault(
                    path, f"row {start + 1:,} has {found} values, expected {dimension} values"
                )
            yield block

    def _read(self, rows: int) -> Iterator[tuple[Path, int, NDArray[Any]]]:
        for path in self._paths:
            start = 0
            file = open_parquet(path)
            names = file.schema_arrow.names
            if self._column not in names:
                raise fault(
                    path, f"has no column {self._column!r}; found columns {', '.join(names)}"
                )
            for batch in file.iter_batches(batch_size=rows, columns=[self._column]):
                yield path, start, column_matrix(path, batch.column(0), self._column, start)
                start += len(batch)


def _no_rows(path: Path, column: str) -> NDArray[Any]:
    import pyarrow as pa

    kind = open_parquet(path).schema_arrow.field(column).type
    if not pa.types.is_fixed_size_list(kind):
        raise fault(path, "holds no vectors")
    return np.empty((0, kind.list_size), number_type(kind.value_type))


def number_type(kind: Any) -> np.dtype[Any]:
    """The numpy type of an arrow one; its own answer to this needs pandas."""
    import pyarrow as pa

    found: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return found


def column_matrix(path: Path, column: Any, name: str, start: int) -> NDArray[Any]:
    """A column of lists as a matrix; FormatError for gaps and rows of another length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (lists or pa.types.is_fixed_size_list(kind)):
        raise fault(path, f"the column {name} is of type {kind}; expected lists of numbers")
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    wanted = int(lengths[0]) if len(lengths) else 0
    wrong = np.flatnonzero((lengths != wanted) | (lengths < 1))
    if len(wrong):
        at = int(wrong[0])
        found = "no vector" if lengths[at] < 0 else f"{lengths[at]} values"
        raise fault(path, f"row {start + at + 1:,} has {found}, expected {max(wanted, 1)} values")
    flat = column.flatten()
    if flat.null_count:
        at = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False)))
        raise fault(path, f"row {start + at // wanted + 1:,} has a null among its values")
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    return values.reshape(len(lengths), wanted)


def write_vectors(vectors: Vectors, path: Path) -> None:
    """Write vectors as parquet, block by block: columns id and vector."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.list_(pa.from_numpy_dtype(vectors.dtype), vectors.dimension)
    own = None if vectors.given_ids is None else vectors.given_ids.to_arrow()
    schema = pa.schema(
        {"id": pa.int64() if own is None else own.type, "vector": kind},
        metadata=_metadata("vectors", ids=own is not None),
    )
    rows = max(1, (16 << 20) // (vectors.dimension * vectors.dtype.itemsize))
    with pq.ParquetWriter(path, schema, use_dictionary=False, compression="none") as writer:
        for start, block in vectors.blocks(rows):
            flat = pa.array(np.ascontiguousarray(block).reshape(-1))
            numbers = range(start, start + len(block))
            names = pa.array(numbers, pa.int64()) if own is None else own.slice(start, len(block))
            matrix = pa.FixedSizeListArray.from_arrays(flat, vectors.dimension)
            writer.write_table(pa.table([names, matrix], schema=schema))
            vectors.release()


# -- runs -----------------------------------------------------------------------------------


def read_run(path: Path, options: Options) -> Run:
    """A run: our own parquet, or a table with query_id, doc_id and score or rank."""
    file = open_parquet(path)
    own = _own(path, file)
    if own is None:
        return run_of(_records(path, file), options)
    _expect(path, own, "run")
    table = file.read()
    recorded = None if own["space"] is None else space(own["space"])
    if options.space is not None and recorded not in (None, options.space):
        raise MismatchError(
            f"{path}: the run was recorded in space {recorded}; {options.space} was asked for",
            hint="leave the space out: the file knows it",
        )
    rows = _one(table.column("ids"))
    offsets = rows.offsets.to_numpy() if len(rows) else np.zeros(1, np.int64)
    with named(path):
        return Run(
            queries=ids(table.column("query_id"), what="query ids"),
            documents=ids(rows.flatten(), what="document ids"),
            offsets=offsets - offsets[0],
            flat_scores=_one(table.column("scores")).flatten().to_numpy()
            if own["scores"]
            else None,
            space=options.space or recorded,
            k=own["k"],
            name=own["name"] if options.name is None else options.name,
            scores_by=own["scores_by"],
            reasons=tuple(table.column("reason").to_pylist()) if own["reasons"] else (),
            identity=own["identity"],
        )


def read_runs(path: Path, options: Options) -> dict[str, Run]:
    """The run of our own parquet; all runs of a table with a further column run, tag or system."""
    file = open_parquet(path)
    if _own(path, file) is not None:
        run = read_run(path, options)
        return {run.name or path.name.split(".")[0]: run}
    return runs_of(_records(path, file), options)


def write_run(run: Run, path: Path) -> None:
    """Write a run as parquet, one row per query: query_id, ids, scores, reason."""
    import pyarrow as pa

    offsets = pa.array(run.offsets)
    columns = {
        "query_id": run.queries.to_arrow(),
        "ids": pa.LargeListArray.from_arrays(offsets, run.documents.to_arrow()),
    }
    if run.flat_scores is not None:
        columns["scores"] = pa.LargeListArray.from_arrays(offsets, pa.array(run.flat_scores))
    if run.reasons:
        columns["reason"] = pa.array(run.reasons, pa.large_string())
    described = _metadata(
        "run",
        space=None if run.space is None else run.space.name,
        k=run.k,
        name=run.name,
        scores_by=run.scores_by,
        scores=run.flat_scores is not None,
        reasons=bool(run.reasons),
        identity=dict(run.identity),
    )
    _write_table(pa.table(columns), described, path)


# -- judgments, scores, cost ----------------------------------------------------------------


def read_judgments(path: Path, options: Options) -> Judgments:
    """Judgments: our own parquet, or a table with query_id, doc_id and grade."""
    file = open_parquet(path)
    own = _own(path, file)
    if own is None:
        return judgments_of(_records(path, file), options)
    _expect(path, own, "judgments")
    table = file.read()
    with named(path):
        return Judgments(
            ids(table.column("query_id"), what="query ids"),
            ids(table.column("doc_id"), what="document ids"),
            table.column("grade").to_numpy(),
            {name: _values(table.column(name)) for name in own["details"]},
            own["name"] if options.name is None else options.name,
        )


def write_judgments(judgments: Judgments, path: Path) -> None:
    """Write judgments as parquet: query_id, doc_id, grade and the details."""
    import pyarrow as pa

    columns = {
        "query_id": judgments.queries.to_arrow(),
        "doc_id": judgments.documents.to_arrow(),
        "grade": pa.array(judgments.grades, mask=np.isnan(judgments.grades)),
    }
    for name, column in judgments.details.items():
        columns[name] = pa.array(column if column.dtype.kind in "biufM" else column.tolist())
    described = _metadata("judgments", name=judgments.name, details=list(judgments.details))
    _write_table(pa.table(columns), described, path)


def read_scores(path: Path, options: Options) -> Scores:
    """Scores of one measure, written by `write_scores`."""
    del options
    table, own = _read_own(path, "scores")
    return Scores(
        own["measure"],
        ids(table.column("query_id"), what="query ids"),
        table.column("value").to_numpy(),
        tuple(table.column("reason").to_pylist()),
        tuple(own["notes"]),
    )


def write_scores(scores: Scores, path: Path) -> None:
    """Write scores as parquet: query_id, value, reason."""
    import pyarrow as pa

    columns = {
        "query_id": scores.queries.to_arrow(),
        "value": pa.array(scores.values),
        "reason": pa.array(scores.reasons, pa.large_string()),
    }
    described = _metadata("scores", measure=scores.measure, notes=list(scores.notes))
    _write_table(pa.table(columns), described, path)


def read_cost(path: Path, options: Options) -> Cost:
    """Cost per query, written by `write_cost`."""
    del options
    table, own = _read_own(path, "cost")
    figures = {n: table.column(n).to_numpy() for n in table.column_names if n != "query_id"}
    return Cost(
        ids(table.column("query_id"), what="query ids"),
        **figures,
        settings=own["settings"],
        details=own["details"],
    )


def write_cost(cost: Cost, path: Path) -> None:
    """Write cost as parquet: query_id and the known figures."""
    described = _metadata("cost", settings=dict(cost.settings), details=dict(cost.details))
    _write_table(cost.to_arrow(), described, path)


# -- shared ---------------------------------------------------------------------------------


def _own(path: Path, file: Any) -> dict[str, Any] | None:
    """What our own parquet says of itself; None for other files."""
    kept = (file.schema_arrow.metadata or {}).get(_KEY)
    if kept is None:
        return None
    found: dict[str, Any] = json.loads(kept)
    if found["version"] > _VERSION:
        raise fault(
            path,
            f"was written by a newer semrecall (layout {found['version']}, known: {_VERSION})",
            "update semrecall",
        )
    return found


def _read_own(path: Path, noun: str) -> tuple[Any, dict[str, Any]]:
    file = open_parquet(path)
    own = _own(path, file)
    if own is None:
        found = ", ".join(file.schema_arrow.names)
        raise fault(path, f"is no file of semrecall that holds {noun}; found columns {found}")
    _expect(path, own, noun)
    return file.read(), own


def _expect(path: Path, own: Mapping[str, Any], noun: str) -> None:
    if own["noun"] != noun:
        raise fault(path, f"holds {own['noun']}, expected {noun}")


def _records(path: Path, file: Any) -> Records:
    return records_of(path, file.read())


def _metadata(noun: str, **fields: Any) -> dict[bytes, bytes]:
    described = {"noun": noun, "version": _VERSION, **fields}
    return {_KEY: json.dumps(described, default=_plain, ensure_ascii=False).encode()}


def _plain(value: Any) -> Any:
    """Numpy values, tuples and mappings as JSON knows them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)


def _write_table(table: Any, described: dict[bytes, bytes], path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table.replace_schema_metadata(described), path, compression="zstd")


def _one(column: Any) -> Any:
    """A chunked column as one array that starts at offset 0."""
    import pyarrow as pa

    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _values(column: Any) -> NDArray[Any]:
    if column.null_count:
        return np.array([*column.to_pylist(), None], dtype=object)[:-1]
    return np.asarray(column)
