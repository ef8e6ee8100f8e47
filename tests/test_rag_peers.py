"""Context and answer measures beside ragas, on the same verdicts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from semrecall.measures import parse
from semrecall.measures.context_answer import ap
from semrecall.measures.verdicts import Case, Verdicts

pytestmark = [
    pytest.mark.environment("ragas"),
    # Its classes call themselves deprecated in favour of others that make the same values.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

RNG = np.random.default_rng(11)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ragas.metrics
    with pytest.MonkeyPatch.context() as patch:
        # It would tell its makers of each measure, and keep a name for this machine at home.
        patch.setenv("RAGAS_DO_NOT_TRACK", "true")
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("home")))
        yield ragas.metrics


def value(name: str, case: Case) -> float:
    return float(parse(name).values(Verdicts(["q"], [case])).values[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_context_precision_is_theirs_without_the_epsilon(metrics: Any, seed: int) -> None:
    from ragas.metrics._context_precision import Verification

    said = np.random.default_rng(seed).integers(0, 2, 7)
    theirs = metrics.LLMContextPrecisionWithReference()._calculate_average_precision(
        [Verification(reason="", verdict=int(v)) for v in said]
    )
    ours = ap(said)
    assert ours == pytest.approx(theirs, abs=1e-9)
    if said.any():
        # The epsilon: nobody reaches 1 there, and every value is a little too small.
        assert theirs < ours
    assert ap(np.ones(5)) == 1.0


def test_faithfulness_and_context_recall(metrics: Any) -> None:
    from ragas.metrics._context_recall import ContextRecallClassification
    from ragas.metrics._faithfulness import NLIStatementOutput, StatementFaithfulnessAnswer

    for _ in range(20):
        said = RNG.integers(0, 2, 6)
        answers = [
            StatementFaithfulnessAnswer(statement="", reason="", verdict=int(v)) for v in said
        ]
        theirs = metrics.Faithfulness()._compute_score(NLIStatementOutput(statements=answers))
        assert value("faithfulness", Case(1, supported=said.astype(float))) == theirs
        found = [ContextRecallClassification(statement="", reason="", attributed=int(v))
                 for v in said]  # fmt: skip
        theirs = metrics.LLMContextRecall()._compute_score(found)
        assert value("context_recall", Case(1, attributed=said.astype(float))) == theirs


def test_a_verdict_of_seven_is_a_yes_to_them_and_no_verdict_to_us(metrics: Any) -> None:
    from ragas.metrics._faithfulness import NLIStatementOutput, StatementFaithfulnessAnswer

    answers = [StatementFaithfulnessAnswer(statement="", reason="", verdict=v) for v in (7, 0)]
    assert metrics.Faithfulness()._compute_score(NLIStatementOutput(statements=answers)) == 0.5
    # A label outside the scale never becomes a verdict here: it stays NaN, and has a reason.
    scores = parse("faithfulness").values(
        Verdicts(["q"], [Case(1, supported=np.array([np.nan, 0.0]))])  # type: ignore[arg-type]
    )
    assert scores.undefined == {"unscored: verdicts missing": 1}


def test_a_question_that_failed_drops_out_of_their_mean_and_is_bounded_in_ours() -> None:
    from ragas.utils import safe_nanmean

    import semrecall as sr

    assert safe_nanmean([1.0, float("nan")]) == 1.0
    rows = [{"id": name, "question": "q", "contexts": ["c"], "answer": "a."} for name in "ab"]
    labels = sr.Judgments.from_dict({"a|contexts": {"a|answer:1": 1}})
    row = sr.rag(rows, "faithfulness", verdicts=labels).row("faithfulness")
    assert (row.mean, row.scored, row.unscored, row.worst, row.best) == (1.0, 1, 1, 0.5, 1.0)


def test_precision_by_ids_has_ranks_here_and_none_there(metrics: Any) -> None:
    import asyncio

    from ragas import SingleTurnSample

    theirs = metrics.IDBasedContextPrecision()
    known = np.array([False, True, True])
    ours = value("context_precision(by=ids)", Case(3, known=known, reference_ids=2))
    assert ours == 7 / 12  # (1/2 + 2/3) / 2
    sample = SingleTurnSample(
        retrieved_context_ids=["x", "a", "b"], reference_context_ids=["a", "b"]
    )
    assert asyncio.run(theirs.single_turn_ascore(sample)) == pytest.approx(2 / 3)


@pytest.mark.parametrize("context", ["relevant", "irrelevant"])
def test_noise_sensitivity(metrics: Any, context: str) -> None:
    for _ in range(30):
        a, r, c = RNG.integers(1, 6, 3)
        answer_by, reference_by = RNG.integers(0, 2, (a, c)), RNG.integers(0, 2, (r, c))
        correct = RNG.integers(0, 2, a)
        theirs = metrics.NoiseSensitivity(mode=context)._compute_score(
            {
                "retrieved2ground_truth": reference_by.astype(bool),
                "retrieved2answer": answer_by.astype(bool),
                "ground_truth2answer": correct.astype(bool),
            }
        )
        case = Case(
            int(c), correct=correct.astype(float), answer_by=answer_by.astype(float),
            reference_by=reference_by.astype(float),
        )  # fmt: skip
        assert value(f"noise_sensitivity(context={context})", case) == pytest.approx(theirs)


def test_similarity_of_generated_questions(metrics: Any) -> None:
    import semrecall as sr

    vectors = {name: RNG.standard_normal(5) for name in ("q", "a", "b", "c")}

    class Embeddings:
        def embed_query(self, text: str) -> Any:
            return vectors[text]

        def embed_documents(self, texts: list[str]) -> Any:
            return [vectors[text] for text in texts]

    theirs = metrics.ResponseRelevancy(embeddings=Embeddings()).calculate_similarity(
        "q", ["a", "b", "c"]
    )
    result = sr.rag(
        [{"question": "q", "answer": "x"}], "answer_relevancy(form=questions)",
        questions=lambda answers: [["a", "b", "c"] for _ in answers],
        embed=lambda texts: np.array([vectors[text] for text in texts]),
    )  # fmt: skip
    assert result.mean("answer_relevancy(form=questions)") == pytest.approx(float(theirs.mean()))
