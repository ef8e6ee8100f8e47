"""The page of an Agreement: who agrees with whom, on what, and what it does to the measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semrecall.agreement.table import interval_text, labelled, meaning, opening, p_text, remarks
from semrecall.formats import write_whole
from semrecall.report.parts import beside, figure, heading, making, page, table
from semrecall.text import number, one_line, plural, share

if TYPE_CHECKING:
    from semrecall.agreement import Agreement, Estimate, Pair

__all__ = ["agreement_page", "agreement_parts", "headline", "write_html"]

#: So many queries below the threshold are listed.
_LISTED = 200
_BINS = 20


def write_html(
    found: Agreement, path: str | Path, *, command: str | None = None, title: str | None = None
) -> None:
    """Write an agreement as one HTML file that asks nothing of any server.

    command: the command line that made it, shown as it is. title: instead of the answer in one
    sentence.
    """
    made = agreement_page(found, command=command, title=title)
    write_whole(path, made)


def agreement_page(
    found: Agreement, *, command: str | None = None, title: str | None = None
) -> str:
    """The page that `write_html` writes; the same agreement gives the same text."""
    answer = title or headline(found)
    parts = [f"<h1>{escape(answer)}</h1>", f'<p class="quiet">{escape(opening(found))}</p>']
    return page(answer, [*parts, *agreement_parts(found), making(command, [_intervals(found)])])


def agreement_parts(found: Agreement) -> list[str]:
    """What they say and how far they agree, to stand on any page."""
    parts = _two(found, found.pairs[0]) if len(found.pairs) == 1 else [_several(found)]
    parts += [
        _alphas(found),
        _by_self(found),
        _remarks(found),
        _queries(found),
        _measures(found),
        _orders(found),
    ]
    return parts


def headline(found: Agreement) -> str:
    """The answer in a sentence."""
    if len(found.pairs) == 1:
        pair = found.pairs[0]
        names = f"{one_line(pair.first)} and {one_line(pair.second)}"
        value = pair["kappa"]
        agreed = f"agree on {share(pair['agreement'].value)} of {plural(pair.pairs, 'pair')}"
        return f"{names} {agreed}; {_said('Cohen’s kappa', value)}."
    if not found.pairs:
        return "; ".join(
            f"{one_line(own.judge)} agrees with itself on {share(own.agreement.value)} of "
            f"{plural(own.pairs, 'pair')}"
            for own in found.by_self
        )
    value = found.alphas["nominal"]
    return f"{len(found.judges)} judges: {_said('Krippendorff’s alpha', value)}."


def _said(name: str, value: Estimate) -> str:
    if math.isnan(value.value):
        return f"{name} is undefined: {value.reason}"
    between = (
        "" if math.isnan(value.low) else f" ({number(value.low, 3)} to {number(value.high, 3)})"
    )
    return f"{name} is {number(value.value, 3)}{between}"


def _remarks(found: Agreement) -> str:
    lines = [line.removeprefix("note: ") for line in remarks(found)]
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h3>To know before using these numbers</h3><ul>{items}</ul>"


# -- two judges -----------------------------------------------------------------------------------


def _two(found: Agreement, pair: Pair) -> list[str]:
    names = labelled(pair, 60)
    rows = [
        [names[name], number(value.value), interval_text(value), _bar(value, _reach(name))]
        for name, value in pair.values.items()
    ]
    sides = ["relevant", "not relevant"]
    parts = [
        "<h2>Who says what</h2>",
        f"<p>Rows: {escape(one_line(pair.first))}. Columns: {escape(one_line(pair.second))}. "
        "The darker, the more pairs.</p>",
        _counts(sides, pair.table),
    ]
    if len(pair.grades):
        parts += ["<h3>By grade</h3>", _counts([f"{g:g}" for g in pair.grades], pair.grade_table)]
    about = (
        "Specific agreement: how often the other judge says so where one of the two does. "
        "Kappa: 0 is what chance gives, 1 is perfect."
    )
    heads = ["", "value", meaning(found), ""]
    return [*parts, f"<h2>How far they agree</h2><p>{about}</p>", _with_bars(heads, rows)]


def _counts(labels: Sequence[str], counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    """Counts by row and column; the shade of a cell is its share of all."""
    most = max(1, int(counts.max(initial=0)))
    lines = []
    for label, row in zip(labels, counts.tolist(), strict=True):
        cells = "".join(f'<td style="{_shade(v / most)}">{v:,}</td>' for v in row)
        lines.append(f'<tr><th scope="row">{escape(label)}</th>{cells}<td>{sum(row):,}</td></tr>')
    sums = "".join(f"<td>{total:,}</td>" for total in [*counts.sum(axis=0).tolist(), counts.sum()])
    lines.append(f'<tr><th scope="row">all</th>{sums}</tr>')
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in [*labels, "all"])
    return _scrolling(f"<td></td>{heads}", lines)


def _shade(part: float) -> str:
    """The background of a cell, from none to half the first colour: text stays readable on it."""
    return f"background: color-mix(in srgb, var(--series-1) {50 * part:.0f}%, transparent)"


# -- several --------------------------------------------------------------------------------------


def _several(found: Agreement) -> str:
    if not found.pairs:
        return ""
    judges = [
        [
            one_line(judge.name),
            f"{judge.rel:g}",
            *(f"{count:,}" for count in (judge.pairs, judge.graded, judge.inside)),
            share(judge.relevant),
        ]
        for judge in found.judges
    ]
    heads = ["judge", "relevant from", "pairs", "graded", "compared", "relevant"]
    weighted = any("kappa_grades" in pair.values for pair in found.pairs)
    rows = []
    for pair in found.pairs:
        row = [one_line(pair.first), one_line(pair.second), f"{pair.pairs:,}"]
        row += [number(pair["agreement"].value), number(pair["kappa"].value)]
        row += [interval_text(pair["kappa"]), _signed(pair["lenience"]), p_text(pair.p)]
        if weighted:
            graded = [pair.values.get(name) for name in ("kappa_grades", "kappa_quadratic")]
            row += [number(None if one is None else one.value) for one in graded]
        rows.append(row)
    of_pairs = ["judge", "and", "pairs", "agreement", "kappa", meaning(found), "more relevant"]
    of_pairs += ["McNemar p", *(["kappa of grades", "quadratic"] if weighted else [])]
    return (
        f"<h2>Judges</h2>{table(heads, judges)}<h2>Two at a time</h2>"
        "<p>More relevant: by how much the share that the first calls relevant is above that of "
        f"the second.</p>{_kappas(found)}{table(of_pairs, rows, names=2)}"
    )


def _kappas(found: Agreement) -> str:
    """Kappa of every two judges as a square."""
    names = [one_line(judge.name) for judge in found.judges]
    values = {(pair.first, pair.second): pair["kappa"].value for pair in found.pairs}
    values |= {(second, first): value for (first, second), value in values.items()}
    lines = []
    for judge, name in zip(found.judges, names, strict=True):
        row = [values.get((judge.name, other.name), math.nan) for other in found.judges]
        cells = "".join(
            f'<td style="{_shade(0.0 if math.isnan(v) else max(0.0, v))}">{number(v, 3)}</td>'
            for v in row
        )
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return _scrolling(f"<th>Cohen’s kappa</th>{heads}", lines)


def _alphas(found: Agreement) -> str:
    if not found.pairs:
        return ""
    what = {
        "nominal": "relevant or not (nominal)",
        "ordinal": "grades in their order (ordinal)",
        "interval": "grades as numbers (interval)",
    }
    rows = [
        [what[level], number(value.value), interval_text(value), _bar(value, (-1.0, 1.0))]
        for level, value in found.alphas.items()
    ]
    return (
        "<h2>Krippendorff’s alpha</h2><p>Over all judges and every pair that two or more graded; "
        f"gaps are allowed.</p>{_with_bars(['', 'alpha', meaning(found), ''], rows)}"
    )


def _by_self(found: Agreement) -> str:
    if not found.by_self:
        return ""
    rows = [
        [
            one_line(own.judge),
            f"{own.pairs:,}",
            number(own.agreement.value),
            interval_text(own.agreement),
            number(own.alpha.value),
        ]
        for own in found.by_self
    ]
    heads = ["judge", "pairs judged again", "agreement", meaning(found), "alpha"]
    return f"<h2>With oneself</h2>{table(heads, rows)}"


# -- queries and measures -------------------------------------------------------------------------


def _queries(found: Agreement) -> str:
    if not found.by_query:
        return ""
    low = found.low
    rows = [
        [one_line(str(query.query)), f"{query.pairs:,}", share(query.agreement)]
        for query in low[:_LISTED]
    ]
    below = (
        f"{len(low):,} of {plural(found.queries, 'query', 'queries')} below "
        f"{share(found.below)} agreement"
    )
    listed = ""
    if rows:
        more = len(low) - len(rows)
        rest = f"<p>And {more:,} more.</p>" if more else ""
        listed = (
            f"<details><summary>{escape(below)}</summary>"
            f"{table(['query', 'pairs', 'agreement'], rows)}{rest}</details>"
        )
    values = np.array([query.agreement for query in found.by_query])
    chart = _histogram(values, f"Agreement of {plural(len(values), 'query', 'queries')}. {below}.")
    told = beside(
        figure("Agreement of a query", "how many queries have so much", chart),
        "<p>Share of equal labels within a query. Where it is low, the query itself may be "
        f"unclear.</p><p>{escape(below)}.</p>",
    )
    return f"<h2>Query by query</h2>{told}{listed}"


def _histogram(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], about: str) -> str:
    """How many queries have which agreement, as SVG in the colours of the page."""
    # A share of 0.7 belongs above the edge 0.7, whatever its last bit.
    bins = np.minimum((values * _BINS + 1e-9).astype(np.int64), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    most, width, height = int(counts.max(initial=0)) or 1, 300, 130
    step = width / _BINS
    bars = "".join(
        f'<rect x="{20 + at * step + 1:.1f}" y="{150 - height * count / most:.1f}" '
        f'width="{step - 2:.1f}" height="{height * count / most:.1f}" fill="var(--series-1)"/>'
        for at, count in enumerate(counts.tolist())
        if count
    )
    marks = "".join(
        f'<text x="{20 + width * part / 4:.0f}" y="168" font-size="11" text-anchor="middle" '
        f'fill="currentColor">{part * 25}%</text>'
        for part in range(5)
    )
    for count in sorted({most // 2, most} if most > 1 else {most}):
        y = 150 - height * count / most
        marks += (
            f'<line x1="20" x2="{20 + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
            f'<text x="14" y="{y + 4:.1f}" font-size="11" text-anchor="end" fill="currentColor">'
            f"{count:,}</text>"
        )
    names = (
        '<text x="14" y="154" font-size="11" text-anchor="end" fill="currentColor">0</text>'
        f'<text x="{20 + width / 2:.0f}" y="188" font-size="11" text-anchor="middle" '
        'fill="currentColor">agreement of a query</text>'
        '<text transform="translate(-24 85) rotate(-90)" font-size="11" text-anchor="middle" '
        'fill="currentColor">queries</text>'
    )
    return (
        f'<svg viewBox="-36 8 376 186" role="img" aria-label="{escape(about)}">{marks}{bars}'
        f'<line x1="20" x2="{20 + width}" y1="150" y2="150" stroke="var(--muted)"/>'
        f"{names}</svg>"
    )


def _measures(found: Agreement) -> str:
    if found.measures is None:
        return ""
    rows, runs = found.measures.rows, {row.run for row in found.measures.rows}
    ends = _ends([v for row in rows for v in (row.mean, row.low, row.high)])
    lines = []
    previous = ""
    for row in rows:
        of_run = f", {one_line(row.run)}" if len(runs) > 1 else ""
        head = f"{row.measure}{of_run}"
        if head != previous:
            title = f'<th scope="rowgroup" colspan="7" class="text">{escape(head)}</th>'
            lines.append(f'<tr class="first">{title}</tr>')
        previous = head
        moved = ("", "") if math.isnan(row.change) else (
            f"{row.change:+.4f}", f"{row.change_low:+.4f} to {row.change_high:+.4f}",
        )  # fmt: skip
        interval = "-" if math.isnan(row.low) else f"{number(row.low)} to {number(row.high)}"
        cells = [number(row.mean), interval, _line(row.mean, row.low, row.high, ends)]
        lines.append(
            f'<tr class="inner"><th scope="row">{escape(one_line(row.labels))}</th>'
            f"<td>{cells[0]}</td><td>{cells[1]}</td><td>{cells[2]}</td><td>{row.queries:,}</td>"
            f"<td>{moved[0]}</td><td>{moved[1]}</td></tr>"
        )
    heads = ["labels", "mean", meaning(found), "", "queries", "change", meaning(found)]
    head = "".join(heading(text, is_text=at == 0) for at, text in enumerate(heads))
    first = escape(one_line(found.judges[0].name))
    return (
        "<h2>What it does to the measures</h2><p>The same results under the labels of each judge. "
        f"Change is against the labels of {first}, over the queries that both define. A verdict "
        f"that depends on the row is no verdict.</p>{_scrolling(head, lines)}"
    )


def _orders(found: Agreement) -> str:
    if found.measures is None or not found.measures.orders:
        return ""
    rows = [
        [
            order.measure,
            f"{one_line(order.first)}, {one_line(order.second)}",
            number(order.tau, 3),
            f"{order.swapped:,} of {order.pairs:,}",
        ]
        for order in found.measures.orders
    ]
    heads = ["measure", "judges", "Kendall’s tau", "pairs of runs turned round"]
    return f"<h3>Order of the runs</h3>{table(heads, rows, names=2)}"


# -- marks ----------------------------------------------------------------------------------------


def _reach(name: str) -> tuple[float, float]:
    """The range of an estimate: shares from 0, what can be worse than chance from -1."""
    return (-1.0, 1.0) if name == "lenience" or "kappa" in name else (0.0, 1.0)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    return (min(known), max(known)) if known and min(known) < max(known) else (0.0, 1.0)


def _bar(value: Estimate, ends: tuple[float, float]) -> str:
    return _line(value.value, value.low, value.high, ends)


def _line(value: float, low: float, high: float, ends: tuple[float, float]) -> str:
    """A value as a dot on its interval, within a range; the numbers stand beside it."""
    if math.isnan(value):
        return ""

    def place(at: float) -> str:
        return f"{6 + 128 * (at - ends[0]) / (ends[1] - ends[0]):.1f}"

    zero = ""
    if ends[0] < 0 < ends[1]:
        x = place(0.0)
        zero = f'<line x1="{x}" x2="{x}" y1="1" y2="15" stroke="var(--line)"/>'
    reach = ""
    if not math.isnan(low):
        reach = (
            f'<line x1="{place(low)}" x2="{place(high)}" y1="8" y2="8" stroke="var(--series-1)" '
            'stroke-width="3" stroke-linecap="round" opacity=".5"/>'
        )
    return (
        '<svg viewBox="0 0 140 16" style="width: 8.75rem" aria-hidden="true">'
        f'<line x1="6" x2="134" y1="8" y2="8" stroke="var(--line)"/>{zero}{reach}'
        f'<circle cx="{place(value)}" cy="8" r="4" fill="var(--series-1)"/></svg>'
    )


def _with_bars(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose last column is drawn."""
    head = "".join(map(heading, heads))
    lines = []
    for name, *cells, drawn in rows:
        plain = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        # Names may take several lines, so that the values stay in sight on a narrow screen.
        row = f'<th scope="row" style="white-space: normal; min-width: 8rem">{escape(name)}</th>'
        lines.append(f"<tr>{row}{plain}<td>{drawn}</td></tr>")
    return _scrolling(head, lines)


def _scrolling(head: str, lines: Sequence[str]) -> str:
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>'
        + "\n".join(lines)
        + "</tbody></table></div>"
    )


def _signed(value: Estimate) -> str:
    return "-" if math.isnan(value.value) else f"{value.value * 100:+.1f} points"


def _intervals(found: Agreement) -> tuple[str, str]:
    sampling = found.sampling
    return "intervals", (
        f"{sampling.confidence * 100:.4g}%, bootstrap over queries, {sampling.resamples:,} "
        f"resamples, seed {sampling.seed}"
    )
