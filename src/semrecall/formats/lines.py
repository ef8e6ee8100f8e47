"""Runs and judgments as CSV, TSV, BEIR qrels and JSON lines."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from semrecall.data import Judgments, Run, Vectors
from semrecall.data.rows import row_numbers
from semrecall.errors import InputError, SemrecallWarning
from semrecall.formats.evaluation import (
    holds_grades,
    judgments_in,
    line_ids,
    vectors_in,
)
from semrecall.formats.files import fault, write_text
from semrecall.formats.options import Options
from semrecall.formats.ranked import judgments_of, run_of, runs_of
from semrecall.formats.records import NUMBERS, read_delimited, read_json_lines
from semrecall.formats.trec import short

__all__ = [
    "read_delimited_judgments",
    "read_delimited_run",
    "read_delimited_runs",
    "read_json_judgments",
    "read_json_run",
    "read_json_runs",
    "read_json_vectors",
    "read_msmarco_run",
    "write_beir_qrels",
    "write_delimited_judgments",
    "write_delimited_run",
    "write_json_judgments",
    "write_json_run",
    "write_msmarco_run",
]


#: The header of a run that is told where there is none.
_RUN = ("query_id", "doc_id", "score")


def read_delimited_run(path: Path, options: Options) -> Run:
    """A run from CSV or TSV with the columns query_id, doc_id and score or rank."""
    return run_of(read_delimited(path, header=_RUN), options)


def read_delimited_runs(path: Path, options: Options) -> dict[str, Run]:
    """The runs of CSV or TSV with a further column run, tag or system."""
    return runs_of(read_delimited(path, header=_RUN), options)


def read_msmarco_run(path: Path, options: Options) -> Run:
    """A run in the layout of MS MARCO: query, document and rank, with tabs and without a header."""
    return run_of(read_delimited(path, names=("query_id", "doc_id", "rank")), options)


def read_delimited_judgments(path: Path, options: Options) -> Judgments:
    """Judgments from CSV or TSV with the columns query_id, doc_id, grade; BEIR qrels too."""
    header = (*_RUN[:2], options.grade or "grade")
    return judgments_of(read_delimited(path, numbers=_with_grade(options), header=header), options)


def read_json_run(path: Path, options: Options) -> Run:
    """A run from JSON lines: {query_id, doc_id, score} or {query_id, ids, scores} each."""
    return run_of(read_json_lines(path), options)


def read_json_runs(path: Path, options: Options) -> dict[str, Run]:
    """The runs of JSON lines with a further field run, tag or system."""
    return runs_of(read_json_lines(path), options)


def read_json_judgments(path: Path, options: Options) -> Judgments:
    """Judgments from JSON lines: {query_id, doc_id, grade} each, grade null where there is none.

    An evaluation set will do, too: {text, grades: {doc_id: grade}} each, a query a line.
    """
    if holds_grades(path):
        records = read_json_lines(path, numbers=None)
        found = judgments_in(records, line_ids(records))
        return found if not options.name else replace(found, name=options.name)
    return judgments_of(read_json_lines(path, numbers=_with_grade(options)), options)


def read_json_vectors(path: Path, options: Options) -> Vectors:
    """Vectors from JSON lines: a field `vector`, `embedding`, ... or the one named, and the ids."""
    records = read_json_lines(path, numbers=None)
    found = vectors_in(records, line_ids(records), options.dataset)
    if found is None:
        raise fault(
            path,
            f"no column of vectors: found {', '.join(records.columns) or 'nothing'}; expected "
            "'vector'",
            "name the column (--queries-dataset on the command line, dataset= in Python)",
        )
    return found if options.ids is None else Vectors.of(found, ids=options.ids)


def _with_grade(options: Options) -> frozenset[str]:
    return NUMBERS if options.grade is None else NUMBERS | {options.grade}


# -- writing --------------------------------------------------------------------------------


def write_delimited_run(run: Run, path: Path, *, delimiter: str = ",") -> None:
    """Write a run as CSV or TSV: query_id, doc_id, rank and score where there are scores.

    Missing results are left out, and so are queries without any.
    """
    names = ["query_id", "doc_id", "rank"] + ["score"] * (run.flat_scores is not None)
    _note_silent_queries(run)
    write_text(path, _delimited(names, _result_rows(run), delimiter))


def write_msmarco_run(run: Run, path: Path) -> None:
    """Write a run as query, document and rank, with tabs; it keeps no scores."""
    if run.flat_scores is not None:
        warnings.warn("MS MARCO runs keep no scores", SemrecallWarning, stacklevel=2)
    _note_silent_queries(run)
    write_text(path, ("\t".join(map(str, row[:3])) + "\n" for row in _result_rows(run)))


def write_delimited_judgments(judgments: Judgments, path: Path, *, delimiter: str = ",") -> None:
    """Write judgments as CSV or TSV: query_id, doc_id, grade (empty: none) and the details."""
    names = ["query_id", "doc_id", "grade", *judgments.details]
    grades = ("" if g != g else short(g) for g in judgments.grades.tolist())
    details = [column.tolist() for column in judgments.details.values()]
    rows = zip(judgments.queries, judgments.documents, grades, *details, strict=True)
    write_text(path, _delimited(names, rows, delimiter))


def write_beir_qrels(judgments: Judgments, path: Path) -> None:
    """Write judgments as BEIR's qrels: TSV with query-id, corpus-id, score."""
    gaps = int(np.isnan(judgments.grades).sum())
    if gaps:
        raise InputError(
            f"{gaps:,} judgments have no grade, which BEIR's qrels cannot say",
            hint="write parquet, jsonl or csv, or leave them out first",
        )
    grades = (short(g) for g in judgments.grades.tolist())
    rows = zip(judgments.queries, judgments.documents, grades, strict=True)
    write_text(path, _delimited(["query-id", "corpus-id", "score"], rows, "\t"))


