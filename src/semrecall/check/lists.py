"""Findings on the rows of a truth or a run by themselves: order, repeats, gaps, depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from semrecall.check.inputs import Inputs
from semrecall.check.report import Finding, Level, percent
from semrecall.data import Run
from semrecall.data.rows import pad, row_numbers
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["findings"]


def findings(inputs: Inputs) -> Iterator[Finding]:
    """Everything that the rows of truth and run tell by themselves."""
    for name, run in inputs.runs():
        if len(run) == 0:
            yield Finding("error", "empty", name, f"The {name} has no queries.")
            continue
        yield from _gaps(name, run)
        yield from _repeats(name, run)
        yield from _short_rows(name, run, inputs)
        yield from _alike(name, run)
        yield from _scores(name, run, run.space or inputs.space)
    if inputs.truth is not None and inputs.run is not None:
        yield from _depths(inputs.truth, inputs.run)
    for name, run in inputs.runs():
        yield from _spaces(name, run, inputs)


def _serious(name: str) -> Level:
    """A fault in the truth spoils every number; in a run it is the system's own."""
    return "error" if name == "truth" else "warning"


def _queries(run: Run, rows: NDArray[np.int64]) -> tuple[str | int, ...]:
    return tuple(run.queries[np.unique(rows)[:5]])


def _gaps(name: str, run: Run) -> Iterator[Finding]:
    """Missing results (-1, empty, NaN score): at the end they are padding, inside they are not."""
    rows = row_numbers(run.offsets)
    gone = ~run.valid
    if not gone.any():
        return
    behind = gone[:-1] & ~gone[1:] & (rows[:-1] == rows[1:])
    empty = np.flatnonzero(np.bincount(rows[~gone], minlength=len(run)) == 0)
    if behind.any():
        yield Finding(
            _serious(name),
            "gaps",
            name,
            f"{plural(len(np.unique(rows[:-1][behind])), 'row')} of the {name} have results behind "
            "a missing one (-1, empty id, or NaN score).",
            "A missing result is never a hit. Inside a row it is a sign of ids that overflowed "
            "(int32), deleted rows, or NaN scores.",
            _queries(run, rows[:-1][behind]),
            "queries",
        )
    padded = int(gone.sum())
    yield Finding(
        "note",
        "missing-results",
        name,
        f"{padded:,} of {len(gone):,} places of the {name} ({percent(padded, len(gone))}) hold no "
        f"result; {plural(len(empty), 'row')} {'is' if len(empty) == 1 else 'are'} empty.",
        "They are never a hit."
        + (
            " An empty row of a truth leaves its query out of the means."
            if name == "truth" and len(empty)
            else ""
        ),
        _queries(run, rows[gone]),
        "queries",
    )


