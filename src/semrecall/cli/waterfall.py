"""semrecall waterfall: of all relevant documents known, where each one is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from semrecall.cli.hints import hints_for
from semrecall.cli.inputs import reading, run_options
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.sources import FILE
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.waterfall import Waterfall

__all__ = ["command", "stage_cut", "stage_options", "stage_runs"]

Command = TypeVar("Command", bound=Callable[..., Any])


def stage_options(after: str) -> Callable[[Command], Command]:
    """Decorator: the stages that come last, after those of the option `after`, and their cuts."""
    options = (
        click.option(
            "--context", type=FILE, help=f"What the generator read, as a run; after {after}."
        ),
        click.option(
            "--answer", type=FILE, help="What the answer used or cited, as a run; the last."
        ),
        click.option(
            "--cut", "cuts", multiple=True, metavar="STAGE=N",
            help="Only the first N results of a stage count, e.g. context=5.",
        ),
    )  # fmt: skip

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command("waterfall", cls=WritingCommand)
@click.option(
    "--judgments", type=FILE, required=True,
    help="Which documents are relevant: qrels, labels of people or LLMs.",
)  # fmt: skip
@click.option("--truth", type=FILE, help="The exact neighbours: what the model itself can find.")
@click.option("--codes", type=FILE, help="Exact search over the codes of a quantised index.")
@click.option(
    "--run", "runs", multiple=True, metavar="[NAME=]FILE",
    help="Results of a stage, in order: index=a.parquet, rerank=b.parquet; may be repeated.",
)  # fmt: skip
@stage_options("--run")
@click.option(
    "-k", type=click.IntRange(min=1),
    help="Results of truth, codes and the first run that count; the truth's depth if absent.",
)  # fmt: skip
@click.option("--rel", type=float, default=1.0, show_default=True, help="Relevant from this grade.")
@click.option("--queries", type=FILE, help="Texts of the queries: JSON lines of id and text.")
@click.option("--corpus", type=FILE, help="Texts of the documents, likewise.")
@click.option("--by", multiple=True, metavar="COLUMN", help="Slice by a column of the queries.")
@click.option(
    "--columns", type=FILE,
    help="File with query_id and columns to slice by.  [default: --queries]",
)  # fmt: skip
@click.option("--grade", metavar="COLUMN", help="Column of the grades, or a judge of a ledger.")
@click.option(
    "--conflicts", type=click.Choice(["error", "max", "first", "last"]), default="error",
    show_default=True, help="Judgments that contradict each other.",
)  # fmt: skip
@run_options
@click.option("--behind", metavar="STAGE", help="List every query that loses something there.")
@click.option("--per-query", is_flag=True, help="Print the counts of every query and stage.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the intervals.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option(
    "--html", type=OutputPath(".html", ".htm", dir_okay=False), metavar="FILE",
    help="Also write a page with the picture and the queries behind each loss.",
)  # fmt: skip
@format_option
def command(format: str, html: str | None, **given: Any) -> None:  # noqa: A002
    """Show where relevant documents are lost: model, codes, index, rerank, context, answer.

    \b
    semrecall waterfall --judgments qrels.txt --truth truth.parquet --run index=run.parquet
    semrecall waterfall --judgments labels.parquet --rel 2 --truth truth.parquet \\
        --codes codes.parquet --run index=run.parquet --run rerank=reranked.txt \\
        --context contexts.jsonl --answer cited.jsonl --html waterfall.html

    Every stage is optional. A document is lost at the first stage that does not have it, so the
    stages add up exactly. One that a later stage has all the same is a lucky find, shown apart.
    """
    from semrecall.registry import import_extra

    if html:
        # Better now than after the work.
        import_extra("matplotlib", "report", "an HTML report")
    found = _made(given)
    _show(found, format, given["behind"], given["per_query"])
    if html:
        found.to_html(html, command=command_line())
        click.echo(f"wrote {html}", err=True)


def _made(given: dict[str, Any]) -> Waterfall:
    from semrecall.formats import read_columns, read_judgments, read_texts
    from semrecall.waterfall import waterfall

    with hints_for("judgments", given["judgments"]):
        judgments = read_judgments(
            given["judgments"], conflicts=given["conflicts"], grade=given["grade"]
        )
    columns = given["columns"] or given["queries"]
    return waterfall(
        judgments,
        truth=_run(given["truth"], given),
        codes=_run(given["codes"], given),
        runs=stage_runs(given["runs"], given),
        cuts=dict(stage_cut(cut) for cut in given["cuts"]),
        query_texts=read_texts(given["queries"]) if given["queries"] else None,
        document_texts=read_texts(given["corpus"]) if given["corpus"] else None,
        columns=read_columns(columns) if given["by"] and columns else None,
        **{name: given[name] for name in ("k", "rel", "by", "seed", "confidence")},
    )


def stage_runs(named: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
    """The runs of stages: NAME=FILE in their order, then the context, then the answer."""
    from semrecall.errors import InputError

    pairs = [text.split("=", 1) if "=" in text else ["index", text] for text in named]
    pairs += [[name, given[name]] for name in ("context", "answer") if given[name]]
    found: dict[str, Any] = {}
    for name, path in pairs:
        if name in found:
            raise InputError(
                f"two stages are called {name!r}", hint=f"name them: --run other={path}"
            )
        found[name] = _run(path, given)
    return found


def _run(path: str | None, given: dict[str, Any]) -> Any:
    from semrecall.formats import read_run

    if path is None:
        return None
    with hints_for("run", path):
        return read_run(path, **reading(given))


def stage_cut(cut: str) -> tuple[str, int]:
    """STAGE=N as a stage and a number."""
    from semrecall.errors import InputError

    name, _, number = cut.rpartition("=")
    if not name or not number.isdecimal():
        raise InputError(f"--cut is {cut!r}; expected STAGE=N, e.g. context=5")
    return name, int(number)


def _csv_rows(found: Waterfall) -> list[dict[str, Any]]:
    """One row a stage; with slices, each group's too, and which it is."""
    from dataclasses import asdict

    rows = [asdict(step) for step in found.steps]
    if not found.slices:
        return rows
    return [{"slice": "", "group": "", **row} for row in rows] + [
        {"slice": column, "group": group, **asdict(step)}
        for column in found.slices
        for group, steps in found.by(column).items()
        for step in steps
    ]


