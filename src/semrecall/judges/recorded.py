"""Labels recorded in a file, as a judge: qrels, labels of people, or of another run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from semrecall.data import Judgments
from semrecall.formats import read_judgments
from semrecall.judges.contract import Answer, Judge, Question, Record, Reply, Scale, Status, digest

__all__ = ["RecordedJudge"]


class RecordedJudge(Judge):
    """Answers by the ids of a pair; a pair that is not recorded has the status "unknown".

    labels: Judgments, or the path of a file of them; `grade` names its column of grades.
    relevant: the lowest grade that counts. Its attribute `labels` holds them all.
    """

    reads_texts = False

    def __init__(
        self,
        labels: Judgments | Path | str,
        *,
        grade: str | None = None,
        name: str | None = None,
        relevant: float = 1,
    ) -> None:
        if not isinstance(labels, Judgments):
            name = name or Path(labels).name
            labels = read_judgments(labels, grade=grade)
        self.labels, self.name = labels, name or labels.name or "recorded"
        found = sorted({*labels.grades[~np.isnan(labels.grades)].tolist(), 0.0, 1.0})
        lowest = next((g for g in found if g >= relevant), found[-1])
        self.scale = Scale({g: f"grade {g:g}" for g in found}, lowest)
        reasons = labels.details.get("reason", [None] * len(labels))
        self._known = {
            (str(query), str(document)): (float(grade), str(reason or ""))
            for query, document, grade, reason in zip(
                labels.queries, labels.documents, labels.grades, reasons, strict=True
            )
        }

    @property
    def identity(self) -> Mapping[str, Any]:
        """Its name and a hash of its labels."""
        whole = hashlib.sha256()
        for pair, (grade, _) in sorted(self._known.items()):
            whole.update(digest(*pair, repr(grade)))
        return {"name": self.name, "labels": whole.hexdigest()}

    def key(self, question: Question) -> bytes:
        """By ids: equal texts may have been given different labels."""
        return digest(self.fingerprint, str(question.query_id), str(question.doc_id))[:16]

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Look each pair up."""
        for question in questions:
            pair = str(question.query_id), str(question.doc_id)
            grade, reason = self._known.get(pair, (np.nan, ""))
            if np.isnan(grade):
                answer = Answer(question, Status.UNKNOWN, reason=reason)
            else:
                answer = Answer(question, Status.SETTLED, grade, reason)
            record(Reply((answer,), answer.status, calls=0))
