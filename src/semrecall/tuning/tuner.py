"""tune(): the cheapest setting that meets a target, chosen on one half, confirmed on the other."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import codes_in, unify
from semrecall.errors import InputError, SemrecallWarning, Stopped
from semrecall.formats import vectors_of
from semrecall.measures import Measure, NoRelevant, parse_all
from semrecall.splits import DEV, TEST, Split
from semrecall.splits import split as divide
from semrecall.systems import System, open_in, parse_spec
from semrecall.text import plural
from semrecall.tuning.against import baseline_of, savings
from semrecall.tuning.evaluator import Evaluator, Measured
from semrecall.tuning.exploring import Plan, branches_of, explore, labels
from semrecall.tuning.front import Point, cost_estimate, pareto
from semrecall.tuning.guard import require_effect
from semrecall.tuning.objectives import COUNTERS, Objective, objective
from semrecall.tuning.racing import Race, Trial, within
from semrecall.tuning.ranges import Setting, ranges_of
from semrecall.tuning.result import Choice, Tuning
from semrecall.tuning.searchers import rank
from semrecall.tuning.target import Estimate, Target, estimate
from semrecall.tuning.trials import Trials

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.data import Judgments, Run
    from semrecall.space import Space

__all__ = ["default_objective", "ready", "tune"]


def tune(
    system: str | System | Sequence[str | System],
    queries: Any,
    target: str | Target,
    *,
    minimize: str | None = None,
    truth: Run | None = None,
    judgments: Judgments | None = None,
    base: Any = None,
    space: str | Space | None = None,
    search: Mapping[str, Any] | None = None,
    build: Mapping[str, Any] | None = None,
    measures: str | Measure | Iterable[str | Measure] = (),
    against: str | None = None,
    split: Split | None = None,
    dev: float = 0.5,
    choose: str = "mean",
    searcher: str = "auto",
    trials: int = 100,
    builds: int = 12,
    racing: bool = True,
    store: str | Path | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    k: int | None = None,
    query_ids: Any = None,
    filters: Sequence[Any] | Mapping[Any, Any] | None = None,
    texts: Sequence[str] | Mapping[Any, str] | None = None,
    no_relevant: NoRelevant = "skip",
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Find the cheapest setting whose mean meets a target, and confirm it on queries held out.

    system: a system or a spec, or several, which are then compared by cost. One that is not built
        is built on `base` in `space`.
    queries, query_ids, filters, texts, truth, judgments, base, k, no_relevant: as in `Evaluator`.
    target: "srecall@100 >= 0.98", "rde@100 <= 1%"; any measure.
    minimize: a name of OBJECTIVES; None takes bytes read, else distance computations, else mean
        latency: the first that the system tells.
    search, build: ranges of knobs by name: (low, high), a list, or a value. Without `search`, all
        search knobs that trade quality for cost are tuned. A build serves all its search settings.
    measures: more measures to show. against: "recall" (or a measure): also find what tuning for
        the target's measure, and for `measures`, saves against tuning for this one.
    split: which queries choose ("dev") and which confirm ("test"); else a share `dev` of them
        chooses, divided by `seed`.
    choose: "mean", the development mean meets the target; "bound", its interval does.
    searcher: one of SEARCHERS. trials, builds: at most so many settings and builds.
    racing: hopeless settings are dropped before all queries were asked.
    store: a file that keeps finished trials; the same call goes on where one was stopped.

    Raises InputError for what cannot be tuned, and Stopped where the system or the store failed on
    the way.
    """
    if choose not in ("mean", "bound"):
        raise InputError(f"choose is {choose!r}; expected 'mean' or 'bound'")
    wanted = Target.read(target)
    shown = _measures(wanted, measures, against)
    with _resumable() as kept, ExitStack() as own:
        systems = ready(system, base, space, build, own)
        with ExitStack() as looked_at:
            samples = {
                name: _sample(one, base, space, build, looked_at) for name, one in systems.items()
            }
            evaluator = Evaluator(
                queries, shown, truth=truth, judgments=judgments, base=base, query_ids=query_ids,
                k=k, filters=filters, texts=texts, no_relevant=no_relevant,
            )  # fmt: skip
            branches = branches_of(samples, search, build, evaluator.k)
            development, held_out = _parts(evaluator, split, dev, seed)
            trials_kept = Trials(store, _identity(evaluator, systems, base))
            kept.append(trials_kept)
            minimized = _minimized(minimize, evaluator, samples)
        # What was built to be looked at goes before others are built.
        del samples
        plan = Plan(branches, searcher, trials, builds, seed, minimized.timed)
        race = Race(
            evaluator, systems, wanted, minimized, trials_kept, development,
            builder=_builder(systems, base, space), racing=racing, seed=seed,
            confidence=confidence, limit=trials, progress=progress,
        )  # fmt: skip
        own.callback(race.close)
        return _Tuner(race, plan, held_out, choose, baseline_of(against, wanted)).tuned()


