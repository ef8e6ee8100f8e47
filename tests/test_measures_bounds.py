"""Bounds of relevance measures: what unjudged results could change."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semrecall.data import Judgments, Run
from semrecall.errors import MeasureError
from semrecall.measures import align, parse, relevance_bounds
from semrecall.measures.bounds import is_bounded

NAMES = [
    "P@3", "R@3", "Success@2", "RR", "RR@3", "AP", "AP@4", "AP(rel=2)@4", "nDCG", "nDCG@3",
    "nDCG(gain=exp)@4",
]  # fmt: skip


def lay(results, grades):
    return align(Run.from_dict(results), None, Judgments.from_dict(grades))


def test_by_hand():
    # a relevant, b and d unjudged, c irrelevant; e relevant and not found.
    problem = lay({"q": ["a", "b", "c", "d"]}, {"q": {"a": 1, "c": 0, "e": 1}})
    expected = {
        "P@4": (1 / 4, 3 / 4),
        "R@4": (1 / 2, 3 / 4),  # 1 of 2, or 3 of 4
        "Success@4": (1, 1),
        "RR@4": (1, 1),
        # Lowest: none of them, 1/2 (with d alone (1 + 2/4) / 3 is 1/2 too). Highest: both,
        # (1 + 2/2 + 3/4) / 4, against (1 + 1) / 3 with b alone.
        "AP@4": (1 / 2, (1 + 1 + 3 / 4) / 4),
    }
    for name, ends in expected.items():
        low, high = relevance_bounds(problem, name)
        assert (low[0], high[0]) == pytest.approx(ends), name


def test_all_relevant_is_not_always_the_highest():
    # Perfect so far. A relevant document at rank 4 makes it (1 + 2/4) / 2.
    problem = lay({"q": ["a", "b", "c", "d"]}, {"q": {"a": 1, "b": 0, "c": 0}})
    low, high = relevance_bounds(problem, "AP")
    assert (low[0], high[0]) == (0.75, 1.0)
    # Five relevant ones first, ranks 9 and 10 unjudged: both make the least of it, with the
    # precisions 6/9 and 7/10 over seven, against (5 + 6/10) / 6 with the last alone.
    grades = dict.fromkeys(range(5), 1) | dict.fromkeys(range(5, 8), 0)
    low, high = relevance_bounds(lay({"q": list(range(10))}, {"q": grades}), "AP")
    assert (low[0], high[0]) == (pytest.approx((5 + 6 / 9 + 7 / 10) / 7), 1.0)


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_the_extremes_over_all_labels(name, data):
    results = data.draw(st.permutations(range(8)))[: data.draw(st.integers(1, 6))]
    known = data.draw(st.dictionaries(st.integers(0, 11), st.integers(0, 3), min_size=1))
    grade = data.draw(st.integers(2, 3))
    measure = parse(name)
    top = [d for d in results[: measure.k] if d not in known]
    choices = list(product([0, grade], repeat=len(top)))
    labelled = {i: {**known, **dict(zip(top, c, strict=True))} for i, c in enumerate(choices)}
    values = measure.values(lay(dict.fromkeys(labelled, results), labelled))
    defined = values.values[values.defined].tolist()
    low, high = relevance_bounds(lay({"q": results}, {"q": known}), name, grade=grade)
    if not defined:
        # A query without any relevant document: nothing found is 0, or there is no value.
        assert np.isnan(low[0]) or low[0] == 0
        return
    if measure.name in ("P", "Success", "RR") and len(defined) < len(values):
        defined.append(0.0)  # these are 0 where no document is relevant
    assert low[0] == pytest.approx(min(defined))
    assert high[0] == pytest.approx(max(defined))


def test_many_queries_at_once_and_the_default_grade():
    results = {"a": [1, 2, 3], "b": [4, 5], "c": [6]}
    grades = {"a": {1: 3}, "b": {9: 1}, "c": {6: 1}}
    low, high = relevance_bounds(lay(results, grades), "nDCG@2")
    apart = [
        relevance_bounds(lay({q: results[q]}, {q: grades[q]}), "nDCG@2", grade=3) for q in results
    ]
    np.testing.assert_allclose(low, [pair[0][0] for pair in apart])
    np.testing.assert_allclose(high, [pair[1][0] for pair in apart])
    assert low[2] == high[2] == 1.0


def test_a_document_judged_for_another_query_is_unjudged():
    # The case judged-02.
    problem = lay({"q1": ["d2"], "q2": ["d2"]}, {"q1": {"d1": 1}, "q2": {"d2": 1}})
    assert parse("Judged@1").values(problem).values.tolist() == [0.0, 1.0]
    low, high = relevance_bounds(problem, "P@1")
    assert (low.tolist(), high.tolist()) == ([0.0, 1.0], [1.0, 1.0])


def test_only_measures_with_known_bounds():
    problem = lay({"q": ["a"]}, {"q": {"a": 1}})
    assert not is_bounded(parse("Judged@10"))
    with pytest.raises(MeasureError, match="no bounds of Judged@10"):
        relevance_bounds(problem, "Judged@10")
    with pytest.raises(MeasureError, match="grade 1 is not relevant to"):
        relevance_bounds(problem, "P(rel=2)@1", grade=1)
