"""The ledger: nothing lost, nothing paid twice, and faults that say what to do."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semrecall as sr
from semrecall.errors import InputError, JudgeFault, LedgerFault, Stopped
from semrecall.formats import read_judgments
from semrecall.judges import (
    Answer,
    Document,
    Judge,
    Ledger,
    Question,
    Reply,
    Scale,
    Status,
    Vote,
)
from semrecall.judges.asking import ask
from semrecall.judges.contract import Record


class Told(Judge):
    """Answers as it is told: {(query id, document id): grade or status}, 1 where nothing is."""

    name = "told"
    scale = Scale({0: "no", 1: "yes"})

    def __init__(self, told: Mapping[Any, Any] | None = None, version: str = "a") -> None:
        self.told = dict(told or {})
        self.version = version
        self.asked: list[Question] = []

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"version": self.version}

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        for question in questions:
            self.asked.append(question)
            said = self.told.get((question.query_id, question.doc_id), 1.0)
            if isinstance(said, Status):
                answer = Answer(question, said)
            else:
                answer = Answer(question, Status.SETTLED, said)
            record(Reply((answer,), answer.status, tokens_in=10, tokens_out=2, cost=0.5))


def pairs(n: int, queries: int = 3) -> list[Question]:
    return [
        Question(f"q{i % queries}", i, f"query {i % queries}", Document(f"text {i}"))
        for i in range(n)
    ]


def statuses(labels: sr.Judgments) -> dict[Any, str]:
    return dict(zip(labels.documents, labels.details["status"].tolist(), strict=True))


def test_what_is_settled_is_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    first = Told({("q0", 0): 0.0})
    with Ledger(path) as ledger:
        kept = ask(first, pairs(10), ledger)
    assert len(first.asked) == 10
    again = Told({("q0", 0): 0.0})
    with Ledger(path) as ledger:
        assert ask(again, pairs(10), ledger) == kept
        assert ask(again, pairs(12), ledger).keys() > kept.keys()
        [judge] = ledger.judges()
    assert [q.doc_id for q in again.asked] == [10, 11]
    assert kept[first.key(pairs(1)[0])].grade == 0.0
    assert (judge.pairs, judge.calls, judge.tokens_in, judge.cost) == (12, 12, 120, 6.0)


def test_two_judges_never_share_an_answer(tmp_path: Path) -> None:
    # J22: the key has the identity of the judge.
    with Ledger(tmp_path / "a.ledger") as ledger:
        for version in ("a", "b"):
            judge = Told(version=version)
            ask(judge, pairs(4), ledger)
            assert len(judge.asked) == 4
        assert len(ledger.judges()) == 2
        with pytest.raises(InputError, match="several judges"):
            ledger.judgments("told")
        assert len(ledger.judgments(2)) == 4


def test_equal_texts_are_asked_once_and_both_pairs_get_the_label(tmp_path: Path) -> None:
    # J24: also texts that differ in white space or Unicode form alone.
    texts = {17: "caf\u00e9 au lait", 93: "cafe\u0301  au\nlait", 94: "café noir"}
    asked = [Question("q", name, "coffee", Document(text)) for name, text in texts.items()]
    judge = Told({("q", 17): 0.0})
    with Ledger(tmp_path / "a.ledger") as ledger:
        ask(judge, asked, ledger)
        labels = ledger.judgments()
    assert [q.doc_id for q in judge.asked] == [17, 94]
    assert dict(zip(labels.documents, labels.grades.tolist(), strict=True)) == {
        17: 0.0, 93: 0.0, 94: 1.0,
    }  # fmt: skip
    origins = dict(zip(labels.documents, labels.details["origin"].tolist(), strict=True))
    assert origins == {17: None, 93: "17", 94: None}


def test_failures_of_the_world_are_asked_again_and_others_only_when_told(tmp_path: Path) -> None:
    told = {("q0", 0): Status.TIMEOUT, ("q1", 1): Status.UNPARSED, ("q2", 2): Status.FILTERED}
    with Ledger(tmp_path / "a.ledger") as ledger:
        ask(Told(told), pairs(4), ledger)
        labels = ledger.judgments()
        assert statuses(labels) == {0: "timeout", 1: "unparsed", 2: "filtered", 3: "settled"}
        assert np.isnan(labels.grades).sum() == 3
        second = Told()
        ask(second, pairs(4), ledger)
        assert [q.doc_id for q in second.asked] == [0]
        assert second.asked[0].tried == {"timeout": 1}
        third = Told()
        ask(third, pairs(4), ledger, again=[Status.UNPARSED])
        assert [(q.doc_id, dict(q.tried)) for q in third.asked] == [(1, {})]
        labels = ledger.judgments()
    assert statuses(labels) == {0: "settled", 1: "settled", 2: "filtered", 3: "settled"}


class Stops(Told):
    def answer(self, questions: Iterable[Question], record: Record) -> None:
        for n, question in enumerate(questions):
            if n == 3:
                raise Stopped("enough", hint="run again")
            record(Reply((Answer(question, Status.SETTLED, 1.0),)))


def test_a_stop_keeps_what_was_said_and_gives_up_the_rest(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a.ledger") as ledger, Ledger(tmp_path / "a.ledger") as other:
        with pytest.raises(Stopped):
            ask(Stops(), pairs(10), ledger)
        judge = Told()
        judge.__class__ = Stops  # of one identity: what it said counts for both
        number = other.enlist(judge)
        keys = [judge.key(q) for q in pairs(10)]
        assert sum(k.settled for k in other.kept(number, keys).values()) == 3
        assert len(other.claim(number, keys)) == 7


class Silent(Told):
    def answer(self, questions: Iterable[Question], record: Record) -> None:
        list(questions)


class Twice(Told):
    def answer(self, questions: Iterable[Question], record: Record) -> None:
        for question in questions:
            for _ in range(2):
                record(Reply((Answer(question, Status.SETTLED, 1.0),)))


@pytest.mark.parametrize(
    ("judge", "says"), [(Silent(), "2 questions unanswered"), (Twice(), "or twice")]
)
def test_a_judge_against_its_contract_is_named(judge: Judge, says: str) -> None:
    with Ledger(None) as ledger, pytest.raises(JudgeFault, match=says):
        ask(judge, pairs(2), ledger)


def test_an_answer_is_settled_with_a_grade_and_only_then() -> None:
    [question] = pairs(1)
    for status, grade in ((Status.SETTLED, None), (Status.EMPTY, 0.0)):
        with pytest.raises(InputError, match="an answer is"):
            Answer(question, status, grade)


WORKER = """
    import sys, time
    from semrecall.judges import *
    from semrecall.judges.asking import ask

    class Slow(Judge):
        name = "slow"
        scale = Scale({0: "no", 1: "yes"})
        identity = {"slow": 1}
        def answer(self, questions, record):
            for question in questions:
                time.sleep(SLEEP)
                with open(LOG, "a") as log:
                    log.write(f"{question.doc_id}\\n")
                record(Reply((Answer(question, Status.SETTLED, 1.0),)))

    questions = [Question("q", i, "query", Document(f"text {i}")) for i in range(COUNT)]
    with Ledger(PATH) as ledger:
        ask(Slow(), questions, ledger)
