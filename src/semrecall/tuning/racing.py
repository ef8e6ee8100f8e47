"""Race: a setting is tried on more and more queries, until it is clear or all have been asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError, SemrecallError, Stopped, SystemFault
from semrecall.measures import Measure
from semrecall.tuning.evaluator import Evaluator, Measured
from semrecall.tuning.objectives import Objective, objective
from semrecall.tuning.ranges import Setting
from semrecall.tuning.target import Estimate, Target, estimate, mean_of
from semrecall.tuning.trials import Trials

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.systems import System

__all__ = ["Outcome", "Race", "Trial", "within"]

#: Queries of the first stage, and how sure a setting has to be hopeless to stop after a stage.
_FIRST = 16
_SURE = 0.99


@dataclass(frozen=True)
class Outcome:
    """What a searcher is told of a trial.

    shortfall: how far the mean is from the target; 0 or less meets it. cost: lower is better.
    full: whether all queries were asked; else it was hopeless after some.
    digest: of all results, where all queries were asked; first: of those of the first stage.
        Equal digests are equal results.
    """

    shortfall: float
    cost: float
    full: bool = True
    digest: str = ""
    first: str = ""

    @property
    def meets(self) -> bool:
        """Whether the target is met on the queries asked."""
        return self.shortfall <= 1e-12


@dataclass(frozen=True, eq=False)
class Trial:
    """A setting and what is known of it on development queries.

    full: whether all of them were asked. first: digest of the results of the first stage.
    message: why it could not be searched.
    """

    setting: Setting
    measured: Measured
    full: bool
    first: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether it could not be searched."""
        return bool(self.message)

    def mean(self, measure: str) -> float:
        """Mean of a measure over the queries asked."""
        return mean_of(self.measured.values[measure]) if not self.failed else math.nan


