"""A tuning in words and tables, for a terminal and for files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semrecall.text import (
    aligned,
    display_width,
    number,
    plural,
    shortened,
    terminal_width,
    wrapped,
)
from semrecall.tuning.against import SAME_QUALITY
from semrecall.tuning.ranges import shown

if TYPE_CHECKING:
    from semrecall.tuning.against import Saving
    from semrecall.tuning.front import Point
    from semrecall.tuning.objectives import Objective
    from semrecall.tuning.ranges import Setting
    from semrecall.tuning.result import Tuning
    from semrecall.tuning.target import Estimate

__all__ = [
    "cost_text",
    "facts",
    "front_rows",
    "headline",
    "interval_text",
    "point_row",
    "remarks",
    "saving_tables",
    "setting_of",
    "signed_percent",
    "table",
    "tuning_document",
    "tuning_text",
    "way_out",
]


def headline(tuning: Tuning) -> str:
    """The answer in one sentence: verdict, mean, interval, queries."""
    found = tuning.choice.held_out
    percent = f"{tuning.confidence * 100:.4g}%"
    where = f"on {_held_out(tuning, found.n)}"
    said = f"{tuning.target.name} is {number(found.mean)} ({percent} interval "
    said += f"{interval_text(found)}) {where}"
    if tuning.verdict == "unreachable":
        return f"unreachable: no setting tried reaches {tuning.target}; at best {said}"
    return f"{tuning.verdict}: {said}; the target is {tuning.target}"


def _held_out(tuning: Tuning, known: int) -> str:
    """The queries held out; where the measure is undefined for some, how many have a value."""
    if known == tuning.held_out:
        return f"{plural(known, 'query', 'queries')} held out"
    out = tuning.held_out - known
    return f"{known:,} of {tuning.held_out:,} queries held out ({out:,} without a value)"


def way_out(tuning: Tuning) -> str:
    """What to do where the target is not met: the setting that is surer; "" where it is met."""
    if tuning.safe is not None and tuning.safe.setting == tuning.choice.setting:
        return (
            "on development queries this setting meets the target with the whole of its interval: "
            "the queries held out are harder"
        )
    if tuning.safe is not None:
        quality = tuning.safe.measures[tuning.target.name]
        return (
            f"take {tuning.safe.setting}: on development queries the cheapest setting that meets "
            f"the target with the whole of its interval, {number(quality.mean)} "
            f"({interval_text(quality)}), at {cost_text(tuning.objective, tuning.safe.cost)}; not "
            "confirmed, as that would be a second look at the queries held out"
        )
    if tuning.verdict == "not met":
        return "no setting tried meets the target with the whole of its interval"
    return ""


def facts(tuning: Tuning) -> list[tuple[str, str]]:
    """What was chosen, by name: setting, cost, development, how it was found."""
    choice = tuning.choice
    several = len({t.setting.system for t in tuning.trials}) > 1
    found = [("setting", setting_of(choice.setting, several))]
    found += [("cost", f"{cost_text(tuning.objective, choice.held_out_cost)}, held out")]
    means = [f"{n} {number(e.mean)}" for n, e in choice.others.items() if n != tuning.target.name]
    found += [("also", ", ".join(means))] if means else []
    on = plural(choice.development.n, "development query", "development queries")
    chosen = f"{number(choice.development.mean)} ({interval_text(choice.development)}) on {on}"
    found += [("chosen", chosen)]
    tried = plural(len(tuning.trials), "setting")
    searched = f"{tuning.searched:,} searches of a query"
    found += [("tried", f"{tried}, {searched}, seed {tuning.seed}")]
    return found


def remarks(tuning: Tuning) -> list[str]:
    """What a reader should know before using the setting."""
    found = []
    low, high = tuning.interval
    if tuning.verdict == "met" and not tuning.target.met(high if _lower(tuning) else low):
        found.append(
            "the interval reaches past the target: more queries, or choosing by the bound, would "
            "make it surer"
        )
    if not tuning.monotone:
        found.append("more of the knob was not always better, or dearer: a grid was searched, too")
    if tuning.spent:
        found.append(f"the search ended at its limit of {plural(len(tuning.trials), 'setting')}")
    failed = [t for t in tuning.trials if t.failed]
    found += [f"{t.setting} could not be searched: {t.message}" for t in failed[:5]]
    if len(failed) > 5:
        found.append(f"and {len(failed) - 5} more could not be searched")
    if tuning.objective.timed:
        found.append("times are of this machine as it was; a counter would not depend on it")
    return [*found, *tuning.notes]


def _lower(tuning: Tuning) -> bool:
    return tuning.target.measure.lower_is_better


def tuning_text(tuning: Tuning) -> str:
    """The whole result as text of at most 100 columns."""
    lines = wrapped(headline(tuning))
    if way_out(tuning):
        lines += wrapped(way_out(tuning))
    lines.append("")
    width = max(len(name) for name, _ in facts(tuning))
    for name, value in facts(tuning):
        lines += wrapped(f"{name:<{width}}  {value}", indent=" " * (width + 2))
    if tuning.snippet:
        lines += ["", *(f"    {line}" for line in tuning.snippet.splitlines())]
    lines += ["", f"settings that none beats, on {tuning.development:,} development queries:"]
    lines += table(_fitting(tuning))
    for title, rows in saving_tables(tuning.savings):
        lines += ["", *wrapped(title), *table(rows)]
    if tuning.savings:
        lines += ["", *(part for said in SAVING_WORDS for part in wrapped(said))]
    notes = remarks(tuning)
    lines += [""] * bool(notes)
    lines += [line for note in notes for line in wrapped(f"note: {note}")]
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, the first a heading; columns of numbers stand to the right."""
    if not rows:
        return []
    right = [
        c > 0
        and all(row[c].lstrip("-≤≥ ")[:1].isdigit() or row[c] in ("-", "") for row in rows[1:])
        for c in range(len(rows[0]))
    ]
    return aligned(rows, right)


