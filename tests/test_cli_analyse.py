"""semrecall analyse, as a user types it: formats, options, files that do not fit."""

from __future__ import annotations

import csv
import io
import json

import pytest

import semrecall as sr


@pytest.fixture
def shell(tmp_path, semrecall_main):
    """Runs `semrecall ...` in a folder with files; gives status, stdout, stderr."""
    rows = {"q1": "abcde", "q2": "abcde", "q3": "fghij"}
    truth = sr.Run.from_arrays(
        [list(row) for row in rows.values()],
        [[0.9, 0.8, 0.5, 0.4, 0.1]] * 3,
        query_ids=list(rows),
        space="ip",
        k=5,
    )
    sr.write(truth, tmp_path / "truth.parquet")
    sr.write(truth.replace(flat_scores=None), tmp_path / "ids.parquet")
    lines = [f"q1 0 {d} {g}\n" for d, g in zip("abcd", (2, 0, 1, 0), strict=True)]
    lines += [f"q2 0 {d} 1\n" for d in "abcde"]
    lines += [f"q3 0 {d} 0\n" for d in "fghi"] + ["q3 0 x 1\n"]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    (tmp_path / "queries.jsonl").write_text(
        '{"id": "q1", "text": "first", "lang": "en"}\n'
        '{"id": "q2", "text": "second", "lang": "th"}\n'
        '{"id": "q3", "text": "third one", "lang": "en"}\n'
    )
    (tmp_path / "docs.jsonl").write_text('{"id": "f", "text": "text of f"}\n')
    (tmp_path / "run.txt").write_text("q1 Q0 a 1 0.9 t\nq2 Q0 b 1 0.8 t\nq3 Q0 x 1 0.7 t\n")
    return semrecall_main


BASIC = ("analyse", "truth.parquet", "--judgments", "qrels.txt")


def test_table(shell):
    status, out, err = shell(*BASIC, "--queries", "queries.jsonl", "--corpus", "docs.jsonl")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "3 queries, k = 5, relevant from grade 1, space ip"
    # (2 + 5 + 0)/3; q1 could have e too, q3 j: (3 + 5 + 1)/3.
    row = next(line for line in lines if line.startswith("all queries"))
    assert "2.33" in row
    assert row.endswith("2.33 to 3.00")
    assert "  q3: third one" in lines
    assert "    1.  f  0.9000  grade 0  text of f" in lines
    assert "    4 neighbours judged, 1 unjudged; 1 relevant document elsewhere" in lines
    assert max(map(len, lines)) <= 100


def test_json_has_the_figures_as_data(shell):
    status, out, _ = shell(*BASIC, "--format", "json", "--per-query")
    document = json.loads(out)
    assert status == 0
    assert document["distribution"]["counts"] == [1, 0, 1, 0, 0, 1]
    assert document["distribution"]["cumulative"][-1] == 1
    assert [g["group"] for g in document["groups"]] == ["", "0", "1-3", "4-5"]
    # q1: a above b and d, c above d and below b.
    assert document["correlation"]["within"]["mean"] == 0.5
    assert [len(document[key]) for key in ("bands", "without_relevant", "per_query")] == [5, 1, 3]
    assert document["per_query"][2]["delta"] is None


