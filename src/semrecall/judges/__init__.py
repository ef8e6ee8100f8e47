"""Judges: pairs in, labels out; and the ledger that keeps what they said."""

from semrecall.judges.contract import Answer, Document, Judge, Question, Reply, Scale, Status
from semrecall.judges.ledger import Ledger, Vote
from semrecall.judges.opening import open_judge

__all__ = [
    "Answer",
    "Document",
    "Judge",
    "Ledger",
    "Question",
    "Reply",
    "Scale",
    "Status",
    "Vote",
    "open_judge",
]
