"""Judged@k beside every measure, in every output: unjudged is not irrelevant."""

from __future__ import annotations

import json

import numpy as np
import pytest

from semrecall import compare, evaluate
from semrecall.data import Judgments, Run
from semrecall.evaluate.unjudged import judged_shares
from semrecall.measures import parse

# q1: a (relevant), x (unjudged), b (judged 0), y (unjudged); q2: c (relevant); q3 finds nothing.
RUN = Run.from_dict({"q1": ["a", "x", "b", "y"], "q2": ["c"], "q3": []})
LABELS = Judgments.from_dict({"q1": {"a": 2, "b": 0, "z": 1}, "q2": {"c": 1}, "q3": {"d": 1}})
#: Every kind of measure by judgments, and Judged@k of q1: 1/1, 1/2, 2/3, 2/4.
SHARES = {
    "P@1": 1.0, "R@2": 1 / 2, "nDCG@3": 2 / 3, "AP": 1 / 2, "RR": 1 / 2, "Success@1": 1.0,
    "Rprec": 1 / 2, "Bpref": 1 / 2, "infAP": 1 / 2, "RBP(p=0.8)": 1 / 2, "RBP(p=0.8)@2": 1 / 2,
    "ERR@3": 2 / 3, "nERR@3": 2 / 3, "IPrec@0.5": 1 / 2, "SetP": 1 / 2, "SetR": 1 / 2,
    "SetF": 1 / 2, "Rcap@2": 1 / 2, "APcap@3": 2 / 3, "P(judged_only=True)@2": 1 / 2,
}  # fmt: skip


@pytest.mark.parametrize("name", SHARES)
def test_every_measure_by_judgments_has_its_judged_share(name):
    result = evaluate(RUN, name, judgments=LABELS)
    shares = judged_shares(result.problems["run"], parse(name))
    np.testing.assert_allclose(shares, [SHARES[name], 1.0, np.nan])
    # The mean is over the queries with results: q1 and q2.
    assert result.summary()[0].judged == pytest.approx((SHARES[name] + 1) / 2)
    assert result.judged(name) == result.summary()[0].judged
    at_k = parse(f"Judged@{parse(name).k or 4}").values(result.problems["run"]).values
    np.testing.assert_allclose(shares[:2], at_k[:2])


@pytest.mark.parametrize("name", ["Judged@2", "NumRet", "NumRel", "NumRelRet", "NumQ"])
def test_counts_have_none(name):
    result = evaluate(RUN, name, judgments=LABELS)
    assert result.summary()[0].judged is None
    assert "judged  " not in str(result)


def test_measures_of_the_index_have_none():
    truth = Run.from_arrays([[1, 2]], query_ids=["q"], k=2)
    result = evaluate(truth, ["recall@2", "srecall@2"], truth=truth,
                      judgments=Judgments.from_dict({"q": {1: 1}}))  # fmt: skip
    assert [row.judged for row in result.summary()] == [None, None]


def test_slices_have_their_own():
    columns = {"query_id": ["q1", "q2", "q3"], "kind": ["long", "short", "none"]}
    result = evaluate(RUN, "nDCG@3", judgments=LABELS, columns=columns, by="kind")
    shares = {row.group: row.judged for row in result.summary(by="kind")}
    assert shares["long"] == pytest.approx(2 / 3)
    assert shares["short"] == 1.0
    assert np.isnan(shares["none"])


def test_every_format_shows_it(semrecall_main, tmp_path):
    (tmp_path / "a.run").write_text("q1 Q0 a 1 2 r\nq1 Q0 x 2 1 r\n")
    (tmp_path / "a.qrels").write_text("q1 0 a 1\n")
    asked = ("score", "a.run", "--judgments", "a.qrels", "-m", "Rprec", "-m", "P@1")
    _, table, _ = semrecall_main(*asked)
    head, first, second = table.splitlines()[2:5]
    assert "judged" in head
    assert "50.0%" in first
    assert second.split()[-2:] == ["100.0%", "1"]
    _, csv, _ = semrecall_main(*asked, "--format", "csv")
    at = csv.splitlines()[0].split(",").index("judged")
    assert [line.split(",")[at] for line in csv.splitlines()[1:]] == ["0.5", "1.0"]
    _, text, _ = semrecall_main(*asked, "--format", "json")
    assert [row["judged"] for row in json.loads(text)["summary"]] == [0.5, 1.0]
    _, markdown, _ = semrecall_main(*asked, "--format", "markdown")
    assert "| judged |" in markdown.splitlines()[0]


def test_comparisons_show_it_for_each_run(tmp_path):
    other = Run.from_dict({"q1": ["a", "b", "z"], "q2": ["c"], "q3": ["d"]})
    found = compare({"old": RUN, "new": other}, ["nDCG@3", "NumRet"], judgments=LABELS)
    # Of old q1 2/3 and q2 1; of new all.
    assert found.judged == {("old", "nDCG@3"): pytest.approx(5 / 6), ("new", "nDCG@3"): 1.0}
    assert "judged of nDCG@3: old 83.3%, new 100.0%" in str(found)
    assert found.to_dict()["judged"]["old"] == {"nDCG@3": pytest.approx(5 / 6)}
    for name in ("saved.json", "saved.parquet"):
        found.save(tmp_path / name)
        assert type(found).load(tmp_path / name).judged == found.judged
    alone = compare({"old": RUN, "same": RUN}, ["nDCG@3"], judgments=LABELS)
    longer = alone.extend({"new": other}, judgments=LABELS)
    assert longer.judged["new", "nDCG@3"] == 1.0
