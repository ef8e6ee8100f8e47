"""Two runs over the same queries: whether they differ by more than chance, and by how much.

All functions take paired differences, one per query; NaN (undefined in either run) is left out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from semrecall.errors import InputError
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "PERMUTATIONS",
    "TESTS",
    "detectable_difference",
    "effect_size",
    "equivalence_p",
    "paired_differences",
    "paired_p",
    "randomisation_p",
    "sign_p",
    "t_p",
    "wilcoxon_p",
]

#: Name of a test -> what it does, in a sentence for the foot of a table.
TESTS: dict[str, str] = {
    "randomisation": "signs of the differences flipped at random",
    "t": "paired t-test",
    "wilcoxon": "signed ranks without equal queries; exact up to 50 queries without ties, "
    "else normal with the correction for ties",
    "sign": "wins against losses, binomial, without equal queries",
}
#: Random sign patterns of a test where nothing else is asked for.
PERMUTATIONS = 100_000
#: Sums held at a time: small enough for the processor's cache.
_CHUNK = 2**19
#: Largest number of differences for which Wilcoxon's test enumerates all signs.
_WILCOXON_EXACT = 50
#: A p-value is never 0, not even where a formula underflows.
_SMALLEST = float(np.finfo(np.float64).tiny)


def paired_differences(baseline: ArrayLike, run: ArrayLike) -> NDArray[np.float64]:
    """`run` less `baseline`, in the shape of both; NaN where either is undefined.

    What differs by rounding only (1e-12 of the values) is equal: the difference is 0.
    """
    a, b = np.asarray(baseline, dtype=np.float64), np.asarray(run, dtype=np.float64)
    apart = b - a
    noise = 1e-12 * np.maximum(np.abs(a), np.abs(b))
    return np.where(np.abs(apart) <= noise, 0.0, apart)


def paired_p(
    differences: ArrayLike,
    test: str = "randomisation",
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Two-sided p-values of rows (m, n) of paired differences, shape (m,), by one of TESTS.

    NaN for fewer than two queries. 1 where no query differs. Never 0.
    """
    if test not in TESTS:
        raise InputError(f"unknown test {test!r}", hint=did_you_mean(test, TESTS))
    rows = _rows(differences)
    if test == "randomisation":
        return randomisation_p(rows, permutations=permutations, seed=seed)
    one = _OF_A_ROW[test]
    return np.array([one(row) for row in rows], dtype=np.float64)


# -- tests ------------------------------------------------------------------------------------


