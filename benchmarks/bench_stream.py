"""Exact truth over a base larger than memory: peak memory against the budget, and where time goes.

    python benchmarks/bench_stream.py [--rows 10000000] [--dimension 96] [--budget 2GB]
        [--queries 1000] [-k 10] [--space l2] [--threads 2] [--engine threads] [--shards 4]
        [--format fbin] [--times 50] [--folder DIRECTORY]

The base is made block by block and written to a folder that is removed in the end: clusters whose
spread falls over the dimensions, as that of embeddings does. `--times 50` makes it that many times
larger than the budget, whatever `--rows` says. Before the search the files are dropped from the
system's cache, so that reading is reading.

The search runs in a process of its own. Its memory is the highest resident size the kernel saw
(VmHWM) beyond what it had once libraries, compiled loops (about 130 MB with numba) and the queries
were there: it searches a few rows first and gives that memory back.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semrecall.cli.progress import bytes_of, size
from semrecall.data import Vectors
from semrecall.formats import write

BLOCK = 1 << 16


def block_of(number: int, rows: int, dimension: int) -> NDArray[np.float32]:
    """The rows of one block of the base, or of the queries (number -1)."""
    shared = np.random.default_rng(0)
    spread = (1.0 + np.arange(dimension, dtype=np.float32)) ** -0.5
    centres = shared.standard_normal((2_000, dimension), dtype=np.float32) * spread
    own = np.random.default_rng(number + 2)
    made = own.standard_normal((rows, dimension), dtype=np.float32)
    made *= 0.5 * spread
    made += centres[own.integers(0, len(centres), rows)]
    return made


class Blocks:
    """The rows of one shard, made as they are written."""

    def __init__(self, first: int, rows: int, dimension: int) -> None:
        self.first, self.rows, self.dimension = first, rows, dimension

    def __iter__(self):
        for number, low in enumerate(range(0, self.rows, BLOCK)):
            yield block_of(self.first + number, min(BLOCK, self.rows - low), self.dimension)


def make_base(folder: Path, rows: int, dimension: int, shards: int, suffix: str) -> None:
    """Write the shards and drop them from the cache of the system."""
    first = 0
    for number, part in enumerate(np.diff(np.linspace(0, rows, shards + 1).astype(int)).tolist()):
        path = folder / f"part-{number}.{suffix}"
        write(Vectors.from_blocks(Blocks(first, part, dimension), length=part), path)
        first += -(-part // BLOCK)
        with path.open("rb") as file:
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(name: str) -> int:
    """VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def search(given: argparse.Namespace, folder: Path) -> None:
    """The search itself, in a process of its own: prints what it took as JSON."""
    import semrecall as sr
    from semrecall.exact.compiled import compiled
    from semrecall.truth.verb import open_base

    queries = Vectors.of(block_of(-1, given.queries, given.dimension))
    # Everything that a search loads; its memory goes back to the system.
    compiled()
    sr.truth(block_of(1 << 20, 4 * BLOCK, given.dimension), queries, given.k, given.space)
    ctypes.CDLL(None).malloc_trim(0)
    base = open_base(folder)
    Path("/proc/self/clear_refs").write_text("5")
    before, timings = resident("VmRSS"), {}
    begun = time.perf_counter()
    run = sr.truth(
        base, queries, given.k, given.space, memory=bytes_of(given.budget), threads=given.threads,
        engine=given.engine, workers=given.threads, timings=timings,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    print(json.dumps({
        "seconds": seconds, "peak": resident("VmHWM") - before, "timings": timings,
        "sum": float(np.sum(run.flat_scores)),
    }))  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dimension", type=int, default=96)
    parser.add_argument("--budget", default="2GB")
    parser.add_argument("--times", type=float)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--space", default="l2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--engine", default="threads")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--format", default="fbin")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--search-in", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.times:
        given.rows = int(given.times * bytes_of(given.budget)) // (4 * given.dimension)
    return given


def main() -> None:
    given = arguments()
    if given.search_in is not None:
        search(given, given.search_in)
        return
    total, budget = 4 * given.rows * given.dimension, bytes_of(given.budget)
    print(
        f"{given.rows:,} x {given.dimension} float32, {size(total)} in {given.shards} "
        f"{given.format} files, {total / budget:.1f} times the budget of {size(budget)}; "
        f"{given.queries:,} queries, k = {given.k}, {given.space}, {given.threads} "
        f"{'threads' if given.engine == 'threads' else given.engine}"
    )
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench-stream-") as made:
        make_base(Path(made), given.rows, given.dimension, given.shards, given.format)
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--search-in", made],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    told = json.loads(done.stdout)
    seconds, parts = told["seconds"], told["timings"]
    split = ", ".join(f"{name} {parts[name]:.1f} s" for name in sorted(parts))
    print(f"{seconds:.1f} s ({split}); {size(total / seconds)}/s, "
          f"{given.rows * given.queries / seconds / 1e9:.2f} billion pairs/s")  # fmt: skip
    if given.engine == "threads":  # else it is that of other processes
        print(f"peak memory {size(told['peak'])}, {told['peak'] / budget:.0%} of the budget")


if __name__ == "__main__":
    main()
