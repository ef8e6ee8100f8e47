"""A table of TOML against what it may hold: every fault, with its line, in one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semrecall.errors import InputError, SemrecallError
from semrecall.registry import did_you_mean
from semrecall.text import plural

__all__ = ["Checker", "Kind", "flag", "number", "one_of", "texts", "whole", "words"]

#: Takes a value and gives it as it is used; raises ValueError saying what was expected.
Kind = Callable[[Any], Any]


@dataclass
class Checker:
    """The faults of one file. lines: the line of a key, by its path."""

    file: Path
    lines: Mapping[tuple[str | int, ...], int]
    faults: list[tuple[int, str]] = field(default_factory=list)

    def line(self, *path: str | int) -> int:
        """The line of a key, else of the nearest table around it that is known; 0 without any."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return 0

    def add(self, message: str, *path: str | int) -> None:
        """One more fault, at the key of this path."""
        self.faults.append((self.line(*path), message))

    def take(
        self, found: Any, kinds: Mapping[str, Kind], *path: str | int, needs: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The values of a table that are right; the others are faults, unknown keys as well."""
        where = _table_name(path)
        if not isinstance(found, dict):
            self.add(f"{where} is {found!r}; expected a table", *path)
            return {}
        taken: dict[str, Any] = {}
        for key, value in found.items():
            if key not in kinds:
                hint = did_you_mean(key, kinds)
                self.add(f"unknown key {key!r} in {where}; {hint}", *path, key)
                continue
            try:
                taken[key] = kinds[key](value)
            except SemrecallError as error:
                hint = f" ({error.hint})" if error.hint else ""
                self.add(f"{key}: {error.message}{hint}", *path, key)
            except ValueError as error:
                self.add(f"{key} is {value!r}; expected {error}", *path, key)
        for key in needs:
            if key not in found:
                self.add(f"{where} has no {key}", *path)
        return taken

    def settle(self) -> None:
        """Raise an InputError with all faults, in the order of their lines, where there are any."""
        if not self.faults:
            return
        said = [
            f"line {line}: {message}" if line else message for line, message in sorted(self.faults)
        ]
        if len(said) == 1:
            raise InputError(f"{self.file}: {said[0]}")
        lines = "".join(f"\n  {message}" for message in said)
        raise InputError(f"{self.file}: {plural(len(said), 'fault')}:{lines}")


def _table_name(path: tuple[str | int, ...]) -> str:
    if not path:
        return "the file"
    names = [str(part) for part in path if isinstance(part, str)]
    return f"[[{names[0]}]]" if len(names) < len(path) else f"[{'.'.join(names)}]"


def words(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A text or a list of texts."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(v, str) and v for v in listed):
        raise ValueError("a list of texts")
    return tuple(listed)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def number(value: Any) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError("a number")
    return float(value)


def whole(least: int) -> Kind:
    """Whole numbers from `least` on."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number of at least {least}")
        return value

    return check


def one_of(*known: str) -> Kind:
    """One of some words."""

    def check(value: Any) -> str:
        if value not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return str(value)

    return check
