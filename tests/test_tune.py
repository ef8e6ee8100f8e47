"""tune(): what is chosen, confirmed, refused, resumed; what it saves; the command line."""

from __future__ import annotations

import json
import math
import sqlite3
import sys

import numpy as np
import pytest
from tuned_system import Shells

import semrecall as sr
from semrecall.errors import InputError, MeasureError, SemrecallWarning, Stopped, SystemFault
from semrecall.splits import Split
from semrecall.systems.base import Knob
from semrecall.tuning import Evaluator, Setting, objective
from semrecall.tuning.ranges import ranges_of
from semrecall.tuning.vizier import PYTHON, Vizier

K = 10
RNG = np.random.default_rng(11)
BASE = RNG.standard_normal((300, 6)).astype(np.float32)
QUERIES = RNG.standard_normal((60, 6)).astype(np.float32)
TRUTH = sr.truth(BASE, QUERIES, K, "l2")
#: The first three exact neighbours of a query matter, the others do not.
JUDGMENTS = sr.Judgments.from_arrays(
    np.repeat(np.arange(60), K),
    np.concatenate([row[:K] for row in TRUTH.ids]),
    np.tile([2.0] * 3 + [0.0] * 7, 60),
)
GIVEN = {"truth": TRUTH, "judgments": JUDGMENTS, "base": BASE, "space": "l2"}


def built(**behaviour) -> Shells:
    return Shells(**behaviour).build(BASE, "l2")


def tune(system=None, target=f"recall@{K} >= 0.9", **more):
    return sr.tune(built() if system is None else system, QUERIES, target, **(GIVEN | more))


def by_hand(system, visits, measure=f"recall@{K}"):
    """The mean of a measure for each value of the knob, by evaluate."""
    means = {}
    for visit in visits:
        run, _ = sr.search(system, QUERIES, K, repeats=1, latency_queries=0, visit=visit)
        result = sr.evaluate(run, measure, **{n: v for n, v in GIVEN.items() if n != "space"},
                             queries=QUERIES)  # fmt: skip
        means[visit] = result[measure].values
    return means


# -- the choice -----------------------------------------------------------------------------------


def test_the_cheapest_setting_that_meets_the_target_is_found():
    """Against all hundred settings, on the same development queries."""
    system = built()
    found = tune(system)
    development = ~np.isin(np.arange(60), sr.split(np.arange(60)).part("test").array())
    values = by_hand(system, range(1, 101))
    least = min(v for v, x in values.items() if x[development].mean() >= 0.9)
    assert found.settings == {"visit": least}
    assert found.choice.development.mean == pytest.approx(values[least][development].mean())
    assert found.mean == pytest.approx(values[least][~development].mean())
    assert found.verdict == ("met" if found.mean >= 0.9 else "not met")
    low, high = found.interval
    assert low <= found.mean <= high
    # 300 vectors of 6 floats, so many percent of them.
    assert found.cost == round(3.0 * least) * 24
    assert found.objective.name == "bytes_read"
    assert found.snippet == f"SET shells.visit = {least};"


def test_a_tenth_of_the_grid_is_enough():
    assert tune().searched <= 100 * 30 / 10


def test_racing_changes_what_it_costs_and_not_what_is_found():
    raced, patient = tune(), tune(racing=False)
    assert raced.settings == patient.settings
    assert raced.searched < patient.searched
    assert any(not t.full for t in raced.trials)


@pytest.mark.parametrize("searcher", ["grid", "bisection", "tpe", "random"])
def test_every_searcher_finds_a_setting_that_meets_the_target(searcher):
    found = tune(searcher=searcher, trials=25)
    assert found.choice.development.mean >= 0.9
    assert found.settings["visit"] <= 60


@pytest.mark.parametrize("searcher", ["auto", "grid", "tpe", "random"])
def test_a_mode_is_chosen_among_words(searcher):
    """By the base itself the fewest percent are enough."""
    system = built(modes=True)
    found = tune(system, search={"visit": (1, 40), "order": ()}, searcher=searcher, trials=60)
    assert found.settings["order"] == "base"
    assert found.verdict == "met"
    assert found.snippet.endswith("SET shells.order = base;")
    assert "order=base" in str(found)
    least = tune(system, search={"visit": (1, 40), "order": "base"}).settings["visit"]
    assert least <= found.settings["visit"] <= (least if searcher == "auto" else 2 * least)


