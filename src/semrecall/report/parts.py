"""What every page is made of: the frame, tables that scroll, figures, shortened texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from semrecall.text import one_line

__all__ = ["cut", "figure", "kind", "page", "table"]

_LONGEST = 240


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of these parts, empty ones left out; it asks nothing of any server."""
    style = files("semrecall.report").joinpath("page.css").read_text(encoding="utf-8")
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1) -> str:
    """A table in a box of its own that scrolls; the first `names` cells of a row are names.

    Rows that follow each other with the same first name share it.
    """
    head = "".join(
        f'<th scope="col"{kind(c < names)}>{escape(h)}</th>' for c, h in enumerate(heads)
    )
    lines = []
    for r, row in enumerate(rows):
        first = r == 0 or names == 1 or rows[r - 1][0] != row[0]
        cells = [_cell(cell, c < names) for c, cell in enumerate(row)]
        if names > 1:
            span = next(
                (i for i, other in enumerate(rows[r:]) if other[0] != row[0]), len(rows) - r
            )
            cells[0] = f'<th scope="rowgroup" rowspan="{span}">{escape(row[0])}</th>' * first
        place = "" if names == 1 else ' class="first"' if first else ' class="inner"'
        lines.append(f"<tr{place}>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>'
        + "\n".join(lines)
        + "</tbody></table></div>"
    )


def kind(is_text: bool) -> str:
    """The class of a cell, as an attribute: texts stand to the left."""
    return ' class="text"' if is_text else ""


def figure(caption: str, small: str, chart: str) -> str:
    """A chart under its caption, with a smaller line that may be empty."""
    below = f"<small>{escape(small)}</small>" if small else ""
    return f"<figure><figcaption>{escape(caption)}{below}</figcaption>{chart}</figure>"


def cut(text: str) -> str:
    """A text on one line, with an ellipsis where it is long."""
    text = one_line(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def _cell(text: str, is_name: bool) -> str:
    return f'<th scope="row">{escape(text)}</th>' if is_name else f"<td>{escape(text)}</td>"
