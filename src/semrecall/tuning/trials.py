"""Trials: every part of every trial in one SQLite file, so that no finished one is paid twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError, Stopped
from semrecall.tuning.evaluator import Measured

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.tuning.ranges import Setting

__all__ = ["Trials"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS study (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS parts (
    system TEXT NOT NULL, build TEXT NOT NULL, search TEXT NOT NULL,
    subset TEXT NOT NULL, timed INTEGER NOT NULL, queries INTEGER NOT NULL,
    status TEXT NOT NULL, message TEXT NOT NULL, digest TEXT NOT NULL,
    measures TEXT NOT NULL, costs TEXT NOT NULL, figures BLOB NOT NULL,
    seconds REAL NOT NULL, finished TEXT NOT NULL,
    PRIMARY KEY (system, build, search, subset, timed)
) WITHOUT ROWID;
"""
_PURPOSE = "trials of semrecall tune, layout 1"


class Trials:
    """The parts of trials that are finished: one setting on one subset of the queries each.

    path: the file; None keeps them in memory. identity: what the trials are trials of (queries,
    truth, judgments, systems, ...), by name; a file of other trials is refused, naming what
    differs.

    Every part is one transaction: whatever happens, what was finished stays finished. Raises
    InputError for a file that is none of ours, Stopped where it cannot be written (a full disk).
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        if self.path is not None and not self.path.absolute().parent.is_dir():
            raise InputError(f"{path}: the directory {self.path.parent} does not exist")
        # Searches may go on for days; another process has a minute to finish its transaction.
        with self._reading():
            self._file = sqlite3.connect(str(path or ":memory:"), timeout=60, isolation_level=None)
            self._file.executescript(_SCHEMA)
        self._own(identity)

    def __len__(self) -> int:
        """How many parts are there."""
        return int(self._file.execute("SELECT count(*) FROM parts").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def find(
        self, setting: Setting, rows: NDArray[np.int64], timed: bool, measures: list[str]
    ) -> Measured | str | None:
        """A finished part, the message of one that failed, or None."""
        with self._reading():
            row = self._file.execute(
                "SELECT status, message, digest, measures, costs, figures, seconds FROM parts "
                "WHERE system = ? AND build = ? AND search = ? AND subset = ? AND timed = ?",
                (*_key(setting), _subset(rows), int(timed)),
            ).fetchone()
        if row is None:
            return None
        status, message, digest, names, costs, figures, seconds = row
        if status != "done":
            return str(message)
        values, columns = json.loads(names), json.loads(costs)
        if not set(measures) <= set(values):
            return None
        table = np.frombuffer(figures, dtype="<f8").reshape(-1, len(rows))
        return Measured(
            rows,
            {n: table[values.index(n)] for n in measures},
            dict(zip(columns, table[len(values) :], strict=True)),
            digest,
            seconds,
        )

    def add(self, setting: Setting, timed: bool, found: Measured) -> None:
        """Keep a part that is finished."""
        table = np.array([*found.values.values(), *found.costs.values()], dtype="<f8")
        self._keep(
            setting, found.rows, timed, "done", "", found.digest,
            json.dumps(list(found.values)), json.dumps(list(found.costs)),
            table.tobytes(), found.seconds,
        )  # fmt: skip

    def fail(self, setting: Setting, rows: NDArray[np.int64], timed: bool, message: str) -> None:
        """Keep that a setting cannot be searched, and why."""
        self._keep(setting, rows, timed, "failed", message, "", "[]", "[]", b"", 0.0)

    def rescued(self) -> Path:
        """Copy what is in memory into a file of its own; its path."""
        number, path = tempfile.mkstemp(prefix="semrecall-trials-", suffix=".sqlite")
        os.close(number)
        with self._writing(), contextlib.closing(sqlite3.connect(path)) as copy:
            self._file.backup(copy)
        return Path(path)

    def _keep(self, setting: Setting, rows: NDArray[np.int64], timed: bool, *columns: Any) -> None:
        *given, seconds = columns
        finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = (*_key(setting), _subset(rows), int(timed), len(rows), *given, seconds, finished)
        with self._writing():
            self._file.execute(f"REPLACE INTO parts VALUES ({', '.join('?' * len(line))})", line)

    def _own(self, identity: Mapping[str, Any]) -> None:
        """Refuse a file of other trials; sign one that is new."""
        wanted = {name: json.dumps(value, sort_keys=True) for name, value in identity.items()}
        wanted["purpose"] = json.dumps(_PURPOSE)
        with self._reading():
            known = dict(self._file.execute("SELECT name, value FROM study").fetchall())
        if not known:
            with self._writing():
                self._file.executemany("INSERT INTO study VALUES (?, ?)", wanted.items())
            return
        differ = [
            f"{name} {_short(known.get(name))} there, {_short(wanted.get(name))} here"
            for name in sorted(known.keys() | wanted.keys())
            if known.get(name) != wanted.get(name)
        ]
        if differ:
            self._file.close()
            raise InputError(
                f"{self.path} holds trials of something else: {'; '.join(differ)}",
                hint="give these trials a file of their own (store=..., --store FILE)",
            )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self.path} cannot be read as a file of trials: {error}",
                hint="give another file (store=..., --store FILE)",
            ) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise Stopped(
                f"a trial cannot be written to {self.path or 'memory'}: {error}",
                hint="make room, or let the file be written",
            ) from error


def _key(setting: Setting) -> tuple[str, str, str]:
    return (
        setting.system,
        json.dumps(dict(sorted(setting.build))),
        json.dumps(dict(sorted(setting.search))),
    )


def _subset(rows: NDArray[np.int64]) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()[:16]


def _short(value: str | None) -> str:
    if value is None:
        return "missing"
    return value if len(value) <= 60 else value[:57] + "..."
