"""What is computed of two runs over the same queries: one row a measure, pair and slice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Scores
from semrecall.evaluate.result import FEW, masked, zero_or_one
from semrecall.stats.compare import (
    detectable_difference,
    effect_size,
    equivalence_p,
    paired_differences,
    paired_p,
)
from semrecall.stats.groups import GroupGap, group_gaps
from semrecall.stats.intervals import difference_interval, resampled_means, t_interval
from semrecall.stats.multiple import corrected
from semrecall.stats.shares import paired_share_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.data.slices import Slice
    from semrecall.evaluate.comparison import Comparison

__all__ = ["Gap", "Paired", "gap_rows", "paired_rows"]


@dataclass(frozen=True)
class Paired:
    """A run against another in one measure, over one group of queries (all: `column` is "").

    Only the n queries where both runs have a value count; `left_out` says why others have none.

    mean_baseline, mean_run: means over these queries. difference: run - baseline, with its
    interval `low` to `high`. p: of the test; p_corrected: for all tests of the table.
    effect: the difference in standard deviations of the differences (Hedges' g).
    wins, ties, losses: queries where the run is better, equal, worse.
    detectable: the smallest difference that so many queries would show with power 0.8.
    p_equivalence (corrected as p), equivalent: whether the runs differ by less than the margin;
    None where no margin was given.
    significant: p_corrected is below alpha. few: fewer than FEW queries.
    note: why there is no p, or why it is 1.
    """

    measure: str
    baseline: str
    run: str
    column: str
    group: str
    n: int
    left_out: Mapping[str, int]
    mean_baseline: float
    mean_run: float
    difference: float
    low: float
    high: float
    p: float
    p_corrected: float
    effect: float
    wins: int
    ties: int
    losses: int
    detectable: float
    p_equivalence: float | None = None
    equivalent: bool | None = None
    significant: bool = False
    better: bool = False
    few: bool = False
    note: str = ""


@dataclass(frozen=True)
class Gap:
    """How a difference between two runs is another in one group than in the rest of the queries.

    inside, rest: mean difference (run - baseline) there and elsewhere. gap: inside - rest, with
    its interval `low` to `high`. worse: the group fares worse than the rest.
    """

    measure: str
    baseline: str
    run: str
    column: str
    group: str
    n: int
    n_rest: int
    inside: float
    rest: float
    gap: float
    low: float
    high: float
    p: float
    p_corrected: float
    significant: bool = False
    worse: bool = False
    few: bool = False


def paired_rows(comparison: Comparison, columns: Sequence[str] = ()) -> list[Paired]:
    """A row for each measure and pair, over all queries, or for each group of the columns.

    Within a column, by measure, then group, then pair. P-values are corrected over all rows.
    """
    rows: list[Paired] = []
    parts: list[tuple[str, str]] = [("", "")]
    if columns:
        parts = [(c, group) for c in columns for group in comparison.slices[c].groups]
    for column, group in parts:
        mask = comparison.slices[column].mask(group) if column else None
        rows += _rows_of_group(comparison, column, group, mask)
    order = {name: i for i, name in enumerate(["", *columns])}
    measures = {name: i for i, name in enumerate(comparison.measures)}
    rows.sort(key=lambda row: (order[row.column], measures[row.measure]))
    return _with_corrections(comparison, rows)


def _rows_of_group(
    comparison: Comparison, column: str, group: str, mask: NDArray[np.bool_] | None
) -> list[Paired]:
    keys = [(m, a, b) for m in comparison.measures for a, b in comparison.pairs]
    pairs = [(comparison.scores[a, m], comparison.scores[b, m]) for m, a, b in keys]
    if mask is not None:
        pairs = [(masked(a, mask), masked(b, mask)) for a, b in pairs]
    table = np.array([paired_differences(a.values, b.values) for a, b in pairs])
    p = paired_p(table, comparison.test, permutations=comparison.permutations, seed=comparison.seed)
    intervals = _intervals(comparison, [m for m, _, _ in keys], pairs, table)
    return [
        _row(comparison, key, (column, group), pair, differences, float(one_p), interval)
        for key, pair, differences, one_p, interval in zip(
            keys, pairs, table, p, intervals, strict=True
        )
    ]


def _intervals(
    comparison: Comparison,
    measures: list[str],
    pairs: list[tuple[Scores, Scores]],
    table: NDArray[np.float64],
) -> list[tuple[float, float]]:
    confidence = comparison.confidence
    draws = None
    if comparison.interval == "bootstrap":
        draws = resampled_means(table, resamples=comparison.resamples, seed=comparison.seed)
    found = []
    for i, (measure, (a, b)) in enumerate(zip(measures, pairs, strict=True)):
        if measure in comparison.shares and zero_or_one(a.values) and zero_or_one(b.values):
            found.append(paired_share_interval(table[i], confidence=confidence))
        elif draws is not None:
            found.append(difference_interval(table[i], draws[i], confidence=confidence))
        else:
            found.append(t_interval(table[i], confidence=confidence))
    return found


def _row(
    comparison: Comparison,
    key: tuple[str, str, str],
    part: tuple[str, str],
    pair: tuple[Scores, Scores],
    differences: NDArray[np.float64],
    p: float,
    interval: tuple[float, float],
) -> Paired:
    measure, baseline, run = key
    both = ~np.isnan(differences)
    found = differences[both]
    up, down = int((found > 0).sum()), int((found < 0).sum())
    if measure in comparison.lower_is_better:
        up, down = down, up
    margin = comparison.margin
    return Paired(
        measure=measure,
        baseline=baseline,
        run=run,
        column=part[0],
        group=part[1],
        n=len(found),
        left_out=_left_out(*pair, both),
        mean_baseline=_mean(pair[0].values[both]),
        mean_run=_mean(pair[1].values[both]),
        difference=_mean(found),
        low=interval[0],
        high=interval[1],
        p=p,
        p_corrected=p,
        effect=effect_size(found),
        wins=up,
        ties=len(found) - up - down,
        losses=down,
        detectable=detectable_difference(found, alpha=comparison.alpha),
        p_equivalence=None if margin is None else equivalence_p(found, margin),
        few=len(found) < FEW,
        note=_note(found, p),
    )


def _note(found: NDArray[np.float64], p: float) -> str:
    if len(found) < 2:
        return "too few queries"
    if not found.any():
        return "no query differs"
    return "every query differs by the same" if math.isnan(p) else ""


def _left_out(a: Scores, b: Scores, both: NDArray[np.bool_]) -> dict[str, int]:
    gaps = np.flatnonzero(~both).tolist()
    return dict(Counter(a.reasons[i] or b.reasons[i] for i in gaps).most_common())


def _with_corrections(comparison: Comparison, rows: list[Paired]) -> list[Paired]:
    p = corrected([row.p for row in rows], comparison.correction)
    alike = [math.nan if row.p_equivalence is None else row.p_equivalence for row in rows]
    alike = corrected(alike, comparison.correction).tolist()
    alpha, given = comparison.alpha, comparison.margin is not None
    done = []
    for row, one, same in zip(rows, p.tolist(), alike, strict=True):
        gain = -row.difference if row.measure in comparison.lower_is_better else row.difference
        done.append(
            replace(
                row,
                p_corrected=one,
                significant=one < alpha,
                better=one < alpha and gain > 0,
                p_equivalence=same if given else None,
                equivalent=same < alpha if given else None,
            )
        )
    return done


# -- which slice fell -------------------------------------------------------------------------


def gap_rows(comparison: Comparison) -> list[Gap]:
    """For each column, measure, pair and group: the difference there less that in the rest.

    P-values are corrected over all rows; of two groups the second mirrors the first, which is one
    test. A column of a single group has no rows.
    """
    rows: list[Gap] = []
    mirrored: list[bool] = []
    for part in comparison.slices.values():
        for found in _gaps(comparison, part):
            mirrored += [len(found) == 2 and at == 1 for at in range(len(found))]
            rows += found
    own = [math.nan if twin else row.p for row, twin in zip(rows, mirrored, strict=True)]
    p = corrected(own, comparison.correction).tolist()
    for at, twin in enumerate(mirrored):
        p[at] = p[at - 1] if twin else p[at]
    return [
        replace(row, p_corrected=one, significant=one < comparison.alpha)
        for row, one in zip(rows, p, strict=True)
    ]


def _gaps(comparison: Comparison, part: Slice) -> list[list[Gap]]:
    """For each measure and pair the gaps of all groups."""
    if len(part.groups) < 2:
        return []
    keys = [(m, a, b) for m in comparison.measures for a, b in comparison.pairs]
    scores = comparison.scores
    found = group_gaps(
        [paired_differences(scores[a, m].values, scores[b, m].values) for m, a, b in keys],
        part.numbers,
        len(part.groups),
        labellings=comparison.labellings,
        seed=comparison.seed,
        confidence=comparison.confidence,
    )
    return [
        [
            _named_gap(comparison, key, part.column, group, one)
            for group, one in zip(part.groups, of_key, strict=True)
        ]
        for key, of_key in zip(keys, found, strict=True)
    ]


def _named_gap(
    comparison: Comparison, key: tuple[str, str, str], column: str, group: str, found: GroupGap
) -> Gap:
    sign = -1 if key[0] in comparison.lower_is_better else 1
    return Gap(
        *key,
        column,
        group,
        **found._asdict(),
        p_corrected=found.p,
        worse=sign * found.gap < 0,
        few=min(found.n, found.n_rest) < FEW,
    )


def _mean(values: NDArray[np.float64]) -> float:
    return math.fsum(values) / len(values) if len(values) else math.nan
