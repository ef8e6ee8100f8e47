"""Several judges as one: the label of the majority; ties stay open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from semrecall.errors import InputError
from semrecall.judges.contract import Answer, Judge, Question, Record, Reply, Status

__all__ = ["Panel"]


class Panel(Judge):
    """Judges that vote. More than half of the labels given decide; else the pair has none.

    members: judges, or specs of them ("llm?model=a"); at least two, on one scale. A member that
    gives no label does not vote. The confidence is the share of votes for the label.
    """

    def __init__(self, members: Sequence[Judge | str], *, name: str | None = None) -> None:
        from semrecall.judges.opening import open_judge

        self.members = tuple(open_judge(member) for member in members)
        if len(self.members) < 2:
            raise InputError(f"a panel has at least two members; found {len(self.members)}")
        scales = {member.scale.grades for member in self.members}
        if len(scales) > 1:
            found = "; ".join(f"{m.name}: {list(m.scale.grades)}" for m in self.members)
            raise InputError(f"the members of a panel grade on different scales: {found}")
        fingerprints = [member.fingerprint for member in self.members]
        if len(set(fingerprints)) < len(fingerprints):
            raise InputError("a panel has one member twice; its vote would count twice")
        self.scale = self.members[0].scale
        self.reads_texts = any(member.reads_texts for member in self.members)
        self.name = name or f"panel of {', '.join(member.name for member in self.members)}"

    @property
    def identity(self) -> Mapping[str, Any]:
        """The members, in any order."""
        return {"members": sorted(member.fingerprint.hex() for member in self.members)}

    def key(self, question: Question) -> bytes:
        """By text, unless a member knows pairs by id."""
        by_id = next((m for m in self.members if not m.reads_texts), None)
        if by_id is None:
            return super().key(question)
        return super().key(replace(question, query=by_id.key(question).hex() + question.query))

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Ask each member and combine; through a ledger members are asked one by one instead."""
        asked = list(questions)
        said: list[list[Answer]] = [[] for _ in asked]
        position = {question.key: at for at, question in enumerate(asked)}
        for member in self.members:
            replies: list[Reply] = []
            member.answer(asked, replies.append)
            for answer in (a for reply in replies for a in reply.answers if a.final):
                said[position[answer.question.key]].append(answer)
        for question, answers in zip(asked, said, strict=True):
            combined = self.combine(question, answers)
            record(Reply((combined,), combined.status, calls=0))

    def combine(self, question: Question, answers: Sequence[Answer]) -> Answer:
        """The label of more than half of the votes."""
        votes = Counter(a.grade for a in answers if a.grade is not None)
        shown = ", ".join(
            f"{member.name}: {'-' if a.grade is None else f'{a.grade:g}'}"
            for member, a in zip(self.members, answers, strict=True)
        )
        if not votes:
            first = answers[0]
            return Answer(question, first.status, reason=f"{shown}; {first.reason}".rstrip("; "))
        [(grade, count), *_] = votes.most_common(1)
        total = sum(votes.values())
        if count * 2 <= total:
            return Answer(question, Status.TIED, reason=shown)
        return Answer(question, Status.SETTLED, grade, shown, count / total)

    def remarks(self) -> Sequence[str]:
        """Those of the members."""
        return [f"{m.name}: {remark}" for m in self.members for remark in m.remarks()]

    def close(self) -> None:
        """Close every member."""
        for member in self.members:
            member.close()
