"""What files hold, as hashes; a file whose size and time are as before is not read again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from semrecall.formats.files import files_at, write_whole

__all__ = ["UNSEEN", "Contents"]

#: Stands for what is in no file: a database, an address.
UNSEEN = "not seen"
_CACHE = ".hashes.json"
#: A file written so shortly before it was read may be written once more in the same tick.
_SETTLED_NS = 2_000_000_000


class Contents:
    """Hashes of files and folders, kept in a folder from one run to the next."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _CACHE
        self._known: dict[str, list[Any]] = {}
        self._fresh = False
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if isinstance(known, dict):
            self._known = known

    def of(self, path: Any) -> str | None:
        """The hash of a file, a folder, a pattern, or a list of these; None where nothing is.

        UNSEEN for an address or a database.
        """
        if isinstance(path, list | tuple):
            parts = [self.of(part) for part in path]
            if None in parts:
                return None
            return UNSEEN if UNSEEN in parts else _digest(map(str, parts))
        text = str(path)
        if Path(text).is_file():
            return self._of_file(Path(text))
        files = files_at(text)
        if files:
            return _digest(part for one in files for part in (str(one), self._of_file(one)))
        return UNSEEN if "://" in text else None

    def save(self) -> None:
        """Keep what was read; a cache that cannot be written costs time, and nothing else."""
        if not self._fresh:
            return
        known = {path: entry for path, entry in self._known.items() if Path(path).is_file()}
        try:
            write_whole(self._file, json.dumps(known))
        except OSError:
            return

    def _of_file(self, path: Path) -> str:
        state = path.stat()
        mark = [state.st_size, state.st_mtime_ns, state.st_ino]
        name = str(path.absolute())
        known = self._known.get(name)
        if known is not None and known[:3] == mark:
            return str(known[3])
        with path.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
        if _now_ns(path) - state.st_mtime_ns > _SETTLED_NS:
            self._known[name] = [*mark, digest]
            self._fresh = True
        return digest


def _now_ns(path: Path) -> int:
    import time

    return time.time_ns()


def _digest(parts: Any) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
