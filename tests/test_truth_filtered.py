"""Filtered truth from end to end: predicates, masks and bits, in Python and at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import semrecall as sr
from semrecall.cli import cli
from semrecall.data import Run, Vectors
from semrecall.data.allowed import NOTHING_ALLOWED
from semrecall.errors import InputError, MismatchError

LANGS = np.array(["th", "ไทย", "de", "en"])


class World:
    """400 rows with columns, some of them null, and 12 queries, in files of a folder."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(4)
        self.base = rng.integers(-3, 4, (400, 5)).astype(np.float32)
        self.queries = rng.integers(-3, 4, (12, 5)).astype(np.float32) + np.float32(0.5)
        self.lang = LANGS[rng.integers(0, 4, 400)]
        self.price = rng.integers(0, 100, 400)
        self.names = [f"d{i * 3}" for i in range(400)]
        table = pa.table({
            "id": self.names, "lang": pa.array(self.lang.tolist()),
            "price": pa.array(self.price, mask=self.price == 7),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(self.base.reshape(-1)), 5),
        })  # fmt: skip
        pq.write_table(table, folder / "base.parquet")
        pq.write_table(table.slice(0, 133), folder / "part-1.parquet")
        pq.write_table(table.slice(133), folder / "part-2.parquet")
        np.save(folder / "base.npy", self.base)
        (folder / "ids.txt").write_text("\n".join(self.names))
        pq.write_table(table.drop_columns(["vector"]).take(rng.permutation(400)),
                       folder / "columns.parquet")  # fmt: skip
        np.save(folder / "queries.npy", self.queries)
        self.own = LANGS[rng.integers(0, 4, 12)]
        with (folder / "set.jsonl").open("w") as file:
            for at, lang in enumerate(self.own):
                given: Any = [None, f'lang = "{lang}"', {"price": {"$lt": 20}}][at % 3]
                line = {"text": "?", "lang": lang, "filter": given}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def masks(self) -> Any:
        every = [np.ones(400, bool)] * 12
        return np.array([
            [every[0], self.lang == lang, (self.price < 20) & (self.price != 7)][at % 3]
            for at, lang in enumerate(self.own)
        ])  # fmt: skip

    def truth(self, mask: Any) -> Run:
        return sr.truth(Vectors.of(self.base, ids=self.names), self.queries, 6, "ip", filter=mask)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path)


def assert_same(run: Run, other: Run) -> None:
    assert run.ids.to_list() == other.ids.to_list()
    assert run.flat_scores is not None
    assert other.flat_scores is not None
    assert run.flat_scores.tobytes() == other.flat_scores.tobytes()
    assert run.reasons == other.reasons
    mine, theirs = run.identity["filter"], other.identity["filter"]
    assert mine["fingerprint"] == theirs["fingerprint"]
    assert mine["allowed_rows"] == theirs["allowed_rows"]


def test_a_predicate_over_columns_of_the_base_and_of_other_files(world: World) -> None:
    text = 'lang == "ไทย" and price < 50'
    expected = world.truth((world.lang == "ไทย") & (world.price < 50) & (world.price != 7))
    q = world.queries
    named = Vectors.of(world.base, ids=world.names)
    frame = {"lang": world.lang, "price": np.where(world.price == 7, 99, world.price)}
    for run in (
        sr.truth("base.parquet", q, 6, "ip", filter=text),
        sr.truth("part-*.parquet", q, 6, "ip", filter=text),
        sr.truth("base.npy", q, 6, "ip", filter=text, columns=frame).replace(
            documents=expected.documents
        ),
        sr.truth(named, q, 6, "ip", filter=text, columns="columns.parquet"),
        sr.truth(named, q, 6, "ip", filter=[text] * 12, columns="base.parquet"),
        sr.truth(named, q, 6, "ip", filter=dict.fromkeys(range(12), text), columns="base.parquet"),
    ):
        assert_same(run, expected)
        assert run.identity["filter"]["says"] == [text]
    with pytest.raises(InputError, match="needs the columns of the base"):
        sr.truth("base.npy", q, 6, "ip", filter=text)
    with pytest.raises(FileNotFoundError):
        sr.truth("base.npy", q, 6, "ip", filter="mask.npy")
    with pytest.raises(MismatchError, match="400 of 400 rows of the base are not among those"):
        sr.truth("base.npy", q, 6, "ip", filter=text, columns="columns.parquet")
    assert sr.truth("base.npy", q, 6, "ip", filter=[None] * 12).identity["filter"] is None


def test_a_filter_for_each_query(world: World) -> None:
    expected = world.truth(world.masks())
    each = [None if at % 3 == 0 else f'lang = "{world.own[at]}"' if at % 3 == 1 else "price < 20"
            for at in range(12)]  # fmt: skip
    run = sr.truth("base.parquet", world.queries, 6, "ip", filter=each)
    assert_same(run, expected)
    joined = sr.truth("base.parquet", world.queries, 6, "ip", filter="lang = $lang",
                      query_columns={"lang": world.own})  # fmt: skip
    assert_same(joined, world.truth(world.lang == world.own[:, None]))
    assert_same(
        sr.truth("base.parquet", Vectors.of(world.queries, ids=range(50, 62)), 6, "ip",
                 filter=dict(zip(range(61, 49, -1), ["lang = $lang"] * 12, strict=True)),
                 query_columns={"lang": world.own}),
        joined,
    )  # fmt: skip
    nothing = sr.truth("base.parquet", world.queries, 6, "ip", filter=["price < 0", *each[1:]])
    assert nothing.reasons[0] == NOTHING_ALLOWED
    assert len(nothing.ids[0]) == 0
    with pytest.raises(InputError, match="11 of 12 queries have no filter, the first is 1"):
        sr.truth("base.parquet", world.queries, 6, "ip", filter={0: "lang = $lang"},
                 query_columns={"lang": world.own})  # fmt: skip


