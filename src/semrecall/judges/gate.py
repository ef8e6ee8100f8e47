"""One gate for all calls to an endpoint: how many at once, how many a minute, and when to wait.

Concurrency starts at its maximum, is halved at most once in a window when the endpoint says that
it is too much, and grows back by a fixed step for every round trip of successes. A wait the
endpoint asks for stops all calls once; afterwards they go on one by one, not as a herd.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from semrecall.errors import InputError, SemrecallError, Stopped

__all__ = ["Gate", "Ticket", "duration"]

#: Shows one line; "" takes it away again.
Notify = Callable[[str], None]

_WINDOW_SECONDS = 10.0
#: Waits shorter than this are not worth a line.
_SHOWN_FROM_SECONDS = 2.0
_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 60.0
#: Those who waited for the end of a pause are let in over this time, not at once.
_RAMP_SECONDS = 0.25
_SHORTEST_GAP_SECONDS = 1e-3


@dataclass(frozen=True)
class Ticket:
    """A call that was let in: when, by the clock of the event loop, and with how many tokens."""

    since: float
    tokens: int


class Gate:
    """Lets calls in. `await enter(tokens)` before a call, `leave(ticket, ...)` after it.

    concurrency: calls in flight at most. requests_per_minute, tokens_per_minute: None is no limit;
    tokens are those estimated at `enter`, put right at `leave`. max_wait_seconds: how long the
    endpoint may refuse before `enter` raises Stopped. notify: shows a countdown. random: of the
    jitter. Time is that of the running event loop.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        max_wait_seconds: float = 300.0,
        notify: Notify | None = None,
        random: Random | None = None,
    ) -> None:
        if concurrency < 1:
            raise InputError(f"{concurrency} calls at a time; at least 1 is needed")
        self.maximum = concurrency
        self.limit = float(concurrency)
        self.in_flight = 0
        self.cuts = 0
        self.pauses = 0
        self.max_wait_seconds = max_wait_seconds
        self._requests = _Bucket("requests", requests_per_minute)
        self._tokens = _Bucket("tokens", tokens_per_minute)
        self._notify = notify or (lambda line: None)
        self._random = random or Random(0)
        self._queue: list[tuple[bool, int, int, asyncio.Future[Ticket]]] = []
        self._came = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended: SemrecallError | None = None
        self._end = asyncio.Event()
        self._cut_at = self._paused_at = self._paused_until = self._next = float("-inf")
        self._gap = self._shrink = 0.0
        self._refused_since: float | None = None
        self._backoffs = 0
        self._shown = ""

    async def enter(self, tokens: int = 0, *, again: bool = False) -> Ticket:
        """Wait for a place; calls that were refused before (`again`) come first.

        Raises what `stop` was given, or Stopped after too long a refusal.
        """
        if self._ended is not None:
            raise self._ended
        place: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._came += 1
        heapq.heappush(self._queue, (not again, self._came, tokens, place))
        self._let_in()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave(place.result())
            raise

    def leave(
        self,
        ticket: Ticket,
        tokens: int | None = None,
        *,
        refused: bool = False,
        overloaded: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        """A call is over. tokens: what it really took.

        refused: the endpoint said that there are too many calls; all of them wait. overloaded: it
        is struggling; fewer at a time, and a wait only when it asks for one.
        """
        self.in_flight -= 1
        if tokens is not None:
            self._tokens.give_back(ticket.tokens - tokens)
        if refused or (overloaded and retry_after_seconds):
            self._refuse(ticket, retry_after_seconds)
        elif overloaded:
            self._cut(ticket)
        else:
            step = max(1.0, self.maximum / 16)
            self.limit = min(float(self.maximum), self.limit + step / self.limit)
            self._refused_since, self._backoffs = None, 0
        self._let_in()

    def stop(self, error: SemrecallError) -> None:
        """Let nobody in any more: `enter` raises the error. Calls in flight may end."""
        if self._ended is None:
            self._ended = error
        self._end.set()
        self._show("")
        self._let_in()

    @property
    def stopped(self) -> bool:
        """Whether nobody is let in any more."""
        return self._ended is not None

    async def rest(self, seconds: float) -> None:
        """Wait on one's own, with jitter, outside the gate; not longer than until a stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._end.wait(), seconds * self._random.uniform(0.5, 1.5))

    def _let_in(self) -> None:
        """Admit those in front for whom there is a place now; look again when there may be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue:
            tokens, place = self._queue[0][2:]
            if not place.done():
                if self._ended is not None:
                    place.set_exception(self._ended)
                elif self.in_flight >= int(self.limit):
                    return
                else:
                    seconds, why = self._wait(_now(), tokens)
                    if seconds > 0:
                        self._count_down(seconds, why)
                        return
                    place.set_result(self._admit(tokens))
            heapq.heappop(self._queue)

    def _wait(self, now: float, tokens: int) -> tuple[float, str]:
        """How long the next call has to wait, and for what."""
        waits = (
            (self._paused_until - now, "the endpoint asks to wait"),
            (self._next - now, "going on slowly"),
            (self._requests.wait(now, 1), self._requests.why),
            (self._tokens.wait(now, tokens), self._tokens.why),
        )
        return max(waits)

    def _admit(self, tokens: int) -> Ticket:
        now = _now()
        self.in_flight += 1
        self._requests.take(1)
        self._tokens.take(tokens)
        if self._gap:
            self._pace(now)
        self._show("")
        return Ticket(now, tokens)

    def _pace(self, now: float) -> None:
        """After a pause: one by one, twice as fast when as many as waited have been let in."""
        waiting = len(self._queue)
        if not self._shrink:
            self._gap /= waiting
            self._shrink = 0.5 ** (1 / waiting)
        self._gap *= self._shrink
        if waiting == 1 or self._gap < _SHORTEST_GAP_SECONDS:
            self._gap = 0.0
        self._next = now + self._gap * self._random.uniform(0.5, 1.5)

    def _refuse(self, ticket: Ticket, retry_after_seconds: float | None) -> None:
        now = _now()
        self._cut(ticket)
        if self._refused_since is None:
            self._refused_since = now
        if not retry_after_seconds:  # no time, or none that would help
            if ticket.since < self._paused_at:
                return  # sent before the pause began: it says nothing new
            seconds = min(_FIRST_BACKOFF_SECONDS * 2.0**self._backoffs, _LONGEST_BACKOFF_SECONDS)
            self._backoffs += 1
        else:
            seconds = retry_after_seconds
        if now + seconds - self._refused_since > self.max_wait_seconds:
            self.stop(_too_long(now - self._refused_since, seconds, self.max_wait_seconds))
            return
        if now + seconds <= self._paused_until:
            return
        if now >= self._paused_until:
            self.pauses += 1
            self._paused_at = now
        self._paused_until = now + seconds + self._random.uniform(0, min(0.1 * seconds, 1.0))
        self._gap, self._shrink = min(seconds, _RAMP_SECONDS), 0.0

    def _cut(self, ticket: Ticket) -> None:
        now = _now()
        if ticket.since > self._cut_at and now - self._cut_at >= _WINDOW_SECONDS:
            self.limit = max(1.0, self.limit / 2)
            self._cut_at = now
            self.cuts += 1

    def _count_down(self, seconds: float, why: str) -> None:
        if seconds >= _SHOWN_FROM_SECONDS or self._shown:
            self._show(f"{why}: going on in {duration(seconds)}")
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(seconds, 1.0), self._let_in)

    def _show(self, line: str) -> None:
        if line != self._shown:
            self._shown = line
            self._notify(line)


