"""Compiled inner loop of `packed.py`: it needs numba; any processor will do.

`_tile` counts the bits in which two rows differ from 32 queries, one query in each lane of a
vector, with all counts in registers. It is written in the compiler's intermediate language, because
a loop in Python keeps the counts in memory; what it becomes is the processor's own affair (one
instruction counts the bits of eight words where there is AVX-512 VPOPCNTDQ).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LANES", "PAD", "scan"]

_WIDTH, _VECTORS = 8, 4
#: Queries that are compared at a time, and what the number of rows is filled up to a multiple of.
LANES = _WIDTH * _VECTORS
PAD = 2

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORDS, _FLOATS = ir.VectorType(_I64, _WIDTH), ir.VectorType(_F32, _WIDTH)


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(
        one, nothing, ir.Constant(ir.VectorType(_I32, _WIDTH), [0] * _WIDTH)
    )


def _load(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    at = builder.add(address, ir.Constant(_I64, offset))
    return builder.load(builder.inttoptr(at, kind.as_pointer()), align=1)


def _ones(builder: Any, words: Any) -> Any:
    kind = ir.FunctionType(_WORDS, [_WORDS])
    name = f"llvm.ctpop.v{_WIDTH}i64"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [words])


def _within(builder: Any, count: Any, address: Any, size: Any, limits: int) -> Any:
    """A bit for each lane whose count is at most fixed + slope * size."""
    fixed = _load(builder, address, 4 * limits, _FLOATS)
    slope = _load(builder, address, 4 * (LANES + limits), _FLOATS)
    limit = builder.fadd(fixed, builder.fmul(slope, _splat(builder, size, _FLOATS)))
    passes = builder.fcmp_ordered("<=", builder.uitofp(count, _FLOATS), limit)
    return builder.zext(builder.bitcast(passes, ir.IntType(_WIDTH)), _I64)


@intrinsic  # type: ignore[untyped-decorator]
def _tile(
    typing: Any, queries: Any, limits: Any, rows: Any, sizes: Any, words: Any, counts: Any
) -> Any:
    """Two rows against LANES queries, by addresses; a bit for each pair within its limit.

    counts: room for the 2 * LANES counts.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        queries, limits, rows, sizes, words, counts = arguments
        cells = [(j, v) for j in range(PAD) for v in range(_VECTORS)]
        each = [rows, builder.add(rows, builder.mul(words, ir.Constant(_I64, 8)))]
        before = builder.block
        loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        word = builder.phi(_I64)
        word.add_incoming(ir.Constant(_I64, 0), before)
        sums = [builder.phi(_WORDS) for _ in cells]
        for value in sums:
            value.add_incoming(ir.Constant(_WORDS, [0] * _WIDTH), before)
        here = builder.add(queries, builder.mul(word, ir.Constant(_I64, 8 * LANES)))
        left = [_load(builder, here, 8 * _WIDTH * v, _WORDS) for v in range(_VECTORS)]
        offset = builder.mul(word, ir.Constant(_I64, 8))
        right = [
            _splat(builder, _load(builder, builder.add(row, offset), 0, _I64), _WORDS)
            for row in each
        ]
        for (j, v), value in zip(cells, sums, strict=True):
            differing = _ones(builder, builder.xor(left[v], right[j]))
            value.add_incoming(builder.add(value, differing), loop)
        following = builder.add(word, ir.Constant(_I64, 1))
        word.add_incoming(following, loop)
        final = [value.incomings[1][0] for value in sums]
        builder.cbranch(builder.icmp_signed("<", following, words), loop, after)
        builder.position_at_end(after)
        found: Any = ir.Constant(_I64, 0)
        for at, ((j, v), value) in enumerate(zip(cells, final, strict=True)):
            place = builder.add(counts, ir.Constant(_I64, 8 * _WIDTH * at))
            builder.store(value, builder.inttoptr(place, _WORDS.as_pointer()), align=1)
            size = _load(builder, sizes, 4 * j, _F32)
            bits = _within(builder, value, limits, size, _WIDTH * v)
            found = builder.or_(found, builder.shl(bits, ir.Constant(_I64, _WIDTH * at)))
        return found

    return numba.types.int64(*[numba.types.int64] * 6), code


def _compiled(function: Any) -> Any:
    """Compiled when it is first called; kept on disk where there is a place for it."""
    try:
        return numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # no folder to keep it in
        return numba.njit(function, nogil=True)


@_compiled
def scan(
    queries: Any, limits: Any, rows: Any, sizes: Any, query: Any, row: Any, differing: Any
) -> Any:
    """Pairs of which at most fixed + slope * size of the row bits differ; how many there are.

    queries (g, w, LANES), uint64; limits (g, 2, LANES), float32: fixed and slope. rows (b, w),
    b a multiple of PAD; sizes (b,), float32. Pairs are written to query, row and differing, each
    long enough for all of them.
    """
    found = 0
    words = rows.shape[1]
    counts = np.empty(2 * 32, dtype=np.int64)
    for g in range(queries.shape[0]):
        for i in range(0, rows.shape[0], 2):
            mask = _tile(
                queries[g].ctypes.data, limits[g].ctypes.data, rows[i].ctypes.data,
                sizes[i:].ctypes.data, words, counts.ctypes.data,
            )  # fmt: skip
            if mask == 0:
                continue
            for at in range(64):
                if (mask >> at) & 1:
                    query[found] = 32 * g + at % 32
                    row[found] = i + at // 32
                    differing[found] = counts[at]
                    found += 1
    return found
