"""Where a database is, and how it is talked to: addresses, sessions, deadlines, last words."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from semrecall.errors import InputError, SystemFault
from semrecall.web import Client

__all__ = [
    "Address",
    "Session",
    "own_folder",
    "plain_error",
    "quietly",
    "remove_folder",
    "web_session",
    "within",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Address:
    """Where a server is: host and port, and the path behind them."""

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str, port: int, key: str) -> Address:
        """The parts of `name://host:port/path`. InputError where it holds a password."""
        try:
            parts = urlsplit(url)
            found = parts.port or port
        except ValueError as error:
            raise InputError(
                f"the address {_without_user(url)!r} cannot be read: {error}"
            ) from None
        if parts.username or parts.password:
            raise InputError(
                f"the address {_without_user(url)!r} holds a user or a password",
                hint=f"keys are read from the environment only: set {key}",
            )
        if not parts.hostname:
            raise InputError(f"the address {url!r} names no host")
        return cls(parts.hostname, found, unquote(parts.path.strip("/")))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Session:
    """A connection, shared by systems; closed when none of them holds it any more."""

    def __init__(self, client: Any, close: Callable[..., Any], *given: Any) -> None:
        self.client = client
        weakref.finalize(self, quietly, close, *given)


def web_session(
    address: Any, tls: bool | None, headers: dict[str, str], timeout: float, *secrets: str
) -> Session:
    """Requests in JSON to a server; encrypted where that is asked for, or at port 443."""
    secure = address.port == 443 if tls is None else tls
    client = Client(
        f"http{'s' * secure}://{address}",
        headers=headers,
        timeout_seconds=timeout,
        fault=SystemFault,
    )
    client.keep_secret(*secrets)
    return Session(client, client.close)


def own_folder() -> Path:
    """A new temporary folder."""
    return Path(tempfile.mkdtemp(prefix="semrecall-"))


def remove_folder(folder: Path | None) -> None:
    """Remove a folder of ours, if there is one, as far as that is possible."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def plain_error(error: BaseException, secret: str | None = None) -> str:
    """What an error says in one line, without a key."""
    text = " ".join(str(getattr(error, "message", "") or error).split()) or type(error).__name__
    return text.replace(secret, "***") if secret else text


def within(seconds: float, doing: str, option: str, work: Callable[[], T]) -> T:
    """What the work returns; SystemFault when it takes longer. The work itself goes on then."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:
            outcome.append((False, error))

    # A thread that waits for an answer must not keep the process alive.
    worker = threading.Thread(target=run, daemon=True, name=f"semrecall: {doing}")
    worker.start()
    worker.join(seconds)
    if not outcome:
        raise SystemFault(
            f"{doing} did not end within {seconds:g} seconds",
            hint=f"allow more with {option}=SECONDS in the spec, if it is only slow",
        )
    good, value = outcome[0]
    if good:
        return value  # type: ignore[no-any-return]
    raise value


def quietly(work: Callable[..., Any], *given: Any) -> None:
    """Do the work as far as that is possible."""
    # At the end there is nobody to tell.
    try:
        work(*given)
    except Exception:
        return


def _without_user(url: str) -> str:
    scheme, slashes, rest = url.partition("://")
    return scheme + slashes + rest.rpartition("@")[2]
