"""sweep(): quality against cost over the settings of one system or several."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.slices import SN, Slice, column_slices
from semrecall.errors import InputError
from semrecall.measures import Measure, NoRelevant, parse
from semrecall.registry import did_you_mean
from semrecall.stats import t_interval
from semrecall.systems import System
from semrecall.tuning.evaluator import Evaluator, Measured
from semrecall.tuning.exploring import branches_of
from semrecall.tuning.front import cost_estimate, pareto
from semrecall.tuning.guard import require_effect
from semrecall.tuning.objectives import Objective, objective
from semrecall.tuning.racing import Trial
from semrecall.tuning.ranges import Setting
from semrecall.tuning.target import Estimate, estimate, mean_of
from semrecall.tuning.tuner import default_objective, ready

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.data import Judgments, Run
    from semrecall.space import Space

__all__ = ["At", "Row", "Sweep", "sweep"]


@dataclass(frozen=True)
class Row:
    """One setting, over all queries or over a group of them.

    column, group: "" for all queries. cost: as it is shown.
    """

    setting: Setting
    column: str
    group: str
    queries: int
    measures: Mapping[str, Estimate]
    cost: Estimate


@dataclass(frozen=True)
class At:
    """A system at a given cost, or at a given quality, between two of its settings.

    value: the measure at that cost, or the cost at that quality, with an interval.
    change: less the first system's, paired over queries; for costs as a share of the first's.
        None for the first system itself.
    between: the settings on either side. reason: why there is no value.
    cheapest: what the cheapest setting costs, where that is already better than the quality asked
        for, so that the cost at that quality is this or less.
    """

    system: str
    measure: str
    value: Estimate | None
    change: Estimate | None = None
    between: tuple[Setting, ...] = ()
    reason: str = ""
    cheapest: Estimate | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """Made by `sweep`: every setting of every system, query by query.

    curves: by system its settings in the order of the sweep, measured on all queries.
    """

    curves: Mapping[str, tuple[tuple[Setting, Measured], ...]]
    measures: tuple[Measure, ...]
    objective: Objective
    slices: Mapping[str, Slice]
    queries: int
    confidence: float = 0.95
    seed: int = 0
    notes: tuple[str, ...] = ()

    def rows(self, by: str | None = None) -> list[Row]:
        """Every setting over all queries, or over each group of a slice."""
        part = None if by is None else self._slice(by)
        groups: list[tuple[str, Any]] = [("", slice(None))]
        if part is not None:
            groups = [(group, np.flatnonzero(part.mask(group))) for group in part.groups]
        return [
            self._row(setting, measured, by or "", group, chosen)
            for points in self.curves.values()
            for group, chosen in groups
            for setting, measured in points
        ]

    def at_cost(self, cost: float, measures: Iterable[str] = ()) -> list[At]:
        """Every system's measures at one cost, by interpolation between its settings.

        cost: as it is shown, e.g. bytes, seconds or queries a second. Interpolated query by
        query, linearly in the logarithm of the cost between neighbours on the system's front, so
        that differences between systems are paired.
        """
        names = [str(parse(m)) for m in measures] or [str(m) for m in self.measures]
        wanted = 1 / cost if self.objective.rate else cost
        if not (cost > 0 and math.isfinite(cost)):
            raise InputError(f"the cost is {cost}; expected a number above 0")
        found = []
        for name in names:
            first: NDArray[np.float64] | None = None
            for system in self.curves:
                points = self._front(system, name)
                place = _between([p.cost for p in points], wanted)
                if place is None and points and points[-1].cost < wanted <= self._dearest(system):
                    # What costs more on this curve brings nothing more.
                    place = (len(points) - 1, len(points) - 1), 0.0
                if place is None:
                    reason = _beyond(points, wanted, self.objective)
                    found.append(At(system, name, None, reason=reason))
                    continue
                at, share = place
                values = _blend([points[i].values for i in at], share)
                found.append(self._at(system, name, values, first, [points[i] for i in at]))
                first = values if first is None else first
        return found

    def at_quality(self, measure: str, value: float) -> list[At]:
        """Every system's cost at one quality, by interpolation between its settings."""
        name = str(parse(measure))
        if name not in [str(m) for m in self.measures]:
            raise InputError(f"{name} was not measured", hint=did_you_mean(
                name, [str(m) for m in self.measures]))  # fmt: skip
        lower = parse(name).lower_is_better
        found: list[At] = []
        first: NDArray[np.float64] | None = None
        for system in self.curves:
            points = self._front(system, name)
            quality = [-mean_of(p.values) if lower else mean_of(p.values) for p in points]
            place = _between(quality, -value if lower else value, log=False)
            if place is None and quality and quality[0] > (-value if lower else value):
                found.append(self._cheaper(system, name, points[0]))
                continue
            if place is None:
                found.append(At(system, name, None, reason=_unreached(quality, value, lower)))
                continue
            at, share = place
            costs = _blend([points[i].costs for i in at], share)
            found.append(self._cost_at(system, name, costs, first, [points[i] for i in at]))
            first = costs if first is None else first
        return found

    def to_dict(self) -> dict[str, Any]:
        """All rows as plain mappings."""
        from semrecall.tuning.sweep_text import sweep_document

        return sweep_document(self)

    def __str__(self) -> str:
        from semrecall.tuning.sweep_text import sweep_text

        return sweep_text(self)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(points)}" for name, points in self.curves.items())
        return f"Sweep({sizes} settings, {self.queries:,} queries)"

    def to_html(self, path: str | Path, **options: Any) -> None:
        """Write one self-contained HTML file; options as in `report.sweep.write_sweep`."""
        import importlib

        importlib.import_module("semrecall.report.sweep").write_sweep(self, path, **options)

    # -- inside -----------------------------------------------------------------------------

    def _slice(self, name: str) -> Slice:
        if name not in self.slices:
            raise InputError(
                f"the sweep has no slices by {name!r}", hint=did_you_mean(name, self.slices)
            )
        return self.slices[name]

    def _row(
        self, setting: Setting, measured: Measured, column: str, group: str, chosen: Any
    ) -> Row:
        figures = {n: c[chosen] for n, c in measured.costs.items()}
        part = Measured(measured.rows[chosen], {}, figures)
        found = {str(m): self._estimate(m, measured.values[str(m)][chosen]) for m in self.measures}
        cost = cost_estimate(part, self.objective, confidence=self.confidence, seed=self.seed)
        return Row(setting, column, group, len(part), found, cost)

    def _estimate(self, measure: Measure, values: NDArray[np.float64]) -> Estimate:
        return estimate(
            values, share=measure.zero_or_one, confidence=self.confidence, seed=self.seed
        )

    def _dearest(self, system: str) -> float:
        return max(measured.cost(self.objective) for _, measured in self.curves[system])

    def _front(self, system: str, measure: str) -> list[_OnFront]:
        """The settings of a system that none of its own beats, cheapest first."""
        points = self.curves[system]
        sign = -1 if parse(measure).lower_is_better else 1
        quality = [sign * mean_of(m.values[measure]) for _, m in points]
        cost = [m.cost(self.objective) for _, m in points]
        return [
            _OnFront(
                points[i][0], cost[i], points[i][1].values[measure],
                points[i][1].costs[self.objective.column],
            )
            for i in pareto(quality, cost)
        ]  # fmt: skip

    def _at(
        self,
        system: str,
        measure: str,
        values: NDArray[np.float64],
        first: NDArray[np.float64] | None,
        beside: Sequence[_OnFront],
    ) -> At:
        value = estimate(values, confidence=self.confidence, seed=self.seed)
        change = None
        if first is not None:
            apart = values - first
            low, high = t_interval(apart, confidence=self.confidence)
            change = Estimate(mean_of(apart), low, high, int((~np.isnan(apart)).sum()))
        return At(system, measure, value, change, tuple(p.setting for p in beside))

    def _cheaper(self, system: str, measure: str, point: _OnFront) -> At:
        """Of a system whose cheapest setting has more than the quality asked for."""
        reached = mean_of(point.values)
        return At(
            system, measure, None, between=(point.setting,),
            reason=f"already {reached:.4g} at its cheapest",
            cheapest=self._cost_at(system, measure, point.costs, None, [point]).value,
        )  # fmt: skip

    def _cost_at(
        self,
        system: str,
        measure: str,
        costs: NDArray[np.float64],
        first: NDArray[np.float64] | None,
        beside: Sequence[_OnFront],
    ) -> At:
        part = Measured(np.arange(len(costs)), {}, {self.objective.column: costs})
        value = cost_estimate(part, self.objective, confidence=self.confidence, seed=self.seed)
        change = None
        if first is not None and self.objective.percentile is None and not self.objective.rate:
            ratio = mean_of(costs) / mean_of(first)
            linear = ratio - 1 + (costs - ratio * first) / mean_of(first)
            low, high = t_interval(linear, confidence=self.confidence)
            change = Estimate(ratio - 1, low, high, len(costs))
        return At(system, measure, value, change, tuple(p.setting for p in beside))


