"""Arrow columns from and to numpy, without the detour through pandas.

pyarrow's own conversions import pandas, where it is installed, to look for its types: 0.15 s, half
of what evaluating a small run takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["from_integers", "from_texts", "to_numpy"]


def from_texts(texts: list[str]) -> Any:
    """A column of large_string."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(texts)), out=offsets[1:])
    buffers = pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))
    return pa.LargeStringArray.from_buffers(len(texts), *buffers)


def from_integers(values: NDArray[np.int64], missing: NDArray[np.bool_] | None = None) -> Any:
    """A column of int64, null where `missing` says so."""
    import pyarrow as pa

    known = None
    if missing is not None and missing.any():
        known = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.int64(), len(values), [known, data])


def to_numpy(column: Any) -> NDArray[Any]:
    """A column of numbers or booleans as numpy, shape (m,); any value where it is null."""
    import pyarrow as pa

    kind = column.type
    data = column.buffers()[1]
    start, stop = column.offset, column.offset + len(column)
    if pa.types.is_boolean(kind):
        whole = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
        return np.unpackbits(whole, bitorder="little")[start:stop].astype(bool)
    letter = "f" if pa.types.is_floating(kind) else "iu"[pa.types.is_unsigned_integer(kind)]
    dtype = np.dtype(f"{letter}{kind.bit_width // 8}")
    return np.frombuffer(data, dtype)[start:stop] if data else np.empty(0, dtype)
