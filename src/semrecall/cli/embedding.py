"""Vectors made from texts: the options that commands share, and the progress of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from semrecall.data import Vectors

__all__ = ["embed_options", "embedded"]

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


def embed_options(command: Command) -> Command:
    """Decorator: the options that say how vectors are made."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


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