"""


def worker(path: Path, log: Path, count: int, sleep: float) -> subprocess.Popen[bytes]:
    head = f"PATH, LOG, COUNT, SLEEP = {str(path)!r}, {str(log)!r}, {count}, {sleep}\n"
    code = head + textwrap.dedent(WORKER)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)


def lines(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.01)


def test_two_processes_at_once_ask_each_pair_once(tmp_path: Path) -> None:
    path, log = tmp_path / "a.ledger", tmp_path / "log"
    both = [worker(path, log, 300, 0.002) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert sorted(map(int, lines(log))) == list(range(300))
    with Ledger(path) as ledger:
        assert (ledger.judgments().grades == 1).sum() == 300
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_many_that_begin_a_ledger_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite refuses all but one at once; without waiting about one round in ten fails."""
    for number in range(60):
        together = threading.Barrier(6)

        def begin(path: Path = tmp_path / f"{number}.ledger", at: Any = together) -> str:
            at.wait()
            try:
                with Ledger(path):
                    return ""
            except LedgerFault as fault:
                return str(fault)

        with ThreadPoolExecutor(6) as pool:
            assert [each.result() for each in [pool.submit(begin) for _ in range(6)]] == [""] * 6


def test_a_killed_process_costs_the_pair_in_flight(tmp_path: Path) -> None:
    path, log = tmp_path / "a.ledger", tmp_path / "log"
    first = worker(path, log, 400, 0.005)
    wait_until(lambda: len(lines(log)) >= 100)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    before = len(lines(log))
    with Ledger(path) as ledger:
        settled = len(ledger.judgments().grades[~np.isnan(ledger.judgments().grades)])
    assert before - 1 <= settled <= before
    assert worker(path, log, 400, 0.0).wait(60) == 0
    assert len(lines(log)) == before + 400 - settled
    assert worker(path, log, 400, 0.0).wait(60) == 0
    assert len(lines(log)) == before + 400 - settled


