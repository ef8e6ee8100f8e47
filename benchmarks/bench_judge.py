"""How long 10,000 pairs take when the endpoint answers in 50 ms and 64 calls are in flight.

    python benchmarks/bench_judge.py [--pairs 10000] [--latency 0.05] [--concurrency 64] [--profile]
    python benchmarks/bench_judge.py --reopen 100000

The server (tests/chat_server.py) runs in a process of its own; every reply is written to a ledger
file. Ideal: pairs / concurrency * latency. CPU is that of this process alone, ledger and all. The
second form asks for settled pairs once more, and calls nothing.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from chat_server import ChatServer

from semrecall.judges import Answer, Document, Judge, Ledger, Question, Reply, Scale, Status
from semrecall.judges.asking import ask
from semrecall.judges.contract import Record
from semrecall.judges.llm import LLMJudge

_SENTENCE = "The ferry leaves the harbour twice a day in winter, and once more on market days. "


def questions(n: int) -> list[Question]:
    return [
        Question(
            f"q{i // 100}",
            f"d{i}",
            f"when does ferry {i // 100} leave",
            Document(f"Passage {i}. {_SENTENCE * 8} grade:{i % 2}"),
        )
        for i in range(n)
    ]


class Settled(Judge):
    """Grades everything 1 in one reply."""

    name, scale = "settled", Scale({0: "no", 1: "yes"})
    identity: ClassVar[dict[str, str]] = {}

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Answer all questions."""
        record(Reply(tuple(Answer(question, Status.SETTLED, 1.0) for question in questions)))


def reopen(pairs: int) -> None:
    """How long it takes to find that a ledger holds all that is asked."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        with Ledger(path) as ledger:
            ask(Settled(), questions(pairs), ledger)
        for _ in range(3):
            asked = questions(pairs)
            wall, cpu = time.perf_counter(), time.process_time()
            with Ledger(path) as ledger:
                assert len(ask(Settled(), asked, ledger)) == pairs
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(f"{pairs:,} settled pairs reopened in {wall:.2f} s ({cpu:.2f} s CPU)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--reopen", type=int, metavar="PAIRS")
    options = parser.parse_args()
    if options.reopen:
        reopen(options.reopen)
        return
    asked = questions(options.pairs)
    settings = {"latency": options.latency, "keep_bodies": False}
    with ChatServer(**settings) as server, tempfile.TemporaryDirectory() as folder:
        judge = LLMJudge("m", base_url=server.url, concurrency=options.concurrency)
        with Ledger(Path(folder) / "ledger") as ledger:
            profile = cProfile.Profile() if options.profile else None
            wall, cpu = time.perf_counter(), time.process_time()
            if profile:
                profile.enable()
            kept = ask(judge, asked, ledger)
            if profile:
                profile.disable()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        log = server.log()
    assert sum(k.grade or 0 for k in kept.values()) == options.pairs // 2
    assert log["count"] == options.pairs
    ideal = options.pairs / options.concurrency * options.latency
    print(f"{options.pairs:,} pairs in {wall:.2f} s; ideal {ideal:.2f} s, {wall / ideal:.2f} x")
    print(f"client CPU {1000 * cpu / options.pairs:.2f} ms a call, ledger and all")
    print(f"server CPU {1000 * log['cpu_seconds'] / options.pairs:.2f} ms a call")
    print(f"most calls in flight: {log['max_in_flight']}")
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
