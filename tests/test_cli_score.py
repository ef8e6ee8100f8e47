"""semrecall score, as a user types it: what it prints, what it returns, what it refuses."""

from __future__ import annotations

import csv
import io
import json
import sys

import numpy as np
import pytest

from semrecall.cli.tables import json_text, rows_text
from semrecall.data import Judgments, Run, Vectors
from semrecall.formats import write

TRUTH_IDS = [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]


@pytest.fixture
def shell(tmp_path, semrecall_main):
    """Runs `semrecall score ...` in a folder with files; gives status, stdout, stderr."""
    scores = [[1.0, 0.9, 0.8, 0.7]] * 3
    queries = ["a", "b", "c"]
    truth = Run.from_arrays(TRUTH_IDS, scores, query_ids=queries, space="ip", k=4)
    # Four, two and one of four found.
    ids = [[0, 1, 2, 3], [10, 11, 98, 99], [20, 97, 98, 99]]
    found = Run.from_arrays(ids, scores, query_ids=queries, space="ip", k=4, name="ivf")
    labels = Judgments.from_dict(
        {"a": {0: 1, 1: 2, 2: 0, 3: 0}, "b": {10: 1, 11: 0, 12: 1, 13: 0}, "c": {20: 0}}
    )
    write(truth, "truth.parquet")
    write(found, "run.parquet")
    write(labels, "labels.parquet")
    (tmp_path / "columns.csv").write_text("query_id,lang\na,en\nb,en\nc,th\n")

    def run(*arguments, command="score"):
        return semrecall_main(command, *arguments)

    return run


ALL = ("run.parquet", "--truth", "truth.parquet", "--judgments", "labels.parquet")


def test_measures_follow_from_what_is_given(shell):
    status, out, err = shell(*ALL)
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[3:6]] == [
        "recall@4", "srecall@4", "trecall@4",
    ]  # fmt: skip
    # 7/12 and (1 + 1/2) / 2.
    assert "0.5833" in out
    assert "0.7500" in out
    assert err == ""
    assert "recall@4" in shell("run.parquet", "--truth", "truth.parquet")[1]
    ranked = shell("run.parquet", "--judgments", "labels.parquet")[1]
    assert "nDCG@10" in ranked
    assert "R@4" in ranked


def test_json_is_valid_and_complete(shell):
    status, out, _ = shell(
        *ALL, "-m", "recall@4", "-m", "srecall@4", "--by", "lang", "--columns", "columns.csv",
        "--per-query", "--format", "json", "--seed", 7,
    )  # fmt: skip

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(out, parse_constant=refuse)
    assert status == 0
    assert found["seed"] == 7
    assert found["confidence"] == 0.95
    assert {"semrecall", "numpy", "python"} <= set(found["versions"])
    recall, semantic = found["summary"]
    assert recall["measure"] == "recall@4"
    assert recall["mean"] == pytest.approx(7 / 12)
    assert recall["n"] == 3
    assert recall["low"] <= recall["mean"] <= recall["high"]
    assert sum(semantic["left_out"].values()) == 1
    assert [r["group"] for r in found["slices"]["lang"]] == ["en", "th", "en", "th"]
    # The mean of no value is null.
    assert found["slices"]["lang"][3]["mean"] is None
    assert found["per_query"][1] == {
        "query": "b", "lang": "en", "recall@4": 0.5, "srecall@4": 0.5
    }  # fmt: skip
    assert found["per_query"][2]["srecall@4"] is None
    assert found["runs"]["ivf"]["queries"] == 3


