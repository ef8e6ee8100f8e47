"""Tuning: the cheapest setting of a system that meets a target, confirmed on held-out queries."""

from semrecall.tuning.evaluator import Evaluator, Measured
from semrecall.tuning.objectives import OBJECTIVES, Objective, objective

__all__ = ["OBJECTIVES", "Evaluator", "Measured", "Objective", "objective"]
