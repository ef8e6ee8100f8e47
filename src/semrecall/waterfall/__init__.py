"""waterfall(): of all relevant documents known, where each one is lost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Judgments, Run
from semrecall.data.ids import codes_in, unify
from semrecall.data.matching import difference
from semrecall.data.rows import repeated, row_numbers
from semrecall.data.slices import column_slices
from semrecall.errors import InputError, MeasureError, MismatchError
from semrecall.stats.intervals import check_confidence
from semrecall.text import plural
from semrecall.waterfall.result import CODES, DEPTH, EXACT, LostQuery, Stage, Step, Waterfall

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CODES", "DEPTH", "EXACT", "LostQuery", "Stage", "Step", "Waterfall", "waterfall"]

NO_RELEVANT = "no relevant document known"
NOT_SEARCHED = "not in the truth"


def waterfall(
    judgments: Judgments,
    *,
    truth: Run | None = None,
    codes: Run | None = None,
    runs: Run | Mapping[str, Run] | None = None,
    k: int | None = None,
    cuts: Mapping[str, int] | None = None,
    rel: float = 1.0,
    query_texts: Mapping[Any, str] | None = None,
    document_texts: Mapping[Any, str] | None = None,
    columns: Any = None,
    by: str | Sequence[str] = (),
    seed: int = 0,
    confidence: float = 0.95,
) -> Waterfall:
    """Where the relevant documents of each query are lost, stage by stage.

    A document is lost at the first stage that does not have it; so every relevant document is
    either lost at exactly one stage or kept to the end, and the stages add up exactly. One that
    comes back after it was lost (an index may find what lies outside the exact top k) is a lucky
    find of that stage, counted apart.

    No list of k results holds more than k: where a query has more relevant documents, those beyond
    k are lost by a stage of their own, "depth", before any other. Which they are is a choice, for
    lists only: of those that the first stage does not have, the ones farthest down in it.

    judgments: which documents are relevant: those with a grade of at least `rel`.
    truth: the run of exact search; what is not among its first k is lost by the embedding model.
    codes: exact search over the codes of a quantised index (see `codes_truth`), first k.
    runs: results of the stages after, in order, by name: {"index": run, "rerank": run, "context":
        run, "answer": run}; a single Run is the index. An answer is the documents it used.
    k: of the truth, the codes and the first of the runs; the depth of the truth when None. Later
        stages count as they are. MeasureError where truth or codes are less deep.
    cuts: {stage: n}: only the first n results of that stage count.
    query_texts, document_texts: {id: text}, shown with what was lost.
    columns, by: a frame or mapping with query_id, and names of its columns to slice by.

    Queries without a relevant document are left out and counted, and so are those that the truth
    does not have. A query that a later stage does not have has lost everything there. Raises
    InputError without any stage, MismatchError where ids do not meet.
    """
    check_confidence(confidence)
    if not math.isfinite(rel):
        raise InputError(f"rel is {rel}; expected the lowest grade that is relevant")
    stages = _stages(truth, codes, runs, k, dict(cuts or {}))
    relevant = _Relevant.of(judgments, rel)
    if truth is not None:
        relevant = relevant.within(truth.queries)
    if not len(relevant.documents):
        whose = "any query" if truth is None else "a query of the truth"
        raise InputError(f"no document has a grade of at least {rel:g} for {whose}")
    kept = np.ones(len(relevant.documents), dtype=bool)
    made, ranks = [], {}
    notes: list[str] = []

    def add(name: str, cut: int | None, there: NDArray[np.bool_]) -> None:
        nonlocal kept
        lost, lucky = kept & ~there, there & ~kept
        kept = kept & there
        made.append(Stage(name, cut, relevant.count(lost), relevant.count(lucky), lost, lucky))

    for name, run, cut in stages:
        ranks[name] = found = relevant.ranks_in(run)
        notes += _notes(name, run, cut, relevant, nothing=not found.any())
        there = (found > 0) & (found <= (cut or found.max(initial=0)))
        beyond = relevant.beyond(cut, found, there) if cut and not made else None
        if cut and beyond is not None and beyond.any():
            add(DEPTH, cut, ~beyond)
        add(name, cut, there)
    names = [by] if isinstance(by, str) else list(by)
    queries = relevant.queries
    return Waterfall(
        queries=queries,
        documents=relevant.documents,
        rows=relevant.rows,
        relevant=relevant.count(np.ones(len(relevant.documents), dtype=bool)),
        stages=tuple(made),
        kept=kept,
        ranks=ranks,
        slices={part.column: part for part in column_slices(columns, names, queries)},
        texts=(_by_text(query_texts), _by_text(document_texts)),
        left_out=_left_out(judgments, rel, truth, queries),
        notes=tuple(notes),
        rel=rel,
        seed=seed,
        confidence=confidence,
    )


def _stages(
    truth: Run | None,
    codes: Run | None,
    runs: Run | Mapping[str, Run] | None,
    k: int | None,
    cuts: dict[str, int],
) -> list[tuple[str, Run, int | None]]:
    """Name, run and cut of every stage, in order."""
    after = {"index": runs} if isinstance(runs, Run) else dict(runs or {})
    found: dict[str, Run] = {}
    if truth is not None:
        found[EXACT] = truth
    if codes is not None:
        found[CODES] = codes
    for name in after:
        if name in (*found, DEPTH) or not str(name).strip():
            raise InputError(f"a stage cannot be called {name!r}; that name is taken, or empty")
    found |= after
    if not found:
        raise InputError("there is no stage; expected a truth or at least one run")
    if k is not None and k < 1:
        raise InputError(f"k is {k}; expected at least 1")
    unknown = [name for name in cuts if name not in found]
    if unknown:
        raise InputError(f"there is no stage {unknown[0]!r} to cut; there are {', '.join(found)}")
    low = [name for name, cut in cuts.items() if cut < 1]
    if low:
        raise InputError(f"the cut of {low[0]!r} is {cuts[low[0]]}; expected at least 1")
    asked = dict.fromkeys((EXACT, CODES), k) | cuts
    if k is None and truth is not None:
        k = truth.k or truth.depth or 1
    first = next(iter(after), None)
    return [
        (
            name,
            _deep_enough(name, run, asked.get(name)),
            cuts.get(name, k if name in (EXACT, CODES, first) else None),
        )
        for name, run in found.items()
    ]


def _deep_enough(name: str, run: Run, k: int | None) -> Run:
    """The run of a stage, where it can have k results."""
    if name in (EXACT, CODES) and k is not None and k > run.depth:
        what = "the truth is" if name == EXACT else "the search over the codes is"
        raise MeasureError(
            f"k is {k:,}, but {what} only {run.depth:,} deep",
            hint=f"search it again with -k {k}, or take k up to {run.depth:,}",
        )
    return run


class _Relevant:
    """The relevant pairs: m documents (m,), and the row of each one's query (m,)."""

    def __init__(self, queries: Ids, rows: NDArray[np.int64], documents: Ids) -> None:
        self.queries, self.rows, self.documents = queries, rows, documents

    @classmethod
    def of(cls, judgments: Judgments, rel: float) -> _Relevant:
        """Pairs with a grade of at least rel, in the order of the judgments, each once."""
        at = np.flatnonzero(judgments.grades >= rel)
        queries, documents = judgments.queries[at], judgments.documents[at]
        assert isinstance(queries, Ids)
        assert isinstance(documents, Ids)
        [codes], [names] = unify(queries), unify(documents)
        # A document with several subtopics has several rows; it is one document all the same.
        _, first = np.unique(np.stack([codes, names]), axis=1, return_index=True)
        first.sort()
        kinds, place, rows = np.unique(codes[first], return_index=True, return_inverse=True)
        order = np.argsort(place)
        position = np.empty(len(kinds), dtype=np.int64)
        position[order] = np.arange(len(kinds))
        chosen = queries[first[place[order]]]
        docs = documents[first]
        assert isinstance(chosen, Ids)
        assert isinstance(docs, Ids)
        return cls(chosen, position[rows.reshape(-1)], docs)

    def within(self, queries: Ids) -> _Relevant:
        """Those of queries that are listed."""
        ours, theirs = unify(self.queries, queries)
        there = np.isin(ours, theirs)
        if not there.any() and len(ours):
            found = difference(self.queries, queries)
            raise MismatchError(
                f"no query with a relevant document is in the truth: the judgments have queries "
                f"like {self.queries[0]!r}, the truth like {queries[0]!r}"
                if len(queries)
                else "the truth has no query",
                hint=str(found) if found else "are they of the same queries?",
            )
        keep = np.flatnonzero(there)
        place = np.full(len(ours), -1, dtype=np.int64)
        place[keep] = np.arange(len(keep))
        pairs = np.flatnonzero(there[self.rows])
        chosen, documents = self.queries[keep], self.documents[pairs]
        assert isinstance(chosen, Ids)
        assert isinstance(documents, Ids)
        return _Relevant(chosen, place[self.rows[pairs]], documents)

    def count(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many of these pairs each query has, (n,)."""
        return np.bincount(self.rows[which], minlength=len(self.queries)).astype(np.int64)

    def beyond(
        self, k: int, ranks: NDArray[np.int64], there: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which pairs no list of k holds: of each query those more than k, farthest down first.

        ranks, there (m,): in the first stage, and whether they are among its first k.
        """
        sizes = self.count(np.ones(len(self.rows), dtype=bool))
        last = np.where(ranks == 0, np.iinfo(np.int64).max, ranks)
        order = np.lexsort((-last, there, self.rows))
        starts = np.cumsum(sizes) - sizes
        place = np.arange(len(order)) - starts[self.rows[order]]
        beyond = np.zeros(len(order), dtype=bool)
        beyond[order] = place < (sizes - k)[self.rows[order]]
        return beyond

    def ranks_in(self, run: Run) -> NDArray[np.int64]:
        """The rank (from 1) of each pair's document in its query's row, 0 where it is not there.

        Only valid results count, and each document once.
        """
        ours, theirs = unify(self.queries, run.queries)
        row_of = codes_in(ours, theirs)  # the run's row of each query, -1 where it has none
        names, results = unify(self.documents, run.documents)
        results = np.where(run.valid, results, -1)
        again = repeated(results, run.offsets)
        counts = run.valid if again is None else run.valid & ~again
        before = np.concatenate([[0], np.cumsum(counts)])
        run_rows = row_numbers(run.offsets)
        rank = before[1:] - before[run.offsets[run_rows]]
        use = np.flatnonzero(counts)
        # One key for a row of the run and a document.
        width = int(max(names.max(initial=-1), results.max(initial=-1))) + 1
        keys = run_rows[use] * width + results[use]
        order = np.argsort(keys)
        wanted = row_of[self.rows] * width + names
        at = np.searchsorted(keys[order], wanted)
        hit = np.zeros(len(wanted), dtype=bool)
        inside = (at < len(keys)) & (row_of[self.rows] >= 0)
        hit[inside] = keys[order][at[inside]] == wanted[inside]
        found = np.zeros(len(wanted), dtype=np.int64)
        found[hit] = rank[use][order][at[hit]]
        return found


def _notes(
    name: str, run: Run, cut: int | None, relevant: _Relevant, *, nothing: bool
) -> Iterator[str]:
    """What a reader should know of a stage."""
    if cut is not None and cut > run.depth:
        yield f"stage {name!r} is {run.depth:,} deep, less than {cut:,}"
    ours, theirs = unify(relevant.queries, run.queries)
    absent = int(np.count_nonzero(~np.isin(ours, theirs)))
    if absent == len(ours):
        found = difference(relevant.queries, run.queries)
        raise MismatchError(
            f"stage {name!r} has none of the {len(ours):,} queries: they are like "
            f"{relevant.queries[0]!r}, its own "
            + (f"like {run.queries[0]!r}" if len(run.queries) else "are none"),
            hint=str(found) if found else "are they of the same queries?",
        )
    if absent:
        yield (
            f"{plural(absent, 'query', 'queries')} not in stage {name!r}: all that was left of "
            "their relevant documents is lost there"
        )
    if not nothing:
        return
    names, results = unify(relevant.documents, run.documents)
    if len(results) and not np.isin(names, results).any():
        found = difference(relevant.documents, run.documents)
        yield f"stage {name!r} has no relevant document at all" + (f": {found}" if found else "")


def _left_out(judgments: Judgments, rel: float, truth: Run | None, queries: Ids) -> dict[str, int]:
    """Why queries are left out, and how many of them."""
    asked = judgments.queries if truth is None else truth.queries
    [codes, used] = unify(asked, queries)
    nothing = len(np.setdiff1d(codes, used))
    found = {NO_RELEVANT: nothing} if nothing else {}
    if truth is not None:
        at = np.flatnonzero(judgments.grades >= rel)
        judged = judgments.queries[at]
        assert isinstance(judged, Ids)
        ours, theirs = unify(judged, truth.queries)
        elsewhere = len(np.setdiff1d(ours, theirs))
        if elsewhere:
            found[NOT_SEARCHED] = elsewhere
    return found


def _by_text(texts: Mapping[Any, str] | Iterable[Any] | None) -> dict[str, str]:
    """Texts by id as text, because "7" and 7 are the same id."""
    return {} if texts is None else {str(key): str(value) for key, value in dict(texts).items()}