def test_modes_alone_are_all_tried_and_others_stay_out():
    system = built(modes=True)
    found = tune(system, search={"order": ["base", "sketch"], "visit": 10})
    tried = {dict(trial.setting.search)["order"] for trial in found.trials}
    assert tried == {"base", "sketch"}
    # Nobody asked for it: what trades quality for cost is tuned.
    assert "order" not in tune(system).settings
    with pytest.raises(InputError, match="bisection is of one knob"):
        tune(system, search={"order": ()}, searcher="bisection")
    with pytest.raises(InputError, match="order is 'any'; expected sketch, mirror or base"):
        tune(system, search={"order": ["any"]})


def test_the_same_seed_gives_the_same_result():
    assert str(tune(searcher="tpe", trials=15)) == str(tune(searcher="tpe", trials=15))


def test_the_front_is_cheapest_first_and_holds_the_choice():
    found = tune()
    costs = [p.cost.mean for p in found.front]
    means = [p.measures[f"recall@{K}"].mean for p in found.front]
    assert costs == sorted(set(costs))
    assert means == sorted(set(means))
    assert found.choice.setting in [p.setting for p in found.front]
    assert f"visit={found.settings['visit']:g}" in str(found)


def test_a_measure_that_is_better_when_lower():
    found = tune(target=f"rde@{K} <= 0.01")
    assert found.choice.development.mean <= 0.01
    assert found.settings["visit"] < 100


def test_relevance_measures_need_no_truth():
    found = tune(target="nDCG@5 >= 0.9", truth=None, base=None)
    assert found.choice.development.mean >= 0.9


def test_build_knobs_are_tuned_outside_and_builds_serve_all_their_searches():
    system = Shells()
    found = tune(system, build={"noise": [0, 20, 60, 100]}, builds=8)
    assert found.build == {"noise": 0}
    # Without noise the sketch is the base: 4% of 300 vectors are 12, enough for 10 neighbours.
    assert found.settings["visit"] == 3
    builds = {t.setting.build for t in found.trials}
    assert len(builds) < len(found.trials)
    assert system.calls["builds"] <= len(found.trials)
    assert found.snippet == "MAKE shells WITH noise = 0;\nSET shells.visit = 3;"
    alone = tune(Shells(), build={"noise": [0, 60]}, search={"visit": 3})
    assert alone.snippet == "MAKE shells WITH noise = 0;\nSET shells.visit = 3;"


@pytest.mark.parametrize("search", [None, {"visit": (1, 60)}])
def test_search_knobs_that_only_a_build_has_are_tuned_with_build_knobs(search):
    system = Shells(lazy=True)
    found = tune(system, build={"noise": [0, 20, 60]}, search=search, builds=8)
    assert (found.build, found.settings["visit"]) == ({"noise": 0}, 3)
    # The build of noise 60 goes to visit=60; others are asked for no more than they have.
    assert not [t for t in found.trials if t.failed]
    assert {name for t in found.trials for name, _ in t.setting.search} == {"visit"}


def test_every_build_is_closed_and_what_was_given_is_not():
    system = Shells(lazy=True)
    tune(system, build={"noise": [2, 20]}, trials=20)
    assert system.calls["builds"] >= 3  # one to look at its knobs, and one of each value
    assert system.calls["closes"] == system.calls["builds"]
    given = built()
    tune(given)
    assert given.calls["closes"] == 0


def test_builds_that_would_share_a_name_are_refused_before_any_work():
    system = Shells(named="docs")
    with pytest.raises(InputError, match="only one can be called 'docs'") as error:
        tune(system, build={"noise": [2, 20]})
    assert "replace=true" in error.value.hint
    assert system.calls == {"queries": 0, "builds": 0, "closes": 0}
    assert tune(Shells(named="docs", replace=True), build={"noise": [2, 20]}).build
    assert tune(built(named="docs")).settings  # in place, with its search knobs


def test_build_knobs_alone_make_no_more_builds_than_allowed():
    system = built()
    found = tune(system, build={"noise": (0, 100)}, search={"visit": 100}, builds=3)
    assert len({t.setting.build for t in found.trials}) == 3


