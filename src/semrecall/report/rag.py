"""The page of contexts and answers: measures, slices, and every question with its verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.formats import write_whole
from semrecall.rag.text import HEADS, cells, headline, remarks
from semrecall.report.charts import Column, distributions
from semrecall.report.making import again, source_facts, versions
from semrecall.report.parts import cut, figure, made_section, page, table
from semrecall.text import number, plural

if TYPE_CHECKING:
    from semrecall.measures.verdicts import Case
    from semrecall.rag import RagResult, Record
    from semrecall.rag.claims import Claims

__all__ = ["rag_page", "write_rag"]

#: So many questions are shown in full, those with the lowest values first.
_LISTED = 200


def write_rag(found: RagResult, path: str | Path, **options: Any) -> None:
    """Write the result as one HTML file that asks nothing of any server; options as in `rag_page`.

    Needs matplotlib (the extra `report`); raises MissingExtra without it.
    """
    made = rag_page(found, **options)
    write_whole(path, made)


def rag_page(
    found: RagResult,
    *,
    command: str | None = None,
    title: str | None = None,
    sources: Mapping[str, Any] | None = None,
    extras: Collection[str] = (),
) -> str:
    """The page that `write_rag` writes; the same result gives the same text.

    command: the command line that made it, shown as it is. title: instead of the answer in one
    sentence. sources: the files that all was read from, by what they are; their hashes are shown.
    extras: those of semrecall that the command needs beside `report`.
    """
    answer = title or f"{headline(found)}."
    parts = [f"<h1>{escape(answer)}</h1>", f'<p class="quiet">{plural(len(found), "question")}</p>']
    parts.append(table(HEADS, cells(found.rows())))
    parts.append(_picture(found))
    for column in found.slices:
        rows = [(row.group, *cells([row])[0]) for row in found.rows(column)]
        parts.append(f"<h2>By {escape(column)}</h2>{table((column, *HEADS), rows, names=2)}")
    lines = (line.removeprefix("note: ") for line in remarks(found))
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    parts.append(f"<h3>To know before using these numbers</h3><ul>{items}</ul>")
    parts.append(_questions(found))
    facts = [("versions", versions(found.versions))]
    facts += [("judge", found.judge)] if found.judge else []
    facts += [("intervals", "; ".join(found.interval_methods))]
    parts.append(made_section([*facts, *source_facts(sources or {})]))
    parts.append(again(command, {"report", *extras}))
    return page(answer, parts)


def _picture(found: RagResult) -> str:
    columns = [
        Column(name.split("(")[0].replace("_", " "), found[name].values)
        for name in map(str, found.measures)
    ]
    floor = min(0.0, *(float(np.nanmin([0.0, *c.values])) for c in columns))
    said = "; ".join(f"{name}: mean {number(found.mean(name), 3)}"
                     for name in map(str, found.measures))  # fmt: skip
    drawn = distributions("Values of the questions", said, columns, 0, floor)
    shown = figure("Values of the questions", "wide: many have it; ring: the mean", drawn)
    return f'<div class="charts">{shown}</div>'


def _questions(found: RagResult) -> str:
    """Every question, those with the lowest mean of their values first."""
    values = np.array([found[str(measure)].values for measure in found.measures])
    signs = np.array([[-1.0 if m.lower_is_better else 1.0] for m in found.measures])
    known = ~np.isnan(values)
    total = np.where(known, values * signs, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    order = np.argsort(np.where(known.any(axis=0), total, np.inf), kind="stable")
    items = "\n".join(_question(found, int(at)) for at in order[:_LISTED])
    more = len(found) - _LISTED
    rest = f"<p>And {plural(more, 'question')} more.</p>" if more > 0 else ""
    return f"<h2>Questions, the weakest first</h2>{items}{rest}"


def _question(found: RagResult, at: int) -> str:
    record, claims, case = found.records[at], found.claims[at], found.cases[at]
    scores = [found[str(measure)] for measure in found.measures]
    figures = ", ".join(f"{s.measure} {number(float(s.values[at]), 3)}" for s in scores)
    missing = [f"{s.measure}: {s.reasons[at]}" for s in scores if s.reasons[at]]
    body = "".join(_body(record, claims, case))
    why = f'<p class="quiet">{escape("; ".join(missing))}</p>' if missing else ""
    title = escape(cut(f"{record.id}: {record.question}"))
    return (
        f'<details><summary><span dir="auto">{title}</span> '
        f'<span class="figures">{escape(figures)}</span></summary>{why}{body}</details>'
    )


def _body(record: Record, claims: Claims, case: Case) -> Iterator[str]:
    yield _list("Answer, by claims", claims.answer, {
        "supported": case.supported, "correct": case.correct,
    })  # fmt: skip
    if case.cited_support is not None or case.cited_by is not None:
        yield _list("Answer, by what it cites", claims.statements, {
            "supported by all it cites": case.cited_support,
            "citations that support it": None if case.cited_by is None or case.cited is None
            else [_counted(b[c]) for b, c in zip(case.cited_by, case.cited, strict=True)],
        })  # fmt: skip
    yield _list("Reference, by claims", claims.reference, {"in the contexts": case.attributed})
    yield _list("Contexts", [context.text for context in record.contexts], {
        "of use": case.useful if case.useful_reference is None else case.useful_reference,
        "relevant by id": None if case.known is None else case.known.astype(float),
    }, names=[context.id for context in record.contexts])  # fmt: skip


def _list(title: str, texts: Any, verdicts: dict[str, Any], names: Any = None) -> str:
    if not texts:
        return ""
    items = []
    for at, text in enumerate(texts):
        said = [
            f"{what}: {_word(values[at])}"
            for what, values in verdicts.items()
            if values is not None
        ]
        name = f"<strong>{escape(str(names[at]))}</strong> " if names else ""
        facts = f' <span class="quiet">{escape(", ".join(said))}</span>' if said else ""
        items.append(f'<li>{name}<span dir="auto">{escape(cut(text))}</span>{facts}</li>')
    return f"<h3>{escape(title)}</h3><ol>{''.join(items)}</ol>"


def _word(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return "no verdict" if value != value else "yes" if value else "no"


def _counted(verdicts: Any) -> str:
    return f"{np.count_nonzero(verdicts == 1)} of {len(verdicts)}"
