"""The ledger: one SQLite file with every attempt and every label, of models and of people.

Rows are only ever added. A call and what it answered are one transaction, so a crash costs at most
the calls in flight. Before it asks, a process claims the pairs, so that two of them on one ledger
do not pay for a pair twice; the claims of a process that died are void.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semrecall.data import Judgments
from semrecall.errors import InputError, LedgerFault
from semrecall.formats.ledgers import open_for_reading
from semrecall.judges.contract import Answer, Judge, Reply, Status, digest

__all__ = ["HUMAN", "Kept", "Ledger", "LedgerBatch", "LedgerJudge", "Vote", "is_open"]

#: What the name of a person among the judges starts with.
HUMAN = "human:"
_FORMAT = 1
_TRIES, _WAIT = 1200, 0.05  # to begin a ledger beside other processes; seconds
_BLOCK = 500  # values in one SELECT ... IN (...)
#: A process elsewhere that gave no sign of life for so long is taken for dead.
_DEAD_AFTER_SECONDS = 900.0
_SIGN_EVERY_SECONDS = 20.0

#: What the owner of a claim starts with when it is a batch, and a batch the endpoint has not named.
_BATCH, _UNNAMED = "batch:", "unnamed:"

_SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE judges(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, fingerprint BLOB NOT NULL UNIQUE,
  identity TEXT NOT NULL, since REAL NOT NULL);
CREATE TABLE pairs(
  judge INTEGER NOT NULL, query_id, doc_id, repeat INTEGER NOT NULL, key BLOB NOT NULL,
  PRIMARY KEY(judge, query_id, doc_id, repeat)) WITHOUT ROWID;
CREATE TABLE calls(
  id INTEGER PRIMARY KEY, judge INTEGER NOT NULL, time REAL NOT NULL, status TEXT NOT NULL,
  mode TEXT NOT NULL, http_status INTEGER, tokens_in INTEGER, tokens_out INTEGER,
  latency_seconds REAL, cost REAL, maybe_charged INTEGER NOT NULL, questions INTEGER NOT NULL,
  raw TEXT NOT NULL);
CREATE TABLE answers(
  id INTEGER PRIMARY KEY, judge INTEGER NOT NULL, key BLOB NOT NULL, query_id, doc_id,
  call INTEGER, time REAL NOT NULL, status TEXT NOT NULL, grade REAL, reason TEXT NOT NULL,
  confidence REAL, final INTEGER NOT NULL, flags TEXT NOT NULL, probability REAL,
  kind TEXT NOT NULL, seconds REAL);
CREATE INDEX answers_by_key ON answers(judge, key);
CREATE TABLE claims(
  judge INTEGER NOT NULL, key BLOB NOT NULL, owner TEXT NOT NULL,
  PRIMARY KEY(judge, key)) WITHOUT ROWID;
CREATE TABLE owners(
  token TEXT PRIMARY KEY, place TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
  sign REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE batches(
  id TEXT PRIMARY KEY, judge INTEGER NOT NULL, endpoint TEXT NOT NULL, state TEXT NOT NULL,
  time REAL NOT NULL, keys TEXT NOT NULL, about TEXT NOT NULL) WITHOUT ROWID;
-- The last word on each pair and judge: what reading this file as judgments gives.
CREATE VIEW judgments AS
  SELECT p.query_id, p.doc_id, a.grade, j.name AS judge, a.reason, a.status, a.time,
    c.cost / c.questions AS cost, a.confidence, a.probability, a.doc_id AS origin, a.flags,
    p.repeat, a.kind, p.judge AS judge_id
  FROM pairs p JOIN judges j ON j.id = p.judge
  JOIN answers a ON a.id = (
    SELECT max(b.id) FROM answers b WHERE b.judge = p.judge AND b.key = p.key AND b.final)
  LEFT JOIN calls c ON c.id = a.call
  WHERE a.kind != 'withdrawn';
"""


