"""The JSON client: connections, deadlines, retries, the server's own words, and secrets."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from json_server import JsonServer, Refusal, slowly

from semrecall.errors import InputError, SemrecallError, SemrecallWarning, SystemFault
from semrecall.web import Client, Reply, in_parallel, words_of


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semrecall.web._PAUSES_SECONDS", (0.01, 0.01))


def client(url: str, **more: object) -> Client:
    return Client(url, fault=SystemFault, **{"timeout_seconds": 5.0, **more})


def test_one_connection_serves_one_thread():
    with JsonServer(lambda call: {"path": call.path, "body": call.body}) as server:
        asked = client(f"{server.url}/v1/")
        for number in range(5):
            found = asked.json("POST", "/search?x=1", {"n": number})
            assert found == {"path": "/v1/search", "body": {"n": number}}
        asked.close()
    assert server.connections == 1


def test_a_lost_connection_is_tried_again_and_only_so_often():
    with JsonServer(lambda _: {"ok": 1}) as server:
        asked = client(server.url)
        server.faults = ["drop", "half"]
        assert asked.json("GET", "/") == {"ok": 1}
        assert len(server.calls) == 3
        server.faults = ["drop"] * 9
        with pytest.raises(SystemFault, match="cannot be reached: the connection was closed"):
            asked.json("GET", "/")
        assert len(server.calls) == 6


def test_a_server_that_restarted_is_found_again():
    with JsonServer(lambda _: {"ok": 1}) as server:
        asked = client(server.url)
        asked.json("GET", "/")
        # The kept connection is dead now, as after a restart.
        for line in asked._idle:
            line.connection.sock.shutdown(socket.SHUT_RDWR)
        assert asked.json("GET", "/") == {"ok": 1}


def test_nothing_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SystemFault, match="connection refused") as found:
        client(f"http://127.0.0.1:{port}").json("GET", "/")
    assert "is the server running" in str(found.value)


def test_a_deadline_is_kept_and_not_tried_again():
    with JsonServer(lambda _: {}) as server:
        server.faults = ["hang"]
        started = time.monotonic()
        with pytest.raises(SystemFault, match=r"no reply within 0\.2 s"):
            client(server.url, timeout_seconds=0.2).json("GET", "/slow")
        assert time.monotonic() - started < 2
        assert len(server.calls) == 1


def test_a_reply_that_trickles_has_the_same_deadline():
    # Each byte comes soon enough for a timeout of one read; all of them take 5 s.
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(65536)
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
                try:
                    for _ in range(100):
                        line.sendall(b" ")
                        time.sleep(0.05)
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        started = time.monotonic()
        with pytest.raises(SystemFault, match="no reply within"):
            client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.3).json(
                "GET", "/"
            )
        assert time.monotonic() - started < 2
        thread.join()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"error": {"root_cause": [{"reason": "no such field"}], "reason": "all failed"}},
         "no such field"),
        ({"error": {"message": "bad key", "type": "auth"}}, "bad key"),
        ({"error": "no model"}, "no model"),
        ({"detail": [{"loc": ["body", "k"], "msg": "k is too large"}]}, "k is too large"),
        ({"errors": [{"message": "vector lengths differ"}]}, "vector lengths differ"),
        ({"message": "gone"}, "gone"),
        ({"odd": 1}, '{"odd": 1}'),
        ("<html><h1>Bad</h1> gateway</html>", "Bad gateway"),
        (None, "no reason given"),
        ("x" * 900, "x" * 400 + " ..."),
    ],
)  # fmt: skip
def test_the_server_says_why_in_its_own_words(data, words):
    assert words_of(Reply(400, {}, data)) == words


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503])
def test_a_refusal_is_final(status):
    with JsonServer(lambda _: {}) as server:
        server.faults = [Refusal(status, {"message": "not like this"})]
        with pytest.raises(SystemFault, match=f"answered with {status}: not like this"):
            client(server.url).json("POST", "/", {})
        assert len(server.calls) == 1


def test_a_redirect_is_not_followed():
    with JsonServer(lambda _: {}) as server:
        server.faults = [Refusal(302, {}, location="http://127.0.0.1:1/elsewhere")]
        with pytest.raises(SystemFault, match="302") as found:
            client(server.url).json("GET", "/")
    assert "http://127.0.0.1:1/elsewhere" in str(found.value)


def test_a_page_is_no_json():
    with JsonServer(lambda _: "just text") as server:
        with pytest.raises(SystemFault, match="which is no JSON"):
            client(server.url).json("GET", "/")
        server.faults = ["page"]
        with pytest.raises(SystemFault, match="502: Bad gateway"):
            client(server.url).json("GET", "/")


def test_secrets_come_from_the_environment_and_never_come_out(monkeypatch):
    monkeypatch.setenv("SEARCH_KEY", "sesame-42")
    with JsonServer(lambda _: {}) as server:
        asked = client(server.url, headers={"Authorization": "Bearer ${SEARCH_KEY}"})
        server.faults = [Refusal(401, {"message": "the key sesame-42 is wrong"})]
        with pytest.raises(SystemFault) as found:
            asked.json("GET", "/")
        assert server.calls[0].headers["authorization"] == "Bearer sesame-42"
    assert "sesame-42" not in str(found.value)
    assert "[secret] is wrong" in str(found.value)
    assert "key in the environment" in str(found.value)


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(InputError, match="NO_SUCH_KEY is not set"):
        client("http://127.0.0.1:1", headers={"X-Key": "${NO_SUCH_KEY}"})


def test_a_key_in_the_clear_is_warned_of(monkeypatch):
    monkeypatch.setenv("SEARCH_KEY", "sesame-42")
    with pytest.warns(SemrecallWarning, match="unencrypted"):
        client("http://search.example", headers={"X-Key": "${SEARCH_KEY}"})


@pytest.mark.parametrize("url", ["127.0.0.1:9200", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none(url):
    with pytest.raises(InputError, match="is no address"):
        client(url)


def test_an_address_with_a_password_is_refused():
    with pytest.raises(InputError, match="holds a user or a password") as found:
        client("http://me:sesame@host")
    assert "sesame" not in str(found.value)


def test_a_proxy_of_the_environment_is_used_but_not_to_this_machine(monkeypatch):
    with JsonServer(lambda call: {"host": call.headers["host"]}) as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:pass@{proxy.host}")
        monkeypatch.setenv("no_proxy", "")
        assert client("http://far.example/v1").json("GET", "/x") == {"host": "far.example"}
        assert proxy.calls[0].path == "/v1/x"
        # base64 of me:pass
        assert proxy.calls[0].headers["proxy-authorization"] == "Basic bWU6cGFzcw=="
        with JsonServer(lambda _: {"near": 1}) as near:
            assert client(near.url).json("GET", "/") == {"near": 1}


def test_work_in_parallel_keeps_its_order_and_its_bound():
    with JsonServer(slowly(0.05, {})) as server:
        asked = client(server.url)

        def ask(number: int) -> int:
            asked.json("GET", f"/{number}")
            return number

        assert in_parallel(ask, range(12), 3) == list(range(12))
    assert server.most_in_flight == 3
    assert server.connections == 3


def test_the_first_error_of_parallel_work_comes_out():
    def work(number: int) -> int:
        if number == 2:
            raise SystemFault("two")
        return number

    with pytest.raises(SemrecallError, match="two"):
        in_parallel(work, range(50), 4)
