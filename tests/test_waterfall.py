"""The waterfall: every relevant document is lost at one stage or kept, and it adds up exactly."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semrecall as sr
from semrecall.errors import InputError, MeasureError, MismatchError
from semrecall.waterfall import Waterfall

#: Relevant: a, b, c, d for q1; x, y for q2. q3 has none.
LABELS = sr.Judgments.from_dict(
    {"q1": {"a": 2, "b": 1, "c": 1, "d": 1, "e": 0}, "q2": {"x": 1, "y": 1}, "q3": {"z": 0}}
)


def run(rows: dict[str, list[str]], **more: Any) -> sr.Run:
    return sr.Run.from_arrays(list(rows.values()), query_ids=list(rows), **more)


#: q1 has a, b, c among its exact 4 (d is the model's loss); q2 has x and y.
TRUTH = run({"q1": ["a", "e", "b", "c"], "q2": ["x", "y", "w", "v"], "q3": ["z", "k", "l", "m"]})
#: The codes lose c.
CODES = run({"q1": ["a", "b", "e", "u"], "q2": ["x", "y", "w", "v"], "q3": ["z", "k", "l", "m"]})
#: The index loses b and y, and finds d, which exact search did not: a lucky find.
INDEX = run({"q1": ["a", "d", "e", "u"], "q2": ["w", "x", "v", "t"], "q3": ["z", "k", "l", "m"]})
#: q2's x is cut off.
CONTEXT = run({"q1": ["a", "d"], "q2": ["w", "x"]})
ANSWER = run({"q1": ["a"], "q2": []})


def full(**more: Any) -> Waterfall:
    return sr.waterfall(
        LABELS,
        truth=TRUTH,
        codes=CODES,
        runs={"index": INDEX, "context": CONTEXT, "answer": ANSWER},
        cuts={"context": 1},
        **more,
    )


def test_by_hand() -> None:
    found = full()
    assert list(found.queries) == ["q1", "q2"]
    assert found.relevant.tolist() == [4, 2]
    lost = {stage.name: stage.lost.tolist() for stage in found.stages}
    assert lost == {
        "exact": [1, 0],  # d
        "codes": [1, 0],  # c
        "index": [1, 1],  # b, y
        "context": [0, 1],  # x: rank 2, and one is read
        "answer": [0, 0],
    }
    assert found.kept_counts.tolist() == [1, 0]  # a
    lucky = {stage.name: stage.lucky.tolist() for stage in found.stages}
    # d again at the index; at the context it has rank 2, and one is read.
    assert lucky == {"exact": [0, 0], "codes": [0, 0], "index": [1, 0], "context": [0, 0],
                     "answer": [0, 0]}  # fmt: skip
    # (1/4 + 0)/2, (1/4 + 0)/2, (1/4 + 1/2)/2, (0 + 1/2)/2, 0, and what is left: (1/4 + 0)/2
    eighths = [Fraction(n, 8) for n in (1, 1, 3, 2, 0, 1)]
    assert found.exact() == eighths
    assert [step.lost for step in found.steps] == [float(f) for f in eighths[:-1]]
    assert found.steps[-1].left == 0.125
    assert found.left_out == {"no relevant document known": 1}
    assert found.largest is not None
    assert found.largest.name == "index"
    assert str(found).startswith(
        "12.5% of the relevant documents are kept to the end; the index loses most: 37.5%."
    )


def test_the_queries_behind_a_loss_have_texts_and_ranks() -> None:
    found = full(query_texts={"q2": "which?"}, document_texts={"y": "the y"})
    first, second = found.behind("index")
    assert (first.query, first.text, first.relevant) == (
        "q2",
        "which?",
        2,
    )  # a half before a quarter
    assert first.documents == (("y", "the y"),)
    assert {name: ranks for name, ranks in first.ranks.items() if name in ("exact", "index")} == {
        "exact": (2,),
        "index": (0,),
    }
    assert second.documents == (("b", ""),)
    [lucky] = found.lucky("index")
    assert lucky.documents == (("d", ""),)
    assert lucky.ranks["index"] == (2,)


def test_a_stage_alone_and_every_stage_optional() -> None:
    only = sr.waterfall(LABELS, runs=INDEX)
    # q1 has a and d of 4, q2 x of 2; q3 of the run is of no interest.
    assert only.exact() == [Fraction(1, 2), Fraction(1, 2)]
    # One result holds one of four, and one of two: the model places both.
    first = sr.waterfall(LABELS, truth=TRUTH, k=1)
    assert [stage.name for stage in first.stages] == ["depth", "exact"]
    assert first.exact() == [Fraction(5, 8), 0, Fraction(3, 8)]


def test_more_relevant_documents_than_results_are_no_fault_of_the_model() -> None:
    """A perfect index, and a model that places only relevant documents first."""
    many = [f"d{n}" for n in range(300)]
    labels = sr.Judgments.from_dict({"q": dict.fromkeys(many, 1), "p": {"d0": 1, "d5": 1}})
    found = run({"q": many[100:120], "p": many[:20]}, k=20)
    fall = sr.waterfall(labels, truth=found, runs=found, k=10)
    assert {stage.name: stage.lost.tolist() for stage in fall.stages} == {
        "depth": [290, 0], "exact": [0, 0], "index": [0, 0],
    }  # fmt: skip
    assert fall.largest is not None
    assert fall.largest.name == "depth"
    # Of those that are not among the first ten, the ones farthest down are named.
    named = {name for name, _ in fall.behind("depth")[0].documents}
    assert named == set(many) - set(many[100:110])
    assert "1 query has more relevant documents than the 10 results" in str(fall)
    # The model loses d0, which stands below rank 10; two places of three are none it could fill.
    rows = run({"q": ["a", "x", "d0", "b"]}, k=4)
    small = sr.waterfall(sr.Judgments.from_dict({"q": dict.fromkeys("abcd", 1)}), truth=rows, k=2)
    assert [(s.name, s.lost.tolist()) for s in small.stages] == [("depth", [2]), ("exact", [1])]
    assert [name for name, _ in small.behind("exact")[0].documents] == ["b"]


def test_k_beyond_what_is_there() -> None:
    with pytest.raises(MeasureError, match="k is 50, but the truth is only 4 deep"):
        sr.waterfall(LABELS, truth=TRUTH, runs=INDEX, k=50)
    with pytest.raises(MeasureError, match="k is 5, but the search over the codes is only 4 deep"):
        sr.waterfall(LABELS, truth=TRUTH, codes=CODES, cuts={"codes": 5})
    found = sr.waterfall(LABELS, runs=INDEX, k=50)
    assert any("stage 'index' is 4 deep, less than 50" in note for note in found.notes)


def test_slices_add_up_too() -> None:
    found = full(columns={"query_id": ["q1", "q2"], "kind": ["long", "short"]}, by="kind")
    by = found.by("kind")
    assert [step.lost for step in by["long"]] == [0.25, 0.25, 0.25, 0.0, 0.0]
    assert by["short"][-1].left == 0.0
    with pytest.raises(InputError, match="no slices by 'king'"):
        found.by("king")


def test_a_query_that_a_stage_lacks_has_lost_everything_there() -> None:
    found = sr.waterfall(LABELS, truth=TRUTH, runs={"index": run({"q1": ["a", "b", "c"]})})
    assert found["index"].lost.tolist() == [0, 2]
    assert any("1 query not in stage 'index'" in note for note in found.notes)


def test_repeats_missing_and_invalid_results_count_as_everywhere() -> None:
    # a twice takes one place; "" and NaN are no results.
    rows = sr.Run.from_arrays(
        [["a", "a", "b", "", "c"]], [[5.0, 5.0, 4.0, 3.0, np.nan]], query_ids=["q1"]
    )
    found = sr.waterfall(LABELS, runs={"index": rows}, cuts={"index": 2})
    # c has no score, d is not there, and two of four fit in two results; q2 is not there.
    assert found["depth"].lost.tolist() == [2, 0]
    assert found["index"].lost.tolist() == [0, 2]


def test_seven_and_7_are_the_same_and_grades_have_a_threshold() -> None:
    labels = sr.Judgments.from_dict({"1": {"7": 2, "8": 1}})
    ours = sr.Run.from_arrays(np.array([[7, 9]]), query_ids=np.array([1]))
    assert sr.waterfall(labels, runs=ours).exact() == [Fraction(1, 2), Fraction(1, 2)]
    assert sr.waterfall(labels, runs=ours, rel=2).exact() == [Fraction(0), Fraction(1)]


def test_wrong_input_is_said() -> None:
    with pytest.raises(InputError, match="there is no stage; expected"):
        sr.waterfall(LABELS)
    with pytest.raises(InputError, match=r"no document has a grade of at least 3"):
        sr.waterfall(LABELS, truth=TRUTH, rel=3)
    with pytest.raises(InputError, match="cannot be called 'exact'"):
        sr.waterfall(LABELS, truth=TRUTH, runs={"exact": INDEX})
    with pytest.raises(InputError, match="no stage 'rerank' to cut"):
        sr.waterfall(LABELS, truth=TRUTH, cuts={"rerank": 2})
    with pytest.raises(MismatchError, match=r"no query with a relevant document is in the truth"):
        sr.waterfall(LABELS, truth=run({"other": ["a"]}))
    with pytest.raises(MismatchError, match="stage 'index' has none of the 2 queries"):
        sr.waterfall(LABELS, truth=TRUTH, runs=run({"q9": ["a"]}))
    with pytest.raises(InputError, match="no stage 'indx'"):
        full()["indx"]


documents = st.lists(st.integers(0, 9), max_size=8)


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 9), min_size=1), documents, documents, documents),
             min_size=1, max_size=6),
    st.integers(1, 6),
)  # fmt: skip
def test_it_adds_up_exactly_and_as_sets_say(
    queries: list[tuple[set[int], list[int], list[int], list[int]]], k: int
) -> None:
    labels = sr.Judgments.from_dict(
        {str(q): dict.fromkeys(map(str, rel), 1) for q, (rel, *_) in enumerate(queries)}
    )
    stages = [
        run({str(q): [str(d) for d in row[at]] for q, row in enumerate(queries)})
        for at in (1, 2, 3)
    ]
    stages[0] = stages[0].replace(k=6)
    found = sr.waterfall(
        labels, truth=stages[0], runs={"index": stages[1], "context": stages[2]}, k=k
    )
    *depth, _, _, _ = found.stages
    assert bool(depth) == any(len(relevant) > k for relevant, *_ in queries)
    assert sum(found.exact()) == 1
    total = sum((stage.lost for stage in found.stages), found.kept_counts)
    assert total.tolist() == found.relevant.tolist()
    for at, (relevant, *rows) in enumerate(queries):
        alive = set(relevant)
        for stage in depth:
            mine = found.rows == at
            beyond = {int(d) for d in found.documents[mine & stage.lost_pairs]}
            first = list(dict.fromkeys(row for row in rows[0]))
            assert len(beyond) == stage.lost[at] == max(len(relevant) - k, 0)
            assert not beyond & set(first[:k])
            places = {d: first.index(d) if d in first else 99 for d in alive - set(first[:k])}
            others = [place for d, place in places.items() if d not in beyond]
            assert max(others, default=0) <= min((places[d] for d in beyond), default=99)
            alive -= beyond
        for stage, row, cut in zip(found.stages[-3:], rows, (k, k, None), strict=True):
            there = set(list(dict.fromkeys(row))[:cut]) & relevant
            assert stage.lost[at] == len(alive - there)
            assert stage.lucky[at] == len(there - alive)
            alive &= there


def test_intervals_hold_the_mean_and_frames_have_a_row_for_each_query_and_stage() -> None:
    rng = np.random.default_rng(3)
    labels = sr.Judgments.from_dict({q: dict.fromkeys(range(4), 1) for q in range(60)})
    rows = [rng.permutation(8)[:5].tolist() for _ in range(60)]
    found = sr.waterfall(labels, runs=sr.Run.from_arrays(rows))
    [step] = found.steps
    assert step.low < step.lost < step.high
    frame = found.to_frame("arrow")
    assert frame.column_names == ["query_id", "stage", "relevant", "lost", "left", "lucky"]
    assert frame.num_rows == 60
    assert found.to_dict()["stages"][0]["lost"] == step.lost


# -- the command and the page ---------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    sr.write(TRUTH, tmp_path / "truth.parquet")
    sr.write(INDEX, tmp_path / "run.parquet")
    sr.write(LABELS, tmp_path / "labels.jsonl")
    rows = [{"id": "q1", "text": "<b>hostile</b> & ไทย"}, {"id": "q2", "text": "short"}]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def test_command(files: Path, semrecall_main: Callable[..., tuple[int, str, str]]) -> None:
    given = ["--judgments", "labels.jsonl", "--truth", "truth.parquet", "--run", "run.parquet"]
    code, out, _ = semrecall_main("waterfall", *given, "--queries", "queries.jsonl")
    assert code == 0
    assert "the index loses most: 50.0%" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    code, out, _ = semrecall_main("waterfall", *given, "--format", "json")
    assert [stage["name"] for stage in json.loads(out)["stages"]] == ["exact", "index"]
    code, out, _ = semrecall_main("waterfall", *given, "--behind", "index", "--format", "csv")
    assert out.splitlines()[0] == "query_id,text,lost,relevant,documents"
    code, out, _ = semrecall_main("waterfall", *given, "--per-query", "--format", "csv")
    assert len(out.splitlines()) == 1 + 2 * 2
    code, out, _ = semrecall_main("waterfall", *given, "--format", "csv")
    assert out.splitlines()[0].startswith("name,")
    code, _, err = semrecall_main("waterfall", *given, "--cut", "context")
    assert code == 2
    assert "expected STAGE=N" in err
    code, _, err = semrecall_main("waterfall", *given, "--run", "run.parquet")
    assert code == 2
    assert "two stages are called 'index'" in err
    code, _, err = semrecall_main("waterfall", *given, "-k", "50")
    assert (code, "the truth is only 4 deep" in err) == (2, True)


@pytest.mark.parametrize("option", ["--run", "--context", "--answer", "--codes"])
def test_a_stage_that_cannot_be_read_is_said(
    files: Path, semrecall_main: Callable[..., tuple[int, str, str]], option: str
) -> None:
    rows = ["q1 Q0 a 1 2.0 t", "q1 Q0 a 2 1.0 t", "q2 Q0 x 1 1.0 t"]
    (files / "twice.txt").write_text("\n".join(rows))
    given = ["--judgments", "labels.jsonl", "--truth", "truth.parquet", option, "twice.txt"]
    code, _, err = semrecall_main("waterfall", *given)
    assert (code, "--duplicates first" in err) == (2, True)
    code, _, err = semrecall_main("waterfall", *given, "--duplicates", "first", "-k", "1")
    assert code == 0, err


@pytest.mark.parametrize("columns", ["40", "60"])
def test_a_narrow_terminal(
    files: Path,
    semrecall_main: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    given = ["--judgments", "labels.jsonl", "--truth", "truth.parquet"]
    for command in (
        ["waterfall", *given, "--run", "run.parquet"],
        ["score", "run.parquet", *given],
    ):
        code, out, _ = semrecall_main(*command)
        assert code == 0
        assert max(map(len, out.splitlines())) <= int(columns)
        assert "interval" in out
        assert "queries" in out


def test_every_format_has_the_slices(
    files: Path, semrecall_main: Callable[..., tuple[int, str, str]]
) -> None:
    rows = [{"id": "q1", "text": "one", "kind": "l"}, {"id": "q2", "text": "two", "kind": "s"}]
    (files / "queries.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    given = ["--judgments", "labels.jsonl", "--truth", "truth.parquet", "--run", "run.parquet"]
    given += ["--queries", "queries.jsonl", "--by", "kind", "--format"]
    _, out, _ = semrecall_main("waterfall", *given, "csv")
    read = list(csv.DictReader(out.splitlines()))
    assert [(row["slice"], row["group"], row["name"]) for row in read] == [
        ("", "", "exact"), ("", "", "index"), ("kind", "l", "exact"), ("kind", "l", "index"),
        ("kind", "s", "exact"), ("kind", "s", "index"),
    ]  # fmt: skip
    _, out, _ = semrecall_main("waterfall", *given, "markdown")
    whole, _, sliced = out.partition("\nby kind:\n\n")
    assert whole.count("| exact |") == 1
    assert "lost, left: means over queries" in sliced
    assert [line[:13] for line in sliced.splitlines() if line.startswith(("| l", "| s"))] == [
        "| l | exact |", "| l | index |", "| s | exact |", "| s | index |",
    ]  # fmt: skip


def test_page(files: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    texts = {"q1": "<b>hostile</b> & ไทย"}
    found = full(
        query_texts=texts, columns={"query_id": ["q1", "q2"], "kind": ["l", "s"]}, by="kind"
    )
    found.to_html(files / "w.html", command="semrecall waterfall ...")
    html = (files / "w.html").read_text(encoding="utf-8")
    assert "<b>hostile" not in html
    assert "&lt;b&gt;hostile&lt;/b&gt; &amp; ไทย" in html
    assert "<td>37.5%</td>" in html
    assert "Lucky finds of the index" in html
    # Stages have the same names in every table of the page.
    assert ">exact</th>" not in html
    assert ">codes</th>" not in html
    assert "http" not in html.replace("http://www.w3.org", "")
