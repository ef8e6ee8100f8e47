"""Files that commands read: by path, from a pipe, or from standard input."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

__all__ = ["BASE", "FILE", "SourcePath", "as_given", "files_read", "given_as"]

#: What was given, by the path of its copy.
_GIVEN: dict[str, str] = {}


class SourcePath(click.Path):
    """The type of an option or argument that names a file to read.

    "-" is standard input. It and pipes (`<(zcat run.gz)`) can be read once only, where readers look
    at a file first: they are copied to a temporary file, which goes away with the command.
    """

    def __init__(self) -> None:
        super().__init__(exists=True, allow_dash=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path, of the copy where there is one."""
        path = super().convert(value, param, ctx)
        if ctx is None or ctx.resilient_parsing or not (path == "-" or _is_pipe(str(path))):
            return path
        folder = tempfile.mkdtemp(prefix="semrecall-")
        # The context of the command itself is not closed where a later option is wrong.
        ctx.find_root().call_on_close(lambda: shutil.rmtree(folder, ignore_errors=True))
        copy = Path(folder, "stdin" if path == "-" else "pipe")
        with copy.open("wb") as sink:
            if path == "-":
                shutil.copyfileobj(sys.stdin.buffer, sink)
            else:
                with Path(str(path)).open("rb") as source:
                    shutil.copyfileobj(source, sink)
        if copy.stat().st_size == 0:
            what = "standard input" if path == "-" else str(path)
            self.fail(f"{what} is empty; expected the content of a file", param, ctx)
        _GIVEN[str(copy)] = str(path)
        return str(copy)


class BaseSource(SourcePath):
    """The type of an option that names a base: a file to read, or what a database holds."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path, or the spec of a system as it is: NAME://..., NAME?path=..."""
        if "://" in str(value) or ("?" in str(value) and _is_spec(str(value))):
            return str(value)
        return super().convert(value, param, ctx)


def given_as(path: str) -> str:
    """The path as the user gave it, where it is that of a copy."""
    return _GIVEN.get(path, path)


def as_given(text: str) -> str:
    """A message that names files as they were given, not their copies."""
    for copy, given in _GIVEN.items():
        text = text.replace(copy, "standard input" if given == "-" else given)
    return text


def files_read() -> dict[str, Any]:
    """Every file that the command at work was given to read, for a page to name: `Source`s by what
    the options call them.
    """
    from semrecall.report.making import Source

    ctx = click.get_current_context()
    found: dict[str, Any] = {}
    for param in ctx.command.params:
        kind = param.type
        reads = isinstance(kind, click.Path) and (kind.exists or hasattr(kind, "file_of"))
        given = ctx.params.get(param.name or "") if reads else None
        for value in given if isinstance(given, tuple | list) else [given]:
            if not value:
                continue
            path = kind.file_of(str(value)) if hasattr(kind, "file_of") else str(value)
            name = param.opts[0].lstrip("-")
            name = name.removesuffix("s") if param.nargs == -1 else name
            shown = given_as(str(value))
            shown = "standard input" if shown == "-" else shown
            several = name in found
            found[f"{name}: {shown}" if several else name] = Source(path, shown)
    return found


def _is_spec(text: str) -> bool:
    from semrecall.systems import is_spec

    return is_spec(text)


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except OSError:
        return False


#: The type of an option that names a file to read.
FILE = SourcePath()
#: The type of an option that names base vectors.
BASE = BaseSource()
