"""faiss as a system: every kind of index, its knobs, ids, counters and codes."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_checks import check_a_full_disk

from semrecall.benchmark import build, codes_truth, search
from semrecall.data import Run, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.exact import search as exact_search
from semrecall.systems import open_system
from semrecall.testing import check_system

pytestmark = pytest.mark.filterwarnings("ignore:.*was trained on:semrecall.errors.SemrecallWarning")

RNG = np.random.default_rng(3)
BASE = RNG.standard_normal((2000, 16)).astype(np.float32)
QUERIES = RNG.standard_normal((20, 16)).astype(np.float32)

#: One of each kind, and where it is tried; "np" spares the slow training of polysemous codes.
KINDS = {
    "Flat": "ip cosine l2",
    "SQ8": "cosine",
    "IVF8,Flat": "ip cosine l2",
    "IVF8,SQ8": "ip cosine l2",
    "IVF8,PQ4x4np": "ip cosine l2",
    "HNSW16": "ip cosine l2",
    "HNSW16_SQ8": "l2",
    "IVF8_HNSW8,Flat,RFlat": "ip cosine l2",
    "IVF8,PQ4x4np,Refine(SQ8)": "cosine",
    "IDMap,Flat": "ip cosine l2",
    "IDMap2,IVF8,SQ8": "cosine",
    "PCAR8,IVF8,SQ8": "l2",
    "IVF8,PQ4x4fs": "cosine",
    "NSG16,RFlat": "l2",
}
EXACT = ("Flat", "IDMap,Flat")


@pytest.fixture(autouse=True)
def faiss() -> Iterator[Any]:
    """faiss, with one thread: threads that wait for others cost much on a busy machine."""
    try:
        import faiss
    except ModuleNotFoundError:
        pytest.skip("faiss is not installed")
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield faiss
    faiss.omp_set_num_threads(before)


def recall(run: Run, truth: Run, k: int) -> float:
    pairs = zip(run.ids, truth.ids, strict=True)
    return float(np.mean([len(set(a[:k].tolist()) & set(b[:k].tolist())) / k for a, b in pairs]))


# -- the contract -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "name"), [(kind, name) for kind, names in KINDS.items() for name in names.split()]
)
def test_every_kind_of_index_keeps_the_contract(factory: str, name: str) -> None:
    check_system(f"faiss?factory={factory}", space=name, exact=factory in EXACT)


def test_codes_that_only_estimate_are_not_decoded() -> None:
    with pytest.raises(SystemFault, match="IndexIVFRaBitQ keeps cannot be decoded"):
        open_system("faiss?factory=IVF8,RaBitQ").build(BASE, "ip").codes()


# -- scores and ids ---------------------------------------------------------------------------


def test_scores_are_in_the_natural_unit_by_hand() -> None:
    base = np.array([[3, 4], [0, 0.5], [-6, -8]], dtype=np.float32)
    query = np.array([[3, 4]], dtype=np.float32)
    expected = {
        # ip: 3*3 + 4*4, 0.5*4, -(18 + 32).
        "ip": ([0, 1, 2], [25, 2, -50]),
        # cosine: the same direction, 4/5, the opposite.
        "cosine": ([0, 1, 2], [1, 0.8, -1]),
        # l2: 0, sqrt(3*3 + 3.5*3.5) = sqrt(21.25), sqrt(9*9 + 12*12) = 15; not squared.
        "l2": ([0, 1, 2], [0, np.sqrt(21.25), 15]),
    }
    for name, (ids, scores) in expected.items():
        found, values = open_system("faiss?factory=Flat").build(base, name).search(query, 3)
        assert found.tolist() == [ids]
        assert values is not None
        np.testing.assert_allclose(values[0], scores, rtol=1e-6)


def test_zero_row_under_cosine_is_left_out() -> None:
    """Case C01: inner product 0 would outrank every vector that points away."""
    with pytest.warns(SemrecallWarning, match="1 of 3 vectors cannot .* in the system: 'zero'"):
        system = open_system("faiss?factory=Flat").build(
            [[0.0, 0], [1, 0], [-1, 0]], "cosine", ["zero", "same", "away"]
        )
    ids, _ = system.search(np.array([[1, 0]], dtype=np.float32), 3)
    assert ids.tolist() == [["same", "away"]]


def test_nan_rows_are_left_out_and_the_ids_stay_right() -> None:
    base = BASE[:50].copy()
    base[[3, 7], 2] = np.nan, np.inf
    with pytest.warns(SemrecallWarning, match="2 of 50 vectors .*: 3, 7"):
        system = open_system("faiss?factory=IVF2,Flat").build(base, "l2")
    ids, _ = system.search(base[[0, 4, 8, 49]], 1, nprobe=2)
    assert ids.ravel().tolist() == [0, 4, 8, 49]


def test_more_results_than_vectors_are_missing() -> None:
    """Case A08: a narrower answer is a row shorter than k."""
    system = open_system("faiss?factory=IVF4,Flat").build(BASE[:200], "ip")
    run, _ = search(system, QUERIES, 300, repeats=1, nprobe=1)
    counters = system.count(QUERIES, 300, nprobe=1)
    assert counters is not None
    codes = counters.stages["codes"]
    assert codes is not None
    found = [int((row >= 0).sum()) for row in run.ids]
    assert found == codes.distance_computations.tolist()
    assert max(found) < 200


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8"])
def test_a_base_of_any_type_and_a_stream_give_the_same(dtype: str) -> None:
    base = (np.abs(BASE[:400]) * 40).astype(dtype)
    whole = open_system("faiss?factory=IVF4,SQ8").build(base, "l2")
    blocks = Vectors.from_blocks([base[:150], base[150:]], length=None)
    stream = open_system("faiss?factory=IVF4,SQ8").build(blocks, "l2")
    plain = open_system("faiss?factory=IVF4,SQ8").build(base.astype(np.float32), "l2")
    for other in (stream, plain):
        np.testing.assert_array_equal(
            other.search(QUERIES, 5, nprobe=4)[0], whole.search(QUERIES, 5, nprobe=4)[0]
        )


@pytest.mark.parametrize("train_rows", [{}, {"train_rows": 900}])
def test_the_same_seed_builds_the_same_index(train_rows: dict[str, int]) -> None:
    def found(seed: int) -> Any:
        fresh = open_system("faiss?factory=IVF16,PQ4x4np")
        return fresh.build(BASE, "ip", seed=seed, **train_rows).search(QUERIES, 50, nprobe=2)[0]

    np.testing.assert_array_equal(found(1), found(1))
    assert (found(1) != found(2)).any()


@pytest.mark.parametrize("factory", ["Flat", "IDMap,Flat"])
def test_a_base_goes_in_block_by_block(monkeypatch: pytest.MonkeyPatch, factory: str) -> None:
    monkeypatch.setattr("semrecall.systems.base._BLOCK_BYTES", 64 * 7)
    system = open_system(f"faiss?factory={factory}").build(BASE[:50], "l2")
    assert system.search(BASE[:50], 1)[0].ravel().tolist() == list(range(50))


# -- knobs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "names"),
    [
        ("Flat", []),
        ("IVF8,Flat", ["nprobe"]),
        ("IVF8,PQ4x4np", ["nprobe", "ht"]),
        ("IVF8,RaBitQ", ["nprobe", "qb"]),
        ("HNSW8", ["efSearch"]),
        ("NSG8", ["search_L"]),
        ("IVF8_HNSW4,Flat,RFlat", ["k_factor", "nprobe", "quantizer_efSearch"]),
        ("IDMap,PCA8,IVF8,SQ8,RFlat", ["k_factor", "nprobe"]),
    ],
)
def test_an_index_has_the_knobs_of_its_layers(factory: str, names: list[str]) -> None:
    system = open_system(f"faiss?factory={factory}").build(BASE[:500], "l2")
    assert [knob.name for knob in system.knobs if knob.kind == "search"] == names


@pytest.mark.parametrize(
    ("factory", "knob", "values"),
    [
        ("IVF16,Flat", "nprobe", [1, 4, 16]),
        ("RR16,IVF16,SQ8", "nprobe", [1, 4, 16]),
        ("IDMap,IVF16,SQ8", "nprobe", [1, 4, 16]),
        ("HNSW4", "efSearch", [10, 40, 400]),
        ("SQ4,RFlat", "k_factor", [1, 1.5, 4]),
        ("NSG16", "search_L", [10, 40, 400]),
    ],
)
def test_a_knob_reaches_its_layer(factory: str, knob: str, values: list[float]) -> None:
    """Case E01 with two or more values: each is searched, and more effort finds no less."""
    system = open_system(f"faiss?factory={factory}").build(BASE, "l2")
    truth = exact_search(BASE, QUERIES, 10, "l2")
    found = [
        recall(search(system, QUERIES, 10, repeats=1, **{knob: value})[0], truth, 10)
        for value in values
    ]
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_the_hnsw_coarse_quantiser_is_turned_too() -> None:
    system = open_system("faiss?factory=IVF64_HNSW4,Flat").build(BASE, "l2")
    few = system.count(QUERIES, 10, nprobe=2, quantizer_efSearch=2)
    many = system.count(QUERIES, 10, nprobe=2, quantizer_efSearch=64)
    assert few is not None
    assert many is not None
    assert few.stages["coarse"].distance_computations.sum() < (  # type: ignore[union-attr]
        many.stages["coarse"].distance_computations.sum()  # type: ignore[union-attr]
    )


def test_polysemous_codes_are_filtered_by_ht() -> None:
    system = open_system("faiss?factory=IVF4,PQ4x4").build(BASE, "l2")
    open_filter, _ = system.search(QUERIES, 10, nprobe=4)
    tight, _ = system.search(QUERIES, 10, nprobe=4, ht=2)
    assert (tight < 0).sum() > (open_filter < 0).sum()


def test_an_unknown_knob_names_those_there_are() -> None:
    system = open_system("faiss?factory=IVF8,Flat").build(BASE[:500], "l2")
    with pytest.raises(InputError, match="no search knob 'nprob'") as error:
        system.search(QUERIES, 3, nprob=2)
    assert error.value.hint == "did you mean nprobe? it has: nprobe (from 1 to 8)"
    with pytest.raises(InputError, match="no build knob 'sed'"):
        open_system("faiss?factory=Flat").build(BASE, "ip", sed=1)
    with pytest.raises(InputError, match="nprobe is 9; expected a number from 1 to 8"):
        system.search(QUERIES, 3, nprobe=9)


def test_a_setting_does_not_leak_even_when_the_search_fails(
    faiss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = open_system("faiss?factory=IVF8,Flat").build(BASE[:500], "l2")
    before = system.search(QUERIES, 5)[0]
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise RuntimeError("Error in void faiss::f() at /a/b.cpp:7: Error: 'x' failed: broken")

        patch.setattr(faiss.IndexIVFFlat, "search", fail)
        with pytest.raises(SystemFault, match=r"^faiss failed: broken$"):
            system.search(QUERIES, 5, nprobe=8)
    np.testing.assert_array_equal(system.search(QUERIES, 5)[0], before)
    with pytest.raises(InputError, match="k is 0"):
        system.search(QUERIES, 0)


def test_construction_needs_a_graph() -> None:
    fine = open_system("faiss?factory=HNSW8").build(BASE, "l2", efConstruction=200)
    coarse = open_system("faiss?factory=HNSW8").build(BASE, "l2", efConstruction=4)
    truth = exact_search(BASE, QUERIES, 10, "l2")
    good, poor = (
        recall(search(s, QUERIES, 10, repeats=1, efSearch=10)[0], truth, 10) for s in (fine, coarse)
    )
    assert good > poor
    with pytest.raises(InputError, match="'Flat' has no HNSW graph"):
        open_system("faiss?factory=Flat").build(BASE, "l2", efConstruction=200)


# -- counters ---------------------------------------------------------------------------------

# Five vectors around (10, 0) and three around (0, 10): k-means with two lists finds just these.
CLUSTERS = np.array(
    [[10, 0], [11, 0], [9, 0], [10, 1], [10, -1], [0, 10], [1, 10], [-1, 10]], dtype=np.float32
)


def test_distances_and_bytes_by_hand() -> None:
    system = open_system("faiss?factory=IVF2,SQ8").build(CLUSTERS, "l2")
    queries = np.array([[10, 0], [0, 10]], dtype=np.float32)
    one = system.count(queries, 3, nprobe=1)
    both = system.count(queries, 3, nprobe=2)
    assert one is not None
    assert both is not None
    # Two centroids, then the list of 5, or of 3; with two lists all 8.
    np.testing.assert_array_equal(one.distance_computations, [2 + 5, 2 + 3])
    np.testing.assert_array_equal(both.distance_computations, [2 + 8, 2 + 8])
    # A centroid is 2 floats, 8 bytes; a code is 2 bytes.
    np.testing.assert_array_equal(one.bytes_read, [2 * 8 + 5 * 2, 2 * 8 + 3 * 2])


def test_an_hnsw_coarse_quantiser_and_a_refine_stage_are_counted(faiss: Any) -> None:
    """Case E04: coarse ndis + list ndis + k * k_factor, as faiss's own counters have them."""
    base = RNG.standard_normal((6000, 16)).astype(np.float32)
    system = open_system("faiss?factory=IVF128_HNSW16,Flat,RFlat").build(base, "l2")
    counters = system.count(QUERIES, 10, nprobe=4, k_factor=3)
    assert counters is not None
    lists, graph = faiss.cvar.indexIVF_stats, faiss.cvar.hnsw_stats
    lists.reset(), graph.reset()
    system.search(QUERIES, 10, nprobe=4, k_factor=3)
    assert list(counters.stages) == ["coarse", "codes", "refine"]
    coarse, codes, refine = (s.distance_computations for s in counters.stages.values() if s)
    # faiss leaves out the entry point of the graph, once per query.
    assert coarse.sum() - 20 == graph.ndis > 0
    assert codes.sum() == lists.ndis > 0
    np.testing.assert_array_equal(refine, np.full(20, 30))
    np.testing.assert_array_equal(counters.distance_computations, coarse + codes + refine)


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
@pytest.mark.parametrize(
    "factory", ["IVF16,Flat", "IVF16,SQ8", "IVF16,PQ4x4np", "PCA8,IVF16,SQ8", "IVF16,PQ4x4fs"]
)
def test_lists_are_counted_as_faiss_counts_them(faiss: Any, factory: str, name: str) -> None:
    system = open_system(f"faiss?factory={factory}").build(BASE, name)
    counters = system.count(QUERIES, 10, nprobe=3)
    assert counters is not None
    stats = faiss.cvar.indexIVF_stats
    stats.reset()
    system.search(QUERIES, 10, nprobe=3)
    codes, coarse = counters.stages["codes"], counters.stages["coarse"]
    assert codes is not None
    assert coarse is not None
    assert codes.distance_computations.sum() == stats.ndis
    np.testing.assert_array_equal(coarse.distance_computations, np.full(20, 16))


