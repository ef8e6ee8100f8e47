"""The page of a sweep: curves of quality against cost, by system, by measure and by group."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from semrecall.formats import write_whole
from semrecall.report.parts import column_name, figure, making, page, table
from semrecall.report.tuning_charts import Mark, curves, levels
from semrecall.text import number, plural, shortened
from semrecall.tuning.text import cost_number, interval_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semrecall.tuning.saved_sweep import SavedSweep
    from semrecall.tuning.sweeping import Row, Sweep

__all__ = ["sweep_page", "sweep_parts", "write_sweep"]

#: A chart has so many lines at most.
_LINES = 4


def write_sweep(
    sweep: Sweep, path: str | Path, *, command: str | None = None, title: str | None = None
) -> None:
    """Write a sweep as one HTML file that asks nothing of any server.

    command: the command line that made it, shown as it is. title: instead of the usual one. Needs
    matplotlib (the extra `report`); raises MissingExtra without it.
    """
    made = sweep_page(sweep, command=command, title=title)
    write_whole(path, made)


def sweep_page(sweep: Sweep, *, command: str | None = None, title: str | None = None) -> str:
    """The page that `write_sweep` writes; the same sweep gives the same text."""
    answer = title or _title(sweep)
    queries = plural(sweep.queries, "query", "queries")
    parts = [
        f"<h1>{escape(answer)}</h1>",
        f'<p class="quiet">{escape(f"{queries} · cost: {sweep.objective.about}")}</p>',
        _by_system(sweep),
        _by_measure(sweep),
        *(_by_group(sweep, column) for column in sweep.slices),
        _table(sweep, None),
        *(_table(sweep, column) for column in sweep.slices),
        making(command),
    ]
    return page(answer, parts)


def sweep_parts(sweep: Sweep | SavedSweep) -> list[str]:
    """The curves, and the tables folded, to stand on any page."""
    charts = [_by_system(sweep), _by_measure(sweep)]
    charts += [_by_group(sweep, column) for column in sweep.slices]
    tables = "".join(_table(sweep, column) for column in (None, *sweep.slices))
    return [*charts, f"<details><summary>Every setting in numbers</summary>{tables}</details>"]


def _title(sweep: Sweep | SavedSweep) -> str:
    systems = ", ".join(shortened(name, 40) for name in sweep.curves)
    return f"Quality against {_cost(sweep)}: {systems}"


def _cost(sweep: Sweep | SavedSweep) -> str:
    return sweep.objective.name.replace("_", " ")


def _reach(sweep: Sweep | SavedSweep, column: str | None = None) -> dict[str, tuple[float, float]]:
    """From where to where the axis of each measure goes: of shares, the same for all of them."""
    shares = [str(m) for m in sweep.measures if m.at_most_one and not m.lower_is_better]
    ends = [
        end
        for row in sweep.rows(column)
        for name in shares
        for end in (row.measures[name].mean, row.measures[name].low, row.measures[name].high)
        if not math.isnan(end)
    ]
    if not ends:
        return {}
    apart = 0.04 * ((max(ends) - min(ends)) or 1.0)
    return dict.fromkeys(shares, (min(ends) - apart, max(ends) + apart))


def _marks(rows: Sequence[Row], measure: str) -> list[Mark]:
    found = [(row.cost.mean, row.measures[measure]) for row in rows]
    return [
        Mark(cost, e.mean, e.low, e.high) for cost, e in sorted(found, key=lambda pair: pair[0])
    ]


def _said(series: Sequence[tuple[str, Sequence[Mark]]]) -> str:
    return ". ".join(
        f"{name}: " + ", ".join(f"{number(m.mean, 3)} at {cost_number(m.x)}" for m in marks)
        for name, marks in series
    )


def _of(rows: Sequence[Row], system: str) -> list[Row]:
    return [row for row in rows if row.setting.system == system]


def _by_system(sweep: Sweep | SavedSweep) -> str:
    """The measures of one system on one axis: the shape of the paper's Figure 5."""
    rows, charts = sweep.rows(), []
    shown = [str(m) for m in sweep.measures[:_LINES]]
    reach = _reach(sweep)
    for system in sweep.curves:
        series = [(name, _marks(_of(rows, system), name)) for name in shown]
        drawn = curves(
            system, f"{system}. {_said(series)}.", series, sweep.objective.name,
            "mean over queries", reach.get(shown[0]) if reach.keys() >= set(shown) else None,
        )  # fmt: skip
        charts.append(figure(shortened(system, 44), "", drawn))
    return (
        "<h2>The measures of each system</h2><p>Bands are intervals over queries.</p>"
        f'<div class="charts">{"".join(charts)}</div>'
    )


