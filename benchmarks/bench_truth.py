"""How long exact truth takes, beside the bare matrix product and faiss, all in one run.

    python benchmarks/bench_truth.py [--queries 100,250,1000] [--space ip] [-k 100] [--rounds 5]

The base is 187,038 x 384: six noisy copies of the unit vectors of the shared MiniLM set where that
is there, else random clusters. Every figure is the median of several rounds that take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from semrecall.exact import search

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "dl-pool"
ROWS, DIMENSIONS = 187_038, 384


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def data(n_queries: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    if SHARED.exists():
        seed_rows = np.load(SHARED / "docs.minilm.f16.npy").astype(np.float32)
        seed_queries = np.load(SHARED / "queries.minilm.f32.npy")
    else:
        centres = rng.standard_normal((500, DIMENSIONS), dtype=np.float32)
        noise = rng.standard_normal((31_173, DIMENSIONS), dtype=np.float32)
        seed_rows = unit(centres[rng.integers(0, 500, 31_173)] + noise)
        off = rng.standard_normal((150, DIMENSIONS), dtype=np.float32)
        seed_queries = unit(centres[:150] + off)

    def copies(rows: NDArray[np.float32], n: int) -> NDArray[np.float32]:
        parts = [rows]
        while sum(map(len, parts)) < n:
            parts.append(rows + 0.03 * rng.standard_normal(rows.shape, dtype=np.float32))
        return unit(np.concatenate(parts)[:n])

    base = copies(seed_rows, ROWS)
    return np.ascontiguousarray(base[rng.permutation(ROWS)]), copies(seed_queries, n_queries)


def product(base: NDArray[np.float32], queries: NDArray[np.float32]) -> None:
    """The bare product, in blocks as large as memory likes, its result thrown away."""
    step = max(4096, 50_000_000 // len(queries))
    out = np.empty((len(queries), step), dtype=np.float32)
    for low in range(0, len(base), step):
        rows = base[low : low + step]
        np.matmul(queries, rows.T, out=out[:, : len(rows)] if len(rows) == step else None)


def faiss_knn(base: NDArray[np.float32], queries: NDArray[np.float32], k: int, space: str) -> None:
    kind = faiss.METRIC_L2 if space == "l2" else faiss.METRIC_INNER_PRODUCT
    faiss.knn(queries, base, k, metric=kind)


def seconds(task: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds; CPU seconds hold still where other programs share the machine."""
    cpu, wall = time.process_time(), time.perf_counter()
    task()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", default="100,150,250,1000,4000")
    parser.add_argument("--space", default="ip")
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    plain = faiss.cvar.distance_compute_blas_threshold
    print(f"{ROWS:,} x {DIMENSIONS}, k = {options.k}, {options.space}; seconds, median")
    print(
        "queries  product  semrecall  faiss  faiss best | semrecall/product  in CPU seconds  "
        "faiss/semrecall"
    )
    for n_queries in map(int, options.queries.split(",")):
        base, queries = data(n_queries)

        def with_threshold(
            value: int, base: NDArray[np.float32] = base, queries: NDArray[np.float32] = queries
        ) -> None:
            faiss.cvar.distance_compute_blas_threshold = value
            faiss_knn(base, queries, options.k, options.space)
            faiss.cvar.distance_compute_blas_threshold = plain

        tasks: dict[str, Callable[[], object]] = {
            "product": lambda base=base, queries=queries: product(base, queries),
            "semrecall": lambda base=base, queries=queries: search(
                base, queries, options.k, options.space
            ),
            "faiss": lambda run=with_threshold: run(plain),
            "faiss best": lambda run=with_threshold: run(1),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
        for _ in range(options.rounds + 1):
            for name, task in tasks.items():
                times[name].append(seconds(task))
        wall = {name: statistics.median(w for w, _ in runs[1:]) for name, runs in times.items()}
        cpu = {name: statistics.median(c for _, c in runs[1:]) for name, runs in times.items()}
        best_faiss = min(wall["faiss"], wall["faiss best"])
        print(
            f"{n_queries:7,}  {wall['product']:7.3f}  {wall['semrecall']:9.3f}  "
            f"{wall['faiss']:5.2f}  {best_faiss:10.3f} | "
            f"{wall['semrecall'] / wall['product']:17.2f}  "
            f"{cpu['semrecall'] / cpu['product']:14.2f}  "
            f"{wall['faiss'] / wall['semrecall']:15.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
