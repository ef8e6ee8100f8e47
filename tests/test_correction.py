"""Corrected estimates: by hand, against their definitions, and how often their intervals hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semrecall.errors import InputError
from semrecall.stats.correction import pair_corrected, query_corrected, rate_corrected
from semrecall.stats.sampled import sampled_pooled, settled_values

NAN = math.nan


def world(seed, n=300, k=50, fpr=0.14, fnr=0.06, lost=0.0):
    """(h, l, r) (n, k): relevance, a judge's labels with these error rates, what was found.

    Queries differ in how much is relevant and in how much is found; relevant neighbours are found
    a little more often. lost: relevant neighbours the judge misses beside.
    """
    generator = np.random.default_rng(seed)
    h = (generator.random((n, k)) < generator.beta(1.5, 2.5, n)[:, None]).astype(float)
    recall = generator.beta(12, 1.5, n)[:, None]
    r = (generator.random((n, k)) < np.clip(recall + 0.03 * h, 0, 1)).astype(float)
    hit = generator.random((n, k)) >= fnr
    hit &= np.random.default_rng([seed, 1]).random((n, k)) >= lost
    wrong = generator.random((n, k)) < fpr
    return h, np.where(h == 1, hit, wrong).astype(float), r


def flat(*tables):
    rows = np.repeat(np.arange(len(tables[0])), tables[0].shape[1])
    return *(table.ravel() for table in tables), rows


def share(h, r):
    return (h * r).sum() / h.sum()


def values(h, r):
    """Each query's own share and whether it has one, (n, 2)."""
    total = h.sum(axis=1)
    value = np.divide((h * r).sum(axis=1), total, out=np.zeros(len(h)), where=total > 0)
    return np.stack([value, total > 0], axis=1).astype(float)


def kept(table, use):
    return np.where(use[:, None], table, NAN)


# -- by hand --------------------------------------------------------------------------------------


def test_rates_by_hand():
    # l r: pairs 0, 1, 3; sum(l r) = 3, sum(r) = 5, sum(l) = 4, M = 8. Two pairs are irrelevant to
    # people, one of them the judge calls relevant: alpha = 1/2.
    said = [1, 1, 0, 1, 0, 1, 0, 0]
    r = [1, 1, 1, 1, 1, 0, 0, 0]
    h = [1, NAN, 0, 0, NAN, NAN, NAN, NAN]
    found = rate_corrected(said, r, [0, 0, 0, 0, 1, 1, 1, 1], h)
    assert found.false_positive.tolist() == [0.5]
    assert found.true_positive.tolist() == [1.0]
    assert (found.irrelevant.tolist(), found.relevant.tolist()) == ([2], [1])
    # 4 - 1/2 * 8 = 0 is left as relevant: no value.
    assert math.isnan(found.estimate.value)
    assert "calls 50.0% relevant, no more than its false positives" in found.estimate.reason
    # With alpha = 1/4 (weights 1 and 3): (3 - 5/4) / (4 - 8/4) = 7/8.
    found = rate_corrected(said, r, [0, 0, 0, 0, 1, 1, 1, 1], h, weights=[1, 1, 3, 1, 1, 1, 1, 1])
    assert found.false_positive.tolist() == [0.25]
    assert found.estimate.value == pytest.approx(7 / 8)


def test_pairs_by_hand():
    # Two pairs were picked, with probability 1/2 each: (h - l) s / pi is -2 for pair 1 (found) and
    # +2 for pair 5 (missed). T = 3 - 2 = 1, S = 4 - 2 + 2 = 4.
    said, r = [1, 1, 0, 1, 0, 0, 1, 0], [1, 1, 1, 1, 1, 0, 0, 0]
    h = [NAN, 0, NAN, NAN, NAN, 1, NAN, NAN]
    rows = [0, 0, 0, 0, 1, 1, 1, 1]
    found = pair_corrected(said, r, rows, h, np.full(8, 0.5))
    assert found.value == pytest.approx(1 / 4)
    assert found.n == 2
    assert found.low <= found.value <= found.high
    # The same with all labels known: the people's own share, and nothing left open.
    h = [1, 0, 0, 1, 0, 1, 0, 0]
    known = pair_corrected(said, r, rows, h, np.ones(8))
    assert known.value == pytest.approx(2 / 3)
    assert (known.label_low, known.label_high) == pytest.approx((2 / 3, 2 / 3))


