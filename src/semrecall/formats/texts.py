"""What belongs to queries and documents beside vectors: texts, columns, ids, allowed ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.data.allowed import Allowed
from semrecall.data.ids import Ids, ids
from semrecall.data.pairs import Pairs
from semrecall.data.run import DOC_COLUMNS, QUERY_COLUMNS
from semrecall.formats.evaluation import GRADES, line_ids
from semrecall.formats.files import Faults, bare_name, fault, named, read_text
from semrecall.formats.matrix import map_npy
from semrecall.formats.parquet import ID_NAMES
from semrecall.formats.records import (
    Records,
    decode,
    header_names,
    is_data,
    read_delimited,
    read_json_lines,
    read_parquet_records,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "QUERY_NAMES",
    "read_allowed",
    "read_columns",
    "read_documents",
    "read_ids",
    "read_listed_pairs",
    "read_records",
    "read_texts",
]

_TEXT_NAMES = ("text", "contents", "content", "body", "passage", "query", "question")
#: Names of columns that hold the ids of queries, most usual first.
QUERY_NAMES = ("query_id", "id", "_id", "qid", "query-id")
_IMAGE_NAMES = ("image", "image_path", "image_url")
_NO_NUMBERS: frozenset[str] = frozenset()


def read_texts(path: Path | str) -> dict[str, str]:
    """Texts by id, of a corpus or of queries, from JSON lines, CSV, TSV or parquet.

    A record has an id (`id`, `_id`, `doc_id`, `query_id`, ...) and a `text`; a `title` comes
    before the text on a line of its own. A TSV file without a header is id and text.

    Raises FormatError, naming the lines, for records without id or text and for repeated ids.
    """
    return {name: text for name, (text, _) in read_documents(path, images=False).items()}


def read_documents(path: Path | str, *, images: bool = True) -> dict[str, tuple[str, str | None]]:
    """(text, image) by id, like `read_texts`; the image is a path or an address, or None.

    Images are in a column `image` (`image_path`, `image_url`); a path is that from the folder of
    the file. With an image a document needs no text.

    Raises FormatError, naming the lines, for records without id or content and for repeated ids.
    """
    path = Path(path)
    records = _without_header(path) or read_records(path)
    columns = records.columns
    image_name = next((n for n in _IMAGE_NAMES if images and n in columns), None)
    if GRADES in columns:
        names = line_ids(records)
    else:
        id_name = _name_of(records, ID_NAMES, "ids")
        with named(path):
            names = ids(columns[id_name])
    pictures = _strings(columns[image_name]) if image_name else [None] * len(names)
    if image_name and not set(_TEXT_NAMES) & set(columns):
        texts: list[str | None] = [""] * len(names)
    else:
        texts = _strings(columns[_name_of(records, _TEXT_NAMES, "texts")])
    titles = _strings(columns["title"]) if "title" in columns else [""] * len(texts)
    faults = Faults(path)
    faults.add_all(np.flatnonzero(names.missing).tolist(), lambda at: f"{records.place(at)}: no id")
    gaps = [at for at, t in enumerate(texts) if t is None and not pictures[at]]
    faults.add_all(gaps, lambda at: f"{records.place(at)}: no text")
    twice = names.first_duplicate()
    if twice is not None:
        faults.add(
            f"the id {names[twice[0]]!r} stands at {records.place(twice[0])} and again at "
            f"{records.place(twice[1])}"
        )
    faults.settle()
    rows = zip(names.strings().tolist(), titles, texts, pictures, strict=True)
    return {
        name: (f"{title}\n{text or ''}" if title else text or "", _located(picture, path))
        for name, title, text, picture in rows
    }


def _located(picture: str | None, path: Path) -> str | None:
    """Where an image is: its address, or its path from the folder of the file that names it."""
    if not picture or "://" in picture or picture.startswith("data:"):
        return picture or None
    return str(path.parent / picture)


def read_listed_pairs(path: Path) -> Pairs:
    """Pairs of a plain list: JSON lines, CSV or parquet with query_id and doc_id.

    Raises FormatError, naming the lines, for records without ids.
    """
    with named(path):
        records = read_records(path)
        if not records.columns:
            raise fault(path, "the file is empty; expected pairs: query_id, doc_id")
        queries = ids(records.columns[_name_of(records, QUERY_COLUMNS, "query ids")])
        documents = ids(records.columns[_name_of(records, DOC_COLUMNS, "document ids")])
        faults = Faults(path)
        gone = queries.missing | documents.missing
        faults.add_all(
            np.flatnonzero(gone).tolist(),
            lambda at: f"{records.place(at)}: no query id or no document id",
        )
        details = {}
        if "probability" in records.columns:
            values = records.columns["probability"]
            listed = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
            details["probability"] = np.array([_chance(value) for value in listed])
            faults.add_all(
                np.flatnonzero(~(details["probability"] <= 1)).tolist(),
                lambda at: (
                    f"{records.place(at)}: the probability is {listed[at]!r}; expected a "
                    "number above 0, at most 1"
                ),
            )
        faults.settle()
        return Pairs.of_columns(queries, documents, details)


def _chance(value: Any) -> float:
    """A probability; NaN for what is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return float("nan")
    return found if found > 0 else float("nan")


