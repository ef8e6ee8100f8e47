"""Analysis: grades and scores of the exact neighbours, and every number that follows from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.analysis.rows import (
    Band,
    Barren,
    Correlation,
    Distribution,
    Group,
    Neighbour,
    Share,
    estimates,
    plain,
)
from semrecall.data import Ids
from semrecall.data.frames import to_library
from semrecall.data.slices import SN, Semantic, Slice
from semrecall.errors import InputError
from semrecall.registry import did_you_mean
from semrecall.space import Space
from semrecall.stats import paired_p, wilson_interval
from semrecall.stats.intervals import RESAMPLES
from semrecall.stats.ranks import (
    RankBiserial,
    clustered_interval,
    rank_biserial,
    resampled_rank_biserial,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["Analysis", "Found"]

PERCENTILES = (5, 10, 25, 50, 75, 90, 95)
#: Ranks are shown in so many bands.
_BANDS = 10
#: A query's own test counts as significant below this.
ALPHA = 0.05


@dataclass(frozen=True)
class Found:
    """What a run found: which of the neighbours (n, w), and recall and srecall, (n,) each."""

    neighbours: NDArray[np.bool_]
    recall: Array
    srecall: Array


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """What the exact neighbours of n queries are worth. Made by `analyse`.

    queries: ids of the queries analysed, (n,). left_out: {reason: count} of the others.
    k, rel: so many neighbours; relevant from this grade.
    space: of the scores; None where they are not analysed.
    grades: (n, w) of the neighbours, nearest first; NaN is unjudged, -inf known to be not
        relevant without a grade. exists: (n, w) which of them there are.
    scores: (n, w) in the unit of the space; None where there are none.
    known_relevant: (n,) how many documents are known to be relevant, among the neighbours or not.
    found: what a run found of them. slices: by column.
    nearest: ids of the first neighbours of each query. texts: by id as text, of queries and of
        documents.
    ungraded: unjudged neighbours that were judged to no grade. notes: what to know of the input.
    seed, confidence: of the intervals.
    """

    queries: Ids
    k: int
    rel: float
    space: Space | None
    grades: Array
    exists: NDArray[np.bool_]
    scores: Array | None
    known_relevant: NDArray[np.int64]
    found: Found | None
    slices: Mapping[str, Slice]
    texts: tuple[Mapping[str, str], Mapping[str, str]]
    nearest: tuple[tuple[str | int, ...], ...]
    left_out: Mapping[str, int]
    ungraded: int = 0
    notes: tuple[str, ...] = ()
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name in ("slices", "left_out"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        number = self.distribution.number.mean
        return (
            f"Analysis({len(self):,} queries, {number:.4g} semantic neighbours of {self.k} "
            f"on average, {len(self.without_relevant):,} queries with none)"
        )

    # -- one value per query ------------------------------------------------------------------

    @cached_property
    def relevant(self) -> NDArray[np.bool_]:
        """Which neighbours are semantic, (n, w)."""
        return self.grades >= self.rel

    @cached_property
    def other(self) -> NDArray[np.bool_]:
        """Which neighbours are known not to be relevant, (n, w)."""
        return self.exists & ~np.isnan(self.grades) & ~self.relevant

    @cached_property
    def semantic(self) -> NDArray[np.int64]:
        """How many semantic neighbours each query has, (n,)."""
        return _count(self.relevant)

    @cached_property
    def judged(self) -> NDArray[np.int64]:
        """How many neighbours of each query are judged, (n,)."""
        return self.semantic + _count(self.other)

    @cached_property
    def neighbours(self) -> NDArray[np.int64]:
        """How many neighbours each query has, at most k, (n,)."""
        return _count(self.exists)

    @cached_property
    def unjudged(self) -> NDArray[np.int64]:
        """How many neighbours of each query nobody has graded, (n,)."""
        return self.neighbours - self.judged

    @cached_property
    def semantic_score(self) -> Array:
        """Mean score of the semantic neighbours of each query, (n,); NaN where it has none."""
        return self._mean_score(self.relevant)

    @cached_property
    def other_score(self) -> Array:
        """Mean score of the judged others of each query, (n,); NaN where it has none."""
        return self._mean_score(self.other)

    @cached_property
    def delta(self) -> Array:
        """How much nearer semantic neighbours are, by mean score, (n,); above 0 is nearer."""
        apart = self.semantic_score - self.other_score
        return apart if self.space is None or self.space.higher_is_nearer else -apart

    @cached_property
    def drop(self) -> Array:
        """Score of the nearest neighbour to that of the farthest, (n,), at least 0."""
        if self.scores is None:
            return self._blank
        high = np.max(self.scores, axis=1, where=self.exists, initial=-np.inf)
        low = np.min(self.scores, axis=1, where=self.exists, initial=np.inf)
        several = self.neighbours > 1
        return np.asarray(np.subtract(high, low, out=self._blank, where=several))

    @cached_property
    def relative(self) -> Array:
        """Delta as a share of the drop, (n,); NaN where scores do not fall."""
        return np.asarray(np.divide(self.delta, self.drop, out=self._blank, where=self.drop > 0))

    @cached_property
    def tests(self) -> tuple[RankBiserial, ...]:
        """The rank-biserial correlation of each query; NaN where it lacks one of the kinds."""
        near = self._closeness
        return tuple(
            rank_biserial(values[yes], values[no])
            for values, yes, no in zip(near, self.relevant, self.other, strict=True)
        )

    @cached_property
    def r(self) -> Array:
        """Rank-biserial correlation of score and relevance within each query, (n,)."""
        return np.array([test.r for test in self.tests], dtype=np.float64)

    @cached_property
    def _closeness(self) -> Array:
        """Scores turned so that higher is nearer, (n, w)."""
        if self.scores is None or self.space is None:
            return np.full(self.exists.shape, np.nan)
        return -self.space.sort_key(self.scores)

    def _mean_score(self, these: NDArray[np.bool_]) -> Array:
        if self.scores is None:
            return self._blank
        sums = np.sum(self.scores, axis=1, where=these)
        sizes = _count(these)
        means = np.divide(sums, sizes, out=self._blank, where=sizes > 0)
        # The mean of equal scores is that score, so that ties have a delta of exactly 0.
        low = np.min(self.scores, axis=1, where=these, initial=np.inf)
        high = np.max(self.scores, axis=1, where=these, initial=-np.inf)
        return np.asarray(np.minimum(np.maximum(means, low), high))

    @property
    def _blank(self) -> Array:
        """No value for any query, (n,)."""
        return np.full(len(self), np.nan)

    # -- over queries -------------------------------------------------------------------------

    @cached_property
    def distribution(self) -> Distribution:
        """How many semantic neighbours queries have: the paper's Figures 2 and 6."""
        number = estimates([self.semantic.astype(float)], self.seed, self.confidence)[0]
        counts = np.bincount(self.semantic, minlength=self.k + 1)
        n = len(self)
        some = self.semantic if n else np.array([np.nan])
        return Distribution(
            number=number,
            least=number.mean,
            most=float(np.sum(self.semantic + self.unjudged) / n) if n else math.nan,
            sd=float(np.std(self.semantic, ddof=1)) if n > 1 else math.nan,
            percentiles={p: float(np.percentile(some, p)) for p in PERCENTILES},
            counts=counts,
            cumulative=np.cumsum(counts) / n if n else np.full(self.k + 1, np.nan),
        )

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All queries, then groups by number of semantic neighbours: the paper's Table 2."""
        semantic = Semantic(self.k, self.rel, self.semantic, self.judged)
        rows = [self._group("", "", np.ones(len(self), dtype=bool))]
        for (low, high), label in zip(semantic.bounds, semantic.labels, strict=True):
            inside = (self.semantic >= low) & (self.semantic <= high)
            rows.append(self._group(SN, label, inside, (low, high)))
        return tuple(rows)

    def by(self, column: str) -> tuple[Group, ...]:
        """The groups of a slice. Raises InputError for a column that was not asked for."""
        if column == SN:
            return self.groups[1:]
        if column not in self.slices:
            raise InputError(
                f"not sliced by {column!r}", hint=did_you_mean(column, [SN, *self.slices])
            )
        part = self.slices[column]
        return tuple(self._group(column, group, part.mask(group)) for group in part.groups)

    def _group(
        self,
        column: str,
        group: str,
        mask: NDArray[np.bool_],
        bounds: tuple[int, int] | None = None,
    ) -> Group:
        judged = np.divide(self.judged, self.neighbours)
        columns = [self.semantic.astype(float), judged, self.semantic_score, self.other_score]
        columns += [self.delta, self.drop, self.relative, self.r]
        if self.found is not None:
            columns += [self.found.recall, self.found.srecall]
        values = estimates([c[mask] for c in columns], self.seed, self.confidence)
        return Group(
            column,
            group,
            int(np.count_nonzero(mask)),
            self._share(mask, bounds),
            int(self.semantic[mask].sum()),
            int((self.judged - self.semantic)[mask].sum()),
            int(self.unjudged[mask].sum()),
            *values,
        )

    def _share(self, mask: NDArray[np.bool_], bounds: tuple[int, int] | None) -> Share:
        if len(self) == 0:
            return Share(*[math.nan] * 5)
        value = float(np.count_nonzero(mask) / len(self))
        low, high = wilson_interval(mask, confidence=self.confidence)
        if bounds is None:
            return Share(value, low, high, math.nan, math.nan)
        fewest, most = self.semantic, self.semantic + self.unjudged
        surely = (fewest >= bounds[0]) & (most <= bounds[1])
        maybe = (fewest <= bounds[1]) & (most >= bounds[0])
        return Share(value, low, high, float(np.mean(surely)), float(np.mean(maybe)))

    @cached_property
    def correlation(self) -> Correlation:
        """How far the score tells semantic neighbours from others."""
        within = estimates([self.r], self.seed, self.confidence)[0]
        own = [test for test in self.tests if not math.isnan(test.r)]
        near, yes, no = self._closeness, self.relevant, self.other
        if self.scores is None:
            yes = no = np.zeros(self.exists.shape, dtype=bool)
        pooled = rank_biserial(near[yes], near[no])
        rows = np.broadcast_to(np.arange(len(self))[:, None], near.shape)
        drawn = resampled_rank_biserial(
            near[yes | no], yes[yes | no], rows[yes | no], len(self), seed=self.seed
        )
        low, high = clustered_interval(drawn, len(self), confidence=self.confidence)
        return Correlation(
            within=within,
            p=float(paired_p(self.r[None, :], seed=self.seed)[0]) if len(self) else math.nan,
            positive=_mean([test.r > 0 for test in own]),
            significant=_mean([test.p < ALPHA for test in own]),
            pooled=pooled.r,
            pooled_low=low,
            pooled_high=high,
            pooled_p=pooled.p,
            semantic_pairs=pooled.first,
            other_pairs=pooled.second,
        )

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """How relevance falls with rank, in ten bands of ranks (fewer below k = 10)."""
        edges = np.unique(np.ceil(np.arange(_BANDS + 1) * self.k / _BANDS - 1e-9).astype(int))
        return tuple(self._band(start, stop) for start, stop in itertools.pairwise(edges.tolist()))

    def _band(self, start: int, stop: int) -> Band:
        part = slice(start, stop)
        exists, yes, no = self.exists[:, part], self.relevant[:, part], self.other[:, part]
        pairs, relevant, judged = _count(exists), _count(yes), _count(yes | no)
        columns = [_ratio(relevant, judged)]
        if self.found is not None:
            found = self.found.neighbours[:, part]
            columns += [
                _ratio(_count(found & exists), pairs),
                _ratio(_count(found & yes), relevant),
            ]
        values = estimates(columns, self.seed, self.confidence)
        return Band(
            start + 1,
            stop,
            values[0],
            _mean(_ratio(relevant, pairs)),
            _mean(_ratio(relevant + pairs - judged, pairs)),
            int(pairs.sum()),
            int(judged.sum()),
            *values[1:],
        )

    @cached_property
    def without_relevant(self) -> tuple[Barren, ...]:
        """Queries with no relevant neighbour, for inspection: the best judged ones first."""
        rows = np.flatnonzero(self.semantic == 0)
        rows = rows[np.argsort(self.unjudged[rows], kind="stable")]
        return tuple(self._barren(row) for row in rows.tolist())

    def _barren(self, row: int) -> Barren:
        queries, documents = self.texts
        places = np.flatnonzero(self.exists[row]).tolist()
        nearest = tuple(
            Neighbour(
                document,
                place + 1,
                math.nan if self.scores is None else float(self.scores[row, place]),
                _finite(float(self.grades[row, place])),
                bool(self.other[row, place]),
                documents.get(str(document), ""),
            )
            for document, place in zip(self.nearest[row], places, strict=False)
        )
        query = self.queries[row]
        return Barren(
            query,
            queries.get(str(query), ""),
            int(self.judged[row]),
            int(self.unjudged[row]),
            int(self.known_relevant[row]),
            nearest,
        )

    # -- as data ------------------------------------------------------------------------------

    def per_query(self) -> list[dict[str, Any]]:
        """One row per query: counts, scores, delta, drop, r and p, and its columns."""
        values: dict[str, Any] = {
            "neighbours": self.neighbours,
            "judged": self.judged,
            "semantic": self.semantic,
            "known_relevant": self.known_relevant,
            "semantic_score": self.semantic_score,
            "other_score": self.other_score,
            "delta": self.delta,
            "drop": self.drop,
            "relative": self.relative,
            "r": self.r,
            "p": np.array([test.p for test in self.tests], dtype=np.float64),
        }
        if self.found is not None:
            values |= {"recall": self.found.recall, "srecall": self.found.srecall}
        lists = {name: column.tolist() for name, column in values.items()}
        lists |= {column: part.labels for column, part in self.slices.items()}
        return [
            {"query_id": query, **{name: column[row] for name, column in lists.items()}}
            for row, query in enumerate(self.queries)
        ]

    def to_frame(self, library: str = "pandas") -> Any:
        """The rows of `per_query` as a frame: "pandas", "polars" or "arrow"."""
        import pyarrow as pa

        rows = self.per_query()
        names = list(rows[0]) if rows else ["query_id"]
        columns = {name: [row[name] for row in rows] for name in names if name != "query_id"}
        return to_library(pa.table({"query_id": self.queries.to_arrow(), **columns}), library)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the rows per query as plain mappings and lists, for JSON."""
        return {
            "k": self.k,
            "rel": self.rel,
            "space": None if self.space is None else str(self.space),
            "queries": len(self),
            "left_out": dict(self.left_out),
            "pairs": int(self.neighbours.sum()),
            "unjudged_pairs": int(self.unjudged.sum()),
            "ungraded_pairs": self.ungraded,
            "distribution": plain(self.distribution),
            "groups": plain(self.groups),
            "slices": {column: plain(self.by(column)) for column in self.slices},
            "correlation": plain(self.correlation),
            "bands": plain(self.bands),
            "without_relevant": plain(self.without_relevant),
            "notes": self.remarks(),
            "seed": self.seed,
            "confidence": self.confidence,
            "resamples": RESAMPLES,
        }

    def remarks(self) -> list[str]:
        """What to know before using the numbers, a sentence each."""
        from semrecall.analysis.text import remarks

        return remarks(self)

    def to_html(self, path: str | Path, **options: Any) -> None:
        """Write one self-contained HTML file; options as in `report.analysis.write_analysis`."""
        # Loaded by name: the report stands above, and reads nothing but an Analysis.
        import importlib

        importlib.import_module("semrecall.report.analysis").write_analysis(self, path, **options)

    def __str__(self) -> str:
        from semrecall.analysis.text import text

        return text(self)


def _count(marked: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.asarray(np.count_nonzero(marked, axis=1), dtype=np.int64)


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> Array:
    blank = np.full(len(part), np.nan)
    return np.asarray(np.divide(part, whole, out=blank, where=whole > 0))


def _finite(grade: float) -> float:
    """A grade; NaN for "known not to be relevant without a grade"."""
    return grade if math.isfinite(grade) else math.nan


def _mean(values: Any) -> float:
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return math.fsum(known) / len(known) if len(known) else math.nan
