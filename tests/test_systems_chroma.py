"""Chroma: its files in this process, and a real server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chroma_server import ChromaServer

from semrecall import truth
from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.systems import System, open_system
from semrecall.testing import check_system

pytestmark = pytest.mark.environment("vector-databases")

rng = np.random.default_rng(14)
BASE = rng.standard_normal((3000, 24)).astype(np.float32)
QUERIES = rng.standard_normal((20, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chroma")


@pytest.fixture(scope="module")
def narrow(folder: Path) -> System:
    spec = f"chroma?path={folder}&collection=docs"
    knobs = {"max_neighbors": 6, "ef_construction": 30, "ef_search": 10}
    return open_system(spec).build(BASE, "l2", **knobs)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    started = ChromaServer(tmp_path_factory.mktemp("server"))
    yield started
    started.stop()


def recall(system: System, **settings: Any) -> float:
    found, _ = system.search(QUERIES, 10, **settings)
    exact = truth(BASE, QUERIES, k=10, space=system.space)
    return float(np.mean([len(set(a.tolist()) & set(b[:10].tolist())) / 10
                          for a, b in zip(found, exact.ids, strict=True)]))  # fmt: skip


# -- the contract -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
def test_files_keep_the_contract(name: str) -> None:
    check_system("chroma", space=name)


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
def test_a_server_keeps_the_contract(server: ChromaServer, name: str) -> None:
    check_system(server.address, space=name)


# -- ef_search --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:legacy embedding function")
def test_a_new_ef_search_changes_nothing_in_an_open_collection(tmp_path: Path) -> None:
    """The trap itself, so that we learn when it is gone."""
    system = open_system(f"chroma?path={tmp_path}&collection=docs")
    system = system.build(BASE, "l2", max_neighbors=6, ef_construction=30, ef_search=10)
    before, _ = system.search(QUERIES, 10)
    held = system._client.get_collection("docs", embedding_function=None)
    held.modify(configuration={"hnsw": {"ef_search": 500}})
    assert held.configuration_json["hnsw"]["ef_search"] == 500
    np.testing.assert_array_equal(system.search(QUERIES, 10)[0], before)


def test_ef_search_is_searched_in_a_copy_and_the_collection_stays(
    folder: Path, narrow: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    system = open_system(f"chroma?path={folder}&collection=docs")
    plain, _ = system.search(QUERIES, 10)
    assert not list(tmp_path.iterdir())
    assert recall(system) < recall(system, ef_search=50) < recall(system, ef_search=1000)
    # Only the copy that was searched last is kept.
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_array_equal(system.search(QUERIES, 10)[0], plain)
    np.testing.assert_array_equal(system.search(QUERIES, 10, ef_search=10)[0], plain)
    told = narrow._client.get_collection("docs", embedding_function=None).configuration_json
    assert told["hnsw"]["ef_search"] == 10
    system.close()
    assert not list(tmp_path.iterdir())


def test_on_a_server_ef_search_is_turned_while_building(server: ChromaServer) -> None:
    few, many = (open_system(server.address).build(BASE, "l2", max_neighbors=6, ef_construction=30,
                                                   ef_search=ef) for ef in (10, 1000))  # fmt: skip
    assert [knob.name for knob in few.knobs if knob.kind == "search"] == []
    assert recall(few) < recall(many)
    assert many.describe()["ef_search"] == 1000


# -- units, ids, filters ----------------------------------------------------------------------


def test_distances_of_chroma_are_squared_or_one_less_the_similarity(narrow: System) -> None:
    held = narrow._client.get_collection("docs", embedding_function=None)
    raw = held.query(query_embeddings=QUERIES[:1], n_results=1, include=["distances"])
    ids, scores = narrow.search(QUERIES[:1], 1)
    assert scores is not None
    assert raw["distances"][0][0] == pytest.approx(float(scores[0, 0]) ** 2, rel=1e-5)
    distance = np.linalg.norm(BASE[ids[0, 0]].astype(float) - QUERIES[0])
    assert scores[0, 0] == pytest.approx(distance, rel=1e-5)


def test_ids_are_texts_and_integers_among_them_are_integers(narrow: System, tmp_path: Path) -> None:
    assert narrow.search(QUERIES, 3)[0].dtype == np.int64
    names = ["007", *(f"doc-{i}" for i in range(49))]
    system = open_system(f"chroma?path={tmp_path}&collection=docs").build(BASE[:50], "ip", names)
    assert set(system.search(QUERIES, 50)[0][0].tolist()) == set(names)


def test_vectors_come_back_under_cosine_to_a_rounding(narrow: System, tmp_path: Path) -> None:
    other = open_system(f"chroma?path={tmp_path}&collection=docs").build(BASE, "cosine")
    for system, error in ((narrow, 0.0), (other, 3e-7)):
        held = system.vectors()
        for _ in range(2):
            blocks = np.concatenate([block for _, block in held.blocks(1000)])
        np.testing.assert_allclose(blocks, BASE[held.ids.array()], rtol=error, atol=0)
        assert len(held) == 3000


def test_filters_are_those_of_chroma(tmp_path: Path) -> None:
    import chromadb

    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(tmp_path), settings=settings)
    docs = client.create_collection("docs", embedding_function=None)
    docs.add(
        ids=[str(i) for i in range(40)],
        embeddings=BASE[:40],
        metadatas=[{"lang": "en" if i % 2 else "de"} for i in range(40)],
        documents=[f"text {i}" for i in range(40)],
    )
    client.close()
    system = open_system(f"chroma?path={tmp_path}&collection=docs")
    given = {"where": {"lang": "en"}, "where_document": {"$contains": "text 1"}}
    ids, _ = system.search(QUERIES[:3], 40, filters=[{"lang": "de"}, None, given])
    assert {i for i in ids[0].tolist() if i >= 0} == set(range(0, 40, 2))
    assert len(set(ids[1].tolist())) == 40
    assert {i for i in ids[2].tolist() if i >= 0} == {1, 11, 13, 15, 17, 19}
    for wrong in ({"lang": {"$like": "d"}}, "lang = 'de'"):
        with pytest.raises(InputError):
            system.search(QUERIES[:1], 3, filters=[wrong])


# -- collections that exist -------------------------------------------------------------------


def test_a_collection_is_searched_where_it_is(folder: Path, narrow: System) -> None:
    system = open_system(f"chroma?path={folder}&collection=docs")
    assert (system.space.name, system.dimension, system.ntotal) == ("l2", 24, 3000)
    assert system.search(QUERIES, 5)[0].tolist() == narrow.search(QUERIES, 5)[0].tolist()
    assert {k: system.describe()[k] for k in ("max_neighbors", "ef_search")} == {
        "max_neighbors": 6,
        "ef_search": 10,
    }
    assert "collection.modify(configuration={'hnsw': {'ef_search': 64}})" in (
        system.snippet({"ef_search": 64}).replace('"', "'")
    )
    with pytest.raises(InputError, match="has no exact search"):
        system.exact(QUERIES, 3)


def test_a_collection_is_not_replaced_unless_asked(folder: Path, narrow: System) -> None:
    spec = f"chroma?path={folder}&collection=short"
    open_system(spec).build(BASE[:50], "ip")
    with pytest.raises(InputError, match="the collection 'short' exists in Chroma"):
        open_system(spec).build(BASE[:20], "ip")
    assert open_system(spec + "&replace=true").build(BASE[:20], "ip").ntotal == 20


def test_a_collection_of_its_own_is_dropped(server: ChromaServer) -> None:
    onlooker = open_system(server.address)
    before = set(onlooker._names())
    system = open_system(server.address).build(BASE[:50], "ip")
    assert set(onlooker._names()) - before == {system.collection}
    system.close()
    assert set(onlooker._names()) == before


def test_a_temporary_folder_goes_with_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    system = open_system("chroma").build(BASE[:50], "ip")
    assert len(list(tmp_path.iterdir())) == 1
    system.close()
    assert not list(tmp_path.iterdir())


# -- faults -----------------------------------------------------------------------------------


def test_what_is_not_there_or_does_not_fit_is_named(
    folder: Path, narrow: System, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no collection 'dosc'") as error:
        _ = open_system(f"chroma?path={folder}&collection=dosc").space
    assert "did you mean docs?" in str(error.value.hint)
    with pytest.raises(InputError, match="no collection 'docs'"):
        _ = open_system(f"chroma?path={tmp_path / 'none'}&collection=docs").space
    assert not (tmp_path / "none").exists()
    with pytest.raises(MismatchError, match=r"expected \(n, 24\)"):
        narrow.search(QUERIES[:, :3], 3)
    with pytest.raises(InputError, match="holds a user or a password"):
        open_system("chroma://me:secret@127.0.0.1/docs")
    with pytest.raises(InputError, match="expected one of them"):
        open_system("chroma://127.0.0.1/docs?path=x")
    client = narrow._client
    client.create_collection("empty", embedding_function=None)
    with pytest.raises(InputError, match="holds no vector"):
        _ = open_system(f"chroma?path={folder}&collection=empty").space


def test_a_server_that_is_gone_or_silent_is_told(server: ChromaServer) -> None:
    with pytest.raises(SystemFault, match="Could not connect") as error:
        _ = open_system("chroma://127.0.0.1:1/docs").space
    assert "is it running" in str(error.value.hint)
    open_system(f"{server.address}/docs").build(BASE[:50], "ip")
    system = open_system(f"{server.address}/docs?timeout=2")
    assert system.ntotal == 50
    server.freeze()
    try:
        with pytest.raises(SystemFault, match="did not end within 2 seconds"):
            system.search(QUERIES, 3)
    finally:
        server.thaw()
    assert len(system.search(QUERIES, 3)[0]) == 20


def test_a_key_is_sent_and_stays_out_of_what_is_written(
    server: ChromaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHROMA_API_KEY", "very-secret")
    system = open_system(server.address).build(BASE[:50], "ip")
    headers = system._client._server._session.headers
    assert headers["x-chroma-token"] == "very-secret"
    assert "very-secret" not in str(system.describe()) + repr(system)
    with pytest.raises(SystemFault) as error:
        _ = open_system("chroma://127.0.0.1:1/docs").space
    assert "very-secret" not in str(error.value)
