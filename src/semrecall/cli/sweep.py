"""semrecall sweep: quality against cost over the settings of one system or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.sources import FILE
from semrecall.cli.tables import format_option
from semrecall.cli.tune import inputs_of, progress, ranges, system_options

if TYPE_CHECKING:
    from semrecall.tuning import Sweep

__all__ = ["command"]


@click.command("sweep", cls=WritingCommand)
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option(
    "--set", "settings", multiple=True, metavar="KNOB=VALUES",
    help="Values (nprobe=1,2,4) or a range to spread (nprobe=1:256); may be repeated. Default: "
    "the main knob of each system, over all it can be.",
)  # fmt: skip
@click.option(
    "--points", type=click.IntRange(min=2), default=9, show_default=True,
    help="Values that a range is spread over.",
)  # fmt: skip
@click.option(
    "-m", "--measure", "measures", multiple=True, metavar="NAME",
    help="A measure; may be repeated. Default: the three recalls, as far as the files allow.",
)  # fmt: skip
@click.option("--minimize", metavar="COST", help="The cost, as in semrecall tune.")
@click.option("--columns", type=FILE, help="File with query_id and columns of the queries.")
@click.option(
    "--by", multiple=True, metavar="COLUMN",
    help="Slice by a column of the queries, e.g. their selectivity, or by sn.",
)  # fmt: skip
@click.option(
    "--filter-column", metavar="COLUMN",
    help="Column with the filter of each query, in the system's own language.",
)  # fmt: skip
@click.option(
    "--at-cost", multiple=True, type=float, metavar="COST",
    help="Compare the systems at this cost; may be repeated.",
)  # fmt: skip
@click.option(
    "--at", multiple=True, metavar="MEASURE=VALUE",
    help="Compare what the systems cost at this quality; may be repeated.",
)  # fmt: skip
@click.option(
    "--html", type=OutputPath(".html", ".htm", dir_okay=False), metavar="FILE",
    help="Also write an HTML page with the curves.",
)  # fmt: skip
@system_options
@format_option
def command(format: str, **given: Any) -> None:  # noqa: A002
    """Measure quality against cost over the settings of one system or several.

    \b
    Examples:
      semrecall sweep faiss?factory=IVF256,SQ8 faiss?factory=HNSW32 --base base.fbin \\
          --queries queries.fbin --space ip --truth truth.parquet --judgments labels.parquet \\
          --at srecall@100=0.95 --html curves.html
      semrecall sweep qdrant://127.0.0.1:6333/docs --set ef=16:512 --queries queries.npy \\
          --truth filtered.parquet --columns queries.parquet --filter-column filter --by selectivity
    """
    from semrecall.registry import import_extra
    from semrecall.tuning import sweep

    if given["html"]:
        # Better now than after the work.
        import_extra("matplotlib", "report", "an HTML page")
    inputs = inputs_of(given)
    gates = [_quality(text) for text in given["at"]]
    found = sweep(
        list(given["specs"]),
        measures=list(given["measures"]) or _usual(inputs),
        settings=ranges(given["settings"], "--set") or None,
        points=given["points"],
        minimize=given["minimize"],
        by=given["by"],
        progress=progress(),
        **(inputs | _columns(given)),
        **{name: given[name] for name in ("seed", "confidence")},
    )
    _show(found, format, given["at_cost"], gates)
    if given["html"]:
        found.to_html(given["html"], command=command_line())
        click.echo(f"wrote {given['html']}", err=True)


def _usual(inputs: dict[str, Any]) -> list[str]:
    """The three recalls as far as the files allow; without a truth, the usual of ranked lists."""
    truth, judgments = inputs["truth"], inputs["judgments"]
    if truth is None:
        return ["nDCG@10", "R@100"] if judgments is not None else []
    k = inputs["k"] or truth.depth
    names = [f"recall@{k}"]
    if judgments is not None:
        names.append(f"srecall@{k}")
    if truth.flat_scores is not None or inputs["base"] is not None:
        names.append(f"trecall@{k}")
    return names


def _columns(given: dict[str, Any]) -> dict[str, Any]:
    """Columns of the queries, and among them their filters."""
    from semrecall.data.run import QUERY_COLUMNS
    from semrecall.errors import InputError
    from semrecall.formats import read_columns
    from semrecall.registry import did_you_mean

    if not given["columns"]:
        if given["filter_column"]:
            raise InputError("--filter-column needs the columns of the queries: --columns FILE")
        return {}
    columns = read_columns(given["columns"])
    name = given["filter_column"]
    if not name:
        return {"columns": columns}
    if name not in columns:
        others = [c for c in columns if c not in QUERY_COLUMNS]
        raise InputError(f"no column {name!r} with filters", hint=did_you_mean(name, others))
    queries = next(columns[c] for c in QUERY_COLUMNS if c in columns)
    values = columns[name].tolist()
    return {"columns": columns, "filters": dict(zip(list(queries), values, strict=True))}


def _quality(text: str) -> tuple[str, float]:
    """`srecall(rel=2)@100=0.95` or `...=95%` as a measure and a number."""
    from semrecall.errors import InputError
    from semrecall.gates import check_limit
    from semrecall.measures import parse

    name, _, written = text.rpartition("=")
    try:
        value = float(written.strip().rstrip("%")) / (100 if "%" in written else 1)
    except ValueError:
        value = float("nan")
    if not name.strip() or value != value:
        raise InputError(f"--at {text!r} is not MEASURE=VALUE", hint="e.g. --at srecall@100=0.95")
    check_limit(parse(name.strip()), value, f"--at {text!r}")
    return name.strip(), value


def _show(
    found: Sweep, style: str, costs: tuple[float, ...], qualities: list[tuple[str, float]]
) -> None:
    from semrecall.cli.tables import print_rows
    from semrecall.tuning.sweep_text import at_cost_rows, at_quality_rows, at_text, sweep_row

    compared = [
        (f"at {found.objective.name} {cost:,.6g}:", at_cost_rows(found, cost)) for cost in costs
    ]
    compared += [
        (f"at {name} {value:g}:", at_quality_rows(found, name, value)) for name, value in qualities
    ]
    if style == "table":
        click.echo("\n".join([str(found), *(at_text(title, rows) for title, rows in compared)]))
        return
    rows = [sweep_row(row, found) for by in (None, *found.slices) for row in found.rows(by)]
    document = found.to_dict() | {"command": command_line()}
    document["compared"] = [
        {"at": title.removeprefix("at ").rstrip(":"), "systems": [_plain(one) for one in systems]}
        for title, systems in [
            *((f"{found.objective.name} {cost}", found.at_cost(cost)) for cost in costs),
            *((f"{name} {value}", found.at_quality(name, value)) for name, value in qualities),
        ]
    ]
    print_rows(rows, style, document=document)
    for title, lines in compared if style == "markdown" else ():
        click.echo(f"\n{title}\n")
        print_rows([dict(zip(lines[0], line, strict=True)) for line in lines[1:]], style)


def _plain(one: Any) -> dict[str, Any]:
    def figures(found: Any) -> Any:
        return None if found is None else vars(found).copy()

    return {
        "system": one.system,
        "measure": one.measure,
        "value": figures(one.value),
        "change": figures(one.change),
        "between": [str(setting) for setting in one.between],
        "cheapest": figures(one.cheapest),
        "reason": one.reason or None,
    }
