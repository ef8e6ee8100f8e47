"""Charts of tuning: quality against cost, the setting chosen on it, and quality by group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semrecall.report.charts import GRID, INK, MUTED, SERIES, SURFACE, canvas, chart, svg
from semrecall.report.figures import Data

__all__ = ["Mark", "curves", "front", "levels"]

_MARKERS = ("o", "s", "^", "D")
#: A cost on an axis: its name and unit, and what a figure is multiplied with for it.
_COSTS = {
    "bytes_read": ("bytes read per query", 1.0),
    "distance_computations": ("vectors compared per query", 1.0),
    "cpu_seconds": ("processor time per query, ms", 1000.0),
    "latency_seconds": ("mean latency, ms", 1000.0),
    "latency_p50_seconds": ("median latency, ms", 1000.0),
    "latency_p95_seconds": ("95th percentile of latency, ms", 1000.0),
    "latency_p99_seconds": ("99th percentile of latency, ms", 1000.0),
    "queries_per_second": ("queries per second", 1.0),
}


#: Where the axes begin, with room for the name of a measure.
_LEFT = 0.18


@dataclass(frozen=True)
class Mark:
    """A point of a chart: where it stands, and its interval; NaN where there is none."""

    x: float
    mean: float
    low: float = math.nan
    high: float = math.nan


@chart
def front(
    title: str,
    about: str,
    unbeaten: Sequence[Mark],
    others: Sequence[Mark],
    chosen: Mark | None,
    target: float,
    label: str,
    measure: str,
) -> str:
    """The front as a stepped line with intervals, the rest as faint dots, the target as a line."""
    figure, axes = canvas(left=_LEFT, bottom_pixels=44)
    axes.axhline(target, color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
    axes.plot(
        [m.x for m in others], [m.mean for m in others], "o", color=MUTED, markersize=3.5,
        alpha=0.6,
    )  # fmt: skip
    axes.plot(
        [m.x for m in unbeaten], [m.mean for m in unbeaten], color=SERIES[0], linewidth=1.5,
        drawstyle="steps-post",
    )  # fmt: skip
    _points(axes, unbeaten, SERIES[0], "o")
    if chosen is not None:
        axes.plot(
            [chosen.x], [chosen.mean], "o", markersize=11, markerfacecolor="none",
            markeredgecolor=SERIES[1], markeredgewidth=2,
        )  # fmt: skip
    _cost_axis(axes, [m.x for m in (*unbeaten, *others)], label)
    _quality_axis(axes, measure)
    kinds = (("front", unbeaten), ("tried", others), ("chosen", [chosen] if chosen else []))
    return svg(figure, title, about, _data(kinds, label))


@chart
def curves(
    title: str,
    about: str,
    series: Sequence[tuple[str, Sequence[Mark]]],
    label: str,
    measure: str,
    reach: tuple[float, float] | None = None,
) -> str:
    """One line a series, with intervals as bands; costs on a logarithmic scale where they fit.

    measure: what stands along the axis of quality. reach: from where to where it goes, for charts
    that are to be compared.
    """
    lines = -(-len(series) // 2)
    figure, axes = canvas(height=250 + 16 * lines, left=_LEFT, bottom_pixels=44)
    box = axes.get_position()
    axes.set_position((box.x0, box.y0, box.width, box.height - 16 * lines / (250 + 16 * lines)))
    for number, (name, marks) in enumerate(series):
        color = SERIES[number % len(SERIES)]
        known = [m for m in marks if not math.isnan(m.mean)]
        xs = [m.x for m in known]
        axes.fill_between(
            xs, [_or(m.low, m.mean) for m in known], [_or(m.high, m.mean) for m in known],
            color=color, alpha=0.16, linewidth=0,
        )  # fmt: skip
        axes.plot(
            xs, [m.mean for m in known], color=color, linewidth=1.8, markersize=5, label=name,
            marker=_MARKERS[number % len(_MARKERS)], markeredgecolor=SURFACE, markeredgewidth=0.8,
        )  # fmt: skip
    _cost_axis(axes, [m.x for _, marks in series for m in marks], label)
    _quality_axis(axes, measure, reach)
    _legend(figure)
    return svg(figure, title, about, _data(series, label))


@chart
def levels(
    title: str,
    about: str,
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[Mark]]],
    label: str,
    measure: str,
    reach: tuple[float, float] | None = None,
) -> str:
    """Quality by group, one line a setting; groups stand in their order along the axis.

    measure, reach: as of `curves`.
    """
    lines = -(-len(series) // 2)
    figure, axes = canvas(height=250 + 16 * lines, left=_LEFT, bottom_pixels=44)
    box = axes.get_position()
    axes.set_position((box.x0, box.y0, box.width, box.height - 16 * lines / (250 + 16 * lines)))
    for number, (name, marks) in enumerate(series):
        color = SERIES[number % len(SERIES)]
        known = [m for m in marks if not math.isnan(m.mean)]
        axes.plot(
            [m.x for m in known], [m.mean for m in known], color=color, linewidth=1.6, label=name,
        )  # fmt: skip
        _points(axes, known, color, _MARKERS[number % len(_MARKERS)])
    axes.set_xticks(range(len(groups)), [g if len(g) <= 9 else f"{g[:8]}…" for g in groups])
    axes.set_xlim(-0.4, len(groups) - 0.6)
    axes.set_xlabel(label, color=INK)
    _quality_axis(axes, measure, reach)
    _legend(figure)
    heads, rows = _data(series, label)
    named = [(name, groups[int(x)], *rest) for name, x, *rest in rows]
    return svg(figure, title, about, (heads, named))


def _data(series: Sequence[tuple[str, Sequence[Mark]]], label: str) -> Data:
    rows = [(name, m.x, m.mean, m.low, m.high) for name, marks in series for m in marks]
    return ("series", label, "mean", "low", "high"), rows


def _points(axes: Any, marks: Sequence[Mark], color: str, marker: str) -> None:
    for mark in marks:
        if not math.isnan(mark.low):
            axes.plot([mark.x] * 2, [mark.low, mark.high], color=color, linewidth=1.2, alpha=0.6)
    axes.plot(
        [m.x for m in marks], [m.mean for m in marks], marker, color=color, markersize=5.5,
        markeredgecolor=SURFACE, markeredgewidth=0.8,
    )  # fmt: skip


def _quality_axis(axes: Any, measure: str, reach: tuple[float, float] | None = None) -> None:
    if reach is not None:
        axes.set_ylim(*reach)
    axes.yaxis.get_major_locator().set_params(nbins=6, steps=[1, 2, 5, 10])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    axes.set_ylabel(measure, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)


def _cost_axis(axes: Any, costs: Sequence[float], label: str) -> None:
    name, unit = _COSTS.get(label, (label, 1.0))
    known = [cost for cost in costs if cost > 0 and not math.isnan(cost)]
    if known and max(known) > 4 * min(known):
        axes.set_xscale("log")
        axes.set_xticks([tick / unit for tick in _ticks(min(known) * unit, max(known) * unit)])
        axes.minorticks_off()
    else:
        axes.xaxis.get_major_locator().set_params(nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: _short(value * unit))
    axes.set_xlabel(name, color=INK)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers within a logarithmic axis, at most five."""
    found = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in (1, 2, 5)
        if low <= step * 10.0**power <= high
    ]
    return found[:: -(-len(found) // 5)] if len(found) > 5 else found


def _short(value: float) -> str:
    """A cost on an axis: 350k, 1.2M, 0.02."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def _legend(figure: Any) -> None:
    figure.legend(
        loc="upper left", ncols=2, frameon=False, labelcolor=INK, borderpad=0, handlelength=1.6,
        handletextpad=0.5, columnspacing=1.4, bbox_to_anchor=(0.02, 1.0),
    )  # fmt: skip
