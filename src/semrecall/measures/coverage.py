"""Coverage: which exact neighbours an index found, ties at rank k credited, and what is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.measures.problem import Problem, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["covered", "listed", "recall_bounds", "share", "srecall_bounds"]


def listed(problem: Problem, k: int, cut: int | None = None) -> NDArray[np.bool_]:
    """Which of the first k neighbours are among the first `cut` (k) results by id, shape (n, k).

    Narrower where no query has k neighbours.
    """
    rank = need(problem.rank, "the truth")[:, :k]
    return (rank >= 0) & (rank < (k if cut is None else cut))


def covered(problem: Problem, k: int, cut: int | None = None) -> NDArray[np.bool_]:
    """Like `listed`, but a result tied with the k-th neighbour stands in for one that was missed.

    Neighbours with exactly the score of the k-th are interchangeable: exact search could have
    returned any choice of them. So a result with that score that is not among the first k covers
    a missed neighbour with that score, the one with the highest grade first. Scores by the index
    tie nothing.
    """
    hits = listed(problem, k, cut)
    tied, spare = _ties(problem, k, k if cut is None else cut)
    rows = np.flatnonzero((spare > 0) & (tied & ~hits).any(axis=1))
    if len(rows) == 0:
        return hits
    open_ = tied[rows] & ~hits[rows]
    merit = np.where(open_, 0.0, -np.inf)
    if problem.true_grades is not None:
        # Finite, so that an unjudged neighbour comes after judged ones but before the closed.
        lowest = np.finfo(np.float64).min
        merit[open_] = np.nan_to_num(problem.true_grades[rows, :k][open_], nan=lowest)
    order = np.argsort(-merit, axis=1, kind="stable")
    taken = np.arange(hits.shape[1]) < spare[rows, None]
    credit = np.zeros(open_.shape, dtype=bool)
    np.put_along_axis(credit, order, taken, axis=1)
    hits[rows] |= credit & open_
    return hits


def share(part: NDArray[Any], whole: NDArray[Any] | int) -> NDArray[np.float64]:
    """Part over whole, element by element; NaN where the whole is 0."""
    quotient = np.full(np.shape(part), np.nan)
    np.divide(part, whole, out=quotient, where=np.asarray(whole != 0))
    return quotient


def recall_bounds(
    problem: Problem, k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """(lowest, highest, open) recall@k, (n,) each, where ties may go on past the stored truth.

    A query is open when its last stored neighbours all have the k-th score and results outside
    the truth have no exact score: then any of those results may be tied with the k-th. The
    highest value takes all of them to be.
    """
    hits = covered(problem, k)
    size = problem.sizes(k)
    low = share(np.count_nonzero(hits, axis=1), size)
    unknown, group = _open_ties(problem, k)
    room = np.count_nonzero(group & ~hits, axis=1)
    extra = np.minimum(unknown, room)
    return low, share(np.count_nonzero(hits, axis=1) + extra, size), extra > 0


def srecall_bounds(
    problem: Problem, k: int, rel: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(lowest, highest, judged share) of srecall@k for any grades of the unjudged, (n,) each.

    Lowest: the unjudged neighbours that were missed are relevant, the found ones are not; highest:
    the reverse. Where only one of the two leaves a semantic neighbour, it is both. NaN where no
    neighbour can be relevant. The judged share is that of the first k neighbours.
    """
    grades = need(problem.true_grades, "judgments")[:, :k]
    hits = covered(problem, k)
    exists = np.arange(grades.shape[1]) < problem.sizes(k)[:, None]
    unjudged, semantic = exists & np.isnan(grades), grades >= rel
    found, known = np.count_nonzero(hits & semantic, axis=1), np.count_nonzero(semantic, axis=1)
    lucky = np.count_nonzero(unjudged & hits, axis=1)
    unlucky = np.count_nonzero(unjudged & ~hits, axis=1)
    low, high = share(found, known + unlucky), share(found + lucky, known + lucky)
    judged = share(problem.sizes(k) - lucky - unlucky, problem.sizes(k))
    return np.where(np.isnan(low), high, low), np.where(np.isnan(high), low, high), judged


def _kth(problem: Problem, k: int) -> NDArray[np.float64] | None:
    """Score of the k-th neighbour, (n, 1); NaN where there is none, None without scores."""
    if problem.true_scores is None or problem.true_scores.shape[1] < k:
        return None
    return problem.true_scores[:, k - 1 : k]


def _ties(problem: Problem, k: int, cut: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Neighbours tied with the k-th, (n, k), and results tied with it beyond them, (n,)."""
    rank, place = need(problem.rank, "the truth"), need(problem.place, "the truth")
    kth = _kth(problem, k)
    if kth is None or problem.true_scores is None:
        return np.zeros(rank[:, :k].shape, bool), np.zeros(len(problem), np.int64)
    later = rank[:, k:]
    beyond = (later >= 0) & (later < cut) & (problem.true_scores[:, k:] == kth)
    spare = np.count_nonzero(beyond, axis=1)
    if problem.scores_by == problem.true_scores_by == "exact" and problem.found_scores is not None:
        outside = (place[:, :cut] < 0) & (problem.found_scores[:, :cut] == kth)
        spare += np.count_nonzero(outside, axis=1)
    return problem.true_scores[:, :k] == kth, spare


def _open_ties(problem: Problem, k: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Results that may be tied with the k-th for all that is known, (n,); its tie group (n, k)."""
    tied, _ = _ties(problem, k, k)
    kth = _kth(problem, k)
    if kth is None or problem.true_scores is None or problem.place is None or problem.ties_kept:
        return np.zeros(len(problem), np.int64), tied
    last = np.take_along_axis(
        problem.true_scores, np.maximum(problem.true_lengths - 1, 0)[:, None], axis=1
    )
    group = np.count_nonzero(problem.true_scores == kth, axis=1)
    reaches_end = (group > 1) & (last == kth)[:, 0]
    outside = (problem.found[:, :k] >= 0) & (problem.place[:, :k] < 0)
    if problem.scores_by == problem.true_scores_by == "exact" and problem.found_scores is not None:
        outside &= np.isnan(problem.found_scores[:, :k])
    return np.where(reaches_end, np.count_nonzero(outside, axis=1), 0), tied