def _fitting(tuning: Tuning) -> list[list[str]]:
    """The rows of the front that fit a terminal: with as much beside the setting as there is."""
    for measures, costs in ((3, True), (2, True), (3, False), (2, False), (1, False)):
        rows = front_rows(tuning, measures=measures, costs=costs)
        if max(map(display_width, table(rows))) <= terminal_width():
            break
    return rows


def front_rows(
    tuning: Tuning, *, measures: int = 3, costs: bool = True, limit: int = 16
) -> list[list[str]]:
    """The front as rows of cells, a heading first; the chosen setting is marked.

    measures: how many of them. costs: whether the cost has its interval.
    """
    several = len({t.setting.system for t in tuning.trials}) > 1
    shown = list(dict.fromkeys([tuning.target.name, *(str(m) for m in tuning.measures)]))
    shown = shown[:measures]
    around = ["interval"] * costs
    rows = [["setting", shown[0], "interval", *shown[1:], tuning.objective.name, *around, ""]]
    for point in _thinned(tuning.front, tuning, limit):
        first = point.measures[shown[0]]
        rows.append(
            [
                shortened(setting_of(point.setting, several), 40),
                number(first.mean),
                interval_text(first),
                *(number(point.measures[name].mean) for name in shown[1:]),
                cost_number(point.cost.mean),
                *([interval_text(point.cost, cost=True)] * costs),
                "chosen" if point.setting == tuning.choice.setting else "",
            ]
        )
    return rows


def _thinned(front: Sequence[Point], tuning: Tuning, limit: int) -> list[Point]:
    """At most so many points, spread evenly; the chosen one and its neighbours stay."""
    if len(front) <= limit:
        return list(front)
    chosen = [i for i, p in enumerate(front) if p.setting == tuning.choice.setting]
    near = {i + d for i in chosen for d in (-1, 0, 1) if 0 <= i + d < len(front)}
    step = (len(front) - 1) / (limit - 1 - len(near))
    spread = {round(i * step) for i in range(limit - len(near))}
    return [front[i] for i in sorted(near | spread)]


#: What the columns of savings are.
SAVING_WORDS = (
    "saved: the share of the cost, with its interval over the queries held out for these two "
    "settings",
    "rechosen: how that share varies (95%) when other development queries choose the settings",
)


def saving_tables(savings: Sequence[Saving]) -> list[tuple[str, list[list[str]]]]:
    """Savings as tables, one for each comparison and measure: a title, and rows of cells."""
    parts: dict[tuple[str, str], list[Saving]] = {}
    for one in savings:
        parts.setdefault((one.comparison, one.measure), []).append(one)
    return [(_saving_title(rows[0]), _saving_rows(rows)) for rows in parts.values()]


def _saving_title(one: Saving) -> str:
    sign = f"{one.baseline} at {one.target:g}"
    if one.comparison == SAME_QUALITY:
        return (
            f"same quality: {one.measure} as high as that of the cheapest setting with {sign}, "
            "on queries held out:"
        )
    return f"same target: {one.measure} instead of {sign}, on queries held out:"


