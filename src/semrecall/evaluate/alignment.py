"""Queries of several results in one order, and what tells whether results belong together."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Scores
from semrecall.data.ids import codes_in, concatenate, unify
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.evaluate.result import Result

__all__ = ["NO_RELEVANT", "aligned", "identity", "reordered", "text_order", "union"]

#: The part of an identity that is no hash: "skip" or "zero".
NO_RELEVANT = "no_relevant"


def text_order(queries: Ids) -> NDArray[np.int64]:
    """Positions of the queries in the order of their text: the same for any order of a file."""
    return np.argsort(queries.strings(), kind="stable")


def reordered(scores: Scores, order: NDArray[np.int64]) -> Scores:
    """The scores with their queries in another order."""
    return Scores(
        scores.measure,
        scores.queries[order],
        scores.values[order],
        tuple(scores.reasons[i] for i in order.tolist()),
        scores.notes,
    )


def union(columns: list[Ids]) -> Ids:
    """All queries, each once, in the order of their text."""
    together = concatenate(columns)
    _, first = np.unique(together.codes, return_index=True)
    distinct = together[first]
    assert isinstance(distinct, Ids)
    return distinct[text_order(distinct)]  # type: ignore[no-any-return]


def aligned(scores: Scores, queries: Ids) -> Scores:
    """The values of `queries`, matched by id."""
    twice = scores.queries.first_duplicate()
    if twice is not None:
        raise InputError(f"{scores.measure}: query {scores.queries[twice[0]]!r} has two values")
    wanted, known = unify(queries, scores.queries)
    rows = codes_in(wanted, known)
    values = np.append(scores.values, np.nan)[rows]
    reasons = tuple(scores.reasons[i] if i >= 0 else "no value" for i in rows.tolist())
    return Scores(scores.measure, queries, values, reasons, scores.notes)


def identity(result: Result) -> dict[str, str]:
    """Hashes of the judgments and of the ids of the truth, whatever the order of their rows.

    Beside the judgments, what a query without a relevant document counts as.
    """
    found = {}
    if result.judgments is not None:
        judgments = result.judgments
        found["judgments"] = _fingerprint(judgments.queries, judgments.documents, judgments.grades)
        found[NO_RELEVANT] = next(iter(result.problems.values())).no_relevant
    if result.truth is not None:
        truth = result.truth
        rows = np.repeat(np.arange(len(truth)), np.diff(truth.offsets))
        ranks = np.arange(len(truth.documents)) - truth.offsets[rows]
        found["truth"] = _fingerprint(truth.queries[rows], truth.documents, ranks)
    return found


def _fingerprint(queries: Ids, documents: Ids, values: NDArray[Any]) -> str:
    texts = np.dtypes.StringDType()
    lines = queries.strings() + "\t" + documents.strings() + "\t"
    lines = np.sort(lines + values.astype(np.float64).astype(texts))
    return hashlib.sha256("\n".join(lines.tolist()).encode()).hexdigest()[:32]
