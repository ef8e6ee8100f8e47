"""semrecall search: files, sweeps, tables and messages."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from semrecall.cli import main
from semrecall.formats import read_cost, read_run

RNG = np.random.default_rng(5)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with base.npy (400 x 8), queries.npy (10 x 8) and ids.txt, made current."""
    np.save(tmp_path / "base.npy", RNG.standard_normal((400, 8)).astype(np.float32))
    np.save(tmp_path / "queries.npy", RNG.standard_normal((10, 8)).astype(np.float32))
    (tmp_path / "ids.txt").write_text("".join(f"doc-{i}\n" for i in range(400)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def faiss() -> None:
    try:
        import faiss  # noqa: F401
    except ModuleNotFoundError:
        pytest.skip("faiss is not installed")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call the command: (exit status, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["semrecall", "search", *arguments])
            with pytest.raises(SystemExit) as done:
                main()
        out, err = capsys.readouterr()
        return int(done.value.code or 0), out, err

    return call


VECTORS = ("--base", "base.npy", "--queries", "queries.npy")
QUICK = ("--repeats", "1", "--latency-queries", "2", "-k", "5")


def test_exact_search_writes_a_run_and_prints_its_cost(data: Path, run) -> None:
    status, out, err = run("exact", *VECTORS, "--space", "l2", *QUICK, "-o", "run.parquet")
    assert status == 0
    found = read_run("run.parquet")
    assert (len(found), found.k, str(found.space)) == (10, 5, "l2")
    assert "run.parquet: Run(exact: 10 queries, 5 results each, l2" in err
    heads, values = out.splitlines()[:2]
    assert heads.split()[:2] == ["distances", "bytes"]
    # 400 vectors of 8 floats.
    assert values.split()[:2] == ["400", "12,800"]


@pytest.mark.usefixtures("faiss")
def test_a_sweep_builds_once_and_searches_each_setting(data: Path, run) -> None:
    """Case E01 with more values: every combination runs."""
    status, out, err = run(
        "faiss?factory=IVF8_HNSW4,SQ8,RFlat", *VECTORS, "--space", "cosine", *QUICK,
        "--set", "nprobe=1,4", "--set", "nprobe=8", "--set", "k_factor=1,2.5",
        "-o", "run-{nprobe}-{k_factor}.parquet", "--cost", "{k_factor}/cost-{nprobe}.parquet",
        "--format", "json",
    )  # fmt: skip
    assert status == 2
    assert "the directory 1 does not exist" in err
    (data / "1").mkdir()
    (data / "2.5").mkdir()
    status, out, err = run(
        "faiss?factory=IVF8_HNSW4,SQ8,RFlat", *VECTORS, "--space", "cosine", *QUICK,
        "--set", "nprobe=1,4", "--set", "nprobe=8", "--set", "k_factor=1,2.5",
        "-o", "run-{nprobe}-{k_factor}.parquet", "--cost", "{k_factor}/cost-{nprobe}.parquet",
        "--format", "json",
    )  # fmt: skip
    assert status == 0, err
    assert err.count("ready in") == 1
    document = json.loads(out)
    settings = [(row["nprobe"], row["k_factor"]) for row in document["settings"]]
    assert settings == [(1, 1), (1, 2.5), (4, 1), (4, 2.5), (8, 1), (8, 2.5)]
    assert document["system"]["factory"] == "IVF8_HNSW4,SQ8,RFlat"
    assert list(document["settings"][0]["stages"]) == ["coarse", "codes", "refine"]
    for nprobe, factor in settings:
        assert len(read_run(f"run-{nprobe}-{factor}.parquet")) == 10
        assert len(read_cost(f"{factor}/cost-{nprobe}.parquet")) == 10


@pytest.mark.usefixtures("faiss")
def test_codes_and_the_saved_index(data: Path, run) -> None:
    status, _, err = run(
        "faiss?factory=IVF4,SQ4", *VECTORS, "--base-ids", "ids.txt", "--space", "ip", *QUICK,
        "--set", "nprobe=4", "--build", "seed=3", "-o", "run.parquet",
        "--codes", "codes.parquet", "--save", "index.faiss",
    )  # fmt: skip
    assert status == 0, err
    codes, found = read_run("codes.parquet"), read_run("run.parquet")
    assert found.ids.to_list() == [row[:5] for row in codes.ids.to_list()]
    assert str(found.ids[0][0]).startswith("doc-")
    # A saved index holds row numbers; with the base the ids are back.
    again = ("index.faiss", "--queries", "queries.npy", *QUICK, "--set", "nprobe=4")
    assert run(*again, "-o", "rows.parquet")[0] == 0
    rows = read_run("rows.parquet").ids.to_list()
    assert [[f"doc-{i}" for i in row] for row in rows] == found.ids.to_list()
    status, _, err = run(*again, "--base", "base.npy", "--base-ids", "ids.txt", "-o", "ids.parquet")
    assert status == 0, err
    assert read_run("ids.parquet").ids.to_list() == found.ids.to_list()


def test_a_recorded_run_is_searched_like_a_system(data: Path, run) -> None:
    assert run("exact", *VECTORS, "--space", "ip", *QUICK, "-o", "run.parquet")[0] == 0
    spec = "recorded?run=run.parquet"
    status, out, _ = run(spec, "--queries", "queries.npy", "-k", "3", "-o", "again.jsonl")
    assert status == 0
    assert out.splitlines()[1].split() == ["-"] * 6
    first, again = read_run("run.parquet"), read_run("again.jsonl")
    assert again.ids.to_list() == [row[:3] for row in first.ids.to_list()]


def test_scores_are_recomputed_on_demand(data: Path, run) -> None:
    assert run("exact", *VECTORS, "--space", "ip", *QUICK, "--rescore", "-o", "r.parquet")[0] == 0
    assert read_run("r.parquet").scores_by == "exact"
    status, _, err = run("exact", "--queries", "queries.npy", "--rescore")
    assert status == 2
    assert "--rescore needs the base vectors" in err


@pytest.mark.parametrize("style", ["csv", "markdown"])
def test_other_formats(data: Path, run, style: str) -> None:
    status, out, _ = run("exact", *VECTORS, "--space", "ip", *QUICK, "--format", style)
    assert status == 0
    if style == "csv":
        (row,) = csv.DictReader(io.StringIO(out))
        assert row["distance_computations"] == "400.0"
    else:
        assert out.startswith("| distances | bytes read |")


@pytest.mark.filterwarnings("default::semrecall.errors.SemrecallWarning")
def test_a_bad_query_is_told_and_does_no_harm(data: Path, run) -> None:
    queries = np.load("queries.npy")
    queries[3, 1] = np.nan
    np.save("queries.npy", queries)
    status, _, err = run("exact", *VECTORS, "--space", "ip", *QUICK, "-o", "run.parquet")
    assert status == 0
    assert "warning: 1 query not searched (NaN or infinite query vector): 3" in err
    assert [len(row) for row in read_run("run.parquet").ids] == [5, 5, 5, 0, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("exat", *VECTORS, "--space", "ip"), "unknown system 'exat'", "did you mean exact?"),
        (("exact", *VECTORS), "building needs --space", "ip, cosine or l2"),
        (("exact", "--queries", "queries.npy"), "'exact' has to be built", "--base FILE"),
        (("exact", *VECTORS, "--space", "ip", "--set", "nprobe"), "is not KNOB=VALUE", "nprobe=8"),
        (
            ("usearch", *VECTORS, "--space", "ip", "--build", "connectivity=x"),
            "connectivity is 'x'; expected a whole number",
            "",
        ),
        (("exact", *VECTORS, "--space", "ip", "--set", "a=1"), "no search knob 'a'", "none"),
        (("exact", *VECTORS, "--space", "ip", "--build", "a=1"), "no build knob 'a'", "none"),
        (
            ("exact", *VECTORS, "--space", "ip", "--set", "a=1,2", "-o", "run.parquet"),
            "-o 'run.parquet' is one file for several values of a",
            "run-{a}.parquet",
        ),
        (
            ("exact", *VECTORS, "--space", "ip", "-o", "run-{b}.parquet"),
            "names {b}, which is not set",
            "--set b=VALUE",
        ),
        (("exact", *VECTORS, "--space", "ip", "-o", "no/r.parquet"), "directory no does not", ""),
        (("exact", *VECTORS, "--space", "ip", "-o", "run.what"), "does not say its format", "for"),
        (("exact", *VECTORS, "--space", "ip", "--save", "x.faiss"), "cannot be saved", ""),
        (("exact", *VECTORS, "--space", "ip", "--codes", "c.jsonl"), "nothing is quantised", ""),
        (("exact", *VECTORS, "--space", "ip", "-k", "0"), "k is 0", ""),
        (("exact", "--base", "gone.npy", "--queries", "queries.npy"), "gone.npy", ""),
        (("exact", "--base", "base.npy"), "there are no queries", "--eval-set"),
    ],
)
def test_wrong_input_is_explained_and_exits_with_2(
    data: Path, run, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert message in err
    assert hint in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("faiss")
@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("faiss?factory=IVX8,SQ8", *VECTORS, "--space", "ip"), "could not parse", "IVF256,SQ8"),
        (("faiss?factory=Flat&k=3", *VECTORS, "--space", "ip"), "no option 'k'", "known"),
        (("faiss", *VECTORS, "--space", "ip"), "needs a factory string", "faiss?factory="),
        (
            ("faiss?factory=HNSW8", *VECTORS, "--space", "ip", "--set", "nprobe=2"),
            "no search knob 'nprobe'",
            "efSearch",
        ),
        (("gone.faiss", "--queries", "queries.npy"), "gone.faiss: no such file", ""),
        (("faiss?index=base.npy", "--queries", "queries.npy"), "cannot read this index", "whole"),
    ],
)
def test_wrong_input_for_faiss(
    data: Path, run, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    test_wrong_input_is_explained_and_exits_with_2(data, run, arguments, message, hint)


@pytest.mark.usefixtures("faiss")
def test_stdout_holds_data_only(data: Path) -> None:
    """In a process of its own: what libraries print past Python counts, too."""
    done = subprocess.run(
        [
            sys.executable, "-c", "from semrecall.cli import main; main()",
            "search", "faiss?factory=OPQ2,IVF8,PQ2x4", *VECTORS, "--space", "l2", *QUICK,
            "--format", "json",
        ],
        capture_output=True, text=True, check=False, env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["k"] == 5
    assert "WARNING" not in done.stderr
    assert done.stderr.count("\n") <= 2
