"""Files of vectors, runs, judgments, scores and cost: what they hold, read and written.

The format follows from the file's suffix, or from `format=`; `formats()` lists them all.
"""

# ruff: noqa: A002 - "format" is the word for it, in numpy, pandas and on our command line.

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semrecall.data import Cost, Judgments, Pairs, Run, Scores, Vectors
from semrecall.data.judgments import Conflicts
from semrecall.data.run import Order, Ordering
from semrecall.errors import FormatError, InputError
from semrecall.formats import hdf5, table, vdbbench
from semrecall.formats.evaluation import EvaluationSet, read_evaluation_set
from semrecall.formats.files import write_whole, writing
from semrecall.formats.ledgers import is_ledger, read_by_judge
from semrecall.formats.options import Duplicates, NanScores, Options
from semrecall.formats.table import FORMATS, Format, format_for, formats
from semrecall.formats.texts import (
    read_allowed,
    read_columns,
    read_documents,
    read_ids,
    read_listed_pairs,
    read_texts,
)
from semrecall.space import Space
from semrecall.space import space as space_named

__all__ = [
    "EvaluationSet",
    "Format",
    "formats",
    "noun_of",
    "queries_of",
    "read",
    "read_allowed",
    "read_columns",
    "read_cost",
    "read_documents",
    "read_evaluation_set",
    "read_ids",
    "read_judgments",
    "read_pairs",
    "read_queries",
    "read_run",
    "read_runs",
    "read_scores",
    "read_texts",
    "read_vectors",
    "vectors_of",
    "write",
    "write_cost",
    "write_dataset",
    "write_whole",
    "writing",
]


def read_vectors(
    path: Path | str, *, format: str | None = None, dataset: str | None = None, ids: Any = None
) -> Vectors:
    """Vectors (n, d) of a file, memory-mapped where the format allows.

    dataset: the HDF5 data set ("train" when None), the parquet column, or the part of a
        VectorDBBench folder ("train", "test").
    ids: ids of the rows, or the path of a file of ids (one a line, or .npy).

    Raises FormatError when the file is not what it claims to be.
    """
    given = read_ids(ids) if isinstance(ids, str | Path) else ids
    vectors: Vectors = _read("vectors", path, format, Options(dataset=dataset, ids=given))
    return vectors


def read_queries(
    path: Path | str, *, format: str | None = None, dataset: str | None = None, ids: Any = None
) -> Vectors:
    """Query vectors of a file, like `read_vectors`.

    A file that holds base and queries (HDF5 of ann-benchmarks, a VectorDBBench folder) gives the
    part "test" where it has one.
    """
    used = format_for(_existing(path), "vectors", format)
    if dataset is None and used in ("hdf5", "vectordbbench"):
        try:
            return read_vectors(path, format=format, dataset="test", ids=ids)
        except FormatError:
            pass  # no such part: then the file is one of queries alone, or faulty
    return read_vectors(path, format=format, dataset=dataset, ids=ids)


def vectors_of(source: Any) -> Vectors:
    """Vectors from Vectors, an array, or the path of a file."""
    return read_vectors(source) if isinstance(source, str | Path) else Vectors.of(source)


def queries_of(source: Any) -> Vectors:
    """Query vectors from Vectors, an array, or the path of a file."""
    return read_queries(source) if isinstance(source, str | Path) else Vectors.of(source)


