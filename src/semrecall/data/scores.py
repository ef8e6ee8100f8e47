"""Scores: one value per query for one measure, NaN where it is undefined, with the reason."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import Ids
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Scores"]


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Values of one measure, shape (n,), NaN where undefined; `reasons[i]` then says why.

    reasons: (n,) strings, "" where the value is defined.
    notes: what a reader of the mean should know ("scores by the index", ...).
    """

    measure: str
    queries: Ids
    values: NDArray[np.float64]
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.shape != (len(self.queries),):
            raise InputError(
                f"{self.measure} has values of shape {values.shape}; "
                f"expected ({len(self.queries)},)"
            )
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
        reasons = self.reasons or tuple("undefined" if v else "" for v in np.isnan(values))
        if len(reasons) != len(values):
            raise InputError(f"{len(reasons):,} reasons for {len(values):,} values")
        object.__setattr__(self, "reasons", tuple(reasons))

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        left_out = sum(self.undefined.values())
        out = f", {left_out:,} left out" if left_out else ""
        scored = len(self) - left_out
        return f"Scores({self.measure}: mean {self.mean:.4f} over {scored:,} queries{out})"

    @property
    def query_ids(self) -> NDArray[Any]:
        """Ids of the queries, shape (n,)."""
        return self.queries.array()

    @property
    def defined(self) -> NDArray[np.bool_]:
        """Which queries have a value, shape (n,)."""
        return ~np.isnan(self.values)

    @property
    def mean(self) -> float:
        """Mean of the defined values, rounded once; NaN when there are none."""
        values = self.values[self.defined].tolist()
        if not values:
            return math.nan
        mean = math.fsum(values) / len(values)
        # The sum was rounded before the division: 95 of 100 once, else 100 of 100, is 0.99999.
        return mean + math.fsum([*values, *[-mean] * len(values)]) / len(values)

    @property
    def undefined(self) -> dict[str, int]:
        """Why queries were left out: {reason: count}, most frequent first."""
        gaps = [r for r, d in zip(self.reasons, self.defined, strict=True) if not d]
        return dict(Counter(gaps).most_common())
