"""The gate before an endpoint, on a clock that jumps: no test waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from semrecall.errors import InputError, JudgeFault, Stopped
from semrecall.judges.gate import Gate, duration


class _Jumping(selectors.DefaultSelector):
    """Where a loop would wait, its clock jumps ahead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout is not None:
            self.now += max(timeout, 0.0)
        assert timeout is not None or found, "the loop waits for ever"
        return found


def run(work: Coroutine[Any, Any, Any]) -> Any:
    selector = _Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


async def work_through(
    gate: Gate, items: int, call: Callable[[int], Coroutine[Any, Any, bool]]
) -> list[float]:
    """Workers, as many as the gate's maximum, call until true; the times of all calls."""
    todo, starts = iter(range(items)), []

    async def worker() -> None:
        for item in todo:
            done, again = False, False
            while not done:
                ticket = await gate.enter(again=again)
                again = True
                starts.append(now())
                done = await call(item)
                gate.leave(ticket, refused=not done, retry_after_seconds=None if done else 1.0)

    await asyncio.gather(*(worker() for _ in range(gate.maximum)))
    return starts


def test_calls_in_flight_stay_under_the_maximum() -> None:
    async def work() -> None:
        gate, seen = Gate(3), []

        async def call(item: int) -> bool:
            seen.append(gate.in_flight)
            await asyncio.sleep(1)
            return True

        await work_through(gate, 12, call)
        assert max(seen) == 3
        assert now() == pytest.approx(4.0)  # 12 calls of 1 s, 3 at a time
        assert gate.in_flight == 0

    run(work())


def test_a_wave_of_refusals_cuts_once_and_pauses_once() -> None:
    async def work() -> None:
        gate = Gate(32)
        tickets = [await gate.enter() for _ in range(32)]
        for ticket in tickets:
            gate.leave(ticket, refused=True, retry_after_seconds=5)
        assert (gate.cuts, gate.pauses, gate.limit) == (1, 1, 16)
        await gate.enter()
        assert 5.0 <= now() <= 5.6  # 5 s and a tenth of it as jitter

    run(work())


def test_everyone_refused_once_settles_without_collapse_or_herd() -> None:
    """Case J16: 200 pairs, 32 in flight, every pair 429 once with Retry-After 1."""

    async def work() -> None:
        gate, refused, limits = Gate(32, random=Random(1)), set[int](), []

        async def call(item: int) -> bool:
            await asyncio.sleep(0.05)
            limits.append(gate.limit)
            if item in refused:
                return True
            refused.add(item)
            return False

        starts = await work_through(gate, 200, call)
        assert len(starts) == 400
        assert min(limits) >= 8  # cutting for every reply would end at 1
        # Windows of 10 s: no more cuts than windows begun.
        assert gate.cuts <= now() // 10 + 1
        # No herd: in any 10 ms at most a handful start, after the first wave at 0.
        later = [s for s in sorted(starts) if s > 0]
        most = max(sum(1 for t in later if s <= t < s + 0.01) for s in later)
        assert most <= 6
        assert now() < 30

    run(work())


def test_concurrency_recovers_after_a_cut() -> None:
    async def work() -> None:
        gate = Gate(64)
        gate.leave(await gate.enter(), refused=True, retry_after_seconds=0.1)
        assert gate.limit == 32

        async def call(item: int) -> bool:
            await asyncio.sleep(0.05)
            return True

        await work_through(gate, 600, call)
        assert gate.limit == 64  # 32 more at 4 a round trip: 8 trips of up to 64 calls

    run(work())


def test_stragglers_of_one_window_do_not_cut_again() -> None:
    async def work() -> None:
        gate = Gate(16)
        early, late = await gate.enter(), await gate.enter()
        gate.leave(early, overloaded=True)
        await asyncio.sleep(30)
        gate.leave(late, overloaded=True)  # sent before the cut: it says nothing new
        assert (gate.cuts, gate.limit) == (1, 8)
        gate.leave(await gate.enter(), overloaded=True)
        assert (gate.cuts, gate.limit) == (2, 4)
        await asyncio.sleep(1)
        gate.leave(await gate.enter(), overloaded=True)  # sent after it, in the same window
        assert (gate.cuts, gate.limit) == (2, 4)
        assert gate.pauses == 0

    run(work())


def test_the_limit_never_falls_under_one() -> None:
    async def work() -> None:
        gate = Gate(2)
        for _ in range(5):
            gate.leave(await gate.enter(), overloaded=True)
            await asyncio.sleep(11)
        assert gate.limit == 1
        await gate.enter()

    run(work())


def test_refusals_without_a_time_wait_twice_as_long_each_time() -> None:
    async def work() -> None:
        gate, starts = Gate(1, random=Random(3)), []
        for _ in range(4):
            ticket = await gate.enter()
            starts.append(now())
            gate.leave(ticket, refused=True)
        gaps = [b - a for a, b in pairwise(starts)]
        # 1, 2, 4 s, each with a tenth as jitter.
        for gap, wanted in zip(gaps, (1, 2, 4), strict=True):
            assert wanted <= gap <= 1.1 * wanted
        await asyncio.sleep(20)
        gate.leave(await gate.enter())
        gate.leave(await gate.enter(), refused=True)
        before = now()
        await gate.enter()
        assert 1 <= now() - before <= 1.1  # a success starts it afresh

    run(work())


