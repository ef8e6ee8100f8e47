"""Screening with fewer columns where that is cheaper: most products of most pairs are never taken.

The product of a few columns (`reduce.py`) bounds all scores from above; only pairs whose bound
reaches the threshold of the query are scored with more columns, then with all. Thresholds begin
with what the nearest clusters hold (`seeds.py`), and rise again after an even sample of the rows.
Queries for which that would not pay are screened with all columns at once (`costs.py`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.exact import direct
from semrecall.exact.costs import (
    Costs,
    candidate_widths,
    chosen_widths,
    measured_costs,
    passing,
    seconds_per_cell,
    widths_of,
    worth_a_look,
)
from semrecall.exact.reduce import Basis, Reduced, ReducedQueries, principal
from semrecall.exact.screen import Block, rounded_down
from semrecall.exact.seeds import PROBED, Clusters
from semrecall.exact.survivors import Survivors, TooMany

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PrunedPass", "Shortcut"]

_PAIRS = 512  # survivors scored at a time: their columns stay in cache
_CELLS = 1 << 19  # scores in one product
_FEW = 256  # queries of a last tile that do not pay for seeding their thresholds
_STRETCHES = (1 / 4, 1.0)  # where thresholds rise, as shares of the rows


class Pass(direct.Pass, Protocol):
    """What a pruned pass needs of the pass over a chunk it belongs to: a sample of it, too."""

    @property
    def sample(self) -> NDArray[Any]:
        """Some rows of the chunk."""

    @property
    def sample_block(self) -> Block:
        """The sample, ready for the product."""

    def ranked(self, which: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.float64]:
        """Screen score of the sample row at a rank."""


@dataclass
class Ready:
    """A chunk made ready: its rows in few columns, in the order they are screened in."""

    reduced: Reduced
    sample: Reduced
    clusters: Clusters
    order: NDArray[np.int64]
    stops: list[int]


class Shortcut:
    """What one search knows about the worth of fewer columns: directions, costs, one chunk."""

    def __init__(self, queries: int, threads: int) -> None:
        self._queries, self.threads = queries, threads
        self._basis: Basis | None = None
        self._costs: Costs | None = None
        self._hopeless = False
        self._chunk: tuple[int, int] | None = None
        self._ready: Ready | None = None

    def over(self, work: Pass, before: NDArray[np.float64]) -> PrunedPass | None:
        """The pruned pass for this chunk and tile; None where plain screening is as good.

        before: what each query's k-th neighbour surely reaches.
        """
        key = (work.start, len(work.chunk))
        if self._chunk != key:
            if self._chunk is not None and self._chunk[0] <= key[0] < sum(self._chunk):
                return None  # a part of the chunk, because memory was short
            # Before the attempt: where it fails, the next tile does not try again.
            self._chunk, self._ready = key, None
            self._ready = self._made_ready(work, before)
        if self._ready is None or self._costs is None or len(before) < _FEW:
            return None
        return PrunedPass(work, self._ready, self._costs)

    def _made_ready(self, work: Pass, before: NDArray[np.float64]) -> Ready | None:
        n, d = work.chunk.shape
        if self._hopeless or not worth_a_look(n, self._queries, d, self.threads):
            return None
        widths = candidate_widths(d, self._queries)
        if self._basis is None:
            seen = work.sample_block.right[:d].T
            usable = np.ones(len(seen), dtype=bool)
            usable[work.sample_block.unusable] = False
            self._basis = principal(seen[usable][:: max(1, len(seen) // 2048)], widths[-1])
            self._hopeless = self._basis is None
            if self._basis is None:
                return None
            self._costs = measured_costs(d)
        assert self._costs is not None
        sample = _reduced_sample(work, self._basis, widths)
        which = np.arange(len(before))[:: max(1, len(before) // 128)]
        limit = np.maximum(before[which], _expected(work, which))
        factors = sample.queries(work.screen.part(which)).factors
        shares = passing(sample, factors, limit)
        tile = len(before)
        widths = chosen_widths(
            self._costs, widths, sample.ends, d, shares, tile, self._queries, PROBED
        )
        if not widths:
            return None
        reduced = Reduced(self._basis, widths, work.screen, n)
        if not reduced.sound:
            return None
        order, stops = _order(n)
        reduced.fill(work.screen, work.chunk, order, work.map)
        work.note(Block(reduced.matrix.T, order[reduced.unusable], order[reduced.zero], 0.0))
        clusters = Clusters(reduced, sample, work.map)
        return Ready(reduced, sample, clusters, order, stops)


@dataclass
class Group:
    """Queries of a tile that begin with the same columns.

    left: their left factor. limit: what the product must reach. end: how many columns of the
    reduced rows it takes; None for all columns of the rows themselves. second: the factor of the
    second stage, None without one.
    """

    queries: NDArray[np.int64]
    left: NDArray[np.float32]
    limit: NDArray[np.float32]
    end: int | None
    second: NDArray[np.float32] | None


class PrunedPass:
    """One chunk against one tile of queries, with few columns first."""

    def __init__(self, work: Pass, ready: Ready, costs: Costs) -> None:
        self.work, self.ready, self.costs = work, ready, costs
        self.screen, self.reduced = work.screen, ready.reduced
        self.queries: ReducedQueries = self.reduced.queries(self.screen)
        self._buffers = threading.local()

    def run(
        self, threshold: NDArray[np.float64]
    ) -> tuple[Survivors, NDArray[np.float64], NDArray[np.float64]]:
        """All rows that may reach the threshold, or what it rises to.

        Returns the survivors, the highest threshold that was guessed, and one that the k-th
        neighbour surely reaches (-inf where none is known).
        """
        n = len(self.work.chunk)
        guess = threshold
        self.work.norm = max(self.work.norm, self.reduced.norm)
        sure = self.ready.clusters.thresholds(
            self.queries,
            self.screen,
            lambda places: self.work.chunk[self.ready.order[places]],
            guess,
            self.work.k,
            self.work.most,
            self.work.map,
        )
        found: list[Survivors] = []
        low = 0
        for stop in self.ready.stops:
            found = [self._stretch(found, low, stop, np.maximum(guess, sure))]
            low = stop
            if stop < n:
                guess, sure = self._raised(found[0], guess, sure, stop / n)
                reach = np.maximum(guess, sure) - self.screen.error(self.work.norm)
                found = [found[0].where(found[0].score >= reach[found[0].query])]
        return found[0], guess, np.maximum(sure, self._sure(found[0], len(guess)))

    def _sure(self, found: Survivors, m: int) -> NDArray[np.float64]:
        return found.ranked(m, self.work.k) - self.screen.error(self.work.norm)

    def _raised(
        self,
        found: Survivors,
        guess: NDArray[np.float64],
        sure: NDArray[np.float64],
        done: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Thresholds after an even sample of so large a share of the rows."""
        m = len(guess)
        sure = np.maximum(sure, self._sure(found, m))
        # Of the k nearest about k * done are in the sample; five deviations more are hardly ever.
        expected = self.work.k * done
        rank = int(np.ceil(expected + 5 * np.sqrt(expected * (1 - done)) + 2))
        if rank < self.work.k:
            guess = np.maximum(guess, found.ranked(m, rank))
        return guess, sure

    def _stretch(
        self, found: list[Survivors], low: int, stop: int, threshold: NDArray[np.float64]
    ) -> Survivors:
        """Screen rows low to stop of the order; add the survivors to those found."""
        limit = threshold - self.screen.error(self.reduced.norm)
        groups = self._groups(threshold, limit)
        last = rounded_down(limit, self.screen.dtype)
        step = int(np.clip(_CELLS // max(len(g.queries) for g in groups), 256, 2048))
        parts = [slice(i, min(i + step, stop)) for i in range(low, stop, step)]
        held = sum(len(part.row) for part in found)

        def product(part: slice) -> Survivors:
            return self._product(part, groups, last)

        for part, survivors in zip(parts, self.work.map(product, parts), strict=True):
            self.work.report(part.start / len(self.work.chunk))
            found.append(survivors)
            held += len(survivors.row)
            if held > self.work.most:
                raise TooMany
        return Survivors.joined(found)

    def _groups(self, threshold: NDArray[np.float64], limit: NDArray[np.float64]) -> list[Group]:
        """The queries by how many columns they had best begin with."""
        sample, reduced = self.ready.sample, self.reduced
        shares = passing(sample, self.queries.factors, threshold)
        widths = widths_of(
            seconds_per_cell(self.costs, reduced.ends, reduced.dimension, shares, len(threshold))
        )
        bounded = rounded_down(limit - self.queries.slack(), self.screen.dtype)
        plain = rounded_down(limit, self.screen.dtype)
        groups = []
        for width in np.unique(widths).tolist():
            mine = np.flatnonzero(widths == width)
            if width == len(reduced.ends):
                groups.append(Group(mine, self.screen.left[mine], plain[mine], None, None))
                continue
            left, second = self.queries.factors[width][mine], None
            if width < len(reduced.ends) - 1:
                second = self.queries.second(width)[mine]
            groups.append(Group(mine, left, bounded[mine], reduced.ends[width], second))
        return groups

    def _product(self, part: slice, groups: list[Group], last: NDArray[np.float32]) -> Survivors:
        """Survivors of all queries among the rows of one part of the order."""
        rows = self.ready.order[part]
        chunk = self.work.chunk
        unusable = self.ready.reduced.unusable
        out = unusable[(unusable >= part.start) & (unusable < part.stop)] - part.start
        sure: list[Survivors] = []
        likely = []
        for group in groups:
            if group.end is None:
                right = self.screen.block(chunk[rows]).right
                query, column, score = self._reaching(group, right, out)
                sure.append(Survivors(group.queries[query].astype(np.uint16), rows[column], score))
                continue
            reduced = self.reduced.matrix[part]
            query, column, score = self._reaching(group, reduced[:, : group.end].T, out)
            if group.second is not None:
                score += _pair_products(group.second, query, reduced[:, group.end - 1 :], column)
                keep = np.flatnonzero(score >= group.limit[query])
                query, column = query[keep], column[keep]
            likely.append((group.queries[query], column))
        if likely:
            sure.append(self._scored(rows, likely, last))
        return Survivors.joined(sure)

    def _reaching(
        self, group: Group, right: NDArray[np.float32], out: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Pairs whose product reaches the limit: positions in the group, columns, products."""
        rows = right.shape[1]
        scores, mask = self._room(len(group.queries), rows)
        np.matmul(group.left, right, out=scores)
        scores[:, out] = -np.inf
        np.greater_equal(scores, group.limit[:, None], out=mask)
        cell = np.flatnonzero(mask)
        query, column = np.divmod(cell, rows)
        return query, column, scores.reshape(-1)[cell]

    def _scored(
        self,
        rows: NDArray[np.int64],
        pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
        last: NDArray[np.float32],
    ) -> Survivors:
        """The pairs that stay when all columns count."""
        query = np.concatenate([q for q, _ in pairs])
        column = np.concatenate([c for _, c in pairs])
        used = np.zeros(len(rows), dtype=bool)
        used[column] = True
        place = np.cumsum(used) - 1
        right = self.screen.block(self.work.chunk[rows[used]]).right.T
        score = _pair_products(self.screen.left, query, right, place[column])
        keep = np.flatnonzero(score >= last[query])
        return Survivors(query[keep].astype(np.uint16), rows[column[keep]], score[keep])

    def _room(self, m: int, rows: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Room for scores and marks, the same for all products of one thread."""
        cells = m * rows
        if getattr(self._buffers, "size", 0) < cells:
            self._buffers.scores = np.empty(cells, dtype=np.float32)
            self._buffers.mask = np.empty(cells, dtype=bool)
            self._buffers.size = cells
        scores = self._buffers.scores[:cells].reshape(m, rows)
        return scores, self._buffers.mask[:cells].reshape(m, rows)


def _order(n: int) -> tuple[NDArray[np.int64], list[int]]:
    """Row numbers in an order in which every stretch is an even sample, and where they end."""
    order = np.random.default_rng(0).permutation(n)
    stops = sorted({max(1, int(n * share)) for share in _STRETCHES})
    for low, stop in zip([0, *stops], stops, strict=False):
        order[low:stop].sort()
    return order, stops


def _reduced_sample(work: Pass, basis: Basis, widths: list[int]) -> Reduced:
    rows = np.arange(len(work.sample))[:: max(1, len(work.sample) // 512)]
    return Reduced(basis, widths, work.screen, len(rows)).fill(work.screen, work.sample, rows)


def _expected(work: Pass, which: NDArray[np.int64]) -> NDArray[np.float64]:
    """What thresholds will be about, once they are seeded, from the scores of the sample."""
    share = 1.3 * work.k * len(work.sample) / len(work.chunk)
    first = work.ranked(which, np.full(len(which), max(1, round(share))))
    if share >= 1:
        return first
    # Beyond the best of the sample: scores fall about evenly with the logarithm of the rank, and
    # ranks 1 and 2 are one such step apart on average.
    second = work.ranked(which, np.full(len(which), 2))
    both = second > -np.inf
    step = float(np.mean(first[both] - second[both])) if both.any() else 0.0
    return first + step * float(np.log(1 / share))


def _pair_products(
    left: NDArray[np.float32],
    query: NDArray[np.int64],
    right: NDArray[np.float32],
    row: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Products of single pairs of rows, a few at a time."""
    scores = np.empty(len(query), dtype=np.float32)
    for low in range(0, len(query), _PAIRS):
        some = slice(low, low + _PAIRS)
        np.vecdot(left.take(query[some], axis=0), right[row[some]], out=scores[some])
    return scores
