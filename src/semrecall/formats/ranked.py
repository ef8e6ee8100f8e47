"""From records to runs and judgments by the rules for ranked files; a fault names its lines."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Judgments, Run
from semrecall.data.frames import pick_column
from semrecall.data.ids import Ids, ids
from semrecall.data.judgments import DETAIL_COLUMNS, GRADE_COLUMNS, warn_of_several_grades
from semrecall.data.rows import repeated, row_numbers
from semrecall.data.run import (
    DOC_COLUMNS,
    QUERY_COLUMNS,
    SCORE_COLUMNS,
    Order,
    Ordering,
    grouped,
    grouped_stretches,
    settled,
    taken,
)
from semrecall.errors import SemrecallWarning
from semrecall.formats.files import Faults, fault, named
from semrecall.formats.options import Options
from semrecall.formats.records import SYSTEM_COLUMNS, Records, Stretches

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "VECTOR_NAMES",
    "grouped_records",
    "judgments_of",
    "no_rows",
    "noun_of_names",
    "plain_ids",
    "records_by_system",
    "run_of",
    "runs_of",
]

_GRADES_ONLY = frozenset(GRADE_COLUMNS) - frozenset(SCORE_COLUMNS)
#: Names of columns that hold vectors, most usual first.
VECTOR_NAMES = ("vector", "emb", "embedding", "embeddings", "values")


def noun_of_names(names: Any) -> str | None:
    """Which noun columns of these names hold; None when they do not tell."""
    found = set(names)
    if "grades" in found:  # of an evaluation set
        return "judgments"
    if found & set(VECTOR_NAMES):
        return "vectors"
    if "ids" in found and found & set(QUERY_COLUMNS):
        return "run"
    if not found & set(DOC_COLUMNS) or not found & set(QUERY_COLUMNS):
        return "texts" if "text" in found else None
    if "probability" in found and not found & {*_GRADES_ONLY, *SCORE_COLUMNS}:
        return None  # pairs to judge, as a pool or a plan lists them
    if "rank" in found:
        return "run"
    if found & _GRADES_ONLY or ("corpus-id" in found and "score" in found):
        return "judgments"
    return "run" if found & set(SCORE_COLUMNS) else None


# -- runs -----------------------------------------------------------------------------------


def run_of(records: Records, options: Options, *, order: Order | None = None) -> Run:
    """A run from records (query, document, score or rank), or from rows (query, ids, scores).

    Results stand as `options.order` says, else as `order`, the format's own. With neither they
    stand by rank where there is one, else by score, equal scores by document id, descending, else
    as in the file.
    """
    if not records.columns:
        return no_rows(records.path, options)
    if "ids" in records.columns:
        return _run_of_rows(records, options)
    columns, path = records.columns, records.path
    queries, offsets, together = grouped_records(records)
    if len(queries) == 0:
        return no_rows(path, options)
    with named(path):
        documents = ids(pick_column(columns, DOC_COLUMNS, "document ids"), what="document ids")
        ordering = Ordering(options.order or order, options.space, options.lower_is_better)
    name = next((n for n in SCORE_COLUMNS if n in columns), None)
    if name is None and "rank" not in columns:
        _need_scores(records)
    scores = None if name is None else _numbers(records, name, columns[name])
    ranks = None
    if "rank" in columns and ordering.by in (None, "rank"):
        ranks = _numbers(records, "rank", columns["rank"])
    documents, scores, ranks = (taken(c, together) for c in (documents, scores, ranks))
    listed = _Listed(queries, offsets, documents, scores)
    keep = _checked(records, listed, together, options)
    if keep is not None:
        listed, ranks = listed.keep(keep), taken(ranks, keep)
    if listed.scores is not None and options.nan == "last":
        listed = replace(listed, scores=_nan_last(listed, ordering.rising))
    with named(path):
        by = ordering.of(listed.offsets, listed.documents, listed.scores, ranks)
    return Run(
        queries,
        # Whoever reads the records again needs their scores, but not the documents.
        settled(listed.documents, by),
        listed.offsets,
        taken(listed.scores, by),
        options.space,
        name=options.name or "",
        ordered_by=ordering.chosen(listed.scores, ranks),
    ).known_distinct()


def runs_of(records: Records, options: Options) -> dict[str, Run]:
    """All runs in records, by the column that names them; the one run where there is none."""
    parts = records_by_system(records)
    return {name: run_of(part, replace(options, name=name)) for name, part in parts.items()}


def records_by_system(records: Records) -> dict[str, Records]:
    """The records of each run, in order of first appearance; all of them where none is named."""
    systems = _systems(records)
    own_name = records.path.name.split(".")[0]
    if systems is None:
        return {own_name: records}
    codes, first = np.unique(systems.codes, return_index=True)
    # An empty name is the file's.
    named = {
        int(systems.codes[at]): str(systems[at]) if systems.codes[at] >= 0 else ""
        for at in np.sort(first).tolist()
    }
    if len(codes) == 1:
        return {named[int(codes[0])] or own_name: records}
    # Ids are told apart once, for all runs.
    columns = records.columns | {
        name: plain_ids(records.columns[name])
        for name in (*QUERY_COLUMNS, *DOC_COLUMNS)
        if name in records.columns
    }
    parts = {}
    for code, name in named.items():
        at = np.flatnonzero(systems.codes == code)
        own = {key: _entries(column, at) for key, column in columns.items()}
        places = partial(_places_of, records, at)
        parts[name or own_name] = Records(records.path, own, places, records.unit)
    return parts


def _systems(records: Records) -> Ids | None:
    name = next((n for n in SYSTEM_COLUMNS if n in records.columns), None)
    return None if name is None else plain_ids(records.columns[name])


def _entries(column: Any, at: NDArray[np.int64]) -> Any:
    if isinstance(column, Stretches):
        return column.column()[at]
    if isinstance(column, list):
        return [column[entry] for entry in at.tolist()]
    return column.take(at) if hasattr(column, "null_count") else column[at]


def _places_of(records: Records, at: NDArray[np.int64]) -> list[int]:
    places: list[int] = np.asarray(records.places)[at].tolist()
    return places


@dataclass(frozen=True)
class _Listed:
    """Results of each query as they stand in a file, end to end, like those of a Run."""

    queries: Ids
    offsets: NDArray[np.int64]
    documents: Ids
    scores: NDArray[np.float64] | None

    def query(self, entry: int) -> str | int:
        """The query of an entry."""
        name: str | int = self.queries[int(np.searchsorted(self.offsets, entry, "right")) - 1]
        return name

    def keep(self, entries: NDArray[np.int64]) -> _Listed:
        """Only some of the entries, in order."""
        before = np.searchsorted(entries, self.offsets)
        return _Listed(self.queries, before, self.documents[entries], taken(self.scores, entries))


def grouped_records(records: Records) -> tuple[Ids, NDArray[np.int64], NDArray[np.int64] | None]:
    """Queries, offsets, and the order that puts the records of each query together."""
    with named(records.path):
        column = pick_column(records.columns, QUERY_COLUMNS, "query ids")
        if isinstance(column, Stretches):
            heads, lengths = column.heads, column.lengths
            firsts = np.cumsum(lengths) - lengths
        else:
            heads, lengths, firsts = ids(column, what="query ids"), None, None
    faults = Faults(records.path)
    faults.add_all(
        _places(heads.missing),
        lambda at: f"{records.place(at if firsts is None else int(firsts[at]))}: no query id",
    )
    faults.settle()
    return grouped(heads) if lengths is None else grouped_stretches(heads, lengths)


def no_rows(path: Path, options: Options) -> Run:
    """The run of a file without results: nothing was returned, for no query."""
    warnings.warn(f"{path}: the run has no rows", SemrecallWarning, stacklevel=3)
    return Run.from_dict({}, space=options.space, name=options.name or "")


def _need_scores(records: Records) -> None:
    found = ", ".join(records.columns)
    grades = sorted(_GRADES_ONLY & set(records.columns))
    if grades:
        raise fault(
            records.path,
            f"found columns {found}; expected score or rank",
            f"the column {grades[0]!r} looks like judgments: read_judgments reads them",
        )
    raise fault(records.path, f"found columns {found}; expected one of score, rank")


def _run_of_rows(records: Records, options: Options) -> Run:
    """A run from one record a query, its results in the order given."""
    columns, path = records.columns, records.path
    with named(path):
        query_ids = ids(pick_column(columns, QUERY_COLUMNS, "query ids"), what="query ids")
    _require_queries(records, query_ids)
    twice = query_ids.first_duplicate()
    if twice is not None:
        raise fault(
            path,
            f"query {query_ids[twice[0]]!r} stands at {records.place(twice[0])} and at "
            f"{records.place(twice[1])}; expected one {records.unit} a query",
        )
    flat, lengths = _flat_lists(columns["ids"])
    documents = ids(flat, what="document ids")
    values = None
    if "scores" in columns:
        values, found = _flat_lists(columns["scores"])
        wrong = np.flatnonzero(found != lengths)
        if len(wrong):
            at = int(wrong[0])
            raise fault(
                path,
                f"{records.place(at)}: {found[at]} scores for {lengths[at]} ids; "
                "expected equally many",
            )
    offsets = _offsets(lengths)
    rows = row_numbers(offsets)
    whose = Records(path, {}, lambda: np.asarray(records.places)[rows].tolist(), records.unit)
    scores = None if values is None else _numbers(whose, "scores", values)
    listed = _Listed(query_ids, offsets, documents, scores)
    keep = _checked(whose, listed, None, options)
    if keep is not None:
        listed = listed.keep(keep)
    with named(path):
        ordering = Ordering(options.order or "file", options.space, options.lower_is_better)
    if listed.scores is not None and options.nan == "last":
        last = np.lexsort((np.isnan(listed.scores), row_numbers(listed.offsets)))
        listed = replace(listed, scores=_nan_last(listed, ordering.rising)[last])
        listed = replace(listed, documents=listed.documents[last])
    with named(path):
        by = ordering.of(listed.offsets, listed.documents, listed.scores)
    return Run(
        query_ids,
        taken(listed.documents, by),
        listed.offsets,
        taken(listed.scores, by),
        options.space,
        name=options.name or "",
    ).known_distinct()


def _flat_lists(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """A column of lists as one flat column, and how long each list is."""
    if hasattr(column, "combine_chunks"):
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = column.combine_chunks()
        whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
        lengths = pc.fill_null(pc.list_value_length(whole), 0).to_numpy(zero_copy_only=False)
        return pc.list_flatten(whole), lengths.astype(np.int64)
    rows = [row if row is not None else [] for row in column]
    lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
    return [value for row in rows for value in row], lengths


def _checked(
    records: Records,
    listed: _Listed,
    together: NDArray[np.int64] | None,
    options: Options,
) -> NDArray[np.int64] | None:
    """Which entries to keep (None: all), after the rules for repeats and NaN scores.

    together: the record of each entry, where that is not the same number.
    """
    faults = Faults(records.path)

    def place(entry: int) -> str:
        return records.place(entry if together is None else int(together[entry]))

    def result(entry: int) -> str:
        return f"query {listed.query(entry)!r}, document {listed.documents[entry]!r}"

    if listed.scores is not None and options.nan == "error":
        gone = np.isnan(listed.scores)
        faults.add_all(
            _places(gone & ~listed.documents.missing) if gone.any() else [],
            lambda at: f"{place(at)}: the score of {result(at)} is not a number",
        )
    first, again = _repeats(listed.offsets, listed.documents)
    if options.duplicates == "error":
        faults.add_all(
            range(len(again)),
            lambda i: (
                f"{result(again[i])} stands at {place(first[i])} and again at {place(again[i])}"
            ),
        )
    faults.settle(_advice(records) if faults.count else None)
    if len(again) == 0:
        return None
    keep = np.ones(len(listed.documents), dtype=bool)
    keep[again] = False
    return np.flatnonzero(keep)


def _advice(records: Records) -> str:
    """What to do about repeats and NaN scores."""
    systems = _systems(records)
    several = 0 if systems is None else len(np.unique(systems.codes))
    if several > 1:
        return f"the file holds {several:,} runs, each named: read_runs reads them one by one"
    return (
        "to read it all the same: --duplicates first (keep the first of repeated results), "
        "--nan last (rank results without a score last)"
    )


def _repeats(
    offsets: NDArray[np.int64], documents: Ids
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Entries that repeat the document of an earlier one of their row: (that one, the repeat)."""
    found = repeated(documents.codes, offsets)
    if found is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # Only rows that hold a repeat are looked at closely.
    rows = row_numbers(offsets)
    at = np.flatnonzero(np.isin(rows, rows[found]))
    first, again = _repeats_of(rows[at], documents.codes[at])
    return at[first], at[again]


