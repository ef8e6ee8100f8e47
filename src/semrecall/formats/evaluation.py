"""Evaluation sets: JSON lines of queries, each with its text, filter, grades and perhaps vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Judgments, Vectors
from semrecall.data.ids import Ids, ids
from semrecall.formats.files import Faults, fault, first_line, named
from semrecall.formats.ranked import VECTOR_NAMES
from semrecall.formats.records import Records, read_json_lines
from semrecall.text import json_read

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GRADES", "EvaluationSet", "holds_grades", "line_ids", "read_evaluation_set"]

#: The field that makes JSON lines an evaluation set: {document id: grade}.
GRADES = "grades"
_ID_NAMES = ("id", "query_id", "_id", "qid", "query-id")
_TEXT_NAMES = ("text", "query", "question")


@dataclass(frozen=True)
class EvaluationSet:
    """Queries and what is known of them, n in all.

    ids: (n,), the line numbers from 1 where the file names none. texts, filters: (n,), None where
    the file has none; a filter is in the language of the system that is asked, or None.
    vectors: (n, d), float32. judgments: the grades, of all queries together.
    """

    ids: Ids
    texts: tuple[str, ...] | None = None
    filters: tuple[Any, ...] | None = None
    vectors: Vectors | None = None
    judgments: Judgments | None = None


def read_evaluation_set(path: Path | str) -> EvaluationSet:
    """An evaluation set from JSON lines of `text`, `filter`, `grades`, `vector` and `id`.

    Every field may be lacking in the whole file: then the set has none of it. `grades` is
    {document id: grade}; null is no grade.

    Raises FormatError, naming the lines, for a query with neither text nor vector, for vectors of
    different lengths, grades that are no numbers, and repeated ids.
    """
    path = Path(path)
    records = read_json_lines(path, numbers=None)
    columns = records.columns
    if not columns:
        raise fault(path, "is empty; expected a query on each line")
    names = line_ids(records)
    text_name = next((n for n in _TEXT_NAMES if n in columns), None)
    vectors = vectors_in(records, names)
    if text_name is None and vectors is None:
        raise fault(
            path,
            f"no column for texts or vectors: found {', '.join(columns)}; expected 'text'",
        )
    return EvaluationSet(
        names,
        None if text_name is None else _texts(records, text_name),
        tuple(columns["filter"]) if any(f is not None for f in columns.get("filter", ())) else None,
        vectors,
        judgments_in(records, names) if GRADES in columns else None,
    )


def holds_grades(path: Path) -> bool:
    """Whether the first line of JSON lines has grades by document, as an evaluation set has."""
    try:
        record = json_read(first_line(path))
    except ValueError:
        return False
    return (
        isinstance(record, dict)
        and isinstance(record.get(GRADES), dict | None)
        and (GRADES in record)
    )


def line_ids(records: Records) -> Ids:
    """Ids of the queries, distinct; the line numbers where no field names them."""
    id_name = next((n for n in _ID_NAMES if n in records.columns), None)
    if id_name is None:
        return ids(np.array(records.places, dtype=np.int64))
    with named(records.path):
        names = ids(records.columns[id_name], what="query ids")
    faults = Faults(records.path)
    gone = np.flatnonzero(names.missing).tolist()
    faults.add_all(gone, lambda at: f"{records.place(at)}: no {id_name}, which other lines have")
    twice = None if gone else names.first_duplicate()
    if twice is not None:
        faults.add(
            f"the id {names[twice[0]]!r} stands at {records.place(twice[0])} and again at "
            f"{records.place(twice[1])}"
        )
    faults.settle()
    return names


def vectors_in(records: Records, names: Ids, column: str | None = None) -> Vectors | None:
    """The vectors in a field (`vector`, `embedding`, ... when None); None where there is none."""
    chosen = column or next((n for n in VECTOR_NAMES if n in records.columns), None)
    if chosen is None:
        return None
    if chosen not in records.columns:
        known = ", ".join(records.columns)
        raise fault(records.path, f"no column {chosen!r}: found {known}")
    rows = records.columns[chosen]
    lengths = [len(row) if isinstance(row, list) else 0 for row in rows]
    some = [length for length in lengths if length]
    usual = max(set(some), key=some.count) if some else 0
    faults = Faults(records.path)
    faults.add_all(
        [at for at, length in enumerate(lengths) if length != usual or length == 0],
        lambda at: (
            f"{records.place(at)}: {chosen} has {lengths[at]} numbers, expected {usual or 'some'}"
        ),
    )
    faults.settle()
    try:
        matrix: NDArray[np.float32] = np.array(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise fault(records.path, f"{chosen} is no list of numbers: {error}") from error
    with named(records.path):
        return Vectors.of(matrix, ids=names)


def judgments_in(records: Records, names: Ids) -> Judgments:
    """The grades of all queries."""
    queries: list[str | int] = []
    documents: list[str] = []
    values: list[float] = []
    faults = Faults(records.path)
    for at, (query, grades) in enumerate(zip(names, records.columns[GRADES], strict=True)):
        if not isinstance(grades, Mapping | None):
            faults.add(
                f"{records.place(at)}: {GRADES} is a {type(grades).__name__}, expected "
                "{document id: grade}"
            )
            continue
        for document, grade in (grades or {}).items():
            number = isinstance(grade, int | float) and math.isfinite(grade)
            if grade is not None and (not number or isinstance(grade, bool)):
                faults.add(
                    f"{records.place(at)}: the grade of {document!r} is {grade!r}, expected a "
                    "number, or null for none"
                )
                continue
            queries.append(query)
            documents.append(document)
            values.append(math.nan if grade is None else float(grade))
    faults.settle()
    with named(records.path):
        return Judgments.from_arrays(
            np.array(queries) if queries and names.are_integers else queries,
            documents,
            np.array(values, dtype=np.float64),
            name=records.path.name.split(".")[0],
        )


def _texts(records: Records, name: str) -> tuple[str, ...]:
    column = records.columns[name]
    faults = Faults(records.path)
    faults.add_all(
        [at for at, text in enumerate(column) if not isinstance(text, str)],
        lambda at: f"{records.place(at)}: {name} is {column[at]!r}, expected a text",
    )
    faults.settle()
    return tuple(column)
