"""The generated-question form of answer relevancy: questions made from answers, compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from semrecall.errors import InputError
from semrecall.measures.verdicts import Case
from semrecall.rag.records import Record

__all__ = ["Asker", "with_likeness"]

#: From answers to the questions each could answer; none for an evasive one, None for a failure.
Asker = Callable[[Sequence[str]], Sequence[Sequence[str] | None]]


def with_likeness(
    records: Sequence[Record],
    cases: Sequence[Case],
    ask: Asker | None,
    embed: Callable[[Sequence[str]], Any] | None,
) -> list[Case]:
    """The cases with the cosine similarity of each question and those made from its answer.

    Raises InputError without a maker of questions or of vectors.
    """
    if ask is None or embed is None:
        raise InputError(
            "answer_relevancy(form=questions) needs questions made from answers, and vectors",
            hint="give a model (--model) and an embedding (--embed); in Python questions=, embed=",
        )
    answered = [at for at, record in enumerate(records) if record.answer]
    made = dict(zip(answered, ask([records[at].answer for at in answered]), strict=True))
    texts = [records[at].question for at in answered]
    for at in answered:
        texts += list(made[at] or ())
    vectors = np.asarray(embed(texts), dtype=np.float64) if texts else np.zeros((0, 1))
    if vectors.shape[:1] != (len(texts),) or vectors.ndim != 2:
        raise InputError(
            f"the embedding gave an array of shape {vectors.shape} for {len(texts)} texts"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    found, place = list(cases), len(answered)
    for own, at in enumerate(answered):
        questions = made[at]
        if questions is None:
            faults = {**cases[at].faults, "likeness": "no questions could be made"}
            found[at] = replace(cases[at], faults=faults)
            continue
        others = units[place : place + len(questions)]
        place += len(questions)
        found[at] = replace(cases[at], likeness=others @ units[own])
    return found
