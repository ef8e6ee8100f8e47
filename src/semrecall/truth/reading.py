"""Reading ahead: while one block is computed with, a thread reads the next."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.truth.shards import Shards

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Ahead"]

_BUFFERS = 2


class Ahead:
    """The rows of a base from `start` to `stop` in blocks of `rows`, read by a thread.

    A block is valid until the next one is asked for: its memory is filled again. `waited_seconds`
    counts the time that nothing could be done but wait for the reader.
    """

    def __init__(self, shards: Shards, start: int, stop: int, rows: int) -> None:
        self._shards, self._start, self._stop = shards, start, stop
        self._rows = min(rows, stop - start)
        self._free: queue.Queue[NDArray[Any] | None] = queue.Queue()
        self._full: queue.Queue[tuple[NDArray[Any], int] | BaseException | None] = queue.Queue()
        self.waited_seconds = 0.0

    def __iter__(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """(first row, block), one after another."""
        if self._stop <= self._start:
            return
        shape = (self._rows, self._shards.dimension)
        for _ in range(min(_BUFFERS, -(-(self._stop - self._start) // self._rows))):
            self._free.put(np.empty(shape, self._shards.dtype))
        reader = threading.Thread(target=self._read, name="semrecall-reader", daemon=True)
        reader.start()
        at = self._start
        try:
            while (block := self._next()) is not None:
                buffer, count = block
                yield at, buffer[:count]
                at += count
                self._free.put(buffer)
        finally:
            self._free.put(None)
            reader.join(timeout=5.0)

    def _next(self) -> tuple[NDArray[Any], int] | None:
        begun = time.perf_counter()
        while True:
            try:
                # A short wait at a time leaves room for Ctrl-C on every platform.
                block = self._full.get(timeout=1.0)
                break
            except queue.Empty:
                continue
        self.waited_seconds += time.perf_counter() - begun
        if isinstance(block, BaseException):
            raise block
        return block

    def _read(self) -> None:
        try:
            buffer, count = self._free.get(), 0
            for piece in self._shards.pieces(self._start, self._stop):
                taken = 0
                while taken < len(piece):
                    if buffer is None:
                        return  # nobody wants more
                    part = piece[taken : taken + self._rows - count]
                    buffer[count : count + len(part)] = part
                    taken, count = taken + len(part), count + len(part)
                    if count == self._rows:
                        self._full.put((buffer, count))
                        buffer, count = self._free.get(), 0
            if count and buffer is not None:
                self._full.put((buffer, count))
            self._full.put(None)
        except BaseException as error:
            self._full.put(error)
