"""Compiled inner loops of `fused.py`: they need numba, and a processor with products of bytes.

`tile` is one instruction sequence for a few rows against a few vectors of queries, kept in
registers: products of bytes with sums in 32 bits (VNNI), then the comparison of `quantised.py`. It
is written in the compiler's intermediate language, because no loop in Python is turned into that
instruction reliably. Everything else is plain loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LANES", "PAD", "pair_sums", "products", "quantise", "scan"]

_FEATURES = binding.get_host_cpu_features()
_WIDE = all(_FEATURES.get(name, False) for name in ("avx512f", "avx512bw", "avx512vnni"))
if not (_WIDE or (_FEATURES.get("avxvnni", False) and _FEATURES.get("fma", False))):
    raise ImportError("this processor has no products of bytes")
if numba.config.DISABLE_JIT:
    raise ImportError("numba is told not to compile")

#: Queries in one vector, and what the number of rows is filled up to a multiple of.
LANES = 16 if _WIDE else 8
PAD = 12
_PANEL = 4 if _WIDE else 2  # vectors of queries in one tile
_ASM, _CONSTRAINT = (
    ("vpdpbusd $2, $1, $0", "=v,v,v,0") if _WIDE else ("{vex} vpdpbusd $2, $1, $0", "=x,x,x,0")
)
binding.initialize_native_asmparser()

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_INTS, _FLOATS = ir.VectorType(_I32, LANES), ir.VectorType(_F32, LANES)
_MASK = ir.IntType(LANES)


class _Writer:
    """Writes loads, broadcasts and products of vectors with one builder."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def address(self, base: Any, offset: int) -> Any:
        return self.builder.add(base, ir.Constant(_I64, offset))

    def load(self, address: Any, kind: Any) -> Any:
        pointer = self.builder.inttoptr(address, kind.as_pointer())
        return self.builder.load(pointer, align=1)

    def splat(self, value: Any, kind: Any) -> Any:
        nothing = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(nothing, value, ir.Constant(_I32, 0))
        zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, nothing, zeros)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        name = f"llvm.fma.v{LANES}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [a, b, c])

    def products(self, unsigned: Any, signed: Any, sums: Any) -> Any:
        kind = ir.FunctionType(_INTS, [_INTS] * 3)
        return self.builder.asm(kind, _ASM, _CONSTRAINT, [unsigned, signed, sums], False)


