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
