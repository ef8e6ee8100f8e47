"""What tables in a file share, whose database runs in this process and compares every row."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semrecall.errors import InputError, SystemFault
from semrecall.systems.base import Knob
from semrecall.systems.sql import NO_CONDITION, Condition, TableSystem

if TYPE_CHECKING:
    pass

__all__ = ["TableFileSystem"]


class TableFileSystem(TableSystem):
    """A table in a file, which is opened for reading only, or built in memory."""

    _connection: Any = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = threading.RLock()
        self._file = None if self.url is None else Path(self.url.partition("://")[2])

    @abstractmethod
    def _connect(self, file: str, *, writing: bool) -> Any:
        """A connection to a file, ":memory:" included."""

    @property
    def named(self) -> str:
        """The table in a file, which is "docs" where the spec names none."""
        return "" if self._file is None else self.collection or "docs"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """There is nothing to turn: the search is exact."""
        return ()

    @property
    def _missing(self) -> bool:
        """Whether there is no file yet, which a look at it would make."""
        return self._connection is None and self._file is not None and not self._file.exists()

    def _take_name(self) -> None:
        super()._take_name()
        self._lock, self._connection = threading.RLock(), None

    @contextmanager
    def _building(self) -> Iterator[None]:
        """In one transaction: a table that is replaced is there until the new one is complete.

        A file that there was not is not there either when this fails.
        """
        new = self._missing
        try:
            self._connection = self._opened(str(self._file or ":memory:"), writing=True)
            with self._asking() as connection:
                connection.execute("BEGIN")
                yield
                connection.execute("COMMIT")
        except BaseException:
            self.close()
            if new:
                for more in ("", ".wal", "-journal"):
                    Path(f"{self._file}{more}").unlink(missing_ok=True)
            raise
        if self._file is not None:
            self.close()

    def _refuse_existing(self) -> None:
        try:
            super()._refuse_existing()
        finally:
            # One process cannot have a file open for reading only and for writing.
            if self._file is not None:
                self.close()

    def close(self) -> None:
        """Close the file; what was built in memory is gone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self, file: str, *, writing: bool) -> Any:
        try:
            return self._connect(file, writing=writing)
        except self._failures() as error:
            said, hint = _first(error), self._hint(error, _first(error))
            if file != ":memory:" and not Path(file).exists():
                folder = Path(file).parent
                hint = f"the directory {folder} does not exist"
                hint = "there is no such file" if folder.is_dir() else hint
            hint = hint or f"is it a file of {self.title}?"
            raise InputError(f"{self.title} cannot open {file}: {said}", hint=hint) from error

    @contextmanager
    def _asking(self, condition: Condition = NO_CONDITION) -> Iterator[Any]:
        """The connection, for one at a time, and errors of the database as ours."""
        with self._lock:
            if self._connection is None:
                if self._file is None:
                    raise InputError(
                        f"the system {self._title!r} is empty: a database in memory",
                        hint=f"call build(base, space) first, or name a file: {self.engine}://FILE",
                    )
                self._connection = self._opened(str(self._file), writing=False)
            try:
                yield self._connection
            except self._failures() as error:
                said = _first(error)
                if condition.text:
                    raise InputError(f"the filter {condition.text!r}: {said}") from error
                hint = self._hint(error, said)
                raise SystemFault(f"{self.title} failed: {said}", hint=hint) from error

    def _fetch(
        self, statement: str, given: Sequence[Any] = (), condition: Condition = NO_CONDITION
    ) -> list[Any]:
        with self._asking(condition) as connection:
            return list(connection.execute(statement, given).fetchall())


def _first(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
