"""A server of Chroma of our own, on a free port of 127.0.0.1, for the tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


class ChromaServer:
    """A server whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        program = Path(sys.executable).parent / "chroma"
        arguments = ["run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [str(program), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=folder,
        )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            assert self._process.poll() is None, "Chroma ended at its start"
            assert time.monotonic() < until, "Chroma did not start within 60 seconds"
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)

    @property
    def address(self) -> str:
        """Where it is, as a spec has it."""
        return f"chroma://127.0.0.1:{self.port}"

    def freeze(self) -> None:
        """Let it stand still: it answers nobody, and refuses nobody."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(10)