def test_queries_by_hand():
    # The judge's means are 0.8 over all four and 0.75 over the two labelled ones, the people's
    # 0.5; all are defined. Two points: residuals -0.25 and 0.25 on -0.25 and 0.25, lambda = 1.
    human = np.array([[0.25, 1], [0.75, 1], [NAN, NAN], [NAN, NAN]])
    judge = np.array([[0.5, 1], [1.0, 1], [1.0, 1], [0.7, 1]])
    found, slope = query_corrected(human, judge)
    assert slope == pytest.approx(1.0)
    assert found.value == pytest.approx(0.5 + (0.8 - 0.75))
    assert found.n == 2


def test_queries_without_a_value_do_not_count():
    # By people query 1 has no relevant neighbour; the judge says nothing (lambda 0): 1.5 / 2.
    human = np.array([[1.0, 1], [0.0, 0], [0.5, 1], [NAN, NAN]])
    found, slope = query_corrected(human, np.zeros((4, 2)))
    assert slope == 0
    assert found.value == pytest.approx(0.75)


def test_all_queries_labelled_leaves_nothing_open():
    human = np.array([[1.0, 1], [0.5, 1], [0.75, 1], [0.0, 0]])
    found, _ = query_corrected(human, np.ones((4, 2)))
    assert found.value == pytest.approx(0.75)
    assert found.width == pytest.approx(0)
    assert found.low < 0.75 < found.high


def test_samples_by_hand():
    # Missed: all 2 labelled, 1 relevant. Found: 2 of 4 labelled, 1 relevant, so 2 of 4: 2 / 3.
    r = [1, 1, 1, 1, 0, 0]
    h = [1, 0, NAN, NAN, 1, 0]
    found = sampled_pooled(r, [0, 0, 0, 1, 1, 1], h, [0.5] * 4 + [1, 1])
    assert found.value == pytest.approx(2 / 3)
    # The found one of query 1 that was certain counts as it is: 1 + 3 * 1/2 of 4, 2.5 / 3.5.
    h = [1, 0, NAN, 1, 1, 0]
    found = sampled_pooled(r, [0, 0, 0, 1, 1, 1], h, [0.5] * 3 + [1, 1, 1])
    assert found.value == pytest.approx(2.5 / 3.5)


def test_a_sample_labelled_in_part_is_a_sample():
    r, rows = [1] * 4 + [0] * 4, [0, 0, 1, 1] * 2
    # All 4 missed were to be labelled, 2 are: they stand for the others.
    found = sampled_pooled(r, rows, [1, 1, 1, 1, 1, 0, NAN, NAN], np.ones(8))
    assert found.value == pytest.approx(4 / 6)
    assert found.width > 0


def test_settled_by_hand():
    # a: a missed one is relevant, a found one unlabelled: open. b: no missed one is, one found is:
    # 1. c: all labelled, 1 of 2. d: all labelled, none relevant. e: nobody was asked. f: none of
    # the labelled is relevant, the unlabelled found one may be: open.
    rows = np.repeat(np.arange(6), 3)
    r = [1, 1, 0] * 6
    h = [1, NAN, 1, 1, NAN, 0, 1, 0, 1, 0, 0, 0, NAN, NAN, NAN, 0, NAN, 0]
    found = settled_values(r, rows, h, ~np.isnan(h), 6)
    assert found.known.tolist() == [False, True, True, True, False, False]
    assert found.drawn.tolist() == [True, True, True, True, False, True]
    np.testing.assert_array_equal(found.share, [NAN, 1.0, 0.5, NAN, NAN, NAN])


