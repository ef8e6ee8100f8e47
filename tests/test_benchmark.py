"""From a system to a run and its cost, by systems of our own and by faiss."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semrecall.benchmark import build, codes_truth, search
from semrecall.data import Run, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.exact import search as exact_search
from semrecall.formats import read_run, write
from semrecall.systems import Counters, Knob, Stage, open_system
from semrecall.systems.exact import ExactSystem

RNG = np.random.default_rng(11)
BASE = RNG.standard_normal((300, 8)).astype(np.float32)
QUERIES = RNG.standard_normal((12, 8)).astype(np.float32)


def exact(name: str = "ip", ids: Any = None) -> Any:
    return open_system("exact").build(BASE, name, ids)


class Watched(ExactSystem):
    """Exact search that writes down how it is called."""

    calls: list[tuple[int, dict[str, Any]]]

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("effort", "search", 1, 9, 1, "does nothing"),)

    def search(self, queries: Any, k: int, **settings: Any) -> Any:
        self.calls.append((len(queries), settings))
        return super().search(queries, k, **settings)


def watched() -> Watched:
    system: Watched = Watched().build(BASE, "ip")
    system.calls = []
    return system


# -- the run ----------------------------------------------------------------------------------


def test_the_run_says_what_was_asked() -> None:
    run, cost = search(exact(), Vectors.of(QUERIES, ids=[f"q{i}" for i in range(12)]), 5)
    truth = exact_search(BASE, QUERIES, 5, "ip")
    assert run.ids.to_list() == truth.ids.to_list()
    assert run.query_ids.tolist() == [f"q{i}" for i in range(12)]
    assert (run.k, str(run.space), run.name, run.scores_by) == (5, "ip", "exact", "index")
    assert len(cost) == 12
    assert cost.queries == run.queries


def test_query_ids_may_be_given_apart() -> None:
    run, _ = search(exact(), QUERIES, 2, query_ids=range(100, 112))
    assert run.query_ids.tolist() == list(range(100, 112))


@pytest.mark.filterwarnings("ignore:.*zero query vector:semrecall.errors.SemrecallWarning")
@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_queries_that_cannot_be_searched_have_empty_rows_and_reasons(space: str) -> None:
    queries = QUERIES.copy()
    queries[2, 3] = np.nan
    queries[5] = 0
    queries[7, 0] = -np.inf
    with pytest.warns(SemrecallWarning, match=r"2 queries not searched .*: 2, 7"):
        run, cost = search(exact(space), queries, 4)
    with pytest.warns(SemrecallWarning, match="without neighbours"):
        truth = exact_search(BASE, queries, 4, space)
    empty = [2, 7] if space == "l2" else [2, 5, 7]
    assert [i for i, row in enumerate(run.ids) if len(row) == 0] == empty
    assert run.reasons == truth.reasons
    assert run.ids.to_list() == [row[:4] for row in truth.ids.to_list()]
    for column in (cost.distance_computations, cost.cpu_seconds, cost.latency_seconds):
        assert column is not None
        assert np.flatnonzero(np.isnan(column)).tolist() == empty
    assert cost.mean("distance_computations") == 300


def test_no_query_can_be_searched() -> None:
    with pytest.warns(SemrecallWarning, match="2 queries not searched"):
        run, cost = search(exact(), np.full((2, 8), np.nan), 3)
    assert run.ids.to_list() == [[], []]
    assert cost.distance_computations is None
    assert np.isnan(cost.mean("latency_seconds"))


def test_scores_are_exact_after_rescoring() -> None:
    class Rough(ExactSystem):
        def search(self, queries: Any, k: int, **settings: Any) -> Any:
            ids, scores = super().search(queries, k, **settings)
            return ids, np.round(scores, 1)

    system = Rough().build(BASE, "ip")
    rough, _ = search(system, QUERIES, 5)
    run, _ = search(system, QUERIES, 5, rescore_base=BASE)
    truth = exact_search(BASE, QUERIES, 5, "ip")
    assert run.scores_by == "exact"
    assert truth.flat_scores is not None
    assert rough.flat_scores is not None
    np.testing.assert_array_equal(run.flat_scores, truth.flat_scores)
    assert (rough.flat_scores != truth.flat_scores).any()


def test_paths_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "base.npy", BASE)
    np.save(tmp_path / "queries.npy", QUERIES)
    system = build("exact", tmp_path / "base.npy", "l2")
    run, _ = search(system, str(tmp_path / "queries.npy"), 3, rescore_base=tmp_path / "base.npy")
    assert run.scores_by == "exact"
    write(run, tmp_path / "run.parquet")
    assert read_run(tmp_path / "run.parquet").ids.to_list() == run.ids.to_list()


# -- the cost ---------------------------------------------------------------------------------


def test_warm_up_then_batches_then_one_at_a_time() -> None:
    system = watched()
    _, cost = search(system, QUERIES, 3, repeats=2, latency_queries=4, effort=5)
    # A warm-up, the batch twice, and 4 of the 12 queries alone; always with the setting.
    assert [n for n, _ in system.calls] == [12, 12, 12, 1, 1, 1, 1]
    assert all(settings == {"effort": 5} for _, settings in system.calls)
    assert cost.latency_seconds is not None
    # Spread evenly from the first to the last: 0, 11/3, 22/3, 11.
    assert np.flatnonzero(~np.isnan(cost.latency_seconds)).tolist() == [0, 3, 7, 11]
    assert cost.settings == {"effort": 5}
    assert cost.details["repeats"] == 2
    assert cost.details["latency_queries"] == 4


def test_latency_can_be_left_out() -> None:
    _, cost = search(exact(), QUERIES, 3, latency_queries=0)
    assert cost.latency_seconds is None
    assert "latency_p50_seconds" not in cost.details


def test_long_searches_are_not_repeated_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every search takes 6 seconds of a clock that stands still otherwise.
    now = [0.0]
    system = watched()
    monkeypatch.setattr("semrecall.benchmark.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(Watched, "search", lambda *_, **__: slow(now, system, *_))
    _, cost = search(system, QUERIES, 3, repeats=9, latency_queries=9)
    # 6 and 12 seconds: ten are over after the second batch, and after the second query.
    assert cost.details["batch_seconds"] == [6, 6]
    assert cost.details["latency_queries"] == 2


def slow(now: list[float], system: Watched, *arguments: Any) -> Any:
    now[0] += 6
    return ExactSystem.search(system, *arguments[1:])


def test_times_are_the_median_of_the_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each reading is later by the next step: warm-up reads nothing; 3 batches of 2 readings.
    wall = iter(np.cumsum([0, 4, 0, 1, 0, 2]).tolist())
    cpu = iter(np.cumsum([0, 6, 0, 36, 0, 12]).tolist())
    system = exact()
    with monkeypatch.context() as patch:
        clock = SimpleNamespace(
            perf_counter=lambda: next(wall), process_time=lambda: next(cpu), time=time.time
        )
        # Exact search has clocks of its own.
        patch.setattr("semrecall.benchmark.time", clock)
        _, cost = search(system, QUERIES, 3, repeats=3, latency_queries=0)
    # Wall 4, 1, 2: median 2, for 12 queries 6 a second. CPU 6, 36, 12: median 12, 1 a query.
    assert cost.details["queries_per_second"] == 6
    assert cost.mean("cpu_seconds") == 1


def test_cpu_time_and_latency_are_measured() -> None:
    class Busy(ExactSystem):
        def search(self, queries: Any, k: int, **settings: Any) -> Any:
            until = time.process_time() + 0.002 * len(queries)
            while time.process_time() < until:
                pass
            return super().search(queries, k, **settings)

    _, cost = search(Busy().build(BASE, "ip"), QUERIES, 3, repeats=1, latency_queries=3)
    assert cost.mean("cpu_seconds") >= 0.002
    assert cost.mean("latency_seconds") >= 0.002


def test_counting_is_not_timed() -> None:
    class Slow(ExactSystem):
        def count(self, queries: Any, k: int, **settings: Any) -> Any:
            until = time.process_time() + 0.3
            while time.process_time() < until:
                pass
            return super().count(queries, k, **settings)

    _, cost = search(Slow().build(BASE, "ip"), QUERIES, 3, repeats=1)
    assert cost.details["batch_cpu_seconds"][0] < 0.3
    assert cost.mean("distance_computations") == 300


def test_an_unknown_stage_makes_the_cost_unknown() -> None:
    class Partly(ExactSystem):
        def count(self, queries: Any, k: int, **settings: Any) -> Counters:
            one = Stage(np.ones(len(queries)), 4)
            return Counters({"coarse": one, "codes": Stage(np.zeros(len(queries)), 4)})

    _, cost = search(Partly().build(BASE, "ip"), QUERIES, 3)
    assert cost.distance_computations is None
    assert cost.bytes_read is None
    assert cost.details["stages"] == {
        "coarse": {"distance_computations": 1, "bytes_read": 4},
        "codes": None,
    }


# -- errors -----------------------------------------------------------------------------------


def test_what_is_asked_must_make_sense() -> None:
    system = exact()
    for k in (0, -1, True, 2.5, "3"):
        with pytest.raises(InputError, match="k is"):
            search(system, QUERIES, k)  # type: ignore[arg-type]
    with pytest.raises(MismatchError, match="queries have 4 dimensions, the system has 8"):
        search(system, QUERIES[:, :4], 3)
    with pytest.raises(InputError, match="no search knob 'nprobe'"):
        search(system, QUERIES, 3, nprobe=2)
    with pytest.raises(InputError, match="found a str to search; expected a system"):
        search("exact", QUERIES, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is empty"):
        search(open_system("exact"), QUERIES, 3)


def wrong_rows(ids: Any, scores: Any) -> Any:
    return ids[:-1], scores[:-1]


def wrong_width(ids: Any, scores: Any) -> Any:
    return np.hstack([ids, ids]), np.hstack([scores, scores])


def flat(ids: Any, scores: Any) -> Any:
    return ids.ravel(), scores.ravel()


def wrong_scores(ids: Any, scores: Any) -> Any:
    return ids, scores[:, :-1]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (wrong_rows, r"12 queries with ids of shape \(11, 3\); expected \(12, at most 3\)"),
        (wrong_width, r"ids of shape \(12, 6\)"),
        (flat, r"ids of shape \(36,\)"),
        (wrong_scores, r"ids of shape \(12, 3\) and scores of shape \(12, 2\)"),
    ],
)
def test_an_answer_against_the_contract_is_the_systems_fault(
    fault: Callable[..., Any], message: str
) -> None:
    class Faulty(ExactSystem):
        def search(self, queries: Any, k: int, **settings: Any) -> Any:
            return fault(*super().search(queries, k, **settings))

    with pytest.raises(SystemFault, match=message):
        search(Faulty().build(BASE, "ip"), QUERIES, 3)


def test_a_narrower_answer_is_a_shorter_row() -> None:
    """Case A08: ScaNN answers k > n with fewer columns."""

    class Narrow(ExactSystem):
        def search(self, queries: Any, k: int, **settings: Any) -> Any:
            ids, scores = super().search(queries, k, **settings)
            return ids[:, :2], scores[:, :2]

    run, _ = search(Narrow().build(BASE, "ip"), QUERIES, 10)
    assert run.k == 10
    assert {len(row) for row in run.ids} == {2}


# -- the split of the loss ---------------------------------------------------------------------


class Coarse(ExactSystem):
    """Keeps vectors rounded to whole numbers, and compares with those."""

    def build(self, base: Any, space: Any, ids: Any = None, **knobs: Any) -> Any:
        rounded = np.round(Vectors.of(base).require_matrix())
        return super().build(rounded, space, ids, **knobs)

    def codes(self) -> Vectors:
        return self._held()


def hits(run: Run, truth: Run) -> int:
    return sum(len(set(a[:5]) & set(b[:5])) for a, b in zip(run.ids, truth.ids, strict=True))


def test_loss_splits_into_quantisation_and_search() -> None:
    truth = exact_search(BASE, QUERIES, 5, "ip")
    system = Coarse().build(BASE, "ip")
    codes = codes_truth(system, QUERIES, 5)
    run, _ = search(system, QUERIES, 5)
    assert hits(codes, truth) < 60
    assert hits(run, codes) == 60
    assert (codes.k, str(codes.space), codes.scores_by) == (5, "ip", "index")


def test_codes_truth_treats_queries_as_search_does() -> None:
    queries = QUERIES.copy()
    queries[4] = np.nan
    codes = codes_truth(Coarse().build(BASE, "cosine"), queries, 3, query_ids=range(50, 62))
    assert codes.query_ids.tolist() == list(range(50, 62))
    assert len(codes.ids[4]) == 0
    assert codes.reason(4) == "NaN or infinite query vector"
    assert str(codes.space) == "cosine"


def test_nothing_quantised_is_nothing_to_split() -> None:
    with pytest.raises(InputError, match="nothing is quantised"):
        codes_truth(exact(), QUERIES, 5)


# -- faiss, as the first lines of a user ---------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*was trained on")
def test_a_sweep_pays_more_for_more() -> None:
    try:
        import faiss  # noqa: F401
    except ModuleNotFoundError:
        pytest.skip("faiss is not installed")
    base = RNG.standard_normal((1500, 8)).astype(np.float32)
    truth = exact_search(base, QUERIES, 5, "ip")
    system = open_system("faiss?factory=IVF16,SQ8").build(base, space="ip")
    figures = []
    for nprobe in (1, 4, 16):
        run, cost = search(system, QUERIES, k=5, repeats=1, nprobe=nprobe)
        figures.append((cost.mean("distance_computations"), hits(run, truth)))
        assert run.name == f"faiss?factory=IVF16,SQ8 nprobe={nprobe}"
        # 16 centroids of 8 floats; codes of 8 bytes.
        assert cost.mean("bytes_read") == 16 * 32 + (cost.mean("distance_computations") - 16) * 8
        assert cost.details["system"]["threads"] >= 1
    assert figures == sorted(figures)
    assert figures[-1][0] == 16 + 1500
