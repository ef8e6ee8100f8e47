"""Document and query ids: one canonical form for strings and 64-bit integers, kept as codes.

"7" and 7 are the same id. Ids that are all integers are kept as int64. Ids that are all a number
behind the same letters ("D0007", "D0012") are kept as that number and the form it is written in;
anything else as strings, stored once each and referred to by position. A negative number, an
empty string or a null is *missing*: code -1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
from numpy.lib.stride_tricks import as_strided

from semrecall.data import arrow
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Growing",
    "IdLike",
    "Ids",
    "Numbered",
    "Parts",
    "Texts",
    "codes_in",
    "concatenate",
    "ids",
    "ids_of_rows",
    "ids_or_texts",
    "numbered_rows",
    "string_bytes",
    "unify",
]

MISSING = -1
_UNSIGNED_MISSING = np.iinfo(np.uint64).max
_TEXT = np.dtypes.StringDType()
#: Integers from here on have more digits than strings that are read as numbers.
_TOO_LARGE = 10**18


@dataclass(frozen=True, eq=False, repr=False)
class Ids(Sequence["str | int"]):
    """A column of ids, shape (m,).

    `codes` (m,) int64, -1 is missing. `names` turns a code into its id: None where it is the id,
    `Numbered` where it is the number in it, `Texts` where it is its position there. Indexing with
    an integer gives a str or an int, with a slice or an array another `Ids`.
    """

    codes: NDArray[np.int64]
    names: Texts | Numbered | None = None

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
        return self.names.decode(chosen)

    def strings(self) -> NDArray[Any]:
        """The ids as numpy strings, integers in decimal, missing ones empty; shape (m,)."""
        if self.names is not None:
            return self.array()
        text = self.codes.astype(_TEXT)
        text[self.codes < 0] = ""
        return text

    def to_arrow(self) -> Any:
        """The ids as an arrow column: int64 or large_string, missing ones null."""
        codes = arrow.from_integers(self.codes, self.missing)
        return codes if self.names is None else self.names.to_arrow(codes)

    def first_duplicate(self) -> tuple[int, int] | None:
        """Positions of the first id that occurs twice (missing ones aside), or None."""
        order = np.argsort(self.codes, kind="stable")
        ordered = self.codes[order]
        again = np.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0))
        if len(again) == 0:
            return None
        at = again[np.argmin(order[again + 1])]
        return int(order[at]), int(order[at + 1])


@dataclass(frozen=True, eq=False)
class Texts:
    """Distinct strings, an arrow column of large_string; a code is a position in it."""

    column: Any

    def __len__(self) -> int:
        return len(self.column)

    def decode(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        """Numpy strings of the codes, "" for -1."""
        return np.asarray(self._padded[codes])

    def to_arrow(self, codes: Any) -> Any:
        """The same of an arrow column of codes, null for null."""
        return self.column.take(codes)

    @cached_property
    def _padded(self) -> NDArray[Any]:
        return np.array([*self.column.to_pylist(), ""], dtype=_TEXT)


@dataclass(frozen=True)
class Numbered:
    """Ids that are a number behind a prefix; a code is the number.

    width: how many digits all of them have, filled up with zeros; 0 where no number starts with a
    zero (but 0 itself). The prefix ends in no digit.
    """

    prefix: str
    width: int

    def decode(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        """Numpy strings of the codes, "" for -1."""
        digits = np.strings.zfill(codes.astype(_TEXT), self.width)
        text = np.strings.add(np.array(self.prefix, dtype=_TEXT), digits)
        text[codes < 0] = ""
        return np.asarray(text)

    def to_arrow(self, codes: Any) -> Any:
        """The same of an arrow column of codes, null for null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        digits = codes.cast(pa.large_string())
        if self.width:
            digits = pc.utf8_lpad(digits, self.width, "0")
        parts = [pa.scalar(text, pa.large_string()) for text in (self.prefix, "")]
        return pc.binary_join_element_wise(parts[0], digits, parts[1])

    def codes_of(self, texts: Any) -> NDArray[np.int64]:
        """The numbers of an arrow column of strings, -1 where a string is written otherwise."""
        import pyarrow as pa
        import pyarrow.compute as pc

        form = f"[0-9]{{{self.width}}}" if self.width else "(0|[1-9][0-9]{0,17})"
        fits = pc.match_substring_regex(texts, rf"^{re.escape(self.prefix)}{form}$")
        codes = np.full(len(texts), MISSING, dtype=np.int64)
        digits = pc.utf8_slice_codeunits(texts.filter(fits), len(self.prefix)).cast(pa.int64())
        codes[arrow.to_numpy(fits)] = arrow.to_numpy(digits)
        return codes


