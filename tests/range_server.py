"""An HTTP server of files on 127.0.0.1 that serves ranges and counts the bytes it gave."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType


class RangeServer:
    """`url` is that of the folder. bytes_given: file name -> bytes of bodies.

    ranges: whether it serves parts of files. failures: so many requests for parts fail first.
    """

    def __init__(self, folder: Path, *, ranges: bool = True, failures: int = 0) -> None:
        self.folder, self.ranges, self.failures = folder, ranges, failures
        self.bytes_given: Counter[str] = Counter()
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Quiet."""

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def _answer(self, *, with_body: bool) -> None:
                name = self.path.split("?")[0].lstrip("/")
                path = outer.folder / name
                if not path.is_file():
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body, status, headers = path.read_bytes(), 200, {}
                if outer.ranges:
                    headers["Accept-Ranges"] = "bytes"
                    wanted = self.headers.get("Range")
                    if wanted and with_body:
                        with outer.lock:
                            outer.failures -= 1
                            if outer.failures >= 0:
                                self.send_response(503)
                                self.send_header("Content-Length", "0")
                                self.end_headers()
                                return
                        low, high = wanted.removeprefix("bytes=").split("-")
                        stop = min(int(high) + 1, len(body)) if high else len(body)
                        start = int(low) if low else len(body) - int(high)
                        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
                        body, status = body[start:stop], 206
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if with_body:
                    with outer.lock:
                        outer.bytes_given[name] += len(body)
                    self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RangeServer:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
