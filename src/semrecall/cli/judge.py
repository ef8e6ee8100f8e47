"""semrecall judge: have a language model, or another judge, say which documents are relevant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.columns import LABELS, judgments_in
from semrecall.cli.outputs import OutputPath, WritingCommand

if TYPE_CHECKING:
    from semrecall.data import Pairs
    from semrecall.judges import Judge, Ledger, Question
    from semrecall.judging import Judged

__all__ = ["JUDGE_OPTIONS", "command", "judge_of", "judge_options"]

_FILE = click.Path(exists=True)

#: Options that only one judge takes: option -> (what it is called there, judges that take it).
_OF_LLM = {
    "base_url": "base_url",
    "wire": "wire",
    "prompt": "prompt",
    "reason": "reason",
    "ask_confidence": "confidence",
    "docs_per_call": "docs_per_call",
    "order_check": "order_check",
    "max_tokens": "max_tokens",
    "timeout": "timeout_seconds",
    "concurrency": "concurrency",
    "requests_per_minute": "requests_per_minute",
    "tokens_per_minute": "tokens_per_minute",
    "max_wait": "max_wait_seconds",
    "max_requests": "max_requests",
    "max_cost": "max_cost",
    "price_in": "price_in",
    "price_out": "price_out",
    "context_tokens": "context_tokens",
    "long_documents": "long_documents",
}

JUDGE_OPTIONS = (
    click.option(
        "--judge", "spec", default="llm", show_default=True, metavar="JUDGE",
        help="llm, crossencoder, recorded, panel, or python:module:function.",
    ),
    click.option("--model", metavar="NAME", help="The model of llm or crossencoder."),
    click.option(
        "--base-url", metavar="URL",
        help="Where the model is served, e.g. http://127.0.0.1:11434/v1 for Ollama.",
    ),
    click.option(
        "--wire", type=click.Choice(["openai", "anthropic"]), default=None,
        help="How the endpoint is spoken to.  [default: openai]",
    ),
    click.option(
        "--prompt", metavar="NAME|FILE",
        help="relevance, qa, product, or a file of your own.  [default: relevance]",
    ),
    click.option(
        "--scale", type=click.Choice(["binary", "graded"]), default=None,
        help="Yes and no, or grades 0 to 3.  [default: binary]",
    ),
    click.option("--reason", is_flag=True, default=None, help="Ask for a reason before the label."),
    click.option(
        "--ask-confidence", is_flag=True, default=None,
        help="Record the probability of the label where the endpoint gives it.",
    ),
    click.option("--docs-per-call", type=click.IntRange(min=1), help="Documents in one call."),
    click.option(
        "--order-check", type=float,
        help="Share of calls about several documents that are made in two orders.  [default: 0.1]",
    ),
    click.option("--temperature", type=float, help="Of sampling.  [default: 0]"),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Of one reply."),
    click.option("--timeout", type=float, help="Seconds to wait for a reply."),
    click.option("--concurrency", type=click.IntRange(min=1), help="Calls in flight at most."),
    click.option("--requests-per-minute", type=float, help="The endpoint's limit, if it has one."),
    click.option("--tokens-per-minute", type=float, help="The endpoint's limit, if it has one."),
    click.option(
        "--max-wait", type=float, help="Stop when the endpoint asks to wait longer, in seconds."
    ),
    click.option("--max-requests", type=click.IntRange(min=0), help="Stop before more calls."),
    click.option("--max-cost", type=float, help="Stop before it costs more (with the prices)."),
    click.option("--price-in", type=float, help="Of a million tokens sent."),
    click.option("--price-out", type=float, help="Of a million tokens received."),
    click.option("--context-tokens", type=int, help="What the model can read at once."),
    click.option(
        "--long-documents", type=click.Choice(["head", "tail", "head-tail", "windows"]),
        help="Which part of a document that does not fit is read; windows: each, the best counts.",
    ),
    click.option("--labels", type=_FILE, help="The file of a recorded judge."),
    click.option("--grade", metavar="COLUMN", help="Column of the grades of a recorded judge."),
    click.option(
        "--threshold", "thresholds", type=float, multiple=True,
        help="Score from which a crossencoder gives grade 1, 2, ...; may be repeated.",
    ),
    click.option(
        "--calibrate-with", type=LABELS, metavar="FILE[:COLUMN]",
        help="Labels of people that place the thresholds of a crossencoder.",
    ),
    click.option(
        "--member", "members", multiple=True, metavar="JUDGE",
        help="A member of a panel, e.g. llm?model=gpt-5-mini; may be repeated.",
    ),
)  # fmt: skip


def judge_options(command: Any) -> Any:
    """Decorator: the options that say which judge is asked, and how."""
    for option in reversed(JUDGE_OPTIONS):
        command = option(command)
    return command


@click.command("judge", cls=WritingCommand)
@click.argument("pairs", type=_FILE)
@click.option("--corpus", type=_FILE, help="Texts of documents: JSON lines of id and text (BEIR).")
@click.option("--queries", type=_FILE, help="Texts of queries: JSON lines of id and text.")
@click.option("-k", type=click.IntRange(min=1), help="Results of each query; all if absent.")
@click.option("--limit", type=click.IntRange(min=1), help="The first so many pairs only, to try.")
@judge_options
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True,
              help="Ask each pair so often; the label most often given counts.")  # fmt: skip
@click.option("--again", multiple=True, metavar="STATUS",
              help='Ask once more what ended so, e.g. "unparsed"; may be repeated.')  # fmt: skip
@click.option("--canaries", type=click.IntRange(min=0), default=1, show_default=True,
              help="Pairs of known label, of each kind, to test the judge with.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of canaries and orders.")
@click.option(
    "--ledger", type=click.Path(dir_okay=False), default="semrecall.ledger", show_default=True,
    help="Where every answer is kept; what it holds is not asked again.",
)  # fmt: skip
@click.option(
    "--batch", "step", type=click.Choice(["submit", "poll", "collect"]),
    help="By the endpoint's batches, at about half the price, within a day: hand in the pairs, "
    "ask how far they are, or take the answers; the other options stay the same.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what it would take, and ask nothing.")
@click.option(
    "-o", "--output", type=OutputPath(dir_okay=False),
    help="Where the labels go: .parquet, .jsonl, .csv, qrels (.txt); JSON lines on stdout if "
    "absent.",
)  # fmt: skip
def command(pairs: str, output: str | None, dry_run: bool, step: str | None, **given: Any) -> None:
    """Say which documents are relevant to which queries.

    PAIRS is a truth, a run, a pool, or a list of query_id and doc_id. Each pair is asked once;
    every answer goes to the ledger, so a run that was stopped goes on where it was, and one that
    is complete costs nothing to repeat. Keys come from OPENAI_API_KEY or ANTHROPIC_API_KEY.

    \b
    semrecall judge truth.parquet --corpus docs.jsonl --queries queries.jsonl \\
        --model gpt-5-mini -o labels.parquet
    semrecall judge pairs.jsonl --corpus docs.jsonl --queries queries.jsonl \\
        --base-url http://127.0.0.1:11434/v1 --model llama3.2 -o labels.parquet

    Exit status 3: stopped before the end (a cap, a quota); run again to go on.
    """
    from semrecall.formats import read_documents, read_pairs, read_texts
    from semrecall.judges import Ledger
    from semrecall.judging import judge, questions_of

    found = read_pairs(pairs, k=given["k"])
    if given["limit"]:
        found = found.select(slice(given["limit"]))
    asked = judge_of(given)
    if given["calibrate_with"]:
        asked = _calibrated(asked, given)
    texts: dict[str, Any] = {
        "corpus": read_documents(given["corpus"]) if given["corpus"] else None,
        "queries": read_texts(given["queries"]) if given["queries"] else None,
    }
    if dry_run:
        _estimate(asked, questions_of(found, **texts, needed=asked.reads_texts), given)
        return
    if step:
        done = _batch(step, found, asked, texts, given, output)
        if done is not None:
            _write(done, output)
        return
    with (
        Ledger(given["ledger"]) as ledger,
        progress_of(lambda: _to_ask(found, asked, texts, ledger, given)) as watch,
    ):
        try:
            done = judge(
                found,
                asked,
                **texts,
                ledger=ledger,
                repeat=given["repeat"],
                again=given["again"],
                canaries=given["canaries"],
                seed=given["seed"],
                watch=watch,
            )
        finally:
            asked.close()
    _write(done, output)


def _write(done: Judged, output: str | None) -> None:
    """Labels to the file or stdout, what there is to know of them to stderr."""
    from semrecall.formats import write
    from semrecall.text import plural

    if output:
        write(done.judgments, output)
    else:
        _print_lines(done)
    click.echo(str(done), err=True)
    if output:
        click.echo(f"\nwrote {plural(len(done.judgments), 'label')} to {output}", err=True)


def _batch(
    step: str,
    found: Pairs,
    asked: Judge,
    texts: dict[str, Any],
    given: dict[str, Any],
    output: str | None,
) -> Judged | None:
    """One step of judging by batches; after collecting, the labels there are."""
    from semrecall.errors import InputError
    from semrecall.judges import Ledger
    from semrecall.judges.batch import collect, poll, submit
    from semrecall.judges.llm import LLMJudge
    from semrecall.judging import judge, questions_of

    if not isinstance(asked, LLMJudge):
        raise InputError(f"--batch is for language models; the judge is {asked.name}")
    if output and step != "collect":
        raise InputError(f"--batch {step} has no labels to write yet; leave -o for collect")
    with Ledger(given["ledger"]) as ledger:
        if step == "poll":
            _show_batches(poll(asked, ledger))
            return None
        questions = questions_of(found, **texts)
        every = _repeated(questions, given["repeat"])
        if step == "submit":
            _show_batches(submit(asked, every, ledger, again=_statuses(given["again"])))
            return None
        brought = collect(asked, ledger, every)
        _show_batches(brought.batches)
        for count, what in (
            (brought.waiting, "pairs are still out"),
            (brought.unanswered, "pairs came back without an answer; submit them again"),
        ):
            if count:
                click.echo(f"{count:,} {what}", err=True)
        return judge(found, asked, **texts, ledger=ledger, repeat=given["repeat"], known_only=True)


def _statuses(names: tuple[str, ...]) -> list[Any]:
    from semrecall.judging import status_named

    return [status_named(name) for name in names]


def _show_batches(batches: Any) -> None:
    for batch in batches:
        counts = ", ".join(f"{count:,} {name}" for name, count in batch.counts.items())
        said = "; ".join(filter(None, [counts, batch.message]))
        click.echo(
            f"{batch.id}: {batch.state}, {batch.requests:,} requests"
            + (f" ({said})" if said else ""),
            err=True,
        )
    if not batches:
        click.echo("no batches", err=True)


def judge_of(given: dict[str, Any]) -> Judge:
    """The judge the options ask for; an option of another judge is refused."""
    from semrecall.errors import InputError
    from semrecall.judges import open_judge
    from semrecall.registry import judge_entries, load_judge

    spec = given["spec"]
    name = spec.partition("?")[0].partition(":")[0]
    if name not in judge_entries():
        load_judge(name)  # which says what the names are
    wanted: dict[str, dict[str, Any]] = {
        "llm": {ours: given[option] for option, ours in _OF_LLM.items()}
        | {"model": given["model"], "scale": given["scale"], "seed": given["seed"] or None},
        "crossencoder": {"model": given["model"], "thresholds": given["thresholds"] or None},
        "recorded": {"labels": given["labels"], "grade": given["grade"]},
        "panel": {"members": given["members"] or None},
    }
    if given["temperature"] is not None:
        wanted["llm"]["sampling"] = {"temperature": given["temperature"]}
    options = {k: v for k, v in wanted.get(name, {}).items() if v is not None}
    known = set(wanted.get(name, {}))
    for other, theirs in wanted.items():
        for option, value in theirs.items():
            if value is not None and option not in known | {"seed"}:
                raise InputError(
                    f"--{_option_of(option)} is an option of {other}; the judge is {name}"
                )
    if name == "llm":
        options["notify"] = _waits()
        if "model" not in options and "model=" not in spec:
            raise InputError(
                "no model is named", hint="for example --model gpt-5-mini, or --judge recorded"
            )
    return open_judge(spec, **options)


def _option_of(parameter: str) -> str:
    """How a judge's parameter is called on the command line."""
    names = {ours: option for option, ours in _OF_LLM.items()}
    names |= {"sampling": "temperature", "members": "member", "thresholds": "threshold"}
    return names.get(parameter, parameter).replace("_", "-")