IdLike: TypeAlias = Union[Ids, "NDArray[Any]", Sequence["str | int"], Iterable["str | int"]]


def ids(values: Any, *, what: str = "ids") -> Ids:
    """The canonical form of any column of ids: list, numpy, arrow, pandas or polars column.

    Raises InputError for values that are neither strings nor 64-bit integers, and for strings that
    are not Unicode.
    """
    if isinstance(values, Ids):
        return values
    try:
        return _canonical(values, what)
    except UnicodeError as error:
        raise InputError(
            f"{what} hold text that is not Unicode ({getattr(error, 'reason', error)})",
            hint="half of a surrogate pair, or bytes in another encoding: write ids as UTF-8",
        ) from error


def _canonical(values: Any, what: str) -> Ids:
    if hasattr(values, "type") and hasattr(values, "null_count"):
        return _from_arrow(values, what)
    if not isinstance(values, np.ndarray):
        values = _unwrapped(values)
        if not isinstance(values, np.ndarray):
            return _from_list(values, what) if isinstance(values, list) else ids(values, what=what)
    if values.ndim != 1:
        raise InputError(f"{what} have shape {values.shape}; expected one dimension")
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        return _from_unsigned(values)
    if values.dtype.kind in "iu":
        codes = values.astype(np.int64)
        return Ids(np.maximum(codes, MISSING, out=codes))
    if values.dtype.kind in "UTO":
        return _from_list(values.tolist(), what)
    if values.dtype.kind == "f":
        return _from_floats(values, what)
    raise InputError(f"{what} are of type {values.dtype}; expected strings or 64-bit integers")


def _unwrapped(values: Any) -> Any:
    """A column of a frame as arrow or numpy, anything else as a list."""
    if type(values).__module__.startswith("polars"):
        return values.to_arrow()
    if hasattr(getattr(values, "array", None), "__arrow_array__"):
        import pyarrow as pa

        return pa.array(values.array, from_pandas=True)
    if hasattr(values, "to_numpy"):
        return values.to_numpy()
    return values if isinstance(values, list) else list(values)


def _from_list(values: list[Any], what: str) -> Ids:
    numbered = numbered_rows([values])
    if numbered is not None:
        return numbered
    kinds = set(map(type, values))
    if all(issubclass(kind, str) for kind in kinds):
        return _from_texts(arrow.from_texts(values))
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return ids(np.array(values, dtype=np.int64))
        except OverflowError:
            pass
    return _from_objects(values, what)


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
    return _from_strings(text.tolist())


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
    return _from_strings(text.tolist())


def _from_strings(texts: list[str]) -> Ids:
    numbered = numbered_rows([texts])
    return _from_texts(arrow.from_texts(texts)) if numbered is None else numbered


def _from_arrow(column: Any, what: str) -> Ids:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return _from_dictionary(column, what)
    kind = column.type
    if _is_text(kind):
        return _from_texts(column)
    column = _one_chunk(column)
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
    raise InputError(f"{what} are of type {kind}; expected strings or 64-bit integers")


def _one_chunk(column: Any) -> Any:
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        return whole.chunk(0)
    return whole


