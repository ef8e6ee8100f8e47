"""Experiments: what a file may say, what is done again and why, and what a failure leaves."""

from __future__ import annotations

import hashlib
import json
import os
import textwrap
from html import escape
from pathlib import Path

import numpy as np
import pytest

import semrecall as sr
from semrecall.errors import FormatError, InputError
from semrecall.experiment import read_experiment, run_experiment
from semrecall.experiment.lines import key_lines
from semrecall.experiment.manifest import Manifest
from semrecall.experiment.work import run_file

FUNCTION = """
    import numpy as np

    base = np.load("base.npy")

    def search(vectors, k, ef=1):
        # The last `skip` of the neighbours are lost, fewer with a larger ef.
        best = np.argsort(-(vectors @ base.T), axis=1, kind="stable")[:, :k]
        return best[:, : max(1, k - 4 // ef)].tolist()

    def broken(vectors, k):
        raise RuntimeError("out of order")
"""
FILE = """
    name = "trial"

    [data]
    base = "base.npy"
    queries = "queries.npy"
    space = "ip"
    k = 8
    columns = "columns.csv"

    [systems.exact]
    spec = "exact"

    [systems.mine]
    spec = "python:EXPERIMENT_MODULE:search?takes=vectors&space=ip&knobs=ef:1:4"
    settings = { ef = [1, 2] }
    search_again = false

    [measures]
    names = ["recall@8"]
    by = ["lang"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """A working folder with vectors, a function that searches, and semrecall.toml."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    np.save("base.npy", rng.standard_normal((60, 6), dtype=np.float32))
    np.save("queries.npy", rng.standard_normal((12, 6), dtype=np.float32))
    rows = [f"{n},{'th' if n % 3 == 0 else 'en'}" for n in range(12)]
    Path("columns.csv").write_text("\n".join(["query_id,lang", *rows]) + "\n")
    # A module is imported once in a process: each test has one of its own.
    module = f"function_of_{abs(hash(request.node.name))}"
    Path(f"{module}.py").write_text(textwrap.dedent(FUNCTION))
    monkeypatch.setenv("EXPERIMENT_MODULE", module)
    monkeypatch.syspath_prepend(tmp_path)
    write(FILE)
    return tmp_path


def write(text: str, *more: str) -> None:
    whole = "\n".join(textwrap.dedent(part) for part in (text, *more))
    whole = whole.replace("EXPERIMENT_MODULE", os.environ["EXPERIMENT_MODULE"])
    Path("semrecall.toml").write_text(whole, encoding="utf-8")


def states(outcome):
    return {done.name: done.state for done in outcome.steps}


def why(outcome):
    return {done.name: done.reason for done in outcome.steps if done.state in ("made", "to do")}


# -- the file -------------------------------------------------------------------------------------


def test_lines_of_keys_are_known():
    text = 'a = 1\n[data] # x\n  "base" = 2\nc.d = 3\n[[gates]]\nx = 1\n[[gates]]\ny = 2\n'
    assert key_lines(text) == {
        ("a",): 1, ("data",): 2, ("data", "base"): 3, ("data", "c"): 4, ("data", "c", "d"): 4,
        ("gates",): 5, ("gates", 0): 5, ("gates", 0, "x"): 6, ("gates", 1): 7,
        ("gates", 1, "y"): 8,
    }  # fmt: skip


def test_every_fault_is_told_at_once_with_its_line(folder):
    write(
        """
        [data]
        base = "bsae.npy"
        qeries = "queries.npy"
        space = "euclid"
        [systems.a]
        spec = "exakt"
        [systems.b]
        spec = "exact"
        run = "x"
        [measures]
        names = ["recal@8", "srecall@8", "recall@8"]
        by = ["lang"]
        [[gates]]
        measure = "recall@8"
        [[gates]]
        measure = "recall@8"
        at_least = "much"
        system = "c"
        [[gates]]
        measure = "recall@8"
        at_least = 95
        """
    )
    with pytest.raises(InputError) as error:
        read_experiment()
    lines = error.value.message.splitlines()
    assert lines[0].startswith("semrecall.toml: ")
    said = "\n".join(lines)
    for line in (
        "line 3: base is 'bsae.npy'; expected a file that exists",
        "line 4: unknown key 'qeries' in [data]; did you mean queries or query_ids?",
        "line 7: spec: unknown system 'exakt' (did you mean exact?)",
        "line 8: [systems.b] has spec and run; expected one of them",
        "line 14: a gate without a limit; expected at_least, at_most or not_worse_than",
        "line 18: at_least is 'much'; expected a number",
        "line 19: unknown system 'c'",
        "line 22: at_least: 95 is above 1, the most recall@8 can be; write 0.95",
    ):
        assert f"  {line}" in said
    assert "recal@8" in said
    assert "space" in said
    numbers = [int(line.split()[1].rstrip(":")) for line in lines[1:] if " line " in line]
    assert numbers == sorted(numbers)


