"""Bounds: what relevance measures could be if the unjudged results were judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import MeasureError
from semrecall.measures.coverage import share
from semrecall.measures.grammar import Measure, parse
from semrecall.measures.problem import Problem, need

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from semrecall.measures.judged import Judged

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]

__all__ = ["highest_grade", "is_bounded", "relevance_bounds", "unjudged_results"]

_SETTINGS = {"rel", "gain"}


def relevance_bounds(
    problem: Problem, measure: str | Measure, *, grade: float | None = None
) -> tuple[Array, Array]:
    """(lowest, highest) value of a measure for any labels of the unjudged results, (n,) each.

    Each unjudged result among those that the measure looks at (the first k; all without a cutoff)
    is either irrelevant or of `grade`: by default the highest grade in the judgments, and not
    below `rel`. The ends are exact, over all choices of which of them are relevant: more relevant
    documents raise the divisors of R, AP and nDCG too, so "all relevant" is not always highest.
    Documents that the run did not return stay as they are. NaN where no choice gives a value.

    For P, R, Success, RR, AP and nDCG without parameters but rel and gain; MeasureError for others.
    """
    wanted = parse(measure)
    if not is_bounded(wanted):
        raise MeasureError(
            f"there are no bounds of {wanted}",
            hint=f"bounds are known for {', '.join(_BOUNDS)} with the parameters rel and gain",
        )
    rel = wanted.rel
    graded = max(highest_grade(problem), rel) if grade is None else float(grade)
    if "rel" in wanted.settings and graded < rel:
        raise MeasureError(
            f"grade {graded:g} is not relevant to {wanted}; expected at least {rel:g}"
        )
    gain = str(wanted.settings.get("gain", "grade"))
    return _BOUNDS[wanted.name](_Case(problem, wanted.k, rel, gain, graded))


def is_bounded(measure: Measure) -> bool:
    """Whether `relevance_bounds` knows the measure with its parameters."""
    given = dict(measure.params)
    return (
        measure.name in _BOUNDS
        and set(given) <= _SETTINGS
        and given.get("gain", "grade") in ("grade", "exp")
    )


def highest_grade(problem: Problem) -> float:
    """The highest grade in the judgments, at least 1."""
    return float(need(problem.judged, "judgments").grades.max(initial=1.0))


def unjudged_results(problem: Problem, k: int | None) -> NDArray[np.bool_]:
    """Which of the first k results are unjudged, (n, k) or narrower."""
    found = need(problem.found_grades, "judgments")[:, :k]
    return (problem.found[:, :k] >= 0) & np.isnan(found)


class _Case:
    """The results of n queries as a measure sees them; ranks count from 1."""

    def __init__(
        self, problem: Problem, k: int | None, rel: float, gain: str, grade: float
    ) -> None:
        self.judged: Judged = need(problem.judged, "judgments")
        self.grades: Array = need(problem.found_grades, "judgments")[:, :k]
        self.unjudged = unjudged_results(problem, k)
        self.hits = self.grades >= rel
        self.relevant: Whole = self.judged.count(rel)
        self.count: Whole = np.count_nonzero(self.unjudged, axis=1)
        self.found: Whole = np.count_nonzero(self.hits, axis=1)
        self.k, self.gain, self.grade = k, gain, grade

    def ranks(self) -> Whole:
        """Ranks of the unjudged, first to last, (n, most); 0 behind the last."""
        most = int(self.count.max(initial=0))
        order = np.argsort(~self.unjudged, axis=1, kind="stable")[:, :most]
        return np.where(np.arange(most) < self.count[:, None], order + 1, 0)

    def gains(self, grades: Array) -> Array:
        """Gain of each grade."""
        positive = np.maximum(np.nan_to_num(grades), 0.0)
        return np.exp2(positive) - 1.0 if self.gain == "exp" else positive


def _precision(case: _Case) -> tuple[Array, Array]:
    assert case.k is not None
    return share(case.found, case.k), share(case.found + case.count, case.k)


def _recall(case: _Case) -> tuple[Array, Array]:
    low = share(case.found, case.relevant)
    high = share(case.found + case.count, case.relevant + case.count)
    return np.where(np.isnan(low), high, low), high


def _success(case: _Case) -> tuple[Array, Array]:
    return (case.found > 0).astype(np.float64), (case.found + case.count > 0).astype(np.float64)


def _reciprocal_rank(case: _Case) -> tuple[Array, Array]:
    return _first(case.hits), _first(case.hits | case.unjudged)


def _first(marked: NDArray[np.bool_]) -> Array:
    if marked.shape[1] == 0:
        return np.zeros(len(marked))
    return np.asarray(marked.any(axis=1) / (np.argmax(marked, axis=1) + 1.0))


def _average_precision(case: _Case) -> tuple[Array, Array]:
    """With s of the unjudged relevant, AP is highest for the first s of them, lowest for the last.

    One more relevant document at rank r adds its own precision, and 1/q for each relevant rank
    q > r, whose precision rises.
    """
    rank = np.arange(1.0, case.hits.shape[1] + 1)
    above = np.cumsum(case.hits, axis=1)
    total = np.where(case.hits, above / rank, 0.0).sum(axis=1)
    inverse = np.where(case.hits, 1.0 / rank, 0.0)
    below = inverse.sum(axis=1, keepdims=True) - np.cumsum(inverse, axis=1)
    ranks = case.ranks()
    at, used = np.maximum(ranks - 1, 0), ranks > 0
    own = np.take_along_axis(above, at, axis=1), np.take_along_axis(below, at, axis=1)
    first_to_last = np.arange(1, ranks.shape[1] + 1)
    best = np.where(used, (own[0] + first_to_last) / (at + 1.0) + own[1], 0.0)
    alone = np.where(used, (own[0] + 1) / (at + 1.0) + own[1], 0.0)
    added = np.where(used, 1.0 / (at + 1.0), 0.0)
    later = np.cumsum(added[:, ::-1], axis=1)[:, ::-1] - added
    return _extremes(case, total, best, alone + later, lambda s: case.relevant + s)


def _ndcg(case: _Case) -> tuple[Array, Array]:
    """With s of the unjudged relevant, DCG is highest for the first s, lowest for the last s."""
    gained = case.gains(case.grades)
    total = (gained / np.log2(np.arange(2.0, gained.shape[1] + 2))).sum(axis=1)
    ranks = case.ranks()
    gain = float(case.gains(np.array([case.grade]))[0])
    added = np.where(ranks > 0, gain / np.log2(np.maximum(ranks, 1) + 1.0), 0.0)
    return _extremes(case, total, added, added, lambda s: _ideal(case, gain, s))


def _ideal(case: _Case, gain: float, s: int) -> Array:
    """The highest DCG of the judged documents and s more of this gain, shape (n,)."""
    known = case.judged
    n = len(case.count)
    gains = case.gains(known.descending)
    place = np.arange(len(known)) - known.offsets[known.rows]
    place = place + np.where(gains < gain, s, 0)
    use = slice(None) if case.k is None else place < case.k
    ideal = np.bincount(known.rows[use], gains[use] / np.log2(place[use] + 2.0), n)
    start = np.bincount(known.rows[gains >= gain], minlength=n)
    deepest = int(start.max(initial=0)) + s if case.k is None else case.k
    sums = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(deepest) + 2.0))])
    between = sums[np.minimum(start + s, deepest)] - sums[np.minimum(start, deepest)]
    return np.asarray(ideal + gain * between, dtype=np.float64)


def _extremes(
    case: _Case, total: Array, best: Array, worst: Array, divisor: Callable[[int], Array | Whole]
) -> tuple[Array, Array]:
    """(lowest, highest) of total plus the first of `best`, or the last of `worst`, over a divisor.

    best, worst: (n, most) what the numerator gains by each further unjudged result, first to last.
    """
    high = low = share(total, divisor(0))
    upper, lower = total.astype(np.float64), total.astype(np.float64)
    row = np.arange(len(total))
    for s in range(1, best.shape[1] + 1):
        more = case.count >= s
        upper = upper + np.where(more, best[:, s - 1], 0.0)
        lower = lower + np.where(more, worst[row, np.maximum(case.count - s, 0)], 0.0)
        size = divisor(s)
        high = np.where(more, np.fmax(high, share(upper, size)), high)
        low = np.where(more, np.fmin(low, share(lower, size)), low)
    return low, high


_BOUNDS: dict[str, Callable[[_Case], tuple[Array, Array]]] = {
    "P": _precision,
    "R": _recall,
    "Success": _success,
    "RR": _reciprocal_rank,
    "AP": _average_precision,
    "nDCG": _ndcg,
}
