"""What exact search found so far: flat arrays that are stored, sent and merged, and made a Run."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Run, Vectors
from semrecall.data.allowed import NOTHING_ALLOWED
from semrecall.data.multivectors import MultiVectors
from semrecall.data.vectors import Fingerprint, identity_of
from semrecall.errors import SemrecallWarning
from semrecall.exact.settle import EMPTY, Best, most_ties
from semrecall.space import Space
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.exact.filters import Filter

__all__ = ["BAD_QUERY", "ZERO_QUERY", "Answer", "Sample", "as_run", "queries_digest"]

BAD_QUERY = "NaN or infinite query vector"
ZERO_QUERY = "zero query vector"


@dataclass(frozen=True)
class Sample:
    """The rows that a fingerprint hashes, of the part of a base that was read; values (s, d)."""

    rows: NDArray[np.int64]
    values: NDArray[Any]

    @classmethod
    def of(cls, start: int, block: NDArray[Any]) -> Sample:
        """Those of a block whose first row has number `start`."""
        rows = Fingerprint.positions(start, start + len(block))
        return cls(rows, block[rows - start])

    @classmethod
    def joined(cls, samples: Sequence[Sample]) -> Sample:
        """Those of several parts, in the order of their rows."""
        samples = [s for s in samples if len(s.rows)] or list(samples[:1])
        rows = np.concatenate([s.rows for s in samples])
        order = np.argsort(rows)
        kept = order[np.isin(rows[order], Fingerprint.positions(0, int(rows.max(initial=-1)) + 1))]
        return cls(rows[kept], np.concatenate([s.values for s in samples])[kept])

    def fingerprint(self, dtype: np.dtype[Any], dimension: int) -> str:
        """The fingerprint of the base, once all of it was read."""
        printer = Fingerprint(dtype, dimension)
        printer.add_positions(self.rows, self.values)
        return printer.hexdigest()


@dataclass(frozen=True)
class Answer:
    """The nearest rows of m queries among some rows of a base, ties with the k-th included.

    rows, scores: those of query i from offsets[i] to offsets[i + 1], nearest first, equal scores
        in order of their ids.
    order: for each of `rows` a number that sorts as its id does; None where rows are the ids.
    cut (m,): whether ties with the k-th were left out, because there are too many.
    norm: at least the largest norm among the rows read.
    left_out, zero: numbers of rows with NaN or infinity, and of zero rows under cosine.
    sample: what a fingerprint needs. seconds: what was spent on what.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    order: NDArray[np.int64] | None
    cut: NDArray[np.bool_]
    norm: float
    left_out: NDArray[np.int64]
    zero: NDArray[np.int64]
    sample: Sample
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> list[Best]:
        """The rows query by query."""
        ends = self.offsets.tolist()
        return [
            Best(self.rows[low:high], self.scores[low:high], cut)
            for low, high, cut in zip(ends, ends[1:], self.cut.tolist(), strict=False)
        ]


def as_run(
    answer: Answer,
    *,
    space: Space,
    k: int,
    base: Vectors | MultiVectors,
    rows: int,
    queries: Vectors | MultiVectors,
    reasons: list[str],
    allowed: Filter | None,
) -> Run:
    """The run of exact search: the answer of the usable queries, with the ids of base and queries.

    base: its ids, type and dimension are used, never its rows. rows: how many it has.
    reasons (n_queries,): why a query is not among those of the answer; "" where it is.
    """
    usable = np.flatnonzero([not reason for reason in reasons])
    row_ids = base.given_ids
    best = [EMPTY] * len(queries)
    for query, found in zip(usable.tolist(), answer.best, strict=True):
        best[query] = found
        if len(answer.zero) and len(found.rows) < k:
            zero = answer.zero if allowed is None else _allowed(allowed, query, answer.zero)
            best[query] = _filled_up(found, zero, k, row_ids)
    flat = np.concatenate([b.rows for b in best]) if best else np.empty(0, dtype=np.int64)
    if allowed is not None:
        nothing = (allowed.allowed_rows == 0).tolist()
        reasons = [r or NOTHING_ALLOWED * n for r, n in zip(reasons, nothing, strict=True)]
    _warn(answer, reasons, k)
    return Run(
        queries=queries.ids,
        documents=Ids(flat) if row_ids is None else row_ids[flat],
        offsets=np.concatenate([[0], np.cumsum([len(b.rows) for b in best])]).astype(np.int64),
        flat_scores=np.concatenate([b.scores for b in best]) if best else np.empty(0),
        space=space,
        k=k,
        name="exact",
        scores_by="exact",
        reasons=tuple(reasons) if any(reasons) else (),
        identity=_identity(answer, space, k, base, rows, queries, allowed),
    )


def _allowed(allowed: Filter, query: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows[allowed.allows(query, rows)]


def _filled_up(best: Best, zero: NDArray[np.int64], k: int, row_ids: Ids | None) -> Best:
    """Rows without a direction fill up a row that would be shorter than k, without scores."""
    if row_ids is not None:
        zero = zero[np.argsort(row_ids[zero].array(), kind="stable")]
    more = zero[: k - len(best.rows)]
    return Best(
        np.concatenate([best.rows, more]),
        np.concatenate([best.scores, np.full(len(more), np.nan)]),
        best.cut,
    )


def _identity(
    answer: Answer,
    space: Space,
    k: int,
    base: Vectors | MultiVectors,
    rows: int,
    queries: Vectors | MultiVectors,
    allowed: Filter | None,
) -> dict[str, Any]:
    fingerprint = answer.sample.fingerprint(base.dtype, base.dimension)
    return {
        "space": space.name,
        "k": k,
        "base": identity_of(base, rows, fingerprint),
        "queries": {
            **identity_of(queries, len(queries), queries.fingerprint),
            "digest": queries_digest(queries),
        },
        "filter": None if allowed is None else allowed.identity,
        "left_out_rows": len(answer.left_out),
        "zero_rows": len(answer.zero),
        "semrecall": _version(),
    }


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("semrecall")


def queries_digest(queries: Vectors | MultiVectors) -> str:
    """A hash of all query vectors, in order."""
    matrix = queries.require_matrix() if isinstance(queries, Vectors) else queries.matrix
    digest = hashlib.sha256(np.ascontiguousarray(matrix).data)
    if isinstance(queries, MultiVectors):
        digest.update(queries.offsets.astype("<i8").tobytes())
    return digest.hexdigest()[:32]


def _warn(answer: Answer, reasons: list[str], k: int) -> None:
    if len(answer.left_out):
        counted = plural(len(answer.left_out), "base row")
        _say(f"{counted} left out, with NaN or infinity: {_first(answer.left_out.tolist())}")
    if len(answer.zero):
        counted = plural(len(answer.zero), "base row")
        _say(f"{counted} without a score: zero vectors have none under cosine")
    for reason in dict.fromkeys(r for r in reasons if r and r != NOTHING_ALLOWED):
        rows = [i for i, r in enumerate(reasons) if r == reason]
        if rows:
            counted = plural(len(rows), "query", "queries")
            _say(f"{counted} without neighbours ({reason}): {_first(rows)}")
    cut = int(answer.cut.sum())
    if cut:
        _say(
            f"{plural(cut, 'query', 'queries')} with more than {most_ties(k):,} ties with "
            f"neighbour {k}; the rest of the ties, by id, are not in the truth"
        )


def _first(rows: list[int]) -> str:
    return ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")


def _say(message: str) -> None:
    warnings.warn(message, SemrecallWarning, stacklevel=5)
