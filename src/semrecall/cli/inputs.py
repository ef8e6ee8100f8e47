"""What `score` and `compare` read: their common options, and the Result of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from semrecall.cli.hints import hints_for
from semrecall.cli.labels import LABEL_OPTIONS, label_settings, note_use
from semrecall.cli.sources import BASE, FILE, given_as
from semrecall.cli.spaces import SPACES

if TYPE_CHECKING:
    from semrecall.data import Judgments, Run
    from semrecall.evaluate import Result

__all__ = ["FILE", "evaluated", "input_options", "reading", "run_options", "runs_of", "vectors_of"]

Command = TypeVar("Command", bound=Callable[..., Any])

_RUN_OPTIONS = (
    click.option(
        "--duplicates",
        type=click.Choice(["error", "first"]),
        default="error",
        show_default=True,
        help="A document twice in one ranked list of a file.",
    ),
    click.option(
        "--nan",
        type=click.Choice(["error", "last"]),
        default="error",
        show_default=True,
        help="A NaN score in a file.",
    ),
    click.option(
        "--order",
        type=click.Choice(["score", "rank", "file"]),
        help="Order of the results in a run. Default: TREC files by score, others by rank if any.",
    ),
    click.option(
        "--lower-is-better", is_flag=True, help="Scores of a run, without a space, are distances."
    ),
)
_OPTIONS = (
    click.option("--truth", type=FILE, help="The exact neighbours (made by semrecall truth)."),
    click.option(
        "--judgments", type=FILE, help="Grades of documents: qrels, labels of people or LLMs."
    ),
    click.option(
        "--grade",
        metavar="COLUMN",
        help="Column of the judgments with the grades, or a judge of a ledger.",
    ),
    click.option(
        "-m",
        "--measure",
        "measures",
        multiple=True,
        metavar="NAME",
        help="A measure, e.g. srecall@100; may be repeated. Default: what the files allow.",
    ),
    click.option(
        "--base", type=BASE, help="Base vectors: recompute scores exactly (with --queries)."
    ),
    click.option("--queries", type=FILE, help="Query vectors."),
    click.option("--base-dataset", help="Part of the base file: HDF5 data set or parquet column."),
    click.option("--queries-dataset", help="Part of the queries file."),
    click.option("--base-ids", type=FILE, help="Ids of the base rows, one a line, or .npy."),
    click.option("--query-ids", type=FILE, help="Ids of the queries, one a line, or .npy."),
    click.option(
        "--space",
        type=click.Choice(SPACES),
        help="Space of the scores, where the files do not say.",
    ),
    click.option(
        "--by",
        multiple=True,
        metavar="COLUMN",
        help="Slice by a column of the queries, or by sn: semantic neighbours a query.",
    ),
    click.option("--columns", type=FILE, help="File with query_id and columns to slice by."),
    click.option("--deleted", type=FILE, help="Ids of deleted documents, one a line."),
    click.option(
        "--no-relevant",
        type=click.Choice(["skip", "zero"]),
        default="skip",
        show_default=True,
        help="Queries without a relevant document: left out, or 0 as in trec_eval.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Seed of intervals and tests.",
    ),
    click.option(
        "--confidence",
        type=float,
        default=0.95,
        show_default=True,
        help="Confidence of the intervals; tests are at 1 less this.",
    ),
    click.option(
        "--conflicts",
        type=click.Choice(["error", "max", "first", "last"]),
        default="error",
        show_default=True,
        help="Judgments that contradict each other.",
    ),
    click.option(
        "--subtopics",
        is_flag=True,
        help="The second column of TREC judgments names the subtopic a grade is for.",
    ),
    *_RUN_OPTIONS,
    *LABEL_OPTIONS,
)


def input_options(command: Command) -> Command:
    """Decorator: the options that say what is measured, and against what."""
    return _with(command, _OPTIONS)


def run_options(command: Command) -> Command:
    """Decorator: the options that say how the files of runs are read."""
    return _with(command, _RUN_OPTIONS)


def _with(command: Command, options: Sequence[Callable[[Any], Any]]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def evaluated(given: dict[str, Any], also: Sequence[str] = ()) -> Result:
    """The runs given, measured: what is asked for with -m (else the usual), and `also`."""
    from dataclasses import replace

    from semrecall.evaluate import evaluate

    base, queries = vectors_of(given)
    runs, truth, judgments, codes = _read(given)
    wanted, notes = list(given["measures"]), []
    if not wanted:
        wanted = _default_measures(runs, truth, judgments, given)
        notes = _depth_notes(runs, truth)
    settings = label_settings(given)
    result = evaluate(
        runs,
        [*wanted, *also],
        truth=truth,
        judgments=judgments,
        base=base,
        queries=queries,
        columns=_columns(given["columns"]),
        by=given["by"],
        codes=codes,
        deleted=_deleted(given["deleted"]),
        **settings,
        no_relevant=given["no_relevant"],
        seed=given["seed"],
        confidence=given["confidence"],
    )
    note_use(given, result)
    return replace(result, notes=(*notes, *result.notes))


def _read(given: dict[str, Any]) -> tuple[list[Run], Run | None, Judgments | None, Run | None]:
    from semrecall.formats import read_judgments, read_run

    options = {key: given[key] for key in ("space", "duplicates", "nan")}
    runs = runs_of(given)
    others = []
    for part in ("truth", "codes"):
        path = given.get(part)
        with hints_for(part, path or ""):
            others.append(read_run(path, **options) if path else None)
    judgments = None
    if given["judgments"]:
        chosen = {key: given[key] for key in ("conflicts", "grade", "subtopics")}
        with hints_for("judgments", given["judgments"]):
            judgments = read_judgments(given["judgments"], **chosen)
    return runs, others[0], judgments, others[1]


def vectors_of(given: dict[str, Any]) -> tuple[Any, Any]:
    """Base and query vectors, where both are given; one alone is for `evaluate` to refuse."""
    from semrecall.errors import InputError
    from semrecall.formats import read_queries
    from semrecall.formats.multivectors import holds_documents, read_multivectors
    from semrecall.systems import base_vectors

    for option, part in (
        ("base_dataset", "base"),
        ("base_ids", "base"),
        ("queries_dataset", "queries"),
        ("query_ids", "queries"),
    ):
        if given[option] and not given[part]:
            raise InputError(f"--{option.replace('_', '-')} is given without --{part}")
    base, queries = given["base"], given["queries"]
    if not (base and queries):
        return base, queries
    if holds_documents(base) and holds_documents(queries):
        return (
            read_multivectors(base, dataset=given["base_dataset"], ids=given["base_ids"]),
            read_multivectors(queries, dataset=given["queries_dataset"], ids=given["query_ids"]),
        )
    with hints_for("base", base):
        base = base_vectors(base, dataset=given["base_dataset"], ids=given["base_ids"], whole=True)
    with hints_for("queries", queries):
        queries = read_queries(queries, dataset=given["queries_dataset"], ids=given["query_ids"])
    return base, queries


def reading(given: dict[str, Any]) -> dict[str, Any]:
    """How the files of runs are read, as `read_run` takes it."""
    keys = ("space", "duplicates", "nan", "order", "lower_is_better")
    return {key: given[key] for key in keys if key in given}


def runs_of(given: dict[str, Any]) -> list[Run]:
    """All runs of all files under names that tell them apart: their own, else with their files'."""
    from semrecall.formats import read_runs

    options = reading(given)
    files = []
    for path in given["runs"]:
        with hints_for("run", path):
            files.append((path, read_runs(path, **options)))
    names = [name for _, runs in files for name in runs]
    found = []
    for path, runs in files:
        for name, run in runs.items():
            shown = given_as(path)
            longer = shown if len(runs) == 1 else f"{shown}: {name}"
            found.append(run.replace(name=name if len(set(names)) == len(names) else longer))
    return found


