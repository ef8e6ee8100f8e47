"""The grammar of measures: print, parse, equal; refusals that explain."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.data import Judgments, Run
from semrecall.errors import MeasureError
from semrecall.measures import Measure, align, measure, measures, parse, parse_all
from semrecall.measures.grammar import _DEFINITIONS, _SPELLINGS
from semrecall.measures.kinds import BETWEEN, FLAG, NUMBER, PERCENT, PORTION, POSITIVE, SHARE


@pytest.fixture
def own_measures():
    """Measures registered in a test are gone after it."""
    before = dict(_DEFINITIONS), dict(_SPELLINGS)
    yield
    for now, then in zip((_DEFINITIONS, _SPELLINGS), before, strict=True):
        now.clear()
        now.update(then)


def values_of(kind):
    if kind is NUMBER:
        return st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5)
    plain = {
        FLAG: st.booleans(),
        PERCENT: st.floats(0, 1e6),
        POSITIVE: st.floats(0, 1e6, exclude_min=True),
        SHARE: st.floats(0, 1, exclude_min=True),
        PORTION: st.floats(0, 1),
        BETWEEN: st.floats(0, 1, exclude_min=True, exclude_max=True),
    }
    if kind in plain:
        return plain[kind]
    words, _, other = kind.expected.partition(" or a ")
    number = st.floats(-1e6, 1e6)
    others = {
        "": st.nothing(),
        "number": number,
        "map": st.dictionaries(number, number, min_size=1),
    }
    return st.sampled_from(words.replace(" or ", ", ").split(", ")) | (
        st.floats(0, 100) if "at least 0" in other else others[other.split(" ")[0]]
    )


@st.composite
def any_measure(draw):
    definition = draw(st.sampled_from(measures()))
    params = [
        (name, draw(values_of(kind)))
        for name, kind in definition.kinds.items()
        if name not in definition.defaults or draw(st.booleans())
    ]
    cutoff = st.integers(1, 10**6) if definition.takes_k else st.nothing()
    k = draw(st.none() | cutoff if definition.k_is_optional else cutoff)
    return Measure(definition.name, k, tuple(params))


@given(any_measure())
def test_what_is_printed_parses_back_to_the_same_measure(measure):
    assert parse(str(measure)) == measure
    assert str(parse(str(measure))) == str(measure)
    assert hash(parse(str(measure))) == hash(measure)


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("recall@100", "recall@100"),
        (" recall @ 100 ", "recall@100"),
        ("recall()@100", "recall@100"),
        ("recall(ties=yes)@100", "recall@100"),
        ("recall(ties = No)@100", "recall(ties=no)@100"),
        ("srecall(rel=2)@100", "srecall(rel=2)@100"),
        ("srecall(rel=2.0)@100", "srecall(rel=2)@100"),
        ("srecall(rel=1)@100", "srecall@100"),
        ("srecall(gain=grade,rel=2)@100", "srecall(rel=2,gain=grade)@100"),
        ("srecall(rel=0.5)@100", "srecall(rel=0.5)@100"),
        ("trecall(x=1%)@100", "trecall(x=1%)@100"),
        ("trecall(x=0.01)@100", "trecall(x=1%)@100"),
        ("trecall(x=1e-2)@100", "trecall(x=1%)@100"),
        ("trecall(x=6.85%)@100", "trecall(x=6.85%)@100"),
        ("trecall(x='query')@100", "trecall(x=query)@100"),
        ("trecall(x=proxy)@100", "trecall@100"),
        ("trecall(x=0)@100", "trecall(x=0%)@100"),
        ("erecall(eps=1%)@10", "erecall@10"),
        ("robustness(delta=90%)@10", "robustness@10"),
        ("robustness(delta=.3)@10", "robustness(delta=0.3)@10"),
        ("nDCG@10", "nDCG@10"),
        ("ndcg@10", "nDCG@10"),
        ("nDCG(dcg='exp-log2')@10", "nDCG(gain=exp)@10"),
        ("nDCG(dcg=log2)", "nDCG"),
        ("SRecall@5", "srecall@5"),
        ("MRR@10", "RR@10"),
        ("map", "AP"),
        ("hit@1", "Success@1"),
        ("r@10", "R@10"),
        ("p@5", "P@5"),
        ("nDCG(gain=linear)@10", "nDCG@10"),
        ("nDCG(gain={2: 3, 0:0, 1:1})@10", "nDCG(gain={0:0,1:1,2:3})@10"),
        ("nDCG(gains={1:10},judged_only=true)", "nDCG(gain={1:10},judged_only=True)"),
        ("nDCG(judged_only=False)@5", "nDCG@5"),
        ("P(rel=2,judged_only=True)@5", "P(rel=2,judged_only=True)@5"),
        ("IPrec@0.1", "IPrec@0.1"),
        ("IPrec(recall=0.10, rel=2)", "IPrec(rel=2)@0.1"),
        ("IPrec@0", "IPrec@0"),
        ("SetF(beta=1.0)", "SetF"),
        ("RBP(p=0.8)", "RBP"),
        ("RBP(rel=1,p=.95)@100", "RBP(p=0.95,rel=1)@100"),
        ("ERR(max_rel=4)@20", "ERR(max_rel=4)@20"),
        ("NumRet(rel=1)", "NumRet(rel=1)"),
        # trec_eval's names
        ("P_10", "P@10"),
        ("recall_100", "R@100"),
        ("map_cut_1000", "AP@1000"),
        ("ndcg_cut_10", "nDCG@10"),
        ("success_1", "Success@1"),
        ("relative_P_5", "Rcap@5"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("recip_rank", "RR"),
        ("set_recall", "SetR"),
        ("num_rel_ret", "NumRelRet"),
        ("rbp_resid", "RBPresid"),
        ("hit_rate@1", "Success@1"),
        # As trec_eval's -m takes them.
        ("P.5", "P@5"),
        ("ndcg_cut.10", "nDCG@10"),
        ("iprec_at_recall.0.10", "IPrec@0.1"),
        ("nDCG(dcg='EXP-LOG2')@5", "nDCG(gain=exp)@5"),
    ],
)
def test_spellings(spelling, canonical):
    assert str(parse(spelling)) == canonical
    assert parse(spelling) == parse(canonical)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("recal@10", r"unknown measure 'recal'[\s\S]*did you mean .*recall"),
        ("recall", r"recall: a cutoff k is missing[\s\S]*recall@10"),
        ("recall@0", "k is 0; expected a whole number of at least 1"),
        ("trecall@20(x=0.03)", r"behind the cutoff[\s\S]*write trecall\(x=0\.03\)@20"),
        ("srecall(rel=2)@5(gain=grade)", r"write srecall\(rel=2, gain=grade\)@5"),
        ("recall@ten", "k is 'ten'; expected a whole number"),
        ("recall@-1", "k is '-1'; expected a whole number"),
        ("recall@1.5", "k is '1.5'; expected a whole number"),
        ("srecall(rl=2)@10", r"unknown parameter 'rl'[\s\S]*did you mean rel"),
        ("one(rel=2)@10", r"unknown parameter 'rel'[\s\S]*one has no parameters"),
        ("srecall(rel=high)@10", "rel is 'high'; expected a number"),
        ("srecall(rel=nan)@10", "rel is 'nan'; expected a number"),
        ("srecall(rel=1,rel=2)@10", "'rel' is given twice"),
        ("srecall(rel)@10", "cannot read 'rel'; expected param=value"),
        ("srecall(rel=)@10", "cannot read 'rel='; expected param=value"),
        ("trecall(x=-1%)@10", "x is '-1%'; expected proxy, query or a number of at least 0"),
        ("trecall(x=1e999)@10", "x is '1e999'"),
        ("robustness(delta=0)@10", "delta is '0'; expected a number above 0 and at most 1"),
        ("robustness(delta=1.1)@10", "delta is '1.1'; expected a number above 0"),
        ("recall(ties=maybe)@10", "ties is 'maybe'; expected yes or no"),
        ("recall@10@20", r"k is '10@20'"),
        ("P@2147483648", "k is 2147483648; expected a whole number of at most 2,147,483,647"),
        ("nDCG(dcg=foo)@5", "dcg is 'foo'; expected log2 or exp-log2"),
        # Other names of a measure are close, too.
        ("hits@1", r"unknown measure 'hits'[\s\S]*did you mean Success \(also hit\)\?"),
        ("NDGC@10", r"unknown measure 'NDGC'[\s\S]*did you mean nDCG"),
        # Where nothing is close, a line of 60 names helps no one.
        ("foo@10", r"unknown measure 'foo'\s+hint: semrecall list measures shows them all$"),
        ("", "'' is not a measure; expected name"),
        ("recall at 10", "is not a measure"),
        ("Rprec@10", r"Rprec takes no cutoff k[\s\S]*write Rprec\(rel=1, judged_only=False\)"),
        ("IPrec", r"IPrec: recall is missing[\s\S]*@recall"),
        ("IPrec@10", "recall is '10'; expected a number from 0 to 1"),
        ("IPrec(recall=0.1)@0.2", "'recall' is given twice"),
        ("nDCG(gain={1:2,1:3})@10", "expected grade, exp or a map such as"),
        ("nDCG(gain={})@10", "gain is '{}'"),
        ("nDCG(gain={1:x})@10", "gain is '{1:x}'"),
        ("P(judged_only=1)@5", "judged_only is '1'; expected True or False"),
        ("RBP(p=1)", "p is '1'; expected a number above 0 and below 1"),
        ("(rel=2)@10", "is not a measure"),
    ],
)
def test_refusals_say_what_was_found_and_expected(spelling, message):
    with pytest.raises(MeasureError, match=message):
        parse(spelling)


def test_names_that_no_one_could_write_or_that_are_taken_are_no_measures(own_measures):
    def mine(problem, k):
        return [0.0] * len(problem)

    for name in ("my measure", "mine@3", "mine(x)", ""):
        with pytest.raises(MeasureError, match="is no name of a measure"):
            measure(name, needs=())(mine)
    before = parse("P@5").definition
    with pytest.raises(MeasureError, match="'P' is taken by semrecall"):
        measure("P", needs=())(mine)
    assert parse("P@5").definition is before
    # A cell of a notebook runs again.
    for _ in range(2):
        measure("again_of_a_notebook", needs=())(mine)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([1.0, 2.0], r"own_values@5 returned an array of shape \(2,\); expected \(1,\)"),
        ("x", "own_values@5 returned a str; expected one number a query"),
        ([math.inf], "own_values@5 returned an infinite value"),
        (0.5, r"returned an array of shape \(\)"),
    ],
)
def test_values_of_a_measure_of_your_own_are_checked(own_measures, found, message):
    measure("own_values", needs=())(lambda problem, k: found)
    problem = align(Run.from_arrays([[1]]), Run.from_arrays([[1]], k=1))
    with pytest.raises(MeasureError, match=message):
        parse("own_values@5").values(problem)


@pytest.mark.parametrize("name", ["Recall@10", "RECALL@10", "Recall"])
def test_capital_recall_is_refused_with_both_meanings(name):
    with pytest.raises(MeasureError) as fault:
        parse(name)
    assert "exact neighbours" in fault.value.message
    assert "relevant documents" in fault.value.message
    assert fault.value.hint == f"write {name.replace(name[:6], 'recall')} or R{name[6:]}"


def test_all_bad_names_are_reported_at_once():
    with pytest.raises(MeasureError, match="2 measures cannot be read") as fault:
        parse_all(["recal@10", "recall@10", "srecall"])
    assert "recal@10: unknown measure" in fault.value.message
    assert "srecall: a cutoff k is missing" in fault.value.message


def test_each_measure_once_in_the_order_given():
    found = parse_all(["trecall(x=1%)@10", "recall@10", "trecall(x=0.01)@10", Measure("one", 5)])
    assert [str(m) for m in found] == ["trecall(x=1%)@10", "recall@10", "one@5"]
    assert parse_all("recall@10") == [Measure("recall", 10)]


def test_a_measure_made_by_hand_is_checked_and_canonical():
    assert Measure("srecall", 10, (("gain", "count"), ("rel", 2))) == parse("srecall(rel=2)@10")
    with pytest.raises(MeasureError, match="k is 0"):
        Measure("recall", 0)
    assert Measure("ndcg", 10).name == "nDCG"


def test_every_measure_explains_itself():
    for definition in measures():
        assert definition.about.endswith("."), definition.name
        assert definition.about.count(". ") == 0, definition.name
        assert definition.layer in ("index", "retrieval", "context", "answer")
        assert definition.usage.startswith(definition.name)
    assert parse("trecall@10").definition.usage == "trecall(x=proxy)@k"
    assert parse("RR").definition.usage == "RR(rel=1, judged_only=False)[@k]"
    assert parse("IPrec@1").definition.usage == "IPrec(rel=1, judged_only=False)@recall"
    assert parse("rde@3").lower_is_better
    assert not parse("recall@3").lower_is_better
    assert parse("srecall@3").settings == {"rel": 1.0, "gain": "count"}


def test_the_page_on_measures_names_them_all():
    page = (Path(__file__).parents[1] / "docs" / "measures.md").read_text()
    for definition in measures():
        assert f"`{definition.name}" in page, definition.name
        for parameter in definition.kinds:
            assert f"{parameter}=" in page or f"`{parameter}`" in page, parameter


def test_the_examples_of_the_page_run(capsys):
    page = (Path(__file__).parents[1] / "docs" / "measures.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    try:
        for block in blocks:
            # What an example prints stands beside it.
            shown = re.search(r"print\(.*\)\s+# (.*)", block)
            exec(block, {})
            assert shown is None or capsys.readouterr().out.strip() == shown[1]
        run = Run.from_arrays([[1, 2], [1, 9]])
        truth = Run.from_arrays([[2, 1], [1, 2]])
        assert parse("all@2").values(align(run, truth)).values.tolist() == [1.0, 0.0]
        judged = align(run, None, Judgments.from_dict({0: {1: 2, 2: 1}, 1: {1: 1}}))
        found = parse("found(rel=2.0)@2").values(judged)
        assert str(parse(found.measure)) == "Found(rel=2)@2"
        assert found.reasons == ("", "no relevant document")
        assert found.values[0] == 1.0
    finally:
        for name in ("all", "Found"):
            _DEFINITIONS.pop(name, None)
            _SPELLINGS.pop(name.lower(), None)


def test_a_new_measure_is_one_decorated_function():
    try:

        @measure("hits", needs={"truth"}, params={"plus": NUMBER}, aliases=("found",))
        def hits(problem, k, *, plus=0.0):
            """How many of the k neighbours were found."""
            return (problem.rank[:, :k] >= 0).sum(axis=1) + plus

        run = Run.from_arrays([[1, 9]])
        problem = align(run, Run.from_arrays([[1, 2]]))
        assert parse("found(plus=1)@2").values(problem).values.tolist() == [2.0]
        assert hits(problem, 2).tolist() == [1.0]
        with pytest.raises(MeasureError, match="taken by hits"):
            measure("Hits", needs=())(hits)
    finally:
        _DEFINITIONS.pop("hits", None)
        for spelling in ("hits", "found"):
            _SPELLINGS.pop(spelling, None)


def test_what_a_measure_needs_is_asked_for():
    run = Run.from_arrays([[1, 2]])
    truth = Run.from_arrays([[1, 2]])
    scored = Run.from_arrays([[1, 2]], [[2.0, 1.0]])
    for spelling, problem, message in [
        ("recall@2", align(run), "recall@2 needs the exact neighbours"),
        ("srecall@2", align(run, truth), "srecall@2 needs judgments"),
        ("trecall@2", align(run, truth), "scores of the exact neighbours; the truth has ids only"),
        ("annb_knn@2", align(run, scored), "needs the scores of the results"),
        ("trecall@2", align(run, scored), "neither the truth nor the run says of which space"),
        ("recall@3", align(run, truth), "k is 3, but the truth is only 2 deep"),
    ]:
        with pytest.raises(MeasureError, match=message):
            parse(spelling).values(problem)


def test_plain_functions_say_what_is_missing():
    from semrecall.measures.index import recall, srecall

    run = Run.from_arrays([[1, 2]])
    with pytest.raises(MeasureError, match="needs the truth"):
        recall(align(run), 2)
    with pytest.raises(MeasureError, match="needs judgments"):
        srecall(align(run, run), 2)


def test_numbers_read_alike_from_python_and_text():
    assert Measure("trecall", 5, (("x", np.float32(0.5)),)) == parse("trecall(x=50%)@5")
    with pytest.raises(MeasureError, match="rel is True"):
        Measure("srecall", 5, (("rel", True),))
