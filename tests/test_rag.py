"""Context and answer measures: by hand, through real calls, and with verdicts that do not come."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="needs the extra llm")

from chat_server import ChatServer
from hypothesis import given
from hypothesis import strategies as st

import semrecall as sr
from semrecall.errors import FormatError, InputError, MeasureError, Stopped
from semrecall.gates import assert_measure
from semrecall.judges import Ledger
from semrecall.judges.llm import LLMJudge
from semrecall.judges.panel import Panel
from semrecall.judges.recorded import RecordedJudge
from semrecall.measures import parse
from semrecall.measures.context_answer import ap
from semrecall.measures.verdicts import Case, Verdicts
from semrecall.rag import DEFAULT, records, sentences
from semrecall.rag.asking import verdicts_wanted
from semrecall.rag.citations import marks
from semrecall.rag.claims import claims_of
from semrecall.rag.writing import CLAIMS, Writer

NAN = np.nan


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def value(name: str, case: Case) -> float | str:
    """The value of one case, or the reason."""
    scores = parse(name).values(Verdicts(["q"], [case]))  # type: ignore[arg-type]
    return scores.reasons[0] or float(scores.values[0])


# -- by hand --------------------------------------------------------------------------------------


def test_average_precision_is_exact() -> None:
    assert ap(array(1, 0, 1)) == 5 / 6  # (1/1 + 2/3) / 2
    assert ap(array(*[1] * 7)) == 1.0  # no epsilon: a mean of ones is 1
    assert ap(array(0, 0)) == 0.0
    assert ap(array()) == 0.0


def test_context_precision() -> None:
    case = Case(3, useful=array(1, 0, 1), useful_reference=array(0, 1, 0))
    assert value("context_precision(by=question)", case) == 5 / 6
    assert value("context_precision", case) == 1 / 2
    assert value("context_precision", Case(2, has_reference=False)) == "no reference answer"
    assert value("context_precision", Case(0)) == 0.0  # nothing was read
    assert (
        value("context_precision", Case(2, useful_reference=array(1, NAN)))
        == "unscored: verdicts missing"
    )
    ids = Case(3, known=np.array([False, True, True]), reference_ids=4)
    assert value("context_precision(by=ids)", ids) == 7 / 12  # (1/2 + 2/3) / 2
    assert value("context_recall(by=ids)", ids) == 2 / 4
    assert value("context_recall(by=ids)", Case(3)) == "no ids of relevant contexts"
    none = Case(1, known=np.array([False]), reference_ids=0)
    assert value("context_precision(by=ids)", none) == "no ids of relevant contexts"


def test_context_recall_and_faithfulness_are_shares_of_claims() -> None:
    assert value("context_recall", Case(1, attributed=array(1, 0, 1, 1))) == 3 / 4
    assert value("faithfulness", Case(1, supported=array(1, 0))) == 1 / 2
    assert value("faithfulness", Case(1, supported=array())) == "no claim in the answer"
    assert value("faithfulness", Case(1, has_answer=False)) == "no answer"
    gap = Case(1, supported=array(1, NAN), faults={"supported": "unscored: verdict timeout"})
    assert value("faithfulness", gap) == "unscored: verdict timeout"


def test_noise_sensitivity() -> None:
    # Claims: 1 right; 2 wrong, by the relevant context; 3 wrong, by the other; 4 wrong, by neither.
    case = Case(
        2,
        correct=array(1, 0, 0, 0),
        answer_by=np.array([[1.0, 0], [1, 1], [0, 1], [0, 0]]),
        reference_by=np.array([[1.0, 0], [0, 0]]),  # the first context is relevant
    )
    assert value("noise_sensitivity", case) == 1 / 4  # claim 2
    assert value("noise_sensitivity(context=irrelevant)", case) == 1 / 4  # claim 3
    assert parse("noise_sensitivity").lower_is_better


def test_citations() -> None:
    cited = np.array([[True, False], [True, True], [False, False]])
    case = Case(
        2,
        cited=cited,
        cited_by=np.array([[1.0, NAN], [0, 1], [NAN, NAN]]),  # only what is cited was asked
        cited_support=array(1, 1, 0),  # the third cites nothing
    )
    assert value("citation_precision", case) == 2 / 3  # of three citations two support
    assert value("citation_recall", case) == 2 / 3
    # An answer that cites nothing has 0 (ALCE), not no value.
    none = Case(2, cited=np.zeros((2, 2), dtype=bool), cited_support=array(0, 0))
    none = replace(none, cited_by=np.full((2, 2), NAN))
    assert (value("citation_precision", none), value("citation_recall", none)) == (0.0, 0.0)
    silent = replace(none, cited=np.zeros((0, 2), dtype=bool), cited_support=array())
    assert value("citation_recall", silent) == "no statement in the answer"
    assert value("citation_precision", silent) == "no statement in the answer"
    assert value("citation_precision", Case(2)) == "unscored: verdicts missing"
    # Two more citations, of contexts that were not read: 2 of 5.
    assert value("citation_precision", replace(case, lost=2)) == 2 / 5
    lost = Case(2, cited=np.zeros((1, 2), dtype=bool), lost=1, cited_support=array(0))
    lost = replace(lost, cited_by=np.full((1, 2), NAN))
    assert (value("citation_precision", lost), value("citation_recall", lost)) == (0.0, 0.0)


def test_answer_relevancy() -> None:
    assert value("answer_relevancy", Case(1, relevance=0.5)) == 0.5
    assert value("answer_relevancy", Case(1, has_answer=False)) == 0.0  # it is empty
    absent = Case(1, has_answer=False, lacks=frozenset({"answer"}))
    assert value("answer_relevancy", absent) == "no answer"
    assert value("answer_relevancy(form=questions)", absent) == "no answer"
    assert value("answer_relevancy(form=questions)", Case(1, likeness=array(0.5, 1.0))) == 0.75
    assert value("answer_relevancy(form=questions)", Case(1, likeness=array())) == 0.0
    assert value("answer_relevancy", Case(1)) == "unscored: verdicts missing"


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=9), st.randoms())
def test_shares_do_not_depend_on_the_order_and_precision_does(verdicts: Any, random: Any) -> None:
    mixed = list(verdicts)
    random.shuffle(mixed)
    one, other = Case(1, supported=array(*verdicts)), Case(1, supported=array(*mixed))
    assert value("faithfulness", one) == value("faithfulness", other)
    ranked = sorted(verdicts, reverse=True)
    assert 0.0 <= ap(array(*verdicts)) <= ap(array(*ranked)) <= 1.0
    assert ap(array(*ranked)) in (0.0, 1.0)


@pytest.mark.parametrize(
    "name",
    ["context_precision(by=ids)", "context_recall(by=spans)", "answer_relevancy(form=questions)",
     "noise_sensitivity(context=irrelevant)", "faithfulness", "citation_recall"],
)  # fmt: skip
def test_names_print_and_parse_back(name: str) -> None:
    assert str(parse(name)) == name
    assert str(parse("response_relevancy")) == "answer_relevancy"
    assert str(parse("context_precision(by=reference)")) == "context_precision"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("LLMContextRecall", "context_recall"), ("contextual_recall", "context_recall"),
     ("contextual_precision", "context_precision"), ("ContextPrecision", "context_precision"),
     ("LLMContextPrecisionWithReference(by=ids)", "context_precision(by=ids)"),
     ("ResponseRelevancy", "answer_relevancy"), ("NoiseSensitivity", "noise_sensitivity"),
     ("citation_rec", "citation_recall")],
)  # fmt: skip
def test_names_of_other_tools_for_the_same(theirs: str, ours: str) -> None:
    assert str(parse(theirs)) == ours


@pytest.mark.parametrize(
    ("theirs", "write", "difference"),
    [("groundedness", "faithfulness", "grade sentences"),
     ("hallucination", "faithfulness", "higher is better"),
     ("context_relevance", "context_precision(by=question)", "take their mean"),
     ("IDBasedContextPrecision", "context_precision(by=ids)", "ranks"),
     ("IDBasedContextRecall", "context_recall(by=ids)", "the same ratio"),
     ("citation_prec", "citation_precision", "beside others")],
)  # fmt: skip
def test_names_of_other_tools_for_what_is_near(theirs: str, write: str, difference: str) -> None:
    with pytest.raises(MeasureError, match=f"unknown measure '{theirs}'") as caught:
        parse(theirs)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"the nearest here is {write}: ")
    assert difference in caught.value.hint
    assert str(parse(write)) == write


def test_the_two_kinds_of_measures_do_not_mix() -> None:
    with pytest.raises(MeasureError, match=r"recall@10: no measure of contexts"):
        sr.rag([{"question": "q"}], ["recall@10"])
    run = sr.Run.from_dict({"q": {"a": 1.0}})
    with pytest.raises(MeasureError, match="made from verdicts on claims"):
        sr.evaluate(run, ["faithfulness"], judgments=sr.Judgments.from_dict({"q": {"a": 1}}))


# -- records --------------------------------------------------------------------------------------


def test_records_of_common_frameworks() -> None:
    rows = [
        {"user_input": "q", "retrieved_contexts": ["a", "b"], "response": "r", "reference": "g",
         "reference_contexts": ["b"]},
        {"question": "q", "contexts": ["a", "b"], "answer": "r", "ground_truths": ["g"],
         "relevant": ["2"]},
        {"input": "q", "retrieval_context": ["a", "b"], "actual_output": "r",
         "expected_output": "g", "context": ["b"]},
        {"inputs": {"question": "q"}, "outputs": {"answer": "r", "documents": [
            {"page_content": "a"}, {"page_content": "b"}]}, "reference_outputs": {"answer": "g"},
         "relevant_ids": [2]},
    ]  # fmt: skip
    found = [records([row])[0] for row in rows]
    for record in found:
        assert (record.question, record.answer, record.reference) == ("q", "r", "g")
        assert [(c.id, c.text) for c in record.contexts] == [("1", "a"), ("2", "b")]
        assert record.relevant == ("2",)


def test_files_of_common_frameworks(tmp_path: Path) -> None:
    """Shapes as these tools write them: LangSmith's frame, DeepEval's run, LlamaIndex, ragas."""
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    path = tmp_path / "r.json"
    whole: list[Any] = [
        {"testCases": [{"name": "t", "input": "q", "actualOutput": "r", "expectedOutput": "g",
                        "retrievalContext": [{"context": "a", "source": "s"}, "b"],
                        "context": ["b"]}]},
        {"examples": [{"query": "q", "reference_contexts": ["b"], "reference_answer": "g",
                       "response": "r", "contexts": ["a", "b"]}]},
        {"question": ["q"], "contexts": [["a", "b"]], "answer": ["r"], "ground_truth": ["g"],
         "reference_contexts": [["b"]]},
        [{"query": "q", "response": "r", "expected_response": "g",
          "expected_chunks": [{"text": "b", "title": "t"}],
          "source_nodes": [{"node": {"id_": "1", "text": "a"}, "score": 0.5},
                           {"node": {"id_": "2", "text": "b"}, "score": 0.4}]}],
    ]  # fmt: skip
    found = []
    for one in whole:
        path.write_text(json.dumps(one, indent=1))
        found += records(path)
    frame = pandas.DataFrame({
        "inputs.question": ["q", "p"], "outputs.answer": ["r", None],
        "reference.answer": ["g", "g"],
        "outputs.documents": [[{"page_content": "a"}, {"page_content": "b"}], None],
        "execution_time": [0.5, 0.1], "reference_context_ids": [["2"], None],
    })  # fmt: skip
    found += records(frame)[:1]
    for record in found:
        assert (record.question, record.answer, record.reference) == ("q", "r", "g")
        assert [(c.id, c.text) for c in record.contexts] == [("1", "a"), ("2", "b")]
        assert record.relevant == ("2",)
    second = records(frame)[1]
    assert (second.answer, second.contexts, second.columns) == ("", (), {"execution_time": 0.1})


def test_records_in_other_files(tmp_path: Path) -> None:
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    row = {"question": "wo?\u2028", "contexts": ["a"], "metadata": {"lang": "th"}}
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "r.parquet")
    for name in ("r.jsonl.gz", "r.parquet"):
        [record] = records(tmp_path / name)
        assert (record.question, record.columns) == ("wo?", {"lang": "th"})
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match=r"bad\.parquet"):
        records(tmp_path / "bad.parquet")
    with pytest.raises(FormatError, match="several turns"):
        records([{"user_input": [{"content": "hi", "type": "human"}]}])
    with pytest.raises(FormatError, match="contexts: a str; expected a list"):
        records([{"question": "q", "contexts": "a"}])


def test_faults_of_records_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"question": "a"}\n{"answer": "b"}\n')
    with pytest.raises(FormatError, match=r"r\.jsonl, line 2: no question"):
        records(path)
    path.write_text('{"question": "a"}\n{"question": \n')
    with pytest.raises(FormatError, match=r"r\.jsonl, line 2: no JSON"):
        records(path)
    with pytest.raises(FormatError, match="2 contexts and 1 ids"):
        records([{"question": "q", "contexts": ["a", "b"], "context_ids": ["x"]}])
    with pytest.raises(InputError, match="records 1 and 2 have one id"):
        records([{"id": 1, "question": "a"}, {"id": "1", "question": "b"}])
    with pytest.raises(InputError, match="there is no record"):
        records([])


def test_sentences_and_citations() -> None:
    text = (
        "Dr. Smith is 3.5 m tall [1]. He lives in Ulm [2, doc7]! As [sic] said.\n"
        "- one [1-2]\nไทย [9]"
    )
    assert sentences("") == []
    contexts = ["a", "b", {"id": "doc7", "text": "c"}]
    [record] = records([{"question": "q", "contexts": contexts, "answer": text}])
    [claims] = claims_of([record])
    assert claims.answer == (
        "Dr. Smith is 3.5 m tall.", "He lives in Ulm!", "As [sic] said.", "one", "ไทย",
    )  # fmt: skip
    assert claims.cited == (("1",), ("2", "doc7"), (), ("1", "2"), ("9",))
    # [9] is none of three: a citation of what was not read. A year is no citation.
    assert marks("Built in [1999].", ["a"]) == ("Built in [1999].", ())
    # Where a model makes the claims, the sentences still say what is cited.
    [claims] = claims_of([record], lambda pairs: [["x", "y"] for _ in pairs])
    assert (claims.answer, len(claims.statements)) == (("x", "y"), 5)
    assert claims.cited is not None


def test_spans() -> None:
    [record] = [
        {
            "question": "q",
            "spans": [{"document_id": "d", "start": 10, "end": 20}],
            "contexts": [
                {"text": "x", "document_id": "d", "start": 0, "end": 13},  # 3 of 10
                {"text": "y", "document_id": "d", "start": 13, "end": 40},  # 7 of 10
                {"text": "z", "document_id": "e", "start": 10, "end": 20},
            ],
        }
    ]
    result = sr.rag([record], ["context_precision(by=spans)", "context_recall(by=spans)"])
    assert result.mean("context_precision(by=spans)") == 1 / 2
    assert result.mean("context_recall(by=spans)") == 1.0
    record["contexts"][0].pop("start")
    with pytest.raises(InputError, match="does not say where it stands"):
        sr.rag([record], ["context_recall(by=spans)"])


# -- through a judge ------------------------------------------------------------------------------

RECORDS = [
    {
        "id": "q1", "question": "when?", "lang": "en",
        "contexts": ["early grade:1", "late grade:0"],
        "answer": "At ten grade:1. By boat grade:0.", "reference": "At ten grade:1.",
    },
    {
        "id": "q2", "question": "where?", "lang": "th",
        "contexts": ["here grade:0"],
        "answer": "Here grade:1.", "reference": "Here grade:1. There grade:1.",
    },
    {"id": "q3", "question": "who?", "lang": "th", "contexts": [], "answer": "", "reference": "x"},
]  # fmt: skip


@pytest.fixture
def server() -> Iterator[ChatServer]:
    pytest.importorskip("aiohttp", reason="needs aiohttp")
    with ChatServer() as running:
        yield running


def llm(server: ChatServer, **more: Any) -> LLMJudge:
    return LLMJudge("m", base_url=server.url, **more)


def measured(server: ChatServer, rows: Any, names: Any = DEFAULT, **more: Any) -> sr.RagResult:
    """By sentences, so that only verdicts are asked."""
    options = {"docs_per_call": 8, "order_check": 0} if more.pop("together", False) else {}
    return sr.rag(rows, names, judge=llm(server, **options), claims="sentences", **more)


def test_a_model_gives_the_verdicts(server: ChatServer, tmp_path: Path) -> None:
    path = tmp_path / "l.ledger"
    result = measured(server, RECORDS, ledger=path, by="lang")
    # The server says yes to what bears grade:1.
    assert result["context_precision"].values.tolist() == [1.0, 0.0, 0.0]
    assert result["context_recall"].values.tolist() == [1.0, 1.0, 0.0]  # q3: nothing was read
    assert result["faithfulness"].values.tolist()[:2] == [0.5, 1.0]
    assert result.undefined("faithfulness") == {"no answer": 1}
    assert result["answer_relevancy"].values.tolist() == [0.5, 0.5, 0.0]  # grade 1 of 2
    assert result.mean("faithfulness") == 0.75
    assert [(row.measure, row.group) for row in result.rows("lang")][:2] == [
        ("context_precision", "en"), ("context_precision", "th"),
    ]  # fmt: skip
    asked = server.count()
    # 2 + 1 contexts, 1 + 2 reference claims, 2 + 1 answer claims, 2 answers; of the claims two are
    # both in the answer and in the reference, which is one question.
    assert asked == 3 + 3 + 3 + 2 - 2
    again = measured(server, RECORDS, ledger=path)
    assert server.count() == asked
    assert again["faithfulness"].values.tolist()[:2] == [0.5, 1.0]
    assert "with an empty answer" in str(result)
    assert all(len(line) <= 100 for line in str(result).splitlines())


def test_each_kind_of_verdict_has_its_prompt_whatever_the_judge_has(server: ChatServer) -> None:
    measured(server, RECORDS[:1], ["faithfulness", "answer_relevancy"])
    said = [call["body"]["messages"][0]["content"] for call in server.log()["requests"]]
    assert sum(text.startswith("You check claims against a source") for text in said) == 2
    assert sum(text.startswith("You judge whether an answer addresses") for text in said) == 1


def test_claims_of_one_answer_go_together_by_id(server: ChatServer) -> None:
    result = measured(server, RECORDS[:2], ["faithfulness"], together=True)
    assert result["faithfulness"].values.tolist() == [0.5, 1.0]
    assert server.count() == 2  # one call an answer


@pytest.mark.parametrize(
    "fault",
    [{"do": "too_few", "without": "By boat"}, {"do": "too_many", "twice": "By boat"}],
    ids=["missing", "twice"],
)
def test_a_verdict_set_that_does_not_match_its_claims_is_asked_again(
    server: ChatServer, fault: dict[str, Any]
) -> None:
    server.script([{**fault, "single": False}])
    result = measured(server, RECORDS[:1], ["faithfulness"], together=True)
    assert result["faithfulness"].values.tolist() == [0.5]
    assert server.count() == 2  # both together, then the one without a verdict by itself


@pytest.mark.parametrize(
    ("fault", "status"),
    [({"do": "illegal", "label": 7}, "illegal"), ({"do": "words"}, "unparsed"),
     ({"do": "filtered"}, "filtered"), ({"do": "empty"}, "empty")],
)  # fmt: skip
def test_what_is_no_verdict_leaves_the_question_unscored(
    server: ChatServer, fault: dict[str, Any], status: str
) -> None:
    server.script([{**fault, "text": "By boat"}])
    result = measured(server, RECORDS[:2], ["faithfulness"])
    assert np.isnan(result["faithfulness"].values[0])
    assert result.undefined("faithfulness") == {f"unscored: verdict {status}": 1}
    row = result.row("faithfulness")
    assert (row.scored, row.unscored, row.mean) == (1, 1, 1.0)
    assert (row.worst, row.best) == (0.5, 1.0)  # the other has 0, or 1
    assert "worst case" in str(result)


def test_the_worst_case_of_what_is_better_low_is_one(server: ChatServer) -> None:
    server.script([{"do": "illegal", "text": "By boat", "label": 7}])
    row = measured(server, RECORDS[:2], ["noise_sensitivity"]).row("noise_sensitivity")
    assert (row.mean, row.worst, row.best) == (0.0, 0.5, 0.0)


def test_recorded_verdicts_of_people() -> None:
    labels = sr.Judgments.from_dict(
        {
            "q1|contexts": {"q1|answer:1": 1, "q1|answer:2": 1},
            "q2|contexts": {"q2|answer:1": 0},
        }
    )
    result = sr.rag(RECORDS, ["faithfulness"], verdicts=labels)
    assert result["faithfulness"].values.tolist()[:2] == [1.0, 0.0]
    partial = sr.Judgments.from_dict({"q1|contexts": {"q1|answer:1": 1}})
    result = sr.rag(RECORDS, ["faithfulness"], verdicts=partial)
    assert result.undefined("faithfulness") == {"unscored: verdict unknown": 2, "no answer": 1}


def test_recorded_verdicts_that_are_none_or_fit_no_claim() -> None:
    seven = sr.Judgments.from_dict({"q1|contexts": {"q1|answer:1": 7, "q1|answer:2": 0}})
    result = sr.rag(RECORDS[:1], ["faithfulness"], verdicts=seven)
    assert result.undefined("faithfulness") == {"unscored: verdict illegal": 1}
    # Three verdicts for an answer of two claims: it was broken up in another way.
    three = {f"q1|answer:{n}": 1 for n in (1, 2, 3)} | {"q1|reference:1": 1}
    labels = sr.Judgments.from_dict({"q1|contexts": three})
    result = sr.rag(RECORDS[:1], ["faithfulness", "context_recall"], verdicts=labels)
    assert result.undefined("faithfulness") == {
        "unscored: 1 verdict on claims that there are not": 1
    }
    assert result.mean("context_recall") == 1.0
    # Grades of relevancy are 0 to 2, however many of them were given.
    half = sr.Judgments.from_dict({"q1|question": {"q1|answer": 1}})
    assert sr.rag(RECORDS[:1], "answer_relevancy", verdicts=half).mean("answer_relevancy") == 0.5


def test_an_answer_that_is_not_there_is_no_empty_one() -> None:
    rows = [{"question": "a?", "contexts": ["c"]},
            {"question": "b?", "contexts": ["c"], "answer": ""},
            {"question": "c?", "contexts": ["c"], "answer": None}]  # fmt: skip
    labels = sr.Judgments.from_dict({"1|question": {"1|answer": 2}})
    result = sr.rag(rows, ["answer_relevancy", "faithfulness"], verdicts=labels)
    assert result.undefined("answer_relevancy") == {"no answer": 2}
    assert result["answer_relevancy"].values[1] == 0.0
    assert result.undefined("faithfulness") == {"no answer": 3}
    assert {"2 questions whose record has no answer", "1 question with an empty answer"} <= set(
        result.notes
    )


def test_contexts_that_are_not_there_are_not_nothing_retrieved() -> None:
    said = {"answer": "A.", "reference": "A.", "relevant": ["d"]}
    rows = [{"question": "a?"} | said, {"question": "b?", "contexts": []} | said,
            {"question": "c?", "context_ids": ["d"]} | said]  # fmt: skip
    names = ["context_precision(by=ids)", "context_recall(by=ids)", "context_precision",
             "context_recall", "faithfulness", "noise_sensitivity", "citation_recall"]  # fmt: skip
    labels = sr.Judgments.from_dict({"x": {"y": 1}})
    result = sr.rag(rows, names, verdicts=labels)
    for name in names:
        assert result[name].reasons[0] == "no contexts in the record", name
    assert result["context_recall(by=ids)"].values.tolist()[1:] == [0.0, 1.0]
    assert result["faithfulness"].values[1] == 0.0
    assert "1 question whose record has no contexts" in result.notes


def test_answers_that_cite_nothing_count_as_zero() -> None:
    rows = [{"id": "q1", "question": "a?", "contexts": ["c"], "answer": "Yes it is [1]."},
            {"id": "q2", "question": "b?", "contexts": ["c"], "answer": "Yes it is."},
            {"id": "q3", "question": "c?", "contexts": ["c"], "answer": ""}]  # fmt: skip
    labels = digested(rows, "cited_support", [1])
    names = ["citation_recall", "citation_precision"]
    result = sr.rag(rows, names, verdicts=labels)
    for name in names:
        assert result[name].values[:2].tolist() == [1.0, 0.0]
        assert result.undefined(name) == {"no answer": 1}
    [note] = [note for note in result.notes if "ALCE" in note]
    assert note.startswith("1 answer cites nothing")


def digested(rows: Any, kind: str, grades: list[float]) -> sr.Judgments:
    """Verdicts as `--pairs` and `semrecall label` make them."""
    found = records(rows)
    asked = verdicts_wanted(found, claims_of(found), [kind])
    pairs = [one.pair for one in asked]
    return sr.Judgments.from_arrays([q for q, _ in pairs], [d for _, d in pairs], grades)


def test_recorded_verdicts_know_their_texts() -> None:
    one = RECORDS[:1]
    labels = digested(one, "supported", [1, 0])
    result = sr.rag(one, ["faithfulness"], verdicts=labels)
    assert result.mean("faithfulness") == 0.5
    assert not any("not checked" in note for note in result.notes)
    # White space is no other text. Other words are, and so are other contexts.
    spaced = [{**one[0], "answer": "At  ten grade:1.\nBy boat grade:0."}]
    assert sr.rag(spaced, ["faithfulness"], verdicts=labels).mean("faithfulness") == 0.5
    why = "unscored: {} recorded on other texts"
    answer = [{**one[0], "answer": "At ten grade:1. By train grade:0."}]
    result = sr.rag(answer, ["faithfulness"], verdicts=labels)
    assert result.undefined("faithfulness") == {why.format("1 verdict"): 1}
    assert result.row("faithfulness").unscored == 1
    contexts = [{**one[0], "contexts": ["early grade:1", "later grade:0"]}]
    result = sr.rag(contexts, ["faithfulness"], verdicts=labels)
    assert result.undefined("faithfulness") == {why.format("2 verdicts"): 1}
    # A claim that is gone takes nothing from those that are still there.
    shorter = [{**one[0], "answer": "At ten grade:1."}]
    assert sr.rag(shorter, ["faithfulness"], verdicts=labels).mean("faithfulness") == 1.0
    # The verdict on the whole answer, too.
    whole = digested(one, "relevance", [2])
    assert sr.rag(one, ["answer_relevancy"], verdicts=whole).mean("answer_relevancy") == 1.0
    result = sr.rag(answer, ["answer_relevancy"], verdicts=whole)
    assert result.undefined("answer_relevancy") == {why.format("1 verdict"): 1}


def test_recorded_verdicts_without_digests_are_taken_with_a_note() -> None:
    labels = sr.Judgments.from_dict({"q1|contexts": {"q1|answer:1": 1, "q1|answer:2": 0}})
    result = sr.rag(RECORDS[:1], ["faithfulness"], verdicts=labels)
    assert result.mean("faithfulness") == 0.5
    [note] = [note for note in result.notes if "not checked" in note]
    assert note.startswith("2 of 2 recorded verdicts (recorded) do not say which texts")
    # Half an id is checked as far as it goes.
    exact = digested(RECORDS[:1], "supported", [1, 0])
    halves = [str(one).partition("#")[0] for one in exact.doc_ids]
    mixed = sr.Judgments.from_arrays(exact.query_ids, halves, exact.grades)
    assert sr.rag(RECORDS[:1], ["faithfulness"], verdicts=mixed).mean("faithfulness") == 0.5
    contexts = [{**RECORDS[0], "contexts": ["other"]}]
    result = sr.rag(contexts, ["faithfulness"], verdicts=mixed)
    assert result.undefined("faithfulness") == {"unscored: 2 verdicts recorded on other texts": 1}


def test_recorded_judges_and_their_panels_are_checked_alike(tmp_path: Path) -> None:
    labels = digested(RECORDS[:1], "supported", [1, 0])
    answer = [{**RECORDS[0], "answer": "At ten grade:1. By train grade:0."}]
    sr.write(labels, tmp_path / "v.jsonl")
    panel = Panel([RecordedJudge(labels, name="a"), RecordedJudge(labels, name="b")])
    for judge in (f"recorded?labels={tmp_path}/v.jsonl", panel):
        assert sr.rag(RECORDS[:1], ["faithfulness"], judge=judge).mean("faithfulness") == 0.5
        result = sr.rag(answer, ["faithfulness"], judge=judge)
        assert result.undefined("faithfulness") == {
            "unscored: 1 verdict recorded on other texts": 1
        }


def test_somebody_has_to_judge() -> None:
    with pytest.raises(InputError, match="somebody has to judge"):
        sr.rag(RECORDS, ["faithfulness"])
    with pytest.raises(InputError, match="expected one of them"):
        sr.rag(
            RECORDS,
            ["faithfulness"],
            judge="recorded?labels=x",
            verdicts=sr.Judgments.from_dict({"q": {"d": 1}}),
        )
    assert sr.rag([{"question": "q", "contexts": ["a"], "relevant": ["1"]}],
                  ["context_recall(by=ids)"]).mean("context_recall(by=ids)") == 1.0  # fmt: skip


def test_a_panel_and_a_function_judge_too(server: ChatServer) -> None:
    from semrecall.judges.function import FunctionJudge
    from semrecall.judges.panel import Panel

    yes = FunctionJudge(lambda evidence, claim: "ten" in claim)
    result = sr.rag(RECORDS[:1], ["faithfulness"], judge=yes)
    assert result.mean("faithfulness") == 0.5
    panel = Panel([llm(server), llm(server, sampling={"seed": 5}), yes])
    result = sr.rag(RECORDS[:1], ["faithfulness"], judge=panel, claims="sentences")
    assert result.mean("faithfulness") == 0.5


# -- claims and questions that a model writes -----------------------------------------------------


def test_claims_by_a_model_are_paid_once_and_kept_as_attempts(server: ChatServer) -> None:
    with Ledger(None) as ledger:
        write = Writer(llm(server), CLAIMS, ledger)
        assert write([("q", "One. Two."), ("q", "Three.")]) == [["One", "Two"], ["Three"]]
        assert Writer(llm(server), CLAIMS, ledger)([("q", "One. Two.")]) == [["One", "Two"]]
        assert server.count() == 2
        [judge] = ledger.judges()
        assert (judge.calls, judge.identity["prompt"]) == (2, "claims.v1")
        # What a model writes is no judgment.
        assert judge.pairs == 0
        # Another model, or another temperature, is another writer.
        Writer(llm(server, sampling={"temperature": 1}), CLAIMS, ledger)([("q", "One. Two.")])
        assert server.count() == 3


def test_who_judges_breaks_answers_into_claims(server: ChatServer) -> None:
    result = sr.rag(RECORDS[:1], ["faithfulness"], judge=llm(server))
    assert result.claims[0].answer == ("At ten grade:1", "By boat grade:0")
    assert "made by the model" in str(result)
    assert result.mean("faithfulness") == 0.5
    body = server.log()["requests"][0]["body"]["messages"]
    assert '"question": "when?"' in body[1]["content"]


@pytest.mark.parametrize(
    ("rule", "status", "calls"),
    [
        ({"do": "words"}, "unparsed", 2),
        ({"do": "say", "content": '{"items": 7}'}, "illegal", 2),
        ({"do": "say", "content": '{"items": ["a"]}{"items": ["b"]}'}, "ambiguous", 2),
        ({"do": "filtered"}, "filtered", 1),
    ],
)
def test_claims_that_do_not_come_leave_the_question_unscored(
    server: ChatServer, rule: dict[str, Any], status: str, calls: int, tmp_path: Path
) -> None:
    server.script([rule])
    path = tmp_path / "l.ledger"
    result = sr.rag(RECORDS[:1], ["faithfulness"], judge=llm(server), ledger=path)
    reason = f"unscored: claims {status}"
    assert result.undefined("faithfulness") == {reason: 1}
    assert server.count() == calls  # asked again within a limit; nobody needs the reference's
    server.script([])
    sr.rag(RECORDS[:1], ["faithfulness"], judge=llm(server), ledger=path)
    assert server.count() == 0  # it was said; --again asks once more
    result = sr.rag(RECORDS[:1], ["faithfulness"], judge=llm(server), ledger=path, again=[status])
    assert result.mean("faithfulness") == 0.5


def test_fences_and_prose_around_a_list() -> None:
    from semrecall.judges.replies import parse_items

    for text in ('```json\n{"items": ["a"]}\n```', 'Sure: {"items": ["a", "a", " "]} Done.',
                 '<think>{"items": []}</think>{"items": ["a"]}'):  # fmt: skip
        [found] = parse_items(text).found
        assert (found.status.value, found.reason) == ("settled", '["a"]'), text
    assert parse_items('{"items": []}').found[0].grade == 0
    assert parse_items("").found[0].status.value == "empty"
    # A list that a document holds is a quotation.
    assert (
        parse_items('It says {"items": ["x"]}.', judged='{"items": ["x"]}').found[0].grade is None
    )


def test_one_cap_holds_for_claims_and_verdicts(server: ChatServer, tmp_path: Path) -> None:
    path = tmp_path / "l.ledger"
    # 5 texts to break up (of q1 and q2 answer and reference, of q3 the reference), then verdicts.
    with pytest.raises(Stopped, match="7 calls made"):
        sr.rag(RECORDS, judge=llm(server, max_requests=7, concurrency=2), ledger=path)
    assert server.count() == 7
    result = sr.rag(RECORDS, judge=llm(server), ledger=path)
    whole = server.count()
    assert result.mean("faithfulness") == 0.75
    server.script([])
    sr.rag(RECORDS, judge=llm(server), ledger=tmp_path / "new.ledger")
    assert server.count() == whole  # nothing was paid twice


def test_a_cap_on_cost_holds_with_calls_in_flight(server: ChatServer) -> None:
    judge = llm(server, max_cost=0.006, price_in=1.0, price_out=1.0)
    with pytest.raises(Stopped, match="max_cost"):
        sr.rag(RECORDS, judge=judge)
    assert judge.budget.spent <= 0.006


def test_generated_questions() -> None:
    vectors = {"when?": [1.0, 0.0], "where?": [0.0, 1.0], "a": [1.0, 1.0], "b": [1.0, 0.0]}
    result = sr.rag(
        RECORDS[:2], ["answer_relevancy(form=questions)"],
        questions=lambda answers: [["a", "b"], []],
        embed=lambda texts: np.array([vectors[text] for text in texts]),
    )  # fmt: skip
    assert result.undefined("answer_relevancy(form=questions)") == {}
    expected = (2**-0.5 + 1) / 2
    assert result["answer_relevancy(form=questions)"].values.tolist() == pytest.approx(
        [expected, 0]
    )
    with pytest.raises(InputError, match="needs questions made from answers"):
        sr.rag(RECORDS, ["answer_relevancy(form=questions)"])
    failed = sr.rag(
        RECORDS[:2], ["answer_relevancy(form=questions)"], questions=lambda answers: [["a"], None],
        embed=lambda texts: np.array([vectors[text] for text in texts]),
    )  # fmt: skip
    row = failed.row("answer_relevancy(form=questions)")
    assert (row.scored, row.unscored) == (1, 1)
    # A likeness may be as low as -1: (2 ** -0.5 - 1) / 2.
    assert row.worst == pytest.approx((2**-0.5 - 1) / 2)


def test_questions_by_the_model(server: ChatServer) -> None:
    result = sr.rag(
        RECORDS[:1], "answer_relevancy(form=questions)", judge=llm(server),
        embed=lambda texts: np.eye(len(texts)),
    )  # fmt: skip
    # Two questions (the server gives the sentences), unlike the one that was asked.
    assert result["answer_relevancy(form=questions)"].values.tolist() == [0.0]
    assert "when?" not in server.log()["requests"][0]["body"]["messages"][1]["content"]


# -- an ordinary result ---------------------------------------------------------------------------


def test_it_is_a_result_like_any_other(server: ChatServer) -> None:
    result = measured(server, RECORDS, name="mine")
    assert isinstance(result, sr.Result)
    assert result.runs == ("mine",)
    assert result.to_frame("arrow").column_names == ["query", "measure", "value"]
    assert result.worst("faithfulness") == [0]
    assert_measure(result, "faithfulness", at_least=0.5)
    with pytest.raises(AssertionError, match=r"q1  0\.5"):
        assert_measure(result, "faithfulness", at_least=0.9)
    other = measured(server, [{**RECORDS[0], "answer": "At ten grade:1."}, *RECORDS[1:]])
    found = sr.Comparison.from_scores(
        {"old": [result["faithfulness"]], "new": [other["faithfulness"]]}
    )
    assert found.rows[0].difference == 0.25  # 1/2 -> 1 of one question of two
    whole = json.loads(json.dumps(result.to_dict()))
    assert [row["unscored"] for row in whole["bounds"]] == [0, 0, 0, 0]


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in RECORDS)
    (tmp_path / "records.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


def test_command(
    path: Path, server: ChatServer, semrecall_main: Callable[..., tuple[int, str, str]]
) -> None:
    given = ["rag", "records.jsonl", "--model", "m", "--base-url", server.url]
    code, out, err = semrecall_main(*given, "--fail-under", "faithfulness=0.9")
    assert code == 1
    assert "failed: faithfulness is 0.75, under 0.9" in err
    assert "lowest faithfulness:" in out
    code, out, _ = semrecall_main(*given, "--format", "json")
    assert code == 0
    rows = {row["measure"]: row for row in json.loads(out)["summary"]}
    assert rows["faithfulness"]["mean"] == 0.75
    code, out, _ = semrecall_main(*given, "--per-question", "--format", "csv")
    assert out.splitlines()[0].startswith("query_id,question,context_precision")
    before = server.count()
    code, out, _ = semrecall_main(*given, "-m", "faithfulness", "--dry-run", "--ledger", "new")
    assert "claims: 2 texts; 2 calls" in out
    assert "support: 3 verdicts (supported), 3 to ask of m; 3 calls" in out
    assert server.count() == before
    assert not (path / "new").exists()
    code, out, _ = semrecall_main(*given, "-m", "faithfulness", "--dry-run")
    assert out.startswith("support: 3 verdicts (supported), 0 to ask")
    code, _, err = semrecall_main(
        *given, "--fail-under", "noise_sensitivity=0", "--junit", "j.xml", "--summary", "s.md"
    )
    assert code == 0
    assert 'tests="1" failures="0"' in (path / "j.xml").read_text()
    assert "noise_sensitivity" in (path / "s.md").read_text()
    code, _, err = semrecall_main("rag", "records.jsonl")
    assert code == 2
    assert "somebody has to judge" in err
    shown = semrecall_main("rag", "--help")[1]
    assert "--max-cost" in shown
    assert not any(f"--{name} " in shown for name in ("prompt", "scale", "calibrate-with"))
    code, _, err = semrecall_main(*given, "--prompt", "qa")
    assert code == 2
    assert "each verdict has its own" in err
    code, _, err = semrecall_main(*given, "--max-requests", "2", "--ledger", "capped")
    assert code == 3
    assert "2 calls made" in err


def test_pairs_for_people(path: Path, semrecall_main: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = semrecall_main("rag", "records.jsonl", "-m", "faithfulness", "--pairs", "people")
    assert code == 0
    assert "3 pairs: semrecall label people/support/pairs.jsonl" in err
    text = (path / "people/support/pairs.jsonl").read_text()
    pairs = [json.loads(line) for line in text.splitlines()]
    names = [re.sub("#[0-9a-f]{8}$", "#", pairs[0][key]) for key in ("query_id", "doc_id")]
    assert names == ["q1|contexts#", "q1|answer:1#"]
    labels = "".join(json.dumps({**pair, "grade": 1}) + "\n" for pair in pairs)
    (path / "v.jsonl").write_text(labels)
    code, out, _ = semrecall_main(
        "rag", "records.jsonl", "-m", "faithfulness", "--verdicts", "v.jsonl", "--format", "csv"
    )
    assert out.splitlines()[1].startswith(",faithfulness,,1.0,")
    # Verdicts on other scales are labelled apart.
    semrecall_main("rag", "records.jsonl", "--pairs", "all")
    assert sorted(p.name for p in (path / "all").iterdir()) == ["addresses", "support", "useful"]


def test_markdown_and_summary_have_the_slices(
    path: Path, semrecall_main: Callable[..., tuple[int, str, str]]
) -> None:
    rows = [row | {"lang": lang} for row, lang in zip(RECORDS, ("en", "th", "th"), strict=True)]
    (path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["records.jsonl", "-m", "faithfulness", "--verdicts", "v.jsonl", "--by", "lang"]
    (path / "v.jsonl").write_text(
        '{"query_id": "q1|contexts", "doc_id": "q1|answer:1", "grade": 1}'
    )
    _, out, _ = semrecall_main("rag", *given, "--format", "markdown", "--summary", "s.md")
    assert out.startswith("| slice | group | measure |")
    assert "| lang | en | faithfulness |" in out
    assert "| lang | th | faithfulness |" in (path / "s.md").read_text()


def test_page(path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    hostile = [{**RECORDS[0], "question": "<script>alert(1)</script> ไทย"}]
    labels = sr.Judgments.from_dict({"q1|contexts": {"q1|answer:1": 1, "q1|answer:2": 0}})
    result = sr.rag(hostile, ["faithfulness"], verdicts=labels)
    result.to_html(path / "r.html")
    html = (path / "r.html").read_text(encoding="utf-8")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "supported: yes" in html
    assert "supported: no" in html


def test_records_from_standard_input(
    path: Path, semrecall_main: Callable[..., tuple[int, str, str]], monkeypatch: Any
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    given = (path / "records.jsonl").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    exact = digested(RECORDS, "supported", [1, 0, 1])
    sr.write(exact, path / "v.jsonl")
    code, out, err = semrecall_main(
        "rag", "-", "-m", "faithfulness", "--verdicts", "v.jsonl", "--html", "r.html"
    )
    assert code == 0, err
    assert "faithfulness" in out
    html = (path / "r.html").read_text(encoding="utf-8")
    digest = hashlib.sha256(given).hexdigest()
    assert f"<dt>records</dt><dd>standard input, sha256 {digest}</dd>" in html
    digest = hashlib.sha256((path / "v.jsonl").read_bytes()).hexdigest()
    assert f"<dt>verdicts</dt><dd>v.jsonl, sha256 {digest}</dd>" in html
    assert f"pip install &quot;semrecall[report]=={sr.__version__}&quot;" in html


def test_help_shows_no_option_that_is_refused(
    path: Path, semrecall_main: Callable[..., tuple[int, str, str]]
) -> None:
    _, out, _ = semrecall_main("rag", "--help")
    for option in ("--prompt", "--scale", "--calibrate-with"):
        assert option not in out
        value = "binary" if option == "--scale" else "records.jsonl"
        code, _, err = semrecall_main("rag", "records.jsonl", "--model", "m", option, value)
        assert code == 2
        assert f"{option} is for semrecall judge" in err
    assert "--docs-per-call" in out
    _, out, _ = semrecall_main("judge", "--help")
    assert "--prompt" in out


def test_faults_of_standard_input_say_so(
    path: Path, semrecall_main: Callable[..., tuple[int, str, str]], monkeypatch: Any
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"question": "a"}\n{bad\n')))
    code, _, err = semrecall_main("rag", "-", "-m", "context_recall(by=ids)")
    assert code == 2
    assert err.startswith("error: standard input, line 2: no JSON")
