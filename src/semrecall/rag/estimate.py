"""What measuring would take, before anything is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from semrecall.errors import InputError
from semrecall.judges import Judge, Ledger
from semrecall.judges.asking import unasked
from semrecall.judges.contract import Question, Status
from semrecall.judges.lists import items_in
from semrecall.measures import Measure
from semrecall.rag.asking import by_prompt, needed, sides_of, verdicts_wanted
from semrecall.rag.claims import claims_of, sentences
from semrecall.rag.judges import Bench
from semrecall.rag.records import records
from semrecall.rag.writing import CLAIMS, Writer
from semrecall.text import plural

__all__ = ["estimate"]


def estimate(
    source: Any,
    measures: Sequence[Measure],
    judge: Judge | str | None,
    claims: str | None,
    ledger: Ledger,
    again: Collection[Status] = (),
) -> Iterator[str]:
    """Lines that say, for each prompt, how many verdicts are wanted and what is not known yet.

    Where the ledger lacks the claims of a text, its sentences stand for them. The ledger is only
    read; nobody is asked.
    """
    if claims == "model" and judge is None:
        raise InputError("no model is named to make claims", hint="--model gpt-5-mini")
    found, kinds = records(source), needed(measures)
    bench = Bench(judge, None)
    writes = bench.model is not None and claims != "sentences"
    writer = Writer(bench.model, CLAIMS, ledger) if writes and bench.model is not None else None
    open_texts: list[Question] = []

    def make(pairs: Sequence[tuple[str, str]]) -> list[list[str] | str]:
        assert writer is not None
        questions = writer.asked(pairs)
        for _, opened in unasked(writer.judge, questions, ledger, again=again):
            open_texts.extend(opened)
        number = ledger.number(writer.judge)
        keys = [writer.judge.key(question) for question in questions]
        kept = {} if number is None else ledger.kept(number, keys)
        return [
            sentences(text) if (items := items_in(kept.get(key))) is None else items
            for key, (_, text) in zip(keys, pairs, strict=True)
        ]

    made = claims_of(found, None if writer is None else make, sides_of(kinds))
    if writer is not None and open_texts:
        yield f"claims: {plural(len(open_texts), 'text')}; {writer.judge.estimate(open_texts)}"
        yield "claims are not made yet: the verdicts below count sentences"
    bench.fit(verdicts_wanted(found, made, kinds), found, made)
    for prompt, own in by_prompt(kinds).items():
        questions = [asked.question for asked in verdicts_wanted(found, made, own)]
        line = f"{prompt[0]}: {plural(len(questions), 'verdict')} ({', '.join(own)})"
        if not bench.name:
            yield line
            continue
        for asked, opened in unasked(bench(*prompt), questions, ledger, again=again):
            head = f"{line}, {len(opened):,} to ask" + (f" of {asked.name}" if asked.name else "")
            sized = getattr(asked, "estimate", None)
            yield head if sized is None else f"{head}; {sized(opened)}"
