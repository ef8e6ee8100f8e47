"""Findings from exact search of sampled queries: is the truth true, in which space, how tied."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semrecall.check.inputs import Inputs
from semrecall.check.report import Finding, percent
from semrecall.data import Run
from semrecall.data.rows import row_numbers
from semrecall.space import COSINE, HAMMING, IP, JACCARD, L2, Space, exact_norms
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["findings"]

#: Neighbours compared to tell spaces apart.
_TOP = 10
#: The deepest rank whose ties are looked at.
_DEEPEST = 1000
#: Relative rounding of vectors stored as float32.
_ROUNDING = 2.0**-23
#: From this share on, a likeness is no accident.
_SAME = 0.9
#: From this overlap on a truth is of that space, even if a part of it is wrong.
_OF_SPACE = 0.7
#: From this share of queries tied at rank k on, ids at k mislead.
_TIED = 0.1


def findings(inputs: Inputs) -> Iterator[Finding]:
    """Everything that needs the exact neighbours of some queries."""
    if inputs.truth is not None and len(inputs.truth):
        yield from _self_matches(inputs.truth)
    if not inputs.can_search:
        yield from _ties_by_scores(inputs)
        return
    space = inputs.stated_space
    if inputs.truth is not None and bool((inputs.rows_in(inputs.truth) >= 0).any()):
        if inputs.truth.identity.get("filter"):
            inputs.sampled.append("the truth is filtered, so its rows were not recomputed")
        else:
            found = yield from _truth_space(inputs, inputs.truth, space)
            if found is not None:
                space = space or found
                yield from _truth_rows(inputs, inputs.truth, found)
    yield from _spaces_apart(inputs, space)
    yield from _ties(inputs, space or inputs.spaces[-1 if inputs.bits else 1])


# -- the query itself -------------------------------------------------------------------------


def _self_matches(truth: Run) -> Iterator[Finding]:
    """Rows whose first result has the id of the query."""
    lengths = np.diff(truth.offsets)
    filled = np.flatnonzero(lengths > 0)
    if len(filled) < 5:
        return
    same = truth.documents[truth.offsets[filled]].strings() == truth.queries[filled].strings()
    if same.mean() < _SAME:
        return
    yield Finding(
        "note",
        "self-matches",
        "truth",
        f"In {int(same.sum()):,} of {len(filled):,} rows of the truth the first neighbour has the "
        "id of the query.",
        "The queries were drawn from the base, and each finds itself: recall@1 says nothing, and "
        "recall@k is higher than it is for real queries. Leave the query itself out of truth and "
        "run.",
        tuple(truth.queries[filled[same][:5]]),
        "queries",
    )


# -- is the truth true, and in which space ------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """The truth of one sampled query.

    query: its row among the queries.
    at: its place among the sampled ones.
    rows: base rows of its truth, best first, -1 for ids that the base does not have.
    length: how long its row of the truth is in all.
    """

    query: int
    at: int
    rows: NDArray[np.int64]
    length: int


def _truth_lists(inputs: Inputs, truth: Run) -> list[_Row]:
    entries, lengths = inputs.truth_entries()
    base_rows = inputs.base_rows(truth.documents[entries])
    base_rows = np.where(truth.valid[entries], base_rows, -1)
    parts = np.split(base_rows, np.cumsum(lengths)[:-1])
    return [
        _Row(int(inputs.chosen[at]), at, parts[at], int(np.diff(truth.offsets[row : row + 2])[0]))
        for at, row in enumerate(inputs.rows_in(truth).tolist())
        if len(parts[at])
    ]


def _exact_rows(inputs: Inputs, space: Space, k: int) -> list[NDArray[np.int64]]:
    """Base rows of the exact k nearest of each sampled query, ties at rank k included."""
    nearest = inputs.nearest(space, k)
    rows = inputs.base_rows(nearest.documents)
    lists = []
    for i in range(len(nearest)):
        low, high = int(nearest.offsets[i]), int(nearest.offsets[i + 1])
        if high - low > k and nearest.flat_scores is not None:
            tied = nearest.flat_scores[low + k : high] == nearest.flat_scores[low + k - 1]
            high = low + k + int(tied.sum())
        lists.append(rows[low:high])
    return lists


def _overlap(lists: list[_Row], exact: list[NDArray[np.int64]], k: int) -> float:
    """Mean share of the first k of the truth that are among the exact k nearest."""
    shares = [
        min(len(np.intersect1d(row.rows[:k], exact[row.at])), k) / min(k, len(row.rows))
        for row in lists
    ]
    return float(np.mean(shares))


def _truth_space(
    inputs: Inputs, truth: Run, space: Space | None
) -> Generator[Finding, None, Space | None]:
    """Name the space in which the truth's ids are the nearest, and return it; None for none."""
    lists = _truth_lists(inputs, truth)
    if not lists:
        return None
    k = min(_TOP, truth.depth)
    stated = truth.space or space
    assert inputs.base_scan is not None
    if stated is not None:
        inputs.nearest(stated, max(inputs.depth, min(inputs.k, _DEEPEST)) + 1)
        overlap = _overlap(lists, _exact_rows(inputs, stated, k), k)
        if overlap >= 0.995 or (overlap >= _SAME and inputs.base_scan.equal_norms):
            return stated
    overlaps = {s.name: _overlap(lists, _exact_rows(inputs, s, k), k) for s in inputs.spaces}
    best = max(inputs.spaces, key=lambda s: (overlaps[s.name], s == stated))
    measured = ", ".join(f"{name} {value:.3f}" for name, value in overlaps.items())
    if overlaps[best.name] < 0.5:
        yield _not_nearest(inputs, lists, measured, k)
        return None
    if stated is None:
        alike = [s.name for s in inputs.spaces if overlaps[s.name] > overlaps[best.name] - 0.02]
        yield Finding(
            "note",
            "truth-space",
            "truth",
            f"The truth does not say its space; its ids are the nearest in {' and '.join(alike)} "
            f"(overlap@{k} with exact search: {measured}).",
            f"State it: --space {best.name}, or space={best.name!r}."
            if len(alike) == 1
            else "On these vectors they cannot be told apart by ids.",
        )
        return best
    if overlaps[best.name] >= _OF_SPACE and overlaps[best.name] > overlaps[stated.name] + 0.05:
        yield Finding(
            "error",
            "truth-space",
            "truth",
            f"The truth is taken to be in {stated}, but its ids are the nearest in {best} "
            f"(overlap@{k} with exact search: {measured}).",
            f"Against an index that uses {stated} even perfect results would score about "
            f"{overlaps[stated.name]:.2f}. Make the truth again in the space of the index "
            "(semrecall truth --space ...).",
        )
        return best
    return stated