def test_csv_is_exact_and_one_table(shell):
    _, out, _ = shell(*ALL, "--by", "lang", "--columns", "columns.csv", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 9
    assert float(rows[0]["mean"]) == 7 / 12
    assert rows[0]["run"] == "ivf"
    assert rows[0]["group"] == ""
    assert rows[3]["column"] == "lang"
    assert rows[1]["left_out"].endswith(": 1")
    assert rows[0]["left_out"] == ""


def test_csv_per_query(shell):
    _, out, _ = shell(*ALL, "--per-query", "--format", "csv", "-m", "recall@4", "-m", "srecall@4")
    assert out.splitlines() == ["query,recall@4,srecall@4", "a,1.0,1.0", "b,0.5,0.5", "c,0.25,"]


@pytest.mark.parametrize("more", [(), ("--per-query",), ("--ties", "-m", "P@1")])
def test_notes_beside_csv_go_to_stderr(shell, more):
    _, table, quiet = shell(*ALL, *more, "--seed", 3)
    assert "seed 3" in table
    assert quiet == ""
    status, out, err = shell(*ALL, *more, "--seed", 3, "--format", "csv")
    assert status == 0
    assert len({len(row) for row in csv.reader(io.StringIO(out))}) == 1
    assert "left out of " in err
    assert "intervals: 95%, bootstrap over queries, 2,000 resamples, seed 3" in err
    status, out, err = shell(*ALL, *more, "--seed", 3, "--format", "json")
    assert err == ""
    assert json.loads(out)["intervals"][0].endswith("seed 3")


def test_markdown_says_what_was_left_out(shell):
    _, out, _ = shell(*ALL, "--format", "markdown")
    lines = out.splitlines()
    assert lines[0].startswith("| measure | mean |")
    assert set(lines[1]) <= set("|-: ")
    assert any(line.startswith("left out of srecall@4: 1 ") for line in lines)


def test_several_runs_stand_side_by_side(shell):
    status, out, _ = shell("run.parquet", "truth.parquet", "--truth", "truth.parquet",
                           "-m", "recall@4")  # fmt: skip
    assert status == 0
    block = out.split("recall@4\n")[1].splitlines()
    assert block[0].split()[:2] == ["ivf", "0.5833"]
    assert block[1].split()[:2] == ["truth", "1.0000"]


def test_runs_of_one_name_go_by_their_files(shell, tmp_path):
    (tmp_path / "again.parquet").write_bytes((tmp_path / "run.parquet").read_bytes())
    _, out, _ = shell("run.parquet", "again.parquet", "--truth", "truth.parquet", "-m", "recall@4")
    block = out.split("recall@4\n")[1].splitlines()
    assert [line.split()[0] for line in block[:2]] == ["run.parquet", "again.parquet"]


def test_a_measure_in_any_spelling(shell):
    _, out, _ = shell(*ALL, "-m", "trecall( x = 0.01 )@4")
    assert "trecall(x=1%)@4" in out


# -- gates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gates", "status", "said"),
    [
        (["recall@4=0.5"], 0, []),
        (["recall@4=50%"], 0, []),
        (["recall@4=0.6"], 1, ["failed: recall@4 is 0.583333, under 0.6"]),
        # Not asked for with -m, and computed all the same.
        (["srecall(rel=2)@4=0.9"], 0, []),
        (["P@2=0.9", "srecall@4=0.9"], 1, ["P@2 is 0.75, under 0.9", "srecall@4 is 0.75, under"]),
        # Nothing has grade 5: the mean over no query passes no gate.
        (["srecall(rel=5)@4=0.1"], 1, ["srecall(rel=5)@4 is undefined for every query"]),
    ],
)
def test_gates(shell, gates, status, said):
    options = [part for gate in gates for part in ("--fail-under", gate)]
    found, out, err = shell(*ALL, "-m", "recall@4", *options)
    assert found == status
    assert "recall@4" in out
    for line in said:
        assert line in err
    assert err.count("failed:") == len(said)


def test_an_error_measure_fails_above(shell):
    given = ("truth.parquet", "--truth", "truth.parquet", "-m", "recall@4")
    assert shell(*given, "--fail-under", "rde@4=0.01")[0] == 0
    status, _, err = shell("run.parquet", *given[1:], "--fail-under", "rde@4=-1")
    assert status == 1
    assert "above -1" in err


def test_failed_gates_are_in_the_json(shell):
    status, out, _ = shell(*ALL, "--format", "json", "--fail-under", "recall@4=1")
    assert status == 1
    assert json.loads(out)["failed"] == ["recall@4 is 0.583333, under 1"]


# -- further inputs -----------------------------------------------------------------------------


