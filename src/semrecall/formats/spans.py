"""Files of labelled spans, of chunks, and of documents that are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from semrecall.data.classes import Classes
from semrecall.data.frames import pick_column
from semrecall.data.ids import Ids, ids
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
    starts, ends = (_optional(records, columns, n, whole=True) for n in (_START, _END))
    grades = _optional(records, columns, _GRADE)
    _require_both(records, starts, ends)
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
    starts, ends = (_optional(records, columns, n, whole=True) for n in (_START, _END))
    if starts is None or ends is None:
        raise fault(
            records.path,
            f"no column for {'starts' if starts is None else 'ends'}: found columns "
            f"{', '.join(columns)}; expected start and end",
        )
    faults = Faults(records.path)
    for at in np.flatnonzero(np.isnan(starts) | np.isnan(ends)).tolist():
        lacking = "start" if np.isnan(starts[at]) else "end"
        faults.add(f"{records.place(at)}: the chunk has no {lacking}")
    faults.settle()
    _require_distinct(records, ids(names, what="chunk ids"))
    return _placed(records, "chunk", lambda: Chunks.from_arrays(names, documents, starts, ends))


def read_classes(path: Path | str) -> Classes:
    """Which documents are the same, from JSON lines, CSV, TSV or parquet.

    A record has an id and either `class`, the name of its class, or `same_as`, the id of a
    document that it is the same as. Where that is empty the document is the same as no other.
    """
    records = read_records(Path(path))
    columns = _columns(records)
    with named(records.path):
        names = ids(pick_column(columns, _MEMBER, "document ids"), what="document ids")
        what = "same_as" if "same_as" in columns else "class"
        others = columns["same_as"] if what == "same_as" else None
        if others is None:
            others = pick_column(columns, ("class", "cluster"), "classes")
        told = ids(others, what=what)
        faults = Faults(records.path)
        gone = np.flatnonzero(names.missing).tolist()
        faults.add_all(gone, lambda at: f"{records.place(at)}: no document id")
        faults.settle()
        if what == "class":
            _require_one_class(records, names, told)
            return Classes.of_labels(names, told)
        # Nothing beside an id: it is the same as no other.
        use = np.flatnonzero(~told.missing)
        return Classes.of_pairs(names[use], told[use])


def _columns(records: Records) -> dict[str, Any]:
    """Columns by name, arrow's and lists alike as lists."""
    if not records.columns:
        raise fault(records.path, "the file is empty; expected a record for each line")
    return {
        name: column.to_pylist() if hasattr(column, "to_pylist") else list(column)
        for name, column in records.columns.items()
    }


def _length(records: Records) -> int:
    return len(next(iter(records.columns.values()), ()))


def _optional(
    records: Records, columns: dict[str, Any], names: tuple[str, ...], *, whole: bool = False
) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The first of `names` as numbers, NaN where it is empty; None where there is no column.

    whole: only whole numbers are right.
    """
    name = next((n for n in names if n in columns), None)
    if name is None:
        return None
    values = np.full(len(columns[name]), np.nan)
    faults = Faults(records.path)
    for at, value in enumerate(columns[name]):
        if value is None or value == "":
            continue
        try:
            if isinstance(value, bool):
                raise TypeError
            values[at] = number(value) if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            faults.add(f"{records.place(at)}: {name} is {value!r}, expected a number")
            continue
        if whole and values[at] != np.floor(values[at]):
            faults.add(f"{records.place(at)}: {name} is {value!r}, expected a whole number")
    faults.settle()
    return values


def _require_both(records: Records, starts: Any, ends: Any) -> None:
    """A start without an end says nothing, nor an end without a start."""
    if starts is None and ends is None:
        return
    if starts is None or ends is None:
        one, other = ("end", "start") if starts is None else ("start", "end")
        raise fault(records.path, f"spans have {_a(one)} but no {other}; expected both or none")
    faults = Faults(records.path)
    for at in np.flatnonzero(np.isnan(starts) != np.isnan(ends)).tolist():
        one, other = ("end", "start") if np.isnan(starts[at]) else ("start", "end")
        faults.add(f"{records.place(at)}: the span has {_a(one)} but no {other}")
    faults.settle("give both, or none for a label on the whole document")


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _require_distinct(records: Records, names: Ids) -> None:
    twice = names.first_duplicate()
    if twice is not None and not names.missing.any():
        raise fault(
            records.path,
            f"the chunk {names[twice[0]]!r} stands at {records.place(twice[0])} and again at "
            f"{records.place(twice[1])}",
        )


def _require_one_class(records: Records, names: Ids, labels: Ids) -> None:
    """FormatError naming both lines for a document in two classes."""
    kept = np.flatnonzero(~labels.missing)
    _, first, number = np.unique(names.codes[kept], return_index=True, return_inverse=True)
    first = kept[first[number]]
    faults = Faults(records.path)
    for at in np.flatnonzero(labels.codes[kept] != labels.codes[first]).tolist():
        one, other = int(first[at]), int(kept[at])
        faults.add(
            f"document {names[one]!r} is in class {labels[one]!r} at {records.place(one)} and in "
            f"{labels[other]!r} at {records.place(other)}"
        )
    faults.settle()


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
