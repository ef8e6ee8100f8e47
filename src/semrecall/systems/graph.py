"""Replays of searches in the graph of hnswlib, which counts nothing itself.

A replay makes the same steps on the same graph: down the levels greedily, then along the two
heaps of candidates and results, which are those of the C++ library, so that equal distances come
in the same order, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Graph", "read_graph"]

#: Distances of one query to these positions (m,), as the library computes them.
Distances = Callable[["NDArray[np.int64]"], "list[float]"]


@dataclass(frozen=True)
class Graph:
    """The links of hnswlib.

    labels: (n,) by position. links: (n, M0) positions, -1 beyond the last. upper: for positions
    above level 0 their links by level, from level 1. deleted: (n,), or None.
    """

    labels: NDArray[np.uint64]
    vectors: NDArray[np.float32]
    links: NDArray[np.int64]
    upper: Mapping[int, tuple[NDArray[np.int64], ...]]
    entry: int
    top_level: int
    deleted: NDArray[np.bool_] | None

    def replay(self, distances: Distances, k: int, ef: int) -> tuple[list[int], int]:
        """Labels found, best first, and how many distances were computed on the way."""
        start, distance, computed = self._down(distances)
        found, more = self._along(distances, start, distance, max(ef, k))
        while len(found) > k:
            _pop(found)
        ordered = sorted((far, int(self.labels[position])) for far, position in found)
        return [label for _, label in ordered], computed + more

    def _down(self, distances: Distances) -> tuple[int, float, int]:
        """The nearest position above level 0, its distance, and how many were computed."""
        current = self.entry
        nearest, computed = distances(np.array([current]))[0], 1
        for level in range(self.top_level, 0, -1):
            moved = True
            while moved:
                moved = False
                near = self.upper[current][level - 1]
                computed += len(near)
                for position, distance in zip(near.tolist(), distances(near), strict=True):
                    if distance < nearest:
                        current, nearest, moved = position, distance, True
        return current, nearest, computed

    def _along(
        self, distances: Distances, start: int, distance: float, ef: int
    ) -> tuple[list[tuple[float, int]], int]:
        """The heap of results on level 0, farthest on top, and how many were computed."""
        visited = np.zeros(len(self.labels), dtype=bool)
        visited[start] = True
        gone = self.deleted
        results: list[tuple[float, int]] = []
        computed, bound = 0, np.inf
        if gone is None or not gone[start]:
            # Computed anew, where hnswlib starts this level.
            computed, bound = 1, distance
            _push(results, (distance, start))
        candidates = [(-bound, start)]
        while candidates:
            near, position = candidates[0]
            if -near > bound and (gone is None or len(results) == ef):
                break
            _pop(candidates)
            linked = self.links[position]
            fresh = linked[(linked >= 0) & ~visited[linked]]
            visited[fresh] = True
            computed += len(fresh)
            for other, far in zip(fresh.tolist(), distances(fresh), strict=True):
                if len(results) < ef or bound > far:
                    _push(candidates, (-far, other))
                    if gone is None or not gone[other]:
                        _push(results, (far, other))
                    if len(results) > ef:
                        _pop(results)
                    if results:
                        bound = results[0][0]
        return results, computed


def read_graph(state: Mapping[str, Any]) -> Graph:
    """The graph in the state of a hnswlib index (`index.__getstate__()[0]`)."""
    n, size = int(state["cur_element_count"]), int(state["size_data_per_element"])
    flat = np.asarray(state["data_level0"]).view(np.uint8)
    rows = flat[: n * size].reshape(n, size)
    most, at = int(state["max_M0"]), int(state["offset_data"])
    labels_at = int(state["label_offset"])
    deleted = (rows[:, 2] & 1).astype(bool)
    return Graph(
        labels=rows[:, labels_at : labels_at + 8].copy().view(np.uint64)[:, 0],
        vectors=rows[:, at:labels_at].copy().view(np.float32),
        links=_links(rows[:, : 4 * (most + 1)]),
        upper=_upper(state, n),
        entry=int(state["enterpoint_node"]),
        top_level=int(state["max_level"]),
        deleted=deleted if deleted.any() else None,
    )


def _links(lists: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Lists (n, 4 * (m + 1)) bytes, each a length and so many positions -> (n, m), -1 beyond."""
    whole = np.ascontiguousarray(lists).view(np.uint32)
    # The length has two bytes; the third marks what was deleted.
    beyond = np.arange(whole.shape[1] - 1) >= (whole[:, :1] & 0xFFFF)
    links = whole[:, 1:].astype(np.int64)
    links[beyond] = -1
    return links


def _upper(state: Mapping[str, Any], n: int) -> dict[int, tuple[NDArray[np.int64], ...]]:
    levels = np.asarray(state["element_levels"])[:n]
    size = int(state["size_links_per_element"])
    flat = np.asarray(state["link_lists"]).view(np.uint8)
    found: dict[int, tuple[NDArray[np.int64], ...]] = {}
    start = 0
    for position in np.flatnonzero(levels > 0).tolist():
        stop = start + size * int(levels[position])
        lists = _links(flat[start:stop].reshape(-1, size))
        found[position] = tuple(row[row >= 0] for row in lists)
        start = stop
    return found


# -- heaps by the first of a pair only, as std::push_heap and std::pop_heap order them --------


def _push(heap: list[tuple[float, int]], item: tuple[float, int]) -> None:
    heap.append(item)
    _rise(heap, len(heap) - 1, item)


def _pop(heap: list[tuple[float, int]]) -> None:
    """Take the top away: the hole sinks to a leaf, then the last item rises from there."""
    item = heap.pop()
    size = len(heap)
    if not size:
        return
    hole, child = 0, 2
    while child < size:
        if heap[child][0] < heap[child - 1][0]:
            child -= 1
        heap[hole] = heap[child]
        hole, child = child, 2 * child + 2
    if child == size:
        heap[hole] = heap[child - 1]
        hole = child - 1
    _rise(heap, hole, item)


def _rise(heap: list[tuple[float, int]], hole: int, item: tuple[float, int]) -> None:
    while hole:
        parent = (hole - 1) // 2
        if not heap[parent][0] < item[0]:
            break
        heap[hole] = heap[parent]
        hole = parent
    heap[hole] = item
