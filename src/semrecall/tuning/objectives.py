"""What tuning makes small: counters and clocks, one number per query, and how they sum up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import InputError
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

__all__ = ["CLOCKS", "COUNTERS", "OBJECTIVES", "Objective", "objective"]

#: Figures per query that are counted, and those that are timed in a pass of their own.
COUNTERS = ("bytes_read", "distance_computations")
CLOCKS = ("cpu_seconds", "latency_seconds", "batch_seconds")


@dataclass(frozen=True)
class Objective:
    """A cost to minimise.

    column: the figure per query it is made of, one of COUNTERS or CLOCKS.
    percentile: which percentile of the queries counts; None for the mean.
    rate: whether it is shown as how many a second, of which more is better.
    """

    name: str
    column: str
    about: str
    percentile: float | None = None
    rate: bool = False

    @property
    def timed(self) -> bool:
        """Whether it comes from a clock."""
        return self.column in CLOCKS

    def of(self, figures: NDArray[np.float64]) -> float:
        """The cost (lower is better) of figures per query (n,); NaN where none is known."""
        known = figures[~np.isnan(figures)]
        if len(known) == 0:
            return math.nan
        if self.percentile is not None:
            return float(np.percentile(known, self.percentile))
        return math.fsum(known.tolist()) / len(known)

    def shown(self, cost: float) -> float:
        """The cost as a reader expects it: queries a second, not seconds a query."""
        return 1 / cost if self.rate and cost > 0 else cost


OBJECTIVES: dict[str, Objective] = {
    found.name: found
    for found in (
        Objective("bytes_read", "bytes_read", "bytes read per query, counted"),
        Objective("distance_computations", "distance_computations", "vectors compared per query"),
        Objective("cpu_seconds", "cpu_seconds", "processor time of this process per query"),
        Objective("latency_seconds", "latency_seconds", "mean time of one query alone"),
        Objective("latency_p50_seconds", "latency_seconds", "median time of one query alone", 50),
        Objective("latency_p95_seconds", "latency_seconds", "95th percentile of that time", 95),
        Objective("latency_p99_seconds", "latency_seconds", "99th percentile of that time", 99),
        Objective("queries_per_second", "batch_seconds", "speed of a whole batch", rate=True),
    )
}


def objective(name: str, known: Collection[str] | None = None, system: str = "") -> Objective:
    """The objective of that name.

    known: the columns a system tells. Raises InputError for a name that is none, and for a cost
    that the system does not tell, naming those it does.
    """
    if name not in OBJECTIVES:
        raise InputError(f"{name!r} is no cost", hint=did_you_mean(name, OBJECTIVES))
    found = OBJECTIVES[name]
    if known is not None and found.column not in known:
        # Time is taken of whatever answers, though not in a pass that only counts.
        told = {*known, "latency_seconds", "batch_seconds"} - {found.column}
        others = [o.name for o in OBJECTIVES.values() if o.column in told]
        raise InputError(
            f"{system or 'the system'} does not tell {name}; a counter that reads 0 is unknown, "
            "not free",
            hint=f"minimize one of those it tells: {', '.join(others)}",
        )
    return found
