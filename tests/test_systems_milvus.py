"""Milvus: Milvus Lite in this process, and a real server."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from milvus_server import MilvusServer

from semrecall import truth
from semrecall.benchmark import search
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.space import space as space_of
from semrecall.systems import System, open_system
from semrecall.testing import check_system

pytestmark = [
    pytest.mark.environment("milvus"),
    # Milvus Lite trains its lists on what there is, and says so; pymilvus closes late.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

rng = np.random.default_rng(11)
BASE = rng.standard_normal((4000, 24)).astype(np.float32)
QUERIES = rng.standard_normal((20, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of Milvus Lite with collections for each space."""
    return tmp_path_factory.mktemp("milvus") / "docs.db"


@pytest.fixture(scope="module")
def hnsw(database: Path) -> System:
    spec = f"milvus?path={database}&collection=hnsw"
    return open_system(spec).build(BASE, "l2", M=8, efConstruction=20)


@pytest.fixture(scope="module")
def client(database: Path, hnsw: System) -> Any:
    """The client of a user, on the same database."""
    from pymilvus import MilvusClient

    return MilvusClient(str(database))


@pytest.fixture(scope="module")
def server() -> Iterator[MilvusServer]:
    started = MilvusServer()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def served(server: MilvusServer) -> System:
    spec = f"{server.address}/docs?index=IVF_FLAT&timeout=20&build_timeout=60"
    return open_system(spec).build(BASE, "cosine", [f"doc-{i}" for i in range(len(BASE))], nlist=64)


def recall(system: System, **settings: Any) -> float:
    found, _ = system.search(QUERIES, 10, **settings)
    exact = truth(BASE, QUERIES, k=10, space=system.space)
    return float(np.mean([len(set(a.tolist()) & set(b[:10].tolist())) / 10
                          for a, b in zip(found, exact.ids, strict=True)]))  # fmt: skip


def create(client: Any, name: str, index: str, metric: str, built: dict[str, int]) -> None:
    """An empty collection, as a user makes one."""
    from pymilvus import DataType

    schema, params = client.create_schema(), client.prepare_index_params()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=24)
    params.add_index("vector", index_type=index, metric_type=metric, params=built)
    client.create_collection(name, schema=schema, index_params=params)


# -- the contract -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("index", ["HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8", "FLAT"])
def test_milvus_lite_keeps_the_contract(index: str, name: str) -> None:
    check_system(f"milvus?index={index}", space=name, exact=index == "FLAT")


@pytest.mark.parametrize(("index", "name"), [("FLAT", "ip"), ("IVF_SQ8", "cosine"), ("HNSW", "l2")])
def test_a_server_keeps_the_contract(server: MilvusServer, index: str, name: str) -> None:
    check_system(f"{server.address}?index={index}", space=name, exact=index == "FLAT")


# -- traps ------------------------------------------------------------------------------------


def test_a_search_after_build_is_one_of_the_index(hnsw: System) -> None:
    """Loaded before the insert, Milvus Lite would search exactly for seconds."""
    assert recall(hnsw, ef=1) < 0.9 < recall(hnsw, ef=400)


def test_loading_before_the_insert_hides_the_index_for_a_while(client: Any) -> None:
    """The trap itself, so that we learn when it is gone."""
    create(client, "early", "HNSW", "L2", {"M": 4})
    client.load_collection("early")
    client.insert("early", [{"id": i, "vector": row} for i, row in enumerate(BASE)])
    told = client.describe_index("early", "vector")
    assert (told["state"], told["pending_index_rows"]) == ("Finished", 0)
    hits = client.search("early", list(QUERIES), limit=10, output_fields=["id"],
                         search_params={"params": {"ef": 10}})  # fmt: skip
    exact = truth(BASE, QUERIES, k=10, space="l2")
    assert all(set(h.ids) == set(t[:10].tolist()) for h, t in zip(hits, exact.ids, strict=True))
    client.drop_collection("early")


def test_l2_is_a_distance_though_milvus_squares_it(hnsw: System, client: Any) -> None:
    ids, scores = hnsw.search(QUERIES[:1], 1)
    assert scores is not None
    distance = np.linalg.norm(BASE[ids[0, 0]].astype(float) - QUERIES[0])
    assert scores[0, 0] == pytest.approx(distance, rel=1e-5)
    (hits,) = client.search("hnsw", [QUERIES[0]], limit=1, output_fields=["id"])
    assert hits[0]["distance"] == pytest.approx(distance**2, rel=1e-5)


