"""Measures of the retrieval layer: ranked results against judgments, as trec_eval defines them.

Names and values follow trec_eval and ir_measures. One difference: a query without a relevant
document has no value (NaN), while trec_eval counts it as 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import MeasureError
from semrecall.measures.coverage import share
from semrecall.measures.grammar import NUMBER, choice, measure
from semrecall.measures.problem import Problem, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.judged import Judged

    Array = NDArray[np.float64]
    Reasons = Iterator[tuple[str, Any]]

__all__ = ["ap", "judged", "ndcg", "precision", "r", "rr", "success"]


def _no_judgment(problem: Problem, k: int | None, **_: Any) -> Reasons:
    yield "no judgments", np.diff(_judged(problem).offsets) == 0


def _no_relevant(problem: Problem, k: int | None, rel: float = 1.0, **_: Any) -> Reasons:
    yield from _no_judgment(problem, k)
    yield "no relevant document", _judged(problem).count(rel) == 0


def _no_gain(problem: Problem, k: int | None, **_: Any) -> Reasons:
    yield from _no_relevant(problem, k, rel=np.nextafter(0, 1))


_RETRIEVAL: dict[str, Any] = {"needs": {"judgments"}, "layer": "retrieval"}
_RELEVANCE = _RETRIEVAL | {"params": {"rel": NUMBER}, "undefined": _no_relevant}


@measure("P", **_RELEVANCE, aliases=("precision",))
def precision(problem: Problem, k: int, *, rel: float = 1.0) -> Array:
    """Precision: share of k results that are relevant.

    (n,) in [0, 1], divided by k even where fewer results exist. Source: trec_eval P.
    """
    return share(np.count_nonzero(_relevant(problem, k, rel), axis=1), k)


@measure("R", **_RELEVANCE)
def r(problem: Problem, k: int, *, rel: float = 1.0) -> Array:
    """Recall of documents: share of all known relevant documents among the first k results.

    (n,) in [0, 1]. Source: trec_eval recall.
    """
    hits = np.count_nonzero(_relevant(problem, k, rel), axis=1)
    return share(hits, _judged(problem).count(rel))


@measure("Success", **_RELEVANCE, zero_or_one=True, aliases=("hit", "HitRate"))
def success(problem: Problem, k: int, *, rel: float = 1.0) -> Array:
    """Hit rate: whether a relevant document is among the first k results.

    (n,) 0 or 1. Source: trec_eval success.
    """
    return np.asarray(_relevant(problem, k, rel).any(axis=1), dtype=np.float64)


@measure("RR", **_RELEVANCE, aliases=("MRR",))
def rr(problem: Problem, k: int | None = None, *, rel: float = 1.0) -> Array:
    """Reciprocal rank: one over the rank of the first relevant result; the mean is MRR.

    (n,) in [0, 1], 0 where none is found. Source: trec_eval recip_rank.
    """
    hits = _relevant(problem, k, rel)
    first = np.argmax(hits, axis=1) + 1 if hits.shape[1] else np.ones(len(hits))
    return np.asarray(hits.any(axis=1) / first)


@measure("AP", **_RELEVANCE, aliases=("MAP",))
def ap(problem: Problem, k: int | None = None, *, rel: float = 1.0) -> Array:
    """Average precision: the precision at each relevant result, over all relevant documents.

    (n,) in [0, 1]; a relevant document that was not found adds 0. Source: trec_eval map, map_cut.
    """
    hits = _relevant(problem, k, rel)
    ranks = np.arange(1, hits.shape[1] + 1)
    total = np.where(hits, np.cumsum(hits, axis=1) / ranks, 0.0).sum(axis=1)
    return share(total, _judged(problem).count(rel))


@measure(
    "nDCG",
    **_RETRIEVAL,
    params={"gain": choice("grade", "exp")},
    undefined=_no_gain,
    synonyms={("dcg", "log2"): ("gain", "grade"), ("dcg", "exp-log2"): ("gain", "exp")},
)
def ndcg(problem: Problem, k: int | None = None, *, gain: str = "grade") -> Array:
    """Normalised discounted cumulative gain: graded results, those at the top counting most.

    (n,) in [0, 1]: the sum of gain / log2(rank + 1) over the first k results, divided by the same
    for all judged documents in the best order. The gain is the grade, or 2^grade - 1 for
    `gain=exp`; negative grades gain 0. Source: trec_eval ndcg, ndcg_cut.
    """
    known = _judged(problem)
    found = _top(problem, k)
    rows, ranks = np.nonzero(~np.isnan(found))
    actual = _dcg(rows, ranks, found[rows, ranks], gain, len(problem))
    place = np.arange(len(known)) - known.offsets[known.rows]
    use = slice(None) if k is None else place < k
    ideal = _dcg(known.rows[use], place[use], known.descending[use], gain, len(problem))
    return share(actual, ideal)


@measure("Judged", **_RETRIEVAL, undefined=_no_judgment)
def judged(problem: Problem, k: int) -> Array:
    """Share of the first k results that are judged.

    (n,) in [0, 1], divided by the number of results where there are fewer than k, as in
    ir_measures; 0 where there is none.
    """
    count = np.count_nonzero(~np.isnan(_top(problem, k)), axis=1)
    return share(count, np.maximum(np.minimum(problem.found_lengths, k), 1))


def _judged(problem: Problem) -> Judged:
    return need(problem.judged, "judgments")


def _top(problem: Problem, k: int | None) -> Array:
    """Grades of the first k results, (n, k) or narrower; all of them for None."""
    return need(problem.found_grades, "judgments")[:, :k]


def _relevant(problem: Problem, k: int | None, rel: float) -> NDArray[np.bool_]:
    return _top(problem, k) >= rel


def _dcg(
    rows: NDArray[np.int64], ranks: NDArray[np.int64], grades: Array, gain: str, n: int
) -> Array:
    """Discounted gains summed by row, in the order given; ranks count from 0."""
    gains = np.maximum(grades, 0.0)
    if gain == "exp":
        if gains.max(initial=0.0) > 1000:
            raise MeasureError(
                f"grade {gains.max():g} is too large for the gain 2^grade - 1",
                hint="use nDCG, whose gain is the grade itself",
            )
        gains = np.exp2(gains) - 1.0
    return np.asarray(np.bincount(rows, gains / np.log2(ranks + 2.0), n), dtype=np.float64)
