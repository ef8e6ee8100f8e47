"""Problem: results, truth and grades of the same queries, side by side on one scale of codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from semrecall.data.allowed import NOTHING_ALLOWED
from semrecall.data.ids import Ids, codes_in, unify
from semrecall.data.judgments import Judgments
from semrecall.data.rows import repeated, row_numbers
from semrecall.data.run import Run, group_rows
from semrecall.errors import InputError, MeasureError, MismatchError
from semrecall.measures.hits import Hits, judged_results
from semrecall.measures.judged import Judged
from semrecall.measures.lists import Listed, Lists
from semrecall.space import Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.spans import SpanLayout

__all__ = ["NoRelevant", "Problem", "align", "need"]

ScoresBy = Literal["exact", "index"]
NoRelevant = Literal["skip", "zero"]
Part = TypeVar("Part")


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Results, truth and grades of the same n queries on one scale of integer codes.

    Make one with `align`. Results lie end to end in `results`, where only the judged ones matter
    they are `hits`; beside a truth they are matrices, packed to the left and padded: codes with
    -1, scores and grades with NaN. A document has one score per query: a result that is in the
    truth has the truth's.

    queries: (n,) the truth's queries; without a truth the judgments', else the run's.
    results: valid distinct results, best first, with the scores of the run.
    scores_by: who computed the scores of the results outside the truth.
    true: (n, v) exact neighbours, nearest first, ties past the depth included.
    true_scores: (n, v) their scores; `true_scores_by` says who computed them.
    depth: how deep the truth is; `run_depth`: how deep the run was asked.
    ties_kept: the truth is known to hold every neighbour tied with its last.
    repeats: (n,) repeated results, dropped.
    missing: (n,) results fewer than asked for, although more neighbours exist; 0 where the run has
        no row at all.
    violations: (n,) results where the truth is empty.
    reasons: per query, why its truth cannot be used; "" when it can.
    answered: (n,) whether the run has the query at all.
    only_in_run: how many queries of the run were left out, because nothing judges them.
    judged: the grades of each query; None without judgments.
    by_score: whether the order of results follows from their scores, so that equal ones are ties.
    no_relevant: "zero" where a query without a relevant document counts as 0, as in trec_eval.
    given, given_true: rows as handed in, repeats and missing results included. They serve the
        numbers that other tools print; our own measures never look at them.
    spans: labelled spans beside the chunks retrieved, see `lay_out_spans`; None without spans.
    """

    queries: Ids
    space: Space | None
    results: Lists
    scores_by: ScoresBy | None
    true: NDArray[np.int64] | None
    true_scores: NDArray[np.float64] | None
    true_scores_by: ScoresBy | None
    depth: int | None
    run_depth: int
    ties_kept: bool
    repeats: NDArray[np.int64]
    missing: NDArray[np.int64]
    violations: NDArray[np.int64]
    reasons: tuple[str, ...]
    answered: NDArray[np.bool_]
    only_in_run: int
    judged: Judged | None
    by_score: bool
    no_relevant: NoRelevant
    given: Lists
    given_true: Listed | None
    spans: SpanLayout | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} queries", f"up to {self.results.width} results"]
        if self.true is not None:
            parts.append(f"truth to depth {self.depth}")
        if self.judged is not None:
            parts.append(f"{len(self.judged):,} judged pairs")
        return f"Problem({', '.join(parts)})"

    @property
    def found(self) -> NDArray[np.int64]:
        """Valid distinct results, best first, (n, w); -1 padding."""
        return self.results.matrix.codes

    @property
    def found_lengths(self) -> NDArray[np.int64]:
        """How many valid distinct results each query has, shape (n,)."""
        return self.results.lengths

    @property
    def given_found(self) -> Listed:
        """Results as handed in, as matrices."""
        return self.given.matrix

    @cached_property
    def found_scores(self) -> NDArray[np.float64] | None:
        """Scores of the results (n, w), NaN where none is known; None when there are none."""
        own = self.results.matrix.scores
        if self.place is None or self.true_scores is None:
            return own
        if own is None:
            own = np.full(self.place.shape, np.nan)
        if self.true_scores.shape[1] == 0:
            return own
        known = np.take_along_axis(self.true_scores, np.maximum(self.place, 0), axis=1)
        return np.where(self.place >= 0, known, own)

    @cached_property
    def _joined(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        return None if self.true is None else _join(self.found, self.true)

    @property
    def rank(self) -> NDArray[np.int64] | None:
        """Position of each neighbour among the results, (n, v), -1 where it was not found."""
        return None if self._joined is None else self._joined[0]

    @property
    def place(self) -> NDArray[np.int64] | None:
        """Position of each result among the neighbours, (n, w), -1 where it is none."""
        return None if self._joined is None else self._joined[1]

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
    def hits(self) -> Hits:
        """The results that are judged. Raises MeasureError without judgments."""
        return judged_results(self.results, need(self.judged, "judgments"))

    def with_hits(self, hits: Hits) -> Problem:
        """The same problem with the judged results at other ranks. The lists stay as they are."""
        other = replace(self)
        # Where a cached property keeps its value.
        other.__dict__["hits"] = hits
        return other

    def condensed(self, judged_only: bool = True) -> Hits:
        """The hits, ranked among themselves where `judged_only`: unjudged results do not exist."""
        return self.hits.condensed if judged_only else self.hits

    @cached_property
    def found_grades(self) -> NDArray[np.float64] | None:
        """Grades of the results, (n, w); NaN is unjudged or no grade. None without judgments."""
        if self.judged is None:
            return None
        grades = np.full(self.found.shape, np.nan)
        grades[self.hits.rows, self.hits.ranks - 1] = self.hits.grades
        return grades

    @cached_property
    def true_grades(self) -> NDArray[np.float64] | None:
        """Grades of the neighbours, (n, v); NaN is unjudged or no grade."""
        if self.judged is None or self.true is None:
            return None
        return self.judged.grades_of(self.true)


def align(
    run: Run,
    truth: Run | None = None,
    judgments: Judgments | None = None,
    *,
    no_relevant: NoRelevant = "skip",
) -> Problem:
    """Lay the results of `run` beside the exact neighbours and the judgments of the same queries.

    A query that the run lacks has an empty row and scores 0; a query that only the run has is left
    out and counted. no_relevant: what a relevance measure says of a query without a relevant
    document: "skip", no value, left out and counted; "zero", 0, as trec_eval does. Raises
    MismatchError where run and truth are of different spaces, or where run, truth and judgments
    have no query in common.
    """
    if no_relevant not in ("skip", "zero"):
        raise InputError(f"no_relevant is {no_relevant!r}; expected 'skip' or 'zero'")
    space = _common_space(run, truth)
    queries, run_rows, judged_rows = _common_queries(run, truth, judgments)
    run_codes, true_codes, judged_codes = _common_codes(run, truth, judgments)
    n = len(queries)
    results, repeats, given = _laid_out(run, run_codes, run_rows)
    true, given_true = None, None
    if truth is not None and true_codes is not None:
        kept, _, given_lists = _laid_out(truth, true_codes, np.arange(n))
        true, given_true = kept.matrix, given_lists.matrix
    judged = None
    if judgments is not None and judged_codes is not None:
        topics = judgments.details.get("subtopics")
        judged = Judged.of(judged_rows, judged_codes, judgments.grades, n, topics)
    reasons = (truth.reasons if truth is not None else ()) or ("",) * n
    missing, violations = _shortfall(run.depth, results.lengths + repeats, true, reasons)
    return Problem(
        queries=queries,
        space=space,
        results=results,
        scores_by=_scores_by(run, truth),
        true=None if true is None else true.codes,
        true_scores=None if true is None else true.scores,
        true_scores_by=None if truth is None or truth.flat_scores is None else truth.scores_by,
        depth=None if truth is None else truth.depth,
        run_depth=run.depth,
        ties_kept=truth is not None and "base" in truth.identity,
        repeats=repeats,
        missing=np.where(run_rows >= 0, missing, 0),
        violations=violations,
        reasons=reasons,
        answered=run_rows >= 0,
        only_in_run=len(run) - int(np.count_nonzero(run_rows >= 0)),
        judged=judged,
        by_score=run.ordered_by == "score",
        no_relevant=no_relevant,
        given=given,
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
) -> tuple[Lists, NDArray[np.int64], Lists]:
    """(valid distinct results, repeats (n,), results as given) of these rows; row -1 is empty."""
    given, valid = Lists(codes, run.offsets, run.flat_scores), run.valid
    if len(rows) != len(run) or bool((rows != np.arange(len(rows))).any()):
        given, entries = given.select(rows)
        valid = valid[entries]
    complete = bool(valid.all())
    again = None
    if not run.distinct:
        known = given.codes if complete else np.where(valid, given.codes, -1)
        again = repeated(known, given.offsets)
    if again is None:
        return (given if complete else given.keep(valid)), np.zeros(len(rows), np.int64), given
    repeats = np.bincount(row_numbers(given.offsets)[again], minlength=len(rows))
    return given.keep(valid & ~again), repeats, given


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
    empty = np.array([reason in ("", NOTHING_ALLOWED) for reason in reasons], dtype=bool)
    leaked = (exist == 0) & empty
    return np.maximum(np.minimum(asked, exist) - given, 0), np.where(leaked, given, 0)