class Kept(NamedTuple):
    """What the ledger holds on one key: the last final answer, and how often each status was met.

    origin: the pair whose text was judged; another one when texts are equal.
    """

    status: Status | None
    grade: float | None
    reason: str
    confidence: float | None
    flags: tuple[str, ...]
    origin: tuple[str | int, str | int] | None
    tried: Mapping[str, int]

    @property
    def settled(self) -> bool:
        """Whether there is a grade."""
        return self.status is Status.SETTLED


def is_open(kept: Kept | None, again: Collection[Status]) -> bool:
    """Whether a key is to be asked. again: statuses without a grade that are asked once more."""
    if kept is None or kept.status is None:
        return True
    return not kept.settled and (kept.status.passing or kept.status in again)


@dataclass(frozen=True)
class Vote:
    """One label of a person. kind: "label", "repeat" (a hidden second time), "adjudication",
    or "withdrawn" (undone). probability: with which the pair was picked for labelling.
    confidence: of a label from elsewhere, its judge's own.
    """

    query_id: str | int
    doc_id: str | int
    grade: float | None
    status: Status = Status.SETTLED
    reason: str = ""
    kind: str = "label"
    probability: float | None = None
    seconds: float | None = None
    repeat: int = 0
    confidence: float | None = None


@dataclass(frozen=True)
class LedgerJudge:
    """A judge as the ledger knows it, with the counts of its work.

    statuses: how many of its pairs ended how, when asked first. cost: None where no price was
    known.
    """

    id: int
    name: str
    identity: Mapping[str, Any]
    pairs: int
    statuses: Mapping[str, int]
    calls: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    maybe_charged: int


@dataclass(frozen=True)
class LedgerBatch:
    """A batch as the ledger knows it.

    state: "submitting", "running", "ended" (at the endpoint, not collected), "collected", "failed"
    or "lost". about: what who submitted it noted, as JSON.
    """

    id: str
    endpoint: str
    state: str
    time: float
    keys: tuple[bytes, ...]
    about: str


