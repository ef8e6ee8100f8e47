"""Counts of the retrieval layer: queries, relevant documents and results, as trec_eval has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.measures.grammar import measure
from semrecall.measures.kinds import NUMBER, number_or
from semrecall.measures.problem import Problem, need
from semrecall.measures.relevance import RETRIEVAL, no_judgment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["num_q", "num_rel", "num_rel_ret", "num_ret"]


def _total(
    problem: Problem, k: int | None, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    yield f"in all: {np.nansum(values):,.0f}"


_COUNT: dict[str, Any] = RETRIEVAL | {"undefined": no_judgment, "notes": _total}
_OF_GRADE = _COUNT | {"params": {"rel": NUMBER}}


@measure("NumQ", **_COUNT, aliases=("num_q",))
def num_q(problem: Problem) -> Array:
    """One for each judged query; a note gives the sum, as of all counts.

    (n,). Source: trec_eval num_q, with -c.
    """
    return np.ones(len(problem))


@measure("NumRel", **_OF_GRADE, aliases=("num_rel",))
def num_rel(problem: Problem, *, rel: float = 1.0) -> Array:
    """How many documents are known to be relevant.

    (n,) at least 0. Source: trec_eval num_rel.
    """
    return np.asarray(need(problem.judged, "judgments").count(rel), dtype=np.float64)


@measure("NumRet", **_COUNT | {"params": {"rel": number_or("any")}}, aliases=("num_ret",))
def num_ret(problem: Problem, *, rel: float | str = "any") -> Array:
    """How many results were returned, or of those, how many have a grade of `rel` or more.

    (n,) at least 0. Source: trec_eval num_ret.
    """
    hits = problem.hits
    count = hits.returned if isinstance(rel, str) else hits.relevant(rel).count
    return np.asarray(count, dtype=np.float64)


@measure("NumRelRet", **_OF_GRADE, aliases=("num_rel_ret",))
def num_rel_ret(problem: Problem, *, rel: float = 1.0) -> Array:
    """How many relevant documents were returned.

    (n,) at least 0. Source: trec_eval num_rel_ret.
    """
    return num_ret(problem, rel=rel)