def write_json_run(run: Run, path: Path) -> None:
    """Write a run as JSON lines, one query a line: query_id, ids and scores; null is missing."""
    write_text(path, _json_rows(run))


def write_json_judgments(judgments: Judgments, path: Path) -> None:
    """Write judgments as JSON lines: query_id, doc_id, grade (null: none) and the details."""
    names = ["query_id", "doc_id", "grade", *judgments.details]
    grades = (None if g != g else g for g in judgments.grades.tolist())
    details = [column.tolist() for column in judgments.details.values()]
    rows = zip(judgments.queries, judgments.documents, grades, *details, strict=True)
    write_text(
        path,
        (json.dumps(dict(zip(names, r, strict=True)), ensure_ascii=False) + "\n" for r in rows),
    )


def _json_rows(run: Run) -> Iterator[str]:
    scores = None if run.scores is None else run.scores.to_list()
    for row, (query, names) in enumerate(zip(run.queries, run.ids.to_list(), strict=True)):
        record: dict[str, Any] = {
            "query_id": query,
            "ids": [None if name in (-1, "") else name for name in names],
        }
        if scores is not None:
            record["scores"] = [None if s != s else s for s in scores[row]]
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _result_rows(run: Run) -> Iterator[tuple[Any, ...]]:
    rows = row_numbers(run.offsets)
    kept = np.flatnonzero(run.valid)
    ranks = (kept - run.offsets[rows[kept]] + 1).tolist()
    columns: list[Iterable[Any]] = [run.queries[rows[kept]], run.documents[kept], ranks]
    if run.flat_scores is not None:
        columns.append(map(repr, run.flat_scores[kept].tolist()))
    return zip(*columns, strict=True)


def _delimited(names: list[str], rows: Iterable[tuple[Any, ...]], delimiter: str) -> Iterator[str]:
    for row in chain([names], rows):
        yield delimiter.join(_quoted(value, delimiter) for value in row) + "\n"


def _quoted(value: Any, delimiter: str) -> str:
    text = "" if value is None else str(value)
    if any(c in text for c in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


def _note_silent_queries(run: Run) -> None:
    counts = np.bincount(row_numbers(run.offsets)[run.valid], minlength=len(run))
    silent = int((counts == 0).sum())
    if silent:
        warnings.warn(
            f"{silent:,} queries without results are not kept; parquet and jsonl keep them",
            SemrecallWarning,
            stacklevel=3,
        )
