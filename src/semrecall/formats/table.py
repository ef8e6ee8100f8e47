"""The table of formats: name -> suffixes, readers and writers of nouns. A format is one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from semrecall.errors import InputError
from semrecall.formats import (
    hdf5,
    ledgers,
    lines,
    matrix,
    neighbours,
    parquet,
    trec,
    vdbbench,
)
from semrecall.formats.files import bare_name, first_line, looks_like
from semrecall.formats.ranked import noun_of_names
from semrecall.formats.records import header_names, read_json_lines
from semrecall.registry import did_you_mean
from semrecall.text import json_read

__all__ = ["FORMATS", "NOUNS", "Format", "format_by_name", "format_for", "formats", "noun_of"]

NOUNS = ("vectors", "run", "judgments", "scores", "cost")

#: A reader takes (path, Options), a writer (noun, path of a new file).
Reader = Callable[..., Any]
Writer = Callable[..., None]


@dataclass(frozen=True)
class Format:
    """A file format.

    about: one line for `semrecall list`.
    suffixes: of file names, in lower case, without those of compression.
    read, write: noun -> function.
    parts: whether `dataset=` names a part of the file.
    read_runs: gives all runs of a file that may hold several, by name.
    """

    about: str
    suffixes: tuple[str, ...]
    read: Mapping[str, Reader]
    write: Mapping[str, Writer] = field(default_factory=dict)
    parts: bool = False
    read_runs: Reader | None = None


def _vecs(about: str, suffix: str, dtype: str) -> Format:
    return Format(
        about,
        (suffix,),
        {"vectors": partial(matrix.read_vecs, dtype=dtype)},
        {"vectors": partial(matrix.write_vecs, dtype=dtype)},
    )


def _bin(about: str, suffixes: tuple[str, ...], dtype: str) -> Format:
    return Format(
        about,
        suffixes,
        {"vectors": partial(matrix.read_bin, dtype=dtype)},
        {"vectors": partial(matrix.write_bin, dtype=dtype)},
    )


FORMATS: dict[str, Format] = {
    "parquet": Format(
        "our own for every noun, exact; tables of others by column names",
        (".parquet", ".pq"),
        {noun: getattr(parquet, f"read_{noun}") for noun in NOUNS},
        {noun: getattr(parquet, f"write_{noun}") for noun in NOUNS},
        parts=True,
        read_runs=parquet.read_runs,
    ),
    "npy": Format(
        "numpy array: vectors (n, d), or ids (n_queries, k)",
        (".npy",),
        {"vectors": matrix.read_npy, "run": neighbours.read_npy_ids},
        {"vectors": matrix.write_npy, "run": neighbours.write_npy_ids},
    ),
    "fvecs": _vecs("TEXMEX vectors, float32", ".fvecs", "<f4"),
    "bvecs": _vecs("TEXMEX vectors, uint8", ".bvecs", "u1"),
    "ivecs": Format(
        "TEXMEX ids, int32",
        (".ivecs",),
        {"run": neighbours.read_ivecs},
        {"run": neighbours.write_ivecs},
    ),
    "fbin": _bin("big-ann vectors, float32", (".fbin",), "<f4"),
    "f16bin": _bin("big-ann vectors, float16", (".f16bin", ".hbin", ".fp16bin"), "<f2"),
    "u8bin": _bin("big-ann vectors, uint8", (".u8bin",), "u1"),
    "i8bin": _bin("big-ann vectors, int8", (".i8bin",), "i1"),
    "ibin": Format(
        "big-ann ids, uint32",
        (".ibin",),
        {"run": neighbours.read_neighbours},
        {"run": neighbours.write_ibin},
    ),
    "bigann": Format(
        "big-ann ground truth: ids and distances",
        (".bin", ".gt", ".gt10", ".gt100", ".truth", ".groundtruth"),
        {"run": neighbours.read_neighbours},
        {"run": neighbours.write_neighbours},
    ),
    "bigann-range": Format(
        "big-ann range search results",
        (".rangegt", ".range", ".rangeres"),
        {"run": neighbours.read_neighbours},
        {"run": neighbours.write_range},
    ),
    "ledger": Format(
        "our ledger of labels by models and people (SQLite)",
        (".ledger", ".sqlite", ".db"),
        {"judgments": ledgers.read_judgments},
    ),
    "hdf5": Format(
        "ann-benchmarks and VIBE: train, test, neighbors, distances",
        (".hdf5", ".h5"),
        {"vectors": hdf5.read_vectors, "run": hdf5.read_run},
        {
            "vectors": lambda vectors, path: hdf5.write_hdf5(path, base=vectors),
            "run": lambda run, path: hdf5.write_hdf5(path, truth=run),
        },
        parts=True,
    ),
    "vectordbbench": Format(
        "a VectorDBBench folder: train, test and neighbors, joined on id",
        (),
        {"vectors": vdbbench.read_vectors, "run": vdbbench.read_run},
        parts=True,
    ),
    "jsonl": Format(
        "JSON lines: a result, a query or a judgment each; texts; evaluation sets",
        (".jsonl", ".ndjson", ".json"),
        {
            "run": lines.read_json_run,
            "judgments": lines.read_json_judgments,
            "vectors": lines.read_json_vectors,
        },
        {"run": lines.write_json_run, "judgments": lines.write_json_judgments},
        parts=True,
        read_runs=lines.read_json_runs,
    ),
    "trec": Format(
        "TREC run (6 fields) and qrels (4 fields)",
        (".trec", ".run", ".qrels", ".qrel", ".txt", ".res"),
        {"run": trec.read_run, "judgments": trec.read_qrels},
        {"run": trec.write_run, "judgments": trec.write_qrels},
        read_runs=trec.read_runs,
    ),
    "csv": Format(
        "comma-separated with a header: query_id, doc_id, score or rank or grade",
        (".csv",),
        {"run": lines.read_delimited_run, "judgments": lines.read_delimited_judgments},
        {"run": lines.write_delimited_run, "judgments": lines.write_delimited_judgments},
        read_runs=lines.read_delimited_runs,
    ),
    "tsv": Format(
        "tab-separated with a header, like csv",
        (".tsv", ".tab"),
        {"run": lines.read_delimited_run, "judgments": lines.read_delimited_judgments},
        {
            "run": partial(lines.write_delimited_run, delimiter="\t"),
            "judgments": partial(lines.write_delimited_judgments, delimiter="\t"),
        },
        read_runs=lines.read_delimited_runs,
    ),
    "beir": Format(
        "BEIR qrels: tab-separated query-id, corpus-id, score",
        (),
        {"judgments": lines.read_delimited_judgments},
        {"judgments": lines.write_beir_qrels},
    ),
    "msmarco": Format(
        "MS MARCO run: tab-separated query, document, rank, no header",
        (),
        {"run": lines.read_msmarco_run},
        {"run": lines.write_msmarco_run},
    ),
}


def formats() -> dict[str, Format]:
    """All formats by name."""
    return dict(FORMATS)


# -- which format ---------------------------------------------------------------------------


def format_for(path: Path, noun: str, named: str | None, *, writing: bool = False) -> str:
    """The name of the format to read or write `noun` with: the one named, or by suffix.

    A file to read whose suffix says nothing is looked into. Raises InputError naming what fits.
    """
    if named is not None:
        if named not in FORMATS:
            raise InputError(f"unknown format {named!r}", hint=did_you_mean(named, FORMATS))
        return _able(named, path, noun, writing)
    if path.is_dir() and not writing:
        return _able("vectordbbench", path, noun, writing)
    name = format_by_name(path)
    if name is None and not writing:
        name = _by_content(path)
    if name == "tsv" and not writing and trec.looks_like_trec(first_line(path)) == noun:
        name = "trec"
    if name == "tsv" and not writing and noun == "run" and _looks_like_msmarco(path):
        name = "msmarco"
    if name is None:
        raise InputError(
            f"the name {str(path)!r} does not say its format; known suffixes for {noun}: "
            f"{', '.join(_suffixes(noun, writing))}",
            hint="state the format (--from, --to on the command line, format= in Python)",
        )
    if name == "bigann" and noun == "vectors":
        raise InputError(
            f"{path}: the suffix .bin does not say of which type the vectors are",
            hint="state the format: fbin (float32), f16bin, u8bin or i8bin",
        )
    return _able(name, path, noun, writing)


def _able(name: str, path: Path, noun: str, writing: bool) -> str:
    able = FORMATS[name].write if writing else FORMATS[name].read
    if noun in able:
        return name
    verb = "writes" if writing else "holds"
    others = [n for n, f in FORMATS.items() if noun in (f.write if writing else f.read)]
    raise InputError(
        f"{path}: the format {name} {verb} {' or '.join(able) or 'nothing'}, not {noun}",
        hint=f"formats for {noun}: {', '.join(others)}",
    )


def _suffixes(noun: str, writing: bool) -> list[str]:
    rows = FORMATS.values()
    return [s for f in rows if noun in (f.write if writing else f.read) for s in f.suffixes]


def format_by_name(path: Path) -> str | None:
    """The format that a file's suffix says; None where it says none."""
    name = bare_name(path)
    return next((n for n, f in FORMATS.items() if name.endswith(f.suffixes)), None)


