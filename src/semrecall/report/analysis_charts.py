"""Charts of an analysis: how many neighbours matter, and how near they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.report.charts import GRID, INK, MUTED, SERIES, SURFACE, canvas, chart, svg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.analysis import Band, Estimate, Group

__all__ = ["correlations", "cumulative", "relevance_by_rank", "scores_by_group"]

_BINS = 20


@chart
def cumulative(
    title: str, about: str, shares: NDArray[np.float64], splits: Sequence[int], label: str
) -> str:
    """The share of queries with at most so many; `splits` are where the groups begin."""
    figure, axes = canvas(left=0.17)
    top = len(shares) - 1
    axes.plot(
        [0, *np.repeat(np.arange(1, top + 1), 2), top + 1],
        np.repeat(shares, 2), color=SERIES[0], linewidth=2,
    )  # fmt: skip
    for split in splits:
        axes.axvline(split, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
    axes.set_xlim(0, top + 1)
    axes.set_ylim(0, 1.03)
    _in_percent(axes.yaxis)
    axes.set_ylabel("queries", color=INK)
    axes.set_xlabel(label, color=INK)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    return svg(figure, title, about, ((label, "share"), enumerate(shares.tolist())))


@chart
def scores_by_group(title: str, about: str, groups: Sequence[Group], label: str) -> str:
    """Mean scores of semantic neighbours and of others side by side, with intervals."""
    figure, axes = canvas(left=0.18)
    kinds = (("semantic", [g.semantic for g in groups], "o", SERIES[0], -0.12),
             ("others", [g.others for g in groups], "s", SERIES[1], 0.12))  # fmt: skip
    for name, found, marker, color, shift in kinds:
        _points(axes, found, shift, marker=marker, color=color, label=name)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xticks(range(len(groups)), [g.group for g in groups])
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("mean score", color=INK)
    axes.margins(y=0.12)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    figure.legend(
        loc="upper right", ncols=2, frameon=False, labelcolor=INK, borderpad=0, handletextpad=0.3,
        columnspacing=1.2, bbox_to_anchor=(0.99, 1.0),
    )  # fmt: skip
    rows = [
        (name, group.group, e.mean, e.low, e.high)
        for name, found, *_ in kinds
        for group, e in zip(groups, found, strict=True)
    ]
    return svg(figure, title, about, (("kind", "group", "mean", "low", "high"), rows))


@chart
def relevance_by_rank(title: str, about: str, bands: Sequence[Band]) -> str:
    """How large a share of the neighbours is relevant in each band of ranks, with intervals."""
    figure, axes = canvas(left=0.17)
    means = [0.0 if math.isnan(b.relevant.mean) else b.relevant.mean for b in bands]
    axes.bar(range(len(bands)), means, 0.8, color=SERIES[2], linewidth=0)
    _whiskers(axes, [b.relevant for b in bands], 0.0, color=INK)
    highest = max((b.relevant.high for b in bands if not math.isnan(b.relevant.high)), default=0.0)
    axes.set_ylim(0, min(1.0, max(*means, highest) * 1.1) or 1.0)
    axes.set_xlim(-0.6, len(bands) - 0.4)
    axes.set_xticks(range(len(bands)), [f"{b.last}" for b in bands])
    _in_percent(axes.yaxis)
    axes.set_ylabel("relevant", color=INK)
    axes.set_xlabel("up to rank", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    rows = [(b.first, b.last, b.relevant.mean, b.relevant.low, b.relevant.high) for b in bands]
    return svg(figure, title, about, (("first", "last", "relevant", "low", "high"), rows))


@chart
def correlations(title: str, about: str, values: NDArray[np.float64]) -> str:
    """How many queries have which rank-biserial correlation, from -1 to 1."""
    figure, axes = canvas()
    edges = np.linspace(-1, 1, _BINS + 1)
    heights, _ = np.histogram(values[~np.isnan(values)], edges)
    middles = (edges[:-1] + edges[1:]) / 2
    axes.bar(middles, heights, 0.9 * 2 / _BINS, color=SERIES[3], linewidth=0)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.set_xlim(-1.03, 1.03)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["-1", "-0.5", "0", "0.5", "1"])
    axes.set_xlabel("r of a query", color=INK)
    axes.set_ylabel("queries", color=INK)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    rows = [(value,) for value in values.tolist()]
    return svg(figure, title, about, (("r",), rows))


def _points(axes: Any, found: Sequence[Estimate], shift: float, **look: Any) -> None:
    known = [(at + shift, e.mean) for at, e in enumerate(found) if not math.isnan(e.mean)]
    _whiskers(axes, found, shift, color=look["color"])
    axes.plot(
        *zip(*known, strict=True) if known else ([], []), linestyle="", markersize=6.5,
        markeredgecolor=SURFACE, markeredgewidth=0.8, **look,
    )  # fmt: skip


def _whiskers(axes: Any, found: Sequence[Estimate], shift: float, *, color: str) -> None:
    for at, estimate in enumerate(found):
        if not math.isnan(estimate.low):
            ends = [estimate.low, estimate.high]
            axes.plot([at + shift] * 2, ends, color=color, linewidth=1.4)


def _in_percent(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
