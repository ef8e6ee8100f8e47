"""Exact search: the true nearest neighbours, the same on every machine, in bounded memory.

The base goes by in chunks, the queries in tiles. Per chunk and tile:

1. guess a threshold per query from a sample of the chunk (or from the chunks before);
2. screen: products of blocks on every core, keeping the rows above threshold minus error;
3. verify: enough survivors are certainly above the threshold, so no neighbour was missed;
   queries for which that fails are screened again with a threshold that cannot fail;
4. settle the survivors in float64 and merge them with the best so far.

Guesses, blocks and threads decide how much work is done, never what comes out.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Run, Vectors
from semrecall.data.vectors import Fingerprint
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact.filters import Filter
from semrecall.exact.screen import Block, OutOfRange, Screen
from semrecall.exact.settle import (
    EMPTY,
    PAIRS_AT_ONCE,
    Best,
    exact_pair_scores,
    merge,
    shorten,
)
from semrecall.space import Space, space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Progress", "search", "workers"]

#: Called with rows done and rows in all (None while it is not known).
Progress = Callable[[float, "int | None"], None]

_TILE = 2048  # queries that share one pass over a chunk
_GROUP = 1024  # queries in one product
_CELLS = 1 << 19  # scores in one product: 2 MiB, which stays in cache
_CHUNK = 1 << 20  # rows settled at a time, where memory allows
_BAD = "NaN or infinite query vector"
_ZERO = "zero query vector"


def search(
    base: Any,
    queries: Any,
    k: int,
    space: str | Space,
    *,
    allowed: Any = None,
    memory: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """The exact k nearest neighbours of every query, ties at rank k included.

    base: Vectors or array (n, d); may be memory-mapped or a stream of blocks, read once.
    queries: Vectors or array (m, d).
    space: ip, cosine or l2.
    allowed: what each query may find (see `Filter`): a mask (n,) or (m, n), or per query the
        allowed ids.
    memory: bytes for blocks and survivors; a quarter of the machine's when None.
    threads: how many cores to use; all when None.

    Returns a Run with scores in float64, nearest first, equal scores by id, rows longer than k
    where ties with the k-th neighbour continue and shorter only where fewer neighbours exist.
    NaN and infinite rows are named and left out; a zero row under cosine has no score (NaN) and
    stands behind all real ones. A query without a direction has an empty row and a reason.
    Raises InputError for k < 1 and MismatchError for different dimensions.
    """
    geometry = _space(space)
    base, queries = Vectors.of(base), Vectors.of(queries)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k is {k!r}; expected a whole number of at least 1")
    if base.dimension != queries.dimension:
        raise MismatchError(
            f"base vectors have {base.dimension} dimensions, queries {queries.dimension}",
            hint="were both made by the same model, and are these the right two files?",
        )
    job = _Search(geometry, base, queries, int(k), Filter.of(allowed, base, queries))
    job.memory = memory if memory is not None else _machine_memory() // 4
    job.threads = threads or workers()
    job.progress = progress or (lambda done, total: None)
    if job.memory < 1 << 20:
        raise InputError(f"memory is {job.memory:,} bytes; expected at least 1 MiB")
    return job.run()


def _space(name: str | Space) -> Space:
    return space(name)


def workers() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _machine_memory() -> int:
    """Bytes this process may use: the machine's memory, or less where a container sets a limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 4 << 30
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(limit) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


class _TooMany(Exception):
    """More survivors than memory allows: the chunk or the tile must be smaller."""


@dataclass
class _Survivors:
    """Survivors of one product: query numbers within the tile, row numbers, screen scores."""

    query: NDArray[np.uint16]
    row: NDArray[np.int64]
    score: NDArray[Any]