def read_run(
    path: Path | str,
    *,
    format: str | None = None,
    space: str | Space | None = None,
    name: str | None = None,
    dataset: str | None = None,
    duplicates: Duplicates = "error",
    nan: NanScores = "error",
    order: Order | None = None,
    lower_is_better: bool = False,
) -> Run:
    """A run: results of a search, ranked lists, or exact neighbours.

    space: the geometry of the scores. Where a format stores another unit (squared L2, 1 - cosine,
        negated inner product) scores are converted, with a warning that says so.
    name: what to call the run; the file's own name for it when None.
    dataset: the HDF5 data set ("neighbors" when None) or the file of a VectorDBBench folder.
    duplicates: "first" keeps the first of a repeated (query, document) in a ranked file.
    nan: "last" ranks results with a NaN score last in a ranked file.
    order: by what the results of a ranked file are ordered: "score", "rank", or "file", as they
        stand. None: TREC files by score, others by rank where there is one, else by score.
    lower_is_better: scores of a ranked file, without a space, are distances of some kind.

    Raises FormatError when the file is not what it claims to be.
    """
    options = _run_options(space, name, dataset, duplicates, nan, order, lower_is_better)
    run: Run = _read("run", path, format, options)
    return run


def read_runs(
    path: Path | str,
    *,
    format: str | None = None,
    space: str | Space | None = None,
    dataset: str | None = None,
    duplicates: Duplicates = "error",
    nan: NanScores = "error",
    order: Order | None = None,
    lower_is_better: bool = False,
) -> dict[str, Run]:
    """All runs of a file, by name: those of a column `run`, `tag` or `system`, or of TREC tags.

    A file of one run gives one. Options are those of `read_run`.

    Raises FormatError when the file is not what it claims to be.
    """
    options = _run_options(space, None, dataset, duplicates, nan, order, lower_is_better)
    found = _existing(path)
    reader = FORMATS[format_for(found, "run", format)].read_runs
    if reader is not None and dataset is None:
        runs: dict[str, Run] = reader(found, options)
        return runs
    run: Run = _read("run", path, format, options)
    return {run.name or found.name.split(".")[0]: run}


def _run_options(
    space: str | Space | None,
    name: str | None,
    dataset: str | None,
    duplicates: Duplicates,
    nan: NanScores,
    order: Order | None,
    lower_is_better: bool,
) -> Options:
    known = None if space is None else space_named(space)
    if duplicates not in ("error", "first"):
        raise InputError(f"duplicates is {duplicates!r}; expected error or first")
    if nan not in ("error", "last"):
        raise InputError(f"nan is {nan!r}; expected error or last")
    Ordering(order, known, lower_is_better)
    return Options(
        space=known,
        name=name,
        dataset=dataset,
        duplicates=duplicates,
        nan=nan,
        order=order,
        lower_is_better=lower_is_better,
    )


def read_judgments(
    path: Path | str,
    *,
    format: str | None = None,
    name: str | None = None,
    grade: str | None = None,
    conflicts: Conflicts = "error",
    subtopics: bool = False,
) -> Judgments:
    """Judgments: grades of (query, document) pairs.

    grade: the column that holds the grade, where a file has several.
    conflicts: which of judgments that contradict each other to take: "max", "first" or "last".
    subtopics: the second column of TREC judgments names the subtopic that a grade is for, as
        measures of diversity need it; tables have a column "subtopic".

    Raises FormatError when the file is not what it claims to be.
    """
    if conflicts not in ("error", "max", "first", "last"):
        raise InputError(f"conflicts is {conflicts!r}; expected error, max, first or last")
    options = Options(name=name, grade=grade, conflicts=conflicts, subtopics=subtopics)
    judgments: Judgments = _read("judgments", path, format, options)
    return judgments


def read_pairs(path: Path | str, *, k: int | None = None) -> Pairs:
    """Pairs to judge: of a run or a truth (its first k results), of judgments, or of a plain list.

    A plain list is JSON lines, CSV or parquet with query_id and doc_id; a column `probability`
    says with which each pair was picked, as `semrecall pool` writes it. Of a ledger of several
    judges it is the pairs of all.

    Raises FormatError, naming the lines, when the file is not what it claims to be.
    """
    found = _existing(path)
    try:
        kind = noun_of(found)
    except FormatError:
        raise
    except InputError:
        kind = ""  # columns that tell no noun: a plain list
    if kind == "run":
        return Pairs.of(read_run(found), k=k)
    if kind == "judgments":
        if is_ledger(found):
            columns = read_by_judge(found)
            if len(set(columns["judge"])) > 1:
                return Pairs.of_columns(columns["query_id"], columns["doc_id"])
        return Pairs.of(read_judgments(found, conflicts="first"))
    return read_listed_pairs(found)


