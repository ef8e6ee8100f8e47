"""semrecall embed: vectors from texts, by an endpoint, a model or a function."""

from __future__ import annotations

from typing import Any

import click

from semrecall.cli.embedding import embed_options, embedded
from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.sources import FILE

__all__ = ["command"]


@click.command("embed", cls=WritingCommand)
@click.argument("texts", type=FILE)
@click.option(
    "--with", "spec", required=True, metavar="SPEC",
    help="openai?model=NAME&base_url=URL, sentence-transformers?model=NAME, or "
    "python:module:function.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=OutputPath(), required=True,
    help="Where the vectors go: .parquet keeps the ids, .npy and .fbin the order.",
)  # fmt: skip
@embed_options
def command(texts: str, spec: str, output: str, **given: Any) -> None:
    """Make vectors of the texts of a file.

    TEXTS is JSON lines, CSV, TSV or parquet with `id` and `text`, or an evaluation set. The key of
    an endpoint comes from the environment (OPENAI_API_KEY, or the variable that key_env names).

    \b
    Example:
      semrecall embed queries.jsonl --with "openai?model=text-embedding-3-small" -o queries.parquet
      semrecall embed queries.jsonl -o queries.npy \\
          --with "openai?model=nomic-embed-text&base_url=http://127.0.0.1:11434"
    """
    from pathlib import Path

    from semrecall.formats import read_texts, write
    from semrecall.formats.table import format_for

    format_for(Path(output), "vectors", None, writing=True)
    vectors = embedded(read_texts(texts), spec, given)
    write(vectors, output)
    click.echo(f"{output}: {vectors!r}", err=True)
