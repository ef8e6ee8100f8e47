"""plan(): how many labels, which pairs, and what the labels say."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import semrecall as sr
from semrecall.correction import correct
from semrecall.data import Judgments, Pairs, Run
from semrecall.errors import InputError
from semrecall.formats import read_pairs
from semrecall.plan import NEAREST, plan
from semrecall.stats.budget import LEAST, cell_sizes, cluster_size, expected_width

N, K = 120, 20


def parts(seed=0, lost=0.1):
    generator = np.random.default_rng(seed)
    ids = np.arange(N * K).reshape(N, K)
    truth = Run.from_arrays(ids, scores=np.tile(np.arange(K, 0, -1.0), (N, 1)), space="ip")
    gone = generator.random((N, K)) < lost * generator.random((N, 1)) * 2
    run = Run.from_arrays(np.where(gone, ids + 10**6, ids), space="ip", name="ivf")
    share = generator.random((N, 1))
    people = Judgments.from_arrays(
        np.repeat(np.arange(N), K), ids.ravel(), (generator.random((N, K)) < share).ravel() * 1.0
    )
    return run, truth, people


RUN, TRUTH, PEOPLE = parts()
GRADES = dict(zip(zip(PEOPLE.queries, PEOPLE.documents, strict=True), PEOPLE.grades, strict=True))


def label(pairs):
    """What people say of these pairs."""
    grades = np.array([GRADES[pair] for pair in pairs])
    return Judgments(pairs.queries, pairs.documents, grades, dict(pairs.details))


def missed_by(run):
    return np.asarray(run.ids.matrix() != TRUTH.ids.matrix()).ravel()


# -- how many -------------------------------------------------------------------------------------


def test_sizes_by_hand():
    # z = 1.96, width 0.196: a variance of 0.05^2. One group of 1,000, sd 0.002, so that a sum has
    # sd 2 for one label: 4 (1/n - 1/1000) = 0.0025, n = 1 / (0.000625 + 0.001) = 615.4.
    width = 0.1 * 1.959963984540054
    assert cell_sizes([0.002], [1000], width, 0.95).tolist() == [616]
    assert expected_width([0.002], [1000], [616], 0.95) == pytest.approx(width, rel=2e-3)
    # Twice the spread takes twice the labels beside an equal group.
    few, many = cell_sizes([1e-7, 2e-7], [10**6, 10**6], 0.02, 0.95)
    assert many == pytest.approx(2 * few, rel=0.01)


def test_sizes_stay_within_bounds():
    counts = cell_sizes([1.0, 1e-9, 0.5], [30, 500, 0], 0.001, 0.95)
    assert counts.tolist() == [30, LEAST, 0]
    assert expected_width([1.0], [30], [30], 0.95) == 0
    assert math.isnan(expected_width([1.0], [30], [0], 0.95))
    with pytest.raises(InputError, match="width is 0"):
        cell_sizes([1.0], [30], 0.0, 0.95)


def test_queries_by_hand():
    # Values 0 and 1, 500 each: variance 1/4. (1/m - 1/1000) / 4 = (0.2 / 2t)^2, with t = 1.985:
    # 1/m = 0.001 + 0.010152, m = 89.7 (t of 89 degrees of freedom is 1.987).
    table = np.stack([np.arange(1000) % 2, np.ones(1000)], axis=1)
    assert cluster_size(table, 0.2, 0.95) == 90
    assert cluster_size(np.ones((50, 2)), 0.02, 0.95) == 3
    assert cluster_size(table, 1e-6, 0.95) == 1000


# -- which ----------------------------------------------------------------------------------------


def test_missed_ones_come_first_with_their_probabilities():
    found = plan(RUN, TRUTH, width=0.04, judgments=PEOPLE)
    picked = found.pairs.details["picked"]
    chances = found.pairs.probabilities
    missed = missed_by(RUN)
    count = int((picked == "missed").sum())
    assert (picked[:count] == "missed").all()
    assert (picked[count:] == "found").all()
    assert missed[[d for _, d in found.pairs]].tolist() == (picked == "missed").tolist()
    assert chances[0] == pytest.approx(count / missed.sum())
    assert chances[-1] == pytest.approx((len(found) - count) / (~missed).sum())
    # Weighted, they stand for all.
    assert (1 / chances).sum() == pytest.approx(N * K)
    ranks = found.pairs.details["best_rank"]
    assert [d % K + 1 for _, d in found.pairs] == ranks.tolist()


def test_a_narrower_width_draws_the_same_and_more():
    wide, narrow = (set(plan(RUN, TRUTH, width=w, judgments=PEOPLE).pairs) for w in (0.06, 0.03))
    assert wide < narrow
    again = plan(RUN, TRUTH, width=0.06, judgments=PEOPLE)
    assert list(again.pairs) == list(plan(RUN, TRUTH, width=0.06, judgments=PEOPLE).pairs)
    assert set(plan(RUN, TRUTH, width=0.06, judgments=PEOPLE, seed=1).pairs) != wide


def test_designs_are_in_the_order_of_what_they_take():
    found = plan(RUN, TRUTH, width=0.03, judgments=PEOPLE)
    by = {(d.name, d.over): d for d in found.designs}
    assert by["all pairs", ""].labels == N * K
    assert by["missed first", "pooled"].labels < by["random pairs", "pooled"].labels < N * K
    assert by["missed first", "pooled"].labels == len(found)
    assert by["missed first", "mean"].labels < by["random queries", "mean"].labels
    assert by["missed first", "pooled"].width <= 0.0301
    assert found.known == N * K


def test_several_runs_share_their_labels():
    other = parts(seed=0, lost=0.3)[0].replace(name="other")
    gone = missed_by(RUN) | missed_by(other)
    found = plan({"a": RUN, "b": other}, TRUTH, width=0.03, judgments=PEOPLE)
    assert gone[[d for _, d in found.pairs]].tolist() == (
        (found.pairs.details["picked"] == "missed").tolist()
    )
    for run in (RUN, other):
        done = correct(run, TRUTH, None, label(found.pairs), "srecall@20")
        truth = sr.evaluate(run, "srecall@20", truth=TRUTH, judgments=PEOPLE).summary()[0].micro
        assert abs(done.pooled.value - truth) < 0.04


def test_the_interval_has_the_width_and_holds():
    truth = sr.evaluate(RUN, "srecall@20", truth=TRUTH, judgments=PEOPLE).summary()[0].micro
    held, widths = [], []
    for seed in range(60):
        found = plan(RUN, TRUTH, width=0.03, judgments=PEOPLE, seed=seed)
        done = correct(RUN, TRUTH, None, label(found.pairs), "srecall@20").pooled
        held.append(done.label_low <= truth <= done.label_high)
        widths.append(done.width)
    assert np.mean(held) >= 0.9
    assert np.mean(widths) == pytest.approx(0.03, rel=0.15)


def test_the_mean_in_rounds_settles_every_query():
    truth = sr.evaluate(RUN, "srecall@20", truth=TRUTH, judgments=PEOPLE).mean("srecall@20")
    first = plan(RUN, TRUTH, over="mean", width=0.0001)
    missed = missed_by(RUN)
    # Of every query its missed ones and the nearest found ones, and no more.
    assert len(first) == missed.sum() + N * NEAREST
    labels = label(first.pairs)
    open_ = correct(RUN, TRUTH, None, labels, "srecall@20")
    assert "do not settle" in open_.mean.reason
    second = plan(RUN, TRUTH, over="mean", width=0.0001, labels=labels)
    assert set(first.pairs) < set(second.pairs)
    assert second.done == len(first)
    assert len(second) < N * K
    done = correct(RUN, TRUTH, None, label(second.pairs), "srecall@20")
    assert done.mean.value == pytest.approx(truth)
    assert done.mean.width == pytest.approx(0, abs=1e-12)
    assert "the pooled value stays open" in done.pooled.reason
    third = plan(RUN, TRUTH, over="mean", width=0.0001, labels=label(second.pairs))
    assert set(third.pairs) == set(second.pairs)


def test_some_queries_give_the_mean_an_interval():
    found = plan(RUN, TRUTH, over="mean", width=0.2, judgments=PEOPLE)
    labels = label(found.pairs)
    found = plan(RUN, TRUTH, over="mean", width=0.2, judgments=PEOPLE, labels=labels)
    labels = label(found.pairs)
    assert len(np.unique(found.pairs.queries.codes)) < N
    assert np.ptp(found.pairs.probabilities) == 0
    done = correct(RUN, TRUTH, None, labels, "srecall@20")
    truth = sr.evaluate(RUN, "srecall@20", truth=TRUTH, judgments=PEOPLE).mean("srecall@20")
    assert done.mean.label_low < truth < done.mean.label_high


def test_queries_drawn_before_stay_drawn():
    first = plan(RUN, TRUTH, over="mean", width=0.0001)
    wider = plan(RUN, TRUTH, over="mean", width=0.3, labels=label(first.pairs))
    assert set(first.pairs) <= set(wider.pairs)
    assert set(wider.pairs.probabilities) == {1.0}


@pytest.mark.parametrize("over", ["pooled", "mean"])
def test_nothing_missed(over):
    found = plan(TRUTH, TRUTH, over=over)
    assert set(found.pairs.details["picked"]) == {"found"}
    done = correct(TRUTH, TRUTH, None, label(found.pairs), "srecall@20")
    assert getattr(done, over).value == 1


def test_one_query_takes_all():
    found = plan(RUN.select([3]), TRUTH.select([3]), judgments=PEOPLE, width=0.001)
    assert len(found) == K


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"width": 2}, "width is 2"),
        ({"over": "both"}, "over is 'both'"),
        ({"relevant": 1.0}, "relevant is 1.0"),
        ({"measure": "recall@10"}, "no labels are planned for recall@10"),
        ({"measure": "srecall(gain=grade)@10"}, "no labels are planned"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(InputError, match=message):
        plan(RUN, TRUTH, **options)


def test_no_run():
    with pytest.raises(InputError, match="no run to plan for"):
        plan([], TRUTH)


def test_files_are_those_that_judging_takes(tmp_path):
    found = sr.plan(RUN, TRUTH, width=0.05)
    for name in ("p.jsonl", "p.csv", "p.parquet", "p.jsonl.gz"):
        found.write(tmp_path / name)
        pairs = read_pairs(tmp_path / name)
        assert list(map(str, pairs.documents)) == list(map(str, found.pairs.documents))
        np.testing.assert_allclose(pairs.probabilities, found.pairs.probabilities)
    with pytest.raises(InputError, match="pairs are written as JSON lines"):
        found.write(tmp_path / "p.txt")
    assert Pairs.of(found.pairs) is found.pairs


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def shell(semrecall_main, tmp_path):
    sr.write(RUN, tmp_path / "run.parquet")
    sr.write(TRUTH, tmp_path / "truth.parquet")
    sr.write(PEOPLE, tmp_path / "judge.parquet")
    return semrecall_main


PLAN = ("plan", "run.parquet", "--truth", "truth.parquet")


def test_command(shell, tmp_path):
    status, out, err = shell(*PLAN, "--width", 0.04, "-o", "pairs.jsonl")
    assert status == 0
    assert out.startswith("design ")
    assert "assumed: labels of any judge (--judgments) would tell" in " ".join(out.split())
    assert "wrote " in err
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert set(rows[0]) == {"query_id", "doc_id", "probability", "picked", "best_rank"}
    assert max(map(len, out.splitlines())) <= 100


def test_command_says_when_to_stop(shell, tmp_path):
    shell(*PLAN, "--width", 0.04, "--judgments", "judge.parquet", "-o", "pairs.jsonl")
    sr.write(label(read_pairs(tmp_path / "pairs.jsonl")), tmp_path / "labels.jsonl")
    status, out, _ = shell(*PLAN, "--width", 0.06, "--labels", "labels.jsonl")
    assert status == 0
    assert "enough: the interval of the pooled value is 0.0" in out
    _, out, _ = shell(*PLAN, "--width", 0.01, "--labels", "labels.jsonl")
    assert "not enough yet: the interval" in out
    # Labels of some of the pairs, without their probabilities.
    done = label(read_pairs(tmp_path / "pairs.jsonl"))
    sr.write(done.select(np.arange(0, len(done), 2)).replace(details={}), tmp_path / "half.jsonl")
    _, out, _ = shell(*PLAN, "--labels", "half.jsonl", "--pairs", "pairs.jsonl", "--format", "json")
    (estimate,) = json.loads(out)["estimates"]
    assert estimate["labels"] == math.ceil(len(done) / 2)
    assert estimate["pooled"]["label_low"] < estimate["pooled"]["value"]


def test_command_formats_and_faults(shell):
    _, out, _ = shell(*PLAN, "--format", "csv")
    assert out.splitlines()[0].startswith("design,")
    _, out, _ = shell(*PLAN, "--format", "markdown", "--over", "mean")
    assert "| missed first | mean |" in out
    assert "plan again with the labels" in out
    for arguments, message in (
        (("--width", 3), "width is 3"),
        (("--pairs", "judge.parquet"), "--pairs is given without --labels"),
        (("--labels", "judge.parquet", "-m", "nDCG@10"), "no labels are planned"),
    ):
        status, out, err = shell(*PLAN, *arguments)
        assert (status, out) == (2, "")
        assert message in err
