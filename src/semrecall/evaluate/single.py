"""One query: what it got, each result with its true rank, grade and score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Run
from semrecall.data.ids import codes_in, unify

if TYPE_CHECKING:
    from semrecall.evaluate.result import Result

__all__ = ["Found", "found", "row_of"]


@dataclass(frozen=True)
class Found:
    """A result of a query: its rank from 1, its rank among the exact neighbours (0: it is none of
    those the truth holds), its grade and its score (NaN: none).
    """

    document: str | int
    rank: int
    true_rank: int
    grade: float
    score: float


def found(result: Result, query: int, run: str) -> list[Found]:
    """The valid distinct results of a query (row), best first."""
    problem = result.problems[run]
    documents = row_of(result.given[run], result.queries, query)
    place = None if problem.place is None else problem.place[query]
    columns = (problem.found_grades, problem.found_scores)
    grades, scores = (None if c is None else c[query] for c in columns)
    return [
        Found(
            documents[at], at + 1, 0 if place is None else int(place[at]) + 1,
            _or_nan(grades, at), _or_nan(scores, at),
        )
        for at in range(len(documents))
    ]  # fmt: skip


def _or_nan(values: Any, at: int) -> float:
    return math.nan if values is None else float(values[at])


def row_of(run: Run, queries: Ids, query: int) -> Ids:
    """The valid, distinct results of a run for a query, best first."""
    wanted, known = unify(queries[query : query + 1], run.queries)
    row = int(codes_in(wanted, known)[0])
    if row < 0:
        return Ids(np.empty(0, dtype=np.int64))
    part = slice(int(run.offsets[row]), int(run.offsets[row + 1]))
    valid = run.documents[part][run.valid[part]]
    _, first = np.unique(valid.codes, return_index=True)
    chosen = valid[np.sort(first)]
    assert isinstance(chosen, Ids)
    return chosen
