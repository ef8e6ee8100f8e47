"""Calibration: the earliest threshold whose expected loss on new queries is bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Calibration", "calibrated", "expected_bound", "queries_needed", "stops"]


@dataclass(frozen=True)
class Calibration:
    """What calibration on n queries came to.

    threshold: a query stops after the first round whose score is above it; -inf: after the first
        round, inf: never before the last.
    bound: of the expected loss of a new query with this threshold; above what is allowed where
        even the last round is not good enough.
    loss: the mean over the calibration queries.
    """

    threshold: float
    bound: float
    loss: float
    n: int


def calibrated(
    scores: NDArray[np.float64], losses: NDArray[np.float64], allowed: float, most: float
) -> Calibration:
    """The earliest stops whose expected loss is at most `allowed`, by conformal risk control.

    scores, losses: (n, rounds) of calibration queries; losses are from 0 to `most`.

    With n calibration queries and one new one that are exchangeable, the expected loss of the new
    one is at most `allowed`, over the draw of both, whatever the scores are, for the lowest
    threshold with (sum of losses + most) / (n + 1) <= allowed (Angelopoulos, Bates, Fisch, Lei,
    Schuster: Conformal risk control, 2024). That takes losses that fall as the threshold rises:
    a loss that grows again in a later round is counted from the first.
    """
    n = len(losses)
    ahead = _worst_ahead(losses)
    tops = np.maximum.accumulate(scores, axis=1)
    # A query stops in round t for thresholds below tops[t], unless it stopped before.
    steps = (ahead[:, :-1] - ahead[:, 1:]).reshape(-1)
    values = tops[:, :-1].reshape(-1)
    order = np.argsort(-values, kind="stable")
    candidates, first = np.unique(-values[order], return_index=True)
    sums = np.concatenate([[0.0], np.cumsum(steps[order])])
    # At a threshold equal to a value, those above it have stopped; below all values, all have.
    totals = ahead[:, -1].sum() + sums[np.append(first, len(order))]
    thresholds = np.append(-candidates, -math.inf)
    bounds = (totals + most) / (n + 1)
    fitting = np.flatnonzero(bounds <= allowed + 1e-12)
    if len(fitting) == 0:
        total = float(ahead[:, -1].sum())
        return Calibration(math.inf, (total + most) / (n + 1), total / max(n, 1), n)
    at = int(fitting[-1])
    return Calibration(
        float(thresholds[at]), float(bounds[at]), float(totals[at]) / max(n, 1), n
    )  # fmt: skip


def stops(scores: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """After which round each query stops, (n,), given its scores after every round (n, rounds)."""
    above = scores > threshold
    above[:, -1] = True
    return np.asarray(above.argmax(axis=1), dtype=np.int64)


def expected_bound(losses: NDArray[np.float64], most: float) -> float:
    """The bound of the expected loss of a new query, given losses (n,) of calibration queries."""
    return float((losses.sum() + most) / (len(losses) + 1))


def queries_needed(loss: float, allowed: float, most: float) -> int | None:
    """How many calibration queries of this mean loss meet the bound; None where none do."""
    return math.ceil((most - allowed) / (allowed - loss)) if loss < allowed else None


def _worst_ahead(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest loss in this round or a later one."""
    return np.asarray(np.maximum.accumulate(losses[:, ::-1], axis=1)[:, ::-1])
