"""What tuning for the measure that matters saves against tuning for another one.

The two comparisons of "Semantic Recall for Vector Search": at the same target (the target moved
from recall to semantic or tolerant recall), and at the same quality (the cheapest setting whose
semantic or tolerant recall is that of the setting tuned for recall).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.measures import Measure, parse
from semrecall.stats import resampled_means, t_interval
from semrecall.tuning.exploring import Plan, explore
from semrecall.tuning.racing import Outcome, Race, Trial
from semrecall.tuning.ranges import Setting
from semrecall.tuning.searchers import rank
from semrecall.tuning.target import Estimate, Target, estimate, mean_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.tuning.evaluator import Measured

__all__ = ["SAME_QUALITY", "SAME_TARGET", "Saving", "baseline_of", "savings"]

SAME_TARGET, SAME_QUALITY = "same target", "same quality"
#: Fewer queries than this on either side say nothing about a group.
_FEW = 8
#: How often development queries are drawn again.
_DRAWS = 500


@dataclass(frozen=True)
class Saving:
    """One comparison in one group of queries. All figures are of queries held out.

    group: "all", or the number of semantic neighbours. target: of the baseline.
    before: the setting tuned for the baseline; after: the one tuned for `measure`. None where no
        setting meets the target on development queries.
    reached: of `measure` by the setting after; kept: of the baseline by the setting before.
    change: of `measure`, after less before, paired. saved: the share of the cost, its interval
        paired over the queries held out, for these two settings.
    rechosen: how that share varies when other development queries choose both settings, which
        is most of the doubt; None where it cannot be told.
    reason: why there are no figures.
    """

    comparison: str
    group: str
    measure: str
    baseline: str
    target: float
    before: Setting | None = None
    after: Setting | None = None
    kept: Estimate | None = None
    reached: Estimate | None = None
    change: Estimate | None = None
    saved: Estimate | None = None
    rechosen: Estimate | None = None
    queries: int = 0
    reason: str = ""

    @property
    def verdict(self) -> str:
        """In words: saved, no saving, costs more, or why nothing can be said."""
        if self.saved is None:
            return self.reason
        if self.before == self.after:
            return "no saving, same setting"
        low, high = self.saved.low, self.saved.high
        if self.rechosen is not None:
            low, high = min(low, self.rechosen.low), max(high, self.rechosen.high)
        if math.isnan(low) or low <= 0 <= high:
            return "no sure saving"
        return "saved" if low > 0 else "costs more"

    def to_dict(self) -> dict[str, Any]:
        """As plain mappings."""
        found = dict(vars(self))
        for name in ("kept", "reached", "change", "saved", "rechosen"):
            value = found[name]
            found[name] = None if value is None else vars(value).copy()
        for name in ("before", "after"):
            setting = found[name]
            found[name] = (
                None
                if setting is None
                else {
                    "system": setting.system,
                    "build": dict(setting.build),
                    "search": dict(setting.search),
                }
            )
        return found | {"verdict": self.verdict}


def baseline_of(against: str | None, target: Target) -> Measure | None:
    """The measure compared with: `recall` takes the k of the target; None without one."""
    if against is None:
        return None
    if against.strip().lower() == "recall":
        return Measure("recall", target.measure.k or 100)
    return parse(against)


def savings(
    race: Race, plan: Plan, held_out: NDArray[np.int64], baseline: Measure
) -> tuple[Saving, ...]:
    """Both comparisons for every measure of the race but the baseline, by group.

    Settings are chosen on development queries of the group, and compared on those held out.
    """
    return tuple(_Comparing(race, plan, held_out, baseline).rows())


class _Comparing:
    """Settings chosen for several measures and groups out of the same trials."""

    def __init__(
        self, race: Race, plan: Plan, held_out: NDArray[np.int64], baseline: Measure
    ) -> None:
        self.race, self.plan, self.held_out, self.baseline = race, plan, held_out, baseline
        self.value = race.target.value
        race.limit = None

    def rows(self) -> Iterator[Saving]:
        """One row per comparison, measure and group."""
        others = [m for m in self.race.evaluator.measures if m != self.baseline]
        others = [m for m in others if m.lower_is_better == self.baseline.lower_is_better]
        groups = self._groups()
        for comparison in (SAME_TARGET, SAME_QUALITY):
            for measure in others:
                for group, members in groups.items():
                    yield self._row(comparison, measure, group, members)

    def _groups(self) -> dict[str, NDArray[np.int64]]:
        """Rows of the queries of each group: all, and by semantic neighbours."""
        evaluator = self.race.evaluator
        found = {"all": evaluator.rows}
        semantic = evaluator.semantic
        if semantic is not None:
            part = semantic.slice()
            found |= {
                group: np.flatnonzero(part.mask(group))
                for group in part.groups
                if group not in ("0", "unjudged")
            }
        return found

    def _row(
        self, comparison: str, measure: Measure, group: str, members: NDArray[np.int64]
    ) -> Saving:
        empty = Saving(comparison, group, str(measure), str(self.baseline), self.value)
        tuned_on = np.intersect1d(members, self.race.dev)
        shown_on = np.intersect1d(members, self.held_out)
        if min(len(tuned_on), len(shown_on)) < _FEW:
            few = f"{len(tuned_on)} and {len(shown_on)} queries only"
            return replace(empty, reason=few, queries=len(shown_on))
        before = self._cheapest(Target(self.baseline, self.value), tuned_on, group)
        if before is None:
            return replace(empty, reason=f"{self.baseline} is out of reach", queries=len(shown_on))
        wanted = self.value
        if comparison == SAME_QUALITY:
            wanted = mean_of(_values(before, tuned_on, measure))
        after = self._cheapest(Target(measure, wanted), tuned_on, group)
        if after is None:
            return replace(
                empty, before=before.setting, reason=f"{measure} is out of reach or undefined",
                queries=len(shown_on),
            )  # fmt: skip
        rechosen = self._rechosen(comparison, measure, tuned_on)
        return self._compared(empty, measure, before, after, shown_on, rechosen)

    def _cheapest(self, target: Target, rows: NDArray[np.int64], group: str) -> Trial | None:
        """The cheapest setting that meets a target on these development queries."""
        judged = _Judged(self.race, target, rows)
        if group == "all" or self._bisected:
            explore(self.plan, self.race, judged)
        full = [t for t in self.race.trials.values() if t.full and not t.failed]
        best = min(full, key=lambda t: rank(judged.outcome(t)), default=None)
        return best if best is not None and judged.outcome(best).meets else None

    @property
    def _bisected(self) -> bool:
        """Whether a search of its own for every group costs little: one knob each."""
        return all(len(branch.free) == 1 and branch.search for branch in self.plan.branches)

    def _compared(
        self,
        empty: Saving,
        measure: Measure,
        before: Trial,
        after: Trial,
        rows: NDArray[np.int64],
        rechosen: Estimate | None,
    ) -> Saving:
        old = self.race.measure(before.setting, self.held_out).of(rows)
        new = self.race.measure(after.setting, self.held_out).of(rows)
        name = str(measure)
        change = new.values[name] - old.values[name]
        low, high = t_interval(change, confidence=self.race.confidence)
        return replace(
            empty,
            before=before.setting,
            after=after.setting,
            kept=self._estimate(old, self.baseline),
            reached=self._estimate(new, measure),
            change=Estimate(mean_of(change), low, high, int((~np.isnan(change)).sum())),
            saved=_saved(old, new, self.race),
            rechosen=rechosen,
            queries=len(rows),
        )

    def _estimate(self, found: Measured, measure: Measure) -> Estimate:
        return estimate(
            found.values[str(measure)], share=measure.zero_or_one,
            confidence=self.race.confidence, seed=self.race.seed,
        )  # fmt: skip

    def _rechosen(
        self, comparison: str, measure: Measure, rows: NDArray[np.int64]
    ) -> Estimate | None:
        """How the saving varies with the development queries that choose both settings.

        They are drawn again with replacement; each time the cheapest settings are chosen anew
        among all that were tried, and compared by their cost on the queries drawn.
        """
        objective = self.race.objective
        if objective.rate or objective.percentile is not None:
            return None
        full = [t.measured.of(rows) for t in self.race.trials.values() if t.full and not t.failed]
        drawn = [
            resampled_means(np.array(table), resamples=_DRAWS, seed=self.race.seed)
            for table in (
                [m.values[str(self.baseline)] for m in full],
                [m.values[str(measure)] for m in full],
                [m.costs[objective.column] for m in full],
            )
        ]
        sign = -1.0 if measure.lower_is_better else 1.0
        known, wanted, cost = sign * drawn[0], sign * drawn[1], drawn[2]
        every = np.arange(_DRAWS)
        before = np.where(known >= sign * self.value - 1e-12, cost, np.inf).argmin(axis=0)
        goal = wanted[before, every] if comparison == SAME_QUALITY else sign * self.value
        after = np.where(wanted >= goal - 1e-12, cost, np.inf).argmin(axis=0)
        reached = (known[before, every] >= sign * self.value - 1e-12) & (
            wanted[after, every] >= goal - 1e-12
        )
        saved = (1 - cost[after, every] / cost[before, every])[reached]
        if len(saved) < _DRAWS // 2:
            return None
        tail = (1 - self.race.confidence) / 2
        low, high = np.quantile(saved, [tail, 1 - tail])
        return Estimate(float(saved.mean()), float(low), float(high), len(rows))


class _Judged:
    """What a searcher is told where the target, or the queries it is for, are others."""

    def __init__(self, race: Race, target: Target, rows: NDArray[np.int64]) -> None:
        self.race, self.target, self.rows = race, target, rows

    def __call__(self, setting: Setting) -> Outcome:
        """Try it on all development queries."""
        return self.outcome(self.race.complete(setting))

    def outcome(self, trial: Trial) -> Outcome:
        """Of a trial on all development queries."""
        if trial.failed:
            return Outcome(math.inf, math.inf)
        measured = trial.measured.of(self.rows)
        shortfall = self.target.shortfall(mean_of(measured.values[self.target.name]))
        cost = measured.cost(self.race.objective)
        return Outcome(shortfall, cost, True, trial.measured.digest, trial.first)


def _values(trial: Trial, rows: NDArray[np.int64], measure: Measure) -> NDArray[np.float64]:
    return trial.measured.of(rows).values[str(measure)]


def _saved(old: Measured, new: Measured, race: Race) -> Estimate:
    """The share of the cost that is saved, with an interval paired over queries.

    A ratio of means, its interval by Student's t on its linearised values; a percentile or a
    speed has none.
    """
    objective = race.objective
    before, after = old.cost(objective), new.cost(objective)
    saved = 1 - after / before
    a, b = old.costs[objective.column], new.costs[objective.column]
    known = ~np.isnan(a) & ~np.isnan(b)
    if objective.rate or objective.percentile is not None or not known.any():
        return Estimate(saved, math.nan, math.nan, int(known.sum()))
    a, b = a[known], b[known]
    ratio = b.mean() / a.mean()
    linear = 1 - ratio - (b - ratio * a) / a.mean()
    low, high = t_interval(linear, confidence=race.confidence)
    return Estimate(saved, low, high, len(a))
