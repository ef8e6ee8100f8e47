"""What a judge's labels say once people checked some of them: three estimates, each with intervals.

The share of relevant neighbours that were found is T / S, where S sums the relevance h of all
neighbours (pairs of query and document) and T that of the found ones. A judge gives a label l to
every pair; people give h to some. Queries are the unit of every variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError
from semrecall.stats.intervals import check_confidence

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = [
    "Estimate",
    "Rates",
    "drawn_units",
    "estimated",
    "label_variance",
    "pair_corrected",
    "query_corrected",
    "query_variance",
    "rate_corrected",
    "totals",
    "undefined",
]


#: An interval reaches at most so many times as far as one that is even on both sides.
_FURTHEST = 2.5


@dataclass(frozen=True)
class Estimate:
    """An estimate of a share, and how far off it may be for two reasons.

    low, high: the interval for queries like these: other queries would differ, and not every
        label is known. label_low, label_high: for these very queries, of which only labels are
        unknown; it shrinks to nothing as labels grow, and says when to stop labelling.
    n: how many labels, or wholly labelled queries, it rests on. reason: why value is NaN.
    """

    value: float
    low: float
    high: float
    label_low: float
    label_high: float
    n: int
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """Width of the interval for these very queries."""
        return self.label_high - self.label_low


@dataclass(frozen=True)
class Rates:
    """The corrected share, and the judge's error rates by band, (b,) each.

    false_positive: of pairs irrelevant to people, the share the judge calls relevant; standard
    errors beside it. true_positive: of relevant ones, the share it calls relevant. irrelevant,
    relevant: how many labels of people these rest on.
    """

    estimate: Estimate
    false_positive: Array
    false_positive_se: Array
    true_positive: Array
    irrelevant: Whole
    relevant: Whole


def rate_corrected(
    labels: ArrayLike,
    found: ArrayLike,
    queries: ArrayLike,
    human: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bands: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Rates:
    """T / S from the judge's labels and its false positive rate alpha.

    (sum(l r) - alpha sum(r)) / (sum(l) - alpha M) over M pairs: labels l (m,) and found r (m,) are
    0 or 1, `queries` (m,) are row numbers. It is right where the judge's errors do not depend on
    whether a pair was found, given whether it is relevant; then relevant pairs it misses cancel.

    human: (m,) 0, 1, or NaN where people gave no label. weights: (m,) 1 over the probability with
    which a pair was picked for them. bands: (m,) numbers of groups of pairs, such as ranks, that
    have rates of their own; with several, each band's numerator and denominator is divided by its
    true positive rate less alpha, because the relevant pairs missed then no longer cancel.

    The variance is linearised with queries as the unit, and includes that alpha is an estimate.
    """
    pairs = _pairs(labels, found, queries)
    people = np.asarray(human, dtype=np.float64)
    weight = np.ones(len(people)) if weights is None else np.asarray(weights, dtype=np.float64)
    band = np.zeros(len(people), np.int64) if bands is None else np.asarray(bands, np.int64)
    count = int(band.max(initial=0)) + 1
    rates = [_Rate.of(people == side, pairs, weight, band, count) for side in (0.0, 1.0)]
    alpha, tau = rates[0].value, rates[1].value
    labelled = int(np.count_nonzero(~np.isnan(people)))

    def with_estimate(estimate: Estimate) -> Rates:
        se = np.sqrt(rates[0].variances)
        return Rates(estimate, alpha, se, tau, rates[0].counts, rates[1].counts)

    used = np.bincount(band, minlength=count) > 0
    if (rates[0].counts[used] == 0).any():
        return with_estimate(undefined(labelled, "people called no labelled pair irrelevant"))
    if count > 1 and (rates[1].counts[used] == 0).any():
        return with_estimate(
            undefined(labelled, "people called no labelled pair of a band relevant")
        )
    factor = np.where(used, tau - alpha, 1.0) if count > 1 else np.ones(1)
    if (factor <= 0).any():
        return with_estimate(
            undefined(labelled, "the judge tells relevant from irrelevant no better than chance")
        )
    above = (pairs.labels - alpha[band]) / factor[band]
    total = above.sum()
    if total <= 0:
        reason = (
            f"the judge calls {pairs.labels.mean():.1%} relevant, no more than its false positives "
            "alone would make"
        )
        return with_estimate(undefined(labelled, reason))
    value = float((above * pairs.found).sum() / total)
    residual = above * (pairs.found - value)
    moved = np.bincount(band, (pairs.found - value) / factor[band], count)
    slope = np.bincount(band, residual / factor[band], count)
    # How T - value S moves with each rate, times how each query moves the rate.
    by_alpha, by_tau = slope - moved, -slope if count > 1 else np.zeros(1)
    of_labels = rates[0].influence @ by_alpha + rates[1].influence @ by_tau
    of_queries = totals(pairs.queries, residual, pairs.n)
    floor = rates[0].floor @ by_alpha**2 + rates[1].floor @ by_tau**2
    clusters = len(np.unique(pairs.queries[~np.isnan(people)]))
    chance = (
        _judge_noise(pairs, alpha, tau, band, count) * ((pairs.found - value) / factor[band]) ** 2
    )
    label = _spread(of_labels[of_labels != 0.0], clusters) + floor + float(chance.sum())
    both = max(query_variance(of_queries + of_labels) + floor, label)
    estimate = estimated(value, both / total**2, label / total**2, clusters, labelled, confidence)
    return with_estimate(estimate)


def query_corrected(
    human: ArrayLike, judge: ArrayLike, *, confidence: float = 0.95
) -> tuple[Estimate, float]:
    """(a ratio of sums over queries, lambda): a judge for all queries, people for some at random.

    human, judge: (n, 2) numerator and denominator of each query, by the labels of each; NaN in
    `human` where people did not label the query. A mean over the queries where a measure is
    defined has the value (0 where it is undefined) and 1 (0); a pooled share has T and S.

    Prediction-powered inference in ratio form (Angelopoulos and others 2023): numerator and
    denominator are each mean_H(human) + lambda (mean(judge) - mean_H(judge)) with H the queries
    people labelled. lambda, in [0, 1], makes the variance least: the slope of the people's
    residuals on the judge's. What the labels leave open is (1/m - 1/n) times the variance of
    human - lambda judge, m = |H|; queries like these add variance(human) / n.
    """
    people, machine = np.asarray(human, np.float64), np.asarray(judge, np.float64)
    known = ~np.isnan(people).any(axis=1)
    n, m = len(people), int(known.sum())
    if m == 0:
        return undefined(0, "people labelled no query"), math.nan
    slope, value, mean = 1.0, math.nan, np.zeros(2)
    # The slope depends on the value a little, and the value on the slope.
    for _ in range(3):
        mean = people[known].mean(axis=0)
        mean += slope * (machine.mean(axis=0) - machine[known].mean(axis=0))
        if people[known][:, 1].sum() <= 0:
            return undefined(m, "no query that people labelled has a relevant neighbour"), math.nan
        if mean[1] <= 0:
            return undefined(m, "the corrected number of relevant neighbours is not above 0"), slope
        value = float(mean[0] / mean[1])
        ours = people[known] @ [1.0, -value]
        theirs = machine[known] @ [1.0, -value]
        slope = _tuned(ours, theirs)
    label = (1 / m - 1 / n) * _left_variance(ours, theirs, slope)
    both = label + _sample_variance(ours) / n
    found = estimated(value, both / mean[1] ** 2, label / mean[1] ** 2, m, m, confidence)
    return found, slope


def pair_corrected(
    labels: ArrayLike,
    found: ArrayLike,
    queries: ArrayLike,
    human: ArrayLike,
    probabilities: ArrayLike,
    *,
    confidence: float = 0.95,
) -> Estimate:
    """T / S by the difference estimator: a judge for all pairs, people for pairs by probability.

    T = sum(l r + (h - l) r s / pi) and S = sum(l + (h - l) s / pi), with s = 1 where people gave a
    label `human` (m,), else NaN, and pi the probability (m,) with which the pair was picked for
    it. labels l (m,) need not be 0 or 1, and may be wrong in any way. The variance is that of
    query residuals (linearisation).
    """
    pairs = _pairs(labels, found, queries)
    chances, known = np.asarray(probabilities, np.float64), ~np.isnan(np.asarray(human, np.float64))
    error = np.where(known, np.nan_to_num(np.asarray(human, np.float64)) - pairs.labels, 0.0)
    weight = np.divide(1.0, chances, out=np.zeros(len(known)), where=known)
    relevance, count = pairs.labels + error * weight, int(known.sum())
    total = float(relevance.sum())
    if total <= 0:
        return undefined(count, "the corrected number of relevant neighbours is not above 0")
    value = float(relevance @ pairs.found / total)
    residual = relevance * (pairs.found - value)
    left = label_variance(
        error * (pairs.found - value), chances, known, pairs.queries, pairs.found > 0
    )
    both = max(query_variance(totals(pairs.queries, residual, pairs.n)), left)
    notes = []
    if count and not error.any() and bool((chances[known] < 1).any()):
        notes.append(
            f"people agree with the judge on all {count:,} pairs; errors rarer than about "
            f"{3 / count:.1%} of pairs would not show, and the interval leaves them out"
        )
    of_total = (both / total**2, left / total**2)
    units = min(pairs.n, drawn_units(chances, known, pairs.found > 0))
    return estimated(value, *of_total, units, count, confidence, notes)


# -- variances, and intervals from them -----------------------------------------------------------


def undefined(n: int, reason: str) -> Estimate:
    """No estimate, for a reason."""
    nan = math.nan
    return Estimate(nan, nan, nan, nan, nan, n, reason)


def estimated(
    value: float,
    variance: float,
    label: float,
    units: int,
    n: int,
    confidence: float,
    notes: Sequence[str] = (),
) -> Estimate:
    """An estimate with its intervals by Student's t with `units` - 1 degrees of freedom."""
    check_confidence(confidence)
    value = min(max(value, 0.0), 1.0)
    low, high = _interval(value, variance, units, confidence)
    label_low, label_high = _interval(value, label, units, confidence)
    return Estimate(value, low, high, label_low, label_high, n, notes=tuple(notes))