def read_columns(path: Path | str) -> dict[str, Any]:
    """Metadata of queries by column, from JSON lines, CSV, TSV or parquet.

    The ids come as `query_id` (from a column query_id, id, _id or qid), as `Ids`; the others as
    numpy arrays of equal length. Text columns of numbers become numbers, unless a value like
    "007" would change; a nested field `metadata` gives columns `metadata.<name>`. Of an evaluation
    set, whose queries may go by line number, the grades are left out.
    """
    path = Path(path)
    records = read_records(path)
    if GRADES in records.columns:
        id_name = next((n for n in QUERY_NAMES if n in records.columns), GRADES)
        queries = line_ids(records)
    else:
        id_name = _name_of(records, QUERY_NAMES, "query ids")
        with named(path):
            queries = ids(records.columns[id_name], what="query ids")
    twice = queries.first_duplicate()
    if twice is not None:
        raise fault(
            path,
            f"query {queries[twice[0]]!r} stands at {records.place(twice[0])} and at "
            f"{records.place(twice[1])}; expected one record a query",
        )
    others = {n: c for n, c in records.columns.items() if n not in (id_name, GRADES)}
    found: dict[str, Any] = {"query_id": queries}
    for name, column in _flattened(others):
        found[name] = _typed(column)
    return found


def read_allowed(
    path: Path | str, *, bits: Literal["big", "little"] | None = None, rows: int | None = None
) -> dict[str | int, Ids] | NDArray[np.bool_] | Allowed:
    """Which documents a filter allows, per query.

    JSON lines {query_id, ids} or a parquet table (query_id, doc_id) give {query id: ids}. A
    `.npy` mask of booleans, shape (n,) for all queries or (n_queries, n), gives the array; one of
    packed bits (uint8, eight rows a byte) gives `Allowed`.

    bits: where packed bits have the first of eight rows: in the highest ("big") or in the lowest
        bit. rows: how many the base has. Packed bits need both.
    """
    path = Path(path)
    if bare_name(path).endswith(".npy"):
        mask = map_npy(path)
        if mask.dtype == np.uint8 and mask.ndim in (1, 2):
            if bits is None or rows is None:
                raise fault(
                    path,
                    "holds uint8, which may be packed bits",
                    "say where the first of eight rows is: --filter-bits big (numpy.packbits) or "
                    "little (faiss, Arrow)",
                )
            with named(path):
                return Allowed.of_bits(mask, rows, order=bits)
        if mask.dtype != np.bool_ or mask.ndim not in (1, 2):
            raise fault(
                path,
                f"holds {mask.dtype} of shape {mask.shape}; expected booleans of shape (n,) or "
                "(n_queries, n)",
            )
        return mask
    records = read_records(path)
    query_name = _name_of(records, QUERY_NAMES, "query ids")
    with named(path):
        queries = ids(records.columns[query_name], what="query ids")
        if "ids" in records.columns:
            lists = _lists(records.columns["ids"])
            return {q: ids(row) for q, row in zip(queries, lists, strict=True)}
        documents = ids(records.columns[_name_of(records, DOC_COLUMNS, "document ids")])
    allowed: dict[str | int, Ids] = {}
    order = np.argsort(queries.codes, kind="stable")
    cuts = np.flatnonzero(np.diff(queries.codes[order])) + 1
    for part in np.split(order, cuts) if len(order) else []:
        allowed[queries[int(part[0])]] = documents[part]
    return allowed


