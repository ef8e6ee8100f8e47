"""The REST interface of Qdrant over qdrant-client's exact local mode, on 127.0.0.1.

No server of Qdrant can run here. This one shows what is sent to one and how its answers are read;
that a search is approximate is shown with the engine itself.
"""

from __future__ import annotations

import json
import re
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Bytes that every search is said to have read.
BYTES_READ = 4096


class QdrantStub:
    """Answers until it is stopped. seen: (method, path, body, headers) of every request."""

    def __init__(self) -> None:
        from qdrant_client import QdrantClient

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.local = QdrantClient(":memory:")
        self.seen: list[tuple[str, str, Any, dict[str, str]]] = []
        #: Status that is answered whatever is asked.
        self.refuse: int | None = None
        #: Whether it keeps everybody waiting.
        self.wait = threading.Event()
        self.wait.set()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Where it is, as a spec has it."""
        return f"qdrant://127.0.0.1:{self._http.server_address[1]}"

    def stop(self) -> None:
        """End it."""
        self.wait.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, method: str, path: str, body: Any) -> Any:
        """The `result` of a request."""
        from qdrant_client import models as m

        if path == "/collections":
            return self.local.get_collections().model_dump(mode="json")
        found = re.fullmatch(r"/collections/([^/]+)(/.*)?", path)
        assert found is not None, path
        name, rest = found[1], found[2] or ""
        if rest == "/exists":
            return {"exists": self.local.collection_exists(name)}
        if rest == "/points" and method == "PUT":
            self.local.upsert(name, [m.PointStruct(**p) for p in body["points"]])
            return {"operation_id": 1, "status": "completed"}
        if rest == "/points/count":
            return {"count": self.local.count(name).count}
        if rest == "/points/scroll":
            points, following = self.local.scroll(
                name, limit=body["limit"], offset=body.get("offset"),
                with_payload=body["with_payload"], with_vectors=body["with_vector"],
            )  # fmt: skip
            shown = [point.model_dump(mode="json") for point in points]
            return {"points": shown, "next_page_offset": following}
        if rest == "/points/query":
            return self._query(name, body)
        if rest == "/points/query/batch":
            return [self._query(name, each) for each in body["searches"]]
        return self._collection(method, name, body)

    def _query(self, name: str, body: Any) -> Any:
        from qdrant_client import models as m

        # Local mode warns of parameters, which change nothing there.
        asked = m.QueryRequest(**{**body, "params": None})
        found = self.local.query_batch_points(name, [asked])
        return found[0].model_dump(mode="json")

    def _collection(self, method: str, name: str, body: Any) -> Any:
        from qdrant_client import models as m

        if method == "PUT":
            asked = m.CreateCollection(**body)
            return self.local.create_collection(name, vectors_config=asked.vectors)
        if method == "DELETE":
            return self.local.delete_collection(name)
        told = self.local.get_collection(name).model_dump(mode="json")
        # Local mode tells of no index, as it has none.
        told["indexed_vectors_count"] = told["points_count"]
        told["config"]["hnsw_config"]["full_scan_threshold"] = 10
        return told

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                path = self.path.partition("?")[0]
                stub.seen.append((self.command, path, body, dict(self.headers)))
                stub.wait.wait(30)
                if path == "/":
                    self.reply(200, {"title": "qdrant", "version": "1.17.0"})
                elif stub.refuse is not None:
                    self.reply(stub.refuse, {"status": {"error": "refused"}, "time": 0})
                else:
                    with stub._lock:
                        result = stub.answer(self.command, path, body)
                    usage = {"hardware": _hardware()} if "query" in path else None
                    self.reply(200, {"result": result, "status": "ok", "time": 0, "usage": usage})

            do_GET = do_PUT = do_POST = do_DELETE = do  # noqa: N815

            def reply(self, status: int, content: Any) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                return

        return Handler


def _hardware() -> dict[str, int]:
    names = ("cpu", "payload_io_read", "payload_io_write", "payload_index_io_read",
             "payload_index_io_write", "vector_io_read", "vector_io_write")  # fmt: skip
    return dict.fromkeys(names, 0) | {"vector_io_read": BYTES_READ}