def test_whole_numbers_are_shown_and_pasted_as_such():
    """The ends of a knob may be floats, and a search ends there."""
    found = tune(built(range=(1.0, 100.0)), target=f"recall@{K} >= 1")
    assert {type(value) for t in found.trials for _, value in t.setting.search} == {int}


def test_several_systems_are_compared_by_cost():
    dear, cheap = built(), Shells().build(BASE, "l2", noise=0)
    cheap.spec = "cheap"
    found = tune([dear, cheap])
    assert found.system == "cheap"
    assert "cheap" in str(found)
    assert tune([dear, cheap], searcher="tpe", trials=40).system == "cheap"


def test_the_bound_is_a_surer_choice_than_the_mean():
    found = tune(choose="bound")
    assert found.choice.development.low >= 0.9
    assert found.settings["visit"] > tune().settings["visit"]


# -- verdicts -------------------------------------------------------------------------------------


def test_what_fails_on_queries_held_out_is_not_met_and_a_surer_setting_is_named():
    """Case E07: met on the queries that choose, missed on those held out."""
    system = built()
    hard = np.argsort(by_hand(system, [5])[5])
    parts = np.full(60, "dev", dtype=object)
    parts[hard[:30]] = "test"
    halves = Split(TRUTH.queries, tuple(parts))
    found = tune(system, f"recall@{K} >= 0.94", split=halves)
    assert found.verdict == "not met"
    assert found.choice.development.mean >= 0.94 > found.mean
    assert found.interval[0] < 0.94
    assert found.safe is not None
    assert found.safe.measures[f"recall@{K}"].low >= 0.94
    assert found.safe.setting != found.choice.setting
    assert "not met: recall@10 is" in str(found)
    # The way out stands right below the verdict, and first among the notes for programs.
    top = " ".join(str(found).partition("\n\n")[0].split())
    assert f"take {found.safe.setting}: on development queries the cheapest setting" in top
    assert found.to_dict()["notes"][0].startswith(f"take {found.safe.setting}: ")
    # At 0.9 the chosen one is as sure as can be there: the queries held out are just harder.
    found = tune(system, split=halves)
    assert found.safe is not None
    assert found.safe.setting == found.choice.setting
    assert "the queries held out are harder" in " ".join(str(found).split())


def test_queries_held_out_without_a_value_are_told_apart():
    """Case: the headline counts as the tables do, which have all queries held out."""
    # Every fifth query has no relevant neighbour.
    known = np.repeat(np.arange(60) % 5 > 0, K)
    grades = np.where(known, JUDGMENTS.grades, 0.0)
    documents = np.concatenate([row[:K] for row in TRUTH.ids])
    labels = sr.Judgments.from_arrays(np.repeat(np.arange(60), K), documents, grades)
    found = tune(target=f"srecall@{K} >= 0.9", judgments=labels)
    valued, out = found.choice.held_out.n, found.held_out - found.choice.held_out.n
    assert out > 0
    said = " ".join(str(found).split())
    assert f"on {valued} of {found.held_out} queries held out ({out} without a value)" in said


def test_a_target_out_of_reach_is_unreachable_and_the_best_effort_is_named():
    """Case E09: no value of the knob reaches the target."""
    found = tune(built(ceiling=0.05), f"recall@{K} >= 0.9")
    assert found.verdict == "unreachable"
    assert found.choice.development.mean == max(p.measures[f"recall@{K}"].mean for p in found.front)
    assert "at best recall@10 is" in " ".join(str(found).split())


def test_two_values_are_enough():
    """Case E01."""
    found = tune(search={"visit": [5, 80]})
    assert found.settings == {"visit": 80}
    assert len(found.trials) == 2
    assert tune(search={"visit": (1, 2)}).verdict == "unreachable"


def test_a_knob_with_one_value_is_confirmed_as_it_is():
    found = tune(search={"visit": 80})
    assert (found.settings, len(found.trials)) == ({"visit": 80}, 1)


# -- what is refused ------------------------------------------------------------------------------


def test_a_knob_that_is_ignored_is_refused_with_the_likely_reason():
    """Every search is exact, as before an index is used."""
    with pytest.raises(InputError, match="the same results at the same cost") as error:
        tune(built(ignores=True))
    assert error.value.hint is not None
    assert "is the index used" in error.value.hint
    with pytest.raises(InputError) as error:
        tune(built(ignores=True, ceiling=0.1))
    assert error.value.hint is not None
    assert "may ignore visit" in error.value.hint
    with pytest.raises(InputError) as error:
        tune(built(ignores=True, exact=True))
    assert error.value.hint is not None
    assert "says itself that it compares every vector, whatever visit is" in error.value.hint


