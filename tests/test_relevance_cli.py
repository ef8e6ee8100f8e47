"""Relevance measures through evaluate and `semrecall score`: ties, no relevant document, order."""

from __future__ import annotations

import csv
import io
import json
import sys
import warnings

import pytest

from semrecall.data import Judgments, Run
from semrecall.errors import InputError
from semrecall.evaluate import compare, evaluate

# q1 is tied: the one relevant document stands third by id. q2 is not; q3 has nothing relevant.
RUN = """\
q1 Q0 a 1 1.0 bm25
q1 Q0 b 2 1.0 bm25
q1 Q0 c 3 1.0 bm25
q2 Q0 a 1 2.0 bm25
q2 Q0 b 2 1.0 bm25
q3 Q0 a 1 1.0 bm25
"""
QRELS = "q1 0 a 1\nq2 0 a 1\nq3 0 a 0\n"


@pytest.fixture
def shell(tmp_path, semrecall_main):
    """Runs `semrecall ...` in a folder with run.txt and qrels.txt; gives status, stdout, stderr."""
    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)
    return semrecall_main


SCORE = ("score", "run.txt", "--judgments", "qrels.txt")


def test_tied_queries_are_counted_in_every_table(shell):
    status, out, _ = shell(*SCORE, "-m", "RR", "-m", "nDCG@10")
    assert status == 0
    assert "1 query where results of different grades have equal scores (--ties)" in out
    assert "over all orders" not in out
    _, out, _ = shell(*SCORE, "-m", "RR", "--format", "json")
    assert json.loads(out)["runs"]["bm25"]["tied"] == 1


def test_ties_shows_the_range_of_each_measure(shell):
    status, out, _ = shell(*SCORE, "-m", "RR", "-m", "Success@1", "-m", "SetP", "--ties")
    assert status == 0
    table = out[out.index("over all orders of equally scored results") :].splitlines()
    assert " ".join(table[1].split()) == "lowest expected as ranked highest queries it touches"
    # q1: 1/3, the mean of 1, 1/2 and 1/3, and 1; q2 is 1.
    assert table[2].split() == ["RR", "0.6667", "0.8056", "0.6667", "1.0000", "1", "of", "2"]
    assert table[3].split()[:5] == ["Success@1", "0.5000", "0.6667", "0.5000", "1.0000"]
    assert table[4].split() == ["SetP", *["0.4167"] * 4, "0", "of", "2"]
    assert len(table) == 5
    assert all(len(line) <= 100 for line in out.splitlines())


def test_what_is_drawn_is_said_to_be(shell):
    _, out, _ = shell(*SCORE, "-m", "ERR", "-m", "infAP", "--ties", "--seed", "3")
    assert "ERR, infAP: the range is that of 200 random orders, seed 3" in out
    _, out, _ = shell(*SCORE, "-m", "ERR", "--ties")
    assert "ERR: the expected value is that of 200 random orders, seed 0" in out


def test_ties_in_the_other_formats(shell):
    asked = (*SCORE, "-m", "RR", "--ties", "--format")
    found = json.loads(shell(*asked, "json")[1])["ties"]
    assert found == [
        {
            "run": "bm25", "measure": "RR", "low": pytest.approx(2 / 3),
            "expected": pytest.approx((11 / 18 + 1) / 2), "mean": pytest.approx(2 / 3),
            "high": 1.0, "touched": 1, "queries": 2,
        }
    ]  # fmt: skip
    (row,) = csv.DictReader(io.StringIO(shell(*asked, "csv")[1]))
    assert row["measure"] == "RR"
    assert float(row["high"]) == 1.0
    assert "| RR " in shell(*asked, "markdown")[1]
    rows = list(csv.DictReader(io.StringIO(shell(*asked, "csv", "--per-query")[1])))
    assert [row["query"] for row in rows] == ["q1", "q2", "q3"]
    assert (rows[0]["low"][:6], rows[0]["expected"][:6], rows[0]["high"]) == (
        "0.3333", "0.6111", "1.0",
    )  # fmt: skip
    assert rows[2]["low"] == ""


