"""A file of vectors that were made before, by embedder and text."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cache"]

_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"
_FEW = 500


class Cache:
    """Vectors by a hash of the embedder's identity and the text; a context manager.

    path: an SQLite file, made where there is none; None keeps nothing. Each batch is kept as soon
    as it is there. Several programs may use one file.

    Raises InputError when the file is no cache of ours, or cannot be written.
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, Any]) -> None:
        self._path = path
        self._who = json.dumps(identity, sort_keys=True, default=str).encode()
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = sqlite3.connect(self._path, timeout=60, check_same_thread=False)
                self._file.execute("PRAGMA journal_mode=WAL")
                self._file.execute(_TABLE)
                self._file.execute("SELECT key, vector FROM vectors LIMIT 0")
            except sqlite3.Error as error:
                raise self._fault(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def find(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of those texts that are kept."""
        found: dict[str, NDArray[np.float32]] = {}
        if self._file is None:
            return found
        keys = {self._key(text): text for text in texts}
        listed = list(keys)
        for at in range(0, len(listed), _FEW):
            few = listed[at : at + _FEW]
            marks = ",".join("?" * len(few))
            try:
                rows = self._file.execute(
                    f"SELECT key, vector FROM vectors WHERE key IN ({marks})", few
                ).fetchall()
            except sqlite3.Error as error:
                raise self._fault(error) from error
            for key, vector in rows:
                found[keys[bytes(key)]] = np.frombuffer(vector, dtype="<f4").astype(np.float32)
        return found

    def keep(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep these vectors, in one transaction."""
        if self._file is None:
            return
        rows = [
            (self._key(text), vector.astype("<f4").tobytes())
            for text, vector in zip(texts, vectors, strict=True)
        ]
        try:
            with self._lock, self._file:
                self._file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(self._who + b"\0" + text.encode("utf-8", "surrogatepass")).digest()

    def _fault(self, error: sqlite3.Error) -> InputError:
        return InputError(
            f"{self._path}: cannot be used to keep vectors: {error}",
            hint="name another file, which will be made, or none",
        )
