"""What an embedder is: texts in, vectors out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import EmbeddingFault, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Embedder", "checked", "whole"]


class Embedder(ABC):
    """Makes vectors of texts.

    batch: texts that are handed over at once. at_once: how many batches may be on their way
        together; more than one only where `vectors` may be called by several threads.
    """

    batch: int = 64
    at_once: int = 1

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called, for people."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """All that its vectors depend on beside the text; plain values, no secrets."""

    @abstractmethod
    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors (n, d) of these texts, in order; EmbeddingFault where it fails."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Let go of connections."""


def checked(found: Any, texts: Sequence[str], name: str) -> NDArray[np.float32]:
    """What an embedder gave, as (n, d) float32; EmbeddingFault where it is something else."""
    try:
        matrix = np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EmbeddingFault(f"{name} gave no matrix of numbers: {error}") from error
    if matrix.ndim != 2 or len(matrix) != len(texts) or matrix.shape[1] == 0:
        raise EmbeddingFault(
            f"{name} gave an array of shape {matrix.shape} for {len(texts):,} texts; expected "
            f"({len(texts)}, dimensions)"
        )
    wrong = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(wrong):
        raise EmbeddingFault(
            f"{name} gave a vector with NaN or infinity for the text {texts[int(wrong[0])][:60]!r}"
        )
    return matrix


def whole(given: str | int, name: str) -> int:
    """A whole number above 0 of an option; InputError for others."""
    try:
        number = int(given)
    except ValueError:
        number = 0
    if number < 1:
        raise InputError(f"{name} is {given!r}; expected a whole number of at least 1")
    return number
