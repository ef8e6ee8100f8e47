"""A base in shards: which files, in which order, whose rows run on from one to the next."""

from __future__ import annotations

import bisect
import glob
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.ids import concatenate
from semrecall.data.ids import ids as as_ids
from semrecall.errors import FormatError, InputError, MismatchError
from semrecall.formats import read_ids
from semrecall.formats.remote import LocalFile, is_url, listed, shown, source
from semrecall.formats.shards import Shard, is_shard, open_shard, stored_type
from semrecall.systems import is_spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Shards", "natural"]

_HEADERS_AT_ONCE = 16


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts part-2 before part-10."""
    return [(int(p), p) if p.isdecimal() else (-1, p) for p in re.split(r"([0-9]+)", name)]


@dataclass(frozen=True)
class Shards:
    """Files of vectors as one base of `rows` rows; small, and without ids: it is sent around.

    starts: the number of the first row of each shard.
    """

    files: tuple[Shard, ...]
    starts: tuple[int, ...]
    rows: int
    dimension: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, base: Any, dataset: str | None = None) -> Shards | None:
        """The shards that a base names; None for one that is no file of a format with shards.

        base: a path, a URL, a pattern (*, ?, [], **), a directory, or a list of these. What a
        pattern or a directory names stands in natural order, a list in the order given.
        Raises FormatError and MismatchError naming the shard that does not fit the others.
        """
        if isinstance(base, str | Path):
            names = _named_by(str(base))
        elif isinstance(base, list | tuple) and base and isinstance(base[0], str | Path):
            names = [n for b in base for n in (_named_by(str(b)) or [str(b)])]
        else:
            names = None
        if names is None:
            return None
        name, times = Counter(names).most_common(1)[0]
        if times > 1:
            raise InputError(f"{shown(name)} is named twice among the shards of the base")
        with ThreadPoolExecutor(_HEADERS_AT_ONCE) as pool:
            files = tuple(pool.map(lambda name: open_shard(name, dataset), names))
        return cls._of_files(files)

    @classmethod
    def _of_files(cls, files: tuple[Shard, ...]) -> Shards:
        first = files[0]
        for shard in files[1:]:
            if shard.dimension != first.dimension:
                found = f"{shard.dimension} dimensions"
                expected = f"{first.dimension}"
            elif stored_type(shard) != stored_type(first):
                found, expected = str(stored_type(shard)), str(stored_type(first))
            else:
                continue
            raise MismatchError(
                f"{shard.source.name} has vectors of {found}; expected {expected}, as in "
                f"{first.source.name}",
                hint="all shards of a base have one dimension and one type",
            )
        counts = np.array([0, *(shard.rows for shard in files)]).cumsum().tolist()
        return cls(files, tuple(counts[:-1]), counts[-1], first.dimension, stored_type(first))

    @property
    def names(self) -> list[str]:
        """What messages call the files, in the order of their rows."""
        return [shard.source.name for shard in self.files]

    @property
    def versions(self) -> list[str]:
        """What differs where a file was written again."""
        return [shard.source.version for shard in self.files]

    def at(self, row: int) -> Shard:
        """The file that holds a row."""
        return self.files[bisect.bisect_right(self.starts, row) - 1]

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """The rows from start to stop, a few at a time, each byte read once."""
        for shard, first in zip(self.files, self.starts, strict=True):
            low, high = max(start - first, 0), min(stop - first, shard.rows)
            if low >= high:
                continue
            at = first + low
            for piece in shard.pieces(low, high):
                yield self._fitting(piece, shard, at)
                at += len(piece)
            if at != first + high:
                raise FormatError(
                    f"{shard.source.name}: ended after {at - first:,} rows; expected "
                    f"{shard.rows:,}; was it written meanwhile?"
                )

    def _fitting(self, piece: NDArray[Any], shard: Shard, row: int) -> NDArray[Any]:
        if piece.dtype == self.dtype and piece.dtype.isnative:
            return piece
        try:
            return Vectors.of(piece).require_matrix()
        except InputError as error:
            raise FormatError(
                f"{shard.source.name}: from row {row:,} on: {error.message}"
            ) from None

    def absolute(self) -> Shards:
        """The same files by absolute paths, for processes that run in another directory."""
        files: list[Any] = list(self.files)
        for number, shard in enumerate(files):
            if shard.source.local is not None:
                path = str(shard.source.local.absolute())
                files[number] = replace(shard, source=LocalFile(path))
        return replace(self, files=tuple(files))

    def ranges(self, rows: int) -> Iterator[tuple[int, int]]:
        """The base in stretches of about so many rows, none over two shards."""
        for shard, first in zip(self.files, self.starts, strict=True):
            cuts = range(0, shard.rows, rows) if shard.cuts is None else shard.cuts
            low = 0
            for cut in [*cuts, shard.rows]:
                if cut - low >= rows or (cut == shard.rows and cut > low):
                    yield first + low, first + cut
                    low = cut

    def vectors(self, ids: Any = None) -> Vectors:
        """The base as a stream; its ids are those given, else those in the shards.

        ids: a column of ids, or the path of a file of ids or a list of paths (one for all shards,
        or one for each). Raises MismatchError where their number differs.
        """
        return Vectors.from_blocks(_Rows(self), ids=self._ids(ids), length=self.rows)

    def _ids(self, given: Any) -> Ids | None:
        if isinstance(given, str | Path):
            given = _files_of_ids(str(given))
        if isinstance(given, list | tuple) and given and isinstance(given[0], Path):
            parts = [read_ids(path) for path in given]
            if len(parts) == len(self.files):
                for path, part, shard in zip(given, parts, self.files, strict=True):
                    if len(part) != shard.rows:
                        raise MismatchError(
                            f"{path} has {len(part):,} ids for {shard.rows:,} vectors in "
                            f"{shard.source.name}"
                        )
            return concatenate(parts)
        if given is not None:
            return as_ids(given)
        own = [shard.ids() for shard in self.files]
        with_ids = [part for part in own if part is not None]
        if with_ids and len(with_ids) < len(own):
            have, lack = (self.names[[p is None for p in own].index(b)] for b in (False, True))
            raise MismatchError(f"{have} has a column of ids, {lack} has none")
        return concatenate(with_ids) if with_ids else None


class _Rows:
    """The rows of shards as a stream that tells its type before anything is read."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def __iter__(self) -> Iterator[NDArray[Any]]:
        yield np.empty((0, self._shards.dimension), self._shards.dtype)
        yield from self._shards.pieces(0, self._shards.rows)


