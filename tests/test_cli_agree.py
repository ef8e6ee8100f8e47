"""semrecall agree, as a user types it: what it prints, what it returns, what it refuses."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semrecall.data import Judgments, Run
from semrecall.formats import write
from semrecall.judges import Ledger, Vote

FIRST = {"a": {"d1": 2, "d2": 0, "d3": 1}, "b": {"d4": 0, "d5": 3}}
SECOND = {"a": {"d1": 3, "d2": 0, "d3": 0}, "b": {"d4": 0, "d5": 1}}


@pytest.fixture
def shell(tmp_path, semrecall_main):
    """Runs `semrecall agree ...` in a folder with files; gives status, stdout, stderr."""
    for name, grades in (("llm", FIRST), ("human", SECOND)):
        write(Judgments.from_dict(grades), tmp_path / f"{name}.parquet")
    rows = [(q, d, FIRST[q][d], SECOND[q][d]) for q in FIRST for d in FIRST[q]]
    columns = dict(zip(("query_id", "doc_id", "gpt4o", "human"), zip(*rows, strict=True),
                       strict=True))  # fmt: skip
    pq.write_table(pa.table({k: list(v) for k, v in columns.items()}), tmp_path / "wide.parquet")
    scores = [[0.9, 0.8], [0.9, 0.1]]
    truth = Run.from_arrays([["d1", "d3"], ["d5", "d9"]], scores, query_ids=["a", "b"],
                            space="ip", k=2)  # fmt: skip
    found = Run.from_arrays([["d1", "d2"], ["d9", "d5"]], scores, query_ids=["a", "b"],
                            space="ip", k=2, name="ivf")  # fmt: skip
    write(truth, tmp_path / "truth.parquet")
    write(found, tmp_path / "run.parquet")

    def run(*arguments):
        return semrecall_main("agree", *arguments)

    return run


def test_two_files(shell):
    status, out, err = shell("llm.parquet", "human.parquet")
    assert status == 0
    assert err == ""
    lines = [line.split() for line in out.splitlines()]
    assert ["relevant", "2", "1", "3"] in lines
    assert ["not", "relevant", "0", "2", "2"] in lines
    assert "0.6154" in next(line for line in out.splitlines() if line.startswith("Cohen's kappa"))
    assert "1 of 2 queries below 70.0% agreement" in out
    assert "llm is more lenient than human" in out
    assert max(map(len, out.splitlines())) <= 100


def test_columns_of_one_file_are_judges(shell):
    status, out, _ = shell("wide.parquet:gpt4o", "wide.parquet:human", "--format", "json")
    found = json.loads(out)
    assert status == 0
    assert [judge["name"] for judge in found["judges"]] == ["gpt4o", "human"]
    assert found["pairs"][0]["table"] == [[2, 1], [0, 2]]
    assert found["pairs"][0]["values"]["agreement"]["value"] == 0.8
    names = shell("wide.parquet:human", "human.parquet", "--format", "json")[1]
    assert [j["name"] for j in json.loads(names)["judges"]] == [
        "wide.parquet:human", "human.parquet",
    ]  # fmt: skip


def test_relevant_from(shell):
    files = ("wide.parquet:gpt4o", "wide.parquet:human", "--format", "json")

    def table(*options):
        return json.loads(shell(*files, *options)[1])["pairs"][0]["table"]

    # From 2: gpt4o d1 and d5, human d1.
    assert table("--rel", 2) == [[1, 1], [0, 3]]
    assert table("--rel", "gpt4o=2") == [[2, 0], [0, 3]]
    assert table("--rel", 3, "--rel", "human=1") == [[1, 0], [1, 3]]


def test_measures_and_html(shell, tmp_path):
    status, out, err = shell(
        "llm.parquet", "human.parquet", "--truth", "truth.parquet", "--run", "run.parquet",
        "--html", "page.html",
    )  # fmt: skip
    assert status == 0
    assert "among the exact top 2" in out
    assert "srecall@2" in out
    assert "whatever the labels" in out
    assert err == "wrote page.html\n"
    page = (tmp_path / "page.html").read_text()
    assert "llm and human agree on" in page
    assert "semrecall agree llm.parquet" in page


def test_csv_and_markdown_and_every_query(shell):
    out = shell("llm.parquet", "human.parquet", "--run", "run.parquet", "-m", "P@1",
                "--format", "csv")[1]  # fmt: skip
    rows = {(r["first"], r["estimate"]): r for r in csv.DictReader(io.StringIO(out))}
    assert float(rows["llm", "agreement"]["value"]) == 0.8
    assert rows["", "alpha_nominal"]["pairs"] == "5"
    assert float(rows["llm and human", "P@1"]["value"]) == 0.5
    out = shell("llm.parquet", "human.parquet", "--per-query", "--format", "csv")[1]
    assert out.splitlines()[:2] == ["query,pairs,agreement", f"a,3,{2 / 3}"]
    out = shell("llm.parquet", "human.parquet", "--format", "markdown")[1]
    assert out.startswith("| first | second | estimate |")
    whole = shell("llm.parquet", "human.parquet", "--per-query", "--format", "json")[1]
    assert len(json.loads(whole)["per_query"]) == 2


def test_one_file_of_several_people(shell, tmp_path):
    rows = [
        {"query_id": q, "doc_id": d, "grade": g, "judge": name}
        for name, grades in (("ann", FIRST), ("bob", SECOND))
        for q in grades
        for d, g in grades[q].items()
    ]
    rows.append({"query_id": "a", "doc_id": "d2", "grade": 0, "judge": "ann"})
    rows.append({"query_id": "b", "doc_id": "d6", "grade": None, "judge": "bob", "status": "skip"})
    path = tmp_path / "people.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out, _ = shell("people.jsonl", "--rel", "bob=2")
    assert status == 0
    assert "ann and bob: 5 pairs of 2 queries" in out
    assert "pairs judged again" in out
    assert "1 pair without a grade by bob, skip" in out
    (tmp_path / "people.csv").write_text(
        "query_id,doc_id,grade,judge\na,d1,1,ann\na,d1,1,bob\na,d2,0,ann\na,d2,1,bob\n"
    )
    assert "2 pairs of 1 query" in shell("people.csv")[1]


def test_three_files(shell):
    out = shell("llm.parquet", "human.parquet", "wide.parquet:gpt4o", "--rel", 2)[1]
    assert "llm, human" in out
    assert "human, gpt4o" in out
    assert "most lenient: llm" in out


def test_degenerate_kappa_is_null_with_a_reason(shell, tmp_path):
    for name, grade in (("x", 1), ("y", 2)):
        write(Judgments.from_dict({"a": {"d": grade}, "b": {"e": 1}}), tmp_path / f"{name}.parquet")
    status, out, _ = shell("x.parquet", "y.parquet", "--format", "json")
    values = json.loads(out)["pairs"][0]["values"]
    assert status == 0
    assert values["agreement"]["value"] == 1.0
    assert values["kappa"] == {
        "value": None, "low": None, "high": None, "reason": "all labels are one class",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["none.parquet", "human.parquet"], "there is no file none.parquet", None),
        (["llm.parquet"], "has no column judge", "give a second file"),
        (["wide.parquet"], "has no column judge", "wide.parquet:COLUMN wide.parquet:COLUMN"),
        (["wide.parquet:gpt5", "human.parquet"], "expected gpt5", "wide.parquet:COLUMN"),
        (["llm.parquet", "human.parquet", "--rel", "humn=2"], "names no judge 'humn'", "human"),
        (["llm.parquet", "human.parquet", "--rel", "two"], "neither a grade", "--rel human=2"),
        (["llm.parquet", "human.parquet", "--rel", "human=x"], "neither a grade", "--rel 2"),
        (["llm.parquet", "human.parquet", "-k", 2], "-k is given without --truth", "--help"),
        (["llm.parquet", "human.parquet", "-m", "P@1"], "without a run", "--run"),
        (["llm.parquet", "human.parquet", "--html", "page.txt"], "does not end in .html", "help"),
        (["llm.parquet", "human.parquet", "--run", "run.parquet", "-m", "Q@1"], "unknown", None),
        (["llm.parquet", "human.parquet", "--truth", "human.parquet"], "judgments", None),
        ([], "missing argument", "--help"),
    ],
)
def test_faults_are_one_message(shell, arguments, message, hint):
    status, out, err = shell(*arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert hint is None or hint in err.partition("hint: ")[2]
    assert "Traceback" not in err


def test_ids_that_do_not_meet(shell, tmp_path):
    other = {q: {f"{d}.txt": g for d, g in row.items()} for q, row in SECOND.items()}
    write(Judgments.from_dict(other), tmp_path / "other.parquet")
    status, _, err = shell("llm.parquet", "other.parquet")
    assert status == 2
    assert "no pair of query and document in common" in err
    assert "a file name's ending" in err


def test_the_same_file_twice(shell):
    status, out, err = shell("llm.parquet", "llm.parquet")
    assert status == 0
    assert "warning: llm and llm#2 have the same grades" in err
    assert "never differ" in " ".join(out.split())


def test_labels_without_grades(shell, tmp_path):
    none = Judgments.from_arrays(["a"], ["d1"], [np.nan], status=["refused"])
    write(none, tmp_path / "none.parquet")
    status, out, _ = shell("llm.parquet", "none.parquet")
    assert status == 0
    assert "no pair that both graded" in out
    assert "1 pair without a grade by none, refused" in out
    assert shell("llm.parquet", "none.parquet", "--html", "page.html")[0] == 0


@pytest.fixture
def ledger(tmp_path):
    """Labels of a model and of a person, who graded a pair twice and decided another."""
    path = tmp_path / "all.ledger"
    with Ledger(path) as book:
        book.add(Judgments.from_dict(FIRST), "model")
        book.add(Judgments.from_dict(SECOND), "human:anna")
        book.vote(book.person("anna"), Vote("a", "d1", 0.0, kind="repeat", repeat=1))
        book.vote(book.person("adjudicated"), Vote("a", "d3", 1.0, kind="adjudication"))
    return path


def test_the_judges_of_a_ledger(shell, ledger):
    # Decisions follow the labels of others: they are no third judge.
    status, out, _ = shell("all.ledger", "--format", "json")
    assert status == 0
    found = json.loads(out)
    assert [(p["first"], p["second"]) for p in found["pairs"]] == [("model", "human:anna")]
    _, out, _ = shell("all.ledger")
    assert "model and human:anna: 5 pairs of 2 queries" in out
    assert "pairs judged again" in out
    _, out, _ = shell("all.ledger:model", "all.ledger:human:anna", "--rel", "human:anna=2")
    assert "model and human:anna: 5 pairs of 2 queries" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("llm.parquet", "all.ledger"), "all.ledger:COLUMN (of a ledger: the judge)"),
        (("llm.parquet", "all.ledger:human:ann"), "did you mean human:anna?"),
        (("none.ledger:human:anna", "llm.parquet"), "there is no file none.ledger"),
    ],
)
def test_what_names_no_judge_of_a_ledger(shell, ledger, arguments, says):
    status, _, err = shell(*arguments)
    assert status == 2
    assert says in err