def test_codes_split_the_loss(shell):
    ids = [[0, 1, 2, 3], [10, 11, 12, 99], [20, 21, 98, 99]]
    write(Run.from_arrays(ids, query_ids=["a", "b", "c"], k=4), "codes.parquet")
    _, out, _ = shell(*ALL, "--codes", "codes.parquet", "-m", "recall@4")
    # Lost by the codes (0 + 1/4 + 1/2) / 3, by the index (0 + 1/4 + 1/4) / 3.
    line = next(
        line for line in out.split("where it is lost")[1].splitlines() if "recall@4" in line
    )
    assert line.split() == ["recall@4", "0.2500", "0.1667", "0.4167", "3"]


def test_deleted_documents(shell, tmp_path):
    (tmp_path / "deleted.txt").write_text("2\n 12 \n\n")
    _, out, _ = shell(*ALL, "-m", "recall@3", "--deleted", "deleted.txt")
    assert "known to depth 3" in out
    status, _, err = shell(*ALL, "-m", "recall@4", "--deleted", "deleted.txt")
    assert status == 2
    assert "complete to depth 3 only; recall@4 needs 4" in err


def test_scores_are_recomputed_from_vectors(shell):
    rng = np.random.default_rng(0)
    write(Vectors.of(rng.normal(size=(100, 4)).astype(np.float32)), "base.npy")
    write(Vectors.of(rng.normal(size=(3, 4)).astype(np.float32), ids=["a", "b", "c"]),
          "queries.parquet")  # fmt: skip
    vectors = ("--base", "base.npy", "--queries", "queries.parquet")
    status, out, _ = shell(*ALL, "-m", "recall@4", "-m", "trecall(x=1%)@4", *vectors)
    assert status == 0
    assert "scores by the index" not in out
    assert "scores by the index" in shell(*ALL, "-m", "trecall(x=1%)@4")[1]


def test_vectors_with_their_parts_and_ids(shell, tmp_path):
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    rng = np.random.default_rng(0)
    base = rng.normal(size=(100, 4)).astype(np.float32)
    asked = rng.normal(size=(3, 4)).astype(np.float32)
    write(Vectors.of(base), "base.npy")
    write(Vectors.of(asked), "queries.npy")
    plain = ("--base", "base.npy", "--queries", "queries.npy")
    assert shell(*ALL, *plain)[0] == 2  # the rows have no ids: the queries are a, b and c
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    (tmp_path / "rows.txt").write_text("\n".join(map(str, range(100))))
    named = ("--query-ids", "names.txt", "--base-ids", "rows.txt")
    status, out, _ = shell(*ALL, *plain, *named)
    assert status == 0
    with h5py.File("both.hdf5", "w") as file:
        file["vectors"], file["asked"] = base, asked
    parts = ("--base", "both.hdf5", "--base-dataset", "vectors",
             "--queries", "both.hdf5", "--queries-dataset", "asked")  # fmt: skip
    assert shell(*ALL, *parts, "--query-ids", "names.txt") == (0, out, "")
    status, _, err = shell(*ALL, *parts[:2], *parts[4:], *named)
    assert status == 2
    assert "hint: name one: --base-dataset" in err
    two = ("run.parquet", "truth.parquet")
    assert shell(*two, *ALL[1:], *plain, *named, command="compare")[0] == 0
    status, _, err = shell(*ALL, "--query-ids", "names.txt")
    assert status == 2
    assert "--query-ids" in err
    assert "--queries" in err


def test_shallow_runs_are_measured_at_their_depth_with_a_note(shell):
    # One result a query, and the first is right: recall@1 is 1, recall@4 is 1/4.
    shallow = Run.from_arrays([[0], [10], [20]], query_ids=["a", "b", "c"], name="one")
    write(shallow, "one.parquet")
    given = ("one.parquet", "--truth", "truth.parquet")
    said = (
        "measured at k = 1, the depth of the run; the truth is 4 deep: "
        "write -m recall@4 to measure at the depth of the truth"
    )
    # Broken where it is wider than a terminal.
    assert f"note: {said}" in " ".join(shell(*given)[1].split())
    whole = json.loads(shell(*given, "--format", "json")[1])
    assert said in whole["notes"]
    assert whole["summary"][0]["measure"] == "recall@1"
    assert "measured at k" not in shell(*given, "-m", "recall@1")[1]
    assert "measured at k" not in shell(*ALL)[1]
    both = shell("one.parquet", "one.parquet", "--truth", "truth.parquet", command="compare")[1]
    assert "measured at k = 1, the depth of the runs" in both


