"""Neighbours in binary files: id matrices (.npy, ivecs, ibin) and big-ann ground truth."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run
from semrecall.data.ids import Ids
from semrecall.data.rows import pad
from semrecall.data.run import Ordering, taken
from semrecall.errors import InputError, SemrecallWarning
from semrecall.formats.files import fault, looks_like, named
from semrecall.formats.matrix import (
    bin_headers,
    map_npy,
    map_vecs,
    refuse_empty,
    vecs_rows,
    write_bin_header,
)
from semrecall.formats.options import Options
from semrecall.space import COSINE, IP, L2, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "id_matrix",
    "natural_scores",
    "read_ivecs",
    "read_neighbours",
    "read_npy_ids",
    "write_ibin",
    "write_ivecs",
    "write_neighbours",
    "write_npy_ids",
    "write_range",
]

#: In files of unsigned 32-bit ids all ones is "no result" (-1 written as int32).
NO_RESULT = 0xFFFFFFFF


# -- reading --------------------------------------------------------------------------------


def read_npy_ids(path: Path, options: Options) -> Run:
    """Results from a `.npy` matrix (n_queries, k) of ids, best first."""
    array = map_npy(path)
    if array.dtype.kind not in "iuUT" or array.ndim != 2:
        raise fault(
            path,
            f"holds {array.dtype} of shape {array.shape}; expected ids, integers or strings, "
            "of shape (n_queries, k)",
            "are these vectors? read_vectors reads them" if array.dtype.kind == "f" else None,
        )
    return id_matrix(path, array, options)


def read_ivecs(path: Path, options: Options) -> Run:
    """Results from a TEXMEX ivecs file: each row k, then k ids (int32, negative is missing)."""
    return id_matrix(path, map_vecs(path, np.dtype("<i4")), options)


def id_matrix(path: Path, matrix: NDArray[Any], options: Options) -> Run:
    """A run from a matrix of ids without scores."""
    with named(path):
        return Run.from_arrays(
            signed(np.asarray(matrix)), space=options.space, name=options.name or ""
        )


def signed(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids with 0xFFFFFFFF of unsigned 32-bit files as -1; larger than 2^31 stay themselves."""
    if ids.dtype != np.uint32:
        return ids
    wide = ids.astype(np.int64)
    wide[wide == NO_RESULT] = -1
    return wide


def read_neighbours(path: Path, options: Options) -> Run:
    """Results from a big-ann file; the size tells which of the layouts it has.

    Ids only: [n, k], n*k ids (header of 8 or 16 bytes). With distances: [n, k], n*k ids, n*k
    float32. Range search: [n, total], n counts, total ids, total float32. Ids are uint32, and
    0xFFFFFFFF is missing.
    """
    size = refuse_empty(path)
    (_, n, second), *wider = bin_headers(path)
    layouts = {
        "with distances": 8 + 8 * n * second,
        "ids only": 8 + 4 * n * second,
        "range": 8 + 4 * n + 8 * second,
    }
    fitting = [layout for layout, wanted in layouts.items() if wanted == size]
    # Tiny files can fit two layouts; then the name must say that it is a range search.
    if "range" in fitting and (len(fitting) == 1 or "range" in path.name.lower()):
        return _read_range(path, n, second, options)
    if fitting and second:
        return _read_knn(path, n, second, fitting[0] == "with distances", options)
    for header, rows, k in wider:
        if size == header + 4 * rows * k and k:
            return id_matrix(path, _part(path, "<u4", header, rows * k).reshape(rows, k), options)
    what = looks_like(path)
    if what:
        raise fault(path, f"is {what}; expected ids with a header [n, k]")
    sizes = ", ".join(f"{layout}: {wanted:,} bytes" for layout, wanted in layouts.items())
    raise fault(
        path,
        f"has {size:,} bytes; its header says {n:,} x {second:,} ({sizes})",
        "is the file cut off, or does it hold vectors (fbin, u8bin, ...)?",
    )


def _part(path: Path, dtype: str, start: int, count: int) -> NDArray[Any]:
    return np.fromfile(path, dtype=dtype, count=count, offset=start)


def _read_knn(path: Path, n: int, k: int, with_distances: bool, options: Options) -> Run:
    ids = signed(_part(path, "<u4", 8, n * k)).reshape(n, k)
    if not with_distances:
        return id_matrix(path, ids, options)
    distances = _part(path, "<f4", 8 + 4 * n * k, n * k).astype(np.float64).reshape(n, k)
    scores = natural_scores(path, distances, ids < 0, options.space)
    with named(path):
        return Run.from_arrays(ids, scores, space=options.space, name=options.name or "", k=k)


def _read_range(path: Path, n: int, total: int, options: Options) -> Run:
    offsets = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(_part(path, "<u4", 8, n), out=offsets[1:])
    if offsets[-1] != total:
        raise fault(path, f"counts per query add up to {offsets[-1]:,}; the header says {total:,}")
    documents = Ids(signed(_part(path, "<u4", 8 + 4 * n, total)))
    stored = _part(path, "<f4", 8 + 4 * n + 4 * total, total).astype(np.float64)
    if options.space is None or options.space is L2:
        scores = natural_scores(path, stored, documents.missing, options.space)
    else:
        # Rows stand in the order of the base, so nothing shows which way is nearer: as stored.
        scores = stored
    run = Run(
        Ids(np.arange(n, dtype=np.int64)),
        documents,
        offsets,
        scores,
        options.space,
        name=options.name or "",
    )
    if scores is None:
        return run
    order = Ordering("score", options.space).of(offsets, documents, scores)
    return run.replace(documents=taken(documents, order), flat_scores=taken(scores, order))


