"""A Comparison in one file, JSON or parquet, so that runs can be added later."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Scores
from semrecall.data.ids import ids
from semrecall.data.slices import Slice
from semrecall.errors import FormatError, InputError
from semrecall.evaluate.comparison import Comparison
from semrecall.formats.files import write_whole, writing
from semrecall.text import json_read

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["load", "save"]

_KIND = "semrecall comparison"
_VERSION = 1
_SUFFIXES = (".json", ".parquet")


def save(comparison: Comparison, path: str | Path) -> None:
    """Write to a .json or .parquet file, whole or not at all. Raises InputError for others."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"{path}: a comparison is saved as {' or '.join(_SUFFIXES)}")
    if suffix == ".parquet":
        with writing(path) as temporary:
            _write_parquet(comparison, temporary)
    else:
        whole = _head(comparison) | _values(comparison)
        write_whole(path, json.dumps(whole, ensure_ascii=False, allow_nan=False) + "\n")


def load(path: str | Path) -> Comparison:
    """Read what `save` wrote. Raises FormatError for another file, or one of a later version."""
    found = Path(path)
    with found.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    try:
        whole = _read_parquet(found) if is_parquet else json_read(found.read_text("utf-8-sig"))
        kind = whole.get("kind")
    except (ValueError, AttributeError) as error:
        raise _strange(path, "it is not JSON") from error
    if kind != _KIND:
        raise _strange(path, "it says nothing of a comparison")
    version = whole.get("version")
    if isinstance(version, int) and version > _VERSION:
        raise FormatError(
            f"{path} was saved by a later semrecall (version {version} of the file; "
            f"expected {_VERSION})",
            hint="update semrecall",
        )
    try:
        if version != _VERSION:
            raise ValueError(f"version {version!r}")
        comparison = _comparison(whole)
        _check(comparison)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise _strange(path, f"a part is missing or damaged ({error})") from error
    return comparison


def _check(comparison: Comparison) -> None:
    """Raise ValueError for what no comparison that was saved can be."""
    n = len(comparison.queries)
    if comparison.queries.first_duplicate() is not None:
        raise ValueError("a query twice")
    for part in comparison.slices.values():
        numbers = part.numbers
        if numbers.shape != (n,) or ((numbers < 0) | (numbers >= len(part.groups))).any():
            raise ValueError(f"slices by {part.column}")
    for (run, measure), scores in comparison.scores.items():
        if np.isinf(scores.values).any():
            raise ValueError(f"{measure} of {run} is infinite")
    for name in ("permutations", "labellings", "resamples"):
        value = getattr(comparison, name)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}")


def _strange(path: str | Path, why: str) -> FormatError:
    return FormatError(
        f"{path} is not a saved comparison: {why}",
        hint="save one with semrecall compare --save FILE, or Comparison.save",
    )


# -- as JSON ----------------------------------------------------------------------------------


def _head(comparison: Comparison) -> dict[str, Any]:
    return {
        "kind": _KIND,
        "version": _VERSION,
        "settings": comparison.settings,
        "runs": list(comparison.runs),
        "measures": list(comparison.measures),
        "lower_is_better": sorted(comparison.lower_is_better),
        "shares": sorted(comparison.shares),
        "slices": {
            name: {"groups": part.groups, "numbers": part.numbers.tolist(), "about": part.about}
            for name, part in comparison.slices.items()
        },
        "identity": dict(comparison.identity),
        "notes": list(comparison.notes),
        "judged": [[*key, None if math.isnan(v) else v] for key, v in comparison.judged.items()],
        "score_notes": [
            [run, measure, list(scores.notes)]
            for (run, measure), scores in comparison.scores.items()
            if scores.notes
        ],
    }


def _values(comparison: Comparison) -> dict[str, Any]:
    scores = {
        run: {
            measure: {
                "values": [
                    None if math.isnan(v) else v
                    for v in comparison.scores[run, measure].values.tolist()
                ],
                "reasons": _reasons(comparison.scores[run, measure]),
            }
            for measure in comparison.measures
        }
        for run in comparison.runs
    }
    return {"queries": list(comparison.queries), "scores": scores}


def _reasons(scores: Scores) -> dict[str, list[int]]:
    """Positions of the queries without a value, by reason."""
    found: dict[str, list[int]] = {}
    for at, reason in enumerate(scores.reasons):
        if reason:
            found.setdefault(reason, []).append(at)
    return found


def _comparison(whole: Mapping[str, Any]) -> Comparison:
    queries = whole["queries"]
    queries = queries if isinstance(queries, Ids) else ids(queries, what="query ids")
    notes = {(run, measure): tuple(said) for run, measure, said in whole["score_notes"]}
    scores = {}
    for run in whole["runs"]:
        for measure in whole["measures"]:
            part = whole["scores"][run][measure]
            values = np.array(part["values"], dtype=np.float64)
            reasons = np.full(len(values), "", dtype=object)
            for reason, at in part["reasons"].items():
                reasons[at] = reason
            scores[run, measure] = Scores(
                measure, queries, values, tuple(reasons.tolist()), notes.get((run, measure), ())
            )
    return Comparison(
        runs=tuple(whole["runs"]),
        measures=tuple(whole["measures"]),
        queries=queries,
        scores=scores,
        slices={
            name: Slice(
                name,
                tuple(part["groups"]),
                np.array(part["numbers"], dtype=np.int64),
                part["about"],
            )
            for name, part in whole["slices"].items()
        },
        lower_is_better=frozenset(whole["lower_is_better"]),
        shares=frozenset(whole["shares"]),
        identity=whole["identity"],
        notes=tuple(whole["notes"]),
        judged={
            (run, measure): math.nan if value is None else value
            for run, measure, value in whole.get("judged", [])
        },
        **whole["settings"],
    )


# -- as parquet: a row a run, measure and query; the rest beside the schema -----------------------


def _write_parquet(comparison: Comparison, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = [(run, measure) for run in comparison.runs for measure in comparison.measures]
    n = len(comparison.queries)
    rows = np.tile(np.arange(n), len(keys))
    values = np.concatenate([comparison.scores[key].values for key in keys])
    reasons = [r or None for key in keys for r in comparison.scores[key].reasons]
    table = pa.table(
        {
            "run": pa.array([run for run, _ in keys for _ in range(n)]).dictionary_encode(),
            "measure": pa.array([m for _, m in keys for _ in range(n)]).dictionary_encode(),
            "query": comparison.queries[rows].to_arrow(),
            "value": pa.array(values, mask=np.isnan(values)),
            "reason": pa.array(reasons, type=pa.string()).dictionary_encode(),
        }
    )
    head = json.dumps(_head(comparison), ensure_ascii=False, allow_nan=False)
    pq.write_table(table.replace_schema_metadata({_KIND: head}), path)


def _read_parquet(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    head = (table.schema.metadata or {}).get(_KIND.encode())
    if head is None:
        return {}
    whole: dict[str, Any] = json.loads(head)
    runs, measures = whole["runs"], whole["measures"]
    n = table.num_rows // (len(runs) * len(measures))
    values = table["value"].to_numpy()
    reasons = table["reason"].to_pylist()
    scores: dict[str, dict[str, Any]] = {run: {} for run in runs}
    for at, (run, measure) in enumerate((r, m) for r in runs for m in measures):
        part = slice(at * n, (at + 1) * n)
        found: dict[str, list[int]] = {}
        for position, reason in enumerate(reasons[part]):
            if reason:
                found.setdefault(reason, []).append(position)
        scores[run][measure] = {"values": values[part], "reasons": found}
    return whole | {"queries": ids(table["query"][:n], what="query ids"), "scores": scores}
