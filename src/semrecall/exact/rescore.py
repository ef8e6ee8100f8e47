"""Rescoring: exact float64 scores for the ids of a run."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.fitting import check_fitting
from semrecall.data.ids import codes_in, unify
from semrecall.data.multivectors import MultiVectors
from semrecall.data.rows import row_numbers
from semrecall.errors import MismatchError, SemrecallWarning
from semrecall.exact.maxsim import check_documents, maxsim_pair_scores
from semrecall.exact.search import workers
from semrecall.exact.settle import exact_pair_scores
from semrecall.space import Space, space
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["rescore"]


def rescore(run: Run, base: Any, queries: Any, space: str | Space) -> Run:
    """The same run with scores computed from the vectors in float64 (`scores_by="exact"`).

    base, queries: Vectors or arrays, in space maxsim MultiVectors; rows are found by id. Order and
    missing results stay as they are: a result whose score was NaN keeps it. One whose id is not in
    the base, or whose vector has no score, gets NaN, and a warning says how many ids were unknown.
    Raises MismatchError when no query or no result of the run is known.
    """
    geometry = _space(space)
    scorer = _scorer_of(base, queries, geometry)
    base, queries = scorer.base, scorer.queries
    row = codes_in(*unify(run.documents, base.ids))
    query_row = codes_in(*unify(run.queries, queries.ids))
    _check_known(run, row, query_row)
    scores = np.full(len(run.documents), np.nan)
    line = query_row[row_numbers(run.offsets)]
    entries = np.flatnonzero((row >= 0) & (line >= 0) & run.valid)

    def score(part: NDArray[np.int64]) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            values = scorer.scores(row[part], line[part])
        scores[part] = np.where(np.isfinite(values), values, np.nan)

    with ThreadPoolExecutor(workers()) as pool:
        for _ in pool.map(score, np.array_split(entries, len(entries) // 8192 + 1)):
            pass
    base.release()
    return run.replace(flat_scores=scores, space=geometry, scores_by="exact")


@dataclass(frozen=True)
class _Scorer:
    """Base and queries as a space compares them."""

    space: Space
    base: Any
    queries: Any

    def scores(self, rows: NDArray[np.int64], query_rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exact scores pair by pair."""
        if self.space.compares == "documents":
            return maxsim_pair_scores(self.base, rows, self.queries, query_rows)
        return exact_pair_scores(
            self.space, self.base.require_matrix(), rows, self.queries.require_matrix(), query_rows
        )


def _scorer_of(base: Any, queries: Any, space: Space) -> _Scorer:
    if space.compares == "documents":
        documents, asked = MultiVectors.of(base), MultiVectors.of(queries)
        check_documents(documents, asked)
        return _Scorer(space, documents, asked)
    vectors, given = Vectors.of(base), Vectors.of(queries)
    check_fitting(space, vectors, given)
    return _Scorer(space, vectors, given)


def _space(name: str | Space) -> Space:
    return space(name)


def _check_known(run: Run, row: Any, query_row: Any) -> None:
    real = ~run.documents.missing
    if len(run) and bool((query_row < 0).all()):
        raise MismatchError(
            f"no query id of the run (first: {run.queries[0]!r}) is among the query vectors",
            hint="give the vectors their ids, or number the run's queries from 0",
        )
    unknown = real & (row < 0)
    if real.any() and bool(unknown[real].all()):
        first = run.documents[int(np.argmax(real))]
        raise MismatchError(
            f"no result id of the run (first: {first!r}) is in the base",
            hint="give the base vectors their ids, or use row numbers from 0 as result ids",
        )
    if unknown.any():
        first = run.documents[int(np.argmax(unknown))]
        warnings.warn(
            f"{plural(int(unknown.sum()), 'result')} without a score: the id is not in the base "
            f"(first: {first!r})",
            SemrecallWarning,
            stacklevel=3,
        )
