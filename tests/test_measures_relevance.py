"""Measures of the retrieval layer: counted by hand, and against trec_eval's own values."""

from __future__ import annotations

import json
import math

import pytest

from semrecall.data import Judgments, Run
from semrecall.errors import MeasureError
from semrecall.measures import align, parse


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


RANKED = {
    "tie-01": [("nDCG@10", "trec_policy.ndcg@10"), ("RR", "trec_policy.rr"),
               ("AP", "trec_policy.ap"), ("R@10", "trec_policy.recall@10"),
               ("P@10", "trec_policy.p@10")],
    "tie-02": [("RR", "rr"), ("RR@10", "rr@10")],
    "tie-03": [("AP", "trec_policy.ap"), ("RR", "trec_policy.rr")],
    "grade-01": [("nDCG@10", "ndcg@10 linear")],
    "grade-02": [("P@1", "p@1"), ("Judged@1", "judged@1"), ("nDCG@10", "ndcg@10")],
    "grade-04": [("nDCG@10", "ndcg@10 linear"), ("nDCG(dcg='exp-log2')@10", "ndcg@10 exp")],
    "grade-05": [("nDCG(gain=exp)@10", "ndcg@10 exp")],
    "grade-07": [("nDCG@10", "ndcg@10"), ("RR(rel=2)", "rr(threshold 2)")],
    "def-01": [("nDCG@10", "ndcg@10")],
    "def-03": [("AP@3", "ap@3")],
    "def-05": [("R@1", "recall@1"), ("Success@1", "hit@1")],
    "cov-02": [("nDCG@10", "ndcg@10"), ("AP@10", "map@10"), ("RR@10", "mrr@10"),
               ("Success@10", "hit@10")],
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(RANKED))
def test_ranked_cases(case, shared):
    lines = shared("cases/relevance.jsonl").read_text().splitlines()
    line = next(entry for entry in map(json.loads, lines) if entry["id"] == case)
    run = Run.from_dict(line["input"]["run"])
    problem = align(run, None, Judgments.from_dict(line["input"]["qrels"]))
    for spelling, path in RANKED[case]:
        expected = line["expected"]
        for key in path.split(".", 1) if path.startswith("trec_policy") else [path]:
            expected = expected[key]
        assert parse(spelling).values(problem).mean == pytest.approx(expected, abs=5e-5), spelling


def test_def_02_the_ideal_list_is_as_long_as_the_cutoff():
    grades, run = {f"d{i:02}": 1 for i in range(25)}, [f"d{i:02}" for i in range(20)]
    assert value("nDCG@20", run, grades) == [1.0]
    # sum over 20 ranks over sum over 25 ranks
    gains = [1 / math.log2(r + 1) for r in range(1, 26)]
    assert value("nDCG", run, grades) == [sum(gains[:20]) / sum(gains)]
    assert round(sum(gains[:20]) / sum(gains), 4) == 0.8658


def test_judged_02_judged_for_another_query_is_not_judged_here():
    run = Run.from_dict({"q1": ["d2"], "q2": ["d2"]})
    judgments = Judgments.from_dict({"q1": {"d1": 1}, "q2": {"d2": 1}})
    assert parse("Judged@1").values(align(run, None, judgments)).values.tolist() == [0.0, 1.0]


#: NIST counted grade 1 and more as relevant in these columns.
OFFICIAL = {
    "P@10": "P_10",
    "P@100": "P_100",
    "nDCG@10": "ndcg_cut_10",
    "nDCG@100": "ndcg_cut_100",
    "AP": "map",
    "RR": "recip_rank",
}


def test_values_equal_nists_own_for_trec_dl_2019(shared):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    official = pq.read_table(shared("data/trec-runs/dl2019_official_scores.parquet"))
    rows = pq.read_table(shared("data/trec-runs/dl2019_runs.parquet"))
    labels = pq.read_table(
        shared("data/dl-pool/labels.parquet"),
        filters=(pc.field("year") == "dl19") & pc.is_valid(pc.field("human")),
    )
    judgments = Judgments.from_frame(labels, grade="human")
    compared = 0
    for name in ("ICT-BERT2", "bm25base_p", "idst_bert_p2"):
        run = rows.filter(pc.equal(rows["run"], name)).drop_columns(["rank"])
        problem = align(Run.from_frame(run), None, judgments)
        theirs = official.filter(pc.equal(official["run"], name))
        for spelling, column in OFFICIAL.items():
            scores = parse(spelling).values(problem)
            ours = dict(zip(scores.queries.strings().tolist(), scores.values, strict=True))
            for line in theirs.filter(pc.equal(theirs["measure"], column)).to_pylist():
                if line["query_id"] != "all":
                    compared += 1
                    expected = pytest.approx(line["value"], abs=6e-5)
                    assert ours[line["query_id"]] == expected, (name, spelling, line)
    assert compared == 3 * len(OFFICIAL) * 43
