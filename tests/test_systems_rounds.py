"""Rounds of probes: to the bit what one search finds, and its counters, for any schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semrecall.errors import InputError
from semrecall.systems import open_system

faiss = pytest.importorskip("faiss", reason="needs faiss")

LISTS, ROWS, DIMENSION = 16, 700, 8
FACTORIES = [
    "IVF16,Flat",
    "IVF16,SQ8",
    "IVF16,PQ4x4",
    "PCA6,IVF16,SQ8",
    "IDMap,IVF16,Flat",
    "IVF16_HNSW4,SQ8",
]


def base():
    """Small whole numbers: distances that are equal, and some centroids that nearly are."""
    rows = np.random.default_rng(5).integers(0, 4, (ROWS, DIMENSION)).astype(np.float32)
    rows[200:230] = rows[0]
    return rows + 1


def queries(n, seed=7):
    return np.random.default_rng(seed).integers(0, 5, (n, DIMENSION)).astype(np.float32) + 1


@pytest.fixture(scope="module")
def systems():
    made = {}

    def get(factory, space="l2"):
        if (factory, space) not in made:
            ids = [f"d{row}" for row in range(ROWS)] if factory == "IVF16,SQ8" else None
            system = open_system("faiss", factory=factory)
            made[factory, space] = system.build(base(), space, ids=ids, train_rows=ROWS)
        return made[factory, space]

    return get


def same(system, rounds, rows, asked, k, lists):
    ids, scores = rounds.results(rows)
    wanted_ids, wanted = system.search(asked, k, nprobe=lists)
    np.testing.assert_array_equal(ids, wanted_ids[rows])
    np.testing.assert_array_equal(scores, wanted[rows])


@pytest.mark.filterwarnings("ignore::semrecall.errors.SemrecallWarning")
@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("factory", FACTORIES)
def test_rounds_are_one_search_to_the_bit(systems, factory, space):
    system, asked = systems(factory, space), queries(30)
    every = np.arange(30)
    for k in (3, 50, 700):
        # With nprobe set for all, the graph over centroids names other lists than with fewer.
        limit = 5 if "HNSW" in factory else LISTS
        rounds = system.rounds(asked, k, nprobe=limit)
        for lists in (1, 2, 5, LISTS)[: 3 if limit == 5 else 4]:
            rounds.visit(every[::2], lists)
            rounds.visit(every, lists)
            if lists == limit or "HNSW" not in factory:
                same(system, rounds, every, asked, k, lists)
                counted = system.count(asked, k, nprobe=lists)
                found = rounds.counters()
                for total in ("distance_computations", "bytes_read"):
                    np.testing.assert_array_equal(getattr(found, total), getattr(counted, total))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_batch_is_divided_as_faiss_divides_it(threads):
    # The last bits of an inner product with a centroid depend on how many queries are compared
    # at once, and codes of residuals hand them on to every score.
    rows = np.random.default_rng(1).normal(size=(700, 384)).astype(np.float32)
    system = open_system("faiss", factory="IVF16,SQ8").build(rows, "ip", train_rows=700)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        rounds = system.rounds(rows[:401], 10)
        rounds.visit(np.arange(401), 1)
        same(system, rounds, np.arange(401), rows[:401], 10, 1)
    finally:
        faiss.omp_set_num_threads(before)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, LISTS)), max_size=20))
def test_each_query_goes_as_far_as_it_is_told(visits):
    system = open_system("faiss", factory="IVF16,Flat").build(base(), "l2", train_rows=ROWS)
    asked = queries(10)
    rounds = system.rounds(asked, 7, nprobe=LISTS)
    reached = np.zeros(10, dtype=np.int64)
    for row, lists in visits:
        rounds.visit(np.array([row]), lists)
        # Going back is not possible, and visits nothing twice.
        reached[row] = max(reached[row], lists)
    np.testing.assert_array_equal(rounds.visited, reached)
    codes = rounds.counters().stages["codes"]
    for row, lists in enumerate(reached.tolist()):
        if lists:
            same(system, rounds, np.array([row]), asked, 7, lists)
            alone = system.count(asked, 7, nprobe=lists).stages["codes"]
            assert codes.distance_computations[row] == alone.distance_computations[row]


def test_before_the_first_list_nothing_is_found(systems):
    rounds = systems("IVF16,SQ8").rounds(queries(2), 4, nprobe=3)
    ids, scores = rounds.results(np.arange(2))
    assert ids.tolist() == [[""] * 4] * 2
    assert np.isnan(scores).all()
    # No list was visited: the counter of that stage reads 0, and 0 is unknown.
    assert rounds.counters().stages["codes"] is None


def test_centroids_come_nearest_first_in_the_unit_of_the_space(systems):
    system, asked = systems("IVF16,Flat"), queries(3)
    rounds = system.rounds(asked, 4, nprobe=LISTS)
    centroids = system._index.quantizer.reconstruct_n(0, LISTS)
    distances = np.sqrt(((asked[:, None] - centroids[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(rounds.centroids, np.sort(distances, axis=1), rtol=1e-5)
    assert (rounds.sizes.sum(axis=1) == ROWS).all()


def test_no_more_lists_than_planned(systems):
    rounds = systems("IVF16,Flat").rounds(queries(2), 4, nprobe=3)
    with pytest.raises(InputError, match="4 lists are more than the 3 planned"):
        rounds.visit(np.arange(2), 4)


@pytest.mark.parametrize("factory", ["Flat", "HNSW8", "IVF16,Flat,RFlat", "IVF16,PQ4x4fs"])
def test_what_has_no_plain_lists_says_so(factory):
    system = open_system("faiss", factory=factory).build(base(), "l2")
    with pytest.raises(InputError, match="cannot be searched in rounds"):
        system.rounds(queries(1), 3)


def test_what_a_visit_would_read_cannot_be_set_before(systems):
    with pytest.raises(InputError, match="ht cannot be set for a search in rounds"):
        systems("IVF16,PQ4x4").rounds(queries(1), 3, nprobe=2, ht=3)


def test_other_systems_have_no_rounds():
    system = open_system("exact").build(base(), "l2")
    with pytest.raises(InputError, match="exact cannot be searched in rounds"):
        system.rounds(queries(1), 3)
