"""Ties: what equal scores leave open, and each measure's range over all orders of tied results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.judgments import Judgments
from semrecall.data.run import Run
from semrecall.errors import MeasureError
from semrecall.measures.coverage import share
from semrecall.measures.graded import gains_of, ideal_dcg, top_grade
from semrecall.measures.grammar import Measure, parse
from semrecall.measures.problem import Problem, align, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.hits import Hits

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]
    Settings = Mapping[str, Any]

__all__ = ["DRAWS", "TieRange", "half_precision", "tie_range", "tied_queries"]

#: How many random orders stand for all of them where there is no formula.
DRAWS = 200


@dataclass(frozen=True, eq=False)
class TieRange:
    """Values of a measure over all orders of equally scored results, (n,) each, NaN as the measure.

    low, high: the smallest and the largest. expected: the mean over all orders, each as likely.
    touched: (n,) bool, whether low and high differ.
    extremes_drawn, expected_drawn: whether these are of `draws` random orders, not of all.
    """

    measure: str
    low: Array
    expected: Array
    high: Array
    touched: NDArray[np.bool_]
    extremes_drawn: bool
    expected_drawn: bool
    draws: int
    seed: int

    def __iter__(self) -> Iterator[Array]:
        return iter((self.low, self.expected, self.high))

    def __repr__(self) -> str:
        means = ", ".join(
            f"{name} {np.mean(values[~np.isnan(values)]):.4f}"
            for name, values in zip(("low", "expected", "high"), self, strict=True)
            if not np.isnan(values).all()
        )
        return f"TieRange({self.measure}: {means}; {self.touched.sum():,} queries touched)"


def tie_range(
    measure: str | Measure,
    results: Problem | Run,
    judgments: Judgments | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> TieRange:
    """The smallest, expected and largest value of a relevance measure over all orders of ties.

    results: a problem, or a run, with `judgments` then. Results of a query with equal scores are
    tied, unless their order was given (by rank, or as in the file). Low and high are exact for all
    measures but Accuracy, infAP, those of ir_measures and your own; the expected value is exact
    for P, R, Rcap, Success, RR, AP, APcap, nDCG, RBP, Rprec and Judged. The rest is taken from
    `draws` random orders, and marked as drawn.

    Raises MeasureError for a measure of the index layer: `recall` credits exact ties.
    """
    problem = results if isinstance(results, Problem) else align(results, None, judgments)
    wanted = parse(measure)
    if wanted.layer != "retrieval" or "judgments" not in wanted.needs:
        raise MeasureError(
            f"{wanted} has no range over ties; expected a measure of relevance, such as nDCG@10"
        )
    value = wanted.values(problem).values
    ties = _Ties(problem)
    if wanted.name in _FIXED or not ties.any:
        untouched = np.zeros(len(value), dtype=bool)
        return TieRange(str(wanted), value, value, value, untouched, False, False, draws, seed)
    drawn = None
    if wanted.name not in _WORTH or wanted.name not in _EXPECTED:
        drawn = _drawn(wanted, ties, value, draws, seed)
    if wanted.name in _WORTH:
        ends = [
            wanted.values(ties.arranged(_worth(problem, wanted), best_first=first)).values
            for first in (True, False)
        ]
        low, high = np.minimum(*ends), np.maximum(*ends)
    else:
        assert drawn is not None
        low, high = drawn[0], drawn[2]
    if wanted.name in _EXPECTED:
        expected = _EXPECTED[wanted.name](_Case(problem, wanted, ties))
        expected = np.where(np.isnan(expected) | np.isnan(value), value, expected)
    else:
        assert drawn is not None
        expected = drawn[1]
    return TieRange(
        str(wanted),
        low,
        # Rounding must not put the mean outside the ends.
        np.clip(expected, low, high),
        high,
        high > low,
        wanted.name not in _WORTH,
        wanted.name not in _EXPECTED,
        draws,
        seed,
    )


def tied_queries(problem: Problem) -> NDArray[np.bool_]:
    """Queries with equal scores of results that differ in grade, (n,); without a grade it is 0.

    There the order of the list, and with it the value of measures, hangs on more than scores.
    """
    ties = _Ties(problem)
    hits = problem.hits
    number, size = ties.number(hits), ties.size[ties.number(hits)]
    worth = np.maximum(hits.grades, 0.0)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    touched = np.zeros(len(problem), dtype=bool)
    if len(order) == 0:
        return touched
    high = np.maximum.reduceat(worth[order], starts)
    low = np.minimum.reduceat(worth[order], starts)
    judged = np.diff(np.append(starts, len(order)))
    # An unjudged result among them has no gain.
    low = np.where(judged < size[order[starts]], 0.0, low)
    touched[hits.rows[order[starts]][high > low]] = True
    return touched


def half_precision(problem: Problem) -> bool:
    """Whether all scores of the results are 16-bit floats, which makes many of them equal."""
    scores = problem.results.scores
    if scores is None or len(scores) == 0 or bool((scores == np.rint(scores)).all()):
        return False
    single = scores.astype(np.float32)
    if not bool((single == scores).all()):
        return False
    with np.errstate(over="ignore"):
        as_float16 = single.astype(np.float16) == single
    as_bfloat16 = single.view(np.uint32) & 0xFFFF == 0
    return bool(as_float16.all() or as_bfloat16.all())


class _Ties:
    """Groups of equally scored results that stand together, in all lists end to end.

    start, size: (g,) of each group, a single result being one too.
    """

    def __init__(self, problem: Problem) -> None:
        lists = problem.results
        self.problem = problem
        new = np.ones(len(lists.codes), dtype=bool)
        if lists.scores is not None and problem.by_score:
            new[1:] = lists.scores[1:] != lists.scores[:-1]
            new[lists.offsets[:-1][lists.lengths > 0]] = True
        self.start = np.flatnonzero(new)
        self.size = np.diff(np.append(self.start, len(new)))
        self.any = bool((self.size > 1).any())

    def number(self, hits: Hits) -> Whole:
        """The group of each hit, (h,)."""
        return np.searchsorted(self.start, hits.entries, side="right") - 1

    def arranged(self, worth: Array, *, best_first: bool) -> Problem:
        """The problem with the tied results in the best order, or in the worst.

        worth: (h,) of each hit; a result that is not judged is worth 0.
        """
        hits = self.problem.hits
        number = self.number(hits)
        order = np.lexsort((-worth if best_first else worth, number))
        first = np.searchsorted(number[order], number[order], side="left")
        place = np.arange(len(hits)) - first
        count = np.searchsorted(number[order], number[order], side="right") - first
        in_front = (worth[order] > 0) == best_first
        size = self.size[number[order]]
        place = np.where(in_front, place, size - count + place)
        ranks = np.empty(len(hits), dtype=np.int64)
        before = self.start - self.problem.results.offsets[self._rows()]
        ranks[order] = before[number[order]] + place + 1
        return self.problem.with_hits(hits.reranked(ranks))

    def _rows(self) -> Whole:
        """The query of each group, (g,)."""
        return np.searchsorted(self.problem.results.offsets, self.start, side="right") - 1

    def shuffled(self, random: np.random.Generator, *, by_hits: bool) -> Iterator[Problem]:
        """The problem with the tied results in random orders, without end.

        by_hits: the measure looks at nothing but the hits, so only they have to move.
        """
        hits, lists = self.problem.hits, self.problem.results
        tied = self.size > 1
        if by_hits:
            tied &= np.isin(np.arange(len(self.size)), self.number(hits))
        entries = np.flatnonzero(np.repeat(tied, self.size))
        group = np.repeat(np.arange(np.count_nonzero(tied), dtype=np.float64), self.size[tied])
        order = np.arange(len(lists.codes))
        while True:
            # One key for group and chance sorts many times faster than two.
            drawn = entries[np.argsort(group + random.random(len(entries)))]
            if by_hits:
                order[drawn] = entries
                ranks = order[hits.entries] - lists.offsets[hits.rows] + 1
                yield self.problem.with_hits(hits.reranked(ranks))
            else:
                order[entries] = drawn
                yield replace(self.problem, results=lists.take(order, lists.offsets))


def _drawn(
    measure: Measure, ties: _Ties, value: Array, draws: int, seed: int
) -> tuple[Array, Array, Array]:
    """(smallest, mean, largest) of a measure over random orders; the ends look at `value` too."""
    by_hits = measure.name in {*_WORTH, "Accuracy", "infAP"}
    orders = ties.shuffled(np.random.default_rng(seed), by_hits=by_hits)
    low, high, total, count = value, value, np.zeros(len(value)), np.zeros(len(value))
    for problem in islice(orders, draws):
        one = np.where(np.isnan(value), np.nan, measure.values(problem).values)
        low, high = np.fmin(low, one), np.fmax(high, one)
        total, count = total + np.nan_to_num(one), count + ~np.isnan(one)
    return low, share(total, count), high


# -- what a result is worth to a measure ----------------------------------------------------------


def _worth(problem: Problem, measure: Measure) -> Array:
    worth: Array = _WORTH[measure.name](problem.hits.grades, measure.settings)
    return worth


def _relevant(grades: Array, settings: Settings) -> Array:
    return np.asarray(grades >= settings["rel"], dtype=np.float64)


def _grade(grades: Array, settings: Settings) -> Array:
    return np.maximum(grades, 0.0)


def _gain(grades: Array, settings: Settings) -> Array:
    return gains_of(grades, settings["gain"])


def _grade_or_relevant(grades: Array, settings: Settings) -> Array:
    by_grade = isinstance(settings["rel"], str)
    return _grade(grades, settings) if by_grade else _relevant(grades, settings)


def _known(grades: Array, settings: Settings) -> Array:
    return np.ones(len(grades))


#: Measures of all results together, whose order does not matter.
_FIXED = {
    "NumQ", "NumRel", "NumRet", "NumRelRet", "SetAP", "SetF", "SetP", "SetR", "SetRelP"
}  # fmt: skip
#: For measures that never fall when a worthier result moves up.
_WORTH: dict[str, Callable[[Array, Settings], Array]] = {
    **dict.fromkeys(
        ("P", "R", "Rcap", "Success", "RR", "AP", "APcap", "Rprec", "Bpref", "IPrec"),
        _relevant,
    ),
    "nDCG": _gain,
    "ERR": _grade,
    "nERR": _grade,
    "RBP": _grade_or_relevant,
    "RBPresid": _known,
    "Judged": _known,
}


# -- expected values ------------------------------------------------------------------------------


class _Case:
    """The hits of a measure and their tie groups, as the measure sees them (condensed or not).

    before, size: (h,) results before the group of each hit, and in it.
    """

    def __init__(self, problem: Problem, measure: Measure, ties: _Ties) -> None:
        self.problem, self.k, self.settings = problem, measure.k, measure.settings
        self.judged = need(problem.judged, "judgments")
        only = bool(self.settings.get("judged_only", False))
        self.hits = problem.condensed(only)
        self.number = ties.number(self.hits)
        if only:
            first = np.searchsorted(self.number, self.number, side="left")
            self.size = np.searchsorted(self.number, self.number, side="right") - first
            self.before = self.hits.ranks[first] - 1 if len(first) else first
        else:
            self.size = ties.size[self.number]
            start = ties.start[self.number]
            self.before = start - problem.results.offsets[self.hits.rows]
        self.worth = _WORTH[measure.name](self.hits.grades, self.settings)
        self.relevant = self.judged.count(measure.rel)
        self.limit = self.k or max(int(self.hits.returned.max(initial=0)), 1)

    def mean(self, reach: Callable[[Whole], Array | Whole]) -> Array:
        """The sum (n,) of worth times expected weight; reach(r) is the weight of ranks 1 to r."""
        weight = (reach(self.before + self.size) - reach(self.before)) / self.size
        return self.hits.sum(self.worth * weight)

    def in_k(self) -> Array:
        """How many of the first k are expected to be of worth, (n,)."""
        return self.mean(lambda ranks: np.minimum(ranks, self.limit))

    def groups(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(query, results before, size, relevant in it, relevant before) of groups with any."""
        keep = np.flatnonzero(self.worth > 0)
        row, number = self.hits.rows[keep], self.number[keep]
        first = np.flatnonzero(np.diff(number, prepend=-1))
        count = np.diff(np.append(first, len(keep)))
        seen = np.arange(len(keep)) - np.searchsorted(row, row, side="left")
        at = keep[first]
        columns = (row[first], self.before[at], self.size[at], count, seen[first])
        yield from zip(*(c.tolist() for c in columns), strict=True)