def test_what_does_not_go_together_is_told_too(folder):
    write(FILE.replace('"recall@8"', '"recall@8", "srecall@8"').replace("columns =", "# columns ="))
    with pytest.raises(InputError) as error:
        read_experiment()
    assert error.value.message.splitlines()[1:] == [
        "  line 20: srecall@8 needs [judgments]",
        "  line 21: by needs the columns of the queries: columns in [data]",
    ]


def test_a_file_that_is_no_toml_or_not_there(folder):
    Path("bad.toml").write_text("[data\n")
    with pytest.raises(InputError, match=r"bad\.toml is no TOML: .* line 1"):
        read_experiment("bad.toml")
    with pytest.raises(InputError, match=r"there is no other\.toml"):
        read_experiment("other.toml")


def test_the_starter_is_a_right_file(folder, semrecall_main):
    pytest.importorskip("faiss", reason="needs faiss")
    Path("semrecall.toml").unlink()
    status, _, err = semrecall_main("run", "--init")
    assert (status, "wrote semrecall.toml" in err) == (0, True)
    found = read_experiment()
    assert found.run_names == ("hnsw efSearch=16", "hnsw efSearch=64")
    assert semrecall_main("run", "--init")[0] == 2
    # What stands there as an example is right, too.
    text = Path("semrecall.toml").read_text()
    lines = [
        line.removeprefix("# ") if line.startswith("# ") else line for line in text.splitlines()
    ]
    body = "\n".join(line for line in lines if "=" in line or line.startswith("["))
    for name in ("docs.jsonl", "queries.jsonl", "queries.csv", "docs.parquet", "old.parquet",
                 "base-ids.txt", "query-ids.txt", "baseline", "labels.parquet"):  # fmt: skip
        Path(name).write_text("")
    Path("semrecall.toml").write_text(body.replace('file = "labels.parquet"', ""))
    assert read_experiment().judgments.options["model"] == "gpt-5-mini"


# -- what is done again ---------------------------------------------------------------------------


def test_twice_does_nothing_the_second_time(folder):
    first = run_experiment()
    assert set(states(first).values()) == {"made"}
    assert first.status == 0
    # Of 8 neighbours 4 // ef are lost.
    assert [(m.run, m.mean) for m in first.means if not m.column] == [
        ("exact", 1.0), ("mine ef=1", 0.5), ("mine ef=2", 0.75),
    ]  # fmt: skip
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    os.utime("base.npy")
    second = run_experiment()
    assert set(states(second).values()) == {"up to date"}
    assert second.means == first.means
    after = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    assert {p.name for p in before if before[p] != after.get(p)} <= {".hashes.json"}


def test_a_dry_run_says_what_would_be_done_and_why(folder):
    assert set(why(run_experiment(dry_run=True)).values()) == {"not made yet"}
    assert not Path("results").exists()
    run_experiment()
    np.save("base.npy", np.load("base.npy")[::-1].copy())
    found = run_experiment(dry_run=True)
    assert why(found)["truth"] == "base base.npy changed"
    assert "base base.npy changed" in why(found)["scores"]
    assert set(why(run_experiment(dry_run=True))) == set(states(found))


def test_only_what_an_option_touches_is_done(folder):
    run_experiment()
    write(FILE.replace("ef = [1, 2]", "ef = [1, 4]"))
    found = run_experiment()
    assert list(why(found)) == ["run mine ef=4", "scores"]
    assert why(found)["scores"].startswith(
        "runs/mine-ef=4.parquet is new; runs/mine-ef=2.parquet is no longer given; "
    )
    # What the experiment has no more is taken away with what it made.
    assert not Path("results", run_file("mine ef=2")).exists()
    assert Path("results", run_file("mine ef=4")).exists()
    write(FILE.replace("ef = [1, 2]", "ef = [1, 4]").replace("recall@8", "recall@4"))
    assert list(why(run_experiment())) == ["scores"]


