"""Asking a judge through the ledger: nothing twice, nothing lost, and several processes at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from semrecall.errors import JudgeFault
from semrecall.judges.contract import Answer, Judge, Question, Reply, Status
from semrecall.judges.ledger import Kept, Ledger, is_open

__all__ = ["ask", "unasked"]

#: So many pairs are claimed at a time: few enough that a second process finds work to do.
_CLAIMED_AT_ONCE = 64
_LOOK_AGAIN_SECONDS = 0.5

Watch = Callable[[Reply], None]


def ask(
    judge: Judge,
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    again: Collection[Status] = (),
    enter: bool = True,
    watch: Watch | None = None,
) -> dict[bytes, Kept]:
    """What the judge says of the questions, by key (`judge.key(question)`).

    Only what the ledger does not hold is asked: pairs never asked, and those where the world
    failed (a timeout, a full quota). Questions of one key (equal texts) are asked once. Pairs
    that another process is asking are waited for; pairs in a batch are left to it.

    again: statuses without a grade that are asked once more. enter: whether the pairs belong in
    what the ledger is read as; questions that only test the judge do not. watch: is shown every
    reply after it is kept.

    Raises Stopped when the judge had to stop (quota, cap); everything recorded stays.
    """
    keys = [judge.key(question) for question in questions]
    by_key: dict[bytes, Question] = {}
    for key, question in zip(keys, questions, strict=True):
        by_key.setdefault(key, question)
    number = ledger.enlist(judge)
    kept = ledger.kept(number, by_key)
    if enter:
        # The pair whose text was asked was entered before it was.
        ledger.enter_pairs(
            number,
            [
                (question.query_id, question.doc_id, question.repeat, key)
                for question, key in zip(questions, keys, strict=True)
                if key not in kept or kept[key].origin != (question.query_id, question.doc_id)
            ],
        )
    if judge.members:
        keyed = [replace(question, key=key) for key, question in by_key.items()]
        _ask_members(judge, keyed, ledger, again, enter, watch)
        return ledger.kept(number, by_key)
    batched = ledger.in_batches(number)
    opened = [k for k in by_key if k not in batched and is_open(kept.get(k), again)]
    if not opened:
        return kept
    judge.memory = ledger
    while opened:
        asked = {
            key: replace(by_key[key], key=key, tried=_tried(kept.get(key), again)) for key in opened
        }
        work = _Work(judge, ledger, number, asked, watch)
        try:
            judge.answer(work, work.record)
        finally:
            work.let_go()
        work.check()
        if not work.elsewhere:
            break
        # The others are being asked by another process: theirs, unless it ends before.
        time.sleep(_LOOK_AGAIN_SECONDS)
        kept = ledger.kept(number, by_key)
        batched = ledger.in_batches(number)
        opened = [k for k in work.elsewhere if k not in batched and is_open(kept.get(k), ())]
    return ledger.kept(number, by_key)


def unasked(
    judge: Judge,
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    again: Collection[Status] = (),
) -> list[tuple[Judge, list[Question]]]:
    """What `ask` would ask, and whom: the judge, or its members. The ledger is only read."""
    by_key: dict[bytes, Question] = {}
    for question in questions:
        by_key.setdefault(judge.key(question), question)
    number = ledger.number(judge)
    kept = {} if number is None else ledger.kept(number, by_key)
    if judge.members:
        lacking = [q for k, q in by_key.items() if not (k in kept and kept[k].settled)]
        return [pair for m in judge.members for pair in unasked(m, lacking, ledger, again=again)]
    batched = set() if number is None else ledger.in_batches(number)
    opened = [k for k in by_key if k not in batched and is_open(kept.get(k), again)]
    return [(judge, [by_key[key] for key in opened])]


def _tried(kept: Kept | None, again: Collection[Status]) -> Mapping[str, int]:
    """How often each status was met; who asks again starts afresh."""
    return {} if kept is None or kept.status in again else kept.tried


class _Work:
    """Questions handed out one by one, each claimed before, and the replies taken in."""

    def __init__(
        self,
        judge: Judge,
        ledger: Ledger,
        number: int,
        questions: dict[bytes, Question],
        watch: Watch | None,
    ) -> None:
        self.elsewhere: list[bytes] = []
        self._judge, self._ledger, self._number = judge, ledger, number
        self._questions, self._watch = questions, watch
        self._claimed: set[bytes] = set()
        self._ended = False

    def __iter__(self) -> Iterator[Question]:
        keys = list(self._questions)
        for start in range(0, len(keys), _CLAIMED_AT_ONCE):
            block = keys[start : start + _CLAIMED_AT_ONCE]
            ours = self._ledger.claim(self._number, block)
            self._claimed |= ours
            self.elsewhere += [key for key in block if key not in ours]
            yield from (self._questions[key] for key in block if key in ours)
        self._ended = True

    def record(self, reply: Reply) -> None:
        strange = [a.question.key for a in reply.answers if a.question.key not in self._claimed]
        if strange:
            raise JudgeFault(
                f"{self._judge.name} answered {len(strange)} questions it was not asked, or twice"
            )
        self._ledger.record(self._number, reply)
        self._claimed.difference_update(a.question.key for a in reply.answers if a.final)
        if self._watch is not None:
            self._watch(reply)

    def let_go(self) -> None:
        """Others may ask what is not answered."""
        if self._claimed:
            self._ledger.release(self._number, self._claimed)

    def check(self) -> None:
        """A judge that came back has answered everything."""
        silent = len(self._claimed)
        if silent or not self._ended:
            raise JudgeFault(
                f"{self._judge.name} came back with {silent:,} questions unanswered"
                if silent
                else f"{self._judge.name} came back before it took all questions"
            )


def _ask_members(
    panel: Judge,
    questions: Sequence[Question],
    ledger: Ledger,
    again: Collection[Status],
    enter: bool,
    watch: Watch | None,
) -> None:
    """Ask each member through the ledger, then enter what the panel makes of their answers."""
    number = ledger.enlist(panel)
    kept = ledger.kept(number, [q.key for q in questions])
    opened = [q for q in questions if not (q.key in kept and kept[q.key].settled)]
    said = [
        ask(member, opened, ledger, again=again, enter=enter, watch=watch)
        for member in panel.members
    ]
    for question in opened:
        kept_of = [
            answers.get(member.key(question))
            for member, answers in zip(panel.members, said, strict=True)
        ]
        found = [_answer(question, one) for one in kept_of if one is not None]
        if len(found) < len(kept_of):
            continue  # a member's answer waits in a batch: the vote is not complete
        combined = panel.combine(question, found)
        before = kept.get(question.key)
        if before is None or (before.status, before.grade) != (combined.status, combined.grade):
            ledger.record(number, Reply((combined,), combined.status, calls=0))


def _answer(question: Question, kept: Kept) -> Answer:
    """What the ledger holds as an answer."""
    status = kept.status or Status.UNKNOWN
    return Answer(question, status, kept.grade, kept.reason, kept.confidence, flags=kept.flags)