def ready(
    system: str | System | Sequence[str | System],
    base: Any,
    space: str | Space | None,
    build: Mapping[str, Any] | None,
    own: ExitStack,
) -> dict[str, System]:
    """Systems by label, built where no build knobs are to be tuned.

    own: closes, at its end, those that were opened or built here.
    """
    given = [system] if isinstance(system, str | System) else list(system)
    if not given:
        raise InputError("no system to tune; expected at least one")
    opened = []
    for one in given:
        opened.append(_opened(one, base, space) if isinstance(one, str) else one)
        if isinstance(one, str):
            own.callback(opened[-1].close)
    found = labels(opened)
    if build:
        for one in opened:
            _require_room(one, build)
        return found
    return {name: _built(one, base, space, {}, own) for name, one in found.items()}


def _require_room(system: System, build: Mapping[str, Any]) -> None:
    """InputError where builds would have to go, one after another, to one name in a database."""
    names = {knob.name for knob in system.knobs if knob.kind == "build"}
    if system.buildable and system.named and not system.replace and names & build.keys():
        raise InputError(
            f"{system.spec or type(system).__name__}: tuning build knobs makes one build after "
            f"another, and only one can be called {system.named!r}",
            hint="leave the name out, so that each build gets one of its own and is dropped after "
            "its trials; or say replace=true, so that each replaces the one before",
        )


def _opened(spec: str, base: Any, space: str | Space | None) -> System:
    """The system of a spec; a saved index learns its space, and the ids of the base it was of."""
    _, options = parse_spec(spec)
    system = open_in(spec, space)
    if "index" in options and not system.named and system.built and base is not None:
        return system.build(vectors_of(base), space or system.space)
    return system


def _minimized(name: str | None, evaluator: Evaluator, systems: Mapping[str, System]) -> Objective:
    """What is made small: as asked, or the first that a built system tells."""
    built = next((system for system in systems.values() if system.built), None)
    if name is None and built is not None:
        return default_objective(evaluator, built)
    # Where build knobs are tuned nothing is built yet: the first trial tells whether it is counted.
    return objective(name or "bytes_read")


def default_objective(evaluator: Evaluator, system: System) -> Objective:
    """The first counter that the system tells, else mean latency."""
    _, cost = evaluator.search(system, {}, evaluator.rows[:4])
    for name in COUNTERS:
        figures = getattr(cost, name)
        if figures is not None and not np.isnan(figures).all():
            return objective(name)
    return objective("latency_seconds")


