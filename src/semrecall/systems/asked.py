"""What a function and an endpoint share: only their answers are known, and what a user says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.systems.answers import Row, in_order, matrix_of
from semrecall.systems.base import Knob, System
from semrecall.systems.knobs import parse_knobs
from semrecall.systems.units import space_and_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["AskedSystem"]


class AskedSystem(System):
    """A system of which only the answers are known, and what a user says of it.

    space, unit: of the scores, see `space_and_unit`. knobs: what can be turned, see `parse_knobs`.
    """

    tells_dimension = False
    #: How a user tells the space of the scores.
    telling_space: ClassVar[str]

    def __init__(
        self, space: str | Space | None, unit: str | None, knobs: str | Sequence[Knob]
    ) -> None:
        self._space, self._convert = space_and_unit(space, unit)
        self._knobs = tuple(parse_knobs(knobs) if isinstance(knobs, str) else knobs)

    @property
    @abstractmethod
    def _called(self) -> str:
        """What it is called, in messages."""

    @abstractmethod
    def _rows(
        self, asked: Any, filters: Sequence[Any] | None, k: int, settings: Mapping[str, Any]
    ) -> list[Row]:
        """The answers to these queries, (n, d) or n texts."""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Those that the user names."""
        return self._knobs

    @property
    def built(self) -> bool:
        """Always: what is behind it is its own business."""
        return True

    @property
    def space(self) -> Space:
        """The geometry of the scores; InputError when nothing tells it."""
        if self._space is None:
            raise InputError(
                f"{self._called} does not say the space of its scores", hint=self.telling_space
            )
        return self._space

    @property
    def score_space(self) -> Space | None:
        """The geometry of the scores, where it is known."""
        return self._space

    @property
    def dimension(self) -> int:
        """Not known."""
        raise InputError(f"{self._called} does not tell the dimension of its vectors")

    @property
    def ntotal(self) -> int:
        """Not known."""
        raise InputError(f"{self._called} does not tell how many vectors it has")

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        texts: Sequence[str] | None = None,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """What it answers, the first k of each query.

        Raises SystemFault when it fails, or answers something else.
        """
        turned = self.turned("search", settings)
        if k < 1:
            raise InputError(f"k is {k}; expected at least 1")
        if not self.built:
            raise InputError(f"{self._called} is empty", hint="call build(base, space)")
        if self.by_text and texts is None:
            raise InputError(f"{self._called} is asked in text; texts are missing")
        rows = self._rows(texts if self.by_text else queries, filters, k, turned)
        ids, scores = matrix_of(rows, k)
        if scores is not None:
            scores = np.asarray(self._convert(scores), dtype=np.float64)
        return ids, in_order(scores, self._space, self._called)
