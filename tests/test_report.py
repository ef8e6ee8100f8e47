"""The report: one file that asks for nothing, escapes everything, and answers first."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import semrecall
from semrecall.data import Judgments, Run
from semrecall.errors import MissingExtra
from semrecall.evaluate import evaluate
from semrecall.report import headline, html_report
from semrecall.report.charts import Column, distributions
from semrecall.report.headline import percent

N, K = 60, 10


def parts(seed: int = 0, lost: float = 0.15, names: str = "d{}"):
    """Exact neighbours, results that lack a share of them, and labels."""
    rng = np.random.default_rng(seed)
    ids = np.arange(N * K).reshape(N, K)
    scores = np.tile(np.linspace(1, 0.5, K), (N, 1))

    def named(matrix):
        return [[names.format(i) for i in row] for row in matrix.tolist()]

    queries = [f"q{i}" for i in range(N)]
    exact = Run.from_arrays(named(ids), scores, query_ids=queries, space="ip", k=K)
    missed = np.where(rng.random((N, K)) < lost, 10_000 + ids, ids)
    found = Run.from_arrays(named(missed), scores, query_ids=queries, space="ip", k=K, name="ivf")
    relevant = np.arange(K) < (np.arange(N) % 11)[:, None]
    grades = {
        q: {d: float(g) for d, g in zip(row, marks, strict=True)}
        for q, row, marks in zip(queries, named(ids), relevant.tolist(), strict=True)
    }
    return exact, found, Judgments.from_dict(grades)


MEASURES = ["recall@10", "srecall@10", "trecall(x=1%)@10"]


@pytest.fixture(scope="module")
def full():
    exact, found, labels = parts()
    codes = parts(lost=0.05)[1]
    columns = {"query_id": [f"q{i}" for i in range(N)], "lang": ["en", "th"] * (N // 2)}
    return evaluate(
        found, MEASURES, truth=exact, judgments=labels, codes=codes, columns=columns,
        by=["sn", "lang"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(full):
    return html_report(full, command="semrecall score run.parquet")


class Checker(HTMLParser):
    """Collects ids and addresses, and checks that elements close in order."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.addresses, self.elements = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [v for k, v in attrs if k in ("src", "href", "xlink:href", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def test_the_page_is_well_formed_and_asks_for_nothing(page):
    found = checked(page)
    assert len(found.ids) == len(set(found.ids))
    assert all(a.startswith("#") and a[1:] in found.ids for a in found.addresses)
    assert not {"script", "link", "img", "iframe", "object"} & set(found.elements)
    # The only addresses are the names of the SVG vocabularies.
    urls = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert urls <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"@import|url\((?!#)", page)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(found.ids)
    assert len(page.encode()) < 3_000_000


def test_the_page_has_all_its_parts(page):
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert heads == [
        "What to do next",
        "Where relevant documents are lost",
        "Summary",
        "Values of single queries",
        "Semantic neighbours per query",
        "What quantisation loses, and the search",
        "How much tolerance",
        "Do scores tell what is relevant?",
        "By number of semantic neighbours among the exact 10 (sn)",
        "By lang",
        "Worst queries",
        "How this was made",
    ]
    assert page.count("<svg") == 11
    assert page.count("<title") == page.count("<desc") + 1 == 12
    assert "semrecall score run.parquet" in page
    assert "seed 0" in page
    # Queries 0, 11, 22, 33, 44 and 55 have no relevant neighbour.
    assert "left out of srecall@10: 6 " in page


def test_charts_take_their_colours_from_the_page(page):
    for drawing in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        assert not re.search(r"#[0-9a-fA-F]{6}\b", drawing)
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", page))
    light, dark = page.split("prefers-color-scheme: dark", 1)
    defined = set(re.findall(r"(--[a-z0-9-]+):", light))
    assert used <= defined
    assert defined == set(re.findall(r"(--[a-z0-9-]+):", dark.split("body {")[0]))


def test_the_same_input_gives_the_same_bytes(full, page):
    assert html_report(full, command="semrecall score run.parquet") == page


def test_the_same_bytes_in_another_process(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_report as t\n"
        "exact, found, labels = t.parts()\n"
        "t.evaluate(found, t.MEASURES, truth=exact, judgments=labels).to_html(sys.argv[2])"
    )
    pages = []
    for salt in ("1", "2"):
        path = tmp_path / f"{salt}.html"
        subprocess.run(
            [sys.executable, "-c", code, str(__file__).rpartition("/")[0], str(path)],
            check=True,
            env={"PYTHONHASHSEED": salt, "PATH": "/usr/bin:/bin"},
        )
        pages.append(path.read_bytes())
    assert pages[0] == pages[1]


NASTY = "<script>alert('x')</script> & \"q\" $a_b$ {}"


