"""Serving the page on this machine alone, until it is interrupted."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

from semrecall.errors import InputError
from semrecall.label.session import Session
from semrecall.registry import import_extra

__all__ = ["listening", "serve", "server_of"]

_LOOPBACK = {"127.0.0.1": socket.AF_INET, "localhost": socket.AF_INET, "::1": socket.AF_INET6}


def serve(
    session: Session,
    *,
    name: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    target_width: float = 0.05,
    browser: bool = True,
    tell: Callable[[str], object] = print,
) -> None:
    """Serve the page of a session until Ctrl-C or a termination signal; then return.

    host: 127.0.0.1, localhost or ::1; no other machine can be let in. port: 0 takes a free one.
    browser: open one, where this machine has a screen. tell: is told the address of the page.
    Raises InputError for another host or a port in use, MissingExtra without the extra `label`.
    """
    for module in ("starlette", "jinja2", "uvicorn"):
        import_extra(module, "label", "the labelling page")
    from semrecall.label.guard import Keys
    from semrecall.label.pages import Pages

    keys = Keys()
    app = Pages(session, keys, name=name, target_width=target_width).app()
    with listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}"
        tell(f"{address}/open/{keys.token}")
        if browser and _has_screen():
            # Another token, good for one use: command lines are no secret on a machine.
            threading.Thread(
                target=_open, args=(f"{address}/open/{keys.once}",), daemon=True
            ).start()
        before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, _interrupted)
        try:
            server_of(app).run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # the end that was asked for
        finally:
            signal.signal(signal.SIGTERM, before)


def server_of(app: Any) -> Any:
    """A uvicorn server of the application, silent on the terminal."""
    import uvicorn

    return uvicorn.Server(uvicorn.Config(
        app, log_config=None, log_level="critical", access_log=False, lifespan="off", ws="none",
        server_header=False, timeout_graceful_shutdown=2,
    ))  # fmt: skip


def listening(host: str, port: int) -> socket.socket:
    """A bound socket; InputError where it must not or cannot be had."""
    if host not in _LOOPBACK:
        raise InputError(
            f"host is {host!r}; the page is served on this machine alone: 127.0.0.1 or ::1",
            hint="from elsewhere, reach it through a tunnel: ssh -L PORT:127.0.0.1:PORT machine",
        )
    listener = socket.socket(_LOOPBACK[host], socket.SOCK_STREAM)
    if os.name == "posix":
        # A port whose last connections are still closing is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From here on a browser that comes early waits instead of being turned away.
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port {port} is in use", hint="name another one, or let --port 0 find one"
            ) from error
        if error.errno == errno.EACCES:
            raise InputError(f"port {port} is for the system", hint="--port 0 finds one") from error
        raise
    return listener


def _has_screen() -> bool:
    """Whether a browser can show itself; without a screen one would take over the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _open(address: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):  # the address is printed
        webbrowser.open(address)


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt
