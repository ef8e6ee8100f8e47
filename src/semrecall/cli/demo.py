"""semrecall demo: the whole story on data that is on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from semrecall.cli.outputs import OutputPath, WritingCommand

if TYPE_CHECKING:
    from semrecall.demo.story import Example, Problem, Sweep

TARGET = 0.95
REPORT = "semrecall-demo.html"


@click.command("demo", cls=WritingCommand)
@click.option(
    "--html", type=OutputPath(".html", ".htm"), default=REPORT, show_default=True,
    help="Where to write the report; an empty name writes none.",
)  # fmt: skip
@click.option(
    "--save", "folder", type=click.Path(file_okay=False),
    help="Write the data to a folder, to try the other commands on, and do nothing else.",
)  # fmt: skip
def command(html: str, folder: str | None) -> None:
    """Show the whole story on built-in data.

    The corpus is the documentation of Python's standard library and of numpy, as installed here;
    the queries are real programming questions, with graded labels for their nearest entries. The
    demo embeds them (LSA), finds the exact neighbours, builds a faiss index with 8-bit codes,
    searches it with several settings and shows what each one loses, and whether it matters.
    """
    import time

    from semrecall.demo.story import K, load, sweep

    start = time.perf_counter()
    _said("reading the documentation of Python and numpy, making vectors")
    problem = load()
    if folder is not None:
        _save(problem, folder)
        return
    _introduce(problem)
    _said("building the index and searching it with every setting")
    story = sweep(problem)
    _show_table(story)
    _show_savings(story)
    for example in (story.example(matters=False), story.example(matters=True)):
        if example is not None:
            _show_example(problem, example)
    if html:
        _write_report(story, html)
    click.echo(f"\ndone in {time.perf_counter() - start:.0f} s, at k = {K}", err=True)


def _said(line: str) -> None:
    click.echo(f"{line} ...", err=True)


def _save(problem: Problem, folder: str) -> None:
    from semrecall.demo.saved import save

    for path, what in save(problem, folder).items():
        click.echo(f"{path}: {what}", err=True)


def _introduce(problem: Problem) -> None:
    from semrecall.demo.story import FACTORY, K

    rows, dimension = len(problem.base), problem.base.dimension
    click.echo(
        f"Corpus: {rows:,} entries of Python's and numpy's documentation, as vectors of\n"
        f"{dimension} dimensions. Queries: {len(problem.queries)} programming questions. "
        f"Index: faiss {FACTORY}.\n"
        f"Labels: {len(problem.judgments):,} judged pairs (0 no help, 1 useful, 2 the answer), "
        "made by a language\nmodel: see PROVENANCE.md in the package."
    )
    if problem.absent:
        click.echo(f"{problem.absent} labels name entries that this Python or numpy lacks.")
    click.echo(
        f"\nOf each question's {K} exact neighbours, how many does the index find (recall), how\n"
        "many of the relevant ones among them (srecall), and how many where a result of nearly\n"
        "equal score may stand in (trecall)?\n"
    )


def _show_table(story: Sweep) -> None:
    from semrecall.cli.tables import print_rows
    from semrecall.demo.story import RECALL, SEMANTIC, TOLERANT

    result = story.result
    rows = []
    for run, cost in story.costs.items():
        low, high = result.interval(SEMANTIC, run)
        rows.append(
            {
                "setting": run,
                "recall": result.mean(RECALL, run),
                "srecall": result.mean(SEMANTIC, run),
                "interval": f"{low:.2f} to {high:.2f}",
                "trecall": result.mean(TOLERANT, run),
                "distances": round(cost.mean("distance_computations")),
                "kilobytes": round(cost.mean("bytes_read") / 1000),
            }
        )
    titles = {
        "setting": "setting",
        "recall": RECALL,
        "srecall": SEMANTIC,
        "interval": "95% interval",
        "trecall": TOLERANT,
        "distances": "distances",
        "kilobytes": "kB read",
    }
    print_rows(rows, titles=titles, digits=3, notes=_notes(story))


def _notes(story: Sweep) -> list[str]:
    from semrecall.demo.story import NPROBES, SEMANTIC

    result = story.result
    last = result.runs[-1]
    gaps = result.undefined(SEMANTIC, last)
    notes = [f"srecall leaves out {count} questions: {reason}" for reason, count in gaps.items()]
    notes += [f"srecall: {note}" for note in result[SEMANTIC, last].notes]
    lists = NPROBES[-1]
    return [
        *notes,
        f"distances: vectors compared per query, the centroids of the {lists} lists among them; "
        "so all lists take more than the corpus has",
    ]


def _show_savings(story: Sweep) -> None:
    from semrecall.demo.story import MEASURES

    click.echo(f"\nThe cheapest setting whose mean reaches {TARGET:.0%} (no held-out proof here):")
    for measure in MEASURES:
        best = story.cheapest(measure, TARGET)
        if best is None:
            click.echo(f"  by {measure}: none")
        else:
            click.echo(
                f"  by {measure:<11} {best.run:<11} {best.distance_computations:6,.0f} "
                "distances per query"
            )


def _show_example(problem: Problem, example: Example) -> None:
    click.echo(
        f"\n{example.query}: {problem.questions[example.query]!r} at {example.run}\n"
        f"  recall {example.recall:.2f}, srecall {example.semantic:.2f}: "
        + (
            "everything relevant was found; missed were"
            if example.semantic == 1
            else "what was missed matters; missed were"
        )
    )
    # Relevant ones first: they are the reader's question.
    order = sorted(example.missed, key=lambda m: (-(m.grade if m.grade == m.grade else -1), m.rank))
    for missed in order[:6]:
        grade = "unjudged" if missed.grade != missed.grade else f"grade {missed.grade:.0f}"
        click.echo(f"    rank {missed.rank:2}  {grade:8}  {missed.document}")
    if len(order) > 6:
        click.echo(f"    and {len(order) - 6} more")


def _write_report(story: Sweep, path: str) -> None:
    from semrecall.errors import MissingExtra

    shown = story.shown.runs[0]
    try:
        story.shown.to_html(
            path,
            costs={shown: story.costs[shown]},
            query_texts=story.problem.questions,
            document_texts=story.problem.documents,
            sweep=story.curves,
            command="semrecall demo",
        )
    except MissingExtra as error:
        click.echo(f"\nno report: {error.message} ({error.hint})", err=True)
        return
    click.echo(f"\nThe report of {shown}, with distributions, slices, worst questions: {path}")
