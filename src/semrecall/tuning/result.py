"""Tuning: what tune() found, how sure it is, and what it looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.tuning.front import Point
from semrecall.tuning.ranges import Setting
from semrecall.tuning.target import Estimate, Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures import Measure
    from semrecall.tuning.against import Saving
    from semrecall.tuning.objectives import Objective
    from semrecall.tuning.racing import Trial

__all__ = ["Choice", "Tuning"]


@dataclass(frozen=True)
class Choice:
    """The setting chosen, where it was chosen, and where it was confirmed.

    development, held_out: the target's measure on either side; costs likewise, as shown.
    others: all measures on the queries held out.
    """

    setting: Setting
    development: Estimate
    development_cost: Estimate
    held_out: Estimate
    held_out_cost: Estimate
    others: Mapping[str, Estimate]


@dataclass(frozen=True, repr=False)
class Tuning:
    """The result of `tune`.

    verdict: "met", the mean on the queries held out meets the target; "not met", it does not,
        although it did on development queries; "unreachable", no setting seen meets it there, and
        the choice is the one that comes closest.
    front: settings that none beats in quality and cost, on development queries, cheapest first.
    safe: where the verdict is "not met", the cheapest setting whose interval on development
        queries meets the target; not confirmed, as that would be a second look.
    trials: all settings tried. searched: queries searched for them, counting every stage.
    development, held_out: how many queries choose, and confirm. monotone: whether more of a knob
        never was worse nor cheaper. spent: whether the limit of trials ended the search.
    snippet: the setting as it is written for the system itself.
    savings: what tuning for this measure saves, where that was asked.
    confirmed: the target's measure of the choice on the queries held out, one by one.
    """

    target: Target
    objective: Objective
    choice: Choice
    verdict: str
    front: tuple[Point, ...]
    safe: Point | None
    trials: tuple[Trial, ...]
    searched: int
    development: int
    held_out: int
    monotone: bool
    spent: bool
    snippet: str
    savings: tuple[Saving, ...] = ()
    measures: tuple[Measure, ...] = ()
    confirmed: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    confidence: float = 0.95
    seed: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def settings(self) -> dict[str, float]:
        """The search knobs to set."""
        return dict(self.choice.setting.search)

    @property
    def build(self) -> dict[str, float]:
        """The build knobs to build with; empty where none was tuned."""
        return dict(self.choice.setting.build)

    @property
    def system(self) -> str:
        """Which system, by its spec."""
        return self.choice.setting.system

    @property
    def mean(self) -> float:
        """The mean of the target's measure on the queries held out."""
        return self.choice.held_out.mean

    @property
    def interval(self) -> tuple[float, float]:
        """The interval (low, high) of that mean."""
        return self.choice.held_out.low, self.choice.held_out.high

    @property
    def cost(self) -> float:
        """The cost on the queries held out, as it is shown."""
        return self.choice.held_out_cost.mean

    def __repr__(self) -> str:
        return f"Tuning({self.target}: {self.verdict}, {self.choice.setting})"

    def __str__(self) -> str:
        from semrecall.tuning.text import tuning_text

        return tuning_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values of single queries, as plain mappings."""
        from semrecall.tuning.text import tuning_document

        return tuning_document(self)

    def to_html(self, path: str | Path, *, command: str | None = None) -> None:
        """Write a page with the front as a chart; it asks nothing of any server.

        Needs matplotlib (the extra `report`).
        """
        import importlib

        # A verb does not know its reports; only who asks for a page loads them.
        importlib.import_module("semrecall.report.tuning").write_tuning(self, path, command=command)
