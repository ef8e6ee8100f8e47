"""Files of labelled spans, of chunks, and of documents that are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from semrecall.data.classes import Classes
from semrecall.data.frames import pick_column
from semrecall.data.run import QUERY_COLUMNS
from semrecall.data.spans import Chunks, Spans
from semrecall.errors import FormatError, InputError
from semrecall.formats.files import Faults, fault, named
from semrecall.formats.records import Records, number
from semrecall.formats.texts import read_records

__all__ = ["read_chunks", "read_classes", "read_spans"]

Noun = TypeVar("Noun", Spans, Chunks)

_START = ("start", "start_index", "begin", "offset")
_END = ("end", "end_index", "stop")
_GRADE = ("grade", "relevance", "rel", "label")
_DOCUMENT = ("document_id", "doc_id", "document", "docid", "docno", "doc", "corpus_id", "source")
_CHUNK = ("chunk_id", "id", "_id")
_MEMBER = ("id", "doc_id", "document_id", "chunk_id", "_id", "docid", "docno")


def read_spans(path: Path | str) -> Spans:
    """Labelled spans from JSON lines, CSV, TSV or parquet.

    A record has query_id, document_id (or doc_id), start, end, and a grade (1 where none is
    given). Without start and end it is on the whole document. Positions count characters from 0,
    the end is exclusive.
    """
    records = read_records(Path(path))
    columns, m = _columns(records), _length(records)
    with named(records.path):
        queries = pick_column(columns, QUERY_COLUMNS, "query ids")
        documents = pick_column(columns, _DOCUMENT, "document ids")
    starts, ends = (_optional(records, columns, names) for names in (_START, _END))
    grades = _optional(records, columns, _GRADE)
    whole = np.full(m, np.nan)
    if grades is not None:
        grades = np.where(np.isnan(grades), 1.0, grades)
    return _placed(
        records,
        "span",
        lambda: Spans.from_arrays(
            queries,
            documents,
            whole if starts is None else starts,
            whole if ends is None else ends,
            grades,
        ),
    )


def read_chunks(path: Path | str) -> Chunks:
    """The chunks of a chunking from JSON lines, CSV, TSV or parquet.

    A record has an id (chunk_id or id), document_id, start and end.
    """
    records = read_records(Path(path))
    columns = _columns(records)
    with named(records.path):
        names = pick_column(columns, _CHUNK, "chunk ids")
        documents = pick_column(columns, _DOCUMENT, "document ids")
    starts, ends = (_optional(records, columns, names) for names in (_START, _END))
    if starts is None or ends is None:
        raise fault(
            records.path,
            f"no column for {'starts' if starts is None else 'ends'}: found columns "
            f"{', '.join(columns)}; expected start and end",
        )
    return _placed(records, "chunk", lambda: Chunks.from_arrays(names, documents, starts, ends))


def read_classes(path: Path | str) -> Classes:
    """Which documents are the same, from JSON lines, CSV, TSV or parquet.

    A record has an id and either `class`, the name of its class, or `same_as`, the id of a
    document that it is the same as.
    """
    records = read_records(Path(path))
    columns = _columns(records)
    with named(records.path):
        names = pick_column(columns, _MEMBER, "document ids")
        if "same_as" in columns:
            return Classes.of_pairs(names, columns["same_as"])
        return Classes.of_labels(names, pick_column(columns, ("class", "cluster"), "classes"))


def _columns(records: Records) -> dict[str, Any]:
    """Columns by name, arrow's and lists alike as lists."""
    return {
        name: column.to_pylist() if hasattr(column, "to_pylist") else list(column)
        for name, column in records.columns.items()
    }


def _length(records: Records) -> int:
    return len(next(iter(records.columns.values()), ()))


def _optional(
    records: Records, columns: dict[str, Any], names: tuple[str, ...]
) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The first of `names` as numbers, NaN where it is empty; None where there is no column."""
    name = next((n for n in names if n in columns), None)
    if name is None:
        return None
    values = np.full(len(columns[name]), np.nan)
    faults = Faults(records.path)
    for at, value in enumerate(columns[name]):
        if value is None or value == "":
            continue
        try:
            values[at] = number(value) if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            faults.add(f"{records.place(at)}: {name} is {value!r}, expected a number")
    faults.settle()
    return values


def _placed(records: Records, what: str, make: Callable[[], Noun]) -> Noun:
    """The noun of `make`; a fault of one of its entries names the line it stands on."""
    try:
        return make()
    except InputError as error:
        message = error.message
        head, _, rest = message.removeprefix(f"{what} ").partition(" ")
        if message.startswith(f"{what} ") and head.isdecimal():
            message = f"{records.place(int(head))}: the {what} {rest}"
        raise FormatError(f"{records.path}: {message}", hint=error.hint) from error
