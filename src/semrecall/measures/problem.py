"""Problem: results, truth and grades of the same queries, laid side by side as matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from semrecall.data.ids import Ids, codes_in, unify
from semrecall.data.judgments import Judgments
from semrecall.data.rows import pad
from semrecall.data.run import Run, group_rows
from semrecall.errors import MeasureError, MismatchError
from semrecall.measures.judged import Judged
from semrecall.space import Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.spans import SpanLayout

__all__ = ["Listed", "Problem", "align", "need", "repeated"]

ScoresBy = Literal["exact", "index"]
Part = TypeVar("Part")


@dataclass(frozen=True, eq=False)
class Listed:
    """Ranked rows as matrices: codes (n, width), -1 padding; scores alike, NaN padding, or None."""

    codes: NDArray[np.int64]
    scores: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Results, truth and grades of the same n queries on one scale of integer codes.

    Make one with `align`. Rows are packed to the left and padded: codes with -1, scores and grades
    with NaN. A document has one score per query: a result that is in the truth has the truth's.

    queries: (n,) the truth's queries; without a truth the judgments', else the run's.
    found: (n, w) valid distinct results, best first.
    found_scores: (n, w) their scores, NaN where none is known; None when there are none at all.
    scores_by: who computed the scores of the results outside the truth.
    true: (n, v) exact neighbours, nearest first, ties past the depth included.
    true_scores: (n, v) their scores; `true_scores_by` says who computed them.
    depth: how deep the truth is; `run_depth`: how deep the run was asked.
    ties_kept: the truth is known to hold every neighbour tied with its last.
    rank: (n, v) position of each neighbour among the results, -1 where it was not found.
    place: (n, w) position of each result among the neighbours, -1 where it is none.
    repeats: (n,) repeated results, dropped.
    missing: (n,) results fewer than asked for, although more neighbours exist; 0 where the run has
        no row at all.
    violations: (n,) results where the truth is empty.
    reasons: per query, why its truth cannot be used; "" when it can.
    answered: (n,) whether the run has the query at all.
    only_in_run: how many queries of the run were left out, because nothing judges them.
    judged: the grades of each query; None without judgments.
    given_found, given_true: rows as handed in, repeats and missing results included. They serve
        the numbers that other tools print; our own measures never look at them.
    spans: labelled spans beside the chunks retrieved, see `lay_out_spans`; None without spans.
    """

    queries: Ids
    space: Space | None
    found: NDArray[np.int64]
    found_scores: NDArray[np.float64] | None
    scores_by: ScoresBy | None
    true: NDArray[np.int64] | None
    true_scores: NDArray[np.float64] | None
    true_scores_by: ScoresBy | None
    depth: int | None
    run_depth: int
    ties_kept: bool
    rank: NDArray[np.int64] | None
    place: NDArray[np.int64] | None
    repeats: NDArray[np.int64]
    missing: NDArray[np.int64]
    violations: NDArray[np.int64]
    reasons: tuple[str, ...]
    answered: NDArray[np.bool_]
    only_in_run: int
    judged: Judged | None
    given_found: Listed
    given_true: Listed | None
    spans: SpanLayout | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} queries", f"up to {self.found.shape[1]} results"]
        if self.true is not None:
            parts.append(f"truth to depth {self.depth}")
        if self.judged is not None:
            parts.append(f"{len(self.judged):,} judged pairs")
        return f"Problem({', '.join(parts)})"

    @cached_property
    def found_lengths(self) -> NDArray[np.int64]:
        """How many valid distinct results each query has, shape (n,)."""
        return np.asarray(np.count_nonzero(self.found >= 0, axis=1))

    @cached_property
    def true_lengths(self) -> NDArray[np.int64]:
        """How many neighbours the truth holds, ties past its depth included, shape (n,)."""
        if self.true is None:
            return np.zeros(len(self), dtype=np.int64)
        return np.asarray(np.count_nonzero(self.true >= 0, axis=1))

    def sizes(self, k: int) -> NDArray[np.int64]:
        """|G_k|: how many of the first k exact neighbours exist, shape (n,)."""
        return np.minimum(self.true_lengths, k)

    @cached_property
    def found_grades(self) -> NDArray[np.float64] | None:
        """Grades of the results, (n, w); NaN is unjudged or no grade. None without judgments."""
        return None if self.judged is None else self.judged.grades_of(self.found)

    @cached_property
    def true_grades(self) -> NDArray[np.float64] | None:
        """Grades of the neighbours, (n, v); NaN is unjudged or no grade."""
        if self.judged is None or self.true is None:
            return None
        return self.judged.grades_of(self.true)