def _from_dictionary(column: Any, what: str) -> Ids:
    """Only the distinct values of the dictionary are looked at."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = _one_chunk(column.unify_dictionaries())
    at = _positions(column.indices)
    used = np.flatnonzero(np.bincount(at + 1, minlength=len(column.dictionary) + 1)[1:])
    place = np.full(len(column.dictionary) + 1, MISSING, dtype=np.int64)
    place[used] = np.arange(len(used))
    distinct = ids(column.dictionary.take(arrow.from_integers(used)), what=what)
    return Ids(np.append(distinct.codes, MISSING)[place[at]], distinct.names)


def _from_texts(column: Any) -> Ids:
    """An arrow column of strings, chunked or not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbered = _numbered_column(column)
    if numbered is not None:
        return numbered
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnicodeError(str(error).splitlines()[0]) from error
    encoded = _one_chunk(column.cast(pa.large_string()).dictionary_encode())
    vocabulary, codes = encoded.dictionary, _positions(encoded.indices)
    # "7" is 7, but "007", "+7" and "7.0" are strings of their own; "-7" is missing.
    canonical = pc.match_substring_regex(vocabulary, r"^(0|[1-9][0-9]{0,17})$")
    negative = pc.match_substring_regex(vocabulary, r"^-[1-9][0-9]*$")
    gone = (arrow.to_numpy(pc.binary_length(vocabulary)) == 0) | arrow.to_numpy(negative)
    whole = arrow.to_numpy(canonical)
    if bool(np.all(whole | gone)):
        numbers = np.full(len(vocabulary) + 1, MISSING, dtype=np.int64)
        numbers[:-1][whole] = arrow.to_numpy(vocabulary.filter(canonical).cast(pa.int64()))
        return Ids(numbers[codes])
    if not gone.any():
        return Ids(codes, Texts(vocabulary))
    renumber = np.full(len(vocabulary) + 1, MISSING, dtype=np.int64)
    renumber[:-1][~gone] = np.arange(int((~gone).sum()))
    return Ids(renumber[codes], Texts(vocabulary.take(arrow.from_integers(np.flatnonzero(~gone)))))


def _positions(indices: Any) -> NDArray[np.int64]:
    """Positions in a dictionary as int64, null as -1."""
    codes = arrow.to_numpy(indices).astype(np.int64)
    if indices.null_count:
        codes[arrow.to_numpy(indices.is_null())] = MISSING
    return codes


# -- numbers behind a prefix ------------------------------------------------------------------

#: What two neighbouring parts of a number are joined in, and how much more the first one counts.
_JOINTS = (
    (np.uint8, 10),
    (np.uint16, 100),
    (np.int32, 10_000),
    (np.int64, 10**8),
    (np.int64, 10**16),
)
#: So many ids are read at a time, to stay in the processor's cache.
_BLOCK = 1 << 15
#: And so many of rows, whose text is put together first.
_ROWS_AT_A_TIME = 1 << 17


