"""Which queries are known to have an answer, and which to have none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.frames import columns_of, pick_column
from semrecall.data.ids import Ids, ids
from semrecall.data.run import QUERY_COLUMNS
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ANSWERABLE", "answers_of", "unanswerable_in"]

#: The column that says whether a query has an answer.
ANSWERABLE = "answerable"
_WORDS = {
    "true": 1.0, "yes": 1.0, "y": 1.0, "t": 1.0, "1": 1.0,
    "false": 0.0, "no": 0.0, "n": 0.0, "f": 0.0, "0": 0.0,
}  # fmt: skip


def answers_of(said: Any) -> tuple[Ids, NDArray[np.float64]]:
    """(query ids, whether each has an answer: 1, 0, or NaN where nobody says), (n,) each.

    said: {query id: bool}, or a frame or mapping of columns with query_id and answerable. Takes
    true and false, yes and no, 1 and 0. Raises InputError for other words and repeated queries.
    """
    is_frame = not isinstance(said, Mapping) or ANSWERABLE in said or "query_id" in said
    columns = columns_of(said) if is_frame else {}
    if is_frame:
        queries = ids(pick_column(columns, QUERY_COLUMNS, "query ids"), what="query ids")
        column = pick_column(columns, (ANSWERABLE,), "whether there is an answer")
        values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    else:
        queries, values = ids(list(said), what="query ids"), list(said.values())
    twice = queries.first_duplicate()
    if twice is not None:
        raise InputError(f"query {queries[twice[0]]!r} is said to have an answer or none twice")
    return queries, np.array([_answer(value) for value in values], dtype=np.float64)


def unanswerable_in(columns: Any) -> Ids | None:
    """The queries without an answer by a column `answerable`; None where there is none such."""
    if columns is None or ANSWERABLE not in columns_of(columns):
        return None
    queries, answers = answers_of(columns_of(columns))
    chosen = queries[answers == 0.0]
    assert isinstance(chosen, Ids)
    return chosen


def _answer(value: Any) -> float:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return math.nan
    found = _WORDS.get(str(value).strip().lower().removesuffix(".0"))
    if found is None:
        raise InputError(f"answerable is {value!r}; expected true or false")
    return found
