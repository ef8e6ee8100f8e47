"""semrecall ledger: what a ledger holds; labels out of it, and into it."""

from __future__ import annotations

from typing import Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.tables import format_option

__all__ = ["command"]

_LEDGER = click.Path(exists=True, dir_okay=False)


@click.group("ledger")
def command() -> None:
    """Show what a ledger holds, and take labels out of it or into it.

    A ledger is one SQLite file with every attempt and every label, of models and of people; rows
    are only ever added. Reading it while a run writes is safe.
    """


@command.command("show")
@click.argument("ledger", type=_LEDGER)
@format_option
def show(ledger: str, format: str) -> None:  # noqa: A002
    """Print its judges: pairs, labels, calls, tokens and cost."""
    from semrecall.cli.tables import print_rows
    from semrecall.judges import Ledger
    from semrecall.text import shortened

    with Ledger(ledger, read_only=True) as book:
        judges = book.judges()
    rows = [
        {
            "id": judge.id,
            "judge": judge.name,
            "pairs": judge.pairs,
            "statuses": dict(judge.statuses),
            "calls": judge.calls,
            "tokens_in": judge.tokens_in,
            "tokens_out": judge.tokens_out,
            "cost": judge.cost,
        }
        for judge in judges
    ]
    if format == "json":
        full = [r | {"identity": dict(j.identity)} for r, j in zip(rows, judges, strict=True)]
        print_rows([], "json", document={"ledger": ledger, "judges": full})
        return
    if format == "table":  # whose id tells it from others that look alike
        rows = [row | {"judge": shortened(str(row["judge"]), 24)} for row in rows]
    titles = {name: name.replace("_", " ") for name in rows[0]} if rows else {}
    print_rows(rows, format, titles=titles)
    if not rows:
        click.echo(f"{ledger} holds no labels yet", err=True)


@command.command("export", cls=WritingCommand)
@click.argument("ledger", type=_LEDGER)
@click.option("--judge", metavar="NAME|ID", help="Whose labels; may be left out if there is one.")
@click.option("--repeat", type=click.IntRange(min=0), default=0, show_default=True,
              help="Which further time a pair was asked.")  # fmt: skip
@click.option("-o", "--output", type=OutputPath(dir_okay=False), required=True,
              help="qrels (.txt, .qrels), .jsonl, .csv or .parquet.")  # fmt: skip
def export(ledger: str, judge: str | None, repeat: int, output: str) -> None:
    """Write the last word of a judge on each pair."""
    from semrecall.formats import write
    from semrecall.judges import Ledger
    from semrecall.text import plural

    with Ledger(ledger, read_only=True) as book:
        labels = book.judgments(int(judge) if judge and judge.isdigit() else judge, repeat=repeat)
    write(labels, output)
    click.echo(f"wrote {plural(len(labels), 'label')} to {output}", err=True)


@command.command("import")
@click.argument("ledger", type=click.Path(dir_okay=False))
@click.argument("labels", type=click.Path(exists=True))
@click.option("--judge", metavar="NAME", help="Who gave them, where the file does not say.")
@click.option("--grade", metavar="COLUMN", help="Column of the grades.")
@click.option("--conflicts", type=click.Choice(["error", "max", "first", "last"]), default="error",
              show_default=True, help="Labels that contradict each other.")  # fmt: skip
def take_in(ledger: str, labels: str, judge: str | None, **given: Any) -> None:
    """Enter the labels of a file: qrels, JSON lines, CSV or parquet."""
    from semrecall.formats import read_judgments
    from semrecall.judges import Ledger
    from semrecall.text import plural

    found = read_judgments(labels, **given)
    with Ledger(ledger) as book:
        added = book.add(found, judge)
    said = f"entered {plural(added, 'label')}, {len(found) - added:,} were there"
    click.echo(said, err=True)