class _Tuner:
    """One tuning: explore, choose, confirm."""

    def __init__(
        self,
        race: Race,
        plan: Plan,
        held_out: NDArray[np.int64],
        choose: str,
        against: Measure | None,
    ) -> None:
        self.race, self.plan, self.held_out = race, plan, held_out
        self.choose, self.against = choose, against

    def tuned(self) -> Tuning:
        """The result."""
        race, target = self.race, self.race.target
        race.sure = self.choose == "bound"
        monotone = explore(self.plan, race)
        self._guard()
        best = self._best()
        reached = race.outcome(best).meets
        self._require_defined(best)
        choice = self._confirmed(best)
        # Now, as the system that is built is that of the choice.
        snippet = self._snippet(best.setting)
        verdict = "unreachable"
        if reached:
            verdict = "met" if target.met(choice.held_out.mean) else "not met"
        safe = self._safe() if verdict == "not met" and not race.sure else None
        spent, race.sure = race.spent, False
        saved = (
            () if self.against is None else savings(race, self.plan, self.held_out, self.against)
        )
        return Tuning(
            target=target,
            objective=race.objective,
            choice=choice,
            verdict=verdict,
            front=self._front(),
            safe=safe,
            trials=tuple(race.trials.values()),
            searched=race.searched,
            development=len(race.dev),
            held_out=len(self.held_out),
            monotone=monotone,
            spent=spent,
            snippet=snippet,
            savings=saved,
            measures=tuple(race.evaluator.measures),
            confirmed=race.measure(best.setting, self.held_out).values[target.name],
            confidence=race.confidence,
            seed=race.seed,
        )

    def _guard(self) -> None:
        by_system: dict[str, list[Trial]] = {}
        for trial in self.race.trials.values():
            by_system.setdefault(trial.setting.system, []).append(trial)
        race = self.race
        for label, trials in by_system.items():
            if len({t.first for t in trials if not t.failed}) == 1:
                # Perhaps nothing high enough was tried.
                trials.append(self._highest(label, trials[0].setting))
            require_effect(
                trials, race.objective, race.target.name,
                partial(race.system, trials[0].setting), race.again,
            )  # fmt: skip

    def _highest(self, label: str, setting: Setting) -> Trial:
        """The trial with the main search knob of a system as high as it goes."""
        branch = next(one for one in self.plan.branches if one.label == label)
        values = dict(setting.search)
        if any(not one.single for one in branch.search):
            values[branch.main.name] = branch.main.high
        top = Setting(label, setting.build, tuple(values.items()))
        return self.race.complete(top)

    def _best(self) -> Trial:
        """The cheapest trial that meets the target, else the closest one, on all queries."""
        race = self.race
        while True:
            trials = [t for t in race.trials.values() if not t.failed]
            if not trials:
                messages = {t.message for t in race.trials.values()}
                raise InputError(f"no setting could be searched: {'; '.join(sorted(messages))}")
            best = min(trials, key=lambda t: (*rank(race.outcome(t)), t.setting.search))
            if best.full:
                return best
            race.complete(best.setting)

    def _require_defined(self, best: Trial) -> None:
        name = self.race.target.name
        if np.isnan(best.measured.values[name]).all():
            raise InputError(
                f"{name} is undefined for all {len(best.measured):,} development queries",
                hint="semantic recall needs judgments of the exact neighbours, with at least one "
                "relevant: `semrecall judge` or `semrecall pool`",
            )

    def _confirmed(self, best: Trial) -> Choice:
        """The one look at the queries held out."""
        race = self.race
        found = race.measure(best.setting, self.held_out)
        name = race.target.name
        if np.isnan(found.values[name]).all():
            raise InputError(
                f"{name} is undefined for all {len(found):,} queries held out",
                hint="give more queries, or another split",
            )
        return Choice(
            setting=best.setting,
            development=race.estimate(best),
            development_cost=self._cost(best.measured),
            held_out=self._estimate(found, race.target.measure),
            held_out_cost=self._cost(found),
            others={str(m): self._estimate(found, m) for m in race.evaluator.measures},
        )

    def _safe(self) -> Point | None:
        """The cheapest setting whose interval on development queries meets the target."""
        race = self.race
        race.sure = True
        if race.limit is not None:
            race.limit += self.plan.trials
        explore(self.plan, race)
        met = [t for t in race.trials.values() if t.full and race.outcome(t).meets]
        if not met:
            return None
        return self._point(min(met, key=lambda t: rank(race.outcome(t))))

    def _front(self) -> tuple[Point, ...]:
        race, target = self.race, self.race.target
        full = [t for t in race.trials.values() if t.full and not t.failed]
        quality = [-target.shortfall(t.mean(target.name)) for t in full]
        cost = [t.measured.cost(race.objective) for t in full]
        return tuple(self._point(full[at]) for at in pareto(quality, cost))

    def _point(self, trial: Trial) -> Point:
        race = self.race
        return Point(
            trial.setting,
            {str(m): race.estimate(trial, m) for m in race.evaluator.measures},
            self._cost(trial.measured),
        )

    def _estimate(self, found: Measured, measure: Measure) -> Estimate:
        return estimate(
            found.values[str(measure)], share=measure.zero_or_one,
            confidence=self.race.confidence, seed=self.race.seed,
        )  # fmt: skip

    def _cost(self, found: Measured) -> Estimate:
        race = self.race
        return cost_estimate(found, race.objective, confidence=race.confidence, seed=race.seed)

    def _snippet(self, setting: Setting) -> str:
        """The setting in the system's own syntax: the build where that was tuned; the search."""
        system, parts = self.race.system(setting), []
        if setting.build:
            parts.append(system.build_snippet(dict(setting.build)))
        if setting.search:
            parts.append(system.snippet(within(system, setting)))
        return "\n".join(parts)


def _measures(
    target: Target, more: str | Measure | Iterable[str | Measure], against: str | None
) -> list[Measure]:
    """The target's measure, the one compared with, and what else is to be shown; each once."""
    found = [target.measure, *parse_all(more)]
    baseline = baseline_of(against, target)
    return list(dict.fromkeys([*found, *([] if baseline is None else [baseline])]))


