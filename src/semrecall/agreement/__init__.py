"""agree(): how far several judges of the same pairs agree, and what it does to the measures."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from semrecall.agreement.labels import Labels, grades_needed, side_by_side
from semrecall.agreement.pair import ONE_CLASS, Estimate, Pair, Sampling, common_scale, compared
from semrecall.agreement.result import Agreement, JudgeCounts, QueryAgreement
from semrecall.agreement.rows import ByJudge, Repeats, SelfAgreement, by_judge, self_agreement
from semrecall.agreement.sensitivity import Order, Sensitivity, Under, measured
from semrecall.data import Judgments, Run
from semrecall.errors import InputError, SemrecallWarning
from semrecall.measures import Measure
from semrecall.stats.agreement import Level, alpha, coincidences
from semrecall.stats.intervals import RESAMPLES, check_confidence
from semrecall.text import shortened

__all__ = [
    "Agreement",
    "Estimate",
    "JudgeCounts",
    "Order",
    "Pair",
    "QueryAgreement",
    "SelfAgreement",
    "Sensitivity",
    "Under",
    "agree",
]


def agree(
    judgments: Any,
    *,
    rel: float | Mapping[str, float] = 1.0,
    truth: Run | None = None,
    k: int | None = None,
    run: Any = None,
    measures: str | Measure | Sequence[str | Measure] = (),
    below: float = 0.7,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> Agreement:
    """How far judges agree on the pairs of query and document that they have in common.

    judgments: {name: Judgments}, a list of Judgments, or a frame with a column `judge` beside
        query_id, doc_id and grade; there, repeats of one judge tell how it agrees with itself.
    rel: from which grade a label means relevant, or {name: grade} where judges differ (1 for
        those not named). Kappa, specific and conditional agreement are of relevant or not.
    truth, k: only pairs among the first k exact neighbours count for agreement; k is the depth
        of the truth when None.
    run: a Run, {name: Run} or a list; then the `measures` are computed under the labels of each
        judge, of all, and of any. Default: recall and srecall with a truth, else nDCG@10.
    below: queries of less agreement are listed.
    resamples, seed, confidence: of the intervals, which come from resampling queries.

    Pairs without a grade agree with nothing; they are counted by status. Raises MismatchError
    where judges have no pair in common, InputError for fewer than two judges.
    """
    check_confidence(confidence)
    if not 0 <= below <= 1:
        raise InputError(f"below is {below}; expected a share between 0 and 1")
    if run is None and measures:
        raise InputError(
            "measures are given without a run; expected results to measure",
            hint="give a run: run= in Python, --run on the command line",
        )
    judged, repeats = _named(judgments)
    labels = side_by_side(judged, grades_needed(list(judged), rel), truth, k)
    sampling = Sampling(resamples, seed, confidence)
    pairs = [compared(labels, a, b, sampling) for a, b in combinations(range(len(judged)), 2)]
    everyone = tuple(range(len(judged)))
    grades, no_grades = common_scale(labels, everyone, labels.inside)
    alphas, units = _alphas(labels, grades, sampling)
    by_query = _by_query(labels)
    inside = None if truth is None else (k or truth.k or truth.depth)
    sensitivity = None
    if run is not None:
        wanted = measures or _usual(truth, inside)
        sensitivity = measured(labels, run, wanted, truth, not no_grades, sampling)
    return Agreement(
        judges=tuple(_counts(labels, judge) for judge in everyone),
        pairs=tuple(pairs),
        alphas=alphas,
        units=units,
        queries=len(by_query),
        by_query=tuple(by_query),
        below=below,
        by_self=tuple(_by_self(labels, repeats, sampling)),
        measures=sensitivity,
        inside=inside,
        sampling=sampling,
        notes=tuple(_notes(labels, pairs)),
        labels=labels,
    )


def _named(judgments: Any) -> tuple[dict[str, Judgments], dict[str, Repeats]]:
    """Judgments by name, and what judges graded again where the rows tell."""
    if isinstance(judgments, Judgments):
        raise InputError(
            "judgments of one judge; expected two judges or more",
            hint="agree({name: judgments, other: judgments})",
        )
    if isinstance(judgments, Mapping) and any(
        isinstance(value, Judgments) for value in judgments.values()
    ):
        named = {str(name): one for name, one in judgments.items()}
    elif isinstance(judgments, list | tuple):
        named = _by_own_names(judgments)
    elif isinstance(judgments, Mapping) and not judgments:
        named = {}
    else:
        rows = judgments if isinstance(judgments, ByJudge) else by_judge(judgments)
        return rows.judgments, rows.repeats
    for name, one in named.items():
        if not isinstance(one, Judgments):
            raise InputError(
                f"{name!r} is a {type(one).__name__}; expected Judgments",
                hint="make them with Judgments.from_frame, Judgments.from_dict or semrecall.read",
            )
    if len(named) < 2:
        raise InputError(f"{len(named)} judges are given; expected two or more")
    return named, {}


def _by_own_names(judgments: Iterable[Any]) -> dict[str, Judgments]:
    """Judgments by their names; those without one are "judge 1", a second of one name "x#2"."""
    named: dict[str, Judgments] = {}
    for position, one in enumerate(judgments, start=1):
        name = getattr(one, "name", "") or f"judge {position}"
        unique, again = name, 2
        while unique in named:
            unique, again = f"{name}#{again}", again + 1
        named[unique] = one
    return named


def _usual(truth: Run | None, k: int | None) -> list[str]:
    return ["nDCG@10"] if truth is None else [f"recall@{k}", f"srecall@{k}"]


def _counts(labels: Labels, judge: int) -> JudgeCounts:
    graded = labels.graded[judge]
    relevant = labels.sides[judge][graded & labels.inside] == 0
    return JudgeCounts(
        name=labels.names[judge],
        rel=labels.rels[judge],
        pairs=int(labels.listed[judge].sum()),
        graded=int(graded.sum()),
        inside=int((graded & labels.inside).sum()),
        relevant=float(relevant.mean()) if len(relevant) else float("nan"),
        no_grade=labels.failures[judge],
    )


def _alphas(
    labels: Labels, grades: np.ndarray[Any, np.dtype[np.float64]], sampling: Sampling
) -> tuple[dict[str, Estimate], int]:
    """Krippendorff's alpha by level over pairs with two labels or more, and how many they are."""
    several = labels.inside & (labels.graded.sum(axis=0) > 1)
    rows, groups = np.unique(labels.queries[several], return_inverse=True)

    def tables(codes: np.ndarray[Any, np.dtype[np.int64]], classes: int) -> Any:
        return coincidences(codes, groups, len(rows), classes)

    of_sides = tables(labels.sides[:, several], 2)
    found = {"nominal": sampling.estimate(of_sides, partial(alpha, grades=[0, 1]), ONE_CLASS)}
    if len(grades):
        given = labels.grades[:, several]
        codes = np.where(np.isnan(given), -1, np.searchsorted(grades, given))
        of_grades = tables(codes, len(grades))
        levels: tuple[Level, ...] = ("ordinal", "interval")
        for level in levels:
            found[level] = sampling.estimate(
                of_grades, partial(alpha, grades=grades, level=level), ONE_CLASS
            )
    return found, int(several.sum())


