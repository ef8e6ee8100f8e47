"""Exact search with its products on a device: the same bits, tried on torch's processors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semrecall import truth
from semrecall.data import Run
from semrecall.errors import InputError, MissingExtra, SemrecallWarning
from semrecall.exact import device as devices
from semrecall.exact import search
from semrecall.exact.device import Device

torch_only = pytest.mark.environment("torch")
SPACES = ("ip", "cosine", "l2")


def assert_same(run: Run, other: Run) -> None:
    assert run.documents == other.documents
    assert run.offsets.tolist() == other.offsets.tolist()
    assert np.array_equal(run.flat_scores, other.flat_scores, equal_nan=True)  # type: ignore[arg-type]
    assert run.identity == other.identity


def data(dtype: str = "float32", rows: int = 5000) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    base = (20 * rng.standard_normal((rows, 24))).astype(dtype)
    base[rows // 2 : rows // 2 + 300] = base[:300]  # ties
    return base, (20 * rng.standard_normal((60, 24))).astype(dtype)


@torch_only
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8"])
def test_same_bits(space: str, dtype: str) -> None:
    base, queries = data(dtype)
    assert_same(search(base, queries, 10, space, device="torch-cpu"),
                search(base, queries, 10, space))  # fmt: skip


@torch_only
@pytest.mark.parametrize("space", SPACES)
def test_the_device_is_used(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    products = devices._DevicePass._product

    def spy(*arguments: Any) -> Any:
        found = products(*arguments)
        seen.append(len(found.row))
        return found

    monkeypatch.setattr(devices._DevicePass, "_product", spy)
    monkeypatch.setattr(devices, "_MOST_ROWS", 1000)
    base, queries = data()
    run = search(base, queries, 10, space, device="torch-cpu")
    assert len(seen) == 5
    assert sum(seen) >= len(run.documents)


@torch_only
@pytest.mark.parametrize("space", SPACES)
def test_rows_without_scores_and_filters(space: str) -> None:
    base, queries = data()
    base[7], base[8, 3], base[9, 2] = 0, np.nan, np.inf
    queries[1], queries[2, 0] = 0, np.nan
    rng = np.random.default_rng(2)
    masks = rng.random((60, len(base))) < 0.6
    for allowed in (None, masks[0], masks):
        with pytest.warns(SemrecallWarning):
            plain = search(base, queries, 10, space, allowed=allowed)
        with pytest.warns(SemrecallWarning):
            found = search(base, queries, 10, space, allowed=allowed, device="torch-cpu")
        assert_same(found, plain)


@torch_only
def test_little_memory_and_many_chunks() -> None:
    base, queries = data(rows=40_000)
    plain = search(base, queries, 30, "ip")
    assert_same(search(base, queries, 30, "ip", device="torch-cpu", memory=1 << 20), plain)
    same = np.ones((20_000, 3), dtype=np.float32)  # everything ties: too many survive
    with pytest.warns(SemrecallWarning, match="ties"):
        plain = search(same, same[:3], 2, "cosine", memory=1 << 20)
    with pytest.warns(SemrecallWarning, match="ties"):
        found = search(same, same[:3], 2, "cosine", memory=1 << 20, device="torch-cpu")
    assert_same(found, plain)


@torch_only
def test_out_of_memory_is_halved_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    products = devices._DevicePass._product

    def short(self: Any, low: int, first: int, rows: Any, *others: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 700:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return products(self, low, first, rows, *others)

    monkeypatch.setattr(devices._DevicePass, "_product", short)
    base, queries = data()
    plain = search(base, queries, 10, "l2")
    assert_same(search(base, queries, 10, "l2", device="torch-cpu"), plain)
    assert sizes[:4] == [5000, 2500, 1250, 625]
    monkeypatch.setattr(
        devices._DevicePass,
        "_product",
        lambda *a: (_ for _ in ()).throw(RuntimeError("MPS out of memory")),
    )
    with pytest.raises(InputError, match=r"cpu has no memory for \d+ rows: MPS out of memory"):
        search(base, queries, 10, "l2", device="torch-cpu")


@torch_only
def test_other_faults_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(devices._DevicePass, "_product", fail)
    with pytest.raises(RuntimeError, match="device-side assert"):
        search(*data(), 10, "ip", device="torch-cpu")


@torch_only
def test_a_device_with_shorter_products_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TF32 would: numbers keep 11 bits."""
    put = Device.put

    def short(self: Device, values: Any) -> Any:
        tensor = put(self, values)
        if tensor.dtype != self.torch.float32:
            return tensor
        return (tensor.view(self.torch.int32) & ~0x1FFF).view(self.torch.float32)

    monkeypatch.setattr(Device, "put", short)
    base, queries = data()
    with pytest.warns(SemrecallWarning, match="are not those of float32"):
        found = search(base, queries, 10, "ip", device="torch-cpu")
    assert_same(found, search(base, queries, 10, "ip"))


