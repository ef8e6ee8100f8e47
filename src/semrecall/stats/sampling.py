"""Samples of a finite population whose inclusion probabilities are known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["draw_sample", "inclusion_probabilities"]


def inclusion_probabilities(weights: ArrayLike, size: int) -> NDArray[np.float64]:
    """Probabilities proportional to `weights` (m,), positive, whose sum is `size`; shape (m,).

    Where that would be more than 1, it is 1, and the rest is shared by the others in proportion.
    """
    values = np.asarray(weights, dtype=np.float64)
    if not 0 <= size <= len(values):
        raise InputError(f"a sample of {size:,} from {len(values):,}; expected 0 to all of them")
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError("weights of a sample must be positive numbers")
    # The largest come first to their limit of 1: after c of them, the rest share size - c.
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    rest = np.cumsum(ordered[::-1])[::-1]
    left = size - np.arange(len(values))
    certain = int(np.count_nonzero((left > 0) & (left * ordered >= rest)))
    probabilities = np.ones(len(values))
    if certain < len(values):
        share = (size - certain) * ordered[certain:] / rest[certain]
        probabilities[order[certain:]] = np.minimum(share, 1.0)
    return probabilities


def draw_sample(probabilities: ArrayLike, *, seed: int = 0) -> NDArray[np.int64]:
    """Positions drawn, rising: each i with exactly `probabilities[i]`, all in one fixed size.

    The size is the sum of the probabilities, rounded up or down where it is no whole number.
    Systematic sampling after a random order (Madow 1949): equal probabilities give a simple random
    sample without replacement.
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    if not ((chances >= 0) & (chances <= 1)).all():
        raise InputError("probabilities of a sample must be between 0 and 1")
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(chances))
    sums = np.cumsum(chances[order])
    if len(sums):
        # So that sums of whole numbers are whole, and exactly that many are drawn.
        total = math.fsum(chances)
        nearest = round(total)
        total = float(nearest) if math.isclose(total, nearest, rel_tol=1e-9) else total
        sums[-1] = total
    edges = np.floor(np.concatenate([[0.0], sums]) + generator.random())
    return np.sort(order[np.diff(edges) > 0])
