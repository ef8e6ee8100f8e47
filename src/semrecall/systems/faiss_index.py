"""Inside a faiss index: its layers, what can be turned, what a search touches, what is kept.

Indexes nest (id map, refine, transform, inverted lists, graph, and a coarse quantiser that may
be any of these). Each function here walks the layers once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import SystemFault
from semrecall.registry import import_extra
from semrecall.systems.base import Knob, Stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Dial",
    "compared_last",
    "decoded",
    "dials",
    "faiss",
    "is_flat",
    "layers",
    "memory_bytes",
    "name_of",
    "own_ids",
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


def own_ids(index: Any) -> NDArray[np.int64] | None:
    """Ids that the index itself holds, (ntotal,): of an id map by position, of lists rising.

    None where they are just positions.
    """
    for layer in layers(index):
        if isinstance(layer, faiss.IndexIDMap):
            return np.asarray(faiss.vector_to_array(layer.id_map), dtype=np.int64)
        if isinstance(layer, faiss.IndexIVF):
            stored = _ids_in_lists(layer)
            return None if np.array_equal(stored, np.arange(len(stored))) else stored
    return None


def _ids_in_lists(ivf: Any) -> NDArray[np.int64]:
    """The ids stored in inverted lists, (ntotal,), rising."""
    parts = [np.empty(0, dtype=np.int64)]
    for number in range(ivf.nlist):
        size = ivf.invlists.list_size(number)
        if size:
            parts.append(faiss.rev_swig_ptr(ivf.invlists.get_ids(number), size).copy())
    return np.sort(np.concatenate(parts))


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
            name, about = f"quantizer_{dial.knob.name}", f"coarse quantiser: {dial.knob.about}"
            found.append(
                replace(dial, knob=replace(dial.knob, name=name, about=about, from_k=False))
            )
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
        # Fewer are found where few were looked at, or a filter of codes is on.
        _, found = index.base_index.search(queries, min(candidates, index.ntotal))
        scored = (found >= 0).sum(axis=1).astype(np.float64)
        return {**below, "refine": Stage(scored, _code_bytes(index.refine_index))}
    if isinstance(index, faiss.IndexIVF):
        return _list_stages(index, queries)
    if isinstance(index, faiss.IndexHNSW):
        return {"graph": _graph_stage(index, queries, k)}
    if isinstance(index, _SCANNED):
        every = np.full(len(queries), float(index.ntotal))
        return {"scan": Stage(every, index.code_size)}
    return {"search": None}


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
    return Stage(counts, _code_bytes(index.storage))


def _code_bytes(index: Any) -> int:
    return int(faiss.downcast_index(index).code_size)


def transformed(index: Any, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """Queries as they leave the transforms of an IndexPreTransform."""
    for number in range(index.chain.size()):
        queries = faiss.downcast_VectorTransform(index.chain.at(number)).apply(queries)
    return queries


def memory_bytes(index: Any) -> int | None:
    """Bytes the index takes in memory: codes, ids, links, centroids; None when not known."""
    index = faiss.downcast_index(index)
    own, within = 0, []
    if isinstance(index, faiss.IndexIDMap):
        own, within = 8 * index.ntotal, [index.index]
    elif isinstance(index, faiss.IndexPreTransform):
        within = [index.index]
    elif isinstance(index, faiss.IndexRefine):
        within = [index.base_index, index.refine_index]
    elif isinstance(index, faiss.IndexIVF):
        own, within = index.ntotal * (index.code_size + 8), [index.quantizer]
    elif isinstance(index, faiss.IndexHNSW):
        graph = index.hnsw
        own = 4 * graph.neighbors.size() + 8 * graph.offsets.size() + 4 * graph.levels.size()
        within = [index.storage]
    elif isinstance(index, _SCANNED):
        own = index.ntotal * index.code_size
    else:
        return None
    parts = [memory_bytes(part) for part in within]
    return None if None in parts else int(own + sum(filter(None, parts)))


# -- what the quantiser kept ------------------------------------------------------------------


def compared_last(index: Any) -> tuple[Any, list[Any]]:
    """What the last comparison of a search reads, refined vectors or else the codes.

    And the transforms that queries go through before.
    """
    transforms = []
    index = faiss.downcast_index(index)
    while isinstance(index, _WRAPPERS):
        if isinstance(index, faiss.IndexPreTransform):
            transforms.append(index)
        refined = isinstance(index, faiss.IndexRefine)
        index = faiss.downcast_index(index.refine_index if refined else index.index)
    if isinstance(index, _GRAPHS):
        index = faiss.downcast_index(index.storage)
    return index, transforms


def is_flat(index: Any) -> bool:
    """Whether it holds vectors as they were given."""
    return isinstance(index, faiss.IndexFlat | faiss.IndexIVFFlat)


def decoded(index: Any) -> NDArray[np.float32]:
    """The vectors of an index without layers, (ntotal, d), in the order of `own_ids`.

    Only types known to decode are asked: an exception in faiss's parallel loop would end the
    process.
    """
    if isinstance(index, _DECODED_LISTS) and _has_centroids(index):
        labels = _ids_in_lists(index)
        if not np.array_equal(labels, np.arange(index.ntotal)):
            copy = faiss.clone_index(index)
            copy.set_direct_map_type(faiss.DirectMap.Hashtable)
            return np.asarray(copy.reconstruct_batch(labels))
    elif not isinstance(index, _DECODED):
        raise SystemFault(
            f"what a faiss {type(index).__name__} keeps cannot be decoded",
            hint="the loss cannot be split into quantisation and search for this index",
        )
    return np.asarray(index.reconstruct_n(0, index.ntotal))


def _has_centroids(ivf: Any) -> bool:
    """Whether its centroids can be read back, which codes of residuals need."""
    return isinstance(faiss.downcast_index(ivf.quantizer), _DECODED + _GRAPHS)
