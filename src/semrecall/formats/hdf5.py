"""HDF5 data sets of ann-benchmarks and VIBE: train, test, neighbors, distances."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.formats.files import fault, looks_like, named
from semrecall.formats.options import Options
from semrecall.formats.parquet import IN_MEMORY_BYTES
from semrecall.registry import import_extra
from semrecall.space import COSINE, IP, L2, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_run", "read_vectors", "write_hdf5"]

#: The file's word for its distance -> our space. Its distances are lower for nearer, always.
_SPACES = {
    "euclidean": L2,
    "l2": L2,
    "angular": COSINE,
    "cosine": COSINE,
    "normalized": COSINE,
    "ip": IP,
    "dot": IP,
}
_CONVERSIONS = {COSINE: "1 - cosine to cosine", IP: "negated inner product to inner product"}


def read_vectors(path: Path, options: Options) -> Vectors:
    """The data set `train` (or `dataset=`): memory-mapped where it lies in one piece.

    Compressed or chunked data up to 1 GiB is read into memory, larger ones are a stream.
    """
    with _opened(path) as file:
        _refuse_sets(path, file)
        found = _dataset(path, file, options.dataset or "train")
        if found.ndim != 2 or found.dtype.kind not in "fiu":
            raise fault(
                path,
                f"{found.name[1:]} holds {found.dtype} of shape {found.shape}; "
                "expected numbers of shape (rows, dimensions)",
            )
        matrix = _mapped(path, file, found)
        name = found.name
        if matrix is None and found.nbytes <= IN_MEMORY_BYTES:
            matrix = found[:]
        rows = len(found)
    with named(path):
        if matrix is None:
            return Vectors.from_blocks(_Blocks(path, name), ids=options.ids, length=rows)
        return Vectors.of(matrix, ids=options.ids)


def holds_neighbours(path: Path) -> bool:
    """Whether the file has true neighbours beside its vectors."""
    with _opened(path) as file:
        return "neighbors" in file


def read_run(path: Path, options: Options) -> Run:
    """The exact neighbours: `neighbors` (or `dataset=`) with `distances`, in our unit."""
    with _opened(path) as file:
        _refuse_sets(path, file)
        name = options.dataset or "neighbors"
        neighbours = _dataset(path, file, name)[:]
        beside = name.replace("neighbors", "distances")
        stored = file[beside][:] if beside in file and beside != name else None
        word = _text(file.attrs.get("distance"))
    space = _SPACES.get(word.lower()) if word else None
    if word and space is None:
        raise fault(path, f"its distance is {word!r}; semrecall measures euclidean, angular and ip")
    if options.space is not None and space not in (None, options.space):
        raise MismatchError(
            f"{path}: the file says distance {word!r}, that is {space}; {options.space} was asked "
            "for",
            hint="leave the space out: the file knows it",
        )
    space = space or options.space
    if stored is not None and stored.shape != neighbours.shape:
        raise fault(path, f"neighbors have shape {neighbours.shape}, distances {stored.shape}")
    scores = None if stored is None else _natural(path, stored.astype(np.float64), space)
    with named(path):
        return Run.from_arrays(neighbours, scores, space=space, name=options.name or "")


def write_hdf5(
    path: Path,
    *,
    base: Vectors | None = None,
    queries: Vectors | None = None,
    truth: Run | None = None,
) -> None:
    """Write what is given as train, test, neighbors and distances."""
    h5py = _h5py()
    with _system_errors(), h5py.File(path, "w") as file:
        for name, vectors in (("train", base), ("test", queries)):
            if vectors is not None:
                _write_vectors(file, name, vectors)
        if truth is not None:
            _write_truth(file, truth)


# -- reading --------------------------------------------------------------------------------


def _h5py() -> Any:
    return import_extra("h5py", "hdf5", "reading and writing HDF5")


def _opened(path: Path) -> Any:
    h5py = _h5py()
    what = looks_like(path)
    if what not in (None, "an HDF5 file"):
        raise fault(path, f"is {what}; expected an HDF5 file")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise fault(path, f"the HDF5 file cannot be opened ({error})") from error


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _refuse_sets(path: Path, file: Any) -> None:
    word, kind = _text(file.attrs.get("distance")).lower(), _text(file.attrs.get("type")).lower()
    if word == "jaccard" or kind == "sparse":
        raise fault(
            path,
            "holds sparse sets compared by Jaccard similarity; semrecall measures dense vectors "
            "in ip, cosine or l2",
        )
    if word == "hamming":
        raise fault(
            path,
            "holds bit vectors compared by Hamming distance; semrecall measures dense vectors "
            "in ip, cosine or l2",
        )


def _dataset(path: Path, file: Any, name: str) -> Any:
    if name not in file or not hasattr(file[name], "shape"):
        found = ", ".join(n for n in file if hasattr(file[n], "shape")) or "none"
        raise fault(
            path, f"has no data set {name!r}; found {found}", "name one: --dataset, or dataset="
        )
    return file[name]


def _mapped(path: Path, file: Any, dataset: Any) -> NDArray[Any] | None:
    """The memory map of a data set that lies in one piece in the file; None for others."""
    offset = dataset.id.get_offset()
    if offset is None or dataset.size == 0 or file.userblock_size or not dataset.dtype.isnative:
        return None
    if offset + dataset.nbytes > path.stat().st_size:
        raise fault(path, f"{dataset.name[1:]} ends beyond the end of the file; is it cut off?")
    return np.memmap(path, dtype=dataset.dtype, mode="r", offset=offset, shape=dataset.shape)


class _Blocks:
    """A data set, block by block, read anew in every pass."""

    def __init__(self, path: Path, name: str, rows: int = 8192) -> None:
        self._path, self._name, self._rows = path, name, rows

    def __iter__(self) -> Iterator[NDArray[Any]]:
        with _opened(self._path) as file:
            dataset = file[self._name]
            for start in range(0, len(dataset), self._rows):
                yield dataset[start : start + self._rows]


def _natural(
    path: Path, distances: NDArray[np.float64], space: Space | None
) -> NDArray[np.float64] | None:
    """The file's distances in the natural unit of the space."""
    if space is None:
        warnings.warn(
            f"{path}: distances are left out, because the file does not say their space "
            "(--space, or space= in Python, with ip, cosine or l2)",
            SemrecallWarning,
            stacklevel=3,
        )
        return None
    if space not in _CONVERSIONS:
        return distances
    steps = np.diff(distances, axis=-1)
    if space is IP and int((steps < 0).sum()) > int((steps > 0).sum()):
        return distances
    warnings.warn(
        f"{path}: distances were turned from {_CONVERSIONS[space]}",
        SemrecallWarning,
        stacklevel=3,
    )
    return 1.0 - distances if space is COSINE else -distances


