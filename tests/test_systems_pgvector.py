"""pgvector on a PostgreSQL of our own: searches, plans, filters, exports, and what goes wrong."""

from __future__ import annotations

import signal
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres_server import PostgresServer

from semrecall.benchmark import search
from semrecall.data import Vectors
from semrecall.data.ids import ids as ids_of
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.exact import search as exact_search
from semrecall.systems import System, base_vectors, open_system
from semrecall.testing import check_system

RNG = np.random.default_rng(17)
DIMENSION = 96
ROWS = 2500
#: Enough for the planner to prefer an index, few enough to build in a second. Neighbours that
#: stand out are found by an index over signs, too.
BASE = (RNG.standard_normal((ROWS, 24)) @ RNG.standard_normal((24, DIMENSION))).astype(np.float32)
QUERIES = BASE[:6] + RNG.standard_normal((6, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg")
    running = PostgresServer()
    try:
        yield running
    finally:
        running.remove()


@pytest.fixture
def address(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PGPASSWORD", server.password)
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    return server.address


@pytest.fixture
def sql(server: PostgresServer, address: str) -> Callable[..., list[Any]]:
    """Runs SQL as the superuser."""
    import psycopg

    def run(text: str, *values: Any) -> list[Any]:
        with psycopg.connect(
            address.replace("pgvector", "postgresql"), password=server.password, autocommit=True
        ) as made:
            made.execute("CREATE EXTENSION IF NOT EXISTS vector")
            cursor = made.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    run("SELECT 1")
    return run


@pytest.fixture(scope="module")
def docs(server: PostgresServer) -> str:
    """A table with an HNSW index for cosine, and columns to filter by."""
    import psycopg

    with psycopg.connect(
        server.address.replace("pgvector", "postgresql"), password=server.password, autocommit=True
    ) as made:
        made.execute("CREATE EXTENSION IF NOT EXISTS vector")
        made.execute(f"CREATE TABLE docs (key text PRIMARY KEY, v vector({DIMENSION}), n int)")
        with made.cursor().copy("COPY docs FROM STDIN") as rows:
            for i, row in enumerate(BASE):
                rows.write_row([f"d{i}", str(row.tolist()), i])
        made.execute("CREATE INDEX docs_cosine ON docs USING hnsw (v vector_cosine_ops)")
        made.execute("ANALYZE docs")
    return f"{server.address}?table=docs"


def recall(run: Any, space: str, k: int, ids: list[str] | None = None) -> float:
    truth = exact_search(Vectors.of(BASE, ids=ids), QUERIES, k, space)
    pairs = zip(run.ids, truth.ids, strict=True)
    return float(np.mean([len(set(a.tolist()) & set(b[:k].tolist())) / k for a, b in pairs]))


# -- the contract -----------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("options", ["", "index=ivfflat", "quantise=halfvec", "quantise=bit"])
def test_it_keeps_the_contract(
    address: str, sql: Callable[..., list[Any]], space: str, options: str
) -> None:
    check_system(f"{address}?{options}" if options else address, space=space)
    # Tables that build named by itself are gone with their systems.
    assert (
        sql("SELECT relname FROM pg_class WHERE relname LIKE 'semrecall%' AND relkind = 'r'") == []
    )


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_comparing_every_row_has_recall_one(
    address: str, sql: Callable[..., list[Any]], space: str
) -> None:
    check_system(f"{address}?index=none", space=space, exact=True)


@pytest.mark.parametrize(
    ("space", "options", "settings"),
    [
        ("ip", "", {"ef_search": 100}),
        ("cosine", "", {"ef_search": 100}),
        ("l2", "", {"ef_search": 100}),
        ("l2", "index=ivfflat", {"probes": 4}),
        ("ip", "quantise=halfvec", {"ef_search": 100}),
        ("cosine", "quantise=bit", {"ef_search": 200, "k_factor": 20}),
    ],
)
def test_an_index_is_used_and_settings_change_what_it_finds(
    address: str,
    sql: Callable[..., list[Any]],
    space: str,
    options: str,
    settings: dict[str, Any],
) -> None:
    fresh = open_system(f"{address}?{options}" if options else address)
    # A poor graph, so that settings matter.
    poorly = {"m": 3, "ef_construction": 6} if "ivfflat" not in options else {"lists": 10}
    built = fresh.build(BASE, space, **poorly)
    fine, _ = search(built, QUERIES, 10, repeats=1, **settings)
    knob = next(iter(settings))
    low = 10 if knob == "ef_search" else 1
    poor, _ = search(built, QUERIES, 10, repeats=1, **{**settings, knob: low})
    assert recall(fine, space, 10) >= 0.5
    assert recall(poor, space, 10) < recall(fine, space, 10)
    exact, scores = built.exact(QUERIES, 10)
    truth = exact_search(BASE, QUERIES, 10, space)
    assert exact.tolist() == [row.tolist() for row in truth.ids]
    assert truth.flat_scores is not None
    np.testing.assert_allclose(scores.ravel(), truth.flat_scores, rtol=1e-4, atol=1e-5)
    built.close()


# -- in place ---------------------------------------------------------------------------------


def test_a_table_is_searched_where_it_is(docs: str, address: str) -> None:
    system = open_system(docs)
    assert system.built
    assert (str(system.space), system.dimension, system.ntotal) == ("cosine", DIMENSION, ROWS)
    names = [knob.name for knob in system.knobs if knob.kind == "search"]
    assert names == ["ef_search", "iterative_scan", "max_scan_tuples"]
    assert [knob.default for knob in system.knobs if knob.kind == "search"] == [40, "off", 20000]
    run, cost = search(system, QUERIES, 10, ef_search=100, repeats=1)
    assert recall(run, "cosine", 10, [f"d{i}" for i in range(ROWS)]) > 0.95
    assert system.snippet({"ef_search": 80}) == "SET hnsw.ef_search = 80;"
    assert system.build_snippet({"m": 8}) == (
        'CREATE INDEX ON "docs" USING hnsw ("v" vector_cosine_ops) WITH (m = 8);'
    )
    for mode in (1, "relaxed_order"):
        written = system.snippet({"iterative_scan": mode})
        assert written == "SET hnsw.iterative_scan = relaxed_order;"
    record = cost.details["system"]
    assert (record["index"], record["kind"]) == ("docs_cosine", "hnsw")
    # Nothing of a secret in what is kept.
    assert "horse" not in repr((vars(system), record, system.spec))


def test_the_usual_address_of_postgresql_will_do(docs: str, address: str) -> None:
    system = open_system(docs.replace("pgvector://", "postgresql://"))
    assert system.search(QUERIES, 3)[0].shape == (6, 3)


def test_bytes_are_those_of_the_blocks_touched(docs: str, address: str) -> None:
    system = open_system(docs)
    few, many = (system.count(QUERIES, 10, ef_search=ef) for ef in (10, 100))
    assert few is not None
    assert many is not None
    assert few.distance_computations is None
    assert few.bytes_read is not None
    assert many.bytes_read is not None
    assert (few.bytes_read % 8192 == 0).all()
    assert (few.bytes_read < many.bytes_read).all()
    again = system.count(QUERIES, 10, ef_search=10)
    assert again is not None
    np.testing.assert_array_equal(again.bytes_read, few.bytes_read)
    # A scan touches every block of the table, each once.
    whole = open_system(f"{docs}&index=none").count(QUERIES, 10)
    assert whole is not None
    assert whole.bytes_read is not None
    assert len(set(whole.bytes_read.tolist())) == 1


def test_exact_search_scans_even_after_many_searches_with_the_index(
    docs: str, address: str
) -> None:
    """A prepared plan would go on using the index, whatever enable_indexscan says."""
    system = open_system(docs)
    for _ in range(8):
        system.search(QUERIES, 10, ef_search=10)
    exact, _ = system.exact(QUERIES, 10)
    truth = exact_search(
        Vectors.of(BASE, ids=[f"d{i}" for i in range(ROWS)]), QUERIES, 10, "cosine"
    )
    assert exact.tolist() == [row.tolist() for row in truth.ids]


def test_settings_of_the_role_are_the_defaults(
    docs: str, address: str, sql: Callable[..., list[Any]]
) -> None:
    sql("ALTER ROLE postgres SET hnsw.ef_search = 123")
    try:
        system = open_system(docs)
        assert system.knobs[-3].default == 123
    finally:
        sql("ALTER ROLE postgres RESET ALL")


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("bigint", "1, 2, 3", [1, 2, 3]),
        ("smallint", "1, 2, 3", [1, 2, 3]),
        ("uuid", ", ".join(f"'{uuid.UUID(int=i)}'" for i in (1, 2, 3)),
         [str(uuid.UUID(int=i)) for i in (1, 2, 3)]),
        ("varchar", "'a b', 'ü', 'c''d'", ["a b", "ü", "c'd"]),
        ("numeric", "1, 2, 3", ["1", "2", "3"]),
    ],
)  # fmt: skip
def test_ids_of_any_type_come_back(
    address: str, sql: Callable[..., list[Any]], kind: str, values: str, expected: list[Any]
) -> None:
    sql('DROP SCHEMA IF EXISTS "My Own" CASCADE')
    sql('CREATE SCHEMA "My Own"')
    sql(f'CREATE TABLE "My Own"."T%" ("The Id" {kind} PRIMARY KEY, "V" halfvec(2))')
    sql(f'INSERT INTO "My Own"."T%" SELECT x, y FROM unnest(ARRAY[{values}]::{kind}[], '
        "ARRAY['[1,0]', '[0.5,0]', NULL]::halfvec[]) AS t(x, y)")  # fmt: skip
    spec = f"{address}?table=My Own.T%&space=ip"
    system = open_system(spec)
    ids, scores = system.search(np.array([[2, 0]], dtype=np.float32), 3)
    # The row without a vector is no result.
    assert ids.tolist() == [expected[:2]]
    np.testing.assert_allclose(scores, [[2, 1]])
    held = base_vectors(spec, whole=True)
    assert held.dtype == np.float16
    assert held.ids == ids_of(expected[:2])


# -- what the planner does ----------------------------------------------------------------------


def test_an_index_that_is_not_used_is_told_of(address: str, sql: Callable[..., list[Any]]) -> None:
    built = open_system(address).build(BASE[:50], "l2")
    with pytest.warns(
        SemrecallWarning,
        match=r"with hnsw.ef_search=100 PostgreSQL uses Seq Scan and not the index .*: results are "
        r"exact and cost as much; probably the table is small \(50 rows\)",
    ):
        built.search(QUERIES, 10, ef_search=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built.search(QUERIES, 10, ef_search=100)  # once is enough
    built.close()


def test_a_filter_that_leaves_few_rows_is_told_of(docs: str, address: str) -> None:
    with pytest.warns(SemrecallWarning, match="probably the filter 'n = 7' leaves so few rows"):
        ids, _ = open_system(docs).search(QUERIES, 10, filters=["n = 7"] * 6)
    assert ids.tolist() == [["d7"]] * 6


def test_an_index_for_another_space_is_not_silently_ignored(
    docs: str, address: str, sql: Callable[..., list[Any]]
) -> None:
    with pytest.raises(
        MismatchError, match=r"no index of the table docs serves l2: it has docs_cosine \(hnsw, "
        r"vector_cosine_ops\); PostgreSQL would say nothing and compare every row",
    ) as error:  # fmt: skip
        _ = open_system(f"{docs}&space=l2").ntotal
    assert error.value.hint == "say space=cosine, or index=none to compare every row"
    scan = open_system(f"{docs}&space=l2&index=none")
    assert scan.search(QUERIES, 1)[0].shape == (6, 1)
    with pytest.raises(MismatchError, match="has no ivfflat index on 'v'"):
        _ = open_system(f"{docs}&index=ivfflat").ntotal


def test_two_indexes_want_a_choice(address: str, sql: Callable[..., list[Any]]) -> None:
    sql("DROP TABLE IF EXISTS two")
    sql("CREATE TABLE two AS SELECT i AS id, ARRAY[i, 1]::vector(2) AS v "
        "FROM generate_series(1, 2000) i")  # fmt: skip
    sql("CREATE INDEX two_l2 ON two USING hnsw (v vector_l2_ops)")
    sql("CREATE INDEX two_ip ON two USING ivfflat (v vector_ip_ops) WITH (lists = 7)")
    with pytest.raises(InputError, match="indexes for ip and l2") as error:
        _ = open_system(f"{address}?table=two").space
    assert error.value.hint == "say which in the spec: space=ip, space=l2"
    system = open_system(f"{address}?table=two&space=ip")
    assert [(k.name, k.high) for k in system.knobs if k.name == "probes"] == [("probes", 7)]
    assert system.search(np.array([[1, 0]], dtype=np.float32), 2, probes=7)[0].tolist() == [
        [2000, 1999]
    ]


def test_a_partial_index_and_another_one_are_told_of(
    address: str, sql: Callable[..., list[Any]]
) -> None:
    sql("DROP TABLE IF EXISTS part")
    sql("CREATE TABLE part AS SELECT i AS id, ARRAY[i, 1]::vector(2) AS v "
        "FROM generate_series(1, 3000) i")  # fmt: skip
    sql("CREATE INDEX part_some ON part USING hnsw (v vector_l2_ops) WHERE id > 1000")
    sql("ANALYZE part")
    system = open_system(f"{address}?table=part")
    query = np.array([[1500, 1]], dtype=np.float32)
    with pytest.warns(SemrecallWarning, match=r"the index holds only rows with \(id > 1000\)"):
        assert system.search(query, 1)[0].tolist() == [[1500]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert system.search(query, 1, filters=["id > 1000"])[0].tolist() == [[1500]]


def test_a_list_of_candidates_below_k_is_told_of(docs: str, address: str) -> None:
    system = open_system(docs)
    with pytest.warns(SemrecallWarning, match=r"ef_search is 40, below k = 50: .* at most 40"):
        ids, _ = system.search(QUERIES, 50)
    assert ids.shape == (6, 40)
    # Who asks for less, knows.
    ids, _ = system.search(QUERIES, 50, ef_search=20)
    assert ids.shape == (6, 20)
    ids, _ = system.search(QUERIES, 50, ef_search=20, iterative_scan=1)
    assert ids.shape == (6, 50)


# -- filters ------------------------------------------------------------------------------------


def test_filters_are_conditions_with_values(docs: str, address: str) -> None:
    filters = [None, "n % 2 = 0", ["n % %s = %s", [2, 1]],
               {"where": "key = ANY(%s)", "parameters": [["d1", "d2"]]}, "n < 0", ""]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        # In a condition with values a % that is none is written twice.
        filters[2] = ["n %% %s = %s", [2, 1]]
        ids, _ = open_system(docs).search(
            QUERIES, 5, filters=filters, iterative_scan="strict_order"
        )
    rows = [[int(i[1:]) for i in row if i] for row in ids.tolist()]
    assert all(n % 2 == 0 for n in rows[1])
    assert all(n % 2 == 1 for n in rows[2])
    assert sorted(rows[3]) == [1, 2]
    assert rows[4] == []
    assert [len(row) for row in rows] == [5, 5, 5, 2, 0, 5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nn = 1", "with the filter 'nn = 1': column \"nn\" does not exist"),
        ("n = 'x'", "invalid input syntax for type integer"),
        ("n = 1); DELETE FROM docs; --", "cannot insert multiple commands"),
        ("n = (SELECT setval('s', 1))", 'relation "s" does not exist'),
        ("lo_creat(1) > 0", "cannot execute lo_creat.* in a read-only transaction"),
        (["n = %s", []], "syntax error at or near"),
        (["n = %s AND n > %s", [1]], "the query has 3 placeholders but 2 parameters"),
        (["n %2 = %s", [1]], "only '%s', '%b', '%t' are allowed"),
    ],
)
def test_a_filter_that_cannot_be_is_an_error(
    docs: str, address: str, given: Any, message: str
) -> None:
    system = open_system(docs)
    with pytest.raises(InputError, match=message):
        system.search(QUERIES, 5, filters=[None, given, None, None, None, None])
    # The connection is as good as before.
    assert system.search(QUERIES, 5)[0].shape == (6, 5)
    assert system.ntotal == ROWS


# -- given out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [None, [f"doc {i}" for i in range(ROWS)]])
def test_vectors_come_out_as_they_went_in(
    address: str, sql: Callable[..., list[Any]], names: list[str] | None
) -> None:
    odd = BASE.copy()
    odd[7] = [np.finfo(np.float32).tiny, -0.0, 3e38, 1 / 3] + [1e-42] * 92
    built = open_system(address).build(odd, "l2", names)
    held = built.vectors()
    assert held.matrix is None
    first = np.concatenate([block for _, block in held.blocks(1000)])
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first.view(np.uint32), odd.view(np.uint32))
    assert list(held.ids) == (names or list(range(ROWS)))
    # Again, and with exact search over the pages.
    truth = exact_search(held, QUERIES, 5, "l2")
    assert truth.ids[0].tolist() == exact_search(Vectors.of(odd, ids=names), QUERIES, 5,
                                                 "l2").ids[0].tolist()  # fmt: skip
    sql(f'DELETE FROM "{built.describe()["table"]}" WHERE ctid = (SELECT min(ctid) FROM '
        f'"{built.describe()["table"]}")')  # fmt: skip
    with pytest.raises(SystemFault, match="changed while it was read"):
        list(held.blocks(1000))
    built.close()


