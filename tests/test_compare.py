"""compare(): pairs of runs over the same queries, their slices, and comparisons kept in files."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import semrecall as sr
from semrecall.data import Judgments, Run, Scores
from semrecall.data.ids import ids
from semrecall.errors import FormatError, InputError, MeasureError, MismatchError
from semrecall.evaluate import Comparison
from semrecall.evaluate.letters import letter
from semrecall.stats import paired_p, t_interval
from semrecall.text import display_width


def scores(measure: str, **values: float) -> Scores:
    return Scores(measure, ids(list(values)), np.array(list(values.values())))


def ranked(positions: list[int], name: str = "") -> Run:
    """A run in which the one relevant document of each query stands at that rank (0: nowhere)."""
    rows = []
    for query, rank in enumerate(positions):
        row = [f"x{query}-{i}" for i in range(10)]
        if rank:
            row[rank - 1] = "d"
        rows.append(row)
    queries = [f"q{query}" for query in range(len(positions))]
    return Run.from_arrays(rows, query_ids=queries, name=name)


def labels(n: int) -> Judgments:
    return Judgments.from_dict({f"q{query}": {"d": 1} for query in range(n)})


OLD = [1, 2, 4, 1, 0, 2, 5, 1, 1, 2, 4, 1]
NEW = [1, 1, 2, 1, 4, 2, 1, 2, 1, 1, 2, 1]
THIRD = [4, 5, 0, 2, 0, 5, 5, 4, 2, 0, 4, 2]


@pytest.fixture
def pair() -> Comparison:
    return sr.compare({"old": ranked(OLD), "new": ranked(NEW)}, ["RR"], judgments=labels(12))


@pytest.fixture
def three() -> Comparison:
    runs = {"old": ranked(OLD), "new": ranked(NEW), "third": ranked(THIRD)}
    return sr.compare(runs, ["RR", "Success@1"], judgments=labels(12))


# -- one pair, counted by hand --------------------------------------------------------------------


def test_a_row_by_hand(pair):
    row = pair.row("RR")
    # RR of old: 1 1/2 1/4 1 0 1/2 1/5 1 1 1/2 1/4 1, of new: 1 1 1/2 1 1/4 1/2 1 1/2 1 1 1/2 1.
    assert row.mean_baseline == pytest.approx(7.2 / 12)
    assert row.mean_run == pytest.approx(9.25 / 12)
    assert row.difference == pytest.approx(2.05 / 12)
    # Differences: 1/2 and 1/2, 1/4 three times, 4/5, -1/2, and 0 five times.
    assert (row.wins, row.ties, row.losses) == (6, 5, 1)
    d = np.array([0.5, 0.5, 0.25, 0.25, 0.25, 0.8, -0.5])
    signs = np.array(list(itertools.product([1, -1], repeat=7)))
    assert row.p == np.mean(abs(signs @ d) >= abs(d.sum()) - 1e-9)
    assert row.p_corrected == row.p
    padded = np.append(d, np.zeros(5))
    assert (row.low, row.high) == pytest.approx(t_interval(padded))
    assert row.n == 12
    assert row.left_out == {}
    assert not row.few


def test_queries_are_matched_by_id():
    # cov-07.
    found = Comparison.from_scores(
        {"A": scores("RR", q1=1.0, q2=0.0), "B": scores("RR", q2=0.0, q1=1.0)}
    ).row("RR")
    assert found.difference == 0.0
    assert (found.wins, found.losses, found.ties) == (0, 0, 2)
    assert found.note == "no query differs"


def test_nothing_depends_on_the_order_of_queries(pair):
    order = np.random.default_rng(0).permutation(12)

    def shuffled(positions):
        run = ranked(positions)
        rows = {run.query_ids.tolist()[i]: run.ids[i].tolist() for i in order}
        return Run.from_dict(rows)

    backwards = {f"q{q}": {"d": 1} for q in reversed(range(12))}
    again = sr.compare(
        {"old": shuffled(OLD), "new": shuffled(NEW)}, ["RR"],
        judgments=Judgments.from_dict(backwards),
    )  # fmt: skip
    assert again.rows == pair.rows
    assert again.identity == pair.identity


@pytest.mark.parametrize("test", ["randomisation", "t", "wilcoxon", "sign"])
def test_p_is_that_of_the_test_asked_for(pair, test):
    row = pair.replace(test=test).row("RR")
    a, b = pair.scores["old", "RR"].values, pair.scores["new", "RR"].values
    assert row.p == paired_p(b - a, test)[0]


def test_too_few_queries():
    # stat-04: no p, not significant, and it says why.
    found = sr.compare({"a": ranked([1]), "b": ranked([2])}, ["RR"], judgments=labels(1))
    row = found.row("RR")
    assert np.isnan(row.p)
    assert not row.significant
    assert row.note == "too few queries"
    assert found.to_arrow()["p"].to_pylist() == [None]
    assert "note: RR: too few queries" in str(found)


def test_undefined_in_either_run_is_left_out_and_counted():
    a = Scores("AP", ids(["q1", "q2", "q3", "q4"]), np.array([0.5, np.nan, 0.2, 0.1]),
               ("", "no relevant document", "", ""))  # fmt: skip
    b = Scores("AP", ids(["q3", "q2", "q1"]), np.array([0.4, 0.3, 0.75]))
    row = Comparison.from_scores({"a": a, "b": b}).row("AP")
    # Left are q1 and q3: 0.25 and 0.2.
    assert row.n == 2
    assert row.left_out == {"no relevant document": 1, "no value": 1}
    assert row.difference == pytest.approx(0.225)
    assert row.mean_baseline == pytest.approx(0.35)
    text = str(Comparison.from_scores({"a": a, "b": b}))
    assert "left out of AP: 1 no relevant document; 1 no value" in text


def test_lower_is_better():
    a, b = scores("rde@10", q1=0.1, q2=0.2, q3=0.3), scores("rde@10", q1=0.05, q2=0.2, q3=0.1)
    found = Comparison.from_scores({"a": a, "b": b})
    row = found.row("rde@10")
    assert row.difference == pytest.approx(-0.25 / 3)
    assert (row.wins, row.ties, row.losses) == (2, 1, 0)
    assert "lower is better: rde@10" in str(found)
    # Thirty such queries: b is better, and a has no letter.
    many = {
        run: Scores("rde@10", ids(list(range(30))), np.linspace(0.1, 0.2, 30) * factor)
        for run, factor in {"a": 1.0, "b": 0.5}.items()
    }
    found = Comparison.from_scores(many)
    assert found.row("rde@10").better
    lines = found.table().splitlines()
    assert lines[1].endswith("0.1500")
    assert lines[2].endswith("0.0750  a")


def test_zero_or_one_has_an_interval_of_its_own():
    # 10 queries, one won. Bonett and Price: (2 - 1) / 12 -+ 1.96 sqrt((3/12 - 1/144) / 12).
    run, better = ranked([1] * 9 + [2]), ranked([1] * 10)
    found = sr.compare({"a": run, "b": better}, ["Success@1", "P@1"], judgments=labels(10))
    reach = 1.959964 * np.sqrt((3 / 12 - 1 / 144) / 12)
    for name in ("Success@1", "P@1"):
        row = found.row(name)
        assert (row.low, row.high) == pytest.approx((1 / 12 - reach, 1 / 12 + reach), rel=1e-5)
    assert "Bonett and Price" in str(found)


def test_bootstrap_intervals_where_wanted(pair):
    boot = pair.replace(interval="bootstrap").row("RR")
    assert boot.low < boot.difference < boot.high
    assert (boot.low, boot.high) != (pair.row("RR").low, pair.row("RR").high)
    assert boot == pair.replace(interval="bootstrap").row("RR")


def test_equivalence():
    rng = np.random.default_rng(3)
    a = Scores("AP", ids(list(range(100))), rng.random(100))
    b = Scores("AP", a.queries, a.values + rng.normal(0, 0.02, 100))
    found = Comparison.from_scores({"a": a, "b": b})
    assert found.row("AP").equivalent is None
    assert found.replace(margin=0.02).row("AP").equivalent is True
    assert found.replace(margin=0.001).row("AP").equivalent is False
    assert "equivalent: the difference is below 0.02" in str(found.replace(margin=0.02))


# -- several runs ---------------------------------------------------------------------------------


def test_all_pairs_or_those_with_a_baseline(three):
    assert three.pairs == [("old", "new"), ("old", "third"), ("new", "third")]
    assert len(three.rows) == 6
    with_new = three.replace(baseline="new")
    assert with_new.pairs == [("new", "old"), ("new", "third")]
    first, mirrored = three.row("RR", "new", "old"), with_new.row("RR", "old")
    assert mirrored.difference == -first.difference
    assert mirrored.p == first.p
    assert (mirrored.wins, mirrored.losses) == (first.losses, first.wins)


def test_p_is_corrected_over_the_whole_table(three):
    p = sorted(row.p for row in three.rows)
    by_hand = np.minimum(np.maximum.accumulate(np.array(p) * np.arange(6, 0, -1)), 1)
    assert sorted(row.p_corrected for row in three.rows) == pytest.approx(by_hand)
    plain = three.replace(correction="none")
    assert all(row.p == row.p_corrected for row in plain.rows)
    assert "not corrected for 6 tests" in str(plain)


def test_two_runs_of_one_name_are_both_compared():
    # pair-02.
    found = sr.compare(
        [ranked(OLD, "A"), ranked(NEW, "A")], ["RR"], judgments=labels(12)
    )  # fmt: skip
    assert found.runs == ("A", "A#2")
    with pytest.raises(InputError, match="two runs have one name: 1, '1'"):
        sr.compare({1: ranked(OLD), "1": ranked(NEW)}, ["RR"], judgments=labels(12))


def test_letters(three):
    # third is worse than both, old and new are not apart.
    rows = {(r.baseline, r.run): r for r in three.rows if r.measure == "RR"}
    assert rows["old", "third"].significant
    assert rows["new", "third"].significant
    assert not rows["old", "new"].significant
    # RR of third: 2.85 / 12 (1/4 1/5 0 1/2 0 1/5 1/5 1/4 1/2 0 1/4 1/2).
    text = three.table()
    assert text.splitlines()[1].split() == ["a", "old", "0.6000", "c", "0.4167"]
    assert text.splitlines()[3].split() == ["c", "third", "0.2375", "0.0000"]
    assert "| b | new | **0.7708**<sup>c</sup> | **0.5833**" in three.table("markdown")
    assert "new & \\textbf{0.7708}$^{c}$ &" in three.table("latex")
    assert "<td><b>0.7708</b><sup>c</sup></td>" in three.table("html")
    with pytest.raises(InputError, match="unknown format 'pdf'"):
        three.table("pdf")


def test_names_are_escaped():
    a, b = scores("x_y", q1=0.1, q2=0.2), scores("x_y", q1=0.2, q2=0.3)
    found = Comparison.from_scores({"a|<b>": a, "50%_\\": b})
    assert "a\\|<b>" in found.table("markdown")
    assert "a&#124;" not in found.table("html")
    assert "a|&lt;b&gt;" in found.table("html")
    assert "50\\%\\_\\textbackslash{}" in found.table("latex")
    assert "x\\_y" in found.table("latex")


def test_many_runs_have_letters_and_ranges():
    assert [letter(i) for i in (0, 25, 26, 51, 52)] == ["a", "z", "A", "Z", "a2"]
    values = {
        f"run {i:02}": Scores("AP", ids(list(range(40))), np.linspace(0, 0.1, 40) + i / 100)
        for i in range(60)
    }
    lines = Comparison.from_scores(values).table().splitlines()
    assert lines[4].split()[-1] == "a-c"
    assert lines[60].split()[-1] == "a-g2"


def test_one_run_or_an_unknown_name_is_refused(pair):
    with pytest.raises(InputError, match="1 run to compare; expected at least two"):
        sr.compare({"a": ranked(OLD)}, ["RR"], judgments=labels(12))
    for setting, said in (
        ({"baseline": "odl"}, "the baseline 'odl' is none of the runs"),
        ({"test": "u"}, "unknown test 'u'"),
        ({"correction": "sidak"}, "unknown correction 'sidak'"),
        ({"interval": "wald"}, "unknown interval 'wald'"),
        ({"margin": 0}, "margin is 0"),
        ({"confidence": 95}, "confidence is 95"),
        ({"alpha": 0.1}, "unknown setting 'alpha'"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            pair.replace(**setting)
    with pytest.raises(MeasureError, match="AP was not computed"):
        pair.row("AP")
    with pytest.raises(MismatchError, match="run 'b' has values of RR; expected AP"):
        Comparison.from_scores({"a": scores("AP", q=1.0), "b": scores("RR", q=1.0)})
    twice = Scores("AP", ids(["q", "q"]), np.zeros(2))
    with pytest.raises(InputError, match="query 'q' has two values"):
        Comparison.from_scores({"a": twice, "b": twice})
    with pytest.raises(MeasureError, match="no measure"):
        sr.compare({"a": ranked(OLD), "b": ranked(NEW)}, judgments=labels(12))


def test_a_result_is_compared_as_it_is(pair):
    result = sr.evaluate({"old": ranked(OLD), "new": ranked(NEW)}, ["RR"], judgments=labels(12))
    assert sr.compare(result).rows == pair.rows


# -- queries that moved ---------------------------------------------------------------------------


def test_moved(pair, three):
    moved = pair.moved("rr", 3)
    # q6 from rank 5 to 1; then, of equal size, in the order of ids: q1 and q7 by one half.
    assert [(m.query, m.difference) for m in moved] == [("q6", 0.8), ("q1", 0.5), ("q7", -0.5)]
    assert (moved[0].baseline, moved[0].run) == (0.2, 1.0)
    assert len(pair.moved("RR", 100)) == 7
    with pytest.raises(InputError, match="3 pairs of runs fit; expected one") as error:
        three.moved("RR")
    assert error.value.hint == "say which: run='new', baseline='old'"
    assert three.moved("RR", 1, run="third", baseline="new")[0].difference < 0
    # In either order the pair is the one that is in the table.
    assert three.moved("RR", run="new", baseline="third") == three.moved(
        "RR", run="third", baseline="new"
    )


# -- slices ---------------------------------------------------------------------------------------


def sliced(shift: float = 0.3) -> Comparison:
    """60 queries; the new run gains a little, but loses in Thai."""
    rng = np.random.default_rng(12)
    languages = np.repeat(["en", "de", "th", "xx"], [25, 16, 15, 4])
    before = rng.uniform(0.3, 0.6, 60)
    after = before + rng.normal(0.05, 0.05, 60) - np.where(languages == "th", shift, 0)
    queries = ids([f"q{i}" for i in range(60)])
    made = Comparison.from_scores(
        {"old": Scores("AP", queries, before), "new": Scores("AP", queries, after)}
    )
    return with_slices(made, dict(zip(queries, languages.tolist(), strict=True)))


def with_slices(made: Comparison, language: dict[str, str]) -> Comparison:
    from semrecall.data.slices import column_slices

    columns = {"query_id": list(language), "lang": list(language.values())}
    return made.replace(
        slices={s.column: s for s in column_slices(columns, ["lang"], made.queries)}
    )


def test_every_slice_is_tested_and_small_ones_are_marked():
    found = sliced()
    rows = {row.group: row for row in found.slice_rows}
    assert {group: row.n for group, row in rows.items()} == {"de": 16, "en": 25, "th": 15, "xx": 4}
    assert rows["th"].difference < 0 < rows["en"].difference
    assert [g for g, row in rows.items() if row.few] == ["xx"]
    # Corrected over the four of them, apart from the row of all queries.
    smallest = min(row.p for row in rows.values())
    assert min(row.p_corrected for row in rows.values()) == pytest.approx(4 * smallest)
    assert found.rows[0].p_corrected == found.rows[0].p
    # Within a slice the test is that of its queries alone.
    mask = found.slices["lang"].mask("th")
    a, b = (found.scores[run, "AP"].values[mask] for run in ("old", "new"))
    assert rows["th"].p == paired_p(b - a)[0]
    text = str(found)
    assert "4 (few)" in text
    assert "few: fewer than 10 queries" in text
    assert "in slices over 4" in text


def test_the_slice_that_fell_is_named():
    found = sliced()
    gaps = {gap.group: gap for gap in found.gaps}
    assert gaps["th"].significant
    assert gaps["th"].worse
    assert gaps["th"].high < 0
    assert gaps["th"].gap == pytest.approx(gaps["th"].inside - gaps["th"].rest)
    assert found.fallen() == [
        f"lang th fell most: AP {gaps['th'].inside:+.4f} there, {gaps['th'].rest:+.4f} elsewhere "
        f"(Holm p {gaps['th'].p_corrected:.4f})"
    ]
    assert found.fallen()[0] in str(found)
    even = sliced(shift=0.0)
    assert even.fallen() == ["no slice by lang fell behind the others by more than chance"]
    # A loss of what the others gained: it gained least.
    assert sliced(shift=0.06).fallen()[0].startswith(("lang th gained least", "lang th fell most"))


def test_two_slices_mirror_each_other_and_count_as_one_test():
    found = sliced()
    labels = found.slices["lang"].labels
    two = {
        query: "th" if label == "th" else "other"
        for query, label in zip(found.queries, labels, strict=True)
    }
    other, thai = with_slices(found, two).gaps
    assert thai.gap == -other.gap
    assert thai.p == other.p == other.p_corrected == thai.p_corrected
    assert thai.worse
    assert not other.worse
    one = with_slices(found, dict.fromkeys(two, "all"))
    assert one.gaps == []
    assert one.fallen() == []


def test_slices_by_columns_of_the_queries():
    columns = {"query_id": [f"q{i}" for i in range(12)], "lang": ["en", "th"] * 6}
    found = sr.compare({"old": ranked(OLD), "new": ranked(NEW)}, ["RR"], judgments=labels(12),
                       columns=columns, by="lang")  # fmt: skip
    assert [(row.group, row.n) for row in found.slice_rows] == [("en", 6), ("th", 6)]
    assert found.to_frame().query("column == 'lang'").shape[0] == 2


# -- kept in a file -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_saved_and_loaded_it_is_the_same(tmp_path, three, suffix):
    for number, made in enumerate([three.replace(margin=0.1, baseline="old"), sliced()]):
        made.save(tmp_path / f"{number}{suffix}")
        again = Comparison.load(tmp_path / f"{number}{suffix}")
        assert again.rows == made.rows
        assert str(again) == str(made)
        assert repr(again) == repr(made)
        assert again.settings == made.settings
        assert again.identity == made.identity


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_undefined_values_keep_their_reasons(tmp_path, suffix):
    a = Scores("AP", ids([1, 2, 3]), np.array([0.5, np.nan, 0.2]), ("", "no judgments", ""))
    made = Comparison.from_scores({"a": a, "b": a})
    made.save(tmp_path / f"c{suffix}")
    again = Comparison.load(tmp_path / f"c{suffix}")
    assert again.scores["a", "AP"].reasons == ("", "no judgments", "")
    assert again.queries == made.queries
    assert again.queries.are_integers


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_extended_later_it_is_as_if_compared_at_once(tmp_path, three, suffix):
    runs = {"old": ranked(OLD), "new": ranked(NEW)}
    sr.compare(runs, ["RR", "Success@1"], judgments=labels(12)).save(tmp_path / f"c{suffix}")
    extended = Comparison.load(tmp_path / f"c{suffix}").extend(
        {"third": ranked(THIRD)}, judgments=labels(12)
    )
    assert extended.rows == three.rows
    assert str(extended) == str(three)


def test_only_what_fits_is_added(pair):
    with pytest.raises(InputError, match="run 'new' is in the comparison already"):
        pair.extend({"new": ranked(NEW)}, judgments=labels(12))
    other = Judgments.from_dict({f"q{i}": {"d": 2} for i in range(12)})
    with pytest.raises(MismatchError, match="the judgments are others than those"):
        pair.extend({"third": ranked(THIRD)}, judgments=other)
    with pytest.raises(MismatchError, match="the judgments are others"):
        pair.extend({"third": ranked(THIRD)}, judgments=labels(11))
    with pytest.raises(MeasureError, match="the new runs lack RR"):
        pair.extend(sr.evaluate({"third": ranked(THIRD)}, ["AP"], judgments=labels(12)))


def test_a_truth_is_known_again():
    truth = Run.from_arrays([[1, 2], [3, 4]], k=2)
    run = Run.from_arrays([[1, 9], [3, 4]], k=2)
    made = sr.compare({"a": run, "b": truth}, ["recall@2"], truth=truth)
    made.extend({"c": run}, truth=Run.from_arrays([[3, 4], [1, 2]], query_ids=[1, 0], k=2))
    with pytest.raises(MismatchError, match="the truth is another than that"):
        made.extend({"c": run}, truth=Run.from_arrays([[1, 2], [3, 5]], k=2))


def test_other_files_are_refused(tmp_path, pair):
    with pytest.raises(InputError, match=r"saved as \.json or \.parquet"):
        pair.save(tmp_path / "c.txt")
    (tmp_path / "c.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "c.json").write_text('{"runs": []}')
    (tmp_path / "list.json").write_text("[1]")
    sr.write(labels(2), tmp_path / "labels.parquet")
    for name, said in (
        ("c.txt", "it is not JSON"),
        ("list.json", "it is not JSON"),
        ("c.json", "it says nothing of a comparison"),
        ("labels.parquet", "it says nothing of a comparison"),
    ):
        with pytest.raises(FormatError, match=f"{name} is not a saved comparison: {said}"):
            Comparison.load(tmp_path / name)
    pair.save(tmp_path / "good.json")
    whole = json.loads((tmp_path / "good.json").read_text())
    (tmp_path / "later.json").write_text(json.dumps(whole | {"version": 99}))
    with pytest.raises(FormatError, match="saved by a later semrecall"):
        Comparison.load(tmp_path / "later.json")
    del whole["scores"]["new"]
    (tmp_path / "damaged.json").write_text(json.dumps(whole))
    with pytest.raises(FormatError, match=r"a part is missing or damaged \('new'\)"):
        Comparison.load(tmp_path / "damaged.json")


def _set(*keys, value):
    def damage(whole):
        for key in keys[:-1]:
            whole = whole[key]
        whole[keys[-1]] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: whole.pop("version"), "version None"),
        (_set("version", value="1"), "version '1'"),
        (_set("settings", "permutations", value="many"), "permutations is 'many'"),
        (_set("settings", "seed", value=-1), "seed is -1"),
        (_set("settings", "test", value="u"), "unknown test 'u'"),
        (_set("scores", "old", "AP", "values", value=[1.0]), r"shape \(1,\)"),
        (_set("scores", "old", "AP", "values", 0, value=math.inf), "AP of old is infinite"),
        (_set("scores", "old", "AP", value=[]), "list indices"),
        (_set("slices", "lang", "numbers", value=[0, 1]), "slices by lang"),
        (_set("slices", "lang", "numbers", 0, value=99), "slices by lang"),
        (_set("queries", 0, value="q1"), "a query twice"),
    ],
)
def test_damage_of_a_file_is_an_error_and_no_number(tmp_path, damage, said):
    sliced().save(tmp_path / "c.json")
    whole = json.loads((tmp_path / "c.json").read_text())
    damage(whole)
    (tmp_path / "c.json").write_text(json.dumps(whole))
    with pytest.raises(FormatError, match=f"c.json is not a saved comparison: .*{said}"):
        Comparison.load(tmp_path / "c.json")


def test_the_rules_for_queries_are_kept_with_a_comparison():
    runs = {"old": ranked(OLD), "new": ranked(NEW)}
    some = Judgments.from_dict({f"q{i}": {"d": int(i > 2)} for i in range(12)})
    asked = {"judgments": some, "no_relevant": "zero"}
    whole = sr.compare(runs | {"third": ranked(THIRD)}, ["RR"], **asked)
    extended = sr.compare(runs, ["RR"], **asked).extend({"third": ranked(THIRD)}, judgments=some)
    assert extended.rows == whole.rows
    skipping = sr.evaluate({"third": ranked(THIRD)}, ["RR"], judgments=some)
    with pytest.raises(MismatchError, match="are counted as 0 in the comparison, left out in"):
        sr.compare(runs, ["RR"], **asked).extend(skipping)
    apart = sr.evaluate(runs, ["RR"], judgments=some, unanswerable=["q1"])
    with pytest.raises(MismatchError, match="other queries are known to have no answer"):
        sr.compare(apart).extend({"third": ranked(THIRD)}, judgments=some)


# -- out ------------------------------------------------------------------------------------------


def wide() -> Comparison:
    """Long names, many measures, everything that can stand in a table."""
    rng = np.random.default_rng(1)
    queries = ids([f"q{i}" for i in range(30)])
    made = Comparison.from_scores(
        {
            f"a system of the longest name, number {i}": [
                Scores(f"trecall(x={m}.5%)@1000", queries, rng.random(30)) for m in range(4)
            ]
            for i in range(3)
        }
    )
    return with_slices(made, {f"q{i}": f"a group of the longest name {i % 4}" for i in range(30)})


@pytest.mark.parametrize("baseline", [None, "a system of the longest name, number 1"])
@pytest.mark.parametrize("margin", [None, 0.1])
def test_tables_fit_100_columns(baseline, margin):
    made = wide().replace(baseline=baseline, margin=margin)
    for text in (str(made), made.table(), str(sliced().replace(margin=margin))):
        for line in text.splitlines():
            assert display_width(line) <= 100, line
            assert line == line.rstrip()


def test_too_many_pairs_are_not_listed():
    values = {
        f"r{i}": Scores("AP", ids(list(range(20))), np.linspace(0, i / 10, 20)) for i in range(7)
    }
    made = Comparison.from_scores(values)
    text = str(made)
    assert "21 pairs a measure are too many to list here" in text
    assert "b - a" not in text
    assert len(made.rows) == 21
    # No columns that are not there, are explained.
    assert "detects" not in text
    assert "intervals" not in text
    # Slices are not lost: in r6 half of the queries have nothing of what the others gain.
    values["r6"] = Scores(
        "AP", ids(list(range(20))), np.linspace(0, 0.6, 20) * ([0] * 10 + [1] * 10)
    )
    groups = {i: "low" if i < 10 else "high" for i in range(20)}
    text = str(with_slices(Comparison.from_scores(values), groups))
    assert "r6 against r0: lang low gained least: AP" in text
    even = with_slices(Comparison.from_scores(dict.fromkeys(values, values["r1"])), groups)
    assert "no slice by lang fell behind the others by more than chance, for any pair" in str(even)


def test_a_group_is_few_or_its_rest_is():
    made = with_slices(
        Comparison.from_scores(
            {
                name: Scores("AP", ids(list(range(20))), np.random.default_rng(at).random(20))
                for at, name in enumerate("ab")
            }
        ),
        {i: "most" if i < 15 else "rest" for i in range(20)},
    )
    text = str(made)
    assert "15/5 (few)" in text
    assert "5/15 (few)" in text
    # Only the second of a slice's two tables sees the rest.
    assert " 15 (few)" not in text


def test_out_as_table_and_document(three):
    frame = three.to_frame()
    assert list(frame["measure"]) == ["RR"] * 3 + ["Success@1"] * 3
    assert three.to_frame("polars").shape[0] == 6
    whole = three.to_dict()
    assert whole["test"] == "randomisation"
    assert whole["alpha"] == 0.05
    assert whole["means"]["new"]["RR"] == pytest.approx(9.25 / 12)
    assert len(whole["rows"]) == 6
    assert repr(three) == "Comparison(old, new, third: RR, Success@1 over 12 queries)"


def test_text_of_a_pair(pair):
    lines = str(pair).splitlines()
    assert lines[0] == "new against old, 12 queries"
    assert lines[2].split() == ["mean", "diff", "95%", "interval", "p", "Holm", "p", "effect",
                                "w/t/l", "detects"]  # fmt: skip
    assert lines[3] == "RR"
    assert lines[4].split() == ["old", "0.6000"]
    assert lines[5].split()[:3] == ["new", "0.7708", "+0.1708"]
    assert "6/5/1" in lines[5]
    assert "Holm p: corrected over 1 test; * is below 0.05" in lines


# -- real runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def official(shared):
    """NIST's own values per query of all DL 2019 runs: {run: [Scores]}."""
    import pyarrow.parquet as pq

    frame = pq.read_table(shared("data/trec-runs/dl2019_official_scores.parquet")).to_pandas()
    frame = frame[frame["measure"].isin(["ndcg_cut_10", "map"])]
    found: dict[str, list[Scores]] = {}
    for (run, measure), part in frame.groupby(["run", "measure"]):
        part = part[part["query_id"] != "all"]
        values = part["value"].to_numpy(dtype=float)
        found.setdefault(run, []).append(Scores(measure, ids(list(part["query_id"])), values))
    return found


