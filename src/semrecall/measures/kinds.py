"""Kinds of parameters: how a measure's parameters are written, read and printed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "BETWEEN",
    "FLAG",
    "NUMBER",
    "PERCENT",
    "PORTION",
    "POSITIVE",
    "SHARE",
    "Kind",
    "Value",
    "choice",
    "map_or",
    "number_or",
    "percent_or",
]

#: A map from numbers to numbers is kept as pairs, in rising order.
Value: TypeAlias = float | str | bool | tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Kind:
    """How the values of a parameter are read and printed.

    read: text, or a Python value -> the canonical value, or None when it is none.
    """

    expected: str
    read: Callable[[Any], Value | None]
    show: Callable[[Any], str]


def choice(*words: str) -> Kind:
    """One of a few words, in any case."""

    def read(value: Any) -> str | None:
        word = value.strip().lower() if isinstance(value, str) else None
        return word if word in words else None

    return Kind(" or ".join(words), read, str)


def percent_or(*words: str) -> Kind:
    """A share of at least 0, printed in percent, or one of a few words."""
    return _or(PERCENT, words)


def number_or(*words: str) -> Kind:
    """A number, or one of a few words."""
    return _or(NUMBER, words)


def map_or(*words: str) -> Kind:
    """A map from numbers to numbers, as in {0:0,1:1,2:3}, or one of a few words."""
    return _or(_MAP, words)


def _or(kind: Kind, words: tuple[str, ...]) -> Kind:
    word = choice(*words)

    def read(value: Any) -> Value | None:
        named = word.read(value)
        return named if named is not None else kind.read(value)

    def show(value: Any) -> str:
        return value if isinstance(value, str) else kind.show(value)

    return Kind(f"{', '.join(words)} or {kind.expected}", read, show)


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*%?", re.IGNORECASE)


def _number(value: Any) -> float | None:
    """A finite number, from a number or from text such as 0.01, 1e-2 or 1%."""
    if isinstance(value, str):
        if _NUMBER.fullmatch(value.strip()) is None:
            return None
        digits = value.strip().rstrip("%").strip()
        exact = Decimal(digits) / (100 if value.strip().endswith("%") else 1)
        value = float(exact)
    elif isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return None
    # Adding 0.0 turns -0.0 into 0.0, which prints and compares the same.
    return float(value) + 0.0 if math.isfinite(value) else None


def _show_number(value: float) -> str:
    return f"{int(value)}" if float(value).is_integer() else repr(float(value))


def _show_percent(value: float) -> str:
    exact = (Decimal(repr(float(value))) * 100).normalize()
    return f"{exact:f}%"


def _number_where(holds: Callable[[float], bool]) -> Callable[[Any], float | None]:
    def read(value: Any) -> float | None:
        number = _number(value)
        return number if number is not None and holds(number) else None

    return read


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else None
    return {"true": True, "yes": True, "false": False, "no": False}.get(word or "")


def _map(value: Any) -> tuple[tuple[float, float], ...] | None:
    """Pairs in rising order, from a mapping, pairs, or text such as {0:0, 1:1}."""
    if isinstance(value, str):
        inside = re.fullmatch(r"\s*\{(.*)\}\s*", value)
        if inside is None:
            return None
        value = [part.split(":") for part in inside[1].split(",")]
    elif isinstance(value, Mapping):
        value = list(value.items())
    if not isinstance(value, list | tuple) or not value:
        return None
    pairs: dict[float, float] = {}
    for pair in value:
        numbers = [_number(n) for n in pair] if isinstance(pair, list | tuple) else []
        if len(numbers) != 2 or None in numbers or numbers[0] in pairs:
            return None
        pairs[numbers[0]] = numbers[1]  # type: ignore[index,assignment]
    return tuple(sorted(pairs.items()))


def _show_map(value: tuple[tuple[float, float], ...]) -> str:
    return "{" + ",".join(f"{_show_number(k)}:{_show_number(v)}" for k, v in value) + "}"


NUMBER = Kind("a number", _number, _show_number)
POSITIVE = Kind("a number above 0", _number_where(lambda v: v > 0), _show_number)
PERCENT = Kind(
    "a number of at least 0, such as 1% or 0.01", _number_where(lambda v: v >= 0), _show_percent
)
SHARE = Kind("a number above 0 and at most 1", _number_where(lambda v: 0 < v <= 1), _show_number)
PORTION = Kind("a number from 0 to 1", _number_where(lambda v: 0 <= v <= 1), _show_number)
BETWEEN = Kind("a number above 0 and below 1", _number_where(lambda v: 0 < v < 1), _show_number)
FLAG = Kind("True or False", _flag, str)
_MAP = Kind("a map such as {0:0,1:1,2:3}", _map, _show_map)
