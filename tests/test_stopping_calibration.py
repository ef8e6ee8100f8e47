"""Calibration of a threshold: by hand, by the definition, and its promise over many draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from semrecall.stopping.calibration import calibrated, expected_bound, queries_needed, stops


def test_by_hand():
    # Losses after each of three rounds, and what the model says then.
    losses = np.array([[0.4, 0.2, 0.0], [0.1, 0.0, 0.0], [0.3, 0.3, 0.0]])
    scores = np.array([[0.2, 0.6, 0.9], [0.7, 0.8, 0.9], [0.1, 0.5, 0.9]])
    # With a threshold t queries stop at: t >= 0.8: nowhere early, losses 0 0 0;
    # 0.7: second query in round 2 (0.8 > 0.7), 0 0 0; 0.6: in round 1, 0 + 0.1 + 0 = 0.1;
    # 0.5: the first in round 2, 0.2 + 0.1 = 0.3; 0.2: the third in round 2, 0.6;
    # 0.1: the first in round 1, 0.4 + 0.1 + 0.3 = 0.8; below: the same, third in round 1.
    # Bound = (sum + 1) / 4.
    for allowed, threshold, bound in [
        (0.25, 0.7, 0.25),
        (0.274, 0.7, 0.25),
        (0.275, 0.6, 0.275),
        (0.33, 0.5, 0.325),
        (0.40, 0.2, 0.4),
        (0.449, 0.2, 0.4),
        (0.45, -math.inf, 0.45),
    ]:
        found = calibrated(scores, losses, allowed, 1.0)
        assert found.threshold == threshold
        assert found.bound == pytest.approx(bound)
        assert found.loss == pytest.approx((4 * bound - 1) / 3)
        at = stops(scores, found.threshold)
        assert losses[np.arange(3), at].sum() == pytest.approx(3 * found.loss)


def test_what_cannot_be_bounded_never_stops_early():
    found = calibrated(np.zeros((3, 2)), np.zeros((3, 2)), 0.2, 1.0)
    # (0 + 1) / 4 = 0.25 with three queries; it takes four: 1 / 5.
    assert (found.threshold, found.bound, found.loss, found.n) == (math.inf, 0.25, 0.0, 3)
    assert queries_needed(0.0, 0.2, 1.0) == 4
    assert expected_bound(np.zeros(4), 1.0) == pytest.approx(0.2)
    assert queries_needed(0.2, 0.2, 1.0) is None
    assert stops(np.ones((2, 3)), math.inf).tolist() == [2, 2]


def test_a_loss_that_comes_back_is_counted_from_the_first():
    # Round 2 is perfect, but round 3 loses 0.5: whoever stops in round 2 was lucky.
    found = calibrated(np.array([[0.1, 0.6, 0.9]] * 9), np.array([[0.9, 0.0, 0.5]] * 9), 0.4, 1.0)
    # Even the end has a bound of (9 * 0.5 + 1) / 10 = 0.55.
    assert (found.threshold, found.bound) == (math.inf, pytest.approx(0.55))


@st.composite
def problems(draw):
    n, rounds = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    few = st.integers(0, 4)
    scores = draw(arrays(np.int64, (n, rounds), elements=few)) / 4
    losses = draw(arrays(np.int64, (n, rounds), elements=few)) / 4
    return scores, losses, draw(st.integers(1, 8)) / 8


@given(problems())
def test_the_definition(problem):
    """The lowest threshold whose bound holds, among all that make a difference."""
    scores, losses, allowed = problem
    ahead = np.array([[row[t:].max() for t in range(len(row))] for row in losses])
    every = np.arange(len(losses))

    def bound(threshold):
        at = stops(scores, threshold)
        return (ahead[every, at].sum() + 1) / (len(losses) + 1)

    fitting = [t for t in (-math.inf, *sorted(set(scores.reshape(-1)))) if bound(t) <= allowed]
    found = calibrated(scores, losses, allowed, 1.0)
    if fitting and bound(math.inf) <= allowed:
        assert bound(found.threshold) == pytest.approx(bound(min(fitting)))
        # No lower one does: between two values nothing changes.
        assert found.threshold <= min(fitting) or bound(min(fitting)) == bound(found.threshold)
    else:
        assert found.threshold == math.inf


def draw(rng, n, rounds=12):
    """Queries whose losses fall at a speed of their own, and a model that knows it roughly."""
    speed = rng.gamma(2.0, 0.25, (n, 1))
    losses = 0.9 * np.exp(-speed * np.arange(rounds))
    losses[rng.random(n) < 0.1] = 0.9
    losses[:, -1] = 0.0
    return -losses + rng.normal(0, 0.15, losses.shape), losses


@pytest.mark.parametrize(("n", "allowed"), [(20, 0.1), (60, 0.05), (200, 0.02)])
def test_the_promise_holds_over_draws(n, allowed):
    """Mean loss of new queries over 400 calibrations: at most what is allowed, and near it."""
    rng = np.random.default_rng(n)
    means = []
    for _ in range(400):
        found = calibrated(*draw(rng, n), allowed, 0.9)
        scores, losses = draw(rng, 200)
        means.append(losses[np.arange(200), stops(scores, found.threshold)].mean())
    error = np.std(means) / math.sqrt(len(means))
    assert np.mean(means) <= allowed + 3 * error
    # The correction for n is all that is given away: most / (n + 1), and as much again at most.
    assert np.mean(means) >= allowed - 2 * 0.9 / (n + 1) - 3 * error


def test_the_correction_is_what_it_takes():
    """Twenty queries that lose 0.9 when they stop early, a model that knows nothing, 0.2 allowed.

    Four of twenty may lose by the plain mean: 4 * 0.9 / 20 <= 0.2. The threshold is then the
    fifth score, which a new one exceeds in 5 of 21 cases: 0.9 * 5 / 21 = 0.214, too much. With
    the correction, (3 * 0.9 + 0.9) / 21 <= 0.2, it is the fourth: 0.9 * 4 / 21 = 0.171.
    """
    rng, losses = np.random.default_rng(1), np.tile([0.9, 0.0], (20, 1))
    # (sum + 0) / n <= 0.2 is (sum + 0.9) / (n + 1) <= (n * 0.2 + 0.9) / (n + 1).
    plain = (20 * 0.2 + 0.9) / 21
    for allowed, expected in ((0.2, 0.9 * 4 / 21), (plain, 0.9 * 5 / 21)):
        means = []
        for _ in range(2000):
            found = calibrated(rng.normal(size=(20, 2)).cumsum(axis=1), losses, allowed, 0.9)
            means.append(0.9 * (rng.normal(size=50) > found.threshold).mean())
        assert np.mean(means) == pytest.approx(expected, abs=4 * np.std(means) / 2000**0.5)
