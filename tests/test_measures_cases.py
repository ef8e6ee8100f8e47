"""Cases where existing tools fail or disagree: inputs written out, values from the case file.

A case function takes the expected values of its line and asserts; its name ends in the case's id.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from semrecall.data import Judgments, Run
from semrecall.measures import align, parse, recall_bounds, srecall_bounds

NAN = math.nan
CASES = {}


def case(function):
    CASES[function.__name__.rsplit("_", 1)[1].upper()] = function
    return function


def lay(ids, gt_ids, dist=None, gt_dist=None, space="l2", k=None, by="exact"):
    truth = Run.from_arrays(gt_ids, gt_dist, space=space, k=k, scores_by="exact")
    return align(Run.from_arrays(ids, dist, space=space, scores_by=by), truth)


def values(spelling, problem):
    return parse(spelling).values(problem).values.tolist()


def of(spelling, *args, **options):
    (only,) = values(spelling, lay(*args, **options))
    return only


@case
def repeated_neighbour_a01(expected):
    problem = lay([[1, 1, 1]], [[1, 2, 3]], [[1, 1, 1]], [[1, 2, 3]])
    assert values("recall@3", problem) == [expected["recall"]]
    assert problem.repeats.tolist() == expected["duplicates_per_query"]
    # The peers count the one neighbour three times, by distance or by id.
    assert values("annb_knn@3", problem) == values("vdbb_recall@3", problem) == [1.0]


@case
def padded_on_both_sides_a02(expected):
    problem = lay([[7, -1, -1]], [[7, -1, -1]])
    assert values("recall@3", problem) == [expected["recall"]]
    assert problem.true_lengths.tolist() == expected["n_gt_valid"]
    assert problem.found_lengths.tolist() == expected["n_returned_valid"]
    # {7, -1} of three columns.
    assert values("faiss_inter@3", problem) == values("bigann@3", problem) == [2 / 3]


@case
def filter_matches_nothing_a03(expected):
    problem = lay([[-1, -1, -1], [1, 2, 9]], [[-1, -1, -1], [1, 2, 3]])
    scores = parse("recall@3").values(problem)
    assert scores.mean == expected["recall_mean"]
    assert int(scores.defined.sum()) == expected["n_scored"]
    assert scores.undefined == {"no exact neighbour": expected["n_excluded_empty_gt"]}
    assert [None if math.isnan(v) else v for v in scores.values] == expected["recall_per_query"]
    assert values("faiss_inter@3", problem)[0] == values("bigann@3", problem)[0] == 1 / 3


@case
def filter_leak_a04(expected):
    problem = lay([[4, 5, -1]], [[-1, -1, -1]])
    assert expected["recall"] is None
    assert math.isnan(values("recall@3", problem)[0])
    assert problem.violations.tolist() == [expected["violations"]]


@case
def fewer_neighbours_than_k_a05(expected):
    truth = [["5", "6", "7", "-1", "-1"]]
    assert of("recall@5", [["5", "x", "y"]], truth) == expected["recall"]


@case
def usearch_pads_with_0_a06(expected):
    run = Run.from_arrays([[1, 3, 2, 0, 0]], [[0.0, 7.4, 8.6, NAN, NAN]], counts=[3], space="l2")
    problem = align(run, Run.from_arrays([[1, 3, 2, 0, 4]]))
    assert problem.found.tolist() == [expected["ids_used"][0][:3]]
    assert values("recall@5", problem) == [expected["recall"]]
    # The NaN distances alone say the same.
    unsaid = Run.from_arrays([[1, 3, 2, 0, 0]], [[0.0, 7.4, 8.6, NAN, NAN]], space="l2")
    assert values("recall@5", align(unsaid, Run.from_arrays([[1, 3, 2, 0, 4]]))) == [0.6]


@case
def narrower_than_k_a08(expected):
    # min(k, 5) neighbours exist: 5 of 5, and 4 of 5.
    assert "min(k, n_gt_valid=5)" in expected["recall"]
    truth = [[1, 2, 3, 4, 5]] * 2
    assert values("recall@10", lay([[1, 2, 3, 4, 5], [9, 2, 3, 4, 5]], truth, k=10)) == [1.0, 0.8]


@case
def more_results_than_k_all_tied_a10(expected):
    problem = lay([[1, 2, 3, 4]], [[1, 2, 3, 4]], [[1, 1, 1, 1]], [[1, 1, 1, 1]])
    assert values("recall@2", problem) == [expected["recall_ties"]]
    # The run is cut to k: 1 and 2 are the neighbours, 3 and 4 are never looked at.
    assert expected["cut_to_k"]
    reversed_ = lay([[4, 3, 2, 1]], [[1, 2, 3, 4]], [[1, 1, 1, 1]], [[1, 1, 1, 1]])
    assert values("recall(ties=no)@2", reversed_) == [0.0]
    assert values("recall@2", reversed_) == [1.0]
    assert values("bigann@2", problem) == [2.0]


@case
def every_vector_stored_a_hundred_times_a11(expected):
    random = np.random.default_rng(1)
    distinct = random.normal(size=(10, 8))
    query, order = random.normal(size=8), random.permutation(1000)
    base = np.repeat(distinct, 100, axis=0)
    distances = np.linalg.norm(distinct - query, axis=1).repeat(100)
    exact = np.argsort(distances, kind="stable")[:10]
    again = order[np.argsort(distances[order], kind="stable")[:10]]
    assert (base[exact] == base[again]).all()
    problem = lay([again], [exact], [distances[again]], [distances[exact]])
    assert values("recall(ties=no)@10", problem)[0] <= 0.3
    assert values("recall@10", problem) == [expected["recall_ties"]]
    assert values("trecall(x=0)@10", problem) == [expected["tolerant_recall@0"]]
    # Without exact scores: not settled, and said so.
    low, high, open_ = recall_bounds(lay([again], [exact], None, [distances[exact]]), 10)
    assert (low[0] <= 0.3, high[0], open_[0]) == (True, 1.0, True)


@case
def ties_past_the_stored_truth_a12(expected):
    true, found = [[*range(100)]], [[*range(500, 510)]]
    ones = [[1.0] * 100]
    assert "k-th score" in expected["behaviour"]
    assert of("recall@10", found, true, [[1.0] * 10], ones) == 1.0
    low, high, open_ = recall_bounds(lay(found, true, None, ones), 10)
    assert (low[0], high[0], open_[0]) == (0.0, 1.0, True)
    # Scores by the index settle nothing.
    low, high, _ = recall_bounds(lay(found, true, [[1.0] * 10], ones, by="index"), 10)
    assert (low[0], high[0]) == (0.0, 1.0)


@case
def absolute_threshold_a14(expected):
    problem = lay([[7, 8, 9]], [[1, 2, 3]], [[0.0005, 0.0008, 0.0012]], [[0.0001, 0.0002, 0.0003]])
    assert values("recall@3", problem) == [expected["recall"]]
    assert values("annb_knn@3", problem) == [expected["recall_annb_abs1e-3"]]


@case
def kth_distance_is_0_a15(expected):
    problem = lay([[1, 2, 9]], [[1, 2, 3]], [[0, 0, 0.0001]], [[0, 0, 0]])
    value = expected["recall_at_k_eps"]
    assert values("erecall(eps=1%)@3", problem) == values("annb_eps@3", problem) == [value]
    (note,) = parse("erecall(eps=1%)@3").values(problem).notes
    assert note == "queries whose k-th score is 0, where a relative tolerance is void: 1"


@case
def truth_padded_with_infinity_a16(expected):
    inf = math.inf
    problem = lay([[7, 8, 9]], [[1, -1, -1]], [[5, 6, 7]], [[1, inf, inf]])
    assert values("recall@3", problem) == [expected["recall"]]
    assert values("annb_knn@3", problem) == [1.0]


@case
def minus_one_is_not_the_last_vector_a17(expected):
    problem = lay([[-1]], [[3]], [[0.0]], [[0.0]])
    assert values("recall@1", problem) == [expected["recall"]]
    assert problem.missing.tolist() == [expected["missing"]]


@case
def ids_of_different_types_a24(expected):
    assert of("recall@3", [["1", "2", "3"]], [[1, 2, 3]]) == expected["recall"]


@case
def the_denominator_stays_k_a27(expected):
    assert of("recall@10", [[1]], [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]) == expected["recall"]


@case
def ndcg_that_ignores_rank_a28(expected):
    run = Run.from_arrays([[3, 2, 1]])
    binary = Judgments.from_dict({0: {1: 1, 2: 1, 3: 1}})
    graded = Judgments.from_dict({0: {1: 3, 2: 2, 3: 1}})
    assert values("nDCG@3", align(run, None, binary)) == [expected["ndcg_binary"]]
    assert "0.7900" in expected["ndcg_graded_by_gt_rank"]
    assert round(values("nDCG@3", align(run, None, graded))[0], 4) == 0.79


@case
def recall_kept_from_another_k_a29(expected):
    problem = lay([[1, 8, 9]], [[1, 2, 3]], [[1, 5, 6]], [[1, 2, 3]])
    for spelling in ("recall@1", "recall@3", "recall@1"):
        assert values(spelling, problem) == [expected[spelling]]
        assert values(spelling.replace("recall", "annb_knn"), problem) == [expected[spelling]]


@case
def three_numbers_called_recall_a30(expected):
    problem = lay([[2, 1, 9]], [[1, 2, 3]])
    assert values("one@3", problem) == [expected["one_recall_at_3"]]
    assert values("recall@3", problem) == [expected["recall_at_3"]]


@case
def summing_ratios_a31(expected):
    true = np.tile(np.arange(100), (5000, 1))
    found = true.copy()
    found[0, :5] = 900
    assert parse("recall@100").values(lay(found, true)).mean == expected["recall"]
    assert parse("recall@100").values(lay(true, true)).mean == 1.0


@case
def queries_of_different_size_a32(expected):
    scores = parse("recall@9").values(lay([[1], [99]], [[1], [*range(1, 10)]]))
    assert scores.mean == expected["macro"]


@case
def negative_scores_b03(expected):
    args = [[1, 2, 3]], [[1, 2, 3]], [[-1, -2, -3]], [[-1, -2, -3]]
    assert of("trecall(x=0.01)@3", *args, space="ip") == expected["trecall"]
    # Without ids in common, so that only the scores speak.
    args = [[7, 8, 9]], [[1, 2, 3]], [[-1, -2, -3]], [[-1, -2, -3]]
    assert of("trecall(x=0.01)@3", *args, space="ip") == expected["trecall"]


@case
def direction_of_distances_b04(expected):
    args = [[7, 8, 9]], [[1, 2, 3]], [[1, 2, 3.02]], [[1, 2, 3]]
    assert of("trecall(x=0.01)@3", *args) == expected["trecall"]


@case
def squared_distances_b05(expected):
    assert of("trecall(x=0.01)@1", [[7]], [[1]], [[10.06]], [[10.0]]) == expected["trecall_l2"]
    squared = of("trecall(x=0.01)@1", [[7]], [[1]], [[101.2036]], [[100.0]])
    assert squared == expected["trecall_l2sq"]


@case
def distance_0_in_the_truth_b06(expected):
    assert of("rde@2", [[1, 2]], [[1, 2]], [[0, 1]], [[0, 1]]) == expected["rde"]
    # x / 0 with x > 0 is left out and counted.
    scores = parse("rde@2").values(lay([[8, 2]], [[1, 2]], [[0.5, 1]], [[0, 1]]))
    assert scores.values.tolist() == [0.0]
    assert scores.notes == ("ranks left out where only the neighbour's score is 0: 1",)


def judged(ids, gt_ids, labels):
    return align(Run.from_arrays(ids), Run.from_arrays(gt_ids), Judgments.from_dict({0: labels}))


@case
def unjudged_truth_b11(expected):
    problem = judged([[1, 2, 9]], [[1, 2, 3]], {"1": 1, "2": 0})
    assert values("srecall@3", problem) == [expected["srecall_judged"]]
    low, high, share = srecall_bounds(problem, 3)
    assert [low[0], high[0]] == expected["srecall_bounds"]
    assert share[0] == expected["judged_share"]


@case
def r_precision_is_another_number_b12(expected):
    ids = [[1, 2, 9, 3, 8]]
    problem = judged(ids, ids, {1: 1, 2: 1, 3: 1, 9: 0, 8: 0})
    assert values("srecall@5", problem) == [expected["srecall"]]
    assert values("srprec@5", problem) == [expected["r_precision_of_exact_search"]]


@case
def all_relevant_b13(expected):
    problem = judged([[1, 9]], [[1, 2]], {1: 1, 2: 1})
    assert values("srecall@2", problem) == [expected["srecall"]]
    assert values("recall@2", problem) == [expected["recall"]]


@case
def boundary_of_robustness_b15(expected):
    # 9, 3, 10 and 3 of 10 found; ceil(0.3 * 10) = 3 are enough.
    found = [[*range(n), *range(50, 60 - n)] for n in (9, 3, 10, 3)]
    scores = parse("robustness(delta=0.3)@10").values(lay(found, [[*range(10)]] * 4))
    assert scores.mean == expected["robustness"]


@case
def scores_estimated_by_the_index_b17(expected):
    assert "index scores" in expected["behaviour"]
    problem = lay([[9]], [[1]], [[0.82]], [[0.8]], space="ip", by="index")
    assert parse("trecall(x=1%)@1").values(problem).notes == ("scores by the index",)
    exact = lay([[9]], [[1]], [[0.79]], [[0.8]], space="ip")
    assert parse("trecall(x=1%)@1").values(exact).values.tolist() == [0.0]


@case
def zero_query_vector_c02(expected):
    truth = Run.from_arrays([[-1, -1], [1, 2]], k=2).replace(reasons=("zero query vector", ""))
    scores = parse("recall@2").values(align(Run.from_arrays([[1, 2], [1, 2]]), truth))
    assert expected["recall"] is None
    assert scores.undefined == {"zero query vector": expected["n_excluded_invalid_query"]}


@case
def deleted_documents_d12(expected):
    truth = Run.from_arrays([[1, 2, 3, 4]]).without([2])
    assert values("recall@3", align(Run.from_arrays([[1, 3, 4]]), truth)) == [expected["recall"]]
    # With a stated depth of 4, only 3 are left that are sure.
    assert Run.from_arrays([[1, 2, 3, 4]], k=4).without([2]).k == 3


@case
def same_float32_scores_c05(expected):
    # Vectors that differ after the 6th decimal get equal float32 scores: a tie, credited.
    near = np.float32(0.1) + np.array([0, 1e-10, 2e-10], dtype=np.float32)
    assert len(set(near.tolist())) == 1
    assert "score-tie recall 1.0" in expected["behaviour"]
    args = [[1, 9]], [[1, 2]], [near[[0, 2]]], [near[:2]]
    assert of("recall@2", *args) == 1.0


@pytest.mark.parametrize("identity", sorted(CASES))
def test_case(identity, shared):
    lines = map(json.loads, shared("cases/index.jsonl").read_text().splitlines())
    CASES[identity](next(line for line in lines if line["id"] == identity)["expected"])
