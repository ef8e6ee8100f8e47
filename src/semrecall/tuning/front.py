"""The front: settings that no other one beats in quality and in cost at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.tuning.objectives import Objective
from semrecall.tuning.target import Estimate, estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.tuning.evaluator import Measured
    from semrecall.tuning.ranges import Setting

__all__ = ["Point", "cost_estimate", "pareto"]

_RESAMPLES = 1000


@dataclass(frozen=True)
class Point:
    """A setting with its measures and its cost, each a mean with an interval.

    cost: as it is shown: bytes, seconds, or queries a second.
    """

    setting: Setting
    measures: Mapping[str, Estimate]
    cost: Estimate

    def to_dict(self) -> dict[str, Any]:
        """As plain mappings."""
        return {
            "system": self.setting.system,
            "build": dict(self.setting.build),
            "search": dict(self.setting.search),
            "measures": {name: vars(found).copy() for name, found in self.measures.items()},
            "cost": vars(self.cost).copy(),
        }


def pareto(quality: Sequence[float], cost: Sequence[float]) -> list[int]:
    """Positions of those that none beats, the cheapest first.

    quality: higher is better; cost: lower is better. Of equals the first is kept; NaN is beaten.
    """
    order = sorted(range(len(cost)), key=lambda i: (cost[i], -quality[i], i))
    kept, best = [], -math.inf
    for at in order:
        if not math.isnan(cost[at]) and quality[at] > best:
            kept.append(at)
            best = quality[at]
    return kept


def cost_estimate(
    measured: Measured, objective: Objective, *, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """The cost over the queries measured, with its interval over queries, as it is shown.

    The speed of a batch has no figures per query, and so no interval.
    """
    figures = measured.costs.get(objective.column, np.empty(0))
    known = figures[~np.isnan(figures)]
    if objective.rate:
        return Estimate(objective.shown(objective.of(known)), math.nan, math.nan, len(known))
    if objective.percentile is None or len(known) < 2:
        return estimate(known, confidence=confidence, seed=seed)
    low, high = _percentiles(known, objective.percentile, confidence, seed)
    return Estimate(objective.of(known), low, high, len(known))


def _percentiles(
    known: NDArray[np.float64], percentile: float, confidence: float, seed: int
) -> tuple[float, float]:
    draws = np.random.default_rng(seed).choice(known, (_RESAMPLES, len(known)))
    found = np.percentile(draws, percentile, axis=1)
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
