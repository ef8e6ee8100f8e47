"""The charts of a result: values of single queries, semantic neighbours, what codes lose."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.measures import align
from semrecall.report.charts import Bar, Column, distributions, histogram, spread, stacked_bars
from semrecall.report.parts import beside, figure, table
from semrecall.text import number, one_line, plural, share
from semrecall.tolerance import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.evaluate import Result
    from semrecall.measures import Measure

__all__ = ["codes_loss", "neighbours", "score_errors", "values"]


def _drawn(result: Result) -> list[tuple[int, Measure]]:
    """The measures whose distributions are shown: the three recalls, else the first three."""
    recalls = {m.name: m for m in reversed(result.measures)}
    shown = [
        (i, recalls[n]) for i, n in enumerate(("recall", "srecall", "trecall")) if n in recalls
    ]
    shares = [m for m in result.measures if not m.lower_is_better]
    return shown or list(enumerate(shares[:3]))


def values(result: Result) -> str:
    """Distributions of the recalls over queries, by group of semantic neighbours or by run."""
    measures = _drawn(result)
    if not measures or len(result.queries) == 0:
        return ""
    semantic = None if result.semantic is None else result.semantic.slice()
    by_group = len(result.runs) == 1 and semantic is not None
    columns: dict[str, list[Column]] = {}
    for _, measure in measures:
        name = str(measure)
        if by_group and semantic is not None:
            values = result.scores[result.runs[0], name].values
            columns[name] = [Column(one_line(g), values[semantic.mask(g)]) for g in semantic.groups]
        else:
            columns[name] = [
                Column(one_line(run), result.scores[run, name].values) for run in result.runs
            ]
    floor = _floor([c.values for row in columns.values() for c in row])
    groups = f"the {semantic.about}" if by_group and semantic is not None else "run"
    charts = [
        figure(
            name,
            "",
            distributions(
                f"Distribution of {name}",
                _described(name, columns[name]),
                columns[name],
                i,
                floor,
                "value of a query",
            ),
        )
        for (i, _), name in zip(measures, columns, strict=True)
    ]
    sizes = ""
    if by_group and semantic is not None:
        counted = [f"{g}: {int(semantic.mask(g).sum()):,}" for g in semantic.groups]
        sizes = f" Queries in each group: {'; '.join(counted)}."
    return (
        "<h2>Values of single queries</h2>"
        f"<p>Each shape holds all queries of one group ({escape(groups)}): the wider, the more "
        "queries have that value, on one scale within a chart. The ring and the number above it "
        "are the mean."
        f'{escape(sizes)}</p><div class="charts">{"".join(charts)}</div>'
    )


def _floor(columns: list[Any]) -> float:
    """Where the axis of the charts begins: a fifth at or below the lowest value."""
    lowest = min((float(np.nanmin(v)) for v in columns if not np.isnan(v).all()), default=0.0)
    return max(0.0, min(0.8, math.floor(lowest * 5) / 5))


def _described(name: str, columns: list[Column]) -> str:
    parts = []
    for column in columns:
        values = column.values[~np.isnan(column.values)]
        mean = number(math.fsum(values) / len(values), 3) if len(values) else "no value"
        parts.append(f"{column.label}: mean {mean}, {plural(len(values), 'query', 'queries')}")
    return f"{name} by group. " + "; ".join(parts)


def neighbours(result: Result) -> str:
    """How many of the exact neighbours of a query are relevant."""
    semantic = result.semantic
    if semantic is None or len(semantic.counts) == 0:
        return ""
    counts, k = semantic.counts, semantic.k
    none = int((counts == 0).sum())
    about = (
        f"Of the exact {k} neighbours of a query, {counts.mean():.1f} are relevant on average "
        f"(grade {semantic.rel:g} or more): its semantic neighbours. The median is "
        f"{np.median(counts):g}, and {plural(none, 'query has', 'queries have')} none."
    )
    chart = histogram(
        "Semantic neighbours per query", about, counts, k, "semantic neighbours of a query"
    )
    part = semantic.slice()
    rows = [
        [group, f"{held:,}", share(held / len(counts))]
        for group in part.groups
        if (held := int(part.mask(group).sum()))
    ]
    told = beside(
        figure(f"Relevant ones among the exact {k}", "", chart),
        f"<p>{escape(about)}</p><p>What is lost differs much between queries that have few of "
        "them and many, so values are also shown by that number.</p>",
        table(["semantic neighbours", "queries", "share"], rows),
    )
    return f"<h2>Semantic neighbours per query</h2>{told}"


def codes_loss(result: Result) -> str:
    """What quantisation loses and what the search loses, and how wrong the codes' scores are."""
    splits = [s for s in result.splits if s.n]
    if not splits:
        return ""
    several = len(result.runs) > 1
    rows = [
        [
            s.measure,
            *([one_line(s.run_name)] if several else []),
            *(number(v) for v in (s.mean_quantisation, s.mean_index, s.mean_total)),
            f"{s.n:,}",
        ]
        for s in splits
    ]
    heads = ["measure", *(["run"] if several else []), "quantisation", "index search", "total"]
    bars = [
        Bar(
            f"{one_line(s.run_name)}, {s.measure}" if several else s.measure,
            (s.mean_quantisation, s.mean_index),
        )
        for s in splits
        if not next(m for m in result.measures if str(m) == s.measure).lower_is_better
    ]
    described = "; ".join(
        f"{s.measure}: quantisation {number(s.mean_quantisation)}, "
        f"index search {number(s.mean_index)}"
        for s in splits
    )
    chart = stacked_bars(
        "Loss in two parts", described, bars, ["quantisation", "index search"]
    ) if bars else ""  # fmt: skip
    charts = [figure("Loss in two parts", "", chart)] if chart else []
    errors = score_errors(result)
    if errors is not None:
        said = (
            f"Mean {percent(float(np.mean(errors)))}, median {percent(float(np.median(errors)))}, "
            f"over {plural(len(errors), 'query', 'queries')}."
        )
        drawn = spread("Error of scores by the codes", said, 100 * errors, "relative error, %")
        charts.append(figure("How far scores through the codes are off", said, drawn))
    shown = table([*heads, "queries"], rows, names=1 + several)
    said = (
        "<p>The index keeps each vector in fewer bits: its code. Quantisation: what exact search "
        "over the codes loses against the full vectors. Index search: what the index loses on top "
        "of that. Both add up to the total.</p>"
    )
    drawings = f'<div class="charts">{"".join(charts)}</div>{shown}'
    return (
        "<h2>What quantisation loses, and the search</h2>"
        f"{said}{beside(charts[0], shown) if len(charts) == 1 else drawings}"
    )


def score_errors(result: Result) -> NDArray[np.float64] | None:
    """Mean relative error of the scores of the codes, of each query that has any, (q,).

    Over the neighbours that exact search finds both in the codes and in the vectors. None where
    either has no scores of its own.
    """
    codes, truth = result.codes, result.truth
    if codes is None or truth is None or codes.scores_by == "exact":
        return None
    problem = align(codes, truth)
    own, true, place = problem.results.matrix.scores, problem.true_scores, problem.place
    if own is None or true is None or place is None:
        return None
    exact = np.take_along_axis(true, np.maximum(place, 0), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(own / exact - 1.0)
    usable = (place >= 0) & np.isfinite(off)
    counts = np.count_nonzero(usable, axis=1)
    sums = np.sum(off, axis=1, where=usable)
    return sums[counts > 0] / counts[counts > 0] if counts.any() else None
