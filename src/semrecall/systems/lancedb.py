"""LanceDB: tables with vectors, in files."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import (
    InputError,
    MismatchError,
    SemrecallWarning,
)
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob, Stage
from semrecall.systems.collection import (
    Asked,
    Asker,
    Collection,
    CollectionSystem,
    Found,
    Recipe,
    built_with,
    by_filter,
    one_of,
    only_one,
    turnable,
)
from semrecall.systems.connection import Session, own_folder, remove_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["LancedbSystem"]

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

_GRAPH_BUILD, _GRAPH_SEARCH = (_LINKS, _EF_CONSTRUCTION), (_NPROBES, _EF, _REFINE)

#: For each index: what LanceDB calls its configuration, and what can be turned.
_INDEXES: dict[str, tuple[str, tuple[Knob, ...]]] = {
    "IVF_FLAT": ("IvfFlat", (_PARTITIONS, _NPROBES)),
    "IVF_SQ": ("IvfSq", (_PARTITIONS, _NPROBES, _REFINE)),
    "IVF_PQ": ("IvfPq", (_PARTITIONS, _PARTS, _NPROBES, _REFINE)),
    "IVF_RQ": ("IvfRq", (_PARTITIONS, _NPROBES, _REFINE)),
    "IVF_HNSW_FLAT": ("HnswFlat", (_PARTITIONS, *_GRAPH_BUILD, *_GRAPH_SEARCH)),
    "IVF_HNSW_SQ": ("HnswSq", (_PARTITIONS, *_GRAPH_BUILD, *_GRAPH_SEARCH)),
    "IVF_HNSW_PQ": ("HnswPq", (_PARTITIONS, _PARTS, *_GRAPH_BUILD, *_GRAPH_SEARCH)),
    "NONE": ("", ()),
}
#: Those whose scores are of the vectors, not of codes.
_TRUE_SCORES = ("NONE", "IVF_FLAT", "IVF_HNSW_FLAT")


class LancedbSystem(CollectionSystem):
    """A table of LanceDB with a column of vectors.

    Scores of an index that compares codes are those of codes, so there are none, unless
    refine_factor has the vectors compared in the end.
    """

    engine = module = "lancedb"
    title, noun = "LanceDB", "table"
    metrics: ClassVar = {"dot": "ip-distance", "cosine": "cosine-distance", "l2": "squared-l2"}
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
        vector: str | None = None,
        id: str = "id",  # noqa: A002 - the name of the option
        index: str = "IVF_PQ",
        space: str | Space | None = None,
        **options: Any,
    ) -> None:
        # Its log tells on stderr what is no news, e.g. that a new table did not exist before.
        os.environ.setdefault("LANCE_LOG", "error")
        super().__init__(**options)
        self.vector, self.id = vector, id
        self.index = one_of(index, tuple(_INDEXES), "index")
        self.wanted_space = None if space is None else space_of(space)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Build knobs of the index asked for, and the search knobs of the index there is."""
        facts = self._facts()
        there = () if facts is None else _INDEXES[facts.index][1]
        lists = None if facts is None else facts.details.get("partitions")
        return turnable(_INDEXES[self.index][1], there, nprobes=lists)

    def _open(self) -> Session:
        folder = own_folder() if self.path is None else None
        return Session(self._library.connect(str(self.path or folder)), remove_folder, folder)

    def _failures(self) -> tuple[type[BaseException], ...]:
        return (ValueError, RuntimeError, OSError, TimeoutError)

    def _asked_wrongly(self, error: Any, said: str, doing: str) -> bool:
        return isinstance(error, ValueError) and doing == "a search"

    # -- what there is --------------------------------------------------------------------

    def _names(self) -> Sequence[str]:
        if self.path is not None and not self.path.is_dir():
            return []
        told = self._client.list_tables()
        names = list(told.tables)
        while told.page_token is not None:
            told = self._client.list_tables(page_token=told.page_token)
            names += told.tables
        return names

    def _look(self, name: str) -> Collection | None:
        if name not in self._names():
            return None
        table = self._client.open_table(name)
        column, dimension, integers = self._columns(name, table.schema)
        rows = table.count_rows(f"{column} IS NOT NULL")
        kind, told, details, unindexed = "NONE", None, {}, rows
        index = next((i for i in table.list_indices() if i.columns == [column]), None)
        if index is not None:
            stats = table.index_stats(index.name)
            kind, told = one_of(stats.index_type, tuple(_INDEXES), "its index"), stats.distance_type
            details, unindexed = _built(index), int(stats.num_unindexed_rows)
            lists = _partitions(table, column, dimension, stats)
            details |= {} if lists is None else {"partitions": lists}
            if unindexed:
                warnings.warn(
                    f"{unindexed:,} of {rows:,} rows of {name!r} are not indexed; LanceDB "
                    "compares these exactly",
                    SemrecallWarning,
                    stacklevel=4,
                )
        return Collection(
            name,
            column,
            self.id,
            dimension,
            self._geometry(name, told),
            rows,
            integer_ids=integers,
            index=kind,
            exact=index is None,
            scores=kind in _TRUE_SCORES,
            details={"version": self._library.__version__, "unindexed_rows": unindexed, **details},
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
        table = f"the table {name!r}"
        column = only_one(self.vector, there, table, "column of vectors", "vector")
        others = [other for other in schema.names if other != column]
        key = only_one(self.id, others, table, "column of ids", "id")
        return column, there[column], pa.types.is_integer(schema.field(key).type)

    def _geometry(self, name: str, told: str | None) -> Space:
        if told is not None:
            space = self._space_told(told, f"the index of {name!r}")
            if self.wanted_space not in (None, space):
                raise MismatchError(
                    f"the index of {name!r} compares by {told}; found space {self.wanted_space}, "
                    "for which LanceDB would leave it out",
                )
            return space
        if self.wanted_space is None:
            raise InputError(
                f"the table {name!r} has no index, which would say its space",
                hint="say it in the spec: space=ip, cosine or l2",
            )
        return self.wanted_space

    # -- made -----------------------------------------------------------------------------

    def _create(self, recipe: Recipe) -> None:
        import pyarrow as pa

        self.wanted_space, self.vector = recipe.space, self.vector or "vector"
        kind = pa.int64() if recipe.integers else pa.string()
        vectors = pa.list_(pa.float32(), recipe.dimension)
        schema = pa.schema([(self.id, kind), (self.vector, vectors)])
        self._client.create_table(self.collection, schema=schema)

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        import pyarrow as pa

        values = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), block.shape[1])
        rows = pa.table({self.id: pa.array(ids), self.vector: values})
        self._client.open_table(self.collection).add(rows)

    def _finish(self, recipe: Recipe) -> None:
        if self.index != "NONE":
            kinds = self._import("lancedb.index")
            kind, given = self._built_with(recipe.space, recipe.knobs)
            table = self._client.open_table(self.collection)
            table.create_index(self.vector, config=getattr(kinds, kind)(**given))

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.drop_table, self.collection, ignore_missing=True)

    def _built_with(self, space: Space, knobs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """What LanceDB calls the configuration of an index, and what it is made with."""
        kind, turned = _INDEXES[self.index]
        return kind, {"distance_type": self._metric(space), **built_with(turned, knobs)}

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python, for lancedb."""
        kind, given = self._built_with(self.space, knobs)
        written = ", ".join(f"{name}={value!r}" for name, value in given.items())
        vector = self._held().vector
        return f'table.create_index("{vector}", config=lancedb.index.{kind}({written}))'

    # -- searched -------------------------------------------------------------------------

    def _scored(self, wanted: Mapping[str, Any]) -> bool:
        return self._held().scores or "refine_factor" in wanted

    def _asker(self, asked: Asked) -> Asker:
        """Filters are SQL conditions, which hold before the search."""
        query, key = self._query(asked), self._held().id
        seconds = timedelta(seconds=self.timeout)

        def ask(matrix: NDArray[np.float32], given: Any) -> Sequence[Found]:
            told = query(matrix, given).to_arrow(timeout=seconds)
            ids = np.array(told.column(key).to_pylist(), dtype=object)
            distances = told.column("_distance").to_numpy()
            if len(matrix) == 1:
                return [(ids, distances)]
            rows = told.column("query_index").to_numpy()
            return [(ids[rows == row], distances[rows == row]) for row in range(len(matrix))]

        return ask

    def _query(self, asked: Asked) -> Callable[[NDArray[np.float32], Any], Any]:
        """What makes a query of LanceDB of queries that share a filter."""
        facts, metric = self._held(), self._metric(self.space)
        table = self._client.open_table(facts.name)
        # LanceDB refuses a list shorter than the candidates it is to hand on.
        least = int(np.ceil(asked.k * (asked.wanted or {}).get("refine_factor", 1)))

        def query(matrix: NDArray[np.float32], given: Any) -> Any:
            vectors = matrix if len(matrix) > 1 else matrix[0]
            made = table.search(vectors, vector_column_name=facts.vector)
            # A search by another metric than that of the index would be exact, silently.
            made = made.distance_type(metric).limit(asked.k).select([facts.id, "_distance"])
            if given is not None:
                made = made.where(given, prefilter=True)
            if asked.wanted is None:
                return made.bypass_vector_index()
            for name, value in asked.wanted.items():
                made = getattr(made, name)(max(value, least) if name == "ef" else value)
            return made

        return query

    def _counted(self, asked: Asked) -> Counters:
        """Vectors compared, as `analyze_plan` tells them: to three digits from 1,000 on."""
        facts = self._held()
        full, counts = 4.0 * facts.dimension, np.zeros((len(asked.matrix), 3))
        query = self._query(asked)
        for given, row in by_filter(asked.filters, 1):
            counts[row] = _told(query(asked.matrix[row], given).analyze_plan())
        stages = {}
        if facts.index != "NONE":
            stages["coarse"] = Stage(counts[:, 0], full)
            name = "graph" if "HNSW" in facts.index else "codes"
            stages[name] = Stage(counts[:, 1], _bytes_of_code(facts))
        if counts[:, 2].any():
            stages["refine" if stages else "scan"] = Stage(counts[:, 2], full)
        return Counters(stages)

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[Any], NDArray[np.float32]]]:
        """Bit for bit; rows without a vector are left out."""
        facts = self._held()
        asked = self._client.open_table(facts.name).search().where(f"{facts.vector} IS NOT NULL")
        asked = asked.select([facts.id, facts.vector] if vectors else [facts.id])
        for batch in asked.to_batches(4096):
            flat = np.empty(0, dtype=np.float32)
            if vectors:
                flat = batch.column(facts.vector).flatten().to_numpy(zero_copy_only=False)
            width = facts.dimension if vectors else 0
            yield batch.column(facts.id).to_pylist(), flat.reshape(len(batch), width)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python, for lancedb."""
        facts = self._held()
        calls = "".join(f".{name}({value})" for name, value in settings.items())
        metric = self._metric(self.space)
        return (
            f'table.search(vector, vector_column_name="{facts.vector}")'
            f'.distance_type("{metric}"){calls}.limit(k)'
        )


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


def _built(index: Any) -> dict[str, Any]:
    """What an index was built with."""
    told = index.index_details or {}
    return {**told.get("hnsw", {}), **told.get("compression", {})}
