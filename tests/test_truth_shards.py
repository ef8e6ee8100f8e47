"""A base in many files: which, in which order, what is wrong with them, and the same bits."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semrecall as sr
from semrecall.data import Vectors
from semrecall.errors import FormatError, InputError, MismatchError
from semrecall.exact.merge import merged
from semrecall.exact.search import Scan
from semrecall.formats import read_vectors, write
from semrecall.space import space
from semrecall.truth.reading import Ahead
from semrecall.truth.shards import Shards, natural
from semrecall.truth.work import Task, id_order, missing

RNG = np.random.default_rng(8)
QUERIES = RNG.standard_normal((30, 12), dtype=np.float32)


def rows(n: int) -> np.ndarray:
    """n rows with ties among them, a NaN row and a zero row."""
    base = RNG.standard_normal((n, 12), dtype=np.float32)
    base[n // 3 : n // 3 + 40] = base[1]
    base[n // 2], base[n // 4] = np.nan, 0
    return base


def same(found: sr.Run, expected: sr.Run) -> None:
    assert found.ids.to_list() == expected.ids.to_list()
    assert found.flat_scores is not None
    assert expected.flat_scores is not None
    assert found.flat_scores.tobytes() == expected.flat_scores.tobytes()
    assert {k: v for k, v in found.identity.items() if k != "shards"} == expected.identity


@pytest.fixture
def base(tmp_path: Path) -> np.ndarray:
    """12 shards in tmp_path/shards, named so that only natural order is right; their rows."""
    whole = rows(6_000)
    (tmp_path / "shards").mkdir()
    for number, part in enumerate(np.array_split(whole, 12)):
        np.save(tmp_path / "shards" / f"part-{number}.npy", part)
    return whole


WARNED = pytest.mark.filterwarnings("ignore:.*base row:semrecall.SemrecallWarning")


@WARNED
@pytest.mark.parametrize("engine", ["threads", "processes"])
@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
def test_shards_have_the_answer_and_the_identity_of_one_array(
    base: np.ndarray, tmp_path: Path, name: str, engine: str
) -> None:
    expected = sr.truth(base, QUERIES, 10, name)
    found = sr.truth(tmp_path / "shards", QUERIES, 10, name, engine=engine, workers=2)
    same(found, expected)
    files = found.identity["shards"]
    assert [Path(path).name for path, _ in files] == [f"part-{i}.npy" for i in range(12)]
    assert [count for _, count in files] == [500] * 12
    if engine == "threads":
        for source in (f"{tmp_path}/shards/*.npy", f"file://{tmp_path}/shards/part-[0-9]*.npy"):
            same(sr.truth(source, QUERIES, 10, name, memory=1 << 20, threads=1), expected)


@WARNED
def test_a_list_keeps_its_order(base: np.ndarray, tmp_path: Path) -> None:
    order = [3, 0, 7, 11, 1, 2, 10, 9, 8, 4, 5, 6]
    paths = [tmp_path / "shards" / f"part-{i}.npy" for i in order]
    whole = np.concatenate([np.load(path) for path in paths])
    same(sr.truth(paths, QUERIES, 5, "l2"), sr.truth(whole, QUERIES, 5, "l2"))


def test_natural_order() -> None:
    names = ["a/p10.npy", "a/p9.npy", "a/p1.npy", "b/p0.npy"]
    assert sorted(names, key=natural) == ["a/p1.npy", "a/p9.npy", "a/p10.npy", "b/p0.npy"]


@WARNED
@pytest.mark.parametrize("suffix", ["npy", "fbin", "fvecs", "parquet", "hdf5"])
def test_every_format_is_read_in_stretches(tmp_path: Path, suffix: str) -> None:
    whole = rows(3_000)
    parts = np.array_split(whole, 3)
    for number, part in enumerate(parts):
        path = tmp_path / f"part-{number}.{suffix}"
        if suffix == "hdf5":
            h5py = pytest.importorskip("h5py", reason="needs h5py")
            with h5py.File(path, "w") as file:
                # One piece in the first file, compressed chunks in the others.
                options: dict[str, Any] = {"chunks": (64, 12), "compression": 1} if number else {}
                file.create_dataset("train", data=part, **options)
        elif suffix == "parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            kind = pa.list_(pa.float32(), 12) if number else pa.list_(pa.float32())
            table = pa.table({"vector": pa.array(part.tolist(), kind)})
            pq.write_table(table, path, row_group_size=170)
        else:
            write(Vectors.of(part), path)
    source = f"{tmp_path}/*.{suffix}"
    same(
        sr.truth(source, QUERIES, 7, "cosine", memory=1 << 20),
        sr.truth(whole, QUERIES, 7, "cosine"),
    )
    shards = Shards.of(source)
    assert shards is not None
    for start, stop in ((0, 3_000), (0, 1), (999, 1_001), (1_234, 2_345), (2_999, 3_000), (5, 5)):
        pieces = [np.empty((0, 12), np.float32), *shards.pieces(start, stop)]
        assert np.concatenate(pieces).tobytes() == whole[start:stop].tobytes()


@WARNED
@pytest.mark.parametrize("dtype", ["f2", "f8", ">f4", "i1", "u1", "i4"])
def test_every_type_is_what_it_is_in_one_array(tmp_path: Path, dtype: str) -> None:
    whole = (RNG.standard_normal((900, 12)) * 20 + 60).astype(dtype)
    for number, part in enumerate(np.array_split(whole, 4)):
        np.save(tmp_path / f"{number}.npy", part)
    # Column by column: gathered.
    np.save(tmp_path / "1.npy", np.asfortranarray(np.array_split(whole, 4)[1]))
    same(sr.truth(tmp_path, QUERIES, 7, "l2"), sr.truth(whole, QUERIES, 7, "l2"))


@WARNED
@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_ids_of_shards_make_their_order_irrelevant(
    tmp_path: Path, strings: bool, engine: str
) -> None:
    """Ties beyond the most that are kept are cut by id, whatever order the shards come in."""
    base = np.concatenate([np.ones((7_000, 12), np.float32), rows(600)])
    numbers = RNG.permutation(7_600)
    names = np.array([f"d{n}" for n in numbers]) if strings else numbers
    for number, part in enumerate(np.array_split(np.arange(7_600), 5)):
        write(Vectors.of(base[part], ids=names[part]), tmp_path / f"{number}.parquet")
    queries = np.concatenate([QUERIES[:4], np.ones((1, 12), np.float32)])
    paths = [tmp_path / f"{i}.parquet" for i in range(5)]
    random.Random(3).shuffle(paths)
    with pytest.warns(sr.SemrecallWarning, match="1 query with more than 1,000 ties"):
        expected = sr.truth(Vectors.of(base, ids=names), queries, 20, "l2")
    with pytest.warns(sr.SemrecallWarning, match="1 query with more than 1,000 ties"):
        found = sr.truth(paths, queries, 20, "l2", engine=engine, workers=2)
    assert found.ids.to_list() == expected.ids.to_list()
    assert found.flat_scores is not None
    assert expected.flat_scores is not None
    assert found.flat_scores.tobytes() == expected.flat_scores.tobytes()
    tied = sorted(names[:7_000].tolist())[:1_020]
    assert found.ids.to_list()[4] == tied


def test_ids_in_files_of_their_own(base: np.ndarray, tmp_path: Path) -> None:
    from semrecall.truth.verb import open_base

    for number in range(12):
        names = "".join(f"s{number}r{i}\n" for i in range(500))
        (tmp_path / f"ids-{number}.txt").write_text(names)
    shards = tmp_path / "shards"
    opened = open_base(shards, ids=f"{tmp_path}/ids-*.txt")
    assert opened.vectors.ids[5_999] == "s11r499"
    (tmp_path / "ids-3.txt").write_text("a\nb\n")
    with pytest.raises(MismatchError, match=r"ids-3.txt has 2 ids for 500 vectors in .*part-3.npy"):
        open_base(shards, ids=f"{tmp_path}/ids-*.txt")
    (tmp_path / "ids-3.txt").write_text("".join(f"s4r{i}\n" for i in range(500)))
    with pytest.raises(InputError, match="1500 and 2000 have the same id 's4r0'"):
        open_base(shards, ids=f"{tmp_path}/ids-*.txt")


@WARNED
def test_a_filter_holds_in_every_engine(base: np.ndarray, tmp_path: Path) -> None:
    mask = RNG.random(6_000) < 0.1
    each = {i: RNG.choice(6_000, 50, replace=False) for i in range(len(QUERIES))}
    for allowed in (mask, each):
        expected = sr.truth(base, QUERIES, 10, "cosine", filter=allowed)
        for engine in ("threads", "processes"):
            shards = tmp_path / "shards"
            found = sr.truth(shards, QUERIES, 10, "cosine", filter=allowed, engine=engine)
            same(found, expected)


# -- what is wrong -----------------------------------------------------------------------------


def test_the_mark_of_a_spec_is_no_pattern(base: np.ndarray, tmp_path: Path) -> None:
    assert Shards.of("duckdb?path=a.duckdb&table=docs") is None
    np.save(tmp_path / "a1.npy", base)
    assert Shards.of(str(tmp_path / "a?.npy")) is not None


def test_a_wrong_shard_is_named(base: np.ndarray, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    good = (shards / "part-4.npy").read_bytes()
    np.save(shards / "part-4.npy", np.ones((5, 13), np.float32))
    with pytest.raises(MismatchError, match=r"part-4.npy has vectors of 13 dimensions; exp"):
        sr.truth(shards, QUERIES, 3, "ip")
    np.save(shards / "part-4.npy", np.ones((5, 12), np.int8))
    with pytest.raises(MismatchError, match=r"part-4.npy has vectors of int8; expected float32"):
        sr.truth(shards, QUERIES, 3, "ip")
    (shards / "part-4.npy").write_bytes(good[:-1])
    with pytest.raises(FormatError, match=r"part-4.npy: the header says \(500, 12\)"):
        sr.truth(shards, QUERIES, 3, "ip")
    (shards / "part-4.npy").write_bytes(b"")
    with pytest.raises(FormatError, match=r"part-4.npy: the file is empty"):
        sr.truth(shards, QUERIES, 3, "ip")
    (shards / "part-4.npy").write_bytes(b"PAR1" + good)
    with pytest.raises(FormatError, match=r"part-4.npy: is a parquet file; expected a .npy file"):
        sr.truth(shards, QUERIES, 3, "ip")
    np.save(shards / "part-4.npy", np.ones(5))
    with pytest.raises(FormatError, match=r"part-4.npy: holds an array of shape \(5,\)"):
        sr.truth(shards, QUERIES, 3, "ip")


def test_other_faults_of_a_base(base: np.ndarray, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    with pytest.raises(InputError, match=r"part-1.npy is named twice"):
        sr.truth([shards / "part-1.npy", str(shards / "part-1.npy")], QUERIES, 3, "ip")
    with pytest.raises(InputError, match=r"none-\*.npy: found no shard of vectors"):
        sr.truth(f"{tmp_path}/none-*.npy", QUERIES, 3, "ip")
    with pytest.raises(FileNotFoundError, match=r"no such file"):
        sr.truth(tmp_path / "none.npy", QUERIES, 3, "ip")
    with pytest.raises(FileNotFoundError):
        sr.truth([shards / "part-1.npy", tmp_path / "none.npy"], QUERIES, 3, "ip")
    with pytest.raises(InputError, match="the engine processes reads files"):
        sr.truth(base, QUERIES, 3, "ip", engine="processes")
    with pytest.raises(InputError, match="unknown engine 'spark'"):
        sr.truth(shards, QUERIES, 3, "ip", engine="spark")
    with pytest.raises(InputError, match="12 dimensions, queries 5"):
        sr.truth(shards, QUERIES[:, :5], 3, "ip")


def test_a_file_that_is_cut_while_it_is_read(base: np.ndarray, tmp_path: Path) -> None:
    shards = Shards.of(tmp_path / "shards")
    assert shards is not None
    path = tmp_path / "shards" / "part-6.npy"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FormatError, match=r"part-6.npy: the file ends at byte 24,028; expected"):
        list(Ahead(shards, 0, 6_000, 256))


# -- parts --------------------------------------------------------------------------------------


def test_blocks_are_read_ahead_and_put_together(base: np.ndarray, tmp_path: Path) -> None:
    shards = Shards.of(tmp_path / "shards")
    assert shards is not None
    for start, stop, size in ((0, 6_000, 700), (10, 5_990, 10_000), (499, 501, 1), (7, 7, 10)):
        seen = [np.empty((0, 12), np.float32)]
        at = start
        for first, block in Ahead(shards, start, stop, size):
            assert first == at
            assert len(block) == min(size, stop - at)
            seen.append(block.copy())
            at += len(block)
        assert np.concatenate(seen).tobytes() == base[start:stop].tobytes()


@WARNED
def test_answers_merge_to_the_same_bits_in_any_order(base: np.ndarray) -> None:
    names = [f"d{i}" for i in RNG.permutation(len(base))]
    order = id_order(Vectors.of(base, ids=names).given_ids)
    assert order is not None
    expected = sr.truth(Vectors.of(base, ids=names), QUERIES, 10, "cosine")
    geometry, answers = space("cosine"), []
    for low in range(0, 6_000, 613):
        mine = Task(low, min(low + 613, 6_000), order[low : low + 613])
        with Scan(geometry, QUERIES, 10, threads=1) as scan:
            scan.over(low, base[mine.low : mine.high], mine)
            found = scan.answer()
        answers.append(replace(found, order=mine[found.rows].codes))
    draw = random.Random(5)
    for _ in range(6):
        parts = answers[:]
        draw.shuffle(parts)
        while len(parts) > 1:
            some = [parts.pop(draw.randrange(len(parts))) for _ in range(min(3, len(parts)))]
            parts.append(merged(geometry, 10, some))
        whole = parts[0]
        assert whole.scores.tobytes() == expected.flat_scores.tobytes()
        assert [names[i] for i in whole.rows] == list(expected.documents)
        assert whole.left_out.tolist() == [3_000]
        assert whole.zero.tolist() == [1_500]
        assert whole.sample.fingerprint(base.dtype, 12) == expected.identity["base"]["fingerprint"]


def test_ties_that_were_cut_matter_only_while_they_are_ties() -> None:
    # 1,200 rows at distance 1, then one at 0: the tie of rank 1 is gone, and nothing was cut.
    ties, nearer = np.ones((1_200, 1), np.float32), np.zeros((1, 1), np.float32)
    parts = []
    for start, block in ((0, ties), (1_200, nearer)):
        with Scan(space("l2"), np.zeros((1, 1), np.float32), 1, threads=1) as scan:
            scan.over(start, block)
            parts.append(scan.answer())
    assert parts[0].cut.tolist() == [True]
    for some in (parts, parts[::-1]):
        whole = merged(space("l2"), 1, some)
        assert (whole.rows.tolist(), whole.cut.tolist()) == ([1_200], [False])


def test_pairs_of_equal_rows_in_two_answers_stand_by_id() -> None:
    # Each row is in both halves: four neighbours are two pairs, and none is cut off.
    half = RNG.standard_normal((50, 12), dtype=np.float32)
    base, parts = np.concatenate([half, half]), []
    for start in (0, 50):
        with Scan(space("l2"), QUERIES, 4, threads=1) as scan:
            scan.over(start, base[start : start + 50])
            parts.append(scan.answer())
    expected = sr.truth(base, QUERIES, 4, "l2")
    assert {len(row) for row in expected.ids.to_list()} == {4}
    for some in (parts, parts[::-1]):
        whole = merged(space("l2"), 4, some)
        assert whole.rows.tolist() == expected.documents.codes.tolist()


def test_missing_rows() -> None:
    assert missing([], 10) == [(0, 10)]
    assert missing([(4, 6), (0, 2)], 10) == [(2, 4), (6, 10)]
    assert missing([(0, 10)], 10) == []


def test_one_file_is_as_before(tmp_path: Path) -> None:
    whole = rows(300)[:60]
    np.save(tmp_path / "base.npy", whole)
    found = sr.truth(tmp_path / "base.npy", QUERIES, 3, "l2")
    same(found, sr.truth(read_vectors(tmp_path / "base.npy"), QUERIES, 3, "l2"))
    assert "shards" not in found.identity


def test_a_base_without_rows(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.empty((0, 12), np.float32))
    for engine in ("threads", "processes"):
        found = sr.truth(tmp_path, QUERIES, 3, "l2", engine=engine)
        assert len(found.documents) == 0
