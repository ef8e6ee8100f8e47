"""How sure the labels are by now: agreement between people, and how well the share is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from semrecall.label.session import Session, Task
from semrecall.stats.agreement import kappa, label_tables, table_interval
from semrecall.stats.shares import wilson_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["LEAST", "Known", "kappas", "repeated", "share_relevant"]

#: Below so many labels nothing is said: a number of so few tells what another person said.
LEAST = 10
_RESAMPLES = 500


@dataclass(frozen=True)
class Known:
    """A value, its 95% interval, and how many pairs it rests on; NaN where it cannot be told."""

    value: float
    low: float
    high: float
    pairs: int

    @property
    def width(self) -> float:
        """Of the interval; infinite where there is none."""
        width = self.high - self.low
        return math.inf if math.isnan(width) else width


def share_relevant(session: Session) -> Known:
    """The share of relevant pairs by all labels, each weighted by 1 / the probability of its pair.

    Where people differ, a pair counts by the share of them, or as it was decided. The interval is
    for queries like these (drawn with replacement), and never shorter than that of so many
    independent pairs (Wilson): a few labels that are all alike prove little.
    """
    relevant = session.scale.relevant
    pairs, sides = [], []
    with session.current():
        for pair, votes in enumerate(session.labels):
            said = [session.decisions[pair]] if pair in session.decisions else votes.values()
            grades = [vote.grade for vote in said if vote.grade is not None]
            if grades:
                pairs.append(pair)
                sides.append(sum(grade >= relevant for grade in grades) / len(grades))
    if len(pairs) < LEAST:
        return Known(math.nan, math.nan, math.nan, len(pairs))
    share = np.array(sides)
    chances = session.probabilities
    weight = np.ones(len(pairs)) if chances is None else 1 / np.asarray(chances)[pairs]
    groups, n = _queries(session, pairs)
    tables = np.zeros((n, 2, 2))
    tables[:, 0, 0] = np.bincount(groups, weight * share, n)
    tables[:, 0, 1] = np.bincount(groups, weight * (1 - share), n)
    drawn = table_interval(tables, _first_share, resamples=_RESAMPLES)
    low, high = _wider(drawn, wilson_interval(share >= 0.5))
    return Known(float(_first_share(tables.sum(axis=0))), low, high, len(pairs))


def kappas(session: Session) -> dict[tuple[str, str], Known]:
    """Cohen's kappa (relevant or not) of every two people with enough pairs in common.

    The interval is from resampling queries, and never shorter than what the share of equal labels
    (Wilson) leaves open: two people who never differed yet may differ still.
    """
    found = {}
    with session.current():
        names = sorted(session.people)
    for first, second in combinations(names, 2):
        with session.current():
            one, other = (
                {pair: votes[name].grade for pair, votes in enumerate(session.labels)
                 if name in votes and votes[name].grade is not None}
                for name in (first, second)
            )  # fmt: skip
        pairs = sorted(one.keys() & other.keys())
        if len(pairs) < LEAST:
            continue
        a, b = (
            np.array([_side(session, grades[pair]) for pair in pairs], dtype=np.int64)
            for grades in (one, other)
        )
        groups, n = _queries(session, pairs)
        tables = label_tables(a, b, groups, n, 2)
        found[first, second] = _kappa(tables, a == b)
    return found


def repeated(session: Session, name: str) -> tuple[int, int]:
    """How often a person gave the same grade when asked again: (equal, asked)."""
    with session.current():
        votes = session.person(name).votes
        again = {task.pair: vote.grade for task, vote in votes.items() if task.repeat}
        pairs = [
            (grade, votes[Task(pair)].grade) for pair, grade in again.items() if Task(pair) in votes
        ]
    known = [pair for pair in pairs if None not in pair]
    return sum(first == second for first, second in known), len(known)


def _kappa(tables: Array, equal: NDArray[np.bool_]) -> Known:
    whole = tables.sum(axis=0)
    value, n = float(kappa(whole)), len(equal)
    if math.isnan(value):
        return Known(math.nan, math.nan, math.nan, n)
    by_chance = float(whole.sum(axis=0) @ whole.sum(axis=1)) / whole.sum() ** 2
    left_open = tuple((p - by_chance) / (1 - by_chance) for p in wilson_interval(equal))
    drawn = table_interval(tables, kappa, resamples=_RESAMPLES)
    return Known(value, *_wider(drawn, left_open), n)


def _wider(drawn: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """What holds both intervals; NaN where there is none over queries."""
    if math.isnan(drawn[0]):
        return math.nan, math.nan
    return min(drawn[0], other[0]), max(drawn[1], other[1])


def _first_share(tables: Array) -> Array:
    """The first cell of the first row over that row, (...)."""
    row = tables[..., 0, :]
    total = row.sum(axis=-1)
    return np.asarray(row[..., 0] / np.where(total > 0, total, np.nan))


def _side(session: Session, grade: float | None) -> bool:
    return grade is not None and grade >= session.scale.relevant


def _queries(session: Session, pairs: Sequence[int]) -> tuple[NDArray[np.int64], int]:
    """The number of each pair's query, and how many queries there are."""
    numbers: dict[str, int] = {}
    names = (str(session.questions[pair].query_id) for pair in pairs)
    groups = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    return groups, len(numbers)