def query_variance(residuals: Array) -> float:
    """Variance of a sum over queries from the residual of each (n,); NaN for a single query."""
    n = len(residuals)
    if n < 2:
        return math.nan
    return float(n / (n - 1) * np.sum((residuals - residuals.mean()) ** 2))


def totals(rows: Whole, values: Array, n: int) -> Array:
    """The sum of the values (m,) of each of n rows, (n,)."""
    return np.bincount(rows, values, n).astype(np.float64)


def label_variance(
    residuals: Array, probabilities: Array, known: Mask, queries: Whole, cells: Mask
) -> float:
    """Variance of sum(residuals s / pi) over what is drawn of these very queries.

    All arguments are of every pair, (m,). Samples have a fixed size with probabilities pi, drawn
    apart in the two cells (Deville's form). Where the labels touch far fewer queries than pairs
    drawn one by one would, queries were drawn, and the variance is that between queries.
    """
    scaled = np.divide(residuals, probabilities, out=np.zeros(len(known)), where=known)
    total, n = 0.0, int(queries.max(initial=-1)) + 1
    for side in (False, True):
        use = known & (cells == side) & (probabilities < 1)
        count = int(use.sum())
        if count == 0:
            continue
        open_ = 1 - probabilities[use]
        centre = 0.0 if count == 1 else float((open_ @ scaled[use]) / open_.sum())
        total += count / max(count - 1, 1) * float(open_ @ (scaled[use] - centre) ** 2)
    touched = np.bincount(queries, known, n) > 0
    if _drawn_by_query(known, queries, cells, int(touched.sum())):
        total = max(total, query_variance(totals(queries, scaled, n)[touched]))
    return total


