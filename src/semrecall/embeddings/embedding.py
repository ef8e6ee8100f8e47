"""Texts embedded: each distinct text once, in batches, through a file that forgets nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Vectors
from semrecall.embeddings.base import Embedder, checked
from semrecall.embeddings.cache import Cache
from semrecall.embeddings.spec import open_embedder
from semrecall.errors import EmbeddingFault, InputError
from semrecall.web import in_parallel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["embed"]


def embed(
    texts: Sequence[str] | Mapping[Any, str],
    embedder: str | Embedder,
    *,
    ids: Any = None,
    normalize: bool = False,
    cache: str | Path | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Vectors:
    """Vectors (n, d) of texts, float32.

    texts: n texts, or {id: text}. embedder: a spec for `open_embedder`, or an Embedder.
    ids: of the vectors, in place of those of `texts`.
    normalize: scale them to length one.
    cache: a file (SQLite) that keeps every vector; what it holds is not made again.
    watch: called with how many distinct texts are done, and how many there are.

    Raises InputError for empty texts, EmbeddingFault where the embedder fails; what was made
    before is in the cache.
    """
    listed = list(texts.values()) if isinstance(texts, Mapping) else list(texts)
    if ids is None and isinstance(texts, Mapping):
        ids = list(texts)
    _check(listed, ids)
    opened = open_embedder(embedder)
    distinct = list(dict.fromkeys(listed))
    place = {text: at for at, text in enumerate(distinct)}
    try:
        with Cache(cache, opened.identity) as kept:
            matrix = _matrix(distinct, opened, kept, watch)
    finally:
        if opened is not embedder:
            opened.close()
    if normalize:
        matrix = _unit(matrix, distinct)
    rows = np.fromiter((place[text] for text in listed), dtype=np.int64, count=len(listed))
    return Vectors.of(matrix[rows], ids=ids)


def _matrix(
    texts: list[str],
    embedder: Embedder,
    kept: Cache,
    watch: Callable[[int, int], None] | None,
) -> NDArray[np.float32]:
    found = kept.find(texts)
    new = [text for text in texts if text not in found]
    done = len(found)
    if watch is not None:
        watch(done, len(texts))
    step = embedder.batch
    batches = [new[at : at + step] for at in range(0, len(new), step)]
    # A group at a time, so that what a group cost is kept before the next one is paid for.
    for at in range(0, len(batches), embedder.at_once):
        group = batches[at : at + embedder.at_once]

        def made(batch: list[str]) -> NDArray[np.float32]:
            vectors = checked(embedder.vectors(batch), batch, embedder.name)
            kept.keep(batch, vectors)
            return vectors

        for batch, vectors in zip(group, in_parallel(made, group, len(group)), strict=True):
            found |= zip(batch, vectors, strict=True)
            done += len(batch)
            if watch is not None:
                watch(done, len(texts))
    widths = {len(vector) for vector in found.values()}
    if len(widths) > 1:
        raise EmbeddingFault(
            f"{embedder.name} gave vectors of {' and '.join(map(str, sorted(widths)))} dimensions",
            hint="did the model change? a new cache file starts afresh",
        )
    return np.stack([found[text] for text in texts])


def _check(texts: list[str], ids: Any) -> None:
    if not texts:
        raise InputError("there are no texts to embed")
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {at} is a {type(text).__name__}; expected a string")
    empty = [at for at, text in enumerate(texts) if not text.strip()]
    if empty:
        named = ", ".join(repr(ids[at] if ids is not None else at) for at in empty[:5])
        raise InputError(
            f"{len(empty):,} of {len(texts):,} texts are empty and have no vector: {named}"
        )


def _unit(matrix: NDArray[np.float32], texts: list[str]) -> NDArray[np.float32]:
    norms = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
    if not norms.all():
        zero = texts[int(np.argmin(norms))]
        raise EmbeddingFault(f"the vector of {zero[:60]!r} is zero and cannot be normalised")
    return np.asarray(matrix / norms, dtype=np.float32)
