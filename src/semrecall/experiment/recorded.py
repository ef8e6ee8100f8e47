"""Values of results, query by query: written beside a summary, and read from what there is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Ids, Scores
from semrecall.data.ids import ids
from semrecall.errors import FormatError, InputError
from semrecall.evaluate import Comparison
from semrecall.experiment.manifest import MANIFEST, Manifest, Record
from semrecall.formats import writing
from semrecall.gates import Mean
from semrecall.text import json_read

if TYPE_CHECKING:
    from semrecall.evaluate import Result

__all__ = ["SCORES", "VALUES", "Recorded", "means_of", "read_results", "write_values"]

#: Files of a results folder: the summary, and the values of every query.
SCORES, VALUES = "scores.json", "values.parquet"
_KIND = b"semrecall values"
_HINT = (
    "give a results folder of semrecall run, the JSON of semrecall score --format json "
    "--per-query, or a saved comparison"
)


@dataclass(frozen=True)
class Recorded:
    """Results that were kept.

    scores: by (run, measure); values of single queries are NaN where only means were kept, and
    then `means` have what there is. settings: the experiment file as it was read. inputs: hashes
    of data by name.
    """

    name: str
    runs: tuple[str, ...]
    measures: tuple[str, ...]
    scores: Mapping[tuple[str, str], Scores] = field(default_factory=dict)
    means: tuple[Mean, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)

    def mean(self, run: str, measure: str) -> Mean | None:
        """The mean of a run over all queries; None where there is none."""
        for row in self.means:
            if (row.run, row.measure, row.column) == (run, measure, ""):
                return row
        scores = self.scores.get((run, measure))
        if scores is None:
            return None
        return Mean(run, measure, scores.mean, n=int(scores.defined.sum()))


def write_values(result: Result, path: str | Path) -> None:
    """The values of every run, measure and query of a result, with the reasons for gaps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = [(run, str(m)) for run in result.runs for m in result.measures]
    n = len(result.queries)
    rows = np.tile(np.arange(n), len(keys))
    values = np.concatenate([result.scores[key].values for key in keys])
    reasons = [r or None for key in keys for r in result.scores[key].reasons]
    table = pa.table(
        {
            "run": pa.array([run for run, _ in keys for _ in range(n)], type=pa.string()),
            "measure": pa.array([m for _, m in keys for _ in range(n)], type=pa.string()),
            "query": result.queries[rows].to_arrow(),
            "value": pa.array(values, mask=np.isnan(values)),
            "reason": pa.array(reasons, type=pa.string()),
        }
    )
    head = {"runs": list(result.runs), "measures": [str(m) for m in result.measures]}
    with writing(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata({_KIND: json.dumps(head, ensure_ascii=False)}), temporary
        )


def means_of(document: Mapping[str, Any]) -> tuple[Mean, ...]:
    """The means of a result's document (scores.json): over all queries, and by slice."""
    rows = [*document["summary"], *(r for part in document["slices"].values() for r in part)]
    return tuple(
        Mean(
            row["run"], row["measure"], _number(row["mean"]), _number(row["low"]),
            _number(row["high"]), row["n"], row.get("column", ""), row.get("group", ""),
        )
        for row in rows
    )  # fmt: skip


def read_results(path: str | Path) -> Recorded:
    """Results from a folder or manifest of `semrecall run`, from JSON of `semrecall score`, or
    from a saved comparison. FormatError for anything else.
    """
    found = Path(path)
    if found.is_dir() or found.name == MANIFEST:
        return _of_folder(found if found.is_dir() else found.parent)
    try:
        if found.suffix.lower() == ".parquet":
            values = _of_values(found)
            return _of_comparison(found) if values is None else values
        whole = json_read(found.read_text(encoding="utf-8-sig"))
        if isinstance(whole, dict) and "summary" in whole:
            return _of_document(found, whole)
        return _of_comparison(found)
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path} holds no results ({error})", hint=_HINT) from error


def read_scores(folder: Path) -> dict[str, Any]:
    """The summary of the runs of an experiment, as its step wrote it."""
    document: dict[str, Any] = json.loads((folder / SCORES).read_text(encoding="utf-8"))
    return document


def _of_folder(folder: Path) -> Recorded:
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder} has no {MANIFEST}", hint=_HINT)
    manifest = Manifest.read(folder)
    if "scores" not in manifest.steps or not (folder / VALUES).exists():
        raise InputError(f"{folder} has no scores yet", hint="semrecall run makes them")
    found = _of_values(folder / VALUES)
    if found is None:
        raise FormatError(f"{folder / VALUES} holds no values of a result")
    document = read_scores(folder)
    steps = manifest.steps
    made = {f"{name}: {key}": v for name, step in steps.items() for key, v in step.made.items()}
    return Recorded(
        str(folder), found.runs, found.measures, found.scores, means_of(document),
        manifest.experiment.get("settings", {}), _data_of(steps), made,
    )  # fmt: skip


def _data_of(steps: Mapping[str, Record]) -> dict[str, str]:
    """The files that came from outside, by name."""
    made = {name for step in steps.values() for name in step.outputs}
    return {
        name: digest
        for step in steps.values()
        for name, digest in step.inputs.items()
        if name not in made
    }


def _of_values(path: Path) -> Recorded | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise FormatError(f"{path}: no parquet file: {error}", hint=_HINT) from error
    head = (table.schema.metadata or {}).get(_KIND)
    if head is None:
        return None
    whole = json.loads(head)
    runs, measures = tuple(whole["runs"]), tuple(whole["measures"])
    n = table.num_rows // max(1, len(runs) * len(measures))
    queries = ids(table["query"][:n], what="query ids")
    values = table["value"].to_numpy()
    reasons = [reason or "" for reason in table["reason"].to_pylist()]
    scores = {}
    for at, (run, measure) in enumerate((r, m) for r in runs for m in measures):
        part = slice(at * n, (at + 1) * n)
        scores[run, measure] = Scores(measure, queries, values[part], tuple(reasons[part]))
    return Recorded(str(path), runs, measures, scores)


def _of_comparison(path: Path) -> Recorded:
    found = Comparison.load(path)
    return Recorded(str(path), found.runs, found.measures, found.scores)


def _of_document(path: Path, whole: Mapping[str, Any]) -> Recorded:
    measures = tuple(row["measure"] for row in whole["measures"])
    means = means_of(whole)
    runs = tuple(dict.fromkeys(row.run for row in means))
    scores: dict[tuple[str, str], Scores] = {}
    rows = whole.get("per_query", [])
    for run in runs if rows else ():
        own = [row for row in rows if row.get("run", run) == run]
        queries: Ids = ids([row["query"] for row in own], what="query ids")
        for measure in measures:
            values = np.array([_number(row.get(measure)) for row in own])
            scores[run, measure] = Scores(measure, queries, values)
    return Recorded(str(path), runs, measures, scores, means, made=whole.get("versions", {}))


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
