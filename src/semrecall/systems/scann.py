"""ScaNN: partitions, compact codes, and candidates scored again."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.registry import import_extra
from semrecall.space import IP, Space
from semrecall.space import space as space_of
from semrecall.systems.base import Counters, Knob, Stage
from semrecall.systems.inprocess import (
    InProcessSystem,
    chosen,
    existing,
    only_for_saved,
)
from semrecall.systems.loading import refuse_after_usearch
from semrecall.systems.scann_lists import (
    Layout,
    Partitions,
    decoded,
    dimension_of,
    layout,
    read_partitions,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ScannSystem"]

_REORDER = {"float32": "FLOAT32", "bfloat16": "BFLOAT16", "int8": "INT8", "none": None}
_SCORING = {"lut16": "lut16", "lut256": "lut256", "exact": None}
#: Vectors found that are held at once, over all queries of a batch.
_FOUND_AT_ONCE = 1 << 26
_STDERR = threading.Lock()


class ScannSystem(InProcessSystem):
    """A ScaNN searcher.

    scoring: codes of 16 (lut16) or 256 values (lut256) of a few dimensions each, or the vectors
    themselves (exact). reorder: what candidates are scored again by. Scores are those of the
    reordering, else of the codes. Inside, vectors are row numbers. What a search costs is counted
    by replaying its partitions.
    """

    options: ClassVar = {
        "scoring": "what is compared in the partitions: " + ", ".join(_SCORING),
        "reorder": "what candidates are scored again by: " + ", ".join(_REORDER),
        "index": "folder of a saved searcher, or a searcher in memory",
        "space": "ip, cosine or l2, for a saved searcher",
        "ids": "ids of the rows of a saved searcher, by position",
    }
    library = "scann"
    keeps_keys = False

    _layout: Layout
    _folder: Path | None = None
    _partitions: Partitions | None = None
    #: The centroids in a searcher of their own, which compares them all.
    _centroids: Any = None

    def __init__(
        self,
        scoring: str | None = None,
        reorder: str | None = None,
        index: Any = None,
        space: str | Space | None = None,
        ids: Any = None,
    ) -> None:
        super().__init__()
        self.scoring = chosen(scoring or "lut16", _SCORING, "scoring")
        self.reorder = chosen(
            reorder or ("none" if self.scoring == "exact" else "float32"), _REORDER, "reorder"
        )
        if self.scoring == "exact" and self.reorder != "none":
            raise InputError("scoring=exact leaves nothing to reorder; expected reorder=none")
        if index is None:
            only_for_saved(space, ids)
            return
        if scoring is not None or reorder is not None:
            raise InputError("a saved ScaNN searcher has its own scoring and reordering")
        self._open(index, space, ids)

    def _open(self, index: Any, space: str | Space | None, ids: Any) -> None:
        library = _scann()
        if isinstance(index, str | Path):
            self._folder = existing(index, "the folder of a saved ScaNN searcher")
            # ScaNN would put a file of its own into any other folder.
            if not (self._folder / "scann_config.pb").is_file():
                raise InputError(f"{self._folder} is no folder of a saved ScaNN searcher")
            refuse_after_usearch("scann", "reading a saved ScaNN searcher")
            try:
                with _quiet():
                    index = library.load_searcher(str(self._folder))
            except (RuntimeError, ValueError, OSError) as error:
                raise InputError(f"{self._folder}: ScaNN cannot read it: {error}") from error
        # Positions, whatever ids the searcher has of its own.
        self._index = library.ScannSearcher(index.searcher, None)
        with self._saved() as folder:
            dimension = dimension_of(folder)
        self._layout = layout(self._index.config(), dimension)
        fitting = ("l2",) if self._layout.squared else ("ip", "cosine")
        geometry = space_of(space or fitting[0])
        if geometry.name not in fitting:
            raise MismatchError(
                f"the ScaNN searcher compares by {fitting[0]}; found space {geometry}"
            )
        own = index.docids if ids is None else ids
        file = None if self._folder is None else str(self._folder)
        self._take(self._index, geometry, dimension, self._index.size(), own, file=file)

    @property
    def build_knobs(self) -> tuple[Knob, ...]:
        """Partitions, and how vectors become codes."""
        knobs = [
            Knob(
                "num_leaves", "build", 1, 2**24, None,
                "partitions; 1: none; by default the root of the number of vectors", scale="log",
            ),
            Knob(
                "training_sample_size", "build", 1, 2**40, 100_000,
                "vectors that partitions and codes are trained on", scale="log",
            ),
            Knob(
                "soar_lambda", "build", 0.1, 10, None,
                "every vector in two partitions (SOAR; ip and cosine)", whole=False,
            ),
            Knob("threads", "build", 1, 4096, None, "threads while training"),
        ]  # fmt: skip
        if self.scoring != "exact":
            knobs += [
                Knob("dimensions_per_block", "build", 1, 4096, 2, "dimensions a value stands for"),
                Knob(
                    "anisotropic_quantization_threshold", "build", 0, 1, 0.2,
                    "weight of errors along the vector (ip and cosine); 0: none", whole=False,
                ),
            ]  # fmt: skip
        return tuple(knobs)

    @property
    def search_knobs(self) -> tuple[Knob, ...]:
        """Partitions visited, and candidates scored again."""
        shape, knobs = self._layout, []
        if shape.leaves:
            about = "partitions visited per query"
            knobs.append(
                Knob(
                    "leaves_to_search", "search", 1, shape.leaves,
                    min(shape.searched, shape.leaves), about, scale="log",
                )
            )  # fmt: skip
        if shape.reordered:
            about = "candidates scored again (at least k)"
            high = max(self._size, shape.reordered)
            knobs.append(
                Knob(
                    "pre_reorder_num_neighbors", "search", 1, high, shape.reordered, about,
                    scale="log", from_k=True,
                )
            )  # fmt: skip
        return tuple(knobs)

    @property
    def _quantised(self) -> bool:
        return self._layout.held != "float32"

    def _fill(
        self, blocks: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]], **knobs: Any
    ) -> Any:
        base = np.concatenate([block for _, block in blocks])
        builder = self._recipe(base, knobs)
        try:
            with _quiet():
                index = builder.build()
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"ScaNN cannot be built over {len(base):,} vectors: {error}",
                hint="fewer partitions (num_leaves), or more vectors; codes want 16 or 256",
            ) from error
        self._folder = self._partitions = None
        self._layout = layout(index.config(), base.shape[1])
        return index

    def _recipe(self, base: NDArray[np.float32], knobs: Mapping[str, Any]) -> Any:
        builder = _scann().builder(base, 10, _metric(self._space))
        return self._steps(builder, len(base), knobs)

    def _steps(self, builder: Any, rows: int, knobs: Mapping[str, Any]) -> Any:
        """The steps of a builder over so many rows."""
        inner = self._space.name != "l2"
        builder.set_n_training_threads(knobs.get("threads", 0))
        sample = knobs.get("training_sample_size", 100_000)
        leaves = knobs.get("num_leaves", max(1, round(rows**0.5)))
        soar = {"soar_lambda": knobs["soar_lambda"]} if "soar_lambda" in knobs else {}
        if soar and (not inner or leaves == 1):
            raise InputError("soar_lambda needs partitions, and space ip or cosine")
        if leaves > 1:
            builder.tree(leaves, max(1, leaves // 10), training_sample_size=sample, **soar)
        if self.scoring == "exact":
            return builder.score_brute_force()
        threshold = knobs.get("anisotropic_quantization_threshold", 0.2) if inner else 0
        builder.score_ah(
            knobs.get("dimensions_per_block", 2),
            anisotropic_quantization_threshold=threshold or float("nan"),
            training_sample_size=sample,
            hash_type=_SCORING[self.scoring],
        )
        number = _REORDER[self.reorder]
        if number is not None:
            kinds = import_extra("scann", "scann", "the system 'scann'").ReorderType
            builder.reorder(100, quantize=getattr(kinds, number))
        return builder

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.int64]]:
        keys, near = self._searched(queries, k, self._turned(settings, k))
        # Beyond what was found ScaNN gives row 0 and NaN, or a narrower answer.
        counts = (~np.isnan(near)).sum(axis=1)
        if self._space.name == "l2":
            near = np.sqrt(np.maximum(near, 0))
        return keys, near, counts

    def _searched(
        self, queries: NDArray[np.float32], k: int, turned: Mapping[str, int]
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        try:
            found: tuple[Any, Any] = self._index.search_batched_parallel(
                queries, final_num_neighbors=k, **turned
            )
        except (RuntimeError, ValueError) as error:
            raise SystemFault(f"ScaNN failed: {error}") from error
        return found

    def _turned(self, settings: Mapping[str, Any], k: int) -> dict[str, int]:
        turned = {knob.name: int(knob.default or 1) for knob in self.search_knobs} | dict(settings)
        if self._layout.reordered:
            # ScaNN returns no more than it scored again.
            most = max(k, turned["pre_reorder_num_neighbors"])
            turned["pre_reorder_num_neighbors"] = most
        return turned

    def count(self, queries: NDArray[np.float32], k: int, **settings: Any) -> Counters:
        """Centroids, codes and candidates compared, by replaying the partitions.

        Every query is searched once more for all that its partitions hold; where ScaNN finds
        anything else than the replay, what is compared is unknown, and a warning says so.
        """
        matrix = self._asked(queries, k)
        wanted = self.turned("search", settings)
        shape, n = self._layout, len(matrix)
        turned = self._turned(wanted, min(k, self._size))
        if not shape.leaves:
            every = np.full(n, float(self._size))
            return self._stages({"scan": Stage(every, shape.code_bytes)}, every, turned)
        partitions = self._read_partitions()
        compared = np.full(n, np.nan)
        # ScaNN's arithmetic depends on what else is in the batch: it is searched as a whole,
        # unless all that is found would not fit into memory.
        for rows in np.array_split(np.arange(n), self._parts(n, turned)):
            found = partitions and self._replayed(partitions, matrix[rows], turned)
            if found is None:
                warnings.warn(
                    "replaying the partitions of ScaNN found other vectors than ScaNN: what its "
                    "searches cost is unknown",
                    SemrecallWarning,
                    stacklevel=2,
                )
                return Counters({"coarse": None, "codes": None})
            compared[rows] = found
        assert partitions is not None
        stages = {
            "coarse": Stage(np.full(n, float(len(partitions.centroids))), 4.0 * self._dimension),
            "codes": Stage(compared, shape.code_bytes),
        }
        return self._stages(stages, compared, turned)

    def _parts(self, n: int, turned: Mapping[str, int]) -> int:
        share = self._size * turned["leaves_to_search"] / self._layout.leaves
        return min(n, 1 + int(n * share / _FOUND_AT_ONCE))

    def _stages(
        self, stages: dict[str, Stage], compared: NDArray[np.float64], turned: Mapping[str, int]
    ) -> Counters:
        shape = self._layout
        if not shape.reordered:
            return Counters(stages)
        if shape.spilled:
            # Vectors in two partitions come up twice, and ScaNN does not say how often.
            return Counters({**stages, "refine": None})
        candidates = np.minimum(compared, turned["pre_reorder_num_neighbors"])
        return Counters({**stages, "refine": Stage(candidates, shape.reorder_bytes)})

    def _read_partitions(self) -> Partitions | None:
        if self._partitions is None and self._layout.plain_leaves:
            with self._saved() as folder:
                self._partitions = read_partitions(folder)
            builder = _scann().builder(
                self._partitions.centroids,
                1,
                "squared_l2" if self._layout.squared else "dot_product",
            )
            with _quiet():
                self._centroids = builder.score_brute_force().build()
        return self._partitions

    def _replayed(
        self, partitions: Partitions, matrix: NDArray[np.float32], turned: Mapping[str, int]
    ) -> NDArray[np.int64] | None:
        """How many codes each search compares, (n,).

        None where ScaNN, asked for all there is in these partitions, finds anything else. The
        nearest partitions are found by ScaNN itself, over the centroids: where these are nearly
        as near, other arithmetic would choose others.
        """
        visited, _ = self._centroids.search_batched_parallel(
            matrix, final_num_neighbors=turned["leaves_to_search"]
        )
        visited = np.asarray(visited, dtype=np.int64)
        members = [partitions.members(leaves) for leaves in visited]
        # One more, so that it would show when there were.
        most = min(self._size, max(map(len, members)) + 1)
        everything = dict(turned)
        if self._layout.reordered:
            everything["pre_reorder_num_neighbors"] = most * self._partitions_of_a_vector
        keys, near = self._searched(matrix, most, everything)
        for row, expected in enumerate(members):
            if not np.array_equal(np.sort(keys[row][~np.isnan(near[row])]), expected):
                return None
        return partitions.compared(visited)

    @property
    def _partitions_of_a_vector(self) -> int:
        return 2 if self._layout.spilled else 1

    def exact(
        self, queries: NDArray[np.float32], k: int, **given: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """All partitions visited and all vectors scored again; InputError where quantised."""
        matrix = self._asked(queries, k)
        self.turned("search", given)
        if self._quantised:
            raise InputError(f"what this ScaNN searcher scores by ({self._layout.held}) is coded")
        every = {"leaves_to_search": self._layout.leaves} if self._layout.leaves else {}
        if self._layout.reordered:
            every["pre_reorder_num_neighbors"] = self._size * self._partitions_of_a_vector
        return self._answer(*self._ask(matrix, min(k, self._size), every))

    def _keys(self) -> NDArray[np.uint64]:
        return np.arange(self._size, dtype=np.uint64)

    def _stored(self, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
        with self._saved() as folder:
            return decoded(folder, self._layout)[keys.astype(np.int64)]

    def view(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], Space]:
        """Queries as they are compared, and the space: ip for cosine."""
        matrix = self._asked(queries, 1)
        return matrix, IP if self._space.name == "cosine" else self._space

    @contextmanager
    def _saved(self) -> Iterator[Path]:
        """A folder with the files of the searcher, for as long as it is read."""
        if self._folder is not None:
            yield self._folder
            return
        with tempfile.TemporaryDirectory() as folder:
            self._index.serialize(folder)
            yield Path(folder)

    def save(self, path: str | Path) -> None:
        """Write the searcher to a folder, which must be empty; ids do not go along."""
        self._held()
        folder = Path(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise InputError(f"{folder} holds files already; expected an empty or new folder")
            self._index.serialize(str(folder), relative_path=True)
        except (OSError, RuntimeError) as error:
            raise InputError(f"{folder}: ScaNN cannot write the searcher: {error}") from error

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        turned = "".join(f", {name}={value}" for name, value in settings.items())
        return (
            f"neighbors, scores = searcher.search_batched(queries, final_num_neighbors=k{turned})"
        )

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        written = _Written(f'scann.scann_ops_pybind.builder(vectors, 10, "{_metric(self._space)}")')
        return f"searcher = {self._steps(written, self._size, knobs).build().text}"

    def describe(self) -> dict[str, Any]:
        """Version, partitions, what is scored, size, and how it was built."""
        self._held()
        shape = self._layout
        return {
            **super().describe(),
            "leaves": shape.leaves,
            "code_bytes": shape.code_bytes,
            "scores_by": shape.held,
        }


class _Written:
    """A builder that only notes what it is told, as Python."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getattr__(self, name: str) -> Callable[..., _Written]:
        def noted(*given: Any, **named: Any) -> _Written:
            parts = [_written(one) for one in given]
            parts += [f"{key}={_written(value)}" for key, value in named.items()]
            self.text += f".{name}({', '.join(parts)})"
            return self

        return noted


def _written(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return 'float("nan")'
    return f"scann.ReorderType.{value.name}" if hasattr(value, "name") else repr(value)


def _metric(space: Space) -> str:
    return "squared_l2" if space.name == "l2" else "dot_product"


def _scann() -> Any:
    return import_extra("scann.scann_ops.py.scann_ops_pybind", "scann", "the system 'scann'")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep ScaNN from writing its log, past Python, to stderr while it trains."""
    with _STDERR:
        sys.stderr.flush()
        before = os.dup(2)
        try:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
