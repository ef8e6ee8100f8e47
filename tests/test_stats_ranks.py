"""Rank-biserial correlation: hand counts, scipy's U and p, and intervals over whole clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from semrecall.errors import InputError
from semrecall.stats.intervals import resampled_means
from semrecall.stats.ranks import clustered_interval, rank_biserial, resampled_rank_biserial


def test_a_hand_count():
    # 0.9 is above 0.8 and 0.4; 0.5 is above 0.4 and below 0.8: 3 of 4 pairs above, 1 below.
    found = rank_biserial([0.9, 0.5], [0.8, 0.4])
    assert found.r == 3 / 4 - 1 / 4
    assert (found.u, found.first, found.second) == (3, 2, 2)
    # Of the 6 ways to place two of four ranks, U = 3 or more: {4,3}: 4, {4,2}: 3; twice 2/6.
    assert found.p == pytest.approx(4 / 6)


def test_ties_count_half():
    # 2 against 1, 2: one above, one tied; 1 against 1, 2: one tied, one below. U = 1.5 + 0.5.
    found = rank_biserial([2, 1], [1, 2])
    assert (found.r, found.u) == (0.0, 2.0)


@pytest.mark.parametrize(
    ("first", "second", "r"), [([3, 4], [1, 2], 1), ([1, 2], [3, 4], -1), ([5, 5], [5, 5, 5], 0)]
)
def test_the_ends_are_exact(first, second, r):
    assert rank_biserial(first, second).r == r


def test_equal_values_tell_nothing_apart():
    assert rank_biserial([5, 5], [5, 5, 5]).p == 1


def test_nan_values_are_left_out_and_an_empty_group_has_no_value():
    assert rank_biserial([1, np.nan, 3], [np.nan, 2])[0] == 0
    empty = rank_biserial([1, 2], [np.nan])
    assert math.isnan(empty.r)
    assert math.isnan(empty.u)
    assert math.isnan(empty.p)
    assert (empty.first, empty.second) == (2, 0)


VALUES = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(VALUES, VALUES)
def test_it_is_scipys_statistic_and_the_slow_count(first, second):
    found = rank_biserial(first, second)
    above = sum(a > b for a in first for b in second)
    below = sum(a < b for a in first for b in second)
    assert found.r == pytest.approx((above - below) / (len(first) * len(second)), abs=1e-12)
    assert found.u == pytest.approx(mannwhitneyu(first, second).statistic)
    assert rank_biserial(second, first).r == pytest.approx(-found.r, abs=1e-12)
    assert 0 <= found.p <= 1


@pytest.mark.parametrize("sizes", [(3, 40), (20, 30), (1, 2)])
def test_p_is_scipys(sizes):
    rng = np.random.default_rng(1)
    first, second = (rng.normal(size=n) for n in sizes)
    assert rank_biserial(first, second).p == mannwhitneyu(first, second, method="auto").pvalue


def test_a_huge_group_beside_a_small_one_is_fast():
    assert rank_biserial(np.arange(3) + 0.5, np.arange(200_000)).p < 0.01


# -- whole clusters -------------------------------------------------------------------------------


def drawn_slowly(values, first, clusters, n, resamples, seed):
    """The correlation over the clusters of each draw, value by value."""
    # Means of one-hot rows are how often each cluster was drawn, by n.
    counts = np.rint(resampled_means(np.eye(n), resamples=resamples, seed=seed) * n).astype(int)
    found = []
    for weights in counts.T:
        repeats = weights[clusters]
        v, f = np.repeat(values, repeats), np.repeat(first, repeats)
        found.append(rank_biserial(v[f], v[~f]).r)
    return found


def test_draws_are_of_whole_clusters():
    rng = np.random.default_rng(2)
    clusters = rng.integers(0, 6, 40)
    values, first = rng.integers(0, 12, 40) / 4, rng.random(40) < 0.4
    drawn = resampled_rank_biserial(values, first, clusters, 6, resamples=50, seed=3)
    slow = drawn_slowly(values, first, clusters, 6, 50, 3)
    np.testing.assert_allclose(drawn, slow, atol=1e-12)


def test_a_draw_that_lacks_a_group_has_no_value():
    # Cluster 0 has the only value of the first group: about (1/2)^2 of the draws miss it.
    drawn = resampled_rank_biserial([2.0, 1.0], [True, False], [0, 1], 2, resamples=400)
    assert 0.4 < np.mean(np.isnan(drawn)) < 0.6
    assert set(drawn[~np.isnan(drawn)]) == {1.0}
    none = resampled_rank_biserial([2.0], [True], [0], 2, resamples=5)
    assert np.isnan(none).all()
    assert all(map(math.isnan, clustered_interval(none, 2)))


def test_an_interval_needs_two_clusters():
    assert all(map(math.isnan, clustered_interval([0.1, 0.2], 1)))
    with pytest.raises(InputError, match="confidence is 1"):
        clustered_interval([0.1], 3, confidence=1)


def test_clusters_that_copy_each_other_widen_the_interval():
    rng = np.random.default_rng(4)
    values, first = rng.normal(size=40), rng.random(40) < 0.5
    alone = resampled_rank_biserial(values, first, np.arange(40), 40)
    # Ten copies of every value are still 40 clusters; taken one by one they would look like 400.
    copied = [np.repeat(x, 10) for x in (values, first, np.arange(40))]
    together = resampled_rank_biserial(*copied, 40)
    apart = resampled_rank_biserial(*copied[:2], np.arange(400), 400)
    width, same, narrow = (
        np.diff(clustered_interval(d, n))[0] for d, n in ((alone, 40), (together, 40), (apart, 400))
    )
    assert same == pytest.approx(width)
    assert narrow < 0.5 * width


@pytest.mark.parametrize("n", [12, 40])
def test_intervals_cover(n):
    rng = np.random.default_rng(5)

    def sample(queries):
        level, share = rng.normal(size=queries), rng.beta(1, 2, queries)
        first = rng.random((queries, 15)) < share[:, None]
        noise = rng.normal(size=first.shape)
        values = 0.5 * level[:, None] + 0.5 * share[:, None] + 0.4 * first + noise
        return values.ravel(), first.ravel(), np.repeat(np.arange(queries), 15)

    values, first, _ = sample(40_000)
    true = rank_biserial(values[first], values[~first]).r
    covered = 0
    for seed in range(200):
        drawn = resampled_rank_biserial(*sample(n), n, resamples=300, seed=seed)
        low, high = clustered_interval(drawn, n)
        covered += low <= true <= high
    # 200 intervals of 95%: 190 expected, standard error 3.
    assert 178 <= covered <= 199


@pytest.mark.parametrize("shapes", [((2,), (3,), (2,)), ((2, 2), (2, 2), (2, 2))])
def test_shapes_must_agree(shapes):
    with pytest.raises(InputError, match="expected equally many"):
        resampled_rank_biserial(*(np.zeros(s) for s in shapes), 2)
