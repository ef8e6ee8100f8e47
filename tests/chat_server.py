"""A chat server on 127.0.0.1 that misbehaves as told: both wires, faults by script, a full log.

    with ChatServer([{"do": "rate_limited", "first": 1, "after": 1}]) as server:
        judge = LLMJudge("m", base_url=server.url)
        ...
        assert server.log()["count"] == 2

It runs in a process of its own (`thread=True`: in a thread). A document is graded by the mark
"grade:N" in its text, 0 without one; asked for a list, it gives the sentences of the text. A rule
says what to do ("do", see `_FAULTS`) and when: "requests" (numbers from 0), "text" (a part of a
document), "share" (of all documents, by their text), "first" (only so often for the same
documents), "single" (calls about one document, or about several). The first rule that fits is
followed; without one the server answers well.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from aiohttp import web

Rule = dict[str, Any]


class ChatServer:
    """Starts the server; `url` is its base, `log()` what it saw, `script(...)` new rules."""

    def __init__(
        self,
        rules: list[Rule] | None = None,
        *,
        latency: float = 0.0,
        unsupported: tuple[str, ...] = (),
        keep_bodies: bool = True,
        thread: bool = False,
    ) -> None:
        self._settings = {
            "rules": rules or [],
            "latency": latency,
            "unsupported": unsupported,
            "keep_bodies": keep_bodies,
        }
        self._thread = thread

    def __enter__(self) -> ChatServer:
        if self._thread:
            self._start_thread()
        else:
            command = [sys.executable, str(Path(__file__).resolve()), json.dumps(self._settings)]
            self._process = subprocess.Popen(
                [*command, "--until-eof"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._process.stdout is not None
            self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._runner.join()
            return
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._process.stdout.close()
        self._process.stdin.close()

    def log(self) -> dict[str, Any]:
        """count, max_in_flight, cpu_seconds, and requests (each a dict, in order of arrival)."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/log") as reply:
            return dict(json.load(reply))

    def count(self) -> int:
        """How many calls came."""
        return int(self.log()["count"])

    def script(self, rules: list[Rule] | None = None, **settings: Any) -> None:
        """New rules and settings, and an empty log."""
        self._settings |= {"rules": rules or [], **settings}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/script", json.dumps(self._settings).encode()
        )
        urllib.request.urlopen(request).close()

    def _start_thread(self) -> None:
        ready = threading.Event()

        async def serve() -> None:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            runner, self.port = await _serve(self._settings)
            ready.set()
            await self._ended.wait()
            await runner.cleanup()

        self._runner = threading.Thread(target=lambda: asyncio.run(serve()))
        self._runner.start()
        ready.wait()


class _Call:
    """A request, what it asks, and its place in the log."""

    def __init__(self, number: int, request: web.Request, body: dict[str, Any]) -> None:
        self.number, self.request, self.body = number, request, body
        self.anthropic = request.path.endswith("/messages")
        self.documents = documents_of(prompt_of(body))
        self.items = items_of(prompt_of(body))
        self.labels = {name: _grade(text) for name, text in self.documents.items()}
        self.key = "\0".join(sorted(self.documents.values()))
        limit = body.get("max_tokens") or body.get("max_completion_tokens")
        self.max_tokens = int(limit or 10**6)

    def said(self, labels: dict[str, Any] | None = None, **more: Any) -> str:
        """The reply a good judge gives, with these labels."""
        labels = self.labels if labels is None else labels
        if self.items is not None:
            return json.dumps({**more, "items": self.items})
        if not self.several:
            return json.dumps({**more, "label": next(iter(labels.values()))})
        listed = [{"id": name, "label": label} for name, label in labels.items()]
        return json.dumps({**more, "labels": listed})

    @property
    def several(self) -> bool:
        return "" not in self.documents


