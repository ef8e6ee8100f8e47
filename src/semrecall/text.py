"""Plain text: columns that line up, numbers as people read them."""

from __future__ import annotations

import json
import math
import shutil
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = [
    "WIDTH", "aligned", "cell", "display_width", "json_read", "json_value", "narrowed", "number",
    "one_line", "plural", "share", "shortened", "terminal_width", "wrapped",
]  # fmt: skip

#: Columns that a table may take where nobody says how wide the terminal is, and at most.
WIDTH = 100
_NARROWEST = 30

#: What stands where there is no value.
NOTHING = "-"


def terminal_width() -> int:
    """Columns that a table may take: those of the terminal, or $COLUMNS, at most WIDTH."""
    return max(_NARROWEST, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def number(value: int | float | None, digits: int = 4) -> str:
    """A number as text: counts with thousands marked, fractions with `digits` decimals.

    None and NaN are "-". Fractions too small or too large for fixed decimals have `digits`
    significant ones; what is not exactly 0 or 1 is never shown as 0 or 1.
    """
    if value is None or math.isnan(value):
        return NOTHING
    if not isinstance(value, float):
        return f"{value:,}"
    if math.isinf(value) or abs(value) >= 1e6 or 0 < abs(value) < 10.0**-digits:
        return f"{value:.{digits}g}"
    text = f"{value:.{digits}f}"
    if float(text) in (0.0, 1.0, -1.0) and float(text) != value:
        # 0.99999 is not 1: show as many nines as it takes.
        return number(value, digits + 1) if digits < 15 else repr(value)
    return text


def share(value: float) -> str:
    """A share in percent with one decimal; what is not exactly none or all never looks like it."""
    if math.isnan(value):
        return NOTHING
    if 0 < value < 0.0005:
        return "<0.1%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{value:.1%}"


def cell(value: Any, digits: int = 4) -> str:
    """Any value as the text of one table cell."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) or (hasattr(value, "dtype") and value.ndim == 0):
        return number(value.item() if hasattr(value, "item") else value, digits)
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {cell(v, digits)}" for k, v in value.items()) or NOTHING
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(cell(v, digits) for v in value) or NOTHING
    return one_line(str(value))


#: Characters that turn the direction of all that follows; a name has no use for them.
_TURNS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def one_line(text: str) -> str:
    """The text with line breaks, tabs and control characters as single blanks."""
    shown = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    return " ".join(shown.translate(_TURNS).split())


def json_read(text: str | bytes, **options: Any) -> Any:
    """What `json.loads` makes of it; JSONDecodeError also for what is nested too deep."""
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        raise json.JSONDecodeError("nested too deep", plain, 0) from error


def json_value(text: str | bytes) -> Any:
    """The value that JSON text holds.

    Raises json.JSONDecodeError, also for a string with half a character (one of two surrogates):
    no file in UTF-8 can hold it, and it is there only where somebody cut a text.
    """
    value = json_read(text)
    marks: Any = (b"\\ud", b"\\uD") if isinstance(text, bytes) else ("\\ud", "\\uD")
    if any(mark in text for mark in marks):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start].encode("ascii", "backslashreplace").decode()
            plain = text.decode() if isinstance(text, bytes) else text
            at = max(plain.lower().find(half), 0)
            raise json.JSONDecodeError(f"half a character, {half}", plain, at) from error
    return value


def display_width(text: str) -> int:
    """How many columns of a terminal the text takes: wide letters two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    marks = sum(unicodedata.category(c) in ("Mn", "Me", "Cf") for c in text)
    return len(text) + wide - marks


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool], gap: str = "  ") -> list[str]:
    """Rows of cells as lines of text; `right` says which columns stand to the right.

    On a narrow terminal a row goes on below itself, indented: its line has line breaks then.
    """
    widths = [max(display_width(row[c]) for row in rows) for c in range(len(right))]
    parts = _folds(widths, len(gap))
    lines = []
    for row in rows:
        cells = []
        for text, width, to_right in zip(row, widths, right, strict=True):
            blanks = " " * (width - display_width(text))
            cells.append(blanks + text if to_right else text + blanks)
        folded = (gap.join(cells[start:end]).rstrip() for start, end in parts)
        lines.append(("\n" + _INDENT).join(folded))
    return lines


_INDENT = "    "


def _folds(widths: Sequence[int], gap: int) -> list[tuple[int, int]]:
    """From which column to which each line of a row goes: one line, where the terminal has room."""
    room = terminal_width()
    if room == WIDTH or sum(widths) + gap * (len(widths) - 1) <= room:
        return [(0, len(widths))]
    starts, taken = [0], -gap
    for at, width in enumerate(widths):
        if taken + gap + width > room and at > starts[-1]:
            starts.append(at)
            taken = len(_INDENT) - gap
        taken += gap + width
    return list(zip(starts, [*starts[1:], len(widths)], strict=True))


def narrowed(lines_of: Callable[[int], list[str]]) -> list[str]:
    """Lines whose names are cut at a width: the widest of 30 to 8 with which all lines fit."""
    for width in range(30, 7, -2):
        lines = lines_of(width)
        if max(map(display_width, lines), default=0) <= terminal_width():
            break
    return lines


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun: 1 query, 2,000 queries."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shortened(name: str, width: int = 30) -> str:
    """A name on one line, at most `width` columns wide, with an ellipsis in its middle."""
    name = one_line(name)
    if display_width(name) <= width:
        return name
    # The end of a name tells settings apart as often as its start.
    start = _first_columns(name, width // 2)
    end = _first_columns(name[::-1], width - 1 - display_width(start))[::-1]
    return f"{start}…{end}"


def _first_columns(text: str, width: int) -> str:
    """As much of the text from its start on as fits into so many columns."""
    taken = 0
    for at, character in enumerate(text):
        taken += display_width(character)
        if taken > width:
            return text[:at]
    return text


def wrapped(line: str, width: int | None = None, indent: str = "  ") -> list[str]:
    """The line, broken at blanks where it is too wide; what follows is indented.

    width: as wide as the terminal, if absent.
    """
    width = terminal_width() if width is None else width
    lines, rest = [], line
    while display_width(rest) > width:
        fits = len(_first_columns(rest, width))
        # Blanks at the start are an indent, and no place to break.
        at = rest.rfind(" ", len(rest) - len(rest.lstrip()), fits + 1)
        if at < 0:
            break
        lines.append(rest[:at])
        rest = indent + rest[at + 1 :].lstrip()
    return [*lines, rest]
