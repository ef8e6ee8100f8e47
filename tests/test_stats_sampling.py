"""Samples with known probabilities: how often each is drawn, and what their estimates are worth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.errors import InputError
from semrecall.stats.sampling import draw_sample, inclusion_probabilities


def test_probabilities_by_hand():
    # 4 + 3 + 2 + 1 = 10: two of them in proportion 0.8, 0.6, 0.4, 0.2.
    np.testing.assert_allclose(inclusion_probabilities([4, 3, 2, 1], 2), [0.8, 0.6, 0.4, 0.2])
    # 10 of 13 twice is more than 1: it is certain, the others share what is left, 1 of 3.
    np.testing.assert_allclose(inclusion_probabilities([1, 10, 1, 1], 2), [1 / 3, 1, 1 / 3, 1 / 3])
    # One after the other: 10 is certain, then 5 of 7 twice more is, too.
    np.testing.assert_allclose(inclusion_probabilities([5, 1, 10, 1], 3), [1, 0.5, 1, 0.5])
    np.testing.assert_array_equal(inclusion_probabilities([2, 2, 2], 3), [1, 1, 1])
    np.testing.assert_array_equal(inclusion_probabilities([2, 7], 0), [0, 0])
    assert inclusion_probabilities([], 0).shape == (0,)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.data())
def test_probabilities_add_up_and_the_sample_has_that_size(weights, data):
    size = data.draw(st.integers(0, len(weights)))
    chances = inclusion_probabilities(weights, size)
    assert chances.sum() == pytest.approx(size)
    assert ((chances >= 0) & (chances <= 1)).all()
    below = chances < 1
    ratio = chances[below] / np.array(weights)[below]
    np.testing.assert_allclose(ratio, ratio[:1].repeat(len(ratio)))
    drawn = draw_sample(chances, seed=data.draw(st.integers(0, 99)))
    assert len(drawn) == len(set(drawn.tolist())) == size
    assert set(np.flatnonzero(chances == 1)) <= set(drawn.tolist())


def test_each_is_drawn_with_its_probability():
    chances = inclusion_probabilities([8, 4, 2, 1, 1, 1, 1], 3)
    draws = 4000
    counts = np.zeros(7)
    for seed in range(draws):
        counts[draw_sample(chances, seed=seed)] += 1
    # Four standard errors.
    margin = 4 * np.sqrt(chances * (1 - chances) / draws)
    assert (np.abs(counts / draws - chances) <= margin).all()


def test_an_estimate_weighted_by_the_probabilities_is_unbiased():
    # The total of the population from 20 of 200, 1 / probability each; the plain total is not it.
    random = np.random.default_rng(0)
    weights = random.uniform(1, 9, 200)
    values = (random.random(200) < weights / 10).astype(float)
    chances = inclusion_probabilities(weights, 20)
    totals = []
    for seed in range(1500):
        drawn = draw_sample(chances, seed=seed)
        totals.append((values[drawn] / chances[drawn]).sum())
    assert abs(np.mean(totals) - values.sum()) < 4 * np.std(totals) / np.sqrt(len(totals))
    plain = np.mean([values[draw_sample(chances, seed=s)].mean() * 200 for s in range(300)])
    assert plain > 1.1 * values.sum()


def test_equal_probabilities_are_a_simple_random_sample():
    # Every pair of 5 is drawn equally often: 1 in 10.
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(5000):
        pair = tuple(draw_sample([0.4] * 5, seed=seed).tolist())
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 10
    assert max(abs(c - 500) for c in counts.values()) < 4 * np.sqrt(5000 * 0.1 * 0.9)


def test_the_same_seed_draws_the_same():
    chances = [0.5] * 40
    assert draw_sample(chances, seed=3).tolist() == draw_sample(chances, seed=3).tolist()
    assert draw_sample(chances, seed=3).tolist() != draw_sample(chances, seed=4).tolist()
    assert draw_sample([]).tolist() == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: inclusion_probabilities([1, 2], 3), "a sample of 3 from 2"),
        (lambda: inclusion_probabilities([1, 0], 1), "must be positive"),
        (lambda: inclusion_probabilities([1, np.nan], 1), "must be positive"),
        (lambda: draw_sample([0.5, 1.5]), "between 0 and 1"),
    ],
)
def test_what_is_no_sample_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call()
