"""Looks on a schedule, until somebody ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from semrecall.errors import InputError
from semrecall.watch.look import Look, Watch

__all__ = ["keep_looking", "serving"]

_PATH = "/metrics"


def keep_looking(
    watch: Watch,
    every: float,
    *,
    show: Callable[[Look], None],
    looks: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
    timer: Callable[[], float] = time.monotonic,
) -> None:
    """Look every so many seconds, and hand each Look on.

    A look that takes longer than that is followed by one at the next due time: none are made up
    for. looks: how many; None: until it is interrupted.
    """
    if not every > 0:
        raise InputError(f"every is {every:g} seconds; expected more than 0")
    start, done = timer(), 0
    while looks is None or done < looks:
        if done:
            gone = timer() - start
            sleep((gone // every + 1) * every - gone)
        show(watch.look())
        done += 1


@contextmanager
def serving(address: str, text: Callable[[], str]) -> Iterator[str]:
    """While it lasts, `text()` is served at http://HOST:PORT/metrics; gives that address.

    address: HOST:PORT; port 0 is a free one. Raises InputError where it cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{address!r} is not HOST:PORT", hint="for example 127.0.0.1:9464")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode() if self.path in (_PATH, "/") else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Requests are not worth a line."""

    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
    except OSError as error:
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://{server.server_address[0]!s}:{server.server_address[1]}{_PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
