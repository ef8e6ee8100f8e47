"""evaluate(): runs against truth and judgments, in one call; compare(): runs in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semrecall.data import Judgments, Run
from semrecall.data.classes import ClassConflicts
from semrecall.data.slices import Slice
from semrecall.data.spans import DEFAULT_RULE, Chunks, Overlap, Spans
from semrecall.errors import InputError
from semrecall.evaluate.comparison import Comparison, Moved
from semrecall.evaluate.inputs import Inputs, named_runs
from semrecall.evaluate.labels import judged_spans, merge, restrict, set_apart
from semrecall.evaluate.paired import Gap, Paired
from semrecall.evaluate.result import Missed, Result, RunCounts, Summary
from semrecall.evaluate.single import Found
from semrecall.evaluate.split import LossSplit
from semrecall.evaluate.tied import Tied
from semrecall.evaluate.unjudged import Unjudged
from semrecall.evaluate.values import Evaluation, chosen_measures
from semrecall.measures import Measure, NoRelevant

__all__ = [
    "Comparison",
    "Found",
    "Gap",
    "LossSplit",
    "Missed",
    "Moved",
    "Paired",
    "Result",
    "RunCounts",
    "Slice",
    "Summary",
    "Tied",
    "Unjudged",
    "compare",
    "evaluate",
]


def evaluate(
    runs: Any,
    measures: str | Measure | Sequence[str | Measure],
    *,
    truth: Run | None = None,
    judgments: Judgments | None = None,
    base: Any = None,
    queries: Any = None,
    columns: Any = None,
    by: str | Sequence[str] = (),
    codes: Run | None = None,
    deleted: Any = None,
    only: Any = None,
    drop_self: bool = False,
    same_as: Any = None,
    same_conflicts: ClassConflicts = "max",
    unanswerable: Any = None,
    spans: Spans | None = None,
    chunks: Chunks | None = None,
    overlap: str | Overlap = DEFAULT_RULE,
    no_relevant: NoRelevant = "skip",
    seed: int = 0,
    confidence: float = 0.95,
) -> Result:
    """Measure one run or several against truth, judgments, or both.

    runs: a Run, {name: Run}, or a list of runs.
    measures: names such as "srecall@100".
    truth: the run of exact search. judgments: grades of (query, document) pairs.
    base, queries: Vectors, arrays or paths; then all scores are recomputed in float64, and the
        truth is checked to belong to them. Rows are matched by id.
    columns: a frame or mapping with query_id and further columns of the queries.
    by: names of columns to slice by; "sn" is the number of semantic neighbours.
    codes: the run of exact search over the quantised vectors; splits each loss in two.
    deleted: ids of documents that exist no more; they leave truth and judgments.
    only: ids of the queries to score, e.g. a part of a split; the others are set aside.
    drop_self: leave out documents whose id equals the query id.
    same_as: which documents are the same (Classes, {id: id it is the same as}, or pairs of ids);
        they count once. same_conflicts: grades that differ within a class: "max" takes the
        highest, with a warning, "error" refuses.
    unanswerable: ids of queries known to have no answer, kept apart from the means of measures by
        judgments; else a column `answerable` of `columns` says so.
    spans, chunks: labels on spans of documents, and the chunks that were searched; without
        judgments, those follow by the rule `overlap` (see `judge_chunks`).
    no_relevant: a query without a relevant document has no value and is left out ("skip"), or
        counts as 0 as in trec_eval ("zero").
    seed, confidence: of the bootstrap intervals.

    Raises MismatchError where inputs do not belong together, MeasureError for a measure that is
    unknown or needs what was not given.
    """
    judgments = judged_spans(spans, chunks, overlap, judgments)
    inputs = Inputs(named_runs(runs), truth, judgments, codes, no_relevant=no_relevant)
    if truth is None and judgments is None:
        raise InputError(
            "nothing to compare with; expected truth, judgments, or both",
            hint="semrecall.truth(base, queries, k, space) finds the exact neighbours",
        )
    wanted = chosen_measures(measures, truth, judgments)
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; expected a number between 0 and 1")
    if seed < 0:
        raise InputError(f"seed is {seed}; expected a whole number of at least 0")
    if only is not None:
        restrict(inputs, only)
    if same_as is None:
        inputs.check()
    if deleted is not None:
        inputs.drop(deleted)
    if base is not None or queries is not None:
        inputs.rescore(base, queries)
    merge(inputs, without_self=drop_self, same_as=same_as, same_conflicts=same_conflicts)
    if same_as is not None:
        # Ids that do not meet by name may meet as classes.
        inputs.check()
    set_apart(inputs, unanswerable, columns)
    inputs.spans = None if spans is None or chunks is None else (spans, chunks)
    evaluation = Evaluation(inputs, wanted)
    slices = evaluation.slices(columns, [by] if isinstance(by, str) else list(by))
    return Result(
        runs=tuple(inputs.runs),
        measures=tuple(wanted),
        queries=evaluation.queries,
        scores=evaluation.scores,
        sizes=evaluation.sizes(),
        counts=evaluation.counts(),
        slices={part.column: part for part in slices},
        splits=evaluation.splits(),
        problems=evaluation.problems,
        truth=inputs.truth,
        judgments=inputs.judgments,
        semantic=evaluation.semantic,
        given=inputs.runs,
        codes=codes,
        notes=evaluation.notes(),
        seed=seed,
        confidence=confidence,
    )


def compare(
    runs: Any,
    measures: str | Measure | Sequence[str | Measure] = (),
    *,
    truth: Run | None = None,
    judgments: Judgments | None = None,
    base: Any = None,
    queries: Any = None,
    columns: Any = None,
    by: str | Sequence[str] = (),
    no_relevant: NoRelevant = "skip",
    baseline: str | None = None,
    test: str = "randomisation",
    correction: str = "holm",
    interval: str = "t",
    seed: int = 0,
    confidence: float = 0.95,
    margin: float | None = None,
) -> Comparison:
    """Compare two or more runs over the same queries: how far apart, how sure, for which queries.

    runs: {name: Run}, a list of runs, or a Result of `evaluate` (then nothing of what it was made
        from is given again).
    measures, truth, judgments, base, queries, columns, by, no_relevant: as in `evaluate`. With
        `by`, all is done within each slice too, and each slice is set against the rest.
    baseline: the run that all others are compared with; without it, every pair is compared.
    test: "randomisation", "t", "wilcoxon" or "sign", two-sided, over queries that both define.
    correction: of the p-values for their number: "holm", "bonferroni", "bh" or "none".
    interval: of a difference: "t", or "bootstrap" with the same resamples for all of them.
    margin: a difference smaller than this does not matter; tests that it is so.

    Raises the errors of `evaluate`, and InputError for fewer than two runs or an unknown name.
    """
    settings = {
        "baseline": baseline,
        "test": test,
        "correction": correction,
        "interval": interval,
        "margin": margin,
        "seed": seed,
        "confidence": confidence,
    }
    if isinstance(runs, Result):
        return Comparison.from_result(runs, **settings)
    result = evaluate(
        runs,
        measures,
        truth=truth,
        judgments=judgments,
        base=base,
        queries=queries,
        columns=columns,
        by=by,
        no_relevant=no_relevant,
        seed=seed,
        confidence=confidence,
    )
    return Comparison.from_result(result, **settings)
