"""Shards: files of vectors, near or far, whose rows are read in stretches and never held whole."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.ids import ids as as_ids
from semrecall.errors import FormatError, InputError
from semrecall.formats.files import fault, recognised
from semrecall.formats.matrix import headers_of
from semrecall.formats.parquet import column_matrix, id_column, number_type, vector_column
from semrecall.formats.remote import Source, source
from semrecall.formats.table import format_by_name, format_for
from semrecall.registry import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Shard", "is_shard", "open_shard", "stored_type"]

_PIECE = 4 << 20  # bytes that are read at a time
_AHEAD = 4  # ranges of a remote file under way together
_BINS = {"fbin": "<f4", "f16bin": "<f2", "u8bin": "u1", "i8bin": "i1"}
_VECS = {"fvecs": "<f4", "bvecs": "u1"}


class Shard(Protocol):
    """Rows (rows, dimension) of a file. Small: it is sent to the process that reads them."""

    @property
    def source(self) -> Source:
        """The file."""

    @property
    def rows(self) -> int:
        """How many."""

    @property
    def dimension(self) -> int:
        """Of each."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the pieces."""

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """The rows from start to stop, a few at a time; each byte is read once."""

    @property
    def cuts(self) -> Sequence[int] | None:
        """Rows where stretches best begin, because more than them is read otherwise; None: any."""

    def ids(self) -> Ids | None:
        """Ids of all rows, where the file has some."""


def is_shard(name: str) -> bool:
    """Whether the name of a file says that it is of a format that is read in stretches."""
    kind = format_by_name(Path(name))
    return kind in ("npy", "parquet", "hdf5", *_BINS, *_VECS)


def open_shard(location: str, dataset: str | None = None) -> Shard:
    """The file at a path or a URL: only what tells its form is read.

    dataset: the HDF5 data set ("train" when None) or the parquet column.
    Raises FormatError, naming the file, for one that is not what it claims to be.
    """
    file = source(location)
    if file.size == 0:
        raise fault(file.name, "the file is empty")
    kind = format_by_name(Path(file.name))
    if kind is None and file.local is not None:
        kind = format_for(file.local, "vectors", None)
    if dataset is not None and kind not in ("parquet", "hdf5"):
        raise InputError(f"{file.name}: a file of this format has no parts; leave dataset out")
    with _named(file.name):
        if kind == "npy":
            return _npy(file)
        if kind in _BINS:
            return _bin(file, np.dtype(_BINS[kind]))
        if kind in _VECS:
            return _vecs(file, np.dtype(_VECS[kind]))
        if kind == "parquet":
            return _parquet(file, dataset)
        if kind == "hdf5":
            return _hdf5(file, dataset or "train")
    raise InputError(
        f"{file.name}: expected a shard as .npy, .fbin, .f16bin, .u8bin, .i8bin, .fvecs, .bvecs, "
        ".parquet or .hdf5",
        hint="semrecall convert turns other files of vectors into these",
    )


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Put the file's name before what the nouns say of its content."""
    try:
        yield
    except FormatError:
        raise
    except InputError as error:
        raise FormatError(f"{name}: {error.message}", hint=error.hint) from error


# -- rows of equal length, one after another ----------------------------------------------------


