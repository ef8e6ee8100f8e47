"""semrecall truth: find the exact nearest neighbours of every query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.spaces import SPACES
from semrecall.cli.updating import update_given, update_options


@click.command("truth", cls=WritingCommand)
@click.argument("base", type=click.Path())
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
@click.option("--base-ids", type=click.Path(), help="Ids of the base rows, one a line, or .npy.")
@click.option("--query-ids", type=click.Path(), help="Ids of the queries, one a line, or .npy.")
@click.option(
    "--filter", "filter_file", type=click.Path(),
    help="What each query may find: .npy mask, or JSON lines of query_id and ids.",
)  # fmt: skip
@click.option("--memory", metavar="SIZE", help="E.g. 8GB; a quarter of the machine's if absent.")
@click.option("--threads", type=click.IntRange(min=1), help="Cores to use; all if absent.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda", "mps", "auto"]), default="cpu", show_default=True,
    help="Where products are taken; auto: a GPU where torch finds one.",
)  # fmt: skip
@update_options
def command(
    base: str,
    queries: str,
    k: int,
    space: str,
    output: str | None,
    base_dataset: str | None,
    queries_dataset: str | None,
    base_ids: str | None,
    query_ids: str | None,
    filter_file: str | None,
    memory: str | None,
    threads: int | None,
    device: str,
    **updating: Any,
) -> None:
    """Find the exact nearest neighbours of every query.

    BASE and QUERIES are files of vectors: .npy, .fvecs, .fbin, .hdf5, .parquet and more
    (`semrecall list formats`). BASE may be a database, too: pgvector://host/database?table=docs
    is read in pages. The answer is the same on every machine: scores are float64,
    equal scores stand in order of their ids, and ties at rank k are kept.

    After inserts, deletes and changes, --update repairs a truth: what comes out has the bits of a
    new one. Rows are known by their ids.

    \b
    Examples:
      semrecall truth base.fbin queries.fbin -k 100 --space ip -o truth.parquet
      semrecall truth new.npy queries.npy -k 100 --space ip --base-ids new.txt \
          --update truth.parquet --changed changed.txt -o truth.parquet
    """
    import time

    from semrecall.errors import InputError
    from semrecall.formats import read_queries, write
    from semrecall.formats.multivectors import read_multivectors
    from semrecall.systems import base_vectors
    from semrecall.truth import truth

    vectors: Any
    query_vectors: Any
    if space == "maxsim":
        vectors = read_multivectors(base, dataset=base_dataset, ids=base_ids)
        query_vectors = read_multivectors(queries, dataset=queries_dataset, ids=query_ids)
        rows: int | None = len(vectors)
    else:
        vectors = base_vectors(base, dataset=base_dataset, ids=base_ids)
        query_vectors = read_queries(queries, dataset=queries_dataset, ids=query_ids)
        rows = vectors.length
    if rows is not None and k > rows:
        raise InputError(
            f"k is {k:,}, but the base has {rows:,} rows",
            hint=f"ask for at most -k {rows}" if rows else None,
        )
    more = update_given(updating, output, base_dataset)
    start = time.perf_counter()
    with progress_bar("exact search", rows) as progress:
        found = truth(
            vectors,
            query_vectors,
            k,
            space,
            filter=filter_file,
            memory=None if memory is None else bytes_of(memory),
            threads=threads,
            progress=progress,
            device=device,
            **more,
        )
    seconds = time.perf_counter() - start
    for note in more["notes"]:
        click.echo(note, err=True)
    if output is None:
        _print_lines(found)
        return
    write(found, output)
    counted = found.identity["base"]["rows"]
    click.echo(
        f"{output}: the {k:,} nearest of {counted:,} rows for {len(found):,} queries "
        f"({space}, {seconds:.1f} s)",
        err=True,
    )


def _print_lines(run: Any) -> None:
    import json

    for query, ids, scores in zip(run.queries, run.ids, run.scores, strict=True):
        # A row without a score (a zero vector under cosine) has null: JSON knows no NaN.
        numbers = [None if s != s else s for s in scores.tolist()]
        line = {"query_id": query, "ids": ids.tolist(), "scores": numbers}
        click.echo(json.dumps(line, ensure_ascii=False))


@contextmanager
def progress_bar(label: str, length: int | None) -> Iterator[Any]:
    """A bar with rate and time left on a terminal; None where stderr is not one."""
    import sys
    import time

    if not sys.stderr.isatty():
        yield None
        return
    start = time.perf_counter()

    def rate(rows: float | None) -> str:
        return "" if rows is None else f"{rows / (time.perf_counter() - start):,.0f} rows/s"

    bar: Any
    with click.progressbar(
        length=length or 0, label=label, file=sys.stderr, item_show_func=rate, show_pos=True
    ) as bar:
        done_before = 0

        def progress(done: float, total: int | None) -> None:
            nonlocal done_before
            bar.update(int(done) - done_before, done)
            done_before = int(done)

        yield progress


def bytes_of(text: str) -> int:
    """Bytes of a size such as 500MB, 8GB or 1.5GiB; InputError for anything else."""
    import re

    from semrecall.errors import InputError

    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if match is None:
        raise InputError(f"memory is {text!r}; expected a size such as 500MB or 8GB")
    number, unit, binary = match.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** (" kmgt".index(unit or " ")))
