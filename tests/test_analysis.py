"""analyse(): hand counts, what is left out, bounds, spaces, and real data recomputed with scipy."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

import semrecall as sr
from semrecall.analysis.text import flat_rows, headline, tables
from semrecall.errors import InputError, MismatchError
from semrecall.report.analysis import analysis_page
from semrecall.stats.ranks import clustered_interval, resampled_rank_biserial
from semrecall.text import display_width

DOCS = Path(__file__).resolve().parents[1] / "docs" / "analysis.md"


def truth_of(rows, space="ip", **options):
    """A truth from {query: {document: score}}, in the order written."""
    return sr.Run.from_arrays(
        [list(row) for row in rows.values()],
        [list(row.values()) for row in rows.values()],
        query_ids=list(rows),
        space=space,
        scores_by="exact",
        **options,
    )


SCORES = {
    "q1": {"a": 0.9, "b": 0.8, "c": 0.5, "d": 0.4, "e": 0.1},
    "q2": {"a": 0.7, "b": 0.6, "c": 0.5, "d": 0.4, "e": 0.3},
    "q3": {"f": 0.6, "g": 0.5, "h": 0.4, "i": 0.3, "j": 0.2},
    "q4": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5},
    "q5": {},
}
GRADES = {
    "q1": {"a": 2.0, "b": 0.0, "c": 1.0, "d": 0.5},  # e is unjudged
    "q2": {"a": 1, "b": 1, "c": 3, "d": 1, "e": 1, "z": 1},
    "q3": {"f": 0, "g": 0, "h": 0, "i": 0, "x": 2, "y": 1},  # j is unjudged
}


@pytest.fixture
def small():
    return sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(GRADES))


# -- hand counts ----------------------------------------------------------------------------------


def test_counts_per_query(small):
    assert list(small.queries) == ["q1", "q2", "q3"]
    assert small.semantic.tolist() == [2, 5, 0]
    assert small.judged.tolist() == [4, 5, 4]
    assert small.unjudged.tolist() == [1, 0, 1]
    # Anywhere, also beyond the neighbours: z of q2, x and y of q3.
    assert small.known_relevant.tolist() == [2, 6, 2]


def test_queries_without_neighbours_or_judgments_are_left_out_and_counted(small):
    assert dict(small.left_out) == {"no exact neighbour": 1, "no judged neighbour": 1}
    assert "left out: 1 query, no judged neighbour" in small.remarks()


def test_scores_per_query(small):
    # q1: semantic a, c: (0.9 + 0.5)/2 = 0.7; others b, d: 0.6; e is neither. Falls 0.9 - 0.1.
    assert small.semantic_score[0] == pytest.approx(0.7)
    assert small.other_score[0] == pytest.approx(0.6)
    assert small.delta[0] == pytest.approx(0.1)
    assert small.drop[0] == pytest.approx(0.8)
    assert small.relative[0] == pytest.approx(0.125)
    # a above b and d, c above d, c below b: (3 - 1)/4.
    assert small.r[0] == 0.5
    # q2 has only semantic ones, q3 only others: one mean each, and nothing to compare.
    assert small.semantic_score[1] == pytest.approx(0.5)
    assert small.other_score[2] == pytest.approx((0.6 + 0.5 + 0.4 + 0.3) / 4)
    for values in (small.delta, small.relative, small.r):
        assert np.isnan(values).tolist() == [False, True, True]


def test_distribution(small):
    found = small.distribution
    assert found.counts.tolist() == [1, 0, 1, 0, 0, 1]
    assert found.cumulative.tolist() == [1 / 3, 1 / 3, 2 / 3, 2 / 3, 2 / 3, 1]
    assert found.number.mean == pytest.approx(7 / 3)
    # The unjudged e of q1 and j of q3 could be relevant: (3 + 5 + 1)/3.
    assert (found.least, found.most) == (pytest.approx(7 / 3), 3)
    assert found.percentiles[50] == 2
    # Deviations -1/3, 8/3, -7/3: (1 + 64 + 49)/9/2.
    assert found.sd == pytest.approx(math.sqrt(19 / 3))


def test_groups(small):
    # k = 5: 0; fewer than 1 does not exist; 1 to 3; 4 and 5.
    whole, none, some, many = small.groups
    assert [g.group for g in small.groups] == ["", "0", "1-3", "4-5"]
    assert [g.queries for g in small.groups] == [3, 1, 1, 1]
    assert (whole.semantic_pairs, whole.other_pairs, whole.unjudged_pairs) == (7, 6, 2)
    assert (none.semantic_pairs, none.other_pairs, none.unjudged_pairs) == (0, 4, 1)
    # Over q1 and q2; over q1 and q3; over q1 alone.
    assert whole.semantic.mean == pytest.approx(0.6)
    assert whole.others.mean == pytest.approx((0.6 + 0.45) / 2)
    assert (whole.delta.mean, whole.delta.queries) == (pytest.approx(0.1), 1)
    assert math.isnan(whole.delta.low)
    assert whole.drop.mean == pytest.approx((0.8 + 0.4 + 0.4) / 3)
    assert whole.judged.mean == pytest.approx((0.8 + 1 + 0.8) / 3)
    assert math.isnan(none.semantic.mean)
    assert (many.semantic.mean, some.number.mean) == (pytest.approx(0.5), 2)


def test_shares_of_groups_have_bounds(small):
    # q1 has 2 or 3, q2 has 5, q3 has 0 or 1.
    bounds = {g.group: (g.share.least, g.share.most) for g in small.groups[1:]}
    assert bounds == {"0": (0, 1 / 3), "1-3": (1 / 3, 2 / 3), "4-5": (1 / 3, 1 / 3)}
    assert small.groups[1].share.value == 1 / 3
    # Wilson for 1 of 3, z = 1.96: centre (1 + z2/2)/(3 + z2).
    assert small.groups[1].share.low == pytest.approx(0.0615, abs=1e-4)


def test_correlation(small):
    found = small.correlation
    assert (found.within.mean, found.within.queries) == (0.5, 1)
    assert math.isnan(found.p)  # one query tests nothing
    assert (found.positive, found.significant) == (1, 0)
    # Semantic .9 .5 | .7 .6 .5 .4 .3, others .8 .4 | .6 .5 .4 .3. Others below each, ties half:
    # .9: 6; .5: 3.5 (.4 .4 .3, and .5 is tied); .7: 5; .6: 4.5; .5: 3.5; .4: 2; .3: 0.5.
    u = 6 + 3.5 + 5 + 4.5 + 3.5 + 2 + 0.5
    assert found.pooled == pytest.approx(2 * u / 42 - 1)
    assert (found.semantic_pairs, found.other_pairs) == (7, 6)
    semantic, others = [0.9, 0.5, 0.7, 0.6, 0.5, 0.4, 0.3], [0.8, 0.4, 0.6, 0.5, 0.4, 0.3]
    assert found.pooled_p == pytest.approx(mannwhitneyu(semantic, others).pvalue)


def test_bands(small):
    # Five bands of one rank. Rank 1: a of q1, a of q2 relevant, f not: 2/3.
    assert [(b.first, b.last) for b in small.bands] == [(r, r) for r in range(1, 6)]
    assert [b.relevant.mean for b in small.bands] == pytest.approx([2 / 3, 1 / 3, 2 / 3, 1 / 3, 1])
    # Rank 5 is judged in q2 alone.
    last = small.bands[-1]
    assert (last.pairs, last.judged, last.relevant.queries) == (3, 1, 1)
    assert (last.least, last.most) == (1 / 3, 1)


def test_bands_of_several_ranks():
    rows = {"q": {str(i): 100.0 - i for i in range(25)}}
    found = sr.analyse(truth_of(rows), sr.Judgments.from_dict({"q": {"0": 1, "24": 1}}))
    assert [(b.first, b.last) for b in found.bands] == [
        (1, 3), (4, 5), (6, 8), (9, 10), (11, 13), (14, 15), (16, 18), (19, 20), (21, 23), (24, 25)
    ]  # fmt: skip
    assert sum(b.pairs for b in found.bands) == 25
    assert math.isnan(found.bands[1].relevant.mean)


def test_queries_without_a_relevant_neighbour(small):
    (barren,) = small.without_relevant
    assert (barren.query, barren.judged, barren.unjudged) == ("q3", 4, 1)
    assert barren.relevant_elsewhere == 2
    assert [(n.document, n.rank, n.score, n.grade) for n in barren.nearest] == [
        ("f", 1, 0.6, 0), ("g", 2, 0.5, 0), ("h", 3, 0.4, 0)
    ]  # fmt: skip


def test_the_best_judged_come_first_and_have_texts():
    rows = {"1": SCORES["q3"], "2": SCORES["q3"]}
    grades = {"1": {"f": 0}, "2": {"f": 0, "g": 0}}
    found = sr.analyse(
        truth_of(rows),
        sr.Judgments.from_dict(grades),
        query_texts={1: "one", 2: "two"},
        document_texts={"g": "text of g"},
    )
    assert [b.text for b in found.without_relevant] == ["two", "one"]
    assert [n.text for n in found.without_relevant[0].nearest] == ["", "text of g", ""]
    shown = str(found)
    assert "  2: two\n" in shown
    assert "2.  g  0.5000  unjudged  text of g" in shown.split("\n  1: one\n")[1]


def test_texts_of_other_ids_are_noted():
    found = sr.analyse(
        truth_of(SCORES),
        sr.Judgments.from_dict(GRADES),
        query_texts={"query-1": "one"},
        document_texts={"f": "known", "unknown": ""},
    )
    said = [line for line in found.remarks() if "texts" in line]
    assert said == [
        "none of the 1 texts of queries has an id that is asked for: texts have ids like "
        "'query-1', the truth 'q1'"
    ]


# -- settings -------------------------------------------------------------------------------------


def test_rel_is_a_threshold_on_float_grades():
    truth, judgments = truth_of(SCORES), sr.Judgments.from_dict(GRADES)
    assert sr.analyse(truth, judgments, rel=0.5).semantic.tolist() == [3, 5, 0]
    assert sr.analyse(truth, judgments, rel=2).semantic.tolist() == [1, 1, 0]
    assert sr.analyse(truth, judgments, rel=-1).semantic.tolist() == [4, 5, 4]
    with pytest.raises(InputError, match="rel is nan"):
        sr.analyse(truth, judgments, rel=float("nan"))


def test_k_cuts():
    found = sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(GRADES), k=2)
    assert found.semantic.tolist() == [1, 2, 0]
    assert found.neighbours.tolist() == [2, 2, 2]
    assert found.drop.tolist() == pytest.approx([0.1, 0.1, 0.1])
    assert [g.group for g in found.groups] == ["", "0", "1", "2"]
    assert [n.rank for n in found.without_relevant[0].nearest] == [1, 2]


@pytest.mark.parametrize(
    ("k", "said"), [(0, "k is 0; expected at least 1"), (6, "truth is known to depth 5")]
)
def test_k_must_be_within_the_truth(k, said):
    with pytest.raises(InputError, match=said):
        sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(GRADES), k=k)


def test_one_neighbour():
    found = sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(GRADES), k=1)
    assert [g.group for g in found.groups] == ["", "0", "1"]
    assert np.isnan(found.drop).all()
    assert math.isnan(found.correlation.within.mean)
    # Pooled: semantic .9, .7; other .6.
    assert found.correlation.pooled == 1


def test_exhaustive_judgments_leave_nothing_unjudged():
    judgments = sr.Judgments.from_dict(GRADES | {"q4": {"nothing": 1}})
    found = sr.analyse(truth_of(SCORES), judgments, exhaustive=True)
    assert found.judged.tolist() == [5, 5, 5, 5]
    assert found.semantic.tolist() == [2, 5, 0, 0]
    # Now e, at 0.1, is one of the others of q1: (0.8 + 0.4 + 0.1)/3.
    assert found.other_score[0] == pytest.approx(1.3 / 3)
    assert found.distribution.most == found.distribution.least
    near = found.without_relevant[1].nearest[0]
    assert (near.document, near.judged, math.isnan(near.grade)) == ("a", True, True)
    assert "1.  a  0.9000  not named" in str(found)
    # A query nobody judged stays unjudged.
    only = sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(GRADES), exhaustive=True)
    assert only.left_out["no judged neighbour"] == 1


def test_a_judgment_without_a_grade_is_never_a_no():
    grades = {"q1": {"a": 1, "b": math.nan}, "q2": {"a": math.nan}}
    for exhaustive, judged in ((False, [1]), (True, [4, 4])):
        found = sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(grades), exhaustive=exhaustive)
        assert found.judged.tolist() == judged
        assert found.unjudged[0] == 5 - judged[0]
        assert found.ungraded == len(judged)
    assert "(2 of them judged to no grade)" in "\n".join(found.remarks())


# -- scores ---------------------------------------------------------------------------------------


def distances(rows):
    """The same neighbours by a distance that falls as the score rises."""
    return {q: {d: 2 - 2 * s for d, s in row.items()} for q, row in rows.items()}


def test_positive_means_nearer_in_every_space(small):
    judgments = sr.Judgments.from_dict(GRADES)
    far = sr.analyse(truth_of(distances(SCORES), "l2"), judgments)
    # Distances are 2 - 2s: semantic 0.6, others 0.8 of q1; everything doubled, nothing turned.
    assert far.semantic_score[0] == pytest.approx(0.6)
    assert far.other_score[0] == pytest.approx(0.8)
    np.testing.assert_allclose(far.delta, 2 * small.delta)
    np.testing.assert_allclose(far.drop, 2 * small.drop)
    np.testing.assert_allclose(far.relative, small.relative)
    np.testing.assert_array_equal(far.r, small.r)
    assert far.correlation.pooled == small.correlation.pooled
    assert "scores are distances" in "\n".join(far.remarks())
    assert sr.analyse(truth_of(SCORES, "cosine"), judgments).delta[0] == small.delta[0]


def test_equal_scores_tell_nothing_apart():
    # A mean of three times 0.1 by summing would be 0.10000000000000002.
    rows = {q: dict.fromkeys(SCORES["q1"], 0.1) for q in ("q1", "q2")}
    grades = {"q1": {"a": 1, "b": 0}, "q2": {"c": 1, "d": 0, "a": 0, "b": 0}}
    found = sr.analyse(truth_of(rows), sr.Judgments.from_dict(grades))
    assert found.delta.tolist() == [0, 0]
    assert found.drop.tolist() == [0, 0]
    assert np.isnan(found.relative).all()
    assert found.r.tolist() == [0, 0]
    assert (found.correlation.p, found.correlation.pooled_p) == (1, 1)
    assert found.correlation.pooled_low == found.correlation.pooled_high == 0


def test_ties_at_k_are_noted():
    rows = {"q": {"a": 0.9, "b": 0.5, "c": 0.5, "d": 0.1}}
    judgments = sr.Judgments.from_dict({"q": {"a": 1, "b": 0}})
    said = "\n".join(sr.analyse(truth_of(rows), judgments, k=2).remarks())
    assert "in 1 query the neighbour at rank 2 is tied with the next" in said
    assert "tied" not in "\n".join(sr.analyse(truth_of(rows), judgments, k=3).remarks())


def test_a_missing_score_is_no_neighbour():
    rows = {"q1": {"a": 0.9, "b": math.nan, "c": 0.5, "d": 0.4}}
    found = sr.analyse(truth_of(rows), sr.Judgments.from_dict({"q1": {"b": 1, "c": 1, "d": 0}}))
    # b is out, so c moves up to rank 2 and is the only semantic one.
    assert found.semantic.tolist() == [1]
    assert found.neighbours.tolist() == [3]
    assert found.delta[0] == pytest.approx(0.1)
    assert [b.pairs for b in found.bands] == [1, 1, 1, 0]
    assert "1 neighbour of the truth without a score (NaN), left out" in found.remarks()


def test_a_missing_score_is_not_among_the_nearest():
    rows = {"q": {"a": math.nan, "b": 0.8, "c": 0.5}}
    (barren,) = sr.analyse(truth_of(rows), sr.Judgments.from_dict({"q": {"b": 0}})).without_relevant
    assert [(n.document, n.rank, n.score) for n in barren.nearest] == [("b", 1, 0.8), ("c", 2, 0.5)]


def test_all_scores_missing_leaves_every_query_out():
    rows = {"q1": {"a": math.nan}}
    found = sr.analyse(truth_of(rows), sr.Judgments.from_dict({"q1": {"a": 1}}))
    assert len(found) == 0
    assert dict(found.left_out) == {"no exact neighbour": 1}


@pytest.mark.parametrize("space", [None, "ip"])
def test_without_usable_scores_counts_remain(space):
    truth = truth_of(SCORES, space)
    truth = truth.replace(flat_scores=None) if space else truth.replace(space=None)
    found = sr.analyse(truth, sr.Judgments.from_dict(GRADES))
    assert found.semantic.tolist() == [2, 5, 0]
    assert np.isnan(found.r).all()
    assert np.isnan(found.delta).all()
    assert math.isnan(found.correlation.pooled)
    assert len(found.without_relevant) == 1
    said = "does not say which scores are nearer" if space is None else "has no scores"
    assert said in str(found)
    assert "rank-biserial" not in str(found)
    assert "How near they are" in analysis_page(found)


def test_a_truth_that_cannot_be_used_is_left_out_with_its_reason():
    truth = truth_of(SCORES).replace(reasons=("NaN query vector", "", "", "", ""))
    found = sr.analyse(truth, sr.Judgments.from_dict(GRADES))
    assert list(found.queries) == ["q2", "q3"]
    assert found.left_out["NaN query vector"] == 1


# -- few queries ----------------------------------------------------------------------------------


def everywhere(found):
    """All that can be printed of an analysis."""
    json.dumps(found.to_dict(), default=str)
    page = analysis_page(found)
    assert "nan" not in page.replace("(NaN)", "").lower().split()
    return "\n".join([str(found), repr(found), headline(found), str(flat_rows(found))])


@pytest.mark.parametrize("query", ["q1", "q2", "q3"])
def test_one_query(query):
    truth = truth_of({query: SCORES[query]})
    found = sr.analyse(truth, sr.Judgments.from_dict({query: GRADES[query]}))
    assert len(found) == 1
    assert math.isnan(found.distribution.sd)
    assert math.isnan(found.distribution.number.low)
    assert math.isnan(found.correlation.pooled_low)
    everywhere(found)


@pytest.mark.parametrize("query", ["q4", "q5"])
def test_no_query(query):
    truth = truth_of({query: SCORES[query]}, k=5)
    found = sr.analyse(truth, sr.Judgments.from_dict({query: {"z": 1, "e": math.nan}}))
    assert len(found) == 0
    assert "No query could be analysed" in everywhere(found)
    assert tables(found) == []


def test_an_empty_truth_has_no_k():
    with pytest.raises(InputError, match="no neighbours of any query"):
        sr.analyse(truth_of({"q5": {}}), sr.Judgments.from_dict(GRADES | {"q5": {"a": 1}}))


def test_only_relevant_and_only_irrelevant():
    truth = truth_of({"q2": SCORES["q2"]})
    yes = sr.analyse(truth, sr.Judgments.from_dict({"q2": dict.fromkeys("abcde", 1)}))
    no = sr.analyse(truth, sr.Judgments.from_dict({"q2": dict.fromkeys("abcde", 0)}))
    for found in (yes, no):
        assert math.isnan(found.correlation.pooled)
        assert math.isnan(found.groups[0].delta.mean)
    assert "every query has a relevant neighbour" in everywhere(yes)
    assert "1 of 1 query has none" in everywhere(no)


# -- inputs that do not fit -----------------------------------------------------------------------


def test_ids_of_documents_that_do_not_meet():
    judgments = sr.Judgments.from_dict({"q1": {"doc-1": 1, "doc-2": 0}})
    with pytest.raises(MismatchError, match="no neighbour in the truth has a judgment") as error:
        sr.analyse(truth_of({"q1": {"1": 0.5, "2": 0.4}}), judgments)
    assert "a prefix" in error.value.hint


def test_ids_of_queries_that_do_not_meet():
    with pytest.raises(MismatchError, match="none of the 5 queries"):
        sr.analyse(truth_of(SCORES), sr.Judgments.from_dict({"x": {"a": 1}}))


def test_judgments_of_other_queries_are_noted():
    found = sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(GRADES | {"q9": {"a": 1}}))
    assert "1 judged query not in the truth, left out" in found.remarks()


def test_no_judgments():
    empty = sr.Judgments.from_arrays([], [], [])
    with pytest.raises(InputError, match="judgments are empty"):
        sr.analyse(truth_of(SCORES), empty)


# -- a run, and slices ----------------------------------------------------------------------------


def test_a_run_beside_it():
    run = sr.Run.from_arrays(
        [["a", "d", "x", "y", "z"], ["a", "b", "c", "d", "w"]], query_ids=["q1", "q2"], space="ip"
    )
    truth, judgments = truth_of(SCORES), sr.Judgments.from_dict(GRADES)
    found = sr.analyse(truth, judgments, run=run)
    # q1: a and d of 5, a of the semantic a and c; q2: 4 of 5 and 4 of 5; q3 is not answered.
    assert found.found.recall.tolist() == pytest.approx([0.4, 0.8, 0])
    assert found.found.srecall[:2].tolist() == pytest.approx([0.5, 0.8])
    assert math.isnan(found.found.srecall[2])
    assert [b.found.mean for b in found.bands] == pytest.approx([2 / 3, 1 / 3, 1 / 3, 2 / 3, 0])
    # Semantic at rank 3: c of q1 missed, c of q2 found.
    assert found.bands[2].found_semantic.mean == 0.5
    said = "\n".join(found.remarks())
    assert "1 query not answered by the run" in said
    result = sr.evaluate(run, ["recall@5", "srecall@5"], truth=truth, judgments=judgments)
    some = found.groups[2]
    assert (some.recall.mean, some.srecall.mean) == (0.4, 0.5)
    assert found.found.recall.tolist() == result["recall@5"].values[:3].tolist()
    # The neighbours themselves are the truth's, run or not.
    assert found.r[0] == 0.5
    assert "semantic found" in everywhere(found)


def test_only_the_first_k_results_of_a_run_count():
    run = sr.Run.from_arrays([["x", "y", "a", "b", "z"]], query_ids=["q1"], space="ip")
    truth, judgments = truth_of({"q1": SCORES["q1"]}), sr.Judgments.from_dict(GRADES)
    found = sr.analyse(truth, judgments, run=run, k=3)
    # Of a, b and c the first three results hold a.
    assert [b.found.mean for b in found.bands] == [1, 0, 0]
    assert found.found.recall[0] == pytest.approx(1 / 3)


def test_slices():
    columns = {"query_id": ["q1", "q2", "q3"], "lang": ["en", "th", "en"]}
    found = sr.analyse(
        truth_of(SCORES), sr.Judgments.from_dict(GRADES), columns=columns, by=["lang", "sn"]
    )
    english, thai = found.by("lang")
    assert (english.group, english.queries, english.number.mean) == ("en", 2, 1)
    assert (thai.group, thai.number.mean, thai.share.value) == ("th", 5, 1 / 3)
    assert found.by("sn") == found.groups[1:]
    assert [row["lang"] for row in found.per_query()] == ["en", "th", "en"]
    assert "by lang" in everywhere(found)
    with pytest.raises(InputError, match="not sliced by 'language'") as error:
        found.by("language")
    assert "lang" in error.value.hint
    with pytest.raises(InputError, match="no column 'year'"):
        sr.analyse(truth_of(SCORES), sr.Judgments.from_dict(GRADES), columns=columns, by="year")


# -- as data --------------------------------------------------------------------------------------


def test_the_document_and_the_rows_say_the_same(small):
    document = small.to_dict()
    assert document["groups"][0]["delta"]["mean"] == small.groups[0].delta.mean
    assert document["distribution"]["counts"] == [1, 0, 1, 0, 0, 1]
    assert document["without_relevant"][0]["nearest"][0]["document"] == "f"
    rows = {(r["part"], r["group"], r["statistic"]): r for r in flat_rows(small)}
    assert rows["groups", "1-3", "delta"]["value"] == pytest.approx(0.1)
    assert rows["bands", "5-5", "relevant_bounds"]["high"] == 1
    assert rows["correlation", "", "pooled"]["value"] == document["correlation"]["pooled"]


def test_a_frame_has_a_row_per_query(small):
    frame = small.to_frame("arrow")
    assert frame["query_id"].to_pylist() == ["q1", "q2", "q3"]
    assert frame["r"].to_pylist()[0] == 0.5


def test_tables_fit_a_terminal():
    rng = np.random.default_rng(0)
    rows = {
        f"q{i}": dict(zip(map(str, range(100)), 1000 + np.sort(rng.random(100)) * 99, strict=True))
        for i in range(30)
    }
    grades = {q: {d: float(rng.random() < 0.3) for d in list(row)[:90]} for q, row in rows.items()}
    columns = {"query_id": list(rows), "a column of some length": ["a very long label " * 3] * 30}
    found = sr.analyse(
        truth_of(rows, "l2"), sr.Judgments.from_dict(grades), run=truth_of(rows, "l2"),
        columns=columns, by="a column of some length",
    )  # fmt: skip
    for table in tables(found):
        assert len({len(row) for row in (table.heads, *table.rows)}) == 1
    assert max(map(display_width, str(found).split("\n"))) <= 100


def test_the_page_is_the_same_each_time_and_asks_nothing(small):
    page = analysis_page(small, command="semrecall analyse <x>")
    assert page == analysis_page(small, command="semrecall analyse <x>")
    assert "semrecall analyse &lt;x&gt;" in page
    assert "2.3 of the 5 exact neighbours of a query matter on average" in page
    assert "1 of 3 queries has none" in page
    assert page.count("<svg") == 5
    for outside in ("http://", "https://", "src=", "@import", "<script"):
        assert outside not in page.replace("http://www.w3.org", "")


def test_texts_on_the_page_are_escaped():
    found = sr.analyse(
        truth_of({"q3": SCORES["q3"]}),
        sr.Judgments.from_dict({"q3": GRADES["q3"]}),
        query_texts={"q3": "<script>alert(1)</script>"},
        document_texts={"f": "<img src=x>"},
    )
    page = analysis_page(found)
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;img src=x&gt;" in page


# -- the slow definition --------------------------------------------------------------------------

ROW = st.lists(
    st.tuples(st.integers(-3, 3), st.sampled_from([None, 0.0, 0.4, 1.0, 2.0])),
    min_size=1,
    max_size=8,
)


@given(st.lists(ROW, min_size=1, max_size=4), st.sampled_from(["ip", "cosine", "l2"]))
def test_it_is_the_slow_definition(rows, space):
    turn = -1 if space == "l2" else 1
    rows = [sorted(row, key=lambda pair: -turn * pair[0]) for row in rows]
    truth = truth_of({q: {d: s for d, (s, _) in enumerate(row)} for q, row in enumerate(rows)},
                     space)  # fmt: skip
    graded = {q: {d: g for d, (_, g) in enumerate(row) if g is not None}
              for q, row in enumerate(rows)}  # fmt: skip
    graded = {q: row for q, row in graded.items() if row}
    if not graded:
        return
    found = sr.analyse(truth, sr.Judgments.from_dict(graded))
    assert list(found.queries) == list(graded)
    pairs = [0, 0, 0]
    for at, q in enumerate(graded):
        yes = [s for s, g in rows[q] if g is not None and g >= 1]
        no = [s for s, g in rows[q] if g is not None and g < 1]
        assert found.semantic[at] == len(yes)
        assert found.unjudged[at] == len(rows[q]) - len(yes) - len(no)
        pairs = [pairs[0] + len(yes), pairs[1] + len(no), pairs[2] + int(found.unjudged[at])]
        if not (yes and no):
            assert np.isnan(found.r[at])
            continue
        apart = sum(turn * np.sign(a - b) for a in yes for b in no)
        assert found.r[at] == pytest.approx(apart / (len(yes) * len(no)))
        assert found.delta[at] == pytest.approx(turn * (np.mean(yes) - np.mean(no)), abs=1e-12)
    whole = found.groups[0]
    assert [whole.semantic_pairs, whole.other_pairs, whole.unjudged_pairs] == pairs
    assert sum(g.queries for g in found.groups[1:]) == len(found)
    for group in found.groups[1:]:
        assert group.share.least <= group.share.value <= group.share.most


# -- real data ------------------------------------------------------------------------------------


def dl_pool(shared):
    docs = pq.read_table(shared("data/dl-pool/docs.parquet"))["doc_id"]
    queries = pq.read_table(shared("data/dl-pool/queries.parquet"))["query_id"]
    base = np.load(shared("data/dl-pool/docs.minilm.f16.npy")).astype(np.float32)
    truth = sr.truth(
        sr.Vectors.of(base, ids=docs),
        sr.Vectors.of(np.load(shared("data/dl-pool/queries.minilm.f32.npy")), ids=queries),
        100,
        "ip",
    )
    labels = pq.read_table(shared("data/dl-pool/labels.parquet"))
    labels = labels.filter(labels["human"].is_valid())
    grades = labels["human"].to_numpy().astype(float)
    return truth, sr.Judgments.from_arrays(labels["query_id"], labels["doc_id"], grades), 2


def cranfield(shared):
    truth = sr.truth(
        sr.Vectors.of(
            np.load(shared("data/cranfield/docs.minilm.f32.npy")),
            ids=pq.read_table(shared("data/cranfield/docs.parquet"))["doc_id"],
        ),
        sr.Vectors.of(
            np.load(shared("data/cranfield/queries.minilm.f32.npy")),
            ids=pq.read_table(shared("data/cranfield/queries.parquet"))["query_id"],
        ),
        20,
        "cosine",
    )
    return truth, sr.read(shared("data/cranfield/qrels.txt")), 1


@pytest.mark.parametrize("data", [dl_pool, cranfield])
def test_real_data_recomputed_with_scipy(shared, data):
    truth, judgments, rel = data(shared)
    exhaustive = data is cranfield
    found = sr.analyse(truth, judgments, rel=rel, exhaustive=exhaustive)
    known = dict(zip(zip(map(str, judgments.queries), map(str, judgments.documents), strict=True),
                     judgments.grades.tolist(), strict=True))  # fmt: skip
    pooled, clusters = ([], []), ([], [])
    deltas, rs, counts = [], [], []
    for query, row, scores in zip(truth.queries, truth.ids, truth.scores, strict=True):
        sides = ([], [])
        for document, score in list(zip(row.tolist(), scores.tolist(), strict=True))[: found.k]:
            grade = known.get((str(query), str(document)), 0.0 if exhaustive else None)
            if grade is not None:
                sides[grade < rel].append(score)
        counts.append(len(sides[0]))
        for side, owners, values in zip(pooled, clusters, sides, strict=True):
            side.extend(values)
            owners.extend([len(counts) - 1] * len(values))
        if all(sides):
            deltas.append(np.mean(sides[0]) - np.mean(sides[1]))
            u = mannwhitneyu(*sides).statistic
            rs.append(2 * u / (len(sides[0]) * len(sides[1])) - 1)
    assert found.semantic.tolist() == counts
    assert found.groups[0].delta.mean == pytest.approx(np.mean(deltas))
    assert found.correlation.within.mean == pytest.approx(np.mean(rs))
    test = mannwhitneyu(*pooled)
    r = 2 * test.statistic / (len(pooled[0]) * len(pooled[1])) - 1
    assert found.correlation.pooled == pytest.approx(r)
    assert found.correlation.pooled_p == pytest.approx(test.pvalue, rel=1e-9)
    drawn = resampled_rank_biserial(
        [*pooled[0], *pooled[1]],
        [*[True] * len(pooled[0]), *[False] * len(pooled[1])],
        [*clusters[0], *clusters[1]],
        len(counts),
    )  # fmt: skip
    interval = clustered_interval(drawn, len(counts))
    assert (found.correlation.pooled_low, found.correlation.pooled_high) == pytest.approx(interval)
    # The page of documentation tells these very numbers.
    page = DOCS.read_text()
    for value in (found.groups[0].delta.mean, found.correlation.within.mean, r):
        assert f"{value:.4f}" in page
    assert f"{found.distribution.number.mean:.2f}" in page
