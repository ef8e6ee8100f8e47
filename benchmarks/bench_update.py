"""Truth brought up to date: how long it takes, beside making it anew.

    python benchmarks/bench_update.py [--queries 1000] [-k 100] [--data copies] [--rounds 3]

Data sets are those of bench_truth.py. Of a share of the rows a third is deleted, a third changes,
and as many come; "deleted" only deletes. Spare: neighbours kept beyond k. What changed is known
from row hashes, from the old base, or on the user's word. Every result must have the bits of a new
truth. Seconds of wall-clock time, medians; "anew" counts queries that searched the whole base.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_truth import data

import semrecall as sr
from semrecall.data import Run, Vectors


def changed(base: Any, share: float, kind: str) -> tuple[Vectors, list[int]]:
    """The new base and the ids of all rows that are new or changed."""
    rng = np.random.default_rng(1)
    n = len(base)
    count = max(1, int(n * share / (3 if kind == "mixed" else 1)))
    some = rng.permutation(n)
    gone, other = some[:count], some[count : 2 * count]
    rows, names = base.copy(), np.arange(n)
    fresh: list[int] = []
    if kind == "mixed":
        rows[other] = base[rng.integers(0, n, count)] + rng.normal(0, 0.02, (count, base.shape[1]))
        rows = np.concatenate([rows, base[rng.integers(0, n, count)] * np.float32(0.99)])
        names = np.arange(n + count)
        fresh = [*other.tolist(), *range(n, n + count)]
    kept = ~np.isin(names, gone)
    return Vectors.of(rows[kept].astype(np.float32), ids=names[kept]), fresh


def median(task: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        task()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def same(run: Run, fresh: Run) -> bool:
    """Whether all rows of two truths agree to the bit, as far as both go."""
    assert run.scores is not None
    assert fresh.scores is not None
    rows = zip(run.ids, fresh.ids, run.scores, fresh.scores, strict=True)
    return all(
        a[: len(b)].tolist() == b[: len(a)].tolist()
        and s[: len(t)].tobytes() == t[: len(s)].tobytes()
        for a, b, s, t in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--data", default="copies")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    base, queries = data(options.queries, options.data)
    k, whole = options.k, Vectors.of(base, ids=np.arange(len(base)))
    print(f"{len(base):,} x {base.shape[1]}, {len(queries):,} queries, k = {k}, inner product")
    print("   what    share  spare     new  hashes     was    word   anew (of queries)")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "rows.parquet"
        for kind in ("mixed", "deleted"):
            for share in (0.0001, 0.001, 0.01, 0.1):
                now, fresh = changed(base, share, kind)
                for spare in (0, max(20, k // 5)):
                    old = sr.truth(whole, queries, k, "ip", spare=spare, keep_rows=kept)
                    bare = old.replace(
                        identity={n: v for n, v in old.identity.items() if n != "row_hashes"}
                    )
                    new = sr.truth(now, queries, k, "ip", spare=spare)
                    notes: list[str] = []

                    def update(
                        now: Vectors = now, old: Run = old, notes: list[str] = notes, **told: Any
                    ) -> Run:
                        return sr.truth(now, queries, k, "ip", update=old, notes=notes, **told)

                    assert same(update(rows=kept), new)
                    took = [
                        median(
                            lambda now=now, s=spare: sr.truth(now, queries, k, "ip", spare=s),
                            options.rounds,
                        ),
                        median(lambda: update(rows=kept), options.rounds),
                        median(lambda old=bare: update(was=whole, old=old), options.rounds),
                        median(lambda f=fresh: update(changed=f), options.rounds),
                    ]
                    anew = notes[0].rsplit("; ", 1)[1].split(" of ")[0]
                    print(
                        f"{kind:>7} {share:8.2%} {spare:6} {took[0]:7.2f} "
                        + " ".join(f"{t:7.2f}" for t in took[1:])
                        + f"   {anew}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
