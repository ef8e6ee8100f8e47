"""Elasticsearch, OpenSearch and Weaviate, over servers of ours that speak as documented."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from json_server import JsonServer, Refusal
from search_servers import FakeElastic, FakeWeaviate

import semrecall as sr
from semrecall.data import Vectors
from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.systems import System, open_system
from semrecall.systems.elasticsearch import ElasticsearchSystem
from semrecall.systems.opensearch import OpensearchSystem
from semrecall.systems.units import UNITS
from semrecall.systems.weaviate import WeaviateSystem
from semrecall.testing import check_system

RNG = np.random.default_rng(6)
BASE = RNG.standard_normal((120, 6)).astype(np.float32)
KEYS = [
    "ELASTIC_API_KEY", "ELASTIC_USERNAME", "ELASTIC_PASSWORD", "OPENSEARCH_API_KEY",
    "OPENSEARCH_USERNAME", "OPENSEARCH_PASSWORD", "WEAVIATE_API_KEY",
]  # fmt: skip


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semrecall.web._PAUSES_SECONDS", (0.01, 0.01))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def elastic() -> Iterator[FakeElastic]:
    with FakeElastic("elasticsearch") as server:
        yield server


@pytest.fixture
def opensearch() -> Iterator[FakeElastic]:
    with FakeElastic("opensearch") as server:
        yield server


@pytest.fixture
def weaviate() -> Iterator[FakeWeaviate]:
    with FakeWeaviate() as server:
        yield server


@pytest.fixture(params=["elasticsearch", "opensearch", "weaviate"])
def any_server(request: pytest.FixtureRequest) -> Iterator[tuple[JsonServer, str]]:
    """A server, and the beginning of its specs."""
    made = FakeWeaviate() if request.param == "weaviate" else FakeElastic(request.param)
    with made as server:
        yield server, f"{request.param}://{server.host}"


def documents(elastic: FakeElastic, mapping: dict[str, Any]) -> None:
    """An index `docs` that somebody else made, with BASE in it."""
    elastic._made("docs", {"mappings": {"properties": {"emb": mapping}}})
    held = elastic.indices["docs"].documents
    for row, vector in enumerate(BASE.tolist()):
        held[f"d{row}"] = {"emb": vector, "lang": "de" if row % 2 else "en"}


DENSE = {"type": "dense_vector", "dims": 6, "similarity": "l2_norm",
         "index_options": {"type": "hnsw"}}  # fmt: skip
KNN = {"type": "knn_vector", "dimension": 6, "method": {
    "name": "hnsw", "space_type": "l2", "engine": "faiss"}}  # fmt: skip


# -- the contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ElasticsearchSystem, OpensearchSystem])
def test_elasticsearch_and_opensearch_keep_the_contract(kind):
    with FakeElastic(kind.engine) as server:
        check_system(lambda: kind(f"{kind.engine}://{server.host}"), space="cosine", exact=True)
        # Indices of its own are deleted with their systems.
        assert server.indices == {}


def test_weaviate_keeps_the_contract(weaviate, monkeypatch):
    # A request a query: fewer of them than usual.
    monkeypatch.setattr("semrecall.testing._QUERIES", 5)
    spec = f"weaviate://{weaviate.host}"
    check_system(lambda: WeaviateSystem(spec), space="cosine", exact=True)
    assert weaviate.classes == {}


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_scores_are_those_of_the_space(any_server, space):
    _, spec = any_server
    system = open_system(spec).build(BASE, space)
    truth = sr.truth(BASE, BASE[:4], k=9, space=space)
    ids, scores = system.search(BASE[:4], 9)
    assert ids.tolist() == [row.tolist() for row in truth.ids]
    np.testing.assert_allclose(scores, np.stack(list(truth.scores)), atol=2e-3)
    if not spec.startswith("weaviate"):
        ids, scores = system.exact(BASE[:4], 9)
        assert ids.tolist() == [row.tolist() for row in truth.ids]
        np.testing.assert_allclose(scores, np.stack(list(truth.scores)), atol=2e-3)
    system.close()


# -- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "told", "natural"),
    [
        ("half-cosine", 0.75, 0.5),  # (1 + 0.5) / 2
        ("inverse-cosine-distance", 2 / 3, 0.5),  # 1 / (1 + 1 - 0.5)
        ("cosine-distance", 0.5, 0.5),
        ("inverse-l2", 0.1, 3.0),  # 1 / (1 + 3 * 3)
        ("squared-l2", 9.0, 3.0),
        ("squared-l2", -1e-9, 0.0),
        ("folded-ip", 5.0, 4.0),  # 4 + 1
        ("folded-ip", 0.2, -4.0),  # 1 / (1 + 4)
        ("folded-ip", 1.0, 0.0),
        ("half-ip", 0.25, -0.5),
        ("negated-ip", -4.0, 4.0),
    ],
)
def test_units_of_scores(unit, told, natural):
    assert UNITS[unit].convert(np.array([told]))[0] == pytest.approx(natural)


# -- an index that exists -------------------------------------------------------------------------


def test_an_index_is_searched_where_it_is(elastic):
    documents(elastic, DENSE)
    system = open_system(f"elasticsearch://{elastic.host}/docs")
    assert (system.built, system.dimension, system.ntotal) == (True, 6, 120)
    assert system.space.name == "l2"
    ids, scores = system.search(BASE[:3], 4, num_candidates=50)
    assert ids[:, 0].tolist() == ["d0", "d1", "d2"]
    true = np.sort(np.linalg.norm(BASE - BASE[0], axis=1))[:4]
    np.testing.assert_allclose(scores[0], true, atol=1e-3)
    sent = elastic.calls[-1].body
    assert sent[0] == {}
    assert sent[1]["knn"]["num_candidates"] == 50
    assert sent[1]["_source"] is False
    assert {call.method for call in elastic.calls} == {"GET", "POST"}


def test_candidates_are_never_fewer_than_results(elastic):
    documents(elastic, DENSE)
    system = ElasticsearchSystem(f"elasticsearch://{elastic.host}", index="docs")
    system.search(BASE[:1], 10, num_candidates=1)
    assert elastic.calls[-1].body["knn"]["num_candidates"] == 10
    system.search(BASE[:1], 10)
    assert elastic.calls[-1].body["knn"]["num_candidates"] == 15


@pytest.mark.parametrize("mapping", [DENSE, KNN])
def test_filters_are_passed_through(mapping):
    kind = ElasticsearchSystem if mapping is DENSE else OpensearchSystem
    with FakeElastic(kind.engine) as server:
        documents(server, mapping)
        system = kind(f"{kind.engine}://{server.host}/docs")
        for found, _ in (
            system.search(BASE[:2], 5, filters=[{"term": {"lang": "de"}}, None]),
            system.exact(BASE[:2], 5, filters=[{"term": {"lang": "de"}}, None]),
        ):
            assert all(int(name[1:]) % 2 for name in found[0])
            assert found[1][0] == "d1"


def test_settings_of_opensearch(opensearch):
    documents(opensearch, {**KNN, "mode": "on_disk"})
    system = OpensearchSystem(f"opensearch://{opensearch.host}/docs")
    assert system.ntotal == 120
    assert {knob.name for knob in system.knobs if knob.kind == "search"} == {
        "ef_search", "oversample",
    }  # fmt: skip
    ids, scores = system.search(BASE[:1], 3, ef_search=77, oversample=2.5)
    assert opensearch.calls[-1].body["query"]["knn"]["emb"] == {
        "vector": BASE[0].tolist(),
        "k": 3,
        "method_parameters": {"ef_search": 77},
        "rescore": {"oversample_factor": 2.5},
    }
    assert ids[0][0] == "d0"
    assert scores is None  # those of quantised vectors are estimates
    with pytest.raises(InputError, match="no search knob 'nprobes'"):
        system.search(BASE[:1], 3, nprobes=4)


def test_lists_of_opensearch_have_probes(opensearch):
    documents(opensearch, {"type": "knn_vector", "dimension": 6, "space_type": "innerproduct",
                           "method": {"name": "ivf", "engine": "faiss"}})  # fmt: skip
    system = OpensearchSystem(f"opensearch://{opensearch.host}/docs")
    _, scores = system.search(BASE[:1], 3, nprobes=4)
    np.testing.assert_allclose(scores[0], np.sort(BASE @ BASE[0])[::-1][:3], rtol=1e-5)
    assert opensearch.calls[-1].body["query"]["knn"]["emb"]["method_parameters"] == {"nprobes": 4}


def test_quantised_vectors_of_elasticsearch_can_be_oversampled(elastic):
    documents(elastic, {**DENSE, "index_options": {"type": "int8_hnsw"}})
    system = ElasticsearchSystem(f"elasticsearch://{elastic.host}/docs")
    assert system.built
    _, scores = system.search(BASE[:1], 3, oversample=2)
    assert scores is None
    assert elastic.calls[-1].body["knn"]["rescore_vector"] == {"oversample": 2.0}


@pytest.mark.parametrize("mapping", [DENSE, KNN])
def test_vectors_are_given_out_in_pages(mapping, monkeypatch):
    monkeypatch.setattr("semrecall.systems.elastic._ROWS", 50)
    kind = ElasticsearchSystem if mapping is DENSE else OpensearchSystem
    with FakeElastic(kind.engine) as server:
        documents(server, mapping)
        found = kind(f"{kind.engine}://{server.host}/docs").vectors()
        assert found.ids.strings().tolist() == [f"d{i}" for i in range(120)]
        for _ in range(2):
            rows = np.concatenate([block for _, block in found.blocks(1000)])
            np.testing.assert_array_equal(rows, BASE)
        assert server.scrolls == {}


def test_truth_of_a_database_is_that_of_its_vectors(elastic):
    documents(elastic, DENSE)
    system = ElasticsearchSystem(f"elasticsearch://{elastic.host}/docs")
    truth = sr.truth(system.vectors(), BASE[:5], k=7, space="l2")
    ids, _ = system.exact(BASE[:5], 7)
    assert [row.tolist() for row in truth.ids] == ids.tolist()


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({**DENSE, "element_type": "bit"}, "vectors of bit"),
        ({**DENSE, "index": False}, "is not indexed"),
        ({"type": "text"}, "has no field of the type dense_vector"),
    ],
)
def test_fields_that_cannot_be_searched(elastic, mapping, message):
    kind = mapping["type"]
    documents(elastic, {**mapping, "type": "dense_vector"})
    elastic.indices["docs"].mapping["type"] = kind
    with pytest.raises(InputError, match=message):
        _ = ElasticsearchSystem(f"elasticsearch://{elastic.host}/docs").built


def test_a_field_inside_an_object_and_one_of_several(elastic):
    documents(elastic, DENSE)
    properties = elastic.indices["docs"].definition["mappings"]["properties"]
    properties["meta"] = {"properties": {"other": DENSE}}
    url = f"elasticsearch://{elastic.host}/docs"
    with pytest.raises(
        InputError, match=r"has several fields of the type dense_vector: emb, meta\.other"
    ):
        _ = ElasticsearchSystem(url).built
    assert ElasticsearchSystem(url, field="meta.other").built
    with pytest.raises(InputError, match="no field of the type dense_vector 'embb'") as found:
        _ = ElasticsearchSystem(url, field="embb").built
    assert "did you mean emb" in str(found.value)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({**KNN, "space_type": "hamming", "data_type": "binary"}, "compared by hamming"),
        ({"type": "knn_vector", "model_id": "m"}, "from the model 'm'"),
    ],
)
def test_fields_of_opensearch_that_cannot_be_searched(opensearch, mapping, message):
    documents(opensearch, mapping)
    with pytest.raises(InputError, match=message):
        _ = OpensearchSystem(f"opensearch://{opensearch.host}/docs").built


def test_a_part_of_an_answer_is_none(elastic):
    documents(elastic, DENSE)
    system = ElasticsearchSystem(f"elasticsearch://{elastic.host}/docs")
    assert system.built
    reason = {"reason": {"reason": "shard is closed"}}
    elastic.answer = lambda _: {
        "timed_out": False, "_shards": {"failed": 1, "failures": [reason]}, "hits": {"hits": []},
    }  # fmt: skip
    with pytest.raises(SystemFault, match="in full: shard is closed"):
        system.search(BASE[:1], 3)
    elastic.answer = lambda _: {"responses": [{"error": {"reason": "bad filter"}}] * 2}
    with pytest.raises(SystemFault, match="bad filter"):
        system.search(BASE[:2], 3)


# -- weaviate -------------------------------------------------------------------------------------


def collection(weaviate: FakeWeaviate, **config: Any) -> None:
    """A collection `Docs` that somebody else made, with BASE in it."""
    weaviate.classes["Docs"] = {
        "class": "Docs", "vectorIndexType": "hnsw", "properties": [{"name": "lang"}],
        "vectorIndexConfig": {"distance": "l2-squared", "ef": -1, **config},
    }  # fmt: skip
    weaviate.objects["Docs"] = {
        f"00000000-0000-0000-0000-{row:012d}": {
            "id": f"00000000-0000-0000-0000-{row:012d}",
            "properties": {"lang": "de" if row % 2 else "en", "name": f"d{row}"},
            "vector": vector,
        }
        for row, vector in enumerate(BASE.tolist())
    }


def test_a_collection_is_searched_where_it_is_by_uuid(weaviate):
    collection(weaviate)
    system = open_system(f"weaviate://{weaviate.host}/docs")
    assert (system.dimension, system.ntotal, system.space.name) == (6, 120, "l2")
    ids, scores = system.search(BASE[:2], 3)
    assert ids[1][0] == "00000000-0000-0000-0000-000000000001"
    true = np.sort(np.linalg.norm(BASE - BASE[0], axis=1))[:3]
    np.testing.assert_allclose(scores[0], true, atol=1e-5)
    assert {(c.method, c.path) for c in weaviate.calls} == {
        ("GET", "/v1/schema/Docs"), ("GET", "/v1/objects"), ("POST", "/v1/graphql"),
    }  # fmt: skip


def test_a_property_may_be_the_id_and_filters_are_graphql(weaviate):
    collection(weaviate)
    weaviate.classes["Docs"]["properties"].append({"name": "name"})
    system = WeaviateSystem(f"weaviate://{weaviate.host}/Docs", id="name")
    where = {"path": ["lang"], "operator": "Equal", "valueText": "de"}
    ids, _ = system.search(BASE[:1], 4, filters=[where])
    assert all(int(name[1:]) % 2 for name in ids[0])
    with pytest.raises(InputError, match="no property 'nmae'"):
        _ = WeaviateSystem(f"weaviate://{weaviate.host}/Docs", id="nmae").built


def test_ef_is_turned_only_where_that_is_asked_for_and_set_back(weaviate):
    collection(weaviate, ef=64)
    system = WeaviateSystem(f"weaviate://{weaviate.host}/Docs")
    with pytest.raises(InputError, match="no search knob 'ef'"):
        system.search(BASE[:1], 3, ef=10)
    assert not any(call.method == "PUT" for call in weaviate.calls)
    system = WeaviateSystem(f"weaviate://{weaviate.host}/Docs", alter="true")

    def ef() -> int:
        return weaviate.classes["Docs"]["vectorIndexConfig"]["ef"]

    system.search(BASE[:1], 3, ef=10)
    assert ef() == 10
    system.search(BASE[:1], 3)
    assert ef() == 64
    system.search(BASE[:1], 3, ef=20)
    system.close()
    assert ef() == 64


def test_vectors_of_weaviate_are_given_out_in_pages(weaviate, monkeypatch):
    monkeypatch.setattr("semrecall.systems.weaviate._ROWS", 50)
    collection(weaviate)
    found = WeaviateSystem(f"weaviate://{weaviate.host}/Docs").vectors()
    assert len(found.ids) == 120
    for _ in range(2):
        rows = np.concatenate([block for _, block in found.blocks(1000)])
        np.testing.assert_array_equal(rows, BASE)


def test_named_vectors_of_weaviate(weaviate):
    collection(weaviate)
    config = {"vectorIndexType": "hnsw", "vectorIndexConfig": {"distance": "dot"}}
    weaviate.classes["Docs"]["vectorConfig"] = {"title": config, "body": config}
    url = f"weaviate://{weaviate.host}/Docs"
    with pytest.raises(InputError, match="has several vectors: title, body"):
        _ = WeaviateSystem(url).built
    for held in weaviate.objects["Docs"].values():
        held["vectors"] = {"body": held["vector"]}
    system = WeaviateSystem(url, vector="body")
    assert system.space.name == "ip"
    # The server of ours does not know them; what is sent is the point.
    assert 'targetVectors: ["body"]' in system._query([1.0], 3, None)


@pytest.mark.parametrize(
    ("config", "message"),
    [({"distance": "hamming"}, "compares by hamming")],
)
def test_collections_that_cannot_be_searched(weaviate, config, message):
    collection(weaviate, **config)
    with pytest.raises(InputError, match=message):
        _ = WeaviateSystem(f"weaviate://{weaviate.host}/Docs").built


def test_distances_of_quantised_vectors_are_left_out(weaviate):
    collection(weaviate, rq={"enabled": True})
    ids, scores = WeaviateSystem(f"weaviate://{weaviate.host}/Docs").search(BASE[:1], 3)
    assert len(ids[0]) == 3
    assert scores is None


# -- all three ------------------------------------------------------------------------------------


def built(spec: str) -> System:
    return open_system(f"{spec}/Made").build(Vectors.of(BASE), "cosine")


def test_what_was_built_under_a_name_stays_and_is_not_built_over(any_server):
    server, spec = any_server
    system = built(spec)
    system.close()
    again = open_system(f"{spec}/Made")
    assert again.ntotal == 120
    ids, _ = again.search(BASE[:2], 3)
    assert ids[:, 0].tolist() == [0, 1]
    with pytest.raises(InputError, match=r"exists in .*; it is left as it is") as found:
        again.build(BASE, "cosine")
    assert "replace=true" in str(found.value)
    small = open_system(f"{spec}/Made?replace=true").build(BASE[:50], "cosine")
    assert small.ntotal == 50
    assert server.in_flight == 0


def test_settings_are_written_as_the_server_takes_them(elastic, opensearch, weaviate):
    asked = {
        "elasticsearch": (elastic, {"m": 8}, {"num_candidates": 50}, '"num_candidates": 50'),
        "opensearch": (opensearch, {"m": 8}, {"ef_search": 50}, '"ef_search": 50'),
        "weaviate": (weaviate, {"max_connections": 8}, {"ef": 50}, "hnsw(ef=50)"),
    }
    for name, (server, knobs, settings, expected) in asked.items():
        system = open_system(f"{name}://{server.host}").build(BASE, "ip", **knobs)
        assert expected in system.snippet(settings)
        request, _, body = system.build_snippet(knobs).partition("\n")
        # What is pasted is what was sent, but for the name, which was one of our own.
        method, path = request.split()
        made = json.loads(body)
        starts = ("/v1/schema", "/semrecall_")
        sent = next(c for c in server.calls if c.method == method and c.path.startswith(starts))
        own = sent.body.get("class")
        assert made == ({**sent.body, "class": "docs"} if own else sent.body)
        assert own is not None or path == "/docs"
        system.close()


def test_a_missing_collection_is_answered_with_those_there_are(any_server):
    _, spec = any_server
    built(spec)
    system = open_system(f"{spec}/Mode")
    assert not system.built
    with pytest.raises(InputError, match="there is no") as found:
        _ = system.ntotal
    assert "did you mean Made" in str(found.value)
    with pytest.raises(InputError, match="names no"):
        _ = open_system(spec).ntotal


def test_another_dimension_is_refused_before_it_is_sent(any_server):
    server, spec = any_server
    system = built(spec)
    calls = len(server.calls)
    with pytest.raises(MismatchError, match="has 6 dimensions"):
        system.search(BASE[:1, :3], 2)
    assert len(server.calls) == calls


def test_a_refused_key_says_where_keys_come_from(any_server):
    server, spec = any_server
    built(spec)
    server.secret = "another"
    with pytest.raises(
        SystemFault, match=r"401: (missing authentication|anonymous access)"
    ) as found:
        _ = open_system(f"{spec}/Made").built
    assert "key in the environment" in str(found.value)


@pytest.mark.parametrize(
    ("spec", "variables", "header"),
    [
        ("elasticsearch", {"ELASTIC_API_KEY": "sesame"}, "ApiKey sesame"),
        # base64 of me:sesame
        ("elasticsearch", {"ELASTIC_USERNAME": "me", "ELASTIC_PASSWORD": "sesame"},
         "Basic bWU6c2VzYW1l"),
        ("opensearch", {"OPENSEARCH_USERNAME": "me", "OPENSEARCH_PASSWORD": "sesame"},
         "Basic bWU6c2VzYW1l"),
        ("weaviate", {"WEAVIATE_API_KEY": "sesame"}, "Bearer sesame"),
    ],
)  # fmt: skip
def test_keys_come_from_the_environment_and_never_come_out(spec, variables, header, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made: Callable[..., JsonServer] = FakeWeaviate if spec == "weaviate" else FakeElastic
    with made() if spec == "weaviate" else made(spec) as server:
        server.secret = header if spec != "weaviate" else "sesame"
        system = open_system(f"{spec}://{server.host}/Made").build(BASE, "ip")
        assert server.calls[0].headers["authorization"] == header
        assert "sesame" not in json.dumps(system.describe(), default=str)
        server.faults = [Refusal(403, {"error": f"not for {header}, sesame"})]
        with pytest.raises(SystemFault, match="403") as found:
            system.search(BASE[:1], 2)
        assert "sesame" not in str(found.value)
        assert "bWU6c2VzYW1l" not in str(found.value)


def test_a_password_in_an_address_is_refused(any_server):
    _, spec = any_server
    with pytest.raises(InputError, match="holds a user or a password") as found:
        open_system(spec.replace("://", "://me:sesame@") + "/Made")
    assert "sesame" not in str(found.value)


def test_a_server_that_does_not_answer(any_server):
    server, spec = any_server
    built(spec)
    system = open_system(f"{spec}/Made?timeout=0.2")
    assert system.built
    server.faults = ["hang"]
    with pytest.raises(SystemFault, match=r"no reply within 0\.2 s"):
        system.search(BASE[:1], 2)
    server.faults = ["drop"]
    system.search(BASE[:1], 2)
    server.faults = ["drop"] * 5
    with pytest.raises(SystemFault, match="cannot be reached"):
        system.search(BASE[:1], 2)


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch", "weaviate"])
def test_nothing_listens(name):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SystemFault, match="connection refused"):
        _ = open_system(f"{name}://127.0.0.1:{port}/Made").built


def test_rows_that_the_server_refuses_are_counted(elastic, weaviate):
    elastic.dimension = lambda _: 5
    with pytest.raises(SystemFault, match=r"refused 120 of 120 documents, the first with The \["):
        ElasticsearchSystem(f"elasticsearch://{elastic.host}/Made").build(BASE, "ip")
    # What was begun under this name is gone: the next build is not refused for it.
    assert "Made" not in elastic.indices
    wrong = [{"result": {"errors": {"error": [{"message": "no room"}]}}}] * 2
    answer = weaviate.answer
    weaviate.answer = lambda call: wrong if call.path == "/v1/batch/objects" else answer(call)
    with pytest.raises(SystemFault, match="refused 2 of 2 objects, the first with no room"):
        WeaviateSystem(f"weaviate://{weaviate.host}/Made").build(BASE, "ip")
    assert not weaviate.classes


@pytest.mark.parametrize("name", ["doc*", "a,b", "_all", "a b"])
def test_a_name_that_may_mean_several_indices_is_never_built(elastic, name):
    spec = f"elasticsearch://{elastic.host}?index={name}&replace=true"
    with pytest.raises(InputError, match="is no name of an index"):
        open_system(spec).build(BASE, "ip")
    assert not [call for call in elastic.calls if call.method in ("DELETE", "PUT")]


def test_the_command_line_builds_and_searches(any_server, semrecall_main, tmp_path):
    _, spec = any_server
    np.save(tmp_path / "base.npy", BASE)
    np.save(tmp_path / "queries.npy", BASE[:5])
    built_by_hand = semrecall_main(
        "search", f"{spec}/Made", "--base", "base.npy", "--queries", "queries.npy", "--space", "l2",
        "-k", 4, "-o", "run.parquet", "--repeats", 1, "--latency-queries", 2,
    )  # fmt: skip
    assert built_by_hand[0] == 0, built_by_hand[2]
    status, _, err = semrecall_main(
        "search", f"{spec}/Made", "--queries", "queries.npy", "-k", 4, "-o", "again.parquet",
        "--repeats", 1, "--latency-queries", 2,
    )  # fmt: skip
    assert status == 0, err
    for name in ("run.parquet", "again.parquet"):
        assert [row[0] for row in sr.read(name).ids] == [0, 1, 2, 3, 4]
    status, _, err = semrecall_main("search", f"{spec}/Nope", "--queries", "queries.npy")
    assert status == 2
    assert "there is no" in err
    assert "Traceback" not in err
