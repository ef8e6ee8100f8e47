"""Who is asked which pair next, and what is known so far: a fold over the rows of the ledger.

Nothing here knows of HTTP. Whatever a person says goes into the ledger first and is read back from
there, so that a session that starts anew knows all this one does, and two on one ledger agree.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Any, Literal

import numpy as np

from semrecall.errors import InputError
from semrecall.judges import Ledger, Question, Status, Vote
from semrecall.judges.prompts import Prompt

__all__ = ["ADJUDICATED", "Behind", "Person", "Session", "Task", "checked_name"]

#: Who the last word on a disagreement is by; its rows say who decided.
ADJUDICATED = "adjudicated"
#: A pair is asked again when so many others came in between; towards the end fewer will do.
_GAP, _LEAST_GAP = 20, 5
#: What is laid before a person is kept for them as long as they gave a sign of life since.
_KEPT_SECONDS = 900.0
_BY = "by "


class Behind(InputError):
    """A label for something that is not before the person now: another window was faster."""


@dataclass(frozen=True)
class Task:
    """One thing to ask of a person: a pair by its place, for the first time or again."""

    pair: int
    repeat: int = 0


@dataclass(eq=False)
class Person:
    """What one person did, and what lies before them.

    order: pairs in their own order. again: those that will be asked twice. votes: what stands.
    made: how many labels they had given by then. done: pairs with a vote. history: what can be
    undone, latest last; a decision has repeat -1. queue: the task before them and the one after
    it. seen: pairs of which they were shown what others said. passed: disagreements left alone for
    now. alive: when they last asked. shown: the task before them, and since when.
    """

    name: str
    order: Sequence[int]
    again: frozenset[int]
    votes: dict[Task, Vote] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    history: list[Task] = field(default_factory=list)
    count: int = 0
    start: int = 0
    queue: list[Task] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    alive: float = -_KEPT_SECONDS
    shown: tuple[Task | None, float] = (None, 0.0)
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=25))

    def has_label(self, pair: int) -> bool:
        """Whether they gave the pair a grade, and did not take it back."""
        vote = self.votes.get(Task(pair))
        return vote is not None and vote.grade is not None


class Session:
    """Pairs to label, the people who do, and the ledger that keeps what they say.

    questions: the pairs with their texts. prompt: the rubric and its scale. probabilities: (m,)
    with which each pair was picked, or None; written with every first label.
    order: "query" keeps the documents of a query together, "random" does not; everyone has an
        order of their own, drawn from the seed and the name.
    overlap: the share of pairs that everyone gets; any other is for whoever comes first.
    repeats: the share of a person's pairs that are asked again later, without saying so.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        prompt: Prompt,
        ledger: Ledger,
        *,
        probabilities: Any = None,
        order: Literal["query", "random"] = "query",
        overlap: float = 0.2,
        repeats: float = 0.05,
        seed: int = 0,
    ) -> None:
        for name, share in (("overlap", overlap), ("repeats", repeats)):
            if not 0 <= share <= 1:
                raise InputError(f"{name} is {share:g}; expected a share between 0 and 1")
        if not questions:
            raise InputError("there is no pair to label")
        if order not in ("query", "random"):
            raise InputError(f"order is {order!r}; expected query or random")
        self.questions, self.prompt, self.scale, self.ledger = (
            questions, prompt, prompt.scale, ledger,
        )  # fmt: skip
        self.probabilities = probabilities
        self.people: dict[str, Person] = {}
        self.labels: list[dict[str, Vote]] = [{} for _ in questions]
        self.decisions: dict[int, Vote] = {}
        self._labelled: set[int] = set()
        self.rubric = _rubric(prompt)
        self._order, self._repeats, self._seed = order, repeats, seed
        shared = self._random("overlap").permutation(len(questions))
        self.shared = frozenset(shared[: round(overlap * len(questions))].tolist())
        self.places = {(str(q.query_id), str(q.doc_id)): n for n, q in enumerate(questions)}
        self._names: dict[int, str | None] = {}
        self._numbers: dict[str, int] = {}
        self._row = 0
        self._answers = 0
        self._secret = secrets.token_bytes(32)
        self._handles: dict[str, tuple[str, Task]] = {}
        self._lock = threading.RLock()
        with self.current():
            pass

    @contextmanager
    def current(self) -> Iterator[None]:
        """Nothing changes inside, and all that the ledger holds by now is known."""
        with self._lock:
            self._read()
            yield

    # -- what a person sees and says -----------------------------------------------------------

    def person(self, name: str) -> Person:
        """The person of that name; new ones are welcome. InputError where it is no name."""
        if name not in self.people:
            self.people[name] = self._newcomer(checked_name(name))
        return self.people[name]

    def tasks(self, name: str) -> list[Task]:
        """The task before a person and the one after it; fewer at the end."""
        with self.current():
            person = self.person(name)
            person.alive = time.monotonic()
            person.queue = [task for task in person.queue if task not in person.votes][:2]
            while len(person.queue) < 2:
                task = self._pick(person)
                if task is None:
                    break
                person.queue.append(task)
            self.show(person, person.queue[0] if person.queue else None)
            return list(person.queue)

    def show(self, person: Person, task: Task | None) -> None:
        """Start the clock of a task, unless it is before the person already."""
        if person.shown[0] != task:
            person.shown = (task, time.monotonic())

    def vote(
        self, name: str, task: Task, grade: float | None, reason: str = "", *, drawn: bool = True
    ) -> None:
        """Keep a person's label; a grade of None passes, with the reason.

        drawn: whether the pair came up in the person's own order; a label given in the queue of
        disagreements does not, and carries no probability. Raises Behind where the task is not
        the one before the person, LedgerFault where the ledger takes no more.
        """
        with self.current():
            person = self.person(name)
            done = task in person.votes if drawn else person.has_label(task.pair)
            if done or task != person.shown[0]:
                raise Behind("this pair was labelled in another window")
            if grade is not None and grade not in self.scale.grades:
                raise InputError(f"grade is {grade:g}; the scale has {list(self.scale.grades)}")
            question = self.questions[task.pair]
            picked = self.probabilities is not None and drawn and not task.repeat
            seconds = time.monotonic() - person.shown[1]
            self._keep(name, Vote(
                question.query_id, question.doc_id, grade,
                Status.SKIPPED if grade is None else Status.SETTLED, reason,
                "repeat" if task.repeat else "label",
                float(self.probabilities[task.pair]) if picked else None, seconds, task.repeat,
            ))  # fmt: skip
            person.seconds.append(seconds)

    def decide(self, name: str, task: Task, grade: float, reason: str = "") -> None:
        """Adjudicate: a row of its own that says who decided; no label is overwritten.

        Raises InputError for a person who has not labelled the pair themselves.
        """
        with self.current():
            person = self.person(name)
            if not person.has_label(task.pair):
                raise InputError("label the pair yourself before you decide it")
            if task.pair in self.decisions:
                raise Behind("this pair was decided in another window")
            if grade not in self.scale.grades:
                raise InputError(f"grade is {grade:g}; the scale has {list(self.scale.grades)}")
            self._keep(ADJUDICATED, self._decision(name, task.pair, grade, reason))

    def undo(self, name: str, *, decisions: bool = False) -> tuple[Task, Vote]:
        """Take back a person's latest label (or decision) by one more row; gives what it was.

        Raises InputError where there is none, or where they saw since what others said of it.
        """
        with self.current():
            person = self.person(name)
            last = next((t for t in reversed(person.history) if (t.repeat < 0) == decisions), None)
            if last is None:
                raise InputError("there is nothing to undo")
            if decisions:
                was = self.decisions[last.pair]
                gone = self._decision(name, last.pair, None, "", kind="withdrawn")
                self._keep(ADJUDICATED, gone)
                person.passed.discard(last.pair)
                return last, was
            if last.pair in person.seen:
                raise InputError(
                    "you have seen what others said of that pair: decide it among the "
                    "disagreements instead"
                )
            was, question = person.votes[last], self.questions[last.pair]
            self._keep(name, Vote(
                question.query_id, question.doc_id, None, Status.SKIPPED, kind="withdrawn",
                repeat=last.repeat,
            ))  # fmt: skip
            person.queue.insert(0, last)
            return last, was

    def handle(self, name: str, task: Task) -> str:
        """What the browser calls a task: it tells neither pair nor place nor whether it is new."""
        text = f"{name}\0{task.pair}\0{task.repeat}".encode()
        handle = hashlib.blake2b(text, key=self._secret, digest_size=12).hexdigest()
        self._handles[handle] = (name, task)
        return handle

    def task(self, name: str, handle: str) -> Task:
        """The task of a handle that was given to this person; Behind for any other."""
        owner, task = self._handles.get(handle, ("", Task(-1)))
        if owner != name:
            raise Behind("the page is older than the server: reload it")
        return task

    # -- how far it is ------------------------------------------------------------------------

    def left(self, name: str) -> int:
        """How many tasks are left for a person. Those asked again count from the start."""
        with self.current():
            person = self.person(name)
            ahead = [task for task in person.queue if task not in person.votes]
            closed = self._closed(person).difference(t.pair for t in ahead if not t.repeat)
            first = len(self.questions) - len(closed)
            if not first and not ahead and self._due(person, _LEAST_GAP) is None:
                return 0
            return first + sum(
                (pair not in closed or person.has_label(pair)) and Task(pair, 1) not in person.votes
                for pair in person.again - person.seen
            )

    def pace(self, name: str) -> float | None:
        """Pairs a minute, by the median of the latest, so that a break does not count."""
        seconds = self.person(name).seconds
        return 60 / max(median(seconds), 0.1) if len(seconds) >= 3 else None

    @property
    def row(self) -> int:
        """The last row of the ledger that is known; it rises with every label of anybody."""
        return self._row

    @property
    def answers(self) -> int:
        """How many answers of people the ledger holds, those taken back later among them."""
        return self._answers

    # -- the order ----------------------------------------------------------------------------

    def _newcomer(self, name: str) -> Person:
        order = self._random(f"order {name}").permutation(len(self.questions))
        if self._order == "query":
            names = [str(question.query_id) for question in self.questions]
            first: dict[str, int] = {}
            for place, pair in enumerate(order.tolist()):
                first.setdefault(names[pair], place)
            order = np.array(sorted(order.tolist(), key=lambda pair: first[names[pair]]))
        early = order[: max(0, len(order) - _LEAST_GAP)]
        count = min(len(early), round(self._repeats * len(order)))
        again = self._random(f"again {name}").choice(early, size=count, replace=False)
        return Person(name, order.tolist(), frozenset(again.tolist()))

    def _random(self, what: str) -> np.random.Generator:
        seed = hashlib.sha256(f"{self._seed} {what}".encode()).digest()
        return np.random.default_rng(int.from_bytes(seed, "big"))

    def _pick(self, person: Person) -> Task | None:
        while person.start < len(person.order) and person.order[person.start] in person.done:
            person.start += 1
        closed = self._closed(person).union(t.pair for t in person.queue if not t.repeat)
        rest = islice(person.order, person.start, None)
        fresh = next((pair for pair in rest if pair not in closed), None)
        due = self._due(person, _LEAST_GAP if fresh is None else _GAP)
        if fresh is None:
            return due
        return due if due is not None and self._at_border(person, fresh) else Task(fresh)

    def _closed(self, person: Person) -> set[int]:
        """Pairs that are not to be asked of this person: done, or done by or before another."""
        since = time.monotonic() - _KEPT_SECONDS
        others = [p for p in self.people.values() if p is not person and p.alive > since]
        held = {task.pair for other in others for task in other.queue}
        return person.done | ((self._labelled | held) - self.shared)

    def _due(self, person: Person, gap: int) -> Task | None:
        """A pair to ask again, the one that was labelled first."""
        due = [
            pair
            for pair in person.again - person.seen
            if person.has_label(pair)
            and Task(pair, 1) not in person.votes
            and Task(pair, 1) not in person.queue
            and person.count - person.made[pair] > gap
        ]
        return Task(min(due, key=lambda pair: person.made[pair]), 1) if due else None

    def _at_border(self, person: Person, fresh: int) -> bool:
        """Whether another query begins here; in a random order that is everywhere."""
        if self._order == "random":
            return True
        before = person.queue or [t for t in person.history if t.repeat >= 0]
        last = self.questions[before[-1].pair].query_id if before else None
        return last != self.questions[fresh].query_id

    # -- the ledger ---------------------------------------------------------------------------

    def _keep(self, name: str, vote: Vote) -> None:
        if name not in self._numbers:
            self._numbers[name] = self.ledger.person(name, self.rubric)
            self._names[self._numbers[name]] = name
        self.ledger.vote(self._numbers[name], vote)
        self._read()

    def _decision(
        self, name: str, pair: int, grade: float | None, reason: str, kind: str = "adjudication"
    ) -> Vote:
        question = self.questions[pair]
        why = f"{_BY}{name}: {reason}" if reason else f"{_BY}{name}"
        status = Status.SKIPPED if grade is None else Status.SETTLED
        return Vote(question.query_id, question.doc_id, grade, status, why, kind)

    def _read(self) -> None:
        for row, judge, vote in self.ledger.human_votes(self._row):
            self._row = row
            self._answers += vote.kind != "withdrawn"
            if judge not in self._names:
                self._names.update(
                    (j.id, _name_under(self.rubric, j.identity)) for j in self.ledger.judges()
                )
            name = self._names[judge]
            pair = self.places.get((str(vote.query_id), str(vote.doc_id)))
            if name == ADJUDICATED and pair is not None:
                self._apply_decision(pair, vote)
            elif name is not None and pair is not None:
                self._apply(self.person(name), pair, vote)

    def _apply(self, person: Person, pair: int, vote: Vote) -> None:
        task = Task(pair, vote.repeat)
        if task in person.history:
            person.history.remove(task)
        if vote.kind == "withdrawn":
            person.votes.pop(task, None)
            person.start = 0
        else:
            person.votes[task] = vote
            person.history.append(task)
            person.count += 1
        if task.repeat:
            return
        person.made[pair] = person.count
        person.done.discard(pair)
        self.labels[pair].pop(person.name, None)
        if task in person.votes:
            person.done.add(pair)
            self.labels[pair][person.name] = vote
        # A pair that was only skipped is still open to others.
        if any(label.grade is not None for label in self.labels[pair].values()):
            self._labelled.add(pair)
        else:
            self._labelled.discard(pair)

    def _apply_decision(self, pair: int, vote: Vote) -> None:
        name = vote.reason.removeprefix(_BY).partition(":")[0]
        task = Task(pair, -1)
        for person in self.people.values():
            if task in person.history:
                person.history.remove(task)
        self.decisions.pop(pair, None)
        if vote.kind != "withdrawn":
            self.decisions[pair] = vote
            self.person(name).history.append(task)


