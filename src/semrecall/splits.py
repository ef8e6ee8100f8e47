"""split(): queries divided into development and test, the same on every machine, and stored."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from semrecall.data import Ids, Judgments, Run
from semrecall.data.frames import columns_of, pick_column
from semrecall.data.ids import codes_in, ids, unify
from semrecall.data.run import QUERY_COLUMNS, group_rows
from semrecall.errors import InputError, SemrecallWarning
from semrecall.formats import read_columns, writing
from semrecall.formats.files import bare_name, fault, named, open_text, read_text
from semrecall.registry import did_you_mean
from semrecall.text import json_read

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DEV", "TEST", "Split", "Use", "count_use", "read_split", "split", "uses_path"]

DEV, TEST = "dev", "test"
#: A test split that was scored with so many different results is no test any more: warn.
PATIENCE = 3
Noun = TypeVar("Noun", Run, Judgments)


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Which part each of n queries belongs to.

    queries: ids, distinct. parts: n names, "dev" or "test" where `split` made it.
    about: how it was made: dev, seed, by.
    """

    queries: Ids
    parts: tuple[str, ...]
    about: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.queries):
            raise InputError(f"{len(self.queries):,} queries but {len(self.parts):,} parts")
        if self.queries.missing.any():
            raise InputError(f"entry {int(np.argmax(self.queries.missing))} has no query id")
        twice = self.queries.first_duplicate()
        if twice is not None:
            raise InputError(f"query {self.queries[twice[0]]!r} is in the split twice")

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {count:,}" for name, count in self.counts.items())
        return f"Split({counts})"

    @property
    def counts(self) -> dict[str, int]:
        """How many queries each part has."""
        return {name: self.parts.count(name) for name in sorted(set(self.parts))}

    def part(self, name: str) -> Ids:
        """The ids of the queries of a part; InputError for a part that is not there."""
        if name not in self.parts:
            raise InputError(f"the split has no part {name!r}", hint=did_you_mean(name, self.parts))
        chosen = self.queries[np.array([part == name for part in self.parts], dtype=bool)]
        assert isinstance(chosen, Ids)
        return chosen

    def select(self, noun: Noun, part: str) -> Noun:
        """The queries of a part out of a run, a truth, or judgments."""
        wanted, known = unify(self.part(part), noun.queries)
        return noun.select(codes_in(known, wanted) >= 0)

    def write(self, path: Path | str) -> None:
        """Write it: .csv or .jsonl of query_id and split, or .json, which says how it was made.

        The whole file or nothing; InputError for other suffixes.
        """
        name = bare_name(Path(path))
        if not name.endswith((".csv", ".json", ".jsonl")):
            raise InputError(
                f"{path}: a split is written as CSV or JSON",
                hint="give the file the suffix .csv, .json or .jsonl",
            )
        pairs = list(zip(self.queries, self.parts, strict=True))
        if name.endswith(".json"):
            of_queries = {str(query): part for query, part in pairs}
            text = json.dumps({**self.about, "split": of_queries}, indent=2, ensure_ascii=False)
        elif name.endswith(".jsonl"):
            rows = ({"query_id": query, "split": part} for query, part in pairs)
            text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        else:
            text = "\n".join(["query_id,split", *(f"{_quoted(str(q))},{p}" for q, p in pairs)])
        with writing(path) as temporary, open_text(temporary) as file:
            file.write((text + "\n").encode())

    def to_dict(self) -> dict[str, Any]:
        """Counts, and how it was made, as plain mappings."""
        return {**self.about, "queries": len(self), "counts": self.counts}


def split(
    queries: Any,
    dev: float = 0.5,
    *,
    seed: int = 0,
    by: str | Sequence[str] = (),
    columns: Any = None,
) -> Split:
    """Divide queries into a part to develop on ("dev") and one to confirm with ("test").

    queries: ids, a Run, Judgments, or a frame or mapping with query_id (and further columns).
    dev: the share of the development part.
    by: columns whose values are spread over both parts alike, each within one query of its share.

    Without `by`, where a query goes depends on its id and on `seed` alone, so it stays there
    whatever other queries come and go. With `by` it depends on the queries beside it: store the
    split. No random numbers are drawn: the id is hashed, the same on every machine.
    """
    if not 0 < dev < 1:
        raise InputError(f"dev is {dev}; expected a share between 0 and 1")
    names = [by] if isinstance(by, str) else list(by)
    found, table = _queries(queries, columns)
    places = _hashes(found, seed)
    into_dev = places < dev
    if names:
        into_dev = _spread(places, _strata(found, table, names), dev, seed)
    parts = tuple(DEV if first else TEST for first in into_dev.tolist())
    return Split(found, parts, MappingProxyType({"dev": dev, "seed": seed, "by": names}))


def read_split(path: Path | str) -> Split:
    """A split from a .json file, or from CSV, TSV, JSON lines or parquet of query_id and split.

    Raises FormatError for anything else.
    """
    path = Path(path)
    if bare_name(path).endswith(".json"):
        return _read_json(path)
    columns = read_columns(path)
    if "split" not in columns:
        others = ", ".join(columns)
        raise fault(path, f"no column for the parts: found columns {others}; expected 'split'")
    parts = [_part(value) for value in columns["split"].tolist()]
    if "" in parts:
        query = columns["query_id"][parts.index("")]
        raise fault(path, f"query {query!r} is in no part; expected dev or test")
    with named(path):
        return Split(columns["query_id"], tuple(parts))


