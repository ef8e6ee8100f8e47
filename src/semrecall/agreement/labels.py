"""Labels of several judges side by side: one column a judge, one row a pair."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Judgments, Run
from semrecall.data.ids import concatenate, unify
from semrecall.data.matching import difference
from semrecall.data.rows import row_numbers
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.registry import did_you_mean
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ALMOST_NONE", "Labels", "grades_needed", "side_by_side"]

#: Fewer of the pairs than this are in common: perhaps ids are written in two ways.
ALMOST_NONE = 0.5


@dataclass(frozen=True, eq=False)
class Labels:
    """What m judges say of u distinct pairs of query and document.

    names, rels: of the judges, and from which grade each says relevant. grades: (m, u), NaN where
    a judge gave none. listed: (m, u), whether the judge has the pair at all. queries: (u,) row of
    the pair's query in `query_ids`. documents: (u,). inside: (u,), whether the pair counts for
    agreement; all do unless a truth says which. failures: for each judge, why there is no grade.
    """

    names: tuple[str, ...]
    rels: tuple[float, ...]
    grades: NDArray[np.float64]
    listed: NDArray[np.bool_]
    queries: NDArray[np.int64]
    query_ids: Ids
    documents: Ids
    inside: NDArray[np.bool_]
    failures: tuple[Mapping[str, int], ...]

    @cached_property
    def graded(self) -> NDArray[np.bool_]:
        """Where there is a grade, (m, u)."""
        return ~np.isnan(self.grades)

    @cached_property
    def sides(self) -> NDArray[np.int64]:
        """0 where the judge says relevant, 1 where not, -1 without a grade; (m, u)."""
        rels = np.array(self.rels)[:, None]
        return np.where(self.graded, np.where(self.grades >= rels, 0, 1), -1)

    def judgments(self, grades: NDArray[np.float64], name: str) -> Judgments:
        """Judgments of the pairs with a grade among `grades` (u,)."""
        rows = np.flatnonzero(~np.isnan(grades))
        queries = self.query_ids[self.queries[rows]]
        return Judgments(queries, self.documents[rows], grades[rows], name=name)


def side_by_side(
    judged: Mapping[str, Judgments],
    rels: Sequence[float],
    truth: Run | None = None,
    k: int | None = None,
) -> Labels:
    """The labels of judges by name; `inside` are pairs among the first k of the truth.

    Raises MismatchError where two judges, or the truth and they, have nothing in common.
    """
    for name, one in judged.items():
        if len(one) == 0:
            raise InputError(f"{name} has no judgments")
    parts: list[Any] = list(judged.values())
    beside = [] if truth is None else [truth]
    query_codes = unify(*(part.queries for part in [*parts, *beside]))
    doc_codes = unify(*(part.documents for part in [*parts, *beside]))
    if truth is not None:
        neighbours = truth.valid & _among_first(truth, k)
        query_codes[-1] = query_codes[-1][row_numbers(truth.offsets)][neighbours]
        doc_codes[-1] = doc_codes[-1][neighbours]
    keys = _pair_keys(query_codes, doc_codes)
    numbers = [*keys[: len(parts)]]
    joined = np.concatenate(numbers)
    known, first, inverse = np.unique(joined, return_index=True, return_inverse=True)
    # In the order of first appearance, so that listings follow the files.
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rows = np.split(place[inverse], np.cumsum([len(n) for n in numbers])[:-1])
    grades = np.full((len(parts), len(known)), np.nan)
    listed = np.zeros(grades.shape, dtype=bool)
    for at, (one, row) in enumerate(zip(parts, rows, strict=True)):
        grades[at, row], listed[at, row] = one.grades, True
    inside = np.ones(len(known), dtype=bool)
    if truth is not None:
        inside = np.isin(known[order], keys[-1])
    queries, query_ids = _rows_of_queries(parts, first[order])
    labels = Labels(
        names=tuple(judged),
        rels=tuple(rels),
        grades=grades,
        listed=listed,
        queries=queries,
        query_ids=query_ids,
        documents=concatenate([one.documents for one in parts])[first[order]],
        inside=inside,
        failures=tuple(_failures(one) for one in parts),
    )
    _require_common(judged, labels, truth)
    return labels


def grades_needed(names: Sequence[str], rel: float | Mapping[str, float]) -> tuple[float, ...]:
    """From which grade each judge says relevant; InputError for a name that no judge has."""
    given = dict(rel) if isinstance(rel, Mapping) else dict.fromkeys(names, rel)
    for name in given:
        if name not in names:
            raise InputError(f"rel names no judge {name!r}", hint=did_you_mean(name, names))
    found = tuple(float(given.get(name, 1.0)) for name in names)
    for name, value in zip(names, found, strict=True):
        if not np.isfinite(value):
            raise InputError(f"rel of {name} is {value}; expected a grade")
    return found


def _among_first(truth: Run, k: int | None) -> NDArray[np.bool_]:
    """Which neighbours of the truth (flat) stand among the first k; ties beyond are left out."""
    deep = k if k is not None else truth.k or truth.depth
    if deep < 1 or deep > truth.depth:
        raise InputError(f"k is {deep}, but the truth is only {truth.depth} deep")
    rows = row_numbers(truth.offsets)
    return np.arange(len(rows)) - truth.offsets[:-1][rows] < deep


def _pair_keys(
    queries: Sequence[NDArray[np.int64]], documents: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """A number for each pair, the same for the same pair in every part."""
    lengths = np.cumsum([len(part) for part in queries])[:-1]
    _, query = np.unique(np.concatenate(queries), return_inverse=True)
    distinct, document = np.unique(np.concatenate(documents), return_inverse=True)
    return np.split(query.astype(np.int64) * len(distinct) + document, lengths)


def _rows_of_queries(
    parts: Sequence[Judgments], entries: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Ids]:
    """For each pair the row of its query, and the queries in the order of their pairs."""
    column = concatenate([one.queries for one in parts])[entries]
    _, first, inverse = np.unique(column.codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[inverse], column[first[order]]


def _failures(one: Judgments) -> dict[str, int]:
    """How often there is no grade, by status, else by reason; the most frequent first."""
    rows = np.flatnonzero(np.isnan(one.grades)).tolist()
    columns = [one.details[name] for name in ("status", "reason") if name in one.details]
    why = [next((str(c[at]) for c in columns if _said(c[at])), "no reason given") for at in rows]
    return dict(Counter(why).most_common())


def _said(value: Any) -> bool:
    return value is not None and value == value and bool(str(value).strip())


# -- whether they belong together -----------------------------------------------------------------


def _require_common(judged: Mapping[str, Judgments], labels: Labels, truth: Run | None) -> None:
    """Raise where nothing is shared; warn where little is, and ids differ in a known way."""
    for (a, first), (b, second) in combinations(enumerate(labels.names), 2):
        common = int((labels.listed[a] & labels.listed[b]).sum())
        fewer = int(min(labels.listed[a].sum(), labels.listed[b].sum()))
        if common >= ALMOST_NONE * fewer:
            continue
        what = _explained(judged[first], judged[second])
        if common == 0 and (what or len(labels.names) == 2):
            raise MismatchError(
                f"{first} and {second} have no pair of query and document in common: {first} has "
                f"{_example(judged[first])}, {second} has {_example(judged[second])}",
                hint=what or "are these judgments of the same queries and documents?",
            )
        if what:
            warnings.warn(
                f"{first} and {second} have only {plural(common, 'pair')} in common: {what}",
                SemrecallWarning,
                stacklevel=4,
            )
    if truth is not None and not labels.inside.any():
        first = labels.names[0]
        raise MismatchError(
            "no judged pair is among the exact neighbours: the truth has "
            f"{_example(truth)}, {first} has {_example(judged[first])}",
            hint=_explained(judged[first], truth) or "are truth and judgments of the same data?",
        )


def _explained(left: Judgments, right: Judgments | Run) -> str | None:
    """In what query or document ids differ, where that is known."""
    for what, ours, theirs in (
        ("query ids", left.queries, right.queries),
        ("document ids", left.documents, right.documents),
    ):
        found = difference(ours[~ours.missing], theirs[~theirs.missing])
        if found is not None:
            return f"{what}: {found}"
    return None


def _example(part: Judgments | Run) -> str:
    documents = part.documents[~part.documents.missing]
    document = repr(documents[0]) if len(documents) else "none"
    return f"query {part.queries[0]!r} with document {document}" if len(part) else "nothing"