def _tile(vectors: int, rows: int) -> Any:
    """Code for so many vectors of queries against so many rows.

    Arguments are addresses, and: bytes of a row, steps of four dimensions, distance between the
    four numbers of one query. Writes one mask of LANES bits a row and vector; returns them or-ed.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes, values, stride, steps, start, numbers, params, distance, masks = arguments
        write = _Writer(builder)
        cells = [(j, r) for j in range(rows) for r in range(vectors)]
        initial = [write.splat(write.load(write.address(start, 4 * j), _I32), _INTS)
                   for j in range(rows)]  # fmt: skip
        each = [builder.add(values, builder.mul(stride, ir.Constant(_I64, j))) for j in range(rows)]
        before = builder.block
        loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(_I64)
        step.add_incoming(ir.Constant(_I64, 0), before)
        sums = [builder.phi(_INTS) for _ in cells]
        for (j, _), value in zip(cells, sums, strict=True):
            value.add_incoming(initial[j], before)
        here = builder.add(lanes, builder.mul(step, ir.Constant(_I64, 4 * LANES * vectors)))
        left = [write.load(write.address(here, 4 * LANES * r), _INTS) for r in range(vectors)]
        offset = builder.mul(step, ir.Constant(_I64, 4))
        right = [write.splat(write.load(builder.add(row, offset), _I32), _INTS) for row in each]
        added = [write.products(left[r], right[j], value)
                 for (j, r), value in zip(cells, sums, strict=True)]  # fmt: skip
        following = builder.add(step, ir.Constant(_I64, 1))
        step.add_incoming(following, loop)
        for value, new in zip(sums, added, strict=True):
            value.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
        builder.position_at_end(after)
        return compared(builder, write, cells, added, numbers, params, distance, masks)

    def compared(
        builder: Any, write: Any, cells: Any, sums: Any,
        numbers: Any, params: Any, distance: Any, masks: Any,
    ) -> Any:  # fmt: skip
        """Whether scale * (scale * sum) + inside * off + off * length + t - limit >= 0."""
        apart = builder.mul(distance, ir.Constant(_I64, 4))
        first = [builder.add(params, builder.mul(apart, ir.Constant(_I64, n))) for n in range(4)]
        found: Any = ir.Constant(_MASK, 0)
        zero = ir.Constant(_FLOATS, [0.0] * LANES)
        for (j, r), total in zip(cells, sums, strict=True):
            row = [write.splat(write.load(write.address(numbers, 16 * j + 4 * n), _F32), _FLOATS)
                   for n in range(4)]  # fmt: skip
            query = [write.load(write.address(f, 4 * LANES * r), _FLOATS) for f in first]
            value = builder.fsub(row[3], query[0])
            value = write.fused(query[1], row[1], value)
            value = write.fused(query[2], row[2], value)
            scaled = builder.fmul(builder.sitofp(total, _FLOATS), row[0])
            value = write.fused(scaled, query[3], value)
            mask = builder.bitcast(builder.fcmp_ordered(">=", value, zero), _MASK)
            place = write.address(masks, 2 * (j * vectors + r))
            wide = mask if LANES == 16 else builder.zext(mask, _I16)
            builder.store(wide, builder.inttoptr(place, _I16.as_pointer()), align=2)
            found = builder.or_(found, mask)
        return builder.zext(found, _I64)

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(
        typing: Any, lanes: Any, values: Any, stride: Any, steps: Any, start: Any,
        numbers: Any, params: Any, distance: Any, masks: Any,
    ) -> Any:  # fmt: skip
        return numba.types.int64(*[numba.types.int64] * 9), code

    return tile


@intrinsic  # type: ignore[untyped-decorator]
def _lowest(typing: Any, word: Any) -> Any:
    """The number of the lowest bit that is set."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return numba.types.int64(numba.types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def _fetch(typing: Any, address: Any) -> Any:
    """Ask for what is at an address, because it will be read soon."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        options = [ir.Constant(_I32, number) for number in (0, 3, 1)]  # to read, often, data
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *options])
        return context.get_dummy_value()

    return numba.types.void(numba.types.int64), code


# Rows enough that sums do not wait for each other, few enough that all stays in registers.
_TILES = [_tile(1, 12), _tile(2, 12 if _WIDE else 6), _tile(3, 6), _tile(4, 6)]
_tile1, _tile2, _tile3, _tile4 = _TILES
_ROWS2 = 12 if _WIDE else 6


def _array(kind: Any, dimensions: int = 1, readonly: bool = False) -> Any:
    return numba.types.Array(kind, dimensions, "C", readonly=readonly)


_f4, _i1, _i4 = numba.types.float32, numba.types.int8, numba.types.int32
_row, _rows = _array(_f4, 1, readonly=True), _array(_f4, 2, readonly=True)  # may be mapped files

_ints = _array(numba.types.int64, readonly=True)


def _compiled(signature: Any, **options: Any) -> Callable[[Any], Any]:
    """Compiled at once; kept on disk for the next time where there is a place for it."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder to keep it in
            return numba.njit(signature, nogil=True, **options)(function)

    return decorate


# Sums in any order are covered by the bounds; NaN and infinity keep their meaning.
_ANY_ORDER = {"reassoc", "contract", "nsz"}


@_compiled(_f4(_row, _row), fastmath=_ANY_ORDER)
def _product(a: Any, b: Any) -> Any:
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@_compiled(numba.types.UniTuple(_f4, 2)(_row, _array(_i1), _f4), fastmath=_ANY_ORDER)
def _rounded(row: Any, values: Any, factor: Any) -> Any:
    """Values as rounded bytes; the squared lengths of what they leave out, and of all, scaled."""
    outside, whole = np.float32(0), np.float32(0)
    for i in range(len(row)):
        scaled = row[i] * factor
        nearest = np.rint(scaled)
        values[i] = np.int8(nearest)
        off = scaled - nearest
        outside += off * off
        whole += scaled * scaled
    return outside, whole


@_compiled(_i4(_array(_i4, readonly=True)))
def _largest(bits: Any) -> Any:
    """Bits of the largest absolute value: they are in the order of the values."""
    largest = np.int32(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & np.int32(0x7FFFFFFF))
    return largest