def test_claims_of_a_live_process_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    judge = Told()
    asked = pairs(6)
    keys = [judge.key(q) for q in asked]
    with Ledger(path) as busy, Ledger(path) as ledger:
        number = busy.enlist(judge)
        assert len(busy.claim(number, keys[:2])) == 2
        assert ledger.claim(number, keys) == set(keys[2:])
        ledger.release(number, keys)
        busy.release(number, keys)
        ask(judge, asked, ledger)
    assert len(judge.asked) == 6


def test_faults_of_the_file_say_what_to_do(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, whatever its name is\n" * 50)
    with pytest.raises(LedgerFault, match="is no ledger"):
        Ledger(text)
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).execute("CREATE TABLE t(x)")
    with pytest.raises(LedgerFault, match="no ledger of semrecall"):
        Ledger(other)
    with pytest.raises(FileNotFoundError):
        Ledger(tmp_path / "none.ledger", read_only=True)
    with pytest.raises(LedgerFault, match="cannot be written"):
        Ledger(tmp_path / "no" / "folder.ledger")
    later = tmp_path / "later.ledger"
    Ledger(later).close()
    with sqlite3.connect(later) as connection:
        connection.execute("UPDATE meta SET value='99'")
    with pytest.raises(LedgerFault, match="later version"):
        Ledger(later)


def test_a_ledger_opened_for_reading_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with Ledger(path) as ledger:
        ask(Told(), pairs(3), ledger)
    with Ledger(path, read_only=True) as ledger:
        assert len(ledger.judgments()) == 3
        with pytest.raises(LedgerFault, match="cannot be written"):
            ledger.set_note("a", "b")


def test_a_full_disk_stops_with_nothing_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    judge = Told()
    with Ledger(path) as ledger:
        ask(judge, pairs(20), ledger)
        # What a full disk does, without filling one: the file may not grow any more.
        pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(LedgerFault, match="disk is full") as caught:
            ask(judge, pairs(20_000), ledger)
        assert "everything recorded so far is kept" in str(caught.value)
    before = len(judge.asked)
    with Ledger(path) as ledger:
        assert (ledger.judgments().grades == 1).sum() >= 20
        ask(judge, pairs(20), ledger)
    assert len(judge.asked) == before


# -- people ---------------------------------------------------------------------------------


