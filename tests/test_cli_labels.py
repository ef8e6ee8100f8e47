"""score with options on labels; pool, split and abstention, as a user types them."""

from __future__ import annotations

import csv
import io
import json

import pytest


@pytest.fixture
def shell(tmp_path, semrecall_main):
    """Runs `semrecall ...` in a folder with files; gives status, stdout, stderr."""
    results = {"q1": ["q1", "d", "e"], "q2": ["d", "e", "f"], "q3": ["f", "g", "d"],
               "q4": ["e", "g", "f"]}  # fmt: skip
    lines = [
        f"{query} Q0 {document} {rank} {4 - rank - int(query[1]) / 10:.2f} bm25\n"
        for query, row in results.items()
        for rank, document in enumerate(row, 1)
    ]
    (tmp_path / "run.txt").write_text("".join(lines))
    (tmp_path / "other.txt").write_text(
        "".join(lines).replace(" e ", " h ").replace("bm25", "dense")
    )
    (tmp_path / "qrels.txt").write_text("q1 0 d 1\nq2 0 e 1\nq3 0 d2 1\nq4 0 x 0\n")
    (tmp_path / "same.csv").write_text("id,same_as\nd2,d\n")
    (tmp_path / "texts.jsonl").write_text(
        '{"id": "d", "text": "Blue shirt"}\n{"id": "d2", "text": "blue  shirt"}\n'
        '{"id": "e", "text": "Red"}\n'
    )
    (tmp_path / "none.txt").write_text("q4\n")
    (tmp_path / "split.csv").write_text("query_id,split\nq1,dev\nq2,test\nq3,test\nq4,dev\n")
    (tmp_path / "queries.csv").write_text(
        "query_id,answerable,lang,sure\nq1,true,en,0.9\nq2,true,en,0.8\nq3,true,th,0.7\n"
        "q4,false,th,0.2\n"
    )
    return semrecall_main


QRELS = ("run.txt", "--judgments", "qrels.txt", "-m", "RR", "--per-query", "--format", "csv")


def values(out):
    return {row["query"]: row["RR"] for row in csv.DictReader(io.StringIO(out))}


# -- score --------------------------------------------------------------------------------------


def test_score_as_it_is(shell):
    assert values(shell("score", *QRELS)[1]) == {"q1": "0.5", "q2": "0.5", "q3": "0.0", "q4": ""}
    _, out, _ = shell("score", "run.txt", "--judgments", "qrels.txt", "-m", "RR")
    assert "1 query id equals the id of the first result" in out
    assert "if unjudged results were irrelevant or of grade 1" in out
    # q1: rank 2 of 3 (its first is unjudged), q2 as well, q3: nothing judged. 1/3 each.
    _, out, _ = shell("score", "run.txt", "--judgments", "qrels.txt", "-m", "RR", "--format",
                      "markdown")  # fmt: skip
    assert (
        "RR: 22.2% of the results are judged; the unjudged could make it 0.3333 to 1.0000 (each "
        "irrelevant or of grade 1)"
    ) in out


def test_score_without_the_query_itself(shell):
    assert values(shell("score", *QRELS, "--drop-self")[1])["q1"] == "1.0"


@pytest.mark.parametrize(
    "options",
    [
        ("--same-as", "same.csv"),
        ("--same-text", "texts.jsonl"),
        ("--same-as", "same.csv", "--same-text", "texts.jsonl", "--text-rule", "exact"),
    ],
)
def test_score_of_documents_that_are_the_same(shell, options):
    found = values(shell("score", *QRELS, *options)[1])
    assert float(found["q3"]) == 1 / 3


def test_exact_texts_differ_in_case(shell):
    found = values(shell("score", *QRELS, "--same-text", "texts.jsonl", "--text-rule", "exact")[1])
    assert found["q3"] == "0.0"


