"""Measures of the index layer: results against the exact neighbours.

For each query: G is its first k exact neighbours (fewer where fewer exist), R its first k valid
distinct results, s their scores. Results tied with the k-th neighbour are credited as `covered`
says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.measures.coverage import covered, listed, recall_bounds, share, srecall_bounds
from semrecall.measures.grammar import measure
from semrecall.measures.kinds import NUMBER, PERCENT, SHARE, choice, percent_or
from semrecall.measures.matching import largest_pairing, query_tolerance
from semrecall.measures.problem import Problem, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

    Array = NDArray[np.float64]
    Reasons = Iterator[tuple[str, Any]]

__all__ = [
    "WIDE",
    "erecall",
    "one",
    "ratio",
    "rde",
    "recall",
    "robustness",
    "srecall",
    "srprec",
    "tolerance_used",
    "trecall",
]

#: Above this tolerance, as a share, the near results are no longer near.
WIDE = 0.5


# -- why a value is undefined, and what to know about a mean --------------------------------------


def _no_neighbour(problem: Problem, k: int, **_: Any) -> Reasons:
    own = np.array(problem.reasons, dtype=object)
    for reason in sorted({r for r in problem.reasons if r}):
        yield reason, np.asarray(own == reason)
    yield "no exact neighbour", problem.sizes(k) == 0


def _no_semantic(
    problem: Problem, k: int, rel: float = 1.0, gain: str = "count", **_: Any
) -> Reasons:
    yield from _no_neighbour(problem, k)
    grades = need(problem.true_grades, "judgments")[:, :k]
    yield "no judged neighbour", np.isnan(grades).all(axis=1)
    semantic = grades >= (rel if gain == "count" else max(rel, np.nextafter(0, 1)))
    yield "no semantic neighbour", ~semantic.any(axis=1)


def _no_tolerance(problem: Problem, k: int, x: float | str = "proxy", **_: Any) -> Reasons:
    yield from _no_neighbour(problem, k)
    tolerance = np.broadcast_to(tolerance_used(problem, k, x), (len(problem), 1))
    yield "tolerance undefined", np.isnan(tolerance[:, 0])


def _no_ratio(problem: Problem, k: int, **_: Any) -> Reasons:
    yield from _no_neighbour(problem, k)
    yield "no result", problem.found_lengths == 0
    results, neighbours = _paired(problem, k)[1:]
    yield "a result has no score", _unscored(problem, k).any(axis=1)
    opposed = np.sign(results) * np.sign(neighbours) < 0
    yield "scores of mixed sign", opposed.any(axis=1)
    yield "every neighbour at score 0", np.isnan(_excess(problem, k)).all(axis=1)


def _tie_notes(problem: Problem, k: int, values: Array, params: Mapping[str, Any]) -> Iterator[str]:
    if params.get("ties") == "no":
        return
    low, high, open_ = recall_bounds(problem, k)
    use = ~np.isnan(values)
    count = int(np.count_nonzero(open_ & use))
    if count:
        yield (
            f"queries where ties at rank {k} may go on past the stored neighbours: {count:,}; "
            f"recall between {np.mean(low[use]):.4f} and {np.mean(high[use]):.4f}"
        )


def _judged_notes(
    problem: Problem, k: int, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    low, high, judged = srecall_bounds(problem, k, params["rel"])
    share_judged = judged[~np.isnan(judged)]
    if len(share_judged) == 0 or bool((share_judged == 1).all()):
        return
    bounds, use = "", ~np.isnan(values)
    if params.get("gain", "count") == "count" and use.any():
        bounds = f", bounds {np.mean(low[use]):.4f} to {np.mean(high[use]):.4f}"
    yield f"unjudged neighbours: judged share {np.mean(share_judged):.4f}{bounds}"


def _score_notes(
    problem: Problem, k: int, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    place = need(problem.place, "the truth")
    if problem.true_scores_by == "index":
        yield "scores of the truth as stored, not recomputed"
    outside = (problem.found[:, :k] >= 0) & (place[:, :k] < 0)
    unscored = int(np.count_nonzero(_unscored(problem, k)))
    if problem.scores_by == "index" and int(np.count_nonzero(outside)) > unscored:
        yield "scores by the index"
    if unscored:
        yield f"results outside the truth without a score, none counted as near: {unscored:,}"


def _tolerance_notes(
    problem: Problem, k: int, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    if params["x"] == "proxy":
        yield _proxy_note(float(tolerance_used(problem, k, "proxy")))
    yield from _score_notes(problem, k, values, params)


def _proxy_note(x: float) -> str:
    """Which tolerance was applied, and whether it is one to rely on."""
    if math.isnan(x):
        return "x undefined: the paper's proxy has no value for any query"
    if x > WIDE:
        return f"the paper's proxy gives x = {100 * x:.3g}%: too wide to mean anything; choose x"
    return f"x = {100 * x:.3g}%, the paper's proxy (fall of exact scores from rank 2k/3 to k)"


def _epsilon_notes(
    problem: Problem, k: int, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    void = int(np.count_nonzero(_last_neighbour(problem, k) == 0))
    if void and params["eps"]:
        yield f"queries whose k-th score is 0, where a relative tolerance is void: {void:,}"
    yield from _score_notes(problem, k, values, params)


def _ratio_notes(
    problem: Problem, k: int, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    excess, use = _excess(problem, k), ~np.isnan(values)
    paired = np.minimum(np.minimum(problem.found_lengths, k), problem.sizes(k))
    missing = int((problem.sizes(k) - paired)[use].sum())
    void = int(paired[use].sum()) - int(np.count_nonzero(~np.isnan(excess[use])))
    if missing:
        yield f"missing results left out: {missing:,}"
    if void:
        yield f"ranks left out where only the neighbour's score is 0: {void:,}"
    yield from _score_notes(problem, k, values, params)


# -- the measures ---------------------------------------------------------------------------------


@measure(
    "recall",
    needs={"truth"},
    params={"ties": choice("yes", "no")},
    undefined=_no_neighbour,
    notes=_tie_notes,
)
def recall(problem: Problem, k: int, *, ties: str = "yes") -> Array:
    """Share of the k exact neighbours that are among the first k results.

    (n,) in [0, 1]: |R and G| / |G|. A result that is exactly tied with the k-th neighbour stands
    in for a missed one that is tied too; `ties=no` counts by ids alone. NaN without an exact
    neighbour.
    """
    hits = covered(problem, k) if ties == "yes" else listed(problem, k)
    return share(np.count_nonzero(hits, axis=1), problem.sizes(k))


@measure(
    "srecall",
    needs={"truth", "judgments"},
    params={"rel": NUMBER, "gain": choice("count", "grade")},
    undefined=_no_semantic,
    notes=_judged_notes,
)
def srecall(problem: Problem, k: int, *, rel: float = 1.0, gain: str = "count") -> Array:
    """Semantic recall: share of the relevant ones among the k exact neighbours that were found.

    (n,) in [0, 1]: |R and SN| / |SN| with SN the neighbours of grade `rel` or more, or with
    `gain=grade` the sum of their grades instead of their number. NaN where SN is empty. Neighbours
    without a grade are left out; `srecall_bounds` says how much that can matter. Source:
    Semantic Recall for Vector Search.
    """
    grades = need(problem.true_grades, "judgments")[:, :k]
    semantic, hits = grades >= rel, covered(problem, k)
    if gain == "count":
        return share(np.count_nonzero(semantic & hits, axis=1), np.count_nonzero(semantic, axis=1))
    weights = np.where(semantic, np.maximum(grades, 0.0), 0.0)
    return share(np.where(hits, weights, 0.0).sum(axis=1), weights.sum(axis=1))


@measure(
    "trecall",
    needs={"truth", "scores"},
    params={"x": percent_or("proxy", "query")},
    undefined=_no_tolerance,
    notes=_tolerance_notes,
)
def trecall(problem: Problem, k: int, *, x: float | str = "proxy") -> Array:
    """Tolerant recall: share of the k exact neighbours that were found, or replaced by one as near.

    (n,) in [0, 1]: the largest number of pairs of different results and different neighbours, where
    a result may be paired with a neighbour that it is, or that it is near to at the relative
    tolerance x, divided by |G|. x is a number, `query` (each query's own `query_tolerance`) or
    `proxy` (the mean of these). NaN without an exact neighbour. Source: Semantic Recall for Vector
    Search, which pairs one by one and writes s(g) (1 - x), wrong for negative scores.
    """
    space, results, neighbours = _scored(problem, k)
    pairs = largest_pairing(space, results, neighbours, tolerance_used(problem, k, x))
    return share(pairs, problem.sizes(k))


@measure(
    "erecall",
    needs={"truth", "scores"},
    params={"eps": PERCENT},
    undefined=_no_neighbour,
    notes=_epsilon_notes,
)
def erecall(problem: Problem, k: int, *, eps: float = 0.01) -> Array:
    """Share of k results that are near the k-th exact neighbour at the relative tolerance eps.

    (n,) in [0, 1]: the results near the last of G, at most |G|, divided by |G|. NaN without an
    exact neighbour. Source: recall@k-epsilon of ann-benchmarks, by ids and relative for every
    space.
    """
    space, results, _ = _scored(problem, k)
    near = space.near(results, _last_neighbour(problem, k)[:, None], eps)
    size = problem.sizes(k)
    return share(np.minimum(np.count_nonzero(near, axis=1), size), size)


@measure(
    "rde",
    needs={"truth", "scores"},
    undefined=_no_ratio,
    notes=_ratio_notes,
    lower_is_better=True,
)
def rde(problem: Problem, k: int) -> Array:
    """Relative distance error: how much farther the results are than the neighbours of equal rank.

    (n,) at least 0: the mean of d(r_i) / d(g_i) - 1, results sorted by score; ip and cosine:
    (s(g_i) - s(r_i)) / |s(g_i)|. 0/0 is 0; a missing result, and a rank where only the neighbour's
    score is 0, are left out and counted. NaN where a result has no score or signs mix.
    """
    return _mean_known(_excess(problem, k))


@measure("ratio", needs={"truth", "scores"}, undefined=_no_ratio, notes=_ratio_notes)
def ratio(problem: Problem, k: int) -> Array:
    """One over the mean ratio of the distances of results and neighbours of equal rank.

    (n,) in [0, 1]: 1 / mean of d(r_i) / d(g_i); for ip and cosine the ratio is s(g_i) / s(r_i), and
    its inverse where both are negative. Left out and undefined as in `rde`.
    """
    space, results, neighbours = _paired(problem, k)
    positive = space.higher_is_nearer & (neighbours > 0)
    over, under = np.where(positive, (neighbours, results), (results, neighbours))
    quotients = np.full(over.shape, np.inf)
    np.divide(over, under, out=quotients, where=under != 0)
    quotients[(over == 0) & (under == 0)] = 1.0
    quotients[np.isnan(_excess(problem, k))] = np.nan
    mean = _mean_known(quotients)
    return share(np.ones(len(mean)), mean)


@measure(
    "robustness",
    needs={"truth"},
    params={"delta": SHARE},
    undefined=_no_neighbour,
    notes=_tie_notes,
    zero_or_one=True,
)
def robustness(problem: Problem, k: int, *, delta: float = 0.9) -> Array:
    """Whether a query reaches recall delta; the mean is the share of queries that do.

    (n,) 0 or 1: at least ceil(delta |G|) neighbours are found. NaN without an exact neighbour.
    Source: Robustness-delta@K.
    """
    exact = Fraction(repr(float(delta)))
    enough = np.array([math.ceil(exact * size) for size in range(k + 1)])
    hits = np.count_nonzero(covered(problem, k), axis=1)
    return np.where(hits >= enough[problem.sizes(k)], 1.0, 0.0)


@measure("one", needs={"truth"}, undefined=_no_neighbour, zero_or_one=True)
def one(problem: Problem, k: int) -> Array:
    """Whether the nearest neighbour is among the first k results.

    (n,) 0 or 1; a result exactly tied with the nearest counts. NaN without an exact neighbour.
    Source: the "1-recall@R" of the literature.
    """
    return np.asarray(covered(problem, 1, cut=k).any(axis=1), dtype=np.float64)


@measure(
    "srprec",
    needs={"truth", "judgments"},
    params={"rel": NUMBER},
    undefined=_no_semantic,
    notes=_judged_notes,
)
def srprec(problem: Problem, k: int, *, rel: float = 1.0) -> Array:
    """R-precision with semantic neighbours: share of the first |SN| results that are in SN.

    (n,) in [0, 1], by ids; exact search itself is below 1 where a relevant neighbour stands behind
    an irrelevant one. NaN where SN is empty. Source: the definition often confused with srecall.
    """
    semantic = need(problem.true_grades, "judgments")[:, :k] >= rel
    rank = need(problem.rank, "the truth")[:, :k]
    size = np.count_nonzero(semantic, axis=1)
    early = semantic & (rank >= 0) & (rank < size[:, None])
    return share(np.count_nonzero(early, axis=1), size)


# -- scores side by side --------------------------------------------------------------------------


def tolerance_used(problem: Problem, k: int, x: float | str) -> Array:
    """The tolerance that `trecall(x=...)` applies: one number, or (n, 1) for x = "query"."""
    if not isinstance(x, str):
        return np.asarray(x, dtype=np.float64)
    own = query_tolerance(problem, k)
    if x == "query":
        return own[:, None]
    known = own[~np.isnan(own)]
    return np.asarray(known.mean() if len(known) else np.nan)


def _unscored(problem: Problem, k: int) -> NDArray[np.bool_]:
    """Which of the first k results have no score, (n, k)."""
    scores = need(problem.found_scores, "scores of the results")[:, :k]
    return (problem.found[:, :k] >= 0) & np.isnan(scores)


def _last_neighbour(problem: Problem, k: int) -> Array:
    """Score of the last of the first k neighbours, (n,); NaN where there is none."""
    scores = need(problem.true_scores, "scores of the truth")
    if scores.shape[1] == 0:
        return np.full(len(problem), np.nan)
    last = np.maximum(problem.sizes(k) - 1, 0)[:, None]
    return np.take_along_axis(scores, last, axis=1)[:, 0]


def _scored(problem: Problem, k: int) -> tuple[Space, Array, Array]:
    """The space, and the scores of the first k results (n, w) and neighbours (n, v)."""
    return (
        need(problem.space, "the space of the scores"),
        need(problem.found_scores, "scores of the results")[:, :k],
        need(problem.true_scores, "scores of the truth")[:, :k],
    )


def _paired(problem: Problem, k: int) -> tuple[Space, Array, Array]:
    """The space, and scores of equal rank, nearest first, (n, m); NaN past either's end."""
    space, results, neighbours = _scored(problem, k)
    width = min(results.shape[1], neighbours.shape[1])
    sign = -1.0 if space.higher_is_nearer else 1.0
    return space, sign * np.sort(sign * results, axis=1)[:, :width], neighbours[:, :width]


def _excess(problem: Problem, k: int) -> Array:
    """Relative error of each rank, (n, m); NaN without a pair, or if only the neighbour is 0."""
    space, results, neighbours = _paired(problem, k)
    farther = neighbours - results if space.higher_is_nearer else results - neighbours
    error = share(farther, np.abs(neighbours))
    error[(results == 0) & (neighbours == 0)] = 0.0
    return error


def _mean_known(values: Array) -> Array:
    """Row means over what is not NaN; NaN where nothing is."""
    known = ~np.isnan(values)
    return share(np.where(known, values, 0.0).sum(axis=1), np.count_nonzero(known, axis=1))
