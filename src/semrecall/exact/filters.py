"""Filters: which base rows a query may find."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.data import Ids, Run
from semrecall.data.allowed import Allowed, RowSet
from semrecall.data.ids import codes_in, unify
from semrecall.data.rows import row_numbers
from semrecall.errors import MismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Filter"]


class Rows(Protocol):
    """Vectors, documents, or what is left of them: so many, with ids."""

    def __len__(self) -> int:
        """How many there are."""

    @property
    def ids(self) -> Ids:
        """Their ids."""


class Filter:
    """The allowed rows of each of m queries: queries that share a filter share one set of rows.

    sets: over the n rows of the base. which (m,): the set of each query. says: what each set's
    filter says, "" where it has no words.
    """

    def __init__(
        self,
        n: int,
        sets: tuple[RowSet, ...],
        which: NDArray[np.int64],
        says: tuple[str, ...] = (),
    ) -> None:
        self.n, self.sets, self.which = n, sets, which
        self.says = says or ("",) * len(sets)

    @classmethod
    def of(cls, allowed: Any, base: Rows, queries: Rows) -> Filter | None:
        """A filter from a mask (n,) or (m, n), allowed ids per query, `Allowed`, or as it is.

        Allowed ids come as a mapping {query id: ids}, a Run, or a sequence with one list a query.
        A query that a mapping does not name may find nothing. Raises MismatchError for a mask of
        another shape, for ids that are not in the base, and where rows or queries are not known.
        """
        if allowed is None or isinstance(allowed, Filter):
            return allowed
        n, m = len(base), len(queries)
        if isinstance(allowed, Allowed):
            return _of_allowed(allowed, base, queries)
        if isinstance(allowed, np.ndarray) and allowed.dtype == bool:
            if allowed.shape == (n,):
                return cls(n, (RowSet.of_mask(allowed),), np.zeros(m, dtype=np.int64))
            if allowed.shape != (m, n):
                raise MismatchError(
                    f"the filter has shape {allowed.shape}; expected ({n},) or ({m}, {n})"
                )
            found = Allowed.shared([RowSet.of_mask(row) for row in allowed])
        else:
            if isinstance(allowed, Mapping):
                allowed = Run.from_arrays(list(allowed.values()), query_ids=list(allowed))
            elif not isinstance(allowed, Run):
                allowed = Run.from_arrays(allowed, query_ids=queries.ids)
            found = Allowed.shared(_sets(allowed, base, queries))
        assert found.which is not None
        return cls(n, found.sets, found.which)

    def of_queries(self, queries: NDArray[np.int64]) -> Filter:
        """The filter of some of the queries (numbers), in the order given."""
        return Filter(self.n, self.sets, self.which[queries], self.says)

    @property
    def fingerprint(self) -> str:
        """A hash of what is allowed to each query, however it was said."""
        digest = hashlib.sha256(f"{self.n} ".encode())
        for at in self.which.tolist():
            digest.update(self.sets[at].digest)
        return digest.hexdigest()[:32]

    @property
    def identity(self) -> dict[str, Any]:
        """What a truth remembers: the hash, how many filters, their words, allowed rows a query."""
        counts = self.allowed_rows.tolist()
        said = [text for text in self.says if text]
        return {
            "fingerprint": self.fingerprint,
            "filters": len(np.unique(self.which)),
            **({"says": said} if said else {}),
            "allowed_rows": counts[0] if counts and len(set(counts)) == 1 else counts,
        }

    @property
    def allowed_rows(self) -> NDArray[np.int64]:
        """How many rows each query may find, (m,)."""
        return np.array([rows.count for rows in self.sets], dtype=np.int64)[self.which]

    def groups(self, queries: NDArray[np.int64]) -> Iterator[tuple[RowSet, NDArray[np.int64]]]:
        """The sets of some queries (numbers), each with the positions of those that share it."""
        mine = self.which[queries]
        order = np.argsort(mine, kind="stable")
        cuts = np.flatnonzero(np.diff(mine[order])) + 1
        for part in np.split(order, cuts) if len(order) else []:
            yield self.sets[int(mine[part[0]])], part

    def count(self, queries: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
        """How many rows from start to stop each query may find."""
        counts = np.zeros(len(queries), dtype=np.int64)
        for rows, part in self.groups(queries):
            counts[part] = rows.counted(start, stop)
        return counts

    def mask(self, queries: NDArray[np.int64], start: int, stop: int) -> NDArray[np.bool_]:
        """Which rows from start to stop each query may find, (len(queries) or 1, stop - start)."""
        used, place = np.unique(self.which[queries], return_inverse=True)
        sets = [self.sets[at] for at in used.tolist()]
        if len(sets) > 1 and all(rows.bits is not None for rows in sets):
            # Many filters at once: unpacking them one by one would take longer than the product.
            first, last = start // 8, -(-stop // 8)
            packed = np.stack([rows.bits[first:last] for rows in sets])
            mask = np.unpackbits(packed, axis=1)[:, start - 8 * first : stop - 8 * first]
            in_order = np.array_equal(place, np.arange(len(sets)))
            return mask.view(bool) if in_order else mask.view(bool)[place]
        return self._laid_out(queries, lambda rows: rows.mask(start, stop), stop - start)

    def mask_of_rows(
        self, queries: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which of some rows each query may find, (len(queries) or 1, len(rows))."""
        return self._laid_out(queries, lambda allowed: allowed.has(rows), len(rows))

    def allows(self, query: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some rows one query may find."""
        return self.sets[int(self.which[query])].has(rows)

    def _laid_out(self, queries: NDArray[np.int64], mask_of: Any, width: int) -> NDArray[np.bool_]:
        groups = list(self.groups(queries))
        if len(groups) == 1:
            return np.asarray(mask_of(groups[0][0])[None])
        mask = np.zeros((len(queries), width), dtype=bool)
        for rows, part in groups:
            mask[part] = mask_of(rows)
        return mask


def _of_allowed(allowed: Allowed, base: Rows, queries: Rows) -> Filter:
    which = _which(allowed, queries)
    sets, n = allowed.sets, len(base)
    if allowed.ids is not None and not _same(allowed.ids, base.ids):
        at = _places(
            base.ids, allowed.ids,
            "rows of the base are not among those that the filter knows",
            hint="the columns must have the ids of the base",
        )  # fmt: skip
        sets = tuple(rows.taken(at) for rows in sets)
    for rows in sets:
        if rows.n != n:
            raise MismatchError(f"the filter is over {rows.n:,} rows, the base has {n:,}")
    return Filter(n, sets, which, allowed.says)


def _which(allowed: Allowed, queries: Rows) -> NDArray[np.int64]:
    if allowed.which is None:
        return np.zeros(len(queries), dtype=np.int64)
    if allowed.queries is None:
        if len(allowed.which) != len(queries):
            raise MismatchError(
                f"the filters are of {len(allowed.which):,} queries, there are {len(queries):,}"
            )
        return allowed.which
    hint = "give every query one; null filters nothing"
    return allowed.which[_places(queries.ids, allowed.queries, "queries have no filter", hint=hint)]


def _places(wanted: Ids, known: Ids, lacking: str, *, hint: str) -> NDArray[np.int64]:
    """The place of each id among those known (n,); MismatchError says which one has none."""
    at = codes_in(*unify(wanted, known))
    if bool((at < 0).any()):
        raise MismatchError(
            f"{int((at < 0).sum()):,} of {len(wanted):,} {lacking}, the first is "
            f"{wanted[int(np.argmax(at < 0))]!r}",
            hint=hint,
        )
    return at


def _same(left: Ids, right: Ids) -> bool:
    return len(left) == len(right) and left == right


def _sets(allowed: Run, base: Rows, queries: Rows) -> list[RowSet]:
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
    line = number[row_numbers(allowed.offsets)][real]
    order = np.argsort(line, kind="stable")
    cuts = np.searchsorted(line[order], np.arange(len(queries) + 1))
    rows = row[real][order]
    return [
        RowSet.of_rows(len(base), rows[low:high])
        for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
    ]
