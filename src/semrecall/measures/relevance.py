"""Measures of the retrieval layer that ask whether a result is relevant: a grade of `rel` or more.

Names, parameters and values follow trec_eval and ir_measures, with two differences. A query
without a relevant document has no value (NaN) unless the problem says `no_relevant="zero"`. A
negative grade is a judgment, "not relevant"; only infAP takes it for "pooled, not judged".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.measures.coverage import share
from semrecall.measures.grammar import NO_RELEVANT, measure
from semrecall.measures.kinds import FLAG, NUMBER, PORTION, POSITIVE
from semrecall.measures.problem import Problem, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.hits import Hits
    from semrecall.measures.judged import Judged

    Array = NDArray[np.float64]
    Reasons = Iterator[tuple[str, Any]]

__all__ = [
    "accuracy",
    "ap",
    "ap_capped",
    "bpref",
    "inf_ap",
    "iprec",
    "judged",
    "precision",
    "r",
    "r_capped",
    "rprec",
    "rr",
    "set_ap",
    "set_f",
    "set_precision",
    "set_recall",
    "set_relative_precision",
    "success",
]


# -- why a value is undefined, and what to know about a mean --------------------------------------


def no_judgment(problem: Problem, k: int | None, **_: Any) -> Reasons:
    """Queries that nobody judged."""
    yield "no judgments", np.diff(_judged(problem).offsets) == 0


def no_relevant(problem: Problem, k: int | None, rel: float = 1.0, **_: Any) -> Reasons:
    """Queries without a document of grade `rel` or more, after those that nobody judged."""
    yield from no_judgment(problem, k)
    yield NO_RELEVANT, _judged(problem).count(rel) == 0


def _no_pair(problem: Problem, k: int | None, rel: float = 1.0, **_: Any) -> Reasons:
    yield from no_relevant(problem, k, rel)
    relevant = problem.hits.relevant(rel, k).count
    yield "no relevant result", relevant == 0
    yield "only relevant results", relevant == _depth(problem.hits, k)


def _bpref_notes(
    problem: Problem, k: int | None, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    known = _judged(problem)
    one_sided = known.count(params["rel"]) == np.diff(known.offsets)
    count = int(np.count_nonzero(one_sided & ~np.isnan(values)))
    if count:
        yield (
            f"queries without a document judged not relevant, where it is no more than the share "
            f"of the relevant that was returned: {count:,}"
        )


RETRIEVAL: dict[str, Any] = {"needs": {"judgments"}, "layer": "retrieval"}
_RELEVANT = RETRIEVAL | {"params": {"rel": NUMBER}, "undefined": no_relevant}
_CONDENSED = _RELEVANT | {"params": {"rel": NUMBER, "judged_only": FLAG}}


# -- the first k results --------------------------------------------------------------------------


@measure("P", **_CONDENSED, aliases=("precision",))
def precision(problem: Problem, k: int, *, rel: float = 1.0, judged_only: bool = False) -> Array:
    """Precision: share of k results that are relevant.

    (n,) in [0, 1], divided by k even where fewer results exist. Source: trec_eval P.
    """
    return share(problem.condensed(judged_only).relevant(rel, k).count, k)


@measure("R", **_CONDENSED)
def r(problem: Problem, k: int, *, rel: float = 1.0, judged_only: bool = False) -> Array:
    """Recall of documents: share of all known relevant documents among the first k results.

    (n,) in [0, 1]. Source: trec_eval recall.
    """
    hits = problem.condensed(judged_only).relevant(rel, k)
    return share(hits.count, _judged(problem).count(rel))


@measure("Rcap", **_CONDENSED, aliases=("R_cap",))
def r_capped(problem: Problem, k: int, *, rel: float = 1.0, judged_only: bool = False) -> Array:
    """Capped recall: relevant documents among the first k results, over as many as fit into k.

    (n,) in [0, 1]: divided by the smaller of k and the number of relevant documents. Source:
    trec_eval relative_P, BEIR R_cap.
    """
    hits = problem.condensed(judged_only).relevant(rel, k)
    return share(hits.count, np.minimum(_judged(problem).count(rel), k))


@measure("Success", **_CONDENSED, zero_or_one=True, aliases=("hit", "HitRate", "hit_rate"))
def success(problem: Problem, k: int, *, rel: float = 1.0, judged_only: bool = False) -> Array:
    """Hit rate: whether a relevant document is among the first k results.

    (n,) 0 or 1. Source: trec_eval success.
    """
    hits = problem.condensed(judged_only).relevant(rel, k)
    return np.asarray(hits.count > 0, dtype=np.float64)


@measure("RR", **_CONDENSED, aliases=("MRR", "recip_rank"))
def rr(
    problem: Problem, k: int | None = None, *, rel: float = 1.0, judged_only: bool = False
) -> Array:
    """Reciprocal rank: one over the rank of the first relevant result; the mean is MRR.

    (n,) in [0, 1], 0 where none is found. Source: trec_eval recip_rank.
    """
    hits = problem.condensed(judged_only).relevant(rel, k)
    first = hits.where(hits.nth == 1)
    return first.sum(1.0 / first.ranks)


@measure("AP", **_CONDENSED, aliases=("MAP",))
def ap(
    problem: Problem, k: int | None = None, *, rel: float = 1.0, judged_only: bool = False
) -> Array:
    """Average precision: the precision at each relevant result, over all relevant documents.

    (n,) in [0, 1]; a relevant document that was not found adds 0. Source: trec_eval map, map_cut.
    """
    hits = problem.condensed(judged_only).relevant(rel, k)
    return share(hits.sum(hits.nth / hits.ranks), _judged(problem).count(rel))


@measure("APcap", **_CONDENSED, aliases=("MAPcap",))
def ap_capped(problem: Problem, k: int, *, rel: float = 1.0, judged_only: bool = False) -> Array:
    """Capped average precision: over as many relevant documents as fit into k results.

    (n,) in [0, 1]: AP at k, divided by the smaller of k and the number of relevant documents; the
    best k results then have 1. What torchmetrics and many recommender libraries call MAP@k.
    """
    hits = problem.condensed(judged_only).relevant(rel, k)
    relevant = np.minimum(_judged(problem).count(rel), k)
    return share(hits.sum(hits.nth / hits.ranks), relevant)


@measure("Judged", **RETRIEVAL, undefined=no_judgment)
def judged(problem: Problem, k: int | None = None) -> Array:
    """Share of the first k results that are judged.

    (n,) in [0, 1], divided by the number of results where there are fewer than k, as in
    ir_measures; 0 where there is none.
    """
    return share(problem.hits.first(k).count, np.maximum(_depth(problem.hits, k), 1))


@measure("Accuracy", **_RELEVANT | {"undefined": _no_pair})
def accuracy(problem: Problem, k: int | None = None, *, rel: float = 1.0) -> Array:
    """Share of pairs of a relevant and another result in which the relevant one stands first.

    (n,) in [0, 1] over the first k results; NaN where they are all of one kind. Source:
    ir_measures Accuracy.
    """
    hits = problem.hits.relevant(rel, k)
    pairs = hits.count * (_depth(problem.hits, k) - hits.count)
    return 1.0 - share(hits.sum((hits.ranks - hits.nth).astype(np.float64)), pairs)


# -- all results, ranked --------------------------------------------------------------------------


@measure("Rprec", **_CONDENSED)
def rprec(problem: Problem, *, rel: float = 1.0, judged_only: bool = False) -> Array:
    """R-precision: precision at as many results as there are relevant documents.

    (n,) in [0, 1]. Source: trec_eval Rprec.
    """
    relevant = _judged(problem).count(rel)
    hits = problem.condensed(judged_only).relevant(rel)
    return share(hits.where(hits.ranks <= relevant[hits.rows]).count, relevant)


@measure("Bpref", **_RELEVANT, notes=_bpref_notes)
def bpref(problem: Problem, *, rel: float = 1.0) -> Array:
    """Binary preference: how few results judged not relevant stand before the relevant ones.

    (n,) in [0, 1]: the mean over relevant documents of 1 - min(m, R) / min(N, R), with m results
    judged not relevant before it, N such judgments and R relevant documents. Unjudged results do
    not exist. Source: trec_eval bpref.
    """
    known = _judged(problem)
    relevant = known.count(rel)
    other = np.diff(known.offsets) - relevant
    hits = problem.hits.condensed.relevant(rel)
    before, most = hits.ranks - hits.nth, relevant[hits.rows]
    least = np.maximum(np.minimum(other, relevant)[hits.rows], 1)
    return share(hits.sum(1.0 - np.minimum(before, most) / least), relevant)


_EPSILON = 0.00001


@measure("infAP", **_RELEVANT)
def inf_ap(problem: Problem, *, rel: float = 1.0) -> Array:
    """Inferred average precision, for judgments that are a random sample of a pool.

    (n,): AP with the expected precision above each relevant result, where a negative grade says
    "in the pool, not judged" and no judgment says "not in the pool". Source: trec_eval infAP.
    """
    everything = problem.hits
    sampled = everything.where((everything.grades >= 0) | (everything.grades >= rel))
    hits = sampled.grades >= rel
    relevant = sampled.where(hits)
    before = relevant.nth - 1
    judged_before = sampled.nth[hits] - 1
    pooled_before = everything.nth[np.isin(everything.entries, relevant.entries)] - 1
    inferred = (before + _EPSILON) / (judged_before + 2 * _EPSILON)
    at = (1.0 + pooled_before * inferred) / relevant.ranks
    return share(relevant.sum(at), _judged(problem).count(rel))


@measure(
    "IPrec",
    **_RELEVANT | {"params": {"recall": PORTION, "rel": NUMBER, "judged_only": FLAG}},
    at="recall",
)
def iprec(problem: Problem, *, recall: float, rel: float = 1.0, judged_only: bool = False) -> Array:
    """Interpolated precision: the best precision at any depth that reaches a recall.

    (n,) in [0, 1], written with the recall behind @, as in IPrec@0.1; 0 where the recall is not
    reached. It is reached with int(recall * R + 0.9) relevant results. Source: trec_eval
    iprec_at_recall.
    """
    hits = problem.condensed(judged_only).relevant(rel)
    needed = (recall * _judged(problem).count(rel) + 0.9).astype(np.int64)
    best = _best_from_here(hits, hits.nth / hits.ranks)
    here = hits.nth == np.maximum(needed, 1)[hits.rows]
    return hits.where(here).sum(best[here])


# -- all results, as a set ------------------------------------------------------------------------


@measure("SetP", **_CONDENSED | {"params": {"rel": NUMBER, "relative": FLAG, "judged_only": FLAG}},
         aliases=("set_P",))  # fmt: skip
def set_precision(
    problem: Problem, *, rel: float = 1.0, relative: bool = False, judged_only: bool = False
) -> Array:
    """Share of all results that are relevant.

    (n,) in [0, 1], 0 without a result; with `relative=True` divided by the most relevant ones
    that as many results can hold. Source: trec_eval set_P, set_relative_P.
    """
    hits = problem.condensed(judged_only)
    whole = hits.returned
    if relative:
        whole = np.minimum(whole, _judged(problem).count(rel))
    return share(hits.relevant(rel).count, np.maximum(whole, 1))


@measure("SetRelP", **_CONDENSED, aliases=("set_relative_P",))
def set_relative_precision(
    problem: Problem, *, rel: float = 1.0, judged_only: bool = False
) -> Array:
    """Relevant results over the most that as many results can hold; `SetP(relative=True)`.

    (n,) in [0, 1]. Source: trec_eval set_relative_P.
    """
    return set_precision(problem, rel=rel, relative=True, judged_only=judged_only)


@measure("SetR", **_RELEVANT, aliases=("set_recall",))
def set_recall(problem: Problem, *, rel: float = 1.0) -> Array:
    """Share of all known relevant documents among the results, however many.

    (n,) in [0, 1]. Source: trec_eval set_recall.
    """
    return share(problem.hits.relevant(rel).count, _judged(problem).count(rel))


@measure("SetF", **_CONDENSED | {"params": {"rel": NUMBER, "beta": POSITIVE, "judged_only": FLAG}},
         aliases=("set_F",))  # fmt: skip
def set_f(
    problem: Problem, *, rel: float = 1.0, beta: float = 1.0, judged_only: bool = False
) -> Array:
    """Weighted harmonic mean of SetP and SetR.

    (n,) in [0, 1]: (beta + 1) P R / (R + beta P), so that `beta` is what textbooks square. Source:
    trec_eval set_F, ir_measures SetF.
    """
    p = set_precision(problem, rel=rel, judged_only=judged_only)
    whole = set_recall(problem, rel=rel)
    mean = (beta + 1.0) * p * whole
    return np.where(np.isnan(whole), np.nan, np.nan_to_num(share(mean, whole + beta * p)))


@measure("SetAP", **_CONDENSED, aliases=("set_map",))
def set_ap(problem: Problem, *, rel: float = 1.0, judged_only: bool = False) -> Array:
    """SetP times SetR, the average precision of results without an order.

    (n,) in [0, 1]. Source: trec_eval set_map.
    """
    p = set_precision(problem, rel=rel, judged_only=judged_only)
    return p * set_recall(problem, rel=rel)


def _judged(problem: Problem) -> Judged:
    return need(problem.judged, "judgments")


def _depth(hits: Hits, k: int | None) -> NDArray[np.int64]:
    """How many results each query has among the first k, shape (n,)."""
    return hits.returned if k is None else np.minimum(hits.returned, k)


def _best_from_here(hits: Hits, values: Array) -> Array:
    """The largest of the values (h,) of a hit and those after it in its query."""
    distinct, place = np.unique(values, return_inverse=True)
    # Places are whole numbers, so a step a query keeps queries apart without rounding.
    step = len(distinct)
    last_first = (place - hits.rows * step)[::-1]
    highest = np.maximum.accumulate(last_first)[::-1] + hits.rows * step
    return np.asarray(distinct[highest]) if step else values
