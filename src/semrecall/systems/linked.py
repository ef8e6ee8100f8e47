"""What graphs that a library links and searches share: knobs, files, batches that fail as one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, MismatchError, SemrecallError
from semrecall.formats import writing
from semrecall.space import Space
from semrecall.space import space as space_of
from semrecall.systems.base import Knob
from semrecall.systems.inprocess import InProcessSystem, existing

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GraphSystem", "asked_alone", "linking", "readable"]

#: Vectors looked at together.
_AT_ONCE = 4096


class GraphSystem(InProcessSystem):
    """A graph of one library, which can be saved to a file."""

    #: The knob, and the attribute of an index, of how many candidates a search keeps.
    candidates: ClassVar[str]

    @abstractmethod
    def _read(self, file: str, space: str | Space | None) -> Any:
        """The index in a file; RuntimeError or ValueError where the library cannot read it."""

    @abstractmethod
    def _write(self, path: str) -> None:
        """Write the index to a file; RuntimeError where that fails."""

    @property
    def search_knobs(self) -> tuple[Knob, ...]:
        """How many candidates a search keeps."""
        stands = int(getattr(self._index, self.candidates))
        high = max(self._size, 4096, stands)
        about = "length of the candidate list (at least k)"
        return (Knob(self.candidates, "search", 1, high, stands, about, "log", from_k=True),)

    def _opened(self, index: Any, space: str | Space | None) -> tuple[Any, str | None]:
        """An index, and the file it comes from; None for one in memory."""
        if not isinstance(index, str | Path):
            return index, None
        file = str(existing(index, f"a saved {self.library} index"))
        try:
            return self._read(file, space), file
        except SemrecallError:
            raise
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{file}: {self.library} cannot read this index: {error}") from error

    def _fitting(self, metric: str, spaces: Sequence[str], space: str | Space | None) -> Space:
        """The space asked for, or the first of those that a metric of the library serves."""
        geometry = space_of(space or (*spaces, "?")[0])
        if geometry.name not in spaces:
            raise MismatchError(
                f"the {self.library} index compares by {metric}; found space {geometry}"
            )
        return geometry

    def save(self, path: str | Path) -> None:
        """Write the index to a file of the library; integer ids go along, others do not."""
        self._held()
        with writing(Path(path)) as scratch:
            try:
                self._write(str(scratch))
            except RuntimeError as error:
                raise InputError(
                    f"{path}: {self.library} cannot write the index: {error}",
                    hint="is there room for it on the disk?",
                ) from error


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
    keys: NDArray[np.uint64], get: Callable[[NDArray[np.uint64]], Any], gone: type[Exception]
) -> NDArray[np.uint64]:
    """The keys whose vectors `get` gives out, rising; it raises `gone` for deleted ones."""
    ordered = np.sort(keys)
    parts = [ordered[:0]]
    for start in range(0, len(ordered), _AT_ONCE):
        part = ordered[start : start + _AT_ONCE]
        try:
            get(part)
        except gone:
            part = part[[_is_there(get, one, gone) for one in part.reshape(-1, 1)]]
        parts.append(part)
    return np.concatenate(parts)


def _is_there(
    get: Callable[[NDArray[np.uint64]], Any], key: NDArray[np.uint64], gone: type[Exception]
) -> bool:
    try:
        get(key)
    except gone:
        return False
    return True


def asked_alone(
    ask: Callable[..., Any], queries: NDArray[np.float32], k: int, few: type[Exception]
) -> tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.int64]]:
    """Every query asked alone, for as many of k results as it finds.

    ask: queries (1, d) and a number of results -> keys (1, w) and distances (1, w); it raises
    `few` when it finds fewer. Keys and distances (n, k), and how many of each row count, (n,).
    """
    keys = np.zeros((len(queries), k), dtype=np.uint64)
    distances = np.zeros((len(queries), k), dtype=np.float32)
    counts = np.zeros(len(queries), dtype=np.int64)
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
        counts[row] = low
    return keys, distances, counts
