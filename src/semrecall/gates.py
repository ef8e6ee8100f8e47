"""Gates: what a mean must reach, whether it does, and in which words it does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semrecall.errors import InputError
from semrecall.measures import Measure, parse
from semrecall.text import plural, share

if TYPE_CHECKING:
    from semrecall.data import Scores

__all__ = ["Gate", "Mean", "Verdict", "assert_measure", "check_limit", "verdicts"]


@dataclass(frozen=True)
class Mean:
    """A mean of a run over n queries, with its interval; NaN where there is none.

    column, group: the slice it is over; "" for all queries. A Summary has all of it, too.
    """

    run: str
    measure: str
    mean: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    column: str = ""
    group: str = ""


@dataclass(frozen=True)
class Gate:
    """What the mean of a measure must reach: `at_least`, `at_most`, or both.

    measure: its name, or that of a cost. confident: the whole interval must reach it, not the mean
    alone. column, group: the slice it holds for; all queries where they are "". runs: it holds for
    these; all where it is empty.
    """

    measure: str
    at_least: float | None = None
    at_most: float | None = None
    confident: bool = False
    column: str = ""
    group: str = ""
    runs: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str, option: str = "--fail-under") -> Gate:
        """`srecall(rel=2)@100=0.95` or `...=95%`: the worst mean that passes."""
        name, _, value = text.rpartition("=")
        percent = value.strip().endswith("%")
        try:
            limit = float(value.strip().rstrip("%")) / (100 if percent else 1)
        except ValueError:
            limit = math.nan
        if not name.strip() or math.isnan(limit):
            raise InputError(
                f"{option} {text!r} is not MEASURE=VALUE", hint="for example srecall@100=0.95"
            )
        measure = parse(name.strip())
        check_limit(measure, limit, f"{option} {text!r}")
        if measure.lower_is_better:
            return cls(str(measure), at_most=limit)
        return cls(str(measure), at_least=limit)

    def __str__(self) -> str:
        limits = [
            f"{sign} {limit:g}"
            for sign, limit in ((">=", self.at_least), ("<=", self.at_most))
            if limit is not None
        ]
        where = f" where {self.column} is {self.group}" if self.column else ""
        sure = ", confidently" if self.confident else ""
        return f"{self.measure} {' and '.join(limits)}{where}{sure}"


def check_limit(measure: Measure, limit: float, said: str) -> None:
    """Raise InputError for a limit above 1 of a measure that ends there: 95 where 95% is meant."""
    if limit > 1 and measure.at_most_one:
        hint = f"write {limit / 100:g}" if limit <= 100 else None
        raise InputError(f"{said}: {limit:g} is above 1, the most {measure} can be", hint=hint)


@dataclass(frozen=True)
class Verdict:
    """Whether a run passes a gate, and the sentence that says why not ("" where it does).

    value, low, high: the mean and its interval; NaN where there is none.
    """

    gate: Any
    run: str
    passed: bool
    value: float
    low: float = math.nan
    high: float = math.nan
    message: str = ""
    n: int = 0


def verdicts(gate: Gate, rows: Iterable[Any], *, several: bool = True) -> list[Verdict]:
    """One verdict for each run that the gate is for; a mean over no query passes none.

    rows: Means or Summaries, of any measures and slices. several: whether messages name the run.
    """
    wanted = (gate.measure, gate.column, gate.group)
    return [
        _verdict(gate, row, several)
        for row in rows
        if (row.measure, row.column, row.group) == wanted
        and (not gate.runs or row.run in gate.runs)
    ]


def _verdict(gate: Gate, row: Any, several: bool) -> Verdict:
    lowest, highest = (row.low, row.high) if gate.confident else (row.mean, row.mean)
    faults = []
    if math.isnan(row.mean):
        faults.append("undefined for every query")
    elif gate.confident and math.isnan(row.low):
        faults.append(f"{row.mean:.6g}, without an interval")
    else:
        shown = f"{row.mean:.6g}"
        end = ""
        if gate.confident:
            shown += f" (interval {row.low:.6g} to {row.high:.6g})"
            end = "the interval's {} end is "
        if gate.at_least is not None and not lowest >= gate.at_least:
            faults.append(f"{shown}, {end.format('lower')}under {gate.at_least:g}")
        if gate.at_most is not None and not highest <= gate.at_most:
            faults.append(f"{shown}, {end.format('upper')}above {gate.at_most:g}")
    of_run = f" of {row.run}" if several else ""
    where = f" where {gate.column} is {gate.group}" if gate.column else ""
    message = f"{gate.measure}{of_run}{where} is {'; '.join(faults)}" if faults else ""
    return Verdict(gate, row.run, not faults, row.mean, row.low, row.high, message, row.n)


def assert_measure(
    result: Any,
    measure: str | Measure,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    run: str | None = None,
    by: str | None = None,
    group: str | None = None,
    confident: bool = False,
    worst: int = 5,
) -> None:
    """Assert, in a test, that the mean of a measure reaches what it must.

    result: a Result of `evaluate`; with several runs `run` says of which.
    at_least, at_most: the limits; one of them at least. confident: the whole interval must keep to
        them, so that luck with the queries does not pass.
    by, group: a slice of the result, and the group of it that is meant.
    worst: how many of the worst queries the message names.

    Raises AssertionError with value, interval and the worst queries; InputError or MeasureError
    for what the result does not have.
    """
    if at_least is None and at_most is None:
        raise InputError("nothing to assert; expected at_least, at_most, or both")
    if (by is None) != (group is None):
        raise InputError(
            f"{'by' if group is None else 'group'} is given alone; expected by and group"
        )
    scores: Scores = result[str(measure)] if run is None else result[str(measure), run]
    name = result.runs[0] if run is None else run
    for option, limit in (("at_least", at_least), ("at_most", at_most)):
        if limit is not None:
            check_limit(parse(scores.measure), limit, option)
    gate = Gate(scores.measure, at_least, at_most, confident, by or "", str(group or ""), (name,))
    found = verdicts(gate, result.summary(by), several=len(result.runs) > 1)
    if not found:
        raise InputError(f"no group {group!r} of {by!r}", hint=_groups(result, by))
    [verdict] = found
    if not verdict.passed:
        row = next(r for r in result.summary(by) if _is(r, gate, name))
        raise AssertionError("\n".join([verdict.message, *_evidence(result, row, scores, worst)]))


def _is(row: Any, gate: Gate, run: str) -> bool:
    return (row.run, row.measure, row.group) == (run, gate.measure, gate.group)


def _groups(result: Any, by: str | None) -> str:
    return "known: " + ", ".join(result.slices[by].groups)


def _evidence(result: Any, row: Any, scores: Scores, worst: int) -> list[str]:
    """Interval, counts, and the worst queries of the slice."""
    interval = "" if math.isnan(row.low) else f", interval {row.low:.6g} to {row.high:.6g}"
    lines = [f"  mean {row.mean:.6g} over {plural(row.n, 'query', 'queries')}{interval}"]
    if row.left_out:
        why = ", ".join(f"{count:,} {reason}" for reason, count in row.left_out.items())
        lines.append(f"  left out: {why}")
    if row.n:
        lines.append(f"  {share(row.at_one)} of the queries at 1, {share(row.at_zero)} at 0")
    measure = parse(scores.measure)
    within = result.mask(row) & scores.defined
    values = [(float(scores.values[i]), i) for i in within.nonzero()[0].tolist()]
    values.sort(key=lambda pair: (-pair[0] if measure.lower_is_better else pair[0], pair[1]))
    if values[:worst]:
        lines.append("  worst queries:")
        lines += [_query_line(result, row.run, scores, at) for _, at in values[:worst]]
    return lines


def _query_line(result: Any, run: str, scores: Scores, at: int) -> str:
    missed: Sequence[Any] = result.missed(at, run)
    gone = ", ".join(str(m.document) for m in missed[:5]) + (", ..." if len(missed) > 5 else "")
    lost = f"  missed {gone}" if missed else ""
    return f"    {scores.queries[at]!s}  {scores.values[at]:.6g}{lost}"
