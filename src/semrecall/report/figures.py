"""The charts of a page by themselves: in a notebook, as SVG and PNG files, and as data."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from semrecall.errors import InputError
from semrecall.formats import write_whole, writing
from semrecall.registry import did_you_mean
from semrecall.report.colors import light, painted
from semrecall.report.parts import style
from semrecall.text import shortened

__all__ = ["Data", "Drawing", "Figures", "figures_of", "note"]

#: Headings and rows of what a chart shows.
Data = tuple[Sequence[str], Iterable[Sequence[Any]]]

_COLLECTED: ContextVar[list[Drawing] | None] = ContextVar("drawings", default=None)
#: Letters that matplotlib's own font lacks, where the machine has them.
_FONTS = ("DejaVu Sans", "Noto Sans", "Noto Sans Thai", "Noto Sans CJK JP", "Noto Sans Arabic")


@dataclass(frozen=True, eq=False)
class Drawing:
    """One chart: title, what it shows in words, matplotlib's figure, the svg, and its data."""

    title: str
    about: str
    figure: Any
    svg: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def csv(self) -> str:
        """What is drawn, as CSV."""
        out = io.StringIO()
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(self.heads)
        rows.writerows([["" if v is None or v != v else v for v in row] for row in self.rows])
        return out.getvalue()


class Figures(Mapping[str, Any]):
    """Charts by name; `figures["waterfall"]` is the figure of matplotlib.

    A notebook shows them all in the look of the report. `save(folder)` writes each as SVG, PNG
    and CSV; `data(name)` is what one shows, as headings and rows.
    """

    def __init__(self, drawings: Iterable[Drawing]) -> None:
        self._drawings: dict[str, Drawing] = {}
        for drawing in drawings:
            name = own = re.sub(r"[^a-z0-9]+", "-", drawing.title.lower()).strip("-") or "figure"
            again = 2
            while name in self._drawings:
                name, again = f"{own}-{again}", again + 1
            self._drawings[name] = drawing

    def __getitem__(self, name: str) -> Any:
        return painted(self._drawing(name).figure)

    def __iter__(self) -> Iterator[str]:
        return iter(self._drawings)

    def __len__(self) -> int:
        return len(self._drawings)

    def __repr__(self) -> str:
        return f"Figures({', '.join(self._drawings)})"

    def data(self, name: str) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
        """Headings and rows of what a figure shows."""
        drawing = self._drawing(name)
        return drawing.heads, drawing.rows

    def save(self, folder: str | Path, *, dpi: int = 200) -> list[Path]:
        """Write every figure as NAME.svg, NAME.png and its data as NAME.csv; the paths written."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        made = []
        for name, drawing in self._drawings.items():
            whole = '<?xml version="1.0" encoding="UTF-8"?>\n' + light(_titled(drawing)) + "\n"
            for suffix, text in (("svg", whole), ("csv", drawing.csv())):
                made.append(target / f"{name}.{suffix}")
                write_whole(made[-1], text)
            made.append(target / f"{name}.png")
            with writing(made[-1]) as temporary:
                _save_png(painted(drawing.figure), drawing.title, temporary, dpi)
        return made

    def _drawing(self, name: str) -> Drawing:
        if name not in self._drawings:
            hint = did_you_mean(name, self._drawings)
            raise InputError(f"there is no figure {name!r}", hint=hint)
        return self._drawings[name]

    def _repr_html_(self) -> str:
        # The page's own names, for this box alone: a notebook has rules of its own.
        names = "".join(re.findall(r"--[a-z0-9-]+: [^;]+;", style().partition("@media")[0]))
        drawn = "".join(
            f'<figure style="width:26rem;max-width:100%;margin:0"><figcaption style="font-weight:'
            f'600">{escape(drawing.title)}</figcaption>{drawing.svg}</figure>'
            for drawing in self._drawings.values()
        )
        return (
            f'<div style="{names}background:var(--surface);color:var(--ink);display:flex;'
            f'flex-wrap:wrap;gap:1.5rem;padding:1rem;font-family:system-ui,sans-serif">{drawn}</div>'
        )


def note(drawing: Drawing) -> None:
    """Keep a chart, where charts are collected."""
    found = _COLLECTED.get()
    if found is not None:
        found.append(drawing)


def figures_of(draw: Callable[[], object]) -> Figures:
    """The charts that are drawn by a call, e.g. by making a page."""
    found: list[Drawing] = []
    token = _COLLECTED.set(found)
    try:
        draw()
    finally:
        _COLLECTED.reset(token)
    return Figures(found)


#: Pixels above a chart for its title, where no page has it, and letters of one.
_HEAD, _LONGEST = 24, 46


def _titled(drawing: Drawing) -> str:
    """The chart with its title above it and a font, for a file that stands alone."""

    def taller(box: re.Match[str]) -> str:
        left, top, width, height = map(float, box[1].split())
        return (
            f'viewBox="{left:g} {top - _HEAD:g} {width:g} {height + _HEAD:g}" '
            'font-family="system-ui, sans-serif"'
        )

    text = (
        f'<text x="7" y="-8" font-size="12" font-weight="bold" fill="currentColor">'
        f"{escape(shortened(drawing.title, _LONGEST))}</text>"
    )
    made = re.sub(r'viewBox="([^"]+)"', taller, drawing.svg, count=1)
    return made.replace("</desc>", f"</desc>{text}", 1)


def _save_png(figure: Any, title: str, path: Any, dpi: int) -> None:
    import matplotlib
    from matplotlib import font_manager

    known = set(font_manager.get_font_names())
    fonts = [name for name in _FONTS if name in known]
    with matplotlib.rc_context({"font.sans-serif": fonts}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.patch.set_visible(True)
        height = 72 * figure.get_figheight()
        head = figure.text(
            0.02,
            1 + 8 / height,
            shortened(title, _LONGEST),
            fontsize=12,
            fontweight="bold",
            parse_math=False,
        )
        figure.savefig(
            path, format="png", dpi=dpi, facecolor="white", metadata={"Software": None},
            bbox_inches=_with_head(figure),
        )  # fmt: skip
        head.remove()


def _with_head(figure: Any) -> Any:
    """The box of a figure, in inches, with room for a title above it."""
    from matplotlib.transforms import Bbox

    width, height = figure.get_size_inches()
    return Bbox([[0.0, 0.0], [width, height + _HEAD / 72]])
