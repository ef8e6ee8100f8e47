"""What a search system is: built once, searched with many settings, its cost counted."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from semrecall.space import Space
    from semrecall.systems.rounds import Rounds

__all__ = [
    "Counters",
    "Knob",
    "Stage",
    "System",
    "as_asked",
    "as_compared",
    "searchable",
    "unit",
    "usable_blocks",
    "warn_left_out",
]

_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class Knob:
    """One thing to turn: while building, or with every search.

    low, high: the values it may have, both included.
    default: what it is when nobody turns it; None where that depends on the data.
    scale: how values between low and high are best spread, for sweeps and tuning.
    whole: whether only whole numbers make sense.
    from_k: whether a value below k, the number of results, does what k does.
    words: of a mode, what it can be; a value is one of them, low and high are their places.
    """

    name: str
    kind: Literal["build", "search"]
    low: float
    high: float
    default: Any
    about: str
    scale: Literal["linear", "log"] = "linear"
    whole: bool = True
    from_k: bool = False
    words: tuple[str, ...] = ()

    @classmethod
    def mode(
        cls, name: str, kind: Literal["build", "search"], words: Sequence[str], default: str | None,
        about: str,
    ) -> Knob:  # fmt: skip
        """A knob that is one of some words, which stand in no order of effort."""
        return cls(name, kind, 0, len(words) - 1, default, about, words=tuple(words))

    def check(self, value: Any) -> Any:
        """The value as a number, or a word, this knob can have; InputError when it cannot.

        A mode takes the place of a word, too.
        """
        if self.words and isinstance(value, str):
            for word in self.words:
                if word == value.strip().lower():
                    return word
            raise InputError(f"{self.name} is {value!r}; expected {self.range}")
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or (self.whole and value != int(value)):
            kind = "a whole number " if self.whole else "a number "
            kind = "" if self.words else kind
            raise InputError(f"{self.name} is {value!r}; expected {kind}{self.range}")
        if not self.low <= value <= self.high:
            kind = "" if self.words else "a number "
            raise InputError(f"{self.name} is {value:g}; expected {kind}{self.range}")
        if self.words:
            return self.words[int(value)]
        return int(value) if self.whole else float(value)

    @property
    def range(self) -> str:
        """The allowed values in words."""
        if self.words:
            return " or ".join((", ".join(self.words[:-1]), self.words[-1]))
        return f"from {self.low:.12g} to {self.high:.12g}"


@dataclass(frozen=True)
class Stage:
    """One stage of a search.

    distance_computations: vectors compared at this stage, per query, shape (n,).
    bytes_each: bytes that one comparison reads of the index.
    """

    distance_computations: NDArray[np.float64]
    bytes_each: float


@dataclass(frozen=True)
class Counters:
    """What queries cost, by stage (e.g. coarse, codes, refine); None for a stage that is unknown.

    A stage whose counter reads 0 for all queries is unknown, not free.

    reported_bytes: bytes per query, (n,), as a database reports them as a whole; used where the
    stages do not say.
    """

    stages: Mapping[str, Stage | None]
    reported_bytes: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        known = {
            name: stage if stage is not None and stage.distance_computations.any() else None
            for name, stage in self.stages.items()
        }
        object.__setattr__(self, "stages", known)

    @property
    def distance_computations(self) -> NDArray[np.float64] | None:
        """Vectors compared at all stages, per query, (n,); None when a stage is unknown."""
        return self._total(by_bytes=False)

    @property
    def bytes_read(self) -> NDArray[np.float64] | None:
        """Bytes those comparisons read, per query, (n,); None when a stage is unknown."""
        counted = self._total(by_bytes=True)
        if counted is not None or self.reported_bytes is None or not self.reported_bytes.any():
            return counted
        return self.reported_bytes

    def _total(self, *, by_bytes: bool) -> NDArray[np.float64] | None:
        total: NDArray[np.float64] | None = None
        for stage in self.stages.values():
            if stage is None:
                return None
            part = stage.distance_computations * (stage.bytes_each if by_bytes else 1.0)
            total = part if total is None else total + part
        return total


class System(ABC):
    """A search system. An adapter says how to build and to search; the rest has defaults.

    spec: what `open_system` was asked for.
    options: key -> one line about it, for the keys a spec may have; they become arguments of
        the constructor.
    knobs: what can be turned. An unbuilt system may know its build knobs only.
    space, dimension, ntotal: geometry, dimensions and number of vectors held; InputError before
        the system is built.
    """

    options: ClassVar[Mapping[str, str]] = {}
    #: Whether the time of a search is the system's own (a recording only looks results up).
    timed: ClassVar[bool] = True
    #: Whether `search` and `count` are given the ids of the queries as `query_ids`.
    by_query_id: ClassVar[bool] = False
    #: Whether `search` and `count` are given the texts of the queries as `texts`; vectors that
    #: come along are not looked at.
    by_text: bool = False
    #: Whether `build` makes one; False where it is searched as it is.
    buildable: bool = True
    #: Whether `dimension` is known; where it is not, queries of any dimension are handed on.
    tells_dimension: bool = True
    #: Whether `search`, `count` and `exact` take `filters`: for each query one filter in the
    #: system's own language, or None.
    filtered: bool = False

    #: Whether `build` may drop what has the name `named`.
    replace: bool = False

    spec: str = ""

    @property
    def named(self) -> str:
        """The collection or table that the spec names, which outlives the system; else empty.

        `build` makes just one of that name; without a name, every build makes one of its own.
        """
        return ""

    @property
    def remote(self) -> bool:
        """Whether another process does the work, so that its processor time is not seen here."""
        return False

    @property
    @abstractmethod
    def knobs(self) -> tuple[Knob, ...]:
        """What can be turned."""

    @property
    @abstractmethod
    def built(self) -> bool:
        """Whether there is something to search."""

    @property
    @abstractmethod
    def space(self) -> Space:
        """The geometry of the scores."""

    @property
    def score_space(self) -> Space | None:
        """The geometry of the scores; None where they are of no space, and higher is better."""
        return self.space

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Dimensions of the vectors."""

    @property
    @abstractmethod
    def ntotal(self) -> int:
        """How many vectors it holds."""

    @abstractmethod
    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """The system with these vectors in it; the one it is called on stays as it was.

        base: Vectors or an array (n, d). ids: ids of the rows, in place of those of `base`.
        knobs: build knobs.
        """

    @abstractmethod
    def search(
        self, queries: NDArray[np.float32], k: int, **settings: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids and scores, (n, at most k) each, best first, in the natural unit of the space.

        queries: (n, d) float32, finite, and not zero where direction matters. An id that is
        negative or empty is missing; scores are None where the system tells none. `settings`
        hold for this call only. This is what is timed: no counting here.
        """

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters | None:
        """What `search` with the same arguments costs, by counters; None when nothing counts.

        Never timed, so it may replay the search.
        """
        return None

    def rounds(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Rounds:
        """A search that goes on list by list, so that each query may end it by itself.

        settings: knobs of the whole search; `nprobe` says how many lists are planned. InputError
        where there are no lists to visit one after another.
        """
        raise InputError(f"{self.spec or type(self).__name__} cannot be searched in rounds")

    def exact(
        self, queries: NDArray[np.float32], k: int, **given: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The true neighbours by the system itself, like `search`; InputError where it has none."""
        raise InputError(f"{self.spec or type(self).__name__} has no exact search of its own")

    def vectors(self) -> Vectors:
        """The vectors it holds, with their ids, as they were given to it, read in pages.

        InputError where it does not give them out.
        """
        raise InputError(f"{self.spec or type(self).__name__} does not give out its vectors")

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """How these search settings are written for the system itself: Python, SQL, YAML, ..."""
        written = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return f"semrecall.search(system, queries, k, {written})"

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """How this built system is made with these build knobs, written likewise."""
        given = "".join(f", {name}={value!r}" for name, value in knobs.items())
        return (
            f"system = semrecall.open_system({self.spec!r}).build(base, {self.space.name!r}{given})"
        )

    def close(self) -> None:  # noqa: B027 - most systems hold nothing open
        """Let go of connections and servers."""

    def codes(self) -> Vectors | None:
        """What the quantiser kept, decoded to float32, with the ids of the base and in its order.

        None where the vectors are kept as they were.
        """
        return None

    def view(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], Space]:
        """Queries as the system compares them with `codes()`, and the space it compares in."""
        return queries, self.space

    def save(self, path: str | Path) -> None:
        """Write what was built to a file; InputError where that is not possible."""
        raise InputError(
            f"the system {self.spec or type(self).__name__!r} cannot be saved to a file"
        )

    def describe(self) -> dict[str, Any]:
        """Versions, make and size, for the record; plain values."""
        return {}

    def turned(self, kind: Literal["build", "search"], given: Mapping[str, Any]) -> dict[str, Any]:
        """The given knobs of one kind, checked; InputError naming those there are."""
        known = {knob.name: knob for knob in self.knobs if knob.kind == kind}
        for name in given:
            if name not in known:
                have = ", ".join(f"{n} ({knob.range})" for n, knob in known.items())
                near = did_you_mean(name, known)
                guess = near + " " if near and near.startswith("did") else ""
                raise InputError(
                    f"{self.spec or type(self).__name__} has no {kind} knob {name!r}",
                    hint=f"{guess}it has: {have or 'none'}",
                )
        return {name: known[name].check(value) for name, value in given.items()}


