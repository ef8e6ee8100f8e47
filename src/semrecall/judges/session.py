"""One run of a language model as a judge: questions in flight, re-asking, and when to stop.

Workers take questions one by one. Each call passes the gate and the budget; each reply is handed on
at once. A question is asked again within a limit of its own for each thing that can go wrong, and
ends with one final answer, or the run stops and leaves it open.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from semrecall.errors import InputError, JudgeFault, SemrecallError, Stopped
from semrecall.judges.contract import Answer, Question, Record, Reply, Status, digest
from semrecall.judges.gate import Gate, Ticket
from semrecall.judges.hearing import Heard, label_confidence
from semrecall.judges.line import Came, Line
from semrecall.judges.prompts import Messages, new_fence
from semrecall.judges.replies import Found, Parsed
from semrecall.judges.wires import Manner

if TYPE_CHECKING:
    from semrecall.judges.llm import LLMJudge

__all__ = ["Session", "best_of", "jobs", "neutral_ids", "understood", "with_text"]

#: How often a question is asked again for each status. What only one run sees (a server that is
#: down) is counted in one run, what the model said over all of them.
_AGAIN = {
    Status.UNPARSED: 1,
    Status.AMBIGUOUS: 1,
    Status.ILLEGAL: 1,
    Status.MISSING: 1,
    Status.EMPTY: 1,
    Status.TRUNCATED: 1,
    Status.TIMEOUT: 2,
    Status.SERVER: 4,
    Status.CONNECTION: 4,
    # The gate stops the run when the endpoint refuses all; this is for one that it always refuses.
    Status.RATE_LIMITED: 50,
}
_BACKOFF_SECONDS = 0.5
#: Statuses of an endpoint that took the request as it was.
_TAKEN = frozenset(
    {Status.SETTLED, Status.EMPTY, Status.FILTERED, Status.REFUSED, Status.TRUNCATED}
)
_DOWN = frozenset({Status.SERVER, Status.TIMEOUT, Status.CONNECTION})

Decide = Callable[[Answer], Answer]


@dataclass(frozen=True)
class _Said:
    """One call: what was heard, how it was asked, what it took."""

    came: Came
    form: str
    cost: float | None
    shown: Sequence[Question]

    @property
    def heard(self) -> Heard:
        return self.came.heard

    @property
    def texts(self) -> str:
        """What the model was shown, for the parser to know a quotation."""
        return "\n".join([self.shown[0].query, *(q.document.text for q in self.shown)])

    def reply(self, answers: Sequence[Answer], status: Status, mode: str = "") -> Reply:
        heard = self.heard
        return Reply(
            tuple(answers),
            status,
            mode=self.form + mode,
            raw=heard.text or heard.message,
            http_status=self.came.http_status,
            tokens_in=heard.tokens_in,
            tokens_out=heard.tokens_out,
            latency_seconds=self.came.seconds,
            cost=self.cost,
            maybe_charged=self.came.http_status is None and self.came.sent,
        )


class Session:
    """`await run()` answers all questions. Raises Stopped or JudgeFault; what was heard is kept."""

    def __init__(self, judge: LLMJudge, questions: Iterable[Question], record: Record) -> None:
        self._judge, self._record = judge, record
        self._jobs = jobs(iter(questions), judge.docs_per_call)
        self._singles: deque[tuple[Question, tuple[str, ...]]] = deque()
        self._random = Random(judge.seed)
        self._gate = Gate(
            judge.concurrency,
            requests_per_minute=judge.requests_per_minute,
            tokens_per_minute=judge.tokens_per_minute,
            max_wait_seconds=judge.max_wait_seconds,
            notify=judge.notify,
            random=self._random,
        )
        self._probe = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._settled = asyncio.Event()
        self._ended: SemrecallError | None = None
        self._taken = False  # whether the endpoint took any request of this run
        self._down = 0  # questions given up since it last did

    async def run(self) -> None:
        """Answer all questions."""
        judge = self._judge
        async with Line(judge.wire, judge.base_url, judge.timeout_seconds) as self._line:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(judge.concurrency):
                        group.create_task(self._work())
            except BaseExceptionGroup as several:
                raise several.exceptions[0] from None
        if self._ended is not None:
            raise self._ended

    async def _work(self) -> None:
        """Answer questions until there are none. Who meets the end of the run just goes home."""
        try:
            while True:
                if self._singles:
                    await self._single(*self._singles.popleft())
                    continue
                job = next(self._jobs, None)
                if job is None:
                    return
                if len(job) > 1:
                    await self._several(job)
                else:
                    await self._single(job[0], ())
        except _End:
            return

    def _stop(self, error: SemrecallError) -> None:
        if self._ended is None:
            self._ended = error
        self._gate.stop(error)
        self._settled.set()

    # -- one document -----------------------------------------------------------------------------

    async def _single(self, question: Question, flags: tuple[str, ...]) -> None:
        """Ask until there is a final answer; a document in windows is asked piece by piece."""
        fitted = self._judge.fitted(question)
        if fitted is None:
            await self._until_final(question, question, flags, lambda answer: answer)
            return
        flags = (*flags, *fitted.flags)
        seen: list[Answer] = []
        for at, text in enumerate(fitted.texts):
            last = at == len(fitted.texts) - 1

            def decide(answer: Answer, last: bool = last) -> Answer:
                seen.append(answer)
                best = best_of(seen, self._judge.scale.grades[-1])
                if last or best.grade == self._judge.scale.grades[-1]:
                    return best
                return replace(answer, final=False)

            if await self._until_final(question, with_text(question, text), flags, decide):
                return

    async def _until_final(
        self, question: Question, shown: Question, flags: tuple[str, ...], decide: Decide
    ) -> bool:
        """Ask about one text until no more is asked; whether that was the question's end."""
        tried: Counter[str] = Counter()
        if question.tried:
            tried.update({s: n for s, n in question.tried.items() if not Status(s).passing})
        again = False
        while True:
            limit = self._judge.max_tokens * (2 if tried[Status.TRUNCATED] else 1)
            said = await self._ask([shown], (), limit, again, question)
            if said is None:
                return True
            answer, mode = understood(self._judge, question, said.heard, said.texts)
            status = answer.status
            tried[status] += 1
            final = self._is_final(status, tried)
            answer = replace(answer, final=final, flags=(*flags, *answer.flags))
            if final:
                answer = decide(answer)
            self._hand_on(said.reply([answer], status, mode))
            if final:
                return answer.final
            again = True
            await self._back_off(status, tried, said.heard)

    # -- several documents ------------------------------------------------------------------------

    async def _several(self, questions: Sequence[Question]) -> None:
        """Ask about documents of one query together; what stays open is asked singly."""
        alone = [q for q in questions if self._is_for_itself(q, len(questions))]
        if alone:
            self._singles.extend((question, ()) for question in alone)
            questions = [q for q in questions if q not in alone]
        if len(questions) < 2:
            self._singles.extend((question, ()) for question in questions)
            return
        checked = self._is_checked(questions)
        said = await self._together(questions, 0, final=not checked)
        if said is None:
            return
        disputed: set[bytes] = set()
        if checked:
            first = said
            second = await self._together(questions, 1, before=first)
            if second is None:  # the endpoint failed meanwhile: the first order stands
                said = {k: replace(a, final=a.grade is not None) for k, a in first.items()}
                self._record(Reply(tuple(a for a in said.values() if a.final), calls=0))
            else:
                said = second
            disputed = {k for k, a in said.items() if not a.final and a.grade is not None}
        for question in questions:
            answer = said[question.key]
            if answer.final:
                continue
            tried = Counter(question.tried)
            if question.key not in disputed:
                tried[answer.status] += 1
            flags = ("judged again",) if question.key in disputed else ()
            self._singles.append((replace(question, tried=tried), flags))

    def _is_for_itself(self, question: Question, share: int) -> bool:
        """Whether a document is asked about alone: a long one, an image that cannot be sent."""
        judge = self._judge
        if judge.fitted(question, share) is not None:
            return True
        if question.document.image is None:
            return False
        try:
            judge.prompt.messages([question], new_fence(), reason=judge.reason)
        except InputError:
            return True
        return False

    async def _together(
        self,
        questions: Sequence[Question],
        order: int,
        *,
        final: bool = True,
        before: dict[bytes, Answer] | None = None,
    ) -> dict[bytes, Answer] | None:
        """One call about several documents, in a seeded order, under ids that say nothing.

        final: whether a label is final, if it is that of `before`. None when the endpoint failed.
        """
        random = self._seeded(questions, order)
        shown = random.sample(list(questions), len(questions))
        ids = random.sample(neutral_ids(len(shown)), len(shown))
        tried: Counter[str] = Counter()
        while True:
            limit = self._judge.max_tokens_of(len(shown))
            said = await self._ask(shown, ids, limit, bool(tried), *shown)
            if said is None:
                return None
            heard, status = said.heard, said.heard.status
            if status.passing:
                tried[status] += 1
                over = self._is_final(status, tried) and before is None
                failed = [Answer(q, status, reason=heard.message, final=over) for q in shown]
                self._hand_on(said.reply(failed, status))
                if self._is_final(status, tried):
                    return None
                await self._back_off(status, tried, heard)
                continue
            parsed = (
                self._judge.prompt.read(heard.text, ids, judged=said.texts)
                if status is Status.SETTLED
                else Parsed((Found(status, reason=heard.message),) * len(shown))
            )
            answers = []
            for question, found in zip(shown, parsed.found, strict=True):
                answer = _answer(self._judge, question, found, heard, parsed.flags)
                agreed = before is None or self._agree(before.get(question.key), answer)
                settled = answer.grade is not None and final and agreed
                answers.append(replace(answer, final=settled))
            self._judge.counts["unknown ids"] += "unknown ids" in parsed.flags
            self._hand_on(said.reply(answers, parsed.status, parsed.mode))
            return {answer.question.key: answer for answer in answers}

    def _agree(self, before: Answer | None, answer: Answer) -> bool:
        """Whether two orders gave one label; counted."""
        if before is None or before.grade is None or answer.grade is None:
            return False
        self._judge.counts["order checked"] += 1
        self._judge.counts["order disputed"] += before.grade != answer.grade
        return before.grade == answer.grade

    def _is_checked(self, questions: Sequence[Question]) -> bool:
        return self._seeded(questions, -1).random() < self._judge.order_check

    def _seeded(self, questions: Sequence[Question], purpose: int) -> Random:
        """Randomness of these documents alone, whenever they are asked."""
        texts = sorted(q.document.digest for q in questions)
        whole = digest(str(self._judge.seed), str(purpose), questions[0].query, *texts)
        return Random(whole)

    # -- one call ---------------------------------------------------------------------------------

    async def _ask(
        self,
        shown: Sequence[Question],
        ids: Sequence[str],
        max_tokens: int,
        again: bool,
        *asked: Question,
    ) -> _Said | None:
        """One answered call. The first one is the probe: the others wait for what it learns.

        None when there is nothing to send, which is then recorded.
        """
        judge = self._judge
        try:
            messages = judge.prompt.messages(shown, new_fence(), reason=judge.reason, ids=ids)
        except InputError as error:
            gone = [Answer(q, Status.REJECTED, reason=error.message) for q in asked]
            self._record(Reply(tuple(gone), Status.REJECTED, raw=error.message, calls=0))
            return None
        while True:
            if judge.knows_manner():
                said, again_lower = await self._call(shown, messages, ids, max_tokens, again)
            else:
                async with self._probe:
                    if judge.knows_manner():
                        continue
                    said, again_lower = await self._call(shown, messages, ids, max_tokens, again)
            if not again_lower:
                return said
            self._record(said.reply((), Status.REJECTED))

    async def _call(
        self,
        shown: Sequence[Question],
        messages: Messages,
        ids: Sequence[str],
        max_tokens: int,
        again: bool,
    ) -> tuple[_Said, bool]:
        """Send once. Also whether the endpoint wants to be asked in another manner."""
        judge = self._judge
        tokens_in = judge.tokens_of(messages)
        ticket = await self._enter(tokens_in + max_tokens, again)
        reserved = None
        heard: Heard | None = None
        cost: float | None = None
        try:
            reserved = await self._reserve(tokens_in, max_tokens)
            manner = judge.manner
            body = judge.wire.request(
                messages, judge.sampling_of(max_tokens), manner, judge.prompt,
                reason=judge.reason, ids=sorted(ids),
            )  # fmt: skip
            came = await self._line.post(body)
            heard = came.heard
            free = not came.sent or came.http_status not in (None, 200)
            cost = judge.budget.cost(*((0, 0) if free else (heard.tokens_in, heard.tokens_out)))
        finally:
            if reserved is not None:
                judge.budget.settle(reserved, cost)
                self._settled.set()
            self._leave(ticket, heard)
        # Of replies that come together one is read at each turn of the loop, so that the calls
        # made in their place go out early and spread.
        async with self._reading:
            await asyncio.sleep(0)
        said = _Said(came, manner.form, cost, shown)
        return said, self._learn(said, manner)

    async def _enter(self, tokens: int, again: bool) -> Ticket:
        try:
            return await self._gate.enter(tokens, again=again)
        except SemrecallError as error:
            self._ended = self._ended or error
            raise _End from None

    async def _reserve(self, tokens_in: int, max_tokens: int) -> float:
        """Wait until the budget has room for a call at its worst."""
        while True:
            if self._ended is not None:
                raise _End
            self._settled.clear()
            try:
                reserved = self._judge.budget.reserve(tokens_in, max_tokens)
            except Stopped as stop:
                self._stop(stop)
                raise _End from None
            if reserved is not None:
                return reserved
            await self._settled.wait()

    def _leave(self, ticket: Ticket, heard: Heard | None) -> None:
        if heard is None:
            self._gate.leave(ticket, 0)
            return
        known = heard.tokens_in is not None and heard.tokens_out is not None
        self._gate.leave(
            ticket,
            (heard.tokens_in or 0) + (heard.tokens_out or 0) if known else None,
            refused=heard.status is Status.RATE_LIMITED,
            overloaded=heard.status in _DOWN,
            retry_after_seconds=heard.retry_after_seconds,
        )

    def _learn(self, said: _Said, manner: Manner) -> bool:
        """What a reply says of the endpoint; whether to ask at once in another manner."""
        heard, judge = said.heard, self._judge
        if heard.unsupported is not None:
            lower = manner.without(heard.unsupported, judge.wire)
            if lower is not None:
                if judge.manner == manner:
                    judge.manner = lower
                return True
        if heard.status in _TAKEN:
            self._taken, self._down = True, 0
            judge.remember_manner()
        elif heard.status is Status.QUOTA:
            self._stop(_no_quota(heard))
        elif heard.status is Status.REJECTED and self._is_hopeless(said.came):
            self._stop(_rejected(judge, said.came))
        elif not said.came.reached and not self._taken:
            self._stop(_not_there(judge, heard))
        return False

    def _is_hopeless(self, came: Came) -> bool:
        """Whether the next question would be refused just so."""
        return not self._taken or came.http_status in (401, 403, 404, 405)

    # -- again, or final ---------------------------------------------------------------------------

    def _is_final(self, status: Status, tried: Counter[str]) -> bool:
        """Whether a status, met so often, is the last word."""
        if self._ended is not None and status.passing:
            return False  # the run stops; the question stays open
        return tried[status] > _AGAIN.get(status, 0)

    def _hand_on(self, reply: Reply) -> None:
        self._judge.count(reply)
        self._record(reply)
        if any(a.final and a.status in _DOWN for a in reply.answers):
            self._down += 1
            if not self._taken or self._down >= max(self._judge.concurrency, 8):
                self._stop(_down(self._judge, reply))

    async def _back_off(self, status: Status, tried: Counter[str], heard: Heard) -> None:
        """Wait before asking again a server that fails; longer each time."""
        if status in (Status.SERVER, Status.CONNECTION) and heard.retry_after_seconds is None:
            await self._gate.rest(_BACKOFF_SECONDS * 2.0 ** (tried[status] - 1))


