"""Answers over different rows of one base, merged: in whatever order, the same bits come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Ids
from semrecall.exact.answer import Answer, Sample
from semrecall.exact.settle import Best, merge, most_ties
from semrecall.space import Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["flattened", "merged"]

_AT_ONCE = 512  # queries


def merged(space: Space, k: int, answers: Sequence[Answer]) -> Answer:
    """The answer over all rows that any of the answers, one or more, are over.

    No row may be in two of them. The k nearest of each query and all ties with the k-th stay, by
    score and id, as one search over all rows would have them.
    """
    if len(answers) == 1:
        return answers[0]
    order = _Orders(answers) if any(a.order is not None for a in answers) else None
    best = answers[0].best
    for answer in answers[1:]:
        best = _all_queries(space, k, best, answer.best, order)
    seconds: dict[str, float] = {}
    for answer in answers:
        for part, spent in answer.seconds.items():
            seconds[part] = seconds.get(part, 0.0) + spent
    offsets, rows, scores, cut = flattened(best)
    return Answer(
        offsets=offsets,
        rows=rows,
        scores=scores,
        order=None if order is None else order[rows].codes,
        cut=cut,
        norm=max(a.norm for a in answers),
        left_out=np.unique(np.concatenate([a.left_out for a in answers])),
        zero=np.unique(np.concatenate([a.zero for a in answers])),
        sample=Sample.joined([a.sample for a in answers]),
        seconds=seconds,
    )


def flattened(
    best: Sequence[Best],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """Offsets, rows, scores and cut of an Answer."""
    offsets = np.zeros(len(best) + 1, dtype=np.int64)
    np.cumsum([len(b.rows) for b in best], out=offsets[1:])
    nothing = Best(np.empty(0, dtype=np.int64), np.empty(0))
    return (
        offsets,
        np.concatenate([b.rows for b in [nothing, *best]]),
        np.concatenate([b.scores for b in [nothing, *best]]),
        np.array([b.cut for b in best], dtype=bool),
    )


def _all_queries(
    space: Space, k: int, left: list[Best], right: list[Best], order: _Orders | None
) -> list[Best]:
    """Two answers as one, query by query."""
    best = list(left)
    full = [i for i, both in enumerate(zip(left, right, strict=True)) if _is_full(k, *both)]
    for low in range(0, len(full), _AT_ONCE):
        some = full[low : low + _AT_ONCE]
        merging = _full_rows(space, k, [left[i] for i in some], [right[i] for i in some], order)
        for i, found in zip(some, merging, strict=True):
            best[i] = found
    for i in set(range(len(left))).difference(full):
        best[i] = _both(space, k, left[i], right[i], order)
    return best


def _is_full(k: int, a: Best, b: Best) -> bool:
    return len(a.rows) == len(b.rows) == k and not (a.cut or b.cut)


def _full_rows(
    space: Space, k: int, left: list[Best], right: list[Best], order: _Orders | None
) -> list[Best]:
    """Queries with k results on both sides, sorted together; those with ties one by one."""
    rows = np.stack([np.concatenate([a.rows, b.rows]) for a, b in zip(left, right, strict=True)])
    scores = np.stack(
        [np.concatenate([a.scores, b.scores]) for a, b in zip(left, right, strict=True)]
    )
    key = space.sort_key(scores)
    # Two sorted halves: a stable sort merges them in one pass.
    places = np.argsort(key, axis=1, kind="stable")[:, : k + 1]
    key = np.take_along_axis(key, places, axis=1)
    tied = (key[:, 1:] == key[:, :-1]).any(axis=1).tolist()
    rows = np.take_along_axis(rows, places[:, :k], axis=1)
    scores = np.take_along_axis(scores, places[:, :k], axis=1)
    return [
        _both(space, k, a, b, order) if tie else Best(row, score)
        for a, b, tie, row, score in zip(left, right, tied, rows, scores, strict=True)
    ]


def _both(space: Space, k: int, a: Best, b: Best, order: _Orders | None) -> Best:
    if len(b.rows) == 0:
        return a
    best = merge(space, a, b.rows, b.scores, k, most_ties(k), order)
    # `merge` looks after ties that were left out of the first.
    cut = best.cut or (b.cut and bool(best.scores[k - 1] == b.scores[-1]))
    return Best(best.rows, best.scores, cut)


class _Orders:
    """The orders of the rows of some answers, by row number."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        orders = [a.order for a in answers if a.order is not None]
        rows = np.concatenate([a.rows for a in answers if a.order is not None])
        self._rows, first = np.unique(rows, return_index=True)
        self._order = np.concatenate(orders)[first]

    def __getitem__(self, rows: NDArray[np.int64], /) -> Ids:
        return Ids(self._order[np.searchsorted(self._rows, rows)])
