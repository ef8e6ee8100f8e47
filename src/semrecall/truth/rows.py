"""What is kept beside a truth: a hash of each row of its base, and the rows its filters allowed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Vectors
from semrecall.data.allowed import RowSet
from semrecall.data.ids import codes_in, ids, unify
from semrecall.data.multivectors import MultiVectors
from semrecall.errors import FormatError, MismatchError
from semrecall.exact.filters import Filter
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
    """What became of the rows of an older base.

    fresh (n,): rows that are new or changed. places (n,): where each row was before, -1 where it
    is new; None where that is not known.
    """

    fresh: NDArray[np.bool_]
    inserted: int
    changed: int
    deleted: int
    places: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, at: NDArray[np.int64], fresh: NDArray[np.bool_], before: int) -> Changes:
        """From the places that rows had before (see `places_before`), among so many."""
        known = at >= 0
        count = int(known.sum())
        return cls(fresh, len(at) - count, int((fresh & known).sum()), before - count, at)


@dataclass(frozen=True, eq=False)
class RowHashes:
    """A hash of 16 bytes for each row of a base, (n,), and the ids; None: row numbers are the ids.

    queries (m,): those of the queries of a truth, in its order, where they are kept, too.
    filter: the rows that each of these queries was allowed; None where the truth had no filter.

    Equal hashes mean equal bytes: chance makes two different rows equal once in 2^128.
    """

    hashes: NDArray[np.void]
    ids: Ids | None = None
    queries: NDArray[np.void] | None = None
    filter: Filter | None = None

    @classmethod
    def of(cls, base: Vectors | MultiVectors) -> RowHashes:
        """Those of all rows, or of all documents, read once."""
        growing = Growing()
        if isinstance(base, MultiVectors):
            for _, documents in base.blocks(_BLOCK, _BLOCK):
                growing.add_documents(documents)
        else:
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
        own_ids = ids(table.column("id")) if "id" in table.column_names else None
        return cls(hashes, own_ids, queries, _filter_in(table, own))

    def write(self, path: Path | str) -> None:
        """As parquet: `hash`, `id` where the rows have ids, `allowed` where there are filters."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {} if self.ids is None else {"id": self.ids.to_arrow()}
        kind = pa.binary(_BYTES)
        packed = pa.py_buffer(np.ascontiguousarray(self.hashes))
        columns["hash"] = pa.Array.from_buffers(kind, len(self.hashes), [None, packed])
        queries = base64.b64encode(b"" if self.queries is None else self.queries.tobytes())
        own = {"noun": "row hashes", "version": 1, "queries": queries.decode()}
        if self.filter is not None:
            which = base64.b64encode(self.filter.which.astype("<i8").tobytes())
            own |= {"filters": which.decode(), "sets": len(self.filter.sets)}
            columns["allowed"] = _packed(self.filter)
        described = {_KEY: json.dumps(own).encode()}
        with writing(path) as temporary:
            pq.write_table(
                pa.table(columns).replace_schema_metadata(described), temporary,
                compression={name: "zstd" if name == "allowed" else "none" for name in columns},
                use_dictionary=False,
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
        if self.filter is not None:
            # A run of some queries of a truth does not know the hash.
            remembered = (identity.get("filter") or {}).get("fingerprint", "")
            right &= remembered in ("", self.filter.fingerprint)
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


def _packed(kept: Filter) -> Any:
    """The sets of a filter as a column: their bits, one set after another, cut to its length."""
    import pyarrow as pa

    parts = [np.packbits(rows.mask(0, kept.n)) for rows in kept.sets]
    bits = np.concatenate([np.empty(0, dtype=np.uint8), *parts])
    width = max(1, -(-len(bits) // max(1, kept.n)))
    filled = np.zeros(width * kept.n, dtype=np.uint8)
    filled[: len(bits)] = bits
    return pa.Array.from_buffers(pa.binary(width), kept.n, [None, pa.py_buffer(filled)])


def _filter_in(table: Any, own: Mapping[str, Any]) -> Filter | None:
    """The filter whose sets are in a table that `RowHashes.write` wrote; None if there is none."""
    if "filters" not in own:
        return None
    n, column = len(table), table.column("allowed").combine_chunks()
    size = -(-n // 8)
    bits = np.frombuffer(column.buffers()[1] if n else b"", np.uint8)
    bits = bits[column.offset * column.type.byte_width :]
    sets = [RowSet.of_bits(n, bits[at * size : (at + 1) * size]) for at in range(own["sets"])]
    which = np.frombuffer(base64.b64decode(own["filters"]), "<i8").astype(np.int64)
    return Filter(n, tuple(sets), which)


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

    def add_documents(self, documents: MultiVectors) -> None:
        """The next documents: one hash for all vectors of each."""
        kind = documents.dtype.newbyteorder("<")
        rows = np.ascontiguousarray(documents.matrix.astype(kind, copy=False))
        each = (rows[low:high].data for low, high in pairwise(documents.offsets.tolist()))
        self._parts.append(
            b"".join(hashlib.blake2b(data, digest_size=_BYTES).digest() for data in each)
        )

    def finished(self, given_ids: Ids | None) -> RowHashes:
        """All of them."""
        return RowHashes(np.frombuffer(b"".join(self._parts), _KIND), given_ids)


def beside(truth: Path | str) -> Path:
    """Where the row hashes of a truth are kept: truth.rows.parquet beside truth.parquet."""
    path = Path(truth)
    return path.with_name(f"{path.name.removesuffix(path.suffix)}.rows.parquet")
