"""Statistics: arrays in, numbers out."""

from semrecall.stats.compare import (
    detectable_difference,
    effect_size,
    equivalence_p,
    paired_differences,
    paired_p,
)
from semrecall.stats.groups import group_gaps
from semrecall.stats.intervals import (
    bootstrap_means,
    difference_interval,
    mean_interval,
    resampled_means,
    t_interval,
)
from semrecall.stats.multiple import corrected
from semrecall.stats.shares import paired_share_interval, wilson_interval

__all__ = [
    "bootstrap_means",
    "corrected",
    "detectable_difference",
    "difference_interval",
    "effect_size",
    "equivalence_p",
    "group_gaps",
    "mean_interval",
    "paired_differences",
    "paired_p",
    "paired_share_interval",
    "resampled_means",
    "t_interval",
    "wilson_interval",
]
