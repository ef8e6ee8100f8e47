"""Tolerant recall over its tolerance: the curve, the proxy, and where it meets semantic recall."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import SemrecallError
from semrecall.measures import Measure
from semrecall.report.charts import GRID, INK, MUTED, SERIES, SURFACE, canvas, chart, svg
from semrecall.report.parts import beside, figure, table
from semrecall.text import number, plural
from semrecall.tolerance import ToleranceReport, percent, tolerance

if TYPE_CHECKING:
    from semrecall.evaluate import Result

__all__ = ["Curve", "curve_of", "tolerances"]

#: Tolerances at which the curve is computed.
XS = tuple(np.geomspace(0.001, 0.3, 16).tolist())


@dataclass(frozen=True)
class Curve:
    """Mean trecall@k at each x, with recall and srecall (NaN without judgments) over the same
    queries: those with a semantic neighbour where there are judgments.

    ways: the ways to choose x, as `semrecall.tolerance` gives them. whole: recall over all queries
        that have one.
    """

    k: int
    xs: tuple[float, ...]
    values: tuple[float, ...]
    recall: float
    semantic: float
    queries: int
    ways: ToleranceReport
    whole: float


def curve_of(result: Result, run: str, ways: ToleranceReport | None = None) -> Curve | None:
    """The curve of a run; None without exact neighbours that have scores."""
    problem, truth, k = result.problems[run], result.truth, result.k
    if k is None or truth is None or problem.true_scores is None or problem.space is None:
        return None
    rel = 1.0 if result.semantic is None else result.semantic.rel
    try:
        if ways is None:
            ways = tolerance(truth, k, run=result.given[run], judgments=result.judgments, rel=rel)
        recall = _values(problem, "trecall", k, x=0.0)
        semantic = (
            np.full(len(recall), math.nan)
            if result.judgments is None
            else _values(problem, "srecall", k, rel=rel)
        )
        use = ~np.isnan(recall)
        whole = _mean(recall[use]) if use.any() else math.nan
        if result.judgments is not None:
            use &= ~np.isnan(semantic)
        if not use.any():
            return None
        means = [_mean(_values(problem, "trecall", k, x=x)[use]) for x in XS]
    except SemrecallError:
        return None
    return Curve(
        k, XS, tuple(means), _mean(recall[use]), _mean(semantic[use]), int(use.sum()), ways, whole
    )


def _values(
    problem: object, name: str, k: int, **parameter: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    found = Measure(name, k, tuple(parameter.items())).values(problem)  # type: ignore[arg-type]
    return found.values


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return math.fsum(values) / len(values)


def tolerances(result: Result, ways: ToleranceReport | None = None) -> str:
    """The section of a page; "" where there is no curve, or several runs."""
    found = curve_of(result, result.runs[0], ways) if len(result.runs) == 1 else None
    if found is None:
        return ""
    title = "Tolerant recall over the tolerance"
    drawn = curve_chart(title, " ".join(_said(found)), found)
    rows = [
        [way.name, percent(way.x), "; ".join(filter(None, (_ABOUT.get(way.name), way.note)))]
        for way in found.ways.ways
        if not math.isnan(way.x)
    ]
    shown = table(["way to choose x", "x", "what it is"], rows, texts=[2]) if rows else ""
    return (
        "<h2>How much tolerance</h2><p>Tolerant recall (trecall) needs no judge: it lets a result "
        "stand in for a neighbour whose score it nearly reaches; x says how nearly. "
        f"{escape(' '.join(_said(found)))}</p>"
        f"{beside(figure(f'trecall@{found.k} over x', _over(found), drawn), shown)}"
    )


def _over(found: Curve) -> str:
    """Which queries the curve is over."""
    over = plural(found.queries, "query", "queries")
    return over if math.isnan(found.semantic) else f"{over} with a semantic neighbour"


#: What a way to choose x is, in words.
_ABOUT = {
    "proxy": "how far exact scores fall from rank 2k/3 to rank k, as a share of the score at rank "
    "1 (of distances: of that at rank 2k/3); mean over queries, as the paper has it",
    "query": "the same of each query alone, the median",
    "quantisation": "relative error of scores through 8-bit codes",
    "semantic": "where trecall meets srecall, for this run",
}


def _said(found: Curve) -> list[str]:
    plain = number(found.recall, 3)
    over = f"{plain} over the {_over(found)}"
    if found.whole != found.recall:
        over += f" ({number(found.whole, 3)} over all)"
    said = [f"Without tolerance it is plain recall, {over}."]
    meets, proxy = found.ways["semantic"].x, found.ways["proxy"].x
    if not math.isnan(proxy):
        said.append(
            "The paper that defines tolerant recall takes x from how fast exact scores fall, a "
            f"proxy for what a judge would say: here x = {percent(proxy)}."
        )
    if meets == 0 and found.recall > found.semantic:
        said.append(f"It is above semantic recall, {number(found.semantic, 3)}, at every x.")
    elif not math.isnan(meets):
        said.append(f"It meets semantic recall, {number(found.semantic, 3)}, at {percent(meets)}.")
    elif not math.isnan(found.semantic):
        said.append(f"It does not meet semantic recall, {number(found.semantic, 3)}.")
    return said


@chart
def curve_chart(title: str, about: str, found: Curve) -> str:
    """Mean trecall over x on a logarithmic axis, with the proxy and the meeting point marked."""
    drawing, axes = canvas(height=266, left=0.17, bottom_pixels=44)
    box = axes.get_position()
    axes.set_position((box.x0, box.y0, box.width, box.height - 18 / 266))
    xs = [100 * x for x in found.xs]
    axes.plot(xs, found.values, color=SERIES[2], linewidth=2, label="trecall")
    axes.axhline(found.recall, color=SERIES[0], linewidth=1.4, label="recall")
    if not math.isnan(found.semantic):
        axes.axhline(found.semantic, color=SERIES[1], linewidth=1.4, label="srecall")
    proxy, meets = 100 * found.ways["proxy"].x, 100 * found.ways["semantic"].x
    if xs[0] <= proxy <= xs[-1]:
        axes.axvline(proxy, color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
        axes.annotate(
            "proxy", (proxy, 1), xycoords=("data", "axes fraction"), xytext=(-4, 0),
            textcoords="offset points", ha="right", va="top", color=INK,
        )  # fmt: skip
    if xs[0] <= meets <= xs[-1]:
        axes.plot(
            [meets], [found.semantic], "o", markersize=8, markerfacecolor=SURFACE,
            markeredgecolor=INK, markeredgewidth=1.4,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.3, 1, 3, 10, 30], ["0.1%", "0.3%", "1%", "3%", "10%", "30%"])
    axes.minorticks_off()
    axes.yaxis.get_major_locator().set_params(nbins=5, steps=[1, 2, 5, 10])
    axes.set_xlabel("tolerance x", color=INK)
    axes.set_ylabel("mean over queries", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    drawing.legend(
        loc="upper left", ncols=3, frameon=False, labelcolor=INK, borderpad=0, handlelength=1.4,
        columnspacing=1.2, bbox_to_anchor=(0.02, 1.0),
    )  # fmt: skip
    rows = [("trecall", x, y) for x, y in zip(found.xs, found.values, strict=True)]
    rows += [("recall", 0.0, found.recall), ("srecall", meets / 100, found.semantic)]
    rows += [("proxy", proxy / 100, math.nan)]
    return svg(drawing, title, about, (("series", "x", "value"), rows))
