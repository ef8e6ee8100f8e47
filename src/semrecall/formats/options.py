"""What a reader may be told beyond the file's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from semrecall.data.judgments import Conflicts
    from semrecall.data.run import Order
    from semrecall.space import Space

__all__ = ["Duplicates", "NanScores", "Options"]

Duplicates = Literal["error", "first"]
NanScores = Literal["error", "last"]


@dataclass(frozen=True)
class Options:
    """Options of all readers; each takes from it what its format needs.

    space: the geometry of the scores; where a format stores another unit, they are converted.
    name: what to call the run or the judgments; the file's own name for them when None.
    dataset: the HDF5 data set, parquet column or part of a folder to read.
    ids: ids of the vectors, in place of those in the file.
    grade: the column that holds the grade.
    duplicates: what to do with a repeated (query, document) in a ranked file.
    nan: what to do with a NaN score in a ranked file.
    order: by what a ranked file is ordered: score, rank, or as it stands; None: as its format is.
    lower_is_better: the scores of a ranked file, without a space, are distances of some kind.
    conflicts: what to do with judgments that contradict each other.
    subtopics: the second column of TREC judgments names the subtopic that a grade is for.
    """

    space: Space | None = None
    name: str | None = None
    dataset: str | None = None
    ids: Any = None
    grade: str | None = None
    duplicates: Duplicates = "error"
    nan: NanScores = "error"
    order: Order | None = None
    lower_is_better: bool = False
    conflicts: Conflicts = "error"
    subtopics: bool = False
