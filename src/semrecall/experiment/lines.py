"""Where the keys of a TOML text stand, for messages: the parser itself does not tell."""

from __future__ import annotations

import re

__all__ = ["key_lines"]

Place = tuple[str | int, ...]
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")


def key_lines(text: str) -> dict[Place, int]:
    """The line, from 1, of every table and key by its path; members of [[x]] are x, 0; x, 1; ...

    Keys inside inline tables and text over several lines are not looked into.
    """
    found: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            table = _parts(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                found.setdefault(table, number)
                table = (*table, counts[table])
            found.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key is not None:
            parts = _parts(key[1])
            for depth in range(1, len(parts) + 1):
                found.setdefault((*table, *parts[:depth]), number)
    return found


def _parts(text: str) -> Place:
    return tuple(next(filter(None, groups), "") for groups in _PART.findall(text))
