"""How many labels it takes to know semantic recall within 0.01: writes docs/judging-budget.md.

    python benchmarks/judging_budget.py [--seeds 200] [-o docs/judging-budget.md]

Data: that of dl_pool.py. The human grades are the oracle that is asked; a neighbour without one,
from another query's pool, is irrelevant, as in TREC.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from dl_pool import DATA, SEMANTIC, K, Pool, table

import semrecall as sr
from semrecall.data import Pairs

NPROBES = (1, 2, 4, 8, 16)
WIDTH = 0.02
JUDGE = "umbrela_gpt4o"


class Oracle:
    """People's grades for every neighbour, and a judge's."""

    def __init__(self) -> None:
        self.pool = Pool()
        labels = pq.read_table(DATA / "labels.parquet")
        keys = list(zip(labels["query_id"].to_pylist(), labels["doc_id"].to_pylist(), strict=True))
        grades = np.nan_to_num(labels["human"].to_numpy().astype(float))
        self.grades = dict(zip(keys, grades.tolist(), strict=True))
        self.neighbours = Pairs.of(self.pool.truth, k=K)
        self.people = self.label(self.neighbours)
        self.judge = sr.Judgments.from_arrays(
            labels["query_id"], labels["doc_id"], labels[JUDGE].to_numpy().astype(float)
        )

    def label(self, pairs: Pairs) -> sr.Judgments:
        """What people say of these pairs."""
        grades = [self.grades.get((str(q), str(d)), 0.0) for q, d in pairs]
        return sr.Judgments(pairs.queries, pairs.documents, np.array(grades), dict(pairs.details))

    def runs(self) -> dict[str, sr.Run]:
        """The index at several settings."""
        system = sr.open_system("faiss?factory=IVF176,SQ8").build(self.pool.base, space="ip")
        found = {}
        for nprobe in NPROBES:
            run, _ = sr.search(
                system, self.pool.queries, K, repeats=1, latency_queries=0, nprobe=nprobe
            )
            found[f"nprobe {nprobe}"] = run
        return found


@dataclass
class Trials:
    """What a design gave, draw by draw."""

    labels: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)

    def add(self, labels: int, estimate: object, truth: float) -> None:
        """One more draw."""
        self.labels.append(labels)
        self.errors.append(estimate.value - truth)  # type: ignore[attr-defined]
        low, high = estimate.label_low, estimate.label_high  # type: ignore[attr-defined]
        # Where all is labelled the interval is a point, up to rounding.
        self.covered.append(low - 1e-9 <= truth <= high + 1e-9)
        self.widths.append(high - low)

    def cells(self, pairs: int) -> list[str]:
        """The draws together, as cells of a table."""
        labels = float(np.mean(self.labels))
        return [
            f"{labels:,.0f}",
            f"{pairs / labels:.1f}x",
            f"{np.mean(np.abs(self.errors) <= 0.01):.0%}",
            f"{np.mean(self.covered):.0%}",
            f"{np.mean(self.widths):.4f}",
        ]


Draw = Callable[[Oracle, sr.Run, int], tuple[int, object]]


def missed_first(judge: bool, correcting: bool = False) -> Draw:
    """A plan for the pooled value; judge: sizes by the judge's labels, else by an assumption."""

    def draw(oracle: Oracle, run: sr.Run, seed: int) -> tuple[int, object]:
        found = sr.plan(
            run, oracle.pool.truth, width=WIDTH, measure=SEMANTIC, seed=seed,
            judgments=oracle.judge if judge else None,
        )  # fmt: skip
        labels = oracle.label(found.pairs)
        machine = oracle.judge if correcting else None
        done = sr.correct(run, oracle.pool.truth, machine, labels, SEMANTIC)
        return len(found), done.pooled

    return draw


def rounds(oracle: Oracle, run: sr.Run, seed: int) -> tuple[int, object]:
    """A plan for the mean, labelled in rounds until no pair is left."""
    labels, before = None, -1
    while labels is None or len(labels) > before:
        before = 0 if labels is None else len(labels)
        found = sr.plan(
            run, oracle.pool.truth, width=WIDTH, measure=SEMANTIC, over="mean", seed=seed,
            judgments=oracle.judge, labels=labels,
        )  # fmt: skip
        labels = oracle.label(found.pairs)
    done = sr.correct(run, oracle.pool.truth, None, labels, SEMANTIC)
    return len(labels), done.mean