def _by_query(labels: Labels) -> list[QueryAgreement]:
    """Agreement of each query with a pair of two labels or more, in order of appearance."""
    relevant = ((labels.sides == 0) & labels.inside).sum(axis=0)
    other = ((labels.sides == 1) & labels.inside).sum(axis=0)
    given = relevant + other
    n = len(labels.query_ids)
    equal = relevant * (relevant - 1) + other * (other - 1)
    sums = [
        np.bincount(labels.queries, weights=column, minlength=n)
        for column in (equal, given * (given - 1), given > 1)
    ]
    return [
        QueryAgreement(labels.query_ids[at], int(sums[2][at]), float(sums[0][at] / sums[1][at]))
        for at in np.flatnonzero(sums[2]).tolist()
    ]


def _by_self(
    labels: Labels, repeats: Mapping[str, Repeats], sampling: Sampling
) -> Iterable[SelfAgreement]:
    for name, rel in zip(labels.names, labels.rels, strict=True):
        found = self_agreement(name, repeats[name], rel, sampling) if name in repeats else None
        if found is not None:
            yield found


def _notes(labels: Labels, pairs: Sequence[Pair]) -> list[str]:
    """What a reader should know before using the numbers; the same labels twice is a warning."""
    notes = []
    for a, b in combinations(range(len(labels.names)), 2):
        alike = np.array_equal(labels.grades[a], labels.grades[b], equal_nan=True)
        if alike and len(labels.documents) > 1:
            remark = (
                f"{_both(labels.names[a], labels.names[b])} have the same grades for the same "
                "pairs: is one file given twice?"
            )
            warnings.warn(remark, SemrecallWarning, stacklevel=3)
            notes.append(remark)
    for pair in pairs:
        both = _both(pair.first, pair.second)
        if pair.pairs == 0:
            notes.append(f"{both} graded no pair in common")
        elif pair.queries == 1:
            notes.append(f"{both} have one query in common: no interval without a second one")
        elif pair["agreement"].value == 1.0:
            notes.append(
                f"{both} never differ: intervals without width are no certainty, only the lack of "
                "an example"
            )
    return notes


def _both(first: str, second: str) -> str:
    return f"{shortened(first)} and {shortened(second)}"
