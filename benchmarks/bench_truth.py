"""How long exact truth takes, beside the bare matrix product and other libraries, in one run.

    python benchmarks/bench_truth.py [--data copies] [--rows 10000] [--queries 100,1000,8000]
                                     [--space ip] [-k 100] [--rounds 5] [--threads 1]

Data sets:

    copies  187,038 x 384: six noisy copies of the unit vectors of the shared MiniLM set where that
            is there, else random clusters
    docs    31,173 x 384: that set itself, and queries made from its rows by a little noise
    lifted  120,000 x 1,024: `copies` turned into more dimensions, with 15% noise in all of them,
            which has the falling spectrum of embeddings and no dimension that is empty
    noise   100,000 x 256: independent normal numbers, which no few directions describe

Every figure is the median of several rounds that take turns. "plain" is semrecall by matrix
products alone, "numpy only" what it is without numba. Other libraries (`bench_truth_peers.py`)
take part where they are installed. CPU seconds hold still where other programs share the machine,
and with `--threads 1` nothing in them is spent on waiting.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import threadpoolctl
from bench_truth_peers import peers
from numpy.typing import NDArray

from semrecall.exact import search
from semrecall.exact.compiled import compiled

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "dl-pool"

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def seeds(rng: np.random.Generator) -> Pair:
    if SHARED.exists():
        return (
            np.load(SHARED / "docs.minilm.f16.npy").astype(np.float32),
            np.load(SHARED / "queries.minilm.f32.npy"),
        )
    centres = rng.standard_normal((500, 384), dtype=np.float32)
    noise = rng.standard_normal((31_173, 384), dtype=np.float32)
    off = rng.standard_normal((150, 384), dtype=np.float32)
    return unit(centres[rng.integers(0, 500, 31_173)] + noise), unit(centres[:150] + off)


def noisy_copies(
    rng: np.random.Generator, rows: NDArray[np.float32], n: int
) -> NDArray[np.float32]:
    parts = [rows]
    while sum(map(len, parts)) < n:
        parts.append(rows + 0.03 * rng.standard_normal(rows.shape, dtype=np.float32))
    return unit(np.concatenate(parts)[:n])


def data(n_queries: int, name: str = "copies") -> Pair:
    rng = np.random.default_rng(0)
    if name == "noise":
        base = rng.standard_normal((100_000, 256), dtype=np.float32)
        return base, rng.standard_normal((n_queries, 256), dtype=np.float32)
    seed_rows, seed_queries = seeds(rng)
    if name == "docs":
        asked = seed_rows[rng.integers(0, len(seed_rows), n_queries)]
        return seed_rows, unit(asked + 0.02 * rng.standard_normal(asked.shape, dtype=np.float32))
    base = noisy_copies(rng, seed_rows, 187_038)
    base = np.ascontiguousarray(base[rng.permutation(len(base))])
    queries = noisy_copies(rng, seed_queries, n_queries)
    if name == "copies":
        return base, queries
    turn = np.linalg.qr(rng.standard_normal((1024, 384)))[0].T.astype(np.float32)
    return lifted(rng, base[:120_000], turn), lifted(rng, queries, turn)


def lifted(
    rng: np.random.Generator, rows: NDArray[np.float32], turn: NDArray[np.float32]
) -> NDArray[np.float32]:
    noise = unit(rng.standard_normal((len(rows), turn.shape[1]), dtype=np.float32))
    return unit(rows @ turn + np.float32(np.sqrt(0.15 / 0.85)) * noise)


def product(base: NDArray[np.float32], queries: NDArray[np.float32]) -> None:
    """The bare product, in blocks as large as memory likes, its result thrown away."""
    step = max(4096, 50_000_000 // len(queries))
    out = np.empty((len(queries), step), dtype=np.float32)
    for low in range(0, len(base), step):
        rows = base[low : low + step]
        np.matmul(queries, rows.T, out=out[:, : len(rows)] if len(rows) == step else None)


def seconds(task: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    task()
    return time.perf_counter() - wall, time.process_time() - cpu


def medians(
    tasks: dict[str, Callable[[], object]], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Median wall and CPU seconds of tasks that take turns, the first turn not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for _ in range(rounds + 1):
        for name, task in tasks.items():
            times[name].append(seconds(task))
    return (
        {name: statistics.median(w for w, _ in runs[1:]) for name, runs in times.items()},
        {name: statistics.median(c for _, c in runs[1:]) for name, runs in times.items()},
    )


def tasks_of(
    base: NDArray[np.float32], queries: NDArray[np.float32], options: argparse.Namespace
) -> dict[str, Callable[[], object]]:
    k, space, threads = options.k, options.space, options.threads

    def ours() -> None:
        search(base, queries, k, space, threads=threads)

    def numpy_only() -> None:
        with mock.patch("semrecall.exact.chunk.fused", return_value=None):
            ours()

    def plain() -> None:
        with mock.patch("semrecall.exact.pruned.worth_a_look", return_value=False):
            numpy_only()

    tasks = {
        "semrecall": ours,
        "numpy only": numpy_only,
        "plain": plain,
        "product": lambda: product(base, queries),
        **peers(base, queries, k, space, threads or 0),
    }
    return {name: task for name, task in tasks.items() if name not in options.without}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="copies", choices=["copies", "docs", "lifted", "noise"])
    parser.add_argument("--queries", default="100,150,250,1000,4000")
    parser.add_argument("--rows", type=int, default=None, help="so many of the rows only")
    parser.add_argument("--space", default="ip")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--without", default="", help="names to leave out, with commas")
    options = parser.parse_args()
    options.without = options.without.split(",")
    if options.threads:
        threadpoolctl.threadpool_limits(limits=options.threads)
    compiled()  # once a process, and not what is measured here
    for n_queries in map(int, options.queries.split(",")):
        base, queries = data(n_queries, options.data)
        base = base[: options.rows]
        shape = f"{len(base):,} x {base.shape[1]:,}, {n_queries:,} queries"
        print(f"{options.data} {shape}, k = {options.k}, {options.space}")
        wall, cpu = medians(tasks_of(base, queries, options), options.rounds)
        for name in wall:
            print(
                f"  {name:14} wall {wall[name]:8.4f} s ({wall[name] / wall['semrecall']:5.2f})"
                f"   CPU {cpu[name]:8.4f} s ({cpu[name] / cpu['semrecall']:5.2f})",
                flush=True,
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
