"""Explore: from systems and ranges to the searcher that fits, and one search from start to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semrecall.errors import InputError
from semrecall.registry import did_you_mean
from semrecall.systems import System
from semrecall.tuning.racing import Outcome, Race
from semrecall.tuning.ranges import Range, Setting, ranges_of
from semrecall.tuning.searchers import Bisection, Grid, Nested, Random, Refined, Searcher
from semrecall.tuning.tpe import TPE
from semrecall.tuning.vizier import Vizier

__all__ = ["SEARCHERS", "Branch", "Plan", "branches_of", "explore"]

SEARCHERS = {
    "auto": "bisection of one knob; for each further one a search around it, or TPE",
    "bisection": "the least value of one knob that meets the target",
    "grid": "values spread over all knobs",
    "tpe": "Optuna's tree-structured Parzen estimators over all knobs at once",
    "random": "points at random",
    "vizier": "Google Vizier, in an environment of its own",
}


@dataclass(frozen=True)
class Branch:
    """What is tuned of one system: ranges of build knobs and of search knobs."""

    label: str
    build: tuple[Range, ...]
    search: tuple[Range, ...]

    @property
    def free(self) -> list[Range]:
        """Those with more than one value, build knobs first."""
        return [one for one in (*self.build, *self.search) if not one.single]

    @property
    def main(self) -> Range:
        """The search knob that is bisected: the first that trades quality for cost in steps."""
        free = [one for one in self.search if not one.single]
        free = [one for one in free if one.ordered] or free
        return next((one for one in free if one.scale == "log" and one.whole), free[0])

    def setting(self, point: Mapping[str, Any]) -> Setting:
        """The setting of a point; knobs with a single value have that."""
        build = {one.name: point.get(one.name, one.low) for one in self.build}
        search = {one.name: point.get(one.name, one.low) for one in self.search}
        return Setting(self.label, tuple(build.items()), tuple(search.items()))


@dataclass(frozen=True)
class Plan:
    """How the space is searched.

    searcher: one of SEARCHERS. trials: how many settings at most. builds: how many builds.
    """

    branches: tuple[Branch, ...]
    searcher: str = "auto"
    trials: int = 100
    builds: int = 12
    seed: int = 0
    timed: bool = False

    def __post_init__(self) -> None:
        if self.searcher not in SEARCHERS:
            raise InputError(
                f"unknown searcher {self.searcher!r}", hint=did_you_mean(self.searcher, SEARCHERS)
            )
        for name in ("trials", "builds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected at least 1")

    def searchers(self) -> list[tuple[tuple[Branch, ...], Searcher]]:
        """Searchers to run one after another, each with the branches its points are of."""
        ranges = {branch.label: branch.free for branch in self.branches}
        if self.searcher == "tpe":
            return [(self.branches, TPE(ranges, seed=self.seed))]
        if self.searcher == "random":
            return [(self.branches, Random(ranges, self.seed))]
        if self.searcher == "vizier":
            if len(self.branches) > 1:
                raise InputError(
                    "Vizier's algorithm knows no conditional spaces: one system at a time",
                    hint="tpe tunes several systems at once",
                )
            return [(self.branches, Vizier(self.branches[0].free, seed=self.seed))]
        return [((branch,), self._one(branch)) for branch in self.branches]

    def _one(self, branch: Branch) -> Searcher:
        free = branch.free
        if self.searcher == "bisection" and (len(free) > 1 or not branch.main.ordered):
            names = ", ".join(one.name for one in free)
            raise InputError(
                f"bisection is of one knob; found {names}",
                hint="give the others one value each, or take another searcher",
            )
        if self.searcher == "grid" or not [one for one in branch.search if not one.single]:
            return Grid(free, self._counts(free))
        main = branch.main
        if not main.ordered:
            return Grid(free, [len(one.listed) for one in free])
        others = [one for one in free if one != main]
        if not others:
            return Bisection(main, timed=self.timed)
        if len(others) == 1 and others[0].kind == "search":
            outer: Searcher = Refined(others[0])
            if not others[0].ordered:
                outer = Grid(others, [len(others[0].listed)])
            return Nested(outer, main, timed=self.timed)
        outer = TPE({branch.label: others}, seed=self.seed, startup=max(3, self.builds // 4))
        rows = self.builds if any(one.kind == "build" for one in others) else self.trials
        return Nested(outer, main, timed=self.timed, rows=rows)

    def _counts(self, free: Sequence[Range]) -> list[int]:
        """Values of each knob in a grid of at most so many trials and builds, but two of each."""

        def each(points: float, kind: str) -> int:
            several = sum(one.kind == kind for one in free)
            return max(2, int(points ** (1 / several) + 1e-9)) if several else 1

        outer = each(min(self.builds, self.trials), "build")
        made = outer ** sum(one.kind == "build" for one in free)
        inner = each(self.trials / made, "search")
        return [outer if one.kind == "build" else inner for one in free]


def branches_of(
    systems: Mapping[str, System],
    search: Mapping[str, Any] | None,
    build: Mapping[str, Any] | None,
    k: int = 1,
) -> tuple[Branch, ...]:
    """What is tuned of each system; InputError where that is nothing. k: results per query.

    search: ranges by name; without them, all search knobs on a logarithmic scale (those that
    trade quality for cost), or else all. A knob applies to the systems that have it.
    """
    found = []
    for label, system in systems.items():
        names = {knob.name for knob in system.knobs}
        own = _own(search, names, len(systems))
        builds = ranges_of(system, "build", _own(build, names, len(systems)) or {})
        searches = ranges_of(system, "search", own, k)
        if own is None:
            searches = [one for one in searches if one.scale == "log"] or searches
        if not (builds or searches):
            raise InputError(
                f"{label} has no search knob: there is nothing to tune",
                hint="`semrecall search` and `semrecall score` measure it as it is",
            )
        found.append(Branch(label, tuple(builds), tuple(searches)))
    for name in (*(search or ()), *(build or ())):
        known = {knob.name for system in systems.values() for knob in system.knobs}
        if name not in known:
            raise InputError(f"no system has a knob {name!r}", hint=did_you_mean(name, known))
    return tuple(found)


def _own(given: Mapping[str, Any] | None, names: set[str], systems: int) -> dict[str, Any] | None:
    """Of several systems each takes the knobs that it has, or its own; one alone has them all."""
    if given is None:
        return None
    if systems == 1:
        return dict(given)
    return {name: value for name, value in given.items() if name in names} or None


def explore(plan: Plan, race: Race, judged: Callable[[Setting], Outcome] | None = None) -> bool:
    """Run the searchers of a plan; whether all that was seen is monotone.

    judged: what a searcher is told of a setting; the race's own view of it when None.
    """
    tell, monotone = judged or race, True
    for branches, searcher in plan.searchers():
        by_label = {branch.label: branch for branch in branches}
        only = branches[0].label if len(branches) == 1 else None
        # A small space is soon seen whole: points that are known cost nothing, but have an end.
        for _ in range(5 * plan.trials):
            point = None if race.spent else searcher.ask()
            if point is None:
                break
            branch = by_label[only or point["system"]]
            searcher.tell(point, tell(branch.setting(point)))
        monotone = monotone and getattr(searcher, "monotone", True)
    return monotone


def labels(systems: Sequence[System]) -> dict[str, System]:
    """Systems by their specs, numbered where two have one."""
    found: dict[str, System] = {}
    for system in systems:
        name = system.spec or type(system).__name__
        unique, again = name, 2
        while unique in found:
            unique, again = f"{name}#{again}", again + 1
        found[unique] = system
    return found
