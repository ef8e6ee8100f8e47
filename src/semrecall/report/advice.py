"""What to do next: the largest loss, the worst slice, the setting that would fix it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from semrecall.report.headline import percent
from semrecall.text import number, one_line, plural, share
from semrecall.tuning.text import cost_number
from semrecall.waterfall.text import about

if TYPE_CHECKING:
    from semrecall.evaluate import Result, Summary
    from semrecall.tuning.saved_sweep import SavedSweep
    from semrecall.tuning.sweeping import Sweep
    from semrecall.waterfall import Waterfall

__all__ = ["advice", "advice_section"]

#: The quality that a setting is looked for at.
TARGET = 0.95
#: A slice is named only where so many queries stand behind it.
_ENOUGH = 5
#: Differences below this are not worth advice.
_SMALL = 0.02
#: Nor are losses below this, where another is larger.
_WORTH = 0.005
_FOUND = "Exact search finds them, the index does not. "
_REMEDIES = {
    "exact": "Exact search itself does not find them, so no setting of the index will: try another "
    "model, other chunks, or keywords beside vectors.",
    "codes": "The codes are too coarse: use more bits, or refine from the full vectors.",
    "index": f"{_FOUND}Raise its search setting, or let semrecall tune find the cheapest one that "
    "reaches your target.",
    "context": "They are found, and cut off: pass on more results, or rank them better.",
    "answer": "They are read, and not used: look at the prompt and the generator.",
}

Advice = tuple[str, str]


def advice(
    result: Result, fall: Waterfall | None = None, sweep: Sweep | SavedSweep | None = None
) -> list[Advice]:
    """What to do next, as (what, why and how), the weightiest first."""
    run = result.runs[0]
    measure = next(
        (str(m) for n in ("srecall", "trecall", "recall") for m in result.measures if m.name == n),
        str(result.measures[0]),
    )
    return [
        *(_largest(fall) if fall is not None else ()),
        *(_setting(result, run, measure, sweep) if sweep is not None else ()),
        *_of_recall(result, run),
        *_slice(result, run, measure),
        *_unjudged(result),
        *_surer(result, run, measure),
    ]


def advice_section(found: list[Advice], run: str = "") -> str:
    """The section of a page; "" where there is nothing to say.

    run: which of several it is about.
    """
    items = "".join(
        f"<li><strong>{escape(what)}</strong> {escape(how)}</li>" for what, how in found
    )
    whose = f"<p>About {escape(one_line(run))}, the first of the runs:</p>" if run else ""
    return f"<h2>What to do next</h2>{whose}<ol>{items}</ol>" if items else ""


def _largest(fall: Waterfall) -> Iterator[Advice]:
    worst = fall.largest
    if worst is None:
        return
    remedy = _REMEDIES.get(worst.name, "Look at what this stage takes away, and why.")
    yield (
        f"The largest loss: {about(worst.name)}, {share(worst.lost)} of the relevant documents.",
        remedy,
    )
    own = [step for step in fall.steps if step.name in ("codes", "index") and step is not worst]
    for step in sorted(own, key=lambda step: -step.lost):
        if step.documents and step.lost >= _WORTH:
            who = about(step.name)
            yield (
                f"{who[:1].upper()}{who[1:]} loses {plural(step.documents, 'relevant document')} "
                f"that exact search finds: {share(step.lost)} of all known.",
                _REMEDIES[step.name].removeprefix(_FOUND),
            )


def _of_recall(result: Result, run: str) -> Iterator[Advice]:
    """What recall and semantic recall say together."""
    names = {m.name: str(m) for m in reversed(result.measures)}
    if not {"recall", "srecall"} <= names.keys():
        return
    recall, semantic = result.mean(names["recall"], run), result.mean(names["srecall"], run)
    if semantic - recall > _SMALL:
        yield (
            f"Set targets for {names['srecall']}, not for {names['recall']}.",
            f"Recall counts {percent(1 - recall)} as lost, of the relevant neighbours it is "
            f"{percent(1 - semantic)}: search tuned for recall pays for results nobody misses.",
        )
    elif recall - semantic > _SMALL:
        yield (
            f"Do not rely on {names['recall']} here.",
            f"Relevant neighbours are lost more often than the rest: {percent(1 - semantic)} "
            f"against {percent(1 - recall)}.",
        )


def _slice(result: Result, run: str, measure: str) -> Iterator[Advice]:
    """The group that loses most, where it stands apart from the whole."""
    lower = next(m.lower_is_better for m in result.measures if str(m) == measure)
    whole = result.mean(measure, run)
    rows: list[Summary] = [
        row
        for column in result.slices
        for row in result.summary(by=column)
        if row.run == run and row.measure == measure and row.n >= _ENOUGH
    ]
    gaps = [(row.mean - whole if lower else whole - row.mean, row) for row in rows]
    size, row = max(gaps, key=lambda pair: pair[0], default=(0.0, None))
    if row is not None and size > _SMALL:
        column = "semantic neighbours" if row.column == "sn" else one_line(row.column)
        yield (
            f"The worst group: {column} {one_line(row.group)}.",
            f"{measure} is {number(row.mean, 3)} over its "
            f"{plural(row.n, 'query', 'queries')}, {number(whole, 3)} over all. "
            "Look at its queries first.",
        )


def _setting(result: Result, run: str, measure: str, sweep: Sweep | SavedSweep) -> Iterator[Advice]:
    """The cheapest setting of a sweep that reaches the target."""
    if measure not in map(str, sweep.measures):
        return
    rows = [row for row in sweep.rows() if not math.isnan(row.measures[measure].mean)]
    reached = [row for row in rows if row.measures[measure].mean >= TARGET]
    if not reached:
        best = max((row.measures[measure].mean for row in rows), default=math.nan)
        yield (
            f"No setting of the sweep reaches {measure} {TARGET:g}.",
            f"The best has {number(best, 3)}: sweep higher settings, or build the index anew.",
        )
        return
    best_row = min(reached, key=lambda row: row.cost.mean)
    found = best_row.measures[measure]
    yield (
        f"The setting for it: {one_line(str(best_row.setting))}.",
        f"Of the settings of {one_line(best_row.setting.system)} that were swept it is the "
        f"cheapest with {measure} of {TARGET:g} or more: "
        f"{number(found.mean, 3)} ({number(found.low, 3)} to {number(found.high, 3)}) for "
        f"{sweep.objective.name.replace('_', ' ')} {cost_number(best_row.cost.mean)}. Here it is "
        f"{number(result.mean(measure, run), 3)}. Confirm it on queries held out "
        "(semrecall tune).",
    )


def _unjudged(result: Result) -> Iterator[Advice]:
    """To judge more, where much is not."""
    semantic = result.semantic
    if semantic is None or not len(semantic.judged):
        return
    known = result.problems[result.runs[0]].sizes(semantic.k)
    part = semantic.judged.sum() / max(int(known.sum()), 1)
    if part < 0.9:
        yield (
            f"Judge more: {percent(1 - float(part))} of the exact neighbours have no label.",
            "semrecall pool lists the pairs that could change most, missed ones first.",
        )


def _surer(result: Result, run: str, measure: str) -> Iterator[Advice]:
    """More queries, where the interval is wide."""
    low, high = result.interval(measure, run)
    if not math.isnan(low) and high - low > 0.1:
        needed = math.ceil(len(result.queries) * ((high - low) / 0.05) ** 2)
        yield (
            "Take more queries.",
            f"The interval of {measure} is {number(high - low, 2)} wide; with about "
            f"{needed:,} queries it would be 0.05.",
        )