def read_scores(path: Path | str) -> Scores:
    """Scores of one measure, from our own parquet."""
    scores: Scores = _read("scores", path, None, Options())
    return scores


def read_cost(path: Path | str) -> Cost:
    """Cost per query, from our own parquet."""
    cost: Cost = _read("cost", path, None, Options())
    return cost


def read(
    path: Path | str, *, noun: str | None = None, format: str | None = None, **options: Any
) -> Any:
    """The noun that a file holds: Vectors, Run, Judgments, Scores or Cost.

    Our own parquet says so itself; else suffix, columns or fields tell. `.npy` with integers of
    more than 8 bits is a Run. `noun` ("vectors", "run", ...) says it for the file; `options` are
    those of `read_vectors`, `read_run` and `read_judgments`.

    Raises InputError naming the function to call where the file does not tell.
    """
    kind = noun or noun_of(path, format)
    if kind not in _READERS:
        raise InputError(f"unknown noun {kind!r}; expected one of {', '.join(_READERS)}")
    reader = _READERS[kind]
    unknown = [name for name in options if name not in inspect.signature(reader).parameters]
    if unknown:
        raise InputError(f"{path} holds {kind}; reading that takes no option {unknown[0]}")
    if kind in ("scores", "cost"):
        return reader(path)
    return reader(path, format=format, **options)


def write(
    noun: Vectors | Run | Judgments | Scores | Cost, path: Path | str, *, format: str | None = None
) -> None:
    """Write a noun: the whole file or nothing; an old file stays until the new one is complete.

    The format follows from the suffix; text is compressed for a last suffix .gz or .zst. "-" is
    standard output and needs `format`.

    Raises InputError for a noun that the format cannot hold, OSError on a full disk.
    """
    kind = type(noun).__name__.lower()
    if not isinstance(noun, Vectors | Run | Judgments | Scores | Cost):
        raise InputError(f"cannot write a {kind}; expected Vectors, Run, Judgments, Scores or Cost")
    writer = FORMATS[format_for(Path(path), kind, format, writing=True)].write[kind]
    with writing(path) as temporary:
        writer(noun, temporary)


def write_cost(cost: Cost, path: Path | str) -> None:
    """Write cost per query as parquet."""
    write(cost, path, format="parquet")


def write_dataset(
    path: Path | str,
    *,
    base: Vectors | None = None,
    queries: Vectors | None = None,
    truth: Run | None = None,
) -> None:
    """Write a data set: HDF5 of ann-benchmarks (.hdf5, .h5), else a VectorDBBench folder."""
    target = Path(path)
    if target.suffix.lower() not in (".hdf5", ".h5"):
        vdbbench.write_folder(target, base=base, queries=queries, truth=truth)
        return
    with writing(target) as temporary:
        hdf5.write_hdf5(temporary, base=base, queries=queries, truth=truth)


_READERS: dict[str, Callable[..., Any]] = {
    "vectors": read_vectors,
    "run": read_run,
    "judgments": read_judgments,
    "scores": read_scores,
    "cost": read_cost,
}


def noun_of(path: Path | str, format: str | None = None) -> str:
    """The noun a file holds: "vectors", "run", "judgments", "scores" or "cost".

    Raises InputError naming the function to call where the file does not tell.
    """
    return table.noun_of(_existing(path), format)


def _existing(path: Path | str) -> Path:
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(2, "no such file", str(path))
    return found


def _read(noun: str, path: Path | str, name: str | None, options: Options) -> Any:
    found = _existing(path)
    used = format_for(found, noun, name)
    if options.dataset is not None and not FORMATS[used].parts:
        raise InputError(f"{path}: a file of the format {used} has no parts; leave dataset out")
    return FORMATS[used].read[noun](found, options)
