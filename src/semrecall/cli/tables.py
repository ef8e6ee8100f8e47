"""Tables on stdout, the same four ways for every command: table, json, csv, markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

__all__ = ["FORMATS", "format_option", "json_text", "print_rows", "rows_text"]

FORMATS = ("table", "json", "csv", "markdown")

Command = TypeVar("Command", bound=Callable[..., Any])


def format_option(command: Command) -> Command:
    """Decorator: the option `--format`, passed on as the argument `format`."""
    import click

    return click.option(
        "--format", "format", type=click.Choice(FORMATS), default="table", show_default=True,
        help="How to print the data.",
    )(command)  # fmt: skip


def print_rows(
    rows: Iterable[Mapping[str, Any]],
    format: str = "table",  # noqa: A002
    *,
    titles: Mapping[str, str] | None = None,
    document: Any = None,
    notes: Sequence[str] = (),
    digits: int = 4,
) -> None:
    """Print rows to stdout in one of FORMATS.

    titles: {key: heading}, which also says which keys are shown and in which order; else the keys
        of the rows as they come.
    document: what `json` prints instead of the rows, where there is more to say than a table can.
    notes: lines under the table, in `table` and `markdown`; beside `csv` they go to stderr. In json
        the document has them.
    digits: decimals of fractions in `table` and `markdown`; json and csv are always exact.
    """
    import click

    click.echo(
        rows_text(rows, format, titles=titles, document=document, notes=notes, digits=digits),
        nl=False,
    )
    if format == "csv":
        for note in notes:
            click.echo(note, err=True)


def rows_text(
    rows: Iterable[Mapping[str, Any]],
    format: str = "table",  # noqa: A002
    *,
    titles: Mapping[str, str] | None = None,
    document: Any = None,
    notes: Sequence[str] = (),
    digits: int = 4,
) -> str:
    """What `print_rows` prints, ending in a line break unless it is empty."""
    table = list(rows)
    if format == "json":
        return json_text(table if document is None else document)
    keys = list(titles) if titles is not None else list(dict.fromkeys(k for r in table for k in r))
    heads = [titles[k] if titles is not None else k for k in keys]
    values = [[row.get(key) for key in keys] for row in table]
    if format == "csv":
        return _csv(keys, values)
    if format == "markdown":
        return _markdown(heads, values, notes, digits)
    return _text(heads, values, notes, digits)


def json_text(document: Any) -> str:
    """A document as JSON: NaN and infinity become null, numpy values plain ones."""
    import json

    return json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    import math

    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    return str(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) or (hasattr(value, "dtype") and value.dtype.kind in "iuf")


def _right(values: list[list[Any]], columns: int) -> list[bool]:
    """A column of numbers stands to the right."""
    return [
        any(_is_number(row[c]) for row in values)
        and all(row[c] is None or _is_number(row[c]) for row in values)
        for c in range(columns)
    ]


def _text(heads: list[str], values: list[list[Any]], notes: Sequence[str], digits: int) -> str:
    from semrecall.text import aligned, cell, wrapped

    rows = [heads, *([cell(v, digits) for v in row] for row in values)]
    right = _right(values, len(heads))
    lines = aligned(_fitted(rows, right), right) if heads else []
    if notes:
        lines += ["", *(line for note in notes for line in wrapped(note))]
    return "".join(line + "\n" for line in lines)


#: Narrower than this a column of text is not made by breaking its cells.
_NARROWEST = 30


def _fitted(rows: list[list[str]], right: list[bool]) -> list[list[str]]:
    """Rows with cells of text over several lines, where the table is too wide for a terminal."""
    from itertools import zip_longest

    from semrecall.text import wrapped

    limits = _limits(rows, right)
    fitted = []
    for row in rows:
        broken = [wrapped(text, limit, indent="") for text, limit in zip(row, limits, strict=True)]
        fitted += [list(line) for line in zip_longest(*broken, fillvalue="")]
    return fitted


def _limits(rows: list[list[str]], right: list[bool]) -> list[int]:
    """How wide each column may be: the last gives way, or else all columns of text."""
    from semrecall.text import display_width, terminal_width

    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    room = terminal_width() - 2 * (len(widths) - 1)
    if sum(widths) <= room or all(right):
        return widths
    rest = room - sum(widths[:-1])
    if not right[-1] and rest >= _NARROWEST:
        return [*widths[:-1], rest]
    limit = max(widths)
    while True:
        capped = [w if r else min(w, limit) for w, r in zip(widths, right, strict=True)]
        if sum(capped) <= room or limit <= _NARROWEST // 2:
            return capped
        limit -= 1


def _csv(keys: list[str], values: list[list[Any]]) -> str:
    import csv
    import io

    from semrecall.text import cell

    def exact(value: Any) -> Any:
        if value is None or (_is_number(value) and value != value):
            return ""
        if isinstance(value, Mapping | list | tuple) and not value:
            return ""
        if isinstance(value, bool | str) or _is_number(value):
            return value.item() if hasattr(value, "item") else value
        return cell(value, digits=17)

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([exact(v) for v in row] for row in values)
    return out.getvalue()


def _markdown(heads: list[str], values: list[list[Any]], notes: Sequence[str], digits: int) -> str:
    from semrecall.text import cell

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(c.replace("\\", "\\\\").replace("|", "\\|") for c in cells) + " |"

    rules = ["---:" if r else "---" for r in _right(values, len(heads))]
    lines = [line(heads), "| " + " | ".join(rules) + " |"]
    lines += [line(cell(v, digits) for v in row) for row in values]
    for note in notes:
        lines += ["", note]
    return "".join(text + "\n" for text in lines)
