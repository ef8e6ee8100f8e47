"""The table of papers: means by run and measure, with letters of the runs that are worse."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING

from semrecall.errors import InputError
from semrecall.registry import did_you_mean
from semrecall.text import (
    aligned,
    display_width,
    number,
    one_line,
    plural,
    shortened,
    terminal_width,
)

if TYPE_CHECKING:
    from semrecall.evaluate.comparison import Comparison

__all__ = ["TABLE_FORMATS", "letter", "lettered", "lettered_lines"]

TABLE_FORMATS = ("text", "markdown", "latex", "html")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def lettered(comparison: Comparison, format: str = "text") -> str:  # noqa: A002
    """The table in one of TABLE_FORMATS. Raises InputError for another format."""
    writers: dict[str, Callable[[Comparison], list[str]]] = {
        "text": lambda given: [*lettered_lines(given), "", _caption(given)],
        "markdown": _markdown,
        "latex": _latex,
        "html": _html,
    }
    if format not in writers:
        raise InputError(f"unknown format {format!r}", hint=did_you_mean(format, writers))
    return "\n".join(writers[format](comparison)) + "\n"


def letter(position: int) -> str:
    """The letter of the run at a position: a to z, A to Z, then numbered: a2, b2, ..."""
    again, at = divmod(position, len(_LETTERS))
    return _LETTERS[at] + (str(again + 1) if again else "")


def lettered_lines(comparison: Comparison) -> list[str]:
    """The table as lines of text; measures that do not fit beside each other stand below."""
    worse = _worse(comparison)
    names = [["", ""], *([letter(i), shortened(r)] for i, r in enumerate(comparison.runs))]
    lines: list[str] = []
    block, right = names, [False, False]
    for measure in comparison.measures:
        column = [["", measure, ""]]
        column += [
            ["", number(comparison.mean(measure, run)), _span(worse[measure, run])]
            for run in comparison.runs
        ]
        wider = [[*row, *cells[1:]] for row, cells in zip(block, column, strict=True)]
        fits = max(map(display_width, aligned(wider, [*right, True, False]))) <= terminal_width()
        if not fits and len(block[0]) > 2:
            lines += [*aligned(block, right), ""]
            wider = [[*row, *cells[1:]] for row, cells in zip(names, column, strict=True)]
            right = [False, False]
        block, right = wider, [*right, True, False]
    return lines + aligned(block, right)


def _worse(comparison: Comparison) -> dict[tuple[str, str], list[int]]:
    """By (measure, run): positions of the runs that are significantly worse, rising."""
    place = {run: i for i, run in enumerate(comparison.runs)}
    found: dict[tuple[str, str], list[int]] = {
        (m, run): [] for m in comparison.measures for run in comparison.runs
    }
    for row in comparison.rows:
        if row.significant:
            winner, loser = (row.run, row.baseline) if row.better else (row.baseline, row.run)
            found[row.measure, winner].append(place[loser])
    return {key: sorted(positions) for key, positions in found.items()}


def _span(positions: list[int]) -> str:
    """Letters of the positions, three and more neighbours as a range: ac, a-f, b-dg."""
    parts: list[str] = []
    start = 0
    while start < len(positions):
        end = start
        while end + 1 < len(positions) and positions[end + 1] == positions[end] + 1:
            end += 1
        if end - start >= 2:
            parts.append(f"{letter(positions[start])}-{letter(positions[end])}")
        else:
            parts += [letter(i) for i in positions[start : end + 1]]
        start = end + 1
    # Letters with a number need something between them.
    return ("," if any(len(p) > 1 and "-" not in p for p in parts) else "").join(parts)


def _caption(comparison: Comparison) -> str:
    corrected = "" if comparison.correction == "none" else f" after {comparison.correction}"
    queries = plural(len(comparison.queries), "query", "queries")
    return (
        f"letters: better than that run ({comparison.test} test, "
        f"p < {comparison.alpha:g}{corrected}, {queries})"
    )


def _best(comparison: Comparison, measure: str) -> set[str]:
    means = {run: comparison.mean(measure, run) for run in comparison.runs}
    known = [mean for mean in means.values() if mean == mean]
    if not known:
        return set()
    best = min(known) if measure in comparison.lower_is_better else max(known)
    return {run for run, mean in means.items() if mean == best}


def _marked(
    comparison: Comparison, sup: Callable[[str], str], bold: Callable[[str], str]
) -> list[list[str]]:
    """Cells of means, a row a run: the best in bold, letters raised."""
    worse = _worse(comparison)
    best = {measure: _best(comparison, measure) for measure in comparison.measures}
    rows = []
    for run in comparison.runs:
        row = []
        for measure in comparison.measures:
            mean = number(comparison.mean(measure, run))
            marks = _span(worse[measure, run])
            row.append(
                (bold(mean) if run in best[measure] else mean) + (sup(marks) if marks else "")
            )
        rows.append(row)
    return rows


def _markdown(comparison: Comparison) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    cells = _marked(comparison, lambda t: f"<sup>{t}</sup>", lambda t: f"**{t}**")
    lines = [line(["", "run", *comparison.measures])]
    lines.append(line(["---", "---", *["---:"] * len(comparison.measures)]))
    for i, (run, row) in enumerate(zip(comparison.runs, cells, strict=True)):
        name = one_line(run).replace("\\", "\\\\").replace("|", "\\|")
        lines.append(line([letter(i), name, *row]))
    return [*lines, "", _caption(comparison)]


def _latex(comparison: Comparison) -> list[str]:
    cells = _marked(comparison, lambda t: f"$^{{{t}}}$", lambda t: f"\\textbf{{{t}}}")
    lines = [
        f"% {_caption(comparison)}",
        f"\\begin{{tabular}}{{ll{'l' * len(comparison.measures)}}}",
        "\\hline",
        " & ".join(["", "run", *map(_latex_text, comparison.measures)]) + " \\\\",
        "\\hline",
    ]
    for i, (run, row) in enumerate(zip(comparison.runs, cells, strict=True)):
        lines.append(" & ".join([letter(i), _latex_text(run), *row]) + " \\\\")
    return [*lines, "\\hline", "\\end{tabular}"]


def _latex_text(text: str) -> str:
    special = {
        "\\": "\\textbackslash{}",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        **{c: f"\\{c}" for c in "&%$#_{}"},
    }
    return "".join(special.get(c, c) for c in one_line(text))


def _html(comparison: Comparison) -> list[str]:
    cells = _marked(comparison, lambda t: f"<sup>{t}</sup>", lambda t: f"<b>{t}</b>")
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in ("", "run", *comparison.measures))
    lines = [
        "<table>",
        f"<caption>{html.escape(_caption(comparison))}</caption>",
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
    ]
    for i, (run, row) in enumerate(zip(comparison.runs, cells, strict=True)):
        inside = "".join(f"<td>{cell}</td>" for cell in row)
        name = html.escape(one_line(run))
        lines.append(f"<tr><td>{letter(i)}</td><th>{name}</th>{inside}</tr>")
    return [*lines, "</tbody>", "</table>"]
