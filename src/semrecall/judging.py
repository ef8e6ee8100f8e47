"""judge(): pairs, texts and a judge become judgments, through a ledger that forgets nothing."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from semrecall.data import Judgments, Pairs
from semrecall.data.frames import to_library
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.formats import read_documents, read_pairs, read_texts
from semrecall.judges.asking import ask
from semrecall.judges.canaries import KINDS, UNRELATED, Canary, canaries
from semrecall.judges.contract import Document, Judge, Question, Reply, Status
from semrecall.judges.ledger import Kept, Ledger
from semrecall.text import aligned, number, plural, share

__all__ = ["CanaryScore", "Judged", "canaries_for", "judge", "questions_of", "status_named"]

#: A judge that fails more of its canaries than this leaves is not to be trusted.
_FLOOR = 0.8

Watch = Callable[[Reply], None]


@dataclass(frozen=True)
class CanaryScore:
    """How the judge did on pairs whose label is known: {kind: (right, asked)}, and how many got
    another label for the instruction in them alone.
    """

    kinds: Mapping[str, tuple[int, int]]
    swayed: int

    @property
    def right(self) -> float:
        """Share of canaries with the right label; NaN when none was answered."""
        asked = sum(count for _, count in self.kinds.values())
        return sum(hit for hit, _ in self.kinds.values()) / asked if asked else float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class Judged:
    """Judgments (m pairs), and how they came about.

    statuses: how many pairs ended how. calls, tokens_in, tokens_out, cost, maybe_charged: of this
    run alone; cost is None where the prices or the tokens are unknown. fresh: pairs that this run
    asked; the others were in the ledger. copied: pairs with the text of another one, whose label
    they bear. self_agreement: the share of pairs of equal label when asked again. canaries: None
    where none were asked.
    """

    judgments: Judgments
    judge: str
    statuses: Mapping[str, int]
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    maybe_charged: int = 0
    fresh: int = 0
    copied: int = 0
    relevant: float = 1.0
    self_agreement: float | None = None
    canaries: CanaryScore | None = None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        m = len(self.judgments)
        settled = self.statuses.get(Status.SETTLED.value, 0)
        grades = self.judgments.grades
        lines = [f"{self.judge}: {settled:,} of {plural(m, 'pair')} labelled"]
        if settled:
            yes = int((grades >= self.relevant).sum())
            lines[0] += f", {yes:,} ({share(yes / settled)}) relevant (grade >= {self.relevant:g})"
        lines += [f"  {count:,} {status}" for status, count in self.failed.items()]
        lines += ["", *self._work()]
        if self.canaries is not None:
            lines += ["", *_canary_lines(self.canaries)]
        lines += [f"note: {remark}" for remark in self.remarks]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Judged({self.judge}, {self.judgments!r})"

    @property
    def failed(self) -> dict[str, int]:
        """The pairs without a grade, by what became of them."""
        return {s: n for s, n in self.statuses.items() if s != Status.SETTLED.value}

    def to_dict(self) -> dict[str, Any]:
        """Everything but the judgments, as JSON."""
        score = self.canaries
        return {
            "judge": self.judge,
            "pairs": len(self.judgments),
            "statuses": dict(self.statuses),
            "calls": self.calls,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "cost": self.cost,
            "maybe_charged": self.maybe_charged,
            "asked": self.fresh,
            "copied": self.copied,
            "self_agreement": self.self_agreement,
            "canaries": None
            if score is None
            else {
                "right": None if np.isnan(score.right) else score.right,
                "kinds": {k: {"right": r, "asked": n} for k, (r, n) in score.kinds.items()},
                "swayed": score.swayed,
            },
            "notes": list(self.remarks),
        }

    def to_frame(self, library: str = "pandas") -> Any:
        """The judgments as a frame."""
        return to_library(self.judgments.to_arrow(), library)

    def _work(self) -> list[str]:
        waiting = (self.statuses.get(s.value, 0) for s in (Status.WAITING, Status.NOT_ASKED))
        known = len(self.judgments) - self.fresh - self.copied - sum(waiting)
        parts = [f"asked {self.fresh:,}", f"{known:,} known before"]
        if self.copied:
            parts.append(f"{self.copied:,} by the equal text of another document")
        lines = ["; ".join(parts)]
        if self.calls:
            cost = "" if self.cost is None else f", cost {number(self.cost, 4)}"
            lines.append(
                f"{plural(self.calls, 'call')}, {self.tokens_in:,} tokens in, "
                f"{self.tokens_out:,} out{cost}"
            )
        if self.maybe_charged:
            lines.append(
                f"{plural(self.maybe_charged, 'call')} without a reply may have been charged"
            )
        if self.self_agreement is not None:
            lines.append(f"asked again, {share(self.self_agreement)} of the pairs got equal labels")
        return lines


def judge(
    pairs: Any,
    judge: Judge,
    *,
    corpus: Any = None,
    queries: Any = None,
    k: int | None = None,
    ledger: Ledger | Path | str | None = None,
    repeat: int = 1,
    again: Collection[Status | str] = (),
    canaries: int = 0,
    seed: int = 0,
    known_only: bool = False,
    watch: Watch | None = None,
) -> Judged:
    """What a judge says of pairs of query and document.

    pairs: a Run or a truth (its first k results a query), Judgments, a pool, pairs of ids, or the
        path of a file with any of these.
    corpus, queries: texts by id, as {id: text} (documents also as (text, image) or Document), or
        the path of JSON lines, CSV or parquet. A judge that knows pairs by id needs neither.
    ledger: where every attempt and label is kept; None keeps them in memory only. What it holds is
        not asked again.
    repeat: how often each pair is asked; the label most often given counts, and a tie is none.
    again: statuses without a grade to ask once more, e.g. ["unparsed"].
    canaries: of each kind so many pairs of known label are asked as well.
    seed: of the canaries. known_only: ask nothing, and give what the ledger holds.
    watch: is shown every reply after it is kept.

    Pairs without a grade stay in the judgments, with their status as the reason; they are never
    0. Raises MismatchError where texts are missing, Stopped when the judge had to stop.
    """
    if repeat < 1 or canaries < 0:
        raise InputError(f"repeat is {repeat}, canaries is {canaries}; expected at least 1 and 0")
    found = read_pairs(pairs, k=k) if isinstance(pairs, str | Path) else Pairs.of(pairs, k=k)
    questions = questions_of(found, corpus, queries, needed=judge.reads_texts)
    statuses = [status_named(name) for name in again]
    tally = _Tally(watch)
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    try:
        asked = [_repeated(q, n) for q in questions for n in range(repeat)]
        if known_only:
            score, kept = None, book.kept(book.enlist(judge), map(judge.key, asked))
        else:
            score = _canary_score(judge, questions, canaries, seed, book, tally)
            kept = ask(judge, asked, book, again=statuses, watch=tally)
        batched = _in_batches(judge, asked, book)
    finally:
        if book is not ledger:
            book.close()
    return _judged(judge, found, questions, kept, batched, repeat, tally, score)


def _in_batches(judge: Judge, asked: Sequence[Question], book: Ledger) -> set[bytes]:
    """The keys of questions that wait in a batch, of the judge or of a member of it."""
    found = book.in_batches(book.enlist(judge))
    for member in judge.members:
        batched = _in_batches(member, asked, book)
        if batched:
            found |= {judge.key(q) for q in asked if member.key(q) in batched}
    return found


def questions_of(pairs: Pairs, corpus: Any, queries: Any, *, needed: bool = True) -> list[Question]:
    """The pairs as a judge sees them, in order.

    needed: whether texts must be there; without, missing ones are empty. Raises MismatchError
    naming the first pairs whose texts are missing.
    """
    documents = _documents(corpus)
    texts = _texts(queries)
    if needed and not (documents and texts):
        raise InputError(
            "this judge reads texts, and the "
            + " and the ".join(
                w for w, t in (("queries", texts), ("documents", documents)) if not t
            )
            + " have none",
            hint="give queries and corpus: JSON lines with id and text",
        )
    found, lacking = [], []
    for query, document in pairs:
        text, content = texts.get(str(query)), documents.get(str(document))
        if text is None or content is None:
            lacking.append((query, document, text is None))
        found.append(Question(query, document, text or "", content or Document()))
    if lacking and needed:
        raise _missing_texts(pairs, lacking, texts, documents)
    return found


def _repeated(question: Question, repeat: int) -> Question:
    from dataclasses import replace

    return replace(question, repeat=repeat) if repeat else question


def status_named(name: Status | str) -> Status:
    """A status without a grade, by its name; InputError for others."""
    unasked = (Status.SETTLED, Status.WAITING, Status.NOT_ASKED)
    known = [s for s in Status if s not in unasked]
    if name not in known:
        raise InputError(
            f"again has {str(name)!r}; expected of {', '.join(s.value for s in known)}"
        )
    return Status(name)


def _documents(corpus: Any) -> Mapping[str, Document]:
    if corpus is None:
        return {}
    if isinstance(corpus, str | Path):
        corpus = read_documents(corpus)
    return {str(name): _document(value) for name, value in corpus.items()}


def _document(value: Any) -> Document:
    if isinstance(value, Document):
        return value
    return Document(value) if isinstance(value, str) else Document(*value)


def _texts(queries: Any) -> Mapping[str, str]:
    if queries is None:
        return {}
    found = read_texts(queries) if isinstance(queries, str | Path) else queries
    return {str(name): text for name, text in found.items()}


def _missing_texts(
    pairs: Pairs,
    lacking: Sequence[tuple[Any, Any, bool]],
    texts: Mapping[str, str],
    documents: Mapping[str, Document],
) -> MismatchError:
    from semrecall.data.ids import ids
    from semrecall.data.matching import difference

    query, document, by_query = lacking[0]
    what, name = ("query", query) if by_query else ("document", document)
    known = list(texts if by_query else documents)
    hint = difference(pairs.queries if by_query else pairs.documents, ids(known))
    return MismatchError(
        f"{len(lacking):,} of {plural(len(pairs), 'pair')} lack a text, first: there is no {what} "
        f"{name!r} among the {len(known):,} texts",
        hint=str(hint) if hint else None,
    )


class _Tally:
    """Counts of a run's calls."""

    def __init__(self, watch: Watch | None) -> None:
        self.calls = self.tokens_in = self.tokens_out = self.maybe_charged = 0
        self.cost: float | None = None
        self.asked: set[bytes] = set()
        self._watch = watch

    def __call__(self, reply: Reply) -> None:
        self.calls += reply.calls
        self.tokens_in += reply.tokens_in or 0
        self.tokens_out += reply.tokens_out or 0
        self.maybe_charged += reply.maybe_charged
        if reply.cost is not None:
            self.cost = (self.cost or 0.0) + reply.cost
        self.asked.update(answer.question.key for answer in reply.answers)
        if self._watch is not None:
            self._watch(reply)


