"""A Comparison as plain text, at most 100 columns wide."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from semrecall.evaluate.letters import letter, lettered_lines
from semrecall.evaluate.paired import Gap, Paired
from semrecall.evaluate.result import FEW
from semrecall.stats.compare import TESTS
from semrecall.text import (
    aligned,
    display_width,
    number,
    plural,
    share,
    shortened,
    terminal_width,
    wrapped,
)

if TYPE_CHECKING:
    from semrecall.evaluate.comparison import Comparison

__all__ = ["fallen", "p_text", "remarks", "signed", "text"]

#: More pairs than this are not listed one by one.
_MANY = 15
#: Of more runs only the least and the most judged are named.
_MOST_SHARES = 3
_CORRECTED = {"holm": "Holm p", "bonferroni": "Bonferroni p", "bh": "BH p"}

Row = TypeVar("Row", Paired, Gap)
#: Heading, text of a row, and how soon the column goes when the line is too long (0: never).
Column = tuple[str, Callable[[Any], str], int]


def text(comparison: Comparison) -> str:
    """Means, differences, slices, and under them how it was done."""
    lines = [_opening(comparison), ""]
    if len(comparison.runs) > 2:
        lines += [*lettered_lines(comparison), ""]
    listed = len(comparison.pairs) <= _MANY
    if listed:
        lines += _differences(comparison)
        for column in comparison.slices:
            lines += _slice(comparison, column)
    else:
        lines += _too_many(comparison)
    for remark in ["", *remarks(comparison, listed=listed)]:
        lines += wrapped(remark)
    return "\n".join(line.rstrip() for line in lines)


def signed(value: float, digits: int = 4) -> str:
    """A difference with its sign; "-" where there is none."""
    shown = number(value, digits)
    return f"+{shown}" if value > 0 else shown


def p_text(p: float) -> str:
    """A p-value with four decimals; never 0, and no 1 that is not."""
    return "<0.0001" if 0 < p < 0.0001 else number(p)


# -- blocks -----------------------------------------------------------------------------------


def _opening(comparison: Comparison) -> str:
    queries = plural(len(comparison.queries), "query", "queries")
    if len(comparison.runs) == 2:
        baseline, run = comparison.pairs[0]
        return f"{shortened(run)} against {shortened(baseline)}, {queries}"
    against = "" if comparison.baseline is None else f" against {shortened(comparison.baseline)}"
    return f"{len(comparison.runs)} runs{against}, {queries}"


def _too_many(comparison: Comparison) -> list[str]:
    """In place of a table of all pairs; which slices fell behind is said all the same."""
    lines = wrapped(
        f"{len(comparison.pairs):,} pairs a measure are too many to list here: compare with one "
        "run (baseline, --baseline NAME), or write them all (to_frame, --format csv)",
        indent="",
    )
    for column in comparison.slices:
        found = [line for pair in comparison.pairs for line in _fallen_of(comparison, column, pair)]
        none = f"no slice by {column} fell behind the others by more than chance, for any pair"
        lines += ["", f"by {column}", *(w for line in found or [none] for w in wrapped(line))]
    return lines


def _pair_name(comparison: Comparison, row: Paired | Gap) -> str:
    """`b - a` by the letters of the table above; with one baseline the run's name is enough."""
    if comparison.baseline is None and len(comparison.runs) > 2:
        place = comparison.runs.index
        return f"{letter(place(row.run))} - {letter(place(row.baseline))}"
    return shortened(row.run)


def _interval(row: Paired | Gap) -> str:
    return "-" if math.isnan(row.low) else f"{signed(row.low)} to {signed(row.high)}"


