"""Exact search over bits and over documents of several vectors, beside what else there is.

    python benchmarks/bench_spaces.py [--rows 1000000] [--bits 1024] [--queries 1000] [-k 100]
    python benchmarks/bench_spaces.py --documents 20000 [--queries 50]

Rounds take turns in one process; the medians are printed, and how many times as long as semrecall.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from semrecall.data import MultiVectors
from semrecall.exact import packed, search
from semrecall.exact.maxsim import search_documents


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--documents", type=int, help="of several vectors, in place of bits")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.documents:
        _documents(given.documents, min(given.queries, 50), given.k, given.rounds)
        return
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, (given.rows, given.bits // 8), dtype=np.uint8)
    queries = rng.integers(0, 256, (given.queries, given.bits // 8), dtype=np.uint8)
    ways: dict[str, Callable[[], object]] = {
        "hamming": lambda: search(base, queries, given.k, "hamming"),
        "jaccard": lambda: search(base, queries, given.k, "jaccard"),
        "hamming, numpy alone": lambda: _numpy_alone(base, queries, given.k),
    }
    try:
        import faiss
    except ImportError:
        pass
    else:
        index = faiss.IndexBinaryFlat(given.bits)
        index.add(base)
        ways["faiss.IndexBinaryFlat"] = lambda: index.search(queries, given.k)
    print(f"{given.rows:,} x {given.bits:,} bits, {given.queries:,} queries, k = {given.k}")
    _measure(ways, given.rounds)


def _documents(n: int, m: int, k: int, rounds: int) -> None:
    """Unit vectors of 128 dimensions: 20 to 179 a document, 32 a query."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(20, 180, n))])
    base = MultiVectors.of(
        rng.standard_normal((offsets[-1], 128), dtype=np.float32), offsets=offsets
    ).normalised()
    queries = MultiVectors.of(rng.standard_normal((m, 32, 128), dtype=np.float32)).normalised()

    def plain() -> object:
        scores = np.empty((m, n), dtype=np.float32)
        for low in range(0, n, 1000):
            part = base.part(low, min(low + 1000, n))
            products = queries.matrix @ part.matrix.T
            largest = np.maximum.reduceat(products, part.offsets[:-1], axis=1)
            scores[:, low : low + 1000] = largest.reshape(m, 32, -1).sum(axis=1)
        return np.argpartition(-scores, k, axis=1)

    print(f"{n:,} documents, {len(base.matrix):,} vectors, {m:,} queries of 32, k = {k}")
    _measure(
        {"maxsim": lambda: search_documents(base, queries, k), "numpy, float32": plain}, rounds
    )


def _numpy_alone(base: object, queries: object, k: int) -> object:
    """As without numba."""
    known = packed.compiled
    packed.compiled = lambda name: None  # type: ignore[assignment]
    try:
        return search(base, queries, k, "hamming")
    finally:
        packed.compiled = known


def _measure(ways: dict[str, Callable[[], object]], rounds: int) -> None:
    for way in ways.values():
        way()  # loads, compiles, warms up
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    first = statistics.median(next(iter(seconds.values())))
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:32} {median:8.3f} s  {median / first:6.2f}")


if __name__ == "__main__":
    main()
