"""A long search that ends before its end goes on from where it was, to the same bits."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import semrecall as sr
from semrecall.cli.progress import Meter, bytes_of
from semrecall.errors import FormatError, InputError, MismatchError, MissingExtra, SystemFault
from semrecall.truth import checkpoint, engines, work
from semrecall.truth.shards import Shards

RNG = np.random.default_rng(11)
BASE = RNG.standard_normal((9_000, 16), dtype=np.float32)
BASE[4_000:4_030], BASE[8_500:8_530], BASE[17], BASE[8_000] = BASE[2], BASE[2], np.nan, 0
QUERIES = RNG.standard_normal((25, 16), dtype=np.float32)
PROGRAM = [sys.executable, "-c", "from semrecall.cli import main; main()"]

NEEDS_POSIX = pytest.mark.skipif(os.name == "nt", reason="needs POSIX")

pytestmark = pytest.mark.filterwarnings("ignore:.*base row:semrecall.SemrecallWarning")


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three shards; a checkpoint is due after every block, and a block is 2,048 rows."""
    (tmp_path / "shards").mkdir()
    for number, part in enumerate(np.array_split(BASE, 3)):
        np.save(tmp_path / "shards" / f"{number}.npy", part)
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(work, "_LEAST_ROWS", 500)
    return tmp_path / "shards"


def die(_: object) -> None:
    """What a worker that is killed does with its task."""
    os._exit(1)


def die_in_an_answer(pipe: Any) -> None:
    """What a worker does that is killed while it sends a large answer."""
    pipe.recv(), pipe.recv()
    os.write(pipe.fileno(), (1 << 20).to_bytes(4, "big") + b"the first bytes")
    os._exit(1)


class Unsendable(Exception):
    """An error whose copy cannot be made from its message."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} ({status})")


class Failing:
    """A job that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def answer(self, task: work.Task) -> None:
        raise self.error


class Ended(Exception):
    """What ends a search in the tests."""


def after(rows: int) -> Callable[[float, int | None], None]:
    """A progress that ends the search once so many rows are done."""

    def progress(done: float, _: int | None) -> None:
        if done >= rows:
            raise Ended

    return progress


def bits(run: sr.Run) -> Any:
    assert run.flat_scores is not None
    identity = {key: value for key, value in run.identity.items() if key != "shards"}
    return run.ids.to_list(), run.flat_scores.tobytes(), identity


@pytest.mark.parametrize("first", ["threads", "processes"])
@pytest.mark.parametrize("then", ["threads", "processes"])
def test_a_search_goes_on_where_it_ended(shards: Path, first: str, then: str) -> None:
    options: dict[str, Any] = {"memory": 1 << 20, "checkpoint": shards.parent / "kept"}
    expected = bits(sr.truth(BASE, QUERIES, 10, "cosine"))
    with pytest.raises(Ended), pytest.warns(sr.SemrecallWarning, match="same command goes on"):
        sr.truth(shards, QUERIES, 10, "cosine", engine=first, progress=after(4_500), **options)
    seen: list[float] = []
    with pytest.warns(sr.SemrecallWarning, match=r"going on from .*kept: \d,\d\d\d of 9,000 rows"):
        found = sr.truth(
            shards, QUERIES, 10, "cosine", engine=then, workers=2,
            progress=lambda done, total: seen.append(done), **options,
        )  # fmt: skip
    assert bits(found) == expected
    assert seen[0] >= 3_000  # what was done before counts
    assert seen == sorted(seen)
    assert seen[-1] == 9_000


def test_ids_are_kept_over_a_change_of_engine(shards: Path, tmp_path: Path) -> None:
    """The order of ids within ties is known again after a checkpoint."""
    names = [f"d{i}" for i in RNG.permutation(9_000)]
    for number in range(3):
        part = slice(3_000 * number, 3_000 * (number + 1))
        sr.write(sr.Vectors.of(BASE[part], ids=names[part]), tmp_path / f"{number}.parquet")
    queries, source = BASE[2:3], f"{tmp_path}/*.parquet"
    options: dict[str, Any] = {"memory": 1 << 20, "checkpoint": tmp_path / "kept"}
    expected = sr.truth(sr.Vectors.of(BASE, ids=names), queries, 5, "l2")
    for first, then in (("threads", "processes"), ("processes", "threads")):
        with pytest.warns(sr.SemrecallWarning), pytest.raises(Ended):
            sr.truth(source, queries, 5, "l2", engine=first, progress=after(5_000), **options)
        with pytest.warns(sr.SemrecallWarning, match="going on from"):
            found = sr.truth(source, queries, 5, "l2", engine=then, **options)
        assert found.ids.to_list() == expected.ids.to_list()
        (tmp_path / "kept").unlink()


