"""The page of a waterfall: the answer, the picture, the queries behind each loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semrecall.formats import write_whole
from semrecall.report.charts import GRID, INK, MUTED, SERIES, SURFACE, canvas, chart, svg
from semrecall.report.parts import beside, column_name, cut, figure, making, page, table
from semrecall.report.summary import GROUPS
from semrecall.text import one_line, plural, share, shortened
from semrecall.waterfall import CODES, EXACT, waterfall
from semrecall.waterfall.text import HEADS, about, headline, opening, remarks, step_rows

if TYPE_CHECKING:
    from semrecall.data import Run
    from semrecall.evaluate import Result
    from semrecall.waterfall import LostQuery, Step, Waterfall

__all__ = [
    "behind_losses", "falls", "group_tables", "picture", "result_waterfall", "waterfall_page",
    "waterfall_parts", "waterfall_remarks", "write_waterfall",
]  # fmt: skip

#: So many queries are shown behind each loss, and so many documents of each.
_LISTED, _DOCUMENTS = 50, 10


def result_waterfall(
    result: Result,
    run: str,
    *,
    later: Mapping[str, Run] | None = None,
    cuts: Mapping[str, int] | None = None,
    query_texts: Mapping[Any, str] | None = None,
    document_texts: Mapping[Any, str] | None = None,
) -> Waterfall:
    """Where the relevant documents of a result are lost, for one of its runs, by its slices.

    later: runs of the stages after the index, in order. cuts, texts: as in `waterfall`, which says
    what is raised. The result has judgments.
    """
    assert result.judgments is not None
    columns = {name: part.labels for name, part in result.slices.items()}
    return waterfall(
        result.judgments,
        truth=result.truth,
        codes=result.codes,
        runs={"index": result.given[run], **(later or {})},
        k=result.k,
        cuts=cuts,
        rel=1.0 if result.semantic is None else result.semantic.rel,
        query_texts=query_texts,
        document_texts=document_texts,
        columns={"query_id": list(result.queries), **columns},
        by=list(columns),
        seed=result.seed,
        confidence=result.confidence,
    )


def write_waterfall(
    found: Waterfall, path: str | Path, *, command: str | None = None, title: str | None = None
) -> None:
    """Write a waterfall as one HTML file that asks nothing of any server.

    command: the command line that made it, shown as it is. title: instead of the answer in one
    sentence. Needs matplotlib (the extra `report`); raises MissingExtra without it.
    """
    made = waterfall_page(found, command=command, title=title)
    write_whole(path, made)


def waterfall_page(
    found: Waterfall, *, command: str | None = None, title: str | None = None
) -> str:
    """The page that `write_waterfall` writes; the same waterfall gives the same text."""
    answer = title or f"{headline(found)}."
    parts = [f"<h1>{escape(answer)}</h1>", f'<p class="quiet">{escape(opening(found))}</p>']
    parts += waterfall_parts(found)
    parts += [making(command)]
    return page(answer, parts)


def waterfall_parts(found: Waterfall) -> list[str]:
    """The picture, tables and queries, to stand on any page."""
    parts = [picture(found), *group_tables(found), waterfall_remarks(found)]
    return parts + behind_losses(found)


def group_tables(found: Waterfall) -> list[str]:
    """The stages over each group of every slice; of very many groups, those that lose most."""
    tables = []
    for column in found.slices:
        by = {group: steps for group, steps in found.by(column).items() if steps}
        groups = list(by) if len(by) <= GROUPS else sorted(by, key=lambda g: by[g][-1].left)
        rows = [(group, *row) for group in groups[:GROUPS] for row in _rows(by[group])]
        fewer = len(by) - GROUPS
        more = f"<p>And {plural(fewer, 'group')} that lose less.</p>" if fewer > 0 else ""
        name = column_name(column)
        shown = table((name, *_HEADS), rows, names=2)
        tables.append(f"<h2>By {escape(name)}</h2>{shown}{more}")
    return tables


def behind_losses(found: Waterfall, limit: int = _LISTED) -> list[str]:
    """The queries behind each loss, and behind lucky finds, those of the largest share first."""
    parts = []
    for stage in found.stages:
        if stage.lost.any():
            parts.append(_behind(found, stage.name, limit, lucky=False))
        if stage.lucky.any():
            parts.append(_behind(found, stage.name, limit, lucky=True))
    return parts


def waterfall_remarks(found: Waterfall) -> str:
    """What to know of a waterfall, as a list."""
    # What a lucky find is stands beside the table.
    lines = remarks(found, lucky=False)
    if any(step.name == EXACT and not step.documents for step in found.steps):
        lines.insert(
            0, "nothing is lost by the embedding model, as far as is known: no relevant document "
            "is judged that is not among the exact neighbours; judge others to see what it loses",
        )  # fmt: skip
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h3>To know before using these numbers</h3><ul>{items}</ul>"


def picture(found: Waterfall, of: str = "", *, first: bool = True) -> str:
    """The picture and the table of the stages, with what the words mean on the first of a page.

    of: whose it is, where there are several.
    """
    steps = found.steps
    said = "; ".join(f"{about(s.name)} loses {share(s.lost)}" for s in steps)
    drawing = figure(
        one_line(of) or "What is left after each stage",
        "share of a query's relevant documents, mean over queries; thin lines are intervals",
        falls(f"Waterfall {of}".strip(), f"Of all relevant documents known {said}.", steps),
    )
    return beside(
        drawing, table(_HEADS, _rows(steps)), _bases(steps), _lucky(steps) if first else ""
    )


#: Headings of the stages, which have their names in words.
_HEADS = ("lost by", *HEADS[1:])


def _rows(steps: Sequence[Step]) -> list[tuple[str, ...]]:
    return [(shortened(about(name)), *rest) for name, *rest in step_rows(steps)]


def _bases(steps: Sequence[Step]) -> str:
    """What later stages lose of what reached them, which other measures are about."""
    said, before = [], 1.0
    for step in steps:
        if before < 1 and before > 0 and step.lost > 0:
            said.append(
                f"{about(step.name)} loses {100 * step.lost:.3g} of 100 that are known, which is "
                f"{share(step.lost / before)} of the {100 * before:.3g} that reach it"
            )
        before = step.left
    if not said:
        return ""
    text = "; ".join(said)
    return f"<p>{escape(text[:1].upper() + text[1:])}.</p>"


def _lucky(steps: Sequence[Step]) -> str:
    if not any(step.lucky_documents for step in steps):
        return ""
    return (
        '<p class="quiet">Lucky finds: documents that a stage has although an earlier one lost '
        "them. They stay counted as lost there.</p>"
    )


@chart
def falls(title: str, said: str, steps: Sequence[Step]) -> str:
    """Bars that begin where the one before ended: what each stage takes away, and what is left."""
    names = ["all known", *(shortened(about(step.name)) for step in steps), "kept to the end"]
    drawn, axes = canvas(height=58 + 34 * len(names), left=0.03, bottom_pixels=42)
    left = 1.0
    axes.barh(0, 1.0, 0.34, color=SERIES[0], linewidth=0)
    axes.text(1.0, -0.36, "100%", ha="right", va="center", color=INK)
    for y, step in enumerate(steps, start=1):
        after = step.left
        axes.barh(y, left - after, 0.34, left=after, color=SERIES[1], linewidth=0)
        axes.plot([left, left], [y - 0.83, y + 0.17], color=MUTED, linewidth=0.6)
        if step.low == step.low and step.high > step.low:
            axes.plot([left - step.high, left - step.low], [y, y], color=INK, linewidth=1)
        sign = f"\N{MINUS SIGN}{share(step.lost)}" if step.documents else "nothing"
        axes.text(0.99, y - 0.36, sign, ha="right", va="center", color=INK)
        left = after
    end = len(names) - 1
    axes.barh(end, left, 0.34, color=SERIES[0], linewidth=0)
    axes.text(1.0, end - 0.36, share(left), ha="right", va="center", color=INK, fontweight="bold")
    for y, name in enumerate(names):
        # A line that joins two bars makes room for the name between them.
        axes.text(
            0.0, y - 0.36, name, va="center", color=INK, fontweight="bold",
            bbox={"facecolor": SURFACE, "linewidth": 0, "pad": 1.5},
        )  # fmt: skip
    axes.set_xlabel("share of the relevant documents", color=INK)
    axes.set_ylim(len(names) - 0.5, -0.65)
    axes.set_xlim(0, 1.03)
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    rows = [
        (s.name, s.lost, s.low, s.high, s.documents, s.left, s.lucky, s.lucky_documents)
        for s in steps
    ]
    heads = ("stage", "lost", "low", "high", "documents", "left", "lucky", "lucky documents")
    return svg(drawn, title, said, (heads, rows))


def _behind(found: Waterfall, name: str, limit: int, *, lucky: bool) -> str:
    """The queries behind a loss, or behind lucky finds, in a list that folds."""
    counts = found[name].lucky if lucky else found[name].lost
    queries = found.lucky(name, limit) if lucky else found.behind(name, limit)
    stages = list(found.ranks)
    items = "\n".join(_query(one, stages) for one in queries)
    more = int((counts > 0).sum()) - len(queries)
    rest = f"<p>And {plural(more, 'query', 'queries')} more.</p>" if more > 0 else ""
    title = f"Lucky finds of {about(name)}" if lucky else f"Lost by {about(name)}"
    said = (
        "Relevant documents that an earlier stage had lost and this one has all the same."
        if lucky
        else "By query, the largest share first."
    )
    return f"<h2>{escape(title)}</h2><p>{escape(said)}</p>{items}{rest}"


def _where(stage: str) -> str:
    """Where a rank is of."""
    return {EXACT: "exact search", CODES: "exact search over the codes"}.get(stage, stage)


def _query(lost: LostQuery, stages: Sequence[str]) -> str:
    items = []
    for at, (name, text) in enumerate(lost.documents[:_DOCUMENTS]):
        ranks = ", ".join(
            f"{_where(stage)}: rank {lost.ranks[stage][at]:,}"
            if lost.ranks[stage][at]
            else f"{_where(stage)}: not found"
            for stage in stages
        )
        body = f'<p dir="auto">{escape(cut(text))}</p>' if text else ""
        items.append(
            f'<li><strong>{escape(str(name))}</strong> <span class="quiet">{escape(ranks)}</span>'
            f"{body}</li>"
        )
    more = len(lost.documents) - _DOCUMENTS
    rest = f'<li class="quiet">and {more:,} more</li>' if more > 0 else ""
    title = cut(f"{lost.query}: {lost.text}" if lost.text else str(lost.query))
    facts = f"{len(lost.documents):,} of {plural(lost.relevant, 'relevant document')}"
    return (
        f'<details><summary><span dir="auto">{escape(title)}</span> '
        f'<span class="figures">{facts}</span></summary><ul>{"".join(items)}{rest}</ul></details>'
    )
