"""Exact search over bits: one chunk of the base against one tile of queries.

Distances are counts of bits, so there is nothing to settle: the bits that differ are counted for
every pair (numpy, or a compiled loop where numba is installed), and pairs beyond what k rows are
known to reach are dropped at once. The threshold of a query begins with the k-th of a sample, which
is no nearer than the k-th of all, and falls after every stretch of the rows.

With x bits that differ, a and b bits set, x + a + b = 2u for u bits set in either, so a Jaccard
distance x/u of at most t means x <= t/(2 - t) (a + b): one comparison with a limit per query and
size of row serves both spaces. Limits are rounded up; what passes is compared by its distance.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError
from semrecall.exact.compiled import compiled, loaded
from semrecall.exact.settle import merge
from semrecall.exact.survivors import Survivors, TooMany
from semrecall.space import quotients

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from semrecall.exact.chunk import Search

__all__ = ["PackedPass"]

_ROWS = 8192  # in one block; with so many queries, what is counted stays in cache
_QUERIES = 8
_SCAN_GROUPS = 16  # groups of queries in one call of the compiled loop
_SCAN_ROWS = 512
_LOADING = 1e9  # words compared while the loop is loaded
_SAMPLE = 2048
_GROWTH = 4
#: Counts up to here are exact in float32, and their quotients in order in float64.
_MOST_BITS = 1 << 24
_SLACK = np.float32(1 + 2.0**-20)


class PackedPass:
    """One chunk of rows of bits against one tile of queries."""

    def __init__(self, search: Search, start: int, chunk: NDArray[Any], tile: slice) -> None:
        self.search, self.start, self.chunk, self.tile = search, start, chunk, tile
        self.numbers = search.usable[tile]
        self.queries = _words(search.usable_queries[tile])
        self.sizes = _sizes(self.queries)
        self.most = max(search.memory // 2 // 64, 1 << 15)
        if 64 * self.queries.shape[1] > _MOST_BITS:
            raise InputError(f"rows have more than {_MOST_BITS:,} bits; expected fewer")
        self._kernels = self._compiled()
        self._local = threading.local()
        self._grouped: NDArray[np.uint64] | None = None

    def run(self) -> None:
        """Find the k nearest of the chunk, and merge them with the best so far."""
        with self.search.timed("screening"):
            self.threshold = self._known()
            if not np.isfinite(self.threshold).all():
                self.threshold = np.minimum(self.threshold, self._seeded())
            found, low = self._nothing(), 0
            for stop in self._stops():
                found = self._stretch(found, low, stop)
                low = stop
        with self.search.timed("settling"):
            self._merge(found)

    def _compiled(self) -> ModuleType | None:
        words = len(self.search.usable) * len(self.chunk) * self.queries.shape[1]
        if loaded("bits") is None and words < _LOADING:
            return None
        return compiled("bits")

    def _stops(self) -> list[int]:
        """Where thresholds fall: each stretch is a few times as long as all before."""
        stops, n = [_ROWS], len(self.chunk)
        while _GROWTH * stops[-1] < n:
            stops.append(_GROWTH * stops[-1])
        return [*(stop for stop in stops if stop < n), n]

    def _known(self) -> NDArray[np.float64]:
        """Distances (m,) of the k-th neighbour from the chunks before; infinite without one."""
        k = self.search.k
        best = self.search.best[self.tile]
        return np.array([b.scores[k - 1] if len(b.rows) >= k else np.inf for b in best])

    def _seeded(self) -> NDArray[np.float64]:
        """Distances (m,) of the k-th of an even sample of the rows; infinite where it has fewer."""
        search, n = self.search, len(self.chunk)
        size = max(_SAMPLE, 2 * search.k)
        if n < 2 * size:
            return np.full(len(self.queries), np.inf)
        jitter = np.random.default_rng(0).random(size)
        rows = ((np.arange(size) + jitter) * (n / size)).astype(np.int64)
        words = _words(self.chunk[rows])
        columns, sizes = np.ascontiguousarray(words.T), _sizes(words)

        def kth(low: int) -> NDArray[np.float64]:
            part = slice(low, low + _QUERIES)
            differing = self._differing(columns, part).astype(np.int64)
            distances = self._distances(differing, self.sizes[part, None], sizes)
            if search.filter is not None:
                mask = search.filter.mask_of_rows(self.numbers[part], self.start + rows)
                distances = np.where(mask, distances, np.inf)
            return np.asarray(np.partition(distances, search.k - 1, axis=1)[:, search.k - 1])

        lows = list(range(0, len(self.queries), _QUERIES))
        return np.concatenate(list(search.map(kth, lows)))

    def _stretch(self, found: Survivors, low: int, stop: int) -> Survivors:
        """What passes of the rows found so far and those from low to stop; thresholds fall."""
        parts, held = [found], len(found.row)
        lows = list(range(low, stop, _ROWS))
        tasks = self.search.map(lambda at: self._scanned(at, min(at + _ROWS, stop)), lows)
        for at, part in zip(lows, tasks, strict=True):
            self.search.report(self.start, len(self.chunk), self.tile, at / len(self.chunk))
            parts.append(part)
            held += len(part.row)
            if held > self.most:
                parts = [self._fallen(Survivors.joined(parts))]
                held = len(parts[0].row)
                if held > self.most // 2:
                    raise TooMany
        return self._fallen(Survivors.joined(parts))

    def _fallen(self, found: Survivors) -> Survivors:
        """Lower the thresholds to the k-th found, and keep what still passes."""
        self.threshold = self._kth(found, self.threshold)
        return found.where(found.score <= self.threshold[found.query])

    def _kth(self, found: Survivors, known: NDArray[np.float64]) -> NDArray[np.float64]:
        k, kth = self.search.k, known.copy()
        order, cuts = self._by_query(found.query)
        scores = found.score[order]
        for i, (low, high) in enumerate(pairwise(cuts)):
            if high - low >= k:
                kth[i] = min(kth[i], np.partition(scores[low:high], k - 1)[k - 1])
        return kth

    def _by_query(self, query: NDArray[Any]) -> tuple[NDArray[np.int64], list[int]]:
        """An order in which pairs stand query by query, and where each query's begin and end."""
        counts = np.bincount(query, minlength=len(self.queries))
        return np.argsort(query, kind="stable"), [0, *np.cumsum(counts).tolist()]

    @staticmethod
    def _nothing() -> Survivors:
        return Survivors(np.empty(0, np.uint16), np.empty(0, np.int64), np.empty(0))

    # -- counting -------------------------------------------------------------------------------

    def _scanned(self, low: int, stop: int) -> Survivors:
        """What passes of the rows from low to stop."""
        words = _words(self.chunk[low:stop])
        sizes = _sizes(words)
        fixed, slope = self._limits()
        if self._kernels is None:
            pairs = self._counted(words, sizes, fixed, slope)
        else:
            pairs = self._compiled_pairs(self._kernels, words, sizes, fixed, slope)
        query, row, differing = pairs
        scores = self._distances(differing, self.sizes[query], sizes[row])
        keep = scores <= self.threshold[query]
        if self.search.filter is not None:
            keep &= self._allowed(query, low + row)
        return Survivors(query[keep].astype(np.uint16), low + row[keep], scores[keep])

    def _distances(
        self, differing: NDArray[np.int64], a: NDArray[np.float32], b: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Distances by the bits that differ and the bits set on either side; shapes broadcast."""
        if self.search.space.name == "hamming":
            return differing.astype(np.float64)
        return quotients(differing, (differing + (a + b).astype(np.int64)) // 2)

    def _limits(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What as many bits as may differ are, per query: fixed + slope * size of the row."""
        threshold = self.threshold
        if self.search.space.name == "hamming":
            return threshold.astype(np.float32), np.zeros(len(threshold), dtype=np.float32)
        at_most = np.minimum(threshold, 1.0)
        slope = (at_most / (2.0 - at_most)).astype(np.float32) * _SLACK
        fixed: NDArray[np.float32] = slope * self.sizes * _SLACK
        return fixed, slope

    def _counted(
        self,
        words: NDArray[np.uint64],
        sizes: NDArray[np.float32],
        fixed: NDArray[np.float32],
        slope: NDArray[np.float32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Pairs within their limit by numpy: queries, rows, bits that differ."""
        columns = np.ascontiguousarray(words.T)
        found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        for low in range(0, len(self.queries), _QUERIES):
            part = slice(low, low + _QUERIES)
            count = self._differing(columns, part)
            limit = fixed[part, None]
            if self.search.space.name == "jaccard":
                limit = limit + slope[part, None] * sizes
            query, row = np.nonzero(count <= limit)
            found.append((low + query, row, count[query, row].astype(np.int64)))
        query, row, differing = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return query, row, differing

    def _differing(self, columns: NDArray[np.uint64], part: slice) -> NDArray[Any]:
        """Bits that differ of few queries and rows (words, b); it is overwritten by the next."""
        queries = np.ascontiguousarray(self.queries[part].T)
        room = self._room(columns.shape)
        apart, ones, count = (array[: queries.shape[1], : columns.shape[1]] for array in room)
        count[...] = 0
        for column, query in zip(columns, queries, strict=True):
            np.bitwise_xor(column, query[:, None], out=apart)
            np.bitwise_count(apart, out=ones)
            np.add(count, ones, out=count)
        return count

    def _room(self, shape: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
        """What one thread counts in."""
        room: tuple[NDArray[Any], ...] | None = getattr(self._local, "room", None)
        if room is None or room[0].shape[1] < shape[1]:
            cells = (_QUERIES, shape[1])
            counts = np.uint16 if shape[0] < 1 << 10 else np.int32
            room = np.empty(cells, np.uint64), np.empty(cells, np.uint8), np.empty(cells, counts)
            self._local.room = room
        return room

    def _compiled_pairs(
        self,
        kernels: ModuleType,
        words: NDArray[np.uint64],
        sizes: NDArray[np.float32],
        fixed: NDArray[np.float32],
        slope: NDArray[np.float32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The same by the compiled loop."""
        lanes = self._lanes(kernels)
        limits = np.zeros((len(lanes), 2, kernels.LANES), dtype=np.float32)
        for at, (values, lacking) in enumerate(((fixed, -1.0), (slope, 0.0))):
            whole = np.full(len(lanes) * kernels.LANES, lacking, dtype=np.float32)
            whole[: len(values)] = values
            limits[:, at] = whole.reshape(len(lanes), kernels.LANES)
        lacking_rows = -len(words) % kernels.PAD
        if lacking_rows:  # they have no size, so no pair with them passes
            words = np.concatenate([words, np.zeros((lacking_rows, words.shape[1]), np.uint64)])
            sizes = np.concatenate([sizes, np.full(lacking_rows, -np.inf, dtype=np.float32)])
        pairs = getattr(self._local, "pairs", None)
        if pairs is None:
            room = _SCAN_ROWS * _SCAN_GROUPS * kernels.LANES
            pairs = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
            self._local.pairs = pairs
        found: list[list[NDArray[np.int64]]] = []
        for top in range(0, len(words), _SCAN_ROWS):
            rows = slice(top, top + _SCAN_ROWS)
            for low in range(0, len(lanes), _SCAN_GROUPS):
                part = slice(low, low + _SCAN_GROUPS)
                count = kernels.scan(lanes[part], limits[part], words[rows], sizes[rows], *pairs)
                query, row, differing = (array[:count].astype(np.int64) for array in pairs)
                found.append([query + low * kernels.LANES, row + top, differing])
        query, row, differing = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return query, row, differing

    def _lanes(self, kernels: ModuleType) -> NDArray[np.uint64]:
        """The queries in groups, word by word (groups, words, queries of a group)."""
        if self._grouped is None:
            m, words = self.queries.shape
            groups = -(-m // kernels.LANES)
            filled = np.zeros((groups * kernels.LANES, words), dtype=np.uint64)
            filled[:m] = self.queries
            apart = filled.reshape(groups, kernels.LANES, words).transpose(0, 2, 1)
            self._grouped = np.ascontiguousarray(apart)
        return self._grouped

    # -- filter and merge -----------------------------------------------------------------------

    def _allowed(self, query: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which pairs of a query of the tile and a row of the chunk the filter allows."""
        assert self.search.filter is not None
        allowed = np.empty(len(rows), dtype=bool)
        order, cuts = self._by_query(query)
        for i, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                mine = order[low:high]
                number = int(self.numbers[i])
                allowed[mine] = self.search.filter.allows(number, self.start + rows[mine])
        return allowed

    def _merge(self, found: Survivors) -> None:
        order, cuts = self._by_query(found.query)
        rows, scores = self.start + found.row[order], found.score[order]
        search = self.search
        for i, (low, high) in enumerate(pairwise(cuts)):
            place = self.tile.start + i
            search.best[place] = merge(
                search.space, search.best[place], rows[low:high], scores[low:high],
                search.k, search.most_ties, search.row_ids,
            )  # fmt: skip


def _words(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Rows of bytes or booleans as words of 64 bits, filled up with zeros, in memory of its own."""
    packed = np.packbits(rows, axis=1) if rows.dtype == bool else rows
    words = np.zeros((len(packed), -(-packed.shape[1] // 8)), dtype=np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    return words


def _sizes(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """How many bits of each row are set."""
    counts: NDArray[np.int64] = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return counts.astype(np.float32)