class _State:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.reset(settings)

    def reset(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.rules: list[Rule] = settings["rules"]
        self.log: list[dict[str, Any]] = []
        self.in_flight = self.max_in_flight = 0
        self.seen: dict[tuple[int, str], int] = {}

    def rule(self, call: _Call) -> Rule:
        for number, rule in enumerate(self.rules):
            if not _fits(rule, call):
                continue
            if "first" in rule:
                seen = self.seen.get((number, call.key), 0)
                self.seen[number, call.key] = seen + 1
                if seen >= rule["first"]:
                    continue
            return rule
        return {"do": "ok"}

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        call = _Call(len(self.log), request, body)
        rule = self.rule(call)
        entry = {
            "at": time.monotonic(),
            "path": request.path,
            "do": rule["do"],
            "documents": list(call.documents.values()),
            "authorized": "Authorization" in request.headers or "x-api-key" in request.headers,
        }
        if self.settings["keep_bodies"]:
            entry["body"] = body
        self.log.append(entry)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if self.settings["latency"]:
                await asyncio.sleep(self.settings["latency"])
            return await self.answer(call, rule)
        finally:
            self.in_flight -= 1
            entry["left"] = time.monotonic()

    async def answer(self, call: _Call, rule: Rule) -> web.StreamResponse:
        for feature in self.settings["unsupported"]:
            if asks_for(call.body, feature):
                return _error(
                    400,
                    f"Unsupported parameter: '{feature}' is not supported with this model.",
                    type="invalid_request_error",
                    code="unsupported_parameter",
                    param=feature,
                )
        return await _FAULTS[rule["do"]](call, rule, self)

    async def show_log(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "count": len(self.log),
                "max_in_flight": self.max_in_flight,
                "cpu_seconds": time.process_time(),
                "requests": self.log,
            }
        )

    async def new_script(self, request: web.Request) -> web.Response:
        self.reset(await request.json())
        return web.Response()


# -- what is asked --------------------------------------------------------------------------------


def prompt_of(body: dict[str, Any]) -> str:
    """All text of a request."""
    found: list[str] = []
    parts = [{"content": body.get("system", "")}, *body["messages"]]
    for message in parts:
        content = message["content"]
        if isinstance(content, str):
            found.append(content)
        else:
            found += [part["text"] for part in content if part.get("type") == "text"]
    return "\n".join(found)


def documents_of(prompt: str) -> dict[str, str]:
    """Name -> text of the documents in the prompt's JSON; a single one has the name ""."""
    decoder = json.JSONDecoder()
    at = prompt.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(prompt, at)
        except ValueError:
            end = at + 1
        else:
            if isinstance(value, dict) and "documents" in value:
                return {d["id"]: _text(d) for d in value["documents"]}
            if isinstance(value, dict) and "document" in value:
                return {"": _text(value["document"])}
            if isinstance(value, dict) and "text" in value:
                return {"": value["text"]}
        at = prompt.find("{", end)
    return {"": prompt}


def items_of(prompt: str) -> list[str] | None:
    """The sentences of the text that a request for a list is about; None for other requests."""
    if '{"items"' not in prompt:
        return None
    found = re.search(r"^BEGIN DATA \w+\n(.*)\nEND DATA", prompt, flags=re.MULTILINE)
    text = json.loads(found[1])["text"] if found else ""
    return [one.strip() for one in text.split(".") if one.strip()]


def _text(document: Any) -> str:
    if isinstance(document, str):
        return document
    return str(document.get("text") or document.get("document") or "")


def asks_for(body: dict[str, Any], feature: str) -> bool:
    """Whether a request uses "json_schema", "json_object", "tools", or a parameter of that name."""
    if feature in ("json_schema", "json_object"):
        asked = body.get("response_format") or body.get("output_config", {}).get("format") or {}
        return asked.get("type") == feature
    return feature in body


def _grade(text: str) -> int:
    found = re.search(r"grade:(\d+)", text)
    return int(found[1]) if found else 0


def _fits(rule: Rule, call: _Call) -> bool:
    if "requests" in rule and call.number not in rule["requests"]:
        return False
    if "text" in rule and not any(rule["text"] in text for text in call.documents.values()):
        return False
    if "single" in rule and rule["single"] == call.several:
        return False
    if "share" in rule:
        spot = int.from_bytes(hashlib.sha256(call.key.encode()).digest()[:4], "big") / 2**32
        return bool(spot < rule["share"])
    return True


# -- what is answered -----------------------------------------------------------------------------


