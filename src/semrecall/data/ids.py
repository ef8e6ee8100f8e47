"""Document and query ids: one canonical form for strings and 64-bit integers, kept as codes.

"7" and 7 are the same id. Ids that are all integers are kept as int64; anything else as strings,
stored once each (`names`) and referred to by position (`codes`). A negative number, an empty
string or a null is *missing*: code -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np

from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IdLike", "Ids", "codes_in", "concatenate", "ids", "unify"]

MISSING = -1
_UNSIGNED_MISSING = np.iinfo(np.uint64).max
_TEXT = np.dtypes.StringDType()


@dataclass(frozen=True, eq=False, repr=False)
class Ids(Sequence["str | int"]):
    """A column of ids, shape (m,).

    `codes` (m,) int64: the ids themselves when `names` is None, else positions in `names`
    (distinct strings); -1 is missing. Indexing with an integer gives a str or an int, with a
    slice or an array another `Ids`.
    """

    codes: NDArray[np.int64]
    names: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self.codes.flags.writeable = False

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array().tolist())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer):
            return self.array(self.codes[key : key + 1 or None]).tolist()[0]
        return Ids(self.codes[key], self.names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        if len(self) != len(other):
            return False
        left, right = unify(self, other)
        return bool(np.array_equal(left, right))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(i) for i in self[:5])
        return f"Ids([{shown}{', ...' if len(self) > 5 else ''}], {len(self):,} ids)"

    @property
    def are_integers(self) -> bool:
        """Whether every id is a 64-bit integer."""
        return self.names is None

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """Which ids are missing, shape (m,)."""
        return self.codes < 0

    def array(self, codes: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """The ids as numpy: int64 (missing -1) or numpy strings (missing "")."""
        chosen = self.codes if codes is None else codes
        if self.names is None:
            return chosen
        padded = np.append(self.names, np.array([""], dtype=_TEXT))
        return padded[chosen]

    def strings(self) -> NDArray[Any]:
        """The ids as numpy strings, integers in decimal, missing ones empty; shape (m,)."""
        if self.names is not None:
            return self.array()
        text = self.codes.astype(_TEXT)
        text[self.codes < 0] = ""
        return text

    def to_arrow(self) -> Any:
        """The ids as an arrow column: int64 or large_string, missing ones null."""
        import pyarrow as pa

        if self.names is None:
            return pa.array(self.codes, mask=self.missing)
        return pa.array(self.array().tolist(), type=pa.large_string(), mask=self.missing)

    def first_duplicate(self) -> tuple[int, int] | None:
        """Positions of the first id that occurs twice (missing ones aside), or None."""
        order = np.argsort(self.codes, kind="stable")
        ordered = self.codes[order]
        again = np.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0))
        if len(again) == 0:
            return None
        at = again[np.argmin(order[again + 1])]
        return int(order[at]), int(order[at + 1])


IdLike: TypeAlias = Union[Ids, "NDArray[Any]", Sequence["str | int"], Iterable["str | int"]]


def ids(values: Any, *, what: str = "ids") -> Ids:
    """The canonical form of any column of ids: list, numpy, arrow, pandas or polars column.

    Raises InputError for values that are neither strings nor 64-bit integers.
    """
    if isinstance(values, Ids):
        return values
    if hasattr(values, "type") and hasattr(values, "null_count"):
        return _from_arrow(values, what)
    if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray):
        values = values.to_numpy()
    if not isinstance(values, np.ndarray):
        values = list(values)
        if all(isinstance(v, str) for v in values):
            return _from_strings(np.array(values, dtype=_TEXT))
        if not all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
            return _from_objects(values, what)
        values = (
            np.array(values, dtype=np.int64) if _fit_int64(values) else np.array(values, object)
        )
    if values.ndim != 1:
        raise InputError(f"{what} have shape {values.shape}; expected one dimension")
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        return _from_unsigned(values)
    if values.dtype.kind in "iu":
        codes = values.astype(np.int64)
        return Ids(np.maximum(codes, MISSING))
    if values.dtype.kind in "UT":
        return _from_strings(values.astype(_TEXT))
    if values.dtype.kind == "f":
        return _from_floats(values, what)
    if values.dtype.kind == "O":
        return _from_objects(values.tolist(), what)
    raise InputError(f"{what} are of type {values.dtype}; expected strings or 64-bit integers")


def _fit_int64(values: Sequence[Any]) -> bool:
    return all(-(2**63) <= v < 2**63 for v in values)


def _from_objects(values: list[Any], what: str) -> Ids:
    text = np.empty(len(values), dtype=_TEXT)
    for position, value in enumerate(values):
        if value is None or value != value:
            text[position] = ""
        elif isinstance(value, str):
            text[position] = value
        elif isinstance(value, bytes):
            text[position] = value.decode()
        elif isinstance(value, float | np.floating) and float(value).is_integer():
            text[position] = str(int(value))
        elif isinstance(value, int | np.integer) and not isinstance(value, bool):
            text[position] = "" if value < 0 else str(int(value))
        elif type(value).__name__ == "UUID":
            text[position] = str(value)
        else:
            raise InputError(
                f"{what}: value {value!r} at position {position} is of type "
                f"{type(value).__name__}; expected a string or a 64-bit integer"
            )
    return _from_strings(text)


def _from_floats(values: NDArray[Any], what: str) -> Ids:
    # A frame turns a column of integers with gaps into floats: NaN is missing there.
    bad = ~(np.isnan(values) | ((values == np.floor(values)) & (np.abs(values) < 2.0**53)))
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"{what}: value {values[at]!r} at position {at} is not a whole number; "
            "expected strings or 64-bit integers"
        )
    codes = np.where(np.isnan(values), MISSING, values).astype(np.int64)
    return Ids(np.maximum(codes, MISSING))


def _from_unsigned(values: NDArray[Any]) -> Ids:
    missing = values == _UNSIGNED_MISSING
    if bool(np.all(missing | (values < 2**63))):
        return Ids(np.where(missing, 0, values).astype(np.int64) * ~missing - missing)
    text = values.astype(_TEXT)
    text[missing] = ""
    return _from_strings(text)


def _from_strings(text: NDArray[Any]) -> Ids:
    import pyarrow as pa

    return _from_arrow(pa.array(text.tolist(), type=pa.large_string()), "ids")


def _from_arrow(column: Any, what: str) -> Ids:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(pa.large_string() if _is_text(kind.value_type) else kind.value_type)
        kind = column.type
    if pa.types.is_integer(kind):
        missing = column.is_null().to_numpy(zero_copy_only=False)
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        if kind == pa.uint64() and bool((values >= 2**63).any()):
            return _from_unsigned(np.where(missing, _UNSIGNED_MISSING, values))
        return Ids(np.where(missing | (values < 0), MISSING, values.astype(np.int64)))
    if pa.types.is_floating(kind):
        return _from_floats(column.to_numpy(zero_copy_only=False), what)
    if pa.types.is_null(kind):
        return Ids(np.full(len(column), MISSING, dtype=np.int64))
    if not _is_text(kind):
        raise InputError(f"{what} are of type {kind}; expected strings or 64-bit integers")
    encoded = column.cast(pa.large_string()).dictionary_encode()
    vocabulary = encoded.dictionary
    codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int64)
    # "7" is 7, but "007", "+7" and "7.0" are strings of their own.
    canonical = pc.fill_null(
        pc.match_substring_regex(vocabulary, r"^(0|-?[1-9][0-9]{0,17})$"), False
    )
    empty = pc.equal(vocabulary, "").to_numpy(zero_copy_only=False)
    whole = canonical.to_numpy(zero_copy_only=False)
    if bool(np.all(whole | empty)):
        numbers = np.full(len(vocabulary) + 1, MISSING, dtype=np.int64)
        texts = pc.if_else(canonical, vocabulary, "-1")
        numbers[:-1] = np.maximum(texts.cast(pa.int64()).to_numpy(zero_copy_only=False), MISSING)
        return Ids(numbers[codes])
    negative = pc.fill_null(pc.match_substring_regex(vocabulary, r"^-[1-9][0-9]{0,17}$"), False)
    gone = empty | negative.to_numpy(zero_copy_only=False)
    renumber = np.full(len(vocabulary) + 1, MISSING, dtype=np.int64)
    renumber[:-1][~gone] = np.arange(int((~gone).sum()))
    names = np.array(vocabulary.to_pylist(), dtype=_TEXT)[~gone]
    return Ids(renumber[codes], names)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def unify(*columns: Ids) -> list[NDArray[np.int64]]:
    """Codes of several columns on one scale: equal codes mean the same id, -1 missing.

    Columns of integers keep their values as codes; as soon as one has strings, all are encoded
    over the union of their strings.
    """
    if all(c.names is None for c in columns):
        return [c.codes for c in columns]
    import pyarrow as pa

    texts, positions = [], []
    for column in columns:
        if column.names is None:
            distinct, inverse = np.unique(column.codes, return_inverse=True)
            texts.append(pa.array(distinct).cast(pa.large_string()))
            positions.append(np.where(column.codes < 0, MISSING, inverse))
        else:
            texts.append(pa.array(column.names.tolist(), type=pa.large_string()))
            positions.append(column.codes)
    joint = pa.concat_arrays(texts).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    result, start = [], 0
    for text, position in zip(texts, positions, strict=True):
        table = np.append(joint[start : start + len(text)].astype(np.int64), MISSING)
        result.append(table[position])
        start += len(text)
    return result


def codes_in(codes: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each of `codes` (m,) in `known` (n,) distinct codes; -1 where it is not there."""
    if len(known) == 0:
        return np.full(codes.shape, MISSING, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    ordered = known[order]
    at = np.searchsorted(ordered, codes)
    at[at == len(ordered)] = 0
    return np.where((ordered[at] == codes) & (codes >= 0), order[at], MISSING)


def concatenate(columns: Sequence[Ids]) -> Ids:
    """Several columns as one."""
    if not columns:
        return Ids(np.empty(0, dtype=np.int64))
    if all(c.names is None for c in columns):
        return Ids(np.concatenate([c.codes for c in columns]))
    import pyarrow as pa

    return _from_arrow(
        pa.concat_arrays([c.to_arrow().cast(pa.large_string()) for c in columns]), "ids"
    )
