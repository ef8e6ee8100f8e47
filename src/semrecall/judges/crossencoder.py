"""A cross-encoder as a judge: a score for each pair, cut into grades where labels say so."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError, JudgeFault
from semrecall.judges.contract import Answer, Judge, Question, Record, Reply, Scale, Status
from semrecall.registry import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CrossEncoderJudge", "calibrated"]


class CrossEncoderJudge(Judge):
    """Grades a pair by how many of the thresholds its score reaches.

    model: the name or folder of a sentence-transformers CrossEncoder, or an object with its
        `predict(list of (query, document)) -> scores`.
    thresholds: rising scores from which grades 1, 2, ... begin; `calibrated` finds them from
        labels of people. Scores of models are on scales of their own, so there is no default.
    relevant: the lowest grade that counts. max_length: tokens the model reads of a pair. device:
        "cpu", "cuda", ...; chosen by the library when None. version: of a model that is an object.

    The score stands in the reason. Raises MissingExtra without sentence-transformers.
    """

    def __init__(
        self,
        model: Any,
        *,
        thresholds: Sequence[float] | float | None = None,
        relevant: int = 1,
        batch: int = 32,
        max_length: int | None = None,
        device: str | None = None,
        name: str | None = None,
        version: str = "",
    ) -> None:
        self._cut_at(thresholds, relevant)
        if batch < 1:
            raise InputError(f"batch is {batch}; expected at least 1")
        self._called = model if isinstance(model, str) else type(model).__name__
        self.name = name or f"crossencoder:{self._called}"
        self._model = None if isinstance(model, str) else model
        self._batch, self._max_length, self._device = batch, max_length, device
        self._version = version

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and the thresholds."""
        return {
            "model": self._called,
            "thresholds": list(self.thresholds),
            "max_length": self._max_length,
            "version": self._version,
        }

    def with_thresholds(self, thresholds: Sequence[float]) -> CrossEncoderJudge:
        """The same model with these thresholds."""
        made = self.copied()
        made._cut_at(thresholds, self.scale.relevant)
        return made

    def _cut_at(self, thresholds: Sequence[float] | float | None, relevant: float) -> None:
        cuts = [thresholds] if isinstance(thresholds, int | float) else list(thresholds or [])
        if any(b <= a for a, b in pairwise(cuts)) or not np.isfinite(cuts).all():
            raise InputError(f"thresholds are {cuts}; expected rising numbers")
        self.thresholds = tuple(float(cut) for cut in cuts)
        self.scale = Scale({g: f"grade {g}" for g in range(max(len(cuts), 1) + 1)}, relevant)

    def scores(self, questions: Sequence[Question]) -> NDArray[np.float64]:
        """The model's score of each question, (n,)."""
        texts = [(question.query, question.document.text) for question in questions]
        if not texts:
            return np.zeros(0)
        found = np.asarray(self._opened().predict(texts), dtype=np.float64)
        if found.shape != (len(texts),):
            raise JudgeFault(
                f"{self._called} gave scores of shape {found.shape} for {len(texts)} pairs; "
                "expected one score a pair",
                hint="take a model with one output (num_labels=1)",
            )
        return found

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Score in batches; a score that is no number is no label."""
        if not self.thresholds:
            raise InputError(
                f"{self.name} has no thresholds",
                hint="find them from labels of people: --calibrate-with FILE, or calibrated(...) "
                "in Python",
            )
        waiting = iter(questions)
        while taken := list(islice(waiting, self._batch)):
            block = []
            for question in taken:
                if (skipped := self.passed_over(question)) is None:
                    block.append(question)
                else:
                    record(skipped)
            if not block:
                continue
            start = time.perf_counter()
            scores = self.scores(block)
            seconds = time.perf_counter() - start
            record(
                Reply(
                    tuple(
                        self._answer(question, float(score))
                        for question, score in zip(block, scores, strict=True)
                    ),
                    latency_seconds=seconds,
                )
            )

    def _answer(self, question: Question, score: float) -> Answer:
        if not np.isfinite(score):
            return Answer(question, Status.ILLEGAL, reason=f"score {score}")
        grade = float(np.searchsorted(self.thresholds, score, side="right"))
        return Answer(question, Status.SETTLED, grade, f"score {score:.6g}")

    def _opened(self) -> Any:
        if self._model is None:
            library = import_extra(
                "sentence_transformers", "crossencoder", "the judge crossencoder"
            )
            options = {"max_length": self._max_length} if self._max_length else {}
            self._model = library.CrossEncoder(self._called, device=self._device, **options)
        return self._model


def calibrated(scores: Any, grades: Any) -> tuple[float, ...]:
    """Thresholds that cut scores (n,) into the grades (n,) that people gave: 1, 2, ...

    The cut below a grade is the one at which "score reaches it" and "grade reaches it" have the
    highest kappa, taken midway between neighbouring scores; cuts rise. Grades without a single
    label below or above have no cut, and raise InputError, as do fewer than two distinct scores.
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(grades, dtype=np.float64)
    if values.shape != labels.shape or values.ndim != 1:
        raise InputError(f"scores have shape {values.shape}, grades {labels.shape}")
    known = np.isfinite(values) & np.isfinite(labels)
    values, labels = values[known], labels[known]
    levels = range(1, int(labels.max(initial=0)) + 1)
    cuts = [_cut(values, labels >= level) for level in levels]
    if not cuts or None in cuts:
        raise InputError(
            "these labels cannot place the thresholds: "
            + ("none is above 0" if not cuts else "all pairs, or none, reach a grade"),
            hint="label some relevant and some irrelevant pairs",
        )
    rising = np.maximum.accumulate(np.array(cuts, dtype=np.float64))
    for at in range(1, len(rising)):
        if rising[at] <= rising[at - 1]:
            rising[at] = np.nextafter(rising[at - 1], np.inf)
    return tuple(rising.tolist())


def _cut(values: NDArray[np.float64], reached: NDArray[np.bool_]) -> float | None:
    """The threshold of highest kappa; None where nothing is to be told apart."""
    order = np.argsort(values, kind="stable")
    ranked, yes = values[order], reached[order]
    n, positive = len(values), int(yes.sum())
    edges = np.flatnonzero(np.diff(ranked) > 0) + 1  # a cut before each of these
    if positive in (0, n) or not len(edges):
        return None
    below_yes = np.cumsum(yes)[edges - 1]
    called = n - edges
    both = positive - below_yes
    agreed = (2 * both + n - positive - called) / n
    chance = (called * positive + (n - called) * (n - positive)) / n**2
    kappa = (agreed - chance) / (1 - chance)
    best = int(edges[np.argmax(kappa)])
    return float((ranked[best - 1] + ranked[best]) / 2)
