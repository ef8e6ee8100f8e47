"""Inside a faiss index: its layers, what can be turned, what a search touches, what is kept.

Indexes nest (id map, refine, transform, inverted lists, graph, and a coarse quantiser that may
be any of these). Each function here walks the layers once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import SystemFault
from semrecall.registry import import_extra
from semrecall.systems.base import Knob, Stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Dial",
    "Kept",
    "dials",
    "id_map",
    "kept",
    "layers",
    "list_ids",
    "memory_bytes",
    "name_of",
    "stages",
    "transformed",
]

# Wrapped by SWIG: what its types hold is known at run time only.
faiss: Any = import_extra("faiss", "faiss", "the system 'faiss'")

_SCANNED = (faiss.IndexFlatCodes, faiss.IndexFastScan)
_WRAPPERS = (faiss.IndexIDMap, faiss.IndexPreTransform, faiss.IndexRefine)
#: Types whose codes can be decoded; RaBitQ and LSH estimate from codes without decoding them.
_DECODED = (
    faiss.IndexFlat,
    faiss.IndexScalarQuantizer,
    faiss.IndexPQ,
    faiss.IndexAdditiveQuantizer,
    faiss.IndexPQFastScan,
    faiss.IndexAdditiveQuantizerFastScan,
)
_DECODED_LISTS = (
    faiss.IndexIVFFlat,
    faiss.IndexIVFScalarQuantizer,
    faiss.IndexIVFPQ,
    faiss.IndexIVFAdditiveQuantizer,
    faiss.IndexIVFPQFastScan,
    faiss.IndexIVFAdditiveQuantizerFastScan,
)
_GRAPHS = (faiss.IndexHNSW, faiss.IndexNSG)


def layers(index: Any) -> Iterator[Any]:
    """The index and what it wraps, outermost first; the coarse quantiser is not among them."""
    while index is not None:
        index = faiss.downcast_index(index)
        yield index
        index = getattr(index, "base_index", None) or getattr(index, "index", None)


def name_of(index: Any) -> str:
    """The types of the layers, e.g. "IndexRefineFlat(IndexIVFFlat)"."""
    names = [type(layer).__name__ for layer in layers(index)]
    return "(".join(names) + ")" * (len(names) - 1)


def id_map(index: Any) -> NDArray[np.int64] | None:
    """The ids an id map gives to the positions, (ntotal,); None without an id map."""
    for layer in layers(index):
        if isinstance(layer, faiss.IndexIDMap):
            return np.asarray(faiss.vector_to_array(layer.id_map), dtype=np.int64)
    return None


def list_ids(index: Any) -> NDArray[np.int64] | None:
    """The ids stored in the inverted lists, (ntotal,) rising; None without lists."""
    for layer in layers(index):
        if isinstance(layer, faiss.IndexIVF):
            return _ids_in_lists(layer.invlists, layer.nlist)
    return None


def _ids_in_lists(lists: Any, nlist: int) -> NDArray[np.int64]:
    sizes = [lists.list_size(number) for number in range(nlist)]
    parts = [
        faiss.rev_swig_ptr(lists.get_ids(number), size).copy()
        for number, size in enumerate(sizes)
        if size
    ]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


# -- knobs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dial:
    """A search knob and the attribute of the faiss object that it sets."""

    knob: Knob
    owner: Any
    attribute: str

    def set(self, value: float) -> None:
        """Turn it."""
        setattr(self.owner, self.attribute, value)

    def get(self) -> float:
        """Where it stands."""
        value: float = getattr(self.owner, self.attribute)
        return value


def dials(index: Any) -> list[Dial]:
    """What can be turned in a search. Attributes, since they reach every layer of any nesting."""
    found = []
    for layer in layers(index):
        found += _dials_of(layer)
        quantizer = getattr(layer, "quantizer", None)
        for dial in dials(quantizer) if quantizer is not None else ():
            found.append(_for_quantizer(dial))
    return found


def _dials_of(layer: Any) -> list[Dial]:
    # A search never needs more than all vectors, but a small index may be asked for it.
    many = max(layer.ntotal, 4096)
    if isinstance(layer, faiss.IndexRefine):
        about = "candidates per result that are scored again"
        return [_dial("k_factor", layer, "k_factor", 1, many, about, whole=False)]
    if isinstance(layer, faiss.IndexHNSW):
        about = "length of the candidate list (at least k)"
        return [_dial("efSearch", layer.hnsw, "efSearch", 1, many, about, from_k=True)]
    if isinstance(layer, faiss.IndexNSG):
        about = "length of the candidate list (at least k)"
        # faiss fills a longer list than there are vectors for ever.
        return [_dial("search_L", layer.nsg, "search_L", 1, layer.ntotal, about, from_k=True)]
    if not isinstance(layer, faiss.IndexIVF):
        return []
    found = [_dial("nprobe", layer, "nprobe", 1, layer.nlist, "lists visited per query")]
    if isinstance(layer, faiss.IndexIVFPQ):
        about = "Hamming distance up to which codes are compared (polysemous; 0: all)"
        bits = 8 * layer.code_size
        found.append(_dial("ht", layer, "polysemous_ht", 0, bits, about, scale="linear"))
    if isinstance(layer, faiss.IndexIVFRaBitQ):
        about = "bits of the quantised query (0: not quantised)"
        found.append(_dial("qb", layer, "qb", 0, 8, about, scale="linear"))
    return found


def _dial(
    name: str, owner: Any, attribute: str, low: float, high: float, about: str, **more: Any
) -> Dial:
    stands = getattr(owner, attribute)
    scale = more.pop("scale", "log")
    knob = Knob(name, "search", low, max(high, stands), stands, about, scale=scale, **more)
    return Dial(knob, owner, attribute)


def _for_quantizer(dial: Dial) -> Dial:
    old = dial.knob
    knob = Knob(
        f"quantizer_{old.name}", "search", old.low, old.high, old.default,
        f"coarse quantiser: {old.about}", old.scale, old.whole,
    )  # fmt: skip
    return Dial(knob, dial.owner, dial.attribute)


# -- cost -------------------------------------------------------------------------------------


def stages(index: Any, queries: NDArray[np.float32], k: int) -> dict[str, Stage | None]:
    """What a search for k results touches at each stage, as the knobs stand; None is unknown.

    Inverted lists: the coarse search is repeated and the sizes of the lists it names are added
    up. Graphs: every query is searched once more, alone, and faiss's own counter is read, which
    leaves out the entry point. Bytes are those of the vectors or codes compared; links of a graph
    and ids are not counted.
    """
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIDMap):
        return stages(index.index, queries, k)
    if isinstance(index, faiss.IndexPreTransform):
        return stages(index.index, transformed(index, queries), k)
    if isinstance(index, faiss.IndexRefine):
        candidates = int(k * index.k_factor)
        below = stages(index.base_index, queries, candidates)
        return {**below, "refine": _refine(index, queries, candidates)}
    if isinstance(index, faiss.IndexIVF):
        return _list_stages(index, queries)
    if isinstance(index, faiss.IndexHNSW):
        return {"graph": _graph_stage(index, queries, k)}
    if isinstance(index, _SCANNED):
        every = np.full(len(queries), float(index.ntotal))
        return {"scan": Stage(every, index.code_size)}
    return {"search": None}


def _refine(index: Any, queries: NDArray[np.float32], candidates: int) -> Stage:
    """The candidates that are found: fewer where few were looked at, or a filter of codes is on."""
    _, found = index.base_index.search(queries, min(candidates, index.ntotal))
    scored = (found >= 0).sum(axis=1).astype(np.float64)
    return Stage(scored, _vector_bytes(index.refine_index))


def _list_stages(ivf: Any, queries: NDArray[np.float32]) -> dict[str, Stage | None]:
    nprobe = min(ivf.nprobe, ivf.nlist)
    coarse = stages(ivf.quantizer, queries, nprobe)
    named = {
        "coarse" if len(coarse) == 1 else f"coarse {name}": stage for name, stage in coarse.items()
    }
    if ivf.max_codes:
        return {**named, "codes": None}
    _, lists = ivf.quantizer.search(queries, nprobe)
    sizes = [ivf.invlists.list_size(number) for number in range(ivf.nlist)]
    # A list that was not found is -1: it has no vectors.
    visited = np.array([*sizes, 0], dtype=np.float64)[lists].sum(axis=1)
    return {**named, "codes": Stage(visited, ivf.code_size)}


def _graph_stage(index: Any, queries: NDArray[np.float32], k: int) -> Stage:
    counter = faiss.cvar.hnsw_stats
    counts = np.empty(len(queries))
    for row in range(len(queries)):
        before = counter.ndis
        index.search(queries[row : row + 1], k)
        counts[row] = counter.ndis - before
    # The entry point is compared, too, but not counted. Nothing counted stays unknown.
    counts[counts > 0] += 1
    return Stage(counts, _vector_bytes(index.storage))


def _vector_bytes(index: Any) -> int:
    size: int = faiss.downcast_index(index).code_size
    return size


def transformed(index: Any, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """Queries as they leave the transforms of an IndexPreTransform."""
    for number in range(index.chain.size()):
        queries = faiss.downcast_VectorTransform(index.chain.at(number)).apply(queries)
    return queries


def memory_bytes(index: Any) -> int | None:
    """Bytes the index takes in memory: codes, ids, links, centroids; None when not known."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIDMap):
        return _plus(8 * index.ntotal, memory_bytes(index.index))
    if isinstance(index, faiss.IndexPreTransform):
        return memory_bytes(index.index)
    if isinstance(index, faiss.IndexRefine):
        below = memory_bytes(index.base_index)
        return None if below is None else _plus(below, memory_bytes(index.refine_index))
    if isinstance(index, faiss.IndexIVF):
        return _plus(index.ntotal * (index.code_size + 8), memory_bytes(index.quantizer))
    if isinstance(index, faiss.IndexHNSW):
        graph = index.hnsw
        links = 4 * graph.neighbors.size() + 8 * graph.offsets.size() + 4 * graph.levels.size()
        return _plus(links, memory_bytes(index.storage))
    if isinstance(index, _SCANNED):
        return int(index.ntotal * index.code_size)
    return None