def _reply(call: _Call, text: str | None, finish: str = "stop", **more: Any) -> web.Response:
    """A reply of the wire the call came by."""
    tokens_in, tokens_out = len(prompt_of(call.body)) // 4, len(text or "") // 4 + 1
    tool = _forced_tool(call.body)
    if call.anthropic:
        content: list[dict[str, Any]] = [] if text is None else [{"type": "text", "text": text}]
        if tool and text:
            content = [{"type": "tool_use", "id": "t", "name": tool, "input": json.loads(text)}]
        names = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
        return web.json_response(
            {
                "id": "msg", "type": "message", "role": "assistant", "model": call.body["model"],
                "content": content, "stop_reason": "tool_use" if tool else names[finish],
                "usage": {"input_tokens": tokens_in, "output_tokens": tokens_out},
            }
        )  # fmt: skip
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if tool and text:
        function = {"name": tool, "arguments": text}
        calls = [{"id": "t", "type": "function", "function": function}]
        message |= {"content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message | more, "finish_reason": finish}
    if call.body.get("logprobs") and text:
        choice["logprobs"] = {"content": _logprobs(text)}
    return web.json_response(
        {
            "id": "chat", "object": "chat.completion", "model": call.body["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out},
        }
    )  # fmt: skip


def _forced_tool(body: dict[str, Any]) -> str | None:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return None
    return str(choice.get("name") or choice["function"]["name"])


def _logprobs(text: str) -> list[dict[str, Any]]:
    """Every token certain, but for digits: 0.8, and 0.2 for the other of 0 and 1."""
    found = []
    for token in re.findall(r"\d|[^\d]+", text):
        if token.isdigit():
            other = "0" if token != "0" else "1"
            top = [{"token": token, "logprob": -0.2231}, {"token": other, "logprob": -1.6094}]
        else:
            top = [{"token": token, "logprob": 0.0}]
        found.append(top[0] | {"top_logprobs": top})
    return found


def _error(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Any:
    return web.json_response(
        {"error": {"message": message, **more}}, status=status, headers=headers or {}
    )


async def _ok(call: _Call, rule: Rule, state: _State) -> web.Response:
    more = {} if "reason" not in rule else {"reason": rule["reason"]}
    return _reply(call, call.said(**more))


def _saying(make: Any, **fields: Any) -> Any:
    """A fault that is only another text."""

    async def fault(call: _Call, rule: Rule, state: _State) -> web.Response:
        return _reply(call, make(call, rule), **fields)

    return fault


def _failing(status: int, message: str, **fields: Any) -> Any:
    """A fault that is an HTTP error; "after" of the rule is its Retry-After, "location" where it
    redirects to."""

    async def fault(call: _Call, rule: Rule, state: _State) -> Any:
        names = {"after": "retry-after", "location": "location"}
        headers = {names[part]: str(rule[part]) for part in names if part in rule}
        said = rule.get("message", message)
        return _error(rule.get("status", status), said, headers, **fields)

    return fault


async def _truncated(call: _Call, rule: Rule, state: _State) -> web.Response:
    if call.max_tokens >= rule.get("need", 10**9):
        return _reply(call, call.said())
    return _reply(call, call.said(reason="because it is")[:15], "length")


async def _hang(call: _Call, rule: Rule, state: _State) -> web.Response:
    await asyncio.sleep(rule["seconds"])
    return _reply(call, call.said())


async def _slow(call: _Call, rule: Rule, state: _State) -> web.StreamResponse:
    """A byte now and then: no single wait is long, all of them are."""
    whole = _reply(call, call.said()).body
    assert isinstance(whole, bytes)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(whole)
    await response.prepare(call.request)
    for at in range(len(whole)):
        await response.write(whole[at : at + 1])
        await asyncio.sleep(rule["seconds"] / len(whole))
    return response


async def _reset(call: _Call, rule: Rule, state: _State) -> web.Response:
    assert call.request.transport is not None
    call.request.transport.abort()
    return web.Response()


async def _too_few(call: _Call, rule: Rule, state: _State) -> web.Response:
    left = {n: v for n, v in call.labels.items() if rule["without"] not in call.documents[n]}
    return _reply(call, call.said(left))


async def _too_many(call: _Call, rule: Rule, state: _State) -> web.Response:
    """An id nobody asked for, and one document twice, with different labels."""
    listed = [{"id": name, "label": label} for name, label in call.labels.items()]
    listed.append({"id": "nobody", "label": 1})
    for name, text in call.documents.items():
        if rule["twice"] in text:
            listed.append({"id": name, "label": 1 - call.labels[name]})
    return _reply(call, json.dumps({"labels": listed}))


async def _by_place(call: _Call, rule: Rule, state: _State) -> web.Response:
    """Documents with the given mark are relevant when they stand in the first half."""
    half = len(call.labels) / 2
    labels = {
        name: int(place < half) if rule["mark"] in call.documents[name] else label
        for place, (name, label) in enumerate(call.labels.items())
    }
    return _reply(call, call.said(labels))


async def _html(call: _Call, rule: Rule, state: _State) -> web.Response:
    text = "<html><body>Welcome to the Wi-Fi of our hotel</body></html>"
    return web.Response(text=text, content_type="text/html", status=rule.get("status", 200))


async def _refused(call: _Call, rule: Rule, state: _State) -> web.Response:
    if call.anthropic:
        return _reply(call, None, "content_filter")
    return _reply(call, None, refusal="I can't help with that.")


_FAULTS: dict[str, Any] = {
    "ok": _ok,
    "fence": _saying(lambda c, r: f"```json\n{c.said(reason='..')}\n```"),
    "prose": _saying(
        lambda c, r: f"Sure! Here is my judgement:\n{c.said()}\nHope this helps."
    ),
    "two_objects": _saying(lambda c, r: '{"label": 0}\n{"label": 1}'),
    "think": _saying(lambda c, r: f'<think>{{"label": 1}}? or 0</think>\n{c.said()}'),
    "malformed": _saying(lambda c, r: '{"label"= 1, "reason": "x"'),
    "words": _saying(lambda c, r: "I would say it fits rather well."),
    "say": _saying(lambda c, r: r["content"]),
    "empty": _saying(lambda c, r: ""),
    "filtered": _saying(lambda c, r: "", finish="content_filter"),
    "truncated": _truncated,
    "refused": _refused,
    "illegal": _saying(lambda c, r: c.said(dict.fromkeys(c.labels, r.get("label", 7)))),
    "filtered_400": _failing(
        400, "The response was filtered due to the prompt triggering our policy.",
        code="content_filter", type="invalid_request_error",
    ),
    "too_long_400": _failing(
        400, "This model's maximum context length is 8192 tokens.",
        code="context_length_exceeded", type="invalid_request_error",
    ),
    "rate_limited": _failing(
        429, "Rate limit reached for requests", code="rate_limit_exceeded", type="requests"
    ),
    "quota": _failing(
        429, "You exceeded your current quota, please check your plan and billing details.",
        code="insufficient_quota", type="insufficient_quota",
    ),
    "server_error": _failing(503, "The server is overloaded.", type="server_error"),
    "unauthorized": _failing(
        401, "Incorrect API key provided.", code="invalid_api_key", type="invalid_request_error"
    ),
    "unknown_model": _failing(
        404, "The model `m` does not exist.", code="model_not_found", type="invalid_request_error"
    ),
    "bad_request": _failing(400, "Something is wrong.", type="invalid_request_error"),
    "hang": _hang,
    "slow": _slow,
    "reset": _reset,
    "too_few": _too_few,
    "too_many": _too_many,
    "by_place": _by_place,
    "html": _html,
}  # fmt: skip


async def _serve(settings: dict[str, Any]) -> tuple[web.AppRunner, int]:
    state = _State(settings)
    app = web.Application(client_max_size=64 * 2**20)
    for path in ("/v1/chat/completions", "/v1/messages"):
        app.router.add_post(path, state.chat)
    app.router.add_get("/log", state.show_log)
    app.router.add_post("/script", state.new_script)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    return runner, int(runner.addresses[0][1])


async def _run(settings: dict[str, Any], until_eof: bool) -> None:
    """Serve for ever, or until the process that started this one is gone."""
    _, port = await _serve(settings)
    print(port, flush=True)
    if until_eof:
        await asyncio.to_thread(sys.stdin.read)
    else:
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--until-eof", action="store_true")
    options = parser.parse_args()
    asyncio.run(_run(options.settings, options.until_eof))
