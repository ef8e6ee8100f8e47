"""A Result as plain mappings and lists, for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from semrecall.evaluate.unjudged import unjudged

if TYPE_CHECKING:
    from semrecall.evaluate.result import Result, Summary

__all__ = ["document", "per_query", "summary_row", "ties", "titles"]


def document(result: Result) -> dict[str, Any]:
    """Everything but the values per query. NaN stands where a statistic is undefined."""
    truth = result.truth
    return {
        "versions": result.versions,
        "queries": len(result.queries),
        "k": result.k,
        "space": None if result.space is None else str(result.space),
        "confidence": result.confidence,
        "resamples": result.resamples,
        "seed": result.seed,
        "truth": None if truth is None else {"k": truth.k, **dict(truth.identity)},
        "runs": {name: asdict(counts) for name, counts in result.counts.items()},
        "measures": [
            {
                "measure": str(m),
                "layer": m.layer,
                "about": m.about,
                "lower_is_better": m.lower_is_better,
            }
            for m in result.measures
        ],
        "summary": [summary_row(row) for row in result.summary()],
        "slices": {
            column: [summary_row(row) for row in result.summary(by=column)]
            for column in result.slices
        },
        "split": [
            {
                "run": split.run_name,
                "measure": split.measure,
                "quantisation": split.mean_quantisation,
                "index": split.mean_index,
                "total": split.mean_total,
                "n": split.n,
            }
            for split in result.splits
        ],
        "unjudged": [
            asdict(row) for part in [None, *result.slices] for row in unjudged(result, part)
        ],
        "intervals": result.interval_methods,
        "notes": list(result.notes),
    }


_FIGURES = {
    "mean": "mean",
    "low": "low",
    "high": "high",
    "sd": "sd",
    "median": "median",
    "p1": "p1",
    "p5": "p5",
    "p10": "p10",
    "at_one": "at 1",
    "at_zero": "at 0",
    "judged": "judged",
    "n": "queries",
    "micro": "pooled",
}


def summary_row(row: Summary) -> dict[str, Any]:
    """One summary as a mapping; the slice's column and group only where there is one."""
    plain: dict[str, Any] = {"run": row.run, "measure": row.measure}
    if row.column:
        plain |= {"column": row.column, "group": row.group}
    plain |= {name: getattr(row, name) for name in _FIGURES}
    if row.column:
        plain["few"] = row.few
    return plain | {"left_out": dict(row.left_out), "notes": list(row.notes)}


def titles(*, with_run: bool, with_group: bool) -> dict[str, str]:
    """Headings of `summary_row`, in order."""
    found = {"run": "run"} if with_run else {}
    found["measure"] = "measure"
    if with_group:
        found |= {"column": "slice", "group": "group"}
    few = {"few": "few"} if with_group else {}
    return found | _FIGURES | few | {"left_out": "left out"}


def ties(result: Result, *, per_query: bool = False) -> list[dict[str, Any]]:
    """A row per run and measure (and query): the range over all orders of tied results.

    Rows of slices come after those of all queries; values by query are not repeated in them.
    """
    rows = []
    parts = [None] if per_query else [None, *result.slices]
    for found in [row for part in parts for row in result.ties(by=part)]:
        head = {"run": found.run, "measure": found.measure}
        if not per_query:
            if result.slices:
                head |= {"column": found.column, "group": found.group}
            rows.append(
                head
                | {"low": found.low, "expected": found.expected, "mean": found.mean}
                | {"high": found.high, "touched": found.touched, "queries": found.n}
            )
            continue
        values = result.scores[found.run, found.measure].values
        columns = (result.queries.strings(), *found.ranges, values)
        for query, low, expected, high, value in zip(*(c.tolist() for c in columns), strict=True):
            rows.append(
                {"query": query, **head, "low": low, "expected": expected, "value": value}
                | {"high": high}
            )
    return rows


def per_query(result: Result) -> list[dict[str, Any]]:
    """A row per query and run: query, slice columns, run (where there are several), values."""
    queries = list(result.queries)
    labels = {column: part.labels for column, part in result.slices.items()}
    rows = []
    for run in result.runs:
        values = {str(m): result.scores[run, str(m)].values.tolist() for m in result.measures}
        for i, query in enumerate(queries):
            row: dict[str, Any] = {"query": query}
            row |= {column: labels[column][i] for column in labels}
            if len(result.runs) > 1:
                row["run"] = run
            rows.append(row | {name: column[i] for name, column in values.items()})
    return rows
