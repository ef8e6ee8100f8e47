"""The exact neighbours of every query, from arrays, files, shards and databases."""

from semrecall.truth.verb import truth

__all__ = ["truth"]
