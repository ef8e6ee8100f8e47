"""Exact truth: against the slow definition, and the same for every way of computing it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.data import Run, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact import direct, rescore, search
from semrecall.exact import search as exact_search
from semrecall.exact.chunk import ChunkPass
from semrecall.exact.compiled import compiled
from semrecall.space import ordered_sum, space

SPACES = ("ip", "cosine", "l2")


def slow(base: Any, queries: Any, k: int, name: str, allowed: Any = None) -> list[tuple[Any, Any]]:
    """Every score of every row, sorted by (score, row), cut after the ties with rank k."""
    geometry = space(name)
    rows = []
    for number, query in enumerate(np.asarray(queries)):
        with np.errstate(invalid="ignore", over="ignore"):
            scores = geometry.exact_scores(base, query)
        key = geometry.sort_key(scores)
        real = np.isfinite(base).all(axis=1) & ~np.isnan(scores)
        if allowed is not None:
            real &= allowed[number]
        found = np.flatnonzero(real)
        order = found[np.lexsort((found, key[found]))]
        if len(order) > k:
            order = order[: np.searchsorted(key[order], key[order[k - 1]], side="right")]
        rows.append((order, scores[order]))
    return rows


def assert_equal(run: Run, expected: list[tuple[Any, Any]]) -> None:
    assert run.scores is not None
    for number, (order, scores) in enumerate(expected):
        real = ~np.isnan(run.scores[number])
        assert run.ids[number][real].tolist() == order.tolist()
        assert run.scores[number][real].tolist() == scores.tolist()


@pytest.fixture(
    scope="module", autouse=True, params=["some scores", "all scores", "all scores by loops"]
)
def screening(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small searches take all scores at once; larger ones keep those above a guess."""
    loops = None
    if request.param == "all scores by loops":
        loops = compiled()
        if loops is None:
            import numba  # noqa: F401, says what is missing

            pytest.skip("this processor has no products of bytes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "loaded", lambda: loops)
        if request.param == "some scores":
            patch.setattr(direct, "_BLOCKS", 0)
        yield


def quiet(*args: Any, **options: Any) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        return search(*args, **options)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8"])
@pytest.mark.parametrize(("rows", "k"), [(1, 1), (5, 10), (3000, 1), (6000, 40)])
def test_equals_the_slow_definition(name: str, dtype: str, rows: int, k: int) -> None:
    rng = np.random.default_rng(rows + k)
    low = 0 if dtype == "uint8" else -90
    base = rng.uniform(low, 90, (rows, 19)).astype(dtype)
    if rows == 6000:
        base[3000:] = base[:3000]  # every row twice: ties everywhere
    queries = rng.uniform(low, 90, (9, 19)).astype(dtype)
    assert_equal(quiet(base, queries, k, name), slow(base, queries, k, name))


@given(data=st.data())
def test_adversarial_values(data: st.DataObject) -> None:
    """Zero rows, duplicates, NaN, infinities, huge and tiny values, few dimensions."""
    d = data.draw(st.integers(1, 3))
    value = st.sampled_from([0.0, 1.0, -1.0, 1e-30, -1e-20, 1e20, 3e38, np.nan, np.inf, 1 + 1e-7])
    row = st.lists(value, min_size=d, max_size=d)
    base = np.array(data.draw(st.lists(row, min_size=1, max_size=12)), dtype=np.float32)
    queries = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), dtype=np.float32)
    name = data.draw(st.sampled_from(SPACES))
    k = data.draw(st.integers(1, 14))
    run = quiet(base, queries, k, name)
    expected = slow(base, queries, k, name)
    for number, query in enumerate(queries):
        if not np.isfinite(query).all() or (name != "l2" and not query.any()):
            assert run.reason(number) in ("NaN or infinite query vector", "zero query vector")
            expected[number] = (np.empty(0, dtype=np.int64), np.empty(0))
        else:
            assert run.reason(number) == ""
    assert_equal(run, expected)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("scale", [1e100, 1e-100])
def test_float64_of_extreme_size(name: str, scale: float) -> None:
    rng = np.random.default_rng(8)
    base, queries = rng.standard_normal((60, 5)) * scale, rng.standard_normal((4, 5)) * scale
    assert_equal(search(base, queries, 7, name), slow(base, queries, 7, name))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize(("base", "queries"), [(1e160, 1e160), (1.0, 1e200), (1e-200, 1e-200)])
