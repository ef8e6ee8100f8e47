"""What a caller is shown of the work: how much there is to ask, and every reply."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from semrecall.judges.asking import unasked
from semrecall.judges.contract import Judge, Question, Reply, Status
from semrecall.judges.ledger import Ledger

__all__ = ["Progress", "Watch", "watched"]

Watch = Callable[[Reply], None]
#: Is told of each part of the work ("claims", "support") and how many questions it asks, and is
#: open while they are asked; it may give what is shown every reply.
Progress = Callable[[str, int], AbstractContextManager[Watch | None]]


@contextmanager
def watched(
    progress: Progress | None,
    what: str,
    judge: Judge,
    questions: Sequence[Question],
    ledger: Ledger,
    again: Collection[Status],
) -> Iterator[Watch | None]:
    """The watch of a part of the work; none where nobody looks, or nothing is asked."""
    count = 0
    if progress is not None:
        opened = unasked(judge, questions, ledger, again=again)
        count = sum(len(found) for _, found in opened)
    if progress is None or not count:
        yield None
        return
    with progress(what, count) as watch:
        yield watch
