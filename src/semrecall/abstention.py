"""abstention(): whether a score threshold tells queries without an answer from the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Run, Scores
from semrecall.data.answers import answers_of
from semrecall.data.ids import codes_in, concatenate, ids, unify
from semrecall.data.matching import difference
from semrecall.errors import InputError, MismatchError
from semrecall.stats.roc import auc, auc_interval, threshold_shares
from semrecall.text import number, plural, share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["Abstention", "Threshold", "abstention"]


@dataclass(frozen=True)
class Threshold:
    """What answering only queries that reach a score does.

    value: the score a query must reach. kept: share of the answerable queries that do. rejected:
    share of the unanswerable ones that do not. cost: mean cost of a query, see `abstention`.
    """

    value: float
    kept: float
    rejected: float
    cost: float


@dataclass(frozen=True, eq=False, repr=False)
class Abstention:
    """How well a score of each query tells the answerable from the unanswerable.

    score: what was looked at. higher_is_better: else a query must be at or below the threshold.
    answerable, unanswerable: how many queries. auc: how often an answerable query scores better
    than an unanswerable one; low, high: its interval.
    values, kept, rejected, costs: the curve, (t,) each, the most permissive threshold first.
    best: the threshold of the least cost, the most permissive of equal ones. given: the one asked
    about. left_out: queries nobody says anything about. silent: queries that the run does not have,
    so that it found nothing for them.
    """

    score: str
    higher_is_better: bool
    answerable: int
    unanswerable: int
    auc: float
    low: float
    high: float
    confidence: float
    cost: float
    values: Array
    kept: Array
    rejected: Array
    costs: Array
    best: Threshold
    given: Threshold | None
    left_out: int
    silent: int = 0

    def __repr__(self) -> str:
        return f"Abstention(auc {self.auc:.4f}, best threshold {self.best.value:g})"

    def points(self, most: int | None = None) -> list[Threshold]:
        """The curve, at most so many thresholds of it, the first and the last among them."""
        n = len(self.values)
        rows = np.arange(n)
        if most is not None and most < n:
            # Evenly along the curve: a step in either share counts alike.
            walked = np.cumsum(np.abs(np.diff(self.kept, prepend=self.kept[0])))
            walked += np.cumsum(np.abs(np.diff(self.rejected, prepend=self.rejected[0])))
            rows = np.unique(np.searchsorted(walked, np.linspace(0, walked[-1], most)))
        columns = (self.values, self.kept, self.rejected, self.costs)
        return [Threshold(*(float(column[row]) for column in columns)) for row in rows.tolist()]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists, for JSON."""
        return {
            "score": self.score,
            "higher_is_better": self.higher_is_better,
            "answerable": self.answerable,
            "unanswerable": self.unanswerable,
            "left_out": self.left_out,
            "silent": self.silent,
            "auc": self.auc,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "cost": self.cost,
            "best": asdict(self.best),
            "given": None if self.given is None else asdict(self.given),
            "curve": [asdict(point) for point in self.points()],
        }

    def notes(self) -> list[str]:
        """What there is to say about it, a sentence each."""
        lines = [
            f"{plural(self.answerable, 'answerable query', 'answerable queries')}, "
            f"{self.unanswerable:,} without an answer, by {self.score}",
            f"AUC {number(self.auc)}, {self.confidence * 100:.4g}% interval {number(self.low)} to "
            f"{number(self.high)}: how often an answerable query scores better than one without "
            "an answer",
            f"best threshold where answering one without an answer costs {self.cost:g} times "
            f"refusing one with: {self._said(self.best)}",
        ]
        if self.given is not None:
            lines.append(f"the threshold asked about: {self._said(self.given)}")
        if self.silent:
            lines.append(
                f"{plural(self.silent, 'query', 'queries')} not in the run: nothing was found, so "
                "rejected at every threshold"
            )
        if self.left_out:
            lines.append(
                f"{plural(self.left_out, 'query', 'queries')} of the run left out: nobody says "
                "whether there is an answer"
            )
        lines.append(
            "a threshold chosen here is fitted to these queries: choose on dev, confirm on test"
        )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.notes())

    def _said(self, point: Threshold) -> str:
        side = "answer from" if self.higher_is_better else "answer up to"
        if math.isinf(point.value):
            return "answer nothing"
        return (
            f"{side} {point.value:.6g}, keeps {share(point.kept)} of the answerable, rejects "
            f"{share(point.rejected)} of the rest"
        )


