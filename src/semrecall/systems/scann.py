"""ScaNN: partitions, compact codes, and candidates scored again."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.errors import InputError
from semrecall.space import IP, Space
from semrecall.systems.base import Counters, Knob, Stage
from semrecall.systems.inprocess import Found, InProcessSystem, Rows, chosen, warn_of_replay
from semrecall.systems.knobs import arguments
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

_METRICS = {"ip": "dot_product", "cosine": "dot_product", "l2": "squared_l2"}
_REORDER = {"float32": "FLOAT32", "bfloat16": "BFLOAT16", "int8": "INT8", "none": None}
_SCORING = {"lut16": "lut16", "lut256": "lut256", "exact": None}
#: Vectors found that are held at once, over all queries of a batch.
_FOUND_AT_ONCE = 1 << 26
_STDERR = threading.Lock()

_BUILD_KNOBS = (
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
)  # fmt: skip
_CODE_KNOBS = (
    Knob("dimensions_per_block", "build", 1, 4096, 2, "dimensions a value stands for"),
    Knob(
        "anisotropic_quantization_threshold", "build", 0, 1, 0.2,
        "weight of errors along the vector (ip and cosine); 0: none", whole=False,
    ),
)  # fmt: skip


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
    #: Ids that a searcher had of its own, by position.
    _names: Any = None
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
        self._open(index, space, ids, scoring=scoring, reorder=reorder)
        if ids is None and self._names is not None:
            self._name(self._names)

    def _learn(self, index: Any) -> tuple[str, int]:
        # One that answers with positions, whatever ids the searcher has of its own.
        self._index = self._operations().ScannSearcher(index.searcher, None)
        self._names = index.docids
        with self._saved() as folder:
            dimension = dimension_of(folder)
        self._layout = layout(index.config(), dimension)
        return "l2" if self._layout.squared else "ip", dimension

    @property
    def build_knobs(self) -> tuple[Knob, ...]:
        """Partitions, and how vectors become codes."""
        return _BUILD_KNOBS + (() if self.scoring == "exact" else _CODE_KNOBS)

    @property
    def search_knobs(self) -> tuple[Knob, ...]:
        """Partitions visited, and candidates scored again."""
        shape, knobs = self._layout, []
        if shape.leaves:
            about, stands = "partitions visited per query", min(shape.searched, shape.leaves)
            knobs.append(Knob("leaves_to_search", "search", 1, shape.leaves, stands, about, "log"))
        if shape.reordered:
            about, stands = "candidates scored again (at least k)", shape.reordered
            name, high = "pre_reorder_num_neighbors", max(self._size, stands)
            knobs.append(Knob(name, "search", 1, high, stands, about, "log", from_k=True))
        return tuple(knobs)

    @property
    def _quantised(self) -> bool:
        return self._layout.held != "float32"

    def _fill(self, rows: Rows, **knobs: Any) -> Any:
        base = np.concatenate([block for _, block in rows.blocks()])
        builder = self._operations().builder(base, 10, _METRICS[self._space.name])
        self._steps(builder, len(base), knobs)
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

    def _steps(self, builder: Any, rows: int, knobs: Mapping[str, Any]) -> None:
        """Tell a builder how to build over so many rows."""
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
            builder.score_brute_force()
            return
        threshold = knobs.get("anisotropic_quantization_threshold", 0.2) if inner else 0
        builder.score_ah(
            knobs.get("dimensions_per_block", 2),
            anisotropic_quantization_threshold=threshold or float("nan"),
            training_sample_size=sample,
            hash_type=_SCORING[self.scoring],
        )
        number = _REORDER[self.reorder]
        if number is not None:
            builder.reorder(100, quantize=getattr(self._package().ReorderType, number))

    def _ask(
        self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any], **more: Any
    ) -> Found:
        keys, near = self._searched(queries, k, self._turned({**settings, **more}, k))
        # Beyond what was found ScaNN gives row 0 and NaN, or a narrower answer.
        return keys, self._natural(near), np.isnan(near)

    def _searched(
        self, queries: NDArray[np.float32], k: int, turned: Mapping[str, int]
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        found: tuple[Any, Any] = self._index.search_batched_parallel(
            queries, final_num_neighbors=k, **turned
        )
        return found

    def _turned(self, settings: Mapping[str, Any], k: int) -> dict[str, int]:
        turned = {knob.name: int(knob.default or 1) for knob in self.search_knobs} | dict(settings)
        if self._layout.reordered:
            # ScaNN returns no more than it scored again.
            most = max(k, turned["pre_reorder_num_neighbors"])
            turned["pre_reorder_num_neighbors"] = most
        return turned

    def _count(self, queries: NDArray[np.float32], k: int, settings: Mapping[str, Any]) -> Counters:
        """Centroids, codes and candidates compared; unknown where ScaNN finds other vectors."""
        shape, turned = self._layout, self._turned(settings, k)
        stages: dict[str, Stage | None]
        if shape.leaves:
            compared = self._replayed(queries, turned)
            if compared is None:
                warn_of_replay("the partitions of ScaNN", "vectors", "ScaNN")
                return Counters({"coarse": None, "codes": None})
            coarse = np.full(len(queries), float(shape.leaves))
            stages = {
                "coarse": Stage(coarse, 4.0 * self._dimension),
                "codes": Stage(compared, shape.code_bytes),
            }
        else:
            compared = np.full(len(queries), float(self._size))
            stages = {"scan": Stage(compared, shape.code_bytes)}
        if shape.reordered:
            again = np.minimum(compared, turned["pre_reorder_num_neighbors"])
            # Vectors in two partitions come up twice, and ScaNN does not say how often.
            stages["refine"] = Stage(again, shape.reorder_bytes) if shape.copies == 1 else None
        return Counters(stages)

    def _read_partitions(self) -> Partitions | None:
        if self._partitions is None and self._layout.plain_leaves:
            with self._saved() as folder:
                self._partitions = read_partitions(folder, self._layout)
            centroids, metric = self._partitions.centroids, _METRICS[self._space.name]
            builder = self._operations().builder(centroids, 1, metric)
            with _quiet():
                self._centroids = builder.score_brute_force().build()
        return self._partitions

    def _replayed(
        self, queries: NDArray[np.float32], turned: Mapping[str, int]
    ) -> NDArray[np.float64] | None:
        """How many codes each search compares, (n,).

        Every query is searched once more; None where ScaNN, asked for all there is in its
        partitions, finds anything else. The nearest partitions are found by ScaNN itself, over the
        centroids: where these are nearly as near, other arithmetic would choose others.
        """
        partitions = self._read_partitions()
        if partitions is None:
            return None
        shape, probes = self._layout, turned["leaves_to_search"]
        # ScaNN's arithmetic depends on what else is in the batch: it is searched as a whole,
        # unless all that is found would not fit into memory.
        found = len(queries) * self._size * probes / shape.leaves
        parts = min(len(queries), 1 + int(found / _FOUND_AT_ONCE))
        compared = []
        for batch in np.array_split(queries, parts):
            visited, _ = self._centroids.search_batched_parallel(batch, final_num_neighbors=probes)
            visited = np.asarray(visited, dtype=np.int64)
            members = [partitions.members(leaves) for leaves in visited]
            # One more, so that it would show when there were.
            most = min(self._size, max(map(len, members)) + 1)
            every = self._turned(turned, most * shape.copies)
            keys, near = self._searched(batch, most, every)
            for row, expected in enumerate(members):
                if not np.array_equal(np.sort(keys[row][~np.isnan(near[row])]), expected):
                    return None
            compared.append(partitions.compared(visited))
        return np.concatenate(compared).astype(np.float64)

    def exact(
        self, queries: NDArray[np.float32], k: int, **given: Any
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """All partitions visited and all vectors scored again; InputError where quantised."""
        self._held()
        shape = self._layout
        if self._quantised:
            raise InputError(f"what this ScaNN searcher scores by ({shape.held}) is coded")
        every = {"leaves_to_search": shape.leaves} if shape.leaves else {}
        if shape.reordered:
            every["pre_reorder_num_neighbors"] = self._size * shape.copies
        return self._search(queries, k, given, **every)

    def _keys(self) -> NDArray[np.int64]:
        return np.arange(self._index.size())

    def _stored(self) -> NDArray[np.float32]:
        with self._saved() as folder:
            return decoded(folder, self._layout)

    def view(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], Space]:
        """Queries as they are compared, and the space: ip for cosine."""
        return self._asked(queries), IP if self._space.name == "cosine" else self._space

    @contextmanager
    def _saved(self) -> Iterator[Path]:
        """A folder with the files of the searcher, for as long as it is read."""
        if self._folder is not None:
            yield self._folder
            return
        with tempfile.TemporaryDirectory() as folder:
            self._index.serialize(folder)
            yield Path(folder)

    def _read(self, path: str, space: str | Space | None) -> Any:
        self._folder = Path(path)
        # ScaNN would put a file of its own into any other folder.
        if not (self._folder / "scann_config.pb").is_file():
            raise InputError(f"{path} is no folder of a saved ScaNN searcher")
        refuse_after_usearch("scann", "reading a saved ScaNN searcher")
        with _quiet():
            return self._operations().load_searcher(path)

    def save(self, path: str | Path) -> None:
        """Write the searcher to a folder, which must be empty; ids do not go along."""
        self._held()
        folder = Path(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise InputError(f"{folder} holds files already; expected an empty or new folder")
            self._write(str(folder))
        except (OSError, RuntimeError) as error:
            raise InputError(f"{folder}: ScaNN cannot write the searcher: {error}") from error

    def _write(self, path: str) -> None:
        self._index.serialize(path, relative_path=True)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """Python."""
        turned = arguments(settings)
        return (
            f"neighbors, scores = searcher.search_batched(queries, final_num_neighbors=k{turned})"
        )

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """Python; `vectors` are the rows, under cosine scaled to length one."""
        metric = _METRICS[self._space.name]
        written = _Written(f'scann.scann_ops_pybind.builder(vectors, 10, "{metric}")')
        self._steps(written, self._size, knobs)
        return f"searcher = {written.text}.build()"

    def _told(self) -> dict[str, Any]:
        shape = self._layout
        return {
            "leaves": shape.leaves,
            "code_bytes": shape.code_bytes,
            "scores_by": shape.held,
        }

    def _operations(self) -> Any:
        return self._package("scann.scann_ops.py.scann_ops_pybind")


class _Written:
    """A builder that only notes what it is told, as Python."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getattr__(self, name: str) -> Callable[..., None]:
        def noted(*given: Any, **named: Any) -> None:
            parts = [_written(one) for one in given]
            parts += [f"{key}={_written(value)}" for key, value in named.items()]
            self.text += f".{name}({', '.join(parts)})"

        return noted


def _written(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return 'float("nan")'
    return f"scann.ReorderType.{value.name}" if hasattr(value, "name") else repr(value)


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
