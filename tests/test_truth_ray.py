"""Exact truth on a Ray cluster of three nodes, one of which is killed on the way.

The cluster is real: three sets of Ray's processes on this machine. `make environment NAME=ray`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semrecall as sr
from semrecall.errors import InputError, SemrecallError

pytestmark = [
    pytest.mark.environment("ray"),
    # Ray and its dependencies; ours are errors still.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def free_port() -> int:
    """A port for the cluster's store: not one that Ray gives to its workers (10002 to 19999)."""
    for port in range(26379, 26479):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    common = {"num_cpus": 1, "object_store_memory": 100 << 20}
    made = Cluster(
        initialize_head=True,
        head_node_args={**common, "gcs_server_port": free_port(), "include_dashboard": False},
    )
    for _ in range(2):
        made.add_node(**common)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine shards of 4,500 rows, with ties, a NaN row and a zero row; 40 queries."""
    folder = tmp_path_factory.mktemp("base")
    rng = np.random.default_rng(6)
    base = rng.standard_normal((40_500, 24), dtype=np.float32)
    base[20_000:20_050] = base[3]
    base[777], base[30_000] = np.nan, 0
    queries = rng.standard_normal((40, 24), dtype=np.float32)
    queries[0] = base[3]
    np.save(folder / "queries.npy", queries)
    (folder / "shards").mkdir()
    for number, part in enumerate(np.array_split(base, 9)):
        np.save(folder / "shards" / f"part-{number}.npy", part)
    return folder


def same(found: sr.Run, expected: sr.Run) -> None:
    assert found.ids.to_list() == expected.ids.to_list()
    assert found.flat_scores is not None
    assert expected.flat_scores is not None
    assert found.flat_scores.tobytes() == expected.flat_scores.tobytes()
    assert found.identity == expected.identity


@pytest.mark.filterwarnings("ignore:.*base row:semrecall.SemrecallWarning")
def test_a_cluster_finds_the_same_bits_and_outlives_a_node(cluster: Any, data: Path) -> None:
    arguments = (data / "shards", data / "queries.npy", 10, "cosine")
    expected = sr.truth(*arguments)
    same(sr.truth(*arguments, engine="ray", address=cluster.address), expected)

    killed = []

    def kill(done: float, total: int | None) -> None:
        if done > 0 and not killed:
            node = cluster.list_all_nodes()[-1]
            cluster.remove_node(node, allow_graceful=False)
            killed.append(done)

    seen: list[float] = []

    def progress(done: float, total: int | None) -> None:
        assert total == 40_500
        seen.append(done)
        kill(done, total)

    found = sr.truth(
        *arguments, engine="ray", address=cluster.address, workers=8, progress=progress
    )
    assert killed
    assert killed[0] < 40_500  # there was work left
    same(found, expected)
    assert seen == sorted(seen)
    assert seen[-1] == 40_500


def test_ids_of_the_shards_decide_ties_there_too(cluster: Any, tmp_path: Path) -> None:
    # 3,000 rows of one vector: 1,000 beyond the k-th are kept, those with the smallest ids.
    rng = np.random.default_rng(1)
    base = np.tile(rng.standard_normal(8, dtype=np.float32), (12_000, 1))
    names = [f"d{i}" for i in rng.permutation(12_000)]
    for number in range(3):
        part = slice(4_000 * number, 4_000 * (number + 1))
        sr.write(sr.Vectors.of(base[part], ids=names[part]), tmp_path / f"part-{number}.parquet")
    np.save(tmp_path / "q.npy", base[:1])
    arguments = (tmp_path / "part-*.parquet", tmp_path / "q.npy", 5, "l2")
    with pytest.warns(sr.SemrecallWarning, match="more than 1,000 ties"):
        found = sr.truth(*arguments, engine="ray", address=cluster.address)
    assert found.ids.to_list() == [sorted(names)[:1005]]


def test_a_fault_of_a_task_is_told_as_here(cluster: Any, data: Path, tmp_path: Path) -> None:
    for number in range(3):
        raw = np.full((5_000, 24), number, dtype="<f4")
        rows = np.concatenate([np.full((5_000, 1), 24, "<i4").view("<f4"), raw], axis=1)
        if number == 2:
            rows[-1, 0] = 0.0
        (tmp_path / f"part-{number}.fvecs").write_bytes(rows.tobytes())
    with pytest.raises(InputError, match=r"part-2.fvecs: row 4,999 has dimension 0, expected 24"):
        sr.truth(tmp_path, data / "queries.npy", 3, "l2", engine="ray", address=cluster.address)


def test_no_cluster_at_an_address(data: Path) -> None:
    with pytest.raises(SemrecallError, match=r"no Ray cluster at 127.0.0.1:1"):
        sr.truth(
            data / "shards", data / "queries.npy", 3, "l2", engine="ray", address="127.0.0.1:1"
        )
