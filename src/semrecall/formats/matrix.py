"""Matrices in binary files, memory-mapped: .npy, TEXMEX fvecs and bvecs, big-ann fbin and kin."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Vectors
from semrecall.data.ids import Ids
from semrecall.errors import FormatError, InputError, SemrecallWarning
from semrecall.formats.files import fault, looks_like, named
from semrecall.formats.options import Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BLOCK_BYTES",
    "bin_headers",
    "headers_of",
    "map_bin",
    "map_npy",
    "map_vecs",
    "read_bin",
    "read_npy",
    "read_vecs",
    "record_ids",
    "refuse_empty",
    "vecs_rows",
    "write_bin",
    "write_bin_header",
    "write_npy",
    "write_vecs",
]

#: Vectors are written in blocks of about this size, so that memory stays bounded.
BLOCK_BYTES = 16 << 20
#: Leading dimensions of a TEXMEX file are all checked up to so many rows, sampled beyond.
CHECKED_ROWS = 1 << 18


def read_npy(path: Path, options: Options) -> Vectors:
    """Vectors of a `.npy` file."""
    matrix = map_npy(path)
    with named(path):
        return Vectors.of(matrix, ids=options.ids)


def read_vecs(path: Path, options: Options, *, dtype: str) -> Vectors:
    """Vectors of a TEXMEX file: each row an int32 dimension, then its values."""
    with named(path):
        return Vectors.of(map_vecs(path, np.dtype(dtype)), ids=options.ids)


def read_bin(path: Path, options: Options, *, dtype: str) -> Vectors:
    """Vectors of a big-ann file: a header [n, d], then the rows."""
    with named(path):
        return Vectors.of(map_bin(path, np.dtype(dtype)), ids=options.ids)


# -- reading --------------------------------------------------------------------------------


def map_npy(path: Path) -> NDArray[Any]:
    """The array of a `.npy` file, memory-mapped; FormatError when it is something else."""
    refuse_empty(path)
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise fault(path, f"is {looks_like(path) or 'no .npy file'}; expected a .npy file")
    size = path.stat().st_size
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise _npy_fault(path, size, str(error)) from error
    start = getattr(array, "offset", size)
    if array.size and size != start + array.nbytes:
        raise fault(
            path,
            f"the header says {array.shape} of {array.dtype}, {start + array.nbytes:,} bytes; "
            f"the file has {size:,}",
        )
    return array


def _npy_fault(path: Path, size: int, message: str) -> FormatError:
    if "Python objects" in message:
        hint = "pickles are not read: save an array of numbers"
        return fault(path, "holds Python objects; expected numbers", hint)
    if "greater than file size" in message:
        return fault(path, f"the file ends early: it has {size:,} bytes, its header asks for more")
    return fault(path, f"the header cannot be read ({message})")


def map_vecs(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The rows of a TEXMEX file, shape (n, d), a view of the memory map: nothing is copied."""
    refuse_empty(path)
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    if len(raw) < 4:
        raise fault(path, f"has {len(raw)} bytes; expected at least the 4 of a row's dimension")
    dimension = int(raw[:4].view("<i4")[0])
    row_bytes = 4 + dimension * dtype.itemsize
    if dimension < 1 or (row_bytes > len(raw) and looks_like(path)):
        found = looks_like(path) or f"starts with dimension {dimension}"
        raise fault(path, f"{found}; expected rows that start with their dimension (int32)")
    n, rest = divmod(len(raw), row_bytes)
    _check_leading(path, raw, row_bytes, dimension)
    if rest:
        raise fault(
            path,
            f"has {len(raw):,} bytes, that is {n:,} rows of dimension {dimension} "
            f"({row_bytes:,} bytes each) and {rest:,} bytes more; is it cut off?",
        )
    rows = raw.reshape(n, row_bytes)[:, 4:]
    return rows if dtype.itemsize == 1 else rows.view(dtype)


