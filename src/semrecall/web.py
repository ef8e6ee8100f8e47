"""JSON over HTTP: kept connections, a deadline for each request, retries of lost connections only.

Python's own client is all it needs: a search is timed through it, so it must add little, and what
it adds must be the same for every server.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
import time
import warnings
import weakref
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from semrecall.errors import InputError, SemrecallError, SemrecallWarning

__all__ = ["Client", "Reply", "basic", "filled_in", "in_parallel", "is_local", "words_of"]

#: Pauses before a request whose connection was lost is sent again.
_PAUSES_SECONDS = (0.1, 1.0)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LOST = (ConnectionError, http.client.HTTPException, OSError)

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Reply:
    """What a server said: HTTP status, headers by lower-case name, and the body.

    data: the body as JSON, or as text where it is none.
    """

    status: int
    headers: Mapping[str, str]
    data: Any


class Client:
    """Asks one server. Threads may share it; each request in flight has a connection of its own.

    url: http:// or https://, with a path that all requests start from.
    headers: of every request. `${NAME}` in a value is the environment's variable NAME; it is a
        secret, and never stands in an error.
    timeout_seconds: from sending a request to the end of its reply.
    fault: the kind of error that is raised for what the server does.

    Raises InputError for a URL that is none or that holds a password, and for variables that are
    not set.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
        fault: type[SemrecallError],
    ) -> None:
        self._parts = _checked(url)
        self.url = url.rstrip("/")
        self.timeout_seconds = timeout_seconds
        self._fault = fault
        self._secrets: list[str] = []
        self._headers = {"Accept": "application/json", "User-Agent": "semrecall"}
        for name, value in (headers or {}).items():
            self._headers[name] = filled_in(value, self._secrets)
        if self._secrets and self._parts.scheme == "http" and not is_local(url):
            warnings.warn(
                f"the key goes to {self._parts.hostname} unencrypted; use https",
                SemrecallWarning,
                stacklevel=3,
            )
        self._idle: list[_Line] = []
        self._lock = threading.Lock()
        # Nobody has to remember to close a client.
        weakref.finalize(self, _close, self._idle)

    def keep_secret(self, *secrets: str) -> None:
        """Never let these stand in an error."""
        self._secrets += secrets

    def json(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The JSON that the server replies with.

        Raises the client's kind of error, in the server's own words, for a status of 300 and
        above and for a body that is no JSON.
        """
        reply = self.ask(method, path, body, **more)
        if reply.status >= 300:
            raise self.refused(method, path, reply)
        if isinstance(reply.data, str):
            shown = self._hide(reply.data[:80])
            raise self._fault(f"{self.url}{path} replied {shown!r}, which is no JSON")
        return reply.data

    def found(self, path: str) -> Any:
        """The JSON at a path; None where nothing is there."""
        reply = self.ask("GET", path)
        if reply.status == 404:
            return None
        if reply.status >= 300:
            raise self.refused("GET", path, reply)
        return reply.data

    def refused(self, method: str, path: str, reply: Reply) -> SemrecallError:
        """The error for a reply that is a refusal."""
        hint = None
        if reply.status in (401, 403):
            hint = "is the key in the environment the right one, and may it do this?"
        elif 300 <= reply.status < 400:
            hint = f"it redirects to {reply.headers.get('location', '?')}: use that address"
        return self._fault(
            self._hide(
                f"{method} {self.url}{path} was answered with {reply.status}: {words_of(reply)}"
            ),
            hint=hint,
        )

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        timeout_seconds: float | None = None,
    ) -> Reply:
        """Send a request and wait for the whole reply, whatever its status.

        body: bytes or text as they are, anything else as JSON; None for none.
        """
        data = _encoded(body)
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = content_type
        allowed = timeout_seconds or self.timeout_seconds
        for pause in (*_PAUSES_SECONDS, None):
            try:
                return self._once(_Sent(method, path, data, headers), time.monotonic() + allowed)
            except TimeoutError as error:
                raise self._fault(
                    f"{method} {self.url}{path}: no reply within {allowed:g} s",
                    hint="is the server busy or starting? timeout=SECONDS waits longer",
                ) from error
            except ssl.SSLCertVerificationError as error:
                raise self._fault(
                    f"the certificate of {self._parts.hostname} is not trusted: "
                    f"{error.verify_message}",
                    hint="name the file of the authority that signed it in SSL_CERT_FILE",
                ) from error
            except _LOST as error:
                if pause is None or isinstance(error, socket.gaierror | ssl.SSLError):
                    raise self._fault(
                        f"{self.url} cannot be reached: {_plain(error)}",
                        hint="is the server running, and is this its address?",
                    ) from error
                time.sleep(pause)
        raise AssertionError("the last try either returns or raises")

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            _close(self._idle)

    def _once(self, sent: _Sent, until: float) -> Reply:
        with self._lock:
            line = self._idle.pop() if self._idle else None
        line = line or _Line.to(self._parts)
        try:
            reply = line.carry(sent, until)
        except BaseException:
            line.connection.close()
            raise
        if line.keeps:
            with self._lock:
                self._idle.append(line)
        return reply

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return text


def in_parallel(work: Callable[[Given], Made], items: Sequence[Given], at_once: int) -> list[Made]:
    """`work` of every item, in order, at most so many at a time; the first error ends it."""
    if at_once <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(at_once, len(items))) as pool:
        tasks = [pool.submit(work, item) for item in items]
        try:
            return [task.result() for task in tasks]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def filled_in(text: str, secrets: list[str] | None = None) -> str:
    """A text with `${NAME}` replaced by the environment's variables, which join `secrets`."""

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if not found:
            raise InputError(
                f"the environment variable {match[1]} is not set", hint=f"export {match[1]}=..."
            )
        if secrets is not None:
            secrets.append(found)
        return found

    return _VARIABLE.sub(value, text)


def basic(user: str, password: str) -> str:
    """The header Authorization for a user and a password."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def is_local(url: str) -> bool:
    """Whether an address is of this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def words_of(reply: Reply) -> str:
    """Why a server refused, in its own words, on one line."""
    found = _reason(reply.data)
    text = found if found is not None else reply.data if isinstance(reply.data, str) else ""
    if found is None and not text:
        text = json.dumps(reply.data, ensure_ascii=False) if reply.data else "no reason given"
    text = " ".join(re.sub(r"<[^<>]*>", " ", text).split())
    return text if len(text) <= 400 else text[:400] + " ..."


def _reason(data: Any) -> str | None:
    """The reason in an error's JSON, whose shape differs from server to server."""
    if isinstance(data, str):
        return data
    if isinstance(data, list):
        return next((text for item in data if (text := _reason(item))), None)
    if not isinstance(data, Mapping):
        return None
    for name in ("failed_shards", "root_cause", "reason", "message", "detail", "errors", "error",
                 "msg", "description"):  # fmt: skip
        if data.get(name) and (text := _reason(data[name])):
            return text
    return None


# -- the line ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sent:
    method: str
    path: str
    data: bytes | None
    headers: Mapping[str, str]


@dataclass
class _Line:
    """One connection: to the server, or to the proxy that the environment names."""

    connection: http.client.HTTPConnection
    base: str
    headers: Mapping[str, str] = field(default_factory=dict)
    keeps: bool = False

    @classmethod
    def to(cls, parts: SplitResult) -> _Line:
        path = parts.path.rstrip("/")
        proxy = _proxy(parts)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        if proxy is None:
            assert parts.hostname is not None
            return cls(kind(parts.hostname, parts.port), path)
        headers = {}
        if proxy.username:
            allowed = basic(unquote(proxy.username), unquote(proxy.password or ""))
            headers["Proxy-Authorization"] = allowed
        connection = kind(proxy.hostname or "", proxy.port or 8080)
        if secure:
            connection.set_tunnel(parts.hostname or "", parts.port or 443, headers)
            return cls(connection, path)
        return cls(connection, f"http://{parts.netloc}{path}", headers)

    def carry(self, sent: _Sent, until: float) -> Reply:
        connection = self.connection
        if connection.sock is None:
            connection.timeout = _left(until)
            connection.connect()
        wire = connection.sock
        wire.settimeout(_left(until))
        headers = {**sent.headers, **self.headers}
        connection.request(sent.method, self.base + sent.path, sent.data, headers)
        with connection.getresponse() as reply:
            parts = []
            while part := reply.read1(1 << 18):
                parts.append(part)
                wire.settimeout(_left(until))
            if reply.length:
                raise http.client.IncompleteRead(b"", reply.length)
            self.keeps = not reply.will_close
            named = {name.lower(): value for name, value in reply.getheaders()}
            return Reply(reply.status, named, _decoded(b"".join(parts)))


def _close(lines: list[_Line]) -> None:
    while lines:
        lines.pop().connection.close()


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _proxy(parts: SplitResult) -> SplitResult | None:
    from urllib.request import getproxies, proxy_bypass

    if is_local(parts.geturl()) or proxy_bypass(parts.hostname or ""):
        return None
    found = getproxies().get(parts.scheme)
    return urlsplit(found if "://" in found else f"http://{found}") if found else None


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        known = False
    if not known:
        raise InputError(
            f"{url!r} is no address of a server", hint="for example http://127.0.0.1:9200"
        )
    if parts.username or parts.password:
        raise InputError(
            f"the address of {parts.hostname} holds a user or a password",
            hint="secrets come from the environment; an address ends up in files",
        )
    return parts


def _encoded(body: Any) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def _plain(error: Exception) -> str:
    """What went wrong with a connection, in plain words."""
    if isinstance(error, socket.gaierror):
        return "no such host"
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(number).lower()
    if isinstance(error, http.client.HTTPException | ConnectionError):
        return "the connection was closed before the reply was complete"
    return " ".join(str(error).split()) or type(error).__name__
