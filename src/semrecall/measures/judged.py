"""Judged: the grades of each query's documents, looked up by code, or listed from the best down."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import codes_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Judged"]

_LARGEST_KEY = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Judged:
    """Graded (query, document) pairs of n queries, sorted by query and document.

    offsets: (n + 1,) query i has the entries offsets[i] to offsets[i + 1].
    grades: (m,) float64, never NaN: a pair without a grade is not judged.
    keys: (m,) row number times `span` plus document code, rising.
    span: above every document code.
    renumbered: (d,) where codes are too large for one key, the judged codes, rising; a document's
        position here then stands for its code.
    subtopics: (m,) JSON text, the grade for each subtopic of the query; None where not known.
    """

    offsets: NDArray[np.int64]
    grades: NDArray[np.float64]
    keys: NDArray[np.int64]
    span: int
    renumbered: NDArray[np.int64] | None
    subtopics: NDArray[Any] | None = None

    @classmethod
    def of(
        cls,
        rows: NDArray[np.int64],
        codes: NDArray[np.int64],
        grades: NDArray[np.float64],
        n: int,
        subtopics: NDArray[Any] | None = None,
    ) -> Judged:
        """Sort judgments (m,) by row number and document code; row -1 is left out."""
        use = (rows >= 0) & ~np.isnan(grades)
        if not use.all():
            rows, codes, grades = rows[use], codes[use], grades[use]
            subtopics = None if subtopics is None else subtopics[use]
        span, renumbered = int(codes.max(initial=0)) + 1, None
        if span * max(n, 1) > _LARGEST_KEY:
            renumbered = np.unique(codes)
            codes, span = np.searchsorted(renumbered, codes), len(renumbered)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        keys = rows * span + codes
        if bool((keys[1:] < keys[:-1]).any()):
            order = np.argsort(keys)
            keys, grades = keys[order], grades[order]
            subtopics = None if subtopics is None else subtopics[order]
        return cls(offsets.astype(np.int64), grades, keys, span, renumbered, subtopics)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row number of each entry, shape (m,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @cached_property
    def descending(self) -> NDArray[np.float64]:
        """The grades of each query from the best down, shape (m,)."""
        return self.grades[np.lexsort((-self.grades, self.rows))]

    def count(self, rel: float) -> NDArray[np.int64]:
        """How many documents of each query have a grade of at least `rel`, shape (n,)."""
        return np.bincount(self.rows[self.grades >= rel], minlength=len(self.offsets) - 1)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The document code of each entry, shape (m,)."""
        codes = self.keys - self.rows * self.span
        return codes if self.renumbered is None else self.renumbered[codes]

    def grades_at(self, rows: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Grades (c,) of documents `codes` for the queries `rows`; NaN where there is none."""
        if len(self) == 0:
            return np.full(codes.shape, np.nan)
        if self.renumbered is not None:
            codes = codes_in(codes, self.renumbered)
        known = (codes >= 0) & (codes < self.span)
        keys = rows * self.span + np.where(known, codes, 0)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(known & (self.keys[at] == keys), self.grades[at], np.nan)

    def grades_of(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Grades of the documents `codes` (n, w), row by row; NaN where there is none."""
        grades = np.full(codes.shape, np.nan)
        if len(self) == 0 or codes.size == 0:
            return grades
        if self.renumbered is not None:
            codes = codes_in(codes, self.renumbered)
        # Rising keys are found several times faster than keys in any order.
        order = np.argsort(codes, axis=1)
        rising = np.take_along_axis(codes, order, axis=1)
        known = (rising >= 0) & (rising < self.span)
        keys = np.arange(len(codes))[:, None] * self.span + np.where(known, rising, 0)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        known &= self.keys[at] == keys
        np.put_along_axis(grades, order, np.where(known, self.grades[at], np.nan), axis=1)
        return grades
