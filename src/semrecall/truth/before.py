"""What each query of an older truth was allowed to find, as far as it can be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Ids, Run
from semrecall.data.allowed import RowSet
from semrecall.data.ids import codes_in, unify
from semrecall.errors import InputError, MismatchError
from semrecall.exact.filters import Filter
from semrecall.truth.rows import Changes
from semrecall.truth.scoring import Searched

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Before", "Listed", "OldFilter", "allowed_before"]


@dataclass(frozen=True)
class Listed:
    """So many rows, or queries, with ids, as a filter is told about them."""

    length: int
    given_ids: Ids | None

    def __len__(self) -> int:
        return self.length

    @property
    def ids(self) -> Ids:
        """Ids of the rows."""
        if self.given_ids is not None:
            return self.given_ids
        return Ids(np.arange(self.length, dtype=np.int64))


@dataclass(frozen=True)
class OldFilter:
    """How the filter of an older truth is found, from what was given.

    Each is called with the rows of the older base. told: the filter that was given as the old one,
    for the queries of the older truth, which it is called with, too. guessed: what the filter of
    now allowed by the columns of then, for the queries of now.
    """

    told: Callable[[Listed, Listed], Filter | None] | None = None
    guessed: Callable[[Listed], Filter | None] | None = None


@dataclass(frozen=True)
class Before:
    """The rows of an older base that each of m queries of its truth was allowed to find.

    sets: over the rows of the older base; None where it is not known. which (m,): the set of each
    query.
    """

    sets: tuple[RowSet | None, ...]
    which: NDArray[np.int64]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Of which queries it is known, (m,)."""
        return np.array([rows is not None for rows in self.sets], dtype=bool)[self.which]


def allowed_before(
    old: Run,
    queries: Searched,
    rows: Listed | None,
    changes: Changes,
    *,
    kept: Filter | None,
    now: Filter | None,
    given: OldFilter,
) -> Before:
    """What the queries of an older truth were allowed to find.

    queries: those of now. rows: of the older base; None where its ids are not known. kept: the
    filter kept beside the truth. now: the filter of now, over the rows of now. Whatever is found
    must have the hash that the truth remembers; else nothing is known but what it remembers: which
    queries were allowed all rows, or none. Raises MismatchError where the filter given as the old
    one has another hash, and InputError where there is no base that it could be of.
    """
    count, remembered = int(old.identity["base"]["rows"]), old.identity.get("filter")
    if remembered is None:
        return Before((RowSet.everything(count),), np.zeros(len(old), dtype=np.int64))
    # A run of some queries of a truth does not know the hash.
    fingerprint = remembered.get("fingerprint")
    if given.told is not None:
        found = _told(old, queries, rows, given.told)
        if found is None or found.fingerprint != fingerprint:
            raise MismatchError(
                "the filter given as the old one is not that of the truth to update: it allows "
                "other rows",
                hint="give the filter, or the columns, that it was made with",
            )
        return Before(found.sets, found.which)
    if kept is not None and kept.fingerprint == fingerprint:
        return Before(kept.sets, kept.which)
    at = codes_in(*unify(old.queries, queries.ids))
    if fingerprint is not None and rows is not None and bool((at >= 0).all()):
        for filter_ in _guesses(rows, changes, now, given):
            mine = filter_.of_queries(at)
            if mine.fingerprint == fingerprint:
                return Before(mine.sets, mine.which)
    return _counted(remembered["allowed_rows"], count, len(old))


def _told(
    old: Run,
    queries: Searched,
    rows: Listed | None,
    told: Callable[[Listed, Listed], Filter | None],
) -> Filter | None:
    if rows is None:
        raise InputError(
            "the old filter is of the old base, whose ids are not known",
            hint="show the old base (--was, was=), or keep row hashes (--keep-rows)",
        )
    numbered = queries.given_ids is None and old.queries == Listed(len(old), None).ids
    return told(rows, Listed(len(old), None if numbered else old.queries))


def _guesses(
    rows: Listed, changes: Changes, now: Filter | None, given: OldFilter
) -> Iterator[Filter]:
    """Filters over the rows of then, for the queries of now, that may be the old one."""
    guessed = None if given.guessed is None else given.guessed(rows)
    if guessed is not None:
        yield guessed
    # Where no row went, the filter of now may be that of then, and more rows.
    places = changes.places
    if now is None or places is None or int((places >= 0).sum()) < len(rows):
        return
    row = np.empty(len(rows), dtype=np.int64)
    row[places[places >= 0]] = np.flatnonzero(places >= 0)
    yield Filter(len(rows), tuple(each.taken(row) for each in now.sets), now.which)


def _counted(allowed: int | list[int], rows: int, queries: int) -> Before:
    """What the numbers of allowed rows tell: all were allowed, or none, or it is not known."""
    alike = isinstance(allowed, int)
    counts = np.full(queries, allowed) if alike else np.array(allowed, dtype=np.int64)
    if len(counts) != queries:
        counts = np.full(queries, -1)
    sets = (RowSet.everything(rows), RowSet.of_rows(rows, np.empty(0, dtype=np.int64)), None)
    which = np.where(counts == rows, 0, np.where(counts == 0, 1, 2))
    return Before(sets, which.astype(np.int64))