def sweep(
    system: str | System | Sequence[str | System],
    queries: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    settings: Mapping[str, Any] | None = None,
    points: int = 9,
    minimize: str | None = None,
    truth: Run | None = None,
    judgments: Judgments | None = None,
    base: Any = None,
    space: str | Space | None = None,
    columns: Any = None,
    by: str | Sequence[str] = (),
    filters: Sequence[Any] | Mapping[Any, Any] | None = None,
    texts: Sequence[str] | Mapping[Any, str] | None = None,
    k: int | None = None,
    query_ids: Any = None,
    no_relevant: NoRelevant = "skip",
    seed: int = 0,
    confidence: float = 0.95,
    progress: Callable[[str], None] | None = None,
) -> Sweep:
    """Measure systems over a range of settings: quality against cost.

    system: a system or a spec, or several; one that is not built is built on `base` in `space`.
    measures: e.g. ["recall@100", "srecall@100", "trecall@100"].
    settings: values of search knobs by name: a list, or a range (low, high) that is spread by the
        scale of the knob over at most `points` values. Every combination is searched; each system
        takes the knobs that it has. Without them, the main knob of each system is spread over all
        it can be, up to where more changes nothing.
    minimize: the cost, as in `tune`.
    columns, by: columns of the queries to slice by (e.g. the selectivity of their filter); "sn"
        is the number of semantic neighbours.
    queries, truth, judgments, base, filters, texts, k, query_ids, no_relevant: as in `Evaluator`.

    Raises InputError where the lowest and the highest setting of a system do the same.
    """
    if points < 2:
        raise InputError(f"points is {points}; expected at least 2")
    with ExitStack() as own:
        systems = ready(system, base, space, None, own)
        evaluator = Evaluator(
            queries, measures, truth=truth, judgments=judgments, base=base, query_ids=query_ids,
            k=k, filters=filters, texts=texts, no_relevant=no_relevant,
        )  # fmt: skip
        first = next(iter(systems.values()))
        chosen = objective(minimize) if minimize else default_objective(evaluator, first)
        sweeping = _Sweeping(evaluator, chosen, points, progress)
        curves = {
            name: tuple(sweeping.curve(name, one, settings, systems))
            for name, one in systems.items()
        }
    names = [by] if isinstance(by, str) else list(by)
    slices = {part.column: part for part in _slices(evaluator, columns, names)}
    return Sweep(
        curves, tuple(evaluator.measures), chosen, slices, len(evaluator), confidence, seed
    )


