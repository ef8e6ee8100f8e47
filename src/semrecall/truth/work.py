"""One exact search over shards: what each worker is told, and the tally of what they found."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Ids
from semrecall.errors import SemrecallWarning
from semrecall.exact.answer import Answer
from semrecall.exact.filters import Filter
from semrecall.exact.merge import merged
from semrecall.exact.search import Progress, Scan, chunk_rows
from semrecall.space import Space
from semrecall.truth.checkpoint import Checkpoint, Ranges
from semrecall.truth.reading import Ahead
from semrecall.truth.shards import Shards

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Job", "Tally", "Task", "id_order", "missing", "tasks_of"]

_LEAST_ROWS = 4096  # of a task: below, starting it costs more than the work
_MOST_BYTES = 1 << 30  # of a task: what is lost where its worker dies
_TASKS_A_WORKER = 4


@dataclass(frozen=True)
class Job:
    """What does not change from task to task; it is sent to every worker once.

    queries (m, d): each with a direction; numbers (m,): what `allowed` knows them by.
    memory, threads: of one worker.
    """

    shards: Shards
    queries: NDArray[np.floating]
    numbers: NDArray[np.int64]
    space: Space
    k: int
    allowed: Filter | None
    memory: int
    threads: int
    device: str | None = None

    def scan(self, progress: Progress | None = None) -> Scan:
        """A search of the queries."""
        return Scan(
            self.space,
            self.queries,
            self.k,
            allowed=self.allowed,
            query_numbers=self.numbers,
            memory=self._for_blocks,
            threads=self.threads,
            progress=progress,
            device=self.device,
        )

    def blocks(self, low: int, high: int) -> Ahead:
        """Rows of the base, read ahead; two blocks of them are held."""
        rows = chunk_rows(self.shards.dimension, self.shards.dtype, self._for_blocks, copies=2)
        return Ahead(self.shards, low, high, rows)

    @property
    def _for_blocks(self) -> int:
        """The memory without what results, their copy in a checkpoint and the products take."""
        results = 2 * 16 * len(self.queries) * self.k
        products = self.threads * ((4 << 20) + 4096 * 8 * self.shards.dimension) + (16 << 20)
        return max(self.memory - results - products, self.memory // 4, 1 << 20)

    def answer(self, task: Task) -> Answer:
        """The answer over the rows of one task."""
        with self.scan() as scan:
            ahead = self.blocks(task.low, task.high)
            for start, block in ahead:
                scan.over(start, block, None if task.order is None else task)
            found = scan.answer()
        found.seconds["reading"] = ahead.waited_seconds
        return found if task.order is None else replace(found, order=task[found.rows].codes)

    def merged(self, answers: Sequence[Answer]) -> Answer:
        """Several answers as one."""
        return merged(self.space, self.k, answers)


@dataclass(frozen=True)
class Task:
    """Rows from low to high. order: numbers that sort as their ids do; None: rows are the ids."""

    low: int
    high: int
    order: NDArray[np.int64] | None = None

    def __getitem__(self, rows: NDArray[np.int64], /) -> Ids:
        assert self.order is not None
        return Ids(self.order[rows - self.low])


def tasks_of(job: Job, todo: Ranges, workers: int, order: NDArray[np.int64] | None) -> list[Task]:
    """The rows that are to do, in tasks: several for each worker, none too large to do again."""
    rows = sum(high - low for low, high in todo)
    row_bytes = job.shards.dimension * job.shards.dtype.itemsize
    size = max(_LEAST_ROWS, min(-(-rows // (_TASKS_A_WORKER * workers)), _MOST_BYTES // row_bytes))
    tasks = []
    for start, stop in job.shards.ranges(size):
        for first, last in todo:
            low, high = max(start, first), min(stop, last)
            if low < high:
                tasks.append(Task(low, high, None if order is None else order[low:high]))
    return tasks


def id_order(ids: Ids | None) -> NDArray[np.int64] | None:
    """Numbers (n,) that sort as the ids do; None where there are none."""
    if ids is None or ids.are_integers:
        return None if ids is None else ids.codes
    places = np.empty(len(ids), dtype=np.int64)
    places[np.argsort(ids.array(), kind="stable")] = np.arange(len(ids))
    return places


def missing(done: Ranges, rows: int) -> Ranges:
    """The rows that are in none of the ranges."""
    left, at = [], 0
    for low, high in [*sorted(done), (rows, rows)]:
        if low > at:
            left.append((at, low))
        at = max(at, high)
    return left


class Tally:
    """What was found so far, and over which rows; kept now and then where there is a checkpoint.

    rows: of the base. progress: told how many of them are done.
    """

    def __init__(self, rows: int, progress: Progress, checkpoint: Checkpoint | None) -> None:
        self.rows, self._progress, self._checkpoint = rows, progress, checkpoint
        self._told, self._rows_kept = -1.0, 0
        self.answer: Answer | None = None
        self.done: Ranges = []
        self._found: Callable[[], Answer] | None = None
        kept = None if checkpoint is None else checkpoint.load()
        if checkpoint is not None and kept is not None:
            self.answer, self.done = kept
            self._rows_kept = self.rows_done
            _say(f"going on from {checkpoint.path}: {self.rows_done:,} of {rows:,} rows are done")
        self.tell(self.rows_done)

    def tell(self, done: float) -> None:
        """Report how many rows are done, in part or in a task that is not merged yet."""
        if done > self._told:
            self._told = done
            self._progress(done, self.rows)

    @property
    def rows_done(self) -> int:
        """How many."""
        return sum(high - low for low, high in self.done)

    def add(self, found: Callable[[], Answer], ranges: Ranges) -> None:
        """These rows are done, too. found: gives the answer over all, when it is needed."""
        self._found = found
        joined: Ranges = []
        for low, high in sorted([*self.done, *ranges]):
            if joined and joined[-1][1] == low:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        self.done = joined
        if self._checkpoint is not None and self._checkpoint.due:
            self._keep(self._checkpoint)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Whatever ends the work before its end: what was found until then is kept."""
        try:
            yield
        except BaseException:
            if self._checkpoint is not None:
                # On a full disk there is the checkpoint before.
                with suppress(OSError):
                    self._keep(self._checkpoint)
                if self._rows_kept:
                    _say(
                        f"{self._rows_kept:,} of {self.rows:,} rows are done and kept in "
                        f"{self._checkpoint.path}; the same command goes on from there"
                    )
            raise

    def _keep(self, checkpoint: Checkpoint) -> None:
        if self._found is not None:
            self.answer, self._found = self._found(), None
            checkpoint.save(self.answer, self.done)
            self._rows_kept = self.rows_done


def _say(message: str) -> None:
    warnings.warn(message, SemrecallWarning, stacklevel=3)
