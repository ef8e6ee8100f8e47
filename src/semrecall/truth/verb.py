"""truth(): the exact neighbours of every query, from arrays, Vectors or files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semrecall.data import Run
from semrecall.exact import search
from semrecall.exact.search import Progress
from semrecall.formats import queries_of, read_allowed
from semrecall.space import Space
from semrecall.systems import base_vectors

__all__ = ["truth"]


def truth(
    base: Any,
    queries: Any,
    k: int,
    space: str | Space,
    *,
    filter: Any = None,  # noqa: A002
    memory: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """The exact k nearest neighbours of every query, the same on every machine.

    base, queries: Vectors, an array (n, d), or the path of a file of vectors. The base may also be
        the spec of a system that gives out what it holds ("pgvector://...?table=docs").
    k: how many neighbours; rows are longer where ties with the k-th continue, and shorter only
        where fewer neighbours exist.
    space: "ip", "cosine" or "l2".
    filter: what each query may find: a mask (n,) or (n_queries, n), allowed ids per query
        ({query id: ids} or one list a query), or the path of a file of either.
    memory: bytes for blocks and survivors; a quarter of the machine's when None. It bounds what
        is held at a time, whatever the size of the base.
    threads: how many cores; all when None.
    progress: called with rows done and rows in all.

    Returns a Run with float64 scores in the natural unit of the space and the identity of the
    data. Raises InputError for k < 1, MismatchError for vectors of different dimension.
    """
    allowed = read_allowed(filter) if isinstance(filter, str | Path) else filter
    return search(
        base_vectors(base),
        queries_of(queries),
        k,
        space,
        allowed=allowed,
        memory=memory,
        threads=threads,
        progress=progress,
    )
