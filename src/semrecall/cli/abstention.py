"""semrecall abstention: whether a score threshold tells queries without an answer from the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.inputs import reading, run_options
from semrecall.cli.sources import FILE
from semrecall.cli.spaces import SPACES
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.abstention import Abstention

__all__ = ["command"]

_SHOWN = 12


@click.command("abstention")
@click.argument("run", type=FILE)
@click.option("--unanswerable", type=FILE, help="Ids of queries without an answer, one a line.")
@click.option(
    "--columns", type=FILE, help="Or a file with query_id and a column `answerable` (true, false)."
)
@click.option(
    "--score",
    default="top",
    show_default=True,
    metavar="top|gap|COLUMN",
    help="The top score, its gap to the second, or a column of --columns.",
)
@click.option(
    "--cost",
    type=float,
    default=1.0,
    show_default=True,
    help="What answering a query without an answer costs, where refusing one with costs 1.",
)
@click.option("--threshold", type=float, help="A threshold to report on, say from a dev split.")
@click.option("--split", metavar="FILE[:PART]", help="Only these queries, e.g. s.csv:dev.")
@click.option("--part", metavar="PART", help="The part of --split FILE: dev or test.")
@click.option("--space", type=click.Choice(SPACES), help="Space of the scores of the run.")
@click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Of the AUC's interval."
)
@run_options
@format_option
def command(run: str, format: str, **given: Any) -> None:  # noqa: A002
    """Show what a threshold on a score of each query keeps of those with an answer, and rejects.

    \b
    semrecall abstention run.parquet --unanswerable none.txt --cost 5
    semrecall abstention run.parquet --columns queries.jsonl --threshold 0.62 --split s.csv:test

    AUC 0.5 is no better than chance, 1 tells all of them apart. csv and json print every
    threshold.
    """
    from semrecall.abstention import abstention
    from semrecall.cli.hints import hints_for
    from semrecall.cli.labels import chosen_queries
    from semrecall.formats import read_columns, read_ids, read_run

    with hints_for("run", run):
        found = read_run(run, **reading(given))
    columns = read_columns(given["columns"]) if given["columns"] else None
    result = abstention(
        found,
        columns if not given["unanswerable"] else None,
        unanswerable=read_ids(given["unanswerable"]) if given["unanswerable"] else None,
        score=_score(given["score"], columns),
        cost=given["cost"],
        threshold=given["threshold"],
        confidence=given["confidence"],
        lower_is_better=given["lower_is_better"],
        only=chosen_queries(given),
    )
    _show(result, format)


def _score(name: str, columns: Any) -> Any:
    """`top`, `gap`, or the numbers of a column, by query."""
    import numpy as np

    from semrecall.data import Scores
    from semrecall.errors import InputError
    from semrecall.registry import did_you_mean

    if name in ("top", "gap"):
        return name
    if columns is None or name not in columns:
        raise InputError(
            f"no score {name!r}", hint=did_you_mean(name, ["top", "gap", *(columns or ())])
        )
    try:
        values = np.array([float(value) for value in columns[name].tolist()])
    except (TypeError, ValueError) as error:
        raise InputError(f"the column {name!r} is no column of numbers ({error})") from error
    return Scores(f"the column {name}", columns["query_id"], values)


def _show(result: Abstention, format: str) -> None:  # noqa: A002
    from dataclasses import asdict

    from semrecall.cli.tables import print_rows

    if format == "json":
        print_rows([], "json", document=result.to_dict())
        return
    points = result.points(None if format == "csv" else _SHOWN)
    titles = {"value": "threshold", "kept": "answerable kept",
              "rejected": "unanswerable rejected", "cost": "cost"}  # fmt: skip
    notes = [] if format == "csv" else result.notes()
    print_rows([asdict(p) for p in points], format, titles=titles, notes=notes)
