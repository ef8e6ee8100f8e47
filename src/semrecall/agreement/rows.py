"""Judgments by several judges in one table, a column saying whose each is; repeats of one judge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.agreement.pair import ONE_CLASS, Estimate, Sampling
from semrecall.data import Judgments
from semrecall.data.frames import columns_of, pick_column
from semrecall.data.ids import ids
from semrecall.data.judgments import DETAIL_COLUMNS, GRADE_COLUMNS
from semrecall.data.run import DOC_COLUMNS, QUERY_COLUMNS
from semrecall.errors import InputError
from semrecall.stats.agreement import alpha, coincidences, observed_agreement

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ByJudge", "Repeats", "SelfAgreement", "by_judge", "self_agreement"]

JUDGE = "judge"


@dataclass(frozen=True, eq=False)
class Repeats:
    """Grades that a judge gave to pairs seen more than once: queries, pair numbers, grades (r,)."""

    queries: NDArray[np.int64]
    pairs: NDArray[np.int64]
    grades: NDArray[np.float64]


@dataclass(frozen=True)
class SelfAgreement:
    """How a judge agrees with itself on the pairs it graded more than once.

    agreement: the share of equal labels among repeats. alpha: Krippendorff's, of the two sides.
    """

    judge: str
    pairs: int
    agreement: Estimate
    alpha: Estimate


@dataclass(frozen=True, eq=False)
class ByJudge:
    """Judgments of several judges by name, and the repeats of those who graded pairs again."""

    judgments: dict[str, Judgments]
    repeats: dict[str, Repeats]


def by_judge(frame: Any, grade: str | None = None) -> ByJudge:
    """The judgments of each judge of a table with a column `judge`.

    grade: the column of the grades.

    Of several grades of one pair by one judge the first counts.
    Raises InputError where the table has no such column, or one judge alone.
    """
    columns = columns_of(frame)
    if JUDGE not in columns:
        raise InputError(
            f"no column {JUDGE!r}: found columns {', '.join(columns)}",
            hint="give the judgments of each judge apart: {name: Judgments}, or two files",
        )
    judges = np.array([str(value) for value in _listed(columns[JUDGE])])
    queries = ids(pick_column(columns, QUERY_COLUMNS, "query ids"), what="query ids")
    documents = ids(pick_column(columns, DOC_COLUMNS, "document ids"), what="document ids")
    names = GRADE_COLUMNS if grade is None else (grade,)
    grades = _numbers(pick_column(columns, names, "grades"))
    details = {
        name: np.array([*_listed(columns[name]), None], dtype=object)[:-1]
        for name in DETAIL_COLUMNS
        if name in columns and name != "subtopics"
    }
    found: dict[str, Judgments] = {}
    repeats: dict[str, Repeats] = {}
    for name in dict.fromkeys(judges.tolist()):
        rows = np.flatnonzero(judges == name)
        pairs = np.stack([queries.codes[rows], documents.codes[rows]])
        _, first, number = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
        number = number.reshape(-1)
        kept = rows[_first_graded(number, grades[rows], len(first))]
        own = {key: column[kept] for key, column in details.items()}
        found[name] = Judgments(queries[kept], documents[kept], grades[kept], own, name)
        again = (np.bincount(number)[number] > 1) & ~np.isnan(grades[rows])
        if again.any():
            of_pairs = queries.codes[rows][again], number[again], grades[rows][again]
            repeats[name] = Repeats(*of_pairs)
    if len(found) < 2 and not repeats:
        raise InputError(
            f"all judgments are by one judge, {next(iter(found), 'nobody')!r}; expected two judges",
            hint="give a second file of judgments",
        )
    return ByJudge(found, repeats)


def self_agreement(
    judge: str, repeats: Repeats, rel: float, sampling: Sampling
) -> SelfAgreement | None:
    """How the repeats of a judge agree when cut at `rel`; None without a pair graded twice."""
    _, units, number = np.unique(repeats.pairs, return_index=True, return_inverse=True)
    place = np.arange(len(number)) - _starts(number)
    order = np.argsort(number, kind="stable")
    codes = np.full((int(place.max(initial=0)) + 1, len(units)), -1, dtype=np.int64)
    codes[place, number[order]] = np.where(repeats.grades[order] >= rel, 1, 0)
    several = (codes >= 0).sum(axis=0) > 1
    if not several.any():
        return None
    _, groups = np.unique(repeats.queries[units], return_inverse=True)
    tables = coincidences(codes, groups, int(groups.max()) + 1, 2)
    tables = tables[tables.any(axis=(1, 2))]
    return SelfAgreement(
        judge,
        int(several.sum()),
        sampling.estimate(tables, observed_agreement),
        sampling.estimate(tables, partial(alpha, grades=[0, 1]), ONE_CLASS),
    )


def _starts(number: NDArray[np.int64]) -> NDArray[np.int64]:
    """For sorted pair numbers, the position where the run of each begins."""
    counts = np.bincount(number)
    return np.repeat(np.cumsum(counts) - counts, counts)


def _first_graded(
    number: NDArray[np.int64], grades: NDArray[np.float64], pairs: int
) -> NDArray[np.int64]:
    """For each pair the first row with a grade, else its first row; in the order of the file."""
    order = np.lexsort((np.arange(len(number)), np.isnan(grades), number))
    heads = np.append(True, np.diff(number[order]) > 0) if pairs else np.empty(0, dtype=bool)
    return np.sort(order[heads])


def _listed(column: Any) -> list[Any]:
    if hasattr(column, "to_pylist"):
        values: list[Any] = column.to_pylist()
        return values
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _numbers(column: Any) -> NDArray[np.float64]:
    try:
        values = [
            np.nan if value is None or value == "" else float(value) for value in _listed(column)
        ]
    except (TypeError, ValueError) as error:
        raise InputError(f"a grade is no number ({error})") from error
    return np.array(values, dtype=np.float64)