def _rank_weights(case: _Case, weights: Array) -> Callable[[Whole], Array]:
    """The sum of the weights of ranks 1 to r, none past k."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    return lambda ranks: sums[np.minimum(ranks, len(weights))]


def _precision(case: _Case) -> Array:
    return share(case.in_k(), case.limit)


def _recall(case: _Case) -> Array:
    return share(case.in_k(), case.relevant)


def _capped_recall(case: _Case) -> Array:
    return share(case.in_k(), np.minimum(case.relevant, case.limit))


def _judged(case: _Case) -> Array:
    return share(case.in_k(), np.maximum(np.minimum(case.hits.returned, case.limit), 1))


def _r_precision(case: _Case) -> Array:
    own = case.relevant[case.hits.rows]
    return share(case.mean(lambda ranks: np.minimum(ranks, own)), case.relevant)


def _ndcg(case: _Case) -> Array:
    ranks = np.arange(1, case.limit + 1)
    gained = case.mean(_rank_weights(case, 1.0 / np.log2(ranks + 1.0)))
    return share(gained, ideal_dcg(case.problem, case.k, case.settings["gain"]))


def _rbp(case: _Case) -> Array:
    p = case.settings["p"]
    seen = case.mean(lambda ranks: 1.0 - p ** np.minimum(ranks, case.limit))
    if isinstance(case.settings["rel"], str):
        return seen / top_grade(case.problem, case.settings["max_rel"])
    return seen


def _rbp_residual(case: _Case) -> Array:
    p = case.settings["p"]
    return 1.0 - case.mean(lambda ranks: 1.0 - p ** np.minimum(ranks, case.limit))


def _success(case: _Case) -> Array:
    value = np.zeros(len(case.problem))
    for row, before, size, count, _ in case.groups():
        slots = min(case.limit - before, size)
        if slots > 0 and value[row] == 0:
            missed = math.comb(size - count, slots) / math.comb(size, slots)
            value[row] = 1.0 - missed
    return value


def _reciprocal_rank(case: _Case) -> Array:
    value = np.zeros(len(case.problem))
    for row, before, size, count, earlier in case.groups():
        if earlier or before >= case.limit:
            continue
        place = np.arange(size - count + 1)
        # That the first of them stands at place + 1 within the group.
        others = (size - count - place[:-1]) / (size - place[:-1])
        chance = np.cumprod(np.concatenate([[1.0], others])) * count / (size - place)
        rank = before + place + 1
        value[row] = (chance / rank)[rank <= case.limit].sum()
    return value


def _precision_sum(case: _Case) -> Array:
    value = np.zeros(len(case.problem))
    for row, before, size, count, earlier in case.groups():
        place = np.arange(min(size, case.limit - before))
        others = place * ((count - 1) / (size - 1) if size > 1 else 0.0)
        value[row] += (count / size * (earlier + 1 + others) / (before + place + 1)).sum()
    return value


def _average_precision(case: _Case) -> Array:
    return share(_precision_sum(case), case.relevant)


def _capped_average_precision(case: _Case) -> Array:
    return share(_precision_sum(case), np.minimum(case.relevant, case.limit))


_EXPECTED: dict[str, Callable[[_Case], Array]] = {
    "P": _precision,
    "R": _recall,
    "Rcap": _capped_recall,
    "Rprec": _r_precision,
    "Judged": _judged,
    "nDCG": _ndcg,
    "RBP": _rbp,
    "RBPresid": _rbp_residual,
    "Success": _success,
    "RR": _reciprocal_rank,
    "AP": _average_precision,
    "APcap": _capped_average_precision,
}
