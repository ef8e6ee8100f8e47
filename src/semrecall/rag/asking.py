"""Which verdicts the measures need, and how they are had: each is one pair a judge is asked about.

A verdict is a label of a pair like any other: the query is the evidence, the document is the claim.
So the ledger, its keys and limits, re-asking, caps and recorded labels serve here as they are, and
a verdict that did not come has a status, and no grade.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semrecall.errors import InputError
from semrecall.judges.asking import ask
from semrecall.judges.contract import Document, Judge, Question, Reply, Status
from semrecall.judges.ledger import Ledger
from semrecall.measures import Measure
from semrecall.measures.verdicts import Case
from semrecall.rag.claims import Claims, known
from semrecall.rag.records import Context, Record

__all__ = ["PROMPTS", "JudgeFor", "cases", "needed", "verdicts_wanted"]

#: Makes a judge of a prompt and its scale ("support", "binary").
JudgeFor = Callable[[str, str], Judge]

#: The prompt and scale of each kind of verdict.
PROMPTS: Mapping[str, tuple[str, str]] = {
    "useful": ("qa", "binary"),
    "useful_reference": ("useful", "binary"),
    "attributed": ("support", "binary"),
    "supported": ("support", "binary"),
    "correct": ("support", "binary"),
    "answer_by": ("support", "binary"),
    "reference_by": ("support", "binary"),
    "cited_support": ("support", "binary"),
    "relevance": ("addresses", "graded"),
}
_EVERY, _CITED = "every context", "cited contexts"


@dataclass(frozen=True)
class _Asked:
    """One verdict that is wanted: whose, of which kind, where it goes, and the pair."""

    record: int
    kind: str
    place: tuple[int, ...]
    evidence: tuple[str, str]
    claim: tuple[str, str]


def needed(measures: Sequence[Measure]) -> dict[str, str]:
    """The kinds of verdicts that measures need; of `answer_by` whether all or cited contexts."""
    found: dict[str, str] = {}
    for measure in measures:
        settings = measure.settings
        if measure.name == "context_precision" and settings["by"] in ("question", "reference"):
            found["useful" if settings["by"] == "question" else "useful_reference"] = ""
        elif measure.name == "context_recall" and settings["by"] == "claims":
            found["attributed"] = ""
        elif measure.name == "faithfulness":
            found["supported"] = ""
        elif measure.name == "answer_relevancy" and settings["form"] == "judge":
            found["relevance"] = ""
        elif measure.name == "noise_sensitivity":
            found |= {"correct": "", "reference_by": "", "answer_by": _EVERY}
        elif measure.name == "citation_recall":
            found["cited_support"] = ""
        elif measure.name == "citation_precision":
            found.setdefault("answer_by", _CITED)
    return found


def verdicts_wanted(
    records: Sequence[Record], claims: Sequence[Claims], kinds: Mapping[str, str]
) -> list[_Asked]:
    """Every verdict that is wanted, those about one evidence side by side."""
    found = []
    for at, (record, own) in enumerate(zip(records, claims, strict=True)):
        for kind, which in kinds.items():
            found += list(_of_kind(at, record, own, kind, which))
    return found


def _of_kind(at: int, record: Record, claims: Claims, kind: str, which: str) -> Iterator[_Asked]:
    answer = _named(record, "answer", claims.answer)
    reference = _named(record, "reference", claims.reference)
    whole = (f"{record.id}|contexts", _joined(record.contexts))
    # Without a passage, nothing is supported: there is nothing to ask.
    read = bool(record.contexts)
    if kind == "useful":
        evidence = (f"{record.id}|question", record.question)
        yield from _passages(at, kind, evidence, record)
    elif kind == "useful_reference" and record.reference:
        text = f"Question: {record.question}\nReference answer: {record.reference}"
        yield from _passages(at, kind, (f"{record.id}|question and reference", text), record)
    elif kind == "attributed" and read:
        yield from (_Asked(at, kind, (n,), whole, c) for n, c in enumerate(reference))
    elif kind == "supported" and read:
        yield from (_Asked(at, kind, (n,), whole, c) for n, c in enumerate(answer))
    elif kind == "correct" and record.reference:
        evidence = (f"{record.id}|reference", record.reference)
        yield from (_Asked(at, kind, (n,), evidence, c) for n, c in enumerate(answer))
    elif kind in ("answer_by", "reference_by"):
        for place, context in enumerate(record.contexts):
            evidence = (f"{record.id}|context:{context.id}", context.text)
            for n, claim in enumerate(answer if kind == "answer_by" else reference):
                cited = claims.cited[n] if claims.cited else ()
                if which != _CITED or context.id in cited:
                    yield _Asked(at, kind, (n, place), evidence, claim)
    elif kind == "cited_support" and claims.cited is not None:
        for n, (claim, cited) in enumerate(zip(answer, claims.cited, strict=True)):
            places = known(cited, record.contexts)
            if places:
                shown = [record.contexts[place] for place in places]
                name = "+".join(context.id for context in shown)
                evidence = (f"{record.id}|context:{name}", _joined(shown))
                yield _Asked(at, kind, (n,), evidence, claim)
    elif kind == "relevance" and record.answer:
        question = (f"{record.id}|question", record.question)
        yield _Asked(at, kind, (), question, (f"{record.id}|answer", record.answer))


def _passages(at: int, kind: str, evidence: tuple[str, str], record: Record) -> Iterator[_Asked]:
    for place, context in enumerate(record.contexts):
        yield _Asked(
            at, kind, (place,), evidence, (f"{record.id}|context:{context.id}", context.text)
        )


def _named(record: Record, side: str, claims: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{record.id}|{side}:{n}", text) for n, text in enumerate(claims, 1)]


def _joined(contexts: Sequence[Context]) -> str:
    return "\n\n".join(f"[{at}] {context.text}" for at, context in enumerate(contexts, 1))


def cases(
    records: Sequence[Record],
    claims: Sequence[Claims],
    measures: Sequence[Measure],
    judge_for: JudgeFor | None,
    ledger: Ledger,
    *,
    again: Collection[Status] = (),
    watch: Callable[[Reply], None] | None = None,
) -> list[Case]:
    """The case of every record: what is known of it, with the verdicts that the measures need.

    Raises InputError where verdicts are needed and nobody is there to give them; Stopped when the
    judge had to stop.
    """
    kinds = needed(measures)
    if kinds and judge_for is None:
        raise InputError(
            f"{', '.join(str(m) for m in measures)}: somebody has to judge",
            hint="name a judge (--model, --judge) or a file of verdicts (--verdicts)",
        )
    values = [_blank(r, c, kinds) for r, c in zip(records, claims, strict=True)]
    faults: list[dict[str, str]] = [{} for _ in records]
    for prompt in dict.fromkeys(PROMPTS[kind] for kind in kinds):
        own = {kind: which for kind, which in kinds.items() if PROMPTS[kind] == prompt}
        assert judge_for is not None
        _ask(records, claims, own, judge_for(*prompt), ledger, again, watch, values, faults)
    return [
        _case(record, own, value, fault)
        for record, own, value, fault in zip(records, claims, values, faults, strict=True)
    ]


def _ask(
    records: Sequence[Record],
    claims: Sequence[Claims],
    kinds: Mapping[str, str],
    judge: Judge,
    ledger: Ledger,
    again: Collection[Status],
    watch: Callable[[Reply], None] | None,
    values: list[dict[str, Any]],
    faults: list[dict[str, str]],
) -> None:
    """Ask one judge for all verdicts of its prompt, and put them in their places."""
    wanted = verdicts_wanted(records, claims, kinds)
    questions = [
        Question(a.evidence[0], a.claim[0], a.evidence[1], Document(a.claim[1])) for a in wanted
    ]
    kept = ask(judge, questions, ledger, again=again, watch=watch)
    top = judge.scale.grades[-1]
    for asked, question in zip(wanted, questions, strict=True):
        found = kept.get(judge.key(question))
        if found is not None and found.grade is not None:
            if asked.kind == "relevance":
                values[asked.record][asked.kind] = found.grade / top
            else:
                grade = float(found.grade >= judge.scale.relevant)
                values[asked.record][asked.kind][asked.place] = grade
        else:
            status = Status.UNKNOWN if found is None or found.status is None else found.status
            faults[asked.record].setdefault(asked.kind, f"no verdict: {status.value}")


def _blank(record: Record, claims: Claims, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Places for the verdicts: NaN until one comes, 0 where there is nothing to ask."""
    c, a, r = len(record.contexts), len(claims.answer), len(claims.reference)
    shapes: dict[str, tuple[int, ...]] = {
        "useful": (c,), "useful_reference": (c,), "attributed": (r,), "supported": (a,),
        "correct": (a,), "answer_by": (a, c), "reference_by": (r, c), "cited_support": (a,),
    }  # fmt: skip
    found: dict[str, Any] = {k: np.full(s, np.nan) for k, s in shapes.items() if k in kinds}
    if "relevance" in kinds:
        found["relevance"] = np.nan
    if not c:
        for kind in ("attributed", "supported"):
            if kind in found:
                found[kind][:] = 0.0
    if "cited_support" in found and claims.cited is not None:
        for n, cited in enumerate(claims.cited):
            if not known(cited, record.contexts):
                found["cited_support"][n] = 0.0
    return found


