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

__all__ = ["highest_grade", "is_bounded", "judged_counts", "relevance_bounds"]

_SETTINGS = {"rel", "gain"}
#: Results held at a time.
_BLOCK = 2**17


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


def judged_counts(problem: Problem, k: int | None) -> tuple[Whole, Whole]:
    """(results, judged ones) among the first k of each query, (n,) each."""
    total = problem.found_lengths if k is None else np.minimum(problem.found_lengths, k)
    return total, np.bincount(problem.hits.first(k).rows, minlength=len(problem))


class _Case:
    """The results of n queries as a measure sees them; ranks count from 1."""

    def __init__(
        self, problem: Problem, k: int | None, rel: float, gain: str, grade: float
    ) -> None:
        self.judged: Judged = need(problem.judged, "judgments")
        total, _ = judged_counts(problem, k)
        hits, width = problem.hits.first(k), int(total.max(initial=0))
        self.grades: Array = np.full((len(problem), width), np.nan)
        self.grades[hits.rows, hits.ranks - 1] = hits.grades
        self.unjudged = (np.arange(width) < total[:, None]) & np.isnan(self.grades)
        self.hits = self.grades >= rel
        self.relevant: Whole = self.judged.count(rel)
        self.count: Whole = np.count_nonzero(self.unjudged, axis=1)
        self.found: Whole = np.count_nonzero(self.hits, axis=1)
        self.k, self.gain, self.grade = k, gain, grade

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
    # A few queries at a time, which the processor's cache holds.
    step = max(1, _BLOCK // max(case.hits.shape[1], 1))
    parts = [
        _average_precision_of(
            case.hits[start : start + step],
            case.unjudged[start : start + step],
            case.relevant[start : start + step],
        )
        for start in range(0, len(case.hits), step)
    ]
    low, high = zip(*parts, strict=True) if parts else ((np.empty(0),), (np.empty(0),))
    return np.concatenate(low), np.concatenate(high)


def _average_precision_of(
    hits: NDArray[np.bool_], unjudged: NDArray[np.bool_], relevant: Whole
) -> tuple[Array, Array]:
    """With s of the unjudged relevant, AP is highest for the first s, lowest for the last s.

    One more relevant document at rank r adds its own precision, and 1/q for each relevant rank
    q > r, whose precision rises.
    """
    rank = np.arange(1.0, hits.shape[1] + 1)
    above = np.cumsum(hits, axis=1)
    total = np.where(hits, above / rank, 0.0).sum(axis=1)
    inverse = np.where(hits, 1.0 / rank, 0.0)
    below = inverse.sum(axis=1, keepdims=True) - np.cumsum(inverse, axis=1)
    ranks = _ranks(unjudged)
    at, used = np.maximum(ranks - 1, 0), ranks > 0
    own = np.take_along_axis(above, at, axis=1), np.take_along_axis(below, at, axis=1)
    s = np.arange(1, ranks.shape[1] + 1)
    best = np.where(used, (own[0] + s) / (at + 1.0) + own[1], 0.0)
    alone = np.where(used, (own[0] + 1) / (at + 1.0) + own[1], 0.0)
    added = np.where(used, 1.0 / (at + 1.0), 0.0)
    later = np.cumsum(added[:, ::-1], axis=1)[:, ::-1] - added
    sizes = relevant[:, None] + np.arange(ranks.shape[1] + 1)
    return _extremes(used, total, best, np.where(used, alone + later, 0.0), sizes)


def _ndcg(case: _Case) -> tuple[Array, Array]:
    """With s of the unjudged relevant, DCG is highest for the first s, lowest for the last s."""
    gained = case.gains(case.grades)
    total = (gained / np.log2(np.arange(2.0, gained.shape[1] + 2))).sum(axis=1)
    ranks = _ranks(case.unjudged)
    gain = float(case.gains(np.array([case.grade]))[0])
    added = np.where(ranks > 0, gain / np.log2(np.maximum(ranks, 1) + 1.0), 0.0)
    sizes = np.stack([_ideal(case, gain, s) for s in range(ranks.shape[1] + 1)], axis=1)
    return _extremes(ranks > 0, total, added, added, sizes)


def _ranks(unjudged: NDArray[np.bool_]) -> Whole:
    """Ranks of the unjudged, first to last, (n, most); 0 behind the last."""
    row, column = np.nonzero(unjudged)
    count = np.bincount(row, minlength=len(unjudged))
    ranks = np.zeros((len(unjudged), int(count.max(initial=0))), dtype=np.int64)
    ranks[row, np.arange(len(row)) - (np.cumsum(count) - count)[row]] = column + 1
    return ranks


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
    used: NDArray[np.bool_], total: Array, best: Array, worst: Array, sizes: Array | Whole
) -> tuple[Array, Array]:
    """(lowest, highest) of total plus the first s of `best`, or the last s of `worst`, over sizes.

    used, best, worst: (n, most) which there are, and what the numerator gains by each further one,
    first to last; sizes: (n, most + 1) the divisor for s = 0, 1, ...
    """
    none = share(total, sizes[:, 0])
    if used.shape[1] == 0:
        return none, none
    upper = total[:, None] + np.cumsum(best, axis=1)
    sums = np.pad(np.cumsum(worst, axis=1), ((0, 0), (1, 0)))
    before = np.maximum(
        np.count_nonzero(used, axis=1)[:, None] - np.arange(1, used.shape[1] + 1), 0
    )
    lower = total[:, None] + sums[:, -1:] - np.take_along_axis(sums, before, axis=1)
    high = np.where(used, share(upper, sizes[:, 1:]), np.nan)
    low = np.where(used, share(lower, sizes[:, 1:]), np.nan)
    return np.fmin(none, np.fmin.reduce(low, axis=1)), np.fmax(none, np.fmax.reduce(high, axis=1))


_BOUNDS: dict[str, Callable[[_Case], tuple[Array, Array]]] = {
    "P": _precision,
    "R": _recall,
    "Success": _success,
    "RR": _reciprocal_rank,
    "AP": _average_precision,
    "nDCG": _ndcg,
}
