"""Who gives the verdicts: one judge, asked with the prompt of each kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from semrecall.data import Judgments
from semrecall.errors import InputError
from semrecall.judges import Judge, open_judge
from semrecall.judges.llm import LLMJudge
from semrecall.judges.panel import Panel
from semrecall.judges.recorded import RecordedJudge
from semrecall.measures.verdicts import UNSCORED
from semrecall.rag.asking import SIDES
from semrecall.rag.claims import Claims
from semrecall.rag.records import Record

__all__ = ["Bench", "misfits"]


class Bench:
    """`bench(prompt, scale)` is the judge for a kind of verdict. Its models spend from one budget.

    model: the language model among the judges, which can write claims too; None without one.
    """

    def __init__(self, judge: Judge | str | None, verdicts: Judgments | None) -> None:
        if judge is not None and verdicts is not None:
            raise InputError("a judge and verdicts are given; expected one of them")
        self.judge = RecordedJudge(verdicts) if verdicts is not None else judge
        if isinstance(self.judge, str):
            self.judge = open_judge(self.judge)
        self._made: dict[tuple[str, str], Judge] = {}

    @property
    def name(self) -> str:
        """Who gives the verdicts; "" for nobody."""
        return self.judge.name if isinstance(self.judge, Judge) else ""

    @property
    def model(self) -> LLMJudge | None:
        """A model of the bench."""
        members = [self.judge, *(self.judge.members if isinstance(self.judge, Judge) else ())]
        return next((one for one in members if isinstance(one, LLMJudge)), None)

    def __call__(self, prompt: str, scale: str) -> Judge:
        """The judge with this prompt. Raises InputError where there is none."""
        if not isinstance(self.judge, Judge):
            raise InputError(
                "somebody has to judge",
                hint="name a judge (--model, --judge) or a file of verdicts (--verdicts)",
            )
        if (prompt, scale) not in self._made:
            self._made[prompt, scale] = _with_prompt(self.judge, prompt, scale)
        return self._made[prompt, scale]

    def remarks(self) -> Iterator[str]:
        """What a reader should know of how the verdicts came about."""
        for (prompt, _), judge in self._made.items():
            yield from (f"{prompt}: {remark}" for remark in judge.remarks())

    def close(self) -> None:
        """Let go of connections and models."""
        if isinstance(self.judge, Judge):
            self.judge.close()


def _with_prompt(judge: Judge, prompt: str, scale: str) -> Judge:
    """The judge asked with another prompt; one that has none is taken as it is."""
    if isinstance(judge, LLMJudge):
        return judge.with_prompt(prompt, scale)
    if isinstance(judge, Panel):
        return Panel([_with_prompt(member, prompt, scale) for member in judge.members])
    return judge


#: The id of a claim: record, side, number.
_CLAIM = re.compile(r"(.*)\|(answer|reference|statement):([^|]*)", re.DOTALL)


def misfits(
    labels: Judgments, records: Sequence[Record], claims: Sequence[Claims]
) -> dict[tuple[int, str], str]:
    """By row and kind: recorded verdicts on claims that there are not, so that none can be trusted.

    They were given on an answer that was broken into other claims.
    """
    at = {record.id: row for row, record in enumerate(records)}
    extra: dict[tuple[int, str], set[str]] = {}
    for document in dict.fromkeys(str(one) for one in labels.documents):
        found = _CLAIM.fullmatch(document)
        if found is None or found[1] not in at:
            continue
        row, side = at[found[1]], found[2]
        texts = {"answer": "answer", "reference": "reference", "statement": "statements"}[side]
        count = len(getattr(claims[row], texts))
        if not (found[3].isdecimal() and 1 <= int(found[3]) <= count):
            extra.setdefault((row, side), set()).add(document)
    reasons: dict[tuple[int, str], str] = {}
    for (row, side), documents in extra.items():
        kinds = SIDES[side]
        if side == "answer" and claims[row].statements == claims[row].answer:
            kinds += SIDES["statement"]
        why = f"{UNSCORED}: {len(documents)} verdicts on claims that there are not"
        reasons |= {(row, kind): why for kind in kinds}
    return reasons
