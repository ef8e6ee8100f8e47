"""semrecall analyse: how many exact neighbours matter, and whether their scores stand apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.hints import hints_for
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.spaces import SPACES
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.analysis import Analysis

__all__ = ["command"]

_FILE = click.Path(exists=True)


@click.command("analyse", cls=WritingCommand)
@click.argument("truth", type=_FILE)
@click.option(
    "--judgments",
    type=_FILE,
    required=True,
    help="Grades of documents: qrels, labels of people or LLMs.",
)
@click.option("-k", type=click.IntRange(min=1), help="Neighbours; the truth's depth if absent.")
@click.option(
    "--rel", type=float, default=1.0, show_default=True, help="Relevant from this grade on."
)
@click.option("--run", "run_file", type=_FILE, help="Results of an index: tell what it found too.")
@click.option(
    "--exhaustive",
    is_flag=True,
    help="A neighbour that the judgments do not name is known to be irrelevant, not unjudged.",
)
@click.option("--queries", type=_FILE, help="Texts of the queries: JSON lines of id and text.")
@click.option("--corpus", type=_FILE, help="Texts of the documents, likewise.")
@click.option("--by", multiple=True, metavar="COLUMN", help="Slice by a column of the queries.")
@click.option(
    "--columns",
    type=_FILE,
    help="File with query_id and columns to slice by.  [default: --queries]",
)
@click.option(
    "--grade",
    metavar="COLUMN",
    help="Column of the judgments with the grades, or a judge of a ledger.",
)
@click.option(
    "--conflicts",
    type=click.Choice(["error", "max", "first", "last"]),
    default="error",
    show_default=True,
    help="Judgments that contradict each other.",
)
@click.option(
    "--space",
    type=click.Choice(SPACES),
    help="Space of the scores, where the files do not say.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the intervals.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--per-query", is_flag=True, help="Print the values of every query.")
@click.option(
    "--html",
    type=OutputPath(".html", ".htm", dir_okay=False),
    metavar="FILE",
    help="Also write an HTML report with charts.",
)
@format_option
def command(truth: str, format: str, html: str | None, **given: Any) -> None:  # noqa: A002
    """Show how many of the exact neighbours matter, and whether their scores stand apart.

    \b
    semrecall analyse truth.parquet --judgments labels.parquet --html analysis.html
    semrecall analyse truth.parquet --judgments qrels.txt --rel 2 -k 10 \\
        --queries queries.jsonl --corpus docs.jsonl --by language

    TRUTH is a file of exact neighbours. Prints how many semantic neighbours queries have, their
    scores beside those of the others, the rank-biserial correlation of score and relevance,
    relevance by rank, and the queries without a relevant neighbour. Unjudged neighbours count as
    neither, and bounds say what they could change.
    """
    from semrecall.registry import import_extra

    if html:
        # Better now than after the work.
        import_extra("matplotlib", "report", "an HTML report")
    found = _analysed(truth, given)
    _show(found, format, given["per_query"])
    if html:
        found.to_html(html, command=command_line())
        click.echo(f"wrote {html}", err=True)


def _analysed(truth: str, given: dict[str, Any]) -> Analysis:
    from semrecall.analysis import analyse
    from semrecall.formats import read_columns, read_judgments, read_run, read_texts

    with hints_for("truth", truth):
        exact = read_run(truth, space=given["space"])
    with hints_for("judgments", given["judgments"]):
        judgments = read_judgments(
            given["judgments"], conflicts=given["conflicts"], grade=given["grade"]
        )
    run = None
    if given["run_file"]:
        with hints_for("run", given["run_file"]):
            run = read_run(given["run_file"], space=given["space"])
    columns = given["columns"] or given["queries"]
    return analyse(
        exact,
        judgments,
        run=run,
        query_texts=read_texts(given["queries"]) if given["queries"] else None,
        document_texts=read_texts(given["corpus"]) if given["corpus"] else None,
        columns=read_columns(columns) if given["by"] and columns else None,
        **{name: given[name] for name in ("rel", "k", "exhaustive", "by", "seed", "confidence")},
    )


def _show(found: Analysis, format: str, per_query: bool) -> None:  # noqa: A002
    from semrecall.analysis.text import flat_rows
    from semrecall.cli.tables import print_rows

    if format == "json":
        whole = found.to_dict()
        if per_query:
            whole["per_query"] = found.per_query()
        print_rows([], "json", document=whole)
    elif per_query:
        # Ids are no counts, whose thousands would be marked.
        rows = [row | {"query_id": str(row["query_id"])} for row in found.per_query()]
        print_rows(rows, format)
    elif format == "csv":
        print_rows(flat_rows(found), "csv")
    elif format == "table":
        click.echo(str(found))
    else:
        _show_markdown(found)


def _show_markdown(found: Analysis) -> None:
    from semrecall.analysis.text import barren_lines, opening, tables
    from semrecall.cli.tables import print_rows

    click.echo(opening(found))
    for table in tables(found):
        click.echo(f"\n### {table.title[:1].upper()}{table.title[1:]}\n\n{table.about}\n")
        # Headings may repeat, so cells go by their position.
        titles = {str(at): head for at, head in enumerate(table.heads)}
        rows = [dict(zip(titles, row, strict=True)) for row in table.rows]
        print_rows(rows, "markdown", titles=titles)
    listed = "\n".join(barren_lines(found))
    click.echo(f"\n### Queries without a relevant neighbour\n\n```text\n{listed}\n```\n")
    for line in found.remarks():
        click.echo(f"- {line}")
