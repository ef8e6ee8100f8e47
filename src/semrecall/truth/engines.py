"""Who does the work: threads of this process, processes of this machine, or a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from semrecall.data import Ids
from semrecall.errors import InputError, SystemFault
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
            except _Lost:
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


class _Lost(Exception):
    """A worker process died."""


def _round(
    job: Job, todo: list[Task], count: int, collect: Callable[[list[Answer], list[Task]], Answer]
) -> None:
    """Do tasks until none is left; what is done is taken from the list. _Lost where a worker dies.

    Errors within a worker are raised here, the place in its code as a note.
    """
    waiting = iter(list(todo))
    running: dict[Connection, Task] = {}

    def give(pipe: Connection) -> None:
        task = next(waiting, None)
        if task is not None:
            running[pipe] = task
            with _lost():
                pipe.send(task)

    with _one_thread_each(), _workers(count) as pipes:
        for pipe in pipes:
            with _lost():
                pipe.send(job)
        for pipe in pipes:
            give(pipe)
        while running:
            # A short wait at a time leaves room for Ctrl-C on every platform.
            ready = set(wait(running, 1.0))
            for pipe in [pipe for pipe in running if pipe in ready]:
                with _lost():
                    answer = pipe.recv()
                if isinstance(answer, Exception):
                    raise answer
                task = running.pop(pipe)
                give(pipe)
                todo.remove(task)
                collect([answer], [task])


@contextmanager
def _workers(count: int) -> Iterator[list[Connection]]:
    """The near ends of pipes to so many workers; whatever happens, none of them stays.

    The far end of each is its worker's alone, so one that dies in the middle of an answer ends
    its pipe. (A pool of the standard library shares one pipe, and would wait for the rest.)
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pipes = []
        for _ in range(count):
            near, far = context.Pipe()
            pipes.append(stack.enter_context(near))
            with far, _deaf():
                process = context.Process(target=_work, args=(far,), daemon=True)
                process.start()
            stack.callback(process.join, 5.0)
            stack.callback(process.terminate)
        yield pipes


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that start meanwhile do not hear Ctrl-C, not even while they are loading."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # starting one later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _lost() -> Iterator[None]:
    """_Lost for what a pipe raises whose worker died."""
    try:
        yield
    except (EOFError, OSError):
        raise _Lost from None


def _work(pipe: Connection) -> None:
    """The life of a worker: answers to the tasks it is sent, until its parent ends it.

    It leaves Ctrl-C to its parent, and ends with it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    with suppress(EOFError, OSError):  # of the pipe, where the parent ended first
        job = pipe.recv()
        while True:
            pipe.send(_answer(job, pipe.recv()))


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _answer(job: Job, task: Task) -> Answer | Exception:
    """The answer, or what was raised instead, in a form that survives being sent."""
    import pickle
    import traceback

    try:
        return job.answer(task)
    except Exception as error:
        where = f"in a worker process:\n{traceback.format_exc()}"
        try:
            sent: Exception = pickle.loads(pickle.dumps(error))
        except Exception:
            sent = SystemFault(f"{type(error).__name__}: {error}")
        sent.add_note(where)
        return sent


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