def read_ids(path: Path | str) -> Ids:
    """Ids of vectors: one a line in a text file, or a `.npy` column."""
    path = Path(path)
    with named(path):
        if bare_name(path).endswith(".npy"):
            return ids(np.array(map_npy(path)))
        return ids(decode(path, read_text(path)).splitlines())


# -- records --------------------------------------------------------------------------------


def read_records(path: Path) -> Records:
    """The records of a JSON lines, CSV, TSV or parquet file, every column."""
    name = bare_name(path)
    if name.endswith((".parquet", ".pq")):
        return read_parquet_records(path)
    if name.endswith((".csv", ".tsv")):
        return read_delimited(path, numbers=_NO_NUMBERS)
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return read_json_lines(path, numbers=None)
    raise fault(
        path, "expected JSON lines (.jsonl), .csv, .tsv or .parquet, text also as .gz or .zst"
    )


def _without_header(path: Path) -> Records | None:
    """A TSV file of id and text without a header; quotes are plain characters there."""
    if not bare_name(path).endswith(".tsv"):
        return None
    names = header_names(path)
    if len(names) != 2 or set(names) & {*ID_NAMES, *_TEXT_NAMES}:
        return None
    columns: dict[str, Any] = {"id": [], "text": []}
    lines: list[int] = []
    for line_number, line in enumerate(decode(path, read_text(path)).split("\n"), 1):
        if line.strip():
            name, tab, text = line.rstrip("\r").partition("\t")
            columns["id"].append(name.strip())
            columns["text"].append(text if tab else None)
            lines.append(line_number)
    return Records(path, columns, lambda: lines)


def _name_of(records: Records, names: tuple[str, ...], what: str) -> str:
    found = next((n for n in names if n in records.columns), None)
    if found is None:
        columns = ", ".join(records.columns) or "none"
        data = records.unit == "line" and is_data(records.columns, names)
        raise fault(
            records.path,
            f"no column for {what}: found columns {columns}; expected {names[0]!r}",
            "line 1 looks like data: put a header with the names of the columns above it"
            if data
            else None,
        )
    return found


def _strings(column: Any) -> list[str | None]:
    values = column.to_pylist() if hasattr(column, "to_pylist") else column
    return [None if v is None else str(v) for v in values]


def _lists(column: Any) -> list[list[Any]]:
    values = column.to_pylist() if hasattr(column, "to_pylist") else column
    return [v if v is not None else [] for v in values]


def _flattened(columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, column in columns.items():
        values = column.to_pylist() if hasattr(column, "to_pylist") else column
        if any(isinstance(v, dict) for v in values):
            rows = [v or {} for v in values]
            for inner in dict.fromkeys(key for row in rows for key in row):
                yield f"{name}.{inner}", [row.get(inner) for row in rows]
        else:
            yield name, values


def _typed(values: list[Any]) -> NDArray[Any]:
    """Numbers where every value is one and prints as it was written, else objects."""
    texts = [v for v in values if isinstance(v, str)]
    if len(texts) == len(values) and texts:
        for kind in (int, float):
            try:
                numbers = [kind(t) for t in texts]
            except ValueError:
                continue
            if all(str(n) == t for n, t in zip(numbers, texts, strict=True)):
                return np.array(numbers)
        return np.array([*texts, None], dtype=object)[:-1]
    if any(v is None or isinstance(v, list | dict) for v in values) or texts:
        return np.array([*values, None], dtype=object)[:-1]
    return np.array(values)
