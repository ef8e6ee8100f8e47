"""Who does the work: threads of this process, processes of this machine, or a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from semrecall.data import Ids
from semrecall.errors import InputError, MissingExtra, SystemFault
from semrecall.exact.answer import Answer
from semrecall.exact.search import workers as cores
from semrecall.truth.work import Job, Tally, Task, missing, tasks_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ENGINES", "by_processes", "by_threads", "collected", "refuse_own_memory"]

ENGINES = ("threads", "processes", "ray")
_LOSSES = 3  # of workers, one after another without a task done, that are made good


def by_threads(job: Job, tally: Tally, row_ids: Ids | None) -> Answer:
    """Block by block on all cores of this process, each block read while the last is used."""
    before = low = 0

    def progress(done: float, _: int | None) -> None:
        tally.tell(before + done - low)

    with tally.kept(), job.scan(progress) as scan:
        if tally.answer is not None:
            scan.take(tally.answer)
        for low, high in missing(tally.done, tally.rows):
            before = tally.rows_done
            ahead = job.blocks(low, high)
            for start, block in ahead:
                scan.waited("reading", ahead.waited_seconds)
                ahead.waited_seconds = 0.0
                scan.over(start, block, row_ids)
                tally.add(scan.answer, [(start, start + len(block))])
        return scan.answer()


def by_processes(
    job: Job, tally: Tally, order: NDArray[np.int64] | None, workers: int | None
) -> Answer:
    """Task by task on a pool of processes with one thread each; tasks of one that dies are redone.

    Raises SystemFault where workers die again and again.
    """
    refuse_own_memory(job)
    count = workers or cores()
    job = replace(job, memory=max(job.memory // count, 1 << 20), threads=1)
    todo = tasks_of(job, missing(tally.done, tally.rows), count, order)
    collect = collected(job, tally, order)
    losses = 0
    with tally.kept():
        while todo:
            before = len(todo)
            try:
                _round(job, todo, min(count, len(todo)), collect)
            except BrokenProcessPool:
                losses = losses + 1 if len(todo) == before else 1
                if losses > _LOSSES:
                    raise SystemFault(
                        f"a worker process died {losses} times without finishing a task",
                        hint="was it killed for lack of memory? Give a smaller --memory or fewer "
                        "--workers. A script that calls this needs the line "
                        'if __name__ == "__main__": around its work.',
                    ) from None
    return collect([], [])


def refuse_own_memory(job: Job) -> None:
    """InputError for shards that no other process can see."""
    for name in job.shards.names:
        if name.startswith("memory://"):
            raise InputError(f"{name}: memory:// is of this process alone; use the engine threads")


def collected(
    job: Job, tally: Tally, order: NDArray[np.int64] | None
) -> Callable[[list[Answer], list[Task]], Answer]:
    """A function that takes answers in with their tasks, and gives the answer over all so far."""
    whole = tally.answer
    if whole is not None and order is not None:
        whole = replace(whole, order=order[whole.rows])

    def collect(answers: list[Answer], tasks: list[Task]) -> Answer:
        nonlocal whole
        known = [*answers] if whole is None else [whole, *answers]
        whole = result = job.merged(known) if known else job.answer(Task(0, 0))
        if tasks:
            tally.add(lambda: result, [(task.low, task.high) for task in tasks])
            tally.tell(tally.rows_done)
        return result

    return collect


# -- processes ----------------------------------------------------------------------------------

_job: Job | None = None


def _begin(job: Job) -> None:
    """Make this process a worker: it knows the job, leaves Ctrl-C to its parent, ends with it."""
    import signal

    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    from multiprocessing.connection import wait as wait_for

    wait_for([sentinel])
    os._exit(1)


def _answer(task: Task) -> Answer:
    assert _job is not None
    try:
        return _job.answer(task)
    except MissingExtra as error:
        # That one does not survive being sent.
        raise InputError(error.message, hint=error.hint) from None


def _round(
    job: Job, todo: list[Task], count: int, collect: Callable[[list[Answer], list[Task]], Answer]
) -> None:
    """Do tasks until none is left or a worker dies; what is done is taken from the list."""
    others = {process.pid for process in multiprocessing.active_children()}
    context = multiprocessing.get_context("spawn")
    with _ended(others), _one_thread_each():
        pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(job,))
        waiting = list(todo)
        running: dict[Future[Answer], Task] = {}
        while waiting or running:
            while waiting and len(running) < 2 * count:
                task = waiting.pop(0)
                running[pool.submit(_answer, task)] = task
            # A short wait at a time leaves room for Ctrl-C on every platform.
            for future in wait(running, 1.0, FIRST_COMPLETED).done:
                task = running[future]
                answer = future.result()
                del running[future]
                todo.remove(task)
                collect([answer], [task])
        pool.shutdown()


@contextmanager
def _ended(others: set[int | None]) -> Iterator[None]:
    """Whatever happens, no process that was started meanwhile stays."""
    try:
        yield
    finally:
        ours = [p for p in multiprocessing.active_children() if p.pid not in others]
        for process in ours:
            process.terminate()
        for process in ours:
            process.join(5.0)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that start meanwhile do products with one thread each."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
