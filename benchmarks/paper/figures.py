"""The figures, as SVG files beside the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#999999")
_SETTINGS = {
    "svg.hashsalt": "semrecall", "svg.fonttype": "none", "font.family": "sans-serif",
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def panels(
    path: Path, titles: Sequence[str], draw: Any, *, height: float = 2.6, sharey: bool = False
) -> None:
    """One row of charts: `draw(axes, number)` draws each."""
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(3.1 * len(titles), height), layout="constrained")
        row = figure.subplots(1, len(titles), squeeze=False, sharey=sharey)[0]
        for number, (axes, title) in enumerate(zip(row, titles, strict=True)):
            axes.set_title(title, fontsize=9, loc="left")
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
            draw(axes, number)
        # The date would change the file at each run.
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


def numbers(axes: Any, counts: Any) -> None:
    """How many queries have how many semantic neighbours: at most 20 bars."""
    counts = np.asarray(counts)
    width = max(1, -(-len(counts) // 20))
    heights = [counts[at : at + width].sum() for at in range(0, len(counts), width)]
    axes.bar(np.arange(len(heights)) * width + (width - 1) / 2, heights, width * 0.9,
             color=COLOURS[0])  # fmt: skip
    axes.set_xlabel("semantic neighbours")
    axes.set_ylabel("queries")


def boxes(axes: Any, groups: Mapping[str, Sequence[Any]], names: Sequence[str]) -> None:
    """The values of several measures, side by side in each group: median, quartiles, 5 and 95%."""
    wide = len(names) + 1
    for at, name in enumerate(names):
        values = [np.asarray(v[at])[~np.isnan(v[at])] for v in groups.values()]
        found = axes.boxplot(
            values, positions=[g * wide + at for g in range(len(groups))], widths=0.7,
            whis=(5, 95), showfliers=False, patch_artist=True, medianprops={"color": "black"},
        )  # fmt: skip
        for box in found["boxes"]:
            box.set(facecolor=COLOURS[at], alpha=0.8)
        axes.plot([], [], color=COLOURS[at], linewidth=5, label=name)
    middle = [g * wide + (len(names) - 1) / 2 for g in range(len(groups))]
    axes.set_xticks(middle, list(groups))
    axes.set_xlabel("semantic neighbours")
    axes.set_ylim(-0.02, 1.02)


def curves(axes: Any, lines: Mapping[str, tuple[Any, Any]], label: str) -> None:
    """Quality against cost."""
    for colour, (name, (x, y)) in zip(COLOURS, lines.items(), strict=False):
        axes.plot(x, y, marker="o", markersize=3, color=colour, label=name)
    logarithmic(axes)
    axes.set_xlabel(label)


def logarithmic(axes: Any) -> None:
    """A logarithmic axis with numbers at 1, 2 and 5, as people write them."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_locator(NullLocator())
