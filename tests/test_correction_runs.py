"""correct(), and `semrecall score --correct-with`: which method, what it needs, what it says."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

import semrecall as sr
from semrecall.correction import correct, with_pairs
from semrecall.data import Judgments, Pairs, Run
from semrecall.errors import InputError, MismatchError
from semrecall.judges import Ledger
from semrecall.measures import align
from semrecall.measures.pairs import neighbours

NAN = math.nan
N, K = 40, 10


def parts(seed=0):
    """(run, truth, judge, people): people grade 0 to 3, relevant from 2; the judge 0 or 1."""
    generator = np.random.default_rng(seed)
    ids = np.arange(N * K).reshape(N, K)
    truth = Run.from_arrays(ids, scores=np.tile(np.arange(K, 0, -1.0), (N, 1)), space="ip")
    lost = generator.random((N, K)) < 0.2
    run = Run.from_arrays(np.where(lost, ids + 10**6, ids), space="ip", name="ivf")
    grades = generator.integers(0, 4, (N, K)).astype(float)
    labels = np.where(generator.random((N, K)) < 0.1, grades < 2, grades >= 2).astype(float)
    rows = np.repeat(np.arange(N), K)
    judge = Judgments.from_arrays(rows, ids.ravel(), labels.ravel())
    people = Judgments.from_arrays(rows, ids.ravel(), grades.ravel())
    return run, truth, judge, people


RUN, TRUTH, JUDGE, PEOPLE = parts()


def sampled(people, use, chance):
    chances = np.broadcast_to(np.asarray(chance, float), len(people))
    return people.replace(details={"probability": chances}).select(np.arange(len(people))[use])


def drawn(count, seed=1):
    return np.sort(np.random.default_rng(seed).choice(N * K, count, replace=False))


def whole(queries):
    return PEOPLE.select(np.repeat(np.isin(np.arange(N), queries), K))


# -- the method follows from the labels ------------------------------------------------------------


def test_whole_queries():
    found = correct(RUN, TRUTH, JUDGE, whole(range(0, N, 2)), "srecall@10", human_rel=2)
    assert found.method == "queries"
    assert (found.labels, found.queries, found.pairs) == (N * K // 2, N // 2, N * K)
    assert found.judge_mean == pytest.approx(
        sr.evaluate(RUN, "srecall@10", truth=TRUTH, judgments=JUDGE).mean("srecall@10")
    )
    for estimate in (found.pooled, found.mean):
        assert estimate.low < estimate.label_low < estimate.value < estimate.label_high
    assert 0 <= found.tuning <= 1
    assert "prediction-powered inference" in str(found)
    assert "relevant to people from grade 2" in str(found)
    assert sr.correct is correct


def test_all_labelled_is_what_people_say():
    found = correct(RUN, TRUTH, JUDGE, PEOPLE, "srecall@10", human_rel=2)
    result = sr.evaluate(RUN, "srecall(rel=2)@10", truth=TRUTH, judgments=PEOPLE)
    assert found.mean.value == pytest.approx(result.mean("srecall(rel=2)@10"))
    assert found.pooled.value == pytest.approx(result.summary()[0].micro)
    assert found.mean.width == pytest.approx(0, abs=1e-12)


def test_pairs_with_probabilities():
    use = drawn(150)
    people = sampled(PEOPLE, use, 150 / (N * K))
    found = correct(RUN, TRUTH, JUDGE, people, "srecall@10", human_rel=2)
    assert found.method == "pairs"
    # T = sum(l r + (h - l) r s / pi), S the same without r.
    label, human = JUDGE.grades, (PEOPLE.grades >= 2).astype(float)
    hit = np.asarray(RUN.ids.matrix() == TRUTH.ids.matrix()).ravel()
    seen = np.isin(np.arange(N * K), use)
    relevance = label + (human - label) * seen / (150 / (N * K))
    assert found.pooled.value == pytest.approx((relevance * hit).sum() / relevance.sum())
    assert math.isnan(found.mean.value)
    assert "a mean over queries needs whole queries labelled" in found.mean.reason


def test_rates_on_request():
    found = correct(RUN, TRUTH, JUDGE, whole(range(30)), "srecall@10", human_rel=2, method="rates")
    irrelevant = (PEOPLE.grades[: 30 * K] < 2).sum()
    assert found.rates.irrelevant.sum() == irrelevant
    assert found.bands[-1] == K
    assert "of what is irrelevant to people relevant" in str(found)
    assert math.isnan(found.mean.value)


def test_few_labels_have_one_band_many_have_more():
    few = correct(RUN, TRUTH, JUDGE, whole(range(5)), "srecall@10", human_rel=2, method="rates")
    many = correct(RUN, TRUTH, JUDGE, whole(range(30)), "srecall@10", human_rel=2, method="rates")
    assert few.bands == (K,)
    assert len(many.bands) > 1


def test_labels_alone():
    found = correct(RUN, TRUTH, None, whole(range(20)), "srecall(rel=2)@10")
    assert found.method == "labels"
    assert math.isnan(found.judge_mean)
    half = sr.evaluate(
        RUN.select(range(20)), "srecall(rel=2)@10", truth=TRUTH.select(range(20)), judgments=PEOPLE
    )
    assert found.mean.value == pytest.approx(half.mean("srecall(rel=2)@10"))
    assert "estimated from a sample of labels" in str(found)


def test_pairs_alone():
    found = correct(
        RUN, TRUTH, None, sampled(PEOPLE, drawn(200), 0.5), "srecall(rel=2)@10", method="labels"
    )
    assert 0.6 < found.pooled.value < 0.95
    assert "do not settle" in found.mean.reason


def test_grades_weigh():
    found = correct(RUN, TRUTH, PEOPLE, PEOPLE, "srecall(gain=grade)@10")
    result = sr.evaluate(RUN, "srecall(gain=grade)@10", truth=TRUTH, judgments=PEOPLE)
    assert found.mean.value == pytest.approx(result.mean("srecall(gain=grade)@10"))
    with pytest.raises(InputError, match="use gain=count"):
        correct(RUN, TRUTH, PEOPLE, PEOPLE, "srecall(gain=grade)@10", method="rates")


def test_pairs_without_a_grade_were_drawn_all_the_same():
    use = drawn(200)
    grades = PEOPLE.grades.copy()
    grades[use[::2]] = NAN
    people = sampled(PEOPLE.replace(grades=grades), use, 0.5)
    found = correct(RUN, TRUTH, JUDGE, people, "srecall@10", human_rel=2)
    assert found.labels == 100
    assert any("100 pairs given to people have no grade" in note for note in found.notes())
    # Half of those drawn have a label: they weigh twice as much, more or less evenly.
    full = correct(RUN, TRUTH, JUDGE, sampled(PEOPLE, use, 0.5), "srecall@10", human_rel=2)
    assert abs(found.pooled.value - full.pooled.value) < 0.1
    assert found.pooled.width > full.pooled.width


def test_probabilities_from_the_pairs_that_were_drawn():
    use = drawn(200)
    pairs = Pairs.of(sampled(PEOPLE, use, 0.5))
    found = with_pairs(PEOPLE.select(use[:50]), pairs)
    assert len(found) == 200
    assert np.count_nonzero(~np.isnan(found.grades)) == 50
    assert found.details["probability"].tolist() == [0.5] * 200
    with pytest.raises(InputError, match="record no probability"):
        with_pairs(PEOPLE, Pairs.of(PEOPLE))
    with pytest.raises(MismatchError, match="none of the 400 labels is of one of the 200 pairs"):
        with_pairs(PEOPLE.replace(queries=PEOPLE.documents), pairs)


def test_whole_queries_drawn_unevenly_count_as_pairs():
    people = whole(range(0, N, 2))
    chances = np.repeat([0.4, 0.6], len(people) // 2)
    people = people.replace(details={"probability": chances})
    assert correct(RUN, TRUTH, JUDGE, people, "srecall@10").method == "pairs"
    even = people.replace(details={"probability": np.full(len(people), 0.5)})
    assert correct(RUN, TRUTH, JUDGE, even, "srecall@10").method == "queries"


def test_queries_without_neighbours_do_not_count():
    rows = [*TRUTH.ids.to_list(), [], [], []]
    scores = [*TRUTH.scores.to_list(), [], [], []]
    truth = Run.from_arrays(rows, scores=scores, space="ip")
    half = whole(range(0, N, 2))
    for judge in (JUDGE, None):
        found = correct(RUN, truth, judge, half, "srecall(rel=1)@10")
        plain = correct(RUN, TRUTH, judge, half, "srecall(rel=1)@10")
        assert found.mean == plain.mean
        assert found.pooled == plain.pooled


def test_what_was_found_does_not_depend_on_grades():
    # Ties at rank 3 go on to d: the run's d stands for b or c, whichever it is by grade.
    truth = Run.from_arrays([["a", "b", "c", "d"]], scores=[[2, 1, 1, 1.0]], space="ip", k=3)
    run = Run.from_arrays([["a", "d", "x"]], space="ip")
    for grades in ({"b": 1, "c": 0}, {"b": 0, "c": 1}):
        problem = align(run, truth, Judgments.from_dict({0: grades}))
        assert neighbours(problem, 3).found.tolist() == [True, True, False]


# -- what is refused -------------------------------------------------------------------------------


def test_a_disagreement_queue_is_refused():
    apart = np.flatnonzero((PEOPLE.grades >= 2) != (JUDGE.grades >= 1))
    for judge in (JUDGE, None):
        with pytest.raises(InputError, match="Pairs from a disagreement queue") as error:
            correct(RUN, TRUTH, judge, PEOPLE.select(apart), "srecall@10")
        assert "semrecall plan draws both" in error.value.hint
    # Nor do made-up probabilities help.
    with pytest.raises(InputError, match=r"stand for \d+ neighbours, not for all 400"):
        correct(RUN, TRUTH, JUDGE, sampled(PEOPLE, apart, 1.0), "srecall@10")


@pytest.mark.parametrize("method", ["queries", "rates", "pairs"])
def test_a_method_needs_its_labels(method):
    with pytest.raises(InputError, match=r"probability|disagreement queue"):
        correct(RUN, TRUTH, JUDGE, PEOPLE.select(drawn(50)), "srecall@10", method=method)


@pytest.mark.parametrize("bad", [0.0, 1.5, NAN, -0.1])
def test_probabilities_that_are_none_name_the_rows(bad):
    chances = np.full(N * K, 0.5)
    chances[[3, 17]] = bad
    people = sampled(PEOPLE, slice(None), chances)
    with pytest.raises(InputError, match=r"2 labels of people have no usable .*row 4 \(query 0, "):
        correct(RUN, TRUTH, JUDGE, people, "srecall@10")


def test_empty_and_foreign_labels():
    with pytest.raises(InputError, match="there is no label of people"):
        correct(RUN, TRUTH, JUDGE, Judgments.from_dict({}), "srecall@10")
    far = PEOPLE.replace(documents=Pairs.of([(0, 10**9 + i) for i in range(N * K)]).documents)
    with pytest.raises(MismatchError, match="none of the 400 pairs labelled by people is one of"):
        correct(RUN, TRUTH, JUDGE, far, "srecall@10")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "recall@10"}, "recall@10 is not corrected; expected srecall"),
        ({"method": "guess"}, "method is 'guess'"),
        ({"method": "labels"}, "takes no labels of a judge"),
        ({"confidence": 1.5}, "confidence is 1.5"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(InputError, match=message):
        correct(RUN, TRUTH, JUDGE, PEOPLE, **options)


@pytest.mark.parametrize("grade", [0.0, 3.0])
def test_labels_of_one_class(grade):
    people = whole(range(10)).replace(grades=np.full(10 * K, grade))
    found = correct(RUN, TRUTH, JUDGE, people, "srecall@10")
    rates = correct(RUN, TRUTH, JUDGE, people, "srecall@10", method="rates")
    if grade:
        assert 0 < found.mean.value <= 1
        assert "called no labelled pair irrelevant" in rates.pooled.reason
    else:
        assert "no query that people labelled has a relevant" in found.mean.reason
        assert "no estimate" in str(found)


def test_one_query_and_nothing_missed():
    one = correct(RUN.select([0]), TRUTH.select([0]), JUDGE, PEOPLE, "srecall@10", human_rel=2)
    assert math.isnan(one.mean.low)
    full = correct(TRUTH, TRUTH, JUDGE, whole(range(20)), "srecall@10", human_rel=2)
    assert (full.mean.value, full.pooled.value) == (1, 1)
    assert (full.mean.low, full.mean.high) == (1, 1)


# -- semrecall score --correct-with ----------------------------------------------------------------


@pytest.fixture
def shell(semrecall_main, tmp_path):
    sr.write(RUN, tmp_path / "run.parquet")
    sr.write(TRUTH, tmp_path / "truth.parquet")
    sr.write(JUDGE, tmp_path / "judge.parquet")
    sr.write(whole(range(0, N, 2)), tmp_path / "people.jsonl")
    sr.write(sampled(PEOPLE, drawn(200), 0.5), tmp_path / "pairs.jsonl")
    sr.write(PEOPLE.select(drawn(100)), tmp_path / "queue.jsonl")
    return semrecall_main


SCORE = ("score", "run.parquet", "--truth", "truth.parquet", "--judgments", "judge.parquet")
PEOPLES = ("--correct-with", "people.jsonl", "--correct-rel", 2)


def test_score_shows_both_values(shell):
    status, out, _ = shell(*SCORE, *PEOPLES)
    assert status == 0
    block = out.split("corrected by people's labels\n")[1].splitlines()
    assert block[0].split()[:2] == ["judge", "corrected"]
    assert block[1].startswith("pooled ")
    assert block[2].startswith("mean over queries ")
    assert "(prediction-powered inference)" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_labels_of_one_judge_of_a_ledger(shell, tmp_path):
    with Ledger(tmp_path / "all.ledger") as book:
        book.add(sr.read(tmp_path / "people.jsonl"), "human:anna")
        book.add(sr.read(tmp_path / "judge.parquet"), "model")
    _, expected, _ = shell(*SCORE, *PEOPLES, "--format", "json")
    of_ledger = ("--judgments", "all.ledger", "--grade", "model")
    corrected = ("--correct-with", "all.ledger:human:anna", "--correct-rel", 2, "--format", "json")
    status, out, _ = shell(*SCORE[:4], *of_ledger, *corrected)
    assert status == 0
    assert json.loads(out)["corrections"] == json.loads(expected)["corrections"]


def test_score_in_other_formats(shell):
    _, out, _ = shell(*SCORE, *PEOPLES, "--format", "json")
    (found,) = json.loads(out)["corrections"]
    expected = correct(RUN, TRUTH, JUDGE, whole(range(0, N, 2)), "srecall@10", human_rel=2)
    assert found["mean"]["value"] == pytest.approx(expected.mean.value)
    assert found["method"] == "queries"
    _, out, _ = shell(*SCORE, *PEOPLES, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["over"] for row in rows] == ["pooled", "mean over queries"]
    _, out, _ = shell(*SCORE, *PEOPLES, "--format", "markdown")
    assert "| over | judge | corrected |" in out


def test_score_by_rates_and_by_pairs(shell):
    _, out, _ = shell(*SCORE, *PEOPLES, "--correct-method", "rates")
    assert "by the judge's false positive rate" in out
    _, out, _ = shell(*SCORE, "--correct-with", "pairs.jsonl", "--correct-rel", 2)
    assert "(difference estimator)" in out


def test_score_of_a_sample_says_so(shell):
    sample = ("score", "run.parquet", "--truth", "truth.parquet", "--judgments", "pairs.jsonl")
    _, out, _ = shell(*sample, "-m", "srecall(rel=2)@10")
    assert "estimated from a sample of labels" in out
    # Without probabilities below 1 they are no sample.
    plain = ("score", "run.parquet", "--truth", "truth.parquet", "--judgments", "queue.jsonl")
    assert "estimated" not in shell(*plain, "-m", "srecall(rel=2)@10")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--correct-with", "queue.jsonl"), "disagreement queue"),
        ((*PEOPLES, "-m", "recall@10"), "corrects srecall, which is not measured"),
        ((*PEOPLES, "--same-as", "people.jsonl"), "do not go together"),
    ],
)
def test_score_refuses(shell, tmp_path, arguments, message):
    if "--same-as" in arguments:
        (tmp_path / "same.csv").write_text("id,same_as\n1,2\n")
        arguments = tuple("same.csv" if a == "people.jsonl" and i > 3 else a
                          for i, a in enumerate(arguments))  # fmt: skip
    status, out, err = shell(*SCORE, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_score_needs_a_judge(shell):
    status, _, err = shell("score", "run.parquet", "--truth", "truth.parquet", *PEOPLES)
    assert status == 2
    assert "--correct-with is given without --judgments" in err
