"""semrecall split: development and test queries."""

from __future__ import annotations

from typing import Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.sources import FILE
from semrecall.cli.tables import format_option

__all__ = ["command"]


@click.command("split", cls=WritingCommand)
@click.argument("queries", type=FILE)
@click.option(
    "--dev", type=float, default=0.5, show_default=True, help="Share of the development part."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the hash.")
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Spread the values of a column of the queries over both parts; may be repeated.",
)
@click.option("--columns", type=FILE, help="File with query_id and those columns.")
@click.option(
    "-o",
    "--output",
    type=OutputPath(dir_okay=False),
    metavar="FILE",
    help="Write it: .csv or .jsonl (query_id, split), or .json, which says how it was made.",
)
@format_option
def command(queries: str, output: str | None, format: str, **given: Any) -> None:  # noqa: A002
    """Divide queries into a part to develop on and a part to confirm with.

    \b
    semrecall split qrels.txt -o split.csv
    semrecall split queries.jsonl --dev 0.3 --by language -o split.json
    semrecall score run.txt --judgments qrels.txt --split split.csv:dev

    QUERIES is a file of judgments, of results, or of queries (query_id and further columns). Where
    a query goes depends on its id and the seed alone, unless --by is given. Prints how many
    queries each part has; with --format csv and no -o, the split itself.
    """
    from semrecall.formats import read_columns
    from semrecall.splits import split

    found = split(
        _queries(queries),
        given["dev"],
        seed=given["seed"],
        by=given["by"],
        columns=read_columns(given["columns"]) if given["columns"] else None,
    )
    _warn_of_empty(found)
    if output:
        found.write(output)
        click.echo(f"wrote {output}", err=True)
    _show(found, format, bool(output))


def _warn_of_empty(found: Any) -> None:
    import warnings

    from semrecall.errors import SemrecallWarning
    from semrecall.splits import DEV, TEST
    from semrecall.text import plural

    lacking = [part for part in (DEV, TEST) if part not in found.parts]
    if lacking:
        warnings.warn(
            f"{plural(len(found), 'query', 'queries')} in all, none in {' or '.join(lacking)}: too "
            f"few to divide with --dev {found.about['dev']:g}",
            SemrecallWarning,
            stacklevel=2,
        )


def _queries(path: str) -> Any:
    """Judgments, a run, or columns of queries, whatever the file holds."""
    from pathlib import Path

    from semrecall.errors import InputError
    from semrecall.formats import noun_of, read_columns, read_judgments, read_run
    from semrecall.formats.files import bare_name

    try:
        noun = noun_of(path)
    except InputError as error:
        if bare_name(Path(path)).endswith((".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")):
            noun = "columns"
        else:
            raise InputError(
                error.message, hint="give judgments, results, or a table with query_id"
            ) from error
    if noun == "judgments":
        return read_judgments(path, conflicts="first")
    return read_run(path) if noun == "run" else read_columns(path)


def _show(found: Any, format: str, written: bool) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows

    if format == "json":
        pairs = zip(map(str, found.queries), found.parts, strict=True)
        print_rows([], "json", document=found.to_dict() | {"split": dict(pairs)})
    elif format == "csv" and not written:
        pairs = zip(found.queries, found.parts, strict=True)
        print_rows([{"query_id": q, "split": part} for q, part in pairs], "csv")
    else:
        rows = [{"split": name, "queries": count} for name, count in found.counts.items()]
        by = f", spread by {', '.join(found.about['by'])}" if found.about["by"] else ""
        print_rows(rows, format, notes=[f"seed {found.about['seed']}{by}"])
