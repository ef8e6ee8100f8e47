"""Stopping: a learned stop rule, and what it saves against a fixed number of lists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.stats import t_interval
from semrecall.stopping.calibration import Calibration
from semrecall.stopping.rule import StopRule
from semrecall.tuning import Estimate, Target
from semrecall.tuning.target import estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COSTS", "FIXED", "LEARNED", "ORACLE", "Stopping", "Way"]

FIXED, LEARNED, ORACLE = "fixed", "learned", "oracle"
COSTS = ("bytes_read", "distance_computations")


@dataclass(frozen=True, eq=False)
class Way:
    """One way to end searches, on the m queries of the test part for which quality is defined.

    quality, shortfall: (m,) of the measure, and by how much it is below the target.
    costs: by name of COSTS, (m,), all stages. lists: (m,) visited. looks: (m,) of the model.
    """

    name: str
    quality: NDArray[np.float64]
    shortfall: NDArray[np.float64]
    costs: Mapping[str, NDArray[np.float64]]
    lists: NDArray[np.float64]
    looks: NDArray[np.float64]

    @property
    def reached(self) -> NDArray[np.float64]:
        """(m,) whether a query reached the target."""
        return np.asarray(self.shortfall <= 0, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Stopping:
    """A stop rule and its trial on queries that neither fitted nor calibrated it.

    allowed: the expected shortfall of a query that is allowed.
    calibration: of the rule. fixed: how many lists the fixed search visits, and its own bound,
        calibrated in the same way on the fit and calibrate parts together.
    ways: fixed, learned and oracle, on the same queries.
    parts: how many queries of each part have a value, by name. left_out: how many have none.
    """

    target: Target
    allowed: float
    rule: StopRule
    calibration: Calibration
    fixed: tuple[int, float]
    ways: Mapping[str, Way]
    parts: Mapping[str, int]
    left_out: int
    confidence: float
    seed: int
    notes: tuple[str, ...] = ()

    @property
    def promised(self) -> bool:
        """Whether calibration bounds the expected shortfall by what is allowed."""
        return self.calibration.bound <= self.allowed + 1e-12

    @property
    def verdict(self) -> str:
        """pays, costs more, no sure saving, or no promise."""
        if not self.promised:
            return "no promise"
        saved = self.saved()
        if math.isnan(saved.low) or saved.low <= 0 <= saved.high:
            return "no sure saving"
        return "pays" if saved.low > 0 else "costs more"

    @property
    def cost(self) -> str:
        """The cost that is compared: bytes read where they are counted, else computations."""
        return next((c for c in COSTS if not np.isnan(self.ways[FIXED].costs[c]).any()), COSTS[1])

    def saved(self, way: str = LEARNED, cost: str | None = None) -> Estimate:
        """The share of the cost of the fixed search that a way saves, paired over queries.

        A ratio of means; its interval by Student's t on the linearised values.
        """
        name = cost or self.cost
        before, after = self.ways[FIXED].costs[name], self.ways[way].costs[name]
        ratio = float(after.mean() / before.mean())
        linear = 1 - ratio - (after - ratio * before) / before.mean()
        low, high = t_interval(linear, confidence=self.confidence)
        return Estimate(1 - ratio, low, high, len(before))

    def change(self, way: str = LEARNED) -> Estimate:
        """The shortfall of a way less that of the fixed search, paired over queries."""
        differences = self.ways[way].shortfall - self.ways[FIXED].shortfall
        low, high = t_interval(differences, confidence=self.confidence)
        return Estimate(float(differences.mean()), low, high, len(differences))

    def mean(self, way: str, what: str) -> Estimate:
        """The mean of quality, shortfall, reached, lists, looks or a cost, with its interval."""
        found = self.ways[way]
        values = found.costs[what] if what in COSTS else getattr(found, what)
        return estimate(values, share=what == "reached", confidence=self.confidence, seed=self.seed)

    def rows(self) -> list[dict[str, Any]]:
        """One row per way: means, and the share saved against the fixed search."""
        names = ("quality", "shortfall", "reached", "lists", "looks", *COSTS)
        found = []
        for way in self.ways:
            saved = None if way == FIXED else vars(self.saved(way)).copy()
            means = {name: vars(self.mean(way, name)).copy() for name in names}
            found.append({"way": way, **means, "saved": saved})
        return found

    def to_dict(self) -> dict[str, Any]:
        """As plain mappings."""
        return {
            "target": str(self.target), "allowed": self.allowed, "verdict": self.verdict,
            "calibration": vars(self.calibration).copy(),
            "fixed": {"nprobe": self.fixed[0], "bound": self.fixed[1]},
            "cost": self.cost, "change": vars(self.change()).copy(), "ways": self.rows(),
            "parts": dict(self.parts), "left_out": self.left_out,
            "confidence": self.confidence, "seed": self.seed, "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        from semrecall.stopping.text import stopping_text

        return stopping_text(self)