# -- writing --------------------------------------------------------------------------------


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """After a failed write h5py fails to close the file, too, with another kind of error."""
    try:
        yield
    except RuntimeError as error:
        number = re.search(r"errno = (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _write_vectors(file: Any, name: str, vectors: Vectors) -> None:
    # One piece, uncompressed: it can be memory-mapped.
    stored = file.create_dataset(name, (len(vectors), vectors.dimension), vectors.dtype)
    for start, block in vectors.blocks(max(1, (16 << 20) // (vectors.dimension * 8))):
        stored[start : start + len(block)] = block
        vectors.release()


def _write_truth(file: Any, truth: Run) -> None:
    if not truth.documents.are_integers:
        raise InputError("HDF5 data sets hold integer ids; this run has strings")
    file.create_dataset("neighbors", data=np.asarray(truth.ids).astype(np.int64))
    if truth.space is None or truth.scores is None:
        return
    if truth.space not in (L2, COSINE, IP):
        raise InputError(
            f"HDF5 of ann-benchmarks has no distance for space {truth.space}",
            hint="write .parquet, which keeps the space",
        )
    scores = np.asarray(truth.scores)
    distances = {L2: scores, COSINE: 1.0 - scores, IP: -scores}[truth.space]
    file.create_dataset("distances", data=distances)
    words = {L2: "euclidean", COSINE: "angular", IP: "ip"}
    file.attrs["distance"] = words[truth.space]
