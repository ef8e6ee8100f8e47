"""Run: for each query the ids it got, best first. Truth, index results and ranked lists alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.data.frames import columns_of, pick_column, to_library
from semrecall.data.ids import Ids, codes_in, ids, ids_of_rows, numbered_rows, unify
from semrecall.data.rows import Rows, picked, row_numbers
from semrecall.errors import InputError
from semrecall.space import Space, space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Run"]

QUERY_COLUMNS = ("query_id", "qid", "query", "query-id", "q_id")
DOC_COLUMNS = ("doc_id", "docno", "docid", "doc", "corpus-id", "document_id")
SCORE_COLUMNS = ("score", "scores", "sim", "distance")
ScoresBy = Literal["exact", "index"]
Order = Literal["score", "rank", "file"]
#: So many results are sorted in one go, to stay in the processor's cache.
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Ranked results of n queries.

    Inside, all rows lie end to end: query i has the entries `offsets[i]` to `offsets[i + 1]` of
    `documents` and `flat_scores`, best first. Make one with `from_arrays`, `from_dict` or
    `from_frame`.

    queries: ids of the queries, distinct, shape (n,).
    documents: ids of the results, flat; missing ones allowed.
    offsets: (n + 1,) int64, rising from 0 to len(documents).
    flat_scores: float64, like documents, in the natural unit of `space`; NaN is a missing result.
    space: the geometry of the scores, where it is known.
    k: how many results were asked for; a shorter row then means that no more exist.
    scores_by: "exact" when the scores were computed from the vectors in float64, else "index".
    reasons: per query, why its row cannot be trusted ("" where it can), e.g. a NaN query vector.
    identity: what the run was made from (see `truth`); empty when it is not known.
    ordered_by: what settled the order of a row. Only by "score" are equal scores ties; "rank" and
        "file" say that the order was given.
    distinct: no row holds a document twice, which `known_distinct` says; False: nobody looked.
    """

    queries: Ids
    documents: Ids
    offsets: NDArray[np.int64]
    flat_scores: NDArray[np.float64] | None = None
    space: Space | None = None
    k: int | None = None
    name: str = ""
    scores_by: ScoresBy = "index"
    reasons: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    ordered_by: Order = "score"
    # Not handed on to a copy with other fields: its documents may be others.
    distinct: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        n = len(self.queries)
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        if (
            len(offsets) != n + 1
            or (n >= 0 and offsets[0] != 0)
            or bool((np.diff(offsets) < 0).any())
        ):
            raise InputError(f"offsets of {n:,} rows must rise from 0 and number {n + 1:,}")
        if offsets[-1] != len(self.documents):
            raise InputError(
                f"rows hold {offsets[-1]:,} results; found {len(self.documents):,} document ids"
            )
        if self.flat_scores is not None and len(self.flat_scores) != len(self.documents):
            raise InputError(
                f"{len(self.documents):,} document ids but {len(self.flat_scores):,} scores"
            )
        if bool(self.queries.missing.any()):
            raise InputError(f"query {int(np.argmax(self.queries.missing))} has no id")
        twice = self.queries.first_duplicate()
        if twice is not None:
            raise InputError(
                f"query id {self.queries[twice[0]]!r} stands at rows {twice[0]} and {twice[1]}; "
                "expected distinct query ids"
            )
        if self.k is not None and self.k < 1:
            raise InputError(f"k is {self.k}; expected at least 1")
        if self.reasons and len(self.reasons) != n:
            raise InputError(f"{len(self.reasons):,} reasons for {n:,} queries")
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "identity", MappingProxyType(dict(self.identity)))
        if self.flat_scores is not None:
            # What can no longer be changed need not be copied.
            given = np.asarray(self.flat_scores)
            scores = np.array(given, dtype=np.float64, copy=given.flags.writeable or None)
            scores.flags.writeable = False
            object.__setattr__(self, "flat_scores", scores)

    # -- made from ------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        ids: Any,
        scores: Any = None,
        *,
        query_ids: Any = None,
        space: str | Space | None = None,
        k: int | None = None,
        counts: Any = None,
        name: str = "",
        scores_by: ScoresBy = "index",
    ) -> Run:
        """A run from a matrix (n_queries, k) of ids, best first, or from a list of ragged rows.

        ids: integers or strings; negative, empty or None is missing.
        scores: like ids, in the natural unit of `space` (Euclidean distance not squared).
        query_ids: (n_queries,); 0, 1, 2, ... when None.
        counts: (n_queries,) how many results of each row are real; the rest is cut off.

        Raises InputError when the shapes do not fit together.
        """
        documents, offsets = _flatten_ids(ids)
        n = len(offsets) - 1
        flat_scores = None if scores is None else _flatten_scores(scores, offsets)
        if counts is not None:
            documents, flat_scores, offsets = _cut(documents, flat_scores, offsets, counts)
        return cls(
            queries=_query_ids(query_ids, n),
            documents=documents,
            offsets=offsets,
            flat_scores=flat_scores,
            space=None if space is None else _space(space),
            k=k,
            name=name,
            scores_by=scores_by,
        )

    @classmethod
    def from_dict(
        cls,
        results: Mapping[Any, Any],
        *,
        space: str | Space | None = None,
        k: int | None = None,
        name: str = "",
        order: Order | None = None,
        lower_is_better: bool = False,
    ) -> Run:
        """A run from {query id: {document id: score}} or {query id: [document ids, best first]}.

        Scored results are sorted, nearest first; equal scores by document id, descending, as
        trec_eval does.

        order: "score" (where there are scores), or "file": as they stand.
        lower_is_better: scores without a space are distances of some kind.

        Raises InputError naming query and document where a score is no number.
        """
        rows = list(results.values())
        scored = [isinstance(row, Mapping) for row in rows]
        if any(scored) and not all(scored):
            raise InputError("some queries have scores and some have none")
        offsets = np.concatenate([[0], np.cumsum(list(map(len, rows)))]).astype(np.int64)
        query_ids = ids(list(results), what="query ids")
        numbered = numbered_rows(rows)
        documents = numbered
        if documents is None:
            documents = ids(list(chain.from_iterable(rows)), what="document ids")
        flat = _scores_of(results, len(documents)) if rows and all(scored) else None
        wanted = None if space is None else _space(space)
        ordering = Ordering(order, wanted, lower_is_better)
        by = ordering.of(offsets, documents, flat)
        run = cls(
            query_ids,
            settled(documents, by),
            offsets,
            settled(flat, by),
            wanted,
            k,
            name,
            ordered_by=ordering.chosen(flat),
        )
        # Different keys may still be one id, as "7" and 7 are; different numbered strings may not.
        return run.known_distinct() if numbered is not None and all(scored) else run

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        space: str | Space | None = None,
        k: int | None = None,
        name: str = "",
        order: Order | None = None,
        lower_is_better: bool = False,
    ) -> Run:
        """A run from a frame with columns query_id, doc_id and score or rank (or in file order).

        Takes pandas, polars and arrow tables, or a mapping of columns. With a `rank` column
        results are ordered by it; else by score, nearest first, equal scores by document id,
        descending; else as they stand.

        order: which of the three it is: "rank", "score" or "file".
        lower_is_better: scores without a space are distances of some kind.
        """
        columns = columns_of(frame)
        query_column = ids(pick_column(columns, QUERY_COLUMNS, "query ids"), what="query ids")
        documents = ids(pick_column(columns, DOC_COLUMNS, "document ids"), what="document ids")
        scores = next((columns[c] for c in SCORE_COLUMNS if c in columns), None)
        flat = None if scores is None else _numbers(scores, "scores")
        ranks = _numbers(columns["rank"], "ranks") if "rank" in columns else None
        wanted = None if space is None else _space(space)
        queries, offsets, together = grouped(query_column)
        documents, flat, ranks = (taken(c, together) for c in (documents, flat, ranks))
        ordering = Ordering(order, wanted, lower_is_better)
        by = ordering.of(offsets, documents, flat, ranks)
        return cls(
            queries,
            taken(documents, by),
            offsets,
            taken(flat, by),
            wanted,
            k,
            name,
            ordered_by=ordering.chosen(flat, ranks),
        )

    # -- seen from outside ----------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        lengths = np.diff(self.offsets)
        low, high = int(lengths.min(initial=0)), int(lengths.max(initial=0))
        if len(lengths):
            low = int(lengths.min())
        width = f"{low}" if low == high else f"{low} to {high}"
        parts = [f"{len(self):,} queries", f"{width} results each"]
        if self.space is not None:
            parts.append(str(self.space))
        if self.k is not None:
            parts.append(f"k={self.k}")
        parts.append("no scores" if self.flat_scores is None else f"{self.scores_by} scores")
        return f"Run({self.name + ': ' if self.name else ''}{', '.join(parts)})"

    @property
    def query_ids(self) -> NDArray[Any]:
        """Ids of the queries, shape (n,): int64 or strings."""
        return self.queries.array()

    @property
    def ids(self) -> Rows:
        """Document ids, a row per query, best first."""
        fill = -1 if self.documents.are_integers else ""
        return Rows(self.documents.codes, self.offsets, fill, self.documents.array)

    @property
    def scores(self) -> Rows | None:
        """Scores, a row per query, or None when there are none."""
        return None if self.flat_scores is None else Rows(self.flat_scores, self.offsets, np.nan)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Which results are real (flat): an id, and a score that is not NaN."""
        valid = ~self.documents.missing
        if self.flat_scores is not None:
            valid = valid & ~np.isnan(self.flat_scores)
            if self.space is not None:
                valid &= self.flat_scores != self.space.farthest
        return valid

    @property
    def depth(self) -> int:
        """How deep the run was asked: k, or its longest row when k is not known."""
        return self.k if self.k is not None else int(np.diff(self.offsets).max(initial=0))

    def reason(self, row: int) -> str:
        """Why the row of a query cannot be trusted; "" when it can."""
        return self.reasons[row] if self.reasons else ""

    def to_arrow(self) -> Any:
        """An arrow table: query_id, doc_id, rank (from 1), and score where there are scores."""
        import pyarrow as pa

        rows = row_numbers(self.offsets)
        rank = np.arange(len(rows), dtype=np.int64) - self.offsets[rows] + 1
        columns = {
            "query_id": self.queries[rows].to_arrow(),
            "doc_id": self.documents.to_arrow(),
            "rank": pa.array(rank),
        }
        if self.flat_scores is not None:
            columns["score"] = pa.array(self.flat_scores)
        return pa.table(columns)

    def to_frame(self, library: str = "pandas") -> Any:
        """A frame with the columns query_id, doc_id, rank, score: "pandas", "polars" or "arrow"."""
        return to_library(self.to_arrow(), library)

    def known_distinct(self) -> Run:
        """The run itself, marked by its maker: no row holds a document twice, nobody need look."""
        object.__setattr__(self, "distinct", True)
        return self

    # -- made from another run ------------------------------------------------------------

    def replace(self, **changes: Any) -> Run:
        """A copy with some fields changed, checked again."""
        copy = replace(self, **changes)
        same = self.distinct and not changes.keys() & {"documents", "offsets"}
        return copy.known_distinct() if same else copy

    def select(self, rows: Any) -> Run:
        """The run of some queries, by row number, mask or slice, in the order given."""
        chosen = picked(len(self), rows)
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return self.replace(
            queries=self.queries[chosen],
            documents=self.documents[entries],
            offsets=offsets,
            flat_scores=None if self.flat_scores is None else self.flat_scores[entries],
            reasons=tuple(self.reasons[i] for i in chosen) if self.reasons else (),
            identity=_of_some(self.identity, chosen, len(self)),
        )

    def keep(self, entries: NDArray[np.bool_]) -> Run:
        """The run with only the results marked in the flat mask `entries`."""
        counts = np.bincount(row_numbers(self.offsets)[entries], minlength=len(self))
        return self.replace(
            documents=self.documents[entries],
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            flat_scores=None if self.flat_scores is None else self.flat_scores[entries],
        )

    def without(self, deleted: Any) -> Run:
        """The run with deleted documents dropped and the rest moved up.

        `k` falls to the smallest depth that is still complete: a row that was full (k results or
        more) and lost m of its first ones is known to k - m only. Read it to learn whether the
        depth ran out.
        """
        gone_codes, codes = unify(ids(deleted, what="deleted ids"), self.documents)
        gone = codes_in(codes, np.unique(gone_codes[gone_codes >= 0])) >= 0
        kept = self.keep(~gone)
        if self.k is None:
            return kept
        before, after = np.diff(self.offsets), np.diff(kept.offsets)
        incomplete = (before >= self.k) & (after < self.k)
        depth = int(after[incomplete].min(initial=self.k))
        return kept.replace(k=max(depth, 1))


def group_rows(query_column: Ids) -> tuple[Ids, NDArray[np.int64], NDArray[np.int64]]:
    """Distinct queries in order of first appearance, the row number of each entry, and offsets."""
    queries, offsets, together = grouped(query_column)
    rows = row_numbers(offsets)
    if together is not None:
        apart = np.empty_like(rows)
        apart[together] = rows
        rows = apart
    return queries, rows, offsets


def grouped(query_column: Ids) -> tuple[Ids, NDArray[np.int64], NDArray[np.int64] | None]:
    """Distinct queries in order of first appearance, offsets, and the order that groups entries.

    The order is None where the entries of each query stand together already.
    """
    if bool(query_column.missing.any()):
        raise InputError(f"entry {int(np.argmax(query_column.missing))} has no query id")
    codes = query_column.codes
    starts = np.flatnonzero(np.append(len(codes) > 0, codes[1:] != codes[:-1]))
    return grouped_stretches(query_column[starts], np.diff(np.append(starts, len(codes))))


def grouped_stretches(
    heads: Ids, lengths: NDArray[np.int64]
) -> tuple[Ids, NDArray[np.int64], NDArray[np.int64] | None]:
    """Like `grouped`, of stretches of entries of one query each."""
    _, first, inverse = np.unique(heads.codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rows = place[inverse]
    offsets = np.zeros(len(first) + 1, dtype=np.int64)
    np.add.at(offsets, rows + 1, lengths)
    np.cumsum(offsets, out=offsets)
    queries = heads[first[order]]
    if bool((rows[1:] >= rows[:-1]).all()):
        return queries, offsets, None
    return queries, offsets, np.argsort(np.repeat(rows, lengths), kind="stable")


@dataclass(frozen=True)
class Ordering:
    """How the results of a query are ordered.

    by: "score", nearest first, then document id, descending, as strings, as in trec_eval, NaN
        last; "rank"; or "file", as they stand. None: by rank where there is one, else by score
        where there is one, else as they stand.
    lower_is_better: of scores without a space; else they are similarities.

    Raises InputError for another word, and where `space` says the opposite.
    """

    by: Order | None = None
    space: Space | None = None
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        if self.by not in (None, "score", "rank", "file"):
            raise InputError(f"order is {self.by!r}; expected score, rank or file")
        if self.lower_is_better and self.space is not None and self.space.higher_is_nearer:
            raise InputError(
                f"lower scores were said to be better, but in space {self.space} the higher is",
                hint="leave one of the two out",
            )

    @property
    def rising(self) -> bool:
        """Whether the best score is the lowest."""
        return self.lower_is_better or (self.space is not None and not self.space.higher_is_nearer)

    def chosen(
        self, scores: NDArray[np.float64] | None, ranks: NDArray[np.float64] | None = None
    ) -> Order:
        """By which of the columns that are there: `by` itself, where it is said."""
        return self.by or ("rank" if ranks is not None else "file" if scores is None else "score")

    def of(
        self,
        offsets: NDArray[np.int64],
        documents: Ids,
        scores: NDArray[np.float64] | None,
        ranks: NDArray[np.float64] | None = None,
    ) -> Moves | None:
        """What brings flat results in order, row by row, best first; None where they are."""
        by = self.chosen(scores, ranks)
        if by == "file":
            return None
        key = ranks if by == "rank" else scores
        if key is None:
            raise InputError(f"there is no {by} to order the results by")
        rising = by == "rank" or self.rising
        unsure = level(offsets, key, rising=rising)
        moves = _sorted_within(offsets, key, unsure, rising=rising)
        if by == "rank":
            return moves
        if moves is not None:
            key = taken(key, moves)
            unsure = level(offsets, key, rising=rising)
        return _ties_by_name(documents, unsure[key[unsure] == key[unsure + 1]], moves)


@dataclass(frozen=True)
class Moves:
    """A change of order: to the places `to` come the entries `of`; all others stay."""

    to: NDArray[np.int64]
    of: NDArray[np.int64]


def taken(column: Any, order: Moves | NDArray[np.int64] | None) -> Any:
    """A column in an order; as it is where either is None."""
    if order is None or column is None:
        return column
    if not isinstance(order, Moves):
        return column[order]
    if isinstance(column, Ids):
        return Ids(taken(column.codes, order), column.names)
    moved = column[order.of]
    if np.array_equal(column[order.to], moved):
        return column
    changed = column.copy()
    changed[order.to] = moved
    return changed


def settled(column: Any, order: Moves | None) -> Any:
    """Like `taken`, of a column that nobody else holds: it is changed in place, and then closed.

    What it spares is not the copying but the memory, which the system hands out slowly.
    """
    data = column.codes if isinstance(column, Ids) else column
    if data is None:
        return None
    if order is not None:
        try:
            data.flags.writeable = True
        except ValueError:
            return taken(column, order)
        data[order.to] = data[order.of]
    data.flags.writeable = False
    return column


def level(
    offsets: NDArray[np.int64], key: NDArray[np.float64], *, rising: bool
) -> NDArray[np.int64]:
    """Entries whose next one of the same row is not strictly worse: tied with it, or misplaced."""
    found = [np.empty(0, dtype=np.int64)]
    for low in range(0, len(key) - 1, _BLOCK):
        part = key[low : low + _BLOCK + 1]
        worse = part[1:] > part[:-1] if rising else part[1:] < part[:-1]
        found.append(low + np.flatnonzero(~worse))
    at = np.concatenate(found)
    starts = np.zeros(len(key) + 1, dtype=bool)
    starts[offsets] = True
    return at[~starts[at + 1]]


def _sorted_within(
    offsets: NDArray[np.int64], key: NDArray[np.float64], unsure: NDArray[np.int64], *, rising: bool
) -> Moves | None:
    """Stable order of each row by its key, NaN last; only rows that are not in order are sorted.

    unsure: what `level` finds.
    """
    this, following = key[unsure], key[unsure + 1]
    at = unsure[~(following >= this if rising else following <= this)]
    if len(at) == 0:
        return None
    to, of = [], []
    for low, high in _blocks(offsets, np.unique(np.searchsorted(offsets, at, side="right") - 1)):
        part = key[low:high] if rising else -key[low:high]
        places = np.arange(low, high)
        rows = np.searchsorted(offsets, places, side="right")
        to.append(places)
        of.append(low + np.lexsort((part, rows)))
    return Moves(np.concatenate(to), np.concatenate(of))


def _blocks(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbouring ones of some rows as stretches of entries, each small enough for the cache."""
    start = 0
    for at in range(1, len(rows) + 1):
        low = int(offsets[rows[start]])
        if at < len(rows) and rows[at] == rows[at - 1] + 1 and offsets[rows[at]] - low < _BLOCK:
            continue
        yield low, int(offsets[rows[at - 1] + 1])
        start = at


