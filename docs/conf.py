"""How the documentation site is built: `make docs`, then open build/docs/index.html."""

from __future__ import annotations

import re
from importlib.metadata import version as _version
from pathlib import Path
from typing import Any

project = "semrecall"
author = "the semrecall developers"
copyright = "the semrecall developers, Apache-2.0"  # noqa: A001
release = version = _version("semrecall")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
root_doc = "README"
exclude_patterns = ["conf.py"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

smartquotes = False  # options begin with two hyphens
html_theme = "furo"
html_title = "semrecall"
html_show_sphinx = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

autodoc_typehints = "none"
autodoc_member_order = "bysource"
nitpicky = False

#: Pages that lie above docs/ have a place of their own on the site.
_ABOVE = {"CONTRIBUTING": "reference/contributing", "CHANGELOG": "reference/changelog"}
_README = {"../README": "first-steps"}
_HERE = Path(__file__).parent


def _as_site(app: Any, name: str, source: list[str]) -> None:
    """The index's lists become the menu; pages above docs/ are taken in, links lead to them."""
    for above, page in _ABOVE.items():
        if name == page:
            source[0] = (_HERE.parent / f"{above}.md").read_text(encoding="utf-8")
            for other, there in _ABOVE.items():
                source[0] = source[0].replace(f"]({other}.md)", f"](../{there}.md)")
            source[0] = source[0].replace("](docs/", "](../")
    if name == "README":
        source[0] = _with_menu(source[0])


def _with_menu(text: str) -> str:
    for above, page in {**{f"../{a}": p for a, p in _ABOVE.items()}, **_README}.items():
        text = text.replace(f"]({above}.md)", f"]({page}.md)")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    for at, part in enumerate(parts[1:], 1):
        caption = part.splitlines()[0]
        pages = re.findall(r"^- \[[^\]]+\]\(([^)#]+)\.md\)", part, flags=re.MULTILINE)
        menu = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
        parts[at] = part.rstrip() + "\n\n" + "\n".join(menu) + "\n\n"
    return "## ".join(parts)


#: "name, name: what it is", and lines of the same entry, further in.
_ENTRY = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): (.*)$")


def _as_list(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings name arguments as plain lines: a list on the site. A backquote is code."""
    found: list[str] = []
    inside = False
    for line in lines:
        line = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)
        entry = None if what == "module" else _ENTRY.match(line)
        if entry:
            if not inside:
                found.append("")
            found.append(f"- **{entry[1]}**: {_plain(entry[2])}")
            inside = True
        elif inside and line.strip():
            found.append(f"  {_plain(line.strip())}")
        else:
            inside = False
            found.append(_plain(line))
    lines[:] = found


def _plain(text: str) -> str:
    """Without a meaning of its own for * and _ outside code."""
    parts = re.split(r"(``[^`]+``)", text)
    return "".join(p if p.startswith("``") else re.sub(r"([*_|])", r"\\\1", p) for p in parts)


def _as_text(app: Any, context: Any, lines: list[str]) -> None:
    """Help texts are plain."""
    lines[:] = [
        f"| {_plain(line[2:])}" if line.startswith("| ") else _plain(line) for line in lines
    ]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _as_site)
    app.connect("autodoc-process-docstring", _as_list)
    for part in ("description", "options", "arguments"):
        app.connect(f"sphinx-click-process-{part}", _as_text)
