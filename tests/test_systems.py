"""Systems: specs, knobs, counters, exact and recorded search, and the contract for adapters."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semrecall.benchmark import search
from semrecall.data import Run, Vectors
from semrecall.data.ids import ids as ids_of
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.formats import write
from semrecall.space import space
from semrecall.systems import Counters, Knob, Stage, is_spec, open_system, parse_spec
from semrecall.systems.base import unit, usable_blocks
from semrecall.systems.exact import ExactSystem
from semrecall.systems.recorded import RecordedSystem
from semrecall.testing import check_system

# -- specs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "name", "options"),
    [
        ("exact", "exact", {}),
        ("exact?", "exact", {}),
        ("faiss?factory=IVF256,SQ8", "faiss", {"factory": "IVF256,SQ8"}),
        ("faiss?factory=IVF8(PQ4x4),Flat", "faiss", {"factory": "IVF8(PQ4x4),Flat"}),
        ("faiss?index=a b.idx&space=l2", "faiss", {"index": "a b.idx", "space": "l2"}),
        ("recorded?run=x?y=z.parquet", "recorded", {"run": "x?y=z.parquet"}),
        ("dir/saved.faiss", "faiss", {"index": "dir/saved.faiss"}),
    ],
)
def test_a_spec_is_a_name_and_options(spec: str, name: str, options: dict[str, str]) -> None:
    assert parse_spec(spec) == (name, options)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("faiss?IVF256", "'IVF256' in the system"),
        ("faiss?factory=", "is not key=value"),
        ("faiss?factory=Flat&factory=SQ8", "'factory' occurs twice"),
        ("?factory=Flat", "has no name"),
        ("", "has no name"),
    ],
)
def test_a_broken_spec_is_explained(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_spec(spec)


def test_unknown_names_and_options_come_with_a_guess() -> None:
    with pytest.raises(InputError, match="unknown system 'exat'") as error:
        open_system("exat")
    assert error.value.hint == "did you mean exact?"
    with pytest.raises(InputError, match="no option 'rn'") as error:
        open_system("recorded?rn=x.parquet")
    assert error.value.hint == "did you mean run?"
    with pytest.raises(InputError, match="no option 'k'") as error:
        open_system("exact?k=3")
    assert error.value.hint == "exact takes none"
    with pytest.raises(InputError, match="among the options"):
        open_system("recorded?run=x.parquet", run="y.parquet")


# -- knobs ------------------------------------------------------------------------------------

NPROBE = Knob("nprobe", "search", 1, 64, 1, "lists", "log")
FACTOR = Knob("k_factor", "search", 1, 100, 1, "candidates", whole=False)


@pytest.mark.parametrize(("value", "number"), [(8, 8), (8.0, 8), (np.int32(64), 64)])
def test_a_knob_takes_its_numbers(value: Any, number: int) -> None:
    found = NPROBE.check(value)
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize("value", [0, 65, 1.5, "8", True, None, float("nan"), float("inf")])
def test_a_knob_refuses_what_it_cannot_be(value: Any) -> None:
    with pytest.raises(InputError, match=r"nprobe is .* from 1 to 64"):
        NPROBE.check(value)


def test_a_fraction_is_kept_where_it_makes_sense() -> None:
    assert FACTOR.check(1.5) == 1.5
    assert type(FACTOR.check(2)) is float


# -- counters ---------------------------------------------------------------------------------


def test_stages_add_up() -> None:
    counters = Counters(
        {
            "coarse": Stage(np.array([4.0, 4.0]), 8),
            "codes": Stage(np.array([10.0, 0.0]), 2),
        }
    )
    # 4 + 10 and 4 + 0 vectors; 4*8 + 10*2 and 4*8 + 0*2 bytes.
    np.testing.assert_array_equal(counters.distance_computations, [14, 4])
    np.testing.assert_array_equal(counters.bytes_read, [52, 32])


def test_a_counter_that_reads_zero_is_unknown_not_free() -> None:
    counters = Counters({"coarse": Stage(np.array([4.0]), 8), "graph": Stage(np.zeros(1), 8)})
    assert counters.stages["graph"] is None
    assert counters.distance_computations is None
    assert counters.bytes_read is None


# -- what a base may hold ---------------------------------------------------------------------


def test_unit_rows_leave_zero_alone_and_survive_large_values() -> None:
    rows = np.array([[3e30, 4e30], [0, 0], [1e-30, 0]], dtype=np.float32)
    np.testing.assert_allclose(unit(rows), [[0.6, 0.8], [0, 0], [1, 0]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "uint8"])
def test_blocks_are_float32_whatever_is_stored(dtype: str) -> None:
    base = Vectors.of(np.arange(12).reshape(4, 3).astype(dtype))
    ((stop, rows, block),) = usable_blocks(base, space("l2"))
    assert stop == 4
    assert block.dtype == np.float32
    np.testing.assert_array_equal(rows, [0, 1, 2, 3])
    np.testing.assert_array_equal(block, np.arange(12).reshape(4, 3))


# -- exact ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
def test_exact_search_keeps_the_contract_with_recall_one(name: str) -> None:
    check_system("exact", space=name, exact=True)


def test_exact_search_counts_every_vector() -> None:
    system = open_system("exact").build(np.eye(6, 4, dtype=np.float16), "l2")
    counters = system.count(np.zeros((2, 4), dtype=np.float32), 3)
    assert counters is not None
    # 6 vectors of 4 half floats: 6 * 4 * 2 = 48 bytes a query.
    np.testing.assert_array_equal(counters.distance_computations, [6, 6])
    np.testing.assert_array_equal(counters.bytes_read, [48, 48])


def test_zero_row_never_outranks_a_real_one() -> None:
    """Case C01."""
    with pytest.warns(SemrecallWarning, match="1 of 3 vectors cannot be searched"):
        system = open_system("exact").build([[0.0, 0], [1, 0], [-1, 0]], "cosine", ["o", "a", "b"])
    ids, scores = system.search(np.array([[1, 0]], dtype=np.float32), 3)
    assert ids.tolist() == [["a", "b", ""]]
    assert scores is not None
    np.testing.assert_array_equal(scores, [[1, -1, np.nan]])


def test_an_empty_system_says_what_to_do() -> None:
    with pytest.raises(InputError, match="'exact' is empty") as error:
        _ = open_system("exact").dimension
    assert error.value.hint == "call build(base, space) first"


def test_build_leaves_the_system_it_is_called_on_alone() -> None:
    fresh = open_system("exact")
    built = fresh.build(np.eye(3), "ip")
    assert built.built
    assert not fresh.built


# -- recorded ---------------------------------------------------------------------------------

RUN = Run.from_arrays(
    [["a", "b", "c"], ["c", "a"], []],
    [[3, 2, 1], [5, 4], []],
    query_ids=["q1", "q2", "q3"],
    space="ip",
    k=3,
)
ANY = np.zeros((2, 4), dtype=np.float32)


def test_recorded_results_are_found_by_query_id() -> None:
    system = RecordedSystem(RUN)
    ids, scores = system.search(ANY, 2, query_ids=ids_of(["q2", "q1"]))
    assert ids.tolist() == [["c", "a"], ["a", "b"]]
    assert scores is not None
    assert scores.tolist() == [[5, 4], [3, 2]]


def test_recorded_results_through_search_have_no_cost_of_their_own(tmp_path: Path) -> None:
    write(RUN, tmp_path / "run.parquet")
    system = open_system(f"recorded?run={tmp_path / 'run.parquet'}")
    run, cost = search(system, np.ones((2, 4)), 3, query_ids=["q2", "q1"])
    # A row shorter than k is filled up with missing results.
    assert run.ids.to_list() == [["c", "a", ""], ["a", "b", "c"]]
    assert cost.latency_seconds is None
    assert cost.cpu_seconds is None
    assert cost.distance_computations is None


def test_a_query_that_was_not_recorded_is_an_error() -> None:
    with pytest.raises(MismatchError, match="2 of 2 queries are not recorded, the first is 0"):
        search(RecordedSystem(RUN), np.ones((2, 4)), 3)


def test_recorded_results_go_only_so_deep() -> None:
    with pytest.raises(InputError, match="k is 4; the recorded results go to 3 only"):
        search(RecordedSystem(RUN), np.ones((1, 4)), 4, query_ids=["q1"])


def test_recorded_results_without_scores_stay_without() -> None:
    bare = RUN.replace(flat_scores=None)
    run, _ = search(RecordedSystem(bare), np.ones((1, 4)), 2, query_ids=["q1"])
    assert run.scores is None
    assert run.ids.to_list() == [["a", "b"]]


def test_a_recording_needs_its_space_and_cannot_be_built() -> None:
    spaceless = RUN.replace(space=None)
    with pytest.raises(InputError, match="does not say its space"):
        _ = RecordedSystem(spaceless).space
    assert RecordedSystem(spaceless, space="l2").space.name == "l2"
    with pytest.raises(InputError, match="cannot be built"):
        RecordedSystem(RUN).build(np.eye(3), "ip")
    with pytest.raises(InputError, match="needs a file of results"):
        open_system("recorded")


# -- the contract finds out adapters that break it ---------------------------------------------


class Broken(ExactSystem):
    """Exact search with one fault: what `fault` makes of the answer, or of a call."""

    def __init__(self, fault: Callable[..., Any]) -> None:
        self.fault = fault

    def search(self, queries: Any, k: int, **settings: Any) -> Any:
        return self.fault(super().search, queries, k, **settings)


def row_numbers(found: Any, queries: Any, k: int, **settings: Any) -> Any:
    ids, scores = found(queries, k, **settings)
    return np.where(ids >= 0, (ids - 1000) // 3, -1) if ids.dtype.kind == "i" else ids, scores


def squared(found: Any, queries: Any, k: int, **settings: Any) -> Any:
    ids, scores = found(queries, k, **settings)
    return ids, scores**2


def reversed_order(found: Any, queries: Any, k: int, **settings: Any) -> Any:
    ids, scores = found(queries, k, **settings)
    return ids[:, ::-1], scores[:, ::-1]


def too_wide(found: Any, queries: Any, k: int, **settings: Any) -> Any:
    return found(queries, k + 1, **settings)


def repeated(found: Any, queries: Any, k: int, **settings: Any) -> Any:
    ids, scores = found(queries, k, **settings)
    ids = ids.copy()
    ids[:, -1] = ids[:, 0]
    return ids, scores


def takes_anything(found: Any, queries: Any, k: int, **settings: Any) -> Any:
    return found(queries, k)


def loses_the_nearest(found: Any, queries: Any, k: int, **settings: Any) -> Any:
    if k > 100:
        return found(queries, k, **settings)
    ids, scores = found(queries, k + 1, **settings)
    return ids[:, 1:], scores[:, 1:]


def not_repeatable(found: Any, queries: Any, k: int, calls: list[int] = [], **settings: Any) -> Any:  # noqa: B006
    calls.append(k)
    ids, scores = found(queries, k, **settings)
    shift = len(calls) % 2 if k < 100 else 0
    return ids[:, shift:], scores[:, shift:]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (row_numbers, "not row numbers"),
        (squared, "l2 is a distance, not squared"),
        (reversed_order, "must be rising, best first"),
        (too_wide, "expected .12, at most 1."),
        (repeated, "found one id twice"),
        (takes_anything, "an unknown search knob was taken"),
        (loses_the_nearest, "it is not exact"),
        (not_repeatable, "found other ids the second time"),
    ],
)
def test_the_contract_names_the_fault(fault: Callable[..., Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_system(lambda: Broken(fault), space="l2", exact=True)


class ZeroFirst(ExactSystem):
    """Ranks zero vectors first, as an engine does that calls their cosine 1."""

    def search(self, queries: Any, k: int, **settings: Any) -> Any:
        ids, scores = super().search(queries, k, **settings)
        if ids.dtype.kind != "i" or k < 600:
            return ids, scores
        zero = np.full((len(ids), 1), 1006)
        return np.hstack([zero, ids[:, :-1]]), np.hstack([np.ones((len(ids), 1)), scores[:, :-1]])


class Leaky(ExactSystem):
    """A knob that stays as the last search left it."""

    most = 600

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("most", "search", 1, 600, 600, "how many vectors to look at"),)

    def search(self, queries: Any, k: int, **settings: Any) -> Any:
        wanted = self.turned("search", settings)
        type(self).most = wanted.get("most", type(self).most)
        ids, scores = super().search(queries, k)
        ids = ids.copy()
        ids[:, type(self).most :] = ids.dtype.type() if ids.dtype.kind != "i" else -1
        return ids, scores


class Mutated(ExactSystem):
    """Building again changes the system that was built before."""

    held: list[Any] = []  # noqa: RUF012

    def build(self, base: Any, space: Any, ids: Any = None, **knobs: Any) -> Any:
        made = super().build(base, space, ids, **knobs)
        self.held[:] = [made]
        return made

    def search(self, queries: Any, k: int, **settings: Any) -> Any:
        return ExactSystem.search(copy.copy(self.held[0]), queries, k, **settings)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (ZeroFirst, "cosine", "zero vector, which has no direction, outranks"),
        (Leaky, "ip", "after a search with {'most': 1}"),
        (Mutated, "ip", "building again changed the system that was built before"),
    ],
)
def test_the_contract_finds_faults_that_need_state(kind: Any, name: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_system(kind, space=name)


def test_the_contract_itself_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_system(ExactSystem, space="cosine")


def test_without_faiss_the_extra_is_named() -> None:
    script = """
import sys
sys.modules["faiss"] = None
from semrecall.errors import MissingExtra
from semrecall.systems import open_system
try:
    open_system("faiss?factory=Flat")
except MissingExtra as error:
    print(error)
open_system("exact")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "the system 'faiss' needs the package 'faiss', which is not installed\n\n"
        'hint: pip install "semrecall[faiss]"\n'
    )


def test_a_spec_is_told_from_a_path() -> None:
    for spec in ("pgvector://host/db?table=t", "milvus?path=a.db", "exact?x=1"):
        assert is_spec(spec)
    for path in ("base.npy", "milvus", "what?path=a.db", "folder/a?b.npy"):
        assert not is_spec(path)


def test_processor_time_of_a_server_is_unknown() -> None:
    class Remote(ExactSystem):
        @property
        def remote(self) -> bool:
            return True

    base = np.random.default_rng(0).standard_normal((50, 4), dtype=np.float32)
    for system, known in ((ExactSystem(), True), (Remote(), False)):
        _, cost = search(system.build(base, "ip"), base[:5], 3)
        assert (cost.cpu_seconds is not None) == known
        assert cost.latency_seconds is not None
