"""Ledgers of labels, read as judgments: the view `judgments` that each of them carries."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semrecall.data import Judgments
from semrecall.errors import FormatError
from semrecall.formats.files import fault, named
from semrecall.formats.options import Options
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    import sqlite3

__all__ = ["is_ledger", "open_for_reading", "read_by_judge", "read_judgments"]

_COLUMNS = ("query_id", "doc_id", "grade", "judge", "reason", "status", "time", "probability",
            "confidence")  # fmt: skip
#: Decisions on disputes.
_DECIDED = "human:adjudicated"


def is_ledger(path: Path | str) -> bool:
    """Whether the file is an SQLite database; only reading it tells whether it is a ledger."""
    try:
        with open(path, "rb") as file:
            return file.read(15) == b"SQLite format 3"
    except OSError:
        return False


def open_for_reading(path: Path | str) -> sqlite3.Connection:
    """A connection that writes nothing, also where the disk or the folder takes no writing.

    Raises sqlite3.DatabaseError.
    """
    import sqlite3

    address = Path(path).absolute().as_uri()
    try:
        return _connection(f"{address}?mode=ro")
    except sqlite3.OperationalError:
        journal = Path(f"{path}-wal")
        # Beside its file SQLite keeps a journal, which it cannot make here. There is none to
        # heed where all is in the file, and nobody can change that.
        if os.access(Path(path).absolute().parent, os.W_OK) or (
            journal.exists() and journal.stat().st_size
        ):
            raise
        return _connection(f"{address}?immutable=1")


def read_judgments(path: Path, options: Options) -> Judgments:
    """The last word of a judge on each pair: of the one there is, or the one `grade` names.

    Raises FormatError where several have given labels and none is named.
    """
    names, rows = _read(path)
    number = _chosen(path, names, options.grade)
    own = [row[1:] for row in rows if row[0] == number and row[-1] == 0]
    columns = [list(column) for column in zip(*own, strict=True)][:-1] or [[] for _ in _COLUMNS]
    details: dict[str, Any] = dict(zip(_COLUMNS[3:], columns[3:], strict=True))
    for name in ("probability", "confidence"):
        if all(value is None for value in details[name]):
            del details[name]
    with named(path):
        return Judgments.from_arrays(
            columns[0],
            columns[1],
            [float("nan") if grade is None else grade for grade in columns[2]],
            name=options.name or path.name,
            **details,
        )


def read_by_judge(path: Path | str, judge: str | None = None) -> dict[str, list[Any]]:
    """The labels of all judges, or of one with its repeats, as columns with a column `judge`.

    Judges of one name bear their numbers ("m#1"). Of all, those whose labels follow from those of
    others are left out: decisions on disputes, and panels.
    """
    names, rows = _read(Path(path))
    follow = _panels(path) | {n for n, name in names.items() if name == _DECIDED}
    chosen = None if judge is None else _chosen(Path(path), names, judge)
    kept = [
        (*row[1:4], names[row[0]], *row[5:-1])
        for row in sorted(rows, key=lambda row: row[-1])
        if (row[0] not in follow if chosen is None else row[0] == chosen)
    ]
    columns = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in _COLUMNS]
    return dict(zip(_COLUMNS, columns, strict=True))


def _read(path: Path) -> tuple[dict[int, str], list[tuple[Any, ...]]]:
    """The names of the judges that gave labels, by number, and (number, *columns, repeat)."""
    import sqlite3

    try:
        with closing(open_for_reading(path)) as connection:
            rows = connection.execute(
                f"SELECT judge_id, {', '.join(_COLUMNS)}, repeat FROM judgments"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        raise fault(path, f"is no ledger of semrecall, or cannot be read: {error}") from error
    judges = {row[0]: str(row[4]) for row in rows}
    bearers = Counter(judges.values())
    return {n: name if bearers[name] == 1 else f"{name}#{n}" for n, name in judges.items()}, rows


def _panels(path: Path | str) -> set[int]:
    """The numbers of the judges that have members."""
    import json

    with closing(open_for_reading(path)) as connection:
        found = connection.execute("SELECT id, identity FROM judges").fetchall()
    return {number for number, identity in found if "members" in json.loads(identity)}


def _chosen(path: Path, names: dict[int, str], wanted: str | None) -> int:
    """The number of the judge of that name or number; of the only one where none is named."""
    if wanted is None and len(names) < 2:
        return next(iter(names), -1)
    fitting = [n for n, name in names.items() if wanted in (name, str(n))]
    if fitting:
        return fitting[0]
    listed = ", ".join(f"{n}: {name}" for n, name in names.items()) or "none"
    if wanted is None:
        raise FormatError(
            f"{path}: holds labels of several judges: {listed}",
            hint="every judge is a column: choose one by its name or number, with --grade, "
            "or grade= in Python",
        )
    raise FormatError(
        f"{path}: no judge {wanted!r} has given labels; found {listed}",
        hint=did_you_mean(wanted, names.values()),
    )


def _connection(address: str) -> sqlite3.Connection:
    """A connection that has been tried: SQLite opens a file when it is first read."""
    import sqlite3

    connection = sqlite3.connect(
        address, uri=True, timeout=60, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
