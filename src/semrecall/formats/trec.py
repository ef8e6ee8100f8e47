"""TREC runs (query Q0 document rank score tag) and qrels (query 0 document grade)."""

from __future__ import annotations

import json
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Judgments, Run, arrow
from semrecall.data.ids import Growing, Ids, Parts, Texts, ids, ids_or_texts, string_bytes
from semrecall.data.run import Ordering, level, taken
from semrecall.errors import InputError, SemrecallWarning
from semrecall.formats.files import Faults, fault, read_text, text_blocks, write_text
from semrecall.formats.options import Options
from semrecall.formats.ranked import (
    grouped_records,
    judgments_of,
    no_rows,
    records_by_system,
    run_of,
)
from semrecall.formats.records import Records, Stretches, decode, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["looks_like_trec", "read_qrels", "read_run", "read_runs", "write_qrels", "write_run"]

_RUN = ("query_id", "iteration", "doc_id", "rank", "score", "tag")
_QRELS = ("query_id", "iteration", "doc_id", "grade")
#: Bytes looked at in one go.
_PIECE = 1 << 18
#: So many stretches of texts of one length are looked at one by one.
_FEW = 200


def read_run(path: Path, options: Options) -> Run:
    """A TREC run. Order: score, best first, then document id, descending, as trec_eval does.

    The tag may be absent or hold spaces, and becomes the run's name. Ranks that disagree with
    the scores give a warning. With space l2, scores that are all 0 or less are distances
    negated, so that the higher is the better; else they are distances.
    """
    records = _records(path, _RUN)
    if records is None:
        return no_rows(path, options)
    run = _run_of(path, records, options)
    if options.name is None:
        tags = [*dict.fromkeys(str(tag) for tag in records.columns["tag"].heads)]
        return run.replace(name=tags[0] if len(tags) == 1 else "")
    return run


def read_runs(path: Path, options: Options) -> dict[str, Run]:
    """The runs of a file, by tag."""
    records = _records(path, _RUN)
    if records is None:
        return {path.name.split(".")[0]: no_rows(path, options)}
    parts = records_by_system(records)
    return {name: _run_of(path, part, replace(options, name=name)) for name, part in parts.items()}


def _run_of(path: Path, records: Records, options: Options) -> Run:
    if options.space is not None and not options.space.higher_is_nearer:
        records.columns["score"] = _distances(path, records.columns["score"])
    run = run_of(records, options, order="score")
    _compare_ranks(path, records, options)
    return run


def read_qrels(path: Path, options: Options) -> Judgments:
    """TREC judgments; fractional and negative grades stay what they are.

    The second column says nothing, or with `options.subtopics` which subtopic a grade is for.
    """
    records = _records(path, _QRELS)
    if records is None:
        raise fault(
            path, "the file is empty; expected judgments, one a line: query 0 document grade"
        )
    columns = dict(records.columns)
    subtopic = columns.pop("iteration")
    if options.subtopics:
        columns["subtopic"] = subtopic
    return judgments_of(replace(records, columns=columns), options)


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


def _records(path: Path, names: tuple[str, ...]) -> Records | None:
    """The columns of a file; None where nothing but blanks is in it."""
    columns = _fast(path, names)
    if columns is not None:
        return Records(path, columns, lambda: _slow(path, names)[1])
    columns, lines = _slow(path, names)
    return Records(path, columns, lambda: lines) if lines or _holds_text(path) else None


def _holds_text(path: Path) -> bool:
    return any(block.strip() for block in text_blocks(path))


@dataclass(frozen=True)
class _Part:
    """The columns of one block of lines.

    size: bytes of the block.
    queries, tags: one for each stretch of lines that have the same, and the lengths of those; of
        judgments the tag is the second column.
    documents: Ids where they are numbers, else the strings as an arrow column.
    numbers: scores or grades.
    ranks: None where they are no numbers.
    """

    size: int
    queries: tuple[list[str], NDArray[np.int64]]
    documents: Any
    numbers: NDArray[np.float64]
    ranks: NDArray[Any] | None
    tags: tuple[list[str], NDArray[np.int64]]