def test_what_float64_cannot_square_is_refused(name: str, base: float, queries: float) -> None:
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((60, 5))
    with pytest.raises(InputError, match="whose squares float64 cannot hold"):
        search(rows * base, rows[:2] * queries, 7, name)


@pytest.mark.parametrize("name", SPACES)
def test_same_bits_for_any_blocks_threads_and_source(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    base = rng.standard_normal((9000, 24)).astype(np.float32)
    base[::10] = base[3]  # a tie group of 901 rows
    queries = np.concatenate([base[:3], rng.standard_normal((40, 24)).astype(np.float32)])
    reference = search(base, queries, 25, name)
    np.save(tmp_path / "base.npy", base)
    mapped = np.load(tmp_path / "base.npy", mmap_mode="r")
    module, chunk = (import_module(f"semrecall.exact.{name}") for name in ("search", "chunk"))
    runs = [
        search(base, queries, 25, name, threads=1),
        search(base, queries, 25, name, threads=3, memory=1 << 20),
        search(mapped, queries, 25, name, memory=1 << 20),
        search(Vectors.from_blocks(np.array_split(base, 13)), queries, 25, name),
        search(Vectors.from_blocks(iter(np.array_split(base, 5))), queries, 25, name),
    ]
    monkeypatch.setattr(chunk, "_CELLS", 3000)
    monkeypatch.setattr(chunk, "_GROUP", 11)
    monkeypatch.setattr(module, "_TILE", 17)
    monkeypatch.setattr(module, "_CHUNK", 2100)
    runs.append(search(base, queries, 25, name))
    for run in runs:
        assert run.ids.to_list() == reference.ids.to_list()
        assert run.flat_scores is not None
        assert reference.flat_scores is not None
        assert run.flat_scores.tobytes() == reference.flat_scores.tobytes()
        assert run.identity == reference.identity


def test_a_failed_guess_is_found_out_and_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guess is set far too high: nothing may be lost."""
    rng = np.random.default_rng(6)
    base = rng.standard_normal((20_000, 16)).astype(np.float32)
    queries = rng.standard_normal((5, 16)).astype(np.float32)
    monkeypatch.setattr(ChunkPass, "_guess", lambda self, before: np.full(len(before), 1e9))
    assert_equal(search(base, queries, 10, "ip"), slow(base, queries, 10, "ip"))


@pytest.mark.parametrize("name", SPACES)
def test_filters(name: str) -> None:
    rng = np.random.default_rng(7)
    base = rng.standard_normal((7000, 12)).astype(np.float32)
    queries = rng.standard_normal((6, 12)).astype(np.float32)
    allowed = rng.random((6, 7000)) < np.array([0, 0.0007, 0.01, 0.1, 0.9, 1])[:, None]
    expected = slow(base, queries, 30, name, allowed)
    by_mask = search(base, queries, 30, name, allowed=allowed)
    assert_equal(by_mask, expected)
    assert len(by_mask.ids[0]) == 0
    lists = [np.flatnonzero(row) for row in allowed]
    assert_equal(search(base, queries, 30, name, allowed=lists), expected)
    ids = [f"row {i}" for i in range(7000)]
    named = search(
        Vectors.of(base, ids=ids),
        Vectors.of(queries, ids=[f"q{i}" for i in range(6)]),
        30,
        name,
        allowed={f"q{i}": [f"row {r}" for r in rows] for i, rows in enumerate(lists)},
    )
    wanted = [[f"row {r}" for r in order] for order, _ in expected]
    assert [sorted(row) for row in named.ids.to_list()] == [sorted(row) for row in wanted]
    shared_mask = allowed[3]
    assert_equal(
        search(base, queries, 30, name, allowed=shared_mask),
        slow(base, queries, 30, name, np.tile(shared_mask, (6, 1))),
    )


def test_filter_faults() -> None:
    base, queries = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    with pytest.raises(MismatchError, match=r"shape \(3,\); expected \(4,\) or \(4, 4\)"):
        search(base, queries, 1, "ip", allowed=np.ones(3, dtype=bool))
    with pytest.raises(MismatchError, match="allows id 9, which is not in the base"):
        search(base, queries, 1, "ip", allowed=[[0], [9], [], []])
    with pytest.raises(MismatchError, match="names query 7"):
        search(base, queries, 1, "ip", allowed={7: [1]})


# -- the shared cases ---------------------------------------------------------------------


def test_case_a11_duplicated_vectors_tie() -> None:
    base = np.repeat(np.random.default_rng(0).standard_normal((10, 8)), 100, axis=0)
    run = search(base, base[::100], 10, "l2")
    # 100 rows at distance 0: the row goes on to the end of the tie group.
    assert [len(row) for row in run.ids] == [100] * 10


def test_case_a18_filter_with_two_matches() -> None:
    base = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    run = search(base, base[3:4], 5, "l2", allowed=[[3, 7]])
    assert run.ids.to_list() == [[3, 7]]
    assert len(search(base, base[3:4], 5, "l2", allowed=[[]]).ids[0]) == 0


def test_case_b05_distances_are_not_squared() -> None:
    run = search([[3.0, 4.0]], [[0.0, 0.0]], 1, "l2")
    assert run.scores is not None
    assert run.scores[0].tolist() == [5.0]


def test_case_c01_zero_row_stands_last() -> None:
    with pytest.warns(SemrecallWarning, match="1 base row without a score"):
        run = search([[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0]], 2, "cosine")
    assert run.scores is not None
    assert run.ids[0].tolist() == [1, 0]
    assert run.scores[0][0] == 1.0
    assert np.isnan(run.scores[0][1])
    assert run.valid.tolist() == [True, False]


def test_case_c02_zero_query() -> None:
    with pytest.warns(SemrecallWarning, match="zero query vector"):
        run = search([[1.0, 0.0]], [[0.0, 0.0]], 1, "cosine")
    assert run.reason(0) == "zero query vector"
    assert len(run.ids[0]) == 0


def test_case_c03_nan_rows_are_named_and_left_out() -> None:
    base = np.eye(3, dtype=np.float32)
    base[1, 0] = np.nan
    with pytest.warns(SemrecallWarning, match="1 base row left out, with NaN or infinity: 1"):
        run = search(base, base[:1], 3, "ip")
    assert sorted(run.ids[0].tolist()) == [0, 2]
    assert run.identity["left_out_rows"] == 1


def test_case_c05_vectors_that_differ_after_the_sixth_decimal() -> None:
    rng = np.random.default_rng(0)
    base = rng.standard_normal(512) + 1e-6 * rng.standard_normal((500, 512))
    queries = base[:5]
    for name in SPACES:
        assert_equal(search(base, queries, 10, name), slow(base, queries, 10, name))


def test_case_c06_c07_integers_are_widened() -> None:
    run = search(
        np.array([[-128] * 4], dtype=np.int8), np.array([[127] * 4], dtype=np.int8), 1, "ip"
    )
    assert run.scores is not None
    assert run.scores[0].tolist() == [-65024.0]
    wide = np.full((1, 1041), 127, dtype=np.int8)
    scores = search(wide, wide, 1, "ip").scores
    assert scores is not None
    assert scores[0].tolist() == [16790289.0]


def test_case_d09_d10_k_larger_than_the_base_and_its_blocks() -> None:
    base = np.eye(3, dtype=np.float32)
    run = search(Vectors.from_blocks([base[:2], base[2:]]), base[:1], 5, "ip")
    assert run.ids[0].tolist() == [0, 1, 2]


# -- at the door ---------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_k_is_a_whole_number(k: Any) -> None:
    with pytest.raises(InputError, match="expected a whole number of at least 1"):
        search(np.eye(2), np.eye(2), k, "ip")


def test_dimensions_must_agree() -> None:
    with pytest.raises(MismatchError, match="base vectors have 3 dimensions, queries 2"):
        search(np.eye(3), np.eye(2), 1, "ip")


def test_empty_base_and_no_queries() -> None:
    run = search(np.empty((0, 4), dtype=np.float32), np.ones((2, 4)), 3, "ip")
    assert [len(row) for row in run.ids] == [0, 0]
    assert len(search(np.ones((2, 4)), np.empty((0, 4)), 3, "ip")) == 0


def test_all_rows_equal_is_bounded() -> None:
    base = np.ones((30_000, 4), dtype=np.float32)
    with pytest.warns(SemrecallWarning, match="ties with neighbour 5"):
        run = search(base, base[:3], 5, "l2", memory=1 << 20)
    assert [len(row) for row in run.ids] == [1005] * 3
    assert run.ids[0].tolist() == list(range(1005))


def test_progress_reaches_the_end() -> None:
    seen: list[tuple[float, int | None]] = []
    base = np.random.default_rng(0).standard_normal((3000, 8))
    search(base, base[:9], 3, "ip", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3000, 3000)


def test_string_ids_break_ties_in_their_order() -> None:
    base = np.ones((4, 2), dtype=np.float32)
    run = search(Vectors.of(base, ids=["d", "b", "c", "a"]), base[:1], 2, "ip")
    assert run.ids[0].tolist() == ["a", "b", "c", "d"]


def test_interrupt_stops_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(done: float, total: int | None) -> None:
        raise KeyboardInterrupt

    base = np.random.default_rng(0).standard_normal((5000, 8))
    with pytest.raises(KeyboardInterrupt):
        exact_search(base, base[:4], 3, "ip", progress=interrupt)


def test_rescore_gives_exact_scores() -> None:
    rng = np.random.default_rng(3)
    base = rng.standard_normal((50, 6)).astype(np.float32)
    queries = rng.standard_normal((4, 6)).astype(np.float32)
    for name in SPACES:
        truth = search(base, queries, 5, name)
        run = Run.from_arrays(np.asarray(truth.ids), np.zeros((4, 5)))
        again = rescore(run, base, queries, name)
        assert again.scores_by == "exact"
        assert again.flat_scores is not None
        assert truth.flat_scores is not None
        assert again.flat_scores.tobytes() == truth.flat_scores.tobytes()


def test_rescore_of_a_run_without_results() -> None:
    nothing = Run.from_arrays([[], [-1]])
    again = rescore(nothing, np.eye(2), np.eye(2), "ip")
    assert again.scores_by == "exact"
    assert not again.valid.any()


def test_rescore_unknown_ids() -> None:
    run = Run.from_arrays([[0, 77], [1, -1]])
    with pytest.warns(SemrecallWarning, match="1 result without a score"):
        again = rescore(run, np.eye(2), np.eye(2), "ip")
    assert again.valid.tolist() == [True, False, True, False]
    with pytest.raises(MismatchError, match="no result id of the run"):
        rescore(Run.from_arrays([["a"]]), np.eye(2), np.eye(2), "ip")


def test_rescore_keeps_missing_results_missing() -> None:
    """Case A06: usearch pads with key 0 and a NaN distance; id 0 must not become a hit."""
    run = Run.from_arrays([[1, 0]], [[0.5, np.nan]])
    assert rescore(run, np.eye(2), np.eye(2), "ip").valid.tolist() == [True, False]


@given(st.integers(1, 300), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_ordered_sum_is_close_and_independent_of_neighbours(d: int, m: int, seed: int) -> None:
    terms = np.random.default_rng(seed).standard_normal((m, d))
    together = ordered_sum(terms)
    assert together == pytest.approx(terms.sum(axis=1), abs=1e-12)
    alone = [ordered_sum(terms[i : i + 1])[0] for i in range(m)]
    assert together.tolist() == alone


def test_real_ground_truth_of_sift(shared: Callable[[str], Path]) -> None:
    base = np.load(shared("data/sift5k/base.u8.npy"))
    raw = np.fromfile(shared("data/sift5k/siftsmall_query.fvecs"), dtype=np.int32)
    queries = raw.reshape(-1, 129)[:, 1:].copy().view(np.float32)
    expected = np.load(shared("data/sift5k/groundtruth100_over_5k.npy"))
    run = search(base, queries, 100, "l2")
    for row, truth, query in zip(run.ids, expected, queries, strict=True):
        # Equal distances may stand in another order in the published file.
        distances = np.linalg.norm(base[truth].astype(np.float64) - query, axis=1)
        found = np.linalg.norm(base[row[:100]].astype(np.float64) - query, axis=1)
        assert found == pytest.approx(distances)
