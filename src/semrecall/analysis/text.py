"""An analysis as tables, sentences, and rows of one flat table."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semrecall.analysis.rows import Estimate, Group, Share
from semrecall.text import aligned, number, one_line, plural, share, shortened, terminal_width

if TYPE_CHECKING:
    from semrecall.analysis.result import Analysis
    from semrecall.analysis.rows import Barren, Neighbour

__all__ = [
    "Table",
    "barren_lines",
    "flat_rows",
    "grade_text",
    "headline",
    "opening",
    "remarks",
    "score_tables",
    "tables",
    "text",
]

#: Below this share of judged neighbours the judgments may name relevant documents only.
_FEW = 0.5
#: Percentiles that a table shows.
_SHOWN = (10, 25, 50, 75, 90)
#: So many queries without a relevant neighbour are listed on a terminal.
_LISTED = 10


@dataclass(frozen=True)
class Table:
    """One table: its title, a sentence under it, headings, and rows of texts, the first a name."""

    title: str
    about: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def text(analysis: Analysis) -> str:
    """All tables, the queries without a relevant neighbour, and what is to be said."""
    lines = [opening(analysis)]
    for table in tables(analysis):
        right = [False] + [True] * (len(table.heads) - 1)
        lines += ["", table.title, *aligned([table.heads, *table.rows], right)]
    said = [line for one in remarks(analysis) for line in textwrap.wrap(one, terminal_width())]
    lines += ["", *barren_lines(analysis), "", *said]
    return "\n".join(line.rstrip() for line in lines)


def opening(analysis: Analysis) -> str:
    """What was analysed, on one line."""
    parts = [plural(len(analysis), "query", "queries"), f"k = {analysis.k:,}"]
    parts.append(f"relevant from grade {analysis.rel:g}")
    if analysis.space is not None:
        parts.append(f"space {analysis.space}")
    return ", ".join(parts)


def headline(analysis: Analysis) -> str:
    """The answer in one sentence."""
    n = len(analysis)
    if n == 0:
        return "No query could be analysed"
    mean = analysis.distribution.number.mean
    none = len(analysis.without_relevant)
    said = f"{number(mean, 1)} of the {analysis.k:,} exact neighbours of a query matter on average"
    if none == 0:
        return f"{said}; every query has some"
    return f"{said}; {none:,} of {_queries(n)} {'has' if none == 1 else 'have'} none"


# -- tables ---------------------------------------------------------------------------------------


def tables(analysis: Analysis) -> list[Table]:
    """The tables, in the order to read them; one without a row that says anything is left out."""
    found = [_numbers(analysis), _groups(analysis)]
    found += [*score_tables(analysis), _recalls(analysis), _bands(analysis)]
    found += [_slice(analysis, column) for column in analysis.slices]
    return [table for table in found if table.rows]


def score_tables(analysis: Analysis) -> list[Table]:
    """Scores of relevant neighbours and of others, and their correlation; none without scores."""
    if analysis.scores is None or not len(analysis):
        return []
    return [_scores(analysis), _correlation(analysis)]


def _numbers(analysis: Analysis) -> Table:
    found = analysis.distribution
    heads = ["", "mean", _interval_head(analysis), "sd"]
    heads += ["median" if p == 50 else f"p{p}" for p in _SHOWN]
    cells = [number(found.number.mean, 2), _between(found.number, 2), number(found.sd, 2)]
    cells += [f"{found.percentiles[p]:g}" for p in _SHOWN]
    if found.most > found.least:
        heads.append("could be")
        cells.append(_range(found.least, found.most, 2))
    return Table(
        "semantic neighbours of a query",
        f"Neighbours of grade {analysis.rel:g} or more among the exact {analysis.k:,}.",
        tuple(heads),
        (("all queries", *cells),) if len(analysis) else (),
    )


def _groups(analysis: Analysis) -> Table:
    bounded = bool(analysis.unjudged.any())
    heads = ["semantic", "queries", "share", _interval_head(analysis)]
    heads += ["could be"] * bounded + ["relevant pairs", "others"] + ["unjudged"] * bounded
    rows = []
    for row in analysis.groups[1:] if len(analysis) else ():
        cells = [row.group, f"{row.queries:,}", share(row.share.value), _shares(row.share)]
        cells += [f"{share(row.share.least)}-{share(row.share.most)}"] * bounded
        cells += [f"{row.semantic_pairs:,}", f"{row.other_pairs:,}"]
        cells += [f"{row.unjudged_pairs:,}"] * bounded
        rows.append(tuple(cells))
    return Table(
        "queries by number of semantic neighbours",
        "The groups are split at k/5 and 4k/5.",
        tuple(heads),
        tuple(rows),
    )


def _recalls(analysis: Analysis) -> Table:
    interval = _interval_head(analysis)
    rows = []
    for row in analysis.groups:
        if row.recall is not None and row.srecall is not None:
            cells = [row.group or "all queries", f"{row.queries:,}"]
            cells += [number(row.recall.mean), _between(row.recall)]
            cells += [number(row.srecall.mean), _between(row.srecall)]
            rows.append(tuple(cells))
    return Table(
        "recall and semantic recall of the run, by number of semantic neighbours",
        "Of all neighbours, and of the semantic ones.",
        (
            "semantic",
            "queries",
            f"recall@{analysis.k}",
            interval,
            f"srecall@{analysis.k}",
            interval,
        ),
        tuple(rows) if len(analysis) else (),
    )


#: What a rank-biserial correlation says.
_R = (
    "1 where every semantic neighbour is nearer than every other one, 0 where scores do not tell, "
    "-1 where they mislead"
)


def _scores(analysis: Analysis) -> Table:
    heads = ("semantic", "score", "of others", "delta", _interval_head(analysis), "queries",
             "drop", "delta/drop", "r")  # fmt: skip
    names = ["all queries", *(row.group for row in analysis.groups[1:])]
    digits = _digits(analysis)
    rows = [_score_cells(n, row, digits) for n, row in zip(names, analysis.groups, strict=True)]
    nearer = "higher" if analysis.space is None or analysis.space.higher_is_nearer else "lower"
    return Table(
        "scores of semantic neighbours and of others, by number of semantic neighbours",
        f"Per query, then over queries; {nearer} scores are nearer. Delta: how much nearer the "
        "semantic neighbours of a query are than its judged others, over the queries that have "
        "both; above 0 is nearer. Drop: how far scores fall from the nearest neighbour to the "
        "farthest; delta/drop is the one as a share of the other. r: rank-biserial correlation "
        f"within a query, {_R}.",
        heads,
        tuple(rows) if len(analysis) else (),
    )


def _digits(analysis: Analysis) -> int:
    """Decimals of a score: fewer where scores are large, as distances may be."""
    largest = max((abs(e.mean) for e in (analysis.groups[0].semantic, analysis.groups[0].others)
                   if not math.isnan(e.mean)), default=0.0)  # fmt: skip
    return 4 if largest < 10 else 3 if largest < 100 else 2


def _score_cells(name: str, row: Group, digits: int) -> tuple[str, ...]:
    return (
        name,
        number(row.semantic.mean, digits),
        number(row.others.mean, digits),
        _signed(row.delta.mean, digits),
        _between(row.delta, digits),
        f"{row.delta.queries:,}",
        number(row.drop.mean, digits),
        _signed(row.relative.mean, 3),
        _signed(row.r.mean, 3),
    )


def _correlation(analysis: Analysis) -> Table:
    found = analysis.correlation
    pooled = Estimate(found.pooled, found.pooled_low, found.pooled_high, 0)
    queries = plural(found.within.queries, "query", "queries")
    pairs = f"{found.semantic_pairs:,} x {found.other_pairs:,} pairs"
    rows = (
        ("mean over queries", _signed(found.within.mean), _between(found.within),
         _p_text(found.p), queries),
        ("pooled over pairs", _signed(found.pooled), _between(pooled),
         _p_text(found.pooled_p), pairs),
    )  # fmt: skip
    return Table(
        "rank-biserial correlation of score and relevance",
        f"r is {_R}. Of the queries with both kinds, {share(found.positive)} have r above 0, and "
        f"{share(found.significant)} a p of their own below 0.05. Pooled: the pairs of all "
        "queries together; its p takes them to be independent, its interval resamples whole "
        "queries.",
        ("", "r", _interval_head(analysis), "p", "from"),
        rows if len(analysis) else (),
    )


def _bands(analysis: Analysis) -> Table:
    bounded = bool(analysis.unjudged.any())
    run = analysis.found is not None
    heads = ["rank", "relevant", _interval_head(analysis)] + ["could be", "judged"] * bounded
    heads += ["pairs"] + ["found", "semantic found"] * run
    rows = []
    for band in analysis.bands:
        name = f"{band.first}" if band.first == band.last else f"{band.first}-{band.last}"
        cells = [name, share(band.relevant.mean), _share_between(band.relevant)]
        if bounded:
            judged = band.judged / band.pairs if band.pairs else math.nan
            cells += [f"{share(band.least)}-{share(band.most)}", share(judged)]
        cells.append(f"{band.pairs:,}")
        cells += [share(e.mean) for e in (band.found, band.found_semantic) if e is not None]
        rows.append(tuple(cells))
    return Table(
        "share of the judged neighbours that are relevant, by rank",
        "Per query, then over queries.",
        tuple(heads),
        tuple(rows) if len(analysis) else (),
    )


def _slice(analysis: Analysis, column: str) -> Table:
    interval = _interval_head(analysis)
    scored = analysis.scores is not None
    heads = [shortened(column, 22), "queries", "semantic", interval, "judged"]
    heads += ["delta", interval, "r"] * scored
    digits = _digits(analysis)
    rows = []
    for row in analysis.by(column):
        cells = [shortened(row.group, 22), f"{row.queries:,}", number(row.number.mean, 2)]
        cells += [_between(row.number, 2), share(row.judged.mean)]
        if scored:
            cells += [_signed(row.delta.mean, digits), _between(row.delta, digits)]
            cells.append(_signed(row.r.mean, 3))
        rows.append(tuple(cells))
    return Table(
        f"by {one_line(column)}",
        "Semantic neighbours of a query, and how much nearer they are.",
        tuple(heads),
        tuple(rows),
    )


# -- queries without a relevant neighbour ---------------------------------------------------------


def barren_lines(analysis: Analysis) -> list[str]:
    """The first queries without a relevant neighbour, with their nearest ones."""
    found = analysis.without_relevant
    if len(analysis) == 0:
        return ["no query could be analysed"]
    if not found:
        return ["every query has a relevant neighbour"]
    lines = [f"{_queries(len(found))} without a relevant neighbour"]
    for barren in found[:_LISTED]:
        lines += [f"  {_cut(barren_title(barren))}", f"    {barren_facts(barren)}"]
        for near in barren.nearest:
            facts = [f"{near.rank}.", one_line(str(near.document))]
            facts += [] if math.isnan(near.score) else [number(near.score)]
            lines.append(
                _cut(f"    {'  '.join([*facts, grade_text(near)])}  {one_line(near.text)}")
            )
    if len(found) > _LISTED:
        lines.append(f"  and {len(found) - _LISTED:,} more: --format json lists all of them")
    return lines


def barren_title(barren: Barren) -> str:
    """The id and the text of a query."""
    return one_line(f"{barren.query}: {barren.text}" if barren.text else str(barren.query))


def barren_facts(barren: Barren) -> str:
    """How much of its neighbours is judged, and what is known elsewhere."""
    judged = plural(barren.judged, "neighbour")
    elsewhere = plural(barren.relevant_elsewhere, "relevant document")
    return f"{judged} judged, {barren.unjudged:,} unjudged; {elsewhere} elsewhere"


def grade_text(near: Neighbour) -> str:
    """The grade of a neighbour in words."""
    if math.isnan(near.grade):
        return "not named" if near.judged else "unjudged"
    return f"grade {near.grade:g}"


# -- sentences ------------------------------------------------------------------------------------


def remarks(analysis: Analysis) -> list[str]:
    """What to know before using the numbers, a sentence each."""
    return [*_remarks(analysis)]


def _remarks(analysis: Analysis) -> Iterator[str]:
    for reason, count in analysis.left_out.items():
        yield f"left out: {_queries(count)}, {reason}"
    yield from analysis.notes
    pairs, unjudged = int(analysis.neighbours.sum()), int(analysis.unjudged.sum())
    if unjudged:
        found = analysis.distribution
        tried = f" ({analysis.ungraded:,} of them judged to no grade)" if analysis.ungraded else ""
        yield (
            f"{share(1 - unjudged / pairs)} of {pairs:,} neighbours are judged; the {unjudged:,} "
            f"others{tried} count as neither: the mean number of semantic neighbours could be "
            f"{_range(found.least, found.most, 2)}"
        )
        if 1 - unjudged / pairs < _FEW:
            yield (
                "if the judgments name every relevant document, say that the rest are not "
                "relevant: --exhaustive, exhaustive=True"
            )
    if analysis.space is not None and not analysis.space.higher_is_nearer:
        yield "scores are distances: delta and r are turned, so that above 0 is nearer"
    if len(analysis):
        confidence = f"{analysis.confidence * 100:.4g}%"
        yield f"{confidence} intervals by resampling queries, seed {analysis.seed}"


# -- one flat table -------------------------------------------------------------------------------


def flat_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Every number as a row: part, slice, group, statistic, value, low, high, n."""
    rows = list(_distribution_rows(analysis))
    for row in analysis.groups:
        rows += _group_rows("groups", row)
    for column in analysis.slices:
        for row in analysis.by(column):
            rows += _group_rows("slices", row)
    found = analysis.correlation
    rows += [
        _estimate_row("correlation", "", "", "within", found.within),
        _row("correlation", "", "", "within_p", found.p),
        _row("correlation", "", "", "positive", found.positive, n=found.within.queries),
        _row("correlation", "", "", "significant", found.significant, n=found.within.queries),
        _row("correlation", "", "", "pooled", found.pooled, found.pooled_low, found.pooled_high,
             found.semantic_pairs + found.other_pairs),
        _row("correlation", "", "", "pooled_p", found.pooled_p),
    ]  # fmt: skip
    for band in analysis.bands:
        name = f"{band.first}-{band.last}"
        rows.append(_estimate_row("bands", "rank", name, "relevant", band.relevant))
        bounds = (math.nan, band.least, band.most)
        rows.append(_row("bands", "rank", name, "relevant_bounds", *bounds, band.pairs))
        rows.append(_row("bands", "rank", name, "judged", float(band.judged), n=band.pairs))
        for key, estimate in (("found", band.found), ("found_semantic", band.found_semantic)):
            if estimate is not None:
                rows.append(_estimate_row("bands", "rank", name, key, estimate))
    return rows


