"""The page of a tuning: verdict, front, what was chosen, what it saves, what was tried."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from semrecall.formats import write_whole
from semrecall.report.parts import beside, figure, making, page, table
from semrecall.report.tuning_charts import Mark, front
from semrecall.text import number, plural
from semrecall.tuning.text import (
    SAVING_WORDS,
    cost_number,
    facts,
    front_rows,
    headline,
    remarks,
    saving_tables,
    setting_of,
    way_out,
)

if TYPE_CHECKING:
    from semrecall.tuning import Tuning

__all__ = ["tuning_page", "write_tuning"]

#: So many settings that were tried are listed.
_LISTED = 300


def write_tuning(tuning: Tuning, path: str | Path, *, command: str | None = None) -> None:
    """Write a tuning as one HTML file that asks nothing of any server.

    command: the command line that made it, shown as it is. Needs matplotlib (the extra `report`);
    raises MissingExtra without it.
    """
    made = tuning_page(tuning, command=command)
    write_whole(path, made)


def tuning_page(tuning: Tuning, *, command: str | None = None) -> str:
    """The page that `write_tuning` writes; the same tuning gives the same text."""
    answer = headline(tuning)
    title = f"{answer[:1].upper()}{answer[1:]}."
    out = way_out(tuning)
    way = f"<p><strong>{escape(out[:1].upper() + out[1:])}.</strong></p>" if out else ""
    parts = [f"<h1>{escape(title)}</h1>", way, _facts(tuning), _snippet(tuning), _remarks(tuning)]
    parts += [_front(tuning), *_savings(tuning), _tried(tuning), making(command)]
    return page(title, parts)


def _facts(tuning: Tuning) -> str:
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(tuning)
    )
    system = f"<dt>system</dt><dd>{escape(tuning.system)}</dd>"
    return f"<dl>{system}{items}</dl>"


def _snippet(tuning: Tuning) -> str:
    if not tuning.snippet:
        return ""
    code = f"<pre><code>{escape(tuning.snippet)}</code></pre>"
    return f'<p>In the words of the system:</p><div class="scroll" tabindex="0">{code}</div>'


def _remarks(tuning: Tuning) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in remarks(tuning))
    return f"<h3>To know before using this setting</h3><ul>{items}</ul>" if items else ""


def _front(tuning: Tuning) -> str:
    name = tuning.target.name
    unbeaten = [
        Mark(p.cost.mean, p.measures[name].mean, p.measures[name].low, p.measures[name].high)
        for p in tuning.front
    ]
    on_front = {p.setting for p in tuning.front}
    others = [
        Mark(tuning.objective.shown(t.measured.cost(tuning.objective)), t.mean(name))
        for t in tuning.trials
        if not t.failed and t.setting not in on_front and not math.isnan(t.mean(name))
    ]
    chosen = Mark(tuning.choice.development_cost.mean, tuning.choice.development.mean)
    said = "; ".join(
        f"{p.setting}: {number(p.measures[name].mean)} at {cost_number(p.cost.mean)}"
        for p in tuning.front
    )
    drawn = front(
        "The front", f"{name} against {tuning.objective.name}. {said}.", unbeaten, others, chosen,
        tuning.target.value, tuning.objective.name, name,
    )  # fmt: skip
    rows = front_rows(tuning, limit=40)
    told = beside(
        figure(name, "", drawn),
        f"<p>On {plural(tuning.development, 'development query', 'development queries')}: each "
        "point is a setting that was tried; further left is cheaper, further up is better.</p>"
        "<ul><li>The line joins settings that none beats in both, with their intervals.</li>"
        "<li>Pale dots are the others that were tried.</li>"
        f"<li>The ring is the setting chosen: {escape(str(tuning.choice.setting))}.</li>"
        f"<li>The dashed line is the target, {escape(str(tuning.target))}.</li></ul>"
        "<p>Settings that were hopeless after some of the queries were not asked the rest.</p>",
    )
    heads = [head.replace("_", " ") if head == tuning.objective.name else head for head in rows[0]]
    return f"<h2>Quality against cost</h2>{told}{table(heads, rows[1:])}"


def _savings(tuning: Tuning) -> list[str]:
    if not tuning.savings:
        return []
    parts = [
        f"<h2>Against tuning for {escape(tuning.savings[0].baseline)}</h2>"
        "<p>Settings are chosen on development queries and compared on those held out.</p>"
        f"<ul>{''.join(f'<li>{escape(said)}</li>' for said in SAVING_WORDS)}</ul>"
    ]
    for title, rows in saving_tables(tuning.savings):
        said = title[:1].upper() + title[1:].rstrip(":")
        parts.append(f"<h3>{escape(said)}</h3>{table(rows[0], rows[1:])}")
    return parts


def _tried(tuning: Tuning) -> str:
    several = len({t.setting.system for t in tuning.trials}) > 1
    rows = [
        [
            setting_of(t.setting, several),
            t.message or number(t.mean(tuning.target.name)),
            "-"
            if t.failed
            else cost_number(tuning.objective.shown(t.measured.cost(tuning.objective))),
            f"{len(t.measured):,}",
        ]
        for t in tuning.trials[:_LISTED]
    ]
    heads = ["setting", tuning.target.name, tuning.objective.name.replace("_", " "), "queries"]
    rest = len(tuning.trials) - len(rows)
    more = f"<p>And {rest:,} more.</p>" if rest else ""
    return (
        f"<h2>What was tried</h2><details><summary>{plural(len(tuning.trials), 'setting')}, in the "
        f"order tried</summary>{table(heads, rows)}{more}</details>"
    )