def test_conflicting_grades_of_one_document(shell, tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0 d 1\nq1 0 d2 0\n")
    status, _, err = shell("score", *QRELS, "--same-as", "same.csv")
    assert status == 0
    assert "warning: 1 class has members of different grades" in err
    status, _, err = shell("score", *QRELS, "--same-as", "same.csv", "--same-conflicts", "error")
    assert status == 2
    assert "hint: take the highest" in err


def test_score_keeps_queries_without_an_answer_apart(shell):
    given = ("run.txt", "--judgments", "qrels.txt", "-m", "RR")
    for options in (("--unanswerable", "none.txt"), ("--columns", "queries.csv")):
        _, out, _ = shell("score", *given, *options)
        assert "left out of RR: 1 known to have no answer" in out


def test_score_a_part_of_a_split(shell, tmp_path):
    assert set(values(shell("score", *QRELS, "--split", "split.csv:dev")[1])) == {"q1", "q4"}
    assert not (tmp_path / "split.csv.uses.jsonl").exists()
    status, out, err = shell("score", *QRELS, "--split", "split.csv", "--part", "test")
    assert status == 0
    # Only what stands under a table.
    assert "scored 1 time" not in err
    assert "note: 2 of 4 queries scored, the others set aside\n" in err
    assert set(values(out)) == {"q2", "q3"}
    _, _, err = shell("score", *QRELS, "--split", "split.csv:test")
    assert "split.csv: the test was scored 2 times, with 1 different result\n" in err
    shell("score", *QRELS, "--split", "split.csv:test", "-m", "P@1")
    _, out, err = shell("score", *QRELS, "--split", "split.csv:test", "-m", "P@2")
    assert "warning: the test split split.csv has been scored 4 times with 3 different" in err
    assert set(values(out)) == {"q2", "q3"}
    uses = (tmp_path / "split.csv.uses.jsonl").read_text().splitlines()
    assert [json.loads(line)["part"] for line in uses] == ["test"] * 4


def test_compare_takes_the_same_options(shell):
    status, out, _ = shell(
        "compare", "run.txt", "other.txt", "--judgments", "qrels.txt", "-m", "RR",
        "--split", "split.csv:test", "--same-as", "same.csv", "--format", "json",
    )  # fmt: skip
    assert status == 0
    assert json.loads(out)["queries"] in (2, ["q2", "q3"])


def test_score_labels_on_spans(shell, tmp_path):
    (tmp_path / "spans.jsonl").write_text(
        '{"query_id": "q1", "document_id": "D", "start": 3, "end": 9}\n'
        '{"query_id": "q2", "document_id": "D", "start": 12, "end": 16, "grade": 2}\n'
    )
    (tmp_path / "chunks.csv").write_text(
        "id,document_id,start,end\nq1,D,20,30\nd,D,0,10\ne,D,10,20\nf,E,0,10\ng,E,10,20\n"
    )
    given = ("run.txt", "--spans", "spans.jsonl", "--chunks", "chunks.csv")
    status, out, err = shell("score", *given)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[3:9]] == [
        "SpanR@3", "SpanP@3", "SpanIoU@3", "nDCG@10", "RR@10", "R@3",
    ]  # fmt: skip
    _, out, _ = shell("score", *given, "-m", "SpanR@2", "-m", "RR", "--per-query",
                      "--format", "csv")  # fmt: skip
    assert out.splitlines() == ["query,SpanR@2,RR", "q1,1.0,0.5", "q2,1.0,0.5"]
    status, _, err = shell("score", *given, "--overlap", "most")
    assert status == 2
    assert "'most' is no rule of overlap" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--split", "split.csv"),
            ["--split split.csv names no part", "hint: write split.csv:dev"],
        ),
        (("--split", "nowhere.csv:dev"), ["there is no file nowhere.csv"]),
        (("--split", "split.csv:tset"), ["the split has no part 'tset'", "did you mean test?"]),
        (("--split", "split.csv:dev", "--part", "test"), ["name two parts"]),
        (("--spans", "same.csv"), ["same.csv"]),
        (("--same-as", "none.txt"), ["none.txt: expected JSON lines"]),
        (("--chunks", "same.csv"), ["same.csv"]),
    ],
)
def test_wrong_options_of_score(shell, options, said):
    status, out, err = shell("score", *QRELS, *options)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    for text in said:
        assert text in err


# -- pool ---------------------------------------------------------------------------------------


