"""The guard: a knob that changes neither results nor cost is not tuned, and why that may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from semrecall.data.ids import codes_in
from semrecall.errors import InputError
from semrecall.systems import System
from semrecall.tuning.objectives import Objective
from semrecall.tuning.racing import Trial
from semrecall.tuning.ranges import Setting
from semrecall.tuning.target import mean_of

__all__ = ["require_effect"]

#: Times closer than this are not told apart, however steady the clock seems.
_STEADY = 0.05


def require_effect(
    trials: Sequence[Trial],
    objective: Objective,
    measure: str,
    system: Callable[[], System],
    again: Callable[[Setting], float],
) -> None:
    """Refuse trials of one system where its lowest and highest setting do the same.

    system: the system of these trials. again: the cost of a setting, measured once more: where
    results are the same and costs are times, the two settings are compared as far as a setting
    differs from itself.

    Raises InputError with the likely reason. Trials of different builds are not compared.
    """
    alike = [t for t in trials if not t.failed and t.setting.build == trials[0].setting.build]
    varied = _varied(alike)
    if varied is None:
        return
    ordered = sorted(alike, key=lambda t: dict(t.setting.search)[varied])
    lowest, highest = ordered[0], ordered[-1]
    if not _same(lowest, highest, objective, again):
        return
    value = mean_of(highest.measured.values[measure])
    raise InputError(
        f"{lowest.setting} and {highest.setting} of {lowest.setting.system} return the same "
        f"results at the same cost ({measure} {value:.4g}): there is nothing to tune",
        hint=_reason(value, varied, system()),
    )


def _varied(trials: Sequence[Trial]) -> str | None:
    """The one search knob that differs between the trials; None where several do, or none."""
    values: dict[str, set[float]] = {}
    for trial in trials:
        for name, value in trial.setting.search:
            values.setdefault(name, set()).add(value)
    several = [name for name, found in values.items() if len(found) > 1]
    return several[0] if len(several) == 1 else None


def _same(
    one: Trial, other: Trial, objective: Objective, again: Callable[[Setting], float]
) -> bool:
    """Whether two trials found the same at the same cost, on the queries both were asked."""
    if one.first != other.first or (one.full and other.full and _differ(one, other)):
        return False
    common = np.intersect1d(one.measured.rows, other.measured.rows)
    costs = []
    for trial in (one, other):
        at = codes_in(common, trial.measured.rows)
        costs.append(objective.of(trial.measured.costs[objective.column][at]))
    if not objective.timed:
        return abs(costs[0] - costs[1]) <= 1e-9 * max(costs)
    # Two looks at each, in turns, so that what slows the machine down meets both.
    first, second = ([again(trial.setting) for trial in (one, other)] for _ in range(2))
    between = abs(math.log(math.prod([first[0], second[0]]) / math.prod([first[1], second[1]]))) / 2
    within = max(abs(math.log(a / b)) for a, b in zip(first, second, strict=True))
    return between <= max(within, _STEADY)


def _differ(one: Trial, other: Trial) -> bool:
    return one.measured.digest != other.measured.digest


def _reason(value: float, knob: str, system: System) -> str:
    told: dict[str, Any] = system.describe()
    if told.get("exact") is True:
        index = f" (index: {told['index']})" if told.get("index") else ""
        return (
            f"the system says itself that it compares every vector, whatever {knob} is{index}: "
            "is the index built, and the collection large enough for it to be used?"
        )
    if value >= 1 - 1e-9:
        return (
            "everything is found, so every search may be exact: is the index used (a planner may "
            "prefer a scan), is it built yet (indexing goes on in the background), is the "
            "collection large enough to be indexed?"
        )
    return (
        f"the system may ignore {knob}: is it a knob of this kind of index, does it take effect "
        "without a new connection, and is a cache in between?"
    )
