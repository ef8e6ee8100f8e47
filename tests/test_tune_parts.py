"""The parts of tuning: ranges, targets, searchers, fronts, stored trials."""

from __future__ import annotations

import itertools
import math
import sqlite3

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuned_system import Shells

from semrecall.errors import InputError, MeasureError, Stopped
from semrecall.systems.base import Knob
from semrecall.tuning.evaluator import Measured
from semrecall.tuning.front import cost_estimate, pareto
from semrecall.tuning.guard import require_effect
from semrecall.tuning.objectives import OBJECTIVES, objective
from semrecall.tuning.racing import Outcome, Trial
from semrecall.tuning.ranges import Range, Setting, _range, read_range
from semrecall.tuning.searchers import Bisection, Grid, Nested, Random, Refined, rank
from semrecall.tuning.target import Target, mean_of
from semrecall.tuning.tpe import TPE
from semrecall.tuning.trials import Trials

# -- ranges ---------------------------------------------------------------------------------------

LISTS = Range("nprobe", "search", 1, 256)


def test_a_logarithmic_range_is_spread_by_ratios():
    assert LISTS.spread(9) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert LISTS.spread(2) == [1, 256]
    assert Range("x", "search", 0, 1, "linear", False).spread(5) == [0, 0.25, 0.5, 0.75, 1]


def test_a_small_range_has_no_value_twice():
    """Case E01: two values are two values, however many are asked for."""
    assert Range("nprobe", "search", 1, 2).spread(9) == [1, 2]
    assert Range("nprobe", "search", 3, 3).spread(9) == [3]


def test_a_logarithmic_range_may_begin_at_zero():
    found = Range("oversampling", "search", 0, 64).spread(8)
    assert found[0] == 0
    assert found[-1] == 64
    assert found == sorted(set(found))


def test_listed_values_are_the_only_ones():
    listed = Range("M", "build", 4, 64, "log", True, (4, 8, 16, 32, 64))
    assert listed.spread(3) == [4, 16, 64]
    assert listed.between(4, 64) == 16
    assert listed.between(4, 8) is None
    assert (listed.above(4), listed.above(64), listed.below(16), listed.below(4)) == (
        8, None, 8, None,
    )  # fmt: skip


@given(
    st.integers(0, 50), st.integers(1, 5000), st.sampled_from(["log", "linear"]), st.booleans(),
    st.data(),
)  # fmt: skip
def test_what_lies_between_lies_between(low, width, scale, whole, data):
    one = Range("x", "search", low, low + width, scale, whole)
    values = one.spread(6)
    assert values[0] == one.low
    assert values[-1] == one.high
    a, b = data.draw(st.sampled_from(list(itertools.pairwise(values))))
    middle = one.between(a, b)
    if middle is not None:
        assert a < middle < b
    above = one.above(a)
    assert above is None or a < above <= one.high
    below = one.below(b)
    assert below is None or one.low <= below < b
    for share in (0.0, 0.3, 1.0):
        assert one.low <= one.at(share) <= one.high


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nprobe=1:64", ("nprobe", (1, 64))),
        ("nprobe=1,2,8", ("nprobe", [1, 2, 8])),
        ("k_factor=1.5", ("k_factor", [1.5])),
        ("nprobe", ("nprobe", ())),
    ],
)
def test_ranges_are_read_from_text(text, expected):
    assert read_range(text) == expected


@pytest.mark.parametrize("text", ["=1:2", "nprobe=", "nprobe=a:b"])
def test_text_that_is_no_range_is_refused(text):
    with pytest.raises(InputError):
        read_range(text)


def test_a_mode_is_one_of_its_words():
    knob = Knob.mode("scan", "search", ("off", "relaxed", "strict"), "off", "goes on")
    assert [knob.check(given) for given in ("Relaxed", " strict", 0, 2)] == [
        "relaxed", "strict", "off", "strict",
    ]  # fmt: skip
    for wrong in ("fast", 3, 0.5, None, True):
        with pytest.raises(InputError, match="expected off, relaxed or strict"):
            knob.check(wrong)
    assert _range(knob, ()).listed == ("off", "relaxed", "strict")
    assert _range(knob, ["strict", 0, "off"]).listed == ("off", "strict")
    assert _range(knob, "relaxed").single
    assert read_range("scan=off,strict") == ("scan", ["off", "strict"])
    plain = Knob("nprobe", "search", 1, 100, 1, "lists", "log")
    with pytest.raises(InputError, match="'x'; expected a whole number from 1 to 100"):
        _range(plain, [1, "x"])


