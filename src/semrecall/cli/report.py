"""semrecall report: one HTML page of what is lost, where, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.columns import LABELS, judgments_in, path_and_column
from semrecall.cli.hints import hints_for
from semrecall.cli.inputs import FILE, evaluated, input_options, vectors_of
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.waterfall import stage_cut, stage_options, stage_runs

if TYPE_CHECKING:
    from semrecall.agreement import Agreement
    from semrecall.data import Cost
    from semrecall.evaluate import Result
    from semrecall.tolerance import ToleranceReport
    from semrecall.tuning.saved_sweep import SavedSweep
    from semrecall.waterfall import Waterfall

__all__ = ["command"]

OUTPUT = "semrecall-report.html"


@click.command("report", cls=WritingCommand)
@click.argument("runs", nargs=-1, required=True, type=FILE, metavar="RUN...")
@input_options
@click.option(
    "--codes",
    type=FILE,
    help="Run of exact search over the quantised vectors: its share of the loss.",
)
@click.option("--texts", type=FILE, help="Texts of the queries: JSON lines of id and text.")
@click.option("--corpus", type=FILE, help="Texts of the documents, likewise.")
@click.option(
    "--stage", "stages", multiple=True, metavar="NAME=FILE",
    help="Results of a stage after the index, in order: rerank=b.parquet; may be repeated.",
)  # fmt: skip
@stage_options("--stage")
@click.option(
    "--sweep", type=FILE, help="Settings and their cost, from semrecall sweep --format json."
)
@click.option(
    "--cost", "costs", type=FILE, multiple=True,
    help="What each query cost, from semrecall search --cost: one for each RUN, in their order.",
)  # fmt: skip
@click.option(
    "--agree", type=LABELS, multiple=True, metavar="FILE[:COLUMN]",
    help="Labels of another judge, to compare with --judgments; may be repeated.",
)  # fmt: skip
@click.option("--title", help="Instead of the answer in one sentence.")
@click.option(
    "-o", "--output", type=OutputPath(".html", ".htm", dir_okay=False), default=OUTPUT,
    show_default=True, help="The page.",
)  # fmt: skip
@click.option(
    "--figures", type=click.Path(file_okay=False), metavar="DIR",
    help="Also write every figure there, as SVG, PNG and CSV.",
)  # fmt: skip
def command(**given: Any) -> None:
    """Write one HTML page: what is lost, where, for whom, at what cost, and what to do next.

    \b
    semrecall report run.parquet --truth truth.parquet --judgments labels.parquet
    semrecall report run.parquet --truth truth.parquet --judgments llm.parquet \\
        --codes codes.parquet --context read.parquet --texts queries.jsonl --corpus docs.jsonl \\
        --base base.npy --queries queries.npy --columns queries.jsonl --by topic \\
        --sweep sweep.json --agree people.jsonl -o report.html --figures figures

    The page stands alone: no other file and no server is asked. `semrecall score --html` is the
    short way to it. Prints the answer in one sentence.
    """
    from semrecall.registry import import_extra
    from semrecall.report import figures_of, headline, write_html

    # Better now than after the work.
    import_extra("matplotlib", "report", "an HTML report")
    given = _usual(given)
    parts = _later_parts(given)
    result = evaluated(given)
    parts |= {
        "costs": _by_run(parts["costs"], result),
        "earlier": _earlier(given, result, parts["sweep"]),
        "waterfall": _waterfall(given, result, parts["query_texts"], parts["document_texts"]),
        "tolerance": _tolerance(given, result),
        "agreement": _agreement(given, result),
    }
    drawn = figures_of(lambda: write_html(result, given["output"], **parts))
    click.echo(given["title"] or headline(result))
    click.echo(f"wrote {given['output']}", err=True)
    if given["figures"]:
        written = drawn.save(given["figures"])
        click.echo(f"wrote {len(written):,} files to {given['figures']}", err=True)


def _usual(given: dict[str, Any]) -> dict[str, Any]:
    """What is not given: groups by semantic neighbours, columns from the texts of the queries."""
    by = given["by"]
    if not by and given["truth"] and given["judgments"]:
        by = ("sn",)
    columns = given["columns"]
    if columns is None and set(by) - {"sn"}:
        columns = given["texts"]
    return given | {"by": by, "columns": columns}


def _later_parts(given: dict[str, Any]) -> dict[str, Any]:
    """What the page takes beside the result: texts, a sweep, the files and the command."""
    from semrecall.cli.sources import files_read
    from semrecall.formats import read_cost, read_texts
    from semrecall.report.making import Source
    from semrecall.tuning.saved_sweep import read_sweep

    sources = files_read()
    sources |= {
        name: Source(path)
        for name, _, path in (text.partition("=") for text in given["stages"])
        if path
    }
    return {
        "query_texts": read_texts(given["texts"]) if given["texts"] else None,
        "document_texts": read_texts(given["corpus"]) if given["corpus"] else None,
        "sweep": read_sweep(given["sweep"]) if given["sweep"] else None,
        "costs": [read_cost(path) for path in given["costs"]],
        "sources": sources,
        "command": command_line(),
        "title": given["title"],
    }


def _by_run(costs: list[Cost], result: Result) -> dict[str, Cost]:
    from semrecall.errors import InputError

    if costs and len(costs) != len(result.runs):
        raise InputError(
            f"{len(costs)} --cost for {len(result.runs)} runs",
            hint="give one for each RUN, in their order, or none",
        )
    return dict(zip(result.runs, costs, strict=False))


def _earlier(given: dict[str, Any], result: Result, sweep: SavedSweep | None) -> list[str]:
    """The commands that made what is read here, as far as they are known."""
    from semrecall.report.making import truth_command

    lines = []
    if given["truth"]:
        lines = truth_command(result, given["base"], given["queries"], given["truth"])
    if sweep is not None and sweep.command:
        lines.append(f"{sweep.command} > {given['sweep']}")
    return lines


def _waterfall(
    given: dict[str, Any], result: Result, query_texts: Any, document_texts: Any
) -> Waterfall | None:
    """With the stages after the index; None where there are none: the page makes its own."""
    from semrecall.errors import InputError
    from semrecall.report.waterfall import result_waterfall

    later = stage_runs(given["stages"], given)
    if not later and not given["cuts"]:
        return None
    if len(result.runs) != 1 or result.judgments is None:
        raise InputError(
            f"stages are given for {len(result.runs)} runs"
            if len(result.runs) != 1
            else "stages are given without judgments",
            hint="give one run, and --judgments: what is lost are relevant documents",
        )
    return result_waterfall(
        result,
        result.runs[0],
        later=later,
        cuts=dict(stage_cut(cut) for cut in given["cuts"]),
        query_texts=query_texts,
        document_texts=document_texts,
    )


def _tolerance(given: dict[str, Any], result: Result) -> ToleranceReport | None:
    """With the error of 8-bit codes, where the vectors are at hand."""
    from semrecall.tolerance import tolerance

    if not (given["base"] and given["queries"]) or result.truth is None or result.k is None:
        return None
    if len(result.runs) != 1 or result.truth.flat_scores is None:
        return None
    base, queries = vectors_of(given)
    return tolerance(
        result.truth,
        result.k,
        run=result.given[result.runs[0]],
        judgments=result.judgments,
        base=base,
        queries=queries,
        rel=1.0 if result.semantic is None else result.semantic.rel,
    )


def _agreement(given: dict[str, Any], result: Result) -> Agreement | None:
    from pathlib import Path

    from semrecall.agreement import agree
    from semrecall.errors import InputError

    if not given["agree"]:
        return None
    if result.judgments is None:
        raise InputError("--agree compares with the judgments; expected --judgments FILE")
    judges = {Path(str(given["judgments"] or "judgments")).stem: result.judgments}
    for text in given["agree"]:
        path, column = path_and_column(text)
        with hints_for("judgments", path):
            found = judgments_in(text, given["conflicts"])
        name = column or Path(path).stem
        judges[name if name not in judges else text] = found
    return agree(
        judges,
        rel=1.0 if result.semantic is None else result.semantic.rel,
        truth=result.truth,
        k=result.k if result.truth is not None else None,
        seed=given["seed"],
        confidence=given["confidence"],
    )