@_compiled(numba.types.void(_rows, numba.types.int64, _array(_i1, 2), _array(_i4), _array(_f4, 2)))
def quantise(rows: Any, dimension: Any, values: Any, start: Any, numbers: Any) -> None:
    """Rows (b, d or more) as bytes `values` (b or more, d filled up), with their four numbers.

    start: what sums begin with, because queries are stored 128 higher. numbers: scale; how far
    the bytes are off, as a length; the length; and the column after the last, if there is one.
    Rows beyond the last get numbers that let no pair pass. Proof in `quantised.py`.
    """
    unit = 2.0**-24
    slack = 1.0 + (dimension + 16) * unit
    pattern = np.empty(1, np.int32)
    meaning = pattern.view(np.float32)
    for i in range(len(rows)):
        row = rows[i, :dimension]
        pattern[0] = _largest(row.view(np.int32))
        peak = meaning[0]
        numbers[i, 3] = rows[i, dimension] if rows.shape[1] > dimension else np.float32(0)
        values[i, dimension:] = 0
        if not peak > np.float32(1e-30):
            length = np.float64(peak) * np.sqrt(np.float64(dimension)) * slack
            values[i, :] = 0
            start[i] = 0
            numbers[i, 0] = 0
            numbers[i, 1] = np.float32(length * (1 + 2 * unit))
            numbers[i, 2] = numbers[i, 1]
            continue
        scale = np.float32(peak / np.float32(127))
        outside, whole = _rounded(row, values[i], np.float32(np.float32(127) / peak))
        total = np.int32(0)
        for j in range(dimension):
            total += np.int32(values[i, j])
        start[i] = -128 * total
        length = np.float64(scale) * np.sqrt(np.float64(whole)) * slack
        off = np.float64(scale) * np.sqrt(np.float64(outside)) * slack + 4 * unit * length
        numbers[i, 0] = scale
        numbers[i, 1] = np.float32(off * (1 + 2 * unit))
        numbers[i, 2] = np.float32(length * (1 + 2 * unit))
    for i in range(len(rows), len(values)):
        values[i, :] = 0
        start[i] = 0
        numbers[i, :3] = 0
        numbers[i, 3] = -np.inf


_terms = _array(numba.types.float64)


@_compiled(numba.types.void(_row, _row, _row, _row, _terms))
def _products(a: Any, b: Any, c: Any, d: Any, terms: Any) -> None:
    for j in range(len(terms)):
        terms[j] = np.float64(a[j]) * np.float64(b[j]) + np.float64(c[j]) * np.float64(d[j])


@_compiled(numba.types.void(_row, _row, _row, _row, _terms))
def _squares(a: Any, b: Any, c: Any, d: Any, terms: Any) -> None:
    for j in range(len(terms)):
        x, y = np.float64(a[j]) - np.float64(b[j]), np.float64(c[j]) - np.float64(d[j])
        terms[j] = x * x + y * y


@_compiled(numba.types.void(_terms, _terms))
def _add(terms: Any, others: Any) -> None:
    for j in range(len(terms)):
        terms[j] += others[j]


@_compiled(numba.types.void(_rows, _ints, _rows, _ints, numba.types.boolean, _terms))
def pair_sums(matrix: Any, rows: Any, others: Any, numbers: Any, squared: Any, sums: Any) -> None:
    """Sums of the products of rows, or of their squared differences, as `ordered_sum` adds them.

    In float64 and without any freedom in the order, so the sums have the same bits.
    """
    d = matrix.shape[1]
    half, first = d // 2, d - d // 2
    terms = np.zeros(first + 1, np.float64)
    for i in range(len(rows)):
        if i + 1 < len(rows):
            following = matrix.ctypes.data + rows[i + 1] * d * 4
            for byte in range(0, 4 * d, 64):
                _fetch(following + byte)
        a, b = matrix[rows[i]], others[numbers[i]]
        # The first step takes the terms and adds both halves; an odd one in the middle stays alone.
        if squared:
            _squares(a[:half], b[:half], a[first:], b[first:], terms[:half])
        else:
            _products(a[:half], b[:half], a[first:], b[first:], terms[:half])
        if first > half:
            x, y = np.float64(a[half]), np.float64(b[half])
            terms[half] = (x - y) * (x - y) if squared else x * y
        width = first
        while width > 1:
            low = width // 2
            _add(terms[:low], terms[width - low : width])
            width -= low
        sums[i] = terms[0]


_five = numba.types.UniTuple(_f4, 5)


