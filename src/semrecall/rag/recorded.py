"""Recorded verdicts: whether each was given on the texts that are there now."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from semrecall.data import Judgments
from semrecall.data.ids import ids
from semrecall.measures.verdicts import UNSCORED
from semrecall.rag.asking import SIDES, Asked
from semrecall.rag.claims import Claims
from semrecall.rag.records import Record
from semrecall.text import plural

__all__ = ["Fitted", "fitted"]

#: An id with the digest of its text.
_DIGEST = re.compile(r"(.*)#[0-9a-f]{8}", re.DOTALL)
#: The id of a claim without one: record, side, number.
_CLAIM = re.compile(r"(.*)\|(answer|reference|statement):([^|#]*)", re.DOTALL)


@dataclass(frozen=True)
class Fitted:
    """What is left of recorded verdicts. labels: those on pairs that are asked about, by the ids
    of today. faults: by row and kind, why verdicts cannot be trusted. unchecked: how many of the
    labels do not say which texts they were given on.
    """

    labels: Judgments
    faults: dict[tuple[int, str], str] = field(default_factory=dict)
    unchecked: int = 0


def fitted(
    labels: Judgments, wanted: Sequence[Asked], records: Sequence[Record], claims: Sequence[Claims]
) -> Fitted:
    """The verdicts that are wanted, each found by the ids of its pair and the digests in them.

    One whose digests are of other texts was given on another answer, or on other contexts: it is
    left out, and the question has a fault. One without digests is taken as it is, and counted.
    """
    pairs = [(str(q), str(d)) for q, d in zip(labels.queries, labels.documents, strict=True)]
    given = {pair: at for at, pair in enumerate(pairs)}
    plain = {(_without_digest(query), _without_digest(document)) for query, document in pairs}
    places: dict[tuple[str, str], int] = {}
    others: Counter[tuple[int, str]] = Counter()
    unchecked = 0
    for asked in wanted:
        if asked.pair in places:
            continue
        if asked.pair in given:
            places[asked.pair] = given[asked.pair]
            continue
        (query, document), bare = asked.pair, (asked.evidence[0], asked.claim[0])
        halves = (bare, (query, bare[1]), (bare[0], document))
        at = next((given[half] for half in halves if half in given), None)
        if at is not None:
            places[asked.pair] = at
            unchecked += 1
        elif bare in plain:
            others[asked.record, asked.kind] += 1
    kept = labels.select(list(places.values())).replace(
        queries=ids([query for query, _ in places], what="ids of evidence"),
        documents=ids([document for _, document in places], what="ids of claims"),
    )
    faults = {
        place: f"{UNSCORED}: {plural(count, 'verdict')} recorded on other texts"
        for place, count in others.items()
    }
    return Fitted(kept, _misfits(labels, records, claims) | faults, unchecked)


def _without_digest(name: str) -> str:
    found = _DIGEST.fullmatch(name)
    return name if found is None else found[1]


def _misfits(
    labels: Judgments, records: Sequence[Record], claims: Sequence[Claims]
) -> dict[tuple[int, str], str]:
    """Recorded verdicts, without digests, on claims that there are not: those beside them were
    given on an answer that was broken into other claims.
    """
    at = {record.id: row for row, record in enumerate(records)}
    extra: dict[tuple[int, str], set[str]] = {}
    for document in dict.fromkeys(str(one) for one in labels.documents):
        found = _CLAIM.fullmatch(document)
        if found is None or found[1] not in at:
            continue
        row, side = at[found[1]], found[2]
        texts = {"answer": "answer", "reference": "reference", "statement": "statements"}[side]
        count = len(getattr(claims[row], texts))
        if not (found[3].isdecimal() and 1 <= int(found[3]) <= count):
            extra.setdefault((row, side), set()).add(document)
    reasons: dict[tuple[int, str], str] = {}
    for (row, side), documents in extra.items():
        kinds = SIDES[side]
        if side == "answer" and claims[row].statements == claims[row].answer:
            kinds += SIDES["statement"]
        why = f"{UNSCORED}: {plural(len(documents), 'verdict')} on claims that there are not"
        reasons |= {(row, kind): why for kind in kinds}
    return reasons
