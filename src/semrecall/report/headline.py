"""The answer in one sentence."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from semrecall.stats.intervals import bootstrap_means
from semrecall.text import number, one_line, plural

if TYPE_CHECKING:
    from semrecall.evaluate import Result

__all__ = ["apart", "facts", "headline", "main_measure", "percent"]

#: A mean over this share of the queries, or more, is told without saying over how many.
_MOST = 0.75
#: What a run loses, by measure: the most telling first.
_LOST = {
    "srecall": "of the relevant neighbours",
    "trecall": "of the neighbours with nothing about as near in their place",
    "recall": "of the exact neighbours",
}

#: What each of them counts as missed.
_MISSED = {
    "recall": "of the exact nearest neighbours are missed, whether they matter or not",
    "srecall": "of the relevant ones among them are missed: what people lose by the index",
    "trecall": "are missed with nothing about as near in their place: a guess without a judge",
}


#: What each is called in words.
_NAMES = {"recall": "{}", "srecall": "semantic recall ({})", "trecall": "tolerant recall ({})"}


def headline(result: Result) -> str:
    """One sentence: what the index loses, and what plain recall would have made of it."""
    telling = next((n for n in _LOST if _first(result, n) is not None), None)
    if telling is None:
        return _of_any(result)
    measure = _first(result, telling)
    assert measure is not None
    recall = _first(result, "recall") if telling != "recall" else None
    if len(result.runs) == 1:
        return _loss("The index", result, result.runs[0], telling, measure, recall) + "."
    means = {run: result.mean(measure, run) for run in result.runs}
    known = [run for run in result.runs if not math.isnan(means[run])]
    if not known:
        return f"No query has a value of {measure}."
    if len(result.runs) == 2 and len(known) == 2:
        both = (_loss(one_line(r), result, r, telling, measure, recall) for r in known)
        return ", and ".join(both) + "."
    best = max(known, key=lambda run: means[run])
    loss = _loss(one_line(best), result, best, telling, measure, recall)
    return f"Of {len(result.runs)} runs {loss}: the least of all."


def main_measure(result: Result) -> str:
    """The measure that a page speaks of: the most telling recall, else the first measure."""
    recalls = (_first(result, name) for name in _LOST)
    return next((measure for measure in recalls if measure), str(result.measures[0]))


def facts(result: Result) -> str:
    """What each of the three recalls says is lost, side by side, in words; for one run."""
    if len(result.runs) != 1:
        return ""
    run, items = result.runs[0], []
    for name, said in _MISSED.items():
        measure = _first(result, name)
        if measure is None or math.isnan(result.mean(measure, run)):
            continue
        mean, (low, high) = result.mean(measure, run), result.interval(measure, run)
        within = f"{result.confidence * 100:.4g}% interval {number(low, 3)} to {number(high, 3)}"
        shown = f"{_NAMES[name].format(measure)}: {number(mean, 3)}"
        shown += "" if math.isnan(low) else f", {within}"
        items.append(
            f'<li class="{name}"><strong>{percent(1 - mean)}</strong> {escape(said)}'
            f"<small>{escape(shown)}</small></li>"
        )
    if not items:
        return ""
    return (
        "<p>An index is faster than exact search, and pays for it: some of the nearest neighbours "
        "are missed. That matters where a missed one is relevant.</p>"
        f'<ul class="facts">{"".join(items)}</ul>'
    )


def _first(result: Result, name: str) -> str | None:
    return next((str(m) for m in result.measures if m.name == name), None)


def _loss(
    who: str, result: Result, run: str, telling: str, measure: str, recall: str | None
) -> str:
    lost = 1 - result.mean(measure, run)
    if math.isnan(lost):
        sentence = f"{who} cannot be judged, because {measure} is undefined for every query"
    else:
        sentence = f"{who} loses {percent(lost)} {_LOST[telling]}{_over(result, run, measure)}"
    if recall is None or math.isnan(result.mean(recall, run)):
        return sentence
    low, high = apart(result, run, recall, measure)
    by_recall = percent(1 - result.mean(recall, run))
    if not math.isnan(lost) and by_recall == percent(lost):
        by_recall = "the same"
    elif low <= 0 <= high:
        by_recall = f"about the same, {by_recall}"
    suggests = f"recall suggests {by_recall}"
    return f"{sentence} ({suggests})" if len(result.runs) > 1 else f"{sentence}; {suggests}"


def apart(result: Result, run: str, first: str, second: str) -> tuple[float, float]:
    """The interval of what the second measure has more, over the queries that have both.

    NaN for fewer than two.
    """
    more = result[second, run].values - result[first, run].values
    if np.isfinite(more).sum() < 2:
        return math.nan, math.nan
    [[low, high]] = bootstrap_means([more], seed=result.seed, confidence=result.confidence)
    return float(low), float(high)


def _over(result: Result, run: str, measure: str) -> str:
    """Over how many queries, where it is not most of them."""
    defined = int(np.isfinite(result[measure, run].values).sum())
    if defined >= _MOST * len(result.queries):
        return ""
    return f" ({defined:,} of {plural(len(result.queries), 'query', 'queries')} have a value)"


def _of_any(result: Result) -> str:
    """For the measures that are no share of something lost: their mean as it is."""
    measure, run = str(result.measures[0]), result.runs[0]
    mean = result.mean(measure, run)
    if math.isnan(mean):
        return f"No query has a value of {measure}."
    low, high = result.interval(measure, run)
    between = "" if math.isnan(low) else f" ({number(low)} to {number(high)})"
    of_run = f" of {one_line(run)}" if len(result.runs) > 1 else ""
    return f"{measure}{of_run} is {number(mean)}{between}."


def percent(share: float) -> str:
    """A share with two digits that count: none, 0.04%, 2.1%, 11%; never rounded to 0 or 100%."""
    if share == 0:
        return "none"
    if share == 1:
        return "all"
    shown = share * 100
    if 9.95 <= shown < 99.5:
        return f"{shown:.0f}%"
    digits = 1 if shown > 1 else 1 - math.floor(math.log10(abs(shown)))
    while f"{shown:.{digits}f}" == f"{100:.{digits}f}" and digits < 15:
        digits += 1
    text = f"{shown:.{digits}f}"
    return (text if digits == 1 else text.rstrip("0")) + "%"
