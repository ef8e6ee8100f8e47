"""Who may ask the page anything: this machine, this page, whoever holds the token."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "Keys"]

#: Under another name in the Host header, a foreign page would be reading ours (DNS rebinding).
_HOSTS = ("127.0.0.1", "localhost", "::1")
_MAX_BODY = 64 * 1024
_OPEN_PATHS = ("/open/", "/static/")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Keys:
    """The secrets of one run: the token in the address, one that works once, and the cookie."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._once: str | None = secrets.token_urlsafe(32)
        # Cookies do not tell ports apart, so two runs must not share a name.
        self.cookie_name = f"semrecall-{secrets.token_hex(4)}"
        self.cookie = secrets.token_urlsafe(32)

    @property
    def once(self) -> str:
        """For the command line of a browser, which other users of the machine can see."""
        return self._once or ""

    def admit(self, token: str) -> bool:
        """Whether the token is right."""
        if self._once and _equal(token, self._once):
            self._once = None
            return True
        return _equal(token, self.token)

    def knows(self, cookie: str | None) -> bool:
        """Whether the cookie is ours."""
        return _equal(cookie or "", self.cookie)


class Guard:
    """ASGI middleware: refuses whom it must, and sends the headers that bind the browser."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_bound)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if _name_of(host) not in _HOSTS:
            return _refused("this page answers to 127.0.0.1 and localhost only", 421)
        if request.method not in ("GET", "HEAD", "POST"):
            return _refused("GET and POST only", 405)
        path = request.url.path
        if not path.startswith(_OPEN_PATHS) and not self._keys.knows(
            request.cookies.get(self._keys.cookie_name)
        ):
            return _refused(
                "Open the address that semrecall label printed: it holds the key to this page.\n"
                "Each start of semrecall label has a new one."
            )
        return self._post_refusal(request, host) if request.method == "POST" else None

    def _post_refusal(self, request: Request, host: str) -> Response | None:
        """A page of another origin may send a form here, and the browser adds our cookie to it."""
        if request.headers.get("origin") != f"http://{host}":
            return _refused("this request comes from another page")
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _refused("this request comes from another page")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refused("expected application/json", 415)
        length = request.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return _refused("expected a content-length", 411)
        return _refused("that is too long", 413) if int(length) > _MAX_BODY else None


def _refused(text: str, status: int = 403) -> Response:
    return PlainTextResponse(f"{text}\n", status)


def _name_of(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _equal(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), other.encode())