@_compiled(_five(_row, _row, _row, _row, _row), fastmath=_ANY_ORDER)
def _four(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The products of one row with four others and with itself."""
    zero = np.float32(0)
    first, second, third, fourth, square = zero, zero, zero, zero, zero
    for i in range(len(x)):
        first += a[i] * x[i]
        second += b[i] * x[i]
        third += c[i] * x[i]
        fourth += d[i] * x[i]
        square += x[i] * x[i]
    return first, second, third, fourth, square


@_compiled(numba.types.UniTuple(_f4, 2)(_row, _row), fastmath=_ANY_ORDER)
def _one(x: Any, a: Any) -> Any:
    """The products of one row with another and with itself."""
    first, square = np.float32(0), np.float32(0)
    for i in range(len(x)):
        first += a[i] * x[i]
        square += x[i] * x[i]
    return first, square


@_compiled(numba.types.void(_row, _row, _array(_f4)))
def _subtract(x: Any, centre: Any, moved: Any) -> None:
    for i in range(len(x)):
        moved[i] = x[i] - centre[i]


def _few(moves: bool) -> Any:
    """Loops for rows that are moved before, or are not."""

    @_compiled(numba.types.void(_rows, _row, _rows, numba.types.Array(_f4, 2, "A"), _array(_f4)))
    def products(rows: Any, centre: Any, left: Any, scores: Any, squares: Any) -> None:
        moved = np.empty(len(centre), np.float32)
        for i in range(len(rows)):
            x = rows[i]
            if moves:
                _subtract(x, centre, moved)
                x = moved
            q = 0
            while q + 4 <= len(left):
                a, b, c, d, square = _four(x, left[q], left[q + 1], left[q + 2], left[q + 3])
                scores[q, i], scores[q + 1, i], scores[q + 2, i], scores[q + 3, i] = a, b, c, d
                squares[i] = square
                q += 4
            while q < len(left):
                scores[q, i], squares[i] = _one(x, left[q])
                q += 1

    return products


_as_they_are, _moved = _few(False), _few(True)


def products(rows: Any, centre: Any, left: Any, scores: Any, squares: Any) -> None:
    """Products of rows (b, d) with few others (m, d), and with themselves, in one pass over them.

    centre (d,): what is taken from each row before, or None. Written are scores (m, b), which may
    be some of more columns, and squares (b,).
    """
    if centre is None:
        _as_they_are(rows, left[0], left, scores, squares)
    else:
        _moved(rows, centre, left, scores, squares)


@_compiled(numba.types.void(_array(_f4), _f4))
def _replace_least(heap: Any, score: Any) -> None:
    """Put a score in the place of the least of a heap, which stands first."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= score:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = score


@_compiled(
    numba.types.int64(
        _array(numba.types.uint8), numba.types.int64, numba.types.int64,
        _array(_f4, 2), _array(_f4), _array(_f4), _array(_f4),
        _array(_i1, 2), _array(_i4), _array(_f4, 2), _rows, _rows, _array(_f4, 2),
        _array(numba.types.uint16), _array(_i4), _array(_f4),
    )
)  # fmt: skip
def scan(
    lanes: Any, low: Any, high: Any, params: Any, limits: Any, margins: Any, rises: Any,
    values: Any, start: Any, numbers: Any, rows: Any, left: Any, heaps: Any,
    query: Any, column: Any, score: Any,
) -> int:  # fmt: skip
    """All pairs that may reach their limit; how many they are.

    Queries low to high are looked at, both multiples of 4 LANES, or the last. lanes, params: see
    `quantised.py`. limits: what a score in float32 must reach; margins and rises: how far limits
    of bytes stay below these, and these below the least of a full heap (m, k). values, start,
    numbers: from `quantise`. rows, left: what scores are products of. Written are query, column
    and score of the pairs; limits, params and heaps are raised on the way.
    """
    masks = np.empty(48, np.uint16)
    stride, n = values.shape[1], len(rows)
    distance, count = params.shape[1], 0
    panel = _PANEL * LANES
    for q in range(low, high, panel):
        vectors = min(_PANEL, (high - q) // LANES)
        step = 12 if vectors == 1 else (_ROWS2 if vectors == 2 else 6)
        a, e, f = lanes.ctypes.data + q * stride, params.ctypes.data + 4 * q, masks.ctypes.data
        for i in range(0, n, step):
            b = values.ctypes.data + i * stride
            c, d = start.ctypes.data + 4 * i, numbers.ctypes.data + 16 * i
            if vectors == 4:
                found = _tile4(a, b, stride, stride // 4, c, d, e, distance, f)
            elif vectors == 3:
                found = _tile3(a, b, stride, stride // 4, c, d, e, distance, f)
            elif vectors == 2:
                found = _tile2(a, b, stride, stride // 4, c, d, e, distance, f)
            else:
                found = _tile1(a, b, stride, stride // 4, c, d, e, distance, f)
            if found == 0:
                continue
            for cell in range(vectors * step):
                word = np.int64(masks[cell])
                while word:
                    at = q + cell % vectors * LANES + _lowest(word)
                    row = i + cell // vectors
                    word &= word - 1
                    value = _product(left[at], rows[row])
                    if value >= limits[at]:
                        query[count], column[count], score[count] = at, row, value
                        count += 1
                        if value > heaps[at, 0]:
                            _replace_least(heaps[at], value)
                            limit = heaps[at, 0] - rises[at]
                            if limit > limits[at]:
                                limits[at] = limit
                                params[0, at] = limit - margins[at]
    return count
