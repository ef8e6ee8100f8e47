"""semrecall run: an experiment file; what is out of date is done, and its gates are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.ci import Case, ci_options
from semrecall.cli.outputs import WritingCommand
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.experiment import Outcome
    from semrecall.experiment.engine import Done

__all__ = ["command"]

#: More measures than this stand below each other.
_WIDE = 4
_TITLES = {
    "distance_computations": "distances",
    "bytes_read": "bytes read",
    "latency_p99_seconds": "p99 ms",
}


@click.command("run", cls=WritingCommand)
@click.argument("file", type=click.Path(dir_okay=False), default="semrecall.toml")
@click.option(
    "--force", multiple=True, metavar="STEP",
    help='Do this step although it is up to date: truth, runs, a system, judgments, scores, '
    "comparison, report, all; may be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be done and why, and do nothing.")
@click.option("--init", is_flag=True, help="Write a FILE to start from, with comments.")
@ci_options
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    force: tuple[str, ...],
    dry_run: bool,
    init: bool,
    junit: str | None,
    summary: str | None,
    format: str,  # noqa: A002
) -> None:
    """Do what is out of date of an experiment, and judge its gates.

    FILE names data, systems and their settings, judges, measures and gates. What is up to date, by
    the content of files, stays; the results folder has truth, runs, labels, scores, the report, and
    a manifest of what was made from what.

    \b
    semrecall run --init            # a semrecall.toml to start from
    semrecall run --dry-run         # what would be done, and why
    semrecall run --junit gates.xml
    semrecall run --force truth

    Exit status: 0 done, 1 a gate failed, 2 wrong input or a step failed, 3 stopped before the end
    (run again to go on). A step that fails does not lose the results of others.
    """
    from semrecall.experiment import run_experiment

    if init:
        _write_starter(file)
        return
    outcome = run_experiment(
        file, force=force, dry_run=dry_run, tell=lambda line: click.echo(line, err=True)
    )
    _show(outcome, format)
    _say_faults(outcome)
    cases = _cases(outcome)
    _tell_ci(outcome, cases, file, junit, summary)
    ctx.exit(outcome.status)


def _write_starter(file: str) -> None:
    from importlib.resources import files
    from pathlib import Path

    from semrecall.errors import InputError
    from semrecall.formats import write_whole

    if Path(file).exists():
        raise InputError(f"{file} exists", hint="name another file, or remove it")
    text = files("semrecall.experiment").joinpath("starter.toml").read_text(encoding="utf-8")
    write_whole(file, text)
    click.echo(f"wrote {file}: fill it in, then: semrecall run {file} --dry-run", err=True)


# -- what is printed --------------------------------------------------------------------------


def _show(outcome: Outcome, format: str) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows

    if format == "json":
        print_rows([], "json", document=_document(outcome))
        return
    if outcome.dry:
        print_rows(_step_rows(outcome.steps), format)
        return
    rows, titles = _table(outcome, wide=format != "csv")
    if rows:
        print_rows(rows, format, titles=titles)
    if outcome.gates and format != "csv":
        from semrecall.cli.ci import gates_table

        click.echo()
        found, heads = gates_table(outcome.gates)
        print_rows(found, format, titles=heads)


def _table(outcome: Outcome, *, wide: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A row a run; where there are many measures, or for programs, a row a run and measure."""
    measures = list(dict.fromkeys(mean.measure for mean in outcome.means))
    if wide and len(measures) <= _WIDE:
        rows = [_in_milliseconds(row) for row in outcome.rows]
        keys = list(dict.fromkeys(key for row in rows for key in row))
        return rows, {key: _TITLES.get(key, key) for key in keys}
    names = ("run", "measure", "column", "group", "mean", "low", "high", "n")
    long = [{name: getattr(mean, name) for name in names} for mean in outcome.means]
    sliced = any(mean.column for mean in outcome.means)
    kept = [name for name in names if sliced or name not in ("column", "group")]
    return long, {name: "queries" if name == "n" else name for name in kept}


def _in_milliseconds(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its seconds as people read them; programs get them as they are."""
    seconds = row.get("latency_p99_seconds")
    return row if seconds is None else row | {"latency_p99_seconds": _round(1000 * seconds)}


def _round(milliseconds: float) -> float:
    return float(f"{milliseconds:.3g}")


def _step_rows(steps: Sequence[Done]) -> list[dict[str, Any]]:
    return [{"step": done.name, "state": done.state, "why": done.reason} for done in steps]


def _document(outcome: Outcome) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "experiment": outcome.experiment.name,
        "results": outcome.experiment.results,
        "status": outcome.status,
        "steps": _step_rows(outcome.steps),
        "scores": [asdict(mean) for mean in outcome.means],
        "costs": [{"run": c.run, "cost": c.measure, "value": c.mean} for c in outcome.costs],
        "gates": [
            {
                "gate": str(v.gate), "run": v.run, "passed": v.passed, "value": v.value,
                "low": v.low, "high": v.high, "message": v.message,
            }
            for v in outcome.gates
        ],
    }  # fmt: skip


def _say_faults(outcome: Outcome) -> None:
    """Errors of steps with their hints, and gates that failed."""
    for done in outcome.steps:
        if done.error is None:
            continue
        word = "stopped" if done.state == "stopped" else "error"
        click.echo(f"{word}: {done.name}: {done.reason}", err=True)
        hint = getattr(done.error, "hint", None)
        if hint:
            click.echo(f"hint: {hint}", err=True)
    for verdict in outcome.gates:
        if not verdict.passed:
            click.echo(f"failed: {verdict.message}", err=True)


# -- continuous integration -------------------------------------------------------------------


def _cases(outcome: Outcome) -> list[Case]:
    from semrecall.cli.ci import case_of

    outcomes: dict[str, Any] = {"failed": "error", "stopped": "error", "waits": "skipped"}
    steps = [
        Case("steps", done.name, outcomes.get(done.state, "passed"),
             done.reason if done.state in outcomes else "", done.seconds)
        for done in outcome.steps
    ]  # fmt: skip
    return [*steps, *(case_of(verdict, verdict.gate.line) for verdict in outcome.gates)]


def _tell_ci(
    outcome: Outcome, cases: list[Case], file: str, junit: str | None, summary: str | None
) -> None:
    from semrecall.cli import ci
    from semrecall.cli.tables import rows_text

    if outcome.dry:
        return
    if junit:
        ci.junit(cases, junit)
    if summary:
        rows, titles = _table(outcome, wide=True)
        gates, heads = ci.gates_table(outcome.gates)
        failed = sum(not verdict.passed for verdict in outcome.gates)
        of = f": {failed} of {len(gates)} gates failed" if gates else ""
        ci.append_summary(
            summary,
            f"{outcome.experiment.name}{of}",
            [
                rows_text(gates, "markdown", titles=heads) if gates else "",
                rows_text(rows, "markdown", titles=titles) if rows else "",
                rows_text(_step_rows(outcome.steps), "markdown"),
            ],
        )
    ci.annotate(cases, file)
