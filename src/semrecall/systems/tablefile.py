"""What tables in a file share, whose database runs in this process and compares every row."""

from __future__ import annotations

import copy
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from semrecall.data import Vectors
from semrecall.errors import InputError
from semrecall.systems.base import Knob
from semrecall.systems.sql import TableSystem

if TYPE_CHECKING:
    from semrecall.space import Space

__all__ = ["TableFileSystem", "where_is"]


class TableFileSystem(TableSystem):
    """A table in a file, which is opened for reading only, or built in memory."""

    #: What the database is called in specs.
    engine: ClassVar[str]

    _connection: Any = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._file = None if self.url is None else Path(self.url.partition("://")[2])

    @abstractmethod
    def _open(self, file: str, *, writing: bool) -> Any:
        """A connection to a file, ":memory:" included; InputError where there can be none."""

    @abstractmethod
    def _fill(self, base: Vectors, space: Space) -> None:
        """Make the table, in one transaction, over one of its name."""

    @property
    def named(self) -> str:
        """The table in a file, which is "docs" where the spec names none."""
        return "" if self._file is None else self.table or "docs"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """There is nothing to turn: the search is exact."""
        return ()

    @property
    def _missing(self) -> bool:
        """Whether there is no file yet, which a look at it would make."""
        return self._connection is None and self._file is not None and not self._file.exists()

    def describe(self) -> dict[str, Any]:
        """What it is, its size, and how it was built."""
        table = self._held()
        return {
            "system": self.engine,
            "table": table.name,
            "exact": True,
            "space": self.space.name,
            "rows": table.rows,
            "dimension": table.dimension,
            **self._made,
        }

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """A new table of these vectors, as float32, with columns id and embedding.

        InputError for a table that exists, unless the spec says replace=true. A file that there
        was not is not there either when this fails.
        """
        self.turned("build", knobs)
        geometry, vectors = self._space_to_build(space), Vectors.of(base, ids=ids)
        if self._file is not None:
            try:
                self._refuse_existing()
            finally:
                # One process cannot have a file open for reading only and for writing.
                self.close()
        made = copy.copy(self)
        made._lock, made._known, made.replace = threading.RLock(), None, False
        started, new = time.perf_counter(), self._missing
        made.table, made.wanted_space = self.table or "docs", geometry
        made.column, made.id = self.column or "embedding", self.id or "id"
        made._connection = None
        try:
            made._connection = self._open(str(self._file or ":memory:"), writing=True)
            made._fill(vectors, geometry)
        except BaseException:
            made.close()
            if new:
                for more in ("", ".wal", "-journal"):
                    Path(f"{self._file}{more}").unlink(missing_ok=True)
            raise
        if self._file is not None:
            made.close()
        made._made = {"build_seconds": time.perf_counter() - started}
        return made

    def close(self) -> None:
        """Close the file; what was built in memory is gone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """The connection, for one at a time."""
        with self._lock:
            if self._connection is None:
                if self._file is None:
                    raise InputError(
                        f"the system {self._title!r} is empty: a database in memory",
                        hint=f"call build(base, space) first, or name a file: {self.engine}://FILE",
                    )
                self._connection = self._open(str(self._file), writing=False)
            yield self._connection


def where_is(file: str, otherwise: str) -> str:
    """Why a file cannot be opened, as far as a look at it tells; else what was said."""
    if file == ":memory:" or Path(file).exists():
        return otherwise
    folder = Path(file).parent
    return "there is no such file" if folder.is_dir() else f"the directory {folder} does not exist"