class _Bucket:
    """What may be used a minute, one second's worth at once; more is lent and waited for."""

    def __init__(self, what: str, per_minute: float | None) -> None:
        if per_minute is not None and not per_minute > 0:
            raise InputError(f"{per_minute} {what} a minute; expected more than 0")
        self.why = f"{what} a minute are used up"
        self._rate = None if per_minute is None else per_minute / 60
        self._room = max(1.0, self._rate or 0.0)
        self._level = self._room
        self._at: float | None = None

    def wait(self, now: float, amount: float) -> float:
        """Seconds until the amount may be taken; one larger than the bucket needs a full one."""
        if self._rate is None:
            return 0.0
        if self._at is not None:
            self._level = min(self._room, self._level + (now - self._at) * self._rate)
        self._at = now
        lacking = min(amount, self._room) - self._level
        return 0.0 if lacking <= 1e-9 else max(lacking / self._rate, 1e-3)

    def take(self, amount: float) -> None:
        self._level -= amount

    def give_back(self, amount: float) -> None:
        self._level = min(self._room, self._level + amount)


def duration(seconds: float) -> str:
    """A time to wait, as people say it: "42 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _too_long(refused: float, asked: float, allowed: float) -> Stopped:
    already = f"has refused for {duration(refused)} and " if refused >= 1 else ""
    return Stopped(
        f"the endpoint {already}asks to wait {duration(asked)} more; at most {duration(allowed)}"
        " are waited",
        hint=f"what is judged is kept: run the same again in {duration(asked)},"
        f" or wait longer with --max-wait {int(refused + asked) + 1}",
    )
