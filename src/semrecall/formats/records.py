"""Records in files: JSON lines, CSV, TSV and parquet as columns, with the line of each record."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids
from semrecall.data.judgments import DETAIL_COLUMNS, GRADE_COLUMNS
from semrecall.data.run import DOC_COLUMNS, QUERY_COLUMNS, SCORE_COLUMNS
from semrecall.formats.files import Faults, fault, first_line, looks_like, read_text
from semrecall.text import json_read, json_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "SYSTEM_COLUMNS",
    "Records",
    "Stretches",
    "decode",
    "header_names",
    "is_data",
    "number",
    "open_parquet",
    "read_delimited",
    "read_json_lines",
    "read_parquet_records",
    "records_of",
]

#: Names of columns that say of which run a record is.
SYSTEM_COLUMNS = ("run", "tag", "system", "run_id", "run_name")
#: Columns that hold numbers in runs and judgments; all else in a text file is text.
NUMBERS = frozenset({*SCORE_COLUMNS, *GRADE_COLUMNS, "rank", "cost", "probability", "confidence"})
#: Fields that runs and judgments know; arrow's reader leaves out all others.
_FIELDS = NUMBERS | {*QUERY_COLUMNS, *DOC_COLUMNS, *DETAIL_COLUMNS, *SYSTEM_COLUMNS, "ids"}
_QUERY_FIELDS, _DOC_FIELDS = frozenset(QUERY_COLUMNS), frozenset({*DOC_COLUMNS, "ids"})


@dataclass(frozen=True)
class Stretches:
    """A column of ids in which equal ones stand together: each once, and how often it stands."""

    heads: Ids
    lengths: NDArray[np.int64]

    def column(self) -> Ids:
        """The column itself."""
        return Ids(np.repeat(self.heads.codes, self.lengths), self.heads.names)


@dataclass(frozen=True)
class Records:
    """Columns of equal length by name, and where each record stands in the file.

    columns: arrow columns, numpy arrays, lists, Ids or Stretches.
    find_places: gives the line (or row) of every record, when an error needs it.
    unit: what the places count: "line" or "row".
    """

    path: Path
    columns: dict[str, Any]
    find_places: Callable[[], Sequence[int]]
    unit: str = "line"

    @cached_property
    def places(self) -> Sequence[int]:
        """The line or row of every record."""
        return self.find_places()

    def place(self, entry: int) -> str:
        """Where the record `entry` stands: "line 7"."""
        return f"{self.unit} {self.places[entry]:,}"


# -- CSV and TSV ----------------------------------------------------------------------------


def read_delimited(
    path: Path,
    *,
    numbers: frozenset[str] = NUMBERS,
    names: Sequence[str] | None = None,
    header: Sequence[str] = (),
) -> Records:
    """The records of a CSV or TSV file; comma, tab or semicolon.

    names: of the columns of a file without a header, whose delimiter is the tab.
    header: the names that a first line of data is told to be without.
    """
    data = read_text(path)
    head = data[: 1 << 16].decode("utf-8", "replace").lstrip("\r\n").splitlines()
    if not head:
        if names is not None:
            return Records(path, {}, list)
        raise fault(path, "the file is empty; expected a header with the names of the columns")
    if names is not None:
        table = _Table(list(names), "\t", frozenset(names) & numbers, header=False)
    else:
        delimiter = _delimiter(path, head[0])
        found = [name.strip() for name in next(csv.reader([head[0]], delimiter=delimiter))]
        if header and is_data(found, header):
            shown = delimiter.join(header).replace("\t", "<TAB>")
            raise fault(
                path,
                f"line 1 is data: {', '.join(found)}; expected a header with the names of the "
                "columns",
                f"put {shown} on line 1",
            )
        if len(set(found)) != len(found):
            raise fault(path, f"the header names a column twice: {', '.join(found)}")
        table = _Table(found, delimiter, frozenset(found) & numbers, header=True)
    columns = _fast_delimited(data, table)
    if columns is None:
        columns, lines = _slow_delimited(path, data, table)
        return Records(path, columns, lambda: lines)
    return Records(path, columns, lambda: _slow_delimited(path, data, table)[1])


def is_data(cells: Collection[str], header: Collection[str]) -> bool:
    """Whether a first line has no name that is known, and a number, which is no name."""
    return not (_FIELDS | set(header)) & set(cells) and any(map(_is_number, cells))


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


@dataclass(frozen=True)
class _Table:
    """How the columns of a CSV or TSV file are named, parted, and which hold numbers."""

    names: list[str]
    delimiter: str
    numeric: frozenset[str]
    header: bool


def header_names(path: Path) -> list[str]:
    """The names in the first line of a CSV or TSV file."""
    line = first_line(path)
    return [n.strip() for n in next(csv.reader([line], delimiter=_delimiter(path, line)), [])]


def _delimiter(path: Path, header: str) -> str:
    preferred = "\t" if ".tsv" in path.name.lower() else ","
    if preferred in header:
        return preferred
    return max("\t,;", key=header.count) if any(c in header for c in "\t,;") else preferred


def _fast_delimited(data: bytes, expected: _Table) -> dict[str, Any] | None:
    """Columns by arrow's reader; None where it finds a fault, which the slow reader then names."""
    import pyarrow as pa
    import pyarrow.csv as pc

    names = expected.names
    kinds = {n: pa.float64() if n in expected.numeric else pa.large_string() for n in names}
    try:
        table = pc.read_csv(
            pa.BufferReader(data.lstrip(b"\r\n")),
            read_options=pc.ReadOptions(column_names=names, skip_rows=int(expected.header)),
            parse_options=pc.ParseOptions(
                delimiter=expected.delimiter, newlines_in_values=b'"' in data
            ),
            convert_options=pc.ConvertOptions(
                column_types=kinds, null_values=[""], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    return {name: table.column(name) for name in names}


def _slow_delimited(path: Path, data: bytes, expected: _Table) -> tuple[dict[str, Any], list[int]]:
    """Columns line by line; raises one error for all faults."""
    text = io.StringIO(decode(path, data), newline="")
    reader = csv.reader(text, delimiter=expected.delimiter)
    rows: list[list[str]] = []
    lines: list[int] = []
    faults = Faults(path)
    for row in reader:
        if not row:
            continue
        if len(row) != len(expected.names):
            faults.add(
                f"line {reader.line_num:,}: {len(row)} fields, expected {len(expected.names)}"
            )
            continue
        rows.append(row)
        lines.append(reader.line_num)
    if expected.header:
        rows, lines = rows[1:], lines[1:]
    columns: dict[str, Any] = {}
    for position, name in enumerate(expected.names):
        texts = [row[position] for row in rows]
        columns[name] = texts
        if name in expected.numeric:
            columns[name] = _floats(texts, lines, name, faults)
    faults.settle()
    return columns, lines


def _floats(texts: list[str], lines: list[int], name: str, faults: Faults) -> NDArray[np.float64]:
    values = np.full(len(texts), np.nan)
    for position, text in enumerate(texts):
        if not text:
            continue
        try:
            values[position] = number(text)
        except ValueError:
            faults.add(f"line {lines[position]:,}: {name} is {text!r}, expected a number")
    return values


def number(text: str) -> float:
    """A number as files write it; ValueError for others (Python's "1_000" is none there)."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def decode(path: Path, data: bytes) -> str:
    """Bytes as UTF-8 text; FormatError naming the line where they are not."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise fault(
            path,
            f"line {line:,} is not UTF-8 (byte 0x{data[error.start]:02x})",
            "save the file as UTF-8",
        ) from error


# -- JSON lines -----------------------------------------------------------------------------


def read_json_lines(path: Path, *, numbers: frozenset[str] | None = NUMBERS) -> Records:
    """The records of a JSON lines file: one object a line, absent fields are None.

    numbers: fields that hold numbers, in a run or in judgments, whose fields alone are read then;
    None reads every field. An empty file has no columns. A run or judgments may be one object
    {query: {document: number}}, too.
    """
    data = read_text(path)
    if not data.strip():
        return Records(path, {}, list)
    nested = None if numbers is None else _nested_json(path, data)
    if nested is not None:
        return nested
    columns = None if numbers is None else _fast_json(data, numbers)
    # Where a field is lacking, the error names all there are.
    if columns and _QUERY_FIELDS & set(columns) and _DOC_FIELDS & set(columns):
        return Records(path, columns, lambda: _slow_json(path, data)[1])
    columns, lines = _slow_json(path, data)
    return Records(path, columns, lambda: lines)


class _Object(list[tuple[str, Any]]):
    """A JSON object as pairs, so that a key that stands twice is seen."""


def _nested_json(path: Path, data: bytes) -> Records | None:
    """The records of {query: {document: number}}, as other tools write it; None for another."""
    line = data.lstrip().split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return None
    try:
        first = json_read(line)
        if not first or not all(isinstance(value, dict) for value in first.values()):
            return None
    except ValueError:
        pass  # an object over several lines, or a fault that others explain
    try:
        whole = json_read(data, object_pairs_hook=_Object)
    except ValueError:
        return None
    if not whole or not all(isinstance(rows, _Object) for _, rows in whole):
        return None
    triples = [(query, document, value) for query, rows in whole for document, value in rows]
    if not triples or any(isinstance(value, list | bool) for _, _, value in triples):
        return None
    queries, documents, values = (list(column) for column in zip(*triples, strict=True))
    columns = {"query_id": queries, "doc_id": documents, "score": values}
    return Records(path, columns, lambda: range(1, len(queries) + 1), "entry")


def _fast_json(data: bytes, numbers: frozenset[str]) -> dict[str, Any] | None:
    """Columns by arrow's reader, with the types of the first line; None where it cannot."""
    import pyarrow as pa
    import pyarrow.json as pj

    try:
        first = json_read(io.BytesIO(data).readline())
        known = {**dict.fromkeys(DETAIL_COLUMNS), **first}
        fields = _FIELDS | numbers
        kinds = {n: _json_type(v, n in numbers) for n, v in known.items() if n in fields}
        if None in kinds.values():
            return None
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(block_size=max(1 << 20, min(len(data), 1 << 24))),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(kinds), unexpected_field_behavior="ignore"
            ),
        )
    except (ValueError, AttributeError):
        # Arrow's errors are ValueErrors too; the slow reader says what is wrong, and where.
        return None
    return {
        n: table.column(n)
        for n in table.column_names
        if n not in DETAIL_COLUMNS or table.column(n).null_count < len(table)
    }