def abstention(
    run: Run,
    answerable: Any = None,
    *,
    unanswerable: Any = None,
    score: str | Mapping[Any, float] | Scores = "top",
    cost: float = 1.0,
    threshold: float | None = None,
    confidence: float = 0.95,
    lower_is_better: bool = False,
    only: Any = None,
) -> Abstention:
    """The abstention curve: what rejecting queries by a threshold on a score keeps and rejects.

    run: results with scores, one row a query. A query without results, or not in the run at all, is
        rejected at every threshold.
    answerable: {query id: bool}, a frame with query_id and answerable, or a column (n,) of
        booleans in the order of the run's queries.
    unanswerable: instead of it, the ids of the queries known to have no answer; all others have.
    score: "top", the best score; "gap", by how much it beats the second (a single
        result beats nothing); or a number for each query, higher for the more answerable.
    cost: what answering a query without an answer costs, where refusing one with an answer costs
        1. `best` has the least mean cost over the queries given.
    threshold: one to report on, say from a development split.
    lower_is_better: scores of the run, without a space, are distances.
    only: ids of the queries to look at; None takes all of them.

    Raises InputError where the run has no scores, or a group has no query.
    """
    if not cost > 0 or math.isinf(cost):
        raise InputError(f"cost is {cost}; expected a number above 0")
    if threshold is not None and math.isnan(threshold):
        raise InputError("threshold is not a number")
    run, known, silent = _all_asked(run, answerable, unanswerable, only)
    values, label, higher = _scores(run, score, lower_is_better)
    use = ~np.isnan(known)
    good, bad = (values[use & (known == side)] for side in (1.0, 0.0))
    for group, what in ((good, "with"), (bad, "without")):
        if len(group) == 0:
            raise InputError(
                f"no query of the run is known to be {what} an answer; the curve needs both"
            )
    # Signs are turned where lower is better, and "no result" is worse than any score.
    turn = 1.0 if higher else -1.0
    good, bad = (np.where(np.isnan(v), -np.inf, turn * v) for v in (good, bad))
    limits, kept, rejected = _curve(good, bad)
    costs = _costs(kept, rejected, len(good), len(bad), cost)
    area = auc(good, bad)
    low, high = auc_interval(area, len(good), len(bad), confidence=confidence)
    best = int(np.argmin(np.round(costs, 12)))

    def point(limit: float, keeps: float, rejects: float) -> Threshold:
        costs_here = _costs(np.array([keeps]), np.array([rejects]), len(good), len(bad), cost)
        return Threshold(turn * limit, keeps, rejects, float(costs_here[0]))

    given = None
    if threshold is not None:
        limit = turn * threshold
        refused = ~(np.isfinite(bad) & (bad >= limit))
        answered = np.isfinite(good) & (good >= limit)
        given = point(limit, float(np.mean(answered)), float(np.mean(refused)))
    return Abstention(
        score=label,
        higher_is_better=higher,
        answerable=len(good),
        unanswerable=len(bad),
        auc=area,
        low=low,
        high=high,
        confidence=confidence,
        cost=cost,
        values=turn * limits,
        kept=kept,
        rejected=rejected,
        costs=costs,
        best=point(float(limits[best]), float(kept[best]), float(rejected[best])),
        given=given,
        left_out=int(np.count_nonzero(~use)),
        silent=silent,
    )


def _curve(good: Array, bad: Array) -> tuple[Array, Array, Array]:
    """The curve of `threshold_shares`; minus infinity is rejected at every threshold."""
    usable = [values[np.isfinite(values)] for values in (good, bad)]
    if not any(map(len, usable)):
        raise InputError("no query has a score, so no threshold can be set")
    limits, kept, rejected = threshold_shares(*usable)
    shares = (len(part) / len(whole) for part, whole in zip(usable, (good, bad), strict=True))
    of_good, of_bad = shares
    return limits, np.nan_to_num(kept) * of_good, 1 - np.nan_to_num(1 - rejected) * of_bad