# -- what cannot be estimated ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("human", "reason"),
    [
        ([NAN, NAN, NAN, NAN], "people called no labelled pair irrelevant"),
        ([1, 1, NAN, NAN], "people called no labelled pair irrelevant"),
        ([NAN, NAN, NAN, 0], ""),
    ],
)
def test_rates_need_irrelevant_labels(human, reason):
    found = rate_corrected([1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], human)
    assert found.estimate.reason == reason
    assert math.isnan(found.estimate.value) == bool(reason)


def test_queries_need_a_relevant_label():
    nobody = query_corrected(np.full((4, 2), NAN), np.ones((4, 2)))[0]
    assert nobody.reason == "people labelled no query"
    barren = query_corrected(kept(np.zeros((4, 2)), np.array([1, 1, 0, 0])), np.ones((4, 2)))[0]
    assert barren.reason == "no query that people labelled has a relevant neighbour"


def test_pairs_without_relevance_left():
    # The judge finds one relevant, people say it is none, with weight 1 / 0.5.
    found = pair_corrected([1, 0], [1, 0], [0, 1], [0, NAN], [0.5, 0.5])
    assert "not above 0" in found.reason
    assert math.isnan(found.low)


def test_samples_need_labels_of_both():
    missed = sampled_pooled([1, 1, 0], [0, 0, 1], [1, NAN, NAN], [0.5] * 3)
    assert missed.reason == "none of the 1 missed neighbours has a label"
    none = sampled_pooled([1, 1, 0], [0, 0, 1], [0, 0, 0], np.ones(3))
    assert none.reason == "no labelled neighbour is relevant"


def test_nothing_missed_is_1():
    found = sampled_pooled([1, 1, 1], [0, 1, 1], [1, NAN, 0], [0.5] * 3)
    assert found.value == 1


def test_one_query_has_no_interval():
    for found in (
        query_corrected(np.ones((1, 2)), np.ones((1, 2)))[0],
        rate_corrected([1, 0, 1, 0], [1, 1, 0, 0], [0] * 4, [1, 0, 1, NAN]).estimate,
        pair_corrected([1, 0, 1], [1, 1, 0], [0] * 3, [1, 0, 1], np.ones(3)),
    ):
        assert not math.isnan(found.value)
        assert math.isnan(found.low)


def test_labels_that_all_agree_say_so():
    h, _, r = world(0, n=20)
    h_, r_, rows = flat(h, r)
    pick = np.random.default_rng(0).random(len(h_)) < 0.1
    found = pair_corrected(h_, r_, rows, np.where(pick, h_, NAN), np.full(len(h_), 0.1))
    assert any("people agree with the judge on all" in note for note in found.notes)


def test_a_sample_that_finds_no_missed_relevant_one_is_not_certain():
    # 20 of 500 missed ones labelled, all irrelevant: others may be relevant.
    r = np.repeat([1, 0], 500)
    h = np.full(1000, NAN)
    h[:20], h[500:520] = 1, 0
    found = sampled_pooled(r, np.arange(1000) % 50, h, np.full(1000, 20 / 500))
    assert found.value == 1
    assert found.label_low < 0.99


def test_a_judge_without_labels_is_refused():
    with pytest.raises(InputError, match="a label of the judge is NaN"):
        rate_corrected([1, NAN], [1, 1], [0, 0], [0, 1])
    with pytest.raises(InputError, match="2 labels, 1 found and 2 queries"):
        rate_corrected([1, 0], [1], [0, 0], [0, 1])


# -- case J34: a biased judge ---------------------------------------------------------------------


def test_rates_restore_the_share_of_a_biased_judge():
    h, said, r = world(5, n=20000)
    h_, said_, r_, rows = flat(h, said, r)
    labelled = np.where(np.random.default_rng(1).random(len(h_)) < 0.1, h_, NAN)
    found = rate_corrected(said_, r_, rows, labelled).estimate
    assert abs(share(said, r) - share(h, r)) > 0.004
    assert abs(found.value - share(h, r)) < 0.002
    # Relevant neighbours that the judge misses at random, 1 in 4, move nothing.
    _, blind, _ = world(5, n=20000, lost=0.25)
    assert (blind < said).mean() > 0.05
    again = rate_corrected(blind.ravel(), r_, rows, labelled).estimate
    assert abs(again.value - found.value) < 0.002


