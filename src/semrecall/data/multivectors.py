"""Documents of several vectors each: rows of one matrix, cut by offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import Ids
from semrecall.data.vectors import Fingerprint, Vectors, row_ids
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MultiVectors"]


@dataclass(frozen=True, eq=False, repr=False)
class MultiVectors:
    """n documents (or queries) of several vectors of d dimensions, such as one for each token.

    matrix: all vectors (rows, d), in memory or memory-mapped. offsets (n + 1,): those of document i
    are the rows from offsets[i] to offsets[i + 1]; there may be none. Make one with
    `MultiVectors.of`. Ids are of documents: 0, 1, 2, ... unless given.
    """

    matrix: NDArray[Any]
    offsets: NDArray[np.int64]
    given_ids: Ids | None

    @classmethod
    def of(cls, values: Any, *, offsets: Any = None, ids: Any = None) -> MultiVectors:
        """From a list of matrices (l, d), an array (n, l, d), or a matrix (rows, d) with offsets.

        Raises InputError for shapes that are none of these, and for offsets that do not rise from
        0 to the number of rows.
        """
        if isinstance(values, MultiVectors):
            return values if ids is None else cls._made(values.matrix, values.offsets, ids)
        if offsets is not None:
            return cls._made(_matrix(values), offsets, ids)
        if isinstance(values, np.ndarray) and values.dtype != object:
            if values.ndim != 3:
                raise InputError(
                    f"documents of several vectors have shape {values.shape}; expected (documents, "
                    "vectors, dimensions), a list of matrices, or offsets beside the matrix"
                )
            n, length, d = values.shape
            return cls._made(_matrix(values.reshape(n * length, d)), np.arange(n + 1) * length, ids)
        if isinstance(values, Vectors) or not isinstance(values, Sequence | np.ndarray):
            raise InputError(
                f"{type(values).__name__} holds single vectors; expected documents of several",
                hint="give a list of matrices, one a document, or the offsets",
            )
        return cls._of_list(values, ids)

    @classmethod
    def _of_list(cls, values: Sequence[Any] | NDArray[Any], given: Any) -> MultiVectors:
        documents = [np.asarray(document) for document in values]
        filled = [document for document in documents if document.size]
        if not filled:
            raise InputError("no document has a vector; expected one with at least one")
        for number, document in enumerate(documents):
            if document.size and (document.ndim != 2 or document.shape[1] != filled[0].shape[-1]):
                raise InputError(
                    f"document {number} has shape {document.shape}; expected (vectors, "
                    f"{filled[0].shape[-1]})"
                )
        lengths = [len(document) if document.size else 0 for document in documents]
        return cls._made(_matrix(np.concatenate(filled)), np.cumsum([0, *lengths]), given)

    @classmethod
    def _made(cls, matrix: NDArray[Any], offsets: Any, given: Any) -> MultiVectors:
        cuts = np.asarray(offsets)
        if cuts.ndim != 1 or cuts.dtype.kind not in "iu" or len(cuts) == 0:
            raise InputError(
                f"offsets are {cuts.dtype} of shape {cuts.shape}; expected whole numbers, one more "
                "than there are documents"
            )
        cuts = cuts.astype(np.int64)
        if cuts[0] != 0 or cuts[-1] != len(matrix) or bool((np.diff(cuts) < 0).any()):
            raise InputError(
                f"offsets go from {cuts[0]:,} to {cuts[-1]:,}; expected to rise from 0 to the "
                f"{len(matrix):,} rows of the matrix"
            )
        return cls(matrix, cuts, None if given is None else row_ids(given, len(cuts) - 1))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return (
            f"MultiVectors({len(self):,} documents, {len(self.matrix):,} x {self.dimension}, "
            f"{self.dtype})"
        )

    @property
    def length(self) -> int | None:
        """How many documents there are."""
        return len(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self.matrix.dtype

    @property
    def dimension(self) -> int:
        """Dimensions of each vector."""
        return int(self.matrix.shape[1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many vectors each document has, (n,)."""
        return np.diff(self.offsets)

    @property
    def ids(self) -> Ids:
        """Ids of the documents."""
        if self.given_ids is not None:
            return self.given_ids
        return Ids(np.arange(len(self), dtype=np.int64))

    def document(self, number: int) -> NDArray[Any]:
        """The vectors (l, d) of one document."""
        return self.matrix[self.offsets[number] : self.offsets[number + 1]]

    def part(self, low: int, high: int) -> MultiVectors:
        """The documents from low to high, numbered anew: a view."""
        cuts = self.offsets[low : high + 1]
        return MultiVectors(self.matrix[cuts[0] : cuts[-1]], cuts - cuts[0], None)

    def rows_of(self, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the matrix of some documents, one document after another."""
        lengths = self.lengths[documents]
        ends = np.cumsum(lengths)
        starts = self.offsets[documents] - (ends - lengths)
        rows: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(starts, lengths)
        return rows

    def take(self, documents: NDArray[np.int64]) -> MultiVectors:
        """Some documents, in the order given."""
        cuts = np.concatenate([[0], np.cumsum(self.lengths[documents])])
        chosen = None if self.given_ids is None else self.given_ids[documents]
        return MultiVectors(self.matrix[self.rows_of(documents)], cuts.astype(np.int64), chosen)

    def blocks(self, rows: int, documents: int) -> Iterator[tuple[int, MultiVectors]]:
        """(first document, documents): at most so many rows and documents each, at least one."""
        low = 0
        while low < len(self):
            end = int(np.searchsorted(self.offsets, self.offsets[low] + rows, side="right")) - 1
            high = min(max(end, low + 1), low + documents, len(self))
            yield low, self.part(low, high)
            low = high

    def release(self) -> None:
        """Let the system drop the pages of a memory-mapped file that were read so far."""
        Vectors.of(self.matrix).release()

    def normalised(self) -> MultiVectors:
        """Every vector divided by its length, in float32: then maxsim sums largest cosines.

        Vectors of zeros stay. Raises InputError for NaN and infinity.
        """
        exact = np.asarray(self.matrix, dtype=np.float64)
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise InputError("vectors hold NaN or infinity, which cannot be normalised")
        unit = np.divide(exact, lengths, out=np.zeros_like(exact), where=lengths > 0)
        return MultiVectors(unit.astype(np.float32), self.offsets, self.given_ids)

    def sample(self, start: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Documents that a fingerprint hashes, where the first has number `start`: who and what."""
        numbers = Fingerprint.positions(start, start + len(self))
        values = np.empty(len(numbers), dtype=object)
        for at, number in enumerate(numbers.tolist()):
            values[at] = np.array(self.document(number - start))
        return numbers, values

    @cached_property
    def fingerprint(self) -> str:
        """A hash of type, dimension and a fixed sample of documents (see Fingerprint)."""
        printer = Fingerprint(self.dtype, self.dimension)
        printer.add_positions(*self.sample(0))
        return printer.hexdigest()


def _matrix(values: Any) -> NDArray[Any]:
    matrix = np.asarray(values)
    if matrix.ndim == 2 and len(matrix) == 0 and matrix.shape[1]:
        return matrix.astype(np.float32)
    checked = Vectors.of(matrix).require_matrix()
    return checked.astype(np.float32) if checked.dtype == bool else checked
