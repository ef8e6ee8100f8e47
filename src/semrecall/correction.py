"""correct(): semantic recall by a judge's labels, once people have labelled some of the pairs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Judgments, Pairs, Run
from semrecall.data.ids import unify
from semrecall.errors import InputError, MismatchError
from semrecall.measures import Measure, Problem, align, parse
from semrecall.measures.pairs import Neighbours, neighbour_values, neighbours
from semrecall.stats.correction import (
    Estimate,
    Rates,
    pair_corrected,
    query_corrected,
    rate_corrected,
    undefined,
)
from semrecall.stats.sampled import sampled_pooled, settled_values
from semrecall.text import number, plural, share, shortened, wrapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["METHODS", "Correction", "correct", "correct_problem", "with_pairs"]

#: Name -> what it is called where results are shown.
METHODS: dict[str, str] = {
    "queries": "whole queries labelled at random (prediction-powered inference)",
    "pairs": "pairs labelled with recorded probabilities (difference estimator)",
    "rates": "the judge's false positive rate",
    "labels": "the labels alone, without a judge",
}
#: Bands of rank with false positive rates of their own need so many labels each.
_IRRELEVANT_A_BAND, _RELEVANT_A_BAND, _BANDS = 30, 10, 3
_ADVICE = (
    "label all neighbours of queries drawn at random, or pairs drawn with recorded probabilities: "
    "semrecall plan draws both"
)


@dataclass(frozen=True, eq=False, repr=False)
class Correction:
    """Semantic recall as people see it, from the labels of a judge and some of people.

    pooled: relevant neighbours found over all of them, over all queries together. mean: the mean
        over the queries that have a relevant neighbour. A method may give only one of them; the
        other is NaN with a reason.
    judge_pooled, judge_mean: the same by the judge's labels as they are; NaN without a judge.
    method: one of METHODS. labels: grades of people used; queries: how many queries have any.
    pairs: how many neighbours there are. rates: the judge's error rates by band of ranks; bands:
        the last rank of each. tuning: how far the judge's labels count (lambda), for the mean.
    """

    run: str
    measure: str
    method: str
    pooled: Estimate
    mean: Estimate
    judge_pooled: float
    judge_mean: float
    labels: int
    queries: int
    pairs: int
    confidence: float
    rates: Rates | None = None
    bands: tuple[int, ...] = ()
    tuning: float = math.nan
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Correction({self.measure} of {self.run}: pooled {number(self.pooled.value)}, mean "
            f"{number(self.mean.value)}, by {self.method})"
        )

    @property
    def title(self) -> str:
        """What is shown, in a line."""
        of_run = f"{self.measure} of {shortened(self.run)}"
        if math.isnan(self.judge_pooled):
            return f"{of_run}, estimated from a sample of labels"
        return f"{of_run}, corrected by people's labels"

    def rows(self) -> list[dict[str, Any]]:
        """A mapping for the pooled value and one for the mean over queries."""
        return [
            {
                "run": self.run,
                "measure": self.measure,
                "over": over,
                "judge": judge,
                "corrected": found.value,
                "low": found.low,
                "high": found.high,
                "label_low": found.label_low,
                "label_high": found.label_high,
                "method": self.method,
                "labels": self.labels,
                "reason": found.reason,
            }
            for over, judge, found in (
                ("pooled", self.judge_pooled, self.pooled),
                ("mean over queries", self.judge_mean, self.mean),
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain mappings and lists, for JSON."""
        rates = self.rates
        return {
            "run": self.run,
            "measure": self.measure,
            "method": self.method,
            "judge": {"pooled": self.judge_pooled, "mean": self.judge_mean},
            "pooled": asdict(self.pooled),
            "mean": asdict(self.mean),
            "labels": self.labels,
            "queries": self.queries,
            "pairs": self.pairs,
            "confidence": self.confidence,
            "tuning": self.tuning,
            "rates": None
            if rates is None
            else [
                {
                    "last_rank": last,
                    "false_positive": float(rates.false_positive[band]),
                    "false_positive_se": float(rates.false_positive_se[band]),
                    "true_positive": float(rates.true_positive[band]),
                    "irrelevant": int(rates.irrelevant[band]),
                    "relevant": int(rates.relevant[band]),
                }
                for band, last in enumerate(self.bands)
            ],
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """What there is to say about it, a sentence each."""
        lines = [
            f"by {METHODS[self.method]}: {plural(self.labels, 'label')} of "
            f"{plural(self.pairs, 'neighbour')}, in {plural(self.queries, 'query', 'queries')}"
        ]
        for over, found in (("pooled", self.pooled), ("mean over queries", self.mean)):
            if found.reason:
                lines.append(f"{over}: no estimate, {found.reason}")
            lines += [f"{over}: {note}" for note in found.notes]
        lines += self._rate_notes()
        if not math.isnan(self.tuning) and not math.isnan(self.judge_mean):
            lines.append(f"in the mean the judge's labels count {self.tuning:.2f} (lambda)")
        lines += self.remarks
        return lines

    def _rate_notes(self) -> list[str]:
        if self.rates is None:
            return []
        lines, first = [], 1
        for band, last in enumerate(self.bands):
            alpha, se = self.rates.false_positive[band], self.rates.false_positive_se[band]
            lines.append(
                f"ranks {first} to {last}: the judge calls {share(float(alpha))} of what is "
                f"irrelevant to people relevant (standard error {share(float(se))}, "
                f"{plural(int(self.rates.irrelevant[band]), 'label')})"
            )
            first = last + 1
        return lines

    def __str__(self) -> str:
        from semrecall.text import aligned, cell

        confidence = f"{self.confidence * 100:.4g}%"
        with_judge = not math.isnan(self.judge_pooled)
        heads = ["", *(["judge"] if with_judge else []), "corrected" if with_judge else "estimate"]
        heads += [f"{confidence} interval", "of these queries"]
        table = [heads]
        for row in self.rows():
            judge = [cell(row["judge"])] if with_judge else []
            table.append(
                [row["over"], *judge, cell(row["corrected"]), _span(row["low"], row["high"]),
                 _span(row["label_low"], row["label_high"])]
            )  # fmt: skip
        lines = [self.title]
        lines += aligned(table, [False] + [True] * (len(heads) - 1))
        notes = [line for note in self.notes() for line in wrapped(note)]
        return "\n".join([*lines, "", *notes])


def correct(
    run: Run,
    truth: Run,
    machine_judgments: Judgments | None,
    human_judgments: Judgments,
    measure: str | Measure | None = None,
    *,
    method: str = "auto",
    human_rel: float | None = None,
    confidence: float = 0.95,
) -> Correction:
    """Semantic recall of a run as people would see it, from a judge's labels and some of people's.

    machine_judgments: labels of a judge for the exact neighbours; None estimates from the labels
        in `human_judgments` alone.
    human_judgments: of all neighbours of queries drawn at random; or of pairs drawn with
        probabilities, in the detail `probability` (a pair without a grade there was drawn, and
        not labelled).
    measure: srecall@k, also with gain=grade; by default at the depth of run and truth.
    method: "auto" chooses by what the labels are: "queries" or "pairs", and without a judge
        "labels"; "rates" is for the asking. See METHODS and docs/correction.md.
    human_rel: the least relevant grade of people, where it is not that of the measure.

    Raises InputError for labels that are neither, such as those of a disagreement queue, and for
    probabilities that are none; MismatchError where no label is for a neighbour.
    """
    wanted = _measure(measure, run, truth)
    problem = align(run, truth)
    return correct_problem(
        problem,
        truth,
        machine_judgments,
        human_judgments,
        wanted,
        run_name=run.name or "run",
        method=method,
        human_rel=human_rel,
        confidence=confidence,
    )


def correct_problem(
    problem: Problem,
    truth: Run,
    machine: Judgments | None,
    human: Judgments,
    measure: str | Measure,
    *,
    run_name: str = "run",
    method: str = "auto",
    human_rel: float | None = None,
    confidence: float = 0.95,
) -> Correction:
    """As `correct`, for a run that is laid beside its truth already."""
    wanted = parse(measure)
    if wanted.definition.name != "srecall" or wanted.k is None:
        raise InputError(f"{wanted} is not corrected; expected srecall, such as srecall@100")
    if method not in ("auto", *METHODS):
        raise InputError(f"method is {method!r}; expected auto, {', '.join(METHODS)}")
    if (machine is None) != (method == "labels") and method != "auto":
        raise InputError(
            f"the method {method!r} {'needs' if machine is None else 'takes no'} labels of a judge"
        )
    pairs = neighbours(problem, wanted.k)
    labels = _Labels.of(truth, machine, human, pairs, wanted, human_rel)
    chosen = labels.method(method)
    found = _Work(pairs, labels, confidence)
    pooled, mean, extra = getattr(found, f"by_{chosen}")()
    judge = labels.machine
    return Correction(
        run=run_name,
        measure=str(wanted),
        method=chosen,
        pooled=pooled,
        mean=mean,
        judge_pooled=math.nan if judge is None else _pooled(judge, pairs.found),
        judge_mean=math.nan if judge is None else found.mean_of(judge),
        labels=int(np.count_nonzero(~np.isnan(labels.human))),
        queries=len(np.unique(pairs.queries[labels.asked])),
        pairs=len(pairs),
        confidence=confidence,
        remarks=tuple(labels.remarks),
        **extra,
    )


def with_pairs(labels: Judgments, pairs: Pairs) -> Judgments:
    """Labels of pairs that were drawn: with their probabilities, and NaN where a label lacks.

    Labels of other pairs are left out.
    """
    if pairs.probabilities is None:
        raise InputError(
            "the pairs record no probability with which they were picked",
            hint="write them with semrecall plan or semrecall pool",
        )
    columns = [
        unify(pairs.queries, labels.queries),
        unify(pairs.documents, labels.documents),
    ]
    wanted, have = (list(zip(*(c[side].tolist() for c in columns), strict=True)) for side in (0, 1))
    place = {pair: at for at, pair in enumerate(have)}
    at = np.array([place.get(pair, -1) for pair in wanted], dtype=np.int64)
    if not (at >= 0).any():
        raise MismatchError(
            f"none of the {len(labels):,} labels is of one of the {len(pairs):,} pairs"
        )
    return Judgments(
        pairs.queries,
        pairs.documents,
        np.append(labels.grades, np.nan)[at],
        {"probability": pairs.probabilities},
        labels.name,
    )


def _measure(measure: str | Measure | None, run: Run, truth: Run) -> Measure:
    if measure is not None:
        return parse(measure)
    k = min(run.depth, truth.depth)
    if k < 1:
        raise InputError("the run or the truth is empty; expected results and exact neighbours")
    return parse(f"srecall@{k}")


def _span(low: float, high: float) -> str:
    return "-" if math.isnan(low) else f"{number(low)} to {number(high)}"


def _pooled(values: Array, found: Mask) -> float:
    known = np.nan_to_num(values)
    return float(known @ found / known.sum()) if known.sum() > 0 else math.nan


# -- what the labels are --------------------------------------------------------------------------


@dataclass
class _Labels:
    """What is said of each pair (m,).

    machine: the judge's label, NaN where it gave none; None without a judge. human: the people's,
    NaN where there is none. asked: pairs given to people. chances: with which probability, 0 where
    not asked; None where that was not recorded.
    """

    machine: Array | None
    human: Array
    asked: Mask
    chances: Array | None
    whole: Mask
    queries: NDArray[np.int64]
    graded: bool
    remarks: list[str]

    @classmethod
    def of(
        cls,
        truth: Run,
        machine: Judgments | None,
        human: Judgments,
        pairs: Neighbours,
        measure: Measure,
        human_rel: float | None,
    ) -> _Labels:
        chances = _probabilities(human)
        if len(human) == 0:
            raise InputError("there is no label of people; expected at least one", hint=_ADVICE)
        asked = ~np.isnan(neighbour_values(truth, human, pairs, np.ones(len(human))))
        if not asked.any():
            raise MismatchError(
                f"none of the {len(human):,} pairs labelled by people is one of the first "
                f"{measure.k:,} exact neighbours of its query: the labels have documents like "
                f"{human.documents[0]!r}, the truth like {truth.documents[0]!r}"
            )
        graded = measure.settings.get("gain", "count") == "grade"
        theirs = None
        if machine is not None:
            theirs = _relevance(neighbour_values(truth, machine, pairs), measure.rel, graded)
        rel = measure.rel if human_rel is None else human_rel
        ours = _relevance(neighbour_values(truth, human, pairs), rel, graded)
        found = None
        if chances is not None:
            found = np.nan_to_num(neighbour_values(truth, human, pairs, chances))
        gaps = np.bincount(pairs.queries, ~asked, pairs.n)
        some = np.bincount(pairs.queries, asked, pairs.n) > 0
        remarks = []
        without = int((asked & np.isnan(ours)).sum())
        if without:
            remarks.append(f"{plural(without, 'pair')} given to people have no grade, left out")
        if rel != measure.rel:
            remarks.append(f"relevant to people from grade {rel:g}")
        return cls(theirs, ours, asked, found, some & (gaps == 0), pairs.queries, graded, remarks)

    def method(self, wanted: str) -> str:
        """The method: as wanted, or what the labels allow. Raises InputError where they do not."""
        if self.machine is None:
            if self.chances is None:
                self._require_whole("labels alone")
            return "labels"
        if wanted == "auto":
            wanted = "queries" if self.all_whole and self._even else "pairs"
            if wanted == "pairs" and self.chances is None:
                self._require_whole("labels")
        if wanted == "queries":
            self._require_whole("whole queries")
        if wanted == "pairs" and self.chances is None:
            raise InputError(
                "the labels of people record no probability with which their pairs were picked",
                hint=_ADVICE,
            )
        if wanted == "rates" and self.chances is None:
            self._require_whole("labels")
        if wanted == "rates" and self.graded:
            raise InputError("false positive rates are of labels, not of grades; use gain=count")
        return wanted

    @property
    def drawn(self) -> Mask:
        """Queries (n,) with a pair that was given to people."""
        return np.bincount(self.queries, self.asked, len(self.whole)) > 0

    @property
    def all_whole(self) -> bool:
        return bool(self.whole[self.drawn].all())

    @property
    def _even(self) -> bool:
        """Whether all pairs had one chance, as those of queries drawn at random have."""
        return self.chances is None or bool(np.ptp(self.chances[self.asked]) <= 1e-9)

    def _require_whole(self, what: str) -> None:
        if self.all_whole:
            return
        drawn, partly = self.drawn, self.drawn & ~self.whole
        raise InputError(
            f"the {what} cannot be used for an estimate: {int(partly.sum()):,} of "
            f"{plural(int(drawn.sum()), 'query', 'queries')} labelled by people lack labels for "
            "some of their neighbours, and no probability says how the labelled pairs were picked. "
            "Pairs from a disagreement queue, or picked for any other reason, are not like the "
            "rest",
            hint=_ADVICE,
        )


def _relevance(grades: Array, rel: float, graded: bool) -> Array:
    """1 or the grade where it is relevant, 0 where not, NaN without a grade."""
    gain = np.maximum(grades, 0.0) if graded else np.ones(len(grades))
    return np.where(np.isnan(grades), np.nan, np.where(grades >= rel, gain, 0.0))


def _probabilities(human: Judgments) -> Array | None:
    """The recorded probabilities, one a judgment; None where there are none at all."""
    column = human.details.get("probability")
    if column is None:
        return None
    try:
        chances = np.array([math.nan if v is None else float(v) for v in column.tolist()])
    except (TypeError, ValueError) as error:
        raise InputError(f"the column probability is no column of numbers ({error})") from error
    if len(chances) and bool(np.isnan(chances).all()):
        return None
    bad = np.flatnonzero(~((chances > 0) & (chances <= 1)))
    if len(bad):
        shown = "; ".join(
            f"row {at + 1:,} (query {human.queries[at]!r}, document {human.documents[at]!r}): "
            f"{chances[at]:g}"
            for at in bad[:3].tolist()
        )
        raise InputError(
            f"{plural(len(bad), 'label')} of people have no usable probability; expected above 0, "
            f"at most 1: {shown}{'; ...' if len(bad) > 3 else ''}",
            hint="it is the chance with which a pair was picked, as semrecall plan records it",
        )
    return chances


# -- the estimates --------------------------------------------------------------------------------

_Found = tuple[Estimate, Estimate, dict[str, Any]]


@dataclass
class _Work:
    """The estimates of pooled value and mean by each method, and what else it tells."""

    pairs: Neighbours
    labels: _Labels
    confidence: float

    @property
    def asking(self) -> Mask:
        """Queries (n,) that have a neighbour; of the others there is nothing to estimate."""
        return np.asarray(self.pairs.inside.any(axis=1))

    def by_queries(self) -> _Found:
        """People labelled all neighbours of some queries."""
        whole = self.labels.whole[self.asking]
        ours, theirs = self.labels.human, self.labels.machine
        assert theirs is not None
        pooled, _ = query_corrected(
            _of_queries(self._sums(ours), whole), self._sums(theirs), confidence=self.confidence
        )
        mean, slope = query_corrected(
            _of_queries(_values(self._sums(ours)), whole),
            _values(self._sums(theirs)),
            confidence=self.confidence,
        )
        return pooled, mean, {"tuning": slope}

    def by_pairs(self) -> _Found:
        """People labelled pairs drawn with probabilities."""
        machine = self.labels.machine
        assert machine is not None
        self._check_weights()
        pooled = pair_corrected(
            np.nan_to_num(machine),
            self.pairs.found,
            self.pairs.queries,
            self.labels.human,
            self._chances(),
            confidence=self.confidence,
        )
        reason = "pairs correct the pooled value; a mean over queries needs whole queries labelled"
        return pooled, undefined(pooled.n, reason), {}

    def by_rates(self) -> _Found:
        """People's labels tell how often the judge is wrong."""
        machine, human = self.labels.machine, self.labels.human
        assert machine is not None
        use = ~np.isnan(machine)
        weights = None
        if self.labels.chances is not None and not self.labels.all_whole:
            self._check_weights()
            weights = 1 / np.maximum(self._chances(), np.finfo(float).tiny)
        band, edges = _bands(self.pairs.ranks, human)
        rates = rate_corrected(
            machine[use],
            self.pairs.found[use],
            self.pairs.queries[use],
            human[use],
            weights=None if weights is None else weights[use],
            bands=band[use],
            confidence=self.confidence,
        )
        reason = "error rates correct the pooled value; a mean over queries needs whole queries"
        return (
            rates.estimate,
            undefined(rates.estimate.n, reason),
            {"rates": rates, "bands": edges},
        )

    def by_labels(self) -> _Found:
        """Labels alone."""
        labels, pairs = self.labels, self.pairs
        chances = np.ones(len(pairs)) if labels.chances is None else labels.chances
        settled = settled_values(pairs.found, pairs.queries, labels.human, labels.asked, pairs.n)
        open_ = int((settled.drawn & ~settled.known).sum())
        even = labels.chances is None or labels._even
        mean = undefined(
            int(settled.drawn.sum()),
            f"the labels of {open_:,} of {plural(int(settled.drawn.sum()), 'query', 'queries')} do "
            "not settle what was found of each"
            if open_
            else "the queries were drawn with different probabilities",
        )
        if not open_ and even:
            defined = ~np.isnan(settled.share)
            table = np.stack([np.nan_to_num(settled.share), defined], axis=1).astype(np.float64)
            table[~settled.known] = np.nan
            table = table[self.asking]
            nothing = np.zeros_like(table)
            mean, _ = query_corrected(table, nothing, confidence=self.confidence)
        if labels.all_whole and even:
            table = _of_queries(self._sums(labels.human), labels.whole[self.asking])
            pooled, _ = query_corrected(table, np.zeros_like(table), confidence=self.confidence)
            return pooled, mean, {}
        if not open_ and even and not self._stand_for_all():
            reason = "labels stop where a query is settled, so that the pooled value stays open"
            return undefined(mean.n, reason), mean, {}
        if not self._stand_for_all():
            return undefined(int(settled.drawn.sum()), self._short_of()), mean, {}
        pooled = sampled_pooled(
            pairs.found, pairs.queries, labels.human, chances, confidence=self.confidence
        )
        return pooled, mean, {}

    def mean_of(self, values: Array) -> float:
        """The mean over queries by these labels."""
        table = _values(self._sums(values))
        return float(table[:, 0].sum() / table[:, 1].sum()) if table[:, 1].any() else math.nan

    def _sums(self, values: Array) -> Array:
        """Relevant neighbours found, and all of them, of each query, (n, 2)."""
        known, n = np.nan_to_num(values), self.pairs.n
        hit = np.bincount(self.pairs.queries, known * self.pairs.found, n)
        sums = np.stack([hit, np.bincount(self.pairs.queries, known, n)], axis=1)
        return np.asarray(sums[self.asking])

    def _chances(self) -> Array:
        """Probabilities to be labelled: those to be drawn, times the share of them labelled."""
        labels = self.labels
        assert labels.chances is not None
        chances = labels.chances.copy()
        for side in (True, False):
            drawn = labels.asked & (self.pairs.found == side)
            done = drawn & ~np.isnan(labels.human)
            if done.any() and done.sum() < drawn.sum():
                chances[drawn] *= (1 / chances[done]).sum() / (1 / chances[drawn]).sum()
        return np.minimum(chances, 1.0)

    def _weights(self) -> tuple[float, float]:
        """(for how many neighbours the labels stand, how far that may be off by chance)."""
        chances = self.labels.chances
        if chances is None:
            return float(len(self.pairs)), 0.0
        drawn = chances[self.labels.asked]
        return float((1 / drawn).sum()), math.sqrt(float(((1 - drawn) / drawn**2).sum()))

    def _stand_for_all(self) -> bool:
        total, chance = self._weights()
        return abs(total - len(self.pairs)) <= 5 * chance + 0.02 * len(self.pairs)

    def _short_of(self) -> str:
        return (
            f"by their probabilities the pairs given to people stand for {self._weights()[0]:,.0f} "
            f"neighbours, not for all {len(self.pairs):,}"
        )

    def _check_weights(self) -> None:
        if not self._stand_for_all():
            raise InputError(
                f"{self._short_of()}: they were drawn from other pairs, or some that were drawn "
                "are not in the file",
                hint="keep pairs that have no label yet in the file, without a grade; draw pairs "
                "with semrecall plan for the same truth and k",
            )


def _of_queries(table: Array, known: Mask) -> Array:
    """The rows (n, 2) of these queries; NaN for all others."""
    return np.where(known[:, None], table, np.nan)


def _values(sums: Array) -> Array:
    """Each query's own share and whether it has one, (n, 2), from its two sums."""
    defined = sums[:, 1] > 0
    share_ = np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=defined)
    return np.stack([share_, defined], axis=1).astype(np.float64)


def _bands(ranks: NDArray[np.int64], human: Array) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """(the band of each pair (m,), the last rank of each): as many as the labels allow."""
    last = int(ranks.max(initial=1))
    irrelevant, relevant = ranks[human == 0], ranks[human == 1]
    for count in range(_BANDS, 1, -1):
        if len(irrelevant) < count * _IRRELEVANT_A_BAND:
            continue
        inner = np.quantile(irrelevant, np.arange(1, count) / count, method="lower")
        edges = np.unique(np.append(inner, last)).astype(np.int64)
        sizes = [
            np.bincount(np.searchsorted(edges, part), minlength=count)[:count]
            for part in (irrelevant, relevant)
        ]
        enough = (sizes[0] >= _IRRELEVANT_A_BAND) & (sizes[1] >= _RELEVANT_A_BAND)
        if len(edges) == count and enough.all():
            return np.searchsorted(edges, ranks), tuple(edges.tolist())
    return np.zeros(len(ranks), np.int64), (last,)
