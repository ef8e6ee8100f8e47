"""The same values as ir_measures (and so pytrec_eval, trec_eval 9) on random lists and grades."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semrecall.data import Judgments, Run
from semrecall.errors import InputError, MeasureError, MissingExtra
from semrecall.measures import align, external, measures, parse, tie_range


@pytest.fixture(scope="module")
def peer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("ir_measures", reason="needs the extra ir")


SHARED = [
    "P@1", "P@5", "P(rel=2)@3", "P(judged_only=True)@3", "R@2", "R@10", "R(judged_only=True)@2",
    "RR", "RR(rel=2)", "RR(judged_only=True)", "RR@2", "RR(rel=2)@3", "AP", "AP@3",
    "AP(rel=2)", "AP(judged_only=True)@2", "nDCG", "nDCG@3", "nDCG(judged_only=True)@3",
    "nDCG(gains={1:3,2:7})@4", "Rprec", "Rprec(rel=2)", "Rprec(judged_only=True)", "Bpref",
    "Bpref(rel=2)", "infAP", "infAP(rel=2)", "SetP", "SetP(rel=2)", "SetP(relative=True)",
    "SetP(judged_only=True)", "SetR", "SetR(rel=2)", "SetF", "SetF(beta=2.0)", "SetF(beta=0.5)",
    "SetF(judged_only=True)", "SetAP", "SetAP(judged_only=True)", "Success@1", "Success(rel=2)@3",
    "Success(judged_only=True)@2", "IPrec@0.0", "IPrec@0.1", "IPrec@0.5", "IPrec@0.75",
    "IPrec@1.0", "IPrec(rel=2)@0.3", "IPrec(judged_only=True)@0.6", "Judged@2", "Judged",
    "NumRet", "NumRet(rel=2)", "NumRel", "NumQ", "RBP(rel=1)", "RBP(rel=2,p=0.5)", "Accuracy",
    "Accuracy(rel=2)", "Accuracy@3",
]  # fmt: skip
DOCUMENTS = [f"d{i}" for i in range(9)]


@st.composite
def inputs(draw):
    """A run of three queries with distinct scores, and grades; one may have no results at all.

    No negative grades: where a query has no others, pytrec_eval reads beyond its memory.
    """
    run, qrels = {}, {}
    for query in ("q1", "q2", "q3"):
        found = draw(st.lists(st.sampled_from(DOCUMENTS), unique=True, max_size=7))
        if found:
            run[query] = {d: float(10 - i) for i, d in enumerate(found)}
        grades = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 3), min_size=1)
        qrels[query] = draw(grades)
    # ir_measures crashes on an empty run.
    run = run or {"q1": {"d0": 1.0}}
    return run, qrels


def theirs(peer, name, run, qrels):
    """Their value of every query, as {query: value}."""
    measure = peer.parse_measure(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = peer.iter_calc([measure], qrels, run)
        return {metric.query_id: float(metric.value) for metric in found}


def ours(name, run, qrels):
    problem = align(Run.from_dict(run), None, Judgments.from_dict(qrels), no_relevant="zero")
    scores = parse(name).values(problem)
    return dict(zip(scores.queries, scores.values.tolist(), strict=True))


@settings(max_examples=30)
@given(st.data())
@pytest.mark.parametrize("name", SHARED)
def test_values_agree_with_ir_measures(peer, name, data):
    run, qrels = data.draw(inputs())
    if name.startswith("Accuracy"):
        # It divides by 0 where all results are relevant, and says 0 or NaN where none is.
        found = ours(name, run, qrels)
        run = {q: row for q, row in run.items() if not np.isnan(found[q])}
        if not run:
            return
    expected, found = theirs(peer, name, run, qrels), ours(name, run, qrels)
    # A query without results is 0 there whatever is asked; Accuracy leaves it out.
    answered = name.startswith(("Accuracy", "NumQ", "NumRel"))
    for query in run if answered else found:
        # IPrec of a condensed list without any judged result is 0/0 there.
        value = np.nan_to_num(expected.get(query, 0.0))
        assert found[query] == pytest.approx(value, abs=1e-9), (query, run, qrels)


@settings(max_examples=30)
@given(inputs())
def test_every_cutoff_in_one_go(peer, drawn):
    run, qrels = drawn
    for name in ("P", "R", "AP", "nDCG", "Success"):
        for k in range(1, 9):
            spelling = f"{name}@{k}"
            expected = theirs(peer, spelling, run, qrels)
            assert ours(spelling, run, qrels) == pytest.approx(expected, abs=1e-9), spelling


def test_ties_are_broken_as_trec_eval_does(peer):
    run = {"q": dict.fromkeys(["a", "b10", "b9", "A", "é"], 1.0)}
    for relevant in run["q"]:
        qrels = {"q": {relevant: 1}}
        assert ours("AP", run, qrels) == pytest.approx(theirs(peer, "AP", run, qrels))


def test_all_names_and_parameters_of_ir_measures_are_known(peer):
    """Also as Python 3.14 would read them: no part of their parser is used."""
    for name, measure in peer.measures.registry.items():
        if name == "Recall":
            continue  # refused: it can mean two things here
        known = parse(f"{name}@0.5" if name == "IPrec" else _with_cutoff(name)).definition
        asked = set(type(measure).SUPPORTED_PARAMS) - {"cutoff", "dcg", "gains"}
        asked -= {"relative"} if name == "SetRelP" else set()
        assert asked <= set(known.kinds), name
        if "cutoff" not in type(measure).SUPPORTED_PARAMS:
            assert not known.takes_k, name


def _with_cutoff(name):
    definition = next(
        d for d in measures() if name.lower() == d.name.lower() or parse_name(name) == d.name
    )
    return name if definition.k_is_optional else f"{name}@5"


def parse_name(name):
    from semrecall.measures.grammar import _SPELLINGS

    return _SPELLINGS.get(name.lower())


# -- families that ir_measures computes -----------------------------------------------------------

GRADED = {"q1": {"d1": 2, "d2": 0, "d3": 1}, "q2": {"d2": 1, "d4": 0}}
RESULTS = {"q1": {"d3": 3.0, "x": 2.0, "d1": 1.0}, "q2": {"x": 2.0, "d2": 1.0}}
SUBTOPICS = [
    ("q1", "d1", "1", 1), ("q1", "d1", "2", 1), ("q1", "d2", "1", 0), ("q1", "d3", "2", 2),
    ("q1", "d5", "3", 1), ("q2", "d2", "1", 1), ("q2", "d4", "2", 1), ("q2", "d4", "1", 0),
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "Compat", "Compat(p=0.8)", "Compat(normalize=False)", "BPM(max_rel=2)@10",
        "BPM(T=2.0,max_rel=2)@3", "SDCG(max_rel=2)@5", "INST(max_rel=2)", "INSQ(T=2.0,max_rel=3)",
        "NERR8(max_rel=2)@5", "NERR9(max_rel=2)@3", "NERR10(p=0.8,max_rel=2)", "NERR11(max_rel=2)",
    ],
)  # fmt: skip
def test_preference_and_cwl_measures_are_those_of_ir_measures(peer, name):
    assert ours(name, RESULTS, GRADED) == pytest.approx(theirs(peer, name, RESULTS, GRADED))


@pytest.mark.parametrize(
    "name",
    [
        "alpha_nDCG@5", "alpha_nDCG(alpha=0.2)@2", "alpha_DCG@7", "ERR_IA@3", "nERR_IA@5", "NRBP",
        "nNRBP(alpha=0.3,beta=0.2)", "AP_IA", "AP_IA(rel=2)", "P_IA@5", "StRecall@2",
    ],
)  # fmt: skip
def test_diversity_measures_are_those_of_ir_measures(peer, name):
    columns = list(zip(*SUBTOPICS, strict=True))
    judgments = Judgments.from_arrays(columns[0], columns[1], columns[3], subtopic=columns[2])
    problem = align(Run.from_dict(RESULTS), None, judgments, no_relevant="zero")
    scores = parse(name).values(problem)
    qrels = [peer.Qrel(q, d, grade, topic) for q, d, topic, grade in SUBTOPICS]
    run = [peer.ScoredDoc(q, d, s) for q, row in RESULTS.items() for d, s in row.items()]
    expected = theirs(peer, name, run, qrels)
    found = dict(zip(scores.queries, scores.values.tolist(), strict=True))
    assert found == pytest.approx(expected)
    assert any(note.startswith("computed by ir_measures") for note in scores.notes)


def test_subtopics_are_read_from_qrels_and_tables(peer, tmp_path):
    from semrecall.formats import read_judgments, write

    columns = list(zip(*SUBTOPICS, strict=True))
    judgments = Judgments.from_arrays(columns[0], columns[1], columns[3], subtopic=columns[2])
    path = tmp_path / "qrels.txt"
    path.write_text("".join(f"{q} {topic} {d} {grade}\n" for q, d, topic, grade in SUBTOPICS))
    commented = tmp_path / "commented.txt"
    commented.write_text("# diversity\n" + path.read_text())
    table = tmp_path / "labels.csv"
    names = ("query_id", "doc_id", "subtopic", "grade")
    table.write_text("\n".join(",".join(map(str, row)) for row in (names, *SUBTOPICS)))
    for written in ("again.txt", "again.parquet", "again.jsonl"):
        write(judgments, tmp_path / written)
    run = Run.from_dict(RESULTS)
    expected = parse("alpha_nDCG@5").values(align(run, None, judgments)).values.tolist()
    names = (
        "qrels.txt",
        "commented.txt",
        "labels.csv",
        "again.txt",
        "again.parquet",
        "again.jsonl",
    )
    for name in names:
        read = read_judgments(tmp_path / name, subtopics=name.endswith(".txt"))
        assert len(read) == len(judgments) == 6, name
        found = parse("alpha_nDCG@5").values(align(run, None, read)).values.tolist()
        assert found == expected, name
    # All other measures see the highest grade of a pair.
    assert dict(zip(judgments.documents, judgments.grades.tolist(), strict=True))["d4"] == 1


def test_contradicting_grades_of_one_subtopic():
    with pytest.raises(InputError, match=r"contradict.*'a \(subtopic 1\)'"):
        Judgments.from_arrays(["q", "q"], ["a", "a"], [0, 1], subtopic=[1, 1])
    kept = Judgments.from_arrays(
        ["q", "q", "q"], ["a", "a", "a"], [0, 1, 0], subtopic=[1, 1, 2], conflicts="max"
    )
    assert kept.grades.tolist() == [1.0]
    assert kept.details["subtopics"].tolist() == ['{"1": 1.0, "2": 0.0}']
    with pytest.raises(InputError, match="1 judgments but 2 subtopics"):
        Judgments.from_arrays(["q"], ["a"], [1], subtopic=[1, 2])


def test_diversity_over_judged_results_only(peer):
    # Theirs fails there ("generator object is not subscriptable"): unjudged results are left out.
    columns = list(zip(*SUBTOPICS, strict=True))
    judgments = Judgments.from_arrays(columns[0], columns[1], columns[3], subtopic=columns[2])
    short = {q: {d: s for d, s in row.items() if d != "x"} for q, row in RESULTS.items()}
    condensed, plain = (
        parse(name).values(align(Run.from_dict(run), None, judgments)).values.tolist()
        for name, run in (("alpha_nDCG(judged_only=True)@3", RESULTS), ("alpha_nDCG@3", short))
    )
    assert condensed == plain


def test_subtopics_are_asked_for(peer):
    with pytest.raises(MeasureError, match="alpha_nDCG needs judgments by subtopic"):
        ours("alpha_nDCG@5", RESULTS, GRADED)


def test_the_highest_grade_is_the_default_and_is_said(peer):
    problem = align(Run.from_dict(RESULTS), None, Judgments.from_dict(GRADED))
    said = parse("INST").values(problem)
    assert said.notes[0] == "max_rel = 2, the highest grade in the judgments"
    assert said.values.tolist() == parse("INST(max_rel=2)").values(problem).values.tolist()
    fractions = Judgments.from_dict({"q1": {"d1": 0.5}})
    with pytest.raises(MeasureError, match=r"max_rel is 0\.5; ir_measures takes whole numbers"):
        parse("INST").values(align(Run.from_dict(RESULTS), None, fractions))
    # Compat takes fractions as they are.
    assert parse("Compat").values(align(Run.from_dict(RESULTS), None, fractions)).mean > 0


def test_ties_do_not_reach_ir_measures(peer):
    tied = {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}
    untied = {"q": {"c": 3.0, "b": 2.0, "a": 1.0}}
    for relevant in "abc":
        grades = {"q": {relevant: 1}}
        assert ours("Compat", tied, grades) == ours("Compat", untied, grades)
    problem = align(Run.from_dict(tied), None, Judgments.from_dict({"q": {"a": 1}}))
    found = tie_range("Compat", problem, draws=30)
    assert found.extremes_drawn
    assert found.low[0] < found.expected[0] < found.high[0]


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ir_measures", None)
    problem = align(Run.from_dict(RESULTS), None, Judgments.from_dict(GRADED))
    with pytest.raises(MissingExtra) as fault:
        parse("Compat").values(problem)
    assert "ir_measures" in fault.value.message
    assert fault.value.hint == 'pip install "semrecall[ir]"'
    assert str(parse("compat(p=.95)")) == "Compat"


def test_every_family_is_registered():
    assert {f.name for f in external.FAMILIES} == {d.name for d in measures() if d.extra}
