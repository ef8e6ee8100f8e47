"""Options on labels: the query itself, equal documents, spans, splits, unanswerable queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.sources import FILE

if TYPE_CHECKING:
    from semrecall.data import Ids
    from semrecall.data.classes import Classes
    from semrecall.evaluate import Result
    from semrecall.splits import Split

__all__ = [
    "LABEL_OPTIONS",
    "SAME_OPTIONS",
    "SPLIT_OPTIONS",
    "chosen_queries",
    "label_settings",
    "note_use",
    "part_of",
    "same_settings",
]

#: Which documents are the same, or the query itself.
SAME_OPTIONS = (
    click.option(
        "--drop-self", is_flag=True, help="Leave out documents whose id is that of the query."
    ),
    click.option(
        "--same-as",
        type=FILE,
        help="Documents that are the same count once: id and class, or id and same_as.",
    ),
    click.option("--same-text", type=FILE, help="A corpus: documents of equal text are the same."),
    click.option(
        "--text-rule",
        type=click.Choice(["normalised", "exact"]),
        default="normalised",
        show_default=True,
        help="Whether case, white space and Unicode form make texts differ.",
    ),
    click.option(
        "--same-conflicts",
        type=click.Choice(["max", "error"]),
        default="max",
        show_default=True,
        help="Grades that differ among documents that are the same.",
    ),
)
#: Which queries take part.
SPLIT_OPTIONS = (
    click.option(
        "--split", metavar="FILE[:PART]", help="Score a part of the queries only, e.g. s.csv:dev."
    ),
    click.option("--part", metavar="PART", help="The part of --split FILE: dev or test."),
)
#: What `score` and `compare` take beside their other options.
LABEL_OPTIONS = (
    *SAME_OPTIONS,
    click.option(
        "--spans", type=FILE, help="Labels on documents: query_id, document_id, start, end, grade."
    ),
    click.option("--chunks", type=FILE, help="The chunks searched: id, document_id, start, end."),
    click.option(
        "--overlap",
        default="50%",
        show_default=True,
        metavar="RULE",
        help='When a chunk is relevant for a span: "50%" of the smaller, "80% of span", '
        '"20 characters", "touch".',
    ),
    *SPLIT_OPTIONS,
    click.option(
        "--unanswerable",
        type=FILE,
        help="Ids of queries known to have no answer, one a line; they are kept apart.",
    ),
)


def label_settings(given: dict[str, Any]) -> dict[str, Any]:
    """What `evaluate` is told by these options."""
    from semrecall.formats import read_ids
    from semrecall.formats.spans import read_chunks, read_spans

    return same_settings(given) | {
        "only": chosen_queries(given),
        "spans": read_spans(given["spans"]) if given["spans"] else None,
        "chunks": read_chunks(given["chunks"]) if given["chunks"] else None,
        "overlap": given["overlap"],
        "unanswerable": read_ids(given["unanswerable"]) if given["unanswerable"] else None,
    }


def same_settings(given: dict[str, Any]) -> dict[str, Any]:
    """What SAME_OPTIONS say, in the words of `evaluate` and `pool`."""
    return {
        "drop_self": given["drop_self"],
        "same_as": _classes(given),
        "same_conflicts": given["same_conflicts"],
    }


def chosen_queries(given: dict[str, Any]) -> Ids | None:
    """The queries of the part of a split that was asked for; None for all."""
    from semrecall.errors import InputError

    if given["split"]:
        found, name = part_of(given["split"], given["part"])
        return found.part(name)
    if given["part"]:
        raise InputError(
            f"--part {given['part']} is given without --split",
            hint="name the file of the split: --split FILE (made by semrecall split)",
        )
    return None


def note_use(given: dict[str, Any], result: Result) -> None:
    """Count it where the test part of a split was scored."""
    from semrecall.splits import PATIENCE, TEST, count_use

    if not given["split"]:
        return
    path, part = _path_and_part(given["split"], given["part"])
    if part == TEST:
        values = ((measure, scores.values) for (_, measure), scores in result.scores.items())
        use = count_use(path, part, values)
        # From then on a warning says the same.
        if use.times > 1 and use.results < PATIENCE:
            click.echo(
                f"{path}: the test was scored {use.times:,} times, with {use.results:,} different "
                f"{'result' if use.results == 1 else 'results'}",
                err=True,
            )


def part_of(text: str, part: str | None) -> tuple[Split, str]:
    """The split of `FILE:PART`, or of FILE with the part beside it, and the name of the part."""
    from semrecall.splits import read_split

    path, name = _path_and_part(text, part)
    return read_split(path), name


def _path_and_part(text: str, part: str | None) -> tuple[str, str]:
    from pathlib import Path

    from semrecall.errors import InputError

    path, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        path, name = text, ""
    if name and part and name != part:
        raise InputError(f"--split {text} and --part {part} name two parts")
    if not Path(path).exists():
        raise InputError(f"--split {text}: there is no file {path}")
    if not (name or part):
        raise InputError(
            f"--split {text} names no part", hint=f"write {text}:dev or {text}:test, or add --part"
        )
    return path, name or str(part)


def _classes(given: dict[str, Any]) -> Classes | None:
    """Classes by a file, by equal texts, or by both together."""
    from semrecall.data.classes import Classes, same_text
    from semrecall.data.ids import concatenate
    from semrecall.formats import read_texts
    from semrecall.formats.spans import read_classes

    found = []
    if given["same_as"]:
        found.append(read_classes(given["same_as"]))
    if given["same_text"]:
        texts = read_texts(given["same_text"])
        found.append(same_text(texts, normalise=given["text_rule"] == "normalised"))
    if len(found) < 2:
        return found[0] if found else None
    return Classes.of_pairs(
        concatenate([c.members for c in found]), concatenate([c.representatives for c in found])
    )