def _shared_columns(comparison: Comparison) -> list[Column]:
    columns: list[Column] = [
        (f"{comparison.confidence * 100:.4g}% interval", _interval, 0),
        ("p", lambda row: p_text(row.p), 3 if comparison.correction != "none" else 0),
    ]
    mark: Callable[[Any], str] = lambda row: "*" if row.significant else " "  # noqa: E731
    if comparison.correction == "none":
        columns[-1] = ("p ", lambda row: p_text(row.p) + mark(row), 0)
    else:
        head = _CORRECTED[comparison.correction] + " "
        columns.append((head, lambda row: p_text(row.p_corrected) + mark(row), 0))
    return columns


def _paired_columns(comparison: Comparison) -> list[Column]:
    columns: list[Column] = [
        ("diff", lambda row: signed(row.difference), 0),
        *_shared_columns(comparison),
        ("effect", lambda row: signed(row.effect, 2), 1),
        ("w/t/l", lambda row: f"{row.wins}/{row.ties}/{row.losses}", 4),
        ("detects", lambda row: number(row.detectable), 2),
    ]
    if comparison.margin is not None:
        columns.append(("equivalent", lambda row: "yes" if row.equivalent else "not shown", 0))
    return columns


class _Line(NamedTuple):
    """A line of a block: a heading (no row, no mean), a mean alone, or a row."""

    name: str
    row: Any = None
    mean: str = ""


def _differences(comparison: Comparison) -> list[str]:
    one_baseline = comparison.baseline is not None or len(comparison.runs) == 2
    lines: list[_Line] = []
    for measure, rows in groupby(comparison.rows, lambda row: row.measure):
        lines.append(_Line(measure))
        found = list(rows)
        if one_baseline:
            baseline = found[0].baseline
            mean = number(comparison.mean(measure, baseline))
            lines.append(_Line(f"  {shortened(baseline)}", None, mean))
        for row in found:
            mean = number(comparison.mean(measure, row.run)) if one_baseline else ""
            lines.append(_Line(f"  {_pair_name(comparison, row)}", row, mean))
    return _fitted(lines, _paired_columns(comparison))


def _fitted(lines: Sequence[_Line], columns: list[Column]) -> list[str]:
    """Lines as text, without as many columns as it takes to fit; headings take no column."""
    means = any(line.mean for line in lines)
    while True:
        table = [["", *(["mean"] if means else []), *(head for head, _, _ in columns)]]
        for name, row, mean in lines:
            if row is not None or mean:
                cells = ["" if row is None else show(row) for _, show, _ in columns]
                table.append([name, *([mean] if means else []), *cells])
        shown = aligned(table, [False] + [True] * (len(table[0]) - 1))
        drop = max((d for _, _, d in columns), default=0)
        if max(map(display_width, shown)) <= terminal_width() or drop == 0:
            break
        columns = [c for c in columns if c[2] != drop]
    rest = iter(shown[1:])
    bodies = [line.name if line.row is None and not line.mean else next(rest) for line in lines]
    return [shown[0], *bodies]


# -- slices -----------------------------------------------------------------------------------


def _slice(comparison: Comparison, column: str) -> list[str]:
    part = comparison.slices[column]
    about = f", the {part.about}" if part.about else ""
    columns: list[Column] = [
        ("queries", lambda row: f"{row.n:,}{' (few)' if row.few else ''}", 0),
        ("baseline", lambda row: number(row.mean_baseline), 5),
        ("run", lambda row: number(row.mean_run), 5),
        *(c for c in _paired_columns(comparison) if c[0] not in ("effect", "detects")),
    ]
    rows = [row for row in comparison.slice_rows if row.column == column]
    lines = ["", f"by {column}{about}", *_fitted(_named(comparison, rows), columns)]
    gaps = [gap for gap in comparison.gaps if gap.column == column]
    if gaps:
        gap_columns: list[Column] = [
            ("queries/rest", _sizes, 5),
            ("diff there", lambda row: signed(row.inside), 0),
            ("elsewhere", lambda row: signed(row.rest), 0),
            ("gap", lambda row: signed(row.gap), 0),
            *_shared_columns(comparison),
        ]
        lines += ["", f"by {column}: the difference in a slice less that in all others"]
        lines += _fitted(_named(comparison, gaps), gap_columns)
        lines += [w for sentence in fallen(comparison, column) for w in wrapped(sentence)]
    return lines


