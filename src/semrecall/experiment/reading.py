"""From a TOML file to an Experiment; whatever is wrong with it is said in one message."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from semrecall.errors import InputError, SemrecallError
from semrecall.experiment.checking import (
    Checker,
    flag,
    number,
    one_of,
    texts,
    whole,
    words,
)  # fmt: skip
from semrecall.experiment.lines import key_lines
from semrecall.experiment.plan import (
    COSTS,
    Asked,
    Comparing,
    Data,
    Experiment,
    Guard,
    Judging,
    Measuring,
    Reporting,
)  # fmt: skip
from semrecall.gates import Gate, check_limit
from semrecall.measures import parse
from semrecall.registry import did_you_mean, load_judge, load_system, split_spec
from semrecall.space import space
from semrecall.stats.compare import TESTS
from semrecall.stats.multiple import CORRECTIONS
from semrecall.systems import is_spec, parse_spec

__all__ = ["FILE", "read_experiment"]

#: What an experiment file is called.
FILE = "semrecall.toml"
_TABLES = ("data", "judgments", "systems", "measures", "comparison", "gates", "report")
#: Options of a spec that name what is searched as it is: what a function reads is not seen.
_UNSEEN = ("url", "function")


def read_experiment(path: str | Path = FILE) -> Experiment:
    """The experiment of a file. Raises InputError with all that is wrong with it, by line."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
        raw = tomllib.loads(text)
    except FileNotFoundError as error:
        raise InputError(
            f"there is no {file}", hint="semrecall run --init writes one to start from"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML: {error}") from error
    checker = Checker(file, key_lines(text))
    experiment = _Reader(checker, file.absolute().parent).read(raw)
    checker.settle()
    return experiment


class _Reader:
    """Reads table after table; faults go to the checker."""

    def __init__(self, checker: Checker, folder: Path) -> None:
        self.checker, self.folder = checker, folder

    def read(self, raw: Mapping[str, Any]) -> Experiment:
        tables = {name: lambda value: value for name in _TABLES}
        top = self.checker.take(
            dict(raw), {"name": words, "results": words, **tables}, needs=("systems", "measures")
        )
        measures = self._measures(top.get("measures", {}))
        before = len(self.checker.faults)
        data = self._data(top.get("data", {}), measures)
        data_is_right = len(self.checker.faults) == before
        systems = self._systems(top.get("systems", {}))
        experiment = Experiment(
            self.checker.file,
            top.get("name", self.folder.name),
            top.get("results", "results"),
            data,
            systems,
            measures,
            self._judgments(top["judgments"]) if "judgments" in top else None,
            self._comparison(top["comparison"]) if "comparison" in top else None,
            raw=raw,
        )
        report = None
        if "report" in top:
            report = Reporting(**self.checker.take(top["report"], {"title": words}, "report"))
        guards = self._gates(top.get("gates", []), experiment)
        if "systems" in top and not systems:
            self.checker.add("[systems] is empty; expected [systems.NAME] for each", "systems")
        self._names(experiment)
        if data_is_right:
            # What is lacking there may be what is misspelt.
            self._whole(experiment)
        return replace(experiment, gates=guards, report=report)

    # -- tables ---------------------------------------------------------------------------

    def _data(self, found: Any, measures: Measuring) -> Data:
        file = self._existing
        kinds = {
            "base": self._base, "queries": file, "space": lambda v: space(words(v)).name,
            "k": whole(1), "base_ids": file, "query_ids": file, "base_dataset": words,
            "queries_dataset": words, "truth": file, "filter": words, "base_columns": file,
            "columns": file, "corpus": file, "query_texts": file,
        }  # fmt: skip
        taken = self.checker.take(found, kinds, "data")
        deepest = [k for k in (_k(name) for name in measures.names) if k is not None]
        return Data(**{"k": max(deepest, default=10), **taken})

    def _measures(self, found: Any) -> Measuring:
        kinds = {
            "names": self._measure_names, "by": texts, "no_relevant": one_of("skip", "zero"),
            "rescore": flag, "seed": whole(0), "confidence": _confidence,
        }  # fmt: skip
        return Measuring(**self.checker.take(found, kinds, "measures", needs=("names",)))

    def _measure_names(self, value: Any) -> tuple[str, ...]:
        found = []
        for name in texts(value):
            try:
                found.append(str(parse(name)))
            except SemrecallError as error:
                said = "; ".join(filter(None, [error.message, error.hint]))
                self.checker.add(said, "measures", "names")
        return tuple(found)

    def _systems(self, found: Any) -> tuple[Asked, ...]:
        if not isinstance(found, dict):
            self.checker.add("[systems] is no table; expected [systems.NAME] for each", "systems")
            return ()
        kinds = {
            "spec": _spec, "run": self._existing, "build": _build, "settings": _settings,
            "filter": lambda v: v, "repeats": whole(1), "latency_queries": whole(0),
            "search_again": flag,
        }  # fmt: skip
        systems = []
        for name, table in found.items():
            taken = self.checker.take(table, kinds, "systems", name)
            given = table if isinstance(table, dict) else {"spec": ""}
            if ("spec" in given) == ("run" in given):
                both = "spec and run" if "spec" in given else "neither spec nor run"
                self.checker.add(
                    f"[systems.{name}] has {both}; expected one of them", "systems", name
                )
            extra = [key for key in given if key not in ("run", "spec") and key in kinds]
            if "run" in given and "spec" not in given and extra:
                self.checker.add(
                    f"{extra[0]} is given for a run that is a file", "systems", name, extra[0]
                )
            if "spec" in taken:
                hidden = any(key in parse_spec(taken["spec"])[1] for key in _UNSEEN)
                taken = {"search_again": hidden, **taken}
            systems.append(Asked(name, **taken))
        return tuple(systems)

    def _judgments(self, found: Any) -> Judging:
        own = {
            "file": self._existing, "grade": words, "judge": words, "of": _of, "k": whole(1),
            "conflicts": one_of("error", "max", "first", "last"), "ledger": words,
            "canaries": whole(0), "repeat": whole(1), "seed": whole(0),
        }  # fmt: skip
        spec = found.get("judge") if isinstance(found, dict) else None
        options: dict[str, Any] = {}
        if isinstance(spec, str):
            options = self._judge_options(spec)
        taken = self.checker.take(found, {**options, **own}, "judgments")
        if isinstance(found, dict) and ("file" in found) == ("judge" in found):
            both = "file and judge" if "file" in found else "neither file nor judge"
            self.checker.add(f"[judgments] has {both}; expected one of them", "judgments")
        given = {key: taken.pop(key) for key in list(taken) if key not in own}
        return Judging(**taken, options=given)

    def _judge_options(self, spec: str) -> dict[str, Any]:
        """What the judge's own keys are, each taken as it is."""
        try:
            name, _ = split_spec(spec, "judge", "llm?model=gpt-5-mini")
            kind = load_judge("python" if name.startswith("python:") else name)
        except InputError as error:
            self.checker.add(f"{error.message}; {error.hint or ''}", "judgments", "judge")
            return {}
        return {key: lambda value: value for key in inspect.signature(kind).parameters}

    def _comparison(self, found: Any) -> Comparing:
        kinds = {
            "baseline": words, "test": one_of(*TESTS), "correction": one_of(*CORRECTIONS),
            "margin": _positive,
        }  # fmt: skip
        return Comparing(**self.checker.take(found, kinds, "comparison"))

    def _gates(self, found: Any, experiment: Experiment) -> tuple[Guard, ...]:
        if not isinstance(found, list):
            self.checker.add("gates is no list of tables; expected [[gates]] for each", "gates")
            return ()
        gates = (self._gate(table, n, experiment) for n, table in enumerate(found))
        return tuple(gate for gate in gates if gate is not None)

    def _gate(self, table: Any, n: int, experiment: Experiment) -> Guard | None:
        kinds = {
            "measure": lambda v: str(parse(words(v))), "cost": one_of(*COSTS), "system": words,
            "at_least": number, "at_most": number, "confident": flag, "slice": _slice,
            "not_worse_than": self._existing, "margin": number,
        }  # fmt: skip
        before = len(self.checker.faults)
        taken = self.checker.take(table, kinds, "gates", n)
        add, at = self.checker.add, ("gates", n)
        if not isinstance(table, dict):
            return None
        if ("measure" in table) == ("cost" in table):
            add("a gate has a measure or a cost; expected one of them", *at)
        limits = [key for key in ("at_least", "at_most", "not_worse_than") if key in table]
        if not limits:
            add("a gate without a limit; expected at_least, at_most or not_worse_than", *at)
        if "not_worse_than" in table and (len(limits) > 1 or "cost" in table or "slice" in table):
            add("not_worse_than stands alone with a measure and a margin", *at, "not_worse_than")
        if "margin" in table and "not_worse_than" not in table:
            add("margin is for not_worse_than", *at, "margin")
        if "cost" in table and ("slice" in table or "confident" in table):
            add("a cost has no slices and no interval", *at)
        runs = self._runs_of(taken.get("system"), experiment, at)
        column, group = taken.get("slice", ("", ""))
        if column and column not in experiment.measures.by:
            add(f"slice by {column!r}, which is not in by of [measures]", *at, "slice")
        for key in ("at_least", "at_most"):
            if "measure" in taken and key in taken:
                try:
                    check_limit(parse(taken["measure"]), taken[key], key)
                except InputError as error:
                    add(f"{error.message}; {error.hint}" if error.hint else error.message, *at, key)
        if len(self.checker.faults) > before:
            return None
        gate = Gate(
            taken.get("measure") or taken["cost"], taken.get("at_least"), taken.get("at_most"),
            taken.get("confident", False), column, group, runs,
        )  # fmt: skip
        line = self.checker.line(*at)
        return Guard(gate, line, taken.get("not_worse_than", ""), taken.get("margin", 0.0))

    def _runs_of(
        self, name: str | None, experiment: Experiment, at: tuple[str | int, ...]
    ) -> tuple[str, ...]:
        """The runs a gate is for: of a system, or one by its own name."""
        if name is None:
            return ()
        by_system = {system.name: system.run_names for system in experiment.systems}
        known = by_system | {run: (run,) for run in experiment.run_names}
        if name not in known:
            self.checker.add(f"unknown system {name!r}; {did_you_mean(name, known)}", *at, "system")
        return known.get(name, ())

    # -- the whole ------------------------------------------------------------------------

    def _whole(self, experiment: Experiment) -> None:
        """What no table can tell alone."""
        data, add = experiment.data, self.checker.add
        searched = any(system.spec for system in experiment.systems)
        if searched and data.queries is None and data.query_texts is None:
            add("[data] has no queries to search for", "data")
        if data.truth is None and data.base is not None and data.space is None:
            add("[data] has a base and no space; expected ip, cosine or l2", "data")
        has_truth = data.truth is not None or (data.base is not None and data.queries is not None)
        if not has_truth and experiment.judgments is None:
            add("nothing to measure against: give base and queries, truth, or [judgments]", "data")
        needs = {need for name in experiment.measures.names for need in parse(name).needs}
        if "judgments" in needs and experiment.judgments is None:
            names = [n for n in experiment.measures.names if "judgments" in parse(n).needs]
            add(f"{names[0]} needs [judgments]", "measures", "names")
        if "truth" in needs and not has_truth:
            names = [n for n in experiment.measures.names if "truth" in parse(n).needs]
            add(f"{names[0]} needs a truth: give base and queries in [data]", "measures", "names")
        if set(experiment.measures.by) - {"sn"} and data.columns is None:
            add("by needs the columns of the queries: columns in [data]", "measures", "by")

    def _names(self, experiment: Experiment) -> None:
        runs = experiment.run_names
        twice = next((name for name in runs if runs.count(name) > 1), None)
        if twice is not None:
            self.checker.add(f"two runs are called {twice!r}", "systems")
        compared = experiment.comparison
        if compared is None:
            return
        if len(runs) == 1:
            self.checker.add("[comparison] of a single run; expected two at least", "comparison")
        if compared.baseline is not None and compared.baseline not in runs:
            hint = did_you_mean(compared.baseline, runs)
            self.checker.add(
                f"the baseline {compared.baseline!r} is none of the runs; {hint}",
                "comparison", "baseline",
            )  # fmt: skip

    # -- values ---------------------------------------------------------------------------

    def _existing(self, value: Any) -> str:
        path = words(value)
        if not (self.folder / path).exists():
            raise ValueError("a file that exists")
        return path

    def _base(self, value: Any) -> Any:
        """A file, a pattern, a list of files, an address, or the spec of a system."""
        listed = value if isinstance(value, list) else [value]
        for path in listed:
            if is_spec(words(path)) or any(mark in path for mark in "*?["):
                continue
            self._existing(path)
        return tuple(value) if isinstance(value, list) else value


def _k(name: str) -> int | None:
    measure = parse(name)
    return measure.k if "truth" in measure.needs else None


def _spec(value: Any) -> str:
    name, options = parse_spec(words(value))
    known = load_system(name).options
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known) or f"{name} takes none"
            raise InputError(f"system {name!r} has no option {key!r}", hint=hint)
    return str(value)


