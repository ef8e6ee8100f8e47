"""Rounds: a search that goes on list by list, each query as far as it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.systems.base import Counters

__all__ = ["Rounds"]


class Rounds(ABC):
    """The search of n queries for k results in an index of lists, in the middle of its work.

    Every query has its lists in the order in which a search visits them. Once a query visited
    its first m lists, its results are those of `search` with `nprobe=m` to the bit, and its
    counters those of `count`, but for the coarse stage, which is that of all the lists planned.

    limit: how many lists are planned for each query.
    k: how many results at most.
    visited: (n,) how many of its lists each query visited.
    centroids: (n, limit) scores of the centroids in the order of visits, in the natural unit of
        the space; NaN where there is no list.
    sizes: (n, limit) vectors in those lists.
    """

    limit: int
    k: int
    visited: NDArray[np.int64]
    centroids: NDArray[np.float64]
    sizes: NDArray[np.int64]

    @abstractmethod
    def visit(self, rows: NDArray[np.int64], lists: int) -> None:
        """Let these queries go on until they visited their first `lists` lists."""

    @abstractmethod
    def results(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Ids and scores of these queries so far, (m, k) each, as `System.search` gives them."""

    @abstractmethod
    def counters(self) -> Counters:
        """What all n queries cost so far."""
