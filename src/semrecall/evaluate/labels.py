"""Before measuring: which queries count, the query itself, documents that are the same, spans."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Judgments, Run, Scores
from semrecall.data.answers import unanswerable_in
from semrecall.data.classes import ClassConflicts, Classes, drop_self, selves
from semrecall.data.ids import ids, unify
from semrecall.data.spans import Chunks, Overlap, Spans, judge_chunks
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.measures import Measure, Problem
from semrecall.measures.spans import lay_out_spans
from semrecall.text import plural

if TYPE_CHECKING:
    from semrecall.evaluate.inputs import Inputs

__all__ = ["NO_ANSWER", "apart", "judged_spans", "merge", "restrict", "set_apart", "with_spans"]

#: Numbers of queries and documents are equal by chance in few queries; in more it is no chance.
_BY_CHANCE = 0.1
#: Why a query known to have no answer has no value.
NO_ANSWER = "known to have no answer"


def judged_spans(
    spans: Spans | None, chunks: Chunks | None, overlap: str | Overlap, judgments: Judgments | None
) -> Judgments | None:
    """The judgments given, else those that labelled spans make of the chunks."""
    if (spans is None) != (chunks is None):
        raise InputError(
            f"{'spans' if chunks is None else 'chunks'} were given alone",
            hint="give both: where answers stand in documents, and where the chunks lie",
        )
    if spans is None or chunks is None or judgments is not None:
        return judgments
    return judge_chunks(spans, chunks, overlap)


def restrict(inputs: Inputs, only: Any) -> None:
    """Keep some queries of runs, truth and judgments."""
    chosen = ids(only, what="query ids")
    known = inputs.truth.queries if inputs.truth is not None else None
    if known is None and inputs.judgments is not None:
        known = inputs.judgments.queries
    if known is not None:
        there, wanted = unify(known, chosen)
        before = np.unique(there)
        after = int(np.isin(before, wanted).sum())
        if after == 0 and len(before):
            raise MismatchError(
                f"none of the {len(chosen):,} queries to score is known: they are like "
                + (repr(chosen[0]) if len(chosen) else "none")
                + f", the {'truth' if inputs.truth is not None else 'judgments'} like {known[0]!r}"
            )
        inputs.notes.append(
            f"{after:,} of {plural(len(before), 'query', 'queries')} scored, the others set aside"
        )

    def part(run: Run) -> Run:
        found, wanted = unify(run.queries, chosen)
        return run.select(np.isin(found, wanted))

    inputs.runs = {name: part(run) for name, run in inputs.runs.items()}
    inputs.truth = None if inputs.truth is None else part(inputs.truth)
    inputs.codes = None if inputs.codes is None else part(inputs.codes)
    if inputs.judgments is not None:
        found, wanted = unify(inputs.judgments.queries, chosen)
        inputs.judgments = inputs.judgments.select(np.isin(found, wanted))


def merge(
    inputs: Inputs, *, without_self: bool, same_as: Any, same_conflicts: ClassConflicts
) -> None:
    """Drop what is the query itself, where asked; then let classes of documents count once."""
    if without_self:
        dropped = {what: int(selves(run).sum()) for what, run in inputs.parts().items()}
        inputs.runs = {name: drop_self(run) for name, run in inputs.runs.items()}
        inputs.truth = None if inputs.truth is None else drop_self(inputs.truth)
        inputs.codes = None if inputs.codes is None else drop_self(inputs.codes)
        inputs.judgments = None if inputs.judgments is None else drop_self(inputs.judgments)
        said = ", ".join(f"{count:,} of {what}" for what, count in dropped.items() if count)
        inputs.notes.append(f"results that are the query itself, dropped: {said or 'none'}")
    elif inputs.judgments is not None:
        inputs.notes += _found_themselves(inputs)
    inputs.unmerged = dict(inputs.runs)
    if same_as is None:
        return
    classes = Classes.of(same_as)
    inputs.runs = {name: classes.of_run(run) for name, run in inputs.runs.items()}
    inputs.truth = None if inputs.truth is None else classes.of_run(inputs.truth)
    inputs.codes = None if inputs.codes is None else classes.of_run(inputs.codes)
    if inputs.judgments is not None:
        inputs.judgments = classes.of_judgments(inputs.judgments, conflicts=same_conflicts)
    inputs.notes.append(
        f"documents that are the same count once: {plural(len(classes.members), 'document')} in "
        f"{plural(len(classes), 'class', 'classes')}"
    )


def _found_themselves(inputs: Inputs) -> list[str]:
    """How many queries have their own id first: a document may be the query, or not.

    Row numbers of documents and of queries are equal by chance, so a few of them are not said.
    """
    named = numbered = 0
    for run in inputs.runs.values():
        some = np.diff(run.offsets) > 0
        first = run.documents[run.offsets[:-1][some]]
        queries, documents = unify(run.queries[some], first)
        same = first[(queries == documents) & ~first.missing].strings().tolist()
        numbers = sum(name.removeprefix("-").isdecimal() for name in same)
        named = max(named, len(same) - numbers)
        if numbers >= _BY_CHANCE * len(first):
            numbered = max(numbered, numbers)
    count = named + numbered
    if not count:
        return []
    equal = "query id equals" if count == 1 else "query ids equal"
    chance = " (numbers may be equal by chance)" if numbered else ""
    return [
        f"{count:,} {equal} the id of the first result{chance}; --drop-self (drop_self=True in "
        "Python) leaves such results out"
    ]


def set_apart(inputs: Inputs, unanswerable: Any, columns: Any) -> None:
    """Note which queries are known to have no answer, by their ids or a column `answerable`."""
    known = unanswerable_in(columns) if unanswerable is None else ids(unanswerable)
    if known is None or len(known) == 0:
        return
    inputs.unanswerable = known
    columns = [run.queries for run in inputs.parts().values()]
    columns += [] if inputs.judgments is None else [inputs.judgments.queries]
    there = np.zeros(len(known), dtype=bool)
    for column in columns:
        asked, found = unify(known, column)
        there |= np.isin(asked, found)
    if not there.any():
        like = next(
            (f", whose ids are like {column[0]!r}" for column in columns if len(column)), ""
        )
        warnings.warn(
            f"none of the {plural(len(known), 'query', 'queries')} known to have no answer, like "
            f"{known[0]!r}, is among the queries{like}; nothing is kept apart",
            SemrecallWarning,
            stacklevel=3,
        )
        return
    inputs.notes.append(
        f"{plural(int(there.sum()), 'query', 'queries')} known to have no answer, kept apart from "
        "the means of measures by judgments (see semrecall abstention)"
    )
    judgments = inputs.judgments
    if judgments is None:
        return
    without, judged = unify(known, judgments.queries)
    at = np.flatnonzero(np.isin(judged, without) & (judgments.grades >= 1))
    if len(at):
        count = len(np.unique(judged[at]))
        warnings.warn(
            f"{plural(count, 'query', 'queries')} known to have no answer, yet with a document of "
            f"grade 1 or more, first: query {judgments.queries[int(at[0])]!r}, document "
            f"{judgments.documents[int(at[0])]!r}",
            SemrecallWarning,
            stacklevel=3,
        )


def apart(measure: Measure, scores: Scores, unanswerable: Ids | None) -> Scores:
    """The scores without a value for queries that are known to have no answer.

    Measures against the exact neighbours alone keep theirs: an index has something to find.
    """
    if unanswerable is None or not measure.needs & {"judgments", "spans"}:
        return scores
    queries, without = unify(scores.queries, unanswerable)
    gone = np.isin(queries, without)
    if not gone.any():
        return scores
    pairs = zip(gone.tolist(), scores.reasons, strict=True)
    return Scores(
        scores.measure,
        scores.queries,
        np.where(gone, np.nan, scores.values),
        tuple(NO_ANSWER if out else reason for out, reason in pairs),
        scores.notes,
    )


def with_spans(problem: Problem, run: Run, spans: tuple[Spans, Chunks] | None) -> Problem:
    """The problem with labelled spans beside the chunks that the run retrieved."""
    if spans is None:
        return problem
    return replace(problem, spans=lay_out_spans(problem.queries, run, *spans))
