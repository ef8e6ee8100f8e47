"""What holds for every measure: one test per property, over the list of all measures."""

from __future__ import annotations

import numpy as np
import pytest

from semrecall.data import Judgments, Run
from semrecall.measures import align, measures, parse

NAMES = [d.name for d in measures() if not d.needs & {"spans", "verdicts"} and not d.extra]
INDEX = [d.name for d in measures() if d.layer == "index"]
RETRIEVAL = [d.name for d in measures() if d.layer == "retrieval" and d.name in NAMES]
ERRORS = {"rde"}  # lower is better, without an upper end
BY_RANK = {"rde", "ratio"}  # compare rank by rank, so a result added at the end may not help
COUNTS = {"NumQ", "NumRel", "NumRelRet", "NumRet"}
# bigann: documented, counts all results handed in; infAP: an estimate
UNBOUNDED = ERRORS | COUNTS | {"bigann", "infAP"}
# Not 1 for the best possible results: fewer than k relevant documents exist, or by definition.
BELOW_1 = COUNTS | {"P", "Accuracy", "SetP", "SetF", "SetAP", "ERR", "RBP", "RBPresid", "infAP"}
# Of the results alone, of the judgments alone, or worse for one more result.
NOT_OF_HITS = {"Judged", "Accuracy", "SetP", "SetRelP", "SetF", "SetAP", "RBPresid"}
K = 6


def draw(seed, n=30, documents=40, depth=8):
    """Truth, results with repeats and gaps, and judgments of n queries; scores are distinct."""
    random = np.random.default_rng(seed)
    table = random.permuted(np.tile(np.arange(1.0, documents + 1) / documents, (n, 1)), axis=1)
    order = np.argsort(-table, axis=1)
    truth = order[:, :depth]
    found = np.where(random.random((n, K)) < 0.6, truth[:, :K], order[:, depth : depth + K])
    found[random.random((n, K)) < 0.1] = -1
    found[:, 3] = np.where(random.random(n) < 0.2, found[:, 2], found[:, 3])
    grades = {
        q: {int(d): int(random.integers(0, 3)) for d in random.choice(truth[q], 6, replace=False)}
        for q in range(n)
    }
    return table, truth, found, grades


def lay(table, truth, found, grades, ids=int, queries=None, order=None):
    """The problem, with documents renamed by `ids`, queries named by `queries`, in this order."""
    n = len(table)
    order = range(n) if order is None else order
    name = [queries(q) if queries else q for q in range(n)]

    def rows(matrix, chosen):
        return [[-1 if d < 0 else ids(d) for d in matrix[q]] for q in chosen]

    def scores(matrix, chosen):
        return [[np.nan if d < 0 else table[q][d] for d in matrix[q]] for q in chosen]

    true = Run.from_arrays(
        rows(truth, order), scores(truth, order), space="ip", scores_by="exact",
        query_ids=[name[q] for q in order],
    )  # fmt: skip
    run = Run.from_arrays(
        rows(found, range(n)), scores(found, range(n)), space="ip", scores_by="exact",
        query_ids=name,
    )  # fmt: skip
    judgments = Judgments.from_dict(
        {name[q]: {ids(d): g for d, g in row.items()} for q, row in grades.items()}
    )
    return align(run, true, judgments)


def spelled(name):
    """The measure with the cutoff that the tests use, where it takes one."""
    if name == "IPrec":
        return "IPrec@0.5"
    takes_k = next(d.takes_k for d in measures() if d.name == name.split("(")[0])
    return f"{name}@{K}" if takes_k else name


def value(name, problem):
    return parse(spelled(name)).values(problem).values


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_values_are_between_0_and_1(name, seed):
    values = value(name, lay(*draw(seed)))
    assert values.shape == (30,)
    known = values[~np.isnan(values)]
    assert len(known) > 0
    assert (known >= 0).all()
    if name not in UNBOUNDED:
        assert (known <= 1).all()