def test_truth_search_and_score_on_the_command_line(
    docs: str, address: str, tmp_path: Path, semrecall_main: Callable[..., Any]
) -> None:
    np.save(tmp_path / "q.npy", QUERIES)
    status, _, err = semrecall_main(
        "truth", docs, "q.npy", "-k", 10, "--space", "cosine", "-o", "t.parquet"
    )
    assert (status, "the 10 nearest of 2,500 rows" in err) == (0, True), err
    status, out, err = semrecall_main(
        "search", docs, "--queries", "q.npy", "-k", 10, "--set", "ef_search=10,100",
        "-o", "r-{ef_search}.parquet",
    )  # fmt: skip
    assert status == 0, err
    assert "bytes read" in out
    status, out, err = semrecall_main(
        "score", "r-100.parquet", "--truth", "t.parquet", "-m", "trecall@10", "--base", docs,
        "--queries", "q.npy", "--format", "json",
    )  # fmt: skip
    assert status == 0, err
    status, _, err = semrecall_main("search", docs.replace("table=docs", "table=dosc"),
                                    "--queries", "q.npy")  # fmt: skip
    assert status == 2
    assert "there is no table 'dosc' in the database 'postgres' at 127.0.0.1" in err
    assert "did you mean docs?" in err


# -- made ---------------------------------------------------------------------------------------


