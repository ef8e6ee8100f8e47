"""The page of an analysis: answer, charts, tables, queries without a relevant neighbour."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from semrecall.analysis.text import (
    barren_facts,
    barren_title,
    grade_text,
    headline,
    opening,
    remarks,
    score_tables,
    tables,
)
from semrecall.formats import write_whole
from semrecall.report.analysis_charts import (
    correlations,
    cumulative,
    relevance_by_rank,
    scores_by_group,
)
from semrecall.report.charts import histogram
from semrecall.report.parts import cut, figure, making, page, table
from semrecall.text import number, one_line, plural, share

if TYPE_CHECKING:
    from semrecall.analysis import Analysis, Barren, Neighbour
    from semrecall.analysis.text import Table

__all__ = ["analysis_page", "scores_parts", "write_analysis"]

#: So many queries without a relevant neighbour are shown.
_LISTED = 200


def write_analysis(
    analysis: Analysis, path: str | Path, *, command: str | None = None, title: str | None = None
) -> None:
    """Write an analysis as one HTML file that asks nothing of any server.

    command: the command line that made it, shown as it is. title: instead of the answer in one
    sentence. Needs matplotlib (the extra `report`); raises MissingExtra without it.
    """
    made = analysis_page(analysis, command=command, title=title)
    write_whole(path, made)


def analysis_page(
    analysis: Analysis, *, command: str | None = None, title: str | None = None
) -> str:
    """The page that `write_analysis` writes; the same analysis gives the same text."""
    answer = title or f"{headline(analysis)}."
    parts = [f"<h1>{escape(answer)}</h1>", f'<p class="quiet">{escape(opening(analysis))}</p>']
    parts += [_remarks(analysis), _counts(analysis), _nearness(analysis)]
    parts += [_table(one) for one in tables(analysis)]
    parts += [_barren(analysis), making(command)]
    return page(answer, parts)


def scores_parts(analysis: Analysis) -> list[str]:
    """Whether scores tell what is relevant, to stand on any page: charts, scores, correlation."""
    return [_nearness(analysis), *(_table(one) for one in score_tables(analysis))]


def _table(one: Table) -> str:
    title = one.title[:1].upper() + one.title[1:]
    about = f"<p>{escape(one.about)}</p>" if one.about else ""
    return f"<h2>{escape(title)}</h2>{about}{table(one.heads, one.rows)}"


def _remarks(analysis: Analysis) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in remarks(analysis))
    return f"<h3>To know before using these numbers</h3><ul>{items}</ul>" if items else ""


# -- charts ---------------------------------------------------------------------------------------


def _counts(analysis: Analysis) -> str:
    if len(analysis) == 0:
        return ""
    found, k = analysis.distribution, analysis.k
    label = "semantic neighbours of a query"
    about = (
        f"Of the exact {k:,} neighbours of a query, {number(found.number.mean, 1)} are relevant on "
        f"average (grade {analysis.rel:g} or more); the median is {found.percentiles[50]:g}."
    )
    groups = analysis.groups[1:]
    splits = [int(group.group.split("-")[0]) for group in groups[2:]]
    at_most = "; ".join(f"{g.group}: {share(g.share.value)} of the queries" for g in groups)
    charts = [
        figure(
            f"Relevant ones among the exact {k:,}",
            "how many queries have so many",
            histogram("Semantic neighbours per query", about, analysis.semantic, k, label),
        ),
        figure(
            "The same, cumulated",
            "queries with at most so many; dashed: k/5 and 4k/5",
            cumulative("Cumulated", f"By number: {at_most}.", found.cumulative, splits, label),
        ),
    ]
    return (
        f"<h2>How many neighbours matter</h2><p>{escape(about)}</p>"
        f'<div class="charts">{"".join(charts)}</div>'
    )


def _nearness(analysis: Analysis) -> str:
    if len(analysis) == 0:
        return ""
    charts = []
    if analysis.space is not None:
        turned = "" if analysis.space.higher_is_nearer else " (distance: lower is nearer)"
        groups = [g for g in analysis.groups[1:] if g.queries]
        said = "; ".join(
            f"{g.group}: semantic {number(g.semantic.mean)}, others {number(g.others.mean)}"
            for g in groups
        )
        within = analysis.correlation.within
        queries = plural(within.queries, "query", "queries")
        charts = [
            figure(
                f"Mean scores{turned}",
                "of the semantic neighbours of a query and of its others",
                scores_by_group("Scores by group", said, groups, "semantic neighbours of a query"),
            ),
            figure(
                "Does the score tell them apart?",
                "rank-biserial correlation of each query; above 0: relevant ones are nearer",
                correlations(
                    "Correlations",
                    f"Mean {number(within.mean, 3)} over {queries}.",
                    analysis.r,
                ),
            ),
        ]
    said = "; ".join(f"{b.first}-{b.last}: {share(b.relevant.mean)}" for b in analysis.bands)
    charts.append(
        figure(
            "Relevance by rank",
            "share of the judged neighbours that are relevant",
            relevance_by_rank("Relevance by rank", said, analysis.bands),
        )
    )
    whiskers = f"Lines are {analysis.confidence * 100:.4g}% intervals."
    return f'<h2>How near they are</h2><p>{whiskers}</p><div class="charts">{"".join(charts)}</div>'


# -- queries without a relevant neighbour ---------------------------------------------------------


def _barren(analysis: Analysis) -> str:
    found = analysis.without_relevant
    if not found:
        said = "Every query has a relevant neighbour." if len(analysis) else ""
        return f"<h2>Queries without a relevant neighbour</h2><p>{said}</p>" if said else ""
    items = "\n".join(_query(barren) for barren in found[:_LISTED])
    more = f"<p>And {len(found) - _LISTED:,} more.</p>" if len(found) > _LISTED else ""
    return (
        f"<h2>Queries without a relevant neighbour</h2><p>{len(found):,} of "
        f"{plural(len(analysis), 'query', 'queries')}, with their nearest neighbours. Relevant "
        "documents elsewhere: the embedding puts them too far away. None at all: the corpus may "
        f"not hold an answer, or the judge missed it.</p>{items}{more}"
    )


def _query(barren: Barren) -> str:
    items = "".join(_near(near) for near in barren.nearest)
    title = cut(barren_title(barren))
    return (
        f'<details><summary>{escape(title)} <span class="figures">{escape(barren_facts(barren))}'
        f"</span></summary><ol>{items}</ol></details>"
    )


def _near(near: Neighbour) -> str:
    """A neighbour as an item of a list: texts are to be read, also on a narrow screen."""
    score = [] if math.isnan(near.score) else [f"score {number(near.score)}"]
    facts = " · ".join([*score, grade_text(near), one_line(str(near.document))])
    text = f'<p dir="auto">{escape(cut(near.text))}</p>' if near.text else ""
    return f'<li><span class="quiet">{escape(facts)}</span>{text}</li>'
