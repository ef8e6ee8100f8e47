"""Tolerance: four ways to choose the x of tolerant recall, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Judgments, Run, Vectors
from semrecall.data.ids import codes_in, unify
from semrecall.data.rows import pad
from semrecall.errors import InputError, MismatchError
from semrecall.measures import Measure, Problem, align, query_tolerance
from semrecall.measures.index import WIDE, trecall

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["ToleranceReport", "Way", "percent", "tolerance"]

#: How many queries the quantisation error is taken over, evenly spaced.
SAMPLE = 1000
#: The largest tolerance looked at, as a share: beyond it near means nothing.
LARGEST = 100.0
#: How many base vectors are looked at together.
BLOCK = 65_536


@dataclass(frozen=True)
class Way:
    """One way to choose x.

    x: the tolerance as a share (0.01 is 1%); NaN where this way gives none, and `note` says why.
    low, median, high: 5th, 50th and 95th percentile over queries; NaN where x is not made from
        one value per query.
    queries: how many queries x rests on.
    """

    name: str
    x: float
    low: float
    median: float
    high: float
    queries: int
    note: str

    def to_dict(self) -> dict[str, Any]:
        """The way as plain values, None for what is not known."""
        numbers = {"x": self.x, "low": self.low, "median": self.median, "high": self.high}
        known = {n: None if math.isnan(v) else v for n, v in numbers.items()}
        return {"way": self.name, **known, "queries": self.queries, "note": self.note}


@dataclass(frozen=True)
class ToleranceReport:
    """The four ways at one k. `report["proxy"].x` is the value of one of them."""

    k: int
    space: str
    ways: tuple[Way, ...]

    def __getitem__(self, name: str) -> Way:
        for way in self.ways:
            if way.name == name:
                return way
        known = ", ".join(way.name for way in self.ways)
        raise InputError(f"no way called {name!r} to choose x; expected one of {known}")

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row per way: way, x, low, median, high, queries, note."""
        return [way.to_dict() for way in self.ways]

    def __str__(self) -> str:
        head = ("way", "x", "5%", "median", "95%", "queries", "note")
        rows: list[tuple[str, ...]] = [head]
        for w in self.ways:
            numbers = (percent(v) for v in (w.x, w.low, w.median, w.high))
            rows.append((w.name, *numbers, f"{w.queries:,}", w.note))
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
        lines = []
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(w) for cell, w in zip(row[1:-1], widths[1:], strict=True)]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        return "\n".join(lines)


def tolerance(
    truth: Run,
    k: int,
    *,
    run: Run | None = None,
    judgments: Judgments | None = None,
    base: Any = None,
    queries: Any = None,
    rel: float = 1.0,
) -> ToleranceReport:
    """The tolerance x of `trecall@k`, chosen in four ways.

    proxy: how far the exact scores fall from rank 2k/3 to k, as a share of the score at rank 1 (of
        a distance: of that at rank 2k/3), mean over queries.
    query: each query's own such fall, as `trecall(x=query)` uses it; x is the median.
    quantisation: the mean relative error that storing the vectors in 8 bits makes in the scores
        of the true neighbours (needs `base` and `queries`). A lower bound: tolerating less blames
        the index for rounding.
    semantic: the smallest x at which the mean trecall reaches the mean srecall, over the queries
        where both are defined (needs `run` and `judgments`; relevant from grade `rel` on).

    A way whose inputs are missing has x NaN and says what it needs. Raises MeasureError where the
    truth has no scores or is less than k deep.
    """
    problem = align(truth if run is None else run, truth, judgments)
    Measure("trecall", k).values(problem)
    own = query_tolerance(problem, k)
    known = _known(own)
    ways = (
        _proxy(own),
        _way("query", own, float(np.median(known)) if len(known) else math.nan),
        _quantisation(problem, truth, k, base, queries),
        _semantic(problem, k, run, judgments, rel),
    )
    return ToleranceReport(k, str(problem.space), ways)


def _proxy(own: Array) -> Way:
    known = _known(own)
    x = float(np.mean(known)) if len(known) else math.nan
    return _way("proxy", own, x, "too wide to mean anything; choose another x" if x > WIDE else "")


def _known(values: Array) -> Array:
    return values[~np.isnan(values)]


