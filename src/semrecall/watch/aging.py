"""How far a stored truth is from what a system holds now, by what can be seen of it.

Of an exact truth everything is known down to its last score: a result that is nearer than the k-th
neighbour and is none of them was not there when the truth was made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semrecall.data import Ids
from semrecall.text import number, share

if TYPE_CHECKING:
    from semrecall.data import Run
    from semrecall.space import Space

__all__ = ["Aging", "gone_share", "moved_share", "newcomers_share", "score_error", "stale_share"]

#: Exact scores of the same vectors differ by less than this, as a share.
SAME = 1e-6


@dataclass(frozen=True)
class Aging:
    """What became of the neighbours of a truth, as shares of them; NaN where it cannot be seen.

    newcomers: results nearer than the k-th neighbour that the truth does not have.
    gone: neighbours whose ids the base has no more. moved: neighbours found whose scores are
    others now. exact: neighbours that the system's own exact search no longer finds.
    rows_then, rows_now: vectors when the truth was made, and now; None where nobody says.
    limit: the share from which on the truth is not to be trusted.
    """

    newcomers: float = math.nan
    gone: float = math.nan
    moved: float = math.nan
    exact: float = math.nan
    rows_then: int | None = None
    rows_now: int | None = None
    limit: float = 0.05

    @property
    def growth(self) -> float:
        """Vectors more or fewer than then, as a share.

        Where new vectors are like the old ones, they take this share of the places.
        """
        if not self.rows_then or self.rows_now is None:
            return math.nan
        return abs(self.rows_now - self.rows_then) / max(self.rows_then, self.rows_now)

    @property
    def stale(self) -> float:
        """The share of the neighbours that are most likely the true ones no more.

        By the system's own exact search where it was asked, else by the number of vectors; at
        least what else was seen.
        """
        told = self.growth if math.isnan(self.exact) else self.exact
        lost = np.nansum([self.gone, self.moved])
        return float(np.nanmax([told, self.newcomers, lost, 0.0]))

    @property
    def aged(self) -> bool:
        """Whether the truth has aged too far to be trusted."""
        return self.stale > self.limit

    def __str__(self) -> str:
        parts = []
        if self.rows_then is not None and self.rows_now not in (None, self.rows_then):
            parts.append(f"{number(self.rows_then)} vectors then, {number(self.rows_now)} now")
        for value, what in (
            (self.exact, "of the neighbours are not among the system's own exact ones"),
            (self.newcomers, "of the places are taken by new vectors"),
            (self.gone, "of the neighbours are gone"),
            (self.moved, "of the neighbours have other scores"),
        ):
            if value > 0:
                parts.append(f"{share(value)} {what}")
        return "; ".join(parts) or "nothing has changed that can be seen"


def score_error(found: Run, truth: Run) -> float:
    """How far the scores of results are from those of the truth for the same ids: the 99th
    percentile, as a share; NaN where none can be compared.
    """
    errors = [
        abs(score - known[name]) / abs(known[name])
        for row, known in _rows(found, truth)
        for name, score in row.items()
        if name in known and known[name] and not math.isnan(score)
    ]
    return float(np.percentile(errors, 99)) if errors else math.nan


def moved_share(found: Run, truth: Run, k: int) -> float:
    """Of the k true neighbours that were found, the share with another exact score now."""
    pairs = [
        (score, known[name])
        for row, known in _rows(found, truth, k)
        for name, score in row.items()
        if name in known and not math.isnan(score)
    ]
    moved = [abs(now - then) > SAME * max(abs(then), SAME) for now, then in pairs]
    return float(np.mean(moved)) if moved else math.nan


def newcomers_share(found: Run, truth: Run, k: int, slack: float) -> float:
    """Results that are nearer than the k-th neighbour by more than a share `slack` of its score,
    and are none of the neighbours, as a share of all neighbours.
    """
    space = truth.space
    if space is None or truth.flat_scores is None:
        return math.nan
    new = total = 0
    for row, known in _rows(found, truth):
        scores = list(known.values())[:k]
        total += len(scores)
        if len(scores) == k:
            fresh = [s for name, s in row.items() if name not in known and s == s]
            new += sum(_nearer(space, score, scores[-1], slack) for score in fresh[:k])
    return min(1.0, new / total) if total else math.nan


def stale_share(exact: Run, truth: Run, k: int, slack: float) -> float:
    """The share of the k neighbours that exact search does not find now, near ties at rank k aside.

    exact: what the system's own exact search found, k deep.
    """
    space = truth.space
    if space is None or truth.flat_scores is None or exact.flat_scores is None:
        return math.nan
    lost = total = 0
    for row, known in _rows(exact, truth):
        now = list(row.values())[:k]
        first = list(known.items())[:k]
        total += len(first)
        for name, score in first:
            if name in row or not now:
                lost += name not in row
                continue
            tied = not (
                _nearer(space, score, now[-1], slack) or _nearer(space, now[-1], score, slack)
            )
            lost += not tied
    return lost / total if total else math.nan


def gone_share(truth: Run, known: Ids, k: int) -> tuple[float, list[str]]:
    """The share of the k neighbours whose ids are not known any more, and those ids."""
    there = set(known.strings().tolist())
    names = [name for _, row in _rows(truth, truth) for name in list(row)[:k]]
    gone = [name for name in names if name not in there]
    return (len(gone) / len(names) if names else math.nan), sorted(set(gone))


def _nearer(space: Space, score: float, than: float, slack: float) -> bool:
    """Whether a score is nearer than another by more than a share of that."""
    margin = slack * abs(than)
    return score > than + margin if space.higher_is_nearer else score < than - margin


def _rows(found: Run, truth: Run, k: int | None = None) -> list[tuple[dict[str, float], ...]]:
    """For each query of `found`: {id: score} of it, and of the truth (its first k)."""
    known = dict(zip(truth.queries.strings().tolist(), _all(truth, k), strict=True))
    asked = found.queries.strings().tolist()
    return [(row, known.get(name, {})) for name, row in zip(asked, _all(found, None), strict=True)]


def _all(run: Run, k: int | None) -> list[dict[str, float]]:
    names = run.documents.strings().tolist()
    valid = run.valid.tolist()
    scores = [math.nan] * len(names) if run.flat_scores is None else run.flat_scores.tolist()
    rows: list[dict[str, float]] = []
    for start, end in zip(run.offsets[:-1].tolist(), run.offsets[1:].tolist(), strict=True):
        row: dict[str, float] = {}
        for at in range(start, end if k is None else min(end, start + k)):
            if valid[at]:
                row.setdefault(names[at], scores[at])
        rows.append(row)
    return rows
