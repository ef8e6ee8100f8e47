"""Predicates over columns: read, printed, and computed as row by row in Python."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semrecall.data.allowed import Allowed
from semrecall.errors import InputError, SemrecallError
from semrecall.formats.predicates import (
    And,
    Column,
    Has,
    In,
    Not,
    Null,
    Or,
    Predicate,
    Test,
    parse_predicate,
)
from semrecall.formats.selection import allowed_by

Test.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's

# -- the slow definition --------------------------------------------------------------------


def truth_of(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """What a predicate says of one row, by the logic of three values."""
    if isinstance(predicate, Not):
        inner = truth_of(predicate.part, row)
        return None if inner is None else not inner
    if isinstance(predicate, And | Or):
        parts = [truth_of(part, row) for part in predicate.parts]
        strong = isinstance(predicate, Or)
        return strong if strong in parts else None if None in parts else not strong
    value = row[predicate.column.name]
    if isinstance(predicate, Null):
        return value is None
    if value is None:
        return None
    if isinstance(predicate, In):
        return value in predicate.values
    if isinstance(predicate, Has):
        return predicate.value in value
    compared = {
        "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    }[predicate.operator]  # fmt: skip
    return bool(compared(value, predicate.value))


WORDS = st.sampled_from(["th", "ไทย", "de", "", 'a "b"', "it's", "back\\slash", "two\nlines"])
WHOLE = st.integers(-3, 3)
NUMBER = WHOLE | st.sampled_from([-2.5, 0.5, 1.0, 2.25, 10**30, -(10**30)])
COLUMNS: dict[str, tuple[Any, Any]] = {
    "lang": (WORDS, pa.string()),
    "count": (WHOLE, pa.int16()),
    "price": (st.sampled_from([-2.5, 0.0, 0.5, 1.0, 2.25]), pa.float32()),
    "ภาษา ของ": (st.booleans(), pa.bool_()),
    "tags": (st.lists(WORDS, max_size=3), pa.list_(pa.string())),
}


def leaves() -> st.SearchStrategy[Predicate]:
    sign = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    equal = st.sampled_from(["==", "!="])
    return st.one_of(
        st.builds(Test, st.just(Column("lang")), sign, WORDS),
        st.builds(Test, st.sampled_from([Column("count"), Column("price")]), sign, NUMBER),
        st.builds(Test, st.just(Column("ภาษา ของ")), equal, st.booleans()),
        st.builds(In, st.just(Column("lang")), st.lists(WORDS, max_size=3).map(tuple)),
        st.builds(In, st.just(Column("count")), st.lists(NUMBER, max_size=3).map(tuple)),
        st.builds(In, st.just(Column("price")), st.lists(NUMBER, max_size=3).map(tuple)),
        st.builds(Has, st.just(Column("tags")), WORDS),
        st.builds(Null, st.sampled_from([Column(name) for name in COLUMNS])),
    )


def joined(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(And, several) | st.builds(Or, several) | st.builds(Not, inner)


PREDICATES = st.recursive(leaves(), joined, max_leaves=6)


@given(PREDICATES)
def test_printed_and_read_again_it_is_the_same(predicate: Predicate) -> None:
    assert parse_predicate(str(predicate)) == predicate


@settings(deadline=None)
@given(st.lists(PREDICATES, min_size=1, max_size=6), st.data())
def test_rows_are_those_of_the_slow_definition(
    predicates: list[Predicate], data: st.DataObject
) -> None:
    row = st.fixed_dictionaries({n: st.none() | values for n, (values, _) in COLUMNS.items()})
    rows = data.draw(st.lists(row, max_size=20))
    columns = {n: pa.array([r[n] for r in rows], kind) for n, (_, kind) in COLUMNS.items()}
    found = allowed_by([str(p) for p in predicates], columns)
    assert found.which is not None
    for number, predicate in enumerate(predicates):
        allowed = found.sets[int(found.which[number])]
        expected = [at for at, r in enumerate(rows) if truth_of(predicate, r) is True]
        assert allowed.between(0, len(rows)).tolist() == expected


# -- read -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("lang == 'th' and price<20", 'lang == "th" and price < 20'),
        ("LANG = \"th\" AND NOT price >= -2e1", 'LANG == "th" and not price >= -20.0'),
        ("a=1 or b=2 and c=3", "a == 1 or (b == 2 and c == 3)"),
        ("(a=1 or b=2) and c<>3", "(a == 1 or b == 2) and c != 3"),
        ("10 <= price < 20", "price >= 10 and price < 20"),
        ("price between 1 and 2 and x", "(price >= 1 and price <= 2) and x == true"),
        ("a not between 1 and 2", "not (a >= 1 and a <= 2)"),
        ("lang in ('th', \"d\") or `a b` is not null", 'lang in ("th", "d") or not `a b` is null'),
        ("'sale' in tags and 3 not in ids", '"sale" in tags and not 3 in ids'),
        ("meta.lang in []", "meta.lang in ()"),
        ("ราคา < 5 and ภาษา = 'ไทย'", 'ราคา < 5 and ภาษา == "ไทย"'),
        ("name = 'it''s' and n = \"say \"\"so\"\"\"", 'name == "it\'s" and n == "say \\"so\\""'),
        ("tenant = $tenant and year >= $from", "tenant == $tenant and year >= $from"),
        ("`and` = 1 and `2nd` = 2", "`and` == 1 and `2nd` == 2"),
        ("active", "active == true"),
        ("not not active", "not not active == true"),
    ],
)  # fmt: skip
def test_what_can_be_written(text: str, canonical: str) -> None:
    found = parse_predicate(text)
    assert str(found) == canonical
    assert parse_predicate(canonical) == found


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"lang": "th"}, 'lang == "th"'),
        ({"x": "th", "p": {"$gte": 1, "$lt": 2.5}}, 'x == "th" and (p >= 1 and p < 2.5)'),
        ({"lang": ["th", "de"]}, 'lang in ("th", "de")'),
        ({"lang": {"$nin": ["th"]}}, 'not lang in ("th")'),
        ({"$or": [{"a": None}, {"a": {"$ne": None}}]}, "a is null or not a is null"),
        ({"$and": [{"a": True}]}, "a == true"),
        ({"$not": {"a": 1}}, "not a == 1"),
        ({"a": {"$not": {"$gt": 1}}}, "not a > 1"),
    ],
)  # fmt: skip
def test_mappings(given: dict[str, Any], text: str) -> None:
    assert parse_predicate(given) == parse_predicate(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "the filter '' ends where a column or a value was expected"),
        ("price <", "'price <' ends where a column or a value was expected"),
        ("price < 20 lang", "has 'lang' at character 12; expected the end"),
        ("(price < 20", r"ends where '\)' was expected"),
        ("a = b", "compares two columns; .* a value"),
        ("1 = 2", "compares two values"),
        ("lang = 'th", "cannot be read from character 8 on"),
        ("a = null", "compares with null, which is never true"),
        ("a not 5", "expected 'in' or 'between'"),
        ("a is 5", "expected 'null'"),
        ("a in (b)", "has 'b' at character 7; expected a value"),
        ("a in (1 2)", "has '2' at character 9; expected ','"),
        ("5 in (1)", r"has '\(' at character 6; expected a column or a value"),
        ("5 and a", "has the value 5 where a column was expected"),
        ("a < 1e999", "1e999 is too large a number"),
        ("__import__('os')", r"has '\(' at character 11; expected the end"),
        (7, "a filter is a int; expected a text or a mapping"),
        ({}, "a filter is empty"),
        ({"a": {}}, "says nothing of a"),
        ({"a": {"$regex": "x"}}, "cannot read {'\\$regex': 'x'}"),
        ({"a": {"$lt": None}}, "None is no text, number or boolean"),
        ({"$or": []}, "takes a list of filters"),
        ({"$nor": []}, "unknown operator \\$nor"),
    ],
)
def test_what_cannot_be_read(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_predicate(given)


# -- columns --------------------------------------------------------------------------------


def rows_of(allowed: Allowed, query: int = 0) -> list[int]:
    rows = allowed.sets[0 if allowed.which is None else int(allowed.which[query])]
    return rows.between(0, rows.n).tolist()


def test_types_of_columns() -> None:
    table = pa.table({
        "day": pa.array([datetime.date(2026, 1, 31), None, datetime.date(2026, 2, 1)]),
        "at": pa.array([datetime.datetime(2026, 1, 31, 12), None, datetime.datetime(2027, 1, 1)]),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "big": pa.array([2**63 + 1, 5, None], pa.uint64()),
        "exact": pa.array([2**53 + 1, 2**53, 7], pa.int64()),
        "cost": pa.array(["1.50", "2.00", None]).cast(pa.decimal128(5, 2)),
        "half": pa.array(np.array([0.5, 1.5, 2.5], dtype=np.float16)),
        "single": pa.array([19.99, 5, 7], pa.float32()),
        "large": pa.array(["x", "y", "x"], pa.large_string()),
        "none": pa.nulls(3),
        "ids": pa.array([[1, 2], None, [2]]),
    })  # fmt: skip
    for text, rows in {
        'day < "2026-02-01"': [0], 'at >= "2026-01-31 12:00:00"': [0, 2], 'kind = "a"': [0, 2],
        "big > 7": [0], "big = 9223372036854775809": [0], "big >= -1": [0, 1], "big < -1": [],
        "exact = 9007199254740993": [0], "exact > 9007199254740992": [0], "cost = 1.5": [0],
        "half > 1": [1, 2], "single = 19.99": [0], "single <= 19.99": [0, 1, 2],
        'large != "x"': [1], "none = 5": [], "none is null": [0, 1, 2], "2 in ids": [0, 2],
        "not 1 in ids": [2], "not big > 7": [1], 'kind in ("b", "c")': [1],
        'day in ("2026-01-31")': [0], "exact in (7, 7.5)": [2], "not exact in (7)": [0, 1],
    }.items():  # fmt: skip
        assert rows_of(allowed_by(text, table)) == rows, text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prise < 5", "looks at the column 'prise', which there is not"),
        ('price < "5"', "compares the column 'price', which holds int64, in price < \"5\""),
        ("lang = 5", "holds string, in lang == 5"),
        ("lang in (5)", "holds string"),
        ("price in (true)", "holds int64"),
        ("price", "holds int64, in price == true"),
        ("active < true", "holds bool, in active < true"),
        ("5 in lang", "looks for 5 in the column 'lang', which holds string; expected lists"),
        ('day > "yesterday"', "with 'yesterday'"),
        ("lang = $lang", r"takes \$lang from the queries, which have no such column"),
    ],
)
def test_what_does_not_fit_the_columns(text: str, message: str) -> None:
    table = pa.table({
        "price": [1, 2], "lang": ["th", "de"], "active": [True, None],
        "day": pa.array([datetime.date(2026, 1, 1)] * 2),
    })  # fmt: skip
    with pytest.raises(InputError, match=message):
        allowed_by(text, table)


def test_columns_of_files_and_frames(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    n = 150_001  # several batches, the last of odd length
    rng = np.random.default_rng(0)
    price = rng.integers(0, 1000, n)
    lang = np.array(["th", "de", "en"])[rng.integers(0, 3, n)]
    expected = np.flatnonzero((price < 20) & (lang == "th")).tolist()
    table = pa.table({"price": price, "lang": lang.tolist()})
    pq.write_table(table, tmp_path / "all.parquet", row_group_size=7001)
    pq.write_table(table.slice(0, 50_003), tmp_path / "part-1.parquet")
    pq.write_table(table.slice(50_003), tmp_path / "part-2.parquet")
    parts = [tmp_path / "part-1.parquet", tmp_path / "part-2.parquet"]
    columns = {"price": price, "lang": lang}
    sources: list[Any] = [
        tmp_path / "all.parquet", parts, table, columns, pd.DataFrame(columns),
        pl.DataFrame({"price": price, "lang": lang.tolist()}),
    ]  # fmt: skip
    for source in sources:
        assert rows_of(allowed_by('price < 20 and lang = "th"', source)) == expected
    with (tmp_path / "few.jsonl").open("w") as file:
        for row in range(9):
            line = {"id": f"d{row}", "price": int(price[row]), "meta": {"x": 1}}
            file.write(json.dumps(line) + "\n")
    few = allowed_by("price < 500", tmp_path / "few.jsonl")
    assert rows_of(few) == np.flatnonzero(price[:9] < 500).tolist()
    assert few.ids is not None
    assert list(few.ids) == [f"d{row}" for row in range(9)]
    with pytest.raises(InputError, match="columns in several files must be parquet"):
        allowed_by("price < 5", [tmp_path / "few.jsonl", tmp_path / "all.parquet"])
    with pytest.raises(InputError, match="holds mixed values"):
        allowed_by("a < 5", {"a": [1, "x"]})
    with pytest.raises((SemrecallError, FileNotFoundError)):
        allowed_by("a < 5", tmp_path / "gone.parquet")


def test_a_filter_for_each_query() -> None:
    columns = {"lang": ["th", "de", "th", None], "price": [1, 2, 3, 4]}
    each = ['lang = "th"', None, "lang=='th'", {"price": {"$gt": 2}}, ""]
    found = allowed_by(each, columns, query_ids=["a", "b", "c", "d", "e"])
    assert [rows_of(found, at) for at in range(5)] == [
        [0, 2], [0, 1, 2, 3], [0, 2], [2, 3], [0, 1, 2, 3],
    ]  # fmt: skip
    assert found.which is not None
    assert found.which.tolist() == [0, 1, 0, 2, 1]  # the same filter, said in two ways, is one
    assert found.says == ('lang == "th"', "", "price > 2")
    by_id = allowed_by({"x": "price < 2", "y": None}, columns)
    assert by_id.queries is not None
    assert list(by_id.queries) == ["x", "y"]
    own = {"lang": ["de", "th", "de"], "most": np.array([9, 1, 9])}
    joined = allowed_by("lang = $lang and price <= $most", columns, query_columns=own)
    assert [rows_of(joined, at) for at in range(3)] == [[1], [0], [1]]
    assert len(joined.sets) == 2
    one = allowed_by(["lang = $lang", "price > 3"], columns, query_columns={"lang": ["de", None]})
    assert [rows_of(one, at) for at in range(2)] == [[1], [3]]
    with pytest.raises(InputError, match="query number 2 has no value for \\$lang"):
        allowed_by("lang = $lang", columns, query_columns={"lang": ["de", None]})
    with pytest.raises(InputError, match="2 filters for 3 queries"):
        allowed_by([None, None], columns, query_ids=[1, 2, 3])


def test_no_rows() -> None:
    empty = pa.table({"lang": pa.array([], pa.string())})
    assert rows_of(allowed_by('lang = "th"', empty)) == []
    assert allowed_by('lang = "th"', empty).sets[0].n == 0
