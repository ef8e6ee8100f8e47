"""Several runs side by side: which one to take, their gates, what they cost, how they compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from semrecall.evaluate.comparison_text import p_text, signed
from semrecall.measures import parse
from semrecall.report.advice import TARGET, Advice
from semrecall.report.headline import main_measure
from semrecall.report.parts import table
from semrecall.text import number, one_line, plural
from semrecall.tuning.text import cost_number

if TYPE_CHECKING:
    from semrecall.data import Cost
    from semrecall.evaluate import Comparison, Paired, Result
    from semrecall.gates import Verdict

__all__ = ["Choice", "choice", "comparison_section", "costs_section", "gates_section"]

#: What makes a run cheap: the first of these that is known of all that may be taken.
_CHEAP = ("bytes_read", "distance_computations", "latency_seconds", "cpu_seconds")
_COUNTED = {"distance_computations": "distances", "bytes_read": "bytes read"}
_TIMED = {"latency_p50_seconds": "p50 ms", "latency_p99_seconds": "p99 ms"}
#: Of more comparisons only those that show a difference are listed.
_PAIRS = 40


@dataclass(frozen=True)
class Choice:
    """The run that the page speaks of. why: in words. advice: to take it, or why none can be."""

    run: str
    why: str = ""
    advice: tuple[Advice, ...] = ()


def choice(
    result: Result, costs: Mapping[str, Cost] | None = None, gates: Sequence[Verdict] = ()
) -> Choice:
    """Which of several runs to take: the cheapest that passes every gate, or without gates that
    reaches the usual target; where none does, or no cost is known, the best.
    """
    if len(result.runs) == 1:
        return Choice(result.runs[0])
    measure = main_measure(result)
    means = {run: result.mean(measure, run) for run in result.runs}
    sign = -1 if parse(measure).lower_is_better else 1
    best = max(
        result.runs, key=lambda run: -math.inf if means[run] != means[run] else sign * means[run]
    )
    which = f"the one with the {'lowest' if sign < 0 else 'highest'} {measure}"
    enough, is_what = _enough(means, measure, gates, sign)
    if not enough:
        return Choice(best, which, _none(best, means[best], measure, gates, sign))
    column = next((name for name in _CHEAP if _known(name, enough, costs)), "")
    if not column or costs is None:
        return Choice(best, which)
    cheapest = min(enough, key=lambda run: costs[run].mean(column))
    return Choice(
        cheapest,
        f"the cheapest {is_what}",
        (_take(result, cheapest, best, measure, is_what, column, costs),),
    )


def _enough(
    means: Mapping[str, float], measure: str, gates: Sequence[Verdict], sign: int
) -> tuple[list[str], str]:
    """The runs that are good enough, and what that means."""
    if gates:
        failed = {verdict.run for verdict in gates if not verdict.passed}
        looked_at = {verdict.run for verdict in gates}
        return [run for run in means if run in looked_at - failed], "that passes every gate"
    if sign < 0:
        return [], ""
    return [run for run in means if means[run] >= TARGET], f"with {measure} of {TARGET:g} or more"


def _none(
    best: str, mean: float, measure: str, gates: Sequence[Verdict], sign: int
) -> tuple[Advice, ...]:
    if not gates and sign < 0:
        return ()
    what = "passes every gate" if gates else f"reaches {measure} {TARGET:g}"
    return (
        (
            f"No run {what}.",
            f"The best by {measure} is {one_line(best)} with {number(mean, 3)}: search with other "
            "settings, or build the index anew.",
        ),
    )


def _take(
    result: Result, run: str, best: str, measure: str, is_what: str, column: str,
    costs: Mapping[str, Cost],
) -> Advice:  # fmt: skip
    low, high = result.interval(measure, run)
    between = "" if math.isnan(low) else f" ({number(low, 3)} to {number(high, 3)})"
    cost = column.removesuffix("_seconds").replace("_", " ")
    unit = " seconds" if column.endswith("_seconds") else ""

    def at(name: str) -> str:
        return f"{cost_number(costs[name].mean(column))}{unit}"

    other = ""
    if best != run and best in costs:
        other = f" {one_line(best)} has {number(result.mean(measure, best), 3)} for {at(best)}."
    return (
        f"The setting for it: {one_line(run)}.",
        f"Of {plural(len(result.runs), 'run')} it is the cheapest {is_what}: {measure} "
        f"{number(result.mean(measure, run), 3)}{between} for {cost} {at(run)} a query.{other} "
        "Confirm it on queries held out (semrecall tune).",
    )


def _known(column: str, runs: Sequence[str], costs: Mapping[str, Cost] | None) -> bool:
    return costs is not None and all(
        run in costs and not math.isnan(costs[run].mean(column)) for run in runs
    )


# -- sections -------------------------------------------------------------------------------------


def gates_section(gates: Sequence[Verdict]) -> str:
    """Every gate and its verdict, those that failed first; "" without gates."""
    if not gates:
        return ""
    failed = sum(not verdict.passed for verdict in gates)
    said = f"{failed} of {plural(len(gates), 'gate')} failed." if failed else "Every gate passed."
    rows = [
        [
            "passed" if v.passed else "FAILED", str(v.gate), one_line(v.run), number(v.value),
            "-" if math.isnan(v.low) else f"{number(v.low)} to {number(v.high)}", v.message,
        ]
        for v in sorted(gates, key=lambda v: v.passed)
    ]  # fmt: skip
    heads = ["verdict", "gate", "run", "value", "interval", "why it failed"]
    if not failed:
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    texts = {1, 2, 5}
    return f"<h2>Gates</h2><p>{said}</p>{table(heads, rows, texts=texts)}"


def costs_section(result: Result, costs: Mapping[str, Cost] | None) -> str:
    """What a query cost each run; "" where nothing is known of it."""
    rows = [[one_line(run), *_figures(costs[run])] for run in result.runs if run in (costs or {})]  # type: ignore[index]
    if not rows:
        return ""
    heads = ["run", *_COUNTED.values(), *_TIMED.values(), "CPU ms", "queries a second"]
    kept = [c for c in range(len(heads)) if c == 0 or any(row[c] != "-" for row in rows)]
    shown = table([heads[c] for c in kept], [[row[c] for c in kept] for row in rows])
    lacking = [one_line(run) for run in result.runs if run not in (costs or {})]
    more = f"<p>Not known of {escape(', '.join(lacking))}.</p>" if lacking else ""
    return (
        "<h2>What a query costs</h2><p>Means over the queries. Counters are of the search itself, "
        f"and the same on every machine; times are of the machine it ran on.</p>{shown}{more}"
    )


def _figures(cost: Cost) -> list[str]:
    counted = [cost_number(cost.mean(name)) for name in _COUNTED]
    timed = [_milliseconds(cost.details.get(name)) for name in _TIMED]
    rate = cost.details.get("queries_per_second")
    return [
        *counted, *timed, _milliseconds(cost.mean("cpu_seconds")),
        "-" if rate is None else cost_number(float(rate)),
    ]  # fmt: skip


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None or seconds != seconds else f"{1000 * seconds:.3g}"


def comparison_section(comparison: Comparison | None) -> str:
    """The runs in pairs, as `semrecall compare` tells them; "" without a comparison."""
    if comparison is None:
        return ""
    rows = comparison.rows
    listed = [row for row in rows if row.significant] if len(rows) > _PAIRS else rows
    fewer = len(rows) - len(listed)
    said = (
        f"Over the same queries; p by the test {comparison.test}, corrected for all rows "
        f"({comparison.correction}). A * marks differences that are no chance at "
        f"{comparison.confidence * 100:.4g}%."
    )
    if fewer:
        said += f" {plural(fewer, 'row')} without such a difference are left out."
    heads = ["measure", "run", "against", "mean", "was", "difference",
             f"{comparison.confidence * 100:.4g}% interval", "p", "better / worse"]  # fmt: skip
    remarks = "".join(f"<li>{escape(line)}</li>" for line in comparison.fallen())
    more = f"<ul>{remarks}</ul>" if remarks else ""
    shown = table(heads, [_pair(row) for row in listed], names=2) if listed else ""
    return f"<h2>How the runs compare</h2><p>{escape(said)}</p>{shown}{more}"


def _pair(row: Paired) -> list[str]:
    interval = "-" if math.isnan(row.low) else f"{signed(row.low)} to {signed(row.high)}"
    return [
        row.measure, one_line(row.run), one_line(row.baseline), number(row.mean_run),
        number(row.mean_baseline), signed(row.difference), interval,
        p_text(row.p_corrected) + ("*" if row.significant else ""), f"{row.wins} / {row.losses}",
    ]  # fmt: skip
