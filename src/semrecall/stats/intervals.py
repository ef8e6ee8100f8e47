"""Intervals of means over queries: the bootstrap, the same resamples for all, and Student's t."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "RESAMPLES",
    "bootstrap_means",
    "check_confidence",
    "difference_interval",
    "mean_interval",
    "resampled_means",
    "t_interval",
]

#: Resamples of an interval where nothing else is asked for.
RESAMPLES = 2000
#: Draws held at a time: small enough for the processor's cache.
_CHUNK = 2**18


def bootstrap_means(
    values: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> NDArray[np.float64]:
    """Intervals of the mean of each row of `values` (m, n); shape (m, 2): low, high.

    Columns are queries, NaN is undefined, and each mean is over the defined values. Queries are
    drawn with replacement, the same draws for every row, so that rows stay comparable. The
    interval is the bias-corrected and accelerated one (Efron 1987) with its tails widened from
    the normal to the t distribution of n - 1 degrees of freedom (Hesterberg 2015), because plain
    percentiles are too short below 50 queries; see docs/reading-results.md for the measured
    coverage. NaN for fewer than two defined values; of zero width where all values are equal.
    """
    table = _table(values)
    draws = resampled_means(table, resamples=resamples, seed=seed)
    pairs = [
        mean_interval(row, means, confidence=confidence)
        for row, means in zip(table, draws, strict=True)
    ]
    return np.array(pairs, dtype=np.float64).reshape(len(table), 2)


def resampled_means(
    values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> NDArray[np.float64]:
    """Means of the rows of `values` (m, n) over resampled queries, shape (m, resamples).

    A mean is over the defined values drawn; NaN where none was. The draws depend on `seed`, `n`
    and `resamples` only: the same for every row and for every call.
    """
    table = _table(values)
    if resamples < 1:
        raise InputError(f"resamples is {resamples}; expected at least 1")
    means = np.full((len(table), resamples), np.nan)
    if table.size == 0:
        return means
    defined: NDArray[np.bool_] = np.logical_not(np.isnan(table))
    filled = np.where(defined, table, 0.0)
    full: NDArray[np.bool_] = np.all(defined, axis=1)
    n = table.shape[1]
    for start, counts in _resample_counts(n, resamples, seed):
        stop = start + len(counts)
        # Row by row: a product with the whole table would make a row's last bits depend on the
        # rows beside it.
        for row in range(len(table)):
            sums = counts @ filled[row]
            sizes = float(n) if full[row] else counts @ defined[row].astype(np.float64)
            with np.errstate(invalid="ignore"):
                means[row, start:stop] = sums / sizes
    # The mean of equal values is that value, without a rounding error of its own.
    for row in range(len(table)):
        if defined[row].any():
            low, high = table[row][defined[row]].min(), table[row][defined[row]].max()
            np.clip(means[row], low, high, out=means[row])
    return means


def mean_interval(
    values: ArrayLike, means: NDArray[np.float64], *, confidence: float = 0.95
) -> tuple[float, float]:
    """The interval (low, high) of the mean of `values` (n,) from its resampled `means`.

    See `bootstrap_means`. NaN values and NaN means are left out.
    """
    check_confidence(confidence)
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[~np.isnan(sample)]
    drawn = means[~np.isnan(means)]
    if len(sample) < 2 or len(drawn) == 0:
        return math.nan, math.nan
    if sample.min() == sample.max():
        return float(sample[0]), float(sample[0])
    low, high = np.quantile(drawn, _tails(sample, drawn, confidence))
    return float(low), float(high)


def difference_interval(
    values: ArrayLike, means: NDArray[np.float64], *, confidence: float = 0.95
) -> tuple[float, float]:
    """The interval of the mean of paired differences (n,) from its resampled `means`.

    Percentiles with the tails widened as in `bootstrap_means`, but not corrected for skewness:
    differences have long tails on both sides and many zeros, where that correction is wrong more
    often than right. NaN values and NaN means are left out.
    """
    check_confidence(confidence)
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[~np.isnan(sample)]
    drawn = means[~np.isnan(means)]
    if len(sample) < 2 or len(drawn) == 0:
        return math.nan, math.nan
    low, high = np.quantile(drawn, _widened(len(sample), confidence))
    return float(low), float(high)


def t_interval(values: ArrayLike, *, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of the mean of `values` (n,) by Student's t; NaN values are left out.

    NaN for fewer than two values; of no width where all are equal.
    """
    from scipy.special import stdtrit

    check_confidence(confidence)
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[~np.isnan(sample)]
    n = len(sample)
    if n < 2:
        return math.nan, math.nan
    if sample.min() == sample.max():
        return float(sample[0]), float(sample[0])
    mean = math.fsum(sample) / n
    reach = float(stdtrit(n - 1, 0.5 + confidence / 2)) * float(np.std(sample, ddof=1))
    return mean - reach / math.sqrt(n), mean + reach / math.sqrt(n)


def check_confidence(confidence: float) -> None:
    """Raise InputError unless it is between 0 and 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; expected a number between 0 and 1")


def _widened(n: int, confidence: float) -> NDArray[np.float64]:
    """The two quantiles of the resampled means of n values whose reach is that of Student's t."""
    from scipy.special import ndtr, stdtrit

    reach = math.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.5 + confidence / 2)
    return np.asarray(ndtr([-reach, reach]))


def _tails(
    sample: NDArray[np.float64], drawn: NDArray[np.float64], confidence: float
) -> NDArray[np.float64]:
    """Which two quantiles of the resampled means bound the interval."""
    from scipy.special import ndtr, ndtri, stdtrit

    n = len(sample)
    reach = math.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.5 + confidence / 2)
    mean = math.fsum(sample) / n
    below = (np.mean(drawn < mean) + np.mean(drawn <= mean)) / 2
    margin = 1.0 / (2 * len(drawn))
    bias = ndtri(min(max(below, margin), 1 - margin))
    apart = sample - mean
    acceleration = np.sum(apart**3) / (6 * np.sum(apart**2) ** 1.5)
    z = bias + np.array([-reach, reach])
    # Far tails of a skewed sample of a few values: never past the pole, never turned around.
    return np.asarray(ndtr(bias + z / np.maximum(1 - acceleration * z, 0.05)))


def _resample_counts(
    n: int, resamples: int, seed: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(first resample, how often each of n queries is drawn (c, n)), chunk by chunk."""
    generator = np.random.default_rng(seed)
    # The chunk depends on n alone, so that neither draws nor sums depend on anything else.
    step = max(1, _CHUNK // n)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        draws = generator.integers(0, n, size=(rows, n))
        draws += np.arange(rows)[:, None] * n
        counts = np.bincount(draws.reshape(-1), minlength=rows * n)
        yield start, counts.reshape(rows, n).astype(np.float64)


def _table(values: ArrayLike) -> NDArray[np.float64]:
    table: NDArray[Any] = np.asarray(values, dtype=np.float64)
    if table.ndim == 1:
        table = table[None, :]
    if table.ndim != 2:
        raise InputError(f"values have shape {table.shape}; expected (measures, queries)")
    return table
