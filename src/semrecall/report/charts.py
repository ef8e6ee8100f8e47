"""Charts as SVG that takes its colours from the page, so that they follow dark and light.

Drawn with matplotlib's figure objects, without pyplot; settings of the caller stay. Colours are
placeholders while matplotlib draws, and become CSS variables in the text it writes. The same
input gives the same bytes.
"""

from __future__ import annotations

import functools
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from semrecall.registry import import_extra
from semrecall.report.colors import GRID, INK, MUTED, SERIES, SURFACE, for_page
from semrecall.report.figures import Data, Drawing, note
from semrecall.text import number, one_line, shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "GRID", "INK", "MUTED", "SERIES", "SURFACE", "Bar", "Column", "canvas", "chart",
    "distributions", "histogram", "spread", "stacked_bars", "svg",
]  # fmt: skip

#: One unit of the drawing is one CSS pixel at this width.
_WIDTH, _HEIGHT = 340, 250
_LEVELS = 20
_FONT_SIZE = 10.5


Chart = TypeVar("Chart", bound=Callable[..., str])


def chart(draw: Chart) -> Chart:
    """Decorator: draw under our own settings, whatever the caller's are."""

    @functools.wraps(draw)
    def drawn(*args: Any, **options: Any) -> str:
        matplotlib = import_extra("matplotlib", "report", "an HTML report")
        settings = {
            **matplotlib.rcParamsDefault,
            "svg.fonttype": "none",
            "svg.hashsalt": "semrecall",
            "font.family": "sans-serif",
            "font.size": _FONT_SIZE,
            "axes.labelsize": _FONT_SIZE,
            "xtick.labelsize": _FONT_SIZE,
            "ytick.labelsize": _FONT_SIZE,
            "legend.fontsize": _FONT_SIZE,
            # A dollar in a name is a dollar.
            "text.parse_math": False,
        }
        settings.pop("backend", None)
        with matplotlib.rc_context(settings), warnings.catch_warnings():
            # The browser has the letters that matplotlib's own font lacks.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            return draw(*args, **options)

    return drawn  # type: ignore[return-value]


@dataclass(frozen=True)
class Column:
    """One distribution: what it is called, and its values (NaN is ignored)."""

    label: str
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Bar:
    """One bar made of parts, which may be negative."""

    label: str
    parts: tuple[float, ...]