def _saving_rows(savings: Sequence[Saving]) -> list[list[str]]:
    heads = ["group", "queries", "before", "after", "reached", "saved"]
    return [
        [*heads, "rechosen", ""],
        *(
            [
                one.group,
                f"{one.queries:,}",
                "-" if one.before is None else _brief(one.before),
                "-" if one.after is None else _brief(one.after),
                "-" if one.reached is None else number(one.reached.mean, 3),
                "-" if one.saved is None else saved_text(one.saved),
                "-" if one.rechosen is None else _span(one.rechosen),
                one.verdict,
            ]
            for one in savings
        ),
    ]


def _span(saved: Estimate) -> str:
    return f"{_percent(saved.low)} to {_percent(saved.high)}"


def signed_percent(part: float) -> str:
    """A change in percent, with its sign."""
    return f"{round(100 * part) + 0:+d}%"


def _percent(part: float) -> str:
    # Rounding leaves no minus before a nought.
    return f"{round(100 * part) + 0:d}%"


def saved_text(saved: Estimate) -> str:
    """A saving in percent with its interval."""
    if math.isnan(saved.low):
        return _percent(saved.mean)
    return f"{_percent(saved.mean)} ({_span(saved)})"


def _brief(setting: Setting) -> str:
    """A setting in a narrow column: the value alone where there is one knob."""
    pairs = [*setting.build, *setting.search]
    return shown(pairs[0][1]) if len(pairs) == 1 else shortened(str(setting), 24)


def setting_of(setting: Setting, several: bool) -> str:
    """A setting, with its system where there are several."""
    return f"{setting.system} {setting}" if several else str(setting)


def interval_text(found: Estimate, *, cost: bool = False) -> str:
    """The ends of an interval; a dash where there is none."""
    if math.isnan(found.low):
        return "-"
    shown = cost_number if cost else number
    return f"{shown(found.low)} to {shown(found.high)}"


def cost_number(value: float) -> str:
    """A cost as people read it: whole where it is large, else with four digits."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def cost_text(objective: Objective, cost: Estimate) -> str:
    """A cost with its name and interval."""
    around = "" if math.isnan(cost.low) else f" ({interval_text(cost, cost=True)})"
    return f"{objective.name} {cost_number(cost.mean)}{around}"


def point_row(point: Point, tuning: Tuning) -> dict[str, Any]:
    """A point of the front as one flat row, for CSV and markdown."""
    row: dict[str, Any] = {"system": point.setting.system}
    row |= {f"build {name}": value for name, value in point.setting.build}
    row |= dict(point.setting.search)
    for name, found in point.measures.items():
        row |= {name: found.mean, f"{name} low": found.low, f"{name} high": found.high}
    cost = tuning.objective.name
    row |= {cost: point.cost.mean, f"{cost} low": point.cost.low, f"{cost} high": point.cost.high}
    return row | {"chosen": point.setting == tuning.choice.setting}


def tuning_document(tuning: Tuning) -> dict[str, Any]:
    """Everything but the values of single queries, as plain mappings."""
    choice = tuning.choice
    return {
        "verdict": tuning.verdict,
        "target": str(tuning.target),
        "minimize": tuning.objective.name,
        "system": tuning.system,
        "build": tuning.build,
        "settings": tuning.settings,
        "snippet": tuning.snippet,
        "mean": tuning.mean,
        "interval": list(tuning.interval),
        "held_out": {name: vars(e).copy() for name, e in choice.others.items()},
        "cost": vars(choice.held_out_cost).copy(),
        "development": vars(choice.development).copy(),
        "development_cost": vars(choice.development_cost).copy(),
        "queries": {"development": tuning.development, "held_out": tuning.held_out},
        "front": [point.to_dict() for point in tuning.front],
        "safe": None if tuning.safe is None else tuning.safe.to_dict(),
        "savings": [one.to_dict() for one in tuning.savings],
        "tried": [
            {
                "system": t.setting.system,
                "build": dict(t.setting.build),
                "search": dict(t.setting.search),
                "queries": len(t.measured),
                "mean": None if t.failed else t.mean(tuning.target.name),
                "cost": None
                if t.failed
                else tuning.objective.shown(t.measured.cost(tuning.objective)),
                "failed": t.message or None,
            }
            for t in tuning.trials
        ],
        "searched": tuning.searched,
        "monotone": tuning.monotone,
        "spent": tuning.spent,
        "notes": [*filter(None, [way_out(tuning)]), *remarks(tuning)],
        "confidence": tuning.confidence,
        "seed": tuning.seed,
    }
