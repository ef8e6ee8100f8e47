"""PostgreSQL as pgvector needs it: a connection with deadlines, its errors, binary vectors."""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from semrecall.errors import InputError, SemrecallError, SystemFault
from semrecall.registry import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Plan", "Postgres", "read_vectors", "sent_vectors"]

#: Beyond its own deadline the server gets this long to say so.
_GRACE_SECONDS = 5.0
_CONNECT_SECONDS = 10
_QUIET = logging.NullHandler()
#: A server that is gone is noticed in about a minute, also where nothing is sent.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class Postgres:
    """One connection, opened when it is needed, and again after it was lost.

    url: as `postgresql://user@host:port/database`, under any scheme; None for what the
        environment says (PGHOST, PGDATABASE, ...). A password stands in the environment or in
        ~/.pgpass, never here.
    timeout: seconds that one statement may take.
    given: more parameters of libpq, e.g. sslmode.
    """

    def __init__(self, url: str | None, timeout: float, given: Mapping[str, str]) -> None:
        rest = "" if url is None else url.partition("://")[2]
        if urlsplit(f"postgresql://{rest}").password is not None:
            raise InputError(
                "the address of the database holds a password, which would be recorded with it",
                hint="leave it out, and put it into PGPASSWORD or ~/.pgpass",
            )
        self.timeout = timeout
        self.notices: list[str] = []
        self._address, self._given = f"postgresql://{rest}", dict(given)
        self._connection: Any = None
        self._watch: _Watch | None = None
        self._lock = threading.RLock()

    @property
    def place(self) -> str:
        """Where it is, in words."""
        parts = urlsplit(self._address)
        database = parts.path.strip("/") or os.environ.get("PGDATABASE") or "the default"
        host = parts.hostname or self._given.get("host") or os.environ.get("PGHOST")
        if host is None:
            return f"the database {database!r} of this machine"
        return f"the database {database!r} at {host}" + (f":{parts.port}" if parts.port else "")

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            if self._watch is not None:
                self._watch.stop()
            if self._connection is not None:
                self._connection.close()
            self._connection = self._watch = None

    @contextmanager
    def session(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        doing: str = "a search",
        writing: bool = False,
        limited: bool = True,
        pipelined: bool = False,
    ) -> Iterator[Any]:
        """A transaction in which these settings hold, and no longer; errors are ours.

        doing: what the transaction is for, in errors. writing: whether it may change anything.
        limited: whether each statement has a deadline. pipelined: whether statements are sent
        without waiting for the answers of those before.
        """
        psycopg, before = _psycopg(), sys.exception()
        local = {"statement_timeout": f"{math.ceil(1000 * self.timeout) if limited else 0}"}
        if not writing:
            local["transaction_read_only"] = "on"
        local |= settings or {}
        calls = ", ".join(["set_config(%s, %s, true)"] * len(local))
        values = [text for pair in local.items() for text in pair]
        with self._lock:
            connection = self._opened()
            assert self._watch is not None
            try:
                with (
                    self._watch.until(self.timeout if limited else math.inf),
                    connection.pipeline() if pipelined else nullcontext(),
                    connection.transaction(),
                ):
                    connection.execute(f"SELECT {calls}", values)
                    yield connection
            except Exception as error:
                if _interrupted(error, before):
                    connection.close()
                    raise KeyboardInterrupt from error
                if isinstance(error, psycopg.Error):
                    raise self._explained(error, doing) from error
                raise
            except BaseException:
                # What is still on its way would be taken for the answer to the next question.
                connection.close()
                raise
            finally:
                if connection.closed:
                    self.close()

    def answered(self) -> None:
        """Within a session: the next answer has the whole time again."""
        if self._watch is not None:
            self._watch.again()

    def _opened(self) -> Any:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        psycopg = _psycopg()
        given = {"connect_timeout": _CONNECT_SECONDS, "application_name": "semrecall"}
        try:
            # A prepared plan would outlive the settings it was made under.
            connection = psycopg.connect(
                self._address,
                autocommit=True,
                prepare_threshold=None,
                **{**given, **_KEEPALIVES, **self._given},
            )
            connection.add_notice_handler(self._note)
            # The settings of pgvector exist once its library is loaded, by the first vector.
            found = connection.execute("SELECT to_regtype('vector')::oid").fetchone()[0]
            if found is not None:
                connection.execute("SELECT '[1]'::vector")
                _teach(psycopg, connection, found)
        except psycopg.Error as error:
            raise self._unreachable(error) from error
        self._connection, self._watch = connection, _Watch(connection)
        return connection

    def _note(self, diagnostic: Any) -> None:
        if diagnostic.sqlstate == "00000" and "skipping" in (diagnostic.message_primary or ""):
            return  # of DROP TABLE IF EXISTS
        detail = f"; {diagnostic.message_detail}" if diagnostic.message_detail else ""
        self.notices.append(f"{diagnostic.message_primary}{detail}")

    def _unreachable(self, error: Any) -> SystemFault:
        text = _reason(str(error))
        hints = {
            "no password supplied": "put it into PGPASSWORD or ~/.pgpass",
            "password authentication failed": "is PGPASSWORD, or the line of ~/.pgpass, right?",
            "no pg_hba.conf entry": "the server does not let this user in from here",
            "does not exist": "are the user and the database right?",
            "refused": "is the server running, and is this its port?",
            "No such file": "is the server running? For TCP name a host: pgvector://HOST/DATABASE",
            "starting up": "try again in a moment",
            "shutting down": "is the server running? It was just ending",
            "closed the connection": "is the server running? It was just ending, or let nobody in",
            "timeout": "is the address right, and is a firewall in between?",
        }
        hint = next((said for part, said in hints.items() if part in text), None)
        return SystemFault(f"cannot connect to {self.place}: {text}", hint=hint)

    def _explained(self, error: Any, doing: str) -> SemrecallError:
        """An error of PostgreSQL as ours."""
        state = getattr(error, "sqlstate", None) or ""
        text = getattr(error.diag, "message_primary", None) or _reason(str(error))
        if self._watch is not None and self._watch.fired:
            return SystemFault(
                f"{doing} has no answer after {self.timeout:g} s, from {self.place}",
                hint="is the server alive? The connection was given up",
            )
        if state == "57014":
            return SystemFault(
                f"{doing} took longer than {self.timeout:g} s: {text}",
                hint="allow more with timeout=SECONDS in the spec",
            )
        lost = isinstance(error, _psycopg().OperationalError | _psycopg().InterfaceError)
        if (lost and not state) or state.startswith(("08", "57P")):
            return SystemFault(
                f"the connection to {self.place} was lost during {doing}: {text}",
                hint="is the server running? The next call connects anew",
            )
        if state == "42501":
            return SystemFault(
                f"PostgreSQL refuses {doing}: {text}",
                hint="use a role that may SELECT from the table, and for a build one that may "
                "CREATE in the schema",
            )
        if state.startswith("53"):
            return SystemFault(
                f"PostgreSQL ran out of something during {doing}: {text}",
                hint="of disk, memory or connections; nothing of it was kept",
            )
        # Without a state it is psycopg that refuses, e.g. a placeholder without a value.
        wrong = not state or state.startswith(("22", "42", "54", "0A", "25006"))
        known = InputError if wrong else SystemFault
        hint = getattr(error.diag, "message_hint", None)
        return known(f"PostgreSQL refuses {doing}: {text}", hint=hint)