def _sizes(gap: Gap) -> str:
    """How many queries are in the slice and in the rest; one of both may be few."""
    return f"{gap.n:,}/{gap.n_rest:,}{' (few)' if gap.few else ''}"


def _named(comparison: Comparison, rows: Sequence[Row]) -> list[_Line]:
    """Rows under headings of their measure (and pair, where there are several)."""
    lines: list[_Line] = []
    for measure in comparison.measures:
        for baseline, run in comparison.pairs:
            key = (measure, baseline, run)
            found = [row for row in rows if (row.measure, row.baseline, row.run) == key]
            if not found:
                continue
            several = len(comparison.pairs) > 1
            of_pair = f", {_pair_name(comparison, found[0])}" if several else ""
            lines.append(_Line(f"{measure}{of_pair}"))
            lines += [_Line(f"  {shortened(row.group)}", row) for row in found]
    return lines


def fallen(comparison: Comparison, column: str | None = None) -> list[str]:
    """A sentence for each column and pair: the group that fell behind the rest most, if any."""
    sentences = []
    for name in [column] if column else list(comparison.slices):
        for pair in comparison.pairs:
            if _gaps_of(comparison, name, pair):
                none = f"no slice by {name} fell behind the others by more than chance"
                sentences += _fallen_of(comparison, name, pair) or [
                    _of_pair(comparison, pair) + none
                ]
    return sentences


def _gaps_of(comparison: Comparison, column: str, pair: tuple[str, str]) -> list[Gap]:
    key = (column, *pair)
    return [g for g in comparison.gaps if (g.column, g.baseline, g.run) == key]


def _of_pair(comparison: Comparison, pair: tuple[str, str]) -> str:
    return "" if len(comparison.pairs) == 1 else f"{pair[1]} against {pair[0]}: "


def _fallen_of(comparison: Comparison, column: str, pair: tuple[str, str]) -> list[str]:
    """The sentence on the group that fell behind most; none where none did."""
    gaps = _gaps_of(comparison, column, pair)
    found = [gap for gap in gaps if gap.significant and gap.worse]
    if not found:
        return []
    worst = min(found, key=lambda gap: (gap.p_corrected, -abs(gap.gap)))
    lower = worst.measure in comparison.lower_is_better
    fell = worst.inside > 0 if lower else worst.inside < 0
    return [
        f"{_of_pair(comparison, pair)}{column} {worst.group} "
        f"{'fell most' if fell else 'gained least'}: {worst.measure} "
        f"{signed(worst.inside)} there, {signed(worst.rest)} elsewhere "
        f"({_p_name(comparison)} {p_text(worst.p_corrected)})"
    ]


def _p_name(comparison: Comparison) -> str:
    return _CORRECTED.get(comparison.correction, "p")


# -- remarks ----------------------------------------------------------------------------------


def remarks(comparison: Comparison, *, listed: bool = True) -> list[str]:
    """What stands under the tables: who was left out, what the columns mean, how it was done.

    listed: whether the differences are listed, whose columns are then explained.
    """
    lines = _left_out(comparison) + _judged(comparison)
    lines += [f"note: {note}" for note in comparison.notes]
    lines += _row_notes(comparison)
    lower = [m for m in comparison.measures if m in comparison.lower_is_better]
    if lower:
        lines.append(f"lower is better: {', '.join(lower)}")
    few = [*(row.few for row in comparison.slice_rows), *(gap.few for gap in comparison.gaps)]
    if listed and any(few):
        lines.append(f"few: fewer than {FEW} queries; such a slice says little")
    if len(comparison.runs) > 2:
        lines.append("letters: significantly better than that run")
    return lines + _tests(comparison) + (_columns(comparison) if listed else [])


