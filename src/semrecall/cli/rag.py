"""semrecall rag: measures of what a generator read, and of what it answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.ci import ci_options
from semrecall.cli.judge import judge_options
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.sources import FILE, files_read
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.gates import Verdict
    from semrecall.rag import RagResult

__all__ = ["command"]

#: Each kind of verdict has its own: these are refused with the reason, and not shown.
_REFUSED = ("prompt", "scale", "calibrate_with")


def _judge_options(command: Any) -> Any:
    """Decorator: the options of `judge_options`, those that are refused here without their help."""
    command = judge_options(command)
    for option in command.__click_params__:
        if option.name in _REFUSED:
            option.hidden = True
    return command


@click.command("rag", cls=WritingCommand)
@click.argument("records", type=FILE)
@click.option(
    "-m", "--measure", "measures", multiple=True, metavar="NAME",
    help="E.g. faithfulness, context_precision(by=ids); may be repeated.  [default: "
    "context_precision, context_recall, faithfulness, answer_relevancy]",
)  # fmt: skip
@_judge_options
@click.option(
    "--verdicts", type=FILE,
    help="Verdicts that are there already, of people or of another judge, in place of one.",
)  # fmt: skip
@click.option(
    "--claims", type=click.Choice(["model", "sentences"]), default=None,
    help="Who breaks answers into claims; by default the model where there is one.",
)  # fmt: skip
@click.option(
    "--embed", metavar="SPEC",
    help="For answer_relevancy(form=questions): as semrecall embed --with.",
)  # fmt: skip
@click.option(
    "--pairs", "folder", type=click.Path(file_okay=False),
    help="Ask nobody: write every pair that needs a verdict to a folder, for semrecall label.",
)  # fmt: skip
@click.option("--again", multiple=True, metavar="STATUS",
              help='Ask once more what ended so, e.g. "unparsed"; may be repeated.')  # fmt: skip
@click.option(
    "--ledger", type=click.Path(dir_okay=False), default="semrecall.ledger", show_default=True,
    help="Where every verdict is kept; what it holds is not asked again.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what it would take, and ask nothing.")
@click.option("--by", multiple=True, metavar="COLUMN", help="Slice by a field of the records.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the intervals.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option(
    "--fail-under", multiple=True, metavar="MEASURE=VALUE",
    help="Exit with 1 when the mean is worse; may be repeated.",
)  # fmt: skip
@click.option("--per-question", is_flag=True, help="Print the values of every question.")
@click.option(
    "--html", type=OutputPath(".html", ".htm", dir_okay=False), metavar="FILE",
    help="Also write a page with every question, its claims and its verdicts.",
)  # fmt: skip
@ci_options
@format_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Measure what a generator read (context) and what it answered (answer).

    RECORDS are JSON lines of question, contexts (ids and texts), answer and reference, or - for
    standard input; the fields of common frameworks are understood. A verdict that does not come
    leaves its question without a value: counted, never guessed.

    \b
    semrecall rag records.jsonl --model gpt-5-mini
    semrecall rag records.jsonl -m "context_precision(by=ids)" -m "context_recall(by=ids)"
    semrecall rag records.jsonl --verdicts verdicts.jsonl --fail-under faithfulness=0.9

    Exit status: 0 done, 1 a gate failed, 2 wrong input, 3 stopped before the end (a cap, a quota).
    """
    from semrecall.gates import Gate, verdicts
    from semrecall.rag import DEFAULT, chosen
    from semrecall.registry import import_extra

    if given["html"]:
        import_extra("matplotlib", "report", "an HTML report")
    for name in ("prompt", "scale"):
        if given[name] is not None:
            raise click.UsageError(f"--{name} is for semrecall judge: each verdict has its own")
    gates = [Gate.read(text) for text in given["fail_under"]]
    names = [*(given["measures"] or DEFAULT), *(gate.measure for gate in gates)]
    wanted = chosen(list(dict.fromkeys(names)))
    if given["folder"]:
        _write_pairs(wanted, given)
        return
    if given["dry_run"]:
        _estimate(wanted, given)
        return
    found = _measured(wanted, given)
    judged = [v for gate in gates for v in verdicts(gate, found.summary(), several=False)]
    failed = [verdict.message for verdict in judged if not verdict.passed]
    _show(found, given["format"], given["per_question"], failed)
    if given["html"]:
        found.to_html(
            given["html"], command=command_line(), sources=files_read(), extras=_extras(given)
        )
        click.echo(f"wrote {given['html']}", err=True)
    for line in failed:
        click.echo(f"failed: {line}", err=True)
    _tell_ci(found, judged, given)
    ctx.exit(1 if failed else 0)


def _measured(wanted: Any, given: dict[str, Any]) -> RagResult:
    from semrecall.cli.judge import progress_of
    from semrecall.formats import read_judgments
    from semrecall.rag import rag

    return rag(
        given["records"], wanted, judge=_judge(given),
        verdicts=read_judgments(given["verdicts"]) if given["verdicts"] else None,
        claims=given["claims"], embed=given["embed"], ledger=given["ledger"], again=given["again"],
        by=list(given["by"]), progress=lambda what, count: progress_of(lambda: count, what),
        seed=given["seed"], confidence=given["confidence"],
    )  # fmt: skip


