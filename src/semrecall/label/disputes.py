"""Pairs on which people differ, or a person and a model: shown after one's own label, decided."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from semrecall.errors import InputError
from semrecall.judges import Scale
from semrecall.judges.ledger import LedgerJudge
from semrecall.judges.prompts import load_prompt
from semrecall.label.session import Person, Session, Task

__all__ = ["Disputes", "Said"]

#: Labels of models are read anew after so long.
_STALE_SECONDS = 30.0


@dataclass(frozen=True)
class Said:
    """What one judge said of a pair: a grade, whether that means relevant, and why."""

    judge: str
    grade: float
    relevant: bool
    reason: str
    of_scale: bool


class Disputes:
    """The queue of disagreements of a session.

    People differ where one says relevant and another does not, or where their grades are two
    apart; a person and another judge of the ledger where one says relevant.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._others: dict[int, list[Said]] = {}
        self._read_at: float | None = None

    def open(self, name: str) -> list[int]:
        """The pairs in dispute that nobody decided, in the person's own order."""
        with self._session.current():
            if self._read_at is None:
                self._refresh()
            person = self._session.person(name)
            return [p for p in person.order if p not in self._session.decisions and self._differ(p)]

    def next(self, name: str) -> Task | None:
        """The dispute to lay before a person; None when those left were passed by them."""
        with self._session.current():
            # Only here, so that labelling never waits for it.
            if self._read_at is None or time.monotonic() - self._read_at > _STALE_SECONDS:
                self._refresh()
            person = self._session.person(name)
            pairs = (pair for pair in self.open(name) if pair not in person.passed)
            pair = next(pairs, None)
            task = None if pair is None else Task(pair)
            self._session.show(person, task)
            return task

    def leave(self, name: str, task: Task) -> None:
        """Leave a dispute as it is, for this person and for now."""
        self._session.person(name).passed.add(task.pair)

    def said(self, name: str, task: Task) -> list[Said]:
        """What the others said. Raises InputError before the person has labelled the pair."""
        with self._session.current():
            person = self._session.person(name)
            if not person.has_label(task.pair):
                raise InputError("what others said is shown after your own label")
            person.seen.add(task.pair)
            self._forget(person, task.pair)
            return [said for said in self._all(task.pair) if said.judge != name]

    @staticmethod
    def _forget(person: Person, pair: int) -> None:
        """A pair of which the labels are known is not asked again as if it were new."""
        person.queue = [task for task in person.queue if task.pair != pair]

    def _differ(self, pair: int) -> bool:
        labels = [vote.grade for vote in self._session.labels[pair].values()]
        grades = [grade for grade in labels if grade is not None]
        if not grades:
            return False
        sides = {grade >= self._session.scale.relevant for grade in grades}
        sides.update(said.relevant for said in self._others.get(pair, ()))
        return len(sides) > 1 or max(grades) - min(grades) >= 2

    def _all(self, pair: int) -> Iterator[Said]:
        relevant = self._session.scale.relevant
        for name, vote in self._session.labels[pair].items():
            if vote.grade is not None:
                yield Said(name, vote.grade, vote.grade >= relevant, vote.reason, True)
        yield from self._others.get(pair, ())

    def _refresh(self) -> None:
        """Read what other judges of the ledger said of these pairs."""
        self._others = {}
        ledger, places = self._session.ledger, self._session.places
        for judge in ledger.judges():
            if not judge.pairs or judge.identity.get("rubric") == self._session.rubric:
                continue
            found = ledger.judgments(judge.id)
            scale = _scale_of(judge)
            reasons = found.details["reason"]
            rows = zip(found.queries, found.documents, found.grades.tolist(), reasons, strict=True)
            rel = self._session.scale.relevant if scale is None else scale.relevant
            if scale is None and found.grades.size and max(found.grades) <= 1:
                rel = 1
            of_scale = scale is not None and scale.grades == self._session.scale.grades
            for query, document, grade, reason in rows:
                pair = places.get((str(query), str(document)))
                if pair is not None and grade == grade:  # NaN: no label
                    said = Said(judge.name, grade, grade >= rel, str(reason or ""), of_scale)
                    self._others.setdefault(pair, []).append(said)
        self._read_at = time.monotonic()


def _scale_of(judge: LedgerJudge) -> Scale | None:
    """The scale of a judge, where its prompt is one of ours."""
    try:
        return load_prompt(str(judge.identity["prompt"])).scale
    except (KeyError, InputError):
        return None
