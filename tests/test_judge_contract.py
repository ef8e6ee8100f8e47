"""The contract that any judge passes, and what breaks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import semrecall as sr
from semrecall.judges import Answer, Document, Judge, Question, Reply, Scale, Status
from semrecall.judges.contract import Record
from semrecall.judges.crossencoder import CrossEncoderJudge
from semrecall.judges.function import FunctionJudge
from semrecall.judges.panel import Panel
from semrecall.judges.recorded import RecordedJudge
from semrecall.testing import check_judge


def shares_words(query: str, document: str) -> int:
    return int(any(word in document for word in query.split()))


class Lengths:
    def predict(self, texts: list[tuple[str, str]]) -> list[float]:
        return [float(len(document)) for _, document in texts]


RECORDED = sr.Judgments.from_dict({"q": {0: 1, 1: 2, 3: 0}, "r": {"a": np.nan}})


@pytest.mark.parametrize(
    "judge",
    [
        FunctionJudge(shares_words),
        FunctionJudge(lambda query, document: None, name="mute"),
        RecordedJudge(RECORDED, name="people"),
        CrossEncoderJudge(Lengths(), thresholds=[10, 100], batch=4),
        Panel([FunctionJudge(shares_words), FunctionJudge(lambda q, d: 1, name="yes")]),
    ],
    ids=lambda judge: judge.name,
)
def test_our_judges_pass(judge: Judge) -> None:
    if judge.name == "mute":
        with pytest.raises(AssertionError, match="not one of the pairs has a grade"):
            check_judge(judge)
        return
    check_judge(judge)


def test_a_language_model_passes() -> None:
    pytest.importorskip("aiohttp", reason="needs the extra llm")
    from chat_server import ChatServer

    with ChatServer() as server:
        check_judge(f"llm?model=m&base_url={server.url}")


class Good(Judge):
    name = "good"
    scale = Scale({0: "no", 1: "yes"})

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"good": 1}

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        for question in questions:
            record(Reply(self.said(question)))

    def said(self, question: Question) -> tuple[Answer, ...]:
        return (Answer(question, Status.SETTLED, 1.0),)


class Nameless(Good):
    name = ""


class Forgetful(Good):
    def said(self, question: Question) -> tuple[Answer, ...]:
        return super().said(question) if question.doc_id != 3 else ()


class Doubled(Good):
    def said(self, question: Question) -> tuple[Answer, ...]:
        return super().said(question) * 2


class Strange(Good):
    def said(self, question: Question) -> tuple[Answer, ...]:
        other = replace(question, document=Document("another"))
        return (Answer(other, Status.SETTLED, 1.0),)


class Beyond(Good):
    def said(self, question: Question) -> tuple[Answer, ...]:
        return (Answer(question, Status.SETTLED, 7.0),)


class Sure(Good):
    def said(self, question: Question) -> tuple[Answer, ...]:
        return (Answer(question, Status.SETTLED, 1.0, confidence=1.5),)


class Deaf(Good):
    def answer(self, questions: Iterable[Question], record: Record) -> None:
        for question in questions:
            try:
                record(Reply(self.said(question)))
            except Exception:
                continue


class Changing(Good):
    looks = 0

    @property
    def identity(self) -> Mapping[str, Any]:
        self.looks += 1
        return {"looks": self.looks}


class Confused(Good):
    def key(self, question: Question) -> bytes:
        return b"one"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Nameless, "name is ''"),
        (Forgetful, r"no final answer about the documents \[3\]"),
        (Doubled, "two final answers"),
        (Strange, "was not asked"),
        (Beyond, r"grade 7.0 is not on the scale"),
        (Sure, "confidence of 1.5"),
        (Deaf, "could not be kept"),
        (Changing, "identity changes"),
        (Confused, "has the same key"),
    ],
)
def test_what_breaks_the_contract_is_named(kind: type[Judge], says: str) -> None:
    check_judge(Good)
    with pytest.raises(AssertionError, match=says):
        check_judge(kind)
