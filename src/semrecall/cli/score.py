"""semrecall score: runs against truth and judgments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.ci import ci_options
from semrecall.cli.corrected import correct_options, corrections, show_corrections
from semrecall.cli.inputs import FILE, evaluated, input_options
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.sources import files_read
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.correction import Correction
    from semrecall.evaluate import Result
    from semrecall.gates import Verdict

__all__ = ["command"]


@click.command("score", cls=WritingCommand)
@click.argument("runs", nargs=-1, required=True, type=FILE, metavar="RUN...")
@input_options
@correct_options
@click.option(
    "--codes",
    type=FILE,
    help="Run of exact search over the quantised vectors: splits the loss in two.",
)
@click.option(
    "--ties", is_flag=True, help="Show what the order of equal scores is worth to each measure."
)
@click.option("--per-query", is_flag=True, help="Print the values of every query.")
@click.option(
    "--html",
    type=OutputPath(".html", ".htm", dir_okay=False),
    metavar="FILE",
    help="Also write an HTML report.",
)
@click.option(
    "--fail-under",
    multiple=True,
    metavar="MEASURE=VALUE",
    help="Exit with 1 when the mean is worse; may be repeated.",
)
@ci_options
@format_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Measure runs against truth and judgments.

    \b
    semrecall score run.parquet --truth truth.parquet --judgments labels.parquet
    semrecall score old.txt new.txt --judgments qrels.txt -m nDCG@10 -m R@100
    semrecall score run.parquet --truth truth.parquet --fail-under recall@10=0.95
    semrecall score run.parquet --truth truth.parquet --judgments llm.parquet \\
        --correct-with people.jsonl

    Several runs stand side by side. A query in the truth (or, without one, in the judgments)
    that a run lacks scores 0. Exit status: 0 done, 1 a --fail-under was not met, 2 wrong input.
    """
    from semrecall.cli.tables import print_rows
    from semrecall.gates import Gate, verdicts
    from semrecall.registry import import_extra

    gates = [Gate.read(text) for text in given["fail_under"]]
    if given["html"]:
        # Better now than after the work.
        import_extra("matplotlib", "report", "an HTML report")
    result = evaluated(given, [gate.measure for gate in gates])
    corrected = corrections(given, result)
    rows, several = result.summary(), len(result.runs) > 1
    judged = [verdict for gate in gates for verdict in verdicts(gate, rows, several=several)]
    failed = [verdict.message for verdict in judged if not verdict.passed]
    if given["correct_with"] and given["format"] == "csv":
        print_rows([row for found in corrected for row in found.rows()], "csv")
    elif given["ties"] and given["format"] != "json":
        _show_ties(result, given["format"], given["per_query"])
    else:
        _show(result, given["format"], given["per_query"], failed, corrected, ties=given["ties"])
    if given["format"] in ("table", "markdown"):
        show_corrections(corrected, given["format"])
    if given["html"]:
        result.to_html(given["html"], command=command_line(), sources=files_read())
        click.echo(f"wrote {given['html']}", err=True)
    for line in failed:
        click.echo(f"failed: {line}", err=True)
    _tell_ci(given, result, judged)
    ctx.exit(1 if failed else 0)


def _tell_ci(given: dict[str, Any], result: Result, judged: list[Verdict]) -> None:
    """JUnit, a summary and annotations, where they are wanted."""
    from semrecall.cli.ci import annotate, append_summary, case_of, gates_table, junit
    from semrecall.cli.tables import rows_text
    from semrecall.evaluate import document, table

    cases = [case_of(verdict) for verdict in judged]
    if given["junit"]:
        junit(cases, given["junit"])
    if given["summary"]:
        rows, titles = gates_table(judged)
        sliced = bool(result.slices)
        headings = document.titles(with_run=len(result.runs) > 1, with_group=sliced)
        values = rows_text(_rows(result), "markdown", titles=headings, notes=table.remarks(result))
        gates = rows_text(rows, "markdown", titles=titles) if rows else ""
        append_summary(given["summary"], "semrecall score", [gates, values])
    annotate(cases)


def _rows(result: Result) -> list[dict[str, Any]]:
    """A row for each measure and run over all queries, then over each group of every slice."""
    from semrecall.evaluate import document

    parts = [None, *result.slices]
    return [document.summary_row(row) for part in parts for row in result.summary(by=part)]


def _show_ties(result: Result, format: str, per_query: bool) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows
    from semrecall.evaluate import document, table
    from semrecall.evaluate.tied import tied_lines

    if format == "table" and not per_query:
        click.echo("\n".join([str(result), *tied_lines(result)]))
    else:
        rows = document.ties(result, per_query=per_query)
        print_rows(rows, format, notes=table.remarks(result))


def _show(
    result: Result,
    format: str,  # noqa: A002
    per_query: bool,
    failed: list[str],
    corrected: list[Correction],
    *,
    ties: bool,
) -> None:
    from semrecall.cli.tables import print_rows
    from semrecall.evaluate import document, table
    from semrecall.evaluate.unjudged import unjudged_sentences

    if format == "json":
        whole = result.to_dict() | {"failed": failed}
        if corrected:
            whole["corrections"] = [found.to_dict() for found in corrected]
        if ties:
            whole["ties"] = document.ties(result, per_query=per_query)
        if per_query:
            whole["per_query"] = document.per_query(result)
        print_rows([], "json", document=whole)
    elif per_query:
        # Ids are no counts, whose thousands would be marked.
        rows = [row | {"query": str(row["query"])} for row in document.per_query(result)]
        print_rows(rows, format, notes=table.remarks(result))
    elif format == "table":
        click.echo(str(result))
    else:
        rows = _rows(result)
        notes = [*unjudged_sentences(result), *table.remarks(result)]
        several = len(result.runs) > 1 or format == "csv"
        titles = document.titles(with_run=several, with_group=bool(result.slices))
        print_rows(rows, format, titles=titles, notes=notes)
