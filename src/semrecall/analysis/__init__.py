"""analyse(): how many of the exact neighbours matter, and whether their scores tell them apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.analysis.result import Analysis, Found
from semrecall.analysis.rows import (
    Band,
    Barren,
    Correlation,
    Distribution,
    Estimate,
    Group,
    Neighbour,
    Share,
)
from semrecall.data import Ids, Judgments, Run
from semrecall.data.ids import unify
from semrecall.data.matching import difference
from semrecall.data.slices import SN, column_slices
from semrecall.errors import InputError, MismatchError
from semrecall.measures import Measure, Problem, align
from semrecall.measures.problem import need
from semrecall.stats.intervals import check_confidence
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.data.slices import Slice

__all__ = [
    "Analysis",
    "Band",
    "Barren",
    "Correlation",
    "Distribution",
    "Estimate",
    "Group",
    "Neighbour",
    "Share",
    "analyse",
]

Texts = Mapping[Any, str]

#: So many nearest neighbours are shown of a query without a relevant one.
_TOP = 3


def analyse(
    truth: Run,
    judgments: Judgments,
    *,
    rel: float = 1.0,
    k: int | None = None,
    run: Run | None = None,
    exhaustive: bool = False,
    query_texts: Texts | None = None,
    document_texts: Texts | None = None,
    columns: Any = None,
    by: str | Sequence[str] = (),
    seed: int = 0,
    confidence: float = 0.95,
) -> Analysis:
    """What the exact neighbours of each query are worth: the analysis of the paper.

    How many of them are semantic neighbours (grade of at least `rel`), how much nearer these are
    than the others, by group of queries, and which queries have none.

    truth: the run of exact search. judgments: grades of (query, document) pairs.
    k: so many neighbours of each query; the depth of the truth when None.
    run: results of an index; then groups and ranks also tell what it found.
    exhaustive: a neighbour that the judgments do not name is known not to be relevant, for a query
        that they name at all. Else it is unjudged, and is neither relevant nor not.
    query_texts, document_texts: {id: text}, shown with the queries without a relevant neighbour.
    columns: a frame or mapping with query_id and further columns of the queries.
    by: names of columns to slice by; groups by number of semantic neighbours are always made.
    seed, confidence: of the intervals.

    A query without neighbours, without a judged one, or with a truth that cannot be used is left
    out and counted. Raises MismatchError where truth and judgments do not belong together, and
    InputError where the truth is less than k deep.
    """
    check_confidence(confidence)
    if not math.isfinite(rel):
        raise InputError(f"rel is {rel}; expected the lowest grade that is relevant")
    k = _depth(truth, k)
    problem = align(truth if run is None else run, truth, judgments)
    graded = _graded(problem, truth, judgments, k, exhaustive)
    _require_judged(graded, truth, judgments)
    left_out = _left_out(problem, graded)
    use = np.array([not reason for reason in left_out], dtype=bool)
    queries = _at(problem.queries, use)
    names = [n for n in ([by] if isinstance(by, str) else by) if n != SN]
    space = problem.space if problem.true_scores is not None else None
    texts = _by_text(query_texts), _by_text(document_texts)
    nearest = _nearest(truth, use)
    return Analysis(
        queries=queries,
        k=k,
        rel=rel,
        space=space,
        grades=graded.grades[use],
        exists=graded.exists[use],
        scores=None if space is None else need(problem.true_scores, "scores")[use, :k],
        known_relevant=need(problem.judged, "judgments").count(rel)[use],
        found=None if run is None else _found(problem, k, rel, use),
        slices=_slices(columns, names, queries),
        texts=texts,
        nearest=nearest,
        left_out=_counted(left_out),
        ungraded=int(np.count_nonzero(graded.ungraded[use])),
        notes=(
            *_notes(problem, truth, judgments, k, use),
            *_text_notes("queries", texts[0], queries),
            *_text_notes("documents", texts[1], [d for row in nearest for d in row]),
        ),
        seed=seed,
        confidence=confidence,
    )


def _depth(truth: Run, k: int | None) -> int:
    depth = truth.depth
    if k is None:
        k = depth
        if k < 1:
            raise InputError("the truth has no neighbours of any query, so there is no k")
    if k < 1:
        raise InputError(f"k is {k}; expected at least 1")
    if k > depth:
        raise InputError(
            f"k is {k:,}, but the truth is known to depth {depth:,}",
            hint="find more exact neighbours (semrecall truth -k), or take a smaller k",
        )
    return k


# -- grades ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Graded:
    """The first k neighbours (n, w): which exist, their grades, which were judged to no grade."""

    exists: NDArray[np.bool_]
    grades: NDArray[np.float64]
    ungraded: NDArray[np.bool_]


def _graded(
    problem: Problem, truth: Run, judgments: Judgments, k: int, exhaustive: bool
) -> _Graded:
    exists = need(problem.true, "the truth")[:, :k] >= 0
    grades = need(problem.true_grades, "judgments")[:, :k].copy()
    ungraded = np.zeros(exists.shape, dtype=bool)
    gaps = np.isnan(judgments.grades)
    if gaps.any():
        # A pair in the judgments without a grade was looked at: it is not among the unnamed.
        named = align(truth, truth, judgments.replace(grades=gaps.astype(np.float64)))
        ungraded = need(named.true_grades, "judgments")[:, :k] == 1
    if exhaustive:
        asked, known = unify(problem.queries, judgments.queries)
        named_at_all = np.isin(asked, known)[:, None]
        # Below any threshold that a grade can reach.
        grades[exists & named_at_all & np.isnan(grades) & ~ungraded] = -np.inf
    return _Graded(exists, grades, ungraded)


def _require_judged(graded: _Graded, truth: Run, judgments: Judgments) -> None:
    """Raise MismatchError where no neighbour has a judgment, though both have some."""
    if np.isfinite(graded.grades).any() or graded.ungraded.any() or not graded.exists.any():
        return
    if len(judgments) == 0:
        raise InputError("the judgments are empty; expected grades of exact neighbours")
    neighbours = truth.documents[~truth.documents.missing]
    ours, theirs = unify(neighbours, judgments.documents)
    if np.isin(ours, theirs).any():
        return
    found = difference(neighbours, judgments.documents)
    raise MismatchError(
        f"no neighbour in the truth has a judgment: the truth has documents like "
        f"{neighbours[0]!r}, the judgments like {judgments.documents[0]!r}",
        hint=str(found) if found else "are truth and judgments of the same corpus?",
    )


def _left_out(problem: Problem, graded: _Graded) -> list[str]:
    """Why each query is left out; "" where it is not."""
    reasons = np.array(problem.reasons, dtype=object)
    nothing = (reasons == "") & ~graded.exists.any(axis=1)
    reasons[nothing] = "no exact neighbour"
    reasons[(reasons == "") & np.isnan(graded.grades).all(axis=1)] = "no judged neighbour"
    return [str(reason) for reason in reasons]


def _counted(reasons: list[str]) -> dict[str, int]:
    found = [reason for reason in reasons if reason]
    return {r: found.count(r) for r in sorted(set(found), key=lambda r: (-found.count(r), r))}


# -- beside the grades ----------------------------------------------------------------------------


def _found(problem: Problem, k: int, rel: float, use: NDArray[np.bool_]) -> Found:
    rank = need(problem.rank, "the truth")[use, :k]
    recall = Measure("recall", k).values(problem).values
    semantic = Measure("srecall", k, (("rel", rel),)).values(problem).values
    return Found((rank >= 0) & (rank < k), recall[use], semantic[use])


def _slices(columns: Any, names: Sequence[str], queries: Ids) -> dict[str, Slice]:
    if len(queries) == 0:
        return {}
    return {part.column: part for part in column_slices(columns, names, queries)}


def _at(column: Ids, keep: NDArray[np.bool_]) -> Ids:
    chosen = column[np.flatnonzero(keep)]
    assert isinstance(chosen, Ids)
    return chosen


def _by_text(texts: Texts | None) -> dict[str, str]:
    """Texts by id as text, because "7" and 7 are the same id."""
    return {} if texts is None else {str(key): str(value) for key, value in texts.items()}


def _nearest(truth: Run, use: NDArray[np.bool_]) -> tuple[tuple[str | int, ...], ...]:
    """The ids of the first few neighbours of the queries in use."""
    rows = []
    for row in np.flatnonzero(use).tolist():
        span = slice(int(truth.offsets[row]), int(truth.offsets[row + 1]))
        valid = truth.valid[span]
        distinct: dict[str | int, None] = {}
        for document, counts in zip(truth.documents[span], valid.tolist(), strict=True):
            if counts:
                distinct[document] = None
            if len(distinct) == _TOP:
                break
        rows.append(tuple(distinct))
    return tuple(rows)


def _notes(
    problem: Problem, truth: Run, judgments: Judgments, k: int, use: NDArray[np.bool_]
) -> Iterator[str]:
    """What a reader should know of the input, one sentence each."""
    known, judged = unify(truth.queries, judgments.queries)
    extra = len(np.setdiff1d(judged, known))
    if extra:
        yield f"{plural(extra, 'judged query', 'judged queries')} not in the truth, left out"
    unscored = int(np.count_nonzero(~truth.valid & ~truth.documents.missing))
    if unscored:
        yield f"{plural(unscored, 'neighbour')} of the truth without a score (NaN), left out"
    if problem.true_scores is None:
        yield "the truth has no scores: only counts and ranks are analysed"
    elif problem.space is None:
        yield (
            "the truth does not say which scores are nearer, so only counts and ranks are "
            "analysed: give its space (--space, Run.replace(space=...))"
        )
    elif problem.true_scores_by == "index":
        yield "scores of the truth as stored, not recomputed"
    tied = _tied(problem, k, use)
    if tied:
        yield (
            f"in {plural(tied, 'query', 'queries')} the neighbour at rank {k} is tied with the "
            f"next; the first {k} as stored are taken"
        )
    if problem.only_in_run:
        count = plural(problem.only_in_run, "query", "queries")
        yield f"{count} of the run not in the truth, left out"
    absent = int(np.count_nonzero(use & ~problem.answered))
    if absent:
        yield f"{plural(absent, 'query', 'queries')} not answered by the run: nothing was found"


def _text_notes(what: str, texts: Mapping[str, str], wanted: Iterable[Any]) -> Iterator[str]:
    """That texts are given and none of them is asked for."""
    asked = [str(one) for one in wanted]
    if texts and asked and not any(one in texts for one in asked):
        yield (
            f"none of the {len(texts):,} texts of {what} has an id that is asked for: texts have "
            f"ids like {next(iter(texts))!r}, the truth {asked[0]!r}"
        )


def _tied(problem: Problem, k: int, use: NDArray[np.bool_]) -> int:
    scores = problem.true_scores
    if scores is None or scores.shape[1] <= k:
        return 0
    return int(np.count_nonzero(use & (scores[:, k - 1] == scores[:, k])))
