"""Optuna's TPE as a searcher: mixed, whole and conditional spaces, with the target a constraint."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from semrecall.registry import import_extra
from semrecall.tuning.racing import Outcome
from semrecall.tuning.ranges import Range
from semrecall.tuning.searchers import Point

__all__ = ["TPE"]

_SHORTFALL = "shortfall"
#: What stands for a cost that no trial has.
_DEAR = 1e300


class TPE:
    """Tree-structured Parzen estimators (Optuna), multivariate and grouped, seeded.

    branches: by name of a system the ranges that it has; with several, the point says under
    "system" which one it is of, and only that one's knobs are in it.
    """

    def __init__(
        self, branches: Mapping[str, Sequence[Range]], *, seed: int = 0, startup: int = 10
    ) -> None:
        self.optuna: Any = import_extra("optuna", "tune", "tuning by TPE")
        self.branches = {name: list(ranges) for name, ranges in branches.items()}
        self.optuna.logging.set_verbosity(self.optuna.logging.WARNING)
        with warnings.catch_warnings():
            # Multivariate, group and constraints are called experimental.
            warnings.simplefilter("ignore")
            self.sampler = self.optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, n_startup_trials=startup,
                constraints_func=lambda trial: [trial.user_attrs.get(_SHORTFALL, 1.0)],
            )  # fmt: skip
            self.study = self.optuna.create_study(direction="minimize", sampler=self.sampler)
        self._trial: Any = None
        self._asked: Point | None = None

    def ask(self) -> Point:
        """The next point."""
        if self._asked is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._trial = self.study.ask()
                self._asked = self._suggested()
        return self._asked

    def tell(self, point: Point, outcome: Outcome) -> None:
        """Learn its cost, and how far it is from the target."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shortfall = outcome.shortfall if math.isfinite(outcome.shortfall) else _DEAR
            self._trial.set_user_attr(_SHORTFALL, shortfall)
            cost = outcome.cost if math.isfinite(outcome.cost) else _DEAR
            self.study.tell(self._trial, cost)
        self._asked = None

    def _suggested(self) -> dict[str, Any]:
        names = list(self.branches)
        point: dict[str, Any] = {}
        if len(names) > 1:
            point["system"] = self._trial.suggest_categorical("system", names)
        name = point.get("system", names[0])
        for one in self.branches[name]:
            # A knob of the same name in two systems is not the same knob.
            label = one.name if len(names) == 1 else f"{name}: {one.name}"
            point[one.name] = self._value(one, label)
        return point

    def _value(self, one: Range, label: str) -> Any:
        if not one.ordered:
            return self._trial.suggest_categorical(label, list(one.listed))
        if one.listed:
            return one.listed[int(self._trial.suggest_int(label, 0, len(one.listed) - 1))]
        log = one.scale == "log" and one.low > 0
        if one.whole:
            return int(self._trial.suggest_int(label, int(one.low), int(one.high), log=log))
        return float(f"{self._trial.suggest_float(label, one.low, one.high, log=log):.4g}")