def _distribution_rows(analysis: Analysis) -> Iterator[dict[str, Any]]:
    found, n = analysis.distribution, len(analysis)
    yield _row("distribution", "", "", "bounds", math.nan, found.least, found.most, n)
    yield _row("distribution", "", "", "sd", found.sd, n=n)
    for percent, value in found.percentiles.items():
        yield _row("distribution", "", "", f"p{percent}", value, n=n)
    for count, queries in enumerate(found.counts.tolist()):
        yield _row("distribution", "semantic", str(count), "queries", float(queries), n=n)


def _group_rows(part: str, row: Group) -> Iterator[dict[str, Any]]:
    where = (part, row.column, row.group)
    shares = row.share
    yield _row(*where, "queries", float(row.queries), n=row.queries)
    yield _row(*where, "share", shares.value, shares.low, shares.high, row.queries)
    yield _row(*where, "share_bounds", math.nan, shares.least, shares.most, row.queries)
    for key in ("semantic_pairs", "other_pairs", "unjudged_pairs"):
        yield _row(*where, key, float(getattr(row, key)), n=row.queries)
    for key in ("number", "judged", "semantic", "others", "delta", "drop", "relative", "r",
                "recall", "srecall"):  # fmt: skip
        estimate = getattr(row, key)
        if estimate is not None:
            yield _estimate_row(*where, key, estimate)


