"""Measures of the retrieval layer that weigh results by grade: nDCG, ERR, RBP.

Negative grades gain nothing. Names and values follow trec_eval and ir_measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import MeasureError
from semrecall.measures.coverage import share
from semrecall.measures.grammar import NO_RELEVANT, measure
from semrecall.measures.hits import Hits
from semrecall.measures.kinds import BETWEEN, FLAG, map_or, number_or
from semrecall.measures.problem import Problem, need
from semrecall.measures.relevance import RETRIEVAL, no_judgment, no_relevant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.judged import Judged
    from semrecall.measures.kinds import Value

    Array = NDArray[np.float64]
    Reasons = Iterator[tuple[str, Any]]

__all__ = ["err", "gains_of", "ideal_dcg", "ndcg", "nerr", "rbp", "rbp_residual", "top_grade"]

_LARGEST_EXPONENT = 1000


# -- why a value is undefined, and what to know about a mean --------------------------------------


def _no_gain(problem: Problem, k: int | None, gain: Value = "grade", **_: Any) -> Reasons:
    yield from no_judgment(problem, k)
    known = _judged(problem)
    positive = known.rows[gains_of(known.grades, gain) > 0]
    yield NO_RELEVANT, np.bincount(positive, minlength=len(problem)) == 0


def _no_relevant_or_gain(
    problem: Problem, k: int | None, rel: float | str = "graded", **_: Any
) -> Reasons:
    yield from no_relevant(problem, k, np.nextafter(0, 1) if isinstance(rel, str) else rel)


def _gain_notes(
    problem: Problem, k: int | None, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    if params["gain"] == "grade" and _highest(problem) > 1:
        yield "the gain is the grade"
    elif not isinstance(params["gain"], str):
        kept = np.setdiff1d(_judged(problem).grades, [grade for grade, _ in params["gain"]])
        if len(kept):
            shown = ", ".join(f"{grade:g}" for grade in kept[:5])
            yield f"grades outside the map keep themselves as gain: {shown}"


def _highest_notes(
    problem: Problem, k: int | None, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    if params["max_rel"] == "highest":
        yield f"max_rel = {_highest(problem):g}, the highest grade in the judgments"


def _residual_notes(
    problem: Problem, k: int | None, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    if isinstance(params["rel"], str) and _highest(problem) > 1:
        words = {"query": "each query's highest grade", "highest": "the highest grade of all"}
        top = params["max_rel"]
        yield f"the gain is the grade over {words[top] if isinstance(top, str) else f'{top:g}'}"
    residual, use = rbp_residual(problem, k, p=params["p"]), ~np.isnan(values)
    if use.any():
        yield f"residual {np.mean(residual[use]):.4f}: what results not judged could add"


# -- the measures ---------------------------------------------------------------------------------


@measure(
    "nDCG",
    **RETRIEVAL,
    params={"gain": map_or("grade", "exp"), "judged_only": FLAG},
    undefined=_no_gain,
    notes=_gain_notes,
    synonyms={
        ("dcg", "log2"): ("gain", "grade"),
        ("dcg", "exp-log2"): ("gain", "exp"),
        ("gain", "linear"): ("gain", "grade"),
        ("gains", None): ("gain", None),
    },
)
def ndcg(
    problem: Problem, k: int | None = None, *, gain: Value = "grade", judged_only: bool = False
) -> Array:
    """Normalised discounted cumulative gain: graded results, those at the top counting most.

    (n,) in [0, 1]: the sum of gain / log2(rank + 1) over the first k results, divided by the same
    for all judged documents in the best order. The gain is the grade; 2^grade - 1 for `gain=exp`;
    or what a map such as {1:1,2:3} says, where a grade outside the map is its own gain. Negative
    gains are 0. Source: trec_eval ndcg, ndcg_cut.
    """
    hits = problem.condensed(judged_only).first(k)
    return share(_dcg(hits, gains_of(hits.grades, gain)), ideal_dcg(problem, k, gain))


_CASCADE: dict[str, Any] = RETRIEVAL | {
    "params": {"max_rel": number_or("highest")},
    "undefined": _no_gain,
    "notes": _highest_notes,
}


@measure("ERR", **_CASCADE)
def err(problem: Problem, k: int | None = None, *, max_rel: float | str = "highest") -> Array:
    """Expected reciprocal rank: one over the rank where a user who reads from the top stops.

    (n,) in [0, 1): at a result of grade g the user stops with probability (2^g - 1) / 2^max_rel.
    max_rel is the highest grade in the judgments unless given. Source: gdeval ERR, which takes
    max_rel=4.
    """
    return _cascade(problem.hits.first(k), top_grade(problem, max_rel))


@measure("nERR", **_CASCADE)
def nerr(problem: Problem, k: int | None = None, *, max_rel: float | str = "highest") -> Array:
    """Normalised expected reciprocal rank: ERR over that of the best order of all judged documents.

    (n,) in [0, 1]. Parameters as of ERR.
    """
    top, ideal = top_grade(problem, max_rel), _ideal(problem, "grade").first(k)
    return share(_cascade(problem.hits.first(k), top), _cascade(ideal, top))


@measure(
    "RBP",
    **RETRIEVAL,
    params={
        "p": BETWEEN,
        "rel": number_or("graded"),
        "max_rel": number_or("query", "highest"),
    },
    undefined=_no_relevant_or_gain,
    notes=_residual_notes,
)
def rbp(
    problem: Problem,
    k: int | None = None,
    *,
    p: float = 0.8,
    rel: float | str = "graded",
    max_rel: float | str = "query",
) -> Array:
    """Rank-biased precision: the gain a user sees who goes on to the next result with chance p.

    (n,) in [0, 1]: the sum of (1 - p) p^(rank - 1) times the gain, which is 1 for a grade of `rel`
    or more where rel is given, else the grade over max_rel: the query's highest grade, the
    `highest` of all, or a number. `RBPresid` says how much is unknown. Source: trec_eval 10 rbp
    (p = 0.9), ir_measures RBP.
    """
    hits = problem.hits.first(k)
    if isinstance(rel, str):
        gains = np.maximum(hits.grades, 0.0) / top_grade(problem, max_rel)[hits.rows]
    else:
        gains = (hits.grades >= rel).astype(np.float64)
    return hits.sum(gains * _patience(hits, p))


@measure(
    "RBPresid",
    **RETRIEVAL,
    params={"p": BETWEEN},
    undefined=no_judgment,
    lower_is_better=True,
    aliases=("rbp_resid",),
)
def rbp_residual(problem: Problem, k: int | None = None, *, p: float = 0.8) -> Array:
    """Residual of RBP: how much larger it were if all that is not judged were relevant.

    (n,) in [0, 1]: the weights of unjudged results and of all ranks past the last result (or past
    k). Source: Moffat and Zobel, Rank-Biased Precision.
    """
    hits = problem.hits.first(k)
    # Rounding alone can reach past 1.
    return np.maximum(1.0 - hits.sum(_patience(hits, p)), 0.0)


# -- gains and orders -----------------------------------------------------------------------------


def gains_of(grades: Array, gain: Value) -> Array:
    """What results of these grades are worth to nDCG, at least 0."""
    if isinstance(gain, tuple):
        return _mapped(grades, gain)
    gains = np.maximum(grades, 0.0)
    if gain == "exp":
        if gains.max(initial=0.0) > _LARGEST_EXPONENT:
            raise MeasureError(
                f"grade {gains.max():g} is too large for the gain 2^grade - 1",
                hint="use nDCG, whose gain is the grade itself",
            )
        gains = np.exp2(gains) - 1.0
    return gains


def ideal_dcg(problem: Problem, k: int | None, gain: Value) -> Array:
    """The discounted gains of all judged documents in the best order, cut at k, shape (n,)."""
    ideal = _ideal(problem, gain).first(k)
    return _dcg(ideal, ideal.grades)


def _mapped(grades: Array, pairs: tuple[tuple[float, float], ...]) -> Array:
    known = np.array(pairs)
    at = np.minimum(np.searchsorted(known[:, 0], grades), len(known) - 1)
    return np.maximum(np.where(known[at, 0] == grades, known[at, 1], grades), 0.0)


def _judged(problem: Problem) -> Judged:
    return need(problem.judged, "judgments")


def _highest(problem: Problem) -> float:
    return float(_judged(problem).grades.max(initial=0.0))


def _ideal(problem: Problem, gain: Value) -> Hits:
    """All judged documents as if returned in the best order, with their gains for grades."""
    known = _judged(problem)
    gains = gains_of(known.grades, gain) if gain != "grade" else known.grades
    order = np.lexsort((-gains, known.rows))
    ranks = np.arange(1, len(known) + 1) - known.offsets[known.rows]
    return Hits(known.rows, ranks, np.maximum(gains[order], 0.0), np.diff(known.offsets), order)


def _dcg(hits: Hits, gains: Array) -> Array:
    return hits.sum(gains / np.log2(hits.ranks + 1.0))


def _patience(hits: Hits, p: float) -> Array:
    """The weights of RBP at the ranks of the hits, shape (h,)."""
    return np.asarray((1.0 - p) * p ** (hits.ranks - 1.0))


def top_grade(problem: Problem, max_rel: float | str) -> Array:
    """The grade of the best possible document for each query, (n,); MeasureError if surpassed."""
    known = _judged(problem)
    if max_rel == "query":
        top = np.zeros(len(problem))
        np.maximum.at(top, known.rows, known.grades)
        # No gain at all where nothing is relevant; the value is undefined there.
        return np.where(top > 0, top, 1.0)
    highest = _highest(problem)
    if isinstance(max_rel, str):
        return np.full(len(problem), highest or 1.0)
    if highest > max_rel or max_rel <= 0:
        raise MeasureError(
            f"max_rel is {max_rel:g}, but the judgments have grade {highest:g}",
            hint="max_rel is the highest grade that a judge can give",
        )
    return np.full(len(problem), max_rel)


def _cascade(hits: Hits, top: Array) -> Array:
    """The sum of the chances (n,) that a reader stops at a hit, each over its rank."""
    # 2^g / 2^top by its exponent, which is at most 0: no grade is too large.
    height = top[hits.rows]
    stop = np.exp2(np.maximum(hits.grades, 0.0) - height) - np.exp2(-height)
    reached, total = np.ones(len(top)), np.zeros(len(top))
    order = np.argsort(hits.nth, kind="stable")
    for part in np.split(order, np.cumsum(np.bincount(hits.nth)[1:])[:-1]):
        rows = hits.rows[part]
        total[rows] += reached[rows] * stop[part] / hits.ranks[part]
        reached[rows] *= 1.0 - stop[part]
    return total
