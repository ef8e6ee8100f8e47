"""split(): development and test queries, and how often the test was used."""

from __future__ import annotations

import datetime
import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semrecall as sr
from semrecall.data import Judgments, Run
from semrecall.errors import FormatError, InputError, SemrecallWarning
from semrecall.splits import count_use, read_split, split, uses_path


def parts(found):
    return dict(zip(map(str, found.queries), found.parts, strict=True))


# -- who goes where -----------------------------------------------------------------------------


def test_a_query_stays_where_it_is_whatever_comes_and_goes():
    many = parts(split(range(1000)))
    few = parts(split(range(500, 520)))
    assert few == {query: many[query] for query in few}
    assert parts(split([str(i) for i in reversed(range(1000))])) == many
    # The bits of the hash, for ever: a stored split of another release must not change.
    assert [many[str(i)] for i in range(12)] == HASHED


#: By hand: the first 53 bits of blake2b(b"0\0<id>", digest_size=8) over 2**53, below a half.
HASHED = ["test", "dev", "test", "dev", "test", "test", "dev", "test", "test", "test", "dev", "dev"]


def test_shares_and_seeds():
    dev = split(range(4000), 0.25).counts["dev"]
    assert abs(dev - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75)
    assert split(range(100), seed=1).parts != split(range(100), seed=2).parts
    assert split(range(100), seed=1).parts == split(range(100), seed=1).parts
    assert sr.split is split


@given(
    st.lists(st.sampled_from(["en", "th", "de"]), min_size=1, max_size=60),
    st.floats(0.05, 0.95),
    st.integers(0, 9),
)
def test_slices_are_spread_alike(languages, dev, seed):
    table = {"query_id": [f"q{i}" for i in range(len(languages))], "lang": languages}
    found = split(table, dev, by="lang", seed=seed)
    for language in set(languages):
        mine = [p for p, of in zip(found.parts, languages, strict=True) if of == language]
        assert abs(mine.count("dev") - dev * len(mine)) <= 1 + 1e-9
    assert abs(found.parts.count("dev") - dev * len(languages)) <= 1 + 1e-9
    assert found.about == {"dev": dev, "seed": seed, "by": ["lang"]}


def test_what_can_be_split():
    ids = ["a", "b", "c"]
    run = Run.from_dict({q: ["x"] for q in ids})
    judgments = Judgments.from_dict({q: {"x": 1, "y": 0} for q in ids})
    expected = parts(split(ids))
    for queries in (run, judgments, {"query_id": [*ids, "a"]}, np.array(ids)):
        assert parts(split(queries)) == expected
    columns = {"query_id": ["c", "a"], "lang": ["en", None]}
    assert len(split(run, by=["lang"], columns=columns)) == 3
    for name, queries in expected.items():
        assert name in split(judgments).part(queries)


def test_parts_of_runs_and_judgments():
    judgments = Judgments.from_dict({q: {"x": 1, "y": 0} for q in range(20)})
    run = Run.from_dict({q: ["x"] for q in range(20)})
    found = split(judgments)
    dev, test = (found.select(judgments, name) for name in ("dev", "test"))
    assert set(dev.queries) | set(test.queries) == set(range(20))
    assert set(dev.queries) & set(test.queries) == set()
    assert set(found.select(run, "dev").queries) == set(dev.queries) == set(found.part("dev"))
    assert repr(found) == f"Split(dev: {len(dev) // 2}, test: {len(test) // 2})"


# -- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s.csv", "s.json", "s.jsonl", "s.csv.gz"])
@pytest.mark.parametrize("queries", [range(9), ["a,b", 'say "x"', "ü", "7"]])
def test_files_come_back(tmp_path, name, queries):
    found = split(queries, seed=5)
    found.write(tmp_path / name)
    again = read_split(tmp_path / name)
    assert parts(again) == parts(found)
    assert again.queries == found.queries
    if name == "s.json":
        assert again.about == {"dev": 0.5, "seed": 5, "by": []}
        assert again.to_dict()["queries"] == len(found)


