"""What a model writes for the measures: claims of texts, and questions for answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from semrecall.judges.asking import ask
from semrecall.judges.contract import Document, Question, Status
from semrecall.judges.ledger import Ledger
from semrecall.judges.lists import CLAIMS, QUESTIONS, items_in, lister
from semrecall.judges.llm import LLMJudge
from semrecall.measures.verdicts import UNSCORED
from semrecall.rag.progress import Progress, watched

__all__ = ["CLAIMS", "QUESTIONS", "Writer"]


class Writer:
    """`Writer(judge, CLAIMS, ledger)(pairs)` are the items of each (question, text), or the reason
    why there are none. Each text is asked about once; the ledger keeps every attempt.

    Raises Stopped when a cap or the quota ends the run; what was written is kept.
    """

    def __init__(
        self,
        judge: LLMJudge,
        prompt: str,
        ledger: Ledger,
        *,
        again: Collection[Status] = (),
        progress: Progress | None = None,
    ) -> None:
        self.judge = lister(judge, prompt)
        self._what = prompt.partition(".")[0]
        self._ledger, self._again, self._progress = ledger, again, progress

    def asked(self, pairs: Iterable[tuple[str, str]]) -> list[Question]:
        """What the model is asked."""
        return [Question("", self._what, about, Document(text)) for about, text in pairs]

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[list[str] | str]:
        """The items of each pair, in order, or why there are none."""
        questions = self.asked(pairs)
        with watched(
            self._progress, self._what, self.judge, questions, self._ledger, self._again
        ) as watch:
            # Lists are no judgments: they do not belong in what the ledger is read as.
            kept = ask(
                self.judge, questions, self._ledger, again=self._again, enter=False, watch=watch
            )
        found: list[list[str] | str] = []
        for question in questions:
            one = kept.get(self.judge.key(question))
            items = items_in(one)
            status = Status.UNKNOWN if one is None or one.status is None else one.status
            found.append(f"{UNSCORED}: {self._what} {status.value}" if items is None else items)
        return found