def test_what_is_done_is_not_read_again(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"memory": 1 << 20, "checkpoint": shards.parent / "kept"}
    sr.truth(shards, QUERIES, 10, "ip", **options)

    def nothing(self: Any, start: int, stop: int) -> Any:
        raise AssertionError((start, stop))

    monkeypatch.setattr(Shards, "pieces", nothing)
    with pytest.warns(sr.SemrecallWarning, match="9,000 of 9,000 rows are done"):
        found = sr.truth(shards, QUERIES, 10, "ip", **options)
    monkeypatch.undo()
    assert bits(found) == bits(sr.truth(BASE, QUERIES, 10, "ip"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 9}, "k 10, now 9"),
        ({"space": "l2"}, "space ip, now l2"),
        ({"queries": QUERIES[:24]}, "query_count 25, now 24"),
        ({"queries": QUERIES * 2}, "other queries"),
        ({"base": "written again"}, "other base"),
        ({"filter": np.arange(9_000) % 2 == 0}, "other filter"),
    ],
)
def test_another_search_does_not_go_on(shards: Path, change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"base": shards, "queries": QUERIES, "k": 10, "space": "ip"}
    kept = shards.parent / "kept"
    sr.truth(**given, checkpoint=kept)
    if "base" in change:
        changed = np.load(shards / "1.npy")
        np.save(shards / "1.npy", changed + 1)
        change = {}
    with pytest.raises(MismatchError, match=message) as error:
        sr.truth(**{**given, **change}, checkpoint=kept)
    assert "kept is a checkpoint of another search" in error.value.message
    assert error.value.hint == "remove it to start anew, or write to another -o"


def test_what_is_no_checkpoint(shards: Path) -> None:
    kept = shards.parent / "kept"
    for content in (b"", b"nonsense", b"PK\x03\x04nonsense"):
        kept.write_bytes(content)
        with pytest.raises(FormatError, match="kept: is no checkpoint, or is damaged"):
            sr.truth(shards, QUERIES, 10, "ip", checkpoint=kept)


def test_a_short_search_leaves_no_file(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 30.0)
    sr.truth(shards, QUERIES, 10, "ip", checkpoint=shards.parent / "kept")
    assert not (shards.parent / "kept").exists()


