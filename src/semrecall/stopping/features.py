"""What a partial result tells, in numbers for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space
    from semrecall.systems.rounds import Rounds

__all__ = ["FEATURES", "Watch"]

#: Name -> what it is. "near" differences are positive where the first is nearer, and relative to
#: the best score (ip, cosine) or to the k-th (l2).
FEATURES: dict[str, str] = {
    "best": "score of the best result",
    "kth": "score of the last result there is, at most the k-th",
    "gap": "how much nearer rank 2k/3 is than rank k",
    "filled": "share of k results that are found",
    "changed": "share of the results that are new since the last round",
    "calm": "lists visited since a result was new, of all visited",
    "next": "how much nearer the next centroid is than the k-th result",
    "fallen": "how much nearer the first centroid is than the next",
    "lists": "lists visited",
    "vectors": "vectors compared",
}


class Watch:
    """Looks at the same queries after every round and says what each looks like."""

    def __init__(self, rounds: Rounds, space: Space) -> None:
        self._rounds = rounds
        self._sign = 1.0 if space.higher_is_nearer else -1.0
        n = len(rounds.visited)
        self._before: NDArray[Any] | None = None
        self._moved = np.zeros(n)
        self._found = np.zeros(n, dtype=np.int64)
        self._work = np.cumsum(rounds.sizes, axis=1)

    def look(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of these queries as they stand, (m, f) in the order of FEATURES."""
        ids, scores = self._rounds.results(rows)
        found = np.count_nonzero(~np.isnan(scores), axis=1)
        changed = self._changed(rows, ids, found)
        best, kth = _at(scores, found, 0), _at(scores, found, ids.shape[1] - 1)
        scale = np.maximum(np.abs(best if self._sign > 0 else kth), 1e-12)
        rank = max(round(2 * self._rounds.k / 3) - 1, 0)
        visited = self._rounds.visited[rows]
        last = np.clip(visited, 0, self._rounds.limit - 1)
        ahead = self._rounds.centroids[rows, last]
        first = self._rounds.centroids[rows, 0]
        self._moved[rows] = np.where(changed > 0, visited, self._moved[rows])
        columns = [
            best,
            kth,
            self._sign * (_at(scores, found, rank) - kth) / scale,
            found / self._rounds.k,
            changed,
            (visited - self._moved[rows]) / np.maximum(visited, 1),
            self._sign * (ahead - kth) / scale,
            self._sign * (first - ahead) / scale,
            # No shares of what is planned: a rule plans fewer lists than it was learned with.
            visited,
            self._work[rows, np.maximum(visited, 1) - 1],
        ]
        # Nothing found, or no list left: 0 stands for what is not there.
        return np.asarray(np.nan_to_num(np.stack(columns, axis=1)), dtype=np.float32)

    def _changed(
        self, rows: NDArray[np.int64], ids: NDArray[Any], found: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Share of k that was not among the results of these queries when last seen."""
        width = ids.shape[1]
        if self._before is None:
            missing = "" if ids.dtype.kind == "U" else -1
            self._before = np.full((len(self._found), width), missing, dtype=ids.dtype)
        both = np.sort(np.concatenate([self._before[rows], ids], axis=1), axis=1)
        equal = (both[:, 1:] == both[:, :-1]).sum(axis=1)
        # Missing results stand beside each other, too.
        missing = 2 * width - found - self._found[rows]
        kept = equal - np.maximum(missing - 1, 0)
        self._before[rows], self._found[rows] = ids, found
        return np.asarray((found - kept) / self._rounds.k)


def _at(scores: NDArray[np.float32], found: NDArray[np.int64], rank: int) -> NDArray[np.float64]:
    """The score at a rank, or of the last result there is; NaN where there is none."""
    place = np.minimum(rank, found - 1)
    chosen = scores[np.arange(len(scores)), np.maximum(place, 0)].astype(np.float64)
    return np.where(found > 0, chosen, np.nan)
