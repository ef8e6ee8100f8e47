"""Early termination: features and trees by hand, the rule, what it is tried against, no leaks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import semrecall as sr
from semrecall.data import Ids
from semrecall.errors import FormatError, InputError, MismatchError
from semrecall.space import space
from semrecall.splits import Split
from semrecall.stopping import PARTS, StopRule, read_stop_rule
from semrecall.stopping.features import FEATURES, Watch
from semrecall.stopping.learning import learn_stopping
from semrecall.stopping.result import COSTS, FIXED, LEARNED, ORACLE
from semrecall.stopping.rule import checkpoints
from semrecall.stopping.trees import Trees, fit_trees
from semrecall.systems.rounds import Rounds

faiss = pytest.importorskip("faiss", reason="needs faiss")
pytest.importorskip("sklearn", reason="needs scikit-learn")

K, LISTS = 10, 24
TARGET = f"recall@{K} >= 0.9"


def clusters(n, seed):
    """Points of clusters of very different width: some queries are easy, some are hard."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(0, 4, (12, 8))
    at = rng.integers(0, 12, n)
    width = np.linspace(0.2, 4, 12)[at][:, None]
    return (centers[at] + width * rng.normal(size=(n, 8))).astype(np.float32)


BASE, QUERIES = clusters(2000, 1), clusters(240, 2)
TRUTH = sr.truth(BASE, QUERIES, K, "l2")
PART = np.array((["fit"] * 4 + ["calibrate"] * 3 + ["test"] * 3) * 24)
SPLIT = Split(Ids(np.arange(240)), tuple(PART))


@pytest.fixture(scope="module")
def system():
    return sr.open_system(f"faiss?factory=IVF{LISTS},Flat").build(BASE, "l2", train_rows=2000)


def learn(system, target=TARGET, **more):
    given = {"truth": TRUTH, "split": SPLIT, "allowed": 0.05} | more
    return learn_stopping(system, QUERIES, target, **given)


@pytest.fixture(scope="module")
def learned(system):
    return learn(system)


def rule(system, trees, threshold, k=K, limit=LISTS):
    index = {"space": "l2", "dimension": 8, "rows": system.ntotal, "lists": LISTS}
    return StopRule(TARGET, k, checkpoints(limit), trees, threshold, index)


def constant(value):
    leaf, none = np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1))
    return Trees(leaf, none, leaf, leaf, none, value, 1.0, 0)


# -- features -------------------------------------------------------------------------------------


class Told(Rounds):
    """Partial results as they are told, for three results of a list each."""

    def __init__(self, ids, scores, centroids, sizes, k):
        self.limit, self.k = np.shape(sizes)[1], k
        self.visited = np.zeros(len(sizes), dtype=np.int64)
        self.centroids, self.sizes = np.array(centroids, float), np.array(sizes)
        self._ids, self._scores = ids, scores

    def visit(self, rows, lists):
        self.visited[rows] = lists

    def results(self, rows):
        at = self.visited[rows]
        ids = np.array([self._ids[m][r] for m, r in zip(at, rows, strict=True)])
        scores = [self._scores[m][r] for m, r in zip(at, rows, strict=True)]
        return ids, np.array(scores, dtype=np.float32)

    def counters(self):
        raise AssertionError


def looked(told, name, lists):
    watch, seen = Watch(told, space(name)), []
    for upto in lists:
        told.visit(np.array([0]), upto)
        seen.append(dict(zip(FEATURES, watch.look(np.array([0]))[0].tolist(), strict=True)))
    return seen