def _not_nearest(inputs: Inputs, lists: list[_Row], measured: str, k: int) -> Finding:
    """Ids that are not the nearest in any space, and why that may be."""
    found = (
        "The ids of the truth are not the nearest in any space "
        f"(overlap@{k} with exact search: {measured})."
    )
    for step, advice in (
        (-1, "With 1 subtracted from every id they are: ids start at 1, rows at 0. Subtract 1."),
        (1, "With 1 added to every id they are: a row was dropped at the front. Add 1."),
    ):
        moved = [replace(row, rows=row.rows + step) for row in lists]
        if any(_overlap(moved, _exact_rows(inputs, s, k), k) >= _SAME for s in inputs.spaces):
            return Finding("error", "ids-off-by-one", "truth", found, advice)
    for space in inputs.spaces:
        other = _other_queries(lists, _exact_rows(inputs, space, k), k)
        if other:
            return Finding(
                "error",
                "queries-in-other-order",
                "truth",
                f"{found} But {len(other):,} of {len(lists):,} rows are the neighbours of another "
                f"query in {space}.",
                "Queries and truth stand in different order: give both their ids, or sort them "
                "alike.",
                tuple(other[:5]),
                "query rows",
            )
    return Finding(
        "error",
        "truth-not-nearest",
        "truth",
        found,
        "Other vectors, base rows in another order (a shuffled copy?), ids of another collection, "
        "or a truth under a filter? Make it again from these files.",
    )


