"""Cases: what is known of each record, with its verdicts in their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from semrecall.data.spans import Overlap
from semrecall.errors import InputError
from semrecall.measures.verdicts import Case
from semrecall.rag.asking import SIDES, Verdict, read_places
from semrecall.rag.claims import Claims
from semrecall.rag.records import Record

__all__ = ["cases_of"]

#: What says why the claims of a side are missing.
_FAULTS = {"answer": "answer_fault", "reference": "reference_fault", "statement": "cited_fault"}
_RULE = Overlap()


def cases_of(
    records: Sequence[Record],
    claims: Sequence[Claims],
    kinds: Sequence[str],
    verdicts: Iterable[Verdict],
    misfits: Mapping[tuple[int, str], str],
) -> list[Case]:
    """The case of every record. misfits: by row and kind, why verdicts do not fit the claims."""
    values = [_blank(r, c, kinds) for r, c in zip(records, claims, strict=True)]
    faults: list[dict[str, str]] = [{} for _ in records]
    for verdict in verdicts:
        at, kind = verdict.asked.record, verdict.asked.kind
        if verdict.grade is None:
            faults[at].setdefault(kind, verdict.fault)
        elif kind == "relevance":
            values[at][kind] = verdict.grade / verdict.scale.grades[-1]
        else:
            values[at][kind][verdict.asked.place] = float(verdict.grade >= verdict.scale.relevant)
    for (at, kind), why in misfits.items():
        if kind in values[at]:
            faults[at][kind], values[at][kind] = why, None
    return [
        _case(record, own, value, fault)
        for record, own, value, fault in zip(records, claims, values, faults, strict=True)
    ]


def _blank(record: Record, claims: Claims, kinds: Sequence[str]) -> dict[str, Any]:
    """Places for the verdicts: NaN until one comes, 0 where there is nothing to ask."""
    c, s = len(record.contexts), len(claims.statements)
    a, r = len(claims.answer), len(claims.reference)
    shapes: dict[str, tuple[int, ...]] = {
        "useful": (c,), "useful_reference": (c,), "attributed": (r,), "supported": (a,),
        "correct": (a,), "answer_by": (a, c), "reference_by": (r, c), "cited_by": (s, c),
        "cited_support": (s,), "relevance": (),
    }  # fmt: skip
    found: dict[str, Any] = {kind: np.full(shapes[kind], np.nan) for kind in kinds}
    if not c:
        for kind in found.keys() & {"attributed", "supported"}:
            found[kind][:] = 0.0
    if "cited_support" in found:
        for n, cited in enumerate(claims.cited or [()] * s):
            if not read_places(cited, record.contexts):
                found["cited_support"][n] = 0.0
    return found


def _case(record: Record, claims: Claims, values: dict[str, Any], faults: dict[str, str]) -> Case:
    for side, kinds in SIDES.items():
        why = getattr(claims, _FAULTS[side])
        for kind in kinds if why else ():
            faults[kind], values[kind] = why, None
    if claims.cited_fault:
        faults["cited"] = claims.cited_fault
    cited, lost = _cited(record, claims)
    relevant = record.relevant
    overlaps, covered = _spans(record)
    if values.get("relevance") is not None:
        values["relevance"] = float(values["relevance"])
    return Case(
        contexts=len(record.contexts),
        has_answer=bool(record.answer),
        has_reference=bool(record.reference),
        lacks=record.lacks,
        cited=cited,
        lost=lost,
        known=None
        if relevant is None
        else np.array([context.id in relevant for context in record.contexts], dtype=bool),
        reference_ids=None if relevant is None else len(relevant),
        spans=overlaps,
        covered=covered,
        faults=faults,
        **values,
    )


def _cited(record: Record, claims: Claims) -> tuple[Any, int]:
    """Which statement cites which context, and how many citations are of none that was read."""
    if claims.cited_fault:
        return None, 0
    found = np.zeros((len(claims.statements), len(record.contexts)), dtype=bool)
    lost = 0
    for n, cites in enumerate(claims.cited or ()):
        places = read_places(cites, record.contexts)
        found[n, places] = True
        lost += len(cites) - len(places)
    return found, lost


def _spans(record: Record) -> tuple[Any, float | None]:
    """Which contexts overlap a span enough, and the share of the spans' characters covered."""
    if not record.spans:
        return None, None
    places = []
    for context in record.contexts:
        if context.document is None or context.start is None or context.end is None:
            raise InputError(
                f"record {record.id!r} has spans, but context {context.id!r} does not say where it "
                "stands",
                hint="give each context document_id, start and end",
            )
        places.append((context.document, context.start, context.end))
    holds = [any(_overlaps(place, span) for span in record.spans) for place in places]
    wanted = _union(record.spans)
    shared = [
        (name, max(start, start2), min(end, end2))
        for name, start, end in wanted
        for other, start2, end2 in _union(places)
        if name == other and max(start, start2) < min(end, end2)
    ]
    return np.array(holds, dtype=bool), _length(shared) / _length(wanted)


_Place = tuple[str, int, int]


def _overlaps(place: _Place, span: _Place) -> bool:
    if place[0] != span[0]:
        return False
    shared = max(0, min(place[2], span[2]) - max(place[1], span[1]))
    lengths = np.array([[shared], [span[2] - span[1]], [place[2] - place[1]]])
    return bool(_RULE.holds(*lengths)[0])


def _union(places: Iterable[_Place]) -> list[_Place]:
    """The same characters in pieces that do not overlap."""
    found: list[_Place] = []
    for name, start, end in sorted(places):
        if found and found[-1][0] == name and start <= found[-1][2]:
            found[-1] = (name, found[-1][1], max(end, found[-1][2]))
        elif start < end:
            found.append((name, start, end))
    return found


def _length(pieces: Iterable[_Place]) -> int:
    return sum(end - start for _, start, end in pieces)
