"""Hints of readers in the words of a command: what is an option there, and what is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["hints_for"]

_DATASET = r"name (one|the column): --dataset, or dataset=( in Python)?"
_OF_RUNS = (
    (r"read_judgments reads them", "give it with --judgments"),
    (r"read_vectors reads them", "give them with --base or --queries"),
    (r"read_runs reads them one by one", "give a file of one"),
    (_DATASET, "take it out first: semrecall convert {path} run.parquet --as run --dataset NAME"),
)

#: By what a file is given for: a pattern in a reader's hint, and what is said in its place.
_WORDS = {
    "run": _OF_RUNS,
    "truth": _OF_RUNS,
    "codes": _OF_RUNS,
    "judgments": ((r"read_run reads them", "give it as a run"),),
    "base": ((_DATASET, r"name \1: --base-dataset"),),
    "queries": ((_DATASET, r"name \1: --queries-dataset"),),
}


@contextmanager
def hints_for(given_as: str, path: str) -> Iterator[None]:
    """Where a reader fails, its hint names the options of `score` and `compare`."""
    import re

    from semrecall.errors import SemrecallError

    try:
        yield
    except SemrecallError as error:
        for theirs, ours in _WORDS[given_as]:
            said = re.search(theirs, error.hint or "")
            if said and error.hint:
                ours = said.expand(ours).replace("{path}", path)
                error.hint = error.hint.replace(said.group(), ours)
        raise
