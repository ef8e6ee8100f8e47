"""Documents that are the same: duplicates and near-duplicates as classes; a query found itself."""

from __future__ import annotations

import json
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from semrecall.data.ids import Ids, codes_in, concatenate, ids, unify
from semrecall.data.judgments import Judgments
from semrecall.data.rows import row_numbers
from semrecall.data.run import Run
from semrecall.errors import InputError, SemrecallWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ClassConflicts", "Classes", "drop_self", "same_text", "selves"]

ClassConflicts = Literal["max", "error"]
Noun = TypeVar("Noun", Run, Judgments)


@dataclass(frozen=True, eq=False, repr=False)
class Classes:
    """Which document ids mean the same document.

    members: ids, distinct, shape (m,). representatives: for each the id that stands for its class.
    An id that is no member is a class of its own. Make one with `of`, `of_labels` or `same_text`.
    """

    members: Ids
    representatives: Ids

    def __post_init__(self) -> None:
        if len(self.members) != len(self.representatives):
            raise InputError(
                f"{len(self.members):,} members but {len(self.representatives):,} representatives"
            )
        twice = self.members.first_duplicate()
        if twice is not None:
            raise InputError(f"document {self.members[twice[0]]!r} is in two classes")

    @classmethod
    def of(cls, same: Classes | Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Classes:
        """Classes from {id: an id it is the same as}, or from pairs of ids that are the same.

        What is linked through others is the same too.
        """
        if isinstance(same, Classes):
            return same
        pairs = list(same.items() if isinstance(same, Mapping) else same)
        left, right = ([pair[side] for pair in pairs] for side in (0, 1))
        return cls.of_pairs(left, right)

    @classmethod
    def of_pairs(cls, left: Any, right: Any) -> Classes:
        """Classes from two columns of ids (m,): left and right of a row are the same document.

        The first of a class in the right column stands for it.
        """
        ours, theirs = ids(left, what="document ids"), ids(right, what="document ids")
        if len(ours) != len(theirs):
            raise InputError(f"{len(ours):,} ids are paired with {len(theirs):,}")
        gone = ours.missing | theirs.missing
        if gone.any():
            raise InputError(f"pair {int(np.argmax(gone))} lacks a document id")
        joint = concatenate([theirs, ours])
        _, first, number = np.unique(joint.codes, return_index=True, return_inverse=True)
        labels = _components(number[len(ours) :], number[: len(ours)], len(first))
        return cls._of_numbers(joint[first], labels, first)

    @classmethod
    def of_labels(cls, documents: Any, labels: Any) -> Classes:
        """Classes from a column of ids (m,) and the label of each one's class.

        Labels are no ids: documents are the same where their labels are equal. No label (empty,
        null) is a class of its own. The first of a class stands for it. Raises InputError for a
        document with two labels.
        """
        column, names = ids(documents, what="document ids"), ids(labels, what="labels of classes")
        if len(column) != len(names):
            raise InputError(f"{len(column):,} document ids but {len(names):,} labels")
        kept = ~(column.missing | names.missing)
        column, names = column[kept], names[kept]
        _, first, number = np.unique(column.codes, return_index=True, return_inverse=True)
        differs = names.codes != names.codes[first[number]]
        if differs.any():
            at = int(np.argmax(differs))
            raise InputError(
                f"document {column[at]!r} is in two classes: {names[int(first[number[at]])]!r} "
                f"and {names[at]!r}"
            )
        return cls._of_numbers(column[first], names.codes[first], first)

    @classmethod
    def _of_numbers(
        cls, members: Ids, labels: NDArray[np.int64], order: NDArray[np.int64]
    ) -> Classes:
        """Classes of distinct members by label; the least in `order` stands for its class."""
        rank = np.argsort(order, kind="stable")
        _, first, number, sizes = np.unique(
            labels[rank], return_index=True, return_inverse=True, return_counts=True
        )
        shared = sizes[number] > 1
        return cls(members[rank[shared]], members[rank[first[number[shared]]]])

    def __len__(self) -> int:
        return len(np.unique(self.representatives.codes))

    def __repr__(self) -> str:
        return f"Classes({len(self.members):,} documents in {len(self):,} classes)"

    def canonical(self, column: Ids) -> Ids:
        """The ids (m,) with every member replaced by the representative of its class."""
        joint = concatenate([column, self.members, self.representatives])
        ours, members, stand_ins = np.split(
            joint.codes, [len(column), len(column) + len(self.members)]
        )
        at = codes_in(ours, members)
        known = np.append(stand_ins, -1)
        return Ids(np.where(at >= 0, known[at], ours), joint.names)

    def of_run(self, run: Run) -> Run:
        """The run (a truth is one) in terms of classes.

        Further results of a class are repeats of the first, as every measure treats repeats: they
        count once, at the best rank.
        """
        return run.replace(documents=self.canonical(run.documents))

    def of_judgments(self, judgments: Judgments, *, conflicts: ClassConflicts = "max") -> Judgments:
        """The judgments in terms of classes, one a query and class.

        Where members of a class have different grades the highest is taken, with a warning, or
        InputError is raised for conflicts="error". A grade outweighs no grade.
        """
        if conflicts not in ("max", "error"):
            raise InputError(f"conflicts is {conflicts!r}; expected max or error")
        documents = self.canonical(judgments.documents)
        weight = np.nan_to_num(judgments.grades, nan=-np.inf)
        order = np.lexsort((-weight, documents.codes, judgments.queries.codes))
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(documents.codes[order]) != 0) | (
            np.diff(judgments.queries.codes[order]) != 0
        )
        best = order[new][np.cumsum(new) - 1]
        differ = (judgments.grades[order] != judgments.grades[best]) & ~np.isnan(
            judgments.grades[order]
        )
        if differ.any():
            self._conflict(judgments, order, best, differ, conflicts)
        chosen = np.sort(order[new])
        details = {key: column[chosen] for key, column in judgments.details.items()}
        if "subtopics" in details:
            groups = np.empty(len(order), dtype=np.int64)
            groups[order] = order[new][np.cumsum(new) - 1]
            joined = _joined_subtopics(judgments.details["subtopics"], groups)
            details["subtopics"] = np.array([joined[at] for at in chosen.tolist()], dtype=object)
        return Judgments(
            judgments.queries[chosen],
            documents[chosen],
            judgments.grades[chosen],
            details,
            judgments.name,
        )

    def _conflict(
        self,
        judgments: Judgments,
        order: NDArray[np.int64],
        best: NDArray[np.int64],
        differ: NDArray[np.bool_],
        conflicts: ClassConflicts,
    ) -> None:
        at = int(np.argmax(differ))
        one, other = int(best[at]), int(order[at])
        count = len(np.unique(best[differ]))
        found = (
            f"{count:,} {'class has' if count == 1 else 'classes have'} members of different "
            f"grades, first: query {judgments.queries[one]!r}, document "
            f"{judgments.documents[one]!r} has grade {judgments.grades[one]:g}, "
            f"{judgments.documents[other]!r} has {judgments.grades[other]:g}"
        )
        if conflicts == "error":
            raise InputError(found, hint='take the highest: conflicts="max", --same-conflicts max')
        warnings.warn(f"{found}; the highest counts", SemrecallWarning, stacklevel=4)