class _End(Exception):
    """The run is over for this worker; `Session._ended` says why."""


def neutral_ids(count: int) -> list[str]:
    """Ids for documents of one call that say nothing of rank, order or origin."""
    letters = Random(7).sample("bcdfghjkmpqrtvwxz", 17)
    return [a + b for a in letters for b in letters if a != b][:count]


def jobs(questions: Iterator[Question], size: int) -> Iterator[list[Question]]:
    """Questions by what is asked in one call: documents of one query, each once.

    One that went wrong before is asked by itself.
    """
    if size == 1:
        yield from ([question] for question in questions)
        return
    groups: dict[int, list[Question]] = {}
    query = None
    for question in questions:
        if question.query != query:
            yield from groups.values()
            groups, query = {}, question.query
        if any(not Status(s).passing and s != Status.SETTLED for s in question.tried):
            yield [question]
            continue
        group = groups.setdefault(question.repeat, [])
        group.append(question)
        if len(group) == size:
            yield groups.pop(question.repeat)
    yield from groups.values()


def with_text(question: Question, text: str) -> Question:
    """The question about another text, a piece of its own."""
    return replace(question, document=replace(question.document, text=text))


def understood(judge: LLMJudge, question: Question, heard: Heard, texts: str) -> tuple[Answer, str]:
    """The answer in a reply about one document, and how it was found. texts: what was shown."""
    if heard.status is not Status.SETTLED:
        return Answer(question, heard.status, reason=heard.message), ""
    parsed = judge.prompt.read(heard.text, judged=texts)
    return _answer(judge, question, parsed.found[0], heard, parsed.flags), parsed.mode


