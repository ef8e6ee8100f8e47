"""How fast 10,000 queries x 100 results are scored, beside a plain loop over Python sets.

    python benchmarks/bench_measures.py [--queries 10000] [-k 100] [--repeats 7]

The input is arrays: random integer ids of a million documents, 90% of the neighbours found, scores
of the results given by an index, grades for 98% of the neighbours. Times are medians; ratios are of
the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from semrecall.data import Judgments, Run
from semrecall.measures import align, measures, parse

NAMES = ("recall", "srecall", "trecall")


def inputs(n: int, k: int) -> tuple[Run, Run, Judgments]:
    random = np.random.default_rng(0)
    true = random.integers(0, 1_000_000, (n, k))
    true_scores = -np.sort(-random.random((n, k)), axis=1)
    found, missed = true.copy(), random.random((n, k)) < 0.1
    found[missed] = random.integers(0, 1_000_000, int(missed.sum()))
    truth = Run.from_arrays(true, true_scores, space="ip", k=k, scores_by="exact")
    run = Run.from_arrays(found, true_scores - 1e-4, space="ip", k=k)
    judged = random.random((n, k)) >= 0.02
    pairs = np.unique(np.stack([np.nonzero(judged)[0], true[judged]]), axis=1)
    # In no order, as a judge delivers them.
    pairs = pairs[:, random.permutation(pairs.shape[1])]
    grades = random.integers(0, 3, pairs.shape[1])
    return run, truth, Judgments.from_arrays(pairs[0], pairs[1], grades)


def loop_over_sets(run: Run, truth: Run, judgments: Judgments, k: int) -> tuple[float, float]:
    """What one would write first: recall and semantic recall, one query at a time."""
    grades: dict[int, dict[int, float]] = {}
    columns = (judgments.query_ids, judgments.doc_ids, judgments.grades)
    for query, document, grade in zip(*(c.tolist() for c in columns), strict=True):
        grades.setdefault(query, {})[document] = grade
    recalls, semantic_recalls = [], []
    for query, found, true in zip(
        run.query_ids.tolist(), run.ids.to_list(), truth.ids.to_list(), strict=True
    ):
        neighbours, results = set(true[:k]), set(found[:k])
        own = grades.get(query, {})
        semantic = {d for d in neighbours if own.get(d, 0) >= 1}
        recalls.append(len(neighbours & results) / len(neighbours))
        if semantic:
            semantic_recalls.append(len(semantic & results) / len(semantic))
    return float(np.mean(recalls)), float(np.mean(semantic_recalls))


def median(
    work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return float(np.median(times))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--queries", type=int, default=10_000)
    options.add_argument("-k", type=int, default=100)
    options.add_argument("--repeats", type=int, default=7)
    asked = options.parse_args()
    k = asked.k
    run, truth, judgments = inputs(asked.queries, k)
    three = [parse(f"{name}@{k}") for name in NAMES]

    def score() -> list[float]:
        problem = align(run, truth, judgments)
        return [measure.values(problem).mean for measure in three]

    plain = median(lambda: loop_over_sets(run, truth, judgments, k), 3)
    ours = median(score, asked.repeats)
    # On a busy machine the wall clock says more about the others; the work is on one core.
    cpu = median(score, asked.repeats, time.process_time)
    print(f"{asked.queries:,} queries x {k} results, {len(judgments):,} judgments")
    print(f"  align and {', '.join(map(str, three))}: {ours:.3f} s, of one core {cpu:.3f} s")
    print(f"  recall and srecall, a loop over Python sets: {plain:.3f} s, {plain / ours:.1f} times")
    print(f"  align alone: {median(lambda: align(run, truth, judgments), asked.repeats):.3f} s")
    problem = align(run, truth, judgments)
    print("  one measure, beside align (0.001 s):")
    for definition in measures():
        if definition.extra or "spans" in definition.needs:
            continue
        cutoff = f"@{k}" if definition.takes_k else "@0.5" if definition.at else ""
        measure = parse(f"{definition.name}{cutoff}")
        seconds = median(lambda measure=measure: measure.values(problem), 3)  # type: ignore[misc]
        print(f"    {measure!s:18} {1000 * seconds:7.1f}")


if __name__ == "__main__":
    main()