def test_bands_heed_a_judge_that_errs_by_rank():
    generator = np.random.default_rng(3)
    n, k = 20000, 50
    near = np.arange(k) < 25
    h = generator.random((n, k)) < np.where(near, 0.5, 0.2)
    r = generator.random((n, k)) < np.where(near, 0.99, 0.9)
    said = np.where(h, generator.random((n, k)) < np.where(near, 0.95, 0.6),
                 generator.random((n, k)) < np.where(near, 0.05, 0.3))  # fmt: skip
    h_, said_, r_, rows = flat(h.astype(float), said.astype(float), r.astype(float))
    labelled = np.where(generator.random(len(h_)) < 0.2, h_, NAN)
    band = np.tile(np.where(near, 0, 1), n)
    by_band = rate_corrected(said_, r_, rows, labelled, bands=band).estimate
    assert abs(by_band.value - share(h, r)) < 0.002
    assert abs(rate_corrected(said_, r_, rows, labelled).estimate.value - share(h, r)) > 0.002


# -- coverage over seeded draws -------------------------------------------------------------------

SEEDS = 150
#: The shares of all queries there are, pooled and as a mean.
_ALL = world(10**6, n=60000)
POOLED, MEAN = share(_ALL[0], _ALL[2]), np.divide(*values(_ALL[0], _ALL[2]).sum(axis=0))


def covered(estimate, seeds=SEEDS):
    """(how often the interval holds the share of all queries, the label interval these queries').

    estimate: seed -> (Estimate, share of these queries, share of all).
    """
    held = []
    for seed in range(seeds):
        found, here, everywhere = estimate(seed)
        held.append(
            (found.low <= everywhere <= found.high, found.label_low <= here <= found.label_high)
        )
    return np.mean(held, axis=0)


def hundred_queries(seed, n=300):
    use = np.zeros(n, dtype=bool)
    use[np.random.default_rng([seed, 2]).choice(n, 100, replace=False)] = True
    return use


def some_pairs(seed, h, r, missed, found):
    """(labels, probabilities) of so many missed and found neighbours drawn at random."""
    generator = np.random.default_rng([seed, 3])
    labels, chances = np.full(h.size, NAN), np.zeros(h.size)
    for side, count in ((0, missed), (1, found)):
        inside = np.flatnonzero(r == side)
        count = min(count, len(inside))
        chosen = generator.choice(inside, count, replace=False)
        labels[chosen], chances[inside] = h[chosen], count / len(inside)
    return labels, chances


def mean_of_queries(seed):
    h, said, r = world(seed)
    truth = np.divide(*values(h, r).sum(axis=0))
    human = kept(values(h, r), hundred_queries(seed))
    return query_corrected(human, values(said, r))[0], truth, MEAN


def pool_of_queries(seed):
    h, said, r = world(seed)
    sums = [np.stack([(x * r).sum(axis=1), x.sum(axis=1)], axis=1) for x in (h, said)]
    human = kept(sums[0], hundred_queries(seed))
    return query_corrected(human, sums[1])[0], share(h, r), POOLED


def rates(seed):
    h, said, r = world(seed)
    h_, said_, r_, rows = flat(h, said, r)
    labels = np.where(np.repeat(hundred_queries(seed), h.shape[1]), h_, NAN)
    return rate_corrected(said_, r_, rows, labels).estimate, share(h, r), POOLED


def rates_of_pairs(seed):
    h, said, r = world(seed)
    h_, said_, r_, rows = flat(h, said, r)
    labels, chances = some_pairs(seed, h_, r_, 200, 300)
    found = rate_corrected(said_, r_, rows, labels, weights=1 / chances).estimate
    return found, share(h, r), POOLED


