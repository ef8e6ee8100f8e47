"""What strangers answer, in any of their forms, as rows of ids and scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from semrecall.data.ids import ids as ids_of
from semrecall.errors import SemrecallWarning, SystemFault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["Row", "as_id", "in_order", "matrix_of", "row_of"]

#: Ids best first, and their scores; None without any.
Row = tuple[list[Any], "list[float] | None"]

_ID_NAMES = ("id", "_id", "doc_id", "document_id", "node_id")
_SCORE_NAMES = ("score", "_score", "similarity", "distance")
#: Where objects of frameworks keep what they found, and what they know about it.
_INNER = ("document", "doc", "node", "payload")


def row_of(found: Any, name: str | None = None) -> Row:
    """Ids and scores of what was found for one query.

    found: ids; (id, score) pairs; mappings or objects with an id and perhaps a score, such as the
        documents and nodes of frameworks; pairs of such a document and a score; or a pair of a
        list of ids and a list of scores. None is nothing.
    name: the key or the attribute that holds the id, of the document or of its metadata; the
        usual names when None.

    Raises SystemFault for anything else.
    """
    if found is None:
        return [], None
    if isinstance(found, Mapping):
        found = next((found[n] for n in ("documents", "results", "ids") if n in found), found)
    if isinstance(found, tuple) and len(found) == 2 and all(map(_is_column, found)):
        ids, scores = (list(column) for column in found)
        if len(ids) != len(scores):
            raise SystemFault(f"{len(ids)} ids and {len(scores)} scores were returned for a query")
        return [as_id(i) for i in ids], [_number(s) for s in scores]
    if isinstance(found, str | bytes | Mapping) or not hasattr(found, "__iter__"):
        raise SystemFault(
            f"a {type(found).__name__} was returned for a query; expected a list of ids, of "
            "(id, score) or of documents"
        )
    pairs = [_pair(item, name) for item in found]
    if all(score is None for _, score in pairs):
        return [i for i, _ in pairs], None
    return [i for i, _ in pairs], [np.nan if s is None else s for _, s in pairs]


def as_id(value: Any) -> str | int:
    """An id as an integer or a string; SystemFault for what can be none."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if value is None:
        return ""
    if isinstance(value, UUID | np.str_):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise SystemFault(f"{value!r} was returned as an id; expected an integer or a string")


def matrix_of(rows: Sequence[Row], k: int) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Ids (n, at most k), -1 or "" where rows are shorter, and scores, NaN there.

    Ids that are all written as integers are integers.
    """
    width = min(k, max((len(ids) for ids, _ in rows), default=0))
    integers = all(isinstance(i, int) for ids, _ in rows for i in ids[:width])
    kind: Any = np.int64 if integers else np.dtypes.StringDType()
    missing: Any = -1 if integers else ""
    matrix = np.full((len(rows), width), missing, dtype=kind)
    scores = np.full((len(rows), width), np.nan)
    for row, (ids, told) in enumerate(rows):
        cut = ids[:width]
        matrix[row, : len(cut)] = cut if integers else [str(i) for i in cut]
        if told is not None:
            scores[row, : len(cut)] = told[:width]
    if not integers:
        matrix = ids_of(matrix.reshape(-1)).array().reshape(matrix.shape)
    return matrix, None if all(told is None for _, told in rows) else scores


def in_order(
    scores: NDArray[np.float64] | None, space: Space | None, name: str
) -> NDArray[np.float64] | None:
    """The scores, where they stand best first.

    Scores of no space that rise from the first result to the last are distances of some kind:
    they are left out with a warning. SystemFault for scores of a space that rise or fall as
    those of the space must not.
    """
    if scores is None:
        return None
    steps = np.diff(scores if space is None or space.higher_is_nearer else -scores, axis=1)
    slack = 1e-5 * np.nanmax(np.abs(scores), initial=0)
    if not bool((steps > slack).any()):
        return scores
    if space is not None:
        way = "fall" if space.higher_is_nearer else "rise"
        raise SystemFault(
            f"the scores of {name} do not stand best first: those of {space} must {way}",
            hint="say in which unit they are: unit=squared-l2, cosine-distance, negated-ip, ...",
        )
    warnings.warn(
        f"the scores of {name} do not fall from the first result on, so they are left out; results "
        "keep their order. If they are distances, say so: unit=l2, squared-l2, cosine-distance",
        SemrecallWarning,
        stacklevel=3,
    )
    return None


def _is_column(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)


def _pair(item: Any, name: str | None) -> tuple[str | int, float | None]:
    if isinstance(item, tuple | list) and len(item) == 2 and not isinstance(item[1], str):
        return _id_of(item[0], name), _number(item[1])
    return _id_of(item, name), _score_of(item)


def _number(value: Any) -> float:
    if value is None:
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise SystemFault(f"{value!r} was returned as a score; expected a number") from None


def _id_of(item: Any, name: str | None) -> str | int:
    if item is None or isinstance(item, str | bytes | int | np.integer | UUID):
        return as_id(item)
    look = _getter(item)
    wanted = _ID_NAMES if name is None else (name,)
    inner = next((found for key in _INNER if (found := look(key)) is not None), None)
    # What the user calls the document by is in the metadata, if anywhere.
    places = [look("metadata"), look("meta"), item]
    if inner is not None:
        deeper = _getter(inner)
        places = [deeper("metadata"), deeper("meta"), inner, *places]
    for place in places:
        if place is None:
            continue
        for key in wanted:
            value = _getter(place)(key)
            if value is not None:
                return as_id(value)
    raise SystemFault(
        f"a {type(item).__name__} without {name or 'an id'} was returned",
        hint="say which key of its metadata holds the id: id=KEY"
        + (f" (it has {', '.join(map(str, keys))})" if (keys := _keys(places)) else ""),
    )


def _score_of(item: Any) -> float | None:
    look = _getter(item)
    found = next((v for key in _SCORE_NAMES if (v := look(key)) is not None), None)
    return None if found is None or isinstance(item, str | bytes | int) else _number(found)


def _getter(item: Any) -> Callable[[str], Any]:
    if isinstance(item, Mapping):
        return item.get
    return lambda key: getattr(item, key, None)


def _keys(places: Sequence[Any]) -> list[Any]:
    return next((list(place)[:8] for place in places if isinstance(place, Mapping)), [])