def _fast(path: Path, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Columns by arrow's reader, block by block; None where a line needs a closer look."""
    queries, tags = _Stretched(), _Stretched()
    documents, numbers = Parts(), Growing(np.float64)
    # Enough for ranks up to 2^24; they are many, and as a rule only looked at once.
    ranks: Growing | None = Growing(np.float32)
    size, read = path.stat().st_size, 0
    for part in _in_threads(partial(_part, names=names), path):
        if part is None or any(name.startswith("#") for name in part.queries[0]):
            return None
        read += part.size
        # A little more than the lines so far let expect; too little costs a copy.
        guess = int((len(numbers) + len(part.numbers)) * size / read * 1.01)
        queries.add(*part.queries)
        tags.add(*part.tags)
        documents.add(part.documents, guess)
        numbers.add(part.numbers, guess)
        if part.ranks is None:
            ranks = None
        elif ranks is not None:
            ranks.add(part.ranks, guess)
    if len(numbers) == 0:
        return None
    columns = {"query_id": queries.whole(ids), "doc_id": documents.whole()}
    if names is _QRELS:
        return columns | {"grade": numbers.whole(), "iteration": tags.whole(ids)}
    known = {} if ranks is None else {"rank": ranks.whole()}
    return columns | {"score": numbers.whole(), "tag": tags.whole(_words), **known}


class _Stretched:
    """A column of names, put together from stretches of equal ones."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._lengths: list[NDArray[np.int64]] = []

    def add(self, names: list[str], lengths: NDArray[np.int64]) -> None:
        self._names += names
        self._lengths.append(lengths)

    def whole(self, told_apart: Callable[[list[str]], Ids]) -> Stretches:
        return Stretches(told_apart(self._names), np.concatenate(self._lengths))


def _words(texts: list[str]) -> Ids:
    """Texts just as they are: a tag may be empty, and "-1" is one, too."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([places[text] for text in texts], dtype=np.int64)
    return Ids(codes, Texts(arrow.from_texts(list(places))))


def _in_threads(work: Callable[[bytearray], _Part | None], path: Path) -> Iterator[_Part | None]:
    """The results for all blocks of a file in order; few blocks are in memory at a time."""
    spare: list[bytearray] = []
    blocks = text_blocks(path, spare=spare)
    first = next(blocks, None)
    second = next(blocks, None)
    if first is None or second is None:
        yield from () if first is None else (work(first),)
        return
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque((block, pool.submit(work, block)) for block in (first, second))
        while waiting:
            block = next(blocks, None) if len(waiting) <= threads else None
            if block is not None:
                waiting.append((block, pool.submit(work, block)))
                continue
            done, part = waiting.popleft()
            yield part.result()
            spare.append(done)


def _part(data: bytearray, names: tuple[str, ...]) -> _Part | None:
    size, data = len(data), _single_spaces(data)
    if not data:
        nothing: tuple[list[str], NDArray[np.int64]] = ([], np.empty(0, np.int64))
        none = np.empty(0)
        return _Part(size, nothing, Ids(np.empty(0, np.int64)), none, none, nothing)
    run = names is _RUN
    table = _run_table(data, names) if run else _table(data, names, list(names))
    if table is None:
        return None
    columns = {name: table.column(name).chunk(0) for name in table.column_names}
    last = "tag" if run else "iteration"
    return _Part(
        size,
        _stretches(columns["query_id"]),
        ids_or_texts(columns["doc_id"]),
        arrow.to_numpy(columns["score" if run else "grade"]),
        arrow.to_numpy(columns["rank"]) if "rank" in columns else None,
        _stretches(columns[last]) if last in columns else ([""], np.array([len(table)])),
    )


def _run_table(data: bytearray, names: tuple[str, ...]) -> Any:
    """The columns of a run but the second; without ranks where these are no numbers."""
    first = data[: data.find(b"\n")].split(b" ")
    names = names[:-1] if len(first) == 5 else names
    wanted = [names[0], *names[2:]]
    table = None
    if first[3:] and first[3].isdigit():
        # Whole numbers are read twice as fast as others.
        table = _table(data, names, wanted, ranks="int32")
    if table is None:
        table = _table(data, names, wanted)
    return _table(data, names, [names[0], names[2], *names[4:]]) if table is None else table


def _table(
    data: bytearray, names: tuple[str, ...], wanted: list[str], *, ranks: str = "float64"
) -> Any:
    """Wanted columns of lines with just these fields, single blanks between; else None."""
    import pyarrow as pa
    import pyarrow.csv as pc

    kinds = dict.fromkeys(("query_id", "doc_id", "tag", "iteration"), pa.string())
    kinds |= {"rank": ranks, "score": pa.float64(), "grade": pa.float64()}
    try:
        return pc.read_csv(
            pa.BufferReader(data),
            read_options=pc.ReadOptions(
                column_names=names, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pc.ParseOptions(
                delimiter=" ", quote_char=False, double_quote=False, escape_char=False
            ),
            convert_options=pc.ConvertOptions(
                column_types=kinds,
                include_columns=wanted,
                null_values=[],
                strings_can_be_null=False,
                check_utf8=not data.isascii(),
            ),
        )
    except pa.ArrowInvalid:
        return None


def _stretches(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """The names in a column, one for each stretch of equal ones, and the lengths of those."""
    data, places, ends = string_bytes(column)
    starts = _starts_of_stretches(column, data, places, ends)
    text = data.tobytes()
    bounds = zip(places[starts].tolist(), ends[starts].tolist(), strict=True)
    heads = [text[low:high].decode() for low, high in bounds]
    # A name that comes again and again is one string in memory.
    names = {name: name for name in heads}
    return [names[name] for name in heads], np.diff(np.append(starts, len(column)))


def _starts_of_stretches(
    column: Any, data: NDArray[np.uint8], places: NDArray[Any], ends: NDArray[Any]
) -> NDArray[np.int64]:
    """Where a column of texts, data[places[i] : ends[i]], has another one than just before."""
    lengths = ends - places
    cuts = [0, *(np.flatnonzero(lengths[1:] != lengths[:-1]) + 1).tolist(), len(lengths)]
    if len(cuts) > _FEW:
        codes = arrow.to_numpy(column.dictionary_encode().indices)
        return np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
    starts = [np.array(cuts[:-1])]
    for low, high in pairwise(cuts):
        # Texts of one length, end to end: most of them repeat the one before, as a rule.
        texts, length = data[places[low] : ends[high - 1]], int(lengths[low])
        others = np.flatnonzero(texts[length:] != texts[: len(texts) - length])
        if length:
            starts.append(low + 1 + others // length)
    found = np.sort(np.concatenate(starts))
    return np.asarray(found[np.append(True, found[1:] != found[:-1])])


def _single_spaces(data: bytearray) -> bytearray:
    """Every run of blanks as one space, none at either end of a line, and no blank line."""
    others = any(other in data for other in (b"\t", b"\r", b"\v", b"\f"))
    if not (others or data[:1] <= b" " or _blanks_meet(np.frombuffer(data, np.uint8))):
        return data
    for other in (b"\t", b"\r", b"\v", b"\f"):
        data = data.replace(other, b" ")
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    data = data.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")
    return data.lstrip(b"\n")


def _blanks_meet(data: NDArray[np.uint8]) -> bool:
    """Whether two blanks or line ends stand side by side."""
    # In pieces whose columns need no new memory from the system.
    for low in range(0, len(data), _PIECE):
        blank = data[low : low + _PIECE + 1] <= 32
        if bool((blank[1:] & blank[:-1]).any()):
            return True
    return False


def _slow(path: Path, names: tuple[str, ...]) -> tuple[dict[str, Any], list[int]]:
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
    data = read_text(path)
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
    each = np.ones(len(rows), dtype=np.int64)
    columns["query_id"] = Stretches(ids(columns["query_id"], what="query ids"), each)
    if run:
        tags = [row[5].strip() if len(row) == 6 else "" for row in rows]
        columns["tag"] = Stretches(_words(tags), each)
        try:
            columns["rank"] = np.array([number(rank) for rank in columns["rank"]])
        except ValueError:
            del columns["rank"]
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
    """Warn where the rank column contradicts the scores."""
    if "rank" not in records.columns:
        return
    rising = Ordering(None, options.space, options.lower_is_better).rising
    queries, offsets, together = grouped_records(records)
    ranks, scores = (taken(records.columns[name], together) for name in ("rank", "score"))
    by_rank = Ordering("rank").of(offsets, queries, None, ranks)
    ranks, scores = taken(ranks, by_rank), taken(scores, by_rank)
    at = level(offsets, scores, rising=rising)
    better = scores[at + 1] < scores[at] if rising else scores[at + 1] > scores[at]
    against = at[better & (ranks[at + 1] > ranks[at])]
    if len(against):
        rows = np.searchsorted(offsets, against, side="right")
        decides = {"rank": "ranks decide", "file": "the order of the file decides"}
        warnings.warn(
            f"{path}: ranks disagree with scores in {len(np.unique(rows)):,} of "
            f"{len(queries):,} queries; {decides.get(options.order or '', 'scores decide')}",
            SemrecallWarning,
            stacklevel=3,
        )


# -- writing --------------------------------------------------------------------------------


def write_run(run: Run, path: Path) -> None:
    """Write a TREC run. Missing results are left out.

    Distances are written negated, because in a TREC run the higher score is the better one; a
    run without scores gets n, n - 1, ..., 1. Equal scores come back ordered by document id.
    """
    _check_words(run.queries, "query")
    _check_words(run.documents, "document")
    if run.flat_scores is not None and _are_distances(run):
        warnings.warn(
            "distances are written negated: in a TREC run the higher score is the better",
            SemrecallWarning,
            stacklevel=2,
        )
    write_text(path, _run_lines(run))


def _are_distances(run: Run) -> bool:
    return run.space is not None and not run.space.higher_is_nearer


def _run_lines(run: Run) -> Iterator[str]:
    tag = "_".join(run.name.replace("\0", " ").split()) or "semrecall"
    queries, documents = run.queries.strings(), run.ids
    sign = -1.0 if _are_distances(run) else 1.0
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
    """Write TREC qrels, a line for each subtopic where these are known.

    Pairs without a grade cannot be written and are an error.
    """
    _check_words(judgments.queries, "query")
    _check_words(judgments.documents, "document")
    gaps = int(np.isnan(judgments.grades).sum())
    if gaps:
        raise InputError(
            f"{gaps:,} judgments have no grade, which TREC qrels cannot say",
            hint="write parquet or jsonl, or leave them out first",
        )
    lost = [name for name in judgments.details if name != "subtopics"]
    if lost:
        warnings.warn(
            f"qrels keep no {', '.join(lost)}; parquet and jsonl keep them",
            SemrecallWarning,
            stacklevel=2,
        )
    write_text(path, _qrels_lines(judgments))


def _qrels_lines(judgments: Judgments) -> Iterator[str]:
    topics = judgments.details.get("subtopics")
    texts = [""] * len(judgments) if topics is None else topics.tolist()
    columns = (judgments.queries, judgments.documents, judgments.grades.tolist(), texts)
    for query, document, grade, text in zip(*columns, strict=True):
        for topic, own in json.loads(text).items() if text else (("0", grade),):
            yield f"{query} {topic} {document} {short(own)}\n"


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