def randomisation_p(
    differences: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> NDArray[np.float64]:
    """P-values (m,) of the randomisation test of rows (m, n) of paired differences.

    If the two runs are equally good, each difference might as well have the other sign (Fisher
    1935). p is the share of sign patterns whose sum is at least as far from 0 as the observed
    one, (b + 1) / (permutations + 1), which counts the observed pattern; where there are no more
    patterns than `permutations`, all of them are looked at and p is exact.

    The patterns depend on `seed` and n alone, and sums are those of whole numbers, which have no
    rounding: a p-value is the same to the bit on every machine and beside whatever other rows.
    """
    if permutations < 1:
        raise InputError(f"permutations is {permutations}; expected at least 1")
    rows = _rows(differences)
    counts = np.count_nonzero(~np.isnan(rows), axis=1)
    filled = np.nan_to_num(rows, nan=0.0)
    nonzero = np.count_nonzero(filled, axis=1)
    p = np.full(len(rows), np.nan)
    few = nonzero <= min(60.0, math.log2(permutations))
    for row in np.flatnonzero(few & (counts >= 2)).tolist():
        p[row] = _exact_p(filled[row][filled[row] != 0])
    rest = np.flatnonzero(~few)
    if len(rest):
        p[rest] = _sampled_p(filled[rest], permutations, seed)
    return p


def t_p(differences: ArrayLike) -> float:
    """P-value of the paired t-test; NaN for fewer than two queries, or equal differences."""
    found = _defined(differences)
    n = len(found)
    if n >= 2 and not found.any():
        return 1.0
    if n < 2 or found.min() == found.max():
        return math.nan
    return _both_tails(_mean(found) / _standard_error(found), n - 1)


def wilcoxon_p(differences: ArrayLike) -> float:
    """P-value of Wilcoxon's signed-rank test; NaN for fewer than two queries.

    Queries without a difference are left out (Wilcoxon's own rule), equal sizes share their mean
    rank. Exact for up to 50 differences of distinct sizes, else by the normal distribution with
    the correction for ties.
    """
    from scipy.stats import wilcoxon

    found = _defined(differences)
    if len(found) < 2:
        return math.nan
    found = found[found != 0]
    if len(found) == 0:
        return 1.0
    # Sizes that are equal but for rounding share a rank.
    found = np.round(found / np.abs(found).max(), 12)
    tied = len(np.unique(np.abs(found))) < len(found)
    exact = not tied and len(found) <= _WILCOXON_EXACT
    result = wilcoxon(found, method="exact" if exact else "approx")
    return max(float(result.pvalue), _SMALLEST)


def sign_p(differences: ArrayLike) -> float:
    """P-value of the sign test: wins against losses; NaN for fewer than two queries."""
    from scipy.stats import binomtest

    found = _defined(differences)
    if len(found) < 2:
        return math.nan
    wins, losses = int((found > 0).sum()), int((found < 0).sum())
    if wins + losses == 0:
        return 1.0
    return max(float(binomtest(wins, wins + losses).pvalue), _SMALLEST)


_OF_A_ROW: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "t": t_p,
    "wilcoxon": wilcoxon_p,
    "sign": sign_p,
}


# -- how large, how sure ----------------------------------------------------------------------


def effect_size(differences: ArrayLike) -> float:
    """The mean difference in standard deviations of the differences, corrected for few queries.

    Hedges' g for pairs: mean / sd * J, with the exact J = gamma(v/2) / (sqrt(v/2) gamma((v-1)/2))
    of v = n - 1 degrees of freedom (Hedges 1981). 0 where no query differs; NaN below three
    queries, or where all differ by the same.
    """
    found = _defined(differences)
    if len(found) >= 3 and not found.any():
        return 0.0
    if len(found) < 3 or found.min() == found.max():
        return math.nan
    v = len(found) - 1
    g = _mean(found) / float(np.std(found, ddof=1))
    log_j = math.lgamma(v / 2) - math.lgamma((v - 1) / 2) - 0.5 * math.log(v / 2)
    return g * math.exp(log_j)


