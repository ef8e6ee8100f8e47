"""Claims: the statements of an answer, each with an id and with what it cites."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from semrecall.measures.verdicts import UNSCORED
from semrecall.rag.citations import cited_ids, marks
from semrecall.rag.records import Record

__all__ = ["Claims", "Maker", "Splitter", "claims_of", "maker", "sentences"]

#: From texts to the claims of each; None for a text of which none could be had.
Splitter = Callable[[Sequence[str]], Sequence[Sequence[str] | None]]
#: From (question, text) to the claims of the text, or the reason why there are none.
Maker = Callable[[Sequence[tuple[str, str]]], Sequence[Sequence[str] | str]]

#: A sentence ends at these, not within a number, an abbreviation of one letter or a file name.
_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Za-z]\.)[\"')\]]*(?:\s*\[[^\[\]]{1,80}\])*\s+|(?<=[。！？।])|\n+"
)
_WORD = re.compile(r"\w")
_SHORT = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|cf|Fig|Eq|al|approx|e\.g|i\.e|z\.B)\.\s*$")


@dataclass(frozen=True)
class Claims:
    """The claims of one record, and why there are none (a fault) though there is a text.

    statements: the sentences of the answer, or its claims where the record has them. cited: for
    each of these the ids of the contexts it cites; None where the answer cites nothing.
    """

    answer: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    cited: tuple[tuple[str, ...], ...] | None = None
    answer_fault: str = ""
    reference_fault: str = ""
    cited_fault: str = ""


def sentences(text: str) -> list[str]:
    """The sentences of a text, by its punctuation and line breaks; bullets are taken away."""
    found, start = [], 0
    for match in _END.finditer(text):
        if _SHORT.search(text[start : match.end()]):
            continue
        found.append(text[start : match.end()])
        start = match.end()
    found.append(text[start:])
    bare = [re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+", "", one).strip() for one in found]
    return [one for one in bare if _WORD.search(one)]


def maker(split: Splitter) -> Maker:
    """A maker of claims from a function of texts."""

    def make(asked: Sequence[tuple[str, str]]) -> list[Sequence[str] | str]:
        found = split([text for _, text in asked])
        fault = f"{UNSCORED}: no claims could be made"
        return [fault if one is None else one for one in found]

    return make


def claims_of(
    records: Sequence[Record],
    make: Maker | None = None,
    sides: Collection[str] = ("answer", "reference"),
) -> list[Claims]:
    """The claims of every record: given ones, else what `make` makes; by default sentences.

    sides: whose claims are looked at; the others are not made, and stay sentences.

    Marks such as [2] are citations, and no part of a claim. What is cited belongs to sentences,
    also where a model makes the claims, because it drops the marks.
    """
    stated = [_statements(record) for record in records]
    wanted: list[tuple[str, str]] = []
    for record, (texts, _) in zip(records, stated, strict=True):
        if record.claims is None and texts and "answer" in sides:
            wanted.append((record.question, " ".join(texts)))
        if record.reference_claims is None and record.reference and "reference" in sides:
            wanted.append((record.question, record.reference))
    made: dict[tuple[str, str], tuple[str, ...] | str] = {}
    if make is not None:
        asked = list(dict.fromkeys(wanted))
        for pair, found in zip(asked, make(asked), strict=True):
            made[pair] = found if isinstance(found, str) else _texts(found)
    return [_claims(r, s, c, made) for r, (s, c) in zip(records, stated, strict=True)]


def _statements(record: Record) -> tuple[tuple[str, ...], list[tuple[str, ...]] | None]:
    """What may cite something, and the ids that it cites by its marks or by the record."""
    ids = [context.id for context in record.contexts]
    given = sentences(record.answer) if record.claims is None else record.claims
    pairs = [marks(one, ids) for one in given]
    pairs = [(text, names) for text, names in pairs if _WORD.search(text)]
    cited: list[tuple[str, ...]] | None = [names for _, names in pairs]
    if record.citations is not None:
        cited = [cited_ids(names, ids) for names in record.citations]
    elif not any(names for _, names in pairs):
        cited = None
    return tuple(text for text, _ in pairs), cited


def _claims(
    record: Record,
    statements: tuple[str, ...],
    cited: list[tuple[str, ...]] | None,
    made: dict[tuple[str, str], tuple[str, ...] | str],
) -> Claims:
    answer: tuple[str, ...] | str = statements
    if record.claims is None and statements:
        answer = made.get((record.question, " ".join(statements)), statements)
    reference: tuple[str, ...] | str = record.reference_claims or ()
    if record.reference_claims is None and record.reference:
        split = tuple(sentences(record.reference))
        reference = made.get((record.question, record.reference), split)
    fault = ""
    if cited is not None and len(cited) != len(statements):
        fault = f"{UNSCORED}: {len(cited)} citations for {len(statements)} statements"
    return Claims(
        () if isinstance(answer, str) else answer,
        () if isinstance(reference, str) else reference,
        statements,
        None if cited is None or fault else tuple(cited),
        answer if isinstance(answer, str) else "",
        reference if isinstance(reference, str) else "",
        fault,
    )


def _texts(claims: Sequence[str]) -> tuple[str, ...]:
    return tuple(claim.strip() for claim in claims if claim.strip())