def _costs(kept: Array, rejected: Array, good: int, bad: int, cost: float) -> Array:
    """Mean cost of a query: refused ones with an answer, answered ones without."""
    return np.asarray(((1 - kept) * good + cost * (1 - rejected) * bad) / (good + bad))


def _all_asked(run: Run, answerable: Any, unanswerable: Any, only: Any) -> tuple[Run, Array, int]:
    """The run with a row for every query asked about, who has an answer, how many are added.

    Answers (n,) are 1 with one, 0 without, NaN where nobody says.
    """
    if (answerable is None) == (unanswerable is None):
        raise InputError("give either answerable or unanswerable, to say which queries have one")
    if unanswerable is not None:
        named = ids(unanswerable, what="unanswerable ids")
        values, others = np.zeros(len(named)), 1.0
    elif isinstance(answerable, Mapping) or hasattr(answerable, "columns"):
        (named, values), others = answers_of(answerable), math.nan
    else:
        column = list(answerable)
        if len(column) != len(run):
            raise InputError(
                f"answerable has {len(column):,} values for {len(run):,} queries of the run"
            )
        named, values = answers_of({"query_id": run.queries, "answerable": column})
        others = math.nan
    _require_common(run.queries, named, unanswerable is not None)
    if only is not None:
        part = ids(only, what="query ids")
        run, use = run.select(_among(run.queries, part)), _among(named, part)
        named, values = named[use], values[use]
    absent = named[np.flatnonzero(~_among(named, run.queries))]
    wider = run.replace(
        queries=concatenate([run.queries, absent]),
        offsets=np.append(run.offsets, np.full(len(absent), run.offsets[-1])),
    )
    wanted, there = unify(wider.queries, named)
    return wider, np.append(values, others)[codes_in(wanted, there)], len(absent)


def _among(column: Ids, known: Ids) -> NDArray[np.bool_]:
    ours, theirs = unify(column, known)
    return np.isin(ours, theirs)


def _require_common(queries: Ids, named: Ids, without: bool) -> None:
    """Queries of which the run has none are those of another set, or written otherwise."""
    if len(queries) == 0 or len(named) == 0 or _among(named, queries).any():
        return
    reason = difference(named, queries)
    what = "known to have no answer" if without else "said to have an answer or none"
    raise MismatchError(
        f"none of the {plural(len(named), 'query', 'queries')} {what} is in the run: they are "
        f"like {named[0]!r}, those of the run like {queries[0]!r}",
        hint=str(reason)
        if reason
        else "where the run found nothing for any of them, say it of every query: a column "
        "`answerable` (--columns)",
    )


def _scores(
    run: Run, score: str | Mapping[Any, float] | Scores, lower_is_better: bool
) -> tuple[Array, str, bool]:
    """The score of each query (n,), NaN where it has none; what it is; whether higher is better."""
    if isinstance(score, Scores):
        return _matched(run, score.queries, score.values), score.measure, True
    if isinstance(score, Mapping):
        given = np.array([float(v) for v in score.values()])
        return _matched(run, ids(list(score), what="query ids"), given), "the scores given", True
    if score not in ("top", "gap"):
        raise InputError(f"score is {score!r}; expected top, gap, or a number for each query")
    if run.flat_scores is None:
        raise InputError("the run has no scores, so no threshold can be set on them")
    higher = not lower_is_better if run.space is None else run.space.higher_is_nearer
    usable = np.where(run.valid, run.flat_scores if higher else -run.flat_scores, -np.inf)
    padded = np.full((len(run), 2), -np.inf)
    for row, (start, stop) in enumerate(zip(run.offsets[:-1], run.offsets[1:], strict=True)):
        best = np.sort(usable[start:stop])[::-1][:2]
        padded[row, : len(best)] = best
    top, second = padded.T
    known = np.isfinite(top)
    if score == "gap":
        gap = np.subtract(top, second, out=np.full(len(run), np.nan), where=np.isfinite(second))
        return gap, "the gap between the first and the second score", True
    signed = top if higher else -top
    return np.where(known, signed, np.nan), "the top score", higher


def _matched(run: Run, queries: Ids, values: Array) -> Array:
    wanted, known = unify(run.queries, queries)
    return np.asarray(np.append(values, np.nan)[codes_in(wanted, known)])