def _surely_distinct(rows: NDArray[np.int64], codes: NDArray[np.int64]) -> bool:
    """The usual case, settled by one fast sort: no (row, code) occurs twice."""
    span, count = int(codes.max(initial=0)) + 1, int(rows.max(initial=0)) + 1
    if span * count >= 2**62:
        return False
    keys = rows * span
    keys += codes
    keys.sort()
    return not bool((keys[1:] == keys[:-1]).any())


def _repeats_of(
    rows: NDArray[np.int64], codes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.lexsort((codes, rows))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (rows[order][1:] == rows[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    same &= codes[order] >= 0
    start = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
    again = order[same]
    by_place = np.argsort(again)
    return order[start[same]][by_place], again[by_place]


def _nan_last(listed: _Listed, rising: bool) -> NDArray[np.float64]:
    """NaN scores replaced by the next number beyond the worst score of their query.

    So they stand last and still are results: a NaN in a run would mean "missing".
    """
    scores = listed.scores
    assert scores is not None
    lost = np.isnan(scores) & ~listed.documents.missing
    if not lost.any():
        return scores
    rows = row_numbers(listed.offsets)
    sign = 1.0 if rising else -1.0
    worst = np.full(len(listed.queries), -np.inf)
    known = np.isfinite(scores)
    np.maximum.at(worst, rows[known], sign * scores[known])
    worst[np.isneginf(worst)] = 0.0
    filled = scores.copy()
    filled[lost] = sign * np.nextafter(worst, np.inf)[rows[lost]]
    return filled


# -- judgments ------------------------------------------------------------------------------


def judgments_of(records: Records, options: Options) -> Judgments:
    """Judgments from records (query, document, grade), with judge, reason, ... where given."""
    columns, path = records.columns, records.path
    wanted = GRADE_COLUMNS if options.grade is None else (options.grade,)
    if not columns:
        raise fault(path, "the file is empty; expected judgments: query_id, doc_id, grade")
    if not any(name in columns for name in wanted):
        raise fault(
            path,
            f"found columns {', '.join(columns)}; expected {wanted[0]}",
            "name the column that holds the grade: --grade, or grade= in Python",
        )
    if options.grade is None:
        warn_of_several_grades(columns)
    with named(path):
        query_ids = plain_ids(pick_column(columns, QUERY_COLUMNS, "query ids"))
        documents = ids(pick_column(columns, DOC_COLUMNS, "document ids"), what="document ids")
        grades = _numbers(records, "grade", pick_column(columns, wanted, "grades"))
    if len(grades) == 0:
        raise fault(path, "no judgment in the file")
    faults = Faults(path)
    for mask, what in (
        (query_ids.missing, "no query id"),
        (documents.missing, "no document id"),
        (np.isinf(grades), "the grade is infinite"),
    ):
        for at in _places(mask):
            faults.add(f"{records.place(at)}: {what}")
    faults.settle()
    subtopic = plain_ids(columns["subtopic"]) if "subtopic" in columns else None
    if options.conflicts == "error" and subtopic is None:
        _refuse_conflicts(records, query_ids, documents, grades)
    details = {n: _detail(columns[n]) for n in DETAIL_COLUMNS if n in columns}
    with named(path):
        return Judgments.from_arrays(
            query_ids,
            documents,
            grades,
            conflicts=options.conflicts,
            name=options.name or "",
            subtopic=subtopic,
            **details,
        )


def plain_ids(column: Any) -> Ids:
    """The ids of a column of records."""
    return column.column() if isinstance(column, Stretches) else ids(column, what="query ids")


def _refuse_conflicts(
    records: Records, queries: Ids, documents: Ids, grades: NDArray[np.float64]
) -> None:
    if _surely_distinct(queries.codes, documents.codes):
        return
    first, again = _repeats_of(queries.codes, documents.codes)
    agree = (grades[first] == grades[again]) | (np.isnan(grades[first]) & np.isnan(grades[again]))
    first, again = first[~agree], again[~agree]
    faults = Faults(records.path)
    faults.add_all(
        range(len(again)),
        lambda i: (
            f"query {queries[again[i]]!r}, document {documents[again[i]]!r} has grade "
            f"{grades[first[i]]:g} at {records.place(first[i])} and {grades[again[i]]:g} at "
            f"{records.place(again[i])}"
        ),
    )
    faults.settle("say which to take: --conflicts max, first or last")


def _detail(column: Any) -> NDArray[Any]:
    if hasattr(column, "null_count") and column.null_count:
        return np.array([*column.to_pylist(), None], dtype=object)[:-1]
    return np.asarray(column)


# -- shared ---------------------------------------------------------------------------------


def _numbers(records: Records, name: str, column: Any) -> NDArray[np.float64]:
    """A column as float64, null as NaN; FormatError naming the places that hold something else."""
    if isinstance(column, list):
        wrong = [
            at
            for at, value in enumerate(column)
            if isinstance(value, bool) or not isinstance(value, int | float | None)
        ]
        faults = Faults(records.path)
        faults.add_all(
            wrong, lambda at: f"{records.place(at)}: {name} is {column[at]!r}, expected a number"
        )
        faults.settle()
        return np.array([np.nan if v is None else v for v in column], dtype=np.float64)
    if isinstance(column, np.ndarray):
        return np.asarray(column, dtype=np.float64)
    import pyarrow as pa
    import pyarrow.types as pt

    if not (pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_null(column.type)):
        raise fault(records.path, f"the column {name} is of type {column.type}; expected numbers")
    return np.asarray(column.cast(pa.float64()))


def _require_queries(records: Records, queries: Ids) -> None:
    faults = Faults(records.path)
    faults.add_all(_places(queries.missing), lambda at: f"{records.place(at)}: no query id")
    faults.settle()


def _places(mask: NDArray[np.bool_]) -> list[int]:
    found: list[int] = np.flatnonzero(mask).tolist()
    return found


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
