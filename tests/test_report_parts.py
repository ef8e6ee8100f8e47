"""Parts of the report: every number is the API's, golden HTML, figures as files, the command."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_report as small
from test_sweep import sweep

import semrecall as sr
from semrecall.errors import InputError
from semrecall.report import figures_of, html_report
from semrecall.report.advice import advice, advice_section
from semrecall.report.charts import Column, distributions
from semrecall.report.drill import Texts, worst_queries
from semrecall.report.headline import facts, headline, percent
from semrecall.report.parts import table
from semrecall.report.pictures import score_errors
from semrecall.report.summary import slice_table
from semrecall.report.tolerances import curve_of, tolerances
from semrecall.report.tuning_charts import Mark, curves
from semrecall.report.waterfall import group_tables, picture
from semrecall.text import number, share
from semrecall.tuning.saved_sweep import Cost, SavedSweep, read_sweep

pytest.importorskip("matplotlib", reason="needs matplotlib")

#: Two queries, their exact three, what an index found; a repeat and a result without a score.
TRUTH = sr.Run.from_arrays(
    [["a", "b", "c"], ["x", "y", "z"]], [[4.0, 3.0, 2.0], [5.0, 4.0, 1.0]], query_ids=["q1", "q2"],
    space="ip", k=3,
)  # fmt: skip
FOUND = sr.Run.from_arrays(
    [["b", "b", "n", "a"], ["x", "y", "z", ""]],
    [[3.0, 3.0, 2.5, np.nan], [5.0, 4.0, 1.0, np.nan]],
    query_ids=["q1", "q2"], space="ip", name="ivf",
)  # fmt: skip
LABELS = sr.Judgments.from_dict(
    {"q1": {"a": 2, "b": 0, "c": 1, "n": 1, "far": 1}, "q2": {"x": 1, "y": 0, "z": 0}}
)
MEASURES = ["recall@3", "srecall@3", "trecall(x=1%)@3"]


def tiny(**more: Any) -> sr.Result:
    return sr.evaluate(FOUND, MEASURES, truth=TRUTH, judgments=LABELS, **more)


def cells(html: str) -> list[list[str]]:
    """The rows of the tables in some HTML, as texts."""
    return [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[dh].*?</t[dh]>", row)]
        for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    ]


# -- single queries -------------------------------------------------------------------------------


def test_each_result_has_its_rank_true_rank_grade_and_score():
    first, second = tiny().found(0)
    # The second b is a repeat, a has no score: neither counts.
    assert (first.document, first.rank, first.true_rank, first.grade, first.score) == (
        "b", 1, 2, 0.0, 3.0,
    )  # fmt: skip
    assert (second.document, second.rank, second.true_rank, second.grade, second.score) == (
        "n", 2, 0, 1.0, 2.5,
    )  # fmt: skip
    assert [one.document for one in tiny().found(1)] == ["x", "y", "z"]
    absent = sr.evaluate(FOUND.select([0]), ["recall@3"], truth=TRUTH)
    assert absent.found(1) == []
    assert np.isnan(absent.found(0)[0].grade)


def test_the_drill_down_of_a_worst_query_is_golden():
    # trecall: b is itself, and n (2.5) stands in for c (2.0): 2 of 3.
    html = worst_queries(tiny(), Texts({"q1": "what <is> it?"}, {"c": "สวัสดี & <b>"}))
    assert html == (
        "<h2>Worst queries</h2><p>The 1 query with the lowest srecall@3: open one to see what it "
        'missed and what it got.</p><details><summary><strong dir="auto">q1</strong> '
        '<span dir="auto">what &lt;is&gt; it?</span> <span class="figures">recall@3 0.333, '
        "srecall@3 0.000, trecall(x=1%)@3 0.667</span></summary><p>2 true neighbours missed.</p>"
        '<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">true rank</th>'
        '<th scope="col">grade</th><th scope="col" class="text">document</th><th scope="col" '
        'class="text">text</th></tr></thead><tbody><tr><td>1</td><td>2</td><td class="text">a</td>'
        '<td class="text long" dir="auto"></td></tr><tr><td>3</td><td>1</td><td class="text">c'
        '</td><td class="text long" dir="auto">สวัสดี &amp; &lt;b&gt;</td></tr></tbody></table>'
        '</div><p>2 results returned.</p><div class="scroll" tabindex="0"><table><thead><tr>'
        '<th scope="col">rank</th><th scope="col">true rank</th><th scope="col">grade</th>'
        '<th scope="col">score</th><th scope="col" class="text">document</th></tr></thead><tbody>'
        '<tr><td>1</td><td>2</td><td>0</td><td>3.0000</td><td class="text">b</td></tr>'
        '<tr><td>2</td><td>-</td><td>1</td><td>2.5000</td><td class="text">n</td></tr></tbody>'
        "</table></div></details>"
    )


# -- golden parts and numbers ---------------------------------------------------------------------


def test_what_stages_lose_says_of_what():
    # Of 100 known the cut at k and the model lose 12.5 each, the index 25 of the 75 that reach it.
    shown = picture(sr.waterfall(LABELS, truth=TRUTH, runs=FOUND))
    said = "the index loses 25 of 100 that are known, which is 33.3% of the 75 that reach it."
    assert f"{said}</p>" in shown
    assert ">the embedding model</th>" in shown


def test_tolerant_recall_that_is_above_from_the_start_says_so():
    ways = sr.tolerance(TRUTH, 3, run=FOUND, judgments=LABELS)
    assert ways["semantic"].x == 0
    said = tolerances(sr.evaluate(FOUND, MEASURES, truth=TRUTH, judgments=LABELS))
    assert "It is above semantic recall, 0.500, at every x." in said
    assert "It meets" not in said
    assert " over the 2 queries with a semantic neighbour." in said


def test_recall_without_tolerance_says_over_which_queries():
    # Recall 1/2 and 1; only the first query has a relevant neighbour.
    exact = sr.Run.from_arrays([[1, 2], [3, 4]], [[9.0, 8.0], [9.0, 8.0]], space="ip", k=2)
    found = sr.Run.from_arrays([[1, 5], [3, 4]], [[9.0, 1.0], [9.0, 8.0]], space="ip", k=2)
    labels = sr.Judgments.from_dict({0: {1: 1, 2: 0}, 1: {3: 0, 4: 0}})
    said = tolerances(sr.evaluate(found, ["recall@2", "srecall@2"], truth=exact, judgments=labels))
    over = "0.500 over the 1 query with a semantic neighbour (0.750 over all)"
    assert f"Without tolerance it is plain recall, {over}." in said


def test_widths_of_distributions_share_one_scale():
    few, many = np.full(1, 0.5), np.full(20, 0.5)
    found = figures_of(
        lambda: distributions("d", "", [Column("few", few), Column("many", many)], 0, 0.0)
    )
    narrow, wide = (bar.get_width() for bar in found["d"].axes[0].patches)
    assert wide == pytest.approx(20 * narrow, rel=0.06)


def test_long_labels_and_ticks_are_whole():
    columns = [Column(name, np.array([0.7])) for name in ("context precision", "b", "c", "d")]
    axes = figures_of(lambda: distributions("d", "", columns, 0, 0.6))["d"].axes[0]
    assert axes.get_xticklabels()[0].get_text() == "context\nprecision"
    assert axes.get_yticks().tolist() == pytest.approx([0.6, 0.7, 0.8, 0.9, 1.0])


def test_costs_stand_in_words_and_their_unit_on_an_axis():
    series = [("a", [Mark(0.002, 0.5), Mark(0.02, 0.9)])]
    figures = figures_of(lambda: curves("c", "", series, "latency_p99_seconds", "recall@3"))
    axes = figures["c"].axes[0]
    assert axes.get_xlabel() == "99th percentile of latency, ms"
    assert axes.get_ylabel() == "recall@3"
    assert axes.xaxis.get_major_formatter()(0.02) == "20"
    assert figures.data("c")[0][1] == "latency_p99_seconds"


def test_files_of_figures_have_their_titles(tmp_path):
    figures = figures_of(lambda: distributions("A title", "", [Column("a", np.ones(3))], 0, 0.0))
    figures.save(tmp_path)
    assert ">A title</text>" in (tmp_path / "a-title.svg").read_text()
    width, height = struct.unpack(">II", (tmp_path / "a-title.png").read_bytes()[16:24])
    drawn_width, drawn_height = figures["a-title"].get_size_inches()
    # As wide as the chart, and higher by the title.
    assert height / width == pytest.approx((drawn_height + 24 / 72) / drawn_width, rel=0.01)
    assert not figures["a-title"].texts


def test_the_three_recalls_in_words_are_golden():
    # recall: 1/3 and 1; srecall: 0 of a and c, 1 of x.
    result = sr.evaluate(FOUND, MEASURES[:2], truth=TRUTH, judgments=LABELS)
    assert re.sub(r"<p>.*?</p>", "", facts(result)) == (
        '<ul class="facts"><li class="recall"><strong>33%</strong> of the exact nearest neighbours '
        "are missed, whether they matter or not<small>recall@3: 0.667, 95% interval 0.333 to 1.000"
        "</small></li>"
        '<li class="srecall"><strong>50%</strong> of the relevant ones among them are missed: what '
        "people lose by the index<small>semantic recall (srecall@3): 0.500, 95% interval 0.000 to "
        "1.000</small></li></ul>"
    )


def test_the_advice_is_golden():
    fall = sr.waterfall(LABELS, truth=TRUTH, runs=FOUND)
    # q1 has a, c, n, far: three results hold no four (1/4 of it, 1/8 in the mean), one more is the
    # model's loss (1/8), a and c are the index's (1/4).
    lines = advice(tiny(by="sn"), fall)
    assert lines[:3] == [
        (
            "The largest loss: the index, 25.0% of the relevant documents.",
            "Exact search finds them, the index does not. Raise its search setting, or let "
            "semrecall tune find the cheapest one that reaches your target.",
        ),
        (
            "Then: the cut at k, 12.5% of all known, 1 document.",
            "More relevant documents are known than the k results that count can hold: no fault of "
            "the model or the index. Ask for more results (-k), or count higher grades only "
            "(--rel).",
        ),
        (
            "Then: the embedding model, 12.5% of all known, 1 document.",
            "Exact search itself does not find them, so no setting of the index will: try another "
            "model, other chunks, or keywords beside vectors.",
        ),
    ]
    # Two queries do not tell recall and semantic recall apart.
    assert not any("recall@3" in what for what, _ in lines)
    assert advice_section([("Do <this>.", "Because & so.")]) == (
        "<h2>What to do next</h2><ol><li><strong>Do &lt;this&gt;.</strong> Because &amp; so.</li>"
        "</ol>"
    )
    assert advice_section([]) == ""


def test_the_setting_that_is_advised_is_the_cheapest_that_reaches_the_target():
    swept = sweep(settings={"visit": [2, 10, 40, 80]})
    result = small_of(swept)
    rows = [row for row in swept.rows() if row.measures["srecall@10"].mean >= 0.95]
    cheapest = min(rows, key=lambda row: row.cost.mean)
    lead = "The cheapest setting swept with srecall@10 of at least 0.95:"
    [(what, how)] = [pair for pair in advice(result, None, swept) if pair[0].startswith(lead)]
    assert what == f"{lead} {cheapest.setting}."
    assert f"This run has {number(result.mean('srecall@10'), 3)}. 0.95 is this page's" in how
    low = sweep(settings={"visit": [1, 2]})
    assert "No setting of the sweep reaches srecall@10 0.95." in dict(advice(result, None, low))


def test_a_setting_is_no_cure_for_a_run_that_has_no_fault():
    swept = sweep(settings={"visit": [2, 10, 40, 80]})
    exact, _, labels = small.parts()
    perfect = sr.evaluate(exact, ["recall@10", "srecall@10"], truth=exact, judgments=labels)
    [how] = [how for what, how in advice(perfect, None, swept) if "at least 0.95" in what]
    assert "This run has 1.000, more than such a target asks." in how
    other = sr.evaluate(exact, ["srecall@5"], truth=exact, judgments=labels)
    assert "Sweep srecall@5 too." in dict(advice(other, None, swept))
    assert "It is the dearest" not in how
    ends = swept.curves["shells"][0], swept.curves["shells"][-1]
    dear = replace(swept, curves={"shells": ends})
    [how] = [how for what, how in advice(perfect, None, dear) if "at least 0.95" in what]
    assert "It is the dearest setting swept." in how
    # All rows compared: what exact search costs.
    [row] = [row for row in swept.rows() if row.setting.search == (("visit", 80),)]
    base = {"base": {"rows": int(row.cost.mean)}}
    whole = sr.evaluate(
        exact, ["srecall@10"], truth=exact.replace(identity=exact.identity | base), judgments=labels
    )
    last = SavedSweep({}, swept.measures, Cost("distance_computations"), {}, 1, (row,))
    [how] = [how for what, how in advice(whole, None, last) if "at least 0.95" in what]
    assert "as much as exact search over all" in how


def test_differences_that_chance_explains_are_no_advice():
    """Nine queries of many have labels: recall over the others is no match for their srecall."""
    exact, found, labels = small.parts()
    few = labels.select(np.isin(labels.query_ids, labels.query_ids[:30]))
    result = sr.evaluate(found, ["recall@10", "srecall@10"], truth=exact, judgments=few)
    said = dict(advice(result))
    assert abs(result.mean("recall@10") - result.mean("srecall@10")) > 0.02
    assert not any(what.startswith(("Set targets", "Do not rely")) for what in said)
    defined = int(np.isfinite(result["srecall@10"].values).sum())
    assert f"({defined} of {small.N} queries have a value)" in headline(result)


def test_without_judgments_there_is_a_next_step_too():
    exact, found, _ = small.parts()
    result = sr.evaluate(found, ["recall@10"], truth=exact)
    first, second = advice(result)[:2]
    assert first[0].startswith("Raise the search setting: recall@10 is 0.")
    assert 'semrecall tune --target "recall@10 >= 0.95"' in first[1]
    assert second[0] == "Find out whether it matters."
    perfect = sr.evaluate(exact, ["recall@10"], truth=exact)
    assert advice(perfect) == []


def test_what_stands_just_below_k_and_every_larger_loss_is_told():
    labels = sr.Judgments.from_dict({"q": dict.fromkeys("abcde", 1)})
    rows = lambda *ids: sr.Run.from_arrays([list(ids)], query_ids=["q"])  # noqa: E731
    exact = rows("a", "b", "x", "y", "z", "c", "d", "v", "w", "u")
    fall = sr.waterfall(labels, truth=exact, runs={"index": exact, "rerank": rows("a", "x")}, k=5)
    said = advice(sr.evaluate(exact, ["srecall@5"], truth=exact, judgments=labels), fall)
    assert said[0][0] == "The largest loss: the embedding model, 60.0% of the relevant documents."
    near = "2 of these 3 stand just below k, among its first 7: more results and a reranker bring"
    assert near in said[0][1]
    assert said[1][0] == "Then: the reranker, 20.0% of all known, 1 document."


def small_of(swept: Any) -> sr.Result:
    exact, found, labels = small.parts()
    assert [str(m) for m in swept.measures][1] == "srecall@10"
    return sr.evaluate(found, ["recall@10", "srecall@10"], truth=exact, judgments=labels)


def test_a_slice_that_falls_behind_is_named_and_more_labels_are_asked_for():
    exact, found, labels = small.parts(lost=0.0)
    bad = found.documents
    names = np.array([str(d) for d in bad], dtype=object).reshape(small.N, small.K)
    names[::2] = "lost"
    worse = sr.Run.from_arrays(
        [[f"{d}{i}" if d == "lost" else d for i, d in enumerate(row)] for row in names.tolist()],
        query_ids=list(exact.queries),
    )
    columns = {"query_id": list(exact.queries), "lang": ["th", "en"] * (small.N // 2)}
    half = labels.select(np.arange(len(labels)) % 2 == 0)
    result = sr.evaluate(
        worse, ["recall@10", "srecall@10"], truth=exact, judgments=half, columns=columns, by="lang"
    )
    said = [what for what, _ in advice(result)]
    assert "The worst group: lang th." in said
    assert "Judge more: 50% of the exact neighbours have no label." in said


def test_every_number_of_the_page_is_the_api_s():
    exact, found, labels = small.parts()
    codes = small.parts(lost=0.05)[1]
    result = sr.evaluate(found, small.MEASURES, truth=exact, judgments=labels, codes=codes, by="sn")
    html = html_report(result)
    shown = cells(html)
    for row in result.summary():
        [line] = [r for r in shown if r[:2] == [row.measure, number(row.mean)]]
        assert line[2] == f"{number(row.low)} to {number(row.high)}"
        assert line[-2:] == [f"{row.n:,}", f"{sum(row.left_out.values()):,}"]
    fall = sr.waterfall(labels, truth=exact, codes=codes, runs=found, k=10)
    for name, step in zip(
        ("the embedding model", "quantisation", "the index"), fall.steps, strict=True
    ):
        line = next(r for r in shown if r[0] == name)
        between = f"{share(step.low)} to {share(step.high)}"
        assert line[1:6] == [
            share(step.lost), between, f"{step.documents:,}", f"{step.queries:,}", share(step.left),
        ]  # fmt: skip
    ways = sr.tolerance(exact, 10, run=found, judgments=labels)
    curve = curve_of(result, "ivf")
    assert curve is not None
    assert curve.ways == ways
    defined = ~np.isnan(result["srecall@10"].values)
    x = curve.xs[3]
    at_x = sr.evaluate(found, [f"trecall(x={x})@10"], truth=exact)
    assert curve.values[3] == pytest.approx(at_x[f"trecall(x={x})@10"].values[defined].mean())
    assert curve.semantic == result.mean("srecall@10")
    found_analysis = sr.analyse(exact, labels)
    within = found_analysis.correlation.within.mean
    assert ["mean over queries", f"{within:+.4f}"] in [row[:2] for row in shown]


def test_stages_in_the_page_add_up():
    found = sr.waterfall(
        LABELS, truth=TRUTH, runs={"index": FOUND, "context": FOUND}, cuts={"context": 1}
    )
    assert sum(found.exact()) == 1
    rows = cells(picture(found))
    assert [row[0] for row in rows[1:]] == [
        "the cut at k", "the embedding model", "the index", "the cut to the context",
    ]  # fmt: skip
    lost = sum(float(row[1].rstrip("%")) for row in rows[1:])
    assert lost + float(rows[-1][5].rstrip("%")) == pytest.approx(100, abs=0.2)


def test_of_very_many_groups_the_worst_are_shown():
    n = 90
    rows = [[f"d{i}", f"e{i}"] for i in range(n)]
    exact = sr.Run.from_arrays(rows, query_ids=[f"q{i}" for i in range(n)])
    found = sr.Run.from_arrays(
        [row[: 1 + (i >= 20)] for i, row in enumerate(rows)], query_ids=[f"q{i}" for i in range(n)]
    )
    labels = sr.Judgments.from_dict({f"q{i}": {f"e{i}": 1} for i in range(n)})
    columns = {"query_id": [f"q{i}" for i in range(n)], "own": [f"g{i}" for i in range(n)]}
    result = sr.evaluate(
        found, ["recall@2", "srecall@2"], truth=exact, judgments=labels, columns=columns, by="own"
    )
    html = slice_table(result, result.slices["own"])
    assert "The worst 60 of 90 groups." in html
    assert all(f">g{i}<" in html for i in range(20))
    assert html.count("<tr") == 1 + 2 * 60
    fall = sr.waterfall(labels, truth=exact, runs=found, columns=columns, by="own")
    [html] = group_tables(fall)
    assert "And 30 groups that lose less." in html
    assert all(f">g{i}<" in html for i in range(20))


def test_errors_of_the_codes_by_hand():
    # Of a 4.0 is 4.4 by the codes (10% off), b 3.0 exact; z is unknown to the truth of q2.
    codes = sr.Run.from_arrays(
        [["a", "b", "w"], ["x", "y", "v"]], [[4.4, 3.0, 2.0], [5.0, 3.0, 1.0]],
        query_ids=["q1", "q2"], space="ip", scores_by="index",
    )  # fmt: skip
    errors = score_errors(tiny(codes=codes))
    assert errors is not None
    # q1: (0.1 + 0) / 2; q2: (0 + 1/4) / 2
    assert errors.tolist() == pytest.approx([0.05, 0.125])
    assert score_errors(tiny()) is None


def test_a_column_without_a_name_has_no_heading_and_texts_stand_to_the_left():
    assert "<td></td>" in table(["", "x"], [["a", "1"]])
    assert '<td class="text long">to read</td>' in table(["a", "b"], [["1", "to read"]], texts=[1])


# -- figures --------------------------------------------------------------------------------------


def test_figures_as_files_and_as_data(tmp_path: Path):
    exact, found, labels = small.parts()
    result = sr.evaluate(found, small.MEASURES, truth=exact, judgments=labels)
    drawn = result.plot()
    assert {"waterfall", "distribution-of-recall-10", "tolerant-recall-over-the-tolerance"} <= set(
        drawn
    )
    written = drawn.save(tmp_path / "figures")
    assert len(written) == 3 * len(drawn) == len(list((tmp_path / "figures").iterdir()))
    for path in written:
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            assert "var(" not in text
            assert "currentColor" not in text
            assert "#0101" not in text
        elif path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "figures" / "distribution-of-srecall-10.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    values = [float(row["value"]) for row in rows if row["value"]]
    known = result["srecall@10"].values
    assert sorted(values) == sorted(known[~np.isnan(known)].tolist())
    heads, data = drawn.data("waterfall")
    fall = sr.waterfall(labels, truth=exact, runs=found, k=10)
    assert heads[:2] == ("stage", "lost")
    assert [row[1] for row in data] == [step.lost for step in fall.steps]
    again = result.plot().save(tmp_path / "again")
    for one, other in zip(written, again, strict=True):
        if one.suffix != ".png":
            assert one.read_bytes() == other.read_bytes()
    with pytest.raises(InputError, match="there is no figure 'waterfal'"):
        drawn["waterfal"]
    # matplotlib's own figure, in the colours of the light page.
    [axes] = drawn["waterfall"].axes
    assert axes.patches[0].get_facecolor()[:3] == pytest.approx(
        (0x3B / 255, 0x6F / 255, 0xB6 / 255)
    )


def test_a_notebook_shows_charts_and_tables():
    result = tiny()
    shown = result.plot()._repr_html_()
    assert shown.count("<svg") == len(result.plot())
    assert "--series-1: #3b6fb6" in shown
    assert "recall@3" in result._repr_html_()
    fall = sr.waterfall(LABELS, truth=TRUTH, runs=FOUND)
    assert list(fall.plot()) == ["waterfall"]


def test_charts_are_collected_only_where_it_is_asked_for():
    drawn = figures_of(lambda: picture(sr.waterfall(LABELS, truth=TRUTH)))
    assert list(drawn) == ["waterfall"]
    picture(sr.waterfall(LABELS, truth=TRUTH))
    assert list(figures_of(lambda: None)) == []


# -- a sweep from a file --------------------------------------------------------------------------


def test_a_saved_sweep_has_the_rows_of_the_sweep(tmp_path: Path):
    swept = sweep(settings={"visit": [2, 40]}, by="sn")
    path = tmp_path / "sweep.json"
    text = json.dumps(swept.to_dict())
    path.write_text(re.sub(r"\bNaN\b", "null", text))
    saved = read_sweep(path)
    assert list(map(str, saved.measures)) == list(map(str, swept.measures))
    assert saved.objective.name == swept.objective.name
    for by in (None, "sn"):
        for one, other in zip(saved.rows(by), swept.rows(by), strict=True):
            assert (one.setting, one.group, one.queries) == (
                other.setting, other.group, other.queries,
            )  # fmt: skip
            assert one.cost.mean == other.cost.mean
    with pytest.raises(InputError, match="no slices by 'lang'"):
        saved.rows("lang")
    path.write_text('{"rows": []}')
    with pytest.raises(InputError, match="holds no sweep"):
        read_sweep(path)


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    exact, found, labels = small.parts()
    sr.write(exact, tmp_path / "truth.parquet")
    sr.write(found, tmp_path / "run.parquet")
    sr.write(small.parts(lost=0.05)[1], tmp_path / "codes.parquet")
    sr.write(labels, tmp_path / "labels.jsonl")
    flipped = np.where(np.arange(len(labels)) % 9 == 0, 1 - labels.grades, labels.grades)
    sr.write(labels.replace(grades=flipped), tmp_path / "people.jsonl")
    swept = re.sub(r"\bNaN\b", "null", json.dumps(sweep(settings={"visit": [2, 40]}).to_dict()))
    (tmp_path / "sweep.json").write_text(swept)
    lines = [
        json.dumps({"id": q, "text": f"text of <{q}>", "lang": "th" if int(q[1:]) % 2 else "en"})
        for q in map(str, exact.queries)
    ]
    (tmp_path / "queries.jsonl").write_text("\n".join(lines))
    return tmp_path


Main = Callable[..., tuple[int, str, str]]
GIVEN = ("report", "run.parquet", "--truth", "truth.parquet", "--judgments", "labels.jsonl")


def test_the_command_puts_everything_on_one_page(files: Path, semrecall_main: Main):
    code, out, err = semrecall_main(
        *GIVEN, "--codes", "codes.parquet", "--texts", "queries.jsonl", "--by", "lang",
        "--stage", "rerank=run.parquet", "--context", "run.parquet", "--cut", "context=3",
        "--sweep", "sweep.json", "--agree", "people.jsonl", "-o", "r.html", "--figures", "figs",
    )  # fmt: skip
    assert code == 0, err
    result = sr.evaluate(
        sr.read(files / "run.parquet"), ["recall@10", "srecall@10"],
        truth=sr.read(files / "truth.parquet"), judgments=sr.read(files / "labels.jsonl"),
    )  # fmt: skip
    lost = percent(1 - result.mean("srecall@10"))
    assert out.startswith(f"The index loses {lost} of the relevant neighbours; recall suggests ")
    page = (files / "r.html").read_text(encoding="utf-8")
    small.checked(page)
    heads = [unescape(head) for head in re.findall(r"<h2[^>]*>(.*?)</h2>", page)]
    assert heads == [
        "What to do next", "Where relevant documents are lost", "Summary",
        "Values of single queries", "Semantic neighbours per query",
        "What quantisation loses, and the search",
        "Quality against cost", "How much tolerance", "Do scores tell what is relevant?",
        "Do the judges agree?", "By lang", "Worst queries", "How this was made",
    ]  # fmt: skip
    assert "the reranker" in page
    assert "The same by group" in page
    assert "text of &lt;q" in page
    digest = hashlib.sha256((files / "run.parquet").read_bytes()).hexdigest()
    assert f"<dt>run</dt><dd>run.parquet, sha256 {digest}</dd>" in page
    assert "semrecall report run.parquet --truth truth.parquet" in page
    assert (files / "figs" / "waterfall.png").stat().st_size > 1000
    assert f"wrote {len(list((files / 'figs').iterdir()))} files to figs" in err


def test_score_is_the_short_way_to_the_same_page(files: Path, semrecall_main: Main):
    semrecall_main(*GIVEN, "-o", "a.html")
    code, _, _ = semrecall_main("score", *GIVEN[1:], "--by", "sn", "--html", "b.html")
    assert code == 0
    pages = [(files / name).read_text(encoding="utf-8") for name in ("a.html", "b.html")]
    ends = [page.partition("How this was made</h2>")[0] for page in pages]
    assert ends[0] == ends[1]


def test_wrong_input_is_said(files: Path, semrecall_main: Main):
    code, _, err = semrecall_main("report", "run.parquet", "--truth", "truth.parquet",
                                  "--agree", "people.jsonl")  # fmt: skip
    assert code == 2
    assert "--agree compares with the judgments" in err
    code, _, err = semrecall_main("report", "run.parquet", "--truth", "truth.parquet",
                                  "--context", "run.parquet")  # fmt: skip
    assert code == 2
    assert "stages are given without judgments" in err
    code, _, err = semrecall_main(*GIVEN, "--sweep", "queries.jsonl")
    assert code == 2
    assert "holds no sweep" in err
    code, _, err = semrecall_main(*GIVEN, "-o", "r.txt")
    assert code == 2
    assert not (files / "semrecall-report.html").exists()
