"""Where batches live: the batch endpoints of OpenAI and Anthropic, and the line to them."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import quote, urlsplit

from semrecall.errors import JudgeFault, Stopped
from semrecall.judges.contract import Question, Status
from semrecall.judges.hearing import Heard, as_dict, shown
from semrecall.judges.line import Connection, as_json, in_words
from semrecall.judges.llm import LLMJudge

__all__ = ["PLACES", "Batch", "BatchLine", "Place", "Request"]

_TRIES = 4
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 30.0


@dataclass(frozen=True)
class Batch:
    """A batch at the endpoint.

    state: "running", "ended" (its answers are there), "collected", "failed", "submitting" (by a
    process that is still at it), or "lost" (its process ended before the endpoint had named it).
    counts: what the endpoint counts. message: its words where it failed.
    """

    id: str
    state: str
    requests: int
    counts: Mapping[str, int] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True)
class Request:
    """One request of a batch: which question and window it is about, and its line or entry."""

    question: Question
    id: str
    body: dict[str, Any]
    size: int


class Place(ABC):
    """Where the batches of one vendor live."""

    def __init__(self, judge: LLMJudge) -> None:
        self.wire = judge.wire
        self.root = judge.wire.root(judge.base_url)

    @abstractmethod
    async def submit(self, http: BatchLine, block: Sequence[Request], name: str) -> str:
        """Hand in a batch; what the endpoint calls it."""

    @abstractmethod
    async def find(self, http: BatchLine, name: str) -> str | None:
        """A batch that was handed in under our name, if the endpoint can tell."""

    @abstractmethod
    def address(self, batch: str) -> str:
        """Where a batch's state is."""

    @abstractmethod
    def batch(self, said: Any, requests: int) -> Batch:
        """The state in an endpoint's words as one of ours."""

    @abstractmethod
    def results(self, http: BatchLine, said: Any) -> AsyncIterator[tuple[str, Heard | None]]:
        """(name of the request, what was heard) in any order; None where it was not answered."""


class _OpenAIPlace(Place):
    def address(self, batch: str) -> str:
        return f"{self.root}/batches/{quote(batch, safe='')}"

    async def submit(self, http: BatchLine, block: Sequence[Request], name: str) -> str:
        lines = [
            {"custom_id": r.id, "method": "POST", "url": _ENDPOINT, "body": r.body} for r in block
        ]
        data = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
        file = await http.upload(f"{self.root}/files", data.encode("utf-8", "replace"))
        wanted = {
            "input_file_id": _id(file),
            "endpoint": _ENDPOINT,
            "completion_window": "24h",
            "metadata": {"semrecall": name},
        }
        return _id(await http.json("POST", f"{self.root}/batches", wanted))

    async def find(self, http: BatchLine, name: str) -> str | None:
        said = await http.json("GET", f"{self.root}/batches?limit=100")
        for one in as_dict(said).get("data") or []:
            if as_dict(as_dict(one).get("metadata")).get("semrecall") == name:
                return _id(one)
        return None

    def batch(self, said: Any, requests: int) -> Batch:
        status = as_dict(said).get("status")
        state = {"failed": "failed", "completed": "ended", "expired": "ended", "cancelled": "ended"}
        faults = as_dict(as_dict(said).get("errors")).get("data")
        words = [str(as_dict(f).get("message")) for f in faults] if isinstance(faults, list) else []
        return Batch(
            "",
            state.get(str(status), "running"),
            requests,
            _counts(as_dict(said).get("request_counts")),
            shown("; ".join(words)),
        )

    async def results(self, http: BatchLine, said: Any) -> AsyncIterator[tuple[str, Heard | None]]:
        for field_name in ("output_file_id", "error_file_id"):
            file = as_dict(said).get(field_name)
            if not isinstance(file, str):
                continue
            address = f"{self.root}/files/{quote(file, safe='')}/content"
            async for line in http.lines(address):
                answer, error = as_dict(line.get("response")), as_dict(line.get("error"))
                heard = None
                if isinstance(answer.get("status_code"), int):
                    body = json.dumps(answer.get("body"))
                    heard = self.wire.read(answer["status_code"], {}, body)
                elif error.get("code") not in ("batch_expired", "batch_cancelled"):
                    heard = self.wire.read_item({"error": error or "no words"})
                yield str(line.get("custom_id")), heard


