"""Knobs in words: as a user says them of a system that cannot tell them, and as code has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from semrecall.errors import InputError
from semrecall.systems.base import Knob

__all__ = ["arguments", "parse_knobs"]

_EXAMPLE = (
    "write name:low:high, name:low:high:log, name:low:high:build or name:word|word, "
    "e.g. ef:10:500:log"
)


def parse_knobs(text: str) -> tuple[Knob, ...]:
    """Knobs from "name:low:high,name:low:high:log"; further words: log, build, default=VALUE.

    A mode has its words in place of low and high: "order:relaxed|strict".

    A knob is a whole number where low and high are written as such.
    """
    knobs = tuple(_knob(piece.strip()) for piece in text.split(",") if piece.strip())
    names = [(knob.kind, knob.name) for knob in knobs]
    if len(set(names)) != len(names):
        raise InputError(f"a knob stands twice in {text!r}")
    return knobs


def arguments(given: Mapping[str, Any]) -> str:
    """Values by name as they follow others in a call of Python: ", name=value" for each."""
    return "".join(f", {name}={value!r}" for name, value in given.items())


def _knob(text: str) -> Knob:
    name, *rest = text.split(":")
    if name.isidentifier() and rest and "|" in rest[0]:
        return _mode(name, rest, text)
    if not name.isidentifier() or len(rest) < 2:
        raise InputError(f"{text!r} is no knob", hint=_EXAMPLE)
    low, high = (_number(value, text) for value in rest[:2])
    whole = not any(mark in value for value in rest[:2] for mark in ".eE")
    kind: Literal["build", "search"] = "search"
    scale: Literal["linear", "log"] = "linear"
    default = None
    for word in rest[2:]:
        if word == "log":
            scale = "log"
        elif word == "build":
            kind = "build"
        elif word.startswith("default="):
            default = _number(word.removeprefix("default="), text)
        else:
            raise InputError(f"{word!r} in the knob {text!r} is not known", hint=_EXAMPLE)
    if not low <= high or (scale == "log" and low <= 0 and not whole):
        raise InputError(f"the knob {text!r} goes from {low:g} to {high:g}", hint=_EXAMPLE)
    knob = Knob(name, kind, low, high, default, f"{name} of the search", scale, whole)
    if default is not None:
        knob.check(int(default) if whole else default)
    return knob


def _mode(name: str, rest: list[str], text: str) -> Knob:
    words = rest[0].lower().split("|")
    kind: Literal["build", "search"] = "search"
    default = None
    for more in rest[1:]:
        if more == "build":
            kind = "build"
        elif more.removeprefix("default=").lower() in words and more.startswith("default="):
            default = more.removeprefix("default=").lower()
        else:
            raise InputError(f"{more!r} in the knob {text!r} is not known", hint=_EXAMPLE)
    if len(set(words)) != len(words) or not all(words):
        raise InputError(f"the words of the knob {text!r} are not distinct", hint=_EXAMPLE)
    return Knob.mode(name, kind, words, default, f"{name} of the search")


def _number(value: str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{value!r} in the knob {text!r} is no number", hint=_EXAMPLE)
    return number
