"""semrecall truth, list and demo, run as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import semrecall as sr

PROGRAM = [sys.executable, "-c", "from semrecall.cli import main; main()"]
Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs the command in a directory with base.npy (40 x 5) and queries.npy (3 x 5)."""
    rng = np.random.default_rng(1)
    np.save(tmp_path / "base.npy", rng.standard_normal((40, 5)).astype(np.float32))
    np.save(tmp_path / "queries.npy", rng.standard_normal((3, 5)).astype(np.float32))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def test_truth_to_a_file(shell: Shell, tmp_path: Path) -> None:
    done = shell("truth", "base.npy", "queries.npy", "-k", "4", "--space", "l2", "-o", "t.parquet")
    assert (done.returncode, done.stdout) == (0, "")
    assert "t.parquet: the 4 nearest of 40 rows for 3 queries" in done.stderr
    truth = sr.read(tmp_path / "t.parquet")
    again = sr.truth(tmp_path / "base.npy", str(tmp_path / "queries.npy"), 4, "l2")
    assert truth.ids.to_list() == again.ids.to_list()
    assert truth.identity == again.identity
    assert truth.scores_by == "exact"


def test_truth_to_stdout_is_json_lines(shell: Shell) -> None:
    done = shell("truth", "base.npy", "queries.npy", "-k", "2", "--space", "ip")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(row["ids"]) for row in rows] == [2, 2, 2]
    assert done.stderr == ""


def test_no_command_writes_over_what_it_reads(shell: Shell, tmp_path: Path) -> None:
    before = (tmp_path / "base.npy").read_bytes()
    (tmp_path / "link.npy").symlink_to(tmp_path / "base.npy")
    shell("truth", "base.npy", "queries.npy", "-k", "4", "--space", "ip", "-o", "t.parquet")
    for words in (
        ("truth", "base.npy", "queries.npy", "-k", "4", "--space", "ip", "-o", "./base.npy"),
        ("truth", "base.npy", "queries.npy", "-k", "4", "--space", "ip", "-o", "link.npy"),
        ("truth", "base.npy", "queries.npy", "-k", "4", "--space", "ip", "-o",
         str(tmp_path / "base.npy")),
        ("search", "exact", "--base", "base.npy", "--queries", "queries.npy", "-k", "4", "--space",
         "ip", "--codes", "base.npy"),
        ("convert", "base.npy", "base.npy"),
        ("score", "t.parquet", "--truth", "t.parquet", "--html", "t.parquet"),
    ):  # fmt: skip
        done = shell(*words)
        assert done.returncode == 2, words
        assert "would write over" in done.stderr or "does not end in .html" in done.stderr
    assert (tmp_path / "base.npy").read_bytes() == before
    assert len(sr.read(tmp_path / "t.parquet")) == 3


