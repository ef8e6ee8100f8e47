"""The numbers of an analysis: estimates over queries, and rows of its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.stats import bootstrap_means

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "Band",
    "Barren",
    "Correlation",
    "Distribution",
    "Estimate",
    "Group",
    "Neighbour",
    "Share",
    "estimates",
    "plain",
]


@dataclass(frozen=True)
class Estimate:
    """A mean over queries, its interval, and how many queries stand behind it.

    NaN where no query has a value; the interval is NaN below two queries.
    """

    mean: float
    low: float
    high: float
    queries: int


@dataclass(frozen=True)
class Share:
    """A share of queries, its interval by Wilson, and what the unjudged could make it.

    least, most: the share if the unjudged neighbours were as they need to be for the fewest and
        the most queries to belong to it; NaN where that does not move it.
    """

    value: float
    low: float
    high: float
    least: float
    most: float


@dataclass(frozen=True)
class Distribution:
    """How many semantic neighbours queries have.

    number: the mean over queries. least, most: the mean if no unjudged neighbour were relevant,
        and if all were. percentiles: by percent, interpolated between queries.
    counts: (k + 1,) how many queries have exactly 0, 1, ..., k. cumulative: (k + 1,) the share of
        queries with at most so many.
    """

    number: Estimate
    least: float
    most: float
    sd: float
    percentiles: Mapping[int, float]
    counts: NDArray[np.int64]
    cumulative: Array


@dataclass(frozen=True)
class Group:
    """Queries of one group: how many neighbours matter, and whether their scores stand apart.

    column, group: the slice and its group; both "" over all queries.
    queries: how many, `share` of all.
    semantic_pairs, other_pairs, unjudged_pairs: neighbours with a grade that is relevant, with one
        that is not, and without one.
    number: semantic neighbours of a query. judged: share of the neighbours that have a grade.
    semantic, others: mean score of the semantic neighbours of a query, and of its others, over the
        queries that have any; in the unit of the space.
    delta: how much nearer the semantic neighbours of a query are than its others, by mean score;
        above 0 is nearer in every space. Over the queries that have both.
    drop: how far scores fall from the nearest neighbour to the farthest of the k, at least 0.
    relative: delta as a share of the drop of the same query.
    r: rank-biserial correlation of score and relevance within a query, above 0 as delta.
    recall, srecall: of the run, where there is one.
    """

    column: str
    group: str
    queries: int
    share: Share
    semantic_pairs: int
    other_pairs: int
    unjudged_pairs: int
    number: Estimate
    judged: Estimate
    semantic: Estimate
    others: Estimate
    delta: Estimate
    drop: Estimate
    relative: Estimate
    r: Estimate
    recall: Estimate | None = None
    srecall: Estimate | None = None


@dataclass(frozen=True)
class Correlation:
    """Rank-biserial correlation between score and relevance, in two ways.

    within: the mean over queries of each query's own r, over those that have semantic neighbours
        and others. p: of the randomisation test over queries that this mean is 0.
    positive: the share of these queries with r above 0. significant: the share whose own
        Mann-Whitney p is below 0.05.
    pooled: r over all judged pairs of all queries together. pooled_low, pooled_high: its interval,
        from resampling whole queries. pooled_p: of the Mann-Whitney test over the pairs as if they
        were independent; those of one query are not, so it is too small.
    semantic_pairs, other_pairs: what the pooled r is made of.
    """

    within: Estimate
    p: float
    positive: float
    significant: float
    pooled: float
    pooled_low: float
    pooled_high: float
    pooled_p: float
    semantic_pairs: int
    other_pairs: int


@dataclass(frozen=True)
class Band:
    """Neighbours at the ranks `first` to `last`, from 1.

    relevant: the share of the judged ones of a query that are relevant. least, most: the mean
        share if no unjudged one were relevant, and if all were.
    pairs, judged: how many there are, and how many of them have a grade.
    found, found_semantic: the share that the run found, of all and of the semantic ones.
    """

    first: int
    last: int
    relevant: Estimate
    least: float
    most: float
    pairs: int
    judged: int
    found: Estimate | None = None
    found_semantic: Estimate | None = None


@dataclass(frozen=True)
class Neighbour:
    """One exact neighbour: its rank from 1; score and grade are NaN where there is none.

    judged: whether it is known not to be relevant, with a grade or without.
    """

    document: str | int
    rank: int
    score: float
    grade: float
    judged: bool
    text: str = ""


@dataclass(frozen=True)
class Barren:
    """A query with no relevant document among its neighbours, as far as they are judged.

    relevant_elsewhere: documents known to be relevant that are not among its neighbours.
    nearest: its first neighbours.
    """

    query: str | int
    text: str
    judged: int
    unjudged: int
    relevant_elsewhere: int
    nearest: tuple[Neighbour, ...]


def estimates(columns: Sequence[Array], seed: int, confidence: float) -> list[Estimate]:
    """The estimates of several values of the same queries, (n,) each, NaN where undefined."""
    table = np.array(columns, dtype=np.float64)
    pairs = bootstrap_means(table, seed=seed, confidence=confidence)
    found = []
    for values, (low, high) in zip(table, pairs.tolist(), strict=True):
        known = values[~np.isnan(values)]
        mean = math.fsum(known) / len(known) if len(known) else math.nan
        found.append(Estimate(mean, low, high, len(known)))
    return found


def plain(row: Any) -> Any:
    """A row as plain mappings and lists, without what it lacks."""
    if hasattr(row, "__dataclass_fields__"):
        values = {f.name: getattr(row, f.name) for f in fields(row)}
        return {name: plain(value) for name, value in values.items() if value is not None}
    if isinstance(row, Mapping):
        return {str(key): plain(value) for key, value in row.items()}
    if isinstance(row, np.ndarray):
        return row.tolist()
    if isinstance(row, list | tuple):
        return [plain(value) for value in row]
    return row