def _drawn_by_query(known: Mask, queries: Whole, cells: Mask, touched: int) -> bool:
    """Whether so few queries have a label that their pairs were not drawn one by one."""
    n = int(queries.max(initial=-1)) + 1
    untouched = np.ones(n)
    for side in (False, True):
        inside = cells == side
        left = 1 - known[inside].sum() / max(inside.sum(), 1)
        untouched *= left ** np.bincount(queries[inside], minlength=n)
    spread = math.sqrt(float((untouched * (1 - untouched)).sum()))
    return touched < n - float(untouched.sum()) - 5 * spread - 1


def drawn_units(probabilities: Array, known: Mask, cells: Mask) -> int:
    """The labels, at least 2, of the smaller of two cells of which a sample was drawn."""
    drawn = known & (probabilities < 1)
    sizes = [int((drawn & (cells == side)).sum()) for side in (False, True)]
    return max(min((size for size in sizes if size), default=len(known)), 2)


def _interval(value: float, variance: float, units: int, confidence: float) -> tuple[float, float]:
    """(low, high) on the scale of log odds, where a share near 1 has room on one side only."""
    from scipy.special import stdtrit

    if units < 2 or math.isnan(variance):
        return math.nan, math.nan
    reach = float(stdtrit(units - 1, 0.5 + confidence / 2)) * math.sqrt(max(variance, 0.0))
    if reach == 0 or not 0 < value < 1:
        return max(value - reach, 0.0), min(value + reach, 1.0)
    step = math.exp(min(reach / (value * (1 - value)), 700.0))
    odds = value / (1 - value)
    low, high = odds / step / (1 + odds / step), 1 / (1 + 1 / (odds * step))
    # Log odds run away where a value is nearer to 0 or 1 than it is known.
    return max(low, value - _FURTHEST * reach), min(high, value + _FURTHEST * reach)


