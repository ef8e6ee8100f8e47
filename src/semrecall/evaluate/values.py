"""The values behind a Result: every measure for every run, and what is to be said beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Judgments, Run, Scores
from semrecall.data.ids import unify
from semrecall.data.slices import SN, Semantic, Slice, column_slices
from semrecall.errors import InputError, MeasureError
from semrecall.evaluate.inputs import Inputs
from semrecall.evaluate.labels import apart, with_spans
from semrecall.evaluate.result import RunCounts, leading_k
from semrecall.evaluate.split import LossSplit
from semrecall.measures import (
    Measure,
    Problem,
    align,
    half_precision,
    parse_all,
    tied_queries,
)
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Evaluation", "chosen_measures"]


def chosen_measures(
    measures: str | Measure | Iterable[str | Measure],
    truth: Run | None,
    judgments: Judgments | None,
) -> list[Measure]:
    """The measures asked for, each once; MeasureError naming all that cannot be computed."""
    asked: list[str | Measure] = (
        [measures] if isinstance(measures, str | Measure) else list(measures)
    )
    if not asked:
        raise MeasureError("no measure to compute; expected at least one, e.g. recall@10")
    parsed = parse_all([str(m) for m in asked])
    wanted = list({str(m): m for m in parsed}.values())
    given = {"truth": truth is not None, "judgments": judgments is not None}
    faults = []
    for measure in wanted:
        lacking = sorted(need for need in measure.needs if not given.get(need, True))
        if lacking:
            faults.append(f"{measure} needs {' and '.join(lacking)}")
    if faults:
        hint = "give what is needed, or leave these measures out"
        recalls = [m for m in wanted if m.name == "recall"] if truth is None else []
        if recalls and judgments is not None:
            other = Measure("R", recalls[0].k)
            hint = f"{other} is recall by judgments: the share of relevant documents retrieved"
        raise MeasureError("; ".join(faults), hint=hint)
    return wanted


class Evaluation:
    """Inputs, measures, and what follows from both. Queries are those of truth or judgments."""

    def __init__(self, inputs: Inputs, measures: Sequence[Measure]) -> None:
        self.inputs, self.measures = inputs, list(measures)
        self._require_depth()
        self.problems: dict[str, Problem] = {
            name: with_spans(self._align(run), inputs.unmerged[name], inputs.spans)
            for name, run in inputs.runs.items()
        }
        self.scores: dict[tuple[str, str], Scores] = {
            (name, str(measure)): apart(measure, measure.values(problem), inputs.unanswerable)
            for name, problem in self.problems.items()
            for measure in self.measures
        }

    def _require_depth(self) -> None:
        """Say it where deletions leave the truth less deep than a measure needs."""
        truth = self.inputs.truth
        if self.inputs.deleted is None or truth is None:
            return
        deep = [m for m in self.measures if "truth" in m.needs and (m.k or 0) > truth.depth]
        if deep:
            raise MeasureError(
                f"without the deleted documents the truth is complete to depth {truth.depth:,} "
                f"only; {', '.join(map(str, deep))} needs {max(m.k or 0 for m in deep):,}",
                hint="find the truth again over what is left, or ask for a smaller k",
            )

    def _align(self, run: Run) -> Problem:
        inputs = self.inputs
        return align(run, inputs.truth, inputs.judgments, no_relevant=inputs.no_relevant)

    @property
    def first(self) -> Problem:
        """The problem of the first run: truth and grades are the same in all of them."""
        return next(iter(self.problems.values()))

    @property
    def queries(self) -> Ids:
        """The queries of every value, shape (n,)."""
        return self.first.queries

    # -- the exact neighbours and their grades ----------------------------------------------

    def _semantic(self, k: int, rel: float) -> NDArray[np.int64]:
        """How many of the exact k have a grade of at least `rel`, shape (n,)."""
        grades = self.first.true_grades
        if grades is None:
            return np.zeros(len(self.queries), dtype=np.int64)
        return np.asarray((grades[:, :k] >= rel).sum(axis=1), dtype=np.int64)

    def sizes(self) -> dict[str, NDArray[np.int64]]:
        """How many each query could have hit, for the measures that are hits over a size."""
        found = {}
        for measure in self.measures:
            if self.first.true is None or measure.k is None:
                continue
            if measure.name in ("recall", "trecall", "erecall"):
                found[str(measure)] = self.first.sizes(measure.k)
            elif measure.name == "srecall" and measure.settings.get("gain") == "count":
                found[str(measure)] = self._semantic(measure.k, relevant_from(measure))
        return found

    def slices(self, columns: Any, by: Sequence[str]) -> list[Slice]:
        """The slices asked for, each once, in the order asked."""
        names = list(dict.fromkeys(by))
        others = column_slices(columns, [n for n in names if n != SN], self.queries)
        made = {part.column: part for part in others}
        if SN in names:
            if self.semantic is None:
                raise InputError(
                    "slices by sn, the number of semantic neighbours, need truth and judgments"
                )
            made[SN] = self.semantic.slice()
        return [made[name] for name in names]

    @cached_property
    def semantic(self) -> Semantic | None:
        """The semantic neighbours of each query; None without truth or judgments."""
        grades = self.first.true_grades
        if grades is None:
            return None
        k = leading_k(self.measures) or self.first.depth or grades.shape[1]
        rel = next((relevant_from(m) for m in self.measures if m.name == "srecall"), 1.0)
        judged = np.count_nonzero(~np.isnan(grades[:, :k]), axis=1)
        return Semantic(k, rel, self._semantic(k, rel), judged)

    # -- beside the values ------------------------------------------------------------------

    def counts(self) -> dict[str, RunCounts]:
        """What each run delivered beside its values."""
        return {name: self._counts(name, problem) for name, problem in self.problems.items()}

    def _counts(self, name: str, problem: Problem) -> RunCounts:
        deleted = 0
        if self.inputs.deleted is not None:
            gone, found = unify(self.inputs.deleted, self.inputs.runs[name].documents)
            deleted = int((np.isin(found, gone) & (found >= 0)).sum())
        return RunCounts(
            queries=len(problem.queries),
            not_answered=int((~problem.answered).sum()),
            only_in_run=problem.only_in_run,
            repeats=int(problem.repeats.sum()),
            missing=int(problem.missing.sum()),
            violations=int(problem.violations.sum()),
            deleted=deleted,
            tied=self._tied(problem),
            only_in_run_queries=self._only_in_run(name, problem),
        )

    def _only_in_run(self, name: str, problem: Problem) -> tuple[str | int, ...]:
        if problem.only_in_run == 0:
            return ()
        asked = self.inputs.runs[name].queries
        have, known = unify(asked, problem.queries)
        return tuple(asked[np.flatnonzero(~np.isin(have, known))])

    def _tied(self, problem: Problem) -> int:
        """In how many queries ties matter to a measure by judgments; 0 where none was asked for."""
        asked = any(m.layer == "retrieval" and "judgments" in m.needs for m in self.measures)
        return int(tied_queries(problem).sum()) if asked else 0

    def splits(self) -> tuple[LossSplit, ...]:
        """Each loss of each run in two parts, where a run over the codes was given."""
        codes, truth = self.inputs.codes, self.inputs.truth
        if codes is None:
            return ()
        if truth is None:
            raise InputError("the split of the loss needs truth beside the run over the codes")
        exact, coded = (
            with_spans(self._align(run), run, self.inputs.spans) for run in (truth, codes)
        )
        found = []
        for measure in self.measures:
            best, quantised = measure.values(exact), measure.values(coded)
            found += [
                LossSplit(
                    str(measure),
                    name,
                    best,
                    quantised,
                    self.scores[name, str(measure)],
                    measure.lower_is_better,
                )
                for name in self.problems
            ]
        return tuple(found)

    def notes(self) -> tuple[str, ...]:
        """What a reader of all values should know, one sentence each."""
        return (*self.inputs.notes, *self._query_notes(), *self._precision_notes())

    def _precision_notes(self) -> list[str]:
        return [
            f"scores of {name} are 16-bit floats, which ties results; 32-bit ones would part most"
            for name, problem in self.problems.items()
            if self._tied(problem) and half_precision(problem)
        ]

    def _query_notes(self) -> list[str]:
        truth, judgments = self.inputs.truth, self.inputs.judgments
        if truth is None or judgments is None:
            return []
        known, judged = unify(truth.queries, judgments.queries)
        extra = len(np.setdiff1d(judged, known))
        if not extra:
            return []
        return [f"{plural(extra, 'judged query', 'judged queries')} not in the truth, left out"]


def relevant_from(measure: Measure) -> float:
    """The grade from which a document is relevant to a measure."""
    return measure.rel
