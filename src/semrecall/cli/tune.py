"""semrecall tune: the cheapest setting of a system that meets a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from semrecall.cli.embedding import queries_given, set_options
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.sources import BASE, FILE
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.tuning import Tuning

__all__ = [
    "command",
    "inputs_of",
    "progress",
    "ranges",
    "system_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--base", type=BASE, help="Base vectors: to build, and for exact scores."),
    click.option("--queries", type=FILE, help="Query vectors."),
    set_options,
    click.option("--truth", type=FILE, help="The exact neighbours (made by semrecall truth)."),
    click.option("--judgments", type=FILE, help="Grades of documents: qrels, labels."),
    click.option("--grade", metavar="COLUMN", help="Column of the judgments with the grades."),
    click.option(
        "--space", type=click.Choice(["ip", "cosine", "l2"]), help="Needed to build a system."
    ),
    click.option("-k", type=click.IntRange(min=1), help="Results per query, where more than the "
                 "measures need."),
    click.option("--base-dataset", help="Part of the base file: HDF5 data set or parquet column."),
    click.option("--queries-dataset", help="Part of the queries file."),
    click.option("--base-ids", type=FILE, help="Ids of the base rows, one a line, or .npy."),
    click.option("--query-ids", type=FILE, help="Ids of the queries, one a line, or .npy."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
                 help="Seed of splits, searches and intervals."),
    click.option("--confidence", type=float, default=0.95, show_default=True,
                 help="Confidence of the intervals."),
)  # fmt: skip


def system_options(command: Command) -> Command:
    """Decorator: the options that say what is searched, and against what it is measured."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("tune", cls=WritingCommand)
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option(
    "--target", required=True, metavar="TEXT", help='What to reach: "srecall@100 >= 0.98".'
)
@click.option(
    "--minimize",
    metavar="COST",
    help="bytes_read, distance_computations, cpu_seconds, latency_seconds, "
    "latency_p95_seconds, queries_per_second, ... Default: the first that is counted.",
)
@click.option(
    "--search",
    "search_ranges",
    multiple=True,
    metavar="KNOB=LOW:HIGH",
    help="A search knob to tune: a range, values (1,2,4), or its name alone. "
    "Default: all that trade quality for cost.",
)
@click.option(
    "--build",
    "build_ranges",
    multiple=True,
    metavar="KNOB=LOW:HIGH",
    help="A build knob to tune, likewise; each build serves all its searches.",
)
@click.option(
    "-m",
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="A further measure to show; may be repeated.",
)
@click.option(
    "--against",
    metavar="MEASURE",
    help="Also show what this saves against tuning for another measure: recall.",
)
@click.option(
    "--split",
    type=FILE,
    metavar="FILE",
    help="Who chooses (dev) and who confirms (test); made by semrecall split.",
)
@click.option(
    "--dev",
    type=float,
    default=0.5,
    show_default=True,
    help="Without --split: the share of the queries that choose.",
)
@click.option(
    "--choose",
    type=click.Choice(["mean", "bound"]),
    default="mean",
    show_default=True,
    help="What has to meet the target on queries that choose: the mean, or the worse "
    "end of its interval.",
)
@click.option(
    "--searcher",
    default="auto",
    show_default=True,
    help="auto, bisection, grid, tpe, random, vizier.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Settings tried at most; after 'not met' as many again, for one that is surer.",
)
@click.option(
    "--builds",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="Builds made at most, where build knobs are tuned.",
)
@click.option(
    "--store",
    type=OutputPath(dir_okay=False),
    metavar="FILE",
    help="Keep finished trials (SQLite); the same command goes on where it stopped.",
)
@click.option(
    "--html",
    type=OutputPath(".html", ".htm", dir_okay=False),
    metavar="FILE",
    help="Also write an HTML page with the front as a chart.",
)
@system_options
@format_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Find the cheapest setting of a system that meets a target, and confirm it.

    SPEC is as in semrecall search; several are compared by their cost. Half of the queries choose
    the setting; the other half confirms it, once, with an interval. Finished trials survive
    whatever stops the search (--store).

    \b
    Examples:
      semrecall tune faiss?factory=IVF256,SQ8 --base base.fbin --queries queries.fbin --space ip \\
          --truth truth.parquet --judgments labels.parquet --target "srecall@100 >= 0.98"
      semrecall tune pgvector://... --queries queries.npy --truth truth.parquet \\
          --target "recall@10 >= 95%" --minimize latency_p95_seconds --store tune.sqlite

    Exit status: 0 the target is met, 1 it is not, or cannot be reached, 2 wrong input, 3 stopped.
    """
    from semrecall.errors import Stopped

    try:
        inputs = _inputs(given)
    except KeyboardInterrupt as stop:
        # As tune() itself says it from here on.
        raise Stopped("interrupted; no trial was finished", hint="run the same again") from stop
    from semrecall.tuning import tune

    found = tune(
        list(given["specs"]),
        target=given["target"],
        minimize=given["minimize"],
        search=ranges(given["search_ranges"], "--search") or None,
        build=ranges(given["build_ranges"], "--build") or None,
        measures=given["measures"],
        against=given["against"],
        progress=progress(),
        **inputs,
        **{n: given[n] for n in ("dev", "choose", "searcher", "trials", "builds", "store")},
        **{n: given[n] for n in ("seed", "confidence")},
    )
    _count_use(given["split"], found)
    _show(found, given["format"])
    if given["html"]:
        found.to_html(given["html"], command=command_line())
        click.echo(f"wrote {given['html']}", err=True)
    ctx.exit(0 if found.verdict == "met" else 1)


def _inputs(given: dict[str, Any]) -> dict[str, Any]:
    """What is read before the first trial."""
    from semrecall.registry import import_extra
    from semrecall.splits import read_split

    if given["html"]:
        # Better now than after the work.
        import_extra("matplotlib", "report", "an HTML page")
    split = read_split(given["split"]) if given["split"] else None
    return {**inputs_of(given), "split": split}


def inputs_of(given: dict[str, Any]) -> dict[str, Any]:
    """What the files say, in the words of `tune` and `sweep`."""
    from semrecall.cli.hints import hints_for
    from semrecall.formats import read_judgments, read_run
    from semrecall.systems import base_vectors

    base = truth = None
    if given["base"]:
        with hints_for("base", given["base"]):
            base = base_vectors(
                given["base"], dataset=given["base_dataset"], ids=given["base_ids"], whole=True
            )
    with hints_for("queries", given["queries"] or given["eval_set"] or ""):
        asked = queries_given(given)
    judgments = asked.pop("judgments", None)
    if given["truth"]:
        with hints_for("truth", given["truth"]):
            truth = read_run(given["truth"], space=given["space"])
    if given["judgments"]:
        with hints_for("judgments", given["judgments"]):
            judgments = read_judgments(given["judgments"], grade=given["grade"])
    return asked | {
        "base": base, "truth": truth, "judgments": judgments,
        "space": given["space"], "k": given["k"],
    }  # fmt: skip


def ranges(texts: Sequence[str], option: str) -> dict[str, Any]:
    """Ranges by knob."""
    from semrecall.errors import InputError
    from semrecall.tuning.ranges import read_range

    found: dict[str, Any] = {}
    for text in texts:
        name, values = read_range(text, option)
        if name in found:
            raise InputError(f"{option} {name} is given twice")
        found[name] = values
    return found


def progress() -> Callable[[str], None] | None:
    """Each finished trial in a line, for somebody who watches."""
    import sys

    if not sys.stderr.isatty():
        return None
    return lambda line: click.echo(line, err=True)


def _count_use(path: str | None, found: Tuning) -> None:
    """Note that the test part of a split was looked at."""
    from semrecall.splits import TEST, count_use

    if path:
        count_use(path, TEST, [(found.target.name, found.confirmed)])


def _show(found: Tuning, style: str) -> None:
    from semrecall.cli.tables import print_rows
    from semrecall.tuning.text import headline, point_row, remarks, way_out

    if style == "table":
        click.echo(str(found))
        return
    rows = [point_row(point, found) for point in found.front]
    print_rows(
        rows,
        style,
        document=found.to_dict() if style == "json" else None,
        notes=[headline(found), *filter(None, [way_out(found)]), *remarks(found)],
    )
