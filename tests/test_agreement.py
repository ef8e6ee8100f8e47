"""agree(): counted by hand, on real labels, and where judges hardly meet."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import semrecall as sr
from semrecall.agreement import agree
from semrecall.cli.tables import json_text
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.formats import read_judgments
from semrecall.text import display_width

# a: d1 and d2 agree, d3 does not; b: d4 and d5 agree.
FIRST = {"a": {"d1": 2, "d2": 0, "d3": 1}, "b": {"d4": 0, "d5": 3}}
SECOND = {"a": {"d1": 3, "d2": 0, "d3": 0}, "b": {"d4": 0, "d5": 1}}


def judgments(grades, name=""):
    return sr.Judgments.from_dict(grades, name=name)


def two(first=FIRST, second=SECOND, **options):
    return agree({"x": judgments(first), "y": judgments(second)}, **options)


def test_two_judges_counted_by_hand():
    found = two()
    pair = found.pair()
    # Cut at 1: x says yes to d1, d3, d5, y to d1, d5.
    assert pair.table.tolist() == [[2, 1], [0, 2]]
    assert found.agreement == 0.8
    # Chance: 3/5 * 2/5 + 2/5 * 3/5 = 0.48; (0.8 - 0.48) / 0.52.
    assert found.kappa == pytest.approx(0.32 / 0.52)
    assert found["positive"].value == pytest.approx(4 / 5)
    assert found["negative"].value == pytest.approx(4 / 5)
    assert found["second_if_first"].value == pytest.approx(2 / 3)
    assert found["second_not_if_first_not"].value == 1.0
    assert found["first_if_second"].value == 1.0
    assert found["first_not_if_second_not"].value == pytest.approx(2 / 3)
    assert found["lenience"].value == pytest.approx(0.2)
    assert (pair.lenient, pair.p) == ("x", 1.0)
    # By grade: d2 and d4 are equal, d1 2-3, d3 1-0 and d5 3-1 differ.
    assert pair.grades.tolist() == [0, 1, 2, 3]
    assert found["same_grade"].value == pytest.approx(2 / 5)
    # Observed: (1 + 1 + 2) / 5. x has grades 2, 0, 1, 0, 3, y 3, 0, 0, 0, 1: all 25 differences
    # come to 8 + 4 + 5 + 4 + 11 = 32. 1 - 0.8 / (32 / 25).
    assert found["kappa_linear"].value == pytest.approx(1 - 0.8 * 25 / 32)
    assert [(q.query, q.pairs, q.agreement) for q in found.by_query] == [
        ("a", 3, pytest.approx(2 / 3)), ("b", 2, 1.0),
    ]  # fmt: skip
    assert [q.query for q in found.low] == ["a"]
    assert found["kappa"].low <= found.kappa <= found["kappa"].high


def test_relevance_from_a_grade_for_each_judge():
    found = two(rel={"x": 2, "y": 1})
    # x says yes to d1, d5: as y does.
    assert found.agreement == found.kappa == 1.0
    assert found.pair().no_grades.startswith("relevant is another grade for each")
    assert list(found.alphas) == ["nominal"]
    assert two(rel=3).pair().table.tolist() == [[0, 1], [1, 3]]
    with pytest.raises(InputError, match="rel names no judge 'z'"):
        two(rel={"z": 2})


def test_pairs_of_one_judge_and_pairs_without_a_grade_are_counted():
    details = {
        "status": ["", "filtered", "filtered", "truncated", None],
        "reason": ["", "", "", "", "hard to say"],
    }
    queries, documents = ["a"] * 3 + ["b"] * 2, ["d1", "d2", "d3", "d4", "d6"]
    grades = [3, np.nan, np.nan, np.nan, np.nan]
    other = sr.Judgments.from_arrays(queries, documents, grades, **details)
    found = agree({"x": judgments(FIRST), "y": other})
    pair = found.pair()
    assert (pair.pairs, pair.only_first, pair.only_second) == (1, 4, 0)
    assert found.judges[1].no_grade == {"filtered": 2, "truncated": 1, "hard to say": 1}
    assert (found.judges[1].pairs, found.judges[1].graded) == (5, 1)
    said = str(found)
    assert "4 pairs without a grade by y: 2 filtered; 1 truncated; 1 hard to say" in said
    assert "not compared: 4 by x, 0 by y" in said


def test_all_labels_of_one_class_have_no_kappa_and_agree():
    """Case J33."""
    ones = {"a": {"d1": 1, "d2": 1}, "b": {"d3": 1}}
    twos = {"a": {"d1": 1, "d2": 2}, "b": {"d3": 1}}
    found = two(ones, twos)
    assert found.agreement == 1.0
    assert math.isnan(found.kappa)
    assert found["kappa"].reason == "all labels are one class"
    assert found.alphas["nominal"].reason == "all labels are one class"
    assert math.isnan(found["negative"].value)
    assert found["negative"].reason == "nobody says so"
    value = json.loads(json_text(found.to_dict()))["pairs"][0]["values"]["kappa"]
    assert value["value"] is None
    assert value["reason"] == "all labels are one class"
    assert "all labels are one class" in str(found)
    assert "intervals without width are no certainty" in str(found)


def test_one_query_has_no_interval():
    found = two({"a": FIRST["a"]}, {"a": SECOND["a"]})
    assert math.isnan(found["kappa"].low)
    assert found.agreement == pytest.approx(2 / 3)
    assert "no interval without a second one" in str(found)


def test_the_same_labels_twice_are_suspicious():
    with pytest.warns(SemrecallWarning, match="is one file given twice"):
        found = two(FIRST, FIRST)
    assert found.kappa == 1.0
    assert found["kappa"].low == found["kappa"].high == 1.0


def test_nothing_in_common_says_what_differs():
    other = {q: {f"doc-{d[1:]}": g for d, g in row.items()} for q, row in FIRST.items()}
    with pytest.raises(MismatchError, match="no pair of query and document in common") as caught:
        two(FIRST, other)
    assert "document ids" in (caught.value.hint or "")
    with pytest.raises(MismatchError) as caught:
        two(FIRST, {"q": {"p": 1}})
    assert caught.value.hint == "are these judgments of the same queries and documents?"
    # Two of three judges who met: the third is compared with nobody, and it is said.
    found = agree({"x": judgments(FIRST), "y": judgments(SECOND), "z": judgments({"q": {"p": 1}})})
    assert "x and z graded no pair in common" in found.notes
    assert found.pair("x", "z")["kappa"].value != found.pair("x", "z")["kappa"].value
    few = {"a": {"d1": 2, **{f"0{n}": 1 for n in range(2, 9)}}}
    many = {"a": {"d1": 2, **{str(n): 1 for n in range(2, 9)}}}
    with pytest.warns(SemrecallWarning, match=r"only 1 pair in common: document ids: .*zeros"):
        two(few, many)


def test_ids_meet_as_texts_and_numbers():
    found = two({"1": {"7": 1, "8": 0}}, {1: {7: 1, 8: 1}})
    assert found.pair().table.tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "0 judges are given"),
        ({"x": judgments(FIRST)}, "1 judges are given"),
        ([judgments(FIRST), "labels.csv"], "'judge 2' is a str; expected Judgments"),
        (judgments(FIRST), "judgments of one judge"),
        ({"x": judgments(FIRST), "y": judgments({})}, "y has no judgments"),
        ({"query_id": ["a"], "doc_id": ["d"], "grade": [1]}, "no column 'judge'"),
    ],
)
def test_wrong_input_is_named(given, message):
    with pytest.raises(InputError, match=message):
        agree(given)


def test_wrong_options_are_named():
    for options, message in (
        ({"below": 70}, "below is 70"),
        ({"measures": ["P@1"]}, "measures are given without a run"),
        ({"confidence": 95}, "confidence is 95"),
        ({"rel": math.nan}, "expected a grade"),
    ):
        with pytest.raises(InputError, match=message):
            two(**options)
    with pytest.raises(InputError, match="no judge 'z'"):
        two().pair("x", "z")
    with pytest.raises(InputError, match="no estimate 'kapa'") as caught:
        two()["kapa"]
    assert "kappa" in (caught.value.hint or "")
    with pytest.raises(InputError, match="unknown table"):
        two().rows("judges")


def test_grades_that_are_no_scale_are_not_compared():
    binary = {q: {d: min(g, 1) for d, g in row.items()} for q, row in FIRST.items()}
    found = two(binary, SECOND)
    assert "x has no grade above 1" in found.pair().no_grades
    assert "kappa_grades" not in found.pair().values
    rng = np.random.default_rng(0)
    scores = {"a": {f"d{i}": float(v) for i, v in enumerate(rng.random(50))}}
    others = {"a": {f"d{i}": float(v) for i, v in enumerate(rng.random(50))}}
    found = two(scores, others, rel=0.5)
    assert found.pair().no_grades == "100 different grades are scores rather than grades"
    # Half grades are grades.
    halves = two({"a": {"d": 0.5, "e": 1.5}}, {"a": {"d": 1.0, "e": 1.5}})
    assert halves.pair().grades.tolist() == [0.5, 1.0, 1.5]


# -- several judges -------------------------------------------------------------------------------


def test_three_judges_with_gaps():
    third = {"a": {"d1": 0, "d2": 0}, "b": {"d5": 2}}
    found = agree([judgments(FIRST), judgments(SECOND, "y"), judgments(third)])
    assert [judge.name for judge in found.judges] == ["judge 1", "y", "judge 3"]
    assert [pair.pairs for pair in found.pairs] == [5, 3, 3]
    assert found.units == 5
    with pytest.raises(InputError, match="there are 3 pairs of judges"):
        _ = found.kappa
    # Query a: d1 yes yes no (1 of 3 pairs equal), d2 no no no (3 of 3), d3 yes no (0 of 1).
    assert found.by_query[0].agreement == pytest.approx(4 / 7)
    assert found.by_query[1].agreement == 1.0
    # Nominal: 3 units of three, 2 of two: 13 labels, 7 yes and 6 no. Unequal ordered pairs within
    # units: d1 4 / 2 = 2, d3 2 / 1 = 2. 1 - 12 * 4 / (2 * 7 * 6).
    assert found.alphas["nominal"].value == pytest.approx(1 - 48 / 84)
    assert set(found.alphas) == {"nominal", "ordinal", "interval"}
    assert "most lenient: judge 1" in str(found)


def test_rows_with_a_column_judge_and_repeats_of_one():
    frame = {
        "query_id": ["a", "a", "a", "b", "a", "a", "b"],
        "doc_id": ["d", "e", "d", "f", "d", "e", "f"],
        "grade": [1, 0, 0, 2, 1, 1, None],
        "judge": ["ann", "ann", "ann", "ann", "bob", "bob", "bob"],
        "status": [None, None, None, None, None, None, "skipped"],
    }
    found = agree(frame)
    # The first grade of ann for d counts: 1 with 1; e is 0 and 1.
    assert found.pair().table.tolist() == [[1, 0], [1, 0]]
    assert found.judges[1].no_grade == {"skipped": 1}
    (own,) = found.by_self
    assert (own.judge, own.pairs, own.agreement.value) == ("ann", 1, 0.0)
    # A grade given later settles a pair that had none, and is no repeat.
    later = {key: [*column, column[-1]] for key, column in frame.items()}
    later["grade"][-1] = 2
    found = agree(later)
    assert found.judges[1].graded == 3
    assert len(found.by_self) == 1
    # Ann alone, who judged again.
    alone = agree({key: column[:4] for key, column in frame.items()})
    assert alone.pairs == ()
    assert "pairs judged again" in str(alone)
    with pytest.raises(InputError, match="all judgments are by one judge, 'bob'"):
        agree({key: column[4:] for key, column in frame.items()})
    frame["grade"] = ["yes"] * 7
    with pytest.raises(InputError, match="a grade is no number"):
        agree(frame)


# -- truth and measures ---------------------------------------------------------------------------

TRUTH = sr.Run.from_arrays(
    [["d1", "d3"], ["d5", "d9"]], [[0.9, 0.8], [0.9, 0.1]], query_ids=["a", "b"], space="ip", k=2
)
RUN = sr.Run.from_arrays(
    [["d1", "d2"], ["d9", "d5"]], [[0.9, 0.8], [0.9, 0.1]], query_ids=["a", "b"], space="ip", k=2
)


def test_a_truth_says_which_pairs_count():
    found = two(truth=TRUTH)
    # d1, d3 and d5 are exact neighbours.
    assert found.pair().table.tolist() == [[2, 1], [0, 0]]
    assert "among the exact top 2" in str(found)
    assert two(truth=TRUTH, k=1).pair().pairs == 2
    with pytest.raises(InputError, match="the truth is only 2 deep"):
        two(truth=TRUTH, k=3)
    strange = sr.Run.from_arrays([["p1"], ["p2"]], [[1.0], [1.0]], query_ids=["a", "b"], space="ip")
    with pytest.raises(MismatchError, match="no judged pair is among the exact neighbours"):
        two(truth=strange)


def test_ties_at_rank_k_stay_outside():
    tied = sr.Run.from_arrays([["d1", "d2", "d3"]], [[0.9, 0.8, 0.8]], query_ids=["a"], space="ip")
    found = two(truth=tied.replace(k=2))
    assert found.pair().pairs == 2


def test_measures_under_each_judge():
    found = two(truth=TRUTH, run=RUN, measures=["recall@2", "srecall@2"])
    rows = {(row.measure, row.labels): row for row in found.measures.rows}
    # a: d1 found of d1, d3 (x), of d1 (y); b: d5 found of d5.
    assert rows["srecall@2", "x"].mean == pytest.approx(0.75)
    assert rows["srecall@2", "y"].mean == 1.0
    assert rows["srecall@2", "y"].change == pytest.approx(0.25)
    assert rows["srecall@2", "x and y"].mean == 1.0
    assert rows["srecall@2", "x or y"].mean == pytest.approx(0.75)
    assert math.isnan(rows["srecall@2", "x"].change)
    # A measure that needs no labels stands once.
    assert [row.labels for row in found.measures.rows if row.measure == "recall@2"] == [
        "whatever the labels"
    ]
    # The same values as evaluate has.
    result = sr.evaluate(RUN, "srecall@2", truth=TRUTH, judgments=judgments(FIRST))
    assert rows["srecall@2", "x"].low == result.interval("srecall@2")[0]


def test_measures_are_relevant_from_the_same_grade():
    found = two(rel=2, truth=TRUTH, run=RUN, measures=["srecall@2", "P(rel=3)@1", "nDCG@2"])
    names = list(dict.fromkeys(row.measure for row in found.measures.rows))
    assert names == ["srecall(rel=2)@2", "P(rel=3)@1", "nDCG@2"]
    assert found.measures.by_grade
    cut = two(rel={"x": 2, "y": 1}, truth=TRUTH, run=RUN, measures=["srecall@2"])
    assert not cut.measures.by_grade
    rows = {row.labels: row for row in cut.measures.rows}
    # x says relevant to d1 and d5 alone.
    assert rows["x"].measure == "srecall@2"
    assert rows["x"].mean == 1.0
    assert "labels are 1 where a judge says relevant, else 0" in " ".join(str(cut).split())


def test_orders_of_runs_under_two_judges():
    lists = {"good": ["d1", "d3"], "bad": ["d2", "d3"], "worse": ["d2", "d9"]}
    runs = {
        name: sr.Run.from_arrays([row], query_ids=["a"], scores=[[2.0, 1.0]])
        for name, row in lists.items()
    }
    found = two(run=runs, measures=["P@2"])
    # x: d1 and d3 are relevant: 1, 0.5, 0; y: d1 alone: 0.5, 0, 0.
    (order,) = found.measures.orders
    # Of three pairs two are ordered alike, the third is tied under y: tau-b 2 / sqrt(3 * 2).
    assert order.tau == pytest.approx(2 / math.sqrt(6))
    assert (order.swapped, order.pairs) == (0, 3)
    third = {"a": {"d1": 0, "d2": 3, "d3": 3}}
    three = agree(
        {"x": judgments(FIRST), "y": judgments(SECOND), "z": judgments(third)},
        run=runs, measures="P@2",
    )  # fmt: skip
    rows = {(row.run, row.labels): row.mean for row in three.measures.rows}
    # d1 is 2, 3, 0, d2 0, 0, 3 and d3 1, 0, 3: nothing by all, d1 and d3 by most, each by any.
    assert math.isnan(rows["good", "all of them"])
    assert (rows["good", "most of them"], rows["bad", "most of them"]) == (1.0, 0.5)
    assert (rows["good", "any of them"], rows["bad", "any of them"]) == (1.0, 1.0)
    gap = sr.Judgments.from_arrays(["a"], ["d1"], [np.nan])
    with pytest.raises(InputError, match="no pair is graded by all 2 judges"):
        agree({"x": judgments(FIRST), "y": gap}, run=RUN)


# -- out ------------------------------------------------------------------------------------------


def test_tables_are_frames():
    found = two(truth=TRUTH, run=RUN)
    estimates = found.to_frame(library="arrow")
    assert "kappa" in estimates["estimate"].to_pylist()
    assert "alpha_nominal" in estimates["estimate"].to_pylist()
    assert found.to_frame("queries", "arrow").column_names == ["query", "pairs", "agreement"]
    assert found.to_frame("measures", "arrow")["labels"].to_pylist()[1:3] == ["x", "y"]
    labels = found.to_frame("labels", "arrow").to_pylist()
    assert labels[0] == {"query_id": "a", "doc_id": "d1", "x": 2, "y": 3}
    assert "kappa" in repr(found)


def test_text_fits_the_terminal_whatever_the_names(tmp_path):
    long = "a judge with <b>a very</b> long name & more of it, " * 3
    names = {long: judgments(FIRST), long + "2": judgments(SECOND)}
    for given in (names, names | {"third" * 20: judgments(SECOND, "z")}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SemrecallWarning)
            found = agree(given, truth=TRUTH, run={"one" * 30: RUN, "two": TRUTH})
        assert max(map(display_width, str(found).splitlines())) <= 100
        found.to_html(tmp_path / "page.html", command="semrecall agree <b>")
        page = (tmp_path / "page.html").read_text()
        assert "<b>" not in page
        assert "http" not in page.replace("http://www.w3.org", "")
        assert "Kendall" in page
        assert "NaN" not in page.lower().replace("nan", "NaN").split("</style>")[0]
        assert ">nan<" not in page


def test_pages_of_odd_agreements(tmp_path):
    single = two({"a": {"d": 1}}, {"a": {"d": 1}})
    frame = {"query_id": "aa", "doc_id": "dd", "grade": [1, 0], "judge": ["ann", "ann"]}
    frame = {key: list(column) for key, column in frame.items()}
    for found in (single, agree(frame)):
        found.to_html(tmp_path / "page.html", title="Odd")
        page = (tmp_path / "page.html").read_text()
        assert "<h1>Odd</h1>" in page
        assert ">nan" not in page
        assert 'nan"' not in page
        assert str(found)
        json_text(found.to_dict())


# -- real labels ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine(shared):
    path = shared("data/dl-pool/labels.parquet")
    return {
        name: read_judgments(path, grade=name)
        for name in ("umbrela_gpt4o", "umbrela_gpt4", "human")
    }


@pytest.fixture(scope="module")
def top(shared):
    docs = np.load(shared("data/dl-pool/docs.minilm.f16.npy")).astype(np.float32)
    queries = np.load(shared("data/dl-pool/queries.minilm.f32.npy"))
    doc_ids = pq.read_table(shared("data/dl-pool/docs.parquet"))["doc_id"]
    query_ids = pq.read_table(shared("data/dl-pool/queries.parquet"))["query_id"]
    base = sr.Vectors.of(docs, ids=doc_ids)
    return sr.truth(base, sr.Vectors.of(queries, ids=query_ids), 100, "ip")


def test_machine_labels_within_the_exact_top_100(machine, top):
    """UMBRELA and people, relevant from grade 2, of the first 100 neighbours those both graded."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = agree(machine, rel=2, truth=top)
    pair = found.pair("umbrela_gpt4o", "human")
    assert pair.pairs == 13_768
    assert round(pair["agreement"].value, 4) == 0.7785
    assert round(pair["kappa"].value, 3) == 0.508
    models = found.pair("umbrela_gpt4", "umbrela_gpt4o")
    assert round(models["agreement"].value, 3) == 0.869
    assert round(models["kappa"].value, 3) == 0.733
    # Half the queries would be a coin toss for some: they are listed.
    assert len(found.low) == 33


