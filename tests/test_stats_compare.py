"""Paired tests and what stands beside them: exact where counted, uniform under the null."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from semrecall.errors import InputError
from semrecall.stats import (
    compare,
    corrected,
    detectable_difference,
    difference_interval,
    effect_size,
    equivalence_p,
    group_gaps,
    groups,
    paired_differences,
    paired_p,
    paired_share_interval,
    resampled_means,
    t_interval,
    wilson_interval,
)
from semrecall.stats.compare import TESTS, randomisation_p, sign_p, t_p, wilcoxon_p
from semrecall.stats.multiple import CORRECTIONS

# Differences of measures are sums of a few fractions: ties, zeros, and noise in the last bit.
steps = st.sampled_from([-0.5, -0.3, -0.1, 0.0, 0.1, 0.2, 0.3, 0.1 + 0.2, 0.5, np.nan])
rows = arrays(np.float64, st.integers(0, 10), elements=steps)


# -- differences --------------------------------------------------------------------------------


def test_rounding_is_no_difference():
    found = paired_differences([0.3, 0.5, np.nan, 1.0], [0.1 + 0.2, 0.75, 1.0, np.nan])
    np.testing.assert_array_equal(found, [0.0, 0.25, np.nan, np.nan])
    # A real difference of small values is kept.
    assert paired_differences([1e-9], [2e-9])[0] == 1e-9


# -- the randomisation test -----------------------------------------------------------------------


def by_all_patterns(differences) -> float:
    """The definition: the share of all sign patterns with a sum as far from 0 as observed."""
    found = differences[~np.isnan(differences)]
    if len(found) < 2:
        return math.nan
    observed = abs(math.fsum(found)) - 1e-9
    patterns = itertools.product([1, -1], repeat=len(found))
    sums = [abs(math.fsum(s * d for s, d in zip(p, found, strict=True))) for p in patterns]
    return float(np.mean(np.array(sums) >= observed))


@given(rows)
def test_few_queries_are_counted_exactly(differences):
    np.testing.assert_allclose(
        randomisation_p(differences)[0], by_all_patterns(differences), rtol=1e-12
    )


def test_counted_by_hand():
    # +1 +1 +1: of 8 patterns only +++ and --- reach 3.
    assert randomisation_p([1.0, 1.0, 1.0])[0] == 2 / 8
    # +3 -1: sums 2, 4, -2, -4; all are at least 2 away.
    assert randomisation_p([3.0, -1.0])[0] == 1.0
    # +3 +2 -1 (sum 4): 6 and 4, and their mirrors, of 8.
    assert randomisation_p([3.0, 2.0, -1.0])[0] == 4 / 8
    # A query that does not differ changes nothing.
    assert randomisation_p([3.0, 2.0, -1.0, 0.0])[0] == 4 / 8


def test_exactness_ends_where_patterns_are_more_than_permutations():
    d = np.arange(1.0, 13)
    # 2^12 = 4,096 patterns: counted with 4,096, drawn with 4,095; (b + 1) / (m + 1) with b = 1 or
    # so of 4,095, as 2 of 4,096 patterns are as extreme.
    assert randomisation_p(d, permutations=4096)[0] == 2 / 4096
    drawn = randomisation_p(d, permutations=4095, seed=1)[0] * 4096
    assert drawn == round(drawn)
    assert 1 <= drawn < 10


def test_drawn_patterns_come_close_to_all_of_them():
    d = np.random.default_rng(1).normal(0.3, 1, 15)
    exact = randomisation_p(d)[0]
    assert randomisation_p(d, permutations=2**15 - 1, seed=3)[0] == pytest.approx(exact, abs=0.01)


def test_never_zero():
    # stat-02: 60 queries that all won; no drawn pattern is as extreme, the observed one is counted.
    assert randomisation_p(np.ones(60), permutations=1000)[0] == 1 / 1001
    # Wins only: formulas underflow to the smallest number, not to 0.
    for test in ("t", "wilcoxon", "sign"):
        p = paired_p(1 + 1e-9 * np.arange(20_000.0), test)[0]
        assert 0 < p < 1e-300


def test_the_same_to_the_bit():
    rng = np.random.default_rng(5)
    table = rng.normal(0.05, 1, (7, 40))
    # stat-01: five calls, one p-value.
    assert len({randomisation_p(table[0], permutations=999, seed=42)[0] for _ in range(5)}) == 1
    together = randomisation_p(table, permutations=999, seed=42)
    for row, p in zip(table, together, strict=True):
        assert randomisation_p(row, permutations=999, seed=42)[0] == p
    assert (together != randomisation_p(table, permutations=999, seed=43)).any()
    # The value itself, so that a change of the draws in any library is seen.
    fixed = np.linspace(-0.5, 1.0, 30)
    assert randomisation_p(fixed, permutations=9999, seed=7)[0] == FIXED_P


# 56 of 10,000, counted once by this code; for this seed it may never change.
FIXED_P = 0.0056


@pytest.mark.parametrize("chunk", [1, 64, 1000, 2**22])
def test_p_does_not_depend_on_the_chunk(chunk, monkeypatch):
    table = np.random.default_rng(6).normal(0.2, 1, (3, 70))
    expected = randomisation_p(table, permutations=500, seed=1)
    small = randomisation_p(table[:, :9])
    monkeypatch.setattr(compare, "_CHUNK", chunk)
    np.testing.assert_array_equal(randomisation_p(table, permutations=500, seed=1), expected)
    np.testing.assert_array_equal(randomisation_p(table[:, :9]), small)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 3.0, 1e300])
def test_p_does_not_depend_on_the_unit(scale):
    d = np.random.default_rng(8).normal(0.3, 1, 50)
    p = randomisation_p(d, permutations=2000)[0]
    assert randomisation_p(d * scale, permutations=2000)[0] == pytest.approx(p, abs=1e-12)
    assert randomisation_p(-d, permutations=2000)[0] == p


def test_sums_that_differ_by_rounding_are_equal():
    # 0.1 + 0.2 - 0.3 and its like: sums that are 0 by hand. Counted exactly, and drawn.
    for repeats in (2, 10):
        d = np.array([0.1, 0.2, -0.3] * repeats + [0.1])
        whole = np.array([1.0, 2.0, -3.0] * repeats + [1.0])
        assert randomisation_p(d)[0] == randomisation_p(whole)[0]
        # No pattern has a smaller sum than 1, because there is an odd number of odd ones.
        assert randomisation_p(d)[0] == 1.0


# -- all tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", TESTS)
def test_too_few_queries_have_no_p(test):
    # stat-04.
    assert np.isnan(paired_p([1.0], test)[0])
    assert np.isnan(paired_p([np.nan, 1.0, np.nan], test)[0])
    assert np.isnan(paired_p(np.empty((2, 0)), test)).all()
    assert paired_p(np.empty((0, 5)), test).shape == (0,)


@pytest.mark.parametrize("test", TESTS)
def test_no_difference_is_no_evidence(test):
    assert paired_p([0.0, 0.0, 0.0, np.nan], test)[0] == 1.0


@pytest.mark.parametrize("test", TESTS)
@given(differences=rows)
def test_p_is_a_probability_and_knows_no_direction(test, differences):
    p = paired_p(differences, test)[0]
    assert np.isnan(p) or 0 < p <= 1
    np.testing.assert_allclose(paired_p(-differences, test)[0], p, rtol=1e-9)
    padded = np.concatenate([[np.nan], differences, [np.nan]])
    np.testing.assert_allclose(paired_p(padded, test)[0], p, rtol=1e-9)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("n", [25, 80])
def test_p_is_uniform_under_the_null(test, n):
    # Symmetric about 0, with heavy tails and, as real measures, many queries that do not differ.
    rng = np.random.default_rng(20)
    table = np.where(rng.random((2000, n)) < 0.3, 0.0, rng.standard_t(4, (2000, n)))
    p = paired_p(table, test, permutations=999, seed=3)
    if test == "sign":
        # Few distinct values: at each of them the test may only be too careful.
        for level in (0.05, 0.1, 0.25, 0.5):
            assert np.mean(p <= level) <= level + 3 * math.sqrt(level * (1 - level) / 2000)
        return
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert 0.035 <= np.mean(p <= 0.05) <= 0.065


@pytest.mark.parametrize("test", TESTS)
def test_p_is_small_where_runs_differ(test):
    table = np.random.default_rng(21).normal(0.5, 1, (200, 50))
    # The t-test has a power of 0.93 here, the sign test, which sees least, of 0.75.
    assert np.mean(paired_p(table, test, permutations=999) < 0.05) > (
        0.7 if test == "sign" else 0.85
    )


@pytest.mark.parametrize("n", [3, 20, 200])
def test_t_is_that_of_scipy(n):
    rng = np.random.default_rng(n)
    a, b = rng.random(n), rng.random(n)
    assert t_p(b - a) == pytest.approx(stats.ttest_rel(b, a).pvalue, rel=1e-10)


@pytest.mark.parametrize("n", [5, 30, 200])
def test_wilcoxon_is_that_of_scipy(n):
    rng = np.random.default_rng(n)
    d = rng.normal(0.1, 1, n)
    method = "exact" if n <= 50 else "approx"
    assert wilcoxon_p(d) == pytest.approx(stats.wilcoxon(d, method=method).pvalue, rel=1e-10)
    ties = np.round(d, 1)
    with_zeros = np.append(ties, [0.0, 0.0])
    expected = stats.wilcoxon(ties[ties != 0], method="approx").pvalue
    assert wilcoxon_p(with_zeros) == pytest.approx(expected, rel=1e-10)


def test_wilcoxon_ties_survive_rounding():
    # 0.3 and 0.1 + 0.2 are one rank.
    assert wilcoxon_p([0.3, 0.1 + 0.2, -0.1, 0.7]) == wilcoxon_p([3.0, 3.0, -1.0, 7.0])


def test_sign_by_hand():
    # 5 wins, 1 loss, 2 ties: 2 * (1 + 6) / 64.
    assert sign_p([1.0] * 5 + [-9.0, 0.0, 0.0]) == pytest.approx(14 / 64)


def test_every_query_the_same_has_no_t():
    assert math.isnan(t_p([0.25, 0.25, 0.25]))


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="unknown test 'wilcox'") as error:
        paired_p([1.0, 2.0], "wilcox")
    assert error.value.hint == "did you mean wilcoxon?"
    with pytest.raises(InputError, match="permutations is 0"):
        randomisation_p([1.0, 2.0], permutations=0)
    with pytest.raises(InputError, match=r"shape \(1, 1, 2\)"):
        paired_p([[[1.0, 2.0]]])


# -- several tests --------------------------------------------------------------------------------


def test_corrections_by_hand():
    p = [0.01, 0.04, 0.03, np.nan, 0.005]
    # Holm, in order 0.005*4, 0.01*3, 0.03*2, 0.04*1 -> 0.02, 0.03, 0.06, 0.06 (never falling).
    np.testing.assert_allclose(corrected(p, "holm"), [0.03, 0.06, 0.06, np.nan, 0.02])
    np.testing.assert_allclose(corrected(p, "bonferroni"), [0.04, 0.16, 0.12, np.nan, 0.02])
    # From the largest: 0.04*4/4, 0.03*4/3 = 0.04, 0.01*4/2 = 0.02, 0.005*4/1 = 0.02.
    np.testing.assert_allclose(corrected(p, "bh"), [0.02, 0.04, 0.04, np.nan, 0.02])
    np.testing.assert_array_equal(corrected(p, "none"), p)
    assert corrected([0.6, 0.7], "holm").tolist() == [1.0, 1.0]
    assert corrected([], "holm").tolist() == []
    with pytest.raises(InputError, match="unknown correction 'hoolm'"):
        corrected(p, "hoolm")


@given(st.lists(st.floats(0.0001, 1), max_size=8), st.sampled_from(list(CORRECTIONS)))
def test_corrections_keep_order_and_only_raise(p, method):
    found = corrected(p, method)
    assert ((np.array(p) - 1e-15 <= found) & (found <= 1)).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    if method == "bh" and p:
        np.testing.assert_allclose(found, stats.false_discovery_control(p), rtol=1e-12)


# -- how large, how sure --------------------------------------------------------------------------


def test_effect_by_hand():
    # Mean 2, sd 1, n = 3: J of 2 degrees of freedom is gamma(1) / (1 * gamma(1/2)) = 1 / sqrt(pi).
    assert effect_size([1.0, 2.0, 3.0]) == pytest.approx(2 / math.sqrt(math.pi))
    assert effect_size([0.0, 0.0, 0.0]) == 0.0
    assert math.isnan(effect_size([1.0, 2.0]))
    assert math.isnan(effect_size([0.5, 0.5, 0.5]))


def test_effect_is_unbiased_for_few_queries():
    table = np.random.default_rng(9).normal(0.5, 1, (20_000, 8))
    # The uncorrected mean / sd is 12% too large at n = 8.
    assert np.mean([effect_size(row) for row in table]) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("n", [2, 10, 50])
def test_the_detectable_difference_is_detected_in_80_of_100(n):
    rng = np.random.default_rng(n)
    table = rng.normal(0, 1, (4000, n))
    one = rng.normal(0, 1, n)
    # In units of the true spread: what would be detected if sd were exactly 1.
    shift = detectable_difference(one) / np.std(one, ddof=1)
    seen = np.mean([t_p(row + shift) < 0.05 for row in table])
    assert seen == pytest.approx(0.8, abs=0.025)


def test_detectable_differences_shrink_with_the_square_root_of_queries():
    d = np.tile([0.1, -0.1], 50)
    assert detectable_difference(np.tile(d, 4)) == pytest.approx(
        detectable_difference(d) / 2, rel=0.02
    )
    assert detectable_difference(d, power=0.95) > detectable_difference(d)
    assert math.isnan(detectable_difference([0.2, 0.2, 0.2]))
    assert math.isnan(detectable_difference([0.2]))


def test_equivalence_is_two_one_sided_tests():
    d = np.random.default_rng(4).normal(0.01, 0.1, 40)
    below = stats.ttest_1samp(d, 0.05, alternative="less").pvalue
    above = stats.ttest_1samp(d, -0.05, alternative="greater").pvalue
    assert equivalence_p(d, 0.05) == pytest.approx(max(below, above), rel=1e-10)
    assert math.isnan(equivalence_p([0.0, 0.0, 0.0], 0.05))
    with pytest.raises(InputError, match="margin is -1"):
        equivalence_p(d, -1)


def test_equivalence_is_rarely_found_where_it_is_not():
    # The true difference lies on the margin: found in 5 of 100 cases.
    table = np.random.default_rng(14).normal(0.3, 1, (2000, 30))
    assert np.mean([equivalence_p(row, 0.3) < 0.05 for row in table]) <= 0.065


# -- intervals ------------------------------------------------------------------------------------

DIFFERENCES = {
    "normal": lambda rng, shape: rng.normal(0, 0.1, shape),
    # Most queries do not differ, the others have long tails: as rankers of one family.
    "sparse": lambda rng, shape: np.where(
        rng.random(shape) < 0.6, 0.0, 0.1 * rng.standard_t(3, shape)
    ),
    # Two skewed measures: the difference of Beta(5, 1/2) and Beta(4, 2/5), of equal means.
    "skewed": lambda rng, shape: rng.beta(5, 0.5, shape) - rng.beta(4, 0.4, shape),
}


# 1,500 samples of a true 95% have a standard error of 0.6 points. t may be too wide for few
# values that are mostly 0; it must never be short.
@pytest.mark.parametrize("n", [10, 43])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_t_intervals_cover_the_difference(name, n):
    values = DIFFERENCES[name](np.random.default_rng(31), (1500, n))
    found = np.array([t_interval(row) for row in values])
    assert 0.935 <= np.mean((found[:, 0] <= 0) & (found[:, 1] >= 0)) <= 0.995


@pytest.mark.parametrize("name", DIFFERENCES)
def test_bootstrap_intervals_cover_the_difference(name):
    values = DIFFERENCES[name](np.random.default_rng(32), (1000, 43))
    draws = resampled_means(values, resamples=1000, seed=2)
    found = np.array([difference_interval(v, d) for v, d in zip(values, draws, strict=True)])
    # Sparse differences are short by two points; the page on comparing says so.
    assert 0.91 <= np.mean((found[:, 0] <= 0) & (found[:, 1] >= 0)) <= 0.97


@pytest.mark.parametrize(("share", "n"), [(0.9, 10), (0.9, 20), (0.5, 10), (0.98, 50)])
def test_wilson_intervals_cover_the_share(share, n):
    # The bootstrap reaches 66% for 10 values of mean 0.9. Exact, over all counts of ones.
    found = [wilson_interval([1.0] * k + [0.0] * (n - k)) for k in range(n + 1)]
    weights = stats.binom.pmf(np.arange(n + 1), n, share)
    covered = sum(w for w, (low, high) in zip(weights, found, strict=True) if low <= share <= high)
    assert 0.92 <= covered <= 0.99


def test_wilson_by_hand():
    # Ten ones: the lower bound is n / (n + z^2) = 10 / 13.8415.
    assert wilson_interval([1.0] * 10) == pytest.approx((10 / (10 + 1.959964**2), 1.0))
    low, high = wilson_interval([1.0, 0.0, np.nan])
    assert (low + high) / 2 == pytest.approx(0.5)
    assert np.isnan(wilson_interval([np.nan])).all()
    assert wilson_interval([0.0] * 3)[0] == 0.0
    result = stats.binomtest(7, 12).proportion_ci(0.9, method="wilson")
    found = wilson_interval([1.0] * 7 + [0.0] * 5, confidence=0.9)
    assert found == pytest.approx((result.low, result.high))


@pytest.mark.parametrize(
    ("won", "lost", "n"), [(0.1, 0.1, 10), (0.3, 0.05, 20), (0.02, 0.0, 30), (0.5, 0.2, 10)]
)
def test_intervals_of_paired_shares_cover(won, lost, n):
    rng = np.random.default_rng(33)
    values = rng.choice([1.0, -1.0, 0.0], p=[won, lost, 1 - won - lost], size=(3000, n))
    found = np.array([paired_share_interval(row) for row in values])
    truth = won - lost
    assert np.mean((found[:, 0] <= truth) & (truth <= found[:, 1])) >= 0.935


@given(st.lists(st.sampled_from([1.0, 0.0, -1.0]), min_size=2, max_size=15))
def test_intervals_of_paired_shares_hold_their_mean(differences):
    low, high = paired_share_interval(differences)
    assert -1 <= low <= np.mean(differences) <= high <= 1
    assert low < high
    assert np.isnan(paired_share_interval(differences[:1])).all()


def test_t_intervals_of_few_and_equal_values():
    assert np.isnan(t_interval([0.3])).all()
    assert t_interval([0.1] * 10) == (0.1, 0.1)
    expected = stats.ttest_1samp([1.0, 2.0, 4.0], 0).confidence_interval(0.9)
    assert t_interval([1.0, 2.0, np.nan, 4.0], confidence=0.9) == pytest.approx(tuple(expected))
    with pytest.raises(InputError, match="confidence is 2"):
        t_interval([1.0, 2.0], confidence=2)


# -- groups ---------------------------------------------------------------------------------------


def test_gaps_by_hand():
    d = [0.5, 0.25, 0.0, 0.0, np.nan, -0.25]
    first, second = group_gaps([d], [0, 0, 1, 1, 1, 1], 2, labellings=4000)[0]
    # (0.5 + 0.25) / 2 = 0.375 against -0.25 / 3.
    assert (first.n, first.n_rest) == (2, 3)
    assert first.inside == 0.375
    assert first.gap == pytest.approx(0.375 + 0.25 / 3)
    assert second.gap == -first.gap
    # Of 10 ways to choose two of five, only {0.5, 0.25} sums as far from 2/5 of the total as 0.55:
    # the sum of the total is 0.5, its share 0.2; {-0.25, 0} is 0.45 away.
    assert first.p == second.p == pytest.approx(0.1, abs=0.015)
    welch = stats.ttest_ind([0.5, 0.25], [0, 0, -0.25], equal_var=False).confidence_interval()
    assert (first.low, first.high) == pytest.approx((welch.low, welch.high))


def test_gaps_are_uniform_under_the_null_and_found_otherwise():
    rng = np.random.default_rng(17)
    labels = np.repeat([0, 1, 2], [8, 20, 22])
    rows = rng.normal(0.2, 1, (300, 50))
    p = [found[0].p for found in group_gaps(rows, labels, 3, labellings=499)]
    assert stats.kstest(p, "uniform").pvalue > 0.01
    shifted = rng.normal(0, 0.1, 50) - np.where(labels == 1, 0.2, 0)
    found = group_gaps([shifted], labels, 3)[0]
    assert found[1].p < 0.001
    assert found[1].high < 0


def test_gaps_need_two_queries_a_side():
    d = np.random.default_rng(2).normal(size=30)
    labels = np.array([0] * 29 + [1])
    alone = group_gaps([d], labels, 3, seed=5)[0]
    assert math.isnan(alone[1].p)
    assert alone[1].n == 1
    assert alone[2].n == 0
    assert math.isnan(alone[2].gap)
    with pytest.raises(InputError, match="labellings is 0"):
        group_gaps([d], labels, 2, labellings=0)
    with pytest.raises(InputError, match="group numbers"):
        group_gaps([d], labels[:3], 2)


@pytest.mark.parametrize("chunk", [1, 500, 2**22])
def test_gaps_depend_neither_on_the_rows_beside_nor_on_the_chunk(chunk, monkeypatch):
    table = np.random.default_rng(19).normal(size=(4, 30))
    table[1, 3] = table[3, 3] = np.nan
    labels = np.arange(30) % 3
    alone = [group_gaps([row], labels, 3, labellings=200, seed=5)[0] for row in table]
    monkeypatch.setattr(groups, "_CHUNK", chunk)
    assert group_gaps(table, labels, 3, labellings=200, seed=5) == alone
    assert group_gaps(table, labels, 3, labellings=200, seed=6) != alone
