"""What early termination saves: fills in the tables of docs/early-termination.md.

    python benchmarks/early_termination.py [--divisions 10] [-o docs/early-termination.md]

Data: that of dl_pool.py, and 5,000 SIFT vectors (the shared research data; not part of the
project). Where there are few queries, vectors of the base serve as queries and leave the base.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dl_pool import DATA, K, Pool, table

import semrecall as sr
from semrecall.stopping import Stopping

TARGETS = (0.90, 0.95, 0.98)
FIXED, LEARNED, ORACLE = "fixed", "learned", "oracle"


@dataclass
class Case:
    """Queries of an index with a measure, and the shortfall that is allowed."""

    name: str
    system: Any
    queries: Any
    measure: str
    allowed: float
    given: dict[str, Any]

    def learn(self, target: float, seed: int) -> Stopping:
        """One division of the queries."""
        return sr.learn_stopping(
            self.system, self.queries, f"{self.measure} >= {target}", allowed=self.allowed,
            seed=seed, **self.given,
        )  # fmt: skip


def apart(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Some rows at random as queries, and the rows that remain."""
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[np.sort(order[:count])], rows[np.sort(order[count:])]


def cases() -> Iterator[Case]:
    pool = Pool()
    system = sr.open_system("faiss?factory=IVF176,SQ8").build(pool.base, space="ip")
    given = {"truth": pool.truth, "judgments": pool.judgments, "base": pool.base}
    for measure in (f"srecall(rel=2)@{K}", f"trecall(x=1%)@{K}"):
        yield Case("dl-pool, questions", system, pool.queries, measure, 0.05, given)
    docs = np.load(DATA / "docs.minilm.f16.npy").astype(np.float32)
    yield passages("dl-pool, passages", docs, 1500, "ip", "IVF176,SQ8")
    sift = np.load(DATA.parent / "sift5k" / "base.u8.npy").astype(np.float32)
    yield passages("sift5k", sift, 1000, "l2", "IVF64,SQ8")


def passages(name: str, rows: np.ndarray, count: int, space: str, factory: str) -> Case:
    queries, base = apart(rows, count)
    system = sr.open_system(f"faiss?factory={factory}").build(base, space=space)
    truth = sr.truth(base, queries, K, space)
    measure = f"trecall(x=1%)@{K}"
    return Case(name, system, queries, measure, 0.01, {"truth": truth, "base": base})


def percent(value: float) -> str:
    return f"{value:.0%}".replace("-", "\u2212")


def one_row(case: Case, target: float, found: list[Stopping]) -> list[str]:
    first = found[0]
    saved, oracle = first.saved(), first.saved(ORACLE)
    every = [one.saved().mean for one in found]
    short = [one.mean(LEARNED, "shortfall").mean for one in found]
    kept = [f"{first.mean(way, 'shortfall').mean:.4f}" for way in (FIXED, LEARNED)]
    mean = [f"{first.mean(way, 'quality').mean:.3f}" for way in (FIXED, LEARNED)]
    cost = [f"{first.mean(way, 'bytes_read').mean / 1e6:.2f}" for way in (FIXED, LEARNED, ORACLE)]
    promised = f"{sum(one.promised for one in found)} of {len(found)}"
    return [
        case.name,
        case.measure,
        f"{target:.2f}",
        str(first.fixed[0]),
        " / ".join(mean),
        " / ".join(kept),
        " / ".join(cost),
        f"{first.mean(LEARNED, 'looks').mean:.1f}",
        f"{percent(saved.mean)} ({percent(saved.low)} to {percent(saved.high)})",
        percent(first.saved(cost="distance_computations").mean),
        percent(oracle.mean),
        f"{percent(float(np.mean(every)))} ({percent(min(every))} to {percent(max(every))})",
        f"{np.mean(short):.4f} ({min(short):.4f} to {max(short):.4f})",
        promised,
    ]


HEAD = [
    "queries", "measure", "target", "nprobe", "mean: fixed / rule", "shortfall: fixed / rule",
    "MB read: fixed / rule / oracle", "looks", "saved, bytes", "saved, distances",
    "oracle saves", "saved, all divisions", "rule's shortfall, all divisions", "promised",
]  # fmt: skip


def about(case: Case, found: Stopping) -> str:
    parts = ", ".join(f"{n} {count}" for n, count in found.parts.items())
    left = f", {found.left_out} left out" if found.left_out else ""
    return f"- {case.name}, {case.measure}: {parts}{left}; allowed {case.allowed:g}."


def speed(found: Stopping) -> list[str]:
    """Seconds of a look, alone and among many."""
    rng = np.random.default_rng(0)
    figures = []
    for rows in (1, 1000):
        asked = rng.random((rows, 10)).astype(np.float32)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            found.rule.says(asked)
            times.append(time.perf_counter() - start)
        figures.append(min(times) / rows * 1e6)
    return [
        f"A look at one query took {figures[0]:.0f} \u00b5s alone and {figures[1]:.0f} \u00b5s "
        f"among 1,000 ({len(found.rule.trees)} trees of depth {found.rule.trees.depth}, numpy).",
    ]


def tables(divisions: int) -> list[str]:
    rows, notes, last = [], [], None
    for case in cases():
        for target in TARGETS:
            # Few queries: another division of them can say something else.
            times = divisions * (4 if len(case.queries) < 500 else 1)
            found = [case.learn(target, seed) for seed in range(times)]
            rows.append(one_row(case, target, found))
            last = found[0]
            print(" | ".join(rows[-1]), flush=True)
        assert last is not None
        notes.append(about(case, last))
    assert last is not None
    return [*table(HEAD, rows), "", "Queries of the first division, by part:", "", *notes, "",
            *speed(last)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--divisions", type=int, default=6)
    parser.add_argument("-o", "--output", default="docs/early-termination.md")
    options = parser.parse_args()
    page = Path(options.output)
    before, begin, rest = page.read_text(encoding="utf-8").partition("<!-- measured -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    text = "\n".join(tables(options.divisions))
    page.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