# -- canaries -------------------------------------------------------------------------------------


def canaries_for(questions: Sequence[Question], each: int, seed: int) -> list[Canary]:
    """The canaries of a run over these questions."""
    return canaries(list({q.query_id: q.query for q in questions}.items()), each, seed)


def _canary_score(
    judge: Judge, questions: Sequence[Question], each: int, seed: int, book: Ledger, tally: _Tally
) -> CanaryScore | None:
    if not each or not judge.reads_texts:
        return None
    made = canaries_for(questions, each, seed)
    kept = ask(judge, [c.question for c in made], book, enter=False, watch=tally)
    tally.asked.clear()
    labels = [(c, kept.get(judge.key(c.question))) for c in made]
    kinds = {}
    for kind in KINDS:
        known = [said.grade for c, said in labels if c.kind == kind and said and said.settled]
        right = sum(grade is not None and grade < judge.scale.relevant for grade in known)
        kinds[kind] = (right, len(known))
    score = CanaryScore(kinds, _swayed(labels))
    if score.right < _FLOOR:
        warnings.warn(
            f"{judge.name} passes {share(score.right)} of its canaries: it can be led to call "
            "documents relevant that are not; see the kinds that failed, and do not trust its "
            "labels without a check by people",
            SemrecallWarning,
            stacklevel=3,
        )
    return score