def test_a_full_disk_stops_with_the_checkpoint_before(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = shards.parent / "kept"
    real, written = np.savez, []

    def full(*arguments: Any, **arrays: Any) -> None:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(kept)
        real(*arguments, **arrays)

    monkeypatch.setattr(np, "savez", full)
    with (
        pytest.raises(OSError, match="No space left") as error,
        pytest.warns(sr.SemrecallWarning, match=r"4,096 of 9,000 rows are done and kept in"),
    ):
        sr.truth(shards, QUERIES, 10, "ip", memory=1 << 20, checkpoint=kept)
    assert error.value.filename == str(kept)
    monkeypatch.setattr(np, "savez", real)
    with pytest.warns(sr.SemrecallWarning, match=r"4,096 of 9,000 rows are done"):
        found = sr.truth(shards, QUERIES, 10, "ip", memory=1 << 20, checkpoint=kept)
    assert bits(found) == bits(sr.truth(BASE, QUERIES, 10, "ip"))
    assert [p.name for p in shards.parent.iterdir() if "partial" in p.name] == []


# -- processes ----------------------------------------------------------------------------------


def test_a_worker_that_dies_is_replaced(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = []

    def progress(done: float, _: int | None) -> None:
        if done > 0 and not killed:
            victim = multiprocessing.active_children()[0]
            victim.kill()
            killed.append(victim.pid)

    found = sr.truth(shards, QUERIES, 10, "ip", engine="processes", workers=2, progress=progress)
    assert killed
    assert bits(found) == bits(sr.truth(BASE, QUERIES, 10, "ip"))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    "how", [die, pytest.param(die_in_an_answer, marks=NEEDS_POSIX)], ids=["at once", "in an answer"]
)
def test_workers_that_die_again_and_again(
    shards: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[..., None]
) -> None:
    monkeypatch.setattr(engines, "_work", how)
    with pytest.raises(SystemFault, match="died 4 times without finishing a task") as error:
        sr.truth(shards, QUERIES, 10, "ip", engine="processes", workers=1)
    assert "smaller --memory" in (error.value.hint or "")


def test_a_fault_within_a_worker_is_told_as_here(shards: Path, tmp_path: Path) -> None:
    rows = np.concatenate([np.full((900, 1), 16, "<i4").view("<f4"), BASE[:900]], axis=1)
    rows[800, 0] = 0.0
    (tmp_path / "base.fvecs").write_bytes(rows.tobytes())
    with pytest.raises(InputError, match=r"base.fvecs: row 800 has dimension 0, expected 16"):
        sr.truth(tmp_path / "base.fvecs", QUERIES, 3, "l2", engine="processes")


@pytest.mark.parametrize("error", [
    MissingExtra("aiohttp", "remote", "reading s3://b/x.npy"),
    FormatError("x.npy: is cut short", hint="copy it again"),
    FileNotFoundError(2, "No such file", "x.npy"),
])  # fmt: skip
def test_errors_are_sent_whole(error: Exception) -> None:
    sent = engines._answer(cast("Any", Failing(error)), work.Task(0, 1))
    assert type(sent) is type(error)
    assert str(sent) == str(error)
    assert "in a worker process:\nTraceback" in sent.__notes__[0]


def test_an_error_that_cannot_be_sent_is_told() -> None:
    sent = engines._answer(cast("Any", Failing(Unsendable(503, "slow down"))), work.Task(0, 1))
    assert isinstance(sent, SystemFault)
    assert str(sent) == "Unsendable: slow down (503)"
    assert "raise self.error" in sent.__notes__[0]


# -- the command --------------------------------------------------------------------------------

SLOW = """
import time
from semrecall.exact.search import Scan
from semrecall.truth import checkpoint
checkpoint.EVERY_SECONDS = 0.0
over = Scan.over
def slow(self, *given):
    time.sleep(0.15)
    over(self, *given)
Scan.over = slow
from semrecall.cli import main
main()
"""
WORDS = ["truth", *(f"shards/{i}.npy" for i in range(3)), "queries.npy", "-k", "10", "--space",
         "cosine", "--memory", "1MiB", "-o", "truth.parquet"]  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_command_goes_on_after_a_kill(shards: Path, how: signal.Signals) -> None:
    folder = shards.parent
    np.save(folder / "queries.npy", QUERIES)
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *WORDS], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    kept = folder / "truth.parquet.checkpoint"
    limit = time.monotonic() + 30
    while not kept.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(how)
    _, said = process.communicate(timeout=30)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}[how], said
    assert "Traceback" not in said
    assert kept.exists()
    assert not (folder / "truth.parquet").exists()
    if how == signal.SIGINT:
        assert "rows are done and kept in truth.parquet.checkpoint; the same command" in said
    done = subprocess.run(
        [*PROGRAM, *WORDS], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning: going on from truth.parquet.checkpoint: " in done.stderr
    assert "base: 3 files, 9,000 rows:\n  rows 0 to 2,999: shards/0.npy\n" in done.stderr
    assert bits(sr.read(folder / "truth.parquet")) == bits(sr.truth(BASE, QUERIES, 10, "cosine"))
    assert not kept.exists()


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_ends_the_workers(shards: Path) -> None:
    folder = shards.parent
    np.save(folder / "queries.npy", QUERIES)
    big = RNG.standard_normal((300_000, 16), dtype=np.float32)
    np.save(shards / "1.npy", big)
    np.save(folder / "queries.npy", big[:20_000])
    process = subprocess.Popen(
        [*PROGRAM, *WORDS, "--engine", "processes", "--workers", "2"],
        cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    time.sleep(2.5)
    workers = _children(process.pid)
    assert workers
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert _gone(workers)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_workers_end_with_a_parent_that_was_killed(shards: Path) -> None:
    folder = shards.parent
    big = RNG.standard_normal((300_000, 16), dtype=np.float32)
    np.save(shards / "1.npy", big)
    np.save(folder / "queries.npy", big[:20_000])
    process = subprocess.Popen(
        [*PROGRAM, *WORDS, "--engine", "processes", "--workers", "2"],
        cwd=folder, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(2.5)
    workers = _children(process.pid)
    assert workers
    process.kill()
    process.wait()
    assert _gone(workers)


def _gone(processes: list[int]) -> bool:
    limit = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in processes) and time.monotonic() < limit:
        time.sleep(0.05)
    return not any(Path(f"/proc/{pid}").exists() for pid in processes)


def _children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    if not listed.exists():
        pytest.skip("needs /proc")
    return [int(pid) for pid in listed.read_text().split()]


def test_options_that_do_not_fit(semrecall_main: Callable[..., Any], tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", BASE[:10])
    words = ["truth", "b.npy", "b.npy", "-k", 2, "--space", "ip"]
    status, _, said = semrecall_main(*words, "--address", "auto")
    assert (status, said.splitlines()[0]) == (
        2, "error: --address is for --engine ray, not for threads",
    )  # fmt: skip
    sr.write(sr.Vectors.of(BASE[:10]), tmp_path / "p.parquet")
    status, _, said = semrecall_main(
        "truth", tmp_path, "b.npy", "-k", 2, "--space", "ip", "-o", "p.parquet"
    )
    assert status == 2
    assert "would write over" in said


# -- progress -----------------------------------------------------------------------------------


def test_time_left_counts_what_this_run_did() -> None:
    # 4 GB a million rows; 250,000 were done by an earlier run, 250,000 more took 50 seconds.
    meter = Meter("exact search", 4_000)
    assert meter.line(250_000, 1_000_000, 0.0) == (
        "exact search  [######------------------]  25%  1 GB of 4 GB"
    )
    assert meter.line(500_000, 1_000_000, 50.0) == (
        "exact search  [############------------]  50%  2 GB of 4 GB  20 MB/s  1 min 40 s left"
    )
    assert Meter("x", None).line(0, None, 0.0) == "x  0 rows"


def test_sizes() -> None:
    assert [bytes_of(t) for t in ("500MB", "1.5 GiB", "7")] == [500_000_000, 1_610_612_736, 7]
    with pytest.raises(InputError, match="such as 500MB"):
        bytes_of("much")
