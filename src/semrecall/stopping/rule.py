"""StopRule: when a query has enough; kept in a file, and put on a system to search with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from semrecall.errors import FormatError, InputError, MismatchError
from semrecall.formats.files import fault, named, read_text, write_whole
from semrecall.stopping.features import FEATURES, Watch
from semrecall.stopping.trees import Trees
from semrecall.systems import Counters, Knob, System
from semrecall.text import json_read

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space
    from semrecall.systems.rounds import Rounds

__all__ = ["StopRule", "StoppingSystem", "checkpoints", "identity", "read_stop_rule"]

_KIND = "semrecall stop rule 1"
_INDEX = ("space", "dimension", "rows", "lists")


@dataclass(frozen=True, eq=False, repr=False)
class StopRule:
    """After which rounds a query is looked at, and what ends its search.

    target: in words, e.g. "srecall@100 >= 0.95". k: results per query.
    lists: (rounds,) how many lists were visited after each round, rising.
    trees: the model. threshold: a search ends after the first round in which the model says more.
    index: what it was learned on: space, dimension, rows, and lists.
    about: how it was learned.
    """

    target: str
    k: int
    lists: tuple[int, ...]
    trees: Trees
    threshold: float
    index: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __repr__(self) -> str:
        return f"StopRule({self.target!r}, {len(self.lists)} rounds, {len(self.trees)} trees)"

    def on(self, system: System) -> StoppingSystem:
        """The system, searched by this rule. MismatchError where it was learned on another one."""
        return StoppingSystem(self, system)

    def says(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """What the model says of features (m, f), (m,): higher is nearer to the target."""
        return self.trees.predict(features)

    def run(self, rounds: Rounds, space: Space) -> NDArray[np.int64]:
        """Let every query of a search go on until it has enough; how often each was looked at."""
        watch = Watch(rounds, space)
        rows = np.arange(len(rounds.visited), dtype=np.int64)
        looks = np.zeros(len(rows), dtype=np.int64)
        for lists in self.lists:
            rounds.visit(rows, lists)
            if lists == self.lists[-1] or len(rows) == 0:
                break
            looks[rows] += 1
            rows = rows[self.says(watch.look(rows)) <= self.threshold]
        return looks

    def save(self, path: str | Path) -> None:
        """Write it as JSON; the whole file or nothing."""
        document = {
            "kind": _KIND, "target": self.target, "k": self.k, "index": dict(self.index),
            "about": dict(self.about), "lists": list(self.lists), "threshold": self.threshold,
            "features": list(FEATURES), "trees": self.trees.to_dict(),
        }  # fmt: skip
        # Infinity has a name in JSON as Python writes it, and stays what it is.
        write_whole(path, json.dumps(document) + "\n")

    def _check(self, system: System) -> None:
        for name, found in identity(system).items():
            value = self.index[name]
            if found != value:
                raise MismatchError(
                    f"the stop rule was learned on an index with {name} {value}; found {found}",
                    hint="learn it anew on the index that is searched: semrecall stop",
                )


def read_stop_rule(path: str | Path) -> StopRule:
    """The rule of a file that `StopRule.save` wrote; FormatError for anything else."""
    path = Path(path)
    try:
        document = json_read(read_text(path))
    except ValueError as error:
        if isinstance(error, FormatError | InputError):
            raise
        raise fault(path, f"is no JSON ({error})") from error
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise fault(path, "is no stop rule; expected a file that semrecall stop wrote")
    if document.get("features") != list(FEATURES):
        raise fault(path, "looks at other features than this version of semrecall: learn it anew")
    with named(path):
        return _rule(document)


def _rule(document: Mapping[str, Any]) -> StopRule:
    try:
        lists = tuple(int(number) for number in document["lists"])
        index = {name: document["index"][name] for name in _INDEX}
        rule = StopRule(
            str(document["target"]), int(document["k"]), lists,
            Trees.from_dict(document["trees"], len(FEATURES)), float(document["threshold"]),
            MappingProxyType(index), MappingProxyType(dict(document["about"])),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the stop rule lacks a part: {error!r}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the stop rule has a wrong part: {error}") from error
    if not lists or lists[0] < 1 or any(b <= a for a, b in pairwise(lists)):
        raise InputError("the rounds of the stop rule do not rise")
    return rule


def checkpoints(limit: int, growth: float = 1.15) -> tuple[int, ...]:
    """How many lists are visited after each round: 1, 2, 3, ..., then by a factor, to `limit`."""
    found = [1]
    while found[-1] < limit:
        found.append(min(limit, max(found[-1] + 1, round(found[-1] * growth))))
    return tuple(found)


class StoppingSystem(System):
    """A system whose queries end their search by a rule, each by itself."""

    buildable = False

    def __init__(self, rule: StopRule, system: System) -> None:
        rule._check(system)
        self.rule, self.system = rule, system
        self.spec = f"{system.spec} stopped by {rule.target}"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """None: the rule says how far a search goes."""
        return ()

    @property
    def built(self) -> bool:
        """Whether there is something to search."""
        return self.system.built

    @property
    def space(self) -> Space:
        """The geometry of the scores."""
        return self.system.space

    @property
    def dimension(self) -> int:
        """Dimensions of the vectors."""
        return self.system.dimension

    @property
    def ntotal(self) -> int:
        """How many vectors it holds."""
        return self.system.ntotal

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """A rule belongs to one index: InputError."""
        raise InputError(
            "a stop rule belongs to the index it was learned on",
            hint="build the system first, then rule.on(system)",
        )

    def search(
        self, queries: NDArray[np.float32], k: int, **settings: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Ids and scores, (n, k), as the system gives them; only the k of the rule."""
        rounds, _ = self.run(queries, k, **settings)
        return rounds.results(np.arange(len(queries), dtype=np.int64))

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters:
        """Distance computations and bytes by stage; what the trees cost is not among them."""
        return self.run(queries, k, **settings)[0].counters()

    def run(
        self, queries: NDArray[np.float32], k: int, **settings: Any
    ) -> tuple[Rounds, NDArray[np.int64]]:
        """The finished search, and how often each query was looked at, (n,)."""
        if k != self.rule.k:
            raise InputError(f"k is {k}; the stop rule was learned for {self.rule.k} results")
        self.turned("search", settings)
        rounds = self.system.rounds(queries, k, nprobe=self.rule.lists[-1])
        return rounds, self.rule.run(rounds, self.space)

    def close(self) -> None:
        """Let go of what the system holds."""
        self.system.close()

    def describe(self) -> dict[str, Any]:
        """The system, and the rule."""
        return {**self.system.describe(), "stopped by": self.rule.target}


def identity(system: System) -> dict[str, Any]:
    """What a rule remembers of the index it was learned on."""
    lists = next((int(knob.high) for knob in system.knobs if knob.name == "nprobe"), None)
    return {
        "space": system.space.name,
        "dimension": system.dimension,
        "rows": system.ntotal,
        "lists": lists,
    }