def _plus(own: int, below: int | None) -> int | None:
    return None if below is None else int(own + below)


# -- what the quantiser kept ------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """What the last comparison of a search reads.

    vectors: decoded to float32, (ntotal, d), by position, or by `labels` where the lists hold
        ids of their own; None where the vectors are as they were given.
    labels: None, or the ids of the rows of `vectors`.
    transforms: what queries go through before they are compared with `vectors`.
    """

    vectors: NDArray[np.float32] | None
    labels: NDArray[np.int64] | None
    transforms: tuple[Any, ...]

    def view(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Queries as they are compared with `vectors`."""
        for transform in self.transforms:
            queries = transformed(transform, queries)
        return queries


def kept(index: Any, *, decode: bool = True) -> Kept:
    """What the last comparison of a search reads: refined vectors, else the codes."""
    transforms = []
    index = faiss.downcast_index(index)
    while isinstance(index, _WRAPPERS):
        if isinstance(index, faiss.IndexPreTransform):
            transforms.append(index)
        refined = isinstance(index, faiss.IndexRefine)
        index = faiss.downcast_index(index.refine_index if refined else index.index)
    if (not transforms and _is_flat(index)) or not decode:
        return Kept(None, None, tuple(transforms))
    vectors, labels = _decoded(index)
    return Kept(vectors, labels, tuple(transforms))