def test_votes_are_only_added_and_the_last_counts(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a.ledger") as ledger:
        anna = ledger.person("Anna", {"prompt": "a"})
        assert ledger.person("Anna", {"prompt": "a"}) == anna != ledger.person("Ben")
        for doc, grade in ((1, 2.0), (2, 3.0), (1, 0.0)):
            ledger.vote(anna, Vote("q", doc, grade, probability=0.25))
        ledger.vote(anna, Vote("q", 2, None, Status.SKIPPED, kind="withdrawn"))
        ledger.vote(anna, Vote("q", "x", None, Status.SKIPPED, reason="image missing"))
        ledger.vote(anna, Vote("q", 1, 3.0, kind="repeat", repeat=1))
        labels = ledger.judgments("human:Anna")
        assert len(ledger.votes(anna)) == 6
        assert ledger.judgments(anna, repeat=1).grades.tolist() == [3.0]
    rows = {row["doc_id"]: row for row in labels.to_arrow().to_pylist()}
    assert set(rows) == {"1", "x"} or set(rows) == {1, "x"}
    assert labels.grades[0] == 0.0
    assert labels.details["reason"].tolist()[1] == "image missing"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv", "txt"])
def test_labels_go_out_and_come_in(tmp_path: Path, suffix: str) -> None:
    labels = sr.Judgments.from_arrays(
        ["a", "a", "b"], [1, 2, 3], [1, 0, 3], judge=["x", "y", "x"], reason=["r", "", "s"]
    )
    path = tmp_path / f"labels.{suffix}"
    if suffix == "txt":
        with pytest.warns(sr.SemrecallWarning):
            sr.write(labels, path)
    else:
        sr.write(labels, path)
    with Ledger(tmp_path / "a.ledger") as ledger:
        found = read_judgments(path)
        named = "all" if suffix == "txt" else None
        if suffix == "txt":
            with pytest.raises(InputError, match="do not say who"):
                ledger.add(found)
        assert ledger.add(found, named) == 3
        assert ledger.add(found, named) == 0
        back = ledger.judgments("all" if named else "x")
    pairs_back = dict(zip(back.documents, back.grades.tolist(), strict=True))
    assert pairs_back == ({1: 1, 2: 0, 3: 3} if named else {1: 1, 3: 3})


def test_a_ledger_is_a_file_of_judgments(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with Ledger(path) as ledger:
        ask(Told({("q1", 1): Status.REFUSED, ("q0", 0): 0.0}), pairs(3), ledger)
    labels = sr.read(path)
    assert statuses(labels) == {0: "settled", 1: "refused", 2: "settled"}
    assert np.isnan(labels.grades).sum() == 1
    with Ledger(path) as ledger:
        ask(Told(version="b"), pairs(3), ledger)
    with pytest.raises(InputError, match="several judges"):
        sr.read(path)
    sqlite3.connect(tmp_path / "x.db").execute("CREATE TABLE t(x)")
    with pytest.raises(InputError, match="no ledger"):
        sr.read(tmp_path / "x.db", noun="judgments")


ID = st.one_of(st.integers(-(2**62), 2**62), st.text(min_size=1, max_size=8).filter(str.strip))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(ID, ID, st.sampled_from([0.0, 1.0, 2.5])), max_size=12))
def test_any_ids_come_back(rows: list[tuple[Any, Any, float]]) -> None:
    told = {(str(q), str(d)): grade for q, d, grade in rows}
    with Ledger(None) as ledger:
        person = ledger.person("p")
        for q, d, grade in rows:
            ledger.vote(person, Vote(q, d, grade))
        kept = {(v.query_id, v.doc_id): v.grade for v in ledger.votes(person)}
    assert {(str(q), str(d)): g for (q, d), g in kept.items()} == told or len(told) < len(kept)


class Blocks(Told):
    def answer(self, questions: Iterable[Question], record: Record) -> None:
        asked = list(questions)
        record(Reply(tuple(Answer(question, Status.SETTLED, 1.0) for question in asked)))