def test_our_comparison_of_real_runs_is_that_of_the_official_values(shared, official):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = ["bm25base_p", "p_exp_rm3_bert"]
    table = pq.read_table(shared("data/trec-runs/dl2019_runs.parquet"))
    runs = {}
    for name in names:
        rows = table.filter(pc.equal(table["run"].cast("string"), name))
        rows = rows.set_column(1, "query_id", rows["query_id"].cast("string"))
        runs[name] = Run.from_frame(rows.drop_columns(["rank"]))
    labels = pq.read_table(shared("data/dl-pool/labels.parquet"))
    labels = labels.filter(pc.and_(pc.equal(labels["year"], "dl19"), pc.is_valid(labels["human"])))
    judged = Judgments.from_frame(labels.select(["query_id", "doc_id", "human"]), grade="human")
    ours = sr.compare(runs, ["nDCG@10", "AP"], judgments=judged)
    theirs = Comparison.from_scores({name: official[name] for name in names})
    for our_name, their_name in (("nDCG@10", "ndcg_cut_10"), ("AP", "map")):
        row, other = ours.row(our_name), theirs.row(their_name)
        # Theirs has four decimals a query.
        assert row.difference == pytest.approx(other.difference, abs=1e-4)
        assert (row.low, row.high) == pytest.approx((other.low, other.high), abs=1e-4)
        assert row.p == pytest.approx(other.p, abs=2e-4)
        assert row.n == other.n == 43
        assert row.significant
    assert ours.moved("nDCG@10", 1)[0].query == 962179