def test_csv_is_one_flat_table(shell):
    _, out, _ = shell(*BASIC, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    found = {(r["part"], r["group"], r["statistic"]): r for r in rows}
    # q1: semantic (0.9 + 0.5)/2, others (0.8 + 0.4)/2.
    assert float(found["groups", "1-3", "delta"]["value"]) == pytest.approx(0.1)
    assert found["groups", "1-3", "delta"]["low"] == ""
    assert found["distribution", "5", "queries"]["value"] == "1.0"


@pytest.mark.parametrize("format", ["table", "csv", "markdown"])
def test_per_query(shell, format):  # noqa: A002
    _, out, _ = shell(*BASIC, "--per-query", "--format", format)
    assert "semantic_score" in out.splitlines()[0]
    assert [f"q{i}" in out for i in (1, 2, 3)] == [True] * 3


def test_markdown(shell):
    _, out, _ = shell(*BASIC, "--format", "markdown", "--by", "lang", "--queries", "queries.jsonl")
    assert "### By lang\n\n" in out
    assert "\n| th | 1 | 5.00 | - |" in out
    assert "```text\n1 query without a relevant neighbour\n  q3: third one\n" in out


def test_html(shell, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra report")
    status, _, err = shell(*BASIC, "--html", "page.html", "--queries", "queries.jsonl")
    assert (status, err) == (0, "wrote page.html\n")
    page = (tmp_path / "page.html").read_text()
    assert "third one" in page
    assert "semrecall analyse truth.parquet --judgments qrels.txt" in page
    assert page.count("<svg") == 5


def test_options(shell):
    def counts(*options):
        _, out, err = shell(*BASIC, "--format", "json", *options)
        assert not err
        document = json.loads(out)
        return [g["queries"] for g in document["groups"]], document["unjudged_pairs"]

    assert counts() == ([3, 1, 1, 1], 2)
    assert counts("--rel", "2") == ([3, 2, 1, 0], 2)
    assert counts("-k", "1") == ([3, 1, 2], 0)
    assert counts("--exhaustive") == ([3, 1, 1, 1], 0)


def test_a_run_beside_it(shell):
    _, out, _ = shell(*BASIC, "--run", "run.txt")
    assert "recall and semantic recall of the run" in out
    # q1 found a, 1 of 5; q2 b, 1 of 5; q3 none.
    assert "0.1333" in out


def test_slices_by_a_file_of_columns(shell, tmp_path):
    (tmp_path / "columns.csv").write_text("query_id,kind\nq1,long\nq2,long\n")
    _, out, _ = shell(*BASIC, "--by", "kind", "--columns", "columns.csv")
    rows = [line.split() for line in out.splitlines()]
    # (2 + 5)/2 for the long ones.
    assert ["long", "2", "3.50"] in [row[:3] for row in rows]
    assert ["(no", "value)", "1", "0.00"] in [row[:4] for row in rows]


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ((), "missing option '--judgments'", "see semrecall analyse --help"),
        (("--judgments", "qrels.txt", "-k", "9"), "known to depth 5", "find more exact neighbours"),
        (("--judgments", "qrels.txt", "--by", "lang"), "nothing to slice by", "--columns FILE"),
        (("--judgments", "qrels.txt", "--rel", "nan"), "rel is nan", ""),
        (("--judgments", "qrels.txt", "--confidence", "2"), "confidence is 2", ""),
        (("--judgments", "qrels.txt", "--html", "page.txt"), "does not end in .html", ""),
        (("--judgments", "queries.jsonl"), "queries.jsonl", ""),
        (("--judgments", "qrels.txt", "--corpus", "queries.jsonl", "--queries", "run.txt"),
         "run.txt", ""),
    ],
)  # fmt: skip
def test_faults_are_told(shell, options, said, hint):
    status, out, err = shell("analyse", "truth.parquet", *options)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err
    assert hint in err


def test_ids_that_do_not_meet(shell, tmp_path):
    (tmp_path / "other.txt").write_text("q1 0 doc-a 1\nq1 0 doc-b 0\n")
    status, _, err = shell("analyse", "truth.parquet", "--judgments", "other.txt")
    assert status == 2
    assert "no neighbour in the truth has a judgment" in err


def test_a_truth_without_scores(shell):
    status, out, _ = shell("analyse", "ids.parquet", "--judgments", "qrels.txt")
    assert status == 0
    assert "the truth has no scores: only counts and ranks are analysed" in out


def test_it_does_not_write_over_what_it_reads(shell, tmp_path):
    (tmp_path / "truth.html").write_bytes((tmp_path / "truth.parquet").read_bytes())
    status, _, err = shell(
        "analyse", "truth.html", "--judgments", "qrels.txt", "--html", "truth.html"
    )
    assert status == 2
    assert "would write over" in err
