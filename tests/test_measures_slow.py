"""The fast measures equal the slow definitions, query by query, on random and adversarial input."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from semrecall.data import Judgments, Run
from semrecall.measures import align, parse
from semrecall.measures.matching import largest_pairing
from semrecall.space import COSINE, IP, L2

SPACES = {"ip": IP, "cosine": COSINE, "l2": L2}


@st.composite
def cases(draw):
    """A table of exact scores, the truth made from it, any results, and grades of some pairs."""
    space = SPACES[draw(st.sampled_from(sorted(SPACES)))]
    # A coarse grid makes ties, near ones and, for similarities, negative scores likely.
    grid = st.integers(0 if space is L2 else -4, 8).map(lambda v: v * 0.25)
    documents = draw(st.integers(1, 9))
    table = draw(st.lists(st.lists(grid, min_size=documents, max_size=documents), max_size=3))
    depth = draw(st.integers(1, 6))
    keep_ties = draw(st.booleans())
    truth = []
    for scores in table:
        order = sorted(range(documents), key=lambda d: (space.sort_key(scores[d]), d))
        row = order[:depth]
        if keep_ties and row:
            row += [d for d in order[depth:] if scores[d] == scores[row[-1]]]
        if draw(st.integers(0, 9)) == 0:
            row = []
        truth.append(row)
    found = [draw(st.lists(st.integers(-1, documents + 1), max_size=7)) for _ in table]
    how = draw(st.sampled_from(["exact", "index", "none"]))
    grades = {}
    for query in range(len(table)):
        row = draw(
            st.dictionaries(
                st.integers(0, documents + 1), st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])
            )
        )
        if row:
            grades[query] = row
    k = draw(st.integers(1, depth))
    return Case(space, table, depth, truth, found, how, grades, k)


class Case:
    def __init__(self, space, table, depth, truth, found, how, grades, k):
        self.space, self.table, self.truth, self.found = space, table, truth, found
        self.how, self.grades, self.k = how, grades, k
        self.true_run = Run.from_arrays(
            truth,
            [[table[q][d] for d in row] for q, row in enumerate(truth)],
            space=space,
            k=depth,
            scores_by="exact",
        )
        scores = [[self._score(q, d) for d in row] for q, row in enumerate(found)]
        self.run = Run.from_arrays(
            found,
            None if how == "none" else scores,
            space=space,
            scores_by="exact" if how == "exact" else "index",
        )
        self.judgments = Judgments.from_dict(grades)
        self.problem = align(self.run, self.true_run, self.judgments)

    def __repr__(self):
        return (
            f"Case({self.space}, {self.table}, truth={self.truth}, found={self.found}, "
            f"{self.how}, grades={self.grades}, k={self.k})"
        )

    def _score(self, query, document):
        if document < 0 or document >= len(self.table[query]):
            return 0.125
        exact = self.table[query][document]
        return exact if self.how == "exact" else exact + 0.25 * ((document + query) % 3 - 1)

    # -- the definitions, one query at a time ---------------------------------------------

    def queries(self):
        for query in range(len(self.table)):
            neighbours = self.truth[query][: self.k]
            results = list(dict.fromkeys(d for d in self.found[query] if d >= 0))[: self.k]
            yield query, neighbours, results

    def score(self, query, document):
        """The one score of a result: the truth's, else the run's, else none."""
        if document in self.truth[query]:
            return self.table[query][document]
        return math.nan if self.how == "none" else self._score(query, document)

    def ties(self, query):
        """Documents known to have exactly the score of the k-th neighbour."""
        if len(self.truth[query]) < self.k:
            return set()
        kth = self.table[query][self.truth[query][self.k - 1]]
        known = set(self.truth[query])
        if self.how == "exact":
            known |= set(self.found[query])
        return {d for d in known if d >= 0 and self.score(query, d) == kth}

    def recall(self):
        for query, neighbours, results in self.queries():
            if not neighbours:
                yield math.nan
                continue
            tied = self.ties(query)
            sure = len({d for d in neighbours if d not in tied} & set(results))
            seats = len([d for d in neighbours if d in tied])
            yield (sure + min(seats, len(tied & set(results)))) / len(neighbours)

    def srecall(self, rel, gain):
        for query, neighbours, results in self.queries():
            grades = self.grades.get(query, {})
            semantic = {d: grades[d] for d in neighbours if grades.get(d, -math.inf) >= rel}
            worth = {d: 1.0 if gain == "count" else max(g, 0.0) for d, g in semantic.items()}
            if not sum(worth.values()):
                yield math.nan
                continue
            tied = self.ties(query)
            spare = len((tied & set(results)) - set(neighbours))
            missed = sorted((worth[d] for d in set(worth) & tied - set(results)), reverse=True)
            found = sum(worth[d] for d in set(worth) & set(results)) + sum(missed[:spare])
            yield found / sum(worth.values())

    def trecall(self, x):
        for query, neighbours, results in self.queries():
            if not neighbours:
                yield math.nan
                continue
            edges = np.array(
                [
                    [
                        r == g or self.space.near(self.score(query, r), self.table[query][g], x)
                        for g in neighbours
                    ]
                    for r in results
                ],
                dtype=bool,
            ).reshape(len(results), len(neighbours))
            pairs = maximum_bipartite_matching(csr_matrix(edges)) if edges.size else np.array([-1])
            yield np.count_nonzero(pairs >= 0) / len(neighbours)

    def erecall(self, eps):
        for query, neighbours, results in self.queries():
            if not neighbours:
                yield math.nan
                continue
            last = self.table[query][neighbours[-1]]
            near = sum(bool(self.space.near(self.score(query, r), last, eps)) for r in results)
            yield min(near, len(neighbours)) / len(neighbours)

    def rde(self):
        for query, neighbours, results in self.queries():
            scores = sorted((self.score(query, r) for r in results), key=self.space.sort_key)
            pairs = list(zip(scores, (self.table[query][g] for g in neighbours), strict=False))
            if any(math.isnan(s) for s in scores) or any(s * g < 0 for s, g in pairs):
                yield math.nan
                continue
            sign = -1 if self.space.higher_is_nearer else 1
            errors = [
                0.0 if s == g else sign * (s - g) / abs(g) for s, g in pairs if g != 0 or s == 0
            ]
            yield sum(errors) / len(errors) if errors else math.nan


def same(values, expected, tolerance=0.0):
    np.testing.assert_allclose(values, np.array(list(expected)), rtol=0, atol=tolerance)


@settings(max_examples=150)
@given(cases())
def test_recall_robustness_and_one(case):
    slow = list(case.recall())
    fast = parse(f"recall@{case.k}").values(case.problem)
    same(fast.values, slow)
    for delta in ("0.3", "0.5", "1"):
        reached = parse(f"robustness(delta={delta})@{case.k}").values(case.problem).values
        for value, recall, row in zip(reached, slow, case.queries(), strict=True):
            if math.isnan(recall):
                assert math.isnan(value)
            else:
                hits = round(recall * len(row[1]))
                assert value == (hits >= Fraction(delta) * len(row[1]))
    by_ids = [len(set(g) & set(r)) / len(g) if g else math.nan for _, g, r in case.queries()]
    same(parse(f"recall(ties=no)@{case.k}").values(case.problem).values, by_ids)


@settings(max_examples=150)
@given(cases(), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from(["count", "grade"]))
def test_srecall(case, rel, gain):
    fast = parse(f"srecall(rel={rel},gain={gain})@{case.k}").values(case.problem)
    same(fast.values, case.srecall(rel, gain), 1e-12)


@settings(max_examples=250)
@given(cases(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 3.0]))
def test_trecall_is_a_maximum_matching(case, x):
    fast = parse(f"trecall(x={x})@{case.k}").values(case.problem)
    same(fast.values, case.trecall(x))


@settings(max_examples=100)
@given(cases(), st.sampled_from([0.0, 0.25, 1.0]))
def test_erecall(case, eps):
    same(parse(f"erecall(eps={eps})@{case.k}").values(case.problem).values, case.erecall(eps))


@settings(max_examples=150)
@given(cases())
def test_rde(case):
    same(parse(f"rde@{case.k}").values(case.problem).values, case.rde(), 1e-12)


@settings(max_examples=100)
@given(cases())
def test_tolerant_recall_at_0_is_recall(case):
    # With exact scores and enough neighbours, a result that reaches one is it, or tied with it.
    if case.how == "exact":
        zero = parse(f"trecall(x=0)@{case.k}").values(case.problem).values
        plain = parse(f"recall@{case.k}").values(case.problem).values
        full = [
            len(row) >= case.k and all(d < len(case.table[query]) for d in case.found[query])
            for query, row in enumerate(case.truth)
        ]
        same(zero[full], plain[full])


@settings(max_examples=100)
@given(cases())
def test_bounds_hold_the_value_for_any_grades_of_the_unjudged(case):
    from semrecall.measures import recall_bounds, srecall_bounds

    low, high, judged = srecall_bounds(case.problem, case.k)
    value = parse(f"srecall@{case.k}").values(case.problem).values
    known = ~np.isnan(value)
    assert (low[known] <= value[known]).all()
    assert (value[known] <= high[known]).all()
    for filler in (0.0, 1.0):
        filled = {
            q: {d: case.grades.get(q, {}).get(d, filler) for d in row}
            for q, row in enumerate(case.truth)
        }
        judgments = Judgments.from_dict({q: row for q, row in filled.items() if row})
        if len(judgments) == 0:
            continue
        problem = align(case.run, case.true_run, judgments)
        other = parse(f"srecall@{case.k}").values(problem).values
        for query in np.flatnonzero(~np.isnan(other)):
            # Ties may be credited to another neighbour once the unjudged have grades.
            if not case.ties(query):
                assert low[query] - 1e-12 <= other[query] <= high[query] + 1e-12
    assert ((judged >= 0) | np.isnan(judged)).all()
    lowest, highest, open_ = recall_bounds(case.problem, case.k)
    same(parse(f"recall@{case.k}").values(case.problem).values, lowest)
    assert (highest[open_] > lowest[open_]).all()
    assert np.array_equal(highest[~open_], lowest[~open_], equal_nan=True)


@pytest.mark.parametrize("space", SPACES.values(), ids=str)
def test_pairing_equals_scipy_on_larger_random_inputs(space):
    random = np.random.default_rng(7)
    n, w, k = 40, 30, 25
    sign = 1.0 if space is L2 else random.choice([-1.0, 1.0], (n, 1))
    neighbours = np.sort(random.uniform(0.5, 1.5, (n, k)).round(2) * sign)
    results = random.uniform(0.5, 1.6, (n, w)).round(2) * sign
    results[random.random((n, w)) < 0.1] = np.nan
    neighbours[random.random((n, k)) < 0.1] = np.nan
    for x in (0.0, 0.01, 0.05, 0.3):
        fast = largest_pairing(space, results, neighbours, x)
        for query in range(n):
            edges = space.near(results[query][:, None], neighbours[query][None], x)
            pairs = maximum_bipartite_matching(csr_matrix(edges))
            assert fast[query] == np.count_nonzero(pairs >= 0)


def test_a_tolerance_per_query():
    results, neighbours = np.array([[0.95], [0.95]]), np.array([[1.0], [1.0]])
    pairs = largest_pairing(IP, results, neighbours, np.array([[0.1], [0.01]]))
    assert pairs.tolist() == [1, 0]
    assert largest_pairing(IP, np.empty((0, 3)), np.empty((0, 2)), 0.1).tolist() == []