def test_the_queries_of_a_data_set_are_its_test_part(shell: Shell, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    with h5py.File(tmp_path / "set.hdf5", "w") as file:
        file["train"] = np.load(tmp_path / "base.npy")
        file["test"] = np.load(tmp_path / "queries.npy")
        file.attrs["distance"] = "euclidean"
    done = shell("truth", "set.hdf5", "set.hdf5", "-k", "2", "--space", "l2")
    expected = shell("truth", "base.npy", "queries.npy", "-k", "2", "--space", "l2")
    assert done.stdout == expected.stdout
    path = tmp_path / "set.hdf5"
    assert len(sr.truth(path, path, 2, "l2")) == 3


def test_truth_with_a_filter_and_ids(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("".join(f"row{i}\n" for i in range(40)))
    allowed = [{"query_id": i, "ids": ["row1", "row7"][: i + 1]} for i in range(3)]
    (tmp_path / "allowed.jsonl").write_text("".join(json.dumps(a) + "\n" for a in allowed))
    done = shell(
        "truth", "base.npy", "queries.npy", "-k", "5", "--space", "ip", "--base-ids", "ids.txt",
        "--filter", "allowed.jsonl", "--memory", "64MB", "--threads", "1",
    )  # fmt: skip
    rows = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
    assert [sorted(row) for row in rows] == [["row1"], ["row1", "row7"], ["row1", "row7"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.npy", "queries.npy", "--space", "ip"), "none.npy"),
        (("base.npy", "queries.npy", "-k", "0", "--space", "ip"), "at least 1"),
        (("base.npy", "queries.npy", "-k", "41", "--space", "ip"), "the base has 40 rows"),
        (("base.npy", "queries.npy"), "missing option '--space'"),
        (("base.npy", "wide.npy", "-k", "2", "--space", "ip"), "5 dimensions, queries 6"),
        (("base.npy", "queries.npy", "--space", "l3"), "'l3' is not one of"),
        (("cut.npy", "queries.npy", "-k", "2", "--space", "ip"), "cut.npy"),
        (("empty.npy", "queries.npy", "-k", "2", "--space", "ip"), "empty.npy"),
        (("base.npy", "queries.npy", "-k", "2", "--space", "ip", "--memory", "x"), "8GB"),
        (("base.npy", "queries.npy", "-k", "2", "--space", "ip", "-o", "t.zip"), "t.zip"),
        (("base.npy", "queries.npy", "-k", "2", "--space", "ip", "-o", "no/t.parquet"), "no"),
    ],
)
def test_faults_are_told_in_one_message(
    shell: Shell, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    np.save(tmp_path / "wide.npy", np.ones((2, 6), dtype=np.float32))
    whole = (tmp_path / "base.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-7])
    (tmp_path / "empty.npy").write_bytes(b"")
    done = shell("truth", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message in done.stderr.lower() if message.islower() else message in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(shell: Shell) -> None:
    done = shell("truth", "base.npy", "queries.npy", "-k", "2", "--space", "ip", "-o", "/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_nan_rows_are_a_warning(shell: Shell, tmp_path: Path) -> None:
    base = np.load(tmp_path / "base.npy")
    base[3, 2] = np.nan
    np.save(tmp_path / "base.npy", base)
    done = shell("truth", "base.npy", "queries.npy", "-k", "40", "--space", "ip")
    assert done.returncode == 0
    assert "warning: 1 base row left out, with NaN or infinity: 3" in done.stderr
    assert {len(json.loads(line)["ids"]) for line in done.stdout.splitlines()} == {39}


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_leaves_no_half_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "base.npy", rng.standard_normal((200_000, 64), dtype=np.float32))
    np.save(tmp_path / "queries.npy", rng.standard_normal((20_000, 64), dtype=np.float32))
    process = subprocess.Popen(
        [
            *PROGRAM,
            "truth",
            "base.npy",
            "queries.npy",
            "-k",
            "50",
            "--space",
            "l2",
            "-o",
            "t.parquet",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    assert "Traceback" not in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base.npy", "queries.npy"]


@pytest.mark.parametrize("command", ["truth", "convert"])
def test_a_closed_pipe_is_no_fault(shell: Shell, tmp_path: Path, command: str) -> None:
    rows = np.arange(200_000).reshape(-1, 10)
    sr.write(sr.Run.from_arrays(rows), tmp_path / "run.parquet")
    np.save(tmp_path / "many.npy", np.ones((20_000, 5), dtype=np.float32))
    words = {
        "truth": ["truth", "base.npy", "many.npy", "-k", "9", "--space", "ip"],
        "convert": ["convert", "run.parquet", "-", "--to", "csv"],
    }[command]
    with subprocess.Popen(
        [*PROGRAM, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(5)) == 5
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert "BrokenPipe" not in said


def test_unknown_command_and_list(shell: Shell) -> None:
    done = shell("truht")
    assert done.returncode == 2
    assert "did you mean truth?" in done.stderr
    listed = shell("list", "--format", "json")
    tables = json.loads(listed.stdout)
    assert {"measures", "systems", "judges", "prompts", "formats"} == set(tables)
    assert any(row["measure"].startswith("srecall") for row in tables["measures"])
    assert "faiss" in shell("list", "systems").stdout


def test_demo(shell: Shell, tmp_path: Path) -> None:
    for extra in ("faiss", "matplotlib"):
        pytest.importorskip(extra, reason=f"needs {extra}")
    done = shell("demo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    table = [line.split() for line in lines if line.startswith("nprobe=")]
    assert len(table) == 8
    # Searching every list loses nothing that 8-bit codes keep apart, and costs the most.
    assert float(table[-1][1]) > 0.97
    assert int(table[-1][-2].replace(",", "")) > int(table[0][-2].replace(",", ""))
    assert any("what was missed matters" in line for line in lines)
    assert any("everything relevant was found" in line for line in lines)
    page = (tmp_path / "semrecall-demo.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert max(map(len, lines)) <= 100
