"""diff: two results beside each other, whatever they were kept in."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import semrecall as sr
from semrecall.errors import FormatError, InputError, MismatchError
from semrecall.experiment import diff, read_results, run_experiment

TRUTH = [[f"d{n}" for n in range(4)] for _ in range(8)]
BEFORE = [4, 4, 4, 4, 3, 3, 3, 2]
AFTER = [4, 4, 3, 3, 2, 2, 1, 3]


def run(found: list[int], name: str = "ivf") -> sr.Run:
    rows = [[f"d{n}" for n in range(count)] for count in found]
    return sr.Run.from_arrays(rows, query_ids=[f"q{n}" for n in range(8)], k=4, name=name)


@pytest.fixture
def results(tmp_path, semrecall_main):
    """before.json and after.json: of each query 2 to 4 of 4 neighbours were found."""
    queries = [f"q{n}" for n in range(8)]
    sr.write(sr.Run.from_arrays(TRUTH, query_ids=queries, k=4), "truth.parquet")
    for name, found in (("before", BEFORE), ("after", AFTER)):
        sr.write(run(found), f"{name}.parquet")
        for more, file in ((["--per-query"], f"{name}.json"), ([], f"{name}-means.json")):
            arguments = ("score", f"{name}.parquet", "--truth", "truth.parquet", "-m", "recall@4")
            status, out, _ = semrecall_main(*arguments, "--format", "json", *more)
            assert status == 0
            Path(file).write_text(out)
    return semrecall_main


def test_queries_are_compared_one_by_one(results):
    found = diff("before.json", "after.json")
    [row] = found.rows
    # 27 of 32 before, 22 of 32 after.
    assert (row.before, row.after, row.n) == (27 / 32, 22 / 32, 8)
    assert row.difference == pytest.approx(-5 / 32)
    # One query gained, five lost.
    assert (row.wins, row.losses) == (1, 5)
    assert row.worse
    compared = sr.compare(
        {"a": run(BEFORE), "b": run(AFTER)}, ["recall@4"], truth=sr.read("truth.parquet"),
        baseline="a",
    )  # fmt: skip
    [same] = compared.rows
    assert (row.low, row.high, row.p) == (same.low, same.high, same.p)
    # q6 lost two; the others one each, in the order of their ids.
    assert [w.query for w in found.worsened(row, 3)] == ["q6", "q2", "q3"]
    assert found.worsened(row, 1)[0].before == 0.75


def test_means_alone_are_not_tested(results):
    [row] = diff("before-means.json", "after.json").rows
    assert not row.paired
    assert math.isnan(row.p)
    assert row.difference == pytest.approx(-5 / 32)
    status, out, _ = results("diff", "before-means.json", "after-means.json")
    assert status == 0
    assert "without values per query nothing can be tested" in out


def test_only_common_queries_count(results):
    whole = json.loads(Path("after.json").read_text())
    whole["per_query"] = whole["per_query"][:4]
    Path("after.json").write_text(json.dumps(whole))
    [row] = diff("before.json", "after.json").rows
    # 16 of 16 and 14 of 16.
    assert (row.n, row.before, row.after) == (4, 1.0, 14 / 16)


def test_the_command_in_every_format(results):
    status, out, _ = results("diff", "before.json", "after.json")
    assert status == 0
    assert "1 of 1 mean changed" in out
    assert "recall@4 of ivf: 5 queries got worse, most of all" in out
    assert "q6: 0.7500 to 0.2500" in out
    assert max(map(len, out.splitlines())) <= 100
    whole = json.loads(results("diff", "before.json", "after.json", "--format", "json")[1])
    assert whole["rows"][0]["worsened"][0] == {"query": "q6", "before": 0.75, "after": 0.25}
    csv = results("diff", "before.json", "after.json", "--format", "csv")[1].splitlines()
    assert csv[0].startswith("run,measure,was,n,before,after,difference,low,high,p,")
    shown = results("diff", "before.json", "after.json", "--format", "markdown")[1]
    assert "| ivf | recall@4 | 0.8438 | 0.6875 | -0.1562 |" in shown
    assert results("diff", "before.json", "after.json", "--html", "d.html")[0] == 0
    page = Path("d.html").read_text()
    assert "<h1>before.json to after.json: 1 of 1 mean changed" in page
    assert "http" not in page


def test_what_is_surely_worse_fails_the_command(results):
    assert results("diff", "before.json", "after.json", "--fail-if-worse")[0] == 0
    status, _, err = results(
        "diff", "before.json", "after.json", "--fail-if-worse", "--confidence", "0.5"
    )
    assert status == 1
    assert "failed: recall@4 of ivf is 0.6875, was 0.8438 (-0.1562)" in err
    # The other way round it is better.
    assert results(
        "diff", "after.json", "before.json", "--fail-if-worse", "--confidence", "0.5"
    )[0] == 0  # fmt: skip


def test_runs_go_together_by_name_or_as_said(results):
    both = {"a": run(BEFORE, "a"), "b": run(AFTER, "b")}
    truth = sr.read("truth.parquet")
    sr.compare(both, ["recall@4"], truth=truth).save("one.json")
    sr.compare({"b": both["b"], "c": both["a"]}, ["recall@4"], truth=truth).save("two.parquet")
    found = diff("one.json", "two.parquet")
    assert [(row.was, row.run, row.difference) for row in found.rows] == [("b", "b", 0.0)]
    assert (found.gone, found.fresh) == (("a",), ("c",))
    found = diff("one.json", "two.parquet", pairs={"a": "c"})
    assert [(row.was, row.run) for row in found.rows] == [("a", "c"), ("b", "b")]
    status, out, _ = results("diff", "one.json", "two.parquet", "--pair", "a=c")
    assert (status, "a -> c" in out) == (0, True)
    # Names hold "=" of their own, on one side or both.
    plain = {"hnsw": both["a"], "hnsw ef=8": both["b"]}
    sr.compare(plain, ["recall@4"], truth=truth).save("old.json")
    tuned = {"hnsw ef=16": both["a"], "x=1=2": both["b"]}
    sr.compare(tuned, ["recall@4"], truth=truth).save("new.json")
    named = ["--pair", "hnsw=hnsw ef=16", "--pair", "hnsw ef=8=x=1=2"]
    status, out, _ = results("diff", "old.json", "new.json", *named, "--format", "json")
    rows = json.loads(out)["rows"]
    assert [(r["was"], r["run"]) for r in rows] == [("hnsw", "hnsw ef=16"), ("hnsw ef=8", "x=1=2")]
    status, _, err = results("diff", "old.json", "new.json", "--pair", "hnsw ef=16=y")
    assert (status, "is not BEFORE=AFTER, with a run on either side" in err) == (2, True)
    with pytest.raises(InputError, match="no run 'x'"):
        diff("one.json", "two.parquet", pairs={"x": "c"})
    sr.compare({"x": both["b"], "y": both["a"]}, ["recall@4"], truth=truth).save("three.json")
    with pytest.raises(MismatchError, match="no run in common: a, b and x, y"):
        diff("one.json", "three.json")
    # Two single runs go together whatever they are called.
    assert diff("before.json", "after.json").rows[0].was == "ivf"


def test_files_that_are_no_results(results, tmp_path):
    Path("x.json").write_text("[1, 2]")
    Path("y.parquet").write_text("no")
    Path("empty").mkdir()
    for name in ("x.json", "y.parquet", "truth.parquet"):
        with pytest.raises(FormatError, match=name):
            read_results(name)
    with pytest.raises(InputError, match=r"empty has no manifest\.json"):
        read_results("empty")
    status, _, err = results("diff", "before.json", "x.json")
    assert (status, "Traceback" in err) == (2, False)


def test_folders_tell_settings_data_and_versions(tmp_path, monkeypatch, semrecall_main):
    rng = np.random.default_rng(1)
    np.save("base.npy", rng.standard_normal((40, 4), dtype=np.float32))
    np.save("queries.npy", rng.standard_normal((6, 4), dtype=np.float32))
    file = (
        '[data]\nbase = "base.npy"\nqueries = "queries.npy"\nspace = "l2"\nk = 4\n'
        '[systems.exact]\nspec = "exact"\n[measures]\nnames = ["recall@4"]\n'
    )
    Path("semrecall.toml").write_text(file)
    run_experiment()
    Path("results").rename("old")
    np.save("base.npy", rng.standard_normal((41, 4), dtype=np.float32))
    Path("semrecall.toml").write_text(file.replace("k = 4", "k = 5") + "seed = 3\n")
    run_experiment()
    manifest = json.loads(Path("old/manifest.json").read_text())
    manifest["steps"]["truth"]["made"]["numpy"] = "1.0"
    Path("old/manifest.json").write_text(json.dumps(manifest))
    found = diff("old", "results")
    assert found.settings == (("data.k", 4, 5), ("measures.seed", None, 3))
    assert found.data == (("base base.npy", "other content"),)
    assert found.made == (("truth: numpy", "1.0", np.__version__),)
    out = semrecall_main("diff", "old", "results/manifest.json")[1]
    assert "none of 1 mean changed" in out
    assert "  data.k: 4 to 5" in out
    assert "  base base.npy: other content" in out
