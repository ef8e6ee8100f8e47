"""Screening of few queries, or few rows: all scores are taken, and thresholds are read off them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.exact.compiled import loaded
from semrecall.exact.screen import Block, Screen, rounded_down
from semrecall.exact.survivors import Survivors, TooMany

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

__all__ = ["DirectPass", "Pass", "direct"]

_LOOPS, _BLOCKS = 1 << 24, 1 << 22  # scores, at most
_ROWS = 4096  # in one product, of rows that stay in cache
_STRETCHES = 8  # so many a neighbour that is sought


class Pass(Protocol):
    """What a way of screening needs of the pass over a chunk it belongs to."""

    start: int
    chunk: NDArray[Any]
    screen: Screen
    k: int
    norm: float
    most: int

    def map(self, task: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        """Results in order, computed on every core."""

    def note(self, block: Block) -> None:
        """Remember rows of the chunk without a score."""

    def report(self, share: float) -> None:
        """Tell how far the pass is."""


def direct(work: Pass, threads: int) -> DirectPass | None:
    """The direct pass for a chunk and a tile; None where there are too many scores."""
    chunk = work.chunk
    plain = chunk.dtype == np.float32 and chunk.flags.c_contiguous
    kernels = loaded() if plain else None
    if len(chunk) * len(work.screen.left) > min(_BLOCKS if kernels is None else _LOOPS, work.most):
        return None
    return DirectPass(work, kernels, threads)


class DirectPass:
    """One chunk against one tile of queries, with room for all scores."""

    def __init__(self, work: Pass, kernels: ModuleType | None, threads: int) -> None:
        self.work, self.screen, self._threads = work, work.screen, threads
        self._kernels = kernels
        self._scores = np.empty((len(work.screen.left), len(work.chunk)), dtype=np.float32)

    def run(self, before: NDArray[np.float64]) -> tuple[Survivors, NDArray[np.float64]]:
        """All rows that may be among the k nearest, and what the k-th neighbours surely reach.

        before: what they surely reach by the chunks before, -inf where none is known.
        """
        if self._kernels is None:
            self._by_blocks()
        else:
            self._by_loops(self._kernels)
        error = self.screen.error(self.work.norm)
        known = np.maximum(before, self._reached() - error)
        passing = self._scores >= rounded_down(known - error, self._scores.dtype)[:, None]
        cells = np.flatnonzero(passing)
        if len(cells) > self.work.most:
            raise TooMany
        query, row = np.divmod(cells, len(self.work.chunk))
        return Survivors(query.astype(np.uint16), row, self._scores.reshape(-1)[cells]), known

    def _by_blocks(self) -> None:
        """Scores by matrix products."""
        chunk, scores = self.work.chunk, self._scores

        def scored(low: int) -> Block:
            block = self.screen.block(chunk[low : low + _ROWS])
            np.matmul(self.screen.left, block.right, out=scores[:, low : low + _ROWS])
            return block

        lows = list(range(0, len(chunk), _ROWS))
        for low, block in zip(lows, self.work.map(scored, lows), strict=True):
            self._take(low, block)

    def _by_loops(self, kernels: ModuleType) -> None:
        """Scores by compiled loops, which read each row once."""
        chunk, scores, centre = self.work.chunk, self._scores, self.screen.centre
        squares = np.empty(len(chunk), dtype=np.float32)
        left = np.ascontiguousarray(self.screen.left[:, : chunk.shape[1]])
        step = max(_ROWS, -(-len(chunk) // self._threads))

        def scored(low: int) -> Block:
            part = slice(low, low + step)
            rows = chunk[part]
            kernels.products(rows, centre, left, scores[:, part], squares[part])
            block = self.screen.judged(rows, squares[part])
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                if centre is not None:
                    scores[:, part] -= np.float32(0.5) * squares[part]
                elif self.screen.space.name == "cosine":
                    scores[:, part] *= 1 / np.sqrt(squares[part])
            return block

        lows = list(range(0, len(chunk), step))
        for low, block in zip(lows, self.work.map(scored, lows), strict=True):
            self._take(low, block)

    def _take(self, low: int, block: Block) -> None:
        self.work.report(low / len(self.work.chunk))
        self.work.norm = max(self.work.norm, block.norm)
        if len(block.unusable):
            unusable = block.unusable + low
            self._scores[:, unusable] = -np.inf
            self.work.note(replace(block, unusable=unusable, zero=block.zero + low))

    def _reached(self) -> NDArray[np.float64]:
        """A screen score that k rows reach: the k-th of the largest of many stretches of rows."""
        k, (m, n) = self.work.k, self._scores.shape
        if n < k:
            return np.full(m, -np.inf)
        stretch = max(1, n // (_STRETCHES * k))
        whole = n // stretch * stretch
        largest = self._scores[:, :whole].reshape(m, -1, stretch).max(axis=2)
        at = largest.shape[1] - k
        return np.partition(largest, at, axis=1)[:, at].astype(np.float64)
