"""Ties: each measure's range over all orders of equally scored results, against all of them."""

from __future__ import annotations

from itertools import groupby, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semrecall.data import Judgments, Run
from semrecall.errors import MeasureError
from semrecall.measures import align, measures, parse, tie_range, tied_queries

EXACT = [
    "P@3", "P(rel=2)@2", "P(judged_only=True)@2", "R@3", "Rcap@2", "Success@1", "Success@3",
    "Success(judged_only=True)@2", "RR", "RR@2", "RR(judged_only=True)", "AP", "AP@3",
    "AP(rel=2,judged_only=True)@3", "APcap@2", "nDCG", "nDCG@3", "nDCG(gain=exp)@2",
    "nDCG(gain={0:2,1:1,2:0})@3", "nDCG(judged_only=True)@2", "RBP", "RBP@2", "RBP(rel=2,p=0.5)",
    "RBPresid", "RBPresid@3", "Rprec", "Rprec(judged_only=True)", "Judged@2", "Judged",
]  # fmt: skip
ENDS = [
    "ERR", "ERR@2", "nERR@3", "Bpref", "IPrec@0.5", "IPrec(judged_only=True)@0.3",
]  # fmt: skip
FIXED = ["SetP", "SetR", "SetF", "SetAP", "NumRet", "NumRelRet", "NumRel", "NumQ"]


def lay(run, grades, no_relevant="skip"):
    problem = Run.from_dict({"q": run}), None, Judgments.from_dict({"q": grades})
    return align(*problem, no_relevant=no_relevant)


def every_order(run):
    """All rankings that agree with the scores."""
    by_score = sorted(run, key=lambda d: -run[d])
    groups = [list(members) for _, members in groupby(by_score, key=run.get)]
    for order in product(*(permutations(group) for group in groups)):
        yield [d for group in order for d in group]


@st.composite
def tied_lists(draw):
    run = draw(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1))
    grades = draw(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-1, 2), min_size=1))
    return run, grades


def values_of_all_orders(name, run, grades):
    """The values of a measure, one for each ranking as a query of its own."""
    orders = dict(enumerate(every_order(run)))
    judgments = Judgments.from_dict(dict.fromkeys(orders, grades))
    return parse(name).values(align(Run.from_dict(orders), None, judgments)).values.tolist()


@settings(max_examples=25)
@given(tied_lists())
@pytest.mark.parametrize("name", EXACT)
def test_the_range_and_the_expected_value_are_those_of_all_orders(name, drawn):
    run, grades = drawn
    values = values_of_all_orders(name, run, grades)
    found = tie_range(name, lay(run, grades))
    expected = [min(values), sum(values) / len(values), max(values)]
    np.testing.assert_allclose([v[0] for v in found], expected, atol=1e-12)
    assert not found.expected_drawn
    assert not found.extremes_drawn
    assert found.touched.tolist() == [max(values) - min(values) > 0]


@settings(max_examples=20)
@given(tied_lists())
@pytest.mark.parametrize("name", ENDS)
def test_the_ends_are_those_of_all_orders_where_the_mean_is_drawn(name, drawn):
    run, grades = drawn
    values = values_of_all_orders(name, run, grades)
    low, expected, high = tie_range(name, lay(run, grades), draws=60)
    if np.isnan(values).any():
        return
    np.testing.assert_allclose([low[0], high[0]], [min(values), max(values)], atol=1e-12)
    # Values lie in [0, 1], so the mean of 60 draws is within 0.3 but for 1 in 10,000.
    assert expected[0] == pytest.approx(np.mean(values), abs=0.3)
    assert low[0] <= expected[0] <= high[0]


@given(tied_lists())
def test_measures_of_all_results_have_no_range(drawn):
    problem = lay(*drawn)
    for name in FIXED:
        found = tie_range(name, problem)
        np.testing.assert_array_equal(found.low, parse(name).values(problem).values)
        np.testing.assert_array_equal(found.low, found.high)