# -- how often the test was used ------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """What the file of uses says about a part after one more use.

    times: how often it was scored. results: how many different results that gave.
    """

    times: int
    results: int


def uses_path(path: Path | str) -> Path:
    """The file beside a split file that counts how often its test was scored."""
    return Path(f"{path}.uses.jsonl")


def count_use(
    path: Path | str,
    part: str,
    values: Iterable[tuple[str, NDArray[np.float64]]],
    *,
    now: datetime.datetime | None = None,
) -> Use:
    """Note one more scoring of a part, and warn where a test was looked at again and again.

    path: of the split file. values: (name, values per query) of all that was measured. The file
    beside it gets a JSON line {"time", "part", "result"}: the time in UTC, and a hash of the
    values, by which the same result twice counts as one. A file that cannot be read or written
    fails nothing: the use is then not counted.
    """
    digest = hashlib.sha256()
    for name, column in values:
        digest.update(f"{name}\0".encode())
        # NaN has many bit patterns, and one meaning.
        digest.update(np.where(np.isnan(column), np.nan, column).astype("<f8").tobytes())
    result = digest.hexdigest()[:16]
    time = now or datetime.datetime.now(datetime.UTC)
    record = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "part": part, "result": result}
    known = [use for use in _uses(path) if use.get("part") == part]
    try:
        with uses_path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError:
        pass
    use = Use(len(known) + 1, len({str(u.get("result")) for u in known} | {result}))
    if part == TEST and use.results >= PATIENCE:
        warnings.warn(
            f"the test split {path} has been scored {use.times:,} times with {use.results:,} "
            "different results: what is chosen by looking at it is fitted to it; choose on dev, "
            "and confirm once on queries that nobody looked at",
            SemrecallWarning,
            stacklevel=2,
        )
    return use


def _uses(path: Path | str) -> list[dict[str, Any]]:
    try:
        lines = uses_path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    found = []
    for line in lines:
        try:
            record = json_read(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


# -- which query goes where -----------------------------------------------------------------


def _queries(queries: Any, columns: Any) -> tuple[Ids, Mapping[str, Any]]:
    """Distinct query ids in order of first appearance, and the columns there are."""
    if isinstance(queries, Run):
        return queries.queries, {} if columns is None else columns_of(columns)
    if isinstance(queries, Judgments):
        return group_rows(queries.queries)[0], {} if columns is None else columns_of(columns)
    if isinstance(queries, Mapping) or hasattr(queries, "columns"):
        own = columns_of(queries)
        found = ids(pick_column(own, QUERY_COLUMNS, "query ids"), what="query ids")
        return group_rows(found)[0], own if columns is None else columns_of(columns)
    found = ids(queries, what="query ids")
    return group_rows(found)[0], {} if columns is None else columns_of(columns)


def _hashes(queries: Ids, seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each query id, by its hash; shape (n,)."""
    places = np.empty(len(queries))
    for at, name in enumerate(queries.strings().tolist()):
        digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
        places[at] = (int.from_bytes(digest, "big") >> 11) / 2.0**53
    return places


def _strata(queries: Ids, table: Mapping[str, Any], names: list[str]) -> list[str]:
    """The stratum of each query: its values in the columns, as text."""
    for name in names:
        if name not in table:
            others = [c for c in table if c not in QUERY_COLUMNS]
            raise InputError(
                f"no column {name!r} to spread over the parts",
                hint=did_you_mean(name, others)
                or "give the columns of the queries (columns=..., --columns FILE)",
            )
    known = ids(pick_column(table, QUERY_COLUMNS, "query ids"), what="query ids")
    wanted, there = unify(queries, known)
    _, first = np.unique(there, return_index=True)
    rows = codes_in(wanted, there[first])
    chosen = np.where(rows >= 0, np.append(first, -1)[rows], -1).tolist()
    values = [list(np.asarray(table[name]).tolist()) for name in names]
    return ["\0".join(_part(v[row]) if row >= 0 else "" for v in values) for row in chosen]


def _spread(
    places: NDArray[np.float64], strata: list[str], dev: float, seed: int
) -> NDArray[np.bool_]:
    """Every so-many-th query, stratum after stratum: each within one query of its share."""
    _, numbers = np.unique(np.array(strata, dtype=object), return_inverse=True)
    order = np.lexsort((places, numbers))
    start = float(_hashes(ids(["where to begin"]), seed)[0])
    steps = np.floor(np.arange(len(order) + 1) * dev + start)
    into_dev = np.zeros(len(order), dtype=bool)
    into_dev[order] = np.diff(steps) > 0
    return into_dev


def _read_json(path: Path) -> Split:
    try:
        document = json_read(read_text(path))
    except ValueError as error:
        raise fault(path, f"is no JSON ({error})") from error
    parts = document.get("split") if isinstance(document, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(p, str) and p for p in parts.values()):
        raise fault(path, 'expected a JSON object with "split": {query id: "dev" or "test"}')
    about = {key: value for key, value in document.items() if key != "split"}
    with named(path):
        return Split(ids(list(parts)), tuple(parts.values()), MappingProxyType(about))


def _part(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value)


def _quoted(text: str) -> str:
    if any(c in text for c in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text