def _case(
    record: Record, claims: Claims, values: Mapping[str, Any], faults: dict[str, str]
) -> Case:
    answer_kinds = ("supported", "correct", "answer_by", "cited_support")
    if claims.answer_fault:
        faults |= dict.fromkeys(answer_kinds, claims.answer_fault)
        values = {k: v for k, v in values.items() if k not in answer_kinds}
    if claims.reference_fault:
        faults |= dict.fromkeys(("attributed", "reference_by"), claims.reference_fault)
        values = {k: v for k, v in values.items() if k not in ("attributed", "reference_by")}
    cited = None
    if claims.cited is not None and any(claims.cited):
        cited = np.zeros((len(claims.answer), len(record.contexts)), dtype=bool)
        for n, cites in enumerate(claims.cited):
            cited[n, known(cites, record.contexts)] = True
    names = [context.id for context in record.contexts]
    overlaps, covered = _spans(record)
    return Case(
        contexts=len(record.contexts),
        has_answer=bool(record.answer),
        has_reference=bool(record.reference),
        cited=cited,
        known=None
        if record.relevant is None
        else np.array([name in record.relevant for name in names], dtype=bool),
        reference_ids=None if record.relevant is None else len(record.relevant),
        spans=overlaps,
        covered=covered,
        faults=faults,
        **values,
    )


def _spans(record: Record) -> tuple[Any, float | None]:
    """Which contexts overlap a span by half of the shorter, and the share of the spans covered."""
    if not record.spans:
        return None, None
    overlaps = np.zeros(len(record.contexts), dtype=bool)
    wanted: dict[str, set[int]] = {}
    for document, start, end in record.spans:
        wanted.setdefault(document, set()).update(range(start, end))
    read: dict[str, set[int]] = {}
    for at, context in enumerate(record.contexts):
        if context.document is None or context.start is None or context.end is None:
            raise InputError(
                f"record {record.id!r} has spans, but context {context.id!r} does not say where it "
                "stands",
                hint="give each context document_id, start and end",
            )
        read.setdefault(context.document, set()).update(range(context.start, context.end))
        for document, start, end in record.spans:
            shared = min(end, context.end) - max(start, context.start)
            shorter = min(end - start, context.end - context.start)
            overlaps[at] |= document == context.document and shared > 0 and 2 * shared >= shorter
    total = sum(len(places) for places in wanted.values())
    found = sum(len(places & read.get(document, set())) for document, places in wanted.items())
    return overlaps, found / total
