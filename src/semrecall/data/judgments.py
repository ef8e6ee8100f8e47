"""Judgments: (query, document) -> grade, with who judged, why, and at what cost."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.data.frames import columns_of, pick_column, to_library
from semrecall.data.ids import Ids, ids, ids_of_rows
from semrecall.data.rows import picked
from semrecall.data.run import DOC_COLUMNS, QUERY_COLUMNS, _numbers
from semrecall.errors import InputError, SemrecallWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Conflicts", "Judgments", "warn_of_several_grades"]

GRADE_COLUMNS = ("grade", "relevance", "rel", "label", "score", "rating", "human")
#: What may be known of a judgment beside its grade.
DETAIL_COLUMNS = (
    "judge",
    "reason",
    "status",
    "time",
    "cost",
    "probability",
    "confidence",
    "origin",
    "flags",
    "subtopics",
)
Conflicts = Literal["error", "max", "first", "last"]


@dataclass(frozen=True, eq=False, repr=False)
class Judgments:
    """Judged (query, document) pairs, distinct, shape (m,) each.

    grades: float64; NaN is "no grade", and then `details["reason"]` may say why. It is never 0.
    details: further columns: judge, reason, status (why there is no grade), time, cost,
        probability (with which the pair was picked for judging), confidence (the judge's own
        probability of its label), origin (the document whose equal text was judged), flags,
        subtopics (JSON text: the grade for each subtopic of the query).
    """

    queries: Ids
    documents: Ids
    grades: NDArray[np.float64]
    details: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        m = len(self.queries)
        lengths = {"document ids": len(self.documents), "grades": len(self.grades)}
        lengths |= {key: len(column) for key, column in self.details.items()}
        for what, found in lengths.items():
            if found != m:
                raise InputError(f"{m:,} query ids but {found:,} {what}")
        gone = self.queries.missing | self.documents.missing
        if gone.any():
            raise InputError(f"judgment {int(np.argmax(gone))} has no query id or no document id")
        if bool(np.isinf(self.grades).any()):
            raise InputError(
                f"judgment {int(np.argmax(np.isinf(self.grades)))} has an infinite grade"
            )
        order, same = _sorted_pairs(self.queries, self.documents)
        if same.any():
            at = order[int(np.argmax(same))]
            raise InputError(
                f"query {self.queries[at]!r}, document {self.documents[at]!r} is judged twice; "
                "expected distinct pairs"
            )
        grades = np.array(self.grades, dtype=np.float64)
        grades.flags.writeable = False
        object.__setattr__(self, "grades", grades)
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @classmethod
    def from_arrays(
        cls,
        query_ids: Any,
        doc_ids: Any,
        grades: Any,
        *,
        conflicts: Conflicts = "error",
        name: str = "",
        subtopic: Any = None,
        **details: Any,
    ) -> Judgments:
        """Judgments from columns of equal length (m,).

        Repeated pairs that agree count once, with a warning; ones that contradict each other are
        an error unless `conflicts` says which to take: "max", "first" or "last".

        subtopic: (m,) which subtopic of the query each grade is for (diversity). A pair then has
            one grade a subtopic, and the highest of them is its own; `details` keep them all.
        """
        queries, documents = ids(query_ids, what="query ids"), ids(doc_ids, what="document ids")
        values = _numbers(grades, "grades")
        if not len(queries) == len(documents) == len(values):
            raise InputError(
                f"{len(queries):,} query ids, {len(documents):,} document ids and "
                f"{len(values):,} grades; expected equally many"
            )
        gone = queries.missing | documents.missing
        if gone.any():
            raise InputError(f"judgment {int(np.argmax(gone))} has no query id or no document id")
        if subtopic is not None:
            keep, values, texts = _by_subtopic(queries, documents, values, subtopic, conflicts)
            kept = {key: np.asarray(column)[keep] for key, column in details.items()}
            return cls(queries[keep], documents[keep], values, kept | {"subtopics": texts}, name)
        keep = _distinct(queries, documents, values, conflicts)
        kept = {key: np.asarray(column)[keep] for key, column in details.items()}
        return cls(queries[keep], documents[keep], values[keep], kept, name)

    @classmethod
    def from_dict(cls, grades: Mapping[Any, Mapping[Any, float]], *, name: str = "") -> Judgments:
        """Judgments from {query id: {document id: grade}}."""
        rows = list(grades.values())
        heads = ids(list(grades), what="query ids")
        lengths = list(map(len, rows))
        queries = Ids(np.repeat(heads.codes, lengths), heads.names)
        values = [grade for row in rows for grade in row.values()]
        return cls.from_arrays(queries, ids_of_rows(rows, "document ids"), values, name=name)

    @classmethod
    def from_frame(
        cls, frame: Any, *, conflicts: Conflicts = "error", name: str = "", grade: str | None = None
    ) -> Judgments:
        """Judgments from a frame with columns query_id, doc_id, grade (or the column `grade`).

        A column subtopic says which subtopic of the query a grade is for.
        """
        columns = columns_of(frame)
        grade_names = GRADE_COLUMNS if grade is None else (grade,)
        if grade is None:
            warn_of_several_grades(columns)
        details = {c: np.asarray(columns[c]) for c in DETAIL_COLUMNS if c in columns}
        return cls.from_arrays(
            pick_column(columns, QUERY_COLUMNS, "query ids"),
            pick_column(columns, DOC_COLUMNS, "document ids"),
            pick_column(columns, grade_names, "grades"),
            conflicts=conflicts,
            name=name,
            subtopic=columns.get("subtopic"),
            **details,
        )

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        queries = len(np.unique(self.queries.codes))
        values, counts = np.unique(self.grades[~np.isnan(self.grades)], return_counts=True)
        shown = ", ".join(f"{v:g}: {c:,}" for v, c in zip(values[:6], counts[:6], strict=True))
        gaps = int(np.isnan(self.grades).sum())
        ungraded = f", {gaps:,} without a grade" if gaps else ""
        return f"Judgments({len(self):,} pairs, {queries:,} queries, grades {{{shown}}}{ungraded})"

    @property
    def query_ids(self) -> NDArray[Any]:
        """Query ids, shape (m,)."""
        return self.queries.array()

    @property
    def doc_ids(self) -> NDArray[Any]:
        """Document ids, shape (m,)."""
        return self.documents.array()

    def replace(self, **changes: Any) -> Judgments:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    def select(self, keep: Any) -> Judgments:
        """Some of the judgments, by position, mask or slice."""
        chosen = picked(len(self), keep)
        return self.replace(
            queries=self.queries[chosen],
            documents=self.documents[chosen],
            grades=self.grades[chosen],
            details={key: column[chosen] for key, column in self.details.items()},
        )

    def to_arrow(self) -> Any:
        """An arrow table: query_id, doc_id, grade (null where there is none), and the details."""
        import pyarrow as pa

        columns = {
            "query_id": self.queries.to_arrow(),
            "doc_id": self.documents.to_arrow(),
            "grade": pa.array(self.grades, mask=np.isnan(self.grades)),
        }
        for key, column in self.details.items():
            columns[key] = pa.array(column.tolist())
        return pa.table(columns)

    def to_frame(self, library: str = "pandas") -> Any:
        """A frame of the columns of `to_arrow`: "pandas", "polars" or "arrow"."""
        return to_library(self.to_arrow(), library)


def warn_of_several_grades(columns: Collection[str]) -> None:
    """Warn where several columns may hold the grade: which is taken, and how to choose another.

    A score beside another candidate is that of a search.
    """
    found = [name for name in GRADE_COLUMNS if name in columns]
    others = [name for name in found[1:] if name != "score"]
    if others:
        warnings.warn(
            f"grades are taken from the column {found[0]!r}; "
            f"{', '.join(map(repr, others))} may hold grades too: choose with --grade, or grade= "
            "in Python",
            SemrecallWarning,
            stacklevel=3,
        )


def _sorted_pairs(queries: Ids, documents: Ids) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Order by pair (stable), and which sorted entries repeat the pair before them."""
    q, d = queries.codes, documents.codes
    rising = (q[1:] > q[:-1]) | (q[1:] == q[:-1]) & (d[1:] > d[:-1])
    if rising.all():
        return np.arange(len(q)), np.zeros(len(q), dtype=bool)
    order = np.lexsort((d, q))
    q, d = queries.codes[order], documents.codes[order]
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (q[1:] == q[:-1]) & (d[1:] == d[:-1])
    return order, same


