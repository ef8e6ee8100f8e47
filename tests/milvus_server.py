"""A Milvus server of our own, from the package `milvus`, on free ports of 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import urllib.request
from typing import Any


class MilvusServer:
    """A server in a temporary folder."""

    def __init__(self) -> None:
        from milvus import MilvusServer as Program

        self.folder = tempfile.mkdtemp(prefix="semrecall-milvus-")
        # Its own wait does not notice that it died.
        self._program: Any = Program(wait_for_started=False)
        self._program.set_base_dir(self.folder)
        self._program.start()
        try:
            self._wait(time.monotonic() + 90)
        except BaseException:
            self.stop()
            raise

    def _wait(self, until: float) -> None:
        health = f"http://127.0.0.1:{self._program.webservice_port}/healthz"
        while time.monotonic() < until:
            code = self._program.server_proc.poll()
            assert code is None, f"Milvus ended with {code}; does another one hold its ports?"
            try:
                with urllib.request.urlopen(health, timeout=5) as answer:
                    if b"OK" in answer.read():
                        return
            except OSError:
                pass
            time.sleep(0.2)
        raise AssertionError("Milvus did not start within 90 seconds")

    @property
    def address(self) -> str:
        """Where it is, as a spec has it."""
        return f"milvus://127.0.0.1:{self._program.listen_port}"

    def freeze(self) -> None:
        """Let it stand still: it answers nobody, and refuses nobody."""
        os.kill(self._program.server_proc.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self._program.server_proc.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it, and its files."""
        self._program.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