@pytest.mark.parametrize("factory", ["IVF16,SQ8", "IVF16,PQ4x4fs"])
def test_lists_are_counted_as_brute_force_over_them_counts(faiss: Any, factory: str) -> None:
    """nlist of faiss's own counters is wrong for fast scan; what the lists hold is not."""
    system = open_system(f"faiss?factory={factory}").build(BASE, "l2")
    index = faiss.downcast_index(system._index)  # type: ignore[attr-defined]
    centroids = index.quantizer.reconstruct_n(0, 16)
    nearest = ((BASE[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    for probes in (1, 5, 16):
        counters = system.count(QUERIES, 10, nprobe=probes)
        assert counters is not None
        codes = counters.stages["codes"]
        assert codes is not None
        for row, query in enumerate(QUERIES):
            probed = ((centroids - query) ** 2).sum(axis=1).argsort()[:probes]
            compared = sum(1 for own in nearest if own in probed)
            assert codes.distance_computations[row] == compared


def test_a_graph_is_counted_as_faiss_counts_it(faiss: Any) -> None:
    system = open_system("faiss?factory=HNSW16_SQ8").build(BASE, "ip")
    counters = system.count(QUERIES, 10, efSearch=50)
    assert counters is not None
    faiss.cvar.hnsw_stats.reset()
    system.search(QUERIES, 10, efSearch=50)
    assert counters.distance_computations is not None
    assert counters.bytes_read is not None
    # faiss leaves out the entry point, once per query.
    assert counters.distance_computations.sum() - 20 == faiss.cvar.hnsw_stats.ndis > 0
    # 16 dimensions of one byte.
    np.testing.assert_array_equal(counters.bytes_read, 16 * counters.distance_computations)


def walked(index: Any, base: Any, query: Any, k: int) -> tuple[int, list[int]]:
    """The slow definition: a search in faiss's graph, each distance counted as it is taken."""
    import faiss as library

    graph = index.hnsw
    links = library.vector_to_array(graph.neighbors)
    offsets = library.vector_to_array(graph.offsets).astype(int)
    of_level = library.vector_to_array(graph.cum_nneighbor_per_level).astype(int)
    computed = 0

    def far(node: int) -> float:
        nonlocal computed
        computed += 1
        return float(((base[node].astype(float) - query) ** 2).sum())

    def near(node: int, level: int) -> list[int]:
        start = offsets[node]
        linked = links[start + of_level[level] : start + of_level[level + 1]]
        return [int(other) for other in linked if other >= 0]

    current = graph.entry_point
    nearest = far(current)
    for level in range(graph.max_level, 0, -1):
        moved = True
        while moved:
            moved = False
            for node in near(current, level):
                if (distance := far(node)) < nearest:
                    nearest, best, moved = distance, node, True
            current = best if moved else current
    ef, seen = max(graph.efSearch, k), {current}
    candidates, found = [(nearest, current)], [(-nearest, current)]
    while candidates:
        distance, node = heapq.heappop(candidates)
        if distance > -found[0][0]:
            break
        for other in near(node, 0):
            if other in seen:
                continue
            seen.add(other)
            distance = far(other)
            if len(found) < ef or distance < -found[0][0]:
                heapq.heappush(candidates, (distance, other))
                heapq.heappush(found, (-distance, other))
                if len(found) > ef:
                    heapq.heappop(found)
    return computed, [node for _, node in sorted((-d, n) for d, n in found)][:k]


@pytest.mark.parametrize("effort", [10, 60, 200])
def test_a_graph_is_counted_as_a_replay_of_it_counts(effort: int) -> None:
    system = open_system("faiss?factory=HNSW8").build(BASE, "l2", threads=1)
    counters = system.count(QUERIES, 10, efSearch=effort)
    assert counters is not None
    assert counters.distance_computations is not None
    index = system._index  # type: ignore[attr-defined]
    index.hnsw.efSearch = effort
    ids, _ = system.search(QUERIES, 10)
    for row, query in enumerate(QUERIES):
        computed, found = walked(index, BASE, query, 10)
        assert found == ids[row].tolist()
        assert counters.distance_computations[row] == computed


def test_a_filter_of_codes_leaves_fewer_to_score_again(faiss: Any) -> None:
    """Polysemous codes: all are looked at, the few within a Hamming distance are candidates."""
    system = open_system("faiss?factory=IVF4,PQ4x4,RFlat").build(BASE, "l2")
    given = {"nprobe": 4, "ht": 3, "k_factor": 20}
    counters = system.count(QUERIES, 10, **given)
    assert counters is not None
    codes, refine = counters.stages["codes"], counters.stages["refine"]
    assert codes is not None
    assert refine is not None
    np.testing.assert_array_equal(codes.distance_computations, [2000] * 20)
    faiss.cvar.indexIVF_stats.reset()
    system.search(QUERIES, 10, **given)
    # What passes the filter is what faiss counts; at most k * k_factor of it is kept.
    assert refine.distance_computations.max() < 200
    assert refine.distance_computations.sum() == faiss.cvar.indexIVF_stats.ndis


@pytest.mark.parametrize(
    ("factory", "settings"),
    [
        ("IVF16_HNSW8,SQ8,RFlat", {"nprobe": 3, "k_factor": 3, "quantizer_efSearch": 9}),
        ("IDMap,HNSW8", {"efSearch": 30}),
        ("NSG8", {"search_L": 40}),
        ("IVF8,RaBitQ", {"nprobe": 4, "qb": 4}),
        ("PCA8,IVF8,PQ4x4", {"nprobe": 4, "ht": 6}),
    ],
)
def test_a_setting_is_written_as_faiss_takes_it(
    faiss: Any, factory: str, settings: dict[str, int]
) -> None:
    system = open_system(f"faiss?factory={factory}").build(BASE, "l2")
    expected, _ = system.search(QUERIES, 7, **settings)
    index = system._index  # type: ignore[attr-defined]
    given: dict[str, Any] = {"faiss": faiss, "index": index, "queries": QUERIES, "k": 7}
    exec(system.snippet(settings), given)
    np.testing.assert_array_equal(given["labels"], expected)


@pytest.mark.parametrize(
    ("factory", "knobs"),
    [
        ("HNSW8", {"efConstruction": 20, "threads": 1}),
        ("IVF16_HNSW8,Flat", {"efConstruction": 20, "threads": 1}),
        ("IVF8,Flat", {"seed": 7, "train_rows": 500}),
    ],
)
def test_a_build_is_written_as_faiss_makes_it(
    faiss: Any, factory: str, knobs: dict[str, int]
) -> None:
    system = open_system(f"faiss?factory={factory}").build(BASE, "l2", **knobs)
    given: dict[str, Any] = {"faiss": faiss, "np": np, "vectors": BASE}
    threads = faiss.omp_get_max_threads()
    try:
        exec(system.build_snippet(knobs), given)
    finally:
        faiss.omp_set_num_threads(threads)
    _, labels = given["index"].search(QUERIES, 7)
    if "train_rows" not in knobs:  # else its rows are in another order
        np.testing.assert_array_equal(labels, system.search(QUERIES, 7)[0])
    assert labels.shape == (len(QUERIES), 7)


def test_what_faiss_does_not_count_is_unknown() -> None:
    system = open_system("faiss?factory=NSG8").build(BASE[:500], "l2")
    counters = system.count(QUERIES, 5)
    assert counters is not None
    assert counters.distance_computations is None


def test_the_candidates_of_refine_are_no_more_than_were_found() -> None:
    system = open_system("faiss?factory=IVF2,SQ8,RFlat").build(CLUSTERS, "l2")
    counters = system.count(np.array([[0, 10]], dtype=np.float32), 2, nprobe=1, k_factor=4)
    assert counters is not None
    # 2 * 4 = 8 wanted, but the list visited holds 3.
    refine = counters.stages["refine"]
    assert refine is not None
    np.testing.assert_array_equal(refine.distance_computations, [3])
    assert refine.bytes_each == 8


# -- what the quantiser kept -------------------------------------------------------------------


@pytest.mark.parametrize("factory", ["Flat", "IVF8,Flat", "HNSW8", "IVF8,SQ8,RFlat", "IDMap,Flat"])
def test_nothing_is_quantised_where_full_vectors_are_compared_last(factory: str) -> None:
    assert open_system(f"faiss?factory={factory}").build(BASE[:500], "ip").codes() is None


@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
@pytest.mark.parametrize(
    ("factory", "settings"),
    [
        ("SQ4", {}),
        ("IVF8,SQ4", {"nprobe": 8}),
        ("IVF8,PQ4x4np", {"nprobe": 8}),
        ("IDMap,IVF8,PQ4x4np", {"nprobe": 8}),
        ("PCA8,IVF8,SQ8", {"nprobe": 8}),
        ("PCA8,Flat", {}),
        ("L2norm,IVF8,SQ4", {"nprobe": 8}),
    ],
)
def test_visiting_every_list_finds_what_exact_search_over_the_codes_finds(
    factory: str, settings: dict[str, int], name: str
) -> None:
    """Case C09: recall below 1 at nprobe = nlist is the ceiling that quantisation sets."""
    system = build(f"faiss?factory={factory}", BASE, name, ids=[f"d{i}" for i in range(2000)])
    truth = exact_search(Vectors.of(BASE, ids=[f"d{i}" for i in range(2000)]), QUERIES, 20, name)
    codes = codes_truth(system, QUERIES, 20)
    run, _ = search(system, QUERIES, 20, repeats=1, **settings)
    assert str(codes.space) == name
    assert recall(codes, truth, 20) < 0.97
    assert recall(run, codes, 20) > 0.99


def test_codes_come_with_the_ids_of_the_base() -> None:
    system = open_system("faiss?factory=IVF8,SQ8").build(BASE, "l2", np.arange(2000) * 7)
    codes = system.codes()
    assert codes is not None
    np.testing.assert_array_equal(codes.ids.array(), np.arange(2000) * 7)
    np.testing.assert_allclose(codes.require_matrix(), BASE, atol=0.05)


@pytest.mark.parametrize("factory", ["Flat", "IDMap,Flat", "IVF8,Flat", "HNSW8", "SQ8,RFlat"])
def test_vectors_that_are_held_whole_are_given_out(tmp_path: Path, factory: str) -> None:
    system = open_system(f"faiss?factory={factory}").build(BASE[:300], "l2", np.arange(300) * 7)
    system.save(tmp_path / "saved.faiss")
    for held in (system.vectors(), open_system(str(tmp_path / "saved.faiss")).vectors()):
        np.testing.assert_array_equal(held.ids.array(), np.arange(300) * 7)
        np.testing.assert_array_equal(held.require_matrix(), BASE[:300])
    with pytest.raises(InputError, match="holds quantised vectors"):
        open_system("faiss?factory=IVF8,SQ8").build(BASE[:300], "l2").vectors()


def test_opq_rotates_queries_as_it_rotates_codes(capfd: pytest.CaptureFixture[str]) -> None:
    base, queries = BASE[:300, :8].copy(), QUERIES[:, :8].copy()
    system = open_system("faiss?factory=OPQ2,IVF2,PQ2x4").build(base, "l2")
    codes = codes_truth(system, queries, 10)
    run, _ = search(system, queries, 10, repeats=1, nprobe=2)
    # Coarse codes make ties, which either may order.
    assert recall(run, codes, 10) > 0.9
    out, err = capfd.readouterr()
    assert out == ""
    assert "WARNING" not in err


# -- saved and live indexes --------------------------------------------------------------------


@pytest.mark.parametrize("factory", ["Flat", "IVF8,SQ8", "HNSW8", "IDMap,Flat"])
@pytest.mark.parametrize("ids", [None, np.arange(500) * 3 + 5])
def test_a_saved_index_comes_back_with_its_ids(tmp_path: Path, factory: str, ids: Any) -> None:
    system = open_system(f"faiss?factory={factory}").build(BASE[:500], "ip", ids)
    path = tmp_path / "saved.faiss"
    system.save(path)
    back = open_system(str(path))
    assert back.built
    assert back.space.name == "ip"
    for setting in [{knob.name: int(knob.high)} for knob in back.knobs] or [{}]:
        for found, expected in zip(
            back.search(QUERIES, 9, **setting), system.search(QUERIES, 9, **setting), strict=True
        ):
            assert found is not None
            np.testing.assert_array_equal(found, expected)
    assert list(tmp_path.iterdir()) == [path]
    # Saving has changed nothing.
    assert (system.search(QUERIES, 1)[0] >= 0).all()


def test_a_disk_without_room_is_an_error(tmp_path: Path) -> None:
    check_a_full_disk(open_system("faiss?factory=Flat").build(BASE, "l2"), tmp_path)


@pytest.mark.parametrize("hole", [False, True])
def test_strings_come_back_from_the_base(tmp_path: Path, hole: bool) -> None:
    names = [f"doc-{i}" for i in range(500)]
    base = BASE[:500].copy()
    if hole:
        base[3] = 0
        with pytest.warns(SemrecallWarning, match="'doc-3'"):
            system = open_system("faiss?factory=IVF4,Flat").build(base, "cosine", names)
    else:
        system = open_system("faiss?factory=IVF4,Flat").build(base, "cosine", names)
    system.save(tmp_path / "saved.faiss")
    spec = f"faiss?index={tmp_path / 'saved.faiss'}&space=cosine"
    back = open_system(spec).build(base, "cosine", names)
    expected = system.search(base[10:20], 3, nprobe=4)[0]
    assert expected[:, 0].tolist() == names[10:20]
    np.testing.assert_array_equal(back.search(base[10:20], 3, nprobe=4)[0], expected)


def test_an_id_map_keeps_its_own_ids(faiss: Any, tmp_path: Path) -> None:
    index = faiss.index_factory(16, "IDMap,Flat")
    index.add_with_ids(BASE[:100], np.arange(100) * 10)
    faiss.write_index(index, str(tmp_path / "i.faiss"))
    back = open_system(str(tmp_path / "i.faiss")).build(BASE[:100], "l2")
    assert back.search(BASE[7:8], 1)[0].tolist() == [[70]]


@pytest.mark.parametrize("factory", ["IVF4,SQ8", "IVF4,PQ4x4np"])
def test_lists_with_ids_of_their_own_are_decoded(faiss: Any, factory: str) -> None:
    index = faiss.index_factory(16, factory)
    index.train(BASE)
    index.add_with_ids(BASE[:300], np.arange(300)[::-1] * 2)
    system = open_system("faiss", index=index)
    codes = system.codes()
    assert codes is not None
    run, _ = search(system, QUERIES, 10, repeats=1, nprobe=4)
    assert recall(run, codes_truth(system, QUERIES, 10), 10) > 0.95
    # Opening it has not changed the index of the caller.
    assert index.direct_map.type == faiss.DirectMap.NoMap


def test_removal_renumbers_and_is_noticed(faiss: Any) -> None:
    """Case D11: after removing row 0, old row 10 is row 9; only ids from outside stay right."""
    index = faiss.index_factory(16, "Flat")
    index.add(BASE[:100])
    ids = np.arange(100)
    system = open_system("faiss", index=index, ids=ids)
    assert system.search(BASE[10:11], 1)[0].tolist() == [[10]]
    index.remove_ids(np.array([0]))
    with pytest.raises(SystemFault, match="holds 99 vectors now and held 100") as error:
        system.search(BASE[10:11], 1)
    assert "ids=remaining" in str(error.value.hint)
    with pytest.raises(MismatchError, match="100 ids for the 99 rows"):
        open_system("faiss", index=index, ids=ids)
    again = open_system("faiss", index=index, ids=np.delete(ids, 0))
    assert again.search(BASE[10:11], 1)[0].tolist() == [[10]]


def test_a_live_index_belongs_to_its_caller(faiss: Any) -> None:
    index = faiss.index_factory(16, "IVF4,Flat")
    index.train(BASE)
    index.add(BASE[:100])
    index.nprobe = 3
    system = open_system("faiss", index=index, space="ip") if index.metric_type == 0 else None
    assert system is None, "faiss made an inner product index by default"
    system = open_system("faiss", index=index)
    assert system.space.name == "l2"
    assert [knob.default for knob in system.knobs] == [3]
    system.search(QUERIES, 5, nprobe=1)
    assert index.nprobe == 3


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("IVX256,SQ8", "factory string 'IVX256,SQ8': could not parse"),
        ("PQ7", "should be a multiple of the number of subquantizers"),
        ("IVF4,SQ9", "could not parse code description SQ9"),
        ("IVF4000,Flat", "cannot train 'IVF4000,Flat' on 2,000 vectors: Number of training points"),
    ],
)
def test_a_factory_string_that_does_not_work_is_explained(factory: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        open_system(f"faiss?factory={factory}").build(BASE, "l2")
    assert error.value.hint
    assert "/faiss/" not in str(error.value)


def test_poor_training_is_a_warning_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    # 39 vectors per list are wanted: 64 * 39 = 2,496.
    with pytest.warns(SemrecallWarning, match=r"on 2,000 vectors; its 64 lists want .* 2,496"):
        open_system("faiss?factory=IVF64,Flat").build(BASE, "l2")
    assert capfd.readouterr() == ("", "")


def test_files_that_are_no_index(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.faiss: no such file"):
        open_system(str(tmp_path / "gone.faiss"))
    (tmp_path / "text.faiss").write_text("this is no index at all")
    with pytest.raises(InputError, match=r"text\.faiss: faiss cannot read this index"):
        open_system(str(tmp_path / "text.faiss"))
    open_system("faiss?factory=Flat").build(BASE, "l2").save(tmp_path / "whole.faiss")
    (tmp_path / "cut.faiss").write_bytes((tmp_path / "whole.faiss").read_bytes()[:999])
    with pytest.raises(InputError, match=r"cut\.faiss: faiss cannot read this index"):
        open_system(str(tmp_path / "cut.faiss"))
    with pytest.raises(InputError, match=r"the directory .* does not exist"):
        open_system("faiss?factory=Flat").build(BASE, "l2").save(tmp_path / "no" / "x.faiss")


def test_space_dimension_and_ids_must_fit(faiss: Any, tmp_path: Path) -> None:
    system = open_system("faiss?factory=Flat").build(BASE, "l2")
    with pytest.raises(MismatchError, match=r"shape \(20, 8\); expected \(n, 16\)"):
        system.search(QUERIES[:, :8], 3)
    system.save(tmp_path / "l2.faiss")
    with pytest.raises(MismatchError, match="compares by l2; found space cosine"):
        open_system(f"faiss?index={tmp_path / 'l2.faiss'}&space=cosine")
    saved = open_system(str(tmp_path / "l2.faiss"))
    with pytest.raises(MismatchError, match="8 dimensions, the faiss index 16"):
        saved.build(BASE[:, :8], "l2")
    with pytest.raises(MismatchError, match="100 ids for the 2,000 rows"):
        saved.build(BASE[:100], "l2")
    with pytest.raises(InputError, match="no build knob 'seed'"):
        saved.build(BASE, "l2", seed=3)
    with pytest.raises(MismatchError, match="compares by l2; found space ip"):
        saved.build(BASE, "ip")
    with pytest.raises(InputError, match="no vector that can be searched"):
        open_system("faiss?factory=Flat").build(np.full((2, 3), np.nan), "l2")
    odd = faiss.IndexFlat(4, faiss.METRIC_L1)
    with pytest.raises(InputError, match="compares by its metric 2"):
        open_system("faiss", index=odd)


@pytest.mark.parametrize(
    "options",
    [{}, {"factory": "Flat", "index": "x.faiss"}, {"factory": "Flat", "space": "ip"}],
)
def test_options_that_do_not_go_together(options: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"needs a factory string or|belong to a saved index"):
        open_system("faiss", **options)


def test_describe_is_a_record_of_the_build() -> None:
    system = open_system("faiss?factory=IVF8_HNSW4,SQ8,RFlat").build(BASE, "ip", seed=7)
    record = system.describe()
    assert record["index"] == "IndexRefineFlat(IndexIVFScalarQuantizer)"
    assert record["factory"] == "IVF8_HNSW4,SQ8,RFlat"
    assert (record["seed"], record["train_rows"], record["rows"]) == (7, 2000, 2000)
    # Codes and ids, full vectors, and a little for 8 centroids and their graph.
    assert record["memory_bytes"] > 2000 * (16 + 8) + 2000 * 64
    assert record["memory_bytes"] < 2000 * (16 + 8) + 2000 * 64 + 4000
