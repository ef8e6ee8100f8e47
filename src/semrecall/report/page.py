"""The page: answer, table, distributions, split, slices, worst queries, how it was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.evaluate.table import count_lines, left_out_lines, note_lines
from semrecall.formats import writing
from semrecall.report.charts import Bar, Column, distributions, histogram, stacked_bars
from semrecall.report.headline import headline
from semrecall.report.parts import cut, figure, kind, page, table
from semrecall.text import number, one_line, plural, share

if TYPE_CHECKING:
    from semrecall.evaluate import Result, Slice, Summary
    from semrecall.measures import Measure

__all__ = ["html_report", "write_html"]

Texts = Mapping[Any, str]

_WORST = 20
#: So many missed neighbours of a query are listed, the relevant ones first.
_MISSED = 30


def write_html(
    result: Result,
    path: str | Path,
    *,
    query_texts: Texts | None = None,
    document_texts: Texts | None = None,
    command: str | None = None,
    title: str | None = None,
) -> None:
    """Write the report of a result as one HTML file that asks nothing of any server.

    query_texts, document_texts: {id: text}, shown beside the ids.
    command: the command line that made the result, shown as it is.
    title: instead of the answer in one sentence.

    Needs matplotlib (the extra `report`); raises MissingExtra without it.
    """
    page = html_report(
        result,
        query_texts=query_texts,
        document_texts=document_texts,
        command=command,
        title=title,
    )
    with writing(path) as target:
        Path(target).write_text(page, encoding="utf-8")


def html_report(
    result: Result,
    *,
    query_texts: Texts | None = None,
    document_texts: Texts | None = None,
    command: str | None = None,
    title: str | None = None,
) -> str:
    """The page that `write_html` writes, as text; the same result gives the same text."""
    answer = title or headline(result)
    texts = _Texts(_by_text(query_texts), _by_text(document_texts))
    parts = [
        f"<h1>{escape(answer)}</h1>",
        _standing(result),
        _summary(result),
        _remarks(result),
        _distributions(result),
        _neighbours(result),
        _split(result),
        *(_slice(result, part) for part in result.slices.values()),
        _worst(result, texts),
        _making(result, command),
    ]
    return page(answer, parts)


@dataclass(frozen=True)
class _Texts:
    queries: Texts
    documents: Texts


def _by_text(texts: Texts | None) -> Texts:
    """Texts by id as text, because "7" and 7 are the same id."""
    return {} if texts is None else {str(key): str(value) for key, value in texts.items()}


def _standing(result: Result) -> str:
    parts = [", ".join(map(one_line, result.runs)), plural(len(result.queries), "query", "queries")]
    if result.k is not None:
        parts.append(f"k = {result.k:,}")
    if result.space is not None:
        parts.append(f"space {result.space}")
    return f'<p class="quiet">{escape(" · ".join(parts))}</p>'


# -- tables ---------------------------------------------------------------------------------


def _figures(row: Summary) -> list[str]:
    interval = "-" if math.isnan(row.low) else f"{number(row.low)} to {number(row.high)}"
    shares = [share(row.at_one), share(row.at_zero)]
    spread = [number(v, 3) for v in (row.sd, row.median, row.p10, row.p5, row.p1)]
    left_out = f"{sum(row.left_out.values()):,}"
    return [number(row.mean), interval, *spread, *shares, f"{row.n:,}", left_out]


def _heads(result: Result) -> list[str]:
    interval = f"{result.confidence * 100:.4g}% interval"
    spread = ["sd", "median", "p10", "p5", "p1", "at 1", "at 0"]
    return ["mean", interval, *spread, "queries", "left out"]


def _summary(result: Result) -> str:
    several = len(result.runs) > 1
    rows = [
        [row.measure, *([one_line(row.run)] if several else []), *_figures(row)]
        for row in result.summary()
    ]
    heads = ["measure", *(["run"] if several else []), *_heads(result)]
    meanings = "".join(
        f"<li><code>{escape(str(m))}</code>: {escape(m.about)}</li>" for m in result.measures
    )
    return (
        f"<h2>Summary</h2>{table(heads, rows, names=1 + several)}"
        f"<details><summary>What the measures mean</summary><ul>{meanings}</ul></details>"
    )


def _remarks(result: Result) -> str:
    notes = [line.removeprefix("note: ") for line in note_lines(result)]
    lines = [*left_out_lines(result), *count_lines(result), *notes]
    lines += [
        f"{row.measure} of {row.run}, pooled over queries because their sizes differ: "
        f"{number(row.micro)}"
        for row in result.summary()
        if row.micro is not None
    ]
    if not lines:
        return "<p>No query was left out, and no result is missing or repeated.</p>"
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h3>To know before using these numbers</h3><ul>{items}</ul>"


def _slice(result: Result, part: Slice) -> str:
    several = len(result.runs) > 1
    rows = [
        [row.measure, row.group, *([one_line(row.run)] if several else []), *_figures(row)]
        for row in result.summary(by=part.column)
    ]
    heads = ["measure", part.column, *(["run"] if several else []), *_heads(result)]
    about = f", the {part.about}" if part.about else ""
    return f"<h2>By {escape(part.column + about)}</h2>{table(heads, rows, names=2 + several)}"


# -- charts ---------------------------------------------------------------------------------


def _drawn(result: Result) -> list[tuple[int, Measure]]:
    """The measures whose distributions are shown: the three recalls, else the first three."""
    recalls = {m.name: m for m in reversed(result.measures)}
    shown = [
        (i, recalls[n]) for i, n in enumerate(("recall", "srecall", "trecall")) if n in recalls
    ]
    shares = [m for m in result.measures if not m.lower_is_better]
    return shown or list(enumerate(shares[:3]))


def _distributions(result: Result) -> str:
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
                f"Distribution of {name}", _described(name, columns[name]), columns[name], i, floor
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
        "queries have that value. The ring and the number above it are the mean."
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


def _neighbours(result: Result) -> str:
    semantic = result.semantic
    if semantic is None or len(semantic.counts) == 0:
        return ""
    counts, k = semantic.counts, semantic.k
    none = int((counts == 0).sum())
    about = (
        f"Of the exact {k} neighbours of a query, {counts.mean():.1f} are relevant on average "
        f"(grade {semantic.rel:g} or more); the median is {np.median(counts):g}, and "
        f"{plural(none, 'query has', 'queries have')} none."
    )
    chart = histogram(
        "Semantic neighbours per query", about, counts, k, "semantic neighbours of a query"
    )
    return (
        f"<h2>Semantic neighbours per query</h2><p>{escape(about)}</p>"
        f'<div class="charts">{figure(f"Relevant ones among the exact {k}", "", chart)}</div>'
    )


def _split(result: Result) -> str:
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
        "Where it is lost", described, bars, ["quantisation", "index search"]
    ) if bars else ""  # fmt: skip
    drawn = f'<div class="charts">{figure("Loss in two parts", "", chart)}</div>' if chart else ""
    return (
        "<h2>Where it is lost</h2><p>Quantisation: what exact search over the codes loses against "
        "the full vectors. Index search: what the index loses on top. Both add up to the total."
        f"</p>{drawn}{table([*heads, 'queries'], rows, names=1 + several)}"
    )


# -- single queries -------------------------------------------------------------------------


def _worst(result: Result, texts: _Texts) -> str:
    names = [str(m) for m in result.measures]
    measure = next((str(m) for m in result.measures if m.name == "srecall"), names[0])
    run = result.runs[0]
    rows = result.worst(measure, _WORST, run)
    if not rows:
        return f"<h2>Worst queries</h2><p>{escape(measure)} is perfect wherever it is defined.</p>"
    of_run = f" of {one_line(run)}" if len(result.runs) > 1 else ""
    items = "\n".join(_query(result, row, names, run, texts) for row in rows)
    return (
        f"<h2>Worst queries</h2><p>The {plural(len(rows), 'query', 'queries')} with the lowest "
        f"{escape(measure + of_run)}, and the true neighbours that each one missed.</p>{items}"
    )


def _query(result: Result, row: int, names: list[str], run: str, texts: _Texts) -> str:
    query = result.queries[row]
    text = cut(texts.queries.get(str(query), ""))
    values = ", ".join(
        f"{name} {number(float(result.scores[run, name].values[row]), 3)}" for name in names[:6]
    )
    shown = f"<strong>{escape(one_line(str(query)))}</strong>" + (
        f" {escape(text)}" if text else ""
    )
    return (
        f'<details><summary>{shown} <span class="figures">{escape(values)}</span></summary>'
        f"{_missed(result, row, run, texts)}</details>"
    )


def _missed(result: Result, row: int, run: str, texts: _Texts) -> str:
    missed = result.missed(row, run)
    if not missed:
        return "<p>No true neighbour was missed.</p>"
    graded = any(not math.isnan(m.grade) for m in missed)
    # What mattered stands first: by grade, then by rank.
    ordered = sorted(missed, key=lambda m: -1.0 if math.isnan(m.grade) else m.grade, reverse=True)
    with_text = any(str(m.document) in texts.documents for m in ordered[:_MISSED])
    heads = ["rank", *(["grade"] if graded else []), "document", *(["text"] if with_text else [])]
    lines = []
    for m in ordered[:_MISSED]:
        cells = f"<td>{m.rank:,}</td>"
        if graded:
            cells += f"<td>{'unjudged' if math.isnan(m.grade) else f'{m.grade:g}'}</td>"
        cells += f'<td class="text">{escape(one_line(str(m.document)))}</td>'
        if with_text:
            text = cut(texts.documents.get(str(m.document), ""))
            cells += f'<td class="text long">{escape(text)}</td>'
        lines.append(f"<tr>{cells}</tr>")
    head = "".join(f'<th scope="col"{kind(h in ("document", "text"))}>{h}</th>' for h in heads)
    rest = len(missed) - len(lines)
    more = f"<p>And {rest:,} more.</p>" if rest > 0 else ""
    return (
        f"<p>{plural(len(missed), 'true neighbour')} missed.</p>"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>'
        + "".join(lines)
        + f"</tbody></table></div>{more}"
    )


# -- how it was made ------------------------------------------------------------------------


def _making(result: Result, command: str | None) -> str:
    facts: list[tuple[str, str]] = [
        ("versions", ", ".join(f"{k} {v}" for k, v in result.versions.items())),
        ("intervals", "; ".join(result.interval_methods)),
    ]
    truth = result.truth
    if truth is not None:
        facts.append(("truth", f"to depth {truth.depth:,}, scores by the {_by(truth.scores_by)}"))
        for key, value in truth.identity.items():
            facts.append((f"truth: {key}", _fact(value)))
    if command:
        facts.append(("command", command))
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{_code(name, value)}</dd>" for name, value in facts
    )
    return f"<h2>How this was made</h2><dl>{items}</dl>"


def _by(scores_by: str) -> str:
    return "vectors in float64" if scores_by == "exact" else "index"


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_fact(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_fact, value[:5])) + ("; ..." if len(value) > 5 else "")
    return f"{value:,}" if isinstance(value, int) else one_line(str(value))


def _code(name: str, value: str) -> str:
    return f"<code>{escape(value)}</code>" if name == "command" else escape(value)
