"""A stored truth repaired after inserts, deletes and changed vectors, to the bits of a new one.

Of an old row of the truth everything is known down to its last score: no other row of the old base
is as near. So the rows that are left of it and the new rows that are as near are all there is down
to that score; where they are still k, the query needs no other row. Only the queries where they are
fewer, or that are new themselves, search the whole base.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Run, Vectors
from semrecall.data.ids import codes_in, unify
from semrecall.errors import MismatchError, SemrecallWarning
from semrecall.exact import query_reasons
from semrecall.exact.answer import Answer, as_run, queries_digest
from semrecall.exact.merge import flattened
from semrecall.exact.search import Scan
from semrecall.exact.settle import EMPTY, Best, exact_pair_scores, merge, most_ties
from semrecall.formats import read_run
from semrecall.space import Space
from semrecall.text import plural
from semrecall.truth.evidence import (
    check_evidence,
    compared,
    hashes_of,
    looked_over,
    named_changes,
    same_kind,
)
from semrecall.truth.rows import Changes, RowHashes, beside

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Update", "update_truth"]

#: Results of a query that are scored again, to see whether its vector is the same.
_CHECKED = 10
_RAN_OUT = "whose stored neighbours ran out"

#: Searches a base for some queries to a depth, over all rows.
SearchAll = Callable[[Any, Vectors, int], Run]


@dataclass(frozen=True)
class Update:
    """A truth brought up to date, and what that took.

    run: the truth, as one made anew. spare: how much deeper than k its rows are. inserted, changed,
    deleted: rows of the base; None where it is not known. scored: rows that were scored for all
    queries. redone: how many queries searched the whole base, by reason. by_score: queries that
    were recognised by the scores of their results, not by a hash. hashes: of the rows of the base.
    """

    run: Run
    spare: int
    inserted: int | None
    changed: int | None
    deleted: int | None
    scored: int
    redone: dict[str, int]
    by_score: int
    hashes: RowHashes | None

    def __str__(self) -> str:
        figures = (
            ("inserted", self.inserted),
            ("changed", self.changed),
            ("deleted", self.deleted),
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
        return "; ".join(parts)


def update_truth(
    old: Run | Path | str,
    base: Vectors,
    queries: Vectors,
    k: int,
    geometry: str | Space,
    *,
    search: SearchAll,
    source: Any = None,
    was: Vectors | None = None,
    changed: Any = None,
    rows: RowHashes | Path | str | None = None,
    spare: int | None = None,
    memory: int | None = None,
    threads: int | None = None,
) -> Update:
    """The truth of `base` and `queries`, made from an older one; see `truth` for the arguments.

    old: the older truth, or its file. What changed since is told by one of
    was: the base it was made from;
    rows: row hashes of that base; those kept beside the file of `old` when all are None;
    changed: ids of all rows that are new or whose vectors changed, on your word.
    search: searches the whole base (`source` where it is not None).

    Raises InputError where nothing tells what changed, and MismatchError where what is given is
    not of the older truth, or is seen to be wrong.
    """
    if not isinstance(old, Run):
        if was is None and changed is None and rows is None and beside(old).exists():
            rows = beside(old)
        old = read_run(old)
    space_ = same_kind(old, base, queries, geometry)
    check_evidence(was, changed, rows)
    hashes = RowHashes.read(rows) if isinstance(rows, str | Path) else rows
    whole = was is not None and was.matrix is not None and "row_hashes" not in old.identity
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
    # A base that is like the old one in all sampled rows is believed as far as scores agree.
    proven = hashes is not None and "row_hashes" in old.identity
    spare = int(old.identity.get("spare", 0)) if spare is None else spare
    work = _Work(old, base, queries, k, k + spare, space_, changes, proven)
    work.recognise(None if hashes is None else hashes.queries)
    work.score(memory, threads)
    work.search_anew(lambda asked, depth: search(base if source is None else source, asked, depth))
    run = work.finished(looked)
    word = changed is not None
    return Update(
        run,
        spare,
        None if word else changes.inserted,
        None if word else changes.changed,
        None if word else changes.deleted,
        int(changes.fresh.sum()),
        work.redone,
        work.by_score,
        now,
    )


# -- the repair -----------------------------------------------------------------------------------


class _Work:
    """The old neighbours that are left, query by query, and what becomes of them.

    proven: the rows that are not fresh are known to be the same, not only said to be.
    """

    def __init__(
        self,
        old: Run,
        base: Vectors,
        queries: Vectors,
        k: int,
        depth: int,
        geometry: Space,
        changes: Changes,
        proven: bool,
    ) -> None:
        self.old, self.base, self.queries, self.space = old, base, queries, geometry
        self.k, self.depth, self.proven = k, depth, proven
        self.fresh = changes.fresh
        self.reasons = query_reasons(queries.require_matrix(), geometry)
        self.best: list[Best] = [EMPTY] * len(queries)
        self.redone: dict[str, int] = {}
        self.by_score = 0
        self._anew = np.zeros(len(queries), dtype=bool)
        self._at = codes_in(*unify(queries.ids, old.queries))
        self._asked = np.array([not reason for reason in self.reasons], dtype=bool)
        self._left()

    def _left(self) -> None:
        """Old entries: the row each is now, -1 where it is gone or changed or has no score."""
        scores = self.old.flat_scores
        assert scores is not None
        row = codes_in(*unify(self.old.documents, self.base.ids))
        row[row >= 0] = np.where(self.fresh[row[row >= 0]], -1, row[row >= 0])
        self._real = ~np.isnan(scores)
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
        if self.proven and bool((same | self._anew | ~self._asked).all()):
            return
        self._check_scores(same)

    def _surely_same(self) -> NDArray[np.bool_]:
        """The queries of the truth, where they stand first and in order, as they do in it."""
        same = np.zeros(len(self.queries), dtype=bool)
        count = len(self.old)
        if count <= len(same) and self.old.queries == self.queries.ids[:count]:
            first = Vectors.of(self.queries.require_matrix()[:count])
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
        scores = exact_pair_scores(
            self.space, _gathered(self.base, rows), back, self.queries.require_matrix(), query
        )
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
        """Score the fresh rows for all queries but those that are searched anew, and merge."""
        asked = np.flatnonzero(self._asked & ~self._anew)
        found: list[Best] = [EMPTY] * len(asked)
        if self.fresh.any() and len(asked):
            matrix = self.queries.require_matrix()[asked]
            with Scan(self.space, matrix, self.depth, memory=memory, threads=threads) as scan:
                for start, rows, block in _fresh_blocks(self.base, self.fresh):
                    # Rows are numbered one after another here.
                    scan.over(start, block, _Numbered(self.base.given_ids, rows))
                found = scan.answer().best
        numbers = np.flatnonzero(self.fresh)
        ran_out = np.zeros(len(self.queries), dtype=bool)
        for query, own in zip(asked.tolist(), found, strict=True):
            best = self._merged(query, Best(numbers[own.rows], own.scores, own.cut))
            if best is None:
                ran_out[query] = True
            else:
                self.best[query] = best
        self._redo(ran_out, _RAN_OUT)

    def _merged(self, query: int, fresh: Best) -> Best | None:
        """Old neighbours and fresh ones; None where the nearest k are not certain."""
        entries = self._entries(query)
        real = self._real[entries]
        stored = self.old.flat_scores
        assert stored is not None
        scores, rows = stored[entries][real], self._row[entries][real]
        known = int(self.old.identity["k"])
        kept_rows = known + int(self.old.identity.get("spare", 0))
        own, own_scores, cut = fresh.rows, fresh.scores, fresh.cut
        if len(scores) >= known:
            # Down to the last score everything is known, ties with it included.
            near = self.space.sort_key(own_scores) <= self.space.sort_key(scores[-1:])
            own, own_scores, cut = own[near], own_scores[near], cut and bool(near.all())
            certain = int((rows >= 0).sum()) + len(own)
            ties_cut = len(scores) >= kept_rows + most_ties(kept_rows)
            touched = len(own) > 0 or bool((rows < 0).any()) or kept_rows != self.depth
            if certain < self.k or (ties_cut and touched):
                return None
            if not touched and self._same_order:
                return Best(rows, scores, ties_cut)
        left = rows >= 0
        return merge(
            self.space, Best(own, own_scores, cut), rows[left], scores[left], self.depth,
            most_ties(self.depth), self.base.given_ids,
        )  # fmt: skip

    def search_anew(self, search: Callable[[Vectors, int], Run]) -> None:
        """Search the whole base for the queries that need it."""
        which = np.flatnonzero(self._anew)
        if len(which) == 0:
            return
        asked = Vectors.of(self.queries.take(which), ids=self.queries.ids[which])
        with warnings.catch_warnings():
            # What is odd about the base is said once, at the end.
            warnings.simplefilter("ignore", SemrecallWarning)
            run = search(asked, self.depth)
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
        usable = np.flatnonzero(self._asked)
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
            allowed=None,
        )


class _Numbered:
    """Ids of fresh rows by the number they have among the fresh ones."""

    def __init__(self, known: Ids | None, rows: NDArray[np.int64]) -> None:
        self._known, self._rows = known, rows

    def __getitem__(self, rows: Any, /) -> Any:
        return Ids(self._rows[rows]) if self._known is None else self._known[self._rows[rows]]


def _fresh_blocks(
    base: Vectors, fresh: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[Any]]]:
    """(first number, rows of all fresh ones, block) of the fresh rows, in blocks of some size."""
    rows, start = np.flatnonzero(fresh), 0
    waiting: list[NDArray[Any]] = []
    for low, block in base.blocks(1 << 16):
        some = block[fresh[low : low + len(block)]]
        if len(some):
            waiting.append(some)
        if sum(map(len, waiting)) >= 1 << 16:
            whole = np.concatenate(waiting)
            yield start, rows, whole
            start, waiting = start + len(whole), []
        base.release()
    if waiting:
        yield start, rows, np.concatenate(waiting)


def _gathered(base: Vectors, rows: NDArray[np.int64]) -> NDArray[Any]:
    """The vectors of some rows, ascending."""
    if base.matrix is not None:
        return base.take(rows)
    parts = [np.empty((0, base.dimension), dtype=base.dtype)]
    for low, block in base.blocks(1 << 16):
        mine = rows[np.searchsorted(rows, low) : np.searchsorted(rows, low + len(block))]
        parts.append(block[mine - low])
    return np.concatenate(parts)