def test_a_range_must_be_possible():
    knob = Knob("nprobe", "search", 1, 100, 1, "lists", "log")
    assert _range(knob, (2, 8)) == Range("nprobe", "search", 2, 8)
    assert _range(knob, [8, 2, 2]).listed == (2, 8)
    assert _range(knob, 5).single
    with pytest.raises(InputError, match="from 1 to 100"):
        _range(knob, (1, 200))
    with pytest.raises(InputError, match="expected"):
        _range(knob, (8, 2))


# -- targets --------------------------------------------------------------------------------------


def test_a_target_reads_and_prints():
    assert str(Target.read("srecall(rel=2)@100>=98%")) == "srecall(rel=2)@100 >= 0.98"
    assert str(Target.read("rde@10 <= 1%")) == "rde@10 <= 0.01"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recall@10", "is not MEASURE"),
        ("recall@10 > 0.9", "is not MEASURE"),
        ("recall@10 = 0.9", "is not MEASURE"),
        ("recall@10 <= 0.9", "asks for the worse"),
        ("rde@10 >= 0.01", "asks for the worse"),
        ("recall@10 >= 0", "met by every setting"),
        ("recall@10 >= 98", "write 98%"),
        ("recall@10 >= 1.0001", "above 1"),
        ("recall@10 >= much", "not a number"),
        ("recall@10 >= nan", "no number"),
        ("rde@10 <= -0.1", "below 0"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(InputError) as error:
        Target.read(text)
    assert message in str(error.value)


def test_a_target_of_no_measure_is_refused():
    with pytest.raises(MeasureError, match="recal"):
        Target.read("recal@10 >= 0.9")


def test_a_mean_at_the_target_meets_it():
    """95 of 100 in each of 7 queries is 0.95, and so is 0.9 and 1.0 by turns."""
    target = Target.read("recall@100 >= 0.95")
    assert target.met(mean_of(np.array([0.95] * 7)))
    assert target.met(mean_of(np.array([0.9, 1.0] * 3)))
    assert not target.met(mean_of(np.array([0.95, 0.95, 0.94])))
    assert not target.met(math.nan)


def test_a_few_equal_values_are_no_certainty():
    target = Target.read("recall@10 >= 0.9")
    assert not target.hopeless(np.full(7, 0.1), 0.99)
    assert not target.hopeless(np.full(16, 0.89), 0.99)
    assert target.hopeless(np.full(16, 0.3), 0.99)
    assert Target.read("rde@10 <= 0.1").hopeless(np.full(30, 0.5), 0.99)


# -- costs ----------------------------------------------------------------------------------------


def test_an_objective_that_is_not_told_is_refused_with_those_that_are():
    with pytest.raises(InputError) as error:
        objective("bytes_read", {"latency_seconds", "batch_seconds"}, "chroma")
    assert "chroma does not tell bytes_read" in error.value.message
    assert error.value.hint is not None
    assert "latency_p95_seconds" in error.value.hint
    assert "queries_per_second" in error.value.hint
    with pytest.raises(InputError, match="is no cost"):
        objective("bytes")


def test_costs_are_means_percentiles_and_speeds():
    figures = np.array([1.0, 2.0, 3.0, np.nan])
    measured = Measured(np.arange(4), {}, {"latency_seconds": figures, "batch_seconds": figures})
    assert cost_estimate(measured, OBJECTIVES["latency_seconds"]).mean == 2
    assert cost_estimate(measured, OBJECTIVES["latency_p50_seconds"]).mean == 2
    speed = cost_estimate(measured, OBJECTIVES["queries_per_second"])
    assert (speed.mean, speed.n) == (0.5, 3)
    assert math.isnan(speed.low)
    tail = cost_estimate(measured, OBJECTIVES["latency_p95_seconds"])
    assert 1 <= tail.low <= tail.mean <= tail.high == 3


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_the_front_is_what_none_beats(points):
    """Against the definition: no other is at least as good in both and better in one."""
    quality, cost = [float(q) for q, _ in points], [float(c) for _, c in points]
    kept = pareto(quality, cost)
    unbeaten = {
        (q, c)
        for q, c in zip(quality, cost, strict=True)
        if not any(
            oq >= q and oc <= c and (oq, oc) != (q, c) for oq, oc in zip(quality, cost, strict=True)
        )
    }
    assert {(quality[i], cost[i]) for i in kept} == unbeaten
    assert [cost[i] for i in kept] == sorted(cost[i] for i in kept)


def test_an_unknown_cost_is_on_no_front():
    assert pareto([1.0, 0.5], [math.nan, 3.0]) == [1]


# -- searchers ------------------------------------------------------------------------------------


def run(searcher, outcome, limit=500):
    """Drive a searcher to its end; the points it asked for and what came of them."""
    seen = {}
    while (point := searcher.ask()) is not None and len(seen) < limit:
        found = outcome(**point)
        assert tuple(point.values()) not in seen, "asked twice"
        seen[tuple(point.values())] = found
        searcher.tell(point, found)
    return seen


def told(quality, cost, target=0.9):
    """An outcome whose digests tell settings of different quality or cost apart."""
    return Outcome(target - quality, cost, True, f"{quality}", f"{quality}")


@given(st.integers(1, 300), st.integers(2, 4000))
def test_bisection_finds_the_least_that_meets_the_target(needed, high):
    """Quality rises with the knob; the least value that meets the target is `needed`."""
    searcher = Bisection(Range("x", "search", 1, high))
    seen = run(searcher, lambda x: told(0.95 if x >= needed else 0.8 * x / needed, 1e6 + 1e5 * x))
    assert searcher.monotone
    if needed > high:
        assert searcher.least is None
        return
    assert searcher.least is not None
    # Costs within 1% are alike: a search between them is not worth its price.
    best, found = 1e6 + 1e5 * needed, 1e6 + 1e5 * searcher.least
    assert best <= found <= 1.011 * best
    assert len(seen) <= 2 * math.log2(high) + 8


def test_two_values_are_both_tried():
    """Case E01: a parameter space with two combinations."""
    seen = run(Bisection(Range("nprobe", "search", 1, 2)), lambda nprobe: told(0.95, nprobe))
    assert sorted(seen) == [(1,), (2,)]
    seen = run(Grid([Range("nprobe", "search", 1, 2)], [9]), lambda nprobe: told(0.5, nprobe))
    assert sorted(seen) == [(1,), (2,)]


def test_quality_that_falls_again_is_noticed_and_searched_by_a_grid():
    """Only 9 to 14 of 64 meet the target: strides from 30 on, to 64, never see one."""
    searcher = Bisection(Range("x", "search", 1, 64), start=30)
    run(searcher, lambda x: told(0.95 if 9 <= x <= 14 else 0.5 + x / 1000, x))
    assert searcher.least == 9
    assert not searcher.monotone


def test_more_of_a_knob_that_is_cheaper_is_noticed():
    """Cost falls from 100 to 37 as x rises: the cheapest that meets the target is the last."""
    searcher = Bisection(Range("x", "search", 1, 64))
    run(searcher, lambda x: told(0.95 if x >= 8 else 0.5, 101 - x))
    assert not searcher.monotone
    assert searcher.least == 64


def test_a_knob_that_does_nothing_is_followed_to_its_end():
    seen = run(Bisection(Range("x", "search", 1, 1000)), lambda x: told(0.95, 5.0))
    assert (1000,) in seen


def test_a_low_end_that_changes_nothing_is_not_taken_for_the_top():
    """An efSearch below k changes nothing: 1, 4, 16 and 64 find the same."""
    searcher = Bisection(Range("efSearch", "search", 1, 4096))
    run(searcher, lambda efSearch: told(min(max(efSearch, 100) / 1000, 0.95), max(efSearch, 100)))
    assert searcher.least is not None
    assert 900 <= searcher.least <= 910


def test_bisection_gives_up_where_the_best_is_not_good_enough():
    """Case E09: at most 0.93, wanted 0.95."""
    searcher = Bisection(Range("x", "search", 1, 4096))
    seen = run(searcher, lambda x: told(min(0.3 + x / 100, 0.93), x, target=0.95))
    assert searcher.least is None
    assert min(seen.values(), key=rank).shortfall == pytest.approx(0.02)
    # Two strides that change nothing are enough.
    assert max(x for (x,) in seen) < 4096


@given(st.integers(2, 60), st.integers(1, 30))
def test_two_knobs_come_close_to_the_best_of_all(need, weight):
    """Quality by the product of two knobs, cost by their sum: against every combination."""
    first, second = Range("x", "search", 1, 100), Range("y", "search", 1, 32)

    def outcome(x, y):
        return told(min(1.0, 0.9 * x * y / need), 50 + x + weight * y)

    best = min(
        outcome(x, y).cost for x in range(1, 101) for y in range(1, 33) if outcome(x, y).meets
    )
    seen = run(Nested(Refined(second), first), lambda y, x: outcome(x, y))
    found = min(o.cost for o in seen.values() if o.meets)
    assert found <= 1.06 * best
    assert len(seen) <= 320  # a tenth of the grid


def test_an_outer_knob_that_does_nothing_at_first_is_followed_further():
    """Below k = 100 candidates change nothing; 200 are needed, 40 lists suffice then."""

    def outcome(candidates, lists):
        found = min(max(candidates, 100) / 200, 1.0) * min(lists / 40, 1.0) * 0.95
        return told(found, lists * 10 + max(candidates, 100))

    outer = Refined(Range("candidates", "search", 1, 10_000))
    searcher = Nested(outer, Range("lists", "search", 1, 400))
    seen = run(searcher, lambda candidates, lists: outcome(candidates, lists))
    best = min((o.cost, p) for p, o in seen.items() if o.meets)
    assert best[0] <= 1.05 * (380 + 190)


def test_a_random_search_repeats_and_stays_inside():
    ranges = {"a": [Range("x", "search", 1, 50)], "b": [Range("y", "build", 0, 1, "linear", False)]}

    def points(seed):
        searcher, found = Random(ranges, seed), []
        for _ in range(40):
            found.append(dict(searcher.ask()))
            searcher.tell(found[-1], told(0.5, 1))
        return found

    assert points(1) == points(1) != points(2)
    for point in points(1):
        assert ("x" in point) == (point["system"] == "a")
        assert ("y" in point) == (point["system"] == "b")


def test_tpe_searches_mixed_and_conditional_spaces():
    """System b meets the target at 60 at best, system a at 24 (x = 20 of 100, M = 4)."""
    searcher = TPE(
        {
            "a": [Range("x", "search", 1, 100), Range("M", "build", 4, 64, "log", True, (4, 16))],
            "b": [Range("y", "search", 0.5, 4.0, "linear", False)],
            "c": [Range("z", "search", "no", "yes", listed=("no", "yes"), ordered=False)],
        },
        seed=3,
    )
    best = math.inf
    for _ in range(80):
        point = searcher.ask()
        assert ("y" in point) == (point["system"] == "b")
        if point["system"] == "a":
            found = told(point["x"] / 20 * 0.9, point["x"] + point["M"])
        elif point["system"] == "c":
            found = told({"no": 0.5, "yes": 1.0}[point["z"]], 50)
        else:
            found = told(point["y"] / 2 * 0.9, 30 * point["y"])
        searcher.tell(point, found)
        best = min(best, found.cost if found.meets else math.inf)
    assert best <= 30


# -- the guard ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("looks", "refused"),
    [
        # Seconds of (lowest, highest), twice. A steady clock: 3% are no effect, 20% are one, which
        # a limit of 25% would have taken for noise.
        ([(1.00, 1.03), (1.00, 1.03)], True),
        ([(1.00, 1.20), (1.01, 1.20)], False),
        # A clock that shakes by half: what differs by less says nothing.
        ([(1.00, 1.40), (1.50, 1.30)], True),
        ([(1.00, 9.00), (1.50, 9.00)], False),
    ],
)
def test_times_are_compared_as_far_as_a_setting_differs_from_itself(looks, refused):
    measured = Measured(
        np.arange(4), {"recall@5": np.ones(4)}, {"latency_seconds": np.ones(4)}, "same"
    )
    low, high = (Setting("db", (), (("ef", ef),)) for ef in (5, 500))
    trials = [Trial(one, measured, full=True, first="same") for one in (low, high)]
    seconds = iter([time for look in looks for time in look])

    def guarded():
        require_effect(
            trials, objective("latency_seconds"), "recall@5", Shells, lambda setting: next(seconds)
        )

    if refused:
        with pytest.raises(InputError, match="there is nothing to tune"):
            guarded()
    else:
        guarded()


