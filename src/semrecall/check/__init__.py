"""check(): name what is wrong with data before it costs a day."""

from __future__ import annotations

from typing import Any

from semrecall.check import identifiers, judged, lists, neighbours, scores, vectors
from semrecall.check.inputs import Inputs, Progress, quiet
from semrecall.check.report import Finding, Level, Report
from semrecall.space import Space

__all__ = ["Finding", "Level", "Report", "check"]


def check(
    *,
    base: Any = None,
    queries: Any = None,
    truth: Any = None,
    run: Any = None,
    judgments: Any = None,
    space: str | Space | None = None,
    sample: int | None = 100,
    seed: int = 0,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Look for faults in vectors, truth, run and judgments, alone and against each other.

    base, queries: Vectors, an array (n, d), or the path of a file of vectors. All rows are read,
        once; the base may be memory-mapped and larger than memory, or a stream.
    truth, run: a Run, a matrix (n_queries, k) of ids, or the path of a file.
    judgments: Judgments, or the path of a file.
    space: the space that the index uses; what truth and run say when None.
    sample: how many queries are compared with exact search and scored again; None for all.
    seed: chooses them.
    memory: bytes for blocks and hashes of rows; a quarter of the machine's when None.
    progress: called with what is being done, rows done, and rows in all.

    Any one of the five inputs will do; each more makes more checks possible. Returns a Report; its
    `ok` is False when there is an error. Raises InputError where a file cannot be read at all.
    """
    inputs = Inputs.of(
        base=base,
        queries=queries,
        truth=truth,
        run=run,
        judgments=judgments,
        space=space,
        sample=sample,
        seed=seed,
        memory=memory,
        progress=progress,
    )
    found: list[Finding] = []
    with quiet():
        for part in (identifiers, vectors, lists, scores, neighbours, judged):
            found += part.findings(inputs)
    return Report(tuple(found), inputs.described(), tuple(inputs.sampled))
