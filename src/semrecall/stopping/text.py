"""A learned stop in words and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semrecall.stopping.result import COSTS, FIXED, LEARNED, ORACLE
from semrecall.text import aligned, number, plural, share, wrapped

if TYPE_CHECKING:
    from semrecall.stopping.result import Stopping
    from semrecall.tuning import Estimate

__all__ = ["headline", "remarks", "stopping_text", "table_rows"]

_TITLES = {"bytes_read": "bytes read", "distance_computations": "distances"}


def headline(found: Stopping) -> str:
    """The answer in one sentence."""
    saved, percent = found.saved(), f"{found.confidence * 100:.4g}%"
    said = {
        "pays": f"pays: stopping saves {share(saved.mean)}",
        "costs more": f"does not pay: stopping costs {share(-saved.mean)} more",
        "no sure saving": f"no sure saving: {share(saved.mean)}",
        "no promise": "no promise: " + (found.notes[0] if found.notes else ""),
    }[found.verdict]
    if found.verdict == "no promise":
        return said
    interval = f"{share(saved.low)} to {share(saved.high)}"
    return (
        f"{said} of {_TITLES[found.cost]} against nprobe {found.fixed[0]} ({percent} interval "
        f"{interval}), on {plural(saved.n, 'query', 'queries')} of the test part"
    )


def table_rows(found: Stopping) -> list[list[str]]:
    """One row per way, a heading first."""
    costs = [cost for cost in COSTS if found.mean(FIXED, cost).n]
    head = ["search ends", found.target.name, "shortfall", "reached", "lists", "looks"]
    rows = [[*head, *(_TITLES[cost] for cost in costs), "saved"]]
    titles = {FIXED: f"at nprobe {found.fixed[0]}", LEARNED: "by the rule", ORACLE: "by oracle"}
    for way in found.ways:
        mean = {name: found.mean(way, name).mean for name in ("quality", "shortfall", "reached")}
        work = [found.mean(way, name).mean for name in ("lists", "looks")]
        rows.append(
            [
                titles[way],
                number(mean["quality"]),
                number(mean["shortfall"]),
                share(mean["reached"]),
                *(number(value, 1) for value in work),
                *(f"{found.mean(way, cost).mean:,.0f}" for cost in costs),
                "" if way == FIXED else share(found.saved(way).mean),
            ]
        )
    return rows


def remarks(found: Stopping) -> list[str]:
    """What a reader should know before using the rule."""
    learned, change = found.mean(LEARNED, "shortfall"), found.change()
    bound = (
        f"expected shortfall of a new query: at most {found.calibration.bound:.4f} by the rule "
        f"({found.allowed:g} is allowed, {plural(found.parts['calibrate'], 'query', 'queries')} "
        f"calibrate it), {found.fixed[1]:.4f} at nprobe {found.fixed[0]}; on the test part "
        f"{number(learned.mean)} ({_interval(learned)}), {_signed(change)} against nprobe "
        f"{found.fixed[0]}"
    )
    oracle = found.saved(ORACLE)
    notes = [
        bound,
        f"the oracle saves {share(oracle.mean)} ({share(oracle.low)} to {share(oracle.high)}) and "
        "leaves no query shorter than it has to be",
        f"a look is {len(found.rule.trees)} trees of depth {found.rule.trees.depth}, which the "
        "counters do not hold",
    ]
    if found.left_out:
        notes.append(f"{plural(found.left_out, 'query', 'queries')} without a value left out")
    return [*notes, *(found.notes if found.promised else ())]


def stopping_text(found: Stopping) -> str:
    """The whole result as text of at most 100 columns."""
    rows = table_rows(found)
    lines = [*wrapped(headline(found)), ""]
    lines += aligned(rows, [False, *[True] * (len(rows[0]) - 1)])
    lines += ["", *(line for note in remarks(found) for line in wrapped(f"note: {note}"))]
    return "\n".join(lines)


def _interval(found: Estimate) -> str:
    return f"{number(found.low)} to {number(found.high)}"


def _signed(found: Estimate) -> str:
    return f"{found.mean:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
