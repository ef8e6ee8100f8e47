"""What predicates say of some rows: arrow columns compared with values, by the logic of SQL."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError
from semrecall.formats.parquet import number_type
from semrecall.formats.predicates import And, Has, In, Not, Null, Or, Parameter, Predicate, Test

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Batch"]

_FUNCTIONS = {
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal",
}  # fmt: skip


@dataclass
class Batch:
    """Some rows: what predicates say of each; what several have in common is computed once."""

    table: Any
    _known: dict[str, Any] = field(default_factory=dict)

    def bits(self, predicate: Predicate | None) -> NDArray[np.uint8]:
        """A bit for each row that is allowed."""
        import pyarrow.compute as pc

        if predicate is None:
            return np.packbits(np.ones(len(self.table), dtype=bool))
        mask = pc.fill_null(self._mask(predicate), False)
        return np.packbits(mask.to_numpy(zero_copy_only=False))

    def _mask(self, predicate: Predicate) -> Any:
        """An arrow column of booleans, null where it is neither true nor false."""
        import pyarrow.compute as pc

        if isinstance(predicate, And | Or):
            join = pc.and_kleene if isinstance(predicate, And) else pc.or_kleene
            found = self._mask(predicate.parts[0])
            for part in predicate.parts[1:]:
                found = join(found, self._mask(part))
            return found
        if isinstance(predicate, Not):
            return pc.invert(self._mask(predicate.part))
        key = str(predicate)
        if key not in self._known:
            self._known[key] = self._leaf(predicate)
        return self._known[key]

    def _leaf(self, leaf: Test | In | Has | Null) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(leaf.column.name)
        if isinstance(leaf, Null):
            return pc.is_null(column)
        if isinstance(leaf, Has):
            return _has(column, leaf)
        if pa.types.is_dictionary(column.type):
            # Texts that repeat are compared once each.
            return pc.take(_compared(column.dictionary, leaf), column.indices)
        return _compared(column, leaf)

    def _column(self, name: str) -> Any:
        import pyarrow as pa

        key = f"`{name}"  # no predicate reads so
        if key not in self._known:
            column = self.table.column(name).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            kind = column.type
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                column = column.dictionary_encode()
            elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
                column = column.cast(pa.float64())
            self._known[key] = column
        return self._known[key]


def _compared(column: Any, leaf: Test | In) -> Any:
    """What one test says of a column without a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_())
    if isinstance(leaf, In):
        if pa.types.is_integer(column.type) and all(map(_number, leaf.values)):
            whole = [int(v) for v in leaf.values if isinstance(v, int | float) and v % 1 == 0]
            held = [v for v in whole if _fits(v, column.type)]
            found = pc.is_in(column, value_set=pa.array(held, column.type))
            return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), found)
        found = pa.array(np.zeros(len(column), dtype=bool), mask=_nulls(column))
        for value in leaf.values:
            found = pc.or_kleene(found, _compared(column, Test(leaf.column, "==", value)))
        return found
    operator, value = leaf.operator, leaf.value
    assert not isinstance(value, Parameter)
    kind = column.type
    if pa.types.is_boolean(kind) and isinstance(value, bool) and operator in ("==", "!="):
        scalar = pa.scalar(value)
    elif pa.types.is_integer(kind) and _number(value):
        operator, value = _whole(operator, value)
        inside = isinstance(value, int) and _fits(value, kind)
        if not inside:
            # Beyond what the column can hold, all rows are on one side.
            above = value > 0
            sure = {"==": False, "!=": True}.get(operator, (operator in ("<", "<=")) == above)
            return pa.array(np.full(len(column), sure), mask=_nulls(column))
        scalar = pa.scalar(value, kind)
    elif pa.types.is_floating(kind) and _number(value):
        scalar = pa.scalar(float(value), kind)
    elif pa.types.is_temporal(kind) and isinstance(value, str):
        scalar = _moment(value, kind, leaf)
    elif (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and isinstance(value, str):
        scalar = pa.scalar(value, kind)
    else:
        raise InputError(
            f"the filter compares the column {leaf.column.name!r}, which holds {kind}, in {leaf}",
            hint="texts stand in quotes, numbers do not",
        )
    return getattr(pc, _FUNCTIONS[operator])(column, scalar)


def _has(column: Any, leaf: Has) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.bool_())
    if not (lists or pa.types.is_fixed_size_list(kind)):
        held = kind.value_type if pa.types.is_dictionary(kind) else kind
        raise InputError(
            f"the filter looks for {leaf.value!r} in the column {leaf.column.name!r}, which holds "
            f"{held}; expected lists"
        )
    parents = pc.list_parent_indices(column).to_numpy()
    equal = pc.fill_null(_compared(column.flatten(), Test(leaf.column, "==", leaf.value)), False)
    found = np.zeros(len(column), dtype=bool)
    found[parents[equal.to_numpy(zero_copy_only=False)]] = True
    return pa.array(found, mask=_nulls(column))


def _nulls(column: Any) -> NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(operator: str, value: Any) -> tuple[str, Any]:
    """A test of whole numbers against a number, as one against a whole number where it can be."""
    if isinstance(value, int) or value == math.floor(value):
        return operator, int(value)
    if operator in ("<", "<="):
        return "<=", math.floor(value)
    if operator in (">", ">="):
        return ">=", math.ceil(value)
    # No whole number is equal to a fraction.
    return operator, math.inf


def _fits(value: int, kind: Any) -> bool:
    limits = np.iinfo(number_type(kind))
    return bool(limits.min <= value <= limits.max)


def _moment(value: str, kind: Any, leaf: Test | In) -> Any:
    import pyarrow as pa

    try:
        return pa.scalar(value).cast(kind)
    except pa.ArrowException as error:
        raise InputError(
            f"the filter compares the column {leaf.column.name!r}, which holds {kind}, with "
            f"{value!r}",
            hint='dates are written "2026-01-31", times "2026-01-31 12:00:00", with a zone as '
            '"2026-01-31 12:00:00Z"',
        ) from error