class Digits:
    """Reads strings that are all a number behind one prefix, part by part, into numbers.

    Far faster than telling a million strings apart, and most collections are numbered.
    """

    def __init__(self, first: str) -> None:
        self.prefix = first.rstrip("0123456789")
        self._prefix = self.prefix.encode()
        # Without a digit there is no number; behind a lone "-" there is a negative one: missing.
        self.fits = self.prefix != first and self.prefix != "-"
        self._shortest, self._longest, self._zeros = 99, 0, False

    def read(
        self, data: NDArray[np.uint8], starts: NDArray[Any], ends: NDArray[Any]
    ) -> NDArray[np.int64] | None:
        """The numbers of the strings data[starts[i] : ends[i]]; None where they are no such."""
        lengths = ends - starts - len(self._prefix)
        if len(lengths) == 0:
            return np.empty(0, dtype=np.int64)
        shortest, longest = int(lengths.min()), int(lengths.max())
        if shortest < 1 or longest > 18:
            return None
        if shortest == longest and len(lengths) > 1:
            # They lie one behind the other, equally far apart.
            gap = int(starts[1] - starts[0])
            shape = len(lengths), longest + len(self._prefix)
            return self.read_table(as_strided(data[int(starts[0]) :], shape, (gap, 1)))
        self._saw(shortest, longest)
        numbers = np.empty(len(lengths), dtype=np.int64)
        for low in range(0, len(lengths), _BLOCK):
            part = slice(low, low + _BLOCK)
            for length in np.flatnonzero(np.bincount(lengths[part])).tolist():
                chosen = low + np.flatnonzero(lengths[part] == length)
                places = starts[chosen] + np.arange(length + len(self._prefix))[:, None]
                found = self._value(data[places])
                if found is None:
                    return None
                numbers[chosen] = found
        return numbers

    def read_table(self, table: NDArray[np.uint8]) -> NDArray[np.int64] | None:
        """The numbers of strings of one length, a row of bytes each; None where one is none."""
        digits = table.shape[1] - len(self._prefix)
        if not 1 <= digits <= 18:
            return None
        self._saw(digits, digits)
        numbers = np.empty(len(table), dtype=np.int64)
        for low in range(0, len(table), _BLOCK):
            found = self._value(table[low : low + _BLOCK].T)
            if found is None:
                return None
            numbers[low : low + _BLOCK] = found
        return numbers

    def _saw(self, shortest: int, longest: int) -> None:
        self._shortest = min(self._shortest, shortest)
        self._longest = max(self._longest, longest)

    def _value(self, columns: NDArray[np.uint8]) -> NDArray[Any] | None:
        """The numbers of strings of one length, given as the first byte of each, the second, ..."""
        start = len(self._prefix)
        for column, byte in zip(columns, self._prefix, strict=False):
            if bool((column != byte).any()):
                return None
        # Row by row from here on: the columns of a table lie far apart.
        figures = np.subtract(columns[start:], np.uint8(48), order="C")
        if int(figures.max(initial=0)) > 9:
            return None
        self._zeros |= len(figures) > 1 and not bool(figures[0].all())
        return _joined_figures(figures)

    def ids(self, numbers: NDArray[np.int64]) -> Ids | None:
        """All that was read as a column; None where the numbers are not written in one form."""
        if self._zeros and self._shortest != self._longest:
            return None
        if not self._zeros and not self.prefix:
            return Ids(numbers)
        return Ids(numbers, Numbered(self.prefix, self._longest if self._zeros else 0))


def _joined_figures(figures: NDArray[np.uint8]) -> NDArray[Any]:
    """Numbers (n,) of up to 18 figures (d, n), the highest first.

    Neighbours are joined pair by pair, in the narrowest type that holds them: most of the work is
    then done on single bytes.
    """
    parts: NDArray[Any] = figures
    for kind, factor in _JOINTS:
        if len(parts) == 1:
            break
        alone = len(parts) % 2
        joined = np.empty((alone + len(parts) // 2, parts.shape[1]), dtype=kind)
        joined[:alone] = parts[:alone]
        np.multiply(parts[alone::2], kind(factor), out=joined[alone:], dtype=kind)
        joined[alone:] += parts[alone + 1 :: 2]
        parts = joined
    return np.asarray(parts[0])


def _numbered_column(column: Any) -> Ids | None:
    """The numbers of an arrow column of strings; None where it holds others, or gaps."""
    import pyarrow as pa

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    chunks = [chunk for chunk in chunks if len(chunk)]
    views = any(pa.types.is_string_view(chunk.type) for chunk in chunks)
    if not chunks or column.null_count or views:
        return None
    digits = Digits(chunks[0][0].as_py())
    parts: list[NDArray[np.int64]] = []
    for chunk in chunks if digits.fits else ():
        numbers = digits.read(*string_bytes(chunk))
        if numbers is None:
            return None
        parts.append(numbers)
    return digits.ids(np.concatenate(parts)) if digits.fits else None


def string_bytes(column: Any) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any]]:
    """The bytes of an arrow column of strings, and where each string starts and ends."""
    import pyarrow as pa

    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, places, data = column.buffers()
    offsets = np.frombuffer(places, width)[column.offset : column.offset + len(column) + 1]
    found = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return found, offsets[:-1], offsets[1:]


def ids_of_rows(rows: Sequence[Collection[Any]], what: str = "ids") -> Ids:
    """Like `ids`, of rows of values, end to end."""
    try:
        numbered = numbered_rows(rows)
    except UnicodeError:
        numbered = None  # `ids` says what is wrong
    return ids(list(chain.from_iterable(rows)), what=what) if numbered is None else numbered


