"""Vectors from texts: by an endpoint, a model on this machine, or a function of yours."""

from semrecall.embeddings.base import Embedder
from semrecall.embeddings.embedding import embed
from semrecall.embeddings.spec import open_embedder

__all__ = ["Embedder", "embed", "open_embedder"]
