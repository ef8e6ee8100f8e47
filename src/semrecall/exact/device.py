"""Screening on a GPU, or whatever else torch multiplies matrices on: the products, nothing more.

The bound of `screen.py` holds for sums of float32 products in any order, fused or not, so it holds
for a device whose arithmetic is that of float32. Shorter formats (TF32, bfloat16, half) are off
while products are taken, and a probe looks at what comes out: products of numbers that only float32
tells from 1. Where it fails, the device is not used. What passes the screen is settled on the
processor in float64 like what any other screen leaves: the answer has the same bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError, MissingExtra, SemrecallWarning
from semrecall.exact.screen import rounded_down
from semrecall.exact.survivors import Survivors, TooMany
from semrecall.registry import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.exact.chunk import ChunkPass
    from semrecall.exact.screen import Block

__all__ = ["DEVICES", "Device"]

#: What can be asked for; a number after "cuda:" chooses one of several.
DEVICES = ("cpu", "cuda", "mps", "auto", "torch-cpu")

_LEAST_ROWS = 256
_MOST_ROWS = 1 << 14
_VALUE = 1 + 2.0**-12  # float32 holds it and its square to 2^-24; TF32, half and bfloat16 do not


class Device:
    """A device of torch. Make one with `Device.of`."""

    def __init__(self, torch: Any, name: str) -> None:
        self.torch, self.name = torch, name
        self.rows = _MOST_ROWS  # in one product; fewer once memory ran out
        self._sound: bool | None = None

    @classmethod
    def of(cls, name: str | None) -> Device | None:
        """The device of that name; None for the processors of this machine, without torch.

        name: "cpu" or None for these; "cuda" or "cuda:1", "mps"; "auto" for cuda or mps where there
        is one and torch is installed; "torch-cpu" for the processors through torch (a test).
        Raises InputError for a device that is not there, MissingExtra without torch.
        """
        if name is None or name == "cpu":
            return None
        kind = name.partition(":")[0]
        if kind not in DEVICES or (name != kind and kind != "cuda"):
            raise InputError(
                f"unknown device {name!r}; expected {', '.join(DEVICES)}",
                hint="cuda:1 is the second of several",
            )
        if kind == "auto":
            return cls._any()
        torch = import_extra("torch", "torch", f"device {name}")
        if kind == "torch-cpu":
            return cls(torch, "cpu")
        there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
        if not there[kind]():
            raise InputError(
                f"torch {torch.__version__} finds no {kind} device here",
                hint="--device auto takes one where there is one; without --device none is needed",
            )
        number = name.partition(":")[2]
        if number and not (number.isdecimal() and int(number) < torch.cuda.device_count()):
            raise InputError(f"there is no {name}; torch finds {torch.cuda.device_count()} of them")
        return cls(torch, name)

    @classmethod
    def _any(cls) -> Device | None:
        try:
            torch = import_extra("torch", "torch", "device auto")
        except MissingExtra:
            return None
        if torch.cuda.is_available():
            return cls(torch, "cuda")
        return cls(torch, "mps") if torch.backends.mps.is_available() else None

    def screened(self, work: ChunkPass, threshold: NDArray[np.float64]) -> Survivors | None:
        """All rows of a chunk that may reach the threshold of a query; None where it is not sound.

        Raises TooMany, and InputError where not even a few rows fit the memory of the device.
        """
        with self._float32():
            if self._sound is None:
                self._sound = self._probe(work.screen.left.shape)
            return _DevicePass(self, work, threshold).run() if self._sound else None

    def rows_for(self, work: ChunkPass) -> int:
        """How many rows of the base fit what memory is free, with their products."""
        queries, columns = work.screen.left.shape
        # Scores, the mask, and as much again for what torch needs on the way; rows on both sides.
        each = queries * 2 * (4 + 1) + columns * 4 * 2
        rows = self._free(work.search.memory) // 2 // each
        return int(np.clip(rows, _LEAST_ROWS, self.rows))

    def _free(self, memory: int) -> int:
        if self.name.startswith("cuda"):
            return int(self.torch.cuda.mem_get_info(self.name)[0])
        if self.name == "mps":
            used = self.torch.mps.current_allocated_memory()
            return max(0, int(self.torch.mps.recommended_max_memory()) - int(used))
        return memory // 4

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Turns torch's error for a lack of memory into MemoryError."""
        try:
            yield
        except RuntimeError as fault:  # torch.OutOfMemoryError is one; MPS raises the plain one
            if "memory" not in str(fault).lower():
                raise
            if self.name.startswith("cuda"):
                self.torch.cuda.empty_cache()
            elif self.name == "mps":
                self.torch.mps.empty_cache()
            raise MemoryError(str(fault)) from None

    @contextmanager
    def _float32(self) -> Iterator[None]:
        """No shorter format in products of float32, whatever the program has chosen elsewhere."""
        backends = self.torch.backends
        both = [getattr(getattr(backends, name), "matmul", None) for name in ("cuda", "mkldnn")]
        places = [place for place in both if hasattr(place, _CHOICE)]
        if not places:  # torch before 2.9
            before = self.torch.get_float32_matmul_precision()
            self.torch.set_float32_matmul_precision("highest")
            try:
                yield
            finally:
                self.torch.set_float32_matmul_precision(before)
            return
        chosen = [getattr(place, _CHOICE) for place in places]
        try:
            for place in places:
                setattr(place, _CHOICE, "ieee")
            yield
        finally:
            for place, choice in zip(places, chosen, strict=True):
                setattr(place, _CHOICE, choice)

    def _probe(self, shape: tuple[int, ...]) -> bool:
        """Whether products of this many queries and columns are those of float32."""
        terms = min(8, shape[1])
        left = np.zeros(shape, dtype=np.float32)
        left[:, :terms] = _VALUE
        right = np.zeros((_LEAST_ROWS, shape[1]), dtype=np.float32)
        right[:, :terms] = _VALUE
        found = (self.put(left) @ self.put(right).T).cpu().numpy().astype(np.float64)
        expected = terms * _VALUE**2
        if bool((np.abs(found - expected) <= 2.0**-20 * expected).all()):
            return True
        warnings.warn(
            f"products on {self.name} are not those of float32 (is TF32 forced on?); exact search "
            "goes on without it",
            SemrecallWarning,
            stacklevel=2,
        )
        return False

    def put(self, values: NDArray[Any]) -> Any:
        """An array as a tensor of the device."""
        with warnings.catch_warnings():
            # Read-only arrays are only read here, too.
            warnings.filterwarnings("ignore", message=".*not writable.*")
            return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.name)


