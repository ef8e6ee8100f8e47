"""Verdicts on claims and contexts, side by side: what context and answer measures are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data.ids import Ids, ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UNSCORED", "Case", "Verdicts"]

#: What the reason of a question starts with whose verdicts are not all there, or do not fit.
UNSCORED = "unscored"


@dataclass(frozen=True, eq=False)
class Case:
    """What is known of one question with its contexts and answer.

    Verdicts are 1 (yes), 0 (no) and NaN (none came; `faults` says why, by the name of the field).
    c contexts, in the order in which they were read; a claims of the answer, r claims of the
    reference answer, s statements of the answer, which may cite contexts.

    has_answer, has_reference: whether there is one that says something. lacks: which of "answer"
    and "contexts" the record says nothing of, which is not the same as an empty one.
    useful: (c,) is the context of use for the question, `useful_reference`: for arriving at the
    reference answer. attributed: (r,) does the
    context, as a whole, hold the claim of the reference. supported: (a,) does it support the claim
    of the answer. correct: (a,) does the reference answer support it. answer_by: (a, c) and
    reference_by: (r, c) does that context alone. relevance: 0 to 1, does the answer address the
    question. likeness: similarity of the question to each that was made from the answer.
    cited: (s, c) whether a statement cites a context; lost: citations of contexts that were not
    read. cited_by: (s, c) does a cited context alone support the statement. cited_support: (s,) do
    all that it cites together.
    known: (c,) whether the context's id is one of the reference's; reference_ids: how many those
    are, None where there are none. spans: (c,) whether the context overlaps a reference span;
    covered: share of the reference spans' characters that the contexts cover, None likewise.
    """

    contexts: int
    has_answer: bool = True
    has_reference: bool = True
    lacks: frozenset[str] = frozenset()
    useful: NDArray[np.float64] | None = None
    useful_reference: NDArray[np.float64] | None = None
    attributed: NDArray[np.float64] | None = None
    supported: NDArray[np.float64] | None = None
    correct: NDArray[np.float64] | None = None
    answer_by: NDArray[np.float64] | None = None
    reference_by: NDArray[np.float64] | None = None
    relevance: float | None = None
    likeness: NDArray[np.float64] | None = None
    cited: NDArray[np.bool_] | None = None
    lost: int = 0
    cited_by: NDArray[np.float64] | None = None
    cited_support: NDArray[np.float64] | None = None
    known: NDArray[np.bool_] | None = None
    reference_ids: int | None = None
    spans: NDArray[np.bool_] | None = None
    covered: float | None = None
    faults: Mapping[str, str] = field(default_factory=dict)


class Verdicts:
    """n questions and their cases; takes the place of a problem for measures of these layers."""

    #: A measure of these layers never takes a missing value for 0.
    no_relevant = "skip"
    #: There are no vectors behind these layers.
    space = None

    def __init__(self, queries: Sequence[str | int], cases: Sequence[Case]) -> None:
        self.queries: Ids = ids(list(queries), what="ids of questions")
        self.cases = tuple(cases)

    def __len__(self) -> int:
        return len(self.cases)