def _parts(
    evaluator: Evaluator, split: Split | None, dev: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the queries that choose, and of those that confirm."""
    if split is None:
        split = divide(evaluator.queries, dev, seed=seed)
    parts = []
    for name in (DEV, TEST):
        chosen = split.part(name) if name in split.parts else split.queries[:0]
        wanted, known = unify(chosen, evaluator.queries)
        parts.append(np.flatnonzero(codes_in(known, wanted) >= 0))
    if not all(len(part) for part in parts):
        raise InputError(
            f"of {len(evaluator):,} queries {len(parts[0]):,} are to choose a setting and "
            f"{len(parts[1]):,} to confirm it; expected some of both",
            hint="give more queries, or a split of your own with dev and test (split=, --split)",
        )
    if min(len(part) for part in parts) < 10:
        warnings.warn(
            f"{len(parts[0]):,} queries choose and {len(parts[1]):,} confirm: so few say little",
            SemrecallWarning,
            stacklevel=3,
        )
    return parts[0], parts[1]


def _identity(evaluator: Evaluator, systems: Mapping[str, System], base: Any) -> dict[str, Any]:
    """What stored trials are trials of."""
    truth, judgments = evaluator.truth, evaluator.judgments
    known: dict[str, Any] = {
        "queries": _hash(evaluator.matrix.tobytes(), *evaluator.queries.strings().tolist()),
        "k": evaluator.k,
        "no_relevant": evaluator.no_relevant,
        "filters": None if evaluator.filters is None else _hash(repr(evaluator.filters)),
        "texts": None if evaluator.texts is None else _hash(*map(str, evaluator.texts)),
        "truth": None
        if truth is None
        else _hash(truth.offsets.tobytes(), *truth.documents.strings().tolist()),
        "judgments": None
        if judgments is None
        else _hash(judgments.grades.tobytes(), *judgments.documents.strings().tolist()),
        "base": None if base is None else _fingerprint(base),
    }
    for name, system in systems.items():
        facts: list[Any] = []
        if system.built:
            space = system.score_space
            facts.append(None if space is None else space.name)
            # A function or an endpoint may not tell what it holds.
            facts += [system.dimension, system.ntotal] if system.tells_dimension else []
        known[f"system {name}"] = facts
    return known


def _fingerprint(base: Any) -> str:
    vectors = vectors_of(base)
    return vectors.fingerprint if vectors.matrix is not None else "stream"


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode() + b"\0")
    return digest.hexdigest()[:16]


def _builder(
    systems: Mapping[str, System], base: Any, space: str | Space | None
) -> Callable[[str, Mapping[str, float]], System]:
    def build(label: str, knobs: Mapping[str, float]) -> System:
        return _built(systems[label], base, space, knobs)

    return build


def _built(
    system: System,
    base: Any,
    space: str | Space | None,
    knobs: Mapping[str, float],
    own: ExitStack | None = None,
) -> System:
    """The system, or a new one where it has to be built, which `own` closes."""
    if not system.buildable or (system.built and not knobs):
        return system
    if base is None:
        if system.named or "://" in system.spec:
            # A database says itself what it has not.
            _ = system.ntotal
        raise InputError(f"{system.spec!r} has to be built", hint="give base=..., --base FILE")
    if space is None and not system.built:
        raise InputError(
            f"{system.spec!r} has to be built, and nothing says in which space",
            hint="space=..., --space: ip, cosine or l2",
        )
    made = system.build(vectors_of(base), space or system.space, **knobs)
    if own is not None:
        own.callback(made.close)
    return made


def _sample(
    system: System,
    base: Any,
    space: str | Space | None,
    build: Mapping[str, Any] | None,
    own: ExitStack,
) -> System:
    """The system, or, where only a built one knows its search knobs, a build that tells them.

    It has the highest values of the build knobs, so that what depends on them goes furthest.
    """
    names = {knob.name for knob in system.knobs if knob.kind == "build"}
    named = {name: value for name, value in (build or {}).items() if name in names}
    if not named or system.built or any(knob.kind == "search" for knob in system.knobs):
        return system
    highest = {one.name: one.high for one in ranges_of(system, "build", named)}
    return _built(system, base, space, highest, own)


@contextmanager
def _resumable() -> Iterator[list[Trials]]:
    """Says, of whatever stops the work, how to go on; closes the trials that are put into it."""
    kept: list[Trials] = []
    try:
        yield kept
    except (KeyboardInterrupt, Stopped) as stop:
        raise _stopped(stop, kept[0] if kept else None) from stop
    finally:
        for trials in kept:
            trials.close()


def _stopped(stop: BaseException, kept: Trials | None) -> Stopped:
    """The stop, with what is kept where, and how to go on."""
    known = isinstance(stop, Stopped)
    said = stop.message if isinstance(stop, Stopped) else "interrupted"
    first = f"{stop.hint}; then " if isinstance(stop, Stopped) and stop.hint else ""
    if kept is None or len(kept) == 0:
        return Stopped(f"{said}; no trial was finished", hint=f"{first}run the same again")
    path = kept.path or kept.rescued()
    return Stopped(
        f"{said}; {plural(len(kept), 'finished part')} of trials are kept in {path}",
        hint=f"{first if known else ''}run the same again with {path} as store (--store): it goes "
        "on where it stopped",
    )
