"""semrecall judge against real servers of ours: a model, its faults, and batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra llm")

from chat_server import ChatServer
from test_judge_batch import BatchServer, judge_at, keys, server

import semrecall as sr
from semrecall.judges import Ledger

__all__ = ["keys", "server"]  # fixtures

TEXTS = ("--corpus", "docs.jsonl", "--queries", "queries.jsonl")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    documents = {"a": "good grade:1", "b": "bad", "c": "good and grade:1", "d": "none"}
    for name, texts in (("docs", documents), ("queries", {"q": "what is good", "r": "what else"})):
        rows = [json.dumps({"id": n, "text": t}) for n, t in texts.items()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    rows = [json.dumps({"query_id": q, "doc_id": d}) for q in "qr" for d in documents]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    return tmp_path


def test_pairs_are_judged_and_a_second_run_asks_nothing(files: Path, semrecall_main: Any) -> None:
    with ChatServer() as server:
        arguments = ("judge", "pairs.jsonl", *TEXTS, "--base-url", server.url, "--model", "m",
                     "-o", "labels.parquet", "--price-in", "1", "--price-out", "2")  # fmt: skip
        status, out, err = semrecall_main(*arguments)
        assert (status, out) == (0, "")
        assert "m: 8 of 8 pairs labelled, 4 (50.0%) relevant" in err
        assert "cost 0.0" in err
        # Eight pairs, and six canaries: five kinds and the plain unrelated passage.
        assert server.log()["count"] == 14
        status, _, err = semrecall_main(*arguments)
        assert status == 0
        assert "asked 0; 8 known before" in err
        assert server.log()["count"] == 14
    assert sr.read(files / "labels.parquet").grades.tolist() == [1, 0, 1, 0] * 2


def test_a_cap_stops_with_status_3_and_the_next_run_goes_on(
    files: Path, semrecall_main: Any
) -> None:
    with ChatServer() as server:
        arguments = ("judge", "pairs.jsonl", *TEXTS, "--base-url", server.url, "--model", "m",
                     "--canaries", "0")  # fmt: skip
        status, out, err = semrecall_main(*arguments, "--max-requests", "3")
        assert (status, out) == (3, "")
        assert "run the same again" in err
        assert server.log()["count"] == 3
        status, out, err = semrecall_main(*arguments)
        assert (status, server.log()["count"]) == (0, 8)
        assert "asked 5; 3 known before" in err


def test_quota_stops_with_status_3(files: Path, semrecall_main: Any) -> None:
    # J18: an exit status of its own, and no retries.
    with ChatServer([{"do": "quota"}]) as server:
        status, out, err = semrecall_main(
            "judge", "pairs.jsonl", *TEXTS, "--base-url", server.url, "--model", "m",
            "--canaries", "0", "--concurrency", "1",
        )  # fmt: skip
        assert (status, out, server.log()["count"]) == (3, "", 1)
        assert "quota" in err


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_batches_are_submitted_polled_and_collected(
    files: Path, semrecall_main: Any, server: BatchServer, wire: str
) -> None:
    base_url = judge_at(server, wire).base_url
    arguments = ("judge", "pairs.jsonl", *TEXTS, "--base-url", base_url, "--model", "m",
                 "--wire", wire, "--batch")  # fmt: skip
    status, _, err = semrecall_main(*arguments, "submit")
    assert status == 0, err
    assert "8 requests" in err
    status, _, err = semrecall_main(*arguments, "submit")
    assert (status, len(server.batches)) == (0, 1)
    status, _, err = semrecall_main(*arguments, "poll")
    assert (status, "running" in err) == (0, True)
    status, _, err = semrecall_main(*arguments, "collect", "-o", "labels.jsonl")
    assert "8 pairs are still out" in err
    server.finish()
    status, _, err = semrecall_main(*arguments, "collect", "-o", "labels.jsonl")
    assert (status, "collected" in err) == (0, True)
    assert "8 of 8 pairs labelled, 4 (50.0%) relevant" in err
    assert sr.read(files / "labels.jsonl").grades.tolist() == [1, 0, 1, 0] * 2


def test_batches_are_for_language_models(files: Path, semrecall_main: Any) -> None:
    sr.write(sr.Judgments.from_dict({"q": {"a": 1}}), files / "l.jsonl")
    status, _, err = semrecall_main(
        "judge", "pairs.jsonl", "--judge", "recorded", "--labels", "l.jsonl", "--batch", "poll"
    )
    assert (status, "--batch is for language models" in err) == (2, True)


def test_a_dry_run_counts_canaries_and_changes_nothing(files: Path, semrecall_main: Any) -> None:
    with ChatServer([{"do": "words", "text": "none"}]) as server:
        arguments = ("judge", "pairs.jsonl", *TEXTS, "--base-url", server.url, "--model")
        status, out, _ = semrecall_main(*arguments, "m", "--dry-run")
        assert status == 0
        assert out.startswith("8 questions, 8 of them to ask, and 6 canaries\n14 calls; ")
        semrecall_main(*arguments, "m", "--canaries", "0", "--limit", "4", "-o", "first.jsonl")
        asked = server.log()["count"]
        # One of the four is unparsed, which is its last word: a run would not ask it again.
        status, out, _ = semrecall_main(*arguments, "m", "--dry-run", "--canaries", "0")
        assert out.startswith("8 questions, 4 of them to ask\n4 calls; ")
        again = ("--dry-run", "--canaries", "0", "--again", "unparsed")
        assert semrecall_main(*arguments, "m", *again)[1].startswith("8 questions, 5 of them")
        # Another judge: not a trace of it stays in the ledger.
        semrecall_main(*arguments, "other", "--dry-run")
        assert server.log()["count"] == asked
    with Ledger(files / "semrecall.ledger") as ledger:
        assert [judge.name for judge in ledger.judges()] == ["m"]


def test_a_dry_run_of_a_panel_is_that_of_its_members(files: Path, semrecall_main: Any) -> None:
    members = ("--member", "llm?model=a&base_url=http://127.0.0.1:1", "--member",
               "llm?model=b&base_url=http://127.0.0.1:1")  # fmt: skip
    arguments = ("judge", "pairs.jsonl", *TEXTS, "--judge", "panel", *members, "--canaries", "0")
    status, out, _ = semrecall_main(*arguments, "--dry-run")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "a: 8 questions, 8 of them to ask"
    assert lines[2] == "b: 8 questions, 8 of them to ask"
    assert lines[1].startswith("8 calls; ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--judge", "llmm", "--base-url", "http://x"), "unknown judge 'llmm'"),
        (("--member", "llm?model=a", "--model", "m"), "--member is an option of panel"),
        (("--judge", "recorded", "--temperature", "1"), "--temperature is an option of llm"),
        (("--judge", "recorded", "--timeout", "1"), "--timeout is an option of llm"),
        (("--judge", "panel", "--ask-confidence"), "--ask-confidence is an option of llm"),
        (("--judge", "llm", "--model", "m", "--threshold", "1"), "--threshold is an option of"),
    ],
)
def test_options_are_called_as_they_were_given(
    files: Path, semrecall_main: Any, arguments: tuple[str, ...], says: str
) -> None:
    status, _, err = semrecall_main("judge", "pairs.jsonl", *TEXTS, *arguments)
    assert (status, says in err) == (2, True), err