# -- stored trials --------------------------------------------------------------------------------

SETTING = Setting("faiss", (("M", 16),), (("efSearch", 40),))


def part(rows):
    values = {"recall@10": np.linspace(0, 1, len(rows)), "srecall@10": np.full(len(rows), np.nan)}
    return Measured(np.array(rows), values, {"bytes_read": np.arange(len(rows)) + 0.5}, "abc", 1.5)


def test_stored_parts_come_back_to_the_bit(tmp_path):
    path = tmp_path / "trials.sqlite"
    trials = Trials(path, {"k": 10})
    trials.add(SETTING, False, part([3, 1, 2]))
    trials.fail(SETTING, np.array([5]), False, "out of memory")
    trials.close()
    again = Trials(path, {"k": 10})
    found = again.find(SETTING, np.array([3, 1, 2]), False, ["recall@10", "srecall@10"])
    assert isinstance(found, Measured)
    np.testing.assert_array_equal(found.values["srecall@10"], [np.nan] * 3)
    np.testing.assert_array_equal(found.values["recall@10"], [0, 0.5, 1])
    np.testing.assert_array_equal(found.costs["bytes_read"], [0.5, 1.5, 2.5])
    assert (found.digest, found.seconds, len(again)) == ("abc", 1.5, 2)
    assert again.find(SETTING, np.array([5]), False, ["recall@10"]) == "out of memory"
    # Other queries, another pass, other measures: other parts.
    assert again.find(SETTING, np.array([1, 2, 3]), False, ["recall@10"]) is None
    assert again.find(SETTING, np.array([3, 1, 2]), True, ["recall@10"]) is None
    assert again.find(SETTING, np.array([3, 1, 2]), False, ["nDCG@10"]) is None


