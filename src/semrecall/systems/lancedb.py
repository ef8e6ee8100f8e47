"""LanceDB: tables with vectors, in files."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import (
    InputError,
    MismatchError,
    SemrecallError,
    SemrecallWarning,
    SystemFault,
)
from semrecall.registry import import_extra
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob, Stage
from semrecall.systems.collection import Collection, CollectionSystem, by_filter, one_of, turnable
from semrecall.systems.connection import Session, own_folder, plain_error, remove_folder
from semrecall.systems.stored import answer, stored_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["LancedbSystem"]

_METRICS = {"ip": "dot", "cosine": "cosine", "l2": "l2"}
#: Queries of one request.
_AT_ONCE = 256

_PARTITIONS = Knob("num_partitions", "build", 1, 65_536, None, "lists", "log")
_PARTS = Knob("num_sub_vectors", "build", 1, 4096, None, "parts of a vector, one code each", "log")
_LINKS = Knob("m", "build", 4, 128, 20, "links of a vector", "log")
_EF_CONSTRUCTION = Knob(
    "ef_construction", "build", 8, 4096, 300, "length of the candidate list while linking", "log"
)
_NPROBES = Knob("nprobes", "search", 1, 65_536, None, "lists visited", "log")
_EF = Knob("ef", "search", 1, 65_536, None, "length of the candidate list; at least k is sent",
           "log", from_k=True)  # fmt: skip
_REFINE = Knob("refine_factor", "search", 1, 1000, None,
               "candidates per result that are scored again by their vectors", "log")  # fmt: skip

#: For each index: what LanceDB calls its configuration, and what can be turned.
_INDEXES: dict[str, tuple[str, tuple[Knob, ...]]] = {
    "IVF_FLAT": ("IvfFlat", (_PARTITIONS, _NPROBES)),
    "IVF_SQ": ("IvfSq", (_PARTITIONS, _NPROBES, _REFINE)),
    "IVF_PQ": ("IvfPq", (_PARTITIONS, _PARTS, _NPROBES, _REFINE)),
    "IVF_RQ": ("IvfRq", (_PARTITIONS, _NPROBES, _REFINE)),
    "IVF_HNSW_FLAT": (
        "HnswFlat",
        (_PARTITIONS, _LINKS, _EF_CONSTRUCTION, _NPROBES, _EF, _REFINE),
    ),
    "IVF_HNSW_SQ": ("HnswSq", (_PARTITIONS, _LINKS, _EF_CONSTRUCTION, _NPROBES, _EF, _REFINE)),
    "IVF_HNSW_PQ": (
        "HnswPq",
        (_PARTITIONS, _PARTS, _LINKS, _EF_CONSTRUCTION, _NPROBES, _EF, _REFINE),
    ),
    "NONE": ("", ()),
}


class LancedbSystem(CollectionSystem):
    """A table of LanceDB with a column of vectors.

    Scores of an index that compares codes are those of codes, so there are none, unless
    refine_factor has the vectors compared in the end.
    """

    engine = "lancedb"
    noun = "table"
    options: ClassVar = {
        "path": "folder of the database: lancedb?path=folder&table=docs",
        "table": "the table of the vectors",
        "vector": "its column of vectors; the only one when left out",
        "id": "its column of ids; id when left out",
        "index": "of a new table: " + ", ".join(_INDEXES) + "; IVF_PQ when left out",
        "space": "ip, cosine or l2, where no index says it",
        "replace": CollectionSystem.options["replace"].replace("collection", "table"),
        "timeout": CollectionSystem.options["timeout"],
    }

    def __init__(
        self,
        path: str | Path | None = None,
        table: str | None = None,
        vector: str | None = None,
        id: str = "id",  # noqa: A002 - the name of the option
        index: str = "IVF_PQ",
        space: str | Space | None = None,
        replace: str | bool = False,
        timeout: str | float = 60.0,
    ) -> None:
        super().__init__(None, path, table, replace, timeout)
        self.vector, self.id = vector, id
        self.index = one_of(index, tuple(_INDEXES), "index")
        self.wanted_space = None if space is None else space_of(space)
        _lancedb()

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs of the index asked for, and the search knobs of the index there is."""
        facts = self._facts()
        there = () if facts is None else _INDEXES[facts.index][1]
        lists = None if facts is None else facts.details.get("partitions")
        return turnable(_INDEXES[self.index][1], there, nprobes=lists)

    @property
    def _place(self) -> str:
        return f"LanceDB in {self.path or 'a temporary folder'}"

    @property
    def _database(self) -> Any:
        if self._session is None:
            folder = own_folder() if self.path is None else None
            database = _lancedb().connect(str(self.path or folder))
            self._session = Session(database, _removed, folder)
        return self._session.client

    @contextmanager
    def _talking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except SemrecallError:
            raise
        except (ValueError, RuntimeError, OSError, TimeoutError) as error:
            text = f"{self._place} failed at {doing}: {plain_error(error)}"
            if isinstance(error, ValueError) and doing == "a search":
                raise InputError(text) from error
            raise SystemFault(text) from error

    # -- what there is --------------------------------------------------------------------

    def _names(self) -> Sequence[str]:
        if self.path is not None and not self.path.is_dir():
            return []
        with self._talking("a look at its tables"):
            names: list[str] = []
            page = None
            while True:
                told = self._database.list_tables(page_token=page)
                names += told.tables
                page = told.page_token
                if page is None:
                    return names

    def _look(self) -> Collection | None:
        name = str(self.collection)
        if name not in self._names():
            return None
        with self._talking(f"a look at the table {name!r}"):
            table = self._database.open_table(name)
            column, dimension, integers = self._columns(name, table.schema)
            index = next((i for i in table.list_indices() if i.columns == [column]), None)
            stats = None if index is None else table.index_stats(index.name)
            rows = table.count_rows(f"{column} IS NOT NULL")
            lists = None if index is None else _partitions(table, column, dimension, stats)
        kind = "NONE" if stats is None else one_of(stats.index_type, tuple(_INDEXES), "its index")
        details = {} if index is None else _plain(index.index_details)
        if lists is not None:
            details = {**details, "partitions": lists}
        unindexed = rows if stats is None else int(stats.num_unindexed_rows)
        if unindexed and stats is not None:
            warnings.warn(
                f"{unindexed:,} of {rows:,} rows of {name!r} are not indexed; LanceDB compares "
                "these exactly",
                SemrecallWarning,
                stacklevel=4,
            )
        return Collection(
            name,
            column,
            self.id,
            dimension,
            self._geometry(name, None if stats is None else str(stats.distance_type)),
            rows,
            integer_ids=integers,
            index=kind,
            exact=stats is None,
            scores=kind in ("NONE", "IVF_FLAT", "IVF_HNSW_FLAT"),
            details={"version": _lancedb().__version__, "unindexed_rows": unindexed, **details},
        )

    def _columns(self, name: str, schema: Any) -> tuple[str, int, bool]:
        """The column of vectors, its dimensions, and whether ids are integers."""
        import pyarrow as pa

        there = {
            field.name: field.type.list_size
            for field in schema
            if pa.types.is_fixed_size_list(field.type)
            and pa.types.is_floating(field.type.value_type)
        }
        column = self.vector or (next(iter(there)) if len(there) == 1 else None)
        if column not in there:
            listed = ", ".join(there) or "none"
            raise InputError(
                f"the table {name!r} has {'no' if self.vector else 'not one'} column of vectors"
                f"{f' {self.vector!r}' if self.vector else ''}; it has {listed}",
                hint="name one with vector=NAME" if there else None,
            )
        if self.id not in schema.names:
            raise InputError(
                f"the table {name!r} has no column {self.id!r} of ids",
                hint=f"name one with id=NAME: {', '.join(n for n in schema.names if n != column)}",
            )
        return str(column), there[column], pa.types.is_integer(schema.field(self.id).type)

    def _geometry(self, name: str, told: str | None) -> Space:
        if told is None:
            if self.wanted_space is None:
                raise InputError(
                    f"the table {name!r} has no index, which would say its space",
                    hint="say it in the spec: space=ip, cosine or l2",
                )
            return self.wanted_space
        for space, metric in _METRICS.items():
            if metric == told.lower():
                if self.wanted_space not in (None, space_of(space)):
                    raise MismatchError(
                        f"the index of {name!r} compares by {told}; found space "
                        f"{self.wanted_space}, for which LanceDB would leave it out",
                    )
                return space_of(space)
        raise InputError(f"the index of {name!r} compares by {told}; expected dot, cosine or l2")

    # -- made -----------------------------------------------------------------------------

    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        import pyarrow as pa

        self.wanted_space = space
        table, column = None, self.vector or "vector"
        for ids, block in stored_blocks(base, space):
            if not len(block):
                continue
            values = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), base.dimension)
            rows = pa.table({self.id: pa.array(ids), column: values})
            if table is None:
                table = self._database.create_table(self.collection, rows)
                self._begun = True
            else:
                table.add(rows)
        if table is None:
            raise InputError("the base holds no vector that can be searched")
        if self.index != "NONE":
            kinds = import_extra("lancedb.index", "lancedb", "the system 'lancedb'")
            kind, given = self._built_with(space, knobs)
            table.create_index(column, config=getattr(kinds, kind)(**given))

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._database.drop_table, self.collection, ignore_missing=True)

    def _built_with(self, space: Space, knobs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """What LanceDB calls the configuration of an index, and what it is made with."""
        kind, turned = _INDEXES[self.index]
        given = {k.name: k.default for k in turned if k.kind == "build" and k.default is not None}
        return kind, {"distance_type": _METRICS[space.name], **given, **knobs}

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python, for lancedb."""
        facts = self._held()
        kind, given = self._built_with(facts.space, knobs)
        written = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f'table.create_index("{facts.vector}", config=lancedb.index.{kind}({written}))'

    # -- searched -------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k) and scores. filters: SQL conditions, which hold before the search."""
        facts, wanted = self._held(), self.turned("search", settings)
        ids, scores = self._search(queries, k, wanted, filters)
        return ids, scores if facts.scores or "refine_factor" in wanted else None

    def exact(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **given: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Every vector compared by LanceDB itself (bypass_vector_index)."""
        self.turned("search", given)
        return self._search(queries, k, {"bypass_vector_index": None}, filters)

    def _search(
        self,
        queries: NDArray[np.float32],
        k: int,
        wanted: Mapping[str, Any],
        filters: Sequence[Any] | None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        matrix, facts = self._asked(queries, k), self._held()
        found: list[Any] = [((), ())] * len(matrix)
        with self._talking("a search"):
            table = self._database.open_table(facts.name)
            for text, part in by_filter(filters, len(matrix), _AT_ONCE):
                asked = self._query(table, facts, matrix[part], k, wanted, text)
                told = asked.to_arrow(timeout=timedelta(seconds=self.timeout))
                for row, ids, distances in _by_query(told, facts.id, len(part)):
                    found[part[row]] = (ids, _scores(distances, facts.space))
        return answer(found, facts.space, integer_ids=facts.integer_ids)

    def _query(
        self,
        table: Any,
        facts: Collection,
        matrix: NDArray[np.float32],
        k: int,
        wanted: Mapping[str, Any],
        text: str | None,
    ) -> Any:
        # A search by another metric than that of the index would be exact, silently.
        asked = table.search(
            matrix if len(matrix) > 1 else matrix[0], vector_column_name=facts.vector
        )
        asked = asked.distance_type(_METRICS[facts.space.name]).limit(k)
        asked = asked.select([facts.id, "_distance"])
        if text is not None:
            asked = asked.where(text, prefilter=True)
        # LanceDB refuses a list shorter than the candidates it is to hand on.
        least = int(np.ceil(k * wanted.get("refine_factor", 1)))
        for name, value in wanted.items():
            sent = max(value, least) if name == "ef" else value
            asked = getattr(asked, name)(*(() if sent is None else (sent,)))
        return asked

    def count(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Counters:
        """Vectors compared, as `analyze_plan` tells them: to three digits from 1,000 on."""
        matrix, facts = self._asked(queries, k), self._held()
        wanted, full = self.turned("search", settings), 4.0 * facts.dimension
        counts = np.zeros((len(matrix), 3))
        with self._talking("a search"):
            table = self._database.open_table(facts.name)
            for text, row in by_filter(filters, len(matrix), 1):
                asked = self._query(table, facts, matrix[row], k, wanted, text)
                counts[row] = _told(asked.analyze_plan())
        stages = {"coarse": Stage(counts[:, 0], full)} if facts.index != "NONE" else {}
        if facts.index != "NONE":
            name = "graph" if "HNSW" in facts.index else "codes"
            stages[name] = Stage(counts[:, 1], _bytes_of_code(facts))
        if counts[:, 2].any():
            stages["refine" if stages else "scan"] = Stage(counts[:, 2], full)
        return Counters(stages)

    def _pages(self, *, vectors: bool) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        """Bit for bit; rows without a vector are left out."""
        facts = self._held()
        kind: Any = np.int64 if facts.integer_ids else np.dtypes.StringDType()
        with self._talking("reading its vectors"):
            asked = (
                self._database.open_table(facts.name).search().where(f"{facts.vector} IS NOT NULL")
            )
            asked = asked.select([facts.id, facts.vector] if vectors else [facts.id])
            for batch in asked.to_batches(4096):
                ids = batch.column(facts.id).to_pylist()
                block = np.empty((len(ids), 0), dtype=np.float32)
                if vectors:
                    flat = batch.column(facts.vector).flatten().to_numpy(zero_copy_only=False)
                    block = flat.reshape(len(ids), facts.dimension)
                named = ids if facts.integer_ids else [str(i) for i in ids]
                if len(ids):
                    yield np.array(named, dtype=kind), block

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python, for lancedb."""
        facts = self._held()
        calls = "".join(f".{name}({value})" for name, value in settings.items())
        metric = _METRICS[facts.space.name]
        return (
            f'table.search(vector, vector_column_name="{facts.vector}")'
            f'.distance_type("{metric}"){calls}.limit(k)'
        )


def _lancedb() -> Any:
    # Its log tells on stderr what is no news, e.g. that a new table did not exist before.
    os.environ.setdefault("LANCE_LOG", "error")
    return import_extra("lancedb", "lancedb", "the system 'lancedb'")


def _scores(distances: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    """LanceDB tells l2 squared, and one less the similarity."""
    if space.name == "l2":
        return np.sqrt(np.maximum(distances, 0))
    return 1 - distances


def _by_query(told: Any, key: str, n: int) -> Iterator[tuple[int, list[Any], NDArray[np.float64]]]:
    """Ids and distances of each query that has results."""
    ids = told.column(key).to_pylist()
    distances = told.column("_distance").to_numpy().astype(np.float64)
    if n == 1:
        yield 0, ids, distances
        return
    rows = told.column("query_index").to_numpy()
    for row in np.unique(rows):
        at = np.flatnonzero(rows == row)
        yield int(row), [ids[i] for i in at], distances[at]


def _partitions(table: Any, column: str, dimension: int, stats: Any) -> int | None:
    """How many lists an index has, which nothing but a plan tells; None where it does not."""
    asked = table.search(np.ones(dimension, dtype=np.float32), vector_column_name=column)
    plan = asked.distance_type(str(stats.distance_type).lower()).nprobes(1).limit(1).analyze_plan()
    # Only of one index, and below 1,000, is the number whole.
    ranked = re.findall(r"partitions_ranked=(\d+)[,\]]", plan)
    return int(ranked[0]) if len(ranked) == 1 else None


def _told(plan: str) -> tuple[float, float, float]:
    """Centroids, indexed vectors and full vectors compared, as a plan tells them."""
    full = re.findall(r"KNNVectorDistance:.*?output_rows=([\d.]+ ?[KMB]?)", plan)
    ranked = re.findall(r"partitions_ranked=([\d.]+ ?[KMB]?)", plan)
    compared = re.findall(r"index_comparisons=([\d.]+ ?[KMB]?)", plan)
    return _sum(ranked), _sum(compared), _sum(full)


def _sum(texts: Sequence[str]) -> float:
    sizes = {"K": 1e3, "M": 1e6, "B": 1e9}
    return sum(float(t.rstrip(" KMB")) * sizes.get(t[-1], 1.0) for t in texts)


def _bytes_of_code(facts: Collection) -> float:
    """Bytes of one indexed vector."""
    bits = facts.details.get("num_bits", 8)
    if "num_sub_vectors" in facts.details:
        return float(np.ceil(facts.details["num_sub_vectors"] * bits / 8))
    return 4.0 * facts.dimension if facts.scores else float(np.ceil(facts.dimension * bits / 8))


def _plain(details: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an index was built with."""
    told = details or {}
    return {**told.get("hnsw", {}), **told.get("compression", {})}


def _removed(folder: Path | None) -> None:
    if folder is not None:
        remove_folder(folder)