def test_an_existing_table_is_never_replaced_unasked(
    address: str, sql: Callable[..., list[Any]]
) -> None:
    sql("DROP TABLE IF EXISTS mine")
    spec = f"{address}?table=mine"
    open_system(spec).build(BASE[:100], "ip", m=4, ef_construction=9).close()
    system = open_system(spec)
    assert {k: system.describe()[k] for k in ("m", "ef_construction")} == {
        "m": 4, "ef_construction": 9,
    }  # fmt: skip
    with pytest.raises(InputError, match="the table 'mine' exists in the database") as error:
        open_system(spec).build(BASE[:9], "ip")
    assert "replace=true" in str(error.value.hint)
    # A build that fails leaves the old table, and nothing new.
    with pytest.raises(InputError, match="2000 dimensions"):
        open_system(f"{spec}&replace=true").build(np.ones((3, 2001), dtype=np.float32), "ip")
    assert open_system(spec).ntotal == 100
    replaced = open_system(f"{spec}&replace=true&index=ivfflat").build(BASE, "l2", lists=7)
    assert replaced.ntotal == ROWS
    assert open_system(spec).describe()["lists"] == 7
    assert (
        sql("SELECT relname FROM pg_class WHERE relname LIKE 'semrecall%' AND relkind = 'r'") == []
    )