def test_a_hundred_thousand_pairs_reopen_fast(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    asked = pairs(100_000, queries=1000)
    with Ledger(path) as ledger:
        ask(Blocks(), asked, ledger)
    start = time.process_time()
    with Ledger(path) as ledger:
        kept = ask(Blocks(), asked, ledger)
    seconds = time.process_time() - start
    assert len(kept) == 100_000
    # One second is the aim on a free machine; the rest is for one that is shared.
    assert seconds < 2.5


def test_raw_replies_are_kept_and_identity_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    judge = Told()
    with Ledger(path) as ledger:
        ask(judge, pairs(1), ledger)
    row = sqlite3.connect(path).execute("SELECT identity FROM judges").fetchone()
    assert json.loads(row[0]) == {"version": "a"}


def test_a_database_of_another_program_is_not_touched(tmp_path: Path) -> None:
    for name, statement in (
        ("t", "CREATE TABLE t(x)"),
        ("m", "CREATE TABLE meta(a, b)"),
        ("v", "CREATE TABLE meta(name, value)"),
    ):
        path = tmp_path / f"{name}.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            if name == "v":
                connection.execute("INSERT INTO meta VALUES ('semrecall ledger', 'x')")
            connection.commit()
        before = path.read_bytes()
        with pytest.raises(LedgerFault, match="no ledger of semrecall"):
            Ledger(path)
        assert path.read_bytes() == before


def test_a_ledger_on_a_disk_that_takes_no_writing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ledger"
    with Ledger(path) as ledger:
        ask(Told(), pairs(3), ledger)
    # What SQLite says there, whoever runs the test: root may write anywhere.
    really = sqlite3.connect

    def connect(address: Any, **options: Any) -> Any:
        if str(address).endswith("?mode=ro"):
            return really(f"{(tmp_path / 'none').as_uri()}?mode=ro", **options)
        return really(address, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    monkeypatch.setattr("os.access", lambda *_: False)
    with Ledger(path, read_only=True) as ledger:
        assert len(ledger.judgments()) == 3
    assert len(read_judgments(path)) == 3
    (tmp_path / "a.ledger-wal").write_bytes(b"x")  # labels that are not in the file yet
    with pytest.raises(LedgerFault, match="cannot be read"):
        Ledger(path, read_only=True)


def test_the_counts_of_a_judge_are_of_its_pairs(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a.ledger") as ledger:
        person = ledger.person("p")
        for repeat in (0, 1):
            ledger.vote(person, Vote("q", 1, 1.0, repeat=repeat))
        ledger.vote(person, Vote("q", 2, 1.0))
        ledger.vote(person, Vote("q", 2, None, Status.SKIPPED, kind="withdrawn"))
        ask(Told(), [Question("q", at, "query", Document("text")) for at in (1, 2)], ledger)
        [human, model] = ledger.judges()
    assert (human.pairs, human.statuses, human.cost) == (2, {"settled": 1}, None)
    assert (model.pairs, model.statuses, model.cost) == (2, {"settled": 2}, 0.5)


def test_every_judge_of_a_ledger_is_a_column_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with Ledger(path) as ledger:
        ask(Told(), pairs(2), ledger)
        ask(Told({("q0", 0): 0.0}, version="b"), pairs(2), ledger)
        ledger.vote(ledger.person("p"), Vote("q0", 0, 0.0, probability=0.5))
    with pytest.raises(InputError, match="1: told#1, 2: told#2, 3: human:p"):
        read_judgments(path)
    assert read_judgments(path, grade="told#2").grades.tolist() == [0, 1]
    assert read_judgments(path, grade="1").grades.tolist() == [1, 1]
    assert read_judgments(path, grade="human:p").details["probability"].tolist() == [0.5]
    with pytest.raises(InputError, match="no judge 'human:q'") as caught:
        read_judgments(path, grade="human:q")
    assert "human:p" in str(caught.value.hint)


def test_confidence_comes_in_with_a_label(tmp_path: Path) -> None:
    labels = sr.Judgments.from_arrays(["a", "a"], [1, 2], [1, 0], confidence=[0.9, np.nan])
    with Ledger(None) as ledger:
        ledger.add(labels, "x")
        back = ledger.judgments("x").details["confidence"].tolist()
    assert back[0] == 0.9
    assert np.isnan(back[1])


@pytest.mark.parametrize(
    ("names", "judge", "says"),
    [
        (None, None, "these labels do not"),
        (None, "", "these labels do not"),
        (["x", None], None, "1 of 2 labels"),
        (["x", ""], None, "1 of 2 labels"),
    ],
)
def test_labels_come_in_under_a_name(names: Any, judge: str | None, says: str) -> None:
    details = {} if names is None else {"judge": np.array(names, dtype=object)}
    labels = sr.Judgments.from_arrays(["a", "a"], [1, 2], [1, 0], **details)
    with Ledger(None) as ledger:
        with pytest.raises(InputError, match=says):
            ledger.add(labels, judge)
        assert ledger.judges() == []
