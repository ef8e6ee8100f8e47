"""Worst queries, and what each one got: every result with its true rank, grade and score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from semrecall.report.parts import cut, kind
from semrecall.text import number, one_line, plural

if TYPE_CHECKING:
    from semrecall.evaluate import Result

__all__ = ["Texts", "worst_queries"]

_WORST = 20
#: So many missed neighbours, and results, of a query are listed.
_MISSED, _RESULTS = 30, 100
#: A page stays small: so many characters of the texts of results, of all queries together.
_ROOM = 900_000


@dataclass(frozen=True)
class Texts:
    """Texts of queries and documents by id as text."""

    queries: Mapping[str, str]
    documents: Mapping[str, str]


def worst_queries(result: Result, texts: Texts, run: str | None = None) -> str:
    """The section of a page; about the first of the runs, or another."""
    measure = next(
        (str(m) for m in result.measures if m.name == "srecall"), str(result.measures[0])
    )
    run = result.runs[0] if run is None else run
    rows = result.worst(measure, _WORST, run)
    if not rows:
        return f"<h2>Worst queries</h2><p>{escape(measure)} is perfect wherever it is defined.</p>"
    of_run = f" of {one_line(run)}" if len(result.runs) > 1 else ""
    # Texts of results are cut short where there are many.
    longest = max(40, min(240, _ROOM // (len(rows) * _RESULTS)))
    items = "\n".join(_query(result, row, run, texts, longest) for row in rows)
    return (
        f"<h2>Worst queries</h2><p>The {plural(len(rows), 'query', 'queries')} with the lowest "
        f"{escape(measure + of_run)}: open one to see what it missed and what it got.</p>{items}"
    )


def _query(result: Result, row: int, run: str, texts: Texts, longest: int) -> str:
    query = str(result.queries[row])
    text = cut(texts.queries.get(query, ""))
    values = ", ".join(
        f"{m} {number(float(result.scores[run, str(m)].values[row]), 3)}"
        for m in result.measures[:6]
    )
    shown = f'<strong dir="auto">{escape(one_line(query))}</strong>' + (
        f' <span dir="auto">{escape(text)}</span>' if text else ""
    )
    return (
        f'<details><summary>{shown} <span class="figures">{escape(values)}</span></summary>'
        f"{_missed(result, row, run, texts)}{_got(result, row, run, texts, longest)}</details>"
    )


def _missed(result: Result, row: int, run: str, texts: Texts) -> str:
    if result.truth is None:
        return ""
    missed = result.missed(row, run)
    if not missed:
        return "<p>No true neighbour was missed.</p>"
    graded = any(not math.isnan(m.grade) for m in missed)
    # What mattered stands first: by grade, then by rank.
    ordered = sorted(missed, key=lambda m: -1.0 if math.isnan(m.grade) else m.grade, reverse=True)
    heads = ["true rank", *(["grade"] if graded else [])]
    rows = [
        ([f"{m.rank:,}", *([_grade(m.grade)] if graded else [])], m.document)
        for m in ordered[:_MISSED]
    ]
    return (
        f"<p>{plural(len(missed), 'true neighbour')} missed.</p>"
        f"{_table(heads, rows, texts, 240)}{_more(len(missed), len(rows))}"
    )


def _got(result: Result, row: int, run: str, texts: Texts, longest: int) -> str:
    found = result.found(row, run)
    if not found:
        return "<p>Nothing was returned.</p>"
    graded = any(not math.isnan(one.grade) for one in found)
    scored = any(not math.isnan(one.score) for one in found)
    ranked = result.truth is not None
    heads = ["rank"] + ["true rank"] * ranked + ["grade"] * graded + ["score"] * scored
    rows = []
    for one in found[:_RESULTS]:
        cells = [f"{one.rank:,}"]
        cells += [f"{one.true_rank:,}" if one.true_rank else "-"] * ranked
        cells += [_grade(one.grade)] * graded
        cells += [number(one.score)] * scored
        rows.append((cells, one.document))
    return (
        f"<p>{plural(len(found), 'result')} returned.</p>"
        f"{_table(heads, rows, texts, longest)}{_more(len(found), len(rows))}"
    )


def _more(all_of_them: int, shown: int) -> str:
    return f"<p>And {all_of_them - shown:,} more.</p>" if all_of_them > shown else ""


def _grade(grade: float) -> str:
    return "unjudged" if math.isnan(grade) else f"{grade:g}"


def _table(
    heads: Sequence[str],
    rows: Sequence[tuple[Sequence[str], str | int]],
    texts: Texts,
    longest: int,
) -> str:
    with_text = any(str(document) in texts.documents for _, document in rows)
    lines = []
    for numbers, document in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in numbers)
        cells += f'<td class="text">{escape(cut(str(document), 80))}</td>'
        if with_text:
            text = cut(texts.documents.get(str(document), ""), longest)
            cells += f'<td class="text long" dir="auto">{escape(text)}</td>'
        lines.append(f"<tr>{cells}</tr>")
    names = [*heads, "document", *(["text"] if with_text else [])]
    head = "".join(f'<th scope="col"{kind(h in ("document", "text"))}>{h}</th>' for h in names)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>'
        + "".join(lines)
        + "</tbody></table></div>"
    )