def _other_queries(lists: list[_Row], exact: list[NDArray[np.int64]], k: int) -> list[int]:
    """Query rows whose truth is the neighbours of another sampled query; [] when few are."""
    misplaced = []
    for row in lists:
        shares = [len(np.intersect1d(row.rows[:k], other)) / k for other in exact]
        best = int(np.argmax(shares))
        if best != row.at and shares[best] >= 0.5:
            misplaced.append(row.query)
    return misplaced if len(misplaced) >= max(3, 0.05 * len(lists)) else []


# -- row by row -------------------------------------------------------------------------------


def _truth_rows(inputs: Inputs, truth: Run, space: Space) -> Iterator[Finding]:
    """How many rows of the truth are a right answer, ties and float32 rounding allowed."""
    depth = inputs.depth
    lists = _truth_lists(inputs, truth)
    nearest = inputs.nearest(space, depth + 1)
    without_self = _leaves_itself_out(inputs, lists, nearest)
    wrong_rows, wrong, places, longer = [], 0, 0, []
    for row in lists:
        scores = _scores_of(nearest, row.at)
        if without_self[row.at]:
            scores = scores[1:]
        want = min(depth, len(scores))
        missed, tied = _faults(inputs, space, row, scores, want)
        places += want
        wrong += missed
        if missed:
            wrong_rows.append(row.query)
        elif tied > row.length:
            longer.append(row.query)
    assert inputs.queries is not None
    if any(without_self.values()):
        yield Finding(
            "note",
            "self-left-out",
            "truth",
            "The queries are rows of the base, and the truth leaves each query itself out.",
            "The run must leave it out too, or it loses one place per query.",
        )
    if wrong_rows:
        few = wrong * 100 < places
        yield Finding(
            "warning" if few else "error",
            "truth-wrong",
            "truth",
            f"{len(wrong_rows):,} of {len(lists):,} sampled rows of the truth are not the exact "
            f"nearest in {space}: {wrong:,} of {places:,} places ({percent(wrong, places)}) hold "
            "another id, a repeat, or nothing, beyond what float32 rounding explains.",
            "A truth by an approximate index, in other precision, under a filter, or of an older "
            f"base? Make it again: semrecall truth --space {space}.",
            tuple(inputs.queries.ids[np.array(wrong_rows[:5])]),
            "queries",
        )
    else:
        yield Finding(
            "note",
            "truth-right",
            "truth",
            f"All {len(lists):,} sampled rows of the truth are the exact nearest in {space}, up "
            f"to ties and float32 rounding (to depth {depth:,}).",
        )
    if longer:
        yield _depth_runs_out(inputs, longer, lists, depth)


def _leaves_itself_out(inputs: Inputs, lists: list[_Row], nearest: Run) -> dict[int, bool]:
    """Per sampled query, whether its truth lacks only an exact copy of the query at rank 1."""
    assert inputs.base is not None
    assert inputs.queries is not None
    out = dict.fromkeys((row.at for row in lists), False)
    rows = inputs.base_rows(nearest.documents)
    filled = [row for row in lists if nearest.offsets[row.at] < nearest.offsets[row.at + 1]]
    if inputs.base.matrix is None or not filled:
        return out
    first = rows[nearest.offsets[[row.at for row in filled]]]
    queries = inputs.queries.take(np.array([row.query for row in filled]))
    same = (inputs.base.matrix[first] == queries).all(axis=1)
    alone = {row.at: bool(same[at]) and first[at] not in row.rows for at, row in enumerate(filled)}
    return out | alone if sum(alone.values()) >= _SAME * max(same.sum(), 1) else out


