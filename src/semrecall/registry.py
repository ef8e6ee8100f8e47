"""Names of systems and formats: name -> "module:object", what else may be meant, which extra.

A plug-in adds a system through the entry point group `semrecall.systems`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from semrecall.errors import InputError, MissingExtra

__all__ = ["SYSTEMS", "Entry", "did_you_mean", "import_extra", "load_system", "system_entries"]


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
    from importlib.metadata import entry_points

    found = dict(SYSTEMS)
    for point in entry_points(group="semrecall.systems"):
        found.setdefault(point.name, Entry(point.value, None, f"from {point.value}"))
    return found


def load_system(name: str) -> Any:
    """The class of the system called `name`; InputError with near names when there is none."""
    entries = system_entries()
    if name not in entries:
        raise InputError(f"unknown system {name!r}", hint=did_you_mean(name, entries))
    module, _, attribute = entries[name].target.partition(":")
    return getattr(importlib.import_module(module), attribute)
