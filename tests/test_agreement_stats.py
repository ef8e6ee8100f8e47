"""Kappa, alpha and their company: golden numbers, slow definitions, edges, coverage."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kendalltau

from semrecall.errors import InputError
from semrecall.stats import bootstrap_means
from semrecall.stats.agreement import (
    alpha,
    coincidences,
    conditional_agreement,
    distances,
    kappa,
    kappa_error,
    kendall_tau,
    label_tables,
    mcnemar_p,
    observed_agreement,
    specific_agreement,
    table_interval,
)

# The table of the paper, rows Gemini (relevant, not), columns people.
PAPER = np.array([[5181, 608], [282, 3929]])
# Three classes; the numbers below are scikit-learn 1.9.1 and statsmodels 0.15.0 on it.
THREE = np.array([[10, 3, 1], [2, 8, 4], [0, 5, 7]])
# The reliability data of Krippendorff, "Computing Krippendorff's alpha-reliability" (2011):
# four observers, twelve units, 0 is a gap.
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
)


def coincidence(codes):
    codes = np.asarray(codes)
    groups = np.zeros(codes.shape[1], dtype=np.int64)
    return coincidences(codes, groups, 1, int(codes.max()) + 1)[0]


def test_the_table_of_the_paper():
    # (5181 + 3929) / 10000; by chance (5789 * 5463 + 4211 * 4537) / 10000^2 = 0.50731:
    # (0.911 - 0.50731) / (1 - 0.50731) = 0.8194.
    assert observed_agreement(PAPER) == 0.911
    assert kappa(PAPER) == pytest.approx(0.8194, abs=5e-5)
    # 5181 / 5789 and 3929 / 4211: "per category" there is conditional on Gemini's label.
    assert conditional_agreement(PAPER, 0, given=0) == pytest.approx(0.895, abs=5e-4)
    assert conditional_agreement(PAPER, 1, given=0) == pytest.approx(0.933, abs=5e-4)
    # 5181 / 5463 and 3929 / 4537: on that of people.
    assert conditional_agreement(PAPER, 0, given=1) == pytest.approx(0.9484, abs=5e-5)
    assert conditional_agreement(PAPER, 1, given=1) == pytest.approx(0.8660, abs=5e-5)
    # 2 * 5181 / (5789 + 5463) and 2 * 3929 / (4211 + 4537).
    assert specific_agreement(PAPER, 0) == pytest.approx(0.921, abs=5e-4)
    assert specific_agreement(PAPER, 1) == pytest.approx(0.898, abs=5e-4)


def test_weighted_kappa_and_its_error_as_other_programs_have_them():
    grades = [0, 1, 2]
    assert kappa(THREE) == pytest.approx(0.43609022556390975, rel=1e-12)
    assert kappa(THREE, distances(grades, "linear")) == pytest.approx(0.5348837209302326, rel=1e-12)
    assert kappa(THREE, distances(grades, "quadratic")) == pytest.approx(0.64, rel=1e-12)
    assert kappa_error(THREE) == pytest.approx(0.11567494042578698, rel=1e-12)
    assert kappa_error(PAPER) == pytest.approx(0.00576534649809833, rel=1e-12)


def test_weights_follow_the_grades_and_not_their_places():
    # Grades 0, 1, 4: the far cells weigh 4 and 3, not 2 and 1.
    assert distances([0, 1, 4], "linear").tolist() == [[0, 1, 4], [1, 0, 3], [4, 3, 0]]
    assert distances([0, 0.5, 1], "quadratic")[0].tolist() == [0, 0.25, 1]
    with pytest.raises(InputError, match="expected equal, linear or quadratic"):
        distances([0, 1], "cubic")


@pytest.mark.parametrize(
    ("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_of_krippendorffs_own_example(level, published):
    table = coincidence(OBSERVERS - 1)
    # 41 values, of which the last unit has one alone: 40 can be paired.
    assert table.sum() == pytest.approx(40)
    assert alpha(table, [1, 2, 3, 4, 5], level) == pytest.approx(published, abs=5e-4)


@given(
    arrays(np.int64, st.tuples(st.integers(2, 4), st.integers(1, 8)), elements=st.integers(-1, 2))
)
def test_alpha_is_its_definition(codes):
    """Over all ordered pairs of labels, within units and in all."""
    units = [[c for c in unit if c >= 0] for unit in codes.T.tolist()]
    units = [unit for unit in units if len(unit) > 1]
    labels = [c for unit in units for c in unit]
    table = coincidences(codes, np.zeros(codes.shape[1], dtype=np.int64), 1, 3)[0]
    everything = list(permutations(labels, 2))
    expected = sum((a - b) ** 2 for a, b in everything) / max(1, len(everything))
    within = sum(
        sum((a - b) ** 2 for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in units
    ) / max(1, len(labels))
    found = float(alpha(table, [0, 1, 2], "interval"))
    if expected == 0:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(1 - within / expected, abs=1e-9)


tables = arrays(np.float64, st.tuples(st.just(3), st.just(3)), elements=st.integers(0, 9))


@given(tables)
def test_kappa_is_symmetric_and_at_most_one(table):
    value, turned = float(kappa(table)), float(kappa(table.T))
    assert value == pytest.approx(turned, nan_ok=True, abs=1e-12)
    assert math.isnan(value) or value <= 1
    # Weights that are all alike are no weights.
    alike = float(kappa(table, 7 * distances([0, 1, 2])))
    assert alike == pytest.approx(value, nan_ok=True, abs=1e-12)


def test_one_class_has_no_kappa_and_perfect_agreement():
    every = np.array([[12, 0], [0, 0]])
    assert observed_agreement(every) == 1.0
    assert math.isnan(kappa(every))
    assert math.isnan(kappa_error(every))
    assert math.isnan(specific_agreement(every, 1))
    assert math.isnan(alpha(every * 2, [0, 1]))
    # One judge says yes to all, the other does not: no better than chance.
    assert kappa([[6, 4], [0, 0]]) == 0.0
    assert math.isnan(observed_agreement(np.zeros((2, 2))))


def test_mcnemar_counts_what_differs():
    # Of 10 that differ, 9 one way: 2 * (1 + 10) / 2^10.
    assert mcnemar_p(9, 1) == pytest.approx(22 / 1024)
    assert mcnemar_p(0, 0) == 1.0
    assert 0 < mcnemar_p(5000, 0) < 1e-300


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=9))
def test_tau_is_scipys(pairs):
    a, b = np.array(pairs, dtype=float).T
    found = float(kendalltau(a, b).statistic)
    assert kendall_tau(a, b) == pytest.approx(found, nan_ok=True, abs=1e-12)


def test_tables_by_group():
    # Groups 0 and 2 have labels, 1 has none.
    found = label_tables(np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([0, 0, 2]), 3, 2)
    assert found.tolist() == [[[1, 0], [1, 0]], [[0, 0], [0, 0]], [[0, 0], [0, 1]]]


# -- intervals ------------------------------------------------------------------------------------


def judged_queries(rng, n, pairs=20):
    """Tables of n queries: how much is relevant, and who errs how often, differs between them."""
    share = rng.beta(0.8, 1.6, n)[:, None]
    errors = rng.beta(1, 5, (2, n, 1))
    errors[1] = np.clip(errors[1] * np.where(rng.random((n, 1)) < 0.3, 2.5, 0.5), 0, 1)
    relevant = rng.random((n, pairs)) < share
    a, b = (relevant ^ (rng.random((n, pairs)) < e) for e in errors)
    cells = [[a & b, a & ~b], [~a & b, ~a & ~b]]
    return np.array([[c.sum(axis=1) for c in row] for row in cells]).transpose(2, 0, 1)


# 300 draws of a true 95% have a standard error of 1.3 points: three of them each side.
@pytest.mark.parametrize("n", [10, 40])
def test_intervals_of_kappa_cover_it_in_95_of_100_draws(n):
    rng = np.random.default_rng(1)
    true = float(kappa(judged_queries(rng, 100_000).sum(axis=0)))
    by_queries = by_pairs = 0
    for seed in range(300):
        found = judged_queries(rng, n)
        low, high = table_interval(found, kappa, resamples=1000, seed=seed)
        by_queries += low <= true <= high
        whole = found.sum(axis=0)
        by_pairs += abs(float(kappa(whole)) - true) <= 1.96 * kappa_error(whole)
    assert 0.91 <= by_queries / 300 <= 0.99
    # As if pairs were independent, the interval misses every third time.
    assert by_pairs / 300 < 0.75


def test_of_a_mean_they_are_the_intervals_of_means():
    # Queries of equally many pairs: agreement is the mean of theirs. A skewed one, so that the
    # corrections show.
    found = judged_queries(np.random.default_rng(8), 25)
    means = observed_agreement(found)
    expected = bootstrap_means(means, seed=4)[0]
    assert table_interval(found, observed_agreement, seed=4) == pytest.approx(expected, abs=1e-12)
    # Of a sum too, where queries differ in size: what counts is the sum, and not a mean.
    sizes = np.arange(1.0, 26.0)
    low, high = table_interval(found * sizes[:, None, None], lambda t: t.sum(axis=(-2, -1)), seed=4)
    expected = 25 * 20 * bootstrap_means(sizes, seed=4)[0]
    assert (low, high) == pytest.approx(expected, rel=1e-12)


def test_intervals_repeat_and_know_what_they_cannot_say():
    found = judged_queries(np.random.default_rng(5), 30)
    one = table_interval(found, kappa, seed=3)
    assert one == table_interval(found, kappa, seed=3)
    assert one != table_interval(found, kappa, seed=4)
    wide = table_interval(found, kappa, seed=3, confidence=0.99)
    assert wide[0] < one[0] < float(kappa(found.sum(axis=0))) < one[1] < wide[1]
    # One query, and one class, have no interval; two queries that agree alike have one of no width.
    assert np.isnan(table_interval(found[:1], kappa)).all()
    assert np.isnan(table_interval([[[3, 0], [0, 0]]] * 4, kappa)).all()
    assert table_interval([[[3, 0], [0, 2]]] * 4, kappa) == (1.0, 1.0)
    with pytest.raises(InputError, match=r"expected \(\.\.\., c, c\)"):
        table_interval([[1.0, 2.0, 3.0]], kappa)