def _build(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a table of knobs, e.g. { seed = 7 }")
    return {name: number(v) if isinstance(v, float) else v for name, v in value.items()}


def _settings(value: Any) -> tuple[Mapping[str, Any], ...]:
    """A list of tables, or one whose lists of values make a setting for each combination."""
    if isinstance(value, list) and value and all(isinstance(table, dict) for table in value):
        found = [dict(table) for table in value]
    elif isinstance(value, dict) and value:
        lists = [v if isinstance(v, list) else [v] for v in value.values()]
        found = [dict(zip(value, combination, strict=True)) for combination in product(*lists)]
    else:
        raise ValueError("a table of knobs, e.g. { nprobe = [1, 4] }, or a list of such tables")
    if not found:
        raise ValueError("at least one value for each knob")
    return tuple(found)


def _of(value: Any) -> tuple[str, ...]:
    found = texts(value)
    if not found or set(found) - {"truth", "runs"}:
        raise ValueError('["truth"], ["runs"] or both')
    return found


def _slice(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError('one column and its group, e.g. { lang = "th" }')
    [(column, group)] = value.items()
    return column, str(group)


def _positive(value: Any) -> float:
    if number(value) <= 0:
        raise ValueError("a number above 0")
    return float(value)


def _confidence(value: Any) -> float:
    if not 0 < number(value) < 1:
        raise ValueError("a number between 0 and 1")
    return float(value)