def _swayed(labels: Sequence[tuple[Canary, Kept | None]]) -> int:
    """Queries whose unrelated passage got another label for the instruction at its end."""
    grades: dict[tuple[str, Any], float | None] = {
        (c.kind, c.question.query_id): said.grade for c, said in labels if said and said.settled
    }
    return sum(
        grade != grades.get(("instructed", query), grade)
        for (kind, query), grade in grades.items()
        if kind == UNRELATED
    )


def _canary_lines(score: CanaryScore) -> list[str]:
    rows = [[kind, f"{right}/{asked}"] for kind, (right, asked) in score.kinds.items()]
    lines = [f"canaries: {share(score.right)} labelled as not relevant, as they should be"]
    lines += ["  " + line for line in aligned(rows, [False, True])]
    if score.swayed:
        lines.append(f"  {score.swayed:,} changed their label for an instruction in the document")
    return lines


# -- what comes out -------------------------------------------------------------------------------


@dataclass
class _Pair:
    """What was said of one pair, over its repeats."""

    grade: float
    status: Status
    reason: str
    confidence: float
    origin: Any
    flags: tuple[str, ...] = ()
    agreed: bool | None = field(default=None)


def _judged(
    judge: Judge,
    pairs: Pairs,
    questions: Sequence[Question],
    kept: Mapping[bytes, Kept],
    batched: set[bytes],
    repeat: int,
    tally: _Tally,
    score: CanaryScore | None,
) -> Judged:
    rows, fresh, copied = [], 0, 0
    for question in questions:
        keys = [judge.key(_repeated(question, n)) for n in range(repeat)]
        open_status = Status.WAITING if not batched.isdisjoint(keys) else Status.NOT_ASKED
        row = _pair(question, [kept.get(key) for key in keys], open_status)
        rows.append(row)
        fresh += row.origin is None and any(
            key in tally.asked
            for n in range(repeat)
            for key in _keys(judge, _repeated(question, n))
        )
        copied += row.origin is not None
    agreed = [row.agreed for row in rows if row.agreed is not None]
    return Judged(
        _judgments(judge, pairs, rows),
        judge.name,
        dict(Counter(row.status.value for row in rows).most_common()),
        tally.calls,
        tally.tokens_in,
        tally.tokens_out,
        tally.cost,
        tally.maybe_charged,
        fresh,
        copied,
        float(judge.scale.relevant),
        sum(agreed) / len(agreed) if agreed else None,
        score,
        tuple(judge.remarks()),
    )