@pytest.mark.parametrize("strings", [False, True])
def test_features_by_hand(strings):
    ids = {1: [[4, 7, -1]], 2: [[4, 8, 7]], 3: [[4, 8, 7]]}
    if strings:
        ids = {m: [[str(i) if i >= 0 else "" for i in row] for row in r] for m, r in ids.items()}
    scores = {1: [[0.8, 0.4, np.nan]], 2: [[0.8, 0.6, 0.4]], 3: [[0.8, 0.6, 0.4]]}
    told = Told(ids, scores, [[0.9, 0.5, 0.2, 0.1]], [[10, 20, 30, 40]], 3)
    one, two, three = looked(told, "ip", (1, 2, 3))
    # After one list: two of three found, both new; rank 2 of 3 is also the last there is.
    # Next centroid 0.5 against 0.4, and 0.9 against 0.5, by the best, 0.8.
    assert one == pytest.approx(
        {"best": 0.8, "kth": 0.4, "gap": 0, "filled": 2 / 3, "changed": 2 / 3, "calm": 0,
         "next": 0.125, "fallen": 0.5, "lists": 1, "vectors": 10}
    )  # fmt: skip
    # One of three is new; (0.6 - 0.4) / 0.8; (0.2 - 0.4) / 0.8; (0.9 - 0.2) / 0.8.
    assert two == pytest.approx(
        {"best": 0.8, "kth": 0.4, "gap": 0.25, "filled": 1, "changed": 1 / 3, "calm": 0,
         "next": -0.25, "fallen": 0.875, "lists": 2, "vectors": 30}
    )  # fmt: skip
    assert three["changed"] == 0
    # Of three lists, one since something was new.
    assert three["calm"] == pytest.approx(1 / 3)


def test_distances_are_turned_and_scaled_by_the_kth():
    told = Told(
        {1: [[4, 7, 8]]}, {1: [[0.0, 2.0, 4.0]]}, [[1.0, 3.0, 9.0]], [[10, 0, 0]], 3
    )  # fmt: skip
    (one,) = looked(told, "l2", (1,))
    # (4 - 2) / 4; the next centroid is nearer than the k-th, (4 - 3) / 4; (3 - 1) / 4.
    assert (one["gap"], one["next"], one["fallen"]) == (0.5, 0.25, 0.5)
    assert one["vectors"] == 10


def test_nothing_found_has_features_too():
    told = Told({1: [[-1, -1]]}, {1: [[np.nan, np.nan]]}, [[np.nan]], [[0]], 2)
    (one,) = looked(told, "cosine", (1,))
    # One list visited of one, and nothing new since.
    assert {n: v for n, v in one.items() if v} == {"calm": 1, "lists": 1}


# -- trees ----------------------------------------------------------------------------------------


def test_kept_trees_say_what_scikit_learn_says():
    from sklearn.ensemble import GradientBoostingRegressor

    rng = np.random.default_rng(3)
    rows = rng.normal(size=(900, len(FEATURES))).astype(np.float32)
    wanted = (rows[:, 0] + rows[:, 3] ** 2 > 1).astype(float)
    trees = fit_trees(rows, wanted, 5)
    theirs = GradientBoostingRegressor(
        n_estimators=80, max_depth=4, learning_rate=0.1, subsample=0.5, min_samples_leaf=9,
        random_state=5,
    ).fit(rows, wanted)  # fmt: skip
    np.testing.assert_allclose(trees.predict(rows), theirs.predict(rows), atol=1e-12)
    again = Trees.from_dict(json.loads(json.dumps(trees.to_dict())), len(FEATURES))
    np.testing.assert_array_equal(again.predict(rows), trees.predict(rows))


def test_rows_that_are_all_alike_have_one_leaf():
    rows = np.zeros((7, len(FEATURES)), dtype=np.float32)
    trees = fit_trees(rows, np.ones(7), 0)
    assert trees.predict(rows).tolist() == [1.0] * 7


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("left", [[5]], "left that is not from 0 to 0"),
        ("feature", [[10]], "feature that is not from 0 to 9"),
        ("value", [[math.nan]], "values that can be"),
        ("depth", 10**9, "depth or values"),
        ("right", [0], "shapes"),
        ("threshold", "x", "cannot be read"),
    ],
)
def test_broken_trees_are_refused(part, value, said):
    with pytest.raises(InputError, match=said):
        Trees.from_dict(constant(1.0).to_dict() | {part: value}, len(FEATURES))


# -- the rule -------------------------------------------------------------------------------------


def test_checkpoints_rise_to_the_limit():
    assert checkpoints(1) == (1,)
    assert checkpoints(10) == tuple(range(1, 11))
    found = checkpoints(1000)
    assert found[-1] == 1000
    steps = np.diff(found)
    assert steps.min() >= 1
    assert (steps <= np.maximum(1, np.ceil(0.15 * np.array(found[:-1])))).all()


