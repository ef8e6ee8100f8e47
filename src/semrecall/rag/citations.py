"""Citations: marks such as [2] in an answer, and the contexts that they name."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

__all__ = ["cited_ids", "is_lost", "marks"]

_MARK = re.compile(r"\[([^\[\]]{1,80})\]")
#: "[1999]" is a year rather than the 1,999th context.
_DIGITS = 3
_RANGE = re.compile(r"(\d{1,3})\s*[-–]\s*(\d{1,3})")


def marks(text: str, ids: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A sentence without its marks ([2], [1, 3], [2-4], [doc7]), and the ids that they name.

    ids: of the contexts, in order; a number that is none of them is a place, counted from 1. A
    number beyond the last is a citation of what was not read; any other word in brackets is text.
    """
    cited: list[str] = []

    def taken(match: re.Match[str]) -> str:
        names = [name for part in match[1].split(",") for name in _names(part.strip(), ids)]
        if not names or not all(name in ids or is_lost(name, ids) for name in names):
            return match[0]
        cited.extend(names)
        return ""

    bare = _MARK.sub(taken, text)
    return " ".join(re.sub(r"\s+([.,;:!?])", r"\1", bare).split()), tuple(dict.fromkeys(cited))


def cited_ids(given: str | int | Sequence[str | int], ids: Sequence[str]) -> tuple[str, ...]:
    """The ids of what a statement cites, by ids or places, each once."""
    names = [given] if isinstance(given, str | int) else list(given)
    return tuple(dict.fromkeys(_named(str(name), ids) for name in names))


def is_lost(name: str, ids: Collection[str]) -> bool:
    """Whether a mark names a context that was not read."""
    return name not in ids and name.isdecimal() and len(name) <= _DIGITS


def _names(part: str, ids: Sequence[str]) -> list[str]:
    span = None if part in ids else _RANGE.fullmatch(part)
    if span is None:
        return [_named(part, ids)]
    return [_named(str(n), ids) for n in range(int(span[1]), int(span[2]) + 1)]


def _named(name: str, ids: Sequence[str]) -> str:
    if name in ids or not name.isdecimal() or not 1 <= int(name) <= len(ids):
        return name
    return ids[int(name) - 1]
