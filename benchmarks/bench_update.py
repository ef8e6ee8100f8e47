"""Truth brought up to date: how long it takes, beside making it anew.

    python benchmarks/bench_update.py [--queries 1000] [-k 100] [--data copies] [--rounds 3]
    python benchmarks/bench_update.py --what filtered|bits|documents [--queries 1000] [-k 100]

Data sets are those of bench_truth.py. Of a share of the rows a third is deleted, a third changes,
and as many come; "deleted" only deletes. Spare: neighbours kept beyond k. What changed is known
from row hashes, from the old base, or on the user's word. Every result must have the bits of a new
truth. Seconds of wall-clock time, medians; "anew" counts queries that searched the whole base.

--what: 1% of the rows are touched (mixed), and the time is given as a share of that of a new truth.
"filtered": the columns of another 1% change as well, which changes what filters allow; filters are
predicates that queries share, or one for each query. "bits": 200,000 x 1,024, hamming. "documents":
100,000 of 4 to 20 vectors of 64 dimensions, queries of 16.
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
from semrecall.data.multivectors import MultiVectors


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


def shares(
    name: str, old: Run, kept: Path, new: Callable[..., Run], **evidence: dict[str, Any]
) -> None:
    """Print what updates take, by evidence, as shares of the time of a new truth; by turns."""
    bare = old.replace(identity={n: v for n, v in old.identity.items() if n != "row_hashes"})
    ways = {"hashes": {"update": old, "rows": kept}}
    ways |= {way: {"update": bare, **told} for way, told in evidence.items()}
    whole = new()
    searched = {}
    for way, told in ways.items():
        notes: list[str] = []
        run = new(notes=notes, **told)
        assert same(run, whole)
        assert run.identity == whole.identity
        searched[way] = notes[0].split("; ")[1].split(" of ")[0]
    took: dict[str, list[float]] = {way: [] for way in ("anew", *ways)}
    for _ in range(3):
        for way, times in took.items():
            times.append(median(lambda way=way: new(**ways.get(way, {})), 1))
    anew = statistics.median(took["anew"])
    print(f"{name:>32} {anew:7.2f}", end="")
    for way in ways:
        print(f"  {way} {statistics.median(took[way]) / anew:5.2f} ({searched[way]})", end="")
    print(flush=True)


def filtered(n_queries: int, k: int, name: str, kept: Path) -> None:
    base, queries = data(n_queries, name)
    rng = np.random.default_rng(2)
    whole = Vectors.of(base, ids=np.arange(len(base)))
    now, _ = changed(base, 0.01, "mixed")
    for filters, share in ((20, 0.1), (20, 0.5), (n_queries, 0.01), (n_queries, 0.1)):
        bound = int(share * 1000)
        each = [
            f"price >= {at} and price < {at + bound}"
            for at in rng.integers(0, 1000 - bound, filters)
        ]
        each = [each[at % filters] for at in range(n_queries)]
        price = rng.integers(0, 1000, len(base) + len(now))
        before = {"id": np.arange(len(base)), "price": price[: len(base)]}
        later = price[now.ids.array()].copy()
        some = rng.permutation(len(later))[: len(later) // 100]
        later[some] = rng.integers(0, 1000, len(some))
        columns = {"id": now.ids.array(), "price": later}
        for spare in (0, max(20, k // 5)):
            old = sr.truth(
                whole, queries, k, "ip", spare=spare, filter=each, columns=before, keep_rows=kept
            )

            def new(
                each: list[str] = each, columns: Any = columns, spare: int = spare, **more: Any
            ) -> Run:
                return sr.truth(
                    now, queries, k, "ip", spare=spare, filter=each, columns=columns, **more
                )

            shares(
                f"{filters:,} filters of {share:.0%}, spare {spare}",
                old,
                kept,
                new,
                was={"was": whole, "was_columns": before},
            )


def with_and_without_spare(
    space: str, whole: Any, now: Any, queries: Any, k: int, kept: Path, changed: Any
) -> None:
    for spare in (0, max(20, k // 5)):
        old = sr.truth(whole, queries, k, space, spare=spare, keep_rows=kept)
        shares(
            f"{space}, spare {spare}",
            old,
            kept,
            lambda spare=spare, **more: sr.truth(now, queries, k, space, spare=spare, **more),
            was={"was": whole},
            word={"changed": changed},
        )


def bits(n_queries: int, k: int, name: str, kept: Path) -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, (200_000, 128)).astype(np.uint8)
    queries = rng.integers(0, 256, (n_queries, 128)).astype(np.uint8)
    rows = rng.permutation(len(base))[:2000]
    later = base.copy()
    later[rows] = rng.integers(0, 256, (2000, 128))
    names = np.arange(len(base))
    gone = rows[:700]
    whole = Vectors.of(base, ids=names)
    now = Vectors.of(np.delete(later, gone, axis=0), ids=np.delete(names, gone))
    with_and_without_spare("hamming", whole, now, queries, k, kept, rows[700:])


def documents(n_queries: int, k: int, name: str, kept: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 21, 100_000)
    cuts = np.concatenate([[0], np.cumsum(lengths)])
    matrix = rng.standard_normal((cuts[-1], 64), dtype=np.float32)
    whole = MultiVectors.of(matrix, offsets=cuts, ids=np.arange(len(lengths)))
    queries = MultiVectors.of(rng.standard_normal((n_queries, 16, 64), dtype=np.float32))
    touched = rng.permutation(len(lengths))[:1000]
    later = matrix.copy()
    later[whole.rows_of(touched)] *= np.float32(1.01)
    stay = np.delete(np.arange(len(lengths)), touched[:330])
    now = MultiVectors.of(later, offsets=cuts, ids=np.arange(len(lengths))).take(stay)
    with_and_without_spare("maxsim", whole, now, queries, k, kept, touched[330:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", choices=["vectors", *OTHERS], default="vectors")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--data", default="copies")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what != "vectors":
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "rows.parquet"
            OTHERS[options.what](options.queries, options.k, options.data, kept)
        return
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


OTHERS = {"filtered": filtered, "bits": bits, "documents": documents}

if __name__ == "__main__":
    main()