@pytest.mark.parametrize("n", [1, 17])
def test_all_stop_at_once_or_never(system, n):
    asked = QUERIES[:n]
    for says, lists in ((1.0, 1), (0.0, LISTS)):
        stopped = rule(system, constant(says), 0.5).on(system)
        run, cost = sr.search(stopped, asked, K, repeats=1, latency_queries=0)
        fixed, usual = sr.search(system, asked, K, repeats=1, latency_queries=0, nprobe=lists)
        np.testing.assert_array_equal(run.ids, fixed.ids)
        np.testing.assert_array_equal(run.scores, fixed.scores)
        np.testing.assert_array_equal(cost.bytes_read, usual.bytes_read)
        rounds, looks = stopped.run(asked, K)
        assert (rounds.visited == lists).all()
        # The last round needs no look: there is nothing to decide.
        assert (looks == (1 if lists == 1 else len(checkpoints(LISTS)) - 1)).all()


def test_a_query_stops_alone_where_it_stops_among_others(system, learned):
    stopped = learned.rule.on(system)
    together, _ = stopped.run(QUERIES, K)
    assert len(set(together.visited.tolist())) > 3
    for row in (0, 5, 100):
        alone, _ = stopped.run(QUERIES[row : row + 1], K)
        assert alone.visited[0] == together.visited[row]


def test_a_rule_in_a_file_is_the_same_rule(system, learned, tmp_path):
    learned.rule.save(tmp_path / "stop.json")
    again = read_stop_rule(tmp_path / "stop.json")
    assert again.about == learned.rule.about
    one, other = (r.on(system).run(QUERIES, K)[0] for r in (learned.rule, again))
    np.testing.assert_array_equal(one.visited, other.visited)
    never = replace(learned.rule, threshold=math.inf)
    never.save(tmp_path / "never.json")
    assert read_stop_rule(tmp_path / "never.json").threshold == math.inf


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "x"}, "is no stop rule"),
        ({"features": ["best"]}, "learn it anew"),
        ({"lists": [2, 2]}, "do not rise"),
        ({"k": None}, "lacks a part"),
        ({"k": "ten"}, "has a wrong part"),
        ({"index": {}}, "lacks a part"),
        ({"trees": {}}, "cannot be read"),
    ],
)
def test_a_file_that_is_no_rule_is_named(learned, tmp_path, change, said):
    path = tmp_path / "stop.json"
    learned.rule.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FormatError, match=f"stop.json.*{said}"):
        read_stop_rule(path)
    path.write_text("{")
    with pytest.raises(FormatError, match="is no JSON"):
        read_stop_rule(path)


def test_a_rule_belongs_to_its_index(system, learned):
    other = sr.open_system("faiss?factory=IVF4,Flat").build(BASE[:500], "l2", train_rows=500)
    with pytest.raises(MismatchError, match="rows 2000; found 500"):
        learned.rule.on(other)
    finer = sr.open_system("faiss?factory=IVF25,Flat").build(BASE, "l2", train_rows=2000)
    with pytest.raises(MismatchError, match="lists 24; found 25"):
        learned.rule.on(finer)
    with pytest.raises(InputError, match="k is 5; the stop rule was learned for 10"):
        sr.search(learned.rule.on(system), QUERIES, 5)
    with pytest.raises(InputError, match="no search knob 'nprobe'"):
        sr.search(learned.rule.on(system), QUERIES, K, nprobe=3)
    with pytest.raises(InputError, match="belongs to the index"):
        learned.rule.on(system).build(BASE, "l2")


# -- what it is tried against ---------------------------------------------------------------------


