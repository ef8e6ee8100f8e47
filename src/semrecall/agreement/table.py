"""An Agreement as plain text, at most 100 columns wide."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from semrecall.text import aligned, number, plural, share, shortened, wrapped

if TYPE_CHECKING:
    from semrecall.agreement.pair import Estimate, Pair
    from semrecall.agreement.result import Agreement, JudgeCounts

__all__ = ["interval_text", "labelled", "meaning", "opening", "p_text", "remarks", "text"]

_NAME = 24
_LISTED = 10
#: More columns of grades than this do not fit beside each other.
_GRADES = 9


def text(found: Agreement) -> str:
    """Tables of all that was found, and under them what is to be said."""
    lines = wrapped(opening(found))
    blocks = [_tables(found) if len(found.pairs) == 1 else _several(found)]
    blocks += [_alphas(found), _by_self(found), _low(found), _measures(found), _orders(found)]
    for block in blocks:
        lines += ["", *block] if block else []
    lines += ["", *(line for remark in remarks(found) for line in wrapped(remark))]
    return "\n".join(line.rstrip() for line in lines)


def opening(found: Agreement) -> str:
    """Who is compared, on what, and where the cut is."""
    names = [shortened(judge.name, _NAME) for judge in found.judges]
    who = " and ".join(names) if len(names) == 2 else ", ".join(names)
    where = f" among the exact top {found.inside:,}" if found.inside is not None else ""
    on = f"{plural(found.units, 'pair')} of {plural(found.queries, 'query', 'queries')}{where}"
    rels = {judge.rel for judge in found.judges}
    if len(rels) == 1:
        cut = f"relevant is grade {rels.pop():g} or more"
    else:
        cut = "relevant is grade " + ", ".join(
            f"{judge.rel:g} for {name}" for judge, name in zip(found.judges, names, strict=True)
        )
    return f"{who}: {on}; {cut}"


def labelled(pair: Pair, width: int = _NAME) -> dict[str, str]:
    """What each estimate of a pair is called, in words with the judges' names."""
    a, b = shortened(pair.first, width), shortened(pair.second, width)
    return {
        "agreement": "agreement",
        "kappa": "Cohen's kappa",
        "positive": "agreement on relevant (specific)",
        "negative": "agreement on not relevant (specific)",
        "second_if_first": f"{a} says relevant: {b} too",
        "second_not_if_first_not": f"{a} says not: {b} too",
        "first_if_second": f"{b} says relevant: {a} too",
        "first_not_if_second_not": f"{b} says not: {a} too",
        "relevant_first": f"relevant by {a}",
        "relevant_second": f"relevant by {b}",
        "lenience": "the first less the second",
        "same_grade": "same grade",
        "kappa_grades": "kappa of grades, unweighted",
        "kappa_linear": "kappa of grades, linear weights",
        "kappa_quadratic": "kappa of grades, quadratic weights",
    }


def interval_text(estimate: Estimate) -> str:
    """The interval, or why there is no value."""
    if math.isnan(estimate.value):
        return estimate.reason
    if math.isnan(estimate.low):
        return "-"
    return f"{number(estimate.low)} to {number(estimate.high)}"


def meaning(found: Agreement) -> str:
    """The heading of intervals."""
    return f"{found.sampling.confidence * 100:.4g}% interval"


# -- two judges -----------------------------------------------------------------------------------


def _tables(found: Agreement) -> list[str]:
    pair = found.pairs[0]
    names = labelled(pair)
    cells = [["", "", meaning(found)]]
    cells += [
        [names[name], number(value.value), interval_text(value)]
        for name, value in pair.values.items()
    ]
    return [*_confusion(pair), "", *aligned(cells, [False, True, True]), *_by_grade(pair)]


def _confusion(pair: Pair) -> list[str]:
    a, b = shortened(pair.first, _NAME), shortened(pair.second, _NAME)
    heads = [f"rows {a}, columns {b}", "relevant", "not relevant", "all"]
    sums = pair.table.sum(axis=1).tolist()
    cells = [heads]
    for label, row, total in zip(("relevant", "not relevant"), pair.table.tolist(), sums,
                                 strict=True):  # fmt: skip
        cells.append([label, *(f"{count:,}" for count in [*row, total])])
    cells.append(
        ["all", *(f"{count:,}" for count in [*pair.table.sum(axis=0).tolist(), sum(sums)])]
    )
    return aligned(cells, [False, True, True, True])