def test_filters_by_id_in_another_order_than_the_queries(world: World) -> None:
    """As many filters as queries, none of them twice."""
    each = {at: f"price < {60 + at}" for at in range(12)}
    backwards = dict(reversed(each.items()))
    documents = [world.base[at : at + 1] for at in range(400)]
    asked = [query[None] for query in world.queries]
    for base, queries, space in ((world.base, world.queries, "ip"), (documents, asked, "maxsim")):
        told = {"columns": {"price": world.price}}
        run = sr.truth(base, queries, 6, space, filter=backwards, **told)
        assert_same(run, sr.truth(base, queries, 6, space, filter=list(each.values()), **told))
        for query, ids in enumerate(run.ids):
            assert (world.price[np.array(ids)] < 60 + query).all()


def test_other_spaces_and_engines(world: World) -> None:
    mask = world.lang == "th"
    named = Vectors.of(world.base, ids=world.names)
    run = sr.truth("part-*.parquet", world.queries, 6, "l2", filter='lang = "th"',
                   engine="processes", workers=2)  # fmt: skip
    assert_same(run, sr.truth(named, world.queries, 6, "l2", filter=mask))
    bits = np.random.default_rng(0).random((400, 16)) < 0.5
    filtered = sr.truth(bits, bits[:9], 5, "hamming", filter=mask)
    alone = sr.truth(Vectors.of(bits[mask], ids=np.flatnonzero(mask)), bits[:9], 5, "hamming")
    assert filtered.ids.to_list() == alone.ids.to_list()
    documents = [world.base[at : at + 2] for at in range(0, 400, 2)]
    found = sr.truth(documents, documents[:3], 4, "maxsim", filter="price < 50",
                     columns={"price": world.price[::2]})  # fmt: skip
    assert_same(found, sr.truth(documents, documents[:3], 4, "maxsim",
                                filter=world.price[::2] < 50))  # fmt: skip


def test_at_the_command_line(world: World) -> None:
    mask = world.price < 30
    np.save("mask.npy", mask)
    np.save("bits.npy", np.packbits(mask, bitorder="little"))

    def shell(*words: str, base: str = "base.npy", code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["truth", base, "queries.npy", "-k", "6", "--space", "ip",
                                        "-o", "out.parquet", *words])  # fmt: skip
        if code == 0:
            assert done.exit_code == 0, (done.output, done.exception)
            return ""
        return str(done.exception)

    named = ("--base-ids", "ids.txt")
    shell("--filter", "mask.npy", *named)
    assert_same(sr.read("out.parquet"), world.truth(mask))
    shell("--filter", "bits.npy", "--filter-bits", "little", *named)
    assert_same(sr.read("out.parquet"), world.truth(mask))
    shell("--filter", "price < 30 and price != 7", "--base-columns", "columns.parquet", *named)
    assert_same(sr.read("out.parquet"), world.truth(mask & (world.price != 7)))
    own = ("--query-columns", "set.jsonl")
    shell("--filter-column", "filter", *own, base="base.parquet")
    assert_same(sr.read("out.parquet"), world.truth(world.masks()))
    shell("--filter", "lang == $lang", *own, base="base.parquet")
    assert_same(sr.read("out.parquet"), world.truth(world.lang == world.own[:, None]))
    for words, message in {
        ("--filter", "bits.npy"): "may be packed bits",
        ("--filter", "bits.npy", "--filter-bits", "big"): "",
        ("--filter", "price < 5", "--filter-bits", "big"): "how to read --filter FILE",
        ("--filter", "price <"): "ends where a column or a value was expected",
        ("--filter", "price < 5", "--filter-column", "filter"): "both say what queries may find",
        ("--filter-column", "filter"): "needs the columns of the queries",
        ("--filter-column", "filtr", *own): "there is no column 'filtr'",
        ("--filter", "gone.npy"): "No such file",
        ("--filter", "lang = $long", *own): "there is no column 'long'",
    }.items():  # fmt: skip
        if message:
            assert message in shell(*words, base="base.parquet", code=2), words
    told = CliRunner().invoke(
        cli, ["truth", "base.npy", "queries.npy", "-k", "6", "--space", "ip", "-o", "out.parquet",
              "--filter", "price < -1", "--base-columns", "columns.parquet", *named],
    )  # fmt: skip
    assert "12 queries without neighbours: the filter allows no row" in told.output


def test_columns_of_queries_follow_their_ids(world: World, tmp_path: Path) -> None:
    lines = [{"query_id": f"q{at}", "lang": world.own[at]} for at in range(12)]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines[::-1]))
    asked = Vectors.of(world.queries, ids=[f"q{at}" for at in range(12)])
    run = sr.truth("base.parquet", asked, 6, "ip", filter="lang = $lang", query_columns=path)
    assert_same(run, world.truth(world.lang == world.own[:, None]))
    path.write_text("\n".join(json.dumps(line) for line in lines[1:]))
    with pytest.raises(MismatchError, match="lacks 1 of 12 queries, the first is 'q0'"):
        sr.truth("base.parquet", asked, 6, "ip", filter="lang = $lang", query_columns=path)
    with pytest.raises(MismatchError, match="has 11 records for 12 queries"):
        sr.truth("base.parquet", world.queries, 6, "ip", filter="lang = $lang", query_columns=path)