def _by_content(path: Path) -> str | None:
    """By the first bytes, or the first line of a text."""
    known = {"a parquet file": "parquet", "a .npy file": "npy", "an HDF5 file": "hdf5"}
    what = looks_like(path)
    if what in known:
        return known[what]
    if what is not None and "compressed" not in what:
        return None
    line = first_line(path)
    if line.lstrip().startswith("{"):
        return "jsonl"
    if _looks_like_msmarco(path):
        return "msmarco"
    return "trec" if _noun_of_trec(path) else None


# -- which noun -----------------------------------------------------------------------------


def noun_of(path: Path, name: str | None) -> str:
    """The noun a file holds; InputError naming the reader to call where it can hold several."""
    if name is None and not path.is_dir():
        name = format_by_name(path) or _by_content(path)
    if name == "hdf5" and not path.is_dir() and not hdf5.holds_neighbours(path):
        return "vectors"
    if path.is_dir() or name in ("hdf5", "vectordbbench"):
        raise InputError(
            f"{path} holds vectors and their true neighbours",
            hint='say which: read_vectors(path, dataset="train" or "test") or read_run(path); '
            "--as vectors or --as run on the command line",
        )
    if name is None or name not in FORMATS:
        return format_for(path, "vectors", name)
    nouns = list(FORMATS[name].read)
    noun = nouns[0] if len(nouns) == 1 else _LOOK[name](path)
    if noun is None:
        raise InputError(
            f"{path}: the file does not tell which it holds: {', '.join(nouns)}",
            hint=f"say which: {', '.join(f'read_{n}(path)' for n in nouns)}; "
            "--as on the command line",
        )
    if noun == "texts":
        raise InputError(
            f"{path} holds texts; expected vectors, a run, judgments, scores or cost",
            hint="read_texts(path) reads texts",
        )
    return noun


