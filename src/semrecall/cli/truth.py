"""semrecall truth: find the exact nearest neighbours of every query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from semrecall.cli.filtering import filter_given, filter_options
from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.scaling import (
    base_given,
    engine_given,
    engine_options,
    told_order,
    told_seconds,
)
from semrecall.cli.spaces import SPACES
from semrecall.cli.updating import update_given, update_options


@click.command("truth", cls=WritingCommand)
@click.argument("base", type=click.Path(), nargs=-1, required=True)
@click.argument("queries", type=click.Path())
@click.option("-k", type=int, default=100, show_default=True, help="Neighbours per query.")
@click.option(
    "--space", type=click.Choice(SPACES), required=True,
    help="Inner product, cosine or Euclidean distance of vectors; Hamming or Jaccard distance "
    "of bits; largest inner products of documents of several vectors (maxsim).",
)  # fmt: skip
@click.option(
    "-o", "--output", type=OutputPath(),
    help="Where to write the truth (.parquet keeps its identity); JSON lines on stdout if absent.",
)  # fmt: skip
@click.option("--base-dataset", help="Part of the base file: HDF5 data set or parquet column.")
@click.option("--queries-dataset", help="Part of the queries file.")
@click.option(
    "--base-ids", type=click.Path(),
    help="Ids of the base rows, one a line, or .npy; a pattern where each shard has a file.",
)  # fmt: skip
@click.option("--query-ids", type=click.Path(), help="Ids of the queries, one a line, or .npy.")
@filter_options
@click.option("--memory", metavar="SIZE", help="E.g. 8GB; a quarter of the machine's if absent.")
@click.option("--threads", type=click.IntRange(min=1), help="Cores to use; all if absent.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda", "mps", "auto"]), default="cpu", show_default=True,
    help="Where products are taken; auto: a GPU where torch finds one.",
)  # fmt: skip
@engine_options
@update_options
def command(
    base: tuple[str, ...],
    queries: str,
    k: int,
    space: str,
    output: str | None,
    base_dataset: str | None,
    queries_dataset: str | None,
    base_ids: str | None,
    query_ids: str | None,
    memory: str | None,
    threads: int | None,
    device: str,
    **given: Any,
) -> None:
    """Find the exact nearest neighbours of every query.

    BASE and QUERIES are files of vectors: .npy, .fvecs, .fbin, .hdf5, .parquet and more
    (`semrecall list formats`). BASE may be a database, too: pgvector://host/database?table=docs
    is read in pages. The answer is the same on every machine: scores are float64,
    equal scores stand in order of their ids, and ties at rank k are kept.

    BASE may be many files: several names, a pattern in quotes, a directory, or URLs (s3://,
    gs://, az://, https://). Their rows run on in natural order of the names. Files are read once,
    block by block, within --memory. What was found is kept in OUTPUT.checkpoint every half
    minute; after a crash or Ctrl-C the same command goes on from there.

    --filter says what queries may find; those that share a filter are searched together.

    After inserts, deletes and changes, --update repairs a truth: what comes out has the bits of a
    new one. Rows are known by their ids. The filters of a filtered truth are given anew.

    \b
    Examples:
      semrecall truth base.fbin queries.fbin -k 100 --space ip -o truth.parquet
      semrecall truth "s3://bucket/part-*.npy" queries.npy -k 100 --space cosine \
          --engine ray --address auto -o truth.parquet
      semrecall truth base.parquet queries.npy -k 10 --space ip \
          --filter 'lang == "th" and price < 20' -o truth.parquet
      semrecall truth new.npy queries.npy -k 100 --space ip --base-ids new.txt \
          --update truth.parquet --changed changed.txt -o truth.parquet
    """
    import time
    from pathlib import Path

    from semrecall.cli.progress import bytes_of, progress_bar
    from semrecall.errors import InputError
    from semrecall.formats import write
    from semrecall.formats.multivectors import read_multivectors
    from semrecall.truth.verb import open_queries, truth

    source: Any
    asked: Any
    checkpoint = row_bytes = None
    if space == "maxsim":
        if len(base) > 1:
            raise click.UsageError("--space maxsim takes one BASE and one file of queries")
        source = read_multivectors(base[0], dataset=base_dataset, ids=base_ids)
        asked = read_multivectors(queries, dataset=queries_dataset, ids=query_ids)
        rows: int | None = len(source)
    else:
        source = base_given(base, dataset=base_dataset, ids=base_ids, output=output)
        asked = open_queries(queries, dataset=queries_dataset, ids=query_ids)
        rows = source.vectors.length
        row_bytes = source.vectors.dimension * source.vectors.dtype.itemsize
        told_order(source)
        if source.shards is not None and output is not None and given["update"] is None:
            checkpoint = f"{output}.checkpoint"
    if rows is not None and k > rows:
        raise InputError(
            f"k is {k:,}, but the base has {rows:,} rows",
            hint=f"ask for at most -k {rows}" if rows else None,
        )
    more = update_given(given, output, base_dataset, space)
    timings: dict[str, float] = {}
    start = time.perf_counter()
    with progress_bar("exact search", row_bytes) as progress:
        found = truth(
            source,
            asked,
            k,
            space,
            **filter_given(given, rows, asked),
            memory=None if memory is None else bytes_of(memory),
            threads=threads,
            progress=progress,
            device=device,
            checkpoint=checkpoint,
            timings=timings,
            **engine_given(given),
            **more,
        )
    seconds = time.perf_counter() - start
    for note in (*more["notes"], *_told_reasons(found)):
        click.echo(note, err=True)
    if output is None:
        _print_lines(found)
        return
    write(found, output)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    counted = found.identity["base"]["rows"]
    click.echo(
        f"{output}: the {k:,} nearest of {counted:,} rows for {len(found):,} queries "
        f"({space}, {seconds:.1f} s{told_seconds(timings, given['engine'])})",
        err=True,
    )


def _told_reasons(run: Any) -> Iterator[str]:
    """Why queries have no neighbours: a filter that allows nothing may be a slip of the pen."""
    from collections import Counter

    from semrecall.text import plural

    for reason, count in Counter(filter(None, run.reasons)).items():
        yield f"{plural(count, 'query', 'queries')} without neighbours: {reason}"


def _print_lines(run: Any) -> None:
    import json

    for query, ids, scores in zip(run.queries, run.ids, run.scores, strict=True):
        # A row without a score (a zero vector under cosine) has null: JSON knows no NaN.
        numbers = [None if s != s else s for s in scores.tolist()]
        line = {"query_id": query, "ids": ids.tolist(), "scores": numbers}
        click.echo(json.dumps(line, ensure_ascii=False))
