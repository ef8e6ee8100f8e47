"""Where commands write: never over what they read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

__all__ = ["OutputPath", "WritingCommand", "command_line"]


def command_line() -> str:
    """The command as it was given, for a page to show."""
    import shlex
    import sys

    return shlex.join(["semrecall", *sys.argv[1:]])


class OutputPath(click.Path):
    """The type of an option or argument that names a file to write.

    Where only files are written, their directory has to be there: better now than after the work.

    suffixes: what the name must end in, where only one kind of file is written.
    """

    def __init__(self, *suffixes: str, **options: Any) -> None:
        super().__init__(**options)
        self.suffixes = suffixes

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path; a usage error where it has another ending, or its directory is not there."""
        path = super().convert(value, param, ctx)
        if self.suffixes and path and Path(str(path)).suffix.lower() not in self.suffixes:
            self.fail(f"{path!r} does not end in {' or '.join(self.suffixes)}", param, ctx)
        parent = Path(str(path)).absolute().parent
        if not (self.dir_okay or "{" in str(path) or "://" in str(path) or parent.is_dir()):
            self.fail(f"{path!r}: the directory {parent} does not exist", param, ctx)
        return path


class WritingCommand(click.Command):
    """A command that refuses, before it does anything, to write over a file that it reads."""

    def invoke(self, ctx: click.Context) -> Any:
        """Check the paths among the parameters, then run."""
        written = list(_paths(self, ctx, outputs=True))
        for position, (output, name) in enumerate(written):
            for other, what in [*_paths(self, ctx, outputs=False), *written[:position]]:
                if _same_file(output, other):
                    raise click.UsageError(
                        f"{name} would write over {other}, which is also {what}", ctx
                    )
        return super().invoke(ctx)


def _paths(
    command: click.Command, ctx: click.Context, *, outputs: bool
) -> Iterator[tuple[str, str]]:
    """(path, what it is called) of the parameters that are written, or of those that are read."""
    for param in command.params:
        # What was loaded to be extended or updated may be written again: that is what it means.
        if not isinstance(param.type, click.Path) or param.name in ("load", "update"):
            continue
        if isinstance(param.type, OutputPath) != outputs:
            continue
        given = ctx.params.get(param.name or "")
        for path in given if isinstance(given, tuple | list) else [given]:
            if path and str(path) != "-":
                yield (
                    str(path),
                    param.opts[-1] if param.param_type_name == "option" else _upper(param),
                )


def _upper(param: click.Parameter) -> str:
    return (param.name or "").upper()


def _same_file(left: str, right: str) -> bool:
    try:
        if os.path.samefile(left, right):
            return not Path(left).is_char_device()
    except OSError:
        pass
    return os.path.abspath(left) == os.path.abspath(right)
