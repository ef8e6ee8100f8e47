"""Screening by products of bytes: a true upper bound, the same answer, and only where it pays."""

from __future__ import annotations

import importlib.util
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_exact import SPACES, assert_equal, quiet, slow
from test_exact_pruned import assert_same, exact_products

from semrecall.data import Vectors
from semrecall.errors import SemrecallWarning
from semrecall.exact import chunk, fused, pruned, search, settle
from semrecall.exact.compiled import compiled
from semrecall.exact.quantised import QuantisedQueries, QuantisedRows
from semrecall.exact.screen import Screen
from semrecall.space import space


@pytest.fixture(scope="module", params=["as found", "narrow"])
def kernels(request: pytest.FixtureRequest) -> ModuleType:
    """The compiled loops for this processor, and those for vectors half as wide."""
    found = compiled()
    if found is None:
        import numba  # noqa: F401, says what is missing

        pytest.skip("this processor has no products of bytes")
    if request.param == "as found":
        return found
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if found.LANES == 8 or not features.get("avxvnni", False):
        pytest.skip("this processor has byte products of one width")
    return narrow(found, {name: on for name, on in features.items() if "avx512" not in name})


def narrow(found: ModuleType, features: dict[str, bool]) -> ModuleType:
    import numba
    from llvmlite import binding

    spec = importlib.util.spec_from_file_location("narrow_kernels", str(found.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    njit = numba.njit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "get_host_cpu_features", lambda: features)
        # What is kept on disk is that of the wide ones.
        patch.setattr(numba, "njit", lambda *a, **o: njit(*a, **{**o, "cache": False}))
        spec.loader.exec_module(module)
    assert module.LANES == 8
    return module


@pytest.fixture
def forced(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The fused pass for any number of queries; returns how many rows went through it."""
    seen: list[int] = []
    run = fused.FusedPass.run

    def noted(self: Any, before: Any) -> Any:
        seen.append(len(self.work.chunk))
        return run(self, before)

    monkeypatch.setattr(fused, "compiled", lambda: kernels)
    monkeypatch.setattr(fused, "_FEW", 1)
    monkeypatch.setattr(fused, "_SHORT", 0)
    monkeypatch.setattr(fused, "_LOADING", 0.0)
    monkeypatch.setattr(fused, "_LEAST", 1)
    monkeypatch.setattr(fused, "_MOST_PASSING", 1.0)
    monkeypatch.setattr(fused.FusedPass, "run", noted)
    return seen


# -- the bound -----------------------------------------------------------------------------


def passed(
    kernels: ModuleType, name: str, base: Any, queries: Any, shift: float
) -> tuple[Any, Any, Any]:
    """Which pairs pass when each limit is a pair's own exact product plus a shift.

    Returns the pairs that must pass (all), those that do, and the exact products.
    """
    centre = base.mean(axis=0, dtype=np.float64) if name == "l2" else None
    screen = Screen(space(name), queries, centre, np.dtype(np.float32))
    d = base.shape[1]
    block = screen.block(base)
    rows = QuantisedRows(kernels, d, len(base))
    rows.fill(block)
    asked = QuantisedQueries(kernels, screen, d)
    products = exact_products(screen.left, block.right.T)
    m, n = products.shape
    found = np.zeros((m, n), dtype=bool)
    for i in range(n):
        # The error of the screen would hide what this looks for; only the margins are left.
        limits = asked.limits(products[:, i] + screen.error(block.norm), block.norm, block.norm)
        limits.params[0, :m] = limits.params[0, :m] + np.float32(shift)
        limits.scores[:] = -np.inf
        heaps = np.full((m, 1), np.inf, dtype=np.float32)
        out = np.empty(m * n, np.uint16), np.empty(m * n, np.int32), np.empty(m * n, np.float32)
        count = kernels.scan(
            asked.lanes, 0, asked.span, limits.params, limits.scores, limits.margins, limits.rises,
            rows.values, rows.start, rows.numbers, rows.factor, asked.left, heaps, *out,
        )  # fmt: skip
        mine = out[1][:count] == i
        found[out[0][:count][mine], i] = True
    return screen, found, products


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("rest", ["random", "aligned", "none"])
@pytest.mark.parametrize("norms", ["equal", "from 1e-9 to 1e9"])
@pytest.mark.parametrize(("d", "m"), [(96, 12), (7, 70), (130, 17)])
def test_no_bound_is_below_its_product(
    kernels: ModuleType, name: str, rest: str, norms: str, d: int, m: int
) -> None:
    """Also where bytes leave nothing out, so that only rounding and margins are left."""
    rng = np.random.default_rng(1)
    queries = rng.standard_normal((m, d))
    base = rng.standard_normal((30, d))
    if rest == "aligned":
        base = queries[np.arange(30) % m] * rng.uniform(0.5, 2, (30, 1))
    if rest == "none":
        queries, base = (rng.integers(-127, 128, a.shape).astype(float) for a in (queries, base))
        queries[:, 0] = base[:, 0] = 127
    if norms != "equal":
        base *= 10.0 ** rng.uniform(-9, 9, (30, 1))
    _, found, _ = passed(kernels, name, base.astype(np.float32), queries.astype(np.float32), 0.0)
    assert found.all()


def test_the_bound_is_tight(kernels: ModuleType) -> None:
    """Two per cent above the product hardly any pair passes: a loose one would pass the others."""
    rng = np.random.default_rng(2)
    base, queries = (rng.standard_normal((n, 384), dtype=np.float32) for n in (40, 20))
    _, found, _ = passed(kernels, "cosine", base, queries, 0.02)
    assert found.mean() < 0.01
    _, found, _ = passed(kernels, "cosine", base, queries, 0.008)
    assert found.mean() > 0.9


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_bounds_of_adversarial_values(kernels: ModuleType, data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 6))
    value = st.sampled_from([0.0, 1.0, -1.0, 1e-6, -3e-4, 1e4, 2.5, 1 + 2**-23, 1 / 3, 1e-31])
    row = st.lists(value, min_size=d, max_size=d)
    base = np.array(data.draw(st.lists(row, min_size=1, max_size=14)), dtype=np.float32)
    queries = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), dtype=np.float32)
    name = data.draw(st.sampled_from(SPACES))
    base, queries = base[(base**2).any(axis=1)], queries[(queries**2).any(axis=1)]
    if not len(base) or not len(queries) or (name == "l2" and np.ptp(base, axis=0).max() < 1e-6):
        return
    _, found, _ = passed(kernels, name, base, queries, 0.0)
    assert found.all()


@pytest.mark.parametrize("d", [1, 3, 64, 385, 4097])
def test_bytes_and_their_lengths(kernels: ModuleType, d: int) -> None:
    rng = np.random.default_rng(d)
    rows = rng.standard_normal((25, d), dtype=np.float32) * np.float32(10) ** rng.integers(-9, 9)
    rows[3] = 0.0
    rows[4] = 1e-33
    made = QuantisedRows(kernels, d, 25)
    screen = Screen(space("ip"), rows[:3], None, np.dtype(np.float32))
    made.fill(screen.block(rows))
    scale, off, length, last = made.numbers.astype(float).T
    values = made.values[:25, :d].astype(float)
    exact = np.linalg.norm(rows.astype(float) - scale[:25, None] * values, axis=1)
    assert (exact <= off[:25]).all()
    assert (off[:25] <= exact * 1.01 + 1e-6 * length[:25] + 1e-32).all()
    assert (np.linalg.norm(rows.astype(float), axis=1) <= length[:25]).all()
    assert (made.start[:25] == -128 * values.sum(axis=1)).all()
    assert (last[25:] == -np.inf).all()


# -- the same answer -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8"])
@pytest.mark.parametrize(("rows", "k"), [(1, 1), (5, 10), (9000, 1), (12000, 40)])
def test_equals_the_slow_definition(
    forced: list[int], name: str, dtype: str, rows: int, k: int
) -> None:
    rng = np.random.default_rng(rows + k)
    low = 0 if dtype == "uint8" else -90
    base = rng.uniform(low, 90, (rows, 19)).astype(dtype)
    if rows == 12000:
        base[6000:] = base[:6000]  # every row twice: ties everywhere
    queries = rng.uniform(low, 90, (9, 19)).astype(dtype)
    assert_equal(quiet(base, queries, k, name), slow(base, queries, k, name))
    assert forced == [rows]


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_adversarial_values(forced: list[int], data: st.DataObject) -> None:
    """Zero rows, duplicates, NaN, infinities, huge and tiny values, few dimensions."""
    d = data.draw(st.integers(1, 4))
    value = st.sampled_from([0.0, 1.0, -1.0, 1e-30, -1e-20, 1e20, 3e38, np.nan, np.inf, 1 + 1e-7])
    row = st.lists(value, min_size=d, max_size=d)
    base = np.array(data.draw(st.lists(row, min_size=1, max_size=12)), dtype=np.float32)
    queries = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), dtype=np.float32)
    name = data.draw(st.sampled_from(SPACES))
    run = quiet(base, queries, data.draw(st.integers(1, 14)), name)
    expected = slow(base, queries, run.k or 0, name)
    for number in range(len(queries)):
        if run.reason(number):
            expected[number] = (np.empty(0, dtype=np.int64), np.empty(0))
    assert_equal(run, expected)


@pytest.mark.parametrize("name", SPACES)
def test_near_ties_and_norms_of_all_sizes(forced: list[int], name: str) -> None:
    rng = np.random.default_rng(4)
    one = rng.standard_normal(64)
    near = one + 1e-7 * rng.standard_normal((700, 64))
    sizes = 10.0 ** rng.uniform(-6, 6, (700, 1))
    base = np.concatenate([near, near[:300] * sizes[:300], rng.standard_normal((700, 64)) * sizes])
    base = rng.permutation(base).astype(np.float32)
    queries = np.concatenate([near[:4], rng.standard_normal((4, 64))]).astype(np.float32)
    assert_equal(search(base, queries, 12, name), slow(base, queries, 12, name))
    assert forced


@pytest.mark.parametrize("name", SPACES)
def test_same_bits_with_and_without(forced: list[int], name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    base = (rng.standard_normal((9000, 24)) * np.linspace(3, 0.1, 24)).astype(np.float32)
    base[::10] = base[3]  # a tie group of 901 rows
    base[17, 3] = np.nan
    base[18] = 0.0
    queries = np.concatenate([base[:3], rng.standard_normal((150, 24)).astype(np.float32)])
    np.save(tmp_path / "base.npy", base)
    mapped = np.load(tmp_path / "base.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunk, "fused", lambda *_: None)
            patch.setattr(pruned, "worth_a_look", lambda *_: False)
            reference = search(base, queries, 25, name)
        assert not forced
        runs = [
            search(base, queries, 25, name, threads=1),
            search(base, queries, 25, name, threads=3, memory=1 << 20),
            search(mapped, queries, 25, name, memory=1 << 20),
            search(np.asfortranarray(base), queries, 25, name),
            search(Vectors.from_blocks(np.array_split(base, 13)), queries, 25, name),
        ]
        with pytest.MonkeyPatch.context() as patch:
            module = import_module("semrecall.exact.search")
            patch.setattr(module, "_TILE", 17)
            patch.setattr(module, "_CHUNK", 2100)
            patch.setattr(fused, "_VALUES", 24 * 100)
            patch.setattr(fused, "_SEEDED", 64)
            runs.append(search(base, queries, 25, name))
    assert len(forced) > 8
    for run in runs:
        assert_same(run, reference)


def test_rows_in_order_of_their_scores(forced: list[int]) -> None:
    """The worst order there is: every row is nearer than all before."""
    base = np.zeros((30_000, 8), dtype=np.float32)
    base[:, 0] = np.linspace(0.5, 1, 30_000)
    base[:, 1] = np.sqrt(1 - base[:, 0] ** 2)
    queries = np.eye(8, dtype=np.float32)[:2]
    assert_equal(search(base, queries, 10, "ip"), slow(base, queries, 10, "ip"))
    assert forced


def test_a_failed_guess_is_found_out_and_repaired(
    forced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(6)
    base = rng.standard_normal((20_000, 16), dtype=np.float32)
    queries = rng.standard_normal((5, 16), dtype=np.float32)
    guess = fused.FusedPass._guess
    monkeypatch.setattr(fused.FusedPass, "_guess", lambda *a: np.add(guess(*a), [0, 9, 1, 0, 2]))
    assert_equal(search(base, queries, 10, "ip"), slow(base, queries, 10, "ip"))
    assert forced


def test_all_rows_equal_is_bounded(forced: list[int]) -> None:
    base = np.ones((70_000, 4), dtype=np.float32)
    with pytest.warns(SemrecallWarning, match="ties with neighbour 5"):
        run = search(base, base[:3], 5, "l2", memory=1 << 20)
    assert run.ids[0].tolist() == list(range(1005))
    assert len(forced) > 1


def test_filters_are_screened_without(forced: list[int]) -> None:
    rng = np.random.default_rng(7)
    base = rng.standard_normal((3000, 12)).astype(np.float32)
    allowed = rng.random((4, 3000)) < 0.1
    run = search(base, base[:4], 9, "ip", allowed=allowed)
    assert_equal(run, slow(base, base[:4], 9, "ip", allowed))
    assert not forced


def test_real_vectors(forced: list[int], shared: Callable[[str], Path]) -> None:
    base = np.load(shared("data/dl-pool/docs.minilm.f16.npy"))
    queries = np.load(shared("data/dl-pool/queries.minilm.f32.npy"))
    for name in SPACES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunk, "fused", lambda *_: None)
            plain = search(base, queries, 100, name)
        assert_same(search(base, queries, 100, name), plain)
    assert len(forced) == 3


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("d", [1, 2, 3, 63, 64, 65, 127, 129, 384, 1001])
def test_pairs_have_the_same_bits(kernels: ModuleType, name: str, d: int) -> None:
    rng = np.random.default_rng(d)
    base, queries = (rng.standard_normal((n, d), dtype=np.float32) for n in (60, 7))
    base[5], base[6], base[7] = 0.0, np.nan, queries[3]
    rows, numbers = rng.integers(0, 60, 300), rng.integers(0, 7, 300)
    with pytest.MonkeyPatch.context() as patch, np.errstate(invalid="ignore"):
        patch.setattr(settle, "loaded", lambda: kernels)
        found = settle.exact_pair_scores(space(name), base, rows, queries, numbers)
        patch.setattr(settle, "loaded", lambda: None)
        expected = settle.exact_pair_scores(space(name), base, rows, queries, numbers)
    assert np.isnan(expected).any()
    assert np.array_equal(found, expected, equal_nan=True)


# -- where it pays -------------------------------------------------------------------------


def test_without_numba_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    base, queries = (rng.standard_normal((n, 32), dtype=np.float32) for n in (5000, 40))
    with_it = search(base, queries, 7, "l2")
    monkeypatch.setitem(sys.modules, "semrecall.exact.kernels", None)
    compiled.cache_clear()
    assert compiled() is None
    assert_same(search(base, queries, 7, "l2"), with_it)
    compiled.cache_clear()


@pytest.mark.parametrize("name", SPACES)
def test_vectors_that_bytes_say_little_of_are_left_alone(
    forced: list[int], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One value of 300 beside values about 1: rounded to whole multiples of 2.4."""
    monkeypatch.setattr(fused, "_MOST_PASSING", 0.1)
    rng = np.random.default_rng(10)
    base = rng.standard_normal((6000, 96), dtype=np.float32)
    queries = rng.standard_normal((40, 96), dtype=np.float32)
    search(base, queries, 10, name)
    assert len(forced) == 1
    base[:, 7] = 300 * rng.choice([-1, 1], 6000)
    queries[:, 7] = 300
    assert_equal(search(base, queries, 10, name), slow(base, queries, 10, name))
    assert len(forced) == 1


def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise TypeError("No conversion\nand much more")

    monkeypatch.setattr("semrecall.exact.compiled.import_module", fail)
    compiled.cache_clear()
    with pytest.warns(SemrecallWarning, match="which numba did not make: No conversion$"):
        assert compiled() is None
    compiled.cache_clear()


@pytest.mark.parametrize("ends", [None, ImportError()])
def test_an_interrupt_waits_until_the_loops_are_loaded(
    monkeypatch: pytest.MonkeyPatch, ends: Exception | None
) -> None:
    reached = []

    def interrupted(name: str) -> ModuleType:
        signal.raise_signal(signal.SIGINT)
        reached.append(name)
        if ends is not None:
            raise ends
        return ModuleType(name)

    monkeypatch.setattr("semrecall.exact.compiled.import_module", interrupted)
    compiled.cache_clear()
    with pytest.raises(KeyboardInterrupt):
        compiled()
    assert reached == ["semrecall.exact.kernels"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    compiled.cache_clear()


def test_small_work_does_not_load_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError

    monkeypatch.setattr(fused, "compiled", fail)
    monkeypatch.setattr(fused, "loaded", lambda: None)
    monkeypatch.setattr(fused, "_done_without", [0.0])
    monkeypatch.setattr(fused, "_LOADING", 4e7)
    rng = np.random.default_rng(9)
    base = rng.standard_normal((5000, 32), dtype=np.float32)
    search(base, base[:3], 7, "l2", threads=1)  # never worth it
    search(base, base[:100], 7, "l2", threads=1)  # 5000 * 100 * 32 = 1.6e7
    search(base, base[:100], 7, "l2", threads=1)
    with pytest.raises(AssertionError):
        search(base, base[:100], 7, "l2", threads=1)  # three times that is more than 4e7
    monkeypatch.setattr(fused, "_done_without", [0.0])
    with pytest.raises(AssertionError):
        search(base, base[:300], 7, "l2", threads=1)
