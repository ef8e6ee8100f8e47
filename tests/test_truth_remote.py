"""Shards by URL: read in ranges, each byte once, with what can go wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from range_server import RangeServer

import semrecall as sr
from semrecall.data import Vectors
from semrecall.errors import FormatError, InputError, MissingExtra
from semrecall.formats import remote, write
from semrecall.formats.remote import RemoteFile, shown
from semrecall.truth.shards import Shards

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
pytest.importorskip("aiohttp", reason="needs aiohttp")

RNG = np.random.default_rng(4)
BASE = RNG.standard_normal((40_000, 64), dtype=np.float32)  # 10 MB: three pieces a file
QUERIES = BASE[:20] + 0.1
#: Bytes at the start of a file that are read to learn its form, and again with the first rows.
HEADER_BYTES = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("remote")
    for number, part in enumerate(np.array_split(BASE, 3)):
        for suffix in ("npy", "fbin", "fvecs"):
            write(Vectors.of(part), made / f"part-{number}.{suffix}")
    np.save(made / "queries.npy", QUERIES)
    return made


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(folder) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_PAUSE_SECONDS", 0.0)


def bits(run: sr.Run) -> Any:
    assert run.flat_scores is not None
    return run.ids.to_list(), run.flat_scores.tobytes()


@pytest.mark.parametrize("suffix", ["npy", "fbin", "fvecs"])
def test_each_byte_is_read_once(server: RangeServer, folder: Path, suffix: str) -> None:
    urls = [f"{server.url}/part-{i}.{suffix}" for i in range(3)]
    found = sr.truth(urls, f"{server.url}/queries.npy", 10, "l2", memory=8 << 20)
    assert bits(found) == bits(sr.truth(BASE, QUERIES, 10, "l2"))
    assert found.identity["base"] == sr.truth(BASE, QUERIES, 10, "l2").identity["base"]
    for number in range(3):
        name = f"part-{number}.{suffix}"
        size = (folder / name).stat().st_size
        assert size - HEADER_BYTES <= server.bytes_given[name] <= size + HEADER_BYTES


def test_a_filtered_truth_of_urls_is_updated(server: RangeServer, folder: Path) -> None:
    urls = [f"{server.url}/part-{i}.npy" for i in range(3)]
    masks = RNG.random((20, len(BASE))) < 0.3
    old = sr.truth(urls[:2], QUERIES, 10, "l2", filter=masks[:, :26_667])
    notes: list[str] = []
    found = sr.truth(urls, QUERIES, 10, "l2", filter=masks, update=old, was=urls[:2], notes=notes)
    anew = sr.truth(urls, QUERIES, 10, "l2", filter=masks)
    assert bits(found) == bits(anew)
    assert found.identity == anew.identity
    # Rows that nobody may find are not scored.
    scored = int(masks[:, 26_667:].any(axis=0).sum())
    assert notes == [
        f"{scored:,} rows scored (13,333 inserted, 0 changed, 0 deleted); 0 of 20 queries searched "
        "anew"
    ]


def test_parquet_is_read_by_columns_and_row_groups(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = ["a long text that is not read " * 20] * 4_000
    for number in range(2):
        part = BASE[4_000 * number : 4_000 * (number + 1)]
        flat = pa.array(part.reshape(-1))
        columns = {
            "id": np.arange(len(part)) + 10_000 * number,
            "text": text,
            "vector": pa.FixedSizeListArray.from_arrays(flat, 64),
        }
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=1_000, use_dictionary=False,
                       compression="none")  # fmt: skip
    ids = np.concatenate([np.arange(4_000), np.arange(4_000) + 10_000])
    expected = sr.truth(Vectors.of(BASE[:8_000], ids=ids), QUERIES, 10, "l2")
    with RangeServer(tmp_path) as server:
        urls = [f"{server.url}/{i}.parquet" for i in range(2)]
        assert bits(sr.truth(urls, QUERIES, 10, "l2")) == bits(expected)
        read = server.bytes_given["0.parquet"]
        vectors = 4_000 * 64 * 4
        assert vectors < read < vectors * 1.1 + 100_000  # ids, and what tells the form
        # A stretch reads its row groups only: 1 of 4.
        server.bytes_given.clear()
        shards = Shards.of(urls[0])
        assert shards is not None
        opened = server.bytes_given["0.parquet"]
        assert sum(len(p) for p in shards.pieces(1_000, 2_000)) == 1_000
        assert server.bytes_given["0.parquet"] - opened < vectors / 4 * 1.1 + 100_000


def test_hdf5_at_a_url(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["train"] = BASE[:3_000]
    with h5py.File(tmp_path / "b.hdf5", "w") as file:
        file.create_dataset("train", data=BASE[3_000:6_000], chunks=(500, 64), compression=1)
    with RangeServer(tmp_path) as server:
        urls = [f"{server.url}/a.hdf5", f"{server.url}/b.hdf5"]
        found = sr.truth(urls, QUERIES, 10, "ip")
        assert bits(found) == bits(sr.truth(BASE[:6_000], QUERIES, 10, "ip"))
        assert server.bytes_given["a.hdf5"] < (tmp_path / "a.hdf5").stat().st_size * 1.05
        assert server.bytes_given["b.hdf5"] < (tmp_path / "b.hdf5").stat().st_size * 1.05


def test_memory_file_system_by_pattern_and_directory(folder: Path) -> None:
    store = fsspec.filesystem("memory")
    for number in range(3):
        data = (folder / f"part-{number}.npy").read_bytes()
        store.pipe(f"/bucket/day/part-{number * 5}.npy", data)
    try:
        expected = bits(sr.truth(BASE, QUERIES, 10, "cosine"))
        for source in ("memory://bucket/day/part-*.npy", "memory://bucket/day"):
            found = sr.truth(source, QUERIES, 10, "cosine")
            assert bits(found) == expected
            names = [name for name, _ in found.identity["shards"]]
            assert [name[-6:] for name in names] == ["-0.npy", "-5.npy", "10.npy"]
        with pytest.raises(InputError, match="memory:// is of this process alone"):
            sr.truth("memory://bucket/day", QUERIES, 10, "cosine", engine="processes")
    finally:
        store.rm("/bucket", recursive=True)


def test_processes_read_urls_themselves(server: RangeServer) -> None:
    urls = [f"{server.url}/part-{i}.npy" for i in range(3)]
    found = sr.truth(urls, QUERIES, 10, "l2", engine="processes", workers=2)
    assert bits(found) == bits(sr.truth(BASE, QUERIES, 10, "l2"))


# -- what goes wrong ----------------------------------------------------------------------------


def test_a_failure_that_passes_is_tried_again(folder: Path) -> None:
    with RangeServer(folder, failures=3) as server:
        found = sr.truth(f"{server.url}/part-1.fbin", QUERIES, 3, "ip")
    assert bits(found) == bits(sr.truth(folder / "part-1.fbin", QUERIES, 3, "ip"))


def test_a_failure_that_stays_is_told_without_secrets(folder: Path) -> None:
    with RangeServer(folder, failures=10_000) as server:
        url = f"{server.url}/part-1.fbin?X-Signature=secret"
        with pytest.raises(InputError) as error:
            sr.truth(url, QUERIES, 3, "ip")
    assert f"{server.url}/part-1.fbin: cannot be read (503" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_server_that_knows_no_ranges(folder: Path) -> None:
    with (
        RangeServer(folder, ranges=False) as server,
        pytest.raises(FormatError, match=r"(?s)part-1.npy: .*does not serve parts of files"),
    ):
        sr.truth(f"{server.url}/part-1.npy", QUERIES, 3, "ip")


def test_a_file_that_is_not_there(server: RangeServer) -> None:
    with pytest.raises(FileNotFoundError):
        sr.truth(f"{server.url}/part-9.npy", QUERIES, 3, "ip")


def test_a_file_that_is_cut_off(tmp_path: Path, folder: Path) -> None:
    for suffix in ("npy", "fbin", "fvecs"):
        data = (folder / f"part-1.{suffix}").read_bytes()
        (tmp_path / f"cut.{suffix}").write_bytes(data[:-7])
    with RangeServer(tmp_path) as server:
        for suffix in ("npy", "fbin", "fvecs"):
            with pytest.raises(FormatError, match=rf"(?s)/cut.{suffix}: .*cut off"):
                sr.truth(f"{server.url}/cut.{suffix}", QUERIES, 3, "ip")


def test_what_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="needs one more package") as error:
        sr.truth("gs://bucket/base.npy", QUERIES, 3, "ip")
    assert "gcsfs" in (error.value.hint or "")
    with pytest.raises(InputError, match=r"nonsense://bucket/base.npy"):
        sr.truth("nonsense://bucket/base.npy", QUERIES, 3, "ip")
    import builtins
    import sys

    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("fsspec"):
            raise ModuleNotFoundError("no fsspec", name="fsspec")
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "fsspec.core")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtra, match="fsspec") as missing:
        sr.truth("s3://bucket/base.npy", QUERIES, 3, "ip")
    assert missing.value.hint == 'pip install "semrecall[remote]"'


def test_names_are_without_what_may_be_secret() -> None:
    assert shown("https://me:word@host/a/b.npy?sig=1#x") == "https://host/a/b.npy"
    assert shown("s3://bucket/a b.npy") == "s3://bucket/a b.npy"
    assert shown("plain/path.npy") == "plain/path.npy"
    assert RemoteFile("https://host/b.npy?sig=1").name == "https://host/b.npy"
