"""Numbers that other tools print, under their own names, so that published plots can be compared.

Each is computed from the rows as they were handed in, by the rules of its tool, faults included.
docs/measures.md says where each differs from `recall` and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.rows import repeated_in_rows
from semrecall.measures.coverage import share
from semrecall.measures.grammar import measure
from semrecall.measures.kinds import PERCENT
from semrecall.measures.lists import Listed
from semrecall.measures.problem import Problem, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

    Array = NDArray[np.float64]

__all__ = ["annb_eps", "annb_knn", "bigann", "faiss_inter", "vdbb_recall"]

_ABSOLUTE = 1e-3
_SAME = 1e-6


@measure("annb_knn", needs={"truth", "scores", "found_scores"})
def annb_knn(problem: Problem, k: int) -> Array:
    """The recall of ann-benchmarks: share of k results within 0.001 of the k-th distance.

    (n,) in [0, 1]. Distances, not ids: at small scales wrong results count, a repeated result
    counts each time, and a truth padded with infinity accepts anything. Distance is l2, 1 - cosine
    or -ip. Source: ann-benchmarks, metric "k-nn".
    """
    kth, found = _distances(problem, k)
    return share(np.count_nonzero(found <= kth + _ABSOLUTE, axis=1), k)


@measure("annb_eps", needs={"truth", "scores", "found_scores"}, params={"eps": PERCENT})
def annb_eps(problem: Problem, k: int, *, eps: float = 0.01) -> Array:
    """The epsilon recall of ann-benchmarks: share of k results within 1 + eps of the k-th distance.

    (n,) in [0, 1]. Distances as in `annb_knn`; a k-th distance of 0 tolerates nothing, and a
    negative one (ip) is made harder to reach, not easier. Source: ann-benchmarks, metrics
    "epsilon" (1%) and "largeepsilon" (10%).
    """
    kth, found = _distances(problem, k)
    return share(np.count_nonzero(found <= kth * (1.0 + eps), axis=1), k)


@measure("bigann", needs={"truth"})
def bigann(problem: Problem, k: int) -> Array:
    """The recall of big-ann-benchmarks: distinct results among k neighbours and ties, over k.

    (n,) at least 0, above 1 where ties meet more than k results: all results handed in count.
    Ties are neighbours stored past k within 0.000001 of the k-th distance (squared for l2). Always
    divides by k, and padding (-1) on both sides counts as one hit. Source: big-ann-benchmarks.
    """
    found, true = _padded(problem.given_found, k), _padded(_given_true(problem), k)
    near = np.arange(true.shape[1]) < _tie_end(problem, k)
    return share(_common(found, true, near), k)


@measure("faiss_inter", needs={"truth"})
def faiss_inter(problem: Problem, k: int) -> Array:
    """The intersection measure of faiss: distinct ids that both tables have in k columns, over k.

    (n,) in [0, 1]. By ids alone, always divides by k, and padding (-1) on both sides counts as one
    hit. Source: faiss, contrib.evaluation.knn_intersection_measure.
    """
    found, true = _padded(problem.given_found, k), _padded(_given_true(problem), k)
    return share(_common(found[:, :k], true[:, :k], np.True_), k)


@measure("vdbb_recall", needs={"truth"})
def vdbb_recall(problem: Problem, k: int) -> Array:
    """The recall of VectorDBBench: results that are among the k neighbours, over k.

    (n,) in [0, 1]. By ids alone; a repeated result counts each time, and the divisor is k even
    where fewer neighbours exist. Source: VectorDBBench, calc_recall.
    """
    found, true = problem.given_found.codes[:, :k], _given_true(problem).codes[:, :k]
    return share(np.count_nonzero(_member(found, true), axis=1), k)


def _given_true(problem: Problem) -> Listed:
    return need(problem.given_true, "the truth")


def _distances(problem: Problem, k: int) -> tuple[Array, Array]:
    """The k-th true distance (n, 1), the distances of k results (n, k); infinite if missing."""
    space = need(problem.space, "the space of the scores")
    true = _as_distances(space, _given_true(problem), k)
    return true[:, k - 1 : k], _as_distances(space, problem.given_found, k)[:, :k]


def _as_distances(space: Space, rows: Listed, k: int) -> Array:
    scores = need(rows.scores, "scores")
    offset = 1.0 if space.name == "cosine" else 0.0
    distances = offset - scores if space.higher_is_nearer else scores
    short = max(k - distances.shape[1], 0)
    padded = np.pad(distances, ((0, 0), (0, short)), constant_values=np.inf)
    return np.where(np.isnan(padded), np.inf, padded)


def _padded(rows: Listed, k: int) -> NDArray[np.int64]:
    """Codes in at least k columns, filled up with -1 as the tools' matrices are."""
    short = max(k - rows.codes.shape[1], 0)
    return np.pad(rows.codes, ((0, 0), (0, short)), constant_values=-1)


def _tie_end(problem: Problem, k: int) -> NDArray[np.int64]:
    """Where the ties with the k-th stored distance end, (n, 1); k without distances."""
    scores = _given_true(problem).scores
    if scores is None or scores.shape[1] <= k:
        return np.full((len(problem), 1), k)
    distances = scores**2 if problem.space is not None and problem.space.name == "l2" else scores
    with np.errstate(invalid="ignore"):
        close = np.abs(distances[:, k:] - distances[:, k - 1 : k]) < _SAME
    tied = np.logical_and.accumulate(close, axis=1)
    return np.asarray(k + np.count_nonzero(tied, axis=1, keepdims=True))


def _member(found: NDArray[np.int64], true: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which valid entries of `found` (n, w) occur in the same row of `true` (n, v)."""
    codes = np.concatenate([found, true], axis=1)
    # Two above the largest code: the key of a -1 then falls between the rows.
    span = int(codes.max(initial=0)) + 2
    if span * len(codes) > np.iinfo(np.int64).max:
        distinct, codes = np.unique(codes, return_inverse=True)
        codes, span = codes.reshape(len(found), -1), len(distinct)
    keys = np.arange(len(codes))[:, None] * span + codes
    wanted, known = (
        keys[:, : found.shape[1]],
        np.sort(keys[:, found.shape[1] :], axis=1).reshape(-1),
    )
    if len(known) == 0:
        return np.zeros(found.shape, dtype=bool)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.asarray((known[at] == wanted) & (found >= 0))


def _common(found: NDArray[np.int64], true: NDArray[np.int64], use: Any) -> NDArray[np.int64]:
    """Distinct codes of each row that are in both, -1 among them, (n,); of `true` where `use`."""
    hits = _member(found, np.where(use, true, -1)) & ~repeated_in_rows(found)
    padding = (found == -1).any(axis=1) & ((true == -1) & use).any(axis=1)
    return np.asarray(np.count_nonzero(hits, axis=1) + padding)