def _by_measure(sweep: Sweep | SavedSweep) -> str:
    if len(sweep.curves) < 2:
        return ""
    rows, charts, reach = sweep.rows(), [], _reach(sweep)
    for measure in map(str, sweep.measures):
        series = [
            (shortened(system, 22), _marks(_of(rows, system), measure))
            for system in list(sweep.curves)[:_LINES]
        ]
        drawn = curves(
            f"{measure} of systems", f"{measure} by system. {_said(series)}.", series,
            sweep.objective.name, measure, reach.get(measure),
        )  # fmt: skip
        charts.append(figure(measure, "", drawn))
    return f'<h2>The systems side by side</h2><div class="charts">{"".join(charts)}</div>'


def _by_group(sweep: Sweep | SavedSweep, column: str) -> str:
    """Each measure along the groups, one line for each of some settings."""
    part, rows, charts = sweep.slices[column], sweep.rows(column), []
    reach = _reach(sweep, column)
    for system in sweep.curves:
        own = _of(rows, system)
        settings = list(dict.fromkeys(row.setting for row in own))
        step = max(1, -(-(len(settings) - 1) // (_LINES - 1)))
        shown = [*settings[:-1:step], settings[-1]][-_LINES:]
        for measure in map(str, sweep.measures[:3]):
            series = []
            for setting in shown:
                by_group = {r.group: r.measures[measure] for r in own if r.setting == setting}
                marks = [
                    Mark(at, by_group[g].mean, by_group[g].low, by_group[g].high)
                    for at, g in enumerate(part.groups)
                ]
                series.append((shortened(str(setting), 20), marks))
            groups = list(part.groups)
            said = ". ".join(
                f"{name}: " + ", ".join(
                    f"{g} {number(m.mean, 3)}" for g, m in zip(groups, marks, strict=True)
                )
                for name, marks in series
            )  # fmt: skip
            drawn = levels(
                f"{measure} of {system} by {column}", f"{said}.", groups, series,
                shortened(column_name(column), 44),
                measure, reach.get(measure),
            )  # fmt: skip
            charts.append(figure(measure, shortened(system, 44), drawn))
    title = part.about or column_name(column)
    return f'<h2>By {escape(title)}</h2><div class="charts">{"".join(charts)}</div>'


def _table(sweep: Sweep | SavedSweep, column: str | None) -> str:
    names = [str(m) for m in sweep.measures]
    heads = ["system", "setting", *([column_name(column), "queries"] if column else [])]
    for name in names:
        heads += [name, "interval"]
    heads.append(_cost(sweep))
    lines = []
    for row in sweep.rows(column):
        line = [row.setting.system, str(row.setting)]
        line += [row.group, f"{row.queries:,}"] if column else []
        for name in names:
            line += [number(row.measures[name].mean), interval_text(row.measures[name])]
        lines.append([*line, cost_number(row.cost.mean)])
    title = f"Every setting, by {column_name(column)}" if column else "Every setting"
    return f"<h2>{escape(title)}</h2>{table(heads, lines, names=3 if column else 2)}"