def test_every_text_is_escaped():
    exact, found, labels = parts(names=NASTY)
    columns = {"query_id": ["q1", "q2"], "<b>lang</b>": ["<i>en</i>", "$x^2$ \x07 日本"]}
    result = evaluate(
        {NASTY: found, "other": exact}, MEASURES, truth=exact, judgments=labels, columns=columns,
        by=["<b>lang</b>"],
    )  # fmt: skip
    page = html_report(
        result,
        query_texts={"q1": NASTY},
        document_texts={NASTY.format(i): NASTY for i in range(600)},
        command=NASTY,
    )
    found_elements = set(checked(page).elements)
    assert not {"script", "b", "i"} & found_elements
    assert "&lt;script&gt;" in page
    checked(html_report(result, title=NASTY))
    # One run: groups stand in the charts.
    alone = evaluate(found, MEASURES, truth=exact, judgments=labels, columns=columns,
                     by=["<b>lang</b>", "sn"])  # fmt: skip
    checked(html_report(alone))


def test_a_dollar_is_a_dollar_and_foreign_letters_are_kept():
    drawing = distributions("t", "a", [Column("$x^2$ 日本", np.array([0.5, 1.0]))], 0, 0.0)
    assert ">$x^2$ 日本</text>" in drawing


def test_several_runs_stand_side_by_side_in_the_charts():
    exact, found, labels = parts()
    runs = {"ivf": found, "exact": exact}
    page = html_report(evaluate(runs, MEASURES, truth=exact, judgments=labels))
    assert "ivf: mean" in page
    assert "exact: mean 1.000" in page


@pytest.mark.parametrize(
    ("measures", "use"),
    [
        (["recall@10"], {"truth"}),
        (["nDCG@10", "R@10"], {"judgments"}),
        (["rde@10"], {"truth"}),
        (["srecall@10"], {"truth", "judgments"}),
    ],
)
def test_any_measures_make_a_page(measures, use):
    exact, found, labels = parts()
    given = {"truth": exact, "judgments": labels}
    page = html_report(evaluate(found, measures, **{k: given[k] for k in use}))
    checked(page)


def test_a_result_without_values_makes_a_page():
    exact, found, labels = parts()
    none = labels.replace(grades=np.zeros(len(labels)))
    result = evaluate(found, ["srecall@10", "recall@10"], truth=exact, judgments=none)
    page = html_report(result)
    checked(page)
    assert headline(result).startswith("The index cannot be judged")


def test_missed_neighbours_stand_with_grades_and_texts():
    exact, found, labels = parts()
    result = evaluate(found, MEASURES, truth=exact, judgments=labels)
    row = result.worst("srecall@10")[0]
    missed = result.missed(row)
    best = max(missed, key=lambda m: m.grade)
    page = html_report(result, query_texts={result.queries[row]: "how do I"},
                       document_texts={best.document: "the answer"})  # fmt: skip
    assert "how do I" in page
    first = page.split("Worst queries</h2>")[1].split("how do I")[1].split("</tr>")[1]
    assert "the answer" in first
    assert f"<td>{best.rank}</td><td>1</td>" in first


def test_a_missing_matplotlib_is_named_with_its_extra(monkeypatch, full):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="an HTML report needs the package 'matplotlib'") as e:
        html_report(full)
    assert 'semrecall[report]"' in str(e.value.hint)


