"""semrecall compare, as a user types it: what it prints, what it returns, what it refuses."""

from __future__ import annotations

import csv
import io
import json

import pytest

N = 12


@pytest.fixture
def shell(tmp_path, semrecall_main):
    """Runs `semrecall compare ...` in a folder with files; gives status, stdout, stderr."""
    # The one relevant document of query 1000 + i stands at rank 2 in old, at rank 1 in new but for
    # every fourth query, nowhere in bad.
    places = {
        "old": [2] * N,
        "new": [3 if i % 4 == 0 else 1 for i in range(N)],
        "bad": [0] * N,
    }
    for name, ranks in places.items():
        lines = []
        for i, rank in enumerate(ranks):
            for at in range(1, 5):
                document = "d" if at == rank else f"x{at}"
                lines.append(f"{1000 + i} Q0 {document} {at} {10 - at} {name}\n")
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    (tmp_path / "qrels.txt").write_text("".join(f"{1000 + i} 0 d 1\n" for i in range(N)))
    columns = "".join(f"{1000 + i},{'th' if i % 4 == 0 else 'en'}\n" for i in range(N))
    (tmp_path / "columns.csv").write_text(f"query_id,lang\n{columns}")

    def run(*arguments, command="compare"):
        return semrecall_main(command, *arguments)

    return run


QRELS = ("--judgments", "qrels.txt")
TWO = ("old.txt", "new.txt", *QRELS, "-m", "RR")


def test_two_runs(shell):
    status, out, err = shell(*TWO)
    assert status == 0
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "new against old, 12 queries"
    # old: 1/2. new: (9 + 3/3) / 12.
    assert lines[4].split() == ["old", "0.5000"]
    assert lines[5].split()[:3] == ["new", "0.8333", "+0.3333"]
    # 9 won, 3 lost.
    assert "9/0/3" in lines[5]
    assert "Holm p: corrected over 1 test; * is below 0.05" in lines


def test_default_measures(shell):
    _, out, _ = shell("old.txt", "new.txt", *QRELS, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["measure"] for row in rows] == ["nDCG@10", "RR@10", "R@4"]
    assert rows[1]["wins"] == "9"


def test_json_is_valid_and_complete(shell):
    status, out, _ = shell(
        *TWO, "bad.txt", "--format", "json", "--by", "lang", "--columns", "columns.csv",
        "--moved", 2, "--margin", 0.1, "--test", "t", "--seed", 4, "--baseline", "old",
    )  # fmt: skip

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(out, parse_constant=refuse)
    assert status == 0
    assert (found["test"], found["seed"], found["baseline"]) == ("t", 4, "old")
    assert found["margin"] == 0.1
    assert [(row["baseline"], row["run"]) for row in found["rows"]] == [
        ("old", "new"),
        ("old", "bad"),
    ]
    # All of bad's queries lose one half: no t where there is no spread.
    assert found["rows"][1]["p"] is None
    assert found["rows"][1]["note"] == "every query differs by the same"
    assert {row["group"] for row in found["slices"]} == {"en", "th"}
    assert len(found["gaps"]) == 4
    assert [row["query"] for row in found["moved"]] == ["1001", "1002", "1000", "1001"]


def test_slices_name_what_fell(shell):
    _, out, _ = shell(*TWO, "--by", "lang", "--columns", "columns.csv")
    assert "3 (few)" in out
    # In Thai 1/3 - 1/2, in English 1 - 1/2. One deal of 12 over 3 in 220 is as extreme.
    assert "lang th fell most: RR -0.1667 there, +0.5000 elsewhere (Holm p 0.00" in out


def test_moved_prints_ids_as_they_are(shell):
    _, out, _ = shell(*TWO, "--moved", 2)
    assert out.splitlines()[-2].split() == [
        "RR", "1001", "old", "0.5000", "new", "1.0000", "0.5000"
    ]  # fmt: skip
    _, out, _ = shell(*TWO, "--moved", 2, "--format", "csv")
    assert out.splitlines()[1] == "RR,1001,old,0.5,new,1.0,0.5"
    _, out, _ = shell(*TWO, "--moved", 1, "--format", "markdown")
    assert "**the queries that moved most**" in out
    assert "| RR | 1001 | old | 0.5000 | new | 1.0000 | 0.5000 |" in out
    # The same ids, and not counts, in score.
    _, out, _ = shell(*TWO, "--per-query", command="score")
    assert "1000  " in out
    assert "1,000" not in out


def test_tables_for_papers_and_pages(shell):
    three = (*TWO, "bad.txt")
    latex = shell(*three, "--format", "latex")[1]
    assert "\\begin{tabular}{lll}" in latex
    assert "b & new & \\textbf{0.8333}$^{ac}$ \\\\" in latex
    html = shell(*three, "--format", "html")[1]
    assert html.startswith("<table>")
    assert "<td><b>0.8333</b><sup>ac</sup></td>" in html
    markdown = shell(*three, "--format", "markdown", "--by", "lang", "--columns", "columns.csv")[1]
    assert "| a | old | 0.5000<sup>c</sup> |" in markdown
    assert "| RR | old | new | lang | th | 3 | -0.1667 |" in markdown