def _estimate_row(
    part: str, column: str, group: str, statistic: str, found: Estimate
) -> dict[str, Any]:
    return _row(part, column, group, statistic, found.mean, found.low, found.high, found.queries)


def _row(
    part: str,
    column: str,
    group: str,
    statistic: str,
    value: float,
    low: float = math.nan,
    high: float = math.nan,
    n: int | None = None,
) -> dict[str, Any]:
    where = {"part": part, "slice": column, "group": group, "statistic": statistic}
    return {**where, "value": value, "low": low, "high": high, "n": n}


# -- cells ----------------------------------------------------------------------------------------


def _interval_head(analysis: Analysis) -> str:
    return f"{analysis.confidence * 100:.4g}% interval"


def _between(found: Estimate, digits: int = 4) -> str:
    return "-" if math.isnan(found.low) else _range(found.low, found.high, digits)


def _range(low: float, high: float, digits: int) -> str:
    return f"{number(low, digits)} to {number(high, digits)}"


def _shares(found: Share) -> str:
    return "-" if math.isnan(found.low) else f"{share(found.low)}-{share(found.high)}"


def _share_between(found: Estimate) -> str:
    return "-" if math.isnan(found.low) else f"{share(found.low)}-{share(found.high)}"


def _signed(value: float, digits: int = 4) -> str:
    shown = number(value, digits)
    return f"+{shown}" if value > 0 else shown


def _p_text(p: float) -> str:
    """A p-value with four decimals; a positive one is never shown as 0."""
    return "<0.0001" if p < 0.0001 else number(p)


def _queries(count: int) -> str:
    return plural(count, "query", "queries")


def _cut(line: str) -> str:
    room = terminal_width()
    return line if len(line) <= room else line[: room - 1].rstrip() + "…"
