"""Google Vizier as a searcher: in a process of its own, by lines of JSON.

Its pins (jax 0.4.36, protobuf below 6) may go with nothing else here. So the worker may run under
another Python, the one that SEMRECALL_VIZIER_PYTHON names; see docs/tuning.md.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from semrecall.errors import InputError, MissingExtra, Stopped
from semrecall.tuning.racing import Outcome
from semrecall.tuning.ranges import Range
from semrecall.tuning.searchers import Point

__all__ = ["PYTHON", "Vizier"]

#: The environment variable that names the Python with google-vizier.
PYTHON = "SEMRECALL_VIZIER_PYTHON"
_WORKER = Path(__file__).with_name("vizier_worker.py")


class Vizier:
    """Suggestions of Vizier's default algorithm (a Gaussian process bandit), without end.

    ranges: of all knobs; one system only, as the algorithm knows no conditional spaces.

    Vizier is told the logarithm of the cost; a setting that misses the target has a penalty that
    grows with its shortfall.
    """

    def __init__(
        self, ranges: Sequence[Range], *, seed: int = 0, python: str | None = None
    ) -> None:
        self.ranges = list(ranges)
        program = python or os.environ.get(PYTHON)
        if not program:
            if find_spec("vizier") is None:
                raise MissingExtra("google-vizier", "vizier", "the searcher 'vizier'")
            program = sys.executable
        try:
            self._worker = subprocess.Popen(
                # Isolated: the folder of the worker is no place to import from.
                [program, "-I", "-u", str(_WORKER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{PYTHON}: {program} cannot be run: {error.strerror}") from error
        self._asked: Point | None = None
        self._said({"space": self._space(), "seed": seed})

    def ask(self) -> Point:
        """The next point."""
        if self._asked is None:
            answer = self._said({"ask": True})
            self._asked = self._point(answer["point"])
        return self._asked

    def tell(self, point: Point, outcome: Outcome) -> None:
        """Learn its cost, and how far it is from the target."""
        finite = math.isfinite(outcome.cost) and math.isfinite(outcome.shortfall)
        told = {"cost": outcome.cost, "shortfall": outcome.shortfall} if finite else None
        self._said({"tell": told})
        self._asked = None

    def close(self) -> None:
        """End the worker."""
        for pipe in (self._worker.stdin, self._worker.stdout):
            # A worker that is gone takes no more of what was to be said to it.
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            self._worker.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._worker.kill()
            self._worker.wait()

    def __del__(self) -> None:
        if getattr(self, "_worker", None) is not None and self._worker.returncode is None:
            self.close()

    def _said(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One line there, one line back."""
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        try:
            self._worker.stdin.write(json.dumps(message) + "\n")
            self._worker.stdin.flush()
            line = self._worker.stdout.readline()
            answer: dict[str, Any] = json.loads(line)
        except (OSError, ValueError) as error:
            self.close()
            raise Stopped(
                "the worker of Google Vizier ended without an answer",
                hint="what it said stands above; is google-vizier installed for that Python "
                f"({PYTHON})?",
            ) from error
        return answer

    def _space(self) -> list[dict[str, Any]]:
        return [
            {
                "name": one.name, "low": one.low, "high": one.high, "whole": one.whole,
                "log": one.scale == "log" and one.low > 0, "listed": list(one.listed),
                "ordered": one.ordered,
            }
            for one in self.ranges
        ]  # fmt: skip

    def _point(self, found: Mapping[str, Any]) -> Point:
        point: dict[str, Any] = {}
        for one in self.ranges:
            value = found[one.name]
            if not one.ordered:
                point[one.name] = value
                continue
            if one.listed:
                value = min(one.listed, key=lambda v: abs(v - value))
            point[one.name] = round(value) if one.whole else float(f"{value:.4g}")
        return point