def test_saved_and_extended(shell, tmp_path):
    for file in ("c.json", "c.parquet"):
        status, _, err = shell(*TWO, "--save", file)
        assert status == 0
        assert err == f"wrote {file}\n"
        assert (tmp_path / file).exists()
        later = shell("--load", file, "bad.txt", *QRELS, "--save", file)[1]
        assert later == shell(*TWO, "bad.txt")[1]
        assert shell("--load", file)[1] == later
        # Settings that are not stated stay as they were saved.
        shell(*TWO, "--test", "sign", "--seed", 3, "--save", file)
        assert "p: sign test" in shell("--load", file)[1]
        assert "p: t test" in shell("--load", file, "--test", "t")[1]


def test_gate(shell):
    assert shell(*TWO, "--fail-if-worse")[0] == 0
    status, out, err = shell("old.txt", "bad.txt", *QRELS, "-m", "RR", "--fail-if-worse")
    assert status == 1
    assert out.startswith("bad against old")
    # All 4,096 sign patterns: only two have the sum 6.
    assert err.splitlines()[-1] == (
        "failed: RR of bad is worse than that of old by 0.5 (corrected p 0.00049)"
    )
    # For an error it is the higher that is worse.
    assert shell("bad.txt", "old.txt", *QRELS, "-m", "RR", "--fail-if-worse")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), ["0 runs to compare; expected at least two", "hint: name their files, or --load"]),
        (("old.txt", *QRELS), ["1 run to compare; expected at least two"]),
        ((*TWO, "--baseline", "odl"), ["the baseline 'odl' is none of the runs", "hint: did you"]),
        ((*TWO, "--margin", "-1"), ["margin is -1.0; expected a number above 0"]),
        ((*TWO, "--test", "u"), ["'u' is not one of"]),
        ((*TWO, "--moved", "0"), ["0 is not in the range"]),
        ((*TWO, "--confidence", "95"), ["confidence is 95.0"]),
        ((*TWO, "--save", "c.txt"), ["'c.txt' does not end in .json or .parquet"]),
        # Before the work: no warning of a run, which nobody has read.
        (("old.txt", "qrels.txt", *QRELS, "--save", "c.txt"), ["'c.txt' does not end in"]),
        (("old.txt", "new.txt"), ["nothing to compare with"]),
        (("old.txt", "new.txt", *QRELS, "-m", "recal@1"), ["unknown measure"]),
        (("--load", "qrels.txt"), ["qrels.txt is not a saved comparison"]),
        ((*TWO, "--by", "lang"), ["no column 'lang'"]),
    ],
)
def test_wrong_input(shell, arguments, said):
    status, out, err = shell(*arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    for text in said:
        assert text in err


def test_what_does_not_belong_to_a_saved_comparison(shell, tmp_path):
    shell(*TWO, "--save", "c.json")
    for arguments, said in (
        (("new.txt", *QRELS), "run 'new' is in the comparison already"),
        (("-m", "AP"), "c.json has its measures and slices already"),
        (("bad.txt",), "nothing to compare with"),
    ):
        status, out, err = shell("--load", "c.json", *arguments)
        assert (status, out) == (2, "")
        assert said in err
    (tmp_path / "qrels.txt").write_text("1000 0 d 1\n")
    assert "the judgments are others" in shell("--load", "c.json", "bad.txt", *QRELS)[2]


def test_notes_of_machine_formats_go_to_stderr(shell):
    given = (*TWO, "--by", "lang", "--columns", "columns.csv")
    said = "p: randomisation test"
    table = shell(*given)
    assert said in table[1]
    assert table[2] == ""
    for form in ("csv", "latex", "html"):
        status, out, err = shell(*given, "--format", form)
        assert status == 0
        assert said in err
        assert "corrected over 1 test" in err
        assert said not in out
    status, out, err = shell(*given, "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == 3
    # 3 of the 12 queries are th: all that lost. Too few for a p-value of their own.
    assert "no slice by lang fell behind" in err or "lang th fell most" in err
    assert "few: fewer than 10 queries" in err
    status, out, err = shell(*given, "--format", "json")
    assert err == ""


def test_a_saved_comparison_is_extended_by_its_own_rule_for_queries_without_relevant(
    shell, tmp_path
):
    with (tmp_path / "qrels.txt").open("a") as file:
        file.write("2000 0 d 0\n")
    zero = ("--no-relevant", "zero")
    assert shell(*TWO, *zero, "--save", "c.json")[0] == 0
    again = ("bad.txt", *QRELS)
    _, out, _ = shell("--load", "c.json", *again)
    assert out == shell(*TWO, "bad.txt", *zero)[1]
    status, _, err = shell("--load", "c.json", *again, "--no-relevant", "skip")
    assert status == 2
    assert "are counted as 0 in the comparison, left out in the new runs" in err
