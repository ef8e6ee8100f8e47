"""Documents of several vectors: .npz, .npy, parquet with lists of lists, or a folder of .npy."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.multivectors import MultiVectors
from semrecall.errors import FormatError
from semrecall.formats.files import fault, named
from semrecall.formats.matrix import map_npy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["documents_of", "holds_documents", "read_multivectors"]

_COLUMNS = ("vectors", "vector", "embeddings", "embedding", "emb", "tokens")
_IDS = ("id", "_id", "doc_id", "query_id", "docid")
_EXPECTED = (
    "documents of several vectors are a folder with vectors.npy and offsets.npy (and ids.npy or "
    "ids.txt), an .npz with the same arrays, an .npy of shape (documents, vectors, dimensions), or "
    "parquet with a column of lists of lists"
)


def documents_of(source: Any) -> MultiVectors:
    """Documents from MultiVectors, a list of matrices, an array (n, l, d), or a path."""
    return read_multivectors(source) if isinstance(source, str | Path) else MultiVectors.of(source)


def read_multivectors(
    path: Path | str, *, dataset: str | None = None, ids: Any = None
) -> MultiVectors:
    """Documents of several vectors from a file or a folder.

    A folder holds `vectors.npy` (rows, d), memory-mapped, `offsets.npy` (n + 1,), and `ids.npy` or
    `ids.txt` where documents have ids; an `.npz` the same arrays, held in memory. An `.npy` has
    shape (n, l, d). Parquet has a column of lists of lists of numbers (`vectors`, `embeddings`,
    ...; `dataset` names another), and one of ids (`id`, ...).

    ids: of the documents, or the path of a file of ids. Raises FormatError for anything else.
    """
    from semrecall.formats import read_ids

    source = Path(path)
    if not source.exists():
        raise fault(source, "there is no such file or folder")
    if isinstance(ids, str | Path):
        ids = read_ids(ids)
    with named(source):
        if source.is_dir():
            return _of_folder(source, ids)
        if source.suffix == ".npz":
            return _of_npz(source, ids)
        if source.suffix == ".npy":
            array = map_npy(source)
            if array.ndim != 3:
                raise fault(source, f"has shape {array.shape}", _EXPECTED)
            return MultiVectors.of(array, ids=ids)
        if source.suffix in (".parquet", ".pq"):
            return _of_parquet(source, dataset, ids)
    raise fault(source, "is no file of documents of several vectors", _EXPECTED)


def holds_documents(path: Path | str) -> bool:
    """Whether a file or folder looks like documents of several vectors."""
    source = Path(path)
    if source.is_dir():
        return (source / "offsets.npy").exists()
    if source.suffix == ".npy" and source.is_file() and source.stat().st_size:
        return map_npy(source).ndim == 3
    if source.suffix in (".parquet", ".pq") and source.is_file():
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            schema = pq.read_schema(source)
        except (pa.ArrowInvalid, OSError):
            return False
        fields = [schema.field(name).type for name in _COLUMNS if name in schema.names]
        return any(_is_list(kind) and _is_list(kind.value_type) for kind in fields)
    return source.suffix == ".npz" and source.is_file()


def _of_folder(folder: Path, ids: Any) -> MultiVectors:
    from semrecall.formats import read_ids

    parts = {name: folder / f"{name}.npy" for name in ("vectors", "offsets")}
    for name, path in parts.items():
        if not path.exists():
            raise fault(folder, f"has no {name}.npy", _EXPECTED)
    for beside in (folder / "ids.npy", folder / "ids.txt"):
        if ids is None and beside.exists():
            ids = read_ids(beside)
    offsets = np.array(map_npy(parts["offsets"]))
    return MultiVectors.of(map_npy(parts["vectors"]), offsets=offsets, ids=ids)


def _of_npz(path: Path, ids: Any) -> MultiVectors:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise fault(path, f"cannot be read as .npz ({error})") from None
    if "vectors" not in held or ("offsets" not in held and held["vectors"].ndim != 3):
        raise fault(path, f"holds {', '.join(sorted(held)) or 'nothing'}", _EXPECTED)
    if ids is None:
        ids = held.get("ids")
    return MultiVectors.of(held["vectors"], offsets=held.get("offsets"), ids=ids)


def _of_parquet(path: Path, column: str | None, ids: Any) -> MultiVectors:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise fault(path, f"cannot be read as parquet ({error})") from None
    names = file.schema_arrow.names
    chosen = column or next((name for name in _COLUMNS if name in names), None)
    if chosen is None or chosen not in names:
        raise fault(path, f"has columns {', '.join(names)}; {column or 'none'} holds vectors")
    id_column = next((name for name in _IDS if name in names), None) if ids is None else None
    table = file.read(columns=[chosen, *([id_column] if id_column else [])])
    lists = table[chosen].combine_chunks()
    if not (_is_list(lists.type) and _is_list(lists.type.value_type)):
        raise fault(path, f"column {chosen} is {lists.type}; expected lists of lists of numbers")
    matrix, offsets = _flattened(path, lists)
    given = ids if id_column is None else table[id_column].combine_chunks()
    return MultiVectors.of(matrix, offsets=offsets, ids=given)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _flattened(path: Path, lists: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    import pyarrow.compute as pc

    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    vectors = pc.list_flatten(lists)
    widths = np.asarray(pc.fill_null(pc.list_value_length(vectors), -1))
    if len(widths) == 0 or bool((widths != widths[0]).any()) or widths[0] < 1:
        found = ", ".join(map(str, np.unique(widths)[:5].tolist()))
        raise FormatError(f"{path}: vectors have {found or 'no'} numbers; expected all the same")
    values = pc.list_flatten(vectors)
    if values.null_count:
        raise FormatError(f"{path}: {values.null_count:,} numbers are null")
    matrix = values.to_numpy(zero_copy_only=False).reshape(-1, int(widths[0]))
    return matrix, np.concatenate([[0], np.cumsum(lengths)])
