"""The manifest of a results folder: which step made what, from what, with which versions."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from semrecall.errors import FormatError
from semrecall.formats import write_whole
from semrecall.text import json_read, one_line

__all__ = ["MANIFEST", "Manifest", "Record", "versions"]

MANIFEST = "manifest.json"
_KIND = "semrecall results"
_VERSION = 1
_LONGEST = 60


@dataclass(frozen=True)
class Record:
    """A step that was done.

    inputs, outputs: hashes of files by name. options: what else decided what came out, seeds
    included. made: versions. seconds: how long it took. notes: what was said of it.
    """

    inputs: Mapping[str, str]
    options: Mapping[str, Any]
    outputs: Mapping[str, str]
    made: Mapping[str, str]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def differs(self, inputs: Mapping[str, str], options: Mapping[str, Any]) -> list[str]:
        """Why it would come out otherwise now, in words; empty where it would not."""
        found = _changed(self.inputs, inputs, lambda name: f"{name} changed")
        plain = json.loads(json.dumps(options))
        found += _changed(
            self.options,
            plain,
            lambda n: f"{n} is {_shown(plain[n])}, was {_shown(self.options[n])}",
        )
        ours, theirs = version("semrecall"), self.made.get("semrecall", "")
        if ours != theirs:
            found.append(f"semrecall is {ours}, was {theirs}")
        return found


@dataclass
class Manifest:
    """All records of a results folder, and the experiment file they are of."""

    folder: Path
    experiment: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, Record] = field(default_factory=dict)
    gates: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """That of a folder; an empty one where there is none. FormatError for another file."""
        file = folder / MANIFEST
        if not file.exists():
            return cls(folder)
        try:
            whole = json_read(file.read_text(encoding="utf-8"))
            if whole["kind"] != _KIND or whole["version"] != _VERSION:
                raise ValueError(f"kind {whole['kind']!r}, version {whole['version']!r}")
            steps = {
                name: Record(**{**step, "notes": tuple(step["notes"])})
                for name, step in whole["steps"].items()
            }
            return cls(folder, whole["experiment"], steps, whole["gates"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                f"{file} is no manifest of results that this version can read ({error})",
                hint="name another folder (results = ...), or remove this one",
            ) from error

    def write(self) -> None:
        """Keep it, whole or not at all."""
        whole = {
            "kind": _KIND,
            "version": _VERSION,
            "experiment": self.experiment,
            "steps": {name: asdict(record) for name, record in self.steps.items()},
            "gates": self.gates,
        }
        text = json.dumps(whole, indent=2, ensure_ascii=False, default=str) + "\n"
        write_whole(self.folder / MANIFEST, text)


def versions() -> dict[str, str]:
    """Versions of what makes results."""
    return {
        "semrecall": version("semrecall"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], say: Any) -> list[str]:
    said = [say(name) for name in new if name in old and old[name] != new[name]]
    said += [f"{name} is new" for name in new if name not in old]
    return said + [f"{name} is no longer given" for name in old if name not in new]


def _shown(value: Any) -> str:
    text = one_line(json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
