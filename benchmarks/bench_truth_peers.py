"""Exact search by other libraries, as fast as their settings let them be; see `bench_truth.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Task = Callable[[], object]
Rows = NDArray[np.float32]

_CELLS = 1 << 22  # scores at a time: about as many as the cache holds was fastest


def peers(base: Rows, queries: Rows, k: int, space: str, threads: int) -> dict[str, Task]:
    """Tasks by name, of the libraries that are installed and know the space; threads: 0 for all."""
    tasks: dict[str, Task] = {}
    for library in (_faiss, _numpy, _torch, _usearch, _scann, _sklearn):
        with suppress(ImportError):
            tasks |= library(base, queries, k, space, threads)
    return tasks


def _faiss(base: Rows, queries: Rows, k: int, space: str, threads: int) -> dict[str, Task]:
    import faiss

    if threads:
        faiss.omp_set_num_threads(threads)
    kind = faiss.METRIC_L2 if space == "l2" else faiss.METRIC_INNER_PRODUCT
    default = faiss.cvar.distance_compute_blas_threshold

    def knn(threshold: int) -> None:
        faiss.cvar.distance_compute_blas_threshold = threshold
        faiss.knn(queries, base, k, metric=kind)
        faiss.cvar.distance_compute_blas_threshold = default

    return {"faiss": lambda: knn(default), "faiss BLAS": lambda: knn(1)}


def _blocks(base: Rows, queries: Rows) -> Iterator[tuple[slice, slice]]:
    rows = 16_384
    few = max(32, _CELLS // rows)
    for low in range(0, len(queries), few):
        for start in range(0, len(base), rows):
            yield slice(low, low + few), slice(start, start + rows)


def _numpy(base: Rows, queries: Rows, k: int, space: str, threads: int) -> dict[str, Task]:
    half = np.vecdot(base, base) / 2

    def top() -> list[Any]:
        best: dict[int, list[Any]] = {}
        for asked, rows in _blocks(base, queries):
            scores = queries[asked] @ base[rows].T
            if space == "l2":
                scores -= half[rows]
            few = min(k, scores.shape[1])
            place = np.argpartition(scores, -few, axis=1)[:, -few:]
            part = np.take_along_axis(scores, place, axis=1), place + rows.start
            best.setdefault(asked.start, []).append(part)
        return [_merged(parts, k) for parts in best.values()]

    return {"numpy": top}


def _merged(parts: list[Any], k: int) -> tuple[Any, Any]:
    scores, rows = (np.concatenate(p, axis=1) for p in zip(*parts, strict=True))
    order = np.argsort(-scores, axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def _torch(base: Rows, queries: Rows, k: int, space: str, threads: int) -> dict[str, Task]:
    import torch

    if threads:
        torch.set_num_threads(threads)
    x, q = torch.from_numpy(base), torch.from_numpy(queries)
    half = (x * x).sum(1) / 2

    def top() -> list[Any]:
        best: dict[int, list[Any]] = {}
        for asked, rows in _blocks(base, queries):
            scores = q[asked] @ x[rows].T
            if space == "l2":
                scores -= half[rows]
            values, place = scores.topk(min(k, scores.shape[1]), dim=1)
            best.setdefault(asked.start, []).append((values, place + rows.start))
        return [
            torch.cat([v for v, _ in parts], 1).topk(k, dim=1).values for parts in best.values()
        ]

    return {"torch": top}


def _usearch(base: Rows, queries: Rows, k: int, space: str, threads: int) -> dict[str, Task]:
    from usearch.index import search

    metric = "l2sq" if space == "l2" else "ip"
    return {"usearch": lambda: search(base, queries, k, metric, exact=True, threads=threads)}


def _scann(base: Rows, queries: Rows, k: int, space: str, threads: int) -> dict[str, Task]:
    import scann

    distance = "squared_l2" if space == "l2" else "dot_product"
    builder = scann.scann_ops_pybind.builder(base, k, distance).score_brute_force()
    searcher = builder.build()  # not counted: it copies the rows
    if threads == 1:
        return {"scann": lambda: searcher.search_batched(queries)}
    return {"scann": lambda: searcher.search_batched_parallel(queries)}


def _sklearn(base: Rows, queries: Rows, k: int, space: str, threads: int) -> dict[str, Task]:
    from sklearn.neighbors import NearestNeighbors

    # It has no inner product; between unit vectors the order is that of the distance.
    found = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(base)
    return {"sklearn": lambda: found.kneighbors(queries)}
