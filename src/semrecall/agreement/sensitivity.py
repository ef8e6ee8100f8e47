"""What the choice of judge does to the measures: each run under the labels of each judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from semrecall.agreement.labels import Labels
from semrecall.agreement.pair import Sampling
from semrecall.data import Judgments, Run
from semrecall.errors import InputError
from semrecall.evaluate import Result, evaluate
from semrecall.measures import Measure, parse_all
from semrecall.stats import difference_interval, paired_differences, resampled_means
from semrecall.stats.agreement import kendall_tau

__all__ = ["UNJUDGED", "Order", "Sensitivity", "Under", "measured"]

#: In place of labels for a measure that needs none.
UNJUDGED = "whatever the labels"


@dataclass(frozen=True)
class Under:
    """A measure of a run under one set of labels.

    mean, low, high, queries: as in a Result. change, change_low, change_high: the mean difference
    to the first judge's labels over the queries that both define, with its interval; NaN for the
    first judge.
    """

    measure: str
    run: str
    labels: str
    mean: float
    low: float
    high: float
    queries: int
    change: float = math.nan
    change_low: float = math.nan
    change_high: float = math.nan


@dataclass(frozen=True)
class Order:
    """Whether two judges put the runs into the same order by a measure.

    tau: Kendall's tau-b of the means. swapped: how many of the `pairs` of runs change places.
    """

    measure: str
    first: str
    second: str
    tau: float
    swapped: int
    pairs: int


@dataclass(frozen=True)
class Sensitivity:
    """The measures under every judge's labels and under combinations of them.

    pairs: judged pairs that all judges graded; the labels are these alone. by_grade: labels are
    grades, else 0 and 1, cut where each judge says relevant. orders: for two runs or more.
    """

    pairs: int
    by_grade: bool
    rows: tuple[Under, ...]
    orders: tuple[Order, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists."""
        return {
            "pairs": self.pairs,
            "by_grade": self.by_grade,
            "rows": [vars(row) for row in self.rows],
            "orders": [vars(order) for order in self.orders],
        }


def measured(
    labels: Labels,
    runs: Any,
    measures: str | Measure | Sequence[str | Measure],
    truth: Run | None,
    by_grade: bool,
    sampling: Sampling,
) -> Sensitivity:
    """The measures of the runs under each judge, all, any, and (three judges or more) most."""
    combined = _combined(labels, by_grade)
    pairs = len(next(iter(combined.values())))
    if pairs == 0:
        raise InputError(
            f"no pair is graded by all {len(labels.names)} judges, so that measures under their "
            "labels would compare different pairs",
            hint="compare fewer judges, or leave the run out",
        )
    wanted = parse_all(measures)
    if by_grade:
        wanted = [_from(measure, labels.rels[0]) for measure in wanted]
    results = {
        name: evaluate(
            runs,
            wanted,
            truth=truth,
            judgments=judgments,
            seed=sampling.seed,
            confidence=sampling.confidence,
        )
        for name, judgments in combined.items()
    }
    first = labels.names[0]
    keys = [(str(m), run) for m in results[first].measures for run in results[first].runs]
    judged = {str(m): "judgments" in m.needs for m in results[first].measures}
    rows = [
        _under(results[name], name, results[first], key, sampling)
        for key in keys
        for name in combined
        if judged[key[0]] or name == first
    ]
    rows = [row if judged[row.measure] else replace(row, labels=UNJUDGED) for row in rows]
    return Sensitivity(pairs, by_grade, tuple(rows), tuple(_orders(labels.names, results)))


def _combined(labels: Labels, by_grade: bool) -> dict[str, Judgments]:
    """Judgments of the pairs that all graded: of each judge, and of several as one.

    The lowest grade is that of "all of them", the highest of "any", the middle one of "most".
    """
    shared = labels.graded.all(axis=0)
    values = labels.grades if by_grade else 1.0 - labels.sides
    values = np.where(shared, values, np.nan)
    ordered = np.sort(values, axis=0)
    found = dict(zip(labels.names, values, strict=True))
    if len(values) == 2:
        found |= {" and ".join(labels.names): ordered[0], " or ".join(labels.names): ordered[1]}
    else:
        # Of an even number of judges the lower middle: more than half reach it.
        middle = ordered[(len(values) - 1) // 2]
        found |= {"all of them": ordered[0], "most of them": middle, "any of them": ordered[-1]}
    return {name: labels.judgments(grades, name) for name, grades in found.items()}


def _from(measure: Measure, rel: float) -> Measure:
    """The measure with relevance from grade `rel`, unless its name says from where."""
    given = dict(measure.params)
    if rel == 1.0 or "rel" in given or measure.definition.defaults.get("rel") != 1.0:
        return measure
    return Measure(measure.name, measure.k, (*measure.params, ("rel", rel)))


def _under(
    result: Result, name: str, first: Result, key: tuple[str, str], sampling: Sampling
) -> Under:
    measure, run = key
    scores = result[measure, run]
    low, high = result.interval(measure, run)
    queries = int(scores.defined.sum())
    plain = Under(measure, run, name, result.mean(measure, run), low, high, queries)
    if result is first:
        return plain
    # All labels are of the same pairs, and so of the same queries in the same order.
    apart = paired_differences(first[key].values, scores.values)
    known = apart[~np.isnan(apart)]
    if len(known) == 0:
        return plain
    drawn = resampled_means(apart, resamples=sampling.resamples, seed=sampling.seed)[0]
    change_low, change_high = difference_interval(apart, drawn, confidence=sampling.confidence)
    change = math.fsum(known) / len(known)
    return replace(plain, change=change, change_low=change_low, change_high=change_high)


def _orders(judges: Sequence[str], results: Mapping[str, Result]) -> list[Order]:
    """How alike two judges order the runs, by measure."""
    one = results[judges[0]]
    if len(one.runs) < 2:
        return []
    found = []
    for measure in [str(m) for m in one.measures if "judgments" in m.needs]:
        for first, second in combinations(judges, 2):
            a, b = (
                np.array([results[judge].mean(measure, run) for run in one.runs])
                for judge in (first, second)
            )
            upper = np.triu_indices(len(a), 1)
            turned = np.sign(a[:, None] - a)[upper] * np.sign(b[:, None] - b)[upper]
            swapped = int(np.count_nonzero(turned < 0))
            found.append(Order(measure, first, second, kendall_tau(a, b), swapped, len(turned)))
    return found
