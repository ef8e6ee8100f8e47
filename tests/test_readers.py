"""Cases on files and inputs of judged retrieval, through the readers and through the command line.

A case function takes the expected part of its line in the shared case file, and what runs
`semrecall score`; its name ends in the case's id.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semrecall import check, evaluate
from semrecall.cli import main
from semrecall.data import Judgments, Run
from semrecall.data.run import Order
from semrecall.errors import FormatError, InputError, MismatchError, SemrecallWarning
from semrecall.formats import read_judgments, read_run, read_runs, trec, write
from semrecall.formats.files import text_blocks
from semrecall.measures import align, parse

CASES: dict[str, Callable[..., None]] = {}


def case(function: Callable[..., None]) -> Callable[..., None]:
    name, number = function.__name__.rsplit("_", 2)[1:]
    CASES[f"{name}-{number}"] = function
    return function


class Shell:
    """Writes files into a folder and runs `semrecall` on them."""

    def __init__(self, folder: Path, monkeypatch: Any, capsys: Any) -> None:
        self.folder, self._patch, self._capsys = folder, monkeypatch, capsys

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def score(self, *arguments: Any) -> tuple[int, str, str]:
        """Status, standard output and standard error of `semrecall score`."""
        self._patch.setattr(sys, "argv", ["semrecall", "score", *map(str, arguments)])
        self._patch.setattr(warnings, "showwarning", warnings.showwarning)
        self._capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            with pytest.raises(SystemExit) as end:
                main()
        out, err = self._capsys.readouterr()
        return int(end.value.code or 0), out, err

    def means(self, *arguments: Any) -> dict[str, float]:
        """The means that `semrecall score` prints, by measure."""
        status, out, err = self.score(*arguments, "--format", "json")
        assert status == 0, err
        return {row["measure"]: row["mean"] for row in json.loads(out)["summary"]}

    def refused(self, *arguments: Any) -> str:
        """What `semrecall score` says of wrong input."""
        status, out, err = self.score(*arguments)
        assert (status, out) == (2, "")
        assert "Traceback" not in err
        return err


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, monkeypatch, capsys)


def refusal(reader: Callable[..., Any], path: Path, **options: Any) -> str:
    with pytest.raises(FormatError) as error:
        reader(path, **options)
    return error.value.message.removeprefix(f"{path}: ")


# -- files ----------------------------------------------------------------------------------


@case
def byte_order_mark_file_01(expected: Any, shell: Shell) -> None:
    qrels = shell.file("a.qrels", b"\xef\xbb\xbfq1 0 d1 1\nq2 0 d1 1\n")
    run = shell.file("a.run", b"\xef\xbb\xbfq1 Q0 d1 1 1.0 r\nq2 Q0 d1 1 1.0 r\n")
    assert list(read_judgments(qrels).queries) == list(read_run(run).queries) == ["q1", "q2"]
    assert shell.means(run, "--judgments", qrels, "-m", "RR") == {"RR": expected["mean rr"]}
    _, out, _ = shell.score(run, "--judgments", qrels, "-m", "RR", "--format", "json")
    assert json.loads(out)["summary"][0]["n"] == expected["n_queries"]


@case
def blank_lines_file_02(expected: Any, shell: Shell) -> None:
    qrels = shell.file("a.qrels", "q1 0 d1 1\n\nq1 0 d2 0\n")
    assert len(read_judgments(qrels)) == expected["rows"]
    run = shell.file("a.run", "\n  \nq1 Q0 d1 1 2.0 r\n\t\nq1 Q0 d2 2 1.0 r\n\n")
    assert read_run(run).ids.to_list() == [["d1", "d2"]]
    assert shell.means(run, "--judgments", qrels, "-m", "P@1") == {"P@1": 1.0}


@case
def query_that_starts_with_a_number_sign_file_03(expected: Any, shell: Shell) -> None:
    qrels = shell.file("a.qrels", "#1 0 d1 1\nq2 0 d1 1\n# judged in May\n")
    run = shell.file("a.run", "# made by hand\n#1 Q0 d1 1 3 r\nq2 Q0 d1 1 3 r\n")
    assert list(read_judgments(qrels).queries) == ["#1", "q2"]
    assert len(read_run(run)) == expected["n_queries"]
    assert shell.means(run, "--judgments", qrels, "-m", "RR") == {"RR": 1.0}


@case
def no_tag_or_a_tag_with_blanks_file_06(expected: Any, shell: Shell) -> None:
    lines = ["q1 Q0 d1 1 3.0", "q1 Q0 d2 1 3.0 my run"]
    run = shell.file("a.run", "\n".join(lines))
    assert np.diff(read_run(run).offsets).tolist() == [expected["rows"]]
    for line, name in zip(lines, ["", "my run"], strict=True):
        assert read_run(shell.file("b.run", line)).name == name
    qrels = shell.file("a.qrels", "q1 0 d2 1\n")
    assert "my run" in shell.score(shell.file("b.run", lines[1]), "--judgments", qrels)[1]


@case
def ranks_against_scores_file_09(expected: Any, shell: Shell) -> None:
    run = shell.file("a.run", "q1 Q0 d1 1 0.1 r\nq1 Q0 d2 2 0.9 r\n")
    qrels = shell.file("a.qrels", "q1 0 d1 1\n")
    orders: tuple[Order | None, ...] = (None, "score", "rank")
    for order in orders:
        with pytest.warns(SemrecallWarning, match=expected["warning"]):
            read_run(run, order=order)
    # The last of a query and the first of the next have nothing to do with each other.
    read_run(shell.file("b.run", "q1 Q0 d1 1 0.1 r\nq2 Q0 d2 2 0.9 r\n"))
    asked = (run, "--judgments", qrels, "-m", "RR")
    assert shell.means(*asked)["RR"] == expected["rr by score"]
    assert shell.means(*asked, "--order", "rank")["RR"] == expected["rr by rank"]
    assert shell.means(*asked, "--order", "file")["RR"] == expected["rr by rank"]
    # As distances the scores agree with the ranks.
    assert shell.means(*asked, "--lower-is-better")["RR"] == expected["rr by rank"]
    err = shell.score(*asked)[2]
    assert f"warning: {run}: {expected['warning']}; scores decide\n" in err
    assert "ranks decide" in shell.score(*asked, "--order", "rank")[2]
    assert "warning" not in shell.score(*asked, "--lower-is-better")[2]


@case
def composed_and_decomposed_file_10(expected: Any, shell: Shell) -> None:
    one, other = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    run = shell.file("a.run", f"q1 Q0 {one} 1 1.0 r\n")
    qrels = shell.file("a.qrels", f"q1 0 {other} 1\n")
    judged = read_judgments(qrels)
    assert parse("RR").values(align(read_run(run), None, judged)).mean == expected["rr"]
    asked = (run, "--judgments", qrels, "-m", "RR")
    status, out, err = shell.score(*asked)
    assert status == 0
    assert shell.means(*asked) == {"RR": expected["rr"]}
    hint = "1 of 1 unmatched ids would match but for their Unicode form"
    assert expected["hint"] == "1 id would match after Unicode normalisation"
    assert hint in " ".join(out.split())
    assert any(line.startswith("warning: ") and hint in line for line in err.splitlines())
    # Where no query meets either, there is nothing to score.
    other_query = shell.file("b.qrels", f"Q1 0 {one} 1\n")
    assert "0 of 1 query ids" in shell.refused(run, "--judgments", other_query, "-m", "RR")
    # Where other ids match, check finds it.
    some = Judgments.from_dict({"q1": {other: 1, "d2": 0}})
    found = check(run=Run.from_dict({"q1": {one: 2.0, "d2": 1.0, "d3": 0.5}}), judgments=some)
    (finding,) = [f for f in found.findings if f.code == "document-ids"]
    assert "1 of 2 unmatched ids would match but for their Unicode form" in finding.advice


@case
def empty_files_file_11(expected: Any, shell: Shell) -> None:
    run, qrels = shell.file("a.run", ""), shell.file("a.qrels", "q1 0 d1 1\n")
    with pytest.warns(SemrecallWarning, match=expected["warning"].removeprefix("run ")):
        assert len(read_run(run)) == 0
    assert shell.means(run, "--judgments", qrels, "-m", "RR") == {"RR": expected["mean rr"]}
    _, out, err = shell.score(run, "--judgments", qrels, "-m", "RR", "--format", "json")
    assert json.loads(out)["summary"][0]["n"] == expected["n_queries"]
    assert "warning" in err
    # A byte order mark, and nothing else.
    for content in (b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\n \n"):
        with pytest.warns(SemrecallWarning, match="no rows"):
            assert len(read_run(shell.file("c.run", content))) == 0
    for content in ("", "\n \n", "# nothing\n", "\ufeff"):
        empty = shell.file("b.qrels", content)
        assert refusal(read_judgments, empty)
        assert str(empty) in shell.refused(qrels.with_name("a.run"), "--judgments", empty)


# -- grades and repeats -----------------------------------------------------------------------


@case
def no_numbers_grade_08(expected: Any, shell: Shell) -> None:
    assert expected["error"] == "line number, column and the offending token"
    good_run = shell.file("good.run", "q1 Q0 d1 1 1.9 r\n")
    good_qrels = shell.file("good.qrels", "q1 0 d1 1\n")
    qrels = shell.file("a.qrels", "q1 0 d0 1\nq1 0 d1 yes\n")
    message = "line 2: grade is 'yes', expected a number"
    assert refusal(read_judgments, qrels) == message
    assert message in shell.refused(good_run, "--judgments", qrels)
    for token in ("1,9", "abc", "1_9"):
        run = shell.file("a.run", f"q1 Q0 d0 1 2.5 r\n\nq1 Q0 d1 2 {token} r\n")
        message = f"line 3: score is '{token}', expected a number"
        assert refusal(read_run, run) == message
        assert message in shell.refused(run, "--judgments", good_qrels)
    with pytest.raises(InputError, match="query 'q1', document 'd1' has the score 'abc'"):
        Run.from_dict({"q1": {"d1": "abc"}})
    with pytest.raises(InputError, match="grades are not numbers"):
        Judgments.from_dict({"q1": {"d1": "yes"}})  # type: ignore[dict-item]


@case
def repeated_result_dup_01(expected: Any, shell: Shell) -> None:
    run = shell.file("a.run", "q1 Q0 A 1 3.0 r\nq1 Q0 A 2 2.0 r\nq1 Q0 C 3 1.0 r\n")
    qrels = shell.file("a.qrels", "q1 0 A 1\nq1 0 B 1\n")
    message = "query 'q1', document 'A' stands at line 1 and again at line 2"
    assert refusal(read_run, run) == message
    assert message in shell.refused(run, "--judgments", qrels)
    first = expected["dedupe=first"]
    asked = ["-m", "nDCG@10", "-m", "R@10", "-m", "P@10", "-m", "RR", "-m", "AP"]
    found = shell.means(run, "--judgments", qrels, *asked, "--duplicates", "first")
    assert [round(v, 4) for v in found.values()] == [
        first[name] for name in ("ndcg@10", "recall@10", "p@10", "rr", "ap")
    ]
    # Not adjacent, and out of order: the lines are still those of the file.
    path = shell.file("b.run", "q1 Q0 A 9 1 r\nq2 Q0 A 1 1 r\n\nq1 Q0 C 1 5 r\nq1 Q0 A 2 7 r\n")
    assert refusal(read_run, path).endswith("stands at line 1 and again at line 5")


@case
def judged_twice_alike_dup_02(expected: Any, shell: Shell) -> None:
    qrels = shell.file("a.qrels", "q1 0 a 2\nq1 0 a 2\nq1 0 b 1\n")
    run = shell.file("a.run", "q1 Q0 a 1 2.0 r\nq1 Q0 b 2 1.0 r\n")
    with pytest.warns(SemrecallWarning, match="1 repeated judgments that agree count once"):
        assert len(read_judgments(qrels)) == 2
    assert shell.means(run, "--judgments", qrels, "-m", "nDCG@10")["nDCG@10"] == expected["ndcg@10"]
    assert "warning: 1 repeated judgments" in shell.score(run, "--judgments", qrels)[2]


@case
def contradicting_judgments_dup_03(expected: Any, shell: Shell) -> None:
    assert expected["error"] == "conflict for (q1,d1): 0 at line 1, 1 at line 2"
    qrels = shell.file("a.qrels", "q1 0 d1 0\nq1 0 d1 1\n")
    run = shell.file("a.run", "q1 Q0 d1 1 2.0 r\n")
    message = "query 'q1', document 'd1' has grade 0 at line 1 and 1 at line 2"
    assert refusal(read_judgments, qrels) == message
    assert message in shell.refused(run, "--judgments", qrels)
    for rule, grade in (("max", 1), ("first", 0), ("last", 1)):
        assert rule in expected["option"]
        assert read_judgments(qrels, conflicts=rule).grades.tolist() == [grade]  # type: ignore[arg-type]
        asked = (run, "--judgments", qrels, "--conflicts", rule, "-m", "nDCG@1")
        assert shell.score(*asked)[0] == 0


# -- ids and types ----------------------------------------------------------------------------


@case
def no_query_in_common_cov_04(expected: Any, shell: Shell) -> None:
    run = shell.file("a.run", "1 Q0 d 1 1.0 r\n")
    qrels = shell.file("a.qrels", "01 0 d 1\n")
    err = shell.refused(run, "--judgments", qrels)
    assert "0 of 1 query ids" in err
    assert "'01'" in err
    assert "leading zeros" in err
    assert "leading zeros" in expected["error"]
    with pytest.raises(MismatchError, match="0 of 1 query ids"):
        evaluate(read_run(run), ["RR"], judgments=read_judgments(qrels))


@case
def string_columns_of_pandas_state_04(expected: Any, shell: Shell) -> None:
    assert expected["accepted"]
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    columns = {"q_id": ["q1", "q1"], "doc_id": ["a", None], "score": [2, 1]}
    kinds = [object, "string", "category"] + ["str"] * (int(pandas.__version__[0]) >= 3)
    for kind in kinds:
        frame = pandas.DataFrame(columns).astype({"q_id": kind, "doc_id": kind})
        assert Run.from_frame(frame).ids.to_list() == [["a", ""]]
        judged = Judgments.from_frame(frame[:1])
        assert evaluate(Run.from_frame(frame), ["RR"], judgments=judged).mean("RR") == 1.0
    write(Run.from_frame(frame), shell.folder / "a.csv")
    assert read_run(shell.folder / "a.csv").ids.to_list() == [["a"]]


@case
def integers_and_numpy_scalars_state_05(expected: Any, shell: Shell) -> None:
    del shell
    grades: dict[int, dict[Any, Any]] = {1: {2: np.int64(1)}}
    for key in (int, str, np.int32, np.int64):
        run = Run.from_dict({key(1): {key(2): np.float32(1)}})
        judged = Judgments.from_dict({key(q): dict(r) for q, r in grades.items()})
        assert evaluate(run, ["RR"], judgments=judged).mean("RR") == expected["rr"]
    # "7" and 7 are one id, so both of them as queries are one too many.
    with pytest.raises(InputError, match="query id '7' stands at rows 0 and 1"):
        Run.from_dict({7: {1: 1.0}, "7": {1: 1.0}, "x": {1: 1.0}})


@case
def rows_of_a_query_that_are_not_adjacent_state_02(expected: Any, shell: Shell) -> None:
    rows = [("q1", "x", 3.0), ("q2", "d1", 3.0), ("q1", "d1", 2.0), ("q2", "x", 2.0)]
    run = shell.file("a.run", "".join(f"{q} Q0 {d} 1 {s} r\n" for q, d, s in rows))
    qrels = shell.file("a.qrels", "q1 0 d1 1\nq2 0 d1 1\n")
    asked = (run, "--judgments", qrels, "-m", "RBP(p=0.8)")
    assert [*shell.means(*asked).values()] == pytest.approx([expected["mean"]])
    _, out, _ = shell.score(*asked, "--per-query", "--format", "json")
    assert [row["RBP"] for row in json.loads(out)["per_query"]] == pytest.approx(
        [expected["q1"], expected["q2"]]
    )


@case
def one_query_speed_01(expected: Any, shell: Shell) -> None:
    assert expected["seconds"] == "< 0.3 including import"
    code = (
        "import semrecall as sr, time, sys\n"
        "run = sr.Run.from_dict({'q': {'a': 1.0, 'b': 0.5}})\n"
        "grades = sr.Judgments.from_dict({'q': {'a': 1}})\n"
        "assert sr.evaluate(run, ['nDCG@10'], judgments=grades).mean('nDCG@10') == 1\n"
        # What is not needed is not imported: 0.15 s and more each.
        "assert not {'pandas', 'scipy', 'faiss', 'matplotlib'} & set(sys.modules)\n"
        "print(time.process_time())\n"
    )
    # The time of the processor: on a busy machine a clock measures others. The best of several.
    ours = min(float(_python(code, shell.folder)) for _ in range(3))
    imports = "import numpy, pyarrow, pyarrow.compute, time; print(time.process_time())"
    theirs = min(float(_python(imports, shell.folder)) for _ in range(3))
    # Of 0.3 s, numpy and pyarrow take about half; a slow machine is slow with those, too.
    assert ours < max(0.3, 2.5 * theirs)


def _python(code: str, folder: Path) -> str:
    command = [sys.executable, "-c", code]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env=environment
    ).stdout


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, shared: Callable[[str], Path], shell: Shell) -> None:
    lines = shared("cases/relevance.jsonl").read_text().splitlines()
    expected = {(row := json.loads(line))["id"]: row["expected"] for line in lines}
    CASES[name](expected[name], shell)


# -- several runs, other layouts --------------------------------------------------------------

TWO_RUNS = {
    "a.csv": "system,query_id,doc_id,score\nx,q1,d1,2\ny,q1,d2,3\nx,q1,d2,1\ny,q1,d1,1\n",
    "a.run": "q1 Q0 d1 1 2 x\nq1 Q0 d2 1 3 y\nq1 Q0 d2 2 1 x\nq1 Q0 d1 2 1 y\n",
    "a.jsonl": "".join(
        f'{{"run": "{r}", "query_id": "q1", "doc_id": "{d}", "score": {s}}}\n'
        for r, d, s in [("x", "d1", 2), ("y", "d2", 3), ("x", "d2", 1), ("y", "d1", 1)]
    ),
    "b.jsonl": '{"run": "x", "query_id": "q1", "ids": ["d1", "d2"]}\n'
    '{"run": "y", "query_id": "q1", "ids": ["d2", "d1"]}\n',
}


@pytest.mark.parametrize("name", TWO_RUNS)
def test_several_runs_of_one_file(name: str, shell: Shell) -> None:
    path = shell.file(name, TWO_RUNS[name])
    runs = read_runs(path)
    assert {n: (r.name, r.ids.to_list()) for n, r in runs.items()} == {
        "x": ("x", [["d1", "d2"]]),
        "y": ("y", [["d2", "d1"]]),
    }
    # As one run they are a fault, which says what to do.
    with pytest.raises(FormatError) as error:
        read_run(path)
    if name != "b.jsonl":
        assert error.value.hint == (
            "the file holds 2 runs, each named: read_runs reads them one by one"
        )
    qrels = shell.file("a.qrels", "q1 0 d1 1\n")
    status, out, _ = shell.score(path, "--judgments", qrels, "-m", "RR", "--format", "json")
    assert status == 0
    rows = json.loads(out)["summary"]
    assert [(row["run"], row["mean"]) for row in rows] == [("x", 1.0), ("y", 0.5)]


def test_faults_in_one_of_several_runs_name_the_line_of_the_file(shell: Shell) -> None:
    content = "run,query_id,doc_id,score\nx,q,a,1\ny,q,a,1\nx,q,b,1\ny,q,a,2\n"
    message = refusal(read_runs, shell.file("a.csv", content))
    assert message == "query 'q', document 'a' stands at line 3 and again at line 5"


def test_two_runs_of_one_name_are_both_scored(shell: Shell) -> None:
    """Case pair-02 at the command line."""
    qrels = shell.file("a.qrels", "q1 0 d1 1\n")
    runs = [shell.file(f"{n}.run", f"q1 Q0 {d} 1 1 A\n") for n, d in (("a", "d1"), ("b", "x"))]
    for given, means in ((runs, [1.0, 0.0]), ([runs[0]] * 2, [1.0, 1.0])):
        asked = (*given, "--judgments", qrels, "-m", "RR", "--format", "json")
        rows = json.loads(shell.score(*asked)[1])["summary"]
        assert [row["mean"] for row in rows] == means
        assert len({row["run"] for row in rows}) == 2


def test_the_runs_of_dl_2019(shared: Callable[[str], Path]) -> None:
    runs = read_runs(shared("data/trec-runs/dl2019_runs.parquet"))
    assert len(runs) == 37
    assert sum(len(run.documents) for run in runs.values()) == 1_419_989
    # One vocabulary for all of them.
    assert len({id(run.queries.names) for run in runs.values()}) == 1


def test_runs_of_ms_marco(shell: Shell) -> None:
    lines = "1048585\t7187158\t1\n1048585\t7187157\t2\n2\t5\t1\n"
    path = shell.file("run.tsv", lines)
    for run in (
        read_run(path),
        read_run(shell.file("run", lines)),
        read_run(shell.file("run.txt", lines), format="msmarco"),
    ):
        assert run.query_ids.tolist() == [1048585, 2]
        assert run.ids.to_list() == [[7187158, 7187157], [5]]
    write(run, shell.folder / "again.tsv", format="msmarco")
    assert (shell.folder / "again.tsv").read_text() == lines
    assert refusal(read_run, shell.file("bad.tsv", lines + "2\t6\n")) == (
        "line 4: 2 fields, expected 3"
    )
    bad = shell.file("bad.tsv", lines + "2\t6\tsecond\n")
    assert refusal(read_run, bad) == "line 4: rank is 'second', expected a number"
    qrels = shell.file("a.qrels", "1048585 0 7187157 1\n")
    assert shell.means(path, "--judgments", qrels, "-m", "RR") == {"RR": 0.5}


TEXTS = [
    f"a.{kind}{suffix}" for kind in ("run", "csv", "tsv", "jsonl") for suffix in ("", ".gz", ".zst")
]


@pytest.mark.parametrize("name", [*TEXTS, "a.parquet"])
def test_all_layouts_of_runs_score_alike(name: str, shell: Shell) -> None:
    run = Run.from_dict({"q1": {"d1": 1.0, "d2": 2.0, "d3": 2.0}, "q2": {"d9": 1.0}})
    judged = Judgments.from_dict({"q1": {"d3": 2, "d1": 1}, "q2": {"d8": 1}})
    labels = name.replace("a.", "q.", 1).replace("run", "qrels")
    write(run, shell.folder / name)
    write(judged, shell.folder / labels)
    found = shell.means(name, "--judgments", labels, "-m", "nDCG@2")
    # d3 first, as trec_eval has it: 2 / (2 + 1 / log2(3)) and 0.
    assert found["nDCG@2"] == pytest.approx(2 / (2 + 1 / np.log2(3)) / 2)


def test_beir_qrels_and_a_frame_of_polars(shell: Shell) -> None:
    polars = pytest.importorskip("polars", reason="needs polars")
    qrels = shell.file("test.tsv", "query-id\tcorpus-id\tscore\nPLAIN-2\tMED-10\t2\n")
    columns = {"qid": ["PLAIN-2"] * 2, "docid": ["MED-1", "MED-10"], "score": [0.5, 0.25]}
    run = Run.from_frame(polars.DataFrame(columns))
    judged = read_judgments(qrels)
    assert evaluate(run, ["RR"], judgments=judged).mean("RR") == 0.5
    swapped = Run.from_frame(polars.DataFrame(columns), lower_is_better=True)
    assert evaluate(swapped, ["RR"], judgments=judged).mean("RR") == 1.0


def test_blocks_of_a_large_file_are_put_together(shell: Shell, monkeypatch: Any) -> None:
    """A file of several blocks: queries that go on in the next one, ids that change their form."""
    monkeypatch.setattr(trec, "text_blocks", partial(text_blocks, size=1 << 14))
    rng = np.random.default_rng(0)
    for form in ("D{:07d}", "D{}", "{}", "MED-{}x", "mixed"):
        lines, expected = [], []
        for query in range(12):
            names = rng.choice(10**6, 200, replace=False).tolist()
            if form == "mixed":
                kind = "D{}" if query < 6 else "E{:08d}"
                names = [kind.format(name) for name in names]
            else:
                names = [form.format(name) for name in names]
            expected.append(names)
            lines += [f"q{query} Q0 {n} {r} {-r / 7!r} r\n" for r, n in enumerate(names, 1)]
        run = read_run(shell.file("large.run", "".join(lines)))
        assert [[str(n) for n in row] for row in run.ids.to_list()] == expected


def test_memory_of_blocks_is_used_again(shell: Shell) -> None:
    lines = [b"%d %s\n" % (n, b"x" * (n % 40)) for n in range(2_000)]
    path = Path(shell.file("some.txt", b"".join(lines)))
    spare: list[bytearray] = []
    texts, kept = [], None
    for block in text_blocks(path, 500, spare):
        assert block.endswith(b"\n")
        texts.append(bytes(block))
        if kept is None:
            # One that is still looked into is left alone.
            kept = memoryview(block)
        spare.append(block)
    assert b"".join(texts) == b"".join(lines)
    assert bytes(kept or b"") == texts[0]


@pytest.mark.parametrize("tag", ["r", "a b"])
def test_queries_that_change_on_every_line(shell: Shell, tag: str) -> None:
    """Names of one length and of several, in stretches and alone, more than are looked at alone."""
    names = [f"q{10 ** (n % 4)}" for n in range(900)] + [f"q{n // 3}" for n in range(900)]
    results = {f"d{n}": name for n, name in enumerate(names)}
    lines = [f"{q} Q0 {d} {r} {-r} {tag}\n" for r, (d, q) in enumerate(results.items(), 1)]
    run = read_run(shell.file("many.run", "".join(lines)))
    expected: dict[str, list[str]] = {}
    for document, query in results.items():
        expected.setdefault(query, []).append(document)
    assert run.query_ids.tolist() == list(expected)
    assert run.ids.to_list() == list(expected.values())
    assert run.name == tag
    assert run.distinct


@pytest.mark.parametrize("ranks", [(1, 2, 3), (1, 2.5, 3), ("1.0", 2, 3), (1, 2, 3 * 10**9)])
def test_ranks_of_all_kinds_are_compared(shell: Shell, ranks: tuple[Any, ...]) -> None:
    scores = (3.0, 1.0, 2.0)
    lines = [f"q Q0 d{r} {r} {s} t\n" for r, s in zip(ranks, scores, strict=True)]
    with pytest.warns(SemrecallWarning, match="ranks disagree with scores in 1 of 1 queries"):
        read_run(shell.file("ranks.run", "".join(lines)))


def test_ranks_that_are_no_numbers_say_nothing(shell: Shell) -> None:
    run = read_run(shell.file("ranks.run", "q Q0 a 1 1.0 t\nq Q0 b x 2.0 t\n"))
    assert run.ids.to_list() == [["b", "a"]]


# -- the CACM run -----------------------------------------------------------------------------


def test_the_cacm_run_and_its_ids(shared: Callable[[str], Path], shell: Shell) -> None:
    """P_30 is 0.1942 as published: the qrels write CACM-268, the run CACM-0268."""
    run = shared("data/trec-runs/cacm/run.cacm-bm25.txt")
    qrels = shared("data/trec-runs/cacm/qrels.cacm.original.txt")
    asked = (run, "--judgments", qrels, "-m", "P@30")
    assert round(shell.means(*asked)["P@30"], 4) == 0.1942
    # 12 of the 64 queries have no judgments; over all 64 it would be 0.1578.
    assert "12 queries only in the run, left out" in shell.score(*asked)[1]
    (ids,) = [f for f in check(run=run, judgments=qrels).findings if f.code == "document-ids"]
    assert ids.advice == (
        "5 of 584 unmatched ids would match but for zeros that fill up a number: 'CACM-0950' "
        "here, 'CACM-950' there. Write them the same way on both sides."
    )
    # Written the same way, 6 more results are relevant: (303 + 6) / 52 / 30.
    padded = shell.file(
        "padded.qrels",
        "".join(
            f"{q} 0 CACM-{int(d.removeprefix('CACM-')):04d} {g}\n"
            for q, _, d, g in (line.split() for line in qrels.read_text().splitlines())
        ),
    )
    found = shell.means(run, "--judgments", padded, "-m", "P@30")
    assert found["P@30"] == pytest.approx(309 / (52 * 30), abs=1e-12)
    assert not [f for f in check(run=run, judgments=padded).findings if "zeros" in f.advice]
