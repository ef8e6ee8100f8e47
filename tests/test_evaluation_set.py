"""Evaluation sets: JSON lines of text, filter, grades, vector and id, read by every reader."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semrecall as sr
from semrecall.errors import FormatError
from semrecall.formats import (
    read_columns,
    read_evaluation_set,
    read_judgments,
    read_queries,
    read_texts,
)

#: The guide's own shape: no ids, a filter here and there, grades by document.
GUIDE = """\
{"text": "how do foxes live", "filter": {"lang": "en"}, "grades": {"d1": 3, "d2": 1}}

{"text": "whales", "grades": {"d3": 2, "d4": 0, "d5": null}, "tenant": "blue"}
{"text": "nothing is known of this", "grades": {}}
"""


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    path = tmp_path / "eval.jsonl"
    path.write_text(GUIDE)
    return path


def test_an_evaluation_set_is_read_as_it_stands(guide):
    found = read_evaluation_set(guide)
    # Line numbers: the second line is empty.
    assert found.ids.array().tolist() == [1, 3, 4]
    assert found.texts == ("how do foxes live", "whales", "nothing is known of this")
    assert found.filters == ({"lang": "en"}, None, None)
    assert found.vectors is None
    assert found.judgments is not None
    frame = found.judgments.to_frame()
    assert list(zip(frame["query_id"], frame["doc_id"], strict=True)) == [
        (1, "d1"), (1, "d2"), (3, "d3"), (3, "d4"), (3, "d5"),
    ]  # fmt: skip
    np.testing.assert_array_equal(found.judgments.grades, [3, 1, 2, 0, np.nan])


def test_every_reader_takes_it(guide):
    assert read_texts(guide) == {"1": "how do foxes live", "3": "whales",
                                 "4": "nothing is known of this"}  # fmt: skip
    assert len(read_judgments(guide)) == 5
    assert len(sr.read(guide)) == 5
    assert read_judgments(guide, name="mine").name == "mine"
    columns = read_columns(guide)
    assert columns["query_id"].array().tolist() == [1, 3, 4]
    assert columns["tenant"].tolist() == [None, "blue", None]
    assert columns["filter.lang"].tolist() == ["en", None, None]
    assert not [name for name in columns if name.startswith("grades")]


def test_ids_and_vectors_are_taken_where_they_are(tmp_path: Path):
    path = tmp_path / "eval.jsonl"
    vectors = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    path.write_text(
        "".join(
            json.dumps({"id": f"q{i}", "text": "t", "vector": v, "grades": {"d": i}}) + "\n"
            for i, v in enumerate(vectors.tolist())
        )
    )
    found = read_evaluation_set(path)
    assert found.ids.array().tolist() == ["q0", "q1", "q2"]
    assert found.filters is None
    queries = read_queries(path)
    np.testing.assert_array_equal(queries.require_matrix(), vectors)
    assert queries.ids == found.ids
    # It tells grades, so that is what it is without being asked for something else.
    assert type(sr.read(path)).__name__ == "Judgments"
    assert type(sr.read(path, noun="vectors")).__name__ == "Vectors"


def test_json_lines_may_hold_vectors_alone(tmp_path: Path):
    path = tmp_path / "queries.jsonl"
    path.write_text('{"id": 5, "emb": [1, 2], "title": [3, 4]}\n{"id": 6, "emb": [3, 4]}\n')
    assert read_queries(path).require_matrix().tolist() == [[1, 2], [3, 4]]
    with pytest.raises(FormatError, match="line 2: title has 0 numbers, expected 2"):
        read_queries(path, dataset="title")
    with pytest.raises(FormatError, match="no column 'other': found id, emb, title"):
        read_queries(path, dataset="other")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"text": "a", "grades": {"d": "high"}}', "line 1: the grade of 'd' is 'high'"),
        ('{"text": "a", "grades": {"d": true}}', "the grade of 'd' is True"),
        ('{"text": "a", "grades": {}}\n{"text": "b", "grades": ["d"]}',
         "line 2: grades is a list"),
        ('{"id": 1, "text": "a", "grades": {}}\n{"id": 1, "text": "b", "grades": {}}',
         "the id 1 stands at line 1 and again at line 2"),
        ('{"id": 1, "text": "a", "grades": {}}\n{"text": "b", "grades": {}}', "line 2: no id"),
        ('{"text": 7, "grades": {}}', "line 1: text is 7"),
        ('{"grades": {}}', "no column for texts or vectors"),
        ('{"text": "a", "vector": [1, 2]}\n{"text": "b", "vector": [1]}\n'
         '{"text": "c", "vector": [1, 2]}', "line 2: vector has 1 numbers, expected 2"),
        ('{"text": "a", "vector": ["x"]}', "no list of numbers"),
        ('{"text": "a", "grades": {', "line 1: is no JSON"),
        ("", "is empty"),
    ],
)  # fmt: skip
def test_faults_name_their_lines(tmp_path: Path, lines, message):
    path = tmp_path / "eval.jsonl"
    path.write_text(lines)
    with pytest.raises(FormatError) as found:
        read_evaluation_set(path)
    assert message in str(found.value)
    assert "eval.jsonl" in str(found.value)


@given(
    st.lists(
        st.dictionaries(
            st.text(min_size=1, max_size=5).filter(lambda s: s.strip() and "\0" not in s),
            st.one_of(st.none(), st.integers(0, 5), st.floats(-3, 3)),
            max_size=5,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_grades_survive_whatever_the_documents_are_called(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("sets") / "eval.jsonl"
    path.write_text(
        "".join(json.dumps({"text": "t", "grades": row}) + "\n" for row in rows), encoding="utf-8"
    )
    read = read_evaluation_set(path).judgments
    expected = {
        (str(line), name): grade for line, row in enumerate(rows, 1) for name, grade in row.items()
    }
    assert read is not None
    found = {
        (str(q), str(d)): None if g != g else g
        for q, d, g in zip(read.queries, read.documents, read.grades.tolist(), strict=True)
    }
    assert found == expected


def test_vectors_in_a_file_go_with_the_lines_of_a_set(semrecall_main, tmp_path: Path):
    base = np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32)
    np.save(tmp_path / "base.npy", base)
    np.save(tmp_path / "queries.npy", base[:2])
    (tmp_path / "eval.jsonl").write_text(
        '{"id": "x", "text": "a", "grades": {"0": 1}}\n{"id": "y", "text": "b", "grades": {}}\n'
    )
    arguments = ("search", "exact", "--base", "base.npy", "--space", "ip", "-k", 3)
    status, _, err = semrecall_main(
        *arguments, "--queries", "queries.npy", "--eval-set", "eval.jsonl", "-o", "run.parquet"
    )
    assert status == 0, err
    assert sr.read("run.parquet").query_ids.tolist() == ["x", "y"]
    np.save(tmp_path / "three.npy", base[:3])
    status, _, err = semrecall_main(
        *arguments, "--queries", "three.npy", "--eval-set", "eval.jsonl"
    )
    assert status == 2
    assert "three.npy has 3 vectors, eval.jsonl 2 queries" in err
    status, _, err = semrecall_main(*arguments, "--eval-set", "eval.jsonl")
    assert status == 2
    assert "eval.jsonl has none" in err
    assert "--embed SPEC" in err
    status, _, err = semrecall_main(*arguments, "--embed", "openai?model=m")
    assert status == 2
    assert "--eval-set FILE" in err


def test_filters_that_a_system_cannot_take(semrecall_main, tmp_path: Path, guide):
    base = np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32)
    np.save(tmp_path / "base.npy", base)
    np.save(tmp_path / "queries.npy", base[:3])
    arguments = (
        "search", "exact", "--base", "base.npy", "--space", "ip", "-k", 3,
        "--queries", "queries.npy", "--eval-set", "eval.jsonl",
    )  # fmt: skip
    status, _, err = semrecall_main(*arguments)
    assert status == 2
    assert "takes no filters" in err
    assert "--ignore-filters" in err
    status, _, err = semrecall_main(*arguments, "--ignore-filters")
    assert status == 0, err