@torch_only
def test_precision_is_set_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    parts = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]
    new = hasattr(parts[0], "fp32_precision")  # from torch 2.9 on

    def said() -> list[str]:
        if new:
            return [part.fp32_precision for part in parts]
        return [torch.get_float32_matmul_precision()]

    def choose(values: list[str]) -> None:
        if not new:
            torch.set_float32_matmul_precision(values[0])
            return
        for part, value in zip(parts, values, strict=True):
            part.fp32_precision = value

    before, within = said(), []
    products = devices._DevicePass._product

    def spy(*arguments: Any) -> Any:
        within.append(said())
        return products(*arguments)

    monkeypatch.setattr(devices._DevicePass, "_product", spy)
    chosen = ["tf32", "bf16"] if new else ["medium"]
    choose(chosen)
    try:
        search(*data(), 10, "ip", device="torch-cpu")
        assert set(within[0]) <= {"ieee", "highest"}
        assert said() == chosen
    finally:
        choose(before)


@torch_only
def test_what_is_not_there() -> None:
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="finds no cuda device here"):
            search(*data(), 10, "ip", device="cuda")
        assert Device.of("auto") is None or torch.backends.mps.is_available()


@torch_only
def test_files(tmp_path: Path, semrecall_main: Callable[..., tuple[int, str, str]]) -> None:
    base, queries = data()
    np.save(tmp_path / "base.npy", base)
    np.save(tmp_path / "queries.npy", queries)
    paths = str(tmp_path / "base.npy"), str(tmp_path / "queries.npy")
    assert_same(truth(*paths, 10, "ip", device="torch-cpu"), truth(*paths, 10, "ip"))
    status, _, err = semrecall_main(
        "truth", "base.npy", "queries.npy", "-k", 10, "--space", "ip", "--device", "auto",
        "-o", "truth.parquet",
    )  # fmt: skip
    assert status == 0, err


# -- without torch ---------------------------------------------------------------------------------


def test_names() -> None:
    assert Device.of(None) is None
    assert Device.of("cpu") is None
    for name in ("gpu", "mps:1", "torch-cpu:0"):
        with pytest.raises(InputError, match="unknown device"):
            Device.of(name)
    bits = np.ones((2, 8), dtype=bool)
    with pytest.raises(InputError, match="for ip, cosine and l2, not for hamming"):
        search(bits, bits, 1, "hamming", device="cuda")
    assert len(search(bits, bits, 1, "hamming", device="auto")) == 2


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch(tmp_path: Path, semrecall_main: Callable[..., tuple[int, str, str]]) -> None:
    base, queries = data()
    with pytest.raises(MissingExtra, match="torch"):
        search(base, queries, 3, "ip", device="cuda")
    assert_same(search(base, queries, 3, "ip", device="auto"), search(base, queries, 3, "ip"))
    np.save(tmp_path / "base.npy", base)
    status, _, err = semrecall_main(
        "truth", "base.npy", "base.npy", "-k", 2, "--space", "ip", "--device", "cuda"
    )
    assert status == 2
    assert "semrecall[torch]" in err
