"""One chunk of the base against one tile of queries: guess, screen, verify, settle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.exact.device import Device
from semrecall.exact.direct import direct
from semrecall.exact.filters import Filter
from semrecall.exact.fused import fused
from semrecall.exact.pruned import Shortcut
from semrecall.exact.screen import Block, Screen, rounded_down
from semrecall.exact.settle import (
    Best,
    RowIds,
    exact_pair_scores,
    merge_all,
    shorten,
)
from semrecall.exact.survivors import Survivors, TooMany
from semrecall.space import Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ChunkPass", "TooMany"]

_GROUP = 1024  # queries in one product
_CELLS = 1 << 19  # scores in one product: 2 MiB, which stays in cache
_CENTRE = 256  # rows whose mean l2 moves to the origin
_SETTLED = 4096  # pairs settled at a time, about


class Search(Protocol):
    """What a pass needs of the search it belongs to."""

    space: Space
    k: int
    filter: Filter | None
    memory: int
    norm: float
    best: list[Best]
    usable: NDArray[np.int64]
    usable_queries: NDArray[Any]
    row_ids: RowIds | None
    most_ties: int
    shortcut: Shortcut
    device: Device | None

    def map(self, task: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        """Results in order, computed on every core."""

    def note(self, start: int, block: Block) -> None:
        """Remember rows without a score."""

    def report(self, start: int, rows: int, tile: slice, share: float) -> None:
        """Tell how far the search is."""

    def timed(self, part: str) -> AbstractContextManager[None]:
        """Add the time until the end to what was spent on a part of the work."""


class ChunkPass:
    """One chunk against one tile of queries."""

    def __init__(
        self,
        search: Search,
        start: int,
        chunk: NDArray[Any],
        tile: slice,
        dtype: np.dtype[Any],
    ) -> None:
        self.search, self.start, self.chunk, self.tile = search, start, chunk, tile
        self.queries = search.usable_queries[tile]
        self.numbers = search.usable[tile]
        self.k = search.k
        centre = None
        if search.space.name == "l2":
            few = chunk[self.sample_rows[:: -(-len(self.sample_rows) // _CENTRE)]]
            usable = few[np.isfinite(few).all(axis=1)].astype(np.float64)
            centre = usable.mean(axis=0) if len(usable) else np.zeros(chunk.shape[1])
        self.screen = Screen(search.space, self.queries, centre, dtype)
        self.norm = 0.0
        # An entry of Survivors takes about 16 bytes, and twice that while it is sorted.
        self.most = max(search.memory // 2 // 48, 1 << 15)

    def run(self) -> None:
        """Screen, verify, settle."""
        before = self._known()
        with self.search.timed("screening"):
            found, guess, known = self._found(before)
            error = self.screen.error(self.norm)
            above = found.query[found.score >= (guess + error)[found.query]]
            sure = np.bincount(above, minlength=len(self.queries))
            failed = np.flatnonzero((sure < self._possible()) & (guess > known))
            if len(failed):
                again = self._screen(failed, np.maximum(known[failed], self._certain(failed)))
                found = Survivors.joined([found.where(~np.isin(found.query, failed)), again])
        with self.search.timed("settling"):
            self._settle(found, before)
        self.search.norm = max(self.search.norm, self.norm)

    def _found(
        self, before: NDArray[np.float64]
    ) -> tuple[Survivors, NDArray[np.float64], NDArray[np.float64]]:
        """Survivors, the thresholds guessed, and those that the k-th neighbours surely reach."""
        if self.search.device is not None and self.screen.dtype == np.float32:
            guess = np.maximum(before, self._guess(before))
            screened = self.search.device.screened(self, guess)
            if screened is not None:
                return screened, guess, before
        pruned = None
        if self.search.filter is None and self.screen.dtype == np.float32:
            threads = self.search.shortcut.threads
            compiled = fused(self, len(self.search.usable), threads)
            if compiled is not None:
                found, guess, sure = compiled.run(before)
                return found, guess, np.maximum(before, sure)
            pruned = self.search.shortcut.over(self, before)
            every = direct(self, threads) if pruned is None else None
            if every is not None:
                found, known = every.run(before)
                return found, known, known
        guess = np.maximum(before, self._guess(before))
        if pruned is None:
            return self._screen(np.arange(len(self.queries)), guess), guess, before
        found, guess, sure = pruned.run(guess)
        return found, guess, np.maximum(before, sure)

    def map(self, task: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        """Results in order, computed on every core."""
        return self.search.map(task, items)

    def note(self, block: Block) -> None:
        """Remember rows of the chunk without a score."""
        self.search.note(self.start, block)

    def report(self, share: float) -> None:
        """Tell how far the pass is."""
        self.search.report(self.start, len(self.chunk), self.tile, share)

    @cached_property
    def sample(self) -> NDArray[Any]:
        """Some rows of the chunk, or all of them where it is small."""
        return self.chunk[self.sample_rows]

    @cached_property
    def sample_rows(self) -> NDArray[np.int64]:
        """Their numbers in the chunk."""
        n = len(self.chunk)
        size = min(n, max(2048, n // 64, 4 * self.k))
        if size == n:
            return np.arange(n)
        # One row out of each of `size` equal stretches, so that sorted data are sampled evenly.
        jitter = np.random.default_rng(0).random(size)
        return ((np.arange(size) + jitter) * (n / size)).astype(np.int64)

    def _known(self) -> NDArray[np.float64]:
        """Screen scores that the k-th neighbour surely reaches, from the chunks before."""
        best = self.search.best[self.tile]
        full = np.array([len(b.rows) >= self.k for b in best])
        kth = [b.scores[self.k - 1] if f else 0.0 for b, f in zip(best, full, strict=True)]
        return np.where(full, self.screen.known(np.array(kth), self.search.norm), -np.inf)

    def _possible(self) -> NDArray[np.int64]:
        """How many neighbours each query can have in this chunk, at most k."""
        n = len(self.chunk)
        if self.search.filter is None:
            return np.full(len(self.queries), min(self.k, n))
        counts = self.search.filter.count(self.numbers, self.start, self.start + n)
        return np.minimum(self.k, counts)

    def _guess(self, before: NDArray[np.float64]) -> NDArray[np.float64]:
        """A threshold per query that k rows of the chunk, and a few more, should reach."""
        n, size = len(self.chunk), len(self.sample)
        if self.start >= n and bool(np.isfinite(before).all()):
            # The chunks before gave thresholds that are as good as a sample's.
            return np.full(len(self.queries), -np.inf)
        if size == n:
            return self._certain(np.arange(len(self.queries)))
        eligible, share = np.full(len(self.queries), size), size / n
        if self.search.filter is not None:
            mask = self._sample_mask(np.arange(len(self.queries)))
            eligible = np.broadcast_to(mask, (len(self.queries), size)).sum(axis=1)
            counts = self.search.filter.count(self.numbers, self.start, self.start + n)
            share = eligible / np.maximum(counts, 1)
        expected = np.broadcast_to(self.k * share, eligible.shape)
        rank = np.ceil(expected + 4 * np.sqrt(expected) + 2).astype(np.int64)
        return self.ranked(np.arange(len(self.queries)), rank)

    def _certain(self, which: NDArray[np.int64]) -> NDArray[np.float64]:
        """A threshold that the k-th neighbour surely reaches: the k-th of the sample does."""
        values = self.ranked(which, np.full(len(which), self.k))
        return values - self.screen.part(which).error(self.sample_block.norm)

    @cached_property
    def sample_block(self) -> Block:
        """The sample, ready for the product."""
        return self.screen.block(self.sample)

    def _sample_mask(self, which: NDArray[np.int64]) -> NDArray[np.bool_]:
        assert self.search.filter is not None
        rows = self.start + self.sample_rows
        return self.search.filter.mask_of_rows(self.numbers[which], rows)

    def ranked(self, which: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.float64]:
        """Screen score of the sample row at a rank (from 1) per query; -inf beyond the last."""
        size = len(self.sample)
        block = self.sample_block

        def part(start: int) -> NDArray[np.float64]:
            some = which[start : start + 128]
            scores = self.screen.left[some] @ block.right
            scores[:, block.unusable] = -np.inf
            if self.search.filter is not None:
                scores[~np.broadcast_to(self._sample_mask(some), scores.shape)] = -np.inf
            at = np.maximum(size - rank[start : start + 128], 0)
            scores.partition(np.unique(at), axis=1)
            values = scores[np.arange(len(some)), at].astype(np.float64)
            return np.where(rank[start : start + 128] > size, -np.inf, values)

        return np.concatenate(list(self.search.map(part, list(range(0, len(which), 128)))))

    def _screen(self, which: NDArray[np.int64], threshold: NDArray[np.float64]) -> Survivors:
        """All rows of the chunk that may reach the threshold, for some queries of the tile."""
        screen = self.screen.part(which)
        groups = [slice(i, min(i + _GROUP, len(which))) for i in range(0, len(which), _GROUP)]
        step = int(np.clip(_CELLS // min(len(which), _GROUP), 256, 4096))
        tasks = [(low, group) for low in range(0, len(self.chunk), step) for group in groups]
        buffers = threading.local()

        def product(task: tuple[int, slice]) -> tuple[Block, Survivors]:
            low, group = task
            rows = self.chunk[low : low + step]
            block = screen.block(rows)
            shape = (group.stop - group.start, len(rows))
            cells = shape[0] * shape[1]
            if getattr(buffers, "size", 0) < cells:
                buffers.scores = np.empty(cells, dtype=screen.dtype)
                buffers.mask = np.empty(cells, dtype=bool)
                buffers.size = cells
            scores = buffers.scores[:cells].reshape(shape)
            mask = buffers.mask[:cells].reshape(shape)
            np.matmul(screen.left[group], block.right, out=scores)
            if len(block.unusable):
                scores[:, block.unusable] = -np.inf
            limit = threshold[group] - screen.part(group).error(block.norm)
            np.greater_equal(scores, rounded_down(limit, screen.dtype)[:, None], out=mask)
            start = self.start + low
            if self.search.filter is not None:
                numbers = self.numbers[which[group]]
                mask &= self.search.filter.mask(numbers, start, start + len(rows))
            cell = np.flatnonzero(mask)
            query, column = np.divmod(cell, len(rows))
            survivors = Survivors(
                which[group][query].astype(np.uint16), low + column, buffers.scores[cell]
            )
            return block, survivors

        found: list[Survivors] = []
        held = 0
        products = self.search.map(product, tasks)
        for number, ((low, group), (block, survivors)) in enumerate(
            zip(tasks, products, strict=True)
        ):
            self.report(number / len(tasks))
            self.norm = max(self.norm, block.norm)
            if group.start == 0:
                self.search.note(self.start + low, block)
            found.append(survivors)
            held += len(survivors.row)
            if held > self.most:
                raise TooMany
        return Survivors.joined(found)

    def _settle(self, found: Survivors, before: NDArray[np.float64]) -> None:
        """Score the survivors in float64 and merge them with the best so far."""
        order = np.argsort(found.query, kind="stable")
        query, rows, scores = found.query[order], found.row[order], found.score[order]
        m, search = len(self.queries), self.search
        cuts = np.searchsorted(query, np.arange(m + 1))
        error = self.screen.error(self.norm)
        keep = scores >= (before - error)[query]
        # Of the others hardly any row would be left out.
        crowded = np.diff(cuts) > self.k + self.k // 8 + 4

        def settle(queries: range) -> None:
            mine = slice(cuts[queries.start], cuts[queries.stop])
            for i in queries.start + np.flatnonzero(crowded[queries.start : queries.stop]):
                some = slice(cuts[i], cuts[i + 1])
                keep[some] = shorten(scores[some], error[i], before[i], self.k)
            own = rows[mine][keep[mine]]
            numbers = query[mine][keep[mine]].astype(np.int64) - queries.start
            asked = self.queries[queries.start : queries.stop]
            exact = exact_pair_scores(search.space, self.chunk, own, asked, numbers)
            place = slice(self.tile.start + queries.start, self.tile.start + queries.stop)
            search.best[place] = merge_all(
                search.space,
                search.best[place],
                numbers,
                self.start + own,
                exact,
                self.k,
                search.most_ties,
                search.row_ids,
            )

        step = int(np.clip(_SETTLED // self.k, 1, 128))
        for _ in search.map(settle, [range(i, min(i + step, m)) for i in range(0, m, step)]):
            pass
