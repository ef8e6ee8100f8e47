"""Claims: the statements of an answer, each with an id and with what it cites."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from semrecall.rag.records import Context, Record, marks

__all__ = ["Claims", "Splitter", "claims_of", "known", "sentences"]

#: From texts to the claims of each; None for a text of which none could be had.
Splitter = Callable[[Sequence[str]], Sequence[Sequence[str] | None]]

#: A sentence ends at these, not within a number, an abbreviation of one letter or a file name.
_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Za-z]\.)[\"')\]]*(?:\s*\[[^\[\]]{1,80}\])*\s+|(?<=[。！？।])|\n+"
)
_WORD = re.compile(r"\w")
_SHORT = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|cf|Fig|Eq|al|approx|e\.g|i\.e|z\.B)\.\s*$")


@dataclass(frozen=True)
class Claims:
    """The claims of one record. cited: for each claim of the answer the ids of the contexts it
    cites; None where the answer cites nothing. fault: why there are none, though there is a text.
    """

    answer: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    cited: tuple[tuple[str, ...], ...] | None = None
    answer_fault: str = ""
    reference_fault: str = ""


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


def claims_of(records: Sequence[Record], split: Splitter | None = None) -> list[Claims]:
    """The claims of every record: given ones, else what `split` makes; by default sentences.

    Marks such as [2] at the end of a sentence are citations, and no part of the claim. With a
    splitter of your own, claims carry the citations of the record only where it gives them.
    """
    answers = [r.answer for r in records if r.claims is None and r.answer]
    references = [r.reference for r in records if r.reference_claims is None and r.reference]
    made = {} if split is None else _made(split, [*answers, *references])
    return [_claims(record, split, made) for record in records]


def _made(split: Splitter, texts: Sequence[str]) -> dict[str, tuple[str, ...] | None]:
    distinct = list(dict.fromkeys(texts))
    found = split(distinct)
    return {
        text: None if claims is None else tuple(c.strip() for c in claims if c.strip())
        for text, claims in zip(distinct, found, strict=True)
    }


def _claims(
    record: Record, split: Splitter | None, made: dict[str, tuple[str, ...] | None]
) -> Claims:
    cited: Sequence[tuple[str, ...]] | None = record.citations
    if record.claims is not None:
        answer: tuple[str, ...] | None = record.claims
    elif split is not None and record.answer:
        answer = made[record.answer]
    else:
        pairs = [marks(one, record.contexts) for one in sentences(record.answer)]
        pairs = [(text, names) for text, names in pairs if _WORD.search(text)]
        answer = tuple(text for text, _ in pairs)
        if cited is None and any(names for _, names in pairs):
            cited = [names for _, names in pairs]
    if record.reference_claims is not None:
        reference: tuple[str, ...] | None = record.reference_claims
    elif split is not None and record.reference:
        reference = made[record.reference]
    else:
        reference = tuple(sentences(record.reference))
    if cited is not None and answer is not None and len(cited) != len(answer):
        fault = f"{len(cited)} citations for {len(answer)} claims"
        return Claims((), reference or (), None, fault, "" if reference is not None else _NONE)
    return Claims(
        answer or (), reference or (), None if cited is None else tuple(cited),
        "" if answer is not None else _NONE, "" if reference is not None else _NONE,
    )  # fmt: skip


_NONE = "no claims could be made"


def known(names: Sequence[str], contexts: Sequence[Context]) -> list[int]:
    """The places of contexts by id; one that was not read is left out."""
    at = {context.id: place for place, context in enumerate(contexts)}
    return [at[name] for name in names if name in at]
