"""What graphs that a library links and searches share: knobs, batches that fail as one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.systems.base import Knob
from semrecall.systems.inprocess import InProcessSystem, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GraphSystem", "asked", "linking", "readable"]

#: Vectors looked at together.
_AT_ONCE = 4096


class GraphSystem(InProcessSystem):
    """A graph of one library. An adapter says how to make an empty one, and how to add to it."""

    #: The knob, and the attribute of an index, of how many candidates a search keeps.
    candidates: ClassVar[str]
    #: Build knobs that the library calls otherwise.
    called: ClassVar[Mapping[str, str]] = {"seed": "random_seed", "threads": "num_threads"}
    #: Attributes of an index that are recorded.
    recorded: ClassVar[tuple[str, ...]]

    @abstractmethod
    def _empty(self, **knobs: Any) -> Any:
        """An index with nothing in it, in the space of this system."""

    @abstractmethod
    def _add(
        self, index: Any, keys: NDArray[np.int64], block: NDArray[np.float32], **knobs: Any
    ) -> None:
        """Add vectors (m, d) by their keys (m,)."""

    def _arguments(self, knobs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Build knobs as arguments of the library: of what makes an index, of what adds to it."""
        making = {self.called.get(name, name): value for name, value in knobs.items()}
        threads = self.called.get("threads", "threads")
        return making, {threads: making.pop(threads)} if threads in making else {}

    def _fill(self, rows: Rows, **knobs: Any) -> Any:
        making, adding = self._arguments(knobs)
        index = self._empty(**making)
        for keys, block in rows.blocks():
            self._add(index, keys, block, **adding)
        return index

    @property
    def search_knobs(self) -> tuple[Knob, ...]:
        """How many candidates a search keeps."""
        stands = int(getattr(self._index, self.candidates))
        high = max(self._size, 4096, stands)
        about = "length of the candidate list (at least k)"
        return (Knob(self.candidates, "search", 1, high, stands, about, "log", from_k=True),)

    @contextmanager
    def _turned_to(self, settings: Mapping[str, Any], least: int = 1) -> Iterator[None]:
        """Keep so many candidates, and as many as before at the end."""
        before = getattr(self._index, self.candidates)
        wanted = max(settings.get(self.candidates, before), least)
        try:
            setattr(self._index, self.candidates, wanted)
            yield
        finally:
            setattr(self._index, self.candidates, before)

    def _natural(self, told: NDArray[np.float32]) -> NDArray[np.float32]:
        return super()._natural(told) if self._space.name == "l2" else 1 - told

    def _told(self) -> dict[str, Any]:
        return {name: getattr(self._index, name) for name in self.recorded}


def linking(
    links: tuple[str, int], length: tuple[str, int], seed: int | None = None
) -> tuple[Knob, ...]:
    """The build knobs of a graph: name and default of the links and of the candidate list.

    seed: the library's own; None where it takes none.
    """
    chance = () if seed is None else (Knob("seed", "build", 0, 2**31 - 1, seed, "of the levels"),)
    return (
        Knob(links[0], "build", 2, 512, links[1], "links of a vector", "log"),
        Knob(
            length[0], "build", 1, 65536, length[1],
            "length of the candidate list while linking", "log",
        ),
        *chance,
        Knob("threads", "build", 1, 4096, None, "threads; 1 makes a graph repeatable"),
    )  # fmt: skip


def readable(
    keys: NDArray[np.uint64], get: Callable[[NDArray[np.uint64]], Any]
) -> NDArray[np.uint64]:
    """The keys whose vectors `get` gives out, rising; it raises RuntimeError for deleted ones."""

    def there(some: NDArray[np.uint64]) -> bool:
        try:
            get(some)
        except RuntimeError:
            return False
        return True

    ordered = np.sort(keys)
    parts = [ordered[:0]]
    for start in range(0, len(ordered), _AT_ONCE):
        part = ordered[start : start + _AT_ONCE]
        parts.append(part if there(part) else part[[there(one) for one in part[:, None]]])
    return np.concatenate(parts)


def asked(
    ask: Callable[..., Any], queries: NDArray[np.float32], k: int, few: type[Exception]
) -> tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.bool_]]:
    """Keys and distances (n, k), and which are no results, of a library that wants k for all.

    ask: queries (m, d) and a number of results -> keys and distances; it raises `few` when one
    query finds fewer. Then every query is asked alone, for as many as it finds.
    """
    try:
        keys, distances = ask(queries, k)
    except few:
        keys = np.zeros((len(queries), k), dtype=np.uint64)
        distances = np.zeros((len(queries), k), dtype=np.float32)
    else:
        return keys, distances, np.zeros(keys.shape, dtype=bool)
    missing = np.ones((len(queries), k), dtype=bool)
    for row in range(len(queries)):
        low, high = 0, k
        while low < high:
            middle = k if high == k and low == 0 else (low + high + 1) // 2
            try:
                one, far = ask(queries[row : row + 1], middle)
            except few:
                high = middle - 1
            else:
                low = middle
                keys[row, :low], distances[row, :low] = one[0], far[0]
        missing[row, :low] = False
    return keys, distances, missing