@dataclass(frozen=True, eq=False)
class _OnFront:
    """A setting on the front of its system: mean cost, and values and costs of every query."""

    setting: Setting
    cost: float
    values: NDArray[np.float64]
    costs: NDArray[np.float64]


@dataclass(frozen=True)
class _Sweeping:
    """How one system after the other is searched."""

    evaluator: Evaluator
    objective: Objective
    points: int
    progress: Callable[[str], None] | None

    def curve(
        self,
        name: str,
        system: System,
        settings: Mapping[str, Any] | None,
        systems: Mapping[str, System],
    ) -> list[tuple[Setting, Measured]]:
        """Every setting of one system, measured; refused where the knob does nothing."""
        found: list[tuple[Setting, Measured]] = []
        grid, open_ended = self._grid(name, system, settings, systems)
        for setting in grid:
            measured = self.evaluator.measure(
                system, dict(setting.search), timed=self.objective.timed
            )
            if self.objective.column not in measured.costs:
                objective(self.objective.name, measured.costs.keys(), name)
            if self.progress is not None:
                self.progress(f"{name}: {setting}")
            found.append((setting, measured))
            if open_ended and _flat(found):
                break
        trials = [Trial(s, m, full=True, first=m.digest) for s, m in found]
        if len(trials) > 1:
            require_effect(
                trials, self.objective, str(self.evaluator.measures[0]), lambda: system,
                lambda setting: self._again(system, setting),
            )  # fmt: skip
        return found

    def _again(self, system: System, setting: Setting) -> float:
        found = self.evaluator.measure(system, dict(setting.search), timed=self.objective.timed)
        return found.cost(self.objective)

    def _grid(
        self,
        name: str,
        system: System,
        settings: Mapping[str, Any] | None,
        systems: Mapping[str, System],
    ) -> tuple[Iterator[Setting], bool]:
        """The settings of a system, and whether they go on until nothing changes."""
        if not any(knob.kind == "search" for knob in system.knobs):
            return iter([Setting(name)]), False
        turned = {n: s for n, s in systems.items() if any(k.kind == "search" for k in s.knobs)}
        branch = next(
            b for b in branches_of(turned, settings, None, self.evaluator.k) if b.label == name
        )
        if settings is None:
            main = branch.main
            values = main.spread(2 * self.points)
            return iter([Setting(name, (), ((main.name, v),)) for v in values]), True
        spread = [one.listed or one.spread(self.points) for one in branch.search]
        names = [one.name for one in branch.search]
        return (
            Setting(name, (), tuple(zip(names, values, strict=True)))
            for values in itertools.product(*spread)
        ), False


