"""The options of semrecall truth that say what each query may find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

__all__ = ["filter_given", "filter_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--filter", "filter_", type=click.Path(), metavar="FILE|PREDICATE",
        help="What queries may find: 'lang == \"th\" and price < 20' over columns of the base "
        "($name: of the query), a .npy mask, or JSON lines of query_id and ids.",
    ),
    click.option(
        "--filter-column", metavar="COLUMN",
        help="The column of --query-columns with a predicate for each query; null: no filter.",
    ),
    click.option(
        "--base-columns", type=click.Path(), multiple=True,
        help="Columns of the base: parquet, JSON lines, CSV; BASE itself if it is parquet.",
    ),
    click.option(
        "--query-columns", type=click.Path(),
        help="Columns of the queries, for $name and --filter-column; e.g. an evaluation set.",
    ),
    click.option(
        "--filter-bits", type=click.Choice(["big", "little"]),
        help="--filter is packed bits (.npy, uint8), the first row in the highest or lowest.",
    ),
)  # fmt: skip


def filter_options(command: Command) -> Command:
    """Decorator: the options that say what each query may find."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_given(given: Mapping[str, Any], rows: int | None, queries: Any) -> dict[str, Any]:
    """What the options say, in the words of `truth`. rows: of the base."""
    from semrecall.errors import InputError
    from semrecall.formats import read_allowed
    from semrecall.formats.selection import query_columns
    from semrecall.truth.filtering import names_file

    said, column = given["filter_"], given["filter_column"]
    own, bits = given["query_columns"], given["filter_bits"]
    if column is not None:
        if said is not None:
            raise InputError("--filter and --filter-column both say what queries may find")
        if own is None:
            raise InputError(
                "--filter-column needs the columns of the queries", hint="give --query-columns FILE"
            )
        named = queries.given_ids is not None
        said = query_columns(own, [column], queries.ids, named=named)[column]
    if bits is not None:
        if not (isinstance(said, str) and names_file(said)):
            raise InputError("--filter-bits tells how to read --filter FILE")
        said = read_allowed(said, bits=bits, rows=rows)
    return {
        "filter": said,
        "columns": list(given["base_columns"]) or None,
        "query_columns": own,
    }
