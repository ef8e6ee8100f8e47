"""semrecall list: the measures, systems, judges, prompts and file formats."""

from __future__ import annotations

import click

from semrecall.cli.tables import format_option


@click.command("list")
@click.argument(
    "what",
    type=click.Choice(["measures", "systems", "judges", "prompts", "formats"]),
    required=False,
    default=None,
)
@format_option
def command(what: str | None, format: str) -> None:  # noqa: A002
    """List the measures, systems, judges, prompts and file formats that semrecall knows.

    Without an argument, all of them.
    """
    from semrecall.cli.tables import print_rows

    tables = {
        "measures": _measures,
        "systems": _systems,
        "judges": _judges,
        "prompts": _prompts,
        "formats": _formats,
    }
    if what is None and format == "json":
        import json

        click.echo(json.dumps({name: rows() for name, rows in tables.items()}, indent=2))
        return
    for position, (name, rows) in enumerate(tables.items()):
        if what not in (None, name):
            continue
        if what is None:
            click.echo(("\n" if position else "") + name.capitalize() + "\n")
        if name == "measures" and format == "table":
            _show_measures(rows())
        else:
            print_rows(rows(), format)


#: What each layer is judged against.
_LAYERS = {
    "index": "results against exact neighbours",
    "retrieval": "results against judgments",
    "context": "what a generator read, by verdicts",
    "answer": "what it answered, by verdicts",
}


def _show_measures(rows: list[dict[str, str]]) -> None:
    """A table for each layer: the name and what it means are all that a terminal has room for."""
    from semrecall.cli.tables import print_rows

    for position, (layer, against) in enumerate(_LAYERS.items()):
        click.echo(("\n" if position else "") + f"{layer}: {against}\n")
        shown = [
            row | {"about": row["about"] + (f" (extra {row['extra']})" if row["extra"] else "")}
            for row in rows
            if row["layer"] == layer
        ]
        print_rows(shown, titles={"measure": "measure", "about": "about"})


def _measures() -> list[dict[str, str]]:
    from semrecall.measures import measures

    return [
        {"measure": m.usage, "layer": m.layer, "extra": m.extra, "about": m.about}
        for m in measures()
    ]


def _systems() -> list[dict[str, str]]:
    from semrecall.registry import system_entries

    return [
        {"system": name, "extra": entry.extra or "", "about": entry.about}
        for name, entry in system_entries().items()
    ]


def _judges() -> list[dict[str, str]]:
    from semrecall.registry import judge_entries

    return [
        {"judge": name, "extra": entry.extra or "", "about": entry.about}
        for name, entry in judge_entries().items()
    ]


def _prompts() -> list[dict[str, str]]:
    from semrecall.judges.prompts import load_prompt, prompt_names

    found = [load_prompt(name) for name in prompt_names()]
    return [
        {
            "prompt": prompt.label,
            "grades": " ".join(map(str, prompt.scale.grades)),
            "relevant": f"from {prompt.scale.relevant:g}",
            "about": prompt.purpose,
        }
        for prompt in found
    ]


def _formats() -> list[dict[str, str]]:
    from semrecall.formats import formats

    return [
        {
            "format": name,
            "files": " ".join(form.suffixes),
            "holds": ", ".join(form.read),
            "about": form.about,
        }
        for name, form in formats().items()
    ]
