"""The area under the curve, its interval, and the curve itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from semrecall.errors import InputError
from semrecall.stats.roc import auc, auc_interval, threshold_shares

SMALL = st.lists(st.integers(0, 6), min_size=1, max_size=12)


def test_area_by_hand():
    # Of six pairs: 3 > 1, 3 > 2, 3 = 3, 2 > 1, 2 = 2, 2 < 3: three and two halves.
    assert auc([3, 2], [1, 2, 3]) == 4 / 6
    assert auc([5, 6], [1, 2]) == 1.0
    assert auc([1], [2]) == 0.0
    assert auc([4, 4], [4]) == 0.5
    assert math.isnan(auc([], [1]))
    assert auc([-np.inf, 1], [-np.inf]) == 0.75


@given(SMALL, SMALL)
def test_area_is_that_of_mann_whitney(higher, lower):
    statistic = mannwhitneyu(higher, lower).statistic
    assert auc(higher, lower) == pytest.approx(statistic / len(higher) / len(lower))
    assert auc(lower, higher) == pytest.approx(1 - auc(higher, lower))


def test_interval_by_its_own_condition():
    # The ends are the areas that are 1.96 of their own standard errors away.
    m, n, area = 40, 25, 0.8
    low, high = auc_interval(area, m, n)
    middle = (m + n) / 2 - 1
    for end in (low, high):
        spread = 1 + middle * ((1 - end) / (2 - end) + end / (1 + end))
        error = math.sqrt(end * (1 - end) * spread / (m * n))
        assert abs(area - end) / error == pytest.approx(1.959964, abs=1e-5)
    assert low < area < high
    low, high = auc_interval(1.0, 20, 20)
    assert 0.8 < low < 0.95
    assert high == 1.0
    assert auc_interval(0.0, 20, 20) == pytest.approx((0.0, 1 - low))
    assert auc_interval(0.8, 400, 250)[0] > auc_interval(0.8, 40, 25)[0]
    assert all(math.isnan(end) for end in auc_interval(math.nan, 0, 3))
    with pytest.raises(InputError, match="confidence is 95"):
        auc_interval(0.5, 2, 2, confidence=95)


@pytest.mark.parametrize(("gap", "m", "n"), [(0.0, 30, 30), (1.0, 40, 15), (2.5, 25, 25)])
def test_interval_covers_the_true_area(gap, m, n):
    # Two normals with this gap: the true area is the probability that one exceeds the other.
    from scipy.stats import norm

    true = norm.cdf(gap / math.sqrt(2))
    random = np.random.default_rng(0)
    draws, covered = 1000, 0
    for _ in range(draws):
        low, high = auc_interval(auc(random.normal(gap, 1, m), random.normal(0, 1, n)), m, n)
        covered += low <= true <= high
    assert 0.92 <= covered / draws <= 0.985


def test_curve_by_hand():
    limits, kept, rejected = threshold_shares([3, 2, 2], [1, 2])
    assert limits.tolist() == [1, 2, 3, np.inf]
    assert kept.tolist() == [1, 1, 1 / 3, 0]
    assert rejected.tolist() == [0, 1 / 2, 1, 1]


@given(SMALL, SMALL)
def test_the_area_lies_under_the_curve(keep, reject):
    _, kept, rejected = threshold_shares(keep, reject)
    # From (kept 1, rejected 0) to (0, 1), by trapezoids.
    area = np.sum((kept[:-1] - kept[1:]) * (rejected[:-1] + rejected[1:]) / 2)
    assert area == pytest.approx(auc(keep, reject))
    assert (np.diff(kept) <= 0).all()
    assert (np.diff(rejected) >= 0).all()
