"""hnswlib as a system: short answers, saved indexes, and counters by replaying its graph."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_checks import check_a_full_disk, check_scores_by_hand

from semrecall.benchmark import search
from semrecall.data import Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact import search as exact_search
from semrecall.systems import open_system
from semrecall.testing import check_system

# It is compiled where it is installed, so it is in no default environment.
pytestmark = pytest.mark.environment("hnswlib")

RNG = np.random.default_rng(3)
BASE = RNG.standard_normal((1500, 16)).astype(np.float32)
QUERIES = RNG.standard_normal((20, 16)).astype(np.float32)


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_it_keeps_the_contract(space: str) -> None:
    check_system("hnswlib", space=space)


def test_scores_are_in_the_natural_unit_by_hand() -> None:
    check_scores_by_hand("hnswlib")


def test_a_disk_without_room_is_an_error(tmp_path: Path) -> None:
    check_a_full_disk(open_system("hnswlib").build(BASE, "l2"), tmp_path)


# -- one query with fewer than k results spoils a batch -----------------------------------------


def torn() -> tuple[Any, np.ndarray[Any, Any]]:
    """A live index in which 30 of 130 vectors are deleted, and its base."""
    import hnswlib

    index = hnswlib.Index("l2", 4)
    index.init_index(130, M=4, ef_construction=20, random_seed=1)
    base = np.random.default_rng(1).standard_normal((130, 4)).astype(np.float32)
    index.add_items(base, np.arange(130), num_threads=1)
    for label in range(30):
        index.mark_deleted(label)
    return index, base


def test_fewer_than_k_are_shorter_rows_and_no_error() -> None:
    index, base = torn()
    with pytest.raises(RuntimeError, match="contiguous 2D array"):
        index.knn_query(base[:3], 120)
    system = open_system("hnswlib", index=index)
    assert system.ntotal == 100
    assert system.vectors().ids.array().tolist() == list(range(30, 130))
    run, _ = search(system, base[:3], 120, repeats=1, latency_queries=0)
    for row in run.ids:
        real = row[row >= 0]
        assert len(real) == len(set(real.tolist())) <= 100
        assert real.min() >= 30
    # As many as there are: with k just as large, hnswlib itself answers.
    most = int((run.ids[0] >= 0).sum())
    index.set_ef(120)
    assert index.knn_query(base[:1], most)[0][0].tolist() == run.ids[0][:most].tolist()
    with pytest.raises(RuntimeError):
        index.knn_query(base[:1], most + 1)


def test_the_others_of_a_batch_keep_their_results() -> None:
    """Two islands: from one of them fewer than k can be reached."""
    system = open_system("hnswlib").build(BASE[:200], "l2")
    index = system._index  # type: ignore[attr-defined]
    honest, calls = index.knn_query, []

    class Torn:
        def __getattr__(self, name: str) -> Any:
            return getattr(index, name)

        def knn_query(self, queries: Any, k: int) -> Any:
            calls.append((len(queries), k))
            if k > 3 and (queries == QUERIES[1]).all(axis=1).any():
                raise RuntimeError("Cannot return the results in a contiguous 2D array")
            return honest(queries, k)

    system._index = Torn()  # type: ignore[attr-defined]
    ids, scores = system.search(QUERIES[:3], 10)
    assert calls[0] == (3, 10)
    assert (ids[[0, 2]] >= 0).all()
    assert (ids[1] >= 0).tolist() == [True] * 3 + [False] * 7
    assert scores is not None
    assert np.isnan(scores[1, 3:]).all()
    np.testing.assert_array_equal(ids[[0, 2]], honest(QUERIES[[0, 2]], 10)[0])


# -- saved and live ----------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_a_saved_index_is_read_with_its_labels(tmp_path: Path, space: str) -> None:
    ids = np.arange(1500) * 7 + 2**40
    system = open_system("hnswlib").build(BASE, space, ids)
    system.save(tmp_path / "saved.bin")
    back = open_system(f"hnswlib?index={tmp_path / 'saved.bin'}&space={space}")
    assert (back.dimension, back.ntotal, str(back.space)) == (16, 1500, space)
    for found, expected in zip(back.search(QUERIES, 5), system.search(QUERIES, 5), strict=True):
        assert found is not None
        assert expected is not None
        np.testing.assert_array_equal(found, expected)
    held = back.vectors()
    np.testing.assert_array_equal(held.ids.array(), ids)
    if space != "cosine":
        np.testing.assert_array_equal(held.require_matrix(), BASE)


def test_an_index_that_hnswlib_made_under_cosine_gives_cosines(tmp_path: Path) -> None:
    import hnswlib

    index = hnswlib.Index("cosine", 16)
    index.init_index(1500, random_seed=1)
    index.add_items(BASE, num_threads=1)
    index.save_index(str(tmp_path / "saved.bin"))
    truth = exact_search(BASE, QUERIES, 3, "cosine")
    for opened in (
        open_system("hnswlib", index=index),
        open_system("hnswlib", index=tmp_path / "saved.bin", space="cosine"),
    ):
        run, cost = search(opened, QUERIES, 3, repeats=1, latency_queries=0, ef=200)
        assert run.scores is not None
        assert truth.scores is not None
        np.testing.assert_allclose(
            np.array(list(run.scores)), np.array(list(truth.scores)), rtol=1e-5
        )
        assert cost.distance_computations is not None
    with pytest.raises(MismatchError, match="compares by cosine; found space l2"):
        open_system("hnswlib", index=index, space="l2")


def test_strings_come_back_when_a_saved_index_meets_its_base(tmp_path: Path) -> None:
    names = [f"doc-{i}" for i in range(1500)]
    system = open_system("hnswlib").build(BASE, "ip", names)
    system.save(tmp_path / "saved.bin")
    saved = open_system("hnswlib", index=tmp_path / "saved.bin", space="ip")
    named = saved.build(Vectors.of(BASE, ids=names), "ip")
    np.testing.assert_array_equal(named.search(QUERIES, 5)[0], system.search(QUERIES, 5)[0])


def test_wrong_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_system("hnswlib?index=none.bin&space=l2")
    other = tmp_path / "other.bin"
    other.write_bytes(b"something else entirely " * 9)
    with pytest.raises(InputError, match="is no index that hnswlib saved"):
        open_system("hnswlib", index=other, space="l2")
    open_system("hnswlib").build(BASE, "l2").save(tmp_path / "saved.bin")
    with pytest.raises(InputError, match="does not say its space") as error:
        open_system("hnswlib", index=tmp_path / "saved.bin")
    assert "&space=l2" in (error.value.hint or "")
    cut = tmp_path / "cut.bin"
    cut.write_bytes((tmp_path / "saved.bin").read_bytes()[:5000])
    with pytest.raises(InputError, match="hnswlib cannot read this index"):
        open_system("hnswlib", index=cut, space="l2")


def test_knobs_reach_the_index() -> None:
    built = open_system("hnswlib").build(BASE, "l2", M=5, ef_construction=30, threads=1, seed=7)
    assert (built.describe()["M"], built.describe()["ef_construction"]) == (5, 30)
    again = open_system("hnswlib").build(BASE, "l2", M=5, ef_construction=30, threads=1, seed=7)
    other = open_system("hnswlib").build(BASE, "l2", M=5, ef_construction=30, threads=1, seed=8)
    np.testing.assert_array_equal(built.search(QUERIES, 50)[0], again.search(QUERIES, 50)[0])
    assert (built.search(QUERIES, 50)[0] != other.search(QUERIES, 50)[0]).any()
    given: dict[str, Any] = {"queries": QUERIES, "k": 7, "vectors": BASE}
    given |= {"hnswlib": pytest.importorskip("hnswlib"), "ids": np.arange(len(BASE))}
    exec(built.build_snippet({"M": 5, "ef_construction": 30, "threads": 1, "seed": 7}), given)
    exec(built.snippet({"ef": 33}), given)
    np.testing.assert_array_equal(
        given["labels"].astype(np.int64),  # type: ignore[attr-defined]
        built.search(QUERIES, 7, ef=33)[0],
    )


# -- counters ----------------------------------------------------------------------------------


def counted(base: Any, graph: Any, query: Any, ef: int) -> tuple[int, set[int]]:
    """The slow definition: heaps of Python, float64, every distance counted as it is taken."""
    computed, seen = 0, set()

    def far(node: int) -> float:
        nonlocal computed
        computed += 1
        return float(((base[node].astype(float) - query) ** 2).sum())

    current, near = graph.entry, far(graph.entry)
    for level in range(graph.top_level, 0, -1):
        moved = True
        while moved:
            moved = False
            for node in graph.upper[current][level - 1].tolist():
                if (distance := far(node)) < near:
                    near, best, moved = distance, node, True
            current = best if moved else current
    candidates, found = [(far(current), current)], [(-near, current)]
    seen.add(current)
    while candidates:
        distance, node = heapq.heappop(candidates)
        if distance > -found[0][0]:
            break
        for other in graph.links[node][graph.links[node] >= 0].tolist():
            if other in seen:
                continue
            seen.add(other)
            distance = far(other)
            if len(found) < ef or distance < -found[0][0]:
                heapq.heappush(candidates, (distance, other))
                heapq.heappush(found, (-distance, other))
                if len(found) > ef:
                    heapq.heappop(found)
    return computed, {node for _, node in found}


@pytest.mark.parametrize("ef", [10, 60, 250])
def test_counters_equal_an_independent_count(ef: int) -> None:
    from semrecall.systems.graph import read_graph

    system = open_system("hnswlib").build(BASE, "l2", M=6, threads=1)
    graph = read_graph(system._index.__getstate__()[0])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(graph.vectors, BASE)
    counters = system.count(QUERIES, 10, ef=ef)
    assert counters is not None
    assert counters.distance_computations is not None
    assert counters.bytes_read is not None
    ids, _ = system.search(QUERIES, 10, ef=ef)
    for row, query in enumerate(QUERIES):
        computed, found = counted(BASE, graph, query, ef)
        assert set(ids[row].tolist()) <= found
        assert counters.distance_computations[row] == computed
    np.testing.assert_array_equal(counters.bytes_read, 64 * counters.distance_computations)


@pytest.mark.parametrize("ef", [10, 100, 400])
@pytest.mark.parametrize("space", ["l2", "ip"])
def test_equal_distances_are_replayed_in_the_same_order(space: str, ef: int) -> None:
    """Few small whole numbers: most distances are equal to others."""
    base = RNG.integers(0, 3, (2000, 8)).astype(np.float32)
    system = open_system("hnswlib").build(base, space, M=8)
    counters = system.count(base[:30] + 1, 50, ef=ef)
    assert counters is not None
    assert counters.distance_computations is not None


def test_real_data_is_replayed(shared: Callable[[str], Path]) -> None:
    base = np.load(shared("data/sift5k/base.u8.npy"))
    system = open_system("hnswlib").build(base, "l2")
    counters = system.count(base[::100].astype(np.float32), 100, ef=100)
    assert counters is not None
    assert counters.distance_computations is not None


def test_deleted_vectors_are_passed_through() -> None:
    index, base = torn()
    system = open_system("hnswlib", index=index)
    for k, ef in ((5, 10), (50, 60), (120, 130)):
        counters = system.count(base[:20], k, ef=ef)
        assert counters is not None
        assert counters.distance_computations is not None
    # All that can be reached is compared: 130 on the lowest level, the start of it twice.
    assert counters.distance_computations.max() >= 131


def test_a_replay_that_disagrees_makes_the_count_unknown() -> None:
    system = open_system("hnswlib").build(BASE, "l2")
    system.count(QUERIES, 10)
    system._graph.links[:, :] = -1  # type: ignore[attr-defined]
    with pytest.warns(SemrecallWarning, match="other results than hnswlib: .* unknown"):
        counters = system.count(QUERIES, 10)
    assert counters is not None
    assert counters.distance_computations is None
    assert counters.bytes_read is None
