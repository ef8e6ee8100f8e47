"""semrecall pool: which pairs to judge next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.inputs import run_options, runs_of
from semrecall.cli.labels import SAME_OPTIONS, SPLIT_OPTIONS, chosen_queries, same_settings
from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.sources import FILE
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.pool import Pool

__all__ = ["command"]

_SHOWN = 10


def _labels(command: Any) -> Any:
    for option in reversed((*SAME_OPTIONS, *SPLIT_OPTIONS)):
        command = option(command)
    return command


@click.command("pool", cls=WritingCommand)
@click.argument("runs", nargs=-1, required=True, type=FILE, metavar="RUN...")
@click.option("--judgments", type=FILE, help="What is judged already.")
@click.option("--truth", type=FILE, help="The exact neighbours join the pool.")
@click.option(
    "--depth", type=int, default=20, show_default=True, help="How many results of each run."
)
@click.option("--budget", type=int, help="At most so many pairs.  [default: all]")
@click.option(
    "--sample",
    type=int,
    default=0,
    show_default=True,
    help="So many of the budget are drawn at random from the rest, with known probabilities.",
)
@click.option(
    "--sample-by",
    type=click.Choice(["equal", "change"]),
    default="equal",
    show_default=True,
    help="Draw all alike, or those more often that could change more.",
)
@click.option(
    "-m",
    "--measure",
    metavar="NAME",
    help="What labels should change most.  [default: srecall with a truth, else nDCG@10]",
)
@click.option("--grade", type=float, help="Grade to reckon with.  [default: the highest known]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample.")
@click.option(
    "-o",
    "--output",
    type=OutputPath(dir_okay=False),
    metavar="FILE",
    help="Write the pairs for judging: .jsonl, .csv or .parquet.",
)
@click.option(
    "--conflicts",
    type=click.Choice(["error", "max", "first", "last"]),
    default="error",
    show_default=True,
    help="Judgments that contradict each other.",
)
@click.option("--grade-column", metavar="COLUMN", help="Column of the judgments with the grades.")
@run_options
@_labels
@format_option
def command(output: str | None, **given: Any) -> None:
    """List unjudged pairs of the first results of runs, those first that could change most.

    \b
    semrecall pool bm25.txt dense.txt --judgments qrels.txt --depth 20 -o pairs.jsonl
    semrecall pool ann.parquet --truth truth.parquet --budget 500 --sample 200 -o pairs.jsonl

    Prints how much of each run is judged, and the first pairs; with -o all pairs go to a file that
    judging takes. A pair that is picked for what it could change has the probability 1. With
    --same-as or --same-text the same document is judged once.
    """
    from semrecall.cli.hints import hints_for
    from semrecall.formats import read_judgments, read_run
    from semrecall.pool import pool

    judgments = truth = None
    pooled = runs_of(given)
    if given["judgments"]:
        with hints_for("judgments", given["judgments"]):
            judgments = read_judgments(
                given["judgments"], conflicts=given["conflicts"], grade=given["grade_column"]
            )
    if given["truth"]:
        with hints_for("truth", given["truth"]):
            truth = read_run(given["truth"])
    found = pool(
        pooled,
        judgments,
        truth=truth,
        only=chosen_queries(given),
        **same_settings(given),
        **{
            name: given[name]
            for name in ("depth", "budget", "sample", "sample_by", "measure", "grade", "seed")
        },
    )
    if output:
        found.write(output)
        click.echo(f"wrote {len(found):,} pairs to {output}", err=True)
    _show(found, given["format"], bool(output))


def _show(found: Pool, format: str, written: bool) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows
    from semrecall.text import plural

    pairs = found.rows()
    if format == "json":
        print_rows([], "json", document=found.to_dict())
        return
    if format == "csv":
        print_rows(pairs, "csv")
        return
    notes = [
        f"{plural(found.unjudged, 'unjudged pair')} and {len(found.judged):,} judged in the first "
        f"{found.depth} results; {len(found):,} picked, by what they could change in "
        f"{found.measure}"
    ]
    sampled = found.picked.count("sample")
    if sampled:
        notes.append(f"{sampled:,} of them drawn at random, seed {found.seed}")
    print_rows(_shares(found), format, notes=notes, digits=3)
    if written or not pairs:
        return
    click.echo()
    titles = {"query_id": "query", "doc_id": "document", "probability": "probability",
              "change": "change", "why": "why"}  # fmt: skip
    more = len(pairs) - _SHOWN
    # As text: a number that is an id has no thousands to mark.
    first = [row | {key: str(row[key]) for key in ("query_id", "doc_id")} for row in pairs[:_SHOWN]]
    print_rows(
        first, format, titles=titles, digits=3,
        notes=[f"and {more:,} more; -o FILE writes all of them"] if more > 0 else [],
    )  # fmt: skip


def _shares(found: Pool) -> list[dict[str, Any]]:
    """A row per run: how much is judged at each depth."""
    rows: dict[str, dict[str, Any]] = {}
    for share in found.shares:
        row = rows.setdefault(share.run, {"judged": share.run})
        row[f"@{share.depth}"] = share.judged
    return list(rows.values())
