"""LanceDB: tables in files, their indexes, and what their plans tell."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semrecall import truth
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.systems import System, open_system
from semrecall.testing import check_system

pytestmark = pytest.mark.environment("vector-databases")

rng = np.random.default_rng(13)
BASE = rng.standard_normal((4000, 24)).astype(np.float32)
QUERIES = rng.standard_normal((20, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lance")


@pytest.fixture(scope="module")
def lists(folder: Path) -> System:
    spec = f"lancedb?path={folder}&table=lists&index=IVF_FLAT"
    return open_system(spec).build(BASE, "l2", num_partitions=16)


def recall(system: System, **settings: Any) -> float:
    found, _ = system.search(QUERIES, 10, **settings)
    exact = truth(BASE, QUERIES, k=10, space=system.space)
    return float(np.mean([len(set(a.tolist()) & set(b[:10].tolist())) / 10
                          for a, b in zip(found, exact.ids, strict=True)]))  # fmt: skip


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
@pytest.mark.parametrize(
    "index", ["none", "IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ",
              "IVF_HNSW_PQ"],
)  # fmt: skip
def test_every_index_keeps_the_contract(index: str, name: str) -> None:
    check_system(f"lancedb?index={index}", space=name, exact=index == "none")


# -- settings, and their cost -----------------------------------------------------------------


def test_lists_visited_are_counted_by_the_plan(lists: System) -> None:
    assert recall(lists, nprobes=1) < recall(lists, nprobes=16) == 1
    every = lists.count(QUERIES, 10, nprobes=16)
    # 16 centroids and all vectors: 16 + 4000 = 4016, of 24 * 4 = 96 bytes each.
    np.testing.assert_array_equal(every.distance_computations, [4016] * 20)
    np.testing.assert_array_equal(every.bytes_read, [4016 * 96] * 20)
    few = lists.count(QUERIES, 10, nprobes=1)
    assert (few.distance_computations < 1000).all()


def test_a_count_is_that_of_the_lists_visited(lists: System) -> None:
    """Below 1,000 the plan tells every digit: ids of one list are those found with a large k."""
    one = lists.count(QUERIES[:5], 4000, nprobes=1).stages["codes"]
    assert one is not None
    found, _ = lists.search(QUERIES[:5], 4000, nprobes=1)
    np.testing.assert_array_equal(one.distance_computations, (found >= 0).sum(axis=1))


def test_candidates_scored_again_are_counted(folder: Path) -> None:
    spec = f"lancedb?path={folder}&table=coded&index=IVF_PQ"
    system = open_system(spec).build(BASE, "ip", num_partitions=4, num_sub_vectors=6)
    assert system.search(QUERIES, 10)[1] is None
    _, scores = system.search(QUERIES, 10, refine_factor=5)
    assert scores is not None
    assert recall(system, nprobes=4) < recall(system, nprobes=4, refine_factor=20)
    stages = system.count(QUERIES, 10, nprobes=4, refine_factor=5).stages
    assert stages["codes"] is not None
    assert stages["codes"].bytes_each == 6
    assert stages["refine"] is not None
    # 10 results, 5 candidates each.
    np.testing.assert_array_equal(stages["refine"].distance_computations, [50] * 20)


def test_a_graph_has_an_ef_of_at_least_k(folder: Path) -> None:
    spec = f"lancedb?path={folder}&table=graph&index=IVF_HNSW_SQ"
    system = open_system(spec).build(BASE, "cosine", num_partitions=1, m=8, ef_construction=40)
    assert recall(system, ef=1) < recall(system, ef=400)
    assert (system.search(QUERIES, 30, ef=1)[0] >= 0).all()
    assert {k: system.describe()[k] for k in ("max_connections", "construction_ef")} == {
        "max_connections": 8,
        "construction_ef": 40,
    }
    counters = system.count(QUERIES, 10, ef=10)
    # The plan tells 0 comparisons for a graph, which is unknown, not free.
    assert counters.stages["graph"] is None
    assert counters.distance_computations is None


def test_exact_search_leaves_the_index_out(lists: System) -> None:
    exact = truth(BASE, QUERIES, k=10, space="l2")
    ids, scores = lists.exact(QUERIES, 10)
    assert ids.tolist() == [row[:10].tolist() for row in exact.ids]
    assert exact.scores is not None
    np.testing.assert_allclose(scores, [row[:10] for row in exact.scores], rtol=1e-5)


def test_distances_of_lancedb_are_squared(lists: System) -> None:
    table = lists._client.open_table("lists")
    found = table.search(QUERIES[0]).limit(1).nprobes(16).select(["id", "_distance"]).to_arrow()
    ids, scores = lists.search(QUERIES[:1], 1, nprobes=16)
    assert scores is not None
    assert found["_distance"][0].as_py() == pytest.approx(float(scores[0, 0]) ** 2, rel=1e-5)
    distance = np.linalg.norm(BASE[ids[0, 0]].astype(float) - QUERIES[0])
    assert scores[0, 0] == pytest.approx(distance, rel=1e-5)


def test_one_query_and_many_find_the_same(lists: System) -> None:
    many, _ = lists.search(QUERIES, 10, nprobes=2)
    alone = np.vstack([lists.search(QUERIES[i : i + 1], 10, nprobes=2)[0] for i in range(20)])
    np.testing.assert_array_equal(many, alone)


def test_a_list_is_as_long_as_the_candidates_that_are_scored_again() -> None:
    pytest.importorskip("lancedb")
    system = open_system("lancedb?index=IVF_HNSW_SQ").build(BASE, "l2")
    # 10 * 4 = 40 candidates, which LanceDB refuses to take from a list of 10.
    ids, scores = system.search(QUERIES, 10, ef=10, refine_factor=4)
    assert ids.shape == (len(QUERIES), 10)
    assert scores is not None
    system.close()


# -- tables that exist ------------------------------------------------------------------------


def test_a_table_is_searched_where_it_is(folder: Path, lists: System) -> None:
    before = lists._client.open_table("lists").version
    system = open_system(f"lancedb?path={folder}&table=lists")
    assert (system.space.name, system.dimension, system.ntotal) == ("l2", 24, 4000)
    assert system.search(QUERIES, 5)[0].tolist() == lists.search(QUERIES, 5)[0].tolist()
    assert lists._client.open_table("lists").version == before
    assert '.distance_type("l2").nprobes(8).limit(k)' in system.snippet({"nprobes": 8})
    assert "config=lancedb.index." in system.build_snippet({"num_partitions": 8})
    highest = {knob.name: knob.high for knob in system.knobs if knob.kind == "search"}
    assert highest["nprobes"] == system.describe()["partitions"] < 100


def test_another_metric_would_leave_the_index_out_silently(folder: Path, lists: System) -> None:
    with pytest.raises(MismatchError, match="for which LanceDB would leave it out"):
        _ = open_system(f"lancedb?path={folder}&table=lists&space=ip").space


def test_a_table_without_an_index_must_be_told_its_space(folder: Path) -> None:
    open_system(f"lancedb?path={folder}&table=plain&index=none").build(BASE[:300], "ip")
    spec = f"lancedb?path={folder}&table=plain"
    with pytest.raises(InputError, match="has no index, which would say its space"):
        _ = open_system(spec).space
    system = open_system(spec + "&space=cosine")
    assert system.describe()["exact"]
    np.testing.assert_array_equal(system.count(QUERIES, 5).distance_computations, [300] * 20)


def test_rows_that_are_not_indexed_are_told_and_counted(folder: Path) -> None:
    import pyarrow as pa

    spec = f"lancedb?path={folder}&table=grown&index=IVF_FLAT"
    first = open_system(spec).build(BASE[:600], "l2", num_partitions=2)
    values = pa.FixedSizeListArray.from_arrays(pa.array(BASE[600:700].reshape(-1)), 24)
    rows = pa.table({"id": pa.array(range(600, 700)), "vector": values})
    first._client.open_table("grown").add(rows)
    system = open_system(f"lancedb?path={folder}&table=grown")
    with pytest.warns(SemrecallWarning, match="100 of 700 rows of 'grown' are not indexed"):
        assert system.ntotal == 700
    refine = system.count(QUERIES, 10, nprobes=2).stages["refine"]
    assert refine is not None
    assert (refine.distance_computations >= 100).all()


def test_a_table_is_not_replaced_unless_asked(folder: Path) -> None:
    spec = f"lancedb?path={folder}&table=short&index=none"
    open_system(spec).build(BASE[:50], "ip")
    with pytest.raises(InputError, match="the table 'short' exists in LanceDB"):
        open_system(spec).build(BASE[:20], "ip")
    assert open_system(spec + "&replace=true").build(BASE[:20], "ip").ntotal == 20


def test_a_table_of_its_own_is_dropped(folder: Path, lists: System) -> None:
    before = set(lists._names())
    system = open_system(f"lancedb?path={folder}&index=none").build(BASE[:50], "ip")
    assert len(set(lists._names()) - before) == 1
    system.close()
    assert set(lists._names()) == before


def test_a_temporary_folder_goes_with_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    system = open_system("lancedb?index=none").build(BASE[:50], "ip")
    assert len(list(tmp_path.iterdir())) == 1
    system.close()
    assert not list(tmp_path.iterdir())


def test_vectors_come_back_bit_for_bit(lists: System, folder: Path) -> None:
    names = [f"doc-{i}" for i in range(300)]
    named = open_system(f"lancedb?path={folder}&table=named&index=none").build(
        BASE[:300], "ip", names
    )
    for system, total in ((lists, 4000), (named, 300)):
        held = system.vectors()
        for _ in range(2):
            blocks = np.concatenate([block for _, block in held.blocks(1000)])
        rows = [int(str(i).removeprefix("doc-")) for i in held.ids.array().tolist()]
        np.testing.assert_array_equal(blocks, BASE[rows])
        assert len(set(rows)) == total
    assert named.search(QUERIES, 3)[0][0, 0].startswith("doc-")


def test_filters_hold_before_the_search(lists: System) -> None:
    ids, _ = lists.search(QUERIES[:3], 5, filters=["id < 20", None, "id < 20"], nprobes=16)
    assert (ids[[0, 2]] < 20).all()
    assert (ids[[0, 2]] >= 0).all()
    assert (ids[1] >= 20).any()
    with pytest.raises(InputError, match="No field named nope"):
        lists.search(QUERIES[:1], 5, filters=["nope < 20"])


# -- faults -----------------------------------------------------------------------------------


def test_what_is_not_there_or_does_not_fit_is_named(
    folder: Path, lists: System, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="there is no table 'list'") as error:
        _ = open_system(f"lancedb?path={folder}&table=list").space
    assert "did you mean lists?" in str(error.value.hint)
    with pytest.raises(InputError, match="there is no table 'docs'"):
        _ = open_system(f"lancedb?path={tmp_path / 'none'}&table=docs").space
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="no column of vectors 'text'"):
        _ = open_system(f"lancedb?path={folder}&table=lists&vector=text").space
    with pytest.raises(InputError, match="no column of ids 'key'") as error:
        _ = open_system(f"lancedb?path={folder}&table=lists&id=key").space
    assert error.value.hint == "known: id"
    with pytest.raises(MismatchError, match=r"expected \(n, 24\)"):
        lists.search(QUERIES[:, :3], 3)
    with pytest.raises(InputError, match="index is 'HNSW'; expected IVF_FLAT"):
        open_system("lancedb?index=HNSW")


def test_files_that_are_gone_are_a_fault(tmp_path: Path) -> None:
    system = open_system(f"lancedb?path={tmp_path}&table=docs&index=none").build(BASE[:50], "ip")
    system._client.drop_table("docs")
    with pytest.raises((SystemFault, InputError), match="failed at a search"):
        system.search(QUERIES, 3)
