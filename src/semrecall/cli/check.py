"""`semrecall check`: name what is wrong with data before it costs a day."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.spaces import SPACES
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.check import Report
    from semrecall.data import Run

__all__ = ["command"]

_FILE = click.Path()


@click.command("check", short_help="Name what is wrong with data before it costs a day.")
@click.option("--base", type=_FILE, help="Base vectors.")
@click.option("--queries", type=_FILE, help="Query vectors.")
@click.option("--truth", type=_FILE, help="Exact neighbours, made by semrecall or by others.")
@click.option("--run", "run_path", type=_FILE, help="Results of an index, or a ranked list.")
@click.option("--judgments", type=_FILE, help="Grades of documents: qrels, labels.")
@click.option(
    "--space",
    type=click.Choice(SPACES),
    help="The space that the index uses; else what truth and run say.",
)
@click.option("--base-dataset", help="Part of the base file: HDF5 data set or parquet column.")
@click.option(
    "--queries-dataset", help='Part of the queries file; "test" where it is the base file.'
)
@click.option("--base-ids", type=_FILE, help="Ids of the base rows, one a line, or .npy.")
@click.option("--query-ids", type=_FILE, help="Ids of the queries, one a line, or .npy.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Queries that are compared with exact search and scored again.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample.")
@click.option("--memory", metavar="SIZE", help="E.g. 8GB; a quarter of the machine's if absent.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@format_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Name what is wrong with data before it costs a day.

    Give any of base, queries, truth, run and judgments; each more makes more checks possible.
    Every row of the vectors is read once; truth and scores are recomputed for a sample of queries.

    \b
    semrecall check --base base.fbin --queries queries.fbin --space cosine
    semrecall check --base base.fbin --queries queries.fbin --truth truth.ivecs --space l2
    semrecall check --run run.parquet --truth truth.parquet --judgments qrels.txt

    Exit status: 0 no errors, 1 an error was found (with --strict also a warning), 2 wrong input.
    """
    from semrecall.check import check
    from semrecall.cli.progress import bytes_of

    inputs = _read(given)
    progress = _status_line()
    try:
        report = check(
            **inputs,
            space=given["space"],
            sample=given["sample"],
            seed=given["seed"],
            memory=None if given["memory"] is None else bytes_of(given["memory"]),
            progress=progress,
        )
    finally:
        if progress is not None:
            click.echo("\r\033[K", nl=False, err=True)
    _show(report, given["format"])
    bad = not report.ok or (given["strict"] and bool(report.of_level("warning")))
    ctx.exit(1 if bad else 0)


def _read(given: dict[str, Any]) -> dict[str, Any]:
    from semrecall.errors import InputError
    from semrecall.formats import read_judgments, read_queries
    from semrecall.systems import base_vectors

    names = {"base": "base", "queries": "queries", "truth": "truth", "run_path": "run"}
    if not any(given[key] for key in (*names, "judgments")):
        raise InputError(
            "nothing to check",
            hint="give at least one of --base, --queries, --truth, --run and --judgments",
        )
    found: dict[str, Any] = {}
    for key, read, ids, dataset in (
        ("base", base_vectors, given["base_ids"], given["base_dataset"]),
        ("queries", read_queries, given["query_ids"], given["queries_dataset"]),
    ):
        if given[key]:
            found[key] = read(given[key], dataset=dataset, ids=ids)
    for key in ("truth", "run_path"):
        if given[key]:
            found[names[key]] = _run(given[key], given["space"])
    if given["judgments"]:
        found["judgments"] = read_judgments(given["judgments"])
    return found


def _run(path: str, space: str | None) -> Run:
    """A run in the space asked for; in its own where it says another, which is then a finding."""
    from semrecall.errors import MismatchError
    from semrecall.formats import read_run

    try:
        return read_run(path, space=space)
    except MismatchError:
        return read_run(path)


def _status_line() -> Callable[[str, float, int | None], None] | None:
    """Shows what is being done, on a terminal only."""
    import sys

    if not sys.stderr.isatty():
        return None

    def show(what: str, done: float, total: int | None) -> None:
        share = f"{done / total:.0%}" if total else f"{done:,.0f} rows"
        click.echo(f"\r\033[K{what}: {share}", nl=False, err=True)

    return show


def _show(report: Report, format: str) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows

    if format == "table":
        click.echo(str(report))
        return
    rows = [finding.to_dict() for finding in report.findings]
    titles = {key: key for key in ("level", "code", "about", "found", "advice")}
    if format == "csv":
        titles |= {key: key for key in ("examples", "examples_of")}
    notes = [report.summary, *report.sampled]
    print_rows(rows, format, titles=titles, document=report.to_dict(), notes=notes)
