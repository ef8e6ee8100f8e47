"""Commands read pipes and standard input as they read files."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tempfile
import threading

import pytest

RUN = "q1 Q0 a 1 2 r\nq1 Q0 b 2 1 r\n"
LABELS = "q1 0 b 1\n"


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary files go; looked at afterwards."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("content", [RUN.encode(), gzip.compress(RUN.encode())])
def test_standard_input(semrecall_main, tmp_path, monkeypatch, scratch, content):
    (tmp_path / "a.qrels").write_text(LABELS)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    status, out, err = semrecall_main("score", "-", "--judgments", "a.qrels", "-m", "RR",
                                      "--format", "json")  # fmt: skip
    assert status == 0, err
    assert json.loads(out)["summary"][0]["mean"] == 0.5
    assert not list(scratch.iterdir())


def test_pipes(semrecall_main, tmp_path, scratch):
    (tmp_path / "a.qrels").write_text(LABELS)
    writers = []
    for name in ("one", "two"):
        os.mkfifo(tmp_path / name)
        writers.append(threading.Thread(target=(tmp_path / name).write_text, args=(RUN,)))
        writers[-1].start()
    status, out, err = semrecall_main("score", "one", "two", "--judgments", "a.qrels", "-m", "RR",
                                      "--format", "json")  # fmt: skip
    for writer in writers:
        writer.join()
    assert status == 0, err
    # Runs of one name are called as they were given, not by the copies.
    assert [(row["run"], row["mean"]) for row in json.loads(out)["summary"]] == [
        ("one", 0.5), ("two", 0.5),
    ]  # fmt: skip
    assert not list(scratch.iterdir())


def test_empty_standard_input(semrecall_main, tmp_path, monkeypatch, scratch):
    (tmp_path / "a.qrels").write_text(LABELS)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    status, _, err = semrecall_main("score", "-", "--judgments", "a.qrels")
    assert status == 2
    assert "standard input is empty" in err
    assert not list(scratch.iterdir())
