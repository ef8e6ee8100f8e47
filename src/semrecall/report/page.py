"""The report: answer, what to do, waterfall, values, curves, judges, worst queries, how made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.analysis import analyse
from semrecall.errors import SemrecallError
from semrecall.formats import write_whole
from semrecall.report.advice import advice, advice_section
from semrecall.report.agreement import agreement_parts
from semrecall.report.agreement import headline as agreement_headline
from semrecall.report.analysis import scores_parts
from semrecall.report.drill import Texts, worst_queries
from semrecall.report.headline import facts, headline, percent
from semrecall.report.making import result_making
from semrecall.report.parts import CONTENTS, by_text, page, under
from semrecall.report.pictures import codes_loss, neighbours, values
from semrecall.report.runs import choice, comparison_section, costs_section, gates_section
from semrecall.report.summary import remarks, slice_table, summary
from semrecall.report.sweep import sweep_parts
from semrecall.report.tolerances import tolerances
from semrecall.report.waterfall import (
    behind_losses,
    group_tables,
    picture,
    result_waterfall,
    waterfall_remarks,
)
from semrecall.text import one_line, plural
from semrecall.waterfall.text import headline as waterfall_headline
from semrecall.waterfall.text import opening

if TYPE_CHECKING:
    from semrecall.agreement import Agreement
    from semrecall.data import Cost
    from semrecall.evaluate import Comparison, Result
    from semrecall.gates import Verdict
    from semrecall.tolerance import ToleranceReport
    from semrecall.tuning.saved_sweep import SavedSweep
    from semrecall.tuning.sweeping import Sweep
    from semrecall.waterfall import Waterfall

__all__ = ["html_report", "write_html"]

#: Spaces in words.
_SPACES = {
    "ip": "inner product (ip)",
    "cosine": "cosine similarity",
    "l2": "Euclidean distance (l2)",
    "hamming": "Hamming distance",
    "jaccard": "Jaccard distance",
    "maxsim": "sum of largest inner products (maxsim)",
}
#: Waterfalls of so many runs are drawn.
_RUNS = 4
#: So many queries behind each loss are shown.
_BEHIND = 10
#: Whether scores tell what is relevant is asked of so many queries at most.
_ANALYSED = 500


def write_html(result: Result, path: str | Path, **options: Any) -> None:
    """Write the report of a result as one HTML file that asks nothing of any server.

    options: as in `html_report`. Needs matplotlib (the extra `report`); raises MissingExtra
    without it.
    """
    made = html_report(result, **options)
    write_whole(path, made)


def html_report(
    result: Result,
    *,
    query_texts: Mapping[Any, str] | None = None,
    document_texts: Mapping[Any, str] | None = None,
    waterfall: Waterfall | None = None,
    tolerance: ToleranceReport | None = None,
    sweep: Sweep | SavedSweep | None = None,
    agreement: Agreement | None = None,
    costs: Mapping[str, Cost] | None = None,
    comparison: Comparison | None = None,
    gates: Sequence[Verdict] = (),
    sources: Mapping[str, Any] | None = None,
    made: Sequence[tuple[str, str]] = (),
    earlier: Sequence[str] = (),
    command: str | None = None,
    title: str | None = None,
) -> str:
    """The page that `write_html` writes, as text; the same result gives the same text.

    query_texts, document_texts: {id: text}, shown beside the ids.
    waterfall: where relevant documents are lost, with stages after the index; without it, one
        of the truth, the codes and the runs is made where there are judgments.
    tolerance: the ways to choose x; without it, those that need no vectors.
    sweep, agreement: quality against cost, and how far judges agree, shown with the rest.
    costs, comparison, gates: what the runs cost (by run), how they compare, and what they had to
        reach. Of several runs the page proposes the cheapest that passes every gate.
    sources: the files that all was read from, by what they are; their hashes are shown.
    made: more facts of how the runs came about. earlier: command lines that made what was read.
    command: the command line that made the result, shown as it is.
    title: instead of the answer in one sentence.
    """
    answer = title or headline(result)
    texts = Texts(by_text(query_texts), by_text(document_texts))
    chosen = choice(result, costs, gates)
    falls = waterfalls(result, texts, chosen.run) if waterfall is None else {"": waterfall}
    fall = falls.get(chosen.run, waterfall)
    found = [*chosen.advice, *advice(result, fall, sweep, chosen.run)]
    searched = [*result.runs, *(() if sweep is None else sweep.curves)]
    parts = [
        f"<h1>{escape(answer)}</h1>",
        _standing(result),
        facts(result),
        advice_section(found, chosen.run * (len(result.runs) > 1), chosen.why),
        CONTENTS,
        gates_section(gates),
        *_waterfalls(falls, result),
        summary(result),
        remarks(result),
        costs_section(result, costs),
        comparison_section(comparison),
        values(result),
        neighbours(result),
        codes_loss(result),
        *_sweep(sweep),
        tolerances(result, tolerance),
        *_scores(result),
        *_agreement(agreement),
        *(slice_table(result, part) for part in result.slices.values()),
        worst_queries(result, texts, chosen.run),
        result_making(
            result, command, sources or {}, costs=costs, systems=searched, made=made,
            earlier=earlier,
        ),
    ]  # fmt: skip
    return page(answer, parts)


def _standing(result: Result) -> str:
    parts = [", ".join(map(one_line, result.runs)), plural(len(result.queries), "query", "queries")]
    if result.k is not None:
        parts.append(f"k = {result.k:,}")
    if result.space is not None:
        name = _SPACES.get(str(result.space), str(result.space))
        parts.append(f"nearest by {name}")
    return f'<p class="quiet">{escape(" · ".join(parts))}</p>'


def waterfalls(result: Result, texts: Texts, chosen: str = "") -> dict[str, Waterfall]:
    """Where relevant documents are lost, by run; empty without truth or judgments.

    chosen: a run that is among them, however many there are.
    """
    if result.truth is None or result.judgments is None:
        return {}
    found = {}
    drawn = list(result.runs[:_RUNS])
    if chosen in result.runs and chosen not in drawn:
        drawn[-1] = chosen
    for run in drawn:
        try:
            found[run] = result_waterfall(
                result, run, query_texts=texts.queries, document_texts=texts.documents
            )
        except SemrecallError:
            continue  # nothing relevant is known: the summary says so
    return found


def _waterfalls(falls: Mapping[str, Waterfall], result: Result) -> list[str]:
    if not falls:
        return []
    first = next(iter(falls.values()))
    parts = [
        "<p>Each relevant document is lost at the first stage that does not have it, or kept: the "
        f"stages add up. {escape(opening(first))}.</p>"
    ]
    for at, (run, fall) in enumerate(falls.items()):
        said = f"{waterfall_headline(fall)}."
        parts.append(f"<p>{escape(f'{one_line(run)}: {said}' if len(falls) > 1 else said)}</p>")
        parts.append(picture(fall, run if len(falls) > 1 else "", first=at == 0))
    parts.append(_two_losses(result) if any(s.name == "index" for s in first.stages) else "")
    parts.append(waterfall_remarks(first))
    if len(falls) == 1:
        # Headings of what is folded go down a level.
        parts += _folded("The same by group", group_tables(first))
        parts += _folded("The queries behind each loss", behind_losses(first, _BEHIND))
    return ["<h2>Where relevant documents are lost</h2>", *parts]


def _two_losses(result: Result) -> str:
    """Why the index loses another share here than in the sentence at the top of the page."""
    measure = next((str(m) for m in result.measures if m.name == "srecall"), None)
    if measure is None or len(result.runs) > 1 or math.isnan(result.mean(measure)):
        return ""
    lost = percent(1 - result.mean(measure))
    return (
        f"<p>The {lost} at the top of the page is of what the exact neighbours of a query have "
        f"({escape(measure)}): a mean over the queries that have any of their relevant documents "
        "there, each with the same weight.</p>"
    )


def _folded(title: str, parts: list[str]) -> list[str]:
    inside = "".join(under("", "", parts)[1:])
    return [f"<details><summary>{title}</summary>{inside}</details>"] if inside else []


def _sweep(sweep: Sweep | SavedSweep | None) -> list[str]:
    if sweep is None:
        return []
    about = "Each point is one setting; further left is cheaper, further up loses less."
    return under("Quality against cost", about, sweep_parts(sweep))


def _scores(result: Result) -> list[str]:
    """Whether scores tell what is relevant: the paper's Table 2, with the correlation."""
    semantic = result.semantic
    if result.truth is None or result.judgments is None or semantic is None:
        return []
    truth, said = result.truth, ""
    if len(truth) > _ANALYSED:
        # The interval of a pooled correlation looks at every pair in every resample.
        truth = truth.select(np.linspace(0, len(truth) - 1, _ANALYSED).astype(np.int64))
        said = f"Of {_ANALYSED:,} queries, evenly spaced."
    try:
        found = analyse(
            truth, result.judgments, rel=semantic.rel, k=semantic.k, seed=result.seed,
            confidence=result.confidence,
        )  # fmt: skip
    except SemrecallError:
        return []
    return under("Do scores tell what is relevant?", said, scores_parts(found))


def _agreement(agreement: Agreement | None) -> list[str]:
    if agreement is None:
        return []
    return under("Do the judges agree?", agreement_headline(agreement), agreement_parts(agreement))
