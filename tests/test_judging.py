"""judge(): from pairs and texts to judgments; the judges that need no network; the commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semrecall as sr
from semrecall.data import Pairs
from semrecall.errors import InputError, JudgeFault, MismatchError
from semrecall.formats import read_judgments, read_pairs
from semrecall.formats.ledgers import read_by_judge
from semrecall.judges import Answer, Judge, Ledger, Question, Reply, Scale, Status, Vote, open_judge
from semrecall.judges.canaries import KINDS, canaries
from semrecall.judges.contract import Record
from semrecall.judges.function import FunctionJudge
from semrecall.judges.panel import Panel
from semrecall.judges.recorded import RecordedJudge
from semrecall.judging import judge

QUERIES = {"q1": "red fox", "q2": "ปลาทู"}
CORPUS = {1: "the red fox runs", 2: "the red fox  runs", 3: "a cow stands", 4: "แกงปลาทู"}
PAIRS = [("q1", 1), ("q1", 2), ("q1", 3), ("q2", 4), ("q2", 3)]


def shares_words(query: str, document: str) -> int:
    return int(any(word in document for word in query.split()))


def test_pairs_become_judgments_in_their_order() -> None:
    done = judge(PAIRS, FunctionJudge(shares_words), corpus=CORPUS, queries=QUERIES)
    labels = done.judgments
    assert list(zip(labels.queries, labels.documents, strict=True)) == PAIRS
    assert labels.grades.tolist() == [1, 1, 0, 1, 0]
    assert labels.details["judge"].tolist() == ["python:shares_words"] * 5
    assert labels.details["origin"].tolist() == [None, "1", None, None, None]
    assert (done.fresh, done.copied, done.calls) == (4, 1, 4)
    assert "5 of 5 pairs labelled, 3 (60.0%) relevant" in str(done)
    assert "1 by the equal text of another document" in str(done)


def test_a_run_is_judged_to_depth_k(tmp_path: Path) -> None:
    run = sr.Run.from_dict({"q1": {1: 3.0, 3: 2.0, 2: 1.0}, "q2": {4: 1.0}})
    done = judge(run, FunctionJudge(shares_words), corpus=CORPUS, queries=QUERIES, k=2)
    assert list(done.judgments.documents) == [1, 3, 4]
    assert Pairs.of(run, k=1).documents.array().tolist() == [1, 4]
    with pytest.raises(InputError, match="k is 0"):
        Pairs.of(run, k=0)


def test_a_pool_keeps_its_probabilities(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [{"query_id": q, "doc_id": d, "probability": p} for (q, d), p in
            zip(PAIRS, (1, 0.5, 0.25, 1, 1), strict=True)]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = judge(path, FunctionJudge(shares_words), corpus=CORPUS, queries=QUERIES)
    assert done.judgments.details["probability"].tolist() == [1, 0.5, 0.25, 1, 1]
    path.write_text(json.dumps(rows[0] | {"rank": 1, "probability": 0.5}), encoding="utf-8")
    assert read_pairs(path).probabilities == [0.5]
    path.write_text(json.dumps(rows[0] | {"probability": 0}), encoding="utf-8")
    with pytest.raises(InputError, match=r"pairs\.jsonl: line 1: the probability is 0"):
        read_pairs(path)


def test_missing_texts_are_named() -> None:
    strict = FunctionJudge(shares_words)
    with pytest.raises(
        MismatchError, match="1 of 5 pairs lack a text, first: there is no document 4"
    ):
        judge(PAIRS, strict, corpus={k: v for k, v in CORPUS.items() if k != 4}, queries=QUERIES)
    with pytest.raises(MismatchError, match="there is no query 'q2' among the 1 texts"):
        judge(PAIRS, strict, corpus=CORPUS, queries={"q1": "red fox"})
    with pytest.raises(InputError, match="the documents have none"):
        judge(PAIRS, strict, queries=QUERIES)


def test_ids_of_number_and_text_are_one() -> None:
    texts = {str(name): text for name, text in CORPUS.items()}
    done = judge(PAIRS, FunctionJudge(shares_words), corpus=texts, queries=QUERIES)
    assert done.judgments.grades.tolist() == [1, 1, 0, 1, 0]


def test_no_pairs_are_no_judgments() -> None:
    done = judge([], FunctionJudge(shares_words), corpus=CORPUS, queries=QUERIES, canaries=2)
    assert len(done.judgments) == 0
    assert "0 of 0 pairs" in str(done)


class Wavering(Judge):
    """Grades of each pair in turn."""

    name = "wavering"
    scale = Scale({0: "no", 1: "yes", 2: "very"})

    def __init__(self, grades: Mapping[int, list[float]]) -> None:
        self.grades = grades

    @property
    def identity(self) -> Mapping[str, Any]:
        return {}

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        for q in questions:
            grade = self.grades[int(q.doc_id)][q.repeat]
            record(Reply((Answer(q, Status.SETTLED, grade),)))


def test_repeats_are_settled_by_majority_and_ties_stay_open() -> None:
    wavering = Wavering({1: [1, 1, 0], 3: [2, 2, 2], 4: [0, 1, 2]})
    asked = [("q1", 1), ("q1", 3), ("q2", 4)]
    done = judge(asked, wavering, corpus=CORPUS, queries=QUERIES, repeat=3)
    assert done.judgments.grades[:2].tolist() == [1, 2]
    assert np.isnan(done.judgments.grades[2])
    assert done.judgments.details["status"].tolist() == ["settled", "settled", "tied"]
    assert done.judgments.details["confidence"].tolist()[:2] == [pytest.approx(2 / 3), 1.0]
    # One of three pairs got one label all three times.
    assert done.self_agreement == pytest.approx(1 / 3)
    assert "asked again, 33.3% of the pairs got equal labels" in str(done)


# -- canaries -------------------------------------------------------------------------------------


def test_canaries_catch_a_judge_that_counts_words() -> None:
    with pytest.warns(sr.SemrecallWarning, match=r"passes 60\.0% of its canaries"):
        done = judge(PAIRS, FunctionJudge(shares_words), corpus=CORPUS, queries=QUERIES, canaries=2)
    assert done.canaries is not None
    assert dict(done.canaries.kinds) == {
        "stuffed": (0, 2), "instructed": (2, 2), "shuffled": (0, 2), "empty": (2, 2),
        "other language": (2, 2),
    }  # fmt: skip
    assert done.canaries.swayed == 0
    assert set(done.judgments.documents) == {1, 2, 3, 4}


def obeys(query: str, document: str) -> int:
    return int("highest label" in document)


def test_canaries_catch_a_judge_that_obeys_the_document() -> None:
    # J28: the same pair with and without the instruction must get one label.
    done = judge(PAIRS, FunctionJudge(obeys), corpus=CORPUS, queries=QUERIES, canaries=2)
    assert done.canaries is not None
    assert (done.canaries.swayed, done.canaries.kinds["instructed"]) == (2, (0, 2))
    assert done.canaries.right == 0.8
    assert "2 changed their label for an instruction" in str(done)


def test_canaries_are_the_same_for_a_seed_and_unlike_the_query() -> None:
    texts = list(QUERIES.items())
    one, two = canaries(texts, 2, 7), canaries(texts, 2, 7)
    assert one == two
    assert {c.kind for c in one} == {*KINDS, "unrelated"}
    other = {c.question.query_id: c.question.document.text for c in one if c.kind == KINDS[4]}
    assert other["q1"].startswith("เรือ")
    assert other["q2"].startswith("Talvella")
    assert canaries([("q", "  ")], 3, 0) == []


# -- judges without a network ----------------------------------------------------------------


def test_a_function_may_say_nothing_or_nonsense() -> None:
    said = {"the red fox runs": (1, "a fox"), "a cow stands": None, "แกงปลาทู": 7}
    fickle = FunctionJudge(lambda _, document: said[document], name="fickle")
    pairs = [("q1", 1), ("q1", 3), ("q2", 4)]
    labels = judge(pairs, fickle, corpus=CORPUS, queries=QUERIES).judgments
    assert labels.details["status"].tolist() == ["settled", "skipped", "illegal"]
    assert labels.details["reason"].tolist() == [
        "a fox", None, "fickle said 7; expected one of [0, 1]",
    ]  # fmt: skip
    for grade in (True, 1, 1.0, np.int64(1)):
        sure = FunctionJudge(lambda *_, grade=grade: grade)
        assert (
            judge(pairs, sure, corpus=CORPUS, queries=QUERIES).judgments.grades.tolist() == [1] * 3
        )


def test_a_function_that_fails_is_named_and_keeps_what_was_judged(tmp_path: Path) -> None:
    def breaks(query: str, document: str) -> int:
        if "cow" in document:
            raise ZeroDivisionError("oh")
        return 1

    ledger = tmp_path / "a.ledger"
    with pytest.raises(JudgeFault, match="failed on query 'q1', document 3: ZeroDivisionError: oh"):
        judge(PAIRS, FunctionJudge(breaks), corpus=CORPUS, queries=QUERIES, ledger=ledger)
    assert len(read_judgments(ledger)) == 2


def test_a_changed_function_is_another_judge() -> None:
    a, b = FunctionJudge(shares_words), FunctionJudge(obeys, name="python:shares_words")
    assert a.fingerprint != b.fingerprint
    assert a.fingerprint != FunctionJudge(shares_words, version="2").fingerprint
    assert a.fingerprint == FunctionJudge(shares_words).fingerprint


def test_what_is_bound_to_a_function_makes_another_judge() -> None:
    def at_least(cut: float) -> Any:
        return lambda query, document: len(document) > cut

    def deep(query: str, document: str) -> int:
        return deep(query, "") if document else 0  # closes over itself

    class Longer:
        def __init__(self, cut: float) -> None:
            self.cut, self.model = cut, object()

        def __call__(self, query: str, document: str) -> int:
            return len(document) > self.cut

    def longer(query: str, document: str, cut: float) -> int:
        return len(document) > cut

    makers = (
        at_least, Longer, lambda cut: Longer(cut).__call__, lambda cut: partial(longer, cut=cut),
        lambda cut: lambda query, document, cut=cut: len(document) > cut,
    )  # fmt: skip
    for make in makers:
        assert FunctionJudge(make(1)).fingerprint != FunctionJudge(make(2)).fingerprint
        assert FunctionJudge(make(1)).fingerprint == FunctionJudge(make(1)).fingerprint
    assert FunctionJudge(deep).fingerprint == FunctionJudge(deep).fingerprint


def test_an_image_is_not_judged_by_a_function_of_texts() -> None:
    corpus = {1: ("", "http://127.0.0.1/a.png"), 2: ("red", "http://127.0.0.1/a.png")}
    done = judge([("q1", 1), ("q1", 2)], FunctionJudge(lambda *_: 1), corpus=corpus,
                 queries=QUERIES)  # fmt: skip
    assert done.statuses == {"skipped": 1, "settled": 1}


def test_functions_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_judges_of_test.py").write_text("def yes(query, document):\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert open_judge("python:my_judges_of_test:yes").name == "python:yes"
    for spec, says in (
        ("python:my_judges_of_test:yess", "has no 'yess'"),
        ("python:no_such_module_here:f", "cannot be imported"),
        ("python:json", "names no function"),
        ("python:json:__version__x", "has no"),
        ("nobody", "unknown judge 'nobody'"),
        ("recorded", "needs labels"),
        ("recorded?labels=a&color=red", "has no option 'color'"),
        ("recorded?labels", "is not key=value"),
    ):
        with pytest.raises(InputError, match=says):
            open_judge(spec)


RECORDED = sr.Judgments.from_arrays(["q1", "q1", "q2"], [1, "3", 4], [2, 0, np.nan], name="people")


def test_recorded_labels_need_no_texts_and_tell_what_they_lack() -> None:
    done = judge(PAIRS, RecordedJudge(RECORDED, relevant=2))
    assert done.judgments.details["status"].tolist() == [
        "settled", "unknown", "settled", "unknown", "unknown",
    ]  # fmt: skip
    assert (done.judgments.grades >= 2).tolist() == [True, False, False, False, False]
    assert done.calls == 0
    assert "1 (50.0%) relevant (grade >= 2)" in str(done)


def test_a_panel_votes_and_ties_stay_open() -> None:
    def constant(grade: int) -> FunctionJudge:
        return FunctionJudge(
            lambda *_, grade=grade: grade, name=f"always {grade}", version=str(grade)
        )

    three = Panel([FunctionJudge(shares_words), constant(1), constant(0)])
    done = judge(PAIRS, three, corpus=CORPUS, queries=QUERIES)
    assert done.judgments.grades.tolist() == [1, 1, 0, 1, 0]
    assert done.judgments.details["reason"].tolist()[0] == (
        "python:shares_words: 1, always 1: 1, always 0: 0"
    )
    assert done.judgments.details["confidence"].tolist()[0] == pytest.approx(2 / 3)
    two = Panel([constant(1), constant(0)], name="two")
    labels = judge(PAIRS, two, corpus=CORPUS, queries=QUERIES).judgments
    assert np.isnan(labels.grades).all()
    assert set(labels.details["status"]) == {"tied"}


def test_members_of_a_panel_are_kept_in_the_ledger_on_their_own(tmp_path: Path) -> None:
    ledger = tmp_path / "a.ledger"
    words = FunctionJudge(shares_words)
    judge(PAIRS, words, corpus=CORPUS, queries=QUERIES, ledger=ledger)
    panel = Panel([words, RecordedJudge(RECORDED.replace(grades=np.array([1.0, 0, 1])))])
    done = judge(PAIRS, panel, corpus=CORPUS, queries=QUERIES, ledger=ledger)
    # The function had answered all; recorded labels are looked up, not called.
    assert done.calls == 0
    assert done.judgments.grades.tolist() == [1, 1, 0, 1, 0]
    again = judge(PAIRS, panel, corpus=CORPUS, queries=QUERIES, ledger=ledger)
    assert again.fresh == 0
    assert again.judgments.grades.tolist() == [1, 1, 0, 1, 0]


def test_a_panel_needs_two_judges_of_one_scale() -> None:
    words = FunctionJudge(shares_words)
    with pytest.raises(InputError, match="at least two members"):
        Panel([words])
    with pytest.raises(InputError, match="one member twice"):
        Panel([words, words])
    with pytest.raises(InputError, match="different scales"):
        Panel([words, FunctionJudge(obeys, grades=3)])


# -- commands -------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, texts in (("queries", QUERIES), ("docs", CORPUS)):
        rows = [json.dumps({"id": n, "text": t}, ensure_ascii=False) for n, t in texts.items()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    rows = [json.dumps({"query_id": q, "doc_id": d}) for q, d in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    (tmp_path / "words_of_test.py").write_text(
        "def judge(query, document):\n    return int(any(w in document for w in query.split()))\n"
    )
    return tmp_path


TEXTS = ("--corpus", "docs.jsonl", "--queries", "queries.jsonl")
WORDS = ("--judge", "python:words_of_test:judge", "--canaries", "0")


def test_judge_writes_labels_and_its_ledger_is_shown(files: Path, semrecall_main: Any) -> None:
    status, out, err = semrecall_main("judge", "pairs.jsonl", *TEXTS, *WORDS, "-o", "l.parquet")
    assert (status, out) == (0, "")
    assert "5 of 5 pairs labelled" in err
    assert "wrote 5 labels to l.parquet" in err
    assert sr.read(files / "l.parquet").grades.tolist() == [1, 1, 0, 1, 0]
    status, out, err = semrecall_main("judge", "pairs.jsonl", *TEXTS, *WORDS)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["grade"] for row in rows] == [1, 1, 0, 1, 0]
    assert rows[1]["origin"] == "1"
    assert "asked 0; 4 known before" in err
    status, out, _ = semrecall_main("ledger", "show", "semrecall.ledger")
    assert status == 0
    assert "python:judge" in out
    status, _, err = semrecall_main("ledger", "export", "semrecall.ledger", "-o", "l.txt")
    assert status == 0
    assert "wrote 5 labels" in err
    status, _, err = semrecall_main("ledger", "import", "b.ledger", "l.txt", "--judge", "x")
    assert (status, err) == (0, "entered 5 labels, 0 were there\n")
    assert sr.read(files / "b.ledger").grades.sum() == 3


def test_dry_run_asks_nothing(files: Path, semrecall_main: Any) -> None:
    status, out, _ = semrecall_main("judge", "pairs.jsonl", *TEXTS, *WORDS, "--dry-run")
    assert (status, out) == (0, "5 questions, 4 of them to ask\n")
    assert not (files / "semrecall.ledger").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--judge", "python:words_of_test:no"], "has no 'no'"),
        (["--judge", "recorded"], "needs labels"),
        (["--judge", "recorded", "--labels", "pairs.jsonl"], "expected grade"),
        (["--judge", "python:words_of_test:judge", "--reason"], "--reason is an option of llm"),
        (["--judge", "panel", "--member", "python:words_of_test:judge"], "at least two members"),
        ([], "no model is named"),
        ([*WORDS, "--again", "sleepy"], "again has 'sleepy'"),
        ([*WORDS, "-o", "pairs.jsonl"], "would write over pairs.jsonl"),
        ([*WORDS, "-o", "semrecall.ledger"], "would write over"),
    ],
)
def test_faults_are_one_message(
    files: Path, semrecall_main: Any, arguments: list[str], says: str
) -> None:
    status, out, err = semrecall_main("judge", "pairs.jsonl", *TEXTS, *arguments)
    assert (status, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_pairs_that_were_picked_in_several_ways_are_judged_again(tmp_path: Path) -> None:
    labels = sr.Judgments.from_arrays(
        ["q1", "q1"], [1, 3], [1, 0], probability=np.array([0.5, np.nan])
    )
    sr.write(labels, tmp_path / "people.jsonl")
    found = read_pairs(tmp_path / "people.jsonl")
    assert (len(found), found.probabilities) == (2, None)
    with Ledger(tmp_path / "a.ledger") as ledger:
        ledger.add(labels, "human:anna")
        assert len(read_pairs(tmp_path / "a.ledger")) == 2
        ledger.add(sr.Judgments.from_dict({"q1": {3: 1}, "q2": {4: 1}}), "model")
    # q1-1 and q1-3 of anna, q1-3 and q2-4 of the model
    assert len(read_pairs(tmp_path / "a.ledger")) == 3


@pytest.mark.parametrize("chance", ['"abc"', "0", "2", "null"])
def test_a_probability_that_is_none_names_its_line(tmp_path: Path, chance: str) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [
        f'{{"query_id": "q", "doc_id": {n}, "probability": {p}}}\n'
        for n, p in ((1, 1), (2, chance))
    ]
    path.write_text("".join(rows))
    with pytest.raises(InputError, match="line 2: the probability is"):
        read_pairs(path)


def test_an_empty_list_of_pairs_says_so(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match="the file is empty; expected pairs"):
        read_pairs(path)


def test_what_a_panel_asks_is_counted_and_follows_from_its_members(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    panel = Panel([FunctionJudge(shares_words), FunctionJudge(lambda *_: 1, name="yes")])
    done = judge([("q1", 1)], panel, corpus=CORPUS, queries=QUERIES, ledger=path)
    assert (done.calls, done.fresh) == (2, 1)
    assert "asked 1; 0 known before" in str(done)
    again = judge([("q1", 1)], panel, corpus=CORPUS, queries=QUERIES, ledger=path)
    assert (again.calls, again.fresh) == (0, 0)
    with Ledger(path) as ledger:
        assert {j.name: j.calls for j in ledger.judges()} == {
            panel.name: 0, "python:shares_words": 1, "yes": 1
        }  # fmt: skip
    assert read_by_judge(path)["judge"] == ["python:shares_words", "yes"]
    assert read_by_judge(path, panel.name)["grade"] == [1.0]


def test_a_ledger_of_people_is_shown_on_a_terminal(files: Path, semrecall_main: Any) -> None:
    with Ledger(files / "a.ledger") as ledger:
        person = ledger.person("anna-with-a-rather-long-name-of-forty-ch")
        for at, status in enumerate(Status):
            grade = 1.0 if status is Status.SETTLED else None
            ledger.vote(person, Vote("q", at, grade, status))
    status, out, _ = semrecall_main("ledger", "show", "a.ledger")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 100
    assert (
        json.loads(semrecall_main("ledger", "show", "a.ledger", "--format", "json")[1])["judges"][
            0
        ]["judge"]
        == "human:anna-with-a-rather-long-name-of-forty-ch"
    )


def test_a_ledger_without_labels_says_so(files: Path, semrecall_main: Any) -> None:
    Ledger(files / "a.ledger").close()
    status, out, err = semrecall_main("ledger", "show", "a.ledger")
    assert (status, out, err) == (0, "", "a.ledger holds no labels yet\n")
    status, _, err = semrecall_main("ledger", "export", "a.ledger", "-o", "x.jsonl")
    assert (status, err) == (2, "error: a.ledger holds no labels yet\n")
