"""How near the tuner comes to an exhaustive grid, and what that costs, against other searches.

    python benchmarks/tuning_search.py [-o docs/tuning-search.md]

For each space all settings of a fine grid are measured, so that the cheapest that meets a target
is known. Then the tuner, random search (seeds 0 to 19) and faiss's own AutoTune look for it with as
many searches of a query as the tuner took. Cost is bytes read per query, from counters; all queries
of dl-pool choose, as nothing is held out here.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from dl_pool import K, Pool

import semrecall as sr
from semrecall.tuning import Evaluator, Range, Target, objective
from semrecall.tuning.exploring import Branch, Plan, explore
from semrecall.tuning.racing import Race
from semrecall.tuning.ranges import Setting
from semrecall.tuning.searchers import Random
from semrecall.tuning.trials import Trials

TARGETS = (0.90, 0.95, 0.98)
SEEDS = range(20)


@dataclass
class Space:
    """An index, its ranges, and the values of the grid. build: build knobs and their values."""

    name: str
    factory: str
    search: dict[str, tuple[float, float]]
    grid: dict[str, list[float]]
    build: dict[str, list[float]] = field(default_factory=dict)


def spread(low: float, high: float, count: int, whole: bool) -> list[float]:
    values = np.geomspace(low, high, count)
    return sorted({round(v) if whole else float(f"{v:.4g}") for v in values})


SPACES = [
    Space("one knob", "IVF176,SQ8", {"nprobe": (1, 176)}, {"nprobe": list(range(1, 177))}),
    Space(
        "two knobs", "IVF176,PQ48,RFlat", {"nprobe": (1, 176), "k_factor": (1, 16)},
        {"nprobe": spread(1, 176, 50, True), "k_factor": spread(1, 16, 30, False)},
    ),
    Space(
        "a graph and how it is built", "HNSW16", {"efSearch": (10, 640)},
        {"efSearch": spread(10, 640, 60, True)},
        {"efConstruction": spread(10, 160, 10, True)},
    ),
]  # fmt: skip


class Bench:
    """One space: its systems by build, the grid, and races over it."""

    def __init__(self, pool: Pool, space: Space) -> None:
        self.pool, self.space = pool, space
        self.evaluator = Evaluator(pool.queries, f"recall@{K}", truth=pool.truth, base=pool.base)
        self.recipe = sr.open_system(f"faiss?factory={space.factory}")
        self.systems: dict[Any, Any] = {}
        self.store = Trials(None, {})
        #: faiss builds with 40 where it is not told.
        self.usual = {name: min(v, key=lambda x: abs(x - 40)) for name, v in space.build.items()}
        self.grid = dict(self._grid())

    def system(self, label: str, knobs: Any) -> Any:
        """The index built with these knobs, once."""
        # One thread links the same graph every time.
        more = {"threads": 1} if self.space.build else {}
        key = tuple(sorted(knobs.items()))
        if key not in self.systems:
            self.systems[key] = self.recipe.build(self.pool.base, space="ip", **knobs, **more)
        return self.systems[key]

    @property
    def branch(self) -> Branch:
        """What is tuned."""
        knobs = {k.name: k for k in self.system("", self.usual).knobs}
        search = [
            Range(n, "search", low, high, "log", knobs[n].whole)
            for n, (low, high) in self.space.search.items()
        ]
        build = [
            # The builds of the grid, so that no search has to wait for others.
            Range(n, "build", min(v), max(v), "log", True, tuple(v))
            for n, v in self.space.build.items()
        ]
        return Branch("faiss", tuple(build), tuple(search))

    def _grid(self) -> Iterator[tuple[Setting, tuple[float, float]]]:
        """Recall and bytes of every setting of the grid."""
        for built in itertools.product(*self.space.build.values()):
            knobs = dict(zip(self.space.build, built, strict=True))
            system = self.system("", knobs)
            for values in itertools.product(*self.space.grid.values()):
                settings = dict(zip(self.space.grid, values, strict=True))
                measured = self.evaluator.measure(system, settings)
                found = (
                    float(measured.values[f"recall@{K}"].mean()),
                    float(measured.costs["bytes_read"].mean()),
                )
                yield Setting("faiss", tuple(knobs.items()), tuple(settings.items())), found

    def race(self, target: float, seed: int = 0) -> Race:
        """A new race for a target; what was measured before is not measured again."""
        base = self.usual
        return Race(
            self.evaluator, {"faiss": self.system("", base) if not base else self.recipe},
            Target.read(f"recall@{K} >= {target}"), objective("bytes_read"), self.store,
            self.evaluator.rows, builder=self.system, seed=seed,
        )  # fmt: skip

    def best(self, target: float) -> float:
        """The cheapest of the grid."""
        return min(cost for recall, cost in self.grid.values() if recall >= target)

    def tuned(self, target: float) -> tuple[float, int]:
        """The cost the tuner finds, and how many searches of a query it takes."""
        race = self.race(target)
        race.limit = 100
        explore(Plan((self.branch,), trials=100), race)
        return cheapest(race), race.searched

    def random(self, target: float, budget: int, seed: int) -> float:
        """The cost random search finds with that many searches of a query."""
        race, searcher = self.race(target), Random({"faiss": self.branch.free}, seed)
        while race.searched < budget:
            point = searcher.ask()
            searcher.tell(point, race(self.branch.setting(point)))
        return cheapest(race)

    def autotune(self, target: float, budget: int) -> float:
        """The cost of what faiss's AutoTune finds; it knows search knobs, time and recall only."""
        # A copy, because exploring leaves an index turned as it was tried last.
        index = faiss.clone_index(self.system("", self.usual)._index)
        queries = np.ascontiguousarray(self.evaluator.matrix)
        criterion = faiss.IntersectionCriterion(len(queries), K)
        own = {str(doc): row for row, doc in enumerate(self.pool.base.ids)}
        ids = np.array([[own[str(d)] for d in row[:K]] for row in self.pool.truth.ids])
        criterion.set_groundtruth(None, ids.astype(np.int64))
        tuner = faiss.ParameterSpace()
        tuner.initialize(index)
        for at in range(tuner.parameter_ranges.size()):
            one = tuner.parameter_ranges.at(at)
            if one.name == "ht":  # what it saves is not counted: only "all codes" is left
                faiss.copy_array_to_vector(faiss.vector_to_array(one.values)[-1:], one.values)
        tuner.n_experiments = max(3, budget // len(queries))
        tuner.verbose = 0
        points = tuner.explore(index, queries, criterion)
        found = points.optimal_pts
        costs = [float("inf")]
        for at in range(found.size()):
            point = found.at(at)
            if point.perf >= target:
                costs.append(self._cost_of(str(point.key)))
        return min(costs)

    def _cost_of(self, key: str) -> float:
        """Bytes of a setting that faiss writes as `nprobe=8,k_factor_rf=4`."""
        names = {"k_factor_rf": "k_factor"}
        pairs = [pair.split("=") for pair in key.split(",")]
        settings = {names.get(n, n): float(v) for n, v in pairs if names.get(n, n) in
                    self.space.search}  # fmt: skip
        system = self.system("", self.usual)
        return float(self.evaluator.measure(system, settings).costs["bytes_read"].mean())


def cheapest(race: Race) -> float:
    outcomes = [race.outcome(t) for t in race.trials.values() if t.full and not t.failed]
    return min((o.cost for o in outcomes if o.meets), default=float("inf"))


def ratio(found: float, best: float) -> str:
    return "missed" if found == float("inf") else f"{found / best:.3f}"


def rows(bench: Bench, tell: Callable[[str], None]) -> Iterator[list[str]]:
    n = len(bench.evaluator)
    for target in TARGETS:
        best = bench.best(target)
        found, searched = bench.tuned(target)
        drawn = np.sort([bench.random(target, searched, seed) for seed in SEEDS])
        middle, ninth = drawn[len(drawn) // 2], drawn[int(0.9 * len(drawn))]
        auto = bench.autotune(target, searched)
        cells = [
            bench.space.name, f"{target:.2f}", f"{best:,.0f}", ratio(found, best),
            f"{searched / n:.1f} of {len(bench.grid):,} ({searched / n / len(bench.grid):.1%})",
            f"{ratio(middle, best)} ({ratio(ninth, best)})", ratio(auto, best),
        ]  # fmt: skip
        tell(" | ".join(cells))
        yield cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", default="docs/tuning-search.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    pool = Pool()
    head = ["space", "recall@100", "best of the grid, bytes", "tuner", "searches of all queries",
            "random (9 of 10)", "AutoTune"]  # fmt: skip
    lines = [
        "# How near the tuner comes",
        "",
        "Made by `python benchmarks/tuning_search.py`. The cheapest setting that meets a target on",
        f"recall@100, on TREC passages ({len(pool.base):,} vectors, {len(pool.truth)} queries). "
        "Figures are costs as",
        "a ratio to the cheapest setting of an exhaustive grid; below 1 is between its points.",
        "*searches*: how often all queries were searched, for the tuner and for the grid; hopeless",
        "settings are dropped early, so that it is no whole number. *random*: the median of 20",
        "seeds with the same number of searches and the same early drops, and what 9 of 10 reach;",
        "it draws build knobs, too. *AutoTune*: faiss's own, with the same number of searches; it",
        "knows search knobs only, and goes by time.",
        "",
        "The last space has ten builds in its grid; the tuner may make twelve, as it does by "
        "default.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for space in SPACES:
        bench = Bench(pool, space)
        lines += ["| " + " | ".join(cells) + " |" for cells in rows(bench, print)]
    Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