def test_a_csv_of_ones_own(tmp_path):
    (tmp_path / "s.csv").write_text("query_id,split\n1,train\n2,test\n3,train\n")
    found = read_split(tmp_path / "s.csv")
    assert found.counts == {"test": 1, "train": 2}
    assert found.part("train").array().tolist() == [1, 3]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "s.csv",
            "query_id,part\n1,dev\n",
            "no column for the parts: found columns query_id, part",
        ),
        ("s.csv", "query_id,split\n1,dev\n2,\n", "query 2 is in no part"),
        ("s.csv", "query_id,split\n1,dev\n1,test\n", "stands at line 2 and at line 3"),
        ("s.json", "{", "is no JSON"),
        ("s.json", "[]", "expected a JSON object"),
        ("s.json", '{"split": {"a": 3}}', "expected a JSON object"),
    ],
)
def test_what_is_no_split_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(FormatError, match=name) as fault:
        read_split(tmp_path / name)
    assert said in str(fault.value)


def test_wrong_questions():
    for dev in (0, 1, -0.5, 2):
        with pytest.raises(InputError, match="expected a share between 0 and 1"):
            split(["a"], dev)
    with pytest.raises(InputError, match="no column 'lang' to spread"):
        split(["a"], by="lang")
    with pytest.raises(InputError, match="no part 'tset'") as fault:
        split(range(20)).part("tset")
    assert "did you mean test?" in str(fault.value)
    with pytest.raises(InputError, match="written as CSV or JSON"):
        split(["a"]).write("split.txt")


# -- how often the test was used ----------------------------------------------------------------

NOW = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


def use(path, *values, part="test"):
    return count_use(path, part, [("P@1 of run", np.array(values))], now=NOW)


def test_looking_again_and_again_is_said(tmp_path):
    path = tmp_path / "split.csv"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert use(path, 1.0, 0.5) == sr.splits.Use(1, 1)
        # The same result is no further look, and NaN is NaN.
        assert use(path, 1.0, 0.5) == sr.splits.Use(2, 1)
        assert use(path, 1.0, np.nan) == sr.splits.Use(3, 2)
        assert use(path, 1.0, -np.nan) == sr.splits.Use(4, 2)
        for value in range(5):
            use(path, value, part="dev")
    with pytest.warns(SemrecallWarning, match="scored 5 times with 3 different results"):
        use(path, 0.0, 0.5)
    lines = [json.loads(line) for line in uses_path(path).read_text().splitlines()]
    assert len(lines) == 10
    assert lines[0] == {
        "time": "2024-05-06T07:08:09Z", "part": "test", "result": lines[1]["result"],
    }  # fmt: skip
    assert len(lines[0]["result"]) == 16


def test_what_cannot_be_counted_fails_nothing(tmp_path):
    assert use(tmp_path / "no such folder" / "split.csv", 1.0).times == 1
    path = tmp_path / "split.csv"
    uses_path(path).write_bytes(b"\xff\xfe\nnot json\n")
    assert use(path, 1.0).times == 1
    uses_path(path).write_text('not json\n[3]\n{"part": "test", "result": "x"}\n')
    assert use(path, 1.0).results == 2
    uses_path(path).unlink()
    uses_path(path).mkdir()
    assert use(path, 1.0).times == 1


def test_a_part_without_any_query_is_said(semrecall_main, tmp_path):
    (tmp_path / "a.qrels").write_text("a 0 d 1\nb 0 d 1\nc 0 d 1\n")
    status, _, err = semrecall_main("split", "a.qrels", "--dev", "0.001")
    assert status == 0
    assert "3 queries in all, none in dev: too few to divide with --dev 0.001" in err


def test_a_file_of_queries_that_is_none(semrecall_main, tmp_path):
    (tmp_path / "empty.run").write_text("")
    status, out, err = semrecall_main("split", "empty.run")
    assert (status, out) == (2, "")
    assert "empty.run: the file does not tell" in err
    assert "hint: give judgments, results, or a table with query_id" in err