def _keys(judge: Judge, question: Question) -> Iterator[bytes]:
    """The keys under which the judge, or its members, are asked a question."""
    yield judge.key(question)
    for member in judge.members:
        yield from _keys(member, question)


def _pair(question: Question, said: Sequence[Kept | None], otherwise: Status) -> _Pair:
    """What was said of a pair; `otherwise` is the status of one of which nothing was said."""
    known = [k for k in said if k is not None and k.status is not None]
    settled = [k for k in known if k.grade is not None]
    if not known:
        return _Pair(np.nan, otherwise, "", np.nan, None)
    origin = known[0].origin
    copied = None if origin == (question.query_id, question.doc_id) else origin
    if not settled:
        last = known[-1]
        assert last.status is not None
        return _Pair(np.nan, last.status, last.reason, np.nan, copied, last.flags)
    counts = Counter(k.grade for k in settled).most_common()
    agreed = len(counts) == 1 if len(settled) > 1 else None
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        said_all = ", ".join(f"{k.grade:g}" for k in settled)
        return _Pair(np.nan, Status.TIED, f"asked {len(settled)} times: {said_all}", np.nan,
                     copied, agreed=agreed)  # fmt: skip
    first = next(k for k in settled if k.grade == counts[0][0])
    own = [k.confidence for k in settled if k.grade == first.grade and k.confidence is not None]
    sure = float(np.mean(own)) if own else np.nan
    if len(settled) > 1:
        sure = counts[0][1] / len(settled)
    assert first.grade is not None
    return _Pair(first.grade, Status.SETTLED, first.reason, sure, copied, first.flags, agreed)


def _judgments(judge: Judge, pairs: Pairs, rows: Sequence[_Pair]) -> Judgments:
    details: dict[str, Any] = {
        "judge": np.array([judge.name] * len(rows), dtype=object),
        "reason": np.array([row.reason or None for row in rows], dtype=object),
        "status": np.array([row.status.value for row in rows], dtype=object),
    }
    confidence = np.array([row.confidence for row in rows], dtype=np.float64)
    if not np.isnan(confidence).all():
        details["confidence"] = confidence
    if pairs.probabilities is not None:
        details["probability"] = pairs.probabilities
    if any(row.origin for row in rows):
        origins = [f"{row.origin[1]}" if row.origin else None for row in rows]
        details["origin"] = np.array(origins, dtype=object)
    if any(row.flags for row in rows):
        details["flags"] = np.array(["; ".join(row.flags) for row in rows], dtype=object)
    grades = np.array([row.grade for row in rows], dtype=np.float64)
    return Judgments(pairs.queries, pairs.documents, grades, details, judge.name)