@pytest.mark.parametrize("name", INDEX)
def test_the_exact_neighbours_themselves_are_perfect(name):
    table, truth, _, grades = draw(1)
    values = value(name, lay(table, truth, truth[:, :K], grades))
    # srprec: exact search may rank an irrelevant neighbour above a relevant one. annb_eps: as
    # documented, with ip the distance -s is made harder to reach.
    if name in ("srprec", "annb_eps"):
        assert np.nanmean(values) < 1
        return
    assert set(values[~np.isnan(values)].tolist()) == {0.0 if name in ERRORS else 1.0}


@pytest.mark.parametrize("name", RETRIEVAL)
def test_the_judged_documents_from_the_best_down_are_perfect(name):
    table, truth, _, grades = draw(2)
    best = np.array([sorted(row, key=lambda d: -row[d]) for row in grades.values()])
    values = value(name, lay(table, truth, best, grades))
    if name in BELOW_1:
        assert name in UNBOUNDED or np.nanmax(values) <= 1
        return
    assert set(values[~np.isnan(values)].tolist()) == {1.0}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_returned_is_0(name):
    table, truth, found, grades = draw(3)
    values = value(name, lay(table, truth, np.full_like(found, -1), grades))
    if name in BY_RANK | {"Accuracy"}:  # no result, nothing to compare
        assert np.isnan(values).all()
        return
    if name in ("NumQ", "NumRel", "RBPresid"):  # of the judgments alone, or all unknown
        assert (values >= 1).all()
        return
    assert set(values[~np.isnan(values)].tolist()) == {0.0}


@pytest.mark.parametrize("name", NAMES)
def test_renaming_documents_changes_nothing(name):
    drawn = draw(4)
    renamed = np.random.default_rng(0).permutation(40)
    np.testing.assert_array_equal(
        value(name, lay(*drawn)), value(name, lay(*drawn, ids=lambda d: int(renamed[d])))
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", [str, "doc-{}".format], ids=["digits", "text"])
def test_string_ids_are_as_good_as_integers(name, style):
    drawn = draw(5)
    np.testing.assert_array_equal(
        value(name, lay(*drawn)), value(name, lay(*drawn, ids=style, queries="q{}".format))
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_queries_changes_nothing(name):
    drawn = draw(6)
    order = np.random.default_rng(1).permutation(30)
    np.testing.assert_array_equal(
        value(name, lay(*drawn))[order], value(name, lay(*drawn, order=order))
    )


@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_RANK - NOT_OF_HITS))
def test_one_more_hit_never_hurts(name):
    table, truth, found, grades = draw(7)
    found[:, -2:] = -1
    best = [max(row, key=row.get) for row in grades.values()]
    added = np.array(found)
    for query, row in enumerate(found):
        missed = [d for d in (*truth[query, :K], best[query]) if d not in row]
        if missed:
            added[query, -2] = missed[0]
    before = value(name, lay(table, truth, found, grades))
    after = value(name, lay(table, truth, added, grades))
    known = ~np.isnan(before)
    assert np.array_equal(known, ~np.isnan(after))
    assert (after[known] >= before[known]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_query_without_a_value_has_a_reason(name):
    table, truth, found, grades = draw(8)
    truth[0], grades = -1, {q: row for q, row in grades.items() if q != 1}
    scores = parse(spelled(name)).values(lay(table, truth, found, grades))
    for value, reason in zip(scores.values, scores.reasons, strict=True):
        assert np.isnan(value) == bool(reason)
    assert "undefined" not in scores.undefined


@pytest.mark.parametrize("name", NAMES)
def test_values_do_not_depend_on_the_queries_beside(name):
    # The proxy is a mean over all queries by definition, and so is the highest grade.
    name = {"trecall": "trecall(x=query)", "ERR": "ERR(max_rel=3)", "nERR": "nERR(max_rel=3)"}.get(
        name, name
    )
    table, truth, found, grades = draw(9)
    first = value(name, lay(table[:1], truth[:1], found[:1], {0: grades[0]}))
    np.testing.assert_array_equal(first, value(name, lay(table, truth, found, grades))[:1])
