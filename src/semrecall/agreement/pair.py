"""Two judges: what they agree on, each number with its interval from resampling queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.agreement.labels import Labels
from semrecall.stats.agreement import (
    conditional_agreement,
    distances,
    kappa,
    kappa_error,
    label_tables,
    mcnemar_p,
    observed_agreement,
    specific_agreement,
    table_interval,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["MANY_GRADES", "ONE_CLASS", "Estimate", "Pair", "Sampling", "common_scale", "compared"]

#: With more different grades than this, grades are scores, and a table of them says nothing.
MANY_GRADES = 20
ONE_CLASS = "all labels are one class"
_NEVER = "nobody says so"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; NaN with the reason where it is undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan
    reason: str = ""


@dataclass(frozen=True)
class Sampling:
    """How intervals are made: resamples of queries, the seed, the confidence."""

    resamples: int
    seed: int
    confidence: float

    def estimate(
        self, tables: Array, statistic: Callable[[Array], Array], reason: str = ONE_CLASS
    ) -> Estimate:
        """A statistic of the sum of tables (n, c, c), one a query; `reason` if it is undefined."""
        value = float(statistic(tables.sum(axis=0)))
        if math.isnan(value):
            return Estimate(value, reason=reason)
        low, high = table_interval(
            tables,
            statistic,
            resamples=self.resamples,
            seed=self.seed,
            confidence=self.confidence,
        )
        return Estimate(value, low, high)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two judges over the pairs that both graded.

    pairs, queries: how many both graded. only_first, only_second: graded by one, and not by the
    other. table: (2, 2) counts, rows the first judge, columns the second, relevant before not
    relevant. values: what is estimated, by name:

    - agreement, kappa: of relevant and not relevant.
    - positive, negative: specific agreement on relevant, on not relevant.
    - second_if_first, second_not_if_first_not: conditional on the first judge's label: how often
      the second also says relevant, not relevant; first_if_second, first_not_if_second_not: on
      the second's.
    - relevant_first, relevant_second, lenience: share called relevant, and first less second.
    - same_grade, kappa_grades, kappa_linear, kappa_quadratic: of the grades themselves, where the
      two have a scale in common.

    grades, grade_table: (c,) and (c, c) counts by grade; empty where grades are not compared, and
    `no_grades` says why. p: exact McNemar test of "equally lenient". kappa_pairs: the interval of
    kappa if pairs were independent, which is too short.
    """

    first: str
    second: str
    rels: tuple[float, float]
    pairs: int
    queries: int
    only_first: int
    only_second: int
    table: NDArray[np.int64]
    values: Mapping[str, Estimate]
    grades: Array
    grade_table: NDArray[np.int64]
    no_grades: str
    p: float
    kappa_pairs: tuple[float, float]

    def __getitem__(self, name: str) -> Estimate:
        return self.values[name]

    @property
    def lenient(self) -> str | None:
        """The judge who says relevant more often; None where neither does."""
        gap = self.table[0, 1] - self.table[1, 0]
        return None if gap == 0 else self.first if gap > 0 else self.second

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists."""
        return {
            "first": self.first,
            "second": self.second,
            "rel_first": self.rels[0],
            "rel_second": self.rels[1],
            "pairs": self.pairs,
            "queries": self.queries,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "table": self.table.tolist(),
            "values": {name: vars(found) for name, found in self.values.items()},
            "grades": self.grades.tolist(),
            "grade_table": self.grade_table.tolist(),
            "no_grades": self.no_grades,
            "lenient": self.lenient,
            "mcnemar_p": self.p,
            "kappa_if_pairs_were_independent": list(self.kappa_pairs),
        }


def compared(labels: Labels, a: int, b: int, sampling: Sampling) -> Pair:
    """The judges `a` and `b` of the labels."""
    both = labels.inside & labels.graded[a] & labels.graded[b]
    rows, groups = np.unique(labels.queries[both], return_inverse=True)
    first, second = labels.sides[a, both], labels.sides[b, both]
    tables = label_tables(first, second, groups, len(rows), 2)
    table = tables.sum(axis=0)
    values = {
        name: sampling.estimate(tables, statistic, reason)
        for name, (statistic, reason) in _OF_SIDES.items()
    }
    grades, no_grades = common_scale(labels, (a, b), both)
    by_grade = np.zeros((0, len(grades), len(grades)))
    if len(grades):
        one, other = (np.searchsorted(grades, labels.grades[judge, both]) for judge in (a, b))
        by_grade = label_tables(one, other, groups, len(rows), len(grades))
        for name, statistic in _of_grades(grades).items():
            values[name] = sampling.estimate(by_grade, statistic)
    inside, graded = labels.inside, labels.graded
    return Pair(
        first=labels.names[a],
        second=labels.names[b],
        rels=(labels.rels[a], labels.rels[b]),
        pairs=int(both.sum()),
        queries=len(rows),
        only_first=int((inside & graded[a] & ~graded[b]).sum()),
        only_second=int((inside & graded[b] & ~graded[a]).sum()),
        table=table.astype(np.int64),
        values=values,
        grades=grades,
        grade_table=by_grade.sum(axis=0).astype(np.int64),
        no_grades=no_grades,
        p=mcnemar_p(int(table[0, 1]), int(table[1, 0])) if both.any() else math.nan,
        kappa_pairs=_as_if_independent(table, sampling.confidence),
    )


def _share_of(judge: int, tables: Array) -> Array:
    """Which share of the labels of a judge is relevant."""
    total = tables.sum(axis=(-2, -1))
    said = tables[..., 0, :].sum(axis=-1) if judge == 0 else tables[..., :, 0].sum(axis=-1)
    return np.asarray(said / np.where(total > 0, total, np.nan))


def _lenience(tables: Array) -> Array:
    return np.asarray(_share_of(0, tables) - _share_of(1, tables))


_NO_PAIR = "no pair that both graded"

#: Name of an estimate -> the statistic of a table, and why it may be undefined.
_OF_SIDES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "agreement": (observed_agreement, _NO_PAIR),
    "kappa": (kappa, ONE_CLASS),
    "positive": (partial(specific_agreement, label=0), _NEVER),
    "negative": (partial(specific_agreement, label=1), _NEVER),
    "second_if_first": (partial(conditional_agreement, label=0, given=0), _NEVER),
    "second_not_if_first_not": (partial(conditional_agreement, label=1, given=0), _NEVER),
    "first_if_second": (partial(conditional_agreement, label=0, given=1), _NEVER),
    "first_not_if_second_not": (partial(conditional_agreement, label=1, given=1), _NEVER),
    "relevant_first": (partial(_share_of, 0), _NO_PAIR),
    "relevant_second": (partial(_share_of, 1), _NO_PAIR),
    "lenience": (_lenience, _NO_PAIR),
}


def _of_grades(grades: Array) -> dict[str, Callable[[Array], Array]]:
    return {
        "same_grade": observed_agreement,
        "kappa_grades": kappa,
        "kappa_linear": partial(kappa, apart=distances(grades, "linear")),
        "kappa_quadratic": partial(kappa, apart=distances(grades, "quadratic")),
    }


def common_scale(
    labels: Labels, judges: tuple[int, ...], where: NDArray[np.bool_]
) -> tuple[Array, str]:
    """The grades (c,) that judges gave, rising; none, and why, where they are not comparable."""
    nothing = np.empty(0)
    own = [np.unique(labels.grades[judge, where]) for judge in judges]
    own = [found[~np.isnan(found)] for found in own]
    grades = np.unique(np.concatenate(own))
    if len({labels.rels[judge] for judge in judges}) > 1:
        return nothing, "relevant is another grade for each, so their scales differ"
    if set(grades.tolist()) <= {0.0, 1.0} or len(grades) <= 1:
        return nothing, "there are only two grades"
    binary = [set(found.tolist()) <= {0.0, 1.0} for found in own]
    if any(binary) and not all(binary):
        one = labels.names[judges[binary.index(True)]]
        return nothing, f"{one} has no grade above 1, so the scales seem to differ"
    if len(grades) > MANY_GRADES:
        return nothing, f"{len(grades):,} different grades are scores rather than grades"
    return grades, ""


def _as_if_independent(table: Array, confidence: float) -> tuple[float, float]:
    """Kappa's large-sample interval over pairs."""
    from scipy.special import ndtri

    value = float(kappa(table)) if table.sum() else math.nan
    if math.isnan(value):
        return math.nan, math.nan
    reach = float(ndtri(0.5 + confidence / 2)) * kappa_error(table)
    return max(-1.0, value - reach), min(1.0, value + reach)