def test_an_empty_truth_is_named(shell, tmp_path):
    (tmp_path / "none.txt").write_text("")
    status, _, err = shell("run.parquet", "--truth", "none.txt")
    assert status == 2
    assert "error: none.txt: the truth has no neighbours" in err
    assert "recall@" not in err


def test_the_column_of_the_grades(shell, tmp_path):
    (tmp_path / "labels.csv").write_text("query_id,doc_id,mine\na,0,1\nb,10,1\nc,21,1\n")
    given = ("run.parquet", "--judgments", "labels.csv", "-m", "P@1")
    status, _, err = shell(*given)
    assert status == 2
    assert "--grade" in err
    status, out, _ = shell(*given, "--grade", "mine")
    assert status == 0
    # 1, 1 and 0: the first results are 0, 10 and 20, of which 20 has no grade.
    assert "0.6667" in out
    two = ("run.parquet", "truth.parquet")
    assert shell(*two, *given[1:], "--grade", "mine", command="compare")[0] == 0


def test_hints_name_what_is_there(shell, tmp_path):
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    (tmp_path / "labels.csv").write_text("query_id,doc_id,label\na,0,1\n")
    status, _, err = shell("labels.csv", "--truth", "truth.parquet")
    assert status == 2
    assert "looks like judgments: give it with --judgments" in err
    (tmp_path / "qrels.txt").write_text("a 0 0 1\n")
    status, _, err = shell("run.parquet", "--truth", "qrels.txt")
    assert status == 2
    assert "read_judgments" not in err
    write(Vectors.of(np.eye(3, dtype=np.float32)), "floats.npy")
    err = shell("floats.npy", "--truth", "truth.parquet")[2]
    assert "are these vectors? give them with --base or --queries" in err
    with h5py.File("no.hdf5", "w") as file:
        file["found"] = np.zeros((3, 4), dtype=np.int32)
    err = shell("no.hdf5", "--truth", "truth.parquet")[2]
    assert "semrecall convert no.hdf5" in err


