"""Context and answer measures: by hand, through real calls, and with verdicts that do not come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="needs the extra llm")

from chat_server import ChatServer
from hypothesis import given
from hypothesis import strategies as st

import semrecall as sr
from semrecall.errors import FormatError, InputError, MeasureError
from semrecall.judges import Ledger
from semrecall.judges.llm import LLMJudge
from semrecall.measures import parse
from semrecall.measures.context_answer import ap
from semrecall.measures.verdicts import Case, Verdicts
from semrecall.rag import records, sentences
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
    assert value("context_precision", Case(2, useful_reference=array(1, NAN))) == "verdicts missing"
    ids = Case(3, known=np.array([False, True, True]), reference_ids=4)
    assert value("context_precision(by=ids)", ids) == 7 / 12  # (1/2 + 2/3) / 2
    assert value("context_recall(by=ids)", ids) == 2 / 4
    assert value("context_recall(by=ids)", Case(3)) == "no ids of relevant contexts"


def test_context_recall_and_faithfulness_are_shares_of_claims() -> None:
    assert value("context_recall", Case(1, attributed=array(1, 0, 1, 1))) == 3 / 4
    assert value("faithfulness", Case(1, supported=array(1, 0))) == 1 / 2
    assert value("faithfulness", Case(1, supported=array())) == "no claim in the answer"
    assert value("faithfulness", Case(1, has_answer=False)) == "no answer"
    gap = Case(1, supported=array(1, NAN), faults={"supported": "no verdict: timeout"})
    assert value("faithfulness", gap) == "no verdict: timeout"


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
        answer_by=np.array([[1.0, NAN], [0, 1], [NAN, NAN]]),  # only what is cited was asked
        cited_support=array(1, 1, 0),  # the third cites nothing
    )
    assert value("citation_precision", case) == 2 / 3  # of three citations two support
    assert value("citation_recall", case) == 2 / 3
    assert value("citation_precision", Case(2)) == "no citation"


def test_answer_relevancy() -> None:
    assert value("answer_relevancy", Case(1, relevance=0.5)) == 0.5
    assert value("answer_relevancy", Case(1, has_answer=False)) == 0.0
    assert value("answer_relevancy(form=questions)", Case(1, likeness=array(0.5, 1.0))) == 0.75
    assert value("answer_relevancy(form=questions)", Case(1, likeness=array())) == 0.0
    assert value("answer_relevancy", Case(1)) == "verdicts missing"


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
    text = "Dr. Smith is 3.5 m tall [1]. He lives in Ulm [2, doc7]! As [sic] said.\n- one\nไทย"
    assert sentences("") == []
    contexts = ["a", "b", {"id": "doc7", "text": "c"}]
    [record] = records([{"question": "q", "contexts": contexts, "answer": text}])
    [claims] = claims_of([record])
    assert claims.answer == (
        "Dr. Smith is 3.5 m tall.", "He lives in Ulm!", "As [sic] said.", "one", "ไทย",
    )  # fmt: skip
    assert claims.cited == (("1",), ("2", "doc7"), (), (), ())


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


def llm(server: ChatServer, **more: Any) -> Callable[[str, str], LLMJudge]:
    return lambda prompt, scale: LLMJudge(
        "m", base_url=server.url, prompt=prompt, scale=scale, **more
    )


def several(server: ChatServer) -> Callable[[str, str], LLMJudge]:
    return llm(server, docs_per_call=8, order_check=0)


def test_a_model_gives_the_verdicts(server: ChatServer, tmp_path: Path) -> None:
    path = tmp_path / "l.ledger"
    result = sr.rag(RECORDS, judge=llm(server), ledger=path, by="lang")
    # The server says yes to what bears grade:1.
    assert result["context_precision"].values.tolist() == [1.0, 0.0, 0.0]
    assert result["context_recall"].values.tolist() == [1.0, 1.0, 0.0]  # q3: nothing was read
    assert result["faithfulness"].values.tolist()[:2] == [0.5, 1.0]
    assert result.undefined("faithfulness") == {"no answer": 1}
    assert result["answer_relevancy"].values.tolist() == [0.5, 0.5, 0.0]  # grade 1 of 2
    assert result.mean("faithfulness") == 0.75
    assert [row.group for row in result.rows("lang")][::4] == ["en", "th"]
    asked = server.count()
    # 2 + 1 contexts, 1 + 2 reference claims, 2 + 1 answer claims, 2 answers; of the claims two are
    # both in the answer and in the reference, which is one question.
    assert asked == 3 + 3 + 3 + 2 - 2
    again = sr.rag(RECORDS, judge=llm(server), ledger=path)
    assert server.count() == asked
    assert again["faithfulness"].values.tolist()[:2] == [0.5, 1.0]
    assert "without an answer" in str(result)
    assert all(len(line) <= 100 for line in str(result).splitlines())


def test_claims_of_one_answer_go_together_by_id(server: ChatServer) -> None:
    result = sr.rag(
        RECORDS[:2], ["faithfulness"], judge=llm(server, docs_per_call=8, order_check=0)
    )
    assert result["faithfulness"].values.tolist() == [0.5, 1.0]
    assert server.count() == 2  # one call an answer


def test_a_verdict_set_that_does_not_match_its_claims_is_asked_again(server: ChatServer) -> None:
    server.script([{"do": "too_few", "without": "By boat", "single": False}])
    result = sr.rag(
        RECORDS[:1], ["faithfulness"], judge=llm(server, docs_per_call=8, order_check=0)
    )
    assert result["faithfulness"].values.tolist() == [0.5]
    assert server.count() == 2  # both together, then the missing one by itself


def test_a_verdict_of_seven_is_no_verdict(server: ChatServer) -> None:
    server.script([{"do": "illegal", "text": "By boat", "label": 7}])
    result = sr.rag(RECORDS[:2], ["faithfulness"], judge=llm(server))
    assert np.isnan(result["faithfulness"].values[0])
    assert result.undefined("faithfulness") == {"no verdict: illegal": 1}
    row = result.row("faithfulness")
    assert (row.scored, row.unscored, row.mean) == (1, 1, 1.0)
    assert (row.worst, row.best) == (0.5, 1.0)  # the other has 0, or 1


def test_recorded_verdicts_of_people(tmp_path: Path) -> None:
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
    assert result.undefined("faithfulness") == {"no verdict: unknown": 2, "no answer": 1}


def test_somebody_has_to_judge() -> None:
    with pytest.raises(InputError, match="somebody has to judge"):
        sr.rag(RECORDS, ["faithfulness"])
    assert sr.rag([{"question": "q", "contexts": ["a"], "relevant": ["1"]}],
                  ["context_recall(by=ids)"]).mean("context_recall(by=ids)") == 1.0  # fmt: skip


def test_claims_by_a_model_are_paid_once(server: ChatServer) -> None:
    with Ledger(None) as ledger:
        judge = LLMJudge("m", base_url=server.url)
        write = Writer(judge, ledger, CLAIMS)
        assert write(["One. Two.", "Three."]) == [["One", "Two"], ["Three"]]
        assert Writer(judge, ledger, CLAIMS)(["One. Two."]) == [["One", "Two"]]
        assert server.count() == 2


def test_claims_that_do_not_come_leave_the_question_unscored(server: ChatServer) -> None:
    server.script([{"do": "words"}])
    with Ledger(None) as ledger:
        write = Writer(LLMJudge("m", base_url=server.url), ledger, CLAIMS)
        assert write(["One."]) == [None]
        assert server.count() == 3  # asked again, within a limit
        result = sr.rag(
            RECORDS[:1], ["faithfulness"], judge=llm(server), claims=write, ledger=ledger
        )
    assert result.undefined("faithfulness") == {"no claims could be made": 1}


def test_generated_questions() -> None:
    vectors = {"when?": [1.0, 0.0], "where?": [0.0, 1.0], "a": [1.0, 1.0], "b": [1.0, 0.0]}
    result = sr.rag(
        RECORDS[:2], ["answer_relevancy(form=questions)"],
        questions=lambda answers: [["a", "b"], []],
        embed=lambda texts: np.array([vectors[text] for text in texts]),
    )  # fmt: skip
    expected = (2**-0.5 + 1) / 2
    assert result["answer_relevancy(form=questions)"].values.tolist() == pytest.approx(
        [expected, 0]
    )
    with pytest.raises(InputError, match="needs questions made from answers"):
        sr.rag(RECORDS, ["answer_relevancy(form=questions)"])


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
    assert "failed: faithfulness is 0.7500, below 0.9" in err
    assert "lowest faithfulness:" in out
    code, out, _ = semrecall_main(*given, "--format", "json")
    assert code == 0
    rows = {row["measure"]: row for row in json.loads(out)["measures"]}
    assert rows["faithfulness"]["mean"] == 0.75
    code, out, _ = semrecall_main(*given, "--per-question", "--format", "csv")
    assert out.splitlines()[0].startswith("query_id,question,context_precision")
    before = server.count()
    code, out, _ = semrecall_main(*given, "-m", "faithfulness", "--dry-run", "--ledger", "new")
    assert "support: 3 verdicts (supported)" in out
    assert server.count() == before
    code, _, err = semrecall_main("rag", "records.jsonl")
    assert code == 2
    assert "somebody has to judge" in err
    code, _, err = semrecall_main(*given, "--prompt", "qa")
    assert code == 2
    assert "each verdict has its own" in err


def test_pairs_for_people(path: Path, semrecall_main: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = semrecall_main("rag", "records.jsonl", "-m", "faithfulness", "--pairs", "people")
    assert code == 0
    assert "3 pairs; semrecall label people/pairs.jsonl" in err
    pairs = [json.loads(line) for line in (path / "people/pairs.jsonl").read_text().splitlines()]
    assert pairs[0] == {"query_id": "q1|contexts", "doc_id": "q1|answer:1"}
    labels = "".join(json.dumps({**pair, "grade": 1}) + "\n" for pair in pairs)
    (path / "v.jsonl").write_text(labels)
    code, out, _ = semrecall_main(
        "rag", "records.jsonl", "-m", "faithfulness", "--verdicts", "v.jsonl", "--format", "csv"
    )
    assert out.splitlines()[1].startswith("faithfulness,,1.0,")


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
