"""Voyager as a system: storage of eight bits, short answers, saved indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_checks import check_a_full_disk, check_scores_by_hand

from semrecall.benchmark import codes_truth, search
from semrecall.data import Vectors
from semrecall.errors import InputError, MismatchError
from semrecall.exact import search as exact_search
from semrecall.systems import open_system
from semrecall.testing import check_system

pytest.importorskip("voyager")

RNG = np.random.default_rng(3)
BASE = RNG.standard_normal((1500, 16)).astype(np.float32)
QUERIES = RNG.standard_normal((20, 16)).astype(np.float32)


@pytest.mark.parametrize(
    ("storage", "space"),
    [
        *[("float32", space) for space in ("ip", "cosine", "l2")],
        *[("e4m3", space) for space in ("ip", "cosine", "l2")],
        ("float8", "cosine"),
    ],
)
def test_it_keeps_the_contract(storage: str, space: str) -> None:
    check_system(f"voyager?storage={storage}", space=space)


def test_scores_are_in_the_natural_unit_by_hand() -> None:
    check_scores_by_hand("voyager")


def test_a_disk_without_room_is_an_error(tmp_path: Path) -> None:
    check_a_full_disk(open_system("voyager").build(BASE, "l2"), tmp_path)


def test_fixed_point_has_a_range() -> None:
    """float8 holds numbers from -1 to 1 only: an error that says what to do."""
    with pytest.raises(InputError, match="cannot store these vectors as float8") as error:
        open_system("voyager?storage=float8").build(BASE, "l2")
    assert "storage=float32" in (error.value.hint or "")
    scale = np.abs(BASE).max()
    system = open_system("voyager?storage=float8").build(BASE / scale, "l2")
    with pytest.raises(InputError, match="cannot take these queries as float8"):
        system.search(QUERIES * 3, 5)
    truth = exact_search(BASE, QUERIES, 10, "l2")
    run, _ = search(
        system, np.clip(QUERIES / scale, -1, 1), 10, repeats=1, latency_queries=0, ef=300
    )
    kept = [len(set(a.tolist()) & set(b.tolist())) for a, b in zip(run.ids, truth.ids, strict=True)]
    assert np.mean(kept) > 9


def test_fewer_than_k_are_shorter_rows_and_no_error() -> None:
    import voyager

    index = voyager.Index(voyager.Space.Euclidean, num_dimensions=16, random_seed=1)
    index.add_items(BASE[:100], num_threads=1)
    for label in range(20):
        index.mark_deleted(label)
    with pytest.raises(voyager.RecallError):
        index.query(QUERIES[:3], 90, query_ef=100)
    system = open_system("voyager", index=index)
    assert system.ntotal == 80
    run, _ = search(system, QUERIES[:3], 90, repeats=1, latency_queries=0)
    for row in run.ids:
        real = row[row >= 0]
        assert len(real) == len(set(real.tolist())) == 80
        assert real.min() >= 20


def test_the_others_of_a_batch_keep_their_results() -> None:
    system = open_system("voyager").build(BASE[:200], "l2")
    index = system._index  # type: ignore[attr-defined]

    class Torn:
        def __getattr__(self, name: str) -> Any:
            return getattr(index, name)

        def query(self, queries: Any, k: int, **more: Any) -> Any:
            import voyager

            if k > 3 and (queries == QUERIES[1]).all(axis=1).any():
                raise voyager.RecallError("only found 3")
            return index.query(queries, k, **more)

    system._index = Torn()  # type: ignore[attr-defined]
    ids, scores = system.search(QUERIES[:3], 10)
    assert (ids[[0, 2]] >= 0).all()
    assert (ids[1] >= 0).tolist() == [True] * 3 + [False] * 7
    assert scores is not None
    assert np.isnan(scores[1, 3:]).all()


def test_an_effort_below_k_is_raised_to_k() -> None:
    """Voyager refuses it; the candidate list is at least k, as elsewhere."""
    system = open_system("voyager").build(BASE, "l2")
    np.testing.assert_array_equal(
        system.search(QUERIES, 40, ef=5)[0], system.search(QUERIES, 40, ef=40)[0]
    )


@pytest.mark.parametrize("storage", ["float32", "e4m3"])
def test_a_saved_index_comes_back(tmp_path: Path, storage: str) -> None:
    ids = np.arange(1500) * 7 + 2**40
    system = open_system(f"voyager?storage={storage}").build(BASE, "ip", ids)
    system.save(tmp_path / "saved.voy")
    back = open_system(f"voyager?index={tmp_path / 'saved.voy'}")
    assert (back.dimension, back.ntotal, str(back.space)) == (16, 1500, "ip")
    assert back.describe()["storage"] == storage
    np.testing.assert_array_equal(back.search(QUERIES, 5)[0], system.search(QUERIES, 5)[0])
    names = [f"doc-{i}" for i in range(1500)]
    open_system("voyager").build(BASE, "ip", names).save(tmp_path / "rows.voy")
    rows = open_system("voyager", index=tmp_path / "rows.voy")
    named = rows.build(Vectors.of(BASE, ids=names), "ip")
    assert set(named.search(QUERIES, 5)[0].ravel()) <= set(names)
    with pytest.raises(MismatchError, match="compares by InnerProduct; found space l2"):
        open_system("voyager", index=tmp_path / "rows.voy", space="l2")


def test_what_is_stored_is_given_out() -> None:
    held = open_system("voyager").build(BASE, "ip").vectors()
    np.testing.assert_array_equal(held.require_matrix(), BASE)
    rough = open_system("voyager?storage=e4m3").build(BASE, "ip")
    with pytest.raises(InputError, match="holds quantised vectors"):
        rough.vectors()
    codes = rough.codes()
    assert codes is not None
    # Three bits behind the point: off by at most a sixteenth of each number that is not tiny.
    error = np.abs(codes.require_matrix() - BASE)
    assert (error <= np.abs(BASE) / 16 + 2**-6).all()
    truth = codes_truth(rough, QUERIES, 10)
    run, _ = search(rough, QUERIES, 10, repeats=1, latency_queries=0, ef=500)
    pairs = zip(run.ids, truth.ids, strict=True)
    assert np.mean([len(set(a.tolist()) & set(b.tolist())) for a, b in pairs]) > 9


def test_knobs_and_options() -> None:
    built = open_system("voyager").build(BASE, "l2", M=5, ef_construction=30, threads=1, seed=7)
    assert (built.describe()["M"], built.describe()["ef_construction"]) == (5, 30)
    given = {"queries": QUERIES, "k": 7, "vectors": BASE, "ids": np.arange(len(BASE))}
    given["voyager"] = pytest.importorskip("voyager")
    exec(built.build_snippet({"M": 5, "ef_construction": 30, "threads": 1, "seed": 7}), given)
    assert built.snippet({"ef": 33}) == "ids, distances = index.query(queries, k, query_ef=33)"
    exec(built.snippet({"ef": 33}), given)
    np.testing.assert_array_equal(given["ids"].astype(np.int64), built.search(QUERIES, 7, ef=33)[0])
    assert built.count(QUERIES, 5) is None
    with pytest.raises(InputError, match="storage is 'int8'; expected float32, float8, e4m3"):
        open_system("voyager?storage=int8")
    with pytest.raises(InputError, match="no such file"):
        open_system("voyager?index=none.voy")
    with pytest.raises(InputError, match="voyager cannot read this index"):
        open_system("voyager", index=__file__)
