"""Exact search on a Ray cluster: tasks of rows, their answers merged in a tree across the nodes."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semrecall.errors import InputError, MissingExtra, SystemFault
from semrecall.exact.answer import Answer
from semrecall.registry import import_extra
from semrecall.truth.engines import collected, refuse_own_memory
from semrecall.truth.work import Job, Tally, Task, missing, tasks_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["by_ray"]

_RETRIES = 8  # of a task whose worker or node died
_KNOCK_SECONDS = 10.0
_LEAST_FAN_IN, _MOST_FAN_IN = 2, 32


def by_ray(
    job: Job,
    tally: Tally,
    order: NDArray[np.int64] | None,
    workers: int | None,
    address: str | None,
) -> Answer:
    """Task by task on the nodes of a cluster, or on this machine where there is no address.

    Workers get the paths of the shards and read them themselves; queries are sent to each node
    once. Answers stay on the nodes, in a store that spills to disk, until some of them are merged
    there. What a worker or a node that dies had is computed again.
    """
    refuse_own_memory(job)
    ray = import_extra("ray", "ray", "the engine ray")
    with _connected(ray, address):
        cpus = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        # The memory is that of a node, whose cores share it.
        busiest = max((n["Resources"].get("CPU", 1) for n in ray.nodes() if n["Alive"]), default=1)
        share = max(int(job.memory // max(1, min(busiest, cpus))), 1 << 20)
        job = replace(job, shards=job.shards.absolute(), memory=share, threads=1)
        todo = tasks_of(job, missing(tally.done, tally.rows), cpus, order)
        with tally.kept(), _plain_faults(ray):
            return _run(ray, job, tally, order, todo, cpus)


def _run(
    ray: Any,
    job: Job,
    tally: Tally,
    order: NDArray[np.int64] | None,
    todo: list[Task],
    cpus: int,
) -> Answer:
    scan = ray.remote(num_cpus=1, max_retries=_RETRIES)(_scan)
    merge = ray.remote(num_cpus=1, max_retries=_RETRIES)(_merge)
    homes = _homes(ray, job, cpus)
    known = ray.put(job)
    collect = collected(job, tally, order)
    fan_in = max(_LEAST_FAN_IN, min(_MOST_FAN_IN, math.isqrt(len(todo))))
    waiting = list(reversed(todo))
    scanning: dict[Any, Task] = {}
    merging: dict[Any, list[Task]] = {}
    scanned: list[tuple[Any, Task]] = []
    while waiting or scanning or scanned or merging:
        while waiting and len(scanning) < 2 * cpus:
            task = waiting.pop()
            scanning[scan.options(**homes(task)).remote(known, task)] = task
        ready, _ = ray.wait([*scanning, *merging], num_returns=1, timeout=1.0, fetch_local=False)
        for ref in ready:
            if ref in scanning:
                scanned.append((ref, scanning.pop(ref)))
                _tell(tally, merging, scanned)
            else:
                tasks = merging.pop(ref)
                collect([ray.get(ref)], tasks)
        if len(scanned) >= fan_in or (scanned and not scanning and not waiting):
            refs = [ref for ref, _ in scanned[:fan_in]]
            merging[merge.remote(known, *refs)] = [task for _, task in scanned[:fan_in]]
            scanned = scanned[fan_in:]
    return collect([], [])


def _tell(tally: Tally, merging: dict[Any, list[Task]], scanned: list[tuple[Any, Task]]) -> None:
    held = [*(task for tasks in merging.values() for task in tasks), *(t for _, t in scanned)]
    tally.tell(tally.rows_done + sum(t.high - t.low for t in held))


def _scan(job: Job, task: Task) -> Answer:
    try:
        return job.answer(task)
    except MissingExtra as error:
        raise InputError(error.message, hint=f"on every node: {error.hint}") from None


def _merge(job: Job, *answers: Answer) -> Answer:
    return job.merged(answers)


# -- the cluster --------------------------------------------------------------------------------


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect, unless the program that calls is connected already; its connection stays."""
    if ray.is_initialized():
        yield
        return
    if address not in (None, "auto", "local"):
        _knock(address.removeprefix("ray://"))
    try:
        options = {"address": address} if address else {"include_dashboard": False}
        ray.init(**options, log_to_driver=False, logging_level="error", configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise _no_cluster(address or "this machine", error) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """SystemFault where nobody listens: Ray itself would go on asking for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"address is {address!r}; expected HOST:PORT, or auto")
    try:
        socket.create_connection((host, int(port)), _KNOCK_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> SystemFault:
    reason = " ".join(str(error).split()) or type(error).__name__
    return SystemFault(
        f"no Ray cluster at {address}: {reason}",
        hint="--address HOST:PORT is that of the head node, or auto on a node of the cluster; "
        "where tokens are asked for, set RAY_AUTH_MODE=token and the token here, too",
    )


@contextmanager
def _plain_faults(ray: Any) -> Iterator[None]:
    """What went wrong within a task, as if it had gone wrong here."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, BaseException):
            raise cause from None
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).splitlines()[0]
        raise SystemFault(f"the Ray cluster failed: {reason}") from error


def _homes(ray: Any, job: Job, cpus: int) -> Any:
    """Where a task had best run: a node that has its shard, where only some of them have it."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    paths = [shard.source.location for shard in job.shards.files if shard.source.local is not None]
    if len(nodes) < 2 or not paths:
        return lambda task: {}
    strategy = import_extra("ray.util.scheduling_strategies", "ray", "the engine ray")
    look = ray.remote(num_cpus=0, max_retries=1)(_present)
    asked = [
        look.options(
            scheduling_strategy=strategy.NodeAffinitySchedulingStrategy(node, soft=True)
        ).remote(paths)
        for node in nodes
    ]
    having: dict[str, list[str]] = {path: [] for path in paths}
    for node, found in zip(nodes, ray.get(asked), strict=True):
        for path in found:
            having[path].append(node)
    lost = [path for path, homes in having.items() if not homes]
    if lost:
        raise InputError(
            f"{lost[0]} is on no node of the cluster",
            hint="put shards on a file system that all nodes share, or name them by URL",
        )

    def home(task: Task) -> dict[str, Any]:
        homes = having.get(job.shards.at(task.low).source.location, nodes)
        if len(homes) == len(nodes):
            return {}
        node = homes[task.low % len(homes)]
        return {"scheduling_strategy": strategy.NodeAffinitySchedulingStrategy(node, soft=True)}

    return home


def _present(paths: list[str]) -> list[str]:
    import os

    return [path for path in paths if os.path.exists(path)]
