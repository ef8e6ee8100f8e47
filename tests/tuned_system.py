"""A small system whose recall and cost follow from its knobs by arithmetic, for tests of tuning."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import SystemFault
from semrecall.space import space
from semrecall.systems.base import Counters, Knob, Stage, System


class Shells(System):
    """Compares a query with the `visit` percent of the base that a noisy sketch puts nearest.

    visit: from 1 to 100. order: with `modes`, what the nearest are nearest by: the sketch, its
    mirror image, or the base itself. noise: a build knob, how noisy the sketch is, in hundredths.
    calls: how many queries were searched. faults: settings that fail, or "all" from now on.
    """

    options: ClassVar = {}

    def __init__(self, **behaviour: Any) -> None:
        self.spec = "shells"
        self.behaviour = behaviour
        self.calls = {"queries": 0, "builds": 0, "closes": 0}
        self.replace = behaviour.get("replace", False)
        self.fails: Any = lambda visit: False
        self._base: Any = None
        self._noise = 20.0

    @property
    def knobs(self) -> tuple[Knob, ...]:
        low, high = self.behaviour.get("range", (1, 100))
        if self.behaviour.get("lazy"):
            # As most do: search knobs are those of what was built, which may depend on how.
            made = (Knob("noise", "build", 0, 100, 20, "noise of the sketch", "linear"),)
            high = max(10, self._noise)
            visit = Knob("visit", "search", low, high, 1, "percent of the base visited", "log")
            return (*made, visit) if self.built else made
        words = ("sketch", "mirror", "base")
        mode = Knob.mode("order", "search", words, "sketch", "what is visited first")
        return (
            Knob("noise", "build", 0, 100, 20, "noise of the sketch", "linear"),
            Knob("visit", "search", low, high, 1, "percent of the base visited", "log"),
            *((mode,) if self.behaviour.get("modes") else ()),
        )[0 if self.behaviour.get("builds", True) else 1 :]

    @property
    def named(self) -> str:
        return self.behaviour.get("named", "")

    @property
    def built(self) -> bool:
        return self._base is not None

    def close(self) -> None:
        self.calls["closes"] += 1

    @property
    def space(self) -> Any:
        return space("l2")

    @property
    def dimension(self) -> int:
        return int(self._base.shape[1])

    @property
    def ntotal(self) -> int:
        return len(self._base)

    def build(self, base: Any, space: Any, ids: Any = None, **knobs: Any) -> Shells:
        made = copy.copy(self)
        made._noise = self.turned("build", knobs).get("noise", 20)
        made._base = Vectors.of(base).require_matrix().astype(np.float64)
        rng = np.random.default_rng(7)
        spread = made._noise / 100 * made._base.std()
        made._sketch = made._base + spread * rng.standard_normal(made._base.shape)
        self.calls["builds"] += 1
        return made

    def _visited(self, queries: Any, visit: float, order: str = "sketch") -> np.ndarray:
        share = 1.0 if self.behaviour.get("ignores") else visit / 100
        count = max(1, round(share * len(self._base) * self.behaviour.get("ceiling", 1.0)))
        by = {"sketch": self._sketch, "mirror": -self._sketch, "base": self._base}[order]
        apart = ((queries[:, None, :] - by[None]) ** 2).sum(axis=2)
        return np.argsort(apart, axis=1)[:, :count]

    def search(self, queries: Any, k: int, **settings: Any) -> tuple[Any, Any]:
        turned = self.turned("search", settings)
        visit, order = turned.get("visit", 1), turned.get("order", "sketch")
        self.calls["queries"] += len(queries)
        if self.fails(visit):
            raise SystemFault("connection lost", hint="start the server")
        near = self._visited(queries, visit, order)
        apart = np.sqrt(((queries[:, None, :] - self._base[near]) ** 2).sum(axis=2))
        order = np.argsort(apart, axis=1)[:, :k]
        ids, scores = np.take_along_axis(near, order, 1), np.take_along_axis(apart, order, 1)
        room = ((0, 0), (0, max(0, min(k, len(self._base)) - ids.shape[1])))
        return np.pad(ids, room, constant_values=-1), np.pad(scores, room, constant_values=np.nan)

    def count(self, queries: Any, k: int, **settings: Any) -> Counters | None:
        if self.behaviour.get("uncounted"):
            return None
        visited = self._visited(queries, settings.get("visit", 1)).shape[1]
        stage = Stage(np.full(len(queries), float(visited)), 4.0 * self.dimension)
        return Counters({"scan": stage})

    def describe(self) -> dict[str, Any]:
        return {"exact": self.behaviour.get("exact", False)}

    def snippet(self, settings: Any) -> str:
        return "\n".join(f"SET shells.{name} = {value};" for name, value in settings.items())

    def build_snippet(self, knobs: Any) -> str:
        return "\n".join(f"MAKE shells WITH {name} = {value};" for name, value in knobs.items())