def _distinct(
    queries: Ids, documents: Ids, grades: NDArray[np.float64], conflicts: Conflicts
) -> NDArray[np.int64]:
    """Positions of one judgment per pair, in file order, by the rule for conflicts."""
    order, same = _sorted_pairs(queries, documents)
    if not same.any():
        return np.arange(len(queries))
    group = np.cumsum(~same) - 1
    first = np.flatnonzero(~same)
    sorted_grades = grades[order]
    reference = sorted_grades[first][group]
    differs = ~((sorted_grades == reference) | (np.isnan(sorted_grades) & np.isnan(reference)))
    if differs.any() and conflicts == "error":
        at = int(np.argmax(differs))
        entry, other = order[at], order[first[group[at]]]
        raise InputError(
            f"{int(np.unique(group[differs]).size):,} pairs have judgments that contradict each "
            f"other, first: query {queries[entry]!r}, document {documents[entry]!r} has grade "
            f"{grades[other]:g} at entry {other} and {grades[entry]:g} at entry {entry}",
            hint='say which to take: conflicts="max", "first" or "last"',
        )
    if not differs.any():
        warnings.warn(
            f"{int(same.sum()):,} repeated judgments that agree count once",
            SemrecallWarning,
            stacklevel=4,
        )
    if conflicts == "max":
        best = np.lexsort((np.arange(len(order)), np.nan_to_num(-sorted_grades, nan=np.inf), group))
        picked = order[best[np.unique(group[best], return_index=True)[1]]]
    elif conflicts == "last":
        last = np.append(first[1:], len(order)) - 1
        picked = order[last]
    else:
        picked = order[first]
    return np.sort(picked)


def _by_subtopic(
    queries: Ids,
    documents: Ids,
    grades: NDArray[np.float64],
    subtopics: Any,
    conflicts: Conflicts,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[Any]]:
    """(first position, highest grade, JSON text of the grades by subtopic) of each pair."""
    topics = ids(subtopics, what="subtopics")
    if len(topics) != len(queries):
        raise InputError(f"{len(queries):,} judgments but {len(topics):,} subtopics")
    names = topics.strings().tolist()
    parts = [f"{d} (subtopic {t})" for d, t in zip(documents, names, strict=True)]
    keep = _distinct(queries, ids(parts, what="document ids"), grades, conflicts)
    found: dict[tuple[int, int], dict[str, float]] = {}
    first: dict[tuple[int, int], int] = {}
    for at in keep.tolist():
        pair = (int(queries.codes[at]), int(documents.codes[at]))
        first.setdefault(pair, at)
        found.setdefault(pair, {})[names[at]] = float(grades[at])
    highest = [float(np.nanmax(list(g.values()))) if g else np.nan for g in found.values()]
    texts = np.array([json.dumps(g) for g in found.values()], dtype=object)
    return np.array(list(first.values()), dtype=np.int64), np.array(highest), texts