def pairs(seed):
    h, said, r = world(seed)
    h_, said_, r_, rows = flat(h, said, r)
    return pair_corrected(said_, r_, rows, *some_pairs(seed, h_, r_, 200, 200)), share(h, r), POOLED


def labels_alone(seed):
    h, _, r = world(seed)
    h_, r_, rows = flat(h, r)
    return sampled_pooled(r_, rows, *some_pairs(seed, h_, r_, 200, 200)), share(h, r), POOLED


def all_missed(seed):
    h, _, r = world(seed)
    h_, r_, rows = flat(h, r)
    return sampled_pooled(r_, rows, *some_pairs(seed, h_, r_, 10**6, 100)), share(h, r), POOLED


def few_labels(seed):
    h, _, r = world(seed)
    h_, r_, rows = flat(h, r)
    return sampled_pooled(r_, rows, *some_pairs(seed, h_, r_, 40, 40)), share(h, r), POOLED


@pytest.mark.parametrize(
    "estimate",
    [mean_of_queries, pool_of_queries, rates, rates_of_pairs, pairs, labels_alone, all_missed,
     few_labels],
)  # fmt: skip
def test_intervals_hold(estimate):
    everywhere, here = covered(estimate, 300 if estimate is mean_of_queries else SEEDS)
    assert everywhere >= 0.9
    assert here >= 0.9


def test_people_make_the_interval_narrower_than_their_labels_alone():
    h, said, r = world(0)
    human = kept(values(h, r), hundred_queries(0))
    corrected, slope = query_corrected(human, values(said, r))
    alone, _ = query_corrected(human, np.zeros((300, 2)))
    assert 0 < slope <= 1
    assert corrected.width < 0.8 * alone.width


# -- variances, against slow ways to find them ----------------------------------------------------


def test_the_interval_of_a_sample_by_hand():
    # Found: 4 of 100 labelled, 2 relevant: F = 50, s2 = 1/3, V = 100^2 (1 - 0.04) / 4 / 3 = 800.
    # Missed: all 100 labelled, 10 relevant: X = 10. Variance of F / (F + X): X^2 V / 60^4.
    r = np.repeat([1, 0], 100)
    h = np.full(200, NAN)
    h[:4], h[100:110], h[110:] = [1, 1, 0, 0], 1, 0
    chances = np.repeat([0.04, 1], 100)
    found = sampled_pooled(r, np.arange(200) % 100, h, chances)
    se = math.sqrt(10**2 * 800 / 60**4)
    # On the scale of log odds, with t of 3 degrees of freedom, for the 4 labels.
    step = 3.182446305284263 * se / (50 / 60 * 10 / 60)
    ends = [1 / (1 + math.exp(-(math.log(5) + side * step))) for side in (-1, 1)]
    assert (found.label_low, found.label_high) == pytest.approx(tuple(ends))


def test_intervals_near_1_do_not_run_away():
    # Of 1,000 missed ones, 200 labelled ones are irrelevant and 1 weighs next to nothing; the
    # value is nearer to 1 than the labels can tell.
    r, h = np.repeat([1, 0], 1000), np.full(2000, NAN)
    h[:200], h[1000:1020], h[1020] = 1, 0, 1
    chances = np.repeat([0.2, 0.021], 1000)
    chances[1020] = 0.9
    found = sampled_pooled(r, np.arange(2000) % 100, h, chances)
    assert 0.99 < found.value < 1
    assert found.label_low > 0.9


def test_found_ones_that_are_all_relevant_are_not_certain():
    r, h = np.repeat([1, 0], 100), np.full(200, NAN)
    h[:20], h[100:150], h[150:] = 1, 1, 0
    found = sampled_pooled(r, np.arange(200) % 100, h, np.repeat([0.2, 1], 100))
    assert found.value == pytest.approx(100 / 150)
    assert found.width > 0.01


