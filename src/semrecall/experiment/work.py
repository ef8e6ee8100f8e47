"""What the steps of an experiment do: each one call of what the package does elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from semrecall.benchmark import search
from semrecall.data import Cost, Judgments, Pairs, Run, Vectors
from semrecall.errors import SemrecallError, SystemFault
from semrecall.evaluate import Comparison, Result, compare, evaluate
from semrecall.experiment.contents import UNSEEN, Contents
from semrecall.experiment.gating import cost_means
from semrecall.experiment.gating import judged as gate_verdicts
from semrecall.experiment.plan import COSTS, Asked, Experiment, Judging
from semrecall.experiment.recorded import SCORES, VALUES, means_of, read_scores, write_values
from semrecall.formats import (
    read_columns,
    read_cost,
    read_judgments,
    read_run,
    read_texts,
    write,
    write_cost,
    write_whole,
)  # fmt: skip
from semrecall.gates import Verdict
from semrecall.judges import open_judge
from semrecall.judging import judge
from semrecall.measures import parse
from semrecall.report import write_html
from semrecall.report.making import Source
from semrecall.systems import System, base_vectors, open_in, parse_spec
from semrecall.text import plural
from semrecall.truth import truth
from semrecall.truth.verb import open_base, open_queries

__all__ = ["COMPARISON", "JUDGMENTS", "REPORT", "TRUTH", "Work", "run_file"]

TRUTH, JUDGMENTS = "truth.parquet", "judgments.parquet"
COMPARISON, REPORT = "comparison.json", "report.html"
_LONGEST = 80
#: What of the data is read from files.
FILES = ("base", "queries", "base_ids", "query_ids", "truth", "base_columns", "columns", "corpus",
         "query_texts")  # fmt: skip


def run_file(name: str, suffix: str = ".parquet") -> str:
    """Where the run of a setting is kept, within the results folder."""
    slug = re.sub(r"[^\w.=-]+", "-", name).strip("-.")
    if slug != name.replace(" ", "-") or len(slug) > _LONGEST:
        # Different names stay different, whatever a file may not be called.
        import hashlib

        slug = f"{slug[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"runs/{slug}{suffix}"


class Work:
    """An experiment being done. Paths are relative to the working folder, which is that of the
    file; what is read is read once.
    """

    def __init__(
        self, experiment: Experiment, tell: Callable[[str], None], contents: Contents
    ) -> None:
        self.experiment, self.tell, self.contents = experiment, tell, contents
        self.results = Path(experiment.results)
        self._system: tuple[str, System | SemrecallError] | None = None
        self._result: tuple[tuple[str, ...], Result] | None = None

    def close(self) -> None:
        """Let go of the system that is open."""
        if self._system is not None and isinstance(self._system[1], System):
            self._system[1].close()
        self._system = None

    # -- truth ----------------------------------------------------------------------------

    def find_truth(self) -> list[str]:
        """The exact neighbours, to a file."""
        data = self.experiment.data
        uses_columns = data.filter is not None and "$" in data.filter
        run = truth(
            self._base, self._queries, data.k, str(data.space),
            filter=data.filter, columns=data.base_columns,
            query_columns=data.columns if uses_columns else None,
        )  # fmt: skip
        write(run, self.results / TRUTH)
        return [repr(run)]

    @cached_property
    def _base(self) -> Any:
        data = self.experiment.data
        listed = list(data.base) if isinstance(data.base, tuple) else data.base
        return open_base(listed, dataset=data.base_dataset, ids=data.base_ids)

    @cached_property
    def _vectors(self) -> Vectors | None:
        """The base where it is one file, whose rows can be looked up; else None."""
        data = self.experiment.data
        if not isinstance(data.base, str) or not Path(data.base).is_file():
            return None
        return base_vectors(data.base, dataset=data.base_dataset, ids=data.base_ids)

    @cached_property
    def _queries(self) -> Vectors | None:
        data = self.experiment.data
        if data.queries is None:
            return None
        return open_queries(data.queries, dataset=data.queries_dataset, ids=data.query_ids)

    # -- runs -----------------------------------------------------------------------------

    def search(self, asked: Asked, setting: Mapping[str, Any]) -> list[str]:
        """A system searched with one setting: the run and its cost, to files."""
        system = self._opened(asked)
        name, data = asked.run_name(setting), self.experiment.data
        given: dict[str, Any] = {"queries": self._queries}
        if system.by_text:
            texts = {} if data.query_texts is None else read_texts(data.query_texts)
            given = {"queries": None, "texts": texts}
        if asked.filter is not None:
            count = len(given["texts"] if system.by_text else self._queries or ())
            given["filters"] = [asked.filter] * count
        run, cost = search(
            system, k=data.k, name=name, repeats=asked.repeats,
            latency_queries=asked.latency_queries, **given, **setting,
        )  # fmt: skip
        (self.results / "runs").mkdir(exist_ok=True)
        write(run, self.results / run_file(name))
        write_cost(cost, self.results / run_file(name, ".cost.parquet"))
        return [repr(run)]

    def _opened(self, asked: Asked) -> System:
        """The system, built once for all of its settings; one that failed fails again at once."""
        if self._system is None or self._system[0] != asked.name:
            self.close()
            try:
                self._system = asked.name, self._built(asked)
            except SemrecallError as error:
                self._system = asked.name, error
        found = self._system[1]
        if not isinstance(found, System):
            raise found
        for setting in asked.settings:
            found.turned("search", setting)
        return found

    def _built(self, asked: Asked) -> System:
        opened = open_in(asked.spec, self.experiment.data.space)
        if not opened.buildable or (opened.built and not asked.build):
            return opened
        if self.experiment.data.base is None:
            raise SystemFault(f"{asked.spec!r} has to be built, and [data] has no base")
        self.tell(f"building {asked.name}: {asked.spec} ...")
        base = self._base.vectors if self._vectors is None else self._vectors
        return opened.build(base, str(self.experiment.data.space), **asked.build)

    def run(self, name: str) -> Run:
        """The run of a setting, or that of a file."""
        files = {asked.name: asked.run for asked in self.experiment.systems if asked.run}
        if name in files:
            return read_run(files[name], name=name)
        return read_run(self.results / run_file(name), name=name)

    # -- judgments ------------------------------------------------------------------------

    def judge(self, runs: Collection[str]) -> list[str]:
        """Labels of a judge, to a file; what the ledger has is not asked again."""
        plan, data = self.experiment.judgments, self.experiment.data
        assert plan is not None
        options = dict(plan.options)
        if plan.judge.partition("?")[0] == "llm":
            options |= {"notify": self.tell, "seed": options.get("seed", plan.seed or None)}
        asked = open_judge(plan.judge, **options)
        try:
            done = judge(
                self._pairs(plan, runs), asked, corpus=data.corpus, queries=data.query_texts,
                ledger=plan.ledger, repeat=plan.repeat, canaries=plan.canaries, seed=plan.seed,
            )  # fmt: skip
        finally:
            asked.close()
        write(done.judgments, self.results / JUDGMENTS)
        return [line for line in str(done).splitlines() if line.strip()]

    def _pairs(self, plan: Judging, runs: Collection[str]) -> Pairs:
        """The documents of the truth, then those of the runs that are there."""
        sources = [self.truth] if "truth" in plan.of and self.truth is not None else []
        sources += [self.run(name) for name in runs] if "runs" in plan.of else []
        pairs = [Pairs.of(run, k=plan.k or self.experiment.data.k) for run in sources]
        if len(pairs) == 1:
            return pairs[0]
        return Pairs.of([pair for part in pairs for pair in part])

    # -- what comes of them ---------------------------------------------------------------

    @cached_property
    def truth(self) -> Run | None:
        """The exact neighbours; None where nothing is measured against them."""
        data = self.experiment.data
        if data.truth is not None:
            return read_run(data.truth)
        made = self.results / TRUTH
        return read_run(made) if data.base is not None and made.exists() else None

    def _judgments(self, there: bool) -> Judgments | None:
        plan = self.experiment.judgments
        if plan is None or not there:
            return None
        if plan.file:
            return read_judgments(plan.file, grade=plan.grade, conflicts=plan.conflicts)
        return read_judgments(self.results / JUDGMENTS)

    def measured(self, judged: bool) -> tuple[str, ...]:
        """The measures of the file and its gates that can be computed, with judgments or not."""
        names = dict.fromkeys(self.experiment.measures.names)
        for guard in self.experiment.gates:
            if guard.gate.measure not in COSTS:
                names.setdefault(guard.gate.measure)
        return tuple(n for n in names if judged or "judgments" not in parse(n).needs)

    def result(self, runs: tuple[str, ...], judged: bool) -> Result:
        """The runs, measured."""
        key = (*runs, str(judged))
        if self._result is None or self._result[0] != key:
            self._result = key, self._evaluated(runs, judged)
        return self._result[1]

    def _evaluated(self, runs: tuple[str, ...], judged: bool) -> Result:
        plan, data = self.experiment.measures, self.experiment.data
        exact = plan.rescore and self._vectors is not None and self._queries is not None
        return evaluate(
            {name: self.run(name) for name in runs},
            self.measured(judged),
            truth=self.truth,
            judgments=self._judgments(judged),
            base=self._vectors if exact else None,
            queries=self._queries if exact else None,
            columns=None if data.columns is None else read_columns(data.columns),
            by=[name for name in plan.by if judged or name != "sn"],
            no_relevant=plan.no_relevant,
            seed=plan.seed,
            confidence=plan.confidence,
        )

    def score(self, runs: tuple[str, ...], judged: bool) -> list[str]:
        """Summary and values, to files."""
        found = self.result(runs, judged)
        write_values(found, self.results / VALUES)
        text = json.dumps(_plain(found.to_dict()), indent=2, ensure_ascii=False)
        write_whole(self.results / SCORES, text + "\n")
        return list(found.notes)

    def compare(self, runs: tuple[str, ...], judged: bool) -> list[str]:
        """The runs in pairs, to a file."""
        plan = self.experiment.comparison
        assert plan is not None
        found = compare(
            self.result(runs, judged), baseline=plan.baseline, test=plan.test,
            correction=plan.correction, margin=plan.margin,
        )  # fmt: skip
        found.save(self.results / COMPARISON)
        return found.fallen()

    def costs(self, runs: Collection[str]) -> dict[str, Cost]:
        """What the searches cost, of those among the runs whose cost was measured."""
        return {
            name: read_cost(self.results / run_file(name, ".cost.parquet"))
            for name in self.experiment.run_names
            if name in self.searched and name in runs
        }

    @property
    def searched(self) -> set[str]:
        """Names of the runs that are searches, not files."""
        systems = [asked for asked in self.experiment.systems if asked.spec]
        return {name for asked in systems for name in asked.run_names}

    def report(self, runs: tuple[str, ...], judged: bool, compared: bool) -> list[str]:
        """The page."""
        data, plan = self.experiment.data, self.experiment.report
        assert plan is not None
        costs = self.costs(runs)
        write_html(
            self.result(runs, judged),
            self.results / REPORT,
            query_texts=None if data.query_texts is None else read_texts(data.query_texts),
            document_texts=None if data.corpus is None else read_texts(data.corpus),
            costs=costs,
            comparison=Comparison.load(self.results / COMPARISON) if compared else None,
            gates=self._verdicts(costs),
            sources={name: self._source(path) for name, path in self.read(judged).items()},
            made=list(self.made(runs)),
            command=f"semrecall run {self.experiment.file.name}",
            title=plan.title,
        )
        return []

    def _verdicts(self, costs: Mapping[str, Cost]) -> list[Verdict]:
        given = means_of(read_scores(self.results)), list(cost_means(costs))
        return list(gate_verdicts(self.experiment, self.results, *given))

    def _source(self, path: Any) -> Source:
        digest = self.contents.of(path)
        return Source(path, digest="" if digest in (None, UNSEEN) else str(digest))

    def read(self, judged: bool) -> dict[str, Any]:
        """Everything from outside that the page goes back to, by what it is."""
        data, labels = self.experiment.data, self.experiment.judgments
        read: dict[str, Any] = {"experiment": self.experiment.file.name}
        for field in fields(data):
            value = getattr(data, field.name)
            if field.name in FILES and value is not None:
                read[field.name.replace("_", " ")] = value
        if judged and labels is not None and labels.file:
            read["judgments"] = labels.file
        for asked in self.experiment.systems:
            named = [("run", asked.run)] if asked.run else files_in(asked.spec)
            read |= {f"{what} of {asked.name}": path for what, path in named}
        for guard in self.experiment.gates:
            if guard.not_worse_than:
                read[f"gates: {guard.not_worse_than}"] = guard.not_worse_than
        return read

    def made(self, runs: Collection[str]) -> Iterator[tuple[str, str]]:
        """How each run came about, as the file says it."""
        for asked in self.experiment.systems:
            if not asked.spec or not set(asked.run_names) & set(runs):
                continue
            parts = [asked.spec]
            parts += [f"build {knob} {value}" for knob, value in asked.build.items()]
            parts += [f"filter {asked.filter}"] if asked.filter is not None else []
            yield asked.name, ", ".join([*parts, f"searched {plural(asked.repeats, 'time')}"])
        plan = self.experiment.judgments
        if plan is not None and plan.judge:
            options = [f"{name} {value}" for name, value in plan.options.items()]
            asked_of = f"of {' and '.join(plan.of)}, seed {plan.seed}, ledger {plan.ledger}"
            yield "judge", ", ".join([plan.judge, *options, asked_of])


def files_in(spec: str) -> Iterator[tuple[str, str]]:
    """(option, path) of what a spec names that is a file or a folder; a function's own module."""
    _, options = parse_spec(spec)
    for name, value in options.items():
        if name == "function":
            module = Path(*value.partition(":")[0].split("."))
            for file in (module.with_suffix(".py"), module / "__init__.py"):
                if file.is_file():
                    yield name, str(file)
        elif name != "url" and Path(value).exists():
            yield name, value


def _plain(value: Any) -> Any:
    """NaN as null, numpy's values as plain ones."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
