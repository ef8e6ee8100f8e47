"""Slices: queries in groups, by a column of theirs or by their number of semantic neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids
from semrecall.data.frames import columns_of, pick_column
from semrecall.data.ids import codes_in, ids, unify
from semrecall.data.run import QUERY_COLUMNS
from semrecall.errors import InputError
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NO_VALUE", "SN", "Semantic", "Slice", "column_slices"]

#: The slice by the number of semantic neighbours.
SN = "sn"
#: The group of the queries that a column says nothing about.
NO_VALUE = "(no value)"
_UNJUDGED = "unjudged"


@dataclass(frozen=True, eq=False)
class Slice:
    """n queries in groups.

    column: its name. about: what it is, for a heading.
    groups: labels, in the order to show. numbers: (n,) int64, each query's position in `groups`.
    """

    column: str
    groups: tuple[str, ...]
    numbers: NDArray[np.int64]
    about: str = ""

    @cached_property
    def labels(self) -> list[str]:
        """The label of every query, n of them."""
        return [self.groups[i] for i in self.numbers.tolist()]

    def mask(self, group: str) -> NDArray[np.bool_]:
        """Which queries are in a group, shape (n,)."""
        return np.asarray(self.numbers == self.groups.index(group))


def column_slices(columns: Any, names: Sequence[str], queries: Ids) -> list[Slice]:
    """A slice of `queries` for each of the named columns of a frame with query ids.

    Raises InputError for a column that is not there, or a query with two rows.
    """
    if not names:
        return []
    if columns is None:
        raise InputError(
            f"nothing to slice by: there is no column {names[0]!r}",
            hint="give the columns of the queries (columns=..., --columns FILE)",
        )
    found = columns_of(columns)
    known = ids(pick_column(found, QUERY_COLUMNS, "query ids"), what="query ids")
    twice = known.first_duplicate()
    if twice is not None:
        raise InputError(
            f"query {known[twice[0]]!r} has two rows of columns ({twice[0]} and {twice[1]}); "
            "expected one"
        )
    wanted, there = unify(queries, known)
    rows = codes_in(wanted, there)
    if len(queries) and not (rows >= 0).any():
        raise InputError(
            f"none of the {len(queries):,} queries has a row of columns: queries are like "
            f"{queries[0]!r}, rows like {known[0]!r}"
            if len(known)
            else "the columns have no rows"
        )
    slices = []
    for name in names:
        if name not in found:
            others = [c for c in found if c not in QUERY_COLUMNS] + [SN]
            raise InputError(f"no column {name!r} to slice by", hint=did_you_mean(name, others))
        slices.append(_by_values(name, _list(found[name]), rows))
    return slices


def _list(column: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _by_values(name: str, values: list[Any], rows: NDArray[np.int64]) -> Slice:
    texts = [_text(v) for v in values]
    labels = [texts[row] if row >= 0 else NO_VALUE for row in rows.tolist()]
    groups = sorted(set(labels), key=_natural)
    position = {group: i for i, group in enumerate(groups)}
    numbers = np.array([position[label] for label in labels], dtype=np.int64)
    return Slice(name, tuple(groups), numbers)


def _text(value: Any) -> str:
    if value is None or value != value or value == "":
        return NO_VALUE
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _natural(label: str) -> tuple[int, float, str]:
    """Numbers by value, then words, then what has no value."""
    if label == NO_VALUE:
        return 2, 0.0, label
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


@dataclass(frozen=True, eq=False)
class Semantic:
    """The semantic neighbours of n queries: those of the exact k with a grade of at least rel.

    counts: (n,) how many there are. judged: (n,) how many of the exact k have a grade.
    """

    k: int
    rel: float
    counts: NDArray[np.int64]
    judged: NDArray[np.int64]

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The fewest and the most semantic neighbours of each group of `slice`, in order."""
        few, many = -(-self.k // 5), -(-4 * self.k // 5)
        bounds = [(0, 0), (1, few - 1), (few, many - 1), (many, self.k)]
        return [(low, high) for low, high in bounds if low <= high]

    @property
    def labels(self) -> list[str]:
        """What the groups of `bounds` are called: "0", "1-19", ..."""
        return [f"{low}" if low == high else f"{low}-{high}" for low, high in self.bounds]

    def slice(self) -> Slice:
        """Queries by their number of semantic neighbours, split at k/5 and 4k/5.

        The paper's groups for k = 100 are below 20, 20 to 79, and 80 and more; queries without
        any stand apart, because semantic recall is not defined for them, and so do queries of
        which no neighbour is judged.
        """
        starts = np.array([low for low, _ in self.bounds])
        numbers = np.searchsorted(starts, self.counts, side="right") - 1
        numbers[self.judged == 0] = len(starts)
        used = np.unique(numbers)
        groups = [*self.labels, _UNJUDGED]
        return Slice(
            SN,
            tuple(groups[i] for i in used.tolist()),
            np.searchsorted(used, numbers).astype(np.int64),
            f"number of semantic neighbours among the exact {self.k}",
        )
