"""What every page is made of: the frame, tables that scroll, figures, shortened texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape, unescape
from importlib.resources import files
from typing import Any

from semrecall.text import one_line

__all__ = [
    "CONTENTS", "beside", "by_text", "column_name", "cut", "figure", "heading", "kind",
    "made_section", "making", "page", "style", "table", "under",
]  # fmt: skip

_LONGEST = 240
#: Where the list of the headings goes.
CONTENTS = "<!-- contents -->"


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of these parts, empty ones left out; it asks nothing of any server.

    The part CONTENTS becomes links to every heading of the second level.
    """
    body = "\n".join(part for part in parts if part)
    if CONTENTS in body:
        body = _with_contents(body)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style()}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def making(command: str | None, facts: Iterable[tuple[str, str]] = ()) -> str:
    """The section on how a page was made: the version, further facts, the command line."""
    from importlib.metadata import version

    known = [("version", f"semrecall {version('semrecall')}"), *facts]
    known += [("command", command)] if command else []
    return made_section(known)


def made_section(facts: Iterable[tuple[str, str]]) -> str:
    """The heading of that section, and the facts under it."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<h2>How this was made</h2><dl>{items}</dl>"


def style() -> str:
    """The style sheet of every page."""
    return files("semrecall.report").joinpath("page.css").read_text(encoding="utf-8")


def under(title: str, about: str, parts: Iterable[str]) -> list[str]:
    """Parts of another page under one heading: their own headings go down a level."""
    body = "\n".join(part for part in parts if part)
    lowered = re.sub(r"<(/?)h([23])>", lambda m: f"<{m[1]}h{int(m[2]) + 1}>", body)
    said = f"<p>{escape(about)}</p>" if about else ""
    return [f"<h2>{escape(title)}</h2>{said}", lowered] if body else []


def by_text(texts: Mapping[Any, str] | None) -> dict[str, str]:
    """Texts by id as text, because "7" and 7 are the same id."""
    return {} if texts is None else {str(key): str(value) for key, value in texts.items()}


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    names: int = 1,
    texts: Collection[int] = (),
) -> str:
    """A table in a box of its own that scrolls; the first `names` cells of a row are names.

    Rows that follow each other with the same first name share it. texts: columns that are to be
    read, not compared.
    """
    head = "".join(heading(h, is_text=c < names or c in texts) for c, h in enumerate(heads))
    lines = []
    for r, row in enumerate(rows):
        first = r == 0 or names == 1 or rows[r - 1][0] != row[0]
        cells = [_cell(cell, c < names, c in texts) for c, cell in enumerate(row)]
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


def heading(text: str, *, is_text: bool = False) -> str:
    """The heading of a column; one without a name is no heading."""
    return f'<th scope="col"{kind(is_text)}>{escape(text)}</th>' if text else "<td></td>"


def kind(is_text: bool) -> str:
    """The class of a cell, as an attribute: texts stand to the left."""
    return ' class="text"' if is_text else ""


def figure(caption: str, small: str, chart: str) -> str:
    """A chart under its caption, with a smaller line that may be empty."""
    below = f"<small>{escape(small)}</small>" if small else ""
    return f"<figure><figcaption>{escape(caption)}{below}</figcaption>{chart}</figure>"


def beside(drawing: str, *parts: str) -> str:
    """A chart and what belongs to it side by side; below each other on a narrow screen."""
    return f'<div class="beside">{drawing}<div>{"".join(parts)}</div></div>'


def column_name(column: str) -> str:
    """The name of a column of slices as people read it."""
    return "semantic neighbours" if column == "sn" else column


def cut(text: str, longest: int = _LONGEST) -> str:
    """A text on one line, with an ellipsis where it is long."""
    text = one_line(text[: 8 * longest])
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _cell(text: str, is_name: bool, is_text: bool) -> str:
    if is_name:
        return f'<th scope="row">{escape(text)}</th>'
    return f'<td class="text long">{escape(text)}</td>' if is_text else f"<td>{escape(text)}</td>"


def _with_contents(body: str) -> str:
    """Headings of the second level get ids, and links to them stand where CONTENTS was."""
    links: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", unescape(found[1]).lower()).strip("-")
        name = f"part-{len(links) + 1}-{name}".rstrip("-")
        links.append(f'<li><a href="#{name}">{found[1]}</a></li>')
        return f'<h2 id="{name}">{found[1]}</h2>'

    body = re.sub(r"<h2>(.*?)</h2>", numbered, body)
    nav = f'<nav aria-label="Contents"><ol>{"".join(links)}</ol></nav>'
    return body.replace(CONTENTS, nav, 1)
