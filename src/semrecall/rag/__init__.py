"""rag(): measures of what a generator read, and of what it answered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semrecall.data import Judgments
from semrecall.data.slices import column_slices
from semrecall.errors import InputError, MeasureError
from semrecall.judges import Judge, Ledger
from semrecall.judges.contract import Status
from semrecall.judging import status_named
from semrecall.measures import Measure
from semrecall.measures.grammar import parse_all
from semrecall.measures.verdicts import Verdicts
from semrecall.rag.asking import needed, sides_of, verdicts_of, verdicts_wanted
from semrecall.rag.cases import cases_of
from semrecall.rag.claims import Claims, Maker, Splitter, claims_of, maker, sentences
from semrecall.rag.judges import Bench
from semrecall.rag.likeness import Embedding, with_likeness
from semrecall.rag.progress import Progress
from semrecall.rag.records import Context, Record, records, run_name
from semrecall.rag.result import RagResult, Row
from semrecall.rag.writing import CLAIMS, QUESTIONS, Writer
from semrecall.stats.intervals import check_confidence
from semrecall.text import plural

__all__ = [
    "DEFAULT", "Claims", "Context", "RagResult", "Record", "Row", "chosen", "rag", "records",
    "sentences",
]  # fmt: skip

DEFAULT = ("context_precision", "context_recall", "faithfulness", "answer_relevancy")


def rag(
    source: Any,
    measures: str | Measure | Sequence[str | Measure] = DEFAULT,
    *,
    judge: Judge | str | None = None,
    verdicts: Judgments | None = None,
    claims: Splitter | str | None = None,
    questions: Splitter | None = None,
    embed: Embedding | None = None,
    ledger: Ledger | Path | str | None = None,
    again: Collection[Status | str] = (),
    by: str | Sequence[str] = (),
    name: str | None = None,
    progress: Progress | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> RagResult:
    """Measures of contexts and answers: context precision and recall, faithfulness, relevancy, ...

    source: records, or the path of JSON lines, JSON or parquet, or a frame: question, contexts
        (ids and texts), answer, reference; the names of common frameworks are understood
        (docs/rag.md).
    judge: who gives verdicts: a Judge, or a spec ("llm?model=gpt-5-mini"). A model is asked with
        the prompt of each kind of verdict, whatever prompt it has; all spend from one budget.
    verdicts: labels that are there already, by the ids that `semrecall rag --pairs` shows; instead
        of a judge.
    claims: who breaks answers into claims: "model", "sentences", or a function from texts to the
        claims of each (None where there are none to be had). By default the model where there is
        one. Records may bring their own.
    questions, embed: for answer_relevancy(form=questions): a function from answers to the
        questions that each answers, by default the model; and what makes vectors of texts: a spec
        ("openai:text-embedding-3-small"), an Embedder, or a function.
    ledger: where every attempt and verdict is kept; what it holds is not asked again.
    again: statuses without a verdict to ask once more. by: columns of the records to slice by.
    name: of the run in the result. progress: see `Progress`; shows the work as it is done.

    A question whose verdicts are not all there has no value: it is counted, with the reason, and
    the mean stands between `worst` and `best`. Raises InputError where somebody has to judge and
    nobody is named, Stopped when the judge had to stop; what is judged is kept in the ledger.
    """
    check_confidence(confidence)
    wanted, found = chosen(measures), records(source)
    statuses = [status_named(status) for status in again]
    kinds = needed(wanted)
    bench = Bench(judge, verdicts)
    if kinds and not bench.name:
        bench(*_ANY)
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    try:
        work = _Work(bench, book, statuses, progress)
        sides = sides_of(kinds)
        made = claims_of(found, work.claims(claims, sides), sides)
        strange = bench.fit(verdicts_wanted(found, made, kinds), found, made)
        given = verdicts_of(found, made, kinds, bench, book, again=statuses, progress=progress)
        known = cases_of(found, made, kinds, given, strange)
        if any(m.settings.get("form") == "questions" for m in wanted):
            known = with_likeness(found, known, work.questions(questions), embed)
    finally:
        bench.close()
        if book is not ledger:
            book.close()
    run = name or run_name(source)
    problem = Verdicts([record.id for record in found], known)
    columns = [by] if isinstance(by, str) else list(by)
    return RagResult(
        runs=(run,),
        measures=tuple(wanted),
        queries=problem.queries,
        scores={(run, str(m)): m.values(problem) for m in wanted},  # type: ignore[arg-type]
        sizes={},
        counts={},
        slices={s.column: s for s in column_slices(_columns(found), columns, problem.queries)},
        splits=(),
        problems={run: problem},  # type: ignore[dict-item]
        notes=(*_notes(found, made, work.by_model), *_silent(made, kinds), *bench.remarks()),
        seed=seed,
        confidence=confidence,
        records=tuple(found),
        claims=tuple(made),
        cases=tuple(known),
        judge=bench.name,
    )


#: Any prompt: where nobody judges, asking for a judge says so.
_ANY = ("support", "binary")


def chosen(measures: str | Measure | Sequence[str | Measure]) -> list[Measure]:
    """The measures by name. Raises MeasureError for one of other layers."""
    found = parse_all(measures)
    other = [str(m) for m in found if "verdicts" not in m.needs]
    if other:
        raise MeasureError(
            f"{', '.join(other)}: no measure of contexts or answers",
            hint="rankings are measured by semrecall score (sr.evaluate)",
        )
    if not found:
        raise MeasureError("no measure is named")
    return found


@dataclass
class _Work:
    """Who writes claims and questions."""

    bench: Bench
    ledger: Ledger
    again: Sequence[Status]
    progress: Progress | None
    by_model: bool = False

    def claims(self, given: Splitter | str | None, sides: Collection[str]) -> Maker | None:
        """What makes claims; None for sentences."""
        if callable(given):
            return maker(given)
        if given not in (None, "model", "sentences"):
            raise InputError(f"claims is {given!r}; expected 'model', 'sentences', or a function")
        if given == "model" and self.bench.model is None:
            raise InputError("no model is named to make claims", hint="--model gpt-5-mini")
        if (
            given == "sentences"
            or self.bench.model is None
            or not {"answer", "reference"} & set(sides)
        ):
            return None
        self.by_model = True
        return self._writer(CLAIMS)

    def questions(self, given: Splitter | None) -> Maker | None:
        """What makes questions of answers; None where nobody can."""
        if given is not None:
            return maker(given)
        return None if self.bench.model is None else self._writer(QUESTIONS)

    def _writer(self, prompt: str) -> Writer:
        assert self.bench.model is not None
        return Writer(
            self.bench.model, prompt, self.ledger, again=self.again, progress=self.progress
        )


def _columns(found: Sequence[Record]) -> Mapping[str, list[Any]]:
    names = dict.fromkeys(name for record in found for name in record.columns)
    return {
        "query_id": [record.id for record in found],
        **{name: [record.columns.get(name) for record in found] for name in names},
    }


def _notes(found: Sequence[Record], made: Sequence[Claims], by_model: bool) -> Iterator[str]:
    """What a reader should know of the input."""
    counts: Iterable[tuple[int, str]] = (
        (sum("contexts" in r.lacks for r in found), "whose record has no contexts"),
        (
            sum(not r.contexts and "contexts" not in r.lacks for r in found),
            "without a context: nothing was retrieved",
        ),
        (sum("answer" in r.lacks for r in found), "whose record has no answer"),
        (sum(not r.answer and "answer" not in r.lacks for r in found), "with an empty answer"),
        (sum(_reads_twice(r) for r in found), "whose contexts hold one passage twice"),
    )
    yield from (f"{plural(count, 'question')} {what}" for count, what in counts if count)
    claims = np.array([len(one.answer) for one in made])
    if claims.any():
        by = "made by the model" if by_model else "as given, or sentences"
        yield (
            f"{plural(int(claims.sum()), 'claim')} in the answers ({by}), "
            f"{claims.mean():.1f} a question"
        )
    lost = sum(
        cited not in {context.id for context in record.contexts}
        for record, one in zip(found, made, strict=True)
        for cites in one.cited or ()
        for cited in cites
    )
    if lost:
        yield f"{plural(lost, 'citation')} of contexts that were not read: they support nothing"


def _silent(made: Sequence[Claims], kinds: Collection[str]) -> Iterator[str]:
    """How many answers cite nothing, where citations are measured."""
    count = sum(bool(one.statements) and not any(one.cited or ()) for one in made)
    if count and {"cited_by", "cited_support"} & set(kinds):
        yield (
            f"{plural(count, 'answer')} {'cites' if count == 1 else 'cite'} nothing (no mark such "
            "as [1], no citations in the record): 0, as in ALCE"
        )


def _reads_twice(record: Record) -> bool:
    texts = [context.text for context in record.contexts if context.text]
    return len(set(texts)) < len(texts)
