"""Rounds of probes in the inverted lists of faiss: its own scanners, stopped between two lists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError
from semrecall.systems.base import Counters, Stage
from semrecall.systems.faiss_index import faiss, name_of, stages, transformed
from semrecall.systems.rounds import Rounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FaissRounds"]

_LISTS = (faiss.IndexIVFFlat, faiss.IndexIVFScalarQuantizer, faiss.IndexIVFPQ)

#: Ids and scores as a system gives them, of labels and distances as faiss does.
Answer = Callable[[Any, Any], tuple[Any, Any]]


class FaissRounds(Rounds):
    """The heaps of n queries, filled list by list as faiss itself fills them.

    Merging the results of separate searches would leave equal scores in another order than one
    search does; here a scanner of faiss goes on with the heap it left.
    """

    def __init__(self, index: Any, queries: NDArray[np.float32], k: int, answer: Answer) -> None:
        """Find the lists of every query, as the knobs of the index stand; visit none yet.

        queries: (n, d) as compared. answer: makes ids and scores of what faiss finds.
        InputError for an index that is no plain index of lists.
        """
        self._ivf, self._queries, self._maps = _lists_of(index, queries)
        n, self.k, self._answer = len(queries), k, answer
        self.limit = min(int(self._ivf.nprobe), int(self._ivf.nlist))
        self._stages = stages(self._ivf, self._queries, k)
        self._scores, self._lists = _coarse(self._ivf, self._queries, self.limit)
        sizes = [self._ivf.invlists.list_size(number) for number in range(self._ivf.nlist)]
        self.sizes = np.array([*sizes, 0], dtype=np.int64)[self._lists]
        nearer = self._ivf.metric_type == faiss.METRIC_INNER_PRODUCT
        squared = np.where(self._lists < 0, np.nan, self._scores).astype(np.float64)
        self.centroids = squared if nearer else np.sqrt(np.maximum(squared, 0))
        self.visited = np.zeros(n, dtype=np.int64)
        self._ordered = faiss.float_minheap_array_t if nearer else faiss.float_maxheap_array_t
        worst = np.finfo(np.float32).max * (-1 if nearer else 1)
        self._values = np.full((n, k), worst, dtype=np.float32)
        self._labels = np.full((n, k), -1, dtype=np.int64)
        self._scanner = self._ivf.get_InvertedListScanner(False, None, None)

    def visit(self, rows: NDArray[np.int64], lists: int) -> None:
        """Let these queries go on until they visited their first `lists` lists."""
        if lists > self.limit:
            raise InputError(f"{lists:,} lists are more than the {self.limit:,} planned")
        stored = self._ivf.invlists
        for row in rows.tolist():
            self._scanner.set_query(faiss.swig_ptr(self._queries[row]))
            values = faiss.swig_ptr(self._values[row])
            labels = faiss.swig_ptr(self._labels[row])
            for place in range(int(self.visited[row]), lists):
                number, size = int(self._lists[row, place]), int(self.sizes[row, place])
                if size:
                    self._scanner.set_list(number, float(self._scores[row, place]))
                    self._scanner.scan_codes(
                        size, stored.get_codes(number), stored.get_ids(number),
                        values, labels, self.k,
                    )  # fmt: skip
            self.visited[row] = max(self.visited[row], lists)

    def results(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Ids and scores of these queries so far, (m, k) each, as `System.search` gives them."""
        values, labels = self._values[rows], self._labels[rows]
        heaps = self._ordered()
        heaps.nh, heaps.k = len(rows), self.k
        heaps.val, heaps.ids = faiss.swig_ptr(values), faiss.swig_ptr(labels)
        heaps.reorder()
        for mapped in self._maps:
            labels = mapped[labels]
        return self._answer(values, labels)

    def counters(self) -> Counters:
        """What all n queries cost so far."""
        planned = np.arange(self.limit)[None, :] < self.visited[:, None]
        compared = np.where(planned, self.sizes, 0).sum(axis=1).astype(np.float64)
        return Counters({**self._stages, "codes": Stage(compared, self._ivf.code_size)})


def _lists_of(
    index: Any, queries: NDArray[np.float32]
) -> tuple[Any, NDArray[np.float32], list[NDArray[np.int64]]]:
    """The lists within, queries as they see them, and what maps their labels outward."""
    whole = index
    maps: list[NDArray[np.int64]] = []
    index = faiss.downcast_index(index)
    while isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform):
        if isinstance(index, faiss.IndexIDMap):
            # The last entry stands for -1, a missing result.
            mapped = faiss.vector_to_array(index.id_map).astype(np.int64)
            maps.insert(0, np.append(mapped, -1))
        else:
            queries = transformed(index, queries)
        index = faiss.downcast_index(index.index)
    # Not of a derived type: those keep more in their lists than a scanner tells.
    if type(index) not in _LISTS or index.max_codes:
        raise InputError(
            f"a faiss {name_of(whole)} cannot be searched in rounds of lists",
            hint="expected IVF lists of Flat, SQ or PQ codes, without a refine layer, such as "
            "IVF256,SQ8 or OPQ16,IVF256,PQ16",
        )
    return index, np.ascontiguousarray(queries), maps


def _coarse(
    ivf: Any, queries: NDArray[np.float32], limit: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Centroids of every query, nearest first: scores and numbers, (n, limit) each.

    In the slices in which faiss divides a batch among its threads: the last bits of a distance
    depend on how many queries are compared at once.
    """
    n = len(queries)
    parts = max(1, min(faiss.omp_get_max_threads(), n))
    edges = [n * part // parts for part in range(parts + 1)]
    found = [ivf.quantizer.search(queries[low:high], limit) for low, high in pairwise(edges)]
    return np.concatenate([s for s, _ in found]), np.concatenate([lists for _, lists in found])