def test_the_trial_is_a_real_search(system, learned):
    test = QUERIES[PART == "test"]
    exact = TRUTH.select(PART == "test")
    fixed = learned.fixed[0]
    for way, searched, knobs in (
        (FIXED, system, {"nprobe": fixed}),
        (LEARNED, learned.rule.on(system), {}),
    ):
        run, cost = sr.search(
            searched, test, K, query_ids=exact.queries, repeats=1, latency_queries=0, **knobs
        )
        quality = sr.evaluate(run, f"recall@{K}", truth=exact)[f"recall@{K}"].values
        np.testing.assert_array_equal(learned.ways[way].quality, quality)
        np.testing.assert_array_equal(
            learned.ways[way].shortfall, np.where(quality < 0.9, 0.9 - quality, 0)
        )
        for name in COSTS:
            np.testing.assert_array_equal(learned.ways[way].costs[name], getattr(cost, name))


@pytest.mark.parametrize("factory", ["IVF24,Flat", "IVF24_HNSW4,Flat", "IVF24,SQ8"])
def test_a_search_by_the_rule_is_what_was_calibrated(factory):
    """The queries that calibrate, searched by the finished rule, lose what calibration says."""
    system = sr.open_system(f"faiss?factory={factory}").build(BASE, "l2", train_rows=2000)
    found = learn(system)
    assert len(found.rule.lists) < len(checkpoints(LISTS))
    rows = PART == "calibrate"
    exact = TRUTH.select(rows)
    run, _ = sr.search(
        found.rule.on(system), QUERIES[rows], K, query_ids=exact.queries, repeats=1,
        latency_queries=0,
    )  # fmt: skip
    quality = sr.evaluate(run, f"recall@{K}", truth=exact)[f"recall@{K}"].values
    # A loss that comes back after the stop is counted, but not met.
    lost = np.maximum(0.9 - quality, 0).mean()
    assert lost == pytest.approx(found.calibration.loss, abs=1e-9 if "Flat" in factory else 3e-3)


def test_the_fixed_number_is_the_least_with_the_same_bound(system, learned):
    """Against every nprobe there is, on the queries that fit and calibrate."""
    rows = PART != "test"
    exact, bounds = TRUTH.select(rows), []
    for nprobe in range(1, LISTS + 1):
        run, _ = sr.search(
            system, QUERIES[rows], K, query_ids=exact.queries, repeats=1, latency_queries=0,
            nprobe=nprobe,
        )  # fmt: skip
        quality = sr.evaluate(run, f"recall@{K}", truth=exact)[f"recall@{K}"].values
        bounds.append((np.maximum(0.9 - quality, 0).sum() + 0.9) / (rows.sum() + 1))
    least = next(n for n, bound in enumerate(bounds, 1) if bound <= 0.05)
    assert learned.fixed == (least, pytest.approx(bounds[least - 1]))


def test_the_oracle_costs_no_more_where_the_fixed_search_reaches_as_much(learned):
    fixed, oracle, rule_ = (learned.ways[w] for w in (FIXED, ORACLE, LEARNED))
    assert (oracle.shortfall == 0).all()
    for other in (fixed, rule_):
        same = other.shortfall <= oracle.shortfall
        assert same.sum() > 30
        for name in COSTS:
            assert (oracle.costs[name][same] <= other.costs[name][same]).all()


def test_it_pays_where_queries_differ(learned):
    assert learned.verdict == "pays"
    assert learned.promised
    assert learned.calibration.bound <= 0.05
    saved = learned.saved()
    assert saved.mean > 0.2
    assert saved.low < saved.mean < saved.high
    # The interval by hand: a ratio of means, linearised.
    a, b = (learned.ways[w].costs["bytes_read"] for w in (FIXED, LEARNED))
    ratio = b.mean() / a.mean()
    error = np.std((b - ratio * a) / a.mean(), ddof=1) / math.sqrt(len(a))
    # t of 71 degrees of freedom at 97.5%: 1.9939.
    assert saved.high - saved.low == pytest.approx(2 * 1.9939 * error, rel=1e-4)


def test_the_text_says_it(learned):
    said = str(learned)
    assert said.startswith("pays: stopping saves")
    assert "by oracle" in said
    assert max(map(len, said.splitlines())) <= 100


