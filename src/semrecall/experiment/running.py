"""An experiment from its file to its results: steps, gates, and what came of them."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semrecall.errors import InputError
from semrecall.experiment.contents import Contents
from semrecall.experiment.engine import Done, forced, run_steps
from semrecall.experiment.gating import cost_means, judged, unjudged
from semrecall.experiment.manifest import Manifest
from semrecall.experiment.plan import Experiment
from semrecall.experiment.reading import FILE, read_experiment
from semrecall.experiment.recorded import means_of, read_scores
from semrecall.experiment.steps import steps_of
from semrecall.experiment.work import Work
from semrecall.gates import Mean, Verdict

__all__ = ["Outcome", "run_experiment"]

#: Of the cost, what stands beside the measures in the table.
_SHOWN_COSTS = ("distance_computations", "bytes_read", "latency_p99_seconds")


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment.

    means: of every run, measure and slice that is up to date. costs: by run, figures by name.
    gates: a verdict for every gate of the file (a Guard) and run.
    """

    experiment: Experiment
    steps: tuple[Done, ...]
    means: tuple[Mean, ...] = ()
    costs: tuple[Mean, ...] = ()
    gates: tuple[Verdict, ...] = ()
    dry: bool = False

    @property
    def status(self) -> int:
        """The exit status: 0 done, 1 a gate failed, 2 a step failed, 3 stopped; run again."""
        states = {done.state for done in self.steps}
        if "failed" in states:
            return 2
        if "stopped" in states:
            return 3
        return 1 if any(not verdict.passed for verdict in self.gates) else 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a run: the means over all queries, and what a query cost."""
        whole = [mean for mean in self.means if not mean.column]
        rows = []
        for run in dict.fromkeys(mean.run for mean in whole):
            row: dict[str, Any] = {"run": run}
            row |= {mean.measure: mean.mean for mean in whole if mean.run == run}
            costs = {cost.measure: cost.mean for cost in self.costs if cost.run == run}
            row |= {name: _rounded(name, costs[name]) for name in _SHOWN_COSTS if name in costs}
            rows.append(row)
        return rows


def run_experiment(
    file: str | Path = FILE,
    *,
    force: Iterable[str] = (),
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Do what is out of date of an experiment, in order, and judge its gates.

    file: the experiment, see docs/experiments.md. The working folder is that of the file while it
        runs, as paths within it are relative to that.
    force: names of steps to do although they are up to date, or "all".
    dry_run: do nothing; the outcome says what would be done, and why.
    tell: gets a line for each step.

    A step that fails is in the outcome, and so are those that wait for it; the others are done.
    Raises InputError for what is wrong with the file.
    """
    experiment = read_experiment(file)
    with contextlib.chdir(experiment.folder):
        return _run(experiment, force, dry_run, tell)


def _run(
    experiment: Experiment, force: Iterable[str], dry: bool, tell: Callable[[str], None]
) -> Outcome:
    folder = Path(experiment.results)
    manifest, contents = Manifest.read(folder), Contents(folder)
    work = Work(experiment, tell, contents)
    steps = steps_of(work)
    chosen = forced(force, steps)
    if not dry:
        _prepare(folder)
        manifest.experiment = {
            "name": experiment.name, "file": experiment.file.name,
            "settings": json.loads(json.dumps(experiment.raw, default=str)),
        }  # fmt: skip
    try:
        done = run_steps(steps, manifest, contents, force=chosen, dry=dry, tell=tell)
    finally:
        work.close()
    scored = next(one for one in done if one.name == "scores")
    if dry or not scored.there:
        gates = () if dry else unjudged(experiment, "no scores")
        return Outcome(experiment, tuple(done), gates=gates, dry=dry)
    there = [one.name.removeprefix("run ") for one in done if one.there]
    means, costs = means_of(read_scores(folder)), tuple(cost_means(work.costs(there)))
    gates = tuple(judged(experiment, folder, means, costs))
    manifest.gates = [_gate_row(verdict) for verdict in gates]
    _forget(manifest, [step.name for step in steps])
    manifest.write()
    contents.save()
    return Outcome(experiment, tuple(done), means, costs, gates)


def _rounded(name: str, value: float) -> float:
    """Counts as whole numbers: a fraction of a byte is noise to a reader."""
    return value if name.endswith("_seconds") else round(value)


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InputError(f"results is {folder}, which is a file; expected a folder") from error


def _forget(manifest: Manifest, names: Sequence[str]) -> None:
    """Take out what steps made that the experiment has no more."""
    made = [manifest.steps[name] for name in names if name in manifest.steps]
    kept = {output for record in made for output in record.outputs}
    for name in [name for name in manifest.steps if name not in names]:
        for output in manifest.steps.pop(name).outputs:
            if output not in kept:
                (manifest.folder / output).unlink(missing_ok=True)


def _gate_row(verdict: Verdict) -> dict[str, Any]:
    value = None if math.isnan(verdict.value) else verdict.value
    return {
        "gate": str(verdict.gate), "run": verdict.run, "passed": verdict.passed, "value": value,
        "message": verdict.message,
    }  # fmt: skip
