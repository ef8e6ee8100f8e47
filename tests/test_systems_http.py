"""Endpoints that a template describes, over a server of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from json_server import Call, JsonServer, Refusal, slowly

import semrecall as sr
from semrecall.errors import FormatError, InputError, SystemFault
from semrecall.systems.http import HttpSystem, Template, read_path
from semrecall.testing import check_system

RNG = np.random.default_rng(4)
BASE = RNG.standard_normal((300, 8)).astype(np.float32)
TEMPLATE: dict[str, Any] = {
    "path": "/search",
    "headers": {"X-Key": "${SEARCH_KEY}"},
    "body": {"vector": "{vector}", "top": "{k}", "filter": "{filter}", "params": {"ef": "{ef}"}},
    "ids": "result.hits[].id",
    "scores": "result.hits[].distance",
    "unit": "squared-l2",
    "knobs": "ef:1:500:log",
}


def search(call: Call) -> Any:
    """Exact search by squared distance; only even ids where the filter says so."""
    squared = ((BASE - np.array(call.body["vector"], dtype=np.float32)) ** 2).sum(axis=1)
    order = [
        int(i)
        for i in np.argsort(squared, kind="stable")
        if call.body.get("filter") != {"even": True} or i % 2 == 0
    ]
    hits = [{"id": f"doc-{i}", "distance": float(squared[i])} for i in order[: call.body["top"]]]
    return {"result": {"hits": hits}}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "sesame-42")
    monkeypatch.setattr("semrecall.web._PAUSES_SECONDS", (0.01, 0.01))


@pytest.fixture
def server() -> Iterator[JsonServer]:
    with JsonServer(search) as started:
        yield started


def asked(template: dict[str, Any], server: JsonServer, **more: Any) -> HttpSystem:
    return HttpSystem(server.url, template, **more)


def test_an_endpoint_keeps_the_contract(server):
    names = [f"doc-{i}" for i in range(len(BASE))]
    base = sr.Vectors.of(BASE, ids=names)
    check_system(asked(TEMPLATE, server), space="l2", base=base, exact=True)
    assert server.calls[0].headers["x-key"] == "sesame-42"
    assert server.calls[0].path == "/search"


def test_what_stands_for_nothing_is_left_out_of_the_body(server):
    system = asked(TEMPLATE, server)
    system.search(BASE[:1], 3)
    assert set(server.calls[-1].body) == {"vector", "top", "params"}
    assert server.calls[-1].body["params"] == {}
    system.search(BASE[:1], 3, ef=40, filters=[{"even": True}])
    assert server.calls[-1].body["params"] == {"ef": 40}
    assert server.calls[-1].body["filter"] == {"even": True}
    assert server.calls[-1].body["vector"] == BASE[0].tolist()


def test_filters_reach_the_query_they_belong_to(server):
    ids, _ = asked(TEMPLATE, server).search(BASE[1:3], 5, filters=[{"even": True}, None])
    assert ids[0][0] != "doc-1"
    assert ids[1][0] == "doc-2"
    assert all(int(name[4:]) % 2 == 0 for name in ids[0])


def test_texts_in_an_address():
    def find(call: Call) -> Any:
        return [{"key": f"{call.query['q']}!"}, {"key": f"n={call.query['n']}"}]

    with JsonServer(find) as server:
        template = {"method": "get", "path": "/find?q={text}&n={k}", "ids": "[].key"}
        run, _ = sr.search(asked(template, server), None, 7, texts={"q1": "a & b/ü", "q2": "c"})
    assert [row.tolist() for row in run.ids] == [["a & b/ü!", "n=7"], ["c!", "n=7"]]
    assert run.query_ids.tolist() == ["q1", "q2"]
    assert run.space is None
    assert server.calls[0].body is None


def test_a_batch_is_one_request():
    def find(call: Call) -> Any:
        return {"answers": [{"ids": [t, "x"], "scores": [2.0, 1.0]} for t in call.body["q"]]}

    template = {
        "body": {"q": "{texts}", "n": "{k}"}, "rows": "answers", "ids": "ids", "scores": "scores",
        "batch": 2,
    }  # fmt: skip
    with JsonServer(find) as server:
        ids, scores = asked(template, server).search(
            np.ones((5, 1)), 2, texts=["a", "b", "c", "d", "e"]
        )
        assert ids.tolist() == [[t, "x"] for t in "abcde"]
        assert scores.tolist() == [[2, 1]] * 5
        assert sorted(call.body["q"] for call in server.calls) == [["a", "b"], ["c", "d"], ["e"]]
        server.answer = lambda _: {"answers": []}
        with pytest.raises(SystemFault, match="asked 1 queries and has 0 answers"):
            asked(template, server).search(np.ones((1, 1)), 2, texts=["a"])


def test_requests_at_a_time_are_bounded():
    with JsonServer(slowly(0.03, [])) as server:
        template = {"body": "{vector}", "ids": ""}
        asked(template, server, concurrency="3").search(BASE[:12], 2)
    assert server.most_in_flight == 3


@pytest.mark.parametrize(
    ("found", "path", "value"),
    [
        ({"a": {"b": [1, 2]}}, "a.b", [1, 2]),
        ({"a": [{"b": 1}, {"b": 2}]}, "$.a[].b", [1, 2]),
        ({"a": [{"b": [1, 2]}, {"b": [3]}]}, "a[].b[]", [1, 2, 3]),
        ({"a": [{"b": 1}, {"b": 2}]}, "a[1].b", 2),
        ([{"id": 1}], "[].id", [1]),
        ([1, 2], "", [1, 2]),
        ({"_source": {"doc-id": 7}}, "_source.doc-id", 7),
    ],
)
def test_paths(found, path, value):
    assert read_path(found, path) == value


@pytest.mark.parametrize(
    ("found", "path", "message"),
    [
        ({"hits": {"total": 3}}, "hits.hits[]._id", "no 'hits'"),
        ({"hits": 3}, "hits[].id", "no list"),
        ([], "[0]", "0 items"),
    ],
)
def test_paths_that_lead_nowhere(found, path, message):
    with pytest.raises(SystemFault, match=message):
        read_path(found, path)


def test_a_reply_without_what_the_template_says_names_what_there_is(server):
    system = asked(TEMPLATE | {"ids": "result.documents[].id"}, server)
    with pytest.raises(SystemFault, match="no 'documents'") as found:
        system.search(BASE[:1], 3)
    assert "there are hits" in str(found.value)


def test_scores_must_be_numbers_one_for_each_id(server):
    server.answer = lambda _: {"result": {"hits": [{"id": "a", "distance": None}]}}
    with pytest.raises(SystemFault, match="1 ids and 0 numbers"):
        asked(TEMPLATE, server).search(BASE[:1], 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"body": {"q": "none"}}, "names no query"),
        ({"body": ["{text}", "{vector}"]}, "both a text and a vector"),
        ({"body": "{vectors}"}, "lie at 'rows'"),
        ({"rows": "answers"}, "lie at 'rows'"),
        ({"body": ["{vector}", "{efSearch}"]}, "placeholder {efSearch}"),
        ({"unit": "squared_l2"}, "unknown unit"),
        ({"space": "ip"}, "of the space l2, not ip"),
        ({"knobs": "ef"}, "is no knob"),
        ({"headers": "X-Key"}, "headers is 'X-Key'"),
        ({"id": "x"}, "unknown key 'id'"),
    ],
)
def test_templates_that_cannot_work(change, message):
    with pytest.raises(InputError) as found:
        HttpSystem("http://127.0.0.1:1", TEMPLATE | change)
    assert message in str(found.value)


def test_template_files_that_are_none(tmp_path: Path):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(FormatError, match="is no JSON"):
        Template.read(broken)
    broken.write_text("[]")
    with pytest.raises(FormatError, match="expected an object"):
        Template.read(broken)
    broken.write_text("{}")
    with pytest.raises(FormatError, match="no key 'ids'"):
        Template.read(broken)
    with pytest.raises(InputError, match="no such file"):
        Template.read(tmp_path / "gone.json")


def test_faults_of_the_server_come_in_its_own_words_and_without_the_key(server):
    system = asked(TEMPLATE, server, timeout="0.3")
    for fault, message in [
        (Refusal(400, {"error": "top is too large"}), "400: top is too large"),
        (Refusal(401, {"error": "sesame-42 is wrong"}), r"\[secret\] is wrong"),
        ("page", "502: Bad gateway"),
        ("hang", "no reply within"),
    ]:
        server.faults = [fault]
        with pytest.raises(SystemFault, match=message) as found:
            system.search(BASE[:1], 3)
        assert "sesame" not in str(found.value)
    server.faults = ["drop"]
    system.search(BASE[:1], 3)


def test_the_key_is_in_no_record(server):
    system = asked(TEMPLATE, server)
    assert "sesame" not in json.dumps(system.describe()) + repr(vars(system.template))
    assert json.loads(system.snippet({"ef": 40}))["params"] == {"ef": 40}


def test_what_an_endpoint_cannot_tell(server):
    system = HttpSystem(server.url, {"body": "{vector}", "ids": "ids"})
    for what in ("space", "dimension", "ntotal"):
        with pytest.raises(InputError, match="does not"):
            getattr(system, what)
    with pytest.raises(InputError, match="searched as it is"):
        system.build(BASE, "ip")
    with pytest.raises(InputError, match="an address and a template"):
        HttpSystem(server.url)


def test_the_command_line_searches_an_endpoint(semrecall_main, tmp_path: Path, server):
    (tmp_path / "search.json").write_text(json.dumps(TEMPLATE))
    np.save(tmp_path / "queries.npy", BASE[:5])
    status, out, err = semrecall_main(
        "search", f"{server.url}?template=search.json", "--queries", "queries.npy", "-k", 4,
        "--set", "ef=10,20", "-o", "run-{ef}.parquet", "--repeats", 1, "--format", "json",
    )  # fmt: skip
    assert status == 0, err
    run = sr.read("run-10.parquet")
    assert [row[0] for row in run.ids] == [f"doc-{i}" for i in range(5)]
    assert run.space is not None
    assert run.space.name == "l2"
    assert {call.body["params"]["ef"] for call in server.calls} == {10, 20}
    assert "sesame" not in out + err