def test_settings_that_do_the_same_at_the_low_end_are_no_reason_to_refuse():
    """As of a candidate list below k: what is higher has to be tried first."""

    class Stepped(Shells):
        def _visited(self, queries, visit, order="sketch"):
            return super()._visited(queries, max(20, visit), order)

    system, tops = Stepped().build(BASE, "l2", noise=0), 0
    for seed in range(8):
        found = tune(system, searcher="random", trials=2, seed=seed)
        tried = sorted(value for t in found.trials for _, value in t.setting.search)
        if tried[1] <= 20:
            assert tried[2:] == [100]
            assert found.verdict == "met"
            tops += 1
    assert tops


def test_a_knob_that_cannot_act_below_k_is_tuned_from_there():
    knobs = (Knob("ef", "search", 1, 64, None, "candidates (at least k)", "log", from_k=True),)

    class Graph(Shells):
        knobs = ()

    Graph.knobs = knobs
    (one,) = ranges_of(Graph(), "search", None, 10)
    assert (one.low, one.high) == (10, 64)
    (one,) = ranges_of(Graph(), "search", {"ef": ()}, 10)
    assert one.low == 10
    (one,) = ranges_of(Graph(), "search", {"ef": (2, 20)}, 10)
    assert one.low == 2
    assert ranges_of(Graph(), "search", None, 100) == []


def test_a_system_without_knobs_has_nothing_to_tune():
    exact = sr.open_system("exact").build(BASE, "l2")
    with pytest.raises(InputError, match="no search knob"):
        tune(exact)


def test_a_cost_that_is_not_counted_is_refused_with_those_that_are():
    with pytest.raises(InputError) as error:
        tune(built(uncounted=True), minimize="bytes_read")
    assert "shells does not tell bytes_read" in error.value.message
    # Whatever answers has a latency.
    assert "latency_seconds" in str(error.value.hint)


def test_without_counters_latency_is_minimised():
    found = tune(built(uncounted=True), search={"visit": [2, 90]})
    assert found.objective.name == "latency_seconds"
    assert "times are of this machine" in str(found)


@pytest.mark.parametrize("name", ["queries_per_second", "latency_p95_seconds", "cpu_seconds"])
def test_clocks_can_be_minimised(name):
    found = tune(minimize=name, search={"visit": [2, 90]})
    assert found.objective.name == name
    assert found.settings == {"visit": 90}
    assert found.cost > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"search": {"visits": (1, 9)}}, "no search knob 'visits'"),
        ({"search": {"visit": (1, 900)}}, "from 1 to 100"),
        ({"build": {"noises": (1, 9)}}, "noises"),
        ({"minimize": "bytes"}, "is no cost"),
        ({"searcher": "annealing"}, "unknown searcher"),
        ({"choose": "median"}, "expected 'mean' or 'bound'"),
        ({"trials": 0}, "expected at least 1"),
        ({"dev": 0.0}, "between 0 and 1"),
        ({"k": 3}, "need 10 results"),
        ({"truth": None, "judgments": None}, "nothing to compare with"),
    ],
)
def test_wrong_arguments_are_named(more, message):
    with pytest.raises(InputError) as error:
        tune(**more)
    assert message in str(error.value)


def test_a_system_that_has_to_be_built_needs_the_base_and_the_space():
    with pytest.raises(InputError, match="has to be built"):
        tune(Shells(), base=None)
    with pytest.raises(InputError, match="in which space"):
        tune(Shells(), space=None)


def test_semantic_recall_without_a_relevant_neighbour_is_refused():
    nothing = sr.Judgments.from_arrays(JUDGMENTS.queries, JUDGMENTS.documents, np.zeros(600))
    with pytest.raises(InputError, match=r"undefined for all \d+ development queries"):
        tune(target=f"srecall@{K} >= 0.9", judgments=nothing)
    with pytest.raises(MeasureError, match="judgments"):
        tune(target=f"srecall@{K} >= 0.9", judgments=None)


