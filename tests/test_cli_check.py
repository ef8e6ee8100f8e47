"""semrecall check, as a user types it: what it prints, what it returns, what it refuses."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from semrecall.data import Judgments, Run, Vectors
from semrecall.exact import search
from semrecall.formats import write, write_dataset

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def shell(tmp_path, monkeypatch, semrecall_main):
    """Runs `semrecall check ...` in a folder with files; gives status, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    base = rng.standard_normal((300, 8)).astype(np.float32)
    queries = rng.standard_normal((20, 8)).astype(np.float32)
    np.save("base.npy", base)
    np.save("queries.npy", queries)
    base[[4, 9], 2] = np.nan
    np.save("broken.npy", base)
    base = np.load("base.npy")
    base[:30] = base[0]
    np.save("repeated.npy", base)
    truth = search(np.load("base.npy"), queries, 10, "l2")
    write(truth, "truth.parquet")
    write(truth, "run.jsonl")
    np.save("ids.npy", np.asarray(truth.ids))
    write(Judgments.from_dict({q: {int(truth.ids[q][0]): 1} for q in range(20)}), "qrels.parquet")

    def run(*arguments):
        return semrecall_main("check", *arguments)

    return run


VECTORS = ("--base", "base.npy", "--queries", "queries.npy")


def test_sound_data_passes(shell):
    status, out, err = shell(
        *VECTORS, "--truth", "truth.parquet", "--run", "run.jsonl", "--judgments", "qrels.parquet",
        "--space", "l2", "--strict",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert out.startswith("0 errors, 0 warnings, ")
    assert "base       300 x 8, float32, memory-mapped" in out
    assert "All 20 sampled rows of the truth are the exact nearest in l2" in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= 80


def test_an_error_fails(shell):
    status, out, err = shell("--base", "broken.npy")
    assert (status, err) == (1, "")
    assert "error    not-finite\n         2 of 300 rows (0.7%) of the base hold NaN" in out
    assert "         rows: 4, 9\n" in out


def test_a_warning_fails_when_strict(shell):
    arguments = ("--base", "repeated.npy", "--run", "ids.npy")
    status, out, _ = shell(*arguments)
    assert status == 0
    assert "warning  duplicates" in out
    assert shell(*arguments, "--strict")[0] == 1


@pytest.mark.parametrize("name", ["base.npy", "nothing.npy"])
def test_wrong_input_is_named(shell, name):
    Path("base.npy").write_bytes(b"no vectors at all")
    status, out, err = shell("--base", name)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {name}")
    assert "Traceback" not in err


def test_nothing_given(shell):
    status, out, err = shell()
    assert (status, out) == (2, "")
    assert "hint: give at least one of --base, --queries, --truth" in err


def test_a_strange_memory(shell):
    assert shell(*VECTORS, "--memory", "much")[0] == 2
    assert shell(*VECTORS, "--memory", "50MB")[0] == 0


def test_another_space_than_the_file_says_is_a_finding(shell):
    status, out, _ = shell(*VECTORS, "--truth", "truth.parquet", "--space", "ip")
    assert status == 1
    assert "error    spaces-differ" in out
    assert "made in space l2; you say ip" in " ".join(out.split())


def test_ids_of_another_space(shell):
    status, out, _ = shell(*VECTORS, "--truth", "ids.npy", "--space", "cosine", "--format", "json")
    assert status == 1
    codes = [f["code"] for f in json.loads(out)["findings"] if f["level"] == "error"]
    assert codes == ["truth-space"]


def test_json_holds_everything(shell):
    status, out, _ = shell("--base", "broken.npy", "--format", "json")
    document = json.loads(out)
    assert status == 1
    assert document["ok"] is False
    assert document["counts"] == {"error": 1, "warning": 0, "note": 1}
    assert document["inputs"] == {"base": "300 x 8, float32, memory-mapped"}
    assert document["findings"][0]["code"] == "not-finite"
    assert document["findings"][0]["examples"] == [4, 9]


def test_csv_and_markdown(shell):
    rows = list(csv.DictReader(io.StringIO(shell("--base", "broken.npy", "--format", "csv")[1])))
    assert [row["code"] for row in rows] == ["not-finite", "norms-vary"]
    assert rows[0]["examples"] == "4, 9"
    text = shell("--base", "broken.npy", "--format", "markdown")[1]
    assert text.startswith("| level | code | about | found | advice |\n| --- |")
    assert text.endswith("\n1 error, 0 warnings, 1 note\n")


def test_ids_of_rows_can_be_given(shell):
    Path("names.txt").write_text("".join(f"d{n}x\n" for n in range(300)))
    named = Run.from_arrays([[f"d{n}x" for n in row] for row in np.load("ids.npy")])
    write(named, "named.jsonl")
    assert "error    ids-not-in-base" in shell("--base", "base.npy", "--run", "named.jsonl")[1]
    status, out, _ = shell(
        "--base", "base.npy", "--base-ids", "names.txt", "--run", "named.jsonl", "--strict"
    )
    assert status == 0, out


def test_one_file_holds_base_and_queries(shell):
    pytest.importorskip("h5py")
    base, queries = (Vectors.of(np.load(f"{name}.npy")) for name in ("base", "queries"))
    write_dataset("set.hdf5", base=base, queries=queries)
    status, out, _ = shell("--base", "set.hdf5", "--queries", "set.hdf5", "--space", "l2")
    assert status == 0
    assert "queries  20 x 8" in out


def test_sample_and_seed_are_said(shell):
    out = shell(*VECTORS, "--truth", "truth.parquet", "--sample", "5", "--seed", "7")[1]
    assert "sampled: 5 of 20 queries (seed 7)" in out


def test_progress_is_for_terminals(shell, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, out, err = shell(*VECTORS)
    assert "reading the base: 100%" in err
    assert err.endswith("\r\x1b[K")
    assert "\x1b" not in out


def codes_in_source() -> set[str]:
    """Every code that a Finding of the source can have."""
    found: set[str] = set()
    for path in (ROOT / "src" / "semrecall" / "check").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                code = node.args[1]
                parts = [code.body, code.orelse] if isinstance(code, ast.IfExp) else [code]
                found |= {part.value for part in parts if isinstance(part, ast.Constant)}
    return found


def test_the_page_explains_every_code():
    page = (ROOT / "docs" / "check.md").read_text()
    explained = set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE))
    assert explained == codes_in_source()


def test_every_code_has_a_test():
    tests = (ROOT / "tests" / "test_check.py").read_text()
    assert [code for code in sorted(codes_in_source()) if f'"{code}"' not in tests] == []
