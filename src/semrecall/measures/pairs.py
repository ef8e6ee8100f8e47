"""The first k exact neighbours of every query as pairs (query, neighbour) end to end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Judgments, Run
from semrecall.measures.coverage import covered
from semrecall.measures.problem import Problem, align

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Neighbours", "neighbour_values", "neighbours"]


@dataclass(frozen=True)
class Neighbours:
    """Pairs (m,) of n queries, in the order of the queries, the nearest first.

    queries: row number of the query. ranks: from 1. found: whether the run has it among its first
    k, ties at rank k credited in the order of the truth, whatever their grades.
    inside: (n, k) which cells of a table of neighbours are pairs.
    """

    queries: NDArray[np.int64]
    ranks: NDArray[np.int64]
    found: NDArray[np.bool_]
    inside: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def n(self) -> int:
        """How many queries there are, those without a neighbour among them."""
        return len(self.inside)


def neighbours(problem: Problem, k: int) -> Neighbours:
    """The pairs of a problem with a truth."""
    # Without grades, so that what was found does not depend on who judged.
    hits = covered(replace(problem, judged=None), k)
    inside = np.arange(hits.shape[1]) < problem.sizes(k)[:, None]
    rows, columns = np.nonzero(inside)
    return Neighbours(rows, columns + 1, hits[inside], inside)


def neighbour_values(
    truth: Run, judgments: Judgments, pairs: Neighbours, values: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The grade of each pair (m,), or its number among `values`, one a judgment; NaN: none."""
    if values is not None:
        judgments = judgments.replace(grades=np.asarray(values, np.float64))
    grades = align(truth, truth, judgments).true_grades
    assert grades is not None
    return np.asarray(grades[:, : pairs.inside.shape[1]][pairs.inside])