@dataclass
class _Search:
    """One search under way."""

    space: Space
    base: Vectors
    queries: Vectors
    k: int
    filter: Filter | None
    memory: int = 0
    threads: int = 1
    progress: Progress = field(default=lambda done, total: None)
    norm: float = 0.0  # the largest among the rows seen so far

    def run(self) -> Run:
        """Go over the base once and put the answer together."""
        matrix = self.queries.require_matrix()
        self._reasons = self._query_reasons(matrix)
        self._usable = np.flatnonzero([not r for r in self._reasons])
        self.usable_queries = matrix[self._usable]
        self.best: list[Best] = [EMPTY] * len(self._usable)
        self._left_out: list[int] = []
        self._zero_rows: list[int] = []
        self.row_ids = self.base.given_ids
        self.most_ties = max(1000, 10 * self.k)
        printer = Fingerprint(self.base.dtype, self.base.dimension)
        rows = 0
        with _one_blas_thread(), ThreadPoolExecutor(self.threads) as self._pool:
            try:
                for start, chunk in self._chunks():
                    printer.add(start, chunk)
                    self._over_chunk(start, chunk)
                    rows = start + len(chunk)
                    self.base.release()
            except BaseException:
                self._pool.shutdown(wait=True, cancel_futures=True)
                raise
        return self._finished(rows, printer.hexdigest())

    def _query_reasons(self, matrix: NDArray[Any]) -> list[str]:
        finite = np.isfinite(matrix).all(axis=1)
        directed = np.ones(len(matrix), dtype=bool)
        if self.space.name != "l2":
            directed = np.asarray(matrix.any(axis=1))
        return [
            _BAD if not f else _ZERO if not d else ""
            for f, d in zip(finite.tolist(), directed.tolist(), strict=True)
        ]

    def _chunks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """The base in chunks that fit the memory; small blocks of a stream are put together."""
        row_bytes = self.base.dimension * (self.base.dtype.itemsize + 8)
        rows = int(min(_CHUNK, max(1024, self.memory // 2 // row_bytes)))
        if self.base.matrix is not None:
            yield from self.base.blocks(rows)
            return
        waiting: list[NDArray[Any]] = []
        first = held = 0
        for start, block in self.base.blocks(rows):
            if held + len(block) > rows:
                yield first, np.concatenate(waiting)
                waiting, first, held = [], start, 0
            # A source may use one buffer for all its blocks.
            waiting.append(np.array(block))
            held += len(block)
        if waiting:
            yield first, np.concatenate(waiting)

    def _over_chunk(self, start: int, chunk: NDArray[Any]) -> None:
        if len(chunk) == 0:
            return
        if len(self._usable) == 0:
            self._note_rows(start, chunk)
            return
        for low in range(0, len(self._usable), _TILE):
            tile = slice(low, min(low + _TILE, len(self._usable)))
            try:
                self._over_tile(start, chunk, tile, np.dtype(np.float32))
            except OutOfRange:
                self._over_tile(start, chunk, tile, np.dtype(np.float64))
            share = tile.stop / len(self._usable)
            self.progress(start + share * len(chunk), self.base.length)

    def note(self, start: int, block: Block) -> None:
        """Remember rows without a score."""
        zero = set(block.zero.tolist())
        self._zero_rows += [start + i for i in zero]
        self._left_out += [start + i for i in block.unusable.tolist() if i not in zero]

    def _note_rows(self, start: int, chunk: NDArray[Any]) -> None:
        bad = ~np.isfinite(chunk).all(axis=1)
        self._left_out += (start + np.flatnonzero(bad)).tolist()
        if self.space.name == "cosine":
            self._zero_rows += (start + np.flatnonzero(~chunk.any(axis=1))).tolist()

    def _over_tile(
        self, start: int, chunk: NDArray[Any], tile: slice, dtype: np.dtype[Any]
    ) -> None:
        """Screen and settle one chunk for one tile of queries, in halves where memory is short."""
        try:
            _Pass(self, start, chunk, tile, dtype).run()
        except _TooMany:
            if tile.stop - tile.start > 64:
                middle = (tile.start + tile.stop) // 2
                self._over_tile(start, chunk, slice(tile.start, middle), dtype)
                self._over_tile(start, chunk, slice(middle, tile.stop), dtype)
            else:
                middle = len(chunk) // 2
                self._over_tile(start, chunk[:middle], tile, dtype)
                self._over_tile(start + middle, chunk[middle:], tile, dtype)

    def map(self, task: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        """Results of `task` over `items` in order, on every core, few of them waiting at a time."""
        if len(items) == 1 or self.threads == 1:
            yield from map(task, items)
            return
        ahead = 4 * self.threads
        futures: list[Future[Any]] = [self._pool.submit(task, item) for item in items[:ahead]]
        for position in range(len(items)):
            # A short wait at a time leaves room for Ctrl-C on every platform.
            while not wait(futures[position : position + 1], 1.0, FIRST_COMPLETED).done:
                pass
            yield futures[position].result()
            futures[position] = None  # type: ignore[call-overload]
            if position + ahead < len(items):
                futures.append(self._pool.submit(task, items[position + ahead]))

    def _finished(self, rows: int, fingerprint: str) -> Run:
        zero = np.array(sorted(set(self._zero_rows)), dtype=np.int64)
        empty = [EMPTY] * len(self.queries)
        for query, best in zip(self._usable.tolist(), self.best, strict=True):
            empty[query] = best
            if len(zero) and len(best.rows) < self.k:
                empty[query] = self._with_zero_rows(query, best, zero)
        row_ids = self.base.ids if self.base.length is not None else None
        if row_ids is None:
            row_ids = Ids(np.arange(rows, dtype=np.int64))
        flat = np.concatenate([b.rows for b in empty]) if empty else np.empty(0, dtype=np.int64)
        lengths = [len(b.rows) for b in empty]
        self._warn(len(zero), sum(b.cut for b in empty))
        return Run(
            queries=self.queries.ids,
            documents=row_ids[flat],
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            flat_scores=np.concatenate([b.scores for b in empty]) if empty else np.empty(0),
            space=self.space,
            k=self.k,
            name="exact",
            scores_by="exact",
            reasons=tuple(self._reasons) if any(self._reasons) else (),
            identity=self._identity(rows, fingerprint),
        )

    def _with_zero_rows(self, query: int, best: Best, zero: NDArray[np.int64]) -> Best:
        """Rows without a direction fill up a row that would be shorter than k, without scores."""
        may = zero if self.filter is None else zero[self.filter.allows(query, zero)]
        if self.row_ids is not None:
            may = may[np.argsort(self.row_ids[may].array(), kind="stable")]
        more = may[: self.k - len(best.rows)]
        return Best(
            np.concatenate([best.rows, more]),
            np.concatenate([best.scores, np.full(len(more), np.nan)]),
        )

    def _identity(self, rows: int, fingerprint: str) -> dict[str, Any]:
        from importlib.metadata import version

        return {
            "space": self.space.name,
            "k": self.k,
            "base": _identity_of(self.base, rows, fingerprint),
            "queries": _identity_of(self.queries, len(self.queries), self.queries.fingerprint),
            "filter": None if self.filter is None else self.filter.fingerprint,
            "left_out_rows": len(set(self._left_out)),
            "zero_rows": len(set(self._zero_rows)),
            "semrecall": version("semrecall"),
        }

    def _warn(self, zero_rows: int, cut: int) -> None:
        bad = sorted(set(self._left_out))
        if bad:
            shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
            _say(f"{len(bad):,} base rows hold NaN or infinity and are left out: rows {shown}")
        if zero_rows:
            _say(f"{zero_rows:,} base rows are zero vectors: under cosine they have no score")
        for reason in (_BAD, _ZERO):
            rows = [i for i, r in enumerate(self._reasons) if r == reason]
            if rows:
                shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
                _say(f"{len(rows):,} queries have no neighbours ({reason}): rows {shown}")
        if cut:
            _say(
                f"{cut:,} queries have more than {self.most_ties:,} ties with neighbour {self.k}; "
                "the rest of them, by id, are not in the truth"
            )


def _identity_of(vectors: Vectors, rows: int, fingerprint: str) -> dict[str, Any]:
    return {
        "rows": rows,
        "dimension": vectors.dimension,
        "dtype": vectors.dtype.name,
        "fingerprint": fingerprint,
    }


def _say(message: str) -> None:
    warnings.warn(message, SemrecallWarning, stacklevel=5)


class _Pass:
    """One chunk against one tile of queries."""

    def __init__(
        self,
        search: _Search,
        start: int,
        chunk: NDArray[Any],
        tile: slice,
        dtype: np.dtype[Any],
    ) -> None:
        self.search, self.start, self.chunk, self.tile = search, start, chunk, tile
        self.queries = search.usable_queries[tile]
        self.numbers = search._usable[tile]
        self.k = search.k
        self.sample_rows = self._sample_rows()
        self.sample = chunk[self.sample_rows]
        centre = None
        if search.space.name == "l2":
            usable = self.sample[np.isfinite(self.sample).all(axis=1)].astype(np.float64)
            centre = usable.mean(axis=0) if len(usable) else np.zeros(chunk.shape[1])
        self.screen = Screen(search.space, self.queries, centre, dtype)
        self.norm = 0.0
        # An entry of _Survivors takes about 16 bytes, and twice that while it is sorted.
        self.most = max(search.memory // 2 // 48, 1 << 15)

    def run(self) -> None:
        """Screen, verify, settle."""
        before = self._known()
        threshold = np.maximum(before, self._guess(before))
        found = self._screen(np.arange(len(self.queries)), threshold)
        error = self.screen.error(self.norm)
        above = found.query[found.score >= (threshold + error)[found.query]]
        sure = np.bincount(above, minlength=len(self.queries))
        failed = np.flatnonzero((sure < self._possible()) & (threshold > before))
        if len(failed):
            again = self._screen(failed, np.maximum(before[failed], self._certain(failed)))
            stays = ~np.isin(found.query, failed)
            found = _Survivors(
                np.concatenate([found.query[stays], again.query]),
                np.concatenate([found.row[stays], again.row]),
                np.concatenate([found.score[stays], again.score]),
            )
        self._settle(found, before)
        self.search.norm = max(self.search.norm, self.norm)

    def _sample_rows(self) -> NDArray[np.int64]:
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
        return self._ranked(np.arange(len(self.queries)), rank)

    def _certain(self, which: NDArray[np.int64]) -> NDArray[np.float64]:
        """A threshold that the k-th neighbour surely reaches: the k-th of the sample does."""
        values = self._ranked(which, np.full(len(which), self.k))
        return values - self.screen.part(which).error(self.sample_block.norm)

    @cached_property
    def sample_block(self) -> Block:
        """The sample, ready for the product."""
        return self.screen.block(self.sample)

    def _sample_mask(self, which: NDArray[np.int64]) -> NDArray[np.bool_]:
        assert self.search.filter is not None
        rows = self.start + self.sample_rows
        return self.search.filter.mask_of_rows(self.numbers[which], rows)

    def _ranked(self, which: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.float64]:
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

    def _screen(self, which: NDArray[np.int64], threshold: NDArray[np.float64]) -> _Survivors:
        """All rows of the chunk that may reach the threshold, for some queries of the tile."""
        screen = self.screen.part(which)
        groups = [slice(i, min(i + _GROUP, len(which))) for i in range(0, len(which), _GROUP)]
        step = int(np.clip(_CELLS // min(len(which), _GROUP), 256, 4096))
        tasks = [(low, group) for low in range(0, len(self.chunk), step) for group in groups]
        buffers = threading.local()

        def product(task: tuple[int, slice]) -> tuple[Block, _Survivors]:
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
            np.greater_equal(scores, _rounded_down(limit, screen.dtype)[:, None], out=mask)
            start = self.start + low
            if self.search.filter is not None:
                numbers = self.numbers[which[group]]
                mask &= self.search.filter.mask(numbers, start, start + len(rows))
            cell = np.flatnonzero(mask)
            query, column = np.divmod(cell, len(rows))
            survivors = _Survivors(
                which[group][query].astype(np.uint16), low + column, buffers.scores[cell]
            )
            return block, survivors

        found: list[_Survivors] = []
        held = 0
        for (low, group), (block, survivors) in zip(
            tasks, self.search.map(product, tasks), strict=True
        ):
            self.norm = max(self.norm, block.norm)
            if group.start == 0:
                self.search.note(self.start + low, block)
            found.append(survivors)
            held += len(survivors.row)
            if held > self.most:
                raise _TooMany
        return _Survivors(
            np.concatenate([f.query for f in found]),
            np.concatenate([f.row for f in found]),
            np.concatenate([f.score for f in found]),
        )

    def _settle(self, found: _Survivors, before: NDArray[np.float64]) -> None:
        """Score the survivors in float64 and merge them with the best so far."""
        order = np.argsort(found.query, kind="stable")
        rows, scores = found.row[order], found.score[order]
        cuts = np.searchsorted(found.query[order], np.arange(len(self.queries) + 1))
        error = self.screen.error(self.norm)
        search = self.search

        def settle(queries: range) -> None:
            chosen = []
            for i in queries:
                mine = slice(cuts[i], cuts[i + 1])
                keep = shorten(scores[mine], error[i], before[i], self.k)
                chosen.append(rows[mine][keep])
            counts = [len(c) for c in chosen]
            numbers = np.repeat(np.arange(len(chosen)), counts)
            exact = exact_pair_scores(
                search.space,
                self.chunk,
                np.concatenate(chosen),
                self.queries[queries.start : queries.stop],
                numbers,
            )
            ends = np.cumsum(counts)
            for i, own, end in zip(queries, chosen, ends, strict=True):
                place = self.tile.start + i
                search.best[place] = merge(
                    search.space,
                    search.best[place],
                    self.start + own,
                    exact[end - len(own) : end],
                    self.k,
                    search.most_ties,
                    search.row_ids,
                )

        m = len(self.queries)
        step = max(1, min(64, PAIRS_AT_ONCE // self.k))
        for _ in search.map(settle, [range(i, min(i + step, m)) for i in range(0, m, step)]):
            pass


def _rounded_down(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values as `dtype`, never larger, and finite, so that -inf marks a row as out."""
    low = float(np.finfo(dtype).min)
    with np.errstate(over="ignore"):
        down: NDArray[Any] = np.nextafter(np.maximum(values, low).astype(dtype), dtype.type(low))
    return down


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Products run beside each other, one on each core, so each needs one thread only."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        yield