def _scores_of(run: Run, row: int) -> NDArray[np.float64]:
    assert run.flat_scores is not None
    scores = run.flat_scores[run.offsets[row] : run.offsets[row + 1]]
    return np.asarray(scores[~np.isnan(scores)])


def _faults(
    inputs: Inputs, space: Space, row: _Row, scores: NDArray[np.float64], want: int
) -> tuple[int, int]:
    """Places of one row that hold no right answer, and how many rows tie down to rank `want`."""
    if want == 0:
        return 0, 0
    limit = scores[want - 1]
    tied = int((space.sort_key(scores) <= space.sort_key(limit)).sum())
    known = np.unique(row.rows[row.rows >= 0])
    own = inputs.scores(space, known, np.full(len(known), row.query))
    slack = _slack(inputs, space, row.query, float(limit))
    good = int((space.sort_key(own) <= space.sort_key(limit) + slack).sum())
    return max(want - good, 0), tied


def _slack(inputs: Inputs, space: Space, query: int, score: float) -> float:
    """How far a score computed in float32 may be off, by any of the usual formulas."""
    assert inputs.base_scan is not None
    assert inputs.queries is not None
    if space.compares == "bits":
        return 8 * _ROUNDING if space is JACCARD else 0.0
    if space is COSINE:
        return 8 * _ROUNDING
    norm = float(exact_norms(inputs.queries.require_matrix()[[query]])[0])
    largest = inputs.base_scan.norm_high
    if space is IP:
        return 8 * _ROUNDING * norm * largest
    # |q|^2 + |b|^2 - 2 q.b loses digits where the distance is short beside the norms.
    squares = 8 * _ROUNDING * (norm**2 + largest**2)
    return min(squares / (2 * score) if score > 0 else np.inf, float(np.sqrt(squares)))


def _depth_runs_out(inputs: Inputs, longer: list[int], lists: list[_Row], depth: int) -> Finding:
    assert inputs.queries is not None
    return Finding(
        "warning" if len(longer) >= _TIED * len(lists) else "note",
        "truth-depth",
        "truth",
        f"In {len(longer):,} of {len(lists):,} sampled rows ties at rank {depth:,} go on beyond "
        "the end of the truth: the depth of the truth is smaller than the group of equal "
        "neighbours.",
        "A result that ties but is not listed counts as a miss when only ids are compared. Make "
        "the truth with semrecall truth, which keeps ties, or score with base and queries.",
        tuple(inputs.queries.ids[np.array(longer[:5])]),
        "queries",
    )


# -- spaces against each other, and ties ----------------------------------------------------------


def _spaces_apart(inputs: Inputs, space: Space | None) -> Iterator[Finding]:
    """How much the choice of the space matters on these vectors, measured."""
    seen = inputs.base_scan
    assert seen is not None
    if seen.equal_norms or inputs.bits:
        return
    lists = {s.name: _exact_rows(inputs, s, _TOP) for s in (IP, COSINE, L2)}

    def overlap(one: str, other: str) -> float:
        shares = [
            min(len(np.intersect1d(a, b)), _TOP) / max(min(_TOP, len(a)), 1)
            for a, b in zip(lists[one], lists[other], strict=True)
        ]
        return float(np.mean(shares))

    pairs = (("ip", "cosine"), ("cosine", "l2"), ("ip", "l2"))
    measured = {pair: overlap(*pair) for pair in pairs}
    figures = ", ".join(f"{a} and {b} {value:.3f}" for (a, b), value in measured.items())
    lowest = min(v for pair, v in measured.items() if space is None or space.name in pair)
    serious = space is IP and seen.nearly_unit >= 0.99 * seen.directed and lowest < 0.999
    advice = {
        "cosine": "An engine set to inner product or l2 on these vectors as they are finds other "
        "neighbours. Normalise them first, or choose cosine in the engine.",
        "ip": "Long vectors win under ip. If the model was trained with cosine, normalise; an "
        "engine set to cosine or l2 would be scored against the wrong truth.",
        "l2": "An engine set to cosine or inner product would be scored against the wrong truth.",
    }
    yield Finding(
        "warning" if serious else "note",
        "spaces-apart",
        "base",
        f"The spaces find different neighbours here: overlap@{_TOP} of {figures}.",
        advice[space.name]
        if space is not None
        else "Find out which one the model was trained for, and use it for index and truth.",
    )


