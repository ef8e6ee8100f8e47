"""Screening with fewer columns: a true upper bound, the same answer, and only where it pays."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_exact import SPACES, assert_equal, quiet, slow

from semrecall.data import Run, Vectors
from semrecall.errors import SemrecallWarning
from semrecall.exact import chunk, costs, pruned, search
from semrecall.exact.costs import Costs, candidate_widths, chosen_widths, worth_a_look
from semrecall.exact.reduce import Basis, Reduced, principal
from semrecall.exact.screen import Screen
from semrecall.exact.survivors import Survivors
from semrecall.space import space

# -- the bound -----------------------------------------------------------------------------


def exact_products(left: Any, right: Any) -> Any:
    """Products of float32 rows without any rounding but the last: each term is exact in float64."""
    return np.array(
        [[math.fsum((a.astype(float) * b.astype(float)).tolist()) for b in right] for a in left]
    )


def bounds_and_products(
    name: str, base: Any, queries: Any, basis: Basis, widths: list[int]
) -> tuple[list[Any], Any, Any]:
    """Bounds at every width and after the second stage, exact products, and the slack."""
    centre = base.mean(axis=0, dtype=np.float64) if name == "l2" else None
    screen = Screen(space(name), queries, centre, np.dtype(np.float32))
    reduced = Reduced(basis, widths, screen, len(base)).fill(screen, base, np.arange(len(base)))
    assert reduced.sound
    asked = reduced.queries(screen)
    bounds = []
    for j, end in enumerate(reduced.ends):
        first = asked.factors[j] @ reduced.matrix[:, :end].T
        bounds.append(first)
        if j < len(widths) - 1:
            bounds.append(first + asked.second(j) @ reduced.matrix[:, end - 1 :].T)
    block = screen.block(base)
    return bounds, exact_products(screen.left, block.right.T), asked.slack()


def orthonormal(rng: Any, d: int, m: int) -> Basis:
    return Basis.of(np.linalg.qr(rng.standard_normal((d, m)))[0])


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("rest", ["random", "aligned", "opposed", "none"])
@pytest.mark.parametrize("norms", ["equal", "from 1e-9 to 1e9"])
def test_no_bound_is_below_its_product(name: str, rest: str, norms: str) -> None:
    """Also where Cauchy-Schwarz holds with equality: rests that point the same way."""
    rng = np.random.default_rng(1)
    d, widths = 96, [8, 24, 40]
    basis = orthonormal(rng, d, 40)
    inside = basis.columns.astype(float)
    queries = rng.standard_normal((12, d))
    base = rng.standard_normal((60, 40)) @ inside.T
    outside = queries - queries @ inside @ inside.T
    share = {"random": None, "aligned": 1.0, "opposed": -1.0, "none": 0.0}[rest]
    more = rng.standard_normal((60, d)) if share is None else share * outside[np.arange(60) % 12]
    base = base + more
    if norms != "equal":
        base *= 10.0 ** rng.uniform(-9, 9, (60, 1))
    bounds, products, slack = bounds_and_products(
        name, base.astype(np.float32), queries.astype(np.float32), basis, widths
    )
    for bound in bounds:
        assert (bound.astype(float) + slack[:, None] >= products).all()


def test_the_slack_covers_what_the_lengths_do_not() -> None:
    """Small queries that leave no rest, large rows: the rounding of |x|^2 / 2 is all there is."""
    rng = np.random.default_rng(1)
    basis = orthonormal(rng, 96, 40)
    queries = rng.standard_normal((12, 40)) @ basis.columns.astype(float).T
    base = 1e4 * rng.standard_normal((200, 96))
    base -= base.mean(axis=0)
    bounds, products, slack = bounds_and_products(
        "l2", base.astype(np.float32), queries.astype(np.float32), basis, [8, 40]
    )
    assert (bounds[-1].astype(float) < products).any()
    assert (bounds[-1].astype(float) + slack[:, None] >= products).all()


def test_the_second_stage_arrives_at_the_last_width() -> None:
    rng = np.random.default_rng(2)
    base, queries = (rng.standard_normal((n, 64), dtype=np.float32) for n in (50, 9))
    basis = orthonormal(rng, 64, 30)
    for name in SPACES:
        (_, second, _, third, last), _, slack = bounds_and_products(
            name, base, queries, basis, [5, 20, 30]
        )
        assert (np.abs(second - last) <= slack[:, None]).all()
        assert (np.abs(third - last) <= slack[:, None]).all()


def test_the_bound_is_tight_where_rests_are_aligned() -> None:
    """So the slack is small: a bound that is merely loose would pass every other test."""
    rng = np.random.default_rng(2)
    basis = orthonormal(rng, 96, 24)
    inside = basis.columns.astype(float)
    queries = rng.standard_normal((5, 96))
    rests = queries - queries @ inside @ inside.T
    base = rng.standard_normal((5, 24)) @ inside.T + rests
    queries, base = queries.astype(np.float32), base.astype(np.float32)
    bounds, products, slack = bounds_and_products("cosine", base, queries, basis, [24])
    assert np.diag(bounds[0] - products) == pytest.approx(0, abs=1e-3)
    assert slack.max() < 3e-4


@given(data=st.data())
def test_bounds_of_adversarial_values(data: st.DataObject) -> None:
    """Few dimensions, repeated and extreme values, and directions that are not orthonormal."""
    d = data.draw(st.integers(2, 6))
    m = data.draw(st.integers(1, d - 1))
    value = st.sampled_from([0.0, 1.0, -1.0, 1e-6, -3e-4, 1e4, 2.5, 1 + 2**-23, 1 / 3])
    row = st.lists(value, min_size=d, max_size=d)
    base = np.array(data.draw(st.lists(row, min_size=1, max_size=8)), dtype=np.float32)
    queries = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), dtype=np.float32)
    name = data.draw(st.sampled_from(SPACES))
    base, queries = base[base.any(axis=1)], queries[queries.any(axis=1)]
    if not len(base) or not len(queries):
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    columns = orthonormal(rng, d, m).columns * (1 + data.draw(st.sampled_from([0, 1e-4, -9e-4])))
    widths = sorted({max(1, m // 2), m})
    bounds, products, slack = bounds_and_products(name, base, queries, Basis.of(columns), widths)
    for bound in bounds:
        assert (bound.astype(float) + slack[:, None] >= products).all()


def test_directions_far_from_orthonormal_are_not_sound() -> None:
    rng = np.random.default_rng(3)
    screen = Screen(space("ip"), rng.standard_normal((2, 8)), None, np.dtype(np.float32))
    columns = orthonormal(rng, 8, 3).columns
    assert Reduced(Basis.of(columns), [3], screen, 1).sound
    assert not Reduced(Basis.of(columns * 1.01), [3], screen, 1).sound


# -- the same answer -----------------------------------------------------------------------


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pruning for any data, every width at once; returns how many columns were made ready."""
    ready: list[int] = []

    def directions(rows: Any, m: int) -> Basis:
        found = principal(rows, m, widest=2.0)
        return found or orthonormal(np.random.default_rng(0), rows.shape[1], m)

    def every(seconds: Any) -> Any:
        return np.arange(len(seconds)) % seconds.shape[1]

    def widths(dimension: int, queries: int) -> list[int]:
        return sorted({1, max(1, dimension // 3), max(1, dimension // 2)})

    def chosen(costs: Costs, widths: list[int], *rest: Any) -> list[int]:
        ready.append(widths[-1])
        return widths

    monkeypatch.setattr(chunk, "fused", lambda *_: None)
    monkeypatch.setattr(pruned, "worth_a_look", lambda *_: True)
    monkeypatch.setattr(pruned, "_FEW", 0)
    monkeypatch.setattr(pruned, "candidate_widths", widths)
    monkeypatch.setattr(pruned, "chosen_widths", chosen)
    monkeypatch.setattr(pruned, "principal", directions)
    monkeypatch.setattr(pruned, "measured_costs", lambda d: Costs(1.0, 1.0, 1.0, 1.0))
    monkeypatch.setattr(pruned, "widths_of", every)
    return ready


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8"])
@pytest.mark.parametrize(("rows", "k"), [(1, 1), (5, 10), (3000, 1), (6000, 40)])
def test_equals_the_slow_definition(
    forced: list[int], name: str, dtype: str, rows: int, k: int
) -> None:
    rng = np.random.default_rng(rows + k)
    low = 0 if dtype == "uint8" else -90
    base = rng.uniform(low, 90, (rows, 19)).astype(dtype)
    if rows == 6000:
        base[3000:] = base[:3000]  # every row twice: ties everywhere
    queries = rng.uniform(low, 90, (9, 19)).astype(dtype)
    assert_equal(quiet(base, queries, k, name), slow(base, queries, k, name))
    assert forced == [9]


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
    queries = np.concatenate([base[:3], rng.standard_normal((40, 24)).astype(np.float32)])
    np.save(tmp_path / "base.npy", base)
    mapped = np.load(tmp_path / "base.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pruned, "worth_a_look", lambda *_: False)
            reference = search(base, queries, 25, name)
        assert not forced
        runs = [
            search(base, queries, 25, name, threads=1),
            search(base, queries, 25, name, threads=3, memory=1 << 20),
            search(mapped, queries, 25, name, memory=1 << 20),
            search(Vectors.from_blocks(np.array_split(base, 13)), queries, 25, name),
        ]
        with pytest.MonkeyPatch.context() as patch:
            module = import_module("semrecall.exact.search")
            patch.setattr(module, "_TILE", 17)
            patch.setattr(module, "_CHUNK", 2100)
            patch.setattr(pruned, "_CELLS", 3000)
            patch.setattr(pruned, "_PAIRS", 7)
            runs.append(search(base, queries, 25, name))
    assert len(forced) > 8
    for run in runs:
        assert_same(run, reference)


def assert_same(run: Run, reference: Run) -> None:
    assert run.ids.to_list() == reference.ids.to_list()
    assert run.flat_scores is not None
    assert reference.flat_scores is not None
    assert run.flat_scores.tobytes() == reference.flat_scores.tobytes()
    assert run.identity == reference.identity


def test_a_failed_guess_is_found_out_and_repaired(
    forced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threshold is raised far too high in mid-pass: nothing may be lost."""
    rng = np.random.default_rng(6)
    base = rng.standard_normal((20_000, 16)).astype(np.float32)
    queries = rng.standard_normal((5, 16)).astype(np.float32)

    def high(self: Any, found: Any, guess: Any, sure: Any, done: float) -> Any:
        return np.full(len(guess), 1e9), sure

    monkeypatch.setattr(pruned.PrunedPass, "_raised", high)
    assert_equal(search(base, queries, 10, "ip"), slow(base, queries, 10, "ip"))
    assert forced


def test_all_rows_equal_is_bounded(forced: list[int]) -> None:
    base = np.ones((30_000, 4), dtype=np.float32)
    with pytest.warns(SemrecallWarning, match="ties with neighbour 5"):
        run = search(base, base[:3], 5, "l2", memory=1 << 20)
    assert run.ids[0].tolist() == list(range(1005))


def test_filters_are_screened_without(forced: list[int]) -> None:
    rng = np.random.default_rng(7)
    base = rng.standard_normal((3000, 12)).astype(np.float32)
    allowed = rng.random((4, 3000)) < 0.1
    run = search(base, base[:4], 9, "ip", allowed=allowed)
    assert_equal(run, slow(base, base[:4], 9, "ip", allowed))
    assert not forced


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(width=32, allow_nan=False)), max_size=40),
    st.integers(1, 5),
)
def test_ranked_is_the_sorted_definition(pairs: list[tuple[int, float]], rank: int) -> None:
    query = np.array([q for q, _ in pairs], dtype=np.uint16)
    score = np.array([s for _, s in pairs], dtype=np.float32)
    found = Survivors(query, np.arange(len(pairs)), score).ranked(5, rank)
    for number in range(5):
        mine = sorted(score[query == number].tolist(), reverse=True)
        assert found[number] == (mine[rank - 1] if len(mine) >= rank else -np.inf)


# -- where it pays -------------------------------------------------------------------------

TYPICAL = Costs(column=1.5e-11, cell=2.4e-10, pair=6e-8, pair_column=2e-10)


def test_small_work_is_not_looked_at() -> None:
    assert not worth_a_look(10_000, 1000, 384, 1)
    assert not worth_a_look(1_000_000, 100, 384, 1)
    assert not worth_a_look(1_000_000, 5000, 32, 1)
    assert worth_a_look(200_000, 2000, 384, 2)
    assert worth_a_look(200_000, 1200, 384, 1)
    assert not worth_a_look(1_000_000, 1000, 384, 1)
    assert worth_a_look(120_000, 4000, 1024, 1)
    assert not worth_a_look(200_000, 2000, 384, 64)


def test_noise_has_no_leading_directions() -> None:
    rng = np.random.default_rng(8)
    assert principal(rng.standard_normal((2000, 128), dtype=np.float32), 64) is None
    assert principal(np.zeros((100, 64), dtype=np.float32), 32) is None
    spread = np.geomspace(1, 0.01, 128).astype(np.float32)
    basis = principal(rng.standard_normal((2000, 128), dtype=np.float32) * spread, 64)
    assert basis is not None
    assert basis.skew < 1e-5
    held = np.sum((basis.columns[:, :16].T * spread) ** 2) / np.sum(spread**2)
    assert held > 0.98 * np.sum(spread[:16] ** 2) / np.sum(spread**2)


@pytest.mark.parametrize(
    ("passing", "queries", "chosen"), [(0.004, 8000, True), (0.5, 8000, False), (0.004, 300, False)]
)
def test_choice_by_costs(passing: float, queries: int, chosen: bool) -> None:
    """384 columns: 6 ns a pair without; with 128, 2 ns, 6e-8 s a survivor, 384 * 128 / queries."""
    widths = candidate_widths(384, queries)
    ends = [w + j + 1 for j, w in enumerate(widths)]
    shares = np.tile(np.where(np.array(widths) < 128, 0.9, passing), (100, 1))
    found = chosen_widths(TYPICAL, widths, ends, 384, shares, min(queries, 2048), queries, 0.03)
    assert bool(found) == chosen


def test_groups_too_small_join_the_next() -> None:
    seconds = np.array([[1.0, 2, 3]] * 40 + [[2.0, 1, 3]] * 5 + [[3.0, 2, 1]] * 5)
    assert np.bincount(costs.widths_of(seconds)).tolist() == [40, 0, 10]


def test_chosen_by_itself_on_real_vectors(
    shared: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real embeddings, given costs; small work is let through to keep this short."""
    seen = []
    run = pruned.PrunedPass.run
    monkeypatch.setattr(chunk, "fused", lambda *_: None)

    def noted(self: Any, threshold: Any) -> Any:
        seen.append(self.reduced.widths[-1])
        return run(self, threshold)

    base = np.load(shared("data/dl-pool/docs.minilm.f16.npy")).astype(np.float32)
    rng = np.random.default_rng(9)
    queries = base[rng.integers(0, len(base), 2000)] + 0.01
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruned, "worth_a_look", lambda *_: False)
        plain = search(base, queries, 10, "cosine")
    monkeypatch.setattr(pruned.PrunedPass, "run", noted)
    monkeypatch.setattr(pruned, "worth_a_look", lambda *_: True)
    monkeypatch.setattr(pruned, "measured_costs", lambda d: TYPICAL)
    assert_same(search(base, queries, 10, "cosine"), plain)
    assert len(seen) == 1
    assert 64 <= seen[0] <= 256
    noise = rng.standard_normal((5000, 128), dtype=np.float32)
    search(noise, noise[:300], 10, "cosine")
    assert len(seen) == 1
