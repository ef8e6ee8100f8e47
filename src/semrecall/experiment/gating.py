"""The gates of an experiment: what its runs must reach, and whether they do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from semrecall.data import Cost
from semrecall.experiment.diff import Diff, diff
from semrecall.experiment.plan import COSTS, Experiment, Guard
from semrecall.gates import Mean, Verdict, verdicts

__all__ = ["cost_means", "judged", "unjudged"]


def cost_means(costs: Mapping[str, Cost]) -> Iterable[Mean]:
    """What a query cost each run, in the figures that gates may be about."""
    for name, cost in costs.items():
        for figure in COSTS:
            own = hasattr(cost, figure)
            value = cost.mean(figure) if own else cost.details.get(figure, math.nan)
            if value == value:
                yield Mean(name, figure, float(value), n=len(cost))


def judged(
    experiment: Experiment, folder: Path, means: Sequence[Mean], costs: Sequence[Mean]
) -> Iterable[Verdict]:
    """A verdict for every gate of the file and every run it is for.

    folder: of the results, to compare with earlier ones. means, costs: of the runs that are there.
    """
    several = len(experiment.run_names) > 1
    for guard in experiment.gates:
        wanted = guard.gate.runs or experiment.run_names
        if guard.not_worse_than:
            found = list(_not_worse(guard, diff(guard.not_worse_than, folder)))
            if not guard.gate.runs:
                # What is new has nothing to be worse than.
                wanted = tuple(verdict.run for verdict in found)
            if not wanted:
                yield _missing(guard, "every run", f"has no run in {guard.not_worse_than}")
        else:
            found = verdicts(guard.gate, [*means, *costs], several=several)
        yield from (replace(verdict, gate=guard) for verdict in found)
        there = {verdict.run for verdict in found}
        yield from (_missing(guard, run, "was not measured") for run in wanted if run not in there)


def _missing(guard: Guard, run: str, why: str) -> Verdict:
    return Verdict(guard, run, False, math.nan, message=f"{guard.gate.measure} of {run} {why}")


def unjudged(experiment: Experiment, why: str) -> tuple[Verdict, ...]:
    """The verdicts of gates that nothing could be held against."""
    return tuple(
        _missing(guard, run, f"was not measured: {why}")
        for guard in experiment.gates
        for run in guard.gate.runs or experiment.run_names
    )


def _not_worse(guard: Guard, found: Diff) -> Iterable[Verdict]:
    """A run passes unless it is shown to be worse by more than the margin; with `confident`, where
    it is shown not to be.
    """
    for row in found.rows:
        if row.measure != guard.gate.measure:
            continue
        if guard.gate.runs and row.run not in guard.gate.runs:
            continue
        worst, best = row.worse_by
        limit = guard.margin
        passed = worst <= limit if guard.gate.confident else not best > limit
        message = ""
        if not passed:
            shown = f"{row.before:.6g} before, {row.after:.6g} now"
            interval = f"{row.difference:+.4g}, interval {row.low:+.4g} to {row.high:+.4g}"
            what = "may be worse" if guard.gate.confident else "is worse"
            by = f" by more than {limit:g}" if limit else ""
            message = f"{row.measure} of {row.run} {what}{by}: {shown} ({interval})"
        yield Verdict(guard.gate, row.run, passed, row.after, message=message, n=row.n)
