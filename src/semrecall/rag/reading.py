"""Where records come from: files of lines, of one value or of columns; frames; mappings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from semrecall.data.frames import columns_of
from semrecall.errors import FormatError, InputError
from semrecall.formats.files import fault, named, read_text
from semrecall.text import json_value

__all__ = ["is_absent", "rows_of"]

#: Where an object holds the rows of its file.
_ROWS = ("examples", "testCases", "test_cases", "records", "data", "rows")

#: The question of a row, or None.
_Question = Callable[[Mapping[str, Any]], Any]


def rows_of(source: Any, question: _Question) -> Iterable[tuple[str, Any]]:
    """(where it stands, row) of a path, a frame, or an iterable of mappings."""
    if isinstance(source, str | Path):
        return _in_file(Path(source), question)
    if not isinstance(source, Mapping) and (
        hasattr(source, "columns") or hasattr(source, "column_names")
    ):
        return _numbered("row", _transposed(columns_of(source)))
    if isinstance(source, Mapping):
        return _numbered("record", _inside(source, question))
    return _numbered("record", source)


def is_absent(value: Any) -> bool:
    """Whether a cell is empty: None, or NaN as frames write it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _numbered(what: str, rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{what} {at}", row) for at, row in enumerate(rows, 1))


def _in_file(path: Path, question: _Question) -> Iterable[tuple[str, Any]]:
    with named(path):
        if path.suffix.lower() == ".parquet":
            return _numbered(f"{path}, row", _parquet(path))
        data = read_text(path)
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise fault(path, f"it is not UTF-8 text (byte {error.start})") from error
    try:
        whole = json_value(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("["):
            raise FormatError(f"{path}, line {error.lineno}: no JSON ({error.msg})") from error
        return _lines(path, text)
    with named(path):
        found = _inside(whole, question) if isinstance(whole, Mapping) else whole
    return _numbered(f"{path}, record", found if isinstance(found, list) else [found])


def _parquet(path: Path) -> list[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[Any] = pq.read_table(path).to_pylist()
    except pa.ArrowInvalid as error:
        raise fault(path, f"it cannot be read as parquet ({error})") from error
    return rows


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    # Not splitlines(): U+2028 and its like may stand in a JSON string.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json_value(line)
            except json.JSONDecodeError as error:
                raise FormatError(f"{path}, line {number}: no JSON ({error.msg})") from error


def _inside(whole: Mapping[str, Any], question: _Question) -> list[Any]:
    """The rows of one object: those that it lists, its columns, or the one that it is."""
    asked = question(whole)
    if asked is None:
        listed = next((whole[name] for name in _ROWS if isinstance(whole.get(name), list)), None)
        return [whole] if listed is None else listed
    if isinstance(asked, list):
        return _transposed({k: v for k, v in whole.items() if isinstance(v, list)})
    return [whole]


def _transposed(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of columns; what is not there is left out."""
    listed = {
        str(k): v.to_pylist() if hasattr(v, "to_pylist") else list(v) for k, v in columns.items()
    }
    lengths = sorted({len(column) for column in listed.values()})
    if len(lengths) > 1:
        raise InputError(
            f"columns of {lengths[0]:,} and of {lengths[-1]:,} values; expected one length"
        )
    return [
        {k: v for k, v in zip(listed, row, strict=True) if not is_absent(v)}
        for row in zip(*listed.values(), strict=True)
    ]
