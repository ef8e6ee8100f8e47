"""The line to an endpoint: one HTTP session, and what became of a request, in one form.

The key lives here, in the headers of the session, for the length of a run; what comes back is
searched for it before anyone sees it.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from semrecall.errors import SemrecallWarning
from semrecall.judges.contract import Status
from semrecall.judges.hearing import Heard
from semrecall.judges.wires import Wire
from semrecall.registry import import_extra
from semrecall.web import is_local

__all__ = ["Came", "Line", "with_version"]

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


class Line:
    """An open line to an endpoint; an asynchronous context manager.

    Raises MissingExtra without aiohttp, InputError where a key is needed and there is none.
    """

    def __init__(self, wire: Wire, base_url: str | None, timeout_seconds: float) -> None:
        self._http = import_extra("aiohttp", "llm", "asking a language model")
        self._wire, self._base_url, self._timeout = wire, base_url, timeout_seconds
        self.url = wire.url(base_url)
        self._key = wire.key(base_url)
        if self._key and self.url.startswith("http:") and not is_local(self.url):
            warnings.warn(
                f"the key goes to {urlsplit(self.url).hostname} unencrypted; use https",
                SemrecallWarning,
                stacklevel=2,
            )
        self._session: Any = None

    async def __aenter__(self) -> Line:
        http = self._http
        self._session = http.ClientSession(
            # How many calls there are at a time is the gate's business.
            connector=http.TCPConnector(
                limit=0, ttl_dns_cache=300, keepalive_timeout=_IDLE_SECONDS
            ),
            timeout=http.ClientTimeout(total=self._timeout),
            headers={
                **self._wire.headers(self._key, self._base_url),
                "User-Agent": "semrecall",
            },
            # Proxies of the environment, but not to this machine.
            trust_env=not is_local(self.url),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, body: Mapping[str, Any]) -> Came:
        """Send a request and wait for the whole reply. Never raises for what the world does."""
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        start = time.perf_counter()
        try:
            # A redirect would take the key elsewhere, and turn the request into another.
            async with self._session.post(self.url, data=data, allow_redirects=False) as reply:
                text = await reply.read()
                heard = self._wire.read(reply.status, reply.headers, text)
                return Came(self._hide(heard), time.perf_counter() - start, reply.status)
        except TimeoutError:
            heard = Heard(Status.TIMEOUT, message=f"no reply within {self._timeout:g} s")
            return Came(heard, time.perf_counter() - start)
        except self._http.ClientConnectorError as error:
            number = error.os_error.errno
            words = os.strerror(number) if number and number > 0 else _plain(error.os_error)
            heard = Heard(Status.CONNECTION, message=words.lower())
            return Came(heard, time.perf_counter() - start, sent=False, reached=False)
        except (self._http.ClientError, OSError) as error:
            heard = Heard(Status.CONNECTION, message=_plain(error))
            return Came(self._hide(heard), time.perf_counter() - start)

    def _hide(self, heard: Heard) -> Heard:
        """Without the key, should the endpoint have sent it back."""
        if not self._key or self._key not in f"{heard.text} {heard.message}":
            return heard
        return replace(
            heard,
            text=heard.text.replace(self._key, "[key]"),
            message=heard.message.replace(self._key, "[key]"),
        )


def with_version(base_url: str | None, wire: Wire) -> str | None:
    """The base URL of a chat-completions endpoint with /v1, where it names a host alone."""
    if base_url is None or wire.name != "openai":
        return base_url
    try:
        bare = urlsplit(base_url.strip()).path in ("", "/")
    except ValueError:
        return base_url
    return f"{base_url.strip().rstrip('/')}/v1" if bare else base_url


def _plain(error: Exception) -> str:
    """The error's words, or its name when it has none."""
    return " ".join(str(error).split()) or type(error).__name__