def drawn_at_random(design: str, over: str) -> Draw:
    """Whole queries, or single pairs, as many as a plan says."""

    def draw(oracle: Oracle, run: sr.Run, seed: int) -> tuple[int, object]:
        generator = np.random.default_rng(seed)
        found = sr.plan(run, oracle.pool.truth, width=WIDTH, measure=SEMANTIC,
                        judgments=oracle.judge)  # fmt: skip
        size = next(d for d in found.designs if d.name == design and d.over == over)
        every = oracle.neighbours
        if design == "random queries":
            codes = np.unique(every.queries.codes)
            chosen = generator.choice(codes, size.queries, replace=False)
            use = np.isin(every.queries.codes, chosen)
            chance = size.queries / len(codes)
        else:
            use = generator.choice(len(every), size.labels, replace=False)
            chance = size.labels / len(every)
        pairs = every.select(use)
        pairs = Pairs(pairs.queries, pairs.documents, {"probability": np.full(len(pairs), chance)})
        done = sr.correct(run, oracle.pool.truth, None, oracle.label(pairs), SEMANTIC)
        return len(pairs), done.pooled if over == "pooled" else done.mean

    return draw


POOLED: dict[str, Draw] = {
    "random pairs": drawn_at_random("random pairs", "pooled"),
    "random queries": drawn_at_random("random queries", "pooled"),
    "missed first, 30% assumed relevant": missed_first(judge=False),
    "missed first, sizes by GPT-4o": missed_first(judge=True),
    "the same, correcting GPT-4o": missed_first(judge=True, correcting=True),
}
MEAN: dict[str, Draw] = {
    "random queries": drawn_at_random("random queries", "mean"),
    "missed first, in rounds": rounds,
}


def measured(oracle: Oracle, designs: dict[str, Draw], over: str, seeds: int) -> list[list[str]]:
    rows = []
    for name, run in oracle.runs().items():
        every = sr.correct(run, oracle.pool.truth, None, oracle.people, SEMANTIC)
        truth = (every.pooled if over == "pooled" else every.mean).value
        for design, draw in designs.items():
            trials = Trials()
            for seed in range(seeds):
                trials.add(*draw(oracle, run, seed), truth)
            rows.append([name, f"{truth:.4f}", design, *trials.cells(len(oracle.neighbours))])
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("-o", "--output", default="docs/judging-budget.md")
    options = parser.parse_args()
    oracle = Oracle()
    m = len(oracle.neighbours)
    head = ["setting", "true", "how pairs are drawn", "labels", "saved", "within 0.01", "covered",
            "width"]  # fmt: skip
    lines = [
        "# How many labels semantic recall takes",
        "",
        f"Made by `python benchmarks/judging_budget.py --seeds {options.seeds}`. TREC passages as",
        f"in [Real passages](dl-pool.md): {len(oracle.pool.truth)} queries, k = {K}, so that",
        f"judging all exact neighbours takes {m:,} labels. Here the human grades are asked",
        "(relevant is 2 or more; a neighbour without a grade is irrelevant), only for the pairs",
        f"that each design draws. Each was to give a 95% interval {WIDTH} wide, that is,",
        f"`{SEMANTIC}` within 0.01. The index is faiss `IVF176,SQ8`.",
        "",
        "*true* is the value with all labels. *labels* is how many were asked, on average over",
        f"{options.seeds} seeds; *saved* is how many times fewer than all. *within 0.01* is how",
        "often the estimate was no further off, *covered* how often the interval for these queries",
        "held the true value, *width* how wide it was.",
        "",
        "## Pooled over queries",
        "",
        *table(head, measured(oracle, POOLED, "pooled", options.seeds)),
        "",
        "## Mean over queries",
        "",
        *table(head, measured(oracle, MEAN, "mean", options.seeds)),
        "",
        "See [Correction and budget](correction.md) for what the designs are. Intervals are for",
        "these queries; how far others like them would differ, no label of these can tell.",
        "",
    ]
    Path(options.output).write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
