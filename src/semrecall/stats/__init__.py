"""Statistics: arrays in, numbers out."""

from semrecall.stats.intervals import (
    bootstrap_means,
    mean_interval,
    resampled_means,
)

__all__ = ["bootstrap_means", "mean_interval", "resampled_means"]
