"""`semrecall convert`."""

from __future__ import annotations

import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from semrecall import formats
from semrecall.data import Run, Vectors


def convert(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = "from semrecall.cli import main; main()"
    command = [sys.executable, "-c", code, "convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_vectors_round_the_formats(tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="needs h5py")
    matrix = np.arange(40, dtype=np.float32).reshape(10, 4)
    formats.write(Vectors.of(matrix), tmp_path / "a.npy")
    chain = ["a.npy", "b.fvecs", "c.fbin", "d.parquet", "e.u8bin", "f.hdf5"]
    for source, target in pairwise(chain):
        done = convert(source, target, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith(f"{source} -> {target}: Vectors(10 x 4, ")
        assert len(done.stderr.splitlines()) == 1
    assert (formats.read_vectors(tmp_path / "f.hdf5").require_matrix() == matrix).all()


def test_ground_truth_with_its_space(tmp_path: Path) -> None:
    ids, distances = np.array([4, 7], "<u4"), np.array([1, 9], "<f4")
    content = struct.pack("<II", 1, 2) + ids.tobytes() + distances.tobytes()
    (tmp_path / "gt.bin").write_bytes(content)
    done = convert("gt.bin", "gt.parquet", "--space", "l2", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: gt.bin: distances are taken as squared L2" in done.stderr
    run = formats.read_run(tmp_path / "gt.parquet")
    assert run.scores.to_list() == [[1, 3]]
    assert str(run.space) == "l2"


def test_standard_output(tmp_path: Path) -> None:
    formats.write(Run.from_arrays([["a", "b"]], query_ids=["q"]), tmp_path / "r.parquet")
    done = convert("r.parquet", "-", "--to", "trec", cwd=tmp_path)
    assert done.stdout == "q Q0 a 1 2.0 semrecall\nq Q0 b 2 1.0 semrecall\n"
    done = convert("r.parquet", "-", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: standard output has no suffix; expected --to FORMAT\n"


def test_options_reach_the_reader(tmp_path: Path) -> None:
    (tmp_path / "j.csv").write_text("query_id,doc_id,mine\nq,a,1\nq,a,2\n")
    done = convert("j.csv", "j.qrels", "--as", "judgments", "--grade", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "has grade 1 at line 2 and 2 at line 3" in done.stderr
    assert "hint: say which to take: --conflicts max, first or last" in done.stderr
    assert not (tmp_path / "j.qrels").exists()
    arguments = ["j.csv", "j.qrels", "--as", "judgments", "--grade", "mine", "--conflicts", "max"]
    assert convert(*arguments, cwd=tmp_path).returncode == 0
    assert (tmp_path / "j.qrels").read_text() == "q 0 a 2\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.fbin", "x.npy"], "none.fbin: no such file"),
        (["png.fbin", "x.npy"], "png.fbin: is a PNG image"),
        (["v.npy", "x.qrels"], "writes run or judgments, not vectors"),
        (["v.npy", "x.npy", "--as", "run"], "holds float32 of shape (2, 2); expected ids"),
        (["v.npy", "x.npy", "--from", "nyp"], "unknown format 'nyp'"),
        (["v.npy", "x.npy", "--conflicts", "max"], "takes no option conflicts"),
        (["v.npy", "x.npy", "--space", "l3", "--as", "run"], "unknown space 'l3'"),
        (["v.npy", "no/x.npy"], "the directory"),
        (["v.npy", "/dev/full", "--to", "npy"], "/dev/full: No space left on device"),
    ],
)
def test_wrong_input(tmp_path: Path, arguments: list[str], message: str) -> None:
    if "/dev/full" in arguments and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "png.fbin").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    np.save(tmp_path / "v.npy", np.ones((2, 2), np.float32))
    done = convert(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "x.npy").exists()


@pytest.mark.parametrize("name", ["w.npy", "w.fbin", "w.fvecs", "w.parquet", "w.hdf5"])
def test_a_write_that_fails_halfway(tmp_path: Path, name: str) -> None:
    if name.endswith(".hdf5"):
        pytest.importorskip("h5py", reason="needs h5py")
    # The system refuses files beyond 100,000 bytes: as on a full disk, a write in the middle fails.
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
sys.argv[:1] = ["semrecall", "convert"]
from semrecall.cli import main
main()
"""
    np.save(tmp_path / "v.npy", np.random.default_rng(0).random((20_000, 4), np.float32))
    (tmp_path / name).write_text("old")
    command = [sys.executable, "-c", code, "v.npy", name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: {name}: ")
    assert "Traceback" not in done.stderr
    assert (tmp_path / name).read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["v.npy", name])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_bounded(tmp_path: Path) -> None:
    # 200 MB of vectors with at most 100 MB more than a small conversion needs.
    code = """
import sys
from semrecall.cli import cli
cli.main(["convert", *sys.argv[1:]], standalone_mode=False)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""

    def peak(rows: int) -> int:
        with (tmp_path / "v.fbin").open("wb") as file:
            file.write(struct.pack("<II", rows, 512))
            file.truncate(8 + rows * 2048)
        command = [sys.executable, "-c", code, "v.fbin", "w.npy"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        return int(done.stdout) // 1024

    assert peak(100_000) - peak(10) < 100


def test_hdf5_of_vectors_alone_reads_back_without_a_flag(tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="needs h5py")
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    formats.write(Vectors.of(matrix), tmp_path / "v.hdf5")
    done = convert("v.hdf5", "v.fvecs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(formats.read_vectors(tmp_path / "v.fvecs").require_matrix(), matrix)
