"""The sections of the page: each takes the collections and gives lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator

import semrecall as sr
from paper import figures
from paper.collections import Collection, pool_labels

RECALLS = ("recall", "srecall", "trecall")


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A Markdown table, and the empty line after it."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in row) + " |" for row in lines] + [""]


def interval(estimate: Any, digits: int = 3) -> str:
    """A mean with its interval."""
    if estimate is None or np.isnan(estimate.mean):
        return "-"
    return f"{estimate.mean:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def mean(result: sr.Result, name: str) -> str:
    """The mean of a measure in a result, with its interval."""
    low, high = result.interval(name)
    return f"{result.mean(name):.3f} ({low:.3f} to {high:.3f})"


@cache
def index(collection: Collection, factory: str) -> Any:
    """An index over a collection, built once."""
    return sr.open_system(f"faiss?factory={factory}").build(collection.base, space="ip")


@cache
def lossy(collection: Collection) -> sr.Run:
    """What its IVF index finds at a setting that loses something."""
    system = index(collection, collection.factory)
    run, _ = sr.search(
        system, collection.queries, collection.k, repeats=1, latency_queries=0, nprobe=2
    )
    return run


def overview(found: Sequence[Collection]) -> Iterator[str]:
    """What is looked at."""
    rows = [
        [c.name, f"{len(c.base):,} x {c.base.dimension}", f"{len(c.queries):,}", c.k, c.note]
        for c in found
    ]
    yield from table(["collection", "vectors", "queries", "k", "who says what is relevant"], rows)


def judges(found: Sequence[Collection]) -> Iterator[str]:
    """How far judges agree, among the exact neighbours."""
    names = {"human": "human", "umbrela_gpt4": "GPT-4", "umbrela_gpt4o": "GPT-4o"}
    labels = {name: pool_labels(column) for column, name in names.items()}
    pool = found[0]
    agreement = sr.agree(labels, rel=dict.fromkeys(labels, 2.0), truth=pool.truth, k=pool.k)
    rows = [["the paper: Gemini, and a second judge", "10,000", "0.911", "0.819"]]
    for pair in agreement.pairs:
        kappa = pair["kappa"]
        rows.append(
            [f"{pair.first} and {pair.second}", f"{pair.pairs:,}", f"{pair['agreement'].value:.3f}",
             f"{kappa.value:.3f} ({kappa.low:.3f} to {kappa.high:.3f})"]
        )  # fmt: skip
    yield from table(["judges", "pairs", "agreement", "kappa"], rows)


def distribution(found: Sequence[Collection], folder: Path) -> Iterator[str]:
    """Semantic neighbours of a query."""
    rows = []
    for c in found:
        d = c.analysis.distribution
        groups = {g.group: g for g in c.analysis.groups}
        shares = [
            f"{name}: {g.share.value:.0%}" for name, g in groups.items() if g.column and g.queries
        ]
        rows.append([c.name, interval(d.number, 1), f"{d.percentiles[50]:g}", ", ".join(shares)])
    yield from table(["collection", "mean", "median", "queries by number"], rows)
    figures.panels(
        folder / "paper-neighbours.svg", [c.name for c in found],
        lambda axes, n: figures.numbers(axes, found[n].analysis.distribution.counts),
    )  # fmt: skip
    yield "![Semantic neighbours of a query](figures/paper-neighbours.svg)"
    yield ""


def scores(found: Sequence[Collection]) -> Iterator[str]:
    """Scores of semantic neighbours and of others."""
    rows = []
    for c in found:
        rows += [
            [c.name, g.group or "all", g.delta.queries, f"{g.semantic.mean:.4f}",
             f"{g.others.mean:.4f}", interval(g.delta, 4), f"{g.relative.mean:.3f}"]
            for g in c.analysis.groups
            if g.queries and g.delta.queries
        ]  # fmt: skip
    head = ["collection", "semantic neighbours", "queries", "their score", "of the others", "delta",
            "delta / drop"]  # fmt: skip
    yield from table(head, rows)


def correlation(found: Sequence[Collection]) -> Iterator[str]:
    """Whether the score tells who is relevant."""
    rows = []
    for c in found:
        r = c.analysis.correlation
        pooled = f"{r.pooled:.3f} ({r.pooled_low:.3f} to {r.pooled_high:.3f})"
        rows.append([c.name, interval(r.within), _p(r.p), pooled, _p(r.pooled_p)])
    yield from table(
        ["collection", "r within queries", "p", "r pooled", "p (taking pairs as independent)"], rows
    )


def _p(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def groups(found: Sequence[Collection], folder: Path) -> Iterator[str]:
    """The three recalls by number of semantic neighbours, at a setting that loses something."""
    rows, parts = [], []
    for c in found:
        run = lossy(c)
        result = c.evaluate(run, by="sn")
        part = result.slices["sn"]
        drawn = {}
        for group in ("", *part.groups):
            rows_of = (
                np.arange(len(result.queries)) if not group else np.flatnonzero(part.mask(group))
            )
            values = [result[m].values[rows_of] for m in c.measures]
            if np.isnan(values[1]).all():
                continue
            drawn[group or "all"] = values
            rows.append(
                [c.name, group or "all", len(rows_of),
                 *(f"{np.nanmean(v):.3f} (5%: {np.nanpercentile(v, 5):.2f})" for v in values)]
            )  # fmt: skip
        parts.append(drawn)
    yield from table(["collection", "semantic neighbours", "queries", *RECALLS], rows)
    figures.panels(
        folder / "paper-groups.svg", [f"{c.name}: {c.factory}, nprobe 2" for c in found],
        lambda axes, n: _boxes(axes, parts[n], n),
    )  # fmt: skip
    yield "![The three recalls by number of semantic neighbours](figures/paper-groups.svg)"
    yield ""


def _boxes(axes: Any, part: Any, number: int) -> None:
    figures.boxes(axes, part, RECALLS)
    if number == 0:
        axes.legend(loc="lower right", fontsize=7)


def quantisation(found: Sequence[Collection]) -> Iterator[str]:
    """What codes do to scores, and to the three recalls under exact search over the codes."""
    rows = []
    for c in found:
        # Product quantisation needs more vectors to learn from than the small ones have.
        for codes in ("SQ8", "SQ4", "PQ48") if len(c.base) > 10_000 else ("SQ8", "SQ4"):
            coded = sr.codes_truth(index(c, codes), c.queries, c.k)
            result = c.evaluate(coded)
            error = _error(c, coded)
            rows.append([c.name, codes, f"{error:.3%}", *(mean(result, m) for m in c.measures)])
    yield from table(["collection", "codes", "relative error of a score", *RECALLS], rows)


def _error(c: Collection, coded: sr.Run) -> float:
    """Mean relative error of the scores of what exact search over the codes finds."""
    exact = sr.rescore(coded, c.base, c.queries, "ip")
    pairs = zip(coded.scores, coded.ids, exact.scores, exact.ids, strict=True)
    errors = []
    for by_code, ids, true, order in pairs:
        at = {str(d): s for d, s in zip(order, true, strict=True)}
        truth = np.array([at[str(d)] for d in ids])
        errors.append(np.mean(np.abs(by_code - truth) / np.abs(truth)))
    return float(np.mean(errors))


def cost(found: Sequence[Collection], folder: Path) -> Iterator[str]:
    """Quality against cost, and what a target costs under each recall."""
    rows, drawn, titles = [], [], []
    for c in found:
        for factory, knobs in ((c.factory, {"nprobe": None}), ("HNSW16", {"efSearch": None})):
            lists = int(c.factory[3:].split(",")[0])
            knobs = (
                {"nprobe": _steps(1, lists)}
                if "nprobe" in knobs
                else {"efSearch": _steps(4, 8 * c.k)}
            )
            curve = sr.sweep(index(c, factory), c.queries, list(c.measures), settings=knobs,
                             truth=c.truth, judgments=c.judgments, base=c.base,
                             minimize="bytes_read")  # fmt: skip
            points = sorted(curve.rows(), key=lambda row: row.cost.mean)
            drawn.append(
                {name: ([p.cost.mean for p in points], [p.measures[m].mean for p in points])
                 for name, m in zip(RECALLS, c.measures, strict=True)}
            )  # fmt: skip
            titles.append(f"{c.name}: {factory}")
            [needed] = [[_at(curve, m) for m in c.measures]]
            rows.append([c.name, factory, *needed])
    yield from table(["collection", "index", *(f"kB for {name} 0.95" for name in RECALLS)], rows)
    for number in range(0, len(titles), 4):
        name = f"paper-cost-{number // 4 + 1}.svg"
        figures.panels(
            folder / name, titles[number : number + 4],
            lambda axes, n, first=number: _curve(axes, drawn[first + n], n),
        )  # fmt: skip
        yield f"![Quality against bytes read](figures/{name})"
        yield ""


def _curve(axes: Any, lines: Any, number: int) -> None:
    figures.curves(axes, lines, "bytes read a query")
    if number == 0:
        axes.legend(loc="lower right", fontsize=7)


def _steps(low: int, high: int) -> list[int]:
    return sorted({round(v) for v in np.geomspace(max(low, 1), high, 9)})


def _at(curve: Any, measure: str) -> str:
    [found] = curve.at_quality(measure, 0.95)
    return "-" if found.value is None else f"{found.value.mean / 1000:,.0f}"


def tolerances(found: Sequence[Collection], folder: Path) -> Iterator[str]:
    """Mean tolerant recall over x, the proxy, and where it meets semantic recall."""
    rows, drawn = [], []
    for c in found:
        run = lossy(c)
        run = sr.rescore(run, c.base, c.queries, "ip")
        report = sr.tolerance(c.truth, c.k, run=run, judgments=_relevant(c), base=c.base,
                              queries=c.queries)  # fmt: skip
        result = c.evaluate(run, [*c.measures, *(f"trecall(x={x:g})@{c.k}" for x in _XS)])
        ways = {w.name: w.x for w in report.ways}
        rows.append(
            [c.name, *(f"{ways[n]:.2%}" if ways[n] == ways[n] else "-" for n in
                       ("quantisation", "proxy", "semantic")),
             *(f"{result.mean(m):.3f}" for m in c.measures[:2]),
             f"{result.mean(f'trecall(x=0.01)@{c.k}'):.3f}", f"{result.mean(c.measures[2]):.3f}"]
        )  # fmt: skip
        drawn.append((
            [result.mean(f"trecall(x={x:g})@{c.k}") for x in _XS], result.mean(c.measures[0]),
            result.mean(c.measures[1]), ways["proxy"], ways["semantic"],
        ))  # fmt: skip
    head = ["collection", "x: 8-bit codes", "proxy", "meets srecall", "recall", "srecall",
            "trecall at 1%", "at the proxy"]  # fmt: skip
    yield from table(head, rows)
    figures.panels(
        folder / "paper-tolerance.svg", [f"{c.name}: {c.factory}, nprobe 2" for c in found],
        lambda axes, n: _tolerance(axes, drawn[n], n),
    )  # fmt: skip
    yield "![Tolerant recall over the tolerance](figures/paper-tolerance.svg)"
    yield ""


_XS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)


def _relevant(c: Collection) -> sr.Judgments:
    """The labels as relevant or not: `tolerance` counts from grade 1."""
    grades = np.where(np.isnan(c.judgments.grades), np.nan, c.judgments.grades >= c.rel)
    return sr.Judgments.from_arrays(c.judgments.queries, c.judgments.documents, grades)


def _tolerance(axes: Any, part: Any, number: int) -> None:
    values, recall, semantic, proxy, meets = part
    colours = figures.COLOURS
    axes.plot([100 * x for x in _XS], values, color=colours[2], label="trecall")
    axes.axhline(recall, color=colours[0], linewidth=1, label="recall")
    axes.axhline(semantic, color=colours[1], linewidth=1, label="srecall")
    axes.axvline(100 * proxy, color="black", linewidth=0.8, linestyle=":", label="proxy")
    if meets == meets:
        axes.plot(
            [100 * meets], [semantic], "o", color="black", markersize=4, label="meets srecall"
        )
    figures.logarithmic(axes)
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.3, 1, 3, 10]))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("tolerance x, %")
    if number == 0:
        axes.legend(loc="upper left", fontsize=7)


def precision(found: Sequence[Collection]) -> Iterator[str]:
    """R-precision with semantic neighbours: exact search, and the index."""
    rows = []
    for c in found:
        rel = "" if c.rel == 1 else f"(rel={c.rel})"
        name = f"srprec{rel}@{c.k}"
        run = lossy(c)
        exact, found_by = c.evaluate(c.truth, [name]), c.evaluate(run, [name])
        rows.append([c.name, mean(exact, name), mean(found_by, name)])
    yield from table(["collection", "exact search", "the index at nprobe 2"], rows)