def test_a_wait_of_nothing_is_no_leave_to_hammer() -> None:
    async def work() -> None:
        gate = Gate(1)
        gate.leave(await gate.enter(), refused=True, retry_after_seconds=0)
        await gate.enter()
        assert 1 <= now() <= 1.1

    run(work())


def test_requests_a_minute() -> None:
    async def work() -> None:
        gate, starts = Gate(50, requests_per_minute=120), []

        async def call(item: int) -> bool:
            starts.append(now())
            return True

        await work_through(gate, 300, call)
        # 2 at once, then one every half second: 298 of them.
        assert now() == pytest.approx(149, abs=0.5)
        for start in starts:
            assert sum(1 for s in starts if start <= s < start + 59.99) <= 122

    run(work())


def test_few_requests_a_minute_are_evenly_spaced() -> None:
    async def work() -> None:
        gate, starts = Gate(5, requests_per_minute=3), []

        async def call(item: int) -> bool:
            starts.append(now())
            return True

        await work_through(gate, 4, call)
        assert starts == pytest.approx([0, 20, 40, 60], abs=0.1)

    run(work())


def test_tokens_a_minute_are_put_right_after_the_call() -> None:
    async def work() -> None:
        gate = Gate(5, tokens_per_minute=6000)  # 100 a second
        first = await gate.enter(1000)  # more than a second's worth: lent
        assert now() == 0
        gate.leave(first, tokens=400)
        await gate.enter(100)
        # 100 - 1000 + 600 = -300: from there 4 s to a full second's worth.
        assert now() == pytest.approx(4.0, abs=0.01)

    run(work())


def test_a_wait_too_long_stops_resumably() -> None:
    """Case J17: Retry-After 600, at most 300 are waited."""

    async def work() -> None:
        gate = Gate(4, max_wait_seconds=300)
        gate.leave(await gate.enter(), refused=True, retry_after_seconds=600)
        with pytest.raises(Stopped, match="asks to wait 10 min") as stop:
            await gate.enter()
        assert now() == 0
        assert "run the same again in 10 min" in str(stop.value)
        assert "--max-wait 601" in str(stop.value)

    run(work())


def test_short_waits_that_never_end_stop_too() -> None:
    async def work() -> None:
        gate = Gate(1, max_wait_seconds=30)

        async def insist() -> None:
            while True:
                gate.leave(await gate.enter(), refused=True, retry_after_seconds=4)

        with pytest.raises(Stopped, match="has refused for"):
            await insist()
        assert 20 <= now() <= 30

    run(work())


def test_a_long_wait_is_counted_down() -> None:
    async def work() -> None:
        lines: list[str] = []
        gate = Gate(2, notify=lines.append)
        gate.leave(await gate.enter(), refused=True, retry_after_seconds=100)
        await gate.enter()
        assert "going on in 1 min 4" in lines[0]
        assert lines[-1] == ""
        assert len(lines) > 90
        assert len(set(lines)) == len(lines)

    run(work())


def test_short_waits_show_nothing() -> None:
    async def work() -> None:
        lines: list[str] = []
        gate = Gate(2, notify=lines.append)
        gate.leave(await gate.enter(), refused=True, retry_after_seconds=1)
        await gate.enter()
        assert lines == []

    run(work())


def test_a_stop_wakes_those_who_wait() -> None:
    async def work() -> None:
        gate = Gate(1, requests_per_minute=1)
        await gate.enter()
        waiting = [asyncio.ensure_future(gate.enter()) for _ in range(3)]
        resting = asyncio.ensure_future(gate.rest(1000))
        await asyncio.sleep(1)
        gate.stop(JudgeFault("no such model"))
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(e) for e in ends] == ["no such model"] * 3
        await resting
        assert now() == pytest.approx(1.0)
        assert gate.stopped

    run(work())


def test_a_cancelled_wait_leaves_the_door_open() -> None:
    async def work() -> None:
        gate = Gate(1)
        ticket = await gate.enter()
        waiting = asyncio.ensure_future(gate.enter())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.leave(ticket)
        await gate.enter()
        assert gate.in_flight == 1

    run(work())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"concurrency": 0}, "at least 1"),
        ({"concurrency": 1, "requests_per_minute": 0}, "requests a minute"),
        ({"concurrency": 1, "tokens_per_minute": -5}, "tokens a minute"),
    ],
)
def test_limits_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Gate(**arguments)


def test_durations() -> None:
    assert [duration(s) for s in (0.2, 42.4, 60, 200, 3600, 7500)] == [
        "1 s", "42 s", "1 min", "3 min 20 s", "1 h", "2 h 5 min",
    ]  # fmt: skip
