"""Making a faiss index: from a factory string and vectors, and with ids of its own."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SemrecallWarning
from semrecall.systems.base import Knob, as_compared, searchable, usable_blocks
from semrecall.systems.faiss_index import faiss, layers
from semrecall.systems.inprocess import Rows
from semrecall.systems.loading import refuse_after_usearch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = [
    "BUILD_KNOBS",
    "build_index",
    "build_lines",
    "reason",
    "with_ids",
]

BUILD_KNOBS = (
    Knob("seed", "build", 0, 2**31 - 1, 1234, "seed of the training sample and of k-means"),
    Knob("train_rows", "build", 1, 2**40, None, "vectors to train on; else all that faiss uses"),
    Knob("efConstruction", "build", 1, 65536, 40, "HNSW: length of the list while linking"),
    Knob("threads", "build", 1, 4096, None, "threads while building; 1 makes a graph repeatable"),
)

#: Below this many vectors per centre faiss calls a clustering poor.
_FEW = 39
#: What transforms and scalar quantisers are trained on at most.
_TRAIN_ROWS = 65_536


def build_index(factory: str, rows: Rows, knobs: Mapping[str, Any]) -> tuple[Any, int]:
    """Train on a sample and add all rows, a block at a time; and how many it was trained on.

    Raises InputError when faiss cannot read the factory string, or it does not fit the data.
    """
    index = _empty(factory, rows.base.dimension, rows.space)
    if "efConstruction" in knobs:
        _set_construction(index, factory, knobs["efConstruction"])
    seed = int(knobs.get("seed", 1234))
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(knobs.get("threads", before))
    try:
        trained_on = _train(index, factory, rows, seed, knobs.get("train_rows"))
        _add(index, rows)
    finally:
        faiss.omp_set_num_threads(before)
    return index, trained_on


def build_lines(factory: str, dimension: int, space: Space, knobs: Mapping[str, Any]) -> str:
    """How faiss itself builds such an index, as Python; `vectors` are the rows."""
    metric = "METRIC_L2" if space.name == "l2" else "METRIC_INNER_PRODUCT"
    lines = [f"index = faiss.index_factory({dimension}, {factory!r}, faiss.{metric})"]
    if "threads" in knobs:
        lines.insert(0, f"faiss.omp_set_num_threads({knobs['threads']})")
    if "efConstruction" in knobs:
        name = "quantizer_efConstruction" if "IVF" in factory else "efConstruction"
        lines.append(
            "faiss.ParameterSpace().set_index_parameter("
            f"index, {name!r}, {knobs['efConstruction']})"
        )
    if "seed" in knobs and "IVF" in factory:
        lines.append(f"faiss.extract_index_ivf(index).cp.seed = {knobs['seed']}")
    rows = "vectors"
    if "train_rows" in knobs:
        lines.append(f"rows = np.random.default_rng({knobs.get('seed', 1234)}).choice(len(vectors),"
                     f" min({knobs['train_rows']}, len(vectors)), replace=False)")  # fmt: skip
        rows = "vectors[rows]"
    return "\n".join([*lines, f"index.train({rows})", "index.add(vectors)"])


def with_ids(index: Any, own: NDArray[np.int64]) -> Any:
    """An id map of these ids (ntotal,) around an index, which it needs to stay alive."""
    inner = index.index if isinstance(index, faiss.IndexIDMap) else index
    # Made by hand, as faiss itself puts an id map around an empty index only.
    outer = faiss.IndexIDMap(faiss.IndexFlat(inner.d, inner.metric_type))
    outer.own_fields, outer.index = False, inner
    outer.ntotal, outer.is_trained = inner.ntotal, True
    faiss.copy_array_to_vector(np.ascontiguousarray(own, dtype=np.int64), outer.id_map)
    return outer


def reason(error: Exception) -> str:
    """What faiss says, without the place in its source."""
    text = re.sub(r"^Error in .*? at \S+:\d+: ", "", str(error).strip(), flags=re.DOTALL)
    return re.sub(r"^Error: '.*?' failed: ?", "", text, flags=re.DOTALL).rstrip(": ") or text


def _empty(factory: str, dimension: int, space: Space) -> Any:
    metric = faiss.METRIC_L2 if space.name == "l2" else faiss.METRIC_INNER_PRODUCT
    refuse_after_usearch("faiss", "reading a factory string of faiss")
    try:
        return faiss.index_factory(dimension, factory, metric)
    except RuntimeError as error:
        raise InputError(
            f"faiss cannot make an index of {dimension} dimensions from the factory string "
            f"{factory!r}: {reason(error)}",
            hint="for example Flat, HNSW32, IVF256,Flat, IVF256,SQ8, OPQ16,IVF256,PQ16, "
            "IVF256,PQ16,RFlat",
        ) from error


def _set_construction(index: Any, factory: str, value: int) -> None:
    for name in ("efConstruction", "quantizer_efConstruction"):
        try:
            faiss.ParameterSpace().set_index_parameter(index, name, value)
        except RuntimeError:
            continue
        return
    raise InputError(f"{factory!r} has no HNSW graph; efConstruction belongs to one")


def _clusterings(index: Any) -> Iterator[tuple[str, int, Any]]:
    """Each k-means that training runs: what its centres are, how many, and its parameters."""
    for layer in layers(index):
        if isinstance(layer, faiss.IndexIVF):
            yield "lists", layer.nlist, layer.cp
        storage = getattr(layer, "storage", None)
        for part in (layer, None if storage is None else faiss.downcast_index(storage)):
            quantizer = getattr(part, "pq", None)
            if quantizer is not None:
                yield "values of a code", 1 << quantizer.nbits, quantizer.cp


def _train(index: Any, factory: str, rows: Rows, seed: int, wanted: int | None) -> int:
    """Train on a sample; returns how many vectors it had (0: nothing to train)."""
    if index.is_trained:
        return 0
    most, centres, what = _TRAIN_ROWS, 0, ""
    for name, number, parameters in _clusterings(index):
        parameters.seed = seed
        most = max(most, number * parameters.max_points_per_centroid)
        centres, what = max((centres, what), (number, name))
    sample = _sample(rows.base, rows.space, wanted or most, seed)
    try:
        with _quiet(index):
            index.train(sample)
    except RuntimeError as error:
        raise InputError(
            f"faiss cannot train {factory!r} on {len(sample):,} vectors: {reason(error)}",
            hint="fewer lists, fewer bits, or more vectors",
        ) from error
    if len(sample) < _FEW * centres:
        warnings.warn(
            f"{factory!r} was trained on {len(sample):,} vectors; its {centres:,} {what} want "
            f"at least {_FEW * centres:,}",
            SemrecallWarning,
            stacklevel=4,
        )
    return len(sample)


@contextmanager
def _quiet(index: Any) -> Iterator[None]:
    """Keep faiss from printing, past Python, that there are few vectors; we say it once."""
    for _, _, parameters in _clusterings(index):
        parameters.min_points_per_centroid = 1
    rotations = list(_rotations(index))
    # What they would make by themselves. faiss does not own it, so it lives in this list.
    own = [faiss.ProductQuantizer(r.d_out, r.M, 8) for r in rotations]
    for rotation, quantizer in zip(rotations, own, strict=True):
        quantizer.cp.min_points_per_centroid = 1
        rotation.pq = quantizer
    try:
        yield
    finally:
        for rotation in rotations:
            rotation.pq = None


def _rotations(index: Any) -> Iterator[Any]:
    """The OPQ rotations of an index."""
    for layer in layers(index):
        if isinstance(layer, faiss.IndexPreTransform):
            for number in range(layer.chain.size()):
                transform = faiss.downcast_VectorTransform(layer.chain.at(number))
                if isinstance(transform, faiss.OPQMatrix):
                    yield transform


def _sample(base: Vectors, space: Space, most: int, seed: int) -> NDArray[np.float32]:
    """At most `most` rows, each as likely as another, in the order of the base."""
    total = base.length
    if total is None:
        total = sum(len(block) for _, block in base.blocks(1 << 16))
    chosen = np.arange(total)
    if total > most:
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.choice(total, most, replace=False, shuffle=False))
    if base.matrix is not None:
        rows = base.take(chosen)
        return as_compared(rows[searchable(rows, space)], space)
    parts = [
        block[np.isin(rows, chosen, assume_unique=True)]
        for _, rows, block in usable_blocks(base, space)
    ]
    return np.concatenate([np.empty((0, base.dimension), dtype=np.float32), *parts])


def _add(index: Any, rows: Rows) -> None:
    has_map, added = any(isinstance(layer, faiss.IndexIDMap) for layer in layers(index)), 0
    for _, block in rows.blocks():
        try:
            if has_map:
                index.add_with_ids(block, np.arange(added, added + len(block)))
            else:
                index.add(block)
        except RuntimeError as error:
            raise InputError(f"faiss cannot add these vectors: {reason(error)}") from error
        added += len(block)