def _ties_by_name(documents: Ids, same: NDArray[np.int64], moves: Moves | None) -> Moves | None:
    """The same order with equal scores by document id, descending.

    same: entries, in that order, whose next one has an equal score.
    """
    if len(same) == 0:
        return moves
    continued = np.zeros(len(documents), dtype=bool)
    continued[same + 1] = True
    tied = continued.copy()
    tied[same] = True
    at = np.flatnonzero(tied)
    group = np.cumsum(~continued[at])
    order = None if moves is None else taken(np.arange(len(documents)), moves)
    found = at if order is None else order[at]
    by_name = np.lexsort((-_places_by_name(documents[found]), group))
    if bool((by_name[1:] > by_name[:-1]).all()):
        return moves
    if order is None:
        return Moves(at, found[by_name])
    order[at] = found[by_name]
    return Moves(np.arange(len(documents)), order)


def _places_by_name(column: Ids) -> NDArray[np.int64]:
    """Where each id stands among all of them sorted as strings; a missing one comes first."""
    distinct, position = np.unique(column.codes, return_inverse=True)
    place = np.empty(len(distinct), dtype=np.int64)
    place[np.argsort(Ids(distinct, column.names).strings(), kind="stable")] = np.arange(len(place))
    return place[position]


def _scores_of(results: Mapping[Any, Mapping[Any, Any]], count: int) -> NDArray[np.float64]:
    values = chain.from_iterable(row.values() for row in results.values())
    try:
        return np.fromiter(values, np.float64, count)
    except (TypeError, ValueError):
        for query, row in results.items():
            for document, value in row.items():
                try:
                    float(value)
                except (TypeError, ValueError):
                    raise InputError(
                        f"query {query!r}, document {document!r} has the score {value!r}; "
                        "expected a number"
                    ) from None
        raise


