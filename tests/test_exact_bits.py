"""Exact search over bits: Hamming and Jaccard distance against counts and fractions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall import check, evaluate, truth
from semrecall.cli.spaces import SPACES
from semrecall.data import Run, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact import packed, rescore, search
from semrecall.exact.compiled import compiled
from semrecall.formats import read_run
from semrecall.space import HAMMING, JACCARD, bit_distances, quotients, space

NAMES = ("hamming", "jaccard")


@pytest.fixture(params=["numpy", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By numpy alone, and by the compiled loop however little there is to do."""
    if request.param == "compiled":
        if compiled("bits") is None:
            import numba  # noqa: F401, says what is missing

            pytest.fail("numba is there and made no loop")
        monkeypatch.setattr(packed, "_LOADING", 0)
    else:
        monkeypatch.setattr(packed, "compiled", lambda name: None)
    return str(request.param)


def slow(
    base: Any, queries: Any, k: int, name: str, allowed: Any = None
) -> list[list[tuple[Fraction, int]]]:
    """Distances as fractions by sets of the positions that are set, with all ties at rank k."""
    sets = [set(np.flatnonzero(row).tolist()) for row in base]
    found = []
    for number, query in enumerate(queries):
        own = set(np.flatnonzero(query).tolist())
        pairs = []
        for row, other in enumerate(sets):
            if allowed is not None and not allowed[number][row]:
                continue
            differing, either = len(own ^ other), len(own | other)
            distance = Fraction(differing, either if name == "jaccard" and either else 1)
            pairs.append((distance, row))
        pairs.sort()
        last = pairs[min(k, len(pairs)) - 1][0] if pairs else Fraction(0)
        found.append([pair for pair in pairs if pair[0] <= last])
    return found


def assert_equal(run: Run, expected: list[list[tuple[Fraction, int]]]) -> None:
    assert run.scores is not None
    for ids, scores, pairs in zip(run.ids, run.scores, expected, strict=True):
        assert ids.tolist() == [row for _, row in pairs]
        assert scores.tolist() == [float(distance) for distance, _ in pairs]


# -- hand counts ----------------------------------------------------------------------------------


def test_by_hand() -> None:
    # Query 1100 against 1111: 2 bits differ, 4 are set in either: 2 and 2/4.
    # Against 1000: 1 and 1/2. Against 0011: 4 and 4/4. Against 0000: 2 and 2/2.
    base = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=bool)
    query = np.array([[1, 1, 0, 0]], dtype=bool)
    run = search(base, query, 4, "hamming")
    assert run.ids[0].tolist() == [1, 0, 3, 2]
    assert run.scores is not None
    assert run.scores[0].tolist() == [1.0, 2.0, 2.0, 4.0]
    run = search(base, query, 4, "jaccard")
    assert run.ids[0].tolist() == [0, 1, 2, 3]
    assert run.scores is not None
    assert run.scores[0].tolist() == [0.5, 0.5, 1.0, 1.0]


def test_two_empty_sets_have_jaccard_distance_0() -> None:
    nothing = np.zeros((2, 16), dtype=bool)
    run = search(nothing, nothing[:1], 1, "jaccard")
    assert run.ids[0].tolist() == [0, 1]
    assert run.scores is not None
    assert run.scores[0].tolist() == [0.0, 0.0]
    assert run.reason(0) == ""  # a set without members is a query like any other


def test_near_of_distances() -> None:
    assert HAMMING.near(11.0, 10.0, 0.1)
    assert not HAMMING.near(12.0, 10.0, 0.1)
    assert JACCARD.near(0.0, 0.0, 0.5)
    assert not JACCARD.near(1e-9, 0.0, 0.5)  # only 0 is near 0
    assert not HAMMING.higher_is_nearer
    assert str(space("Hamming")) == "hamming"


@given(st.integers(1, 2000), st.data())
def test_quotients_order_as_fractions(most: int, data: st.DataObject) -> None:
    pairs = [(d, e) for e in (data.draw(st.integers(1, most)) for _ in range(8)) for d in (0, e)]
    pairs += [(data.draw(st.integers(0, e)), e) for _, e in pairs]
    values = quotients(*np.array(pairs).T)
    for (a, b), x in zip(pairs, values.tolist(), strict=True):
        for (c, d), y in zip(pairs, values.tolist(), strict=True):
            assert (a * d < c * b, a * d == c * b) == (x < y, x == y)


def test_neighbouring_fractions_stay_apart() -> None:
    """(n - 1)/n and (n - 2)/(n - 1) differ by 1/(n (n - 1)), the least two fractions can."""
    n = (1 << 26) - np.arange(1, 4000)
    assert bool((quotients(n - 1, n) > quotients(n - 2, n - 1)).all())


