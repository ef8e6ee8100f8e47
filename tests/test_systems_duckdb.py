"""DuckDB: exact search in one statement, in place, with filters, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_checks import little_room

from semrecall.benchmark import search
from semrecall.errors import InputError, MismatchError, SemrecallError, SystemFault
from semrecall.exact import search as exact_search
from semrecall.systems import base_vectors, open_system
from semrecall.testing import check_system

RNG = np.random.default_rng(11)
BASE = RNG.standard_normal((300, 8)).astype(np.float32)
QUERIES = RNG.standard_normal((5, 8)).astype(np.float32)


@pytest.fixture
def duckdb() -> Any:
    return pytest.importorskip("duckdb")


@pytest.fixture
def made(duckdb: Any, tmp_path: Path) -> Callable[[str], str]:
    """Runs SQL in a file of DuckDB; gives the address of the file."""

    def make(sql: str) -> str:
        with duckdb.connect(str(tmp_path / "docs.duckdb")) as connection:
            connection.execute(sql)
        return f"duckdb://{tmp_path / 'docs.duckdb'}"

    return make


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_it_keeps_the_contract_with_recall_one(space: str) -> None:
    check_system("duckdb", space=space, exact=True)


def test_scores_by_hand(made: Callable[[str], str]) -> None:
    address = made(
        "CREATE TABLE docs (id VARCHAR PRIMARY KEY, v FLOAT[2]);"
        "INSERT INTO docs VALUES ('a', [3, 4]), ('b', [0, 1]), ('zero', [0, 0]), ('none', NULL)"
    )
    query = np.array([[0, 2]], dtype=np.float32)
    # ip: 4*2, 1*2, 0. cosine: 4/5 for a, 1 for b. l2: sqrt(9 + 4), 1, 2.
    for space, ids, scores in (
        ("ip", ["a", "b", "zero"], [8, 2, 0]),
        ("cosine", ["b", "a"], [1, 0.8]),
        ("l2", ["b", "zero", "a"], [1, 2, np.sqrt(13)]),
    ):
        system = open_system(f"{address}?table=docs&space={space}")
        found, values = system.search(query, 4)
        assert found.tolist() == [ids], space
        assert values is not None
        np.testing.assert_allclose(values, [scores], rtol=1e-6)
    assert (system.ntotal, system.dimension) == (3, 2)
    counters = system.count(query, 4)
    assert counters is not None
    # Three vectors of 2 floats.
    assert counters.bytes_read is not None
    np.testing.assert_array_equal(counters.bytes_read, [3 * 8])


def test_a_zero_vector_takes_no_place(made: Callable[[str], str]) -> None:
    """DuckDB sorts NaN above all numbers: the cosine of a zero vector would be the best."""
    address = made(
        "CREATE TABLE docs AS SELECT 1 AS id, [0, 0]::FLOAT[2] AS v UNION ALL "
        "SELECT 2, [-1, 0]::FLOAT[2]"
    )
    system = open_system(f"{address}?table=docs&space=cosine")
    assert system.search(np.array([[1, 0]], dtype=np.float32), 1)[0].tolist() == [[2]]


@pytest.mark.parametrize("kind", ["FLOAT[8]", "DOUBLE[8]", "FLOAT[]", "DOUBLE[]"])
def test_every_type_of_column_is_read_to_the_bit(
    duckdb: Any, made: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    rows = ",".join(f"('u{i}', {row.tolist()})" for i, row in enumerate(BASE))
    address = made(f"CREATE TABLE docs (id VARCHAR, v {kind}); INSERT INTO docs VALUES {rows}")
    spec = f"{address}?table=docs&space=l2"
    held = base_vectors(spec)
    assert held.matrix is None
    matrix = np.concatenate([block for _, block in held.blocks(100)])
    assert matrix.dtype == (np.float64 if "DOUBLE" in kind else np.float32)
    np.testing.assert_array_equal(matrix, BASE)
    assert list(held.ids[:2]) == ["u0", "u1"]
    np.testing.assert_array_equal(base_vectors(spec, whole=True).require_matrix(), BASE)
    ids, _ = open_system(spec).search(QUERIES, 5)
    expected = exact_search(held, QUERIES, 5, "l2")
    assert ids.tolist() == [row.tolist() for row in expected.ids]


def test_filters_are_conditions_with_values(made: Callable[[str], str]) -> None:
    rows = ",".join(f"({i}, {row.tolist()}, '{'de' if i % 3 else 'en'}')"
                    for i, row in enumerate(BASE))  # fmt: skip
    address = made(
        f"CREATE TABLE docs (id INT PRIMARY KEY, v FLOAT[8], lang VARCHAR);"
        f"INSERT INTO docs VALUES {rows}"
    )
    system = open_system(f"{address}?table=docs&space=ip")
    filters = ["lang = 'en'", None, ["lang = ? AND id < ?", ["de", 50]],
               {"where": "lang = ?", "parameters": ["en"]}, "lang = 'xx'"]  # fmt: skip
    run, cost = search(system, QUERIES, 4, filters=filters, repeats=1)
    assert all(i % 3 == 0 for i in run.ids[0])
    assert all(i % 3 and i < 50 for i in run.ids[2])
    assert all(i % 3 == 0 for i in run.ids[3])
    assert not any(i >= 0 for i in run.ids[4])
    # 100 of 300 ids are multiples of 3; below 50 there are 17 of them, so 33 others.
    assert cost.distance_computations is not None
    assert cost.distance_computations.tolist() == [100, 300, 33, 100, 0]
    truth = exact_search(BASE[::3], QUERIES[:1], 4, "ip")
    assert run.ids[0].tolist() == [3 * i for i in truth.ids[0].tolist()]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("lnag = 'de'", "the filter \"lnag = 'de'\": .*lnag"),
        ("id = ; DROP TABLE docs", "the filter"),
        ("true); DROP TABLE docs; --", "the filter"),
        (7, "the filter 7 is no SQL condition"),
        (["lang = ?"], "is no SQL condition"),
        (["id = ?", []], "the filter 'id = [?]'"),
    ],
)
def test_a_filter_that_cannot_be_is_an_error(
    made: Callable[[str], str], given: Any, message: str
) -> None:
    address = made("CREATE TABLE docs AS SELECT 1 AS id, [1, 0]::FLOAT[2] AS v, 'x' AS lang")
    system = open_system(f"{address}?table=docs&space=ip")
    with pytest.raises(InputError, match=message):
        system.search(np.eye(2, dtype=np.float32), 1, filters=[given, None])
    assert system.search(np.eye(2, dtype=np.float32), 1)[0].tolist() == [[1], [1]]


def test_a_table_is_built_in_a_file_and_never_replaced_unasked(tmp_path: Path) -> None:
    address = f"duckdb://{tmp_path / 'new.duckdb'}"
    spec = f"{address}?table=docs"
    assert not open_system(spec).built
    built = open_system(spec).build(BASE, "l2", [f"d{i}" for i in range(300)])
    again = open_system(f"{spec}&space=l2")
    assert again.built
    np.testing.assert_array_equal(again.search(QUERIES, 3)[0], built.search(QUERIES, 3)[0])
    with pytest.raises(InputError, match=r"'docs' exists in duckdb://.*left as it is") as error:
        open_system(spec).build(BASE[:9], "l2")
    assert "replace=true" in str(error.value.hint)
    assert again.ntotal == 300
    for system in (built, again):
        system.close()
    assert open_system(f"{spec}&replace=true").build(BASE[:9], "l2").ntotal == 9


def test_what_is_not_there_is_named(made: Callable[[str], str], tmp_path: Path) -> None:
    address = made("CREATE TABLE docs (id INT, name VARCHAR, v FLOAT[2], w FLOAT[2])")
    with pytest.raises(InputError, match="there is no table 'dosc' in duckdb://") as error:
        _ = open_system(f"{address}?table=dosc&space=l2").ntotal
    assert "did you mean docs?" in str(error.value.hint)
    with pytest.raises(InputError, match="has several columns of FLOAT or DOUBLE vectors: v, w"):
        _ = open_system(f"{address}?table=docs").ntotal
    with pytest.raises(InputError, match="has no column of FLOAT or DOUBLE vectors 'u'"):
        _ = open_system(f"{address}?table=docs&column=u").ntotal
    with pytest.raises(InputError, match="'docs' holds no vectors"):
        _ = open_system(f"{address}?table=docs&column=v").ntotal
    with pytest.raises(InputError, match="names no table"):
        _ = open_system(address).ntotal
    (tmp_path / "text.duckdb").write_text("no database at all, but a text" * 100)
    with pytest.raises(InputError, match=r"DuckDB cannot open .*text\.duckdb"):
        _ = open_system(f"duckdb://{tmp_path / 'text.duckdb'}?table=docs").ntotal


def test_space_and_dimension_must_fit(made: Callable[[str], str]) -> None:
    address = made("CREATE TABLE docs AS SELECT 1 AS id, [1, 0]::FLOAT[2] AS v")
    system = open_system(f"{address}?table=docs")
    # The vectors can be read without knowing how they are compared.
    assert system.vectors().dimension == 2
    with pytest.raises(InputError, match="'docs' does not say its space"):
        system.search(np.eye(2, dtype=np.float32), 1)
    with pytest.raises(MismatchError, match=r"shape \(3, 3\); expected \(n, 2\)"):
        open_system(f"{address}?table=docs&space=l2").search(np.eye(3, dtype=np.float32), 1)
    with pytest.raises(MismatchError, match="says space ip; it is built with l2"):
        open_system("duckdb", space="ip").build(BASE, "l2")
    with pytest.raises(InputError, match="replace is 'maybe'"):
        open_system("duckdb?replace=maybe")


def test_vectors_of_several_lengths_are_refused(made: Callable[[str], str]) -> None:
    address = made("CREATE TABLE docs (id INT, v FLOAT[]); "
                   "INSERT INTO docs VALUES (1, [1, 2]), (2, [1, 2, 3])")  # fmt: skip
    with pytest.raises(InputError, match="have 2 to 3 dimensions"):
        _ = open_system(f"{address}?table=docs").ntotal


def test_a_file_that_is_being_written_is_an_error_with_advice(
    duckdb: Any, made: Callable[[str], str]
) -> None:
    address = made("CREATE TABLE docs AS SELECT 1 AS id, [1, 0]::FLOAT[2] AS v")
    with duckdb.connect(address.removeprefix("duckdb://")):
        with pytest.raises(InputError, match="DuckDB cannot open") as error:
            _ = open_system(f"{address}?table=docs").ntotal
        assert "open for writing" in str(error.value.hint)


def test_pages_notice_that_the_table_changed(made: Callable[[str], str]) -> None:
    address = made("CREATE TABLE docs AS SELECT i AS id, [i, 0]::FLOAT[2] AS v FROM range(9) t(i)")
    system = open_system(f"{address}?table=docs")
    held = system.vectors()
    system.close()
    made("DELETE FROM docs WHERE id = 3")
    with pytest.raises(SystemFault, match="'docs' changed while it was read"):
        list(held.blocks(10))


def test_truth_reads_the_base_from_the_database(
    made: Callable[[str], str], tmp_path: Path, semrecall_main: Callable[..., Any]
) -> None:
    rows = ",".join(f"('u{i}', {row.tolist()})" for i, row in enumerate(BASE))
    address = made(f"CREATE TABLE docs (id VARCHAR, v FLOAT[8]); INSERT INTO docs VALUES {rows}")
    np.save(tmp_path / "q.npy", QUERIES)
    spec = f"{address}?table=docs"
    status, _, err = semrecall_main(
        "truth", spec, "q.npy", "-k", 3, "--space", "ip", "-o", "t.parquet"
    )
    assert (status, "the 3 nearest of 300 rows for 5 queries" in err) == (0, True), err
    status, _, err = semrecall_main(
        "search", spec, "--space", "ip", "--queries", "q.npy", "-k", 3, "-o", "r.parquet"
    )
    assert status == 0, err
    status, out, err = semrecall_main(
        "score", "r.parquet", "--truth", "t.parquet", "-m", "recall@3", "-m", "rde@3",
        "--base", spec, "--queries", "q.npy", "--format", "csv",
    )  # fmt: skip
    assert status == 0, err
    assert "recall@3,1.0" in out.replace('"', "")
    status, out, err = semrecall_main(
        "check", "--base", spec, "--queries", "q.npy", "--truth", "t.parquet", "--space", "ip"
    )
    assert (status, "300" in out) == (0, True), err
    status, _, err = semrecall_main("truth", spec.replace("docs", "dcos", 2), "q.npy",
                                    "--space", "ip")  # fmt: skip
    assert status == 2
    assert "Traceback" not in err
    status, _, err = semrecall_main("search", f"{address}?table=dosc", "--queries", "q.npy")
    assert status == 2
    assert "did you mean docs?" in err


@pytest.mark.usefixtures("duckdb")
def test_a_table_of_the_usual_name_is_left_alone_where_none_is_named(tmp_path: Path) -> None:
    spec = f"duckdb://{tmp_path / 'own.db'}"
    open_system(spec).build(BASE, "l2").close()
    with pytest.raises(InputError, match="the table 'docs' exists"):
        open_system(spec).build(BASE[:3], "l2")
    again = open_system(f"{spec}?replace=true").build(BASE[:3], "l2")
    assert again.ntotal == 3
    again.close()


@pytest.mark.usefixtures("duckdb")
def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    spec = f"duckdb://{tmp_path / 'docs.duckdb'}?table=docs"
    with little_room(), pytest.raises(SemrecallError, match="Could not write") as error:
        open_system(spec).build(BASE, "l2")
    assert error.value.hint == "is there room on the disk?"
    assert not list(tmp_path.iterdir())
    assert open_system(spec).build(BASE, "l2").ntotal == len(BASE)
