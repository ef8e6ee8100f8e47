"""What a truth's filter is: masks, allowed ids, files of either, or predicates over columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semrecall.data.ids import Ids
from semrecall.errors import InputError
from semrecall.formats import read_allowed
from semrecall.formats.predicates import parameters_in, parse_predicate
from semrecall.formats.selection import allowed_by, query_columns
from semrecall.formats.shards import Shard

__all__ = ["allowed_for", "are_predicates", "names_file", "parquet_files"]

_FILE = re.compile(r"[^<>=]+\.(npy|jsonl|ndjson|json|parquet|pq|csv|tsv)(\.gz|\.zst)?")


def allowed_for(
    given: Any,
    base: Any,
    queries: Any,
    columns: Any = None,
    own: Mapping[str, Any] | Path | str | None = None,
) -> Any:
    """What `filter` of `truth` says, as `Filter` takes it.

    base, queries: what is searched. columns: those of the base. own: those of the queries.
    """
    if isinstance(given, Path) or (isinstance(given, str) and names_file(given)):
        return read_allowed(given)
    each = _predicates(given)
    if each is None:
        return given
    if all(one is None for one in each):
        return None
    if columns is None:
        raise InputError(
            "a filter over columns needs the columns of the base",
            hint="give them: --base-columns FILE, columns=; a base of parquet files has its own",
        )
    distinct = {repr(one): one for one in each if one}
    names = {n for one in distinct.values() for n in parameters_in(parse_predicate(one))}
    if isinstance(own, str | Path):
        named = queries.given_ids is not None
        own = query_columns(own, sorted(names), queries.ids, named=named) if names else None
    if own is not None and names and isinstance(given, Mapping):
        given = _in_order(given, queries.ids)
    return allowed_by(given, columns, query_columns=own)


def are_predicates(given: Any) -> bool:
    """Whether a filter is told by predicates, which may be asked of other columns, too."""
    if isinstance(given, Path) or (isinstance(given, str) and names_file(given)):
        return False
    return _predicates(given) is not None


def names_file(text: str) -> bool:
    """Whether a text is the name of a file, not a predicate."""
    return Path(text).exists() or bool(_FILE.fullmatch(text))


def parquet_files(files: Sequence[Shard]) -> list[Path] | None:
    """The files of a base on this machine, where all are parquet."""
    paths = [shard.source.local for shard in files]
    found = [path for path in paths if path is not None and path.suffix in (".parquet", ".pq")]
    return found if len(found) == len(paths) else None


def _predicates(given: Any) -> list[Any] | None:
    """The predicates in a filter, empty ones too; None where it is something else."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Mapping | list | tuple) or len(given) == 0:
        return None
    each = list(given.values()) if isinstance(given, Mapping) else list(given)
    return each if all(one is None or isinstance(one, str | Mapping) for one in each) else None


def _in_order(given: Mapping[Any, Any], queries: Ids) -> list[Any]:
    """Predicates by query id in the order of the queries."""
    known = {str(name): one for name, one in given.items()}
    lacking = [name for name in queries if str(name) not in known]
    if lacking:
        raise InputError(
            f"{len(lacking):,} of {len(queries):,} queries have no filter, the first is "
            f"{lacking[0]!r}",
            hint="give every query one; None filters nothing",
        )
    return [known[str(name)] for name in queries]
