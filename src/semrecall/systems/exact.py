"""Exact search as a system: what every other system is measured against."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from semrecall.data import Vectors
from semrecall.data.rows import pad
from semrecall.errors import InputError
from semrecall.exact import search as exact_search
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob, Stage, System, searchable, warn_left_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["ExactSystem"]


class ExactSystem(System):
    """Exact search by semrecall: every query is compared with every vector; recall is 1."""

    _base: Vectors | None = None
    _space: Space

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """There is nothing to turn."""
        return ()

    @property
    def built(self) -> bool:
        """Whether vectors were given."""
        return self._base is not None

    @property
    def space(self) -> Space:
        """The geometry it was built with."""
        self._held()
        return self._space

    @property
    def dimension(self) -> int:
        """Dimensions of the vectors."""
        return self._held().dimension

    @property
    def ntotal(self) -> int:
        """How many vectors it holds."""
        return len(self._held())

    def _held(self) -> Vectors:
        if self._base is None:
            raise InputError("the system 'exact' is empty", hint="call build(base, space) first")
        return self._base

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """The system over these vectors, which stay where they are (memory-mapped, too)."""
        self.turned("build", knobs)
        vectors, made = Vectors.of(base, ids=ids), copy.copy(self)
        made._space = space_of(space)
        matrix = vectors.require_matrix()
        usable = np.concatenate([searchable(b, made._space) for _, b in vectors.blocks(1 << 16)])
        if not usable.all():
            kept = np.flatnonzero(usable)
            warn_left_out(kept, len(usable), vectors.ids)
            vectors = Vectors.of(matrix[kept], ids=vectors.ids[kept])
        made._base = vectors
        return made

    def search(
        self, queries: NDArray[np.float32], k: int, **settings: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The exact k nearest, cut to k where ties go on."""
        self.turned("search", settings)
        run = exact_search(self._held(), queries, k, self.space)
        assert run.flat_scores is not None
        codes = pad(run.documents.codes, run.offsets, -1, k)
        ids = run.documents.array(codes.reshape(-1)).reshape(codes.shape)
        return ids, pad(run.flat_scores, run.offsets, np.nan, k)

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters:
        """Every query is compared with every vector."""
        base = self._held()
        every = np.full(len(queries), float(len(base)))
        return Counters({"scan": Stage(every, base.dimension * base.dtype.itemsize)})

    def describe(self) -> dict[str, Any]:
        """Size and version."""
        from importlib.metadata import version

        base = self._held()
        return {
            "system": "exact",
            "version": version("semrecall"),
            "space": self.space.name,
            "rows": len(base),
            "dimension": base.dimension,
            "memory_bytes": len(base) * base.dimension * base.dtype.itemsize,
        }