def natural_scores(
    path: Path,
    stored: NDArray[np.float64],
    missing: NDArray[np.bool_],
    space: Space | None,
) -> NDArray[np.float64] | None:
    """Distances of a big-ann file in the natural unit of `space`; None when it is not known.

    l2: the square root. ip and cosine: rows that rise are distances (negated inner product;
    1 - cosine), rows that fall are similarities and stay as they are. Other spaces: as stored.
    """
    if space is None:
        _note_left_out(path)
        return None
    values = np.where(missing, np.nan, stored)
    if space is L2:
        if bool((values < -1e-3).any()):
            raise fault(
                path, "has negative distances, which are no squared L2", "state another --space"
            )
        warnings.warn(
            f"{path}: distances are taken as squared L2; scores are their square roots",
            SemrecallWarning,
            stacklevel=2,
        )
        return np.sqrt(np.maximum(values, 0.0))
    if not space.higher_is_nearer:
        return values
    steps = np.diff(values, axis=-1)
    rising, falling = int((steps > 0).sum()), int((steps < 0).sum())
    if rising <= falling:
        return values
    if space not in (IP, COSINE):
        return values
    what = "1 - cosine" if space is COSINE else "negated inner products"
    warnings.warn(
        f"{path}: distances rise along the rows, so they are taken as {what}; "
        f"scores are {'cosines' if space is COSINE else 'inner products'}",
        SemrecallWarning,
        stacklevel=2,
    )
    return 1.0 - values if space is COSINE else -values


def _note_left_out(path: Path) -> None:
    warnings.warn(
        f"{path}: distances are left out, because their space is not stated "
        "(--space, or space= in Python, with ip, cosine or l2)",
        SemrecallWarning,
        stacklevel=3,
    )


# -- writing --------------------------------------------------------------------------------


def write_npy_ids(run: Run, path: Path) -> None:
    """Write the ids of a run as a `.npy` matrix (n_queries, k), int64 or text, -1 or "" missing."""
    _note_lost(run, "npy", scores=True)
    matrix = pad(run.documents.codes, run.offsets, -1)
    if not run.documents.are_integers:
        text = run.documents.array(matrix.reshape(-1)).astype(np.str_)
        matrix = text.reshape(matrix.shape)
    with path.open("wb") as file:
        np.save(file, matrix, allow_pickle=False)


def write_ivecs(run: Run, path: Path) -> None:
    """Write the ids of a run as ivecs, -1 where a row is shorter than the longest."""
    _note_lost(run, "ivecs", scores=True)
    path.write_bytes(vecs_rows(_padded(run, 2**31 - 1, "ivecs").astype("<i4")))


def write_ibin(run: Run, path: Path) -> None:
    """Write the ids of a run as big-ann ids: [n, k], then uint32 ids."""
    _note_lost(run, "ibin", scores=True)
    matrix = _padded(run, NO_RESULT - 1, "ibin")
    with path.open("wb") as file:
        write_bin_header(file, *matrix.shape)
        file.write(matrix.astype("<u4").tobytes())


def write_neighbours(run: Run, path: Path) -> None:
    """Write a run as big-ann ground truth: [n, k], ids, float32 distances (l2 squared)."""
    _note_lost(run, "big-ann ground truth")
    matrix = _padded(run, NO_RESULT - 1, "big-ann ground truth")
    distances = pad(_stored(run), run.offsets, np.nan).astype("<f4")
    with path.open("wb") as file:
        write_bin_header(file, *matrix.shape)
        file.write(matrix.astype("<u4").tobytes())
        file.write(distances.tobytes())


def write_range(run: Run, path: Path) -> None:
    """Write a run as big-ann range search results: [n, total], counts, ids, float32 distances."""
    _note_lost(run, "big-ann range results")
    _small_integers(run, NO_RESULT - 1, "big-ann range results")
    with path.open("wb") as file:
        write_bin_header(file, len(run), len(run.documents))
        file.write(np.diff(run.offsets).astype("<u4").tobytes())
        file.write(run.documents.codes.astype("<u4").tobytes())
        file.write(_stored(run).astype("<f4").tobytes())


def _stored(run: Run) -> NDArray[np.float64]:
    """Scores in the unit of big-ann files."""
    if run.flat_scores is None or run.space is None:
        missing = "scores" if run.flat_scores is None else "space"
        raise InputError(
            f"big-ann ground truth needs distances of a known space; this run has no {missing}",
            hint="write ids only (.ibin), or state the space",
        )
    return run.flat_scores**2 if run.space is L2 else run.flat_scores


def _padded(run: Run, largest: int, what: str) -> NDArray[np.int64]:
    _small_integers(run, largest, what)
    matrix = pad(run.documents.codes, run.offsets, -1)
    if matrix.shape[1] == 0:
        raise InputError(f"no query has a result; {what} cannot hold rows of length 0")
    return matrix


def _small_integers(run: Run, largest: int, what: str) -> None:
    hint = "write parquet, jsonl or npy instead"
    if not run.documents.are_integers:
        shown = next(d for d in run.documents if d)
        raise InputError(f"{what} holds integer ids; found the id {shown!r}", hint=hint)
    top = int(run.documents.codes.max(initial=0))
    if top > largest:
        raise InputError(f"{what} holds ids up to {largest:,}; found {top:,}", hint=hint)


def _note_lost(run: Run, what: str, *, scores: bool = False) -> None:
    """Say what the format cannot keep."""
    lost = []
    if not (run.queries.are_integers and np.array_equal(run.queries.codes, np.arange(len(run)))):
        lost.append("no query ids (row i is query i from now on)")
    if scores and run.flat_scores is not None:
        lost.append("no scores")
    if lost:
        warnings.warn(
            f"{what} keeps {' and '.join(lost)}; parquet keeps everything",
            SemrecallWarning,
            stacklevel=3,
        )
