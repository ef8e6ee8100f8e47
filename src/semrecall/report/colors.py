"""Colours of charts: placeholders while matplotlib draws, then those of the page's style sheet."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from semrecall.report.parts import style

__all__ = ["GRID", "INK", "MUTED", "SERIES", "SURFACE", "for_page", "light", "painted"]

INK, MUTED, GRID, SURFACE = "#010101", "#010102", "#010103", "#010104"
SERIES = ("#010111", "#010112", "#010113", "#010114")
_NAMES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "line",
    SURFACE: "surface",
    **{color: f"series-{i}" for i, color in enumerate(SERIES, start=1)},
}
_PARTS = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def for_page(svg: str) -> str:
    """Placeholders as variables of the page, so that a chart follows dark and light."""
    for color, name in _NAMES.items():
        svg = svg.replace(color, "currentColor" if color == INK else f"var(--{name})")
    return svg


@cache
def _values() -> dict[str, str]:
    """Name -> colour in the light theme, as the style sheet has them."""
    root = style().partition("@media")[0]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", root))


def light(svg: str) -> str:
    """The variables of a chart as the colours of the light theme, for a file that stands alone."""
    for name, value in _values().items():
        svg = svg.replace(f"var(--{name})", value)
    return svg.replace("currentColor", _values()["ink"])


def painted(figure: Any) -> Any:
    """The figure of matplotlib with its placeholders replaced; the figure itself is changed."""
    from matplotlib.colors import to_hex, to_rgba_array

    known = {color: _values()[name] for color, name in _NAMES.items()}
    for artist in figure.findobj():
        for part in _PARTS:
            get, put = getattr(artist, f"get_{part}", None), getattr(artist, f"set_{part}", None)
            if get is None or put is None:
                continue
            now = to_rgba_array(get())
            if len(now) and all(to_hex(one) in known for one in now):
                new = to_rgba_array([known[to_hex(one)] for one in now])
                new[:, 3] = now[:, 3]
                put(tuple(new[0]) if len(new) == 1 else new)
    return figure