def _noun_of_npy(path: Path) -> str:
    kind = matrix.map_npy(path).dtype
    # Eight-bit integers are vectors; ids need more.
    return "run" if kind.kind in "UT" or (kind.kind in "iu" and kind.itemsize > 1) else "vectors"


def _noun_of_json(path: Path) -> str | None:
    line = first_line(path)

    try:
        record = json_read(line)
    except ValueError:
        # The reader says what is wrong with the file.
        record = read_json_lines(path).columns
    return noun_of_names(record) if isinstance(record, dict) else None


def _noun_of_delimited(path: Path) -> str | None:
    known = noun_of_names(header_names(path)) or trec.looks_like_trec(first_line(path))
    return "run" if known is None and _looks_like_msmarco(path) else known


def _looks_like_msmarco(path: Path) -> bool:
    """Whether the first line is query, document and a rank, as no header is."""
    fields = first_line(path).split("\t")
    return len(fields) == 3 and fields[2].strip().isdecimal()


def _noun_of_trec(path: Path) -> str | None:
    line = first_line(path)
    return trec.looks_like_trec(line) or trec.looks_like_trec(first_line(path, comment="#"))


_LOOK: dict[str, Callable[[Path], str | None]] = {
    "parquet": parquet.noun_in,
    "npy": _noun_of_npy,
    "jsonl": _noun_of_json,
    "csv": _noun_of_delimited,
    "tsv": _noun_of_delimited,
    "trec": _noun_of_trec,
}