def _left_out(comparison: Comparison) -> list[str]:
    said: dict[tuple[str, str], list[Paired]] = {}
    for row in comparison.rows:
        if row.left_out:
            why = "; ".join(f"{count:,} {reason}" for reason, count in row.left_out.items())
            said.setdefault((row.measure, why), []).append(row)
    return [
        f"left out of {measure}{_of_pairs(comparison, rows)}: {why}"
        for (measure, why), rows in said.items()
    ]


def _judged(comparison: Comparison) -> list[str]:
    """How much of what each run shows is judged, by measure, where it is not all of it."""
    said: dict[str, list[str]] = {}
    for measure in comparison.measures:
        shares = {run: comparison.judged.get((run, measure), 1.0) for run in comparison.runs}
        if all(value == 1.0 for value in shares.values()):
            continue
        ranked = sorted(shares, key=lambda run: shares[run])
        runs = comparison.runs if len(shares) <= _MOST_SHARES else (ranked[0], ranked[-1])
        between = ", " if len(shares) <= _MOST_SHARES else " to "
        text = between.join(f"{shortened(run)} {share(shares[run])}" for run in runs)
        said.setdefault(text, []).append(measure)
    return [f"judged of {', '.join(measures)}: {text}" for text, measures in said.items()]


def _row_notes(comparison: Comparison) -> list[str]:
    said: dict[tuple[str, str], list[Paired]] = {}
    for row in comparison.rows:
        if row.note:
            said.setdefault((row.measure, row.note), []).append(row)
    return [
        f"note: {measure}{_of_pairs(comparison, rows)}: {note}"
        for (measure, note), rows in said.items()
    ]


def _of_pairs(comparison: Comparison, rows: list[Paired]) -> str:
    if len(rows) == len(comparison.pairs):
        return ""
    names = [_pair_name(comparison, row) for row in rows[:5]]
    return f" ({', '.join(names)}{', ...' if len(rows) > 5 else ''})"


def _tests(comparison: Comparison) -> list[str]:
    test = TESTS[comparison.test]
    if comparison.test == "randomisation":
        test += (
            f", {comparison.permutations:,} times, seed {comparison.seed}; every pattern where "
            "there are no more"
        )
    alpha, tests = comparison.alpha, sum(row.p == row.p for row in comparison.rows)
    lines = [f"p: {comparison.test} test ({test})"]
    if comparison.correction != "none":
        sliced = sum(row.p == row.p for row in comparison.slice_rows)
        apart = f", in slices over {sliced:,}" if comparison.slices else ""
        lines.append(
            f"{_p_name(comparison)}: corrected over {plural(tests, 'test')}{apart}; "
            f"* is below {alpha:g}"
        )
    else:
        lines.append(f"* p is below {alpha:g}, not corrected for {plural(tests, 'test')}")
    if comparison.slices:
        lines.append(
            f"gaps: queries dealt to the slices at random, {comparison.labellings:,} times; "
            "Welch's intervals"
        )
    return lines


def _columns(comparison: Comparison) -> list[str]:
    made = {"t": "Student's t", "bootstrap": f"{comparison.resamples:,} resamples of the queries"}
    lines = [
        f"intervals: {made[comparison.interval]}, of one difference, not corrected"
        + ("; for values of 0 or 1 Bonett and Price" if _any_share(comparison) else ""),
        "effect: in standard deviations of the differences (Hedges' g); w/t/l: queries won, tied, "
        "lost",
        "detects: the smallest difference that so many queries would show with power 80%",
    ]
    if comparison.margin is not None:
        lines.append(
            f"equivalent: the difference is below {comparison.margin:g} either way (two one-sided "
            f"t-tests, {_p_name(comparison)} < {comparison.alpha:g})"
        )
    return lines


def _any_share(comparison: Comparison) -> bool:
    return any(measure in comparison.shares for measure in comparison.measures)
