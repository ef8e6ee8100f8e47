"""A language model as a judge, over HTTP: what it is, what it would cost, and its answers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from semrecall.errors import InputError
from semrecall.judges.budget import Budget, Estimate
from semrecall.judges.contract import Judge, Question, Record, Reply, Status
from semrecall.judges.line import with_version
from semrecall.judges.prompts import Messages, Prompt, TextPart, load_prompt
from semrecall.judges.session import Session, jobs, neutral_ids, with_text
from semrecall.judges.sizes import IMAGE_TOKENS, POLICIES, Fitted, estimate_tokens, fit
from semrecall.judges.wires import WIRES, Manner, Sampling
from semrecall.registry import did_you_mean
from semrecall.text import plural, share

__all__ = ["LLMJudge", "run_anywhere"]

T = TypeVar("T")

#: What a label and the braces around it take, and a reason of one sentence.
_LABEL_TOKENS, _REASON_TOKENS = 8, 30
#: What one more document of a call may take.
_MORE_LABEL_TOKENS, _MORE_REASON_TOKENS = 32, 160
_MOST_DOCUMENTS = 100
_LOOK_SECONDS = 0.1
#: Stands for the fence of a call in estimates.
_FENCE = "0" * 16
#: Fields of a request that are ours to fill.
_OURS = frozenset(
    {
        "model", "messages", "system", "stream", "n", "max_tokens", "max_completion_tokens",
        "response_format", "output_config", "tools", "tool_choice", "logprobs", "top_logprobs",
    }
)  # fmt: skip


class LLMJudge(Judge):
    """Asks a model on an endpoint of the OpenAI or the Anthropic wire about each document.

    model: its name there. base_url: None is the vendor's own; with or without /v1. prompt: a name
    ("relevance", "qa", "product") or the path of a file; scale: "binary" or "graded". reason: ask
    for one before the label. confidence: record the probability of the label where the endpoint
    gives log-probabilities. docs_per_call: documents of one query judged together, told apart by
    ids that say nothing; order_check: the share of such calls that are made in two orders, to
    report how many labels change. sampling: temperature and further fields of the request.
    max_tokens: of a reply about one document. context_tokens: what the model can read; longer
    documents are handled as long_documents says: "head", "tail", "head-tail", or "windows" (each
    piece is judged, the best counts).

    concurrency: calls in flight at most; requests_per_minute, tokens_per_minute: the endpoint's
    limits. max_wait_seconds: how long the endpoint may ask to wait before the run stops.
    max_requests, max_cost: the run stops before it passes them, counting calls in flight at their
    worst; price_in and price_out are of a million tokens. seed: of orders and jitter. notify: is
    shown lines about waits; "" takes the last one away.

    The key comes from the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY) when questions are
    answered; it is in nothing that is kept.
    """

    def __init__(
        self,
        model: str,
        *,
        wire: str = "openai",
        base_url: str | None = None,
        prompt: str | Path = "relevance",
        scale: str = "binary",
        reason: bool = False,
        confidence: bool = False,
        docs_per_call: int = 1,
        order_check: float = 0.1,
        sampling: Mapping[str, Any] | None = None,
        max_tokens: int = 1024,
        timeout_seconds: float = 60.0,
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        max_wait_seconds: float = 300.0,
        max_requests: int | None = None,
        max_cost: float | None = None,
        price_in: float | None = None,
        price_out: float | None = None,
        context_tokens: int | None = None,
        long_documents: str = "head",
        seed: int = 0,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        if wire not in WIRES:
            raise InputError(f"unknown wire {wire!r}", hint=did_you_mean(wire, WIRES))
        if long_documents not in POLICIES:
            raise InputError(
                f"long_documents is {long_documents!r}; expected one of {', '.join(POLICIES)}"
            )
        _check_numbers(
            docs_per_call=docs_per_call, max_tokens=max_tokens, timeout_seconds=timeout_seconds,
            concurrency=concurrency, requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute, context_tokens=context_tokens,
        )  # fmt: skip
        if docs_per_call > _MOST_DOCUMENTS or not 0 <= order_check <= 1:
            raise InputError(
                f"docs_per_call is {docs_per_call}, order_check {order_check}; expected at most "
                f"{_MOST_DOCUMENTS}, and a share from 0 to 1"
            )
        self.model, self.name = str(model), str(model)
        self.wire = WIRES[wire]
        self.base_url = with_version(base_url, self.wire)
        self.url = self.wire.url(self.base_url)
        self.prompt = load_prompt(prompt, scale)
        self.scale = self.prompt.scale
        self.reason, self.confidence = reason, confidence
        self.docs_per_call, self.order_check = docs_per_call, order_check
        self.sampling = _checked_sampling({"temperature": 0} if sampling is None else sampling)
        self.max_tokens, self.timeout_seconds = max_tokens, timeout_seconds
        self.concurrency = concurrency
        self.requests_per_minute, self.tokens_per_minute = requests_per_minute, tokens_per_minute
        self.max_wait_seconds = max_wait_seconds
        self.budget = Budget(max_requests, max_cost, price_in, price_out)
        self.context_tokens, self.long_documents = context_tokens, long_documents
        self.seed, self.notify = seed, notify
        self.counts: Counter[str] = Counter()
        self._manner: Manner | None = None
        self._manner_known = False

    def __repr__(self) -> str:
        return f"LLMJudge({self.model!r}, url={self.url!r}, prompt={self.prompt.label!r})"

    def with_prompt(self, prompt: Prompt | str | Path, scale: str = "binary") -> LLMJudge:
        """The same model, asked with another prompt; both spend from one budget."""
        other = self.copied()
        other.prompt = prompt if isinstance(prompt, Prompt) else load_prompt(prompt, scale)
        other.scale = other.prompt.scale
        other.counts = Counter()
        return other

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that may change an answer; neither keys nor prices nor limits.

        The limit of a reply is left out as well: it decides whether there is a label, not which.
        """
        several = self.docs_per_call > 1
        ids = neutral_ids(self.docs_per_call) if several else ()
        return {
            "wire": self.wire.name,
            "endpoint": self.url,
            "model": self.model,
            "prompt": self.prompt.label,
            "prompt_digest": self.prompt.digest,
            "schema": self.prompt.schema(reason=self.reason, ids=ids),
            "reason": self.reason,
            "confidence": self.confidence,
            "sampling": dict(self.sampling),
            "docs_per_call": self.docs_per_call,
            **({"order_seed": self.seed} if several else {}),
            "context_tokens": self.context_tokens,
            "long_documents": self.long_documents if self.context_tokens else None,
        }

    # -- answers ----------------------------------------------------------------------------------

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Answer all questions, `concurrency` at a time; also from within a running event loop.

        Raises Stopped when the run has to end before its end (quota, caps, waits, an endpoint
        that went away), JudgeFault when the endpoint refuses the request itself.
        """
        run_anywhere(Session(self, questions, record).run)

    def estimate(self, questions: Iterable[Question]) -> Estimate:
        """What asking them would take, when nothing has to be asked again."""
        calls = low_in = high_in = documents = limit = 0.0
        for job in jobs(iter(questions), self.docs_per_call):
            for shown in self._shown(job):
                ids = neutral_ids(len(shown)) if len(shown) > 1 else ()
                messages = self.prompt.messages(shown, _FENCE, reason=self.reason, ids=ids)
                low, high = self._span(messages)
                # Calls about several documents are partly made twice.
                times = 1 + (self.order_check if len(shown) > 1 else 0)
                calls, low_in, high_in = calls + times, low_in + times * low, high_in + times * high
                documents += times * len(shown)
                limit += times * self.max_tokens_of(len(shown))
        each = _LABEL_TOKENS + (_REASON_TOKENS if self.reason else 0)
        tokens_in = (round(low_in), round(high_in))
        tokens_out = (round(documents * each), round(limit))
        costs = [self.budget.cost(i, o) for i, o in zip(tokens_in, tokens_out, strict=True)]
        cost = None if costs[0] is None or costs[1] is None else (costs[0], costs[1])
        return Estimate(round(calls), tokens_in, tokens_out, cost)

    def remarks(self) -> Sequence[str]:
        """What this run's labels owe to: order, cut documents and replies, the manner of asking."""
        counts, found = self.counts, []
        if checked := counts["order checked"]:
            disputed = counts["order disputed"]
            changed = (
                f"{share(disputed / checked)} changed their label and were judged singly"
                if disputed
                else "none changed its label"
            )
            found.append(
                f"{plural(checked, 'document')} judged in two orders (seed {self.seed}): {changed}"
            )
        if cut := counts["input cut"]:
            found.append(
                f"{plural(cut, 'call')} with a document cut to fit {self.context_tokens:,} tokens "
                f"({self.long_documents})"
            )
        hints = {
            Status.TRUNCATED: "were cut: allow longer ones with --max-tokens "
            f"{4 * self.max_tokens} --again truncated",
            Status.TIMEOUT: f"did not come within {self.timeout_seconds:g} s: wait longer with "
            "--timeout",
        }
        for status, hint in hints.items():
            if count := counts[status]:
                found.append(f"{plural(count, 'reply', 'replies')} {hint}")
        if count := counts[Status.TOO_LONG]:
            found.append(
                f"{plural(count, 'document')} too long for the model: --context-tokens cuts them "
                "to fit, with --again 'too long'"
            )
        if count := counts["unknown ids"]:
            found.append(f"{plural(count, 'reply', 'replies')} named documents that were not asked")
        return [*found, *self._about_manner()]

    def count(self, reply: Reply) -> None:
        """Take note of a reply, for `remarks`."""
        if reply.status is not Status.SETTLED:
            self.counts[reply.status] += 1
        self.counts["input cut"] += any("input cut" in a.flags for a in reply.answers)

    def _about_manner(self) -> list[str]:
        """What the endpoint does not take of what was asked for."""
        if self._manner is None:
            return []
        found = []
        if self._manner.form != self.wire.forms[0]:
            found.append(
                "the endpoint takes no schema of replies; it is asked in the form "
                f"{self._manner.form!r}"
            )
        if lost := sorted(self._manner.dropped - set(self.wire.limits)):
            found.append(f"the endpoint takes no {', '.join(lost)}; it was left out")
        return found

    # -- what a session asks of it -----------------------------------------------------------------

    @property
    def manner(self) -> Manner:
        """How the endpoint is asked, as far as it is known."""
        if self._manner is None:
            noted = None if self.memory is None else self.memory.note(self._note)
            self._manner = Manner.from_json(noted) if noted else self.wire.manner(self.base_url)
            self._manner_known = bool(noted)
        return self._manner

    @manner.setter
    def manner(self, manner: Manner) -> None:
        self._manner, self._manner_known = manner, False

    def knows_manner(self) -> bool:
        """Whether the endpoint took a request asked so, now or in an earlier run."""
        return self._manner_known if self.manner else False

    def remember_manner(self) -> None:
        """The endpoint took a request asked so: no other call needs to find out."""
        if not self._manner_known:
            self._manner_known = True
            if self.memory is not None:
                self.memory.set_note(self._note, self.manner.to_json())

    @property
    def _note(self) -> str:
        return f"manner of {self.model} at {self.url}"

    def sampling_of(self, max_tokens: int) -> Sampling:
        """What is asked of the model with this limit."""
        extra = {k: v for k, v in self.sampling.items() if k not in ("temperature", "seed")}
        return Sampling(
            self.model,
            max_tokens,
            self.sampling.get("temperature"),
            self.sampling.get("seed"),
            self.confidence,
            extra,
        )

    def max_tokens_of(self, documents: int) -> int:
        """The limit of a reply about so many documents."""
        more = _MORE_REASON_TOKENS if self.reason else _MORE_LABEL_TOKENS
        return self.max_tokens + (documents - 1) * more

    def tokens_of(self, messages: Messages) -> int:
        """How many tokens a request takes at most; 0 where nobody asks."""
        if self.tokens_per_minute is None and self.budget.max_cost is None:
            return 0
        return self._span(messages)[1]

    def fitted(self, question: Question, share: int = 1) -> Fitted | None:
        """The document's text as it fits into its part of the context; None where it is as it is.

        share: documents in the call. Raises InputError where the context has no room for any.
        """
        if self.context_tokens is None:
            return None
        bare = self.prompt.messages([with_text(question, "")], _FENCE, reason=self.reason)
        room = self.context_tokens - self._span(bare)[1] - self.max_tokens_of(share)
        text = question.document.text
        found = fit(text, room // share, self.long_documents)
        return None if found.texts == (text,) else found

    def _shown(self, job: Sequence[Question]) -> list[list[Question]]:
        """The questions of each call, about whole documents or pieces of them."""
        together = [q for q in job if len(job) > 1 and self.fitted(q, len(job)) is None]
        found = [together] if together else []
        for question in job:
            if question not in together:
                fitted = self.fitted(question)
                texts = [question.document.text] if fitted is None else fitted.texts
                found += [[with_text(question, text)] for text in texts]
        return found

    def _span(self, messages: Messages) -> tuple[int, int]:
        """Tokens of a request, at least and at most."""
        low, high = _system_tokens(messages.system)
        for part in messages.parts:
            size = estimate_tokens(part.text) if isinstance(part, TextPart) else IMAGE_TOKENS
            low, high = low + size[0], high + size[1]
        return low, high


@lru_cache(maxsize=16)
def _system_tokens(system: str) -> tuple[int, int]:
    """The same for every call, so counted once."""
    return estimate_tokens(system)


def _check_numbers(**values: float | None) -> None:
    wrong = [f"{name} is {value}" for name, value in values.items() if value is not None
             and not value > 0]  # fmt: skip
    if wrong:
        raise InputError(f"{'; '.join(wrong)}; expected more than 0")


def _checked_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    taken = sorted(_OURS & sampling.keys())
    if taken:
        raise InputError(
            f"sampling holds {', '.join(taken)}, which the judge sets itself",
            hint="it is for temperature, seed, top_p, reasoning_effort and the like",
        )
    secret = sorted(k for k in sampling if "key" in k.lower() or "secret" in k.lower())
    if secret:
        raise InputError(f"sampling holds {secret[0]}", hint="keys belong into the environment")
    return dict(sampling)


def run_anywhere(run: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end, also from within a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    return _run_in_thread(run)


def _run_in_thread(run: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in a loop of its own beside the one that runs here; an interrupt ends both."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []
    found: list[T] = []
    failed: list[BaseException] = []

    async def known() -> T:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await run()

    def work() -> None:
        try:
            found.append(asyncio.run(known()))
        except BaseException as error:
            failed.append(error)

    outer = asyncio.current_task()
    thread = threading.Thread(target=work, name="semrecall judge")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            # The loop out there answers an interrupt by cancelling its task, and cannot run now.
            if outer is not None and outer.cancelling():
                raise asyncio.CancelledError
    except BaseException:
        for loop, task in running:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failed:
        raise failed[0]
    return found[0]
