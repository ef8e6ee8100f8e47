"""Searchers: which setting to try next. All speak one small protocol: ask, and tell.

A point is {knob: value}. A searcher is asked for a point, told its Outcome, and asked again until
it has nothing more to ask.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from semrecall.tuning.racing import Outcome
from semrecall.tuning.ranges import Range

__all__ = ["Bisection", "Grid", "Nested", "Point", "Random", "Refined", "Searcher"]

Point = Mapping[str, Any]
#: How a searcher made of a generator goes: points out, outcomes in.
Steps = Generator[Point, Outcome, None]

#: A dearer setting that costs less is not noise from here on: of counters, of clocks.
NOISE = {False: 0.01, True: 0.25}


#: Costs closer than this are as good as one.
_ALIKE = 0.01


class Searcher(Protocol):
    """What proposes points."""

    def ask(self) -> Point | None:
        """The next point to try; None when there is no more."""
        ...

    def tell(self, point: Point, outcome: Outcome) -> None:
        """What came of a point that was asked for."""
        ...


class _Stepping(ABC):
    """A searcher written as a generator."""

    def __init__(self) -> None:
        self._steps = self.steps()
        self._next: Point | None = next(self._steps, None)

    @abstractmethod
    def steps(self) -> Steps:
        """Yields points and is sent their outcomes."""

    def ask(self) -> Point | None:
        """The next point to try; None when there is no more."""
        return self._next

    def tell(self, point: Point, outcome: Outcome) -> None:
        """Go on with what came of it."""
        try:
            self._next = self._steps.send(outcome)
        except StopIteration:
            self._next = None


class Grid(_Stepping):
    """Every combination of so many values of each range, spread by its scale."""

    def __init__(self, ranges: Sequence[Range], counts: Sequence[int]) -> None:
        self.values = [one.spread(n) for one, n in zip(ranges, counts, strict=True)]
        self.names = [one.name for one in ranges]
        super().__init__()

    def steps(self) -> Steps:
        """In rising order, the last range fastest."""
        for values in itertools.product(*self.values):
            yield dict(zip(self.names, values, strict=True))


class Random:
    """Points at random, each range by its scale, without end.

    branches: by name of a system the ranges that it has; with several, the point says under
    "system" which one it is of.
    """

    def __init__(self, branches: Mapping[str, Sequence[Range]], seed: int = 0) -> None:
        self.branches = {name: list(ranges) for name, ranges in branches.items()}
        self._draw = np.random.default_rng(seed)
        self._asked: Point | None = None

    def ask(self) -> Point:
        """A new point."""
        if self._asked is None:
            names = list(self.branches)
            name = names[int(self._draw.integers(len(names)))]
            point: dict[str, Any] = {"system": name} if len(names) > 1 else {}
            self._asked = point | {
                one.name: one.at(float(self._draw.random())) for one in self.branches[name]
            }
        return self._asked

    def tell(self, point: Point, outcome: Outcome) -> None:
        """Nothing is learnt."""
        self._asked = None


class Bisection(_Stepping):
    """The least value of one knob that meets the target.

    It strides up until a setting meets the target, or more brings nothing new, then halves the
    gap. That is right where more of the knob is never worse and never cheaper. Neither is assumed:
    both are checked on all that was seen, and the value below the last miss is tried as well.
    Where a check fails, `monotone` is False and the range is searched by a grid.

    start: where to begin. bound: a cost above which nothing is of interest. timed: the cost is
    from a clock, which is noisy. thorough: before nothing meets the target, a grid is looked at,
    too. seen: outcomes by value.
    """

    def __init__(
        self,
        one: Range,
        *,
        start: float | None = None,
        bound: float = math.inf,
        timed: bool = False,
        thorough: bool = True,
        points: int = 16,
    ) -> None:
        self.range, self.bound, self.points, self.thorough = one, bound, points, thorough
        self.start = one.low if start is None else start
        self.noise = NOISE[timed]
        self.seen: dict[float, Outcome] = {}
        super().__init__()

    @property
    def least(self) -> float | None:
        """The cheapest value seen that meets the target; None without any."""
        met = [v for v, outcome in self.seen.items() if outcome.meets]
        return min(met, key=lambda v: (self.seen[v].cost, v), default=None)

    @property
    def monotone(self) -> bool:
        """Whether, of what was seen, more of the knob never is worse and never is cheaper.

        Worse is to miss a target that less of it meets.
        """
        values = sorted(self.seen)
        met_before, dearest = False, 0.0
        for value in values:
            outcome = self.seen[value]
            if met_before and not outcome.meets:
                return False
            met_before = met_before or outcome.meets
            if outcome.full:
                if outcome.cost < dearest * (1 - self.noise):
                    return False
                dearest = max(dearest, outcome.cost)
        return True

    def steps(self) -> Steps:
        """Stride, halve, check; a grid where a check fails."""
        yield from self._stride()
        yield from self._halve()
        yield from self._look_below()
        if not self.monotone:
            yield from self._grid(self.range.high)
        elif self.thorough and self._least_met() is None:
            # That a target is out of reach is not said of a few points.
            yield from self._grid(max(self.seen))

    def _see(self, value: float) -> Generator[Point, Outcome, Outcome]:
        if value not in self.seen:
            self.seen[value] = yield {self.range.name: value}
        return self.seen[value]

    def _stride(self) -> Steps:
        """Up until the target is met, or it costs too much, or a stride changes nothing more."""
        value, last = self.start, ""
        while True:
            outcome = yield from self._see(value)
            if outcome.meets or outcome.cost > self.bound:
                break
            up = self.range.above(value)
            if up is None or (outcome.full and outcome.digest == last and self._turns):
                break
            value, last = up, outcome.digest
        # One setting cannot show whether the knob does anything at all.
        beside = self.range.low if self.start > self.range.low else self.range.above(value)
        while not self._turns and beside is not None:
            yield from self._see(beside)
            beside = self.range.above(max(self.seen))

    @property
    def _turns(self) -> bool:
        """Whether two settings seen have different results, or a different cost."""
        outcomes = list(self.seen.values())
        costs = [outcome.cost for outcome in outcomes if outcome.full]
        return len({outcome.first for outcome in outcomes}) > 1 or (
            len(costs) > 1 and max(costs) > (1 + self.noise) * min(costs)
        )

    def _halve(self) -> Steps:
        while (least := self._least_met()) is not None:
            missed = [v for v, o in self.seen.items() if v < least and not o.meets]
            low = max(missed, default=None)
            if low is None:
                if least == self.range.low:
                    return
                yield from self._see(self.range.low)
                continue
            middle = self.range.between(low, least)
            if middle is None or self._settled(low, least):
                return
            yield from self._see(middle)

    def _settled(self, low: float, least: float) -> bool:
        """Whether nothing between a miss and a hit is worth a search."""
        miss, hit = self.seen[low], self.seen[least]
        if miss.full and hit.full and hit.cost - miss.cost < _ALIKE * hit.cost:
            return True
        return miss.cost > self.bound

    def _least_met(self) -> float | None:
        return min((v for v, outcome in self.seen.items() if outcome.meets), default=None)

    def _look_below(self) -> Steps:
        least = self._least_met()
        if least is None or self.seen[least].cost > self.bound:
            return
        low = max((v for v in self.seen if v < least), default=None)
        below = None if low is None else self.range.below(low)
        if below is not None:
            yield from self._see(below)

    def _grid(self, top: float) -> Steps:
        """All over the range, then closer to the cheapest that meets the target."""
        for value in self.range.spread(self.points):
            if value <= top:
                yield from self._see(value)
        for _ in range(4):
            least = self.least
            if least is None:
                return
            ordered = sorted(self.seen)
            at = ordered.index(least)
            gaps = [(ordered[i - 1], ordered[i]) for i in (at, at + 1) if 0 < i < len(ordered)]
            middles = [self.range.between(low, high) for low, high in gaps]
            for middle in middles:
                if middle is not None:
                    yield from self._see(middle)


class Nested(_Stepping):
    """An outer searcher over some knobs; for each of its points a bisection over the last one.

    The outer searcher is told the cheapest setting of the row that meets the target, or the one
    that comes closest. A row begins where the last one ended, and goes no further up than the
    cheapest setting so far costs.
    """

    def __init__(
        self, outer: Searcher, inner: Range, *, timed: bool = False, rows: int | None = None
    ) -> None:
        self.outer, self.inner, self.timed, self.rows = outer, inner, timed, rows
        self.monotone = True
        self._best = math.inf
        self._start: float | None = None
        super().__init__()

    def steps(self) -> Steps:
        """Row by row."""
        done = 0
        while self.rows is None or done < self.rows:
            point = self.outer.ask()
            if point is None:
                return
            row = Bisection(
                self.inner, start=self._start, bound=self._best, timed=self.timed, thorough=False
            )
            while (one := row.ask()) is not None:
                row.tell(one, (yield {**point, **one}))
            self.monotone = self.monotone and row.monotone
            self._learn(row)
            self.outer.tell(point, _best_of(row.seen.values()))
            done += 1

    def _learn(self, row: Bisection) -> None:
        least = row.least
        if least is not None and row.seen[least].cost < self._best:
            self._best, self._start = row.seen[least].cost, least


class Refined(_Stepping):
    """One outer knob: up in strides while that helps, then closer and closer around the best.

    More of a knob may cost more than all else together, so the far end of the range is looked at
    only where the way there gets better.
    """

    def __init__(self, one: Range, rounds: int = 3) -> None:
        self.range, self.rounds = one, rounds
        self.seen: dict[float, Outcome] = {}
        super().__init__()

    def steps(self) -> Steps:
        """Stride, then halve the gaps beside the best."""
        value: float | None = self.range.low
        while value is not None and self._helps():
            self.seen[value] = yield {self.range.name: value}
            value = self.range.above(value)
        for _ in range(self.rounds):
            ordered = sorted(self.seen)
            at = ordered.index(self._best())
            gaps = [(ordered[i - 1], ordered[i]) for i in (at, at + 1) if 0 < i < len(ordered)]
            for low, high in gaps:
                middle = self.range.between(low, high)
                if middle is not None and middle not in self.seen:
                    self.seen[middle] = yield {self.range.name: middle}

    def _best(self) -> float:
        return min(self.seen, key=lambda v: rank(self.seen[v]))

    def _helps(self) -> bool:
        """Whether one of the last two strides brought the best so far, or nothing changed yet."""
        if len({rank(outcome) for outcome in self.seen.values()}) < 2:
            return True
        return len(self.seen) < 3 or self._best() in sorted(self.seen)[-2:]


def rank(outcome: Outcome) -> tuple[bool, float, float]:
    """The order of outcomes, best first: those that meet the target by cost, others by how far.

    Of equal costs the better quality comes first.
    """
    if outcome.meets:
        return (False, outcome.cost, outcome.shortfall)
    return (True, outcome.shortfall, outcome.cost)


def _best_of(outcomes: Iterable[Outcome]) -> Outcome:
    return min(outcomes, key=rank)
