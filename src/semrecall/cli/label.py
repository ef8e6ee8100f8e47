"""semrecall label: people say which documents are relevant, on a page of their own machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from semrecall.data import Pairs

__all__ = ["command"]

_FILE = click.Path(exists=True)


def _share(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """A share: 20% or 0.2."""
    text = value.strip()
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = float("nan")
    if not 0 <= found <= 1:
        raise click.BadParameter(f"{text!r} is no share; write 20% or 0.2", ctx, param)
    return found


@click.command("label")
@click.argument("pairs", type=_FILE)
@click.option("--corpus", type=_FILE, required=True,
              help="Documents: JSON lines of id and text, or image.")  # fmt: skip
@click.option("--queries", type=_FILE, required=True, help="Queries: JSON lines of id and text.")
@click.option("-k", type=click.IntRange(min=1), help="Results of each query; all if absent.")
@click.option("--name", metavar="NAME", help="Who labels; the page asks if absent.")
@click.option("--ledger", type=click.Path(dir_okay=False), default="semrecall.ledger",
              show_default=True, help="Where every label is kept.")  # fmt: skip
@click.option("--scale", type=click.Choice(["binary", "graded"]), default="binary",
              show_default=True, help="Yes and no, or grades 0 to 3.")  # fmt: skip
@click.option("--prompt", metavar="NAME|FILE", default="relevance", show_default=True,
              help="The rubric: relevance, qa, product, or a file of your own.")  # fmt: skip
@click.option("--order", type=click.Choice(["query", "random"]), default="query",
              show_default=True, help="Documents of a query together, or all mixed.")  # fmt: skip
@click.option("--sample", type=click.IntRange(min=1), metavar="N",
              help="Label N pairs drawn at random, with their probability.")  # fmt: skip
@click.option("--overlap", callback=_share, default="20%", show_default=True,
              help="Share of pairs that everybody labels.")  # fmt: skip
@click.option("--repeats", callback=_share, default="5%", show_default=True,
              help="Share of pairs that one person is asked twice, unannounced.")  # fmt: skip
@click.option("--target-width", type=click.FloatRange(0, 1, min_open=True), default=0.05,
              show_default=True, help="Width of the interval that is enough.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Of orders, overlap, repeats and the sample.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="127.0.0.1 or ::1.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True,
              help="0 takes a free one.")  # fmt: skip
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.")
def command(pairs: str, **given: Any) -> None:
    """Label pairs of query and document by hand, on a page that only this machine can reach.

    PAIRS is a list of query_id and doc_id (such as semrecall plan or pool writes), a run, or a
    truth. Every label is in the ledger before the next pair appears; stop and go on at any time,
    several people at once if you like. Probabilities in PAIRS are kept with the labels.

    \b
    semrecall label pairs.jsonl --corpus docs.jsonl --queries queries.jsonl --name anna
    semrecall ledger export semrecall.ledger --judge human:anna -o anna.jsonl
    """
    from semrecall.formats import read_pairs
    from semrecall.judges import Ledger
    from semrecall.judges.prompts import load_prompt
    from semrecall.judging import questions_of
    from semrecall.label.serving import serve
    from semrecall.label.session import Session, checked_name

    name = None if given["name"] is None else checked_name(given["name"])
    prompt = load_prompt(given["prompt"], given["scale"])
    found = read_pairs(pairs, k=given["k"])
    if given["sample"]:
        found = _sample(found, given["sample"], given["seed"])
    questions = questions_of(found, given["corpus"], given["queries"])
    with Ledger(given["ledger"]) as ledger:
        session = Session(
            questions,
            prompt,
            ledger,
            probabilities=found.probabilities,
            order=given["order"],
            overlap=given["overlap"],
            repeats=given["repeats"],
            seed=given["seed"],
        )

        def tell(address: str) -> None:
            click.echo(f"{len(questions):,} pairs, rubric {prompt.label}", err=True)
            click.echo(f"\n  {address}\n\nOpen it in a browser; Ctrl-C ends.", err=True)

        before = session.answers
        serve(
            session,
            name=name,
            host=given["host"],
            port=given["port"],
            target_width=given["target_width"],
            browser=given["browser"],
            tell=tell,
        )
        with session.current():
            count = session.answers - before
            labelled = sorted(name for name, person in session.people.items() if person.votes)
    _closing(given["ledger"], count, labelled or ["NAME"])


def _closing(ledger: str, count: int, people: list[str]) -> None:
    import shlex

    from semrecall.text import plural

    click.echo(f"\n{plural(count, 'answer')} added; all are in {ledger}. Export:", err=True)
    for person in people:
        file = f"{person.replace(' ', '-')}.jsonl"
        click.echo(
            f'  semrecall ledger export {shlex.quote(ledger)} --judge "human:{person}" -o {file}',
            err=True,
        )


def _sample(pairs: Pairs, size: int, seed: int) -> Pairs:
    """So many pairs at random, with the probability that each was picked."""
    import numpy as np

    from semrecall.data import Pairs
    from semrecall.stats.sampling import draw_sample

    if size >= len(pairs):
        return pairs
    share = size / len(pairs)
    drawn = pairs.select(draw_sample(np.full(len(pairs), share), seed=seed))
    before = drawn.probabilities
    chances = np.full(len(drawn), share) if before is None else before * share
    return Pairs(drawn.queries, drawn.documents, {**drawn.details, "probability": chances})
