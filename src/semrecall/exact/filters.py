"""Filters: which base rows a query may find."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.ids import codes_in, unify
from semrecall.data.rows import row_numbers
from semrecall.errors import MismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Filter"]


class Filter:
    """Allowed rows: one mask for all queries, or the allowed rows of each.

    Inside, a shared mask (n,), or `keys` = query number * n + row number, ascending.
    """

    def __init__(self, n: int, mask: NDArray[np.bool_] | None, keys: NDArray[np.int64]) -> None:
        self._n, self._mask, self._keys = n, mask, keys
        self._upto = None if mask is None else np.concatenate([[0], np.cumsum(mask)])

    @classmethod
    def of(cls, allowed: Any, base: Vectors, queries: Vectors) -> Filter | None:
        """A filter from a mask (n,) or (m, n), or from allowed ids per query.

        Allowed ids come as a mapping {query id: ids}, a Run, or a sequence with one list a query.
        A query that a mapping does not name may find nothing. Raises MismatchError for a mask of
        another shape, and for ids that are not in the base.
        """
        if allowed is None:
            return None
        n, m = len(base), len(queries)
        if isinstance(allowed, np.ndarray) and allowed.dtype == bool:
            if allowed.shape == (n,):
                return cls(n, allowed, np.empty(0, dtype=np.int64))
            if allowed.shape == (m, n):
                query, row = np.nonzero(allowed)
                return cls(n, None, query * n + row)
            raise MismatchError(
                f"the filter has shape {allowed.shape}; expected ({n},) or ({m}, {n})"
            )
        if isinstance(allowed, Mapping):
            allowed = Run.from_arrays(list(allowed.values()), query_ids=list(allowed))
        elif not isinstance(allowed, Run):
            allowed = Run.from_arrays(allowed, query_ids=queries.ids)
        return cls(n, None, _keys(allowed, base, queries))

    @property
    def fingerprint(self) -> str:
        """A hash of what is allowed."""
        data = self._keys if self._mask is None else np.packbits(self._mask)
        return hashlib.sha256(f"{self._n} ".encode() + data.tobytes()).hexdigest()[:32]

    def count(self, queries: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
        """How many rows from start to stop each query may find."""
        if self._upto is not None:
            return np.full(len(queries), self._upto[stop] - self._upto[start])
        low = np.searchsorted(self._keys, queries * self._n + start)
        return np.asarray(np.searchsorted(self._keys, queries * self._n + stop) - low)

    def mask(self, queries: NDArray[np.int64], start: int, stop: int) -> NDArray[np.bool_]:
        """Which rows from start to stop each query may find, (len(queries) or 1, stop - start)."""
        if self._mask is not None:
            return self._mask[None, start:stop]
        low = np.searchsorted(self._keys, queries * self._n + start)
        high = np.searchsorted(self._keys, queries * self._n + stop)
        offsets = np.concatenate([[0], np.cumsum(high - low)]).astype(np.int64)
        line = row_numbers(offsets)
        entries = np.arange(offsets[-1]) + (low - offsets[:-1])[line]
        mask = np.zeros((len(queries), stop - start), dtype=bool)
        mask[line, self._keys[entries] - queries[line] * self._n - start] = True
        return mask

    def mask_of_rows(
        self, queries: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which of some rows each query may find, (len(queries) or 1, len(rows))."""
        if self._mask is not None:
            return np.asarray(self._mask[None, rows])
        wanted = queries[:, None] * self._n + rows
        if len(self._keys) == 0:
            return np.zeros(wanted.shape, dtype=bool)
        at = np.searchsorted(self._keys, wanted)
        at[at == len(self._keys)] = 0
        return np.asarray(self._keys[at] == wanted)

    def allows(self, query: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some rows one query may find."""
        return np.asarray(self.mask_of_rows(np.array([query]), rows)[0])


def _keys(allowed: Run, base: Vectors, queries: Vectors) -> NDArray[np.int64]:
    query_codes, own_codes = unify(allowed.queries, queries.ids)
    number = codes_in(query_codes, own_codes)
    if bool((number < 0).any()):
        unknown = int(np.argmax(number < 0))
        raise MismatchError(
            f"the filter names query {allowed.queries[unknown]!r}, which is not among the queries"
        )
    document_codes, base_codes = unify(allowed.documents, base.ids)
    row = codes_in(document_codes, base_codes)
    real = ~allowed.documents.missing
    if bool((row[real] < 0).any()):
        unknown = int(np.argmax(real & (row < 0)))
        raise MismatchError(
            f"the filter allows id {allowed.documents[unknown]!r}, which is not in the base"
        )
    line = number[row_numbers(allowed.offsets)]
    return np.unique((line * len(base) + row)[real])
