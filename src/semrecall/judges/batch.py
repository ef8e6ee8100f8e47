"""Batches: questions handed in together, answered within a day, at about half the price.

`submit` hands them in, `poll` asks how far they are, `collect` takes the answers into the ledger.
Answers are told apart by the key of their question, never by position. While a batch is out, its
pairs are claimed for it, so neither another batch nor a direct run sends them; what it leaves
unanswered (expired, cancelled, failed) is open again once it is collected. Batches know no
concurrency, no pauses and no second try: what has to be asked again goes into the next one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

from semrecall.errors import InputError, JudgeFault, Stopped
from semrecall.judges.batch_line import PLACES, Batch, BatchLine, Request
from semrecall.judges.contract import Answer, Document, Question, Reply, Status
from semrecall.judges.hearing import Heard
from semrecall.judges.ledger import Ledger, LedgerBatch, is_open
from semrecall.judges.llm import LLMJudge, run_anywhere
from semrecall.judges.prompts import new_fence
from semrecall.judges.session import best_of, understood, with_text
from semrecall.judges.wires import Manner

__all__ = ["Batch", "Collected", "collect", "poll", "submit"]

T = TypeVar("T")

#: What may be asked once more in a later batch; other failures of the model are its last word.
_ONCE_MORE = frozenset(
    {Status.UNPARSED, Status.AMBIGUOUS, Status.ILLEGAL, Status.EMPTY, Status.TRUNCATED}
)
#: Requests and bytes of one batch, below what the endpoints take.
_MOST = {"openai": (50_000, 190_000_000), "anthropic": (100_000, 240_000_000)}


@dataclass(frozen=True)
class Collected:
    """What collecting brought.

    batches: those collected now. statuses: how many pairs ended how. unanswered: pairs that are
    open again. unknown: answers to questions that were not asked. waiting: pairs in batches that
    are still out.
    """

    batches: tuple[Batch, ...]
    statuses: Mapping[str, int]
    unanswered: int = 0
    unknown: int = 0
    waiting: int = 0
    remarks: tuple[str, ...] = ()


# -- the three verbs -------------------------------------------------------------------------------


def submit(
    judge: LLMJudge,
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    again: Collection[Status] = (),
    most: int | None = None,
) -> list[Batch]:
    """Hand in all questions that the ledger has no answer to, in as few batches as will do.

    again: statuses without a grade that are asked once more. most: requests in one batch. Pairs
    that are in a batch already, or that another process is asking, are left out.

    Raises Stopped where a cap of the judge would be passed; what fits under it is handed in.
    InputError where the judge puts several documents into one call.
    """
    if judge.docs_per_call != 1:
        raise InputError(
            f"a batch asks about one document a request; docs_per_call is {judge.docs_per_call}"
        )
    desk = _Desk(judge, ledger)
    opened = desk.open(questions, again)
    requests = desk.requests(opened)
    blocks = _blocks(requests, *_limits(judge, most))

    async def run(http: BatchLine) -> list[Batch]:
        return [await desk.hand_in(http, block) for block in blocks]

    found = _run(judge, run)
    if desk.stopped is not None:
        raise desk.stopped
    return found


def poll(judge: LLMJudge, ledger: Ledger) -> list[Batch]:
    """How far the judge's batches are, oldest first; those collected before stay out."""
    desk = _Desk(judge, ledger)

    async def run(http: BatchLine) -> list[Batch]:
        return [(await desk.look(http, noted))[0] for noted in desk.out()]

    return _run(judge, run)


def collect(judge: LLMJudge, ledger: Ledger, questions: Sequence[Question] = ()) -> Collected:
    """Take the answers of all batches that have ended into the ledger.

    Doing so twice changes nothing. questions: the texts that were judged, where they are at hand;
    with them, a reply in prose that merely quotes its document is told from an answer.
    """
    desk = _Desk(judge, ledger, questions)

    async def run(http: BatchLine) -> None:
        for noted in desk.out():
            await desk.take(http, noted)

    _run(judge, run)
    return desk.collected()


# -- one judge's batches ---------------------------------------------------------------------------