def test_it_does_not_pay_where_queries_are_alike(system):
    """One list is enough for each of these queries: nothing to save, and it says so."""
    asked = BASE[::20] + np.float32(1e-3)
    truth = sr.truth(BASE, asked, 1, "l2")
    found = learn_stopping(system, asked, "recall@1 >= 0.9", truth=truth, allowed=0.1)
    assert found.fixed[0] == 1
    assert found.saved().mean == 0
    assert found.verdict == "no sure saving"


# -- parts ----------------------------------------------------------------------------------------


def spoiled(part):
    """The truth, wrong for the queries of a part."""
    rows = [row if PART[n] != part else row[::-1] + 1 for n, row in enumerate(TRUTH.ids)]
    return sr.Run.from_arrays(rows, space="l2", k=K)


def test_no_part_sees_another(system, learned):
    clean = learn(system, truth=spoiled(""))
    kept = {part: learn(system, truth=spoiled(part)) for part in PARTS}
    trees = {part: found.rule.trees.to_dict() for part, found in kept.items()}
    # The rule does not know the test; the trees do not know who calibrates.
    assert trees["test"] == trees["calibrate"] == clean.rule.trees.to_dict() != trees["fit"]
    assert kept["test"].rule.threshold == clean.rule.threshold
    assert kept["test"].fixed == clean.fixed
    assert kept["calibrate"].rule.threshold != clean.rule.threshold
    assert kept["test"].ways[FIXED].quality.mean() < clean.ways[FIXED].quality.mean()


def test_parts_are_divided_by_seed_and_apart(system):
    one, two = (learn(system, split=None, seed=s) for s in (0, 1))
    assert sum(one.parts.values()) == 240
    assert one.parts["fit"] == pytest.approx(96, abs=25)
    assert one.rule.about["seed"] == 0
    assert one.parts != two.parts


def test_a_split_needs_all_three_parts(system):
    halves = Split(SPLIT.queries, ("fit", "test") * 120)
    with pytest.raises(InputError, match="no query is there to calibrate"):
        learn(system, split=halves)
    few = Split(SPLIT.queries, ("calibrate",) * 4 + ("fit", "test") * 118)
    with pytest.raises(InputError, match="4 queries with a value to calibrate; expected at least"):
        learn(system, split=few)


# -- what cannot be ------------------------------------------------------------------------------


def test_too_few_queries_give_no_promise(system):
    found = learn(system, allowed=0.005)
    assert found.verdict == "no promise"
    assert not found.promised
    # (0 + 0.9) / 73 = 0.0123 at best; 0.9 / (n + 1) <= 0.005 from 179 queries on.
    assert found.calibration.bound == pytest.approx(0.9 / 73)
    assert "at least 179 queries that calibrate, and there are 72" in found.notes[0]
    # All lists, always.
    assert (found.ways[LEARNED].lists == LISTS).all()
    assert str(found).startswith("no promise: the expected shortfall cannot be bounded")


def test_what_the_codes_lose_no_visit_brings_back():
    coarse = sr.open_system("faiss?factory=IVF8,PQ1x4").build(BASE, "l2", train_rows=2000)
    found = learn(coarse)
    assert found.verdict == "no promise"
    assert "what is lost with all lists visited is lost by the codes" in found.notes[0]
    assert (found.ways[ORACLE].shortfall > 0).any()


def test_semantic_recall_needs_judgments(system):
    with pytest.raises(sr.SemrecallError, match="judgments"):
        learn(system, f"srecall@{K} >= 0.9")


def test_queries_without_semantic_neighbours_are_left_out(system):
    rows = [n for n in range(240) if n % 8]
    judgments = sr.Judgments.from_arrays(
        np.repeat(rows, 3), np.concatenate([TRUTH.ids[n][:3] for n in rows]), np.ones(630)
    )
    found = learn(system, f"srecall@{K} >= 0.9", judgments=judgments)
    assert found.left_out == 30
    assert sum(found.parts.values()) == 210
    assert "30 queries without a value left out" in str(found)


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        (f"rde@{K} <= 0.1", {}, "is no share"),
        (TARGET, {"allowed": 0}, "allowed is 0"),
        (TARGET, {"allowed": 0.9}, "below 0.9"),
        (TARGET, {"most": 25}, "nprobe is 25"),
        (TARGET, {"truth": None}, "nothing to compare with"),
    ],
)
def test_wrong_input_is_named(system, target, more, said):
    with pytest.raises(InputError, match=said):
        learn(system, target, **more)


