"""A sweep that was written as JSON (semrecall sweep --format json), to be shown again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semrecall.errors import InputError
from semrecall.measures import Measure, parse
from semrecall.registry import did_you_mean
from semrecall.text import json_read
from semrecall.tuning.ranges import Setting
from semrecall.tuning.sweeping import Row
from semrecall.tuning.target import Estimate

__all__ = ["SavedSweep", "read_sweep"]

_NUMBERS = ("low", "mean", "high")


@dataclass(frozen=True)
class Cost:
    """The cost of a sweep: its name, and what it is in words."""

    name: str

    @property
    def about(self) -> str:
        """What it is in words."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Groups:
    """A column that a sweep was sliced by, and its groups in their order."""

    groups: tuple[str, ...]
    about: str = ""


@dataclass(frozen=True)
class SavedSweep:
    """What of a Sweep its JSON keeps: the rows, without the values of single queries.

    curves: by system its settings. command: that made it, "" where it is not known.
    """

    curves: Mapping[str, tuple[Setting, ...]]
    measures: tuple[Measure, ...]
    objective: Cost
    slices: Mapping[str, Groups]
    queries: int
    found: tuple[Row, ...]
    command: str = ""

    def rows(self, by: str | None = None) -> list[Row]:
        """Every setting over all queries, or over each group of a slice."""
        if by is not None and by not in self.slices:
            raise InputError(
                f"the sweep has no slices by {by!r}", hint=did_you_mean(by, self.slices)
            )
        return [row for row in self.found if row.column == (by or "")]


def read_sweep(path: str | Path) -> SavedSweep:
    """The sweep in a file; InputError where it holds none."""
    try:
        whole = json_read(Path(path).read_text(encoding="utf-8"))
        return _sweep(whole)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} holds no sweep",
            hint=f"write one with: semrecall sweep ... --format json > {Path(path).name}",
        ) from error


def _sweep(whole: Mapping[str, Any]) -> SavedSweep:
    rows = tuple(_row(row) for row in whole["rows"])
    names = list(rows[0].measures) if rows else []
    systems: dict[str, dict[Setting, None]] = {}
    columns: dict[str, dict[str, None]] = {}
    for row in rows:
        systems.setdefault(row.setting.system, {})[row.setting] = None
        if row.column:
            columns.setdefault(row.column, {})[row.group] = None
    if not rows:
        raise ValueError("no rows")
    return SavedSweep(
        {name: tuple(settings) for name, settings in systems.items()},
        tuple(parse(name) for name in names),
        Cost(str(whole["minimize"])),
        {name: Groups(tuple(groups)) for name, groups in columns.items()},
        int(whole["queries"]),
        rows,
        str(whole.get("command", "")),
    )


def _row(row: Mapping[str, Any]) -> Row:
    return Row(
        Setting(row["system"], search=tuple(row["search"].items())),
        row["column"],
        row["group"],
        row["queries"],
        {name: _estimate(found) for name, found in row["measures"].items()},
        _estimate(row["cost"]),
    )


def _estimate(found: Mapping[str, Any]) -> Estimate:
    low, mean, high = (float("nan") if (v := found[n]) is None else float(v) for n in _NUMBERS)
    return Estimate(mean, low, high, int(found["n"]))
