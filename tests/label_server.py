"""The labelling page for tests: pairs, a session, the real server on a free port, a client."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from semrecall.judges import Document, Ledger, Question
from semrecall.judges.prompts import load_prompt
from semrecall.label import Session


def pairs(queries: int, each: int) -> list[Question]:
    """Pairs whose ids say nothing that their texts say."""
    return [
        Question(f"q{q}", f"rank{d}-of-q{q}", f"what of {q}", Document(f"about {q}, text {d}"))
        for q in range(queries)
        for d in range(each)
    ]


def session_of(questions: list[Question], ledger: Any = None, **options: Any) -> Session:
    """A session in memory, or on a ledger or its path."""
    prompt = load_prompt("relevance", options.pop("scale", "graded"))
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    return Session(questions, prompt, book, **options)


class Client:
    """One browser without a face: keeps the cookie, sends what the page would send."""

    def __init__(self, port: int, token: str = "", host: str = "") -> None:
        self.host = host or f"127.0.0.1:{port}"
        self.port = port
        self.cookie = ""
        if token:
            status, headers, _ = self.get(f"/open/{token}")
            assert status == 200
            self.cookie = headers["set-cookie"].partition(";")[0]

    def get(self, path: str, **headers: str) -> tuple[int, Any, bytes]:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any, bytes]:
        usual = {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        return self._ask("POST", path, data, usual | headers)

    def pair(self, name: str, queue: str = "label") -> Any:
        return json.loads(self.get(f"/as/{name}/pair?queue={queue}")[2])

    def vote(self, name: str, pair: Any, grade: float | None, **more: Any) -> tuple[int, Any]:
        status, _, body = self.post(f"/as/{name}/vote", {"id": pair["id"], "grade": grade, **more})
        return status, json.loads(body)

    def _ask(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any, bytes]:
        sent = {"Host": self.host, "Cookie": self.cookie} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as line:
            line.request(method, path, body, {name: value for name, value in sent.items() if value})
            reply = line.getresponse()
            return reply.status, reply.headers, reply.read()


class Site:
    """Where a page is served."""

    def __init__(self, port: int, token: str, once: str = "") -> None:
        self.port, self.token, self.once = port, token, once
        self.address = f"http://127.0.0.1:{port}"

    @property
    def entrance(self) -> str:
        return f"{self.address}/open/{self.token}"

    def client(self) -> Client:
        return Client(self.port, self.token)

    @classmethod
    def printed(cls, text: str) -> Site:
        """From what the command line prints."""
        found = re.search(r"http://127\.0\.0\.1:(\d+)/open/(\S+)", text)
        assert found, text
        return cls(int(found[1]), found[2])


@contextmanager
def served(session: Session, **options: Any) -> Iterator[Site]:
    """The page of a session, on a free port of this machine."""
    from semrecall.label.guard import Keys
    from semrecall.label.pages import Pages
    from semrecall.label.serving import listening, server_of

    keys = Keys()
    server = server_of(Pages(session, keys, **options).app())
    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until = time.monotonic() + 20
            while not server.started and time.monotonic() < until:
                time.sleep(0.01)
            yield Site(listener.getsockname()[1], keys.token, keys.once)
        finally:
            server.should_exit = True
            thread.join(20)