class _Watch:
    """Cuts a connection whose server does not even answer that the time is up."""

    def __init__(self, connection: Any) -> None:
        self.fired = False
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._due = self._seconds = math.inf
        self._stopped = threading.Event()
        # One thread for all searches: starting one takes as long as a fast search.
        threading.Thread(target=self._run, name="semrecall-watch", daemon=True).start()

    @contextmanager
    def until(self, seconds: float) -> Iterator[None]:
        """Within: so long, and some grace, from here."""
        self._seconds = seconds + _GRACE_SECONDS
        self.again()
        try:
            yield
        finally:
            self._due = math.inf

    def again(self) -> None:
        """The time starts anew."""
        self._due = time.monotonic() + self._seconds

    def stop(self) -> None:
        """There is nothing to watch any more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(0.5):
            if time.monotonic() > self._due:
                self.fired = True
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                break
        self._stopped.wait()
        self._socket.close()


@dataclass(frozen=True)
class Plan:
    """How PostgreSQL answers a statement, from EXPLAIN (FORMAT JSON)."""

    nodes: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, explained: Any) -> Plan:
        """The plan in the answer to EXPLAIN."""
        nodes: list[Mapping[str, Any]] = []
        waiting = [explained[0]["Plan"]]
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            waiting += node.get("Plans", [])
        return cls(tuple(nodes))

    @property
    def ordering_indexes(self) -> set[str]:
        """Indexes that are read in order of the distance."""
        return {n["Index Name"] for n in self.nodes if "Index Name" in n and "Order By" in n}

    @property
    def scans(self) -> list[str]:
        """How tables are read, e.g. "Seq Scan"."""
        kinds = [n["Node Type"] for n in self.nodes]
        return [kind for kind in kinds if "Scan" in kind and kind != "Subquery Scan"]

    @property
    def blocks(self) -> int:
        """Blocks touched, in the cache or not; of EXPLAIN (ANALYZE, BUFFERS)."""
        top = self.nodes[0]
        kinds = ("Shared Hit", "Shared Read", "Local Hit", "Local Read")
        return sum(int(top.get(f"{kind} Blocks", 0)) for kind in kinds)


class _Sent:
    """A vector on its way to the server, as bytes."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def sent_vectors(rows: NDArray[np.float32]) -> Iterator[Any]:
    """Rows (n, d) as values of the type vector, to the bit."""
    head = np.array([rows.shape[1], 0], dtype=">i2").tobytes()
    return (_Sent(head + row.tobytes()) for row in rows.astype(">f4"))