def _of_some(
    identity: Mapping[str, Any], chosen: NDArray[np.int64], count: int
) -> Mapping[str, Any]:
    """The identity of some of the queries: what it says of each query's filter goes with them."""
    known = identity.get("filter")
    if not isinstance(known, Mapping) or np.array_equal(chosen, np.arange(count)):
        return identity
    # The hash is that of all filters, in the order of all queries.
    filter_ = {name: value for name, value in known.items() if name != "fingerprint"}
    rows = filter_.get("allowed_rows")
    if isinstance(rows, list) and len(rows) == count:
        filter_["allowed_rows"] = [rows[at] for at in chosen.tolist()]
    return {**identity, "filter": filter_}


def _space(name: str | Space) -> Space:
    return space(name)


def _query_ids(query_ids: Any, n: int) -> Ids:
    if query_ids is None:
        return Ids(np.arange(n, dtype=np.int64))
    found = ids(query_ids, what="query ids")
    if len(found) != n:
        raise InputError(f"{len(found):,} query ids for {n:,} rows of results")
    return found


def _flatten_ids(rows: Any) -> tuple[Ids, NDArray[np.int64]]:
    if hasattr(rows, "to_numpy") and not isinstance(rows, np.ndarray):
        rows = rows.to_numpy()
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        n, width = rows.shape
        return ids(rows.reshape(-1), what="document ids"), np.arange(n + 1, dtype=np.int64) * width
    if isinstance(rows, np.ndarray) and rows.ndim != 1:
        raise InputError(f"ids have shape {rows.shape}; expected (n_queries, k)")
    rows = [_row(row, i) for i, row in enumerate(rows)]
    lengths = [len(row) for row in rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if rows and all(isinstance(row, np.ndarray) for row in rows):
        kinds = {row.dtype for row in rows if len(row)}
        if len(kinds) <= 1:
            return ids(np.concatenate(rows), what="document ids"), offsets
    return ids_of_rows(rows, what="document ids"), offsets


def _row(row: Any, position: int) -> Any:
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        raise InputError(
            f"row {position} of the ids is {row!r}; expected a row of ids per query, "
            "shape (n_queries, k)"
        )
    if isinstance(row, np.ndarray | Sequence):
        return row
    return list(row)


def _flatten_scores(rows: Any, offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    lengths = np.diff(offsets)
    if hasattr(rows, "to_numpy") and not isinstance(rows, np.ndarray):
        rows = rows.to_numpy()
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        found = np.full(len(rows), rows.shape[1])
        flat = rows.reshape(-1)
    else:
        parts = [np.asarray(_nan_for_none(row), dtype=np.float64) for row in rows]
        found = np.array([len(p) for p in parts], dtype=np.int64)
        flat = np.concatenate(parts) if parts else np.empty(0)
    if len(found) != len(lengths) or bool((found != lengths).any()):
        if len(found) != len(lengths):
            raise InputError(f"scores have {len(found):,} rows, ids have {len(lengths):,}")
        at = int(np.argmax(found != lengths))
        raise InputError(f"row {at} has {lengths[at]} ids but {found[at]} scores")
    return _numbers(flat, "scores")


def _nan_for_none(row: Any) -> Any:
    return row if isinstance(row, np.ndarray) else [np.nan if v is None else v for v in row]


def _numbers(values: Any, what: str) -> NDArray[np.float64]:
    if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray):
        values = values.to_numpy()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} are not numbers: {error}") from error


def _cut(
    documents: Ids,
    scores: NDArray[np.float64] | None,
    offsets: NDArray[np.int64],
    counts: Any,
) -> tuple[Ids, NDArray[np.float64] | None, NDArray[np.int64]]:
    real = np.asarray(counts, dtype=np.int64)
    lengths = np.diff(offsets)
    if real.shape != lengths.shape:
        raise InputError(f"counts have shape {real.shape}; expected ({len(lengths)},)")
    if bool((real < 0).any()) or bool((real > lengths).any()):
        at = int(np.argmax((real < 0) | (real > lengths)))
        raise InputError(f"count {real[at]} of row {at} is not between 0 and {lengths[at]}")
    keep = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths) < np.repeat(real, lengths)
    cut = np.concatenate([[0], np.cumsum(real)]).astype(np.int64)
    return documents[keep], None if scores is None else scores[keep], cut