def percent(share: float | None) -> str:
    """A share as people read it: 0.0685 is 6.85%; "-" for None and NaN."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.3g}%"


def _way(name: str, values: Array, x: float, note: str = "") -> Way:
    known = _known(values)
    if len(known) == 0:
        return Way(name, math.nan, math.nan, math.nan, math.nan, 0, note or "undefined everywhere")
    low, median, high = (float(v) for v in np.percentile(known, (5, 50, 95)))
    return Way(name, x, low, median, high, len(known), note)


def _without(name: str, note: str) -> Way:
    return _way(name, np.empty(0), math.nan, note)


# -- the error of 8-bit quantisation --------------------------------------------------------------


def _quantisation(problem: Problem, truth: Run, k: int, base: Any, queries: Any) -> Way:
    if base is None or queries is None:
        return _without("quantisation", "needs base and query vectors")
    if truth.space is not None and truth.space.compares != "vectors":
        return _without("quantisation", f"{truth.space} compares no single vectors of numbers")
    vectors, asked = Vectors.of(base), Vectors.of(queries)
    if vectors.dtype.itemsize == 1:
        note = f"the vectors are stored in 8 bits ({vectors.dtype})"
        return Way("quantisation", 0.0, 0.0, 0.0, 0.0, len(problem), note)
    errors = np.array([_relative(*pair) for pair in _rescored(truth, k, vectors, asked)])
    known = _known(errors)
    x = float(np.mean(known)) if len(known) else math.nan
    return _way("quantisation", errors, x, "a lower bound")


def _relative(rounded: Array, exact: Array) -> float:
    """Mean relative error of the scores of one query; a score of 0 has none."""
    usable = np.isfinite(rounded) & np.isfinite(exact) & (exact != 0)
    if not usable.any():
        return math.nan
    return float(np.mean(np.abs(rounded[usable] / exact[usable] - 1.0)))


def _rescored(truth: Run, k: int, base: Vectors, queries: Vectors) -> Iterator[tuple[Array, Array]]:
    """(scores through 8 bits, exact scores) of the first k true neighbours, per sampled query."""
    space = truth.space
    if space is None:
        raise InputError("the truth does not say of which space its scores are")
    if base.dimension != queries.dimension:
        raise MismatchError(
            f"base vectors have {base.dimension} dimensions, query vectors {queries.dimension}"
        )
    rows = np.linspace(0, len(truth) - 1, min(len(truth), SAMPLE)).astype(np.int64)
    asked = _query_rows(truth.queries[rows], truth, queries)
    place = _places("document", truth.documents, base.ids, "base")
    neighbours = pad(place, truth.offsets, -1)[rows, :k]
    needed = np.unique(neighbours[neighbours >= 0])
    stored = _take(base, needed)
    coded = _through_8_bits(stored, *_range(base))
    for query, row in zip(queries.take(asked), neighbours, strict=True):
        at = np.searchsorted(needed, row[row >= 0])
        yield space.exact_scores(coded[at], query), space.exact_scores(stored[at], query)


def _query_rows(wanted: Ids, truth: Run, queries: Vectors) -> NDArray[np.int64]:
    if queries.given_ids is None and len(queries) == len(truth):
        # Vectors without ids of their own stand in the order of the truth.
        return codes_in(*unify(wanted, truth.queries))
    return _places("query", wanted, queries.ids, "query vectors")


def _places(what: str, wanted: Ids, known: Ids, where: str) -> NDArray[np.int64]:
    """Positions of ids among `known`, -1 for missing ids; MismatchError where one is not there."""
    found = codes_in(*unify(wanted, known))
    lost = np.flatnonzero((found < 0) & ~wanted.missing)
    if len(lost):
        raise MismatchError(
            f"{len(lost):,} {what} ids of the truth are not among the {where}, first: "
            f"{wanted[lost[0]]!r}; the {where} have ids like {known[0]!r}",
            hint="give the vectors that the truth was computed from, with their ids",
        )
    return found


def _take(base: Vectors, rows: NDArray[np.int64]) -> NDArray[Any]:
    """The vectors at these rising positions, also from a stream."""
    parts = [np.empty((0, base.dimension), dtype=base.dtype)]
    for start, block in base.blocks(BLOCK):
        first, last = np.searchsorted(rows, (start, start + len(block)))
        parts.append(block[rows[first:last] - start])
    return np.concatenate(parts)


def _range(base: Vectors) -> tuple[Array, Array]:
    """Smallest and largest finite value of each dimension, (d,) each."""
    low, high = np.full(base.dimension, np.inf), np.full(base.dimension, -np.inf)
    for _, block in base.blocks(BLOCK):
        finite = np.isfinite(block)
        np.minimum(low, np.min(block, axis=0, where=finite, initial=np.inf), out=low)
        np.maximum(high, np.max(block, axis=0, where=finite, initial=-np.inf), out=high)
    return low, high


def _through_8_bits(vectors: NDArray[Any], low: Array, high: Array) -> Array:
    """Each value rounded to the nearest of 256 levels, evenly spaced over its dimension's range."""
    step = (high - low) / 255.0
    code = np.rint((vectors - low) / np.where(step > 0, step, 1.0))
    return np.asarray(low + code * step)


# -- where tolerant recall meets semantic recall --------------------------------------------------


def _semantic(
    problem: Problem, k: int, run: Run | None, judgments: Judgments | None, rel: float
) -> Way:
    name = "semantic"
    if run is None or judgments is None:
        return _without(name, "needs a run and judgments")
    target = Measure("srecall", k, (("rel", rel),)).values(problem).values
    use = ~np.isnan(target) & ~np.isnan(Measure("trecall", k, (("x", 0.0),)).values(problem).values)
    if not use.any():
        return _without(name, "no query has a semantic neighbour")
    goal = math.fsum(target[use]) / np.count_nonzero(use)

    def reached(x: float) -> float:
        return math.fsum(trecall(problem, k, x=x)[use]) / np.count_nonzero(use)

    x = _first_reaching(reached, goal)
    if x is None:
        note = f"trecall stays at {reached(LARGEST):.4f} or below, srecall is {goal:.4f}"
        return _without(name, note)
    note = f"trecall {reached(x):.4f}, srecall {goal:.4f}"
    if x == 0 and reached(0.0) > goal:
        note += ": above it at every x"
    return Way(name, x, math.nan, math.nan, math.nan, int(np.count_nonzero(use)), note)


def _first_reaching(reached: Callable[[float], float], goal: float) -> float | None:
    """The smallest x (to 7 digits, from above) at which a rising function reaches the goal."""
    enough = goal - 1e-12
    if reached(0.0) >= enough:
        return 0.0
    low, high = 0.0, 0.01
    while reached(high) < enough:
        if high >= LARGEST:
            return None
        low, high = high, min(2 * high, LARGEST)
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) >= enough else (middle, high)
    return high
