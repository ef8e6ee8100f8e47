"""Results recorded in a file, as a system: for whatever cannot be run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from semrecall.data import Ids, Run
from semrecall.data.ids import codes_in, unify
from semrecall.data.rows import pad
from semrecall.errors import InputError, MismatchError
from semrecall.formats import read_run
from semrecall.space import space as space_of
from semrecall.systems.base import Knob, System

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["RecordedSystem"]


class RecordedSystem(System):
    """Answers the queries of a recorded run, by query id, as deep as the run goes."""

    options: ClassVar = {
        "run": "file of results: parquet, TREC, JSON lines, ... or a Run",
        "space": "ip, cosine or l2, where the file does not say",
    }
    timed = False
    by_query_id = True
    buildable = False
    tells_dimension = False

    def __init__(self, run: Any = None, space: str | Space | None = None) -> None:
        if run is None:
            raise InputError(
                "the system 'recorded' needs a file of results",
                hint='for example "recorded?run=run.parquet"',
            )
        self.run: Run = run if isinstance(run, Run) else read_run(run)
        if space is not None:
            self.run = self.run.replace(space=space_of(space))

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """There is nothing to turn."""
        return ()

    @property
    def built(self) -> bool:
        """Always: the results are there."""
        return True

    @property
    def space(self) -> Space:
        """The space the run states; InputError when it states none."""
        if self.run.space is None:
            raise InputError(
                "the recorded run does not say its space",
                hint='say it in the spec: "recorded?run=run.parquet&space=ip"',
            )
        return self.run.space

    @property
    def dimension(self) -> NoReturn:
        """Not known from results."""
        raise InputError("recorded results do not tell the dimension of the vectors")

    @property
    def ntotal(self) -> NoReturn:
        """Not known from results."""
        raise InputError("recorded results do not tell how many vectors there are")

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """Refused: there is nothing to build."""
        raise InputError(
            "recorded results cannot be built: the system 'recorded' is ready as it is"
        )

    def search(
        self,
        queries: NDArray[np.float32] | None,
        k: int,
        *,
        query_ids: Ids | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The recorded results of these queries; their vectors are not looked at.

        query_ids: ids of the queries; 0, 1, 2, ... when None. Raises MismatchError for a query
        that is not recorded, and InputError for a k the recording does not reach.
        """
        self.turned("search", settings)
        wanted = query_ids
        if wanted is None:
            wanted = Ids(np.arange(0 if queries is None else len(queries), dtype=np.int64))
        if k > self.run.depth:
            raise InputError(f"k is {k}; the recorded results go to {self.run.depth} only")
        ours, theirs = unify(self.run.queries, wanted)
        rows = codes_in(theirs, ours)
        if bool((rows < 0).any()):
            gone = np.flatnonzero(rows < 0)
            raise MismatchError(
                f"{len(gone):,} of {len(rows):,} queries are not recorded, "
                f"the first is {wanted[int(gone[0])]!r}",
                hint=f"recorded are {len(ours):,}, the first is {self.run.queries[0]!r}"
                if len(ours)
                else "the recorded run has no queries",
            )
        found = self.run.select(rows)
        codes = pad(found.documents.codes, found.offsets, -1, k)
        ids = found.documents.array(codes.reshape(-1)).reshape(codes.shape)
        if found.flat_scores is None:
            return ids, None
        return ids, pad(found.flat_scores, found.offsets, np.nan, k)

    def describe(self) -> dict[str, Any]:
        """What the recording is called and how far it goes."""
        return {
            "system": "recorded",
            "name": self.run.name,
            "queries": len(self.run),
            "depth": self.run.depth,
        }