def numbered_rows(rows: Sequence[Collection[Any]]) -> Ids | None:
    """The ids of rows of strings that are all a number behind a prefix; None where they are not.

    Strings that differ are then different ids.
    """
    rows = [row for row in rows if len(row)]
    first: Any = next(iter(rows[0]), None) if rows else None
    digits = Digits(first) if isinstance(first, str) else None
    if digits is None or not digits.fits:
        return None
    numbers, count = Growing(np.int64), sum(map(len, rows))
    for some in _few_at_a_time(rows):
        try:
            # Row by row: what was looked at a moment ago is still in the cache.
            data = np.frombuffer("\n".join(map("\n".join, some)).encode(), np.uint8)
        except TypeError:
            return None
        length = len(next(iter(some[0])).encode())
        found = _numbers_of_lines(digits, data, sum(map(len, some)), length)
        if found is None:
            return None
        numbers.add(found, count)
    return digits.ids(numbers.whole())


def _few_at_a_time(rows: Sequence[Collection[Any]]) -> Iterator[Sequence[Collection[Any]]]:
    """The rows, some of them at a time, so that their text stays in the cache."""
    start = size = 0
    for at, row in enumerate(rows):
        size += len(row)
        if size >= _ROWS_AT_A_TIME:
            yield rows[start : at + 1]
            start, size = at + 1, 0
    if start < len(rows):
        yield rows[start:]


def _numbers_of_lines(
    digits: Digits, data: NDArray[np.uint8], count: int, length: int
) -> NDArray[np.int64] | None:
    """The numbers of `count` lines, the first of them with `length` bytes."""
    if len(data) + 1 == count * (length + 1) and bool((data[length :: length + 1] == 10).all()):
        return digits.read_table(as_strided(data, (count, length), (length + 1, 1)))
    ends = np.append(np.flatnonzero(data == 10), len(data))
    if len(ends) != count:
        return None
    return digits.read(data, np.append(0, ends[:-1] + 1), ends)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def unify(*columns: Ids) -> list[NDArray[np.int64]]:
    """Codes of several columns on one scale: equal codes mean the same id, -1 missing.

    The longest column keeps its codes; ids of the others that it cannot have get codes above.
    """
    if len({column.names for column in columns}) <= 1:
        return [c.codes for c in columns]
    lead = max(columns, key=len)
    if not isinstance(lead.names, Texts) and int(lead.codes.max(initial=0)) >= _TOO_LARGE:
        dense = _as_texts(lead)
        return unify(*(dense if c is lead else c for c in columns))
    others = [c for c in columns if c.names != lead.names]
    distinct = [np.unique(column.codes, return_inverse=True) for column in others]
    known = _translated(lead, [Ids(d, c.names) for c, (d, _) in zip(others, distinct, strict=True)])
    codes = iter([new[inverse] for new, (_, inverse) in zip(known, distinct, strict=True)])
    return [c.codes if c.names == lead.names else next(codes) for c in columns]


def _as_texts(column: Ids) -> Ids:
    """The same ids by position in their distinct strings."""
    import pyarrow as pa

    known = column.codes >= 0
    distinct, inverse = np.unique(column.codes[known], return_inverse=True)
    codes = np.full(len(column), MISSING, dtype=np.int64)
    codes[known] = inverse
    return Ids(codes, Texts(Ids(distinct, column.names).to_arrow().cast(pa.large_string())))


