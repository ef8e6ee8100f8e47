"""Units in which systems tell scores, and the way from each to the natural unit of its space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError
from semrecall.registry import did_you_mean
from semrecall.space import COSINE, IP, L2, Space
from semrecall.space import space as space_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UNITS", "Unit", "space_and_unit"]


@dataclass(frozen=True)
class Unit:
    """A unit of scores: the space it belongs to, and how its values become that space's own."""

    space: Space
    convert: Callable[[Any], Any]
    about: str


def _unfolded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inner products x that were told as x + 1, or as 1 / (1 - x) where x is negative."""
    small = np.where(scores > 0, scores, np.nan)
    return np.where(scores >= 1, scores - 1, 1 - 1 / small)


#: Rounding can leave a squared distance a little below zero.
UNITS: dict[str, Unit] = {
    "ip": Unit(IP, lambda s: s, "inner product"),
    "negated-ip": Unit(IP, lambda s: -s, "the inner product, negated"),
    "ip-distance": Unit(IP, lambda s: 1 - s, "1 - inner product"),
    "folded-ip": Unit(IP, _unfolded, "1 + ip, or 1 / (1 - ip) where ip is negative"),
    "half-ip": Unit(IP, lambda s: 2 * s - 1, "(1 + ip) / 2, of vectors of length one"),
    "cosine": Unit(COSINE, lambda s: s, "cosine similarity"),
    "cosine-distance": Unit(COSINE, lambda s: 1 - s, "1 - cosine"),
    "inverse-cosine-distance": Unit(COSINE, lambda s: 2 - 1 / s, "1 / (1 + 1 - cosine)"),
    "half-cosine": Unit(COSINE, lambda s: 2 * s - 1, "(1 + cosine) / 2"),
    "l2": Unit(L2, lambda s: s, "Euclidean distance"),
    "squared-l2": Unit(L2, lambda s: np.sqrt(np.maximum(s, 0)), "squared Euclidean distance"),
    "inverse-l2": Unit(
        L2, lambda s: np.sqrt(np.maximum(1 / s - 1, 0)), "1 / (1 + squared Euclidean distance)"
    ),
}


def space_and_unit(
    space: str | Space | None, unit: str | None
) -> tuple[Space | None, Callable[[Any], Any]]:
    """The space of scores told in this unit, and how they become natural; None where unknown."""
    wanted = None if space is None else space_of(space)
    if unit is None:
        return wanted, lambda scores: scores
    if unit not in UNITS:
        raise InputError(f"unknown unit of scores {unit!r}", hint=did_you_mean(unit, UNITS))
    if wanted not in (None, UNITS[unit].space):
        raise InputError(f"scores in {unit} are of the space {UNITS[unit].space}, not {wanted}")
    return UNITS[unit].space, UNITS[unit].convert