def test_html_report_with_the_command_that_made_it(shell, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    status, _, err = shell(*ALL, "--html", "report.html")
    assert status == 0
    assert "wrote report.html" in err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "semrecall score run.parquet --truth truth.parquet" in page


# -- wrong input: exit 2, what was found, what to do, nothing on stdout ---------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), ["missing argument 'RUN...'"]),
        (("nowhere.parquet",), ["nowhere.parquet", "does not exist"]),
        (("run.parquet",), ["nothing to compare with"]),
        ((*ALL, "-m", "recal@4"), ["unknown measure 'recal'", "hint: did you mean", "recall"]),
        ((*ALL, "-m", "Recall@4"), ["can mean two things", "hint: write recall@4 or R@4"]),
        ((*ALL, "-m", "recall@400"), ["recall@400: k is 400, but the truth is only 4 deep"]),
        ((*ALL, "--fail-under", "recall@4"), ["'recall@4' is not MEASURE=VALUE", "hint: "]),
        ((*ALL, "--fail-under", "recall@4=much"), ["is not MEASURE=VALUE"]),
        ((*ALL, "--by", "lang"), ["no column 'lang'", "hint: give the columns"]),
        ((*ALL, "--by", "long", "--columns", "columns.csv"), ["did you mean lang?"]),
        ((*ALL, "--confidence", "95"), ["confidence is 95.0"]),
        ((*ALL, "--seed", "-1"), ["-1 is not in the range"]),
        ((*ALL, "-m", "P@99999999999999999999"), ["expected a whole number of at most"]),
        ((*ALL, "--base", "run.parquet"), ["base vectors were given alone"]),
        (("run.parquet", "--truth", "columns.csv"), ["columns.csv"]),
        (("run.parquet", "--truth", "truth.parquet", "-m", "srecall@4"), ["needs judgments"]),
    ],
)
def test_wrong_input(shell, arguments, said):
    status, out, err = shell(*arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    for text in said:
        assert text in err


def test_queries_that_match_nothing(shell, tmp_path):
    (tmp_path / "run.txt").write_text("01 Q0 d1 1 3.0 r\n")
    (tmp_path / "qrels.txt").write_text("1 0 d1 1\n")
    status, _, err = shell("run.txt", "--judgments", "qrels.txt", "-m", "P@1")
    assert status == 2
    assert "0 of 1 query ids of run" in err
    assert (
        "hint: 1 of 1 unmatched ids would match but for leading zeros: '01' here, '1' there" in err
    )


def test_conflicts_and_duplicates_are_refused_until_a_rule_is_given(shell, tmp_path):
    (tmp_path / "run.txt").write_text("q1 Q0 d1 1 3 r\nq1 Q0 d1 2 2 r\nq1 Q0 d2 3 1 r\n")
    (tmp_path / "qrels.txt").write_text("q1 0 d1 0\nq1 0 d1 1\n")
    given = ("run.txt", "--judgments", "qrels.txt", "-m", "P@1")
    assert shell(*given)[0] == 2
    assert shell(*given, "--duplicates", "first")[0] == 2
    status, out, _ = shell(*given, "--duplicates", "first", "--conflicts", "max")
    assert status == 0
    assert "1.0000" in out


def test_a_missing_extra_is_said_before_the_work(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = shell(*ALL, "--html", "report.html")
    assert status == 2
    assert out == ""
    assert 'hint: pip install "semrecall[report]"' in err


# -- tables -------------------------------------------------------------------------------------


def test_tables_in_all_formats():
    rows = [
        {"name": "a|b\nc", "value": 0.5, "count": 1200, "gap": None, "on": True},
        {"name": "日本", "value": float("nan"), "count": 3, "gap": [1, 2], "on": False},
    ]
    assert rows_text(rows) == (
        "name   value  count  gap   on\n"
        "a|b c  0.5000  1,200  -     yes\n"
        "日本        -      3  1, 2  no\n"
    ).replace("name   value", "name    value")
    assert rows_text(rows, "markdown").splitlines()[2] == ("| a\\|b c | 0.5000 | 1,200 | - | yes |")
    assert rows_text(rows, "csv") == (
        'name,value,count,gap,on\n"a|b\nc",0.5,1200,,True\n日本,,3,"1, 2",False\n'
    )
    assert json.loads(rows_text(rows, "json"))[1]["value"] is None
    assert rows_text([], "table") == ""


def test_titles_choose_and_order_columns():
    rows = [{"a": 1, "b": 2, "c": 3}]
    assert rows_text(rows, titles={"c": "third", "a": "first"}) == "third  first\n    3      1\n"
    assert rows_text([], titles={"a": "first"}) == "first\n"
    assert rows_text(rows, titles={"a": "first"}, notes=["so it is"]).endswith("\n\nso it is\n")


def test_json_of_numpy_and_infinities():
    found = json.loads(json_text({"x": np.float64("nan"), "y": np.arange(2), "z": [float("inf")]}))
    assert found == {"x": None, "y": [0, 1], "z": [None]}


def test_gates_go_to_junit_summary_and_annotations(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    (tmp_path / "step.md").write_text("before\n")
    status, _, err = shell(
        *ALL, "--fail-under", "recall@4=0.6", "--fail-under", "srecall@4=0.5", "--junit", "out.xml"
    )
    assert status == 1
    assert "::error::recall@4 is 0.583333, under 0.6" in err
    xml = (tmp_path / "out.xml").read_text()
    assert 'tests="2" failures="1"' in xml
    summary = (tmp_path / "step.md").read_text()
    assert summary.startswith("before\n## semrecall score\n")
    assert "| recall@4 >= 0.6 | ivf | 0.5833 |" in summary
    assert "| FAILED |" in summary
