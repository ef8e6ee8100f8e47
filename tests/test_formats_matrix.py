"""Files of vectors and of id matrices: what is read, and what is said of bad ones."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from semrecall import formats
from semrecall.data import Run, Vectors
from semrecall.errors import FormatError, InputError, SemrecallWarning

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))


def put(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def fbin(n: int, d: int, *, wide: bool = False) -> bytes:
    values = np.arange(n * d, dtype="<f4").tobytes()
    return struct.pack("<QQ" if wide else "<II", n, d) + values


# -- real files -----------------------------------------------------------------------------


def test_sift_files_agree(shared: Callable[[str], Path]) -> None:
    bvecs = formats.read_vectors(shared("data/sift5k/base.bvecs"))
    npy = formats.read_vectors(shared("data/sift5k/base.u8.npy"))
    assert (bvecs.require_matrix() == npy.require_matrix()).all()
    assert bvecs.dtype == np.uint8
    assert bvecs.fingerprint == npy.fingerprint
    queries = formats.read_vectors(shared("data/sift5k/siftsmall_query.fvecs"))
    assert repr(queries) == "Vectors(100 x 128, float32, memory-mapped)"
    truth = formats.read(shared("data/sift5k/groundtruth100_over_5k.npy"))
    assert (len(truth), truth.depth) == (100, 100)
    # The nearest of the 5,000 by the definition.
    base = npy.require_matrix().astype(np.float64)
    distances = ((base - np.asarray(queries.require_matrix())[0]) ** 2).sum(axis=1)
    assert truth.ids[0][0] == distances.argmin()
    path = shared("data/sift5k/siftsmall_groundtruth.ivecs")
    over_10k = formats.read(path)
    raw = np.fromfile(path, dtype="<i4").reshape(100, 101)
    assert (np.asarray(over_10k.ids) == raw[:, 1:]).all()


# -- memory map -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["fvecs", "fbin", "npy", "hdf5"])
def test_memory_mapped_without_a_copy(tmp_path: Path, suffix: str) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    path = tmp_path / f"v.{suffix}"
    formats.write(Vectors.of(matrix), path)
    found = formats.read_vectors(path)
    assert found.mapped is not None
    assert not found.require_matrix().flags.owndata
    assert (found.require_matrix() == matrix).all()


def test_fortran_order_is_read(tmp_path: Path) -> None:
    matrix = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    np.save(tmp_path / "v.npy", matrix)
    assert (formats.read_vectors(tmp_path / "v.npy").require_matrix() == matrix).all()


# -- headers --------------------------------------------------------------------------------


def test_16_byte_header_is_told_by_the_size(tmp_path: Path) -> None:
    # Case D02: 16 bytes of header and 2 * 3 * 4 bytes of values are 40 bytes.
    path = put(
        tmp_path / "v.fbin", bytes.fromhex("02000000000000000300000000000000"), fbin(2, 3)[8:]
    )
    assert path.stat().st_size == 40
    assert formats.read_vectors(path).require_matrix().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_more_than_2_to_the_32_elements(tmp_path: Path) -> None:
    # Case D01: 40,000,000 * 128 = 5,120,000,000 elements; modulo 2^32 that is 825,032,704.
    path = tmp_path / "big.fbin"
    with path.open("wb") as file:
        file.write(struct.pack("<II", 40_000_000, 128))
        try:
            file.truncate(8 + 5_120_000_000 * 4)
        except OSError:
            pytest.skip("the file system keeps no sparse files of 20 GB")
    matrix = formats.read_vectors(path).require_matrix()
    assert matrix.size == 5_120_000_000
    assert matrix[-1, -1] == 0
    with path.open("rb+") as file:
        file.truncate(8 + 825_032_704 * 4)
    with pytest.raises(FormatError, match=r"40,000,000 x 128 \(8-byte header\): 20,480,000,008"):
        formats.read_vectors(path)


def test_ids_beyond_2_to_the_31_stay_themselves(tmp_path: Path) -> None:
    # Case A26; all ones is "no result", one less is the largest id.
    ids = np.array([[3_000_000_000, 0xFFFFFFFE, 0xFFFFFFFF]], dtype="<u4")
    path = put(tmp_path / "gt.ibin", struct.pack("<II", 1, 3), ids.tobytes())
    assert formats.read_run(path).ids[0].tolist() == [3_000_000_000, 4_294_967_294, -1]
    np.save(tmp_path / "gt.npy", ids)
    assert formats.read(tmp_path / "gt.npy").ids[0].tolist() == [3_000_000_000, 4_294_967_294, -1]


def test_16_byte_header_of_ids(tmp_path: Path) -> None:
    path = put(tmp_path / "gt.ibin", struct.pack("<QQ", 2, 2), np.arange(4, dtype="<u4").tobytes())
    assert formats.read_run(path).ids.to_list() == [[0, 1], [2, 3]]


def test_layouts_of_ground_truth_are_told_by_the_size(tmp_path: Path) -> None:
    head, ids = struct.pack("<II", 2, 3), np.arange(6, dtype="<u4").tobytes()
    distances = np.array([1, 4, 9, 0, 16, 25], dtype="<f4").tobytes()
    only_ids = put(tmp_path / "a.gt100", head, ids)
    assert formats.read_run(only_ids).flat_scores is None
    both = put(tmp_path / "b.gt100", head, ids, distances)
    with pytest.warns(SemrecallWarning, match="squared L2; scores are their square roots"):
        run = formats.read_run(both, space="l2")
    # The square roots of 1 4 9 and 0 16 25.
    assert run.scores.to_list() == [[1, 2, 3], [0, 4, 5]]
    assert run.k == 3
    with pytest.warns(SemrecallWarning, match="distances are left out"):
        assert formats.read_run(both).flat_scores is None


def test_range_results_are_sorted(tmp_path: Path) -> None:
    # big-ann keeps them in the order of the base: ids 3 5 8 at squared distances 9 1 4.
    parts = [struct.pack("<II", 3, 3), np.array([2, 0, 1], "<u4").tobytes()]
    parts += [np.array([3, 5, 8], "<u4").tobytes(), np.array([9, 1, 4], "<f4").tobytes()]
    path = put(tmp_path / "truth.rangegt", *parts)
    with pytest.warns(SemrecallWarning, match="squared"):
        run = formats.read_run(path, space="l2")
    assert run.ids.to_list() == [[5, 3], [], [8]]
    assert run.scores.to_list() == [[1, 3], [], [2]]
    parts[1] = np.array([2, 0, 9], "<u4").tobytes()
    with pytest.raises(FormatError, match="counts per query add up to 11; the header says 3"):
        formats.read_run(put(path, *parts), space="l2")


@pytest.mark.parametrize(
    ("space", "stored", "natural"),
    [
        # Rising rows are distances, falling ones similarities.
        ("ip", [-8, -2, 1], [8, 2, -1]),
        ("ip", [8, 2, -1], [8, 2, -1]),
        ("cosine", [0, 0.5, 1.5], [1, 0.5, -0.5]),
        ("cosine", [1, 0.5, -0.5], [1, 0.5, -0.5]),
    ],
)
@pytest.mark.filterwarnings("ignore::semrecall.errors.SemrecallWarning")
def test_distances_become_scores(
    tmp_path: Path, space: str, stored: list[float], natural: list[float]
) -> None:
    ids = np.arange(3, dtype="<u4").tobytes()
    path = put(tmp_path / "a.gt", struct.pack("<II", 1, 3), ids, np.array(stored, "<f4").tobytes())
    assert formats.read_run(path, space=space).scores.to_list() == [natural]


def test_negative_squared_distances_are_refused(tmp_path: Path) -> None:
    values = np.array([-8.0, -2.0], "<f4").tobytes()
    ids = np.arange(2, dtype="<u4").tobytes()
    path = put(tmp_path / "a.gt", struct.pack("<II", 1, 2), ids, values)
    with pytest.raises(FormatError, match="negative distances, which are no squared L2"):
        formats.read_run(path, space="l2")


# -- bad files ------------------------------------------------------------------------------


def test_rows_of_different_dimension(tmp_path: Path) -> None:
    # Case D04: dimensions 4, 4, 3.
    rows = b"".join(struct.pack("<i", d) + bytes(4 * d) for d in (4, 4, 3))
    with pytest.raises(FormatError, match="row 2 has dimension 3, expected 4"):
        formats.read_vectors(put(tmp_path / "v.fvecs", rows))
    # Also where the size of the file fits.
    rows = b"".join(struct.pack("<i", d) + bytes(4) for d in (4, 4, 5))
    with pytest.raises(FormatError, match="row 2 has dimension 5, expected 4"):
        formats.read_vectors(put(tmp_path / "v.bvecs", rows))


def test_long_files_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from semrecall.formats import matrix

    monkeypatch.setattr(matrix, "CHECKED_ROWS", 64)
    good = (struct.pack("<i", 1) + bytes(4)) * 500
    assert len(formats.read_vectors(put(tmp_path / "v.fvecs", good))) == 500
    shifted = good[: 8 * 300] + struct.pack("<i", 2) + bytes(8) + good + bytes(4)
    with pytest.raises(FormatError, match="row 300 has dimension 2, expected 1"):
        formats.read_vectors(put(tmp_path / "v.fvecs", shifted))


def test_cut_off_rows(tmp_path: Path) -> None:
    rows = (struct.pack("<i", 4) + bytes(16)) * 3
    with pytest.raises(FormatError, match="58 bytes, that is 2 rows of dimension 4") as error:
        formats.read_vectors(put(tmp_path / "v.fvecs", rows[:-2]))
    assert "18 bytes more; is it cut off?" in error.value.message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.fbin", b"", "the file is empty"),
        ("v.fvecs", b"", "the file is empty"),
        ("v.npy", b"", "the file is empty"),
        ("v.fbin", b"abc", "has 3 bytes; expected at least the 8"),
        ("v.fvecs", b"abc", "has 3 bytes; expected at least the 4"),
        ("v.fbin", PNG, "is a PNG image; expected a matrix of float32"),
        ("v.fvecs", PNG, "a PNG image; expected rows that start with their dimension"),
        ("v.npy", PNG, "is a PNG image; expected a .npy file"),
        ("v.npy", b"PAR1" + bytes(40), "is a parquet file; expected a .npy file"),
        ("v.npy", b"\x93NUMPY\x01\x00v\x00{garbage", "the header cannot be read"),
        ("v.hdf5", PNG, "is a PNG image; expected an HDF5 file"),
        ("v.hdf5", b"\x89HDF\r\n\x1a\n" + bytes(50), "the HDF5 file cannot be opened"),
        ("v.parquet", PNG, "is a PNG image; expected a parquet file"),
        ("v.parquet", b"PAR1" + bytes(40), "the parquet file is damaged or cut off"),
        ("v.fbin", fbin(3, 4)[:-4], "has 52 bytes; its header read as float32 says 3 x 4"),
        ("v.fbin", fbin(3, 4) + b"more", "has 60 bytes; its header read as float32 says 3 x 4"),
        ("v.u8bin", fbin(3, 4), "56 bytes; its header read as uint8 says 3 x 4"),
        ("v.fvecs", struct.pack("<i", -3) + bytes(40), "starts with dimension -3"),
        ("v.fvecs", bytes(40), "starts with dimension 0"),
        ("v.fbin", struct.pack("<II", 5, 0), "5 x 0"),
    ],
)
def test_bad_vectors(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(FormatError) as error:
        formats.read_vectors(path)
    assert error.value.message.startswith(str(path))
    assert message in error.value.message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.ibin", b"", "the file is empty"),
        ("r.ibin", PNG, "is a PNG image; expected ids"),
        ("r.ibin", struct.pack("<II", 2, 3) + bytes(20), "has 28 bytes; its header says 2 x 3"),
        ("r.ivecs", PNG, "a PNG image; expected rows"),
        ("r.gt", b"1234567", "has 7 bytes; expected at least the 8"),
    ],
)
def test_bad_neighbours(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(FormatError) as error:
        formats.read_run(put(tmp_path / name, content))
    assert message in error.value.message


def test_cut_off_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((5, 4), np.float32))
    content = (tmp_path / "v.npy").read_bytes()
    with pytest.raises(FormatError, match="the file ends early: it has 200 bytes"):
        formats.read_vectors(put(tmp_path / "v.npy", content[:-8]))
    with pytest.raises(FormatError, match=r"header says \(5, 4\) of float32, 208 bytes; .* 212"):
        formats.read_vectors(put(tmp_path / "v.npy", content, b"more"))


def test_npy_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([[1, "a"]], dtype=object))
    with pytest.raises(FormatError, match="holds Python objects; expected numbers"):
        formats.read_vectors(tmp_path / "v.npy")


def test_wrong_type(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((2, 3), np.float32))
    with pytest.raises(
        FormatError, match=r"holds float32 of shape \(2, 3\); expected ids"
    ) as error:
        formats.read_run(tmp_path / "v.npy")
    assert "read_vectors" in (error.value.hint or "")
    np.save(tmp_path / "v.npy", np.ones(3, np.float32))
    with pytest.raises(FormatError, match=r"v\.npy: vectors have shape \(3,\)"):
        formats.read_vectors(tmp_path / "v.npy")
    np.save(tmp_path / "v.npy", np.array([["a"]]))
    with pytest.raises(FormatError, match=r"vectors are of type"):
        formats.read_vectors(tmp_path / "v.npy")


# -- writing --------------------------------------------------------------------------------


def test_types_are_converted_without_loss_or_with_a_word(tmp_path: Path) -> None:
    whole = Vectors.of(np.array([[0.0, 255.0]], np.float32))
    formats.write(whole, tmp_path / "v.u8bin")
    assert formats.read_vectors(tmp_path / "v.u8bin").require_matrix().tolist() == [[0, 255]]
    for value, place in ((0.5, "0.5"), (np.nan, "nan"), (-1.0, "-1.0"), (300.0, "300.0")):
        vectors = Vectors.of(np.array([[1, 2], [3, value]], np.float32))
        with pytest.raises(
            InputError, match=f"value {place} at row 1, column 1 does not fit uint8"
        ):
            formats.write(vectors, tmp_path / "w.bvecs")
    assert not (tmp_path / "w.bvecs").exists()
    with pytest.warns(SemrecallWarning, match="float64 vectors were rounded to float32"):
        formats.write(Vectors.of(np.array([[0.1]])), tmp_path / "w.fbin")
    with pytest.raises(InputError, match="beyond the range of float16"):
        formats.write(Vectors.of(np.array([[1e9]], np.float32)), tmp_path / "w.f16bin")
    formats.write(Vectors.of(np.array([[np.nan, np.inf]])), tmp_path / "w.fvecs")
    found = formats.read_vectors(tmp_path / "w.fvecs").require_matrix()
    np.testing.assert_array_equal(found, [[np.nan, np.inf]])


@pytest.mark.parametrize("suffix", ["npy", "fbin", "fvecs", "parquet"])
def test_streams_of_unknown_length(tmp_path: Path, suffix: str) -> None:
    blocks = [np.full((2, 3), i, np.float32) for i in range(5)]
    formats.write(Vectors.from_blocks(blocks), tmp_path / f"v.{suffix}")
    found = formats.read_vectors(tmp_path / f"v.{suffix}").require_matrix()
    np.testing.assert_array_equal(found, np.concatenate(blocks))


def test_what_a_format_cannot_keep(tmp_path: Path) -> None:
    with pytest.warns(SemrecallWarning, match="keeps no ids"):
        formats.write(Vectors.of([[1.0]], ids=["a"]), tmp_path / "v.npy")
    run = Run.from_arrays([[1, 2]], [[0.5, 0.25]], query_ids=["q"], space="ip")
    with pytest.warns(SemrecallWarning, match=r"keeps no query ids .* and no scores"):
        formats.write(run, tmp_path / "r.ivecs")
    with pytest.raises(InputError, match="ibin holds integer ids; found the id 'doc'"):
        formats.write(Run.from_arrays([["doc"]]), tmp_path / "r.ibin")
    with pytest.raises(
        InputError, match="ivecs holds ids up to 2,147,483,647; found 3,000,000,000"
    ):
        formats.write(Run.from_arrays([[3_000_000_000]]), tmp_path / "r.ivecs")
    with pytest.raises(InputError, match="holds ids up to 4,294,967,294; found 4,294,967,295"):
        formats.write(Run.from_arrays([[2**32 - 1]]), tmp_path / "r.ibin")
    with pytest.raises(InputError, match="needs distances of a known space; this run has no space"):
        formats.write(Run.from_arrays([[1]], [[0.5]]), tmp_path / "r.gt")
    with pytest.raises(InputError, match="no query has a result"):
        formats.write(Run.from_arrays([[], []]), tmp_path / "r.ibin")
    assert not any(p.suffix in (".gt", ".ibin") for p in tmp_path.iterdir())


def test_ids_of_vectors(tmp_path: Path) -> None:
    formats.write(Vectors.of(np.ones((2, 3), np.float32)), tmp_path / "v.fbin")
    (tmp_path / "names.txt").write_text("a\nb\n")
    found = formats.read_vectors(tmp_path / "v.fbin", ids=tmp_path / "names.txt")
    assert list(found.ids) == ["a", "b"]
    assert list(formats.read_vectors(tmp_path / "v.fbin", ids=[7, 9]).ids) == [7, 9]
    with pytest.raises(FormatError, match=r"v\.fbin: 3 ids for 2 vectors"):
        formats.read_vectors(tmp_path / "v.fbin", ids=["a", "b", "c"])


# -- HDF5 -----------------------------------------------------------------------------------


def hdf5(path: Path, **content: object) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, value in content.items():
            if isinstance(value, np.ndarray):
                file.create_dataset(name, data=value)
            else:
                file.attrs[name] = value
    return path


def test_ann_benchmarks_file(tmp_path: Path) -> None:
    base = np.eye(3, dtype=np.float32)
    path = hdf5(
        tmp_path / "glove.hdf5",
        train=base,
        test=base[:1],
        neighbors=np.array([[0, 1, 2]], np.int32),
        distances=np.array([[0.0, 1.0, 1.5]], np.float32),
        distance="angular",
    )
    assert formats.read_vectors(path).require_matrix().tolist() == base.tolist()
    assert len(formats.read_vectors(path, dataset="test")) == 1
    with pytest.warns(SemrecallWarning, match="from 1 - cosine to cosine"):
        run = formats.read_run(path)
    # 1 - 0, 1 - 1, 1 - 1.5
    assert run.scores.to_list() == [[1.0, 0.0, -0.5]]
    assert str(run.space) == "cosine"
    with pytest.raises(InputError, match="that is cosine; l2 was asked for"):
        formats.read_run(path, space="l2")
    with pytest.raises(
        FormatError, match="no data set 'base'; found distances, neighbors, test, tr"
    ):
        formats.read_vectors(path, dataset="base")
    with pytest.raises(InputError, match="holds vectors and their true neighbours") as error:
        formats.read(path)
    assert "read_run" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"distance": "jaccard"}, "sparse sets compared by Jaccard"),
        ({"distance": "jaccard", "type": "sparse"}, "sparse sets compared by Jaccard"),
        ({"distance": "hamming"}, "bit vectors compared by Hamming"),
    ],
)
def test_sets_are_refused(tmp_path: Path, attributes: dict[str, str], reason: str) -> None:
    path = hdf5(tmp_path / "kosarak.hdf5", train=np.arange(5), **attributes)
    with pytest.raises(FormatError, match=reason):
        formats.read_vectors(path)
    with pytest.raises(FormatError, match=reason):
        formats.read_run(path)


def test_compressed_hdf5_is_read(tmp_path: Path) -> None:
    import h5py

    matrix = np.arange(20, dtype=np.float32).reshape(10, 2)
    with h5py.File(tmp_path / "v.hdf5", "w") as file:
        file.create_dataset("train", data=matrix, compression="gzip")
    found = formats.read_vectors(tmp_path / "v.hdf5")
    assert found.mapped is None
    assert (found.require_matrix() == matrix).all()


def test_large_hdf5_and_parquet_stay_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import h5py

    from semrecall.formats import hdf5 as hdf5_format
    from semrecall.formats import parquet

    matrix = np.arange(40, dtype=np.float32).reshape(20, 2)
    with h5py.File(tmp_path / "v.hdf5", "w") as file:
        file.create_dataset("train", data=matrix, compression="gzip")
    formats.write(Vectors.of(matrix), tmp_path / "v.parquet")
    monkeypatch.setattr(hdf5_format, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(parquet, "IN_MEMORY_BYTES", 100)
    for name in ("v.hdf5", "v.parquet"):
        found = formats.read_vectors(tmp_path / name)
        assert found.matrix is None
        assert len(found) == 20
        # Twice: a file can be read anew.
        for _ in range(2):
            parts = [block for _, block in found.blocks(7)]
            np.testing.assert_array_equal(np.concatenate(parts), matrix)


# -- parquet and folders --------------------------------------------------------------------


def test_foreign_parquet_of_vectors(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def save(**columns: object) -> Path:
        pq.write_table(pa.table(columns), tmp_path / "v.parquet")
        return tmp_path / "v.parquet"

    found = formats.read(save(_id=["a", "b"], emb=[[1.0, 2.0], [3.0, 4.0]]))
    assert found.require_matrix().tolist() == [[1, 2], [3, 4]]
    assert list(found.ids) == ["a", "b"]
    with pytest.raises(FormatError, match="row 2 has 1 values, expected 2 values"):
        formats.read_vectors(save(emb=[[1.0, 2.0], [3.0]]))
    with pytest.raises(FormatError, match="row 2 has no vector"):
        formats.read_vectors(save(emb=[[1.0, 2.0], None]))
    with pytest.raises(FormatError, match="row 2 has a null among its values"):
        formats.read_vectors(save(emb=[[1.0, 2.0], [3.0, None]]))
    with pytest.raises(FormatError, match="column emb is of type string; expected lists"):
        formats.read_vectors(save(emb=["[1, 2]"]))
    with pytest.raises(FormatError, match="found columns a, b; expected vectors in one of vector"):
        formats.read_vectors(save(a=[1], b=[2]))
    with pytest.raises(FormatError, match="has no column 'x'; found columns a"):
        formats.read_vectors(save(a=[[1.0]]), dataset="x")
    assert formats.read_vectors(save(a=[[1.0]]), dataset="a").dimension == 1
    with pytest.raises(FormatError, match="the same id 'a'"):
        formats.read_vectors(save(id=["a", "a"], emb=[[1.0], [2.0]]))


def test_folder_in_many_files(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for part in range(2):
        table = pa.table({"id": [2 * part, 2 * part + 1], "emb": [[part, 0.5], [part, 1.5]]})
        pq.write_table(table, tmp_path / f"shuffle_train-0{part}-of-02.parquet")
    found = formats.read_vectors(tmp_path)
    assert found.require_matrix().tolist() == [[0, 0.5], [0, 1.5], [1, 0.5], [1, 1.5]]
    assert list(found.ids) == [0, 1, 2, 3]
    with pytest.raises(
        FormatError, match=r"expected neighbors\.parquet; parquet files found: shuf"
    ):
        formats.read_run(tmp_path)
    with pytest.raises(FormatError, match=r"expected test\.parquet or test-\*\.parquet"):
        formats.read_vectors(tmp_path, dataset="test")


def test_folder_whose_files_do_not_match(tmp_path: Path) -> None:
    queries = Vectors.of(np.ones((2, 2), np.float32), ids=[5, 6])
    truth = Run.from_arrays([[1], [2]], query_ids=[5, 7])
    formats.write_dataset(tmp_path, queries=queries, truth=truth)
    with pytest.raises(FormatError, match=r"no neighbours for 1 of 2 queries .* first: id 6"):
        formats.read_run(tmp_path)
    formats.write_dataset(tmp_path, truth=Run.from_arrays([[1], [2], [3]], query_ids=[5, 7, 6]))
    with pytest.warns(SemrecallWarning, match="1 rows belong to no query"):
        run = formats.read_run(tmp_path)
    assert run.ids.to_list() == [[1], [3]]
    assert list(run.queries) == [5, 6]


def test_a_pipe_is_no_place_to_look(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file") as error:
        formats.read(tmp_path / "pipe")
    assert "--from" in (error.value.hint or "")