def _columns(path: str | None) -> Any:
    from semrecall.formats import read_columns

    return None if path is None else read_columns(path)


def _deleted(path: str | None) -> list[str] | None:
    from pathlib import Path

    if path is None:
        return None
    lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _default_measures(
    runs: list[Run], truth: Run | None, judgments: Judgments | None, given: dict[str, Any]
) -> list[str]:
    """What the files allow: the three recalls with a truth, else the usual of a ranked list."""
    from semrecall.errors import InputError

    depth = max((run.depth for run in runs), default=0) or 10
    if truth is None:
        of_spans = [f"{name}@{min(depth, 10)}" for name in ("SpanR", "SpanP", "SpanIoU")]
        spans = of_spans if given["spans"] else []
        judged = judgments is not None or spans
        return [*spans, "nDCG@10", "RR@10", f"R@{depth}"] if judged else []
    if truth.depth == 0:
        raise InputError(
            f"{given['truth']}: the truth has no neighbours of any query",
            hint="find the exact neighbours with semrecall truth, or name measures with -m",
        )
    k = min(depth, truth.depth)
    names = [f"recall@{k}"]
    if judgments is not None:
        names.append(f"srecall@{k}")
    scored = truth.flat_scores is not None and truth.space is not None
    if scored or (given["base"] and given["queries"]):
        names.append(f"trecall@{k}")
    return names


def _depth_notes(runs: list[Run], truth: Run | None) -> list[str]:
    """That the k chosen here is the depth of the runs, where the truth is deeper."""
    depth = max((run.depth for run in runs), default=0)
    if truth is None or not 0 < depth < truth.depth:
        return []
    return [
        f"measured at k = {depth}, the depth of the {'run' if len(runs) == 1 else 'runs'}; the "
        f"truth is {truth.depth} deep: write -m recall@{truth.depth} to measure at the depth of "
        "the truth"
    ]