def test_pool(shell, tmp_path):
    status, out, err = shell("pool", "run.txt", "other.txt", "--judgments", "qrels.txt",
                             "--depth", 2)  # fmt: skip
    assert (status, err) == (0, "")
    assert out.splitlines()[0].split() == ["judged", "@1", "@2"]
    assert "unjudged pairs and 2 judged in the first 2 results" in out
    assert "rank 1 in bm25, 1 in dense" in out
    status, out, err = shell("pool", "run.txt", "other.txt", "--judgments", "qrels.txt",
                             "--budget", 5, "--sample", 2, "-o", "pairs.jsonl")  # fmt: skip
    assert (status, err) == (0, "wrote 5 pairs to pairs.jsonl\n")
    assert "2 of them drawn at random, seed 0" in out
    assert "rank" not in out
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [row["picked"] for row in rows] == ["change"] * 3 + ["sample"] * 2
    whole = json.loads(shell("pool", "run.txt", "--format", "json")[1])
    assert whole["unjudged"] == len(whole["pairs"]) == 12
    assert len(shell("pool", "run.txt", "--format", "csv")[1].splitlines()) == 13
    assert "| judged |" in shell("pool", "run.txt", "--format", "markdown")[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sample", 3), "a sample needs a budget"),
        (("--measure", "recall@3"), "recall@3 does not depend on judgments"),
        (("-o", "pairs.txt"), "a pool is written as JSON lines, CSV or parquet"),
    ],
)
def test_wrong_options_of_pool(shell, options, said):
    status, out, err = shell("pool", "run.txt", *options)
    assert (status, out) == (2, "")
    assert said in err


# -- split --------------------------------------------------------------------------------------


def test_split(shell, tmp_path):
    for source in ("qrels.txt", "run.txt", "queries.csv"):
        status, out, err = shell("split", source, "-o", "new.csv")
        assert (status, err) == (0, "wrote new.csv\n")
        found = list(csv.DictReader(io.StringIO((tmp_path / "new.csv").read_text())))
        assert [row["query_id"] for row in found] == ["q1", "q2", "q3", "q4"]
    assert out.splitlines()[-1] == "seed 0"
    written = shell("split", "qrels.txt", "--format", "csv")[1]
    assert written == (tmp_path / "new.csv").read_text()
    _, out, _ = shell("split", "queries.csv", "--by", "lang", "--dev", 0.5, "--format", "json")
    document = json.loads(out)
    assert document["counts"] == {"dev": 2, "test": 2}
    assert document["by"] == ["lang"]
    assert "spread by lang" in shell("split", "run.txt", "--columns", "queries.csv", "--by",
                                     "lang")[1]  # fmt: skip
    assert shell("split", "qrels.txt", "--by", "lang")[0] == 2
    assert shell("split", "qrels.txt", "--dev", 2)[0] == 2


# -- abstention ---------------------------------------------------------------------------------


def test_abstention(shell):
    status, out, err = shell("abstention", "run.txt", "--unanswerable", "none.txt")
    assert (status, err) == (0, "")
    # The top scores fall from q1 to q4.
    assert "AUC 1.0000" in out
    assert out.splitlines()[0].split() == [
        "threshold", "answerable", "kept", "unanswerable", "rejected", "cost",
    ]  # fmt: skip
    _, out, _ = shell("abstention", "run.txt", "--columns", "queries.csv", "--score", "sure",
                      "--threshold", 0.75, "--format", "json")  # fmt: skip
    found = json.loads(out)
    assert found["given"]["kept"] == 2 / 3
    assert found["best"]["value"] == 0.7
    assert found["curve"][-1]["value"] is None
    _, out, _ = shell("abstention", "run.txt", "--columns", "queries.csv", "--format", "csv")
    assert out.splitlines()[0] == "value,kept,rejected,cost"
    assert len(out.splitlines()) == 6
    _, out, _ = shell("abstention", "run.txt", "--columns", "queries.csv", "--split",
                      "split.csv:dev")  # fmt: skip
    assert "1 answerable query, 1 without an answer" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give either answerable or unanswerable"),
        (("--columns", "queries.csv", "--score", "shure"), "did you mean sure?"),
        (("--columns", "queries.csv", "--score", "lang"), "'lang' is no column of numbers"),
        (("--unanswerable", "none.txt", "--cost", 0), "cost is 0"),
        (("--columns", "same.csv"), "no column for whether there is an answer"),
    ],
)
def test_wrong_options_of_abstention(shell, options, said):
    status, out, err = shell("abstention", "run.txt", *options)
    assert (status, out) == (2, "")
    assert said in err


def test_a_part_without_a_split_is_refused(semrecall_main, tmp_path):
    (tmp_path / "a.run").write_text("q1 Q0 a 1 1 x\n")
    (tmp_path / "a.qrels").write_text("q1 0 a 1\n")
    for command in ("score", "pool"):
        status, out, err = semrecall_main(
            command, "a.run", "--judgments", "a.qrels", "--part", "test"
        )
        assert (status, out) == (2, "")
        assert "--part test is given without --split" in err