class Race:
    """Runs trials on development queries, and keeps what it learnt.

    systems: by label, built, or to be built by `builder` with build knobs.
    trials: all so far, by setting. searched: how many queries were searched, all stages of all
        trials together, those found in the store included.
    sure: whether a trial meets the target only where the worse end of its interval does.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        systems: Mapping[str, System],
        target: Target,
        minimize: Objective,
        store: Trials,
        dev: NDArray[np.int64],
        *,
        builder: Callable[[str, Mapping[str, float]], System] | None = None,
        racing: bool = True,
        seed: int = 0,
        confidence: float = 0.95,
        limit: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.evaluator, self.target, self.store = evaluator, target, store
        self.systems, self.builder = dict(systems), builder
        self.objective = minimize
        self.progress, self.limit = progress, limit
        self.confidence, self.seed, self.sure = confidence, seed, False
        self.trials: dict[Setting, Trial] = {}
        self.searched = 0
        self._built: dict[tuple[str, tuple[tuple[str, float], ...]], System] = {}
        # In random order, so that every stage is a fair sample.
        order = np.random.default_rng(seed).permutation(len(dev))
        self.dev = dev[order]
        self._stages = _stages(len(dev)) if racing else [len(dev)]

    @property
    def spent(self) -> bool:
        """Whether the limit of trials is reached."""
        return self.limit is not None and len(self.trials) >= self.limit

    def __call__(self, setting: Setting) -> Outcome:
        """Try a setting as far as it takes to know that it is hopeless; else on all queries."""
        known = self.trials.get(setting)
        if known is None:
            known = self._run(setting, Trial(setting, self._nothing(), full=False), to_end=False)
        return self.outcome(known)

    def complete(self, setting: Setting) -> Trial:
        """The trial of a setting on all development queries."""
        known = self.trials.get(setting, Trial(setting, self._nothing(), full=False))
        if known.full or known.failed:
            return known
        return self._run(setting, known, to_end=True)

    def outcome(self, trial: Trial) -> Outcome:
        """What a searcher learns from a trial."""
        if trial.failed:
            return Outcome(math.inf, math.inf, full=True)
        found = trial.mean(self.target.name)
        if self.sure and trial.full:
            found = self.target.bound(self.estimate(trial))
        cost = trial.measured.cost(self.objective)
        digest = trial.measured.digest if trial.full else ""
        return Outcome(self.target.shortfall(found), cost, trial.full, digest, trial.first)

    def estimate(self, trial: Trial, measure: Measure | None = None) -> Estimate:
        """A measure of a trial (the target's when None) with its interval."""
        wanted = measure or self.target.measure
        if trial.failed:
            return Estimate(math.nan, math.nan, math.nan, 0)
        values = trial.measured.values[str(wanted)]
        return estimate(
            values, share=wanted.zero_or_one, confidence=self.confidence, seed=self.seed
        )

    def measure(self, setting: Setting, rows: NDArray[np.int64]) -> Measured:
        """A setting on any queries, e.g. those held out; kept, and found again."""
        found = self._part(setting, rows)
        if isinstance(found, str):
            raise SystemFault(f"{setting}: {found}")
        return found

    def again(self, setting: Setting) -> float:
        """The cost of a setting on all development queries, searched once more."""
        system = self.system(setting)
        timed = self.objective.timed
        given = within(system, setting)
        return self.evaluator.measure(system, given, self.dev, timed=timed).cost(self.objective)

    def system(self, setting: Setting) -> System:
        """The built system of a setting; the last one built stays built."""
        key = (setting.system, setting.build)
        if not setting.build and self.systems[setting.system].built:
            return self.systems[setting.system]
        if key not in self._built:
            assert self.builder is not None
            self.close()
            try:
                self._built[key] = self.builder(setting.system, dict(setting.build))
            except InputError as error:
                raise SystemFault(f"cannot be built: {error.message}", hint=error.hint) from error
        return self._built[key]

    def close(self) -> None:
        """Let go of what was built."""
        while self._built:
            _, system = self._built.popitem()
            if all(system is not one for one in self.systems.values()):
                system.close()

    # -- parts ------------------------------------------------------------------------------

    def _nothing(self) -> Measured:
        return Measured(np.empty(0, dtype=np.int64), {}, {})

    def _run(self, setting: Setting, trial: Trial, *, to_end: bool) -> Trial:
        while not (trial.full or trial.failed):
            start = len(trial.measured)
            stop = next(s for s in self._stages if s > start)
            part = self._part(setting, self.dev[start:stop])
            if isinstance(part, str):
                trial = replace(trial, message=part)
                break
            if self.objective.column not in part.costs:
                objective(self.objective.name, part.costs.keys(), setting.system)
            whole = trial.measured.joined(part) if start else part
            first = trial.first or part.digest
            trial = Trial(setting, whole, stop == len(self.dev), first)
            values = whole.values[self.target.name]
            if not to_end and self.target.hopeless(values, _SURE):
                break
        self.trials[setting] = trial
        if self.progress is not None:
            self.progress(self._said(trial))
        return trial

    def _said(self, trial: Trial) -> str:
        if trial.failed:
            return f"{trial.setting}: {trial.message}"
        mean, n = trial.mean(self.target.name), len(trial.measured)
        cost = self.objective.shown(trial.measured.cost(self.objective))
        return (
            f"{trial.setting}: {self.target.name} {mean:.4f}, {self.objective.name} {cost:,.6g} "
            f"({n:,} of {len(self.dev):,} queries)"
        )

    def _part(self, setting: Setting, rows: NDArray[np.int64]) -> Measured | str:
        """A setting on some queries, out of the store or by searching; or why it failed."""
        timed = self.objective.timed
        names = [str(m) for m in self.evaluator.measures]
        found = self.store.find(setting, rows, timed, names)
        self.searched += len(rows)
        if found is not None:
            return found
        try:
            system = self.system(setting)
            found = self.evaluator.measure(system, within(system, setting), rows, timed=timed)
        except (SystemFault, InputError) as fault:
            # Of the first search it says what is wrong; later it is news: the collection is gone,
            # or this setting cannot be.
            if isinstance(fault, InputError) and not self.trials:
                raise
            return self._fault(setting, rows, timed, fault)
        self.store.add(setting, timed, found)
        return found

    def _fault(
        self, setting: Setting, rows: NDArray[np.int64], timed: bool, fault: SemrecallError
    ) -> str:
        """Note that this setting is at fault; Stopped where the system seems to be gone."""
        if not self._alive(setting):
            raise Stopped(
                f"{setting.system} failed at {setting}: {fault.message}",
                hint=f"{fault.hint + '; ' if fault.hint else ''}see that the system runs",
            ) from fault
        self.store.fail(setting, rows, timed, fault.message)
        return fault.message

    def _alive(self, setting: Setting) -> bool:
        """Whether the system still does what it did before this setting."""
        good = [t.setting for t in self.trials.values() if not t.failed]
        same = [s for s in good if (s.system, s.build) == (setting.system, setting.build)]
        if same:
            try:
                system = self.system(same[0])
                self.evaluator.search(system, within(system, same[0]), self.dev[:1])
            except (SystemFault, InputError):
                return False
            return True
        # A build that answers nothing: one such may be a bad build, two in a row are no chance.
        last = next(reversed(self.trials.values()), None)
        return bool(setting.build and good) and last is not None and not last.failed


def within(system: System, setting: Setting) -> dict[str, Any]:
    """How a build is searched: with at most all it has, which another build may have more of."""
    if not setting.build:
        return dict(setting.search)
    knobs = [knob for knob in system.knobs if knob.kind == "search" and not knob.words]
    highest = {knob.name: knob.high for knob in knobs}
    return {name: min(value, highest.get(name, value)) for name, value in setting.search}


def _stages(n: int) -> list[int]:
    """How many queries have been asked after each stage: 16, 32, ... and all."""
    found, size = [], _FIRST
    # A last stage of a few queries would only cost another call.
    while size * 1.5 < n:
        found.append(size)
        size *= 2
    return [*found, n]
