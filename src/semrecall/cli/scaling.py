"""The options of semrecall truth for bases of many files, and who does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

__all__ = ["base_given", "engine_given", "engine_options", "told_order", "told_seconds"]

_WORTH_TELLING_SECONDS = 10.0

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--engine", type=click.Choice(["threads", "processes", "ray"]), default="threads",
        show_default=True, help="Who does the work: this process, several, or a Ray cluster.",
    ),
    click.option(
        "--workers", type=click.IntRange(min=1),
        help="Processes, or cores of the cluster, to use; all if absent.",
    ),
    click.option(
        "--address", help="Of the Ray cluster: HOST:PORT, or auto; this machine if absent."
    ),
)  # fmt: skip


def engine_options(command: Command) -> Command:
    """Decorator: the options that say who does the work."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def engine_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say, in the words of `truth`."""
    if given["address"] is not None and given["engine"] != "ray":
        raise click.UsageError(f"--address is for --engine ray, not for {given['engine']}")
    return {name: given[name] for name in ("engine", "workers", "address")}


def base_given(
    paths: Sequence[str], *, dataset: str | None, ids: str | None, output: str | None
) -> Any:
    """The base that the arguments name: several stand in natural order, whoever listed them.

    So a pattern means the same whether a shell expands it or we do.
    """
    import os

    from semrecall.truth.shards import natural
    from semrecall.truth.verb import open_base

    named = paths[0] if len(paths) == 1 else sorted(paths, key=natural)
    base = open_base(named, dataset=dataset, ids=ids)
    if base.shards is None or output is None or not os.path.exists(output):
        return base
    for shard in base.shards.files:
        path = shard.source.local
        if path is not None and os.path.samefile(path, output):
            raise click.UsageError(f"--output would write over {path}, which is a part of the base")
    return base


def told_order(base: Any) -> None:
    """Say which rows the shards hold, where there are several."""
    if base.shards is None or len(base.shards.files) < 2:
        return
    lines = [
        f"  rows {first:,} to {first + shard.rows - 1:,}: {shard.source.name}"
        for first, shard in zip(base.shards.starts, base.shards.files, strict=True)
        if shard.rows
    ]
    if len(lines) > 6:
        lines = [*lines[:3], f"  ... {len(lines) - 5:,} more ...", *lines[-2:]]
    click.echo(f"base: {len(base.shards.files):,} files, {base.shards.rows:,} rows:", err=True)
    for line in lines:
        click.echo(line, err=True)


def told_seconds(timings: Mapping[str, float], engine: str) -> str:
    """What the time went to, for the last line; nothing for a short search."""
    if sum(timings.values()) < _WORTH_TELLING_SECONDS:
        return ""
    names = {"reading": "waiting for data", "screening": "screening", "settling": "settling"}
    parts = [f"{timings[key]:.1f} s {name}" for key, name in names.items() if key in timings]
    whose = "" if engine == "threads" else " of all workers"
    return f"; {', '.join(parts)}{whose}"