def _check_leading(path: Path, raw: NDArray[np.uint8], row_bytes: int, dimension: int) -> None:
    """Every row must start with the same dimension; in a long file a sample of rows must.

    A row of another length shifts all rows behind it, so the last rows give it away.
    """
    rows = (len(raw) - 4) // row_bytes + 1
    if rows > CHECKED_ROWS:
        sample = np.linspace(0, rows - 1, CHECKED_ROWS // 4).astype(np.int64)
        if bool((_leading(raw, sample * row_bytes) == dimension).all()):
            return
    for low in range(0, rows, CHECKED_ROWS):
        found = _leading(raw, np.arange(low, min(low + CHECKED_ROWS, rows)) * row_bytes)
        wrong = np.flatnonzero(found != dimension)
        if len(wrong):
            row = low + int(wrong[0])
            raise fault(
                path, f"row {row:,} has dimension {int(found[wrong[0]]):,}, expected {dimension:,}"
            )


def _leading(raw: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    found: NDArray[np.int32] = raw[starts[:, None] + np.arange(4)].view("<i4")[:, 0]
    return found


def map_bin(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The matrix of a big-ann file, memory-mapped.

    The header is [uint32 n, uint32 d] or [uint64 n, uint64 d]; the file's size tells which.
    """
    size = refuse_empty(path)
    expected = []
    for header, n, d in bin_headers(path):
        # Python integers: n * d passes 2^32 in real files.
        wanted = header + n * d * dtype.itemsize
        if size == wanted and d > 0:
            if n == 0:
                return np.empty((0, d), dtype)
            return np.memmap(path, dtype=dtype, mode="r", offset=header, shape=(n, d))
        # A number of bytes that no file has is no reading of the header.
        if wanted < 2**63:
            expected.append(f"{n:,} x {d:,} ({header}-byte header): {wanted:,} bytes")
    what = looks_like(path)
    if what:
        raise fault(path, f"is {what}; expected a matrix of {dtype.name} with a header [n, d]")
    raise fault(
        path,
        f"has {size:,} bytes; its header read as {dtype.name} says {', or '.join(expected)}",
        "is the file cut off, or of another type (fbin, f16bin, u8bin, i8bin, ibin)?",
    )


def bin_headers(path: Path) -> list[tuple[int, int, int]]:
    """(bytes of the header, n, d) by both readings of a big-ann header."""
    with path.open("rb") as file:
        return headers_of(path, file.read(16))


def headers_of(path: Path | str, head: bytes) -> list[tuple[int, int, int]]:
    """The same of the first 16 bytes of a file."""
    if len(head) < 8:
        raise fault(path, f"has {len(head)} bytes; expected at least the 8 of a header [n, d]")
    short = np.frombuffer(head[:8], "<u4")
    found = [(8, int(short[0]), int(short[1]))]
    if len(head) == 16:
        wide = np.frombuffer(head, "<u8")
        found.append((16, int(wide[0]), int(wide[1])))
    return found


def refuse_empty(path: Path) -> int:
    """The size of a file in bytes; FormatError when it is 0."""
    size = path.stat().st_size
    if size == 0:
        raise fault(path, "the file is empty")
    return size


# -- writing --------------------------------------------------------------------------------


def write_npy(vectors: Vectors, path: Path) -> None:
    """Write vectors as `.npy`."""
    _note_lost_ids(vectors, "npy")

    def header(file: IO[bytes], rows: int) -> None:
        np.lib.format.write_array_header_1_0(
            file,
            {
                "descr": np.lib.format.dtype_to_descr(vectors.dtype),
                "fortran_order": False,
                "shape": (rows, vectors.dimension),
            },
        )

    _write_rows(vectors, path, header, vectors.dtype)


def write_bin(vectors: Vectors, path: Path, *, dtype: str) -> None:
    """Write vectors as big-ann fbin, f16bin, u8bin or i8bin."""
    _note_lost_ids(vectors, "the file")
    wide = vectors.length is not None and vectors.length >= 2**32

    def header(file: IO[bytes], rows: int) -> None:
        write_bin_header(file, rows, vectors.dimension, wide)

    _write_rows(vectors, path, header, np.dtype(dtype))


def write_bin_header(file: IO[bytes], n: int, d: int, wide: bool = False) -> None:
    """[n, d] as two uint32, or as two uint64 where `wide`."""
    file.write(np.array([n, d], dtype="<u8" if wide else "<u4").tobytes())


def write_vecs(vectors: Vectors, path: Path, *, dtype: str) -> None:
    """Write vectors as TEXMEX fvecs or bvecs."""
    _note_lost_ids(vectors, "the file")
    target = np.dtype(dtype)
    cast = _caster(vectors, target)
    with path.open("wb") as file:
        for start, block in _blocks(vectors):
            file.write(vecs_rows(cast(start, block)))


def vecs_rows(rows: NDArray[Any]) -> bytes:
    """Rows of TEXMEX, each with its dimension in front."""
    n, d = rows.shape
    packed = np.empty((n, 4 + d * rows.dtype.itemsize), np.uint8)
    packed[:, :4] = np.frombuffer(np.array([d], "<i4").tobytes(), np.uint8)
    packed[:, 4:] = np.ascontiguousarray(rows).view(np.uint8).reshape(n, -1)
    return packed.tobytes()


def _write_rows(
    vectors: Vectors, path: Path, header: Callable[[IO[bytes], int], None], dtype: np.dtype[Any]
) -> None:
    """A header and the rows; the header is written again when the rows were counted."""
    cast = _caster(vectors, dtype)
    with path.open("wb") as file:
        header(file, vectors.length or 0)
        count = 0
        for start, block in _blocks(vectors):
            file.write(np.ascontiguousarray(cast(start, block)).data)
            count = start + len(block)
        if count != vectors.length:
            file.seek(0)
            header(file, count)


def _blocks(vectors: Vectors) -> Iterator[tuple[int, NDArray[Any]]]:
    rows = max(1, BLOCK_BYTES // (vectors.dimension * vectors.dtype.itemsize))
    for start, block in vectors.blocks(rows):
        yield start, block
        vectors.release()


def _caster(vectors: Vectors, target: np.dtype[Any]) -> Callable[[int, NDArray[Any]], NDArray[Any]]:
    """Turns blocks into another type; to integers only without loss, floats may be rounded."""
    rounded = False

    def cast(start: int, block: NDArray[Any]) -> NDArray[Any]:
        nonlocal rounded
        if block.dtype == target:
            return block
        with np.errstate(over="ignore", invalid="ignore"):
            new = block.astype(target)
            lost = (new.astype(np.float64) != block) & ~(np.isnan(block) & np.isnan(new))
        if not lost.any():
            return new
        row, column = (int(i[0]) for i in np.nonzero(lost))
        value = f"value {block[row, column]!s} at row {start + row:,}, column {column}"
        if target.kind != "f":
            raise InputError(
                f"{value} does not fit {target.name}",
                hint="choose a format of floating-point numbers: fbin, fvecs, npy",
            )
        if bool(np.isinf(new[lost]).any()):
            raise InputError(f"{value} or another is beyond the range of {target.name}")
        if not rounded:
            warnings.warn(
                f"{block.dtype} vectors were rounded to {target.name}",
                SemrecallWarning,
                stacklevel=2,
            )
            rounded = True
        return new

    return cast


def record_ids(vectors: Vectors) -> Ids | None:
    """Ids worth keeping: None where they are 0, 1, 2, ..."""
    own = vectors.given_ids
    if own is None or (own.are_integers and np.array_equal(own.codes, np.arange(len(own)))):
        return None
    return own


def _note_lost_ids(vectors: Vectors, where: str) -> None:
    if record_ids(vectors) is not None:
        warnings.warn(
            f"{where} keeps no ids: row i is vector i from now on (parquet keeps them)",
            SemrecallWarning,
            stacklevel=2,
        )
