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
        best = [
            _both(space, k, a, b, order) if len(b.rows) else a
            for a, b in zip(best, answer.best, strict=True)
        ]
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


def _both(space: Space, k: int, a: Best, b: Best, order: _Orders | None) -> Best:
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