def test_one_query_cannot_choose_and_confirm():
    with pytest.raises(InputError, match="of 1 queries"):
        sr.tune(built(), QUERIES[:1], f"recall@{K} >= 0.9",
                truth=sr.truth(BASE, QUERIES[:1], K, "l2"), base=BASE)  # fmt: skip


def test_a_few_queries_are_few():
    few = sr.truth(BASE, QUERIES[:12], K, "l2")
    with pytest.warns(SemrecallWarning, match="so few say little"):
        sr.tune(built(), QUERIES[:12], f"recall@{K} >= 0.5", truth=few, base=BASE)


def test_k_beyond_the_base():
    """Of 8 vectors all are neighbours; recall@10 is over the 8 there are."""
    base = BASE[:8]
    truth = sr.truth(base, QUERIES, K, "l2")
    found = sr.tune(Shells().build(base, "l2"), QUERIES, "recall@10 >= 0.9", truth=truth, base=base)
    # Two of 8 missing is 0.75: all eight have to be visited, and 94% of 8 rounds to 8.
    assert found.settings == {"visit": 94}


# -- stopped, and resumed -------------------------------------------------------------------------


def after(calls, fault):
    """Fails once, after so many searches."""
    left = [calls]

    def fails(visit):
        left[0] -= 1
        if left[0] == 0:
            raise fault
        return False

    return fails


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), SystemFault("server gone")])
@pytest.mark.parametrize("calls", [4, 6, 11])
def test_whatever_stops_it_loses_no_finished_trial(tmp_path, fault, calls):
    undisturbed = built()
    whole = tune(undisturbed)
    store = tmp_path / "trials.sqlite"
    system = built()
    system.fails = after(calls, fault)
    if isinstance(fault, SystemFault):
        # Not only this search: the server stays away.
        system.fails = lambda visit, count=[0]: (
            count.__setitem__(0, count[0] + 1) or (count[0] >= calls)
        )
    with pytest.raises(Stopped) as error:
        tune(system, store=store)
    assert error.value.hint is not None
    # Two searches show what is counted, then each part is two: a warm-up, and the batch.
    assert "run the same again" in error.value.hint
    system.fails = lambda visit: False
    system.calls["queries"] = 0
    again = tune(system, store=store)
    assert str(again) == str(whole)
    if calls > 4:
        assert system.calls["queries"] < undisturbed.calls["queries"]
    # All done: a third time nothing is searched but the look at which counters there are.
    system.calls["queries"] = 0
    assert str(tune(system, store=store)) == str(whole)
    assert system.calls["queries"] <= 8