def _translated(lead: Ids, others: list[Ids]) -> list[NDArray[np.int64]]:
    """Codes of short columns of distinct ids on the scale of `lead`."""
    import pyarrow as pa

    columns = [column.to_arrow().cast(pa.large_string()) for column in others]
    joint = pa.concat_arrays(columns).dictionary_encode()
    texts = joint.dictionary
    if isinstance(lead.names, Texts):
        top = len(lead.names)
        # Looking up the many among the few is several times faster than the reverse.
        at = pa.compute.index_in(lead.names.column, value_set=texts)
        found = arrow.to_numpy(at.is_valid())
        codes = np.full(len(texts), MISSING, dtype=np.int64)
        codes[arrow.to_numpy(at)[found]] = np.flatnonzero(found)
    else:
        codes = (lead.names or Numbered("", 0)).codes_of(texts)
        top = 1 + max(int(lead.codes.max(initial=0)), int(codes.max(initial=0)))
    strange = codes < 0
    codes[strange] = top + np.arange(int(strange.sum()))
    flat = np.append(codes, MISSING)[_positions(joint.indices)]
    return np.split(flat, np.cumsum([len(column) for column in columns])[:-1])


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
    names = {column.names for column in columns}
    joint = names.pop() if len(names) == 1 else _joint_form(columns)
    if joint is not None or not names:
        return Ids(np.concatenate([c.codes for c in columns]), joint)
    import pyarrow as pa

    return _from_arrow(
        pa.chunked_array([c.to_arrow().cast(pa.large_string()) for c in columns]), "ids"
    )


def _joint_form(columns: Sequence[Ids]) -> Numbered | None:
    """The one form in which all columns of numbers can be written; None where there is none."""
    forms = [c.names if c.names is not None else Numbered("", 0) for c in columns]
    numbered = [form for form in forms if isinstance(form, Numbered)]
    widths = {form.width for form in numbered if form.width}
    if len(numbered) < len(columns) or len(widths) != 1 or len({f.prefix for f in numbered}) > 1:
        return None
    joint = Numbered(numbered[0].prefix, widths.pop())
    for column, form in zip(columns, numbered, strict=True):
        lowest, highest = 10 ** (joint.width - 1), 10**joint.width
        fit = (column.codes >= lowest) & (column.codes < highest) | (column.codes < 0)
        if form != joint and not fit.all():
            return None
    return joint


def ids_or_texts(column: Any) -> Any:
    """A part of a column of strings: Ids where all are numbers in one form, else as it is.

    Telling strings apart is better done once for all parts: see `Parts`.
    """
    numbered = _numbered_column(column)
    return column if numbered is None else numbered


class Parts:
    """A column of ids put together from what `ids_or_texts` made of its parts."""

    def __init__(self) -> None:
        self._numbers = Growing(np.int64)
        self._parts: list[Any] = []

    def add(self, part: Any, guess: int) -> None:
        """Append a part of a column of which about `guess` entries are expected."""
        if isinstance(part, Ids):
            start = len(self._numbers)
            self._numbers.add(part.codes, guess)
            part = (start, len(self._numbers), part.names)
        self._parts.append(part)

    def whole(self) -> Ids:
        """The column."""
        import pyarrow as pa

        numbers = self._numbers.whole()
        parts = [
            Ids(numbers[p[0] : p[1]], p[2]) if isinstance(p, tuple) else p for p in self._parts
        ]
        if all(isinstance(part, Ids) for part in parts):
            names = {part.names for part in parts}
            joint = names.pop() if len(names) == 1 else _joint_form(parts)
            if joint is not None or not names:
                return Ids(numbers, joint)
        texts = [part.to_arrow() if isinstance(part, Ids) else part for part in parts]
        return ids(pa.chunked_array([text.cast(pa.large_string()) for text in texts]))


class Growing:
    """A numpy column that grows part by part, in memory taken at once where the guess is good."""

    def __init__(self, dtype: Any) -> None:
        self._data: NDArray[Any] = np.empty(0, dtype=dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, part: NDArray[Any], guess: int) -> None:
        """Append a part of a column of which about `guess` entries are expected."""
        needed = self._length + len(part)
        if needed > len(self._data):
            grown = np.empty(max(needed, guess, needed + needed // 2), dtype=self._data.dtype)
            grown[: self._length] = self._data[: self._length]
            self._data = grown
        self._data[self._length : needed] = part
        self._length = needed

    def whole(self) -> NDArray[Any]:
        """The column, closed to changes."""
        column = self._data[: self._length]
        column.flags.writeable = False
        return column
