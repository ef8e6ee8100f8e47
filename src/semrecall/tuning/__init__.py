"""Tuning: the cheapest setting of a system that meets a target, confirmed on held-out queries."""

from semrecall.tuning.against import Saving
from semrecall.tuning.evaluator import Evaluator, Measured
from semrecall.tuning.front import Point
from semrecall.tuning.objectives import OBJECTIVES, Objective, objective
from semrecall.tuning.ranges import Range, Setting
from semrecall.tuning.result import Choice, Tuning
from semrecall.tuning.sweeping import Sweep, sweep
from semrecall.tuning.target import Estimate, Target
from semrecall.tuning.tuner import tune

__all__ = [
    "OBJECTIVES",
    "Choice",
    "Estimate",
    "Evaluator",
    "Measured",
    "Objective",
    "Point",
    "Range",
    "Saving",
    "Setting",
    "Sweep",
    "Target",
    "Tuning",
    "objective",
    "sweep",
    "tune",
]
