"""semrecall score: runs against truth and judgments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.data import Judgments, Run
    from semrecall.evaluate import Result

__all__ = ["command"]

_FILE = click.Path(exists=True)


@click.command("score")
@click.argument("runs", nargs=-1, required=True, type=_FILE, metavar="RUN...")
@click.option("--truth", type=_FILE, help="The exact neighbours (made by semrecall truth).")
@click.option(
    "--judgments", type=_FILE, help="Grades of documents: qrels, labels of people or LLMs."
)
@click.option(
    "-m",
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="A measure, e.g. srecall@100; may be repeated. Default: what the files allow.",
)
@click.option("--base", type=_FILE, help="Base vectors: recompute scores exactly (with --queries).")
@click.option("--queries", type=_FILE, help="Query vectors.")
@click.option(
    "--space",
    type=click.Choice(["ip", "cosine", "l2"]),
    help="Space of the scores, where the files do not say.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Slice by a column of the queries, or by sn: semantic neighbours a query.",
)
@click.option("--columns", type=_FILE, help="File with query_id and columns to slice by.")
@click.option(
    "--codes",
    type=_FILE,
    help="Run of exact search over the quantised vectors: splits the loss in two.",
)
@click.option("--deleted", type=_FILE, help="Ids of deleted documents, one a line.")
@click.option("--per-query", is_flag=True, help="Print the values of every query.")
@click.option(
    "--html", type=click.Path(dir_okay=False), metavar="FILE", help="Also write an HTML report."
)
@click.option(
    "--fail-under",
    multiple=True,
    metavar="MEASURE=VALUE",
    help="Exit with 1 when the mean is worse; may be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the intervals.")
@click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Confidence of the intervals."
)
@click.option(
    "--conflicts",
    type=click.Choice(["error", "max", "first", "last"]),
    default="error",
    show_default=True,
    help="Judgments that contradict each other.",
)
@click.option(
    "--duplicates",
    type=click.Choice(["error", "first"]),
    default="error",
    show_default=True,
    help="A document twice in one ranked list of a file.",
)
@click.option(
    "--nan",
    type=click.Choice(["error", "last"]),
    default="error",
    show_default=True,
    help="A NaN score in a file.",
)
@format_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Measure runs against truth and judgments.

    \b
    semrecall score run.parquet --truth truth.parquet --judgments labels.parquet
    semrecall score old.txt new.txt --judgments qrels.txt -m nDCG@10 -m R@100
    semrecall score run.parquet --truth truth.parquet --fail-under recall@10=0.95

    Several runs stand side by side. A query in the truth (or, without one, in the judgments)
    that a run lacks scores 0. Exit status: 0 done, 1 a --fail-under was not met, 2 wrong input.
    """
    from semrecall.evaluate import evaluate
    from semrecall.registry import import_extra

    gates = [_gate(text) for text in given["fail_under"]]
    if given["html"]:
        # Better now than after the work.
        import_extra("matplotlib", "report", "an HTML report")
    runs, truth, judgments, codes = _read(given)
    wanted = list(given["measures"]) or _default_measures(runs, truth, judgments, given)
    result = evaluate(
        runs,
        [*wanted, *(name for name, _ in gates)],
        truth=truth,
        judgments=judgments,
        base=given["base"],
        queries=given["queries"],
        columns=_columns(given["columns"]),
        by=given["by"],
        codes=codes,
        deleted=_deleted(given["deleted"]),
        seed=given["seed"],
        confidence=given["confidence"],
    )
    failed = _failed(result, gates)
    _show(result, given["format"], given["per_query"], failed)
    if given["html"]:
        result.to_html(given["html"], command=_command_line())
        click.echo(f"wrote {given['html']}", err=True)
    for line in failed:
        click.echo(f"failed: {line}", err=True)
    ctx.exit(1 if failed else 0)


# -- what goes in ---------------------------------------------------------------------------


