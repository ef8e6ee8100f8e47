"""Findings on stored scores: in which space and unit they are, by scoring a sample again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from semrecall.check.inputs import Inputs, Pairs
from semrecall.check.report import Finding
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["Fit", "findings", "fits"]

#: Relative rounding of a score computed in float32, with room for the order of sums.
_ROUNDING = 4e-6
#: Share of pairs that must agree; the rest may be damaged.
_ENOUGH = 0.98
#: A typical deviation of so much of the spread of the scores is still the same score.
_ROUGH = 0.1

Function: TypeAlias = "Callable[[NDArray[np.float64]], NDArray[np.float64]]"


@dataclass(frozen=True)
class _Unit:
    """A way to write the scores of a space: `write` makes it of ip, cosine or *squared* l2.

    natural: whether it is the unit of our runs; else `turn` says how to get there.
    """

    space: str
    name: str
    write: Function
    turn: str = ""

    @property
    def natural(self) -> bool:
        """Whether these are scores as a Run has them."""
        return not self.turn


def _positive_part(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.maximum(x, 0.0))


def _lucene_ip(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.where(x < 0, 1 / (1 - np.minimum(x, 0)), 1 + x))


_UNITS = (
    _Unit("ip", "inner products", lambda x: x),
    _Unit("cosine", "cosine similarities", lambda x: x),
    _Unit("l2", "Euclidean distances", lambda x: np.sqrt(_positive_part(x))),
    _Unit("l2", "squared Euclidean distances", _positive_part, "take the square root"),
    _Unit("cosine", "cosine distances (1 - cosine)", lambda x: 1 - x, "take 1 - score"),
    _Unit("ip", "negated inner products", lambda x: -x, "take -score"),
    _Unit("ip", "1 - inner product", lambda x: 1 - x, "take 1 - score"),
    _Unit("cosine", "(1 + cosine) / 2", lambda x: (1 + x) / 2, "take 2 * score - 1"),
    _Unit("ip", "(1 + inner product) / 2", lambda x: (1 + x) / 2, "take 2 * score - 1"),
    _Unit("cosine", "negated cosines", lambda x: -x, "take -score"),
    _Unit(
        "cosine", "angles", lambda x: np.arccos(np.clip(x, -1, 1)), "take the cosine of the score"
    ),
    _Unit(
        "cosine",
        "distances of normalised vectors, sqrt(2 - 2 cosine)",
        lambda x: np.sqrt(_positive_part(2 - 2 * x)),
        "take 1 - score^2 / 2",
    ),
    _Unit(
        "cosine",
        "1 / (2 - cosine)",
        lambda x: 1 / (2 - np.minimum(x, 1.0)),
        "take 2 - 1 / score",
    ),
    _Unit(
        "ip",
        "inner products as Lucene scales them (1 + ip; 1 / (1 - ip) below 0)",
        _lucene_ip,
        "take score - 1 where it is at least 1, else 1 - 1 / score",
    ),
    _Unit(
        "l2",
        "1 / (1 + squared distance)",
        lambda x: 1 / (1 + _positive_part(x)),
        "take sqrt(1 / score - 1)",
    ),
    _Unit(
        "l2",
        "1 / (1 + distance)",
        lambda x: 1 / (1 + np.sqrt(_positive_part(x))),
        "take 1 / score - 1",
    ),
    _Unit("l2", "negated distances", lambda x: -np.sqrt(_positive_part(x)), "take -score"),
    _Unit("l2", "negated squared distances", lambda x: -_positive_part(x), "take sqrt(-score)"),
    _Unit("l2", "half of squared distances", lambda x: _positive_part(x) / 2, "take sqrt(2 score)"),
    _Unit("hamming", "Hamming distances in bits", lambda x: x),
    _Unit("hamming", "negated Hamming distances", lambda x: -x, "take -score"),
    _Unit("jaccard", "Jaccard distances", lambda x: x),
    _Unit("jaccard", "Jaccard similarities (1 - distance)", lambda x: 1 - x, "take 1 - score"),
)


@dataclass(frozen=True)
class Fit:
    """How well one unit explains stored scores.

    agree: share of pairs that agree up to float32 rounding.
    deviation: median deviation as a share of the spread of the stored scores.
    """

    space: str
    name: str
    natural: bool
    turn: str
    agree: float
    deviation: float


def fits(pairs: Pairs) -> list[Fit]:
    """How every unit fits the stored scores of some pairs, in the order of the table of units."""
    spread = float(np.std(pairs.stored)) or 1.0
    found = []
    for unit in (unit for unit in _UNITS if unit.space in pairs.exact):
        exact, rounding = _argument(unit, pairs)
        expected = unit.write(exact)
        allowed = np.abs(unit.write(exact + rounding) - unit.write(exact - rounding))
        allowed += _ROUNDING * np.abs(expected)
        off = np.abs(pairs.stored - expected)
        known = np.isfinite(off)
        agree = float((off <= allowed)[known].mean()) if known.any() else 0.0
        deviation = float(np.median(off[known])) / spread if known.any() else np.inf
        found.append(Fit(unit.space, unit.name, unit.natural, unit.turn, agree, deviation))
    return found


def _argument(unit: _Unit, pairs: Pairs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a unit is made of (ip, cosine, squared l2), and how far float32 may be off there."""
    exact = pairs.exact[unit.space]
    if unit.space == "hamming":
        return exact, np.zeros(len(exact))
    if unit.space in ("cosine", "jaccard"):
        return exact, np.full(len(exact), _ROUNDING)
    if unit.space == "ip":
        return exact, _ROUNDING * pairs.query_norms * pairs.base_norms
    return exact**2, _ROUNDING * (pairs.query_norms**2 + pairs.base_norms**2)