class _Desk:
    """Where a judge's batches are handed in and taken back."""

    def __init__(self, judge: LLMJudge, ledger: Ledger, questions: Sequence[Question] = ()) -> None:
        judge.memory = ledger
        self.judge, self.ledger = judge, ledger
        self.number = ledger.enlist(judge)
        self.place = PLACES[judge.wire.name](judge)
        self.stopped: Stopped | None = None
        self._questions = {judge.key(q): q for q in questions}
        self._batches: list[Batch] = []
        self._statuses: Counter[str] = Counter()
        self._unanswered = self._unknown = 0
        self._remarks: list[str] = []

    # -- in

    def open(self, questions: Sequence[Question], again: Collection[Status]) -> list[Question]:
        """The questions to ask, claimed, each key once."""
        judge, ledger = self.judge, self.ledger
        by_key: dict[bytes, Question] = {}
        rows = []
        for question in questions:
            key = judge.key(question)
            by_key.setdefault(key, replace(question, key=key))
            rows.append((question.query_id, question.doc_id, question.repeat, key))
        ledger.enter_pairs(self.number, rows)
        kept = ledger.kept(self.number, by_key)
        wanted = [key for key in by_key if is_open(kept.get(key), again)]
        ours = ledger.claim(self.number, wanted)
        return [
            replace(by_key[key], tried=kept[key].tried if key in kept else {})
            for key in wanted
            if key in ours
        ]

    def requests(self, questions: Sequence[Question]) -> Iterator[Request]:
        """The requests of the questions, up to the judge's caps; the rest are let go."""
        for at, question in enumerate(questions):
            try:
                found = list(self._requests_of(question))
            except InputError as error:  # an image that cannot be read
                gone = Answer(question, Status.REJECTED, reason=error.message)
                self.ledger.record(
                    self.number, Reply((gone,), Status.REJECTED, raw=error.message, calls=0)
                )
                continue
            except Stopped as stop:
                self.stopped = stop
                self.ledger.release(self.number, [q.key for q in questions[at:]])
                return
            yield from found

    def _requests_of(self, question: Question) -> Iterator[Request]:
        judge = self.judge
        fitted = judge.fitted(question)
        texts = [question.document.text] if fitted is None else fitted.texts
        limit = judge.max_tokens * (2 if question.tried.get(Status.TRUNCATED) else 1)
        for at, text in enumerate(texts):
            shown = with_text(question, text)
            messages = judge.prompt.messages([shown], new_fence(), reason=judge.reason)
            if judge.budget.reserve(judge.tokens_of(messages), limit) is None:
                raise Stopped(
                    "the cap on cost would be passed",
                    hint="collect what is out, or raise --max-cost",
                )
            body = judge.wire.request(
                messages, judge.sampling_of(limit), judge.manner, judge.prompt,
                reason=judge.reason,
            )  # fmt: skip
            name = question.key.hex() if len(texts) == 1 else f"{question.key.hex()}-{at}"
            size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
            yield Request(question, name, body, size + 200)

    async def hand_in(self, http: BatchLine, block: Sequence[Request]) -> Batch:
        """Submit one batch. The ledger knows of it before and after."""
        pairs = {r.question.key: (r.question.query_id, r.question.doc_id) for r in block}
        windows = Counter(r.question.key for r in block)
        about = {
            "token": self.ledger.token,
            "manner": self.judge.manner.to_json(),
            "pairs": [[*pair, windows[key]] for key, pair in pairs.items()],
        }
        name = self.ledger.open_batch(
            self.number, self.judge.url, list(pairs), json.dumps(about, ensure_ascii=False)
        )
        try:
            made = await self.place.submit(http, block, name)
        except (JudgeFault, Stopped):
            self.ledger.set_batch(name, "failed")
            raise
        self.ledger.name_batch(name, made, json.dumps(about, ensure_ascii=False))
        return Batch(made, "running", len(block))

    # -- out

    def out(self) -> list[LedgerBatch]:
        """The batches that are not closed, oldest first."""
        return [
            b
            for b in self.ledger.batches(self.number)
            if b.state in ("running", "ended", "submitting")
        ]

    async def look(self, http: BatchLine, noted: LedgerBatch) -> tuple[Batch, Any]:
        """The state of a batch, and what the endpoint says of it."""
        if noted.state == "submitting":
            found = await self._unnamed(http, noted)
            if isinstance(found, Batch):
                return found, None
            noted = found
        said = await http.json("GET", self.place.address(noted.id))
        batch = self.place.batch(said, len(noted.keys))
        batch = replace(batch, id=noted.id)
        if batch.state != noted.state:
            self.ledger.set_batch(noted.id, batch.state)
        return batch, said

    async def _unnamed(self, http: BatchLine, noted: LedgerBatch) -> Batch | LedgerBatch:
        """A batch whose name is not known: being submitted, found at the endpoint, or lost."""
        if self.ledger.is_alive(json.loads(noted.about)["token"]):
            return Batch(noted.id, "submitting", len(noted.keys))
        name = await self.place.find(http, noted.id)
        if name is None:
            self.ledger.set_batch(noted.id, "lost")
            return Batch(
                noted.id,
                "lost",
                len(noted.keys),
                message="its process ended while it handed the batch in; if the endpoint took it, "
                "it will be charged, and its pairs are asked again",
            )
        self.ledger.name_batch(noted.id, name, noted.about)
        return replace(noted, id=name, state="running")

    async def take(self, http: BatchLine, noted: LedgerBatch) -> None:
        """Collect one batch, if it has ended."""
        batch, said = await self.look(http, noted)
        if batch.state != "ended":
            if batch.state in ("failed", "lost"):
                self._batches.append(batch)
                self._unanswered += len(noted.keys)
            return
        about = json.loads(noted.about)
        pairs = dict(zip(noted.keys, about["pairs"], strict=True))
        used = Manner.from_json(about["manner"])
        kept = self.ledger.kept(self.number, noted.keys)
        tried = {key: found.tried for key, found in kept.items()}
        heard: dict[bytes, dict[int, Heard]] = {}
        left = set(noted.keys)
        async for name, one in self.place.results(http, said):
            key, at = _key_of(name)
            if key not in pairs or at >= pairs[key][2]:
                self._unknown += 1
                continue
            if one is None or key not in left:  # expired or cancelled; or answered twice
                continue
            heard.setdefault(key, {}).setdefault(at, one)
            if len(heard[key]) == pairs[key][2]:
                question = self._question(key, pairs[key], tried.get(key, {}))
                self._take_one(batch.id, question, heard.pop(key), used)
                left.discard(key)
        for key, part in heard.items():
            # Some windows came, others not: what they cost is kept, the question stays open.
            self._take_one(batch.id, self._question(key, pairs[key], {}), part, used, whole=False)
        self.ledger.set_batch(batch.id, "collected")
        self._unanswered += len(left)
        self._batches.append(replace(batch, state="collected"))

    def _question(self, key: bytes, pair: Sequence[Any], tried: Mapping[str, int]) -> Question:
        """The question of a key, with its texts where they are at hand."""
        known = self._questions.get(key)
        query, document = (known.query, known.document) if known else ("", Document())
        return Question(pair[0], pair[1], query, document, key=key, tried=tried)

    def _take_one(
        self,
        batch: str,
        question: Question,
        windows: Mapping[int, Heard],
        used: Manner,
        *,
        whole: bool = True,
    ) -> None:
        """Keep what was said of one question; the best of its windows is its answer."""
        replies = [self._reply(question, windows[at], used.form) for at in sorted(windows)]
        answer = best_of([reply.answers[0] for reply in replies], self.judge.scale.grades[-1])
        more = answer.status in _ONCE_MORE and not question.tried.get(answer.status)
        final = whole and not (more or answer.status.passing)
        flags = (*answer.flags, *([f"best of {len(windows)} windows"] if len(windows) > 1 else []))
        replies[-1] = replace(
            replies[-1], answers=(replace(answer, final=final, flags=tuple(flags)),)
        )
        if not self.ledger.record_item(self.number, batch, question.key, replies):
            return
        for heard, reply in zip(windows.values(), replies, strict=True):
            self._learn(heard, used)
            self.judge.count(reply)
        if final:
            self._statuses[answer.status.value] += 1
        elif whole:
            self._unanswered += 1

    def _reply(self, question: Question, heard: Heard, form: str) -> Reply:
        """What was heard of one window as a reply of the ledger; not final yet."""
        texts = f"{question.query}\n{question.document.text}"
        answer, mode = understood(self.judge, question, heard, texts)
        return Reply(
            (replace(answer, final=False),),
            answer.status,
            f"batch {form}{mode}",
            raw=heard.text or heard.message,
            tokens_in=heard.tokens_in,
            tokens_out=heard.tokens_out,
            cost=self.judge.budget.cost(heard.tokens_in, heard.tokens_out),
        )

    def _learn(self, heard: Heard, used: Manner) -> None:
        """A refused form or parameter is left out of the next batch."""
        judge = self.judge
        if heard.unsupported is None:
            if heard.status is Status.SETTLED and judge.manner == used:
                judge.remember_manner()
            return
        lower = used.without(heard.unsupported, judge.wire)
        if lower is not None and judge.manner == used:
            judge.manner = lower
            judge.remember_manner()
            self._remarks.append(
                f"the endpoint refused {heard.unsupported!r} ({heard.message}); the next batch "
                "is asked without it"
            )

    def collected(self) -> Collected:
        """What was collected so far."""
        return Collected(
            tuple(self._batches),
            dict(self._statuses),
            self._unanswered,
            self._unknown,
            len(self.ledger.in_batches(self.number)),
            tuple(self._remarks),
        )