def checked_name(name: str) -> str:
    """A person's name as it goes into the ledger; InputError says what a name may be."""
    found = " ".join(name.split())
    plain = all(c.isalnum() or c in " .-_'" or not c.isascii() for c in found)
    if not 1 <= len(found) <= 40 or not (plain and found.isprintable()) or found == ADJUDICATED:
        raise InputError(
            f"{name[:60]!r} is no name for a person",
            hint=f"up to 40 letters, digits, spaces, . - _ and '; not {ADJUDICATED!r}",
        )
    return found


def _rubric(prompt: Prompt) -> dict[str, Any]:
    """What makes labels comparable: the same words and the same scale."""
    meanings = {f"{grade:g}": prompt.scale.meanings[grade] for grade in prompt.scale.grades}
    return {
        "prompt": prompt.label,
        "text": hashlib.sha256(prompt.text.encode()).hexdigest()[:16],
        "scale": meanings,
        "relevant": prompt.scale.relevant,
    }


def _name_under(rubric: Mapping[str, Any], identity: Mapping[str, Any]) -> str | None:
    """The name of a person who labels by this rubric; None for any other judge."""
    alike = json.dumps(identity.get("rubric"), sort_keys=True) == json.dumps(rubric, sort_keys=True)
    return str(identity["name"]) if identity.get("judge") == "human" and alike else None
