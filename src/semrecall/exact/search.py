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
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Run, Vectors
from semrecall.data.vectors import Fingerprint, identity_of
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact.chunk import ChunkPass, TooMany
from semrecall.exact.filters import Filter
from semrecall.exact.pruned import Shortcut
from semrecall.exact.screen import Block, OutOfRange
from semrecall.exact.settle import EMPTY, Best
from semrecall.space import Space, space
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Progress", "query_reasons", "search", "workers"]

#: Called with rows done and rows in all (None while it is not known).
Progress = Callable[[float, "int | None"], None]

_TILE = 2048  # queries that share one pass over a chunk
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


def query_reasons(queries: NDArray[Any], space: Space) -> list[str]:
    """Why each query (m, d) can have no neighbours; "" where it can."""
    finite = np.isfinite(queries).all(axis=1)
    directed = np.ones(len(queries), dtype=bool)
    if space.name != "l2":
        directed = np.asarray(queries.any(axis=1))
    return [
        _BAD if not f else _ZERO if not d else ""
        for f, d in zip(finite.tolist(), directed.tolist(), strict=True)
    ]


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


@dataclass
class _Search:
    """One search under way: what the chunks have in common, and the best so far."""

    space: Space
    base: Vectors
    queries: Vectors
    k: int
    filter: Filter | None
    memory: int = 0
    threads: int = 1
    progress: Progress = field(default=lambda done, total: None)
    norm: float = 0.0  # the largest among the rows seen so far
    done: float = 0.0

    def run(self) -> Run:
        """Go over the base once and put the answer together."""
        matrix = self.queries.require_matrix()
        self._reasons = query_reasons(matrix, self.space)
        self.usable = np.flatnonzero([not r for r in self._reasons])
        self.usable_queries = matrix[self.usable]
        self.best: list[Best] = [EMPTY] * len(self.usable)
        self._left_out: list[int] = []
        self._zero_rows: list[int] = []
        self.row_ids = self.base.given_ids
        self.most_ties = max(1000, 10 * self.k)
        self.shortcut = Shortcut(len(self.usable), self.threads)
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
        if len(self.usable) == 0:
            self._note_rows(start, chunk)
            return
        for low in range(0, len(self.usable), _TILE):
            tile = slice(low, min(low + _TILE, len(self.usable)))
            try:
                self._over_tile(start, chunk, tile, np.dtype(np.float32))
            except OutOfRange:
                self._over_tile_in_float64(start, chunk, tile)
            self.report(start, len(chunk), tile, 1.0)

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
        if done > self.done:
            self.done = done
            self.progress(done, self.base.length)

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

    def _finished(self, rows: int, fingerprint: str) -> Run:
        zero = np.array(sorted(set(self._zero_rows)), dtype=np.int64)
        empty = [EMPTY] * len(self.queries)
        for query, best in zip(self.usable.tolist(), self.best, strict=True):
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
            "base": identity_of(self.base, rows, fingerprint),
            "queries": identity_of(self.queries, len(self.queries), self.queries.fingerprint),
            "filter": None if self.filter is None else self.filter.fingerprint,
            "left_out_rows": len(set(self._left_out)),
            "zero_rows": len(set(self._zero_rows)),
            "semrecall": version("semrecall"),
        }

    def _warn(self, zero_rows: int, cut: int) -> None:
        bad = sorted(set(self._left_out))
        if bad:
            shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
            _say(f"{plural(len(bad), 'base row')} left out, with NaN or infinity: {shown}")
        if zero_rows:
            counted = plural(zero_rows, "base row")
            _say(f"{counted} without a score: zero vectors have none under cosine")
        for reason in (_BAD, _ZERO):
            rows = [i for i, r in enumerate(self._reasons) if r == reason]
            if rows:
                shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
                counted = plural(len(rows), "query", "queries")
                _say(f"{counted} without neighbours ({reason}): {shown}")
        if cut:
            _say(
                f"{plural(cut, 'query', 'queries')} with more than {self.most_ties:,} ties with "
                f"neighbour {self.k}; the rest of the ties, by id, are not in the truth"
            )


def _say(message: str) -> None:
    warnings.warn(message, SemrecallWarning, stacklevel=5)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Products run beside each other, one on each core, so each needs one thread only."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        yield