def test_a_metric_that_milvus_would_take_silently_cannot_be_asked(hnsw: System) -> None:
    """Milvus Lite answers a search by another metric than the index has."""
    assert hnsw.space == space_of("l2")
    with pytest.raises(InputError, match="has no option 'space'"):
        open_system("milvus?collection=hnsw&space=ip")


def test_whole_vectors_do_not_come_back(hnsw: System, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    inner = hnsw._client.search
    monkeypatch.setattr(
        hnsw._client, "search", lambda *a, **b: seen.append(inner(*a, **b)) or seen[-1]
    )
    hnsw.search(QUERIES, 3)
    assert {key for hits in seen for hit in hits for row in hit for key in row["entity"]} <= {"id"}


def test_flat_l2_is_asked_in_batches_that_fit() -> None:
    system = open_system("milvus?index=FLAT").build(BASE, "l2")
    # 64 MiB for differences of 4 * 24 * 4000 bytes a query: 67108864 // 384000 = 174.
    assert system._at_once == 174
    system.close()


def test_codes_have_no_scores_of_vectors() -> None:
    system = open_system("milvus?index=IVF_SQ8").build(BASE[:500], "ip", nlist=4)
    assert system.search(QUERIES, 3)[1] is None
    run, _ = search(system, QUERIES, 3, repeats=1, latency_queries=0, rescore_base=BASE[:500])
    assert run.scores is not None
    system.close()


# -- collections that exist -------------------------------------------------------------------


def test_a_collection_is_searched_where_it_is(database: Path, hnsw: System, client: Any) -> None:
    before = client.describe_index("hnsw", "vector")
    system = open_system(f"milvus?path={database}&collection=hnsw")
    assert system.built
    assert (system.space.name, system.dimension, system.ntotal) == ("l2", 24, 4000)
    np.testing.assert_array_equal(system.search(QUERIES, 5)[0], hnsw.search(QUERIES, 5)[0])
    assert system.describe()["index"] == "HNSW"
    assert client.describe_index("hnsw", "vector") == before
    assert 'client.search("hnsw"' in system.snippet({"ef": 40})
    assert "params={'M': 8, 'efConstruction': 200}" in system.build_snippet({"M": 8})
    assert "{'ef': 40}" in system.snippet({"ef": 40})


def test_an_existing_collection_is_not_replaced_unless_asked(database: Path, hnsw: System) -> None:
    spec = f"milvus?path={database}&collection=short&index=FLAT"
    open_system(spec).build(BASE[:50], "ip")
    with pytest.raises(InputError, match="'short' exists in Milvus Lite") as error:
        open_system(spec).build(BASE[:20], "ip")
    assert "replace=true" in str(error.value.hint)
    assert open_system(spec).ntotal == 50
    assert open_system(spec + "&replace=true").build(BASE[:20], "ip").ntotal == 20


def test_a_collection_of_its_own_is_dropped(database: Path, hnsw: System, client: Any) -> None:
    before = set(client.list_collections())
    system = open_system(f"milvus?path={database}&index=FLAT").build(BASE[:50], "ip")
    (own,) = set(client.list_collections()) - before
    assert own.startswith("semrecall_")
    system.close()
    assert set(client.list_collections()) == before


def test_a_temporary_folder_goes_with_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    system = open_system("milvus?index=FLAT").build(BASE[:50], "ip")
    assert len(list(tmp_path.iterdir())) == 1
    system.close()
    assert not list(tmp_path.iterdir())


def test_a_build_that_fails_leaves_nothing(database: Path, hnsw: System, client: Any) -> None:
    before = set(client.list_collections())
    with pytest.warns(SemrecallWarning), pytest.raises(InputError, match="no vector"):
        open_system(f"milvus?path={database}&collection=none").build(BASE[:3] * np.nan, "ip")
    assert set(client.list_collections()) == before


def test_vectors_come_back_bit_for_bit(hnsw: System, served: System) -> None:
    for system in (hnsw, served):
        held = system.vectors()
        for _ in range(2):
            blocks = [block for _, block in held.blocks(1000)]
        names = [str(i).removeprefix("doc-") for i in held.ids.array().tolist()]
        np.testing.assert_array_equal(np.concatenate(blocks), BASE[np.array(names, dtype=int)])
        assert len(set(names)) == len(BASE)


def test_filters_are_passed_on(hnsw: System, served: System) -> None:
    ids, _ = hnsw.search(QUERIES[:3], 5, filters=["id < 20", None, "id < 20"])
    assert (ids[[0, 2]] < 20).all()
    assert (ids[1] >= 20).any()
    found, _ = served.search(QUERIES[:1], 5, filters=['id in ["doc-3", "doc-4"]'], nprobe=64)
    assert set(found[0].tolist()) == {"doc-3", "doc-4"}
    for system in (hnsw, served):
        with pytest.raises(InputError, match="failed at a search"):
            system.search(QUERIES[:1], 5, filters=["id === 3"])


def test_exact_search_is_that_of_a_flat_index(hnsw: System) -> None:
    with pytest.raises(InputError, match="by its index HNSW only"):
        hnsw.exact(QUERIES, 3)
    flat = open_system("milvus?index=FLAT").build(BASE, "l2")
    exact = truth(BASE, QUERIES, k=5, space="l2")
    np.testing.assert_array_equal(flat.exact(QUERIES, 5)[0], np.array([r[:5] for r in exact.ids]))
    flat.close()


# -- cost -------------------------------------------------------------------------------------


def test_milvus_lite_counts_what_its_faiss_compares() -> None:
    lists = open_system("milvus?index=IVF_FLAT").build(BASE, "l2", nlist=16)
    counters = lists.count(QUERIES, 10, nprobe=16)
    assert counters is not None
    # All 16 lists are visited: 16 centroids and all 4000 vectors, 24 * 4 bytes each.
    np.testing.assert_array_equal(counters.distance_computations, [4016] * 20)
    np.testing.assert_array_equal(counters.bytes_read, [4016 * 96] * 20)
    few = lists.count(QUERIES, 10, nprobe=1)
    assert few is not None
    assert (few.distance_computations < 4000).all()
    lists.close()


def test_a_graph_is_counted_and_a_server_counts_nothing(hnsw: System, served: System) -> None:
    narrow, wide = (hnsw.count(QUERIES, 10, ef=ef) for ef in (10, 200))
    assert narrow is not None
    assert wide is not None
    assert 10 < narrow.distance_computations.mean() < wide.distance_computations.mean() < 4000
    assert hnsw.count(QUERIES[:1], 10, filters=["id < 20"]) is None
    assert served.count(QUERIES, 10) is None


def test_build_knobs_reach_milvus_lite(client: Any) -> None:
    """It ignores those that pymilvus sends: users get M 16 and nlist 128 whatever they say."""
    create(client, "ignored", "IVF_FLAT", "L2", {"nlist": 16})
    assert "params" not in client.describe_index("ignored", "vector")
    lists = open_system("milvus?index=IVF_FLAT").build(BASE, "l2", nlist=16)
    assert lists.describe()["nlist"] == 16
    lists.close()


# -- faults -----------------------------------------------------------------------------------


def test_what_is_not_there_is_named(database: Path, hnsw: System, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no collection 'hnws'") as error:
        _ = open_system(f"milvus?path={database}&collection=hnws").space
    assert "did you mean hnsw?" in str(error.value.hint)
    with pytest.raises(InputError, match="no collection 'docs' in Milvus Lite"):
        _ = open_system(f"milvus?path={tmp_path / 'no.db'}&collection=docs").space
    with pytest.raises(InputError, match=r"does not end in \.db"):
        open_system(f"milvus?path={tmp_path / 'docs'}")
    with pytest.raises(InputError, match="names no collection"):
        _ = open_system("milvus").space
    with pytest.raises(InputError, match="index is 'DISKANN'"):
        open_system("milvus?index=DISKANN")


def test_collections_that_cannot_be_searched_say_why(
    database: Path, hnsw: System, client: Any
) -> None:
    from pymilvus import DataType

    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("one", DataType.FLOAT_VECTOR, dim=4)
    schema.add_field("two", DataType.FLOAT_VECTOR, dim=4)
    client.create_collection("both", schema=schema)
    spec = f"milvus?path={database}&collection=both"
    with pytest.raises(InputError, match="has several fields of float vectors: one, two"):
        _ = open_system(spec).space
    with pytest.raises(InputError, match="no field of float vectors 'three'"):
        _ = open_system(spec + "&vector=three").space
    with pytest.raises(InputError, match="no index over 'one'"):
        _ = open_system(spec + "&vector=one").space


def test_queries_must_fit(hnsw: System) -> None:
    with pytest.raises(MismatchError, match=r"expected \(n, 24\)"):
        hnsw.search(QUERIES[:, :5], 3)
    with pytest.raises(InputError, match="at most 16,384"):
        hnsw.search(QUERIES, 20_000)
    with pytest.raises(InputError, match="no search knob 'nprobe'"):
        hnsw.search(QUERIES, 3, nprobe=4)


def test_milvus_lite_lets_in_one_process_at_a_time(database: Path, hnsw: System) -> None:
    script = "from semrecall.systems import open_system; import sys; open_system(sys.argv[1]).space"
    spec = f"milvus?path={database}&collection=hnsw"
    done = subprocess.run([sys.executable, "-c", script, spec], capture_output=True, text=True,
                          check=False, timeout=60)  # fmt: skip
    assert "SystemFault" in done.stderr
    assert "is the database open in another process?" in done.stderr


def test_nobody_answers() -> None:
    with pytest.raises(SystemFault, match="failed at opening it") as error:
        _ = open_system("milvus://127.0.0.1:1/docs?timeout=2").space
    assert "is it running" in str(error.value.hint)


def test_an_address_holds_no_secret() -> None:
    with pytest.raises(InputError, match="holds a user or a password") as error:
        open_system("milvus://root:secret@127.0.0.1/docs")
    assert "secret" not in str(error.value)
    assert "MILVUS_TOKEN" in str(error.value.hint)


def test_a_token_stays_out_of_what_is_written(
    server: MilvusServer, served: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", "root:very-secret")
    system = open_system(f"{server.address}/docs")
    assert "very-secret" not in repr(system) + str(system.describe()) + system.spec
    with pytest.raises(SystemFault) as error:
        _ = open_system("milvus://127.0.0.1:1/docs?timeout=1").space
    assert "very-secret" not in str(error.value)


# -- a server ---------------------------------------------------------------------------------


def test_a_served_collection_is_opened_by_its_address(server: MilvusServer, served: System) -> None:
    system = open_system(f"{server.address}/docs")
    assert (system.space.name, system.dimension, system.ntotal) == ("cosine", 24, 4000)
    assert system.describe()["nlist"] == 64
    assert re.match(r"v2\.3", system.describe()["version"])
    few, all_of_them = (system.search(QUERIES, 10, nprobe=n)[0] for n in (1, 64))
    exact = truth(BASE, QUERIES, k=10, space="cosine").ids
    assert all_of_them.tolist() == [[f"doc-{i}" for i in row[:10]] for row in exact]
    assert few.tolist() != all_of_them.tolist()


def test_a_collection_is_not_loaded_unless_asked(server: MilvusServer, served: System) -> None:
    served._client.release_collection("docs")
    with pytest.raises(InputError, match="is not loaded on the server") as error:
        _ = open_system(f"{server.address}/docs").space
    assert "load=true" in str(error.value.hint)
    with pytest.raises(SystemFault, match="not loaded"):
        served.search(QUERIES, 3)
    assert open_system(f"{server.address}/docs?load=true").ntotal == 4000


def test_an_index_that_is_never_built_has_a_deadline(server: MilvusServer) -> None:
    """DISKANN hangs in this version."""
    system = open_system(f"{server.address}?index=DISKANN&build_timeout=6")
    with pytest.raises(SystemFault, match="DISKANN did not end within 6 seconds"):
        system.build(BASE[:2000], "ip")


def test_a_dropped_connection_is_told_in_time(server: MilvusServer, served: System) -> None:
    system = open_system(f"{server.address}/docs?timeout=3")
    assert len(system.search(QUERIES, 3)[0]) == 20
    server.freeze()
    try:
        with pytest.raises(SystemFault, match="failed at a search"):
            system.search(QUERIES, 3)
    finally:
        server.thaw()
    assert len(system.search(QUERIES, 3)[0]) == 20
