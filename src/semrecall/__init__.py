"""semrecall: measure what a vector search really loses.

The names below are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semrecall.abstention import abstention
    from semrecall.agreement import agree
    from semrecall.analysis import analyse
    from semrecall.benchmark import build, codes_truth, search
    from semrecall.check import check
    from semrecall.correction import correct
    from semrecall.data import Cost, Judgments, MultiVectors, Run, Scores, Vectors
    from semrecall.errors import SemrecallError, SemrecallWarning
    from semrecall.evaluate import Comparison, Result, compare, evaluate
    from semrecall.exact import rescore
    from semrecall.formats import read, write
    from semrecall.measures import measure, measures, parse
    from semrecall.plan import plan
    from semrecall.pool import pool
    from semrecall.rag import rag
    from semrecall.space import space
    from semrecall.splits import split
    from semrecall.stopping import learn_stopping
    from semrecall.systems import open_system
    from semrecall.tolerance import tolerance
    from semrecall.truth import truth
    from semrecall.tuning import sweep, tune
    from semrecall.waterfall import waterfall

_HOME = {
    "Comparison": "evaluate",
    "Cost": "data",
    "Judgments": "data",
    "Ledger": "judges",
    "MultiVectors": "data",
    "Result": "evaluate",
    "Run": "data",
    "Scores": "data",
    "SemrecallError": "errors",
    "SemrecallWarning": "errors",
    "Vectors": "data",
    "abstention": "abstention",
    "agree": "agreement",
    "analyse": "analysis",
    "build": "benchmark",
    "check": "check",
    "codes_truth": "benchmark",
    "compare": "evaluate",
    "correct": "correction",
    "evaluate": "evaluate",
    "judge": "judging",
    "learn_stopping": "stopping",
    "measure": "measures",
    "measures": "measures",
    "open_judge": "judges",
    "open_system": "systems",
    "parse": "measures",
    "plan": "plan",
    "pool": "pool",
    "rag": "rag",
    "read": "formats",
    "rescore": "exact",
    "search": "benchmark",
    "space": "space",
    "split": "splits",
    "sweep": "tuning",
    "tolerance": "tolerance",
    "truth": "truth",
    "tune": "tuning",
    "waterfall": "waterfall",
    "write": "formats",
}

__all__ = [
    "Comparison",
    "Cost",
    "Judgments",
    "Ledger",
    "MultiVectors",
    "Result",
    "Run",
    "Scores",
    "SemrecallError",
    "SemrecallWarning",
    "Vectors",
    "__version__",
    "abstention",
    "agree",
    "analyse",
    "build",
    "check",
    "codes_truth",
    "compare",
    "correct",
    "evaluate",
    "judge",
    "learn_stopping",
    "measure",
    "measures",
    "open_judge",
    "open_system",
    "parse",
    "plan",
    "pool",
    "rag",
    "read",
    "rescore",
    "search",
    "space",
    "split",
    "sweep",
    "tolerance",
    "truth",
    "tune",
    "waterfall",
    "write",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("semrecall")
    if name not in _HOME:
        raise AttributeError(f"module 'semrecall' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"semrecall.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _FrontDoor(ModuleType):
    """Importing a submodule binds its name here; where a function has that name, it stays."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
