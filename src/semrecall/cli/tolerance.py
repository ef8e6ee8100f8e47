"""`semrecall tolerance`: four ways to choose the tolerance x of tolerant recall."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["command"]

FORMATS = ("table", "json", "csv", "markdown")


@click.command(short_help="Four ways to choose the tolerance x of tolerant recall.")
@click.argument("truth")
@click.option(
    "-k", type=click.IntRange(min=1), help="How many neighbours; the truth's depth if not given."
)
@click.option(
    "--run", "run_path", metavar="FILE", help="Results of an index, for the way `semantic`."
)
@click.option("--judgments", metavar="FILE", help="Which documents matter, for the way `semantic`.")
@click.option("--base", metavar="FILE", help="Base vectors, for the way `quantisation`.")
@click.option("--queries", metavar="FILE", help="Query vectors, for the way `quantisation`.")
@click.option(
    "--space",
    type=click.Choice(["ip", "cosine", "l2"]),
    help="Space, where the truth does not say.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
def command(
    truth: str,
    k: int | None,
    run_path: str | None,
    judgments: str | None,
    base: str | None,
    queries: str | None,
    space: str | None,
    form: str,
) -> None:
    """Four ways to choose the tolerance x of tolerant recall, from the exact neighbours in TRUTH.

    proxy and query come from the truth alone; quantisation needs --base and --queries; semantic
    needs --run and --judgments.
    """
    from semrecall.formats import read_judgments, read_run, read_vectors
    from semrecall.tolerance import tolerance

    exact = read_run(truth, space=space)
    report = tolerance(
        exact,
        exact.depth if k is None else k,
        run=None if run_path is None else read_run(run_path, space=space),
        judgments=None if judgments is None else read_judgments(judgments),
        base=None if base is None else read_vectors(base),
        queries=None if queries is None else read_vectors(queries),
    )
    click.echo(_shown(report, form))


def _shown(report: Any, form: str) -> str:
    if form == "table":
        return str(report)
    rows = report.to_dicts()
    if form == "json":
        import json

        return json.dumps({"k": report.k, "space": report.space, "ways": rows}, indent=2)
    head = list(rows[0])
    cells = [["" if row[name] is None else str(row[name]) for name in head] for row in rows]
    if form == "csv":
        import csv
        import io

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([head, *cells])
        return text.getvalue().rstrip("\n")
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
