"""evaluate(): which queries count, the query itself, equal documents, spans, what is unjudged."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from semrecall.data import Judgments, Run
from semrecall.data.classes import Classes
from semrecall.data.spans import Chunks, Spans
from semrecall.errors import InputError, MeasureError, MismatchError, SemrecallWarning
from semrecall.evaluate import evaluate
from semrecall.splits import split

RUN = Run.from_dict({"a": ["x", "y"], "b": ["y", "z"], "c": ["z", "x"]}, name="mine")
LABELS = Judgments.from_dict({"a": {"x": 1}, "b": {"z": 1}, "c": {"y": 0, "w": 1}})


def noted(result, text):
    return [note for note in result.notes if text in note]


# -- the query itself ---------------------------------------------------------------------------


def test_a_query_that_finds_itself():
    # The cases self-01, self-02 and self-03.
    chance = Run.from_dict({"0": {str(i): 10.0 - i for i in range(10)}})
    ten = Judgments.from_dict({"0": {str(i): 1 for i in range(10)}})
    result = evaluate(chance, "R@10", judgments=ten)
    assert result.mean("R@10") == 1.0
    assert noted(result, "1 query id equals the id of the first result (numbers may be equal by")
    # Row numbers on both sides are equal by chance: one of eleven is not said.
    rows = {str(i): {str((i * 7) % 11): 1.0} for i in range(11)}
    few = evaluate(Run.from_dict(rows), "P@1", judgments=Judgments.from_dict({"1": {"7": 1}}))
    assert not noted(few, "id of the first result")
    run = Run.from_dict({"q1": {"q1": 2.0, "d": 1.0}})
    labels = Judgments.from_dict({"q1": {"d": 1}})
    found = evaluate(run, "RR", judgments=labels)
    assert found.mean("RR") == 0.5
    assert noted(found, "1 query id equals the id of the first result; --drop-self (drop_self=True")
    dropped = evaluate(run, "RR", judgments=labels, drop_self=True)
    assert dropped.mean("RR") == 1.0
    assert noted(dropped, "dropped: 1 of run 'run'")
    assert not noted(dropped, "id of the first result")
    assert run.ids.to_list() == [["q1", "d"]]
    assert run.flat_scores.tolist() == [2.0, 1.0]
    assert noted(evaluate(RUN, "RR", judgments=LABELS, drop_self=True), "dropped: none")


def test_a_query_in_its_own_truth():
    truth = Run.from_arrays([[0, 5, 6], [1, 7, 8]], query_ids=[0, 1], k=3)
    run = Run.from_arrays([[0, 5, 9], [7, 1, 8]], query_ids=[0, 1], k=3)
    result = evaluate(run, "recall@2", truth=truth, drop_self=True)
    # Without themselves: {5, 9} of {5, 6}, and {7, 8} of {7, 8}.
    assert result["recall@2"].values.tolist() == [0.5, 1.0]
    assert result.truth.depth == 2
    assert result.counts["run"].missing == 0


# -- documents that are the same ----------------------------------------------------------------


def test_documents_that_are_the_same_count_once():
    run = Run.from_dict({"q": ["x", "a2", "a", "b"]})
    labels = Judgments.from_dict({"q": {"a3": 1, "b": 1}})
    same = {"a2": "a", "a3": "a"}
    for value in (same, list(same.items()), Classes.of(same)):
        result = evaluate(run, ["RR", "R@3"], judgments=labels, same_as=value)
        assert (result.mean("RR"), result.mean("R@3")) == (0.5, 1.0)
        assert result.counts["run"].repeats == 1
    assert noted(result, "count once: 3 documents in 1 class")
    assert run.ids.to_list() == [["x", "a2", "a", "b"]]


def test_the_truth_has_classes_too():
    truth = Run.from_arrays([[1, 2, 3, 4]], k=4)
    run = Run.from_arrays([[20, 3, 9, 4]], k=4)
    assert evaluate(run, "recall@4", truth=truth).mean("recall@4") == 0.5
    # 2 and 20 are the same; 3 and 4 too: two of the three classes 1, 2, 3 are found.
    same = evaluate(run, "recall@4", truth=truth, same_as={20: 2, 4: 3})
    assert same.mean("recall@4") == 2 / 3


def test_grades_that_differ_in_a_class():
    run = Run.from_dict({"q": ["a", "b"]})
    labels = Judgments.from_dict({"q": {"a": 0, "b": 2}})
    with pytest.warns(SemrecallWarning, match="members of different grades"):
        result = evaluate(run, "nDCG@2", judgments=labels, same_as={"b": "a"})
    assert result.mean("nDCG@2") == 1.0
    with pytest.raises(InputError, match="members of different grades"):
        evaluate(run, "RR", judgments=labels, same_as={"b": "a"}, same_conflicts="error")


# -- some of the queries ------------------------------------------------------------------------


def test_a_part_of_a_split():
    labels = Judgments.from_dict({"a": {"x": 1}, "b": {"z": 1}, "c": {"z": 0, "x": 1}})
    found = split(RUN, seed=1)
    whole = evaluate(RUN, "RR", judgments=labels)
    for part in ("dev", "test"):
        chosen = list(found.part(part))
        result = evaluate(RUN, "RR", judgments=labels, only=found.part(part))
        assert list(result.queries) == [q for q in "abc" if q in chosen]
        assert noted(result, f"{len(chosen)} of 3 queries scored, the others set aside")
        for query, value in zip(result.queries, result["RR"].values, strict=True):
            assert value == whole["RR"].values[list("abc").index(query)]
        # The queries set aside are not called extra ones of the run.
        assert result.counts["mine"].only_in_run == 0
    truth = Run.from_dict({q: ["x"] for q in "abc"})
    result = evaluate(RUN, ["recall@1"], truth=truth, judgments=labels, codes=RUN, only=["b"])
    assert len(result.queries) == 1
    with pytest.raises(MismatchError, match="none of the 1 queries to score is known"):
        evaluate(RUN, "RR", judgments=labels, only=["Q"])


# -- queries without an answer ------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"unanswerable": ["c", "zz"]},
        {"columns": {"query_id": ["a", "b", "c", "zz"], "answerable": [1, "yes", "no", False]}},
    ],
)
def test_queries_without_an_answer_are_kept_apart(said):
    labels = Judgments.from_dict({"a": {"x": 1}, "b": {"y": 0, "z": 1}, "c": {"y": 0}})
    truth = Run.from_dict({q: ["x"] for q in "abc"})
    result = evaluate(RUN, ["RR", "recall@1"], judgments=labels, truth=truth, **said)
    assert result["RR"].values[:2].tolist() == [1.0, 0.5]
    assert np.isnan(result["RR"].values[2])
    assert result.undefined("RR") == {"known to have no answer": 1}
    assert result.mean("RR") == 0.75
    # What the index finds of the exact neighbours is another question.
    assert result.undefined("recall@1") == {}
    assert noted(result, "1 query known to have no answer, kept apart from the means")
    assert "left out of RR: 1 known to have no answer" in str(result)


def test_no_answer_but_a_relevant_document():
    with pytest.warns(SemrecallWarning, match="1 query known to have no answer, yet with a "):
        evaluate(RUN, "RR", judgments=LABELS, unanswerable=["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(RUN, "RR", judgments=LABELS, unanswerable=[])


# -- what is unjudged ---------------------------------------------------------------------------


def test_bounds_stand_beside_the_values():
    # d has no relevant document, so no value, whatever its unjudged result might be.
    run = Run.from_dict({"a": ["x", "y"], "b": ["y", "z"], "c": ["z", "x"], "d": ["y"]})
    labels = Judgments.from_dict(
        {"a": {"x": 1}, "b": {"z": 1}, "c": {"y": 0, "w": 1}, "d": {"x": 0}}
    )
    result = evaluate({"mine": run}, ["P@2", "RR", "Judged@2"], judgments=labels)
    # P@2: a 1/2 (y unjudged), b 1/2 (y unjudged), c 0 (z and x unjudged).
    first, second = result.unjudged
    assert (first.run, first.measure, first.grade) == ("mine", "P@2", 1.0)
    assert (first.low, first.mean, first.high) == (1 / 3, 1 / 3, 1.0)
    assert first.judged == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    # RR: 1, 1/2 and 0; b and c could be 1.
    assert (second.low, second.mean, second.high) == (0.5, 0.5, 1.0)
    text = str(result)
    assert "if unjudged results were irrelevant or of grade 1" in text
    line = text.split("of grade 1\n")[1].splitlines()[1].split()
    assert line == ["P@2", "0.3333", "0.3333", "1.0000", "33.3%"]
    assert [row["measure"] for row in result.to_dict()["unjudged"]] == ["P@2", "RR"]


def test_nothing_is_said_where_everything_is_judged():
    labels = Judgments.from_dict({q: dict.fromkeys("xyz", 1) for q in "abc"})
    result = evaluate({"one": RUN, "two": RUN}, ["P@2", "nDCG"], judgments=labels)
    assert result.unjudged == ()
    assert "if unjudged" not in str(result)
    some = evaluate({"one": RUN, "two": RUN}, "P@2", judgments=LABELS)
    assert "one  P@2" in str(some)
    assert "two  P@2" in str(some)


# -- spans --------------------------------------------------------------------------------------

CHUNKS = Chunks.from_arrays(["c0", "c1", "c2"], ["d"] * 3, [0, 10, 20], [10, 20, 30])
SPANS = Spans.from_arrays(["q", "r"], ["d", "d"], [8, 21], [14, 29], [1, 2])
FOUND = Run.from_dict({"q": ["c1", "c0"], "r": ["c0", "c1"]})


def test_labels_on_spans_judge_the_chunks():
    names = ["R@1", "RR", "SpanR@1", "SpanP@1", "SpanIoU@2"]
    result = evaluate(FOUND, names, spans=SPANS, chunks=CHUNKS)
    assert result["R@1"].values.tolist() == [1.0, 0.0]
    assert result["SpanR@1"].values.tolist() == [4 / 6, 0.0]
    assert result["SpanP@1"].values.tolist() == [4 / 10, 0.0]
    assert result["SpanIoU@2"].values.tolist() == [6 / 20, 0.0]
    touching = evaluate(FOUND, "R@1", spans=SPANS, chunks=CHUNKS, overlap="touch")
    assert touching["R@1"].values.tolist() == [0.5, 0.0]
    assert result.unjudged == ()
    given = Judgments.from_dict({"q": {"c0": 1}, "r": {"c0": 1}})
    assert evaluate(FOUND, "R@1", judgments=given, spans=SPANS, chunks=CHUNKS).mean("R@1") == 0.5


def test_chunks_count_as_their_documents():
    # Labels on documents, results that are chunks: a document counts once, at its best chunk.
    chunks = {"c0": "d", "c1": "d", "e0": "e"}
    run = Run.from_dict({"q": ["c0", "c1", "e0"]})
    labels = Judgments.from_dict({"q": {"e": 1}})
    assert evaluate(run, "RR", judgments=labels, same_as=chunks).mean("RR") == 0.5


def test_spans_need_chunks():
    with pytest.raises(InputError, match="spans were given alone"):
        evaluate(FOUND, "R@1", spans=SPANS)
    with pytest.raises(InputError, match="chunks were given alone"):
        evaluate(FOUND, "R@1", chunks=CHUNKS)
    with pytest.raises(MeasureError, match="needs labelled spans and chunks"):
        evaluate(FOUND, "SpanR@1", judgments=Judgments.from_dict({"q": {"c0": 1}}))


def test_queries_without_an_answer_that_nobody_asked():
    with pytest.warns(
        SemrecallWarning, match="none of the 2 queries known to have no answer, like"
    ):
        result = evaluate(RUN, "RR", judgments=LABELS, unanswerable=["z8", "z9"])
    assert not noted(result, "kept apart")
    # Of those that are there the number is told.
    with pytest.warns(SemrecallWarning, match="yet with a document"):
        some = evaluate(RUN, "RR", judgments=LABELS, unanswerable=["z8", LABELS.queries[0]])
    assert noted(some, "1 query known to have no answer, kept apart")