def test_without_a_store_finished_trials_are_rescued(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    system = built()
    system.fails = after(6, KeyboardInterrupt())
    with pytest.raises(Stopped, match="interrupted") as error:
        tune(system)
    (path,) = tmp_path.glob("semrecall-trials-*.sqlite")
    assert str(path) in error.value.message
    system.fails = lambda visit: False
    assert str(tune(system, store=path)) == str(tune())


def test_a_collection_that_goes_away_meanwhile_loses_no_finished_trial(tmp_path, monkeypatch):
    """A database may say so as it says what is wrong with a question."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    system, calls = built(), []

    def gone(visit):
        calls.append(visit)
        if len(calls) >= 8:
            raise InputError("there is no table 'docs'", hint="there are none")
        return False

    system.fails = gone
    with pytest.raises(Stopped, match=r"there is no table 'docs'; \d+ finished parts") as error:
        tune(system)
    (path,) = tmp_path.glob("semrecall-trials-*.sqlite")
    assert error.value.hint is not None
    assert error.value.hint.startswith("there are none; see that the system runs; then run the")
    system.fails = lambda visit: False
    assert str(tune(system, store=path)) == str(tune())
    # Of the first search it is the input that is wrong.
    system.fails = after(1, InputError("there is no table 'docs'"))
    with pytest.raises(InputError, match="there is no table 'docs'"):
        tune(system)


def test_one_setting_that_fails_is_left_out_and_named():
    system = built()
    system.fails = lambda visit: visit == 16
    found = tune(system)
    assert found.settings != {"visit": 16}
    assert "visit=16 could not be searched: connection lost" in str(found)
    assert found.choice.development.mean >= 0.9


def test_trials_of_other_data_are_not_mixed(tmp_path):
    tune(store=tmp_path / "t.sqlite")
    other = sr.truth(BASE, QUERIES[:40], K, "l2")
    with pytest.raises(InputError, match=r"holds trials of something else: .*queries"):
        sr.tune(built(), QUERIES[:40], "recall@10 >= 0.9", truth=other, base=BASE,
                store=tmp_path / "t.sqlite")  # fmt: skip


# -- the evaluator --------------------------------------------------------------------------------


def test_values_of_a_part_are_those_of_the_whole():
    """The tolerance that trecall takes from the data is that of all queries, in any part."""
    names = [f"recall@{K}", f"srecall@{K}", f"trecall@{K}", f"rde@{K}"]
    evaluator = Evaluator(QUERIES, names, truth=TRUTH, judgments=JUDGMENTS, base=BASE)
    system = built()
    whole = evaluator.measure(system, {"visit": 3})
    rows = np.array([40, 3, 17])
    part = evaluator.measure(system, {"visit": 3}, rows)
    run, cost = sr.search(system, QUERIES, K, repeats=1, latency_queries=0, visit=3)
    result = sr.evaluate(run, names, truth=TRUTH, judgments=JUDGMENTS, base=BASE, queries=QUERIES)
    for name in names:
        np.testing.assert_allclose(whole.values[name], result[name].values, rtol=1e-12)
        np.testing.assert_array_equal(part.values[name], whole.values[name][rows])
    # The tolerance of a single query is another than that of all; it would show in some of them.
    for row in range(60):
        alone = evaluator.measure(system, {"visit": 3}, np.array([row]))
        np.testing.assert_array_equal(
            alone.values[f"trecall@{K}"], whole.values[f"trecall@{K}"][[row]]
        )
    np.testing.assert_array_equal(whole.costs["bytes_read"], cost.bytes_read)
    np.testing.assert_array_equal(whole.of(rows).costs["bytes_read"], part.costs["bytes_read"])
    assert evaluator.measure(system, {"visit": 3}).digest == whole.digest
    assert evaluator.measure(system, {"visit": 4}).digest != whole.digest


def test_queries_that_nothing_is_known_of_are_left_out():
    ids = np.arange(60) + 20
    evaluator = Evaluator(QUERIES, f"recall@{K}", truth=TRUTH, query_ids=ids)
    assert (len(evaluator), evaluator.left_out) == (40, 20)
    with pytest.raises(sr.SemrecallError, match="no query is in the truth"):
        Evaluator(QUERIES, f"recall@{K}", truth=TRUTH, query_ids=ids + 1000)


def test_semantic_neighbours_are_counted_once():
    evaluator = Evaluator(QUERIES, f"srecall@{K}", truth=TRUTH, judgments=JUDGMENTS)
    assert evaluator.semantic is not None
    assert evaluator.semantic.counts.tolist() == [3] * 60


def test_times_are_taken_in_a_pass_of_their_own():
    evaluator = Evaluator(QUERIES, f"recall@{K}", truth=TRUTH)
    system = built()
    assert set(evaluator.measure(system).costs) == {"bytes_read", "distance_computations"}
    timed = evaluator.measure(system, timed=True)
    assert {"cpu_seconds", "latency_seconds", "batch_seconds"} < set(timed.costs)
    assert timed.cost(objective("latency_p99_seconds")) > 0


# -- what it saves --------------------------------------------------------------------------------


def test_savings_are_those_of_the_two_comparisons_by_hand():
    """Settings chosen on development queries; costs are percent of 300 vectors of 24 bytes."""
    system = built()
    found = tune(system, f"srecall@{K} >= 0.9", against="recall")
    development = ~np.isin(np.arange(60), sr.split(np.arange(60)).part("test").array())
    recall = {v: x[development].mean() for v, x in by_hand(system, range(1, 101)).items()}
    semantic = {
        v: x[development].mean() for v, x in by_hand(system, range(1, 101), f"srecall@{K}").items()
    }
    before = min(v for v, x in recall.items() if x >= 0.9)
    moved = min(v for v, x in semantic.items() if x >= 0.9)
    equal = min(v for v, x in semantic.items() if x >= semantic[before])
    rows = {(s.comparison, s.group): s for s in found.savings}
    target, quality = rows["same target", "all"], rows["same quality", "all"]
    assert target.before == Setting("shells", (), (("visit", before),))
    assert target.after == Setting("shells", (), (("visit", moved),))
    assert target.saved is not None
    assert target.saved.mean == pytest.approx(1 - round(3 * moved) / round(3 * before))
    # Every query costs the same: the ratio has no spread.
    assert target.saved.low == pytest.approx(target.saved.mean)
    assert dict(quality.after.search)["visit"] == equal
    if equal == before:
        assert quality.verdict == "no saving, same setting"
    # All queries have three neighbours that matter: one group, and all in it.
    assert {s.group for s in found.savings} == {"all", "2-7"}
    assert "same target: srecall@10 instead of recall@10 at 0.9" in " ".join(str(found).split())


def test_a_recall_that_is_out_of_reach_has_nothing_to_save_against():
    found = tune(built(ceiling=0.05), f"srecall@{K} >= 0.93", against="recall")
    rows = {(s.comparison, s.group): s for s in found.savings}
    assert rows["same target", "all"].verdict == "recall@10 is out of reach"


def test_the_same_measure_saves_nothing():
    doubled = sr.Judgments.from_arrays(JUDGMENTS.queries, JUDGMENTS.documents, np.ones(600))
    found = tune(target=f"srecall@{K} >= 0.9", against="recall", judgments=doubled)
    assert {s.verdict for s in found.savings} == {"no saving, same setting"}


# -- the command line -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    pytest.importorskip("faiss", reason="needs the package faiss, which is not installed")
    np.save(tmp_path / "base.npy", BASE)
    np.save(tmp_path / "queries.npy", QUERIES)
    sr.write(TRUTH, tmp_path / "truth.parquet")
    sr.write(JUDGMENTS, tmp_path / "labels.parquet")
    return [
        "tune", "faiss?factory=IVF24,Flat", "--base", "base.npy", "--queries", "queries.npy",
        "--space", "l2", "--truth", "truth.parquet", "--judgments", "labels.parquet",
    ]  # fmt: skip


def test_tune_from_the_shell(semrecall_main, files, tmp_path):
    status, out, err = semrecall_main(
        *files, "--target", "srecall(rel=2)@10 >= 80%", "-m", "trecall@10", "--against", "recall",
        "--store", "t.sqlite",
    )  # fmt: skip
    assert status in (0, 1), err
    assert out.startswith(("met: srecall(rel=2)@10 is", "not met: srecall(rel=2)@10 is"))
    assert "set_index_parameter(index, 'nprobe'" in out
    assert max(map(len, out.splitlines())) <= 100
    assert status == (0 if out.startswith("met") else 1)
    with sqlite3.connect(tmp_path / "t.sqlite") as file:
        assert file.execute("SELECT count(*) FROM parts").fetchone()[0] > 3


def test_tune_prints_json_csv_and_markdown(semrecall_main, files):
    wanted = [*files, "--target", "recall@10 >= 0.7", "--search", "nprobe=1:24"]
    _, out, _ = semrecall_main(*wanted, "--format", "json")
    found = json.loads(out)
    assert found["settings"]["nprobe"] >= 1
    assert found["verdict"] in ("met", "not met")
    assert found["queries"]["development"] + found["queries"]["held_out"] == 60
    _, out, _ = semrecall_main(*wanted, "--format", "csv")
    assert out.splitlines()[0].startswith("system,nprobe,recall@10,recall@10 low")
    _, out, _ = semrecall_main(*wanted, "--format", "markdown")
    assert out.startswith("| system | nprobe |")


def test_a_target_that_is_missed_is_a_gate_that_failed(semrecall_main, files):
    status, out, _ = semrecall_main(
        *files, "--target", "recall@10 >= 0.9", "--search", "nprobe=1,2"
    )
    assert status == 1
    assert out.startswith("unreachable")


def test_a_split_file_says_who_chooses_and_counts_the_look(semrecall_main, files, tmp_path):
    sr.split(np.arange(60), 0.3).write(tmp_path / "s.csv")
    status, out, err = semrecall_main(
        *files, "--target", "recall@10 >= 0.6", "--split", "s.csv", "--format", "json"
    )
    assert status in (0, 1), err
    split = sr.split(np.arange(60), 0.3)
    assert json.loads(out)["queries"]["development"] == split.counts["dev"]
    assert (tmp_path / "s.csv.uses.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "recall@10"], "is not MEASURE >= VALUE"),
        (["--target", "recall@10 >= 0.9", "--minimize", "money"], "is no cost"),
        (["--target", "recall@10 >= 0.9", "--search", "nprobes=1:4"], "no search knob"),
        (["--target", "recall@10 >= 0.9", "--search", "nprobe=1:x"], "is not a number"),
        (["--target", "recall@20 >= 0.9"], "only 10 deep"),
        (["--target", "recall@10 >= 0.9", "--store", "labels.parquet"], "would write over"),
        (["--target", "recall@10 >= 0.9", "--searcher", "none"], "unknown searcher"),
    ],
)
def test_wrong_input_is_status_two(semrecall_main, files, more, message):
    status, out, err = semrecall_main(*files, *more)
    assert (status, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_an_interrupt_is_status_three_and_says_how_to_go_on(semrecall_main, files, monkeypatch):
    from semrecall.systems.faiss import FaissSystem

    searched, search = [0], FaissSystem.search

    def interrupted(self, *given, **settings):
        searched[0] += 1
        if searched[0] == 8:
            raise KeyboardInterrupt
        return search(self, *given, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(FaissSystem, "search", interrupted)
        status, _, err = semrecall_main(*files, "--target", "recall@10 >= 0.9", "--store", "t.db")
    assert status == 3
    assert "finished parts of trials are kept in t.db" in err
    assert "run the same again with t.db as store" in err
    status, _, err = semrecall_main(*files, "--target", "recall@10 >= 0.9", "--store", "t.db")
    assert status in (0, 1), err


@pytest.mark.parametrize("where", ["semrecall.formats.read_run", "faiss.index_factory"])
def test_an_interrupt_before_the_first_trial_is_status_three(
    semrecall_main, files, monkeypatch, where
):
    def interrupted(*given, **more):
        raise KeyboardInterrupt

    pytest.importorskip("faiss")
    monkeypatch.setattr(where, interrupted)
    status, out, err = semrecall_main(*files, "--target", "recall@10 >= 0.9")
    assert (status, out) == (3, "")
    assert "interrupted; no trial was finished" in err
    assert "run the same again" in err


def test_tune_writes_a_page(semrecall_main, files, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the package matplotlib, which is not installed")
    status, _, err = semrecall_main(
        *files, "--target", "srecall(rel=2)@10 >= 0.8", "--against", "recall", "--html", "t.html"
    )
    assert status in (0, 1), err
    page = (tmp_path / "t.html").read_text()
    assert page.count("<svg") >= 1
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "semrecall tune" in page


# -- Google Vizier --------------------------------------------------------------------------------


def test_vizier_without_an_environment_says_what_is_missing(monkeypatch):
    monkeypatch.delenv(PYTHON, raising=False)
    with pytest.raises(sr.SemrecallError, match="google-vizier"):
        tune(searcher="vizier")
    monkeypatch.setenv(PYTHON, "/no/such/python")
    with pytest.raises(InputError, match="cannot be run"):
        tune(searcher="vizier")
    monkeypatch.setenv(PYTHON, sys.executable)
    with pytest.raises(Stopped, match="ended without an answer"):
        tune(searcher="vizier")


@pytest.mark.environment("vizier")
def test_vizier_finds_a_setting_that_meets_the_target():
    found = tune(searcher="vizier", trials=8)
    assert found.choice.development.mean >= 0.9
    assert found.settings["visit"] < 100


@pytest.mark.environment("vizier")
def test_vizier_searches_mixed_spaces_within_their_bounds():
    from semrecall.tuning.racing import Outcome
    from semrecall.tuning.ranges import Range

    ranges = [
        Range("x", "search", 1, 100), Range("M", "build", 4, 64, "linear", True, (4, 8, 64)),
        Range("y", "search", 0.5, 4.0, "linear", False),
        Range("z", "search", "off", "on", listed=("off", "on"), ordered=False),
    ]  # fmt: skip
    searcher = Vizier(ranges, seed=1)
    for _ in range(4):
        point = searcher.ask()
        assert 1 <= point["x"] <= 100
        assert point["x"] == int(point["x"])
        assert point["M"] in (4, 8, 64)
        assert 0.5 <= point["y"] <= 4
        assert point["z"] in ("off", "on")
        searcher.tell(point, Outcome(0.5 - point["x"] / 100, point["x"] + point["M"]))
    searcher.tell(searcher.ask(), Outcome(math.inf, math.inf))
    searcher.close()
