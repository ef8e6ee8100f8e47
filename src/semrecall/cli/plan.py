"""semrecall plan: how many labels, and of which pairs, until semantic recall is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.columns import LABELS, judgments_in
from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.correction import Correction
    from semrecall.data import Judgments, Run
    from semrecall.plan import Plan

__all__ = ["command"]

_FILE = click.Path(exists=True)


@click.command("plan", cls=WritingCommand)
@click.argument("runs", nargs=-1, required=True, type=_FILE, metavar="RUN...")
@click.option("--truth", type=_FILE, required=True, help="The exact neighbours.")
@click.option(
    "--width",
    type=float,
    default=0.02,
    show_default=True,
    help="How wide the interval of semantic recall may be: 0.02 is 0.01 to either side.",
)
@click.option(
    "--judgments",
    type=LABELS,
    metavar="FILE[:COLUMN]",
    help="Labels of any judge, to guess what is relevant.  [optional]",
)
@click.option(
    "--labels",
    type=LABELS,
    metavar="FILE[:COLUMN]",
    help="The labels of this plan so far: what they say.",
)
@click.option(
    "--pairs",
    type=_FILE,
    help="The pairs these labels were asked for, where the labels lack probabilities or pairs.",
)
@click.option("-m", "--measure", metavar="NAME", help="Such as srecall(rel=2)@100.")
@click.option(
    "--over",
    type=click.Choice(["pooled", "mean"]),
    default="pooled",
    show_default=True,
    help="Draw for the value pooled over queries, or for the mean over queries.",
)
@click.option(
    "--relevant", type=float, help="Share of neighbours taken to be relevant, without labels."
)
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the interval.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of what is drawn.")
@click.option(
    "-o",
    "--output",
    type=OutputPath(dir_okay=False),
    metavar="FILE",
    help="Write the pairs to label: .jsonl (for semrecall judge and label), .csv or .parquet.",
)
@click.option(
    "--conflicts",
    type=click.Choice(["error", "max", "first", "last"]),
    default="error",
    show_default=True,
    help="Judgments that contradict each other.",
)
@format_option
def command(runs: tuple[str, ...], output: str | None, **given: Any) -> None:
    """Plan labels: how many semantic recall takes, which ones, and whether there are enough.

    \b
    semrecall plan ann.parquet --truth truth.parquet --width 0.02 -o pairs.jsonl
    semrecall label pairs.jsonl ...            (or semrecall judge)
    semrecall plan ann.parquet --truth truth.parquet --width 0.02 --labels labels.jsonl

    Neighbours that a run missed come first, then a sample of those found; each pair carries the
    probability with which it was drawn, so that the labels allow an estimate with an interval.
    With --labels the estimate is printed, and whether its interval is narrow enough.
    """
    from semrecall.plan import plan

    names = ("width", "measure", "over", "relevant", "confidence", "seed")
    parts = _read(runs, given)
    found = plan(
        parts["runs"],
        parts["truth"],
        judgments=parts["judgments"],
        labels=parts["labels"],
        **{name: given[name] for name in names},
    )
    estimates = []
    if parts["labels"] is not None:
        estimates = _estimates(parts["runs"], parts["truth"], parts["labels"], found)
    if output:
        found.write(output)
        click.echo(f"wrote {len(found):,} pairs to {output}", err=True)
    _show(found, estimates, given["format"])


def _read(runs: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    from semrecall.correction import with_pairs
    from semrecall.errors import InputError
    from semrecall.formats import read_pairs, read_run

    if given["pairs"] and not given["labels"]:
        raise InputError("--pairs is given without --labels", hint="give the labels of these pairs")
    judged, labels = (
        judgments_in(given[name], given["conflicts"]) if given[name] else None
        for name in ("judgments", "labels")
    )
    if given["pairs"] and labels is not None:
        labels = with_pairs(labels, read_pairs(given["pairs"]))
    found = [_named(read_run(path), path) for path in runs]
    truth = read_run(given["truth"])
    return {"runs": found, "truth": truth, "judgments": judged, "labels": labels}


def _named(run: Run, path: str) -> Run:
    from pathlib import Path

    return run.replace(name=run.name or Path(path).name.split(".")[0])


def _estimates(runs: list[Run], truth: Run, labels: Judgments, plan: Plan) -> list[Correction]:
    from semrecall.correction import correct

    return [
        correct(run, truth, None, labels, plan.measure, confidence=plan.confidence) for run in runs
    ]


def _show(found: Plan, estimates: list[Correction], format: str) -> None:  # noqa: A002
    from dataclasses import asdict

    from semrecall.cli.tables import print_rows
    from semrecall.text import wrapped

    if format == "json":
        whole = found.to_dict() | {"estimates": [e.to_dict() for e in estimates]}
        print_rows([], "json", document=whole)
        return
    rows = [{"design": d.name} | asdict(d) | {"over": d.over or "both"} for d in found.designs]
    titles = {name: name for name in ("design", "over", "labels", "queries", "width")}
    if format == "csv":
        print_rows(rows, "csv")
        return
    for estimate in estimates:
        click.echo(str(estimate))
        click.echo(f"  {_verdict(found, estimate)}\n")
    notes = [line for note in found.notes() for line in wrapped(note)]
    print_rows(rows, format, titles=titles, notes=notes, digits=3)


def _verdict(found: Plan, estimate: Correction) -> str:
    """Whether the labels are enough."""
    from semrecall.text import number

    value = estimate.pooled if found.over == "pooled" else estimate.mean
    if value.value != value.value or value.width != value.width:
        return f"not enough labels yet for the {_over(found)}"
    wide = f"the interval of the {_over(found)} is {number(value.width)} wide"
    if value.width <= found.width:
        return f"enough: {wide}, {found.width:g} was asked for"
    return f"not enough yet: {wide}, {found.width:g} is asked for"


def _over(found: Plan) -> str:
    return "pooled value" if found.over == "pooled" else "mean over queries"
