"""The generated-question form of answer relevancy: questions made from answers, compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from semrecall.embeddings import Embedder, embed
from semrecall.errors import InputError
from semrecall.measures.verdicts import Case
from semrecall.rag.claims import Maker
from semrecall.rag.records import Record

__all__ = ["Embedding", "vectors_by", "with_likeness"]

#: What makes vectors (n, d) of texts: a spec, an Embedder, or a function of the texts.
Embedding = str | Embedder | Callable[[Sequence[str]], Any]


def with_likeness(
    records: Sequence[Record],
    cases: Sequence[Case],
    make: Maker | None,
    embedding: Embedding | None,
) -> list[Case]:
    """The cases with the cosine similarity of each question and those made from its answer.

    make: questions of (question, answer), which is told no question. Raises InputError without it,
    or without vectors.
    """
    if make is None or embedding is None:
        raise InputError(
            "answer_relevancy(form=questions) needs questions made from answers, and vectors",
            hint="give a model (--model) and an embedding (--embed); in Python questions=, embed=",
        )
    answered = [at for at, record in enumerate(records) if record.answer]
    asked = list(dict.fromkeys(("", records[at].answer) for at in answered))
    made = dict(zip((answer for _, answer in asked), make(asked), strict=True))
    texts = dict.fromkeys(
        text
        for at in answered
        for text in (records[at].question, *_listed(made[records[at].answer]))
    )
    units = dict(zip(texts, vectors_by(embedding, list(texts)), strict=True))
    found = list(cases)
    for at in answered:
        questions = made[records[at].answer]
        if isinstance(questions, str):
            faults = {**cases[at].faults, "likeness": questions}
            found[at] = replace(cases[at], faults=faults)
            continue
        own = units[records[at].question]
        likeness = np.array([units[text] @ own for text in questions], dtype=np.float64)
        found[at] = replace(cases[at], likeness=likeness)
    return found


def _listed(made: Sequence[str] | str) -> Sequence[str]:
    return () if isinstance(made, str) else made


def vectors_by(embedding: Embedding, texts: Sequence[str]) -> Any:
    """Vectors (n, d) of length one, float64; one of zeros stays."""
    if not texts:
        return np.zeros((0, 1))
    made = (
        embed(texts, embedding).require_matrix()
        if isinstance(embedding, str | Embedder)
        else embedding(texts)
    )
    vectors = np.asarray(made, dtype=np.float64)
    if vectors.shape[:1] != (len(texts),) or vectors.ndim != 2:
        raise InputError(
            f"the embedding gave an array of shape {vectors.shape} for {len(texts)} texts"
        )
    if not np.isfinite(vectors).all():
        raise InputError("the embedding gave a vector with a value that is not finite")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