def detectable_difference(
    differences: ArrayLike, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The smallest true mean difference that so many queries would show in 80 of 100 cases.

    By the power of the two-sided paired t-test at `alpha`, with the spread of the differences as
    observed; in the unit of the measure. NaN for fewer than two queries, or no spread.
    """
    found = _defined(differences)
    if len(found) < 2 or found.min() == found.max():
        return math.nan
    return float(_noncentrality(len(found) - 1, alpha, power) * _standard_error(found))


def equivalence_p(differences: ArrayLike, margin: float) -> float:
    """P-value of "the runs differ by `margin` or more"; small means that they are equivalent.

    Two one-sided t-tests (Schuirmann 1987): the mean difference is above -margin and below
    margin. NaN for fewer than two queries, or differences without spread, which cannot tell how
    other queries would vary.
    """
    from scipy.special import stdtr

    if not (margin > 0 and math.isfinite(margin)):
        raise InputError(f"margin is {margin}; expected a number above 0")
    found = _defined(differences)
    if len(found) < 2 or found.min() == found.max():
        return math.nan
    nearest = margin - abs(_mean(found))
    return max(float(stdtr(len(found) - 1, -nearest / _standard_error(found))), _SMALLEST)


@functools.lru_cache(maxsize=4096)
def _noncentrality(v: int, alpha: float, power: float) -> float:
    """The shift, in standard errors, that a two-sided t-test of v degrees of freedom detects."""
    from scipy.optimize import brentq
    from scipy.special import stdtrit
    from scipy.stats import nct

    critical = float(stdtrit(v, 1 - alpha / 2))

    def missing(shift: float) -> float:
        # Significant on the wrong side is no detection.
        return float(nct.sf(critical, v, shift)) - power

    high = 1.0
    while missing(high) < 0:
        high *= 2
    return float(brentq(missing, 0.0, high, xtol=1e-10))


# -- signs ------------------------------------------------------------------------------------


def whole_numbers(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows (m, n), each scaled to whole numbers of which any n sum to below 2^52.

    float64 holds such sums exactly, in whatever order they are made. Each entry is rounded by up
    to one half, so sums that were equal differ by up to n.
    """
    n = rows.shape[1]
    bits = 52 - math.ceil(math.log2(n + 1))
    _, exponents = np.frexp(np.abs(rows).max(axis=1, initial=0.0))
    return np.asarray(np.rint(np.ldexp(rows, (bits - exponents)[:, None])))


def _exact_p(nonzero: NDArray[np.float64]) -> float:
    """Over all 2^m sign patterns of m differences; half of them mirror the others."""
    if len(nonzero) == 0:
        return 1.0
    whole = whole_numbers(nonzero[None, :])[0]
    observed = abs(whole.sum()) - len(whole)
    extreme = 0
    patterns = 1 << (len(whole) - 1)
    for start in range(0, patterns, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, patterns))
        sums = np.zeros(len(numbers))
        for bit, value in enumerate(whole.tolist()):
            sums += np.where(numbers >> bit & 1, -value, value)
        extreme += int(np.count_nonzero(np.abs(sums) >= observed))
    return extreme / patterns


def _sampled_p(rows: NDArray[np.float64], permutations: int, seed: int) -> NDArray[np.float64]:
    whole = whole_numbers(rows)
    tables = _tables(whole)
    observed = np.abs(whole.sum(axis=1)) - rows.shape[1]
    extreme = np.zeros(len(rows), dtype=np.int64)
    for octets in _octets(len(tables), len(rows), permutations, seed):
        sums = np.zeros((octets.shape[1], len(rows)))
        for table, octet in zip(tables, octets, strict=True):
            sums += table[octet]
        extreme += np.count_nonzero(np.abs(sums) >= observed, axis=0)
    return (extreme + 1) / (permutations + 1)


def _tables(whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of every eight neighbouring queries under each of 256 sign patterns, (b, 256, m)."""
    m, n = whole.shape
    padded = np.zeros((m, -(-n // 8) * 8))
    padded[:, :n] = whole
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    signs = 1.0 - 2.0 * bits
    return np.stack([signs @ padded[:, at : at + 8].T for at in range(0, padded.shape[1], 8)])


def _octets(blocks: int, rows: int, permutations: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Random sign patterns of `blocks` times eight queries, shape (blocks, c), chunk by chunk.

    They are the bytes of a generator's raw 64-bit words, which no version of numpy changes.
    """
    generator = np.random.PCG64(seed)
    words = -(-blocks // 8)
    step = max(1, min(16 * _CHUNK // (words * 8), _CHUNK // rows))
    for start in range(0, permutations, step):
        count = min(step, permutations - start)
        raw = np.asarray(generator.random_raw(count * words)).astype("<u8")
        octets = raw.view(np.uint8).reshape(count, words * 8)
        yield np.ascontiguousarray(octets[:, :blocks].T)


# -- arrays -----------------------------------------------------------------------------------


def _rows(differences: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(differences, dtype=np.float64)
    if rows.ndim == 1:
        rows = rows[None, :]
    if rows.ndim != 2:
        raise InputError(f"differences have shape {rows.shape}; expected (rows, queries)")
    return rows


def _defined(differences: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(differences, dtype=np.float64)
    return np.asarray(found[~np.isnan(found)])


def _mean(values: NDArray[np.float64]) -> float:
    return math.fsum(values) / len(values)


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _both_tails(t: float, v: int) -> float:
    from scipy.special import stdtr

    return max(2 * float(stdtr(v, -abs(t))), _SMALLEST)