def test_an_output_that_is_gone_or_touched_is_made_again(folder):
    run_experiment()
    Path("results/truth.parquet").unlink()
    Path("results", run_file("exact")).write_bytes(b"x")
    found = why(run_experiment())
    assert found == {
        "truth": "truth.parquet is gone",
        "run exact": "runs/exact.parquet was changed since",
    }


def test_the_module_of_a_function_counts(folder):
    run_experiment()
    [module] = Path().glob("function_of_*.py")
    module.write_text(module.read_text() + "\n# changed\n")
    assert why(run_experiment()) == {
        "run mine ef=1": f"function {module.name} changed",
        "run mine ef=2": f"function {module.name} changed",
    }


def test_what_cannot_be_seen_is_searched_each_time_and_goes_no_further(folder):
    write(FILE.replace("search_again = false", ""))
    run_experiment()
    found = run_experiment()
    assert why(found) == {
        "run mine ef=1": "what it holds cannot be seen",
        "run mine ef=2": "what it holds cannot be seen",
    }
    assert states(found)["scores"] == "up to date"


def test_forced_steps(folder):
    run_experiment()
    assert list(why(run_experiment(force=["mine", "scores"]))) == [
        "run mine ef=1", "run mine ef=2", "scores",
    ]  # fmt: skip
    assert len(why(run_experiment(force=["all"]))) == 5
    with pytest.raises(InputError, match="no step 'runz' to force"):
        run_experiment(force=["runz"])


# -- what a failure leaves ------------------------------------------------------------------------

BROKEN = """
    [systems.broken]
    spec = "python:EXPERIMENT_MODULE:broken?takes=vectors&space=ip"
"""


def test_a_step_that_fails_does_not_lose_the_others(folder, semrecall_main):
    write(FILE, BROKEN)
    status, out, err = semrecall_main("run", "--junit", "out.xml")
    assert status == 2
    assert "error: run broken: " in err
    assert "out of order" in err
    assert "Traceback" not in err
    assert "mine ef=2" in out
    assert 'errors="1"' in Path("out.xml").read_text()
    # Its results come to the others when it works.
    write(FILE)
    assert states(run_experiment())["scores"] == "up to date"


def test_steps_that_need_a_failed_one_wait(folder):
    write(FILE.replace('"columns.csv"', '"columns.csv"\n    filter = "lang =="'))
    found = run_experiment()
    assert states(found)["truth"] == "failed"
    assert states(found)["scores"] == "waits"
    assert states(found)["run exact"] == "made"
    assert found.status == 2