def test_a_file_of_other_trials_is_refused_by_what_differs(tmp_path):
    Trials(tmp_path / "t.sqlite", {"k": 10, "queries": "a"}).close()
    with pytest.raises(InputError, match=r"k 10 there, 20 here") as error:
        Trials(tmp_path / "t.sqlite", {"k": 20, "queries": "a"})
    assert error.value.hint is not None
    assert "queries" not in error.value.message


def test_a_file_that_is_no_store_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("nothing of the kind " * 100)
    with pytest.raises(InputError, match="cannot be read as a file of trials"):
        Trials(path, {"k": 10})
    assert path.read_text().startswith("nothing of the kind")
    with pytest.raises(InputError, match="does not exist"):
        Trials(tmp_path / "nowhere" / "t.sqlite", {"k": 10})


def test_a_full_disk_loses_nothing_that_was_finished(tmp_path):
    """SQLite says the same for a full disk and for the largest size it is allowed."""
    path = tmp_path / "t.sqlite"
    trials = Trials(path, {"k": 10})
    trials.add(SETTING, False, part([0, 1]))
    pages = trials._file.execute("PRAGMA page_count").fetchone()[0]
    trials._file.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Stopped, match="full") as error:
        trials.add(SETTING, False, part(list(range(20_000))))
    assert error.value.hint is not None
    assert "make room" in error.value.hint
    trials.close()
    assert len(Trials(path, {"k": 10})) >= 1


def test_trials_in_memory_can_be_rescued():
    trials = Trials(None, {"k": 10})
    trials.add(SETTING, False, part([0, 1]))
    path = trials.rescued()
    try:
        with sqlite3.connect(path) as file:
            assert file.execute("SELECT count(*) FROM parts").fetchone() == (1,)
        assert len(Trials(path, {"k": 10})) == 1
    finally:
        path.unlink()