def _json_type(value: Any, is_number: bool) -> Any:
    """The arrow type of a field by its first value; None where that does not tell."""
    import pyarrow as pa

    if isinstance(value, list):
        inner = _json_type(value[0] if value else None, is_number)
        return pa.list_(inner) if value or is_number else None
    if is_number:
        return pa.float64()
    kinds = {str: pa.large_string(), int: pa.int64(), type(None): pa.large_string()}
    return kinds.get(type(value))


def _slow_json(path: Path, data: bytes) -> tuple[dict[str, Any], list[int]]:
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    faults = Faults(path)
    for line_number, line in enumerate(decode(path, data).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json_value(line)
        except ValueError as error:
            faults.add(f"line {line_number:,}: is no JSON ({error})")
            continue
        if not isinstance(record, dict):
            kind = type(record).__name__
            faults.add(f"line {line_number:,}: is a JSON {kind}, expected an object {{...}}")
            continue
        records.append(record)
        lines.append(line_number)
    faults.settle("JSON lines hold one object on every line")
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}, lines


# -- parquet --------------------------------------------------------------------------------


def read_parquet_records(path: Path, columns: Sequence[str] | None = None) -> Records:
    """The rows of a parquet file."""
    table = open_parquet(path).read(columns=None if columns is None else list(columns))
    return records_of(path, table)


def records_of(path: Path, table: Any) -> Records:
    """The rows of an arrow table; FormatError for text that is not Unicode."""
    import pyarrow as pa

    found = {name: table.column(name) for name in table.column_names}
    for name, column in found.items():
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                reason = str(error).splitlines()[0]
                raise fault(
                    path, f"column {name} holds text that is not UTF-8 ({reason})"
                ) from error
    return Records(path, found, lambda: range(1, len(table) + 1), "row")


def open_parquet(path: Path) -> Any:
    """A parquet file, opened; FormatError when it is something else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    what = looks_like(path)
    if what != "a parquet file":
        raise fault(path, f"is {what or 'no parquet file'}; expected a parquet file")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise fault(path, f"the parquet file is damaged or cut off ({reason})") from error