def test_short_memory_is_told_of(address: str, sql: Callable[..., list[Any]]) -> None:
    system = open_system(f"{address}?maintenance_work_mem=1MB")
    with pytest.warns(SemrecallWarning, match="no longer fits into maintenance_work_mem.*give it"):
        system.build(BASE, "l2").close()


# -- what goes wrong ----------------------------------------------------------------------------


def test_a_missing_extension_is_named(
    server: PostgresServer, address: str, sql: Callable[..., list[Any]]
) -> None:
    sql("DROP DATABASE IF EXISTS bare")
    sql("CREATE DATABASE bare")
    spec = address.removesuffix("postgres") + "bare"
    for use in (
        lambda: open_system(f"{spec}?table=docs").ntotal,
        lambda: open_system(spec).build(BASE[:9], "l2"),
    ):
        with pytest.raises(InputError, match=r"'bare' at 127.0.0.1:.* has no extension") as error:
            use()
        assert "CREATE EXTENSION vector" in str(error.value.hint)


@pytest.mark.parametrize(
    ("user", "port", "database", "message", "hint"),
    [
        ("nobody", None, "postgres", "password authentication failed", "PGPASSWORD"),
        ("postgres", None, "gone", 'database "gone" does not exist', "the database right"),
        ("postgres", 9, "postgres", "refused", "is the server running"),
    ],
)
def test_a_server_that_cannot_be_reached_is_explained(
    server: PostgresServer,
    address: str,
    user: str,
    port: int | None,
    database: str,
    message: str,
    hint: str,
) -> None:
    wrong = f"pgvector://{user}@127.0.0.1:{port or server.port}/{database}?table=docs"
    with pytest.raises(SystemFault, match=f"cannot connect to the database .*{message}") as error:
        _ = open_system(wrong).ntotal
    assert hint in str(error.value.hint)
    assert "horse" not in str(error.value)


