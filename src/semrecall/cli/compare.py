"""semrecall compare: how far runs are apart, how sure that is, and for which queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.inputs import FILE, evaluated, input_options
from semrecall.cli.outputs import OutputPath, WritingCommand

if TYPE_CHECKING:
    from semrecall.evaluate import Comparison, Paired

__all__ = ["command"]

_SETTINGS = ("baseline", "test", "correction", "interval", "margin", "seed", "confidence")


@click.command("compare", cls=WritingCommand)
@click.argument("runs", nargs=-1, type=FILE, metavar="RUN...")
@input_options
@click.option("--baseline", metavar="NAME", help="Compare all other runs with this one.")
@click.option(
    "--test",
    type=click.Choice(["randomisation", "t", "wilcoxon", "sign"]),
    default="randomisation",
    show_default=True,
    help="The paired test over queries.",
)
@click.option(
    "--correction",
    type=click.Choice(["holm", "bonferroni", "bh", "none"]),
    default="holm",
    show_default=True,
    help="Of p-values, for the number of tests.",
)
@click.option(
    "--interval",
    type=click.Choice(["t", "bootstrap"]),
    default="t",
    show_default=True,
    help="The interval of a difference.",
)
@click.option(
    "--margin", type=float, metavar="X", help="A difference below X does not matter: test for it."
)
@click.option("--moved", type=click.IntRange(1), metavar="N", help="The N queries that moved most.")
@click.option(
    "--save",
    type=OutputPath(".json", ".parquet", dir_okay=False),
    metavar="FILE",
    help="Save the comparison (.json, .parquet), to add runs later.",
)
@click.option("--load", type=FILE, metavar="FILE", help="Start from a saved comparison.")
@click.option(
    "--fail-if-worse",
    is_flag=True,
    help="Exit with 1 when a run is significantly worse than the baseline, or an earlier run.",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(["table", "json", "csv", "markdown", "latex", "html"]),
    default="table",
    show_default=True,
    help="How to print the data.",
)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Compare runs over the same queries, in pairs.

    \b
    semrecall compare old.txt new.txt --judgments qrels.txt -m nDCG@10 -m R@100
    semrecall compare *.parquet --truth truth.parquet --baseline hnsw --margin 0.01
    semrecall compare old.txt new.txt --judgments qrels.txt --columns queries.csv --by language
    semrecall compare --load saved.json newer.txt --judgments qrels.txt --save saved.json

    Differences have intervals and p-values, corrected for their number. With --by all is done
    within each slice too, and the slice that fell behind the others is named. Exit status: 0
    done, 1 a run is worse under --fail-if-worse, 2 wrong input.
    """
    comparison = _comparison(ctx, given)
    if given["save"]:
        comparison.save(given["save"])
        click.echo(f"wrote {given['save']}", err=True)
    _show(comparison, given["format"], given["moved"])
    worse = [row for row in comparison.rows if row.significant and not row.better]
    if given["fail_if_worse"]:
        for row in worse:
            click.echo(f"failed: {_sentence(row)}", err=True)
    ctx.exit(1 if worse and given["fail_if_worse"] else 0)


def _comparison(ctx: click.Context, given: dict[str, Any]) -> Comparison:
    from semrecall.errors import InputError
    from semrecall.evaluate import Comparison, compare
    from semrecall.text import plural

    chosen = {name: given[name] for name in _SETTINGS}
    if not given["load"]:
        if len(given["runs"]) < 2:
            raise InputError(
                f"{plural(len(given['runs']), 'run')} to compare; expected at least two",
                hint="name their files, or --load a saved comparison to add to",
            )
        return compare(evaluated(given), **chosen)
    source = click.core.ParameterSource.DEFAULT
    stated = {n: v for n, v in chosen.items() if ctx.get_parameter_source(n) != source}
    loaded = Comparison.load(given["load"])
    if given["by"] or given["measures"]:
        raise InputError(
            f"{given['load']} has its measures and slices already",
            hint="leave -m and --by out, or compare all runs again",
        )
    if given["runs"]:
        again = given | {"measures": loaded.measures}
        if ctx.get_parameter_source("no_relevant") == source:
            again |= {"no_relevant": loaded.no_relevant}
        loaded = loaded.extend(evaluated(again))
    return loaded.replace(**stated)


def _show(comparison: Comparison, format: str, moved: int | None) -> None:  # noqa: A002

    from semrecall.cli.tables import print_rows
    from semrecall.evaluate.comparison import row_dict
    from semrecall.evaluate.comparison_text import remarks

    if format in ("latex", "html"):
        click.echo(comparison.table(format), nl=False)
        for note in remarks(comparison, listed=False):
            click.echo(note, err=True)
        return
    found = [] if moved is None else _moved(comparison, moved)
    if format == "json":
        whole = comparison.to_dict() | ({} if moved is None else {"moved": found})
        print_rows([], "json", document=whole)
        return
    if format == "csv":
        rows = [row_dict(row) for row in [*comparison.rows, *comparison.slice_rows]]
        notes = [*comparison.fallen(), *remarks(comparison)]
        print_rows(rows if moved is None else found, "csv", notes=notes)
        return
    if format == "table":
        click.echo(str(comparison))
    else:
        _show_markdown(comparison)
    if moved is not None:
        heading = "the queries that moved most"
        click.echo(f"\n{heading}\n" if format == "table" else f"\n**{heading}**\n")
        print_rows(found, format)


def _show_markdown(comparison: Comparison) -> None:
    from semrecall.cli.tables import print_rows
    from semrecall.evaluate.comparison import row_dict
    from semrecall.evaluate.comparison_text import remarks

    click.echo(comparison.table("markdown"))
    titles = {
        "measure": "measure", "baseline": "baseline", "run": "run", "column": "slice",
        "group": "group", "n": "queries", "difference": "difference", "low": "low",
        "high": "high", "p": "p", "p_corrected": "p corrected", "effect": "effect",
        "wins": "won", "ties": "tied", "losses": "lost", "detectable": "detects",
        "equivalent": "equivalent",
    }  # fmt: skip
    if not comparison.slices:
        del titles["column"], titles["group"]
    if comparison.margin is None:
        del titles["equivalent"]
    rows = [row_dict(row) for row in [*comparison.rows, *comparison.slice_rows]]
    print_rows(rows, "markdown", titles=titles, notes=[*comparison.fallen(), *remarks(comparison)])


def _moved(comparison: Comparison, n: int) -> list[dict[str, Any]]:
    """The n queries that moved most, for each measure and pair."""
    return [
        {
            "measure": measure,
            # An id, and no count with its thousands marked.
            "query": str(query.query),
            "baseline": baseline,
            "its value": query.baseline,
            "run": run,
            "value": query.run,
            "difference": query.difference,
        }
        for measure in comparison.measures
        for baseline, run in comparison.pairs
        for query in comparison.moved(measure, n, run=run, baseline=baseline)
    ]


def _sentence(row: Paired) -> str:
    return (
        f"{row.measure} of {row.run} is worse than that of {row.baseline} by "
        f"{abs(row.difference):.4g} (corrected p {row.p_corrected:.2g})"
    )
