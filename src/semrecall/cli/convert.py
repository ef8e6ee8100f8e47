"""`semrecall convert`: a file of vectors, results or judgments in another format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand


@click.command(
    cls=WritingCommand,
    short_help="Turn a file of vectors, results or judgments into another format.",
)
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("target", metavar="OUT", type=OutputPath(allow_dash=True))
@click.option("--from", "source_format", metavar="FORMAT", help="Format of IN; else its suffix.")
@click.option("--to", "target_format", metavar="FORMAT", help="Format of OUT; else its suffix.")
@click.option(
    "--as",
    "noun",
    type=click.Choice(["vectors", "run", "judgments", "scores", "cost"]),
    help="What IN holds, where the file does not tell.",
)
@click.option(
    "--space",
    metavar="SPACE",
    help="ip, cosine or l2: the space of the scores of a run, which are converted to its unit.",
)
@click.option(
    "--dataset",
    metavar="NAME",
    help="HDF5 data set, parquet column, or part of a VectorDBBench folder to read.",
)
@click.option("--ids", metavar="FILE", help="Ids of the vectors: one a line, or .npy.")
@click.option("--grade", metavar="COLUMN", help="The column that holds the grade.")
@click.option(
    "--duplicates",
    type=click.Choice(["error", "first"]),
    help="Repeated (query, document) in a ranked file.  [default: error]",
)
@click.option(
    "--nan",
    type=click.Choice(["error", "last"]),
    help="NaN scores in a ranked file.  [default: error]",
)
@click.option(
    "--conflicts",
    type=click.Choice(["error", "max", "first", "last"]),
    help="Judgments that contradict each other.  [default: error]",
)
def command(
    source: str,
    target: str,
    source_format: str | None,
    target_format: str | None,
    noun: str | None,
    **options: str | None,
) -> None:
    """Turn a file of vectors, results or judgments into another format.

    The formats follow from the suffixes; `semrecall list formats` shows them. Vectors go block by
    block, so memory stays bounded. OUT appears when it is complete, an old OUT stays until then;
    "-" is standard output.

    \b
    semrecall convert base.fvecs base.fbin
    semrecall convert glove.hdf5 truth.parquet --as run
    semrecall convert truth.gt100 truth.parquet --space l2
    semrecall convert run.parquet run.trec.gz
    """
    from semrecall.errors import InputError
    from semrecall.formats import noun_of, read, write

    if target == "-" and target_format is None:
        raise InputError("standard output has no suffix; expected --to FORMAT")
    kind = noun or noun_of(source, source_format)
    given = {name: value for name, value in options.items() if value is not None}
    content = read(source, noun=kind, format=source_format, **given)
    write(_shown(content) if kind == "vectors" else content, target, format=target_format)
    click.echo(f"{source} -> {target}: {content!r}", err=True)


def _shown(vectors: Any) -> Any:
    """The same vectors, with a progress bar while they go by, on a terminal."""
    import sys

    from semrecall.data import Vectors

    if not sys.stderr.isatty() or vectors.matrix is None or len(vectors) == 0:
        return vectors

    def blocks() -> Iterator[Any]:
        with click.progressbar(length=len(vectors), label="converting", file=sys.stderr) as bar:
            for _, block in vectors.blocks(max(1, (16 << 20) // (vectors.dimension * 8))):
                yield block
                vectors.release()
                bar.update(len(block))

    return Vectors.from_blocks(blocks(), ids=vectors.given_ids, length=len(vectors))