_CHOICE = "fp32_precision"


class _DevicePass:
    """One chunk against one tile of queries: cores make rows ready, the device multiplies."""

    def __init__(self, device: Device, work: ChunkPass, threshold: NDArray[np.float64]) -> None:
        self.device, self.work, self.threshold = device, work, threshold
        self.left = device.put(work.screen.left)
        self.held = 0

    def run(self) -> Survivors:
        work = self.work
        n, step = len(work.chunk), self.device.rows_for(self.work)
        lows = list(range(0, n, step))
        blocks = work.map(lambda low: work.screen.block(work.chunk[low : low + step]), lows)
        found = [
            Survivors(
                np.empty(0, dtype=np.uint16), np.empty(0, dtype=np.int64), np.empty(0, np.float32)
            )
        ]
        for low, block in zip(lows, blocks, strict=True):
            work.report(low / n)
            work.norm = max(work.norm, block.norm)
            work.search.note(work.start + low, block)
            found += self._products(low, block)
        return Survivors.joined(found)

    def _products(self, low: int, block: Block) -> list[Survivors]:
        """What passes of a block, taken in halves where memory is short."""
        limit = self.threshold - self.work.screen.error(block.norm)
        limits = self.device.put(rounded_down(limit, np.dtype(np.float32)))
        rows = np.ascontiguousarray(block.right.T)
        usable = np.ones(len(rows), dtype=bool)
        usable[block.unusable] = False
        parts, todo = [], [(0, len(rows))]
        while todo:
            first, last = todo.pop()
            try:
                with self.device.memory():
                    parts.append(self._product(low, first, rows[first:last], usable, limits))
            except MemoryError as fault:
                middle = (first + last) // 2
                if last - first <= _LEAST_ROWS:
                    raise InputError(
                        f"{self.device.name} has no memory for {last - first} rows: {fault}",
                        hint="leave the device out, or free its memory",
                    ) from None
                self.device.rows = max(_LEAST_ROWS, (last - first) // 2)
                todo += [(middle, last), (first, middle)]
        return parts

    def _product(
        self, low: int, first: int, rows: NDArray[Any], usable: NDArray[np.bool_], limits: Any
    ) -> Survivors:
        last = first + len(rows)
        scores = self.left @ self.device.put(rows).T
        passing = scores >= limits[:, None]
        if not usable[first:last].all():
            passing &= self.device.put(usable[first:last])[None]
        work = self.work
        if work.search.filter is not None:
            start = work.start + low
            mask = work.search.filter.mask(work.numbers, start + first, start + last)
            passing &= self.device.put(mask)
        self.held += int(self.device.torch.count_nonzero(passing))
        if self.held > work.most:
            raise TooMany
        query, row = passing.nonzero(as_tuple=True)
        return Survivors(
            query.cpu().numpy().astype(np.uint16),
            row.cpu().numpy().astype(np.int64) + (low + first),
            scores[query, row].cpu().numpy(),
        )