def _calibrated(asked: Judge, given: dict[str, Any]) -> Judge:
    """The cross-encoder with thresholds placed by labels of people."""
    from semrecall.data import Pairs
    from semrecall.errors import InputError
    from semrecall.judges.crossencoder import CrossEncoderJudge, calibrated
    from semrecall.judging import questions_of

    if not isinstance(asked, CrossEncoderJudge) or asked.thresholds:
        raise InputError("--calibrate-with places the thresholds of a crossencoder without any")
    labels = judgments_in(given["calibrate_with"], "error")
    questions = questions_of(Pairs.of(labels), given["corpus"], given["queries"])
    cuts = calibrated(asked.scores(questions), labels.grades)
    click.echo(
        f"thresholds from {len(labels):,} labels: "
        + " ".join(f"--threshold {cut:.6g}" for cut in cuts),
        err=True,
    )
    return asked.with_thresholds(cuts)


def _waits() -> Callable[[str], None]:
    """Shows a countdown in one line of a terminal; elsewhere, a line at the start of each wait."""
    import sys

    shown: list[str] = []

    def show(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        elif text and not shown:
            click.echo(text, err=True)
        shown[:] = [text] if text else []

    return show


@contextmanager
def progress_of(count: Callable[[], int], label: str = "judging") -> Iterator[Any]:
    """A bar with rate, cost so far, time left and failures by class; nothing in a pipe.

    count: gives how many questions there are to ask.
    """
    import sys
    import time
    from collections import Counter

    from semrecall.judges.canaries import is_canary

    total = count() if sys.stderr.isatty() else 0
    if not total:
        yield None
        return
    start = time.perf_counter()
    failures: Counter[str] = Counter()
    cost: list[float] = []
    settled = 0

    def shown(_: object) -> str:
        rate = f"{settled / max(time.perf_counter() - start, 1e-9):,.1f}/s"
        spent = [f"cost {sum(cost):.4f}"] if cost else []
        return "; ".join([rate, *spent, *(f"{n:,} {status}" for status, n in failures.items())])

    with click.progressbar(
        length=total, label=label, file=sys.stderr, item_show_func=shown, show_pos=True
    ) as bar:

        def watch(reply: Any) -> None:
            nonlocal settled
            if reply.cost is not None:
                cost.append(reply.cost)
            final = [a for a in reply.answers if a.final and not is_canary(a.question)]
            failures.update(a.status.value for a in reply.answers if a.grade is None)
            settled += len(final)
            bar.update(len(final), reply)

        yield watch


def _to_ask(
    found: Pairs, asked: Judge, texts: dict[str, Any], ledger: Ledger, given: dict[str, Any]
) -> int:
    """How many questions the ledger has no answer to."""
    from semrecall.judges.asking import unasked
    from semrecall.judging import questions_of

    every = _repeated(questions_of(found, **texts, needed=asked.reads_texts), given["repeat"])
    opened = unasked(asked, every, ledger, again=_statuses(given["again"]))
    return sum(len(questions) for _, questions in opened)


def _repeated(questions: list[Question], repeat: int) -> list[Question]:
    from dataclasses import replace

    return [replace(q, repeat=n) for q in questions for n in range(repeat)]


def _estimate(asked: Judge, questions: list[Question], given: dict[str, Any]) -> None:
    """What a run would take beyond what the ledger holds."""
    from pathlib import Path

    from semrecall.judges import Ledger
    from semrecall.judges.asking import unasked
    from semrecall.judging import canaries_for
    from semrecall.text import plural

    every = _repeated(questions, given["repeat"])
    tests = canaries_for(questions, given["canaries"], given["seed"]) if asked.reads_texts else []
    known = Path(given["ledger"]).exists()
    with Ledger(given["ledger"] if known else None, read_only=known) as book:
        opened = unasked(asked, every, book, again=_statuses(given["again"]))
        tested = unasked(asked, [canary.question for canary in tests], book)
    for (judge, ours), (_, canaries) in zip(opened, tested, strict=True):
        more = f", and {plural(len(canaries), 'canary', 'canaries')}" if canaries else ""
        head = f"{judge.name}: " if asked.members else ""
        click.echo(f"{head}{plural(len(every), 'question')}, {len(ours):,} of them to ask{more}")
        estimate = getattr(judge, "estimate", None)
        if estimate is not None:
            click.echo(str(estimate([*ours, *canaries])))


def _print_lines(done: Judged) -> None:
    import json

    for row in done.judgments.to_arrow().to_pylist():
        row = {key: value for key, value in row.items() if value is not None}
        click.echo(json.dumps({"grade": None, **row}, ensure_ascii=False))