def _extras(given: dict[str, Any]) -> set[str]:
    """Those of semrecall that the command needs."""
    from semrecall.registry import embedder_entries, judge_entries

    judges, embedders = judge_entries(), embedder_entries()
    specs = [] if given["verdicts"] else [given["spec"], *given["members"]]
    if given["spec"] == "llm" and not given["model"]:
        specs = []
    entries = [judges.get(spec.split("?")[0].split(":")[0]) for spec in specs]
    if given["embed"]:
        entries.append(embedders.get(given["embed"].split("?")[0].split(":")[0]))
    return {entry.extra for entry in entries if entry is not None and entry.extra}


def _judge(given: dict[str, Any]) -> Any:
    """The judge that is named, if one is."""
    from semrecall.cli.judge import judge_of

    if given["spec"] == "llm" and not given["model"]:
        return None
    if given["calibrate_with"]:
        raise click.UsageError("--calibrate-with is for semrecall judge; give the --threshold")
    return judge_of(given)


def _estimate(wanted: Any, given: dict[str, Any]) -> None:
    """What is not known yet would take; answers count by sentences until a model was asked."""
    from pathlib import Path

    from semrecall.judges import Ledger
    from semrecall.judging import status_named
    from semrecall.rag.estimate import estimate

    known = Path(given["ledger"]).exists()
    again = [status_named(name) for name in given["again"]]
    with Ledger(given["ledger"] if known else None, read_only=known) as book:
        for line in estimate(given["records"], wanted, _judge(given), given["claims"], book, again):
            click.echo(line)


def _write_pairs(wanted: Any, given: dict[str, Any]) -> None:
    """The pairs and their texts, for people: a folder for each rubric."""
    import json
    from pathlib import Path

    from semrecall.formats import write_whole
    from semrecall.rag import records
    from semrecall.rag.asking import by_prompt, needed, verdicts_wanted
    from semrecall.rag.claims import claims_of
    from semrecall.text import plural

    read = records(given["records"])
    made = claims_of(read)
    for (prompt, scale), kinds in by_prompt(needed(wanted)).items():
        asked = verdicts_wanted(read, made, kinds)
        pairs = dict.fromkeys(a.pair for a in asked)
        folder = Path(given["folder"], prompt)
        folder.mkdir(parents=True, exist_ok=True)
        files = {
            "pairs": [{"query_id": q, "doc_id": d} for q, d in pairs],
            "queries": _texts((a.pair[0], a.evidence[1]) for a in asked),
            "corpus": _texts((a.pair[1], a.claim[1]) for a in asked),
        }
        for name, rows in files.items():
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            write_whole(folder / f"{name}.jsonl", text)
        click.echo(
            f"{plural(len(pairs), 'pair')}: semrecall label {folder}/pairs.jsonl "
            f"--corpus {folder}/corpus.jsonl --queries {folder}/queries.jsonl "
            f"--prompt {prompt} --scale {scale}",
            err=True,
        )


def _texts(named: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"id": name, "text": text} for name, text in dict(named).items()]


def _show(found: RagResult, format: str, per_question: bool, failed: list[str]) -> None:  # noqa: A002
    from dataclasses import asdict

    from semrecall.cli.tables import print_rows
    from semrecall.rag.text import remarks

    if format == "json":
        print_rows([], "json", document=found.to_dict() | {"failed": failed})
    elif per_question:
        print_rows(found.per_question(), format)
    elif format == "csv":
        parts = [None, *found.slices]
        rows = [{"slice": part or "", **asdict(row)} for part in parts for row in found.rows(part)]
        for row in rows:
            row.pop("reasons")
        print_rows(rows, "csv", notes=remarks(found))
    elif format == "markdown":
        print_rows(_markdown_rows(found), "markdown", notes=remarks(found))
    else:
        click.echo(str(found))


def _markdown_rows(found: RagResult) -> list[dict[str, str]]:
    """One row a measure over all questions, then over each group of every slice."""
    from semrecall.rag.text import HEADS, cells

    if not found.slices:
        return [dict(zip(HEADS, row, strict=True)) for row in cells(found.rows())]
    return [
        dict(
            zip(("slice", "group", *HEADS), (part or "", row.group, *cells([row])[0]), strict=True)
        )
        for part in (None, *found.slices)
        for row in found.rows(part)
    ]


def _tell_ci(found: RagResult, judged: list[Verdict], given: dict[str, Any]) -> None:
    """JUnit, a summary and annotations, where they are wanted."""
    from semrecall.cli.ci import annotate, append_summary, case_of, gates_table, junit
    from semrecall.cli.tables import rows_text
    from semrecall.rag.text import remarks

    cases = [case_of(verdict) for verdict in judged]
    if given["junit"]:
        junit(cases, given["junit"])
    if given["summary"]:
        rows, titles = gates_table(judged)
        gates = rows_text(rows, "markdown", titles=titles) if rows else ""
        table = rows_text(_markdown_rows(found), "markdown", notes=remarks(found))
        append_summary(given["summary"], "semrecall rag", [gates, table])
    annotate(cases)
