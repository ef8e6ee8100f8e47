"""Names of the spaces, for the choices of `--space`."""

from __future__ import annotations

__all__ = ["SPACES", "VECTOR_SPACES"]

#: Those of vectors of numbers, which every system knows.
VECTOR_SPACES = ("ip", "cosine", "l2")
#: All that truth is computed and runs are evaluated in.
SPACES = (*VECTOR_SPACES, "hamming", "jaccard", "maxsim")
