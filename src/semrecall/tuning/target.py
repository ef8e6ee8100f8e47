"""Target: a measure and the mean it has to reach, written `srecall@100 >= 0.98`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import InputError
from semrecall.measures import Measure, parse
from semrecall.stats import mean_interval, resampled_means, t_interval, wilson_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Estimate", "Target", "estimate", "mean_of"]

_WRITTEN = re.compile(r"\s*(?P<measure>.*[^<>=\s])\s*(?P<sign>[<>=]+)\s*(?P<value>[^<>=\s]+)\s*")


@dataclass(frozen=True)
class Estimate:
    """A mean over n queries, with its interval; NaN where there is nothing to tell."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Target:
    """The mean of a measure that has to be reached."""

    measure: Measure
    value: float

    @classmethod
    def read(cls, text: str | Target) -> Target:
        """The target of a text; InputError for one that cannot be met or cannot be missed."""
        if isinstance(text, Target):
            return text
        match = _WRITTEN.fullmatch(text)
        if match is None or match["sign"] not in (">=", "<="):
            raise InputError(
                f"the target {text!r} is not MEASURE >= VALUE",
                hint='for example "srecall@100 >= 0.98", or "rde@100 <= 0.01"',
            )
        measure = parse(match["measure"])
        sign = "<=" if measure.lower_is_better else ">="
        if match["sign"] != sign:
            better = "lower" if measure.lower_is_better else "higher"
            raise InputError(
                f"the target {text!r} asks for the worse: {measure} is better when {better}",
                hint=f"write {measure} {sign} {match['value']}",
            )
        return cls(measure, cls._checked(measure, match["value"], text))

    @staticmethod
    def _checked(measure: Measure, written: str, text: str) -> float:
        try:
            value = float(written.rstrip("%")) / (100 if written.endswith("%") else 1)
        except ValueError:
            raise InputError(
                f"{written!r} in the target {text!r} is not a number", hint="write 0.98 or 98%"
            ) from None
        if not np.isfinite(value):
            raise InputError(f"the target {text!r} is no number that can be reached")
        if measure.lower_is_better:
            if value < 0:
                raise InputError(f"the target {text!r} is below 0, the best {measure} there is")
        elif value <= 0:
            raise InputError(f"the target {text!r} is met by every setting; expected above 0")
        elif value > 1 and measure.at_most_one:
            hint = f"write {value:g}%" if value <= 100 else None
            raise InputError(f"the target {text!r} is above 1, the best {measure} there is",
                             hint=hint)  # fmt: skip
        return value

    def __str__(self) -> str:
        return f"{self.measure} {'<=' if self.measure.lower_is_better else '>='} {self.value:g}"

    @property
    def name(self) -> str:
        """The measure, as it is printed."""
        return str(self.measure)

    @property
    def best(self) -> float:
        """The best value a query can have."""
        return 0.0 if self.measure.lower_is_better else 1.0

    def shortfall(self, mean: float) -> float:
        """How far a mean is from the target; 0 or less meets it, NaN does not."""
        if np.isnan(mean):
            return float("inf")
        return mean - self.value if self.measure.lower_is_better else self.value - mean

    def met(self, mean: float) -> bool:
        """Whether a mean meets the target."""
        return self.shortfall(mean) <= 1e-12

    def better(self, one: float, other: float) -> bool:
        """Whether one mean is better than another; any is better than none."""
        return self.shortfall(one) < self.shortfall(other)

    def bound(self, found: Estimate) -> float:
        """The end of an interval that is the worse one."""
        return found.high if self.measure.lower_is_better else found.low

    def hopeless(self, values: NDArray[np.float64], confidence: float) -> bool:
        """Whether more queries like these (m,) would hardly bring the mean to the target.

        By Student's t, with one perfect query added, so that a few equal values do not pass for
        certainty.
        """
        known = values[~np.isnan(values)]
        if len(known) < 8:
            return False
        low, high = t_interval(np.append(known, self.best), confidence=confidence)
        return not self.met(low if self.measure.lower_is_better else high)


def mean_of(values: NDArray[np.float64]) -> float:
    """The mean of the values that are defined, rounded once; NaN without any."""
    known = values[~np.isnan(values)].tolist()
    if not known:
        return math.nan
    mean = math.fsum(known) / len(known)
    return mean + math.fsum([*known, *[-mean] * len(known)]) / len(known)


def estimate(
    values: NDArray[np.float64],
    *,
    share: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Mean and interval of values (n,), NaN left out: Wilson's for shares, else the bootstrap."""
    known = values[~np.isnan(values)]
    if share:
        low, high = wilson_interval(known, confidence=confidence)
    else:
        draws = resampled_means(known, seed=seed)[0] if len(known) else np.empty(0)
        low, high = mean_interval(known, draws, confidence=confidence)
    return Estimate(mean_of(known), low, high, len(known))
