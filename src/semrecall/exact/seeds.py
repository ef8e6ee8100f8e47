"""Thresholds to begin with: what each query finds in the clusters of rows that look nearest.

Clusters are those of a few sample rows, in a few of the reduced columns. They decide only where
to look first. What is found there is scored with all columns, so the k-th of it is a threshold that
the k-th neighbour surely reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.exact.survivors import Survivors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.exact.reduce import Reduced, ReducedQueries
    from semrecall.exact.screen import Screen

__all__ = ["PROBED", "Clusters"]

_CLUSTERS = 128
_PROBES = 4
#: The share of all pairs that is scored to seed the thresholds.
PROBED = _PROBES / _CLUSTERS
_ROWS = 1024


class Clusters:
    """Rows of a reduced chunk by the nearest of some of its sample rows."""

    def __init__(
        self,
        reduced: Reduced,
        sample: Reduced,
        over: Callable[[Any, list[Any]], Iterator[Any]],
    ) -> None:
        self._part = _columns(reduced)
        centres = sample.matrix[:: max(1, len(sample.matrix) // _CLUSTERS), : reduced.ends[-1]]
        self._centres = np.ascontiguousarray(centres[:_CLUSTERS, self._part])
        half = np.vecdot(self._centres, self._centres) / 2

        def nearest(low: int) -> NDArray[np.int16]:
            rows = reduced.matrix[low : low + _ROWS, self._part]
            scores = rows @ self._centres.T
            scores -= half
            label: NDArray[np.int16] = scores.argmax(axis=1).astype(np.int16)
            return label

        lows = list(range(0, len(reduced.matrix), _ROWS))
        labels = np.concatenate(list(over(nearest, lows)))
        counts = np.bincount(labels, minlength=len(self._centres))
        self._members = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
        self._half = half if reduced.moves else np.zeros_like(half)

    def near(self, queries: ReducedQueries) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each cluster that any query looks into: those queries, and the cluster's rows."""
        left = queries.factors[-1][:, self._part]
        scores = left @ self._centres.T - self._half
        few = min(_PROBES, scores.shape[1])
        probed = np.argpartition(-scores, few - 1, axis=1)[:, :few]
        pairs = []
        for cluster, rows in enumerate(self._members):
            asking = np.flatnonzero((probed == cluster).any(axis=1))
            if len(asking) and len(rows):
                pairs.append((asking, rows))
        return pairs

    def thresholds(
        self,
        queries: ReducedQueries,
        screen: Screen,
        rows_at: Callable[[NDArray[np.int64]], NDArray[Any]],
        guess: NDArray[np.float64],
        k: int,
        most: int,
        over: Callable[[Any, list[Any]], Iterator[Any]],
    ) -> NDArray[np.float64]:
        """Thresholds (queries,) that k rows surely reach; -inf where too few were found.

        rows_at: the rows of the chunk at some places of the order. guess: only scores from there
        on are kept; most: how many at most, else there are no thresholds.
        """

        def scored(pair: tuple[NDArray[np.int64], NDArray[np.int64]]) -> tuple[Survivors, float]:
            asking, places = pair
            parts, norm = [], 0.0
            for low in range(0, len(places), _ROWS):
                some = places[low : low + _ROWS]
                block = screen.block(rows_at(some))
                scores = screen.left[asking] @ block.right
                scores[:, block.unusable] = -np.inf
                cell = np.flatnonzero(scores >= guess[asking][:, None])
                query, column = np.divmod(cell, len(some))
                parts.append(
                    Survivors(
                        asking[query].astype(np.uint16), some[column], scores.reshape(-1)[cell]
                    )
                )
                norm = max(norm, block.norm)
            return Survivors.joined(parts), norm

        nothing = np.full(len(guess), -np.inf)
        found, largest, held = [], 0.0, 0
        for part, norm in over(scored, self.near(queries)):
            found.append(part)
            largest = max(largest, norm)
            held += len(part.row)
            if held > most:
                return nothing
        if not found:
            return nothing
        return Survivors.joined(found).ranked(len(guess), k) - screen.error(largest)


def _columns(reduced: Reduced) -> slice:
    """The leading columns that clusters are formed in: a sixth of all, or what there is."""
    return slice(int(reduced.moves), reduced.ends[min(1, len(reduced.ends) - 1)] - 1)
