"""Traces: the same queries after every round of their search, measured against the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Run
from semrecall.stopping.features import Watch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.systems import System
    from semrecall.tuning import Evaluator

__all__ = ["Trace", "trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """m queries after each of r rounds.

    rows: (m,) positions of the queries among those of the evaluator.
    features: (m, r, f). quality: (m, r) of the measure, all defined.
    costs: by name (distance_computations, bytes_read), (m, r) from the beginning.
    """

    rows: NDArray[np.int64]
    features: NDArray[np.float32]
    quality: NDArray[np.float64]
    costs: dict[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.rows)


def trace(
    evaluator: Evaluator, system: System, rows: NDArray[np.int64], lists: tuple[int, ...]
) -> Trace:
    """Search these queries in rounds, and measure each round by the evaluator's first measure.

    lists: how many lists are visited after each round. Queries for which the measure is undefined
    are left out.
    """
    name = str(evaluator.measures[0])
    matrix = np.asarray(evaluator.asked(rows).require_matrix(), dtype=np.float32)
    rounds = system.rounds(matrix, evaluator.k, nprobe=lists[-1])
    watch, every = Watch(rounds, system.space), np.arange(len(rows), dtype=np.int64)
    features, quality = [], []
    costs: dict[str, list[NDArray[np.float64]]] = {"distance_computations": [], "bytes_read": []}
    for upto in lists:
        rounds.visit(every, upto)
        features.append(watch.look(every))
        ids, scores = rounds.results(every)
        run = Run.from_arrays(
            ids, scores, query_ids=evaluator.queries[rows], space=system.space, k=evaluator.k
        )
        quality.append(evaluator.values(run, rows)[name])
        counters = rounds.counters()
        for cost, figures in costs.items():
            found = getattr(counters, cost)
            figures.append(np.full(len(rows), np.nan) if found is None else found)
    table = np.stack(quality, axis=1)
    known = ~np.isnan(table).any(axis=1)
    return Trace(
        rows[known],
        np.stack(features, axis=1)[known],
        table[known],
        {cost: np.stack(figures, axis=1)[known] for cost, figures in costs.items()},
    )
