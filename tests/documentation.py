"""Sessions in the documentation, and how they are run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

__all__ = ["Page", "blocks", "commands_of", "run"]

_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", flags=re.DOTALL | re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, without their indentation."""
    return [
        re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        for indent, found, block in _FENCE.findall(text)
        if found == language
    ]


def commands_of(block: str) -> list[str]:
    """The lines of a session that are typed, continued ones in one."""
    lines = re.sub(r"\\\n\s+", "", block).splitlines()
    return [line for line in lines if line.startswith("$ ")]


def run(line: str, folder: Path, *, allowed: tuple[int, ...] = (0,)) -> str:
    """Run a command of a session; what it says on both streams."""
    words = shlex.split(line.removeprefix("$ "), comments=True)
    assert words[0] == "semrecall"
    program = "import sys; from semrecall.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in allowed, (line, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


class Page:
    """A page of the documentation."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")

    def commands(self) -> list[str]:
        """What is typed in its sessions, in order."""
        return [line for block in blocks(self.text, "console") for line in commands_of(block)]

    def write_python(self, folder: Path) -> None:
        """Write its Python blocks that name a file in their first line."""
        for block in blocks(self.text, "python"):
            named = re.match(r"# (\w+\.py)\b", block)
            if named:
                (folder / named[1]).write_text(block, encoding="utf-8")
