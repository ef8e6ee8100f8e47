"""Findings on judgments: grades, queries without relevant documents, how much is judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from semrecall.check.inputs import Inputs
from semrecall.check.report import Finding, percent
from semrecall.data import Judgments, Run
from semrecall.data.ids import codes_in, unify
from semrecall.data.rows import row_numbers
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["findings"]

_SHOWN = 8
_FIRST = 10


def findings(inputs: Inputs) -> Iterator[Finding]:
    """Everything that judgments tell, alone and beside truth and run."""
    judgments = inputs.judgments
    if judgments is None:
        return
    if len(judgments) == 0:
        yield Finding("error", "empty", "judgments", "There are no judgments.")
        return
    yield _grades(judgments)
    yield from _ungraded(judgments)
    yield from _without_relevant(inputs, judgments)
    for name, run in inputs.runs():
        yield from _judged_share(name, run, judgments)


def _grades(judgments: Judgments) -> Finding:
    graded = judgments.grades[~np.isnan(judgments.grades)]
    values, counts = np.unique(graded, return_counts=True)
    shown = ", ".join(
        f"{value:g}: {count:,}"
        for value, count in zip(values[:_SHOWN], counts[:_SHOWN], strict=True)
    )
    more = f", and {len(values) - _SHOWN:,} more values" if len(values) > _SHOWN else ""
    one = len(values) == 1
    odd = len(values) > _SHOWN or bool((values < 0).any()) or bool((values % 1 != 0).any())
    return Finding(
        "note",
        "grades",
        "judgments",
        f"Grades: {shown or 'none'}{more} ({plural(len(judgments), 'pair')}, "
        f"{plural(len(np.unique(judgments.queries.codes)), 'query', 'queries')}).",
        "Only one grade is there, so nothing was judged not relevant: measures of judged documents "
        "only (judged_only, Bpref) say little."
        if one
        else "Unusual for grades; is this the right column? Relevant means grade >= 1, or rel=."
        if odd
        else "Relevant means grade >= 1, unless a measure says rel=.",
    )


def _ungraded(judgments: Judgments) -> Iterator[Finding]:
    gaps = np.isnan(judgments.grades)
    if not gaps.any():
        return
    yield Finding(
        "error" if gaps.all() else "note",
        "no-grade",
        "judgments",
        f"{int(gaps.sum()):,} of {len(gaps):,} judgments ({percent(int(gaps.sum()), len(gaps))}) "
        "have no grade.",
        "They count as unjudged, never as grade 0."
        + (" Is this the right column?" if gaps.all() else ""),
        tuple(judgments.documents[np.flatnonzero(gaps)[:5]]),
        "documents",
    )


def _without_relevant(inputs: Inputs, judgments: Judgments) -> Iterator[Finding]:
    """Queries without a relevant document, among those of the truth (else the run) if given."""
    codes, first, inverse = np.unique(
        judgments.queries.codes, return_index=True, return_inverse=True
    )
    relevant = np.bincount(inverse, judgments.grades >= 1, len(codes))
    asked = np.ones(len(codes), dtype=bool)
    source = next(inputs.runs(), None)
    if source is not None:
        ours, theirs = unify(judgments.queries[first], source[1].queries)
        asked = np.isin(ours, theirs)
    none = np.flatnonzero((relevant == 0) & asked)
    if len(none) == 0:
        return
    whole = int(asked.sum())
    yield Finding(
        "warning" if 2 * len(none) > whole else "note",
        "no-relevant",
        "judgments",
        f"{len(none):,} of {whole:,} judged queries"
        + ("" if source is None else f" of the {source[0]}")
        + f" ({percent(len(none), whole)}) have no document of grade 1 or more.",
        "Recall, nDCG and srecall are undefined for them: they are left out and counted.",
        tuple(judgments.queries[np.sort(first[none])[:5]]),
        "queries",
    )


def _judged_share(name: str, run: Run, judgments: Judgments) -> Iterator[Finding]:
    """How much of the first k of the rows has a grade, over the queries that have any."""
    ours, theirs = unify(run.queries, judgments.queries)
    both = codes_in(ours, np.unique(theirs)) >= 0
    if not both.any():
        return
    part = run.select(both)
    documents, judged = unify(part.documents, judgments.documents)
    owner, judged_queries = unify(part.queries[row_numbers(part.offsets)], judgments.queries)
    graded = ~np.isnan(judgments.grades)
    known = _pairs(owner, documents, judged_queries[graded], judged[graded])
    rank = np.arange(len(known)) - part.offsets[row_numbers(part.offsets)]
    k = run.depth
    at = part.valid & (rank < k)
    if not at.any():
        return
    share, whole = int((known & at).sum()), int(at.sum())
    found = f"{percent(share, whole)} of the top {k:,} of the {name} is judged"
    if k > _FIRST:
        top = at & (rank < _FIRST)
        found += f", {percent(int((known & top).sum()), int(top.sum()))} of the top {_FIRST}"
    unjudged = int((~both).sum())
    if unjudged:
        found += f" ({plural(unjudged, 'query', 'queries')} without any judgment aside)"
    yield Finding(
        "warning" if share == 0 else "note",
        "judged-share",
        name,
        found + ".",
        "Nothing of it is judged: do the document ids mean the same documents?"
        if share == 0
        else "srecall counts over the judged ones and gives bounds for the rest."
        if name == "truth"
        else "Unjudged results count as not relevant in nDCG, P and RR: a system that differs from "
        "the judged ones looks worse than it is.",
    )


def _pairs(
    queries: NDArray[np.int64],
    documents: NDArray[np.int64],
    judged_queries: NDArray[np.int64],
    judged: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which (query, document) pairs, as codes, are among the judged ones."""
    n = len(queries)
    _, query = np.unique(np.concatenate([queries, judged_queries]), return_inverse=True)
    names, document = np.unique(np.concatenate([documents, judged]), return_inverse=True)
    pairs = query * len(names) + document
    return np.isin(pairs[:n], pairs[n:])