def _show(found: Waterfall, format: str, behind: str | None, per_query: bool) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows
    from semrecall.text import wrapped
    from semrecall.waterfall.text import HEADS, headline, opening, remarks, step_rows

    if behind is not None:
        rows = [
            {
                "query_id": str(lost.query), "text": lost.text, "lost": len(lost.documents),
                "relevant": lost.relevant, "documents": [str(name) for name, _ in lost.documents],
            }
            for lost in found.behind(behind)
        ]  # fmt: skip
        print_rows(rows, format)
    elif per_query:
        print_rows([row | {"query_id": str(row["query_id"])} for row in found.rows_of()], format)
    elif format == "json":
        print_rows([], "json", document=found.to_dict())
    elif format == "csv":
        print_rows(_csv_rows(found), "csv", notes=remarks(found))
    elif format == "markdown":
        click.echo(f"**{headline(found)}.** {opening(found)}.\n")
        print_rows([dict(zip(HEADS, row, strict=True)) for row in step_rows(found.steps)], format)
        for column in found.slices:
            rows = [
                dict(zip(("group", *HEADS), (group, *row), strict=True))
                for group, steps in found.by(column).items()
                for row in step_rows(steps)
            ]
            click.echo(f"\nby {column}:\n")
            print_rows(rows, format)
        click.echo("".join(f"\n{note}\n" for note in remarks(found)), nl=False)
    else:
        # Sentences that are wider than the terminal; tables fit already.
        click.echo("\n".join(part for line in str(found).split("\n") for part in wrapped(line)))
