"""The options of semrecall truth that bring an older truth up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["update_given", "update_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--update", type=click.Path(), metavar="OLD.parquet",
        help="Repair this truth: score only rows that are new or changed. -o may name it, too.",
    ),
    click.option("--was", type=click.Path(), help="The base that the old truth was made from."),
    click.option("--was-ids", type=click.Path(), help="Ids of the rows of --was, like --base-ids."),
    click.option(
        "--changed", type=click.Path(),
        help="Ids of all new and changed rows, one a line, or .npy; in place of --was.",
    ),
    click.option(
        "--was-filter", type=click.Path(), metavar="FILE|PREDICATE",
        help="The filter of the old truth, over --was, where it was another than --filter.",
    ),
    click.option(
        "--was-columns", type=click.Path(), multiple=True,
        help="Columns of --was, like --base-columns; --was itself if it is parquet.",
    ),
    click.option(
        "--keep-rows", is_flag=True,
        help="Keep row hashes, and what filters allow, beside -o, so that --update needs no other "
        "--was, --changed or --was-filter.",
    ),
    click.option(
        "--spare", type=click.IntRange(min=0),
        help="Keep so many neighbours more than -k, which later deletions may use up.",
    ),
)  # fmt: skip


def update_options(command: Command) -> Command:
    """Decorator: the options that say what is updated, and how it is known what changed."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def update_given(
    given: Mapping[str, Any], output: str | None, dataset: str | None, space: str
) -> Any:
    """What the options say, in the words of `truth`.

    Row hashes that were found beside the old truth are kept beside the new one, too.
    """
    from semrecall.errors import InputError
    from semrecall.truth.rows import beside

    update = given["update"]
    if update is not None and not Path(update).exists():
        raise FileNotFoundError(2, "no such file", update)
    if given["keep_rows"] and output is None:
        raise InputError("--keep-rows keeps them beside -o", hint="give -o FILE")
    keeps = given["keep_rows"] or (update is not None and beside(update).exists())
    was = _was(given, dataset, space)
    return {
        "update": update,
        "was": was,
        "was_filter": _was_filter(given, was),
        "was_columns": list(given["was_columns"]) or None,
        "changed": given["changed"],
        "spare": given["spare"],
        "keep_rows": beside(output) if keeps and output is not None else None,
        "notes": [],
    }


def _was(given: Mapping[str, Any], dataset: str | None, space: str) -> Any:
    """The older base, opened."""
    from semrecall.formats.multivectors import read_multivectors
    from semrecall.truth.verb import open_base

    if given["was"] is None:
        return None
    opened = read_multivectors if space == "maxsim" else open_base
    return opened(given["was"], dataset=dataset, ids=given["was_ids"])


def _was_filter(given: Mapping[str, Any], was: Any) -> Any:
    """The older filter; packed bits are those of the older base."""
    from semrecall.errors import InputError
    from semrecall.formats import read_allowed
    from semrecall.truth.filtering import names_file

    said, bits = given["was_filter"], given["filter_bits"]
    if said is None or bits is None or not names_file(said):
        return said
    if was is None:
        raise InputError("packed bits of --was-filter are of the rows of --was; give it")
    rows = len(was.vectors if hasattr(was, "vectors") else was)
    return read_allowed(said, bits=bits, rows=rows)