def align(run: Run, truth: Run | None = None, judgments: Judgments | None = None) -> Problem:
    """Lay the results of `run` beside the exact neighbours and the judgments of the same queries.

    A query that the run lacks has an empty row and scores 0; a query that only the run has is left
    out and counted. Raises MismatchError where run and truth are of different spaces, or where
    run, truth and judgments have no query in common.
    """
    space = _common_space(run, truth)
    queries, run_rows, judged_rows = _common_queries(run, truth, judgments)
    run_codes, true_codes, judged_codes = _common_codes(run, truth, judgments)
    n = len(queries)
    found, repeats, given_found = _laid_out(run, run_codes, run_rows)
    true, given_true, rank, place = None, None, None, None
    if truth is not None and true_codes is not None:
        true, _, given_true = _laid_out(truth, true_codes, np.arange(n))
        rank, place = _join(found.codes, true.codes)
    judged = None
    if judgments is not None and judged_codes is not None:
        judged = Judged.of(judged_rows, judged_codes, judgments.grades, n)
    reasons = (truth.reasons if truth is not None else ()) or ("",) * n
    given = np.count_nonzero(found.codes >= 0, axis=1) + repeats
    missing, violations = _shortfall(run.depth, given, true, reasons)
    return Problem(
        queries=queries,
        space=space,
        found=found.codes,
        found_scores=_one_score_each(found, true, place),
        scores_by=_scores_by(run, truth),
        true=None if true is None else true.codes,
        true_scores=None if true is None else true.scores,
        true_scores_by=None if truth is None or truth.flat_scores is None else truth.scores_by,
        depth=None if truth is None else truth.depth,
        run_depth=run.depth,
        ties_kept=truth is not None and bool(truth.identity),
        rank=rank,
        place=place,
        repeats=repeats,
        missing=np.where(run_rows >= 0, missing, 0),
        violations=violations,
        reasons=reasons,
        answered=run_rows >= 0,
        only_in_run=len(run) - int(np.count_nonzero(run_rows >= 0)),
        judged=judged,
        given_found=given_found,
        given_true=given_true,
    )


def need(part: Part | None, what: str) -> Part:
    """A part of the problem that a measure cannot do without; MeasureError where it is None."""
    if part is None:
        raise MeasureError(f"the measure needs {what}, which the problem lacks")
    return part


def _common_space(run: Run, truth: Run | None) -> Space | None:
    known = [r.space for r in (truth, run) if r is not None and r.space is not None]
    if len(set(known)) > 1:
        raise MismatchError(
            f"the truth is of space {known[0]}, the run of space {known[1]}",
            hint=f"search and compute the truth in the same space, or give the run space {known[0]}"
            " if only its label is wrong",
        )
    return known[0] if known else None


def _common_queries(
    run: Run, truth: Run | None, judgments: Judgments | None
) -> tuple[Ids, NDArray[np.int64], NDArray[np.int64]]:
    """The queries to score, the run's row of each (-1: none), and the row of each judgment."""
    judged = Ids(np.empty(0, dtype=np.int64)) if judgments is None else judgments.queries
    if truth is not None:
        queries, source = truth.queries, "truth"
    elif judgments is not None:
        queries, source = group_rows(judged)[0], "judgments"
    else:
        queries, source = run.queries, "run"
    wanted, have, of_judgments = unify(queries, run.queries, judged)
    run_rows, judged_rows = codes_in(wanted, have), _rows_of(of_judgments, wanted)
    _require_overlap(source, queries, "run", run.queries, run_rows)
    _require_overlap(source, queries, "judgments", judged, judged_rows)
    return queries, run_rows, judged_rows


