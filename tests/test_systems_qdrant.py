"""Qdrant: its engine in this process, and what is asked of a server."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_stub import BYTES_READ, QdrantStub

from semrecall import truth
from semrecall.benchmark import search
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.systems import System, open_system
from semrecall.testing import check_system

pytestmark = pytest.mark.environment("vector-databases")

rng = np.random.default_rng(12)
BASE = rng.standard_normal((4000, 24)).astype(np.float32)
QUERIES = rng.standard_normal((20, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def hnsw(tmp_path_factory: pytest.TempPathFactory) -> System:
    folder = tmp_path_factory.mktemp("qdrant") / "docs"
    return open_system(f"qdrant?path={folder}").build(BASE, "l2", m=8, ef_construct=40)


@pytest.fixture
def stub() -> Iterator[QdrantStub]:
    started = QdrantStub()
    yield started
    started.stop()


def recall(system: System, **settings: Any) -> float:
    found, _ = system.search(QUERIES, 10, **settings)
    exact = truth(BASE, QUERIES, k=10, space=system.space)
    return float(np.mean([len(set(a.tolist()) & set(b[:10].tolist())) / 10
                          for a, b in zip(found, exact.ids, strict=True)]))  # fmt: skip


# -- the contract -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("quantise", ["none", "scalar", "product", "binary"])
def test_the_engine_keeps_the_contract(quantise: str, name: str) -> None:
    check_system(f"qdrant?quantise={quantise}", space=name)


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
def test_what_a_server_is_asked_keeps_the_contract(stub: QdrantStub, name: str) -> None:
    check_system(stub.address, space=name, exact=True)


@pytest.mark.filterwarnings("ignore:Local mode performs exact")
def test_a_client_in_memory_is_a_system() -> None:
    from qdrant_client import QdrantClient

    client = QdrantClient(":memory:")
    with pytest.warns(SemrecallWarning, match="exactly, whatever hnsw_ef is: 0 of 50"):
        system = open_system("qdrant", client=client, collection="docs").build(BASE[:50], "ip")
    assert system.exact(QUERIES, 3)[0].tolist() == system.search(QUERIES, 3)[0].tolist()


# -- the engine -------------------------------------------------------------------------------


def test_hnsw_ef_turns_recall_and_exact_search_is_exact(hnsw: System) -> None:
    assert recall(hnsw, hnsw_ef=1) < recall(hnsw, hnsw_ef=400)
    exact = truth(BASE, QUERIES, k=10, space="l2")
    ids, scores = hnsw.exact(QUERIES, 10)
    assert ids.tolist() == [row[:10].tolist() for row in exact.ids]
    assert scores is not None
    assert exact.scores is not None
    np.testing.assert_allclose(scores, [row[:10] for row in exact.scores], rtol=1e-5)


def test_a_small_collection_is_searched_exactly_and_that_is_told(tmp_path: Path) -> None:
    """Below full_scan_threshold (10 kB here): 50 vectors of 24 * 4 bytes are 4.7 kB."""
    with pytest.warns(SemrecallWarning, match="smaller than its full_scan_threshold of 10 kB"):
        system = open_system(f"qdrant?path={tmp_path / 'small'}").build(BASE[:50], "ip")
    assert system.describe()["exact"]


def test_what_is_not_indexed_yet_is_told(tmp_path: Path) -> None:
    import qdrant_edge as edge

    folder = tmp_path / "raw"
    folder.mkdir()
    params = edge.EdgeVectorParams(24, edge.Distance.Dot)
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors=params))
    points = [edge.Point(i, row.tolist()) for i, row in enumerate(BASE[:500])]
    shard.update(edge.UpdateOperation.upsert_points(points))
    shard.flush()
    shard.close()
    system = open_system(f"qdrant?path={folder}")
    with pytest.warns(SemrecallWarning, match="exactly, whatever hnsw_ef is: 0 of 500 vectors"):
        assert system.describe()["exact"]


def test_quantised_vectors_have_scores_when_they_are_scored_again(tmp_path: Path) -> None:
    system = open_system(f"qdrant?path={tmp_path / 'coded'}&quantise=product").build(BASE, "ip")
    names = [knob.name for knob in system.knobs if knob.kind == "search"]
    assert names == ["hnsw_ef", "rescore", "oversampling"]
    assert system.search(QUERIES, 10)[1] is None
    ids, scores = system.search(QUERIES, 10, rescore=1, oversampling=4.0)
    assert scores is not None
    np.testing.assert_allclose(scores[0, 0], BASE[ids[0, 0]] @ QUERIES[0], rtol=1e-5)
    assert recall(system, hnsw_ef=200, rescore="true", oversampling=8) > recall(system, hnsw_ef=200)
    assert system.describe()["quantisation"] == "product"


def test_ids_of_every_kind_come_back(tmp_path: Path) -> None:
    names = [str(uuid.UUID(int=i + 1)) for i in range(300)]
    for folder, ids, field in (
        ("uuid", names, None),
        ("text", [f"doc/{i}" for i in range(300)], "id"),
        ("odd", [name.upper() + "X" for name in names], "id"),
    ):
        system = open_system(f"qdrant?path={tmp_path / folder}").build(BASE[:300], "ip", ids)
        found, _ = system.exact(QUERIES, 300)
        assert set(found[0].tolist()) == set(ids)
        assert system.id == field
        assert set(system.vectors().ids.array().tolist()) == set(ids)
    again = open_system(f"qdrant?path={tmp_path / 'text'}&id=id")
    assert again.exact(QUERIES[:1], 1)[0][0, 0].startswith("doc/")
    lost = open_system(f"qdrant?path={tmp_path / 'uuid'}&id=id")
    with pytest.raises(SystemFault, match="has no 'id' in its payload"):
        lost.search(QUERIES, 3)


def test_ids_beyond_signed_integers_are_their_digits(tmp_path: Path) -> None:
    import qdrant_edge as edge

    system = open_system(f"qdrant?path={tmp_path / 'wide'}").build(BASE[:300], "ip")
    shard = system._engine._shard(str(tmp_path / "wide"))
    point = edge.Point(2**63 + 5, (9 * QUERIES[0]).tolist())
    shard.update(edge.UpdateOperation.upsert_points([point]))
    assert system.search(QUERIES[:1], 2)[0][0, 0] == str(2**63 + 5)


def test_vectors_come_back_and_cosine_ones_are_scaled(hnsw: System, tmp_path: Path) -> None:
    held = hnsw.vectors()
    blocks = np.concatenate([block for _, block in held.blocks(1000)])
    np.testing.assert_array_equal(blocks, BASE[held.ids.array()])
    assert len(held) == 4000
    cosine = open_system(f"qdrant?path={tmp_path / 'cosine'}").build(BASE[:500], "cosine")
    held = cosine.vectors()
    rows = np.concatenate([block for _, block in held.blocks(1000)])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    assert cosine.describe()["vectors"] == "scaled to length one"
    assert hnsw.describe()["vectors"] == "as given"


def test_a_changing_collection_is_noticed_while_it_is_read(tmp_path: Path) -> None:
    import qdrant_edge as edge

    system = open_system(f"qdrant?path={tmp_path / 'docs'}").build(BASE[:1500], "ip")
    held = system.vectors()
    shard = system._engine._shard(str(tmp_path / "docs"))
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(9000, BASE[0].tolist())]))
    with pytest.raises(SystemFault, match="changed while it was read"):
        list(held.blocks(1000))


FILTERS = [
    ({"must": [{"key": "lang", "match": {"value": "de"}}]}, lambda i: i % 2 == 0),
    ({"must_not": {"key": "lang", "match": {"any": ["de"]}}}, lambda i: i % 2 == 1),
    ({"must": [{"key": "n", "range": {"gte": 10, "lt": 20}}]}, lambda i: 10 <= i < 20),
    ({"should": [{"has_id": [3, 5]}, {"key": "n", "match": {"value": 7}}]},
     lambda i: i in {3, 5, 7}),
    ({"must": [{"is_empty": {"key": "rare"}}, {"key": "n", "range": {"lt": 5}}]},
     lambda i: i in {1, 2, 3, 4}),
    ({"must": [{"should": [{"key": "n", "match": {"value": 8}}]}]}, lambda i: i == 8),
]  # fmt: skip


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> System:
    import qdrant_edge as edge

    folder = tmp_path_factory.mktemp("filtered") / "docs"
    folder.mkdir()
    params = edge.EdgeVectorParams(24, edge.Distance.Dot)
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors={"text": params}))
    points = [
        edge.Point(i, {"text": row.tolist()},
                   {"lang": "en" if i % 2 else "de", "n": i} | ({"rare": "x"} if i == 0 else {}))
        for i, row in enumerate(BASE[:40])
    ]  # fmt: skip
    shard.update(edge.UpdateOperation.upsert_points(points))
    shard.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        system = open_system(f"qdrant?path={folder}")
        assert system.ntotal == 40
    return system


@pytest.mark.parametrize(("given", "passes"), FILTERS)
def test_filters_are_those_of_the_rest_interface(filtered: System, given: Any, passes: Any) -> None:
    ids, _ = filtered.search(QUERIES[:2], 40, filters=[given, None])
    assert {i for i in ids[0].tolist() if i >= 0} == {i for i in range(40) if passes(i)}
    assert len(set(ids[1].tolist())) == 40


@pytest.mark.parametrize("given", ["lang = 'de'", {"musty": []}, {"must": [{"geo": 3}]},
                                   {"must": [{"key": "n", "match": {"regex": "x"}}]}])  # fmt: skip
def test_filters_that_are_none_are_explained(filtered: System, given: Any) -> None:
    with pytest.raises(InputError):
        filtered.search(QUERIES[:1], 3, filters=[given])


def test_a_shard_is_searched_where_it_is(hnsw: System) -> None:
    before = {p: p.stat().st_mtime_ns for p in hnsw.path.rglob("*") if p.name == "edge_config.json"}
    system = open_system(f"qdrant?path={hnsw.path}")
    assert (system.space.name, system.dimension, system.ntotal) == ("l2", 24, 4000)
    assert system.search(QUERIES, 5)[0].tolist() == hnsw.search(QUERIES, 5)[0].tolist()
    assert {k: system.describe()[k] for k in ("m", "ef_construct")} == {"m": 8, "ef_construct": 40}
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert "models.SearchParams(hnsw_ef=64)" in system.snippet({"hnsw_ef": 64})
    assert system.build_snippet({"m": 8, "ef_construct": 40, "segments": 2}) == (
        "client.create_collection('docs',\n"
        "    vectors_config=models.VectorParams(size=24, distance=models.Distance.EUCLID),\n"
        "    hnsw_config=models.HnswConfigDiff(m=8, ef_construct=40),\n"
        "    optimizers_config=models.OptimizersConfigDiff(default_segment_number=2))"
    )
    assert "quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0)" in (
        system.snippet({"rescore": "true", "oversampling": 2})
    )


def test_a_shard_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    spec = f"qdrant?path={tmp_path / 'docs'}"
    first = open_system(spec).build(BASE[:600], "ip")
    with pytest.raises(InputError, match="exists in Qdrant Edge; it is left as it is"):
        open_system(spec).build(BASE[:20], "ip")
    assert first.ntotal == 600
    del first
    assert open_system(spec + "&replace=true").build(BASE[:700], "ip").ntotal == 700
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is no shard of Qdrant Edge, and not empty"):
        open_system(f"qdrant?path={tmp_path / 'mine'}&replace=true").build(BASE[:20], "ip")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_a_temporary_shard_goes_with_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    system = open_system("qdrant").build(BASE[:600], "ip")
    assert len(list(tmp_path.iterdir())) == 1
    system.close()
    assert not list(tmp_path.iterdir())


def test_the_engine_lets_in_one_process_at_a_time(hnsw: System) -> None:
    script = "from semrecall.systems import open_system; import sys; open_system(sys.argv[1]).space"
    done = subprocess.run([sys.executable, "-c", script, f"qdrant?path={hnsw.path}"],
                          capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    assert "SystemFault" in done.stderr
    assert "is the folder open in another process?" in done.stderr


def test_what_is_not_there_or_does_not_fit_is_named(hnsw: System, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no collection"):
        _ = open_system(f"qdrant?path={tmp_path / 'none'}").space
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="names no collection"):
        _ = open_system("qdrant").space
    with pytest.raises(InputError, match="no dense vector 'text'"):
        _ = open_system(f"qdrant?path={hnsw.path}&vector=text").space
    with pytest.raises(MismatchError, match=r"expected \(n, 24\)"):
        hnsw.search(QUERIES[:, :3], 3)
    with pytest.raises(InputError, match="expected one of them"):
        open_system("qdrant://127.0.0.1/docs?path=x")
    with pytest.raises(InputError, match="no search knob 'oversampling'"):
        hnsw.search(QUERIES, 3, oversampling=2)


# -- a server ---------------------------------------------------------------------------------


@pytest.fixture
def served(stub: QdrantStub) -> System:
    return open_system(f"{stub.address}/docs").build(BASE[:600], "cosine")


def test_a_server_is_told_to_index_everything(stub: QdrantStub, served: System) -> None:
    (made,) = [body for method, path, body, _ in stub.seen
               if (method, path) == ("PUT", "/collections/docs")]  # fmt: skip
    assert made["vectors"] == {"size": 24, "distance": "Cosine"}
    assert made["optimizers_config"]["indexing_threshold"] == 1
    assert made["hnsw_config"] == {"m": 16, "ef_construct": 100, "full_scan_threshold": 10}


def test_settings_filters_and_exact_reach_a_server(stub: QdrantStub, served: System) -> None:
    given = {"must": [{"has_id": [3, 4]}]}
    ids, _ = served.search(QUERIES[:2], 5, filters=[given, None], hnsw_ef=77)
    assert {i for i in ids[0].tolist() if i >= 0} == {3, 4}
    asked = [body["searches"] for _, path, body, _ in stub.seen if path.endswith("query/batch")]
    assert [batch[0]["params"]["hnsw_ef"] for batch in asked] == [77, 77]
    served.exact(QUERIES[:1], 5)
    last = [body for _, path, body, _ in stub.seen if path.endswith("query/batch")][-1]
    assert last["searches"][0]["params"]["exact"] is True
    assert last["searches"][0]["params"]["quantization"]["ignore"] is True
    with pytest.raises(InputError, match="is none of Qdrant"):
        served.search(QUERIES[:1], 5, filters=[{"musty": 3}])


def test_bytes_are_those_that_a_server_reports(stub: QdrantStub, served: System) -> None:
    _, cost = search(served, QUERIES, 5, repeats=1, latency_queries=0)
    np.testing.assert_array_equal(cost.bytes_read, [BYTES_READ] * 20)
    assert cost.distance_computations is None


def test_a_server_that_refuses_or_is_silent_is_told(
    stub: QdrantStub, served: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "very-secret")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # qdrant-client: a key over plain HTTP
        system = open_system(f"{stub.address}/docs?timeout=1")
        assert system.ntotal == 600
    assert stub.seen[-1][3].get("api-key") == "very-secret"
    assert "very-secret" not in str(system.describe()) + repr(system)
    stub.refuse = 401
    with pytest.raises(SystemFault, match="401") as error:
        system.search(QUERIES, 3)
    assert error.value.hint == "the key is read from QDRANT_API_KEY in the environment"
    assert "very-secret" not in str(error.value)
    stub.refuse = 503
    with pytest.raises(SystemFault, match="503"):
        system.search(QUERIES, 3)
    stub.refuse = None
    stub.wait.clear()
    with pytest.raises(SystemFault, match="timed out") as error:
        system.search(QUERIES, 3)
    assert "timeout=1" in str(error.value.hint)
    stub.wait.set()
    stub.stop()
    with pytest.raises(SystemFault):
        system.search(QUERIES, 3)


def test_nobody_answers_and_names_are_suggested(stub: QdrantStub, served: System) -> None:
    with pytest.raises(SystemFault, match=r"Qdrant at 127\.0\.0\.1:1 failed") as error:
        _ = open_system("qdrant://127.0.0.1:1/docs").space
    assert "is it running" in str(error.value.hint)
    with pytest.raises(InputError, match="no collection 'dosc'") as missing:
        _ = open_system(f"{stub.address}/dosc").space
    assert "did you mean docs?" in str(missing.value.hint)
    with pytest.raises(InputError, match="'docs' exists in Qdrant at"):
        open_system(f"{stub.address}/docs").build(BASE[:5], "ip")
    with pytest.raises(InputError, match="holds a user or a password"):
        open_system("qdrant://:secret@127.0.0.1/docs")


def test_a_collection_of_its_own_on_a_server_is_dropped(stub: QdrantStub) -> None:
    system = open_system(stub.address).build(BASE[:600], "ip")
    assert len(stub.local.get_collections().collections) == 1
    system.close()
    assert not stub.local.get_collections().collections