def findings(inputs: Inputs) -> Iterator[Finding]:
    """In which space and unit the scores of truth and run are."""
    if inputs.both is None:
        return
    for name, run in inputs.runs():
        if run.flat_scores is None or inputs.base_scan is None:
            continue
        pairs = inputs.pairs(run)
        if len(pairs.stored) < 3:
            continue
        yield from _judge(name, run.space or inputs.space, pairs)


def _judge(name: str, space: Space | None, pairs: Pairs) -> Iterator[Finding]:
    found = fits(pairs)
    exact = [fit for fit in found if fit.agree >= _ENOUGH]
    if exact:
        yield from _exact(name, space, exact, pairs)
        return
    best = min(found, key=lambda fit: fit.deviation)
    if best.deviation <= _ROUGH:
        yield _rough(name, space, found, best, pairs)
        return
    yield Finding(
        "error" if name == "truth" else "warning",
        "scores-fit-nothing",
        name,
        f"The scores of the {name} are no inner products, cosines or distances of these vectors, "
        f"nor a usual form of them ({plural(len(pairs.stored), 'pair')} scored again; the nearest, "
        f"{best.name}, are off by {best.deviation:.2g} standard deviations).",
        "Other vectors, rows in another order, or a score made from several things? Believe "
        "the ids only, or give the vectors that belong to it.",
    )


def _exact(name: str, space: Space | None, exact: list[Fit], pairs: Pairs) -> Iterator[Finding]:
    """Some units fit to the last digit of float32."""
    natural = list(dict.fromkeys(fit.space for fit in exact if fit.natural))
    checked = f"{plural(len(pairs.stored), 'pair')} scored again"
    if space is not None and space.name in natural:
        also = [other for other in natural if other != space.name]
        same = f" {' and '.join(also)} cannot be told apart from it here." if also else ""
        yield Finding(
            "note",
            "scores-fit",
            name,
            f"Scores of the {name} are those of {space}, as stated ({checked}).{same}",
        )
        return
    if space is None and natural:
        yield Finding(
            "note",
            "scores-fit",
            name,
            f"The {name} does not say its space; its scores are those of "
            f"{' and '.join(natural)} ({checked}).",
            f"State it: --space {natural[0]}, or space={natural[0]!r}.",
        )
        return
    own = [fit for fit in exact if space is not None and fit.space == space.name]
    fit = own[0] if own else exact[0]
    if space is not None and fit.space != space.name and not own:
        yield Finding(
            "error",
            "score-space",
            name,
            f"The {name} says {space}, but its scores are {fit.name} ({checked}).",
            "It was made in another space, or labelled wrongly. "
            + (f"State space {fit.space}" if fit.natural else f"To get {fit.space}, {fit.turn}")
            + ", or make it again in the space of the index.",
        )
        return
    yield Finding(
        "error" if space is not None else "warning",
        "score-unit",
        name,
        f"Scores of the {name} are {fit.name} ({checked}); semrecall's unit is the natural one.",
        f"To get the scores of {fit.space}, {fit.turn}. As they are, tolerances and order would "
        "be wrong; ids are not affected where rows stand nearest first.",
    )


def _rough(name: str, space: Space | None, found: list[Fit], best: Fit, pairs: Pairs) -> Finding:
    """Some unit fits, but not to the last digit: codes, other precision, or other vectors."""
    if space is not None and best.space != space.name:
        stated = next((f for f in found if f.natural and f.space == space.name), best)
        if stated.deviation <= max(2 * best.deviation, 1e-3):
            best = stated
    wrong = space is not None and best.space != space.name
    approximate = (
        f"Scores of the {name} are roughly {best.name}, off by {best.deviation:.2g} standard "
        f"deviations in the median ({plural(len(pairs.stored), 'pair')} scored again)."
    )
    if wrong or not best.natural:
        return Finding(
            "error" if wrong or name == "truth" else "warning",
            "score-space" if wrong else "score-unit",
            name,
            approximate + (f" It says {space}." if wrong else ""),
            f"To get the scores of {best.space}, {best.turn}."
            if best.turn
            else "It was made in another space, or labelled wrongly.",
        )
    if name == "run":
        return Finding(
            "note",
            "scores-approximate",
            name,
            approximate,
            "The index scores its codes, not the vectors. Give base and queries to semrecall "
            "score, and exact scores are used.",
        )
    return Finding(
        "warning",
        "scores-approximate",
        name,
        approximate,
        "A truth should be exact: was it made from vectors of another precision, from codes, or "
        "by an index? Make it again with semrecall truth.",
    )