def _ties(inputs: Inputs, space: Space) -> Iterator[Finding]:
    """Ranks k and k + 1 of exact search: how many queries hardly tell them apart."""
    assert inputs.queries is not None
    k = min(inputs.k, _DEEPEST)
    nearest = inputs.nearest(space, k + 1)
    lengths = np.diff(nearest.offsets)
    enough = np.flatnonzero(lengths > k)
    if len(enough) == 0 or nearest.flat_scores is None:
        return
    last = nearest.flat_scores[nearest.offsets[enough] + k - 1]
    after = nearest.flat_scores[nearest.offsets[enough] + k]
    matrix = inputs.queries.require_matrix()[inputs.chosen[enough]]
    assert inputs.base_scan is not None
    scale = exact_norms(matrix) * inputs.base_scan.norm_high
    if space in (COSINE, JACCARD):
        scale = np.ones(len(last))
    elif space is HAMMING:
        scale = np.zeros(len(last))
    elif space is L2:
        scale = exact_norms(matrix) + inputs.base_scan.norm_high
    yield from _tie_finding(space, k, last, after, 2 * _ROUNDING * scale)


def _ties_by_scores(inputs: Inputs) -> Iterator[Finding]:
    """The same from the scores of a truth, where it is deeper than k."""
    truth = inputs.truth
    if truth is None or truth.flat_scores is None or truth.space is None:
        return
    lengths = np.bincount(row_numbers(truth.offsets)[truth.valid], minlength=len(truth))
    k = inputs.run.depth if inputs.run is not None else 10
    enough = np.flatnonzero((lengths > k) & (lengths == np.diff(truth.offsets)))
    if k < 1 or len(enough) == 0:
        return
    last = truth.flat_scores[truth.offsets[enough] + k - 1]
    after = truth.flat_scores[truth.offsets[enough] + k]
    yield from _tie_finding(truth.space, k, last, after, 2 * _ROUNDING * np.abs(last))


def _tie_finding(
    space: Space,
    k: int,
    last: NDArray[np.float64],
    after: NDArray[np.float64],
    rounding: NDArray[np.float64],
) -> Iterator[Finding]:
    # A zero vector under cosine has no score.
    known = np.isfinite(last) & np.isfinite(after)
    last, after, rounding = last[known], after[known], rounding[known]
    n = len(last)
    if n == 0:
        return
    gap = np.abs(last - after)
    exact = int((gap == 0).sum())
    float32 = int((gap <= rounding).sum())
    near = [int(space.near(after, last, x).sum()) for x in (0.001, 0.01)]
    near = [max(count, float32) for count in near]
    yield Finding(
        "warning" if float32 >= _TIED * n else "note",
        "near-ties",
        "queries",
        f"Ranks {k:,} and {k + 1:,} in {space}, {plural(n, 'query', 'queries')}: exactly equal in "
        f"{percent(exact, n)}, equal to float32 in {percent(float32, n)}, within 0.1% in "
        f"{percent(near[0], n)}, within 1% in {percent(near[1], n)}.",
        "Where the two tie, which id is in the top k is chance: float32 alone can swap them. Read "
        "recall with ties (the default) and trecall; recall(ties=no) counts such swaps as losses."
        if float32 >= _TIED * n
        else "So often a lost neighbour at rank k has a substitute that is as good: what trecall "
        "forgives and recall does not.",
    )
