"""learn_stopping(): fit a stop rule, calibrate it, and try it on queries it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import codes_in, unify
from semrecall.errors import InputError
from semrecall.formats import vectors_of
from semrecall.measures import NoRelevant
from semrecall.registry import import_extra
from semrecall.splits import Split
from semrecall.splits import split as divide
from semrecall.stopping.calibration import (
    Calibration,
    calibrated,
    expected_bound,
    queries_needed,
)
from semrecall.stopping.result import COSTS, FIXED, LEARNED, ORACLE, Stopping, Way
from semrecall.stopping.rule import StoppingSystem, StopRule, checkpoints, identity
from semrecall.stopping.traces import Trace, trace
from semrecall.stopping.trees import fit_trees
from semrecall.systems import System, open_system
from semrecall.tuning import Evaluator, Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.data import Judgments, Run
    from semrecall.space import Space

__all__ = ["PARTS", "learn_stopping"]

#: Who fits, who calibrates, and on whom the rule is tried; shares where no split is given.
PARTS = {"fit": 0.4, "calibrate": 0.3, "test": 0.3}
#: With fewer queries than this a part says nothing.
_FEW = 5
#: Which share of the allowed shortfall is left to queries that the last round does not satisfy.
_TAIL = 0.25


def learn_stopping(
    system: str | System,
    queries: Any,
    target: str | Target,
    *,
    allowed: float = 0.02,
    truth: Run | None = None,
    judgments: Judgments | None = None,
    base: Any = None,
    space: str | Space | None = None,
    most: int | None = None,
    split: Split | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    k: int | None = None,
    query_ids: Any = None,
    no_relevant: NoRelevant = "skip",
    progress: Callable[[str], None] | None = None,
) -> Stopping:
    """Learn when each query of an index of lists has seen enough, and what that saves.

    system: a system that can be searched in rounds (faiss IVF), or its spec; built on `base` in
        `space` where it is not built yet.
    target: "srecall@100 >= 0.95": what every query is to reach, by a measure of shares.
    allowed: the expected shortfall of a query, max(0, target - its value), that is allowed.
    queries, query_ids, truth, judgments, base, k, no_relevant: as in `Evaluator`.
    most: lists visited at most; all when None.
    split: which queries "fit" the model, "calibrate" its threshold, and "test" the rule; else
        they are divided by `seed`, 40, 30 and 30%.

    Boosted trees say, after each round of lists, whether a query is likely to have reached the
    target; a search ends when they say more than a threshold, the earliest with which the
    expected shortfall of a new query is bounded by `allowed` (see `calibrated`). Compared are a
    fixed number of lists with the same bound, and the oracle, which ends each search after the
    first round in which nothing more is to be gained.

    Raises InputError for a measure that is no share, a system without rounds, and parts of fewer
    than five queries.
    """
    wanted = _checked(target, allowed)
    import_extra("sklearn", "stopping", "learning when to stop")
    built = _built(system, base, space)
    evaluator = Evaluator(
        queries, [wanted.measure], truth=truth, judgments=judgments, base=base, k=k,
        query_ids=query_ids, no_relevant=no_relevant,
    )  # fmt: skip
    parts = _parts(evaluator, split, seed)
    lists = _rounds(built, evaluator, most)
    learner = _Learner(evaluator, built, wanted, allowed, lists, seed, progress)
    return learner.learned(parts, confidence)


class _Learner:
    """Traces of the parts, and what is made of them."""

    def __init__(
        self,
        evaluator: Evaluator,
        system: System,
        target: Target,
        allowed: float,
        lists: tuple[int, ...],
        seed: int,
        progress: Callable[[str], None] | None,
    ) -> None:
        self.evaluator, self.system, self.target = evaluator, system, target
        self.allowed, self.lists, self.seed = allowed, lists, seed
        self.tell = progress or (lambda line: None)

    def learned(self, parts: dict[str, NDArray[np.int64]], confidence: float) -> Stopping:
        """The rule and its trial."""
        traces = {}
        for name, rows in parts.items():
            self.tell(f"searching {len(rows):,} queries to {name}, in {len(self.lists)} rounds")
            traces[name] = trace(self.evaluator, self.system, rows, self.lists)
            if len(traces[name]) < _FEW:
                raise InputError(
                    f"{len(traces[name])} queries with a value to {name}; expected at least {_FEW}",
                    hint="more queries with truth or judgments, or another split",
                )
        rule, calibration = self._rule(traces["fit"], traces["calibrate"])
        fixed = self._fixed(traces["fit"], traces["calibrate"])
        test = traces["test"]
        ways = {
            FIXED: self._searched(FIXED, self.system, {"nprobe": fixed[0]}, test.rows),
            LEARNED: self._searched(LEARNED, rule.on(self.system), {}, test.rows),
            ORACLE: self._oracle(test),
        }
        counts = {name: len(found) for name, found in traces.items()}
        return Stopping(
            target=self.target, allowed=self.allowed, rule=rule, calibration=calibration,
            fixed=fixed, ways=ways, parts=MappingProxyType(counts),
            left_out=sum(map(len, parts.values())) - sum(counts.values()),
            confidence=confidence, seed=self.seed, notes=tuple(self._notes(calibration, rule)),
        )  # fmt: skip

    def _rule(self, fit: Trace, calibrate: Trace) -> tuple[StopRule, Calibration]:
        """Trees by the fit part, their threshold by the calibrate part."""
        rounds = self._rounds(fit, len(calibrate))
        short = self._shortfall(fit.quality[:, :rounds])
        rows = fit.features[:, :rounds].reshape(-1, fit.features.shape[2])
        reached = (short <= 0).astype(np.float64)
        trees = fit_trees(rows, reached.reshape(-1), self.seed)
        # Searched as the rule will search: with other lists planned, a graph over centroids can
        # name other ones, and what the model was not calibrated on has no bound.
        seen = trace(self.evaluator, self.system, calibrate.rows, self.lists[:rounds])
        said = trees.predict(seen.features.reshape(-1, rows.shape[1]))
        losses = self._shortfall(seen.quality)
        found = calibrated(said.reshape(losses.shape), losses, self.allowed, self.target.value)
        about = {
            "allowed": self.allowed, "seed": self.seed, "fitted on": len(fit),
            "calibrated on": len(calibrate), "bound": found.bound, "system": self.system.spec,
        }  # fmt: skip
        rule = StopRule(
            str(self.target), self.evaluator.k, self.lists[:rounds], trees, found.threshold,
            MappingProxyType(identity(self.system)), MappingProxyType(about),
        )  # fmt: skip
        return rule, found

    def _rounds(self, fit: Trace, calibrating: int) -> int:
        """After how many rounds every search ends: hardly anything is gained by later ones.

        A few queries never satisfy the model, and all lists for each of them can cost more than
        is saved on all others. By the fit part alone, so that calibration holds.
        """
        spare = self.allowed - self.target.value / (calibrating + 1)
        means = self._shortfall(fit.quality).mean(axis=0)
        enough = means <= _TAIL * spare
        # Good from here on.
        return int(np.flatnonzero(~enough).max(initial=-1)) + 2 if enough[-1] else len(means)

    def _fixed(self, *traces: Trace) -> tuple[int, float]:
        """The fewest lists, the same for all queries, with the same bound, and that bound.

        It needs no fitting, so that it is calibrated on all these queries.
        """
        rows = np.concatenate([t.rows for t in traces])
        losses = self._shortfall(np.concatenate([t.quality for t in traces]))
        bounds = [expected_bound(column, self.target.value) for column in losses.T]
        fitting = np.array(bounds) <= self.allowed + 1e-12
        # Good from here on: in no later round the bound is exceeded again.
        good = np.flatnonzero(~fitting)[-1] + 1 if not fitting.all() else 0
        if good == len(self.lists):
            return self.lists[-1], bounds[-1]
        low, high = (self.lists[good - 1] if good else 0), self.lists[good]
        bound = bounds[good]
        while high - low > 1:
            middle = (low + high) // 2
            measured = self.evaluator.measure(self.system, {"nprobe": middle}, rows)
            there = expected_bound(
                self._shortfall(measured.values[self.target.name]), self.target.value
            )
            if there <= self.allowed + 1e-12:
                high, bound = middle, there
            else:
                low = middle
        return high, bound

    def _searched(
        self, name: str, system: System, settings: dict[str, Any], rows: NDArray[np.int64]
    ) -> Way:
        """A way as it is really searched and counted."""
        measured = self.evaluator.measure(system, settings, rows)
        quality = measured.values[self.target.name]
        unknown = np.full(len(rows), np.nan)
        costs = {cost: measured.costs.get(cost, unknown) for cost in COSTS}
        lists = np.full(len(rows), float(settings.get("nprobe", np.nan)))
        looks = np.zeros(len(rows))
        if isinstance(system, StoppingSystem):
            asked = np.asarray(self.evaluator.asked(rows).require_matrix(), dtype=np.float32)
            rounds, seen = system.run(asked, self.evaluator.k)
            lists, looks = rounds.visited.astype(np.float64), seen.astype(np.float64)
        return Way(name, quality, self._shortfall(quality), costs, lists, looks)

    def _oracle(self, test: Trace) -> Way:
        """After the first round of each query in which it falls short as little as it ever does."""
        short = self._shortfall(test.quality)
        at = short.argmin(axis=1)
        every = np.arange(len(test))
        costs = {cost: figures[every, at] for cost, figures in test.costs.items()}
        lists = np.array(self.lists, dtype=np.float64)[at]
        return Way(
            ORACLE, test.quality[every, at], short[every, at], costs, lists, np.zeros(len(test))
        )

    def _shortfall(self, quality: NDArray[np.float64]) -> NDArray[np.float64]:
        # A value that is the target but for its last bits is no shortfall.
        short = self.target.value - quality
        return np.where(short > 1e-12, short, 0.0)

    def _notes(self, found: Calibration, rule: StopRule) -> list[str]:
        if found.bound <= self.allowed + 1e-12:
            return []
        needed = queries_needed(found.loss, self.allowed, self.target.value)
        said = f"the expected shortfall cannot be bounded by {self.allowed:g}: "
        if needed is not None:
            return [
                said + f"that takes at least {needed:,} queries that calibrate, and there are "
                f"{found.n:,}; the rule stops no search before its last round"
            ]
        said += (
            f"with {rule.lists[-1]:,} lists visited it is {found.loss:.4f} on the {found.n:,} "
            "queries that calibrate; "
        )
        if rule.lists[-1] < self.lists[-1]:
            return [said + "they are harder than those that fit: more queries of both would help"]
        return [said + "what is lost with all lists visited is lost by the codes"]


def _checked(target: str | Target, allowed: float) -> Target:
    wanted = Target.read(target)
    if wanted.measure.lower_is_better or wanted.value > 1:
        raise InputError(
            f"{wanted.measure} is no share of what there is to find",
            hint="stop by recall, srecall, trecall, or another measure from 0 to 1",
        )
    if not 0 < allowed < wanted.value:
        raise InputError(
            f"allowed is {allowed:g}; expected a shortfall above 0 and below {wanted.value:g}"
        )
    return wanted


def _built(system: str | System, base: Any, space: str | Space | None) -> System:
    opened = open_system(system) if isinstance(system, str) else system
    if opened.built:
        return opened
    if base is None or space is None:
        raise InputError(f"{opened.spec!r} has to be built", hint="give base and space")
    return opened.build(vectors_of(base), space)


def _rounds(system: System, evaluator: Evaluator, most: int | None) -> tuple[int, ...]:
    """How many lists are visited after each round. InputError for a system without rounds."""
    probe = next((knob for knob in system.knobs if knob.name == "nprobe"), None)
    if probe is None:
        # The system says itself why not.
        system.rounds(evaluator.matrix[:1], evaluator.k)
        raise InputError(f"{system.spec} has no knob nprobe, the number of lists to visit")
    limit = int(probe.high if most is None else probe.check(most))
    system.rounds(evaluator.matrix[:1], evaluator.k, nprobe=limit)
    return checkpoints(limit)


def _parts(evaluator: Evaluator, split: Split | None, seed: int) -> dict[str, NDArray[np.int64]]:
    """Rows of the queries of each part; none is in two."""
    if split is None:
        first = divide(evaluator.queries, 1 - PARTS["test"], seed=seed)
        learning = first.part("dev") if "dev" in first.parts else evaluator.queries[:0]
        share = PARTS["fit"] / (1 - PARTS["test"])
        second = dict(
            zip(learning, divide(learning, share, seed=seed + 1).parts, strict=True)
        )  # fmt: skip
        names = {"dev": "fit", "test": "calibrate"}
        split = Split(
            evaluator.queries,
            tuple(names.get(second.get(query, ""), "test") for query in evaluator.queries),
        )
    found = {}
    for name in PARTS:
        if name not in split.parts:
            raise InputError(
                f"no query is there to {name}",
                hint=f"a split for stopping has the parts {', '.join(PARTS)}",
            )
        wanted, known = unify(split.part(name), evaluator.queries)
        found[name] = np.flatnonzero(codes_in(known, wanted) >= 0)
    return found