def _rows_of(codes: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row number of each of many query codes, -1 for a query that is not scored."""
    top = int(queries.max(initial=-1))
    if top > 4 * (len(codes) + len(queries)):
        return codes_in(codes, queries)
    # The codes are dense: looking up is several times faster than searching.
    rows = np.full(top + 2, -1)
    rows[queries] = np.arange(len(queries))
    return np.asarray(rows[np.minimum(codes, top + 1)])


def _require_overlap(
    source: str, queries: Ids, other: str, others: Ids, rows: NDArray[np.int64]
) -> None:
    if len(queries) == 0 or len(others) == 0 or bool((rows >= 0).any()):
        return
    raise MismatchError(
        f"none of the {len(queries):,} queries of the {source} is in the {other}: "
        f"the {source} has ids like {queries[0]!r}, the {other} like {others[0]!r}",
        hint="query ids must be equal as text; look for leading zeros, prefixes, or another "
        "numbering",
    )


def _common_codes(
    run: Run, truth: Run | None, judgments: Judgments | None
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Document codes of run, truth and judgments on one scale."""
    columns = [run.documents]
    columns += [] if truth is None else [truth.documents]
    columns += [] if judgments is None else [judgments.documents]
    codes = iter(unify(*columns))
    return (
        next(codes),
        None if truth is None else next(codes),
        None if judgments is None else next(codes),
    )


def _laid_out(
    run: Run, codes: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[Listed, NDArray[np.int64], Listed]:
    """(valid distinct results, repeats (n,), results as given) of these rows; row -1 is empty."""
    given = Listed(
        _gather(pad(codes, run.offsets, -1), rows, -1),
        None
        if run.flat_scores is None
        else _gather(pad(run.flat_scores, run.offsets, np.nan), rows, np.nan),
    )
    valid = _gather(pad(run.valid, run.offsets, False), rows, False)
    again = repeated(np.where(valid, given.codes, -1))
    keep = valid & ~again
    repeats = np.count_nonzero(again, axis=1)
    if keep.all():
        return given, repeats, given
    offsets = np.concatenate([[0], np.cumsum(np.count_nonzero(keep, axis=1))])
    scores = None if given.scores is None else pad(given.scores[keep], offsets, np.nan)
    return Listed(pad(given.codes[keep], offsets, -1), scores), repeats, given


def _gather(matrix: NDArray[Any], rows: NDArray[np.int64], fill: float) -> NDArray[Any]:
    if len(rows) == len(matrix) and bool((rows == np.arange(len(rows))).all()):
        return matrix
    chosen = matrix[rows] if len(matrix) else np.empty((len(rows), 0), dtype=matrix.dtype)
    chosen[rows < 0] = fill
    return chosen


def repeated(codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which entries repeat an earlier one of their row; -1 repeats nothing."""
    again = np.zeros(codes.shape, dtype=bool)
    ordered = np.sort(codes, axis=1)
    suspects = np.flatnonzero(
        ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    )
    if len(suspects):
        order = np.argsort(codes[suspects], axis=1, kind="stable")
        ordered = ordered[suspects]
        twin = np.zeros(ordered.shape, dtype=bool)
        twin[:, 1:] = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        marks = np.zeros(ordered.shape, dtype=bool)
        np.put_along_axis(marks, order, twin, axis=1)
        again[suspects] = marks
    return again


def _join(
    found: NDArray[np.int64], true: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(position of each neighbour among the results, of each result among the neighbours), or -1.

    Codes are distinct within a row, so after sorting both sides together a common document stands
    twice in a row.
    """
    width = found.shape[1]
    both = np.concatenate([found, true], axis=1)
    order = np.argsort(both, axis=1)
    ordered = np.take_along_axis(both, order, axis=1)
    twin = np.zeros(both.shape, dtype=bool)
    twin[:, :-1] = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    at = np.flatnonzero(twin)
    one, other = order.reshape(-1)[at], order.reshape(-1)[at + 1]
    result, neighbour = np.minimum(one, other), np.maximum(one, other) - width
    row = at // max(both.shape[1], 1)
    rank, place = np.full(true.shape, -1), np.full(found.shape, -1)
    rank.reshape(-1)[row * true.shape[1] + neighbour] = result
    place.reshape(-1)[row * width + result] = neighbour
    return rank, place


def _one_score_each(
    found: Listed, true: Listed | None, place: NDArray[np.int64] | None
) -> NDArray[np.float64] | None:
    """Scores of the results, the truth's for those that are in the truth."""
    if true is None or true.scores is None or place is None:
        return found.scores
    own = np.full(place.shape, np.nan) if found.scores is None else found.scores
    if true.scores.shape[1] == 0:
        return own
    known = np.take_along_axis(true.scores, np.maximum(place, 0), axis=1)
    return np.where(place >= 0, known, own)


def _scores_by(run: Run, truth: Run | None) -> ScoresBy | None:
    if run.flat_scores is not None:
        return run.scores_by
    return None if truth is None or truth.flat_scores is None else truth.scores_by


def _shortfall(
    asked: int, given: NDArray[np.int64], true: Listed | None, reasons: tuple[str, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(missing, violations) of each query, (n,) each, from how many results it was given."""
    if true is None:
        return np.maximum(asked - given, 0), np.zeros_like(given)
    exist = np.count_nonzero(true.codes >= 0, axis=1)
    leaked = (exist == 0) & np.array([not reason for reason in reasons], dtype=bool)
    return np.maximum(np.minimum(asked, exist) - given, 0), np.where(leaked, given, 0)