def test_a_password_is_not_written_into_a_spec(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    with pytest.raises(SystemFault, match="no password supplied") as error:
        _ = open_system(f"{server.address}?table=docs").ntotal
    assert error.value.hint == "put it into PGPASSWORD or ~/.pgpass"
    with pytest.raises(InputError, match="holds a password") as refused:
        open_system(server.address.replace("postgres@", "postgres:s3cret@"))
    assert "s3cret" not in str(refused.value)


def test_a_role_that_may_only_read(
    docs: str, address: str, sql: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("DROP OWNED BY reader") if sql("SELECT 1 FROM pg_roles WHERE rolname = 'reader'") else None
    sql("DROP ROLE IF EXISTS reader")
    sql("CREATE ROLE reader LOGIN PASSWORD 'r'")
    monkeypatch.setenv("PGPASSWORD", "r")
    spec = docs.replace("postgres@", "reader@")
    with pytest.raises(SystemFault, match="permission denied for table docs") as error:
        _ = open_system(spec).ntotal
    assert "may SELECT" in str(error.value.hint)
    sql("GRANT SELECT ON docs TO reader")
    assert open_system(spec).search(QUERIES, 3)[0].shape == (6, 3)
    with pytest.raises(SystemFault, match="refuses a build: permission denied for schema"):
        open_system(spec.partition("?")[0]).build(BASE[:9], "l2")


def test_columns_must_fit(address: str, sql: Callable[..., list[Any]], docs: str) -> None:
    sql("DROP TABLE IF EXISTS odd")
    sql("CREATE TABLE odd (a int, v vector(2), w vector(2), s sparsevec(3))")
    for options, message in (
        ("table=odd", "several columns of type vector or halfvec: v, w"),
        ("table=odd&column=s", "no column of type vector or halfvec 's'"),
        ("table=odd&column=v", "no column of ids"),
        ("table=odd&column=v&id=b", "no column of ids 'b'"),
    ):
        with pytest.raises(InputError, match=message):
            _ = open_system(f"{address}?{options}").ntotal
    with pytest.raises(InputError, match="the table odd has no index that tells its space"):
        _ = open_system(f"{address}?table=odd&column=v&id=a").space
    with pytest.raises(MismatchError, match=r"shape \(2, 2\); expected \(n, 96\)"):
        open_system(docs).search(np.eye(2, dtype=np.float32), 1)
    with pytest.raises(InputError, match="no search knob 'ef_serch'"):
        open_system(docs).search(QUERIES, 1, ef_serch=3)
    with pytest.raises(InputError, match="index is 'hnws'; expected hnsw, ivfflat, none"):
        open_system(f"{docs}&index=hnws")
    with pytest.raises(InputError, match="timeout is 'soon'"):
        open_system(f"{docs}&timeout=soon")


def test_a_search_that_takes_too_long_is_ended(docs: str, address: str) -> None:
    system = open_system(f"{docs}&timeout=0.3")
    assert system.ntotal == ROWS
    with pytest.raises(SystemFault, match=r"took longer than 0\.3 s") as error:
        system.search(QUERIES[:1], 3, filters=["pg_sleep(0.1) IS NOT NULL"])
    assert "timeout=SECONDS" in str(error.value.hint)
    assert system.search(QUERIES, 3)[0].shape == (6, 3)


def backend(system: System) -> int:
    return int(system._server._connection.info.backend_pid)  # type: ignore[attr-defined]


def test_a_lost_connection_is_made_anew(
    docs: str, address: str, sql: Callable[..., list[Any]]
) -> None:
    system = open_system(f"{docs}&index=none")
    assert system.search(QUERIES, 3)[0].shape == (6, 3)
    ended = threading.Timer(0.5, sql, ["SELECT pg_terminate_backend(%s)", backend(system)])
    ended.start()
    with pytest.raises(
        SystemFault, match=r"connection to the database .* was lost during a search"
    ):
        system.search(QUERIES[:1], 3, filters=["pg_sleep(0.01) IS NOT NULL"])
    ended.join()
    assert system.search(QUERIES, 3)[0].shape == (6, 3)


@pytest.mark.parametrize("after", [0.1, 0.2, 0.3])
def test_an_interrupt_leaves_nothing_on_its_way(docs: str, address: str, after: float) -> None:
    system = open_system(f"{docs}&index=none")
    expected = system.search(QUERIES, 3)[0].tolist()
    timer = threading.Timer(after, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        system.search(QUERIES, 3, filters=["pg_sleep(0.001) IS NOT NULL"] * 6)
    timer.join()
    assert system.search(QUERIES, 3)[0].tolist() == expected


def test_a_server_that_stands_still_is_given_up(
    server: PostgresServer, docs: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semrecall.systems.postgres._GRACE_SECONDS", 0.2)
    system = open_system(f"{docs}&timeout=1")
    assert system.ntotal == ROWS
    pid = backend(system)
    server.freeze(pid)
    start = time.monotonic()
    try:
        with pytest.raises(SystemFault, match="no answer after 1 s"):
            system.search(QUERIES, 3)
    finally:
        server.thaw(pid)
    assert time.monotonic() - start < 10
    assert system.search(QUERIES, 3)[0].shape == (6, 3)


def test_a_restart_of_the_server_is_survived(
    server: PostgresServer, docs: str, address: str
) -> None:
    system = open_system(docs)
    expected = system.search(QUERIES, 3)[0].tolist()
    server.stop()
    with pytest.raises(SystemFault, match="was lost during a search"):
        system.search(QUERIES, 3)
    with pytest.raises(SystemFault, match="cannot connect to the database") as error:
        system.search(QUERIES, 3)
    assert "is the server running" in str(error.value.hint)
    server.start()
    assert system.search(QUERIES, 3)[0].tolist() == expected