def as_asked(queries: NDArray[np.float32], k: int, dimension: int, who: str) -> NDArray[np.float32]:
    """Queries (n, dimension) as contiguous float32.

    who: what is asked, in messages. Raises InputError for k < 1, MismatchError for another shape.
    """
    if k < 1:
        raise InputError(f"k is {k}; expected at least 1")
    matrix = np.ascontiguousarray(queries, dtype=np.float32)
    if matrix.ndim != 2 or matrix.shape[1] != dimension:
        raise MismatchError(
            f"queries have shape {matrix.shape}; expected (n, {dimension}), as {who} has "
            f"{dimension} dimensions"
        )
    return matrix


def searchable(rows: NDArray[Any], space: Space) -> NDArray[np.bool_]:
    """Which rows (n, d) of a base can be searched: finite, and under cosine not zero; (n,)."""
    usable = np.isfinite(rows).all(axis=1)
    if space.name == "cosine":
        usable &= rows.any(axis=1)
    return np.asarray(usable)


def usable_blocks(
    base: Vectors, space: Space
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float32]]]:
    """The searchable rows of a base, a block at a time, as float32, normalised under cosine.

    Yields how many rows of the base were read so far, the row numbers (m,) and the vectors
    (m, d) of the block.
    """
    for start, block in base.blocks(max(1, _BLOCK_BYTES // (4 * base.dimension))):
        usable = searchable(block, space)
        yield start + len(block), start + np.flatnonzero(usable), as_compared(block[usable], space)
        base.release()


def as_compared(rows: NDArray[Any], space: Space) -> NDArray[np.float32]:
    """Rows (n, d) as contiguous float32, scaled to length one under cosine."""
    plain = np.ascontiguousarray(rows, dtype=np.float32)
    return unit(plain) if space.name == "cosine" else plain


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows (n, d) scaled to length one in float32; zero rows stay zero."""
    # The squares of float32 values can leave the range of float32.
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]
    scaled = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0, casting="same_kind")
    return np.ascontiguousarray(scaled, dtype=np.float32)


def warn_left_out(rows: NDArray[np.int64], total: int, ids: Ids) -> None:
    """Say which rows of a base of `total` rows are not in the system, when some are not."""
    if len(rows) == total:
        return
    out = np.setdiff1d(np.arange(total), rows)
    named = ", ".join(repr(i) for i in ids[out[:5]]) + (", ..." if len(out) > 5 else "")
    warnings.warn(
        f"{len(out):,} of {total:,} vectors cannot be searched (NaN, infinite, or zero under "
        f"cosine) and are not in the system: {named}",
        SemrecallWarning,
        stacklevel=3,
    )
