"""Numbers of other tools: against their rules written out, one query at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semrecall.data import Run
from semrecall.measures import align, parse


def values(spelling, found, true, found_scores=None, true_scores=None, space="l2", k=None):
    truth = Run.from_arrays(true, true_scores, space=space, k=k)
    run = Run.from_arrays(found, found_scores, space=space)
    return parse(spelling).values(align(run, truth)).values.tolist()


def test_ann_benchmarks_distance_follows_the_space():
    # cosine: 1 - 0.9985 = 0.0015 is within 0.001 of 1 - 0.999 = 0.001; 1 - 0.9975 is not.
    args = [[8, 9]], [[1, 2]], [[0.9985, 0.9975]], [[1.0, 0.999]]
    assert values("annb_knn@2", *args, space="cosine") == [0.5]
    # ip: -4.9995 <= -5 + 0.001; with 1%: -5 * 1.01 = -5.05 is harder to reach.
    args = [[8, 9]], [[1, 2]], [[5.06, 4.9995]], [[6.0, 5.0]]
    assert values("annb_knn@2", *args, space="ip") == [1.0]
    assert values("annb_eps@2", *args, space="ip") == [0.5]


def test_ann_benchmarks_missing_results_are_infinitely_far():
    assert values("annb_knn@3", [[1]], [[1, 2, 3]], [[1.0]], [[1.0, 2.0, 3.0]]) == [1 / 3]
    # A truth shorter than k is padded with infinity, and anything is near that.
    assert values("annb_knn@3", [[1]], [[1]], [[9.0]], [[1.0]], k=3) == [1.0]
    assert values("annb_eps(eps=10%)@1", [[9]], [[1]], [[1.1]], [[1.0]]) == [1.0]


def test_big_ann_ties_are_those_stored_and_absolute():
    # Squared: 1.0, and 1.0000008 within 1e-6; 1.0000020 is not.
    true_scores = [[1.0, math.sqrt(1.0000008), math.sqrt(1.000002)]]
    assert values("bigann@1", [[2]], [[1, 2, 3]], None, true_scores) == [1.0]
    assert values("bigann@1", [[3]], [[1, 2, 3]], None, true_scores) == [0.0]
    # As distances the last two differ by 0.6e-6: only the squares tell them apart.
    assert values("bigann@1", [[3]], [[1, 3]], None, [[1000.0, 1000.0000006]]) == [0.0]
    assert values("bigann@1", [[3]], [[1, 3]], None, [[1000.0, 1000.0000006]], "ip") == [1.0]
    # A gap ends the ties, even if later distances come back.
    gap = [[1.0, 2.0, 1.0]]
    assert values("bigann@1", [[3]], [[1, 2, 3]], None, gap, "ip") == [0.0]


def test_repeats_count_once_for_sets_and_each_time_for_lists():
    found, true = [[5, 5, 9]], [[5, 6, 7]]
    assert values("faiss_inter@3", found, true) == [1 / 3]
    assert values("bigann@3", found, true) == [1 / 3]
    assert values("vdbb_recall@3", found, true) == [2 / 3]


def test_big_ann_and_faiss_differ_in_the_width_of_a_row():
    found, true = [[9, 8, 1]], [[1, 2, 3]]
    # big-ann takes all results handed in, faiss the first k.
    assert values("bigann@2", found, true) == [0.5]
    assert values("faiss_inter@2", found, true) == [0.0]
    assert values("vdbb_recall@2", found, true) == [0.0]


def test_ids_up_to_the_largest():
    big = 2**63 - 1
    for name in ("bigann", "faiss_inter", "vdbb_recall"):
        assert values(f"{name}@1", [[big], [-1], [3]], [[big], [big], [3]]) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("seed", range(5))
def test_against_their_rules_in_plain_python(seed):
    random = np.random.default_rng(seed)
    n, k, depth = 30, 4, 7
    true = np.array([random.permutation(12)[:depth] for _ in range(n)])
    true_scores = np.sort(random.integers(0, 5, (n, depth)) / 2, axis=1)
    found = random.integers(-1, 12, (n, k))
    scores = random.integers(0, 6, (n, k)) / 2
    true[::5, 2:] = -1
    true_scores[::5, 2:] = np.inf
    expected = {name: [] for name in ("annb_knn", "annb_eps", "bigann", "faiss_inter")}
    for t, d, f, s in zip(true, true_scores.tolist(), found, scores, strict=True):
        expected["annb_knn"].append(sum(x <= d[k - 1] + 1e-3 for x in s) / k)
        expected["annb_eps"].append(sum(x <= d[k - 1] * 1.01 for x in s) / k)
        end = k
        while end < depth and abs(d[k - 1] ** 2 - d[end] ** 2) < 1e-6:
            end += 1
        expected["bigann"].append(len(set(t[:end]) & set(f)) / k)
        expected["faiss_inter"].append(np.intersect1d(t[:k], f).size / k)
    for name, slow in expected.items():
        assert values(f"{name}@{k}", found, true, scores, true_scores) == slow, name


def test_faiss_inter_equals_faiss():
    faiss = pytest.importorskip("faiss")
    from importlib import import_module

    del faiss
    measure = import_module("faiss.contrib.evaluation").knn_intersection_measure
    random = np.random.default_rng(0)
    true, found = random.integers(-1, 30, (2, 50, 10))
    scores = parse("faiss_inter@10").values(align(Run.from_arrays(found), Run.from_arrays(true)))
    assert scores.mean == pytest.approx(measure(true, found), abs=1e-15)