def test_ties_without_a_measure_by_judgments(shell):
    from semrecall.formats import write

    write(Run.from_dict({"q1": ["a"], "q2": ["a"], "q3": ["a"]}), "truth.parquet")
    status, out, _ = shell(
        "score", "run.txt", "--truth", "truth.parquet", "-m", "recall@1", "--ties"
    )
    assert status == 0
    assert "no measure by judgments, so no range over ties" in out


def test_no_relevant_zero_is_trec_evals_mean(shell):
    _, out, _ = shell(*SCORE, "-m", "RR", "--format", "json")
    (row,) = json.loads(out)["summary"]
    assert (row["n"], row["left_out"]) == (2, {"no relevant document": 1})
    assert row["mean"] == pytest.approx((1 / 3 + 1) / 2)
    _, out, _ = shell(*SCORE, "-m", "RR", "--format", "json", "--no-relevant", "zero")
    (row,) = json.loads(out)["summary"]
    assert (row["n"], row["left_out"]) == (3, {})
    assert row["mean"] == pytest.approx((1 / 3 + 1) / 3)
    assert "queries without a relevant document, taken as 0: 1" in row["notes"]


def test_the_order_of_the_rank_column_has_no_ties(shell):
    _, out, _ = shell(*SCORE, "-m", "RR", "--order", "rank", "--ties", "--format", "json")
    found = json.loads(out)
    assert found["runs"]["bm25"]["tied"] == 0
    assert found["ties"][0]["low"] == found["ties"][0]["high"] == 1.0


def test_a_measure_of_trec_evals_name_finds_its_values(shell):
    status, out, _ = shell(*SCORE, "-m", "recip_rank", "-m", "P_5", "--fail-under", "RR=0.5")
    assert status == 0
    assert "RR " in out
    assert "P@5" in out


def test_a_family_without_its_extra(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    status, out, err = shell(*SCORE, "-m", "Compat")
    assert (status, out) == (2, "")
    assert "ir_measures" in err
    assert 'hint: pip install "semrecall[ir]"' in err


def test_diversity_from_qrels_by_subtopic(shell, tmp_path):
    pytest.importorskip("ir_measures", reason="needs the extra ir")
    (tmp_path / "div.txt").write_text("q1 1 c 1\nq1 2 c 1\nq1 2 a 1\nq2 1 a 1\nq2 2 b 1\n")
    asked = ("score", "run.txt", "--judgments", "div.txt", "-m", "StRecall@1", "--format", "json")
    status, out, _ = shell(*asked, "--subtopics")
    assert status == 0
    (row,) = json.loads(out)["summary"]
    # q1: c stands first and has both of two; q2: a has one of two.
    assert row["mean"] == 0.75
    status, _, err = shell(*asked)
    assert status == 2
    assert "StRecall needs judgments by subtopic" in err
    assert "--subtopics" in err


def test_evaluate_and_compare_take_the_policy():
    runs = {
        "a": Run.from_dict({"q1": ["a"], "q2": ["a"]}),
        "b": Run.from_dict({"q1": ["b", "a"], "q2": ["a"]}),
    }
    judgments = Judgments.from_dict({"q1": {"a": 1}, "q2": {"a": 0}})
    result = evaluate(runs, ["RR"], judgments=judgments, no_relevant="zero")
    assert result.mean("RR", "a") == 0.5
    assert result.mean("RR", "b") == 0.25
    with pytest.raises(InputError, match="no_relevant is 'nil'; expected 'skip' or 'zero'"):
        evaluate(runs, ["RR"], judgments=judgments, no_relevant="nil")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compare(runs, ["RR"], judgments=judgments, no_relevant="zero")
    assert "RR" in str(found)


def test_index_measures_alone_count_no_ties():
    run = Run.from_dict({"q": {"a": 1.0, "b": 1.0}})
    result = evaluate(run, ["recall@1"], truth=run, judgments=Judgments.from_dict({"q": {"a": 1}}))
    assert result.counts["run"].tied == 0
    assert result.ties() == ()
