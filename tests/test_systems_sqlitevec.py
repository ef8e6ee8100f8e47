"""sqlite-vec: vec0 tables and ordinary ones, in place, with filters, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_checks import little_room

from semrecall.benchmark import search
from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.exact import search as exact_search
from semrecall.systems import base_vectors, open_system
from semrecall.testing import check_system

RNG = np.random.default_rng(13)
BASE = RNG.standard_normal((300, 8)).astype(np.float32)
QUERIES = RNG.standard_normal((5, 8)).astype(np.float32)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., str]:
    """Runs SQL in a file of SQLite, once per row of values; gives the address of the file."""
    apsw, sqlite_vec = pytest.importorskip("apsw"), pytest.importorskip("sqlite_vec")

    def make(sql: str, insert: str = "", rows: Any = ()) -> str:
        connection = apsw.Connection(str(tmp_path / "docs.db"))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.execute(sql)
        with connection:
            connection.executemany(insert, rows)
        connection.close()
        return f"sqlite-vec://{tmp_path / 'docs.db'}"

    return make


def blob(*numbers: float) -> bytes:
    return np.array(numbers, dtype="<f4").tobytes()


@pytest.mark.parametrize("space", ["cosine", "l2"])
def test_it_keeps_the_contract_with_recall_one(space: str) -> None:
    check_system("sqlite-vec", space=space, exact=True)


def test_there_is_no_inner_product() -> None:
    with pytest.raises(InputError, match="has no space ip; it has cosine and l2") as error:
        open_system("sqlite-vec").build(BASE, "ip")
    assert "length one" in str(error.value.hint)


def test_scores_by_hand(made: Callable[..., str]) -> None:
    address = made(
        "CREATE VIRTUAL TABLE docs USING vec0(id TEXT PRIMARY KEY, v float[2])",
        "INSERT INTO docs (id, v) VALUES (?, ?)",
        [("a", blob(3, 4)), ("b", blob(0, 1))],
    )
    system = open_system(f"{address}?table=docs")
    assert (str(system.space), system.dimension, system.ntotal) == ("l2", 2, 2)
    # From (0, 2) to (0, 1) it is 1, to (3, 4) sqrt(9 + 4).
    for found, scores in (
        system.search(np.array([[0, 2]], dtype=np.float32), 5),
        system.exact(np.array([[0, 2]], dtype=np.float32), 5),
    ):
        assert found.tolist() == [["b", "a"]]
        np.testing.assert_allclose(scores, [[1, np.sqrt(13)]], rtol=1e-6)
    counters = system.count(np.array([[0, 2]], dtype=np.float32), 1)
    assert counters is not None
    assert counters.bytes_read is not None
    # Two vectors of 2 floats.
    np.testing.assert_array_equal(counters.bytes_read, [2 * 8])


def test_a_zero_vector_is_no_result(made: Callable[..., str]) -> None:
    """A vec0 table ranks a null distance first: it costs a place, but is never a result."""
    address = made(
        "CREATE VIRTUAL TABLE docs USING vec0(v float[2] distance_metric=cosine)",
        "INSERT INTO docs (rowid, v) VALUES (?, ?)",
        [(7, blob(0, 0)), (8, blob(1, 0)), (9, blob(-1, 0))],
    )
    system = open_system(f"{address}?table=docs")
    query = np.array([[1, 0]], dtype=np.float32)
    ids, scores = system.search(query, 3)
    assert ids.tolist() == [[8, 9, -1]]
    np.testing.assert_array_equal(scores, [[1, -1, np.nan]])
    assert system.search(query, 1)[0].tolist() == [[-1]]
    assert system.exact(query, 1)[0].tolist() == [[8]]


@pytest.fixture
def plain(made: Callable[..., str]) -> str:
    return made(
        "CREATE TABLE docs (id INTEGER PRIMARY KEY, v BLOB, lang TEXT)",
        "INSERT INTO docs VALUES (?, ?, ?)",
        [(i, row.tobytes(), "de" if i % 3 else "en") for i, row in enumerate(BASE)],
    )


@pytest.fixture
def virtual(made: Callable[..., str]) -> str:
    return made(
        "CREATE VIRTUAL TABLE docs USING vec0(id integer primary key, v float[8], lang text)",
        "INSERT INTO docs (id, v, lang) VALUES (?, ?, ?)",
        [(i, row.tobytes(), "de" if i % 3 else "en") for i, row in enumerate(BASE)],
    )


@pytest.mark.parametrize("kind", ["plain", "virtual"])
def test_both_kinds_of_tables_are_searched_filtered_and_given_out(
    kind: str, request: pytest.FixtureRequest
) -> None:
    spec = request.getfixturevalue(kind) + "?table=docs&space=l2"
    system = open_system(spec)
    truth = exact_search(BASE, QUERIES, 6, "l2")
    run, _ = search(system, QUERIES, 6, repeats=1)
    assert [row.tolist() for row in run.ids] == [row.tolist() for row in truth.ids]
    filters = ["lang = 'en'", ["lang = ?", ["de"]], None, None, "lang = 'xx'"]
    run, cost = search(system, QUERIES, 4, filters=filters, repeats=1)
    assert all(i % 3 == 0 for i in run.ids[0])
    assert all(i % 3 for i in run.ids[1])
    assert run.ids[2].tolist() == truth.ids[2][:4].tolist()
    assert not any(i >= 0 for i in run.ids[4])
    assert cost.distance_computations is None
    held = base_vectors(spec)
    np.testing.assert_array_equal(np.concatenate([b for _, b in held.blocks(100)]), BASE)
    assert held.ids.array().tolist() == list(range(300))


@pytest.mark.parametrize("given", ["lnag = 'de'", "id = ; DROP TABLE docs", ["lang = ?", []]])
def test_a_filter_that_cannot_be_is_an_error(plain: str, given: Any) -> None:
    system = open_system(f"{plain}?table=docs&space=l2")
    with pytest.raises(InputError, match="the filter "):
        system.search(QUERIES[:1], 1, filters=[given])


def test_a_filter_cannot_write(plain: str) -> None:
    system = open_system(f"{plain}?table=docs&space=l2")
    with pytest.raises(InputError, match="the filter "):
        system.search(QUERIES[:1], 1, filters=["true); DROP TABLE docs; --"])
    assert open_system(f"{plain}?table=docs&space=l2").ntotal == 300


def test_a_vec0_table_answers_no_more_than_4096(tmp_path: Path) -> None:
    base = RNG.standard_normal((5000, 2)).astype(np.float32)
    system = open_system("sqlite-vec").build(base, "l2")
    with pytest.raises(InputError, match="k is 4,097; a vec0 table answers at most 4,096"):
        system.search(base[:1], 4097)
    assert system.search(base[:1], 4096)[0].shape == (1, 4096)
    assert system.exact(base[:1], 4097)[0].shape == (1, 4097)


def test_a_table_is_built_in_a_file_and_never_replaced_unasked(tmp_path: Path) -> None:
    spec = f"sqlite-vec://{tmp_path / 'new.db'}?table=docs"
    assert not open_system(spec).built
    built = open_system(spec).build(BASE, "cosine", [f"d{i}" for i in range(300)])
    again = open_system(spec)
    assert str(again.space) == "cosine"
    np.testing.assert_array_equal(again.search(QUERIES, 3)[0], built.search(QUERIES, 3)[0])
    with pytest.raises(InputError, match=r"'docs' exists in sqlite-vec://.*left as it is"):
        open_system(spec).build(BASE[:9], "l2")
    with pytest.raises(MismatchError, match="compares by cosine; expected l2"):
        _ = open_system(f"{spec}&space=l2").ntotal
    assert open_system(f"{spec}&replace=true").build(BASE[:9], "l2").ntotal == 9
    assert open_system(spec).describe()["vec0"] is True


def test_a_failed_replacement_leaves_the_old_table(tmp_path: Path) -> None:
    spec = f"sqlite-vec://{tmp_path / 'new.db'}?table=docs"
    open_system(spec).build(BASE, "l2").close()
    # Wider than a vec0 column may be.
    wide = np.zeros((2, 9000), dtype=np.float32)
    with pytest.raises(SystemFault, match="SQLite failed"):
        open_system(f"{spec}&replace=true").build(wide, "l2")
    assert open_system(spec).ntotal == 300


def test_what_is_not_there_is_named(made: Callable[..., str], tmp_path: Path) -> None:
    address = made(
        "CREATE VIRTUAL TABLE docs USING vec0(v float[2], w float[2], x int8[4]);"
        "CREATE TABLE odd (id INTEGER PRIMARY KEY, v BLOB);"
        "INSERT INTO odd VALUES (1, x'0000'), (2, x'00000000')"
    )
    with pytest.raises(InputError, match="there is no table 'dosc'") as error:
        _ = open_system(f"{address}?table=dosc").ntotal
    assert "did you mean docs?" in str(error.value.hint)
    for options, message in (
        ("table=docs", "has several columns of vectors: v, w, x"),
        ("table=docs&column=x", "the column 'x' holds int8 vectors; expected float"),
        ("table=docs&column=v", "'docs' holds no vectors"),
        ("table=docs&column=u", "has no column of vectors 'u'"),
        ("table=odd", "has values of 2 to 4 bytes; expected vectors of one size"),
    ):
        with pytest.raises(InputError, match=message):
            _ = open_system(f"{address}?{options}").ntotal
    (tmp_path / "text.db").write_text("no database at all, but a text" * 100)
    with pytest.raises(InputError, match=r"SQLite cannot open .*text\.db") as error:
        _ = open_system(f"sqlite-vec://{tmp_path / 'text.db'}?table=docs").ntotal
    assert error.value.hint == "is it a file of SQLite?"
    with pytest.raises(InputError, match="there is no table 'docs'"):
        _ = open_system(f"sqlite-vec://{tmp_path / 'gone.db'}?table=docs").ntotal
    assert not (tmp_path / "gone.db").exists()


def test_dimension_and_space_must_fit(plain: str) -> None:
    with pytest.raises(MismatchError, match=r"shape \(3, 3\); expected \(n, 8\)"):
        open_system(f"{plain}?table=docs&space=l2").search(np.eye(3, dtype=np.float32), 1)
    with pytest.raises(InputError, match="'docs' does not say its space"):
        open_system(f"{plain}?table=docs").search(QUERIES, 1)
    with pytest.raises(InputError, match="has no space ip"):
        _ = open_system(f"{plain}?table=docs&space=ip").ntotal
    with pytest.raises(InputError, match="cannot have a column 'my id'"):
        open_system("sqlite-vec?id=my id").build(BASE, "l2")


def test_a_table_of_the_usual_name_is_left_alone_where_none_is_named(tmp_path: Path) -> None:
    pytest.importorskip("apsw")
    pytest.importorskip("sqlite_vec")
    spec = f"sqlite-vec://{tmp_path / 'own.db'}"
    open_system(spec).build(BASE, "l2").close()
    with pytest.raises(InputError, match="the table 'docs' exists"):
        open_system(spec).build(BASE[:3], "l2")
    again = open_system(f"{spec}?replace=true").build(BASE[:3], "l2")
    assert again.ntotal == 3
    again.close()


def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    spec = f"sqlite-vec://{tmp_path / 'docs.db'}?table=docs"
    with little_room(), pytest.raises(SystemFault, match="failed: ") as error:
        open_system(spec).build(BASE, "l2")
    assert error.value.hint == "is there room on the disk?"
    assert not list(tmp_path.iterdir())
    assert open_system(spec).build(BASE, "l2").ntotal == len(BASE)