def _read(given: dict[str, Any]) -> tuple[list[Run], Run | None, Judgments | None, Run | None]:
    from semrecall.formats import read_judgments, read_run

    options = {key: given[key] for key in ("space", "duplicates", "nan")}
    runs = _distinct([read_run(path, **options) for path in given["runs"]], given["runs"])
    truth = read_run(given["truth"], **options) if given["truth"] else None
    codes = read_run(given["codes"], **options) if given["codes"] else None
    judgments = None
    if given["judgments"]:
        judgments = read_judgments(given["judgments"], conflicts=given["conflicts"])
    return runs, truth, judgments, codes


def _distinct(runs: list[Run], paths: list[str]) -> list[Run]:
    """Runs under names that tell them apart: their own, else those of their files."""
    from pathlib import Path

    names = [
        run.name or Path(path).name.split(".")[0] for run, path in zip(runs, paths, strict=True)
    ]
    if len(set(names)) < len(names):
        names = list(paths)
    return [run.replace(name=name) for run, name in zip(runs, names, strict=True)]


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
    depth = max((run.depth for run in runs), default=0) or 10
    if truth is None:
        return [] if judgments is None else ["nDCG@10", "RR@10", f"R@{depth}"]
    k = min(depth, truth.depth) or 1
    names = [f"recall@{k}"]
    if judgments is not None:
        names.append(f"srecall@{k}")
    scored = truth.flat_scores is not None and truth.space is not None
    if scored or (given["base"] and given["queries"]):
        names.append(f"trecall@{k}")
    return names


def _gate(text: str) -> tuple[str, float]:
    """`srecall(rel=2)@100=0.95` or `...=95%` as a measure and a number."""
    from semrecall.errors import InputError

    name, _, value = text.rpartition("=")
    percent = value.strip().endswith("%")
    try:
        limit = float(value.strip().rstrip("%")) / (100 if percent else 1)
    except ValueError:
        limit = float("nan")
    if not name.strip() or limit != limit:
        raise InputError(
            f"--fail-under {text!r} is not MEASURE=VALUE", hint="for example srecall@100=0.95"
        )
    return name.strip(), limit


# -- what comes out -------------------------------------------------------------------------


def _failed(result: Result, gates: list[tuple[str, float]]) -> list[str]:
    """One line for each gate a run does not pass; a mean over no query passes none."""
    from semrecall.measures import parse

    lines = []
    for name, limit in gates:
        measure = parse(name)
        for run in result.runs:
            mean = result.mean(name, run)
            passed = mean <= limit if measure.lower_is_better else mean >= limit
            if not passed:
                of_run = f" of {run}" if len(result.runs) > 1 else ""
                found = f"{mean:.6g}" if mean == mean else "undefined for every query"
                side = "above" if measure.lower_is_better else "under"
                if mean == mean:
                    found += f", {side} {limit:g}"
                lines.append(f"{measure}{of_run} is {found}")
    return lines


def _show(result: Result, format: str, per_query: bool, failed: list[str]) -> None:  # noqa: A002
    from semrecall.cli.tables import print_rows
    from semrecall.evaluate import document, table

    if format == "json":
        whole = result.to_dict() | {"failed": failed}
        if per_query:
            whole["per_query"] = document.per_query(result)
        print_rows([], "json", document=whole)
    elif per_query:
        print_rows(document.per_query(result), format)
    elif format == "table":
        click.echo(str(result))
    else:
        rows = [row for part in [None, *result.slices] for row in result.summary(by=part)]
        notes = [] if format == "csv" else table.remarks(result)
        several = len(result.runs) > 1 or format == "csv"
        titles = document.titles(with_run=several, with_group=bool(result.slices))
        print_rows([document.summary_row(row) for row in rows], format, titles=titles, notes=notes)


def _command_line() -> str:
    import shlex
    import sys

    return shlex.join(["semrecall", *sys.argv[1:]])
