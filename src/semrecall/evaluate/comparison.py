"""Comparison: several runs over the same queries, and what can be said of their differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Run, Scores
from semrecall.data.frames import to_library
from semrecall.data.slices import Slice
from semrecall.errors import InputError, MeasureError, MismatchError
from semrecall.evaluate.alignment import (
    NO_RELEVANT,
    aligned,
    identity,
    reordered,
    text_order,
    union,
)
from semrecall.evaluate.inputs import named_runs
from semrecall.evaluate.labels import NO_ANSWER
from semrecall.evaluate.paired import Gap, Paired, gap_rows, paired_rows
from semrecall.evaluate.result import Result, may_be_share
from semrecall.measures import parse
from semrecall.registry import did_you_mean
from semrecall.stats.compare import PERMUTATIONS, TESTS, paired_differences
from semrecall.stats.groups import LABELLINGS
from semrecall.stats.intervals import RESAMPLES, check_confidence
from semrecall.stats.multiple import CORRECTIONS
from semrecall.text import plural

if TYPE_CHECKING:
    from semrecall.data import Judgments
    from semrecall.measures import NoRelevant

__all__ = ["INTERVALS", "Comparison", "Moved"]

#: How the interval of a difference is made.
INTERVALS = ("t", "bootstrap")


@dataclass(frozen=True)
class Moved:
    """A query that moved: its values in both runs, and run - baseline."""

    query: str | int
    baseline: float
    run: float
    difference: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Runs over the same queries, compared in pairs. Made by `compare`.

    runs, measures: names, in the order given. queries: ids, (n,), in the order of their text, so
    that no result depends on the order of a file. scores: by (run, measure), of these queries.
    slices: by column. lower_is_better, shares: measures of which that holds (shares: values are
    0 or 1, in whole or for k = 1).
    baseline: the run that the others are compared with; None: every run with every other.
    test, correction, interval: names, see `compare`. margin: what counts as no difference.
    identity: hashes of what the runs were measured against, and "no_relevant" as in `evaluate`.
    judged: by (run, measure), the mean judged share of the results that the measure looks at.
    """

    runs: tuple[str, ...]
    measures: tuple[str, ...]
    queries: Ids
    scores: Mapping[tuple[str, str], Scores]
    slices: Mapping[str, Slice] = field(default_factory=dict)
    lower_is_better: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()
    baseline: str | None = None
    test: str = "randomisation"
    correction: str = "holm"
    interval: str = "t"
    seed: int = 0
    confidence: float = 0.95
    margin: float | None = None
    permutations: int = PERMUTATIONS
    labellings: int = LABELLINGS
    resamples: int = RESAMPLES
    identity: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    judged: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.runs) < 2:
            raise InputError(f"{plural(len(self.runs), 'run')} to compare; expected at least two")
        if not self.measures:
            raise MeasureError("no measure to compare runs by; expected at least one")
        if self.baseline is not None and self.baseline not in self.runs:
            raise InputError(
                f"the baseline {self.baseline!r} is none of the runs",
                hint=did_you_mean(self.baseline, self.runs),
            )
        for what, name, known in (
            ("test", self.test, TESTS),
            ("correction", self.correction, CORRECTIONS),
            ("interval", self.interval, INTERVALS),
        ):
            if name not in known:
                raise InputError(f"unknown {what} {name!r}", hint=did_you_mean(name, known))
        check_confidence(self.confidence)
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; expected a whole number of at least 0")
        if self.margin is not None and not (self.margin > 0 and math.isfinite(self.margin)):
            raise InputError(f"margin is {self.margin}; expected a number above 0")
        for name in ("scores", "slices", "identity", "judged"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    # -- made from ------------------------------------------------------------------------

    @classmethod
    def from_result(cls, result: Result, **settings: Any) -> Comparison:
        """The runs of a Result compared; settings as in `compare`."""
        order = text_order(result.queries)
        return cls(
            runs=result.runs,
            measures=tuple(str(m) for m in result.measures),
            queries=result.queries[order],
            scores={key: reordered(scores, order) for key, scores in result.scores.items()},
            slices={
                name: replace(part, numbers=part.numbers[order])
                for name, part in result.slices.items()
            },
            lower_is_better=frozenset(str(m) for m in result.measures if m.lower_is_better),
            shares=frozenset(str(m) for m in result.measures if may_be_share(m)),
            identity=identity(result),
            notes=result.notes,
            judged=_judged(result),
            **{"seed": result.seed, "confidence": result.confidence, **settings},
        )

    @classmethod
    def from_scores(
        cls,
        scores: Mapping[str, Scores | Sequence[Scores]],
        *,
        lower_is_better: Sequence[str] = (),
        **settings: Any,
    ) -> Comparison:
        """Values per query that were computed elsewhere, by run: Scores, or several of them.

        Queries are matched by id, whatever their order; one that a run has no value for is left
        out of its comparisons. Every run needs the same measures.
        """
        given = {
            str(run): {s.measure: s for s in ([found] if isinstance(found, Scores) else found)}
            for run, found in scores.items()
        }
        measures = tuple(next(iter(given.values()), {}))
        for run, found in given.items():
            if set(found) != set(measures):
                raise MismatchError(
                    f"run {run!r} has values of {', '.join(found) or 'no measure'}; "
                    f"expected {', '.join(measures)}"
                )
        queries = union([s.queries for found in given.values() for s in found.values()])
        matched = {
            (run, measure): aligned(found[measure], queries)
            for run, found in given.items()
            for measure in measures
        }
        shares = frozenset(m for m in measures if _is_share(m))
        lower = frozenset(lower_is_better) | {m for m in measures if _is_lower_better(m)}
        return cls(
            tuple(given),
            measures,
            queries,
            matched,
            lower_is_better=lower,
            shares=shares,
            **settings,
        )

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """The comparison that `save` wrote.

        Raises FormatError for another file.
        """
        from semrecall.evaluate.saved import load

        return load(path)

    def save(self, path: str | Path) -> None:
        """Write everything, values per query included, to one file: .json or .parquet."""
        from semrecall.evaluate.saved import save

        save(self, path)

    def extend(
        self,
        runs: Any,
        *,
        truth: Run | None = None,
        judgments: Judgments | None = None,
        base: Any = None,
        queries: Any = None,
    ) -> Comparison:
        """The comparison with further runs, measured against the same truth and judgments.

        runs: as in `compare`, or a Result. What comes out is the same as comparing all runs at
        once. Raises MismatchError where truth, judgments, queries, or which of them have no
        answer or no relevant document, are others than before.
        """
        from semrecall.evaluate import evaluate

        if isinstance(runs, Result):
            result = runs
        else:
            result = evaluate(
                named_runs(runs),
                self.measures,
                truth=truth,
                judgments=judgments,
                base=base,
                queries=queries,
                no_relevant=self.no_relevant,
                seed=self.seed,
                confidence=self.confidence,
            )
        return self._joined(result)

    def _joined(self, result: Result) -> Comparison:
        twice = [name for name in result.runs if name in self.runs]
        if twice:
            raise InputError(
                f"run {twice[0]!r} is in the comparison already",
                hint="give the new run another name",
            )
        computed = {str(m) for m in result.measures}
        lacking = [m for m in self.measures if m not in computed]
        if lacking:
            raise MeasureError(f"the new runs lack {', '.join(lacking)}")
        self._require_same_ground(result)
        order = text_order(result.queries)
        if not result.queries[order] == self.queries:
            raise MismatchError(
                f"the new runs are measured on {len(result.queries):,} queries, the comparison "
                f"on {len(self.queries):,}; expected the same queries"
            )
        new = {
            (run, measure): reordered(result.scores[run, measure], order)
            for run in result.runs
            for measure in self.measures
        }
        notes = tuple(dict.fromkeys((*self.notes, *result.notes)))
        scores = {**self.scores, **new}
        judged = {**self.judged, **_judged(result)}
        runs = self.runs + result.runs
        return replace(self, runs=runs, scores=scores, notes=notes, judged=judged)

    def _require_same_ground(self, result: Result) -> None:
        """Raise MismatchError where the result was measured against something else."""
        found = identity(result)
        for what, known in self.identity.items():
            if found.get(what) == known:
                continue
            if what == NO_RELEVANT:
                rules = [_AS.get(rule or "", "unknown") for rule in (known, found.get(what))]
                raise MismatchError(
                    f"queries without a relevant document are {rules[0]} in the comparison, "
                    f"{rules[1]} in the new runs",
                    hint=f'measure them with no_relevant="{known}" (--no-relevant {known})',
                )
            verb = "are others than those" if what == "judgments" else "is another than that"
            raise MismatchError(
                f"the {what} {verb} of the comparison",
                hint="extend it with the same files, or compare all runs again",
            )
        for measure in self.measures:
            parts = (self.scores[self.runs[0], measure], result.scores[result.runs[0], measure])
            if _without_answer(parts[0]) != _without_answer(parts[1]):
                raise MismatchError(
                    "other queries are known to have no answer than in the comparison",
                    hint="name the same ones (unanswerable=..., --unanswerable FILE)",
                )

    def replace(self, **settings: Any) -> Comparison:
        """The same values with other settings: baseline, test, correction, margin, seed, ..."""
        known = {f.name for f in fields(self)}
        for name in settings:
            if name not in known:
                raise InputError(f"unknown setting {name!r}", hint=did_you_mean(name, known))
        return replace(self, **settings)

    @property
    def no_relevant(self) -> NoRelevant:
        """What a query without a relevant document is: left out ("skip"), or 0 ("zero")."""
        return "zero" if self.identity.get(NO_RELEVANT) == "zero" else "skip"

    # -- what comes out -------------------------------------------------------------------

    @property
    def alpha(self) -> float:
        """Below which a corrected p-value is significant: 1 - confidence."""
        return round(1 - self.confidence, 12)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The (baseline, run) that are compared: with the baseline, or all with all."""
        if self.baseline is None:
            return list(combinations(self.runs, 2))
        return [(self.baseline, run) for run in self.runs if run != self.baseline]

    @cached_property
    def rows(self) -> list[Paired]:
        """Each measure and pair over all queries, p-values corrected over all of these rows."""
        return paired_rows(self)

    @cached_property
    def slice_rows(self) -> list[Paired]:
        """Each measure and pair within each group of each column, corrected over all of them."""
        return paired_rows(self, list(self.slices)) if self.slices else []

    @cached_property
    def gaps(self) -> list[Gap]:
        """Which group differs from the rest: the difference there less that elsewhere."""
        return gap_rows(self)

    def mean(self, measure: str, run: str) -> float:
        """Mean of a run over the queries where the measure is defined."""
        return self.scores[self._run(run), self._measure(measure)].mean

    def row(self, measure: str, run: str | None = None, baseline: str | None = None) -> Paired:
        """The row of one measure and pair; with a single pair the runs may be left out."""
        first, second = self._pair(run, baseline)
        name = self._measure(measure)
        return next(r for r in self.rows if (r.measure, r.baseline, r.run) == (name, first, second))

    def moved(
        self, measure: str, n: int = 10, *, run: str | None = None, baseline: str | None = None
    ) -> list[Moved]:
        """The n queries whose values differ most between two runs, the largest difference first.

        With a single pair the runs may be left out. Queries that do not differ are none of them.
        """
        first, second = self._pair(run, baseline)
        name = self._measure(measure)
        a, b = self.scores[first, name].values, self.scores[second, name].values
        differences = paired_differences(a, b)
        size = np.nan_to_num(np.abs(differences), nan=0.0)
        order = np.argsort(-size, kind="stable")[: int((size > 0).sum())][:n]
        return [
            Moved(self.queries[i], float(a[i]), float(b[i]), float(differences[i]))
            for i in order.tolist()
        ]

    def fallen(self) -> list[str]:
        """A sentence for each column and pair: which group fell behind the rest most, if any."""
        from semrecall.evaluate.comparison_text import fallen

        return fallen(self)

    def table(self, format: str = "text") -> str:  # noqa: A002
        """Means by run and measure, with letters of the runs that are significantly worse.

        format: "text", "markdown", "latex" or "html".
        """
        from semrecall.evaluate.letters import lettered

        return lettered(self, format)

    def to_arrow(self) -> Any:
        """An arrow table of all rows, those of slices after the others; NaN is null."""
        import pyarrow as pa

        rows = [row_dict(row) for row in [*self.rows, *self.slice_rows]]
        table = {key: [_null(row[key]) for row in rows] for key in rows[0]}
        return pa.table(table)

    def to_frame(self, library: str = "pandas") -> Any:
        """The table of `to_arrow` as a frame: "pandas", "polars" or "arrow"."""
        return to_library(self.to_arrow(), library)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, as plain mappings and lists (for JSON)."""
        from importlib.metadata import version

        return {
            "semrecall": version("semrecall"),
            "queries": len(self.queries),
            "runs": list(self.runs),
            "measures": [
                {"measure": m, "lower_is_better": m in self.lower_is_better} for m in self.measures
            ],
            **self.settings,
            "alpha": self.alpha,
            "means": {run: {m: self.mean(m, run) for m in self.measures} for run in self.runs},
            "judged": {
                run: {m: self.judged[run, m] for m in self.measures if (run, m) in self.judged}
                for run in self.runs
            },
            "rows": [asdict(row) for row in self.rows],
            "slices": [asdict(row) for row in self.slice_rows],
            "gaps": [asdict(gap) for gap in self.gaps],
            "fallen": self.fallen(),
            "notes": list(self.notes),
        }

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the numbers beside the values."""
        names = (
            "baseline", "test", "correction", "interval", "seed", "confidence", "margin",
            "permutations", "labellings", "resamples",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        from semrecall.evaluate.comparison_text import text

        return text(self)

    def __repr__(self) -> str:
        names = ", ".join(self.runs[:5]) + (", ..." if len(self.runs) > 5 else "")
        return f"Comparison({names}: {', '.join(self.measures)} over {len(self.queries):,} queries)"

    # -- names ----------------------------------------------------------------------------

    def _run(self, name: str) -> str:
        if name not in self.runs:
            raise InputError(f"no run {name!r}", hint=did_you_mean(name, self.runs))
        return name

    def _measure(self, name: str) -> str:
        if name in self.measures:
            return name
        canonical = str(parse(name))
        if canonical not in self.measures:
            raise MeasureError(
                f"{canonical} was not computed", hint=did_you_mean(canonical, self.measures)
            )
        return canonical

    def _pair(self, run: str | None, baseline: str | None) -> tuple[str, str]:
        """The one pair of that run and baseline, in the order of `pairs`."""
        wanted = {self._run(name) for name in (run, baseline) if name is not None}
        found = [pair for pair in self.pairs if wanted <= set(pair)]
        if len(found) != 1:
            raise InputError(
                f"{len(found)} pairs of runs fit; expected one",
                hint=f"say which: run={self.pairs[0][1]!r}, baseline={self.pairs[0][0]!r}",
            )
        return found[0]


def _judged(result: Result) -> dict[tuple[str, str], float]:
    keys = [(run, str(measure)) for run in result.runs for measure in result.measures]
    shares = {(run, measure): result.judged(measure, run) for run, measure in keys}
    return {key: value for key, value in shares.items() if value is not None}


#: What becomes of queries without a relevant document, in words.
_AS = {"skip": "left out", "zero": "counted as 0"}


def _without_answer(scores: Scores) -> set[str | int]:
    pairs = zip(scores.queries, scores.reasons, strict=True)
    return {query for query, reason in pairs if reason == NO_ANSWER}


def row_dict(row: Paired) -> dict[str, Any]:
    """A row as a flat mapping: its queries left out as one number."""
    plain = {f.name: getattr(row, f.name) for f in fields(row)}
    return plain | {"left_out": sum(row.left_out.values())}


def _null(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _is_share(name: str) -> bool:
    try:
        return may_be_share(parse(name))
    except MeasureError:
        return False


def _is_lower_better(name: str) -> bool:
    try:
        return parse(name).lower_is_better
    except MeasureError:
        return False
