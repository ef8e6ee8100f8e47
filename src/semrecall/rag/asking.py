"""Which verdicts the measures need, and how they are had: each is one pair a judge is asked about.

A verdict is a label of a pair like any other: the query is the evidence, the document is the claim.
So the ledger, its keys and limits, re-asking, caps and recorded labels serve here as they are, and
a verdict that did not come has a status, and no grade.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from semrecall.judges.asking import ask
from semrecall.judges.contract import Document, Judge, Question, Scale, Status
from semrecall.judges.ledger import Kept, Ledger
from semrecall.judges.prompts import load_prompt
from semrecall.judges.recorded import RecordedJudge
from semrecall.measures import Measure
from semrecall.measures.verdicts import UNSCORED
from semrecall.rag.claims import Claims
from semrecall.rag.progress import Progress, watched
from semrecall.rag.records import Context, Record

__all__ = [
    "PROMPTS",
    "SIDES",
    "Asked",
    "JudgeFor",
    "Verdict",
    "by_prompt",
    "needed",
    "read_places",
    "sides_of",
    "verdicts_of",
    "verdicts_wanted",
]  # fmt: skip

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
    "cited_by": ("support", "binary"),
    "cited_support": ("support", "binary"),
    "relevance": ("addresses", "graded"),
}

#: The kinds of verdicts on claims of the answer, of the reference, and on what may cite contexts.
SIDES: Mapping[str, tuple[str, ...]] = {
    "answer": ("supported", "correct", "answer_by"),
    "reference": ("attributed", "reference_by"),
    "statement": ("cited_by", "cited_support"),
}


@dataclass(frozen=True)
class Asked:
    """One verdict that is wanted: whose (a row of records), of which kind, where it goes, and the
    pair that is asked about, each an id and a text.
    """

    record: int
    kind: str
    place: tuple[int, ...]
    evidence: tuple[str, str]
    claim: tuple[str, str]

    @property
    def pair(self) -> tuple[str, str]:
        """The ids of the pair, each with a digest of its text: `q1|answer:1#0f3a9c21`."""
        return _of_text(*self.evidence), _of_text(*self.claim)

    @property
    def question(self) -> Question:
        """What a judge is asked."""
        return Question(*self.pair, self.evidence[1], Document(self.claim[1]))


@dataclass(frozen=True)
class Verdict:
    """What came of it: a grade of the scale, or why there is none ("unscored: ...")."""

    asked: Asked
    scale: Scale
    grade: float | None
    fault: str = ""


def needed(measures: Sequence[Measure]) -> list[str]:
    """The kinds of verdicts that measures need."""
    found: list[str] = []
    for measure in measures:
        settings = measure.settings
        if measure.name == "context_precision":
            kinds = {"question": ["useful"], "reference": ["useful_reference"]}
            found += kinds.get(settings["by"], [])
        elif measure.name == "context_recall":
            found += ["attributed"] if settings["by"] == "claims" else []
        elif measure.name == "answer_relevancy":
            found += ["relevance"] if settings["form"] == "judge" else []
        else:
            found += {
                "faithfulness": ["supported"],
                "noise_sensitivity": ["correct", "reference_by", "answer_by"],
                "citation_recall": ["cited_support"],
                "citation_precision": ["cited_by"],
            }.get(measure.name, [])
    return list(dict.fromkeys(found))


def sides_of(kinds: Sequence[str]) -> list[str]:
    """Whose claims the kinds are about."""
    return [side for side, own in SIDES.items() if set(own) & set(kinds)]


def by_prompt(kinds: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """The kinds of each prompt and scale."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        found.setdefault(PROMPTS[kind], []).append(kind)
    return found


def verdicts_wanted(
    records: Sequence[Record], claims: Sequence[Claims], kinds: Sequence[str]
) -> list[Asked]:
    """Every verdict of these kinds that is wanted, those about one evidence side by side."""
    return [
        asked
        for at, (record, own) in enumerate(zip(records, claims, strict=True))
        for kind in kinds
        for asked in _of_kind(at, record, own, kind)
    ]