# -- small things ----------------------------------------------------------------------------------


def _limits(judge: LLMJudge, most: int | None) -> tuple[int, int]:
    """Requests and bytes of one batch at most."""
    if most is not None and most < 1:
        raise InputError(f"most is {most}; a batch has at least one request")
    requests, size = _MOST[judge.wire.name]
    return min(requests, most or requests), size


def _blocks(requests: Iterator[Request], most: int, size: int) -> Iterator[list[Request]]:
    """Requests in batches; the windows of one document stay together."""
    block: list[Request] = []
    filled = 0
    for _, same in groupby(requests, key=lambda r: r.question.key):
        group = list(same)
        more = sum(r.size for r in group)
        if block and (len(block) + len(group) > most or filled + more > size):
            yield block
            block, filled = [], 0
        block += group
        filled += more
    if block:
        yield block


def _key_of(name: str) -> tuple[bytes, int]:
    """The key and the window that the name of a request stands for; (b"", 0) for another's."""
    found = re.fullmatch(r"([0-9a-f]{32})(?:-([0-9]{1,6}))?", name)
    return (bytes.fromhex(found[1]), int(found[2] or 0)) if found else (b"", 0)


def _run(judge: LLMJudge, work: Callable[[BatchLine], Coroutine[Any, Any, T]]) -> T:
    """Do the work over one session; also from within a running event loop."""

    async def run() -> T:
        async with BatchLine(judge) as http:
            return await work(http)

    return run_anywhere(run)
