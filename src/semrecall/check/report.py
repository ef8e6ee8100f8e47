"""What a check found: findings, and the report that holds them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from semrecall.data.frames import to_library
from semrecall.text import plural

__all__ = ["Finding", "Level", "Report", "percent"]

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
_SHOWN = 5
_INDENT = 9


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    level: "error": numbers made from this data are wrong; "warning": they may mislead; "note":
        worth knowing.
    code: a short name that stays the same between versions.
    about: which input: base, queries, truth, run, judgments.
    found: what was found, with numbers.
    advice: what it means and what to do.
    examples: rows or ids, as `examples_of` says.
    """

    level: Level
    code: str
    about: str
    found: str
    advice: str = ""
    examples: tuple[str | int, ...] = ()
    examples_of: str = "rows"

    def __str__(self) -> str:
        return f"{self.level}: {self.found}"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; `examples` is a list."""
        return {
            "level": self.level,
            "code": self.code,
            "about": self.about,
            "found": self.found,
            "advice": self.advice,
            "examples": list(self.examples),
            "examples_of": self.examples_of if self.examples else "",
        }


@dataclass(frozen=True, repr=False)
class Report:
    """All findings of one check, errors first, then warnings, then notes.

    inputs: what was checked, in one line each.
    sampled: what was looked at in a sample only, and how large it was.
    """

    findings: tuple[Finding, ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    sampled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(self.findings, key=lambda finding: LEVELS.index(finding.level))
        object.__setattr__(self, "findings", tuple(ordered))

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.of_level("error")

    @property
    def codes(self) -> tuple[str, ...]:
        """The code of each finding."""
        return tuple(finding.code for finding in self.findings)

    def of_level(self, level: Level) -> tuple[Finding, ...]:
        """The findings of one level."""
        return tuple(finding for finding in self.findings if finding.level == level)

    def __len__(self) -> int:
        return len(self.findings)

    def __repr__(self) -> str:
        return f"Report({self.summary})"

    @property
    def summary(self) -> str:
        """How many errors, warnings and notes."""
        return ", ".join(plural(len(self.of_level(level)), level) for level in LEVELS)

    def __str__(self) -> str:
        width = min(max(shutil.get_terminal_size((80, 24)).columns, 60), 100)
        return self.text(width)

    def text(self, width: int = 80) -> str:
        """The report as plain text, lines of at most `width` characters where words allow."""
        label = max((len(name) for name in self.inputs), default=0) + 2
        lines = [self.summary, ""]
        for name, what in self.inputs.items():
            lines += _wrapped(what, width, f"{name:<{label}}", " " * label)
        for finding in self.findings:
            lines += ["", *_lines(finding, width)]
        if self.sampled:
            lines += [""]
            for what in self.sampled:
                lines += _wrapped(what, width, "sampled: ", " " * _INDENT)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "ok": self.ok,
            "counts": {level: len(self.of_level(level)) for level in LEVELS},
            "inputs": dict(self.inputs),
            "findings": [finding.to_dict() for finding in self.findings],
            "sampled": list(self.sampled),
        }

    def to_arrow(self) -> Any:
        """An arrow table: level, code, about, found, advice, examples (as text), examples_of."""
        import pyarrow as pa

        text = pa.string()
        kinds = dict.fromkeys(("level", "code", "about", "found", "advice"), text)
        schema = pa.schema({**kinds, "examples": pa.list_(text), "examples_of": text})
        rows = [f.to_dict() | {"examples": [str(e) for e in f.examples]} for f in self.findings]
        return pa.Table.from_pylist(rows, schema=schema)

    def to_frame(self, library: str = "pandas") -> Any:
        """A frame of the columns of `to_arrow`: "pandas", "polars" or "arrow"."""
        return to_library(self.to_arrow(), library)


def percent(part: int, whole: int) -> str:
    """A share in percent; what is not none or all never looks like it."""
    share = part / whole if whole else 0.0
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{share:.1%}" if 0 < share < 1 else f"{share:.0%}"


def _lines(finding: Finding, width: int) -> list[str]:
    blank = " " * _INDENT
    lines = [f"{finding.level:<{_INDENT}}{finding.code}"]
    lines += _wrapped(finding.found, width, blank, blank)
    if finding.examples:
        shown = _listed(finding.examples)
        lines += _wrapped(f"{finding.examples_of}: {shown}", width, blank, blank)
    if finding.advice:
        lines += _wrapped(finding.advice, width, f"{blank[:-3]}-> ", blank)
    return lines


def _listed(examples: Sequence[str | int]) -> str:
    shown = [str(e) if isinstance(e, int) else repr(e) for e in examples[:_SHOWN]]
    return ", ".join(shown) + (", ..." if len(examples) >= _SHOWN else "")


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
