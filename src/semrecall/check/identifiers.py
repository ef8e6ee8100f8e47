"""Findings on ids: whether the inputs speak of the same queries and documents, and stale truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from semrecall.check.inputs import Inputs
from semrecall.check.report import Finding, Level, percent
from semrecall.check.scan import Scan
from semrecall.data import Ids, Vectors
from semrecall.data.matching import Match, difference, match
from semrecall.data.vectors import identity_difference, identity_of

__all__ = ["findings"]

#: Row numbers that stand in for the ids of a base without ids when differences are looked for.
_NUMBERS = 1 << 20


def findings(inputs: Inputs) -> Iterator[Finding]:
    """Ids that do not match, with the likely reason, and a truth made from other data."""
    yield from _stale(inputs)
    yield from _query_ids(inputs)
    yield from _document_ids(inputs)


# -- identity -------------------------------------------------------------------------------


def _stale(inputs: Inputs) -> Iterator[Finding]:
    given = (
        ("base", inputs.base, inputs.base_scan),
        ("queries", inputs.queries, inputs.query_scan),
    )
    for name, run in inputs.runs():
        for part, vectors, seen in given:
            known = run.identity.get(part)
            if vectors is None or seen is None or not isinstance(known, Mapping):
                continue
            differs = identity_difference(known, identity_of(vectors, seen.rows, seen.fingerprint))
            if differs:
                yield Finding(
                    "error",
                    "stale",
                    name,
                    f"The {name} was not made from these {part} vectors: {differs}.",
                    "Use the files it was made from, or make it again from these "
                    f"({'semrecall truth' if name == 'truth' else 'semrecall search'}).",
                )


# -- queries --------------------------------------------------------------------------------


def _query_ids(inputs: Inputs) -> Iterator[Finding]:
    columns = [(name, run.queries) for name, run in inputs.runs()]
    if inputs.judgments is not None:
        columns.append(("judgments", inputs.judgments.queries))
    if inputs.queries is not None:
        columns.append(("query vectors", inputs.queries.ids))
    for at, (left_name, left) in enumerate(columns):
        for right_name, right in columns[at + 1 :]:
            if len(left) and len(right):
                yield from _query_pair(inputs, left_name, left, right_name, right)
    yield from _query_run(inputs)


def _query_pair(
    inputs: Inputs, left_name: str, left: Ids, right_name: str, right: Ids
) -> Iterator[Finding]:
    found = match(left, right)
    if found.common:
        yield from _partial(left_name, right_name, found, difference(left, right))
        return
    yield Finding(
        "error",
        "query-ids",
        left_name,
        f"No query id of the {left_name} occurs in the {right_name}: {_sides(found)}.",
        _reason(inputs, left_name, left, right_name, right)
        or "Are these files of the same queries?",
        found.left_examples,
        f"queries of the {left_name}",
    )


def _partial(
    left_name: str, right_name: str, found: Match, reason: object | None
) -> Iterator[Finding]:
    """Only some queries in common: a warning where a reason is in sight or a vector is missing."""
    if reason is None and (right_name != "query vectors" or left_name == "judgments"):
        return
    if found.left_only == 0:
        return
    yield Finding(
        "warning",
        "query-ids",
        left_name,
        f"{found.left_only:,} query ids of the {left_name} do not occur in the {right_name} "
        f"({found.common:,} do).",
        f"{_upper(str(reason))}."
        if reason is not None
        else "Without their vectors they cannot be searched or rescored. Is this the whole file?",
        found.left_examples,
        "queries",
    )


def _query_run(inputs: Inputs) -> Iterator[Finding]:
    """Queries that the run lacks score 0; queries that only the run has are left out."""
    run, truth, judgments = inputs.run, inputs.truth, inputs.judgments
    if run is None or (truth is None and judgments is None):
        return
    source, wanted = ("truth", truth.queries) if truth is not None else ("judgments", None)
    if wanted is None:
        assert judgments is not None
        wanted = judgments.queries
    found = match(run.queries, wanted)
    if not found.common:
        return
    if found.right_only:
        yield Finding(
            "warning",
            "queries-not-in-run",
            "run",
            f"{found.right_only:,} of {found.common + found.right_only:,} queries of the {source} "
            "are not in the run.",
            "Each scores 0. If they were never searched, search them, or select their queries out "
            f"of the {source}.",
            found.right_examples,
            "queries",
        )
    if found.left_only:
        yield Finding(
            "note",
            "queries-only-in-run",
            "run",
            f"{found.left_only:,} queries of the run are not in the {source}.",
            "They are left out.",
            found.left_examples,
            "queries",
        )


def _sides(found: Match) -> str:
    left = ", ".join(repr(i) for i in found.left_examples[:2])
    right = ", ".join(repr(i) for i in found.right_examples[:2])
    return f"{left}, ... against {right}, ..."


def _reason(inputs: Inputs, left_name: str, left: Ids, right_name: str, right: Ids) -> str:
    """The likely reason why two columns of query ids have nothing in common; "" for none."""
    documents = {name: run.documents for name, run in inputs.runs()}
    if inputs.judgments is not None:
        documents["judgments"] = inputs.judgments.documents
    ours, theirs = documents.get(left_name), documents.get(right_name)
    if _among(left, theirs) and _among(ours, right):
        return f"Query and document ids of the {left_name} are swapped."
    if _among(right, ours) and _among(theirs, left):
        return f"Query and document ids of the {right_name} are swapped."
    known = difference(left, right)
    if known is not None:
        return f"{_upper(str(known))}. Write them the same way on both sides."
    if "query vectors" in (left_name, right_name) and inputs.queries is not None:
        return _reason_of_vectors(inputs.queries, left if right_name == "query vectors" else right)
    if _among(left, theirs) or _among(right, ours):
        queries, others = (
            (left_name, right_name) if _among(left, theirs) else (right_name, left_name)
        )
        return (
            f"The query ids of the {queries} are document ids of the {others}: are two columns or "
            "two files swapped?"
        )
    return ""


def _reason_of_vectors(queries: Vectors, others: Ids) -> str:
    if queries.given_ids is None:
        return (
            "The query vectors have no ids of their own, so they are numbered from 0. Give them "
            "their ids (--query-ids, or Vectors.of(..., ids=...))."
        )
    if others.are_integers and int(others.codes.max(initial=0)) < len(queries):
        return "Are these row numbers, where the query vectors have ids of their own?"
    return ""


def _among(column: Ids | None, known: Ids | None) -> bool:
    """Whether most distinct ids of a column are known."""
    if column is None or known is None:
        return False
    found = match(column, known)
    return found.common > found.left_only


# -- documents ------------------------------------------------------------------------------


def _document_ids(inputs: Inputs) -> Iterator[Finding]:
    columns = [(name, run.documents) for name, run in inputs.runs()]
    if inputs.judgments is not None:
        columns.append(("judgments", inputs.judgments.documents))
    if inputs.base is not None and inputs.base_scan is not None:
        for name, documents in columns:
            yield from _against_base(inputs, name, documents)
        return
    for at, (left_name, left) in enumerate(columns):
        for right_name, right in columns[at + 1 :]:
            yield from _document_pair(left_name, left, right_name, right)


def _document_pair(left_name: str, left: Ids, right_name: str, right: Ids) -> Iterator[Finding]:
    found = match(left, right)
    if found.left_only + found.common == 0 or found.right_only + found.common == 0:
        return
    reason = difference(left, right) if found.left_only else None
    if found.common and reason is None:
        return
    yield Finding(
        "warning" if found.common else "error",
        "document-ids",
        left_name,
        f"{found.left_only:,} of {found.left_only + found.common:,} document ids of the "
        f"{left_name} do not occur in the {right_name}"
        + (f": {_sides(found)}." if not found.common else "."),
        f"{_upper(str(reason))}. Write them the same way on both sides."
        if reason is not None
        else "Are these files of the same collection? Row numbers in one and ids in the other?",
        found.left_examples,
        f"ids of the {left_name}",
    )


def _against_base(inputs: Inputs, name: str, documents: Ids) -> Iterator[Finding]:
    base, seen = inputs.base, inputs.base_scan
    assert base is not None
    assert seen is not None
    rows = inputs.base_rows(documents)
    real = ~documents.missing
    gone = real & (rows < 0)
    if not gone.any():
        return
    places, whole = int(gone.sum()), int(real.sum())
    distinct = len(np.unique(documents.codes[gone]))
    reason = _document_reason(base, seen, documents, gone)
    yield Finding(
        _level(name, places, whole, reason),
        "ids-not-in-base",
        name,
        f"{distinct:,} {'id' if distinct == 1 else 'ids'} of the {name} are not in the base "
        f"({places:,} of {whole:,} places, {percent(places, whole)}).",
        f"{_meaning(name, places, whole)} {reason or _usual(name)}",
        tuple(dict.fromkeys(documents[np.flatnonzero(gone)[:200]]))[:5],
        "ids",
    )


def _level(name: str, places: int, whole: int, reason: str) -> Level:
    if name == "truth" or (places == whole):
        return "error"
    if name == "run" or reason or places * 100 >= whole:
        return "warning"
    return "note"


def _meaning(name: str, places: int, whole: int) -> str:
    if name == "truth":
        return f"No search can find them: recall is at most {1 - places / whole:.4g} as it stands."
    if name == "run":
        return "They can be no hit against a truth of this base."
    return "They can never be found: R@k and nDCG cannot reach 1."


def _usual(name: str) -> str:
    if name == "truth":
        return (
            "Were they deleted since? Make the truth again, or drop them (semrecall score "
            "--deleted, Run.without)."
        )
    if name == "run":
        return "Does the index hold other rows than this base?"
    return "Was the base made from a part of the collection?"


def _document_reason(base: Vectors, seen: Scan, documents: Ids, gone: Any) -> str:
    known = documents.codes[~documents.missing]
    if base.given_ids is None:
        if documents.are_integers and int(known.min()) == 1 and int(known.max()) == seen.rows:
            return (
                f"Ids run from 1 to {seen.rows:,}, rows of the base from 0: they are off by one. "
                "Subtract 1."
            )
        named = difference(documents[gone], Ids(np.arange(min(seen.rows, _NUMBERS))))
        if named is not None:
            return f"{_upper(str(named))}."
        if not documents.are_integers:
            return (
                "The base has no ids of its own, so its rows are numbered from 0. Give it its "
                "ids (--base-ids, or Vectors.of(..., ids=...))."
            )
        if int(known.max()) > 20 * max(seen.rows, 1):
            return "These look like external ids, but the base has row numbers only: give its ids."
        return ""
    named = difference(documents[gone], base.given_ids)
    if named is not None:
        return f"{_upper(str(named))}."
    if documents.are_integers and gone.all() and int(known.max()) < seen.rows:
        return "They are all below the number of rows: row numbers, where the base has ids."
    return ""


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