@chart
def distributions(
    title: str,
    about: str,
    columns: Sequence[Column],
    series: int,
    floor: float,
    label: str = "value",
) -> str:
    """Distributions of values between `floor` and 1 side by side, with their means marked.

    Each is a histogram mirrored at its middle: the wider, the more queries have that value, on one
    scale for all of them. label: what the values are.
    """
    labels = [_label(column.label, len(columns)) for column in columns]
    below = 14 * (max(text.count("\n") for text in labels) if labels else 0)
    figure, axes = canvas(height=_HEIGHT - 16 + below, left=0.16, bottom_pixels=24 + below)
    edges = np.linspace(floor, 1.0, _LEVELS + 1)
    height = edges[1] - edges[0]
    known = [column.values[~np.isnan(column.values)] for column in columns]
    heights = [np.histogram(np.clip(values, floor, 1.0), edges)[0] for values in known]
    most = max((int(counts.max()) for counts in heights), default=0) or 1
    for x, (values, counts) in enumerate(zip(known, heights, strict=True)):
        if len(values) == 0:
            axes.text(x, (1 + floor) / 2, "none", ha="center", color=MUTED)
            continue
        full = counts > 0
        half = np.maximum(0.42 * counts / most, 0.02)
        axes.barh(
            (edges[:-1] + height / 2)[full], 2 * half[full], height * 0.9, left=(x - half)[full],
            color=SERIES[series], alpha=0.55, linewidth=0,
        )  # fmt: skip
        mean = math.fsum(values) / len(values)
        axes.plot(
            [x], [max(mean, floor)], "o", markersize=6, markerfacecolor=SURFACE,
            markeredgecolor=INK, markeredgewidth=1.4,
        )  # fmt: skip
        axes.text(
            x, 1 + 0.07 * (1 - floor), number(mean, 3), ha="center", color=INK, fontweight="bold"
        )
    axes.set_xlim(-0.6, len(columns) - 0.4)
    axes.set_ylim(floor - 0.03 * (1 - floor), 1 + 0.16 * (1 - floor))
    axes.set_xticks(range(len(columns)), labels)
    axes.set_yticks(_round_ticks(floor, 1.0))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axes.set_ylabel(label, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    rows = [(c.label, value) for c in columns for value in c.values.tolist()]
    return svg(figure, title, about, (("group", "value"), rows))


@chart
def histogram(title: str, about: str, counts: NDArray[np.int64], top: int, label: str) -> str:
    """How many queries have each count from 0 to `top`."""
    figure, axes = canvas()
    step = max(1, math.ceil((top + 1) / 26))
    edges = np.arange(0, top + 1 + step, step)
    heights, _ = np.histogram(counts, edges)
    axes.bar(edges[:-1] + (step - 1) / 2, heights, step * 0.9, color=SERIES[0], linewidth=0)
    axes.set_xlim(-0.6 * step, edges[-1] - 0.4 * step)
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("queries", color=INK)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    rows = np.stack(np.unique_counts(counts), axis=1).tolist()
    return svg(figure, title, about, ((label, "queries"), rows))


@chart
def spread(title: str, about: str, values: NDArray[np.float64], label: str) -> str:
    """How many queries have a value in each of 20 parts of the range from 0 to the highest."""
    figure, axes = canvas(bottom_pixels=44)
    top = float(values.max(initial=0.0)) or 1.0
    heights, edges = np.histogram(values, _LEVELS, (0.0, top))
    axes.bar(edges[:-1] + top / _LEVELS / 2, heights, 0.9 * top / _LEVELS, color=SERIES[3])
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("queries", color=INK)
    axes.xaxis.get_major_locator().set_params(nbins=5, steps=[1, 2, 5, 10])
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    return svg(figure, title, about, ((label,), [(value,) for value in values.tolist()]))


@chart
def stacked_bars(title: str, about: str, bars: Sequence[Bar], names: Sequence[str]) -> str:
    """Horizontal bars of named parts; the total stands at the end of each."""
    figure, axes = canvas(height=80 + 44 * len(bars), left=0.06, bottom_pixels=44)
    reach = max((sum(p for p in bar.parts if p > 0) for bar in bars), default=0.0)
    for y, bar in enumerate(bars):
        ends = {True: 0.0, False: 0.0}
        for part, (value, color) in enumerate(zip(bar.parts, SERIES[1:], strict=False)):
            start = ends[value < 0]
            axes.barh(
                y,
                value,
                0.42,
                left=start,
                color=color,
                linewidth=0,
                label=names[part] if not y else None,
            )
            ends[value < 0] = start + value
        axes.text(ends[False] + reach * 0.02, y, number(sum(bar.parts)), va="center", color=INK)
        axes.text(0, y - 0.36, bar.label, va="center", color=INK, fontweight="bold")
    axes.set_ylim(len(bars) - 0.55, -0.75)
    axes.set_xlim(right=reach * 1.2 or 1.0)
    axes.set_yticks([])
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    axes.xaxis.get_major_locator().set_params(nbins=4, steps=[1, 2, 5, 10])
    axes.set_xlabel("mean loss", color=INK)
    figure.legend(
        loc="upper left", ncols=len(names), frameon=False, labelcolor=INK, borderpad=0,
        handlelength=1, columnspacing=1.4, bbox_to_anchor=(0.04, 1.0),
    )  # fmt: skip
    rows = [(bar.label, *bar.parts) for bar in bars]
    return svg(figure, title, about, (("bar", *names), rows))


def canvas(height: int = _HEIGHT, left: float = 0.13, bottom_pixels: int = 40) -> tuple[Any, Any]:
    """A figure without a frame around it, and its axes."""
    figures = import_extra("matplotlib.figure", "report", "an HTML report")
    figure = figures.Figure(figsize=(_WIDTH / 72, height / 72))
    figure.patch.set_visible(False)
    bottom = bottom_pixels / height
    axes = figure.add_axes((left, bottom, 0.98 - left, 1 - bottom - 14 / height))
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(MUTED)
    axes.tick_params(colors=MUTED, labelcolor=INK, length=0, pad=5)
    return figure, axes


def svg(figure: Any, title: str, about: str, data: Data = ((), ())) -> str:
    """The figure as an svg element with a title and a description for who cannot see it.

    data: headings and rows of what it shows, kept where figures are collected.
    """
    backend = import_extra("matplotlib.backends.backend_svg", "report", "an HTML report")
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    backend.FigureCanvasSVG(figure).print_svg(out, metadata=nothing)
    made = _for_page(out.getvalue(), title, about)
    heads, rows = data
    note(Drawing(title, about, figure, made, tuple(heads), tuple(map(tuple, rows))))
    return made


def _for_page(text: str, title: str, about: str) -> str:
    body = text[text.index("<svg") :]
    head_end = body.index(">") + 1
    box = re.search(r'viewBox="[^"]+"', body[:head_end])
    assert box is not None
    body = re.sub(r"<metadata>.*?</metadata>", "", body[head_end:], flags=re.DOTALL)
    body = for_page(body)
    body = re.sub(r"font: [^;\"]*?([0-9.]+)px [^;\"]*", r"font-size: \1px", body)
    # Several drawings share one page: ids must differ.
    own = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{own}-\1"', body)
    body = re.sub(r'(href="#|url\(#)', rf"\1{own}-", body)
    return (
        f'<svg {box.group(0)} role="img" aria-labelledby="{own}-title {own}-about" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f'<title id="{own}-title">{html.escape(title)}</title>'
        f'<desc id="{own}-about">{html.escape(about)}</desc>{body}'
    )


def _label(label: str, columns: int) -> str:
    """A label under one of so many columns: on several lines where it is long, then cut."""
    room = max(5, 44 // max(columns, 1))
    lines = textwrap.wrap(one_line(label), room, break_long_words=False) or [""]
    return "\n".join(shortened(line, room) for line in lines[:3])


def _round_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, about five."""
    ticker = import_extra("matplotlib.ticker", "report", "an HTML report")
    found = ticker.MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [tick for tick in found.tolist() if low - 1e-9 <= tick <= high + 1e-9]