def test_the_page_on_comparing_tells_what_is_found(official):
    page = (Path(__file__).parents[1] / "docs" / "comparing.md").read_text(encoding="utf-8")
    four = {
        run: replace(official[run][1], measure="nDCG@10")
        for run in ("bm25base_p", "ms_duet_passage", "p_bert", "idst_bert_p2")
    }
    table = str(Comparison.from_scores(four)).split("\n\nletters")[0]
    assert f"```text\n{table}\n```" in page
    every = Comparison.from_scores({run: found[1] for run, found in official.items()})
    flat = " ".join(page.split())

    def found(**settings):
        return sum(row.significant for row in every.replace(**settings).rows)

    plain, bh, holm, bonferroni = (
        found(correction=c) for c in ("none", "bh", "holm", "bonferroni")
    )
    assert (
        f"All {len(official)} official runs of that year make {len(every.rows)} pairs: {plain} "
        f"have p < 0.05 uncorrected, {bh} by Benjamini-Hochberg, {holm} by Holm, {bonferroni} by "
        "Bonferroni"
    ) in flat
    tests = [found(test=test) for test in ("randomisation", "t", "wilcoxon", "sign")]
    assert "they find {}, {}, {} and {} differences".format(*tests) in flat
    sizes = [(abs(row.difference), row.significant) for row in every.rows]
    smallest, largest = min(d for d, s in sizes if s), max(d for d, s in sizes if not s)
    assert f"by Holm is {smallest:.3f}, and one of {largest:.3f} is not" in flat


def test_all_official_runs_in_one_table(official):
    found = Comparison.from_scores(official)
    n = len(official)
    assert n >= 36
    assert len(found.rows) == n * (n - 1)
    # 1,260 tests or more: the smallest p-value of 100,000 patterns still survives Holm.
    assert sum(row.significant for row in found.rows) > 300
    # The runs of one group that are equal but for their name.
    same = found.row("ndcg_cut_10", "test1", "TUA1-1")
    assert same.p > 0.5
    for line in str(found).splitlines():
        assert display_width(line) <= 100
