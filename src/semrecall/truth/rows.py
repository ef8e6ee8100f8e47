"""Row hashes: what tells, row by row, whether a vector of a base is still the same."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.ids import codes_in, ids, unify
from semrecall.errors import FormatError, MismatchError
from semrecall.formats.files import writing

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Changes", "Growing", "RowHashes", "beside", "places_before"]

_BYTES = 16
_KIND = np.dtype((np.void, _BYTES))
_KEY = b"semrecall"
_BLOCK = 4096


@dataclass(frozen=True)
class Changes:
    """What became of the n rows of an older base. fresh (n,): rows that are new or changed."""

    fresh: NDArray[np.bool_]
    inserted: int
    changed: int
    deleted: int

    @classmethod
    def of(cls, at: NDArray[np.int64], fresh: NDArray[np.bool_], before: int) -> Changes:
        """From the places that rows had before (see `places_before`), among so many."""
        known = at >= 0
        count = int(known.sum())
        return cls(fresh, len(at) - count, int((fresh & known).sum()), before - count)


@dataclass(frozen=True, eq=False)
class RowHashes:
    """A hash of 16 bytes for each row of a base, (n,), and the ids; None: row numbers are the ids.

    queries (m,): those of the queries of a truth, in its order, where they are kept, too.

    Equal hashes mean equal bytes: chance makes two different rows equal once in 2^128.
    """

    hashes: NDArray[np.void]
    ids: Ids | None = None
    queries: NDArray[np.void] | None = None

    @classmethod
    def of(cls, base: Vectors) -> RowHashes:
        """Those of all rows, read once."""
        growing = Growing()
        for _, block in base.blocks(_BLOCK):
            growing.add(block)
        return growing.finished(base.given_ids)

    @classmethod
    def read(cls, path: Path | str) -> RowHashes:
        """From a file that `write` wrote; FormatError for another."""
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise FormatError(f"{path}: no parquet file: {error}") from error
        own = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
        if own.get("noun") != "row hashes":
            raise FormatError(
                f"{path}: holds no row hashes", hint="semrecall truth --keep-rows writes them"
            )
        column = table.column("hash").combine_chunks()
        flat = column.buffers()[1] if len(column) else b""
        hashes = np.frombuffer(flat, _KIND, len(column), column.offset * _BYTES)
        queries = np.frombuffer(base64.b64decode(own["queries"]), _KIND)
        return cls(hashes, ids(table.column("id")) if "id" in table.column_names else None, queries)

    def write(self, path: Path | str) -> None:
        """As parquet: a column `hash`, and `id` where the rows have ids."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {} if self.ids is None else {"id": self.ids.to_arrow()}
        kind = pa.binary(_BYTES)
        packed = pa.py_buffer(np.ascontiguousarray(self.hashes))
        columns["hash"] = pa.Array.from_buffers(kind, len(self.hashes), [None, packed])
        queries = base64.b64encode(b"" if self.queries is None else self.queries.tobytes())
        own = {"noun": "row hashes", "version": 1, "queries": queries.decode()}
        described = {_KEY: json.dumps(own).encode()}
        with writing(path) as temporary:
            pq.write_table(
                pa.table(columns).replace_schema_metadata(described), temporary,
                compression="none", use_dictionary=False,
            )  # fmt: skip

    @property
    def digest(self) -> str:
        """A hash of all rows of the base and their ids, in order."""
        whole = hashlib.sha256(f"{len(self.hashes)} ".encode() + self.hashes.tobytes())
        if self.ids is not None:
            for text in self.ids.strings().tolist():
                whole.update(text.encode() + b"\0")
        return whole.hexdigest()[:32]

    @property
    def queries_digest(self) -> str:
        """A hash of the hashes of the queries."""
        kept = b"" if self.queries is None else self.queries.tobytes()
        return hashlib.sha256(kept).hexdigest()[:32]

    def check(self, identity: Mapping[str, Any], what: str, *, sampled: bool) -> None:
        """Raise MismatchError where a truth of this identity was made from other rows.

        sampled: a truth that does not know its row hashes is taken on its number of rows.
        """
        rows, known = identity["base"]["rows"], identity.get("row_hashes")
        right = known == self.digest or (known is None and sampled)
        if self.queries is not None:
            right &= identity["queries"].get("hashes") == self.queries_digest
        if len(self.hashes) != rows or not right:
            found = f"{len(self.hashes):,} rows" if len(self.hashes) != rows else "other rows"
            raise MismatchError(
                f"{what} has {found}; the truth was made from {rows:,}",
                hint="give the base, or the row hashes, that the truth to update was made with",
            )

    def changes(self, now: RowHashes) -> Changes:
        """What became of these rows in a newer base; rows are known by their ids."""
        at = places_before(self.ids, now.ids, len(self.hashes), len(now.hashes))
        known = np.flatnonzero(at >= 0)
        fresh = np.ones(len(at), dtype=bool)
        fresh[known] = self.hashes[at[known]] != now.hashes[known]
        return Changes.of(at, fresh, len(self.hashes))


def places_before(
    old: Ids | None, new: Ids | None, old_rows: int, new_rows: int
) -> NDArray[np.int64]:
    """The place (new_rows,) that each row of a base had in an older one; -1 where it is new.

    old, new: their ids, None where rows go by number. Raises MismatchError where only one has ids.
    """
    if (old is None) != (new is None):
        named, bare = ("new", "old") if old is None else ("old", "new")
        raise MismatchError(
            f"the {named} base has ids, the {bare} one has none: its rows go by number",
            hint="give both their ids, or neither",
        )
    if old is None or new is None:
        at = np.arange(new_rows)
        at[old_rows:] = -1
        return at
    return codes_in(*unify(new, old))


@dataclass
class Growing:
    """Hashes of rows that go by in blocks."""

    _parts: list[bytes] = field(default_factory=list)

    def add(self, block: NDArray[Any]) -> None:
        """The next rows."""
        rows = np.ascontiguousarray(block.astype(block.dtype.newbyteorder("<"), copy=False))
        self._parts.append(
            b"".join(hashlib.blake2b(row, digest_size=_BYTES).digest() for row in rows)
        )

    def finished(self, given_ids: Ids | None) -> RowHashes:
        """All of them."""
        return RowHashes(np.frombuffer(b"".join(self._parts), _KIND), given_ids)


def beside(truth: Path | str) -> Path:
    """Where the row hashes of a truth are kept: truth.rows.parquet beside truth.parquet."""
    path = Path(truth)
    return path.with_name(f"{path.name.removesuffix(path.suffix)}.rows.parquet")
