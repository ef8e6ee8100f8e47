"""ScaNN as a system: partitions counted and proven, codes decoded, short answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_checks import check_scores_by_hand

from semrecall.benchmark import codes_truth, search
from semrecall.data import Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact import search as exact_search
from semrecall.systems import open_system
from semrecall.testing import check_system

# It is built for Linux, up to Python 3.13: elsewhere its tests are not even skipped.
if sys.platform == "linux" and sys.version_info < (3, 14):
    pytest.importorskip("scann")
else:
    pytestmark = pytest.mark.environment("scann")

RNG = np.random.default_rng(3)
BASE = RNG.standard_normal((1500, 18)).astype(np.float32)
QUERIES = RNG.standard_normal((40, 18)).astype(np.float32)
KINDS = [
    "",
    "reorder=bfloat16",
    "reorder=int8",
    "reorder=none",
    "scoring=lut256",
    "scoring=lut256&reorder=none",
    "scoring=exact",
]


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_the_contract(kind: str, space: str) -> None:
    check_system(f"scann?{kind}" if kind else "scann", space=space)


def test_scores_are_in_the_natural_unit_by_hand() -> None:
    check_scores_by_hand("scann?scoring=exact", num_leaves=1)


def test_fewer_than_k_are_missing_and_not_row_0() -> None:
    """ScaNN answers a batch with row 0 and NaN where it found no more, one query with less."""
    system = open_system("scann").build(BASE, "ip", num_leaves=30)
    index = system._index  # type: ignore[attr-defined]
    alone, _ = index.search(QUERIES[0], 1500, 1500, 1)
    assert len(alone) < 1500
    batch, scores = index.search_batched(QUERIES, 1500, 1500, 1)
    assert (batch[np.isnan(scores)] == 0).all()
    ids, near = system.search(QUERIES, 1500, leaves_to_search=1)
    assert near is not None
    np.testing.assert_array_equal(ids < 0, np.isnan(near))
    assert ((ids == 0).sum(axis=1) <= 1).all()
    assert (ids[:, -1] == -1).all()
    one, _ = system.search(QUERIES[:1], 1500, leaves_to_search=1)
    assert one.shape == (1, 1500) or one.shape[1] < 1500


def test_more_results_than_are_scored_again_are_found_all_the_same() -> None:
    """ScaNN itself returns no more than pre_reorder_num_neighbors: it is at least k here."""
    system = open_system("scann").build(BASE, "l2", num_leaves=10)
    index = system._index  # type: ignore[attr-defined]
    _, scores = index.search_batched(QUERIES, 200, 30, 10)
    assert np.isnan(scores).sum(axis=1).tolist() == [170] * 40
    ids, _ = system.search(QUERIES, 200, leaves_to_search=10, pre_reorder_num_neighbors=30)
    assert (ids >= 0).all()


def test_no_log_reaches_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    system = open_system("scann").build(BASE, "ip")
    system.search(QUERIES, 5)
    system.count(QUERIES, 5)
    assert capfd.readouterr() == ("", "")


# -- counters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("kind", ["", "reorder=int8", "scoring=exact"])
def test_counters_equal_brute_force_over_the_probed_lists(kind: str, space: str) -> None:
    from semrecall.systems.base import as_compared

    system = open_system(f"scann?{kind}" if kind else "scann").build(BASE, space, num_leaves=6)
    partitions = system._read_partitions()  # type: ignore[attr-defined]
    asked = as_compared(QUERIES, system.space).astype(float)
    centroids = partitions.centroids.astype(float)
    near = -(asked @ centroids.T)
    if space == "l2":
        near = ((asked[:, None] - centroids) ** 2).sum(axis=2)
    for probes in (1, 3, 6):
        compared = []
        for row in range(len(QUERIES)):
            probed = np.argsort(near[row])[:probes]
            compared.append(sum(int((partitions.tokens == leaf).sum()) for leaf in probed))
        # k-means makes centroids that differ in the last bit: float64 may choose another there.
        ordered = np.sort(near, axis=1)
        clear = np.ones(len(QUERIES), dtype=bool)
        if probes < 6:
            clear = ordered[:, probes] - ordered[:, probes - 1] > 1e-5
        assert clear.sum() >= 30
        counters = system.count(QUERIES, 10, leaves_to_search=probes)
        assert counters is not None
        stages = counters.stages
        assert stages["coarse"] is not None
        assert stages["codes"] is not None
        np.testing.assert_array_equal(stages["coarse"].distance_computations, [6] * 40)
        np.testing.assert_array_equal(
            stages["codes"].distance_computations[clear], np.array(compared)[clear]
        )
        # 18 dimensions by two make 9 codes of half a byte; or 18 floats.
        assert stages["codes"].bytes_each == (72 if kind == "scoring=exact" else 4.5)
        if kind != "scoring=exact":
            refine = stages["refine"]
            assert refine is not None
            again = np.minimum(compared, 100)
            np.testing.assert_array_equal(refine.distance_computations[clear], again[clear])
            assert refine.bytes_each == (18 if kind else 72)


def test_as_many_are_scored_again_as_asked_for() -> None:
    system = open_system("scann").build(BASE, "ip", num_leaves=20)
    for again in (30, 90, 1500):
        _, near = system._searched(  # type: ignore[attr-defined]
            QUERIES, again, {"leaves_to_search": 3, "pre_reorder_num_neighbors": again}
        )
        counters = system.count(QUERIES, 10, leaves_to_search=3, pre_reorder_num_neighbors=again)
        assert counters is not None
        refine = counters.stages["refine"]
        assert refine is not None
        np.testing.assert_array_equal((~np.isnan(near)).sum(axis=1), refine.distance_computations)


def test_nearly_equal_centroids_are_compared_as_scann_does(shared: Callable[[str], Path]) -> None:
    """sift5k: k-means makes centroids that differ in the last bit, and what is nearest depends
    on the batch; each is counted as it is searched."""
    base = np.load(shared("data/sift5k/base.u8.npy"))
    queries = base[::50].astype(np.float32) + 1
    system = open_system("scann").build(base, "l2")
    for rows in (queries, queries[:33], queries[:1]):
        for probes in (1, 8, 40):
            counters = system.count(rows, 10, leaves_to_search=probes)
            assert counters is not None
            assert counters.distance_computations is not None


def test_a_vector_in_two_partitions_is_compared_twice() -> None:
    system = open_system("scann").build(BASE, "ip", num_leaves=20, soar_lambda=1.5)
    counters = system.count(QUERIES, 10, leaves_to_search=20)
    assert counters is not None
    codes = counters.stages["codes"]
    assert codes is not None
    assert (codes.distance_computations > 2500).all()
    # How many of them are scored again ScaNN does not say: unknown, not free.
    assert counters.stages["refine"] is None
    assert counters.distance_computations is None
    with pytest.raises(InputError, match="soar_lambda needs partitions, and space ip or cosine"):
        open_system("scann").build(BASE, "l2", soar_lambda=1.5)


def test_without_partitions_all_is_scanned() -> None:
    system = open_system("scann").build(BASE, "ip", num_leaves=1)
    assert [knob.name for knob in system.knobs if knob.kind == "search"] == [
        "pre_reorder_num_neighbors"
    ]
    counters = system.count(QUERIES, 10)
    assert counters is not None
    assert counters.bytes_read is not None
    np.testing.assert_array_equal(counters.bytes_read, [1500 * 4.5 + 100 * 72] * 40)


def test_a_replay_that_disagrees_makes_the_count_unknown() -> None:
    system = open_system("scann").build(BASE, "ip", num_leaves=20)
    partitions = system._read_partitions()  # type: ignore[attr-defined]
    partitions.tokens[:5] = (partitions.tokens[:5] + 1) % 20
    with pytest.warns(SemrecallWarning, match="other vectors than ScaNN: .* unknown"):
        counters = system.count(QUERIES, 10, leaves_to_search=10)
    assert counters is not None
    assert counters.distance_computations is None


# -- what is held ------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("kind", ["reorder=bfloat16", "reorder=int8", "reorder=none"])
def test_visiting_everything_finds_what_exact_search_over_the_codes_finds(
    kind: str, space: str
) -> None:
    system = open_system(f"scann?{kind}").build(BASE, space, num_leaves=10)
    codes = codes_truth(system, QUERIES, 10)
    every = {"leaves_to_search": 10}
    if kind != "reorder=none":
        every["pre_reorder_num_neighbors"] = 1500
    run, _ = search(system, QUERIES, 10, repeats=1, latency_queries=0, **every)
    pairs = zip(run.ids, codes.ids, strict=True)
    same = np.mean([len(set(a.tolist()) & set(b.tolist())) / 10 for a, b in pairs])
    # Lookup tables of codes are of eight bits themselves.
    assert same > (0.85 if kind == "reorder=none" else 0.98)


def test_exact_search_and_vectors_where_nothing_is_coded_at_last() -> None:
    system = open_system("scann").build(BASE, "l2", [f"d{i}" for i in range(1500)])
    truth = exact_search(Vectors.of(BASE, ids=[f"d{i}" for i in range(1500)]), QUERIES, 10, "l2")
    ids, _ = system.exact(QUERIES, 10)
    assert [list(row) for row in ids] == [list(row[:10]) for row in truth.ids]
    np.testing.assert_array_equal(system.vectors().require_matrix(), BASE)
    coded = open_system("scann?reorder=int8").build(BASE, "l2")
    with pytest.raises(InputError, match=r"scores by \(int8\) is coded"):
        coded.exact(QUERIES, 10)
    with pytest.raises(InputError, match="holds quantised vectors"):
        coded.vectors()


@pytest.mark.parametrize("kind", ["", "reorder=int8", "scoring=exact"])
def test_a_saved_searcher_comes_back_from_where_it_was_moved(tmp_path: Path, kind: str) -> None:
    names = [f"doc-{i}" for i in range(1500)]
    system = open_system(f"scann?{kind}" if kind else "scann").build(BASE, "ip", names)
    system.save(tmp_path / "saved")
    with pytest.raises(InputError, match="holds files already"):
        system.save(tmp_path / "saved")
    (tmp_path / "saved").rename(tmp_path / "moved")
    back = open_system(f"scann?index={tmp_path / 'moved'}")
    assert (back.dimension, back.ntotal, str(back.space)) == (18, 1500, "ip")
    named = back.build(Vectors.of(BASE, ids=names), "ip")
    for opened, of_row in ((named, names), (back, range(1500))):
        found, _ = opened.search(QUERIES, 5)
        rows = np.array([[list(of_row).index(i) for i in row] for row in found.tolist()])
        expected, _ = system.search(QUERIES, 5)
        np.testing.assert_array_equal(np.array(names)[rows], expected)
        counters = opened.count(QUERIES, 5)
        assert counters is not None
        assert counters.distance_computations is not None
    with pytest.raises(MismatchError, match="compares by ip; found space l2"):
        open_system("scann", index=tmp_path / "moved", space="l2")


def test_a_saved_searcher_without_some_rows_of_its_base_is_not_named_by_it(tmp_path: Path) -> None:
    """Rows are positions: after one that was left out, every id would be that of the row before."""
    base = BASE.copy()
    base[3] = np.nan
    with pytest.warns(SemrecallWarning, match="1 of 1,500 vectors"):
        open_system("scann").build(base, "ip").save(tmp_path / "saved")
    saved = open_system(f"scann?index={tmp_path / 'saved'}")
    with pytest.raises(MismatchError, match="1,500 ids for the 1,499 rows"):
        saved.build(base, "ip")
    kept = np.delete(np.arange(1500), 3)
    named = saved.build(base[kept], "ip", kept)
    exact, _ = named.exact(base[4:9], 1)
    best = exact_search(base[kept], base[4:9], 1, "ip")
    assert exact.ravel().tolist() == [kept[int(row[0])] for row in best.ids]


def test_a_searcher_with_ids_of_its_own_keeps_them() -> None:
    import scann

    names = [f"doc-{i}" for i in range(1500)]
    builder = scann.scann_ops_pybind.builder(BASE, 10, "squared_l2").tree(20, 3)
    index = builder.score_ah(2).reorder(50).build(docids=names)
    system = open_system("scann", index=index)
    assert system.search(BASE[:3], 1)[0].ravel().tolist() == ["doc-0", "doc-1", "doc-2"]
    assert {knob.name: knob.default for knob in system.knobs} == {
        "leaves_to_search": 3,
        "pre_reorder_num_neighbors": 50,
    }


def test_knobs_and_options() -> None:
    system = open_system("scann").build(
        BASE, "ip", num_leaves=12, dimensions_per_block=3, anisotropic_quantization_threshold=0
    )
    about = system.describe()
    assert (about["leaves"], about["code_bytes"], about["scores_by"]) == (12, 3, "float32")
    settings = {"leaves_to_search": 5, "pre_reorder_num_neighbors": 44}
    index = system._index  # type: ignore[attr-defined]
    assert system.snippet(settings).endswith("leaves_to_search=5, pre_reorder_num_neighbors=44)")
    given: dict[str, Any] = {"searcher": index, "queries": QUERIES, "k": 7}
    exec(system.snippet(settings), given)
    np.testing.assert_array_equal(given["neighbors"], system.search(QUERIES, 7, **settings)[0])
    knobs = {"num_leaves": 12, "dimensions_per_block": 3, "anisotropic_quantization_threshold": 0}
    written = system.build_snippet(knobs)
    assert written == (
        'searcher = scann.scann_ops_pybind.builder(vectors, 10, "dot_product")'
        ".set_n_training_threads(0).tree(12, 1, training_sample_size=100000)"
        '.score_ah(3, anisotropic_quantization_threshold=float("nan"), '
        "training_sample_size=100000, hash_type='lut16')"
        ".reorder(100, quantize=scann.ReorderType.FLOAT32).build()"
    )
    made = {"vectors": BASE, "scann": pytest.importorskip("scann")}
    exec(written, made)
    assert made["searcher"].config() == index.config()
    for options, says in (
        ({"scoring": "pq"}, "scoring is 'pq'; expected lut16, lut256, exact"),
        ({"scoring": "exact", "reorder": "int8"}, "leaves nothing to reorder"),
        ({"index": "nowhere"}, "nowhere: no such file"),
        ({"index": Path(__file__).parent}, "is no folder of a saved ScaNN searcher"),
    ):
        with pytest.raises(InputError, match=says):
            open_system("scann", **options)
    with pytest.raises(InputError, match="ScaNN cannot be built over 10 vectors"):
        open_system("scann").build(BASE[:10], "ip")
