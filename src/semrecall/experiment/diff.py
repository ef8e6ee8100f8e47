"""Two results beside each other: which measures changed, for which queries, and what else did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from semrecall.errors import InputError, MismatchError
from semrecall.evaluate import Comparison, Paired
from semrecall.evaluate.alignment import aligned, union
from semrecall.experiment.recorded import Recorded, read_results
from semrecall.measures import parse
from semrecall.registry import did_you_mean
from semrecall.stats.compare import paired_differences
from semrecall.stats.multiple import corrected
from semrecall.text import one_line

__all__ = ["Change", "Diff", "Worsened", "diff"]

_BEFORE, _AFTER = "before", "after"
_LONGEST = 60


@dataclass(frozen=True)
class Change:
    """One measure of one run in both results.

    before, after: means over the n queries that have a value in both; of all queries where only
    means were kept (`paired` is False). difference: after - before, with the interval `low` to
    `high`, p-value and p-value corrected for all rows; NaN where there is none. wins, losses:
    queries that are better, worse. was: what the run was called before.
    """

    run: str
    measure: str
    was: str
    n: int
    before: float
    after: float
    difference: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_corrected: float = math.nan
    wins: int = 0
    losses: int = 0
    paired: bool = True
    significant: bool = False

    @property
    def worse(self) -> bool:
        """Whether the mean is worse than before."""
        lower_is_better = parse(self.measure).lower_is_better
        return self.difference > 0 if lower_is_better else self.difference < 0

    @property
    def worse_by(self) -> tuple[float, float]:
        """How much worse it is at most and at least, by the interval; negative is better."""
        low, high = self.low, self.high
        if math.isnan(low):
            low = high = self.difference
        return (high, low) if parse(self.measure).lower_is_better else (-low, -high)


@dataclass(frozen=True)
class Worsened:
    """A query that got worse: its values before and after."""

    query: str | int
    before: float
    after: float


@dataclass(frozen=True, eq=False, repr=False)
class Diff:
    """What changed from one result to another. Made by `diff`.

    gone, fresh: runs of only one of them. settings: (name, before, after) of the experiment file
    where it differs; None: not there. data: (file, what became of it). made: (step and package,
    before, after) of versions that differ.
    """

    before: Recorded
    after: Recorded
    rows: tuple[Change, ...]
    gone: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any, Any], ...] = ()
    data: tuple[tuple[str, str], ...] = ()
    made: tuple[tuple[str, str, str], ...] = ()
    confidence: float = 0.95

    @property
    def worse(self) -> list[Change]:
        """Rows that are significantly worse."""
        return [row for row in self.rows if row.significant and row.worse]

    def worsened(self, row: Change, n: int = 5) -> list[Worsened]:
        """The n queries of a row that got worse most, the worst first."""
        if not row.paired:
            return []
        a, b = _both(self.before, row.was, self.after, row.run, row.measure)
        change = paired_differences(a.values, b.values)
        if not parse(row.measure).lower_is_better:
            change = -change
        order = [i for i in (-change).argsort(kind="stable").tolist() if change[i] > 0]
        return [Worsened(a.queries[i], float(a.values[i]), float(b.values[i])) for i in order[:n]]

    def to_dict(self, worst: int = 5) -> dict[str, Any]:
        """Everything as plain mappings and lists (for JSON)."""
        return {
            "before": self.before.name,
            "after": self.after.name,
            "rows": [
                asdict(row)
                | {"worse": row.worse, "worsened": [asdict(w) for w in self.worsened(row, worst)]}
                for row in self.rows
            ],
            "runs": {"gone": list(self.gone), "new": list(self.fresh)},
            "settings": [
                {"name": name, "before": old, "after": new} for name, old, new in self.settings
            ],
            "data": [{"file": name, "change": what} for name, what in self.data],
            "versions": [{"of": of, "before": old, "after": new} for of, old, new in self.made],
            "confidence": self.confidence,
        }

    def __str__(self) -> str:
        from semrecall.experiment.diff_text import text

        return text(self)

    def __repr__(self) -> str:
        return f"Diff({self.before.name} to {self.after.name}: {len(self.rows)} rows)"


def diff(
    before: str | Path | Recorded,
    after: str | Path | Recorded,
    *,
    pairs: Mapping[str, str] | None = None,
    test: str = "randomisation",
    confidence: float = 0.95,
    seed: int = 0,
) -> Diff:
    """What changed from one result to another, query by query where the queries match.

    before, after: results folders of an experiment, JSON of `semrecall score --format json` (best
        with --per-query), or saved comparisons.
    pairs: {run before: run after} that are the same under other names; those of one name go
        together by themselves, and so do two single runs.
    test, confidence, seed: as in `semrecall.compare`; p-values are corrected for all rows (Holm).

    Raises MismatchError where no run or no measure is in both.
    """
    old, new = (r if isinstance(r, Recorded) else read_results(r) for r in (before, after))
    matched = _matched(old, new, pairs or {})
    measures = [m for m in new.measures if m in old.measures]
    if not measures:
        raise MismatchError(
            f"{old.name} and {new.name} have no measure in common: {', '.join(old.measures)} "
            f"and {', '.join(new.measures)}"
        )
    rows = [
        row
        for was, run in matched.items()
        for row in _rows(old, was, new, run, measures, test, confidence, seed)
    ]
    return Diff(
        old,
        new,
        _all_corrected(rows, 1 - confidence),
        tuple(run for run in old.runs if run not in matched),
        tuple(run for run in new.runs if run not in matched.values()),
        _settings(old.settings, new.settings),
        _data(old.inputs, new.inputs),
        tuple(
            (of, old.made[of], version)
            for of, version in new.made.items()
            if old.made.get(of, version) != version
        ),
        confidence,
    )


def _matched(old: Recorded, new: Recorded, pairs: Mapping[str, str]) -> dict[str, str]:
    """{run before: run after} of what is compared."""
    for was, run in pairs.items():
        for name, known in ((was, old.runs), (run, new.runs)):
            if name not in known:
                raise InputError(f"no run {name!r}", hint=did_you_mean(name, known))
    found = {run: run for run in old.runs if run in new.runs and run not in pairs.values()}
    found |= pairs
    if not found and len(old.runs) == len(new.runs) == 1:
        found = {old.runs[0]: new.runs[0]}
    if not found:
        raise MismatchError(
            f"{old.name} and {new.name} have no run in common: {', '.join(old.runs)} and "
            f"{', '.join(new.runs)}",
            hint='say which belong together: --pair "BEFORE=AFTER"',
        )
    return {was: found[was] for was in old.runs if was in found}


def _both(old: Recorded, was: str, new: Recorded, run: str, measure: str) -> Any:
    """The scores of both, over all queries of either."""
    a, b = old.scores[was, measure], new.scores[run, measure]
    queries = union([a.queries, b.queries])
    return aligned(a, queries), aligned(b, queries)


def _rows(
    old: Recorded, was: str, new: Recorded, run: str, measures: Sequence[str], test: str,
    confidence: float, seed: int,
) -> list[Change]:  # fmt: skip
    single = [m for m in measures if (was, m) in old.scores and (run, m) in new.scores]
    found: dict[str, Change] = {}
    if single:
        both = {m: _both(old, was, new, run, m) for m in single}
        comparison = Comparison(
            runs=(_BEFORE, _AFTER), measures=tuple(single), queries=both[single[0]][0].queries,
            scores={
                (name, m): pair for m in single
                for name, pair in zip((_BEFORE, _AFTER), both[m], strict=True)
            },
            lower_is_better=frozenset(m for m in single if parse(m).lower_is_better),
            baseline=_BEFORE, test=test, correction="none", seed=seed, confidence=confidence,
        )  # fmt: skip
        found = {row.measure: _change(row, was, run) for row in comparison.rows if row.n}
    for measure in measures:
        a, b = old.mean(was, measure), new.mean(run, measure)
        if measure not in found and a is not None and b is not None:
            found[measure] = Change(
                run, measure, was, min(a.n, b.n), a.mean, b.mean, b.mean - a.mean, paired=False
            )
    return [found[m] for m in measures if m in found]


def _change(row: Paired, was: str, run: str) -> Change:
    return Change(
        run, row.measure, was, row.n, row.mean_baseline, row.mean_run, row.difference, row.low,
        row.high, row.p, math.nan, row.wins, row.losses,
    )  # fmt: skip


def _all_corrected(rows: Sequence[Change], alpha: float) -> tuple[Change, ...]:
    values = corrected([row.p for row in rows])
    return tuple(
        replace(row, p_corrected=float(p), significant=bool(p < alpha))
        for row, p in zip(rows, values, strict=True)
    )


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[tuple[str, Any, Any], ...]:
    if not old or not new:
        return ()
    a, b = _leaves(old), _leaves(new)
    names = [*b, *(name for name in a if name not in b)]
    return tuple((n, a.get(n), b.get(n)) for n in names if a.get(n) != b.get(n))


def _leaves(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            found |= _leaves(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _data(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if not old or not new:
        return ()
    said = [(name, "other content") for name in new if name in old and old[name] != new[name]]
    said += [(name, "new") for name in new if name not in old]
    return tuple(said + [(name, "no longer there") for name in old if name not in new])


def shown_setting(value: Any) -> str:
    """A setting as text, on one line; "-" where there is none."""
    if value is None:
        return "-"
    text = one_line(str(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
