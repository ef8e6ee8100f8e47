"""semrecall tolerance: four ways to choose the tolerance x of tolerant recall."""

from __future__ import annotations

import click

from semrecall.cli.sources import BASE
from semrecall.cli.spaces import SPACES
from semrecall.cli.tables import format_option

__all__ = ["command"]


@click.command("tolerance")
@click.argument("truth", type=click.Path())
@click.option("-k", type=click.IntRange(min=1), help="Neighbours; the truth's depth if absent.")
@click.option("--run", "run_file", type=click.Path(), help="Results of an index, for `semantic`.")
@click.option("--judgments", type=click.Path(), help="Which documents matter, for `semantic`.")
@click.option("--base", type=BASE, help="Base vectors, for `quantisation`.")
@click.option("--queries", type=click.Path(), help="Query vectors, for `quantisation`.")
@click.option("--base-dataset", help="Part of the base file: HDF5 data set or parquet column.")
@click.option("--queries-dataset", help="Part of the queries file.")
@click.option("--base-ids", type=click.Path(), help="Ids of the base rows, one a line, or .npy.")
@click.option("--query-ids", type=click.Path(), help="Ids of the queries, one a line, or .npy.")
@click.option(
    "--space", type=click.Choice(SPACES),
    help="Of the scores, where the file of the truth does not say.",
)  # fmt: skip
@format_option
def command(
    truth: str,
    k: int | None,
    run_file: str | None,
    judgments: str | None,
    base: str | None,
    queries: str | None,
    base_dataset: str | None,
    queries_dataset: str | None,
    base_ids: str | None,
    query_ids: str | None,
    space: str | None,
    format: str,  # noqa: A002
) -> None:
    """Four ways to choose the tolerance x of tolerant recall.

    TRUTH is a file of exact neighbours with scores. The ways `proxy` and `query` come from it
    alone; `quantisation` needs --base and --queries, `semantic` needs --run and --judgments.

    \b
    Example:
      semrecall tolerance truth.parquet -k 100 --run run.parquet --judgments labels.parquet
    """
    from semrecall.cli.tables import print_rows
    from semrecall.formats import read_judgments, read_queries, read_run
    from semrecall.systems import base_vectors
    from semrecall.tolerance import percent, tolerance

    exact = read_run(truth, space=space)
    report = tolerance(
        exact,
        exact.depth if k is None else k,
        run=read_run(run_file, space=space) if run_file else None,
        judgments=read_judgments(judgments) if judgments else None,
        base=base_vectors(base, dataset=base_dataset, ids=base_ids, whole=True) if base else None,
        queries=read_queries(queries, dataset=queries_dataset, ids=query_ids) if queries else None,
    )
    rows = report.to_dicts()
    if format in ("table", "markdown"):
        rows = [row | {n: percent(row[n]) for n in ("x", "low", "median", "high")} for row in rows]
    titles = {"way": "way", "x": "x", "low": "5%", "median": "median", "high": "95%"}
    print_rows(
        rows,
        format,
        titles=titles | {"queries": "queries", "note": "note"},
        document={"k": report.k, "space": report.space, "ways": rows},
    )