def test_a_judge_never_seen_to_be_wrong_may_be_wrong():
    h, _, r = world(2, n=50)
    h_, r_, rows = flat(h, r)
    some = np.random.default_rng(0).random(len(h_)) < 0.02
    found = rate_corrected(h_, r_, rows, np.where(some, h_, NAN))
    assert found.false_positive[0] == 0
    assert found.false_positive_se[0] > 0.01
    assert found.estimate.width > 0


def jackknife_se(function, n):
    """Standard error from leaving out each query in turn."""
    found = np.array([function(np.arange(n) != i) for i in range(n)])
    return math.sqrt((n - 1) / n * np.sum((found - found.mean()) ** 2))


def reach(estimate):
    """The standard error that an interval was made from, by its ends on the log odds scale."""
    odds = [math.log(end / (1 - end)) for end in (estimate.low, estimate.high)]
    return (odds[1] - odds[0]) / 2 * estimate.value * (1 - estimate.value)


@pytest.mark.parametrize("bands", [1, 2])
def test_rates_have_the_variance_of_leaving_out_queries(bands):
    h, said, r = world(4, n=100)
    # Much of what is irrelevant was missed, so that alpha matters; and false positives are more
    # frequent in some queries, so that labels and queries go together.
    often = np.random.default_rng(8).random((100, 50)) < np.linspace(0, 0.5, 100)[:, None]
    r *= np.maximum(h, np.random.default_rng(9).random((100, 50)) < 0.5)
    h_, said_, r_, rows = flat(h, np.maximum(said, often), r)
    human = np.where(rows % 5 < 3, h_, NAN)
    band = np.tile(np.arange(50) * bands // 50, 100)

    def value(use):
        keep = use[rows]
        return rate_corrected(
            said_[keep], r_[keep], rows[keep], human[keep], bands=band[keep]
        ).estimate.value

    found = rate_corrected(said_, r_, rows, human, bands=band).estimate
    # Intervals reach 2.0 standard errors (t of 59 degrees of freedom). They are never narrower
    # than what the labels leave open, which here is more than the queries taken together.
    assert 0.85 < reach(found) / 2.001 / jackknife_se(value, 100) < 1.3


def test_pairs_have_the_variance_of_leaving_out_queries():
    h, said, r = world(4, n=100)
    h_, said_, r_, rows = flat(h, said, r)
    labels, chances = some_pairs(0, h_, r_, 300, 300)

    def value(use):
        keep = use[rows]
        return pair_corrected(said_[keep], r_[keep], rows[keep], labels[keep], chances[keep]).value

    found = pair_corrected(said_, r_, rows, labels, chances)
    assert reach(found) / 1.984 == pytest.approx(jackknife_se(value, 100), rel=0.15)


def test_pairs_of_few_queries_are_no_sample_of_pairs():
    # 30 of 300 queries drawn, and all their pairs labelled: errors of the judge differ by query.
    held = []
    for seed in range(100):
        h, said, r = world(seed)
        wrong = np.random.default_rng([seed, 5]).random((300, 1)) < 0.2
        said = np.where(wrong, 1 - h, said)
        h_, said_, r_, rows = flat(h, said, r)
        drawn = np.random.default_rng([seed, 6]).choice(300, 30, replace=False)
        labels = np.where(np.isin(rows, drawn), h_, NAN)
        found = pair_corrected(said_, r_, rows, labels, np.full(len(h_), 0.1))
        held.append(found.label_low <= share(h, r) <= found.label_high)
    assert np.mean(held) >= 0.9


def test_ten_labelled_queries_have_an_honest_interval():
    def estimate(seed):
        h, said, r = world(seed)
        use = np.zeros(300, dtype=bool)
        use[np.random.default_rng([seed, 2]).choice(300, 10, replace=False)] = True
        truth = np.divide(*values(h, r).sum(axis=0))
        return query_corrected(kept(values(h, r), use), values(said, r))[0], truth, MEAN

    everywhere, here = covered(estimate, 300)
    assert everywhere >= 0.93
    assert here >= 0.93
