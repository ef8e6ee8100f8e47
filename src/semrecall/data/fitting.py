"""Whether base and queries are what a space compares, and fit each other."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.space import Space

if TYPE_CHECKING:
    from semrecall.data.vectors import Vectors

__all__ = ["check_fitting"]

_SAMPLE = 1000


def check_fitting(space: Space, base: Vectors, queries: Vectors) -> None:
    """Raise where a space does not compare such vectors, or the two do not fit each other.

    Bits are uint8, eight in a byte, or booleans, one a value; both sides of one kind.
    Raises InputError for vectors of another kind, MismatchError for another dimension or kind.
    """
    if space.compares == "documents":
        raise InputError(
            "maxsim compares documents of several vectors each; these are single vectors",
            hint="give MultiVectors, or files of them (docs/spaces.md); one vector a document: ip",
        )
    unit = "dimensions"
    if space.compares == "bits":
        for what, vectors in (("base", base), ("queries", queries)):
            _require_bits(space, what, vectors)
        if base.dtype != queries.dtype:
            raise MismatchError(
                f"one of base ({base.dtype}) and queries ({queries.dtype}) is packed, the other "
                "is not; expected both packed, or both booleans",
                hint="pack both the same way: the order of bits in a byte is not known",
            )
        unit = "bits" if base.dtype == bool else "bytes"
    if base.dimension != queries.dimension:
        raise MismatchError(
            f"base vectors have {base.dimension} {unit}, queries {queries.dimension}",
            hint="were both made by the same model, and are these the right two files?",
        )


def _require_bits(space: Space, what: str, vectors: Vectors) -> None:
    if vectors.dtype == bool:
        return
    if vectors.dtype != np.uint8:
        raise InputError(
            f"{space} compares bits; the {what} vectors are {vectors.dtype}",
            hint="give uint8 with eight bits in a byte (numpy.packbits(vectors > 0, axis=1)), or "
            "booleans (vectors > 0)",
        )
    if vectors.matrix is None or len(vectors.matrix) == 0 or vectors.dimension < 8:
        return
    sample: Any = vectors.matrix[:: max(1, len(vectors.matrix) // _SAMPLE)]
    if int(sample.max()) <= 1:
        warnings.warn(
            f"all bytes of the {what} vectors looked at are 0 or 1, and are taken as eight bits "
            "each; where every byte is one bit, give booleans: vectors.astype(bool)",
            SemrecallWarning,
            stacklevel=4,
        )
