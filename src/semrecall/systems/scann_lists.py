"""What a ScaNN searcher holds, read from the files it saves: partitions, codes, vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import SystemFault
from semrecall.registry import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Layout", "Partitions", "decoded", "dimension_of", "layout", "read_partitions"]


@dataclass(frozen=True)
class Layout:
    """How a searcher works, from its configuration.

    squared: whether it compares by squared Euclidean distance, else by inner product.
    leaves: how many partitions there are; 0 without any. searched: how many by default.
    plain_leaves: whether all centroids are compared with float32 queries, one level of them.
    copies: in how many partitions a vector may be, two with SOAR.
    code_bytes: bytes of what is compared in a partition. reordered: candidates scored again by
    default, 0 without; reorder_bytes: bytes of each.
    held: what the last comparison reads: float32, bfloat16, int8 or codes.
    """

    squared: bool
    leaves: int
    searched: int
    plain_leaves: bool
    copies: int
    residual: bool
    code_bytes: float
    reordered: int
    reorder_bytes: int
    held: str


@dataclass(frozen=True)
class Partitions:
    """centroids: (leaves, d). tokens: (n, 1 or 2), the partitions of each vector, -1 is none."""

    centroids: NDArray[np.float32]
    tokens: NDArray[np.int64]

    def compared(self, visited: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many codes there are in the visited partitions (n, m), for each query, (n,)."""
        kept = self.tokens[self.tokens >= 0]
        sizes: NDArray[np.int64] = np.bincount(kept, minlength=len(self.centroids))
        return np.asarray(sizes[visited].sum(axis=1))

    def members(self, visited: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows in the visited partitions (m,) of one query, rising."""
        wanted = np.zeros(len(self.centroids) + 1, dtype=bool)
        wanted[visited] = True
        return np.flatnonzero(wanted[self.tokens].any(axis=1))


def layout(config: str, dimension: int) -> Layout:
    """How a searcher with this configuration (text of a ScannConfig) works."""
    proto = _proto("scann.proto.scann_pb2").ScannConfig()
    # Text of the same library, so what it does not know is an error.
    _proto("google.protobuf.text_format").Parse(config, proto)
    leaves = proto.partitioning if proto.HasField("partitioning") else None
    exact = proto.exact_reordering if proto.HasField("exact_reordering") else None
    hashed = proto.hash.asymmetric_hash if proto.HasField("hash") else None
    scored = _number_type(proto.brute_force) if hashed is None else "codes"
    reorder = None if exact is None else _number_type(exact)
    return Layout(
        squared="SquaredL2" in proto.distance_measure.distance_measure,
        leaves=0 if leaves is None else leaves.num_children,
        searched=0 if leaves is None else leaves.query_spilling.max_spill_centers,
        plain_leaves=leaves is not None and _is_plain(leaves),
        copies=2 if leaves is not None and leaves.HasField("database_spilling") else 1,
        residual=hashed is not None and hashed.use_residual_quantization,
        code_bytes=_BYTES[scored] * dimension if hashed is None else _code_bytes(hashed, dimension),
        reordered=0 if exact is None else exact.approx_num_neighbors,
        reorder_bytes=0 if reorder is None else _BYTES[reorder] * dimension,
        held=reorder or scored,
    )


_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


def _is_plain(leaves: Any) -> bool:
    floats = leaves.query_tokenization_type == leaves.FLOAT
    return bool(floats and not leaves.bottom_up_top_level_partitioner.enabled)


def _number_type(part: Any) -> str:
    if part.bfloat16.enabled:
        return "bfloat16"
    return "int8" if part.fixed_point.enabled else "float32"


def _code_bytes(hashed: Any, dimension: int) -> float:
    """Bytes of a code: half a byte for one of 16 values of a block of dimensions, else one."""
    blocks = -(-dimension // hashed.projection.num_dims_per_block)
    if hashed.projection.variable_blocks:
        blocks = sum(part.num_blocks for part in hashed.projection.variable_blocks)
    return blocks / 2 if hashed.num_clusters_per_block == 16 else float(blocks)


def dimension_of(folder: Path) -> int:
    """Dimensions of the vectors of a saved searcher."""
    config = _proto("scann.proto.scann_pb2").ScannConfig()
    config.ParseFromString((folder / "scann_config.pb").read_bytes())
    if config.HasField("hash"):
        return int(config.hash.asymmetric_hash.projection.input_dim)
    held = next(path for path in folder.glob("*dataset.npy"))
    return int(np.load(held, mmap_mode="r").shape[1])


def read_partitions(folder: Path, shape: Layout) -> Partitions:
    """Centroids, and the partitions of each vector, from a saved searcher."""
    proto = _proto("scann.partitioning.partitioner_pb2").SerializedPartitioner()
    proto.ParseFromString((folder / "serialized_partitioner.pb").read_bytes())
    root = proto.kmeans.kmeans_tree.root
    centroids = np.array([center.dimension for center in root.centers], dtype=np.float32)
    tokens = np.load(folder / "datapoint_to_token.npy").astype(np.int64)
    leaves = np.array([child.leaf_id for child in root.children])
    if not np.array_equal(leaves, np.arange(len(centroids))):
        raise SystemFault("the partitions of this ScaNN searcher have more than one level")
    return Partitions(centroids, tokens.reshape(-1, shape.copies))


def decoded(folder: Path, shape: Layout) -> NDArray[np.float32]:
    """What the last comparison of a search reads, decoded, (n, d), from a saved searcher."""
    if shape.held == "float32":
        return np.asarray(np.load(folder / "dataset.npy"), dtype=np.float32)
    if shape.held == "int8":
        multipliers = np.load(folder / "int8_multipliers.npy")
        return np.asarray(np.load(folder / "int8_dataset.npy") / multipliers, dtype=np.float32)
    if shape.held == "bfloat16":
        halves = np.load(folder / "bfloat16_dataset.npy").view(np.uint16)
        return np.asarray((halves.astype(np.uint32) << 16).view(np.float32))
    return _decoded_codes(folder, shape)


def _decoded_codes(folder: Path, shape: Layout) -> NDArray[np.float32]:
    proto = _proto("scann.proto.centers_pb2").CentersForAllSubspaces()
    proto.ParseFromString((folder / "ah_codebook.pb").read_bytes())
    codes = np.load(folder / "hashed_dataset.npy")
    parts = [
        np.array([center.feature_value_float for center in block.center])[codes[:, number]]
        for number, block in enumerate(proto.subspace_centers)
    ]
    values = np.concatenate(parts, axis=1)
    if shape.residual:
        partitions = read_partitions(folder, shape)
        values = values + partitions.centroids[partitions.tokens[:, 0]]
    return np.asarray(values, dtype=np.float32)


def _proto(module: str) -> Any:
    return import_extra(module, "scann", "the system 'scann'")