def _is_flat(index: Any) -> bool:
    if isinstance(index, _GRAPHS):
        return _is_flat(faiss.downcast_index(index.storage))
    return isinstance(index, faiss.IndexFlat | faiss.IndexIVFFlat)


def _decoded(index: Any) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """Vectors by position and no labels, or labels where the lists hold ids of their own.

    Only types known to decode are asked: an exception in faiss's parallel loop would end the
    process.
    """
    if isinstance(index, _GRAPHS):
        return _decoded(faiss.downcast_index(index.storage))
    n = index.ntotal
    if isinstance(index, _DECODED_LISTS) and _has_centroids(index):
        labels = _ids_in_lists(index.invlists, index.nlist)
        if np.array_equal(labels, np.arange(n)):
            return index.reconstruct_n(0, n), None
        copy = faiss.clone_index(index)
        copy.set_direct_map_type(faiss.DirectMap.Hashtable)
        return copy.reconstruct_batch(labels), labels
    if isinstance(index, _DECODED):
        return index.reconstruct_n(0, n), None
    raise SystemFault(
        f"what a faiss {type(index).__name__} keeps cannot be decoded",
        hint="the loss cannot be split into quantisation and search for this index",
    )


def _has_centroids(ivf: Any) -> bool:
    """Whether its centroids can be read back, which codes of residuals need."""
    return isinstance(faiss.downcast_index(ivf.quantizer), _DECODED + _GRAPHS)
