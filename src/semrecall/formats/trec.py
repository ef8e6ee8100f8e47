"""TREC runs (query Q0 document rank score tag) and qrels (query 0 document grade)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Judgments, Run
from semrecall.data.ids import ids
from semrecall.data.run import group_rows
from semrecall.errors import InputError, SemrecallWarning
from semrecall.formats.files import Faults, fault, read_text, write_text
from semrecall.formats.options import Options
from semrecall.formats.ranked import judgments_of, no_rows, run_of
from semrecall.formats.records import Records, decode, number
from semrecall.space import L2

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["looks_like_trec", "read_qrels", "read_run", "write_qrels", "write_run"]

_RUN = ("query_id", "iteration", "doc_id", "rank", "score", "tag")
_QRELS = ("query_id", "iteration", "doc_id", "grade")


def read_run(path: Path, options: Options) -> Run:
    """A TREC run. Order: score, best first, then document id, descending, as trec_eval does.

    The tag may be absent or hold spaces, and becomes the run's name. Ranks that disagree with
    the scores give a warning. With space l2, scores that are all 0 or less are distances
    negated, so that the higher is the better; else they are distances.
    """
    data = read_text(path)
    if not data.strip():
        return no_rows(path, options)
    records = _records(path, data, _RUN)
    records.columns["query_id"] = ids(records.columns["query_id"], what="query ids")
    if options.space is L2:
        records.columns["score"] = _distances(path, records.columns["score"])
    run = run_of(records, options, order="score")
    _compare_ranks(path, records, options)
    if options.name is None and "tag" in records.columns:
        return run.replace(name=_only_tag(records.columns["tag"]) or "")
    return run


def read_qrels(path: Path, options: Options) -> Judgments:
    """TREC judgments; fractional and negative grades stay what they are."""
    data = read_text(path)
    if not data.strip():
        raise fault(
            path, "the file is empty; expected judgments, one a line: query 0 document grade"
        )
    return judgments_of(_records(path, data, _QRELS), options)


def looks_like_trec(line: str) -> str | None:
    """The noun that a line of TREC text belongs to; None when it is no such line."""
    fields = line.split()
    try:
        if len(fields) == 4:
            number(fields[3])
            return "judgments"
        if len(fields) >= 5:
            number(fields[4])
            return "run"
    except ValueError:
        return None
    return None


# -- reading --------------------------------------------------------------------------------


def _records(path: Path, data: bytes, names: tuple[str, ...]) -> Records:
    commented = data.startswith(b"#") or b"\n#" in data
    columns = None if commented else _fast(data, names)
    if columns is None:
        columns, lines = _slow(path, data, names)
        return Records(path, columns, lambda: lines)
    return Records(path, columns, lambda: _slow(path, data, names)[1])


def _fast(data: bytes, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Columns by arrow's reader; None where a line needs a closer look."""
    import pyarrow as pa
    import pyarrow.csv as pc

    numeric = names[-2] if names is _RUN else names[-1]
    kinds = dict.fromkeys(names, pa.large_string()) | {numeric: pa.float64()}
    try:
        table = pc.read_csv(
            pa.BufferReader(_single_spaces(data)),
            read_options=pc.ReadOptions(column_names=names),
            parse_options=pc.ParseOptions(
                delimiter=" ", quote_char=False, double_quote=False, escape_char=False
            ),
            convert_options=pc.ConvertOptions(
                column_types=kinds, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    return {name: table.column(name) for name in names}


def _single_spaces(data: bytes) -> bytes:
    """Every run of blanks as one space, none at either end of a line."""
    for other in (b"\t", b"\r", b"\v", b"\f"):
        if other in data:
            data = data.replace(other, b" ")
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")


def _slow(path: Path, data: bytes, names: tuple[str, ...]) -> tuple[dict[str, Any], list[int]]:
    """Columns line by line; raises one error for all faults.

    A line that starts with "#" is a comment, unless it looks like a result of a query "#1": no
    blank after the "#", the right number of fields, and a number where one belongs.
    """
    run = names is _RUN
    at = 4 if run else 3
    rows: list[list[str]] = []
    numbers: list[float] = []
    lines: list[int] = []
    faults = Faults(path)
    decode(path, data)
    for line_number, line in enumerate(data.split(b"\n"), 1):
        # Bytes split at ASCII blanks only: a no-break space is part of an id.
        fields = [f.decode() for f in (line.split(None, 5) if run else line.split())]
        fits = (len(fields) in (5, 6) if run else len(fields) == 4) and fields[0] != "#"
        try:
            value = number(fields[at]) if fits else 0.0
        except ValueError:
            fits = False
            if not fields[0].startswith("#"):
                faults.add(
                    f"line {line_number:,}: {names[at]} is {fields[at]!r}, expected a number"
                )
                continue
        if not fits:
            if fields and not fields[0].startswith("#"):
                faults.add(_wrong_fields(line_number, len(line.split()), run))
            continue
        rows.append(fields)
        numbers.append(value)
        lines.append(line_number)
    faults.settle(_other_kind(faults, run))
    columns: dict[str, Any] = {n: [r[i] for r in rows] for i, n in enumerate(names[:at])}
    if run and all(len(row) == 6 for row in rows):
        columns["tag"] = [row[5].strip() for row in rows]
    columns[names[at]] = np.array(numbers)
    return columns, lines


def _wrong_fields(line_number: int, found: int, run: bool) -> str:
    expected = "6 (query Q0 document rank score tag)" if run else "4 (query 0 document grade)"
    return f"line {line_number:,}: {found} field{'s' * (found != 1)}, expected {expected}"


def _other_kind(faults: Faults, run: bool) -> str | None:
    first = faults.shown[0] if faults.shown else ""
    if run and ": 4 fields" in first:
        return "four fields a line are judgments: read_judgments reads them"
    if not run and (": 6 fields" in first or ": 5 fields" in first):
        return "six fields a line are a run: read_run reads them"
    return None


def _distances(path: Path, scores: Any) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    if not bool((values < 0).any()):
        return values
    if bool((values > 0).any()):
        raise fault(path, "has scores on both sides of 0, which are no Euclidean distances")
    return 0.0 - values


def _compare_ranks(path: Path, records: Records, options: Options) -> None:
    """Warn where the rank column contradicts the scores (which decide, as in trec_eval)."""
    try:
        ranks = _as_floats(records.columns["rank"])
    except ValueError:
        return
    scores = _as_floats(records.columns["score"])
    if options.space is L2:
        scores = -scores
    queries, rows, _ = group_rows(records.columns["query_id"])
    order = np.lexsort((ranks, rows))
    rows, ranks, scores = rows[order], ranks[order], scores[order]
    against = (rows[1:] == rows[:-1]) & (ranks[1:] > ranks[:-1]) & (scores[1:] > scores[:-1])
    if against.any():
        warnings.warn(
            f"{path}: ranks disagree with scores in {len(np.unique(rows[1:][against])):,} of "
            f"{len(queries):,} queries; scores decide",
            SemrecallWarning,
            stacklevel=3,
        )


def _as_floats(column: Any) -> NDArray[np.float64]:
    """A column of numbers or of their texts; ValueError where it holds something else."""
    if hasattr(column, "cast"):
        column = column.cast("float64").to_numpy()
    return np.asarray(column, dtype=np.float64)


def _only_tag(column: Any) -> str | None:
    distinct = (
        column.unique().to_pylist() if hasattr(column, "unique") else [*dict.fromkeys(column)]
    )
    return distinct[0] if len(distinct) == 1 else None


# -- writing --------------------------------------------------------------------------------


def write_run(run: Run, path: Path) -> None:
    """Write a TREC run. Missing results are left out.

    Distances are written negated, because in a TREC run the higher score is the better one; a
    run without scores gets n, n - 1, ..., 1. Equal scores come back ordered by document id.
    """
    _check_words(run.queries, "query")
    _check_words(run.documents, "document")
    if run.flat_scores is not None and run.space is L2:
        warnings.warn(
            "distances are written negated: in a TREC run the higher score is the better",
            SemrecallWarning,
            stacklevel=2,
        )
    write_text(path, _run_lines(run))


def _run_lines(run: Run) -> Iterator[str]:
    tag = "_".join(run.name.split()) or "semrecall"
    queries, documents = run.queries.strings(), run.ids
    sign = -1.0 if run.space is L2 else 1.0
    for row, (low, high) in enumerate(zip(run.offsets[:-1], run.offsets[1:], strict=True)):
        valid = run.valid[low:high]
        names = documents[row][valid].tolist()
        if run.flat_scores is None:
            scores = [float(s) for s in range(len(names), 0, -1)]
        else:
            scores = (sign * run.flat_scores[low:high][valid]).tolist()
        for rank, (name, score) in enumerate(zip(names, scores, strict=True), 1):
            yield f"{queries[row]} Q0 {name} {rank} {score!r} {tag}\n"


def write_qrels(judgments: Judgments, path: Path) -> None:
    """Write TREC qrels. Pairs without a grade cannot be written and are an error."""
    _check_words(judgments.queries, "query")
    _check_words(judgments.documents, "document")
    gaps = int(np.isnan(judgments.grades).sum())
    if gaps:
        raise InputError(
            f"{gaps:,} judgments have no grade, which TREC qrels cannot say",
            hint="write parquet or jsonl, or leave them out first",
        )
    if judgments.details:
        warnings.warn(
            f"qrels keep no {', '.join(judgments.details)}; parquet and jsonl keep them",
            SemrecallWarning,
            stacklevel=2,
        )
    rows = zip(judgments.queries, judgments.documents, judgments.grades.tolist(), strict=True)
    write_text(path, (f"{q} 0 {d} {short(g)}\n" for q, d, g in rows))


def short(value: float) -> str:
    """A number without ".0" where it is whole; it reads back the same."""
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _check_words(column: Any, what: str) -> None:
    if column.are_integers:
        return
    distinct = np.unique(column.codes)
    for name in column.array(distinct[distinct >= 0]).tolist():
        if len(name.split()) != 1 or name.split()[0] != name:
            raise InputError(
                f"the {what} id {name!r} holds blanks, which TREC files cannot",
                hint="write parquet, jsonl or csv instead",
            )