def read_vectors(sent: Sequence[bytes], dimension: int, kind: str) -> NDArray[Any]:
    """Vectors (n, d) in binary form, to the bit. kind: "vector", or "halfvec" for half floats."""
    number = "f4" if kind == "vector" else "f2"
    record = [("width", ">i2"), ("unused", ">i2"), ("v", f">{number}", (dimension,))]
    read = np.frombuffer(b"".join(sent), dtype=record)
    if len(read) != len(sent) or not (read["width"] == dimension).all():
        raise SystemFault("PostgreSQL sent vectors of other dimensions than asked for")
    return read["v"].astype(number)


def _interrupted(error: BaseException | None, before: BaseException | None) -> bool:
    """Whether an error is what an interrupt became on its way out; before: what was handled."""
    while error is not None and error is not before:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _teach(psycopg: Any, connection: Any, oid: int) -> None:
    """Let a connection send vectors in binary form."""
    dumper = type(
        "_VectorDumper",
        (psycopg.adapt.Dumper,),
        {
            "format": psycopg.pq.Format.BINARY,
            "oid": oid,
            "dump": staticmethod(lambda sent: sent.data),
        },
    )
    connection.adapters.register_dumper(_Sent, dumper)


def _reason(text: str) -> str:
    """The first line of what libpq says, without what it repeats."""
    line = next(iter(text.strip().splitlines()), "no reason given")
    return re.sub(
        r"^connection failed: |connection to server (at|on) .*? failed: |FATAL: +", "", line
    )


def _psycopg() -> Any:
    # What it logs of a lost connection is told as an error.
    logging.getLogger("psycopg").addHandler(_QUIET)
    return import_extra("psycopg", "pgvector", "searching PostgreSQL")