def _by_grade(pair: Pair) -> list[str]:
    if not 0 < len(pair.grades) <= _GRADES:
        return []
    heads = [f"by grade, rows {shortened(pair.first, _NAME)}", *(f"{g:g}" for g in pair.grades)]
    cells = [[*heads, "all"]]
    for grade, row in zip(pair.grades.tolist(), pair.grade_table.tolist(), strict=True):
        cells.append([f"{grade:g}", *(f"{count:,}" for count in [*row, sum(row)])])
    sums = pair.grade_table.sum(axis=0).tolist()
    cells.append(["all", *(f"{count:,}" for count in [*sums, sum(sums)])])
    return ["", *aligned(cells, [False] + [True] * (len(sums) + 1))]


# -- several --------------------------------------------------------------------------------------


def _several(found: Agreement) -> list[str]:
    inside = found.inside is not None
    cells = [["", "pairs", "graded", *(["among the top"] if inside else []), "relevant"]]
    cells += [
        [
            shortened(judge.name),
            *(f"{count:,}" for count in (judge.pairs, judge.graded)),
            *([f"{judge.inside:,}"] if inside else []),
            share(judge.relevant),
        ]
        for judge in found.judges
    ]
    lines = aligned(cells, [False] + [True] * (len(cells[0]) - 1))
    return [*lines, "", *_pairs(found)] if found.pairs else lines


def _pairs(found: Agreement) -> list[str]:
    """A line for each two judges."""
    graded = any("kappa_grades" in pair.values for pair in found.pairs)
    heads = ["", "pairs", "agreement", "kappa", meaning(found)]
    cells = [[*heads, *(["of grades", "quadratic"] if graded else [])]]
    for pair in found.pairs:
        row = [
            f"{shortened(pair.first, 14)}, {shortened(pair.second, 14)}",
            f"{pair.pairs:,}",
            number(pair["agreement"].value),
            number(pair["kappa"].value),
            interval_text(pair["kappa"]),
        ]
        if graded:
            weighted = [pair.values.get(name) for name in ("kappa_grades", "kappa_quadratic")]
            row += [number(None if one is None else one.value) for one in weighted]
        cells.append(row)
    return aligned(cells, [False] + [True] * (len(cells[0]) - 1))


def _alphas(found: Agreement) -> list[str]:
    if not found.pairs:
        return []
    what = {
        "nominal": "of relevant and not (nominal)",
        "ordinal": "of grades in their order (ordinal)",
        "interval": "of grades as numbers (interval)",
    }
    cells = [["Krippendorff's alpha", "", meaning(found)]]
    cells += [
        [what[level], number(value.value), interval_text(value)]
        for level, value in found.alphas.items()
    ]
    return aligned(cells, [False, True, True])


def _by_self(found: Agreement) -> list[str]:
    if not found.by_self:
        return []
    cells = [["pairs judged again", "pairs", "agreement", meaning(found), "alpha"]]
    cells += [
        [
            shortened(own.judge, _NAME),
            f"{own.pairs:,}",
            number(own.agreement.value),
            interval_text(own.agreement),
            number(own.alpha.value),
        ]
        for own in found.by_self
    ]
    return aligned(cells, [False] + [True] * 4)


def _low(found: Agreement) -> list[str]:
    low = found.low
    if not low:
        return []
    heading = (
        f"{len(low):,} of {plural(found.queries, 'query', 'queries')} below "
        f"{share(found.below)} agreement"
    )
    cells = [[heading, "pairs", "agreement"]]
    cells += [
        [shortened(str(query.query), 40), f"{query.pairs:,}", share(query.agreement)]
        for query in low[:_LISTED]
    ]
    lines = aligned(cells, [False, True, True])
    if len(low) > _LISTED:
        lines.append(f"and {len(low) - _LISTED:,} more (--per-query lists every query)")
    return lines


def _measures(found: Agreement) -> list[str]:
    if found.measures is None:
        return []
    rows = found.measures.rows
    several = len({row.run for row in rows}) > 1
    lines = []
    cells = [["", "mean", meaning(found), "queries", "change", meaning(found)]]
    heads: list[str] = []
    for row in rows:
        of_run = f", {shortened(row.run)}" if several else ""
        heads.append(f"{row.measure}{of_run}")
        change = (
            ["", ""]
            if math.isnan(row.change)
            else [f"{row.change:+.4f}", f"{row.change_low:+.4f} to {row.change_high:+.4f}"]
        )
        interval = "-" if math.isnan(row.low) else f"{number(row.low)} to {number(row.high)}"
        name = f"  {shortened(row.labels, 30)}"
        cells.append([name, number(row.mean), interval, f"{row.queries:,}", *change])
    table = aligned(cells, [False] + [True] * 5)
    lines.append(table[0])
    previous = ""
    for head, line in zip(heads, table[1:], strict=True):
        lines += [head, line] if head != previous else [line]
        previous = head
    return lines


