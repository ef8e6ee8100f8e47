"""What an experiment file says, as checked values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semrecall.gates import Gate

__all__ = [
    "COSTS", "Asked", "Comparing", "Data", "Experiment", "Guard", "Judging", "Measuring",
    "Reporting",
]  # fmt: skip

#: What a gate may be about beside measures: figures of the cost of a search.
COSTS = (
    "distance_computations", "bytes_read", "cpu_seconds", "latency_p50_seconds",
    "latency_p95_seconds", "latency_p99_seconds", "queries_per_second",
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """The vectors, texts and columns; paths as in the file, relative to its folder.

    truth: a file of exact neighbours in place of a search for them. filter: a predicate over
    `base_columns`, as `semrecall.truth` takes it. columns: those of the queries, by query_id.
    """

    base: Any = None
    queries: str | None = None
    space: str | None = None
    k: int = 0
    base_ids: str | None = None
    query_ids: str | None = None
    base_dataset: str | None = None
    queries_dataset: str | None = None
    truth: str | None = None
    filter: str | None = None
    base_columns: str | None = None
    columns: str | None = None
    corpus: str | None = None
    query_texts: str | None = None


@dataclass(frozen=True)
class Asked:
    """A system and the settings it is searched with; `run` is a file of its results instead.

    filter: given with every query, in the system's own language. search_again: whether it is
    searched each time, as what it holds cannot be seen.
    """

    name: str
    spec: str = ""
    run: str = ""
    build: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Mapping[str, Any], ...] = ({},)
    filter: Any = None
    repeats: int = 3
    latency_queries: int = 300
    search_again: bool = False

    def run_name(self, setting: Mapping[str, Any]) -> str:
        """What the run of a setting is called."""
        return " ".join([self.name, *(f"{knob}={value}" for knob, value in setting.items())])

    @property
    def run_names(self) -> tuple[str, ...]:
        """Of all settings."""
        return tuple(self.run_name(setting) for setting in self.settings)


@dataclass(frozen=True)
class Judging:
    """A file of labels, or a judge that gives them. of: "truth", "runs": whose documents."""

    file: str = ""
    grade: str | None = None
    conflicts: Any = "error"
    judge: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    of: tuple[str, ...] = ("truth",)
    k: int | None = None
    ledger: str = "semrecall.ledger"
    canaries: int = 1
    repeat: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Measuring:
    """What is measured, and how; see `semrecall.evaluate`. rescore: by the vectors at hand."""

    names: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    no_relevant: Any = "skip"
    rescore: bool = True
    seed: int = 0
    confidence: float = 0.95


@dataclass(frozen=True)
class Comparing:
    """How runs are compared; see `semrecall.compare`."""

    baseline: str | None = None
    test: str = "randomisation"
    correction: str = "holm"
    margin: float | None = None


@dataclass(frozen=True)
class Guard:
    """A gate of the file, and the line where it stands.

    not_worse_than: earlier results that the gate's measure must not be worse than, by more than
    `margin`.
    """

    gate: Gate
    line: int = 0
    not_worse_than: str = ""
    margin: float = 0.0

    def __str__(self) -> str:
        if not self.not_worse_than:
            return str(self.gate)
        by = f" by more than {self.margin:g}" if self.margin else ""
        sure = ", confidently" if self.gate.confident else ""
        return f"{self.gate.measure} not worse than in {self.not_worse_than}{by}{sure}"


@dataclass(frozen=True)
class Reporting:
    """The page. title: in place of the answer in one sentence."""

    title: str | None = None


@dataclass(frozen=True)
class Experiment:
    """An experiment file. raw: what the parser read, for a record of it."""

    file: Path
    name: str
    results: str
    data: Data
    systems: tuple[Asked, ...]
    measures: Measuring
    judgments: Judging | None = None
    comparison: Comparing | None = None
    gates: tuple[Guard, ...] = ()
    report: Reporting | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the file is, and where its relative paths start."""
        return self.file.absolute().parent

    @property
    def run_names(self) -> tuple[str, ...]:
        """The runs of all systems, in order."""
        return tuple(name for system in self.systems for name in system.run_names)
