"""The line to an endpoint: one HTTP session, and what became of a request, in one form.

The key lives here, in the headers of the session, for the length of a run; what comes back is
searched for it before anyone sees it.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlsplit

from semrecall.errors import SemrecallWarning
from semrecall.judges.contract import Status
from semrecall.judges.hearing import Heard
from semrecall.judges.wires import Wire
from semrecall.registry import import_extra
from semrecall.web import is_local

__all__ = ["Came", "Connection", "Line", "as_json", "in_words", "with_version"]

_IDLE_SECONDS = 30.0


@dataclass(frozen=True)
class Came:
    """What became of a request. http_status: None where no reply came. sent: whether the endpoint
    may have read the request. reached: whether there was a connection.
    """

    heard: Heard
    seconds: float
    http_status: int | None = None
    sent: bool = True
    reached: bool = True


class Connection(ABC):
    """An HTTP session with an endpoint, the key in its headers; an asynchronous context manager.

    doing: what it is for. Raises MissingExtra without aiohttp, InputError where a key is needed
    and there is none.
    """

    def __init__(self, wire: Wire, base_url: str | None, doing: str) -> None:
        self._http = import_extra("aiohttp", "llm", doing)
        self._wire, self.url = wire, wire.url(base_url)
        self._key = wire.key(base_url)
        self._headers = {**wire.headers(self._key, base_url), "User-Agent": "semrecall"}
        if self._key and self.url.startswith("http:") and not is_local(self.url):
            warnings.warn(
                f"the key goes to {urlsplit(self.url).hostname} unencrypted; use https",
                SemrecallWarning,
                stacklevel=3,
            )
        self._session: Any = None

    @abstractmethod
    def _manners(self) -> dict[str, Any]:
        """Timeouts, and the like, of the session."""

    async def __aenter__(self) -> Self:
        # Proxies of the environment, but not to this machine.
        self._session = self._http.ClientSession(
            headers=self._headers, trust_env=not is_local(self.url), **self._manners()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def _hide(self, heard: Heard) -> Heard:
        """Without the key, should the endpoint have sent it back."""
        if not self._key or self._key not in f"{heard.text} {heard.message}":
            return heard
        return replace(
            heard,
            text=heard.text.replace(self._key, "[key]"),
            message=heard.message.replace(self._key, "[key]"),
        )


class Line(Connection):
    """An open line to an endpoint, for one question after another."""

    def __init__(self, wire: Wire, base_url: str | None, timeout_seconds: float) -> None:
        super().__init__(wire, base_url, "asking a language model")
        self._timeout = timeout_seconds

    def _manners(self) -> dict[str, Any]:
        # How many calls there are at a time is the gate's business.
        connector = self._http.TCPConnector(
            limit=0, ttl_dns_cache=300, keepalive_timeout=_IDLE_SECONDS
        )
        return {"connector": connector, "timeout": self._http.ClientTimeout(total=self._timeout)}

    async def post(self, body: Mapping[str, Any]) -> Came:
        """Send a request and wait for the whole reply. Never raises for what the world does."""
        sent = as_json(body)
        start = time.perf_counter()
        try:
            # A redirect would take the key elsewhere, and turn the request into another.
            async with self._session.post(self.url, allow_redirects=False, **sent) as reply:
                text = await reply.read()
                heard = self._wire.read(reply.status, reply.headers, text)
                return Came(self._hide(heard), time.perf_counter() - start, reply.status)
        except TimeoutError:
            heard = Heard(Status.TIMEOUT, message=f"no reply within {self._timeout:g} s")
            return Came(heard, time.perf_counter() - start)
        except self._http.ClientConnectorError as error:
            number = error.os_error.errno
            words = os.strerror(number) if number and number > 0 else in_words(error.os_error)
            heard = Heard(Status.CONNECTION, message=words.lower())
            return Came(heard, time.perf_counter() - start, sent=False, reached=False)
        except (self._http.ClientError, OSError) as error:
            heard = Heard(Status.CONNECTION, message=in_words(error))
            return Came(self._hide(heard), time.perf_counter() - start)


def as_json(body: Any) -> dict[str, Any]:
    """A body of JSON, and the header that says so."""
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return {"data": data, "headers": {"Content-Type": "application/json"}}


def with_version(base_url: str | None, wire: Wire) -> str | None:
    """The base URL of a chat-completions endpoint with /v1, where it names a host alone."""
    if base_url is None or wire.name != "openai":
        return base_url
    try:
        bare = urlsplit(base_url.strip()).path in ("", "/")
    except ValueError:
        return base_url
    return f"{base_url.strip().rstrip('/')}/v1" if bare else base_url


def in_words(error: Exception) -> str:
    """The error's words, or its name when it has none."""
    return " ".join(str(error).split()) or type(error).__name__
