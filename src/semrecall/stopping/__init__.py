"""Stopping: adaptive early termination of searches, learned and calibrated."""

from semrecall.stopping.calibration import Calibration, calibrated
from semrecall.stopping.learning import PARTS, learn_stopping
from semrecall.stopping.result import Stopping, Way
from semrecall.stopping.rule import StoppingSystem, StopRule, read_stop_rule

__all__ = [
    "PARTS",
    "Calibration",
    "StopRule",
    "Stopping",
    "StoppingSystem",
    "Way",
    "calibrated",
    "learn_stopping",
    "read_stop_rule",
]
