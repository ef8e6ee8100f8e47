"""What to do next: the largest loss, the worst slice, the setting that would fix it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from semrecall.report.headline import apart, main_measure, percent
from semrecall.text import number, one_line, plural, share
from semrecall.tuning.text import cost_number
from semrecall.waterfall.text import about

if TYPE_CHECKING:
    from semrecall.evaluate import Result, Summary
    from semrecall.tuning.saved_sweep import SavedSweep
    from semrecall.tuning.sweeping import Row, Sweep
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
#: So many losses are advised on.
_LOSSES = 3
#: A setting that costs so much of exact search saves nothing.
_WHOLE = 0.9
_REMEDIES = {
    "depth": "More relevant documents are known than the k results that count can hold: no fault "
    "of the model or the index. Ask for more results (-k), or count higher grades only (--rel).",
    "exact": "Exact search itself does not find them, so no setting of the index will: try another "
    "model, other chunks, or keywords beside vectors.",
    "codes": "The codes are too coarse: use more bits, or refine from the full vectors.",
    "index": "Exact search finds them, the index does not. Raise its search setting, or let "
    "semrecall tune find the cheapest one that reaches your target.",
    "rerank": "They are found, and ranked too low: look at the texts that it misjudges (below), or "
    "keep more of its results.",
    "context": "They are found, and cut off: pass on more results, or rank them better.",
    "answer": "They are read, and not used: look at the prompt and the generator.",
}

Advice = tuple[str, str]


def advice(
    result: Result,
    fall: Waterfall | None = None,
    sweep: Sweep | SavedSweep | None = None,
    run: str | None = None,
) -> list[Advice]:
    """What to do next, as (what, why and how), the weightiest first.

    run: whom it is about; the first of the runs when None.
    """
    run = result.runs[0] if run is None else run
    measure = main_measure(result)
    return [
        *(_losses(fall) if fall is not None else ()),
        *(_setting(result, run, measure, sweep) if sweep is not None else ()),
        *_unlabelled(result, run, measure, swept=sweep is not None),
        *_of_recall(result, run),
        *_slice(result, run, measure),
        *_unjudged(result),
        *_surer(result, run, measure),
    ]


def advice_section(found: list[Advice], run: str = "", why: str = "") -> str:
    """The section of a page; "" where there is nothing to say.

    run: which of several it is about, and why that one.
    """
    items = "".join(
        f"<li><strong>{escape(what)}</strong> {escape(how)}</li>" for what, how in found
    )
    whose = f"<p>About {escape(f'{one_line(run)}, {why}')}:</p>" if run else ""
    return f"<h2>What to do next</h2>{whose}<ol>{items}</ol>" if items else ""


def _losses(fall: Waterfall) -> Iterator[Advice]:
    """The largest losses, and what to do about each."""
    worst = [step for step in sorted(fall.steps, key=lambda step: -step.lost) if step.documents]
    for place, step in enumerate(worst[:_LOSSES]):
        if place and step.lost < _WORTH:
            break
        who, how = (
            about(step.name),
            _REMEDIES.get(step.name, "Look at what it takes away, and why."),
        )
        what = (
            f"{share(step.lost)} of the relevant documents"
            if place == 0
            else f"{share(step.lost)} of all known, {plural(step.documents, 'document')}"
        )
        if step.name == "exact":
            how = f"{how}{_just_below(fall)}"
        lead = "The largest loss:" if place == 0 else "Then:"
        yield f"{lead} {who}, {what}.", how


def _just_below(fall: Waterfall) -> str:
    """How many of what the model loses stand not far below k."""
    stage, ranks = fall["exact"], fall.ranks["exact"]
    near = ranks[stage.lost_pairs]
    found, deepest = int((near > 0).sum()), int(near.max(initial=0))
    if not found:
        return ""
    return (
        f" {found:,} of these {len(near):,} stand just below k, among its first {deepest:,}: more "
        "results and a reranker bring them back."
    )


def _unlabelled(result: Result, run: str, measure: str, *, swept: bool) -> Iterator[Advice]:
    """What to do where nothing says which neighbours are relevant."""
    if result.truth is None or result.judgments is not None:
        return
    mean = result.mean(measure, run)
    if mean < TARGET and not swept:
        yield (
            f"Raise the search setting: {measure} is {number(mean, 3)}.",
            f'semrecall tune --target "{measure} >= {TARGET:g}" finds the cheapest setting that '
            "reaches a target of yours, and confirms it on queries it has not seen.",
        )
    if mean < 1:
        yield (
            "Find out whether it matters.",
            "No judgment says which of the missed neighbours are relevant. semrecall plan picks "
            "the pairs to label, the missed ones first; semrecall judge asks a model, semrecall "
            "label people.",
        )


def _of_recall(result: Result, run: str) -> Iterator[Advice]:
    """What recall and semantic recall say together, over the queries that have both."""
    names = {m.name: str(m) for m in reversed(result.measures)}
    if not {"recall", "srecall"} <= names.keys():
        return
    low, high = apart(result, run, names["recall"], names["srecall"])
    if not (low > 0 or high < 0):
        return
    pair = [result[names[n], run].values for n in ("recall", "srecall")]
    both = np.isfinite(pair).all(axis=0)
    recall, semantic = (values[both] for values in pair)
    lost, by_recall = percent(1 - float(semantic.mean())), percent(1 - float(recall.mean()))
    if semantic.mean() - recall.mean() > _SMALL:
        yield (
            f"Set targets for {names['srecall']}, not for {names['recall']}.",
            f"Recall counts {by_recall} as lost, of the relevant neighbours it is {lost}: search "
            "tuned for recall pays for results nobody misses.",
        )
    elif recall.mean() - semantic.mean() > _SMALL:
        yield (
            f"Do not rely on {names['recall']} here.",
            f"Relevant neighbours are lost more often than the rest: {lost} against {by_recall}.",
        )


def _slice(result: Result, run: str, measure: str) -> Iterator[Advice]:
    """The group that loses most, where its interval lies apart from the mean over all."""
    lower = next(m.lower_is_better for m in result.measures if str(m) == measure)
    whole = result.mean(measure, run)
    rows: list[Summary] = [
        row
        for column in result.slices
        for row in result.summary(by=column)
        if row.run == run and row.measure == measure and row.n >= _ENOUGH
        and (row.low > whole if lower else row.high < whole)
    ]  # fmt: skip
    gaps = [(row.mean - whole if lower else whole - row.mean, row) for row in rows]
    size, row = max(gaps, key=lambda pair: pair[0], default=(0.0, None))
    if row is not None and size > _SMALL:
        column = "semantic neighbours" if row.column == "sn" else one_line(row.column)
        yield (
            f"The worst group: {column} {one_line(row.group)}.",
            f"{measure} is {number(row.mean, 3)} ({number(row.low, 3)} to {number(row.high, 3)}) "
            f"over its {plural(row.n, 'query', 'queries')}, {number(whole, 3)} over all. "
            "Look at its queries first.",
        )


def _setting(result: Result, run: str, measure: str, sweep: Sweep | SavedSweep) -> Iterator[Advice]:
    """The cheapest setting of a sweep that reaches the target."""
    if measure not in map(str, sweep.measures):
        yield (
            f"Sweep {measure} too.",
            f"The sweep has {', '.join(map(str, sweep.measures))}, so it does not say which "
            f"setting reaches {measure} {TARGET:g}: semrecall sweep -m {measure}.",
        )
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
    cheapest = min(reached, key=lambda row: row.cost.mean)
    found, here = cheapest.measures[measure], result.mean(measure, run)
    setting, system = one_line(str(cheapest.setting)), one_line(cheapest.setting.system)
    reaches = f"{number(found.mean, 3)} ({number(found.low, 3)} to {number(found.high, 3)})"
    cost = f"{sweep.objective.name.replace('_', ' ')} {cost_number(cheapest.cost.mean)}"
    now = (
        f"This run has {number(here, 3)}, more than such a target asks"
        if here >= TARGET
        else f"This run has {number(here, 3)}"
    )
    yield (
        f"The cheapest setting swept with {measure} of at least {TARGET:g}: {setting}.",
        f"{system} then has {reaches} for {cost}.{_all_of_it(result, sweep, cheapest)} {now}. "
        f"{TARGET:g} is this page's example of a target: take your own, and confirm the setting on "
        "queries held out (semrecall tune).",
    )


def _all_of_it(result: Result, sweep: Sweep | SavedSweep, row: Row) -> str:
    """Whether a setting costs what exact search costs, or all that the sweep has."""
    truth = result.truth
    rows = None if truth is None else truth.identity.get("base", {}).get("rows")
    counted = sweep.objective.name == "distance_computations"
    if rows and counted and row.cost.mean >= _WHOLE * rows:
        return f" That is as much as exact search over all {rows:,} rows: no index is needed."
    system = row.setting.system
    costs = [other.cost.mean for other in sweep.rows() if other.setting.system == system]
    dearest = max(costs) == row.cost.mean and len(costs) > 1
    return " It is the dearest setting swept." * dearest


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
