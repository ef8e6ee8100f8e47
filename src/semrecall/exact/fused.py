"""Screening by products of bytes, where the processor has them and numba is installed.

One compiled pass over a block of rows takes the product with all queries, compares its bound
(`quantised.py`) while it is in registers, scores the few pairs above it in float32, and raises the
threshold of a query as soon as k rows are known that reach more. What it leaves is settled like
what any other screen leaves: the answer has the same bits.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semrecall.exact.compiled import compiled, loaded
from semrecall.exact.quantised import MOST_DIMENSIONS, Limits, QuantisedQueries, QuantisedRows
from semrecall.exact.screen import Block
from semrecall.exact.survivors import Survivors, TooMany

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from semrecall.exact.pruned import Pass

__all__ = ["FusedPass", "fused"]

_VALUES = 1 << 19  # in one block of rows: as float32 and as bytes it stays in cache
_FEW, _SHORT = 9, 1700  # so few queries, and so many more of one dimension, do not pay
_LOADING = 6e10  # products in the time that loading takes
_done_without = [0.0]  # in this process
_LEAST = 8
_MOST_PASSING = 0.1
_SEEN = 256, 32  # rows and queries on which that share is seen
_SEEDED = 256  # queries whose thresholds are seeded at a time


def fused(work: Pass, queries: int, threads: int) -> FusedPass | None:
    """The fused pass for a chunk and a tile; None where there can be none, or it does not pay.

    queries: how many there are in all tiles.
    """
    n, d = work.chunk.shape
    m = len(work.screen.left)
    # Survivors may take half the memory; heaps take an eighth of it at most.
    if not _LEAST <= d <= MOST_DIMENSIONS or threads * m * work.k * 4 > work.most * 12:
        return None
    # Turning rows into bytes takes as long as the product with a few queries, more where rows are
    # short.
    if m < _FEW + _SHORT / d or not _worth_loading(n * m * d / threads, n * queries * d / threads):
        return None
    kernels = compiled()
    if kernels is None:
        return None
    found = FusedPass(work, kernels, threads)
    return found if found.share() <= _MOST_PASSING else None


def _worth_loading(now: float, soon: float) -> bool:
    """Whether the loops are there, or so many products are worth loading them.

    So are many small searches, once they have taken as long together.
    """
    if loaded() is not None or _done_without[0] + soon >= _LOADING:
        return True
    _done_without[0] += now
    return False


class FusedPass:
    """One chunk against one tile of queries, by products of bytes first."""

    def __init__(self, work: Pass, kernels: ModuleType, threads: int) -> None:
        self.work, self.screen, self._kernels = work, work.screen, kernels
        self._dimension = work.chunk.shape[1]
        self._queries = QuantisedQueries(kernels, work.screen, self._dimension)
        # So many rows that they stay in cache, and all pairs of them take a quarter of the memory.
        pairs = work.most * 96 // 4 // 10 // threads
        rows = min(_VALUES // self._dimension, pairs // len(work.screen.left))
        rows = int(np.clip(rows, 96, 2048))
        self._step = rows // kernels.PAD * kernels.PAD
        self._local = threading.local()
        self._rooms: list[_Room] = []

    def run(
        self, before: NDArray[np.float64]
    ) -> tuple[Survivors, NDArray[np.float64], NDArray[np.float64]]:
        """All rows that may reach a threshold, or what it rises to.

        before: a threshold that the k-th neighbours surely reach, -inf where none is known.
        Returns the survivors, the threshold that was guessed, and one that is surely reached.
        """
        n, size = len(self.work.chunk), len(self.work.sample)
        guess = before
        if n > max(4 * self._step, size) and not (
            self.work.start >= n and np.isfinite(before).all()
        ):
            guess = np.maximum(before, self._guess(self.work.k * size / n))
        self._threshold = guess.copy()
        found: list[Survivors] = []
        held = 0
        lows = list(range(0, n, self._step))
        for low, (block, part) in zip(lows, self.work.map(self._scanned, lows), strict=True):
            self.work.report(low / n)
            self.work.norm = max(self.work.norm, block.norm)
            if len(block.unusable):
                self.work.note(replace(block, unusable=block.unusable + low, zero=block.zero + low))
            found.append(part)
            held += len(part.row)
            if held > self.work.most:
                found = [self._kept(found)]
                held = len(found[0].row)
                if held > self.work.most // 2:
                    raise TooMany
        sure = np.max([room.heaps[:, 0] for room in self._rooms], axis=0)
        return self._kept(found), guess, sure - self.screen.error(self.work.norm)

    def _kept(self, found: list[Survivors]) -> Survivors:
        """Those that still reach the threshold."""
        every = Survivors.joined(found)
        reach = self._threshold - self.screen.error(self.work.norm)
        return every.where(every.score >= reach[every.query])

    def share(self) -> float:
        """About the share of pairs that would pass, at most: seen on few rows and few queries.

        It is large where a few values of a row are much larger than all others, so that bytes say
        little of the others.
        """
        block, asked = self.work.sample_block, self._queries
        some = np.unique(np.linspace(0, len(self.work.sample) - 1, _SEEN[0]).astype(np.int64))
        queries = np.unique(np.linspace(0, len(asked.left) - 1, _SEEN[1]).astype(np.int64))
        unusable = np.flatnonzero(np.isin(some, block.unusable))
        rows = QuantisedRows(self._kernels, self._dimension, len(some))
        rows.fill(Block(block.right[:, some], unusable, unusable[:0], block.norm))
        scores = asked.left[queries] @ rows.factor.T
        scores[:, unusable] = -np.inf
        off, length = rows.numbers[: len(some), 1:3].T
        loose = np.outer(asked.inside[queries], off) + np.outer(asked.off[queries], length)
        rank = min(len(some), 1 + int(len(some) * self.work.k / len(self.work.chunk)))
        limit = np.partition(scores, len(some) - rank, axis=1)[:, len(some) - rank, None]
        return float(((scores + loose >= limit) & (scores > -np.inf)).mean())

    def _guess(self, expected: float) -> NDArray[np.float64]:
        """What k rows should reach, and a few more, when so many of them are in the sample."""
        rank = int(np.ceil(expected + 4 * np.sqrt(expected) + 2))
        block, size, m = self.work.sample_block, len(self.work.sample), len(self.screen.left)
        rows = QuantisedRows(self._kernels, self._dimension, size)
        rows.fill(block)
        limits = self._queries.limits(np.full(m, -np.inf), block.norm, block.norm)
        heaps = np.full((m, rank), -np.inf, dtype=np.float32)

        def scan(low: int) -> None:
            high = min(low + _SEEDED, self._queries.span)
            room = _Found(self._step, high - low)
            for first in range(0, size, self._step):
                part = rows.part(slice(first, min(first + self._step, size)))
                self._scan(low, high, limits, part, heaps, room)

        for _ in self.work.map(scan, list(range(0, self._queries.span, _SEEDED))):
            pass
        return heaps[:, 0].astype(np.float64)

    def _scanned(self, low: int) -> tuple[Block, Survivors]:
        """What passes of one block of rows."""
        m = len(self._threshold)
        room: _Room | None = getattr(self._local, "room", None)
        if room is None:
            room = self._local.room = _Room(
                QuantisedRows(self._kernels, self._dimension, self._step),
                _Found(self._step, m),
                np.full((m, self.work.k), -np.inf, dtype=np.float32),
            )
            self._rooms.append(room)
        block = self.screen.block(self.work.chunk[low : low + self._step])
        room.rows.fill(block)
        room.norm = max(room.norm, block.norm)
        limits = self._queries.limits(self._threshold, block.norm, room.norm)
        span = self._queries.span
        count = self._scan(0, span, limits, room.rows, room.heaps, room.found)
        # Threads may undo what others raised; any of these thresholds will do.
        sure = room.heaps[:, 0] - self.screen.error(room.norm)
        np.maximum(self._threshold, sure, out=self._threshold)
        return block, room.found.first(count, low)

    def _scan(
        self,
        low: int,
        high: int,
        limits: Limits,
        rows: QuantisedRows,
        heaps: NDArray[np.float32],
        found: _Found,
    ) -> int:
        count: int = self._kernels.scan(
            self._queries.lanes, low, high,
            limits.params, limits.scores, limits.margins, limits.rises,
            rows.values, rows.start, rows.numbers, rows.factor,
            self._queries.left, heaps,
            found.query, found.column, found.score,
        )  # fmt: skip
        return count


class _Found:
    """Room for the pairs that pass of so many rows and queries."""

    def __init__(self, rows: int, queries: int) -> None:
        self.query = np.empty(rows * queries, dtype=np.uint16)
        self.column = np.empty(rows * queries, dtype=np.int32)
        self.score = np.empty(rows * queries, dtype=np.float32)

    def first(self, count: int, low: int) -> Survivors:
        """A copy of the first few, their rows counted from `low`."""
        rows = self.column[:count].astype(np.int64) + low
        return Survivors(self.query[:count].copy(), rows, self.score[:count].copy())


@dataclass
class _Room:
    """What one thread works in; `heaps` holds the k best scores it saw, of rows up to `norm`."""

    rows: QuantisedRows
    found: _Found
    heaps: NDArray[np.float32]
    norm: float = 0.0