def test_ctrl_c_leaves_what_is_finished(folder, monkeypatch):
    from semrecall.experiment import work

    real = work.search

    def interrupted(system, **given):
        if given.get("ef") == 2:
            raise KeyboardInterrupt
        return real(system, **given)

    monkeypatch.setattr(work, "search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment()
    assert list(Manifest.read(Path("results")).steps) == ["truth", "run exact", "run mine ef=1"]
    monkeypatch.setattr(work, "search", real)
    assert list(why(run_experiment())) == ["run mine ef=2", "scores"]


def test_a_manifest_of_something_else_is_refused(folder):
    Path("results").mkdir()
    Path("results/manifest.json").write_text('{"kind": "other"}')
    with pytest.raises(FormatError, match="no manifest of results"):
        run_experiment()
    write('results = "columns.csv"', FILE)
    with pytest.raises(InputError, match=r"results is columns\.csv, which is a file"):
        run_experiment()


def test_names_that_no_file_may_have_stay_apart():
    names = ["a b", "a/b", "a:b", "ก ข", "x" * 300, "x" * 301, "..", "a-b"]
    files = [run_file(name) for name in names]
    assert len(set(files)) == len(files) - 1  # "a b" and "a-b", refused together below
    assert all(name.count("/") == 1 and len(name) < 110 for name in files)


# -- gates ----------------------------------------------------------------------------------------

GATES = """
    [[gates]]
    measure = "recall@8"
    at_least = 0.7

    [[gates]]
    measure = "recall@8"
    system = "mine ef=2"
    at_least = 0.8
    slice = { lang = "th" }

    [[gates]]
    cost = "latency_p99_seconds"
    system = "mine"
    at_most = 60

    [[gates]]
    measure = "rde@8"
    system = "exact"
    at_most = 0
    confident = true
"""


def test_gates_decide_the_exit_status(folder, semrecall_main, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    write(FILE, GATES)
    status, out, err = semrecall_main("run", "--junit", "out.xml", "--summary", "s.md")
    assert status == 1
    assert "failed: recall@8 of mine ef=1 is 0.5, under 0.7" in err
    assert "failed: recall@8 of mine ef=2 where lang is th is 0.75, under 0.8" in err
    # Line 29 of the file: the second gate.
    at = Path("semrecall.toml").read_text().splitlines().index("at_least = 0.8") - 1
    assert f"::error file=semrecall.toml,line={at - 1}::recall@8 of mine ef=2 where" in err
    assert out.count("passed") == 5
    assert out.count("FAILED") == 2
    xml = Path("out.xml").read_text()
    assert 'name="gates" tests="7" failures="2"' in xml
    assert 'name="steps" tests="5" failures="0" errors="0"' in xml
    summary = Path("s.md").read_text()
    assert summary.startswith("## trial: 2 of 7 gates failed")
    assert "| mine ef=1 | 0.5000 |" in summary
    kept = json.loads(Path("results/manifest.json").read_text())["gates"]
    assert [gate["passed"] for gate in kept].count(False) == 2


def test_results_in_every_format(folder, semrecall_main):
    write(FILE, GATES)
    found = json.loads(semrecall_main("run", "--format", "json")[1])
    assert found["status"] == 1
    assert {row["step"] for row in found["steps"]} >= {"truth", "scores"}
    assert len(found["gates"]) == 7
    rows = semrecall_main("run", "--format", "csv")[1].splitlines()
    assert rows[0] == "run,measure,column,group,mean,low,high,n"
    assert "mine ef=1,recall@8,lang,th,0.5,0.5,0.5,4" in rows
    assert "| mine ef=1 |" in semrecall_main("run", "--format", "markdown")[1]
    heads, row = (line.split("|") for line in semrecall_main("run", "--format", "markdown")[1]
                  .splitlines()[:3:2])  # fmt: skip
    seconds = {c["run"]: c["value"] for c in found["costs"] if c["cost"] == "latency_p99_seconds"}
    shown = float(row[heads.index(" p99 ms ")])
    assert shown == pytest.approx(1000 * seconds[row[1].strip()], rel=0.01, abs=1e-4)
    assert max(map(len, semrecall_main("run")[1].splitlines())) <= 100


def test_not_worse_than_kept_results(folder):
    run_experiment()
    Path("results").rename("baseline")
    gate = '[[gates]]\nmeasure = "recall@8"\nnot_worse_than = "baseline"\n'
    write(FILE, gate)
    assert run_experiment().status == 0
    [module] = Path().glob("function_of_*.py")
    write(FILE.replace("ef=1:4", "ef=1:4").replace("search?", "worse?"), gate)
    module.write_text(
        module.read_text()
        + "\ndef worse(vectors, k, ef=1):\n    return [row[:3] for row in search(vectors, k, ef)]\n"
    )
    import importlib
    import sys

    importlib.reload(sys.modules[module.stem])
    found = run_experiment()
    assert found.status == 1
    messages = [verdict.message for verdict in found.gates if not verdict.passed]
    # 3/8 found of 4/8, and of 6/8, for every query.
    assert messages[0].startswith("recall@8 of mine ef=1 is worse: 0.5 before, 0.375 now (-0.125")
    assert len(messages) == 2
    write(FILE.replace("search?", "worse?"), gate + "margin = 0.4\n")
    assert run_experiment().status == 0


def test_gates_of_what_was_not_measured_fail(folder):
    write(FILE, BROKEN, '[[gates]]\nmeasure = "recall@8"\nsystem = "broken"\nat_least = 0\n')
    found = run_experiment()
    assert [verdict.message for verdict in found.gates] == ["recall@8 of broken was not measured"]


# -- judges, files, comparison, report ----------------------------------------------------------

JUDGED = """
    [judgments]
    judge = "llm"
    model = "m"
    base_url = "URL"
    canaries = 0
    max_requests = CAP
"""


def test_a_judge_that_stops_is_resumed(folder, monkeypatch):
    pytest.importorskip("aiohttp", reason="needs the extra llm")
    from chat_server import ChatServer

    monkeypatch.setenv("OPENAI_API_KEY", "k")
    texts = [json.dumps({"id": n, "text": f"grade:{n % 2}"}) for n in range(60)]
    Path("docs.jsonl").write_text("\n".join(texts))
    Path("queries.jsonl").write_text(
        "\n".join(json.dumps({"id": n, "text": f"question {n}"}) for n in range(12))
    )
    file = FILE.replace(
        "k = 8", 'k = 8\n    corpus = "docs.jsonl"\n    query_texts = "queries.jsonl"'
    )
    file = file.replace('["recall@8"]', '["recall@8", "srecall@8"]')
    with ChatServer(thread=True) as server:
        judged = JUDGED.replace("URL", server.url)
        write(file, judged.replace("CAP", "20"))
        found = run_experiment()
        assert found.status == 3
        assert states(found)["judgments"] == "stopped"
        # What needs no labels is there.
        assert {mean.measure for mean in found.means} == {"recall@8"}
        write(file, judged.replace("CAP", "1000"))
        found = run_experiment()
        assert found.status == 0
        assert {mean.measure for mean in found.means} == {"recall@8", "srecall@8"}
        # 12 queries of 8 neighbours; the first 20 calls were kept. Equal texts are asked once.
        calls = server.log()["count"]
        assert calls <= 96
        assert set(states(run_experiment()).values()) == {"up to date"}
        assert server.log()["count"] == calls
    labels = sr.read("results/judgments.parquet")
    assert len(labels) == 96


def test_files_of_labels_and_runs_comparison_and_report(folder):
    pytest.importorskip("matplotlib", reason="needs the extra report")
    run_experiment()
    truth = sr.read("results/truth.parquet")
    grades = {q: {d: d % 2 for d in row} for q, row in zip(truth.query_ids, truth.ids, strict=True)}
    sr.write(sr.Judgments.from_dict(grades), "labels.parquet")
    write(
        FILE.replace('names = ["recall@8"]', 'names = ["recall@8", "srecall@8"]'),
        f"""
        [systems.kept]
        run = "{Path("results", run_file("mine ef=1"))}"
        [judgments]
        file = "labels.parquet"
        [comparison]
        baseline = "kept"
        [report]
        title = "ผลการค้นหา"
        """,
    )
    found = run_experiment()
    assert found.status == 0, [done.error for done in found.steps]
    means = {(m.run, m.measure): m.mean for m in found.means if not m.column}
    assert means["kept", "recall@8"] == means["mine ef=1", "recall@8"] == 0.5
    assert "ผลการค้นหา" in Path("results/report.html").read_text(encoding="utf-8")
    from semrecall.evaluate import Comparison

    assert Comparison.load("results/comparison.json").baseline == "kept"
    assert set(states(run_experiment()).values()) == {"up to date"}


PAGE = """
    [comparison]
    [[gates]]
    measure = "recall@8"
    at_least = 0.6
    [[gates]]
    cost = "distance_computations"
    at_most = 1e9
    system = "exact"
    [report]
"""


def test_the_page_has_gates_costs_and_the_comparison(folder):
    pytest.importorskip("matplotlib", reason="needs the extra report")
    write(FILE, PAGE)
    found = run_experiment()
    assert found.status == 1
    html = Path("results/report.html").read_text(encoding="utf-8")
    # The run with ef=1 has half of the neighbours, the one with ef=2 three quarters.
    assert "<p>1 of 4 gates failed.</p>" in html
    [failed] = [verdict for verdict in found.gates if not verdict.passed]
    assert escape(failed.message) in html
    assert "What a query costs" in html
    assert "<td>60</td>" in html  # distances of exact search over 60 rows
    assert "How the runs compare" in html
    # Up to date until a gate is another.
    assert set(states(run_experiment()).values()) == {"up to date"}
    write(FILE, PAGE.replace("0.6", "0.4"))
    assert list(why(run_experiment())) == ["report"]
    html = Path("results/report.html").read_text(encoding="utf-8")
    assert "<p>Every gate passed.</p>" in html
    # Or the costs are, as searched once more.
    assert "report" in why(run_experiment(force=["run exact"]))


def test_what_to_do_next_speaks_of_the_run_to_take(folder):
    pytest.importorskip("faiss", reason="needs the extra faiss")
    pytest.importorskip("matplotlib", reason="needs the extra report")
    rng = np.random.default_rng(3)
    np.save("base.npy", rng.standard_normal((600, 6), dtype=np.float32))
    ivf = """[systems.ivf]
    spec = "faiss?factory=IVF8,Flat"
    build = { seed = 7 }
    settings = { nprobe = [1, 4, 8] }
"""
    measures = FILE[FILE.index("[measures]") :]
    text = FILE[: FILE.index("[systems.exact]")] + ivf + "\n    " + measures
    gate = """
        [[gates]]
        measure = "recall@8"
        at_least = 0.85
        [report]
    """
    write(text, gate)
    outcome = run_experiment()
    passed = [verdict.run for verdict in outcome.gates if verdict.passed]
    assert passed == ["ivf nprobe=4", "ivf nprobe=8"]
    html = Path("results/report.html").read_text(encoding="utf-8")
    # The headline praises the best; the advice is about the cheapest that passes.
    assert "Of 3 runs ivf nprobe=8 loses" in html
    assert "About ivf nprobe=4, the cheapest that passes every gate:" in html
    assert "The setting for it: ivf nprobe=4." in html
    assert "of ivf nprobe=4" in html[html.index("Worst queries") :]
    # Without gates by the usual target; where none is good enough, that is said.
    write(text, "[report]\n")
    run_experiment()
    html = Path("results/report.html").read_text(encoding="utf-8")
    assert "the cheapest with recall@8 of 0.95 or more" in html
    write(text.replace("[1, 4, 8]", "[1, 2]"), gate)
    run_experiment()
    html = Path("results/report.html").read_text(encoding="utf-8")
    assert "No run passes every gate." in html
    assert "About ivf nprobe=2, the one with the highest recall@8:" in html


def test_the_page_says_how_to_make_it_again(folder):
    faiss = pytest.importorskip("faiss", reason="needs the extra faiss")
    pytest.importorskip("matplotlib", reason="needs the extra report")
    truth = sr.truth("base.npy", "queries.npy", k=8, space="ip")
    grades = {q: dict.fromkeys(row, 1) for q, row in zip(truth.query_ids, truth.ids, strict=True)}
    sr.write(sr.Judgments.from_dict(grades), "labels.parquet")
    write(
        FILE.replace('spec = "exact"', 'spec = "faiss?factory=HNSW8"\n    build = { seed = 7 }'),
        """
        [judgments]
        file = "labels.parquet"
        [report]
        """,
    )
    run_experiment()
    html = Path("results/report.html").read_text(encoding="utf-8")
    for name, file in (
        ("base", "base.npy"), ("queries", "queries.npy"), ("columns", "columns.csv"),
        ("judgments", "labels.parquet"), ("experiment", "semrecall.toml"),
    ):  # fmt: skip
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        assert f"<dt>{name}</dt><dd>{file}, sha256 {digest}</dd>" in html
    module = f"{os.environ['EXPERIMENT_MODULE']}.py"
    assert f"<dt>function of mine</dt><dd>{module}, sha256 " in html
    version = sr.__version__
    assert f"pip install &quot;semrecall[faiss,report]=={version}&quot;\nsemrecall run " in html
    assert f"faiss {faiss.__version__}" in html
    assert "faiss?factory=HNSW8, build seed 7" in html
    assert "<dt>search of mine ef=2</dt><dd>ef 2, k 8, 12 queries</dd>" in html
    # A file that is named with its hash is an input of the page.
    Path("columns.csv").write_text(Path("columns.csv").read_text() + "99,en\n")
    assert "report" in why(run_experiment())


def test_faiss_is_built_once_for_all_settings(folder, monkeypatch):
    faiss = pytest.importorskip("semrecall.systems.faiss")
    pytest.importorskip("faiss", reason="needs the extra faiss")
    built = []
    real = faiss.FaissSystem.build
    monkeypatch.setattr(
        faiss.FaissSystem, "build", lambda *a, **k: built.append(1) or real(*a, **k)
    )
    write(
        FILE.replace('"exact"', '"faiss?factory=HNSW8"', 1).replace(
            "[systems.mine]", "settings = { efSearch = [8, 64] }\n    [systems.mine]"
        )
    )
    found = run_experiment()
    means = {m.run: m.mean for m in found.means if not m.column}
    assert means["exact efSearch=64"] == 1.0
    assert len(built) == 1
    # One more setting builds it again and searches that one alone.
    write(Path("semrecall.toml").read_text().replace("[8, 64]", "[8, 16, 64]"))
    assert list(why(run_experiment())) == ["run exact efSearch=16", "scores"]
