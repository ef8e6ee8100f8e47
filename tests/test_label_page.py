"""The labelling page over HTTP: who is let in, what is sent before the vote, speed, crashes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from label_server import Client, Site, pairs, served, session_of

from semrecall.data import Judgments
from semrecall.errors import LedgerFault
from semrecall.judges import Document, Ledger, Question

pytest.importorskip("starlette", reason="needs the extra label")
pytest.importorskip("jinja2", reason="needs the extra label")
pytest.importorskip("uvicorn", reason="needs the extra label")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(session_of(pairs(4, 5)), name="anna") as found:
        yield found


# -- who is let in --------------------------------------------------------------------------------


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(site):
    status, headers, body = Client(site.port).get(f"/open/{site.token}")
    assert status == 200
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert site.token not in headers["set-cookie"]
    assert b'content="0;url=/"' in body


@pytest.mark.parametrize("path", ["/", "/people", "/as/anna", "/as/anna/pair", "/as/anna/image/x"])
def test_nothing_is_told_without_the_cookie(site, path):
    status, headers, body = Client(site.port).get(path)
    assert status == 403
    assert "set-cookie" not in headers
    assert b"what of" not in body


@pytest.mark.parametrize("token", ["", "x", "%00", "%C3%A9", "%FF"])
def test_a_wrong_token_opens_nothing(site, token):
    status, headers, _ = Client(site.port).get(f"/open/{token}")
    assert status in (403, 404)
    assert headers["set-cookie"] is None


def test_the_token_on_a_command_line_works_once():
    with served(session_of(pairs(1, 3))) as site:
        assert site.once != site.token
        assert Client(site.port).get(f"/open/{site.once}")[0] == 200
        assert Client(site.port).get(f"/open/{site.once}")[0] == 403
        assert Client(site.port).get("/open/")[0] in (403, 404)
        assert Client(site.port).get(f"/open/{site.token}")[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "[", "192.168.0.1"]
)
def test_another_host_name_is_refused(site, host):
    client = site.client()
    assert client.get("/as/anna/pair", Host=host or " ")[0] in (400, 421)


def test_a_tunnel_to_another_port_works(site):
    client = site.client()
    client.host = "localhost:9999"
    pair = client.pair("anna")["pair"]
    assert client.vote("anna", pair, 1)[0] == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Cookie": "a=b"}, 403),
    ],
)
def test_a_vote_from_elsewhere_is_refused(site, headers, expected):
    client = site.client()
    pair = client.pair("ben")["pair"]
    before = client.pair("ben")["done"]
    body = {"id": pair["id"], "grade": 1}
    assert client.post("/as/ben/vote", body, **headers)[0] == expected
    assert client.pair("ben")["done"] == before


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"\xff", b'{"id": 5}', b"[" * 60_000])
def test_nonsense_is_answered_in_words(site, body):
    status, _, answer = site.client().post("/as/ben/vote", body)
    assert status in (400, 409)
    assert json.loads(answer)["problem"]


@pytest.mark.parametrize("grade", [True, "1", 9, 1.5, {}, float("nan")])
def test_a_grade_that_is_none(site, grade):
    client = site.client()
    assert client.vote("ben", client.pair("ben")["pair"], grade)[0] == 400


def test_a_long_body_is_refused(site):
    assert site.client().post("/as/ben/vote", {"note": "x" * 70_000})[0] == 413


@pytest.mark.parametrize(
    "path",
    [
        "/static/../session.py",
        "/static/%2e%2e%2fsession.py",
        "/static/label.html",
        "/as/anna/image/1",
        "/as/anna/rest/..%2f..%2fetc",
        "/nothing",
    ],
)
def test_there_are_no_other_files(site, path):
    assert site.client().get(path)[0] in (404, 409)


def test_the_browser_is_bound_on_every_answer(site):
    client = site.client()
    for path in ("/as/anna", "/as/anna/pair", "/static/label.js", "/people", "/nothing"):
        _, headers, body = client.get(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert b"http://" not in body.replace(b'xmlns="http://www.w3.org', b"")
        assert b"https://" not in body
        assert b" style=" not in body
        assert b" onclick" not in body


def test_other_methods_are_refused(site):
    client = site.client()
    assert client._ask("PUT", "/as/anna/vote", b"{}", {})[0] == 405
    assert client._ask("OPTIONS", "/as/anna/vote", None, {})[0] == 405


# -- blind ----------------------------------------------------------------------------------------


def everything(client: Client, name: str) -> str:
    """All that a browser gets before the vote."""
    paths = ("", "/pair", "/pair?queue=disputes", "/progress")
    return "\n".join(client.get(f"/as/{name}{path}")[2].decode() for path in paths)


def test_nothing_before_the_vote_tells_rank_score_system_or_label():
    with Ledger(None) as ledger:
        session = session_of(
            pairs(2, 5), ledger, probabilities=np.full(10, 0.321), overlap=1.0, repeats=0.2
        )
        says = Judgments.from_arrays(
            [q.query_id for q in session.questions], [q.doc_id for q in session.questions],
            np.arange(10) % 2, reason=np.full(10, "clearly so", object),
        )  # fmt: skip
        ledger.add(says, "gpt-9")
        with served(session) as site:
            client = site.client()
            for _ in range(4):
                client.vote("ben", client.pair("ben")["pair"], 3, reason="bens reason")
            seen = everything(client, "anna")
            for secret in ("rank", "0.321", "gpt-9", "clearly", "bens", "of-q", "probab", "score"):
                assert secret not in seen.lower().replace("underscore", ""), secret
            pair = client.pair("anna", "disputes")["pair"]
            _, state = client.vote("anna", pair, 0, queue="disputes")
            # After the own label, it is all there.
            judges = {row["judge"]: row["reason"] for row in state["said"]}
            assert judges["gpt-9"] == "clearly so"
            assert judges["ben"] == "bens reason"


def test_a_pair_asked_again_looks_like_any_other():
    session = session_of(pairs(8, 5), repeats=0.3)
    with served(session) as site:
        client = site.client()
        state, shapes, handles = client.pair("anna"), set(), []
        while state["pair"]:
            shapes.add(tuple(sorted(state)) + tuple(sorted(state["pair"])))
            handles.append(state["pair"]["id"])
            _, state = client.vote("anna", state["pair"], 1)
    assert len(handles) == 40 + 12
    assert len(set(handles)) == len(handles)
    assert len(shapes) == 1


# -- people, texts, images ------------------------------------------------------------------------


def test_a_name_is_chosen_or_given(site):
    client = site.client()
    status, headers, _ = client.get("/")
    assert (status, headers["location"]) == (303, "/as/anna")
    status, headers, _ = client.get("/choose?name=Jean%20O%27Neil")
    assert (status, headers["location"]) == (303, "/as/Jean%20O%27Neil")
    status, _, body = client.get("/choose?name=%3Cscript%3E", Accept="text/html")
    assert status == 400
    assert b"<script>" not in body
    assert b"&lt;script&gt;" in body


def test_two_people_at_once(site):
    one, two = site.client(), site.client()
    for _ in range(3):
        for client, name in ((one, "cleo"), (two, "dan")):
            assert client.vote(name, client.pair(name)["pair"], 2)[0] == 200
    assert [one.pair(name)["done"] for name in ("cleo", "dan")] == [3, 3]
    people = one.get("/people")[2].decode()
    assert "cleo" in people
    assert "3 pairs" in people


def test_a_vote_in_a_second_window_is_told(site):
    client = site.client()
    pair = client.pair("eve")["pair"]
    assert client.vote("eve", pair, 1)[0] == 200
    status, answer = client.vote("eve", pair, 2)
    assert status == 409
    assert "another window" in answer["problem"]


def test_long_and_hostile_texts(tmp_path):
    text = "<script>alert(1)</script>\u202e\x00\ud800" + "word " * 400_000
    questions = [Question("q", "d", text[:60], Document(text))]
    with served(session_of(questions, repeats=0)) as site:
        client = site.client()
        status, headers, body = client.get("/as/anna/pair")
        pair = json.loads(body)["pair"]
        assert (status, headers["content-type"]) == (200, "application/json")
        assert len(body) < 20_000
        assert pair["text"].startswith("<script>alert(1)</script>⟦U+202E⟧⟦U+0000⟧⟦U+D800⟧")
        rest = json.loads(client.get(f"/as/anna/rest/{pair['id']}")[2])["text"]
        assert len(rest) == pair["more"]
        assert rest.endswith("word ")


def test_images_are_those_of_the_corpus_by_a_name_of_ours(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    images = {
        "a": str(tmp_path / "a.png"), "b": str(tmp_path / "b.svg"),
        "c": "https://example.com/c.png", "d": "/etc/passwd",
    }  # fmt: skip
    questions = [Question("q", n, n, Document("", image=path)) for n, path in images.items()]
    questions = [Question(f"q{n.doc_id}", n.doc_id, n.query, n.document) for n in questions]
    with served(session_of(questions, repeats=0)) as site:
        client, found = site.client(), {}
        while pair := client.pair("anna")["pair"]:
            found[pair["query"]] = pair["image"] | {"id": pair["id"]}
            client.vote("anna", pair, 1)
        status, headers, body = client.get(found["a"]["source"])
        assert (status, headers["content-type"], body) == (200, "image/png", PNG)
        assert headers["x-content-type-options"] == "nosniff"
        assert found["c"]["address"] == "https://example.com/c.png"
        for name in "bd":
            assert found[name]["source"] == ""
            assert "not shown" in found[name]["fault"]
            assert client.get(f"/as/anna/image/{found[name]['id']}")[0] == 404
        # Of another person, even a right name is none.
        assert client.get(found["a"]["source"].replace("anna", "ben"))[0] == 409


# -- nothing is lost ------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_vote_and_loses_nothing(tmp_path, monkeypatch):
    session = session_of(pairs(2, 3), tmp_path / "l.ledger")
    with served(session) as site:
        client = site.client()
        client.vote("anna", client.pair("anna")["pair"], 1)
        pair, real = client.pair("anna")["pair"], session.ledger.vote

        def full(*_):
            raise LedgerFault("the disk is full: l.ledger takes no more labels", hint="free space")

        monkeypatch.setattr(session.ledger, "vote", full)
        status, answer = client.vote("anna", pair, 2)
        assert status == 507
        assert answer["problem"].startswith("The disk is full")
        assert client.pair("anna")["done"] == 1
        monkeypatch.setattr(session.ledger, "vote", real)
        assert client.vote("anna", pair, 2)[1]["done"] == 2


def test_the_next_pair_comes_in_under_50_ms_with_10_000_pairs():
    session = session_of(pairs(1000, 10))
    with served(session) as site:
        client = site.client()
        pair, seconds = client.pair("anna")["pair"], []
        for _ in range(150):
            start = time.perf_counter()
            _, state = client.vote("anna", pair, len(seconds) % 4)
            seconds.append(time.perf_counter() - start)
            pair = state["pair"]
    assert np.quantile(seconds, 0.95) < 0.05


# -- the command ----------------------------------------------------------------------------------


def write_inputs(folder: Path, queries: int = 3, each: int = 4) -> list[str]:
    rows = pairs(queries, each)
    texts = {q.query_id: q.query for q in rows}
    lines = {
        "pairs.jsonl": [{"query_id": q.query_id, "doc_id": q.doc_id} for q in rows],
        "queries.jsonl": [{"id": name, "text": text} for name, text in texts.items()],
        "docs.jsonl": [{"id": q.doc_id, "text": q.document.text} for q in rows],
    }  # fmt: skip
    for name, entries in lines.items():
        (folder / name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return ["pairs.jsonl", "--corpus", "docs.jsonl", "--queries", "queries.jsonl"]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Site]]:
    """semrecall label, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "BROWSER")}
    process = subprocess.Popen(
        [sys.executable, "-m", "semrecall", "label", *write_inputs(folder), *options],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        text = ""
        while "/open/" not in text:
            line = process.stderr.readline()
            assert line, text
            text += line
        yield process, Site.printed(text)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_killed_and_started_again_it_goes_on(tmp_path):
    with running(tmp_path, "--name", "anna", "--repeats", "0") as (process, site):
        client = site.client()
        for _ in range(5):
            state = client.vote("anna", client.pair("anna")["pair"], 1)[1]
        process.send_signal(signal.SIGKILL)
        process.wait()
    with running(tmp_path, "--name", "anna", "--repeats", "0") as (_, site):
        again = site.client().pair("anna")
    assert (again["done"], again["left"]) == (5, 7)
    assert again["pair"]["text"] == state["pair"]["text"]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_a_word_on_where_the_labels_are(tmp_path, sign, semrecall_main):
    with running(tmp_path) as (process, site):
        client = site.client()
        client.vote("anna", client.pair("anna")["pair"], 1)
        client.pair("bob")  # who looks on, and has no labels to export
        process.send_signal(sign)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == ""
    assert "1 answer added" in err
    assert "human:bob" not in err
    line = next(line for line in err.splitlines() if "ledger export" in line)
    assert line.strip().startswith("semrecall ledger export semrecall.ledger")
    assert "Traceback" not in err
    status, _, _ = semrecall_main(
        "ledger", "export", "semrecall.ledger", "--judge", "human:anna", "-o", "anna.jsonl"
    )
    assert status == 0
    assert json.loads((tmp_path / "anna.jsonl").read_text())["grade"] == 1


def test_a_port_in_use_is_told(tmp_path, semrecall_main):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = semrecall_main("label", *write_inputs(tmp_path), "--port", port)
    assert status == 2
    assert f"port {port} is in use" in err


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "example.com", "::"])
def test_no_other_machine_is_let_in(tmp_path, semrecall_main, host):
    status, _, err = semrecall_main("label", *write_inputs(tmp_path), "--host", host)
    assert status == 2
    assert "this machine alone" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--overlap", "120%"], "is no share"),
        (["--repeats", "often"], "is no share"),
        (["--name", "a/b"], "is no name"),
        (["--prompt", "nothing"], "no prompt is called"),
    ],
)
def test_wrong_options(tmp_path, semrecall_main, options, message):
    status, _, err = semrecall_main("label", *write_inputs(tmp_path), *options)
    assert status == 2
    assert message in err


def test_a_sample_keeps_its_probability(tmp_path):
    with running(tmp_path, "--sample", "3", "--repeats", "0") as (_, site):
        client = site.client()
        while pair := client.pair("anna")["pair"]:
            client.vote("anna", pair, 1)
    with Ledger(tmp_path / "semrecall.ledger") as ledger:
        kept = ledger.judgments("human:anna")
    # 3 of 12 pairs.
    assert kept.details["probability"].tolist() == [0.25] * 3
