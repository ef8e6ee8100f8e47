"""Measures of the index layer, counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semrecall.data import Judgments, Run
from semrecall.errors import MismatchError
from semrecall.measures import align, parse, query_tolerance, recall_bounds, srecall_bounds


def problem(found, true, scores=None, true_scores=None, grades=None, **options):
    space = options.pop("space", "ip")
    by = options.pop("by", "exact")
    run = Run.from_arrays(found, scores, space=space, scores_by=by, **options)
    truth = Run.from_arrays(true, true_scores, space=space, scores_by="exact")
    judgments = None if grades is None else Judgments.from_dict(grades)
    return align(run, truth, judgments)


def value(spelling, *args, **options):
    values = parse(spelling).values(problem(*args, **options)).values
    return pytest.approx(values.tolist(), nan_ok=True, abs=1e-12)


# -- laying side by side --------------------------------------------------------------------------


def test_rows_are_the_truths_queries_and_a_query_the_run_lacks_scores_0():
    run = Run.from_arrays([[1], [2], [3]], query_ids=["b", "x", "a"])
    truth = Run.from_arrays([[3], [4], [1]], query_ids=["a", "c", "b"])
    both = align(run, truth)
    assert list(both.queries) == ["a", "c", "b"]
    assert both.answered.tolist() == [True, False, True]
    assert both.only_in_run == 1
    assert both.missing.tolist() == [0, 0, 0]
    assert both.found.tolist() == [[3], [-1], [1]]
    assert parse("recall@1").values(both).values.tolist() == [1.0, 0.0, 1.0]


def test_repeats_are_dropped_missing_and_leaks_are_counted():
    run = Run.from_arrays([[5, 5, 6], [-1, 7, -1], [8, 8, -1]])
    truth = Run.from_arrays([[5, 6, 7], [7, 8, 9], [-1, -1, -1]])
    both = align(run, truth)
    assert both.found.tolist() == [[5, 6], [7, -1], [8, -1]]
    # Query 1: 3 asked, 3 exist, 1 came. Query 2: nothing exists, 2 results (one twice) leaked.
    assert both.repeats.tolist() == [1, 0, 1]
    assert both.missing.tolist() == [0, 2, 0]
    assert both.violations.tolist() == [0, 0, 2]
    assert both.rank.tolist() == [[0, 1, -1], [0, -1, -1], [-1, -1, -1]]
    assert both.place.tolist() == [[0, 1], [0, -1], [-1, -1]]


def test_a_document_has_one_score_the_truths():
    both = problem([[1, 2, 9]], [[1, 2]], [[7.0, 6.0, 5.0]], [[8.0, 6.5]], by="index")
    assert both.found_scores.tolist() == [[8.0, 6.5, 5.0]]
    assert both.scores_by == "index"
    both = problem([[1, 9]], [[1, 2]], None, [[8.0, 6.5]])
    assert both.scores_by == "exact"
    np.testing.assert_array_equal(both.found_scores, [[8.0, np.nan]])


def test_reasons_of_the_truth_are_given_on_and_leak_nothing():
    truth = Run.from_arrays([[-1], [1]]).replace(reasons=("zero query vector", ""))
    both = align(Run.from_arrays([[4], [1]]), truth)
    scores = parse("recall@1").values(both)
    assert scores.undefined == {"zero query vector": 1}
    assert both.violations.tolist() == [0, 0]


def test_other_spaces_and_other_queries_are_refused():
    truth = Run.from_arrays([[1]], [[1.0]], space="ip")
    with pytest.raises(MismatchError, match="truth is of space ip, the run of space l2"):
        align(Run.from_arrays([[1]], [[1.0]], space="l2"), truth)
    with pytest.raises(MismatchError, match=r"none of the 1 queries of the truth is in the run"):
        align(Run.from_arrays([[1]], query_ids=["q1"]), truth)
    with pytest.raises(MismatchError, match="ids like 0, the judgments like '00'"):
        align(truth, truth, Judgments.from_dict({"00": {1: 1}}))


def test_huge_ids_and_string_ids_join_with_judgments():
    big = 2**62
    both = problem([[big, 5]], [[big, big + 1]], grades={0: {big: 1, big + 1: 0, 5: 1}})
    assert both.true_grades.tolist() == [[1.0, 0.0]]
    assert both.found_grades.tolist() == [[1.0, 1.0]]
    big = 2**63 - 1
    two = {0: {big: 1}, 1: {big - 1: 2}}
    both = problem([[big], [big]], [[big], [big - 1]], grades=two)
    np.testing.assert_array_equal(both.found_grades, [[1.0], [np.nan]])
    assert both.true_grades.tolist() == [[1.0], [2.0]]


def test_a_document_nobody_judged_takes_no_grade_from_the_next_query():
    both = problem([[3], [0]], [[2], [0]], grades={0: {2: 1}, 1: {0: 2}})
    np.testing.assert_array_equal(both.found_grades, [[np.nan], [2.0]])


def test_nothing_at_all():
    empty = Run.from_arrays(np.empty((0, 5), dtype=np.int64), k=5)
    assert parse("recall@5").values(align(empty, empty)).values.tolist() == []
    no_rows = align(Run.from_arrays([[], []]), Run.from_arrays([[], []], [[], []], k=3, space="l2"))
    for spelling in ("recall@3", "one@3", "trecall@3", "erecall@3", "rde@3"):
        scores = parse(spelling).values(no_rows)
        assert scores.undefined == {"no exact neighbour": 2}
    assert Run.from_dict({}).depth == 0


# -- recall and ties ------------------------------------------------------------------------------


def test_recall():
    # 2 of 4 found.
    assert value("recall@4", [[1, 9, 2, 8]], [[1, 2, 3, 4]]) == [0.5]
    # The first 2 results against the first 2 neighbours: 1 of 2.
    assert value("recall@2", [[1, 9, 2, 8]], [[1, 2, 3, 4]]) == [0.5]


def test_a_tie_at_rank_k_replaces_a_missed_neighbour_of_the_same_tie_only():
    true, scores = [[1, 2, 3, 4]], [[3.0, 2.0, 1.0, 1.0]]
    # 4 is tied with 3: as good an answer as exact search's own.
    assert value("recall@3", [[1, 2, 4]], true, None, scores) == [1.0]
    assert value("recall(ties=no)@3", [[1, 2, 4]], true, None, scores) == [2 / 3]
    # 3 and 4 together fill one seat; 1 was truly missed: 2 of 3.
    assert value("recall@3", [[2, 3, 4]], true, None, scores) == [2 / 3]
    # Two results tied with 3 fill its one seat, not that of 1: 1 of 3.
    deep = [[1, 2, 3, 4, 5]], None, [[3.0, 2.0, 1.0, 1.0, 1.0]]
    assert value("recall@3", [[4, 5, 9]], *deep) == [1 / 3]
    # 2 is not tied with anything at rank 2.
    assert value("recall@2", [[1, 3]], true, None, scores) == [0.5]


def test_a_tie_outside_the_truth_counts_only_by_exact_score():
    args = [[1, 9]], [[1, 2]], [[3.0, 2.0]], [[3.0, 2.0]]
    assert value("recall@2", *args, by="exact") == [1.0]
    assert value("recall@2", *args, by="index") == [0.5]
    # A better score than the k-th, yet not in the truth: no tie, and no credit.
    assert value("recall@2", [[1, 9]], [[1, 2]], [[3.0, 2.5]], [[3.0, 2.0]]) == [0.5]


def test_ties_that_may_go_on_past_the_truth_are_bracketed():
    both = problem([[1, 8, 9]], [[1, 2, 3]], None, [[3.0, 1.0, 1.0]])
    low, high, open_ = recall_bounds(both, 3)
    # 8 and 9 may have score 1.0 as well: 1 of 3, or 3 of 3.
    assert (low.tolist(), high.tolist(), open_.tolist()) == ([1 / 3], [1.0], [True])
    notes = parse("recall@3").values(both).notes
    assert notes == (
        "queries where ties at rank 3 may go on past the stored neighbours: 1; "
        "recall between 0.3333 and 1.0000",
    )
    # Exact scores settle it; so does a truth that keeps its ties.
    assert not recall_bounds(problem([[1, 8]], [[1, 2]], [[2.0, 0.5]], [[1.0, 1.0]]), 2)[2].any()
    kept = Run.from_arrays([[1, 2]], [[1.0, 1.0]]).replace(identity={"base": {"rows": 2}, "k": 2})
    assert not recall_bounds(align(Run.from_arrays([[1, 8]]), kept), 2)[2].any()


def test_a_run_that_is_less_deep_than_k_says_so():
    scores = parse("recall@3").values(problem([[1, 2]], [[1, 2, 3]]))
    assert scores.values.tolist() == [2 / 3]
    assert scores.notes == ("the run is 2 deep, less than k",)
    # Two exist, two were found: nothing is missing.
    truth = Run.from_arrays([[1, 2]], k=3)
    assert parse("recall@3").values(align(Run.from_arrays([[1, 2]]), truth)).notes == ()


def test_one_and_its_ties():
    # 1 is third of three, and is not among the first two.
    assert value("one@3", [[2, 3, 1]], [[1, 2, 3]]) == [1.0]
    assert value("one@2", [[2, 3, 1]], [[1, 2, 3]]) == [0.0]
    assert value("one@1", [[2]], [[1, 2]], None, [[5.0, 5.0]]) == [1.0]


def test_robustness_counts_in_whole_neighbours():
    # ceil(0.9 * 3) = 3: two of three are not enough; ceil(0.6 * 3) = 2 are.
    assert value("robustness@3", [[1, 2, 9]], [[1, 2, 3]]) == [0.0]
    assert value("robustness(delta=0.6)@3", [[1, 2, 9]], [[1, 2, 3]]) == [1.0]
    # 0.07 * 100 = 7.000000000000001 in floating point, but 7 of 100 are 7%.
    found, true = [[*range(7), *range(200, 293)]], [[*range(100)]]
    assert value("robustness(delta=7%)@100", found, true) == [1.0]


# -- semantic recall ------------------------------------------------------------------------------


def test_srecall_counts_or_weighs_the_relevant_neighbours():
    grades = {0: {1: 2, 2: 0, 3: 1, 4: 3}}
    # SN of the first 3 are {1, 3}; {1} is found: 1 of 2, by grade 2 of 3. 4 is no neighbour.
    args = [[1, 2, 4]], [[1, 2, 3, 4]]
    assert value("srecall@3", *args, grades=grades) == [0.5]
    assert value("srecall(gain=grade)@3", *args, grades=grades) == [2 / 3]
    assert value("srecall(rel=2)@3", *args, grades=grades) == [1.0]


def test_srecall_reasons():
    grades = {1: {1: 0}, 2: {9: 1}, 3: {1: 1}}
    found, true = [[1]] * 4, [[-1], [1], [1], [1]]
    scores = parse("srecall@1").values(problem(found, true, grades=grades))
    assert scores.reasons == (
        "no exact neighbour",
        "no semantic neighbour",
        "no judged neighbour",
        "",
    )
    assert scores.mean == 1.0
    zero = parse("srecall(rel=0,gain=grade)@1").values(problem([[1]], [[1]], grades={0: {1: 0}}))
    assert zero.reasons == ("no semantic neighbour",)


def test_a_negative_grade_weighs_nothing():
    grades = {0: {1: -2, 2: 1, 3: 1}}
    both = problem([[1, 2]], [[1, 2, 3]], grades=grades)
    # Weights 0, 1, 1: 1 of 2. By count all three are neighbours of grade -2 or more: 2 of 3.
    assert parse("srecall(rel=-2,gain=grade)@3").values(both).values.tolist() == [0.5]
    assert parse("srecall(rel=-2)@3").values(both).values.tolist() == [2 / 3]


def test_unjudged_neighbours_are_left_out_and_bounded():
    # Judged: 1 relevant and found, 3 relevant and missed. Unjudged: 2 found, 4 missed.
    both = problem([[1, 2]], [[1, 2, 3, 4]], grades={0: {1: 1, 3: 1}})
    low, high, judged = srecall_bounds(both, 4)
    # Value 1/2. Worst: 4 is relevant and 2 is not, 1/3. Best: 2 is and 4 is not, 2/3.
    assert (low.tolist(), high.tolist(), judged.tolist()) == ([1 / 3], [2 / 3], [0.5])
    scores = parse("srecall@4").values(both)
    assert scores.values.tolist() == [0.5]
    assert scores.notes[-1] == "unjudged neighbours: judged share 0.5000, bounds 0.3333 to 0.6667"


def test_bounds_where_only_the_unjudged_can_be_relevant():
    # All unjudged; found only, missed only, both, none (all judged irrelevant).
    grades = {0: {1: 0}, 1: {2: 0}, 2: {9: 1}, 3: {1: 0, 2: 0}}
    both = problem([[2], [9], [1], [1]], [[1, 2]] * 4, grades=grades)
    low, high, _ = srecall_bounds(both, 2)
    np.testing.assert_array_equal(low, [1.0, 0.0, 0.0, np.nan])
    np.testing.assert_array_equal(high, [1.0, 0.0, 1.0, np.nan])


def test_a_tied_result_stands_in_for_the_missed_neighbour_with_the_highest_grade():
    # 2, 3 and 4 are tied at rank 3. Exact search could have returned 4 in place of 2 or of 3.
    true, scores = [[1, 2, 3, 4]], [[3.0, 1.0, 1.0, 1.0]]
    grades = {0: {1: 1, 2: 1, 3: 2, 4: 0}}
    # Missed: 2 and 3. One credit goes to 3: (1 + 2) of (1 + 1 + 2) by grade, 2 of 3 by count.
    args = [[1, 4, 9]], true, None, scores
    assert value("srecall(gain=grade)@3", *args, grades=grades) == [3 / 4]
    assert value("srecall@3", *args, grades=grades) == [2 / 3]
    assert value("recall@3", *args, grades=grades) == [2 / 3]
    # An exact index over copies loses nothing, whichever copies were judged.
    assert value("srecall@2", [[1, 4]], true, None, scores, grades={0: {1: 1, 2: 1}}) == [1.0]


def test_srprec():
    grades = {0: {1: 1, 2: 1, 3: 1}}
    # |SN| = 3 of the first 5; among the first 3 results are 1 and 2: 2 of 3.
    assert value("srprec@5", [[1, 2, 9, 3, 8]], [[1, 2, 9, 3, 8]], grades=grades) == [2 / 3]


# -- measures of scores ---------------------------------------------------------------------------


def test_trecall_pairs_as_many_as_can_be():
    # 10.0 >= 10.05 * 0.995 = 9.99975, and 9.95 >= 10.0 * 0.995 = 9.95.
    # So 10.0 serves the first and 9.95 the second: 2 of 2. Pairing equal ids first gives 1 of 2.
    args = [[2, 9]], [[1, 2]], [[10.0, 9.95]], [[10.05, 10.0]]
    assert value("trecall(x=0.5%)@2", *args) == [1.0]
    assert value("trecall(x=0)@2", *args) == [0.5]


def test_trecall_without_scores_of_results_counts_ids_only():
    scores = parse("trecall(x=50%)@2").values(problem([[2, 9]], [[1, 2]], None, [[10.0, 9.0]]))
    # 2 may stand for 1 or for 2, 9 for nothing: 1 of 2.
    assert scores.values.tolist() == [0.5]
    assert scores.notes == ("results outside the truth without a score, none counted as near: 1",)
    by_index = problem([[2, 9]], [[1, 2]], [[9.0, 8.9]], [[10.0, 9.0]], by="index")
    assert parse("trecall(x=50%)@2").values(by_index).notes == ("scores by the index",)


def test_the_papers_proxy():
    # k = 3: rank 2k/3 is 2. (9 - 6) / 10 = 30% and (4 - 4) / 8 = 0: mean 15%.
    true = [[1, 2, 3], [1, 2, 3]]
    both = problem(true, true, None, [[10.0, 9.0, 6.0], [8.0, 4.0, 4.0]])
    assert query_tolerance(both, 3).tolist() == [0.3, 0.0]
    scores = parse("trecall@3").values(both)
    assert scores.notes == (
        "x = 15%, the paper's proxy (fall of exact scores from rank 2k/3 to k)",
    )
    # l2: (3 - 2) / 2 = 50%.
    both = problem([[1]], [[1, 2, 3]], None, [[1.0, 2.0, 3.0]], space="l2")
    assert query_tolerance(both, 3).tolist() == [0.5]
    # Rank 2k/3 to the nearest: 1 of 1, 1 of 2, 3 of 4, 3 of 5, 67 of 100.
    for k, rank in ((1, 1), (2, 1), (4, 3), (5, 3), (100, 67)):
        row = [float(200 - i) for i in range(k)]
        both = problem([[1]], [list(range(k))], None, [row])
        assert query_tolerance(both, k).tolist() == [(row[rank - 1] - row[-1]) / row[0]]


def test_a_proxy_too_wide_or_undefined_is_said():
    # k = 2: rank 2k/3 is 1. (10 - 5) / 10 = 50% is not yet too wide, (10 - -3.2) / 10 = 132% is.
    for last, said in (
        (5.0, "x = 50%, the paper's proxy (fall of exact scores from rank 2k/3 to k)"),
        (-3.2, "the paper's proxy gives x = 132%: too wide to mean anything; choose x"),
    ):
        both = problem([[1]], [[1, 2]], None, [[10.0, last]])
        assert said in parse("trecall@2").values(both).notes
    none = problem([[1]], [[1, 2]], None, [[-1.0, -2.0]])
    notes = parse("trecall@2").values(none).notes
    assert "x undefined: the paper's proxy has no value for any query" in notes


def test_a_tolerance_is_undefined_for_scores_that_are_not_positive():
    both = problem([[1], [1]], [[1, 2], [1, 2]], None, [[0.0, -1.0], [2.0, 1.0]])
    np.testing.assert_array_equal(query_tolerance(both, 2), [np.nan, 0.5])
    assert parse("trecall(x=query)@2").values(both).reasons == ("tolerance undefined", "")
    none = problem([[1]], [[1, 2]], None, [[-1.0, -2.0]])
    assert parse("trecall@2").values(none).undefined == {"tolerance undefined": 1}
    assert parse("trecall(x=1%)@2").values(none).values.tolist() == [0.5]


def test_erecall():
    # Near 8 at 10% is 7.2 or more: 9 and 7.3, of 3. Never more than |G|.
    args = [[1, 8, 9]], [[1, 2, 3]], [[9.0, 7.3, 7.1]], [[9.0, 8.5, 8.0]]
    assert value("erecall(eps=10%)@3", *args) == [2 / 3]
    few = problem([[1, 8, 9]], [[1, -1, -1]], [[9.0, 9.0, 9.0]], [[9.0, math.nan, math.nan]])
    assert parse("erecall@3").values(few).values.tolist() == [1.0]


def test_rde_and_ratio_of_distances():
    # Sorted results 1, 3, 6 against 1, 2, 4: ratios 1, 1.5, 1.5; mean 4/3.
    args = [[1, 8, 9]], [[1, 2, 3]], [[1.0, 6.0, 3.0]], [[1.0, 2.0, 4.0]]
    assert value("rde@3", *args, space="l2") == [1 / 3]
    assert value("ratio@3", *args, space="l2") == [3 / 4]


def test_rde_and_ratio_of_similarities():
    # 1 - 8/8 = 0 and 1 - 2/4 = 0.5: mean 0.25. Ratios 1 and 2: mean 1.5.
    args = [[1, 9]], [[1, 2]], [[8.0, 2.0]], [[8.0, 4.0]]
    assert value("rde@2", *args) == [0.25]
    assert value("ratio@2", *args) == [2 / 3]
    # Both negative: -6 is 50% worse than -4, not better. Ratio 6/4.
    args = [[9]], [[1]], [[-6.0]], [[-4.0]]
    assert value("rde@1", *args) == [0.5]
    assert value("ratio@1", *args) == [2 / 3]


def test_what_rde_leaves_out():
    true, true_scores = [[1, 2, 3]], [[0.0, 0.0, 2.0]]
    # 0/0 counts as 0, 1/0 is left out, 3/2 - 1 = 0.5: mean of 0 and 0.5.
    both = problem([[1, 8, 9]], true, [[0.0, 1.0, 3.0]], true_scores, space="l2")
    scores = parse("rde@3").values(both)
    assert scores.values.tolist() == [0.25]
    assert scores.notes == ("ranks left out where only the neighbour's score is 0: 1",)
    short = parse("rde@3").values(problem([[1, 8]], true, [[0.0, 1.0]], true_scores, space="l2"))
    assert "missing results left out: 1" in short.notes


def test_why_rde_is_undefined():
    found = [[-1, -1], [1, 9], [1, 9], [9, -1]]
    scores = [[math.nan] * 2, [2.0, -1.0], [2.0, 0.5], [-1.0, math.nan]]
    true_scores = [[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, -1.0]]
    both = problem(found, [[1, 2]] * 4, scores, true_scores)
    assert parse("rde@2").values(both).reasons == (
        "no result",
        "scores of mixed sign",
        "",
        "every neighbour at score 0",
    )
    assert parse("ratio@2").values(both).reasons[:2] == ("no result", "scores of mixed sign")
    unscored = parse("rde@2").values(problem([[1, 9]], [[1, 2]], None, [[2.0, 1.0]]))
    assert unscored.reasons == ("a result has no score",)


def test_a_truth_with_scores_as_stored_is_named():
    truth = Run.from_arrays([[1, 2]], [[2.0, 1.0]], space="ip", scores_by="index")
    notes = parse("erecall@2").values(align(truth, truth)).notes
    assert notes == ("scores of the truth as stored, not recomputed",)
