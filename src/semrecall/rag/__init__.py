"""rag(): measures of what a generator read, and of what it answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semrecall.data import Judgments
from semrecall.data.slices import column_slices
from semrecall.errors import InputError, MeasureError
from semrecall.judges import Judge, Ledger, open_judge
from semrecall.judges.contract import Reply, Status
from semrecall.judges.recorded import RecordedJudge
from semrecall.measures import Measure
from semrecall.measures.grammar import parse_all
from semrecall.measures.verdicts import Verdicts
from semrecall.rag.asking import JudgeFor, cases
from semrecall.rag.claims import Claims, Splitter, claims_of, sentences
from semrecall.rag.likeness import Asker, with_likeness
from semrecall.rag.records import Context, Record, records
from semrecall.rag.result import RagResult, Row
from semrecall.stats.intervals import check_confidence
from semrecall.text import plural

__all__ = [
    "Claims", "Context", "RagResult", "Record", "Row", "rag", "records", "sentences",
]  # fmt: skip

DEFAULT = ("context_precision", "context_recall", "faithfulness", "answer_relevancy")


def rag(
    source: str | Path | Iterable[Mapping[str, Any] | Record],
    measures: str | Measure | Sequence[str | Measure] = DEFAULT,
    *,
    judge: Judge | str | JudgeFor | None = None,
    verdicts: Judgments | None = None,
    claims: Splitter | None = None,
    questions: Asker | None = None,
    embed: Callable[[Sequence[str]], Any] | None = None,
    ledger: Ledger | Path | str | None = None,
    again: Collection[Status] = (),
    by: str | Sequence[str] = (),
    watch: Callable[[Reply], None] | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> RagResult:
    """Measures of contexts and answers: context precision and recall, faithfulness, relevancy, ...

    source: records, or the path of JSON lines, JSON or parquet: question, contexts (ids and
        texts), answer, reference; the names of common frameworks are understood (docs/rag.md).
    judge: who gives verdicts: a spec ("llm?model=gpt-5-mini"), a Judge for all of them, or a
        function of a prompt and a scale that makes one ("support", "binary").
    verdicts: labels that are there already, by the ids that `semrecall rag --pairs` shows; instead
        of a judge.
    claims: makes the claims of texts; sentences when None. Records may bring their own.
    questions, embed: for answer_relevancy(form=questions): make questions from answers, and
        vectors (n, d) of texts.
    ledger: where every verdict is kept; what it holds is not asked again.
    again: statuses without a verdict to ask once more. by: columns of the records to slice by.

    A question whose verdicts are not all there has no value: it is counted, with the reason, and
    the mean stands between `worst` and `best`. Raises InputError where somebody has to judge and
    nobody is named, Stopped when the judge had to stop.
    """
    check_confidence(confidence)
    wanted = _measures(measures)
    found = records(source)
    made = claims_of(found, claims)
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    try:
        judge_for = _judge_for(judge, verdicts)
        known = cases(found, made, wanted, judge_for, book, again=again, watch=watch)
    finally:
        if book is not ledger:
            book.close()
    if any(m.name == "answer_relevancy" and m.settings["form"] == "questions" for m in wanted):
        known = with_likeness(found, known, questions, embed)
    problem = Verdicts([record.id for record in found], known)
    names = [by] if isinstance(by, str) else list(by)
    return RagResult(
        measures=tuple(wanted),
        queries=problem.queries,
        scores={str(m): m.values(problem) for m in wanted},  # type: ignore[arg-type]
        records=tuple(found),
        claims=tuple(made),
        cases=tuple(known),
        slices={s.column: s for s in column_slices(_columns(found), names, problem.queries)},
        judge=judge if isinstance(judge, str) else getattr(judge, "name", ""),
        notes=tuple(_notes(found, made)),
        seed=seed,
        confidence=confidence,
    )


def _measures(given: str | Measure | Sequence[str | Measure]) -> list[Measure]:
    found = parse_all(given)
    other = [str(m) for m in found if "verdicts" not in m.needs]
    if other:
        raise MeasureError(
            f"{', '.join(other)}: no measure of contexts or answers",
            hint="rankings are measured by semrecall score (sr.evaluate)",
        )
    if not found:
        raise MeasureError("no measure is named")
    return found


def _judge_for(judge: Judge | str | JudgeFor | None, verdicts: Judgments | None) -> JudgeFor | None:
    if verdicts is not None:
        if judge is not None:
            raise InputError("a judge and verdicts are given; expected one of them")
        recorded = RecordedJudge(verdicts)
        return lambda prompt, scale: recorded
    if isinstance(judge, Judge):
        return lambda prompt, scale: judge
    if isinstance(judge, str):
        return lambda prompt, scale: open_judge(judge, prompt=prompt, scale=scale)
    return judge


def _columns(found: Sequence[Record]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for record in found for name in record.columns)
    return {
        "query_id": [record.id for record in found],
        **{name: [record.columns.get(name) for record in found] for name in names},
    }


def _notes(found: Sequence[Record], made: Sequence[Claims]) -> Iterable[str]:
    """What a reader should know of the input."""
    unread = sum(not record.contexts for record in found)
    if unread:
        yield f"{plural(unread, 'question')} without a context: nothing was retrieved"
    silent = sum(not record.answer for record in found)
    if silent:
        yield f"{plural(silent, 'question')} without an answer"
    count = np.array([len(one.answer) for one in made])
    if count.any():
        yield f"{int(count.sum()):,} claims in the answers, {count.mean():.1f} a question"
    lost = sum(
        name not in {context.id for context in record.contexts}
        for record, one in zip(found, made, strict=True)
        for cited in one.cited or ()
        for name in cited
    )
    if lost:
        yield f"{plural(lost, 'citation')} of contexts that were not read: they support nothing"
