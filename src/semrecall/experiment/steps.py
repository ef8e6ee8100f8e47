"""The steps of an experiment: truth, runs, judgments, scores, comparison, report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from semrecall.experiment.engine import Plan, Step
from semrecall.experiment.plan import Asked, Experiment
from semrecall.experiment.recorded import SCORES, VALUES
from semrecall.experiment.work import (
    COMPARISON,
    JUDGMENTS,
    REPORT,
    TRUTH,
    Work,
    files_in,
    run_file,
)  # fmt: skip

__all__ = ["steps_of"]

#: Raised where a step would come out otherwise from the same: then it is done again.
_FORMAT = 1
_UNSEEN = "what it holds cannot be seen"


def steps_of(work: Work) -> list[Step]:
    """In the order in which they are done."""
    experiment = work.experiment
    steps: list[Step] = []
    if experiment.data.truth is None and experiment.data.base is not None:
        plan = partial(_truth_plan, experiment)
        steps.append(Step("truth", (TRUTH,), plan, lambda there: work.find_truth()))
    names = []
    for asked in experiment.systems:
        for setting in asked.settings if asked.spec else ():
            steps.append(_run_step(work, asked, setting))
            names.append(steps[-1].name)
    has_truth = tuple(step.name for step in steps if step.name == "truth")
    takes = tuple(names)
    if experiment.judgments is not None and experiment.judgments.judge:
        of = experiment.judgments.of
        steps.append(
            Step(
                "judgments", (JUDGMENTS,), partial(_judgments_plan, work),
                lambda there: work.judge(_runs(work, there)),
                needs=has_truth if "truth" in of else (), takes=takes if "runs" in of else (),
            )
        )  # fmt: skip
        takes = (*takes, "judgments")
    return [*steps, *_later(work, has_truth, takes)]


def _later(work: Work, needs: tuple[str, ...], takes: tuple[str, ...]) -> list[Step]:
    """What is made of the runs together."""
    experiment = work.experiment

    def made(method: Any) -> Any:
        return lambda there: method(_runs(work, there), _judged(work, there))

    plan = partial(_scores_plan, work)
    found = [Step("scores", (SCORES, VALUES), plan, made(work.score), needs, takes)]
    after = (*needs, "scores")
    if experiment.comparison is not None:
        plan = partial(_compare_plan, work)
        found.append(Step("comparison", (COMPARISON,), plan, made(work.compare), after, takes))
    if experiment.report is not None:
        plan = partial(_report_plan, work)
        if experiment.comparison is not None:
            takes = (*takes, "comparison")
        found.append(
            Step(
                "report", (REPORT,), plan,
                lambda there: work.report(
                    _runs(work, there), _judged(work, there), "comparison" in there
                ),
                after, takes,
            )
        )  # fmt: skip
    return found


def _run_step(work: Work, asked: Asked, setting: Mapping[str, Any]) -> Step:
    name = asked.run_name(setting)
    return Step(
        f"run {name}",
        (run_file(name), run_file(name, ".cost.parquet")),
        partial(_run_plan, work.experiment, asked, setting),
        lambda there: work.search(asked, setting),
        always=_UNSEEN if asked.search_again else "",
        groups=("runs", asked.name),
    )


# -- what is there ----------------------------------------------------------------------------


def _runs(work: Work, there: Collection[str]) -> tuple[str, ...]:
    """The runs that can be read: those of files, and those whose step is done."""
    files = {asked.name for asked in work.experiment.systems if asked.run}
    names = work.experiment.run_names
    return tuple(name for name in names if name in files or f"run {name}" in there)


def _judged(work: Work, there: Collection[str]) -> bool:
    plan = work.experiment.judgments
    return plan is not None and (bool(plan.file) or "judgments" in there)


# -- what each is made from -------------------------------------------------------------------


def _vectors(experiment: Experiment, *, truth: bool) -> dict[str, Any]:
    data = experiment.data
    named = [("base", data.base), ("base ids", data.base_ids), ("queries", data.queries)]
    named += [("query ids", data.query_ids)]
    if truth:
        named += [("base columns", data.base_columns)]
        named += [("columns", data.columns)] if data.filter and "$" in data.filter else []
    return {_shown(name, path): path for name, path in named if path is not None}


def _shown(name: str, path: Any) -> str:
    return f"{name} {', '.join(path) if isinstance(path, tuple) else path}"


def _geometry(experiment: Experiment) -> dict[str, Any]:
    data = experiment.data
    parts = {"base_dataset": data.base_dataset, "queries_dataset": data.queries_dataset}
    known = {name: value for name, value in parts.items() if value is not None}
    return {"format": _FORMAT, "k": data.k, "space": data.space, **known}


def _truth_plan(experiment: Experiment, there: Collection[str]) -> Plan:
    options = _geometry(experiment)
    if experiment.data.filter is not None:
        options["filter"] = experiment.data.filter
    return _vectors(experiment, truth=True), options


def _run_plan(
    experiment: Experiment, asked: Asked, setting: Mapping[str, Any], there: Collection[str]
) -> Plan:
    data = experiment.data
    inputs = _vectors(experiment, truth=False)
    inputs |= {_shown(option, path): path for option, path in files_in(asked.spec)}
    if data.query_texts is not None:
        inputs[_shown("query texts", data.query_texts)] = data.query_texts
    options = {
        "spec": asked.spec, "build": dict(asked.build), "setting": dict(setting),
        "filter": asked.filter, "repeats": asked.repeats,
        "latency_queries": asked.latency_queries,
    }  # fmt: skip
    return inputs, {**_geometry(experiment), **options}


def _judgments_plan(work: Work, there: Collection[str]) -> Plan:
    experiment = work.experiment
    plan, data = experiment.judgments, experiment.data
    assert plan is not None
    inputs: dict[str, Any] = {}
    if "truth" in plan.of:
        inputs |= _truth_input(work)
    if "runs" in plan.of:
        inputs |= _run_inputs(work, there)
    for name, path in (("corpus", data.corpus), ("query texts", data.query_texts)):
        if path is not None:
            inputs[_shown(name, path)] = path
    texts = {k: v for k, v in plan.options.items() if isinstance(v, str)}
    for name, path in texts.items():
        if Path(path).is_file():
            inputs[_shown(name, path)] = path
    options = {
        "format": _FORMAT, "judge": plan.judge, **plan.options, "of": list(plan.of),
        "k": plan.k or data.k, "canaries": plan.canaries, "repeat": plan.repeat,
        "seed": plan.seed, "ledger": plan.ledger,
    }  # fmt: skip
    return inputs, options


def _truth_input(work: Work) -> dict[str, Any]:
    data = work.experiment.data
    if data.truth is not None:
        return {_shown("truth", data.truth): data.truth}
    return {} if data.base is None else {TRUTH: work.results / TRUTH}


def _run_inputs(work: Work, there: Collection[str]) -> dict[str, Any]:
    files = {asked.name: asked.run for asked in work.experiment.systems if asked.run}
    inputs: dict[str, Any] = {}
    for name in _runs(work, there):
        if name in files:
            inputs[_shown("run", files[name])] = files[name]
        else:
            inputs[run_file(name)] = work.results / run_file(name)
    return inputs


def _scores_plan(work: Work, there: Collection[str]) -> Plan:
    experiment = work.experiment
    data, plan = experiment.data, experiment.measures
    inputs = {**_truth_input(work), **_run_inputs(work, there)}
    judged = _judged(work, there)
    if judged and experiment.judgments is not None:
        file = experiment.judgments.file
        made = {JUDGMENTS: work.results / JUDGMENTS}
        inputs |= {_shown("judgments", file): file} if file else made
    if data.columns is not None:
        inputs[_shown("columns", data.columns)] = data.columns
    if plan.rescore:
        inputs |= _vectors(experiment, truth=False)
    options = {
        "format": _FORMAT, "measures": list(work.measured(judged)), "by": list(plan.by),
        "no_relevant": plan.no_relevant, "rescore": plan.rescore, "seed": plan.seed,
        "confidence": plan.confidence, "runs": list(_runs(work, there)),
    }  # fmt: skip
    return inputs, options


def _compare_plan(work: Work, there: Collection[str]) -> Plan:
    plan = work.experiment.comparison
    assert plan is not None
    options = {
        "format": _FORMAT, "baseline": plan.baseline, "test": plan.test,
        "correction": plan.correction, "margin": plan.margin,
    }  # fmt: skip
    return {VALUES: work.results / VALUES}, options


def _report_plan(work: Work, there: Collection[str]) -> Plan:
    plan, runs, judged = work.experiment.report, _runs(work, there), _judged(work, there)
    assert plan is not None
    inputs, _ = _scores_plan(work, there)
    inputs = {**inputs, SCORES: work.results / SCORES}
    # The page names all of these with their hashes.
    inputs |= {_shown(name, path): path for name, path in work.read(judged).items()}
    for name in sorted(work.searched & set(runs)):
        inputs[run_file(name, ".cost.parquet")] = work.results / run_file(name, ".cost.parquet")
    if "comparison" in there:
        inputs[COMPARISON] = work.results / COMPARISON
    options = {
        "format": _FORMAT, "title": plan.title, "made": [list(fact) for fact in work.made(runs)],
        "gates": [[str(guard), *guard.gate.runs] for guard in work.experiment.gates],
    }  # fmt: skip
    return inputs, options
