"""What was found so far, kept in a file, so that a long search goes on after a crash."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from semrecall.errors import FormatError, MismatchError
from semrecall.exact.answer import Answer, Sample
from semrecall.formats import writing

__all__ = ["EVERY_SECONDS", "Checkpoint", "Ranges"]

#: Stretches of rows: first row, and the row after the last.
Ranges = list[tuple[int, int]]

_VERSION = 1
#: So often the file is written.
EVERY_SECONDS = 30.0
_ARRAYS = ("offsets", "rows", "scores", "cut", "left_out", "zero")


class Checkpoint:
    """A file that is written now and then, whole or not at all.

    signature: what the search is of, in words. Another search does not go on from here.
    """

    def __init__(self, path: Path | str, signature: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._signature = {"layout": _VERSION, **signature}
        self._last = time.monotonic()

    def load(self) -> tuple[Answer, Ranges] | None:
        """The answer so far and the rows it is over; None where there is no file.

        Raises MismatchError where it is of another search, FormatError where it is no checkpoint.
        """
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                told = json.loads(file["told"].tobytes())
                arrays = {name: file[name] for name in _ARRAYS}
                sample = Sample(file["sample_rows"], file["sample_values"])
            signature, done = told["signature"], told["done"]
        except (ValueError, KeyError, EOFError, OSError, BadZipFile) as error:
            raise FormatError(
                f"{self.path}: is no checkpoint, or is damaged ({error})",
                hint="remove it to start anew",
            ) from error
        self._compare(signature)
        answer = Answer(
            **arrays, order=None, norm=told["norm"], sample=sample, seconds=told["seconds"]
        )
        return answer, [(low, high) for low, high in done]

    def _compare(self, signature: Mapping[str, Any]) -> None:
        now = json.loads(json.dumps(self._signature))
        if signature == now:
            return
        names = [n for n in now if now[n] != signature.get(n)] or list(
            signature.keys() - now.keys()
        )
        told = [
            f"{name} {signature.get(name)}, now {now.get(name)}"
            if isinstance(now.get(name), int | str) and len(str(now[name])) < 32
            else f"other {name}"
            for name in names
        ]
        raise MismatchError(
            f"{self.path} is a checkpoint of another search: {'; '.join(told)}",
            hint="remove it to start anew, or write to another -o",
        )

    @property
    def due(self) -> bool:
        """Whether the file was not written for long."""
        return time.monotonic() - self._last >= EVERY_SECONDS

    def save(self, answer: Answer, done: Sequence[tuple[int, int]]) -> None:
        """Write the answer over these rows. Raises OSError, naming the file, on a full disk."""
        told = {
            "signature": self._signature,
            "done": list(done),
            "norm": answer.norm,
            "seconds": answer.seconds,
        }
        arrays = {name: getattr(answer, name) for name in _ARRAYS}
        with writing(self.path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                allow_pickle=False,
                told=np.frombuffer(json.dumps(told).encode(), np.uint8),
                sample_rows=answer.sample.rows,
                sample_values=answer.sample.values,
                **arrays,
            )
        self._last = time.monotonic()
