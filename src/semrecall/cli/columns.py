"""FILE:COLUMN, labels in one column of a file, or of one judge of a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from semrecall.data import Judgments

__all__ = ["LABELS", "judgments_in", "path_and_column"]


class LabelsPath(click.Path):
    """The type of an option that names a file of labels, and may name a column of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as it is, once there is such a file."""
        path, _ = path_and_column(value)
        if not Path(path).exists():
            self.fail(f"there is no file {path}", param, ctx)
        return str(value)

    def file_of(self, value: str) -> str:
        """The file alone."""
        return path_and_column(value)[0]


def path_and_column(text: str) -> tuple[str, str | None]:
    """The longest part before a colon that is a file, and what follows it.

    Columns may hold colons: "semrecall.ledger:human:anna". Where nothing is a file, the first part.
    """
    if Path(text).exists():
        return text, None
    parts = text.split(":")
    for at in range(len(parts) - 1, 0, -1):
        path = ":".join(parts[:at])
        if path and Path(path).exists():
            return path, ":".join(parts[at:]) or None
    return (parts[0] if len(parts[0]) > 1 else text), None


def judgments_in(text: str, conflicts: str) -> Judgments:
    """The judgments that FILE or FILE:COLUMN names."""
    from semrecall.errors import SemrecallError
    from semrecall.formats import read_judgments

    path, column = path_and_column(text)
    try:
        return read_judgments(path, grade=column, conflicts=conflicts)  # type: ignore[arg-type]
    except SemrecallError as error:
        # What is an option elsewhere is a part of the argument here.
        if "--grade" in (error.hint or ""):
            error.hint = (
                f"name the column that holds the grade: {path}:COLUMN (of a ledger: the judge)"
            )
        raise


#: The type of an option that names labels: FILE, or FILE:COLUMN.
LABELS = LabelsPath()