def _repeats(name: str, run: Run) -> Iterator[Finding]:
    rows, codes = row_numbers(run.offsets), run.documents.codes
    order = np.lexsort((codes, rows))
    order = order[codes[order] >= 0]
    same = (rows[order][1:] == rows[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    if not same.any():
        return
    again = order[1:][same]
    yield Finding(
        _serious(name),
        "repeated-ids",
        name,
        f"{int(same.sum()):,} results of the {name} repeat an id of their own row, in "
        f"{plural(len(np.unique(rows[again])), 'row')}.",
        "A repeated id counts once, so such a row holds fewer than k neighbours. "
        + (
            "Was a filtered truth filled up with its last id? Make it again."
            if name == "truth"
            else "Does the index hold several vectors per document? Then count documents."
        ),
        _queries(run, rows[again]),
        "queries",
    )


def _short_rows(name: str, run: Run, inputs: Inputs) -> Iterator[Finding]:
    k = run.depth
    lengths = np.bincount(row_numbers(run.offsets)[run.valid], minlength=len(run))
    short = np.flatnonzero((lengths < k) & (lengths > 0))
    if len(short) == 0:
        return
    seen = inputs.base_scan
    exist = None if seen is None else seen.rows - seen.bad.count
    few = exist is not None and int(lengths[short].max()) >= min(exist, k)
    filtered = name == "truth" and bool(run.identity.get("filter"))
    expected = few or filtered or name == "run" or exist is None
    yield Finding(
        "note" if expected else "warning",
        "short-rows",
        name,
        f"{len(short):,} of {len(run):,} rows of the {name} hold fewer than {k:,} results (the "
        f"shortest {int(lengths[short].min()):,}).",
        "A filter leaves that few, as the truth records."
        if filtered
        else "The base has no more rows."
        if few
        else "What a run does not return counts as missed."
        if name == "run"
        else "recall@k then divides by the length of the row. Unless a filter leaves that few, the "
        "truth was cut: make it again.",
        _queries(run, short),
        "queries",
    )


def _alike(name: str, run: Run) -> Iterator[Finding]:
    lengths = np.diff(run.offsets)
    if len(run) < 5 or int(lengths.max()) == 0 or not (lengths == lengths[0]).all():
        return
    matrix = pad(run.documents.codes, run.offsets, -1)
    if not (matrix == matrix[0]).all() or bool((matrix < 0).all()):
        return
    yield Finding(
        "error",
        "same-results",
        name,
        f"All {len(run):,} queries have the same {plural(int(lengths[0]), 'result')} in the "
        f"{name}.",
        "One query vector was searched again and again, or the rows were copied. Search again.",
        tuple(run.documents[: min(3, int(lengths[0]))]),
        "results",
    )


# -- scores ---------------------------------------------------------------------------------


def _scores(name: str, run: Run, space: Space | None) -> Iterator[Finding]:
    if run.flat_scores is None:
        return
    rows = row_numbers(run.offsets)[run.valid]
    scores = run.flat_scores[run.valid]
    with np.errstate(invalid="ignore"):
        steps = np.diff(scores)[rows[1:] == rows[:-1]]
    steps[np.isnan(steps)] = 0.0  # from one infinite score to the next
    owner = rows[1:][rows[1:] == rows[:-1]]
    if len(steps) == 0:
        return
    flat = np.bincount(owner[steps != 0], minlength=len(run)) == 0
    flat &= np.bincount(owner, minlength=len(run)) > 0
    if flat.sum() >= max(1, len(run) // 2):
        yield Finding(
            "warning",
            "equal-scores",
            name,
            f"In {int(flat.sum()):,} of {len(run):,} rows of the {name} all scores are equal.",
            "Ties in the whole row: the order says nothing. Was a constant written instead of the "
            "score, or was it rounded?",
            _queries(run, np.flatnonzero(flat)),
            "queries",
        )
        return
    # Rescoring keeps the order of the index, so exact scores of a run need not fall.
    if name == "truth" or run.scores_by == "index":
        yield from _order(name, run, space, steps, owner)


def _order(
    name: str,
    run: Run,
    space: Space | None,
    steps: NDArray[np.float64],
    owner: NDArray[np.int64],
) -> Iterator[Finding]:
    rising, falling = int((steps > 0).sum()), int((steps < 0).sum())
    lower = rising > falling if space is None else not space.higher_is_nearer
    wrong = owner[steps < 0] if lower else owner[steps > 0]
    right = rising if lower else falling
    if len(wrong) == 0:
        return
    ought = "rise (distances)" if lower else "fall (similarities)"
    if len(wrong) > 3 * right:
        yield Finding(
            "error",
            "reversed-scores",
            name,
            f"Scores of the {name} {'fall' if lower else 'rise'} along the rows ({len(wrong):,} "
            f"of {len(wrong) + right:,} steps); in space {space} they {ought.split(' ')[0]}.",
            "Distances were taken for similarities or the other way round, or rows stand worst "
            "first. The first k are then the wrong ones. Convert the scores (1 - distance for "
            "cosine, the negative for ip), or turn the rows round.",
            _queries(run, wrong),
            "queries",
        )
        return
    bad = len(np.unique(wrong))
    yield Finding(
        _serious(name),
        "not-sorted",
        name,
        f"{bad:,} of {len(run):,} rows of the {name} are not sorted by score: scores ought to "
        f"{ought} along a row.",
        "The first k of a row are taken as its best k. Sort each row, nearest first.",
        _queries(run, wrong),
        "queries",
    )


# -- against each other -----------------------------------------------------------------------


def _depths(truth: Run, run: Run) -> Iterator[Finding]:
    if not 0 < truth.depth < run.depth:
        return
    yield Finding(
        "note",
        "truth-shallower",
        "truth",
        f"The truth is {truth.depth:,} deep, the run {run.depth:,}.",
        f"Recall can be measured up to @{truth.depth}; results behind it are not looked at.",
    )


def _spaces(name: str, run: Run, inputs: Inputs) -> Iterator[Finding]:
    if run.space is None:
        return
    other = ("you", inputs.space)
    if other[1] is None and name == "run" and inputs.truth is not None:
        other = ("the truth", inputs.truth.space)
    who, space = other
    if space is None or space == run.space:
        return
    yield Finding(
        "error",
        "spaces-differ",
        name,
        f"The {name} was made in space {run.space}; {who} {'say' if who == 'you' else 'says'} "
        f"{space}.",
        "Neighbours of one space are no truth for another. Make the truth in the space that the "
        "index uses.",
    )
