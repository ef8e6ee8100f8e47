"""usearch as a system: number types, keys, counters against a replay of its saved graph."""

from __future__ import annotations

import heapq
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_checks import check_a_full_disk, check_scores_by_hand

from semrecall.benchmark import codes_truth, search
from semrecall.data import Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact import search as exact_search
from semrecall.space import space as space_of
from semrecall.systems import open_system
from semrecall.systems.base import as_compared, unit
from semrecall.systems.loading import before_usearch
from semrecall.testing import check_system

if find_spec("usearch") is None:
    pytest.skip("usearch is not installed", allow_module_level=True)
# As semrecall does itself, but some tests import usearch on their own.
before_usearch()

RNG = np.random.default_rng(3)
BASE = RNG.standard_normal((1500, 16)).astype(np.float32)
QUERIES = RNG.standard_normal((20, 16)).astype(np.float32)
DTYPES = ["f64", "f32", "bf16", "f16", "e5m2", "e4m3", "i8", "b1"]


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_type_keeps_the_contract(dtype: str, space: str) -> None:
    check_system(f"usearch?dtype={dtype}", space=space)


def test_scores_are_in_the_natural_unit_by_hand() -> None:
    check_scores_by_hand("usearch")


def test_a_disk_without_room_is_an_error(tmp_path: Path) -> None:
    check_a_full_disk(open_system("usearch").build(BASE, "l2"), tmp_path)


def test_padding_is_not_a_result() -> None:
    """usearch pads with key 0 and NaN, and 0 is an id here; only its counts tell."""
    system = open_system("usearch").build(BASE[:5], "l2")
    ids, scores = system.search(QUERIES[:2], 5)
    assert (ids >= 0).all()
    index = open_system("usearch").build(BASE[:5], "l2")._index  # type: ignore[attr-defined]
    padded = index.search(QUERIES[:2], 8)
    assert padded.keys[:, 5:].tolist() == [[0, 0, 0], [0, 0, 0]]
    live = open_system("usearch", index=index)
    live._size = 8  # type: ignore[attr-defined]
    ids, scores = live.search(QUERIES[:2], 8)
    assert (ids[:, 5:] == -1).all()
    assert scores is not None
    assert np.isnan(scores[:, 5:]).all()
    assert (np.sort(ids[:, :5]) == np.arange(5)).all()


# -- ids ---------------------------------------------------------------------------------------


def test_integer_ids_are_keys_and_live_in_the_file(tmp_path: Path) -> None:
    ids = np.arange(1500) * 7 + 2**40
    system = open_system("usearch").build(BASE, "ip", ids)
    system.save(tmp_path / "saved.usearch")
    back = open_system(f"usearch?index={tmp_path / 'saved.usearch'}")
    assert (str(back.space), back.dimension, back.ntotal) == ("ip", 16, 1500)
    np.testing.assert_array_equal(back.search(QUERIES, 5)[0], system.search(QUERIES, 5)[0])
    assert back.search(QUERIES, 5)[0].min() >= 2**40


def test_string_ids_come_back_when_a_saved_index_meets_its_base(tmp_path: Path) -> None:
    names = [f"doc-{i}" for i in range(1500)]
    system = open_system("usearch").build(BASE, "ip", names)
    system.save(tmp_path / "saved.usearch")
    saved = open_system(f"usearch?index={tmp_path / 'saved.usearch'}")
    assert saved.search(QUERIES, 5)[0].dtype.kind == "i"
    named = saved.build(Vectors.of(BASE, ids=names), "ip")
    np.testing.assert_array_equal(named.search(QUERIES, 5)[0], system.search(QUERIES, 5)[0])
    with pytest.raises(MismatchError, match="has a key 1,499, and there are 1,000 ids"):
        saved.build(Vectors.of(BASE[:1000], ids=names[:1000]), "ip")
    with pytest.raises(MismatchError, match="8 dimensions, the usearch index 16"):
        saved.build(BASE[:, :8].copy(), "ip")
    with pytest.raises(MismatchError, match="compares by ip; found space l2"):
        saved.build(BASE, "l2")
    assert str(saved.build(Vectors.of(unit(BASE)), "cosine").space) == "cosine"


