"""Names of systems and judges: name -> "module:object", what else may be meant, which extra.

A plug-in adds its own through the entry point groups `semrecall.systems` and `semrecall.judges`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from semrecall.errors import InputError, MissingExtra

__all__ = [
    "JUDGES",
    "SYSTEMS",
    "Entry",
    "did_you_mean",
    "import_extra",
    "judge_entries",
    "load_judge",
    "load_system",
    "split_spec",
    "system_entries",
]


@dataclass(frozen=True)
class Entry:
    """Where a name lives, which extra it needs, and one line about it."""

    target: str
    extra: str | None
    about: str


SYSTEMS: dict[str, Entry] = {
    "exact": Entry("semrecall.systems.exact:ExactSystem", None, "exact search by semrecall itself"),
    "faiss": Entry(
        "semrecall.systems.faiss:FaissSystem", "faiss", "any faiss index, by factory string or file"
    ),
    "recorded": Entry(
        "semrecall.systems.recorded:RecordedSystem", None, "results recorded in a file"
    ),
}

JUDGES: dict[str, Entry] = {
    "llm": Entry(
        "semrecall.judges.llm:LLMJudge", "llm", "a language model, over HTTP (OpenAI or Anthropic)"
    ),
    "crossencoder": Entry(
        "semrecall.judges.crossencoder:CrossEncoderJudge",
        "crossencoder",
        "a cross-encoder, its scores cut into grades",
    ),
    "recorded": Entry("semrecall.judges.recorded:RecordedJudge", None, "labels recorded in a file"),
    "panel": Entry("semrecall.judges.panel:Panel", None, "several judges as one, by majority"),
    "python": Entry(
        "semrecall.judges.function:FunctionJudge", None, "a Python function: python:module:function"
    ),
}


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint naming the known names closest to `name`, or all of them when none is close."""
    names = sorted(set(known))
    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(lowered[c] for c in close) + "?"
    return "known: " + ", ".join(names) if names else None


def import_extra(module: str, extra: str, needed_for: str) -> Any:
    """Import an optional package, or raise MissingExtra naming the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(module.split(".")[0], extra, needed_for) from error


def system_entries() -> dict[str, Entry]:
    """All systems by name: our own, and those that installed packages add."""
    return _with_plugins(SYSTEMS, "semrecall.systems")


def judge_entries() -> dict[str, Entry]:
    """All judges by name: our own, and those that installed packages add."""
    return _with_plugins(JUDGES, "semrecall.judges")


def load_system(name: str) -> Any:
    """The class of the system called `name`; InputError with near names when there is none."""
    return _load(name, system_entries(), "system")


def load_judge(name: str) -> Any:
    """The class of the judge called `name`; InputError with near names when there is none."""
    return _load(name, judge_entries(), "judge")


def split_spec(spec: str, what: str, example: str) -> tuple[str, dict[str, str]]:
    """Name and options of `name?key=value&key=value`; values may hold anything but "&"."""
    name, _, rest = spec.strip().partition("?")
    options: dict[str, str] = {}
    for piece in filter(None, rest.split("&")):
        key, equals, value = piece.partition("=")
        if not equals or not key or not value:
            raise InputError(
                f"{piece!r} in the {what} {spec!r} is not key=value",
                hint=f'for example "{example}"',
            )
        if key in options:
            raise InputError(f"{key!r} occurs twice in the {what} {spec!r}")
        options[key] = value
    if not name:
        raise InputError(f"the {what} {spec!r} has no name", hint=f'for example "{example}"')
    return name, options


def _with_plugins(own: dict[str, Entry], group: str) -> dict[str, Entry]:
    from importlib.metadata import entry_points

    found = dict(own)
    for point in entry_points(group=group):
        found.setdefault(point.name, Entry(point.value, None, f"from {point.value}"))
    return found


def _load(name: str, entries: dict[str, Entry], what: str) -> Any:
    if name not in entries:
        raise InputError(f"unknown {what} {name!r}", hint=did_you_mean(name, entries))
    module, _, attribute = entries[name].target.partition(":")
    return getattr(importlib.import_module(module), attribute)