@given(tied_lists())
def test_touched_queries_are_those_where_an_order_changes_a_grade(drawn):
    run, grades = drawn
    gains = {tuple(max(grades.get(d, 0), 0) for d in order) for order in every_order(run)}
    assert tied_queries(lay(run, grades)).tolist() == [len(gains) > 1]


def test_every_relevance_measure_has_a_range():
    problem = lay({"a": 1, "b": 1, "c": 1, "d": 0}, {"a": 1, "b": 0, "e": 2})
    for definition in measures():
        if definition.layer == "retrieval" and "judgments" in definition.needs:
            if definition.extra:
                continue
            name = definition.name + ("@0.5" if definition.at else "@2" * definition.takes_k)
            low, expected, high = tie_range(name, problem, draws=20)
            if name != "Accuracy@2":  # two irrelevant results as given: no pair
                assert low[0] <= expected[0] <= high[0], name


def test_a_measure_of_ones_own_is_drawn_from_random_orders():
    from semrecall.measures import measure
    from semrecall.measures.grammar import _DEFINITIONS, _SPELLINGS

    try:

        @measure("firstgrade", needs={"judgments"}, layer="retrieval")
        def first_grade(problem):
            """The grade of the first result."""
            return np.nan_to_num(problem.found_grades[:, 0])

        found = tie_range("firstgrade", lay({"a": 1, "b": 1, "c": 0}, {"a": 2, "b": 1}))
        assert (found.low[0], found.high[0]) == (1, 2)
        assert found.expected[0] == pytest.approx(1.5, abs=0.15)
        assert found.extremes_drawn
        assert found.expected_drawn
    finally:
        _DEFINITIONS.pop("firstgrade", None)
        _SPELLINGS.pop("firstgrade", None)


def test_infap_draws_its_ends_too_and_the_same_seed_draws_the_same():
    problem = lay(dict.fromkeys("abcdef", 1), {"a": 1, "b": -1, "c": 0, "d": 1})
    values = values_of_all_orders(
        "infAP", dict.fromkeys("abcdef", 1), {"a": 1, "b": -1, "c": 0, "d": 1}
    )
    first, again = (tie_range("infAP", problem, seed=7) for _ in range(2))
    for left, right in zip(first, again, strict=True):
        assert left.tolist() == right.tolist()
    assert first.low[0] == pytest.approx(min(values), abs=0.05)
    assert first.high[0] == pytest.approx(max(values), abs=0.05)
    assert first.expected[0] == pytest.approx(np.mean(values), abs=0.05)


def test_without_scores_nothing_is_tied():
    problem = align(Run.from_dict({"q": ["a", "b"]}), None, Judgments.from_dict({"q": {"b": 1}}))
    found = tie_range("RR", problem)
    assert [v[0] for v in found] == [0.5, 0.5, 0.5]
    assert not tied_queries(problem).any()


def test_no_relevant_document_stays_what_the_problem_says():
    run, grades = {"a": 1, "b": 1}, {"a": 0}
    assert np.isnan(tie_range("nDCG@1", lay(run, grades)).expected[0])
    assert list(tie_range("nDCG@1", lay(run, grades, "zero"))) == [[0.0], [0.0], [0.0]]


def test_a_run_and_judgments_do_as_well():
    run = Run.from_dict({"q": {"a": 1.0, "b": 1.0}, "r": {"a": 2.0, "b": 1.0}})
    judgments = Judgments.from_dict({"q": {"a": 1}, "r": {"b": 1}})
    found = tie_range("RR", run, judgments)
    assert found.low.tolist() == [0.5, 0.5]
    assert found.expected.tolist() == [0.75, 0.5]
    assert found.high.tolist() == [1.0, 0.5]
    assert found.touched.tolist() == [True, False]
    assert repr(found) == (
        "TieRange(RR: low 0.5000, expected 0.6250, high 0.7500; 1 queries touched)"
    )


def test_recall_has_no_range():
    run = Run.from_arrays([[1, 2]])
    with pytest.raises(MeasureError, match="recall@2 has no range over ties"):
        tie_range("recall@2", align(run, run))
