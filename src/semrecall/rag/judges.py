"""Who gives the verdicts: one judge, asked with the prompt of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semrecall.data import Judgments
from semrecall.errors import InputError
from semrecall.judges import Judge, open_judge
from semrecall.judges.llm import LLMJudge
from semrecall.judges.panel import Panel
from semrecall.judges.recorded import RecordedJudge
from semrecall.rag.asking import Asked
from semrecall.rag.claims import Claims
from semrecall.rag.recorded import fitted
from semrecall.rag.records import Record
from semrecall.text import plural

__all__ = ["Bench"]


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
        self._unchecked: list[str] = []

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

    def fit(
        self, wanted: Sequence[Asked], records: Sequence[Record], claims: Sequence[Claims]
    ) -> dict[tuple[int, str], str]:
        """Look at which texts recorded verdicts were given on, before any is asked for.

        By row and kind: why those of a question cannot be trusted.
        """
        faults: dict[tuple[int, str], str] = {}

        def one(judge: Judge) -> Judge:
            if isinstance(judge, Panel):
                return Panel([one(member) for member in judge.members], name=judge.name)
            if not isinstance(judge, RecordedJudge):
                return judge
            found = fitted(judge.labels, wanted, records, claims)
            faults.update(found.faults)
            if found.unchecked:
                of = plural(len(found.labels), "recorded verdict")
                self._unchecked.append(
                    f"{found.unchecked:,} of {of} ({judge.name}) do not say which texts they were "
                    "given on: that answers and contexts are still the same was not checked"
                )
            return RecordedJudge(found.labels, name=judge.name, relevant=judge.scale.relevant)

        if isinstance(self.judge, Judge):
            self.judge = one(self.judge)
        return faults

    def remarks(self) -> Iterator[str]:
        """What a reader should know of how the verdicts came about."""
        yield from self._unchecked
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
