"""Documents that are the same count once; a query's own document is dropped where asked."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.data import Ids, Judgments, Run
from semrecall.data.classes import Classes, drop_self, same_text, selves
from semrecall.data.ids import ids
from semrecall.errors import FormatError, InputError, SemrecallWarning
from semrecall.formats.spans import read_chunks, read_classes, read_spans
from semrecall.measures import align, parse


def value(name, run, judgments):
    return parse(name).values(align(run, None, judgments)).values.tolist()


# -- classes ------------------------------------------------------------------------------------


def test_labels_pairs_and_mappings_say_the_same():
    by_label = Classes.of_labels(["a", "b", "c", "d", "e"], ["x", "y", "x", "x", None])
    by_pair = Classes.of([("c", "a"), ("d", "c")])
    by_mapping = Classes.of({"c": "a", "d": "a"})
    for classes in (by_label, by_pair, by_mapping):
        assert set(classes.members) == {"a", "c", "d"}
        assert len(classes) == 1
        assert repr(classes) == "Classes(3 documents in 1 classes)"
        # b alone is no member; z is unknown; a missing id stays missing.
        found = classes.canonical(ids(["d", "b", "", "c", "z", "a"]))
        assert len(set(found[np.array([0, 3, 5])])) == 1
        assert list(found[np.array([1, 2, 4])]) == ["b", "", "z"]
    assert Classes.of(by_label) is by_label
    assert list(by_label.canonical(ids(["d"]))) == ["a"]


def test_labels_are_no_ids():
    # The class called "7" has nothing to do with document 7.
    classes = Classes.of_labels([1, 2, 7], [7, 7, 8])
    assert classes.canonical(ids([1, 2, 7])).array().tolist() == [1, 1, 7]


def test_integers_and_text_mix():
    classes = Classes.of({"7": "copy-of-7"})
    assert list(classes.canonical(ids([7, 8]))) == ["copy-of-7", "8"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_what_is_linked_through_others_is_the_same(pairs):
    classes = Classes.of(pairs)
    groups = {i: {i} for i in range(10)}
    for left, right in pairs:
        joint = groups[left] | groups[right]
        for i in joint:
            groups[i] = joint
    found = classes.canonical(Ids(np.arange(10))).array()
    for i in range(10):
        for j in range(10):
            assert (found[i] == found[j]) == (j in groups[i])
        assert found[i] in groups[i]


def test_faults_of_classes():
    with pytest.raises(InputError, match="document 'a' is in two classes: 'x' and 'y'"):
        Classes.of_labels(["a", "a"], ["x", "y"])
    with pytest.raises(InputError, match="pair 1 lacks a document id"):
        Classes.of([("a", "b"), ("a", "")])
    with pytest.raises(InputError, match="2 document ids but 1 labels"):
        Classes.of_labels(["a", "b"], ["x"])
    with pytest.raises(InputError, match="1 ids are paired with 2"):
        Classes.of_pairs(["a"], ["b", "c"])
    assert len(Classes.of({})) == 0
    assert list(Classes.of({}).canonical(ids(["a"]))) == ["a"]


def test_equal_texts():
    texts = {"a": "Blue  shirt", "b": "blue shirt\n", "c": "Blue  shirt", "d": " ", "e": "\t",
             "f": "ﬁne", "g": "FINE"}  # fmt: skip
    normal = same_text(texts)
    assert set(normal.members) == {"a", "b", "c", "f", "g"}
    assert len(normal) == 2
    exact = same_text(texts, normalise=False)
    assert list(exact.members) == ["a", "c"]
    assert list(exact.canonical(ids(["c", "b"]))) == ["a", "b"]


# -- runs and judgments in terms of classes -----------------------------------------------------

SAME = Classes.of({"a2": "a", "a3": "a"})


def test_a_class_counts_once_at_its_first_occurrence():
    run = Run.from_dict({"q": ["x", "a2", "a", "b"]})
    judgments = Judgments.from_dict({"q": {"a3": 1, "b": 1}})
    # By id: neither a2 nor a is judged. As a class: x, a, b; both relevant found.
    assert value("RR", run, judgments) == [1 / 4]
    merged = SAME.of_run(run), SAME.of_judgments(judgments)
    assert value("RR", *merged) == [1 / 2]
    assert value("R@3", *merged) == [1.0]
    assert value("P@2", *merged) == [1 / 2]
    assert align(*merged[:1], None, merged[1]).repeats.tolist() == [1]
    # Neither is changed itself.
    assert run.ids.to_list() == [["x", "a2", "a", "b"]]
    assert list(judgments.documents) == ["a3", "b"]


def test_grades_of_a_class():
    judgments = Judgments.from_arrays(
        ["q", "q", "q", "r", "r"], ["a", "a2", "b", "a2", "a3"], [0, 2, 1, np.nan, 1],
        judge=["m", "n", "m", "m", "n"],
    )  # fmt: skip
    with pytest.warns(SemrecallWarning, match=r"1 class has members of different grades, first: "
                      r"query 'q', document 'a2' has grade 2, 'a' has 0; the highest"):  # fmt: skip
        merged = SAME.of_judgments(judgments)
    assert list(zip(merged.queries, merged.documents, merged.grades, merged.details["judge"],
                    strict=True)) == [
        ("q", "a", 2.0, "n"), ("q", "b", 1.0, "m"), ("r", "a", 1.0, "n"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="members of different grades") as fault:
        SAME.of_judgments(judgments, conflicts="error")
    assert "--same-conflicts max" in str(fault.value)
    with pytest.raises(InputError, match="expected max or error"):
        SAME.of_judgments(judgments, conflicts="min")
    junk = Judgments.from_arrays(["q", "q"], ["a", "a2"], [np.nan, -1])
    assert SAME.of_judgments(junk).grades.tolist() == [-1.0]
    agreeing = Judgments.from_arrays(["q", "q"], ["a", "a2"], [1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(SAME.of_judgments(agreeing, conflicts="error")) == 1


# -- the query itself ---------------------------------------------------------------------------


def test_a_query_that_finds_itself_is_kept_by_default():
    # The case self-01: ids that are equal by chance.
    documents = {str(i): 1 for i in range(10)}
    run = Run.from_dict({"0": {str(i): 10.0 - i for i in range(10)}})
    judgments = Judgments.from_dict({"0": documents})
    assert value("R@10", run, judgments) == [1.0]
    assert selves(run).sum() == selves(judgments).sum() == 1


def test_a_query_that_finds_itself_is_dropped_where_asked():
    # The cases self-02 and self-03.
    run = Run.from_dict({"q1": {"q1": 2.0, "d": 1.0}})
    judgments = Judgments.from_dict({"q1": {"d": 1}})
    before = run.ids.to_list(), run.flat_scores.tolist()
    assert value("RR", run, judgments) == [0.5]
    assert value("RR", drop_self(run), judgments) == [1.0]
    assert (run.ids.to_list(), run.flat_scores.tolist()) == before == ([["q1", "d"]], [2.0, 1.0])
    assert drop_self(judgments) is judgments
    assert list(drop_self(Judgments.from_dict({"q1": {"q1": 1, "d": 1}})).documents) == ["d"]


def test_dropping_shortens_what_was_asked():
    run = Run.from_arrays([[0, 5, 6], [7, 8, 9]], query_ids=[0, 1], k=3)
    found = drop_self(run)
    assert found.ids.to_list() == [[5, 6], [7, 8, 9]]
    assert found.k == 2
    assert align(found).missing.tolist() == [0, 0]
    # A row that was short before says nothing about depth; "0" and 0 are the same id.
    short = Run.from_arrays([["0", "x"], ["a", "b", "c"]], query_ids=[0, 1], k=3)
    assert drop_self(short).k == 3
    assert drop_self(run.replace(k=None)).k == 2


# -- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("same.csv", "id,class\na,1\nb,2\na2,1\na3,1\n"),
        ("same.tsv", "doc_id\tsame_as\na2\ta\na3\ta2\n"),
        ("same.jsonl", '{"id": "a2", "same_as": "a"}\n{"id": "a3", "same_as": "a"}\n'),
    ],
)
def test_files_of_classes(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    found = read_classes(tmp_path / name)
    assert set(found.members) == {"a", "a2", "a3"}
    assert len(found) == 1


def test_files_of_spans_and_chunks(tmp_path):
    (tmp_path / "spans.csv").write_text("query_id,doc_id,start,end,grade\nq,d,3,9,2\nq,e,,,\n")
    spans = read_spans(tmp_path / "spans.csv")
    assert spans.starts.tolist() == [3, -1]
    assert spans.ends.tolist() == [9, -1]
    assert spans.grades.tolist() == [2, 1]
    (tmp_path / "labels.jsonl").write_text('{"query_id": 1, "document_id": 2}\n')
    whole = read_spans(tmp_path / "labels.jsonl")
    assert (whole.starts.tolist(), whole.queries[0], whole.documents[0]) == ([-1], 1, 2)
    (tmp_path / "chunks.jsonl").write_text(
        '{"id": "c", "document_id": "d", "start": 0, "end": 8, "text": "whatever"}\n'
    )
    chunks = read_chunks(tmp_path / "chunks.jsonl")
    assert (list(chunks.ids), list(chunks.documents)) == (["c"], ["d"])
    assert (chunks.starts.tolist(), chunks.ends.tolist()) == ([0], [8])


@pytest.mark.parametrize(
    ("reader", "content", "said"),
    [
        (read_spans, "query_id,doc_id,start,end\nq,d,3,9\nq,d,9,3\n",
         "line 3: the span goes from 9 to 3"),
        (read_spans, "query_id,doc_id,start,end\nq,d,x,9\n", "line 2: start is 'x', expected a"),
        (read_spans, "query_id,start,end\nq,3,9\n", "no column for document ids"),
        (read_chunks, "id,doc_id,start\nc,d,3\n", "no column for ends"),
        (read_chunks, "id,doc_id,start,end\nc,d,0,9\n,d,9,12\n", "line 3: the chunk has no id"),
        (read_chunks, "id,doc_id,start,end\nc,d,0,9\nc,d,9,12\n",
         "the chunk 'c' stands at line 2 and again at line 3"),
        (read_chunks, "id,doc_id,start,end\n,d,0,9\n,d,9,12\n", "line 2: the chunk has no id"),
        (read_chunks, "", "the file is empty"),
        (read_chunks, "id,doc_id,start,end\nc,d,,9\n", "line 2: the chunk has no start"),
        (read_spans, "query_id,doc_id,start,end\nq,d,3,9\n\nq,d,3,\n",
         "line 4: the span has a start but no end"),
        (read_spans, "query_id,doc_id,start,end\nq,d,,9\n", "line 2: the span has an end but no"),
        (read_spans, "query_id,doc_id,start\nq,d,3\n", "spans have a start but no end"),
        (read_spans, "query_id,doc_id,start,end\nq,d,3,9.5\n", "end is '9.5', expected a whole"),
        (read_classes, "id,group\na,1\n", "no column for classes: found columns id, group"),
        (read_classes, "id,class\na,1\nb,1\na,2\n",
         "document 'a' is in class 1 at line 2 and in 2 at line 4"),
        (read_classes, "id,class\na,1\n,2\n", "line 3: no document id"),
        (read_classes, "id,same_as\n,1\n", "line 2: no document id"),
    ],
)  # fmt: skip
def test_faults_name_file_and_line(tmp_path, reader, content, said):
    path = tmp_path / "given.csv"
    path.write_text(content)
    with pytest.raises(FormatError, match=r"given\.csv: ") as fault:
        reader(path)
    assert said in str(fault.value)


def test_booleans_are_no_positions(tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text('{"query_id": "q", "doc_id": "d", "start": true, "end": 9}\n')
    with pytest.raises(FormatError, match="line 1: start is True, expected a number"):
        read_spans(path)
    path.write_text("")
    with pytest.raises(FormatError, match="the file is empty"):
        read_spans(path)


def test_an_empty_same_as_is_a_document_of_its_own(tmp_path):
    path = tmp_path / "same.csv"
    path.write_text("id,same_as\na,b\nc,\n")
    assert list(read_classes(path).members) == ["b", "a"]


def test_a_class_is_for_the_subtopics_of_all_its_members():
    judged = Judgments.from_arrays(
        ["q"] * 5,
        ["d1", "d3", "d1", "d3", "x"],
        [1, 1, 2, 1, 1],
        subtopic=["a", "b", "c", "c", "a"],
    )
    with pytest.warns(SemrecallWarning, match="members of different grades"):
        merged = Classes.of({"d3": "d1"}).of_judgments(judged)
    assert list(merged.documents) == ["d1", "x"]
    assert [json.loads(t) for t in merged.details["subtopics"]] == [
        {"a": 1, "b": 1, "c": 2}, {"a": 1},
    ]  # fmt: skip
