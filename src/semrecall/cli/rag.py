"""semrecall rag: measures of what a generator read, and of what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.judge import judge_options
from semrecall.cli.outputs import OutputPath, WritingCommand
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.rag import RagResult

__all__ = ["command"]

_FILE = click.Path(exists=True)


@click.command("rag", cls=WritingCommand)
@click.argument("records", type=_FILE)
@click.option(
    "-m", "--measure", "measures", multiple=True, metavar="NAME",
    help="E.g. faithfulness, context_precision(by=ids); may be repeated.  [default: "
    "context_precision, context_recall, faithfulness, answer_relevancy]",
)  # fmt: skip
@judge_options
@click.option(
    "--verdicts", type=_FILE,
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
    help="Exit with 1 if a mean is below this; may be repeated.",
)  # fmt: skip
@click.option("--per-question", is_flag=True, help="Print the values of every question.")
@click.option(
    "--html", type=OutputPath(".html", ".htm", dir_okay=False), metavar="FILE",
    help="Also write a page with every question, its claims and its verdicts.",
)  # fmt: skip
@format_option
@click.pass_context
def command(ctx: click.Context, /, records: str, html: str | None, **given: Any) -> None:
    """Measure what a generator read (context) and what it answered (answer).

    RECORDS are JSON lines of question, contexts (ids and texts), answer and reference; the fields
    of common frameworks are understood. A verdict that does not come leaves its question without a
    value: counted, never guessed.

    \b
    semrecall rag records.jsonl --model gpt-5-mini
    semrecall rag records.jsonl -m "context_precision(by=ids)" -m "context_recall(by=ids)"
    semrecall rag records.jsonl --verdicts verdicts.jsonl --fail-under faithfulness=0.9

    Exit status: 0 done, 1 a gate failed, 2 wrong input, 3 stopped before the end (a cap, a quota).
    """
    from semrecall.registry import import_extra

    if html:
        import_extra("matplotlib", "report", "an HTML report")
    for name in ("prompt", "scale"):
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is for semrecall judge: each verdict has its own")
    if given["folder"]:
        _write_pairs(records, given)
        return
    gates = [_gate(text) for text in given["fail_under"]]
    found = _measured(records, given, [name for name, _ in gates])
    if found is None:
        return
    _show(found, given["format"], given["per_question"])
    if html:
        import shlex
        import sys

        found.to_html(html, command=shlex.join(["semrecall", *sys.argv[1:]]))
        click.echo(f"wrote {html}", err=True)
    failed = [
        f"{name} is {found.mean(name):.4f}, below {limit:g}"
        for name, limit in gates
        if not found.mean(name) >= limit
    ]
    for line in failed:
        click.echo(f"failed: {line}", err=True)
    ctx.exit(1 if failed else 0)


def _gate(text: str) -> tuple[str, float]:
    from semrecall.errors import InputError
    from semrecall.measures import parse

    name, _, value = text.rpartition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = float("nan")
    if not name or limit != limit:
        raise InputError(
            f"--fail-under {text!r} is not MEASURE=VALUE", hint="for example faithfulness=0.9"
        )
    measure = parse(name)
    if measure.lower_is_better:
        raise InputError(f"--fail-under {text!r}: lower is better for {measure.name}")
    return str(measure), limit


def _wanted(given: dict[str, Any], more: Any = ()) -> list[str]:
    from semrecall.rag import DEFAULT

    return list(dict.fromkeys([*(given["measures"] or DEFAULT), *more]))


def _measured(path: str, given: dict[str, Any], more: list[str]) -> RagResult | None:
    from semrecall.judges import Ledger
    from semrecall.rag import rag, records

    read, wanted = records(path), _wanted(given, more)
    verdicts, judge_for = _judges(given)
    with Ledger(given["ledger"]) as ledger:
        claims, questions = _writers(given, ledger)
        if given["dry_run"]:
            _estimate(read, wanted, judge_for, claims)
            return None
        embed = None
        if given["embed"]:
            from semrecall.embeddings import embed as embedded

            def embed(texts: Any) -> Any:
                return embedded(list(texts), given["embed"]).require_matrix()

        return rag(
            read, wanted, judge=judge_for, verdicts=verdicts, claims=claims, questions=questions,
            embed=embed, ledger=ledger, again=_statuses(given), by=list(given["by"]),
            seed=given["seed"], confidence=given["confidence"],
        )  # fmt: skip


def _statuses(given: dict[str, Any]) -> list[Any]:
    from semrecall.judging import status_named

    return [status_named(name) for name in given["again"]]


def _judges(given: dict[str, Any]) -> tuple[Any, Any]:
    """The verdicts of a file, or what makes a judge of a prompt; neither where none is named."""
    from semrecall.cli.judge import judge_of
    from semrecall.formats import read_judgments

    if given["verdicts"]:
        return read_judgments(given["verdicts"]), None
    if given["spec"] == "llm" and not given["model"]:
        return None, None
    first: list[Any] = []

    def judge_for(prompt: str, scale: str) -> Any:
        made = judge_of(given | {"prompt": prompt, "scale": scale})
        if hasattr(made, "budget"):
            # One cap for all kinds of verdicts.
            first.append(made)
            made.budget = first[0].budget
        return made

    return None, judge_for


def _writers(given: dict[str, Any], ledger: Any) -> tuple[Any, Any]:
    """Who makes claims and questions: the model, where there is one."""
    from semrecall.errors import InputError
    from semrecall.judges.llm import LLMJudge

    _, judge_for = _judges(given)
    judge = None if judge_for is None else judge_for("support", "binary")
    if not isinstance(judge, LLMJudge):
        if given["claims"] == "model":
            raise InputError("no model is named to make claims", hint="--model gpt-5-mini")
        return None, None
    from semrecall.rag.writing import CLAIMS, QUESTIONS, Writer

    claims = None if given["claims"] == "sentences" else Writer(judge, ledger, CLAIMS)
    return claims, Writer(judge, ledger, QUESTIONS)


def _estimate(read: Any, wanted: list[str], judge_for: Any, claims: Any) -> None:
    """What the verdicts would take; answers count by their sentences, for nobody is asked."""
    from semrecall.judges.contract import Document, Question
    from semrecall.measures.grammar import parse_all
    from semrecall.rag.asking import PROMPTS, needed, verdicts_wanted
    from semrecall.rag.claims import claims_of
    from semrecall.text import plural

    kinds = needed(parse_all(wanted))
    for prompt in dict.fromkeys(PROMPTS[kind] for kind in kinds):
        own = {kind: which for kind, which in kinds.items() if PROMPTS[kind] == prompt}
        asked = verdicts_wanted(read, claims_of(read), own)
        line = f"{prompt[0]}: {plural(len(asked), 'verdict')} ({', '.join(own)})"
        judge = None if judge_for is None else judge_for(*prompt)
        if judge is not None and hasattr(judge, "estimate"):
            questions = [Question(*a.evidence[:1], a.claim[0], a.evidence[1], Document(a.claim[1]))
                         for a in asked]  # fmt: skip
            line += f"; {judge.estimate(questions)}"
        click.echo(line)
    if claims is not None:
        texts = sum(bool(r.answer) + bool(r.reference) for r in read)
        click.echo(f"claims: {plural(texts, 'call')} at most; the verdicts above count sentences")


def _write_pairs(path: str, given: dict[str, Any]) -> None:
    """The pairs and their texts, for people."""
    import json
    from pathlib import Path

    from semrecall.formats.files import write_text
    from semrecall.measures.grammar import parse_all
    from semrecall.rag import records
    from semrecall.rag.asking import needed, verdicts_wanted
    from semrecall.rag.claims import claims_of
    from semrecall.text import plural

    read = records(path)
    asked = verdicts_wanted(read, claims_of(read), needed(parse_all(_wanted(given))))
    pairs = dict.fromkeys((a.evidence[0], a.claim[0]) for a in asked)
    folder = Path(given["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "pairs.jsonl": [{"query_id": q, "doc_id": d} for q, d in pairs],
        "queries.jsonl": [{"id": i, "text": t} for i, t in dict(a.evidence for a in asked).items()],
        "corpus.jsonl": [{"id": i, "text": t} for i, t in dict(a.claim for a in asked).items()],
    }
    for name, rows in files.items():
        write_text(folder / name, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    click.echo(
        f"{folder}: {plural(len(pairs), 'pair')}; semrecall label {folder}/pairs.jsonl --corpus "
        f"{folder}/corpus.jsonl --queries {folder}/queries.jsonl --prompt support",
        err=True,
    )


def _show(found: RagResult, format: str, per_question: bool) -> None:  # noqa: A002
    from dataclasses import asdict

    from semrecall.cli.tables import print_rows
    from semrecall.rag.text import HEADS, cells, remarks

    if per_question:
        print_rows(found.per_question(), format)
    elif format == "json":
        print_rows([], "json", document=found.to_dict())
    elif format == "csv":
        rows = [{k: v for k, v in asdict(row).items() if k != "reasons"} for row in found.rows()]
        print_rows(rows, "csv", notes=remarks(found))
    elif format == "markdown":
        titles = {str(at): head for at, head in enumerate(HEADS)}
        shown = [dict(zip(titles, row, strict=True)) for row in cells(found.rows())]
        print_rows(shown, "markdown", titles=titles, notes=remarks(found))
    else:
        click.echo(str(found))
