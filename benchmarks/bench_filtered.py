"""Filtered truth: how long it takes, beside a loop over filters and masks without grouping.

    python benchmarks/bench_filtered.py [--queries 1000] [-k 100] [--rounds 3] [--data copies]

Data sets are those of bench_truth.py. Queries have one of 20 filters, or each its own; a filter
allows a random share of the rows, and "mixed" takes each of the shares in turn. In one run:

    grouped   semrecall: queries that share a filter search its rows together, each group in the
              way that costs least
    masked    one product with all rows, what a query may not find left out of it
    loop      a truth of its own for each filter: its rows copied, its queries searched in them

All three must give the same bits. Seconds of wall-clock time, medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from unittest import mock

import numpy as np
from bench_truth import data
from numpy.typing import NDArray

from semrecall.data import Run, Vectors
from semrecall.data.allowed import Allowed, RowSet
from semrecall.exact import search

SHARES = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9)


def filters(shares: list[float], rows: int, queries: int, count: int) -> Allowed:
    """`count` random filters, in turn for the queries."""
    rng = np.random.default_rng(7)
    sets = tuple(
        RowSet.of_mask(rng.random(rows, dtype=np.float32) < shares[at % len(shares)])
        for at in range(count)
    )
    return Allowed(sets, np.arange(queries) % count)


def loop(
    base: NDArray[np.float32], queries: NDArray[np.float32], k: int, allowed: Allowed
) -> dict[int, tuple[list[int], list[float]]]:
    """One truth after another."""
    found = {}
    assert allowed.which is not None
    for at, rows in enumerate(allowed.sets):
        mine = np.flatnonzero(allowed.which == at)
        some = rows.between(0, len(base))
        run = search(Vectors.of(base[some], ids=some), queries[mine], k, "ip")
        assert run.scores is not None
        for query, ids, scores in zip(mine.tolist(), run.ids, run.scores, strict=True):
            found[query] = (ids.tolist(), scores.tolist())
    return found


def rows_of(run: Run) -> dict[int, tuple[list[int], list[float]]]:
    assert run.scores is not None
    pairs = zip(run.ids, run.scores, strict=True)
    return {i: (ids.tolist(), scores.tolist()) for i, (ids, scores) in enumerate(pairs)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default="copies")
    parser.add_argument("--loop", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    base, queries = data(options.queries, options.data)
    k = options.k
    print(f"{len(base):,} x {base.shape[1]}, {len(queries):,} queries, k = {k}, inner product")
    print(
        f"{'filters':>8} {'allow':>7} {'grouped':>9} {'masked':>9} {'loop':>9}  masked and loop x"
    )
    for count in (20, options.queries):
        for shares in [*([share] for share in SHARES), list(SHARES)]:
            allowed = filters(shares, len(base), len(queries), count)

            def grouped(allowed: Allowed = allowed) -> Run:
                return search(base, queries, k, "ip", allowed=allowed)

            def masked(allowed: Allowed = allowed) -> Run:
                with mock.patch("semrecall.exact.grouped._pays", return_value=False):
                    return search(base, queries, k, "ip", allowed=allowed)

            tasks: dict[str, Callable[[], object]] = {"grouped": grouped, "masked": masked}
            if options.loop:
                tasks["loop"] = lambda allowed=allowed: loop(base, queries, k, allowed)
            times: dict[str, list[float]] = {name: [] for name in tasks}
            answers = {}
            for _ in range(options.rounds):
                for name, task in tasks.items():
                    begun = time.perf_counter()
                    found = task()
                    times[name].append(time.perf_counter() - begun)
                    answers[name] = rows_of(found) if isinstance(found, Run) else found
            assert all(answer == answers["grouped"] for answer in answers.values())
            took = {name: statistics.median(spent) for name, spent in times.items()}
            name = "mixed" if len(shares) > 1 else f"{shares[0]:.2%}"
            slower = " ".join(f"{took[n] / took['grouped']:6.1f}" for n in tasks if n != "grouped")
            cells = " ".join(f"{took[n]:9.2f}" for n in tasks)
            print(f"{count:8,} {name:>7} {cells}  {slower}", flush=True)


if __name__ == "__main__":
    main()
