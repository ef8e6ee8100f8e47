"""Pairs to judge, written to a file: JSON lines, CSV or parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from semrecall.errors import InputError
from semrecall.formats.files import bare_name, open_text, write_text, writing

__all__ = ["write_pairs"]

_TEXTS, _PARQUET = (".jsonl", ".ndjson", ".csv"), (".parquet", ".pq")


def write_pairs(table: Any, path: Path | str, what: str = "pairs are") -> None:
    """Write an arrow table with query_id and doc_id by the suffix of the path, whole or not at all.

    what: subject and verb of the message. Raises InputError for other suffixes than .jsonl, .csv
    (which may end in .gz or .zst, too) and .parquet.
    """
    whole, name = Path(path).name.lower(), bare_name(Path(path))
    if not (name.endswith(_TEXTS) or whole.endswith(_PARQUET)):
        raise InputError(
            f"{path}: {what} written as JSON lines, CSV or parquet",
            hint="give the file the suffix .jsonl, .csv or .parquet; text may end in .gz or "
            ".zst, too",
        )
    with writing(path) as temporary:
        if whole.endswith(_PARQUET):
            import pyarrow.parquet as pq

            pq.write_table(table, temporary)
        elif name.endswith(".csv"):
            import pyarrow.csv as pc

            with open_text(temporary) as sink:
                pc.write_csv(table, sink)
        else:
            rows = table.to_pylist()
            write_text(temporary, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