def test_systems_without_lists_say_so():
    flat = sr.open_system("faiss?factory=Flat").build(BASE, "l2")
    with pytest.raises(InputError, match="cannot be searched in rounds"):
        learn(flat)
    with pytest.raises(InputError, match="has to be built"):
        learn("faiss?factory=IVF24,Flat")


def test_the_last_round_is_the_first_that_is_good_enough_on_the_fit_part(learned):
    """A quarter of what calibration leaves: 0.05 - 0.9 / 73, and the fit part by hand."""
    spare, exact = 0.25 * (0.05 - 0.9 / 73), TRUTH.select(PART == "fit")
    system = sr.open_system(f"faiss?factory=IVF{LISTS},Flat").build(BASE, "l2", train_rows=2000)
    means = []
    for nprobe in checkpoints(LISTS):
        run, _ = sr.search(
            system, QUERIES[PART == "fit"], K, query_ids=exact.queries, repeats=1,
            latency_queries=0, nprobe=nprobe,
        )  # fmt: skip
        quality = sr.evaluate(run, f"recall@{K}", truth=exact)[f"recall@{K}"].values
        means.append(np.maximum(0.9 - quality, 0).mean())
    first = next(n for n, mean in enumerate(means) if mean <= spare)
    assert learned.rule.lists == checkpoints(LISTS)[: first + 1]
    assert 1 < len(learned.rule.lists) < len(checkpoints(LISTS))


def test_where_those_that_calibrate_are_harder_it_says_so(system):
    found = learn(system, truth=spoiled("calibrate"))
    assert found.verdict == "no promise"
    assert "they are harder than those that fit" in found.notes[0]


def test_most_bounds_the_lists(system):
    found = learn(system, most=9, allowed=0.1)
    assert found.rule.lists[-1] <= 9
    assert found.ways[ORACLE].lists.max() <= 9


# -- the command line -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, system):
    np.save(tmp_path / "base.npy", BASE)
    np.save(tmp_path / "queries.npy", QUERIES)
    sr.write(TRUTH, tmp_path / "truth.parquet")
    SPLIT.write(tmp_path / "parts.csv")
    system.save(tmp_path / "lists.faiss")
    return tmp_path


def test_from_the_command_line(semrecall_main, files, learned):
    given = (
        "faiss?index=lists.faiss", "--queries", "queries.npy", "--truth", "truth.parquet",
        "--target", TARGET, "--split", "parts.csv",
    )  # fmt: skip
    status, out, err = semrecall_main("stop", *given, "--allowed", 0.05, "-o", "stop.json")
    assert (status, err) == (0, "wrote stop.json\n")
    assert out == f"{learned}\n"
    status, out, _ = semrecall_main("stop", *given, "--allowed", 0.05, "--format", "json")
    document = json.loads(out)
    assert document["verdict"] == "pays"
    assert [row["way"] for row in document["ways"]] == [FIXED, LEARNED, ORACLE]
    status, out, _ = semrecall_main("stop", *given, "--allowed", 0.005)
    assert status == 1
    status, out, err = semrecall_main(
        "search", "lists.faiss", "--queries", "queries.npy", "-k", K, "--stop", "stop.json",
        "-o", "run.parquet", "--repeats", 1, "--latency-queries", 0, "--format", "json",
    )  # fmt: skip
    assert status == 0, err
    wanted, _ = learned.rule.on(sr.open_system("lists.faiss")).run(QUERIES, K)
    found = json.loads(out)["settings"][0]
    mean = wanted.counters().distance_computations.mean()
    assert found["distance_computations"] == pytest.approx(mean)
    assert len(sr.read("run.parquet")) == 240
    status, _, err = semrecall_main(
        "search", "lists.faiss", "--queries", "queries.npy", "-k", K, "--stop", "stop.json",
        "--set", "nprobe=3",
    )  # fmt: skip
    assert status == 2
    assert "no search knob 'nprobe'" in err
