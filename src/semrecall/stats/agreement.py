"""How far labels of several judges agree: kappa, alpha, specific agreement, and their intervals.

A table (c, c) counts pairs of labels: rows are classes of the first judge, columns of the second.
Functions take tables of shape (..., c, c), e.g. one per query, and return one value per table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.errors import InputError
from semrecall.stats.intervals import RESAMPLES, mean_interval, resampled_means

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

__all__ = [
    "Level",
    "alpha",
    "coincidences",
    "conditional_agreement",
    "distances",
    "kappa",
    "kappa_error",
    "kendall_tau",
    "label_tables",
    "mcnemar_p",
    "observed_agreement",
    "specific_agreement",
    "table_interval",
]

Level = Literal["nominal", "ordinal", "interval"]
Weights = Literal["equal", "linear", "quadratic"]


# -- two judges -------------------------------------------------------------------------------


def label_tables(
    first: NDArray[np.int64], second: NDArray[np.int64], groups: ArrayLike, n: int, classes: int
) -> Array:
    """Tables (n, c, c) of two columns of class numbers (m,), one for each of n groups."""
    cells = (np.asarray(groups) * classes + first) * classes + second
    counts = np.bincount(cells, minlength=n * classes * classes)
    return counts.reshape(n, classes, classes).astype(np.float64)


def observed_agreement(tables: ArrayLike) -> Array:
    """The share of pairs of labels that are equal, in [0, 1]; NaN for an empty table."""
    t = _tables(tables)
    return _ratio(np.trace(t, axis1=-2, axis2=-1), t.sum(axis=(-2, -1)))


def specific_agreement(tables: ArrayLike, label: int) -> Array:
    """2 n_ll / (row + column of l): how often the other judge says l where one of them does.

    In [0, 1]; NaN where nobody says l. For two classes these are positive and negative agreement
    (Cicchetti and Feinstein 1990).
    """
    t = _tables(tables)
    said = t[..., label, :].sum(axis=-1) + t[..., :, label].sum(axis=-1)
    return _ratio(2 * t[..., label, label], said)


def conditional_agreement(tables: ArrayLike, label: int, *, given: Literal[0, 1]) -> Array:
    """How often both say `label` where one judge does: the first (given=0), the second (given=1).

    In [0, 1]; NaN where that judge never says it.
    """
    t = _tables(tables)
    said = t[..., label, :] if given == 0 else t[..., :, label]
    return _ratio(t[..., label, label], said.sum(axis=-1))


def distances(grades: ArrayLike, weights: Weights = "equal") -> Array:
    """How far apart classes of these grades (c,) are, (c, c): 0 or 1, |a - b| or (a - b)^2."""
    if weights not in ("equal", "linear", "quadratic"):
        raise InputError(f"weights is {weights!r}; expected equal, linear or quadratic")
    values = np.asarray(grades, dtype=np.float64)
    apart = np.abs(values[:, None] - values)
    if weights == "equal":
        return (apart > 0).astype(np.float64)
    return apart if weights == "linear" else apart**2


def kappa(tables: ArrayLike, apart: ArrayLike | None = None) -> Array:
    """Cohen's kappa: 1 - observed / expected disagreement, at most 1; 0 is what chance gives.

    apart: `distances` of the classes (c, c), for weighted kappa (Cohen 1968); equal when None.
    Expected is what independent judges with the same shares of each class would have. NaN where
    all labels of both judges are one class: then there is nothing to agree about by chance.
    """
    t = _tables(tables)
    d = distances(np.arange(t.shape[-1])) if apart is None else np.asarray(apart)
    rows, columns = t.sum(axis=-1), t.sum(axis=-2)
    expected = np.einsum("...i,ij,...j->...", rows, d, columns)
    observed = (t * d).sum(axis=(-2, -1))
    return np.asarray(1.0 - _ratio(observed * rows.sum(axis=-1), expected))


def kappa_error(table: ArrayLike) -> float:
    """The standard error of kappa of one table (c, c), as if pairs were independent.

    For large samples (Fleiss, Cohen and Everitt 1969). Pairs of one query are alike, so it is too
    small for judged search results; `table_interval` over queries is not. NaN where kappa is.
    """
    t = _tables(table)
    n = t.sum()
    k = float(kappa(t))
    if math.isnan(k):
        return math.nan
    p = t / n
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    expected = float(rows @ columns)
    diagonal = float(np.diag(p) @ (1 - (rows + columns) * (1 - k)) ** 2)
    off = p * (columns[:, None] + rows) ** 2
    rest = (1 - k) ** 2 * float(off.sum() - np.trace(off))
    variance = diagonal + rest - (k - expected * (1 - k)) ** 2
    return math.sqrt(max(0.0, variance) / n) / (1 - expected)


def mcnemar_p(first_only: int, second_only: int) -> float:
    """Two-sided exact p-value that neither of two judges says yes more often (McNemar 1947).

    first_only, second_only: how often one says yes and the other no. 1 where they never differ;
    never 0.
    """
    from scipy.stats import binomtest

    if first_only + second_only == 0:
        return 1.0
    found = binomtest(int(first_only), int(first_only + second_only)).pvalue
    return max(float(found), float(np.finfo(np.float64).tiny))


# -- several judges, gaps ---------------------------------------------------------------------


def coincidences(
    codes: NDArray[np.int64], groups: NDArray[np.int64], n: int, classes: int
) -> Array:
    """Coincidence tables (n, c, c) of the labels of m judges for u units, one a group of units.

    codes: (m, u) class numbers, -1 where a judge gave no label. groups: (u,) from 0 to n - 1.
    Each unit adds its pairs of labels, weighted so that it counts as many as it has labels; a
    unit with fewer than two labels adds nothing (Krippendorff 2011).
    """
    counts = np.array([(codes == label).sum(axis=0) for label in range(classes)], dtype=np.float64)
    labels = counts.sum(axis=0)
    weight = np.where(labels > 1, 1.0 / np.maximum(labels - 1, 1), 0.0)
    tables = np.zeros((n, classes, classes))
    for i in range(classes):
        for j in range(classes):
            pairs = counts[i] * (counts[j] - (i == j)) * weight
            tables[:, i, j] = np.bincount(groups, weights=pairs, minlength=n)
    return tables


def alpha(tables: ArrayLike, grades: ArrayLike, level: Level = "nominal") -> Array:
    """Krippendorff's alpha of coincidence tables (..., c, c); at most 1, 0 is what chance gives.

    grades: (c,) of the classes, rising. level: labels are names ("nominal"), an order
    ("ordinal"), or numbers ("interval"). NaN where all labels are one class.
    """
    t = _tables(tables)
    sizes = t.sum(axis=-1)
    n = sizes.sum(axis=-1)
    if level == "ordinal":
        # The labels from the middle of one class to the middle of the other.
        middle = np.cumsum(sizes, axis=-1) - sizes / 2
        d = (middle[..., :, None] - middle[..., None, :]) ** 2
    elif level in ("nominal", "interval"):
        d = distances(grades, "equal" if level == "nominal" else "quadratic")
    else:
        raise InputError(f"level is {level!r}; expected nominal, ordinal or interval")
    expected = (sizes[..., :, None] * sizes[..., None, :] * d).sum(axis=(-2, -1))
    observed = (t * d).sum(axis=(-2, -1))
    return np.asarray(1.0 - _ratio(observed * (n - 1), expected))


# -- how sure ---------------------------------------------------------------------------------


def table_interval(
    tables: ArrayLike,
    statistic: Callable[[Array], Array],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """The interval (low, high) of a statistic of the sum of tables (n, c, c), one a query.

    Queries are drawn with replacement, whole: labels of one query are alike, and drawing pairs
    would make the interval too short. It is the bias-corrected and accelerated bootstrap of
    `mean_interval` on the jackknife's pseudo-values. `statistic` maps (..., c, c) to (...).

    NaN for fewer than two queries, or where the statistic of the whole is.
    """
    t = _tables(tables)
    n, whole = len(t), t.sum(axis=0)
    value = float(statistic(whole))
    if n < 2 or math.isnan(value):
        return math.nan, math.nan
    without = statistic(whole - t)
    known = without[~np.isnan(without)]
    pseudo = value + (n - 1) * (known.mean() - known) if len(known) else known
    if len(known) < 2 or np.ptp(pseudo) < 1e-12:
        return value, value
    drawn = statistic(_resampled_sums(t, resamples, seed))
    # A draw that equals the value is neither above nor below it, whatever the rounding.
    drawn = np.where(np.abs(drawn - value) < 1e-12, math.fsum(pseudo) / len(pseudo), drawn)
    return mean_interval(pseudo, drawn, confidence=confidence)


def _resampled_sums(tables: Array, resamples: int, seed: int) -> Array:
    """Sums of n tables drawn with replacement, (resamples, c, c)."""
    n, c, _ = tables.shape
    cells = tables.reshape(n, c * c).T
    used = np.flatnonzero(cells.any(axis=1))
    sums = np.zeros((c * c, resamples))
    sums[used] = n * resampled_means(cells[used], resamples=resamples, seed=seed)
    return np.ascontiguousarray(sums.T).reshape(resamples, c, c)


# -- orders -----------------------------------------------------------------------------------


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's tau-b of two columns of values (m,), in [-1, 1]: whether they order alike.

    Pairs with a NaN are left out. NaN where fewer than two are left or either column is constant.
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (first, second))
    known = ~(np.isnan(a) | np.isnan(b))
    a, b = a[known], b[known]
    left, right = (np.sign(v[:, None] - v)[np.triu_indices(len(v), 1)] for v in (a, b))
    scale = math.sqrt(np.count_nonzero(left) * np.count_nonzero(right))
    return float(left @ right) / scale if scale else math.nan


def _tables(tables: ArrayLike) -> Array:
    found: NDArray[Any] = np.asarray(tables, dtype=np.float64)
    if found.ndim < 2 or found.shape[-1] != found.shape[-2]:
        raise InputError(f"tables have shape {found.shape}; expected (..., c, c)")
    return found


def _ratio(above: Any, below: Any) -> Array:
    above, below = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return np.asarray(above / np.where(below != 0, below, np.nan))
