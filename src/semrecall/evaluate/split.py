"""The split of the loss: what quantisation loses, and what the index search loses on top."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LossSplit"]


@dataclass(frozen=True, eq=False, repr=False)
class LossSplit:
    """One measure of one run, its loss against exact search in two parts.

    exact: the measure of exact search over full precision. codes: of exact search over the
    quantised codes. run: of the index. All for the same queries. A part is negative where a
    coarser search did better by chance. Queries undefined for one of the three are left out.
    """

    measure: str
    run_name: str
    exact: Scores
    codes: Scores
    run: Scores
    lower_is_better: bool = False

    def __repr__(self) -> str:
        return (
            f"LossSplit({self.measure}: quantisation {self.mean_quantisation:.4f} + index "
            f"{self.mean_index:.4f} = {self.mean_total:.4f}, {self.n:,} queries)"
        )

    @property
    def quantisation(self) -> NDArray[np.float64]:
        """Lost by searching the codes instead of the vectors, per query, shape (n,)."""
        return self._loss(self.exact, self.codes)

    @property
    def index(self) -> NDArray[np.float64]:
        """Lost by the index against exact search over the codes, per query, shape (n,)."""
        return self._loss(self.codes, self.run)

    @property
    def total(self) -> NDArray[np.float64]:
        """The sum of both, to the bit, per query, shape (n,)."""
        return self.quantisation + self.index

    @property
    def n(self) -> int:
        """How many queries have all three values."""
        return int((~np.isnan(self.total)).sum())

    @property
    def mean_quantisation(self) -> float:
        """Mean of `quantisation` over the queries with all three values."""
        return self._mean(self.quantisation)

    @property
    def mean_index(self) -> float:
        """Mean of `index` over the queries with all three values."""
        return self._mean(self.index)

    @property
    def mean_total(self) -> float:
        """The sum of both means, to the bit."""
        return self.mean_quantisation + self.mean_index

    def _loss(self, better: Scores, worse: Scores) -> NDArray[np.float64]:
        loss = better.values - worse.values
        return -loss if self.lower_is_better else loss

    def _mean(self, part: NDArray[np.float64]) -> float:
        values = part[~np.isnan(self.total)]
        return math.fsum(values) / len(values) if len(values) else math.nan
