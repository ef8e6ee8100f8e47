"""A JSON server on 127.0.0.1 that does as a function says, and misbehaves when told.

    with JsonServer(lambda call: {"hello": call.path}) as server:
        ...
        server.faults.append("drop")   # the next call; see `FAULTS`
        assert server.calls[0].headers["x-key"] == "..."

It is ours: what stands behind a function speaks as a program's documentation says, no more.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: drop: the connection ends without a reply. half: it ends within one. hang: no reply until the
#: server ends. page: a web page. Numbers are statuses.
FAULTS = ("drop", "half", "hang", "page")


@dataclass(frozen=True)
class Call:
    """A request: body as JSON, as a list of JSON lines, or None."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Refusal(Exception):
    """What the function raises to answer with another status than 200."""

    def __init__(self, status: int, data: Any, **headers: str) -> None:
        super().__init__(status)
        self.status, self.data, self.headers = status, data, headers


class JsonServer:
    """Starts and ends with a `with`; `url` is its address, `calls` what came."""

    def __init__(self, answer: Callable[[Call], Any]) -> None:
        self.answer = answer
        self.faults: list[str | Refusal] = []
        self.calls: list[Call] = []
        self.connections = 0
        self.in_flight = self.most_in_flight = 0
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> JsonServer:
        server = self

        class Handler(_Handler):
            owner = server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handled(self, call: Call) -> Any:
        with self._lock:
            self.calls.append(call)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            fault = self.faults.pop(0) if self.faults else None
        try:
            if isinstance(fault, Refusal):
                raise fault
            if fault == "hang":
                self._ended.wait(30)
            return fault or self.answer(call)
        finally:
            with self._lock:
                self.in_flight -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: JsonServer

    def setup(self) -> None:
        super().setup()
        self.owner.connections += 1

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("content-length") or 0)
        text = self.rfile.read(length).decode()
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = Call(self.command, parts.path, query, headers, _body(text, headers))
        try:
            answer = self.owner.handled(call)
        except Refusal as refusal:
            self._reply(refusal.status, json.dumps(refusal.data).encode(), refusal.headers)
            return
        if answer in ("drop", "hang"):
            self.close_connection = True
            return
        if answer == "half":
            self._reply(200, b'{"half": [', {"content-length": "1000"})
            self.close_connection = True
            return
        if answer == "page":
            self._reply(502, b"<html><body><h1>Bad gateway</h1></body></html>", {})
            return
        self._reply(200, json.dumps(answer).encode(), {})

    do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 - the names http.server asks for

    def _reply(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        given = {"content-type": "application/json", "content-length": str(len(data))} | headers
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _body(text: str, headers: dict[str, str]) -> Any:
    if not text:
        return None
    if "ndjson" in headers.get("content-type", ""):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def slowly(seconds: float, answer: Any) -> Callable[[Call], Any]:
    """An answer that takes its time."""

    def wait(_: Call) -> Any:
        time.sleep(seconds)
        return answer

    return wait
