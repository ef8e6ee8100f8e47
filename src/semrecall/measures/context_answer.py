"""Context and answer measures: ratios of verdicts on contexts and on claims.

Each takes one question's case and gives a value, or the reason why it has none. A set of verdicts
with a gap is never filled: the question is unscored, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.measures.grammar import measure
from semrecall.measures.kinds import choice
from semrecall.measures.verdicts import UNSCORED, Case, Verdicts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ap"]

NO_ANSWER = "no answer"
NO_REFERENCE = "no reference answer"
NO_CLAIM = "no claim in the answer"
NO_REFERENCE_CLAIM = "no claim in the reference answer"
NO_IDS = "no ids of relevant contexts"
NO_SPANS = "no spans of the answer's source"
NO_CONTEXTS = "no contexts in the record"
NO_STATEMENT = "no statement in the answer"
#: The reason of a question whose verdicts were not asked for, or did not come.
MISSING = f"{UNSCORED}: verdicts missing"

Value = float | str
Of = Callable[..., Value]


def ap(relevant: NDArray[Any]) -> float:
    """Average precision of a ranked list (c,) of 0 and 1, over the relevant ones in it.

    sum over relevant ranks i of (relevant among the first i) / i, by the number of relevant ones;
    0 where there is none. Formed in fractions, so it is the nearest float to the exact value.
    """
    ranks = np.flatnonzero(relevant) + 1
    if len(ranks) == 0:
        return 0.0
    total = sum(Fraction(found, rank) for found, rank in enumerate(ranks.tolist(), 1))
    return float(total / len(ranks))


#: Names of other tools for what is near one of these: what to write here, the difference.
_Near = dict[str, tuple[str, str]]


def _near(write: str, difference: str, *names: str) -> _Near:
    return dict.fromkeys(names, (write, difference))


_NEAR_PRECISION: _Near = {
    **_near(
        "context_precision(by=ids)",
        "it looks at ranks, ragas takes the share of the retrieved ids that are relevant",
        "IDBasedContextPrecision", "id_based_context_precision",
    ),
    **_near(
        "context_precision(by=question)",
        "is each context of use for the question, by rank; other tools rate passages or statements "
        "and take their mean",
        "context_relevance", "ContextRelevance", "context_relevancy", "nv_context_relevance",
        "contextual_relevancy", "ContextualRelevancyMetric",
    ),
    **_near(
        "context_precision(by=question)",
        "ragas asks whether a context was of use for the answer that was given",
        "LLMContextPrecisionWithoutReference", "llm_context_precision_without_reference",
        "context_utilization", "ContextUtilization",
    ),
    **_near(
        "context_precision(by=ids)", "ragas compares texts by edit distance",
        "NonLLMContextPrecisionWithReference", "non_llm_context_precision_with_reference",
    ),
}  # fmt: skip
_NEAR_RECALL: _Near = {
    **_near(
        "context_recall(by=ids)", "the same ratio, as a form of context recall",
        "IDBasedContextRecall", "id_based_context_recall",
    ),
    **_near(
        "context_recall(by=ids)", "ragas compares texts by edit distance",
        "NonLLMContextRecall", "non_llm_context_recall",
    ),
    **_near(
        "context_recall", "of claims; ragas counts named entities",
        "ContextEntityRecall", "context_entity_recall",
    ),
}  # fmt: skip
_NEAR_FAITHFULNESS: _Near = {
    **_near(
        "faithfulness",
        "the share of the answer's claims that the contexts support; other tools grade sentences, "
        "or the answer as a whole",
        "groundedness", "Groundedness", "response_groundedness", "ResponseGroundedness",
        "nv_response_groundedness",
    ),
    **_near(
        "faithfulness",
        "higher is better, by claims; DeepEval takes the share of contexts that the answer "
        "contradicts",
        "hallucination", "hallucination_rate", "HallucinationMetric",
    ),
    **_near(
        "faithfulness",
        "a claim has to be supported; for DeepEval not to be contradicted is enough",
        "FaithfulnessMetric",
    ),
}  # fmt: skip


def _each(problem: Verdicts, of: Of, **settings: Any) -> NDArray[np.float64]:
    """The value of every case, NaN where it has a reason instead."""
    found = [of(case, **settings) for case in problem.cases]
    return np.array([np.nan if isinstance(v, str) else v for v in found], dtype=np.float64)


def _why(of: Of) -> Callable[..., Iterator[tuple[str, NDArray[np.bool_]]]]:
    """The reasons of the cases that have no value."""

    def undefined(
        problem: Verdicts, k: int | None, **settings: Any
    ) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        found = [of(case, **settings) for case in problem.cases]
        for reason in dict.fromkeys(v for v in found if isinstance(v, str)):
            yield reason, np.array([v == reason for v in found], dtype=bool)

    return undefined


def _ratio(verdicts: NDArray[np.float64] | None, case: Case, task: str, empty: str) -> Value:
    """The share of yes among verdicts, none of which may be missing."""
    if verdicts is None:
        return case.faults.get(task, MISSING)
    if verdicts.size == 0:
        return empty
    if np.isnan(verdicts).any():
        return case.faults.get(task, MISSING)
    return float(np.count_nonzero(verdicts)) / verdicts.size


def _gap(case: Case, *tasks: tuple[str, NDArray[np.float64] | None]) -> str:
    """Why verdicts that are needed together are not all there; "" where they are."""
    for task, verdicts in tasks:
        if verdicts is None or np.isnan(verdicts).any():
            return case.faults.get(task, MISSING)
    return ""


# -- context --------------------------------------------------------------------------------------


def _context_precision(case: Case, by: str = "reference") -> Value:
    if "contexts" in case.lacks:
        return NO_CONTEXTS
    if by == "ids":
        return ap(case.known) if case.reference_ids and case.known is not None else NO_IDS
    if by == "spans":
        return NO_SPANS if case.spans is None else ap(case.spans)
    if by == "reference" and not case.has_reference:
        return NO_REFERENCE
    if case.contexts == 0:
        return 0.0
    task = "useful" if by == "question" else "useful_reference"
    verdicts = case.useful if by == "question" else case.useful_reference
    return _gap(case, (task, verdicts)) or ap(verdicts)  # type: ignore[arg-type]


def _context_recall(case: Case, by: str = "claims") -> Value:
    if "contexts" in case.lacks:
        return NO_CONTEXTS
    if by == "ids":
        if not case.reference_ids or case.known is None:
            return NO_IDS
        return float(np.count_nonzero(case.known)) / case.reference_ids
    if by == "spans":
        return NO_SPANS if case.covered is None else case.covered
    if not case.has_reference:
        return NO_REFERENCE
    return _ratio(case.attributed, case, "attributed", NO_REFERENCE_CLAIM)


@measure(
    "context_precision", needs=["verdicts"], layer="context", undefined=_why(_context_precision),
    params={"by": choice("reference", "question", "ids", "spans")},
    aliases=[
        "llm_context_precision_with_reference", "LLMContextPrecisionWithReference",
        "ContextPrecision", "contextual_precision", "ContextualPrecisionMetric",
    ],
    near=_NEAR_PRECISION,
)  # fmt: skip
def context_precision(problem: Verdicts, *, by: str = "reference") -> NDArray[np.float64]:
    """Are the contexts that are of use ranked before the others: average precision of the list.

    Over the contexts as they were read, a context of use counting as relevant; normalised by the
    contexts of use in the list, so that it says nothing of those that were not retrieved. 0 where
    none is of use, or none was read. by: "reference", of use for arriving at the reference answer;
    "question", for the question alone; "ids", the id is one of the reference's; "spans", at least
    half of the shorter of context and span overlaps. Between 0 and 1. Source: average precision
    (trec_eval's map over the judged list); the name is that of ragas, which adds 1e-10 to the
    denominator.
    """
    return _each(problem, _context_precision, by=by)


@measure(
    "context_recall", needs=["verdicts"], layer="context", undefined=_why(_context_recall),
    params={"by": choice("claims", "ids", "spans")},
    aliases=[
        "llm_context_recall", "LLMContextRecall", "ContextRecall", "contextual_recall",
        "ContextualRecallMetric",
    ],
    near=_NEAR_RECALL,
)  # fmt: skip
def context_recall(problem: Verdicts, *, by: str = "claims") -> NDArray[np.float64]:
    """How much of what the reference answer says is found in the contexts.

    by: "claims", the share of the claims of the reference answer that the contexts hold; "ids",
    the share of the reference's context ids that were retrieved; "spans", the share of the
    characters of the reference's spans that the contexts cover. 0 where nothing was retrieved.
    Between 0 and 1. Source: ragas (context recall).
    """
    return _each(problem, _context_recall, by=by)


# -- answer ---------------------------------------------------------------------------------------


def _unread(case: Case) -> str:
    """Why an answer cannot be held against contexts; empty where it can."""
    if not case.has_answer:
        return NO_ANSWER
    return NO_CONTEXTS if "contexts" in case.lacks else ""


def _faithfulness(case: Case) -> Value:
    return _unread(case) or _ratio(case.supported, case, "supported", NO_CLAIM)


def _answer_relevancy(case: Case, form: str = "judge") -> Value:
    if not case.has_answer:
        return NO_ANSWER if "answer" in case.lacks else 0.0
    if form == "questions":
        if case.likeness is None or np.isnan(case.likeness).any():
            return case.faults.get("likeness", MISSING)
        # An answer from which no question can be made ("I do not know") addresses none.
        return float(np.mean(case.likeness)) if case.likeness.size else 0.0
    if case.relevance is None or np.isnan(case.relevance):
        return case.faults.get("relevance", MISSING)
    return case.relevance


def _noise_sensitivity(case: Case, context: str = "relevant") -> Value:
    why_not = _unread(case) or ("" if case.has_reference else NO_REFERENCE)
    if why_not:
        return why_not
    needed = (
        ("correct", case.correct), ("answer_by", case.answer_by),
        ("reference_by", case.reference_by),
    )  # fmt: skip
    gap = _gap(case, *needed)
    if gap:
        return gap
    correct, answer_by, reference_by = (v for _, v in needed)
    if correct.size == 0:  # type: ignore[union-attr]
        return NO_CLAIM
    if len(reference_by) == 0:  # type: ignore[arg-type]
        return NO_REFERENCE_CLAIM
    relevant = (reference_by == 1).any(axis=0)  # type: ignore[union-attr]
    by_relevant = (answer_by[:, relevant] == 1).any(axis=1)  # type: ignore[index]
    by_others = (answer_by[:, ~relevant] == 1).any(axis=1) & ~by_relevant  # type: ignore[index]
    led = by_relevant if context == "relevant" else by_others
    wrong = correct == 0
    return float(np.count_nonzero(led & wrong)) / correct.size  # type: ignore[union-attr]


def _citation_recall(case: Case) -> Value:
    return _uncited(case) or _ratio(case.cited_support, case, "cited_support", NO_STATEMENT)


def _citation_precision(case: Case) -> Value:
    why_not = _uncited(case)
    if why_not:
        return why_not
    if case.cited_by is None:
        return case.faults.get("cited_by", MISSING)
    verdicts = case.cited_by[case.cited]
    gap = _gap(case, ("cited_by", verdicts))
    # Nothing cited is nothing returned: 0.
    return gap or float(np.count_nonzero(verdicts)) / max(verdicts.size + case.lost, 1)


def _uncited(case: Case) -> str:
    """Why there is no statement whose citations could be scored; empty where there is one."""
    why_not = _unread(case) or case.faults.get("cited", "")
    if why_not:
        return why_not
    if case.cited is None:
        return MISSING
    return "" if len(case.cited) else NO_STATEMENT


@measure(
    "faithfulness", needs=["verdicts"], layer="answer", undefined=_why(_faithfulness),
    near=_NEAR_FAITHFULNESS,
)  # fmt: skip
def faithfulness(problem: Verdicts) -> NDArray[np.float64]:
    """How much of what the answer says is supported by the contexts.

    The share of the claims of the answer that the contexts, as a whole, support; 0 where nothing
    was retrieved, undefined without an answer or without a claim in it. Between 0 and 1. Source:
    ragas (faithfulness).
    """
    return _each(problem, _faithfulness)


@measure(
    "answer_relevancy", needs=["verdicts"], layer="answer", undefined=_why(_answer_relevancy),
    params={"form": choice("judge", "questions")},
    aliases=[
        "response_relevancy", "ResponseRelevancy", "answer_relevance", "AnswerRelevance",
        "AnswerRelevancy",
    ],
    near=_near(
        "answer_relevancy", "DeepEval takes the share of the answer's statements that address it",
        "AnswerRelevancyMetric",
    ),
)  # fmt: skip
def answer_relevancy(problem: Verdicts, *, form: str = "judge") -> NDArray[np.float64]:
    """Does the answer address the question, whether or not it is right.

    form: "judge", a judge's grade (0 not, 1 in part, 2 in full) by 2, so that values are between 0
    and 1; "questions", the mean cosine similarity of the question and of questions that a model
    makes from the answer, 0 where it can make none; it may be below 0. An empty answer has 0; where
    the record has no answer at all, it is undefined. Source of the second form: ragas (answer
    relevancy).
    """
    return _each(problem, _answer_relevancy, form=form)


@measure(
    "noise_sensitivity", needs=["verdicts"], layer="answer", undefined=_why(_noise_sensitivity),
    params={"context": choice("relevant", "irrelevant")}, lower_is_better=True,
    aliases=["NoiseSensitivity"],
)  # fmt: skip
def noise_sensitivity(problem: Verdicts, *, context: str = "relevant") -> NDArray[np.float64]:
    """How much of the answer is wrong because a context said so; lower is better.

    The share of the claims of the answer that the reference answer does not support and that a
    context does support. context: "relevant", by a context that holds a claim of the reference
    answer; "irrelevant", only by contexts that hold none. Between 0 and 1. Source: ragas (noise
    sensitivity).
    """
    return _each(problem, _noise_sensitivity, context=context)


@measure(
    "citation_recall", needs=["verdicts"], layer="answer", undefined=_why(_citation_recall),
    aliases=["citation_rec"],
)  # fmt: skip
def citation_recall(problem: Verdicts) -> NDArray[np.float64]:
    """How much of what the answer says is supported by what it cites there.

    The share of the statements of the answer that what they cite supports, taken together; a
    statement that cites nothing is not supported, so an answer that cites nothing at all has 0.
    Undefined without an answer or without a statement in it. Between 0 and 1. Source: ALCE (Gao et
    al. 2023, citation recall).
    """
    return _each(problem, _citation_recall)


@measure(
    "citation_precision", needs=["verdicts"], layer="answer", undefined=_why(_citation_precision),
    near=_near(
        "citation_precision", "ALCE also accepts a citation that is needed beside others",
        "citation_prec",
    ),
)  # fmt: skip
def citation_precision(problem: Verdicts) -> NDArray[np.float64]:
    """How many of the citations support their statement.

    The share of pairs of a statement and a context cited for it in which that context alone
    supports it; a citation of a context that was not read supports nothing. ALCE also accepts a
    citation that is needed together with others; this does not. 0 where nothing is cited, as in
    ALCE; undefined without an answer or without a statement in it. Between 0 and 1. Source: after
    ALCE (Gao et al. 2023, citation precision).
    """
    return _each(problem, _citation_precision)
