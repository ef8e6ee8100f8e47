"""Four ways to choose the tolerance x."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from semrecall.data import Judgments, Run, Vectors
from semrecall.errors import InputError, MeasureError, MismatchError
from semrecall.measures import align, parse
from semrecall.tolerance import tolerance

TRUTH = Run.from_arrays(
    [[1, 2, 3], [4, 5, 6]],
    [[10.0, 9.0, 6.0], [8.0, 6.0, 4.0]],
    space="ip",
    k=3,
    scores_by="exact",
)


def test_proxy_is_the_mean_and_query_the_spread():
    report = tolerance(TRUTH, 3)
    # (9 - 6) / 10 = 0.3 and (6 - 4) / 8 = 0.25.
    assert report["proxy"].x == pytest.approx(0.275)
    assert report["query"].x == pytest.approx(0.275)
    assert (report["query"].low, report["query"].high) == pytest.approx((0.2525, 0.2975))
    assert report["proxy"].queries == 2
    assert (report.k, report.space) == (3, "ip")


def test_a_proxy_too_wide_is_said():
    # (10 - -3.2) / 10 = 132%.
    wide = Run.from_arrays([[1, 2]], [[10.0, -3.2]], space="ip")
    assert "too wide to mean anything" in tolerance(wide, 2)["proxy"].note
    assert tolerance(TRUTH, 3)["proxy"].note == ""


def test_what_is_missing_is_said_not_guessed():
    report = tolerance(TRUTH, 3)
    assert math.isnan(report["quantisation"].x)
    assert report["quantisation"].note == "needs base and query vectors"
    assert report["semantic"].note == "needs a run and judgments"
    assert report["semantic"].to_dict()["x"] is None
    with pytest.raises(InputError, match="no way called 'best'"):
        report["best"]


def test_truths_that_allow_no_tolerance():
    with pytest.raises(MeasureError, match="k is 4, but the truth is only 3 deep"):
        tolerance(TRUTH, 4)
    with pytest.raises(MeasureError, match="the truth has ids only"):
        tolerance(Run.from_arrays([[1]], space="ip"), 1)
    negative = Run.from_arrays([[1, 2]], [[-1.0, -2.0]], space="ip")
    assert tolerance(negative, 2)["proxy"].note == "undefined everywhere"


# -- semantic -------------------------------------------------------------------------------------


def test_semantic_is_where_tolerant_recall_meets_semantic_recall():
    # Query 0: 1 and 9 (5.7) for 1, 2, 3; query 1: perfect. Relevant: 1 and 4, all found: goal 1.
    run = Run.from_arrays(
        [[1, 9, 8], [4, 5, 6]], [[10.0, 8.1, 5.7], [8.0, 6.0, 4.0]], space="ip", scores_by="exact"
    )
    labels = Judgments.from_dict({0: {1: 1, 2: 0, 3: 0}, 1: {4: 1, 5: 0, 6: 0}})
    way = tolerance(TRUTH, 3, run=run, judgments=labels)["semantic"]
    # 8.1 reaches 9 from x = 10% on, 5.7 reaches 6 from 5% on: all of both at 10%.
    assert way.x == pytest.approx(0.1, abs=1e-6)
    assert way.note == "trecall 1.0000, srecall 1.0000"
    assert way.queries == 2


def test_semantic_is_0_where_tolerant_recall_is_ahead_from_the_start():
    run = Run.from_arrays([[1, 2, 9], [4, 5, 6]], [[10.0, 9.0, 1.0], [8.0, 6.0, 4.0]], space="ip")
    labels = Judgments.from_dict({0: {3: 1}, 1: {4: 1}})
    way = tolerance(TRUTH, 3, run=run, judgments=labels)["semantic"]
    # srecall (0 + 1) / 2, trecall at x = 0: (2/3 + 1) / 2.
    assert way.x == 0
    assert way.note == "trecall 0.8333, srecall 0.5000: above it at every x"


def test_semantic_says_when_the_two_never_meet():
    run = Run.from_arrays([[1], [4]], space="ip")
    labels = Judgments.from_dict({0: {1: 1}, 1: {4: 1}})
    way = tolerance(TRUTH, 3, run=run, judgments=labels)["semantic"]
    assert math.isnan(way.x)
    assert way.note == "trecall stays at 0.3333 or below, srecall is 1.0000"
    unrelated = Judgments.from_dict({0: {1: 0}})
    note = tolerance(TRUTH, 3, run=run, judgments=unrelated)["semantic"].note
    assert note == "no query has a semantic neighbour"


@pytest.mark.parametrize("space", ["ip", "l2"])
def test_semantic_x_is_the_smallest_that_reaches_the_goal(space):
    random = np.random.default_rng(3)
    sign = -1.0 if space == "ip" else 1.0
    true_scores = sign * np.sort(sign * random.uniform(1, 2, (20, 10)))
    found_scores = sign * np.sort(sign * random.uniform(1, 2, (20, 10)))
    truth = Run.from_arrays([[*range(10)]] * 20, true_scores, space=space, scores_by="exact")
    run = Run.from_arrays([[*range(5, 15)]] * 20, found_scores, space=space, scores_by="exact")
    labels = Judgments.from_dict({q: {2: 1, 5: 1, 7: 1, 9: 1} for q in range(20)})
    x = tolerance(truth, 10, run=run, judgments=labels)["semantic"].x
    problem = align(run, truth, labels)
    goal = parse("srecall@10").values(problem).mean
    assert goal == 0.75
    assert parse(f"trecall(x={x!r})@10").values(problem).mean >= goal
    assert parse(f"trecall(x={x * (1 - 1e-6)!r})@10").values(problem).mean < goal


# -- quantisation ---------------------------------------------------------------------------------


def vectors(n=200, d=6, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def exact(base, queries, k, space="ip"):
    scores = queries.astype(float) @ base.T.astype(float)
    if space == "l2":
        scores = np.linalg.norm(queries[:, None].astype(float) - base[None].astype(float), axis=2)
    order = np.argsort(scores if space == "l2" else -scores, axis=1, kind="stable")[:, :k]
    return Run.from_arrays(
        order, np.take_along_axis(scores, order, 1), space=space, scores_by="exact"
    )


def test_quantisation_by_hand():
    # Range 0 to 255, so levels are whole numbers: 10.4 is stored as 10, 200.6 as 201.
    base = np.array([[0.0], [255.0], [10.4], [200.6]])
    truth = Run.from_arrays([[3, 2]], [[200.6, 10.4]], space="ip")
    way = tolerance(truth, 2, base=base, queries=np.array([[1.0]]))["quantisation"]
    assert way.x == pytest.approx((0.4 / 200.6 + 0.4 / 10.4) / 2)
    assert (way.queries, way.note) == (1, "a lower bound")


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_quantisation_is_the_error_of_the_scores_of_true_neighbours(space):
    from semrecall.space import space as geometry

    base, queries = vectors(), vectors(5, seed=1)
    truth = exact(base, queries, 4, "l2").replace(space=geometry(space))
    way = tolerance(truth, 4, base=base, queries=queries)["quantisation"]
    low, high = base.min(axis=0).astype(float), base.max(axis=0).astype(float)
    levels = np.round((base - low) / (high - low) * 255)
    coded = low + levels * ((high - low) / 255)
    errors = []
    for query, row in zip(queries, truth.ids, strict=True):
        true = geometry(space).exact_scores(base[row], query)
        errors.append(np.mean(np.abs(geometry(space).exact_scores(coded[row], query) / true - 1)))
    assert way.x == pytest.approx(np.mean(errors), rel=1e-9)
    assert 0 < way.x < 0.1


def test_quantisation_reads_streams_ids_and_gaps():
    base, queries = vectors(), vectors(5, seed=1)
    plain = tolerance(exact(base, queries, 4), 4, base=base, queries=queries)["quantisation"]

    class Blocks:
        def __iter__(self):
            return iter([base[:70], base[70:71], base[71:]])

    names = [f"d{i}" for i in range(200)]
    truth = exact(base, queries, 4)
    named = Run.from_arrays(
        [[names[d] for d in row] for row in truth.ids],
        truth.scores.matrix(),
        space="ip",
        query_ids=[f"q{i}" for i in range(5)],
    )
    stream = Vectors.from_blocks(Blocks(), ids=names)
    assert tolerance(named, 4, base=stream, queries=queries)["quantisation"].x == plain.x
    holes = base.copy()
    holes[199] = np.nan
    unused = tolerance(exact(base[:199], queries, 4), 4, base=holes, queries=queries)
    fresh = tolerance(exact(base[:199], queries, 4), 4, base=base[:199], queries=queries)
    assert unused["quantisation"].x == fresh["quantisation"].x
    constant = np.column_stack([base, np.ones(200, dtype=np.float32)])
    assert tolerance(
        exact(constant, np.column_stack([queries, np.zeros(5)]), 4),
        4,
        base=constant,
        queries=np.column_stack([queries, np.zeros(5)]),
    )["quantisation"].x == pytest.approx(plain.x)


def test_vectors_of_8_bits_lose_nothing():
    base = np.arange(20, dtype=np.uint8).reshape(10, 2)
    queries = base[:2].astype(np.float32)
    way = tolerance(exact(base, queries, 3), 3, base=base, queries=queries)["quantisation"]
    assert (way.x, way.note) == (0.0, "the vectors are stored in 8 bits (uint8)")


def test_vectors_that_do_not_belong_to_the_truth():
    base, queries = vectors(), vectors(5, seed=1)
    truth = exact(base, queries, 4)
    with pytest.raises(MismatchError, match="6 dimensions, query vectors 3"):
        tolerance(truth, 4, base=base, queries=queries[:, :3])
    with pytest.raises(MismatchError, match="document ids of the truth are not among the base"):
        tolerance(truth, 4, base=base[:10], queries=queries)
    with pytest.raises(MismatchError, match="query ids of the truth are not among the query"):
        tolerance(truth, 4, base=base, queries=queries[:3])


# -- shown ----------------------------------------------------------------------------------------


def test_the_report_is_a_table():
    lines = str(tolerance(TRUTH, 3)).splitlines()
    assert lines[0].split() == ["way", "x", "5%", "median", "95%", "queries", "note"]
    assert lines[1].split() == ["proxy", "27.5%", "25.2%", "27.5%", "29.8%", "2"]
    assert lines[3].split()[:2] == ["quantisation", "-"]


@pytest.fixture
def files(tmp_path):
    from semrecall.formats import write

    write(TRUTH, tmp_path / "truth.parquet")
    write(Judgments.from_dict({0: {1: 1}, 1: {4: 1}}), tmp_path / "labels.parquet")
    write(Vectors.of(vectors(10, 3)), tmp_path / "base.npy")
    write(Vectors.of(vectors(2, 3)), tmp_path / "queries.npy")
    return tmp_path


def command(*args):
    from click.testing import CliRunner

    from semrecall.cli.tolerance import command as cli

    return CliRunner().invoke(cli, [str(a) for a in args], catch_exceptions=False)


def test_the_command_prints_every_form(files):
    truth = files / "truth.parquet"
    options = [truth, "-k", 3, "--run", truth, "--judgments"]
    options += [files / "labels.parquet", "--base", files / "base.npy"]
    options += ["--queries", files / "queries.npy"]
    table = command(*options)
    assert table.exit_code == 0
    assert table.stdout.splitlines()[1].startswith("proxy")
    known = json.loads(command(*options, "--format", "json").stdout)
    assert (known["k"], known["space"]) == (3, "ip")
    assert [w["way"] for w in known["ways"]] == ["proxy", "query", "quantisation", "semantic"]
    assert known["ways"][0]["x"] == pytest.approx(0.275)
    assert known["ways"][3]["x"] == 0.0
    csv = command(*options, "--format", "csv").stdout.splitlines()
    assert csv[0] == "way,x,low,median,high,queries,note"
    assert len(csv) == 5
    markdown = command(*options, "--format", "markdown").stdout.splitlines()
    assert markdown[1] == "| --- | --- | --- | --- | --- | ---: | --- |"


def test_k_is_the_depth_of_the_truth_unless_given(files):
    result = command(files / "truth.parquet", "--format", "json")
    assert json.loads(result.stdout)["k"] == 3