def _of_kind(at: int, record: Record, claims: Claims, kind: str) -> Iterator[Asked]:
    answer, reference, statements = _named(record, claims)
    whole = (f"{record.id}|contexts", _joined(record.contexts))
    # Without a passage, nothing is supported: there is nothing to ask.
    read = bool(record.contexts)
    if kind == "useful":
        yield from _passages(at, kind, (f"{record.id}|question", record.question), record)
    elif kind == "useful_reference" and record.reference:
        text = f"Question: {record.question}\nReference answer: {record.reference}"
        yield from _passages(at, kind, (f"{record.id}|question and reference", text), record)
    elif kind in ("attributed", "supported") and read:
        own = reference if kind == "attributed" else answer
        yield from (Asked(at, kind, (n,), whole, claim) for n, claim in enumerate(own))
    elif kind == "correct" and record.reference:
        evidence = (f"{record.id}|reference", record.reference)
        yield from (Asked(at, kind, (n,), evidence, claim) for n, claim in enumerate(answer))
    elif kind in ("answer_by", "reference_by"):
        own = reference if kind == "reference_by" else answer
        for place, context in enumerate(record.contexts):
            evidence = _alone(record, context)
            yield from (Asked(at, kind, (n, place), evidence, c) for n, c in enumerate(own))
    elif kind in ("cited_by", "cited_support"):
        for n, cited in enumerate(claims.cited or ()):
            places = read_places(cited, record.contexts)
            if kind == "cited_by":
                alone = ((place, _alone(record, record.contexts[place])) for place in places)
                yield from (Asked(at, kind, (n, p), e, statements[n]) for p, e in alone)
            elif places:
                shown = [record.contexts[place] for place in places]
                yield Asked(at, kind, (n,), _together(record, shown), statements[n])
    elif kind == "relevance" and record.answer:
        question = (f"{record.id}|question", record.question)
        yield Asked(at, kind, (), question, (f"{record.id}|answer", record.answer))


@lru_cache(maxsize=4096)
def _of_text(name: str, text: str) -> str:
    """An id that says which text it is of: the same where texts differ in white space only."""
    return f"{name}#{Document(text).digest.hex()[:8]}"


def _passages(at: int, kind: str, evidence: tuple[str, str], record: Record) -> Iterator[Asked]:
    for place, context in enumerate(record.contexts):
        yield Asked(at, kind, (place,), evidence, _alone(record, context))


def _named(record: Record, claims: Claims) -> list[list[tuple[str, str]]]:
    """Ids and texts of the claims of the answer, of the reference, and of the statements."""
    # Where the statements are the claims, people are asked about them once.
    same = claims.statements == claims.answer
    sides = (
        ("answer", claims.answer),
        ("reference", claims.reference),
        ("answer" if same else "statement", claims.statements),
    )
    return [
        [(f"{record.id}|{side}:{n}", text) for n, text in enumerate(texts, 1)]
        for side, texts in sides
    ]


def _alone(record: Record, context: Context) -> tuple[str, str]:
    return f"{record.id}|context:{context.id}", context.text


def _together(record: Record, shown: Sequence[Context]) -> tuple[str, str]:
    if len(shown) == 1:
        return _alone(record, shown[0])
    return f"{record.id}|contexts:{'+'.join(c.id for c in shown)}", _joined(shown)


def _joined(contexts: Sequence[Context]) -> str:
    return "\n\n".join(f"[{at}] {context.text}" for at, context in enumerate(contexts, 1))


def read_places(names: Sequence[str], contexts: Sequence[Context]) -> list[int]:
    """The places of contexts by id; one that was not read is left out."""
    at = {context.id: place for place, context in enumerate(contexts)}
    return [at[name] for name in names if name in at]


def verdicts_of(
    records: Sequence[Record],
    claims: Sequence[Claims],
    kinds: Sequence[str],
    judge_for: JudgeFor,
    ledger: Ledger,
    *,
    again: Collection[Status] = (),
    progress: Progress | None = None,
) -> Iterator[Verdict]:
    """Every verdict of these kinds, asked of the judge of its prompt, or why there is none.

    Raises Stopped when the judge had to stop.
    """
    for prompt, own in by_prompt(kinds).items():
        judge = judge_for(*prompt)
        wanted = verdicts_wanted(records, claims, own)
        questions = [asked.question for asked in wanted]
        with watched(progress, prompt[0], judge, questions, ledger, again) as watch:
            kept = ask(judge, questions, ledger, again=again, watch=watch)
        scale = judge.scale
        if isinstance(judge, RecordedJudge):
            # What was recorded may be anything; here it is a verdict of this prompt, or none.
            scale = load_prompt(*prompt).scale
        for asked, question in zip(wanted, questions, strict=True):
            yield _verdict(asked, scale, kept.get(judge.key(question)))


def _verdict(asked: Asked, scale: Scale, kept: Kept | None) -> Verdict:
    status = Status.UNKNOWN if kept is None or kept.status is None else kept.status
    grade = None if kept is None else kept.grade
    if grade is not None and grade not in scale.grades:
        status, grade = Status.ILLEGAL, None
    fault = f"{UNSCORED}: verdict {status.value}" if grade is None else ""
    return Verdict(asked, scale, grade, fault)