def test_three_people_on_products(shared):
    table = pacsv.read_csv(shared("data/chorus-ecommerce/ratings_individual.csv"))
    people = {
        f"person {i}": sr.Judgments.from_arrays(
            table["query"], table["docid"], table[f"agent_{i}_rating"].to_numpy().astype(float)
        )
        for i in (1, 2, 3)
    }
    found = agree(people)
    # Unweighted, of grades 0 to 3: "0.60 to 0.68"; krippendorff 0.9.0 and scikit-learn 1.9.1
    # give the same numbers.
    kappas = [round(pair["kappa_grades"].value, 4) for pair in found.pairs]
    assert kappas == [0.682, 0.6458, 0.6013]
    assert found.units == 3_188


@pytest.mark.parametrize(
    ("column", "rel", "kappa"),
    [("gpt-4o_binary_p00", 1, 0.4820), ("gpt-4o_graded_p00", 2, 0.5200)],
)
def test_prompts_against_people(shared, column, rel, kappa):
    path = shared("data/llm-labels/prompt_sensitivity_dl20.parquet")
    judged = {name: read_judgments(path, grade=name) for name in (column, "human")}
    found = agree(judged, rel={column: rel, "human": 2})
    assert found.pair().pairs == 1_690
    assert found.kappa == pytest.approx(kappa, abs=5e-5)


def test_umbrela_on_rag_2025(shared):
    path = shared("data/llm-labels/rag25_human_umbrela2.parquet")
    judged = {name: read_judgments(path, grade=name) for name in ("umbrela2", "human")}
    found = agree(judged, rel=2)
    assert (found.pair().pairs, found.queries) == (10_284, 22)
    assert found.kappa == pytest.approx(0.4310, abs=5e-5)
    assert found.pair().grades.tolist() == [0, 1, 2, 3, 4]