def _flat(found: Sequence[tuple[Setting, Measured]]) -> bool:
    """Whether the last setting found what the one before did, and others had found less."""
    digests = [measured.digest for _, measured in found]
    return len(set(digests)) > 1 and digests[-1] == digests[-2]


def _slices(evaluator: Evaluator, columns: Any, names: Sequence[str]) -> list[Slice]:
    made = column_slices(columns, [n for n in names if n != SN], evaluator.queries)
    if SN in names:
        if evaluator.semantic is None:
            raise InputError(
                "slices by sn, the number of semantic neighbours, need truth and judgments"
            )
        made.append(evaluator.semantic.slice())
    return made


def _between(
    values: Sequence[float], wanted: float, *, log: bool = True
) -> tuple[tuple[int, int], float] | None:
    """Positions on either side of a value in a rising list, and how far along; None outside."""
    if not values or not values[0] <= wanted <= values[-1]:
        return None
    after = next(i for i, value in enumerate(values) if value >= wanted)
    if values[after] == wanted:
        return (after, after), 0.0
    low, high = values[after - 1], values[after]
    if log:
        return (after - 1, after), math.log(wanted / low) / math.log(high / low)
    return (after - 1, after), (wanted - low) / (high - low)


def _blend(pair: Sequence[NDArray[np.float64]], share: float) -> NDArray[np.float64]:
    return np.asarray((1 - share) * pair[0] + share * pair[1])


def _beyond(points: Sequence[_OnFront], wanted: float, objective: Objective) -> str:
    if not points:
        return "no setting has this measure"
    edge = points[0] if wanted < points[0].cost else points[-1]
    side = "cheapest" if edge is points[0] else "dearest"
    cost = f"{objective.name} {objective.shown(edge.cost):,.6g}"
    return f"outside its curve: the {side} setting has {cost}"


def _unreached(quality: Sequence[float], value: float, lower: bool) -> str:
    if not quality or all(math.isnan(q) for q in quality):
        return "no setting has this measure"
    edges = (-quality[0], -quality[-1]) if lower else (quality[0], quality[-1])
    return f"outside its curve, which goes from {edges[0]:.4g} to {edges[1]:.4g}"
