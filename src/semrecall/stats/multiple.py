"""Several tests at once: p-values corrected for how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import InputError
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["CORRECTIONS", "corrected"]

#: Name -> what a corrected p-value below alpha then means.
CORRECTIONS: dict[str, str] = {
    "holm": "Holm: the chance of a single false finding stays below alpha",
    "bonferroni": "Bonferroni: as Holm, by a stricter rule",
    "bh": "Benjamini-Hochberg: the expected share of false findings stays below alpha",
    "none": "not corrected: each test has its own chance of a false finding",
}


def corrected(p: ArrayLike, method: str = "holm") -> NDArray[np.float64]:
    """P-values (m,) corrected for being m; NaN stays NaN and does not count.

    method: "holm" (Holm 1979), "bonferroni", "bh" (Benjamini and Hochberg 1995), or "none".
    """
    if method not in CORRECTIONS:
        raise InputError(f"unknown correction {method!r}", hint=did_you_mean(method, CORRECTIONS))
    values = np.array(p, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    m = len(known)
    if method == "none" or m == 0:
        return values
    if method == "bonferroni":
        values[known] = np.minimum(values[known] * m, 1.0)
        return values
    order = known[np.argsort(values[known], kind="stable")]
    if method == "holm":
        # The smallest is multiplied by m, the next by m - 1, ..., and none falls below an earlier.
        scaled = np.maximum.accumulate(values[order] * np.arange(m, 0, -1))
    else:
        scaled = values[order] * m / np.arange(1, m + 1)
        scaled = np.minimum.accumulate(scaled[::-1])[::-1]
    values[order] = np.minimum(scaled, 1.0)
    return values