def test_what_is_built_again_has_no_names_of_before() -> None:
    named = open_system("usearch").build(BASE[:50], "l2", [f"d{i}" for i in range(50)])
    again = named.build(BASE[:40], "l2")
    assert again.vectors().ids.array().tolist() == list(range(40))
    assert again.search(QUERIES, 5)[0].dtype == np.int64
    assert named.vectors().ids.array().tolist() == [f"d{i}" for i in range(50)]


def test_keys_beyond_signed_integers_are_their_digits() -> None:
    from usearch.index import Index

    index = Index(ndim=16, metric="l2sq", dtype="f32")
    keys = np.array([5, 2**63, 2**64 - 2], dtype=np.uint64)
    index.add(keys, BASE[:3])
    found, _ = open_system("usearch", index=index).search(BASE[:3], 1)
    assert found.ravel().tolist() == ["5", str(2**63), str(2**64 - 2)]


def test_rows_that_cannot_be_searched_leave_the_others_their_ids() -> None:
    base = BASE[:50].copy()
    base[[3, 7], 2] = np.nan, np.inf
    with pytest.warns(SemrecallWarning, match="2 of 50 vectors .*: 'd3', 'd7'"):
        system = open_system("usearch").build(base, "l2", [f"d{i}" for i in range(50)])
    assert system.ntotal == 48
    ids, _ = system.search(base[[0, 4, 8, 49]], 1)
    assert ids.ravel().tolist() == ["d0", "d4", "d8", "d49"]
    with pytest.raises(InputError, match="no vector that can be searched"):
        open_system("usearch").build(np.full((2, 3), np.nan, dtype=np.float32), "l2")


def test_a_stream_without_a_length_is_read_once() -> None:
    blocks = Vectors.from_blocks([BASE[:700], BASE[700:]], length=None)
    stream = open_system("usearch").build(blocks, "l2", threads=1)
    whole = open_system("usearch").build(BASE, "l2", threads=1)
    np.testing.assert_array_equal(stream.search(QUERIES, 5)[0], whole.search(QUERIES, 5)[0])


# -- quantised ---------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("dtype", ["f16", "e4m3", "i8", "b1"])
def test_exact_search_over_codes_is_what_usearch_finds_exactly(dtype: str, space: str) -> None:
    """`codes` and `view` decode what usearch compares: its own exact search agrees."""
    system = open_system(f"usearch?dtype={dtype}").build(BASE, space)
    codes = codes_truth(system, QUERIES, 20)
    index = system._index  # type: ignore[attr-defined]
    asked = as_compared(QUERIES, space_of(space))
    queries = np.packbits(asked > 0, axis=1) if dtype == "b1" else asked
    found = index.search(queries, 20, exact=True).keys.astype(np.int64)
    for row in range(len(QUERIES)):
        # At the last place equal distances, common among signs, may differ.
        assert codes.scores is not None
        within = codes.ids[row][codes.scores[row] != codes.scores[row][19]]
        assert not set(within.tolist()) - set(found[row].tolist())


def test_signs_of_dimensions_that_fill_no_byte() -> None:
    base = RNG.standard_normal((200, 11)).astype(np.float32)
    system = open_system("usearch?dtype=b1").build(base, "cosine")
    codes = system.codes()
    assert codes is not None
    np.testing.assert_array_equal(codes.require_matrix(), np.where(base > 0, 1, -1))
    assert (system.search(base[:20], 1)[0].ravel() == np.arange(20)).mean() > 0.8


def test_what_has_no_unit_has_no_scores_and_rescoring_gives_them() -> None:
    """i8 stores directions only: under ip its distances are those of another geometry."""
    for dtype, space in (("i8", "ip"), ("i8", "l2"), ("b1", "ip"), ("b1", "cosine")):
        system = open_system(f"usearch?dtype={dtype}").build(BASE, space)
        assert system.search(QUERIES, 5)[1] is None
        run, _ = search(system, QUERIES, 5, repeats=1, latency_queries=0, rescore_base=BASE)
        assert run.scores is not None
        best = exact_search(BASE, QUERIES, 1500, space)
        assert best.scores is not None
        for row in range(3):
            true = dict(zip(best.ids[row].tolist(), best.scores[row].tolist(), strict=True))
            assert [true[i] for i in run.ids[row].tolist()] == run.scores[row].tolist()


