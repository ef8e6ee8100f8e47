"""semrecall diff: what changed from one result to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.experiment import Diff
    from semrecall.experiment.recorded import Recorded

__all__ = ["command"]

_FILE = click.Path(exists=True)


@click.command("diff", cls=WritingCommand)
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@click.option(
    "--pair", "pairs", multiple=True, metavar="BEFORE=AFTER",
    help="Runs that are the same under other names; may be repeated.",
)  # fmt: skip
@click.option(
    "--test", type=click.Choice(["randomisation", "t", "wilcoxon", "sign"]),
    default="randomisation", show_default=True, help="The paired test over queries.",
)  # fmt: skip
@click.option("--worst", type=click.IntRange(0), default=5, show_default=True,
              help="So many of the queries that got worse most.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the test.")
@click.option("--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              default=0.95, show_default=True, help="Of the intervals.")  # fmt: skip
@click.option(
    "--html", type=OutputPath(".html", ".htm", dir_okay=False), metavar="FILE",
    help="Also write it as a page.",
)  # fmt: skip
@click.option("--fail-if-worse", is_flag=True, help="Exit with 1 when a mean is surely worse.")
@format_option
@click.pass_context
def command(ctx: click.Context, /, before: str, after: str, **given: Any) -> None:
    """Show what changed from one result to another: measures, queries, settings, data.

    BEFORE and AFTER are results folders of semrecall run, JSON of semrecall score --format json
    --per-query, or saved comparisons. Where the queries match, they are compared one by one.

    \b
    semrecall diff baseline results
    semrecall diff monday.json today.json --fail-if-worse
    semrecall diff baseline results --pair "hnsw=hnsw efSearch=64"

    Exit status: 0 done, 1 a mean is worse under --fail-if-worse, 2 wrong input.
    """
    from semrecall.experiment import diff, read_results
    from semrecall.experiment.diff_text import cells, write_page

    was, now = read_results(before), read_results(after)
    found = diff(
        was, now, pairs=_pairs(given["pairs"], was, now), test=given["test"],
        confidence=given["confidence"], seed=given["seed"],
    )  # fmt: skip
    _show(found, given["format"], given["worst"])
    if given["html"]:
        write_page(found, given["html"], given["worst"])
        click.echo(f"wrote {given['html']}", err=True)
    if given["fail_if_worse"]:
        for row in found.worse:
            name, measure, old, new, change, *_ = cells(row)
            click.echo(f"failed: {measure} of {name} is {new}, was {old} ({change})", err=True)
    ctx.exit(1 if given["fail_if_worse"] and found.worse else 0)


def _pairs(texts: tuple[str, ...], old: Recorded, new: Recorded) -> dict[str, str]:
    """BEFORE=AFTER, cut at the "=" with a run on either side: names may hold some of their own."""
    from semrecall.errors import InputError

    found: dict[str, str] = {}
    for text in texts:
        parts = text.split("=")
        cuts = [("=".join(parts[:at]).strip(), "=".join(parts[at:]).strip())
                for at in range(1, len(parts))]  # fmt: skip
        known = [cut for cut in cuts if cut[0] in old.runs and cut[1] in new.runs]
        if len(cuts) == 1 and all(cuts[0]):
            known = cuts  # whatever it names, it can be cut in one way only
        if len(known) != 1:
            raise InputError(
                f"--pair {text!r} is not BEFORE=AFTER, with a run on either side",
                hint=f"runs before: {', '.join(old.runs)}; after: {', '.join(new.runs)}",
            )
        found |= dict(known)
    return found


def _show(found: Diff, format: str, worst: int) -> None:  # noqa: A002
    from dataclasses import asdict

    from semrecall.cli.tables import print_rows
    from semrecall.experiment import diff_text

    if format == "table":
        click.echo(diff_text.text(found, worst))
    elif format == "json":
        print_rows([], "json", document=found.to_dict(worst))
    elif format == "csv":
        print_rows([asdict(row) | {"worse": row.worse} for row in found.rows], "csv")
    else:
        heads = diff_text.HEADS
        rows = [dict(zip(heads, diff_text.cells(row), strict=True)) for row in found.rows]
        click.echo(f"{diff_text.headline(found)}\n")
        print_rows(rows, "markdown")
        for title, entries in diff_text.lists(found, worst):
            click.echo("\n".join(["", f"**{title}**", "", *(f"- {entry}" for entry in entries)]))