def same_text(texts: Mapping[Any, str], *, normalise: bool = True) -> Classes:
    """Documents of equal text as classes; the first with a text stands for it.

    texts: {id: text} of a corpus. normalise: texts that differ only in Unicode form, in upper and
    lower case, or in white space are equal too. Empty texts are not the same as one another.
    """
    found = [_normal(text) if normalise else text for text in texts.values()]
    numbers: dict[str, int] = {}
    labels = [numbers.setdefault(text, len(numbers)) if text.strip() else None for text in found]
    return Classes.of_labels(list(texts), [-1 if label is None else label for label in labels])


def drop_self(noun: Noun) -> Noun:
    """A run or judgments without the pairs whose document id equals the query id.

    The results of a run below move up, and its depth falls where a full row became shorter.
    """
    own = selves(noun)
    if not own.any():
        return noun
    if isinstance(noun, Judgments):
        return noun.select(~own)
    kept = noun.keep(~own)
    before, after = np.diff(noun.offsets), np.diff(kept.offsets)
    short = (before >= noun.depth) & (after < noun.depth)
    depth = max(int(after[short].min(initial=noun.depth)), 1)
    return kept.replace(k=depth if short.any() else noun.k)


def selves(noun: Run | Judgments) -> NDArray[np.bool_]:
    """Which pairs (flat) of a run or of judgments have the query's own id as document id."""
    queries, documents = unify(noun.queries, noun.documents)
    if isinstance(noun, Run):
        queries = queries[row_numbers(noun.offsets)]
    return np.asarray((queries == documents) & (documents >= 0))


def _components(left: NDArray[np.int64], right: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Number of the connected component of each of n nodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(n, n))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def _joined_subtopics(texts: NDArray[Any], groups: NDArray[np.int64]) -> dict[int, str | None]:
    """By group, the highest grade for each subtopic among its members, as JSON text."""
    found: dict[int, dict[str, float] | None] = {}
    for group, text in zip(groups.tolist(), texts.tolist(), strict=True):
        known = found.setdefault(group, None)
        if text:
            grades = json.loads(text)
            of_both = grades | (known or {})
            found[group] = {t: max(of_both[t], grades.get(t, of_both[t])) for t in of_both}
    return {group: None if said is None else json.dumps(said) for group, said in found.items()}


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
