"""Queries in groups: whether a difference is another in one group than in the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semrecall.errors import InputError
from semrecall.stats.compare import whole_numbers
from semrecall.stats.intervals import check_confidence

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["LABELLINGS", "GroupGap", "group_gaps"]

#: Random labellings of a test where nothing else is asked for.
LABELLINGS = 10_000
_CHUNK = 2**19


class GroupGap(NamedTuple):
    """One group against the rest: both means, their gap (inside - rest), its interval and p."""

    n: int
    n_rest: int
    inside: float
    rest: float
    gap: float
    low: float
    high: float
    p: float


def group_gaps(
    differences: ArrayLike,
    numbers: ArrayLike,
    groups: int,
    *,
    labellings: int = LABELLINGS,
    seed: int = 0,
    confidence: float = 0.95,
) -> list[list[GroupGap]]:
    """For each row of `differences` (m, n): its mean in each group less that in the rest.

    numbers: (n,) the group of each query, 0 to groups - 1. NaN differences are left out.
    Returned are m lists of one GroupGap a group.

    p: queries are dealt to the groups at random, sizes kept; the share of deals with a gap at
    least as wide, the observed one counted. It tests that the group is like the rest, so a group
    that only varies more may show too. The interval is Welch's, for groups of unequal spread.
    NaN where the group or the rest has fewer than two queries.
    """
    check_confidence(confidence)
    if labellings < 1:
        raise InputError(f"labellings is {labellings}; expected at least 1")
    rows, labels = np.asarray(differences, dtype=np.float64), np.asarray(numbers)
    if rows.ndim != 2 or labels.shape != rows.shape[1:]:
        raise InputError(
            f"differences of shape {rows.shape} for {labels.shape} group numbers; "
            "expected (m, n) and (n,)"
        )
    found: list[list[GroupGap]] = [[] for _ in rows]
    for alike, defined in _same_queries(rows):
        values, known = rows[alike][:, defined], labels[defined]
        for row, p in zip(alike, _dealt_p(values, known, groups, labellings, seed), strict=True):
            one = rows[row][defined]
            found[row] = [
                _gap(one[known == group], one[known != group], float(p[group]), confidence)
                for group in range(groups)
            ]
    return found


def _same_queries(rows: NDArray[np.float64]) -> list[tuple[list[int], NDArray[np.bool_]]]:
    """Rows that are defined for the same queries, and which queries these are."""
    together: dict[bytes, list[int]] = {}
    for at, row in enumerate(rows):
        together.setdefault(np.isnan(row).tobytes(), []).append(at)
    return [(alike, ~np.isnan(rows[alike[0]])) for alike in together.values()]


def _gap(
    inside: NDArray[np.float64], rest: NDArray[np.float64], p: float, confidence: float
) -> GroupGap:
    mean_inside, mean_rest = (
        math.fsum(part) / len(part) if len(part) else math.nan for part in (inside, rest)
    )
    gap = mean_inside - mean_rest
    reach = math.nan
    if len(inside) >= 2 and len(rest) >= 2:
        reach = _welch_reach(inside, rest, confidence)
    low, high = gap - reach, gap + reach
    return GroupGap(len(inside), len(rest), mean_inside, mean_rest, gap, low, high, p)


def _welch_reach(
    inside: NDArray[np.float64], rest: NDArray[np.float64], confidence: float
) -> float:
    """Half the width of Welch's interval of the difference of two means."""
    from scipy.special import stdtrit

    parts = [float(np.var(part, ddof=1)) / len(part) for part in (inside, rest)]
    total = sum(parts)
    if total == 0:
        return 0.0
    freedom = total**2 / (parts[0] ** 2 / (len(inside) - 1) + parts[1] ** 2 / (len(rest) - 1))
    return float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(total)


def _dealt_p(
    rows: NDArray[np.float64],
    labels: NDArray[np.int64],
    groups: int,
    labellings: int,
    seed: int,
) -> NDArray[np.float64]:
    """P-values (m, groups) of rows (m, n) without NaN, by the same deals for all of them."""
    m, n = rows.shape
    sizes = np.bincount(labels, minlength=groups)
    tested = (sizes >= 2) & (n - sizes >= 2)
    p = np.full((m, groups), np.nan)
    if not tested.any():
        return p
    whole = whole_numbers(rows)
    member = (labels[:, None] == np.arange(groups)).astype(np.float64)
    # With the sizes fixed, the gap grows with the sum inside: how far that is from its share.
    share = whole.sum(axis=1)[:, None] * sizes / n
    observed = np.abs(whole @ member - share) - (n + 1)
    extreme = np.zeros((m, groups), dtype=np.int64)
    for order in _deals(n, labellings, seed):
        for row in range(m):
            apart = np.abs(whole[row][order] @ member - share[row])
            extreme[row] += np.count_nonzero(apart >= observed[row], axis=0)
    p[:, tested] = ((extreme + 1) / (labellings + 1))[:, tested]
    return p


def _deals(n: int, labellings: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Random orders (c, n) of n queries, chunk by chunk, by sorting a generator's raw words."""
    generator = np.random.PCG64(seed)
    step = max(1, _CHUNK // n)
    for start in range(0, labellings, step):
        count = min(step, labellings - start)
        keys = np.asarray(generator.random_raw(count * n)).reshape(count, n)
        yield np.argsort(keys, axis=1)
