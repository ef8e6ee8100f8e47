"""Experiments: a file says what is measured; what is out of date is done; results are compared."""

from semrecall.experiment.diff import Change, Diff, diff
from semrecall.experiment.plan import Experiment
from semrecall.experiment.reading import FILE, read_experiment
from semrecall.experiment.recorded import Recorded, read_results
from semrecall.experiment.running import Outcome, run_experiment

__all__ = [
    "FILE", "Change", "Diff", "Experiment", "Outcome", "Recorded", "diff", "read_experiment",
    "read_results", "run_experiment",
]  # fmt: skip