def _answer(
    judge: LLMJudge, question: Question, found: Found, heard: Heard, flags: tuple[str, ...]
) -> Answer:
    if found.grade is None:
        return Answer(question, found.status, reason=found.reason, flags=flags)
    sure = label_confidence(heard, found.at, found.grade, judge.scale)
    return Answer(question, found.status, float(found.grade), found.reason, sure, flags=flags)


def best_of(seen: Sequence[Answer], top: float) -> Answer:
    """The highest of the windows; without a grade where one that failed might have been higher."""
    failed = [a for a in seen if a.grade is None]
    best = max(seen, key=lambda a: -1.0 if a.grade is None else a.grade)
    return failed[0] if failed and best.grade != top else best


def _no_quota(heard: Heard) -> Stopped:
    return Stopped(
        f"the quota of the endpoint is exhausted: {heard.message or 'no words'}",
        hint="no retries were made, and what is judged is kept; top up the account and run the"
        " same again",
    )


def _rejected(judge: LLMJudge, came: Came) -> JudgeFault:
    heard = came.heard
    return JudgeFault(
        f"{judge.url} refuses requests for the model {judge.model!r} (HTTP {came.http_status}): "
        f"{heard.message or 'no words'}",
        hint=heard.hint or "the request itself is refused, so no more were sent",
    )


def _not_there(judge: LLMJudge, heard: Heard) -> JudgeFault:
    return JudgeFault(
        f"{judge.url} cannot be reached: {heard.message}",
        hint="is the server running, and the base URL right?",
    )


def _down(judge: LLMJudge, reply: Reply) -> Stopped:
    status = reply.answers[0].status.value
    return Stopped(
        f"{judge.url} does not answer any more ({status}): {reply.raw or 'no words'}",
        hint="what is judged is kept: run the same again when it is back"
        + (", or wait longer for a reply with --timeout" if status == Status.TIMEOUT else ""),
    )