class Ledger:
    """A ledger file, made when it does not exist; None: in memory. Use it as a context manager.

    Safe between processes, and between threads of one. Raises LedgerFault when the file is no
    ledger, cannot be written, or the disk is full; what was recorded before stays.
    """

    def __init__(self, path: Path | str | None, *, read_only: bool = False) -> None:
        self.path = Path(path if path is not None else "(memory)")
        self.read_only = read_only
        self.token = secrets.token_hex(8)
        self._lock = threading.RLock()
        self._judges: dict[bytes, int] = {}
        self._enlisted = False
        self._sign = 0.0
        if read_only and not self.path.exists():
            raise FileNotFoundError(2, "no such file", str(path))
        with self._faults():
            self._connection = (
                open_for_reading(self.path)
                if read_only
                else sqlite3.connect(
                    ":memory:" if path is None else self.path,
                    timeout=60,
                    isolation_level=None,
                    check_same_thread=False,
                )
            )
        try:
            with self._faults():
                self._open()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> None:
        run = self._connection.execute
        run("PRAGMA busy_timeout=60000")
        empty = run("SELECT 1 FROM sqlite_master").fetchone() is None
        if not empty or self.read_only:
            self._check()  # before anything is changed: it may be another program's
        if not self.read_only:
            self._write_ahead()
            # A commit survives the death of the process; one on the way to the disk when the
            # power fails may be lost, and is then simply asked again.
            run("PRAGMA synchronous=NORMAL")
        if empty and not self.read_only:
            with self._transaction():
                if not run("SELECT 1 FROM sqlite_master").fetchone():
                    for statement in _SCHEMA.split(";\n"):
                        if statement.strip():
                            run(statement)
                    run("INSERT INTO meta VALUES ('semrecall ledger', ?)", (str(_FORMAT),))
            self._check()  # another process may have made it meanwhile

    def _write_ahead(self) -> None:
        """Let others read meanwhile, also where several processes begin a ledger at once.

        Of these SQLite refuses all but one at once, whatever it was told of waiting.
        """
        for left in reversed(range(_TRIES)):
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or not left:
                    raise
                time.sleep(_WAIT)

    def _check(self) -> None:
        """Raise LedgerFault where the file is no ledger, or a later one."""
        run = self._connection.execute
        columns = [name for (name,) in run("SELECT name FROM pragma_table_info('meta')")]
        found = None
        if columns == ["name", "value"]:
            found = run("SELECT value FROM meta WHERE name='semrecall ledger'").fetchone()
        if found is None or not str(found[0]).isdecimal():
            raise LedgerFault(
                f"{self.path} is an SQLite file, but no ledger of semrecall",
                hint="name another file; it is made when it does not exist",
            )
        if int(found[0]) > _FORMAT:
            raise LedgerFault(
                f"{self.path} is a ledger of a later version of semrecall",
                hint="pip install --upgrade semrecall",
            )

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up all claims and close the file."""
        with self._lock:
            try:
                if self._enlisted:
                    with self._transaction() as run:
                        run("DELETE FROM claims WHERE owner=?", (self.token,))
                        run("DELETE FROM owners WHERE token=?", (self.token,))
                    self._enlisted = False
            except LedgerFault:
                pass  # a full disk: the claims are void as soon as this process is gone
            finally:
                self._connection.close()

    # -- judges ---------------------------------------------------------------------------------

    def enlist(self, judge: Judge) -> int:
        """The number of a judge in this ledger; it is entered when it is new."""
        known = self._judges.get(judge.fingerprint)
        if known is None:
            known = self._enter(judge.name, judge.fingerprint, judge.identity)
            self._judges[judge.fingerprint] = known
        return known

    def number(self, judge: Judge) -> int | None:
        """The number of a judge, if it is known here; nothing is entered."""
        with self._reading() as run:
            row = run("SELECT id FROM judges WHERE fingerprint=?", (judge.fingerprint,)).fetchone()
        return None if row is None else int(row[0])

    def _enter(self, name: str, fingerprint: bytes, identity: Mapping[str, Any]) -> int:
        with self._transaction() as run:
            run(
                "INSERT OR IGNORE INTO judges(name, fingerprint, identity, since)"
                " VALUES (?, ?, ?, ?)",
                (name, fingerprint, json.dumps(identity, ensure_ascii=False), time.time()),
            )
            row = run("SELECT id FROM judges WHERE fingerprint=?", (fingerprint,)).fetchone()
        return int(row[0])

    def judges(self) -> list[LedgerJudge]:
        """Every judge, with the counts of its pairs by status, its calls, tokens and cost."""
        with self._reading() as run:
            heads = run("SELECT id, name, identity FROM judges ORDER BY id").fetchall()
            pairs = dict(
                run(
                    "SELECT judge, count(*) FROM (SELECT DISTINCT judge, query_id, doc_id"
                    " FROM pairs) GROUP BY judge"
                ).fetchall()
            )
            statuses: dict[int, dict[str, int]] = {}
            for judge, status, count in run(
                "SELECT judge_id, status, count(*) FROM judgments WHERE repeat=0"
                " GROUP BY judge_id, status"
            ):
                statuses.setdefault(judge, {})[status] = count
            spent = {
                row[0]: row[1:]
                for row in run(
                    "SELECT judge, count(*), total(tokens_in), total(tokens_out), sum(cost),"
                    " total(maybe_charged) FROM calls GROUP BY judge"
                )
            }
        found = []
        for number, name, identity in heads:
            calls, tokens_in, tokens_out, cost, maybe = spent.get(number, (0, 0, 0, None, 0))
            found.append(
                LedgerJudge(
                    number, name, json.loads(identity), pairs.get(number, 0),
                    statuses.get(number, {}), calls, int(tokens_in), int(tokens_out), cost,
                    int(maybe),
                )
            )  # fmt: skip
        return found

    # -- what a run needs -----------------------------------------------------------------------

    def kept(self, judge: int, keys: Iterable[bytes]) -> dict[bytes, Kept]:
        """What is known of the keys; those never asked are left out."""
        wanted = set(keys)
        found: dict[bytes, Kept] = {}
        query = (
            "SELECT key, status, grade, reason, confidence, flags, query_id, doc_id, final"
            " FROM answers WHERE judge=? AND kind='label'"
        )
        with self._reading() as run:
            for row in _by_block(run, query, judge, wanted):
                key, status, grade, reason, confidence, flags, query, document, final = row
                before = found.get(key)
                if before is None:
                    tried = _ONCE[status]
                else:
                    tried = {**before.tried, status: before.tried.get(status, 0) + 1}
                if final or before is None:
                    found[key] = Kept(
                        _STATUSES[status] if final else None, grade, reason, confidence,
                        () if flags == "[]" else tuple(json.loads(flags)),
                        (query, document), tried,
                    )  # fmt: skip
                else:
                    found[key] = before._replace(tried=tried)
        return found

    def enter_pairs(self, judge: int, rows: Sequence[tuple[Any, Any, int, bytes]]) -> None:
        """Note which key answers which (query id, document id, repeat); known rows stay."""
        if not rows:
            return
        with self._reading() as run:
            known = set(
                run("SELECT query_id, doc_id, repeat, key FROM pairs WHERE judge=?", (judge,))
            )
        fresh = [(judge, *row) for row in rows if row not in known]
        if fresh:
            with self._transaction():
                self._connection.executemany(
                    "INSERT OR REPLACE INTO pairs(judge, query_id, doc_id, repeat, key)"
                    " VALUES (?, ?, ?, ?, ?)",
                    fresh,
                )

    def claim(self, judge: int, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the keys that are now this process's to ask; others are another's, or settled.

        Settled keys are never claimed, so look at `kept` afterwards for those not given.
        """
        with self._transaction() as run:
            self._give_sign(run)
            self._bury_the_dead(run)
            settled = {
                key
                for (key,) in _by_block(
                    run,
                    "SELECT key FROM answers WHERE judge=? AND final AND status='settled'",
                    judge,
                    set(keys),
                )
            }
            self._connection.executemany(
                "INSERT OR IGNORE INTO claims(judge, key, owner) VALUES (?, ?, ?)",
                [(judge, key, self.token) for key in keys if key not in settled],
            )
            rows = _by_block(run, "SELECT key, owner FROM claims WHERE judge=?", judge, set(keys))
            return {key for key, owner in rows if owner == self.token}

    def release(self, judge: int, keys: Iterable[bytes]) -> None:
        """Give up claims on keys that will not be asked after all."""
        with self._transaction():
            self._connection.executemany(
                "DELETE FROM claims WHERE judge=? AND key=? AND owner=?",
                [(judge, key, self.token) for key in keys],
            )

    def record(self, judge: int, reply: Reply) -> None:
        """Keep a reply: the call, its answers, and the claims they end, in one transaction."""
        now = time.time()
        with self._transaction() as run:
            self._keep(run, judge, reply, now)
            final = [a.question.key for a in reply.answers if a.final]
            if final:
                self._connection.executemany(
                    "DELETE FROM claims WHERE judge=? AND key=?", [(judge, k) for k in final]
                )
            if now - self._sign > _SIGN_EVERY_SECONDS:
                self._give_sign(run)

    def _keep(self, run: Run, judge: int, reply: Reply, now: float) -> None:
        """Add the rows of a call, where there was one, and of its answers."""
        call = None if not reply.calls else run(
            "INSERT INTO calls(judge, time, status, mode, http_status, tokens_in, tokens_out,"
            " latency_seconds, cost, maybe_charged, questions, raw)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                judge, now, reply.status.value, reply.mode, reply.http_status,
                reply.tokens_in, reply.tokens_out, reply.latency_seconds, reply.cost,
                int(reply.maybe_charged), max(len(reply.answers), 1), reply.raw,
            ),
        ).lastrowid  # fmt: skip
        self._connection.executemany(_ADD_ANSWER, [
            _answer_row(judge, answer, call, now) for answer in reply.answers
        ])  # fmt: skip

    def note(self, name: str) -> str | None:
        """A remark kept with the ledger: what an endpoint can do, for instance."""
        with self._reading() as run:
            row = run("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_note(self, name: str, value: str) -> None:
        """Keep a remark; an earlier one of that name is replaced."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # -- batches --------------------------------------------------------------------------------

    def open_batch(self, judge: int, endpoint: str, keys: Sequence[bytes], about: str) -> str:
        """Note, before it is sent, that claimed keys go into a batch; gives it a name for now.

        From here on the keys are the batch's: no process asks them until it is closed, whatever
        becomes of this one.
        """
        name = f"{_UNNAMED}{secrets.token_hex(8)}"
        with self._transaction() as run:
            run(
                "INSERT INTO batches(id, judge, endpoint, state, time, keys, about)"
                " VALUES (?, ?, ?, 'submitting', ?, ?, ?)",
                (name, judge, endpoint, time.time(), json.dumps([k.hex() for k in keys]), about),
            )
            self._connection.executemany(
                "UPDATE claims SET owner=? WHERE judge=? AND key=? AND owner=?",
                [(_BATCH + name, judge, key, self.token) for key in keys],
            )
        return name

    def name_batch(self, name: str, id: str, about: str) -> None:  # noqa: A002 - its name
        """The endpoint took the batch, and calls it so."""
        with self._transaction() as run:
            run("UPDATE batches SET id=?, state='running', about=? WHERE id=?", (id, about, name))
            run("UPDATE claims SET owner=? WHERE owner=?", (_BATCH + id, _BATCH + name))

    def batches(self, judge: int) -> list[LedgerBatch]:
        """All batches of a judge, oldest first, closed ones too."""
        with self._reading() as run:
            rows = run(
                "SELECT id, endpoint, state, time, keys, about FROM batches WHERE judge=?"
                " ORDER BY time, id",
                (judge,),
            ).fetchall()
        return [
            LedgerBatch(i, e, s, t, tuple(map(bytes.fromhex, json.loads(k))), a)
            for i, e, s, t, k, a in rows
        ]

    def in_batches(self, judge: int) -> set[bytes]:
        """The keys whose answers are awaited from a batch: not to be asked otherwise."""
        with self._reading() as run:
            rows = run(
                "SELECT key FROM claims WHERE judge=? AND substr(owner, 1, ?)=?",
                (judge, len(_BATCH), _BATCH),
            )
            return {key for (key,) in rows}

    def record_item(self, judge: int, batch: str, key: bytes, replies: Sequence[Reply]) -> bool:
        """Keep what a batch says of a key, and end its claim; False when that was done before."""
        with self._transaction() as run:
            ended = run(
                "DELETE FROM claims WHERE judge=? AND key=? AND owner=?",
                (judge, key, _BATCH + batch),
            )
            if not ended.rowcount:
                return False
            for reply in replies:
                self._keep(run, judge, reply, time.time())
        return True

    def set_batch(self, batch: str, state: str) -> None:
        """Note the state of a batch. One that is "running" or "ended" keeps its claims; any other
        state closes it, and what it left unanswered can be asked again.
        """
        with self._transaction() as run:
            run("UPDATE batches SET state=? WHERE id=?", (state, batch))
            if state not in ("running", "ended"):
                run("DELETE FROM claims WHERE owner=?", (_BATCH + batch,))

    def is_alive(self, token: str) -> bool:
        """Whether the process with this token still works on this ledger."""
        with self._transaction() as run:
            self._bury_the_dead(run)
            return bool(run("SELECT 1 FROM owners WHERE token=?", (token,)).fetchone())

    # -- people ---------------------------------------------------------------------------------

    def person(self, name: str, rubric: Mapping[str, Any] | None = None) -> int:
        """The number of a person as a judge. Their labels under another rubric are another's."""
        identity = {"judge": "human", "name": name, "rubric": dict(rubric or {})}
        return self._enter(
            HUMAN + name, digest("human", json.dumps(identity, sort_keys=True)), identity
        )

    def vote(self, judge: int, vote: Vote) -> int:
        """Add a person's label, and its number. Nothing is overwritten: the latest one counts."""
        with self._transaction() as run:
            return _add_vote(run, judge, vote)

    def votes(self, judge: int) -> list[Vote]:
        """Every label a person gave, in order, those undone among them."""
        return [vote for _, _, vote in self._votes("WHERE a.judge=?", judge)]

    def human_votes(self, after: int = 0) -> list[tuple[int, int, Vote]]:
        """(row, judge, vote) of all people in order, from the row after that one on."""
        people = "JOIN judges j ON j.id=a.judge WHERE a.id>? AND substr(j.name, 1, ?)=?"
        return self._votes(people, after, len(HUMAN), HUMAN)

    def _votes(self, which: str, *values: Any) -> list[tuple[int, int, Vote]]:
        with self._reading() as run:
            rows = run(
                "SELECT a.id, a.judge, a.query_id, a.doc_id, a.grade, a.status, a.reason, a.kind,"
                " a.probability, a.seconds, p.repeat FROM answers a JOIN pairs p"
                " ON p.judge=a.judge AND p.query_id=a.query_id AND p.doc_id=a.doc_id"
                f" AND p.key=a.key {which} ORDER BY a.id",
                values,
            ).fetchall()
        return [
            (row, judge, Vote(q, d, g, _STATUSES[s], r, k, p, t, n))
            for row, judge, q, d, g, s, r, k, p, t, n in rows
        ]

    # -- in and out -----------------------------------------------------------------------------

    def judgments(self, judge: str | int | None = None, *, repeat: int = 0) -> Judgments:
        """The last word of one judge on each of its pairs; failures have no grade and a status.

        judge: by name or number; may be left out where there is one. Raises InputError when the
        name is unknown or several judges bear it.
        """
        number = self._number(judge)
        with self._reading() as run:
            rows = run(
                f"SELECT {', '.join(_COLUMNS)} FROM judgments WHERE judge_id=? AND repeat=?",
                (number, repeat),
            ).fetchall()
        return _judgments_of(rows, self.path.name)

    def add(self, judgments: Judgments, judge: str | None = None) -> int:
        """Enter labels from elsewhere, by their column `judge` or all under one name.

        Returns how many rows were added; a label that is there already, the same, is not added
        again. Raises InputError where the labels do not say who gave them.
        """
        names = [judge] * len(judgments)
        if judge is None:
            names = list(judgments.details.get("judge", names))
        blank = sum(name is None or not str(name).strip() for name in names)
        if blank or judge == "":
            of = "these labels" if blank == len(names) else f"{blank:,} of {len(names):,} labels"
            raise InputError(f"{of} do not say who gave them", hint="name the judge: --judge NAME")
        by_judge: dict[str, list[int]] = {}
        for at, name in enumerate(names):
            by_judge.setdefault(str(name), []).append(at)
        added = 0
        for name, rows in by_judge.items():
            added += self._add_of(name, judgments, rows)
        return added

    def _add_of(self, name: str, judgments: Judgments, rows: Sequence[int]) -> int:
        if name.startswith(HUMAN):
            number = self.person(name.removeprefix(HUMAN))
        else:
            identity = {"judge": "imported", "name": name}
            number = self._enter(name, digest("imported", name), identity)
        known = {(v.query_id, v.doc_id): (v.grade, v.status) for v in self.votes(number)}
        votes = [
            v
            for v in _votes_of(judgments, rows)
            if known.get((v.query_id, v.doc_id)) != (v.grade, v.status)
        ]
        with self._transaction() as run:
            for vote in votes:
                _add_vote(run, number, vote)
        return len(votes)

    def _number(self, judge: str | int | None) -> int:
        with self._reading() as run:
            found = run("SELECT id, name FROM judges ORDER BY id").fetchall()
        fitting = [n for n, name in found if judge is None or judge in (name, n)]
        if len(fitting) == 1:
            return int(fitting[0])
        names = ", ".join(f"{n}: {name}" for n, name in found)
        if not found:
            raise InputError(f"{self.path} holds no labels yet")
        if not fitting:
            raise InputError(f"{self.path} has no judge {judge!r}; it has {names}")
        raise InputError(
            f"{self.path} holds labels of several judges{f' called {judge!r}' if judge else ''}",
            hint=f"choose one by name or number: {names}",
        )

    # -- transactions ---------------------------------------------------------------------------

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """SQLite's errors as ours, in words that say what to do."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise _fault(self.path, error, self.read_only) from error

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._lock, self._faults():
            yield self._connection.execute

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        """Everything inside is written, or nothing."""
        with self._lock, self._faults():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _give_sign(self, run: Run) -> None:
        place, started = _here()
        run(
            "INSERT OR REPLACE INTO owners(token, place, pid, started, sign)"
            " VALUES (?, ?, ?, ?, ?)",
            (self.token, place, os.getpid(), started, time.time()),
        )
        self._enlisted, self._sign = True, time.time()

    def _bury_the_dead(self, run: Run) -> None:
        """Void the claims of processes that are gone."""
        place, _ = _here()
        for token, where, pid, started, sign in run("SELECT * FROM owners").fetchall():
            if where == place:
                dead = token != self.token and _started(pid) != started
            else:
                dead = time.time() - sign > _DEAD_AFTER_SECONDS
            if dead:
                run("DELETE FROM claims WHERE owner=?", (token,))
                run("DELETE FROM owners WHERE token=?", (token,))


#: Runs one statement.
Run = Callable[..., sqlite3.Cursor]

_COLUMNS = (
    "query_id", "doc_id", "grade", "judge", "reason", "status", "time", "cost", "confidence",
    "probability", "origin", "flags",
)  # fmt: skip
_STATUSES = {status.value: status for status in Status}
#: Shared by the keys that were tried once, which most were.
_ONCE: dict[str, Mapping[str, int]] = {status.value: {status.value: 1} for status in Status}
_ADD_ANSWER = (
    "INSERT INTO answers(judge, key, query_id, doc_id, call, time, status, grade, reason,"
    " confidence, final, flags, probability, kind, seconds)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _answer_row(judge: int, answer: Answer, call: int | None, now: float) -> tuple[Any, ...]:
    question = answer.question
    flags = json.dumps(answer.flags) if answer.flags else "[]"
    return (
        judge, question.key, question.query_id, question.doc_id, call, now, answer.status.value,
        answer.grade, answer.reason, answer.confidence, int(answer.final), flags, None, "label",
        None,
    )  # fmt: skip


def _add_vote(run: Run, judge: int, vote: Vote) -> int:
    key = digest("vote", repr(vote.query_id), repr(vote.doc_id), str(vote.repeat))[:16]
    run(
        "INSERT OR IGNORE INTO pairs(judge, query_id, doc_id, repeat, key) VALUES (?, ?, ?, ?, ?)",
        (judge, vote.query_id, vote.doc_id, vote.repeat, key),
    )
    added = run(_ADD_ANSWER, (
        judge, key, vote.query_id, vote.doc_id, None, time.time(), vote.status.value, vote.grade,
        vote.reason, vote.confidence, 1, "[]", vote.probability, vote.kind, vote.seconds,
    ))  # fmt: skip
    return int(added.lastrowid or 0)


def _votes_of(judgments: Judgments, rows: Sequence[int]) -> Iterator[Vote]:
    details = judgments.details
    for at in rows:
        grade = float(judgments.grades[at])
        lacks = np.isnan(grade)
        status = str(details["status"][at]) if "status" in details and lacks else ""
        yield Vote(
            _plain_id(judgments.queries[at]),
            _plain_id(judgments.documents[at]),
            None if lacks else grade,
            _STATUSES.get(status, Status.SKIPPED) if lacks else Status.SETTLED,
            str(details["reason"][at] or "") if "reason" in details else "",
            probability=_number_in(details, "probability", at),
            confidence=_number_in(details, "confidence", at),
        )


def _number_in(details: Mapping[str, Any], column: str, at: int) -> float | None:
    value = details[column][at] if column in details else None
    return None if value is None or np.isnan(value) else float(value)


def _plain_id(value: Any) -> str | int:
    return value if isinstance(value, str) else int(value)


def _judgments_of(rows: Sequence[tuple[Any, ...]], name: str) -> Judgments:
    columns: dict[str, list[Any]] = {
        column: [row[at] for row in rows] for at, column in enumerate(_COLUMNS)
    }
    origins = [
        None if origin == document else origin
        for origin, document in zip(columns.pop("origin"), columns["doc_id"], strict=True)
    ]
    details: dict[str, Any] = {
        c: np.array(columns[c], dtype=object) for c in ("judge", "reason", "status")
    }
    for column in ("time", "cost", "confidence", "probability"):
        values = np.array(columns[column], dtype=np.float64)
        if column == "time" or not np.isnan(values).all():
            details[column] = values
    if any(origin is not None for origin in origins):
        details["origin"] = np.array(
            [None if origin is None else str(origin) for origin in origins], dtype=object
        )
    if any(flags != "[]" for flags in columns["flags"]):
        details["flags"] = np.array(
            ["; ".join(json.loads(flags)) for flags in columns["flags"]], dtype=object
        )
    grades = np.array([np.nan if g is None else g for g in columns["grade"]], dtype=np.float64)
    return Judgments.from_arrays(
        columns["query_id"], columns["doc_id"], grades, name=name, **details
    )


def _by_block(run: Run, query: str, judge: int, keys: set[bytes]) -> Iterator[tuple[Any, ...]]:
    """Rows of a query on a judge for these keys: by the index, or all rows where that is less."""
    total = run("SELECT count(*) FROM answers WHERE judge=?", (judge,)).fetchone()[0]
    if len(keys) * 4 > total:
        yield from (row for row in run(query, (judge,)) if row[0] in keys)
        return
    listed = list(keys)
    for start in range(0, len(listed), _BLOCK):
        block = listed[start : start + _BLOCK]
        yield from run(f"{query} AND key IN ({','.join('?' * len(block))})", (judge, *block))


def _here() -> tuple[str, str]:
    """Where this process runs, so that its number means something there, and since when."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}", _started(os.getpid())


def _started(pid: int) -> str:
    """When the process started, in the system's own unit; "" when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return ""
    try:
        os.kill(pid, 0)  # no /proc here: that the number is in use must do
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"


def _fault(path: Path, error: sqlite3.DatabaseError, read_only: bool) -> LedgerFault:
    text = str(error)
    if read_only and "unable to open" in text:
        return LedgerFault(f"{path} cannot be read: {text}")
    if "full" in text:
        return LedgerFault(
            f"the disk is full: {path} takes no more labels",
            hint="everything recorded so far is kept; free some space and run the same again",
        )
    if "readonly" in text or "unable to open" in text:
        return LedgerFault(
            f"{path} cannot be written",
            hint="the ledger and its folder must be writable; what it holds is untouched",
        )
    if "not a database" in text or "malformed" in text:
        return LedgerFault(f"{path} is no ledger: {text}", hint="name another file")
    if "locked" in text:
        return LedgerFault(
            f"{path} is kept locked by another process", hint="end it, or wait, and run again"
        )
    return LedgerFault(f"{path}: {text}")
