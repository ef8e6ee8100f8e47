"""The demonstration: a real search problem from its texts to what its index loses.

Corpus, questions and labels become vectors, exact truth and judgments; a faiss index of inverted
lists and 8-bit codes is searched with a sweep of nprobe, and every setting is measured.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from semrecall.benchmark import codes_truth, search
from semrecall.data import Cost, Judgments, Run, Vectors
from semrecall.demo.corpus import corpus
from semrecall.demo.lsa import embed
from semrecall.evaluate import Missed, Result, evaluate
from semrecall.exact import search as exact_search
from semrecall.systems import open_system
from semrecall.tuning.evaluator import Measured
from semrecall.tuning.objectives import objective
from semrecall.tuning.ranges import Setting
from semrecall.tuning.sweeping import Sweep as Curves

__all__ = ["MEASURES", "Cheapest", "Example", "Problem", "Sweep", "load", "sweep"]

K = 20
FACTORY = "IVF128,SQ8"
NPROBES = (1, 2, 4, 8, 16, 32, 64, 128)
SHOWN = 16
RECALL, SEMANTIC, TOLERANT = MEASURES = (f"recall@{K}", f"srecall@{K}", f"trecall@{K}")


@dataclass(frozen=True)
class Problem:
    """The search problem: vectors, exact truth, judgments, and the texts behind the ids.

    absent: labels of entries that this Python or numpy does not have; they are left out.
    """

    base: Vectors
    queries: Vectors
    truth: Run
    judgments: Judgments
    documents: Mapping[str, str]
    questions: Mapping[str, str]
    topics: Mapping[str, list[str]]
    absent: int


@dataclass(frozen=True)
class Sweep:
    """Every setting, searched and measured.

    result: one run per nprobe, named by it. shown: the setting that the report is about, by
    group of semantic neighbours and by topic, its loss split into quantisation and search.
    """

    problem: Problem
    result: Result
    costs: Mapping[str, Cost]
    shown: Result

    def cheapest(self, measure: str, target: float) -> Cheapest | None:
        """The setting with the fewest distance computations whose mean reaches the target."""
        reached = [
            Cheapest(run, cost.mean("distance_computations"))
            for run, cost in self.costs.items()
            if self.result.mean(measure, run) >= target
        ]
        return min(reached, key=lambda c: c.distance_computations, default=None)

    @property
    def curves(self) -> Curves:
        """Quality against bytes read, as `sr.sweep` gives it."""
        points = tuple(
            (
                Setting(f"faiss?factory={FACTORY}", search=tuple(cost.settings.items())),
                Measured(
                    np.arange(len(self.result.queries)),
                    {measure: self.result[measure, run].values for measure in MEASURES},
                    {"bytes_read": cost.bytes_read},
                ),
            )
            for run, cost in self.costs.items()
            if cost.bytes_read is not None
        )
        by = {name: part for name, part in self.shown.slices.items() if name == "sn"}
        return Curves(
            {f"faiss?factory={FACTORY}": points}, self.result.measures, objective("bytes_read"),
            by, len(self.result.queries), self.result.confidence, self.result.seed,
        )  # fmt: skip

    def example(self, *, matters: bool) -> Example | None:
        """A question for which neighbours were missed and it mattered most, or not at all.

        Among the settings of the sweep, the middle ones first: they are what people run.
        """
        for nprobe in sorted(NPROBES, key=lambda n: abs(n - SHOWN)):
            run = name_of(nprobe)
            recall = self.result[RECALL, run].values
            semantic = self.result[SEMANTIC, run].values
            rows = [i for i in range(len(recall)) if recall[i] < 1 and semantic[i] == semantic[i]]
            if matters:
                rows = [i for i in rows if semantic[i] < recall[i]]
                best = min(rows, key=lambda i: (semantic[i] - recall[i], i), default=None)
            else:
                rows = [i for i in rows if semantic[i] == 1]
                best = min(rows, key=lambda i: (recall[i], i), default=None)
            if best is not None:
                missed = self.result.missed(best, run)
                return Example(
                    str(self.result.queries[best]), run, recall[best], semantic[best], missed
                )
        return None


@dataclass(frozen=True)
class Cheapest:
    """A setting that reaches a target, and its mean distance computations per query."""

    run: str
    distance_computations: float


@dataclass(frozen=True)
class Example:
    """One question under one setting: both recalls, and the neighbours that were missed."""

    query: str
    run: str
    recall: float
    semantic: float
    missed: list[Missed]


def load() -> Problem:
    """Build the problem on this machine: texts, vectors, exact truth, judgments."""
    doc_ids, texts = corpus()
    questions = _table("questions.tsv")
    query_ids = [row["query_id"] for row in questions]
    base, queries = embed(texts, [row["text"] for row in questions])
    base_vectors = Vectors.of(base, ids=doc_ids)
    query_vectors = Vectors.of(queries, ids=query_ids)
    labels, known = _table("labels.tsv"), set(doc_ids)
    present = [row for row in labels if row["doc_id"] in known]
    judgments = Judgments.from_arrays(
        [row["query_id"] for row in present],
        [row["doc_id"] for row in present],
        [float(row["grade"]) for row in present],
    )
    return Problem(
        base=base_vectors,
        queries=query_vectors,
        truth=exact_search(base_vectors, query_vectors, K, "ip"),
        judgments=judgments,
        documents=dict(zip(doc_ids, texts, strict=True)),
        questions=dict(zip(query_ids, (row["text"] for row in questions), strict=True)),
        topics={"query_id": query_ids, "topic": [row["topic"] for row in questions]},
        absent=len(labels) - len(present),
    )


def sweep(problem: Problem, said: Callable[[str], None] = lambda line: None) -> Sweep:
    """Build the index once, search it with every nprobe, and measure all of them together.

    Needs faiss; raises MissingExtra without it.
    """
    system = open_system(f"faiss?factory={FACTORY}").build(problem.base, space="ip")
    runs: dict[str, Run] = {}
    costs: dict[str, Cost] = {}
    for nprobe in NPROBES:
        name = name_of(nprobe)
        runs[name], costs[name] = search(system, problem.queries, K, nprobe=nprobe)
        said(f"searched with {name}")
    given: dict[str, Any] = {
        "truth": problem.truth,
        "judgments": problem.judgments,
        "base": problem.base,
        "queries": problem.queries,
    }
    shown = evaluate(
        {name_of(SHOWN): runs[name_of(SHOWN)]},
        MEASURES,
        columns=problem.topics,
        by=["sn", "topic"],
        codes=codes_truth(system, problem.queries, K),
        **given,
    )
    return Sweep(problem, evaluate(runs, MEASURES, **given), costs, shown)


def name_of(nprobe: int) -> str:
    """What the run of a setting is called."""
    return f"nprobe={nprobe}"


def _table(name: str) -> list[dict[str, str]]:
    text = files("semrecall.demo").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
