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
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.fitting import check_fitting
from semrecall.errors import InputError
from semrecall.exact.answer import BAD_QUERY, ZERO_QUERY, Answer, Sample, as_run
from semrecall.exact.chunk import ChunkPass, TooMany
from semrecall.exact.device import Device
from semrecall.exact.filters import Filter
from semrecall.exact.grouped import over_groups
from semrecall.exact.merge import flattened
from semrecall.exact.packed import PackedPass
from semrecall.exact.pruned import Shortcut
from semrecall.exact.screen import Block, OutOfRange
from semrecall.exact.settle import EMPTY, Best, RowIds, most_ties
from semrecall.space import Space, space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Progress",
    "Scan",
    "chunk_rows",
    "machine_memory",
    "query_reasons",
    "search",
    "workers",
]

#: Called with rows done and rows in all (None while it is not known).
Progress = Callable[[float, "int | None"], None]

_TILE = 2048  # queries that share one pass over a chunk
_CHUNK = 1 << 20  # rows settled at a time, where memory allows
_FEW_ROWS = 4096  # rows that stay in cache while they are looked at
_NO_ROWS = np.empty(0, dtype=np.int64)


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
    device: str | None = None,
) -> Run:
    """The exact k nearest neighbours of every query, ties at rank k included.

    base: Vectors or array (n, d); may be memory-mapped or a stream of blocks, read once.
    queries: Vectors or array (m, d).
    space: ip, cosine or l2; hamming or jaccard over bits (uint8, eight a byte, or booleans).
    allowed: what each query may find (see `Filter`): a mask (n,) or (m, n), or per query the
        allowed ids.
    memory: bytes for blocks and survivors; a quarter of the machine's when None.
    threads: how many cores to use; all when None.
    device: where screening takes its products: see `Device.of`.

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
    check_fitting(geometry, base, queries)
    filtered = Filter.of(allowed, base, queries)
    reasons = query_reasons(queries.require_matrix(), geometry)
    rows = 0
    with Scan(
        geometry,
        queries.require_matrix()[np.flatnonzero([not r for r in reasons])],
        int(k),
        allowed=filtered,
        query_numbers=np.flatnonzero([not r for r in reasons]),
        memory=memory,
        threads=threads,
        progress=progress,
        length=base.length,
        device=device,
    ) as scan:
        for start, chunk in _chunks(base, scan.memory):
            scan.over(start, chunk, base.given_ids)
            rows = start + len(chunk)
            base.release()
        answer = scan.answer()
    return as_run(
        answer,
        space=geometry,
        k=int(k),
        base=base,
        rows=rows,
        queries=queries,
        reasons=reasons,
        allowed=filtered,
    )


def query_reasons(queries: NDArray[Any], space: Space) -> list[str]:
    """Why each query (m, d) can have no neighbours; "" where it can."""
    finite = np.isfinite(queries).all(axis=1)
    directed = np.ones(len(queries), dtype=bool)
    if space.directed:
        directed = np.asarray(queries.any(axis=1))
    return [
        BAD_QUERY if not f else ZERO_QUERY if not d else ""
        for f, d in zip(finite.tolist(), directed.tolist(), strict=True)
    ]


def _space(name: str | Space) -> Space:
    return space(name)


def workers() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_memory() -> int:
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


def _chunks(base: Vectors, memory: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """The base in chunks that fit the memory; small blocks of a stream are put together."""
    rows = chunk_rows(base.dimension, base.dtype, memory)
    if base.matrix is not None:
        yield from base.blocks(rows)
        return
    waiting: list[NDArray[Any]] = []
    first = held = 0
    for start, block in base.blocks(rows):
        if held + len(block) > rows:
            yield first, np.concatenate(waiting)
            waiting, first, held = [], start, 0
        # A source may use one buffer for all its blocks.
        waiting.append(np.array(block))
        held += len(block)
    if waiting:
        yield first, np.concatenate(waiting)


def chunk_rows(dimension: int, dtype: np.dtype[Any], memory: int, copies: int = 1) -> int:
    """Rows of a chunk, of which `copies` are held at a time, that fit the memory of a search."""
    row_bytes = dimension * (copies * dtype.itemsize + 8)
    return int(min(_CHUNK, max(1024, memory // 2 // row_bytes)))


@cache
def _libraries() -> Any:
    """The libraries with threads of their own, once: that of numpy is among them from the start."""
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()


@dataclass(frozen=True)
class _Whole:
    """What was known at the end of a block."""

    best: list[Best]
    norm: float
    left_out: NDArray[np.int64]
    zero: NDArray[np.int64]
    sample: Sample


def _distinct(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.unique(np.concatenate([_NO_ROWS, *rows]))


class Scan:
    """A search under way over blocks of a base: what they have in common, and the best so far.

    queries (m, d): each with a direction. query_numbers (m,): what `allowed` knows them by.
    length: rows in all, for `progress`. device: see `Device.of`.
    Used as a context: the work is done by a pool of threads.
    Raises InputError for less memory than 1 MiB.
    """

    def __init__(
        self,
        space: Space,
        queries: NDArray[Any],
        k: int,
        *,
        allowed: Filter | None = None,
        query_numbers: NDArray[np.int64] | None = None,
        memory: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        length: int | None = None,
        device: str | None = None,
    ) -> None:
        self.space, self.usable_queries, self.k, self.filter = space, queries, k, allowed
        self.usable = np.arange(len(queries)) if query_numbers is None else query_numbers
        self.memory = memory if memory is not None else machine_memory() // 4
        self.threads = threads or workers()
        if self.memory < 1 << 20:
            raise InputError(f"memory is {self.memory:,} bytes; expected at least 1 MiB")
        self.progress = progress or (lambda done, total: None)
        self.norm = 0.0  # the largest among the rows seen so far
        self.best: list[Best] = [EMPTY] * len(queries)
        self.row_ids: RowIds | None = None
        self.most_ties = most_ties(k)
        self.shortcut = Shortcut(len(queries), self.threads)
        if space.compares != "vectors":
            if device not in (None, "cpu", "auto"):
                raise InputError(f"a device takes products for ip, cosine and l2, not for {space}")
            device = None
        self.device = Device.of(device)
        self._length, self._done = length, 0.0
        self._rows: dict[str, list[NDArray[np.int64]]] = {"left out": [], "zero": []}
        self._whole: _Whole | None = None
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> Scan:
        # Products run beside each other, one on each core, so each needs one thread only.
        self._limits = _libraries().limit(limits=1, user_api="blas")
        self._pool = ThreadPoolExecutor(self.threads)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._limits.restore_original_limits()

    def over(self, start: int, block: NDArray[Any], row_ids: RowIds | None = None) -> None:
        """Go over the next rows, the first of which has number `start`.

        row_ids: ids by row number, of these rows and those found before; None where row numbers
        are the ids. An exception leaves the scan unfit to go on; its answer stays that of the
        blocks before.
        """
        if len(block) == 0:
            return
        self.row_ids = row_ids
        sample = Sample.of(start, block)
        if self.filter is not None or len(self.usable) == 0:
            # Not every row is screened.
            self._note_rows(start, block)
        if self.filter is not None:
            over_groups(self, start, block)
        else:
            self.screen(start, block)
        # Many tiles note the same rows.
        noted = {kind: _distinct(rows) for kind, rows in self._rows.items()}
        self._rows = {kind: [rows] for kind, rows in noted.items()}
        sample = Sample.joined([self._whole.sample, sample]) if self._whole else sample
        self._whole = _Whole(list(self.best), self.norm, noted["left out"], noted["zero"], sample)

    def screen(self, start: int, block: NDArray[Any]) -> None:
        """Find the nearest of the rows from `start` on, all of them at hand, for every query."""
        for low in range(0, len(self.usable), _TILE):
            tile = slice(low, min(low + _TILE, len(self.usable)))
            try:
                self._over_tile(start, block, tile, np.dtype(np.float32))
            except OutOfRange:
                self._over_tile_in_float64(start, block, tile)
            self.report(start, len(block), tile, 1.0)

    def part(self, which: NDArray[np.int64], row_ids: RowIds | None, *, masked: bool) -> Scan:
        """The same search for some of the queries, on the same threads; it tells nobody how far.

        row_ids: as in `over`. masked: rows that a query may not find are left out; else all count.
        """
        part = copy(self)
        part.usable_queries, part.usable = self.usable_queries[which], self.usable[which]
        part.best = [self.best[at] for at in which.tolist()]
        part.row_ids, part.filter = row_ids, self.filter if masked else None
        part.shortcut = Shortcut(len(which), self.threads)
        part.progress = lambda done, total: None
        part._rows = {kind: [] for kind in self._rows}
        return part

    def answer(self) -> Answer:
        """What was found in the blocks that were gone over to their end."""
        nothing = Sample(_NO_ROWS, np.empty((0, self.usable_queries.shape[1])))
        whole = self._whole or _Whole([EMPTY] * len(self.best), 0.0, _NO_ROWS, _NO_ROWS, nothing)
        offsets, rows, scores, cut = flattened(whole.best)
        return Answer(
            offsets=offsets,
            rows=rows,
            scores=scores,
            order=None,
            cut=cut,
            norm=whole.norm,
            left_out=whole.left_out,
            zero=whole.zero,
            sample=whole.sample,
            seconds=self.seconds,
        )

    def take(self, answer: Answer) -> None:
        """Go on from an answer over other rows; to be called before any block."""
        self.best, self.norm = answer.best, answer.norm
        self._rows = {"left out": [answer.left_out], "zero": [answer.zero]}
        self._seconds = dict(answer.seconds)
        self._whole = _Whole(
            list(self.best), self.norm, answer.left_out, answer.zero, answer.sample
        )

    @property
    def seconds(self) -> dict[str, float]:
        """What was spent on what so far."""
        return dict(self._seconds)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time until the end to what was spent on a part of the work."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.waited(part, time.perf_counter() - begun)

    def waited(self, part: str, seconds: float) -> None:
        """Add to what was spent on a part of the work."""
        self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    def _over_tile_in_float64(self, start: int, chunk: NDArray[Any], tile: slice) -> None:
        try:
            self._over_tile(start, chunk, tile, np.dtype(np.float64))
        except OutOfRange:
            raise InputError(
                "vectors hold values whose squares float64 cannot hold "
                f"(rows {start:,} to {start + len(chunk) - 1:,} of the base, or the queries)",
                hint="scale base and queries by one factor: the neighbours stay the same",
            ) from None

    def report(self, start: int, rows: int, tile: slice, share: float) -> None:
        """Tell how far the search is: a share of one chunk for one tile of queries is done."""
        queries = (tile.start + share * (tile.stop - tile.start)) / len(self.usable)
        done = start + queries * rows
        # A screen that is repeated for a few queries does not turn the bar back.
        if done > self._done:
            self._done = done
            self.progress(done, self._length)

    def note(self, start: int, block: Block) -> None:
        """Remember rows without a score."""
        bad = np.setdiff1d(block.unusable, block.zero)
        for kind, rows in (("left out", bad), ("zero", block.zero)):
            if len(rows):
                self._rows[kind].append(start + rows)

    def _note_rows(self, start: int, chunk: NDArray[Any]) -> None:
        for low in range(0, len(chunk), _FEW_ROWS):
            rows = chunk[low : low + _FEW_ROWS]
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
            self._rows["left out"].append(start + low + bad)
            if self.space.name == "cosine":
                self._rows["zero"].append(start + low + np.flatnonzero(~rows.any(axis=1)))

    def _over_tile(
        self, start: int, chunk: NDArray[Any], tile: slice, dtype: np.dtype[Any]
    ) -> None:
        """Screen and settle one chunk for one tile of queries, in halves where memory is short."""
        try:
            if self.space.compares == "bits":
                PackedPass(self, start, chunk, tile).run()
            else:
                ChunkPass(self, start, chunk, tile, dtype).run()
        except TooMany:
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
