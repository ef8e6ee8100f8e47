"""Labelling without HTTP: who is asked what, what the ledger holds, disagreements, progress."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from label_server import pairs, session_of

from semrecall.data import Judgments
from semrecall.errors import InputError
from semrecall.judges import Ledger, Status
from semrecall.label.disputes import Disputes
from semrecall.label.progress import kappas, repeated, share_relevant
from semrecall.label.session import Behind, Session, Task, checked_name
from semrecall.label.shown import FOLD, folded, language, picture, rubric, visible

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def first(session: Session, name: str) -> Task:
    return session.tasks(name)[0]


def label_all(session: Session, name: str, grade=1, limit: int = 10_000) -> list[Task]:
    """Labels until nothing is left; the tasks in order."""
    asked = []
    while (tasks := session.tasks(name)) and len(asked) < limit:
        session.vote(name, tasks[0], grade(tasks[0]) if callable(grade) else grade)
        asked.append(tasks[0])
    return asked


# -- what is asked ----------------------------------------------------------------------------


def test_one_person_gets_every_pair_once_and_some_again_later():
    session = session_of(pairs(20, 5), repeats=0.1)
    asked = label_all(session, "anna")
    assert sorted(t.pair for t in asked if not t.repeat) == list(range(100))
    again = [t for t in asked if t.repeat]
    # 10% of 100 pairs.
    assert len(again) == 10
    for task in again:
        assert asked.index(task) - asked.index(Task(task.pair)) > 5
    assert repeated(session, "anna") == (10, 10)


def test_a_repeat_comes_at_a_change_of_query():
    session = session_of(pairs(20, 5), repeats=0.2)
    asked = label_all(session, "anna")
    queries = [session.questions[t.pair].query_id for t in asked if not t.repeat]
    # The documents of a query stand together although repeats come in between.
    assert (
        len([q for q, before in zip(queries, [None, *queries], strict=False) if q != before]) == 20
    )
    for at, task in enumerate(asked):
        if task.repeat and at + 1 < len(asked) and not asked[at + 1].repeat:
            before = [t for t in asked[:at] if not t.repeat][-1]
            assert session.questions[asked[at + 1].pair].query_id != (
                session.questions[before.pair].query_id
            )


def test_everyone_has_an_order_of_their_own_that_is_not_the_files():
    session = session_of(pairs(10, 10))
    orders = [session.person(name).order for name in ("anna", "ben")]
    assert orders[0] != orders[1]
    for order in orders:
        assert order != sorted(order)
        # Within a query too: the file may be sorted by rank.
        inside = [pair for pair in order if pair // 10 == order[0] // 10]
        assert inside == order[:10]
        assert inside != sorted(inside)


def test_what_is_left_falls_by_one_with_every_label():
    session = session_of(pairs(12, 5), repeats=0.1)
    left = [session.left("anna")]
    while tasks := session.tasks("anna"):
        session.vote("anna", tasks[0], 1)
        left.append(session.left("anna"))
    assert left == list(range(66, -1, -1))


def test_two_people_share_the_overlap_and_divide_the_rest():
    session = session_of(pairs(10, 5), overlap=0.2, repeats=0)
    asked = {"anna": [], "ben": []}
    while any(session.tasks(name) for name in asked):
        for name, tasks in asked.items():
            if found := session.tasks(name):
                session.vote(name, found[0], 1)
                tasks.append(found[0].pair)
    assert len(session.shared) == 10
    for pair in range(50):
        count = sum(pair in tasks for tasks in asked.values())
        assert count == (2 if pair in session.shared else 1)


def test_a_skipped_pair_has_no_grade_and_goes_to_somebody_else():
    session = session_of(pairs(1, 6), overlap=0, repeats=0)
    task = first(session, "anna")
    session.vote("anna", task, None, "I cannot tell")
    label_all(session, "anna")
    assert label_all(session, "ben") == [task]
    kept = session.ledger.judgments("human:anna")
    at = list(kept.documents).index(session.questions[task.pair].doc_id)
    assert math.isnan(kept.grades[at])
    assert kept.details["status"][at] == Status.SKIPPED
    assert kept.details["reason"][at] == "I cannot tell"


def test_probabilities_go_into_the_ledger_with_first_labels_only():
    chances = np.linspace(0.1, 1.0, 40)
    session = session_of(pairs(8, 5), probabilities=chances, repeats=0.1, order="random")
    label_all(session, "anna")
    judge = session.ledger.person("anna", session.rubric)
    for vote in session.ledger.votes(judge):
        place = session.places[str(vote.query_id), str(vote.doc_id)]
        assert vote.probability == (None if vote.repeat else chances[place])
        assert vote.kind == ("repeat" if vote.repeat else "label")
        assert vote.seconds is not None


# -- undo, faults -------------------------------------------------------------------------------


def test_undo_adds_a_row_and_asks_again():
    session = session_of(pairs(2, 3), repeats=0)
    one, two = first(session, "anna"), session.tasks("anna")[1]
    session.vote("anna", one, 2, "a note")
    session.vote("anna", first(session, "anna"), 0)
    assert session.undo("anna")[0] == two
    task, was = session.undo("anna")
    assert (task, was.grade, was.reason) == (one, 2, "a note")
    assert session.tasks("anna") == [one, two]
    with pytest.raises(InputError, match="nothing to undo"):
        session.undo("anna")
    kinds = [vote.kind for vote in session.ledger.votes(1)]
    assert kinds == ["label", "label", "withdrawn", "withdrawn"]
    assert len(session.ledger.judgments("human:anna")) == 0


def test_only_what_lies_before_a_person_can_be_labelled():
    session = session_of(pairs(2, 3))
    task = first(session, "anna")
    session.vote("anna", task, 1)
    with pytest.raises(Behind):
        session.vote("anna", task, 2)
    with pytest.raises(Behind):
        session.task("ben", session.handle("anna", task))
    with pytest.raises(InputError, match="the scale has"):
        session.vote("anna", first(session, "anna"), 7)
    assert len(session.ledger.votes(1)) == 1


@pytest.mark.parametrize(
    "name", ["", " ", "a" * 41, "a/b", "a:b", "<b>", "adjudicated", "a\u202eb"]
)
def test_names_that_are_none(name):
    with pytest.raises(InputError, match="no name"):
        checked_name(name)


@pytest.mark.parametrize("name", ["anna", "Jean-Luc O'Neil", "สมชาย", "محمد", "b2_x.y"])
def test_names_of_people(name):
    assert checked_name(f"  {name} ") == name


def test_another_rubric_makes_another_judge():
    with Ledger(None) as ledger:
        graded = session_of(pairs(1, 4), ledger)
        label_all(graded, "anna")
        binary = session_of(pairs(1, 4), ledger, scale="binary")
        assert binary.people == {}
        assert len(label_all(binary, "anna")) == 4


# -- the ledger is the state --------------------------------------------------------------------

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["anna", "ben"]), st.sampled_from([0, 1, 2, 3, None, "undo"])),
    max_size=60,
)


def standing(session: Session) -> dict:
    return {
        name: (dict(person.votes), list(person.history), person.count, person.made)
        for name, person in session.people.items()
        if person.count
    }


@settings(max_examples=60)
@given(ACTIONS, st.sampled_from(["query", "random"]), st.sampled_from([0.0, 0.3, 1.0]))
def test_a_session_that_starts_anew_knows_all(actions, order, overlap):
    with Ledger(None) as ledger:
        options = {"order": order, "overlap": overlap, "repeats": 0.3, "seed": 3}
        session = session_of(pairs(4, 5), ledger, **options)
        beside = session_of(pairs(4, 5), ledger, **options)
        for name, action in actions:
            if action == "undo":
                if any(task.repeat >= 0 for task in session.person(name).history):
                    session.undo(name)
            elif tasks := session.tasks(name):
                session.vote(name, tasks[0], action)
        anew = session_of(pairs(4, 5), ledger, **options)
        with beside.current():
            assert standing(anew) == standing(session) == standing(beside)
        for name in ("anna", "ben"):
            assert anew.labels == session.labels
            tasks = session.tasks(name)
            assert all(task not in session.person(name).votes for task in tasks)
            given_twice = [t for t in session.person(name).votes if t.repeat]
            assert all(session.person(name).made[t.pair] for t in given_twice)


@settings(max_examples=25)
@given(ACTIONS)
def test_the_ledger_tells_the_last_word(actions):
    session = session_of(pairs(3, 4), overlap=1.0, repeats=0)
    said: dict[str, list] = {"anna": [], "ben": []}
    for name, action in actions:
        if action == "undo":
            if said[name]:
                said[name].pop()
                session.undo(name)
        elif tasks := session.tasks(name):
            session.vote(name, tasks[0], action)
            said[name].append((tasks[0].pair, action))
    for name, votes in said.items():
        if not any(name == judge.name[6:] for judge in session.ledger.judges()):
            continue
        kept = session.ledger.judgments(f"human:{name}")
        rows = zip(kept.queries, kept.documents, kept.grades.tolist(), strict=True)
        found = {session.places[q, d]: None if math.isnan(g) else g for q, d, g in rows}
        assert found == dict(votes)


def test_two_processes_on_one_ledger_do_not_give_a_pair_to_both(tmp_path):
    path = tmp_path / "both.ledger"
    with Ledger(path) as one, Ledger(path) as two:
        here = session_of(pairs(4, 5), one, overlap=0, repeats=0)
        there = session_of(pairs(4, 5), two, overlap=0, repeats=0)
        for _ in range(5):
            here.vote("anna", first(here, "anna"), 1)
        asked = label_all(there, "ben")
    done = {task.pair for task in here.person("anna").votes}
    assert done.isdisjoint(task.pair for task in asked)
    assert len(asked) == 15


# -- disagreements --------------------------------------------------------------------------------


def disagreeing(ledger: Ledger | None = None, **options) -> tuple[Session, Disputes]:
    """Anna calls all relevant (2); Ben the first three pairs not (0)."""
    session = session_of(pairs(2, 5), ledger, overlap=1.0, repeats=0, **options)
    label_all(session, "anna", 2)
    label_all(session, "ben", lambda task: 0 if task.pair < 3 else 3)
    return session, Disputes(session)


def test_people_who_differ_on_relevance_are_a_dispute():
    _, disputes = disagreeing()
    # 2 against 3 is no dispute: both are relevant, and one grade apart.
    assert sorted(disputes.open("anna")) == [0, 1, 2]
    task = disputes.next("anna")
    assert [(s.judge, s.grade, s.relevant) for s in disputes.said("anna", task)] == [
        ("ben", 0, False)
    ]


def test_what_others_said_is_shown_after_ones_own_label_only():
    session, disputes = disagreeing()
    task = disputes.next("cleo")
    with pytest.raises(InputError, match="after your own label"):
        disputes.said("cleo", task)
    with pytest.raises(InputError, match="label the pair yourself"):
        session.decide("cleo", task, 2)
    session.vote("cleo", task, 1, drawn=False)
    assert {s.judge for s in disputes.said("cleo", task)} == {"anna", "ben"}
    # Having seen them, the label can no longer be taken back as if it were independent.
    with pytest.raises(InputError, match="you have seen"):
        session.undo("cleo")


def test_a_decision_is_a_new_row_that_says_who_decided():
    session, disputes = disagreeing(probabilities=np.full(10, 0.5))
    task = disputes.next("anna")
    before = [list(session.ledger.votes(judge)) for judge in (1, 2)]
    session.decide("anna", task, 0, "it is about something else")
    assert [list(session.ledger.votes(judge)) for judge in (1, 2)] == before
    kept = session.ledger.judgments("human:adjudicated")
    assert kept.grades.tolist() == [0.0]
    assert kept.details["reason"].tolist() == ["by anna: it is about something else"]
    assert "probability" not in kept.details
    assert task.pair not in disputes.open("ben")
    with pytest.raises(Behind):
        session.decide("ben", task, 2)
    _, was = session.undo("anna", decisions=True)
    assert was.grade == 0
    assert task.pair in disputes.open("ben")
    assert len(session.ledger.judgments("human:adjudicated")) == 0


def test_a_label_given_among_disagreements_has_no_probability():
    session, disputes = disagreeing(probabilities=np.full(10, 0.5))
    session.vote("cleo", disputes.next("cleo"), 1, drawn=False)
    votes = session.ledger.votes(session.ledger.person("cleo", session.rubric))
    assert [vote.probability for vote in votes] == [None]


def test_a_person_and_a_model_who_differ_are_a_dispute():
    with Ledger(None) as ledger:
        session = session_of(pairs(1, 4), ledger, repeats=0)
        label_all(session, "anna", 2)
        ids = [q.doc_id for q in session.questions]
        says = Judgments.from_arrays(
            ["q0"] * 4,
            ids,
            np.array([1, 0, 1, np.nan]),
            reason=np.array(["", "no", "", ""], object),
        )
        ledger.add(says, "model")
        disputes = Disputes(session)
        assert disputes.open("anna") == [1]
        said = disputes.said("anna", disputes.next("anna"))
        assert [(s.judge, s.grade, s.reason) for s in said] == [("model", 0.0, "no")]


def test_a_dispute_that_was_left_comes_back_for_others():
    _, disputes = disagreeing()
    task = disputes.next("anna")
    disputes.leave("anna", task)
    assert disputes.next("anna") != task
    assert task.pair in disputes.open("ben")


def test_a_pair_whose_labels_were_seen_is_not_asked_again():
    session = session_of(pairs(5, 5), overlap=1.0, repeats=0.8)
    label_all(session, "ben", 0, limit=25)
    label_all(session, "anna", 3, limit=20)
    disputes = Disputes(session)
    seen = []
    for _ in range(15):
        task = disputes.next("anna")
        if not session.person("anna").has_label(task.pair):
            break
        disputes.said("anna", task)
        disputes.leave("anna", task)
        seen.append(task.pair)
    again = [task.pair for task in label_all(session, "anna", 3) if task.repeat]
    assert seen
    assert set(seen).isdisjoint(again)


# -- progress -----------------------------------------------------------------------------------


def test_kappa_of_two_people_by_hand():
    session = session_of(pairs(10, 2), overlap=1.0, repeats=0)
    label_all(session, "anna", lambda task: 2 if task.pair < 10 else 0)
    label_all(session, "ben", lambda task: 3 if task.pair < 8 or task.pair == 19 else 1)
    known = kappas(session)["anna", "ben"]
    # Both relevant 8, both not 9, anna only 2, ben only 1: agreement 17/20 = 0.85; by chance
    # (10*9 + 10*11) / 400 = 0.5; kappa = 0.35 / 0.5 = 0.7.
    assert known.value == pytest.approx(0.7)
    assert known.low < 0.7 < known.high
    assert known.pairs == 20


def test_few_labels_say_nothing_and_equal_ones_do_not_prove_much():
    session = session_of(pairs(40, 1), overlap=1.0, repeats=0)
    for name in ("anna", "ben"):
        label_all(session, name, lambda task: 3 * (task.pair % 2), limit=9)
    assert math.isinf(share_relevant(session).width) or share_relevant(session).pairs >= 10
    assert kappas(session) == {}
    for name in ("anna", "ben"):
        label_all(session, name, lambda task: 3 * (task.pair % 2))
    known = kappas(session)["anna", "ben"]
    assert known.value == 1.0
    # 40 of 40 equal: by Wilson the share is above 0.912, so kappa is above 0.82.
    assert known.low == pytest.approx(1 - (1 - 0.9124) / 0.5, abs=0.002)


def test_the_share_of_relevant_pairs_is_weighted_by_their_probabilities():
    chances = np.where(np.arange(40) < 20, 1.0, 0.5)
    session = session_of(pairs(20, 2), probabilities=chances, repeats=0)
    label_all(session, "anna", lambda task: 3 if task.pair < 20 else 0)
    # 20 relevant of weight 1, 20 others of weight 2: 20 / 60.
    assert share_relevant(session).value == pytest.approx(1 / 3)


def test_pace_is_a_median_so_that_a_break_does_not_count():
    session = session_of(pairs(2, 5))
    person = session.person("anna")
    assert session.pace("anna") is None
    person.seconds.extend([6.0, 6.0, 3600.0])
    assert session.pace("anna") == 10.0


# -- what is shown ------------------------------------------------------------------------------


def test_characters_that_hide_are_written_out():
    assert visible("a\u202eb\x00\x00\x00c\ud800") == "a⟦U+202E⟧b⟦U+0000 ×3⟧c⟦U+D800⟧"
    kept = "tab\tline\n\u200d\u200c\u200bไทย\u00ad"
    assert visible(kept) == kept


@given(st.text(st.characters(codec=None)))
def test_what_is_shown_can_be_sent(text):
    visible(text).encode()


@given(st.text("ab \n", max_size=3 * FOLD))
def test_a_fold_loses_nothing(text):
    head, rest = folded(text)
    assert head + rest == text


def test_a_long_text_is_folded_between_words():
    head, _ = folded("word " * 400_000)
    assert FOLD / 2 <= len(head) <= FOLD
    assert head.endswith("word")
    assert folded("x" * 10 * FOLD)[0] == "x" * FOLD


@pytest.mark.parametrize(
    ("text", "name"),
    [("แกงเขียวหวาน curry", "th"), ("東京はどこ", "ja"), ("北京在哪里", "zh"), ("שלום", "he"),
     ("Wo ist Berlin?", ""), ("سلام", ""), ("", "")],
)  # fmt: skip
def test_language_where_the_script_tells(text, name):
    assert language(text) == name


def test_pictures_are_what_their_bytes_say(tmp_path):
    (tmp_path / "a.svg").write_bytes(PNG)
    (tmp_path / "b.png").write_text("<svg onload='alert(1)'/>")
    assert picture(str(tmp_path / "a.svg")).media_type == "image/png"
    assert "is no PNG" in picture(str(tmp_path / "b.png")).fault
    assert "cannot be read" in picture(str(tmp_path / "none.png")).fault
    assert picture("https://example.com/a.png").address == "https://example.com/a.png"
    assert picture("data:image/svg+xml;base64,PHN2Zy8+").fault
    assert picture("data:image/png;base64,iVBORw0KGgo=").media_type == "image/png"
    assert picture("file:///etc/passwd").fault
    assert picture("a\0b").fault


def test_a_rubric_is_paragraphs_and_lists():
    text = "You judge\nresults.\n\nDo this.\n1. One\n   more.\n2. Two\n\nStrict:\n- a\n- b\n  c"
    assert rubric(text) == [
        ("p", ["You judge results."]), ("p", ["Do this."]), ("ol", ["One more.", "Two"]),
        ("p", ["Strict:"]), ("ul", ["a", "b c"]),
    ]  # fmt: skip


def test_only_answers_of_people_are_counted_as_such():
    with Ledger(None) as ledger:
        ledger.add(Judgments.from_dict({"q0": {f"rank{d}-of-q0": 1 for d in range(5)}}), "model")
        session = session_of(pairs(1, 5), ledger, repeats=0.0)
        assert session.answers == 0
        label_all(session, "anna", limit=3)
        session.undo("anna")
        assert session.answers == 3