def _orders(found: Agreement) -> list[str]:
    if found.measures is None or not found.measures.orders:
        return []
    cells = [["order of the runs", "judges", "Kendall's tau", "pairs turned round"]]
    cells += [
        [
            order.measure,
            f"{shortened(order.first, 16)}, {shortened(order.second, 16)}",
            number(order.tau, 3),
            f"{order.swapped:,} of {order.pairs:,}",
        ]
        for order in found.measures.orders
    ]
    return aligned(cells, [False, False, True, True])


# -- what is to be said ---------------------------------------------------------------------------


def remarks(found: Agreement) -> list[str]:
    """Sentences under the tables: who is more lenient, what was left out, how it was made."""
    lines = _of_pair(found.pairs[0]) if len(found.pairs) == 1 else _of_several(found)
    lines += [line for judge in found.judges for line in _of_judge(judge)]
    lines += _of_measures(found)
    lines += [f"note: {note}" for note in found.notes]
    sampling = found.sampling
    lines.append(
        f"intervals: {sampling.confidence * 100:.4g}%, bootstrap over queries, "
        f"{sampling.resamples:,} resamples, seed {sampling.seed}"
    )
    return lines


def _of_pair(pair: Pair) -> list[str]:
    a, b = shortened(pair.first, _NAME), shortened(pair.second, _NAME)
    lines = [_lenient(pair)] if pair.pairs else []
    if pair.only_first or pair.only_second:
        lines.append(
            f"graded by one of the two alone, not compared: {pair.only_first:,} by {a}, "
            f"{pair.only_second:,} by {b}"
        )
    if pair.no_grades and pair.pairs:
        lines.append(f"grades themselves are not compared: {pair.no_grades}")
    if not math.isnan(pair.kappa_pairs[0]) and pair.queries > 1:
        low, high = (number(bound) for bound in pair.kappa_pairs)
        lines.append(
            f"kappa's interval if pairs were independent, which they are not: {low} to {high}"
        )
    return lines


def _lenient(pair: Pair) -> str:
    """Who says relevant more often, and whether other queries might show the reverse."""
    a, b = shortened(pair.first, _NAME), shortened(pair.second, _NAME)
    gap = pair["lenience"]
    if pair.lenient is None:
        return f"{a} and {b} say relevant equally often"
    more, less = (a, b) if pair.lenient == pair.first else (b, a)
    line = (
        f"{more} is more lenient than {less}: says relevant to {number(abs(gap.value) * 100, 1)} "
        f"points more of the pairs (exact McNemar test over pairs: p {p_text(pair.p)})"
    )
    if gap.low <= 0 <= gap.high:
        line += "; over queries that may be chance, as the interval of the difference has 0 in it"
    return line


def _of_several(found: Agreement) -> list[str]:
    judges = [judge for judge in found.judges if not math.isnan(judge.relevant)]
    if len(judges) < 2:
        return []
    most, least = (pick(judges, key=lambda judge: judge.relevant) for pick in (max, min))
    return [
        f"most lenient: {shortened(most.name)}, {share(most.relevant)} relevant; strictest: "
        f"{shortened(least.name)}, {share(least.relevant)}; each of the pairs it graded"
    ]


def _of_judge(judge: JudgeCounts) -> list[str]:
    reasons = list(judge.no_grade.items())
    if not reasons:
        return []
    said = "; ".join(f"{count:,} {shortened(why, 40)}" for why, count in reasons[:6])
    rest = sum(count for _, count in reasons[6:])
    total = plural(sum(count for _, count in reasons), "pair")
    more = f"; {rest:,} for other reasons" if rest else ""
    why = f": {said}{more}" if len(reasons) > 1 else f", {reasons[0][0]}"
    return [f"{total} without a grade by {shortened(judge.name, _NAME)}{why}"]


def _of_measures(found: Agreement) -> list[str]:
    if found.measures is None:
        return []
    first = shortened(found.judges[0].name, _NAME)
    how = (
        "several give the lowest grade (and, all), the middle one (most) or the highest (or, any)"
        if found.measures.by_grade
        else "labels are 1 where a judge says relevant, else 0"
    )
    return [
        f"measures are under the {plural(found.measures.pairs, 'pair')} that all judges graded; "
        f"{how}; change is to the labels of {first}"
    ]


def p_text(value: float) -> str:
    """A p-value; a tiny one by its bound."""
    return "<0.0001" if value < 1e-4 else number(value)
