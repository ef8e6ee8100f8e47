"""Ledgers of labels, read as judgments: the view `judgments` that each of them carries."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from semrecall.data import Judgments
from semrecall.formats.files import fault, named
from semrecall.formats.options import Options

__all__ = ["read_judgments"]

_COLUMNS = ("query_id", "doc_id", "grade", "judge", "reason", "status", "time", "probability")


def read_judgments(path: Path, options: Options) -> Judgments:
    """The last word on each pair; FormatError when several judges have given labels."""
    import sqlite3

    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=60)) as connection:
            judges = connection.execute("SELECT DISTINCT judge_id, judge FROM judgments").fetchall()
            rows = connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM judgments WHERE repeat=0"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        raise fault(path, f"is no ledger of semrecall: {error}") from error
    if len(judges) > 1:
        raise fault(
            path,
            "holds labels of several judges: " + ", ".join(str(name) for _, name in judges),
            hint="take out those of one: semrecall ledger export --judge NAME -o labels.parquet",
        )
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in _COLUMNS]
    details: dict[str, Any] = dict(zip(_COLUMNS[3:], columns[3:], strict=True))
    if all(chance is None for chance in details["probability"]):
        del details["probability"]
    with named(path):
        return Judgments.from_arrays(
            columns[0],
            columns[1],
            [float("nan") if grade is None else grade for grade in columns[2]],
            name=options.name or path.name,
            **details,
        )
