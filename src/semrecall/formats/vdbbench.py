"""Folders of VectorDBBench: train*.parquet, test.parquet and neighbors.parquet, joined on id."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.ids import Ids, codes_in, ids, unify
from semrecall.errors import SemrecallWarning
from semrecall.formats.files import fault, named
from semrecall.formats.options import Options
from semrecall.formats.parquet import vectors_of_files
from semrecall.formats.records import open_parquet

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_run", "read_vectors", "write_folder"]


def read_vectors(folder: Path, options: Options) -> Vectors:
    """The vectors of `train` (or `dataset="test"`), in one file or in many numbered ones."""
    name = options.dataset or "train"
    for pattern in (f"{name}.parquet", f"{name}-*.parquet", f"shuffle_{name}*.parquet"):
        paths = sorted(folder.glob(pattern))
        if paths:
            plain = Options(ids=options.ids)
            return vectors_of_files(paths, plain)
    found = ", ".join(sorted(p.name for p in folder.glob("*.parquet"))) or "none"
    raise fault(
        folder,
        f"expected {name}.parquet or {name}-*.parquet; parquet files found: {found}",
        "name one: --dataset, or dataset= in Python",
    )


def read_run(folder: Path, options: Options) -> Run:
    """The neighbours of `neighbors.parquet` (or of the file that `dataset=` names).

    Rows are put in the order of test.parquet, by id, where that file is there.
    """
    path = folder / f"{(options.dataset or 'neighbors').removesuffix('.parquet')}.parquet"
    if not path.exists():
        found = ", ".join(sorted(p.name for p in folder.glob("*.parquet"))) or "none"
        raise fault(folder, f"expected {path.name}; parquet files found: {found}")
    file = open_parquet(path)
    names = file.schema_arrow.names
    if "id" not in names or "neighbors_id" not in names:
        raise fault(path, f"found columns {', '.join(names)}; expected id and neighbors_id")
    table = file.read(columns=["id", "neighbors_id"])
    lists = table.column("neighbors_id").to_pylist()
    with named(path):
        run = Run.from_arrays(
            [row if row is not None else [] for row in lists],
            query_ids=table.column("id"),
            space=options.space,
            name=options.name or "",
        )
    test = folder / "test.parquet"
    if not test.exists():
        return run
    wanted = ids(open_parquet(test).read(columns=["id"]).column("id"), what="query ids")
    return run.select(_rows_of(path, run, wanted))


def _rows_of(path: Path, run: Run, wanted: Ids) -> NDArray[np.int64]:
    known, asked = unify(run.queries, wanted)
    rows = codes_in(asked, known)
    if bool((rows < 0).any()):
        at = int(np.argmax(rows < 0))
        raise fault(
            path,
            f"has no neighbours for {int((rows < 0).sum()):,} of {len(wanted):,} queries of "
            f"test.parquet, first: id {wanted[at]!r}",
        )
    extra = len(run) - len(rows)
    if extra:
        warnings.warn(
            f"{path}: {extra:,} rows belong to no query of test.parquet and are left out",
            SemrecallWarning,
            stacklevel=3,
        )
    return rows


def write_folder(
    folder: Path,
    *,
    base: Vectors | None = None,
    queries: Vectors | None = None,
    truth: Run | None = None,
) -> None:
    """Write what is given as train.parquet, test.parquet and neighbors.parquet."""
    from semrecall.formats.files import writing

    folder.mkdir(exist_ok=True)
    for name, vectors in (("train", base), ("test", queries)):
        if vectors is not None:
            with writing(folder / f"{name}.parquet") as path:
                _write_vectors(vectors, path)
    if truth is not None:
        with writing(folder / "neighbors.parquet") as path:
            _write_neighbours(truth, path)


def _write_vectors(vectors: Vectors, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    own = vectors.ids.to_arrow()
    kind: Any = pa.list_(pa.from_numpy_dtype(vectors.dtype))
    schema = pa.schema({"id": own.type, "emb": kind})
    with pq.ParquetWriter(path, schema) as writer:
        for start, block in vectors.blocks(8192):
            cuts = pa.array(np.arange(len(block) + 1, dtype=np.int32) * vectors.dimension)
            flat = pa.array(np.ascontiguousarray(block).reshape(-1))
            rows = pa.ListArray.from_arrays(cuts, flat)
            writer.write_table(pa.table([own.slice(start, len(block)), rows], schema=schema))


def _write_neighbours(truth: Run, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.LargeListArray.from_arrays(pa.array(truth.offsets), truth.documents.to_arrow())
    pq.write_table(pa.table({"id": truth.queries.to_arrow(), "neighbors_id": rows}), path)