class _AnthropicPlace(Place):
    def address(self, batch: str) -> str:
        return f"{self.root}/v1/messages/batches/{quote(batch, safe='')}"

    async def submit(self, http: BatchLine, block: Sequence[Request], name: str) -> str:
        wanted = {"requests": [{"custom_id": r.id, "params": r.body} for r in block]}
        return _id(await http.json("POST", f"{self.root}/v1/messages/batches", wanted))

    async def find(self, http: BatchLine, name: str) -> str | None:
        return None  # this endpoint keeps no remark with a batch

    def batch(self, said: Any, requests: int) -> Batch:
        ended = as_dict(said).get("processing_status") == "ended"
        counts = _counts(as_dict(said).get("request_counts"))
        return Batch("", "ended" if ended else "running", requests, counts)

    async def results(self, http: BatchLine, said: Any) -> AsyncIterator[tuple[str, Heard | None]]:
        address = f"{self.address(_id(said))}/results"
        given = as_dict(said).get("results_url")
        # The key goes to no other host than the one it was meant for.
        if isinstance(given, str) and urlsplit(given)[:2] == urlsplit(address)[:2]:
            address = given
        async for line in http.lines(address):
            result = as_dict(line.get("result"))
            kind, heard = result.get("type"), None
            if kind == "succeeded":
                heard = self.wire.read_item(result.get("message"))
            elif kind == "errored":
                heard = self.wire.read_item(result.get("error"))
            yield str(line.get("custom_id")), heard


PLACES: dict[str, type[Place]] = {"openai": _OpenAIPlace, "anthropic": _AnthropicPlace}
_ENDPOINT = "/v1/chat/completions"


def _id(said: Any) -> str:
    found = as_dict(said).get("id")
    if not isinstance(found, str) or not found:
        raise JudgeFault(
            f"the endpoint gave no id: {shown(json.dumps(said))}",
            hint="does it have batches? Judge without them if not",
        )
    return found


def _counts(value: Any) -> dict[str, int]:
    return {k: v for k, v in as_dict(value).items() if isinstance(v, int)}


# -- HTTP ------------------------------------------------------------------------------------------


class BatchLine(Connection):
    """Calls to where batches live. Raises JudgeFault or Stopped with the endpoint's own words."""

    def __init__(self, judge: LLMJudge) -> None:
        super().__init__(judge.wire, judge.base_url, "batches")

    def _manners(self) -> dict[str, Any]:
        timeout = self._http.ClientTimeout(total=None, sock_connect=30, sock_read=300)
        return {"timeout": timeout}

    async def json(self, method: str, address: str, body: Any = None) -> Any:
        """Send JSON, or nothing, and get JSON."""
        return await self._call(method, address, {} if body is None else as_json(body))

    async def upload(self, address: str, data: bytes) -> Any:
        """Send a file of JSON lines."""
        form = self._http.FormData()
        form.add_field("purpose", "batch")
        form.add_field("file", data, filename="semrecall.jsonl", content_type="application/jsonl")
        return await self._call("POST", address, {"data": form})

    async def lines(self, address: str) -> AsyncIterator[dict[str, Any]]:
        """The JSON objects of a file of lines; a line that is none is passed over."""
        rest = b""
        try:
            async with self._session.get(address, allow_redirects=False) as reply:
                if reply.status != 200:
                    raise self._fault(address, reply, await reply.read())
                async for chunk in reply.content.iter_chunked(1 << 16):
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield _object(line)
        except (TimeoutError, self._http.ClientError, OSError) as error:
            raise self._unreached(address, error) from error
        yield _object(rest)

    async def _call(self, method: str, address: str, sent: Mapping[str, Any]) -> Any:
        """One call. What changes nothing at the endpoint is tried again."""
        for attempt in count(1):
            last = attempt == _TRIES or method != "GET"
            try:
                async with self._session.request(
                    method, address, allow_redirects=False, **sent
                ) as reply:
                    data = await reply.read()
                    if 200 <= reply.status < 300:
                        return _object(data)
                    fault = self._fault(address, reply, data)
                    last = last or (reply.status < 500 and reply.status != 429)
            except (TimeoutError, self._http.ClientError, OSError) as error:
                fault = self._unreached(address, error)
            if last:
                raise fault
            await asyncio.sleep(min(_FIRST_WAIT_SECONDS * 2**attempt, _LONGEST_WAIT_SECONDS))
        raise AssertionError("unreachable")

    def _fault(self, address: str, reply: Any, data: bytes) -> JudgeFault | Stopped:
        heard = self._hide(self._wire.read(reply.status, reply.headers, data))
        place, words = _shortened(address), heard.message or "no words"
        message = f"{place} says (HTTP {reply.status}): {words}"
        if heard.status is Status.QUOTA:
            return Stopped(message, hint=heard.hint)
        hint = heard.hint
        if reply.status in (404, 405):
            hint = "does this endpoint have batches, and is this the key the batch was made with?"
        return JudgeFault(message, hint=hint or "nothing is lost: run the same again")

    def _unreached(self, address: str, error: Exception) -> JudgeFault:
        return JudgeFault(
            f"{_shortened(address)} cannot be reached: {in_words(error)}",
            hint="nothing is lost: run the same again",
        )


def _shortened(address: str) -> str:
    return address.partition("?")[0]


def _object(data: bytes) -> dict[str, Any]:
    try:
        return as_dict(json.loads(data))
    except (ValueError, RecursionError):
        return {}
