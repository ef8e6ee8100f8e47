"""Measures of the retrieval layer: counted by hand, and against trec_eval's own values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semrecall.data import Judgments, Run
from semrecall.errors import InputError, MeasureError
from semrecall.measures import align, parse
from semrecall.measures import hits as hits_module


def value(spelling, run, grades):
    results, judgments = Run.from_dict({"q": run}), Judgments.from_dict({"q": grades})
    scores = parse(spelling).values(align(results, None, judgments))
    return pytest.approx(scores.values.tolist(), abs=1e-12)


GRADES = {"a": 2, "b": 0, "c": 1, "d": 3, "e": -1}
RANKING = ["b", "a", "x", "c"]


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("P@2", 1 / 2),  # a
        ("P@10", 2 / 10),  # a, c; divided by 10 although 4 were returned
        ("P(rel=2)@2", 1 / 2),
        ("R@2", 1 / 3),  # a of a, c, d
        ("R@4", 2 / 3),
        ("R(rel=2)@4", 1 / 2),  # a of a, d
        ("Success@1", 0),
        ("Success@2", 1),
        ("Success(rel=3)@4", 0),
        ("RR", 1 / 2),
        ("RR@1", 0),
        ("RR(rel=3)", 0),
        ("AP", (1 / 2 + 2 / 4) / 3),
        ("AP@3", (1 / 2) / 3),
        ("Judged@3", 2 / 3),  # b, a
        ("Judged@10", 3 / 4),  # b, a, c of the 4 returned
        # Gains 0, 2, 0, 1 against 3, 2, 1.
        (
            "nDCG",
            (2 / math.log2(3) + 1 / math.log2(5)) / (3 + 2 / math.log2(3) + 1 / math.log2(4)),
        ),
        ("nDCG@2", (2 / math.log2(3)) / (3 + 2 / math.log2(3))),
        # Gains 0, 3, 0, 1 against 7, 3, 1.
        ("nDCG(gain=exp)@2", (3 / math.log2(3)) / (7 + 3 / math.log2(3))),
        # Gains 0, 5, 0, 1 against 5, 3, 1: of d the grade itself.
        ("nDCG(gain={2:5})@2", (5 / math.log2(3)) / (5 + 3 / math.log2(3))),
        # Only b, a, c are judged: gains 0, 2, 1.
        ("nDCG(judged_only=True)@3", (2 / math.log2(3) + 1 / 2) / (3 + 2 / math.log2(3) + 1 / 2)),
        ("P(judged_only=True)@3", 2 / 3),
        ("R(judged_only=True)@3", 2 / 3),
        ("Success(judged_only=True)@1", 0),
        ("RR(rel=1,judged_only=True)", 1 / 2),
        ("AP(judged_only=True)", (1 / 2 + 2 / 3) / 3),
        ("Rcap@1", 0),
        ("Rcap@2", 1 / 2),  # of at most 2
        ("Rcap@10", 2 / 3),
        ("APcap@2", (1 / 2) / 2),
        ("APcap@10", (1 / 2 + 2 / 4) / 3),
        ("Rprec", 1 / 3),  # a among b, a, x
        ("Rprec(judged_only=True)", 2 / 3),
        ("Rprec(rel=2)", 1 / 2),
        # N = 2 judged not relevant (b, e), R = 3; b stands before a and before c.
        ("Bpref", (1 - 1 / 2 + 1 - 1 / 2) / 3),
        ("Bpref(rel=2)", (1 - 1 / 2) / 2),  # N = 3, R = 2
        # Precision at a is 1/2, at c 2/4; from c on the best is 1/2.
        ("IPrec@0", 1 / 2),
        ("IPrec@0.1", 1 / 2),  # int(0.3 + 0.9) = 1 relevant result
        ("IPrec@0.5", 1 / 2),  # int(1.5 + 0.9) = 2, reached at c
        ("IPrec@1", 0),
        ("SetP", 2 / 4),
        ("SetP(relative=True)", 2 / 3),
        ("SetP(judged_only=True)", 2 / 3),
        ("SetRelP", 2 / 3),
        ("SetR", 2 / 3),
        ("SetF", 2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3)),
        ("SetF(beta=2)", 3 * (1 / 2) * (2 / 3) / (2 / 3 + 2 * 1 / 2)),
        ("SetAP", (1 / 2) * (2 / 3)),
        ("Judged", 3 / 4),
        ("Accuracy", 1 - (1 + 2) / 4),  # b before a, b and x before c, of 2 times 2 pairs
        ("Accuracy@2", 0),
        ("NumQ", 1),
        ("NumRel", 3),
        ("NumRel(rel=0)", 4),
        ("NumRet", 4),
        ("NumRet(rel=2)", 1),
        ("NumRelRet", 2),
        # Grades over 3, at ranks 2 and 4.
        ("RBP", 0.2 * (0.8 * 2 / 3 + 0.8**3 * 1 / 3)),
        ("RBP@2", 0.2 * 0.8 * 2 / 3),
        ("RBP(max_rel=4)", 0.2 * (0.8 * 2 / 4 + 0.8**3 * 1 / 4)),
        ("RBP(max_rel=highest)", 0.2 * (0.8 * 2 / 3 + 0.8**3 * 1 / 3)),
        ("RBP(p=0.5,rel=1)", 0.5 * (0.5 + 0.5**3)),
        # x at rank 3, and all ranks from 5 on; with k=2 all from 3 on.
        ("RBPresid", 0.2 * 0.8**2 + 0.8**4),
        ("RBPresid@2", 0.8**2),
        # Chances to stop: a 3/8, c 1/8.
        ("ERR", 3 / 8 / 2 + (1 - 3 / 8) * 1 / 8 / 4),
        ("ERR@3", 3 / 8 / 2),
        ("ERR(max_rel=4)@3", 3 / 16 / 2),
        # Best: d 7/8, a 3/8, c 1/8.
        ("nERR@2", (3 / 8 / 2) / (7 / 8 + 1 / 8 * 3 / 8 / 2)),
        # e is "pooled, not judged", and not returned. At a: 1/2 + 1/2 (b) * 0.00001 / 1.00002.
        # At c: 1/4 + 2/4 (b, a) * 1.00001 / 2.00002.
        (
            "infAP",
            ((1 + 0.00001 / 1.00002) / 2 + (1 + 2 * 1.00001 / 2.00002) / 4) / 3,
        ),
    ],
)
def test_by_hand(spelling, expected):
    assert value(spelling, RANKING, GRADES) == [expected]


def test_queries_without_relevant_documents_or_judgments_are_left_out():
    run = Run.from_dict({"q1": ["a"], "q2": ["a"], "q3": ["a"]})
    judgments = Judgments.from_dict({"q1": {"a": 1}, "q2": {"a": 0}})
    truth = run
    for name in ("P@1", "R@1", "Success@1", "RR", "AP", "nDCG"):
        scores = parse(name).values(align(run, truth, judgments))
        assert scores.reasons == ("", "no relevant document", "no judgments")
        assert scores.mean == 1.0
    assert parse("Judged@1").values(align(run, truth, judgments)).reasons == (
        "",
        "",
        "no judgments",
    )


def test_no_grade_is_no_judgment():
    judgments = Judgments.from_arrays(["q", "q"], ["a", "b"], [math.nan, 1])
    both = align(Run.from_dict({"q": ["a", "b"]}), None, judgments)
    assert parse("Judged@2").values(both).values.tolist() == [0.5]
    assert parse("R@2").values(both).values.tolist() == [1.0]


def test_a_grade_too_large_for_the_exponential_gain():
    with pytest.raises(MeasureError, match="grade 100000 is too large"):
        value("nDCG(gain=exp)@10", ["a"], {"a": 100000, "b": 1})
    # 1 + 0 over 100000 + 1 / log2(3), linear still fine
    assert value("nDCG@10", ["b"], {"a": 100000, "b": 1}) == [1 / (100000 + 1 / math.log2(3))]


def test_infap_takes_a_negative_grade_for_pooled_but_not_judged():
    # j and a returned; j in the pool: 1/2 + 1/2 * (1 of 1 before is in the pool) * 1/2, the chance
    # of relevance of what was never seen, 0.00001 / 0.00002.
    assert value("infAP", ["j", "a"], {"j": -1, "a": 1}) == [1 / 2 + 1 / 2 * 1 / 2]
    # Judged not relevant: no chance; not in the pool: not relevant.
    assert value("infAP", ["j", "a"], {"j": 0, "a": 1}) == [1 / 2 + 1 / 2 * 0.00001 / 1.00002]
    assert value("infAP", ["j", "a"], {"a": 1}) == [1 / 2]


def test_fractions_are_thresholds_too():
    grades = {"a": 0.5, "b": 0.75, "c": 1.5}
    assert value("P(rel=0.75)@2", ["a", "b"], grades) == [1 / 2]
    assert value("RR(rel=0.6)", ["a", "b"], grades) == [1 / 2]
    assert value("NumRel(rel=0.5)", ["a"], grades) == [3]
    # 2^0.5 - 1 over 2^1.5.
    assert value("ERR", ["a"], grades) == [(2**0.5 - 1) / 2**1.5]


def test_a_relevant_result_can_have_grade_0():
    # rel=0: a judged document is relevant, an unjudged one is not.
    assert value("P(rel=0)@2", ["x", "b"], {"b": 0, "c": -1}) == [1 / 2]


@pytest.mark.parametrize("policy", ["skip", "zero"])
def test_queries_without_a_relevant_document_by_policy(policy):
    run = Run.from_dict({"q1": ["a"], "q2": ["a"], "q3": ["a"]})
    judgments = Judgments.from_dict({"q1": {"a": 1}, "q2": {"a": 0}})
    problem = align(run, run, judgments, no_relevant=policy)
    for name in ("P@1", "RR", "nDCG", "ERR", "RBP", "Bpref", "SetF", "IPrec@0.5"):
        scores = parse(name).values(problem)
        if policy == "skip":
            assert scores.undefined == {"no relevant document": 1, "no judgments": 1}
        else:
            assert scores.undefined == {"no judgments": 1}
            assert scores.values[1] == 0
            assert "queries without a relevant document, taken as 0: 1" in scores.notes
    # What needs no relevant document has its value either way.
    assert parse("Judged@1").values(problem).values[1] == 1.0
    assert parse("recall@1").values(problem).mean == 1.0


def test_a_policy_that_does_not_exist():
    run = Run.from_dict({"q": ["a"]})
    with pytest.raises(InputError, match="no_relevant is 'drop'; expected 'skip' or 'zero'"):
        align(run, run, no_relevant="drop")


def test_notes_say_which_gain_and_scale():
    run, grades = Run.from_dict({"q": ["a", "b"]}), Judgments.from_dict({"q": {"a": 3, "c": 2}})
    problem = align(run, None, grades)
    said = {
        "nDCG": ("the gain is the grade",),
        "nDCG(gain=exp)": (),
        "nDCG(gain={3:9})": ("grades outside the map keep themselves as gain: 2",),
        "ERR": ("max_rel = 3, the highest grade in the judgments",),
        "ERR(max_rel=4)": (),
        # b, and all from rank 3 on: 0.2 * 0.8 + 0.64.
        "RBP": (
            "the gain is the grade over each query's highest grade",
            "residual 0.8000: what results not judged could add",
        ),
        "RBP(max_rel=4)": (
            "the gain is the grade over 4",
            "residual 0.8000: what results not judged could add",
        ),
        "RBP(max_rel=highest)": (
            "the gain is the grade over the highest grade of all",
            "residual 0.8000: what results not judged could add",
        ),
        "RBP(rel=2)": ("residual 0.8000: what results not judged could add",),
        "NumRel": ("in all: 2",),
    }
    for name, notes in said.items():
        assert parse(name).values(problem).notes == notes, name
    # With grades of 0 and 1 the gains are all the same.
    binary = align(run, None, Judgments.from_dict({"q": {"a": 1}}))
    assert parse("nDCG").values(binary).notes == ()


def test_a_long_list_among_many_short_ones_takes_no_padding():
    lists = {q: [f"d{q}"] for q in range(20_000)} | {"long": [f"d{i}" for i in range(20_000)]}
    lists[7] = ["d7", "d8", "d7"]
    grades = {q: {f"d{q}": 1} for q in range(20_000)} | {"long": {"d19999": 1}}
    problem = align(Run.from_dict(lists), None, Judgments.from_dict(grades))
    scores = parse("RR").values(problem)
    assert scores.values[:20_000].tolist() == [1.0] * 20_000
    assert scores.values[-1] == 1 / 20_000
    assert problem.repeats.sum() == problem.repeats[7] == 1
    assert "matrix" not in vars(problem.results)


@pytest.mark.parametrize("block", [7, 60, 1 << 16])
@pytest.mark.parametrize("scale", [1, 10**12])
def test_hits_are_those_of_a_dictionary(scale, block, monkeypatch):
    # Blocks of entries that end within a row, and that hold several rows.
    monkeypatch.setattr(hits_module, "_BLOCK", block)
    # Large codes take the way around keys that would overflow.
    random = np.random.default_rng(3)
    ids = random.integers(0, 300, (40, 25)) * scale
    pairs = np.unique(np.stack([random.integers(0, 40, 900), random.integers(0, 300, 900)]), axis=1)
    grades = random.integers(-1, 4, pairs.shape[1])
    known = {(q, d * scale): g for q, d, g in zip(*pairs.tolist(), grades.tolist(), strict=True)}
    judgments = Judgments.from_arrays(pairs[0], pairs[1] * scale, grades)
    problem = align(Run.from_arrays(ids, query_ids=range(40)), None, judgments)
    expected = []
    for row, query in enumerate(problem.queries):
        distinct = dict.fromkeys(ids[query].tolist())
        expected += [
            (row, rank, known[query, d])
            for rank, d in enumerate(distinct, 1)
            if (query, d) in known
        ]
    hits = problem.hits
    assert list(zip(hits.rows, hits.ranks, hits.grades, strict=True)) == expected
    assert len(expected) > 30
    assert hits.nth.tolist() == [
        sum(r == row for r, *_ in expected[: i + 1]) for i, (row, *_) in enumerate(expected)
    ]