def _judge_noise(pairs: _Pairs, alpha: Array, tau: Array, band: Whole, count: int) -> Array:
    """Variance (m,) of the judge's label given relevance, errors being independent."""
    # Without a relevant label of people, the judge is taken to miss none.
    hit = np.where(np.isnan(tau), 1.0, tau)
    pairs_in = np.maximum(np.bincount(band, minlength=count), 1)
    said = np.bincount(band, pairs.labels, count) / pairs_in
    with np.errstate(invalid="ignore", divide="ignore"):
        relevant = np.clip(np.nan_to_num((said - alpha) / (hit - alpha)), 0, 1)
    noise = (1 - relevant) * alpha * (1 - alpha) + relevant * hit * (1 - hit)
    return np.asarray(np.nan_to_num(noise)[band])


def _tuned(ours: Array, theirs: Array) -> float:
    """The slope of our residuals on theirs, kept within [0, 1]."""
    centred = theirs - theirs.mean()
    square = float(centred @ centred)
    if square == 0:
        return 0.0
    return min(max(float(centred @ ours) / square, 0.0), 1.0)


def _left_variance(ours: Array, theirs: Array, slope: float) -> float:
    """Variance of ours - slope theirs, (m,) each, as of queries the slope was not fitted to."""
    m = len(ours)
    if m < 3:
        return math.nan
    centred = theirs - theirs.mean()
    square = float(centred @ centred)
    # A query that pulls the slope to itself has too small a residual: undone by its leverage.
    leverage = 1 / m + (centred**2 / square if slope and square else 0.0)
    rest = ours - slope * theirs
    rest = (rest - rest.mean()) / np.maximum(1 - leverage, 0.1)
    return float(np.mean(rest**2))


def _sample_variance(values: Array) -> float:
    return float(np.var(values, ddof=1)) if len(values) > 1 else math.nan


def _spread(influences: Array, clusters: int) -> float:
    """Variance of a sum of influences that sum to 0, over `clusters` queries."""
    if clusters < 2:
        return math.nan
    return float(clusters / (clusters - 1) * np.sum(influences**2))


@dataclass(frozen=True)
class _Pairs:
    """Columns of pairs: the judge's label, whether it was found, its query; n queries."""

    labels: Array
    found: Array
    queries: Whole
    n: int


def _pairs(labels: ArrayLike, found: ArrayLike, queries: ArrayLike) -> _Pairs:
    values, rows = np.asarray(labels, np.float64), np.asarray(queries, np.int64)
    hits = np.asarray(found, np.float64)
    if not len(values) == len(hits) == len(rows):
        raise InputError(
            f"{len(values):,} labels, {len(hits):,} found and {len(rows):,} queries; expected "
            "equally many"
        )
    if np.isnan(values).any():
        raise InputError("a label of the judge is NaN; expected a number for every pair")
    return _Pairs(values, hits, rows, int(rows.max(initial=-1)) + 1)


@dataclass(frozen=True)
class _Rate:
    """How often the judge says relevant in a group, by band; how each query moves that.

    value, counts, floor, variances: (b,). influence: (n, b). floor: the variance where all labels
    are alike, as if one more had been otherwise; 0 elsewhere.
    """

    value: Array
    counts: Whole
    influence: Array
    floor: Array
    variances: Array

    @classmethod
    def of(cls, group: Any, pairs: _Pairs, weight: Array, band: Whole, count: int) -> _Rate:
        weight = np.where(group, weight, 0.0)
        total = np.bincount(band, weight, count)
        said = np.bincount(band, weight * pairs.labels, count)
        value = np.divide(said, total, out=np.full(count, math.nan), where=total > 0)
        counts = np.bincount(band[group], minlength=count)
        cell = pairs.queries * count + band
        moved = weight * (pairs.labels - np.nan_to_num(value)[band])
        influence = totals(cell, moved, pairs.n * count).reshape(pairs.n, count)
        influence = influence / np.maximum(total, np.finfo(float).tiny)
        alike = (total > 0) & ((said == 0) | (said == total))
        other = 1 / (counts + 2)
        floor = np.where(alike, other * (1 - other) / np.maximum(counts, 1), 0.0)
        units = max(len(np.unique(pairs.queries[group])), 1)
        variances = units / max(units - 1, 1) * np.sum(influence**2, axis=0) + floor
        return cls(value, counts, influence, floor, np.where(total > 0, variances, math.nan))
