"""A stored truth repaired after inserts, deletes and changed vectors, to the bits of a new one.

Of an old row of the truth everything is known down to its last score: no other row of the old base
is as near. So the rows that are left of it and the new rows that are as near are all there is down
to that score; where they are still k, the query needs no other row. Only the queries where they are
fewer, or that are new themselves, search the whole base.

With filters, "the base" is, query by query, what its filter allows: a row that it does no longer
allow has gone, and one that it allows only now is new.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.allowed import RowSet
from semrecall.data.fitting import check_fitting
from semrecall.data.ids import codes_in, unify
from semrecall.data.multivectors import MultiVectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact.answer import Answer, as_run, queries_digest
from semrecall.exact.filters import Filter
from semrecall.exact.maxsim import check_documents, tell_empty
from semrecall.exact.merge import flattened
from semrecall.exact.settle import EMPTY, Best, merge_all, most_ties
from semrecall.formats import read_run
from semrecall.space import Space
from semrecall.text import plural
from semrecall.truth.before import Before, Listed, OldFilter, allowed_before
from semrecall.truth.evidence import (
    check_evidence,
    compared,
    hashes_of,
    looked_over,
    named_changes,
    same_kind,
)
from semrecall.truth.rows import Changes, RowHashes, beside
from semrecall.truth.scoring import Searched, nearest_of, pair_scores, reasons_of, taken

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Update", "update_truth"]

#: Results of a query that are scored again, to see whether its vector is the same.
_CHECKED = 10
#: Queries whose neighbours are merged together.
_AT_ONCE = 512
_RAN_OUT = "whose stored neighbours ran out"
_UNKNOWN_FILTER = "of which it is not known what their filter allowed before"

#: Searches the whole base for some queries to a depth, each with its filter.
SearchAll = Callable[[Searched, int, "Filter | None"], Run]


@dataclass(frozen=True)
class Update:
    """A truth brought up to date, and what that took.

    run: the truth, as one made anew. spare: how much deeper than k its rows are. inserted, changed,
    deleted: rows of the base; None where it is not known. scored: rows that were scored, for all
    queries that may find them. allowed: those of them that are as before, but that some query was
    not allowed to find. redone: how many queries searched the whole base, by reason. by_score:
    queries that were recognised by the scores of their results, not by a hash. hashes: of the rows
    of the base.
    """

    run: Run
    spare: int
    inserted: int | None
    changed: int | None
    deleted: int | None
    scored: int
    allowed: int
    redone: dict[str, int]
    by_score: int
    hashes: RowHashes | None

    def __str__(self) -> str:
        figures = (
            ("inserted", self.inserted),
            ("changed", self.changed),
            ("deleted", self.deleted),
            ("newly allowed", self.allowed or None),
        )
        known = [f"{count:,} {what}" for what, count in figures if count is not None]
        parts = [f"{plural(self.scored, 'row')} scored" + (f" ({', '.join(known)})" * bool(known))]
        if self.by_score:
            counted = plural(self.by_score, "query", "queries")
            parts.append(f"{counted} recognised by the scores of their neighbours, without proof")
        redone = sum(self.redone.values())
        why = ", ".join(f"{count:,} {reason}" for reason, count in self.redone.items())
        parts.append(
            f"{redone:,} of {plural(len(self.run), 'query', 'queries')} searched anew"
            + f" ({why})" * bool(redone)
        )
        if _UNKNOWN_FILTER in self.redone:
            parts.append(
                "--keep-rows, or --was with --was-filter or --was-columns, tells what filters "
                "allowed"
            )
        return "; ".join(parts)


def update_truth(
    old: Run | Path | str,
    base: Searched,
    queries: Searched,
    k: int,
    geometry: str | Space,
    *,
    search: SearchAll,
    allowed: Filter | None = None,
    was: Searched | None = None,
    changed: Any = None,
    rows: RowHashes | Path | str | None = None,
    old_filter: OldFilter | None = None,
    spare: int | None = None,
    memory: int | None = None,
    threads: int | None = None,
) -> Update:
    """The truth of `base` and `queries`, made from an older one; see `truth` for the arguments.

    old: the older truth, or its file. What changed since is told by one of
    was: the base it was made from;
    rows: row hashes of that base; those kept beside the file of `old` when all are None;
    changed: ids of all rows that are new or whose vectors changed, on your word.
    search: searches the whole base. allowed: what each query may find now. old_filter: what tells
    what it was allowed to find, where no filter was kept with the row hashes.

    Raises InputError where nothing tells what changed, and MismatchError where what is given is
    not of the older truth, or is seen to be wrong.
    """
    if not isinstance(old, Run):
        if was is None and changed is None and rows is None and beside(old).exists():
            rows = beside(old)
        old = read_run(old)
    space_ = same_kind(old, base, queries, geometry)
    _check_given(base, queries, space_, old, allowed)
    check_evidence(was, changed, rows)
    hashes = RowHashes.read(rows) if isinstance(rows, str | Path) else rows
    whole = was is not None and _held(was) and "row_hashes" not in old.identity
    if was is not None and not whole:
        hashes = hashes_of(was, old, space_)
    if hashes is not None:
        what = "the row hashes" if was is None else "the base given as the old one"
        hashes.check(old.identity, what, sampled=was is not None)
    looked, now = looked_over(base, space_, hashed=hashes is not None)
    if hashes is not None and now is not None:
        changes = hashes.changes(now)
    elif was is not None:
        changes = compared(was, base, old)
    else:
        changes = named_changes(changed, base, old)
    before = allowed_before(
        old, queries, _rows_before(old, base, was, hashes), changes,
        kept=None if hashes is None else hashes.filter, now=allowed,
        given=old_filter or OldFilter(),
    )  # fmt: skip
    # A base that is like the old one in all sampled rows is believed as far as scores agree.
    proven = hashes is not None and "row_hashes" in old.identity
    spare = int(old.identity.get("spare", 0)) if spare is None else spare
    work = _Work(
        old, base, queries, k, k + spare, space_, changes, proven, allowed=allowed, before=before
    )
    work.recognise(None if hashes is None else hashes.queries)
    work.score(memory, threads)
    work.search_anew(search)
    run = work.finished(looked)
    word = changed is not None
    return Update(
        run,
        spare,
        None if word else changes.inserted,
        None if word else changes.changed,
        None if word else changes.deleted,
        work.scored,
        work.newly_allowed,
        work.redone,
        work.by_score,
        now,
    )


def _check_given(
    base: Searched, queries: Searched, geometry: Space, old: Run, allowed: Filter | None
) -> None:
    """Raise, and warn, as a search does; raise where a filtered truth comes without filters."""
    if isinstance(base, MultiVectors):
        assert isinstance(queries, MultiVectors)
        check_documents(base, queries)
        tell_empty(base)
    else:
        assert isinstance(queries, Vectors)
        check_fitting(geometry, base, queries)
    if allowed is None and old.identity.get("filter") is not None:
        raise InputError(
            "the truth to update is filtered, and no filter is given",
            hint="give the filters anew, as they are now: --filter, --filter-column, filter=; a "
            "truth without filters is made anew",
        )


def _held(vectors: Searched) -> bool:
    return isinstance(vectors, MultiVectors) or vectors.matrix is not None


def _rows_before(
    old: Run, base: Searched, was: Searched | None, hashes: RowHashes | None
) -> Listed | None:
    """The rows of the older base; None where their ids are not known."""
    rows = int(old.identity["base"]["rows"])
    if was is not None:
        return Listed(rows, was.given_ids)
    if hashes is not None:
        return Listed(rows, hashes.ids)
    return Listed(rows, None) if base.given_ids is None else None


# -- the repair -----------------------------------------------------------------------------------


class _Work:
    """The old neighbours that are left, query by query, and what becomes of them.

    proven: the rows that are not fresh are known to be the same, not only said to be.
    """

    def __init__(
        self,
        old: Run,
        base: Searched,
        queries: Searched,
        k: int,
        depth: int,
        geometry: Space,
        changes: Changes,
        proven: bool,
        *,
        allowed: Filter | None,
        before: Before,
    ) -> None:
        self.old, self.base, self.queries, self.space = old, base, queries, geometry
        self.k, self.depth, self.proven = k, depth, proven
        self.allowed, self.before = allowed, before
        self.fresh, self._changes = changes.fresh, changes
        self.reasons = reasons_of(queries, geometry)
        self.best: list[Best] = [EMPTY] * len(queries)
        self.redone: dict[str, int] = {}
        self.by_score = self.scored = self.newly_allowed = 0
        self._anew = np.zeros(len(queries), dtype=bool)
        self._at = codes_in(*unify(queries.ids, old.queries))
        self._usable = np.array([not reason for reason in self.reasons], dtype=bool)
        self._asked = self._usable
        if allowed is not None:
            # The others have no neighbours, whatever there is.
            self._asked = self._usable & (allowed.allowed_rows > 0)
        self._left()

    def _left(self) -> None:
        """Old entries: the row each is now, -1 where it is gone or changed or has no score."""
        scores = self.old.flat_scores
        assert scores is not None
        row = codes_in(*unify(self.old.documents, self.base.ids))
        row[row >= 0] = np.where(self.fresh[row[row >= 0]], -1, row[row >= 0])
        self._real = ~np.isnan(scores)
        self._some_unreal = not self._real.all()
        # Numbers and texts do not sort alike.
        self._same_order = self.old.documents.are_integers == self.base.ids.are_integers
        self._row = np.where(self._real, row, -1)

    def _entries(self, query: int) -> slice:
        at = int(self._at[query])
        return slice(int(self.old.offsets[at]), int(self.old.offsets[at + 1]))

    def _redo(self, queries: NDArray[np.bool_], reason: str) -> None:
        new = queries & ~self._anew & self._asked
        if new.any():
            self.redone[reason] = int(new.sum())
        self._anew |= new

    # -- whether queries and rows are those of the truth --

    def recognise(self, known: NDArray[np.void] | None) -> None:
        """Find the queries that the truth does not know, by their ids, hashes or scores.

        known: hashes of the queries of the truth, where they were kept.
        """
        self._redo(self._at < 0, "that are new")
        same = self._surely_same()
        if known is not None:
            had_before, now = np.flatnonzero(self._at >= 0), RowHashes.of(self.queries).hashes
            same = np.zeros(len(now), dtype=bool)
            same[had_before] = known[self._at[had_before]] == now[had_before]
            self._redo((self._at >= 0) & ~same, "that changed")
        self._redo((self._at >= 0) & ~self._filter_known(), _UNKNOWN_FILTER)
        if self.proven and bool((same | self._anew | ~self._asked).all()):
            return
        self._check_scores(same)

    def _filter_known(self) -> NDArray[np.bool_]:
        """Of which queries it is known what they were allowed to find."""
        known = np.ones(len(self.queries), dtype=bool)
        had_before = np.flatnonzero(self._at >= 0)
        known[had_before] = self.before.known[self._at[had_before]]
        return known

    def _surely_same(self) -> NDArray[np.bool_]:
        """The queries of the truth, where they stand first and in order, as they do in it."""
        same = np.zeros(len(self.queries), dtype=bool)
        count = len(self.old)
        if count <= len(same) and self.old.queries == self.queries.ids[:count]:
            first = taken(self.queries, np.arange(count))
            digest = self.old.identity["queries"].get("digest")
            same[:count] = count > 0 and digest == queries_digest(first)
        return same

    def _check_scores(self, same: NDArray[np.bool_]) -> None:
        """Score a few old neighbours again: queries and rows that changed have other scores.

        same: queries that surely did not change.
        """
        pairs = self._pairs_to_check()
        query, entry = pairs.T
        rows, back = np.unique(self._row[entry], return_inverse=True)
        stored = self.old.flat_scores
        assert stored is not None
        scores = pair_scores(self.space, self.base, rows[back], self.queries, query)
        equal = scores == stored[entry]
        matches = np.bincount(query[equal], minlength=len(self.queries))
        checked = np.bincount(query, minlength=len(self.queries))
        if not self.proven:
            never = np.bincount(back[equal], minlength=len(rows)) == 0
            guilty = never[back] & ~equal & (same[query] | (matches[query] > 0))
            self._blame(rows[back[guilty]])
        unsure = (self._at >= 0) & ~same
        # What no row is left of to recognise a query by is not trusted.
        self._redo(unsure & (checked == 0), "that cannot be recognised")
        self._redo(unsure & (matches < checked), "that changed")
        self.by_score = int((unsure & ~self._anew & self._asked).sum())

    def _pairs_to_check(self) -> NDArray[np.int64]:
        """(query, old entry) of the first few neighbours that are left of each query."""
        pairs = []
        for query in np.flatnonzero((self._at >= 0) & ~self._anew & self._asked).tolist():
            entries = self._entries(query)
            left = entries.start + np.flatnonzero(self._row[entries] >= 0)[:_CHECKED]
            pairs.append(np.column_stack([np.full(len(left), query), left]))
        return np.concatenate([np.empty((0, 2), dtype=np.int64), *pairs]).astype(np.int64)

    def _blame(self, rows: NDArray[np.int64]) -> None:
        """Raise MismatchError for rows that have other scores, but are not named as changed."""
        if len(rows):
            first = self.base.ids[int(rows[0])]
            raise MismatchError(
                f"{plural(len(np.unique(rows)), 'row')} of the base have other scores than in the "
                f"truth, but are not said to have changed, the first is {first!r}",
                hint="name all that changed, or show the base that the truth was made from, --was; "
                "row hashes (--keep-rows) tell a changed query from a changed row",
            )

    # -- scores --

    def score(self, memory: int | None, threads: int | None) -> None:
        """Score the fresh rows for all queries but those that are searched anew, and merge.

        With filters, the rows that a query was not allowed before are scored for it, too.
        """
        asked = np.flatnonzero(self._asked & ~self._anew)
        found: list[Best] = [EMPTY] * len(asked)
        chosen, allowed = self.fresh, None
        if self.allowed is not None and len(asked):
            chosen, allowed = self._to_score(self.allowed, asked)
            chosen_rows = np.flatnonzero(chosen)
            self.newly_allowed = int((~self.fresh[chosen_rows]).sum())
        self.scored = int(chosen.sum())
        if chosen.any() and len(asked):
            found = nearest_of(
                self.space, self.base, chosen, taken(self.queries, asked), self.depth,
                allowed=allowed, memory=memory, threads=threads,
            )  # fmt: skip
        self._merge(asked, found)

    def _merge(self, asked: NDArray[np.int64], found: list[Best]) -> None:
        """Old neighbours and fresh ones; queries whose nearest k are not certain search anew."""
        ran_out = np.zeros(len(self.queries), dtype=bool)
        for low in range(0, len(asked), _AT_ONCE):
            queries: list[int] = []
            sides: list[tuple[Best, Best]] = []
            for query, fresh in zip(
                asked[low : low + _AT_ONCE].tolist(), found[low : low + _AT_ONCE], strict=True
            ):
                both = self._near(query, fresh)
                if both is None:
                    ran_out[query] = True
                elif isinstance(both, Best):
                    self.best[query] = both
                else:
                    queries.append(query)
                    sides.append(both)
            numbers = np.repeat(np.arange(len(sides)), [len(left.rows) for _, left in sides])
            _, rows, scores, _ = flattened([left for _, left in sides])
            merged = merge_all(
                self.space, [own for own, _ in sides], numbers, rows, scores, self.depth,
                most_ties(self.depth), self.base.given_ids,
            )  # fmt: skip
            for query, best in zip(queries, merged, strict=True):
                self.best[query] = best
        self._redo(ran_out, _RAN_OUT)

    def _to_score(
        self, allowed: Filter, asked: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], Filter]:
        """The rows that are scored for any of the queries, and over them what for which."""
        pairs = np.column_stack([self.before.which[self._at[asked]], allowed.which[asked]])
        distinct, group = np.unique(pairs, axis=0, return_inverse=True)
        fresh = np.flatnonzero(self.fresh)
        chosen = np.zeros(len(self.fresh), dtype=bool)
        parts = []
        for then, now in distinct.tolist():
            before, after = self.before.sets[then], allowed.sets[now]
            assert before is not None
            rows = np.concatenate([fresh[after.has(fresh)], self._newly_allowed(before, after)])
            parts.append(rows)
            chosen[rows] = True
        number = np.cumsum(chosen) - 1
        count = int(chosen.sum())
        sets = tuple(RowSet.of_rows(count, number[rows]) for rows in parts)
        return chosen, Filter(count, sets, group.reshape(-1))

    def _newly_allowed(self, before: RowSet, after: RowSet) -> NDArray[np.int64]:
        """The rows that are as before and allowed now, but were not."""
        if before.count == before.n:
            return np.empty(0, dtype=np.int64)
        if after.rows is not None or before.count == 0:
            rows = after.between(0, after.n)
            rows = rows[~self.fresh[rows]]
            places = self._changes.places
            if before.count == 0 or places is None:
                return rows
            return rows[~before.has(places[rows])]
        rows, places = self._same_rows
        mask = after.mask(0, after.n)[rows]
        mask &= ~before.mask(0, before.n)[places]
        return rows[mask]

    @cached_property
    def _same_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows that are as before, and where they were."""
        rows = np.flatnonzero(~self.fresh)
        assert self._changes.places is not None
        return rows, self._changes.places[rows]

    def _near(self, query: int, fresh: Best) -> Best | tuple[Best, Best] | None:
        """The fresh and the old neighbours of a query down to its last score, to be merged.

        One where nothing changed; None where the nearest k are not certain.
        """
        entries = self._entries(query)
        stored = self.old.flat_scores
        assert stored is not None
        scores, rows = stored[entries], self._row[entries]
        if self._some_unreal:
            real = self._real[entries]
            scores, rows = scores[real], rows[real]
        if self.allowed is not None:
            rows = np.where(self.allowed.allows(query, np.maximum(rows, 0)), rows, -1)
        left = rows >= 0
        remaining = int(np.count_nonzero(left))
        known = int(self.old.identity["k"])
        kept_rows = known + int(self.old.identity.get("spare", 0))
        if len(scores) >= known:
            # Down to the last score everything is known, ties with it included.
            last = scores[-1]
            higher = self.space.higher_is_nearer
            near = fresh.scores >= last if higher else fresh.scores <= last
            cut = fresh.cut and bool(near.all())
            fresh = Best(fresh.rows[near], fresh.scores[near], cut)
            ties_cut = len(scores) >= kept_rows + most_ties(kept_rows)
            touched = len(fresh.rows) or remaining < len(rows) or kept_rows != self.depth
            if remaining + len(fresh.rows) < self.k or (ties_cut and touched):
                return None
            if not touched and self._same_order:
                return Best(rows, scores, ties_cut)
        return fresh, Best(rows[left], scores[left])

    def search_anew(self, search: SearchAll) -> None:
        """Search the whole base for the queries that need it."""
        which = np.flatnonzero(self._anew)
        if len(which) == 0:
            return
        allowed = None if self.allowed is None else self.allowed.of_queries(which)
        with warnings.catch_warnings():
            # What is odd about the base is said once, at the end.
            warnings.simplefilter("ignore", SemrecallWarning)
            run = search(taken(self.queries, which), self.depth, allowed)
        rows = codes_in(*unify(run.documents, self.base.ids))
        assert run.flat_scores is not None
        for at, query in enumerate(which.tolist()):
            part = slice(int(run.offsets[at]), int(run.offsets[at + 1]))
            scores = run.flat_scores[part]
            real = ~np.isnan(scores)
            cut = int(real.sum()) >= self.depth + most_ties(self.depth)
            self.best[query] = Best(rows[part][real], scores[real], cut)

    def finished(self, looked: Answer) -> Run:
        """The truth."""
        usable = np.flatnonzero(self._usable)
        offsets, rows, scores, cut = flattened([self.best[query] for query in usable])
        answer = Answer(
            offsets, rows, scores, None, cut, 0.0, looked.left_out, looked.zero, looked.sample
        )
        return as_run(
            answer,
            space=self.space,
            k=self.k,
            base=self.base,
            rows=len(self.fresh),
            queries=self.queries,
            reasons=self.reasons,
            allowed=self.allowed,
        )