# -- against the slow definition -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dimension", [1, 8, 13, 64, 200, 1030])
def test_equals_the_slow_definition(way: str, name: str, dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    base = rng.random((150, dimension)) < rng.random((150, 1))  # from empty to full
    base[75:100] = base[:25]
    queries = rng.random((40, dimension)) < 0.4
    queries[0] = False
    for k in (1, 7, 200):
        assert_equal(search(base, queries, k, name), slow(base, queries, k, name))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_few_bits_tie_everywhere(name: str, data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 4))
    row = st.lists(st.booleans(), min_size=d, max_size=d)
    base = np.array(data.draw(st.lists(row, min_size=1, max_size=20)), dtype=bool)
    queries = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), dtype=bool)
    k = data.draw(st.integers(1, 22))
    assert_equal(search(base, queries, k, name), slow(base, queries, k, name))


@pytest.mark.parametrize("name", NAMES)
def test_stretches_blocks_and_samples(way: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows of few bits, in their worst order: the nearest come last."""
    monkeypatch.setattr(packed, "_ROWS", 101)
    monkeypatch.setattr(packed, "_SAMPLE", 64)
    rng = np.random.default_rng(3)
    base = rng.random((5000, 40)) < 0.5
    base = base[np.argsort(-base.sum(axis=1), kind="stable")]
    queries = rng.random((70, 40)) < 0.1
    expected = search(base[::-1], queries, 9, name)
    found = search(base, queries, 9, name, threads=3)
    assert expected.scores is not None
    assert found.scores is not None
    for a, b in zip(expected.scores, found.scores, strict=True):
        assert a.tolist() == b.tolist()
    assert_equal(search(base, queries[:3], 9, name), slow(base, queries[:3], 9, name))


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_by_memory_threads_tiles_and_streams(way: str, name: str) -> None:
    rng = np.random.default_rng(4)
    base = rng.integers(0, 256, (30_000, 9), dtype=np.uint8)
    queries = rng.integers(0, 256, (33, 9), dtype=np.uint8)
    plain = search(base, queries, 20, name)
    stream = Vectors.from_blocks([base[:7], base[7:12_345], base[12_345:]])
    for other in (
        search(base, queries, 20, name, memory=1 << 20, threads=1),
        search(stream, queries, 20, name, threads=2),
        search(np.unpackbits(base, axis=1).astype(bool),
               np.unpackbits(queries, axis=1).astype(bool), 20, name),
    ):  # fmt: skip
        assert other.documents == plain.documents
        assert np.array_equal(other.flat_scores, plain.flat_scores)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_filters(way: str, name: str) -> None:
    rng = np.random.default_rng(5)
    base = rng.random((6000, 30)) < 0.3
    queries = rng.random((12, 30)) < 0.3
    allowed = rng.random((12, 6000)) < rng.random((12, 1)) ** 3
    found = search(base, queries, 11, name, allowed=allowed)
    assert_equal(found, slow(base, queries, 11, name, allowed))


def test_more_ties_than_are_kept() -> None:
    base = np.zeros((30_000, 2), dtype=np.uint8)
    with pytest.warns(SemrecallWarning, match="1 query with more than 1,000 ties with neighbour 3"):
        run = search(base, base[:1], 3, "hamming", memory=1 << 20)
    assert run.ids[0].tolist() == list(range(1003))


def test_ids_decide_ties() -> None:
    base = Vectors.of(np.zeros((4, 1), dtype=bool), ids=["d", "b", "c", "a"])
    run = search(base, np.zeros((1, 1), dtype=bool), 2, "jaccard")
    assert list(run.ids[0]) == ["a", "b", "c", "d"]


def test_faiss_agrees() -> None:
    faiss = pytest.importorskip("faiss")
    rng = np.random.default_rng(6)
    base = rng.integers(0, 256, (3000, 16), dtype=np.uint8)
    queries = rng.integers(0, 256, (20, 16), dtype=np.uint8)
    index = faiss.IndexBinaryFlat(128)
    index.add(base)
    distances, _ = index.search(queries, 50)
    run = search(base, queries, 50, "hamming")
    assert run.scores is not None
    assert [s[:50].tolist() for s in run.scores] == distances.tolist()


# -- what is refused -------------------------------------------------------------------------------


def test_the_command_line_knows_every_space() -> None:
    assert [space(name).name for name in SPACES] == list(SPACES)
    with pytest.raises(InputError, match="expected " + ", ".join(SPACES[:-1]) + " or maxsim"):
        space("manhattan")


def test_numbers_are_no_bits() -> None:
    floats = np.ones((3, 8), dtype=np.float32)
    with pytest.raises(InputError, match="hamming compares bits; the base vectors are float32"):
        search(floats, floats, 1, "hamming")


def test_packed_and_unpacked_do_not_mix() -> None:
    base = np.full((3, 8), 5, dtype=np.uint8)
    with pytest.raises(MismatchError, match=r"base \(uint8\) and queries \(bool\) is packed"):
        search(base, np.ones((1, 64), dtype=bool), 1, "hamming")


def test_dimensions_of_one_byte_stay_apart() -> None:
    """13 and 16 bits both take two bytes."""
    with pytest.raises(MismatchError, match="base vectors have 13 bits, queries 16"):
        search(np.ones((3, 13), dtype=bool), np.ones((1, 16), dtype=bool), 1, "jaccard")


def test_bytes_that_look_like_bits_are_named() -> None:
    base = np.eye(9, dtype=np.uint8)
    with pytest.warns(SemrecallWarning, match="0 or 1, and are taken as eight bits each"):
        search(base, base[:1], 1, "hamming")


# -- everything else a run does --------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_evaluate_and_rescore(name: str) -> None:
    rng = np.random.default_rng(7)
    base = rng.random((400, 24)) < 0.5
    queries = rng.random((10, 24)) < 0.5
    exact = truth(base, queries, 10, name)
    assert exact.space == space(name)
    perfect = evaluate(exact, ["recall@10", "trecall(x=0)@10", "rde@10"], truth=exact)
    assert [perfect.mean(m) for m in ("recall@10", "trecall(x=0)@10", "rde@10")] == [1, 1, 0]
    wrong = Run.from_arrays(np.tile(np.arange(10), (10, 1)), space=name)
    result = evaluate(wrong, ["recall@10", "trecall(x=50%)@10", "erecall(eps=50%)@10", "ratio@10"],
                      truth=exact, base=base, queries=queries)  # fmt: skip
    assert result.mean("recall@10") <= result.mean("trecall(x=50%)@10")
    assert 0 < result.mean("ratio@10") < 1
    scored = rescore(wrong, base, queries, name)
    expected = [bit_distances(space(name), base[:10], query).tolist() for query in queries]
    assert scored.scores is not None
    assert [row.tolist() for row in scored.scores] == expected


@pytest.mark.parametrize(("name", "other"), [NAMES, NAMES[::-1]])
def test_check_names_the_space_that_fits(name: str, other: str) -> None:
    rng = np.random.default_rng(8)
    base = rng.random((500, 100)) < rng.random((500, 1))
    queries = rng.random((20, 100)) < 0.4
    exact = search(base, queries, 10, name)
    right = check(base=base, queries=queries, truth=exact)
    assert right.ok
    assert {"scores-fit", "truth-right"} <= {finding.code for finding in right.findings}
    wrong = check(base=base, queries=queries, truth=exact.replace(space=space(other)))
    assert not wrong.ok
    told = " ".join(finding.found for finding in wrong.findings if finding.level == "error")
    assert f"nearest in {name}" in told


def test_other_spaces_of_booleans_are_those_of_zeros_and_ones() -> None:
    rng = np.random.default_rng(9)
    base, queries = rng.random((300, 20)) < 0.5, rng.random((5, 20)) < 0.5
    for name in ("ip", "cosine", "l2"):
        found = search(base, queries, 5, name)
        expected = search(base.astype(np.float32), queries.astype(np.float32), 5, name)
        assert found.documents == expected.documents
        assert np.array_equal(found.flat_scores, expected.flat_scores)  # type: ignore[arg-type]


def test_at_the_command_line(
    tmp_path: Path, semrecall_main: Callable[..., tuple[int, str, str]]
) -> None:
    rng = np.random.default_rng(10)
    np.save(tmp_path / "base.npy", rng.integers(0, 256, (300, 8), dtype=np.uint8))
    np.save(tmp_path / "queries.npy", rng.integers(0, 256, (6, 8), dtype=np.uint8))
    status, _, err = semrecall_main(
        "truth", "base.npy", "queries.npy", "-k", 5, "--space", "hamming", "-o", "truth.parquet"
    )
    assert status == 0, err
    status, out, err = semrecall_main("score", "truth.parquet", "--truth", "truth.parquet",
                                      "-m", "recall@5")  # fmt: skip
    assert status == 0, err
    assert "hamming" in err + out
    status, _, err = semrecall_main("convert", "truth.parquet", "truth.run")
    assert status == 0, err
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        back = read_run(tmp_path / "truth.run", space="hamming")
    assert back.flat_scores is not None
    assert bool((back.flat_scores >= 0).all())
