"""Redis: vector sets, on a real Redis 8."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from redis_server import RedisServer

import semrecall as sr
from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.systems import open_system
from semrecall.testing import check_system

pytestmark = pytest.mark.environment("redis")

RNG = np.random.default_rng(8)
BASE = RNG.standard_normal((400, 12)).astype(np.float32)
NAMES = [f"doc-{i}" for i in range(400)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_USERNAME", "REDIS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def spec(server: RedisServer, rest: str = "") -> str:
    return f"redis://{server.host}{rest}"


def test_vector_sets_keep_the_contract(server):
    check_system(spec(server), space="cosine")


def test_quantised_vector_sets_keep_the_contract(server):
    check_system(spec(server, "?quant=q8"), space="cosine")


def test_exact_search_finds_the_true_neighbours(server):
    system = open_system(spec(server)).build(BASE, "cosine", ids=NAMES)
    truth = sr.truth(sr.Vectors.of(BASE, ids=NAMES), BASE[:20] + 0.1, k=10, space="cosine")
    ids, scores = system.exact(BASE[:20] + np.float32(0.1), 10)
    assert ids.tolist() == [row.tolist() for row in truth.ids]
    np.testing.assert_allclose(scores, np.stack(list(truth.scores)), atol=1e-5)
    found, _ = system.search(BASE[:20] + np.float32(0.1), 10, ef=400)
    assert np.mean(found == ids) > 0.99


def test_a_small_ef_finds_less_and_holds_for_one_search(server):
    base = RNG.standard_normal((3000, 24)).astype(np.float32)
    system = open_system(spec(server)).build(base, "cosine", m=4, ef_construction=10)
    queries = RNG.standard_normal((50, 24)).astype(np.float32)
    truth, _ = system.exact(queries, 10)

    def recall(**settings: int) -> float:
        ids, _ = system.search(queries, 10, **settings)
        return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, truth, strict=True)]))

    assert recall(ef=10) < recall(ef=100) < recall(ef=2000)


def test_filters_are_expressions_on_attributes(server):
    system = open_system(spec(server, "/filtered?replace=true")).build(BASE, "cosine", ids=NAMES)
    for row, name in enumerate(NAMES):
        system._client.execute_command("VSETATTR", "filtered", name, f'{{"even": {1 - row % 2}}}')
    ids, _ = system.search(BASE[1:3], 5, filters=[".even == 1", None], filter_ef=1000)
    assert all(int(name[4:]) % 2 == 0 for name in ids[0])
    assert ids[1][0] == "doc-2"
    ids, _ = system.exact(BASE[1:2], 5, filters=[".even == 1"])
    assert all(int(name[4:]) % 2 == 0 for name in ids[0])
    with pytest.raises(SystemFault, match="syntax error in FILTER"):
        system.search(BASE[:1], 5, filters=[".even >"])
    with pytest.raises(InputError, match="no expression of Redis"):
        system.search(BASE[:1], 5, filters=[{"even": 1}])


def test_a_vector_set_is_searched_where_it_is_and_left_as_it_is(server):
    made = open_system(spec(server, "/docs")).build(BASE, "cosine", ids=NAMES)
    made.close()
    system = open_system(spec(server, "/docs"))
    assert (system.built, system.dimension, system.ntotal) == (True, 12, 400)
    assert system.space.name == "cosine"
    assert system.describe()["quant"] == "f32"
    ids, _ = system.search(BASE[:3], 2)
    assert ids[:, 0].tolist() == NAMES[:3]
    with pytest.raises(InputError, match="the key 'docs' exists"):
        system.build(BASE, "cosine")
    small = open_system(spec(server, "/docs?replace=true")).build(BASE[:9], "cosine")
    assert small.ntotal == 9


def test_vectors_are_given_out(server, monkeypatch):
    monkeypatch.setattr("semrecall.systems.redis._ROWS", 150)
    for names in (NAMES, list(range(1000, 1400))):
        system = open_system(spec(server)).build(BASE, "cosine", ids=names)
        found = system.vectors()
        given = {str(name): row for name, row in zip(names, BASE, strict=True)}
        for _ in range(2):
            rows = np.concatenate([block for _, block in found.blocks(1000)])
            # Kept as a direction and a length, both float32.
            expected = np.array([given[name] for name in found.ids.strings().tolist()])
            np.testing.assert_allclose(rows, expected, atol=1e-5)
    codes = open_system(spec(server, "?quant=bin")).build(BASE, "cosine")
    assert codes.codes() is not None
    with pytest.raises(InputError, match="quantised vectors"):
        codes.vectors()


def test_what_it_built_for_itself_goes_with_it(server):
    system = open_system(spec(server)).build(BASE, "cosine")
    key = system.collection
    assert system._client.exists(key)
    client = system._client
    system.close()
    assert not client.exists(key)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("/nope", "there is no key 'nope'"),
        ("", "names no key"),
        ("/text", "is a string, not a vector set"),
        ("/docs?quant=q4", "quant is 'q4'"),
        ("/docs?db=x", "db is 'x'"),
        ("/docs?timeout=0", "timeout is '0'"),
    ],
)
def test_wrong_input_is_explained(server, rest, message):
    maker = open_system(spec(server, "/any"))
    maker._client.set("text", "hello")
    with pytest.raises(InputError) as found:
        _ = open_system(spec(server, rest)).ntotal
    assert message in str(found.value)


def test_only_cosine_and_only_its_dimension(server):
    with pytest.raises(MismatchError, match="has no space ip; it has cosine"):
        open_system(spec(server)).build(BASE, "ip")
    system = open_system(spec(server)).build(BASE, "cosine")
    with pytest.raises(MismatchError, match="has 12 dimensions"):
        system.search(BASE[:1, :3], 2)


def test_passwords_come_from_the_environment(tmp_path: Path, monkeypatch):
    with RedisServer(tmp_path, "sesame-42") as server:
        with pytest.raises(SystemFault, match="REDIS_PASSWORD"):
            _ = open_system(spec(server, "/docs")).built
        monkeypatch.setenv("REDIS_PASSWORD", "wrong-17")
        with pytest.raises(SystemFault, match="refused the password") as found:
            _ = open_system(spec(server, "/docs")).built
        assert "wrong-17" not in str(found.value)
        monkeypatch.setenv("REDIS_PASSWORD", "sesame-42")
        system = open_system(spec(server, "/docs")).build(BASE, "cosine")
        assert "sesame" not in repr(system.describe())
    with pytest.raises(InputError, match="holds a user or a password"):
        open_system("redis://me:sesame-42@127.0.0.1/docs")


def test_a_server_that_stops_hangs_and_starts_again(tmp_path: Path):
    with RedisServer(tmp_path) as server:
        system = open_system(spec(server, "/docs?timeout=0.5")).build(BASE, "cosine")
        server.freeze()
        with pytest.raises(SystemFault, match=r"did not answer within 0\.5 s"):
            system.search(BASE[:1], 2)
        server.thaw()
        system.search(BASE[:1], 2)
        server.stop()
        with pytest.raises(SystemFault, match="cannot be reached"):
            system.search(BASE[:1], 2)
        server.start()
        with pytest.raises(SystemFault, match="the key 'docs' is gone"):
            system.search(BASE[:1], 2)


def test_the_command_line(server, semrecall_main, tmp_path: Path):
    np.save(tmp_path / "base.npy", BASE)
    np.save(tmp_path / "queries.npy", BASE[:5])
    with warnings.catch_warnings():
        status, _, err = semrecall_main(
            "search", spec(server, "/shell?replace=true"), "--base", "base.npy", "--queries",
            "queries.npy", "--space", "cosine", "-k", 4, "--set", "ef=10,100",
            "-o", "run-{ef}.parquet", "--repeats", 1,
        )  # fmt: skip
    assert status == 0, err
    assert [row[0] for row in sr.read("run-10.parquet").ids] == [0, 1, 2, 3, 4]
    status, _, err = semrecall_main("search", spec(server, "/nope"), "--queries", "queries.npy")
    assert status == 2
    assert "there are" in err
