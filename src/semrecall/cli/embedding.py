"""Vectors made from texts: the options that commands share, and the progress of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from semrecall.data import Vectors

__all__ = ["embed_options", "embedded", "queries_given", "set_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--cache", type=click.Path(dir_okay=False), default="semrecall.embeddings",
        show_default=True,
        help="File that keeps every vector made, so that none is made or paid for twice.",
    ),
    click.option("--no-cache", is_flag=True, help="Keep no vectors."),
    click.option("--normalize", is_flag=True, help="Scale the vectors made to length one."),
)  # fmt: skip


_SET_OPTIONS = (
    click.option(
        "--eval-set", type=click.Path(),
        help="Queries as JSON lines of text, filter, grades, vector and id, each as it is there.",
    ),
    click.option(
        "--embed", metavar="SPEC",
        help="Make query vectors of the texts of --eval-set, as semrecall embed --with does.",
    ),
    click.option(
        "--ignore-filters", is_flag=True, help="Search without the filters of --eval-set."
    ),
    *_OPTIONS,
)  # fmt: skip


def embed_options(command: Command) -> Command:
    """Decorator: the options that say how vectors are made."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def set_options(command: Command) -> Command:
    """Decorator: the options that say which evaluation set is asked, and how."""
    for option in reversed(_SET_OPTIONS):
        command = option(command)
    return command


def queries_given(given: Mapping[str, Any], *, embed: bool = True) -> dict[str, Any]:
    """The queries, by --queries, --eval-set and --embed, in the words of `search`.

    queries: the vectors, or None. Of an evaluation set also query_ids (where there are no
    vectors), texts and filters by query id, and judgments. embed: whether vectors are made.
    """
    from semrecall.errors import InputError
    from semrecall.formats import read_evaluation_set, read_queries

    path, vectors = given["eval_set"], given["queries"]
    if path is None and given["embed"]:
        raise InputError("--embed makes vectors of texts", hint="give them: --eval-set FILE")
    if path is None and vectors is None:
        raise InputError("there are no queries", hint="give --queries FILE or --eval-set FILE")
    known = None if path is None else read_evaluation_set(path)
    queries, ids = None, given["query_ids"]
    if vectors is not None:
        queries = read_queries(vectors, dataset=given["queries_dataset"], ids=ids)
        if known is not None and ids is None and queries.given_ids is None:
            # The rows of a file without ids are the lines of the evaluation set.
            _check_lines(len(queries), len(known.ids), vectors, path)
            queries = read_queries(vectors, dataset=given["queries_dataset"], ids=known.ids)
    if known is None:
        return {"queries": queries}
    if given["embed"] and embed:
        if known.texts is None:
            raise InputError(f"{path}: has no texts to make vectors of")
        queries = embedded(known.texts, given["embed"], given, known.ids)
    elif queries is None:
        queries = known.vectors
    names = known.ids.strings().tolist()
    found: dict[str, Any] = {"queries": queries, "judgments": known.judgments}
    if queries is None:
        found["query_ids"] = known.ids
    if known.texts is not None:
        found["texts"] = dict(zip(names, known.texts, strict=True))
    if known.filters is not None and not given["ignore_filters"]:
        found["filters"] = dict(zip(names, known.filters, strict=True))
    return found


def _check_lines(vectors: int, lines: int, given: str, path: str) -> None:
    from semrecall.errors import MismatchError

    if vectors != lines:
        raise MismatchError(
            f"{given} has {vectors:,} vectors, {path} {lines:,} queries",
            hint="name the queries of the vectors with --query-ids FILE",
        )


def embedded(
    texts: Sequence[str] | Mapping[Any, str], spec: str, given: Mapping[str, Any], ids: Any = None
) -> Vectors:
    """The vectors of these texts, by the options given; progress goes to who watches."""
    from semrecall.embeddings import embed

    shown = sys.stderr.isatty()

    def watch(done: int, count: int) -> None:
        if shown:
            click.echo(f"\rembedding {done:,} of {count:,} texts ", nl=done == count, err=True)

    cache = None if given["no_cache"] else given["cache"]
    return embed(
        texts, spec, ids=ids, normalize=given["normalize"], cache=cache, watch=watch
    )  # fmt: skip
