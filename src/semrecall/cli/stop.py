"""semrecall stop: learn when a query has seen enough lists, and what that saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.sources import FILE
from semrecall.cli.tables import format_option
from semrecall.cli.tune import inputs_of, progress, system_options

if TYPE_CHECKING:
    from semrecall.stopping import Stopping

__all__ = ["command"]


@click.command("stop", cls=WritingCommand)
@click.argument("spec", metavar="SPEC")
@click.option(
    "--target", required=True, metavar="TEXT",
    help='What every query is to reach: "srecall@100 >= 0.95".',
)  # fmt: skip
@click.option(
    "--allowed", type=float, default=0.02, show_default=True,
    help="By how much a new query may be expected to fall short of it.",
)  # fmt: skip
@click.option("--most", type=click.IntRange(min=1), help="Lists visited at most; default: all.")
@click.option(
    "--split", type=FILE, metavar="FILE",
    help="Which queries fit, calibrate and test: a file of query_id and split.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=OutputPath(".json", dir_okay=False), metavar="FILE",
    help="Where the rule goes, for semrecall search --stop.",
)  # fmt: skip
@system_options
@format_option
@click.pass_context
def command(ctx: click.Context, /, spec: str, **given: Any) -> None:
    """Learn to end each query's search early, and try it on queries not seen.

    For indexes of inverted lists (faiss IVF). Boosted trees look at the partial result of a query
    after each round of lists; its search ends when they say that the target is reached. Queries
    have three parts: some fit the trees, some calibrate the threshold so that the expected
    shortfall is bounded, and the rest try the rule against a fixed nprobe and an oracle.

    \b
    Example:
      semrecall stop faiss?index=saved.faiss --base base.fbin --queries queries.fbin \\
          --truth truth.parquet --target "trecall(x=1%)@100 >= 0.95" -o stop.json
      semrecall search faiss?index=saved.faiss --queries more.fbin -k 100 --stop stop.json

    Exit status: 0 the shortfall is bounded, whether it pays or not, 1 it cannot be bounded, 2
    wrong input.
    """
    from contextlib import closing

    from semrecall.errors import InputError
    from semrecall.splits import read_split
    from semrecall.stopping import learn_stopping
    from semrecall.systems import open_in

    inputs = inputs_of(given)
    if inputs.pop("filters", None):
        raise InputError("searches in rounds take no filters", hint="--ignore-filters")
    inputs.pop("texts", None)
    with closing(open_in(spec, given["space"])) as system:
        found = learn_stopping(
            system,
            split=read_split(given["split"]) if given["split"] else None,
            progress=progress(),
            **inputs,
            **{n: given[n] for n in ("target", "allowed", "most", "seed", "confidence")},
        )
    _show(found, given["format"])
    if given["output"]:
        found.rule.save(given["output"])
        click.echo(f"wrote {given['output']}", err=True)
    ctx.exit(0 if found.promised else 1)


def _show(found: Stopping, style: str) -> None:
    from semrecall.cli.tables import print_rows
    from semrecall.stopping.text import headline, remarks

    if style == "table":
        click.echo(str(found))
        return
    rows = [
        {name: value["mean"] if isinstance(value, dict) else value for name, value in row.items()}
        for row in found.rows()
    ]
    print_rows(
        rows,
        style,
        document=found.to_dict() if style == "json" else None,
        notes=[headline(found), *remarks(found)],
    )