@dataclass(frozen=True)
class Flat:
    """Rows that start `offset` bytes into the file, each of row_bytes bytes.

    skip: bytes before the values of each row, that hold its dimension (TEXMEX).
    """

    source: Source
    offset: int
    rows: int
    dimension: int
    dtype: np.dtype[Any]
    skip: int = 0

    @property
    def row_bytes(self) -> int:
        """From one row to the next."""
        return self.skip + self.dimension * self.dtype.itemsize

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """The rows from start to stop; those of a remote file are asked for ahead."""
        step = max(1, _PIECE // self.row_bytes)
        parts = [(low, min(low + step, stop)) for low in range(start, stop, step)]
        if self.source.local is not None:
            yield from (self._piece(part) for part in parts)
            return
        with ThreadPoolExecutor(_AHEAD) as pool:
            waiting: deque[Future[NDArray[Any]]] = deque()
            try:
                for part in parts:
                    waiting.append(pool.submit(self._piece, part))
                    if len(waiting) == _AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _piece(self, part: tuple[int, int]) -> NDArray[Any]:
        low, high = part
        data = self.source.read(
            self.offset + low * self.row_bytes, self.offset + high * self.row_bytes
        )
        if not self.skip:
            return np.frombuffer(data, self.dtype).reshape(high - low, self.dimension)
        raw = np.frombuffer(data, np.uint8).reshape(high - low, self.row_bytes)
        leading = np.ascontiguousarray(raw[:, :4]).view("<i4")[:, 0]
        wrong = np.flatnonzero(leading != self.dimension)
        if len(wrong):
            row = low + int(wrong[0])
            raise fault(
                self.source.name,
                f"row {row:,} has dimension {leading[wrong[0]]:,}, expected {self.dimension:,}",
            )
        return np.ascontiguousarray(raw[:, self.skip :]).view(self.dtype)

    @property
    def cuts(self) -> None:
        """Anywhere."""
        return

    def ids(self) -> Ids | None:
        """Such files hold none."""
        return None


@dataclass(frozen=True)
class Columns:
    """A local `.npy` that stands column by column: its rows are gathered from the memory map."""

    source: Source
    rows: int
    dimension: int
    dtype: np.dtype[Any]

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """The rows from start to stop."""
        matrix = np.load(self.source.location, mmap_mode="r", allow_pickle=False)
        step = max(1, _PIECE // (self.dimension * self.dtype.itemsize))
        for low in range(start, stop, step):
            yield np.ascontiguousarray(matrix[low : min(low + step, stop)])

    @property
    def cuts(self) -> None:
        """Anywhere."""
        return

    def ids(self) -> Ids | None:
        """Such files hold none."""
        return None


def _npy(file: Source) -> Shard:
    # What numpy writes has a header of 128 bytes.
    head = file.read(0, min(128, file.size))
    if not head.startswith(b"\x93NUMPY"):
        raise fault(file.name, f"is {recognised(head) or 'no .npy file'}; expected a .npy file")
    try:
        wide = head[6] > 1
        length = 12 + int.from_bytes(head[8:12], "little") if wide else 10 + int.from_bytes(
            head[8:10], "little"
        )  # fmt: skip
        head += file.read(len(head), max(len(head), min(length, file.size)))
        stream = io.BytesIO(head)
        version = np.lib.format.read_magic(stream)
        parse = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, by_columns, dtype = parse(stream)
    except ValueError as error:
        raise fault(file.name, f"the header cannot be read ({error})") from error
    if dtype.hasobject:
        hint = "pickles are not read: save an array of numbers"
        raise fault(file.name, "holds Python objects; expected numbers", hint)
    if len(shape) != 2 or shape[1] == 0:
        raise fault(file.name, f"holds an array of shape {shape}; expected (rows, dimensions)")
    offset = stream.tell()
    _expect_size(file, offset + shape[0] * shape[1] * dtype.itemsize, f"{shape} of {dtype}")
    if not by_columns or 1 in shape:
        return Flat(file, offset, shape[0], shape[1], dtype)
    if file.local is None:
        raise fault(
            file.name,
            "stands column by column, so that no stretch of rows can be read from far",
            "save it again with numpy.ascontiguousarray",
        )
    return Columns(file, shape[0], shape[1], dtype)


def _bin(file: Source, dtype: np.dtype[Any]) -> Shard:
    expected = []
    for header, rows, dimension in headers_of(file.name, file.read(0, min(16, file.size))):
        wanted = header + rows * dimension * dtype.itemsize
        if file.size == wanted and dimension > 0:
            return Flat(file, header, rows, dimension, dtype)
        if wanted < 2**63:
            expected.append(f"{rows:,} x {dimension:,} ({header}-byte header): {wanted:,} bytes")
    raise fault(
        file.name,
        f"has {file.size:,} bytes; its header read as {dtype.name} says {', or '.join(expected)}",
        "is the file cut off, or of another type (fbin, f16bin, u8bin, i8bin)?",
    )


def _vecs(file: Source, dtype: np.dtype[Any]) -> Shard:
    head = file.read(0, min(4, file.size))
    dimension = int.from_bytes(head, "little", signed=True) if len(head) == 4 else 0
    if dimension < 1:
        raise fault(file.name, "expected rows that start with their dimension (int32)")
    row_bytes = 4 + dimension * dtype.itemsize
    rows, rest = divmod(file.size, row_bytes)
    if rest:
        raise fault(
            file.name,
            f"has {file.size:,} bytes, that is {rows:,} rows of dimension {dimension} "
            f"({row_bytes:,} bytes each) and {rest:,} bytes more; is it cut off?",
        )
    return Flat(file, 0, rows, dimension, dtype, skip=4)


def _expect_size(file: Source, wanted: int, what: str) -> None:
    if file.size != wanted:
        raise fault(
            file.name,
            f"the header says {what}, {wanted:,} bytes; the file has {file.size:,}",
            "is it cut off, or being written?" if file.size < wanted else None,
        )


# -- parquet ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parquet:
    """A column of lists in a parquet file. Each stretch begins with a whole row group."""

    source: Source
    column: str
    id_column: str | None
    rows: int
    dimension: int
    dtype: np.dtype[Any]
    ends: tuple[int, ...]  # rows up to the end of each row group
    facts: Any = field(default=None, repr=False, compare=False)  # the footer, once it was read

    def __getstate__(self) -> dict[str, Any]:
        # Those of thousands of files are a lot to send.
        return {**self.__dict__, "facts": None}

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """The rows from start to stop; row groups that lie outside are not read."""
        ends = np.array(self.ends)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
        at = self.ends[first - 1] if first else 0
        # Pages are decoded as they come, so that a row group may be larger than memory.
        step = max(1, min(8192, _PIECE // (self.dimension * self.dtype.itemsize)))
        with _parquet_file(self.source, self.facts) as file:
            for batch in file.iter_batches(
                batch_size=step, row_groups=list(range(first, last + 1)), columns=[self.column]
            ):
                low, high = max(start - at, 0), min(stop - at, len(batch))
                if low < high:
                    path = Path(self.source.name)
                    matrix = column_matrix(path, batch.column(0), self.column, at)
                    if matrix.shape[1] != self.dimension:
                        raise fault(
                            self.source.name,
                            f"row {at + 1:,} has {matrix.shape[1]} values, expected "
                            f"{self.dimension} values",
                        )
                    yield matrix[low:high]
                at += len(batch)
                if at >= stop:
                    return

    @property
    def cuts(self) -> Sequence[int]:
        """Where row groups begin."""
        return (0, *self.ends[:-1])

    def ids(self) -> Ids | None:
        """The column of ids, where there is one."""
        if self.id_column is None:
            return None
        with _parquet_file(self.source, self.facts) as file:
            return as_ids(file.read(columns=[self.id_column]).column(0))


def _parquet_file(file: Source, facts: Any = None) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    handle: Any = str(file.local) if file.local is not None else file.open()
    try:
        return pq.ParquetFile(handle, metadata=facts, pre_buffer=False, buffer_size=_PIECE)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise fault(file.name, f"the parquet file is damaged or cut off ({reason})") from error


def _parquet(file: Source, dataset: str | None) -> Shard:
    if file.local is not None:
        head = file.read(0, min(32, file.size))
        if not head.startswith(b"PAR1"):
            found = recognised(head) or "no parquet file"
            raise fault(file.name, f"is {found}; expected a parquet file")
    with _parquet_file(file) as opened:
        path, facts = Path(file.name), opened.metadata
        column = dataset or vector_column(path, opened)
        names = opened.schema_arrow.names
        if column not in names:
            raise fault(file.name, f"has no column {column!r}; found columns {', '.join(names)}")
        kind = opened.schema_arrow.field(column).type
        groups = [facts.row_group(i).num_rows for i in range(facts.num_row_groups)]
        if hasattr(kind, "list_size"):
            first = np.empty((0, kind.list_size), number_type(kind.value_type))
        else:
            batches = opened.iter_batches(batch_size=1, columns=[column])
            first_batch = next(batches, None)
            if first_batch is None:
                raise fault(file.name, "holds no vectors")
            first = column_matrix(path, first_batch.column(0), column, 0)
        return Parquet(
            file,
            column,
            id_column(path, opened),
            facts.num_rows,
            first.shape[1],
            first.dtype,
            tuple(np.cumsum(groups).tolist()),
            facts,
        )


# -- HDF5 ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hdf5:
    """A data set that is compressed or stands in chunks; each chunk is read once."""

    source: Source
    dataset: str
    rows: int
    dimension: int
    dtype: np.dtype[Any]
    chunk: int  # rows that are read at a time

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """The rows from start to stop, in whole chunks of the file where they begin with one."""
        with _hdf5_file(self.source) as file:
            data = file[self.dataset]
            low = start
            while low < stop:
                high = min(stop, (low // self.chunk + 1) * self.chunk)
                yield data[low:high]
                low = high

    @property
    def cuts(self) -> Sequence[int]:
        """Where chunks begin."""
        return range(0, self.rows, self.chunk)

    def ids(self) -> Ids | None:
        """Such files hold none."""
        return None


def _hdf5_file(file: Source) -> Any:
    h5py = import_extra("h5py", "hdf5", "reading HDF5")
    try:
        return h5py.File(str(file.local) if file.local is not None else file.open(), "r")
    except OSError as error:
        raise fault(file.name, f"the HDF5 file cannot be opened ({error})") from error


def _hdf5(file: Source, name: str) -> Shard:
    with _hdf5_file(file) as opened:
        if name not in opened or not hasattr(opened[name], "shape"):
            found = ", ".join(n for n in opened if hasattr(opened[n], "shape")) or "none"
            raise fault(
                file.name,
                f"has no data set {name!r}; found {found}",
                "name one: --base-dataset, or dataset= in Python",
            )
        data = opened[name]
        if data.ndim != 2 or data.dtype.kind not in "fiu" or data.shape[1] == 0:
            raise fault(
                file.name,
                f"{name} holds {data.dtype} of shape {data.shape}; "
                "expected numbers of shape (rows, dimensions)",
            )
        (rows, dimension), dtype = data.shape, data.dtype
        offset = data.id.get_offset()
        if offset is not None and data.size and not opened.userblock_size:
            if offset + data.nbytes > file.size:
                raise fault(file.name, f"{name} ends beyond the end of the file; is it cut off?")
            return Flat(file, offset, rows, dimension, dtype)
        chunk = data.chunks[0] if data.chunks else rows
        step = max(1, _PIECE // (dimension * dtype.itemsize))
        return Hdf5(file, name, rows, dimension, dtype, chunk * max(1, step // max(1, chunk)))


def stored_type(shard: Shard) -> np.dtype[Any]:
    """The type that rows of a shard are compared in: wide integers become float32."""
    return Vectors.of(np.empty((0, shard.dimension), shard.dtype)).dtype