def _named_by(base: str) -> list[str] | None:
    """The files that one path, URL, pattern or directory names; None for what holds no shards."""
    if base.startswith("file://"):
        return _named_by(source(base).location)
    if is_url(base):
        return _at_url(base)
    path = Path(base)
    if path.is_dir():
        if any(path.glob("*train*.parquet")):
            return None  # a folder of VectorDBBench
        return _sorted(base, [str(p) for p in path.iterdir() if not p.name.startswith(".")])
    if path.exists():
        return [base] if is_shard(path.name) else None
    # The ? of a spec is none of a pattern.
    if is_spec(base):
        return None
    if glob.has_magic(base):
        return _sorted(base, [p for p in glob.glob(base, recursive=True) if Path(p).is_file()])
    raise FileNotFoundError(2, "no such file", base)


def _at_url(url: str) -> list[str] | None:
    scheme = url.partition("://")[0]
    web = scheme in ("http", "https")
    if is_spec(url) and scheme in _systems() and not (web and is_shard(shown(url))):
        return None if "*" not in shown(url) else _sorted(url, listed(url) or [])
    if is_shard(shown(url)) and "*" not in shown(url):
        return [url]
    found = listed(url)
    return [url] if found is None else _sorted(url, found)


def _systems() -> Iterable[str]:
    from semrecall.registry import system_entries

    return system_entries()


def _sorted(base: str, names: list[str]) -> list[str]:
    found = sorted((name for name in names if is_shard(shown(name))), key=natural)
    if not found:
        others = f"; {len(names):,} other files" if names else ""
        raise InputError(
            f"{shown(base)}: found no shard of vectors{others}",
            hint="shards are .npy, .fbin, .u8bin, .i8bin, .f16bin, .fvecs, .bvecs, .parquet, .hdf5",
        )
    return found


def _files_of_ids(given: str) -> Sequence[Path]:
    if not Path(given).exists() and glob.has_magic(given):
        found = [Path(p) for p in sorted(glob.glob(given, recursive=True), key=natural)]
        if found:
            return found
    return [Path(given)]