def test_exact_search_by_usearch_itself() -> None:
    system = open_system("usearch").build(BASE, "cosine")
    truth = exact_search(BASE, QUERIES, 10, "cosine")
    ids, scores = system.exact(QUERIES, 10)
    np.testing.assert_array_equal(ids, np.array([row[:10] for row in truth.ids]))
    assert scores is not None
    with pytest.raises(InputError, match="usearch holds f16 here"):
        open_system("usearch?dtype=f16").build(BASE, "cosine").exact(QUERIES, 10)


def test_vectors_come_out_as_they_went_in() -> None:
    held = open_system("usearch").build(BASE, "l2", np.arange(1500) * 3).vectors()
    np.testing.assert_array_equal(held.require_matrix(), BASE)
    np.testing.assert_array_equal(held.ids.array(), np.arange(1500) * 3)
    with pytest.raises(InputError, match="holds quantised vectors"):
        open_system("usearch?dtype=i8").build(BASE, "l2").vectors()


# -- knobs and faults --------------------------------------------------------------------------


def test_knobs_reach_the_index() -> None:
    made = open_system("usearch").build(BASE, "l2", connectivity=4, expansion_add=20, threads=1)
    about = made.describe()
    assert (about["connectivity"], about["expansion_add"]) == (4, 20)
    truth = exact_search(BASE, QUERIES, 10, "l2")

    def recall(effort: int) -> float:
        ids, _ = made.search(QUERIES, 10, expansion_search=effort)
        return float(np.mean([len(set(a) & set(b)) for a, b in zip(ids, truth.ids, strict=True)]))

    assert recall(10) < recall(400)
    settings = {"expansion_search": 33}
    index = made._index  # type: ignore[attr-defined]
    given: dict[str, Any] = {"index": index, "queries": QUERIES, "k": 7}
    exec(made.snippet(settings), given)
    np.testing.assert_array_equal(
        given["matches"].keys.astype(np.int64),  # type: ignore[attr-defined]
        made.search(QUERIES, 7, **settings)[0],
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dtype": "f8"}, "dtype is 'f8'; expected f64, f32"),
        ({"space": "ip"}, "belong to a saved index"),
        ({"index": "none.usearch"}, "none.usearch: no such file"),
        ({"index": __file__}, "usearch cannot read this index"),
    ],
)
def test_wrong_options_say_so(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        open_system("usearch", **options)


def test_a_saved_index_has_its_own_metric(tmp_path: Path) -> None:
    open_system("usearch").build(BASE, "l2").save(tmp_path / "saved.usearch")
    with pytest.raises(MismatchError, match="compares by L2sq; found space ip"):
        open_system("usearch", index=tmp_path / "saved.usearch", space="ip")
    with pytest.raises(InputError, match="has its own dtype"):
        open_system("usearch", index=tmp_path / "saved.usearch", dtype="f16")
    with pytest.raises(InputError, match="the system 'usearch' is empty"):
        open_system("usearch").search(QUERIES, 3)
    system = open_system("usearch").build(BASE, "l2")
    with pytest.raises(InputError, match="k is 0"):
        system.search(QUERIES, 0)
    with pytest.raises(MismatchError, match=r"expected \(n, 16\)"):
        system.search(QUERIES[:, :8], 3)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("sr.open_system('usearch').build(base, 'ip')", "built"),
        ("import {other}, usearch.index", "built"),
        ("import usearch.index", "SystemFault"),
        ("import usearch.index, {other}", "SystemFault"),
    ],
)
@pytest.mark.parametrize(
    ("other", "then"),
    [
        ("faiss", "sr.open_system('faiss?factory=SQ8').build(base, 'ip')"),
        ("scann", "sr.open_system('scann', index='saved')"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="libraries of Linux")
def test_usearch_crashes_nothing_in_the_same_process(
    tmp_path: Path, other: str, then: str, first: str, said: str
) -> None:
    """Its own C++ library breaks faiss and ScaNN where it comes first: prevented, or an error."""
    pytest.importorskip(other)
    if other == "scann":
        open_system("scann").build(BASE, "ip").save(tmp_path / "saved")
    lines = [
        "import numpy as np, semrecall as sr",
        "base = np.ones((20, 18), dtype=np.float32)",
        first.format(other=other),
        "try:",
        f"    {then}",
        "except sr.SemrecallError as error:",
        "    print(type(error).__name__)",
        "else:",
        "    print('built')",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.decode().strip()) == (0, said), done.stderr


# -- counters ----------------------------------------------------------------------------------


@dataclass
class SavedGraph:
    """The graph in a file of usearch: links by node and level, read by the layout of the file."""

    nodes: list[tuple[int, list[list[int]]]]
    entry: int
    top: int

    @classmethod
    def of(cls, path: Path) -> SavedGraph:
        raw = path.read_bytes()
        rows, columns = np.frombuffer(raw, "<u4", 2).tolist()
        at = 8 + rows * columns + 64
        size, links, base_links, top, entry = np.frombuffer(raw, "<u8", 5, at).tolist()
        at += 40 + 2 * size
        nodes = []
        for _ in range(size):
            key = int(np.frombuffer(raw, "<u8", 1, at)[0])
            level = int(np.frombuffer(raw, "<i2", 1, at + 8)[0])
            at, lists = at + 10, []
            for number in range(level + 1):
                count = int(np.frombuffer(raw, "<u4", 1, at)[0])
                lists.append(np.frombuffer(raw, "<u4", count, at + 4).tolist())
                at += 4 + 4 * (base_links if number == 0 else links)
            nodes.append((key, lists))
        assert at == len(raw)
        return cls(nodes, entry, top)

    def search(self, base: Any, query: Any, k: int, ef: int) -> tuple[int, list[int]]:
        """How many distances a search computes, and what it finds; in float64."""
        computed, seen = 0, {-1}

        def far(node: int) -> float:
            nonlocal computed
            computed += 1
            return float(((base[self.nodes[node][0]].astype(float) - query) ** 2).sum())

        current, near = self.entry, far(self.entry)
        for level in range(self.top, 0, -1):
            moved = True
            while moved:
                moved = False
                for node in self.nodes[current][1][level]:
                    if (distance := far(node)) < near:
                        near, best, moved = distance, node, True
                current = best if moved else current
        candidates, found = [(far(current), current)], [(-near, current)]
        seen.add(current)
        while candidates:
            distance, node = heapq.heappop(candidates)
            if distance > -found[0][0] and len(found) == max(ef, k):
                break
            for other in self.nodes[node][1][0]:
                if other in seen:
                    continue
                seen.add(other)
                distance = far(other)
                if len(found) < max(ef, k) or distance < -found[0][0]:
                    heapq.heappush(candidates, (distance, other))
                    heapq.heappush(found, (-distance, other))
                    if len(found) > max(ef, k):
                        heapq.heappop(found)
        return computed, [self.nodes[node][0] for _, node in sorted((-d, n) for d, n in found)][:k]


@pytest.mark.parametrize("effort", [10, 60, 250])
def test_counters_equal_a_replay_of_the_saved_graph(tmp_path: Path, effort: int) -> None:
    system = open_system("usearch").build(BASE, "l2", connectivity=6, threads=1)
    system.save(tmp_path / "graph.usearch")
    graph = SavedGraph.of(tmp_path / "graph.usearch")
    counters = system.count(QUERIES, 10, expansion_search=effort)
    assert counters is not None
    assert counters.distance_computations is not None
    ids, _ = system.search(QUERIES, 10, expansion_search=effort)
    for row, query in enumerate(QUERIES):
        computed, found = graph.search(BASE, query, 10, effort)
        assert found == ids[row].tolist()
        assert counters.distance_computations[row] == computed


@pytest.mark.parametrize(
    ("dtype", "each"), [("f64", 128), ("f32", 64), ("f16", 32), ("i8", 16), ("b1", 2)]
)
def test_bytes_are_those_of_the_stored_numbers(dtype: str, each: int) -> None:
    counters = open_system(f"usearch?dtype={dtype}").build(BASE, "l2").count(QUERIES, 10)
    assert counters is not None
    assert counters.bytes_read is not None
    assert counters.distance_computations is not None
    np.testing.assert_array_equal(counters.bytes_read, each * counters.distance_computations)
    assert (counters.distance_computations > 10).all()
