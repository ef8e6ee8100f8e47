"""semrecall watch: score a running system on a schedule, against a stored truth."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand

if TYPE_CHECKING:
    from semrecall.watch import Board, Look, Watch

__all__ = ["command"]

_FILE = click.Path()


@click.command("watch", cls=WritingCommand)
@click.argument("spec")
@click.option("--truth", type=_FILE, required=True, help="The exact neighbours, as a run.")
@click.option("--queries", type=_FILE, help="Query vectors, by the ids of the truth.")
@click.option("--texts", type=_FILE, help="Texts of the queries, for a system asked in text.")
@click.option("--queries-dataset", help="Part of the queries file.")
@click.option("--query-ids", type=_FILE, help="Ids of the queries, one a line, or .npy.")
@click.option(
    "-m", "--measure", "measures", multiple=True, metavar="NAME",
    help="A measure of the index; may be repeated.  [default: trecall@10, or as deep as the truth]",
)  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A search knob.")
@click.option(
    "--space", type=click.Choice(["ip", "cosine", "l2"]),
    help="Of the scores, where neither the truth nor the system says.",
)  # fmt: skip
@click.option(
    "--base", metavar="FILE|SPEC",
    help="Vectors to score results from; a database's are read at every look.",
)  # fmt: skip
@click.option("--sample", type=click.IntRange(1), default=100, show_default=True,
              help="So many queries are asked, always the same.")  # fmt: skip
@click.option("--exact", "exact_queries", type=click.IntRange(0), default=0, show_default=True,
              help="So many it also searches exactly, to tell the truth's age.")  # fmt: skip
@click.option("--aged", type=click.FloatRange(0, 1, min_open=True), default=0.05,
              show_default=True, help="Share of changed neighbours: then it has aged.")  # fmt: skip
@click.option("--every", default="5m", show_default=True, metavar="TIME",
              help="Time between looks: 30s, 5m, 1h.")  # fmt: skip
@click.option("--once", is_flag=True, help="Look once and end, for cron.")
@click.option("--looks", type=click.IntRange(1), help="End after so many looks.")
@click.option(
    "--fail-under", multiple=True, metavar="MEASURE=VALUE",
    help="What the mean must reach; with --once or --looks exit with 1 when it does not.",
)  # fmt: skip
@click.option("--fail-if-aged", is_flag=True, help="Exit with 1 when the truth has aged, too.")
@click.option(
    "--prometheus", type=OutputPath(dir_okay=False), metavar="FILE",
    help="Write the values there after each look, for the textfile collector.",
)  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="Serve them, e.g. at 127.0.0.1:9464/metrics.")
@click.option("--name", help="The label of the system.  [default: SPEC]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the sample.")
@click.pass_context
def command(ctx: click.Context, /, spec: str, **given: Any) -> None:
    """Score a running system on a schedule by tolerant recall against a stored truth.

    SPEC is a system that is searched as it is: pgvector://host/db?table=docs, faiss?index=a.faiss,
    http://host:port/search?template=FILE, python:module:function. Each look prints a line, says
    when the truth has aged too far, and writes Prometheus text. A system that does not answer is
    counted, and asked again at the next look.

    \b
    semrecall watch "pgvector://host/db?table=docs" --truth truth.parquet --queries queries.npy \\
        -m trecall@10 --every 10m --listen 127.0.0.1:9464
    semrecall watch faiss?index=live.faiss --truth truth.parquet --queries queries.npy --once \\
        --prometheus /var/lib/node_exporter/semrecall.prom --fail-under trecall@10=0.9

    Exit status: 0 done, 1 a --fail-under was not met, 2 wrong input or no answer under --once.
    """
    from semrecall.text import plural
    from semrecall.watch import Board, keep_looking
    from semrecall.watch.schedule import serving

    every = _seconds(given["every"])
    watched = _watch(spec, given)
    board = Board(given["name"] or spec, watched.path)
    last: list[Look] = []

    def show(look: Look) -> None:
        _show(look, board, given)
        # What was said of the look before is not said again.
        before = last[0] if last else None
        for note in look.notes:
            if before is None or note not in before.notes:
                click.echo(f"note: {note}", err=True)
        if look.aging.aged and not (before is not None and before.aging.aged):
            click.echo(f"warning: {_aged(look, watched)}", err=True)
        last[:] = [look]

    looks = 1 if given["once"] else given["looks"]
    with ExitStack() as open_things:
        if given["listen"]:
            at = open_things.enter_context(serving(given["listen"], lambda: board.text))
            click.echo(f"serving {at}", err=True)
        try:
            keep_looking(watched, every, show=show, looks=looks)
        except KeyboardInterrupt:
            looked = plural(board.looks, "look")
            click.echo(f"ended after {looked}, {board.errors:,} without an answer", err=True)
            return
    ctx.exit(_status(last[0], given))


def _watch(spec: str, given: dict[str, Any]) -> Watch:
    from semrecall.cli.search import knobs_of
    from semrecall.formats import read_queries, read_run
    from semrecall.gates import Gate
    from semrecall.watch import Watch

    queries = given["queries"]
    if queries is not None:
        queries = read_queries(queries, dataset=given["queries_dataset"], ids=given["query_ids"])
    measures = given["measures"]
    gates = [Gate.read(text) for text in given["fail_under"]]
    if not measures and not gates:
        measures = (f"trecall@{min(10, max(1, read_run(given['truth']).depth))}",)
    return Watch(
        spec, given["truth"], queries,
        measures=measures, texts=given["texts"], settings=knobs_of(given["settings"], "--set"),
        space=given["space"], base=given["base"], sample=given["sample"],
        exact_queries=given["exact_queries"], limit=given["aged"], gates=gates, seed=given["seed"],
    )  # fmt: skip


def _seconds(text: str) -> float:
    """`90`, `30s`, `5m`, `1h` or `1d` as seconds."""
    import re

    from semrecall.errors import InputError

    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    units = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
    seconds = float(match[1]) * units[match[2]] if match else 0.0
    if not seconds:
        raise InputError(f"--every {text!r} is no time", hint="for example 30s, 5m or 1h")
    return seconds


def _show(look: Look, board: Board, given: dict[str, Any]) -> None:
    """One line on stdout, doubts on stderr, values where Prometheus finds them."""
    from datetime import UTC, datetime

    board.show(look)
    if given["prometheus"]:
        try:
            board.write(given["prometheus"])
        except OSError as error:
            # A full disk is no reason to stop looking.
            click.echo(f"warning: {given['prometheus']}: {error.strerror or error}", err=True)
    at = datetime.fromtimestamp(look.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if look.error:
        click.echo(f"{at}  no answer: {look.error}")
        return
    click.echo("  ".join([at, *_values(look)]))
    for verdict in look.verdicts:
        if not verdict.passed:
            click.echo(f"failed: {verdict.message}", err=True)


def _values(look: Look) -> list[str]:
    from semrecall.text import number, share

    parts = []
    for mean in look.means:
        interval = "" if mean.low != mean.low else f" ({number(mean.low)} to {number(mean.high)})"
        parts.append(f"{mean.measure} {number(mean.mean)}{interval}")
    if len(look.latencies):
        p50, p99 = (1000 * look.latency(part) for part in (0.5, 0.99))
        parts.append(f"p50 {p50:.3g} ms  p99 {p99:.3g} ms")
    parts.append(f"truth {share(look.aging.stale)} aged")
    return [*parts, *(["scores by the index"] if look.scores_by == "index" else [])]


def _aged(look: Look, watched: Watch) -> str:
    from semrecall.text import share

    truth = watched.path or "the truth"
    return (
        f"the truth has aged: {share(look.aging.stale)} of its neighbours are most likely the true "
        f"ones no more ({look.aging}); bring it up to date: semrecall truth BASE QUERIES --update "
        f"{truth} -o {truth}"
    )


def _status(look: Look, given: dict[str, Any]) -> int:
    if look.error:
        return 2
    aged = given["fail_if_aged"] and look.aging.aged
    return 1 if aged or any(not verdict.passed for verdict in look.verdicts) else 0
