"""Cases of judged retrieval on which tools fail or disagree; inputs and values from the case file.

A case function takes the line and asserts; its name ends in the case's id.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from test_readers import CASES as OF_FILES

from semrecall import check, compare
from semrecall.data import Judgments, Run, Scores
from semrecall.data.ids import ids
from semrecall.errors import InputError, MeasureError, MismatchError, SemrecallWarning
from semrecall.evaluate import Comparison, evaluate
from semrecall.formats import read_judgments, read_run
from semrecall.measures import align, parse, tie_range, tied_queries
from semrecall.stats.compare import randomisation_p
from semrecall.stats.intervals import resampled_means

CASES = {}


def case(function):
    family, number = function.__name__.rsplit("_", 2)[1:]
    CASES[f"{family}-{number}"] = function
    return function


@pytest.fixture(scope="module")
def lines(shared):
    read = map(json.loads, shared("cases/relevance.jsonl").read_text().splitlines())
    return {line["id"]: (line["input"], line["expected"]) for line in read}


def lay(given, run=None):
    results = Run.from_dict(given["run"] if run is None else run)
    return align(results, None, Judgments.from_dict(given["qrels"]))


def mean(spelling, problem):
    return parse(spelling).values(problem).mean


def agree(problem, expected, names):
    for spelling, key in names.items():
        assert mean(spelling, problem) == pytest.approx(expected[key], abs=5e-5), spelling


# -- ties -----------------------------------------------------------------------------------------

TREC = {"nDCG@10": "ndcg@10", "R@10": "recall@10", "P@10": "p@10", "RR": "rr", "AP": "ap"}


@case
def renaming_is_told_tie_01(given, expected):
    problem = lay(given)
    agree(problem, expected["trec_policy"], TREC)
    for spelling, key in (("RR", "rr"), ("nDCG@10", "ndcg@10")):
        low, middle, high = (float(v[0]) for v in tie_range(spelling, problem))
        assert [low, high] == pytest.approx(expected["tie_range"][key], abs=5e-5)
        assert middle == pytest.approx(expected["expected_over_ties"][key], abs=5e-5)
    result = evaluate(
        Run.from_dict(given["run"]), "RR", judgments=Judgments.from_dict(given["qrels"])
    )
    assert result.counts["run"].tied == 1
    assert "1 query where results of different grades have equal scores" in str(result)


@case
def one_ranking_for_all_tie_02(given, expected):
    agree(lay(given), expected, {"RR": "rr", "RR@10": "rr@10"})
    # The one relevant document stands third, so nothing judged is among the first.
    assert mean("Judged@1", lay(given)) == 0
    assert mean("nDCG@10", lay(given)) == 0.5


@case
def ap_is_rr_of_one_relevant_tie_03(given, expected):
    problem = lay(given)
    agree(problem, expected["trec_policy"], {"AP": "ap", "RR": "rr"})
    assert expected["invariant"] == "ap == rr"
    for left, right in zip(tie_range("AP", problem), tie_range("RR", problem), strict=True):
        assert left.tolist() == right.tolist()


@case
def half_precision_tie_05(given, expected):
    low, _, high = tie_range("RR", lay(given))
    assert [low[0], high[0]] == expected["rr_range"]
    result = evaluate(
        Run.from_dict(given["run"]), "RR", judgments=Judgments.from_dict(given["qrels"])
    )
    assert result.counts["run"].tied == 1
    assert any("16-bit floats" in note for note in result.notes)
    assert "32" in expected["diagnostic"]


@case
def any_file_order_tie_07(given, expected):
    assert "d00..d63" in given["run"]["q1"]["pattern"]
    names = [f"d{i:02}" for i in range(64)]
    for order in (names, names[::-1], np.random.default_rng(0).permutation(names).tolist()):
        problem = lay(given, {"q1": dict.fromkeys(order, 1.0)})
        for _ in range(2):
            agree(problem, expected["trec_policy"], {"RR": "rr"})


# -- which queries count --------------------------------------------------------------------------


def scored(given, names, **options):
    return evaluate(
        Run.from_dict(given["run"]), names, judgments=Judgments.from_dict(given["qrels"]), **options
    )


@case
def one_denominator_cov_02(given, expected):
    names = {"nDCG@10": "ndcg@10", "AP@10": "map@10", "RR@10": "mrr@10", "Success@10": "hit@10"}
    result = scored(given, list(names))
    for spelling, key in names.items():
        assert result.mean(spelling) == expected[key]
    assert {row.n for row in result.summary()} == {2}
    assert result.counts["run"].not_answered == 1


@case
def query_only_in_the_run_cov_03(given, expected):
    result = scored(given, ["RR"])
    assert result.mean("RR") == expected["mean rr"]
    assert result.summary()[0].n == expected["n_queries"]
    assert result.counts["run"].only_in_run == len(expected["unjudged_queries"])
    found = check(run=Run.from_dict(given["run"]), judgments=Judgments.from_dict(given["qrels"]))
    (finding,) = [f for f in found.findings if f.code == "queries-only-in-run"]
    assert list(finding.examples) == expected["unjudged_queries"]


@case
def no_shared_query_cov_04(given, expected):
    with pytest.raises(MismatchError) as fault:
        scored(given, ["RR"])
    said = str(fault.value)
    assert expected["error"].startswith("0 of 1 query ids match")
    assert "0 of 1 query ids" in said
    assert "'01'" in said
    assert "leading zeros" in said


@case
def empty_judgments_cov_05(given, expected):
    for _ in range(2):
        result = scored(given, ["nDCG"])
        values = dict(zip(result.queries, result["nDCG"].values.tolist(), strict=True))
        assert values == {"q1": expected["q1 ndcg"], "q3": expected["q3 ndcg"]}
        assert result.counts["run"].only_in_run == 1
    # Pairs without a grade keep the query, with its reason.
    pairs = [("q1", "d2", 1), ("q2", "d2", math.nan), ("q3", "d2", 1)]
    judgments = Judgments.from_arrays(*zip(*pairs, strict=True))
    scores = parse("nDCG").values(align(Run.from_dict(given["run"]), None, judgments))
    assert scores.reasons == ("", "no judgments", "")


@case
def no_relevant_document_cov_06(given, expected):
    for policy, key in (("zero", "policy zero (trec)"), ("skip", "policy skip")):
        result = scored(given, ["R@10", "P@1", "nDCG", "AP"], no_relevant=policy)
        assert result.mean("R@10") == expected[key]["mean recall"]
        assert {row.n for row in result.summary()} == {expected[key]["n"]}
        said = "1 no relevant document" if policy == "skip" else "document, taken as 0: 1"
        assert said in str(result)


# -- duplicates -----------------------------------------------------------------------------------


def write(path, rows, template):
    path.write_text("".join(template.format(*row) + "\n" for row in rows))
    return path


RUN_LINE, QRELS_LINE = "{} Q0 {} 0 {} tag", "{} 0 {} {}"


@case
def document_twice_dup_01(given, expected, folder):
    path = write(folder / "run.txt", given["run_rows"], RUN_LINE)
    with pytest.raises(InputError) as fault:
        read_run(path)
    assert {"1", "2"} <= set(str(fault.value).replace(",", " ").split())
    problem = align(read_run(path, duplicates="first"), None, Judgments.from_dict(given["qrels"]))
    agree(problem, expected["dedupe=first"], TREC)
    # From arrays a repeat counts once, at its best rank: the same values.
    agree(lay(given, {"q1": ["A", "A", "C"]}), expected["dedupe=first"], TREC)


@case
def judged_twice_alike_dup_02(given, expected, folder):
    path = write(folder / "qrels.txt", given["qrels_rows"], QRELS_LINE)
    with pytest.warns(SemrecallWarning, match="1 repeated judgment"):
        judgments = read_judgments(path)
    assert (
        mean("nDCG@10", align(Run.from_dict(given["run"]), None, judgments)) == expected["ndcg@10"]
    )


@case
def contradicting_judgments_dup_03(given, expected, folder):
    path = write(folder / "qrels.txt", given["qrels_rows"], QRELS_LINE)
    with pytest.raises(InputError) as fault:
        read_judgments(path)
    for word in ("q1", "d1", "line 1", "line 2"):
        assert word in str(fault.value)
    grades = {rule: read_judgments(path, conflicts=rule).grades.tolist()
              for rule in expected["option"].split("|")}  # fmt: skip
    assert grades == {"max": [1.0], "first": [0.0], "last": [1.0]}


# -- grades ---------------------------------------------------------------------------------------


@case
def fractions_grade_01(given, expected):
    agree(lay(given), expected, {"nDCG@10": "ndcg@10 linear"})
    assert mean("R(rel=0.5)@1", lay(given)) == 0.5
    assert mean("R(rel=0.6)@1", lay(given)) == 0.0


@case
def negative_grade_grade_02(given, expected):
    agree(
        lay(given),
        expected,
        {
            "P@1": "p@1",
            "P(judged_only=True)@1": "p@1 judged-only",
            "Judged@1": "judged@1",
            "nDCG@10": "ndcg@10",
        },
    )


@case
def all_grades_negative_grade_03(given, expected):
    judgments = Judgments.from_dict(given["qrels"])
    problem = align(Run.from_dict(given["run"]), None, judgments, no_relevant="zero")
    for spelling, key in (("nDCG@10", "ndcg@10"), ("RR", "rr"), ("AP", "ap"), ("Bpref", "bpref")):
        assert mean(spelling, problem) == expected[key]
    # By default there is no value, because there is no relevant document.
    assert parse("nDCG@10").values(lay(given)).reasons == ("no relevant document",)


@case
def two_gains_in_one_call_grade_04(given, expected):
    names = {
        "nDCG@10": "ndcg@10 linear",
        "nDCG(dcg='exp-log2')@10": "ndcg@10 exp",
        "nDCG(gain={1:1,3:7})@10": "ndcg@10 exp",
    }
    for order in (list(names), list(names)[::-1]):
        result = scored(given, order)
        for spelling in order:
            assert result.mean(spelling) == pytest.approx(expected[names[spelling]], abs=5e-5)
    script = (
        "from semrecall.data import *; from semrecall.measures import *\n"
        f"p = align(Run.from_dict({given['run']}), None, Judgments.from_dict({given['qrels']}))\n"
        f"print([parse(m).values(p).mean for m in {list(names)}])"
    )
    said = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                       env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}).stdout
        for seed in ("0", "1")
    }  # fmt: skip
    assert len(said) == 1


@case
def query_ids_and_top_grade_grade_05(given, expected):
    problem = lay(given)
    agree(problem, expected, {"nDCG(gain=exp)@10": "ndcg@10 exp"})
    scores = parse("ERR@10").values(problem)
    assert scores.notes[-1] == "max_rel = 5, the highest grade in the judgments"
    # Chances to stop 1/32 and 31/32: 1/32 + (31/32)^2 / 2.
    assert scores.mean == pytest.approx(1 / 32 + (31 / 32) ** 2 / 2)
    assert str(parse("ERR(max_rel=6)@10")) == "ERR(max_rel=6)@10"
    with pytest.raises(MeasureError, match="max_rel is 4, but the judgments have grade 5"):
        mean("ERR(max_rel=4)@10", problem)


@case
def huge_grade_grade_06(given, expected):
    problem = lay(given, {"q1": ["d2", "d1"]})
    with pytest.raises(MeasureError, match="grade 100000 is too large for the gain"):
        mean("nDCG(gain=exp)@10", problem)
    # (1 + 100000 / log2(3)) / (100000 + 1 / log2(3))
    discount = 1 / math.log2(3)
    assert mean("nDCG@10", problem) == pytest.approx((1 + 1e5 * discount) / (1e5 + discount))
    # ERR has no such limit: it needs 2^(grade - highest) alone.
    assert mean("ERR@10", problem) == pytest.approx(0.5)
    assert "linear still fine" in expected["error"]


@case
def threshold_and_ndcg_grade_07(given, expected):
    agree(lay(given), expected, {"nDCG@10": "ndcg@10", "RR(rel=2)": "rr(threshold 2)"})
    with pytest.raises(MeasureError, match="unknown parameter 'rel'"):
        parse("nDCG(rel=2)@10")
    # The separate option: grades below 2 gain nothing, and the name says so.
    assert str(parse("nDCG(gain={1:0})@10")) == "nDCG(gain={1:0})@10"
    assert mean("nDCG(gain={1:0})@10", lay(given)) == pytest.approx(0.6788, abs=5e-5)


@case
def words_for_numbers_grade_08(given, expected, folder):
    assert "line number" in expected["error"]
    for name, key, reader in (
        ("qrels.txt", "qrels_line", read_judgments),
        ("run.txt", "run_line", read_run),
    ):
        (folder / name).write_text(given[key] + "\n")
        with pytest.raises(InputError) as fault:
            reader(folder / name)
        token = {"qrels_line": "'yes'", "run_line": "'1,9'"}[key]
        assert token in str(fault.value)
        assert "line 1" in str(fault.value)


# -- definitions ----------------------------------------------------------------------------------


@case
def ideal_of_all_judgments_def_01(given, expected):
    agree(lay(given), expected, {"nDCG@10": "ndcg@10"})


@case
def ideal_list_and_cutoff_def_02(given, expected):
    assert "25 docs" in given["qrels"]
    names = [f"d{i:02}" for i in range(25)]
    problem = lay({"qrels": {"q1": dict.fromkeys(names, 1)}}, {"q1": names[:20]})
    agree(problem, expected, {"nDCG": "ndcg", "nDCG@20": "ndcg@20"})


@case
def ap_divides_by_all_relevant_def_03(given, expected):
    agree(lay(given), expected, {"AP@3": "ap@3", "APcap@3": "ap@3 capped (min(k,R))"})
    # With one place for two relevant documents the two differ: 1/2 and 1/1.
    assert mean("AP@1", lay(given)) == 0.5
    assert mean("APcap@1", lay(given)) == 1.0


@case
def three_recalls_def_05(given, expected):
    agree(
        lay(given),
        expected,
        {"R@1": "recall@1", "Rcap@1": "capped recall@1", "Success@1": "hit@1"},
    )


@case
def bpref_of_positives_only_def_07(given, expected):
    scores = parse("Bpref").values(lay(given))
    assert scores.mean == expected["bpref"]
    assert scores.notes == (
        "queries without a document judged not relevant, where it is no more than the share of "
        "the relevant that was returned: 1",
    )


@case
def cutoff_0_def_09(given, expected):
    with pytest.raises(ValueError, match="expected a whole number of at least 1"):
        parse(given["measure"])
    assert expected["error"].startswith("ValueError")


@case
def a_value_per_query_def_11(given, expected):
    rows = [dict(enumerate(row)) for row in given["scores"]]
    labels = [dict(enumerate(row)) for row in given["labels"]]
    problem = align(
        Run.from_dict(dict(enumerate(rows))), None, Judgments.from_dict(dict(enumerate(labels)))
    )
    scores = parse("nDCG").values(problem)
    assert scores.values.tolist() == pytest.approx(expected["ndcg per query"], abs=5e-5)
    assert scores.mean == pytest.approx(expected["mean"], abs=5e-5)


@case
def recall_of_two_id_lists_def_12(given, expected):
    problem = align(Run.from_arrays(given["ann_topk"]), Run.from_arrays(given["exact_topk"]))
    assert mean("recall@4", problem) == expected["recall@4"]


# -- judged, state --------------------------------------------------------------------------------


@case
def judged_for_another_query_judged_02(given, expected):
    values = parse("Judged@1").values(lay(given)).values.tolist()
    assert values == [expected["q1 judged@1"], expected["q2 judged@1"]]


@case
def second_call_state_01(given, expected):
    spellings = [name.replace("ndcg", "nDCG") for name in given["measures"]]
    names = [f"d{i:02}" for i in range(30)]
    problem = lay({"qrels": {"q": dict.fromkeys(names[::3], 1)}}, {"q": names})
    first, *others = (
        {name: mean(name, problem) for name in spellings} for _ in range(given["calls"])
    )
    assert len(set(first.values())) == 2
    assert all(other == first for other in others)
    assert expected["second"] == "equal to first"


@case
def rows_apart_state_02(given, expected, folder):
    path = write(folder / "run.txt", given["run_rows"], RUN_LINE)
    run = read_run(path)
    scores = parse(given["measure"].replace("rbp", "RBP")).values(
        align(run, None, Judgments.from_dict(given["qrels"]))
    )
    values = dict(zip(scores.queries, scores.values.tolist(), strict=True))
    assert values == pytest.approx({"q1": expected["q1"], "q2": expected["q2"]})
    assert scores.mean == pytest.approx(expected["mean"])


@case
def names_on_new_pythons_state_03(given, expected):
    # Read without Python's own parser, whose parts were removed in 3.14.
    assert expected["parses"]
    assert str(parse(given["measure"])) == given["measure"]
    assert "ast" not in vars(sys.modules["semrecall.measures.grammar"])


# -- the query itself, several runs, statistics ----------------------------------------------------


@case
def ids_equal_by_chance_self_01(given, expected):
    result = scored(given, ["R@10"])
    assert result.mean("R@10") == expected["recall@10"]
    start = expected["warning"].split(" a document id")[0]
    assert any(note.startswith(start) and "drop_self" in note for note in result.notes)


@case
def self_match_dropped_self_02(given, expected):
    assert scored(given, ["RR"], drop_self=given["drop_self"]).mean("RR") == expected["rr"]
    assert scored(given, ["RR"]).mean("RR") == expected["without"]


@case
def nothing_given_is_changed_self_03(given, expected):
    before = copy.deepcopy(given["run_before"])
    run = Run.from_dict(given["run_before"])
    lists = run.ids.to_list(), run.flat_scores.tolist()
    judgments = Judgments.from_dict({"q1": {"d": 1}})
    evaluate(run, ["RR", "nDCG"], judgments=judgments, drop_self=True)
    assert expected["run_after"].startswith("identical")
    assert given["run_before"] == before
    assert (run.ids.to_list(), run.flat_scores.tolist()) == lists


@case
def two_runs_of_one_name_pair_02(given, expected):
    runs = [Run.from_dict({"q1": {d: 1.0}, "q2": {"d": 1.0}}, name=name)
            for name, d in zip(given["runs"], ("d", "x"), strict=True)]  # fmt: skip
    judgments = Judgments.from_dict({"q1": {"d": 1}, "q2": {"d": 1}})
    found = compare(runs, ["RR"], judgments=judgments)
    assert ", ".join(found.runs) in expected["error_or_rename"]
    assert [found.mean("RR", name) for name in found.runs] == [1.0, 0.5]


@case
def paired_by_id_cov_07(given, expected):
    columns = {
        name: Scores("RR", ids(list(values)), np.array(list(values.values())))
        for name, values in given.items()
    }
    row = Comparison.from_scores(columns).row("RR")
    assert row.difference == expected["mean_diff"]
    assert (row.wins, row.losses, row.ties) == tuple(
        expected[k] for k in ("wins", "losses", "ties")
    )


@case
def same_seed_same_p_stat_01(given, expected):
    assert given["test"] == "permutation"
    # Too many patterns to look at all of them, so they are drawn.
    differences = np.random.default_rng(0).normal(0.1, 1, 60)
    found = {
        randomisation_p(differences, seed=given["seed"])[0].item() for _ in range(given["calls"])
    }
    assert len(found) == expected["distinct p-values"]


@case
def observed_one_is_counted_stat_02(given, expected):
    m, b = given["n_permutations"], given["extreme_permutations"]
    # 60 wins: none of the drawn patterns is as extreme.
    p = randomisation_p(np.ones(60), permutations=m)[0]
    assert expected["rule"] == "(b+1)/(m+1)"
    assert p == (b + 1) / (m + 1)
    assert p == pytest.approx(expected["p"], abs=5e-7)


@case
def one_query_has_no_p_stat_04(given, expected):
    (difference,) = given["diffs"]
    columns = {
        n: Scores("RR", ids(["q"]), np.array([v])) for n, v in (("a", 0.0), ("b", difference))
    }
    found = Comparison.from_scores(columns)
    assert found.row("RR").note == expected["note"]
    assert not found.row("RR").significant
    assert found.to_arrow()["p"].to_pylist() == [expected["p"]]


@case
def resamples_are_shared_stat_05(given, expected):
    assert given["per_query"].startswith("50 values")
    values = np.random.default_rng(0).random(50)
    queries = [f"q{i:02}" for i in range(50)]
    # Runs and measures of equal values: the same queries are drawn, so intervals are the same.
    run = Run.from_dict({q: ["d"] if v < 0.5 else ["x", "d"] for q, v in
                         zip(queries, values, strict=True)})  # fmt: skip
    judgments = Judgments.from_dict({q: {"d": 1} for q in queries})
    assert expected["ci"].startswith("paired bootstrap, same resamples")
    result = evaluate({"a": run, "b": run}, ["RR", "AP"], judgments=judgments)
    pairs = {result.interval(m, r) for m in ("RR", "AP") for r in ("a", "b")}
    ((low, high),) = pairs
    assert low < result.mean("RR", "a") < high
    # Means of the same draws differ by what the values differ by, draw by draw.
    both = resampled_means(np.stack([values, values + 1]), seed=0)
    np.testing.assert_allclose(both[1] - both[0], 1.0)


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name, lines, tmp_path):
    function = CASES[name]
    files = [tmp_path] if "folder" in inspect.signature(function).parameters else []
    function(*lines[name], *files)


def test_every_line_is_a_case(lines):
    assert set(lines) == set(CASES) | set(OF_FILES)


# -- their siblings -------------------------------------------------------------------------------


def test_the_worked_example_of_the_guide():
    problem = lay({"run": {"q": list("AXBYZ")}, "qrels": {"q": {"A": 2, "B": 1, "C": 1}}})
    assert round(mean("P@5", problem), 2) == 0.40
    assert round(mean("R@5", problem), 2) == 0.67
    assert mean("RR", problem) == 1.0
    assert round(mean("nDCG(gain=exp)@5", problem), 3) == 0.847


def test_ties_by_rank_or_file_are_none():
    frame = {"query_id": ["q"] * 2, "doc_id": ["a", "b"], "score": [1.0, 1.0], "rank": [1, 2]}
    judgments = Judgments.from_dict({"q": {"a": 1}})
    for order, rr, tied in (("score", 0.5, True), ("rank", 1.0, False), ("file", 1.0, False)):
        problem = align(Run.from_frame(frame, order=order), None, judgments)
        assert mean("RR", problem) == rr
        assert tied_queries(problem).tolist() == [tied]
        low, _, high = tie_range("RR", problem)
        assert (high[0] > low[0]) == tied