def test_a_report_is_written_whole_or_not_at_all(tmp_path, full, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra):
        full.to_html(path)
    assert path.read_text() == "old"
    monkeypatch.undo()
    full.to_html(path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[1] / "docs" / "reading-results.md"
    [code] = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exact, found, labels = parts()
    code = code.replace("@100", "@10")
    names = {"semrecall": semrecall, "truth": exact, "labels": labels}
    exec(code, names | {"run_a": found, "run_b": exact})
    assert (tmp_path / "report.html").exists()


def test_the_page_of_the_command_says_how_it_was_made(tmp_path, monkeypatch, semrecall_main):
    faiss = pytest.importorskip("faiss", reason="needs the extra faiss")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("base.npy", rng.standard_normal((500, 8), dtype=np.float32))
    np.save("queries.npy", rng.standard_normal((20, 8), dtype=np.float32))
    vectors = ["--base", "base.npy", "--queries", "queries.npy", "--space", "ip"]
    spec = "faiss?factory=IVF4,Flat"
    steps = (
        ["truth", "base.npy", "queries.npy", "-k", "10", "--space", "ip", "-o", "truth.parquet"],
        ["search", spec, *vectors, "-k", "10", "--set", "nprobe=2", "-o", "run.parquet",
         "--cost", "cost.parquet"],
    )  # fmt: skip
    for step in steps:
        assert semrecall_main(*step)[0] == 0
    truth = semrecall.read("truth.parquet")
    labels = {q: {d: d % 2 for d in row} for q, row in zip(truth.query_ids, truth.ids, strict=True)}
    semrecall.write(semrecall.Judgments.from_dict(labels), "llm.jsonl")
    semrecall.write(semrecall.Judgments.from_dict(labels), "people.jsonl")
    sweep = ["sweep", spec, *vectors, "--truth", "truth.parquet", "--set", "nprobe=1,2",
             "--format", "json"]  # fmt: skip
    code, out, err = semrecall_main(*sweep)
    assert code == 0, err
    assert json.loads(out)["command"].startswith("semrecall ")
    document = json.loads(out) | {"command": "semrecall sweep X"}
    Path("sweep.json").write_text(json.dumps(document))
    code, _, err = semrecall_main(
        "report", "run.parquet", "--truth", "truth.parquet", "--judgments", "llm.jsonl",
        "--agree", "people.jsonl", "--base", "base.npy", "--queries", "queries.npy",
        "--cost", "cost.parquet", "--sweep", "sweep.json", "-o", "r.html",
    )  # fmt: skip
    assert code == 0, err
    html = Path("r.html").read_text(encoding="utf-8")
    for name, file in (
        ("run", "run.parquet"), ("truth", "truth.parquet"), ("judgments", "llm.jsonl"),
        ("agree", "people.jsonl"), ("base", "base.npy"), ("queries", "queries.npy"),
        ("sweep", "sweep.json"), ("cost", "cost.parquet"),
    ):  # fmt: skip
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        assert f"<dt>{name}</dt><dd>{file}, sha256 {digest}</dd>" in html, name
    assert f"faiss {faiss.__version__}" in html
    assert "factory IVF4,Flat" in html
    code = html[html.index("To make it again") :]
    lines = code[code.index("<code>") + 6 : code.index("</code>")].splitlines()
    assert lines[0].startswith("pip install &quot;semrecall[faiss,report]==")
    assert lines[1] == ("semrecall truth base.npy queries.npy -k 10 --space ip -o truth.parquet")
    assert lines[2] == "semrecall sweep X &gt; sweep.json"
    assert len(lines) == 5  # and the search, and the report itself
    code, _, err = semrecall_main("report", "run.parquet", "run.parquet", "--cost", "cost.parquet")
    assert code == 2
    # The short way has the hashes, too.
    given = ["run.parquet", "--truth", "truth.parquet", "--html", "s.html"]
    assert semrecall_main("score", *given)[0] == 0
    digest = hashlib.sha256(Path("truth.parquet").read_bytes()).hexdigest()
    assert f"truth.parquet, sha256 {digest}" in Path("s.html").read_text(encoding="utf-8")


# -- the answer in one sentence ---------------------------------------------------------------


def answer(measures, *, several: int = 1, **given) -> str:
    exact, found, labels = parts(seed=1)
    runs = {f"run {i}": parts(seed=i + 1)[1] for i in range(several)} if several > 1 else found
    return headline(evaluate(runs, measures, truth=exact, judgments=labels, **given))


def test_headlines():
    exact, found, labels = parts(seed=1)
    result = evaluate(found, ["recall@10", "srecall@10"], truth=exact, judgments=labels)
    lost = percent(1 - result.mean("srecall@10"))
    recall = percent(1 - result.mean("recall@10"))
    assert headline(result) == (
        f"The index loses {lost} of the relevant neighbours; recall suggests about the same, "
        f"{recall}."
    )
    # Every irrelevant neighbour lost and no relevant one: the same queries, another picture.
    kept = [
        [d for d in row if d in set(labels.doc_ids[(labels.query_ids == q) & (labels.grades > 0)])]
        for q, row in zip(exact.queries, exact.ids, strict=True)
    ]
    only = Run.from_arrays(kept, query_ids=list(exact.queries))
    apart = evaluate(only, ["recall@10", "srecall@10"], truth=exact, judgments=labels)
    more = percent(1 - apart.mean("recall@10"))
    assert headline(apart) == (
        f"The index loses none of the relevant neighbours; recall suggests {more}."
    )
    assert answer(["recall@10"]) == f"The index loses {recall} of the exact neighbours."
    assert "of the neighbours with nothing about as near in their place; recall suggests" in answer(
        ["trecall(x=1%)@10", "recall@10"]
    )
    assert answer(["srecall@10"]) == f"The index loses {lost} of the relevant neighbours."
    assert answer(["nDCG@10", "P@5"]).startswith("nDCG@10 is 0.")
    assert answer(["recall@10"], several=2).startswith("run 0 loses ")
    assert answer(["recall@10"], several=2).count("of the exact neighbours") == 2
    three = answer(["srecall@10", "recall@10"], several=3)
    assert three.startswith("Of 3 runs run ")
    assert three.endswith(": the least of all.")


def test_a_perfect_index_loses_none():
    exact, _, labels = parts()
    result = evaluate(exact, ["recall@10", "srecall@10"], truth=exact, judgments=labels)
    assert headline(result) == (
        "The index loses none of the relevant neighbours; recall suggests the same."
    )


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0, "none"), (1.0, "all"), (0.021, "2.1%"), (0.11, "11%"), (0.0004, "0.04%"),
        (0.00001, "0.001%"), (0.995, "99.5%"), (0.99951, "99.95%"), (0.9999, "99.99%"),
        (0.0995, "10%"), (0.5, "50%"), (0.05, "5.0%"),
    ],
)  # fmt: skip
def test_percentages_never_round_to_nothing_or_to_all(share, shown):
    assert percent(share) == shown
