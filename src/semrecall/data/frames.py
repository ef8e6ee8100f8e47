"""Frames in and out: pandas, polars and arrow tables, none of them imported for it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from semrecall.errors import InputError, MissingExtra

__all__ = ["columns_of", "pick_column", "to_library"]


def columns_of(frame: Any) -> dict[str, Any]:
    """The columns of a mapping, an arrow table, or a pandas or polars frame, by name."""
    if isinstance(frame, Mapping):
        return dict(frame)
    if hasattr(frame, "column_names") and hasattr(frame, "column"):
        return {name: frame.column(name) for name in frame.column_names}
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        return {str(name): frame[name] for name in frame.columns}
    raise InputError(
        f"a {type(frame).__name__} is not a frame; expected pandas, polars, an arrow table "
        "or a mapping of columns"
    )


def pick_column(columns: Mapping[str, Any], names: Sequence[str], what: str) -> Any:
    """The first of `names` that is a column; InputError naming what is there when none is."""
    for name in names:
        if name in columns:
            return columns[name]
    found = ", ".join(columns) or "none"
    raise InputError(f"no column for {what}: found columns {found}; expected {names[0]!r}")


def to_library(table: Any, library: str) -> Any:
    """An arrow table as a frame of `library`: "pandas", "polars" or "arrow"."""
    if library == "arrow":
        return table
    if library not in ("pandas", "polars"):
        raise InputError(f"unknown frame library {library!r}; expected pandas, polars or arrow")
    try:
        module = sys.modules.get(library) or importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            library, library, f'a {library} frame (library="arrow" needs none)'
        ) from error
    return table.to_pandas() if library == "pandas" else module.from_arrow(table)
