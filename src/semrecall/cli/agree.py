"""semrecall agree: how far judges agree, and what it does to the measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.columns import judgments_in, path_and_column
from semrecall.cli.hints import hints_for
from semrecall.cli.inputs import run_options, runs_of
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.sources import FILE
from semrecall.cli.spaces import SPACES
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.agreement import Agreement
    from semrecall.agreement.rows import ByJudge
    from semrecall.data import Judgments

__all__ = ["command"]


@click.command("agree", cls=WritingCommand)
@click.argument("judgments", nargs=-1, required=True, metavar="FILE[:COLUMN]...")
@click.option(
    "--rel",
    "rels",
    multiple=True,
    metavar="GRADE|JUDGE=GRADE",
    help="From which grade a label means relevant, for all or for one judge.  [default: 1]",
)
@click.option("--truth", type=FILE, help="Only pairs among the exact neighbours count.")
@click.option("-k", type=click.IntRange(1), help="Among the first k of them. Default: all.")
@click.option(
    "--run",
    "runs",
    type=FILE,
    multiple=True,
    help="Results to measure under the labels of each judge; may be repeated.",
)
@click.option(
    "-m",
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="A measure, e.g. srecall@100; may be repeated. Default: recall and srecall with a truth, "
    "else nDCG@10.",
)
@click.option(
    "--below",
    type=click.FloatRange(0, 1),
    default=0.7,
    show_default=True,
    help="List the queries of less agreement.",
)
@click.option("--per-query", is_flag=True, help="Print the agreement of every query.")
@click.option(
    "--html",
    type=OutputPath(".html", ".htm", dir_okay=False),
    metavar="FILE",
    help="Also write an HTML report.",
)
@click.option("--space", type=click.Choice(SPACES), help="Space of the scores of the runs.")
@click.option(
    "--conflicts",
    type=click.Choice(["error", "max", "first", "last"]),
    default="error",
    show_default=True,
    help="Judgments of one file that contradict each other.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the intervals."
)
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@run_options
@format_option
def command(judgments: tuple[str, ...], format: str, **given: Any) -> None:  # noqa: A002
    """Show how far two judges or more agree, on the pairs that they have in common.

    \b
    semrecall agree llm.parquet human.jsonl --rel 2
    semrecall agree labels.parquet:gpt4o labels.parquet:human --rel gpt4o=1 --rel human=2
    semrecall agree llm.parquet human.jsonl --truth truth.parquet --run run.parquet -m srecall@100
    semrecall agree people.jsonl
    semrecall agree semrecall.ledger
    semrecall agree semrecall.ledger:llama3.2 semrecall.ledger:human:anna

    A judge is a file of judgments, a column of grades in one (FILE:COLUMN), or a judge of a ledger
    (LEDGER:NAME). It is called by the column, else by the file. A single file is a ledger, or has
    a column `judge`; pairs that one judge graded again show how it agrees with itself. csv prints
    one estimate a line, with --per-query one query a line.
    """
    from semrecall.agreement import agree
    from semrecall.formats import read_run

    if given["k"] and not given["truth"]:
        raise click.UsageError("-k is given without --truth")
    judged, names = _judged(judgments, given["conflicts"])
    truth = None
    if given["truth"]:
        with hints_for("truth", given["truth"]):
            truth = read_run(given["truth"], space=given["space"])
    found = agree(
        judged,
        rel=_rels(given["rels"], names),
        truth=truth,
        k=given["k"],
        run=runs_of(given) or None,
        measures=given["measures"],
        below=given["below"],
        seed=given["seed"],
        confidence=given["confidence"],
    )
    _show(found, format, given["per_query"])
    if given["html"]:
        found.to_html(given["html"], command=command_line())
        click.echo(f"wrote {given['html']}", err=True)


# -- judges ---------------------------------------------------------------------------------------


def _judged(texts: tuple[str, ...], conflicts: str) -> tuple[Any, list[str]]:
    """What `agree` takes, and the names of the judges; a single file has a column `judge`."""
    parts = [_existing(text) for text in texts]
    if len(parts) == 1:
        rows = _rows(*parts[0])
        return rows, list(rows.judgments)
    named: dict[str, Judgments] = {}
    for text, (path, column) in zip(texts, parts, strict=True):
        name = _name(path, column)
        if any(_name(*other) == name for other in parts if other != (path, column)):
            name = text
        unique, number = name, 2
        while unique in named:
            unique, number = f"{name}#{number}", number + 1
        named[unique] = judgments_in(text, conflicts)
    return named, list(named)


def _existing(text: str) -> tuple[str, str | None]:
    from pathlib import Path

    from semrecall.errors import InputError

    path, column = path_and_column(text)
    if not Path(path).exists():
        raise InputError(f"there is no file {path}")
    return path, column


def _name(path: str, column: str | None) -> str:
    from pathlib import Path

    return column or Path(path).name.split(".")[0]


def _rows(path: str, column: str | None) -> ByJudge:
    from pathlib import Path

    from semrecall.agreement.rows import by_judge
    from semrecall.errors import FormatError, InputError
    from semrecall.formats.ledgers import is_ledger, read_by_judge
    from semrecall.formats.texts import read_records

    if is_ledger(path):
        return by_judge(read_by_judge(path, column))
    try:
        columns = read_records(Path(path)).columns
    except FormatError as error:
        error.hint = error.hint or "give the judgments of each judge in a file of its own"
        raise
    if "judge" not in columns:
        raise InputError(
            f"{path} has no column judge: found columns {', '.join(columns)}",
            hint=f"give a second file, or two columns of grades: {path}:COLUMN {path}:COLUMN",
        )
    return by_judge(columns, grade=column)


def _rels(texts: tuple[str, ...], names: list[str]) -> dict[str, float]:
    """One grade, or a grade for each judge; those not named have the one without a name."""
    from semrecall.errors import InputError
    from semrecall.registry import did_you_mean

    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            grade = float(value)
        except ValueError:
            raise InputError(
                f"--rel {text!r} is neither a grade nor JUDGE=GRADE",
                hint="for example --rel 2, or --rel human=2",
            ) from None
        if equals and name not in names:
            raise InputError(f"--rel names no judge {name!r}", hint=did_you_mean(name, names))
        found[name] = grade
    return {name: found.get(name, found.get("", 1.0)) for name in names}


# -- out ------------------------------------------------------------------------------------------


def _show(found: Agreement, format: str, per_query: bool) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows

    if format == "json":
        whole = found.to_dict()
        if per_query:
            whole["per_query"] = found.rows("queries")
        print_rows([], "json", document=whole)
    elif per_query:
        # Ids are no counts, whose thousands would be marked.
        print_rows([row | {"query": str(row["query"])} for row in found.rows("queries")], format)
    elif format == "table":
        click.echo(str(found))
    else:
        from semrecall.agreement.table import remarks

        rows = found.rows("pairs") + [_measure_row(row) for row in found.rows("measures")]
        print_rows(rows, format, notes=[] if format == "csv" else remarks(found))


def _measure_row(row: dict[str, Any]) -> dict[str, Any]:
    """A measure under some labels in the columns of the estimates."""
    return {
        "first": row["labels"],
        "second": row["run"],
        "estimate": row["measure"],
        "value": row["mean"],
        "low": row["low"],
        "high": row["high"],
        "queries": row["queries"],
    }
