"""abstention(): whether a score tells queries without an answer from the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest

import semrecall as sr
from semrecall.abstention import abstention
from semrecall.data import Ids, Run, Scores
from semrecall.data.answers import answers_of, unanswerable_in
from semrecall.errors import InputError, MismatchError

RUN = Run.from_dict(
    {
        "a": {"x": 0.9, "y": 0.2},
        "b": {"x": 0.7, "y": 0.6},
        "c": {"x": 0.5, "y": 0.1},
        "n": {"x": 0.6, "y": 0.5},
        "m": {"x": 0.3, "y": 0.2},
        "e": {},
    },
    space="ip",
)
NONE = ["n", "m", "e"]


def test_by_hand():
    found = abstention(RUN, unanswerable=NONE)
    assert (found.answerable, found.unanswerable, found.left_out) == (3, 3, 0)
    # a and b beat n, m and e; c beats m and e: 8 of 9 pairs.
    assert found.auc == 8 / 9
    assert found.low < found.auc < found.high
    assert found.values.tolist() == [0.3, 0.5, 0.6, 0.7, 0.9, math.inf]
    np.testing.assert_allclose(found.kept, [1, 1, 2 / 3, 2 / 3, 1 / 3, 0])
    # e has no result: rejected at every threshold.
    np.testing.assert_allclose(found.rejected, [1 / 3, 2 / 3, 2 / 3, 1, 1, 1])
    # Equal costs: from 0.5 one of six is wrong (n), from 0.7 one (c) too: the permissive one.
    np.testing.assert_allclose(found.costs[:4], [2 / 6, 1 / 6, 2 / 6, 1 / 6])
    assert found.best.value == 0.5
    assert found.best.cost == pytest.approx(1 / 6)
    # A wrong answer costs five times as much: 5/6 against 1/6.
    dear = abstention(RUN, unanswerable=NONE, cost=5)
    assert dear.best.value == 0.7
    assert dear.costs[1] == pytest.approx(5 / 6)
    assert sr.abstention is abstention


def test_a_threshold_asked_about():
    found = abstention(RUN, unanswerable=NONE, threshold=0.65)
    assert (found.given.kept, found.given.rejected) == (2 / 3, 1.0)
    assert found.given.cost == pytest.approx(1 / 6)
    assert "answer from 0.65, keeps 66.7% of the answerable, rejects 100.0%" in str(found)
    assert abstention(RUN, unanswerable=NONE, threshold=-1).given.rejected == 1 / 3


def test_distances_are_answered_up_to_a_threshold():
    far = Run.from_dict({"a": {"x": 1.0}, "n": {"x": 3.0}, "b": {"x": 2.0}}, space="l2")
    found = abstention(far, {"a": True, "b": True, "n": False})
    assert found.auc == 1.0
    assert not found.higher_is_better
    assert found.values.tolist() == [3, 2, 1, -math.inf]
    assert (found.best.value, found.best.kept, found.best.rejected) == (2.0, 1.0, 1.0)
    assert "answer up to 2, keeps 100.0%" in str(found)
    assert abstention(far, {"a": True, "n": False}, threshold=1.5).given.kept == 1.0


def test_other_scores():
    # Gaps: a 0.7, b 0.1, c 0.4; n 0.1, m 0.1, e none.
    gap = abstention(RUN, unanswerable=NONE, score="gap")
    assert gap.auc == pytest.approx((3 + 3 + 1 + 0.5 + 0.5) / 9)
    own = {"a": 1, "b": 1, "c": 1, "n": 0, "m": 0, "e": 2}
    assert abstention(RUN, unanswerable=NONE, score=own).auc == 6 / 9
    scores = Scores("certainty", RUN.queries, np.arange(6.0))
    assert abstention(RUN, unanswerable=NONE, score=scores).score == "certainty"
    assert abstention(RUN.replace(flat_scores=None), unanswerable=NONE, score=own).auc == 6 / 9


@pytest.mark.parametrize(
    "answerable",
    [
        {"a": True, "b": 1, "c": "yes", "n": False, "m": "no", "e": None},
        {"query_id": list("abcnme"), "answerable": [1.0, 1.0, 1.0, 0.0, 0.0, math.nan]},
        [True, True, True, False, False, None],
        np.array(["true", "TRUE", "t", "false", "0", ""]),
    ],
)
def test_ways_to_say_it(answerable):
    found = abstention(RUN, answerable)
    assert (found.answerable, found.unanswerable, found.left_out) == (3, 2, 1)
    assert "1 query of the run left out" in str(found)


def test_frames_say_it_too():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"query_id": list("abcn"), "answerable": [True, True, True, False]})
    assert abstention(RUN, frame).unanswerable == 1
    queries, answers = answers_of(frame)
    assert list(queries) == list("abcn")
    assert answers.tolist() == [1, 1, 1, 0]
    assert list(unanswerable_in(frame)) == ["n"]
    assert unanswerable_in(frame[["query_id"]]) is None
    assert unanswerable_in(None) is None


def test_the_curve_thinned_and_as_a_document():
    random = np.random.default_rng(0)
    run = Run.from_arrays(np.zeros((200, 1), dtype=int), random.normal(size=(200, 1)), space="ip")
    found = abstention(run, [i % 3 > 0 for i in range(200)])
    assert len(found.points()) == 201
    few = found.points(10)
    assert len(few) <= 10
    assert (few[0].kept, few[-1].kept, few[-1].rejected) == (1.0, 0.0, 1.0)
    document = found.to_dict()
    assert document["auc"] == found.auc
    assert len(document["curve"]) == 201
    assert repr(found).startswith("Abstention(auc 0.")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: abstention(RUN), InputError, "give either answerable or unanswerable"),
        (lambda: abstention(RUN, {"a": True}, unanswerable=["n"]), InputError, "give either"),
        (lambda: abstention(RUN, {"a": True}), InputError, "known to be without an answer"),
        (lambda: abstention(RUN, unanswerable=list("abcnme")), InputError, "be with an answer"),
        (lambda: abstention(RUN, {"z": True}), MismatchError, "none of the 1 query said to have"),
        (lambda: abstention(RUN, [True]), InputError, "1 values for 6 queries"),
        (lambda: abstention(RUN, {"a": "perhaps"}), InputError, "answerable is 'perhaps'"),
        (lambda: abstention(RUN, unanswerable=["n"], cost=0), InputError, "cost is 0"),
        (lambda: abstention(RUN, unanswerable=["n"], score="mean"), InputError, "score is 'mean'"),
        (lambda: abstention(RUN.replace(flat_scores=None), unanswerable=["n"]), InputError,
         "the run has no scores"),
        (lambda: abstention(Run.from_dict({"a": {}, "n": {}}), unanswerable=["n"]), InputError,
         "no query has a score"),
        (lambda: answers_of({"query_id": ["a", "a"], "answerable": [1, 0]}), InputError, "twice"),
    ],
)  # fmt: skip
def test_wrong_questions(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_an_empty_column_of_ids_leaves_every_query_answerable():
    with pytest.raises(InputError, match="without an answer"):
        abstention(RUN, unanswerable=Ids(np.empty(0, dtype=np.int64)))


# -- queries that the run does not have ----------------------------------------------------------


def test_a_query_that_the_run_does_not_have_found_nothing():
    # Files of results have no line for it: as e of RUN, whose row is empty.
    file = RUN.select(RUN.query_ids != "e")
    for answers in ({"unanswerable": NONE}, {"answerable": {q: q not in NONE for q in "abcnme"}}):
        found = abstention(file, **answers)
        same = abstention(RUN, unanswerable=NONE)
        assert (found.auc, found.answerable, found.unanswerable) == (8 / 9, 3, 3)
        assert found.rejected.tolist() == same.rejected.tolist()
        assert (found.silent, same.silent) == (1, 0)
        assert "1 query not in the run: nothing was found" in str(found)
        assert found.to_dict()["silent"] == 1
    # One with an answer that was not found is refused at every threshold, too.
    assert abstention(file, {"a": True, "n": False, "z": True}).kept.max() == 0.5


def test_only_a_part():
    found = abstention(RUN, unanswerable=["n", "m", "z"], only=["a", "b", "n", "z", "y"])
    assert (found.answerable, found.unanswerable, found.silent) == (2, 2, 1)


def test_ids_of_another_set():
    with pytest.raises(MismatchError, match="none of the 2 queries known to have no answer is in"):
        abstention(RUN, unanswerable=["q8", "q9"])
    with pytest.raises(MismatchError) as fault:
        abstention(RUN, unanswerable=["N", "M"])
    assert "upper and lower case" in fault.value.hint


def test_distances_without_a_space():
    far = Run.from_dict({"a": {"x": 1.0}, "n": {"x": 3.0}}, lower_is_better=True)
    found = abstention(far, unanswerable=["n"], lower_is_better=True)
    assert (found.auc, found.best.value, found.higher_is_better) == (1.0, 1.0, False)
    gap = Run.from_dict(
        {"a": {"x": 1.0, "y": 4.0}, "n": {"x": 3.0, "y": 3.5}}, lower_is_better=True
    )
    assert abstention(gap, unanswerable=["n"], score="gap", lower_is_better=True).auc == 1.0
    with pytest.raises(InputError, match="threshold is not a number"):
        abstention(far, unanswerable=["n"], threshold=math.nan)


def test_the_command_reads_runs_as_score_does(semrecall_main, tmp_path):
    (tmp_path / "far.run").write_text("a Q0 x 1 1.0 r\nn Q0 x 1 3.0 r\nb Q0 x 1 2.0 r\n")
    (tmp_path / "none.txt").write_text("n\nz\n")
    (tmp_path / "sure.csv").write_text("query_id,sure\na,3\nn,1\nb,2\n")
    asked = ("abstention", "far.run", "--unanswerable", "none.txt", "--lower-is-better")
    status, out, _ = semrecall_main(*asked)
    assert status == 0
    assert "AUC 1.0000" in out
    assert "answer up to 2, keeps 100.0%" in " ".join(out.split())
    _, out, _ = semrecall_main(*asked, "--columns", "sure.csv", "--score", "sure")
    assert "by the column sure" in out
    (tmp_path / "two.run").write_text("a Q0 x 1 1.0 r\na Q0 x 1 3.0 s\n")
    status, _, err = semrecall_main("abstention", "two.run", "--unanswerable", "none.txt")
    assert status == 2
    assert "the file holds 2 runs, each named: give a file of one" in err
